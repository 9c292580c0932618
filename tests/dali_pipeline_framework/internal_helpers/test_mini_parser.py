"""The language of conditions against Python's own parser."""

from __future__ import annotations

import ast as python
import functools
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.laws import examples

from accvlab.dali_pipeline_framework.internal_helpers.mini_parser import (
    AST,
    And,
    Assignment,
    Comparison,
    Lexer,
    Literal,
    Not,
    Or,
    Parser,
    Token,
    TokenType,
    UnaryMinus,
    Variable,
)


def tokens(text: str) -> list[tuple[str, str]]:
    lexer = Lexer(text)
    found = []
    while (token := lexer.next_token()).type != TokenType.EOL:
        found.append((token.type, token.value))
    for _ in range(3):
        assert lexer.next_token() == Token(TokenType.EOL, "")
    return found


class TestLexer:
    def test_all_kinds(self) -> None:
        assert tokens("\t_a1=not(x >= -1.5 or y!=.5)and 5. == äö<b>2\n") == [
            ("variable", "_a1"),
            ("assignment", "="),
            ("logical_not", "not"),
            ("parenthesis_open", "("),
            ("variable", "x"),
            ("comparison", ">="),
            ("minus", "-"),
            ("literal", "1.5"),
            ("logical_or", "or"),
            ("variable", "y"),
            ("comparison", "!="),
            ("literal", ".5"),
            ("parenthesis_close", ")"),
            ("logical_and", "and"),
            ("literal", "5."),
            ("comparison", "=="),
            ("variable", "äö"),
            ("comparison", "<"),
            ("variable", "b"),
            ("comparison", ">"),
            ("literal", "2"),
        ]

    def test_keywords_are_whole_words_in_lower_case(self) -> None:
        names = ["android", "order", "nothing", "And", "OR", "Not", "and_"]
        assert tokens(" ".join(names)) == [("variable", name) for name in names]

    def test_positions(self) -> None:
        lexer = Lexer("  ab <=c\n\t ")
        assert [lexer.next_token().position for _ in range(5)] == [2, 5, 7, 11, 11]

    @pytest.mark.parametrize(
        ("text", "position"), [("a $", 2), ("1.2.3", 0), ("a .", 2), ("!a", 0), ("'a'", 0), ("٣", 0)]
    )
    def test_what_is_no_token(self, text: str, position: int) -> None:
        with pytest.raises(ValueError, match=f"at position {position}:"):
            tokens(text)

    def test_no_text(self) -> None:
        with pytest.raises(ValueError, match="a condition must be a text, got None"):
            Lexer(None)


class TestTree:
    def test_the_published_example(self) -> None:
        text = "res = d and not(a_b == -1.5 or -_b2 > 2 and (c < 3 or d > 4)) and c < 3"
        assert str(Parser(text).parse()) == (
            "'res' = <{{'d' and not [{('a_b' == -(1.5)) or "
            "{(-('_b2') > 2) and {('c' < 3) or ('d' > 4)}}}]} and ('c' < 3)}>"
        )

    def test_the_classes_and_their_attributes(self) -> None:
        statement = Parser("r = -a != 3 and not b or c").parse()
        assert statement == Assignment(
            "r",
            Or(And(Comparison(UnaryMinus(Variable("a")), "!=", Literal("3")), Not(Variable("b"))), Variable("c")),
        )
        assert isinstance(statement, AST)
        assert statement.variable == "r"
        assert [type(condition) for condition in statement.expression.conditions] == [And, Variable]
        assert str(Or(Variable("a"), Literal("1"), Variable("b"))) == "{'a' or 1 or 'b'}"
        assert pickle.loads(pickle.dumps(statement)) == statement

    def test_an_unknown_comparison(self) -> None:
        with pytest.raises(ValueError, match=r"`comparison_type` must be one of '==', .* got '<>'"):
            Comparison(Variable("a"), "<>", Variable("b"))


def as_python(tree: python.expr) -> AST:
    """The tree of Python's parser, in our classes, with joins of two only."""
    if isinstance(tree, python.Name):
        return Variable(tree.id)
    if isinstance(tree, python.Constant):
        return Literal(str(tree.value))
    if isinstance(tree, python.UnaryOp):
        return (Not if isinstance(tree.op, python.Not) else UnaryMinus)(as_python(tree.operand))
    if isinstance(tree, python.Compare):
        symbols = {"Eq": "==", "NotEq": "!=", "Lt": "<", "Gt": ">", "LtE": "<=", "GtE": ">="}
        [operator], [right] = tree.ops, tree.comparators
        return Comparison(as_python(tree.left), symbols[type(operator).__name__], as_python(right))
    return functools.reduce(And if isinstance(tree.op, python.And) else Or, map(as_python, tree.values))


ATOMS = st.sampled_from(["a", "b", "cc", "0", "12", "3.5"])
VALUES = ATOMS | ATOMS.map(lambda value: f"-{value}")
COMPARED = st.tuples(VALUES, st.sampled_from(["==", "!=", "<", ">", "<=", ">="]), VALUES).map(" ".join) | VALUES
EXPRESSIONS = st.recursive(
    COMPARED,
    lambda inner: (
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(" ".join)
        | inner.map(lambda text: f"not {text}")
        | inner.map(lambda text: f"({text})")
    ),
    max_leaves=8,
)


@given(EXPRESSIONS)
@settings(max_examples=examples(40, 200), deadline=None)
def test_is_understood_as_python_does(text: str) -> None:
    assert Parser(f"r = {text}").parse().expression == as_python(python.parse(text, mode="eval").body)


MALFORMED = [
    ("", 0, "expected the name of the result, got the end"),
    ("r", 1, "expected '=' after 'r', got the end"),
    ("r =", 3, r"expected a name, a number or '\(', got the end"),
    ("1 = a", 0, "expected the name of the result, got '1'"),
    ("r = (a", 6, r"expected '\)' for the '\(' at position 4, got the end"),
    ("r = a) and b", 5, r"expected an operator or the end, got '\)'"),
    ("r = a b", 6, "expected an operator or the end, got 'b'"),
    ("r = 1e3", 5, "expected an operator or the end, got 'e3'"),
    ("r = a.b", 5, "is no number"),
    ("r = a and", 9, "expected a name, a number"),
    ("r = True", 4, "True is no field"),
    ("True = a", 0, "True is no field"),
    ("r = a ! b", 6, "'!' does not belong here"),
    ("r = " + "(" * 2000 + "a" + ")" * 2000, 104, "nested more than 100 times"),
    ("r = " + "not " * 2000 + "a", 404, "nested more than 100 times"),
]


@pytest.mark.parametrize(("text", "position", "message"), MALFORMED, ids=[text[:14] for text, _, _ in MALFORMED])
def test_malformed_text_is_refused_with_its_position(text: str, position: int, message: str) -> None:
    with pytest.raises(ValueError, match=f"cannot be parsed at position {position}: .*{message}") as caught:
        Parser(text).parse()
    shown, mark = str(caught.value).split("\n")[1:]
    assert shown == f"  {text}"
    assert mark == " " * (position + 2) + "^"


@given(st.text("ab01.=!<>()- \n\tandortTrue$", max_size=20))
@settings(max_examples=examples(60, 300), deadline=None)
def test_any_text_is_parsed_or_refused(text: str) -> None:
    message = ""
    try:
        Parser(f"r = {text}").parse()
    except ValueError as error:
        message = str(error)
    assert not message or "position" in message


def test_a_parser_is_used_once() -> None:
    parser = Parser("r = a")
    parser.parse()
    with pytest.raises(ValueError, match="can be used once"):
        parser.parse()
