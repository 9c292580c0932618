"""Private names and texts of DALI that this package relies on: each is still there."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import pickle
import re
import resource
import signal
import warnings
from collections.abc import Callable, Iterator
from multiprocessing import current_process
from pathlib import Path
from typing import Any

import numpy as np
import nvidia.dali
import pytest
from nvidia.dali import backend, fn, pipeline_def, types
from nvidia.dali.pipeline import Pipeline
from nvidia.dali.reducers import DaliCallbackPickler

import accvlab.dali_pipeline_framework as package
from accvlab.dali_pipeline_framework.engine.dali import texts, worker_queues

ROOT = Path(package.__file__).parent
SOURCES = {str(path.relative_to(ROOT)): path.read_text() for path in sorted(ROOT.rglob("*.py"))}


def users_of(pattern: str) -> str:
    return ", ".join(name for name, source in SOURCES.items() if re.search(pattern, source))


def gone(what: str, pattern: str) -> str:
    return f"DALI {nvidia.dali.__version__}: {what}. These rely on it: {users_of(pattern)}"


# --- names -------------------------------------------------------------------------------------------------


class Numbers:
    """Two batches of numbers per epoch; the process ends at the sample with a number."""

    def __init__(self, ends_at: int = -1) -> None:
        self._ends_at = ends_at

    def __call__(self, info: types.SampleInfo) -> np.ndarray:
        if info.iteration >= 2:
            raise StopIteration
        if info.idx_in_epoch == self._ends_at:
            os._exit(3)
        return np.full(2, info.idx_in_epoch, np.int32)


def pipeline_with_worker(source: Any, start_method: str = "forkserver") -> Pipeline:
    pipeline = Pipeline(2, 1, None, seed=1, py_num_workers=1, py_start_method=start_method, prefetch_queue_depth=1)
    with pipeline:
        numbers = fn.external_source(source, parallel=True, batch=False, prefetch_queue_depth=1)
        noise = fn.random.uniform(range=[0.0, 1.0])
        kept = fn.python_function(noise, function=np.copy)
        pipeline.set_outputs(numbers, noise, kept)
    pipeline.nodes = (numbers, noise, kept)
    return pipeline


@pytest.fixture(scope="module")
def roots() -> Iterator[dict[str, Any]]:
    """What names are looked for in: a pipeline that has delivered its first batch, and its nodes."""
    pipeline = pipeline_with_worker(Numbers())
    pipeline.build()
    pipeline.run()
    numbers, noise, kept = pipeline.nodes
    in_parts = Pipeline(1, 1, None)
    with in_parts:
        in_parts.given, _ = fn.external_source(lambda: ([np.zeros(1)], [np.zeros(1)]), num_outputs=2)
    yield {
        "pipeline": pipeline,
        "numbers": numbers,
        "noise": noise,
        "kept": kept,
        "given": in_parts.given,
        "dali": nvidia.dali,
        "fn": fn,
    }
    pipeline._py_pool.close()


# Path of a name, and whether what stands there is what it was taken for.
NAMES: dict[str, Callable[[Any], bool]] = {
    "pipeline._built": lambda value: value is True,
    "pipeline._py_pool_started": lambda value: value is True,
    "pipeline._device_id": lambda value: value is None,
    "pipeline._api_type": lambda value: value == types.PipelineAPIType.BASIC,
    "pipeline._exec_async": lambda value: value is True,
    "pipeline._exec_dynamic": lambda value: value is True,
    "pipeline._exec_pipelined": lambda value: value is True,
    "pipeline._prefetch_queue_depth": lambda value: value == 1,
    "pipeline._cpu_queue_size": lambda value: value == 1,
    "pipeline._first_iter": lambda value: value is False,
    "pipeline._last_iter": lambda value: value is False,
    "pipeline._epoch_idx": lambda value: value == 0,
    "pipeline._consumer_iter": lambda value: value == 1,
    "pipeline._batches_to_consume": lambda value: value in (0, 1),
    "pipeline._shutdown": callable,
    "pipeline._iter_setup": callable,
    "pipeline._check_api_type": callable,
    "pipeline._check_api_type_scope": callable,
    "pipeline._skip_api_check": lambda value: value is False,
    "pipeline._py_pool.close": callable,
    "pipeline._pipe": lambda value: isinstance(value, backend.Pipeline),
    "pipeline._pipes": lambda value: any(isinstance(each(), Pipeline) for each in value),
    "pipeline._py_pool.pool._observer": lambda value: callable(value.close),
    "pipeline._py_pool.pool._processes": lambda value: (
        [type(each).__name__ for each in value] == ["ForkServerProcess"]
    ),
    "dali._multiproc.shared_queue.ShmQueue._read_meta": callable,
    "dali._multiproc.shared_queue.ShmQueue._write_meta": callable,
    "dali._multiproc.pool.Observer": callable,
    "dali._multiproc.pool.ShmQueue": callable,
    "numbers.source._op._device": lambda value: value == "cpu",
    "noise.source._op._device": lambda value: value == "cpu",
    "noise.source._op.schema_name": lambda value: value == "random__Uniform",
    "kept.source.inputs": lambda value: len(value) == 1,
    "noise.source._op._init_args": lambda value: value["range"] == [0.0, 1.0],
    "kept.source._op.schema_name": lambda value: value == "PythonFunction",
    "pipeline._sinks": lambda value: len(value) == 1,
    "noise.source.spec.AddArg": callable,
    "pipeline._definition_frame_start": lambda value: value == 0,
    "dali._utils.dali_trace.get_stack_depth": callable,
    "given.source._output_index": lambda value: value == 0,
    "given.source._group.append": callable,
    "given.source._group.instances": lambda value: len(value) == 2,
    "given.source._group.utilized_instances": lambda value: len(value) == 2,
    "pipeline._conditionals_enabled": lambda value: value is False,
    "pipeline._condition_stack": lambda value: value is None,
    "dali._conditionals._ConditionStack.preprocess_input": callable,
    "dali._conditionals._ConditionStack.register_data_nodes": callable,
    "dali._conditionals._ConditionStack.scope_batch_size_tracker": callable,
    "dali._conditionals._ConditionStack.stack_depth": callable,
    "dali._conditionals._autograph.convert": callable,
    "dali.pipeline._generate_graph": callable,
    "fn._conditional.split": callable,
    "fn._conditional.merge": callable,
}


@pytest.mark.wide
def test_names_are_there_and_mean_the_same(roots: dict[str, Any]) -> None:
    problems = []
    for path, means_the_same in NAMES.items():
        root, *parts = path.split(".")
        try:
            found = functools.reduce(getattr, parts, roots[root])
        except AttributeError as error:
            problems.append(gone(f"{path}: {error}", rf"\b{error.name}\b"))
        else:
            if not means_the_same(found):
                problems.append(gone(f"{path} is {found!r}, something else than before", rf"\b{parts[-1]}\b"))
    assert problems == []


def test_the_pickler_of_callbacks_sends_lambdas_by_value() -> None:
    file = io.BytesIO()
    DaliCallbackPickler(file).dump([1, lambda: 2])
    number, function = pickle.loads(file.getvalue())
    assert (number, function()) == (1, 2), gone("DaliCallbackPickler", "DaliCallbackPickler")


def test_operators_tell_whether_they_are_random() -> None:
    for schema, is_random in {"random__Uniform": True, "Reshape": False, "Jitter": True}.items():
        found = backend.TryGetSchema(schema)
        assert found is not None, gone(schema, "TryGetSchema")
        assert found.HasRandomSeedArg() == is_random, gone(schema, "HasRandomSeedArg")
    assert backend.TryGetSchema("") is None, gone("TryGetSchema", "TryGetSchema")


def test_the_first_entry_of_a_condition_stack_is_outside_of_all_branches() -> None:
    stack = nvidia.dali._conditionals._ConditionStack()
    assert (len(stack._stack), stack.stack_depth()) == (1, 1), gone("_stack", "_stack")
    assert callable(stack._stack[0].add_produced), gone("add_produced", "add_produced")


def test_a_process_that_is_no_worker_inherits_nothing() -> None:
    assert getattr(current_process(), "_inheriting", False) is False


@pytest.mark.parametrize("queue", ["_result_queue", "_general_task_queue"])
def test_a_worker_that_is_killed_while_it_locks_a_queue_blocks_nobody(
    queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_queues, "LOCKED_AT_MOST_S", 0.2)
    pipeline = pipeline_with_worker(Numbers())
    with worker_queues.unblockable_queues():
        pipeline.start_py_workers()
    pool = pipeline._py_pool.pool
    pipeline.build()
    pipeline.run()
    getattr(pool, queue).lock.lock.acquire()
    os.kill(pool.pids()[0], signal.SIGKILL)
    with pytest.raises(RuntimeError):
        pipeline.run()


# --- texts -------------------------------------------------------------------------------------------------


def said(act: Callable[[], Any]) -> str:
    """The text of the error that an action raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises((RuntimeError, ValueError, TypeError)) as caught:
            act()
    return str(caught.value)


def of_operator(define: Callable[[], Any], batch_size: int = 1) -> str:
    """What DALI says when a pipeline of one operator is built and run."""

    def act() -> None:
        pipeline = Pipeline(batch_size, 1, None, prefetch_queue_depth=1)
        with pipeline:
            outputs = define()
            pipeline.set_outputs(*(outputs if isinstance(outputs, list | tuple) else [outputs]))
        pipeline.run()

    return said(act)


class EndsItsWorker:
    """Ends the process that unpickles it."""

    def __reduce__(self) -> Any:
        return os._exit, (1,)

    def __call__(self, info: types.SampleInfo) -> np.ndarray:
        raise StopIteration


def said_at_start() -> str:
    return said(pipeline_with_worker(EndsItsWorker()).build)


def said_without_files() -> str:
    pipeline = pipeline_with_worker(Numbers(), "fork")
    least, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, most))
    try:
        return said(pipeline.start_py_workers)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (least, most))


def said_when_a_worker_dies() -> str:
    pipeline = pipeline_with_worker(Numbers(ends_at=0))
    pipeline.build()
    return said(pipeline.run)


def said_when_tasks_cannot_be_handed_over() -> str:
    pipeline = pipeline_with_worker(Numbers())
    pipeline.build()
    pipeline._py_pool.pool._general_task_queue.close()
    return said(pipeline.run)


def bytes_of(text: bytes) -> Any:
    return fn.external_source(lambda: [np.frombuffer(text, np.uint8)])


def a_named_rule() -> Any:
    def rule() -> Any:
        return fn.reshape(bytes_of(b"ab"), shape=[3])

    rule.__code__ = rule.__code__.replace(co_name=f"{texts.RULE_PREFIX}three bytes")
    return rule()


def reader_with_too_many_shards(folder: Path) -> Any:
    (folder / "a").mkdir(parents=True, exist_ok=True)
    (folder / "a" / "x.jpg").write_bytes(b"x")
    return fn.readers.file(file_root=str(folder), num_shards=3)


def sequence_reader(folder: Path, num_frames: int) -> Any:
    (folder / "a").mkdir(parents=True, exist_ok=True)
    for number in range(num_frames):
        (folder / "a" / f"{number}.png").write_bytes(b"x")
    return fn.readers.sequence(file_root=str(folder), sequence_length=3)


def warnings_of(act: Callable[[], Any]) -> str:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with contextlib.suppress(RuntimeError):
            act()
    return "\n".join(str(each.message) for each in caught)


def without_conditionals() -> str:
    @pipeline_def(batch_size=1, num_threads=1, device_id=None)
    def graph() -> Any:
        return fn.constant(idata=1) if fn.constant(idata=1) else fn.constant(idata=2)

    return said(graph)


class LongError(Exception):
    def __init__(self, first: str, second: str) -> None:
        super().__init__(first, second)


def a_failing_function() -> Any:
    return fn.python_function(bytes_of(b"ab"), function=np.linalg.inv)


def merged_of_different_dimensions() -> Any:
    numbers = fn.external_source(lambda: np.arange(2, dtype=np.int32))
    first, second = fn._conditional.split(numbers, predicate=numbers == 0)
    return fn._conditional.merge(first, fn.expand_dims(second, axes=0), predicate=numbers == 0)


def raised_with_conditionals() -> str:
    @pipeline_def(batch_size=1, num_threads=1, device_id=None, enable_conditionals=True)
    def graph() -> Any:
        raise LongError("a", "b")

    with pytest.raises(Exception) as caught:  # noqa: PT011 (which class it is, is the question)
        graph()
    assert isinstance(caught.value.__context__, LongError)
    return type(caught.value).__name__


TEXTS: dict[str, Callable[[Path], str]] = {
    "WORKERS_NOT_STARTED": lambda _: said_at_start(),
    "NO_SHARED_MEMORY": lambda _: said_without_files(),
    "WORKER_LOST": lambda _: said_when_a_worker_dies(),
    "WORKER_WAS_LOST": lambda _: said_when_tasks_cannot_be_handed_over(),
    "CAUSE": lambda _: of_operator(lambda: fn.reshape(bytes_of(b"ab"), shape=[3])),
    "CPP_CONTEXT": lambda _: of_operator(lambda: fn.reshape(bytes_of(b"ab"), shape=[3])),
    "PIPELINE_IS_INVALID": lambda _: of_operator(lambda: fn.reshape(bytes_of(b"ab"), shape=[3])),
    "CRITICAL_ERROR": lambda _: of_operator(lambda: fn.reshape(bytes_of(b"ab"), shape=[3])),
    "DEFINED_IN": lambda _: of_operator(a_named_rule),
    "PYTHON_ERROR": lambda _: of_operator(a_failing_function),
    "PYTHON_STACK": lambda _: of_operator(a_failing_function),
    "NO_KNOWN_IMAGE": lambda _: of_operator(lambda: fn.decoders.image(bytes_of(b"no image"))),
    "NO_DECODER_TOOK_IT": lambda _: of_operator(lambda: fn.decoders.image(bytes_of(b"P6\n64 64\n255\n cut"))),
    "SAMPLE_NUMBER": lambda _: of_operator(lambda: fn.decoders.image(bytes_of(b"P6\n64 64\n255\n cut"))),
    "NO_BYTES_OF_A_FILE": lambda _: of_operator(
        lambda: fn.peek_image_shape(fn.reshape(bytes_of(b"abcd"), shape=[2, 2]))
    ),
    "WRONG_LAYOUT": lambda _: of_operator(lambda: fn.resize(fn.reshape(bytes_of(b"ab"), layout="X"), size=[2, 2])),
    "FEWER_SAMPLES_THAN_SHARDS": lambda tmp: of_operator(lambda: reader_with_too_many_shards(tmp)),
    "NO_SAMPLES": lambda tmp: of_operator(lambda: sequence_reader(tmp, 1)),
    "NO_FILES": lambda tmp: of_operator(lambda: fn.readers.file(file_root=str(tmp))),
    "NO_FRAMES": lambda tmp: of_operator(lambda: sequence_reader(tmp, 0)),
    "MERGED_DIFFERENT_DIMENSIONS": lambda _: of_operator(merged_of_different_dimensions, batch_size=2),
    "NO_CONDITIONALS": lambda _: without_conditionals(),
    "REPLACED_EXCEPTION": lambda _: raised_with_conditionals(),
    "DEPRECATED_SEQUENCES": lambda tmp: warnings_of(lambda: of_operator(lambda: sequence_reader(tmp, 3))),
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_is_said(tmp_path: Path, name: str) -> None:
    text = getattr(texts, name)
    with warnings.catch_warnings(record=True):  # DALI shows that a reader is deprecated whatever the filters
        got = TEXTS[name](tmp_path)
    if text not in got:
        pytest.fail(gone(f"{name} = {text!r} is not said any more, but:\n{got}\n", rf"\b{name}\b"))


def test_a_report_names_its_operator() -> None:
    error = RuntimeError(of_operator(lambda: fn.decoders.image(bytes_of(b"no image"))))
    assert texts.is_about(error, "decoders.image")
    assert not texts.is_about(error, "readers.file")


@pytest.mark.wide
def test_texts_about_a_gpu_are_in_the_libraries() -> None:
    folder = Path(backend.__file__).parent
    libraries = [*folder.glob("*.so*"), *folder.parent.glob("nvimgcodec/**/lib*.so*")]
    said = b"".join(path.read_bytes() for path in libraries)
    named = (*texts.DEVICE_FAILURES, *texts.LOST_GPU[1:])
    named = [text for text in named if not text.startswith("CUDA_ERROR_")]  # as the driver says
    missing = [text for text in named if text.partition("#")[0].encode() not in said]
    assert missing == [], gone(f"{missing}", "DEVICE_FAILURES")


def test_each_text_is_probed() -> None:
    constants = {name for name in vars(texts) if name.isupper()} - {
        "RULE_PREFIX",
        "ASKS_FOR_DECODER",
        "DEVICE_FAILURES",
        "TORCH_DEVICE_FAILURES",
        "LOST_GPU",
        "LOST_GPU_NUMBERS",
        "NO_VIDEO_LIBRARY_FOUND",
    }
    assert constants == TEXTS.keys()
