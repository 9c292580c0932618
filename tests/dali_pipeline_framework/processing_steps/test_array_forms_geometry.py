"""Steps that decode and move images do the same to arrays as in the graph."""

from __future__ import annotations

import inspect
import io
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
import pytest
from affine_reference import resizings, transformations
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from PIL import Image
from support.arrays import DT, encoded_image
from support.child_processes import run_process
from support.laws import examples
from support.public_steps import PUBLIC_STEPS, STEPS_ON_IMAGES
from support.random_steps import filled
from support.steps import as_published

from accvlab.dali_pipeline_framework.errors import FieldValueError, SettingError
from accvlab.dali_pipeline_framework.extension import image_arrays
from accvlab.dali_pipeline_framework.operators import array_packages
from accvlab.dali_pipeline_framework.pipeline import SampleDataGroup
from accvlab.dali_pipeline_framework.processing_steps import (
    AffineTransformer,
    HorizontalFlipper,
    ImageDecoder,
    ImageResizeCropFlipper,
    ImageResizer,
    ImageToTileSizePadder,
    PipelineStepBase,
)
from accvlab.dali_pipeline_framework.testing import run_step, sample_differences

FIELDS = {"point_names": ["points", "places"], "box_names": "boxes", "mask_names": "mask", "hw_names": "hw"} | {
    "projection_names": ["projection", "projections"]
}


def smooth(random: np.random.Generator, height: int, width: int) -> np.ndarray:
    coarse = random.integers(0, 256, (height // 8 + 2, width // 8 + 2, 3), np.uint8)
    return cv2.resize(coarse, (width, height), interpolation=cv2.INTER_LINEAR)


def pixel_sample(
    random: np.random.Generator, dtype: DT = DT.UINT8, hw: tuple[int, int] = (40, 60), **image: Any
) -> SampleDataGroup:
    """An image and all that is given in its pixels."""
    shape = (*image.get("frames", ()), *hw, image.get("channels", 3))
    numpy_type = {DT.UINT8: np.uint8, DT.INT16: np.int16, DT.FLOAT: np.float32}[dtype]
    boxes = np.sort(random.normal(size=(3, 2, 2)) * 100, axis=1).reshape(3, 4)
    return filled(
        {
            "image": (dtype, random.integers(0, 256, shape).astype(numpy_type)),
            "mask": (DT.UINT8, random.integers(0, 256, (*hw, 1)).astype(np.uint8)),
            "hw": (DT.INT32, np.array(hw, np.int32)),
            "points": (DT.FLOAT, (random.normal(size=(5, 4)) * 100).astype(np.float32)),
            "places": (DT.INT32, (random.normal(size=(5, 2)) * 100).astype(np.int32)),
            "boxes": (DT.FLOAT, boxes.astype(np.float32)),
            "projection": (DT.FLOAT, (random.normal(size=(3, 4)) * 100).astype(np.float32)),
            "projections": (DT.FLOAT64, random.normal(size=(2, 4, 4)) * 100),
        }
    )


def assert_agree(step: PipelineStepBase, sample: SampleDataGroup, seed: int = 0, **how: Any) -> None:
    in_graph = run_step(step, sample, seed=seed, **how)
    on_arrays = run_step(step, sample, draws=in_graph.draws, run="workers")
    differences = sample_differences(
        in_graph.output,
        on_arrays.output,
        tolerance=lambda path: step.image_tolerance * 255 if path == ("image",) else 0.0,
    )
    assert not differences, differences


PROBS = st.sampled_from([0.5, 1.0])
MOVING: dict[str, Any] = {
    "ImageResizer": st.builds(
        ImageResizer,
        st.just("image"),
        mode=st.sampled_from(["stretch", "pad", "crop"]),
        anchor=st.sampled_from(["center", "top_or_left", "bottom_or_right"]),
        output_hw=st.tuples(st.integers(1, 70), st.integers(1, 70)),
        fill_value=st.integers(0, 255),
        **{name: st.just(fields) for name, fields in FIELDS.items()},
    ),
    "ImageResizeCropFlipper": st.builds(
        ImageResizeCropFlipper,
        st.just("image"),
        scale_range=st.sampled_from([(0.3, 1.8), None]),
        bottom_crop_range=st.sampled_from([(0, 0), (0, 0.3)]),
        is_kept_inside=st.booleans(),
        output_hw=st.tuples(st.integers(1, 70), st.integers(1, 70)),
        fill_value=st.integers(0, 255),
        **{name: st.just(fields) for name, fields in FIELDS.items()},
    ),
    "HorizontalFlipper": st.just(HorizontalFlipper("image", **FIELDS)),
    "AffineTransformer": st.builds(
        lambda hw, resizing, steps, fill: AffineTransformer(
            hw, *resizing, "image", transformation_steps=steps, fill_value=fill, **as_published(FIELDS)
        ),
        st.tuples(st.integers(1, 70), st.integers(1, 70)),
        resizings,
        transformations(PROBS, 20, (0.5, 1.5), (180, 25)),
        st.integers(0, 255),
    ),
}


def test_no_step_that_moves_points_is_left_out() -> None:
    settings_of = {name: inspect.signature(type(PUBLIC_STEPS[name].step)).parameters for name in STEPS_ON_IMAGES}
    moving = {name for name, names in settings_of.items() if {*names} & {*FIELDS, *as_published(FIELDS)}}
    assert moving == {*MOVING, "ImageToTileSizePadder"}, "add them to `MOVING`"  # it pads at the far borders


@pytest.mark.parametrize("step_name", MOVING)
def test_both_forms_of_moving_steps_agree(step_name: str) -> None:
    num_examples = {"AffineTransformer": 8, "HorizontalFlipper": 2}.get(step_name, 5)

    @settings(max_examples=examples(num_examples, 4 * num_examples), deadline=None)
    @given(
        step=MOVING[step_name],
        seed=st.integers(0, 1 << 30),
        hw=st.tuples(st.integers(2, 80), st.integers(2, 80)),
        dtype=st.sampled_from([DT.UINT8, DT.INT16, DT.FLOAT]),
        channels=st.sampled_from([1, 2, 3, 4, 6]),
        frames=st.sampled_from([(), (2,)]),
        has_layout=st.booleans(),
    )
    def check(step: Any, seed: int, hw: Any, dtype: DT, channels: int, frames: Any, has_layout: bool) -> None:
        random = np.random.default_rng(seed)
        sample = pixel_sample(random, dtype, hw, channels=channels, frames=frames)
        sample["points"][:2, :2] = [[0, 0], hw[::-1]]
        clip = run_step(step, sample, seed=seed, run="workers")
        # An image that ends at the center of a pixel: DALI takes the label of this pixel from any row.
        edges = clip.output["points"][:2, :2]
        assume(not (np.abs(edges % 1 - 0.5) < 1e-3).any())
        assert_agree(step, sample, seed, layouts={"image": "FHWC"[not frames :]} if has_layout else {})
        for number, frame in enumerate(sample["image"] if frames else ()):  # a clip is its frames one by one
            alone = sample.get_copy()
            alone["image"] = frame
            found = run_step(step, alone, draws=clip.draws, run="workers").output
            np.testing.assert_array_equal(found["image"], clip.output["image"][number])

    check()


def cmyk_file(image: np.ndarray) -> np.ndarray:
    file = io.BytesIO()
    Image.fromarray(image).convert("CMYK").save(file, "JPEG")
    return np.frombuffer(file.getvalue(), np.uint8)


USUAL = {"subsampling": 2, "quality": 75}  # of JPEG files; others have neither
FORMATS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "jpeg 444": lambda image: encoded_image(image, quality=90),
    "jpeg 420": lambda image: encoded_image(image, subsampling=2, quality=90),
    "jpeg progressive": lambda image: encoded_image(image, progressive=True, **USUAL),
    "jpeg gray": lambda image: encoded_image(image[..., 0], subsampling=-1, quality=75),
    "jpeg cmyk": cmyk_file,
    "png": lambda image: encoded_image(image, "PNG"),
    "png alpha": lambda image: encoded_image(np.dstack([image, image[..., :1]]), "PNG"),
    "png 16 bits": lambda image: cv2.imencode(".png", image[..., 0].astype(np.uint16) * 255)[1],
    "tiff 16 bits": lambda image: cv2.imencode(".tiff", image.astype(np.uint16) * 250)[1],
    "tiff reals": lambda image: cv2.imencode(".tiff", image.astype(np.float32) / 200)[1],
    "webp": lambda image: encoded_image(image, "WEBP"),
    "bmp": lambda image: encoded_image(image, "BMP"),
    "ppm": lambda image: encoded_image(image, "PPM"),
}


def turned(image: np.ndarray, orientation: int, format: str) -> np.ndarray:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded_image(image, format, exif=exif.tobytes(), **USUAL)


class TestDecoding:
    @pytest.mark.parametrize("format", FORMATS)
    def test_every_pixel_is_that_of_the_graph(self, format: str) -> None:
        for hw, as_bgr in (((65, 97), False), ((17, 2), True), ((1, 1), False)):
            image = FORMATS[format](smooth(np.random.default_rng(3), *hw))
            assert_agree(ImageDecoder("image", False, as_bgr=as_bgr), filled({"image": (DT.UINT8, image)}))

    @pytest.mark.parametrize(("format", "orientation"), [("PNG", 6), *(("JPEG", each) for each in range(1, 9))])
    def test_images_are_turned_as_exif_data_say(self, format: str, orientation: int) -> None:
        image = turned(smooth(np.random.default_rng(3), 33, 70), orientation, format)
        assert_agree(ImageDecoder("image", False), filled({"image": (DT.UINT8, image)}))

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (np.arange(50, dtype=np.uint8), r"No image file that can be decoded: shape \(50,\), begins with"),
            (np.zeros(0, np.uint8), r"No image file that can be decoded: shape \(0,\), begins with b''"),
            (
                encoded_image(np.zeros((90, 90, 3), np.uint8))[:300],
                r"The JPEG file \(300 bytes\) cannot be decoded: .*\.",
            ),
            (
                encoded_image(np.zeros((9, 9, 3), np.uint8), "PNG")[:40],
                "The image file .* is broken, or of an unknown kind",
            ),
        ],
        ids=["none", "empty", "half a JPEG", "half a PNG"],
    )
    def test_what_is_no_image_is_refused(self, content: np.ndarray, message: str) -> None:
        sample = filled({"image": (DT.UINT8, content)})
        with pytest.raises(FieldValueError, match=message):
            run_step(ImageDecoder("image", False), sample, run="workers")

    def test_a_missing_package_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(array_packages.sys.modules, "cv2", None)
        with pytest.raises(SettingError, match=r"need OpenCV.*pip install opencv-python-headless"):
            array_packages.needed_package("cv2")


class TestEncodedImages:
    @pytest.mark.parametrize(
        "step",
        [
            ImageResizer("image", output_hw=[30, 50], mode="crop", is_encoded=True),
            ImageResizer("image", output_hw=[30, 50], mode="pad", is_encoded=True, fill_value=9),
            ImageResizeCropFlipper("image", output_hw=[30, 50], scale_range=(0.4, 0.6), is_encoded=True),
        ],
        ids=["crop", "pad", "crop and flip"],
    )
    @pytest.mark.parametrize("orientation", [1, 6])
    def test_both_forms_agree(self, step: PipelineStepBase, orientation: int) -> None:
        image = turned(smooth(np.random.default_rng(2), 90, 140), orientation, "JPEG")
        for seed in range(examples(2, 4)):
            assert_agree(step, filled({"image": (DT.UINT8, image)}), seed)

    def test_the_cheaper_decoding_shows_the_same(self) -> None:
        # A ramp, which means over pixels leave as it is.
        columns, rows = np.meshgrid(np.arange(1283), np.arange(723))
        image = np.stack([columns / 6, rows / 4, (columns + rows) / 10], -1).astype(np.uint8)
        how: dict[str, Any] = {"output_hw": [60, 80], "scale_range": (0.1, 0.3), "is_encoded": True}
        full = ImageResizeCropFlipper("image", **how, projection_names="projection")
        reduced = ImageResizeCropFlipper("image", **how, reduced_decoding=True, projection_names="projection")
        for orientation in (1, 6):
            values = {"image": (DT.UINT8, turned(image, orientation, "JPEG")), "projection": (DT.FLOAT, np.eye(3))}
            for seed in range(5):
                expected, found = (
                    run_step(step, filled(values), seed=seed, run="workers").output for step in (full, reduced)
                )
                assert np.array_equal(expected["projection"], found["projection"])
                difference = found["image"].astype(int) - expected["image"]
                assert np.abs(difference).max() <= 4
                assert abs(difference.mean()) < 0.3
                assert difference.any() == (orientation == 1)  # turned images are decoded at their size

    @pytest.mark.parametrize(("scale", "factor"), [(0.6, 1), (0.5, 2), (0.26, 2), (0.25, 4), (0.12, 8), (0.01, 8)])
    def test_as_many_pixels_as_the_output_needs_are_decoded(self, scale: float, factor: int) -> None:
        file = image_arrays.ImageFile.opened(encoded_image(smooth(np.random.default_rng(2), 101, 150), **USUAL))
        decoded = file.decoded(least_scale=scale)
        assert decoded.reduction == factor
        assert decoded.image.shape[:2] == (-(-101 // factor), -(-150 // factor))

    def test_the_cheaper_decoding_has_no_form_for_the_graph(self) -> None:
        step = ImageResizer("image", output_hw=[8, 8], is_encoded=True, reduced_decoding=True)
        assert (step.has_array_form, step.has_graph_form) == (True, False)


STRETCH, TURN = AffineTransformer.ResizingMode.STRETCH, AffineTransformer.Rotation(1.0, 45)
FILLING: dict[str, Callable[[float], PipelineStepBase]] = {
    "tiles": lambda fill: ImageToTileSizePadder("image", 16, fill_value=fill),
    "resizer": lambda fill: ImageResizer("image", output_hw=[8, 32], mode="pad", fill_value=fill),
    "file": lambda fill: ImageResizer("image", output_hw=[8, 32], mode="pad", fill_value=fill, is_encoded=True),
    "warp": lambda fill: AffineTransformer(
        [9, 9], STRETCH, None, "image", transformation_steps=[TURN], fill_value=fill
    ),
}


@pytest.mark.parametrize(("fill", "level"), [(114.6, 115), (300, 255), (-3.5, 0)])
@pytest.mark.parametrize("kind", FILLING)
def test_fill_values_are_rounded_and_limited_to_the_type(kind: str, fill: float, level: int) -> None:
    image = np.full((9, 9, 3), 7, np.uint8)
    sample = filled({"image": (DT.UINT8, encoded_image(image) if kind == "file" else image)})
    assert_agree(FILLING[kind](fill), sample)
    assert run_step(FILLING[kind](fill), sample).output["image"][0, -1].tolist() == [level] * 3


def test_a_process_that_is_forked_after_opencv_was_used_can_use_it() -> None:
    script = """
        import os
        import cv2, numpy as np
        from accvlab.dali_pipeline_framework.workers.process_setup import use_one_thread_of_opencv

        image = np.zeros((2000, 2000, 3), np.uint8)
        cv2.setNumThreads(2)
        cv2.warpAffine(image, np.eye(2, 3), (1500, 1500))
        if os.fork():
            os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
        use_one_thread_of_opencv()
        cv2.warpAffine(image, np.eye(2, 3), (1500, 1500))
        os._exit(7)
    """
    assert run_process([sys.executable, "-c", textwrap.dedent(script)], timeout=100).returncode == 7
