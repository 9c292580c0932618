# SPDX-License-Identifier: Apache-2.0
"""Pipelines of DALI in forked children."""

from __future__ import annotations

from typing import Any

from ...forks import keep_forever


def leave_pipeline(pipeline: Any) -> None:
    """In a forked child, leave a pipeline to the parent, which has its threads."""
    keep_forever(pipeline._pipe)
    pipeline._pipe = None  # else DALI shuts it down at exit
