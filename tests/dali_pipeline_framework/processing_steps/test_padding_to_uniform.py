"""One shape per batch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nvidia.dali import types
from step_runs import assert_same, blueprint_of, run_step
from support.arrays import DT, ArrayProvider
from support.laws import examples
from support.pipelines import make_iterator, shuffled

from accvlab.dali_pipeline_framework.processing_steps import AxesLayoutSetter, PaddingToUniform
from accvlab.dali_pipeline_framework.sample_data import SampleDataGroup

ALL_TYPES = [bool, "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]


def padded(values: list[np.ndarray], fill: float) -> list[np.ndarray]:
    shape = np.max([value.shape for value in values], axis=0).astype(int) if values[0].ndim else ()
    results = []
    for value in values:
        result = np.full(shape, fill).astype(value.dtype)
        result[tuple(slice(0, size) for size in value.shape)] = value
        results.append(result)
    return results


@given(data=st.data())
@settings(max_examples=examples(10, 25), deadline=None)
def test_content_at_the_origin_and_fill_at_the_ends(data: st.DataObject) -> None:
    dtype = np.dtype(data.draw(st.sampled_from(ALL_TYPES)))
    fill = data.draw(st.sampled_from([0, 1, 0.0, 3.0] if dtype.kind in "bu" else [0.0, -1, 2.0]))
    ndim = data.draw(st.integers(0, 4))
    shapes = data.draw(st.lists(st.tuples(*[st.integers(0, 3)] * ndim), min_size=1, max_size=4))
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    values = [random.integers(0, 100, shape).astype(dtype) for shape in shapes]
    found = run_step(PaddingToUniform("x", fill), [{"x": value} for value in values])
    for one, expected in zip(found, padded(values, fill), strict=True):
        assert_same(one["x"], expected)


@pytest.mark.parametrize("fill", [0.0, -7.0, float("inf"), float("nan")])
def test_float64_is_exact(fill: float) -> None:
    values = [np.array([np.pi, -0.0, np.inf, np.nan]), np.array([1e300]), np.zeros(0)]
    for conditionals in (False, True):
        found = run_step(PaddingToUniform("x", fill), [{"x": v} for v in values], enable_conditionals=conditionals)
        for one, expected in zip(found, padded(values, fill), strict=True):
            assert_same(one["x"], expected)


def test_int64_is_exact() -> None:
    values = [np.array([2**62 + 1, -(2**62) - 1]), np.array([5])]
    found = run_step(PaddingToUniform("x", -1), [{"x": value} for value in values])
    assert [one["x"].tolist() for one in found] == [[2**62 + 1, -(2**62) - 1], [5, -1]]


class TestFields:
    SAMPLES = (
        *(
            {
                "x": np.full((n,), n, np.int32),
                "scalar": np.float32(n),
                "g": {"x": np.full((n, 2), n, np.float32), "y": np.full((n, 1), n, np.int8)},
                "h": {0: {"g": {"z": np.full((1, n), n, np.uint8)}}},
            }
            for n in (2, 0, 1)
        ),
    )

    def shapes(self, step: PaddingToUniform) -> list[tuple[int, ...]]:
        found = run_step(step, self.SAMPLES)[1]
        fields = [found["x"], found["scalar"], found["g"]["x"], found["g"]["y"], found["h"][0]["g"]["z"]]
        return [field.shape for field in fields]

    def test_all(self) -> None:
        assert self.shapes(PaddingToUniform()) == [(2,), (), (2, 2), (2, 1), (1, 2)]
        assert self.shapes(PaddingToUniform(None, 1)) == [(2,), (), (2, 2), (2, 1), (1, 2)]

    def test_of_a_name(self) -> None:
        assert self.shapes(PaddingToUniform("x")) == [(2,), (), (2, 2), (0, 1), (1, 0)]

    def test_in_groups_of_a_name(self) -> None:
        assert self.shapes(PaddingToUniform(("g",))) == [(0,), (), (2, 2), (2, 1), (1, 2)]

    def test_of_several_names_that_meet(self) -> None:
        assert self.shapes(PaddingToUniform(["g", "x", "x"])) == [(2,), (), (2, 2), (2, 1), (1, 2)]

    def test_no_name_at_all(self) -> None:
        assert self.shapes(PaddingToUniform([])) == [(0,), (), (0, 2), (0, 1), (1, 0)]


def test_layouts_stay() -> None:
    class Both:
        def __call__(self, data: SampleDataGroup) -> SampleDataGroup:
            return PaddingToUniform()(AxesLayoutSetter("image", "HWC")(data))

    layouts: dict[str, str] = {}
    samples = [{"image": np.zeros((n, 2, 3), np.uint8), "x": np.zeros(n)} for n in (1, 2)]
    assert run_step(Both(), samples, layouts=layouts)[0]["image"].shape == (2, 2, 3)
    assert layouts == {"image": "HWC", "x": ""}


def test_text_and_declared_axes_through_a_pipeline() -> None:
    class Declared(ArrayProvider):
        @property
        def sample_data_structure(self) -> SampleDataGroup:
            blueprint = SampleDataGroup()
            blueprint.add_data_field("text", types.DALIDataType.STRING)
            blueprint.add_data_field("number", DT.FLOAT, ndim=0)
            blueprint.add_data_field("boxes", DT.FLOAT, ndim=2)
            return blueprint

    texts, boxes = ["a", "", "äöü"], [np.ones((n, 4), np.float32) for n in (0, 3, 1)]
    provider = Declared({"text": (DT.STRING, texts), "number": (DT.FLOAT, [1, 2, 3]), "boxes": (DT.FLOAT, boxes)})
    with make_iterator(shuffled(provider, 3), [PaddingToUniform(fill_value=0)], py_num_workers=0) as iterator:
        [batch] = iterator
    assert batch["text"] == texts
    assert batch["number"].tolist() == [1, 2, 3]
    assert (batch["boxes"] == np.stack(padded(boxes, 0))).all()


def test_batches_may_differ() -> None:
    provider = ArrayProvider({"x": (DT.INT32, [[1], [1, 2], [1, 2, 3], []])})
    with make_iterator(shuffled(provider, 2), [PaddingToUniform("x", 9)], py_num_workers=0) as iterator:
        assert [batch["x"].tolist() for batch in iterator] == [[[1, 9], [1, 2]], [[1, 2, 3], [9, 9, 9]]]


def test_the_check_returns_what_it_was_given() -> None:
    blueprint = blueprint_of({"x": np.zeros(1)})
    assert PaddingToUniform("x")._check_and_adjust_data_format_input_to_output(blueprint) is blueprint
