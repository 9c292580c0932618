"""What nuScenes costs, from its tables: conversion, opening, memory of a worker. At the size of trainval.

The tables are generated (`nuscenes_tables`): 850 scenes, 28,130 keyframes, 1.2 million boxes, 2.2 million records
of sensors. Each of these in a process of its own:

- ``conversion``: from the tables to the index, and the most memory that takes; without and with 2D boxes;
- ``open``: `NuScenesProvider(...)` and its first sample, with everything in it but images and points;
- ``worker``: what a spawned worker does: the pickled provider is loaded, and its first sample.

Memory is what a process has for itself, beyond what the imports took: anonymous memory, and USS, which also
counts pages of the index that it has mapped and no other process has mapped by then. It is taken after the
first sample, and after 1,000 samples from anywhere: then a lone worker has mapped most of the index, in pages that
belong to the page cache and that all workers share.

    python benchmarks/bench_nuscenes.py [--quick] [--output FILE] [--folder FOLDER]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import pickle
import platform
import resource
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import psutil
from nuscenes_tables import FULL, VERSION, write_tables
from results_file import write_results

from accvlab.driving_data.datasets import NuScenesProvider

QUICK = (2, 12, 400)
START_METHOD = "spawn"
MOST_OPEN_SECONDS, MOST_MEGABYTES, MOST_CONVERSION_MEGABYTES = 0.2, 50.0, 3000.0
NUM_SAMPLES = 1000
_FIELDS: dict[str, Any] = {"boxes_2d": True, "num_future_frames": 6, "classes": "detection"}


class WithoutImages(NuScenesProvider):
    """Everything but the bytes of images."""

    def _image(self, cameras: Any, frame: int, camera: int) -> Any:
        return np.zeros(1, np.uint8)


def _memory() -> dict[str, float]:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    kilobytes = {line.split(":")[0]: float(line.split()[1]) for line in lines[1:]}
    return {"anonymous": kilobytes["Anonymous"] / 1e3, "uss": psutil.Process().memory_full_info().uss / 1e6}


def _growth(before: dict[str, float]) -> dict[str, float]:
    return {name: value - before[name] for name, value in _memory().items()}


def convert(root: Path, cache: Path, with_boxes_2d: bool) -> dict[str, float]:
    """Make the index; seconds, and megabytes at most."""
    before, start, start_of_work = _memory(), time.perf_counter(), time.process_time()
    NuScenesProvider(root, VERSION, index_cache=cache, boxes_2d=with_boxes_2d)
    seconds, work = time.perf_counter() - start, time.process_time() - start_of_work
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    return {
        **{"seconds": seconds, "processor_seconds": work},
        **{"most_megabytes": most, "before_megabytes": before["uss"]},
    }


def open_index(root: Path, cache: Path) -> dict[str, Any]:
    """Open it, and load a sample."""
    before, start = _memory(), time.perf_counter()
    provider = WithoutImages(root, VERSION, split="train", index_cache=cache, **_FIELDS)
    constructed = time.perf_counter() - start
    provider.get_data(0)
    seconds = time.perf_counter() - start
    first = _growth(before)
    return {"seconds": seconds, "constructed": constructed, "first": first, "pickle": pickle.dumps(provider)}


def in_worker(pickled: bytes) -> dict[str, Any]:
    """Load the pickled provider, a sample, and many samples."""
    before, start = _memory(), time.perf_counter()
    provider = pickle.loads(pickled)
    provider.get_data(len(provider) // 2)
    seconds = time.perf_counter() - start
    first = _growth(before)
    rng = np.random.default_rng(0)
    start = time.perf_counter()
    for number in rng.integers(len(provider), size=NUM_SAMPLES).tolist():
        provider.get_data(number)
    return {
        "seconds": seconds,
        "first": first,
        "many": _growth(before),
        "ms_per_sample": (time.perf_counter() - start) / NUM_SAMPLES * 1e3,
    }


def _alone(function: Any, *arguments: Any) -> Any:
    """The result of a function, in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(START_METHOD)) as pool:
        pool.submit(_memory).result()  # the imports are no part of it
        return pool.submit(function, *arguments).result()


def _spread(values: list[float]) -> dict[str, float]:
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


def measure(sizes: tuple[int, int, int], folder: Path, num_turns: int) -> dict[str, Any]:
    """Write the tables, and measure."""
    root, cache = folder / "nuscenes", folder / "index"
    written = write_tables(root, *sizes)
    results: dict[str, Any] = {"tables": attrs.asdict(written)}
    results["conversion"] = {
        name: _alone(convert, root, cache, flag) for name, flag in (("plain", False), ("with 2D boxes", True))
    }
    opened = [_alone(open_index, root, cache) for _ in range(num_turns)]
    workers = [_alone(in_worker, opened[0]["pickle"]) for _ in range(num_turns)]
    results["pickle_bytes"] = len(opened[0]["pickle"])
    results["index_megabytes"] = sum(path.stat().st_size for path in cache.rglob("*.npy")) / 2 / 1e6
    results["open"] = {name: _spread([one[name] for one in opened]) for name in ("constructed", "seconds")}
    results["worker"] = {name: _spread([one[name] for one in workers]) for name in ("seconds", "ms_per_sample")}
    for when in ("first", "many"):
        for kind in ("anonymous", "uss"):
            megabytes = [one[when][kind] for one in workers]
            results["worker"][f"{kind} megabytes, {when}"] = _spread(megabytes)
    results["targets"] = [
        _target(
            "open: provider and first sample, seconds", results["open"]["seconds"]["median"], MOST_OPEN_SECONDS
        ),
        *(
            _target(f"worker: {name}", results["worker"][name]["max"], MOST_MEGABYTES)
            for name in ("anonymous megabytes, first", "uss megabytes, first", "anonymous megabytes, many")
        ),
        _target(
            "conversion: megabytes at most",
            max(one["most_megabytes"] for one in results["conversion"].values()),
            MOST_CONVERSION_MEGABYTES,
        ),
    ]
    return results


def _target(name: str, value: float, limit: float) -> dict[str, Any]:
    return {"target": name, "value": value, "limit": limit, "is_met": value <= limit}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small tables, one turn")
    parser.add_argument("--output", type=Path, help="where the numbers are saved, as JSON")
    parser.add_argument("--folder", type=Path, help="of the tables and the index (3 GB); default: a temporary one")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        report = measure(QUICK if options.quick else FULL, Path(folder), 1 if options.quick else 5)
    report = {
        "processor": platform.processor() or platform.machine(),
        "usable cores": len(os.sched_getaffinity(0)),
        "load averages": os.getloadavg(),
        **report,
    }
    write_results(options.output, report)
    tables = report["tables"]
    print(
        f"{tables['scenes']} scenes, {tables['keyframes']} keyframes, {tables['boxes']} boxes, "
        f"{tables['sensor_records']} records of sensors: {tables['megabytes']:.0f} MB of tables"
    )
    for name, one in report["conversion"].items():
        print(
            f"conversion, {name}: {one['seconds']:.1f} s ({one['processor_seconds']:.1f} s of work), "
            f"{one['most_megabytes']:.0f} MB at most"
        )
    for name in ("open", "worker"):
        for what, spread in report[name].items():
            print(f"{name}: {what} {spread['median']:.3g} ({spread['min']:.3g} to {spread['max']:.3g})")
    for target in report["targets"]:
        verdict = "met" if target["is_met"] else "MISSED"
        print(f"{verdict}: {target['target']} {target['value']:.3g}, at most {target['limit']:g}")


if __name__ == "__main__":
    main()
