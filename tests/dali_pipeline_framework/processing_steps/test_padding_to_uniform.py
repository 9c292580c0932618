"""One shape per batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_runs import assert_same, run_step
from support.array_samples import group_of, sample_of
from support.arrays import DT, ArrayProvider
from support.laws import examples
from support.pipelines import make_iterator, shuffled

from accvlab.dali_pipeline_framework import testing
from accvlab.dali_pipeline_framework.processing_steps import PaddingToUniform
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


@pytest.mark.parametrize(
    ("values", "fill"),
    [
        *(([[np.pi, -0.0, np.inf, np.nan], [1e300], []], fill) for fill in (-7.0, np.inf, np.nan)),
        ([[2**62 + 1, -(2**62) - 1], [5]], -1),
    ],
)
def test_numbers_of_64_bits_are_exact(values: list[list[float]], fill: float) -> None:
    arrays = [np.array(each) for each in values]
    found = run_step(PaddingToUniform("x", fill), [{"x": array} for array in arrays])
    for one, expected in zip(found, padded(arrays, fill), strict=True):
        assert_same(one["x"], expected)


@pytest.mark.parametrize(
    ("names", "shapes"),
    [
        (None, [(2,), (), (2, 2), (2, 1), (1, 2)]),
        ("x", [(2,), (), (2, 2), (0, 1), (1, 0)]),
        (("g",), [(0,), (), (2, 2), (2, 1), (1, 2)]),
        (["g", "x", "x"], [(2,), (), (2, 2), (2, 1), (1, 2)]),
        ([], [(0,), (), (0, 2), (0, 1), (1, 0)]),
    ],
)
def test_fields_of_names_and_in_groups_of_names(names: Any, shapes: list[tuple[int, ...]]) -> None:
    samples = [
        {
            "x": np.full((n,), n, np.int32),
            "scalar": np.float32(n),
            "g": {"x": np.full((n, 2), n, np.float32), "y": np.full((n, 1), n, np.int8)},
            "h": {0: {"g": {"z": np.full((1, n), n, np.uint8)}}},
        }
        for n in (2, 0, 1)
    ]
    found = run_step(PaddingToUniform(names), samples)[1]
    fields = [found["x"], found["scalar"], found["g"]["x"], found["g"]["y"], found["h"][0]["g"]["z"]]
    assert [field.shape for field in fields] == shapes


def test_layouts_stay() -> None:
    samples = [sample_of({"image": np.zeros((n, 2, 3), np.uint8)}) for n in (1, 2)]
    run, _ = testing.run_step(PaddingToUniform(), samples, layouts={"image": "HWC"})
    assert (run.output["image"].shape, run.layouts["image"]) == ((2, 2, 3), "HWC")


class Declared(ArrayProvider):
    @property
    def sample_data_structure(self) -> SampleDataGroup:
        return group_of(text=DT.STRING, number=(DT.FLOAT, {"ndim": 0}), boxes=(DT.FLOAT, {"ndim": 2}))


def test_text_and_declared_axes_of_each_batch() -> None:
    texts, boxes = ["a", "", "äöü", "b"], [np.ones((n, 4), np.float32) for n in (0, 3, 1, 1)]
    fields = {"text": (DT.STRING, texts), "number": (DT.FLOAT, [1, 2, 3, 4]), "boxes": (DT.FLOAT, boxes)}
    steps = [PaddingToUniform(fill_value=0)]
    with make_iterator(shuffled(Declared(fields), 2), steps, py_num_workers=0) as iterator:
        for number, batch in enumerate(iterator):
            samples = slice(2 * number, 2 * number + 2)
            assert batch["text"] == texts[samples]
            assert batch["number"].tolist() == fields["number"][1][samples]
            np.testing.assert_array_equal(batch["boxes"], padded(boxes[samples], 0))
