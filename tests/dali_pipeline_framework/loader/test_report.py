"""`DataLoader.report`: where the time of a loop goes, and what it says about it."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import attrs
import pytest
from nvidia.dali.types import DALIDataType
from support.arrays import encoded_image, gradient
from support.loaders import make_loader, pipeline_of
from support.providers import IndexProvider
from support.slow_stages import SLOW_S, Disk, SlowInGraph, SlowInWorkers, StragglingDisk, spend

from accvlab.dali_pipeline_framework import DataLoader, ImageDecoder, SampleDataGroup
from accvlab.dali_pipeline_framework.inputs import SamplerInputCallable
from accvlab.dali_pipeline_framework.limits import control_groups
from accvlab.dali_pipeline_framework.loader import LoaderReport
from accvlab.dali_pipeline_framework.loader.report import BusyCores, QueueLevel, Stage
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
        "the workers read too slowly, and mostly",  # where others have the cores, computing is mostly waiting
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
        "Load in workers, e.g. num_workers=",
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
        assert sum(each.share for each in report.workers) == pytest.approx(1)


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
    assert report.cores.process * report.seconds < 0.5
    assert loader.report() == report  # also of a loader that is closed


@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_what_was_delivered_is_added_up_exactly(num_workers: int) -> None:
    with make(Disk(0.002, 60, computes=True), num_workers=num_workers) as loader:
        batches = iter(loader)
        first = next(batches)
        parts = [loader.report()]
        for count in (2, 5, 7):
            list(islice(batches, count))
            parts.append(loader.report(since=parts[-1]))
        report = loader.report()
    bytes_per_batch = sum(array.nbytes for array in first.values())
    assert [part.num_samples for part in parts[1:]] == [8, 20, 28]
    packed = parts[1].num_bytes // 2
    assert bytes_per_batch <= packed <= 1.1 * bytes_per_batch
    assert [part.num_bytes for part in parts[1:]] == [2 * packed, 5 * packed, 7 * packed]
    assert (report.num_samples, report.num_bytes, report.num_workers) == (56, 14 * packed, num_workers)
    for part in parts[1:]:
        assert [stage.name for stage in part.workers] == (
            ["reading", "steps on arrays", "packing", "idle"] if num_workers else []
        )
        assert (part.queue is None) == (num_workers == 0)
    if num_workers:
        reading = report.stage("reading")
        assert reading is not None
        assert reading.seconds >= 56 * 0.002
        assert reading.seconds == pytest.approx(sum(part.workers[0].seconds for part in parts[1:]))
        assert report.cores.workers * report.seconds >= 0.5 * 56 * 0.002


class Refusing(IndexProvider):
    """Each sample can be loaded, but the image of sample 21 cannot be decoded."""

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        blueprint = super().sample_data_structure
        blueprint.add_data_field("image", DALIDataType.UINT8)
        return blueprint

    def get_data(self, sample_index: int) -> SampleDataGroup:
        sample = super().get_data(sample_index)
        image = encoded_image(gradient(8, 8))
        sample["image"] = image[:30] if sample_index == 21 else image
        return sample


def test_a_pipeline_that_is_made_again_goes_on_counting() -> None:
    steps = [ImageDecoder("image", use_device_mixed=False)]
    arguments: dict[str, Any] = {"steps": steps, "run": "graph", "num_workers": 0, "faults": "replace"}
    with make(Refusing(40), **arguments) as loader:
        pipeline = pipeline_of(loader)
        num_samples = sum(len(batch["index"]) for batch in loader)
        assert pipeline_of(loader) is not pipeline
        report = loader.report()
    assert (num_samples, report.num_batches, report.num_samples) == (40, 9, 36)
    assert min(stage.seconds for stage in report.loop) >= 0


def test_a_loop_that_goes_on_with_another_batch_size_is_counted() -> None:
    with make(IndexProvider(40), num_workers=1) as loader:
        states = [loader.state_dict() for _ in islice(loader, 3)]
    with make_loader_of(2) as loader:
        loader.load_state_dict(states[-1])
        assert len([*loader]) == 14
        report = loader.report()  # the workers of the epoch that went on are gone
        assert (report.num_batches, report.num_samples) == (13, 26)
        assert min(stage.seconds for stage in report.loop) >= 0
        assert report.queue is not None


def make_loader_of(batch_size: int) -> DataLoader:
    return DataLoader(IndexProvider(40), batch_size, num_workers=1, start_method="fork", output_type="numpy")


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
        assert queue.mean <= queue.depth == pipeline_of(loader).fed.pool.settings.window


def test_each_step_on_arrays_is_added_up() -> None:
    steps = [SlowInWorkers(0.001), SlowInWorkers(0.004)]
    report = reported(make(Disk(0, 40), steps=steps, num_workers=1))
    first, second = report.steps
    assert [first.name, second.name] == ["step 0 (SlowInWorkers)", "step 1 (SlowInWorkers)"]
    assert first.seconds >= 36 * 0.001
    assert second.seconds >= 36 * 0.004
    whole = report.stage("steps on arrays")
    assert whole is not None
    assert 0.8 * whole.seconds <= first.seconds + second.seconds <= whole.seconds
    assert report.stage("step 1 (SlowInWorkers)") is second
    assert "steps on arrays              ms per batch   share\n  step 0 (SlowInWorkers) " in str(report)
    here = reported(make(Disk(0, 40), steps=steps, num_workers=0))
    assert here.steps[1].seconds >= 36 * 0.004
    assert reported(make(Disk(0, 8), num_workers=0)).steps == ()


# --- forms -------------------------------------------------------------------------------------------------


WORK = Stage("work", 0.6, 0.6, 6.0)


def hand_made(loop: list[Stage], workers: list[Stage] | None = None, **changes: Any) -> LoaderReport:
    report = LoaderReport(
        num_batches=100,
        num_samples=400,
        seconds=1.0,
        first_batch_s=0.5,
        start_s={"graph": 0.25},
        num_bytes=3_000_000,
        loop=(WORK, *loop),
        workers=tuple(workers or ()),
        queue=QueueLevel(0.1, 10, 0.9),
        cores=BusyCores(8, 0.2, 0.8),
        num_workers=2,
        num_threads=2,
    )
    return attrs.evolve(report, **changes)


READING = [Stage("reading", 1.96, 0.98, 19.6), Stage("packing", 0.02, 0.01, 0.2), Stage("idle", 0.02, 0.01, 0.2)]
STEPS = [Stage("reading", 0.2, 0.1, 2.0), Stage("steps on arrays", 1.7, 0.85, 17.0), Stage("idle", 0.1, 0.05, 1.0)]
SLOWEST = Stage("step 1 (B)", 1.6, 0.8, 16.0)
HALF_IDLE = [Stage("reading", 0.9, 0.45, 9.0), Stage("idle", 1.1, 0.55, 11.0)]
FOR_WORKERS = [Stage("waits for workers", 0.38, 0.38, 3.8), Stage("conversion", 0.02, 0.02, 0.2)]
FOR_GRAPH = [Stage("waits for the graph", 0.4, 0.4, 4.0)]
OWN = [Stage("reading", 0.4, 0.4, 4.0)]
WORKERS = "The loop waits 40 % of its time: the workers read too slowly, and mostly "
GRAPH = "The loop waits 40 % of its time: the graph is the bottleneck"


@pytest.mark.parametrize(
    ("report", "verdict"),
    [
        # 19.8 ms of loading for a batch of 6.2 ms: 4 workers.
        (hand_made(FOR_WORKERS, READING), WORKERS + "wait for it. 2 more workers, or a local copy of the data."),
        # No more than there are cores, of which the loader would warn.
        (
            hand_made(FOR_WORKERS, READING, cores=BusyCores(3, 0.2, 0.8)),
            WORKERS + "wait for it. 1 more worker, or a local copy of the data.",
        ),
        (
            hand_made(FOR_WORKERS, READING, cores=BusyCores(2, 0.2, 0.8)),
            WORKERS + "wait for it. A local copy of the data.",
        ),
        (
            hand_made(FOR_WORKERS, READING, cores=BusyCores(8, 1.9, 0.8)),
            WORKERS + "compute. 2 more workers, or a quicker get_data.",
        ),
        (
            hand_made(FOR_WORKERS, READING, cores=BusyCores(4, 1.9, 0.8)),
            WORKERS + "compute. 1 more worker, or a quicker get_data.",
        ),
        (
            hand_made(FOR_WORKERS, READING, cores=BusyCores(2, 1.8, 0.2)),
            WORKERS + "compute. More cores (all 2 cores are busy), or a quicker get_data.",
        ),
        (
            hand_made(FOR_WORKERS, READING, cores=BusyCores(1, 1.0, 0.1), num_workers=1),
            WORKERS + "compute. More cores (the only core is busy), or a quicker get_data.",
        ),
        (
            hand_made(FOR_WORKERS, STEPS),
            "The loop waits 40 % of its time: the steps in the workers take too long. 2 more workers, or cheaper "
            'steps, or run="graph".',
        ),
        (
            hand_made(FOR_WORKERS, STEPS, device_id=0, steps=(Stage("step 0 (A)", 0.1, 0, 1), SLOWEST)),
            "The loop waits 40 % of its time: the steps in the workers take too long, most of it step 1 (B). 2 "
            "more workers, or cheaper steps.",
        ),
        (
            hand_made(FOR_WORKERS, STEPS, device_id=0),
            "The loop waits 40 % of its time: the steps in the workers take too long. 2 more workers, or cheaper "
            "steps.",
        ),
        (
            hand_made(FOR_WORKERS, HALF_IDLE),
            "The loop waits 40 % of its time: the workers, too, are idle 55 % of theirs, since a few slow samples "
            "hold up the batches that are loaded already. Make these quicker, or load more than 10 batches ahead.",
        ),
        (hand_made(FOR_GRAPH), GRAPH + ". Cheaper or fewer steps, larger batches, or a GPU."),
        (
            hand_made(FOR_GRAPH, device_id=0),
            GRAPH + ". Cheaper or fewer steps, smaller images early in the chain, or larger batches.",
        ),
        (
            hand_made(FOR_GRAPH, cores=BusyCores(8, 0.2, 2.1)),
            GRAPH + ": its 2 threads are busy. Raise num_threads.",
        ),
        (
            hand_made(FOR_GRAPH, cores=BusyCores(8, 0.2, 1.6), num_threads=1),
            GRAPH + ": its 1 thread is busy. Raise num_threads.",
        ),
        (
            hand_made(FOR_GRAPH, HALF_IDLE),
            GRAPH + ', while workers are idle. Cheaper steps, run="workers", or larger batches.',
        ),
        (
            hand_made(FOR_GRAPH, cores=BusyCores(2, 0.2, 1.8)),
            GRAPH
            + ", and all 2 cores are busy. Cheaper or fewer steps, smaller images early in the chain, a GPU, "
            "or more cores.",
        ),
        (
            hand_made(FOR_GRAPH, cores=BusyCores(2, 0.2, 1.8), device_id=0),
            GRAPH
            + ", and all 2 cores are busy. Cheaper or fewer steps, smaller images early in the chain, or more "
            "cores.",
        ),
        (
            hand_made(OWN, num_workers=0, queue=None),
            "The loop waits 40 % of its time: samples are loaded in the process of the loop, one after the other. "
            "Load in workers, e.g. num_workers=2.",
        ),
        (
            hand_made(OWN, num_workers=0, queue=None, cores=BusyCores(1, 0.0, 0.9)),
            "The loop waits 40 % of its time: samples are loaded in the process of the loop, one after the other. "
            "Load in workers, e.g. num_workers=1.",
        ),
    ],
)
def test_the_verdict_counts(report: LoaderReport, verdict: str) -> None:
    assert report.verdict == verdict


@pytest.mark.parametrize("usable", range(1, 10))
@pytest.mark.parametrize("workers", [0.01, 1.9])
@pytest.mark.parametrize("loading_ms", [1.0, 19.6, 4000.0])
def test_advice_never_asks_for_more_workers_than_the_loader_warns_of(
    usable: int, workers: float, loading_ms: float
) -> None:
    """Also where almost all time is waiting; 2 workers run."""
    waits = [Stage("waits for workers", 0.4, 0.4, 9.9999)]
    reading = [Stage("reading", 1.98, 0.99, loading_ms), Stage("idle", 0.02, 0.01, 0.2)]
    report = hand_made(waits, reading, cores=BusyCores(usable, workers, 0.05))
    advised = re.search(r"(\d+) more worker", report.verdict)
    assert 2 + int(advised[1] if advised else 0) <= max(2, usable)
    with_gpu = attrs.evolve(report, device_id=0)
    assert "GPU" not in with_gpu.verdict


def test_usable_cores_are_those_of_the_loader_s_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(12)))
    monkeypatch.setattr(control_groups, "cpu_quota", lambda: 6.0)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    report = reported(make(IndexProvider(60), num_workers=1))
    assert (report.cores.usable, report.device_id, report.num_threads) == (3, None, 1)


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
        "busy cores: 1.00 of 8 (workers 0.20, this process 0.80)",
        "the start is not counted: graph 0.25 s, first batch 0.50 s",
    ]


def test_a_report_is_json() -> None:
    report = hand_made(FOR_WORKERS, READING)
    parsed = json.loads(json.dumps(report.to_dict()))
    assert parsed["bottleneck"] == "reading"
    assert parsed["verdict"] == report.verdict
    assert parsed["samples_per_s"] == 400
    assert parsed["loop"][1] == {"name": "waits for workers", "seconds": 0.38, "share": 0.38, "ms_per_batch": 3.8}
    assert parsed["cores"] == {"usable": 8, "workers": 0.2, "process": 0.8, "actors": 0.0}
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
