"""Videos of many kinds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import av
from support.videos import B_FRAMES, OPEN_GOP, copy_packets, make_video

VideoOf = Callable[[str], Path]  # gets the video of a kind, see `conftest.py`
NUM_FRAMES = 40
IRREGULAR = [
    *(0, 10, 50, 55, 90, 200, 240, 260, 300, 1000),
    *(1001, 1100, 1150, 1200, 1230),
    *range(1300, 1800, 100),
]
ALT_REF = {"auto-alt-ref": "1", "lag-in-frames": "19", "g": "30", "deadline": "good", "cpu-used": "5", "b": "100k"}
INTRA_REFRESH = {"preset": "veryfast", "x264-params": "keyint=12:intra-refresh=1:bframes=0"}

PYRAMID = {
    "preset": "veryfast",
    "x264-params": "keyint=12:min-keyint=12:bframes=4:b-pyramid=2:b-adapt=0:open-gop=1:scenecut=0:ref=4",
}
INTERLACED = {
    "preset": "veryfast",
    "x264-params": "keyint=12:min-keyint=12:bframes=3:b-adapt=0:scenecut=0:interlaced=1:tff=1",
}


def zeroed(source: Path, path: Path, position: int, length: int = 200) -> Path:
    """Copy a file with some bytes set to 0: damage that FFmpeg does not report."""
    content = bytearray(source.read_bytes())
    content[position : position + length] = bytes(len(content[position : position + length]))
    path.write_bytes(content)
    return path


def _edited(folder: Path, path: Path) -> Path:
    """A video with a presentation that begins with frame 7."""

    def earlier(number: int, packet: av.Packet) -> av.Packet:
        packet.pts -= 7 * 512
        packet.dts -= 7 * 512
        return packet

    whole = make_video(folder / "edited_source.mp4", NUM_FRAMES, "libx264", options=B_FRAMES["libx264"])
    return copy_packets(whole, path, earlier, options={"avoid_negative_ts": "disabled"})


def without_its_start(source: Path, path: Path, num_packets: int) -> Path:
    """Copy a video without its first packets: it begins between two key frames."""
    return copy_packets(source, path, lambda number, packet: packet if number >= num_packets else None)


def _headless(folder: Path, path: Path) -> Path:
    whole = make_video(folder / "whole.ts", NUM_FRAMES, "libx264", options=OPEN_GOP["libx264"])
    return without_its_start(whole, path, 17)


LATE_KEY = {**B_FRAMES["libx264"], "x264-params": "keyint=19:min-keyint=19:scenecut=0:bframes=2:open-gop=0"}
# fmt: off
KINDS: dict[str, Callable[[Path, Path], Path]] = {
    "vp9.webm": lambda folder, path: make_video(path, NUM_FRAMES),
    "vp9_alt_ref.webm": lambda folder, path: make_video(path, NUM_FRAMES, options=ALT_REF),
    "vp9.mp4": lambda folder, path: make_video(path, NUM_FRAMES),
    "vp8.webm": lambda folder, path: make_video(path, NUM_FRAMES, "libvpx"),
    "vp8_alt_ref.webm": lambda folder, path: make_video(path, NUM_FRAMES, "libvpx", options=ALT_REF),
    "mjpeg.avi": lambda folder, path: make_video(path, NUM_FRAMES, "mjpeg"),
    "h264.mp4": lambda folder, path: make_video(path, NUM_FRAMES, "libx264"),
    "h264_b.mp4": lambda folder, path: make_video(path, NUM_FRAMES, "libx264", options=B_FRAMES["libx264"]),
    "h264_b.mkv": lambda folder, path: make_video(path, NUM_FRAMES, "libx264", options=B_FRAMES["libx264"]),
    "h264_b.ts": lambda folder, path: make_video(path, NUM_FRAMES, "libx264", options=B_FRAMES["libx264"]),
    "h264_b.flv": lambda folder, path: make_video(path, NUM_FRAMES, "libx264", options=LATE_KEY),
    "h264_open.mp4": lambda folder, path: make_video(path, NUM_FRAMES, "libx264", options=OPEN_GOP["libx264"]),
    "h264_open.mkv": lambda folder, path: make_video(path, NUM_FRAMES, "libx264", options=OPEN_GOP["libx264"]),
    "h264_refresh.mp4": lambda folder, path: make_video(path, NUM_FRAMES, "libx264", options=INTRA_REFRESH),
    "h264_edit_list.mp4": _edited,
    "h264_headless.ts": _headless,
    "h264_interlaced.mp4": lambda folder, path: make_video(path, NUM_FRAMES, "libx264", options=INTERLACED),
    "h264_irregular.mp4": lambda folder, path: make_video(
        path, 20, "libx264", times=IRREGULAR, options=B_FRAMES["libx264"]),
    "h264_fragments.mp4": lambda folder, path: make_video(
        path, NUM_FRAMES, "libx264", container_options={"movflags": "frag_keyframe+empty_moov"}),
    "hevc_b.mp4": lambda folder, path: make_video(path, NUM_FRAMES, "libx265", options=B_FRAMES["libx265"]),
    "hevc_open.mp4": lambda folder, path: make_video(path, NUM_FRAMES, "libx265", options=OPEN_GOP["libx265"]),
    "hevc_open.mkv": lambda folder, path: make_video(path, NUM_FRAMES, "libx265", options=OPEN_GOP["libx265"]),
    "vp9_irregular.webm": lambda folder, path: make_video(path, 20, times=IRREGULAR),
    "two_streams.mkv": lambda folder, path: make_video(
        path, NUM_FRAMES, "libx264", options=B_FRAMES["libx264"], num_streams=2, with_audio=True),
    "av1.mp4": lambda folder, path: make_video(path, NUM_FRAMES, "libsvtav1", options={"preset": "12", "g": "12"}),
    "h264_pyramid.mp4": lambda folder, path: make_video(path, NUM_FRAMES, "libx264", options=PYRAMID),
    "hevc_10_bit.mp4": lambda folder, path: make_video(path, 20, "libx265", pixel_format="yuv420p10le"),
    "one_frame.webm": lambda folder, path: make_video(path, 1),
}
# fmt: on

# In these, FFmpeg cannot find frames by their times.
# fmt: off
REFUSED: dict[str, Callable[[Path, Path], Path]] = {
    "h264_b.avi": lambda folder, path: make_video(path, NUM_FRAMES, "libx264", options=B_FRAMES["libx264"]),
    "h264.h264": lambda folder, path: make_video(path, NUM_FRAMES, "libx264", options=B_FRAMES["libx264"]),
    "h264_interlaced.ts": lambda folder, path: make_video(path, NUM_FRAMES, "libx264", options=INTERLACED),
    "mpeg1.mpg": lambda folder, path: make_video(path, NUM_FRAMES, "mpeg1video", options={"g": "12", "bf": "2"}),
}
# fmt: on
