# SPDX-License-Identifier: Apache-2.0
"""The sections of the page that `bench` writes: who races, how long, and what is to be reached."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs
import rig_contestants as rigs
import scheduling
from chain_contestants import BY_DEFAULT, NOT_FOLDED, STEPS, folded_chain
from races import GetBatch, Pace, Race, Target, judged, run, show
from rig_data import RigSamples
from step_contestants import BY_HAND, TORCH
from step_data import DrivingSamples, write_jpegs

LIBRARY = "this library"
FIELD_BY_FIELD = "DALI by hand, an output per field"
PYTORCH = "PyTorch DataLoader"
PER_CAMERA = "this library, fold_arrays=False"
HAND_PER_CAMERA = "DALI by hand, an operator per camera"
HAND_FOLDED = "DALI by hand, folded"
DECODER = "DALI's decoder alone"

TRANSPORT_BATCH_SIZE = 8
NUM_TOUCHED = 10
LEAST_TO_FIELD_BY_FIELD = {(60, NUM_TOUCHED): 3.0, (80, 0): 6.0}
MOST_PACKING_US = 60.0
LEAST_TO_DECODER, LEAST_TO_PER_CAMERA, LEAST_TO_PYTORCH = 0.92, 1.3, 2.5
LEAST_SHARE_OF_IDEAL = 0.9
MOST_FIRST_BATCH_SECONDS, MOST_BUILD_SECONDS = 2.0, 0.5
_DECODERS_DIFFER_BY = 1.5  # grey levels, in the mean of an image
_NORMALIZED_DIFFER_BY = 0.03
# Two batches in a queue of DALI, of images on two cores; four in the workers of PyTorch, of six images each.
_FILLING_SECONDS_PER_IMAGE, _FILLING_SECONDS_PER_SAMPLE = 0.012, 0.3
_OTHERS_AT = 1  # the size of batches in which further libraries take part


@attrs.frozen
class Scale:
    """How much is measured.

    Attributes:
        num_workers: Of all contestants with workers, but in folding, where nobody has any.
        pace: How long, for transport and folding.
        long_pace: The same for whole loaders.
        num_images: Different images.
        fields: Numbers of small fields.
        folded: Batch sizes and numbers of cameras of the section on folding.
        batch_sizes: Of whole loaders.
        straggling_workers: Numbers of workers with stragglers among the samples.
        straggling_seconds: Length of a turn there.
        num_times: How often things are done that are done once, e.g. building.
    """

    num_workers: int
    pace: Pace
    long_pace: Pace
    num_images: int
    fields: tuple[int, ...]
    folded: tuple[tuple[int, ...], tuple[int, ...]]
    batch_sizes: tuple[int, ...]
    straggling_workers: tuple[int, ...]
    straggling_seconds: float
    num_times: int


FULL = Scale(
    num_workers=2,
    pace=Pace(4, 0.25, 0.15, 5),
    long_pace=Pace(4, 0.8, 0.3, 6),
    num_images=24,
    fields=(1, 10, 20, 40, 60, 80, 100),
    folded=((1, 2, 4, 8), (1, 3, 6, 8)),
    batch_sizes=(1, 2, 4, 8),
    straggling_workers=(2, 4, 8),
    straggling_seconds=5.0,
    num_times=5,
)
QUICK = Scale(
    num_workers=0,
    pace=Pace(1, 0.01, 0.0),
    long_pace=Pace(1, 0.01, 0.0),
    num_images=6,
    fields=(12,),
    folded=((2,), (2,)),
    batch_sizes=(1,),
    straggling_workers=(0,),
    straggling_seconds=0.01,
    num_times=1,
)


@attrs.frozen
class Section:
    """A section of the page.

    Attributes:
        name: In files, and to choose it.
        title: Its heading.
        text: What is measured.
        measure: Gives its report: ``results`` of races, ``targets``, and further figures.
    """

    name: str
    title: str
    text: str
    measure: Callable[[Path, Scale], dict[str, Any]]


def _run_all(races: Iterable[Race], pace: Pace) -> dict[str, Any]:
    rows, targets = [], []
    for race in races:
        rows.append(run(race, pace))
        show(rows[-1])
        targets += judged(race, rows[-1])
    return {"results": rows, "targets": targets}


def _most(what: str, value: float, limit: float) -> dict[str, Any]:
    return {"target": f"{what}, at most {limit:g}", "limit": limit, "value": value, "is_met": value <= limit}


def _least(what: str, value: float, limit: float) -> dict[str, Any]:
    return {"target": f"{what}, at least {limit:g}", "limit": limit, "value": value, "is_met": value >= limit}


# --- transport ---------------------------------------------------------------------------------------------


def transport(folder: Path, scale: Scale) -> dict[str, Any]:
    touched = [(count, NUM_TOUCHED) for count in scale.fields if count > NUM_TOUCHED][::2]
    cases = [*((count, 0) for count in scale.fields), *touched]
    report = _run_all((_transport_race(*case, scale) for case in cases), scale.pace)
    report["packing"] = [scheduling.packing(80, each, 400) for each in (0, NUM_TOUCHED)]
    for row in report["packing"]:
        what = f"packing in a worker, us per sample of {row['leaves']} fields, {row['touched']} touched"
        report["targets"].append(_most(what, row["us_per_sample"]["median"], MOST_PACKING_US))
    return report


def _transport_race(num_fields: int, num_touched: int, scale: Scale) -> Race:
    samples = RigSamples([], 0, num_others=num_fields)
    size, workers = TRANSPORT_BATCH_SIZE, scale.num_workers

    def start(resources: ExitStack) -> dict[str, GetBatch]:
        steps = [rigs.FirstFieldsDoubled(num_touched)] if num_touched else []
        return {
            LIBRARY: rigs.of_library(samples, steps, size, workers, resources),
            FIELD_BY_FIELD: rigs.of_fields_by_hand(samples, num_touched, size, workers),
            PYTORCH: rigs.of_torch(samples, num_touched, size, workers, "OpenCV"),
        }

    least = LEAST_TO_FIELD_BY_FIELD.get((num_fields, num_touched))
    targets = () if least is None else (Target(LIBRARY, FIELD_BY_FIELD, least),)
    return Race(
        f"{num_fields} fields" + (f", {num_touched} touched" if num_touched else ", untouched"),
        "samples",
        start,
        targets,
        tuple((LIBRARY, other) for other in (FIELD_BY_FIELD, PYTORCH)[bool(targets) :]),
        lambda: {"at": {"fields": num_fields, "touched": num_touched, "batch_size": size}},
        0.0,
    )


# --- folding -----------------------------------------------------------------------------------------------


def folding(folder: Path, scale: Scale) -> dict[str, Any]:
    images = write_jpegs(folder / "rig", scale.num_images)
    batch_sizes, numbers_of_cameras = scale.folded
    races = (
        _folding_race(work, batch_size, RigSamples(images, num_cameras))
        for work in rigs.WORKS
        for num_cameras in numbers_of_cameras
        for batch_size in batch_sizes
    )
    return _run_all(races, scale.pace)


def _folding_race(work: str, batch_size: int, samples: RigSamples) -> Race:
    steps, by_hand = rigs.WORKS[work]

    def start(resources: ExitStack) -> dict[str, GetBatch]:
        return {
            LIBRARY: rigs.of_library(samples, steps(), batch_size, 0, resources),
            PER_CAMERA: rigs.of_library(samples, steps(), batch_size, 0, resources, fold_arrays=False),
            HAND_PER_CAMERA: rigs.of_operator_per_camera(samples, by_hand, batch_size, 0),
            HAND_FOLDED: rigs.of_folded_by_hand(samples, by_hand, batch_size, 0),
        }

    return Race(
        f"{work}, {samples.num_cameras} cameras, batches of {batch_size}",
        "samples",
        start,
        (),
        tuple((LIBRARY, other) for other in (PER_CAMERA, HAND_PER_CAMERA, HAND_FOLDED)),
        lambda: {"at": {"work": work, "cameras": samples.num_cameras, "batch_size": batch_size}},
        _DECODERS_DIFFER_BY if work == "decode" else _NORMALIZED_DIFFER_BY,
        _FILLING_SECONDS_PER_IMAGE * batch_size * samples.num_cameras,
    )


# --- whole loaders -----------------------------------------------------------------------------------------


def end_to_end(folder: Path, scale: Scale) -> dict[str, Any]:
    from rig_torch import DECODERS

    images = write_jpegs(folder / "rig", scale.num_images)
    samples = RigSamples(images, 6, num_per_camera=3, num_others=36)
    is_full = scale is FULL
    modules = {name: module for name, (module, _) in DECODERS.items()}
    modules |= {name: module for name, (module, _) in rigs.OTHERS.items()}
    missing = (
        {name: rigs.why_not(module) for name, module in modules.items() if name != "OpenCV"} if is_full else {}
    )
    usable = [name for name, reason in missing.items() if not reason]
    for name in missing:
        print(f"{name}: {missing[name] or 'is here'}")
    races = (
        _end_to_end_race(samples, size, usable if size == _OTHERS_AT else [], scale.num_workers)
        for size in scale.batch_sizes
    )
    report = _run_all(races, scale.long_pace)
    return {**report, "not_here": {name: reason for name, reason in missing.items() if reason}}


def _end_to_end_race(samples: RigSamples, size: int, usable: list[str], workers: int) -> Race:
    def start(resources: ExitStack) -> dict[str, GetBatch]:
        steps = rigs.decoding_steps
        racing: dict[str, GetBatch] = {
            LIBRARY: rigs.of_library(samples, steps(), size, workers, resources),
            PER_CAMERA: rigs.of_library(samples, steps(), size, workers, resources, fold_arrays=False),
            HAND_PER_CAMERA: rigs.of_fields_by_hand(samples, 0, size, workers),
            HAND_FOLDED: rigs.of_fields_folded_by_hand(samples, size, workers),
            DECODER: rigs.of_decoder_alone(samples, size),
            TORCH: rigs.of_torch(samples, 0, size, workers, "OpenCV"),
        }
        for name in usable:
            if name in rigs.OTHERS:
                racing[name] = rigs.OTHERS[name][1](samples, size, workers, resources)
            else:
                racing[f"PyTorch, {name}"] = rigs.of_torch(samples, 0, size, workers, name)
        return racing

    targets = [Target(LIBRARY, TORCH, LEAST_TO_PYTORCH)]
    if size > 1:
        targets.append(Target(LIBRARY, DECODER, LEAST_TO_DECODER))
    if size <= 4:
        targets += [Target(LIBRARY, other, LEAST_TO_PER_CAMERA) for other in (HAND_PER_CAMERA, PER_CAMERA)]
    bounded = {target.than for target in targets}
    others = [DECODER, HAND_PER_CAMERA, HAND_FOLDED, PER_CAMERA]
    others += [name if name in rigs.OTHERS else f"PyTorch, {name}" for name in usable]
    return Race(
        f"six cameras and 54 small fields, batches of {size}",
        "samples",
        start,
        tuple(targets),
        tuple((LIBRARY, other) for other in others if other not in bounded),
        lambda: {"at": {"batch_size": size}},
        _DECODERS_DIFFER_BY,
        _FILLING_SECONDS_PER_SAMPLE * size * bool(workers),
    )


def stream_petr(folder: Path, scale: Scale) -> dict[str, Any]:
    samples = DrivingSamples.generate(folder / "chain", 4 if scale is FULL else 1)
    return _run_all((_chain_race(samples, size, scale) for size in scale.batch_sizes), scale.long_pace)


def _chain_race(samples: DrivingSamples, size: int, scale: Scale) -> Race:
    pairs = [(of, to) for of in (STEPS, BY_DEFAULT) for to in (NOT_FOLDED, BY_HAND)]
    targets = tuple(Target(*pair, LEAST_TO_PER_CAMERA) for pair in pairs) if size <= 4 else ()
    reported = [*pairs, (STEPS, TORCH), (BY_DEFAULT, TORCH)]
    return Race(
        f"chain of StreamPETR, batches of {size}",
        "samples",
        lambda resources: folded_chain(samples, size, scale.num_workers, resources),
        targets,
        tuple(reported),
        lambda: {"at": {"batch_size": size}},
        filling_seconds=_FILLING_SECONDS_PER_SAMPLE * size * bool(scale.num_workers),
    )


# --- scheduling --------------------------------------------------------------------------------------------


def times(folder: Path, scale: Scale) -> dict[str, Any]:
    report: dict[str, Any] = {"build": scheduling.build_seconds(scale.num_times)}
    targets = [
        _most(
            "seconds to define and build twenty steps over six cameras",
            report["build"]["median"],
            MOST_BUILD_SECONDS,
        )
    ]
    report["first_batch"] = first = scheduling.first_batch(scale.num_workers, scale.num_times)
    what = "seconds to the first batch of 10^6 shuffled samples, but for the start of interpreters"
    targets.append(_most(what, first["seconds"]["median"], MOST_FIRST_BATCH_SECONDS))
    report["stragglers"] = []
    for num_workers in scale.straggling_workers:
        row = scheduling.stragglers(num_workers, 3 if scale is FULL else 0, scale.straggling_seconds)
        report["stragglers"].append(row)
        print(f"\nstragglers, {row}")
        share = row["share_of_ideal"][LIBRARY]["median"]
        targets.append(_least(f"stragglers, {num_workers} workers: share of ideal", share, LEAST_SHARE_OF_IDEAL))
        what = f"stragglers, {num_workers} workers: samples come in their order"
        targets.append(_least(what, float(row["is_in_order"]), 1.0))
    return {**report, "results": [], "targets": targets}


SECTIONS = (
    Section(
        "transport",
        "Small fields",
        "Samples of small float32 fields, `(4,)`, in batches of 8, from two workers to tensors of PyTorch; "
        "nothing is loaded. *Touched* fields are doubled: by a step, by an operator in DALI, in the workers "
        "of PyTorch. *DALI by hand* is `fn.external_source` with an output per field, sample by sample, and "
        "`DALIGenericIterator`.",
        transport,
    ),
    Section(
        "folding",
        "Cameras folded into the batch",
        "JPEGs of 1600 x 900, one per camera; two threads, no workers: what is measured is the graph. "
        "*decode* gives whole images; the other work decodes the region that is shown, resizes it to 704 x "
        "256 and normalizes it.",
        folding,
    ),
    Section(
        "end_to_end",
        "Six cameras and 54 small fields, from end to end",
        "Six JPEGs of 1600 x 900 in files and 54 small fields per sample, decoded, as tensors of PyTorch; "
        "defaults, two workers, two threads. *DALI's decoder alone* decodes files in memory in batches of six "
        "images per sample, and does nothing else. *DALI by hand* is an output for each of the 60 fields and a "
        "decoder for each camera, with `DALIGenericIterator`; or, folded, images as samples, each with a share "
        "of the small fields in one array. Threads of torchdata, SPDL and Grain decode with OpenCV in "
        "the process of the loop.",
        end_to_end,
    ),
    Section(
        "chain",
        "A chain as for StreamPETR",
        "Decode, resize, crop and mirror at random to 704 x 256, normalize; intrinsics and projections; 3D "
        "boxes turned and scaled in the ego frame. *Steps* run in the graph, as DALI by hand does: one worker "
        "reads for DALI, which has two threads; PyTorch has two workers. *By default* is "
        '`run="auto"`: here images are resized in the two workers. That all do the same is shown by '
        "`tests/benchmarks`, with random numbers fixed.",
        stream_petr,
    ),
    Section(
        "times",
        "Stragglers, first batch, building",
        "*Stragglers*: samples are waited for 10 ms, one of twenty 200 ms, in batches of 8 at the default "
        "depths. The ideal are workers that never wait for each other. *First batch*: two spawned workers, "
        "10^6 samples, shuffled. *Building*: twenty steps over six cameras, defined and built, each "
        "time in a process of its own.",
        times,
    ),
)
