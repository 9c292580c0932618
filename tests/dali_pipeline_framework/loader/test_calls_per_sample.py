"""What a batch costs beside the work on its data."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from support.arrays import DT
from support.providers import IndexProvider

import accvlab.dali_pipeline_framework as package
from accvlab.dali_pipeline_framework import DataLoader, ImageDecoder, SampleDataGroup

ROOT = str(Path(package.__file__).parent)
IMAGE = b"P6 2 2 255\n" + bytes(12)


class Images(IndexProvider):
    def __init__(self) -> None:
        super().__init__(100)
        self.blueprint = SampleDataGroup()
        self.blueprint.add_data_field("image", DT.UINT8)
        self.blueprint.add_data_field("speed", DT.FLOAT)

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        return self.blueprint

    def get_data(self, sample_index: int) -> SampleDataGroup:
        sample = self.blueprint.get_empty_like_self()
        sample["image"] = IMAGE
        sample["speed"] = sample_index
        return sample


def calls_of_a_batch(batch_size: int, **settings: Any) -> Counter[tuple[str, str]]:
    loader = DataLoader(
        Images(),
        batch_size,
        steps=[ImageDecoder("image", use_device_mixed=True)],
        shuffle=True,
        num_workers=0,
        output_type="numpy",
        pipeline_arguments={"prefetch_queue_depth": 1},
        **settings,
    )
    loop = iter(loader)
    next(loop)
    counts = []
    for _ in range(4):  # every 50 ms, the clocks of processes are read as well
        calls: Counter[tuple[str, str]] = Counter()

        def note(frame: FrameType, event: str, argument: Any, calls: Counter[Any] = calls) -> None:
            if event == "call" and frame.f_code.co_filename.startswith(ROOT):
                calls[frame.f_code.co_filename, frame.f_code.co_name] += 1

        sys.setprofile(note)
        try:
            next(loop)
        finally:
            sys.setprofile(None)
        counts.append(calls)
    loader.close()
    return min(counts, key=Counter.total)


def test_one_sample_takes_few_calls() -> None:
    calls = calls_of_a_batch(1)
    # 77 when this was written. Each is a hop that a reader makes, and a microsecond in one process.
    assert sum(calls.values()) <= 85, calls.most_common()


@pytest.mark.parametrize("run", ["graph", "workers"])
def test_policies_and_ledgers_take_few_calls_per_batch_and_none_per_sample(run: Any, tmp_path: Path) -> None:
    def more(batch_size: int, **settings: Any) -> Counter[tuple[str, str]]:
        return calls_of_a_batch(batch_size, run=run, **settings) - calls_of_a_batch(batch_size, run=run)

    for faults in ("replace", "skip"):
        calls = more(4, faults=faults, last_batch="partial")
        assert sum(calls.values()) <= 2, calls.most_common()
        assert more(8, faults=faults, last_batch="partial") == calls
    calls = more(4, ledger=tmp_path)
    assert sum(calls.values()) <= 12, calls.most_common()  # six of them in a worker
    assert more(8, ledger=tmp_path) == calls
