# SPDX-License-Identifier: Apache-2.0
"""The counters of a loader while a loop runs over it, and the report that is made of them."""

from __future__ import annotations

import copy
import itertools
import os
import time
from abc import ABC
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, cast

import attrs

from ..checks import whole_number
from ..engine.control_block import Work
from ..engine.timing import StageTimes, processor_time_of_process, processor_time_of_threads, queued_time
from ..errors import ClosedError, SettingError
from .report import BusyCores, LoaderReport, QueueLevel, Stage, WorkerUse
from .torch_interface import tell_accelerate

if TYPE_CHECKING:
    from ..engine.structured_pipeline import StructuredPipeline
    from .data_loader import DataLoader
    from .loop import Loop

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


# --- a report made of counters ------------------------------------------------------------------------


def make_report(
    times: LoopTimes, since: LoaderReport | None, depth: int, num_threads: int, rank: int
) -> LoaderReport:
    """Make a report of what a loader has counted; since another one of the same loop, where there is one.

    ``depth`` is how many batches workers may load ahead, ``rank`` the shard id of the loader.
    """
    start, end = times.start, times.now()
    if since is not None and since._until is not None and end is not None and since._until.loop == end.loop:
        start = since._until
    about = LoaderReport(
        first_batch_s=None if times.first_ns is None else times.first_ns * 1e-9,
        num_threads=num_threads,
        replayed_per_s=times.replayed_per_s,
        rank=rank,
        until=end,
    )
    if start is None or end is None or end.num_batches == start.num_batches:
        return about
    num_batches = end.num_batches - start.num_batches
    next_ns, between_ns = end.next_ns - start.next_ns, end.between_ns - start.between_ns
    clocks_ns = max(1, end.clocks.at_ns - start.clocks.at_ns)
    before = attrs.asdict(start.stages)
    spent = StageTimes(**{name: value - before[name] for name, value in attrs.asdict(end.stages).items()})
    work = _work_between(start, end)
    in_workers = [each for each in work if each.pid != os.getpid()]
    own = _sum_of_work(each for each in work if each.pid == os.getpid())
    queue = None
    if spent.num_inputs:
        queue = QueueLevel(spent.num_ahead / spent.num_inputs, depth, spent.num_empty / spent.num_inputs)
    loop_stages = _loop_stages(spent, next_ns, between_ns, own)
    return attrs.evolve(
        about,
        num_batches=num_batches,
        num_samples=spent.num_samples,
        seconds=(next_ns + between_ns) * 1e-9,
        num_bytes=sum(each.num_bytes for each in work),
        loop=_stages(loop_stages, next_ns + between_ns, num_batches),
        workers=_stages(_worker_stages(in_workers, clocks_ns), clocks_ns * len(in_workers), num_batches),
        worker_uses=tuple(_worker_use(each, start, end, clocks_ns) for each in in_workers),
        queue=queue,
        cores=_busy_cores(start.clocks, end.clocks, clocks_ns),
    )


def _work_between(start: Counts, end: Counts) -> list[Work]:
    found = []
    for pid, work in end.clocks.work.items():
        before = start.clocks.work.get(pid, Work(pid))
        found.append(Work(pid, *(now - then for now, then in zip(work[1:], before[1:], strict=True))))
    return found


def _sum_of_work(work: Iterable[Work]) -> Work:
    """Add up what processes have done."""
    return Work(0, *map(sum, zip(*(each[1:] for each in work), strict=True)))


def _loading(work: Work) -> dict[str, int]:
    return {"reading": work.reading_ns, "steps on arrays": work.steps_ns, "packing": work.packing_ns}


def _loop_stages(spent: StageTimes, next_ns: int, between_ns: int, own: Work) -> dict[str, int]:
    waits = _loading(own) if own.num_batches else {"waits for workers": spent.workers_ns}
    loading_ns = sum(waits.values()) if own.num_batches else 0
    stages = {"work": between_ns, **waits}
    stages["handing over"] = max(0, spent.input_ns - loading_ns - spent.workers_ns)
    stages["waits for the graph"] = max(0, spent.run_ns - spent.input_ns)
    stages["conversion"] = spent.conversion_ns
    if spent.post_process_ns > 1e-3 * next_ns:
        stages["post_process_func"] = spent.post_process_ns
    return stages


def _worker_stages(work: Sequence[Work], clocks_ns: int) -> dict[str, int]:
    stages = _loading(_sum_of_work(work))
    return {**stages, "idle": max(0, clocks_ns * len(work) - sum(stages.values()))} if work else {}


def _stages(times_ns: dict[str, int], whole_ns: int, num_batches: int) -> tuple[Stage, ...]:
    return tuple(
        Stage(name, spent_ns * 1e-9, spent_ns / whole_ns if whole_ns else 0.0, spent_ns * 1e-6 / num_batches)
        for name, spent_ns in times_ns.items()
    )


def _worker_use(work: Work, start: Counts, end: Counts, clocks_ns: int) -> WorkerUse:
    spent_ns = end.clocks.workers_ns.get(work.pid)
    cores = None if spent_ns is None else (spent_ns - start.clocks.workers_ns.get(work.pid, 0)) / clocks_ns
    queued_ns = end.queued_ns.get(work.pid, 0) - start.queued_ns.get(work.pid, 0)
    busy_ns = sum(_loading(work).values())
    busy, queued = (min(1.0, max(0.0, each / clocks_ns)) for each in (busy_ns, queued_ns))
    return WorkerUse(work.pid, busy, cores, queued, work.num_samples)


def _busy_cores(before: Clocks, after: Clocks, clocks_ns: int) -> BusyCores:
    workers_ns = sum(spent - before.workers_ns.get(pid, 0) for pid, spent in after.workers_ns.items())
    graph_ns = max(0, after.graph_ns - before.graph_ns)
    rest_ns = max(0, after.process_ns - before.process_ns - graph_ns)
    usable = len(os.sched_getaffinity(0))
    return BusyCores(usable, workers_ns / clocks_ns, graph_ns / clocks_ns, rest_ns / clocks_ns)


_PROGRESS_INTERVAL_S = 0.5


class ReportInterface(ABC):
    """Methods of a loader that tell where the time goes."""

    _times: LoopTimes

    def report(self: Any, since: LoaderReport | None = None) -> LoaderReport:
        """Tell where the time of the loop goes: of the running one, or of the last one.

        It changes nothing, so several parts of a program can ask. The first batch of a loop does not count.

        Args:
            since: An earlier report. Where it is of the same loop, only what came after it counts.
        """
        pipeline = self._run.pipeline
        return make_report(self._times, since, pipeline.depth, pipeline.num_threads, self.shard.shard_id)

    def replayed(self: Any, num_batches: int, num_kept: int = 1) -> Iterator[Any]:
        """Get the next few batches again and again, to find out how quick a loop is that never waits.

        A loop over them is measured, and later reports tell its samples per second. The loader stays where it
        stands; only inputs without random access (iterables, native readers) lose the batches that are taken.

        Args:
            num_batches: How many batches to deliver.
            num_kept: How many different batches to take from the loader. They are the same objects each time, so
                a loop that changes them in place changes them for the next time, too.

        Raises:
            SettingError: A number is less than 1, or an epoch has no batch.
            ClosedError: A loop over the loader is running.
        """
        num_batches = whole_number(num_batches, "num_batches", at_least=1)
        num_kept = whole_number(num_kept, "num_kept", at_least=1)
        if self._is_running:
            raise ClosedError(
                "A loop over the loader is running. Replay batches before it, or after it has ended."
            )
        batches = _peek(self, num_kept)
        if not batches:
            raise SettingError("There is nothing to replay: the loader delivers no batch.")
        replay: Iterator[Any] = self._replay(batches, num_batches)
        return replay

    def _replay(self: Any, batches: list[Any], num_batches: int) -> Iterator[Any]:
        num_samples, began_s = 0, 0.0
        for number, batch in enumerate(itertools.islice(itertools.cycle(batches), num_batches)):
            if number == 1:  # the loop has warmed up
                began_s = time.perf_counter()
            elif number > 1:
                num_samples += self.batch_size
                self._times.replayed_per_s = num_samples / (time.perf_counter() - began_s)
            yield batch

    def progress(self: Any, **settings: Any) -> Iterator[Any]:
        """Run a loop with a bar of tqdm that shows the rate, and how long the loop waits.

        Args:
            **settings: Settings of ``tqdm.auto.tqdm``, e.g. ``desc``.

        Raises:
            SettingError: tqdm is not installed.
        """
        try:
            from tqdm.auto import tqdm
        except ImportError as error:
            raise SettingError(
                "A bar of the progress needs tqdm, which is not installed. Install the extra `progress`."
            ) from error
        batches = iter(self)
        try:
            total: int | None = len(self)
        except TypeError:
            total = None
        bar = tqdm(**{"total": total, "unit": "batch", "dynamic_ncols": True, **settings})
        shown: Iterator[Any] = self._with_bar(batches, bar)
        return shown

    def _with_bar(self: Any, batches: Iterator[Any], bar: Any) -> Iterator[Any]:
        last: LoaderReport | None = None
        shown_at = time.perf_counter()
        with bar:
            for batch in batches:
                yield batch
                bar.update()
                if time.perf_counter() - shown_at < _PROGRESS_INTERVAL_S:
                    continue
                shown_at = time.perf_counter()
                report = self.report(since=last)
                if report.num_batches:
                    bar.set_postfix_str(
                        f"{report.samples_per_s:.1f} samples/s, waits {100 * report.wait_share:.0f} %",
                        refresh=False,
                    )
                    last = report


def _peek(loader: DataLoader, num_batches: int) -> list[Any]:
    """Take the next few batches, and have the loader go on as if it had not, where its input can be told to."""
    progress = loader._progress
    before = copy.copy(progress)
    batches: list[Any] = []
    is_on, loader._ledger.is_on = loader._ledger.is_on, False  # the loop is yet to receive them
    try:
        loop = cast("Loop", iter(loader))
        while len(batches) < num_batches:
            batches.append(loader._next(loop))
            progress.delivered = progress.pipeline
    except StopIteration:
        pass
    finally:
        loader._ledger.is_on = is_on
    loop.has_ended = True
    tell_accelerate(loader, is_running=False)
    if loader._bound.is_callable and not loader._bound.parts.native:
        progress.go_back(before)
    return batches
