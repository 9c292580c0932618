# SPDX-License-Identifier: Apache-2.0
"""Clips of several cameras, end to end: by this library, decoded or encoded, and by PyTorch with TorchCodec."""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from races import START_METHOD, GetBatch, PriceTarget, Race, Target, endless
from source_torch import torch_loader
from torch.utils.data import Dataset

from accvlab.dali_pipeline_framework import DataLoader, VideoDecoder, VideoFrameDataProvider, Videos, Windows

NUM_CAMERAS, NUM_FRAMES = 4, 4
TORCH = "PyTorch, TorchCodec"
DECODED, IN_WORKERS, IN_GRAPH = "decoded", "encoded, in workers", "encoded, in the graph"
AT_LEAST, AT_MOST = 1.5, 1 / 1.5  # of the rate, and of the processor time, of PyTorch's loader
_HAS_LINKS = "FFMPEG_OF_PYAV"


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
    import av

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


def clips_race(codec: str, paths: Sequence[Path], num_workers: int, is_in_graph: bool) -> Race:
    """Clips in a random order; ``is_in_graph``: whether DALI's graph decodes the codec without a GPU."""

    def start(resources: ExitStack) -> Mapping[str, GetBatch]:
        cameras = {f"camera {number}": [str(path)] for number, path in enumerate(paths)}
        videos = Videos(cameras=cameras)
        racing: dict[str, GetBatch] = {}
        ways = {DECODED: ("decoded", "auto"), IN_WORKERS: ("encoded", "workers"), IN_GRAPH: ("encoded", "graph")}
        for name, (images, run) in ways.items():
            if name == IN_GRAPH and not is_in_graph:
                continue
            frames = VideoFrameDataProvider(videos, image_name="frames", images=images)
            provider = Windows(frames, {"frames": range(NUM_FRAMES)}, unit="frames", step=NUM_FRAMES)
            loader = DataLoader(
                provider, 1, shuffle=True, seed=1, steps=[VideoDecoder("frames")] * (images == "encoded"), run=run,
                num_workers=num_workers, start_method=START_METHOD,
            )  # fmt: skip
            racing[name] = _batches(resources.enter_context(loader))
        if torchcodec_decoder() is not None:
            dataset = TorchCodecClips([str(path) for path in paths], provider.get_number_of_samples())
            racing[TORCH] = _batches(torch_loader(dataset, 1, num_workers=num_workers, shuffle=True))
        return racing

    has_peer = torchcodec_decoder() is not None
    ours = (DECODED, IN_WORKERS)
    return Race(
        f"{NUM_CAMERAS} cameras x {NUM_FRAMES} frames, {codec}",
        "samples",
        start,
        targets=tuple(Target(name, TORCH, AT_LEAST) for name in ours) * has_peer,
        price_targets=tuple(PriceTarget(name, TORCH, AT_MOST) for name in ours) * has_peer,
    )


def _batches(loader: Any) -> GetBatch:
    batches = endless(loader)

    def get_batch() -> int:
        next(batches)
        return 1

    return get_batch
