# SPDX-License-Identifier: Apache-2.0
"""What a loader counts while a loop runs over it, and how a report is made of that."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Set
from typing import TYPE_CHECKING

import attrs

from ...engine.timing import StageTimes, processor_time_of_process, processor_time_of_threads, queued_time

if TYPE_CHECKING:
    from ...engine.control_block import Work
    from ...engine.structured_pipeline import StructuredPipeline

# Reading clocks of processes and threads takes microseconds, so it is not done for each batch.
_SAMPLE_INTERVAL_NS = 50_000_000


@attrs.frozen
class Counts:
    """Counters at a moment, which is the end of a batch.

    Attributes:
        loop: Number of the loop, over which the counters are continuous.
        at_ns: The moment.
        num_batches: Batches that were delivered.
        next_ns: Time inside of ``next``.
        between_ns: Time between one ``next`` and another.
        stages: Of the pipeline.
        clocks: Of processes and threads.
        queued_ns: Time in which workers could have run, but others had the cores, by process.
    """

    loop: int
    at_ns: int
    num_batches: int
    next_ns: int
    between_ns: int
    stages: StageTimes
    clocks: Clocks
    queued_ns: Mapping[int, int]


@attrs.frozen
class Clocks:
    """Processor times and the work of the workers, at the end of a batch.

    Attributes:
        at_ns: When they were read.
        work: What was loaded, by process.
        workers_ns: Processor time of the workers that run, by process.
        graph_ns: Processor time of the threads of the graph.
        process_ns: Processor time of this process, with the graph.
    """

    at_ns: int
    work: Mapping[int, Work]
    workers_ns: Mapping[int, int]
    graph_ns: int
    process_ns: int


class LoopTimes:
    """Counts the time inside of ``next`` and between, batch by batch; the loop itself does so.

    The first batch of a loop is left out: workers start before it, and queues are empty.

    Attributes:
        num_batches: Batches that were received.
        next_ns: Time inside of ``next``.
        between_ns: Time between one ``next`` and another.
        received_at: When the last batch was received.
        due_at: When the clocks are to be read again.
        pipeline: The pipeline of the loop.
        first_ns: How long the first ``next`` of the loop has taken; None before the first loop.
        start: Counters behind the first batch of the loop.
        replayed_per_s: Samples per second of a loop over batches that were replayed; None before one.
    """

    def __init__(self) -> None:
        """Nothing is counted yet."""
        self.num_batches = self.next_ns = self.between_ns = self.received_at = self.due_at = 0
        self.pipeline: StructuredPipeline | None = None
        self.first_ns: int | None = None
        self.start: Counts | None = None
        self.replayed_per_s: float | None = None
        self._clocks = Clocks(0, {}, {}, 0, 0)
        self._queued_ns: dict[int, int] = {}
        self._graph_threads: Set[int] = frozenset()
        self._loop = 0
        self._is_first = True

    def begin(self) -> None:
        """Begin a loop, with its first batch."""
        self._is_first = True
        self.due_at = 0

    def read_clocks(self, next_ns: int, pipeline: StructuredPipeline) -> None:
        """Read the clocks after a ``next`` that took so long; behind the first batch, begin to count."""
        is_first = self._is_first or pipeline is not self.pipeline
        if pipeline is not self.pipeline:
            self._graph_threads = pipeline.graph_threads()
        self._clocks = _read_clocks(self.received_at, pipeline, self._graph_threads)
        self.due_at = self.received_at + _SAMPLE_INTERVAL_NS
        if is_first:
            self._is_first = False
            self._loop += 1
            self.first_ns, self.pipeline = next_ns, pipeline
            self.start = self.now()

    def now(self) -> Counts | None:
        """Counters behind the batch that was received last; None where none was.

        To be called before the workers end, after which their clocks cannot be read.
        """
        pipeline, clocks, at_ns = self.pipeline, self._clocks, self.received_at
        if pipeline is None:
            return None
        if clocks.at_ns != at_ns:
            self._clocks = clocks = _interpolated(
                clocks, _read_clocks(time.perf_counter_ns(), pipeline, self._graph_threads), at_ns
            )
        self._queued_ns = self._queued_ns | {
            pid: queued_ns for pid in clocks.work if (queued_ns := queued_time(pid))
        }
        return Counts(
            loop=self._loop,
            at_ns=at_ns,
            num_batches=self.num_batches,
            next_ns=self.next_ns,
            between_ns=self.between_ns,
            stages=attrs.evolve(pipeline.times),
            clocks=clocks,
            queued_ns=self._queued_ns,
        )


def _read_clocks(at_ns: int, pipeline: StructuredPipeline, graph_threads: Set[int]) -> Clocks:
    work = {each.pid: each for each in pipeline.work()}
    times = {pid: processor_time_of_process(pid) for pid in work if pid != os.getpid()}
    return Clocks(
        at_ns,
        work,
        {pid: spent for pid, spent in times.items() if spent is not None},
        processor_time_of_threads(graph_threads),
        time.process_time_ns(),
    )


def _interpolated(before: Clocks, after: Clocks, at_ns: int) -> Clocks:
    """Clocks at a moment between two at which they were read.

    Only what this process has done is divided: it does other things once a loop was left. Loading ends by itself.
    """
    share = (at_ns - before.at_ns) / max(1, after.at_ns - before.at_ns)
    process_ns = before.process_ns + round(share * (after.process_ns - before.process_ns))
    return attrs.evolve(after, at_ns=at_ns, process_ns=max(process_ns, before.process_ns))
