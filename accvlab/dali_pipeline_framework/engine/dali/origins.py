# SPDX-License-Identifier: Apache-2.0
"""Where DALI says that an operator was defined."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Iterator
from types import CodeType, FrameType
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


@contextlib.contextmanager
def each_line_looked_up_once() -> Iterator[None]:
    """Find the origins of operators in less time, within a ``with`` statement; they are what DALI finds.

    For each operator, DALI has Python look up each line of the stack of calls, and whether its file has changed: a
    third of the time that it takes to define a graph. Most of these lines are the same for all operators.
    """
    by_dali = dali_trace.extract_stack
    dali_trace.extract_stack = _StackOfKnownLines()
    try:
        yield
    finally:
        dali_trace.extract_stack = by_dali


class _StackOfKnownLines:
    """Does what DALI's ``extract_stack`` does, and keeps what it has looked up."""

    def __init__(self) -> None:
        # By the code, which is kept so that its `id` stays its own (to hash code takes long), and the instruction.
        self._known: dict[tuple[int, int], tuple[CodeType, traceback.FrameSummary]] = {}

    def __call__(self, start_frame: int = 0, end_frame: int | None = None) -> list[traceback.FrameSummary]:
        frames = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            frames.append(frame)
            frame = frame.f_back
        stack = list(map(self._summary, frames[::-1][start_frame:end_frame]))
        by_dali: Any = dali_trace
        frame_map, frame_filter = by_dali.get_frame_map(), by_dali.get_frame_filter()
        if not frame_map and not frame_filter:
            return stack
        filtered: list[traceback.FrameSummary] = dali_trace._filter_autograph_frames(
            stack, frame_map, frame_filter
        )
        return filtered

    def _summary(self, frame: FrameType) -> traceback.FrameSummary:
        code = frame.f_code
        place = (id(code), frame.f_lasti)
        known = self._known.get(place)
        if known is None:
            known = code, traceback.FrameSummary(code.co_filename, frame.f_lineno, code.co_name)
            self._known[place] = known
        return known[1]
