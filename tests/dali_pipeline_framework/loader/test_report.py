"""`DataLoader.report`: where the time of a loop goes, and what it says about it."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import attrs
import pytest
from support.fault_providers import JpegProvider
from support.inputs import NumberIterable
from support.loaders import make_loader, pipeline_of
from support.providers import IndexProvider
from support.slow_stages import SLOW_S, Disk, SlowInGraph, SlowInWorkers, spend

from accvlab.dali_pipeline_framework import DataLoader, ImageDecoder
from accvlab.dali_pipeline_framework.limits import control_groups
from accvlab.dali_pipeline_framework.loader import LoaderReport
from accvlab.dali_pipeline_framework.loader import report as report_module
from accvlab.dali_pipeline_framework.loader.data_loader import run_of
from accvlab.dali_pipeline_framework.loader.loader_pipeline import LoaderPipeline
from accvlab.dali_pipeline_framework.loader.report import LoopTimes, make_report

BATCH_SIZE = 4
NUM_BATCHES = 15


def make(provider: Any, **arguments: Any) -> DataLoader:
    settings = {"batch_size": BATCH_SIZE, "num_workers": 2, "num_threads": 1, "start_method": "fork"}
    return DataLoader(provider, **{**settings, "output_type": "numpy", **arguments})


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
    return bool(sum(report.loop.values()) == pytest.approx(report.seconds, rel=0.02))


def slowed(seconds: float) -> Callable[[Any], Any]:
    def pass_on(batch: Any) -> Any:
        time.sleep(BATCH_SIZE * seconds)
        return batch

    return pass_on


# What is slow: the bottleneck, what the verdict says, where the time is then, and a loop with such samples.
SLOW: dict[str, tuple[str, str, tuple[str, str], Callable[[float], LoaderReport]]] = {
    "disk": (
        "loading",
        "loading in the workers takes long, most of it reading (waiting)",
        ("workers", "reading"),
        lambda seconds: reported(make(Disk(seconds)), 0.002),
    ),
    "step in workers": (
        "loading",
        "loading in the workers takes long, most of it steps on arrays",
        ("workers", "steps on arrays"),
        lambda seconds: reported(make(Disk(), steps=[SlowInWorkers(seconds)]), 0.002),
    ),
    "step in the graph": (
        "graph",
        "the graph takes long",
        ("loop", "waits for the graph"),
        lambda seconds: reported(make(Disk(), steps=[SlowInGraph(seconds)]), 0.002),
    ),
    "loop": (
        "loop",
        "The training loop is the bottleneck",
        ("loop", "work"),
        lambda seconds: reported(make(Disk()), 8 * seconds),
    ),
    "loading in the process": (
        "loading",
        "loading in the process of the loop takes long, most of it reading (waiting)",
        ("workers", "reading"),
        lambda seconds: reported(make(Disk(seconds), num_workers=0), 0.002),
    ),
    "post_process_func": (
        "post_process_func",
        "post_process_func takes long",
        ("loop", "post_process_func"),
        lambda seconds: reported(make(Disk(), post_process_func=slowed(seconds)), 0.002),
    ),
}


@pytest.mark.parametrize("slow", SLOW)
def test_the_slow_stage_is_named(slow: str) -> None:
    bottleneck, text, (place, stage), run = SLOW[slow]
    report = undisturbed(bottleneck, run, text)
    assert getattr(report, place)[stage] / report.num_batches >= 0.6 * SLOW_S * BATCH_SIZE
    if report.num_workers:
        loading_s = sum(report.workers.values()) - report.workers["idle"]
        assert report.workers["idle"] == pytest.approx(max(0, report.num_workers * report.seconds - loading_s))


# --- what counts ------------------------------------------------------------------------------------------


def test_the_first_batch_of_a_loop_does_not_count() -> None:
    with make(IndexProvider(58), num_workers=0) as loader:
        assert (loader.report().num_batches, loader.report().bottleneck) == (0, "")
        assert str(loader.report()) == "No batch has been delivered yet, apart from the first one of a loop."
        for _ in range(2):
            began_at = time.perf_counter()
            batches = iter(loader)
            next(batches)
            report = loader.report()
            assert (report.num_batches, report.num_samples) == (0, 0)
            assert 0 < report.first_batch_s < time.perf_counter() - began_at
            assert report.first_batch_s > report.seconds
            assert len([*batches]) == NUM_BATCHES - 1
            report = loader.report()
            assert (report.num_batches, report.num_samples) == (NUM_BATCHES - 1, 58 - BATCH_SIZE)
            assert report.loop["post_process_func"] == 0  # there is none


def test_parts_of_a_loop_add_up() -> None:
    with make(Disk(), num_workers=1) as loader:
        batches = iter(loader)
        next(batches)
        part, seconds = loader.report(), 0.0
        for count in (3, 1, 5):
            list(islice(batches, count))
            before, part = part, loader.report(since=part)
            assert part.num_batches == count
            assert loader.report(since=before).num_batches == count  # asking changes nothing
            seconds += part.seconds
        whole = loader.report()
        assert (whole.num_batches, whole.seconds) == (9, pytest.approx(seconds))
        assert loader.report(since=whole).num_batches == 0
        assert len([*islice(loader, 2)]) == 2
        assert loader.report(since=whole).num_batches == 1  # of another loop: all of this one


def test_time_behind_the_loop_does_not_count() -> None:
    with make(Disk(), num_workers=1) as loader:
        began = time.perf_counter()
        for _ in islice(loader, 8):
            pass
        passed_s = time.perf_counter() - began
        spend(0.4, computes=True)  # something else
        report = loader.report()
    assert report.num_batches == 7
    assert report.seconds < passed_s
    assert report.cores["this process"] * report.seconds < 0.2
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
        assert [*part.workers] == ["reading", "steps on arrays", "packing", *(["idle"] if num_workers else [])]
    assert report.workers["reading"] >= 56 * 0.002
    assert report.workers["reading"] == pytest.approx(sum(part.workers["reading"] for part in parts[1:]))
    assert report.cores["loading"] * report.seconds >= 0.5 * 56 * 0.002


def test_a_pipeline_that_is_made_again_goes_on_counting(tmp_path: Path) -> None:
    steps = [ImageDecoder("image", use_device_mixed=False)]
    arguments: dict[str, Any] = {"steps": steps, "run": "graph", "num_workers": 0, "faults": "replace"}
    with make(JpegProvider(tmp_path, {21}), **arguments) as loader:
        pipeline = pipeline_of(loader)
        num_samples = sum(len(batch["index"]) for batch in loader)
        assert pipeline_of(loader) is not pipeline
        report = loader.report()
    assert (num_samples, report.num_batches, report.num_samples) == (40, 9, 36)
    assert min(report.loop.values()) >= 0


def test_each_step_on_arrays_is_added_up() -> None:
    steps = [SlowInWorkers(0.001), SlowInWorkers(0.004)]
    report = reported(make(Disk(0, 40), steps=steps, num_workers=1))
    assert [*report.steps] == ["step 0 (SlowInWorkers)", "step 1 (SlowInWorkers)"]
    first, second = report.steps.values()
    assert first >= 36 * 0.001
    assert second >= 36 * 0.004
    assert first + second <= report.workers["steps on arrays"]
    assert "steps on arrays              ms per batch   share\n  step 0 (SlowInWorkers) " in str(report)
    here = reported(make(Disk(0, 40), steps=steps, num_workers=0))
    assert here.steps["step 1 (SlowInWorkers)"] >= 36 * 0.004
    assert reported(make(Disk(0, 8), num_workers=0)).steps == {}


# --- exact numbers -----------------------------------------------------------------------------------------

S = 10**9
START: dict[str, int] = {"loop": 1, "num_batches": 5, "reading_ns": 7 * S, "idle_ns": 100 * S, "looked_at": 10 * S}
END: dict[str, int] = {
    "loop": 1,
    "num_batches": 15,
    "num_samples": 40,
    "num_bytes": 3_000_000,
    "num_frames": 8,
    "num_decoded_frames": 12,
    "first_ns": 2 * S,
    "next_ns": 6 * S,
    "between_ns": 4 * S,
    "waited_ns": 3 * S,
    "input_ns": 3 * S + S // 2,
    "run_ns": 5 * S,
    "conversion_ns": S // 4,
    "post_process_ns": S // 8,
    "reading_ns": 16 * S,
    "steps_ns": 4 * S,
    "packing_ns": S,
    "step 0": 3 * S,
    "cpu_ns": 5 * S,
    "process_ns": 20 * S,
    "idle_ns": 160 * S,
    "looked_at": 20 * S,
}


@pytest.fixture
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(control_groups, "cpu_quota", lambda: None)
    for name in ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_STEP_TASKS_PER_NODE"):
        monkeypatch.delenv(name, raising=False)


def made_of(end: dict[str, int], num_workers: int = 2) -> LoaderReport:
    with make(Disk(0, 8), steps=[SlowInWorkers(0)], num_workers=num_workers) as loader:
        times = LoopTimes()
        times.start, times.end = START, end
        return make_report(times, run_of(loader).pipelines, None)


@pytest.mark.usefixtures("eight_cores")
def test_a_report_is_the_difference_of_two_sums() -> None:
    report = made_of(END)
    names = ("num_batches", "num_samples", "num_bytes", "num_frames", "num_decoded_frames")
    assert [getattr(report, name) for name in names] == [10, 40, 3_000_000, 8, 12]
    assert (report.seconds, report.first_batch_s, report.samples_per_s) == (10, 2, 4)
    assert (report.mb_per_s, report.wait_share) == pytest.approx((0.3, 0.6))
    assert report.loop == pytest.approx(
        {
            "work": 4,
            "waits for loading": 3,
            "handing over": 0.5,
            "waits for the graph": 1.5,
            "conversion": 0.25,
            "post_process_func": 0.125,
        }
    )
    assert report.workers == pytest.approx({"reading": 9, "steps on arrays": 4, "packing": 1, "idle": 6})
    assert report.steps == pytest.approx({"step 0 (SlowInWorkers)": 3})
    assert report.cores == pytest.approx({"usable": 8, "free": 5.5, "loading": 0.5, "this process": 2})
    here = made_of(END, num_workers=0)
    assert here.workers == pytest.approx({"reading": 9, "steps on arrays": 4, "packing": 1})
    assert here.cores["free"] == pytest.approx(6)  # this process has loaded, so that is counted once


@pytest.mark.usefixtures("eight_cores")
@pytest.mark.parametrize(
    ("idle", "quota", "ranks", "free"),
    [
        pytest.param(None, None, 1, 5.5, id="idle for a moment, which says nothing"),
        pytest.param(6.0, None, 1, 5.5, id="nobody else: 8 without the 2.5 of this loader"),
        pytest.param(1.5, None, 1, 1.5, id="other programs have 4"),
        pytest.param(0.0, None, 1, 0.0, id="other programs have all"),
        pytest.param(6.0, 4.0, 1, 1.5, id="a quota of 4"),
        pytest.param(2.0, None, 2, 1.0, id="two ranks, which share 2"),
        pytest.param(6.0, 1.0, 1, 0.0, id="more than there are: threads that ran before"),
    ],
)
def test_cores_of_others_are_not_free(
    monkeypatch: pytest.MonkeyPatch, idle: float | None, quota: float | None, ranks: int, free: float
) -> None:
    monkeypatch.setattr(control_groups, "cpu_quota", lambda: quota)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(ranks))
    end = {**END, "idle_ns": START["idle_ns"] + int((idle or 0) * 10 * S)}
    if idle is None:
        end["looked_at"] = START["looked_at"] + S // 2
    assert made_of(end).cores["free"] == pytest.approx(free)


@pytest.mark.usefixtures("eight_cores")
def test_actors_have_cores_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoaderPipeline, "has_actors", True)
    report = made_of(END)
    assert report.are_actors
    assert report.cores == pytest.approx({"usable": 8, "free": 6, "loading": 0.5, "this process": 2})


# --- forms -------------------------------------------------------------------------------------------------


def hand_made(waits: dict[str, float], workers: dict[str, float] | None = None, **changes: Any) -> LoaderReport:
    cores = {"usable": 8, "free": 7.0, "loading": 0.2, "this process": 0.8} | changes.pop("cores", {})
    report = LoaderReport(
        num_batches=100,
        num_samples=400,
        seconds=1.0,
        first_batch_s=0.5,
        num_bytes=3_000_000,
        loop={"work": 1 - sum(waits.values()), "waits for loading": 0.0, **waits},
        workers=workers or {},
        cores=cores,
        num_workers=2,
        most_workers=8,
        num_threads=8,
    )
    return attrs.evolve(report, **changes)


READING = {"reading": 1.96, "packing": 0.02, "idle": 0.02}
STEPS = {"reading": 0.2, "steps on arrays": 1.7, "idle": 0.1}
PACKING = {"reading": 0.2, "packing": 1.7, "idle": 0.1}
HERE = {"reading": 0.38}
HALF_IDLE = {"reading": 0.9, "idle": 1.1}
FOR_LOADING = {"waits for loading": 0.38, "conversion": 0.02}
FOR_GRAPH = {"waits for the graph": 0.4}
COMPUTES = {"loading": 1.9, "free": 5.3}
FULL = {"free": 0.2}
ONE_FREE = COMPUTES | {"free": 1.3}
GRAPH = "the graph takes long. What may help: "
STEP_CURES = "cheaper or fewer steps, or smaller images early in the chain, or larger batches"
NO_CORE = "more cores (none of 8 is free)"


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_module, "num_usable_gpus", lambda: 0)


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    ("workers", "changes", "most_of_it", "help_text"),
    [
        # 1.98 s of loading in the 0.62 s of all else: 4 workers.
        (READING, {}, "reading (waiting)", "num_workers=4, or a local copy of the data"),
        # No more than the loader warns of, which is not said of actors.
        (READING, {"most_workers": 3}, "reading (waiting)", "num_workers=3, or a local copy of the data"),
        (READING, {"most_workers": 2}, "reading (waiting)", "a local copy of the data"),
        (
            READING,
            {"most_workers": 2, "are_actors": True},
            "reading (waiting)",
            "num_actors=4, or a local copy of the data",
        ),
        # Each that computes takes a core.
        (READING, {"cores": COMPUTES}, "reading (computing)", "num_workers=4, or a quicker get_data"),
        (READING, {"cores": ONE_FREE}, "reading (computing)", "num_workers=3, or a quicker get_data"),
        (READING, {"cores": COMPUTES | FULL}, "reading (computing)", f"{NO_CORE}, or a quicker get_data"),
        (
            READING,
            {"cores": COMPUTES | FULL, "are_actors": True},
            "reading (computing)",
            "num_actors=4, or a quicker get_data",
        ),
        (
            READING,
            {"cores": COMPUTES | FULL, "are_actors": True, "num_workers": 4},
            "reading (computing)",
            "a quicker get_data",
        ),
        # One that waits hardly needs any.
        (READING, {"cores": FULL}, "reading (waiting)", "num_workers=4, or a local copy of the data"),
        (STEPS, {"cores": COMPUTES}, "steps on arrays (computing)", "num_workers=4, or cheaper steps"),
        (PACKING, {"most_workers": 2}, "packing (waiting)", "fewer or smaller fields"),
        (HERE, {"num_workers": 0}, "reading (computing)", "num_workers=1, or a quicker get_data"),
        (
            HERE,
            {"num_workers": 0, "cores": {"loading": 0.3, "free": 0.1}},
            "reading (computing)",
            f"{NO_CORE}, or a quicker get_data",
        ),
    ],
)
def test_advice_where_loading_takes_long(
    workers: dict[str, float], changes: dict[str, Any], most_of_it: str, help_text: str
) -> None:
    report = hand_made(FOR_LOADING, workers, **changes)
    who = "actors" if report.are_actors else "workers" if report.num_workers else "process of the loop"
    verdict = f"loading in the {who} takes long, most of it {most_of_it}. What may help: {help_text}."
    assert report.verdict == f"The loop waits 40 % of its time: {verdict}"


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    ("waits", "workers", "changes", "verdict"),
    [
        (
            FOR_LOADING,
            HALF_IDLE,
            {},
            "the workers, too, are idle 55 % of theirs: a few slow samples hold up the others. What may help: a "
            "larger prefetch_queue_depth",
        ),
        (
            FOR_LOADING,
            HALF_IDLE,
            {"are_actors": True},
            "the actors, too, are idle 55 % of theirs: batches are on their way. What may help: a larger "
            "batches_ahead of RayWorkers",
        ),
        (FOR_GRAPH, None, {}, GRAPH + STEP_CURES),
        (FOR_GRAPH, None, {"device_id": 0}, GRAPH + STEP_CURES),
        (FOR_GRAPH, None, {"num_threads": 2}, f"{GRAPH}num_threads=8, or {STEP_CURES}"),
        (FOR_GRAPH, None, {"num_threads": 2, "cores": FULL}, f"{GRAPH}{STEP_CURES}, or {NO_CORE}"),
        (FOR_GRAPH, HALF_IDLE, {}, f'{GRAPH}run="workers", or {STEP_CURES}'),
        (FOR_GRAPH, HALF_IDLE, {"cores": FULL}, f"{GRAPH}{STEP_CURES}, or {NO_CORE}"),
        (FOR_GRAPH, HALF_IDLE, {"num_threads": 2, "device_id": 0}, GRAPH + STEP_CURES),
        ({"conversion": 0.4}, None, {}, "conversion takes long. What may help: fewer fields"),
        ({"handing over": 0.4}, None, {}, "handing over takes long. What may help: larger batches"),
        ({"post_process_func": 0.4}, None, {}, "post_process_func takes long. What may help: a cheaper one"),
    ],
)
def test_the_verdict_counts(waits: dict[str, float], workers: Any, changes: dict[str, Any], verdict: str) -> None:
    assert hand_made(waits, workers, **changes).verdict == f"The loop waits 40 % of its time: {verdict}."


def test_a_gpu_is_advised_where_there_is_one_that_the_graph_does_not_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_module, "num_usable_gpus", lambda: 1)
    assert hand_made(FOR_GRAPH).verdict.endswith(f"{STEP_CURES}, or a GPU (device_id).")
    for others in (
        hand_made(FOR_GRAPH, device_id=0),
        hand_made(FOR_LOADING, READING),
        hand_made(FOR_LOADING, STEPS),
    ):
        assert "GPU" not in others.verdict


def test_a_loop_that_hardly_waits_is_the_bottleneck() -> None:
    report = hand_made({"waits for loading": 0.09})
    text = "The training loop is the bottleneck: it waits 9 % of its time, and data loading is hidden."
    assert (report.bottleneck, report.verdict) == ("loop", text)
    on_gpu = hand_made({"waits for loading": 0.09}, device_id=0)
    assert on_gpu.verdict == f"{text} The GPU's work on batches counts as the loop's."
    assert hand_made({"waits for loading": 0.11}, READING).bottleneck == "loading"


@pytest.mark.parametrize("are_actors", [False, True])
def test_a_loop_that_only_waits_gets_ten_times_as_many_workers(are_actors: bool) -> None:
    """That is enough to wait 10 % of the time, and then nobody minds."""
    report = hand_made({"waits for loading": 1.0}, {"reading": 2.0}, most_workers=64, are_actors=are_actors)
    report = attrs.evolve(report, cores={**report.cores, "free": 60.0})
    assert f" num_{'actors' if are_actors else 'workers'}=20, or " in report.verdict


@pytest.mark.parametrize("usable", range(1, 10))
@pytest.mark.parametrize("loading", [0.01, 1.9])
@pytest.mark.parametrize("loading_s", [0.01, 1.98, 400.0])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_advice_never_asks_for_more_workers_than_the_loader_warns_of(
    usable: int, loading: float, loading_s: float, num_workers: int
) -> None:
    """Also where almost all time is waiting."""
    cores = {"usable": usable, "loading": loading, "free": float(usable)}
    workers = {"reading": loading_s} | ({"idle": 0.0} if num_workers else {})
    waits = {"waits for loading": 0.9999}
    report = hand_made(waits, workers, cores=cores, most_workers=usable, num_workers=num_workers)
    advised = re.search(r"num_workers=(\d+)", report.verdict)
    assert num_workers < (int(advised[1]) if advised else 3) <= max(3, usable)
    assert advised is None or int(advised[1]) <= usable


def test_usable_cores_are_those_of_the_loader_s_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(12)))
    monkeypatch.setattr(control_groups, "cpu_quota", lambda: 6.0)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    report = reported(make(IndexProvider(60), num_workers=1))
    assert (report.cores["usable"], report.most_workers, report.device_id, report.num_threads) == (3, 3, None, 1)
    iterable = make_loader(NumberIterable(60), 4, num_workers=1)
    assert reported(iterable).most_workers == 1


def test_a_table_for_people() -> None:
    report = hand_made(
        FOR_LOADING,
        READING,
        steps={"step 0 (A)": 0.01},
        num_frames=200,
        num_decoded_frames=500,
        cores={"free": 6.987},
    )
    assert str(report).splitlines() == [
        "100 batches, 400 samples in 1.00 s: 400.0 samples/s, 3.0 MB/s; not counted: the start, 0.50 s",
        report.verdict,
        "",
        "the loop                     ms per batch   share",
        "  work                               6.00    60 %",
        "  waits for loading                  3.80    38 %",
        "  conversion                         0.20     2 %",
        "loading, num_workers=2       ms per batch   share",
        "  reading                           19.60    98 %",
        "  packing                            0.20     1 %",
        "  idle                               0.20     1 %",
        "steps on arrays              ms per batch   share",
        "  step 0 (A)                         0.10   100 %",
        "frames of videos: 200; for each, 2.5 decoded, 15.0 kB sent",
        "cores: 8 usable, 6.99 free, 0.2 loading, 0.8 this process",
    ]


def test_a_report_is_json() -> None:
    report = hand_made(FOR_LOADING, READING)
    parsed = json.loads(json.dumps(report.to_dict()))
    expected = {"bottleneck": "loading", "verdict": report.verdict, "samples_per_s": 400}
    expected["loop"] = {"work": 0.6, "waits for loading": 0.38, "conversion": 0.02}
    expected["cores"] = {"usable": 8, "free": 7.0, "loading": 0.2, "this process": 0.8}
    assert {name: parsed[name] for name in expected} == expected


def test_scalars_have_a_curve_each() -> None:
    expected = {"samples_per_s": 400, "mb_per_s": 3, "wait_share": 0.4}
    expected |= {"cores/usable": 8, "cores/free": 7, "cores/loading": 0.2, "cores/this_process": 0.8}
    expected |= {"loop/work": 0.6, "loop/waits_for_loading": 0.38, "loop/conversion": 0.02}
    expected |= {"workers/reading": 0.98, "workers/packing": 0.01, "workers/idle": 0.01}
    scalars = hand_made(FOR_LOADING, READING).scalars("data/")
    assert scalars == pytest.approx({f"data/{name}": value for name, value in expected.items()})
