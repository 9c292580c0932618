# SPDX-License-Identifier: Apache-2.0
"""Where DALI says that an operator was defined."""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any, cast

from nvidia.dali import ops
from nvidia.dali._debug_mode import _PipelineDebug
from nvidia.dali._utils import dali_trace
from nvidia.dali.pipeline import Pipeline

_OperatorInstance: Any = cast(Any, ops)._OperatorInstance
_by_dali: Any = _OperatorInstance._process_trace

_Line = tuple[str, int | None, str, str]  # file, number, function, text


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

    For each operator, DALI has Python look up each line of the stack of calls, and whether its file has changed,
    and converts what was found element by element: half of the time that it takes to define a graph. Most of these
    lines are the same for all operators.
    """
    known = _KnownLines()

    def add_origin(instance: Any, arguments: dict[str, Any]) -> None:
        # An operator has no such number where it was made while tracing was off, or in debug mode.
        end = getattr(instance._op, "_definition_frame_end", None)
        is_debugged = getattr(_PipelineDebug.current(), "_debug_on", False)
        if end is None or is_debugged or not dali_trace.is_tracing_enabled():
            _by_dali(instance, arguments)
            return
        pipeline: Any = Pipeline.current()
        stack = known.stack(0 if pipeline is None else pipeline._definition_frame_start, end)
        if not stack:
            _by_dali(instance, arguments)
            return
        for name, values in zip(("filename", "lineno", "name", "line"), zip(*stack, strict=True), strict=True):
            instance.spec.AddArg(f"_origin_stack_{name}", list(values))

    _OperatorInstance._process_trace = add_origin
    try:
        yield
    finally:
        _OperatorInstance._process_trace = _by_dali


class _KnownLines:
    """The stack of calls, as DALI's ``extract_stack`` finds it; what was looked up is kept."""

    def __init__(self) -> None:
        # By the code, which is kept so that its `id` stays its own (to hash code takes long), and the instruction.
        self._known: dict[tuple[int, int], tuple[CodeType, traceback.FrameSummary, _Line]] = {}

    def stack(self, start_frame: int, end_frame: int) -> list[_Line]:
        """The lines of the frames from one number to another one; 0 is the first one of all."""
        frames = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            frames.append(frame)
            frame = frame.f_back
        found = [self._looked_up(frame) for frame in frames[::-1][start_frame:end_frame]]
        trace: Any = dali_trace
        frame_map, frame_filter = trace.get_frame_map(), trace.get_frame_filter()
        if not frame_map and not frame_filter:
            return [line for _, _, line in found]
        summaries = dali_trace._filter_autograph_frames(
            [summary for _, summary, _ in found], frame_map, frame_filter
        )
        return list(map(_line_of, summaries))

    def _looked_up(self, frame: FrameType) -> tuple[CodeType, traceback.FrameSummary, _Line]:
        code = frame.f_code
        place = (id(code), frame.f_lasti)
        known = self._known.get(place)
        if known is None:
            summary = traceback.FrameSummary(code.co_filename, frame.f_lineno, code.co_name)
            known = self._known[place] = (code, summary, _line_of(summary))
        return known


def _line_of(summary: traceback.FrameSummary) -> _Line:
    # What DALI's conditionals have made may have no name.
    return summary.filename, summary.lineno, str(summary.name), (summary.line or "").strip()
