"""Exceptions that handlers of signals raise, at a chosen moment."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any


def is_interrupted(act: Callable[[], object], moment: int, *modules: ModuleType) -> bool:
    """Call something, and raise an exception before one of the operations of the modules' own code."""
    operations, files = itertools.count(), [module.__file__ for module in modules]

    def note(frame: FrameType, event: str, arg: object) -> Any:
        if frame.f_code.co_filename not in files:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and next(operations) == moment:
            raise KeyboardInterrupt
        return note

    sys.settrace(note)
    try:
        act()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False
