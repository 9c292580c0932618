"""Small steps between image steps give the same on arrays as in the graph, bit by bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nvidia.dali import types
from support.laws import examples
from support.public_steps import PUBLIC_STEPS
from support.random_steps import filled

from accvlab.dali_pipeline_framework import SampleDataGroup
from accvlab.dali_pipeline_framework.errors import FieldValueError
from accvlab.dali_pipeline_framework.processing_steps import (
    AnnotationElementConditionEval,
    BoxAreaFilter,
    ConditionalElementRemover,
    PipelineStepBase,
    PointCloudRangeFilter,
    PointsInRangeCheck,
    PointsPadder,
    UnneededFieldRemover,
    VisibleBboxSelector,
)
from accvlab.dali_pipeline_framework.sample_data.dtypes import NUMPY_TYPES
from accvlab.dali_pipeline_framework.testing import run_step

DT = types.DALIDataType
NUMBERS = [dtype for dtype in NUMPY_TYPES if dtype != DT.BOOL]
FORMATS = ["xyxy", "xywh", "cxcywh"]
Draw = Callable[[Any], Any]


def array(rng: np.random.Generator, dtype: Any, *shape: int) -> Any:
    """Small numbers, some that are equal, and the limits and odd values of the type."""
    numpy_type = np.dtype(NUMPY_TYPES[dtype])
    if numpy_type.kind == "b":
        return rng.random(shape) < 0.5
    if numpy_type.kind == "f":
        odd = np.array([np.nan, np.inf, -np.inf, -0.0, 0.1, 2.5], numpy_type)
        values = np.round(rng.normal(0, 4, shape), rng.integers(0, 3)).astype(numpy_type)
    else:
        info = np.iinfo(numpy_type)
        odd = np.array([info.min, info.max, 0, 1], numpy_type)
        values = rng.integers(max(info.min, -9), 10, shape).astype(numpy_type)
    return np.where(rng.random(shape) < 0.15, rng.choice(odd, shape), values)


def box_area(draw: Draw, rng: np.random.Generator, n: Any) -> Any:
    dtype = draw(st.sampled_from(NUMBERS))
    least, most = sorted(draw(st.tuples(*[st.sampled_from([0.0, 0.1, 4.0, 6.25, 30.3, np.inf])] * 2)))
    step = BoxAreaFilter(
        "boxes", area_range=(least, most), further_names=["tags"], box_format=draw(st.sampled_from(FORMATS))
    )
    return step, [
        {"boxes": (dtype, array(rng, dtype, count, 4)), "tags": (DT.INT16, np.arange(count))} for count in n
    ]


def removal(draw: Draw, rng: np.random.Generator, n: Any) -> Any:
    axis = draw(st.sampled_from([0, 1, -1]))
    dtype = draw(st.sampled_from([*NUMPY_TYPES]))
    step = ConditionalElementRemover(
        "annotation", "mask", ["values", "mask"], [axis, 0], [2, 1], draw(st.booleans())
    )
    samples = []
    for count in n:
        shape = (3, count) if axis else (count, 3)
        group = {"values": (dtype, array(rng, dtype, *shape)), "mask": (DT.BOOL, array(rng, DT.BOOL, count))}
        samples.append({"annotation": group})
    return step, samples


def condition(draw: Draw, rng: np.random.Generator, n: Any) -> Any:
    one, other = draw(st.sampled_from([*NUMPY_TYPES])), draw(st.sampled_from([*NUMPY_TYPES]))
    comparison = draw(st.sampled_from(["==", "!=", "<", "<=", ">", ">="]))
    literal = draw(st.sampled_from(["0", "2.5", "-1", "0.1", "300", "1" + "0" * 39, "18446744073709551616"]))
    expression = draw(
        st.sampled_from(
            [
                "a {c} b",
                "a {c} {l}",
                "{l} {c} b and not a",
                "a or -b {c} a",
                "not (a {c} {l} or b)",
                "1 < 2 or a {c} b",
                "a",
            ]
        )
    )
    if "b" not in expression:
        other = one
    text = f"result = {expression.format(c=comparison, l=literal)}"
    step = AnnotationElementConditionEval("annotation", text, draw(st.booleans()))
    shapes = [(count, 1) if draw(st.booleans()) else (count,) for count in n]
    if len({len(shape) for shape in shapes}) > 1:
        shapes = [(count,) for count in n]
    return step, [
        {"annotation": {"a": (one, array(rng, one, *shape)), "b": (other, array(rng, other, *shape))}}
        for shape in shapes
    ]


def in_range(draw: Draw, rng: np.random.Generator, n: Any) -> Any:
    dtype = draw(st.sampled_from(NUMBERS))
    step = PointsInRangeCheck("points", "is_in", [-2.5, -np.inf, 0.1], [3, 4.7, np.inf])
    return step, [{"points": (dtype, array(rng, dtype, count, 3))} for count in n]


def range_filter(draw: Draw, rng: np.random.Generator, n: Any) -> Any:
    dtype = draw(st.sampled_from(NUMBERS))
    step = PointCloudRangeFilter("points", point_range=([-2.5, 0.1], [6, np.inf]), further_names="tags")
    return step, [
        {"points": (dtype, array(rng, dtype, count, 4)), "tags": (DT.FLOAT16, np.arange(count))} for count in n
    ]


def padder(draw: Draw, rng: np.random.Generator, n: Any) -> Any:
    dtype = draw(st.sampled_from([*NUMPY_TYPES]))
    fill = draw(st.sampled_from([0, -1, 2.5, 0.1, 300, 1e30, float("nan")]))
    if np.dtype(NUMPY_TYPES[dtype]).kind in "iu" and np.isnan(fill):
        fill = 7  # what becomes of it there, C++ does not say
    mask = draw(st.sampled_from([None, "mask"]))
    step = PointsPadder("points", num_points=draw(st.integers(1, 6)), mask_name=mask, fill_value=fill)
    shape = draw(st.sampled_from([(), (3,), (2, 2)]))
    return step, [{"points": (dtype, array(rng, dtype, count, *shape))} for count in n]


def visibility(draw: Draw, rng: np.random.Generator, n: Any) -> Any:
    dtype, depth = draw(st.sampled_from(NUMBERS)), draw(st.sampled_from(NUMBERS))
    step = VisibleBboxSelector(
        "boxes",
        "mask",
        image_hw_field_name="hw",
        depths_field_name="depths",
        check_for_bbox_occlusion=draw(st.booleans()),
        minimum_bbox_size=draw(st.sampled_from([0.1, 3.3])),
    )
    hw = draw(st.sampled_from([[6.0, 5.5], [0.0, 3.0], [np.nan, 4.0]]))
    return step, [
        {
            "boxes": (dtype, array(rng, dtype, count, 4)),
            "depths": (depth, array(rng, depth, count)),
            "hw": (DT.FLOAT, hw),
        }
        for count in n
    ]


def remover(draw: Draw, rng: np.random.Generator, n: Any) -> Any:
    step = UnneededFieldRemover(draw(st.sampled_from([["a"], ["b"], ["group"], ["nothing"]])))
    return step, [{"a": (DT.INT32, count), "group": {"a": (DT.INT32, 1), "b": (DT.BOOL, True)}} for count in n]


MAKERS: Mapping[str, Callable[[Draw, np.random.Generator, Any], Any]] = {
    made.__name__: made
    for made in (
        box_area,
        removal,
        condition,
        in_range,
        range_filter,
        padder,
        visibility,
        remover,
    )
}


def sample_of(tree: Mapping[str, Any]) -> SampleDataGroup:
    sample = SampleDataGroup()
    for name, value in tree.items():
        if isinstance(value, dict):
            sample.add_data_group_field(name, sample_of(value))
            sample[name] = sample_of(value)
        else:
            sample.add_data_field(name, value[0])
            sample[name] = np.asarray(value[1]).astype(NUMPY_TYPES[value[0]])
    return sample


def assert_both_forms_agree(step: PipelineStepBase, samples: list[SampleDataGroup]) -> None:
    of_graph, of_arrays = (run_step(step, samples, run=run) for run in ("graph", "workers"))
    for one, other in zip(of_graph, of_arrays, strict=True):
        assert one.output.format.matches(other.output.format)
        fields = zip(one.output.format.flat_paths, one.output.get_data(), other.output.get_data(), strict=True)
        for path, first, second in fields:
            first, second = np.asarray(first), np.asarray(second)
            assert (path, first.dtype, first.shape) == (path, second.dtype, second.shape)
            if first.dtype.kind == "f":  # bits, but for those of NaN
                first, second = (np.where(np.isnan(each), np.nan, each) for each in (first, second))
            assert first.tobytes() == second.tobytes(), (path, first, second)


@pytest.mark.parametrize("maker", MAKERS)
@settings(max_examples=examples(3, 200))
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_both_forms_agree(maker: str, data: st.DataObject, seed: int) -> None:
    counts = data.draw(st.lists(st.sampled_from([3, 0, 1, 5, 8]), min_size=1, max_size=3))
    step, samples = MAKERS[maker](data.draw, np.random.default_rng(seed), counts)
    assert step.has_array_form
    assert_both_forms_agree(step, [sample_of(sample) for sample in samples])


@pytest.mark.parametrize("dtype", [DT.INT8, DT.UINT8, DT.INT32, DT.UINT32, DT.UINT64, DT.FLOAT16])
@pytest.mark.parametrize("fill", [2.7, -2.7, 300, 5e9, 1e30])
def test_both_forms_fill_alike(dtype: Any, fill: float) -> None:
    step = PointsPadder("points", num_points=3, fill_value=fill)
    assert_both_forms_agree(step, [filled({"points": (dtype, [1])})])


def test_both_forms_order_boxes_of_equal_depth_alike() -> None:
    boxes = [[0, 0, 4, 4], [0, 0, 4, 4], [1, 1, 3, 3], [0, 0, 9, 9], [5, 5, 9, 9]]
    step = VisibleBboxSelector(
        "boxes", "mask", image_hw=[8, 8], depths_field_name="depths", check_for_minimum_size=False
    )
    samples = [
        filled({"boxes": (DT.FLOAT, boxes), "depths": (DT.FLOAT, depths)})
        for depths in ([1, 1, 1, 2, 2], [1, 2, 1, 1, np.nan], [np.nan] * 5, [3, 2, 1, 1, 1])
    ]
    assert_both_forms_agree(step, samples)
    masks = [run.output["mask"].tolist() for run in run_step(step, samples, run="workers")]
    assert masks[0] == [False, True, True, True, True]


FAILING = [
    (PointsInRangeCheck("a", "is_in", [0], [1]), (DT.FLOAT, np.zeros((2, 3))), "one number for each limit"),
]


@pytest.mark.parametrize(("step", "value", "rule"), FAILING, ids=lambda each: type(each).__name__)
def test_both_forms_refuse_the_same(step: PipelineStepBase, value: Any, rule: str) -> None:
    with pytest.raises(FieldValueError, match=f"(?i){rule}"):
        run_step(step, filled({"a": value}), run="workers")
    with pytest.raises(RuntimeError):
        run_step(step, filled({"a": value}))


def test_masks_and_variables_of_other_lengths_are_refused() -> None:
    mask = (DT.BOOL, [True, False])
    removal_ = ConditionalElementRemover("group", "mask", ["a"], [0], [1], False)
    sample = sample_of({"group": {"a": (DT.INT32, [1, 2, 3]), "mask": mask}})
    with pytest.raises(FieldValueError, match="A mask must have one value for each element"):
        run_step(removal_, sample, run="workers")
    eval_ = AnnotationElementConditionEval("group", "b = a < 2 and mask", False)
    with pytest.raises(FieldValueError, match="Each variable has one value for each element"):
        run_step(eval_, sample, run="workers")


def test_steps_that_stand_between_image_steps_have_both_forms() -> None:
    with_both = {
        "AnnotationElementConditionEval",
        "BEVBBoxesTransformer3D",
        "BoundingBoxToHeatmapConverter",
        "BoxAreaFilter",
        "ConditionalElementRemover",
        "PointCloudRangeFilter",
        "PointsInRangeCheck",
        "PointsPadder",
        "UnneededFieldRemover",
        "VisibleBboxSelector",
    }
    for name in with_both:
        assert PUBLIC_STEPS[name].step.has_array_form, name
