# SPDX-License-Identifier: Apache-2.0
"""Tries every sample of a data set in several processes: loads it, checks it, decodes its images.

::

    this process        chunks of indices ─>   process 0   get_data, checks, steps on arrays, decoding
      progress, file  <─ what has failed       process 1   ...
                                               (one that dies names its sample, and is started again)
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import connection
from typing import Any

import attrs
import numpy as np

from ..checks import whole_number
from ..draws.sample_place import SamplePlace
from ..engine.faults.tolerant_loading import description_of, image_fields
from ..engine.samples.sample_checker import SampleChecker
from ..engine.samples.sample_steps import of_step
from ..engine.worker_process import use_one_thread_of_opencv
from ..errors import SettingError, TooManyFailedError
from ..faults.failed_samples import FailedSample, summary_of
from ..faults.quarantine import Quarantine
from ..loader.data_loader import DataLoader
from ..pipeline.chains.array_steps import ArraySteps
from ..pipeline.pipeline import PipelineDefinition
from ..providers.data_provider import DataProvider
from ..sampling.shuffled_sampler import SequentialSampler
from ..sources.input_adapter import InputAdapter
from ..sources.planned_input import PlannedInput
from ..sources.sampler_input_callable import SamplerInputCallable

_CHUNK = 32
_LONGEST_REASON = 500
# JPEG, PNG, BMP, GIF, RIFF (WebP), TIFF, JPEG 2000, PNM
_MAGIC = (
    *(b"\xff\xd8\xff", b"\x89PNG", b"BM", b"GIF8", b"RIFF", b"II*\0", b"MM\0*", b"\0\0\0\x0cjP", b"\xff\x4f\xff"),
    *(b"P1", b"P2", b"P3", b"P4", b"P5", b"P6"),
)


@attrs.frozen
class Subject:
    """What is tried.

    Attributes:
        source: The input; only its data provider counts, and its context.
        steps: Steps on arrays, which decode there; None where none run in the workers.
    """

    source: PlannedInput
    steps: ArraySteps | None

    @property
    def num_samples(self) -> int:
        """Number of samples of the data set."""
        return int(self.source.provider.get_number_of_samples())


def subject_of(found: DataProvider | PipelineDefinition | DataLoader) -> Subject:
    """Get what is to be tried of a provider, a definition or a loader.

    Raises:
        SettingError: Its samples come from no data provider.
    """
    if isinstance(found, DataProvider):
        return Subject(SamplerInputCallable(found, SequentialSampler(found.get_number_of_samples(), 1)), None)
    if isinstance(found, DataLoader):
        definition, has_gpu = (
            found._definition.with_input(found.bound_input),
            found._run.pipeline.device_id is not None,
        )
    else:
        definition, has_gpu = found, False
    planned = InputAdapter(definition.data_input).planned
    if planned is None:
        raise SettingError(
            f"lint needs a data provider, whose samples it can load one by one; the input is a "
            f"{type(definition.data_input).__name__}."
        )
    return Subject(planned, definition.array_steps(has_gpu))


class SampleTrial:
    """Tries samples in one process."""

    def __init__(self, subject: Subject) -> None:
        """Prepare the checks."""
        self._source, self._steps = subject.source, subject.steps
        blueprint = self._source.used_sample_data_structure.format
        self._checker = SampleChecker(blueprint, type(self._source).__name__)
        sent = blueprint if self._steps is None else self._steps.output_format
        self._image_fields = image_fields(sent)
        self._paths = sent.flat_paths
        self._decoder = _Decoder()
        self._holds_images: set[int] = set()

    def failures(self, indices: Sequence[int]) -> list[FailedSample]:
        """Try samples."""
        failed: dict[int, FailedSample] = {}
        images: list[tuple[int, int, Any]] = []
        for index in indices:
            stage: Any = "loading"
            try:
                flat: Any = self._source.load_in_place(SamplePlace(0, 0, 0, index), index)
                stage = "checks"
                flat = self._checker.check(flat)
                stage = "steps"
                if self._steps is not None:
                    flat = self._steps.try_on(flat)
            except (Exception, SystemExit) as error:
                failed[index] = self._failed(index, of_step(error), stage)
                continue
            images += [(index, field, flat[field]) for field in self._image_fields]
        for index, field, reason in self._decoder.failures(self._files(images)):
            name = ".".join(map(str, self._paths[field]))
            if index not in failed:
                failed[index] = FailedSample(
                    index, f"{name}: {reason}", "graph", "found by lint", self._file(index)
                )
        return [failed[index] for index in sorted(failed)]

    def _files(self, images: list[tuple[int, int, Any]]) -> list[tuple[int, int, Any]]:
        """Those of fields that hold image files: in a field where one begins like an image, all must."""
        self._holds_images.update(field for _, field, array in images if array[:8].tobytes().startswith(_MAGIC))
        return [image for image in images if image[1] in self._holds_images]

    def _failed(self, index: int, error: BaseException, stage: Any) -> FailedSample:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST_REASON]
        return FailedSample(index, reason, stage, "found by lint", self._file(index))

    def _file(self, index: int) -> str:
        return description_of(self._source, index)


class _Decoder:
    """Decodes images by DALI, many at a time."""

    def __init__(self) -> None:
        self._pipelines: dict[int, Any] = {}

    def failures(self, images: list[tuple[int, int, Any]]) -> list[tuple[int, int, str]]:
        """Decode images, each with two numbers; get those of images that fail, and why."""
        failed = []
        for start in range(0, len(images), _CHUNK):
            batch = images[start : start + _CHUNK]
            if self._failure([array for _, _, array in batch]) is None:
                continue
            for index, field, array in batch:
                reason = self._failure([array])
                if reason is not None:
                    failed.append((index, field, reason))
        return failed

    def _failure(self, arrays: list[Any]) -> str | None:
        from ..engine.dali.texts import dali_reason

        size = _CHUNK if len(arrays) > 1 else 1
        if size not in self._pipelines:
            self._pipelines[size] = _decoding_pipeline(size)
        pipeline = self._pipelines[size]
        try:
            pipeline.feed_input("files", [np.ascontiguousarray(array) for array in arrays])
            pipeline.run()
        except Exception as error:
            del self._pipelines[size]  # it cannot be used any more
            return dali_reason(error).replace("sample #0", "the image")
        return None


def _decoding_pipeline(size: int) -> Any:
    import nvidia.dali.fn as fn
    from nvidia.dali.pipeline import Pipeline

    pipeline = Pipeline(
        size, 1, None, prefetch_queue_depth=1, exec_async=False, exec_pipelined=False, exec_dynamic=False
    )
    with pipeline:
        files = fn.external_source(name="files", no_copy=True, batch=True)
        pipeline.set_outputs(fn.decoders.image(files, device="cpu"))
    pipeline.build()
    return pipeline


# --- processes --------------------------------------------------------------------------------------------


@attrs.define
class _Worker:
    process: Any
    pipe: Any
    chunk: Sequence[int]


def lint(
    make_subject: Callable[[], Subject],
    num_workers: int,
    num_samples: int,
    progress: Callable[[int], object],
) -> Iterator[FailedSample]:
    """Try all samples of a data set; yields those that fail, as soon as they are found.

    Args:
        make_subject: Makes what is tried, in each process; it is pickled.
        num_workers: Number of processes.
        num_samples: Number of samples.
        progress: Told how many samples were tried, each time some were.

    Raises:
        SettingError: A process cannot make the subject.
    """
    chunks: list[Sequence[int]] = [
        range(start, min(start + _CHUNK, num_samples)) for start in range(0, num_samples, _CHUNK)
    ]
    chunks.reverse()
    workers: list[_Worker] = []
    try:
        while chunks or workers:
            while chunks and len(workers) < num_workers:
                workers.append(_started(make_subject, chunks.pop()))
            ready = connection.wait([worker.pipe for worker in workers])
            for worker in [each for each in workers if each.pipe in ready]:
                try:
                    found = worker.pipe.recv()
                except (EOFError, OSError):
                    worker.process.join()
                    workers.remove(worker)
                    if len(worker.chunk) > 1:  # which of them was it?
                        chunks += [[index] for index in reversed(worker.chunk)]
                        continue
                    yield _died_of(worker)
                    progress(1)
                    continue
                if isinstance(found, str):
                    raise SettingError(found)
                yield from found
                progress(len(worker.chunk))
                worker.chunk = chunks.pop() if chunks else ()
                worker.pipe.send(worker.chunk)
                if not worker.chunk:
                    worker.process.join()
                    workers.remove(worker)
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.join()


def _started(make_subject: Callable[[], Subject], chunk: Sequence[int]) -> _Worker:
    context = multiprocessing.get_context("spawn")
    pipe, other_end = context.Pipe()
    process = context.Process(target=_work, args=(make_subject, other_end), daemon=True)
    process.start()
    other_end.close()
    pipe.send(chunk)
    return _Worker(process, pipe, chunk)


def _died_of(worker: _Worker) -> FailedSample:
    code = worker.process.exitcode
    name = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
    return FailedSample(worker.chunk[0], f"ends the process that loads it: {name}", "loading", "found by lint")


def _work(make_subject: Callable[[], Subject], pipe: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    use_one_thread_of_opencv()
    try:
        trial = SampleTrial(make_subject())
    except Exception as error:
        pipe.send(f"The data set cannot be opened in another process: {type(error).__name__}: {error}")
        return
    while chunk := pipe.recv():
        pipe.send(trial.failures(chunk))


# --- the command ------------------------------------------------------------------------------------------


def run_lint(
    find: Callable[[], Any],
    output: str | os.PathLike[str] | None,
    num_workers: int | None,
    say: Callable[[str], None],
) -> None:
    """Try all samples of a provider, definition or loader, and say what fails.

    Args:
        find: Gets it, in each process; it is pickled.
        output: File to which a line is added for each sample that fails.
        num_workers: Number of processes; None: the usable cores.
        say: Prints a line.

    Raises:
        TooManyFailedError: A sample has failed; the message sums up.
        SettingError: There is no data provider, or it cannot be made in another process.
        QuarantineError: The file cannot be written.
    """
    make_subject = functools.partial(_subject_found, find)
    num_samples = make_subject().num_samples
    count = (
        len(os.sched_getaffinity(0)) if num_workers is None else whole_number(num_workers, "--workers", at_least=1)
    )
    quarantine = None if output is None else Quarantine(os.fspath(output))
    failed = []
    start_s = time.perf_counter()
    with _progress(num_samples) as progress:
        for sample in lint(make_subject, count, num_samples, progress):
            failed.append(sample)
            if quarantine is not None:
                quarantine.add(sample, has_place=False)
    passed_s = time.perf_counter() - start_s
    rate = f"{num_samples / passed_s:.1f} samples/s"
    say(f"{num_samples} samples tried in {passed_s:.1f} s by {count} processes: {rate}")
    if failed:
        failed.sort(key=lambda sample: sample.sample_index)
        written = "" if output is None else f"\nThey are listed in {output}."
        raise TooManyFailedError(f"{summary_of(failed)}{written}")
    say("All can be loaded and decoded.")


def _subject_found(find: Callable[[], Any]) -> Subject:
    return subject_of(find())


@contextlib.contextmanager
def _progress(num_samples: int) -> Iterator[Callable[[int], object]]:
    """A bar, where somebody looks and rich is installed."""
    if not sys.stderr.isatty() or importlib.util.find_spec("rich") is None:
        yield lambda num_tried: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    with Progress(BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task("samples", total=num_samples)
        yield functools.partial(bar.advance, task)
