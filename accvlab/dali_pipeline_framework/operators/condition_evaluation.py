# SPDX-License-Identifier: Apache-2.0
"""Evaluate parsed conditions on nodes of a graph, or on arrays, without losing digits.

DALI would compare an int64 with a float literal as float32. So literals stay exact fractions until it is known
what they are compared with, and become limits of that type::

    x <  2.5   with integers x   ─>   x <= 2
    x == 2.5   with integers x   ─>   false
    x <  0.1   with float32 x    ─>   x < float32(0.1)
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, TypeAlias

import attrs
import numpy as np
import nvidia.dali.fn as fn
from nvidia.dali import types

from ..sample_data.dtypes import NUMPY_TYPES
from ..sample_data.graph_mode import methods_not_converted
from . import functions
from .conditions.ast import AST, And, Comparison, Literal, Not, Or, UnaryMinus, Variable
from .field_types import exact_constant_like, reinterpret

_DT = types.DALIDataType
_MIRRORED = {"==": "==", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}
_UNSIGNED = (_DT.UINT8, _DT.UINT16, _DT.UINT32, _DT.UINT64)
_FLOATS = (_DT.FLOAT16, _DT.FLOAT, _DT.FLOAT64)
_EXACT_IN_FLOAT32 = (_DT.INT8, _DT.INT16, _DT.UINT8, _DT.UINT16, _DT.FLOAT16, _DT.FLOAT)


@attrs.frozen
class TypedNode:
    """Values of one type, ``(N,)``.

    Attributes:
        node: The values; those of float16 as float32, since DALI does not compute with it.
        dtype: Their type.
    """

    node: Any
    dtype: types.DALIDataType


# A literal (of any size, exact), a condition of literals only, or values.
_Value: TypeAlias = Fraction | bool | TypedNode


def variables_of(expression: AST) -> list[str]:
    """Names of all variables, each once, in the order in which they occur."""
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

    def condition(self, expression: AST) -> Any:
        """Evaluate an expression with at least one variable as a condition: ``(N,)`` bool."""
        result = self._truth(self._value(expression))
        if isinstance(result, bool):  # e.g. `1 < 2 or a`: of the length of the variables
            return _constant_condition(next(iter(self.variables.values())), result)
        return result

    def _value(self, expression: AST) -> _Value:
        if isinstance(expression, Literal):
            return Fraction(expression.value)
        if isinstance(expression, Variable):
            return self.variables[expression.name]
        if isinstance(expression, UnaryMinus):
            return _negated(self._value(expression.value))
        if isinstance(expression, Comparison):
            sides = self._value(expression.val1), self._value(expression.val2)
            truth = _compared(sides[0], expression.comparison_type, sides[1])
            return truth if isinstance(truth, bool) else TypedNode(truth, _DT.BOOL)
        if isinstance(expression, Not):
            truth = self._truth(self._value(expression.condition))
            return not truth if isinstance(truth, bool) else TypedNode(truth != True, _DT.BOOL)  # noqa: E712
        if isinstance(expression, And | Or):
            return self._joined(expression)
        raise TypeError(f"no expression: {expression!r}")

    def _joined(self, expression: And | Or) -> _Value:
        absorbing = isinstance(expression, Or)
        nodes: list[Any] = []
        for condition in expression.conditions:
            truth = self._truth(self._value(condition))
            if not isinstance(truth, bool):
                nodes.append(truth)
            elif truth is absorbing:
                return absorbing
        if not nodes:
            return not absorbing
        result = nodes[0]
        for node in nodes[1:]:
            result = result | node if absorbing else result & node
        return TypedNode(result, _DT.BOOL)

    def _truth(self, value: _Value) -> Any | bool:
        if isinstance(value, TypedNode):
            return value.node if value.dtype == _DT.BOOL else value.node != 0
        return bool(value)


def _negated(value: _Value) -> _Value:
    if not isinstance(value, TypedNode):
        return -Fraction(value)
    if value.dtype in _FLOATS:
        return TypedNode(-value.node, value.dtype)
    return TypedNode(-functions.cast(value.node, _DT.INT64), _DT.INT64)


def _compared(left: _Value, comparison: str, right: _Value) -> Any | bool:
    if isinstance(left, TypedNode):
        if isinstance(right, TypedNode):
            return _compared_nodes(_number(left), comparison, _number(right))
        return _compared_with_literal(_number(left), comparison, Fraction(right))
    if isinstance(right, TypedNode):
        return _compared_with_literal(_number(right), _MIRRORED[comparison], Fraction(left))
    return bool(_OPERATORS[comparison](Fraction(left), Fraction(right)))


def _number(value: TypedNode) -> TypedNode:
    if value.dtype == _DT.BOOL:
        return TypedNode(functions.cast(value.node, _DT.UINT8), _DT.UINT8)
    return value


def _compared_with_literal(value: TypedNode, comparison: str, literal: Fraction) -> Any:
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


def _compared_nodes(left: TypedNode, comparison: str, right: TypedNode) -> Any:
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


def _unsigned_with_signed(unsigned: Any, comparison: str, signed: Any) -> Any:
    """Compare uint64 with a signed type: a negative number is below all of them."""
    is_negative = signed < 0
    # The bits of a negative number, taken for uint64, do not matter.
    bits = reinterpret(functions.cast(signed, _DT.INT64), _DT.UINT64)
    if_not_negative = _OPERATORS[comparison](unsigned, bits)
    is_above = comparison in (">", ">=", "!=")
    return is_negative | if_not_negative if is_above else if_not_negative & (signed >= 0)


def _constant_condition(like: TypedNode, truth: bool) -> Any:
    if not functions.is_node(like.node):
        return np.full(np.shape(like.node), truth)
    fill = fn.ones_like if truth else fn.zeros_like
    return fill(like.node, dtype=_DT.BOOL)
