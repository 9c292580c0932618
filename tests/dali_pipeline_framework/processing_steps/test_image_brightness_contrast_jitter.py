"""Random brightness and contrast: the formula, the keys, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from nvidia.dali.types import DALIDataType
from support.arrays import DT, ArrayProvider, encoded_image, gradient
from support.draws import Drawer
from support.pipelines import make_iterator, shuffled

from accvlab.dali_pipeline_framework.draws import UniformDraw
from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.pipeline import SampleDataGroup
from accvlab.dali_pipeline_framework.processing_steps import (
    DataGroupArrayWithNameElementsAppliedStep,
    ImageBrightnessContrastJitter,
    ImageDecoder,
)
from accvlab.dali_pipeline_framework.sample_data.names import format_path


def provider(dtype: DALIDataType, images: list[np.ndarray]) -> ArrayProvider:
    return ArrayProvider({"cameras": {camera: {"image": (dtype, images)} for camera in range(2)}})


def jittered(source: ArrayProvider, steps: list[Any], **arguments: Any) -> list[list[np.ndarray]]:
    """Per camera the images of all samples."""
    with make_iterator(shuffled(source, 2), steps, **{"py_num_workers": 0, **arguments}) as iterator:
        batches = [*iterator]
    return [[image for batch in batches for image in batch["cameras"][camera]["image"]] for camera in range(2)]


def factors(count: int, **draws: Any) -> np.ndarray:
    """What the step draws for the samples of one epoch, ``(count, 2)`` float32."""
    source = ArrayProvider({"index": (DT.INT64, [*range(count)])})
    ranges = [UniformDraw(name, *limits) for name, limits in draws.items()]
    step = Drawer(*ranges, name="ImageBrightnessContrastJitter")
    with make_iterator(shuffled(source, count), [step], py_num_workers=0) as iterator:
        [batch] = iterator
    return np.stack([batch[name] for name in draws], -1)


@pytest.mark.parametrize("dtype", [DT.UINT8, DT.FLOAT])
@pytest.mark.parametrize("workers", [0, 2])
def test_the_formula(dtype: DALIDataType, workers: int) -> None:
    images = [gradient(6, 8, phase) for phase in range(6)]
    if dtype == DT.FLOAT:
        images = [image.astype(np.float32) / 255 for image in images]
    step = ImageBrightnessContrastJitter("image", brightness_range=(0.5, 2), contrast_range=(0.2, 3))
    first, second = jittered(provider(dtype, images), [step], py_num_workers=workers)
    drawn = factors(6, brightness=(0.5, 2), contrast=(0.2, 3)).astype(float)
    assert len(np.unique(drawn)) == 12
    center = 128.0 if dtype == DT.UINT8 else 0.5
    for image, found, (brightness, contrast) in zip(images, first, drawn, strict=True):
        expected = brightness * (center + contrast * (image.astype(float) - center))
        assert found.shape == image.shape
        assert found.dtype == image.dtype
        if dtype == DT.UINT8:
            assert np.abs(found - expected.clip(0, 255)).max() <= 0.501
        else:
            assert np.abs(found - expected).max() < 1e-5
    assert all((a == b).all() for a, b in zip(first, second, strict=True))  # the same factors for all cameras


def test_after_decoding_with_factors_for_each_camera() -> None:
    source = provider(DT.UINT8, [encoded_image(np.full((4, 4, 3), 100, np.uint8), "PNG")] * 6)
    images = jittered(
        source,
        [
            ImageDecoder("image", use_device_mixed=True),
            DataGroupArrayWithNameElementsAppliedStep(ImageBrightnessContrastJitter("image"), "cameras"),
        ],
    )
    levels = [[int(image[0, 0, 0]) for image in camera] for camera in images]
    assert all((image == image[0, 0, 0]).all() for camera in images for image in camera)
    assert len({*levels[0], *levels[1]}) > 6
    assert levels[0] != levels[1]
    assert all(
        0.8 * (128 - 1.2 * 28) - 0.5 <= level <= 1.2 * (128 - 0.8 * 28) + 0.5 for level in levels[0] + levels[1]
    )


def test_a_key_that_cameras_share() -> None:
    step = ImageBrightnessContrastJitter("image", brightness_range=(0.2, 2), key="rig")
    images = [np.full((2, 2, 3), 0.3, np.float32)] * 4
    wrapped = DataGroupArrayWithNameElementsAppliedStep(step, "cameras")
    first, second = jittered(provider(DT.FLOAT, images), [wrapped])
    assert all((a == b).all() for a, b in zip(first, second, strict=True))
    assert len({float(image[0, 0, 0]) for image in first}) == 4


def test_ranges_of_one_change_nothing() -> None:
    images = [gradient(6, 8, phase) for phase in range(2)]
    first, _ = jittered(
        provider(DT.UINT8, images),
        [ImageBrightnessContrastJitter("image", brightness_range=(1, 1), contrast_range=(1, 1))],
    )
    assert all((a == b).all() for a, b in zip(first, images, strict=True))


@pytest.mark.parametrize(
    "limits", [(1.2, 0.8), (-0.1, 1), (0.8,), (0.8, 1.0, 1.2), 0.8, ("a", "b"), (0, float("nan"))]
)
@pytest.mark.parametrize("name", ["brightness_range", "contrast_range"])
def test_ranges_are_checked(name: str, limits: Any) -> None:
    with pytest.raises(SettingError, match=f"`{name}` must be two numbers, 0 <= least <= greatest, got "):
        ImageBrightnessContrastJitter("image", **{name: limits})


def test_the_key_is_checked() -> None:
    with pytest.raises(SettingError, match="The `key` of a draw must be one of"):
        ImageBrightnessContrastJitter("image", key="camera")


class TestFormat:
    @staticmethod
    def check(blueprint: SampleDataGroup) -> SampleDataGroup:
        return ImageBrightnessContrastJitter("image").check_input_data_format_and_set_output_data_format(blueprint)

    def test_stays_as_it_is(self) -> None:
        blueprint = provider(DT.FLOAT, []).sample_data_structure
        assert self.check(blueprint).type_matches(blueprint)

    def test_no_image(self) -> None:
        blueprint = ArrayProvider({"index": (DT.INT64, [])}).sample_data_structure
        with pytest.raises(KeyError, match=r"No occurrences of images found: .* Did you|Fields: index\."):
            self.check(blueprint)

    def test_all_problems_at_once(self) -> None:
        fields = {
            "cameras": {0: {"image": (DT.INT32, [])}, 1: {"image": (DT.UINT8, [])}},
            "image": {"x": (DT.UINT8, [])},
        }
        with pytest.raises(ValueError, match="ImageBrightnessContrastJitter cannot be applied:") as caught:
            self.check(ArrayProvider(fields).sample_data_structure)
        assert sorted(f"{format_path(problem.path)}: {problem.message}" for problem in caught.value.problems) == [
            "cameras[0].image: must be UINT8 or FLOAT (an image), got INT32",
            "image: must be a data field with an image, is a group",
        ]


@pytest.mark.gpu
def test_on_the_gpu_as_on_the_cpu() -> None:
    source = provider(DT.UINT8, [encoded_image(gradient(16, 20, phase), "PNG") for phase in range(4)])
    steps = [
        ImageDecoder("image", use_device_mixed=True),
        ImageBrightnessContrastJitter("image", brightness_range=(0.5, 2)),
    ]
    on_cpu, on_gpu = (jittered(source, steps, device_id=device_id) for device_id in (None, 0))
    for expected, found in zip(on_cpu[0] + on_cpu[1], on_gpu[0] + on_gpu[1], strict=True):
        assert np.abs(expected.astype(int) - np.asarray(found).astype(int)).max() <= 1
