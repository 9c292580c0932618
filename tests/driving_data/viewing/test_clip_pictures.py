"""Clips as pictures: every frame can be shown, in whichever form a clip comes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from driving_support.driving_data import write_driving_data
from support.laws import spread
from support.videos import make_video, read_numbers
from support.windows import video_clips

from accvlab.dali_pipeline_framework import (
    DataLoader,
    DataProvider,
    ImageDecoder,
    SampleDataGroup,
    VideoFrameDataProvider,
    Videos,
    Windows,
)
from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.driving_data.datasets import DrivingProvider
from accvlab.driving_data.viewing import ViewFields, scene_view, show


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("videos")
    return {
        name: make_video(folder / f"{name}.mkv", 12, "mjpeg", first_number=100 * number)
        for number, name in enumerate(("front", "left"))
    }


class Queues(DataProvider):
    """Clips of some frames side by side, each frame a group."""

    def __init__(self, frames: DataProvider, length: int) -> None:
        self.frames, self.length = frames, length

    def get_number_of_samples(self) -> int:
        return self.frames.get_number_of_samples() // self.length

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        sample = SampleDataGroup()
        sample.add_data_group_field_array("frames", self.frames.sample_data_structure, self.length)
        return sample

    def get_data(self, sample_index: int) -> SampleDataGroup:
        sample = self.new_sample()
        for number in range(self.length):
            sample["frames"][number] = self.frames.get_data(sample_index * self.length + number)
        return sample


def provider_of(videos: dict[str, Path], kind: str) -> DataProvider:
    cameras = Videos(cameras=videos)
    if kind == "stacked, of cameras":
        return video_clips(cameras, 4)
    if kind == "stacked":
        return video_clips(videos["front"], 4)
    return Queues(VideoFrameDataProvider(cameras if kind == "groups, of cameras" else videos["front"]), 4)


KINDS = ["stacked, of cameras", "stacked", "groups, of cameras", "groups"]


@spread("kind", KINDS, 3)
@pytest.mark.parametrize("is_batch", [False, True])
def test_every_frame_can_be_shown(videos: dict[str, Path], kind: str, is_batch: bool) -> None:
    provider, fields = provider_of(videos, kind), ViewFields(image="frames" if "stacked" in kind else "image")
    data: Any = provider.get_data(0)
    if is_batch:
        with DataLoader(provider, 2, num_workers=0, output_type="numpy", shuffle=False) as loader:
            data = next(iter(loader))
    num_cameras = 2 if "cameras" in kind else 1
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


def test_cameras_of_different_numbers_of_frames(tmp_path: Path) -> None:
    frames = DrivingProvider(write_driving_data(tmp_path), tmp_path)
    offsets = {"cameras[0].image": [-1, 0], "cameras[1].image": [-2, -1, 0]}
    windows = Windows(frames, offsets, unit="frames", edges="repeat")
    sample = windows.get_data(2)
    names = [[camera.name for camera in scene_view(sample, frame=frame).cameras] for frame in (0, 1, 2, -1, -3)]
    assert [len(each) for each in names] == [2, 2, 1, 2, 1]
    moment = scene_view(frames.get_data(2))
    for camera, other in zip(scene_view(sample).cameras, moment.cameras, strict=True):  # the last of each camera
        np.testing.assert_array_equal(camera.image, other.image)
    assert len(show(sample).figure.axes) == 2 + 2 + 1
    with pytest.raises(SettingError, match="`frame`"):
        scene_view(sample, frame=3)


def test_boxes_are_those_of_each_frame(tmp_path: Path) -> None:
    frames = DrivingProvider(write_driving_data(tmp_path), tmp_path)
    clips = Queues(frames, 2)
    with DataLoader(
        clips, 1, steps=[ImageDecoder("image", use_device_mixed=True)], num_workers=0, shuffle=False, ragged="list"
    ) as loader:
        batch = next(iter(loader))
    for frame in (0, 1):
        view, expected = scene_view(batch, frame=frame), scene_view(frames.get_data(frame))
        np.testing.assert_allclose(view.centers, expected.centers)
        assert view.title == expected.title
        for camera, other in zip(view.cameras, expected.cameras, strict=True):
            np.testing.assert_array_equal(camera.image, other.image)
            np.testing.assert_allclose(camera.image_from_reference, other.image_from_reference)
    show(batch).save(tmp_path / "clip.png")
