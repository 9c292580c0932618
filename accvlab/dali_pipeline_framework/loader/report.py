# SPDX-License-Identifier: Apache-2.0
"""Where the time of a training loop goes: its counters, the report made of them, and the verdict."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import attrs

from ..engine.timing import StageTimes, processor_time_of_threads, queued_time
from ..workers.messages import Work

if TYPE_CHECKING:
    from ..engine.structured_pipeline import StructuredPipeline

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
        start: Counters after the first batch of the loop.
    """

    def __init__(self) -> None:
        """Nothing is counted yet."""
        self.num_batches = self.next_ns = self.between_ns = self.received_at = self.due_at = 0
        self.pipeline: StructuredPipeline | None = None
        self.first_ns: int | None = None
        self.start: Counts | None = None
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
        """Read the clocks after a ``next`` that took so long; after the first batch, begin to count."""
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
        """Counters after the batch that was received last; None where none was.

        To be called before the workers end, after which their clocks cannot be read.
        """
        pipeline, clocks, at_ns = self.pipeline, self._clocks, self.received_at
        if pipeline is None:
            return None
        if clocks.at_ns != at_ns:
            after = _read_clocks(time.perf_counter_ns(), pipeline, self._graph_threads)
            self._clocks = clocks = _interpolated(clocks, after, at_ns)
        queued_now = {pid: queued_ns for pid in clocks.work if (queued_ns := queued_time(pid))}
        self._queued_ns = self._queued_ns | queued_now
        counted = self._loop, at_ns, self.num_batches, self.next_ns, self.between_ns
        return Counts(*counted, _stage_times(pipeline), clocks, self._queued_ns)


def _read_clocks(at_ns: int, pipeline: StructuredPipeline, graph_threads: Set[int]) -> Clocks:
    fed = pipeline.fed
    work = {} if fed is None or fed.pool is None else {pid: work for _, pid, work in fed.pool.work()}
    workers_ns = {pid: each.cpu_ns for pid, each in work.items() if pid != os.getpid()}
    return Clocks(at_ns, work, workers_ns, processor_time_of_threads(graph_threads), time.process_time_ns())


def _stage_times(pipeline: StructuredPipeline) -> StageTimes:
    """What the pipeline has counted, with what its pool has."""
    pool = None if pipeline.fed is None else pipeline.fed.pool
    if pool is None or pool.settings.num_workers == 0:
        return attrs.evolve(pipeline.times)
    return attrs.evolve(
        pipeline.times,
        workers_ns=pool.waited_ns,
        num_inputs=pool.num_asked,
        num_ahead=pool.num_ahead,
        num_empty=pool.num_empty,
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
    first_s = None if times.first_ns is None else times.first_ns * 1e-9
    about = LoaderReport(first_batch_s=first_s, num_threads=num_threads, rank=rank, until=end)
    if times.pipeline is not None:
        about = attrs.evolve(about, start_s=times.pipeline.start_s)
    if start is None or end is None or end.num_batches == start.num_batches:
        return about
    num_batches = end.num_batches - start.num_batches
    next_ns, between_ns = end.next_ns - start.next_ns, end.between_ns - start.between_ns
    clocks_ns = max(1, end.clocks.at_ns - start.clocks.at_ns)
    before = attrs.asdict(start.stages)
    spent = StageTimes(**{name: value - before[name] for name, value in attrs.asdict(end.stages).items()})
    work = _work_between(start, end)
    in_workers = {pid: each for pid, each in work.items() if pid != os.getpid()}
    own = work.get(os.getpid(), Work())
    queue = None
    if spent.num_inputs:
        queue = QueueLevel(spent.num_ahead / spent.num_inputs, depth, spent.num_empty / spent.num_inputs)
    loop_stages = _loop_stages(spent, next_ns, between_ns, own)
    return attrs.evolve(
        about,
        num_batches=num_batches,
        num_samples=spent.num_samples,
        seconds=(next_ns + between_ns) * 1e-9,
        num_bytes=sum(each.num_bytes for each in work.values()),
        num_frames=sum(each.num_frames for each in work.values()),
        num_decoded_frames=sum(each.num_decoded for each in work.values()),
        loop=_stages(loop_stages, next_ns + between_ns, num_batches),
        workers=_stages(
            _worker_stages([*in_workers.values()], clocks_ns), clocks_ns * len(in_workers), num_batches
        ),
        worker_uses=tuple(_worker_use(pid, each, start, end, clocks_ns) for pid, each in in_workers.items()),
        queue=queue,
        cores=_busy_cores(start.clocks, end.clocks, clocks_ns),
    )


def _work_between(start: Counts, end: Counts) -> dict[int, Work]:
    found = {}
    for pid, work in end.clocks.work.items():
        before = start.clocks.work.get(pid, Work())
        found[pid] = Work(*(now - then for now, then in zip(work, before, strict=True)))
    return found


def _sum_of_work(work: Iterable[Work]) -> Work:
    """Add up what processes have done."""
    return Work(*map(sum, zip(*work, strict=True)))


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


def _worker_use(pid: int, work: Work, start: Counts, end: Counts, clocks_ns: int) -> WorkerUse:
    spent_ns = end.clocks.workers_ns.get(pid)
    cores = None if spent_ns is None else (spent_ns - start.clocks.workers_ns.get(pid, 0)) / clocks_ns
    queued_ns = end.queued_ns.get(pid, 0) - start.queued_ns.get(pid, 0)
    busy_ns = sum(_loading(work).values())
    busy, queued = (min(1.0, max(0.0, each / clocks_ns)) for each in (busy_ns, queued_ns))
    return WorkerUse(pid, busy, cores, queued, work.num_samples)


def _busy_cores(before: Clocks, after: Clocks, clocks_ns: int) -> BusyCores:
    here = [pid for pid in after.workers_ns if pid > 0]  # actors are elsewhere
    workers_ns = sum(after.workers_ns[pid] - before.workers_ns.get(pid, 0) for pid in here)
    graph_ns = max(0, after.graph_ns - before.graph_ns)
    rest_ns = max(0, after.process_ns - before.process_ns - graph_ns)
    usable = len(os.sched_getaffinity(0))
    return BusyCores(usable, workers_ns / clocks_ns, graph_ns / clocks_ns, rest_ns / clocks_ns)


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
        cores: CPU utilisation, in cores; None where the process has ended before that could be read.
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
    """Number of batches that were loaded when one was requested.

    Attributes:
        mean: Average number of loaded batches.
        depth: How many there can be.
        empty_share: How often there was none.
    """

    mean: float
    depth: int
    empty_share: float


@attrs.frozen
class BusyCores:
    """CPU utilisation, in cores.

    Attributes:
        usable: Cores that the process may use.
        workers: What the workers have used.
        graph: What the threads of the graph have used.
        rest: What this process has used besides: the training loop, and all other threads.
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
    """Where the time went between the first batch of a loop and its latest one; see `DataLoader.report`.

    ``str(report)`` is a table for people. The stages of the loop are one after the other, and add up to
    ``seconds``; at the same time the workers load, and the graph works, each on other batches.

    Attributes:
        num_batches: Batches that were delivered. The first one of the loop does not count: before it, workers
            start and queues are filled.
        num_samples: Samples of these batches.
        seconds: Time from the end of the first batch to the end of the last.
        first_batch_s: How long the first ``next`` of the loop has taken; None before the first loop.
        start_s: Seconds that the start of the pipeline has taken before that: of ``"workers"``, of ``"graph"``.
        imports_s: Seconds that the fork server has taken to import each package, once for all workers of this
            program. It does so while the graph is defined and the workers are awaited.
        num_bytes: What was sent from the workers to the graph, or made by this process where it loads.
        num_frames: Frames of videos in the samples that were loaded.
        num_decoded_frames: Frames that were decoded for these, in the workers and the graph.
        loop: Stages of the loop: its own ``work``, and what it waits for in ``next``.
        workers: Stages of the workers; none where there are none.
        worker_uses: What each worker has done.
        queue: Batches loaded ahead; None without workers.
        cores: Busy cores.
        num_threads: Threads of the graph.
        rank: Shard id of the loader.
    """

    num_batches: int = 0
    num_samples: int = 0
    seconds: float = 0.0
    first_batch_s: float | None = None
    start_s: Mapping[str, float] = attrs.field(factory=dict)
    imports_s: Mapping[str, float] = attrs.field(factory=dict)
    num_bytes: int = 0
    num_frames: int = 0
    num_decoded_frames: int = 0
    loop: tuple[Stage, ...] = ()
    workers: tuple[Stage, ...] = ()
    worker_uses: tuple[WorkerUse, ...] = ()
    queue: QueueLevel | None = None
    cores: BusyCores = BusyCores(1, 0.0, 0.0, 0.0)
    num_threads: int = 1
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

    @property
    def _rates(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in ("samples_per_s", "mb_per_s", "wait_share")}

    def stage(self, name: str) -> Stage | None:
        """Get a stage of the workers or of the loop by its name; None where there is none of that name."""
        return next((each for each in (*self.workers, *self.loop) if each.name == name), None)

    def to_dict(self) -> dict[str, Any]:
        """All numbers and the verdict, for JSON."""
        numbers = attrs.asdict(self, filter=lambda attribute, _: attribute.name != "_until")
        return {"verdict": self.verdict, "bottleneck": self.bottleneck, **self._rates, **numbers}

    def scalars(self, prefix: str = "loader/") -> dict[str, float]:
        """The numbers that are worth a curve, by name, e.g. for ``SummaryWriter.add_scalar`` of TensorBoard."""
        named = {**self._rates, "busy_cores": self.cores.total}
        if self.queue is not None:
            named["batches_ahead"] = self.queue.mean
        for place, stages in (("loop", self.loop), ("workers", self.workers)):
            named.update({f"{place}/{each.name.replace(' ', '_')}": each.share for each in stages})
        return {f"{prefix}{name}": value for name, value in named.items()}

    def __str__(self) -> str:
        """Return a table."""
        return "\n".join(self._lines())

    __repr__ = __str__  # notebooks show this

    def _lines(self) -> Iterator[str]:
        if not self.loop:
            yield self.verdict
            return
        rates = f"{self.samples_per_s:.1f} samples/s, {self.mb_per_s:.1f} MB/s"
        yield f"{self.num_batches} batches, {self.num_samples} samples in {self.seconds:.2f} s: {rates}"
        yield self.verdict
        yield ""
        yield from _table("the loop", self.loop)
        if self.workers:
            plural = "s" * (len(self.worker_uses) != 1)
            yield from _table(f"{len(self.worker_uses)} worker{plural}", self.workers)
        if self.queue is not None:
            ahead = f"loaded ahead: {self.queue.mean:.1f} of up to {self.queue.depth} batches"
            yield f"{ahead}; none {_percent(self.queue.empty_share)} of the times"
        if self.num_frames:
            decoded, sent = (_ratio(each, self.num_frames) for each in (self.num_decoded_frames, self.num_bytes))
            yield f"frames of videos: {self.num_frames}; for each, {decoded:.1f} decoded, {sent / 1e3:.1f} kB sent"
        cores = self.cores
        parts = f"workers {cores.workers:.2f}, graph {cores.graph:.2f}, the rest of this process {cores.rest:.2f}"
        yield f"busy cores: {cores.total:.2f} of {cores.usable} ({parts})"
        if self.first_batch_s is not None:
            stages = {**self.start_s, "first batch": self.first_batch_s}
            yield f"the start is not counted: {_seconds(stages)}"
        if self.imports_s:
            yield f"imported once for all workers: {_seconds(self.imports_s, at_least=0.05)}"


def _table(title: str, stages: tuple[Stage, ...]) -> Iterator[str]:
    yield f"{title:28s} ms per batch   share"
    for stage in stages:
        yield f"  {stage.name:26s} {stage.ms_per_batch:12.2f}   {100 * stage.share:3.0f} %"


def _seconds(by_name: Mapping[str, float], at_least: float = 0.0) -> str:
    return ", ".join(f"{name} {value:.2f} s" for name, value in by_name.items() if value >= at_least)


def _ratio(value: float, by: float) -> float:
    return value / by if by else 0.0


# --- the verdict -------------------------------------------------------------------------------------

_HIDDEN_BELOW = 0.1  # share of waiting that nobody needs to mind
_BUSY_FROM = 0.75  # share of their time in which workers load, above which they are what limits
_COMPUTES_FROM = 0.5  # processor time per time of loading, above which it computes rather than waits
_FULL_FROM = 0.9  # of the cores
_MOST_MORE_WORKERS = 32
_LOADED_HERE = "{} in the process of the loop, one after the other. Load in workers: num_workers=2 or more."
# Stages of the process of the loop, but for the graph: what the bottleneck is called, and what would help.
_OF_THIS_PROCESS: dict[str, tuple[Bottleneck, str]] = {
    "reading": ("reading", _LOADED_HERE.format("samples are loaded")),
    "steps on arrays": ("worker steps", _LOADED_HERE.format("steps on arrays run")),
    "packing": ("packing", _LOADED_HERE.format("samples are loaded")),
    "conversion": (
        "conversion",
        "making tensors of the outputs takes long. Deliver fewer fields, and give those whose samples differ in "
        "shape one shape.",
    ),
    "post_process_func": (
        "post_process_func",
        "post_process_func takes long. Make it cheaper, or a step of the chain.",
    ),
    "handing over": (
        "input",
        "handing fields over to the graph takes long, which one process does alone. Larger batches, or steps that "
        "touch fewer fields: the others travel together.",
    ),
}


def judge(report: LoaderReport) -> tuple[Bottleneck, str]:
    """Say what limits the rate of a loop: its name, and a sentence or two."""
    if not report.loop:
        return "", "No batch has been delivered yet, apart from the first one of a loop."
    if report.wait_share < _HIDDEN_BELOW:
        waits = f"it waits {_percent(report.wait_share)} of its time"
        return "loop", f"The training loop is the bottleneck: {waits}, and data loading is hidden."
    waiting = max(report.loop[1:], key=lambda stage: stage.seconds)
    start = f"The loop waits {_percent(report.wait_share)} of its time: "
    if waiting.name == "waits for workers":
        bottleneck, text = _of_workers(report, waiting)
    elif waiting.name == "waits for the graph":
        bottleneck, text = "graph", _about_graph(report)
    else:
        bottleneck, text = _OF_THIS_PROCESS[waiting.name]
    return bottleneck, start + text


def _of_workers(report: LoaderReport, waiting: Stage) -> tuple[Bottleneck, str]:
    *stages, idle = report.workers or (None, None)
    found = [stage for stage in stages if stage is not None]
    if not found or idle is None:
        return "reading", "no worker has delivered a batch in that time. Look at a longer time."
    slowest = max(found, key=lambda stage: stage.seconds)
    if 1 - idle.share < _BUSY_FROM and report.queue is not None and len(report.worker_uses) > 1:
        reason = "since a few slow samples hold up the batches that are loaded already"
        advice = f"Make these quicker, or load more than {report.queue.depth} batches ahead."
        return "order", f"the workers, too, are idle {_percent(idle.share)} of theirs, {reason}. {advice}"
    waits = not _computes(report)
    read = f"the workers read too slowly, and mostly {'wait for it' if waits else 'compute'}"
    names: dict[str, tuple[Bottleneck, str, str]] = {
        "reading": ("reading", read, "a local copy of the data" if waits else "a quicker get_data"),
        "steps on arrays": (
            "worker steps",
            "the steps in the workers take too long",
            'cheaper steps, or run="graph"',
        ),
        "packing": ("packing", "the workers take long to put batches together", "fewer or smaller fields"),
    }
    bottleneck, what, otherwise = names[slowest.name]
    advice = _more_workers(report, found, waiting)
    advice = f"{advice}, or {otherwise}" if advice else otherwise[:1].upper() + otherwise[1:]
    return bottleneck, f"{what}. {advice}."


def _more_workers(report: LoaderReport, stages: list[Stage], waiting: Stage) -> str:
    """How many more workers would help; empty where none would."""
    num_workers = len(report.worker_uses)
    loading_ms = sum(stage.ms_per_batch for stage in stages)
    # Of a batch, without what waiting for workers costs.
    rest_ms = report.seconds * 1e3 / report.num_batches - waiting.ms_per_batch
    missing = math.ceil(loading_ms / max(rest_ms, loading_ms / _MOST_MORE_WORKERS)) - num_workers
    if _computes(report):  # each takes a core
        missing = min(missing, math.floor(report.cores.usable - report.cores.total + 0.5))
    if missing < 1:
        full = report.cores.total >= _FULL_FROM * report.cores.usable
        return f"More cores (all {report.cores.usable} are busy)" if full else ""
    if missing + num_workers >= _MOST_MORE_WORKERS:
        return "Many more workers"
    return f"{missing} more worker{'s' * (missing > 1)}"


def _computes(report: LoaderReport) -> bool:
    """Whether workers compute while they load; otherwise they wait for files or a network."""
    loading_cores = sum((use.cores or 0.0) + use.queued_share for use in report.worker_uses)
    return loading_cores > _COMPUTES_FROM * sum(use.busy_share for use in report.worker_uses)


def _about_graph(report: LoaderReport) -> str:
    cores, threads = report.cores, report.num_threads
    what = "the graph is the bottleneck"
    if cores.total >= _FULL_FROM * cores.usable:
        advice = "Cheaper or fewer steps, smaller images early in the chain, a GPU, or more cores."
        return f"{what}, and all {cores.usable} cores are busy. {advice}"
    if cores.graph >= _BUSY_FROM * threads and threads < cores.usable:
        return f"{what}: its {threads} thread{'s' * (threads > 1)} are busy. Raise num_threads."
    free = cores.usable - cores.total
    if free >= 1 and report.worker_uses and max(use.busy_share for use in report.worker_uses) < _BUSY_FROM:
        return f'{what}, while workers are idle. Cheaper steps, run="workers", or larger batches.'
    return f"{what}. Cheaper or fewer steps, larger batches, or a GPU."


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
