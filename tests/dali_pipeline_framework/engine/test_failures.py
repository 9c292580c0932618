"""What a user sees when something is wrong: the message names rule, field, sample and cause; nothing hangs."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
import signal
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import pipelines
from support.child_processes import run_python
from support.laws import each_value, spread
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
from support.start_methods import FORKED, START_METHODS
from support.steps import ImageUser, WrongTypeStep
from support.windows import frame_clips

from accvlab.dali_pipeline_framework import DataLoader
from accvlab.dali_pipeline_framework.errors import (
    FieldNotFoundError,
    FileError,
    SourceError,
    SourcePicklingError,
    WorkerDiedError,
)
from accvlab.dali_pipeline_framework.inputs import (
    CallableBase,
    IterableBase,
    SamplerInputCallable,
    SamplerInputIterable,
    SequenceSampler,
)
from accvlab.dali_pipeline_framework.pipeline import PipelineDefinition, SampleDataGroup
from accvlab.dali_pipeline_framework.processing_steps import UnneededFieldRemover
from accvlab.dali_pipeline_framework.providers import FrameDataProvider, FrameFolders
from accvlab.dali_pipeline_framework.providers.files.storage import Storage

ADVICE = (
    "or pass cloudpickle as pickler (`py_callback_pickler=cloudpickle` to get_dali_pipeline, "
    '`pipeline_arguments={"py_callback_pickler": cloudpickle}` to DataLoader).'
)

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
    "unknown_field": (
        FieldNotFoundError,
        r"'imdex'\. Did you mean 'index'\?.* declared in `sample_data_structure`",
    ),
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


ONE_OR_TWO_WORKERS = [
    *[("fork", 1), ("fork", 2)],
    *[pytest.param(method, 2, marks=pytest.mark.wide) for method in ("forkserver", "spawn")],
]
QUICK = {"here": [*FAULTS], "fork": [*FAULTS][::4], "forkserver": ["custom_error"], "spawn": []}


def failure_of(source: Any, error: type[Exception] = SourceError, steps: Any = (), **arguments: Any) -> Any:
    """The error of the first batch."""
    with make_iterator(source, steps, **arguments) as iterator, pytest.raises(error) as caught:
        next(iter(iterator))
    return caught.value


@pytest.mark.parametrize(
    ("mode", "fault"),
    [
        pytest.param(mode, fault, marks=() if fault in quick else pytest.mark.wide)
        for mode, quick in QUICK.items()
        for fault in FAULTS
    ],
)
def test_a_fault_of_the_provider_is_named(fault: str, mode: str) -> None:
    error_class, message = FAULTS[fault]
    arguments = (
        {"definition": {"use_parallel_external_source": False}} if mode == "here" else {"py_start_method": mode}
    )
    with make_iterator(shuffled(FaultyProvider(fault)), **arguments) as iterator:
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


@pytest.mark.parametrize("mode", ["fork", "here"])
@pytest.mark.parametrize("fault", ["none", "dtype", "declared_rank", "rank", "file_not_found", "panic"])
def test_a_fault_of_the_provider_is_named_with_an_iterable(fault: str, mode: str) -> None:
    data_input = SamplerInputIterable(FaultyProvider(fault), EpochSampler(16, 4))
    with make_iterator(data_input, definition={"use_parallel_external_source": mode == "fork"}) as iterator:
        epoch = iter(iterator)
        next(epoch)
        with pytest.raises(SourceError, match="ample 6 ") as caught:
            next(epoch)
        assert caught.value.sample_index == 6


@pytest.mark.parametrize("policy", ["raise", "replace"])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_interrupt_is_ctrl_c_in_this_process_and_a_fault_in_a_worker(num_workers: int, policy: str) -> None:
    arguments = {"num_workers": num_workers, "start_method": "fork", "output_type": "numpy", "faults": policy}
    with DataLoader(FaultyProvider("interrupt"), 4, **arguments) as loader:
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
        return sample

    def in_a_function(self, sample):
        set_image(sample["cameras"])
        return sample

    def by_path(self, sample):
        sample.set_item_in_path(("cameras", 1, "image"), 0.5)
        return sample

    def at_the_top(self, sample):
        sample["index"] = "a"
        return sample


def set_image(cameras: SampleDataGroup) -> None:
    cameras[1]["image"] = -1


@pytest.mark.parametrize(
    ("way", "begin"),
    [
        ("in_a_loop", r"image: values 256 .*\n  group: cameras\[1\]\n"),
        ("in_a_function", r"image: values -1 .*\n  group: cameras\[1\]\n"),
        ("by_path", r"cameras\[1\]\.image: .*\n  where: "),
        ("at_the_top", r"index: .*\n  where: "),
    ],
)
def test_the_group_that_refuses_a_value_is_named(way: str, begin: str) -> None:
    error = failure_of(shuffled(RefusingProvider(way, 0)), py_start_method="fork")
    assert re.match(rf"^Loading sample 0 failed with FieldValueError.*: {begin}", str(error))


@each_value(bad_sample=[4, 5, 6, 7, 13], num_workers=[1, 2, 4])
def test_a_sample_of_another_rank_is_named(bad_sample: int, num_workers: int) -> None:
    provider = FaultyProvider("rank", bad_sample)
    with make_iterator(shuffled(provider), py_num_workers=num_workers) as iterator:
        with pytest.raises(SourceError) as caught:
            indices(iterator)
        assert caught.value.sample_index == bad_sample
        message = str(caught.value)
        assert f"Sample {bad_sample} does not fit" in message
        assert "cameras[1].image: expected 2 dimension(s) as in sample" in message
        assert "got 3" in message


@pytest.mark.parametrize(
    ("method", "num_workers"),
    ONE_OR_TWO_WORKERS,
)
def test_that_a_worker_was_killed_is_said(method: str, num_workers: int) -> None:
    source = shuffled(FaultyProvider("die"))
    message = (
        "A worker process of DALI has ended, so no more batches can be loaded. Frequent causes: memory ran out, a "
        "crash in native code that the data provider uses, a /dev/shm that is too small. A DataLoader names the "
        "sample and how the process has ended, and starts another worker (`FaultPolicy`)."
    )
    with make_iterator(source, py_start_method=method, py_num_workers=num_workers) as iterator:
        with pytest.raises(WorkerDiedError) as caught:
            indices(iterator)
        assert str(caught.value) == message
        with pytest.raises(WorkerDiedError):
            iter(iterator)


@pytest.mark.parametrize("kind", ["callable", "iterable"])
@pytest.mark.parametrize(
    ("method", "num_workers"),
    ONE_OR_TWO_WORKERS,
)
def test_that_a_worker_was_killed_while_it_waited_is_said(method: str, num_workers: int, kind: str) -> None:
    source = (
        shuffled(SlowIndexProvider(400))  # else the other workers may load all before the death is noticed
        if kind == "callable"
        else SamplerInputIterable(SlowIndexProvider(400), EpochSampler(400, 4))
    )
    arguments = {"py_start_method": method, "py_num_workers": 1 if kind == "iterable" else num_workers}
    with make_iterator(source, **arguments) as iterator:
        epoch = iter(iterator)
        next(epoch)
        time.sleep(0.1)  # until all that is loaded ahead is there
        os.kill(pipelines.worker_pids()[0], signal.SIGKILL)
        with pytest.raises(WorkerDiedError):
            list(epoch)


@pytest.mark.wide
@each_value(method=START_METHODS, num_workers=[1, 2, 4], after_s=[0.0, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2])
def test_workers_that_are_killed_at_any_time(method: str, num_workers: int, after_s: float) -> None:
    with make_iterator(
        shuffled(IndexProvider(4000)), py_start_method=method, py_num_workers=num_workers
    ) as iterator:
        epoch = iter(iterator)
        received = indices([next(epoch)])
        pid = pipelines.worker_pids()[-1]
        timer = threading.Timer(after_s, os.kill, (pid, signal.SIGKILL))
        timer.start()
        with contextlib.suppress(
            WorkerDiedError
        ):  # where the other workers have not loaded all before that is seen
            received += indices(epoch)
            assert num_workers > 1
            assert sorted(np.concatenate(received)) == [*range(4000)]
        timer.join()


class TestOwnInputs:
    class WrongNumberOfFields(CallableBase):
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

    def test_a_wrong_number_of_fields_is_named(self) -> None:
        words = (
            "WrongNumberOfFields returned 2 fields, but its blueprint has 5: cameras[0].image, cameras[0].boxes, "
            "... index."
        )
        with make_iterator(self.WrongNumberOfFields(), batch_size=2) as iterator:
            assert_refused(lambda: next(iter(iterator)), words, ValueError)

    @pytest.mark.parametrize(
        ("batch", "message"),
        [
            (None, r"one entry per field \(1: index\), each with the data of all samples, got NoneType"),
            (([], []), r"one entry per field \(1: index\).*got 2 entries"),
            (([np.int64(1).reshape(())] * 5,), r"1 to 4 samples per batch .* got \[5\]"),
            (([],), r"1 to 4 samples per batch .* got \[0\]"),
            ((3,), r"1 to 4 samples per batch .* got \['no list'\]"),
            ((np.array(3),), r"1 to 4 samples per batch .* got \['no list'\]"),
            (([np.zeros(2)],), r"slot 0\):\n  - index: expected dtype int64, got float64"),
            (([3],), r"index: expected an array, got int"),
        ],
    )
    def test_a_wrong_batch_is_named(self, batch: object, message: str) -> None:
        assert re.search(message, str(failure_of(self.WrongBatch(batch), ValueError, batch_size=4)))

    def test_a_smaller_batch_is_delivered(self) -> None:
        with make_iterator(self.WrongBatch(([np.array(7)],)), batch_size=4) as iterator:
            assert next(iter(iterator))["index"].tolist() == [7]


class TestSpawn:
    def test_an_input_that_cannot_be_pickled_is_refused_with_the_attribute(self) -> None:
        pipeline = PipelineDefinition(shuffled(UnpicklableProvider())).get_dali_pipeline(py_start_method="spawn")
        words = (
            "ShuffledShardedInputCallable._loader.provider.reader['cache'][0]` (_thread.lock)...\n"
            "Create it on first use or in `worker_init_fn`, in each worker, ... leave it out in `__getstate__`."
        )
        assert_refused(pipeline.build, words, SourcePicklingError)

    def test_it_works_with_fork(self) -> None:
        with make_iterator(shuffled(UnpicklableProvider()), py_start_method="fork") as iterator:
            assert indices(iterator, 1) == [[0, 1, 2, 3]]

    @pytest.mark.wide
    def test_a_local_class_needs_another_pickler(self) -> None:
        import cloudpickle

        class LocalProvider(IndexProvider):
            pass

        data_input = shuffled(LocalProvider())
        pipeline = PipelineDefinition(data_input).get_dali_pipeline(py_start_method="spawn")
        words = f"Define its class at the top level of a module...{ADVICE}"
        assert_refused(pipeline.build, words, SourcePicklingError)
        how = {"py_start_method": "forkserver", "py_num_workers": 1, "py_callback_pickler": cloudpickle}
        with make_iterator(data_input, **how) as iterator:
            assert indices(iterator, 1) == [[0, 1, 2, 3]]

    @spread("error", [ImportError("gone"), KeyError("table"), FileError("The table was replaced.")], 2)
    def test_an_input_that_cannot_be_unpickled_in_the_worker_is_named(self, error: Exception) -> None:
        source = shuffled(UnloadableProvider(error))
        found = failure_of(source, py_start_method="forkserver", py_num_workers=1)
        message = str(found)
        assert isinstance(found, FileError) == isinstance(error, FileError)
        assert str(error) in message
        assert ("must be importable there" in message) == isinstance(error, ImportError)  # where it helps
        unpickled = "The input (ShuffledShardedInputCallable) could not be unpickled in the worker process: "
        assert (unpickled in message) == (not isinstance(error, FileError))

    @pytest.mark.wide
    def test_a_missing_main_guard_is_named(self, tmp_path: Path) -> None:
        script = tmp_path / "no_guard.py"
        script.write_text(
            "from support.pipelines import make_iterator, shuffled\n"
            "from support.providers import IndexProvider\n"
            'for batch in make_iterator(shuffled(IndexProvider()), py_start_method="spawn"):\n    print(batch)\n'
        )
        result = run_python(script)
        assert result.returncode == 1
        of_worker, of_program = result.stderr.split("WorkerStartError: ")[1:]
        assert "The main script starts worker processes when it is imported" in of_worker
        assert 'if __name__ == "__main__":' in of_worker
        assert "one has ended while it was set up" in of_program
        assert "{" not in result.stdout


class UnloadableProvider(IndexProvider):
    """Can be pickled, but not unpickled."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self._error = error

    def __reduce__(self):
        return _fail_to_load, (self._error,)


def _fail_to_load(error: Exception) -> None:
    raise error


class TestSettings:
    def test_batch_sizes_that_differ_are_refused(self) -> None:
        definition = PipelineDefinition(SamplerInputCallable(IndexProvider(), SequenceSampler(4, [4, 4, 4, 4], 0)))
        words = "SamplerInputCallable is set up for 4 samples per batch ... batch_size=8"
        assert_refused(lambda: definition.get_dali_pipeline(batch_size=8), words)
        assert definition.get_dali_pipeline().max_batch_size == 4

    def test_the_batch_size_must_come_from_somewhere(self) -> None:
        definition = PipelineDefinition(TestOwnInputs.WrongNumberOfFields())
        assert_refused(definition.get_dali_pipeline, "`batch_size` must be given")


class TestFormats:
    def test_nothing_is_loaded_or_started_for_it(self) -> None:
        definition = PipelineDefinition(shuffled(FaultyProvider("die", 0)), [ImageUser("nothing")])
        with pytest.raises(KeyError, match="No occurrences of images found"):
            definition.check_and_get_output_data_structure()

    @pytest.mark.parametrize("mode", ["fork", "here"])
    def test_a_type_that_differs_from_the_declared_one_is_named(self, mode: str) -> None:
        definition = {"use_parallel_external_source": mode == "fork"}
        error = failure_of(
            shuffled(IndexProvider()), RuntimeError, [WrongTypeStep("index")], definition=definition
        )
        # "Expected type" is what existing code looks for.
        words = "Expected type float32, but the actual data type is int32 (last set by step 0 (WrongTypeStep))"
        assert f"  - index: {words}" in str(error)

    def test_the_check_of_types_can_be_switched_off(self) -> None:
        how = {"definition": {"check_data_format": False}}
        with make_iterator(shuffled(IndexProvider()), [WrongTypeStep("index")], **how) as iterator:
            assert next(iter(iterator))["index"].dtype == np.int32


@pytest.mark.parametrize("method", FORKED)
def test_nothing_is_left_of_a_failed_start(method: str) -> None:
    failure_of(shuffled(FaultyProvider("none", 0)), py_start_method=method)


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


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize("way", ["package", "own", pytest.param("note", marks=needs_notes), "other"])
def test_a_missing_file_is_named_once(tmp_path: Path, way: str, num_workers: int) -> None:
    provider = MissingFileProvider(tmp_path, way)
    with (
        DataLoader(provider, 2, num_workers=num_workers, start_method="fork") as loader,
        pytest.raises(SourceError) as caught,
    ):
        next(iter(loader))
    message = str(caught.value)
    reason = {"package": "there is none.", "other": "a disk is gone"}.get(way, "No such file or directory")
    assert message.splitlines()[0].count(reason) == 1
    assert message.replace('raise OSError("a disk is gone")', "").count(reason) == 1
    assert message.count(str(tmp_path / "rear.jpg")) == (way != "other")
    assert ("front.jpg" in message) == (way == "other")  # the error does not name its file
    assert "in get_data" in message  # the user's code
    assert ("the camera at the rear" in message.splitlines()) == (way == "note")
    assert reason in caught.value.worker_traceback


@pytest.mark.parametrize("num_workers", [0, 1])
def test_of_a_rig_only_the_missing_image_is_named(tmp_path: Path, num_workers: int) -> None:
    for camera, name in itertools.product(("front", "rear"), ("0.jpg", "1.jpg")):
        (tmp_path / "a" / camera).mkdir(parents=True, exist_ok=True)
        (tmp_path / "a" / camera / name).write_bytes(b"\xff\xd8\xff")
    folders = FrameFolders(tmp_path, cameras={"front": "front", "rear": "rear"})
    for provider in (FrameDataProvider(folders), frame_clips(folders, 2)):
        (tmp_path / "a" / "rear" / "1.jpg").unlink(missing_ok=True)
        with (
            DataLoader(provider, 1, num_workers=num_workers, start_method="fork") as loader,
            pytest.raises(FileError) as caught,
        ):
            list(loader)
        message = str(caught.value)
        assert message.count("1.jpg") == message.count("rear") == message.count("there is none") == 1
        assert "front" not in message
        assert "Traceback" not in message  # no code of the user led to it
        assert "1.jpg" in caught.value.worker_traceback
        (tmp_path / "a" / "rear" / "1.jpg").write_bytes(b"\xff\xd8\xff")
