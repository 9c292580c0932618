"""A part of a JPEG file is decoded to the pixels that it has when all of the file is decoded."""

from __future__ import annotations

import multiprocessing
import sys
import threading
from typing import Any

import cv2
import numpy as np
import pytest
import simplejpeg
from hypothesis import given
from hypothesis import strategies as st
from support.arrays import DT

from accvlab.dali_pipeline_framework.errors import FieldValueError
from accvlab.dali_pipeline_framework.extension import image_arrays
from accvlab.dali_pipeline_framework.operators.image_arrays import ImagePart, decoded_part
from accvlab.dali_pipeline_framework.pipeline import SampleDataGroup
from accvlab.dali_pipeline_framework.processing_steps import ImageResizeCropFlipper, PipelineStepBase
from accvlab.dali_pipeline_framework.testing import run_step

SUBSAMPLINGS = ("444", "422", "420", "440", "411")


def picture(seed: int, *shape: int) -> np.ndarray:
    noise = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    return cv2.GaussianBlur(noise, (5, 5), 1.2).reshape(shape)


def jpeg(
    image: np.ndarray, subsampling: str = "420", *, is_progressive: bool = False, interval: int = 0
) -> np.ndarray:
    sampling = getattr(cv2, f"IMWRITE_JPEG_SAMPLING_FACTOR_{subsampling}")
    flags = [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, sampling, cv2.IMWRITE_JPEG_PROGRESSIVE, int(is_progressive)]
    flags += [cv2.IMWRITE_JPEG_RST_INTERVAL, interval] if interval else []
    return np.asarray(cv2.imencode(".jpg", image, flags)[1]).ravel()


def check_part(file: np.ndarray, part: ImagePart) -> None:
    found = decoded_part(file, part)
    assert found is not None
    expected = simplejpeg.decode_jpeg(file, "RGB")[part.top : part.bottom, part.left : part.right]
    assert np.array_equal(found, expected)


@st.composite
def parts(draw: st.DrawFn) -> tuple[tuple[int, int], ImagePart]:
    hw = draw(st.tuples(st.integers(1, 90), st.integers(1, 130)))
    (top, bottom), (left, right) = (
        sorted(draw(st.lists(st.integers(0, length), min_size=2, max_size=2, unique=True))) for length in hw
    )
    return hw, ImagePart(top, left, bottom, right)


class TestParts:
    @given(
        parts(),
        st.sampled_from(SUBSAMPLINGS),
        st.booleans(),
        st.sampled_from([0, 1, 3]),
        st.sampled_from([1, 3]),
        st.integers(0, 9),
    )
    def test_every_pixel_is_that_of_the_whole(
        self,
        given_part: tuple[tuple[int, int], ImagePart],
        subsampling: str,
        is_progressive: bool,
        interval: int,
        num_channels: int,
        seed: int,
    ) -> None:
        hw, part = given_part
        image = picture(seed, *hw, num_channels)
        check_part(jpeg(image, subsampling, is_progressive=is_progressive, interval=interval), part)

    @pytest.mark.parametrize("subsampling", SUBSAMPLINGS)
    def test_parts_of_an_image_of_a_camera(self, subsampling: str) -> None:
        file = jpeg(picture(1, 451, 803, 3), subsampling)
        for part in (ImagePart(187, 41, 451, 762), ImagePart(0, 0, 200, 803), ImagePart(16, 15, 17, 803)):
            check_part(file, part)

    def test_a_file_without_an_end_is_refused(self) -> None:
        file = jpeg(picture(1, 451, 803, 3))
        assert decoded_part(file[: file.size * 9 // 10], ImagePart(0, 0, 20, 20)) is None

    @pytest.mark.parametrize("content", [b"", b"\xff\xd9", b"\xff\xd8\xff\xe0 no image \xff\xd9"])
    def test_what_is_no_image_is_refused(self, content: bytes) -> None:
        assert decoded_part(np.frombuffer(content, np.uint8), ImagePart(0, 0, 1, 1)) is None

    def test_other_threads_have_decoders_of_their_own(self) -> None:
        file, part = jpeg(picture(1, 451, 803, 3)), ImagePart(187, 41, 451, 762)
        failed = []

        def check() -> None:
            try:
                for _ in range(5):
                    check_part(file, part)
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=check) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed

    @pytest.mark.parametrize("method", ["fork", "forkserver", pytest.param("spawn", marks=pytest.mark.wide)])
    def test_other_processes_decode(self, method: str) -> None:
        file, part = jpeg(picture(1, 451, 803, 3)), ImagePart(187, 41, 451, 762)
        check_part(file, part)  # so that a forked process inherits a decoder
        process = multiprocessing.get_context(method).Process(target=check_part, args=(file, part))
        process.start()
        process.join(60)
        assert process.exitcode == 0


def sample_of(file: np.ndarray) -> SampleDataGroup:
    sample = SampleDataGroup()
    sample.add_data_field("image", DT.UINT8)
    sample["image"] = file
    return sample


def step_of(**how: Any) -> PipelineStepBase:
    settings = {"output_hw": [64, 176], "scale_range": (0.3, 0.6), "flip_prob": 0.5, "is_encoded": True} | how
    return ImageResizeCropFlipper("image", **settings)


class _Calls:
    """Counts the parts that are asked for, and those that are decoded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = self.decoded = 0
        monkeypatch.setattr(image_arrays, "decoded_part", self)

    def __call__(self, file: np.ndarray, part: ImagePart) -> np.ndarray | None:
        self.asked += 1
        found = decoded_part(file, part)
        self.decoded += found is not None
        return found


FILES = {
    "color": jpeg(picture(2, 451, 803, 3)),
    "progressive": jpeg(picture(2, 451, 803, 3), "422", is_progressive=True),
    "gray": jpeg(picture(2, 451, 803, 1)),
}


class TestStep:
    @pytest.mark.parametrize("is_kept_inside", [False, True])
    @pytest.mark.parametrize("file", FILES.values(), ids=FILES)
    def test_it_shows_what_it_shows_of_the_whole(
        self, file: np.ndarray, is_kept_inside: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls = _Calls(monkeypatch)
        step = step_of(is_kept_inside=is_kept_inside, fill_value=7)
        found = [run_step(step, sample_of(file), seed=seed, run="workers") for seed in range(6)]
        assert calls.decoded == calls.asked > 2
        monkeypatch.setattr(image_arrays, "decoded_part", lambda file, part: None)
        for run in found:
            whole = run_step(step, sample_of(file), draws=run.draws, run="workers").output
            assert np.array_equal(run.output["image"], whole["image"])

    @pytest.mark.parametrize("missing", [None, "a module of another kind"])
    def test_without_the_package_all_of_the_file_is_decoded(
        self, missing: str | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        expected = run_step(step_of(), sample_of(FILES["color"]), seed=1, run="workers").output
        calls = _Calls(monkeypatch)
        monkeypatch.setattr(image_arrays, "_of_thread", image_arrays._OfThread())
        monkeypatch.setitem(sys.modules, "nvidia.nvimgcodec", missing)
        found = run_step(step_of(), sample_of(FILES["color"]), seed=1, run="workers").output
        assert (calls.asked, calls.decoded) == (1, 0)
        assert np.array_equal(found["image"], expected["image"])

    def test_a_truncated_file_is_named(self) -> None:
        file = FILES["color"]
        step = step_of(scale_range=(0.9, 0.9), crop_x_range=(0, 0), bottom_crop_range=(0.6, 0.6))
        with pytest.raises(
            FieldValueError, match=r"image: The JPEG file \(\d+ bytes\) cannot be decoded: Premature"
        ):
            run_step(step, sample_of(file[: file.size * 9 // 10]), run="workers")

    def test_where_little_is_left_out_all_is_decoded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        calls = _Calls(monkeypatch)
        run_step(step_of(output_hw=[451, 803], scale_range=(1.1, 1.1)), sample_of(FILES["color"]), run="workers")
        run_step(
            step_of(output_hw=[20, 20], scale_range=(1, 1)), sample_of(jpeg(picture(1, 60, 90, 3))), run="workers"
        )
        assert not calls.asked
