"""Calls of functions per batch.

The number of calls of Python functions for one batch of small samples, from the sampler to the training loop; *in
the package* counts functions of this library only. Fewer calls are faster (each takes 0.1 to 1 microsecond) and
easier to follow. The calls are counted in one process. In a loader with workers, some of them take place in the
workers. This lists the functions:

    python benchmarks/calls_per_sample.py [--batch-size 8] --by-function
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from nvidia.dali.types import DALIDataType

import accvlab.dali_pipeline_framework as package
from accvlab.dali_pipeline_framework import DataLoader, DataProvider, ImageDecoder, SampleDataGroup

ROOT = str(Path(package.__file__).parent)
IMAGE = b"P6 2 2 255\n" + bytes(12)


class Images(DataProvider):
    """Images of four pixels, and a number for each."""

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        """Format of a sample."""
        blueprint = SampleDataGroup()
        blueprint.add_data_field("image", DALIDataType.UINT8)
        blueprint.add_data_field("speed", DALIDataType.FLOAT)
        return blueprint

    def get_data(self, sample_index: int) -> SampleDataGroup:
        """Make a sample."""
        sample = self.new_sample()
        sample["image"] = IMAGE
        sample["speed"] = sample_index
        return sample

    def get_number_of_samples(self) -> int:
        """Size of the data set."""
        return 1000


class Counting:
    """Counts the calls of functions."""

    def __init__(self, calls: Counter[tuple[str, str]]) -> None:
        """Count into the given counter, by file and function."""
        self._calls = calls

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """Take note of an event, as `sys.setprofile` has it."""
        if event == "call":
            self._calls[frame.f_code.co_filename, frame.f_code.co_name] += 1


def of_package(calls: Counter[tuple[str, str]]) -> Counter[tuple[str, str]]:
    """Get the calls of functions of the package."""
    return Counter({place: count for place, count in calls.items() if place[0].startswith(ROOT)})


def calls_of_a_batch(provider: DataProvider, batch_size: int, **settings: Any) -> Counter[tuple[str, str]]:
    """Count the calls for a batch in the middle of an epoch, by file and function.

    Args:
        provider: The data set, with a field ``"image"``.
        batch_size: Number of samples.
        **settings: More settings of the loader.
    """
    with DataLoader(
        provider,
        batch_size,
        steps=[ImageDecoder("image", use_device_mixed=True)],
        shuffle=True,
        num_workers=0,
        output_type="numpy",
        pipeline_arguments={"prefetch_queue_depth": 1},
        **settings,
    ) as loader:
        loop = iter(loader)
        next(loop)
        return calls_of_next(loop)


def calls_of_next(loop: Iterator[Any]) -> Counter[tuple[str, str]]:
    """Count the calls for a batch of a loop that has begun, by file and function.

    Those of five batches are counted, since garbage may be collected within one of them: the least is returned.
    """
    counts = []
    for _ in range(5):
        calls: Counter[tuple[str, str]] = Counter()
        sys.setprofile(Counting(calls))
        try:
            next(loop)
        finally:
            sys.setprofile(None)
        counts.append(calls)
    return min(counts, key=Counter.total)


def measure(folder: Path, is_quick: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Count the calls for batches of one and of eight samples."""
    rows = []
    for size in (1, 8):
        calls = calls_of_a_batch(Images(), size)
        figures = {"in the package": of_package(calls).total(), "in all": calls.total()}
        rows.append({"case": f"a batch of {size}", "of": "this library", **figures})
    return rows, []


def main(arguments: list[str] | None = None) -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--by-function", action="store_true")
    options = parser.parse_args(arguments)
    for size in (1, options.batch_size):
        calls = calls_of_a_batch(Images(), size)
        own = of_package(calls)
        print(
            f"a batch of {size}: {own.total()} calls in the package, {own.total() / size:.1f} per sample; "
            f"{calls.total()} in all, {calls.total() / size:.1f} per sample"
        )
        if options.by_function:
            for (file, function), count in own.most_common():
                print(f"{count:6d}  {file.removeprefix(ROOT + '/')}  {function}")


if __name__ == "__main__":
    main()
