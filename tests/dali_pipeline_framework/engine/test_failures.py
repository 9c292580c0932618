"""What a user sees when something is wrong: the message names rule, field, sample and cause; nothing hangs."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
from nvidia.dali.pipeline import Pipeline
from support import pipelines
from support.loaders import make_loader
from support.pipelines import indices, shuffled
from support.providers import (
    CustomError,
    FaultyProvider,
    IndexProvider,
    NumberProvider,
    SlowIndexProvider,
    UnpicklableProvider,
)
from support.refusals import assert_refused
from support.samplers import EpochSampler
from support.steps import ImageUser, WrongTypeStep

from accvlab.dali_pipeline_framework.engine.dali import texts
from accvlab.dali_pipeline_framework.errors import (
    FieldNotFoundError,
    FileError,
    SourceError,
    SourcePicklingError,
    WorkerDiedError,
    WorkerStartError,
)
from accvlab.dali_pipeline_framework.inputs import CallableBase, IterableBase, SamplerInputIterable
from accvlab.dali_pipeline_framework.pipeline import PipelineDefinition, SampleDataGroup
from accvlab.dali_pipeline_framework.processing_steps import UnneededFieldRemover
from accvlab.dali_pipeline_framework.providers.files.storage import Storage

FAULTS = {
    "none": (TypeError, r"FaultyProvider\.get_data\(6\) must return a filled SampleDataGroup, got None"),
    "no_group": (TypeError, r"a filled SampleDataGroup, got dict\. Start with `sample = self\.new_sample\(\)`"),
    "missing_field": (ValueError, r"which must declare all fields:\n  - cameras\[1\]\.boxes: missing"),
    "surplus_field": (ValueError, r"  - extra: not in the blueprint"),
    "declared_dtype": (ValueError, r"  - cameras\[0\]\.image: must be UINT8, got FLOAT"),
    "dtype": (ValueError, r"6 .*slot 2\):\n  - cameras\[0\]\.image: expected dtype uint8, got float32 \(shape"),
    "big_endian": (ValueError, r"  - index: expected dtype int64, got >i8"),
    "not_set": (ValueError, r"  - index: is not set"),
    "declared_rank": (
        ValueError,
        r"  - cameras\[1\]\.boxes: expected 2 dimension\(s\) as declared, got 1 \(shape",
    ),
    "unknown_field": (FieldNotFoundError, r"'imdex'\. Did you mean 'index'\?.* declared in `sample_data_struc"),
    "value_error": (ValueError, r"Loading sample 6 failed with ValueError: calibration is missing"),
    "file_not_found": (FileNotFoundError, r"Loading sample 6 failed with FileNotFoundError: .*exist\.jpg"),
    "custom_error": (CustomError, r"Loading sample 6 failed with CustomError: no luck"),
    "stop_iteration": (RuntimeError, r"FaultyProvider\.get_data\(6\) raised StopIteration"),
    "exit": (SourceError, r"Loading sample 6 failed with SystemExit: 3"),
    "cancelled": (SourceError, r"Loading sample 6 failed with CancelledError: shut down"),
    "panic": (SourceError, r"Loading sample 6 failed with Panic: index out of bounds"),
    "generator_exit": (SourceError, r"Loading sample 6 failed with GeneratorExit\n"),
}

# What fails in one worker must not depend on what the other one does.
make_iterator = functools.partial(pipelines.make_iterator, py_num_workers=2)


def iterable(provider: Any) -> SamplerInputIterable:
    return SamplerInputIterable(provider, EpochSampler(16, 4))


# How a provider of each fault is asked for samples: in this process or in workers, by a callable or an iterable.
HERE = {"definition": {"use_parallel_external_source": False}}
MODES: dict[str, tuple[Any, dict[str, Any], list[str]]] = {
    "here": (shuffled, HERE, [*FAULTS]),
    "fork": (shuffled, {}, [*FAULTS][::4]),
    "forkserver": (shuffled, {"py_start_method": "forkserver"}, ["custom_error"]),
    "iterable": (iterable, {}, ["none", "declared_rank"]),
    "iterable, here": (iterable, HERE, ["dtype", "panic"]),
}


def failure_of(source: Any, error: type[Exception] = SourceError, steps: Any = (), **arguments: Any) -> Any:
    """The error of the first batch."""
    with make_iterator(source, steps, **arguments) as iterator, pytest.raises(error) as caught:
        next(iter(iterator))
    return caught.value


@pytest.mark.parametrize(("mode", "fault"), [(mode, fault) for mode in MODES for fault in MODES[mode][2]])
def test_a_fault_of_the_provider_is_named(mode: str, fault: str) -> None:
    (error_class, message), (source, arguments, _) = FAULTS[fault], MODES[mode]
    with make_iterator(source(FaultyProvider(fault)), **arguments) as iterator:
        epoch = iter(iterator)
        assert next(epoch)["index"].tolist() == [0, 1, 2, 3]  # the good batch before it is not lost
        with pytest.raises(error_class, match=message) as caught:
            next(epoch)
        assert isinstance(caught.value, SourceError)
        assert caught.value.sample_index == 6
        with pytest.raises(error_class, match=message):  # and again, instead of wrong data
            next(epoch)
        with pytest.raises(error_class, match=message):
            iter(iterator)


@pytest.mark.parametrize(("num_workers", "policy"), [(0, "raise"), (0, "replace"), (2, "raise"), (2, "replace")])
def test_an_interrupt_is_ctrl_c_in_this_process_and_a_fault_in_a_worker(num_workers: int, policy: str) -> None:
    with make_loader(FaultyProvider("interrupt"), 4, num_workers=num_workers, faults=policy) as loader:
        received = contextlib.nullcontext()
        if num_workers == 0:
            received = pytest.raises(KeyboardInterrupt)
        elif policy == "raise":
            received = pytest.raises(SourceError, match="sample 6 failed with KeyboardInterrupt")
        with received as caught:
            list(loader)
        assert not hasattr(getattr(caught, "value", None), "__notes__")
        assert len(loader.failed_samples) == num_workers // 2


def test_the_traceback_shows_the_user_s_code() -> None:
    error = failure_of(shuffled(FaultyProvider("value_error", 0)), ValueError)
    assert error.original_type == "ValueError"
    assert 'raise ValueError("calibration is missing")' in error.worker_traceback
    assert "loading.py" not in str(error)
    assert "input_sources.py" not in str(error)
    assert "Traceback of the process that loads the data" in str(error)


class RefusingProvider(FaultyProvider):
    """A value that does not fit, set as people do."""

    def in_a_loop(self, sample):
        for number, camera in enumerate(sample["cameras"].values()):
            camera["image"] = np.full((4, 4), 254 + 2 * number)

    def by_path(self, sample):
        sample.set_item_in_path(("cameras", 1, "image"), 0.5)

    def at_the_top(self, sample):
        sample["index"] = "a"


@pytest.mark.parametrize(
    ("way", "begin"),
    [
        ("in_a_loop", r"image: values 256 .*\n  group: cameras\[1\]\n"),
        ("by_path", r"cameras\[1\]\.image: .*\n  where: "),
        ("at_the_top", r"index: .*\n  where: "),
    ],
)
def test_the_group_that_refuses_a_value_is_named(way: str, begin: str) -> None:
    error = failure_of(shuffled(RefusingProvider(way, 0)))
    assert re.match(rf"^Loading sample 0 failed with FieldValueError.*: {begin}", str(error))


@pytest.mark.parametrize(("bad_sample", "num_workers"), [(4, 1), (7, 2), (13, 4)])
def test_a_sample_of_another_rank_is_named(bad_sample: int, num_workers: int) -> None:
    provider = FaultyProvider("rank", bad_sample)
    words = f"Sample {bad_sample} does not fit...cameras[1].image: expected 2 dimension(s) as in sample...got 3"
    with make_iterator(shuffled(provider), py_num_workers=num_workers) as iterator:
        error: Any = assert_refused(lambda: indices(iterator), words, SourceError)
    assert error.sample_index == bad_sample


@pytest.mark.parametrize("num_workers", [1, 2])
def test_that_a_worker_was_killed_is_said(num_workers: int) -> None:
    message = (
        "A worker process of DALI has ended, so no more batches can be loaded. Frequent causes: memory ran out, a "
        "crash in native code that the data provider uses, a /dev/shm that is too small. A DataLoader names the "
        "sample and how the process has ended, and starts another worker (`FaultPolicy`)."
    )
    with make_iterator(shuffled(FaultyProvider("die")), py_num_workers=num_workers) as iterator:
        assert str(assert_refused(lambda: indices(iterator), "", WorkerDiedError)) == message
        assert_refused(lambda: iter(iterator), message, WorkerDiedError)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RuntimeError(texts.WORKERS_NOT_STARTED), "one has ended while it was set up. What it printed on stderr"),
        (RuntimeError(texts.NO_SHARED_MEMORY), f"{texts.NO_SHARED_MEMORY}. DALI keeps batches and semaphores in"),
        (OSError(24, "Too many open files"), "Too many open files. DALI keeps batches and semaphores in /dev/shm"),
    ],
)
def test_that_workers_could_not_be_started_is_said(
    error: Exception, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start_py_workers(pipeline: Pipeline) -> None:
        raise error

    monkeypatch.setattr(Pipeline, "start_py_workers", start_py_workers)
    assert_refused(lambda: make_iterator(shuffled(IndexProvider())), words, WorkerStartError)


# So slow that the other workers do not load all before a death is noticed.
SLOW = {
    "callable": shuffled(SlowIndexProvider(400)),
    "iterable": SamplerInputIterable(SlowIndexProvider(400), EpochSampler(400, 4)),
}


@pytest.mark.parametrize("kind", SLOW)
def test_that_a_worker_was_killed_while_it_waited_is_said(kind: str) -> None:
    with make_iterator(SLOW[kind]) as iterator:
        epoch = iter(iterator)
        next(epoch)
        time.sleep(0.1)  # until all that is loaded ahead is there
        os.kill(pipelines.worker_pids()[0], signal.SIGKILL)
        assert_refused(lambda: list(epoch), "has ended", WorkerDiedError)


class TwoFields(CallableBase):
    used_sample_data_structure = FaultyProvider("none").sample_data_structure
    length = None

    def __call__(self, sample_info):
        return (np.zeros(3, np.uint8), np.zeros((1, 4), np.float32))


class WrongBatch(IterableBase):
    used_sample_data_structure = IndexProvider().sample_data_structure
    length = None

    def __init__(self, batch):
        self.batch = batch

    def __iter__(self):
        return self

    def __next__(self):
        return self.batch


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (TwoFields(), "TwoFields returned 2 fields, but its blueprint has 5: cameras[0].image, ... index."),
        (WrongBatch(None), "one entry per field (1: index), each with the data of all samples, got NoneType"),
        (WrongBatch(([], [])), "one entry per field (1: index)...got 2 entries"),
        (WrongBatch(([np.int64(1).reshape(())] * 5,)), "1 to 4 samples per batch ... got [5]"),
        (WrongBatch(([],)), "1 to 4 samples per batch ... got [0]"),
        (WrongBatch((np.array(3),)), "1 to 4 samples per batch ... got ['no list']"),
        (WrongBatch(([np.zeros(2)],)), "slot 0):\n  - index: expected dtype int64, got float64"),
    ],
)
def test_wrong_batches_of_own_inputs_are_named(source: Any, words: str) -> None:
    with make_iterator(source, batch_size=4) as iterator:
        assert_refused(lambda: next(iter(iterator)), words, ValueError)


class TestSpawn:
    def test_an_input_that_cannot_be_pickled_is_refused_with_the_attribute(self) -> None:
        definition = PipelineDefinition(shuffled(UnpicklableProvider()))
        words = (
            "ShuffledShardedInputCallable._loader.provider.reader['cache'][0]` (_thread.lock)...\n"
            "Create it on first use or in `worker_init_fn`, in each worker, ... leave it out in `__getstate__`."
        )
        pipeline = definition.get_dali_pipeline(py_start_method="spawn")
        assert_refused(pipeline.build, words, SourcePicklingError)
        forked = definition.get_dali_pipeline(py_start_method="fork")
        forked.build()
        forked.close()

    @pytest.mark.wide
    def test_a_local_class_needs_another_pickler(self) -> None:
        class LocalProvider(IndexProvider):
            pass

        data_input = shuffled(LocalProvider())
        pipeline = PipelineDefinition(data_input).get_dali_pipeline(py_start_method="spawn")
        words = (
            "Define its class at the top level of a module...or pass cloudpickle as pickler (`py_callback_pickler"
        )
        assert_refused(pipeline.build, words, SourcePicklingError)
        how = {"py_start_method": "forkserver", "py_num_workers": 1, "py_callback_pickler": cloudpickle}
        with make_iterator(data_input, **how) as iterator:
            assert indices(iterator, 1) == [[0, 1, 2, 3]]

    @pytest.mark.parametrize("error", [ImportError("gone"), FileError("The table was replaced.")])
    def test_an_input_that_cannot_be_unpickled_in_the_worker_is_named(self, error: Exception) -> None:
        source = shuffled(UnloadableProvider(error))
        found = failure_of(source, py_start_method="forkserver", py_num_workers=1)
        message = str(found)
        assert isinstance(found, FileError) == isinstance(error, FileError)
        assert str(error) in message
        assert ("must be importable there" in message) == isinstance(error, ImportError)  # where it helps
        unpickled = "The input (ShuffledShardedInputCallable) could not be unpickled in the worker process: "
        assert (unpickled in message) == (not isinstance(error, FileError))


class UnloadableProvider(IndexProvider):
    """Can be pickled, but not unpickled."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def __reduce__(self):
        return _fail_to_load, (self._error,)


def _fail_to_load(error: Exception) -> None:
    raise error


def test_a_format_that_does_not_fit_is_refused_before_anything_is_loaded_or_started() -> None:
    definition = PipelineDefinition(shuffled(FaultyProvider("die", 0)), [ImageUser("nothing")])
    words = "No occurrences of images found"
    assert_refused(definition.check_and_get_output_data_structure, words, KeyError)


def test_a_type_that_differs_from_the_declared_one_is_named_unless_that_is_switched_off() -> None:
    source, steps = shuffled(IndexProvider()), [WrongTypeStep("index")]
    error = failure_of(source, RuntimeError, steps)
    # "Expected type" is what existing code looks for.
    words = "Expected type float32, but the actual data type is int32 (last set by step 0 (WrongTypeStep))"
    assert f"  - index: {words}" in str(error)
    with make_iterator(source, steps, definition={"check_data_format": False}) as iterator:
        assert next(iter(iterator))["index"].dtype == np.int32


def test_fields_that_nothing_uses_are_named_at_the_users_line() -> None:
    steps = [UnneededFieldRemover(["pair", "gain"]).with_run("graph")]
    pipeline = PipelineDefinition(shuffled(NumberProvider()), steps).get_dali_pipeline(py_num_workers=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pipeline.build()
    [warning] = [each for each in caught if "loaded" in str(each.message)]
    assert str(warning.message) == (
        "These fields are not used, though loaded for each sample: no step reads them, and they do not reach the "
        "output: pair, cameras[0].gain, cameras[1].gain. Leave fields out of the blueprint of the data provider "
        "(`sample_data_structure`), and draws out of what the step declares."
    )
    assert warning.filename == __file__
    assert [*map(len, pipeline.run())] == [4] * 4


needs_notes = pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 knows no notes of errors")


class MissingFileProvider(IndexProvider):
    """Reads a file that is missing, by a function of the package or on its own."""

    def __init__(self, root: Path, way: str) -> None:
        super().__init__(4)
        self.root, self.way = root, way

    def describe_sample(self, sample_index: int) -> str:
        return "front.jpg, rear.jpg, left.jpg"

    def get_data(self, sample_index: int) -> SampleDataGroup:
        if self.way == "package":
            Storage(self.root).read_bytes("rear.jpg")
        elif self.way == "note":
            try:
                (self.root / "rear.jpg").read_text()
            except OSError as error:
                error.add_note("the camera at the rear")
                raise
        elif self.way == "other":
            raise OSError("a disk is gone")
        (self.root / "rear.jpg").read_bytes()
        return super().get_data(sample_index)


@pytest.mark.parametrize(
    ("way", "num_workers"),
    [("package", 1), ("own", 0), ("own", 1), pytest.param("note", 1, marks=needs_notes), ("other", 1)],
)
def test_a_missing_file_is_named_once(tmp_path: Path, way: str, num_workers: int) -> None:
    with make_loader(MissingFileProvider(tmp_path, way), 2, num_workers=num_workers) as loader:
        error: Any = assert_refused(lambda: next(iter(loader)), "", SourceError)
    message = str(error)
    reason = {"package": "there is none.", "other": "a disk is gone"}.get(way, "No such file or directory")
    assert message.splitlines()[0].count(reason) == 1
    assert message.replace('raise OSError("a disk is gone")', "").count(reason) == 1
    assert message.count(str(tmp_path / "rear.jpg")) == (way != "other")
    assert ("front.jpg" in message) == (way == "other")  # the error does not name its file
    assert "in get_data" in message  # the user's code
    assert ("the camera at the rear" in message.splitlines()) == (way == "note")
    assert reason in error.worker_traceback
