"""Image steps against Pillow: an implementation by others, with its own arithmetic.

Pillow rounds to whole levels after each axis when it resizes, cuts fractions off when it warps or blends: images
may differ by 1 level. It antialiases what it makes smaller, so images are made larger here, or smaller by whole
factors.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from image_steps import changed, distorter
from PIL import Image, ImageEnhance, ImageOps
from support.arrays import encoded_image

from accvlab.dali_pipeline_framework.processing_steps import AffineTransformer as A
from accvlab.dali_pipeline_framework.processing_steps import (
    HorizontalFlipper,
    ImageDecoder,
    ImageResizeCropFlipper,
    ImageResizer,
)

HW = (60, 80)
NOISE = np.random.default_rng(0).integers(0, 256, (*HW, 3), dtype=np.uint8)
PICTURE = Image.fromarray(NOISE)
BLURRED = PICTURE.resize((20, 15), Image.Resampling.BOX).resize(HW[::-1], Image.Resampling.BICUBIC)
FILL = (9, 9, 9)


def assert_close(found: np.ndarray, expected: Image.Image, tolerance: float = 1) -> None:
    pixels = np.asarray(expected)
    assert (found.dtype, found.shape) == (pixels.dtype, pixels.shape)
    assert np.abs(found.astype(int) - pixels).max() <= tolerance


# --- images that are moved ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "steps",
    [
        [A.UniformScaling(1, 1.2), A.Rotation(1, 25)],
        [A.Shearing(1, [10, -5]), A.Translation(1, [3.5, -7.25])],
        [A.NonUniformScaling(1, [-1.3, 0.8]), A.Translation(1, [-4.5, 2.25])],
    ],
    ids=["rotation", "shearing", "without rotation"],
)
def test_warps(steps: Any) -> None:
    """Pillow, too, has ``(0, 0)`` at the corner of the first pixel; it wants the matrix of the way back."""
    step = A(
        HW,
        A.ResizingMode.STRETCH,
        None,
        "image",
        projection_matrix_field_names="matrix",
        transformation_steps=steps,
    )
    found = changed(step, NOISE, matrix=np.eye(3, dtype=np.float32))
    back = tuple(np.linalg.inv(found["matrix"].astype(float))[:2].ravel())
    expected = PICTURE.transform(HW[::-1], Image.Transform.AFFINE, back, Image.Resampling.BILINEAR)
    # Near the edge of the image, Pillow repeats its last pixels, and warps mix the fill value in.
    at = np.linalg.inv(found["matrix"].astype(float)) @ np.stack(
        [*np.meshgrid(np.arange(HW[1]) + 0.5, np.arange(HW[0]) + 0.5), np.ones(HW)]
    ).reshape(3, -1)
    is_inner = ((at[:2] > 1) & (at[:2] < np.array([[HW[1] - 1], [HW[0] - 1]]))).all(0).reshape(HW)
    assert is_inner.sum() > 1000
    assert np.abs(found["image"].astype(int) - np.asarray(expected))[is_inner].max() <= 1


@pytest.mark.parametrize("hw", [(120, 160), (97, 133), (61, 240)])
def test_resizing_to_a_larger_size(hw: tuple[int, int]) -> None:
    assert_close(
        changed(ImageResizer("image", output_hw=hw), NOISE)["image"],
        PICTURE.resize(hw[::-1], Image.Resampling.BILINEAR),
    )


def test_resizing_to_half_the_size() -> None:
    """The mean of 2 x 2 pixels."""
    assert_close(changed(ImageResizer("image", output_hw=(30, 40)), NOISE)["image"], PICTURE.reduce(2))


def test_images_without_detail_need_no_antialiasing() -> None:
    """Detail of 8 pixels or more survives a factor of 0.8, to 2 levels on average, and an eighth at worst."""
    expected = np.asarray(BLURRED.resize((64, 48), Image.Resampling.BILINEAR)).astype(int)
    difference = np.abs(
        changed(ImageResizer("image", output_hw=(48, 64)), np.asarray(BLURRED))["image"] - expected
    )
    assert difference.mean() < 2
    assert difference.max() < np.ptp(expected) / 8


def test_padding_and_cropping_to_a_size() -> None:
    padded = changed(ImageResizer("image", output_hw=(140, 160), mode="pad", fill_value=9), NOISE)["image"]
    assert_close(padded, ImageOps.pad(PICTURE, (160, 140), Image.Resampling.BILINEAR, color=FILL))
    cropped = changed(ImageResizer("image", output_hw=(100, 160), mode="crop"), NOISE)["image"]
    assert_close(cropped, ImageOps.fit(PICTURE, (160, 100), Image.Resampling.BILINEAR))


def test_resize_crop_and_flip() -> None:
    """As StreamPETR and BEVDet do it, with the whole pixels that they round to."""
    step = ImageResizeCropFlipper(
        "image", output_hw=(80, 160), scale_range=(2, 2), bottom_crop_range=(0.1, 0.1), flip_prob=1
    )
    resized = PICTURE.resize((160, 120), Image.Resampling.BILINEAR)
    top = int(0.9 * 120) - 80
    expected = resized.crop((0, top, 160, top + 80)).transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    assert_close(changed(step, NOISE)["image"], expected)


def test_mirroring() -> None:
    assert_close(changed(HorizontalFlipper("image", prob=1), NOISE)["image"], ImageOps.mirror(PICTURE), 0)


# --- colors ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [0.0, 0.5, 1.5])
def test_saturation(factor: float) -> None:
    """Pillow blends with the gray image, rounded: another half level, times how far it goes."""
    expected = ImageEnhance.Color(PICTURE).enhance(factor)
    assert_close(changed(distorter(saturation=factor), NOISE)["image"], expected, 2)


@pytest.mark.parametrize("factor", [0.5, 1.3])
def test_contrast(factor: float) -> None:
    """What is called contrast here is called brightness there."""
    expected = ImageEnhance.Brightness(PICTURE).enhance(factor)
    assert_close(changed(distorter(contrast=factor), NOISE)["image"], expected)


# --- files ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "options", "tolerance"),
    [
        ("JPEG", {"quality": 85, "subsampling": 0}, 2),
        ("JPEG", {"quality": 85, "subsampling": 2}, 2),
        ("JPEG", {"quality": 85, "subsampling": 2, "progressive": True}, 2),
        ("PNG", {}, 0),
        ("WEBP", {"lossless": True}, 0),
        ("BMP", {}, 0),
        ("TIFF", {}, 0),
    ],
)
def test_decoding(kind: str, options: Any, tolerance: float) -> None:
    """Versions of libjpeg differ by 2 levels; the others lose nothing."""
    encoded = encoded_image(np.asarray(BLURRED), kind, **options)
    with Image.open(io.BytesIO(encoded.tobytes())) as expected:
        assert_close(changed(ImageDecoder("image", False), encoded)["image"], expected, tolerance)
