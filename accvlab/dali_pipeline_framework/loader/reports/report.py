# SPDX-License-Identifier: Apache-2.0
"""Where the time of a training loop goes, as numbers and as text."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import attrs

from ...engine.control_block import Work
from .loop_times import Counts
from .verdict import judge

if TYPE_CHECKING:
    from .loop_times import LoopTimes

Bottleneck: TypeAlias = Literal[
    "loop", "reading", "worker steps", "packing", "order", "input", "graph", "conversion", "post_process_func", ""
]


@attrs.frozen
class Stage:
    """One stage, and the time that was spent in it.

    Attributes:
        name: Its name.
        seconds: Time, over all workers where these run it.
        share: Of the time of the loop, or of all workers together.
        ms_per_batch: Milliseconds per batch.
    """

    name: str
    seconds: float
    share: float
    ms_per_batch: float


@attrs.frozen
class WorkerUse:
    """What a worker process has done.

    Attributes:
        pid: The process.
        busy_share: Share of the time in which it was loading, else it waited for work.
        cores: Processor time per time; None where the process has ended before that could be read.
        queued_share: Share of the time in which it could have run, but others had the cores.
        num_samples: Samples that it has loaded.
    """

    pid: int
    busy_share: float
    cores: float | None
    queued_share: float
    num_samples: int


@attrs.frozen
class QueueLevel:
    """How many batches were loaded when one was asked for.

    Attributes:
        mean: In the mean.
        depth: How many there can be.
        empty_share: How often there was none.
    """

    mean: float
    depth: int
    empty_share: float


@attrs.frozen
class BusyCores:
    """Processor time per time.

    Attributes:
        usable: Cores that the process may use.
        workers: What the workers have used.
        graph: What the threads of the graph have used.
        rest: What this process has used beside them: the training loop, and all other threads.
    """

    usable: int
    workers: float
    graph: float
    rest: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.workers + self.graph + self.rest


@attrs.frozen(repr=False)
class LoaderReport:
    """Where the time has gone between the first batch of a loop and its last one so far; see `DataLoader.report`.

    ``str(report)`` is a table for people. The stages of the loop are one after the other, and add up to
    ``seconds``; at the same time the workers load, and the graph works, each on other batches.

    Attributes:
        num_batches: Batches that were delivered. The first one of the loop does not count: before it, workers
            start and queues are filled.
        num_samples: Samples of these batches.
        seconds: Time from the end of the first batch to the end of the last.
        first_batch_s: How long the first ``next`` of the loop has taken; None before the first loop.
        num_bytes: What was sent from the workers to the graph, or made by this process where it loads.
        loop: Stages of the loop: its own ``work``, and what it waits for in ``next``.
        workers: Stages of the workers; none where there are none.
        worker_uses: What each worker has done.
        queue: Batches loaded ahead; None without workers.
        cores: Busy cores.
        num_threads: Threads of the graph.
        replayed_per_s: Samples per second of a loop over `DataLoader.replayed`; None where there was none.
        rank: Shard id of the loader.
    """

    num_batches: int = 0
    num_samples: int = 0
    seconds: float = 0.0
    first_batch_s: float | None = None
    num_bytes: int = 0
    loop: tuple[Stage, ...] = ()
    workers: tuple[Stage, ...] = ()
    worker_uses: tuple[WorkerUse, ...] = ()
    queue: QueueLevel | None = None
    cores: BusyCores = BusyCores(1, 0.0, 0.0, 0.0)
    num_threads: int = 1
    replayed_per_s: float | None = None
    rank: int = 0
    _until: Counts | None = attrs.field(default=None, repr=False, eq=False)

    @property
    def samples_per_s(self) -> float:
        """Samples per second."""
        return _ratio(self.num_samples, self.seconds)

    @property
    def mb_per_s(self) -> float:
        """Megabytes (10**6 bytes) per second, of ``num_bytes``."""
        return _ratio(self.num_bytes, self.seconds) * 1e-6

    @property
    def wait_share(self) -> float:
        """Share of its time that the loop spends in ``next``."""
        return 1.0 - self.loop[0].share if self.loop else 0.0

    @property
    def bottleneck(self) -> Bottleneck:
        """What limits the rate: ``"loop"``, where it does itself; else the stage, or ``""`` without batches.

        ``"reading"``, ``"worker steps"``, ``"packing"``: of the workers, or of this process where it loads.
        ``"order"``: workers wait, too, since a slow batch is due. ``"input"``, ``"graph"``, ``"conversion"`` and
        ``"post_process_func"``: stages in ``next``.
        """
        return judge(self)[0]

    @property
    def verdict(self) -> str:
        """What limits the rate, and what would help, in a sentence or two."""
        return judge(self)[1]

    def stage(self, name: str) -> Stage | None:
        """Get a stage of the workers or of the loop by its name; None where there is none of that name."""
        return next((each for each in (*self.workers, *self.loop) if each.name == name), None)

    def to_dict(self) -> dict[str, Any]:
        """All numbers and the verdict, for JSON."""
        numbers = attrs.asdict(self, filter=lambda attribute, _: attribute.name != "_until")
        return {
            "verdict": self.verdict,
            "bottleneck": self.bottleneck,
            "samples_per_s": self.samples_per_s,
            "mb_per_s": self.mb_per_s,
            "wait_share": self.wait_share,
            **numbers,
        }

    def scalars(self, prefix: str = "loader/") -> dict[str, float]:
        """The numbers that are worth a curve, by name, e.g. for ``SummaryWriter.add_scalar`` of TensorBoard."""
        named = {
            "samples_per_s": self.samples_per_s,
            "mb_per_s": self.mb_per_s,
            "wait_share": self.wait_share,
            "busy_cores": self.cores.total,
        }
        if self.queue is not None:
            named["batches_ahead"] = self.queue.mean
        for place, stages in (("loop", self.loop), ("workers", self.workers)):
            named.update({f"{place}/{_name_in_code(each.name)}": each.share for each in stages})
        return {f"{prefix}{name}": value for name, value in named.items()}

    def __str__(self) -> str:
        """Return a table."""
        return "\n".join(self._lines())

    def __repr__(self) -> str:
        """Return the table: notebooks show this."""
        return str(self)

    def _lines(self) -> Iterator[str]:
        if not self.loop:
            yield self.verdict
            return
        yield (
            f"{self.num_batches} batches, {self.num_samples} samples in {self.seconds:.2f} s: "
            f"{self.samples_per_s:.1f} samples/s, {self.mb_per_s:.1f} MB/s"
        )
        yield self.verdict
        yield ""
        yield from _table("the loop", self.loop)
        if self.workers:
            yield from _table(f"{len(self.worker_uses)} worker{'s' * (len(self.worker_uses) != 1)}", self.workers)
        if self.queue is not None:
            yield (
                f"loaded ahead: {self.queue.mean:.1f} of up to {self.queue.depth} batches; "
                f"none {self.queue.empty_share:.0%} of the times".replace("%", " %")
            )
        cores = self.cores
        yield (
            f"busy cores: {cores.total:.2f} of {cores.usable} (workers {cores.workers:.2f}, "
            f"graph {cores.graph:.2f}, the rest of this process {cores.rest:.2f})"
        )
        if self.first_batch_s is not None:
            yield f"the first batch has taken {self.first_batch_s:.2f} s, and is not counted"
        if self.replayed_per_s is not None:
            yield f"the loop alone, with batches that were replayed: {self.replayed_per_s:.1f} samples/s"


def _table(title: str, stages: tuple[Stage, ...]) -> Iterator[str]:
    yield f"{title:28s} ms per batch   share"
    for stage in stages:
        yield f"  {stage.name:26s} {stage.ms_per_batch:12.2f}   {100 * stage.share:3.0f} %"


def _name_in_code(name: str) -> str:
    return name.replace(" ", "_")


def _ratio(value: float, by: float) -> float:
    return value / by if by else 0.0


# --- made of counters ---------------------------------------------------------------------------------


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
    loop_ns = end.next_ns + end.between_ns - start.next_ns - start.between_ns
    work = _work_between(start, end)
    in_workers = [each for each in work if each.pid != os.getpid()]
    own = sum_of_work(each for each in work if each.pid == os.getpid())
    clocks_ns = max(1, end.clocks.at_ns - start.clocks.at_ns)
    stages_before, stages = start.stages, end.stages
    num_inputs = stages.num_inputs - stages_before.num_inputs
    return attrs.evolve(
        about,
        num_batches=num_batches,
        num_samples=stages.num_samples - stages_before.num_samples,
        seconds=loop_ns * 1e-9,
        num_bytes=sum(each.num_bytes for each in work),
        loop=_stages(_loop_stages(start, end, own), loop_ns, num_batches),
        workers=_stages(_worker_stages(in_workers, clocks_ns), clocks_ns * len(in_workers), num_batches),
        worker_uses=tuple(_worker_use(each, start, end, clocks_ns) for each in in_workers),
        queue=None
        if not num_inputs
        else QueueLevel(
            (stages.num_ahead - stages_before.num_ahead) / num_inputs,
            depth,
            (stages.num_empty - stages_before.num_empty) / num_inputs,
        ),
        cores=_busy_cores(start, end, clocks_ns),
    )


def _work_between(start: Counts, end: Counts) -> list[Work]:
    found = []
    for pid, work in end.clocks.work.items():
        before = start.clocks.work.get(pid, Work(pid))
        found.append(Work(pid, *(now - then for now, then in zip(work[1:], before[1:], strict=True))))
    return found


def sum_of_work(work: Iterator[Work]) -> Work:
    """Add up what processes have done."""
    return Work(0, *map(sum, zip(*(each[1:] for each in work), strict=True)))


def _loop_stages(start: Counts, end: Counts, own: Work) -> dict[str, int]:
    def between(name: str) -> int:
        value: int = getattr(end.stages, name) - getattr(start.stages, name)
        return value

    next_ns = end.next_ns - start.next_ns
    waiting_ns, conversion_ns = between("workers_ns"), between("conversion_ns")
    post_process_ns, input_ns, run_ns = between("post_process_ns"), between("input_ns"), between("run_ns")
    stages = {"work": end.between_ns - start.between_ns, "waits for workers": waiting_ns}
    if own.num_batches:
        loading = {"reading": own.reading_ns, "steps on arrays": own.steps_ns, "packing": own.packing_ns}
        input_ns -= sum(loading.values())
        stages = {"work": stages["work"], **loading}
    stages["handing over"] = max(0, input_ns - waiting_ns)
    stages["waits for the graph"] = max(0, run_ns - between("input_ns"))
    stages["conversion"] = conversion_ns
    if post_process_ns > 1e-3 * next_ns:
        stages["post_process_func"] = post_process_ns
    return stages


def _worker_stages(work: list[Work], clocks_ns: int) -> dict[str, int]:
    if not work:
        return {}
    stages = {
        "reading": sum(each.reading_ns for each in work),
        "steps on arrays": sum(each.steps_ns for each in work),
        "packing": sum(each.packing_ns for each in work),
    }
    return {**stages, "idle": max(0, clocks_ns * len(work) - sum(stages.values()))}


def _stages(times_ns: dict[str, int], whole_ns: int, num_batches: int) -> tuple[Stage, ...]:
    return tuple(
        Stage(name, spent * 1e-9, _ratio(spent, whole_ns), spent * 1e-6 / num_batches)
        for name, spent in times_ns.items()
    )


def _worker_use(work: Work, start: Counts, end: Counts, clocks_ns: int) -> WorkerUse:
    busy_ns = work.reading_ns + work.steps_ns + work.packing_ns
    spent = end.clocks.workers_ns.get(work.pid)
    before = start.clocks.workers_ns.get(work.pid, 0)
    cores = None if spent is None else (spent - before) / clocks_ns
    queued_ns = end.queued_ns.get(work.pid, 0) - start.queued_ns.get(work.pid, 0)
    busy, queued = (min(1.0, max(0.0, each / clocks_ns)) for each in (busy_ns, queued_ns))
    return WorkerUse(work.pid, busy, cores, queued, work.num_samples)


def _busy_cores(start: Counts, end: Counts, clocks_ns: int) -> BusyCores:
    before, after = start.clocks, end.clocks
    workers_ns = sum(spent - before.workers_ns.get(pid, 0) for pid, spent in after.workers_ns.items())
    graph_ns = max(0, after.graph_ns - before.graph_ns)
    rest_ns = max(0, after.process_ns - before.process_ns - graph_ns)
    usable = len(os.sched_getaffinity(0))
    return BusyCores(usable, workers_ns / clocks_ns, graph_ns / clocks_ns, rest_ns / clocks_ns)
