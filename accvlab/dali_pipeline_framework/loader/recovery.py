# SPDX-License-Identifier: Apache-2.0
"""How a loader goes on after a fault: at exactly the batch behind the last one that was delivered.

Order and draws are arithmetic, so a pipeline that was lost can be replaced by another one of the same arguments,
which begins at any batch and delivers the same, bit for bit.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ..engine.interrupts import Interrupted
from ..engine.sample_faults import SampleFaults
from ..engine.structured_pipeline import StructuredPipeline
from ..errors import (
    ClosedError,
    FrameworkError,
    GraphError,
    NotSupportedError,
    QuarantineError,
    SettingError,
    WorkerDiedError,
    WorkerStartError,
)
from ..faults.failed_samples import FailedSamples
from ..faults.fault_policy import FaultPolicy
from ..sources.planned_input import PlannedInput
from .input_binding import LoaderInput

if TYPE_CHECKING:
    from ..faults.fault_policy import FaultPolicy
    from .pipeline_owner import LoaderPipeline
    from .states.position import LoopProgress, Position

_T = TypeVar("_T")

_logger = logging.getLogger(__name__)

_MOST_STARTS = 4  # in a row: what fails more often, fails always


class Recovery:
    """Gets the batches of a loader, and replaces its pipeline where that was lost.

    Attributes:
        num_restarts: How often the pipeline was replaced because of a fault of the workers.
    """

    def __init__(self, run: LoaderPipeline, progress: LoopProgress, faults: FaultPolicy) -> None:
        """Set up for a pipeline, where the loop stands in it, and what to do about faults."""
        self._run = run
        self._progress = progress
        self._faults = faults
        self.num_restarts = 0
        self._num_received = 0  # batches that have left pipelines, in all
        self._loaded_at_death: dict[tuple[int, int, int], int] = {}
        self._failed_in_graph: int | None = None
        self._left_out: WorkerDiedError | None = None  # the loop goes on behind the batch of this error

    def _can_go_on(self, error: BaseException | None) -> bool:
        """Whether a new pipeline can begin where the old one stood when it failed.

        Not with iterables and streams, and not where a batch of native readers failed: they cannot step over it.
        """
        try:
            self._run.require_resumable()
        except NotSupportedError:
            return False
        return isinstance(error, WorkerDiedError | ClosedError) or not self._run.has_native_readers

    def next_batch(self) -> Any:
        """Get the next batch.

        Where this raises, the loader stays usable as far as its input can be positioned: the next call goes on
        behind a batch that failed by itself, and at the batch that was due where the workers have failed.
        """
        run, progress = self._run, self._progress
        if run.is_lost:
            self.renew()
        while True:
            pipeline: Any = run.pipeline
            num_before = pipeline.num_delivered
            pipeline.watch.waiting_since = time.monotonic()
            try:
                return run.iterator.next_batch()  # type: ignore[union-attr]
            except FrameworkError as error:
                # Else the batch could not be converted, that is all.
                if pipeline.failure is None or not self._goes_on(error):
                    raise
            except Interrupted:  # nobody gets the batch: another pipeline makes it again
                if self._can_go_on(None):
                    run.is_lost = True
                    num_before = pipeline.num_delivered
                raise
            finally:
                pipeline.watch.waiting_since = None
                if pipeline.num_delivered > num_before:  # also where the batch could not be converted
                    progress.leave_pipeline()
                    self._num_received += 1
            self.renew()

    def _goes_on(self, error: FrameworkError) -> bool:
        """Decide whether to go on without a word to the loop, and else prepare the next call."""
        if isinstance(error, GraphError) and self._run.reads_one_ahead():
            return True
        if not self._can_go_on(error):
            if isinstance(error, WorkerDiedError) and self._faults.restarts:
                self._explain_no_restart(error)
            return False
        if isinstance(error, ClosedError):  # the wait for a batch was interrupted
            return True
        self._run.is_lost = True
        if isinstance(error, WorkerDiedError):
            return self._goes_on_after_death(error)
        if self._run.resolves(error):  # samples that failed were found, and will not be tried again
            return True
        if isinstance(error, GraphError) and not error.sample_indices and self._may_restart(error):
            return True
        self._progress.leave_pipeline()
        return False

    def _explain_no_restart(self, error: WorkerDiedError) -> None:
        try:
            self._run.require_resumable()
        except NotSupportedError as reason:
            raise WorkerDiedError(f"{error} Restarts are of no help: {reason}") from error.__cause__

    def _goes_on_after_death(self, error: WorkerDiedError) -> bool:
        run = self._run
        if run.pipeline.held_back is not None and error is run.pipeline.held_back[1]:  # its batch is due
            return self._goes_on_before(error)
        _, batch = run.as_counted_by_input(self._progress.pipeline)
        deadly = [place for place in error.loading if self._num_received < self._loaded_at_death.get(place, 0)]
        # How many batches will have been received when that of the sample is.
        self._loaded_at_death = {
            **{place: number for place, number in self._loaded_at_death.items() if number > self._num_received},
            **{place: self._num_received + place[1] - batch + 1 for place in error.loading},
        }
        if not deadly:
            return self._may_restart(error) or self._goes_on_before(error)
        index = error.loading[deadly[0]]
        if index is not None and run.gives_up(index, deadly[0], f"It has ended two workers. {error}"):
            return True
        name = "A sample" if index is None else f"Sample {index}"
        if run.has_native_readers:
            advice = "Native readers cannot step over its batch, so the next call tries it again"
        else:
            advice = "The loader can go on behind its batch; with `faults`, another one can take its place"
        epoch, batch, slot = deadly[0]
        twice = WorkerDiedError(
            f"{name} (epoch {epoch}, batch {batch}, slot {slot}) has ended two workers that loaded it. {advice}. "
            f"The second time: {error}"
        )
        twice.loading = {place: index for place, index in error.loading.items() if place in deadly}
        self._left_out = None if run.has_native_readers else twice
        if self._goes_on_before(twice):
            return True
        raise twice from None

    def _goes_on_before(self, error: WorkerDiedError) -> bool:
        """Whether batches are due before the first one that the error is about: they are delivered first."""
        run = self._run
        due = run.as_counted_by_input(self._progress.pipeline)
        first = min((place[:2] for place in error.loading), default=due)
        if first > due:
            run.pipeline.held_back = first, error  # `renew` hands it on
            return True
        run.pipeline.held_back = None
        if error is self._left_out:
            self._progress.leave_pipeline()
        return False

    def _may_restart(self, error: FrameworkError) -> bool:
        """Count a restart, where one is left; but not for a graph that has failed twice on the same batch."""
        if self.num_restarts >= self._faults.restarts:
            return False
        if isinstance(error, GraphError) and self._failed_in_graph == self._num_received:
            return False
        self._failed_in_graph = self._num_received if isinstance(error, GraphError) else None
        self.num_restarts += 1
        _logger.warning("%s\nRestart %d of at most %d.", error, self.num_restarts, self._faults.restarts)
        return True

    def start(self) -> bool:
        """Start the pipeline, again where a worker was killed; return whether it was not started before."""
        return self._started(self._run.start, lambda error: error.was_killed)

    def renew(self) -> None:
        """Replace the pipeline by one that goes on where the loop stands."""
        held_back = self._run.pipeline.held_back
        self._started(lambda: self._run.renew(self._progress.pipeline), lambda _: True)
        if held_back is not None:
            self._run.pipeline.hold_back(*held_back)

    def _started(self, start: Callable[[], _T], may_try_again: Callable[[WorkerStartError], bool]) -> _T:
        for _ in range(_MOST_STARTS - 1):
            try:
                return start()
            except WorkerStartError as error:
                if not may_try_again(error) or not self._may_restart(error):
                    raise
        return start()

    def restore(self) -> None:
        """Before a new loop: replace the pipeline where it was lost."""
        run = self._run
        failure, held_back = run.pipeline.failure, run.pipeline.held_back
        run.pipeline.held_back = None
        if run.is_lost or held_back is not None or (failure is not None and self._can_go_on(failure)):
            self.renew()

    def go_to(self, position: Position) -> None:
        """Have the pipeline go on at a position. What was prepared before is thrown away, also where it fails."""
        run = self._run
        if run.is_lost:  # and its replacement not started: the next batch has it begin where the loop stands
            return
        pipeline: Any = run.pipeline
        pipeline.watch.waiting_since = time.monotonic()
        try:
            run.go_to(position)
        except FrameworkError:  # of a batch that nobody has asked for
            if not self._can_go_on(run.pipeline.failure):
                raise
            run.renew(position)
        except Interrupted:
            run.is_lost = self._can_go_on(None)
            raise
        finally:
            pipeline.watch.waiting_since = None


def check_sample_policy(bound: LoaderInput, policy: FaultPolicy) -> None:
    """Check that the input of a loader goes with a policy.

    Raises:
        SettingError: The input, its order, or its last batches do not go with it.
    """
    if policy.samples == "raise":
        return
    what = f"samples={policy.samples!r}"
    source = bound.data_input
    if not isinstance(source, PlannedInput) or bound.parts.whole is not source:
        raise SettingError(
            f"{what} of a FaultPolicy needs to know which samples form a batch: a data provider with a sampler of "
            f"this package (DataLoader(provider, ...) or SamplerInputCallable), got "
            f"{type(bound.parts.whole).__name__}."
        )
    if type(source).__call__ is not PlannedInput.__call__:
        raise SettingError(
            f"{what} of a FaultPolicy cannot load another sample in the place of one: {type(source).__name__} "
            f"loads samples in a way of its own (it defines `__call__`)."
        )
    if policy.samples == "skip":
        _require_skippable(source)


def _require_skippable(source: PlannedInput) -> None:
    sampler = source.sampler
    if sampler.has_slots or sampler.knows_sequences or not sampler.is_epoch_based:
        raise SettingError(
            f"samples='skip' leaves samples out of batches, but {type(sampler).__name__} delivers sequences, "
            f"clips or an endless stream, where each slot goes on from batch to batch. Use 'replace' (by a frame "
            f"next to it)."
        )
    if not source.delivers_partial_batches:
        raise SettingError(
            f"samples='skip' makes batches smaller, which last_batch={sampler.last_batch!r} does not allow. Use "
            f"last_batch='partial', or 'replace'."
        )


def follow_faults(pipeline: StructuredPipeline, failed: FailedSamples, bound: LoaderInput) -> None:
    """Have a pipeline, before it is started, treat samples that fail as the policy says."""
    if bound.is_read_natively or not callable(bound.data_input) or bound.parts.native:
        return
    if failed.num_excluded:
        _require_own(failed, bound.data_input)
    pipeline.sample_faults = SampleFaults(pipeline, failed)


def _require_own(failed: FailedSamples, source: PlannedInput) -> None:
    """Refuse lists of failed samples that cannot be of this data set."""
    num_samples = source.provider.get_number_of_samples()
    foreign = max(failed.not_tried)
    if foreign >= num_samples:
        raise QuarantineError(
            f"`exclude` lists sample {foreign}, but the data set has the samples 0 .. {num_samples - 1}. Was the "
            f"list made of other data?"
        )
