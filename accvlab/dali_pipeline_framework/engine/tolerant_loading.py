# SPDX-License-Identifier: Apache-2.0
"""Loads batches in which samples may fail, and puts others in their place.

::

    get_data, checks     fails ─> substitute 1 ─> fails ─> substitute 2 ─> ...    each is loaded and checked
    draws of the batch   keyed by the place, not by the sample that stands there
    steps on arrays      fails ─> the next substitute: loaded, checked, drawn for and processed
    transport            does not go with the others ─> the next substitute
"""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import struct
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from time import perf_counter_ns
from typing import Any, NoReturn, TypeAlias

import attrs
from nvidia.dali import types

from ..draws.keyed_draws import SamplePlace, note_sample
from ..draws.random_draws import KeyedDraws
from ..errors import is_of_missing_package
from ..faults.fault_policy import SamplePolicy
from ..sources.planned_input import PlannedInput
from ..url_secrets import without_secrets
from .samples import LoadingBatch, OddSampleError
from .worker_process import pass_on_interrupt

_WORD = struct.Struct("=q")


class FaultJournal:
    """An anonymous file to which workers append, and which the main process reads.

    It begins with a word that all share in memory: how many bytes of records there are. So it costs next to
    nothing to look whether there are new ones. A batch reaches the main process after the records about it were
    written.
    """

    def __init__(self) -> None:
        """Create the file."""
        self._fd = os.memfd_create("dali_pipeline_framework_faults", os.MFD_CLOEXEC)
        os.ftruncate(self._fd, _WORD.size)
        self._size = memoryview(mmap.mmap(self._fd, _WORD.size)).cast("q")
        self._path = f"/proc/{os.getpid()}/fd/{self._fd}"
        self._num_read = 0
        self._close = weakref.finalize(self, _close_in, os.getpid(), self._fd)

    def __getstate__(self) -> dict[str, Any]:
        return {"_path": self._path, "_fd": -1}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def write(self, records: Iterable[Mapping[str, Any]]) -> None:
        """Append records, in one piece."""
        lines = b"".join(json.dumps(record).encode() + b"\n" for record in records)
        fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX)  # closing the file ends it
            (size,) = _WORD.unpack(os.pread(fd, _WORD.size, 0))
            while lines:
                num_written = os.pwrite(fd, lines, _WORD.size + size)
                lines, size = lines[num_written:], size + num_written
            os.pwrite(fd, _WORD.pack(size), 0)  # from here on they are there
        finally:
            os.close(fd)

    def read(self) -> list[dict[str, Any]]:
        """Get the records that were written since the last time, in the process that made the journal."""
        size = self._size[0]
        if size == self._num_read:
            return []
        written = os.pread(self._fd, size - self._num_read, _WORD.size + self._num_read)
        self._num_read = size
        return [json.loads(line) for line in written.splitlines()]

    def close(self) -> None:
        """Give the file back."""
        self._close()


def _close_in(pid: int, fd: int) -> None:
    if os.getpid() == pid:  # a forked child must not close what has its number there
        os.close(fd)


Flat: TypeAlias = Sequence[Any]
# Position of a sample, its index (None: not asked for), its arrays or what was raised, and the stage of that.
_Attempt: TypeAlias = tuple[types.SampleInfo, int | None, Any, BaseException | None, str]

_MOST_MESSAGES = 50  # of one worker; later records have no tracebacks, since the journal is kept in memory


class SampleFailureError(Exception):
    """A sample has failed.

    Attributes:
        cause: What was raised.
        stage: Where: "loading", "checks" or "steps".
        sample_index: Its index in the data set.
        info: Its position.
        note: What else there is to say.
    """

    def __init__(
        self, cause: BaseException, stage: str, sample_index: int | None, info: types.SampleInfo, note: str = ""
    ) -> None:
        """Keep what it is about."""
        super().__init__(str(cause))
        self.cause = cause
        self.stage = stage
        self.sample_index = sample_index
        self.info = info
        self.note = note


class NotTriedError(Exception):
    """A sample is known to fail."""


class KnownSampleError(Exception):
    """A batch has samples that are known to fail."""


@attrs.frozen
class SampleChain:
    """What happens to a sample before it is sent.

    Attributes:
        source: The input.
        check: Compares the arrays of a sample with the blueprint, and returns them; a ValueError where they do not
            fit.
        draws: Computes random draws; None where none travel.
        apply: Applies the steps that run here to the arrays of a sample and its draws; None where there are none.
        describe: Gets a line and a full message about a failure.
    """

    source: PlannedInput
    check: Callable[[Any], Flat]
    draws: KeyedDraws | None
    apply: Callable[[Flat, Sequence[Any]], Flat] | None
    describe: Callable[[SampleFailureError], tuple[str, str]]


@attrs.define
class TolerantLoading:
    """What the workers know of samples that fail.

    Attributes:
        samples: Whether one is skipped or replaced.
        not_tried: Samples that are known to fail, and why.
        journal: Where to write what has failed; None: nowhere.
    """

    samples: SamplePolicy
    not_tried: Mapping[int, str] = attrs.Factory(dict)
    journal: FaultJournal | None = None
    num_messages: int = attrs.field(default=0, init=False)


@attrs.define
class _Trouble:
    """A position of a batch whose sample has failed."""

    place: SamplePlace
    candidates: Iterator[int]
    failures: list[SampleFailureError] = attrs.Factory(list)
    substitute: int | None = None


@attrs.define
class LoadedSample:
    """A sample of a batch: its position, what was loaded for it, and its arrays before and after the steps."""

    info: types.SampleInfo
    index: int | None
    flat: Flat
    sent: Flat
    numbers: Sequence[Any] = ()


class BatchLoading:
    """Loads one batch.

    Attributes:
        loaded: Its samples; those that were skipped are left out.
        draws: Per draw one array with the samples as first axis.
    """

    def __init__(
        self,
        tolerance: TolerantLoading,
        chain: SampleChain,
        note: Callable[[types.SampleInfo], None] = note_sample,
    ) -> None:
        """Set up; ``note`` gets the position of each sample before something is done with it."""
        self._tolerance = tolerance
        self._chain = chain
        self._note = note
        self._troubles: dict[int, _Trouble] = {}
        self.loaded: list[LoadedSample] = []
        self.draws: list[Any] = []

    def run(self, infos: Sequence[types.SampleInfo]) -> None:
        """Load the samples at these positions.

        Raises:
            StopIteration: The epoch has none of them.
            SampleFailureError: One has failed, and nothing can take its place.
        """
        self._take(self._attempts(infos))
        self._draw()
        self._apply_steps()

    def go_on(self, batch: LoadingBatch, error: BaseException) -> None:
        """Go on with a batch in which a sample has raised an error; what was made of it is kept.

        Raises:
            StopIteration: The epoch has none of its samples.
            SampleFailureError: One has failed, and nothing can take its place.
        """
        both = zip(batch.infos, batch.samples, strict=False)
        self.loaded = [LoadedSample(info, None, flat, flat) for info, flat in both]
        if batch.phase == "loading":
            rest = batch.infos[len(self.loaded) :]
            if isinstance(error, KnownSampleError):
                attempts = self._attempts(rest)
            elif isinstance(error, OddSampleError):
                self._take([(rest[0], None, None, ValueError(error.problem), "checks")])
                attempts = self._attempts(rest[1:], batch.rest)
            else:
                attempts = self._attempts(rest, map(_raise, [error]))
            self._take(attempts)
            batch.read_ns = perf_counter_ns()
            self._draw()
            self._apply_steps()
        else:
            self.draws = batch.draws
            for sample, sent in zip(self.loaded, batch.sent, strict=False):
                sample.sent = sent
            if batch.phase == "steps":
                self._apply_steps(len(batch.sent), error)
        batch.stepped_ns = perf_counter_ns()

    def _take(self, attempts: Iterable[_Attempt]) -> None:
        for info, index, flat, error, stage in attempts:
            taken: LoadedSample | None = LoadedSample(info, index, flat, flat)
            if error is not None:
                taken = self._instead(info, index, error, stage, with_steps=False)
            if taken is not None:
                self.loaded.append(taken)

    def _draw(self) -> None:
        if not self.loaded:
            self._fill_empty(with_steps=False)
        chain = self._chain
        if chain.draws is not None:
            infos = [each.info for each in self.loaded]
            self.draws = chain.draws.of_batch(chain.source, infos, [each.flat for each in self.loaded])

    def replace(self, number: int, error: BaseException) -> None:
        """Put another sample in the place of one of `loaded` that does not go with the others, or leave it out."""
        failed = self.loaded[number]
        instead = self._instead(failed.info, failed.index, error, "checks", with_steps=True)
        self._put(number, instead)
        if not self.loaded:
            self._fill_empty(with_steps=True)

    # --- one after the other ----------------------------------------------------------------------

    def _attempts(
        self, infos: Sequence[types.SampleInfo], loaded: Iterator[Any] | None = None
    ) -> Iterator[_Attempt]:
        """Try each sample, where nothing else is given by asking the input for them."""
        source, tolerance = self._chain.source, self._tolerance
        indices = [source.get_sample_index(info) if tolerance.not_tried else None for info in infos]
        tried = [info for info, index in zip(infos, indices, strict=True) if index not in tolerance.not_tried]
        num_tried = 0
        for info, index in zip(infos, indices, strict=True):
            self._note(info)
            if index is not None and index in tolerance.not_tried:
                yield info, index, None, NotTriedError(tolerance.not_tried[index]), "loading"
                continue
            num_tried += 1
            try:
                if loaded is None:
                    loaded = iter(source.iter_batch(tried))
                flat = next(loaded)
            except StopIteration:
                return
            except BaseException as error:
                pass_on_interrupt(error)
                # One by one from here on: a provider that loads batches may have failed for another sample.
                loaded = map(source, tried[num_tried:])
                failure: BaseException | None = error
                if source.loads_batches:
                    flat, failure = self._loaded_alone(info)
                if failure is not None:
                    yield info, index, None, failure, "loading"
                    continue
            try:
                yield info, index, self._chain.check(flat), None, ""
            except ValueError as error:
                yield info, index, None, error, "checks"

    def _loaded_alone(self, info: types.SampleInfo) -> tuple[Any, BaseException | None]:
        try:
            return self._chain.source(info), None
        except BaseException as error:
            pass_on_interrupt(error)
            return None, error

    # --- steps ------------------------------------------------------------------------------------

    def _apply_steps(self, number: int = 0, error: BaseException | None = None) -> None:
        """Apply the steps to a sample and all behind it; for that one, ``error`` was already raised."""
        apply = self._chain.apply
        if apply is None:
            return
        while number < len(self.loaded):
            sample = self.loaded[number]
            self._note(sample.info)
            try:
                if error is not None:
                    raise error
                sample.sent = apply(sample.flat, [of_batch[number] for of_batch in self.draws])
                number += 1
            except BaseException as failure:
                pass_on_interrupt(failure)
                instead = self._instead(sample.info, sample.index, failure, "steps", with_steps=True)
                self._put(number, instead)
                number += instead is not None
            error = None
        if not self.loaded:
            self._fill_empty(with_steps=True)

    def _put(self, number: int, instead: LoadedSample | None) -> None:
        """Put a sample with its draws in the place of another one; None: leave that out."""
        if instead is None:
            del self.loaded[number]
            kept = [row for row in range(len(self.loaded) + 1) if row != number]
            self.draws = [of_batch[kept] for of_batch in self.draws]
            return
        self.loaded[number] = instead
        for of_batch, numbers in zip(self.draws, instead.numbers, strict=True):
            of_batch[number] = numbers

    # --- substitutes ------------------------------------------------------------------------------

    def _instead(
        self, info: types.SampleInfo, index: int | None, error: BaseException, stage: str, with_steps: bool
    ) -> LoadedSample | None:
        """Find what takes the place of a sample that has failed; None where it is skipped."""
        source = self._chain.source
        place = source.get_place(info)
        if index is None:
            index = None if place is None else place.sample_index
        failure = SampleFailureError(error, stage, index, info)
        if place is None or is_of_missing_package(error):
            raise failure
        slot = info.idx_in_batch
        if slot not in self._troubles:
            self._troubles[slot] = _Trouble(place, source.substitutes(place))
        trouble = self._troubles[slot]
        trouble.failures.append(failure)
        trouble.substitute = None
        if self._tolerance.samples == "skip":
            return None
        return self._substitute(trouble, info, with_steps)

    def _substitute(self, trouble: _Trouble, info: types.SampleInfo, with_steps: bool) -> LoadedSample:
        num_tried = 0
        self._note(info)
        for index in trouble.candidates:
            if index in self._tolerance.not_tried:
                continue
            num_tried += 1
            stage = "loading"
            try:
                flat: Any = self._chain.source.load_in_place(trouble.place, index)
                stage = "checks"
                flat = self._chain.check(flat)
                sample = LoadedSample(info, index, flat, flat)
                stage = "steps"
                if with_steps:
                    self._finish(sample)
            except BaseException as error:
                pass_on_interrupt(error)
                failure = SampleFailureError(error, stage, index, info)
                if is_of_missing_package(error):
                    raise failure from error
                trouble.failures.append(failure)
                continue
            trouble.substitute = index
            return sample
        last = trouble.failures[-1]
        note = (
            f"No other sample could take the place of sample {trouble.place.sample_index}: {num_tried} more were "
            f"tried. Is there a fault that all samples have, e.g. a disk that is gone?"
        )
        raise SampleFailureError(last.cause, last.stage, last.sample_index, info, note)

    def _finish(self, sample: LoadedSample) -> None:
        chain = self._chain
        if chain.draws is not None:
            of_one = chain.draws.of_batch(chain.source, [sample.info], [sample.flat])
            sample.numbers = [numbers[0] for numbers in of_one]
        if chain.apply is not None:
            sample.sent = chain.apply(sample.flat, sample.numbers)

    def _fill_empty(self, with_steps: bool) -> None:
        """A batch without samples would end the epoch of this shard: fill it with one.

        Raises:
            StopIteration: Nothing was skipped: the epoch has no such batch.
        """
        if not self._troubles:
            raise StopIteration
        trouble = next(reversed(self._troubles.values()))
        sample = self._substitute(trouble, trouble.failures[0].info, with_steps)
        self.loaded = [sample]
        if with_steps and self._chain.draws is not None:
            chain = self._chain
            self.draws = chain.draws.of_batch(chain.source, [sample.info], [sample.flat])  # type: ignore[union-attr]

    # --- what the main process is told ----------------------------------------------------------------

    @property
    def stand_ins(self) -> dict[int, int]:
        """Indices of the samples that were loaded in the place of those that were due, by number in ``loaded``."""
        found = {}
        for number, sample in enumerate(self.loaded):
            trouble = self._troubles.get(sample.info.idx_in_batch)
            if trouble is not None and trouble.substitute is not None:
                found[number] = trouble.substitute
        return found

    def write_records(self, epoch_idx: int, iteration: int) -> None:
        """Write into the journal what has failed; the numbers are those by which the pipeline counts batches."""
        tolerance = self._tolerance
        if not self._troubles or tolerance.journal is None:
            return
        failed = [
            self._record(trouble, failure)
            for trouble in self._troubles.values()
            for failure in trouble.failures
            if not isinstance(failure.cause, NotTriedError)
        ]
        tolerance.journal.write([{"epoch_idx": epoch_idx, "iteration": iteration, "failed": failed}])

    def _record(self, trouble: _Trouble, failure: SampleFailureError) -> dict[str, Any]:
        reason, message = self._chain.describe(failure)
        self._tolerance.num_messages += 1
        substitute = trouble.substitute
        if failure.sample_index != trouble.place.sample_index:
            outcome, substitute = f"was to take the place of sample {trouble.place.sample_index}", None
        elif substitute is None:
            outcome = "skipped"
        else:
            outcome = f"sample {substitute} in its place"
        return {
            "sample_index": failure.sample_index,
            "reason": reason,
            "stage": failure.stage,
            "outcome": outcome,
            "file": description_of(self._chain.source, failure.sample_index),
            "epoch": trouble.place.epoch,
            "batch": trouble.place.batch,
            "slot": failure.info.idx_in_batch,
            "substitute": substitute,
            "message": message if self._tolerance.num_messages <= _MOST_MESSAGES else reason,
        }


def _raise(error: BaseException) -> NoReturn:
    raise error


def description_of(source: Any, sample_index: int | None) -> str:
    """What the data provider tells of a sample; empty where it tells nothing."""
    if sample_index is None:
        return ""
    try:
        return without_secrets(str(source.describe_sample(sample_index)))
    except BaseException as error:  # only decorates another one
        pass_on_interrupt(error)
        return ""
