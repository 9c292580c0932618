# SPDX-License-Identifier: Apache-2.0
"""The little language of conditions on annotations: ``is_kept = is_visible and not (category == -1 or area < 4)``.

lexer    text to tokens
parser   tokens to a tree
ast      the tree

::

    statement  := VARIABLE '=' or
    or         := and ('or' and)*
    and        := not ('and' not)*
    not        := 'not' not | comparison
    comparison := minus (('==' | '!=' | '<' | '>' | '<=' | '>=') minus)*        left to right: (a < b) < c
    minus      := '-' minus | LITERAL | VARIABLE | '(' or ')'

As in Python, ``not a == b`` is ``not (a == b)``; unlike in Python, comparisons are not chained.
"""

from .ast import AST, And, Assignment, Comparison, Literal, Not, Or, UnaryMinus, Variable
from .lexer import Lexer, Token, TokenType
from .parser import Parser

__all__ = [
    "AST",
    "And",
    "Assignment",
    "Comparison",
    "Lexer",
    "Literal",
    "Not",
    "Or",
    "Parser",
    "Token",
    "TokenType",
    "UnaryMinus",
    "Variable",
]
