"""Images that another library decodes: the pixels, without loss, turned and without alpha as DALI gives them."""

from __future__ import annotations

import io
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

from accvlab.dali_pipeline_framework.errors import FieldValueError
from accvlab.dali_pipeline_framework.faults.image_fallback import re_encoded

RGB = np.random.default_rng(3).integers(0, 256, (5, 7, 3), np.uint8)
GRAY = RGB[..., 0]


def file_of(image: Image.Image, kind: str, **settings: Any) -> np.ndarray:
    buffer = io.BytesIO()
    image.save(buffer, kind, **settings)
    return np.frombuffer(buffer.getvalue(), np.uint8)


def decoded(encoded: np.ndarray) -> np.ndarray:
    """By OpenCV, with RGB in this order, and gray as it is."""
    image = cv2.imdecode(encoded, cv2.IMREAD_UNCHANGED)
    return image if image.ndim == 2 else image[..., ::-1]


def turned() -> np.ndarray:
    exif = Image.Exif()
    exif[0x0112] = 6
    return file_of(Image.fromarray(RGB), "PNG", exif=exif)


ALPHA = np.dstack([RGB, GRAY])
CASES = {
    "RGB": (file_of(Image.fromarray(RGB), "PNG"), RGB),
    "gray": (file_of(Image.fromarray(GRAY), "PNG"), GRAY),
    "one bit": (file_of(Image.fromarray(GRAY > 99), "PNG"), np.where(GRAY > 99, 255, 0)),
    "alpha is dropped": (file_of(Image.fromarray(ALPHA), "PNG"), RGB),
    "palette": (file_of(Image.fromarray(GRAY).convert("P"), "GIF"), np.repeat(GRAY[..., None], 3, 2)),
    "16 bits": (file_of(Image.fromarray(GRAY.astype(np.uint16) * 257), "PNG"), GRAY),
    "turned": (turned(), np.rot90(RGB, -1)),
}


@pytest.mark.parametrize("case", CASES)
def test_pillow(case: str) -> None:
    encoded, expected = CASES[case]
    np.testing.assert_array_equal(decoded(re_encoded(encoded, "pillow")), expected)


@pytest.mark.parametrize("case", ["RGB", "gray", "alpha is dropped", "16 bits"])
def test_opencv(case: str) -> None:
    encoded, expected = CASES[case]
    expected = expected if expected.ndim == 3 else np.repeat(expected[..., None], 3, 2)
    np.testing.assert_array_equal(decoded(re_encoded(encoded, "opencv")), expected)


@pytest.mark.parametrize("decoder", ["pillow", "opencv"])
@pytest.mark.parametrize("content", [b"", b"<html>", CASES["RGB"][0].tobytes()[:60]])
def test_what_is_no_image_is_refused(decoder: Any, content: bytes) -> None:
    with pytest.raises(FieldValueError, match=f"{decoder} cannot decode it"):
        re_encoded(np.frombuffer(content, np.uint8), decoder)
