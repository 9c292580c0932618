"""Several cameras, aligned by time, and frames as samples."""

from __future__ import annotations

import logging
import pickle
from fractions import Fraction
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from support.recordings import video_provider
from support.videos import B_FRAMES, make_video, read_numbers
from support.windows import video_clips

from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.video import VideoFrameDataProvider, Videos

EVERY_40_MS = [40 * n for n in range(20)]


def camera(folder: Path, name: str, first_number: int, times: list[int], **settings: Any) -> Path:
    return make_video(
        folder / name,
        len(times),
        "libx264",
        first_number=first_number,
        times=times,
        time_base=Fraction(1, 1000),
        options=B_FRAMES["libx264"],
        **settings,
    )


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Path]]:
    """Two recordings. In the first one, `left` lacks the frames at 200, 240 and 600 ms and has one more at 215."""
    folder = tmp_path_factory.mktemp("rig")
    left = [time + 7 for time in EVERY_40_MS if time not in (200, 240, 600)]
    return {
        "front": [
            camera(folder, "front0.mkv", 0, EVERY_40_MS),
            camera(folder, "front1.mkv", 100, EVERY_40_MS[:8]),
        ],
        "left": [
            camera(folder, "left0.mkv", 200, sorted([*left, 225]), size=(64, 48)),
            camera(folder, "left1.mkv", 300, EVERY_40_MS[:8], size=(64, 48)),
        ],
    }


def test_groups_of_cameras(rig: dict[str, list[Path]]) -> None:
    provider = video_clips(
        Videos(cameras=rig, tolerance_s=0.01, labels=[8, 9]),
        3,
        frame_number_name="frame_num",
        timestamp_name="timestamps",
        path_name="path",
        recording_number_name="drive",
    )
    assert provider.sample_data_structure.contained_top_level_field_names == ("front", "left", "label", "drive")
    # Recording 0 has three tracks: frames 0 to 4, 7 to 14, and 16 to 19.
    assert provider.sequence_lengths.tolist() == [1, 2, 1, 2]
    sample = provider.get_data(1)
    assert read_numbers(sample["front"]["frames"]) == [7, 8, 9]
    assert sample["front"]["frame_num"].tolist() == [7, 8, 9]
    assert sample["front"]["timestamps"].tolist() == pytest.approx([0.28, 0.32, 0.36])
    # Before frame 7, `left` lacks two frames and has one of its own.
    assert read_numbers(sample["left"]["frames"]) == [206, 207, 208]
    assert sample["left"]["frames"].shape == (3, 48, 64, 3)
    assert sample["left"]["frame_num"].tolist() == [6, 7, 8]
    assert sample["left"]["timestamps"].tolist() == pytest.approx([0.287, 0.327, 0.367])
    assert sample["left"]["path"] == str(rig["left"][0])
    assert (sample["label"].tolist(), sample["drive"]) == ([8], 0)
    last = provider.get_data(5)
    assert read_numbers(last["left"]["frames"]) == [303, 304, 305]
    assert (last["label"].tolist(), last["drive"]) == ([9], 1)


def test_missing_frames_are_reported(rig: dict[str, list[Path]], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        provider = video_clips(Videos(cameras=rig, tolerance_s=0.01), 1)
    assert [tuple(frame) for frame in provider.missing_frames] == [
        (0, "left", 5, pytest.approx(0.2)),
        (0, "left", 6, pytest.approx(0.24)),
        (0, "left", 15, pytest.approx(0.6)),
    ]
    assert "recording 0: 3 frame(s) of left" in caplog.text
    with pytest.raises(SettingError, match=r"(?s)recording 0: 3 frame\(s\) of left.*missing='drop'"):
        video_clips(Videos(cameras=rig, tolerance_s=0.01, missing="raise"), 1)


def test_sequences_may_bridge_gaps(rig: dict[str, list[Path]]) -> None:
    provider = video_clips(Videos(cameras=rig, tolerance_s=0.01, missing="bridge"), 17)
    assert provider.sequence_lengths.tolist() == [1]
    sample = provider.get_data(0)
    complete = [n for n in range(20) if n not in (5, 6, 15)]
    assert read_numbers(sample["front"]["frames"]) == complete
    assert read_numbers(sample["left"]["frames"]) == [n for n in range(200, 218) if n != 205]


def test_usual_tolerance_and_reference_camera(rig: dict[str, list[Path]]) -> None:
    # Half an interval: now the frame at 225 ms stands for 240 ms.
    provider = video_clips(Videos(cameras=rig), 1)
    assert [frame.frame_number for frame in provider.missing_frames] == [5, 15]
    provider = video_clips(Videos(cameras=rig, tolerance_s=0.01, reference_camera="left"), 1)
    assert [tuple(frame)[:3] for frame in provider.missing_frames] == [(0, "front", 5)]
    assert read_numbers(provider.get_data(5)["left"]["frames"]) == [206]


def test_clocks_with_offsets(rig: dict[str, list[Path]]) -> None:
    provider = video_clips(
        Videos(cameras=rig, tolerance_s=0.001, time_offsets_s={"left": [-0.007, 0.08]}),
        2,
        timestamp_name="timestamps",
        recording_number_name="drive",
    )
    assert {frame.recording for frame in provider.missing_frames if frame.frame_number in (0, 1)} == {1}
    first = next(sample for sample in map(provider.get_data, range(len(provider))) if sample["drive"] == 1)
    assert read_numbers(first["front"]["frames"]) == [102, 103]
    assert read_numbers(first["left"]["frames"]) == [300, 301]
    assert first["left"]["timestamps"].tolist() == pytest.approx([0.08, 0.12])


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ({"cameras": ["front"]}, "`cameras` must map names"),
        (
            {"reference_camera": "back"},
            r"`reference_camera` must name one of `cameras` \('front', 'left'\), got 'back'",
        ),
        ({"time_offsets_s": {"back": 1}}, "`time_offsets_s` must name one of `cameras`"),
        ({"time_offsets_s": {"left": [1]}}, r"`time_offsets_s\['left'\]` must be a number, or one for each of 2"),
        ({"tolerance_s": -1}, "`tolerance_s` must be a number of at least 0"),
        ({"missing": "skip"}, "`missing` must be one of 'drop', 'bridge', 'raise', got 'skip'"),
        ({"labels": [1]}, r"as many `labels` as `cameras`, got 1 label\(s\) for 2"),
        (
            {"time_offsets_s": {"left": 100}},
            "(?s)At no point in time all of the cameras .'front', 'left'. have .*time_offsets_s",
        ),
        ({"sequence_length": 9, "tolerance_s": 0.01}, r"longest of 4 sequence\(s\) has 8 frame"),
    ],
)
def test_settings(rig: dict[str, list[Path]], arguments: dict[str, Any], rule: str) -> None:
    with pytest.raises(SettingError, match=rule):
        video_provider(**{"cameras": rig, "sequence_length": 1, **arguments})


def test_lists_of_different_length(rig: dict[str, list[Path]]) -> None:
    with pytest.raises(SettingError, match=r"equally long, got {'front': 2, 'left': 1}"):
        video_clips(Videos(cameras={"front": rig["front"], "left": rig["left"][:1]}), 1)


@pytest.mark.parametrize(("suffix", "rate", "base"), [("mkv", 10, 1000), ("mp4", 10, 90000), ("mp4", 20, 12800)])
def test_frames_exactly_as_far_apart_as_the_tolerance_match(
    tmp_path: Path, suffix: str, rate: int, base: int
) -> None:
    how: dict[str, Any] = {"size": (16, 16), "time_base": Fraction(1, base)}
    times = [base // rate * n for n in range(50)]
    late = [time + base // 50 for time in times]  # 20 ms
    paths = [
        make_video(tmp_path / f"{name}.{suffix}", 50, "libx264", times=each, **how)
        for name, each in (("a", times), ("b", late))
    ]
    for other, offsets in ((paths[1], None), (paths[0], {"b": 0.02})):
        videos = Videos(cameras={"a": paths[0], "b": other}, time_offsets_s=offsets, tolerance_s=0.02)
        assert len(VideoFrameDataProvider(videos)) == 50
        with pytest.raises(SettingError, match="At no point in time"):
            VideoFrameDataProvider(attrs.evolve(videos, tolerance_s=0.0199))


def test_samples_are_described_by_all_cameras_and_pickled(rig: dict[str, list[Path]]) -> None:
    provider = VideoFrameDataProvider(Videos(cameras=rig, num_batch_threads=2), frame_number_name="number")
    sample = provider.get_data(4)
    told = (f"{rig[camera][0]}, frame {int(sample[camera]['number'])}" for camera in rig)
    assert provider.describe_sample(4) == "; ".join(told)
    assert provider.loads_batches
    copy = pickle.loads(pickle.dumps(provider))
    batches = (each.load_batch([3, 9, 3], range(3)) for each in (provider, copy))
    for ours, theirs in zip(*batches, strict=True):
        np.testing.assert_array_equal(ours["left"]["image"], theirs["left"]["image"])
