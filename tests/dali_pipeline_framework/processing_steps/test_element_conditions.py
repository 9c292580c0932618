"""Conditions against an evaluation with Python's exact numbers."""

from __future__ import annotations

import operator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_runs import assert_laws, assert_same, output_format, run_step
from support.arrays import DT, ArrayProvider
from support.laws import examples
from support.pipelines import make_iterator, shuffled

from accvlab.dali_pipeline_framework.pipeline import PipelineDefinition
from accvlab.dali_pipeline_framework.processing_steps import AnnotationElementConditionEval
from accvlab.dali_pipeline_framework.sample_data import SampleDataGroup

OPERATORS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}
INTEGERS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]


def evaluated(condition: str, *samples: dict[str, Any]) -> list[list[bool]]:
    step = AnnotationElementConditionEval("a", condition, True)
    found = run_step(step, [{"a": sample} for sample in samples])
    assert all(one["a"]["r"].dtype == bool and one["a"]["r"].ndim == 1 for one in found)
    return [one["a"]["r"].tolist() for one in found]


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


@given(data=st.data())
@settings(max_examples=examples(15, 40), deadline=None)
def test_integers_are_compared_exactly_with_each_other(data: st.DataObject) -> None:
    left, right = data.draw(st.sampled_from(INTEGERS)), data.draw(st.sampled_from(INTEGERS))
    symbol = data.draw(st.sampled_from([*OPERATORS]))
    samples = []
    for _ in range(2):
        pairs = data.draw(st.lists(st.tuples(integers(left), integers(right)), max_size=6))
        samples.append({"x": np.array([x for x, _ in pairs], left), "y": np.array([y for _, y in pairs], right)})
    expected = [
        [OPERATORS[symbol](int(x), int(y)) for x, y in zip(sample["x"], sample["y"], strict=True)]
        for sample in samples
    ]
    assert evaluated(f"r = x {symbol} y", *samples) == expected


@given(data=st.data())
@settings(max_examples=examples(15, 40), deadline=None)
def test_integers_are_compared_exactly_with_literals(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(INTEGERS))
    symbol = data.draw(st.sampled_from([*OPERATORS]))
    whole = data.draw(integers(dtype) | st.integers(-(2**70), 2**70))
    text = str(abs(whole)) + data.draw(st.sampled_from(["", ".", ".0", ".5", ".0000000000000000000001"]))
    literal = Fraction(text) * (-1 if whole < 0 else 1)
    shown = f"-{text}" if whole < 0 else text
    near = [
        value for value in (whole - 1, whole, whole + 1) if np.iinfo(dtype).min <= value <= np.iinfo(dtype).max
    ]
    values = near + data.draw(st.lists(integers(dtype), max_size=4))
    sample = {"x": np.array(values, dtype)}
    assert evaluated(f"r = x {symbol} {shown}", sample) == [
        [OPERATORS[symbol](value, literal) for value in values]
    ]
    assert evaluated(f"r = {shown} {symbol} x", sample) == [
        [OPERATORS[symbol](literal, value) for value in values]
    ]


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_literals_are_rounded_to_the_type_of_the_floats(dtype: str) -> None:
    values = np.array([0.1, 0.1, np.nan, np.inf, -np.inf, 0.2], dtype)
    values[1] = np.nextafter(values[0], values.dtype.type(1))
    assert evaluated("r = x == 0.1", {"x": values}) == [[True, False, False, False, False, False]]
    assert evaluated("r = x > 0.1", {"x": values}) == [[False, True, False, True, False, True]]
    assert evaluated("r = -x <= -0.1", {"x": values}) == [[True, True, False, True, False, True]]
    assert evaluated(f"r = x < 1{'0' * 400}", {"x": values}) == [[True, True, False, False, True, True]]


def test_ids_beyond_float32_are_not_mixed_up() -> None:
    x = np.array([2**24, 2**24 + 1, 2**60, 2**60 + 1])
    assert evaluated("r = x == y", {"x": x, "y": x[::-1].copy()}) == [[False] * 4]
    assert evaluated("r = x == 1152921504606846977", {"x": x}) == [[False, False, False, True]]


def test_integers_with_floats() -> None:
    x, y = np.array([2**24 + 1, 3, -1], np.int32), np.array([2**24, 3, np.nan], np.float32)
    assert evaluated("r = x == y", {"x": x, "y": y}) == [[False, True, False]]
    assert evaluated("r = y < x", {"x": x, "y": y}) == [[True, False, False]]


CASES = [
    ("x", [True, False, True, True]),
    ("not x", [False, True, False, False]),
    ("f", [True, False, True, True]),
    ("b", [True, False, True, False]),
    ("u", [False, True, True, True]),
    ("b and f or not u", [True, False, True, False]),
    ("b or f and not u", [True, False, True, False]),
    ("not b == 1", [False, True, False, True]),
    ("-b == -1", [True, False, True, False]),
    ("b < x", [False, False, False, True]),
    ("x < b < 1", [False, True, True, True]),
    ("-u < -1", [False, False, True, True]),
    ("(x > 0) == b", [False, True, True, False]),
    ("x == 0.5", [False] * 4),
    ("x != 0.5", [True] * 4),
    ("1 < 2 or x", [True] * 4),
    ("x and 0", [False] * 4),
    ("x and (1 and -2.5)", [True, False, True, True]),
    ("-(-(3)) == --3 and x", [True, False, True, True]),
]


@pytest.mark.parametrize(("expression", "expected"), CASES, ids=[text for text, _ in CASES])
def test_expressions(expression: str, expected: list[bool]) -> None:
    x = np.array([-1, 0, 1, 256], np.int64)
    f = np.array([[0.25, 0, np.nan, -3]], np.float32)
    u = np.array([[0], [1], [2], [2**63]], np.uint64)
    b = np.array([True, False, True, False])
    used = {
        name: value
        for name, value in {"x": x, "f": f, "u": u, "b": b}.items()
        if name in expression.replace("or", "")
    }
    shorter = {name: np.take(value, [2], axis=int(name == "f")) for name, value in used.items()}
    empty = {name: np.take(value, [], axis=int(name == "f")) for name, value in used.items()}
    assert evaluated(f"r = {expression}", used, shorter, empty) == [expected, expected[2:3], []]


@pytest.mark.parametrize("remove", [True, False])
def test_every_annotation_gets_its_own_result_and_the_rest_stays(remove: bool) -> None:
    samples = [
        {
            "annotation": {
                "annotation": {"x": np.arange(3), "y": np.ones(3, np.float32), "z": np.zeros(1)},
                "x": np.arange(n),
                "y": np.full((1, n), 1.5, np.float32),
            },
            "x": np.arange(2),
        }
        for n in (4, 0, 1)
    ]
    step = AnnotationElementConditionEval("annotation", "big = not -x > -y and x", remove)
    for one, sample in zip(assert_laws(step, samples), samples, strict=True):
        outer = dict(sample["annotation"])
        inner = dict(outer["annotation"])
        inner["big"], outer["big"] = inner["x"] >= 1, outer["x"] >= 2
        for group in (inner, outer) if remove else ():
            del group["x"], group["y"]
        assert_same(one, {"annotation": {**outer, "annotation": inner}, "x": sample["x"]})


def test_a_declared_number_of_axes_saves_the_question() -> None:
    class Declared(ArrayProvider):
        @property
        def sample_data_structure(self) -> SampleDataGroup:
            group = SampleDataGroup()
            group.add_data_field("x", DT.INT64, ndim=1)
            blueprint = SampleDataGroup()
            blueprint.add_data_group_field("a", group)
            return blueprint

    provider = Declared({"a": {"x": (DT.INT64, [[1, 2, 3], [3, 0, 5]])}})
    step = AnnotationElementConditionEval("a", "r = x >= 3", True)
    definition = PipelineDefinition(shuffled(provider, 2), [step])
    with make_iterator(shuffled(provider, 2), [step], py_num_workers=0, in_graph=True) as iterator:
        [batch] = iterator
    assert batch["a"]["r"].tolist() == [[False, False, True], [True, False, True]]
    assert definition.check_and_get_output_data_structure().field_names_flat == ("a.r",)


def test_variables_below_a_minus_are_removed() -> None:
    step = AnnotationElementConditionEval("a", "r = x < -y", True)
    sample = {"a": {"x": np.zeros(1), "y": np.zeros(1), "z": np.zeros(1)}}
    assert output_format(step, sample).field_names_flat == ("a.z", "a.r")
