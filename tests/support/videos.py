"""Videos whose frames tell their number, made with PyAV."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt

WIDTH, HEIGHT = 96, 64
_COLUMNS, _ROWS = 6, 2  # blocks of 16 x 32 pixels, one bit each: numbers below 4096

# What is fast to encode; key frames every 12 frames.
OPTIONS: dict[str, dict[str, str]] = {
    "libvpx-vp9": {"deadline": "realtime", "cpu-used": "8", "g": "12"},
    "libvpx": {"deadline": "realtime", "cpu-used": "8", "g": "12"},
    "mjpeg": {},
    "libx264": {"preset": "ultrafast", "g": "12", "bf": "0"},
    "libx265": {"preset": "ultrafast", "x265-params": "log-level=none:keyint=12:bframes=0"},
}


def _with_b_frames(open_gop: int) -> dict[str, dict[str, str]]:
    settings = f"keyint=12:min-keyint=12:bframes=3:b-adapt=0:open-gop={open_gop}"
    return {
        "libx264": {"preset": "veryfast", "x264-params": f"{settings}:scenecut=0"},
        "libx265": {"preset": "ultrafast", "x265-params": f"log-level=none:{settings}"},
    }


B_FRAMES = _with_b_frames(open_gop=0)
OPEN_GOP = _with_b_frames(open_gop=1)


def draw_number(number: int, width: int = WIDTH, height: int = HEIGHT) -> npt.NDArray[np.uint8]:
    """Make an RGB image, ``(height, width, 3)``, from which `read_numbers` gets the number back."""
    bits = (number >> np.arange(_COLUMNS * _ROWS)) & 1
    rows = np.arange(height) * _ROWS // height
    columns = np.arange(width) * _COLUMNS // width
    light = np.where(bits.reshape(_ROWS, _COLUMNS)[rows][:, columns], 210, 40)
    shade = np.arange(width)[None, :] * 20 // width  # so that not all is flat
    image = np.stack([light, np.clip(light + shade, 0, 255), 255 - light], axis=2)
    return image.astype(np.uint8)


def read_numbers(frames: npt.NDArray[np.uint8]) -> list[int]:
    """Read the numbers of frames, ``(n, height, width, channels)``, in RGB, BGR or gray."""
    _, height, width, _ = frames.shape
    rows = (2 * np.arange(_ROWS) + 1) * height // (2 * _ROWS)
    columns = (2 * np.arange(_COLUMNS) + 1) * width // (2 * _COLUMNS)
    bits = frames[:, rows][:, :, columns, frames.shape[3] // 2] > 128  # (n, rows, columns); green or gray
    return [int(value) for value in bits.reshape(len(frames), -1) @ (1 << np.arange(_COLUMNS * _ROWS))]


def make_video(
    path: Path | str,
    num_frames: int,
    codec: str = "libvpx-vp9",
    *,
    first_number: int = 0,
    size: tuple[int, int] = (WIDTH, HEIGHT),
    rate: int = 25,
    times: Sequence[int] | None = None,
    time_base: Fraction = Fraction(1, 1000),
    options: Mapping[str, str] | None = None,
    num_streams: int = 1,
    with_audio: bool = False,
    pixel_format: str | None = None,
    **format_options: Any,
) -> Path:
    """Write a video whose frame ``i`` shows the number ``first_number + i``.

    Args:
        times: Time of each frame in units of ``time_base``; None for a constant rate.
        num_streams: Number of video streams; frame ``i`` of stream ``s`` shows ``first_number + 1000 s + i``.
        with_audio: Whether there is a silent audio stream, as the first stream.
    """
    width, height = size
    with av.open(str(path), "w", **format_options) as container:
        audio = (
            container.add_stream("aac" if str(path).endswith((".mp4", ".mov")) else "libopus", rate=48000)
            if with_audio
            else None
        )
        streams = []
        for _ in range(num_streams):
            stream = container.add_stream(
                codec, rate=rate, options=dict(OPTIONS[codec] if options is None else options)
            )
            stream.width, stream.height = width, height
            stream.pix_fmt = pixel_format or ("yuvj420p" if codec == "mjpeg" else "yuv420p")
            if times is not None:
                stream.codec_context.time_base = time_base
            streams.append(stream)
        if audio is not None:
            for start in range(0, 48000 * max(num_frames, 1) // rate, 960):
                sound = av.AudioFrame.from_ndarray(np.zeros((1, 960), np.float32), format="fltp", layout="mono")
                sound.sample_rate, sound.pts, sound.time_base = 48000, start, Fraction(1, 48000)
                container.mux(audio.encode(sound))
            container.mux(audio.encode(None))
        for i in range(num_frames):
            for s, stream in enumerate(streams):
                frame = av.VideoFrame.from_ndarray(
                    draw_number(first_number + 1000 * s + i, width, height), format="rgb24"
                )
                frame.pts = i if times is None else times[i]
                frame.time_base = Fraction(1, rate) if times is None else time_base
                container.mux(stream.encode(frame))
        for stream in streams:
            container.mux(stream.encode(None))
    if os.sched_getscheduler(0) != os.SCHED_OTHER:  # SVT-AV1 gives a root real-time priority
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    return Path(path)


@functools.cache
def encoded_video(
    num_frames: int, codec: str = "libvpx-vp9", suffix: str = "webm", **settings: Any
) -> npt.NDArray[np.uint8]:
    """Make the file of a video, ``(num_bytes,)``; settings are those of `make_video`."""
    with tempfile.TemporaryDirectory() as folder:
        content = make_video(Path(folder) / f"video.{suffix}", num_frames, codec, **settings).read_bytes()
    return np.frombuffer(content, np.uint8)


def write_images(
    path: Path,
    images: Sequence[av.VideoFrame | npt.NDArray[np.uint8]],
    codec: str = "libx264",
    *,
    rate: int = 25,
    options: Mapping[str, str] | None = None,
    pixel_format: str = "yuv420p",
    matrix: int | None = None,
    color_range: int | None = None,
) -> Path:
    """Write a video of RGB images, ``(height, width, 3)``, or of frames.

    Args:
        matrix: Color matrix that the stream states; None for none.
        color_range: Color range that it states; None for none.
    """
    frames = [
        image if isinstance(image, av.VideoFrame) else av.VideoFrame.from_ndarray(image, format="rgb24")
        for image in images
    ]
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=rate)
        stream.codec_context.options = dict(OPTIONS.get(codec, {}) if options is None else options)
        stream.width, stream.height, stream.pix_fmt = frames[0].width, frames[0].height, pixel_format
        if matrix is not None:
            stream.codec_context.colorspace = matrix
        if color_range is not None:
            stream.codec_context.color_range = color_range
        for number, frame in enumerate(frames):
            frame.pts, frame.time_base = number, Fraction(1, rate)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def copy_packets(
    sources: Path | Sequence[Path],
    path: Path,
    changed: Callable[[int, av.Packet], av.Packet | None] = lambda number, packet: packet,
    header: Path | None = None,
    metadata: Mapping[str, str] | None = None,
    **how: Any,
) -> Path:
    """Copy the packets of the first video stream of files, one file after the other.

    Args:
        changed: Gives what is written for a packet, by its number; None for nothing.
        header: File whose stream the copy states; None for that of the first.
        metadata: Metadata of the copy.
        how: Options of the copy.
    """
    sources = [sources] if isinstance(sources, Path) else sources
    number = 0
    with av.open(str(header or sources[0])) as first, av.open(str(path), "w", **how) as copy:
        copy.metadata.update(metadata or {})
        target = copy.add_stream_from_template(first.streams.video[0])
        for source in sources:
            with av.open(str(source)) as original:
                for packet in original.demux(video=0):
                    if packet.size and (written := changed(number, packet)) is not None:
                        written.stream = target
                        copy.mux(written)
                    number += 1
    return path


def with_content(packet: av.Packet, content: bytes) -> av.Packet:
    """A packet like another one with other bytes."""
    changed = av.Packet(content)
    changed.pts, changed.dts, changed.time_base = packet.pts, packet.dts, packet.time_base
    changed.is_keyframe = packet.is_keyframe
    return changed


def damage(path: Path, packet: int) -> Path:
    """Overwrite the content of a packet, by its number in the order of decoding."""
    with av.open(str(path)) as container:
        position, size = [(each.pos, each.size) for each in container.demux(video=0) if each.size][packet]
    content = bytearray(path.read_bytes())
    start, stop = position + min(8, size // 3), position + size - 4
    content[start:stop] = bytes(value ^ 0x55 for value in content[start:stop])
    path.write_bytes(content)
    return path
