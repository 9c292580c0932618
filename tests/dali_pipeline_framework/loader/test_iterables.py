"""Loaders of iterables, which cannot go back: each loop begins another epoch; and batches of unusual size."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.array_samples import group_of
from support.arrays import DT
from support.inputs import NumberIterable
from support.loaders import by_sampler, make_loader
from support.pipelines import indices
from support.providers import IndexProvider

from accvlab.dali_pipeline_framework.errors import GraphError, WorkerDiedError
from accvlab.dali_pipeline_framework.pipeline import SampleDataGroup
from accvlab.dali_pipeline_framework.processing_steps import ImageDecoder
from accvlab.dali_pipeline_framework.sampling import ShuffledSampler
from accvlab.dali_pipeline_framework.workers import starting

FIRST = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
SECOND = [[1000 + number for number in batch] for batch in FIRST]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_loop_after_an_interrupted_one_is_another_epoch(num_workers: int) -> None:
    def interrupted(batch: Any) -> Any:
        if batch["index"][0] == 4:
            raise KeyboardInterrupt
        return batch

    with make_loader(NumberIterable(), 4, num_workers=num_workers, post_process_func=interrupted) as loader:
        with pytest.raises(KeyboardInterrupt):
            list(loader)
        assert indices(loader) == SECOND
        assert loader.epoch == 2


class Images(NumberIterable):
    """Single images; the second of each epoch is broken."""

    @property
    def used_sample_data_structure(self) -> SampleDataGroup:
        return group_of(image=DT.UINT8)

    def __next__(self) -> list[list[Any]]:
        number = super().__next__()[0][0] % 1000
        return [[np.frombuffer(b"<html>" if number == 1 else b"P6 2 2 255\n" + bytes([number] * 12), np.uint8)]]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_the_loop_goes_on_after_a_batch_that_failed_in_the_graph(num_workers: int) -> None:
    with make_loader(Images(4, 1), 1, steps=[ImageDecoder("image", False)], num_workers=num_workers) as loader:
        for _ in range(2):
            loop = iter(loader)
            assert next(loop)["image"].max() == 0
            with pytest.raises(GraphError):
                next(loop)
            assert [batch["image"].max() for batch in loop] == [2, 3]


class DiesOnce(NumberIterable):
    """Ends its process at a batch the first time."""

    def __init__(self, mark: Path, at: int) -> None:
        super().__init__()
        self._mark, self._at = mark, at

    def __next__(self) -> list[list[Any]]:
        if self.position == self._at and not self._mark.exists():
            self._mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__next__()


@pytest.mark.parametrize(("at", "come_before"), [(0, []), (4, FIRST[:1])])
def test_another_loop_after_the_death_of_the_worker(tmp_path: Path, at: int, come_before: list[Any]) -> None:
    with make_loader(DiesOnce(tmp_path / "mark", at), 4, num_workers=1) as loader:
        received: list[Any] = []
        with pytest.raises(WorkerDiedError):
            received.extend(batch["index"].tolist() for batch in loader)
        assert received == come_before
        assert indices(loader) == FIRST  # of the worker that was started anew


def test_a_function_for_batches_does_not_end_the_epoch() -> None:
    known = iter(range(2))

    def take(batch: Any) -> Any:
        next(known)
        return batch

    with make_loader(NumberIterable(20), 4, post_process_func=take) as loader:
        with pytest.raises(RuntimeError, match="`post_process_func` raised StopIteration"):
            list(loader)
        assert loader.epoch == 0


def test_a_busy_worker_is_given_a_batch_of_any_number_of_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "LONGEST_TRANSFER_S", 0.2)
    count = 20_000  # their places take more than the buffer of a pipe
    source = by_sampler(ShuffledSampler(count, shuffle=False), IndexProvider(count), None)
    with make_loader(source, count, num_workers=1, worker_init_fn=lambda number: time.sleep(0.5)) as loader:
        assert indices(loader) == [[*range(count)]]
