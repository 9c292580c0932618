# SPDX-License-Identifier: Apache-2.0
"""Where the time of a training loop goes: its sums, the report made of them, and the verdict.

Workers send with each batch how long they have read, applied steps and packed. The loop adds this up, with the
time that it waits itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import attrs

from ..sources.shards import num_cores_of_rank

if TYPE_CHECKING:
    from .loader_pipeline import LoaderPipeline

Sums: TypeAlias = Mapping[str, int]
"""Sums over all batches of a loader by name, after one of them; ``loop`` is the number of the loop."""

_OF_LOOP = ("num_batches", "next_ns", "between_ns", "process_ns")
_OF_POOL = ("waited_ns", "num_asked", "num_ahead", "num_empty")


class LoopTimes:
    """Adds up the time inside of ``next`` and between, batch by batch; the loop itself does so.

    The first batch of a loop is left out: workers start before it, and queues are empty.

    Attributes:
        num_batches: Batches that were received.
        next_ns: Time inside of ``next``.
        between_ns: Time between one ``next`` and another.
        process_ns: Processor time of this process when the last batch was received.
        received_at: When that was.
        first_ns: How long the first ``next`` of the loop has taken; None before the first loop.
        start: Sums after the first batch of the loop; None before it.
        end: Sums at the end of the loop; None while it runs.
    """

    def __init__(self) -> None:
        """Nothing is counted yet."""
        self.num_batches = self.next_ns = self.between_ns = self.process_ns = self.received_at = 0
        self.first_ns: int | None = None
        self.start: Sums | None = None
        self.end: Sums | None = None
        self._loop = 0

    def begin(self) -> None:
        """Begin a loop."""
        self._loop += 1
        self.start = self.end = None

    def begin_counting(self, first_ns: int, pipelines: LoaderPipeline) -> None:
        """Begin to count after the first batch of a loop, for which ``next`` has taken so long."""
        self.first_ns, self.start = first_ns, self.now(pipelines)

    def end_counting(self, pipelines: LoaderPipeline) -> None:
        """Keep the sums of a loop that has ended, before its workers are replaced or closed."""
        self.end = self.end or self.now(pipelines)

    def now(self, pipelines: LoaderPipeline) -> Sums:
        """Sums after the batch that was received last."""
        stages = attrs.asdict(pipelines.pipeline.times, recurse=False)
        of_workers = stages.pop("work")._asdict()
        each_step = {f"step {number}": ns for number, ns in enumerate(of_workers.pop("each_step_ns"))}
        of_pool = {name: getattr(pipelines.pool, name) for name in _OF_POOL}
        of_loop = {name: getattr(self, name) for name in _OF_LOOP}
        return {**of_workers, **each_step, **stages, **of_pool, **of_loop, "loop": self._loop}


# --- a report made of sums ----------------------------------------------------------------------------


def make_report(
    times: LoopTimes, pipelines: LoaderPipeline, since: LoaderReport | None, rank: int
) -> LoaderReport:
    """Make a report of what a loader has counted; since another one of the same loop, where there is one.

    ``rank`` is the shard id of the loader.
    """
    pipeline, settings = pipelines.pipeline, pipelines.pool.settings
    num_workers = settings.num_workers
    start, end = times.start, times.end or times.now(pipelines)
    if since is not None and since._until is not None and since._until["loop"] == end["loop"]:
        start = since._until
    about = LoaderReport(
        first_batch_s=None if times.first_ns is None else times.first_ns * 1e-9,
        start_s=pipeline.start_s,
        num_workers=num_workers,
        are_actors=pipelines.has_actors,
        num_threads=pipeline.num_threads,
        device_id=pipeline.device_id,
        rank=rank,
        until=end,
    )
    if start is None or end["num_batches"] == start["num_batches"]:
        return about
    spent = {name: value - start.get(name, 0) for name, value in end.items()}
    num_batches, waited_ns = spent["num_batches"], spent["waited_ns"]
    whole_ns = spent["next_ns"] + spent["between_ns"]
    names = {"reading": "reading_ns", "steps on arrays": "steps_ns", "packing": "packing_ns"}
    loading = {name: spent[of_work] for name, of_work in names.items()}
    loading_ns = max(1, sum(loading.values()))
    waits, in_workers, queue = {"waits for workers": waited_ns}, {}, None
    if num_workers:
        in_workers = {**loading, "idle": max(0, whole_ns * num_workers - loading_ns)}
        mean, empty = (spent[name] / max(1, spent["num_asked"]) for name in ("num_ahead", "num_empty"))
        queue = QueueLevel(mean, settings.window, empty)
    else:  # loaded while it was waited for; the graph works ahead, so it was not all of these batches
        waits = {name: waited_ns * spent_ns // loading_ns for name, spent_ns in loading.items()}
    in_loop = {
        "work": spent["between_ns"],
        **waits,
        "handing over": max(0, spent["input_ns"] - waited_ns),
        "waits for the graph": max(0, spent["run_ns"] - spent["input_ns"]),
        "conversion": spent["conversion_ns"],
    }
    if spent["post_process_ns"] > 1e-3 * spent["next_ns"]:
        in_loop["post_process_func"] = spent["post_process_ns"]
    steps = {name: spent.get(f"step {number}", 0) for number, name in enumerate(pipelines.step_names)}
    loading_cores = (spent["cpu_ns"] if num_workers else 0) / whole_ns
    of_workers = (0.0, loading_cores) if pipelines.has_actors else (loading_cores, 0.0)
    return attrs.evolve(
        about,
        num_batches=num_batches,
        num_samples=spent["num_samples"],
        seconds=whole_ns * 1e-9,
        num_bytes=spent["num_bytes"],
        num_frames=spent["num_frames"],
        num_decoded_frames=spent["num_decoded"],
        steps=_stages(steps, sum(in_workers.values()) or whole_ns, num_batches),
        loop=_stages(in_loop, whole_ns, num_batches),
        workers=_stages(in_workers, sum(in_workers.values()), num_batches),
        queue=queue,
        cores=BusyCores(num_cores_of_rank(), of_workers[0], spent["process_ns"] / whole_ns, of_workers[1]),
    )


def _stages(times_ns: Mapping[str, int], whole_ns: int, num_batches: int) -> tuple[Stage, ...]:
    return tuple(
        Stage(name, spent_ns * 1e-9, spent_ns / whole_ns, spent_ns * 1e-6 / num_batches)
        for name, spent_ns in times_ns.items()
    )


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
        usable: Cores that this rank may use: by affinity, CPU quota, and the ranks on this machine.
        workers: What the workers have used to load.
        process: What this process has used: the training loop, the threads of the graph, and all others.
        actors: What the actors of a cluster have used to load; of other machines, and not in ``total``.
    """

    usable: int
    workers: float
    process: float
    actors: float = 0.0

    @property
    def total(self) -> float:
        """All of it, of this machine."""
        return self.workers + self.process


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
        num_bytes: What these were on their way from the workers to the graph.
        num_frames: Frames of videos in these samples.
        num_decoded_frames: Frames that were decoded for these, in the workers and the graph.
        loop: Stages of the loop: its own ``work``, and what it waits for in ``next``.
        workers: Stages of the workers, for these batches; none where there are no workers.
        steps: Each step on arrays, in their order; together, with random draws, the stage ``"steps on arrays"``.
        queue: Batches loaded ahead; None without workers.
        cores: Busy cores.
        num_workers: Worker processes, or actors.
        are_actors: Whether these are actors of a cluster: the cores of this machine are not theirs.
        num_threads: Threads of the graph.
        device_id: The GPU of the graph; None where it runs on the CPU.
        rank: Shard id of the loader.
    """

    num_batches: int = 0
    num_samples: int = 0
    seconds: float = 0.0
    first_batch_s: float | None = None
    start_s: Mapping[str, float] = attrs.field(factory=dict)
    num_bytes: int = 0
    num_frames: int = 0
    num_decoded_frames: int = 0
    loop: tuple[Stage, ...] = ()
    workers: tuple[Stage, ...] = ()
    steps: tuple[Stage, ...] = ()
    queue: QueueLevel | None = None
    cores: BusyCores = BusyCores(1, 0.0, 0.0)
    num_workers: int = 0
    are_actors: bool = False
    num_threads: int = 1
    device_id: int | None = None
    rank: int = 0
    _until: Sums | None = attrs.field(default=None, repr=False, eq=False)

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
        """Get a stage of the workers or of the loop, or a step, by its name; None where there is none of it."""
        return next((each for each in (*self.workers, *self.loop, *self.steps) if each.name == name), None)

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
            yield from _table(f"{self.num_workers} worker{'s' * (self.num_workers > 1)}", self.workers)
        if self.steps:
            yield from _table("steps on arrays", self.steps)
        if self.queue is not None:
            ahead = f"loaded ahead: {self.queue.mean:.1f} of up to {self.queue.depth} batches"
            yield f"{ahead}; none {_percent(self.queue.empty_share)} of the times"
        if self.num_frames:
            decoded, sent = (_ratio(each, self.num_frames) for each in (self.num_decoded_frames, self.num_bytes))
            yield f"frames of videos: {self.num_frames}; for each, {decoded:.1f} decoded, {sent / 1e3:.1f} kB sent"
        cores = self.cores
        parts = f"workers {cores.workers:.2f}, this process {cores.process:.2f}"
        yield f"busy cores: {cores.total:.2f} of {cores.usable} ({parts})"
        if self.first_batch_s is not None:
            stages = {**self.start_s, "first batch": self.first_batch_s}
            seconds = ", ".join(f"{name} {value:.2f} s" for name, value in stages.items())
            yield f"the start is not counted: {seconds}"


def _table(title: str, stages: tuple[Stage, ...]) -> Iterator[str]:
    yield f"{title:28s} ms per batch   share"
    for stage in stages:
        yield f"  {stage.name:26s} {stage.ms_per_batch:12.2f}   {100 * stage.share:3.0f} %"


def _ratio(value: float, by: float) -> float:
    return value / by if by else 0.0


# --- the verdict -------------------------------------------------------------------------------------

_HIDDEN_BELOW = 0.1  # share of waiting that nobody needs to mind
_BUSY_FROM = 0.75  # share of their time in which workers load, above which they are what limits
_COMPUTES_FROM = 0.5  # processor time per time of loading, above which it computes rather than waits
_FULL_FROM = 0.9  # of the cores
# Stages of the process of the loop, but for the graph: what the bottleneck is called, and what would help.
_OF_THIS_PROCESS: dict[str, tuple[Bottleneck, str]] = {
    "reading": ("reading", "samples are loaded in the process of the loop, one after the other. {}"),
    "steps on arrays": ("worker steps", "steps on arrays run in the process of the loop, one after the other. {}"),
    "packing": ("packing", "samples are loaded in the process of the loop, one after the other. {}"),
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
        text = text.format(f"Load in workers, e.g. num_workers={min(2, report.cores.usable)}.")
    return bottleneck, start + text


def _of_workers(report: LoaderReport, waiting: Stage) -> tuple[Bottleneck, str]:
    *stages, idle = report.workers
    if 1 - idle.share < _BUSY_FROM and report.are_actors:
        return "input", (
            f"the actors, too, are idle {_percent(idle.share)} of theirs: what they have loaded is on its way, or "
            f"too few batches are requested ahead. A quicker network, less to send, or more `batches_ahead`."
        )
    if 1 - idle.share < _BUSY_FROM and report.queue is not None and report.num_workers > 1:
        reason = "since a few slow samples hold up the batches that are loaded already"
        advice = f"Make these quicker, or load more than {report.queue.depth} batches ahead."
        return "order", f"the workers, too, are idle {_percent(idle.share)} of theirs, {reason}. {advice}"
    loading_cores = report.cores.workers + report.cores.actors
    computes = loading_cores * report.seconds > _COMPUTES_FROM * sum(stage.seconds for stage in stages)
    read = f"the workers read too slowly, and mostly {'compute' if computes else 'wait for it'}"
    cheaper = "cheaper steps" if report.device_id is not None else 'cheaper steps, or run="graph"'
    slowest = max(report.steps, key=lambda stage: stage.seconds).name if len(report.steps) > 1 else ""
    slowest = f", most of it {slowest}" if slowest else ""
    names: dict[str, tuple[Bottleneck, str, str]] = {
        "reading": ("reading", read, "a quicker get_data" if computes else "a local copy of the data"),
        "steps on arrays": ("worker steps", f"the steps in the workers take too long{slowest}", cheaper),
        "packing": ("packing", "the workers take long to put batches together", "fewer or smaller fields"),
    }
    bottleneck, what, otherwise = names[max(stages, key=lambda stage: stage.seconds).name]
    advice = _more_workers(report, sum(stage.ms_per_batch for stage in stages), waiting, computes)
    advice = f"{advice}, or {otherwise}" if advice else otherwise[:1].upper() + otherwise[1:]
    return bottleneck, f"{what}. {advice}."


def _more_workers(report: LoaderReport, loading_ms: float, waiting: Stage, computes: bool) -> str:
    """How many more workers would help, never more than there are cores; empty where none would."""
    cores = report.cores
    # Of a batch, without what waiting for workers costs.
    rest_ms = report.seconds * 1e3 / report.num_batches - waiting.ms_per_batch
    needed = math.ceil(loading_ms / max(rest_ms, 1e-3))
    if not report.are_actors:
        needed = min(needed, cores.usable)
    if computes and not report.are_actors:  # each takes a core
        needed = min(needed, report.num_workers + math.floor(cores.usable - cores.total + 0.5))
    more = needed - report.num_workers
    if more > 0:
        return f"{more} more worker{'s' * (more > 1)}"
    return f"More cores ({_all(cores.usable)} busy)" if cores.total >= _FULL_FROM * cores.usable else ""


def _about_graph(report: LoaderReport) -> str:
    cores, threads = report.cores, report.num_threads
    what, gpu = "the graph is the bottleneck", " a GPU," if report.device_id is None else ""
    if cores.total >= _FULL_FROM * cores.usable:
        advice = f"Cheaper or fewer steps, smaller images early in the chain,{gpu} or more cores."
        return f"{what}, and {_all(cores.usable)} busy. {advice}"
    in_graph = cores.process - report.loop[0].share  # at least: the loop may compute all the time
    if in_graph >= _BUSY_FROM * threads and threads < cores.usable:
        return f"{what}: its {threads} thread{'s are' if threads > 1 else ' is'} busy. Raise num_threads."
    if not gpu:
        return f"{what}. Cheaper or fewer steps, smaller images early in the chain, or larger batches."
    if cores.usable - cores.total >= 1 and report.workers and report.workers[-1].share > 1 - _BUSY_FROM:
        return f'{what}, while workers are idle. Cheaper steps, run="workers", or larger batches.'
    return f"{what}. Cheaper or fewer steps, larger batches, or a GPU."


def _all(cores: int) -> str:
    return f"all {cores} cores are" if cores > 1 else "the only core is"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
