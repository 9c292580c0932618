"""Which streams have field pictures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import av
import pytest
from support.videos import make_video
from video_kinds import KINDS

from accvlab.dali_pipeline_framework.video.files.h264 import FieldPictureSearch


def search(path: Path) -> tuple[bool, bool]:
    """Whether there can be field pictures, and whether there are."""
    with av.open(str(path)) as container:
        fields = FieldPictureSearch(container.streams.video[0].codec_context.extradata)
        packets = [bytes(packet) for packet in container.demux(video=0) if packet.size]
        is_found = any(fields.is_found_in(packet) for packet in packets)
        return fields.is_possible, is_found


@pytest.mark.parametrize("kind", sorted(kind for kind in KINDS if kind.startswith("h264")))
def test_of_all_kinds(video: Callable[[str], Path], kind: str) -> None:
    assert search(video(kind)) == ("interlaced" in kind or "fields" in kind, "fields" in kind)


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize(
    ("pixel_format", "options"),
    [("yuv444p", ""), ("yuv422p10le", ""), ("yuv420p", ":cqm=jvt"), ("yuv444p", ":cqm=jvt")],
)
def test_of_other_profiles(tmp_path: Path, pixel_format: str, options: str, interlaced: bool) -> None:
    options = {"preset": "veryfast", "x264-params": f"interlaced={int(interlaced)}{options}"}
    path = make_video(tmp_path / "a.mp4", 3, "libx264", pixel_format=pixel_format, options=options)
    assert search(path) == (interlaced, False)


def test_damaged_settings_are_no_failure(video: Callable[[str], Path]) -> None:
    with av.open(str(video("h264_interlaced.mp4"))) as container:
        extradata = container.streams.video[0].codec_context.extradata
    for length in range(len(extradata)):
        FieldPictureSearch(extradata[:length]).is_found_in(b"\0\0\1\x67")
