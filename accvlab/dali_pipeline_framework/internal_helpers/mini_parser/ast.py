# SPDX-License-Identifier: Apache-2.0
"""A published module path."""

from ...operators.conditions import AST, And, Assignment, Comparison, Literal, Not, Or, UnaryMinus, Variable

__all__ = ["AST", "And", "Assignment", "Comparison", "Literal", "Not", "Or", "UnaryMinus", "Variable"]
