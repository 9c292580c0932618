# SPDX-License-Identifier: Apache-2.0
"""The language of conditions on annotations: ``is_kept = is_visible and not (category == -1 or area < 4)``.

`Lexer` makes tokens of the text, `Parser` makes a tree of the tokens, `ConditionEvaluation` evaluates it.

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
import nvidia.dali.fn as fn
from nvidia.dali import types

from ..errors import SettingError
from ..sample_data.dtypes import NUMPY_TYPES
from ..sample_data.graph_mode import methods_not_converted
from . import functions
from .element_selection import exact_constant_like, reinterpret
from .functions import Value

_OPERATORS: Mapping[str, Callable[[Value, Value], Value]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}


class AST(ABC):
    """A node of the tree."""

    @property
    def children(self) -> tuple[AST, ...]:
        """The nodes right below."""
        values = attrs.astuple(cast(Any, self), recurse=False)
        return tuple(value for value in values if isinstance(value, AST))

    form: ClassVar[str]
    """The node as text, with all brackets, where the fields are."""

    def __str__(self) -> str:
        return self.form.format(**attrs.asdict(cast(Any, self), recurse=False))


@attrs.frozen(str=False)
class Assignment(AST):
    """``variable = expression``: ``'v' = <...>``."""

    form = "'{variable}' = <{expression}>"

    variable: str
    expression: AST


@attrs.frozen(str=False)
class Literal(AST):
    """A number without sign; ``value`` is its text as it was written."""

    form = "{value}"

    value: str


@attrs.frozen(str=False)
class Variable(AST):
    """A ``name``: ``'name'``."""

    form = "'{name}'"

    name: str


@attrs.frozen(str=False)
class Comparison(AST):
    """``val1 comparison_type val2``: ``(l op r)``.

    Attributes:
        val1: Left side.
        comparison_type: ``==``, ``!=``, ``<``, ``>``, ``<=`` or ``>=``; anything else is a `SettingError`.
        val2: Right side.
    """

    form = "({val1} {comparison_type} {val2})"

    val1: AST
    comparison_type: str
    val2: AST

    def __attrs_post_init__(self) -> None:
        """Refuse other comparisons."""
        if self.comparison_type not in _OPERATORS:
            raise SettingError(f"a comparison is one of {', '.join(_OPERATORS)}, got {self.comparison_type!r}.")


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

    form = "not [{condition}]"

    condition: AST


@attrs.frozen(str=False)
class UnaryMinus(AST):
    """The negative of ``value``: ``-(x)``."""

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
_KEYWORDS = {"and": TokenType.LOGICAL_AND, "or": TokenType.LOGICAL_OR, "not": TokenType.LOGICAL_NOT}
_SYMBOLS = {
    "=": TokenType.ASSIGNMENT,
    "-": TokenType.MINUS,
    "(": TokenType.PARENTHESIS_OPEN,
    ")": TokenType.PARENTHESIS_CLOSE,
}
_PARTS = re.compile(r"(?P<number>[0-9.]+)|(?P<name>[^\W\d]\w*)|(?P<comparison>[=!<>]=|[<>])|(?P<symbol>[-=()])")


class Lexer:
    """Iterator over the tokens of a text.

    Numbers are digits with at most one dot, names are letters, digits and ``_``, ``and``, ``or`` and ``not`` are
    keywords; white space separates.

    Example:
        >>> lexer = Lexer("a >= -2")
        >>> [lexer.next_token().value for _ in range(5)]
        ['a', '>=', '-', '2', '']
    """

    def __init__(self, input: str) -> None:
        """Start at the beginning of a text.

        Raises:
            SettingError: It is no text.
        """
        if not isinstance(input, str):
            raise SettingError(f"a condition must be a text, got {input!r}.")
        self._text = input
        self._position = 0

    def next_token(self) -> Token:
        """Return the next token; at the end, always one of type ``EOL``.

        Raises:
            SettingError: The text continues with something that is no token; it is also a ValueError.
        """
        while self._position < len(self._text) and self._text[self._position].isspace():
            self._position += 1
        start = self._position
        if start == len(self._text):
            return Token(TokenType.EOL, "", position=start)
        match = _PARTS.match(self._text, start)
        if match is None:
            raise syntax_error(self._text, start, f"{self._text[start]!r} does not belong here")
        value = match.group()
        token_type = self._type_of(match.lastgroup, value, start)
        self._position = match.end()
        return Token(token_type, value, position=start)

    def _type_of(self, kind: str | None, value: str, start: int) -> str:
        if kind == "number":
            if len(value) > _MOST_DIGITS:
                raise syntax_error(self._text, start, f"a number has at most {_MOST_DIGITS} digits")
            if value.count(".") > 1 or value == ".":
                raise syntax_error(self._text, start, f"{value!r} is no number: digits with at most one dot are")
            return TokenType.LITERAL
        if kind == "name":
            return _KEYWORDS.get(value, TokenType.VARIABLE)
        return TokenType.COMPARISON if kind == "comparison" else _SYMBOLS[value]


# How tightly operators bind; `not` lies between `and` and the comparisons, as in Python.
_OR, _AND, _NOT, _COMPARISON, _MINUS = range(1, 6)
_STRENGTHS = {TokenType.LOGICAL_OR: _OR, TokenType.LOGICAL_AND: _AND, TokenType.COMPARISON: _COMPARISON}
_MOST_NESTED = 100
_MOST_LEVELS = 250  # of the tree; those who walk it call themselves for each


class Parser:
    """Parses ``<variable> = <expression>``; see the package for the grammar.

    Example:
        >>> print(Parser("r = a and not b == -1").parse())
        'r' = <{'a' and not [('b' == -(1))]}>
    """

    def __init__(self, input: str) -> None:
        """Prepare to parse a text.

        Raises:
            SettingError: It is no text, or starts with something that is no token.
        """
        self._text = input
        self._lexer = Lexer(input)
        self._current = self._lexer.next_token()
        self._depth = 0
        self._is_used = False

    def parse(self) -> Assignment:
        """Parse the text, once.

        Raises:
            SettingError: The text is not of the grammar; it is also a ValueError, and names the position.
        """
        if self._is_used:
            raise SettingError("A parser can be used once. Make another one.")
        self._is_used = True
        variable = self._take(TokenType.VARIABLE, "the name of the result")
        self._refuse_constant(variable)
        self._take(TokenType.ASSIGNMENT, f"'=' after {variable.value!r}")
        expression = self._expression(_OR)
        if self._current.type != TokenType.EOL:
            raise self._unexpected("an operator or the end")
        if not _has_fewer_levels(expression, _MOST_LEVELS):
            raise syntax_error(
                self._text,
                len(self._text),
                f"more than {_MOST_LEVELS} operators are applied one after the other; group them by parentheses",
            )
        return Assignment(variable.value, expression)

    def _expression(self, least_strength: int) -> AST:
        left = self._operand(least_strength)
        while (strength := _STRENGTHS.get(self._current.type, 0)) >= least_strength:
            joining = self._advance()
            right = self._expression(strength + 1)
            if joining.type == TokenType.COMPARISON:
                left = Comparison(left, joining.value, right)
            else:
                left = Or(left, right) if joining.type == TokenType.LOGICAL_OR else And(left, right)
        return left

    def _operand(self, least_strength: int) -> AST:
        self._depth += 1
        if self._depth > _MOST_NESTED:
            raise syntax_error(self._text, self._current.position, f"nested more than {_MOST_NESTED} times")
        operand = self._operand_of_depth(least_strength)
        self._depth -= 1
        return operand

    def _operand_of_depth(self, least_strength: int) -> AST:
        token = self._current
        if token.type == TokenType.LITERAL:
            return Literal(self._advance().value)
        if token.type == TokenType.VARIABLE:
            self._refuse_constant(token)
            return Variable(self._advance().value)
        if token.type == TokenType.MINUS:
            self._advance()
            return UnaryMinus(self._operand(_MINUS))
        if token.type == TokenType.LOGICAL_NOT:
            self._advance()
            return Not(self._expression(max(_NOT, least_strength)))  # in `a == not b == c`, `not b` only
        if token.type == TokenType.PARENTHESIS_OPEN:
            self._advance()
            expression = self._expression(_OR)
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


def _has_fewer_levels(expression: AST, most: int) -> bool:
    """Whether a tree has at most a given number of levels."""
    level: list[AST] = [expression]
    for _ in range(most + 1):
        level = [child for node in level for child in node.children]
        if not level:
            return True
    return False


_DT = types.DALIDataType
_MIRRORED = {"==": "==", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
_UNSIGNED = (_DT.UINT8, _DT.UINT16, _DT.UINT32, _DT.UINT64)
_FLOATS = (_DT.FLOAT16, _DT.FLOAT, _DT.FLOAT64)
_EXACT_IN_FLOAT32 = (_DT.INT8, _DT.INT16, _DT.UINT8, _DT.UINT16, _DT.FLOAT16, _DT.FLOAT)


@attrs.frozen
class TypedNode:
    """Values of one type, ``(N,)``.

    Attributes:
        node: The values; float16 as float32, since DALI does not compute with it.
        dtype: Their type.
    """

    node: Value
    dtype: types.DALIDataType


# A literal (of any size, exact), or values.
_Value: TypeAlias = Fraction | TypedNode


def variables_of(expression: AST) -> list[str]:
    """Get the names of all variables, each once, in the order in which they occur."""
    if isinstance(expression, Variable):
        return [expression.name]
    return list(dict.fromkeys(name for child in expression.children for name in variables_of(child)))


@methods_not_converted
@attrs.frozen
class ConditionEvaluation:
    """Evaluates an expression over variables of equal length.

    Attributes:
        variables: The values of each variable.
    """

    variables: Mapping[str, TypedNode]

    def condition(self, expression: AST) -> Value:
        """Evaluate an expression with at least one variable as a condition: ``(N,)`` bool."""
        value = self._value(expression)
        if isinstance(value, Fraction):  # e.g. `1 or a`: of the length of the variables
            return self._constant(value != 0)
        return value.node if value.dtype == _DT.BOOL else value.node != 0

    def _constant(self, truth: bool) -> Value:
        return _constant_condition(next(iter(self.variables.values())), truth)

    def _value(self, expression: AST) -> _Value:
        if isinstance(expression, Literal):
            return Fraction(expression.value)
        if isinstance(expression, Variable):
            return self.variables[expression.name]
        if isinstance(expression, UnaryMinus):
            return _negated(self._value(expression.value))
        if isinstance(expression, Comparison):
            truth = self._compared(
                self._value(expression.val1), expression.comparison_type, self._value(expression.val2)
            )
        elif isinstance(expression, Not):
            truth = self.condition(expression.condition) != True  # noqa: E712
        elif isinstance(expression, And | Or):
            join = operator.and_ if isinstance(expression, And) else operator.or_
            truth = functools.reduce(join, map(self.condition, expression.conditions))
        else:
            raise TypeError(f"no expression: {expression!r}")
        return TypedNode(truth, _DT.BOOL)

    def _compared(self, left: _Value, comparison: str, right: _Value) -> Value:
        if isinstance(left, TypedNode) and isinstance(right, TypedNode):
            return _compared_nodes(_number(left), comparison, _number(right))
        if isinstance(left, TypedNode):
            return _compared_with_literal(_number(left), comparison, cast(Fraction, right))
        if isinstance(right, TypedNode):
            return _compared_with_literal(_number(right), _MIRRORED[comparison], left)
        return self._constant(bool(_OPERATORS[comparison](left, right)))


def _negated(value: _Value) -> _Value:
    if not isinstance(value, TypedNode):
        return -value
    if value.dtype in _FLOATS:
        return TypedNode(-value.node, value.dtype)
    return TypedNode(-functions.cast(value.node, _DT.INT64), _DT.INT64)


def _number(value: TypedNode) -> TypedNode:
    if value.dtype == _DT.BOOL:
        return TypedNode(functions.cast(value.node, _DT.UINT8), _DT.UINT8)
    return value


def _compared_with_literal(value: TypedNode, comparison: str, literal: Fraction) -> Value:
    numpy_type = np.dtype(NUMPY_TYPES[value.dtype])
    if numpy_type.kind == "f":
        with np.errstate(over="ignore"):  # a literal beyond the type is infinite there
            rounded = np.array(_as_float(literal), numpy_type)
        if value.dtype == _DT.FLOAT16:
            rounded = rounded.astype(np.float32)
        return _OPERATORS[comparison](value.node, exact_constant_like(rounded, value.node))
    if literal.denominator != 1:
        if comparison in ("==", "!="):
            return _constant_condition(value, comparison == "!=")
        is_below = "<" in comparison
        comparison = "<=" if is_below else ">="
        literal = Fraction(math.floor(literal) if is_below else math.ceil(literal))
    info = np.iinfo(numpy_type)
    if not info.min <= literal <= info.max:
        return _constant_condition(value, bool(_OPERATORS[comparison](0, literal)))
    limit = np.array(int(literal), numpy_type)
    return _OPERATORS[comparison](value.node, exact_constant_like(limit, value.node))


def _as_float(literal: Fraction) -> float:
    try:
        return float(literal)
    except OverflowError:
        return math.inf if literal > 0 else -math.inf


def _compared_nodes(left: TypedNode, comparison: str, right: TypedNode) -> Value:
    if left.dtype == right.dtype:
        return _OPERATORS[comparison](left.node, right.node)
    both = (left.dtype, right.dtype)
    if any(dtype in _FLOATS for dtype in both):
        common = _DT.FLOAT if all(dtype in _EXACT_IN_FLOAT32 for dtype in both) else _DT.FLOAT64
    elif _DT.UINT64 not in both:
        common = _DT.INT64
    elif all(dtype in _UNSIGNED for dtype in both):
        common = _DT.UINT64
    elif left.dtype == _DT.UINT64:
        return _unsigned_with_signed(left.node, comparison, right.node)
    else:
        return _unsigned_with_signed(right.node, _MIRRORED[comparison], left.node)
    return _OPERATORS[comparison](*(functions.cast(side.node, common) for side in (left, right)))


def _unsigned_with_signed(unsigned: Value, comparison: str, signed: Value) -> Value:
    """Compare uint64 with a signed type: a negative number is below all of them."""
    is_negative = signed < 0
    # The bits of a negative number, taken for uint64, do not matter.
    bits = reinterpret(functions.cast(signed, _DT.INT64), _DT.UINT64)
    if_not_negative = _OPERATORS[comparison](unsigned, bits)
    is_above = comparison in (">", ">=", "!=")
    return is_negative | if_not_negative if is_above else if_not_negative & (signed >= 0)


def _constant_condition(like: TypedNode, truth: bool) -> Value:
    if not functions.is_node(like.node):
        return np.full(np.shape(like.node), truth)
    fill = fn.ones_like if truth else fn.zeros_like
    return fill(like.node, dtype=_DT.BOOL)
