# SPDX-License-Identifier: Apache-2.0
"""Make a tree of the text of a condition."""

from __future__ import annotations

from ...errors import SettingError
from .ast import AST, And, Assignment, Comparison, Literal, Not, Or, UnaryMinus, Variable
from .lexer import Lexer, Token, TokenType, syntax_error

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
            SettingError: The text is not of the grammar; it is also a ValueError, and tells the position.
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
            operator = self._advance()
            right = self._expression(strength + 1)
            if operator.type == TokenType.COMPARISON:
                left = Comparison(left, operator.value, right)
            else:
                left = Or(left, right) if operator.type == TokenType.LOGICAL_OR else And(left, right)
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
    """Whether a tree has no more than so many levels."""
    level: list[AST] = [expression]
    for _ in range(most + 1):
        level = [child for node in level for child in node.children]
        if not level:
            return True
    return False
