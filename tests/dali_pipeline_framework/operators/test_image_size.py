"""The size of the image in a file, as decoders turn it, without the packages that decode it on arrays."""

from __future__ import annotations

import io
import sys
from typing import Any

import numpy as np
import nvidia.dali.fn as fn
import pytest
from PIL import ExifTags, Image
from support.graphs import run_graph

from accvlab.dali_pipeline_framework.errors import FieldValueError
from accvlab.dali_pipeline_framework.operators import image_arrays


def file_of(kind: str, orientation: int = 1, mode: str = "RGB") -> Any:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    file = io.BytesIO()
    Image.new(mode, (37, 53)).save(file, kind, **({} if orientation == 1 else {"exif": exif}))
    return np.frombuffer(file.getvalue(), np.uint8)


@pytest.fixture
def _no_decoders(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("cv2", "simplejpeg"):
        monkeypatch.setitem(sys.modules, package, None)


@pytest.mark.usefixtures("_no_decoders")
@pytest.mark.parametrize(
    ("kind", "orientation", "mode"),
    [
        *(("JPEG", orientation, "RGB") for orientation in range(1, 9)),
        *[("JPEG", 1, "CMYK"), ("JPEG", 1, "L"), ("PNG", 1, "RGB"), ("BMP", 1, "RGB"), ("PPM", 1, "RGB")],
    ],
)
def test_is_read_from_the_header(kind: str, orientation: int, mode: str) -> None:
    file = file_of(kind, orientation, mode)
    size = image_arrays.image_size(file)
    assert size == ((37, 53) if orientation > 4 else (53, 37))
    [decoded] = run_graph(lambda encoded: fn.decoders.image(encoded).shape(), [file])
    assert size == tuple(decoded[:2])


@pytest.mark.parametrize(("kind", "orientation"), [("PNG", 6), ("TIFF", 1), ("TIFF", 6), ("WEBP", 1)])
def test_is_that_of_the_decoded_image_where_the_header_does_not_tell_it(kind: str, orientation: int) -> None:
    file = file_of(kind, orientation)
    assert image_arrays.image_size(file) == image_arrays.decoded_image(file).shape[:2]


@pytest.mark.usefixtures("_no_decoders")
@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_a_broken_file_is_told_as_such(kind: str) -> None:
    with pytest.raises(FieldValueError, match=r"The image file \(20 bytes\) is broken: its header has no size"):
        image_arrays.image_size(file_of(kind)[:20])


@pytest.mark.usefixtures("_no_decoders")
def test_no_image_is_refused() -> None:
    with pytest.raises(FieldValueError, match="No image file that can be decoded"):
        image_arrays.image_size(np.frombuffer(b"no image", np.uint8))
