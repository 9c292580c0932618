"""What a batch costs beside the work on its data."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import calls_per_sample
import pytest
from calls_per_sample import of_package
from support.array_samples import group_of
from support.arrays import DT
from support.providers import IndexProvider

from accvlab.dali_pipeline_framework import SampleDataGroup

IMAGE = b"P6 2 2 255\n" + bytes(12)


class Images(IndexProvider):
    def __init__(self) -> None:
        super().__init__(100)
        self.blueprint = group_of(image=DT.UINT8, speed=DT.FLOAT)

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        return self.blueprint

    def get_data(self, sample_index: int) -> SampleDataGroup:
        sample = self.blueprint.get_empty_like_self()
        sample["image"] = IMAGE
        sample["speed"] = sample_index
        return sample


def calls_of_a_batch(batch_size: int, **settings: Any) -> Counter[tuple[str, str]]:
    return of_package(calls_per_sample.calls_of_a_batch(Images(), batch_size, **settings))


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


def test_a_sample_of_a_batch_takes_few_calls_in_all(capsys: pytest.CaptureFixture[str]) -> None:
    calls_per_sample.main(["--batch-size", "8"])
    batch_of_8 = capsys.readouterr().out.splitlines()[1]
    in_all = re.search(r"in all, ([0-9.]+) per sample", batch_of_8)
    assert in_all is not None
    assert float(in_all[1]) <= 80, batch_of_8
