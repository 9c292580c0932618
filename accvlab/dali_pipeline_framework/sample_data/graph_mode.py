# SPDX-License-Identifier: Apache-2.0
"""Keep DALI's conditionals away from code that only moves values around.

With ``enable_conditionals=True`` DALI rewrites every function that is called while a graph is defined, so
that ``if`` works on data. Code of this package needs none of that, and some Python does not survive it.
"""

from __future__ import annotations

import inspect
from typing import TypeVar

from nvidia.dali.pipeline import do_not_convert

_Class = TypeVar("_Class", bound=type)


def methods_not_converted(cls: _Class) -> _Class:
    """Class decorator: exclude all methods that the class itself defines."""
    for member in vars(cls).values():
        function = member.__func__ if isinstance(member, staticmethod | classmethod) else member
        if inspect.isfunction(function):
            do_not_convert(function)
    return cls


__all__ = ["do_not_convert", "methods_not_converted"]
