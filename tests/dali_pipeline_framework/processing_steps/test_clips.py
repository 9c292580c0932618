"""All image steps on clips."""

from __future__ import annotations

from typing import Any

import numpy as np
from affine_reference import constant_draws
from step_runs import assert_same, run_steps
from support.arrays import DT
from support.laws import some, spread
from support.public_steps import PUBLIC_STEPS

from accvlab.dali_pipeline_framework.processing_steps import AffineTransformer as A
from accvlab.dali_pipeline_framework.processing_steps import (
    AxesLayoutSetter,
    GridMasker,
    HorizontalFlipper,
    ImageMeanStdDevNormalizer,
    ImageRange01Normalizer,
    ImageResizeCropFlipper,
    ImageResizer,
    ImageToTileSizePadder,
    LambdaStep,
    PhotoMetricDistorter,
    PipelineStepBase,
    TensorSizeAdder,
)

SHARE = 0.3  # of their ranges, for all random numbers
STRETCH, PAD, CENTER = A.ResizingMode.STRETCH, A.ResizingMode.PAD, A.ResizingAnchor.CENTER


def half_way(one: Any) -> Any:
    return one * 0.5


IMAGE_STEPS: dict[str, PipelineStepBase] = {
    "AffineTransformer, warp": A((18, 22), STRETCH, None, "image", transformation_steps=[A.Rotation(1, 5, 30)]),
    "AffineTransformer, pasted": A(
        (18, 22), STRETCH, None, "image", transformation_steps=[A.UniformScaling(1, 0.7)], fill_value=9
    ),
    "AffineTransformer, region": A((18, 22), STRETCH, None, "image"),
    "AffineTransformer, part": A((18, 22), PAD, CENTER, "image", transformation_steps=[A.Translation(1, [3, 4])]),
    "AxesLayoutSetter": AxesLayoutSetter("image", ""),
    "GridMasker": GridMasker("image", prob=1, tile_range=(4, 7), angle_range=(0, 0.5)),
    "HorizontalFlipper": HorizontalFlipper("image", prob=1),
    "ImageMeanStdDevNormalizer": ImageMeanStdDevNormalizer("image", [1, 2, 3], 50),
    "ImageRange01Normalizer": ImageRange01Normalizer("image"),
    "ImageResizeCropFlipper": ImageResizeCropFlipper(
        "image", output_hw=(14, 18), scale_range=(0.8, 1.2), bottom_crop_range=(0, 0.3), flip_prob=1
    ),
    "ImageResizer": ImageResizer("image", output_hw=(14, 18), mode="crop"),
    "ImageResizer, pad": ImageResizer("image", output_hw=(14, 18), mode="pad"),
    "ImageToTileSizePadder": ImageToTileSizePadder("image", (16, 10), fill_value=3),
    "LambdaStep": LambdaStep(half_way, input_names="image", output_types={"image": DT.FLOAT}),
    "PhotoMetricDistorter": PhotoMetricDistorter("image", [-30, 30], [-18, 18], [0.5, 1.5], [0.5, 1.5]),
}
CLIPS = [
    np.random.default_rng(frames).integers(0, 256, (frames, *hw, 3), dtype=np.uint8)
    for frames, hw in ((3, (20, 28)), (1, (17, 23)))
]


def run_images(step: PipelineStepBase, images: list[np.ndarray], layout: str) -> list[np.ndarray]:
    dtype = DT.UINT8 if images[0].dtype == np.uint8 else DT.FLOAT
    with constant_draws(SHARE):
        return run_steps(step, {"image": (dtype, images)}, layouts={"image": layout})["image"]


@spread("name", IMAGE_STEPS, 7)
@some("is_float", [False, True], {0}, ids=["uint8", "float"])
def test_a_clip_is_what_its_frames_are_one_by_one(name: str, is_float: bool) -> None:
    """With and without layouts."""
    step = IMAGE_STEPS[name]
    clips = [(clip / 255).astype(np.float32) for clip in CLIPS] if is_float else CLIPS
    frames = [frame for clip in clips for frame in clip]
    expected = run_images(step, frames, "HWC")
    assert name == "AxesLayoutSetter" or any(
        one.shape != frame.shape or (one != frame).any() for one, frame in zip(expected, frames, strict=True)
    )
    for one, other in zip(run_images(step, frames, ""), expected, strict=True):
        assert_same(one, other)
    for layout in ("FHWC", ""):
        found = run_images(step, clips, layout)
        assert [len(clip) for clip in found] == [len(clip) for clip in clips]
        for one, other in zip([frame for clip in found for frame in clip], expected, strict=True):
            assert_same(one, other)


def test_sizes_of_clips_are_those_of_their_frames() -> None:
    for layout in ("FHWC", ""):
        run = run_steps(TensorSizeAdder("image", "_hw"), {"image": (DT.UINT8, CLIPS)}, layouts={"image": layout})
        assert [size.tolist() for size in run["image_hw"]] == [[20, 28], [17, 23]]


def test_no_step_of_images_is_left_out() -> None:
    of_images = {name for name, case in PUBLIC_STEPS.items() if case.samples[0].has_child("image")}
    of_clips = {name.split(",")[0] for name in IMAGE_STEPS} | {"TensorSizeAdder"}
    assert of_images - {"ImageDecoder", "VideoDecoder"} == of_clips - {"LambdaStep"}
