"""Pictures of batches: the same objects at the same places, whichever model the batch is for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from driving_support.drives import write_drive
from driving_support.recipe_cases import batches_of
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework.errors import SettingError, SourceError
from accvlab.driving_data.datasets import DrivingProvider
from accvlab.driving_data.recipes import (
    BEVFORMER,
    BEVFUSION,
    DETECTION_2D,
    SPARSEDRIVE,
    STREAMPETR,
    BEVFormerSettings,
    BEVFusionSettings,
    Detection2DSettings,
    ImageAugmentation,
    Recipe,
    SparseDriveSettings,
    StreamPETRSettings,
    batch_view,
)
from accvlab.driving_data.viewing import show
from accvlab.driving_data.viewing.scene_views import scene_view

CLASSES = ("car", "pedestrian", "barrier")
WIDE = (-1e4, -1e4, -1e4, 1e4, 1e4, 1e4)
IMAGES = ImageAugmentation(output_hw=(32, 48), scale_range=(0.5, 0.8), allows_black=True)
# Nothing moves the scene, so that boxes are where the provider has them.
STILL: dict[str, Any] = {"images": IMAGES, "classes": CLASSES}
STREAMED = StreamPETRSettings(
    **STILL, bev_rotation_range=(0, 0), bev_scale_range=(1, 1), point_cloud_range=WIDE, split=1
)
OF_LIDAR: dict[str, Any] = {"num_sweeps": 0, "num_loaded_sweeps": 0, "point_cloud_range": WIDE}
OF_LIDAR |= {"rotation_range": (0, 0), "scale_range": (1, 1), "translation_std": 0, "flip_prob": 0}
RECIPES: dict[str, tuple[Recipe, Any]] = {
    "streampetr": (STREAMPETR, STREAMED),
    "sparsedrive": (SPARSEDRIVE, SparseDriveSettings(**STILL, circle_range=1e4)),
    "bevformer": (BEVFORMER, BEVFormerSettings(classes=CLASSES, point_cloud_range=WIDE, queue_length=2)),
    "bevfusion": (BEVFUSION, BEVFusionSettings(**STILL, **OF_LIDAR)),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    root = tmp_path_factory.mktemp("drive")
    return root, write_drive(root)


def first_batch(data: tuple[Path, Any], name: str) -> tuple[Any, Any, Any]:
    recipe, settings = RECIPES[name]
    root, index = data
    provider = DrivingProvider(index, root, **settings.provider_fields())
    return provider, settings, batches_of(recipe, provider, settings)[0]


def delivered(provider: DrivingProvider, batch: Any) -> Any:
    """The sample of the provider that the batch shows."""
    token = batch["token"][0] if isinstance(batch["token"][0], str) else batch["token"][0][-1]
    return next(one for one in map(provider.get_data, range(len(provider))) if one["token"] == token)


@pytest.mark.parametrize("name", RECIPES)
def test_boxes_are_those_of_the_provider(data: Any, name: str) -> None:
    provider, settings, batch = first_batch(data, name)
    view = batch_view(batch, settings, camera_names=provider.camera_names)
    expected = scene_view(delivered(provider, batch))
    order = np.argsort(view.centers[:, 0])
    of_classes = np.flatnonzero(expected.categories >= 0)
    expected_order = of_classes[np.argsort(expected.centers[of_classes, 0])]
    np.testing.assert_allclose(view.centers[order], expected.centers[expected_order], atol=1e-4)
    np.testing.assert_allclose(view.sizes[order], expected.sizes[expected_order], rtol=1e-5)
    turned = view.yaws[order] - expected.yaws[expected_order]
    np.testing.assert_allclose(np.cos(turned), 1, atol=1e-6)
    np.testing.assert_array_equal(view.categories[order], expected.categories[expected_order])


@pytest.mark.parametrize("name", RECIPES)
def test_images_are_drawn_with_the_matrices_of_the_model(data: Any, name: str) -> None:
    provider, settings, batch = first_batch(data, name)
    view = batch_view(batch, settings, camera_names=provider.camera_names)
    sample = delivered(provider, batch)
    points = np.array([[8.0, 1.0, 0.5, 1.0], [15.0, -2.0, 1.0, 1.0], [9.0, 0.2, -0.5, 1.0]])
    for camera, given in zip(view.cameras, sample["cameras"].values(), strict=True):
        assert camera.image.dtype == np.uint8
        # Pixels of the image before and after are related by one affine change, the same for all points.
        before = given["intrinsics"] @ given["camera_from_reference"][:3] @ points.T
        after = camera.image_from_reference @ points.T
        np.testing.assert_allclose(before[2], after[2], rtol=1e-4)
        pixels = np.concatenate([before[:2] / before[2], np.ones((1, 3))])
        change = (after[:2] / after[2]) @ np.linalg.inv(pixels)
        scale = np.sqrt(abs(np.linalg.det(change[:, :2])))
        assert 0.3 < scale < 1.2
        np.testing.assert_allclose(change[:, :2] @ change[:, :2].T, scale**2 * np.eye(2), atol=1e-3)
    show(view)


def test_heatmaps_lie_on_the_images(data: Any) -> None:
    root, index = data
    settings = Detection2DSettings(classes=CLASSES)
    provider = DrivingProvider(index, root, **settings.provider_fields())
    batch = batches_of(DETECTION_2D, provider, settings, 2)[0]
    view = batch_view(batch, settings, 1, camera_names=provider.camera_names)
    num_cameras = len(provider.camera_names)
    for number, camera in enumerate(view.cameras):
        row = num_cameras + number
        np.testing.assert_array_equal(camera.heatmap, batch["hm"][row].max(axis=0))
        assert camera.image.shape[:2] == batch["input"].shape[2:]


def test_each_frame_of_a_queue_has_its_own_boxes(data: Any) -> None:
    root, index = data
    recipe, settings = RECIPES["streampetr"]
    settings = attrs.evolve(settings, queue_length=2)
    provider = DrivingProvider(index, root, **settings.provider_fields())
    batch = batches_of(recipe, provider, settings)[1]
    by_token = {one["token"]: scene_view(one) for one in map(provider.get_data, range(len(provider)))}
    for frame in (0, 1, -1):
        view = batch_view(batch, settings, frame=frame)
        expected = by_token[batch["token"][0][frame]]
        of_classes = expected.centers[expected.categories >= 0]
        np.testing.assert_allclose(np.sort(view.centers, axis=0), np.sort(of_classes, axis=0), atol=1e-4)
        assert view.title.startswith(batch["scene"][0][frame])
    for frame in (2, -3):
        with pytest.raises(SettingError, match="`frame`"):
            batch_view(batch, settings, frame=frame)
    _, settings, batch = first_batch(data, "bevformer")  # learns the boxes of the last frame
    assert [len(batch_view(batch, settings, frame=frame).centers) > 0 for frame in (0, 1)] == [False, True]


def test_a_batch_of_another_recipe_is_refused(data: Any) -> None:
    _, _, batch = first_batch(data, "streampetr")
    with pytest.raises(SettingError, match="must be one of the recipe of Detection2DSettings: it has no 'input'"):
        batch_view(batch, Detection2DSettings())
    with pytest.raises(SettingError, match="`settings` must be those of a recipe, got dict"):
        batch_view(batch, {})  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="`sample`"):
        batch_view(batch, RECIPES["streampetr"][1], 3)


@pytest.mark.parametrize("name", ["streampetr", "sparsedrive", "bevfusion", "detection_2d"])
def test_images_that_leave_the_output_black_are_refused(data: Any, name: str) -> None:
    root, index = data
    of_objects = Detection2DSettings(classes=CLASSES, images=ImageAugmentation(scale_range=(2.0, 3.0)))
    recipe, settings = RECIPES.get(name, (DETECTION_2D, of_objects))
    settings = attrs.evolve(settings, images=attrs.evolve(settings.images, allows_black=False))
    words = "images of 44 x 30 pixels ... do not fill the output of ... is black. `scale_range=(...)` fits"
    provider = DrivingProvider(index, root, **settings.provider_fields())
    assert_refused(lambda: batches_of(recipe, provider, settings), words, SourceError)


def test_a_recipe_takes_its_own_settings_only(data: Any) -> None:
    with pytest.raises(SettingError, match="`settings` must be StreamPETRSettings, got Detection2DSettings"):
        STREAMPETR.loader(DrivingProvider(data[1], data[0]), 1, Detection2DSettings())
