# SPDX-License-Identifier: Apache-2.0
"""Tracebacks of errors about what the user has given: the lines of the user, and one of this package.

What was left out is logged at the level DEBUG.
"""

from __future__ import annotations

import functools
import logging
import traceback
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, TypeVar, cast

from .errors import FrameworkError

_Function = TypeVar("_Function", bound=Callable[..., Any])

_logger = logging.getLogger(__name__)
_NAMESPACE = f"{__name__.partition('.')[0]}."  # with the packages on top of this one


def with_short_traceback(function: _Function) -> _Function:
    """Decorate a public function or method so that its errors show no more than this frame of the package.

    An exception that is no `FrameworkError` is left as it is, unless code of the user has raised it.
    """

    @functools.wraps(function)
    def call(*args: Any, **arguments: Any) -> Any:
        try:
            return function(*args, **arguments)
        except Exception as error:
            raise _shortened(error)  # noqa: B904 (it is the same)

    return cast(_Function, call)


def construct_with_short_traceback(cls: type) -> None:
    """Decorate the constructor of a class of this package, but not of the user's classes."""
    if "__init__" in vars(cls) and cls.__module__.startswith(_NAMESPACE):
        cast(Any, cls).__init__ = with_short_traceback(cast(Any, cls).__init__)


def _shortened(error: Exception) -> Exception:
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    is_about_call = len(frames) <= 2  # an argument is missing
    if not (isinstance(error, FrameworkError) or is_about_call) and _is_ours(frames[-1]):
        return error
    _logger.debug("The traceback in full:", exc_info=error)
    found: list[BaseException] = [error]
    for link in found:
        link.__traceback__ = _of_user(link.__traceback__)
        linked = (link.__cause__, None if link.__suppress_context__ else link.__context__)
        found += [each for each in linked if each is not None and each not in found]
    return error


def _of_user(trace: TracebackType | None) -> TracebackType | None:
    kept = None
    parts: list[TracebackType] = []
    while trace is not None:
        parts.append(trace)
        trace = trace.tb_next
    for part in reversed(parts):
        if not _is_ours(part.tb_frame):
            kept = TracebackType(kept, part.tb_frame, part.tb_lasti, part.tb_lineno)
    return kept


def _is_ours(frame: FrameType) -> bool:
    """Whether it is of accvlab, or of what calls it: DALI, and constructors that attrs has made."""
    module = str(frame.f_globals.get("__name__", ""))
    is_generated = frame.f_code.co_filename.startswith("<attrs generated")
    return is_generated or module.startswith((_NAMESPACE, "nvidia.dali.", "contextlib"))
