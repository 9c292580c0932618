"""Chains of image steps, cut anywhere: what runs in the workers and what in the graph gives the same images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from nvidia.dali import types
from support.arrays import encoded_image, gradient, photograph
from support.laws import examples

from accvlab.dali_pipeline_framework.errors import SourceError
from accvlab.dali_pipeline_framework.inputs import DataProvider, SamplerInputCallable
from accvlab.dali_pipeline_framework.loader import DataLoader, automatic_workers
from accvlab.dali_pipeline_framework.pipeline import PipelineDefinition, SampleDataGroup
from accvlab.dali_pipeline_framework.processing_steps import (
    AffineTransformer,
    AxesLayoutSetter,
    CoordinateCropper,
    DataGroupArrayWithNameElementsAppliedStep,
    GridMasker,
    HorizontalFlipper,
    ImageBrightnessContrastJitter,
    ImageColorSpaceConverter,
    ImageDecoder,
    ImageGaussianBlurrer,
    ImageJpegDistorter,
    ImageMeanStdDevNormalizer,
    ImageResizeCropFlipper,
    ImageResizer,
    ImageToTileSizePadder,
    PhotoMetricDistorter,
    PipelineStepBase,
    RandomEraser,
    TensorSizeAdder,
)
from accvlab.dali_pipeline_framework.sampling import SequentialSampler
from accvlab.dali_pipeline_framework.testing import run_step

DT = types.DALIDataType
NUM_CAMERAS = 3


class Cameras(DataProvider):
    def get_number_of_samples(self) -> int:
        return 4

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        camera = SampleDataGroup()
        camera.add_data_field("image", DT.UINT8)
        camera.add_data_field("matrix", DT.FLOAT)
        camera.add_data_field("boxes", DT.FLOAT)
        sample = SampleDataGroup()
        sample.add_data_group_field_array("cameras", camera, NUM_CAMERAS)
        sample.add_data_field("index", DT.INT64)
        return sample

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
        ImageGaussianBlurrer("image", sigma_range=(0.5, 1.0)),
        HorizontalFlipper("image", projection_names="matrix", box_names="boxes"),
        CoordinateCropper("boxes", [0, 0, 0, 0], [100, 60, 100, 60]),
        RandomEraser("image"),
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
        ImageColorSpaceConverter(
            "image", from_image_type=types.DALIImageType.RGB, to_image_type=types.DALIImageType.BGR
        ),
        ImageBrightnessContrastJitter("image"),
        GridMasker("image", tile_range=(10, 20)),
        ImageResizer("image", output_hw=[32, 64], projection_names="matrix"),
        ImageToTileSizePadder("image", 24),
        ImageMeanStdDevNormalizer("image", [1, 2, 3], [50, 60, 70]),
        AxesLayoutSetter("image", "HWC"),
    ]


def batches(steps: list[PipelineStepBase], **arguments: Any) -> list[dict[str, Any]]:
    source = SamplerInputCallable(Cameras(), SequentialSampler(4))
    definition = PipelineDefinition(source, steps, run="workers")
    how = {"num_workers": 0, "output_type": "numpy", "ragged": {"boxes": "list"}, **arguments}
    with DataLoader(definition, 2, **how) as loader:
        return list(loader)


def require_equal(found: Any, expected: Any, name: str) -> None:
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
                    require_equal(camera[name], same[name], name)
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
                    require_equal(value, other["cameras"][number][name], name)


def test_by_default_images_are_made_where_it_costs_less() -> None:
    with DataLoader(Cameras(), 2, steps=encoded_first(), num_workers=0, ragged={"boxes": "list"}) as loader:
        assert "on arrays, in the workers" in loader.plan
        assert loader.plan.startswith("in the workers: ")
        assert "ms of processor time per image" in loader.plan
    source = SamplerInputCallable(Cameras(), SequentialSampler(4, total_batch_size=2))
    assert "in the workers" not in PipelineDefinition(source, encoded_first()).plan()


def test_by_default_there_are_as_many_workers_as_cores_where_steps_run_in_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(automatic_workers, "num_cores_of_rank", lambda: 5)
    assert DataLoader(Cameras(), 2, steps=encoded_first()).num_workers == 5
    assert DataLoader(Cameras(), 2, steps=encoded_first(), run="graph").num_workers == 1
    assert DataLoader(Cameras(), 2).num_workers == 1
    monkeypatch.setattr(automatic_workers, "num_cores_of_rank", lambda: 64)
    assert DataLoader(Cameras(), 2, steps=encoded_first()).num_workers == 8
    assert DataLoader(Cameras(), 2, steps=encoded_first(), num_workers=3).num_workers == 3


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


@pytest.mark.parametrize(
    ("quality", "most", "of_999", "least_psnr"), [(5, 0.35, 0.2, 35), (30, 0.35, 0.2, 35), (95, 0.06, 0.03, 40)]
)
def test_jpeg_artefacts_after_a_step_whose_forms_differ(
    quality: int, most: float, of_999: float, least_psnr: float
) -> None:
    """The documented bound; a difference of one level before becomes more than one."""
    steps = [
        ImageResizer("image", output_hw=[250, 440]),
        ImageJpegDistorter("image", quality_range=(quality, quality)),
    ]
    differences = []
    for seed in range(3):
        sample = SampleDataGroup()
        sample.add_data_field("image", DT.UINT8)
        sample["image"] = photograph(450, 800, seed)
        one, other = (
            run_step(steps, sample, run=run).output["image"].astype(float) for run in ("workers", "graph")
        )
        differences.append(np.abs(one - other) / 255)
        assert -20 * np.log10(np.sqrt(np.mean(differences[-1] ** 2))) >= least_psnr
    all_of_them = np.concatenate(differences)
    assert 2 / 255 < all_of_them.max() <= most
    assert np.quantile(all_of_them, 0.999) <= of_999
