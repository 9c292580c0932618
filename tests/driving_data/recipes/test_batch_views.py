"""Pictures of batches: the same objects at the same places, whichever model the batch is for."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import pytest
from driving_support.recipe_cases import OF_DRIVE, batches_of

from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.driving_data.datasets import DrivingProvider
from accvlab.driving_data.recipes import BEVFORMER, Detection2DSettings, batch_view
from accvlab.driving_data.viewing import show
from accvlab.driving_data.viewing.scene_views import scene_view

OF_OTHER_BOXES = (BEVFORMER, attrs.evolve(OF_DRIVE["bevformer"][1], box_layout="l,w,h,yaw"))
CASES = {**OF_DRIVE, "bevformer, other boxes": OF_OTHER_BOXES}
OF_SCENES = sorted(CASES.keys() - {"detection_2d"})


def first_batch(drive: Any, name: str, batch_size: int = 1) -> tuple[Any, Any, Any]:
    recipe, settings = CASES[name]
    provider = DrivingProvider(*drive, **settings.provider_fields())
    return provider, settings, batches_of(recipe, provider, settings, batch_size)[0]


def delivered(provider: DrivingProvider, batch: Any) -> Any:
    """The sample of the provider that the batch shows."""
    token = batch["token"][0] if isinstance(batch["token"][0], str) else batch["token"][0][-1]
    return next(one for one in map(provider.get_data, range(len(provider))) if one["token"] == token)


@pytest.mark.parametrize("name", OF_SCENES)
def test_boxes_are_those_of_the_provider(drive: Any, name: str) -> None:
    provider, settings, batch = first_batch(drive, name)
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


@pytest.mark.parametrize("name", OF_SCENES)
def test_images_are_drawn_with_the_matrices_of_the_model(drive: Any, name: str) -> None:
    provider, settings, batch = first_batch(drive, name)
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


def test_heatmaps_lie_on_the_images(drive: Any) -> None:
    provider, settings, batch = first_batch(drive, "detection_2d", 2)
    view = batch_view(batch, settings, 1, camera_names=provider.camera_names)
    for row, camera in enumerate(view.cameras, start=len(provider.camera_names)):
        np.testing.assert_array_equal(camera.heatmap, batch["hm"][row].max(axis=0))
        assert camera.image.shape[:2] == batch["input"].shape[2:]


def test_each_frame_of_a_queue_has_its_own_boxes(drive: Any) -> None:
    recipe, settings = OF_DRIVE["streampetr"]
    settings = attrs.evolve(settings, queue_length=2)
    provider = DrivingProvider(*drive, **settings.provider_fields())
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
    _, settings, batch = first_batch(drive, "bevformer")  # learns the boxes of the last frame
    assert [len(batch_view(batch, settings, frame=frame).centers) > 0 for frame in (0, 1)] == [False, True]


def test_a_batch_of_another_recipe_is_refused(drive: Any) -> None:
    _, _, batch = first_batch(drive, "streampetr")
    with pytest.raises(SettingError, match="must be one of the recipe of Detection2DSettings: it has no 'input'"):
        batch_view(batch, Detection2DSettings())
    with pytest.raises(
        SettingError, match=r"`settings` must be one of StreamPETRSettings, .*, AlpamayoSettings, got dict"
    ):
        batch_view(batch, {})  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="`camera_names` must have a name for each of 2 cameras, got 1"):
        batch_view(batch, OF_DRIVE["streampetr"][1], camera_names=["front"])
    with pytest.raises(SettingError, match="`sample`"):
        batch_view(batch, OF_DRIVE["streampetr"][1], 3)
