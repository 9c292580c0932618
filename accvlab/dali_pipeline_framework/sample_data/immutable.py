# SPDX-License-Identifier: Apache-2.0
"""Base class of values that cannot change."""

from __future__ import annotations

from typing import TypeVar

_Self = TypeVar("_Self")


class Immutable:
    """Copies, deep ones too, are the object itself."""

    __slots__ = ()

    def __copy__(self: _Self) -> _Self:
        return self

    def __deepcopy__(self: _Self, memo: object) -> _Self:
        return self
