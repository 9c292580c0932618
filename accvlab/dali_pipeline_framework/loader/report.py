# SPDX-License-Identifier: Apache-2.0
"""Where the time of a training loop goes, and what would help.

::

    sums      workers send theirs with each batch, the pipeline adds up its stages, and the loop its own time
    report    the difference of two such sums
    verdict   what the loop waits for most, and advice about that
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from time import perf_counter_ns, process_time_ns
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from ..engine.dali.gpus import num_usable_gpus
from ..limits.control_groups import idle_core_ns, num_usable_cores
from ..sources.shards import num_cores_of_rank

if TYPE_CHECKING:
    from .loader_pipeline import LoaderPipeline

Sums: TypeAlias = Mapping[str, int]
"""Sums over all batches of a loader by name, after one of them; ``loop`` is the number of the loop."""
Values: TypeAlias = Mapping[str, float]
"""By name: of stages their seconds."""
_RATES = ("samples_per_s", "mb_per_s", "wait_share")
_COUNTS = ("num_batches", "num_samples", "num_bytes", "num_frames", "num_decoded_frames")

_HIDDEN_BELOW = 0.1  # share of waiting that nobody needs to mind
_IDLE_FROM = 0.25  # share of their time in which workers have nothing to do, so that they do not limit the rate
_COMPUTES_FROM = 0.5  # processor time per time of loading, above which it computes rather than waits
_FREE_FROM = 0.5  # cores
_LONG_NS = 1e9  # within less, the clock of idle cores says little: it counts hundredths of a second
_CURES = {"handing over": "larger batches", "conversion": "fewer fields", "post_process_func": "a cheaper one"}


class LoopTimes:
    """Adds up the time inside of ``next`` and between, batch by batch.

    The first batch of a loop is left out: workers start before it, and queues are empty.

    Attributes:
        sums: Batches, the time inside of ``next`` and between; when the last batch came, and the processor time of
            this process then; number and begin of the loop, and how long its first batch has taken.
        start: Sums after the first batch of the loop; None before it.
        end: Sums at the end of the loop; None while it runs.
    """

    def __init__(self) -> None:
        """Nothing is counted yet."""
        self.sums: Counter[str] = Counter()
        self.start: Sums | None = None
        self.end: Sums | None = None

    def begin(self, began_at: int) -> None:
        """Begin a loop, whose workers and graph were started from a time on."""
        self.sums["loop"] += 1
        self.sums["began_at"], self.start, self.end = began_at, None, None

    def receive(self, asked_at: int, pipelines: LoaderPipeline) -> None:
        """Count a batch that was requested at a time, and is there now."""
        sums, now = self.sums, perf_counter_ns()
        sums["num_batches"] += 1
        sums["next_ns"] += now - asked_at
        sums["between_ns"] += asked_at - sums["received_at"]
        sums["received_at"], sums["process_ns"] = now, process_time_ns()
        if self.start is None:
            sums["first_ns"] = now - sums["began_at"]
            self.start = self.now(pipelines)

    def end_counting(self, pipelines: LoaderPipeline) -> None:
        """Keep the sums of a loop that has ended, before its workers are replaced or closed."""
        self.end = self.end or self.now(pipelines)

    def now(self, pipelines: LoaderPipeline) -> Sums:
        """Sums after the batch that was received last, and for how long cores were idle up to this moment."""
        stages = attrs.asdict(pipelines.pipeline.times, recurse=False)
        loaded = stages.pop("work")._asdict()
        steps = {f"step {number}": ns for number, ns in enumerate(loaded.pop("each_step_ns"))}
        cores = {"waited_ns": pipelines.pool.waited_ns, "idle_ns": idle_core_ns(), "looked_at": perf_counter_ns()}
        return {**loaded, **steps, **stages, **cores, **self.sums}


@attrs.frozen(repr=False)
class LoaderReport:
    """Where the time went between the first batch of a loop and its latest one; see `DataLoader.report`.

    ``str(report)`` is a table for people. The stages of the loop follow one another, and add up to ``seconds``.
    Meanwhile the workers and the graph work on later batches.

    Attributes:
        num_batches: Batches that were delivered. The first one of the loop does not count: before it, workers
            start and queues are filled.
        num_samples: Samples of these batches.
        seconds: Time from the end of the first batch to the end of the last.
        first_batch_s: How long the first batch of the loop has taken, with the start of workers and graph.
        num_bytes: Size of these batches on their way from the workers to the graph.
        num_frames: Frames of videos in these samples.
        num_decoded_frames: Frames that were decoded for these, in the workers and the graph.
        loop: Seconds in each stage of the loop: its own ``work``, and the stages of ``next``.
        workers: Seconds in each stage of loading these batches, of all workers together.
        steps: Seconds in each step on arrays. Their sum, with random draws, is the stage ``"steps on arrays"``.
        cores: Numbers of cores. ``"usable"``: by this rank (affinity, CPU quota, divided by the ranks on this
            machine). ``"free"``: kept busy by nobody. ``"loading"``: busy with loading, in workers, actors or
            here. ``"this process"``: busy with the loop, the graph and other threads.
        num_workers: Worker processes, or actors.
        most_workers: Number of usable cores: with more worker processes, the loader warns. 1 for an iterable,
            which has a single worker.
        are_actors: Whether workers are actors of a cluster: the cores of this machine are not theirs.
        num_threads: Threads of the graph.
        device_id: The GPU of the graph; None for the CPU.
        sums: Counters at the latest batch, for a later report ``since`` this one.
    """

    num_batches: int = 0
    num_samples: int = 0
    num_bytes: int = 0
    num_frames: int = 0
    num_decoded_frames: int = 0
    seconds: float = 0.0
    first_batch_s: float = 0.0
    loop: Values = attrs.field(factory=dict)
    workers: Values = attrs.field(factory=dict)
    steps: Values = attrs.field(factory=dict)
    cores: Values = attrs.field(factory=dict, eq=False)  # what is free is another thing a moment later
    num_workers: int = 0
    most_workers: int = 1
    are_actors: bool = False
    num_threads: int = 1
    device_id: int | None = None
    sums: Sums = attrs.field(factory=dict, eq=False)

    @property
    def samples_per_s(self) -> float:
        """Samples per second."""
        return self.num_samples / (self.seconds or 1.0)

    @property
    def mb_per_s(self) -> float:
        """Megabytes (10**6 bytes) per second, of ``num_bytes``."""
        return self.num_bytes * 1e-6 / (self.seconds or 1.0)

    @property
    def wait_share(self) -> float:
        """Share of its time that the loop spends in ``next``."""
        return 1.0 - self.loop["work"] / self.seconds if self.num_batches else 0.0

    @property
    def bottleneck(self) -> str:
        """Name of the part that limits the rate; ``""`` without batches.

        ``"loop"``: the training loop, which waits for less than 10 % of its time. Otherwise the longest stage of
        ``next``: ``"loading"`` or ``"graph"``, for which the loop waits; or ``"handing over"``, ``"conversion"``,
        ``"post_process_func"``, which the loop's process computes.
        """
        if self.wait_share < _HIDDEN_BELOW:
            return "loop" if self.num_batches else ""
        in_next = {name: seconds for name, seconds in self.loop.items() if name != "work"}
        return max(in_next, key=in_next.__getitem__).removeprefix("waits for ").removeprefix("the ")

    @property
    def verdict(self) -> str:
        """The part that limits the rate, and a remedy, in a sentence or two."""
        bottleneck, waits = self.bottleneck, f"waits {100 * self.wait_share:.0f} % of its time"
        if not bottleneck:
            return "No batch has been delivered yet, apart from the first one of a loop."
        if bottleneck == "loop":
            counts = "" if self.device_id is None else " The GPU's work on batches counts as the loop's."
            return f"The training loop is the bottleneck: it {waits}, and data loading is hidden.{counts}"
        about = {"loading": _about_loading, "graph": _about_graph}.get(bottleneck)
        what, *cures = about(self) if about else (f"{bottleneck} takes long", _CURES[bottleneck])
        return f"The loop {waits}: {what}. What may help: {', or '.join(filter(None, cures))}."

    def to_dict(self) -> dict[str, Any]:
        """All numbers and the verdict, for JSON."""
        return attrs.asdict(self) | {name: getattr(self, name) for name in ("verdict", "bottleneck", *_RATES)}

    def scalars(self, prefix: str = "loader/") -> dict[str, float]:
        """The numbers that are worth plotting, by name, e.g. for ``SummaryWriter.add_scalar`` of TensorBoard."""
        places = {"loop": _shares(self.loop), "workers": _shares(self.workers), "cores": self.cores}
        values = {f"{place}/{name}": value for place, named in places.items() for name, value in named.items()}
        values |= {name: getattr(self, name) for name in _RATES}
        return {f"{prefix}{name}".replace(" ", "_"): value for name, value in values.items()}

    def __str__(self) -> str:
        """Return a table."""
        if not self.num_batches:
            return self.verdict
        counts = f"{self.num_batches} batches, {self.num_samples} samples in {self.seconds:.2f} s"
        rates = f"{self.samples_per_s:.1f} samples/s, {self.mb_per_s:.1f} MB/s"
        lines = [f"{counts}: {rates}; not counted: the start, {self.first_batch_s:.2f} s", self.verdict, ""]
        loading = f"loading, num_workers={self.num_workers}"
        for title, times in (("the loop", self.loop), (loading, self.workers), ("steps on arrays", self.steps)):
            lines += [f"{title:28s} ms per batch   share"] * bool(times)
            for name, share in _shares(times).items():
                lines.append(f"  {name:26s} {1e3 * times[name] / self.num_batches:12.2f}   {100 * share:3.0f} %")
        if self.num_frames:
            decoded, sent = self.num_decoded_frames / self.num_frames, self.num_bytes / self.num_frames / 1e3
            lines += [f"frames of videos: {self.num_frames}; for each, {decoded:.1f} decoded, {sent:.1f} kB sent"]
        lines += ["cores: " + ", ".join(f"{round(value, 2):g} {name}" for name, value in self.cores.items())]
        return "\n".join(lines)

    __repr__ = __str__  # notebooks show this


def _shares(times: Values) -> Values:
    whole = sum(times.values()) or 1.0
    return {name: seconds / whole for name, seconds in times.items()}


def make_report(times: LoopTimes, pipelines: LoaderPipeline, since: LoaderReport | None) -> LoaderReport:
    """Make a report of what a loader has counted; since another one of the same loop, if there is one."""
    end = times.end or times.now(pipelines)
    start = times.start or end
    if since is not None and since.sums.get("loop") == end["loop"]:
        start = since.sums
    spent, num_workers = Counter(end), pipelines.pool.settings.num_workers
    spent.subtract(start)
    counts: Any = {name: spent[name] for name in _COUNTS}

    def took(name: str) -> float:
        return 1e-9 * spent[name]

    whole_s = took("next_ns") + took("between_ns")
    workers = {"reading": took("reading_ns"), "steps on arrays": took("steps_ns"), "packing": took("packing_ns")}
    if num_workers:
        workers["idle"] = max(0.0, whole_s * num_workers - sum(workers.values()))
    return LoaderReport(
        **counts,
        seconds=whole_s,
        first_batch_s=1e-9 * end.get("first_ns", 0),
        loop={
            "work": took("between_ns"),
            "waits for loading": took("waited_ns"),
            "handing over": max(0.0, took("input_ns") - took("waited_ns")),
            "waits for the graph": max(0.0, took("run_ns") - took("input_ns")),
            "conversion": took("conversion_ns"),
            "post_process_func": took("post_process_ns"),
        },
        workers=workers,
        steps={name: took(f"step {number}") for number, name in enumerate(pipelines.step_names)},
        cores=_cores(spent, 1e9 * whole_s or 1.0, num_workers > 0 and not pipelines.has_actors),
        num_workers=num_workers,
        most_workers=num_cores_of_rank() if pipelines.bound.is_callable else 1,
        are_actors=pipelines.has_actors,
        num_threads=pipelines.pipeline.num_threads,
        device_id=pipelines.pipeline.device_id,
        sums=end,
    )


def _cores(spent: Sums, whole_ns: float, has_processes: bool) -> Values:
    usable, of_all = num_cores_of_rank(), num_usable_cores()  # other ranks have their share of what is free
    idle = spent["idle_ns"] / spent["looked_at"] if spent["looked_at"] > _LONG_NS else of_all
    loading, process = spent["cpu_ns"] / whole_ns, spent["process_ns"] / whole_ns
    free = max(0.0, min(usable - process - has_processes * loading, idle * usable / of_all))
    return {"usable": usable, "free": free, "loading": loading, "this process": process}


# --- what takes long, and what may help -----------------------------------------------------------------


def _about_loading(report: LoaderReport) -> tuple[str, ...]:
    free, num_workers, are_actors = report.cores["free"], report.num_workers, report.are_actors
    who, idle = "actors" if are_actors else "workers", _shares(report.workers).get("idle", 0.0)
    if idle > _IDLE_FROM and (are_actors or num_workers > 1):
        why = "batches are on their way" if are_actors else "a few slow samples hold up the others"
        ahead = "batches_ahead of RayWorkers" if are_actors else "prefetch_queue_depth"
        return f"the {who}, too, are idle {100 * idle:.0f} % of theirs: {why}", f"a larger {ahead}"
    times = {name: seconds for name, seconds in report.workers.items() if name != "idle"}
    slowest, loading_s = max(times, key=times.__getitem__), sum(times.values()) or 1e-9
    busy = report.cores["loading"] * report.seconds / loading_s  # cores, by a worker while it loads
    rest_s = report.seconds - report.loop["waits for loading"]
    needed = math.ceil(loading_s / max(rest_s, _HIDDEN_BELOW * report.seconds))
    if not are_actors:  # else the cores of this machine are not theirs
        needed = min(needed, report.most_workers, num_workers + int(free / max(busy, 0.01) + 0.5))
    more = f"num_{who}={needed}" if needed > num_workers else "" if are_actors else _more_cores(report)
    computes = busy > _COMPUTES_FROM
    how, data = ("computing", "a quicker get_data") if computes else ("waiting", "a local copy of the data")
    cures = {"reading": data, "steps on arrays": "cheaper steps", "packing": "fewer or smaller fields"}
    where = f"in the {who}" if num_workers else "in the process of the loop"
    return f"loading {where} takes long, most of it {slowest} ({how})", more, cures[slowest]


def _about_graph(report: LoaderReport) -> tuple[str, ...]:
    usable, on_cpu = report.cores["usable"], report.device_id is None
    has_room, idle = on_cpu and report.cores["free"] >= 1, _shares(report.workers).get("idle", 0.0)
    threads = f"num_threads={usable}" if has_room and report.num_threads < usable else ""
    workers = 'run="workers"' if has_room and idle > _IDLE_FROM else ""
    gpu = "a GPU (device_id)" if on_cpu and num_usable_gpus() else ""
    cures = "cheaper or fewer steps", "smaller images early in the chain", "larger batches"
    return "the graph takes long", threads, workers, *cures, gpu, _more_cores(report)


def _more_cores(report: LoaderReport) -> str:
    return f"more cores (none of {report.cores['usable']} is free)" if report.cores["free"] < _FREE_FROM else ""
