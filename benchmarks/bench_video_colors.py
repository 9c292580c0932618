# SPDX-License-Identifier: Apache-2.0
"""What frames of videos of 1920 x 1080 cost, decoded here or cut out, next to PyAV and TorchCodec.

Videos of drives (`source_data`) are made with each encoder that PyAV has. In one process, in turns that are
interleaved, the contestants get the same frames:

- ``in order``: one frame after the other. ``PyAV`` decodes and calls ``frame.to_ndarray(format="rgb24")``;
  ``provider`` is a `VideoFrameDataProvider`, by default and with ``colors="dali"``.
- ``clips``: eight frames one after the other. ``PyAV`` keeps a list of eight arrays, or stacks it; ``provider``
  is `Windows` of frames, whose sample is one array.
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

import attrs
import av
import clip_contestants as rigs
import numpy as np
import source_data
from races import Pace, judged, run, show, show_targets, spread
from results_file import load_average, machine, write_results

from accvlab.dali_pipeline_framework.providers import Windows
from accvlab.dali_pipeline_framework.video import VideoFrameDataProvider, Videos, index_video

CLIP_LENGTH = 8
GOP = 30
TARGETS = {"in order": 0.85, "clips": 0.85, "random": 0.6}
MOST_MS_OF_CUTTING, LEAST_OF_RGB = 1.5, 20.0
BIT_RATE = 6_000_000
_LIMIT = {"maxrate": "6M", "bufsize": "3M"}
# By codec: encoder, its options, suffix. All keep to the bit rate.
ENCODERS: dict[str, tuple[str, dict[str, str], str]] = {
    "H.264": ("libx264", {"preset": "veryfast", "bf": "3", **_LIMIT}, ".mp4"),
    "HEVC": ("libx265", {"preset": "ultrafast", "x265-params": "log-level=none:open-gop=0", **_LIMIT}, ".mp4"),
    "VP9": (
        "libvpx-vp9",
        {"deadline": "realtime", "cpu-used": "8", "lag-in-frames": "0", "minrate": "6M", **_LIMIT},
        ".webm",
    ),
    "AV1": ("libsvtav1", {"preset": "12", "svtav1-params": "lp=2:rc=1"}, ".mp4"),
}


@attrs.frozen
class Scale:
    """How much is measured.

    Attributes:
        length: Frames of each video.
        num_frames: Frames per turn.
        num_turns: Turns of each contestant that count, after one that warms up.
        size: Width and height of the frames.
        pace: Of the loaders.
        num_workers: Of each loader.
        end_to_end: Codecs of the clips that are loaded end to end.
    """

    length: int
    num_frames: int
    num_turns: int
    size: tuple[int, int]
    pace: Pace
    num_workers: int
    end_to_end: tuple[str, ...]


FULL = Scale(120, 64, 4, (1920, 1080), Pace(3, 4.0, 1.0, 5), 2, ("H.264", "VP9"))
QUICK = Scale(32, 8, 1, (96, 64), Pace(1, 0.05, 0.0), 0, ("VP9",))

Deliver = Callable[[int], None]  # so many frames


def write_video(path: Path, encoder: str, options: dict[str, str], num_frames: int, size: tuple[int, int]) -> None:
    width, height = size
    with av.open(str(path), "w") as container:
        stream = container.add_stream(encoder, rate=30, options={**options, "g": str(GOP)})
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.bit_rate = BIT_RATE
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

    torchcodec = by_torchcodec(path, 1)
    return {
        "PyAV": deliver,
        **torchcodec,
        **{name: _samples(provider) for name, provider in _frame_providers(path).items()},
    }


def clips(path: Path) -> dict[str, Deliver]:
    frames = by_pyav(path)

    def deliver_lists(num_frames: int) -> None:
        for _ in range(num_frames // CLIP_LENGTH):
            [next(frames) for _ in range(CLIP_LENGTH)]

    def deliver_stacks(num_frames: int) -> None:
        for _ in range(num_frames // CLIP_LENGTH):
            np.stack([next(frames) for _ in range(CLIP_LENGTH)])

    single = VideoFrameDataProvider(Videos(path))
    provider = Windows(single, {"image": range(CLIP_LENGTH)}, unit="frames", step=CLIP_LENGTH)
    deliver = _samples(provider)
    return {
        "PyAV": deliver_lists,
        "PyAV, stacked": deliver_stacks,
        **by_torchcodec(path, CLIP_LENGTH),
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

    return {"PyAV": deliver_by_pyav, **by_torchcodec(path, 1, is_random=True), "provider": deliver}


def by_torchcodec(path: Path, length: int, *, is_random: bool = False) -> dict[str, Deliver]:
    """Clips of some frames one after the other, or single frames; nothing where TorchCodec cannot be used."""
    make, order = rigs.torchcodec_decoder(), random.Random(0)
    if make is None:
        return {}
    decoder = make(str(path), dimension_order="NHWC", num_ffmpeg_threads=1)
    place = 0

    def deliver(num_frames: int) -> None:
        nonlocal place
        for _ in range(num_frames // length):
            if is_random:
                decoder.get_frame_at(order.randrange(len(decoder)))
                continue
            if place + length > len(decoder):
                place = 0
            decoder.get_frames_in_range(place, place + length)
            place += length

    return {"TorchCodec": deliver}


def cutting(codec: str, path: Path, size: tuple[int, int], num_clips: int) -> dict[str, Any]:
    """Processor time of cutting a clip out, and its bytes, at random places."""
    frames, offsets = VideoFrameDataProvider(Videos(path), images="encoded"), range(rigs.NUM_FRAMES)
    provider = Windows(frames, {"image": offsets}, unit="frames", step=rigs.NUM_FRAMES)
    order = random.Random(0)
    provider.get_data(0)
    milliseconds, sizes = [], []
    for _ in range(num_clips):
        start = time.process_time()
        sample = provider.get_data(order.randrange(provider.get_number_of_samples()))
        milliseconds.append(1e3 * (time.process_time() - start))
        sizes.append(sample["image"].nbytes / 1e3)
    rgb = rigs.NUM_FRAMES * size[0] * size[1] * 3 / 1e3 / float(np.mean(sizes))
    found = {"codec": codec, "ms": spread(milliseconds, 2), "kilobytes": spread(sizes, 1), "rgb_to_bytes": rgb}
    print(
        f"\n{codec}, clips of {rigs.NUM_FRAMES} frames cut out: {found['ms']['median']:.2f} ms and "
        f"{found['kilobytes']['median']:.1f} kB each; RGB has {rgb:.1f} times the bytes"
    )
    return found


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
        num_delivered = max(num_frames // 5, 1) if kind == "random" else num_frames
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
    parser = argparse.ArgumentParser(description="Frames of videos, next to PyAV and TorchCodec.")
    parser.add_argument("--quick", action="store_true", help="a short run that only shows that it works")
    parser.add_argument("--output", type=Path, help="file for the results as JSON")
    arguments = parser.parse_args(command_line)
    scale = QUICK if arguments.quick else FULL
    os.environ.setdefault("SVT_LOG", "1")  # errors of the AV1 encoder only
    load_averages = [load_average()]
    frames: list[dict[str, Any]] = []
    cuts: list[dict[str, Any]] = []
    races, targets = [], []
    bit_rates = {}
    with tempfile.TemporaryDirectory() as folder:
        for codec, (encoder, options, suffix) in ENCODERS.items():
            if encoder not in av.codecs_available:
                print(f"\n{codec}: PyAV has no encoder {encoder}")
                continue
            path = Path(folder) / f"{encoder}{suffix}"
            write_video(path, encoder, options, scale.length, scale.size)
            bit_rates[codec] = round(path.stat().st_size * 8 / (scale.length / 30) / 1e6, 2)
            print(f"\n{codec}: {bit_rates[codec]} Mbit/s")
            frames += results_of(codec, path, scale.num_frames, scale.num_turns)
            cuts.append(cutting(codec, path, scale.size, scale.num_frames))
            if codec in scale.end_to_end:
                paths = [path.with_name(f"{number}_{path.name}") for number in range(rigs.NUM_CAMERAS)]
                for each in paths:
                    each.hardlink_to(path)
                race = rigs.clips_race(codec, paths, scale.num_workers, is_in_graph=codec == "VP9")
                races.append(run(race, scale.pace))
                show(races[-1])
                targets += judged(race, races[-1])
    load_averages.append(load_average())
    print(f"\nload average before and after: {load_averages}")
    targets = [*frame_targets(frames), *cutting_targets(cuts), *targets]
    show_targets(targets)
    report = {
        **machine(), "load_average_before_and_after": load_averages, "mbit_per_s": bit_rates, "frames": frames,
        "cutting": cuts, "results": races, "targets": targets,
    }  # fmt: skip
    if rigs.torchcodec_decoder() is None:
        report["not_here"] = {"TorchCodec": "pip install --no-deps torchcodec"}
    write_results(arguments.output, report)


def frame_targets(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for row in rows:
        value, limit = row["ratios_to_pyav"]["provider"]["median"], TARGETS[row["kind"]]
        if row["codec"] == "H.264":
            what = f"H.264, {row['kind']}: frames per core-second, provider to PyAV, at least {limit:g}"
            found.append({"target": what, "limit": limit, "value": value, "is_met": value >= limit})
    return found


def cutting_targets(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for row in rows:
        ms, rgb = row["ms"]["median"], row["rgb_to_bytes"]
        what = f"{row['codec']}: milliseconds to cut a clip out, at most {MOST_MS_OF_CUTTING:g}"
        found.append(
            {"target": what, "limit": MOST_MS_OF_CUTTING, "value": ms, "is_met": ms <= MOST_MS_OF_CUTTING}
        )
        what = f"{row['codec']}: bytes of RGB to those of the file, at least {LEAST_OF_RGB:g}"
        found.append({"target": what, "limit": LEAST_OF_RGB, "value": rgb, "is_met": rgb >= LEAST_OF_RGB})
    return found


if __name__ == "__main__":
    rigs.start_with_ffmpeg()
    main()
