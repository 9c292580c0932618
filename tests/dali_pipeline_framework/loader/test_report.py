"""`DataLoader.report`: where the time of a loop goes, and what it says about it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import attrs
import pytest
from support.loaders import make_loader, pipeline_of
from support.providers import IndexProvider
from support.slow_stages import SLOW_S, Disk, SlowInGraph, SlowInWorkers, StragglingDisk, spend

from accvlab.dali_pipeline_framework import DataLoader
from accvlab.dali_pipeline_framework.cluster.actors import ActorUse
from accvlab.dali_pipeline_framework.inputs import SamplerInputCallable
from accvlab.dali_pipeline_framework.loader import LoaderReport
from accvlab.dali_pipeline_framework.loader.report import BusyCores, QueueLevel, Stage, WorkerUse
from accvlab.dali_pipeline_framework.sampling import SequentialSampler

BATCH_SIZE = 4
NUM_BATCHES = 15


def make(provider: Any, **arguments: Any) -> DataLoader:
    settings = {"num_workers": 2, "num_threads": 1, "start_method": "fork", "output_type": "numpy"}
    return DataLoader(provider, BATCH_SIZE, **{**settings, **arguments})


def reported(loader: DataLoader, work_s: float = 0.0) -> LoaderReport:
    with loader:
        for _ in loader:
            time.sleep(work_s)
        return loader.report()


def undisturbed(bottleneck: str, run: Callable[[float], LoaderReport], text: str = "") -> LoaderReport:
    """Get a report with this bottleneck, and this text in its verdict.

    The stages of the loop are all of its time. Where other programs have the cores, they are what is slow, also
    between two stages: then all is done again, with a slow stage that takes two, four, ... times as long.
    """
    reports = []
    for factor in (1, 1, 2, 4, 8, 16, 32):
        reports.append(run(factor * SLOW_S))
        if reports[-1].bottleneck == bottleneck and text in reports[-1].verdict and adds_up(reports[-1]):
            return reports[-1]
    pytest.fail("\n\n".join(map(str, reports)))


def adds_up(report: LoaderReport) -> bool:
    seconds, share = (sum(getattr(each, name) for each in report.loop) for name in ("seconds", "share"))
    return bool(seconds == pytest.approx(report.seconds, rel=0.02) and share == pytest.approx(1, rel=0.02))


def test_a_network_that_is_slower_than_the_loop_is_named() -> None:
    report = undisturbed("reading", lambda seconds: reported(make(Disk(seconds))))
    actor = ActorUse(0, "host", 1, num_samples=60, busy_s=1.0, way_s=5.0)
    found = attrs.evolve(report, actors=(actor,))
    assert found.bottleneck == "input"
    assert "answers of the actors are 5.0 s on their way, for 1.0 s of loading" in found.verdict
    assert "A quicker network, or less to send" in found.verdict
    slow = attrs.evolve(found, actors=(attrs.evolve(actor, way_s=0.9), ActorUse(1), ActorUse(2)))
    assert slow.bottleneck == "reading"
    assert "the actors read too slowly" in slow.verdict
    assert "workers" not in slow.verdict
    lines = [line for line in str(slow).splitlines() if line.startswith("  actor ") or " more: " in line]
    assert lines == [
        "  actor 0, host (process 1): 60 samples, busy 1.0 s, awaited 0.9 s more",
        "  2 more: not started yet",
    ]


def slowed(seconds: float) -> Callable[[Any], Any]:
    def pass_on(batch: Any) -> Any:
        time.sleep(BATCH_SIZE * seconds)
        return batch

    return pass_on


# What is slow: the bottleneck, its stage, what the verdict says, and a loop where a sample takes so long.
SLOW: dict[str, tuple[str, str, str, Callable[[float], LoaderReport]]] = {
    "disk": (
        "reading",
        "reading",
        "the workers read too slowly, and mostly wait for it",
        lambda seconds: reported(make(Disk(seconds)), 0.002),
    ),
    "get_data": (
        "reading",
        "reading",
        "the workers read too slowly, and mostly compute",
        lambda seconds: reported(make(Disk(seconds, 40, computes=True), num_workers=1)),
    ),
    "step in workers": (
        "worker steps",
        "steps on arrays",
        "the steps in the workers take too long",
        lambda seconds: reported(make(Disk(), steps=[SlowInWorkers(seconds)]), 0.002),
    ),
    "step in the graph": (
        "graph",
        "waits for the graph",
        "the graph is the bottleneck",
        lambda seconds: reported(make(Disk(), steps=[SlowInGraph(seconds)]), 0.002),
    ),
    "loop": (
        "loop",
        "work",
        "The training loop is the bottleneck",
        lambda seconds: reported(make(Disk()), 8 * seconds),
    ),
    "loading in the process": (
        "reading",
        "reading",
        "Load in workers: num_workers=2 or more",
        lambda seconds: reported(make(Disk(seconds), num_workers=0), 0.002),
    ),
    "post_process_func": (
        "post_process_func",
        "post_process_func",
        "post_process_func takes long",
        lambda seconds: reported(make(Disk(), post_process_func=slowed(seconds)), 0.002),
    ),
}


@pytest.mark.parametrize("slow", SLOW)
def test_the_slow_stage_is_named(slow: str) -> None:
    bottleneck, stage, text, run = SLOW[slow]
    report = undisturbed(bottleneck, run, text)
    found = report.stage(stage)
    assert found is not None
    assert found.ms_per_batch >= 0.6e3 * SLOW_S * BATCH_SIZE
    if report.workers:
        assert sum(each.share for each in report.workers) == pytest.approx(1, rel=0.2)


def test_a_function_that_is_not_given_takes_no_time() -> None:
    assert reported(make(Disk(), num_workers=0)).stage("post_process_func") is None


def test_a_few_slow_samples_hold_up_the_others() -> None:
    def run(seconds: float) -> LoaderReport:
        source = SamplerInputCallable(StragglingDisk(seconds), SequentialSampler(60, BATCH_SIZE))
        return reported(make_loader(source, num_workers=2, definition={"prefetch_queue_depth": 3}))

    undisturbed("order", run, "load more than 3 batches ahead")


# --- what counts ------------------------------------------------------------------------------------------


def test_the_first_batch_of_a_loop_does_not_count() -> None:
    with make(IndexProvider(60), num_workers=0) as loader:
        assert loader.report() == LoaderReport()
        assert loader.report().bottleneck == ""
        assert str(loader.report()) == "No batch has been delivered yet, apart from the first one of a loop."
        for _ in range(2):
            batches = iter(loader)
            next(batches)
            report = loader.report()
            assert (report.num_batches, report.num_samples) == (0, 0)
            assert report.first_batch_s is not None
            assert report.first_batch_s > 0
            assert len([*batches]) == NUM_BATCHES - 1
            report = loader.report()
            assert (report.num_batches, report.num_samples) == (NUM_BATCHES - 1, 60 - BATCH_SIZE)


def test_a_last_batch_counts_its_samples() -> None:
    report = reported(make(IndexProvider(10), num_workers=0))
    assert (report.num_batches, report.num_samples) == (2, 6)


def test_parts_of_a_loop_add_up() -> None:
    with make(Disk(), num_workers=1) as loader:
        batches = iter(loader)
        next(batches)
        parts = [loader.report()]
        for count in (3, 1, 5):
            list(islice(batches, count))
            part = loader.report(since=parts[-1])
            assert part.num_batches == count
            assert loader.report(since=parts[-1]).num_batches == count  # asking changes nothing
            parts.append(part)
        whole = loader.report()
        assert whole.num_batches == 9
        assert sum(part.num_samples for part in parts) == whole.num_samples
        assert sum(part.seconds for part in parts) == pytest.approx(whole.seconds)
        assert loader.report(since=whole).num_batches == 0
        loop = iter(loader)
        next(loop)
        next(loop)
        assert loader.report(since=whole).num_batches == 1  # of another loop: all of this one


def test_time_behind_the_loop_does_not_count() -> None:
    with make(Disk(), num_workers=1) as loader:
        began = time.perf_counter()
        for _ in islice(loader, 8):
            pass
        passed_s = time.perf_counter() - began
        spend(1, computes=True)  # something else
        report = loader.report()
    assert report.num_batches == 7
    assert report.seconds < passed_s
    assert report.cores.rest * report.seconds < 0.5
    assert loader.report() == report  # also of a loader that is closed


def test_workers_are_told_apart() -> None:
    report = reported(make(Disk(0.002, 120, computes=True)))
    assert len({use.pid for use in report.worker_uses}) == 2
    assert os.getpid() not in {use.pid for use in report.worker_uses}
    num_loaded = sum(use.num_samples for use in report.worker_uses)
    assert report.queue is not None
    # What was loaded before the first batch of the loop came does not count; the graph holds some batches as well.
    assert 120 - BATCH_SIZE * (report.queue.depth + 4) <= num_loaded <= 120 - BATCH_SIZE
    assert all(use.num_samples % BATCH_SIZE == 0 for use in report.worker_uses)
    for use in report.worker_uses:
        assert 0 < use.busy_share <= 1
        assert use.cores is not None
        assert use.cores * report.seconds > 0.001 * use.num_samples
    assert report.cores.workers == pytest.approx(sum(use.cores or 0 for use in report.worker_uses))
    assert report.num_bytes == pytest.approx(4000 * num_loaded, rel=0.01)


def test_the_queue_is_full_for_a_slow_loop_and_empty_for_a_slow_disk() -> None:
    full = undisturbed("loop", lambda seconds: reported(make(Disk(), num_workers=1), 4 * seconds)).queue
    assert full is not None
    assert full.mean > 1
    assert full.empty_share < 0.4
    empty = undisturbed("reading", lambda seconds: reported(make(Disk(seconds), num_workers=1))).queue
    assert empty is not None
    assert empty.mean < 1
    assert empty.empty_share > 0.5


def test_the_queue_is_counted_anew_behind_a_loop_that_was_left() -> None:
    with make(Disk()) as loader:
        for _ in range(3):
            for _ in islice(loader, 3):
                time.sleep(0.02)
        for _ in islice(loader, 5):
            time.sleep(0.02)
        queue = loader.report().queue
        assert queue is not None
        assert queue.mean <= queue.depth == pipeline_of(loader).depth


# --- forms -------------------------------------------------------------------------------------------------


WORK = Stage("work", 0.6, 0.6, 6.0)
CORES = BusyCores(8, 0.2, 0.5, 0.3)


def hand_made(loop: list[Stage], workers: list[Stage] | None = None, **changes: Any) -> LoaderReport:
    report = LoaderReport(
        num_batches=100,
        num_samples=400,
        seconds=1.0,
        first_batch_s=0.5,
        start_s={"workers": 2.1, "graph": 0.25},
        imports_s={"torch": 1.2, "numpy": 0.01},
        num_bytes=3_000_000,
        loop=(WORK, *loop),
        workers=tuple(workers or ()),
        worker_uses=(WorkerUse(7, 0.99, 0.1, 0.0, 200), WorkerUse(8, 0.99, 0.1, 0.0, 200)),
        queue=QueueLevel(0.1, 10, 0.9),
        cores=CORES,
        num_threads=2,
    )
    return attrs.evolve(report, **changes)


READING = [Stage("reading", 1.96, 0.98, 19.6), Stage("packing", 0.02, 0.01, 0.2), Stage("idle", 0.02, 0.01, 0.2)]
FOR_WORKERS = [Stage("waits for workers", 0.38, 0.38, 3.8), Stage("conversion", 0.02, 0.02, 0.2)]
FOR_GRAPH = [Stage("waits for the graph", 0.4, 0.4, 4.0)]


@pytest.mark.parametrize(
    ("report", "verdict"),
    [
        (
            # 19.8 ms of loading for a batch of 6.2 ms: 4 workers.
            hand_made(FOR_WORKERS, READING),
            "The loop waits 40 % of its time: the workers read too slowly, and mostly wait for it. 2 more "
            "workers, or a local copy of the data.",
        ),
        (
            hand_made(
                FOR_WORKERS,
                READING,
                worker_uses=(WorkerUse(7, 0.99, 0.4, 0.5, 200), WorkerUse(8, 0.99, 0.4, 0.5, 200)),
                cores=BusyCores(2, 1.8, 0.1, 0.1),
            ),
            "The loop waits 40 % of its time: the workers read too slowly, and mostly compute. More cores "
            "(all 2 are busy), or a quicker get_data.",
        ),
        (
            hand_made(FOR_GRAPH),
            "The loop waits 40 % of its time: the graph is the bottleneck. Cheaper or fewer steps, larger "
            "batches, or a GPU.",
        ),
        (
            hand_made(FOR_GRAPH, cores=BusyCores(8, 0.2, 1.9, 0.3)),
            "The loop waits 40 % of its time: the graph is the bottleneck: its 2 threads are busy. "
            "Raise num_threads.",
        ),
        (
            hand_made(FOR_GRAPH, cores=BusyCores(2, 0.2, 1.6, 0.2)),
            "The loop waits 40 % of its time: the graph is the bottleneck, and all 2 cores are busy. Cheaper or "
            "fewer steps, smaller images early in the chain, a GPU, or more cores.",
        ),
    ],
)
def test_the_verdict_counts(report: LoaderReport, verdict: str) -> None:
    assert report.verdict == verdict


def test_a_table_for_people() -> None:
    report = hand_made(FOR_WORKERS, READING)
    assert str(report).splitlines() == [
        "100 batches, 400 samples in 1.00 s: 400.0 samples/s, 3.0 MB/s",
        report.verdict,
        "",
        "the loop                     ms per batch   share",
        "  work                               6.00    60 %",
        "  waits for workers                  3.80    38 %",
        "  conversion                         0.20     2 %",
        "2 workers                    ms per batch   share",
        "  reading                           19.60    98 %",
        "  packing                            0.20     1 %",
        "  idle                               0.20     1 %",
        "loaded ahead: 0.1 of up to 10 batches; none 90 % of the times",
        "busy cores: 1.00 of 8 (workers 0.20, graph 0.50, the rest of this process 0.30)",
        "the start is not counted: workers 2.10 s, graph 0.25 s, first batch 0.50 s",
        "imported once for all workers: torch 1.20 s",
    ]


def test_a_report_is_json() -> None:
    report = hand_made(FOR_WORKERS, READING)
    parsed = json.loads(json.dumps(report.to_dict()))
    assert parsed["bottleneck"] == "reading"
    assert parsed["verdict"] == report.verdict
    assert parsed["samples_per_s"] == 400
    assert parsed["loop"][1] == {"name": "waits for workers", "seconds": 0.38, "share": 0.38, "ms_per_batch": 3.8}
    assert parsed["worker_uses"][1]["pid"] == 8
    assert parsed["queue"] == {"mean": 0.1, "depth": 10, "empty_share": 0.9}


def test_scalars_have_a_curve_each() -> None:
    assert hand_made(FOR_WORKERS, READING).scalars("data/") == {
        "data/samples_per_s": 400.0,
        "data/mb_per_s": 3.0,
        "data/wait_share": pytest.approx(0.4),
        "data/busy_cores": 1.0,
        "data/batches_ahead": 0.1,
        "data/loop/work": 0.6,
        "data/loop/waits_for_workers": 0.38,
        "data/loop/conversion": 0.02,
        "data/workers/reading": 0.98,
        "data/workers/packing": 0.01,
        "data/workers/idle": 0.01,
    }
