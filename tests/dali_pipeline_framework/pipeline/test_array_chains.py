"""Chains of image steps, cut anywhere: what runs in the workers and what in the graph gives the same images."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from nvidia.dali import types
from support.array_samples import group_of
from support.arrays import encoded_image, gradient
from support.laws import examples

from accvlab.dali_pipeline_framework.errors import FormatError, SourceError
from accvlab.dali_pipeline_framework.inputs import DataProvider, SamplerInputCallable
from accvlab.dali_pipeline_framework.loader import DataLoader
from accvlab.dali_pipeline_framework.pipeline import PipelineDefinition, SampleDataGroup
from accvlab.dali_pipeline_framework.processing_steps import (
    AffineTransformer,
    AxesLayoutSetter,
    CoordinateCropper,
    DataGroupArrayWithNameElementsAppliedStep,
    GridMasker,
    HorizontalFlipper,
    ImageDecoder,
    ImageMeanStdDevNormalizer,
    ImageRange01Normalizer,
    ImageResizeCropFlipper,
    ImageResizer,
    ImageToTileSizePadder,
    LambdaStep,
    PhotoMetricDistorter,
    PipelineStepBase,
    TensorSizeAdder,
)
from accvlab.dali_pipeline_framework.sampling import SequentialSampler

DT = types.DALIDataType
NUM_CAMERAS = 3


class Cameras(DataProvider):
    def get_number_of_samples(self) -> int:
        return 4

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        camera = group_of(image=DT.UINT8, matrix=DT.FLOAT, boxes=DT.FLOAT)
        return group_of(cameras=(camera, NUM_CAMERAS), index=DT.INT64)

    def get_data(self, sample_index: int) -> SampleDataGroup:
        sample = self.sample_data_structure
        sample["index"] = sample_index
        for number in range(NUM_CAMERAS):
            camera = sample["cameras"][number]
            camera["image"] = encoded_image(gradient(72, 128), "JPEG")
            camera["matrix"] = np.array([[90, 0, 64], [0, 95, 36], [0, 0, 1]], np.float32) + number
            boxes = np.array([[3, 4, 40, 50], [10.25, 20.5, 100, 60]], np.float32)
            camera["boxes"] = boxes[: (sample_index + number) % 3]
        return sample


def decoded_first() -> list[PipelineStepBase]:
    affine = AffineTransformer
    return [
        ImageDecoder("image", False),
        PhotoMetricDistorter("image", [-20, 20], [-18, 18], [0.5, 1.5], [0.5, 1.5], key="rig"),
        affine(
            [60, 100],
            affine.ResizingMode.STRETCH,
            image_field_names="image",
            projection_matrix_field_names="matrix",
            box_names="boxes",
            transformation_steps=[affine.Rotation(1.0, -0.1, 0.1)],
        ),
        GridMasker("image", tile_range=(10, 20), angle_range=(0, 1)),
        HorizontalFlipper("image", projection_names="matrix", box_names="boxes"),
        CoordinateCropper("boxes", [0, 0, 0, 0], [100, 60, 100, 60]),
        GridMasker("image", tile_range=(10, 20)),
        ImageMeanStdDevNormalizer("image", 100.0, 50.0, output_layout="CHW"),
        TensorSizeAdder("image", "_shape"),
    ]


def encoded_first() -> list[PipelineStepBase]:
    return [
        ImageResizeCropFlipper(
            "image",
            output_hw=[40, 80],
            scale_range=(0.7, 0.9),
            flip_prob=0.5,
            is_encoded=True,
            projection_names="matrix",
            box_names="boxes",
        ),
        GridMasker("image", tile_range=(10, 20)),
        ImageResizer("image", output_hw=[32, 64], projection_names="matrix"),
        ImageToTileSizePadder("image", 24),
        ImageMeanStdDevNormalizer("image", [1, 2, 3], [50, 60, 70]),
        AxesLayoutSetter("image", "HWC"),
    ]


def batches(steps: list[PipelineStepBase], **arguments: Any) -> list[dict[str, Any]]:
    how = {"num_workers": 0, "output_type": "numpy", "ragged": {"boxes": "list"}, "run": "workers", **arguments}
    with DataLoader(Cameras(), 2, steps=steps, **how) as loader:
        return list(loader)


def assert_equal(found: Any, expected: Any, name: str) -> None:
    """Compare arrays, or lists of arrays."""
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other, err_msg=name, strict=True)


@pytest.mark.parametrize("make", [decoded_first, encoded_first])
def test_a_chain_may_be_cut_anywhere(make: Any) -> None:
    expected: list[dict[str, Any]] = []
    count = len(make())
    for num_in_workers in range(0, count + 1, examples(2, 1)):
        steps = make()
        assert all(step.has_array_form for step in steps)
        if num_in_workers < count:
            steps[num_in_workers] = steps[num_in_workers].with_run("graph")
        found = batches(steps)
        expected = expected or found
        for batch, other in zip(found, expected, strict=True):
            assert batch["index"].tolist() == other["index"].tolist()
            for number in range(NUM_CAMERAS):
                camera, same = batch["cameras"][number], other["cameras"][number]
                assert camera.keys() == same.keys()
                for name in camera.keys() - {"image"}:
                    assert_equal(camera[name], same[name], name)
                difference = np.abs(camera["image"].astype(float) - same["image"].astype(float)) * 50
                assert camera["image"].shape == same["image"].shape
                # Levels of 0 to 255. Where an edge of what is erased or masked falls on another pixel, more.
                assert np.quantile(difference, 0.99) <= 6, (num_in_workers, np.quantile(difference, 0.99))


def test_the_stream_is_the_same_for_any_number_of_workers() -> None:
    alone = batches(encoded_first())
    for num_workers, start_method in ((1, "forkserver"), (3, "fork")):
        together = batches(encoded_first(), num_workers=num_workers, start_method=start_method)
        for batch, other in zip(together, alone, strict=True):
            for number in range(NUM_CAMERAS):
                for name, value in batch["cameras"][number].items():
                    assert_equal(value, other["cameras"][number][name], name)


def in_workers(steps: list[PipelineStepBase], **settings: Any) -> tuple[int, str]:
    """How many of the steps run in the workers by default, and why."""
    definition = PipelineDefinition(SamplerInputCallable(Cameras(), SequentialSampler(4, 2)), steps, run="auto")
    first, *_ = definition.plan(py_num_workers=0, **settings).splitlines()
    found = re.fullmatch(rf"in the workers: (\d+) of {len(steps)} steps \((.*)\)", first)
    assert found is not None, first
    return int(found[1]), found[2]


class TestByDefault:
    """``run="auto"`` without a GPU."""

    def test_steps_before_the_first_that_makes_floats_run_in_the_workers(self) -> None:
        ends = "converts images to floating point"
        normalizer = "(ImageMeanStdDevNormalizer)"
        assert in_workers(decoded_first()) == (7, f"there is no GPU; step 7 {normalizer} {ends}")
        assert in_workers(encoded_first()) == (4, f"there is no GPU; step 4 {normalizer} {ends}")
        wrapped: list[PipelineStepBase] = [
            DataGroupArrayWithNameElementsAppliedStep(step, "cameras")
            for step in (ImageResizer("image", output_hw=[8, 8], is_encoded=True), ImageRange01Normalizer("image"))
        ]
        count, reason = in_workers(wrapped)
        assert (count, reason.endswith(f"of ImageRange01Normalizer) {ends}")) == (1, True)

    def test_what_prefers_arrays_runs_there_with_all_before(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ImageMeanStdDevNormalizer, "prefers_arrays", True)
        floats = "there is no GPU; step 7 (ImageMeanStdDevNormalizer) converts images to floating point"
        assert in_workers(decoded_first()) == (8, floats)
        in_cameras = [DataGroupArrayWithNameElementsAppliedStep(step, "cameras") for step in decoded_first()[7:8]]
        assert in_workers([ImageDecoder("image", False), *in_cameras]) == (2, "there is no GPU")
        monkeypatch.setattr(ImageMeanStdDevNormalizer, "array_form_needs", ("no_such_package",))
        assert in_workers(decoded_first())[0] == 7

    def test_all_may_run_there(self) -> None:
        assert in_workers(decoded_first()[:6]) == (6, "there is no GPU")

    def test_a_step_of_the_graph_ends_them(self) -> None:
        of_graph = LambdaStep(lambda boxes: boxes, input_names="boxes", output_types={"boxes": DT.FLOAT})
        in_cameras = DataGroupArrayWithNameElementsAppliedStep(of_graph, "cameras")
        steps = [*decoded_first()[:5], in_cameras, GridMasker("image")]
        count, reason = in_workers(steps)
        assert count == 5
        assert reason.startswith(
            "there is no GPU; step 5 (DataGroupArrayWithNameElementsAppliedStep of LambdaStep)"
        )

    def test_decoding_alone_runs_in_the_graph(self) -> None:
        steps = [
            ImageDecoder("image", False),
            ImageMeanStdDevNormalizer("image", 1, 2),
            HorizontalFlipper("image"),
        ]
        assert in_workers(steps) == (0, "in the workers, steps would at most decode images")

    @pytest.mark.parametrize("others", [[], [ImageDecoder("image", False)]])
    def test_steps_that_need_no_pixels_run_in_the_workers(self, others: list[PipelineStepBase]) -> None:
        steps = [CoordinateCropper("boxes", [0, 0, 0, 0], [9, 9, 9, 9]), *others]
        reason = "there is no GPU; images are at most decoded, which the graph does"
        assert in_workers(steps) == (len(steps), reason)

    def test_what_must_run_in_the_workers_does_and_floats_go_on_in_the_graph(self) -> None:
        forced = [*decoded_first()[:7], decoded_first()[7].with_run("workers"), ImageToTileSizePadder("image", 24)]
        count, reason = in_workers(forced)
        assert (count, reason) == (
            8,
            "step 7 (ImageMeanStdDevNormalizer) is to run in the workers (run='workers')",
        )

    def test_a_missing_package_ends_them(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(GridMasker, "array_form_needs", ("no_such_package",))
        missing = "no_such_package is not installed, which step {} (GridMasker) needs on arrays"
        assert in_workers(decoded_first()) == (3, f"there is no GPU; {missing.format(3)}")
        assert in_workers([ImageDecoder("image", False), GridMasker("image")])[0] == 0

    def test_with_a_gpu_pixels_are_changed_in_the_graph_and_all_else_in_the_workers(self) -> None:
        source = SamplerInputCallable(Cameras(), SequentialSampler(4, 2))
        for run in ("graph", "auto"):
            array_steps = PipelineDefinition(source, decoded_first(), run=run).array_steps(has_gpu=True)
            assert array_steps is not None
            assert (array_steps.first_deferred, len(array_steps.steps)) == (0, len(decoded_first()))

    def test_with_a_gpu_workers_change_pixels_where_that_is_asked_for(self) -> None:
        source = SamplerInputCallable(Cameras(), SequentialSampler(4, 2))
        definition = PipelineDefinition(source, decoded_first(), run="workers")
        with_gpu, without = (definition.array_steps(has_gpu=has_gpu) for has_gpu in (True, False))
        assert with_gpu is not None
        assert without is not None
        assert (with_gpu.deferred, len(with_gpu.steps)) == ([], len(without.steps))

    def test_is_that_of_loaders_not_of_definitions(self) -> None:
        with DataLoader(Cameras(), 2, steps=encoded_first(), num_workers=0, ragged={"boxes": "list"}) as loader:
            assert loader.plan.startswith("in the workers: 4 of 6 steps (there is no GPU; ")
        source = SamplerInputCallable(Cameras(), SequentialSampler(4, total_batch_size=2))
        plan = PipelineDefinition(source, encoded_first()).plan().splitlines()
        assert plan[:2] == [
            "in the workers: 6 of 6 steps (run='graph')",
            "step 0 (ImageResizeCropFlipper): on arrays, in the workers, except for pixels",
        ]

    def test_steps_that_do_not_fit_are_refused_with_the_format_not_before(self) -> None:
        source = SamplerInputCallable(Cameras(), SequentialSampler(4, total_batch_size=2))
        definition = PipelineDefinition(source, [HorizontalFlipper("picture")], run="auto")
        with pytest.raises(FormatError, match="no field has the name 'picture'"):
            definition.check_and_get_output_data_structure()


@pytest.mark.parametrize("in_group", [False, True])
@pytest.mark.parametrize(
    "decoder", [ImageDecoder("image", False), ImageResizer("image", output_hw=[8, 8], is_encoded=True)]
)
def test_a_broken_file_is_named_with_sample_and_field(decoder: PipelineStepBase, in_group: bool) -> None:
    class Broken(Cameras):
        def get_data(self, sample_index: int) -> SampleDataGroup:
            sample = super().get_data(sample_index)
            if sample_index == 3:
                sample["cameras"][1]["image"] = sample["cameras"][1]["image"][:200]
            return sample

    step = DataGroupArrayWithNameElementsAppliedStep(decoder, "cameras") if in_group else decoder
    loader = DataLoader(Broken(), 2, steps=[step], run="workers", num_workers=0, ragged={"boxes": "list"})
    rule = r"on sample 3 failed .*: cameras\[1\]\.image: The JPEG file \(200 bytes\)"
    with loader, pytest.raises(SourceError, match=rule):
        list(loader)
