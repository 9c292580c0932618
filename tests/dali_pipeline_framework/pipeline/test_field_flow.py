"""Steps for the graph only take the fields that they touch into it; the other steps stay in the workers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from support.arrays import DT, ArrayProvider, encoded_image, gradient
from support.pipelines import make_iterator, shuffled

from accvlab.dali_pipeline_framework.errors import SourceError
from accvlab.dali_pipeline_framework.pipeline import PipelineDefinition, SampleDataGroup
from accvlab.dali_pipeline_framework.pipeline.field_flow import FieldFlow
from accvlab.dali_pipeline_framework.processing_steps import (
    CoordinateCropper,
    HorizontalFlipper,
    ImageDecoder,
    ImageMeanStdDevNormalizer,
    ImageResizer,
    LambdaStep,
    PipelineStepBase,
    TensorSizeAdder,
)

FIELDS = {
    "image": (DT.UINT8, [encoded_image(gradient(20, 30, phase), "PNG") for phase in range(4)]),
    "matrix": (DT.FLOAT, [np.eye(3)] * 4),
    "boxes": (DT.FLOAT, [np.array([[1, 2, 3, 4.0]]) * number for number in range(4)]),
    "x": (DT.FLOAT, [np.full(3, number) for number in range(4)]),
}


def doubled(name: str, dtype: DT = DT.FLOAT) -> LambdaStep:
    return LambdaStep(lambda values: values + values, input_names=name, output_types={name: dtype})


class Counted(PipelineStepBase):
    """Works on one field in the graph only, and counts how often it is asked to."""

    num_calls = 0

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        self.num_calls += 1
        data["x"] = data["x"] * 2.0
        return data

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        return data_empty


DECODER = ImageDecoder("image", False)
RESIZER = ImageResizer("image", output_hw=[10, 12], projection_names="matrix")
CROPPER = CoordinateCropper("boxes", [0, 0, 0, 0], [3, 3, 3, 3])
NORMALIZER = ImageMeanStdDevNormalizer("image", 1.0, 2.0)
FLIPPER = HorizontalFlipper("image", box_names="boxes")

# The chain, and the numbers of its steps that run in the workers.
CHAINS: dict[str, tuple[Sequence[PipelineStepBase], list[int]]] = {
    "another field": ([DECODER, doubled("x"), RESIZER, NORMALIZER], [0, 2, 3]),
    "the image": ([DECODER, doubled("image", DT.UINT8), RESIZER, CROPPER], [0, 3]),
    "both": ([DECODER, doubled("x"), RESIZER, doubled("image", DT.UINT8), CROPPER, NORMALIZER], [0, 2, 4]),
    "what a step that stays needs": ([DECODER, doubled("image", DT.UINT8), FLIPPER, CROPPER], [0]),
    "a step that draws": ([doubled("x"), DECODER, FLIPPER, CROPPER], [1, 2, 3]),
    "what a step needs that is to run in the graph": ([DECODER, FLIPPER.with_run("graph"), CROPPER], [0]),
    "a step of one's own": ([DECODER, Counted(), RESIZER], [0, 2]),
}


@pytest.mark.parametrize("name", CHAINS)
def test_steps_that_do_not_depend_on_them_run_in_the_workers(name: str) -> None:
    steps, in_workers = CHAINS[name]
    definition = PipelineDefinition(shuffled(ArrayProvider(FIELDS), 2), steps)
    plan = definition.plan(py_num_workers=0).splitlines()
    found = [int(line.split()[1]) for line in plan if "on arrays, in the workers" in line]
    assert found == in_workers
    assert all(step.num_calls <= 1 for step in steps if isinstance(step, Counted))
    divided, whole = (
        [*make_iterator(shuffled(ArrayProvider(FIELDS), 2), steps, py_num_workers=0, in_graph=in_graph)]
        for in_graph in (False, True)
    )
    for one, other in zip(divided, whole, strict=True):
        assert list(one) == list(other) == list(definition.check_and_get_output_data_structure().field_names_flat)
        assert all(np.array_equal(one[name], other[name]) for name in one)


def test_the_order_of_added_fields_is_that_of_the_steps() -> None:
    add = [
        LambdaStep(lambda values: values * 2.0, input_names="x", output_types={"added": DT.FLOAT}),
        ImageResizer("image", output_hw=[10, 12], is_encoded=True),
    ]
    definition = PipelineDefinition(shuffled(ArrayProvider(FIELDS), 2), add)
    assert "step 1 (ImageResizer): on arrays, in the workers, but for pixels" in definition.plan(py_num_workers=0)
    assert definition.check_and_get_output_data_structure().field_names_flat[-1] == "added"


def test_steps_are_not_exchanged_where_the_fields_would_have_another_order() -> None:
    steps = [
        DECODER,
        LambdaStep(lambda values: values * 2.0, input_names="x", output_types={"of_graph": DT.FLOAT}),
        TensorSizeAdder("image", "_size"),
    ]
    definition = PipelineDefinition(shuffled(ArrayProvider(FIELDS), 2), steps)
    with make_iterator(shuffled(ArrayProvider(FIELDS), 2), steps, py_num_workers=0) as iterator:
        found = list(next(iter(iterator)))
    assert found == [*definition.check_and_get_output_data_structure().field_names_flat]
    assert found[-2:] == ["of_graph", "image_size"]


def test_errors_name_steps_by_their_places_in_the_chain() -> None:
    fields = {**FIELDS, "boxes": (DT.FLOAT, [np.zeros((1, 4)), *[np.zeros((1, 5))] * 3])}
    source = shuffled(ArrayProvider(fields), 2)
    with (
        make_iterator(source, [DECODER, doubled("x"), CROPPER], py_num_workers=0) as iterator,
        pytest.raises(SourceError, match=r"Step 2 \(CoordinateCropper\) on sample 1"),
    ):
        next(iter(iterator))


def test_what_a_step_reads_and_writes() -> None:
    blueprint = SampleDataGroup()
    for name in ("a", "b", "c", "d"):
        blueprint.add_data_field(name, DT.FLOAT)
    step = LambdaStep(lambda a, b: (a + b, b), input_names=["a", "b"], output_types={"c": DT.FLOAT, "e": DT.FLOAT})
    flow = FieldFlow.of(step, blueprint, has_gpu=False)
    assert flow == FieldFlow(frozenset({("a",), ("b",)}), frozenset({("c",), ("e",)}), frozenset({"LambdaStep"}))
    assert FieldFlow.of(DECODER, blueprint, has_gpu=False) is None
