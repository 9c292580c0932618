"""The lines of code that define an operator, looked up once for each line instead of once for each operator.

DALI keeps for each operator which lines of code led to it, and Python looks at the file of each of them to see
whether it has changed: together a third of the time that it takes to define a graph.
"""

from __future__ import annotations

import sys
import traceback
from types import CodeType
from typing import Any

from nvidia.dali._utils import dali_trace

_known: dict[tuple[CodeType, int], traceback.FrameSummary] = {}


def extract_stack(start_frame: int = 0, end_frame: int | None = None) -> list[traceback.FrameSummary]:
    """Return what DALI's function of this name returns."""
    found = []
    frame: Any = sys._getframe(1)
    while frame is not None:
        place = (frame.f_code, frame.f_lineno)
        summary = _known.get(place)
        if summary is None:
            code = frame.f_code
            summary = _known[place] = traceback.FrameSummary(code.co_filename, frame.f_lineno, code.co_name)
        found.append(summary)
        frame = frame.f_back
    found = found[::-1][start_frame:end_frame]
    frame_map, frame_filter = dali_trace.get_frame_map(), dali_trace.get_frame_filter()
    if not frame_map and not frame_filter:
        return found
    filtered: list[traceback.FrameSummary] = dali_trace._filter_autograph_frames(found, frame_map, frame_filter)
    return filtered
