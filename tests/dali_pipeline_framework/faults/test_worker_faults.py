"""Workers that are killed, exit, or stand still: named in time, and the stream goes on, bit for bit.

What becomes of each fault with each policy, `fault_table.py` tells; this is what lies between the faults.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from disturbed_loaders import AT_THE_LATEST_S, loader_of, stream
from loader_processes import end_loader
from support.fault_providers import DeadlyProvider, ImageProvider
from support.inputs import NumberIterable
from support.laws import each_value, some
from support.loaders import frozen, make_loader
from support.pipelines import indices, worker_pids
from support.providers import IndexProvider
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework import DataLoader, FaultPolicy, SampleDataGroup
from accvlab.dali_pipeline_framework.errors import SourceError, WorkerDiedError, WorkerStartError
from accvlab.dali_pipeline_framework.workers.local import LocalWorkers


@pytest.fixture(scope="module")
def undisturbed() -> list[Any]:
    return stream(loader_of(ImageProvider(), num_workers=0))


def numbers(batches: list[Any]) -> list[Any]:
    return [batch["index"].tolist() for batch in batches]


CAUSES = {
    # The kernel counts what runs out of memory for all processes, those of other tests included.
    "kill": r"was ended by SIGKILL \((often )?because memory ran out[:,] .*\), while it loaded sample 17 ",
    "segfault": r"was ended by SIGSEGV \(a crash in native code that the data provider uses\), while it loaded s",
    "exit": r"exited with code 7, while it loaded sample 17 \(epoch 0, batch \d, slot \d\)",
    "stop": r"was ended by the loader, since it stood still for [\d.]+ s, while it loaded sample 17 ",
}


@pytest.mark.parametrize("fault", CAUSES)
def test_without_restarts_the_cause_is_named(tmp_path: Path, fault: str) -> None:
    policy = FaultPolicy(blocked_after=0.5 if fault == "stop" else None)
    with loader_of(DeadlyProvider(tmp_path, fault, {17: 1}), faults=policy) as loader:
        with pytest.raises(WorkerDiedError, match=CAUSES[fault]) as caught:
            list(loader)
        assert caught.value.sample_indices == (17,)


class SlowAt(DeadlyProvider):
    """One sample is slow, so that other workers come to a deadly one meanwhile."""

    slow_index = 0
    waits_for_death = False

    def get_data(self, sample_index: int) -> SampleDataGroup:
        if sample_index == self.slow_index:
            time.sleep(0.2)
            while self.waits_for_death and not any(self.folder.iterdir()):
                time.sleep(0.01)
        return super().get_data(sample_index)


@each_value(
    num_workers=[2, 1, 4],
    fault=["kill", "segfault", "block"],
    bad=[17, 0, 39],
    shuffle_restarts=[(True, 0), (False, 3)],
    depth=[2, 1, 3],
)
def test_batches_before_a_deadly_sample_come_first_and_only_its_batch_is_left_out(
    tmp_path: Path, num_workers: int, fault: str, bad: int, shuffle_restarts: tuple[bool, int], depth: int
) -> None:
    shuffle, restarts = shuffle_restarts
    due = numbers([*DataLoader(ImageProvider(), 2, shuffle=shuffle, seed=5, num_workers=0, output_type="numpy")])
    provider = SlowAt(tmp_path, fault, {bad: 9})
    faults = FaultPolicy(restarts=restarts, blocked_after=0.5 if fault == "block" else None)
    arguments = {"num_workers": num_workers, "shuffle": shuffle, "seed": 5, "start_method": "fork"}
    arguments |= {"output_type": "numpy", "pipeline_arguments": {"prefetch_queue_depth": depth}}
    deadly = next(number for number, batch in enumerate(due) if bad in batch)
    provider.slow_index = due[max(deadly - 1, 0)][0]
    words = (
        rf"^Sample {bad} \(epoch 0, batch {deadly}, slot \d\) has ended two" if restarts else f"[sS]ample {bad} "
    )
    received = []
    with DataLoader(provider, 2, **arguments, faults=faults) as loader:
        loop = iter(loader)
        for _ in range(1 if restarts else 2):  # the first error lets the batch be tried again
            with pytest.raises(WorkerDiedError, match=words):
                received += loop
            assert numbers(received) == due[:deadly]
        received += loop
    assert numbers(received) == due[:deadly] + due[deadly + 1 :]


def test_a_loop_that_is_left_before_the_error_is_due_leaves_nothing_of_it_behind(tmp_path: Path) -> None:
    provider = SlowAt(tmp_path, "kill", {11: 1})
    provider.slow_index, provider.waits_for_death = 4, True
    with loader_of(provider, shuffle=False, num_workers=4) as loader:
        loop = iter(loader)
        received = [*next(loop)["index"], *next(loop)["index"]]
        assert received == [*range(8)]
        assert any(tmp_path.iterdir())  # the worker has died, and the batches before it come
        assert len(list(loader)) == 10
        loader.set_epoch(0)
        assert len(list(loader)) == 10


def test_restarts_are_counted(tmp_path: Path) -> None:
    provider = DeadlyProvider(tmp_path, "kill", {1: 1, 20: 1, 39: 1})
    with loader_of(provider, num_workers=1, shuffle=False, faults=FaultPolicy(restarts=2)) as loader:
        with pytest.raises(WorkerDiedError, match="sample 39"):
            list(loader)
        assert loader.state_dict()["batch"] < 10


# --- workers that stand still ----------------------------------------------------------------------------


def test_a_loader_with_a_worker_that_does_not_end_is_closed_soon(tmp_path: Path) -> None:
    provider = DeadlyProvider(tmp_path, "block_unkillably", {17: 1})
    loader = loader_of(provider, shuffle=False)
    next(iter(loader))
    while not any(tmp_path.iterdir()):
        time.sleep(0.01)
    start = time.monotonic()
    loader.close()
    assert time.monotonic() - start < AT_THE_LATEST_S
    assert worker_pids() == []


@some("fault", ["block", "block_in_native_code"], {1})
def test_stacks_are_logged_where_no_batch_comes(
    tmp_path: Path, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    faults = FaultPolicy(stacks_after=0.3, blocked_after=2.5)
    loader = loader_of(DeadlyProvider(tmp_path, fault, {17: 1}), faults=faults)
    with loader, pytest.raises(WorkerDiedError):
        list(loader)
    logged = [record.getMessage() for record in caplog.records if "No batch has come" in record.getMessage()]
    # On a busy machine, batches before it may be awaited as long.
    sample = r"Worker process \d+ has been loading sample 17 \(epoch 0, batch \d, slot \d\) for \d+ s"
    first, *more = [text for text in logged if re.search(sample, text)]
    assert "batches are with the workers" in first
    assert re.search(rf'fault_providers.py", line \d+ in {fault}\n', first)
    assert len(re.findall(r"Worker process \d+", first)) == 2
    assert "in next_batch" in first  # of the main thread
    assert 1 <= len(more) <= 3  # after 0.6, 1.2 and 2.4 s


def test_spawned_workers_end_with_a_process_that_is_killed(tmp_path: Path) -> None:
    end_loader(tmp_path, "spawn", "SIGKILL")


# --- inputs that cannot be positioned -------------------------------------------------------------------


def test_an_iterable_cannot_go_on(caplog: pytest.LogCaptureFixture) -> None:
    with make_loader(NumberIterable(400), 4, num_workers=1, faults=FaultPolicy(restarts=3)) as loader:
        loop = iter(loader)
        next(loop)
        for pid in worker_pids():
            os.kill(pid, signal.SIGKILL)
        for _ in range(2):
            words = "SIGKILL... NumberIterable is an iterable: it has no random"
            assert_refused(lambda: list(loop), words, WorkerDiedError)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_loaded_state_has_a_deadly_sample_tried_again(tmp_path: Path, undisturbed: list[Any]) -> None:
    provider = DeadlyProvider(tmp_path, "kill", {17: 2})
    received: list[Any] = []
    with loader_of(provider, faults=FaultPolicy(restarts=4)) as loader:
        with pytest.raises(WorkerDiedError, match="has ended two workers"):
            received += map(frozen, loader)
        assert len(received) == loader.state_dict()["batch"]
        loader.load_state_dict(loader.state_dict())
        received += [*map(frozen, loader), *map(frozen, loader)]
    assert received == undisturbed


def test_another_epoch_is_set_while_no_workers_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(workers: LocalWorkers, number: int) -> None:
        raise WorkerStartError("There is no memory.")

    with DataLoader(
        IndexProvider(8), 4, shuffle=True, num_workers=1, start_method="fork", faults=FaultPolicy(restarts=1)
    ) as loader:
        loader.set_epoch(3)
        expected = indices(loader)
        loader.set_epoch(0)
        loop = iter(loader)
        for pid in worker_pids():
            os.kill(pid, signal.SIGKILL)
        with monkeypatch.context() as patch:
            patch.setattr(LocalWorkers, "start", fail)
            with pytest.raises(WorkerStartError, match="no memory"):
                next(loop)
        loader.set_epoch(3)
        assert indices(loop) == expected


def test_failures_of_samples_do_not_use_up_restarts(tmp_path: Path) -> None:
    with loader_of(
        DeadlyProvider(tmp_path, "fail", {17: 9}), shuffle=False, faults=FaultPolicy(restarts=1)
    ) as loader:
        loop = iter(loader)
        received = [next(loop) for _ in range(4)]
        with pytest.raises(SourceError, match="sample 17"):
            next(loop)
        received += loop
    assert numbers(received) == [[*range(n, n + 4)] for n in range(0, 40, 4) if n != 16]
