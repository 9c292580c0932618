"""Resizing to a fixed size, resize-crop-flip, and mirroring: against NumPy, with all that is given in pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import affine_reference as reference
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from step_runs import assert_same
from support.array_samples import sample_of
from support.arrays import encoded_image, gradient
from support.laws import each_value, examples

from accvlab.dali_pipeline_framework.operators.image_transform import ResizingAnchor, ResizingMode
from accvlab.dali_pipeline_framework.processing_steps import (
    HorizontalFlipper,
    ImageDecoder,
    ImageResizeCropFlipper,
    ImageResizer,
    PipelineStepBase,
)
from accvlab.dali_pipeline_framework.sample_data import SampleDataGroup
from accvlab.dali_pipeline_framework.testing import run_step

FIELDS = {
    "hw_names": "image_hw",
    "projection_names": "matrix",
    "point_names": "points",
    "box_names": "boxes",
    "mask_names": "mask",
}
SIZES = [(13, 17), (8, 20), (20, 9)]


def samples(seed: int = 0) -> list[SampleDataGroup]:
    rng = np.random.default_rng(seed)
    made: list[dict[str, Any]] = []
    for hw, num in zip(SIZES, (2, 0, 3), strict=True):
        low = rng.uniform(-5, 20, (num, 2))
        made.append(
            {
                "image": rng.integers(0, 256, (*hw, 3), dtype=np.uint8),
                "mask": rng.integers(0, 3, (*hw, 1), dtype=np.uint8),
                "image_hw": np.array(hw, np.int64),
                "points": rng.uniform(-5, 20, (num, 2)).astype(np.float32),
                "boxes": np.concatenate([low, low + rng.uniform(0, 9, (num, 2))], 1).astype(np.float32),
                "matrix": rng.uniform(-5, 5, (3 + num % 2, 4)).astype(np.float32),
                "other": np.arange(num),
            }
        )
    return [sample_of(each) for each in made]


def outputs(step: PipelineStepBase, given: Sequence[SampleDataGroup], **how: Any) -> list[SampleDataGroup]:
    return [run.output for run in run_step(step, given, **how)]


def drawn_names(step: PipelineStepBase) -> list[str]:
    return [draw.name for draw in step.declare_draws(SampleDataGroup()) if draw.constant is None]


def assert_fits(sample: Any, output: Any, matrix: np.ndarray, output_hw: Any, fill_value: float = 0) -> None:
    """All fields of a sample are transformed by a matrix, ``(3, 3)``."""
    np.testing.assert_allclose(
        output["points"], reference.points_by(matrix, sample["points"]), rtol=1e-5, atol=1e-3
    )
    np.testing.assert_allclose(output["boxes"], reference.boxes_by(matrix, sample["boxes"]), rtol=1e-5, atol=1e-3)
    change = np.eye(len(sample["matrix"]))
    change[:3, :3] = matrix
    np.testing.assert_allclose(output["matrix"], change @ sample["matrix"], rtol=1e-4, atol=2e-3)
    assert_same(output["image_hw"], np.array(output_hw))
    assert_same(output["other"], sample["other"])
    expected, is_free = reference.image_by(matrix, sample["image"], output_hw, fill_value)
    assert output["image"].shape == expected.shape
    assert np.abs(output["image"] - expected)[is_free].max(initial=0) <= 1.5
    assert output["mask"].shape == (*output_hw, 1)


# --- resizing -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["stretch", "pad", "crop"])
@pytest.mark.parametrize("anchor", ["center", "top_or_left", "bottom_or_right"])
def test_resizing(mode: str, anchor: str) -> None:
    step = ImageResizer("image", output_hw=[11, 14], mode=mode, anchor=anchor, fill_value=7, **FIELDS)
    given_samples = samples()
    for sample, output, hw in zip(given_samples, outputs(step, given_samples), SIZES, strict=True):
        matrix = reference.resize_matrix(hw, (11, 14), ResizingMode[mode.upper()], ResizingAnchor[anchor.upper()])
        assert_fits(sample, output, matrix, (11, 14), 7)


@pytest.mark.parametrize(
    ("hw", "output_hw", "rows"), [((480, 640), (300, 300), 37), ((5, 8), (16, 24), 0), ((10, 16), (17, 24), 1)]
)
def test_rows_whose_center_lies_on_the_edge_of_the_image_show_it(
    hw: tuple[int, int], output_hw: tuple[int, int], rows: int
) -> None:
    """The image is 225 rows high in the first output, from row 37.5 to 262.5: rows 37 to 262 show it."""
    step = ImageResizer("image", output_hw=output_hw, mode="pad")
    [output] = outputs(step, [sample_of({"image": np.full((*hw, 1), 200, np.uint8)})])
    is_filled = (output["image"] == 0).all(axis=(1, 2))
    height = output_hw[0]
    assert is_filled.tolist() == [row < rows or row >= height - rows for row in range(height)]


def test_matrices_are_exact_where_a_small_part_of_a_large_image_is_shown() -> None:
    step = ImageResizeCropFlipper(
        None,
        output_hw=[64, 64],
        scale_range=(8, 8),
        bottom_crop_range=(0, 0),
        flip_prob=1.0,
        hw_names="hw",
        projection_names="matrix",
    )
    matrix = np.array([[2000, 0, 0], [0, 2000, 0], [0, 0, 1]], np.float32)
    [output] = outputs(step, [sample_of({"hw": np.array([2160, 3840], np.int32), "matrix": matrix})])
    assert np.diag(output["matrix"]).tolist() == [-16000, 16000, 1]
    assert output["matrix"][1, 2] == 64 - 8 * 2160


# --- resize, crop, flip ---------------------------------------------------------------------------------


def crop_matrix(
    hw: Any, output_hw: Any, scale: float, bottom: float, share: float, is_flipped: bool
) -> np.ndarray:
    (height, width), (out_height, out_width) = hw, output_hw
    scaled = np.diag([scale, scale, 1.0])
    crop = np.eye(3)
    crop[:2, 2] = -share * max(scale * width - out_width, 0), -((1 - bottom) * scale * height - out_height)
    flip = np.array([[-1, 0, out_width], [0, 1, 0], [0, 0, 1.0]]) if is_flipped else np.eye(3)
    return flip @ crop @ scaled


@settings(max_examples=examples(6, 20), deadline=None)
@given(
    seed=st.integers(0, 1000),
    is_kept_inside=st.booleans(),
    bottom_range=st.sampled_from([(0, 0), (0.1, 0.1), (0, 0.3)]),
    fixed_share=st.sampled_from([None, 0.0, 0.5, 1.0]),
)
@example(0, False, (0, 0.3), None)
@example(0, False, (0, 0), 0.5)
def test_resize_crop_flip(seed: int, is_kept_inside: bool, bottom_range: Any, fixed_share: float | None) -> None:
    """What is fixed is not drawn."""
    step = ImageResizeCropFlipper(
        "image",
        output_hw=[7, 9],
        scale_range=(0.5, 1.5),
        bottom_crop_range=bottom_range,
        crop_x_range=(0, 1) if fixed_share is None else (fixed_share, fixed_share),
        flip_prob=0.5,
        is_kept_inside=is_kept_inside,
        fill_value=7,
        **FIELDS,
    )
    low, high = bottom_range
    names = ["scale", *["bottom"] * (low != high), *["share"] * (fixed_share is None), "is_flipped"]
    assert drawn_names(step) == names
    shares = np.random.default_rng(seed).random((3, 4)).astype(np.float32)
    if fixed_share is not None:
        shares[:, 2] = fixed_share
    drawn = [
        {"scale": 0.5 + one[0], "bottom": low + one[1] * (high - low), "share": one[2], "is_flipped": one[3]}
        for one in shares
    ]
    found = outputs(step, samples(seed), draws=[{name: each[name] for name in names} for each in drawn])
    for sample, output, hw, draws in zip(samples(seed), found, SIZES, drawn, strict=True):
        scale, bottom = float(draws["scale"]), float(draws["bottom"])
        if is_kept_inside:
            scale = max(scale, 7 / hw[0], 9 / hw[1])
            bottom = min(bottom, 1 - 7 / (scale * hw[0]))
        matrix = crop_matrix(hw, (7, 9), scale, bottom, float(draws["share"]), draws["is_flipped"] < 0.5)
        assert_fits(sample, output, matrix, (7, 9), 7)
        if is_kept_inside:
            corners = np.linalg.inv(matrix)[:2] @ [[0, 9], [0, 7], [1, 1]]
            assert (corners >= -1e-6).all()
            assert (corners <= [[hw[1] + 1e-6], [hw[0] + 1e-6]]).all()


@pytest.mark.parametrize("bottom_range", [(0, 0), (0.1, 0.3)])
def test_in_evaluation_nothing_is_left_to_chance(bottom_range: tuple[float, float]) -> None:
    """As `ResizeCropFlipRotImage` with `training=False`, but for its rounding."""
    step = ImageResizeCropFlipper(
        "image", output_hw=[7, 9], scale_range=(0.5, 1.5), bottom_crop_range=bottom_range, fill_value=7, **FIELDS
    )
    evaluation = step.for_evaluation()
    assert drawn_names(evaluation) == []
    assert drawn_names(step) == ["scale", *(["bottom"] if bottom_range[1] else []), "share", "is_flipped"]
    for sample, output, (height, width) in zip(samples(), outputs(evaluation, samples()), SIZES, strict=True):
        scale = max(7 / height, 9 / width)
        matrix = np.diag([scale, scale, 1.0])
        matrix[0, 2] = -max(0, scale * width - 9) / 2
        matrix[1, 2] = -((1 - np.mean(bottom_range)) * scale * height - 7)
        assert_fits(sample, output, matrix, (7, 9), 7)


# --- image files ----------------------------------------------------------------------------------------

BOTTOM: Any = {"bottom_crop_range": (0.2, 0.2)}
ENCODED: dict[str, tuple[type[PipelineStepBase], dict[str, Any]]] = {
    "crop": (ImageResizer, {"mode": "crop", "anchor": "bottom_or_right"}),
    "pad": (ImageResizer, {"mode": "pad"}),
    "smaller": (ImageResizeCropFlipper, {"scale_range": (0.4, 0.4), "flip_prob": 1, **BOTTOM}),
    "larger": (ImageResizeCropFlipper, {"scale_range": (2.5, 2.5), "flip_prob": 0, **BOTTOM}),
    "inside": (ImageResizeCropFlipper, {"scale_range": (0.1, 0.1), "is_kept_inside": True}),
}


@each_value(name=ENCODED, options=[{"kind": "PNG"}, {"subsampling": 2, "quality": 90}])
def test_a_decoded_part_is_that_part_of_the_image(name: str, options: Any) -> None:
    make, arguments = ENCODED[name]
    arguments = {"output_hw": [32, 44], "fill_value": 3, **arguments}
    sizes = [(90, 160), (70, 50)]
    files = [sample_of({"image": encoded_image(gradient(*hw, hw[0] % 3), **options)}) for hw in sizes]
    decoded = run_step([ImageDecoder("image", False), make("image", **arguments)], files)
    draws = [{name.split("/")[1]: value for name, value in run.draws.items()} for run in decoded]
    step = make("image", is_encoded=True, **arguments)
    found = outputs(step, files, draws=draws)
    for number, run in enumerate(decoded):
        expected, one = run.output["image"], found[number]["image"]
        assert expected.shape == one.shape
        assert np.abs(expected.astype(int) - one).max() <= 1
        [alone] = outputs(step, files[number : number + 1], draws=draws[number : number + 1])
        assert_same(alone["image"], one)


def test_size_fields_are_compared_with_image_files() -> None:
    step = ImageResizer("image", output_hw=[4, 4], hw_names="hw", is_encoded=True)
    file = encoded_image(gradient(8, 9), "PNG")
    assert run_step(step, sample_of({"image": file, "hw": np.array([8, 9])})).output["hw"].tolist() == [4, 4]
    with pytest.raises(RuntimeError, match="The images or size fields of a sample differ in size"):
        run_step(step, sample_of({"image": file, "hw": np.array([9, 8])}))


# --- mirroring ------------------------------------------------------------------------------------------


def test_mirroring_in_a_batch_that_mixes_decisions() -> None:
    step = HorizontalFlipper("image", prob=0.4, **FIELDS)
    [name] = drawn_names(step)
    found = outputs(step, samples(), draws=[{name: share} for share in (0.3, 0.5, 0.1)])
    for sample, output, is_flipped in zip(samples(), found, (True, False, True), strict=True):
        hw = sample["image"].shape[:2]
        matrix = np.array([[-1, 0, hw[1]], [0, 1, 0], [0, 0, 1.0]]) if is_flipped else np.eye(3)
        assert_fits(sample, output, matrix, hw)
        for name in ("image", "mask"):
            assert_same(output[name], np.ascontiguousarray(sample[name][:, ::-1]) if is_flipped else sample[name])
        if not is_flipped:
            assert_same(output["boxes"], sample["boxes"])
        assert (output["boxes"][:, :2] <= output["boxes"][:, 2:]).all()
