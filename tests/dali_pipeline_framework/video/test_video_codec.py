"""How much of a video is missing at its end; and what is said without PyAV."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.windows import video_clips

from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.video import index_video
from accvlab.dali_pipeline_framework.video.files.video_file import missing_bytes

KINDS = [
    "vp9.webm",
    "vp9.mp4",
    "vp8.webm",
    "mjpeg.avi",
    "h264_b.mp4",
    "h264_b.mov",
    "h264_b.mkv",
    "h264_b.avi",
    "h264_fragments.mp4",
    "hevc_b.mp4",
    "hevc_open.mkv",
    "two_streams.mkv",
]


@pytest.mark.parametrize("kind", KINDS)
def test_incomplete_files(video: Callable[[str], Path], kind: str) -> None:
    content = video(kind).read_bytes()
    assert missing_bytes(content) == 0
    for length in (64, *(len(content) * tenths // 10 for tenths in (1, 3, 5, 9)), len(content) - 1):
        missing, all_missing = missing_bytes(content[:length]), len(content) - length
        if kind.endswith(("mp4", "mov")):  # the box that is cut says where it ends, and not what comes after it
            assert 0 < missing <= all_missing
        else:
            assert missing == all_missing
    assert missing_bytes(content[:7]) == 0  # where no format says anything yet


@pytest.mark.parametrize(
    "content", [b"", b"x", b"RIFF", b"\x1a\x45\xdf\xa3", b"\0\0\0\x08ftyp" * 3, bytes(100), b"\xff" * 100]
)
def test_no_videos(content: bytes) -> None:
    assert missing_bytes(content) == 0


def test_without_pyav(video: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path = video("h264_b.mp4")
    monkeypatch.setitem(sys.modules, "av", None)
    rule = (
        r"h264_b.mp4' can be decoded on the CPU only with PyAV.*"
        r"pip install 'av>=17,<19'.*VP8, VP9 and MJPEG"
    )
    with pytest.raises(SettingError, match=rule):
        video_clips(path, 2)
    with pytest.raises(SettingError, match=rule):
        index_video(path)


@pytest.mark.parametrize("version", ["16.9.1", "19.0.0"])
def test_other_pyav(version: str, video: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("av.__version__", version)
    with pytest.raises(SettingError, match=rf"PyAV must be 17 or 18 .* got {version}"):
        index_video(video("vp9.webm"))
