"""Where steps run: on arrays in the workers, or in the graph; and why, as plans and loaders say."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import pytest
from array_steps import Doubles, Gain, InGraph, Renames
from support.array_samples import group_of
from support.arrays import DT
from support.inputs import GivenBatch
from support.providers import NumberProvider
from support.random_steps import each_camera
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework.errors import FormatError
from accvlab.dali_pipeline_framework.loader import DataLoader
from accvlab.dali_pipeline_framework.operators.array_packages import needed_package
from accvlab.dali_pipeline_framework.pipeline import PipelineDefinition
from accvlab.dali_pipeline_framework.processing_steps import (
    CoordinateCropper,
    GridMasker,
    HorizontalFlipper,
    ImageDecoder,
    ImageMeanStdDevNormalizer,
    ImageRange01Normalizer,
    ImageResizer,
    LambdaStep,
    PipelineStepBase,
    TensorSizeAdder,
)

DECODER, FLIPPER, MASKER = ImageDecoder("image", False), HorizontalFlipper("image"), GridMasker("image")
CROPPER = CoordinateCropper("boxes", [0, 0, 0, 0], [9, 9, 9, 9])
NORMALIZER = ImageMeanStdDevNormalizer("image", 100.0, 50.0)
CHAIN = [DECODER, FLIPPER, CROPPER, MASKER, NORMALIZER, TensorSizeAdder("image", "_shape")]
OF_GRAPH = each_camera(LambdaStep(lambda boxes: boxes, input_names="boxes", output_types={"boxes": DT.FLOAT}))
WRAPPED = [ImageResizer("image", output_hw=[8, 8], is_encoded=True), ImageRange01Normalizer("image")]
MAKES_FLOATS = "converts images to floating point"
FLOATS = f"there is no GPU; step 4 (ImageMeanStdDevNormalizer) {MAKES_FLOATS}"


def definition(steps: list[PipelineStepBase], run: Any = "auto") -> PipelineDefinition:
    camera = group_of(image=DT.UINT8, boxes=DT.FLOAT)
    return PipelineDefinition(GivenBatch([group_of(cameras=(camera, 3))]), steps, run=run)


def in_workers(steps: list[PipelineStepBase], run: Any = "auto") -> tuple[int, str]:
    """How many of the steps run in the workers, and why."""
    first, *_ = definition(steps, run).plan(py_num_workers=0).splitlines()
    found = re.fullmatch(rf"in the workers: (\d+) of {len(steps)} steps \((.*)\)", first)
    assert found is not None, first
    return int(found[1]), found[2]


class TestByDefault:
    """``run="auto"`` without a GPU."""

    @pytest.mark.parametrize(
        ("steps", "count", "reason"),
        [
            (CHAIN, 4, FLOATS),
            ([each_camera(step) for step in WRAPPED], 1, f"of ImageRange01Normalizer) {MAKES_FLOATS}"),
            (CHAIN[:4], 4, "there is no GPU"),
            (
                [*CHAIN[:3], OF_GRAPH, MASKER],
                3,
                "step 3 (DataGroupArrayWithNameElementsAppliedStep of LambdaStep)",
            ),
            ([DECODER, NORMALIZER, FLIPPER], 0, "in the workers, steps would at most decode images"),
            ([DECODER, CHAIN[5]], 2, "there is no GPU; images are at most decoded, which the graph does"),
            ([CROPPER], 1, "there is no GPU; images are at most decoded, which the graph does"),
            ([CROPPER, DECODER], 2, "there is no GPU; images are at most decoded, which the graph does"),
            (
                [*CHAIN[:4], NORMALIZER.with_run("workers"), FLIPPER],  # floats go on in the graph
                5,
                "step 4 (ImageMeanStdDevNormalizer) is to run in the workers (run='workers')",
            ),
        ],
    )
    def test_steps_before_the_first_that_makes_floats_run_in_the_workers(
        self, steps: list[PipelineStepBase], count: int, reason: str
    ) -> None:
        found, why = in_workers(steps)
        assert found == count
        assert re.search(".*".join(map(re.escape, reason.split("..."))), why)

    def test_what_prefers_arrays_runs_there_with_all_before(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ImageMeanStdDevNormalizer, "prefers_arrays", True)
        assert in_workers(CHAIN) == (5, FLOATS)
        assert in_workers([DECODER, each_camera(NORMALIZER)]) == (2, "there is no GPU")
        monkeypatch.setattr(ImageMeanStdDevNormalizer, "array_form_needs", ("no_such_package",))
        assert in_workers(CHAIN)[0] == 4

    def test_a_missing_package_ends_them(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(GridMasker, "array_form_needs", ("no_such_package",))
        missing = "no_such_package is not installed, which step 3 (GridMasker) needs on arrays"
        assert in_workers(CHAIN) == (3, f"there is no GPU; {missing}")
        assert in_workers([DECODER, MASKER])[0] == 0

    @pytest.mark.parametrize("run", ["graph", "auto"])
    def test_with_a_gpu_pixels_are_changed_in_the_graph_and_all_else_in_the_workers(self, run: Any) -> None:
        array_steps = definition(CHAIN, run).array_steps(has_gpu=True)
        assert array_steps is not None
        assert (array_steps.first_deferred, len(array_steps.steps)) == (0, len(CHAIN))

    def test_with_a_gpu_workers_change_pixels_where_that_is_asked_for(self) -> None:
        with_gpu, without = (
            definition(CHAIN, "workers").array_steps(has_gpu=has_gpu) for has_gpu in (True, False)
        )
        assert with_gpu is not None
        assert without is not None
        assert (with_gpu.deferred, len(with_gpu.steps)) == ([], len(without.steps))

    def test_is_that_of_loaders_not_of_definitions(self) -> None:
        with DataLoader(NumberProvider(), 2, steps=[Gain()], num_workers=0) as loader:
            assert loader.plan.startswith("in the workers: 0 of 1 steps (in the workers, steps would at most")
        made = PipelineDefinition(GivenBatch([group_of(image=DT.UINT8)]), CHAIN[:2])
        assert made.plan().splitlines()[:3] == [
            "in the workers: 2 of 2 steps (run='graph')",
            "step 0 (ImageDecoder): on arrays, in the workers, except for pixels",
            "step 1 (HorizontalFlipper): on arrays, in the workers, except for pixels",
        ]

    def test_steps_that_do_not_fit_are_refused_with_the_format_not_before(self) -> None:
        made = definition([HorizontalFlipper("picture")])
        words = "no field has the name 'picture'"
        assert_refused(made.check_and_get_output_data_structure, words, FormatError)


# --- steps for the graph or arrays only -----------------------------------------------------------------------


def of_numbers(steps: list[PipelineStepBase], run: Any = "graph") -> PipelineDefinition:
    return PipelineDefinition(GivenBatch([NumberProvider().sample_data_structure]), steps, run=run)


def test_placement_is_shown() -> None:
    steps = [each_camera(Gain()), Renames(), InGraph(), each_camera(Gain())]
    made, wrapped = of_numbers(steps, "workers"), "DataGroupArrayWithNameElementsAppliedStep of Gain"
    lines = made.plan().splitlines()
    assert lines[:3] == [
        "in the workers: 2 of 4 steps (run='workers'; step 2 (InGraph) has a form for the graph only; what "
        "comes after it runs in the graph, too)",
        f"step 0 ({wrapped}): on arrays, in the workers",
        "step 1 (Renames): on arrays, in the workers",
    ]
    assert lines[4].startswith("step 2 (InGraph): ")
    assert "run='workers'" in repr(made)
    with DataLoader(NumberProvider(), 2, steps=steps, num_workers=0, run="workers") as loader:
        marks = [line.endswith("[on arrays, in the workers]") for line in loader.describe().splitlines()[:6]]
        assert marks == [False, False, True, True, False, False]
        assert repr(loader).splitlines()[2:] == [
            f"  steps in the workers: {wrapped}, Renames",
            f"  steps in the graph: InGraph, {wrapped}",
        ]


@pytest.mark.parametrize(
    ("steps", "run", "words"),
    [
        ([each_camera(Gain()), Doubles(), InGraph()], "graph", "2 of 3 steps (step 1 (Doubles) works on arrays"),
        ([Gain(), Gain().with_run("graph"), Renames()], "workers", "1 of 3 steps (run='workers'; step 1 (Gain)"),
    ],
)
def test_a_step_may_need_arrays_or_the_graph(steps: list[PipelineStepBase], run: Any, words: str) -> None:
    assert f"in the workers: {words}" in of_numbers(steps, run).plan()


NEEDS_PACKAGE = "step 0 (DataGroup... of Gain) runs in the workers, on arrays, and needs no_such_package, which is"
IN_GRAPH_ONLY = "but step 0 (InGraph) has a form for the graph only"


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([InGraph(), each_camera(Gain()), Doubles()], f"step 2 (Doubles) works on arrays ...{IN_GRAPH_ONLY}"),
        ([InGraph(), Gain().with_run("workers")], "step 1 (Gain) is to run in the workers ... step 0 (InGraph)"),
        ([Gain().with_run("graph"), Doubles()], "step 0 (Gain) is to run in the graph"),
    ],
)
@pytest.mark.parametrize("make", [of_numbers, lambda steps: DataLoader(NumberProvider(), 2, steps=steps)])
def test_what_must_run_in_the_workers_behind_the_graph_is_refused(
    make: Callable[..., Any], steps: list[PipelineStepBase], words: str
) -> None:
    assert_refused(lambda: make(steps), words)


def test_without_a_package_is_refused_or_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Gain, "array_form_needs", ("cv2", "no_such_package"))
    gain = each_camera(Gain())
    assert_refused(lambda: of_numbers([gain], "workers"), NEEDS_PACKAGE)
    assert_refused(lambda: of_numbers([gain, Doubles()]).plan(), NEEDS_PACKAGE)
    assert "in the workers: 0 of 1 steps" in of_numbers([gain], "auto").plan()
    monkeypatch.setitem(sys.modules, "simplejpeg", None)
    words = "Steps on arrays need simplejpeg, ...pip install simplejpeg"
    assert_refused(lambda: needed_package("simplejpeg"), words)


def test_where_a_step_is_to_run_is_checked() -> None:
    assert_refused(lambda: Gain().with_run("gpu"), "`run` must be one of")  # type: ignore[arg-type]
