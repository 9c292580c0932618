# SPDX-License-Identifier: Apache-2.0
"""Loads batches in which samples may fail, and puts others in their place.

::

    get_data, checks, steps on arrays    fails ─> substitute 1 ─> fails ─> substitute 2 ─> ...
    draws                                keyed by the place, not by the sample that takes it
    transport                            does not go with the others ─> the next substitute
"""

from __future__ import annotations

import fcntl
import json
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import perf_counter_ns
from typing import Any, NoReturn, TypeAlias, TypedDict

import attrs
import numpy as np
from nvidia.dali import types

from ..draws.keyed_draws import SamplePlace, note_sample
from ..draws.random_draws import KeyedDraws
from ..errors import is_of_missing_package
from ..faults.fault_policy import SamplePolicy
from ..sources.planned_input import PlannedInput
from .control_block import close_files
from .dali.texts import is_about_device
from .samples import Array, Flat, LoadingBatch, OddSampleError, SampleFailureError
from .worker_process import decorating, pass_on_interrupt


class FaultRecord(TypedDict):
    """What has failed in a batch, by the numbers by which the pipeline has requested it."""

    epoch_idx: int
    iteration: int
    failed: list[dict[str, Any]]


class FaultJournal:
    """An anonymous file to which workers append records, and which the main process reads.

    A batch reaches the main process after the records about it were written.

    Attributes:
        close: Gives the file back.
    """

    def __init__(self) -> None:
        """Create the file."""
        self._fd = os.memfd_create("dali_pipeline_framework_faults", os.MFD_CLOEXEC)
        self._path = f"/proc/{os.getpid()}/fd/{self._fd}"
        self._num_read = 0
        self.close = weakref.finalize(self, close_files, os.getpid(), self._fd)

    def __getstate__(self) -> dict[str, Any]:
        return {"_path": self._path}

    def write(self, record: FaultRecord) -> None:
        """Append a record, in one piece."""
        with open(self._path, "ab") as file:
            fcntl.lockf(file, fcntl.LOCK_EX)  # closing the file ends it
            file.write(json.dumps(record).encode() + b"\n")

    def read(self) -> list[FaultRecord]:
        """Get the records that were written since the last time, in the process that made the journal."""
        size = os.fstat(self._fd).st_size
        if size == self._num_read:
            return []
        # The last line may still be being written: it is about a batch that comes later.
        lines, end, _ = os.pread(self._fd, size - self._num_read, self._num_read).rpartition(b"\n")
        self._num_read += len(lines + end)
        return [json.loads(line) for line in lines.splitlines()]


_MOST_MESSAGES = 50  # of one worker; later records have no tracebacks, since the journal is kept in memory


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
        apply: Applies the steps that run here to the arrays of a sample and its draws.
        describe: Gets a line and a full message about a failure.
    """

    source: PlannedInput
    check: Callable[[object], Flat]
    draws: KeyedDraws | None
    apply: Callable[[Flat, Sequence[Array]], Flat]
    describe: Callable[[SampleFailureError], tuple[str, str]]


@attrs.define
class TolerantLoading:
    """What the workers know of samples that fail.

    Attributes:
        samples: Whether one is skipped or replaced.
        not_tried: Samples that are known to fail, and why.
        journal: Where to write what has failed.
    """

    samples: SamplePolicy
    not_tried: Mapping[int, str]
    journal: FaultJournal
    num_messages: int = attrs.field(default=0, init=False)


@attrs.define
class _FailedSlot:
    """A position of a batch whose sample has failed."""

    place: SamplePlace
    candidates: Iterator[int]
    failures: list[SampleFailureError] = attrs.Factory(list)
    substitute: int | None = None


@attrs.define
class LoadedSample:
    """A sample of a batch.

    Attributes:
        info: Its position.
        index: Its index in the data set; None where that was not looked up.
        flat: The arrays that were loaded for it.
        numbers: The numbers of each draw.
        sent: Its arrays after the steps; None: these were not applied yet.
    """

    info: types.SampleInfo
    index: int | None
    flat: Flat = ()
    numbers: Sequence[Array] = ()
    sent: Any = None


# A sample, and where it has failed: what was raised, and the stage of that.
_Attempt: TypeAlias = tuple[LoadedSample, BaseException | None, str]


@attrs.define(eq=False)
class BatchLoading:
    """Loads one batch, sample by sample.

    Attributes:
        _note: Gets the position of each sample before something is done with it.
        loaded: Its samples; those that were skipped are left out.
    """

    _tolerance: TolerantLoading
    _chain: SampleChain
    _note: Callable[[types.SampleInfo], None] = note_sample
    _failed_slots: dict[int, _FailedSlot] = attrs.field(factory=dict, init=False)
    loaded: list[LoadedSample] = attrs.field(factory=list, init=False)

    @property
    def draws(self) -> list[Array]:
        """Per draw one array with the samples as first axis."""
        return [np.stack(of_draw) for of_draw in zip(*(each.numbers for each in self.loaded), strict=True)]

    def run(self, infos: Sequence[types.SampleInfo]) -> None:
        """Load the samples at these positions.

        Raises:
            StopIteration: The epoch has none of them.
            SampleFailureError: One has failed, and nothing can take its place.
        """
        for attempt in self._attempts(infos):
            self._take(*attempt)
        self._fill_empty()

    def go_on(self, batch: LoadingBatch, error: BaseException) -> None:
        """Go on with a batch in which a sample has raised an error; what was made of it is kept.

        Raises:
            StopIteration: The epoch has none of its samples.
            SampleFailureError: One has failed, and nothing can take its place.
        """
        for number, (info, flat) in enumerate(zip(batch.infos, batch.samples, strict=False)):
            sample = LoadedSample(info, None, flat, [of_draw[number] for of_draw in batch.draws])
            if number < len(batch.sent):
                sample.sent = batch.sent[number]
            is_failed = batch.phase == "steps" and number == len(batch.sent)
            self._take(sample, error if is_failed else None, "steps")
        if batch.phase == "loading":
            rest = batch.infos[len(batch.samples) :]
            if isinstance(error, KnownSampleError):
                attempts = self._attempts(rest)
            elif isinstance(error, OddSampleError):
                self._take(LoadedSample(rest[0], None), ValueError(error.problem), "checks")
                attempts = self._attempts(rest[1:], batch.rest)
            else:
                attempts = self._attempts(rest, map(_raise, [error]))
            for attempt in attempts:
                self._take(*attempt)
            batch.read_ns = perf_counter_ns()
        self._fill_empty()
        batch.stepped_ns = perf_counter_ns()

    def replace(self, number: int, error: BaseException) -> None:
        """Put another sample in the place of one of `loaded` that does not go with the others, or leave it out."""
        instead = self._instead(self.loaded.pop(number), error, "checks")
        if instead is not None:
            self.loaded.insert(number, instead)
        self._fill_empty()

    # --- one after the other ----------------------------------------------------------------------

    def _attempts(
        self, infos: Sequence[types.SampleInfo], loaded: Iterator[object] | None = None
    ) -> Iterator[_Attempt]:
        """Load each sample, where nothing else is given by asking the input for them."""
        source, not_tried = self._chain.source, self._tolerance.not_tried
        indices = [source.get_sample_index(info) if not_tried else None for info in infos]
        tried = [info for info, index in zip(infos, indices, strict=True) if index not in not_tried]
        num_tried = 0
        for info, index in zip(infos, indices, strict=True):
            self._note(info)
            sample = LoadedSample(info, index)
            if index is not None and index in not_tried:
                yield sample, NotTriedError(not_tried[index]), "loading"
                continue
            num_tried += 1
            failure: BaseException | None = None
            try:
                if loaded is None:
                    loaded = iter(source.iter_batch(tried))
                flat = next(loaded)
            except StopIteration:
                return
            except BaseException as error:
                pass_on_interrupt(error)
                # One by one from here on: a provider that loads batches may have failed for another sample.
                loaded, failure = map(source, tried[num_tried:]), error
                if source.loads_batches:
                    flat, failure = self._loaded_alone(info)
            stage = "loading"
            if failure is None:
                try:
                    sample.flat = self._chain.check(flat)
                except ValueError as error:
                    failure, stage = error, "checks"
            yield sample, failure, stage

    def _loaded_alone(self, info: types.SampleInfo) -> tuple[object, BaseException | None]:
        try:
            return self._chain.source(info), None
        except BaseException as error:
            pass_on_interrupt(error)
            return None, error

    def _take(self, sample: LoadedSample, error: BaseException | None, stage: str) -> None:
        """Put a sample into the batch once it has gone through the steps; where it fails, what takes its place."""
        if error is None:
            self._note(sample.info)
            self._draw(sample)  # what fails there is about no sample
            try:
                self._apply_steps(sample)
            except BaseException as failure:
                pass_on_interrupt(failure)
                error, stage = failure, "steps"
        taken = sample if error is None else self._instead(sample, error, stage)
        if taken is not None:
            self.loaded.append(taken)

    def _draw(self, sample: LoadedSample) -> None:
        chain = self._chain
        if chain.draws is not None and not sample.numbers:
            of_one = chain.draws.of_batch(chain.source, [sample.info], [sample.flat])
            sample.numbers = [numbers[0] for numbers in of_one]

    def _apply_steps(self, sample: LoadedSample) -> None:
        if sample.sent is None:
            sample.sent = self._chain.apply(sample.flat, sample.numbers)

    # --- substitutes ------------------------------------------------------------------------------

    def _instead(self, failed: LoadedSample, error: BaseException, stage: str) -> LoadedSample | None:
        """Find what takes the place of a sample that has failed; None where it is skipped."""
        source, info, index = self._chain.source, failed.info, failed.index
        place = source.get_place(info)
        if index is None:
            index = None if place is None else place.sample_index
        failure = SampleFailureError(error, stage, index, info)
        if place is None or is_of_missing_package(error) or is_about_device(error):
            raise failure
        slot = info.idx_in_batch
        if slot not in self._failed_slots:
            self._failed_slots[slot] = _FailedSlot(place, source.substitutes(place))
        failed_slot = self._failed_slots[slot]
        failed_slot.failures.append(failure)
        failed_slot.substitute = None
        return None if self._tolerance.samples == "skip" else self._substitute(failed_slot, info)

    def _substitute(self, failed_slot: _FailedSlot, info: types.SampleInfo) -> LoadedSample:
        num_tried = 0
        self._note(info)
        for index in failed_slot.candidates:
            if index in self._tolerance.not_tried:
                continue
            num_tried += 1
            stage = "loading"
            try:
                flat = self._chain.source.load_in_place(failed_slot.place, index)
                stage = "checks"
                sample = LoadedSample(info, index, self._chain.check(flat))
                stage = "steps"
                self._draw(sample)
                self._apply_steps(sample)
            except BaseException as error:
                pass_on_interrupt(error)
                failure = SampleFailureError(error, stage, index, info)
                if is_of_missing_package(error) or is_about_device(error):
                    raise failure from error
                failed_slot.failures.append(failure)
                continue
            failed_slot.substitute = index
            return sample
        last = failed_slot.failures[-1]
        note = (
            f"No other sample could take the place of sample {failed_slot.place.sample_index}: {num_tried} more "
            f"were tried. Is there a fault that all samples have, e.g. a disk that is gone?"
        )
        raise SampleFailureError(last.cause, last.stage, last.sample_index, info, note)

    def _fill_empty(self) -> None:
        """Fill a batch in which all samples were skipped with one: without samples it would end the epoch.

        Raises:
            StopIteration: Nothing was skipped: the epoch has no such batch.
        """
        if self.loaded:
            return
        if not self._failed_slots:
            raise StopIteration
        failed_slot = next(reversed(self._failed_slots.values()))
        self.loaded = [self._substitute(failed_slot, failed_slot.failures[0].info)]

    # --- reports to the main process ----------------------------------------------------------------

    @property
    def substitutes(self) -> dict[int, int]:
        """Indices of the samples that were loaded in the place of those that were due, by number in ``loaded``."""
        found = {}
        for number, sample in enumerate(self.loaded):
            failed_slot = self._failed_slots.get(sample.info.idx_in_batch)
            if failed_slot is not None and failed_slot.substitute is not None:
                found[number] = failed_slot.substitute
        return found

    def write_records(self, asked: types.BatchInfo) -> None:
        """Write failures into the journal, of a batch by the numbers by which the pipeline has requested it."""
        tolerance = self._tolerance
        if not self._failed_slots:
            return
        failed = [
            self._record(failed_slot, failure)
            for failed_slot in self._failed_slots.values()
            for failure in failed_slot.failures
            if not isinstance(failure.cause, NotTriedError)
        ]
        tolerance.journal.write({"epoch_idx": asked.epoch_idx, "iteration": asked.iteration, "failed": failed})

    def _record(self, failed_slot: _FailedSlot, failure: SampleFailureError) -> dict[str, Any]:
        reason, message = self._chain.describe(failure)
        self._tolerance.num_messages += 1
        substitute = failed_slot.substitute
        if failure.sample_index != failed_slot.place.sample_index:
            outcome, substitute = f"was to take the place of sample {failed_slot.place.sample_index}", None
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
            "epoch": failed_slot.place.epoch,
            "batch": failed_slot.place.batch,
            "slot": failure.info.idx_in_batch,
            "substitute": substitute,
            "message": message if self._tolerance.num_messages <= _MOST_MESSAGES else reason,
        }


def _raise(error: BaseException) -> NoReturn:
    raise error


def description_of(source: Any, sample_index: int | None) -> str:
    """Get the description of a sample by its data provider; empty where it has none."""
    if sample_index is not None:
        with decorating():
            return str(source.describe_sample(sample_index))
    return ""
