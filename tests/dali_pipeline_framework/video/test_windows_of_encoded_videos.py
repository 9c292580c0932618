"""Windows in seconds over encoded videos: the frames of a camera are one file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.videos import make_video, read_numbers

from accvlab.dali_pipeline_framework import (
    ConcatDataProvider,
    SampleDataGroup,
    VideoFrameDataProvider,
    Videos,
    Windows,
)
from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.testing import check_provider
from accvlab.dali_pipeline_framework.video.decoded_clips import decoded_clip

OFFSETS = [-0.2, -0.04, 0.04]  # of frames each 0.04 s


@pytest.fixture
def rig(tmp_path: Path) -> Videos:
    """Two recordings of two cameras; those of the left one have the numbers from 100 on."""
    paths = {
        camera: [
            str(make_video(tmp_path / f"{camera}{part}.webm", 20, first_number=number + 40 * part))
            for part in (0, 1)
        ]
        for camera, number in (("front", 0), ("left", 100))
    }
    return Videos(cameras=paths)


def expected(row: int) -> list[int]:
    start = 0 if row < 20 else 20
    return [min(max(row - start + step, 0), 19) + 2 * start for step in (-5, -1, 1)]


@pytest.mark.parametrize("is_joined", [False, True])
def test_the_frames_of_a_window_are_one_file(rig: Videos, is_joined: bool) -> None:
    source = VideoFrameDataProvider(rig, images="encoded", frame_number_name="number")
    first: Any = ConcatDataProvider([source, source]) if is_joined else source
    provider = Windows(first, {"image": OFFSETS, ("left", "image"): [0]}, unit="s", edges="repeat")
    assert repr(provider.sample_data_structure["front"]).splitlines() == [
        "SampleDataGroup of 4 fields",
        "image            UINT8",
        "image_to_decode  INT32",
        "number           INT32",
        "image_is_pad     BOOL",
    ]
    last = 40 * int(is_joined)
    for row in (0, 3, 13, 19, 20, 39):
        sample = provider.get_data(last + row)
        front, left = sample["front"], sample["left"]
        assert front["image"].ndim == 1
        frames = decoded_clip(front["image"].copy(), front["image_to_decode"])
        assert read_numbers(frames) == expected(row)
        assert front["image_is_pad"].tolist() == [row % 20 < 5, row % 20 == 0, row % 20 == 19]
        assert front["number"] == row % 20
        assert left["image_to_decode"].shape == (1,)
        assert read_numbers(decoded_clip(left["image"], left["image_to_decode"])) == [100 + row + 20 * (row > 19)]


def test_a_file_begins_at_the_key_frame_and_frames_without_windows_stay_single(tmp_path: Path) -> None:
    path = make_video(tmp_path / "a.webm", 24)  # key frames 0 and 12
    source = VideoFrameDataProvider(path, images="encoded", timestamp_name="time")
    provider = Windows(source, {"image": [-0.08, 0]}, unit="s", edges="repeat")
    assert provider.get_data(15)["image_to_decode"].tolist() == [1, 3]
    assert provider.get_data(13)["image_to_decode"].tolist() == [11, 13]
    only_times = Windows(source, {"time": [-0.04, 0]}, unit="s", edges="repeat").get_data(15)
    assert only_times["image_to_decode"] == 3
    assert only_times["image_to_decode"].shape == ()
    assert read_numbers(decoded_clip(only_times["image"], only_times["image_to_decode"])) == [15]
    check_provider(provider, num_workers=0)
    check_provider(source, num_workers=0)


class Own(VideoFrameDataProvider):
    def get_data(self, sample_index: int) -> SampleDataGroup:
        return super().get_data(sample_index)


def test_what_cannot_be_cut_out_together_is_refused(tmp_path: Path) -> None:
    path = make_video(tmp_path / "a.webm", 24)
    with pytest.raises(SettingError) as caught:
        Windows(Own(path, images="encoded"), {"image": [0]}, unit="frames")
    assert str(caught.value) == (
        "Windows of encoded videos are clips, and Own cannot cut single frames of image out as clips. Let the "
        "provider decode them (`images='decoded'`), or define `load_clips` in one of your own."
    )
    with pytest.raises(SettingError, match=r"image_to_decode has the windows of image: name that in `windows`"):
        Windows(VideoFrameDataProvider(path, images="encoded"), {"image_to_decode": [0]}, unit="s", edges="repeat")


def test_the_decoder_takes_the_frames_that_are_asked_for(rig: Videos) -> None:
    source = VideoFrameDataProvider(rig, images="encoded")
    camera = Windows(source, {"image": range(4)}, unit="frames").get_data(2)["front"]
    numbers = np.asarray(camera["image_to_decode"])
    for chosen in (slice(None, None, 2), slice(None, None, -1), [1, 1]):
        assert read_numbers(decoded_clip(camera["image"], numbers[chosen])) == np.arange(2, 6)[chosen].tolist()
