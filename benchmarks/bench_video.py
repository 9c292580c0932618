# SPDX-License-Identifier: Apache-2.0
"""Clips of videos.

A sample is a clip of four frames from each of four cameras: 1920 x 1080 pixels, 6 Mbit/s, a key frame every 30
frames. Samples come in a random order; each contestant has two workers.

- *decoded*: the provider decodes the clips, in the workers.
- *encoded*: the provider cuts the clips out of the files without decoding them; the step `VideoDecoder` decodes
  them, *in workers* or *in the graph* (VP9 only: without a GPU, DALI decodes no H.264).
- *PyTorch, TorchCodec*: a data set of PyTorch decodes, with decoders that stay open.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import av
import numpy as np
import torch
from races import QUICK, START_METHOD, GetBatch, Pace, Race, Target, run_all
from results_file import Row
from step_contestants import of_loader
from step_data import UInt8Array, large_picture
from step_torch import torch_loader
from torch.utils.data import Dataset

from accvlab.dali_pipeline_framework import DataLoader, VideoDecoder, VideoFrameDataProvider, Videos, Windows

NUM_CAMERAS, NUM_FRAMES = 4, 4
TORCH = "PyTorch, TorchCodec"
DECODED, IN_WORKERS, IN_GRAPH = "decoded", "encoded, in workers", "encoded, in the graph"
LEAST_TO_TORCH = 1.5
BIT_RATE, KEY_FRAME_EVERY = 6_000_000, 30
_LIMIT = {"maxrate": "6M", "bufsize": "3M", "g": str(KEY_FRAME_EVERY)}
# Encoder, its options, suffix.
ENCODERS: dict[str, tuple[str, dict[str, str], str]] = {
    "H.264": ("libx264", {"preset": "veryfast", "bf": "3"}, ".mp4"),
    "VP9": (
        "libvpx-vp9",
        {"deadline": "realtime", "cpu-used": "8", "lag-in-frames": "0", "minrate": "6M"},
        ".webm",
    ),
}
_HAS_LINKS = "FFMPEG_OF_PYAV"


def measure(folder: Path, is_quick: bool) -> tuple[list[Row], list[Row]]:
    length, hw = (32, (64, 96)) if is_quick else (120, (1080, 1920))
    races = []
    for codec in ["VP9"] if is_quick else ENCODERS:
        suffix = ENCODERS[codec][2]
        paths = [folder / f"{codec}_{number}{suffix}" for number in range(NUM_CAMERAS)]
        write_video(paths[0], codec, length, hw)
        for path in paths[1:]:
            path.hardlink_to(paths[0])
        races.append(race(codec, paths, 0 if is_quick else 2))
    return run_all(races, QUICK if is_quick else Pace(3, 4.0, 1.0, 5))


# --- data ----------------------------------------------------------------------------------------------------


def drive(num_frames: int, hw: tuple[int, int]) -> Iterator[UInt8Array]:
    """A window that moves over a large picture: motion that codecs can predict."""
    picture, (height, width) = large_picture(), hw
    picture = np.tile(picture, (1 + height // picture.shape[0], 1 + width // picture.shape[1], 1))
    for frame in range(num_frames):
        top, left = frame, 4 * frame
        yield np.ascontiguousarray(picture[top : top + height, left : left + width])


def write_video(path: Path, codec: str, num_frames: int, hw: tuple[int, int]) -> None:
    encoder, options, _ = ENCODERS[codec]
    with av.open(str(path), "w") as container:
        stream = container.add_stream(encoder, rate=30, options={**options, **_LIMIT})
        (stream.height, stream.width), stream.pix_fmt = hw, "yuv420p"
        stream.bit_rate = BIT_RATE
        stream.codec_context.colorspace, stream.codec_context.color_range = 1, 1  # BT.709, limited
        for pixels in drive(num_frames, hw):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode(None))


# --- contestants ---------------------------------------------------------------------------------------------


def torchcodec_decoder() -> Any:
    """TorchCodec's class of a decoder, or None where it cannot be used."""
    try:
        from torchcodec.decoders import VideoDecoder as Decoder
    except (ImportError, RuntimeError, OSError):  # it is not here, or does not find FFmpeg
        return None
    return Decoder


def start_with_ffmpeg() -> None:
    """Start this program anew, so that TorchCodec finds FFmpeg: the libraries that PyAV has."""
    if importlib.util.find_spec("torchcodec") is None or os.environ.get(_HAS_LINKS) or torchcodec_decoder():
        return
    libraries = Path(av.__file__).parent.parent / "av.libs"
    links = Path(tempfile.mkdtemp(prefix="ffmpeg"))
    for path in (*libraries.glob("libav*.so.*"), *libraries.glob("libsw*.so.*")):
        name, version = path.name.partition("-")[0], path.name.partition(".so.")[2].partition(".")[0]
        (links / f"{name}.so.{version}").symlink_to(path)
    found = f"{links}:{libraries}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    environment = {**os.environ, "LD_LIBRARY_PATH": found, _HAS_LINKS: str(links)}
    os.execve(sys.executable, [sys.executable, *sys.argv], environment)


class TorchCodecClips(Dataset[torch.Tensor]):
    """Clips of all cameras, ``(cameras, frames, height, width, 3)``; each worker keeps its decoders open."""

    def __init__(self, paths: Sequence[str], num_clips: int) -> None:
        self.paths, self.num_clips = paths, num_clips
        self.decoders: list[Any] = []

    def __len__(self) -> int:
        return self.num_clips

    def __getitem__(self, index: int) -> torch.Tensor:
        if not self.decoders:
            make = torchcodec_decoder()
            self.decoders = [make(path, dimension_order="NHWC", num_ffmpeg_threads=1) for path in self.paths]
        first = index * NUM_FRAMES
        clips = [decoder.get_frames_in_range(first, first + NUM_FRAMES).data for decoder in self.decoders]
        return torch.stack(clips)


def race(codec: str, paths: Sequence[Path], num_workers: int) -> Race:
    ways = {DECODED: ("decoded", "auto"), IN_WORKERS: ("encoded", "workers")}
    if codec == "VP9":  # DALI decodes H.264 only with a GPU
        ways[IN_GRAPH] = ("encoded", "graph")

    def start(resources: ExitStack) -> Mapping[str, GetBatch]:
        videos = Videos(cameras={f"camera {number}": [str(path)] for number, path in enumerate(paths)})
        racing: dict[str, GetBatch] = {}
        for name, (images, run) in ways.items():
            frames = VideoFrameDataProvider(videos, image_name="frames", images=images)
            provider = Windows(frames, {"frames": range(NUM_FRAMES)}, unit="frames", step=NUM_FRAMES)
            loader = DataLoader(
                provider, 1, shuffle=True, seed=1, steps=[VideoDecoder("frames")] * (images == "encoded"), run=run,
                num_workers=num_workers, start_method=START_METHOD,
            )  # fmt: skip
            racing[name] = of_loader(resources.enter_context(loader), 1)
        if torchcodec_decoder() is not None:
            dataset = TorchCodecClips([str(path) for path in paths], provider.get_number_of_samples())
            racing[TORCH] = of_loader(torch_loader(dataset, 1, num_workers, shuffle=True), 1)
        return racing

    has_peer = torchcodec_decoder() is not None
    targets = (Target(DECODED, TORCH, LEAST_TO_TORCH),) * has_peer
    return Race(f"{NUM_CAMERAS} cameras x {NUM_FRAMES} frames, {codec}", "samples", start, targets)
