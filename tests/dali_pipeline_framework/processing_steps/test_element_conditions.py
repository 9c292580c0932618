"""Conditions on elements of annotations against Python's exact numbers, and selection by masks against NumPy."""

from __future__ import annotations

import operator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_runs import assert_same
from support.array_samples import group_of, sample_of
from support.arrays import DT
from support.laws import examples
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework.errors import FieldValueError, FormatError
from accvlab.dali_pipeline_framework.processing_steps import (
    AnnotationElementConditionEval,
    ConditionalElementRemover,
)

OPERATORS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}
EXAMPLES = settings(max_examples=examples(100, 250), deadline=None)
TYPES = st.sampled_from(["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
SYMBOLS = st.sampled_from([*OPERATORS])


def applied(step: Any, sample: dict[Any, Any]) -> dict[Any, Any]:
    return step(sample_of(sample)).to_dictionary()


# --- conditions -------------------------------------------------------------------------------------------


def evaluated(condition: str, **fields: np.ndarray) -> list[bool]:
    found = applied(AnnotationElementConditionEval("a", f"r = {condition}", True), {"a": fields})["a"]["r"]
    assert (found.dtype, found.ndim) == (np.bool_, 1)
    return found.tolist()


def integers(dtype: str) -> st.SearchStrategy[int]:
    info = np.iinfo(dtype)
    edges = [
        info.min,
        info.min + 1,
        info.max - 1,
        info.max,
        0,
        1,
        2**24,
        2**24 + 1,
        2**53 + 1,
        2**63,
        -(2**53) - 1,
    ]
    fitting = [int(edge) for edge in edges if info.min <= edge <= info.max]
    return st.sampled_from(fitting) | st.integers(int(info.min), int(info.max))


@given(data=st.data(), left=TYPES, right=TYPES, symbol=SYMBOLS)
@EXAMPLES
def test_integers_are_compared_exactly_with_each_other(
    data: st.DataObject, left: str, right: str, symbol: str
) -> None:
    pairs = data.draw(st.lists(st.tuples(integers(left), integers(right)), max_size=6))
    x, y = np.array([x for x, _ in pairs], left), np.array([y for _, y in pairs], right)
    assert evaluated(f"x {symbol} y", x=x, y=y) == [OPERATORS[symbol](one, other) for one, other in pairs]


@given(data=st.data(), dtype=TYPES, symbol=SYMBOLS)
@EXAMPLES
def test_integers_are_compared_exactly_with_literals(data: st.DataObject, dtype: str, symbol: str) -> None:
    whole = data.draw(integers(dtype) | st.integers(-(2**70), 2**70))
    text = str(abs(whole)) + data.draw(st.sampled_from(["", ".", ".0", ".5", ".0000000000000000000001"]))
    literal, shown = (-Fraction(text), f"-{text}") if whole < 0 else (Fraction(text), text)
    info, compare = np.iinfo(dtype), OPERATORS[symbol]
    near = [value for value in (whole - 1, whole, whole + 1) if info.min <= value <= info.max]
    values = near + data.draw(st.lists(integers(dtype), max_size=4))
    x = np.array(values, dtype)
    assert evaluated(f"x {symbol} {shown}", x=x) == [compare(value, literal) for value in values]
    assert evaluated(f"{shown} {symbol} x", x=x) == [compare(literal, value) for value in values]


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_literals_are_rounded_to_the_type_of_the_floats(dtype: str) -> None:
    x = np.array([0.1, 0.1, np.nan, np.inf, -np.inf, 0.2], dtype)
    x[1] = np.nextafter(x[0], x.dtype.type(1))
    assert evaluated("x == 0.1", x=x) == [True, False, False, False, False, False]
    assert evaluated("x > 0.1", x=x) == [False, True, False, True, False, True]
    assert evaluated("-x <= -0.1", x=x) == [True, True, False, True, False, True]
    assert evaluated(f"x < 1{'0' * 400}", x=x) == [True, True, False, False, True, True]


def test_integers_with_floats() -> None:
    x, y = np.array([2**24 + 1, 3, -1], np.int32), np.array([2**24, 3, np.nan], np.float32)
    assert evaluated("x == y", x=x, y=y) == [False, True, False]
    assert evaluated("y < x", x=x, y=y) == [True, False, False]


FIELDS = {
    "x": np.array([-1, 0, 1, 256], np.int64),
    "f": np.array([[0.25, 0, np.nan, -3]], np.float32),
    "u": np.array([[0], [1], [2], [2**63]], np.uint64),
    "b": np.array([True, False, True, False]),
}


@pytest.mark.parametrize(
    ("expression", "names", "expected"),
    [
        ("x", "x", [True, False, True, True]),
        ("not x", "x", [False, True, False, False]),
        ("f", "f", [True, False, True, True]),
        ("b", "b", [True, False, True, False]),
        ("u", "u", [False, True, True, True]),
        ("b and f or not u", "bfu", [True, False, True, False]),
        ("not b == 1", "b", [False, True, False, True]),
        ("-b == -1", "b", [True, False, True, False]),
        ("b < x", "bx", [False, False, False, True]),
        ("x < b < 1", "bx", [False, True, True, True]),
        ("-u < -1", "u", [False, False, True, True]),
        ("(x > 0) == b", "bx", [False, True, True, False]),
        ("x == 0.5", "x", [False] * 4),
        ("1 < 2 or x", "x", [True] * 4),
        ("x and 0", "x", [False] * 4),
        ("x and (1 and -2.5)", "x", [True, False, True, True]),
        ("-(-(3)) == --3 and x", "x", [True, False, True, True]),
    ],
)
def test_expressions(expression: str, names: str, expected: list[bool]) -> None:
    for chosen in ([0, 1, 2, 3], [2], []):
        fields = {name: np.take(FIELDS[name], chosen, axis=int(name == "f")) for name in names}
        assert evaluated(expression, **fields) == [expected[number] for number in chosen]


@pytest.mark.parametrize("remove", [True, False])
def test_every_annotation_gets_its_own_result_and_the_rest_stays(remove: bool) -> None:
    inner = {"x": np.arange(3), "y": np.ones(3, np.float32), "z": np.zeros(1)}
    outer = {"annotation": inner, "x": np.arange(4), "y": np.full((1, 4), 1.5, np.float32)}
    sample = {"annotation": outer, "x": np.arange(2)}
    found = applied(AnnotationElementConditionEval("annotation", "big = not -x > -y and x", remove), sample)
    left = {name: value for name, value in inner.items() if not (remove and name in "xy")}
    expected = {"annotation": {**left, "big": inner["x"] >= 1}}
    expected |= {} if remove else {"x": outer["x"], "y": outer["y"]}
    assert_same(found, {"annotation": {**expected, "big": outer["x"] >= 2}, "x": sample["x"]})


# --- selection --------------------------------------------------------------------------------------------

ALL_TYPES = [bool, "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]


@given(
    fields=st.lists(st.tuples(st.sampled_from(ALL_TYPES), st.integers(1, 4)), min_size=1, max_size=2),
    mask=st.lists(st.booleans(), max_size=7),
    remove=st.booleans(),
    data=st.data(),
)
@EXAMPLES
def test_elements_are_kept_bit_by_bit_in_order(fields: Any, mask: Any, remove: bool, data: st.DataObject) -> None:
    random = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    axes, values = [], {}
    for number, (dtype, ndim) in enumerate(fields):
        axes.append(data.draw(st.integers(-ndim, ndim - 1)))
        shape = random.integers(0 if ndim == 2 else 1, 4, ndim)
        shape[axes[-1]] = len(mask)
        bits = random.bytes(int(np.prod(shape)) * np.dtype(dtype).itemsize)
        values[number] = np.frombuffer(bits, np.uint8 if dtype is bool else dtype).reshape(shape).astype(dtype)
    before = {"mask": np.array(mask, bool), **values}
    kept = {number: np.compress(before["mask"], values[number], axis) for number, axis in enumerate(axes)}
    step = ConditionalElementRemover("a", "mask", [*values], axes, [ndim for _, ndim in fields], remove)
    assert_same(applied(step, {"a": before})["a"], kept if remove else {"mask": before["mask"], **kept})


@pytest.mark.parametrize("remove", [False, True])
def test_every_annotation_has_its_own_mask_and_the_rest_stays(remove: bool) -> None:
    boxes, few = np.arange(20.0).reshape(5, 4), np.arange(8).reshape(2, 4)
    is_even, is_last = np.arange(5) % 2 == 0, np.arange(2) > 0
    inner = {"mask": is_last, "boxes": few}
    sample = {"a": {"boxes": boxes, "mask": is_even, "name": np.int8(3), "a": inner}, "boxes": boxes}
    found = applied(ConditionalElementRemover("a", "mask", ["boxes"], [0], [2], remove), sample)
    masks = [{}, {}] if remove else [{"mask": is_even}, {"mask": is_last}]
    outer = {"boxes": boxes[::2], **masks[0], "name": np.int8(3), "a": {**masks[1], "boxes": few[1:]}}
    assert_same(found, {"a": outer, "boxes": boxes})


def test_the_mask_filters_itself_only_when_it_is_among_the_fields() -> None:
    sample = {"a": {"mask": np.array([True, False, True])}}
    itself, nothing = ([["mask"], [0], [1]], [[], [], []])
    assert (
        applied(ConditionalElementRemover("a", "mask", *itself, False), sample)["a"]["mask"].tolist() == [True] * 2
    )
    assert_same(applied(ConditionalElementRemover("a", "mask", *nothing, False), sample), sample)


@pytest.mark.parametrize(("axis", "num_axes"), [(-1, 2), (0, 4)])
def test_a_field_with_another_number_of_axes_than_given_is_named(axis: int, num_axes: int) -> None:
    step = ConditionalElementRemover("a", "m", ["x"], [axis], [num_axes], True)
    words = f"a.x: must have {num_axes} axes, as `fields_to_process_num_dims` says, has 3"
    sample = {"a": {"x": np.zeros((3, 3, 3)), "m": np.array([True, False, False])}}
    assert_refused(lambda: applied(step, sample), words, FieldValueError)
    blueprint = group_of(a=group_of(x=(DT.FLOAT, {"ndim": 3}), m=DT.BOOL))
    check = step.check_input_data_format_and_set_output_data_format
    assert_refused(lambda: check(blueprint), words, FormatError)
