# SPDX-License-Identifier: Apache-2.0
"""Where DALI says that an operator was defined."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from nvidia.dali._utils import dali_trace
from nvidia.dali.pipeline import Pipeline


@contextlib.contextmanager
def origins_from_here() -> Iterator[None]:
    """Let the origins of operators begin below what the caller calls, within a ``with`` statement.

    DALI keeps the stack of calls for each operator, which takes longer the deeper it is. What is above a step says
    nothing about it.
    """
    pipeline: Any = Pipeline.current()
    before = pipeline._definition_frame_start
    pipeline._definition_frame_start = dali_trace.get_stack_depth() - 1
    try:
        yield
    finally:
        pipeline._definition_frame_start = before
