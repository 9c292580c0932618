"""Blur, artefacts of JPEG, and other color spaces."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from image_steps import assert_format_pickle_and_repr
from nvidia.dali.types import DALIImageType
from PIL import Image
from step_runs import run_steps
from support.arrays import DT, gradient

from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.processing_steps import (
    ImageBrightnessContrastJitter,
    ImageColorSpaceConverter,
    ImageGaussianBlurrer,
    ImageJpegDistorter,
    PipelineStepBase,
)
from accvlab.dali_pipeline_framework.processing_steps.pipeline_step_base import RunWhere

NOISE = np.random.default_rng(0).integers(0, 256, (16, 24, 3), dtype=np.uint8)
MAKE: dict[str, Callable[..., PipelineStepBase]] = {
    "blur": lambda name: ImageGaussianBlurrer(name, sigma_range=(0.5, 2.0), prob=1.0),
    "jpeg": ImageJpegDistorter,
    "color": lambda name: ImageColorSpaceConverter(
        name, from_image_type=DALIImageType.RGB, to_image_type=DALIImageType.BGR
    ),
}


def blurred(image: np.ndarray, sigma: float, reach: int) -> np.ndarray:
    weights = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * sigma**2))
    weights /= weights.sum()
    out = image.astype(float)
    for axis in (0, 1):
        pad = [(reach, reach) if a == axis else (0, 0) for a in range(3)]
        padded = np.pad(out, pad, mode="reflect")
        size = out.shape[axis]
        out = sum(w * np.take(padded, range(k, k + size), axis) for k, w in enumerate(weights))
    return out


@pytest.mark.parametrize("run", ["graph", "workers"])
@pytest.mark.parametrize("dtype", [DT.UINT8, DT.FLOAT])
@pytest.mark.parametrize("sigma", [0.5, 1.5])
def test_blur_as_a_convolution(sigma: float, dtype: DT, run: RunWhere) -> None:
    image = NOISE if dtype == DT.UINT8 else (NOISE / 255).astype(np.float32)
    step = ImageGaussianBlurrer("image", sigma_range=(sigma, sigma), prob=1.0)
    [found] = run_steps(step, {"image": (dtype, [image])}, run=run)["image"]
    tolerance = 0.51 if dtype == DT.UINT8 else 1e-5
    assert found.dtype == image.dtype
    np.testing.assert_allclose(found, blurred(image, sigma, int(np.ceil(3 * sigma))), atol=tolerance)


def test_what_is_not_blurred_is_identical_in_a_mixed_batch() -> None:
    images = run_steps(ImageGaussianBlurrer("image", sigma_range=(0.8, 2.0)), {"image": (DT.UINT8, [NOISE] * 20)})[
        "image"
    ]
    same = [bool((image == NOISE).all()) for image in images]
    assert 3 <= sum(same) <= 17
    assert len({image.tobytes() for image in images}) == 21 - sum(same)
    never = run_steps(ImageGaussianBlurrer("image", prob=0), {"image": (DT.UINT8, [NOISE] * 3)})["image"]
    assert all((image == NOISE).all() for image in never)


@pytest.mark.parametrize("run", ["graph", "workers"])
@pytest.mark.parametrize("quality", [10, 60, 95])
def test_artefacts_as_those_of_a_jpeg_file(quality: int, run: RunWhere) -> None:
    image = gradient(32, 48)
    image[8:20, 10:30] = 255 - image[8:20, 10:30]
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=quality, subsampling=2)
    expected = np.asarray(Image.open(buffer)).astype(float)
    [found] = run_steps(
        ImageJpegDistorter("image", quality_range=(quality, quality)), {"image": (DT.UINT8, [image])}, run=run
    )["image"]
    loss, difference = np.abs(expected - image).mean(), np.abs(expected - found).mean()
    assert difference < max(0.5 * loss, 1.0)


def test_qualities_are_drawn_per_sample() -> None:
    images = run_steps(ImageJpegDistorter("image", quality_range=(5, 60)), {"image": (DT.UINT8, [NOISE] * 8)})[
        "image"
    ]
    assert len({image.tobytes() for image in images}) > 4


@pytest.mark.parametrize("run", ["graph", "workers"])
def test_color_spaces(run: RunWhere) -> None:
    convert = {
        target: run_steps(
            ImageColorSpaceConverter("image", from_image_type=DALIImageType.RGB, to_image_type=target),
            {"image": (DT.UINT8, [NOISE])},
            run=run,
        )["image"][0]
        for target in (DALIImageType.BGR, DALIImageType.GRAY, DALIImageType.YCbCr, DALIImageType.RGB)
    }
    assert (convert[DALIImageType.BGR] == NOISE[..., ::-1]).all()
    assert (convert[DALIImageType.RGB] == NOISE).all()
    luma = NOISE @ np.array([0.299, 0.587, 0.114])
    assert convert[DALIImageType.GRAY].shape == (16, 24, 1)
    assert np.abs(convert[DALIImageType.GRAY][..., 0] - luma).max() <= 1
    assert np.abs(convert[DALIImageType.YCbCr][..., 0] - (16 + luma * 219 / 255)).max() <= 1


@pytest.mark.parametrize("kind", MAKE)
def test_several_names(kind: str) -> None:
    fields = {name: (DT.UINT8, [NOISE]) for name in ("image", "other", "third")}
    run = run_steps(MAKE[kind](["image", "third"]), fields)
    assert (run["image"][0] == run["third"][0]).all()
    assert (run["image"][0] != NOISE).any()
    assert (run["other"][0] == NOISE).all()
    with pytest.raises(SettingError, match="`image_names` must be a name"):
        MAKE[kind]([])


@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize("layout", ["FHWC", ""])
@pytest.mark.parametrize("conditionals", [False, True])
def test_frames_of_a_clip_alike_and_other_fields_untouched(kind: str, layout: str, conditionals: bool) -> None:
    clips = [np.stack([NOISE] * frames) for frames in (2, 3)]
    fields = {"image": (DT.UINT8, clips), "mask": (DT.UINT8, clips)}
    run = run_steps(MAKE[kind]("image"), fields, layouts={"image": layout}, conditionals=conditionals)
    for clip, found, mask in zip(clips, run["image"], run["mask"], strict=True):
        assert found.shape == clip.shape
        assert (found == found[:1]).all()
        assert (found != clip).any()
        assert (mask == clip).all()


JITTER = {"brightness_range": (1.3, 1.3), "contrast_range": (0.5, 0.5)}
CHANGE: dict[str, Callable[[float], PipelineStepBase]] = {
    "jpeg": lambda prob: ImageJpegDistorter("image", prob=prob, quality_range=(9, 9)),
    "jitter": lambda prob: ImageBrightnessContrastJitter("image", prob=prob, **JITTER),
}


@pytest.mark.parametrize("kind", CHANGE)
@pytest.mark.parametrize("layout", ["HWC", ""])
@pytest.mark.parametrize("conditionals", [False, True])
def test_what_is_not_changed_is_identical_in_a_mixed_batch(kind: str, layout: str, conditionals: bool) -> None:
    dtypes = (DT.UINT8, DT.FLOAT) if kind == "jitter" else (DT.UINT8,)
    for dtype in dtypes:
        image = NOISE if dtype == DT.UINT8 else (NOISE / 255).astype(np.float32)
        fields = {"image": (dtype, [image] * 16)}
        arguments = {"layouts": {"image": layout}, "conditionals": conditionals}
        [never, always, mixed] = [run_steps(CHANGE[kind](p), fields, **arguments)["image"] for p in (0, 1, 0.5)]
        assert (np.array(never) == image).all()
        assert (always[0] != image).any()
        is_changed = [bool((one == always[0]).all()) for one in mixed]
        assert [bool((one != image).any()) for one in mixed] == is_changed
        assert {*is_changed} == {False, True}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: ImageGaussianBlurrer("image", sigma_range=(0, 1)),
            "`sigma_range` must be two numbers, 0 < least <= greatest <= 20",
        ),
        (
            lambda: ImageGaussianBlurrer("image", sigma_range=(2, 1)),
            "`sigma_range` must be two numbers, 0 < least <= greatest <= 20",
        ),
        (
            lambda: ImageGaussianBlurrer("image", sigma_range=(1, 21)),
            "`sigma_range` must be two numbers, 0 < least <= greatest <= 20",
        ),
        (lambda: ImageGaussianBlurrer("image", prob=2), r"`prob` must be in \[0, 1\]"),
        (
            lambda: ImageJpegDistorter("image", quality_range=(0, 5)),
            "`quality_range` must be two numbers, 1 <= least <= greatest <= 100",
        ),
        (
            lambda: ImageJpegDistorter("image", quality_range=(6, 5)),
            "`quality_range` must be two numbers, 1 <= least <= greatest <= 100",
        ),
        (
            lambda: ImageJpegDistorter("image", quality_range=(6, 101)),
            "`quality_range` must be two numbers, 1 <= least <= greatest <= 100",
        ),
        (lambda: ImageJpegDistorter("image", quality_range=(5.5, 7)), "`quality_range` must be two whole numbers"),  # type: ignore[arg-type]
        (lambda: ImageJpegDistorter("image", key="camera"), "The `key` of a draw"),
        (
            lambda: ImageColorSpaceConverter(
                "image",
                from_image_type="RGB",  # type: ignore[arg-type]
                to_image_type=DALIImageType.BGR,
            ),
            "`from_image_type` must be one of .*RGB",
        ),
        (
            lambda: ImageColorSpaceConverter(
                "image", from_image_type=DALIImageType.BGR, to_image_type=DALIImageType.ANY_DATA
            ),
            "`to_image_type` must be",
        ),
    ],
)
def test_settings_are_checked(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        make()


@pytest.mark.parametrize("kind", MAKE)
def test_format_pickle_and_repr(kind: str) -> None:
    assert_format_pickle_and_repr(MAKE[kind])


@pytest.mark.gpu
@pytest.mark.parametrize("kind", MAKE)
def test_on_the_gpu_as_on_the_cpu(kind: str) -> None:
    step = {
        "blur": ImageGaussianBlurrer("image", sigma_range=(1, 1), prob=1),
        "jpeg": ImageJpegDistorter("image", quality_range=(50, 50)),
    }.get(kind, MAKE["color"]("image"))
    fields = {"image": (DT.UINT8, [gradient(16, 24)] * 2)}
    on_gpu = run_steps(step, fields, device_id=0, gpu_fields=["image"])["image"]
    for expected, found in zip(run_steps(step, fields)["image"], on_gpu, strict=True):
        assert np.abs(expected.astype(int) - found).max() <= (8 if kind == "jpeg" else 1)
