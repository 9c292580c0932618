"""Decoding against another decoder, and what happens with files that are no images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.arrays import DT, ArrayProvider, decoded_by_pillow, encoded_image, gradient
from support.pipelines import indices, make_iterator, shuffled
from support.warnings_of_product import of_product

from accvlab.dali_pipeline_framework import DataLoader
from accvlab.dali_pipeline_framework.errors import GraphError, SourceError
from accvlab.dali_pipeline_framework.processing_steps import ImageDecoder, ImageResizer

SIZES = [(1, 1), (8, 8), (17, 33), (97, 131), (375, 500)]


def noise(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, shape, np.uint8)


def decoded(images: list[np.ndarray], **step: Any) -> list[np.ndarray]:
    provider = ArrayProvider({"image": (DT.UINT8, images)})
    steps = [ImageDecoder("image", **step)]  # on the CPU, as there is no `device_id`
    with make_iterator(shuffled(provider, 1), steps, py_num_workers=0) as iterator:
        return [batch["image"][0] for batch in iterator]


def gray_levels_off(found: np.ndarray, expected: np.ndarray) -> int:
    assert (found.shape, found.dtype) == (expected.shape, np.uint8)
    return int(np.abs(found.astype(int) - expected.astype(int)).max())


# --- pixels ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("subsampling", [0, 2], ids=["444", "420"])
def test_jpeg_is_close_to_pillow(subsampling: int) -> None:
    originals = [*(gradient(*size, phase=2) for size in SIZES), noise(64, 80, 3)]
    files = [encoded_image(original, subsampling=subsampling) for original in originals]
    for file, original, found in zip(files, originals, decoded(files), strict=True):
        assert gray_levels_off(found, decoded_by_pillow(file)) <= 5
        assert subsampling != 0 or gray_levels_off(found, original) <= 5


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF"])
def test_lossless_kinds_are_exact(kind: str) -> None:
    originals = [noise(*size, 3) for size in SIZES]
    files = [encoded_image(original, kind) for original in originals]
    for original, found in zip(originals, decoded(files), strict=True):
        np.testing.assert_array_equal(found, original)


def test_gray_gets_three_equal_channels_and_alpha_is_dropped() -> None:
    color = gradient(20, 30)
    gray, alpha = color[..., 0], np.full((20, 30, 1), 77, np.uint8)
    files = [
        encoded_image(gray, subsampling=-1),
        encoded_image(gray, "PNG"),
        encoded_image(np.concatenate([color, alpha], -1), "PNG"),
    ]
    of_jpeg, of_png, of_rgba = decoded(files)
    np.testing.assert_array_equal(of_jpeg, of_jpeg[..., :1].repeat(3, -1))
    assert gray_levels_off(of_jpeg[..., 0], gray) <= 5
    np.testing.assert_array_equal(of_png, gray[..., None].repeat(3, -1))
    np.testing.assert_array_equal(of_rgba, color)


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_bgr_is_the_reverse(kind: str) -> None:
    images = [encoded_image(gradient(48, 64, phase), kind) for phase in range(3)]
    rgb, bgr = decoded(images), decoded(images, as_bgr=True)
    allowed = 5 if kind == "JPEG" else 0  # another code path with its own rounding
    assert max(gray_levels_off(b, a[..., ::-1]) for a, b in zip(rgb, bgr, strict=True)) <= allowed
    assert gray_levels_off(rgb[0], bgr[0]) > 100


# --- files that are no images ----------------------------------------------------------------------------------


def test_nothing_is_delivered_or_printed_after_a_file_that_is_no_image(
    capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    images = [encoded_image(gradient(8, 8))] * 8
    bad = [*images[:6], np.frombuffer(b"this is no image at all", np.uint8), images[7]]
    cameras = {0: {"image": (DT.UINT8, images)}, 1: {"image": (DT.UINT8, bad)}}
    provider = ArrayProvider({"index": (DT.INT64, [*range(8)]), "cameras": cameras})
    with make_iterator(shuffled(provider, 2), STEPS, py_num_workers=0) as iterator:
        epoch = iter(iterator)
        assert indices(epoch, 3) == [[0, 1], [2, 3], [4, 5]]
        for _ in range(3):
            with pytest.raises(GraphError, match=r"\n  - sample 6, field cameras\[1\]\.image: "):
                next(epoch)
    assert capfd.readouterr().out == ""
    assert of_product(recwarn) == []


STEPS = [ImageDecoder("image", False)]
DECODED_ALREADY = r"looks decoded already: .* has the shape \({}\). Leave out ImageDecoder, or `is_encoded`"


@pytest.mark.parametrize("shape", [(6, 8, 3), (6, 8)])
@pytest.mark.parametrize("run", ["graph", "workers"])
@pytest.mark.parametrize(
    "step", [ImageDecoder("image", False), ImageResizer("image", output_hw=[2, 2], is_encoded=True)]
)
def test_images_of_an_unknown_form_that_are_decoded_already(step: Any, shape: tuple[int, ...], run: str) -> None:
    image = np.full(shape, 255, np.uint8)
    image[0, :2] = 0xD8  # begins as a JPEG file, in one order of its bytes
    provider = ArrayProvider({"image": (DT.UINT8, [image] * 2)})
    message = DECODED_ALREADY.format(", ".join(map(str, shape)))
    with (
        DataLoader(provider, 2, steps=[step], run=run, num_workers=0) as loader,
        pytest.raises((GraphError, SourceError), match=message) as caught,
    ):
        next(iter(loader))
    assert "image: " in str(caught.value)
    assert type(step).__name__ in str(caught.value)
