"""Selection by a mask against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_runs import assert_laws, assert_same, run_step, run_steps
from support.arrays import DT
from support.laws import examples

from accvlab.dali_pipeline_framework.errors import FieldValueError, FormatError
from accvlab.dali_pipeline_framework.processing_steps import ConditionalElementRemover
from accvlab.dali_pipeline_framework.sample_data import SampleDataGroup

ALL_TYPES = [bool, "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]


def bits(random: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    if dtype.kind == "b":
        return random.integers(0, 2, shape).astype(bool)
    return np.frombuffer(random.bytes(int(np.prod(shape)) * dtype.itemsize), dtype).reshape(shape)


@given(data=st.data())
@settings(max_examples=examples(15, 40), deadline=None)
def test_elements_are_kept_bit_by_bit_in_order(data: st.DataObject) -> None:
    random = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    fields = data.draw(st.lists(st.tuples(st.sampled_from(ALL_TYPES), st.integers(1, 4)), min_size=1, max_size=2))
    axes = [data.draw(st.integers(-ndim, ndim - 1)) for _, ndim in fields]
    samples = []
    for _ in range(data.draw(st.integers(1, 3))):
        mask = np.array(data.draw(st.lists(st.booleans(), max_size=7)), bool)
        values = {}
        for number, ((dtype, ndim), axis) in enumerate(zip(fields, axes, strict=True)):
            shape = [*random.integers(0 if ndim == 2 else 1, 4, ndim)]
            shape[axis] = len(mask)
            values[number] = bits(random, tuple(map(int, shape)), np.dtype(dtype))
        samples.append({"annotation": {"mask": mask, **values}})
    remove = data.draw(st.booleans())
    ndims = [ndim for _, ndim in fields]
    step = ConditionalElementRemover("annotation", "mask", [*range(len(fields))], axes, ndims, remove)
    for one, sample in zip(run_step(step, samples), samples, strict=True):
        values = sample["annotation"]
        kept = {
            number: np.compress(values["mask"], values[number], axis=axis).astype(values[number].dtype)
            for number, axis in enumerate(axes)
        }
        assert_same(one["annotation"], kept if remove else {"mask": values["mask"], **kept})


def test_every_annotation_has_its_own_mask_and_the_rest_stays() -> None:
    samples = [
        {
            "annotation": {
                "boxes": np.arange(4.0 * n).reshape(n, 4),
                "mask": np.arange(n) % 2 == 0,
                "name": np.int8(n),
                "annotation": {"mask": np.arange(2) > 5 - n, "boxes": np.arange(8).reshape(2, 4)},
            },
            "boxes": np.arange(4.0 * n).reshape(n, 4),
        }
        for n in (5, 0, 1)
    ]
    for remove in (False, True):
        step = ConditionalElementRemover("annotation", "mask", ["boxes"], [0], [2], remove)
        for one, sample in zip(assert_laws(step, samples), samples, strict=True):
            outer, inner = sample["annotation"], sample["annotation"]["annotation"]
            new_inner = {**inner, "boxes": inner["boxes"][inner["mask"]]}
            expected = {**outer, "boxes": outer["boxes"][outer["mask"]], "annotation": new_inner}
            if remove:
                del expected["mask"], new_inner["mask"]
            assert_same(one, {**sample, "annotation": expected})


def test_the_mask_filters_itself_only_when_it_is_among_the_fields() -> None:
    sample = {"a": {"mask": np.array([True, False, True])}}
    [found] = run_step(ConditionalElementRemover("a", "mask", ["mask"], [0], [1], False), [sample])
    assert found["a"]["mask"].tolist() == [True, True]
    [found] = run_step(ConditionalElementRemover("a", "mask", [], [], [], False), [sample])
    assert found["a"]["mask"].tolist() == [True, False, True]


@pytest.mark.parametrize("num_elements", [300, 70_000])
def test_many_elements(num_elements: int) -> None:
    random = np.random.default_rng(1)
    sample = {"a": {"x": random.random((num_elements, 4), np.float32), "m": random.random(num_elements) < 0.5}}
    [found] = run_step(ConditionalElementRemover("a", "m", ["x"], [0], [2], True), [sample])
    assert_same(found["a"]["x"], sample["a"]["x"][sample["a"]["m"]])


@pytest.mark.parametrize(("axis", "num_axes"), [(-1, 2), (-2, 2), (0, 4), (0, 2)])
def test_a_field_with_another_number_of_axes_than_given_is_named(axis: int, num_axes: int) -> None:
    fields = {"a": {"x": (DT.FLOAT, [np.zeros((3, 3, 3))]), "m": (DT.BOOL, [[True, False, False]])}}
    step = ConditionalElementRemover("a", "m", ["x"], [axis], [num_axes], True)
    rule = f"must have {num_axes} axes, as `fields_to_process_num_dims` says, has 3"
    with pytest.raises(FieldValueError, match=f"^a.x: {rule}"):
        run_steps(step, fields, run="workers")
    annotation, sample = SampleDataGroup(), SampleDataGroup()
    annotation.add_data_field("x", DT.FLOAT, ndim=3)
    annotation.add_data_field("m", DT.BOOL)
    sample.add_data_group_field("a", annotation)
    with pytest.raises(FormatError, match=f"a.x: {rule}"):
        step.check_input_data_format_and_set_output_data_format(sample)
