"""The memory that a pipeline shares with its workers: what one process notes, the others read."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator

import numpy as np
import pytest
from accvlab.dali_pipeline_framework.engine.control_block import ControlBlock, Work
from hypothesis import given, settings
from hypothesis import strategies as st

from accvlab.dali_pipeline_framework.ledgers import samples_text
from accvlab.dali_pipeline_framework.providers.frame_counts import count_frames

RING = 64


@pytest.fixture
def block() -> Iterator[ControlBlock]:
    block = ControlBlock(4)
    yield block
    block.close()


LARGE = [(0, 0), (3, 17), (2**31, 5), (2**40, 2**40), (5, 2**32), (7, 2**32 + 1), (2**62, 2**62)]


@pytest.mark.parametrize(("epoch", "batch"), LARGE)
@pytest.mark.parametrize("slot", [0, 3])
def test_what_a_process_loads_is_found(block: ControlBlock, epoch: int, batch: int, slot: int) -> None:
    assert block.find_loading(os.getpid()) is None
    row = block.begin_batch(epoch, batch)
    block.note_loading(row, slot)
    assert block.find_loading(os.getpid()) == (epoch, batch, slot)
    assert block.find_loading(os.getpid() + 1) is None
    block.end_batch(batch)
    assert block.find_loading(os.getpid()) is None


@pytest.mark.parametrize("batch", [0, 2**31, 2**32 - 1, 2**32, 2**62])
def test_recorded_batches_are_told_apart(block: ControlBlock, batch: int) -> None:
    assert block.recorded_batch(batch) is None
    block.record_batch(batch, [2**40, 0, 5])
    assert block.recorded_batch(batch) == [2**40, 0, 5]
    assert block.recorded_batch(batch + RING) is None
    block.record_batch(batch + 1, [1, 2, 3, 4, 5])  # more than fit: the first are kept
    assert block.recorded_batch(batch + 1) == [1, 2, 3, 4]
    assert block.recorded_batch(batch) == [2**40, 0, 5]
    block.record_batch(batch + RING, [7])
    assert block.recorded_batch(batch) is None


@given(first=st.integers(0, 2**62), num_batches=st.integers(1, RING), size=st.integers(1, 5))
@settings(deadline=None)
def test_batches_in_flight_do_not_disturb_each_other(first: int, num_batches: int, size: int) -> None:
    block = ControlBlock(size)
    batches = range(first, first + num_batches)
    for batch in batches:
        block.record_batch(batch, [batch + slot for slot in range(size)])
    assert [block.recorded_batch(batch) for batch in batches] == [
        [batch + slot for slot in range(size)] for batch in batches
    ]
    block.close()


@given(epoch=st.integers(0, 2**62), batch=st.integers(0, 2**62), iteration=st.integers(0, 2**40))
@settings(deadline=None)
def test_epochs_are_located(epoch: int, batch: int, iteration: int) -> None:
    block = ControlBlock(1)
    block.map_epoch(11, epoch, batch)
    assert block.locate(11, iteration) == (epoch, batch + iteration)
    assert block.locate(3, iteration) == (3, iteration)  # of the same row
    block.close()


@pytest.mark.parametrize("num_in_flight", [65, 200])
def test_rows_for_as_many_batches_as_are_in_flight(num_in_flight: int) -> None:
    block = ControlBlock(2, num_in_flight)
    for batch in range(num_in_flight):
        block.record_batch(batch, [batch])
    copy = pickle.loads(pickle.dumps(block))
    assert [copy.recorded_batch(batch) for batch in range(num_in_flight)] == [[b] for b in range(num_in_flight)]
    block.record_batch(num_in_flight, [7])
    assert copy.recorded_batch(0) is None
    block.close()


@pytest.mark.parametrize("batch_size", [1, 5])
def test_the_longest_samples_that_are_told_fit(batch_size: int) -> None:
    block = ControlBlock(batch_size, 3)
    largest = [2**63 - 1] * batch_size
    texts = [samples_text(largest, [*largest, *largest]), samples_text([2**32 - 1] * batch_size), b""]
    for batch, text in enumerate(texts, 7):
        block.report_samples(2, batch, text)
    copy = pickle.loads(pickle.dumps(block))
    assert [copy.reported_samples(2, batch) for batch in (7, 8, 9)] == texts
    assert (copy.reported_samples(2, 4), copy.reported_samples(1, 7)) == (b"", b"")
    assert copy.work() == []  # which is stored behind them
    block.close()


def test_each_worker_takes_a_number_of_its_own(block: ControlBlock) -> None:
    copy = pickle.loads(pickle.dumps(block))  # as in a spawned worker
    assert [block.take_worker_number(), copy.take_worker_number(), block.take_worker_number()] == [0, 1, 2]
    pids = []
    for _ in range(4):
        pid = os.fork()
        if pid == 0:
            os._exit(block.take_worker_number())
        pids.append(pid)
    assert sorted(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids) == [3, 4, 5, 6]


def test_work_of_workers_adds_up() -> None:
    block = ControlBlock(4, num_workers=2)
    copy = pickle.loads(pickle.dumps(block))  # as in a spawned worker
    assert (block.work(), block.num_loaded) == ([], 0)
    outputs = [np.zeros((4, 5), np.uint8), [np.zeros(3, np.float32), np.zeros(2, np.float32)]]
    count_frames(1000, 1000)
    copy.begin_batch(0, 0)  # what was decoded before it is not of it
    count_frames(5, 7)
    count_frames(1, 2)
    copy.add_work(1, (10, 17, 20, 21), 4, outputs)
    copy.add_work(1, (100, 200, 300, 400), 3, outputs)
    block.add_work(0, (2**40, 2**41, 2**41, 2**41 + 1), 1, [])
    expected = [Work(os.getpid(), 2**40, 0, 1, 1, 0, 1), Work(os.getpid(), 107, 103, 101, 7, 80, 2, 6, 9)]
    assert (block.work(), copy.work(), block.num_loaded) == (expected, expected, 3)
    block.record_batch(63, [1, 2, 3, 4])  # the last row before
    assert block.work() == expected
    block.close()
    assert block.work() == expected


def test_abandoned_epochs(block: ControlBlock) -> None:
    generation = block.generation
    assert block.place_to_load(0, 3) == (0, 3)
    block.abandon_epoch(2**40)
    places = [block.place_to_load(epoch, 3) for epoch in (0, 2**40, 2**40 + 1)]
    assert places == [None, None, (2**40 + 1, 3)]
    assert block.generation == generation + 1


def test_batches_that_are_held_back(block: ControlBlock) -> None:
    block.hold_back(2, 5)
    assert [block.place_to_load(*place) for place in ((2, 4), (1, 9), (3, 0))] == [(2, 4), (1, 9), (3, 0)]
    with pytest.raises(RuntimeError):
        block.place_to_load(2, 5)
    block.map_epoch(7, 2, 4)  # epoch 7 of the pipeline is the rest of epoch 2
    assert block.place_to_load(7, 0) == (2, 4)
    with pytest.raises(RuntimeError):
        block.place_to_load(7, 1)


def test_a_copy_in_a_worker_shares_the_memory(block: ControlBlock) -> None:
    copy = pickle.loads(pickle.dumps(block))
    copy.note_loading(copy.begin_batch(2**33, 2**34), 2)
    assert block.find_loading(os.getpid()) == (2**33, 2**34, 2)
    block.record_batch(63, [1, 2, 3, 4])  # the last row
    assert copy.recorded_batch(63) == [1, 2, 3, 4]
