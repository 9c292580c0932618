"""Damaged image files: an error wherever they are decoded, where a decoder can know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import cv2
import numpy as np
import pytest
from support.arrays import DT, ArrayProvider
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework import (
    DataLoader,
    DataProvider,
    FaultPolicy,
    ImageDecoder,
    ImageResizer,
)
from accvlab.dali_pipeline_framework.errors import FrameworkError
from accvlab.dali_pipeline_framework.limits.image_limits import jpeg_damage
from accvlab.dali_pipeline_framework.testing.data_set_lint import lint

Route = Literal["auto", "graph", "workers"]
ROUTES: tuple[Route, ...] = ("auto", "graph", "workers")

PIXELS = cv2.GaussianBlur(np.random.default_rng(0).integers(0, 256, (120, 160, 3), dtype=np.uint8), (5, 5), 2)
SETTINGS: dict[str, list[int]] = {
    "progressive": [cv2.IMWRITE_JPEG_PROGRESSIVE, 1],
    "restarts": [cv2.IMWRITE_JPEG_RST_INTERVAL, 4],
}


def encoded(extension: str, settings: str = "") -> bytes:
    return cv2.imencode(extension, PIXELS, SETTINGS.get(settings, []))[1].tobytes()


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


def files(damaged: bytes, whole: bytes) -> ArrayProvider:
    """Three files, the second of which is damaged."""
    images = [np.frombuffer(content, np.uint8) for content in (whole, damaged, whole)]
    return ArrayProvider({"image": (DT.UINT8, images), "index": (DT.INT64, range(3))})


def loader(provider: DataProvider, run: Route, faults: FaultPolicy | None = None, **settings: Any) -> DataLoader:
    settings = {"num_workers": 0, "output_type": "numpy", "steps": [ImageDecoder("image")], **settings}
    return DataLoader(provider, 1, run=run, faults=faults, **settings)


# Of these, DALI makes pixels.
JPEGS: dict[str, bytes] = {
    "baseline": in_the_middle(encoded(".jpg")),
    "zeros": encoded(".jpg")[:4000] + bytes(4000) + encoded(".jpg")[8000:],
    "progressive": in_the_middle(encoded(".jpg", "progressive")),
    "restarts": in_the_middle(encoded(".jpg", "restarts")),
}


@pytest.mark.parametrize("run", ROUTES)
@pytest.mark.parametrize("name", JPEGS)
def test_damage_within_a_jpeg_is_an_error_where_it_is_requested(name: str, run: Route) -> None:
    provider = files(JPEGS[name], encoded(".jpg"))
    with (
        loader(provider, run, FaultPolicy(checks_images=True)) as batches,
        pytest.raises(FrameworkError, match=r"(?is)sample 1 .*JPEG file .*(corrupt|premature|bogus)"),
    ):
        list(batches)


@pytest.mark.parametrize("name", [name for name in JPEGS if name != "progressive"])
def test_dali_makes_pixels_of_it_otherwise(name: str) -> None:
    with loader(files(JPEGS[name], encoded(".jpg")), "graph") as batches:
        images = [batch["image"][0] for batch in batches]
    assert images[1].shape == images[0].shape
    assert not np.array_equal(images[1], images[0])


@pytest.mark.parametrize("workers", [0, 2])
def test_another_sample_takes_its_place(workers: int) -> None:
    provider = files(JPEGS["baseline"], encoded(".jpg"))
    policy = FaultPolicy(samples="replace", checks_images=True)
    with loader(provider, "graph", policy, num_workers=workers, start_method="fork") as batches:
        assert [batch["index"].item() for batch in batches] == [0, 2, 2]
        (failed,) = batches.failed_samples
    assert (failed.sample_index, failed.stage) == (1, "checks")
    assert "is damaged: " in failed.reason


def test_files_that_are_whole_pass() -> None:
    gray = cv2.imencode(".jpg", PIXELS[..., 0])[1].tobytes()
    for content in (encoded(".jpg"), encoded(".jpg", "progressive"), encoded(".jpg", "restarts"), gray):
        assert jpeg_damage(np.frombuffer(content, np.uint8)) == ""
    with loader(files(gray, gray), "graph", FaultPolicy(checks_images=True)) as batches:
        assert len([*batches]) == 3


def test_what_is_decoded_in_the_workers_is_not_decoded_twice() -> None:
    policy = FaultPolicy(checks_images=True)
    steps = [ImageDecoder("image"), ImageResizer("image", output_hw=[60, 80])]
    with loader(files(JPEGS["zeros"], encoded(".jpg")), "workers", policy, steps=steps) as batches:
        assert_refused(lambda: list(batches), "Step 0 (ImageDecoder) on sample 1 failed", FrameworkError)


def test_lint_finds_it() -> None:
    with lint(
        files(JPEGS["baseline"], encoded(".jpg")), FaultPolicy(samples="replace", checks_images=True), 0
    ) as batches:
        assert len([*batches]) == 3
        (failed,) = batches.failed_samples
    assert failed.sample_index == 1


DAMAGES: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    **{f"half of a {name[1:]}": (name, lambda content: content[: len(content) // 2]) for name in (
        ".jpg", ".png", ".webp", ".bmp", ".tif", ".ppm", ".jp2"
    )},
    "a jpg without its end": (".jpg", lambda content: content[:-2]),
    "a png with a wrong checksum": (".png", with_wrong_checksum),
    "a png with other bytes": (".png", in_the_middle),
}  # fmt: skip


@pytest.mark.parametrize("run", ROUTES)
@pytest.mark.parametrize("name", DAMAGES)
def test_other_damage_is_an_error_everywhere(name: str, run: Route) -> None:
    extension, damage = DAMAGES[name]
    whole = encoded(extension)
    with loader(files(damage(whole), whole), run) as batches, pytest.raises(FrameworkError, match="sample 1"):
        list(batches)
