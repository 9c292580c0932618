"""Clips as pictures: every frame can be shown, in whichever form a clip comes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from driving_support.driving_data import write_driving_data
from support.videos import make_video, read_numbers
from support.windows import video_clips

from accvlab.dali_pipeline_framework import DataLoader, ImageDecoder, Videos
from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.driving_data.datasets import DrivingProvider
from accvlab.driving_data.recipes import QueueProvider
from accvlab.driving_data.viewing import ViewFields, scene_view, show


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("videos")
    return {
        name: make_video(folder / f"{name}.mkv", 12, "mjpeg", first_number=100 * number)
        for number, name in enumerate(("front", "left"))
    }


@pytest.mark.parametrize("num_cameras", [1, 2])
@pytest.mark.parametrize("is_batch", [False, True])
def test_every_frame_can_be_shown(videos: dict[str, Path], num_cameras: int, is_batch: bool) -> None:
    provider = video_clips(Videos(cameras=videos) if num_cameras == 2 else videos["front"], 4)
    data: Any = provider.get_data(0)
    if is_batch:
        with DataLoader(provider, 2, num_workers=0, output_type="numpy", shuffle=False) as loader:
            data = next(iter(loader))
    fields = ViewFields(image="frames")
    for frame in range(4):
        view = scene_view(data, frame=frame, fields=fields)
        numbers = [read_numbers(camera.image[None])[0] for camera in view.cameras]
        assert numbers == [frame, 100 + frame][:num_cameras]
    for frame in (4, -5):
        with pytest.raises(SettingError, match="`frame`"):
            scene_view(data, frame=frame, fields=fields)
    axes = show(data, fields=fields).figure.axes
    names = [label.get_text() for each in axes for label in each.texts]
    assert len(axes) == 4 * num_cameras
    assert [name.split()[-1] for name in names] == [f"{n}" for n in range(4) for _ in range(num_cameras)]
    assert len(show(data, frame=2, fields=fields).figure.axes) == num_cameras


def test_long_clips_are_thinned_out() -> None:
    axes = show({"cameras": {0: {"image": np.zeros((1, 40, 8, 12, 3), np.uint8)}}}).figure.axes
    labels = [each.texts[0].get_text() for each in (axes[0], axes[-1])]
    assert (len(axes), labels) == (16, ["cameras[0]  frame 0", "cameras[0]  frame 39"])
    with pytest.raises(SettingError, match="at least one `SceneView`"):
        show([])


def test_stacked_frames_of_stacked_cameras_with_their_matrices() -> None:
    images = np.arange(2 * 3)[:, None, None, None] * np.ones((1, 4, 6, 3))
    clip = {
        "cameras": {
            "image": images.reshape(1, 2, 3, 4, 6, 3).astype(np.uint8),
            "image_from_reference": np.arange(6).reshape(1, 2, 3, 1, 1) * np.ones((4, 4)),
        }
    }
    view = scene_view(clip, frame=1)
    assert [camera.image[0, 0, 0] for camera in view.cameras] == [1, 4]
    assert [camera.image_from_reference[0, 0] for camera in view.cameras] == [1, 4]


@pytest.mark.parametrize("is_batch", [False, True])
def test_boxes_are_those_of_each_frame(tmp_path: Path, is_batch: bool) -> None:
    frames = DrivingProvider(write_driving_data(tmp_path), tmp_path)
    clips, data = QueueProvider(frames, 2), None
    steps = [ImageDecoder("image", use_device_mixed=True)]
    with DataLoader(clips, 2, steps=steps, num_workers=0, shuffle=False, ragged="list") as loader:
        data = next(iter(loader))
    data = data if is_batch else clips.get_data(1)
    for frame in (0, 1):
        view, expected = scene_view(data, 1, frame=frame), scene_view(frames.get_data(frame))
        np.testing.assert_allclose(view.centers, expected.centers)
        assert view.title == expected.title
        for camera, other in zip(view.cameras, expected.cameras, strict=True):
            np.testing.assert_array_equal(camera.image, other.image)
            np.testing.assert_allclose(camera.image_from_reference, other.image_from_reference)
    assert len(show(data, sample=1).figure.axes) == 2 * 2 + 1  # the boxes from above once
