# SPDX-License-Identifier: Apache-2.0
"""The language of conditions on annotations: ``is_kept = is_visible and not (category == -1 or area < 4)``.

`Lexer` makes tokens of the text, `Parser` makes a tree of the tokens, `condition_of` evaluates it.

::

    statement  := VARIABLE '=' or
    or         := and ('or' and)*
    and        := not ('and' not)*
    not        := 'not' not | comparison
    comparison := minus (('==' | '!=' | '<' | '>' | '<=' | '>=') minus)*        left to right: (a < b) < c
    minus      := '-' minus | LITERAL | VARIABLE | '(' or ')'

As in Python, ``not a == b`` is ``not (a == b)``; unlike in Python, comparisons are not chained.
"""

from __future__ import annotations

import functools
import math
import operator
import re
from abc import ABC
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, ClassVar, TypeAlias, cast

import attrs
import numpy as np
import numpy.typing as npt

from ..checks import choice, valid
from ..errors import SettingError
from . import functions
from .functions import Array, Value

_OPERATORS: Mapping[str, Callable[[Value, Value], Value]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}


class AST(ABC):
    """A node of the syntax tree of a parsed text."""

    @property
    def children(self) -> tuple[AST, ...]:
        """The nodes right below."""
        values = attrs.astuple(cast(Any, self), recurse=False)
        return tuple(value for value in values if isinstance(value, AST))

    form: ClassVar[str]
    """The node as text, with all brackets, where the fields are."""

    def __str__(self) -> str:
        return self.form.format(**attrs.asdict(cast(Any, self), recurse=False))


@attrs.frozen
class Assignment(AST):
    """``variable = expression``, printed as ``'v' = <...>``."""

    form = "'{variable}' = <{expression}>"

    variable: str
    expression: AST


@attrs.frozen
class Literal(AST):
    """A number without sign; ``value`` is its text as it was written."""

    form = "{value}"

    value: str


@attrs.frozen
class Variable(AST):
    """A variable, printed as ``'name'``."""

    form = "'{name}'"

    name: str


@attrs.frozen
class Comparison(AST):
    """``val1 comparison_type val2``, printed as ``(l op r)``.

    Attributes:
        val1: Left side.
        comparison_type: ``==``, ``!=``, ``<``, ``>``, ``<=`` or ``>=``; anything else is a `SettingError`.
        val2: Right side.
    """

    form = "({val1} {comparison_type} {val2})"

    val1: AST
    comparison_type: str = attrs.field(validator=valid(choice, allowed=[*_OPERATORS]))
    val2: AST


@attrs.frozen(init=False)
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
    """At least one of several ``conditions``, printed as ``{l or r}``."""

    word = "or"


class And(_Joined):
    """All of several ``conditions``, printed as ``{l and r}``."""

    word = "and"


@attrs.frozen
class Not(AST):
    """The opposite of ``condition``, printed as ``not [x]``."""

    form = "not [{condition}]"

    condition: AST


@attrs.frozen
class UnaryMinus(AST):
    """The negative of ``value``, printed as ``-(x)``."""

    form = "-({value})"

    value: AST


class TokenType:
    """Kinds of tokens."""

    LITERAL = "literal"
    VARIABLE = "variable"
    ASSIGNMENT = "assignment"
    COMPARISON = "comparison"
    LOGICAL_OR = "logical_or"
    LOGICAL_AND = "logical_and"
    LOGICAL_NOT = "logical_not"
    MINUS = "minus"
    PARENTHESIS_OPEN = "parenthesis_open"
    PARENTHESIS_CLOSE = "parenthesis_close"
    EOL = "end_of_line"


@attrs.frozen
class Token:
    """A token; tokens of the same type and value are equal at any position.

    Attributes:
        type: One of `TokenType`.
        value: The text of the token; empty at the end.
        position: Index of its first character.
    """

    type: str
    value: str
    position: int = attrs.field(default=0, eq=False, kw_only=True)


def syntax_error(text: str, position: int, message: str) -> SettingError:
    """Make the error for a text that cannot be parsed, which shows the place."""
    # One blank for each character, so that the mark is below it also after line breaks and tabs.
    shown = "".join(" " if character.isspace() else character for character in text)
    return SettingError(
        f"The condition cannot be parsed at position {position}: {message}.\n  {shown}\n  {' ' * position}^"
    )


_MOST_DIGITS = 1000
# The name of a group is the type of the token.
_TOKENS = re.compile(
    r"\s*(?:(?P<literal>[0-9.]+)|(?P<logical_or>or\b)|(?P<logical_and>and\b)|(?P<logical_not>not\b)"
    r"|(?P<variable>[^\W\d]\w*)|(?P<comparison>[=!<>]=|[<>])|(?P<assignment>=)|(?P<minus>-)"
    r"|(?P<parenthesis_open>\()|(?P<parenthesis_close>\))|(?P<end_of_line>\Z)|(?P<no_token>.))"
)


class Lexer:
    """Iterator over the tokens of a text.

    Numbers are digits with at most one dot; names are letters, digits and ``_``. The words ``and``, ``or`` and
    ``not`` are keywords. White space separates.

    Example:
        >>> lexer = Lexer("a >= -2")
        >>> [lexer.next_token().value for _ in range(5)]
        ['a', '>=', '-', '2', '']
    """

    def __init__(self, input: str) -> None:
        """Start at the beginning of a text.

        Raises:
            SettingError: It is not a text.
        """
        if not isinstance(input, str):
            raise SettingError(f"a condition must be a text, got {input!r}.")
        self._text = input
        self._position = 0

    def next_token(self) -> Token:
        """Return the next token; at the end, always one of type ``EOL``.

        Raises:
            SettingError: The text continues with something that is not a token; it is also a ValueError.
        """
        match: Any = _TOKENS.match(self._text, self._position)
        kind, value, start = match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)
        if kind == "no_token":
            raise syntax_error(self._text, start, f"{value!r} does not belong here")
        if kind == TokenType.LITERAL and len(value) > _MOST_DIGITS:
            raise syntax_error(self._text, start, f"a number has at most {_MOST_DIGITS} digits")
        if kind == TokenType.LITERAL and (value.count(".") > 1 or value == "."):
            raise syntax_error(self._text, start, f"{value!r} is no number: digits with at most one dot are")
        self._position = match.end()
        return Token(kind, value, position=start)


# How tightly operators bind; `not` lies between `and` and the comparisons, as in Python.
_OR, _AND, _NOT, _COMPARISON, _MINUS = range(1, 6)
_STRENGTHS = {TokenType.LOGICAL_OR: _OR, TokenType.LOGICAL_AND: _AND, TokenType.COMPARISON: _COMPARISON}
_MOST_NESTED = 100
_MOST_LEVELS = 250  # of the tree; those who walk it call themselves for each


class Parser:
    """Parses ``<variable> = <expression>``; the grammar is in ``operators/conditions.py``.

    Example:
        >>> print(Parser("r = a and not b == -1").parse())
        'r' = <{'a' and not [('b' == -(1))]}>
    """

    def __init__(self, input: str) -> None:
        """Prepare to parse a text.

        Raises:
            SettingError: It is not a text, or starts with something that is not a token.
        """
        self._text = input
        self._lexer = Lexer(input)
        self._current = self._lexer.next_token()
        self._is_used = False

    def parse(self) -> Assignment:
        """Parse the text. A second call is an error.

        Raises:
            SettingError: The text is not of the grammar; the message names the position.
        """
        if self._is_used:
            raise SettingError("A parser can be used once. Make another one.")
        self._is_used = True
        variable = self._take(TokenType.VARIABLE, "the name of the result")
        self._refuse_constant(variable)
        self._take(TokenType.ASSIGNMENT, f"'=' after {variable.value!r}")
        expression = self._expression(_OR, depth=0)
        if self._current.type != TokenType.EOL:
            raise self._unexpected("an operator or the end")
        if _num_levels(expression) > _MOST_LEVELS + 1:
            raise syntax_error(
                self._text,
                len(self._text),
                f"more than {_MOST_LEVELS} operators are applied one after the other; group them by parentheses",
            )
        return Assignment(variable.value, expression)

    def _expression(self, least_strength: int, depth: int) -> AST:
        left = self._operand(least_strength, depth)
        while (strength := _STRENGTHS.get(self._current.type, 0)) >= least_strength:
            joining = self._advance()
            right = self._expression(strength + 1, depth)
            if joining.type == TokenType.COMPARISON:
                left = Comparison(left, joining.value, right)
            else:
                left = Or(left, right) if joining.type == TokenType.LOGICAL_OR else And(left, right)
        return left

    def _operand(self, least_strength: int, depth: int) -> AST:
        token = self._current
        if depth == _MOST_NESTED:
            raise syntax_error(self._text, token.position, f"nested more than {_MOST_NESTED} times")
        if token.type == TokenType.LITERAL:
            return Literal(self._advance().value)
        if token.type == TokenType.VARIABLE:
            self._refuse_constant(token)
            return Variable(self._advance().value)
        if token.type == TokenType.MINUS:
            self._advance()
            return UnaryMinus(self._operand(_MINUS, depth + 1))
        if token.type == TokenType.LOGICAL_NOT:
            self._advance()
            least_of_not = max(_NOT, least_strength)  # in `a == not b == c`, `not b` only
            return Not(self._expression(least_of_not, depth + 1))
        if token.type == TokenType.PARENTHESIS_OPEN:
            self._advance()
            expression = self._expression(_OR, depth + 1)
            self._take(TokenType.PARENTHESIS_CLOSE, f"')' for the '(' at position {token.position}")
            return expression
        raise self._unexpected("a name, a number or '('")

    def _take(self, token_type: str, expected: str) -> Token:
        if self._current.type != token_type:
            raise self._unexpected(expected)
        return self._advance()

    def _advance(self) -> Token:
        taken, self._current = self._current, self._lexer.next_token()
        return taken

    def _refuse_constant(self, token: Token) -> None:
        if token.value in ("True", "False"):
            raise syntax_error(
                self._text, token.position, f"{token.value} is no field; write the condition itself, or `not` it"
            )

    def _unexpected(self, expected: str) -> SettingError:
        got = "the end" if self._current.type == TokenType.EOL else repr(self._current.value)
        return syntax_error(self._text, self._current.position, f"expected {expected}, got {got}")


def _num_levels(expression: AST) -> int:
    level: list[AST] = [expression]
    count = 0
    while level:
        level, count = [child for node in level for child in node.children], count + 1
    return count


def variables_of(expression: AST) -> list[str]:
    """Get the names of all variables, each once, in the order in which they occur."""
    if isinstance(expression, Variable):
        return [expression.name]
    return list(dict.fromkeys(name for child in expression.children for name in variables_of(child)))


# An exact number, or values ``(N,)``.
_Value: TypeAlias = Fraction | Array


def condition_of(expression: AST, variables: Mapping[str, Array]) -> npt.NDArray[np.bool_]:
    """Evaluate an expression as a condition: ``(N,)`` bool.

    Args:
        expression: The expression, with at least one variable.
        variables: The values of each variable, ``(N,)`` of any number type or bool.
    """
    truth = _truth(_evaluated(expression, variables))
    return np.broadcast_to(truth, next(iter(variables.values())).shape).copy()


def _truth(value: _Value) -> Any:
    return value != 0


def _evaluated(expression: AST, variables: Mapping[str, Array]) -> _Value:
    if isinstance(expression, Literal):
        return Fraction(expression.value)
    if isinstance(expression, Variable):
        return variables[expression.name]
    if isinstance(expression, UnaryMinus):
        value = _evaluated(expression.value, variables)
        is_whole = isinstance(value, np.ndarray) and value.dtype.kind in "biu"
        return -(functions.cast_array(value, np.int64) if is_whole else value)
    if isinstance(expression, Comparison):
        sides = (_evaluated(side, variables) for side in (expression.val1, expression.val2))
        truth = _compared(expression.comparison_type, *sides)
    elif isinstance(expression, Not):
        truth = np.logical_not(_truth(_evaluated(expression.condition, variables)))
    else:
        join = operator.and_ if isinstance(expression, And) else operator.or_
        conditions = cast(_Joined, expression).conditions
        truth = functools.reduce(join, (_truth(_evaluated(each, variables)) for each in conditions))
    return np.asarray(truth)


def _compared(comparison: str, left: _Value, right: _Value) -> Any:
    left, right = _in_type_of(right, left), _in_type_of(left, right)
    arrays = [side for side in (left, right) if isinstance(side, np.ndarray)]
    if len(arrays) == 2 and any(side.dtype.kind == "f" for side in arrays):
        is_single = all(np.can_cast(side.dtype, np.float32) for side in arrays)
        left, right = (side.astype(np.float32 if is_single else np.float64) for side in arrays)
    # NumPy compares whole numbers of any types exactly, and a `Fraction` as Python does.
    return _OPERATORS[comparison](left, right)


def _in_type_of(values: _Value, number: _Value) -> Any:
    """Convert a number to an int, or to the type of reals that it is compared with; others stay as they are."""
    if not isinstance(number, Fraction) or not isinstance(values, np.ndarray):
        return number
    if values.dtype.kind != "f":
        return int(number) if number.denominator == 1 else number
    try:
        real = float(number)
    except OverflowError:
        real = math.inf if number > 0 else -math.inf
    with np.errstate(over="ignore"):  # a number beyond the type is infinite there
        return np.array(real).astype(values.dtype)
