# SPDX-License-Identifier: Apache-2.0
"""Files for benchmarks of sources: JPEGs, folders of frames, and videos that look like drives, as codecs see it.

A drive is a window that moves over a large picture with the spectrum of photographs (amplitude falls with
frequency), so frames have about the size that real ones have, and motion that codecs can predict.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import attrs
import numpy as np
import numpy.typing as npt

UInt8Array = npt.NDArray[np.uint8]

FRAME_HW = (540, 960)
VIDEO_HW = (360, 640)
NUM_DRIVES = 4
FRAMES_PER_SECOND = 30
_PICTURE_HW = (1024, 2048)
_JPEG_QUALITY = 80  # about 100 kB per frame of 960 x 540


@attrs.frozen
class VideoKind:
    """How a video is encoded.

    Attributes:
        name: For tables.
        codec: ``libx264`` (with three B-frames between the others), ``libvpx-vp9``, or ``mjpeg``.
        suffix: Of the file; it chooses the container.
        key_frames_every: Frames from one key frame to the next, for the drives in turn.
    """

    name: str
    codec: str
    suffix: str
    key_frames_every: tuple[int, ...]


VIDEO_KINDS = (
    VideoKind("H.264", "libx264", ".mp4", (12, 18, 24, 30)),
    VideoKind("VP9", "libvpx-vp9", ".webm", (12, 18, 24, 30)),
    VideoKind("MJPEG", "mjpeg", ".avi", (1,)),
)


@functools.cache
def large_picture(seed: int = 0) -> UInt8Array:
    """A picture of noise with amplitudes like those of photographs, (H, W, 3); not to be changed."""
    generator = np.random.default_rng(seed)
    height, width = _PICTURE_HW
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None, :])
    amplitude = 1 / np.maximum(frequency, 1 / width) ** 1.3
    layers = []
    for _ in range(2):  # brightness, and tint
        spectrum = amplitude * np.exp(2j * np.pi * generator.random(amplitude.shape))
        layer = np.fft.irfft2(spectrum, s=_PICTURE_HW)
        layers.append((layer - layer.mean()) / layer.std())
    brightness, tint = layers
    channels = [118 + 48 * brightness + part * tint for part in (14, 0, -14)]
    picture: UInt8Array = np.clip(np.stack(channels, axis=-1), 0, 255).astype(np.uint8)
    picture.flags.writeable = False
    return picture


def drive(picture: UInt8Array, number: int, num_frames: int, frame_hw: tuple[int, int]) -> Iterator[UInt8Array]:
    """Frames of a drive over the picture; drives of other numbers start elsewhere and go elsewhere."""
    generator = np.random.default_rng(number)
    height, width = frame_hw
    most = np.array([picture.shape[0] - height, picture.shape[1] - width])
    place, velocity = generator.random(2) * most, generator.uniform(2, 6, 2) * [0.3, 1]
    for _ in range(num_frames):
        top, left = np.abs((place + most) % (2 * most) - most).astype(int)  # reflected at the edges
        yield np.ascontiguousarray(picture[top : top + height, left : left + width])
        place += velocity


def write_frames(folder: Path, picture: UInt8Array, number: int, num_frames: int) -> list[Path]:
    """JPEGs of a drive, in a folder."""
    folder.mkdir(parents=True)
    from PIL import Image

    paths = []
    for frame, pixels in enumerate(drive(picture, number, num_frames, FRAME_HW)):
        paths.append(folder / f"{frame:05d}.jpg")
        Image.fromarray(pixels).save(paths[-1], quality=_JPEG_QUALITY)
    return paths


def make_frames(root: Path, picture: UInt8Array, num_frames: int, num_links: int) -> list[Path]:
    """Folders of the frames of drives, each linked many times over: long, and yet in the page cache.

    Returns:
        The files that are no links.
    """
    paths = []
    for number in range(NUM_DRIVES):
        written = write_frames(root / f"drive_{number}_0", picture, number, num_frames)
        paths += written
        for link in range(1, num_links):
            folder = root / f"drive_{number}_{link}"
            folder.mkdir()
            for path in written:
                os.link(path, folder / path.name)
    return paths


def make_videos(
    root: Path,
    picture: UInt8Array,
    kind: VideoKind,
    num_frames: int,
    num_drives: int = NUM_DRIVES,
    frame_hw: tuple[int, int] = VIDEO_HW,
) -> list[Path]:
    """Videos of drives; each is a little longer than the one before."""
    root.mkdir()
    paths = []
    for number in range(num_drives):
        paths.append(root / f"drive_{number}{kind.suffix}")
        frames = drive(picture, number, num_frames + 10 * number, frame_hw)
        key_frame_every = kind.key_frames_every[number % len(kind.key_frames_every)]
        write_video(paths[-1], frames, kind, key_frame_every, frame_hw)
    return paths


def write_video(
    path: Path,
    frames: Iterator[UInt8Array],
    kind: VideoKind,
    key_frame_every: int,
    frame_hw: tuple[int, int] = VIDEO_HW,
) -> None:
    import av

    options = {
        "libx264": {"preset": "veryfast", "crf": "23", "bf": "3", "g": str(key_frame_every)},
        "libvpx-vp9": {"deadline": "realtime", "cpu-used": "8", "b": "4M", "g": str(key_frame_every)},
        "mjpeg": {"qmin": "4", "qmax": "4"},
    }[kind.codec]
    with av.open(str(path), "w") as container:
        stream = container.add_stream(kind.codec, rate=FRAMES_PER_SECOND, options=options)
        stream.height, stream.width = frame_hw
        stream.pix_fmt = "yuvj420p" if kind.codec == "mjpeg" else "yuv420p"
        stream.codec_context.time_base = Fraction(1, FRAMES_PER_SECOND)
        for pixels in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())
