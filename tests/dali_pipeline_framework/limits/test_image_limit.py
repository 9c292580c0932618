"""Images that claim too many pixels are refused before they are decoded."""

from __future__ import annotations

import contextlib
import io
import struct
import sys
import zlib
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
import pytest
import simplejpeg
from hypothesis import given
from hypothesis import strategies as st
from nvidia.dali import fn
from nvidia.dali.pipeline import pipeline_def
from PIL import Image
from support.array_samples import group_of
from support.arrays import DT
from support.providers import IndexProvider

from accvlab.dali_pipeline_framework import DataLoader, ImageDecoder, SampleDataGroup
from accvlab.dali_pipeline_framework.errors import FieldValueError
from accvlab.dali_pipeline_framework.extension import image_arrays
from accvlab.dali_pipeline_framework.limits import file_limits
from accvlab.dali_pipeline_framework.limits.image_limits import claimed_size, too_large
from accvlab.dali_pipeline_framework.sample_data.formats import ENCODED_IMAGE

SIZE = (37, 53)  # height, width


def by_pillow(kind: str, **settings: Any) -> bytes:
    file = io.BytesIO()
    pixels = np.random.default_rng(1).integers(0, 255, (*SIZE, 3), np.uint8)
    Image.fromarray(pixels).save(file, kind, **settings)
    return file.getvalue()


def with_exif() -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    exif[0x010E] = "x" * 30_000
    return by_pillow("JPEG", exif=exif)


FILES = {
    "jpeg": by_pillow("JPEG"),
    "jpeg with EXIF data": with_exif(),
    "jpeg, progressive": by_pillow("JPEG", progressive=True),
    "jpeg with filling": by_pillow("JPEG")[:2] + b"\xff" * 50 + by_pillow("JPEG")[2:],
    "png": by_pillow("PNG"),
    "bmp": by_pillow("BMP"),
    "tiff": by_pillow("TIFF"),
    "tiff, compressed": by_pillow("TIFF", compression="tiff_lzw"),
    "tiff, big": by_pillow("TIFF", big_tiff=True),
    "ppm": by_pillow("PPM"),
    "ppm with a comment": b"P6\n# made by hand\n53 37\n255\n" + bytes(53 * 37 * 3),
    "jpeg 2000": by_pillow("JPEG2000"),
    "jpeg 2000, code stream": by_pillow("JPEG2000", no_jp2=True),
    "tiff of other bytes": cv2.imencode(".tiff", np.zeros((*SIZE, 3), np.uint8))[1].tobytes(),
}


def as_array(content: bytes) -> Any:
    return np.frombuffer(content, np.uint8)


@pytest.mark.parametrize("name", FILES)
def test_the_size_is_that_of_the_image(name: str) -> None:
    assert claimed_size(as_array(FILES[name])) == SIZE
    assert claimed_size(np.repeat(as_array(FILES[name]), 2)[::2]) == SIZE


def test_other_formats_than_jpeg_and_png_need_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    sizes = {name: claimed_size(as_array(content)) for name, content in FILES.items()}
    assert sizes == {
        name: SIZE if name.startswith(("jpeg", "png")) and "2000" not in name else None for name in FILES
    }


def test_pillow_s_own_limit_does_not_count(recwarn: pytest.WarningsRecorder) -> None:
    assert claimed_size(as_array(claiming(60_000, 50_000)["bmp"])) == (60_000, 50_000)
    assert claimed_size(as_array(by_pillow("WEBP"))) is None
    assert not recwarn.list


@given(st.sampled_from([*FILES.values()]), st.data())
def test_damaged_files_have_a_size_or_none(content: bytes, data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, min(len(content), 300)))
    end = data.draw(st.integers(begin, min(len(content), 400)))
    size = claimed_size(as_array(content[:begin] + data.draw(st.binary(max_size=20)) + content[end:]))
    assert size is None or min(size) >= 0


def claiming(height: int, width: int) -> dict[str, bytes]:
    """Files of some hundred bytes that claim so many pixels."""
    jpeg = bytearray(FILES["jpeg"])
    frame = jpeg.index(b"\xff\xc0")
    jpeg[frame + 5 : frame + 9] = struct.pack(">HH", min(height, 65535), min(width, 65535))
    png = bytearray(FILES["png"])
    png[16:24] = struct.pack(">II", width, height)
    bmp = bytearray(FILES["bmp"])
    bmp[18:26] = struct.pack("<ii", width, -height)
    stream = bytearray(FILES["jpeg 2000, code stream"])
    stream[8:24] = struct.pack(">IIII", width, height, 0, 0)
    return {"jpeg": bytes(jpeg), "png": bytes(png), "bmp": bytes(bmp), "jpeg 2000": bytes(stream)}


@pytest.mark.parametrize("name", [*claiming(1, 1)])
def test_gigapixels_are_refused_before_they_are_decoded(name: str) -> None:
    content = as_array(claiming(60_000, 50_000)[name])
    message = "claims an image of 50000 x 60000 pixels, more than the limit of 268435456"
    assert message in too_large(content)
    with pytest.raises(FieldValueError, match=message):
        image_arrays.decoded_image(content)
    assert too_large(as_array(claiming(16384, 16384)[name])) == ""


def segment(marker: int, content: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content


def chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I4s", len(content), name) + content + struct.pack(">I", zlib.crc32(name + content))


# What is put before all that a JPEG file has behind its first two bytes, or before the first chunk of a PNG file.
AHEAD = {
    "filling": b"\xff" * 5000,
    "empty segments": segment(0xE1, b"") * 5000,
    "comments": segment(0xFE, b"abc") * 400,
    "EXIF and ICC of more than 64 kB": segment(0xE1, bytes(65000)) * 3 + segment(0xE2, b"\xff\xc0" * 30000),
    "a thumbnail in the EXIF data": segment(0xE1, b"Exif\0\0" + by_pillow("JPEG")[:600]),
    "junk": b"\xff\xe1\0\2" + b"no marker" * 1000,
    "stuffed zeros": b"\xff\xe1\0\2" + b"\xff\0" * 1000,
    "markers without content": b"\xff\xd0\xff\x01" * 1000,
    "segments of no length": b"\xff\xfe\0\0" * 10,
    "png: unknown chunks": chunk(b"abCd", b"IHDR" * 40) * 3000,
}


def with_ahead(name: str, content: bytes) -> bytes:
    place = 8 if content.startswith(b"\x89PNG") else 2
    return content[:place] + AHEAD[name] + content[place:]


def decoded_by(content: Any) -> dict[str, tuple[int, ...]]:
    """Heights and widths of what decoders make of a file; those that refuse it are left out."""
    found = {}
    decoders: dict[str, Callable[[], Any]] = {
        "opencv": lambda: cv2.imdecode(content, cv2.IMREAD_COLOR).shape[:2],
        "simplejpeg": lambda: simplejpeg.decode_jpeg(content).shape[:2],
        "pillow": lambda: np.array(Image.open(io.BytesIO(content))).shape[:2],
        "dali": lambda: decoded_by_dali(content),
    }
    for name, decode in decoders.items():
        with contextlib.suppress(Exception):
            found[name] = decode()
    return found


def decoded_by_dali(content: Any) -> tuple[int, ...]:
    @pipeline_def(batch_size=1, num_threads=1, device_id=None)
    def graph() -> Any:
        return fn.decoders.image(fn.external_source(lambda: [content], batch=True), device="cpu")

    (image,) = graph().run()
    return tuple(image.at(0).shape[:2])


@pytest.mark.parametrize("ahead", AHEAD)
def test_headers_are_found_where_decoders_find_them(ahead: str) -> None:
    kind = "png" if ahead.startswith("png") else "jpeg"
    content = as_array(with_ahead(ahead, FILES[kind]))
    sizes = decoded_by(content)
    assert sizes or kind == "png"
    assert {*sizes.values(), claimed_size(content)} == {SIZE}
    large = as_array(with_ahead(ahead, claiming(65_500, 65_500)[kind]))
    message = "65500 x 65500 pixels, more than the limit"
    assert message in too_large(large)
    with pytest.raises(FieldValueError, match=message):
        image_arrays.decoded_image(large)
    with pytest.raises(FieldValueError, match=f"{message}|Corrupt JPEG data"):
        image_arrays.ImageFile.opened(large).decoded()


@pytest.mark.parametrize("count", [1, 2, 3])
def test_markers_may_have_fill_bytes_before_them(count: int) -> None:
    jpeg = FILES["jpeg"]
    for place in (2, jpeg.index(b"\xff\xc0")):
        content = as_array(jpeg[:place] + b"\xff" * count + jpeg[place:])
        assert {*decoded_by(content).values(), claimed_size(content)} == {SIZE}


def test_the_largest_of_several_frame_headers_counts() -> None:
    jpeg, large = FILES["jpeg"], claiming(65_500, 65_500)["jpeg"]
    place, of_large = jpeg.index(b"\xff\xc0"), large.index(b"\xff\xc0")
    second = large[of_large : of_large + 2 + int.from_bytes(large[of_large + 2 : of_large + 4], "big")]
    for content in (jpeg[:place] + second + jpeg[place:], jpeg[: place + len(second)] + second + jpeg[place:]):
        assert claimed_size(as_array(content)) == (65_500, 65_500)
    assert claimed_size(as_array(jpeg + large)) == SIZE  # behind the pixels


def test_the_decoder_s_own_header_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where ours finds nothing."""
    monkeypatch.setattr(file_limits.IMAGE_PIXELS, "most", 37 * 53 - 1)
    monkeypatch.setattr(image_arrays, "too_large", lambda encoded: "")
    for action in (image_arrays.decoded_image, image_arrays.ImageFile.opened):
        with pytest.raises(FieldValueError, match="53 x 37 pixels, more than the limit"):
            action(as_array(FILES["jpeg"]))


class Images(IndexProvider):
    """Sample 5 claims gigapixels."""

    def __init__(self, is_declared: bool) -> None:
        super().__init__(8)
        self.content = {"content": ENCODED_IMAGE, "ndim": 1} if is_declared else {}

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        return group_of(cameras=(group_of(image=(DT.UINT8, self.content)), 2))

    def get_data(self, sample_index: int) -> SampleDataGroup:
        sample = self.sample_data_structure
        for camera in range(2):
            bad = sample_index == 5 and camera == 1
            content = with_ahead("filling", claiming(60_000, 50_000)["jpeg"]) if bad else FILES["jpeg"]
            sample["cameras"][camera]["image"] = as_array(content)
        return sample


@pytest.mark.parametrize("run", ["graph", "workers"])
@pytest.mark.parametrize("is_declared", [True, False])
def test_sample_and_field_are_named(run: str, is_declared: bool) -> None:
    steps = [ImageDecoder("image", use_device_mixed=False)]
    settings: dict[str, Any] = {"num_workers": 0, "output_type": "numpy", "run": run}
    with DataLoader(Images(is_declared), 2, steps=steps, **settings) as loader:
        batches = iter(loader)
        assert next(batches)["cameras"][1]["image"].shape == (2, *SIZE, 3)
        next(batches)
        with pytest.raises(RuntimeError, match="50000 x 60000 pixels, more than the limit") as failed:
            next(batches)
    assert "sample 5" in str(failed.value).lower()
    assert "cameras[1].image" in str(failed.value)
