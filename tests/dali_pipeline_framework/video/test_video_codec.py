"""What is said without PyAV, or with another release of it."""

from __future__ import annotations

import sys

import pytest
from support.refusals import assert_refused
from support.windows import video_clips
from video_kinds import VideoOf

from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.video import index_video


def test_without_pyav(video: VideoOf, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_other_pyav(version: str, video: VideoOf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("av.__version__", version)
    assert_refused(lambda: index_video(video("vp9.webm")), f"PyAV must be 17 or 18 ... got {version}")
