"""Signal handlers that raise at any moment of `next`: no batch is lost by that, and none comes twice."""

from __future__ import annotations

import contextlib
import functools
import gc
import math
import random
import signal
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import cv2
import numpy as np
import pytest
from nvidia.dali import Pipeline, types
from nvidia.dali import pipeline as dali_pipeline
from support.arrays import ArrayProvider, encoded_image, photograph
from support.inputs import NumberIterable
from support.laws import some, spread
from support.loaders import by_sampler, make_loader
from support.pipelines import indices, shuffled
from support.providers import IndexProvider

from accvlab.dali_pipeline_framework import TorchDatasetProvider, UniformDraw
from accvlab.dali_pipeline_framework.draws.draw_scope import step_context
from accvlab.dali_pipeline_framework.draws.keyed_draws import of_thread
from accvlab.dali_pipeline_framework.errors import ClosedError, SourceError, WorkerDiedError
from accvlab.dali_pipeline_framework.ledgers import certify
from accvlab.dali_pipeline_framework.loader import DataLoader
from accvlab.dali_pipeline_framework.pipeline import DALIStructuredOutputIterator, PipelineDefinition
from accvlab.dali_pipeline_framework.processing_steps import (
    ArrayStep,
    DataGroupInPathAppliedStep,
    ImageDecoder,
    ImageMeanStdDevNormalizer,
)
from accvlab.dali_pipeline_framework.sample_data import SampleDataGroup
from accvlab.dali_pipeline_framework.sample_data.graph_mode import graph_context
from accvlab.dali_pipeline_framework.sampling import ShuffledSampler

# What a handler raises in functions that Python calls itself, e.g. those that modules have registered for forks,
# is lost by Python.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
SAMPLES, BATCH = 160, 4


class RungError(Exception):
    """Raised by a handler."""


@pytest.fixture(autouse=True)
def _python_handles_interrupts() -> Iterator[None]:
    """A process that a shell has started in the background ignores them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def _nothing_is_called_by_the_garbage_collector() -> Iterator[None]:
    """What a signal raises within a call of its own, as those of Hypothesis, is lost."""
    before = gc.callbacks[:]
    gc.callbacks.clear()
    yield
    gc.callbacks[:] = before


@pytest.fixture
def alarm() -> Iterator[Callable[[float], None]]:
    """Sets a timer, whose signal raises; once it is set to 0, nothing does: no signal that is late, either."""
    is_set = True

    def ring(number: int, frame: object) -> None:
        if is_set:
            raise RungError

    def set_timer(seconds: float) -> None:
        nonlocal is_set
        is_set = seconds > 0
        signal.setitimer(signal.ITIMER_REAL, seconds)

    before = signal.signal(signal.SIGALRM, ring)
    yield set_timer
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def received(
    loop: Iterator[Any],
    alarm: Callable[[float], None],
    seed: int,
    seen: Callable[[int], None] = lambda num: None,
    batches: list[Any] | None = None,
) -> tuple[list[Any], int]:
    """Take all batches, with a timer running at most calls; returns them, and how many calls were interrupted."""
    moments, num_raised = random.Random(seed), 0
    batches = [] if batches is None else batches
    while True:
        batch = None
        try:
            try:
                alarm(math.exp(moments.uniform(math.log(1e-5), math.log(0.05))))
                for batch in loop:  # noqa: B007  # which stores it before anything can be raised
                    break
                else:
                    return batches, num_raised
            finally:
                with contextlib.suppress(RungError):
                    alarm(0)
                alarm(0)
        except RungError:
            num_raised += 1
        if batch is not None:
            batches.append(batch)
        seen(len(batches))


MANY = [(seed % 4, method, seed) for seed in range(3, 15) for method in ("fork", "forkserver")]


@some(("num_workers", "start_method", "seed"), [(0, "fork", 1), (1, "fork", 2), *MANY, (2, "spawn", 3)], {0, 1})
def test_the_stream_is_that_of_an_undisturbed_run(
    num_workers: int, start_method: str, seed: int, alarm: Callable[[float], None], tmp_path: Path
) -> None:
    sampler = ShuffledSampler(SAMPLES, BATCH, seed=3)
    expected = [sampler.get_batch_indices(0, batch).tolist() for batch in range(SAMPLES // BATCH)]
    arguments: dict[str, Any] = {"num_workers": num_workers, "start_method": start_method, "ledger": tmp_path}
    source = by_sampler(ShuffledSampler(SAMPLES, seed=3), IndexProvider(SAMPLES))
    with make_loader(source, BATCH, **arguments) as loader:
        loader.start()

        def agrees(num_received: int) -> None:
            state = loader.state_dict()
            assert state["epoch"] * len(expected) + state["batch"] == num_received

        batches, num_raised = received(iter(loader), alarm, seed, agrees)
        assert indices(batches) == expected
        assert num_raised > 10
        assert loader.epoch == 1
        sampled = [sampler.get_batch_indices(1, batch).tolist() for batch in range(2)]
        assert indices(loader, 2) == sampled
    assert certify([tmp_path], epochs=[0]).is_exact  # batches that were made again count once


@spread("seed", [5, 6, 7, 8], 1)
def test_batches_of_an_input_that_cannot_go_back_come_once(seed: int, alarm: Callable[[float], None]) -> None:
    """Where a batch is lost in the middle of a message, there is an error, and nothing comes behind it."""
    batches: list[Any] = []
    with make_loader(NumberIterable(SAMPLES), BATCH, num_workers=1) as loader:
        loop, is_whole = iter(loader), False
        with contextlib.suppress(WorkerDiedError):
            received(loop, alarm, seed, batches=batches)
            is_whole = True
        if not is_whole:
            with pytest.raises(WorkerDiedError, match="in the middle of a message"):
                next(loop)
    numbers = np.concatenate([np.zeros(0, int), *(batch["index"] for batch in batches)]).tolist()
    assert numbers == [*range(SAMPLES if is_whole else len(numbers))]


class RingingIterable(NumberIterable):
    def __next__(self) -> Any:
        batch = super().__next__()
        if batch[0][0] == 4:
            signal.raise_signal(signal.SIGALRM)
        return batch


class Ringing(IndexProvider):
    """A signal comes when sample 5 is first loaded, which is bad."""

    has_rung = False

    def get_data(self, sample_index: int) -> Any:
        if sample_index == 5:
            if not self.has_rung:
                self.has_rung = True
                signal.raise_signal(signal.SIGALRM)
            raise ValueError("not this one")
        return super().get_data(sample_index)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (RingingIterable(16), "RingingIterable was interrupted by a signal handler in the middle"),
        (shuffled(Ringing(16)), "not this one"),
    ],
)
def test_neither_a_batch_that_cannot_be_made_again_nor_an_error_is_lost_in_silence(
    source: Any, message: str, alarm: Callable[[float], None]
) -> None:
    size = BATCH if isinstance(source, NumberIterable) else None
    with make_loader(source, size, pipeline_arguments={"prefetch_queue_depth": 1}) as loader:
        loop = iter(loader)
        assert next(loop)["index"].tolist() == [0, 1, 2, 3]
        with pytest.raises(RungError):
            next(loop)
        with pytest.raises(SourceError, match=message):
            next(loop)
        assert indices(loop) == [[8, 9, 10, 11], [12, 13, 14, 15]]


def test_an_iterator_without_a_loader_delivers_nothing_after_it(alarm: Callable[[float], None]) -> None:
    definition = PipelineDefinition(shuffled(Ringing(16)), use_parallel_external_source=False)
    with DALIStructuredOutputIterator(None, definition.get_dali_pipeline(), output_type="numpy") as iterator:
        loop = iter(iterator)
        with pytest.raises(RungError):
            list(loop)
        for _ in range(2):
            with pytest.raises(ClosedError, match="The pipeline was interrupted while it waited for a batch"):
                next(loop)


class Drawing:
    """Items with numbers of the global generators."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> dict[str, Any]:
        numbers = np.full((1, 3), random.random() + np.random.rand(), np.float32)
        return {"numbers": numbers, "group": {"numbers": numbers}}


class Jitter(ArrayStep):
    draws = (UniformDraw("by", 0, 1),)

    def arrays(self, data: SampleDataGroup, draws: Mapping[str, Any]) -> SampleDataGroup:
        data["numbers"] = cv2.add(data["numbers"], float(draws["by"]))
        return data


def calls_of(
    act: Callable[[], object], alarm_at: int | None = None, only: Container[str] | None = None
) -> list[str]:
    """Names of the functions that something calls, up to a number; when that one begins, a signal comes."""
    names: list[str] = []

    def note(frame: FrameType, event: str, arg: object) -> None:
        name = frame.f_code.co_name
        if "<frozen" not in frame.f_code.co_filename and (only is None or name in only):
            names.append(name)
            if len(names) == alarm_at:
                sys.settrace(None)
                signal.raise_signal(signal.SIGALRM)

    sys.settrace(note)
    try:
        act()
    except RungError:
        assert len(names) == alarm_at
    finally:
        sys.settrace(None)
    return names


def test_whatever_call_a_handler_interrupts_nothing_of_it_stays(
    alarm: Callable[[float], None], request: pytest.FixtureRequest
) -> None:
    """No seeded generators, no step that is being applied, no OpenCV in one thread; the batches are the same."""

    def state() -> tuple[object, ...]:
        _, keys, *rest = np.random.get_state()
        contexts = step_context.get(), graph_context.get(), of_thread.loading
        return random.getstate(), keys.tolist(), rest, *contexts, cv2.getNumThreads()

    def numbers(batches: Iterable[Any]) -> list[list[float]]:
        return [[*batch["numbers"].tolist(), *batch["group"]["numbers"].tolist()] for batch in batches]

    def loader() -> DataLoader:
        steps = [Jitter(), DataGroupInPathAppliedStep(Jitter(), "group"), Jitter()]
        return make_loader(shuffled(TorchDatasetProvider(Drawing()), 2), steps=steps, seed=7)

    request.addfinalizer(functools.partial(cv2.setNumThreads, cv2.getNumThreads()))
    cv2.setNumThreads(3)
    with loader() as undisturbed:
        expected = numbers(undisturbed) + numbers(undisturbed)
    ends = {"__exit__", "restore", "setstate", "end_step"}
    for only, each in ((None, 150), (ends, 1)):
        with loader() as observed:
            observed_loop = iter(observed)
            names = calls_of(lambda: next(observed_loop), only=only)  # noqa: B023
        assert only is None or ends == {*names}
        for moment in range(0, len(names), each):
            before, batches = state(), []
            with loader() as disturbed:
                loop = iter(disturbed)
                name = calls_of(lambda: batches.append(next(loop)), moment + 1, only)[-1]  # noqa: B023
                assert state() == before, (moment, name)
                batches += [*loop]
                assert numbers(batches) + numbers(disturbed) == expected, (moment, name)
            assert state() == before, (moment, name)


def test_a_graph_whose_definition_is_interrupted_leaves_no_context(alarm: Callable[[float], None]) -> None:
    provider = ArrayProvider({"image": (types.DALIDataType.UINT8, [encoded_image(photograph(16, 8))] * 4)})

    def define() -> object:
        steps = [ImageDecoder("image", False), ImageMeanStdDevNormalizer("image", 1.0, 2.0)]
        return PipelineDefinition(shuffled(provider, 2), steps, run="graph").get_dali_pipeline()

    def state() -> tuple[object, ...]:
        stack = [*getattr(dali_pipeline.pipeline_tls, "pipeline_stack", ())]
        return id(graph_context.get()), step_context.get(), Pipeline.current(), stack

    before = state()
    ends = {"push_current", "extract_stack", "pop_current", "__exit__"}  # the second one is called by the first
    names = calls_of(define, only=ends)
    assert ends == {*names}
    for moment in range(len(names)):
        calls_of(define, moment + 1, ends)
        assert state() == before, moment
