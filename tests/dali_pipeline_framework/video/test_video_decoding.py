"""Frames one after the other, and what cannot be decoded is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from support.videos import copy_packets, damage, make_video, read_numbers
from video_kinds import VideoOf

from accvlab.dali_pipeline_framework.errors import VideoError
from accvlab.dali_pipeline_framework.video.frame_converter import FrameConverter
from accvlab.dali_pipeline_framework.video.video_decoding import VideoStreamDecoder


def decoded(source: Any, **settings: int) -> npt.NDArray[np.uint8]:
    converter = FrameConverter()
    with VideoStreamDecoder(source, **settings) as decoder:
        return np.stack([converter.convert(frame) for frame in decoder])


def test_sources(video: VideoOf) -> None:
    path = video("h264_b.mp4")
    frames = decoded(path)
    assert read_numbers(frames) == [*range(40)]
    np.testing.assert_array_equal(decoded(path.read_bytes()), frames)
    with open(path, "rb") as file:
        np.testing.assert_array_equal(decoded(file), frames)


@pytest.mark.parametrize(
    ("name", "codec", "frame"),
    [("a.avi", "mjpeg", 3), ("a.mp4", "libx264", 12), ("a.webm", "libvpx-vp9", 20), ("a.mkv", "libx265", 3)],
)
def test_damage_is_named(tmp_path: Path, name: str, codec: str, frame: int) -> None:
    path = damage(make_video(tmp_path / name, 30, codec, size=(192, 128)), frame)
    with pytest.raises(
        VideoError, match=rf"Cannot decode '.*{name}' after {frame} decoded frames: .* damaged or incomplete"
    ):
        decoded(path)


def test_after_a_damaged_packet_the_next_ones_are_decoded(tmp_path: Path) -> None:
    path = damage(make_video(tmp_path / "a.avi", 10, "mjpeg", size=(192, 128)), 3)
    found: list[int | None] = []
    with VideoStreamDecoder(path, num_threads=1) as decoder:
        while not found or found[-1] is not None:
            try:
                frame = decoder.next_frame()
                found.append(None if frame is None else int(frame.pts or 0))
            except VideoError:
                found.append(-1)
    assert found == [0, 1, 2, -1, 4, 5, 6, 7, 8, 9, None]


def test_metadata_need_not_be_utf_8(tmp_path: Path) -> None:
    source = make_video(tmp_path / "source.mp4", 3, "libx264")
    path = copy_packets(source, tmp_path / "a.mkv", metadata={"title": "Zuerich"})
    path.write_bytes(path.read_bytes().replace(b"Zuerich", b"Z\xfcrich "))
    with VideoStreamDecoder(path) as decoder:
        assert len([*decoder]) == 3
