# SPDX-License-Identifier: Apache-2.0
"""What files, sequences of frames and videos cost as providers, beside DALI's own readers and PyTorch's loader.

The data are generated in a temporary folder, and are in the page cache when the measuring begins. In each race
the contestants deliver the same:

- ``files``: JPEGs of about 100 kB in a random order, as (H, W, 3) images or as bytes. ``provider`` is a
  `FileDataProvider`, ``native`` a `FileReader`; both are decoded by the step `ImageDecoder`, in the same number
  of threads.
- ``sequences``: eight frames each, as (8, H, W, 3), one after the other, apart or with half of their frames in
  common. ``provider`` is a `FrameSequenceDataProvider` with its decoder, ``native`` a `SequenceReader`.
- ``video``: clips of eight frames, as (8, H, W, 3). ``provider`` is a `VideoDataProvider`, ``streamed`` slot by
  slot in the order of play, or ``shuffled``, where nearly each clip needs a seek; ``native`` is a `VideoReader`,
  where DALI knows the codec. For one worker, the frames that are decoded are counted.

``PyTorch`` is ``torch.utils.data.DataLoader``, which decodes in as many workers as the provider has, with Pillow,
PyAV, and, if it is installed, OpenCV.

They run interleaved, in turns of nearly half a second, in an order that changes from turn to turn; each turn gives
a ratio. Printed are medians and ranges, the time on processors that a frame takes in all processes together, then
the targets. The load averages in the file tell whether other programs ran at the same time: contestants with more
processes win then, as they get more of the machine; the time on processors hardly depends on that.

    python benchmarks/bench_sources.py [--quick] [--only RACE ...] [--output FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import nvidia.dali
import psutil
from source_contestants import (
    NUM_THREADS,
    SEQUENCE_LENGTH,
    GetBatch,
    decoded_per_delivered,
    files,
    sequences,
    videos,
)
from source_data import (
    FRAMES_PER_SECOND,
    VIDEO_KINDS,
    VideoKind,
    large_picture,
    make_frames,
    make_videos,
)

FILES_PER_BATCH = 16
SEQUENCES_PER_BATCH = 4
CLIPS_PER_BATCH = 2
MOST_DECODED_PER_DELIVERED = 1.1


@attrs.frozen
class Scale:
    """How much is measured.

    Attributes:
        num_workers: Worker processes of the contestants that have several.
        num_turns: Turns of each contestant, after one that warms up.
        num_seconds: Length of a turn.
        num_prefetched: Batches before a turn that are not measured: they were loaded while others ran.
        num_frames: Frames of a generated folder of frames.
        num_links: How often each of them is in the data set.
        num_video_frames: Frames of a generated video.
        video_kinds: Which of `VIDEO_KINDS`.
        steps: Frames from sequence to sequence, by name of the race.
    """

    num_workers: int
    num_turns: int
    num_seconds: float
    num_prefetched: int
    num_frames: int
    num_links: int
    num_video_frames: int
    video_kinds: slice
    steps: dict[str, int]


APART, OVERLAPPING = SEQUENCE_LENGTH, SEQUENCE_LENGTH // 2
FULL = Scale(2, 5, 0.4, 4, 64, 40, 240, slice(None), {"apart": APART, "overlapping": OVERLAPPING})
QUICK = Scale(1, 1, 0.02, 1, 16, 2, 48, slice(1, 2), {"overlapping": OVERLAPPING})


@attrs.frozen
class Target:
    """A ratio of throughputs that is to be reached."""

    faster: str
    than: str
    at_least: float


@attrs.frozen
class Race:
    """Contestants that deliver the same.

    Attributes:
        name: What they deliver.
        unit: What is counted.
        start: Starts them; what is to be closed afterwards goes onto the stack.
        targets: What is to be reached.
        reported: Further pairs whose ratio is of interest.
        videos: What is delivered, if frames decoded are to be counted.
    """

    name: str
    unit: str
    start: Callable[[ExitStack], dict[str, GetBatch]]
    targets: tuple[Target, ...] = ()
    reported: tuple[tuple[str, str], ...] = ()
    videos: Sequence[Path] = ()


def races(root: Path, scale: Scale) -> list[Race]:
    """Make the data in a folder, and say who is to deliver them."""
    picture = large_picture()
    frames = root / "frames"
    paths = make_frames(frames, picture, scale.num_frames, scale.num_links)
    kinds = VIDEO_KINDS[scale.video_kinds]
    videos = {kind.name: make_videos(root / kind.name, picture, kind, scale.num_video_frames) for kind in kinds}
    return [
        *(file_race(name, paths, scale) for name in ("decoded", "bytes")),
        *(sequence_race(name, frames, step, scale) for name, step in scale.steps.items()),
        *(video_race(kind, videos[kind.name], scale) for kind in kinds),
    ]


def file_race(name: str, paths: Sequence[Path], scale: Scale) -> Race:
    is_decoded = name == "decoded"
    others = ("native", "PyTorch, Pillow", "PyTorch, OpenCV")[is_decoded:]
    return Race(
        f"files, {name}",
        "images" if is_decoded else "files",
        lambda resources: files(paths, FILES_PER_BATCH, is_decoded, scale.num_workers, resources),
        (Target("provider", "native", 0.9),) if is_decoded else (),
        tuple(("provider", other) for other in others),
    )


def sequence_race(name: str, root: Path, step: int, scale: Scale) -> Race:
    return Race(
        f"sequences, {name}",
        "frames",
        lambda resources: sequences(root, SEQUENCES_PER_BATCH, step, scale.num_workers, resources),
        (Target("provider", "native", 1.0),),
        (("provider", "PyTorch, Pillow"),),
    )


def video_race(kind: VideoKind, paths: Sequence[Path], scale: Scale) -> Race:
    return Race(
        f"video, {kind.name}",
        "frames",
        lambda resources: videos(
            paths, FRAMES_PER_SECOND, CLIPS_PER_BATCH, kind.is_native, scale.num_workers, resources
        ),
        (),
        (
            ("provider, streamed, 1 worker", "provider, shuffled, 1 worker"),
            ("provider, streamed, 1 worker", "provider, shuffled"),
            ("provider, streamed, 1 worker", "native, in order"),
            ("provider, shuffled", "native, shuffled"),
            ("provider, shuffled", "PyTorch, PyAV, shuffled"),
        ),
        paths,
    )


# --- measuring ------------------------------------------------------------------------------------------


def processor_seconds() -> float:
    """Time on processors of this process and all its workers until now."""
    own = psutil.Process()
    times = [each.cpu_times() for each in (own, *own.children(recursive=True))]
    return sum(each.user + each.system for each in times)


def take_turn(get_batch: GetBatch, scale: Scale) -> tuple[float, float]:
    """Units per second, and milliseconds on processors per unit."""
    for _ in range(scale.num_prefetched):  # what was loaded while others ran
        get_batch()
    on_processors, start, num_units = processor_seconds(), time.perf_counter(), 0
    while time.perf_counter() - start < scale.num_seconds:
        num_units += get_batch()
    num_seconds = time.perf_counter() - start
    return num_units / num_seconds, 1e3 * (processor_seconds() - on_processors) / num_units


def run(race: Race, scale: Scale) -> dict[str, Any]:
    with ExitStack() as resources:
        contestants = race.start(resources)
        turns: dict[str, list[tuple[float, float]]] = {name: [] for name in contestants}
        order, shuffle = list(contestants), random.Random(0)
        for turn in range(scale.num_turns + 1):
            shuffle.shuffle(order)
            for name in order:
                result = take_turn(contestants[name], scale)
                if turn > 0:  # the first one warms up
                    turns[name].append(result)
    rates = {name: [rate for rate, _ in of_name] for name, of_name in turns.items()}
    pairs = [(target.faster, target.than) for target in race.targets] + [*race.reported]
    row: dict[str, Any] = {
        "race": race.name,
        "unit": race.unit,
        "per_second": {name: spread(values, 1) for name, values in rates.items()},
        "processor_ms_each": {
            name: spread([milliseconds for _, milliseconds in of_name], 3) for name, of_name in turns.items()
        },
        "ratios": [
            {"of": one, "to": other, **spread([a / b for a, b in zip(rates[one], rates[other], strict=True)], 3)}
            for one, other in pairs
            if {one, other} <= rates.keys()
        ],
    }
    if race.videos:
        row["decoded_per_delivered"] = decoded_per_delivered(race.videos, CLIPS_PER_BATCH)
    return row


def spread(values: list[float], num_digits: int) -> dict[str, float]:
    return {
        "median": round(statistics.median(values), num_digits),
        "min": round(min(values), num_digits),
        "max": round(max(values), num_digits),
    }


def judged(race: Race, row: dict[str, Any]) -> list[dict[str, Any]]:
    """The targets of a race, and whether they are met."""
    found = []
    if race.videos:
        count = row["decoded_per_delivered"]["streamed"]
        found.append(
            {
                "target": f"{race.name}: frames decoded per frame delivered, streamed, at most "
                f"{MOST_DECODED_PER_DELIVERED:g}",
                "limit": MOST_DECODED_PER_DELIVERED,
                "value": count,
                "is_met": count <= MOST_DECODED_PER_DELIVERED,
            }
        )
    for target in race.targets:
        ratio = next(each for each in row["ratios"] if (each["of"], each["to"]) == (target.faster, target.than))
        found.append(
            {
                "target": f"{race.name}: {target.faster} to {target.than}, at least {target.at_least:g}",
                "limit": target.at_least,
                "value": ratio["median"],
                "is_met": ratio["median"] >= target.at_least,
            }
        )
    return found


# --- reporting ------------------------------------------------------------------------------------------


def machine() -> dict[str, Any]:
    return {
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} usable cores",
        "python": platform.python_version(),
        "dali": nvidia.dali.__version__,
        "numpy": np.__version__,
    }


def in_words(values: dict[str, float], form: str) -> str:
    return f"{values['median']:{form}} [{values['min']:{form}}, {values['max']:{form}}]"


def show(row: dict[str, Any]) -> None:
    print(f"\n{row['race']}, {row['unit']} per second, and milliseconds on processors for each: median [min, max]")
    for name, rates in row["per_second"].items():
        milliseconds = in_words(row["processor_ms_each"][name], ".2f")
        print(f"  {name:32s} {in_words(rates, '.0f'):24s} {milliseconds}")
    for name, count in row.get("decoded_per_delivered", {}).items():
        print(f"  frames decoded per frame delivered, {name}: {count:.3f}")
    for ratio in row["ratios"]:
        print(f"  {ratio['of']} to {ratio['to']}: {in_words(ratio, '.2f')}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Sources as providers, beside DALI's readers.")
    parser.add_argument("--quick", action="store_true", help="a short run that only shows that it works")
    parser.add_argument("--only", nargs="+", metavar="RACE", help="races whose names begin so")
    parser.add_argument("--output", type=Path, help="file for the results as JSON")
    arguments = parser.parse_args()
    scale = QUICK if arguments.quick else FULL
    about = {**machine(), "workers": scale.num_workers, "threads_of_pipeline": NUM_THREADS}
    print(", ".join(f"{name} {value}" for name, value in about.items()))
    load_averages = [round(os.getloadavg()[0], 2)]
    rows, targets = [], []
    with tempfile.TemporaryDirectory() as folder:
        for race in races(Path(folder), scale):
            if arguments.only and not race.name.startswith(tuple(arguments.only)):
                continue
            rows.append(run(race, scale))
            show(rows[-1])
            targets += judged(race, rows[-1])
    load_averages.append(round(os.getloadavg()[0], 2))
    print(f"\nload average before and after: {load_averages}\n\ntargets")
    for each in targets:
        verdict = "met" if each["is_met"] else "MISSED"
        print(f"  {each['target']}, is {each['value']:.2f}: {verdict}")
    if arguments.output is not None:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        report = {**about, "load_average_before_and_after": load_averages, "results": rows, "targets": targets}
        arguments.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
