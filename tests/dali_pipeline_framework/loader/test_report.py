"""`DataLoader.report`: where the time of a loop goes, and what it says about it."""

from __future__ import annotations

import json
import os
import re
import time
from itertools import islice
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fault_providers import JpegProvider
from support.laws import some
from support.loaders import pipeline_of
from support.providers import IndexProvider
from support.slow_stages import SLOW_S, Disk, SlowInGraph, SlowInWorkers

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


# --- what counts ------------------------------------------------------------------------------------------


def slow(batch: Any) -> Any:
    time.sleep(BATCH_SIZE * SLOW_S)
    return batch


@some(
    ("place", "stage", "source", "settings"),
    [
        ("loop", "waits for loading", Disk(SLOW_S), {"num_workers": 1}),
        ("workers", "reading", Disk(SLOW_S), {}),
        ("workers", "reading", Disk(SLOW_S), {"num_workers": 0}),
        ("workers", "steps on arrays", Disk(), {"steps": [SlowInWorkers()]}),
        ("loop", "waits for the graph", Disk(), {"steps": [SlowInGraph()]}),
        ("loop", "post_process_func", Disk(), {"post_process_func": slow}),
        ("loop", "work", Disk(), {}),
    ],
    {0, 1, 3, 4, 6},
)
def test_time_counts_where_it_passes(place: str, stage: str, source: Disk, settings: dict[str, Any]) -> None:
    report = reported(make(source, **settings), BATCH_SIZE * SLOW_S if stage == "work" else 0.0)
    # Of batches that are made ahead, a part was made before the first one came.
    assert getattr(report, place)[stage] >= 0.5 * NUM_BATCHES * BATCH_SIZE * SLOW_S
    assert 0.5 * report.seconds < sum(report.loop.values()) < 1.001 * report.seconds
    if report.num_workers:
        loading_s = sum(report.workers.values()) - report.workers["idle"]
        assert report.workers["idle"] == pytest.approx(max(0, report.num_workers * report.seconds - loading_s))


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
            assert report.seconds < report.first_batch_s < time.perf_counter() - began_at
            assert len([*batches]) == NUM_BATCHES - 1
            report = loader.report()
            assert (report.num_batches, report.num_samples) == (NUM_BATCHES - 1, 58 - BATCH_SIZE)
            assert report.loop["post_process_func"] == 0  # there is none


@pytest.mark.parametrize("num_workers", [0, 2])
def test_parts_of_a_loop_add_up(num_workers: int) -> None:
    with make(Disk(0.002, computes=True), num_workers=num_workers) as loader:
        batches = iter(loader)
        bytes_per_batch = sum(array.nbytes for array in next(batches).values())
        parts = [loader.report()]
        for count in (2, 5, 7):
            list(islice(batches, count))
            parts.append(loader.report(since=parts[-1]))
            assert loader.report(since=parts[-2]) == parts[-1]  # asking changes nothing
        whole = loader.report()
        assert loader.report(since=whole).num_batches == 0
        assert len([*islice(loader, 2)]) == 2
        other = loader.report(since=whole)
        assert other.num_batches == 1  # of another loop: all of this one
    assert loader.report() == other  # also of a loader that is closed: nothing behind the last batch counts
    del parts[0]
    packed = parts[0].num_bytes // 2
    assert bytes_per_batch <= packed <= 1.1 * bytes_per_batch
    counts = [(part.num_batches, part.num_samples, part.num_bytes) for part in parts]
    assert counts == [(number, 4 * number, number * packed) for number in (2, 5, 7)]
    assert (whole.num_samples, whole.num_bytes, whole.num_workers) == (56, 14 * packed, num_workers)
    assert whole.seconds == pytest.approx(sum(part.seconds for part in parts))
    for part in parts:
        assert [*part.workers] == ["reading", "steps on arrays", "packing", *(["idle"] if num_workers else [])]
    assert whole.workers["reading"] == pytest.approx(sum(part.workers["reading"] for part in parts))
    assert whole.workers["reading"] >= 56 * 0.002
    assert whole.cores["loading"] * whole.seconds >= 0.5 * 56 * 0.002


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


@pytest.mark.parametrize("num_workers", [0, 1])
def test_each_step_on_arrays_is_added_up(num_workers: int) -> None:
    steps = [SlowInWorkers(0.001), SlowInWorkers(0.004)]
    report = reported(make(Disk(0, 40), steps=steps, num_workers=num_workers))
    assert [*report.steps] == ["step 0 (SlowInWorkers)", "step 1 (SlowInWorkers)"]
    first, second = report.steps.values()
    assert first >= 36 * 0.001
    assert second >= 36 * 0.004
    assert first + second <= report.workers["steps on arrays"]
    assert "steps on arrays              ms per batch   share\n  step 0 (SlowInWorkers) " in str(report)


# --- exact numbers -----------------------------------------------------------------------------------------

S = 10**9
START: dict[str, int] = {"loop": 1, "num_batches": 5, "reading_ns": 7 * S, "idle_ns": 100 * S, "looked_at": 10 * S}
COUNTS = {"num_batches": 15, "num_samples": 40, "num_bytes": 3_000_000, "num_frames": 8, "num_decoded_frames": 12}
IN_LOOP_S = {"first": 2, "next": 6, "between": 4, "waited": 3, "input": 3.5, "run": 5, "conversion": 0.25}
ELSEWHERE_S = {
    "post_process": 0.125,
    "reading": 16,
    "steps": 4,
    "packing": 1,
    "cpu": 5,
    "process": 20,
    "idle": 160,
}
END: dict[str, int] = {"loop": 1, "step 0": 3 * S, "looked_at": 20 * S, **COUNTS}
END |= {f"{name}_ns": int(seconds * S) for name, seconds in (IN_LOOP_S | ELSEWHERE_S).items()}


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
    assert {name: getattr(report, name) for name in COUNTS} == COUNTS | {"num_batches": 10}
    assert (report.seconds, report.first_batch_s, report.samples_per_s) == (10, 2, 4)
    assert (report.most_workers, report.device_id, report.num_threads) == (8, None, 1)
    assert (report.mb_per_s, report.wait_share) == pytest.approx((0.3, 0.6))
    waits = {"waits for loading": 3, "handing over": 0.5, "waits for the graph": 1.5}
    assert report.loop == pytest.approx({"work": 4, **waits, "conversion": 0.25, "post_process_func": 0.125})
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


# Seconds of loading, and numbers of cores.
READING = {"reading": 1.96, "packing": 0.02, "idle": 0.02}
STEPS = {"reading": 0.2, "steps on arrays": 1.7, "idle": 0.1}
PACKING = {"reading": 0.2, "packing": 1.7, "idle": 0.1}
HERE = {"reading": 0.38}
HALF_IDLE = {"reading": 0.9, "idle": 1.1}
FOR_LOADING = {"waits for loading": 0.38, "conversion": 0.02}
FOR_GRAPH = {"waits for the graph": 0.4}
COMPUTES = {"loading": 1.9, "free": 5.3}
FULL = {"free": 0.2}
GRAPH = "the graph takes long. What may help: "
STEP_CURES = "cheaper or fewer steps, or smaller images early in the chain, or larger batches"
NO_CORE = "more cores (none of 8 is free)"
WAITS, READS = "reading (waiting)", "reading (computing)"
COPY, QUICKER = "a local copy of the data", "a quicker get_data"


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_module, "num_usable_gpus", lambda: 0)


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    ("workers", "changes", "most_of_it", "help_text"),
    [
        # 1.98 s of loading in the 0.62 s of all else: 4 workers.
        (READING, {}, WAITS, f"num_workers=4, or {COPY}"),
        # No more than the loader warns of, which is not said of actors.
        (READING, {"most_workers": 2}, WAITS, COPY),
        (READING, {"most_workers": 2, "are_actors": True}, WAITS, f"num_actors=4, or {COPY}"),
        # Each that computes takes a core; one that waits hardly needs any.
        (READING, {"cores": COMPUTES}, READS, f"num_workers=4, or {QUICKER}"),
        (READING, {"cores": COMPUTES | {"free": 1.3}}, READS, f"num_workers=3, or {QUICKER}"),
        (READING, {"cores": COMPUTES | FULL}, READS, f"{NO_CORE}, or {QUICKER}"),
        (READING, {"cores": COMPUTES | FULL, "are_actors": True, "num_workers": 4}, READS, QUICKER),
        (READING, {"cores": FULL}, WAITS, f"num_workers=4, or {COPY}"),
        (STEPS, {"cores": COMPUTES}, "steps on arrays (computing)", "num_workers=4, or cheaper steps"),
        (PACKING, {"most_workers": 2}, "packing (waiting)", "fewer or smaller fields"),
        (HERE, {"num_workers": 0}, READS, f"num_workers=1, or {QUICKER}"),
    ],
)
def test_advice_where_loading_takes_long(
    workers: dict[str, float], changes: dict[str, Any], most_of_it: str, help_text: str
) -> None:
    report = hand_made(FOR_LOADING, workers, **changes)
    who = "actors" if report.are_actors else "workers" if report.num_workers else "process of the loop"
    verdict = f"loading in the {who} takes long, most of it {most_of_it}. What may help: {help_text}."
    assert report.verdict == f"The loop waits 40 % of its time: {verdict}"


IDLE_WORKERS = "the workers, too, are idle 55 % of theirs: a few slow samples hold up the others"
IDLE_ACTORS = "the actors, too, are idle 55 % of theirs: batches are on their way"


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    ("waits", "workers", "changes", "verdict"),
    [
        (FOR_LOADING, HALF_IDLE, {}, f"{IDLE_WORKERS}. What may help: a larger prefetch_queue_depth"),
        (
            *(FOR_LOADING, HALF_IDLE, {"are_actors": True}),
            f"{IDLE_ACTORS}. What may help: a larger batches_ahead of RayWorkers",
        ),
        (FOR_GRAPH, None, {}, GRAPH + STEP_CURES),
        (FOR_GRAPH, None, {"num_threads": 2}, f"{GRAPH}num_threads=8, or {STEP_CURES}"),
        (FOR_GRAPH, None, {"num_threads": 2, "cores": FULL}, f"{GRAPH}{STEP_CURES}, or {NO_CORE}"),
        (FOR_GRAPH, HALF_IDLE, {}, f'{GRAPH}run="workers", or {STEP_CURES}'),
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
    for others in (hand_made(FOR_GRAPH, device_id=0), hand_made(FOR_LOADING, READING)):
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
    arguments: dict[str, Any] = {"most_workers": 64, "are_actors": are_actors, "cores": {"free": 60.0}}
    report = hand_made({"waits for loading": 1.0}, {"reading": 2.0}, **arguments)
    assert f" num_{'actors' if are_actors else 'workers'}=20, or " in report.verdict


@given(st.integers(1, 9), st.floats(0.01, 2), st.floats(0.01, 400), st.sampled_from([0, 2]))
def test_advice_never_asks_for_more_workers_than_the_loader_warns_of(
    usable: int, loading: float, loading_s: float, num_workers: int
) -> None:
    """Also where almost all time is waiting."""
    cores = {"usable": usable, "loading": loading, "free": float(usable)}
    workers = {"reading": loading_s} | ({"idle": 0.0} if num_workers else {})
    waits = {"waits for loading": 0.9999}
    report = hand_made(waits, workers, cores=cores, most_workers=usable, num_workers=num_workers)
    advised = re.search(r"num_workers=(\d+)", report.verdict)
    assert advised is None or num_workers < int(advised[1]) <= usable


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
