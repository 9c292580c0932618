"""Forks children in all ways, in loops over loaders and iterators, for `test_forked_children`."""

from __future__ import annotations

import atexit
import gc
import multiprocessing
import os
import signal
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from support.pipelines import make_iterator, shuffled, worker_pids
from support.providers import IndexProvider

from accvlab.dali_pipeline_framework import DataLoader
from accvlab.dali_pipeline_framework.errors import ClosedError

LONGEST_S = 20


# What loads, and a loop over it: nothing else refers to them, in no frame, so that a child can drop them.
held: dict[str, Any] = {}


def ending(action: Callable[[], object]) -> int:
    """How a child ends that does something; 7 where it comes to its end."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(LONGEST_S)  # ends it where it hangs
        action()
        sys.exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def ending_in_multiprocessing(action: Callable[[], object]) -> int | None:
    process = multiprocessing.get_context("fork").Process(target=in_time, args=(action,))
    process.start()
    process.join()
    return process.exitcode


def in_time(action: Callable[[], object]) -> None:
    signal.alarm(LONGEST_S)
    action()


def end() -> None:
    """Nothing but to end, with exit functions and finalizers."""


def end_at_once() -> None:
    os._exit(7)


def fail() -> None:
    os.close(2)
    raise ValueError("of a child")


def close() -> None:
    held["loading"].close()
    with held["loading"]:
        pass


def close_at_exit() -> None:
    atexit.register(held["loading"].close)


def drop() -> None:
    held.clear()
    gc.collect()


def use() -> None:
    """It is refused, and the batches stay those of the parent."""
    loading, loop = held["loading"], held["loop"]
    uses: list[Callable[[], Any]] = [lambda: next(loop)]
    if hasattr(loading, "state_dict"):
        state = loading.state_dict()
        assert state["batch"] > 0
        loading.set_epoch(3)
        uses += [lambda: next(loop), lambda: iter(loading), loading.start, lambda: loading.load_state_dict(state)]
    else:
        uses.append(loading.reset)
    for used in uses:
        with pytest.raises(ClosedError, match="in the process from which this one was forked"):
            used()


ACTIONS = (end, end_at_once, fail, close, close_at_exit, use, drop)
BATCHES = [[*range(first, first + 4)] for first in range(0, 80, 4)]


def fork_in_a_loop(make: Callable[[], Any]) -> list[int | None]:
    """How children end, while the parent gets all batches of the same workers."""
    held["loading"] = make()
    held["loop"] = iter(held["loading"])
    received, ends, before = [next(held["loop"])["index"].tolist()], [], worker_pids()
    for action in ACTIONS:
        ends.append(ending(action))
        received.append(next(held["loop"])["index"].tolist())
    ends.append(ending_in_multiprocessing(drop))
    received += [batch["index"].tolist() for batch in held["loop"]]
    assert received == BATCHES, received
    assert worker_pids() == before
    held["loading"].close()
    held.clear()
    return ends


def fork_where_there_is_garbage(make: Callable[[], Any]) -> list[int | None]:
    """How children end that collect what the parent has not closed."""
    gc.disable()
    loading: Any = make()
    loading.loop = iter(loading)
    next(loading.loop)
    loading.me = loading  # only the garbage collector can find out that it is dead
    del loading
    ends = [ending(gc.collect), ending_in_multiprocessing(gc.collect)]
    gc.enable()
    gc.collect()
    return ends


def in_order(epoch: int) -> list[int]:
    return [*range(80)] if epoch == 0 else [*range(80)][::-1]


def loader(start_method: str, num_workers: int) -> DataLoader:
    how: dict[str, Any] = {"num_workers": num_workers, "start_method": start_method, "output_type": "numpy"}
    return DataLoader(IndexProvider(80), 4, sampler=in_order, **how)


def load_in_both(num_workers: int) -> int | None:
    """How a child ends that loads with a loader that was not used before, while its parent does so, too."""
    held["loading"] = loader("fork", num_workers)
    reading, writing = os.pipe()

    def load_backwards() -> None:
        os.read(reading, 1)
        with held["loading"] as loading:
            loading.set_epoch(1)
            assert [batch["index"].tolist()[::-1] for batch in loading][::-1] == BATCHES
        assert worker_pids() == []

    process = multiprocessing.get_context("fork").Process(target=in_time, args=(load_backwards,))
    process.start()
    with held["loading"] as loading:
        loop = iter(loading)
        received = [next(loop)["index"].tolist()]
        os.write(writing, b".")
        process.join()
        assert received + [batch["index"].tolist() for batch in loop] == BATCHES
    return process.exitcode


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # of Python 3.12, about forks where there are threads
    method, workers = sys.argv[1], int(sys.argv[2])
    iterator = {"py_num_workers": workers, "py_start_method": method}
    for make in (lambda: loader(method, workers), lambda: make_iterator(shuffled(IndexProvider(80)), **iterator)):
        print(fork_in_a_loop(make), fork_where_there_is_garbage(make))
    print(load_in_both(workers))
