"""Codecs are told from the container, also where nothing can decode them."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from support.videos import make_video

from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.video import VideoDataProvider, index_video
from accvlab.dali_pipeline_framework.video.files.container import missing_bytes, sniff_codec

CODECS = {
    "vp9.webm": "vp9",
    "vp9.mp4": "vp9",
    "vp8.webm": "vp8",
    "mjpeg.avi": "mjpeg",
    "h264_b.mp4": "h264",
    "h264_b.mov": "h264",
    "h264_b.mkv": "h264",
    "h264_b.avi": "h264",
    "h264_fragments.mp4": "h264",
    "hevc_b.mp4": "hevc",
    "hevc_open.mkv": "hevc",
    "two_streams.mkv": "h264",  # the sound comes first
    "h264_b.ts": None,
    "h264.h264": None,
}


@pytest.mark.parametrize("kind", CODECS)
def test_codec(video: Callable[[str], Path], kind: str) -> None:
    path = video(kind)
    assert sniff_codec(path) == CODECS[kind]
    assert sniff_codec(path.read_bytes()) == CODECS[kind]
    with open(path, "rb") as file:
        file.seek(5)
        assert sniff_codec(file) == CODECS[kind]
        assert file.tell() == 5


def test_tables_at_the_start(tmp_path: Path) -> None:
    path = make_video(tmp_path / "a.mp4", 3, "libx264", container_options={"movflags": "faststart"})
    assert sniff_codec(path) == "h264"


@pytest.mark.parametrize("kind", [kind for kind, codec in CODECS.items() if codec])
@pytest.mark.parametrize("share", [0, 0.01, 0.1, 0.3, 0.5, 0.9])
def test_incomplete_files(video: Callable[[str], Path], kind: str, share: float) -> None:
    content = video(kind).read_bytes()
    cut = content[: int(len(content) * share)]
    assert sniff_codec(cut) in (CODECS[kind], None)
    if share >= 0.3:
        assert 0 < missing_bytes(cut) <= len(content) - len(cut)
    assert missing_bytes(content) == 0


@pytest.mark.parametrize(
    "content", [b"", b"x", b"RIFF", b"\x1a\x45\xdf\xa3", b"\0\0\0\x08ftyp" * 3, bytes(100), b"\xff" * 100]
)
def test_no_videos(content: bytes, tmp_path: Path) -> None:
    assert sniff_codec(content) is None
    assert missing_bytes(content) == 0
    assert sniff_codec(io.BytesIO(content)) is None
    assert sniff_codec(tmp_path / "none.mp4") is None


@pytest.mark.parametrize(("kind", "named"), [("h264_b.mp4", r" \(codec: h264\)"), ("h264_b.ts", "")])
def test_without_pyav(
    video: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, kind: str, named: str
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "av", None)
    path = video(kind)
    rule = (
        rf"{kind}'{named} can be decoded on the CPU only with PyAV.*"
        r"pip install 'accvlab.dali_pipeline_framework\[video\]'.*VP8, VP9 and MJPEG"
    )
    with pytest.raises(SettingError, match=rule):
        VideoDataProvider(path, sequence_length=2)
    with pytest.raises(SettingError, match=rule):
        index_video(path)


def test_old_pyav(video: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("av.__version__", "16.9.1")
    with pytest.raises(SettingError, match=r"PyAV must be at least 17.0 .* got 16.9.1"):
        index_video(video("vp9.webm"))
