"""Damaged image files: an error wherever they are decoded, where a decoder can know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import cv2
import numpy as np
import pytest
from support.arrays import DT, ArrayProvider
from support.laws import some
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework import DataLoader, FaultPolicy, ImageDecoder, ImageResizer
from accvlab.dali_pipeline_framework.errors import FrameworkError
from accvlab.dali_pipeline_framework.limits.image_limits import jpeg_damage

Route = Literal["auto", "graph", "workers"]
ROUTES: tuple[Route, ...] = ("auto", "graph", "workers")

PIXELS = cv2.GaussianBlur(np.random.default_rng(0).integers(0, 256, (120, 160, 3), dtype=np.uint8), (5, 5), 2)
PROGRESSIVE = [cv2.IMWRITE_JPEG_PROGRESSIVE, 1]
RESTARTS = [cv2.IMWRITE_JPEG_RST_INTERVAL, 4]
CHECKS = FaultPolicy(checks_images=True)


def encoded(extension: str, settings: list[int] | None = None, pixels: np.ndarray = PIXELS) -> bytes:
    return cv2.imencode(extension, pixels, settings or [])[1].tobytes()


def in_the_middle(content: bytes) -> bytes:
    """Change bytes of the second half."""
    changed = bytearray(content)
    for place in range(len(content) // 2, len(content) * 3 // 4, 97):
        changed[place] ^= 0x5A
    return bytes(changed)


def with_wrong_checksum(png: bytes) -> bytes:
    """Change the checksum of the pixels of a PNG file."""
    start = png.index(b"IDAT")
    end = start + 4 + int.from_bytes(png[start - 4 : start], "big")
    return png[:end] + bytes([png[end] ^ 1]) + png[end + 1 :]


def loader(damaged: bytes, whole: bytes, run: Route, faults: Any = None, **settings: Any) -> DataLoader:
    """A loader of three files, the second of which is damaged."""
    images = [np.frombuffer(content, np.uint8) for content in (whole, damaged, whole)]
    provider = ArrayProvider({"image": (DT.UINT8, images), "index": (DT.INT64, range(3))})
    settings = {"num_workers": 0, "output_type": "numpy", "steps": [ImageDecoder("image")], **settings}
    return DataLoader(provider, 1, run=run, faults=faults, **settings)


# Of these, DALI makes pixels.
JPEGS: dict[str, bytes] = {
    "baseline": in_the_middle(encoded(".jpg")),
    "zeros": encoded(".jpg")[:4000] + bytes(4000) + encoded(".jpg")[8000:],
    "progressive": in_the_middle(encoded(".jpg", PROGRESSIVE)),
    "restarts": in_the_middle(encoded(".jpg", RESTARTS)),
}


@pytest.mark.parametrize("run", ROUTES)
@pytest.mark.parametrize("name", JPEGS)
def test_damage_within_a_jpeg_is_an_error_where_it_is_requested(name: str, run: Route) -> None:
    with (
        loader(JPEGS[name], encoded(".jpg"), run, CHECKS) as batches,
        pytest.raises(FrameworkError, match=r"(?is)sample 1 .*JPEG file .*(corrupt|premature|bogus)"),
    ):
        list(batches)


@pytest.mark.parametrize("name", [name for name in JPEGS if name != "progressive"])
def test_dali_makes_pixels_of_it_otherwise(name: str) -> None:
    with loader(JPEGS[name], encoded(".jpg"), "graph") as batches:
        images = [batch["image"][0] for batch in batches]
    assert images[1].shape == images[0].shape
    assert not np.array_equal(images[1], images[0])


@pytest.mark.parametrize("workers", [0, 2])
def test_another_sample_takes_its_place(workers: int) -> None:
    policy = FaultPolicy(samples="replace", checks_images=True)
    settings: dict[str, Any] = {"num_workers": workers, "start_method": "fork"}
    with loader(JPEGS["baseline"], encoded(".jpg"), "graph", policy, **settings) as batches:
        assert [batch["index"].item() for batch in batches] == [0, 2, 2]
        (failed,) = batches.failed_samples
    assert (failed.sample_index, failed.stage) == (1, "checks")
    assert "is damaged: " in failed.reason


def test_files_that_are_whole_pass() -> None:
    gray = encoded(".jpg", None, PIXELS[..., 0])
    for content in (encoded(".jpg"), encoded(".jpg", PROGRESSIVE), encoded(".jpg", RESTARTS), gray):
        assert jpeg_damage(np.frombuffer(content, np.uint8)) == ""
    with loader(gray, gray, "graph", CHECKS) as batches:
        assert len([*batches]) == 3


def test_what_is_decoded_in_the_workers_is_not_decoded_twice() -> None:
    steps = [ImageDecoder("image"), ImageResizer("image", output_hw=[60, 80])]
    with loader(JPEGS["zeros"], encoded(".jpg"), "workers", CHECKS, steps=steps) as batches:
        assert_refused(lambda: list(batches), "Step 0 (ImageDecoder) on sample 1 failed", FrameworkError)


FORMATS = (".jpg", ".png", ".webp", ".bmp", ".tif", ".ppm", ".jp2")
DAMAGES: list[tuple[str, Callable[[bytes], bytes]]] = [
    *((extension, lambda content: content[: len(content) // 2]) for extension in FORMATS),
    (".jpg", lambda content: content[:-2]),  # without its end
    (".png", with_wrong_checksum),
    (".png", in_the_middle),
]


@pytest.mark.parametrize("run", ROUTES)
@some(("extension", "damage"), DAMAGES, {0, 1, 5, 7, 8, 9})
def test_other_damage_is_an_error_everywhere(extension: str, damage: Callable[[bytes], bytes], run: Route) -> None:
    whole = encoded(extension)
    with loader(damage(whole), whole, run) as batches, pytest.raises(FrameworkError, match="sample 1"):
        list(batches)
