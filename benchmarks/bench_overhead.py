# SPDX-License-Identifier: Apache-2.0
"""What the framework costs on top of DALI.

Two pipelines do the same work: the same arrays per sample, the same operators, the same settings, PyTorch
tensors at the end.

- ``dali``: written by hand with ``pipeline_def``, ``fn.external_source`` and DALI's own PyTorch iterator.
- ``framework``: a data provider, an input callable, a `PipelineDefinition`, and its iterator.

A third, ``dali raw``, is the hand-written pipeline read with ``run()`` and ``np.asarray``, without PyTorch and
without names: a bound that leaves out what a user would have to write. (The framework is compared with it on
NumPy output.)

They run interleaved, in turns of a number of batches each, in an order that changes from turn to turn; each turn
gives a ratio. Printed are the median ratio and its range, above 1 where the framework is faster.

    python benchmarks/bench_overhead.py [--quick] [--output FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import nvidia.dali
from nvidia.dali import fn, pipeline_def, types
from nvidia.dali.plugin.pytorch import DALIGenericIterator

from accvlab.dali_pipeline_framework.inputs import DataProvider, ShuffledShardedInputCallable
from accvlab.dali_pipeline_framework.pipeline import (
    DALIStructuredOutputIterator,
    PipelineDefinition,
    SampleDataGroup,
)
from accvlab.dali_pipeline_framework.processing_steps import PipelineStepBase

BATCH_SIZE = 8
NUM_SAMPLES = 1 << 40  # the runs never reach the end of an epoch
FIELDS = (1, 10, 60)
CAMERAS = 6


def arrays_of(num_fields: int, index: int) -> list[np.ndarray]:
    """The payload of a sample: for 60 fields six encoded images' worth of bytes and 54 small fields."""
    if num_fields < 60:
        return [np.full((4,), index + field, np.float32) for field in range(num_fields)]
    images = [np.full((50_000,), index & 255, np.uint8) for _ in range(CAMERAS)]
    return images + [np.full((4,), index + field, np.float32) for field in range(num_fields - CAMERAS)]


class HandWrittenSource:
    """The callable of the hand-written pipeline."""

    def __init__(self, num_fields: int) -> None:
        self.num_fields = num_fields

    def __call__(self, info: types.SampleInfo) -> tuple[np.ndarray, ...]:
        return tuple(arrays_of(self.num_fields, info.idx_in_epoch))


class PayloadProvider(DataProvider):
    """The same payload as a data provider."""

    def __init__(self, num_fields: int) -> None:
        self.num_fields = num_fields
        self._blueprint: SampleDataGroup | None = None

    def get_number_of_samples(self) -> int:
        return NUM_SAMPLES

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        blueprint = SampleDataGroup()
        for field, array in enumerate(arrays_of(self.num_fields, 0)):
            dtype = types.DALIDataType.UINT8 if array.dtype == np.uint8 else types.DALIDataType.FLOAT
            blueprint.add_data_field(f"field_{field}", dtype)
        return blueprint

    def get_data(self, sample_index: int) -> SampleDataGroup:
        if self._blueprint is None:
            self._blueprint = self.sample_data_structure
        sample = self._blueprint.get_empty_like_self()
        for field, array in enumerate(arrays_of(self.num_fields, sample_index)):
            sample[f"field_{field}"] = array
        return sample


class HalfOfTheFields(PipelineStepBase):
    """Multiplies every second field by two, so that there are operators, too."""

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        for name in data.contained_top_level_field_names[::2]:
            if data.get_type_of_field(name) == types.DALIDataType.FLOAT:
                data[name] = data[name] * 2.0
        return data

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        return data_empty


def hand_written_pipeline(num_fields: int, settings: dict[str, Any]) -> Any:
    dtypes = [types.UINT8 if array.dtype == np.uint8 else types.FLOAT for array in arrays_of(num_fields, 0)]

    @pipeline_def(batch_size=BATCH_SIZE, **settings)
    def define() -> tuple[Any, ...]:
        outputs = fn.external_source(
            source=HandWrittenSource(num_fields),
            num_outputs=num_fields,
            dtype=dtypes,
            batch=False,
            parallel=True,
            prefetch_queue_depth=2,
        )
        for field in range(0, num_fields, 2):
            if dtypes[field] == types.FLOAT:
                outputs[field] = outputs[field] * 2.0
        return tuple(outputs)

    return define()


def framework_iterator(num_fields: int, settings: dict[str, Any], output_type: str) -> Any:
    data_input = ShuffledShardedInputCallable(PayloadProvider(num_fields), BATCH_SIZE)
    definition = PipelineDefinition(data_input, [HalfOfTheFields()], prefetch_queue_depth=2)
    pipeline = definition.get_dali_pipeline(**settings)
    return DALIStructuredOutputIterator(pipeline=pipeline, output_type=output_type)


def runners(num_fields: int, settings: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """For each contestant a function that gets the next batch."""
    by_hand = DALIGenericIterator(
        hand_written_pipeline(num_fields, settings), [f"field_{field}" for field in range(num_fields)]
    )
    raw = hand_written_pipeline(num_fields, settings)
    framework = iter(framework_iterator(num_fields, settings, "torch"))
    framework_numpy = iter(framework_iterator(num_fields, settings, "numpy"))
    return {
        "dali": lambda: next(by_hand),
        "framework": lambda: next(framework),
        "dali raw": lambda: [np.asarray(output.as_tensor()) for output in raw.run()],
        "framework numpy": lambda: next(framework_numpy),
    }


def seconds_per_batch(get_batch: Callable[[], Any], num_batches: int) -> float:
    for _ in range(4):  # what was prefetched while others ran
        get_batch()
    start = time.perf_counter()
    for _ in range(num_batches):
        get_batch()
    return (time.perf_counter() - start) / num_batches


def compare(num_fields: int, settings: dict[str, Any], num_turns: int, num_batches: int) -> dict[str, Any]:
    contestants = runners(num_fields, settings)
    order = list(contestants)
    times: dict[str, list[float]] = {name: [] for name in order}
    shuffle = random.Random(0)
    for turn in range(num_turns + 1):
        shuffle.shuffle(order)
        for name in order:
            seconds = seconds_per_batch(contestants[name], num_batches)
            if turn > 0:  # the first one warms up
                times[name].append(seconds)
    return {
        "fields": num_fields,
        "workers": settings["py_num_workers"],
        "ms_per_batch": {name: round(1e3 * statistics.median(values), 3) for name, values in times.items()},
        "ratio": ratios(times["dali"], times["framework"]),
        "ratio_numpy_to_raw": ratios(times["dali raw"], times["framework numpy"]),
    }


def ratios(baseline: list[float], framework: list[float]) -> dict[str, float]:
    values = [ours / theirs for ours, theirs in zip(baseline, framework, strict=True)]
    return {
        "median": round(statistics.median(values), 3),
        "min": round(min(values), 3),
        "max": round(max(values), 3),
    }


def machine() -> dict[str, Any]:
    return {
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} usable cores",
        "python": platform.python_version(),
        "dali": nvidia.dali.__version__,
        "numpy": np.__version__,
    }


def results(quick: bool) -> Iterator[dict[str, Any]]:
    for num_workers in (1,) if quick else (1, 2):
        for num_fields in FIELDS:
            settings = {
                "num_threads": 2,
                "device_id": None,
                "py_num_workers": num_workers,
                # A spawned worker imports PyTorch, which takes seconds.
                "py_start_method": "fork" if quick else "spawn",
                "prefetch_queue_depth": 2,
            }
            num_batches = (200 if num_fields < 60 else 60) // (20 if quick else 1)
            yield compare(num_fields, settings, num_turns=2 if quick else 15, num_batches=num_batches)


def in_words(ratio: dict[str, float]) -> str:
    return f"{ratio['median']:.2f} [{ratio['min']:.2f}, {ratio['max']:.2f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description="Cost of the framework on top of DALI.")
    parser.add_argument("--quick", action="store_true", help="a short run that only shows that it works")
    parser.add_argument("--output", type=Path, help="file for the results as JSON")
    arguments = parser.parse_args()
    about = machine()
    print(", ".join(f"{name} {value}" for name, value in about.items()))
    print(f"throughput of the framework relative to DALI by hand, batches of {BATCH_SIZE}: median [min, max]\n")
    print("fields  workers   to PyTorch            to NumPy, against raw run()   ms per batch (dali, framework)")
    rows = []
    for row in results(arguments.quick):
        rows.append(row)
        ms = row["ms_per_batch"]
        print(
            f"{row['fields']:6d}  {row['workers']:7d}   {in_words(row['ratio'])}     "
            f"{in_words(row['ratio_numpy_to_raw'])}             {ms['dali']:.2f}, {ms['framework']:.2f}",
            flush=True,
        )
    if arguments.output is not None:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps({**about, "results": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
