# SPDX-License-Identifier: Apache-2.0
"""Ranges for NVIDIA's profiler, Nsight Systems, where they are asked for."""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Callable
from typing import Any, Protocol, cast

from ...errors import SettingError

VARIABLE = "DALI_PIPELINE_FRAMEWORK_NVTX"
"""Ranges are marked where this is set in the environment to something else than 0."""


class Marker(Protocol):
    """What begins and ends ranges."""

    def push_range(self, message: str) -> object:
        """Begin a range within the present one of this thread."""

    def pop_range(self) -> object:
        """End the present range of this thread."""


def are_wanted() -> bool:
    """Whether ranges are to be marked."""
    return os.environ.get(VARIABLE, "0") not in ("", "0")


@functools.cache
def marker() -> Marker:
    """Get what marks ranges: the package `nvtx`, or PyTorch with CUDA.

    Raises:
        SettingError: Neither is installed.
    """
    try:
        import nvtx

        return cast(Marker, nvtx)
    except ImportError:
        pass
    try:
        from torch.cuda import is_available
        from torch.cuda import nvtx as nvtx_of_torch
    except ImportError:
        is_available = bool
    if not is_available():
        raise SettingError(
            f"{VARIABLE} is set, and marking ranges needs the package nvtx, or PyTorch with CUDA. Install the "
            f"extra `nvtx`, or unset the variable."
        )

    class _OfTorch:
        push_range = staticmethod(nvtx_of_torch.range_push)
        pop_range = staticmethod(nvtx_of_torch.range_pop)

    return _OfTorch()


def mark(owner: Any, **ranges: str) -> None:
    """Run methods of an object each in a range of a name, if ranges are wanted; otherwise nothing is changed."""
    if not are_wanted():
        return
    for name, label in ranges.items():
        if name in vars(owner):
            run = in_range(vars(owner)[name], label)
        else:  # a bound method would refer to its object, which would be kept by itself
            run = in_range(getattr(type(owner), name), label, weakref.ref(owner))
        setattr(owner, name, run)


def in_range(
    function: Callable[..., Any], label: str, get_self: Callable[[], Any] | None = None
) -> Callable[..., Any]:
    """Get a function that runs another one in a range.

    Args:
        function: The other one.
        label: Name of the range.
        get_self: Gets the object, where the other one is a method of a class.
    """
    marks = marker()

    def run(*args: Any, **kwargs: Any) -> Any:
        if get_self is not None:
            args = (get_self(), *args)
        marks.push_range(label)
        try:
            return function(*args, **kwargs)
        finally:
            marks.pop_range()

    return run
