# SPDX-License-Identifier: Apache-2.0
"""Pipelines of DALI that are not destroyed, since that would wait indefinitely or end the process."""

from __future__ import annotations

from typing import Any

from ...forks import keep_forever


def leave_pipeline(pipeline: Any) -> None:
    """Leave a pipeline to the parent, in a forked child or to the end of the process once the GPU has failed."""
    keep_forever(pipeline._pipe)
    pipeline._pipe = None  # else DALI shuts it down at exit
