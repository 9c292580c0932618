# SPDX-License-Identifier: Apache-2.0
"""A published module path."""

from ...operators.conditions import Lexer, Token, TokenType

__all__ = ["Lexer", "Token", "TokenType"]
