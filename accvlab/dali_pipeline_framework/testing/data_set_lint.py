# SPDX-License-Identifier: Apache-2.0
"""Tries every sample of a data set in several processes: loads it, checks it, decodes its images.

::

    this process        chunks of indices ─>   process 0   get_data, checks, steps on arrays, decoding
      progress, file  <─ what has failed       process 1   ...
                                               (where one dies or hangs, the sample is named)

This process imports next to nothing and does not open the data set: the others do so at once, and report how many
samples there are. The chunks become smaller in the end, so that all processes end together.
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
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import connection
from typing import TYPE_CHECKING, Any, Final

import attrs

from ..checks import file_path, number
from ..errors import FrameworkError, SettingError, TooManyFailedError, text_of
from ..faults.fault_policy import FailedSample, Quarantine, summary_of
from ..limits.control_groups import num_usable_cores
from ..limits.file_limits import all_limits, checked_worker_count, set_all_limits

if TYPE_CHECKING:
    from .sample_trial import Subject

DEFAULT_TIME_LIMIT_S = 300.0  # a remote file is tried several times, for a minute each
_START_METHOD: Final = "forkserver"  # a process that is forked would have what this one has done
_LONGEST_START_S = 600.0  # imports, and opening the data set
_LONGEST_END_S = 5.0
_MOST_STARTS = 3
_TICKS = 10  # within the time limit
_MOST_IN_CHUNK = 32
_FEWEST_IN_CHUNK = 4  # a pipeline of DALI takes about as long for one image as for a few
_STARTING = -2


@attrs.define
class _Worker:
    """A process that tries samples.

    Attributes:
        process: The process.
        pipe: Chunks to it, and what has failed from it.
        chunk: The samples that it was given last.
        place: Shared with it: the sample that it is at, or `SEVERAL` or `_STARTING`, and since when.
        is_late: Whether it was killed because it took too long.
    """

    process: Any
    pipe: Any
    place: Any
    chunk: Sequence[int] = ()
    is_late: bool = False

    def look(self, time_limit_s: float) -> None:
        """Kill it where it takes too long."""
        at, since_s = self.place[:]
        if time.monotonic() - since_s > (_LONGEST_START_S if at == _STARTING else time_limit_s):
            self.is_late = True
            self.process.kill()


@attrs.define
class _Rest:
    """What is yet to be tried.

    Attributes:
        num_samples: Number of samples; None until a process has reported it.
        begin: The first one that no process was given.
        given_back: Chunks to be tried again: their process has ended, or now it is known which fields hold images.
        holds_images: Fields that hold image files, as far as that is known.
        undecided: Chunks by fields that may hold image files, but none in them began like one.
    """

    num_samples: int | None = None
    begin: int = 0
    given_back: list[Sequence[int]] = attrs.Factory(list)
    holds_images: set[int] = attrs.Factory(set)
    undecided: dict[int, list[Sequence[int]]] = attrs.Factory(dict)

    def __bool__(self) -> bool:
        return bool(self.given_back) or self.num_samples is None or self.begin < self.num_samples

    def chunk(self, num_workers: int) -> Sequence[int]:
        """Get what a process is to try next; nothing where nothing is left."""
        if self.given_back:
            return self.given_back.pop()
        left = (self.num_samples or 0) - self.begin
        size = min(max(left // (2 * num_workers), _FEWEST_IN_CHUNK), _MOST_IN_CHUNK, left)
        self.begin += size
        return range(self.begin - size, self.begin)

    def note_tried(self, chunk: Sequence[int], holds_images: set[int], undecided: set[int]) -> None:
        """Note what became known of the fields of a chunk."""
        self.holds_images |= holds_images
        for field in undecided:
            self.undecided.setdefault(field, []).append(chunk)
        for field in self.holds_images & self.undecided.keys():
            self.given_back += self.undecided.pop(field)


def lint(
    make_subject: Callable[[], Subject],
    num_workers: int,
    progress: Callable[[int, int], object],
    time_limit_s: float = DEFAULT_TIME_LIMIT_S,
) -> Iterator[FailedSample]:
    """Try all samples of a data set; yields those that fail, as soon as they are found.

    Args:
        make_subject: Makes what is tried, in each process; it is pickled.
        num_workers: Number of processes.
        progress: Called with how many samples were tried, each time some were, and how many there are; first 0,
            when the first process begins. Those that are tried again count twice.
        time_limit_s: Seconds after which a sample counts as one that does not end; its process is killed.

    Raises:
        SettingError: A process cannot make the subject.
    """
    rest = _Rest()
    workers: list[_Worker] = []
    ended: list[_Worker] = []
    num_starts_failed = 0  # in a row
    failed: set[int] = set()
    try:
        while rest or workers:
            while rest and len(workers) < num_workers:
                workers.append(_started(make_subject))
            watched = [each for worker in workers for each in (worker.pipe, worker.process.sentinel)]
            ready = connection.wait(watched, min(1.0, time_limit_s / _TICKS))
            for worker in workers[:]:
                if worker.pipe not in ready and worker.process.sentinel not in ready:
                    worker.look(time_limit_s)
                    continue
                try:
                    if not worker.pipe.poll():  # who has the other end is a child of the process
                        raise EOFError
                    found = worker.pipe.recv()
                except (EOFError, OSError):
                    worker.process.join()
                    workers.remove(worker)
                    num_starts_failed = 1 + num_starts_failed if worker.place[0] == _STARTING else 0
                    if num_starts_failed == _MOST_STARTS:
                        raise SettingError(_why_not_started(worker)) from None
                    sample = _ended(worker, rest.given_back, time_limit_s)
                    if sample is not None:
                        yield sample
                        progress(1, rest.num_samples or 0)
                    continue
                if isinstance(found, str):
                    raise SettingError(found)
                if isinstance(found, int):
                    if rest.num_samples is None:
                        rest.num_samples = found
                        progress(0, found)
                else:
                    samples, holds_images, undecided = found
                    yield from (sample for sample in samples if sample.sample_index not in failed)
                    failed.update(sample.sample_index for sample in samples)
                    rest.note_tried(worker.chunk, holds_images, undecided)
                    progress(len(worker.chunk), rest.num_samples or 0)
                worker.chunk = rest.chunk(num_workers)
                worker.place[1] = time.monotonic()
                worker.pipe.send((worker.chunk, rest.holds_images))
                if not worker.chunk:
                    workers.remove(worker)
                    ended.append(worker)
        for worker in ended:
            worker.process.join(_LONGEST_END_S)
    finally:
        for worker in [*workers, *ended]:
            worker.process.kill()
            worker.process.join()


def _started(make_subject: Callable[[], Subject]) -> _Worker:
    context = multiprocessing.get_context(_START_METHOD)
    pipe, other_end = context.Pipe()
    place = context.RawArray("d", [_STARTING, time.monotonic()])
    process = context.Process(target=_work, args=(make_subject, other_end, place, all_limits()), daemon=True)
    process.start()
    other_end.close()
    return _Worker(process, pipe, place)


def _ended(worker: _Worker, given_back: list[Sequence[int]], time_limit_s: float) -> FailedSample | None:
    """Get the sample that has ended a process, and give back the others that it had: their results are lost."""
    at, chunk = int(worker.place[0]), worker.chunk
    if at == _STARTING:
        given_back += [chunk] * bool(chunk)
        return None
    if worker.is_late and at in chunk:
        reason = f"does not end within {time_limit_s:g} s"
    elif len(chunk) == 1:
        at, reason = chunk[0], f"ends the process that loads it: {_end_of(worker)}"
    else:  # which of them was it?
        given_back += [[index] for index in reversed(chunk)]
        return None
    if len(chunk) > 1:
        given_back.append([index for index in chunk if index != at])
    return FailedSample(at, reason, "loading", "found by lint")


def _why_not_started(worker: _Worker) -> str:
    if worker.is_late:
        return f"The data set was not open in another process after {_LONGEST_START_S:g} s."
    return f"The data set cannot be opened in another process, which ends: {_end_of(worker)}."


def _end_of(worker: _Worker) -> str:
    code = worker.process.exitcode
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


def _work(make_subject: Callable[[], Subject], pipe: Any, place: Any, limits: list[int]) -> None:
    set_all_limits(limits)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        from ..workers.process_setup import keep_freed_memory, use_one_thread_of_opencv
        from .sample_trial import SampleTrial

        use_one_thread_of_opencv()
        keep_freed_memory()
        subject = make_subject()
        trial = SampleTrial(subject, functools.partial(_note, place))
        num_samples = subject.num_samples
    except FrameworkError as error:
        pipe.send(text_of(error))
        return
    except BaseException as error:
        what = f"The data set cannot be opened: {type(error).__name__}: {text_of(error)}"
        pipe.send(f"{what}\n\n{traceback.format_exc()}")
        return
    pipe.send(num_samples)
    while True:
        chunk, holds_images = pipe.recv()
        if not chunk:
            return
        trial.holds_images |= holds_images
        failed = trial.failures(chunk)
        pipe.send((failed, trial.holds_images, trial.undecided))


def _note(place: Any, index: int) -> None:
    place[1] = time.monotonic()
    place[0] = index


# --- the command ------------------------------------------------------------------------------------------


def run_lint(
    find: Callable[[], Any],
    output: str | os.PathLike[str] | None,
    num_workers: int | None,
    say: Callable[[str], None],
    time_limit_s: float = DEFAULT_TIME_LIMIT_S,
) -> None:
    """Try all samples of a provider, definition or loader, and say what fails.

    Args:
        find: Gets it, in each process; it is pickled.
        output: File to which a line is added for each sample that fails.
        num_workers: Number of processes; None: the usable cores.
        say: Prints a line.
        time_limit_s: Seconds after which a sample counts as one that does not end.

    Raises:
        TooManyFailedError: A sample has failed; the message sums up.
        SettingError: There is no data provider, or it cannot be made in another process.
        QuarantineError: The file cannot be written.
    """
    time_limit_s = number(time_limit_s, "--timeout", above=0)
    count = num_usable_cores()
    if num_workers is not None:
        count = checked_worker_count(num_workers, "--workers", at_least=1)
    make_subject = functools.partial(_subject_found, find)
    opened = functools.cache(make_subject)  # in this process only where a sample is to be named
    quarantine = None if output is None else Quarantine(file_path(output, "--output"))
    failed = []
    num_samples, begun_s = 0, 0.0
    start_s = time.perf_counter()
    with _progress() as progress:

        def follow(num_tried: int, num_in_all: int) -> None:
            nonlocal num_samples, begun_s
            if num_tried == 0:
                num_samples, begun_s = num_in_all, time.perf_counter()
            progress(num_tried, num_in_all)

        for sample in lint(make_subject, count, follow, time_limit_s):
            if not sample.file:
                sample = attrs.evolve(sample, file=opened().describe(sample.sample_index))
            failed.append(sample)
            if quarantine is not None:
                quarantine.add(sample, has_place=False)
    passed_s = time.perf_counter() - start_s
    say(
        f"{num_samples} samples tried in {passed_s:.1f} s by {count} processes: "
        f"{num_samples / passed_s:.1f} samples/s, with {begun_s - start_s:.1f} s to start"
    )
    if failed:
        failed.sort(key=lambda sample: sample.sample_index)
        written = "" if output is None else f"\nThey are listed in {output}."
        raise TooManyFailedError(f"{summary_of(failed)}{written}")
    say("All can be loaded and decoded.")


def _subject_found(find: Callable[[], Any]) -> Subject:
    from .sample_trial import subject_of

    return subject_of(find())


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[int, int], object]]:
    """A bar, where somebody looks and rich is installed."""
    if not sys.stderr.isatty() or importlib.util.find_spec("rich") is None:
        yield lambda num_tried, num_samples: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    with Progress(BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task("samples", total=None)
        yield lambda num_tried, num_samples: bar.update(task, advance=num_tried, total=num_samples)
