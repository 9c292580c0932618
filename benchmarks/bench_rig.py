# SPDX-License-Identifier: Apache-2.0
"""Six cameras and 54 small fields.

A sample has six JPEG files of 1600 x 900 pixels and 54 small fields; batches are tensors of PyTorch. Where a
contestant has workers, there are two; DALI has two threads.

- *this library*: a `DataLoader` with an `ImageDecoder`.
- *DALI by hand, an operator per camera*: six decoders, 60 outputs, and a `DALIGenericIterator`.
- *DALI by hand, folded*: the same with one decoder, which gets each image as a sample of its own, and with the
  small fields in one array.
- *DALI's decoder alone*: it decodes JPEGs that are in memory, and does nothing else.
- *PyTorch, OpenCV* and *PyTorch, simplejpeg*: PyTorch's `DataLoader`; the data set decodes.

All must deliver the same arrays (the decoder: the same images); this is checked before the measurement.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import rig_contestants as rigs
from races import QUICK, GetBatch, Pace, Race, Target, run_all
from results_file import Row
from rig_data import RigSamples
from step_data import write_jpegs

LIBRARY, DECODER = "this library", "DALI's decoder alone"
HAND_PER_CAMERA, HAND_FOLDED = "DALI by hand, an operator per camera", "DALI by hand, folded"
PYTORCH = {decoder: f"PyTorch, {decoder}" for decoder in ("OpenCV", "simplejpeg")}
LEAST_TO_DECODER, LEAST_TO_PER_CAMERA, LEAST_TO_PYTORCH = 0.92, 1.3, 2.5
_DECODERS_DIFFER_BY = 1.5  # grey levels, in the mean of an image
_FILLING_SECONDS_PER_SAMPLE = 0.3  # four batches in the workers of PyTorch, of six images each


def measure(folder: Path, is_quick: bool) -> tuple[list[Row], list[Row]]:
    samples = RigSamples(write_jpegs(folder / "rig", 6 if is_quick else 24), 6, num_per_camera=3, num_others=36)
    workers = 0 if is_quick else 2
    races = (race(samples, size, workers) for size in ((1,) if is_quick else (1, 2, 4, 8)))
    return run_all(races, QUICK if is_quick else Pace(4, 0.8, 0.3, 6))


def race(samples: RigSamples, size: int, workers: int) -> Race:
    def start(resources: ExitStack) -> dict[str, GetBatch]:
        racing: dict[str, GetBatch] = {
            LIBRARY: rigs.of_library(samples, size, workers, resources),
            HAND_PER_CAMERA: rigs.of_fields_by_hand(samples, size, workers),
            HAND_FOLDED: rigs.of_fields_folded_by_hand(samples, size, workers),
            DECODER: rigs.of_decoder_alone(samples, size),
        }
        return {
            **racing,
            **{name: rigs.of_torch(samples, size, workers, decoder) for decoder, name in PYTORCH.items()},
        }

    targets = [Target(LIBRARY, PYTORCH["OpenCV"], LEAST_TO_PYTORCH)]
    if size > 1:
        targets.append(Target(LIBRARY, DECODER, LEAST_TO_DECODER))
    if size <= 4:
        targets.append(Target(LIBRARY, HAND_PER_CAMERA, LEAST_TO_PER_CAMERA))
    filling = _FILLING_SECONDS_PER_SAMPLE * size * bool(workers)
    return Race(f"batches of {size}", "samples", start, tuple(targets), _DECODERS_DIFFER_BY, filling)
