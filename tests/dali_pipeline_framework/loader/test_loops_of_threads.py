"""Loops, states and closing in several threads: they take turns, and nothing is lost, repeated, or waits."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest
from support.pipelines import make_iterator, shuffled
from support.providers import IndexProvider

from accvlab.dali_pipeline_framework import DataLoader, SampleDataGroup
from accvlab.dali_pipeline_framework.errors import ClosedError
from accvlab.dali_pipeline_framework.threads import called_in_thread

pytestmark = pytest.mark.timeout(60)

BATCHES = [[first, first + 1] for first in range(0, 60, 2)]


class WaitingProvider(IndexProvider):
    """Sample 5 says that it is being loaded, and waits."""

    def __init__(self, make_event: Callable[[], Any]) -> None:
        super().__init__(12)
        self.is_waiting, self.may_go_on = make_event(), make_event()

    def get_data(self, sample_index: int) -> SampleDataGroup:
        if sample_index == 5:
            self.is_waiting.set()
            self.may_go_on.wait()
        return super().get_data(sample_index)


def loader_of(provider: IndexProvider, num_workers: int, **settings: Any) -> DataLoader:
    settings = {"start_method": "fork", "output_type": "numpy", **settings}
    return DataLoader(provider, 2, num_workers=num_workers, **settings)


def children() -> set[psutil.Process]:
    return {*psutil.Process().children()}


def received_by(num_threads: int, loop: Iterator[Any]) -> list[list[int]]:
    """Have threads begin together, and each call `next` until the loop ends."""
    together = threading.Barrier(num_threads)

    def receive() -> list[list[int]]:
        together.wait()
        return [*_indices(loop)]

    futures = [called_in_thread(receive, "receiver") for _ in range(num_threads)]
    return [batch for future in futures for batch in future.result()]


def _indices(loop: Iterator[Any]) -> Iterator[list[int]]:
    for batch in loop:
        yield batch["index"].tolist()


@pytest.mark.parametrize("num_workers", [0, 2])
def test_threads_share_the_batches_of_a_loop(num_workers: int) -> None:
    with loader_of(IndexProvider(60), num_workers) as loader:
        for epoch in range(2):
            assert sorted(received_by(3, iter(loader))) == BATCHES
            assert loader.epoch == epoch + 1
            assert loader.state_dict()["batch"] == 0
        assert [*_indices(iter(loader))] == BATCHES


def test_threads_share_the_batches_of_an_iterator() -> None:
    with make_iterator(shuffled(IndexProvider(40), 2)) as iterator:
        assert sorted(received_by(3, iter(iterator))) == BATCHES[:20]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_loop_that_another_thread_closes_raises_a_closed_error(num_workers: int) -> None:
    provider = WaitingProvider(threading.Event if num_workers == 0 else multiprocessing.get_context("fork").Event)
    loader = loader_of(provider, num_workers)
    received: list[list[int]] = []
    before = children()
    looping = called_in_thread(lambda: received.extend(_indices(iter(loader))), "loop")
    assert provider.is_waiting.wait(30)
    closing = called_in_thread(loader.close, "close")
    if num_workers == 0:  # what the user's code does is not ended
        while "closed" not in repr(loader):
            time.sleep(0.001)
        assert not closing.done()
        provider.may_go_on.set()
    closing.result(30)
    with pytest.raises(ClosedError, match=r"^The loader was closed\. Create a new one\.$"):
        looping.result(30)
    with pytest.raises(ClosedError, match="The loader was closed"):
        next(iter(loader))
    assert received == BATCHES[: len(received)]
    assert children() <= before


def test_a_state_does_not_wait_for_a_batch() -> None:
    provider = WaitingProvider(threading.Event)
    with loader_of(provider, 0) as loader, loader_of(IndexProvider(12), 0) as other:
        looping = called_in_thread(lambda: [*_indices(iter(loader))], "loop")
        assert provider.is_waiting.wait(30)
        state = loader.state_dict()
        assert (state["epoch"], state["batch"]) in {(0, 0), (0, 1), (0, 2)}
        other.load_state_dict(state)
        assert [*_indices(iter(other))] == BATCHES[state["batch"] : 6]
        provider.may_go_on.set()
        assert looping.result(30) == BATCHES[:6]


def test_states_of_another_thread_are_those_of_whole_batches() -> None:
    states: list[dict[str, Any]] = []
    with loader_of(IndexProvider(60), 0) as loader:
        is_over = threading.Event()

        def save() -> None:
            while not is_over.is_set():
                states.append(loader.state_dict())

        saving = called_in_thread(save, "checkpoints")
        assert [*_indices(iter(loader))] == BATCHES
        is_over.set()
        saving.result(30)
    positions = [(state["epoch"], state["batch"]) for state in states]
    assert positions == sorted(positions)
    assert {*positions} <= {*((0, batch) for batch in range(30)), (1, 0)}
