# SPDX-License-Identifier: Apache-2.0
"""Where the time goes: counters of stages, processor time, ranges for NVIDIA's profiler."""

from __future__ import annotations

import contextlib
import functools
import os
import time
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from time import perf_counter_ns
from types import SimpleNamespace
from typing import Any

import attrs

from ..errors import SettingError


@attrs.define
class StageTimes:
    """Counters of one pipeline; they only grow.

    Attributes:
        workers_ns: Time in which nothing was there from the workers.
        input_ns: Time to hand over inputs to the graph, with ``workers_ns``, and with loading where this process
            loads.
        run_ns: Time until outputs of the graph were there, with ``input_ns``.
        conversion_ns: Time to make tensors or arrays of outputs.
        post_process_ns: Time in ``post_process_func``.
        num_samples: Samples that were delivered.
        num_inputs: Batches that were requested from the workers.
        num_ahead: Batches that were loaded already when one was requested, added up over ``num_inputs``.
        num_empty: How often none was loaded.
    """

    workers_ns: int = 0
    input_ns: int = 0
    run_ns: int = 0
    conversion_ns: int = 0
    post_process_ns: int = 0
    num_samples: int = 0
    num_inputs: int = 0
    num_ahead: int = 0
    num_empty: int = 0

    def count_input(self, num_ahead: int) -> None:
        """Count a batch that is requested while so many are loaded."""
        self.num_inputs += 1
        self.num_ahead += max(0, num_ahead)
        self.num_empty += num_ahead <= 0


def time_waits(pool: Any, times: StageTimes) -> None:
    """Have a pool of DALI (``WorkerPool.pool``) count how long it waits for its workers."""
    wait, reference = type(pool).wait_for_res, weakref.ref(pool)

    def timed() -> Any:
        began = perf_counter_ns()
        try:
            return wait(reference())
        finally:
            times.workers_ns += perf_counter_ns() - began

    pool.wait_for_res = timed


_THREADS_OF_DALI = b"[DALI]"
# Kinds of clocks of Linux, in the lowest bits of their numbers; the others are the complement of the id.
_OF_PROCESS, _OF_THREAD = 2, 6


def processor_time_of_process(pid: int) -> int | None:
    """Processor time of a process with all its threads, in ns; None where there is no such process (any more)."""
    return _read_clock(~pid << 3 | _OF_PROCESS)


def queued_time(thread: int) -> int:
    """Time in ns in which a thread could have run, but others had the cores; 0: unknown.

    The id of a process is that of its main thread.
    """
    try:
        return int(Path(f"/proc/{thread}/schedstat").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def processor_time_of_threads(threads: Iterable[int]) -> int:
    """Processor time of threads of this process together, in ns, of those that still run."""
    return sum(_read_clock(~thread << 3 | _OF_THREAD) or 0 for thread in threads)


def _read_clock(clock: int) -> int | None:
    try:
        return time.clock_gettime_ns(clock)
    except OSError:
        return None


def threads_of_process() -> set[int]:
    """All threads of this process."""
    try:
        return {int(thread) for thread in os.listdir("/proc/self/task")}
    except OSError:
        return set()


def threads_of_dali(threads: Iterable[int]) -> set[int]:
    """Those of some threads in which DALI runs operators; once they run, they give themselves names."""
    found = set()
    for thread in threads:
        with contextlib.suppress(OSError):  # it has ended
            if Path(f"/proc/self/task/{thread}/comm").read_bytes().startswith(_THREADS_OF_DALI):
                found.add(thread)
    return found


NVTX_VARIABLE = "DALI_PIPELINE_FRAMEWORK_NVTX"
"""Ranges are marked where this is set in the environment to something else than 0."""


@functools.cache
def marker() -> Any:
    """Get what begins and ends ranges (`push_range`, `pop_range`): the package `nvtx`, or PyTorch with CUDA.

    Raises:
        SettingError: Neither is installed.
    """
    with contextlib.suppress(ImportError):
        import nvtx

        return nvtx
    with contextlib.suppress(ImportError):
        from torch.cuda import is_available
        from torch.cuda import nvtx as of_torch

        if is_available():
            return SimpleNamespace(push_range=of_torch.range_push, pop_range=of_torch.range_pop)
    raise SettingError(
        f"{NVTX_VARIABLE} is set, and marking ranges needs the package nvtx, or PyTorch with CUDA. Install the "
        f"extra `nvtx`, or unset the variable."
    )


def mark_ranges(owner: object, **ranges: str) -> None:
    """Run methods of an object each in a range of a name, if ranges are wanted; otherwise nothing is changed."""
    if os.environ.get(NVTX_VARIABLE, "0") in ("", "0"):
        return
    for name, label in ranges.items():
        if name in vars(owner):
            run = in_range(vars(owner)[name], label)
        else:  # a bound method would refer to its object, which would be kept by itself
            run = in_range(getattr(type(owner), name), label, weakref.ref(owner))
        setattr(owner, name, run)


def in_range(
    function: Callable[..., Any], label: str, get_self: Callable[[], Any] | None = None
) -> Callable[..., Any]:
    """Get a function that runs another one in a range.

    Args:
        function: The other one.
        label: Name of the range.
        get_self: Gets the object, where the other one is a method of a class.
    """
    marks = marker()

    def run(*args: Any, **kwargs: Any) -> Any:
        if get_self is not None:
            args = (get_self(), *args)
        marks.push_range(label)
        try:
            return function(*args, **kwargs)
        finally:
            marks.pop_range()

    return run
