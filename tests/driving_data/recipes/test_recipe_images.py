"""Images of the recipes: against Pillow, by the contract of steps, and colors without limits."""

from __future__ import annotations

import itertools
import re
from typing import Any

import attrs
import cv2
import numpy as np
import pytest
from nvidia.dali import types
from PIL import Image
from support.array_samples import group_of, sample_of
from support.arrays import decoded_by_pillow, encoded_image, gradient, photograph
from support.laws import some
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework.errors import FieldValueError, FormatError
from accvlab.dali_pipeline_framework.sample_data import ImageContent, SampleDataGroup
from accvlab.dali_pipeline_framework.testing import check_step, run_step
from accvlab.driving_data.recipes import (
    BEVFusionSettings,
    Detection2DSettings,
    ImageAugmentation,
    PlannedImageAugmenter,
    SparseDriveSettings,
    StreamPETRSettings,
    UnclippedPhotometricDistorter,
)
from accvlab.driving_data.recipes.image_augmentation import ImagePlan

DT = types.DALIDataType
OUTPUT_HW = (24, 40)


def planned(plan: ImagePlan, file: np.ndarray) -> SampleDataGroup:
    image = (DT.UINT8, {"ndim": 1, "content": ImageContent(is_encoded=True)})
    sample = group_of(image=image, image_plan=(DT.FLOAT, {"ndim": 1}))
    sample["image"], sample["image_plan"] = file, plan.values
    return sample


def plans(rotation_deg: float = 0.0) -> list[ImagePlan]:
    return [
        ImagePlan((32, 56), (8, 9), False, rotation_deg, 0.8, OUTPUT_HW),
        ImagePlan((32, 56), (8, 9), True, rotation_deg, 0.8, OUTPUT_HW),
        ImagePlan((20, 35), (-4, 0), True, rotation_deg, 0.5, OUTPUT_HW),  # smaller than the output
    ]


def test_contract() -> None:
    samples = [planned(plan, encoded_image(gradient(40, 70), "PNG")) for plan in plans()]
    check_step(PlannedImageAugmenter("image", "image_plan", OUTPUT_HW), samples)


def test_contract_of_colors() -> None:
    check_step(UnclippedPhotometricDistorter("image"), [sample_of({"image": gradient(12, 16)})])
    sample = group_of(image=(DT.INT32, {"ndim": 3}))
    with pytest.raises(FormatError, match="image"):
        UnclippedPhotometricDistorter("image").check_input_data_format_and_set_output_data_format(sample)


def in_pillow(image: np.ndarray, plan: ImagePlan) -> np.ndarray:
    (height, width), (top, left) = plan.output_hw, plan.corner
    picture = Image.fromarray(image).resize(plan.scaled_hw[::-1]).crop((left, top, left + width, top + height))
    if plan.is_flipped:
        picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.asarray(picture.rotate(plan.rotation_deg))


def test_rotation_in_both_forms() -> None:
    plan = plans(rotation_deg=4.0)[0]
    sample = planned(plan, encoded_image(gradient(40, 70), "PNG"))
    step = PlannedImageAugmenter("image", "image_plan", OUTPUT_HW, rotates=True)
    one, other = (run_step(step, sample, run=run).output["image"].astype(int) for run in ("workers", "graph"))
    assert (np.abs(one - other).max(axis=-1) > 12).mean() < 0.02  # where another neighbor is the nearest one


# Least PSNR, dB: below a scale of 0.7, below one of 0.8, and from there on.
LEAST = {"workers": (40, 45, 50), "graph": (44, 44, 44), "reduced decoding": (40, 40, 40)}
SCALES = [0.7, 1.0, 1.1, 0.38, 0.44, 0.5, 0.55, 0.76, 0.88, 0.937, 0.995, 1.003, 1.3]


@some(("scale", "run"), itertools.product(SCALES, LEAST), range(3))
def test_images_are_those_of_pillow(scale: float, run: str) -> None:
    """Any part of an image is as near to Pillow as the whole image: its pixels are not shifted."""
    encoded = encoded_image(photograph(450, 800), "JPEG", quality=92)
    image = decoded_by_pillow(encoded)
    hw, is_reduced = (120, 200), run == "reduced decoding"
    step = PlannedImageAugmenter("image", "image_plan", hw, reduced_decoding=is_reduced)
    height, width = scaled = int(450 * scale), int(800 * scale)
    corners = [(0, 0), (height - 120, width - 200), (-30, 5), (height - 40, width - 60), (height // 9, width // 7)]
    corners += [(height, 0), (0, width), (-120, 0), (2000, 3000)]  # nothing of the image
    for number, corner in enumerate(corners):
        plan = ImagePlan(scaled, corner, bool(number % 2), 0.0, scale, hw)
        given: Any = "workers" if is_reduced else run
        result = run_step(step, planned(plan, encoded), run=given).output["image"]
        expected = in_pillow(image, plan)
        noise = np.mean((result.astype(float) - expected) ** 2)
        assert 10 * np.log10(255**2 / max(noise, 1e-9)) >= LEAST[run][(scale >= 0.7) + (scale >= 0.8)], corner
        assert not result[in_pillow(np.full_like(image, 255), plan) == 0].any()
        if scale == 1 and run == "workers":
            np.testing.assert_array_equal(result, expected)


def test_matrix_follows_the_drawn_factor() -> None:
    augmentation = ImageAugmentation(output_hw=OUTPUT_HW, scale_range=(0.5, 0.9), rotation_range_deg=(-5, 5))
    numbers = {"scale": 0.777, "bottom": 0.0, "share": 0.5, "is_flipped": 0.1, "rotation_deg": 3.0}
    plan = augmentation.plan((40, 70), lambda name: np.float32(numbers[name]))
    assert plan.scaled_hw == (31, 54)
    assert plan.corner == (7, 7)
    assert plan.is_flipped
    middle = np.array([40 - (35 * np.float64(np.float32(0.777)) - 7), 20 * np.float64(np.float32(0.777)) - 7])
    turn = np.radians(np.float64(np.float32(3.0)))
    center = np.array([20.0, 12.0])
    x, y = middle - center
    expected = center + np.array([np.cos(turn) * x + np.sin(turn) * y, -np.sin(turn) * x + np.cos(turn) * y])
    np.testing.assert_allclose((plan.matrix @ [35, 20, 1])[:2], expected)
    fixed = ImageAugmentation(output_hw=OUTPUT_HW, scale_range=(0.48, 0.48), flip_prob=0.0)
    assert fixed.plan((900, 1600), lambda name: np.float32(0)).scaled_hw == (432, 768)  # float32 would give 431
    filling = augmentation.for_evaluation().plan((40, 70), lambda name: np.float32(0.5))
    assert (filling.scaled_hw, filling.corner, filling.is_flipped) == ((24, 42), (0, 1), False)


PUBLISHED = {
    "StreamPETR": StreamPETRSettings().images,
    "SparseDrive": SparseDriveSettings().images,
    "Sparse4D": SparseDriveSettings.sparse4d().images,
    "BEVFusion": BEVFusionSettings().images,
    "2D detection": Detection2DSettings().images,
    "StreamPETR, 800 x 320": ImageAugmentation(output_hw=(320, 800), scale_range=(0.47, 0.625)),
    "StreamPETR, 1600 x 640": ImageAugmentation(output_hw=(640, 1600), scale_range=(0.94, 1.25)),
}


class TestBlack:
    """Images that do not fill the output."""

    @pytest.mark.parametrize("name", PUBLISHED)
    def test_published_settings_take_the_images_that_they_are_for(self, name: str) -> None:
        images = PUBLISHED[name]
        extremes = [attrs.evolve(images, scale_range=(scale, scale)) for scale in images.scale_range or ()]
        for hw in ((900, 1600), (1080, 1920), (1280, 1920)):
            assert [
                each.misfit(hw) for each in (images, images.for_evaluation(), *extremes) if each.misfit(hw)
            ] == []

    def test_others_name_what_fits(self) -> None:
        images, hw = PUBLISHED["StreamPETR"], (450, 800)
        message = str(images.misfit(hw))
        assert message.startswith("images of 800 x 450 pixels (width x height), scaled by 0.38 to 0.55, have ")
        assert "do not fill the output of 704 x 256: on average 56% of it is black" in message
        assert "`scale_range=(0.76, 1.1)` fits" in message
        assert_refused(lambda: images.plan(hw, lambda name: np.float32(0.5)), message, FieldValueError)

    @pytest.mark.parametrize("scale_range", [(0.5, 0.5), (0.45, 0.9), (0.1, 0.3), None])
    @pytest.mark.parametrize("bottom_crop_range", [(0.0, 0.0), (0.0, 0.5), (0.4, 0.4)])
    @pytest.mark.parametrize("hw", [(40, 70), (500, 300), (200, 1000)])
    def test_the_share_is_that_of_the_images(self, scale_range: Any, bottom_crop_range: Any, hw: Any) -> None:
        """Against pixels, at the mean crop; and what is said to fit, does."""
        images = ImageAugmentation(
            output_hw=(120, 150), scale_range=scale_range, bottom_crop_range=bottom_crop_range, flip_prob=0
        )
        least, most = scale_range or (max(120 / hw[0], 150 / hw[1]),) * 2
        shares = []
        for scale in np.linspace(least, most, 21):
            numbers = {"scale": scale, "bottom": np.mean(bottom_crop_range), "share": 0, "is_flipped": 1}
            numbers["rotation_deg"] = 0
            plan = attrs.evolve(images, allows_black=True).plan(hw, lambda name, of=numbers: of[name])
            shown = np.zeros(images.output_hw, bool)
            end = plan.scaled_hw[0] - plan.corner[0], plan.scaled_hw[1] - plan.corner[1]
            shown[max(-plan.corner[0], 0) : max(end[0], 0), max(-plan.corner[1], 0) : max(end[1], 0)] = True
            shares.append(1 - shown.mean())
        message = images.misfit(hw) or ""
        assert bool(message) == (np.mean(shares) > 0.15)
        for percent, advice in re.findall(r"on average (\d+)%.*`(\w+=\(.*?\))` fits", message):
            assert abs(int(percent) / 100 - np.mean(shares)) < 0.011
            assert attrs.evolve(images, **eval(f"dict({advice})")).misfit(hw) is None

    def test_evaluation_is_asked_for_as_training_is(self) -> None:
        images = ImageAugmentation(bottom_crop_range=(0.6, 0.6), allows_black=True)
        assert images.for_evaluation().misfit((450, 800)) is None
        message = attrs.evolve(images, allows_black=False).for_evaluation().misfit((450, 800))
        assert "`bottom_crop_range=(0.0, 0.0)` fits" in str(message)


ORDERS = list(itertools.permutations(range(3)))


def published_distortion(bgr: np.ndarray, numbers: dict[str, Any], happens: list[bool]) -> np.ndarray:
    """Step by step, as the published code does it."""
    brightness, contrast_first, contrast, saturation, hue, permutation = happens
    image = bgr.astype(np.float32)
    if brightness:
        image += numbers["brightness"]
    if contrast_first and contrast:
        image *= numbers["contrast"]
    image = cv2.cvtColor(image, cv2.COLOR_BGR2HSV)
    if saturation:
        image[..., 1] *= numbers["saturation"]
    if hue:
        image[..., 0] += numbers["hue"]
        image[..., 0][image[..., 0] > 360] -= 360
        image[..., 0][image[..., 0] < 0] += 360
    image = cv2.cvtColor(image, cv2.COLOR_HSV2BGR)
    if contrast and not contrast_first:
        image *= numbers["contrast"]
    return image[..., ORDERS[numbers["permutation"]]] if permutation else image


EXTREMES = {"brightness_range": (-60, 60), "contrast_range": (0, 3), "saturation_range": (0, 3)}


@pytest.mark.parametrize("hue_range_deg", [(-60, 60), (59.9, 60), (-60, -59.9)])
def test_any_colors_are_changed_alike_in_both_forms(hue_range_deg: tuple[float, float]) -> None:
    """Values below 0, above 255 and equal ones, gray, and turns from a channel to the next one."""
    rng = np.random.default_rng(2)
    coarse = rng.integers(0, 4, (50, 40, 3)).astype(np.float32) * 100 - 100
    fine = rng.uniform(-80, 600, (50, 40, 3)).astype(np.float32)
    gray = np.repeat(fine[..., :1], 3, axis=-1)
    of_files = rng.integers(0, 256, (9, 7, 3)).astype(np.uint8)
    floats, files = (
        [sample_of({"image": each}) for each in images] for images in ((coarse, fine, gray), [of_files])
    )
    step = UnclippedPhotometricDistorter("image", hue_range_deg=hue_range_deg, **EXTREMES)
    for samples in (floats * 20, files * 20):
        runs = [run_step(step, samples, seed=3, run=run) for run in ("workers", "graph")]  # type: ignore[arg-type]
        for sample, one, other in zip(samples, *runs, strict=True):
            assert one.output["image"].dtype == np.float32
            np.testing.assert_allclose(one.output["image"], other.output["image"], atol=5e-3)
            draws = {name.rsplit("/", 1)[-1]: value for name, value in one.draws.items()}
            happens = [bool(decision < 0.5) for decision in draws["decisions"]]
            expected = published_distortion(sample["image"][..., ::-1], draws, happens)[..., ::-1]
            np.testing.assert_allclose(one.output["image"], expected, atol=5e-3)


def test_colors_that_only_arrays_can_have() -> None:
    for ranges in ({"hue_range_deg": (0, 61)}, {"contrast_range": (-0.1, 1)}, {"saturation_range": (-1, 0)}):
        assert not UnclippedPhotometricDistorter("image", **ranges).has_graph_form  # type: ignore[arg-type]
