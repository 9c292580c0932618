# SPDX-License-Identifier: Apache-2.0
"""What files, sequences of frames and videos cost as providers, beside DALI's own readers and PyTorch's loader.

The data are generated in a temporary folder, and are in the page cache when the measuring begins. In each race
the contestants deliver the same:

- ``files``: JPEGs of about 100 kB in a random order, as (H, W, 3) images or as bytes. ``provider`` is a
  `FileDataProvider`, ``native`` a `FileReader`; both are decoded by the step `ImageDecoder`, in the same number
  of threads.
- ``sequences``: eight frames each, as (8, H, W, 3), one after the other: from each frame on, as both do by
  default, with half of their frames in common, or apart. ``provider`` is `Windows` of a `FrameDataProvider`
  with a decoder, ``native`` a `SequenceReader`.
- ``video``: clips of eight frames, as (8, H, W, 3). ``provider`` is `Windows` of frames, ``streamed`` slot by
  slot in the order of play, or ``shuffled``, where nearly each clip needs a seek. For one worker, the frames
  that are decoded are counted.

``PyTorch`` is ``torch.utils.data.DataLoader``, which decodes in as many workers as the provider has, with Pillow,
PyAV, and, if it is installed, OpenCV.

They run interleaved, in turns of half a second, in an order that changes from turn to turn; each turn gives
a ratio. Printed are medians and ranges, the time on processors that a frame takes in all processes together, then
the targets. The load averages in the file tell whether other programs ran at the same time: contestants with more
processes win then, as they get more of the machine; the time on processors hardly depends on that.

    python benchmarks/bench_sources.py [--quick] [--only RACE ...] [--output FILE]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
from races import Pace, Race, Target, judged, run, show, show_targets
from results_file import load_average, machine, write_results
from source_contestants import NUM_THREADS, SEQUENCE_LENGTH, decoded_per_delivered, files, sequences, videos
from source_data import FRAMES_PER_SECOND, VIDEO_KINDS, VideoKind, large_picture, make_frames, make_videos

MOST_DECODED_PER_DELIVERED = 1.1


@attrs.frozen
class Scale:
    """How much is measured.

    Attributes:
        num_workers: Worker processes of the contestants that have several.
        pace: How long.
        files_per_batch: Also sequences, and clips per batch.
        num_frames: Frames of a generated folder of frames.
        num_links: How often each of them is in the data set.
        num_videos: Videos of each kind.
        num_video_frames: Frames of a generated video, the first one.
        video_kinds: Which of `VIDEO_KINDS`.
        steps: Frames from sequence to sequence, by name of the race.
    """

    num_workers: int
    pace: Pace
    files_per_batch: int
    sequences_per_batch: int
    clips_per_batch: int
    num_frames: int
    num_links: int
    num_videos: int
    num_video_frames: int
    video_kinds: slice
    steps: dict[str, int]


STEPS = {"from each frame on": 1, "overlapping by half": SEQUENCE_LENGTH // 2, "apart": SEQUENCE_LENGTH}
FULL = Scale(2, Pace(7, 0.5, 0.6), 16, 4, 2, 64, 40, 4, 240, slice(None), STEPS)
QUICK = Scale(
    0, Pace(1, 0.01, 0.0), 2, 1, 1, 12, 2, 2, 24, slice(1, 2), {"overlapping by half": SEQUENCE_LENGTH // 2}
)


def races(root: Path, scale: Scale) -> list[Race]:
    """Make the data in a folder, and say who is to deliver them."""
    picture = large_picture()
    frames = root / "frames"
    paths = make_frames(frames, picture, scale.num_frames, scale.num_links)
    kinds = VIDEO_KINDS[scale.video_kinds]
    size = scale.num_video_frames, scale.num_videos
    videos = {kind.name: make_videos(root / kind.name, picture, kind, *size) for kind in kinds}
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
        lambda resources: files(paths, scale.files_per_batch, is_decoded, scale.num_workers, resources),
        (Target("provider", "native", 0.9),) if is_decoded else (),
        tuple(("provider", other) for other in others),
    )


def sequence_race(name: str, root: Path, step: int, scale: Scale) -> Race:
    return Race(
        f"sequences, {name}",
        "frames",
        lambda resources: sequences(root, scale.sequences_per_batch, step, scale.num_workers, resources),
        (Target("provider", "native", 1.0),),
        (("provider", "PyTorch, Pillow"),),
    )


def video_race(kind: VideoKind, paths: Sequence[Path], scale: Scale) -> Race:
    return Race(
        f"video, {kind.name}",
        "frames",
        lambda resources: videos(paths, FRAMES_PER_SECOND, scale.clips_per_batch, scale.num_workers, resources),
        (),
        (
            ("provider, streamed, 1 worker", "provider, shuffled, 1 worker"),
            ("provider, streamed, 1 worker", "provider, shuffled"),
            ("provider, shuffled", "PyTorch, PyAV, shuffled"),
        ),
        lambda: {"decoded_per_delivered": decoded_per_delivered(paths, scale.clips_per_batch)},
    )


def count_judged(race: Race, row: dict[str, Any]) -> list[dict[str, Any]]:
    """The target of the frames that are decoded for a video, and whether it is met."""
    if "decoded_per_delivered" not in row:
        return []
    count = row["decoded_per_delivered"]["streamed"]
    return [
        {
            "target": f"{race.name}: frames decoded per frame delivered, streamed, at most "
            f"{MOST_DECODED_PER_DELIVERED:g}",
            "limit": MOST_DECODED_PER_DELIVERED,
            "value": count,
            "is_met": count <= MOST_DECODED_PER_DELIVERED,
        }
    ]


def show_count(row: dict[str, Any]) -> None:
    for name, count in row.get("decoded_per_delivered", {}).items():
        print(f"  frames decoded per frame delivered, {name}: {count:.3f}")


def main(command_line: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Sources as providers, beside DALI's readers.")
    parser.add_argument("--quick", action="store_true", help="a short run that only shows that it works")
    parser.add_argument("--only", nargs="+", metavar="RACE", help="races whose names begin so")
    parser.add_argument("--output", type=Path, help="file for the results as JSON")
    arguments = parser.parse_args(command_line)
    scale = QUICK if arguments.quick else FULL
    about = {**machine(), "workers": scale.num_workers, "threads_of_pipeline": NUM_THREADS}
    print(", ".join(f"{name} {value}" for name, value in about.items()))
    load_averages = [load_average()]
    rows, targets = [], []
    with tempfile.TemporaryDirectory() as folder:
        for race in races(Path(folder), scale):
            if arguments.only and not race.name.startswith(tuple(arguments.only)):
                continue
            rows.append(run(race, scale.pace))
            show(rows[-1])
            show_count(rows[-1])
            targets += count_judged(race, rows[-1]) + judged(race, rows[-1])
    load_averages.append(load_average())
    print(f"\nload average before and after: {load_averages}")
    show_targets(targets)
    report = {**about, "load_average_before_and_after": load_averages, "results": rows, "targets": targets}
    write_results(arguments.output, report)


if __name__ == "__main__":
    main()
