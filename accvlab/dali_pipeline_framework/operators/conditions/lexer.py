# SPDX-License-Identifier: Apache-2.0
"""Cut the text of a condition into tokens."""

from __future__ import annotations

import re

import attrs

from ...errors import SettingError


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
    """A token; tokens of the same type and value are equal wherever they stand.

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
    # One blank for each character, so that the mark stands below it also after line breaks and tabs.
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
    """Hands out the tokens of a text one by one.

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
        """Return the next token; at the end, again and again one of type ``EOL``.

        Raises:
            SettingError: The text goes on with something that is no token; it is also a ValueError.
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
