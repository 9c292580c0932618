# SPDX-License-Identifier: Apache-2.0
"""The tree of a parsed condition; ``str`` of a node shows how it was understood."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, cast

import attrs

from ...errors import SettingError

COMPARISON_TYPES = ("==", "!=", "<", ">", "<=", ">=")


class AST(ABC):
    """A node of the tree."""

    @property
    def children(self) -> tuple[AST, ...]:
        """The nodes right below."""
        values = attrs.astuple(cast(Any, self), recurse=False)
        return tuple(value for value in values if isinstance(value, AST))

    @abstractmethod
    def __str__(self) -> str:
        """The node as text, with all brackets."""


@attrs.frozen(str=False)
class Assignment(AST):
    """``variable = expression``: ``'v' = <...>``."""

    variable: str
    expression: AST

    def __str__(self) -> str:
        return f"'{self.variable}' = <{self.expression}>"


@attrs.frozen(str=False)
class Literal(AST):
    """A number without sign; ``value`` is its text as it was written."""

    value: str

    def __str__(self) -> str:
        return str(self.value)


@attrs.frozen(str=False)
class Variable(AST):
    """A ``name``: ``'name'``."""

    name: str

    def __str__(self) -> str:
        return f"'{self.name}'"


@attrs.frozen(str=False)
class Comparison(AST):
    """``val1 comparison_type val2``: ``(l op r)``.

    Attributes:
        val1: Left side.
        comparison_type: ``==``, ``!=``, ``<``, ``>``, ``<=`` or ``>=``; anything else is a `SettingError`.
        val2: Right side.
    """

    val1: AST
    comparison_type: str
    val2: AST

    def __attrs_post_init__(self) -> None:
        """Refuse other comparisons."""
        if self.comparison_type not in COMPARISON_TYPES:
            raise SettingError(
                f"a comparison is one of {', '.join(COMPARISON_TYPES)}, got {self.comparison_type!r}."
            )

    def __str__(self) -> str:
        return f"({self.val1} {self.comparison_type} {self.val2})"


@attrs.frozen(str=False, init=False)
class _Joined(AST, ABC):
    """Several ``conditions`` with the same word between them."""

    word: ClassVar[str]
    conditions: tuple[AST, ...]

    def __init__(self, *conditions: AST) -> None:
        """Join conditions."""
        object.__setattr__(self, "conditions", conditions)

    @property
    def children(self) -> tuple[AST, ...]:
        """The conditions."""
        return self.conditions

    def __str__(self) -> str:
        return "{" + f" {self.word} ".join(map(str, self.conditions)) + "}"


class Or(_Joined):
    """At least one of several ``conditions``: ``{l or r}``."""

    word = "or"


class And(_Joined):
    """All of several ``conditions``: ``{l and r}``."""

    word = "and"


@attrs.frozen(str=False)
class Not(AST):
    """The opposite of ``condition``: ``not [x]``."""

    condition: AST

    def __str__(self) -> str:
        return f"not [{self.condition}]"


@attrs.frozen(str=False)
class UnaryMinus(AST):
    """The negative of ``value``: ``-(x)``."""

    value: AST

    def __str__(self) -> str:
        return f"-({self.value})"
