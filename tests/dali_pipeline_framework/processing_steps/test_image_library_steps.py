"""Transforms of torchvision and Albumentations as steps."""

from __future__ import annotations

import pickle
import random
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from nvidia.dali import types
from support.arrays import DT
from support.optional_packages import has, import_torchvision
from support.random_steps import filled
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework import AlbumentationsStep, MapStep, SampleDataGroup, TorchvisionStep
from accvlab.dali_pipeline_framework.errors import FormatError, StepOutputError
from accvlab.dali_pipeline_framework.testing import check_step, run_step

needs_albumentations = pytest.mark.skipif(not has("albumentations"), reason="albumentations is not installed")
H, W = 24, 36
LIBRARIES = ["torchvision", "albumentations"]
ROOT = Path(__file__).resolve().parents[3]


def scene(height: int = H, width: int = W, number: int = 0) -> SampleDataGroup:
    """A gradient, its mask, three boxes with labels, and the corners of the first box as points."""
    image = np.arange(height * width * 3, dtype=np.int64).reshape(height, width, 3) % (251 - number)
    boxes = [[2, 3, 12, 9], [20, 4, 35, 20], [1, 1, 3, 2]]
    return filled(
        {
            "image": (DT.UINT8, image),
            "mask": (DT.INT32, image[..., 0] // 64),
            "boxes": (DT.FLOAT, boxes),
            "labels": (DT.INT32, [7, 8, 9]),
            "points": (DT.INT32, [[2, 3], [12, 9]]),
            "matrix": (DT.FLOAT, np.eye(3)),
        }
    )


def transforms() -> Any:
    """Namespace of torchvision's transforms, or a skip."""
    import_torchvision()
    from torchvision.transforms import v2

    return v2


def flip_of(library: str, probability: float = 1.0) -> Any:
    """A step that mirrors, of a library."""
    if library == "torchvision":
        return TorchvisionStep(
            transforms().RandomHorizontalFlip(probability),
            "image",
            box_names="boxes",
            mask_names="mask",
            box_row_names="labels",
        )
    albumentations = pytest.importorskip("albumentations")
    compose = albumentations.Compose(
        [albumentations.HorizontalFlip(p=probability)],
        bbox_params=albumentations.BboxParams("pascal_voc", label_fields=["labels"]),
    )
    return AlbumentationsStep(compose, "image", box_names="boxes", mask_names="mask")


def values(sample: SampleDataGroup) -> dict[str, Any]:
    return {str(name): np.asarray(value) for name, value in sample.items()}


def on_arrays(step: Any, sample: SampleDataGroup) -> dict[str, Any]:
    return values(run_step(step, sample, run="workers").output)


def assert_same(found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert (found[name].dtype, name) == (value.dtype, name)
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.parametrize("library", LIBRARIES)
def test_mirrored_images_with_masks_and_boxes(library: str) -> None:
    before = values(scene())
    boxes = before["boxes"]
    expected = {
        **before,
        "image": before["image"][:, ::-1],
        "mask": before["mask"][:, ::-1],
        "boxes": np.stack([W - boxes[:, 2], boxes[:, 1], W - boxes[:, 0], boxes[:, 3]], 1),
    }
    step = flip_of(library)
    found = on_arrays(step, scene())
    np.testing.assert_allclose(found.pop("boxes"), expected.pop("boxes"), atol=1e-4)
    assert_same(found, expected)
    assert step.image_tolerance == 0


@pytest.mark.parametrize("library", LIBRARIES)
def test_steps_keep_the_contract(library: str) -> None:
    check_step(flip_of(library, 0.5), [scene(), scene(22, 40)])


@pytest.mark.parametrize("library", LIBRARIES)
def test_draws_are_a_function_of_the_sample_and_are_replayed(library: str) -> None:
    import torch

    def state() -> tuple[Any, ...]:
        return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()

    step, before = flip_of(library, 0.5), state()
    samples = [scene() for _ in range(12)]
    runs = run_step(step, samples, run="workers", seed=3)
    assert state() == before
    mirrored = [not np.array_equal(run.output["image"], samples[0]["image"]) for run in runs]
    assert 0 < sum(mirrored) < 12
    replayed = run_step(step, samples[::-1], draws=[run.draws for run in runs][::-1], run="workers")
    for run, again in zip(runs, replayed[::-1], strict=True):
        assert_same(values(again.output), values(run.output))


# --- torchvision -----------------------------------------------------------------------------------------


def test_boxes_that_torchvision_drops_take_their_rows_along() -> None:
    v2 = transforms()
    step = TorchvisionStep(
        v2.Compose([v2.CenterCrop((20, 20)), v2.SanitizeBoundingBoxes(min_size=2)]),
        "image",
        box_names="boxes",
        box_row_names="labels",
        mask_names="mask",
        point_names="points",
    )
    found = on_arrays(step, scene())
    before = values(scene())
    assert found["boxes"].tolist() == [[0, 1, 4, 7], [12, 2, 20, 18]]
    assert found["labels"].tolist() == [7, 8]
    np.testing.assert_array_equal(found["image"], before["image"][2:22, 8:28])
    np.testing.assert_array_equal(found["mask"], before["mask"][2:22, 8:28])
    assert (found["points"].dtype, found["points"][1].tolist()) == (np.int32, [4, 7])


@pytest.mark.parametrize("library", LIBRARIES)
def test_conversions_to_a_declared_type(library: str) -> None:
    import torch

    if library == "torchvision":
        step, transform = TorchvisionStep, transforms().ToDtype(torch.float32, scale=True)
    else:
        step, transform = AlbumentationsStep, compose(("ToFloat", {"max_value": 255}))
    found = on_arrays(step(transform, "image", image_type=DT.FLOAT), scene())
    np.testing.assert_allclose(found["image"], values(scene())["image"] / 255, atol=1e-6)
    with pytest.raises(
        StepOutputError, match=r"image: is declared as uint8, got float32 .*\n.*`image_type=DALIDataType.FLOAT`"
    ):
        on_arrays(step(transform, "image"), scene())


def drop_a_box(given: dict[str, Any]) -> dict[str, Any]:
    return {**given, "boxes": given["boxes"][1:]}


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (drop_a_box, "returned 2 boxes, but 3 of their numbers"),
        (lambda given: given["images"], "must return a dict of images, masks, boxes, labels"),
        (lambda given: {**given, "images": [given["images"][0][0]]}, "as many axes as it gets, 3; got Tensor"),
    ],
)
def test_results_of_torchvision_that_are_refused(transform: Any, message: str) -> None:
    import_torchvision()
    step = TorchvisionStep(transform, "image", box_names="boxes")
    with pytest.raises(StepOutputError, match=message):
        run_step(step, scene(), run="workers")


def test_clips_go_through_torchvision_as_videos() -> None:
    step = TorchvisionStep(transforms().RandomHorizontalFlip(1.0), "clip")
    clip = np.arange(2 * 4 * 5 * 3, dtype=np.uint8).reshape(2, 4, 5, 3)
    found = on_arrays(step, filled({"clip": (DT.UINT8, clip)}))
    np.testing.assert_array_equal(found["clip"], clip[:, :, ::-1])


# --- Albumentations --------------------------------------------------------------------------------------


def compose(*names_and_arguments: tuple[str, dict[str, Any]], **parameters: Any) -> Any:
    albumentations = pytest.importorskip("albumentations")
    known = {"bbox_params": albumentations.BboxParams, "keypoint_params": albumentations.KeypointParams}
    return albumentations.Compose(
        [getattr(albumentations, name)(**arguments) for name, arguments in names_and_arguments],
        **{name: known[name](**arguments) for name, arguments in parameters.items()},
    )


def crop(*corners: int) -> tuple[str, dict[str, Any]]:
    return "Crop", dict(zip(("x_min", "y_min", "x_max", "y_max"), corners, strict=True))


def test_boxes_and_points_that_albumentations_drops_take_their_rows_along() -> None:
    sample = scene()
    sample.add_data_field("is_left", DT.BOOL)
    sample["is_left"] = [True, False]
    transform = compose(
        crop(0, 0, 8, 8),
        bbox_params={"format": "pascal_voc", "label_fields": ["labels"], "min_area": 4},
        keypoint_params={"format": "xy", "remove_invisible": True},
    )
    names = {"box_names": "boxes", "point_names": "points", "mask_names": "mask", "point_row_names": "is_left"}
    step = AlbumentationsStep(transform, "image", **names)
    found = on_arrays(step, sample)
    np.testing.assert_allclose(found["boxes"], [[2, 3, 8, 8]], atol=1e-4)
    assert [found[name].tolist() for name in ("labels", "points", "is_left")] == [[7], [[2, 3]], [True]]
    np.testing.assert_array_equal(found["image"], values(scene())["image"][:8, :8])
    without_boxes = compose(crop(0, 20, 8, 24), bbox_params={"format": "pascal_voc"})
    found = on_arrays(
        AlbumentationsStep(without_boxes, "image", box_names="boxes", box_row_names="labels"), scene()
    )
    assert (found["boxes"].shape, found["labels"].shape) == ((0, 4), (0,))


FLIP = ("HorizontalFlip", {"p": 0.5})


@needs_albumentations
def test_frames_of_clips_are_changed_as_the_image_next_to_them() -> None:
    image = values(scene())["image"].astype(np.uint8)
    sample = filled(
        {
            "first": (DT.UINT8, image[None]),
            "image": (DT.UINT8, image),
            "clip": (DT.UINT8, np.stack([image, 250 - image])),
        }
    )
    names = ["first", "image", "clip"]
    for transform, is_always in ((("GaussianBlur", {"sigma_limit": (2, 2), "p": 1.0}), True), (FLIP, False)):
        for run in run_step(AlbumentationsStep(compose(transform), names), [sample] * 6, run="workers"):
            found = run.output
            assert [found[name].shape for name in names] == [(1, H, W, 3), (H, W, 3), (2, H, W, 3)]
            np.testing.assert_array_equal(found["first"][0], found["image"])
            np.testing.assert_array_equal(found["clip"][0], found["image"])
            assert not is_always or (found["image"] != image).any()


# What each line of the page makes of a sample; None: it is random, and only has to change the image.
RESULTS_OF_LINES: Mapping[str, Any] = {
    "GaussianBlur": ("image", None),
    "ImageCompression": ("image", None),
    "Erasing": ("image", None),
    "RandomBrightnessContrast": ("image", None),
    "ToGray": ("image", lambda sample: cv2.cvtColor(sample["image"], cv2.COLOR_RGB2GRAY)[..., None].repeat(3, 2)),
    ".copy()": ("image", lambda sample: sample["image"][..., [2, 1, 0]]),
    "hstack": ("boxes", lambda sample: np.array([[2, 3, 14, 12], [20, 4, 55, 24], [1, 1, 4, 3]], np.float32)),
    "t_ns": ("age_s", lambda sample: np.array([500_000_000, -1]) * 1e-9),
}


@needs_albumentations
def test_the_lines_of_the_page_replace_steps() -> None:
    import albumentations

    names = {"A": albumentations, "np": np, "types": types, "AlbumentationsStep": AlbumentationsStep}
    page = (ROOT / "docs" / "dali_pipeline_framework" / "steps" / "library_steps.md").read_text()
    lines = page.split("test_image_library_steps.py -->\n```py\n")[1].split("```")[0].splitlines()
    assert len(lines) == len(RESULTS_OF_LINES)
    sample = scene()
    for name, value in (("now_ns", np.int64(1_700_000_000_000_000_000)), ("t_ns", None)):
        sample.add_data_field(name, DT.INT64)
        sample[name] = value if value is not None else sample["now_ns"] - np.array([500_000_000, -1])
    for line, (part, (field, expected)) in zip(lines, RESULTS_OF_LINES.items(), strict=True):
        assert part in line
        step = eval(line, {**names, "MapStep": MapStep})
        if expected is None:
            found = [run.output[field] for run in run_step(step, [sample] * 8, seed=3, run="workers")]
            assert len({image.tobytes() for image in found}) > 2, line
            assert all(image.shape == sample["image"].shape for image in found), line
        else:
            found = run_step(step, sample, run="workers").output[field]
            assert found.dtype == expected(sample).dtype, line
            np.testing.assert_array_equal(found, expected(sample), line)


def test_images_of_different_sizes_are_refused() -> None:
    cameras = SampleDataGroup()
    for name, size in (("front", (H, W)), ("rear", (H, W + 2))):
        cameras.add_data_group_field(name, scene())
        cameras[name] = scene(*size)
    step = AlbumentationsStep(compose(("HorizontalFlip", {})), "image")
    with pytest.raises(ValueError, match=r"one size .*got front.image 24 x 36, rear.image 24 x 38"):
        run_step(step, cameras, run="workers")


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_a_single_transform_and_tensors() -> None:
    albumentations = pytest.importorskip("albumentations")
    found = run_step(AlbumentationsStep(albumentations.VerticalFlip(p=1.0), "image"), scene(), run="workers")
    np.testing.assert_array_equal(found.output["image"], values(scene())["image"][::-1])
    to_tensor = pytest.importorskip("albumentations.pytorch").ToTensorV2()
    with pytest.raises(StepOutputError, match="must return NumPy arrays, got Tensor"):
        run_step(AlbumentationsStep(to_tensor, "image"), scene(), run="workers")


def test_settings_that_are_refused() -> None:
    flip = compose(("HorizontalFlip", {}))
    for transform, arguments, message in [
        (flip, {"box_names": "boxes"}, "`box_names` needs a `Compose` with `bbox_params`"),
        (flip, {"point_names": "points"}, "`point_names` needs a `Compose` with `keypoint_params`"),
        (flip, {"image_type": np.uint8}, "`image_type` must be the type of a field"),
        (flip, {"key": "camera"}, "key"),
        (np.fliplr, {}, "must be a transform of Albumentations"),
    ]:
        assert_refused(partial(AlbumentationsStep, transform, "image", **arguments), message)


def test_formats_that_are_refused() -> None:
    boxes = compose(("HorizontalFlip", {}), bbox_params={"format": "pascal_voc", "label_fields": ["no_field"]})
    step = AlbumentationsStep(boxes, ["image", "matrix"], box_names="boxes", mask_names="labels")
    with pytest.raises(FormatError) as caught:
        step.check_input_data_format_and_set_output_data_format(scene().get_empty_like_self())
    assert "boxes: must be next to the boxes, for the label field 'no_field'" in str(caught.value)


def test_the_transform_of_the_user_is_left_alone() -> None:
    flip = compose(("RandomBrightnessContrast", {"p": 1.0}))
    flip.set_random_seed(3)
    twin = pickle.loads(pickle.dumps(flip))
    run_step(AlbumentationsStep(flip, "image"), scene(), run="workers")
    image = values(scene())["image"]
    np.testing.assert_array_equal(flip(image=image)["image"], twin(image=image)["image"])
