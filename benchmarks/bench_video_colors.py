# SPDX-License-Identifier: Apache-2.0
"""What decoded frames of 1920 x 1080 cost on a processor, next to PyAV alone.

Videos of drives (`source_data`) are made with each encoder that PyAV has. In one process, in turns that are
interleaved, the contestants get the same frames:

- ``in order``: one frame after the other. ``PyAV`` decodes and calls ``frame.to_ndarray(format="rgb24")``;
  ``provider`` is a `VideoFrameDataProvider`, by default and with ``colors="dali"``.
- ``clips``: eight frames one after the other. ``PyAV`` keeps a list of eight arrays, or stacks it; ``provider``
  is a `VideoDataProvider`, whose sample is one array.
- ``random``: single frames in the same random order, with key frames 30 frames apart. ``PyAV`` seeks to the key
  frame, decodes up to the wanted frame, and converts that one.

Counted are frames that are delivered per second of processor time: medians and ranges over the turns, and the
ratios of turns that follow each other.

    python benchmarks/bench_video_colors.py [--quick] [--output FILE]
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import av
import numpy as np
import source_data
from races import spread
from results_file import load_average, machine, write_results

from accvlab.dali_pipeline_framework.video import VideoDataProvider, VideoFrameDataProvider, Videos, index_video

CLIP_LENGTH = 8
GOP = 30
TARGETS = {"in order": 0.85, "clips": 0.85, "random": 0.6}
# By codec: encoder, its options, suffix.
ENCODERS: dict[str, tuple[str, dict[str, str], str]] = {
    "H.264": ("libx264", {"preset": "veryfast", "bf": "3", "b": "8M"}, ".mp4"),
    "HEVC": ("libx265", {"preset": "ultrafast", "x265-params": "log-level=none:open-gop=0", "b": "6M"}, ".mp4"),
    "VP9": ("libvpx-vp9", {"deadline": "realtime", "cpu-used": "8", "b": "6M"}, ".webm"),
    "AV1": ("libsvtav1", {"preset": "12", "svtav1-params": "lp=2", "b": "6M"}, ".mp4"),
}

Deliver = Callable[[int], None]  # so many frames


def write_video(path: Path, encoder: str, options: dict[str, str], num_frames: int, size: tuple[int, int]) -> None:
    width, height = size
    with av.open(str(path), "w") as container:
        stream = container.add_stream(encoder, rate=30, options={**options, "g": str(GOP)})
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.codec_context.colorspace, stream.codec_context.color_range = 1, 1  # BT.709, limited
        picture = source_data.large_picture()
        repeated = np.tile(picture, (1 + height // picture.shape[0], 1 + width // picture.shape[1], 1))
        for pixels in source_data.drive(repeated, 0, num_frames, (height, width)):
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode(None))


def opened(path: Path) -> tuple[Any, Any]:
    container = av.open(str(path))
    stream = container.streams.video[0]
    stream.thread_type, stream.thread_count = "SLICE", 1
    return container, stream


def by_pyav(path: Path) -> Iterator[Any]:
    """RGB of all frames, again and again."""
    while True:
        container, stream = opened(path)
        for frame in container.decode(stream):
            yield frame.to_ndarray(format="rgb24")
        container.close()


def in_order(path: Path) -> dict[str, Deliver]:
    frames = by_pyav(path)

    def deliver(num_frames: int) -> None:
        for _ in range(num_frames):
            next(frames)

    return {"PyAV": deliver, **{name: _samples(provider) for name, provider in _frame_providers(path).items()}}


def clips(path: Path) -> dict[str, Deliver]:
    frames = by_pyav(path)

    def deliver_lists(num_frames: int) -> None:
        for _ in range(num_frames // CLIP_LENGTH):
            [next(frames) for _ in range(CLIP_LENGTH)]

    def deliver_stacks(num_frames: int) -> None:
        for _ in range(num_frames // CLIP_LENGTH):
            np.stack([next(frames) for _ in range(CLIP_LENGTH)])

    provider = VideoDataProvider(Videos(path), sequence_length=CLIP_LENGTH)
    deliver = _samples(provider)
    return {
        "PyAV": deliver_lists,
        "PyAV, stacked": deliver_stacks,
        "provider": lambda num_frames: deliver(num_frames // CLIP_LENGTH),
    }


def single_frames(path: Path) -> dict[str, Deliver]:
    index = index_video(path)
    times = index.pts.tolist()
    container, stream = opened(path)
    provider = VideoFrameDataProvider(Videos(path, max_open_decoders=1))
    orders = {name: random.Random(0) for name in ("PyAV", "provider")}

    def deliver_by_pyav(num_frames: int) -> None:
        for _ in range(num_frames):
            wanted = orders["PyAV"].choice(times)
            key = int(index.key_pts.searchsorted(wanted, side="right")) - 1
            container.seek(int(index.seek_points[key]), stream=stream)
            next(frame for frame in container.decode(stream) if frame.pts == wanted).to_ndarray(format="rgb24")

    def deliver(num_frames: int) -> None:
        for _ in range(num_frames):
            provider.get_data(orders["provider"].randrange(len(times)))

    return {"PyAV": deliver_by_pyav, "provider": deliver}


def _frame_providers(path: Path) -> dict[str, VideoFrameDataProvider]:
    return {
        "provider": VideoFrameDataProvider(Videos(path)),
        'provider, colors="dali"': VideoFrameDataProvider(Videos(path, colors="dali")),
    }


def _samples(provider: Any) -> Deliver:
    place = 0

    def deliver(num_samples: int) -> None:
        nonlocal place
        for _ in range(num_samples):
            provider.get_data(place)
            place = (place + 1) % provider.get_number_of_samples()

    return deliver


def measured(contestants: dict[str, Deliver], num_frames: int, num_turns: int) -> dict[str, list[float]]:
    """Frames per second of processor time, of each turn but the first."""
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    order, shuffle = list(contestants), random.Random(0)
    for _ in range(1 + num_turns):
        shuffle.shuffle(order)
        for name in order:
            start = time.process_time()
            contestants[name](num_frames)
            rates[name].append(num_frames / (time.process_time() - start))
    return {name: values[1:] for name, values in rates.items()}


def results_of(codec: str, path: Path, num_frames: int, num_turns: int) -> list[dict[str, Any]]:
    rows = []
    for kind, start in (("in order", in_order), ("clips", clips), ("random", single_frames)):
        num_delivered = max(num_frames // 4, 1) if kind == "random" else num_frames
        rates = measured(start(path), num_delivered, num_turns)
        ratios = {
            name: spread([one / other for one, other in zip(values, rates["PyAV"], strict=True)], 3)
            for name, values in rates.items()
            if name != "PyAV"
        }
        print(f"\n{codec}, {kind}: frames per second of processor time, and ratio to PyAV: median [min, max]")
        for name, values in rates.items():
            ratio = ratios.get(name)
            text = "" if ratio is None else f"{ratio['median']:.2f} [{ratio['min']:.2f}, {ratio['max']:.2f}]"
            rate = spread(values, 1)
            print(
                f"  {name:26s} {rate['median']:6.1f} [{rate['min']:.1f}, {rate['max']:.1f}]   {text}", flush=True
            )
        per_second = {name: spread(values, 1) for name, values in rates.items()}
        rows.append({"codec": codec, "kind": kind, "per_core_second": per_second, "ratios_to_pyav": ratios})
    return rows


def main(command_line: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Frames per second of processor time, next to PyAV alone.")
    parser.add_argument("--quick", action="store_true", help="a short run that only shows that it works")
    parser.add_argument("--output", type=Path, help="file for the results as JSON")
    arguments = parser.parse_args(command_line)
    length, num_frames, num_turns, size = (32, 8, 1, (96, 64)) if arguments.quick else (240, 96, 7, (1920, 1080))
    os.environ.setdefault("SVT_LOG", "1")  # errors of the AV1 encoder only
    load_averages = [load_average()]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for codec, (encoder, options, suffix) in ENCODERS.items():
            if encoder not in av.codecs_available:
                print(f"\n{codec}: PyAV has no encoder {encoder}")
                continue
            path = Path(folder) / f"{encoder}{suffix}"
            write_video(path, encoder, options, length, size)
            rows += results_of(codec, path, num_frames, num_turns)
    load_averages.append(load_average())
    print(f"\nload average before and after: {load_averages}\n\ntargets, for H.264")
    for row in rows:
        value, target = row["ratios_to_pyav"]["provider"]["median"], TARGETS[row["kind"]]
        if row["codec"] == "H.264":
            verdict = "met" if value >= target else "MISSED"
            print(f"  {row['kind']}: at least {target:g} of PyAV, is {value:.2f}: {verdict}")
    write_results(arguments.output, {**machine(), "load_average_before_and_after": load_averages, "results": rows})


if __name__ == "__main__":
    main()
