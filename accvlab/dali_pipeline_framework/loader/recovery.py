# SPDX-License-Identifier: Apache-2.0
"""The pipeline that a loader runs, its replacement, and how a loader goes on after a fault.

It goes on at exactly the batch after the last one that was delivered: order and draws are arithmetic, so a
pipeline that was lost can be replaced by another one of the same arguments, which begins at any batch and delivers
the same, bit for bit.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable
from typing import Any, TypeAlias, cast

from ..cluster.actors import ActorUse
from ..cluster.ray_actors import Actors
from ..cluster.ray_loading import RayLoading
from ..engine.interrupts import Interrupted, hold
from ..engine.sample_faults import SampleFaults
from ..engine.structured_pipeline import StructuredPipeline
from ..errors import (
    ClosedError,
    DeviceError,
    FrameworkError,
    GraphError,
    NotSupportedError,
    QuarantineError,
    SettingError,
    WorkerDiedError,
    WorkerStartError,
)
from ..faults.fault_policy import FailedSamples, FaultPolicy
from ..pipeline.dali_structured_output_iterator import DALIStructuredOutputIterator
from ..pipeline.output_conversion import OutputConverter
from ..pipeline.pipeline import PipelineDefinition, PipelineInput
from ..sampling.arithmetic.last_batch import SampleCounts
from ..sources.given_order import GivenOrderSampler
from ..sources.input_adapter import InputAdapter
from ..sources.planned_input import PlannedInput
from .input_binding import LoaderInput
from .loader_settings import LoaderSettings
from .progress import LoopProgress, Position
from .state import NO_SEGMENTS, EpochSegments
from .torch_interface import with_pinning

_Made: TypeAlias = tuple[StructuredPipeline, SampleFaults | None, PipelineInput]


class LoaderPipeline:
    """Owns a pipeline and the iterator over it, and counts its batches.

    Another pipeline takes its place where an epoch goes on with other batch sizes: only at the start of a pipeline
    can workers be told that.

    Attributes:
        pipeline: The present pipeline.
        iterator: The iterator over it; None until it was started.
        data_input: What workers load: the input of the loader, or that of an epoch that goes on.
        sample_faults: Handling of samples that fail in the present pipeline; None where they are not known.
        is_closed: Whether the loader was closed.
        is_lost: Whether the pipeline has failed, and is to be replaced before it is used again.
        bound: The input as the loader has it.
        segments: How the epoch was begun.
        failed: The samples that have failed so far.
        given_order: What is run for each epoch where the order is given by the user; else None.
    """

    def __init__(
        self,
        settings: LoaderSettings,
        definition: PipelineDefinition,
        bound: LoaderInput,
        num_workers: int,
        reports_samples: bool,
    ) -> None:
        """Make the pipeline; nothing is started.

        Args:
            settings: Settings of the loader.
            definition: Input and steps.
            bound: The input as the loader has it.
            num_workers: Number of worker processes.
            reports_samples: Whether workers report which samples they load.

        Raises:
            SettingError: An argument is out of its range.
            FormatError: The steps do not fit the data.
            DeviceError: A step needs a GPU, and none is usable.
        """
        self._definition, self.bound, self._reports_samples = definition.evened_out(), bound, reports_samples
        self._arguments = settings.arguments_of_pipeline(bound.batch_size, num_workers)
        self._make_iterator = functools.partial(
            DALIStructuredOutputIterator,
            output_type=settings.output_type,
            ragged=settings.ragged,
            stack_arrays=settings.stack_arrays,
            post_process_func=with_pinning(settings.post_process_func, settings.pin_memory),
        )
        self.failed = FailedSamples(settings.faults)
        self._actors = None if settings.workers is None else Actors(settings.workers, settings.faults.restarts)
        self._loading: RayLoading | None = None
        self._steps = steps = settings.steps_per_epoch
        planned = InputAdapter(bound.data_input).planned
        sampler = None if planned is None else planned.sampler
        self.given_order = sampler.indices if isinstance(sampler, GivenOrderSampler) else None
        self._steps_of_stream = (steps or 0) if bound.is_endless else None
        self.is_closed = False
        self.iterator: DALIStructuredOutputIterator | None = None
        self._use(NO_SEGMENTS, self._make(NO_SEGMENTS))
        # Made again by the iterator: unknown values are refused now.
        OutputConverter(
            output_format=self.pipeline.output_blueprint.format,
            delivery=self.pipeline.delivery,
            is_stacked=settings.stack_arrays,
            device_id=self.pipeline.device_id,
            output_type=settings.output_type,
            ragged=settings.ragged,
        )

    def _use(self, segments: EpochSegments, made: _Made) -> None:
        self.segments = segments
        self.is_lost = False
        self.pipeline, self.sample_faults, self.data_input = made
        self._num_batches: dict[int, int | None] = {}

    def _make(self, segments: EpochSegments) -> _Made:
        data_input = self.bound.data_input
        if segments[1]:
            data_input = cast(PlannedInput, data_input).continued(*segments)
        pipeline = self._definition.with_input(data_input).get_dali_pipeline(**self._arguments)
        if not isinstance(pipeline, StructuredPipeline):
            raise SettingError("A loader cannot use DALI's debug mode. Use get_dali_pipeline(debug=True).")
        if self._reports_samples:
            pipeline.control.request_samples()
        pipeline.is_of_loader = True
        pipeline.limits = (self.failed.policy.blocked_after, self.failed.policy.stacks_after)
        sample_faults = None
        if callable(data_input):
            self._require_own(cast(PlannedInput, data_input))
            pipeline.sample_faults = sample_faults = SampleFaults(pipeline, self.failed)
        if self._actors is not None:
            pipeline.cluster = self._loading = RayLoading(pipeline, self._actors, self._reports_samples)
        return pipeline, sample_faults, data_input

    def _require_own(self, source: PlannedInput) -> None:
        """Refuse lists of failed samples that cannot be of this data set."""
        num_samples = source.provider.get_number_of_samples() if self.failed.num_excluded else 0
        foreign = max(self.failed.not_tried, default=-1)
        if self.failed.num_excluded and foreign >= num_samples:
            problem = f"`exclude` lists sample {foreign}"
            advice = "Was the list made of other data?"
            raise QuarantineError(f"{problem}, but the data set has the samples 0 .. {num_samples - 1}. {advice}")

    def start(self) -> None:
        """Start the worker processes, where that was not done before.

        Raises:
            ClosedError: The loader was closed.
        """
        self.require_open()
        if self.iterator is not None:
            return
        self.iterator = self._make_iterator(pipeline=self.pipeline)

    def replace(self, segments: EpochSegments) -> None:
        """Use a new pipeline that goes on with an epoch; it is started if the old one was."""
        made = self._make(segments)
        was_started = self._close_pipeline()
        self._use(segments, made)
        if was_started:
            self.start()

    def renew(self, position: Position) -> None:
        """Replace a pipeline that was lost by one of the same arguments, started, that goes on at a position.

        Raises:
            NotSupportedError: The input cannot be positioned.
            WorkerStartError: The workers could not be started; another call tries it again.
        """
        self.bound.require_resumable()
        self.is_lost = True
        self._close_pipeline()
        self._use(self.segments, self._make(self.segments))
        self.is_lost = True
        self.start()
        self.go_to(position)
        self.is_lost = False

    def make_order(self, epoch: int) -> None:
        """Make the order of an epoch whose loop begins, where the user gives it."""
        if self.given_order is not None:
            self.given_order.begin(epoch)
            self._num_batches.clear()

    def go_to(self, position: Position) -> None:
        """Have the input, a callable, go on at a position."""
        self.pipeline.begin_epoch(*self.as_counted_by_input(position))
        if self.given_order is not None:  # now that no worker loads what is left of another epoch
            self.given_order.share()

    def as_counted_by_input(self, position: Position) -> tuple[int, int]:
        """Epoch and batch of a position as the input counts them: without epochs where it has none."""
        if self._steps_of_stream is not None:
            return 0, position.epoch * self._steps_of_stream + position.batch
        return position.epoch, position.batch

    @property
    def num_actors_lost(self) -> int:
        """How many actors were started anew, of all pipelines."""
        return 0 if self._actors is None else self._actors.num_lost

    def actor_uses(self) -> tuple[ActorUse, ...]:
        """What the actors have done that load for the present pipeline; none where worker processes load."""
        return () if self._loading is None else tuple(self._loading.uses())

    # --- batches of an epoch ------------------------------------------------------------------------
    #
    # None where a number is not known.

    def num_batches(self, epoch: int) -> int | None:
        """Number of batches of an epoch on all shards."""
        if self._steps is not None:
            return self._steps
        if epoch not in self._num_batches:  # to find out, a stateful sampler is played to its end
            self._num_batches[epoch] = InputAdapter(self.data_input).num_batches(epoch)
        return self._num_batches[epoch]

    def num_batches_here(self, epoch: int) -> int | None:
        """Number of batches of an epoch on this shard."""
        if self._steps is not None:
            return self.num_batches(epoch)
        return InputAdapter(self.data_input).num_batches_here(epoch)

    def sample_counts(self, epoch: int) -> SampleCounts | None:
        """Counts of delivered, dropped and repeated samples of an epoch, over all shards."""
        return InputAdapter(self.data_input).sample_counts(epoch)

    # --- closing ----------------------------------------------------------------------------------

    def require_open(self) -> None:
        """Raise a `ClosedError` where the loader was closed."""
        if self.is_closed:
            raise self.closed_error()

    @staticmethod
    def closed_error() -> ClosedError:
        """Make the error for the use of a closed loader."""
        return ClosedError("The loader was closed. Create a new one.")

    def end_wait(self) -> None:
        """Have a thread that waits for workers wait no more: it gets an error."""
        self.pipeline.end_wait()

    def close(self) -> None:
        """End the worker processes and free their memory."""
        self.is_closed = True
        self._close_pipeline()
        if self._actors is not None:
            self._actors.close()

    def _close_pipeline(self) -> bool:
        """Close the present pipeline; return whether it was started."""
        iterator, self.iterator = self.iterator, None
        if iterator is not None:
            iterator.close()
        self.pipeline.close()
        return iterator is not None


_logger = logging.getLogger(__name__)

_MOST_STARTS = 4  # in a row: what fails more often, fails always


class Recovery:
    """Gets the batches of a loader, and replaces its pipeline where that was lost.

    Attributes:
        num_restarts: How often the pipeline was replaced because of a fault of the workers.
    """

    def __init__(self, run: LoaderPipeline, progress: LoopProgress, faults: FaultPolicy) -> None:
        """Set up for a pipeline, the position in it, and a policy."""
        self._run = run
        self._progress = progress
        self._faults = faults
        self.num_restarts = 0
        self._num_received = 0  # batches that have left pipelines, in all
        self._loaded_at_death: dict[tuple[int, int, int], int] = {}
        self._failed_in_graph: int | None = None
        self._left_out: WorkerDiedError | None = None  # the loop goes on after the batch of this error

    def _obstacle(self) -> NotSupportedError | None:
        """Why no new pipeline can begin where the old one stood: with iterables."""
        try:
            self._run.bound.require_resumable()
        except NotSupportedError as error:
            return error
        return None

    def _can_go_on(self) -> bool:
        """Whether a new pipeline can begin where the old one stood when it failed."""
        return self._obstacle() is None

    def next_batch(self) -> Any:
        """Get the next batch.

        Where this raises, the loader stays usable as far as its input can be positioned: the next call goes on
        after a batch that failed by itself, and at the batch that was due where the workers have failed.
        """
        run, progress = self._run, self._progress
        if run.is_lost:
            self.renew()
        while True:
            pipeline: Any = run.pipeline
            num_before = pipeline.num_delivered
            pipeline.watch.waiting_since = time.monotonic()
            try:
                batch = run.iterator.next_batch()  # type: ignore[union-attr]
                hold()
                return batch
            except FrameworkError as error:
                if run.is_closed:
                    raise
                # Else the batch could not be converted, that is all.
                if pipeline.failure is None or not self._goes_on(error):
                    raise
            except Interrupted:  # nobody gets the batch: another pipeline makes it again
                if self._can_go_on():
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
        obstacle = self._obstacle()
        if obstacle is not None:
            if isinstance(error, WorkerDiedError) and self._faults.restarts:
                raise WorkerDiedError(f"{error} Restarts are of no help: {obstacle}") from error.__cause__
            return False
        if isinstance(error, ClosedError):  # the wait for a batch was interrupted
            return True
        self._run.is_lost = True
        if isinstance(error, WorkerDiedError):
            return self._goes_on_after_death(error)
        if isinstance(error, DeviceError):  # whatever the batch: the next call tries it again
            return self._may_restart(error)
        faults = self._run.sample_faults
        if faults is not None and faults.resolve(error):  # samples that failed were found, and are not tried again
            return True
        if isinstance(error, GraphError) and not error.sample_indices and self._may_restart(error):
            return True
        self._progress.leave_pipeline()
        return False

    def _goes_on_after_death(self, error: WorkerDiedError) -> bool:
        run = self._run
        if run.pipeline.held_back is not None and error is run.pipeline.held_back[1]:  # its batch is due
            return self._goes_on_before(error)
        _, batch = run.as_counted_by_input(self._progress.pipeline)
        fatal = [
            place
            for place in error.loading
            if error.is_repeated or self._num_received < self._loaded_at_death.get(place, 0)
        ]
        # How many batches will have been received when that of the sample is.
        self._loaded_at_death = {
            **{place: number for place, number in self._loaded_at_death.items() if number > self._num_received},
            **{place: self._num_received + place[1] - batch + 1 for place in error.loading},
        }
        if not fatal:
            return self._may_restart(error) or self._goes_on_before(error)
        index = error.loading[fatal[0]]
        faults, reason = run.sample_faults, f"It has ended two workers. {error}"
        if index is not None and faults is not None and faults.note_fatal(index, fatal[0], reason):
            return True
        name = "A sample" if index is None else f"Sample {index}"
        advice = "The loader can go on after its batch; with `faults`, another one can take its place"
        epoch, batch, slot = fatal[0]
        problem = f"{name} (epoch {epoch}, batch {batch}, slot {slot}) has ended two workers that loaded it"
        twice = WorkerDiedError(f"{problem}. {advice}. The second time: {error}")
        twice.loading = {place: index for place, index in error.loading.items() if place in fatal}
        self._left_out = twice
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
        if self.num_restarts + self._run.num_actors_lost >= (self._faults.restarts or 0):
            return False
        if isinstance(error, GraphError) and self._failed_in_graph == self._num_received:
            return False
        self._failed_in_graph = self._num_received if isinstance(error, GraphError) else None
        self.num_restarts += 1
        _logger.warning("%s\nRestart %d of at most %d.", error, self.num_restarts, self._faults.restarts)
        return True

    def start(self) -> None:
        """Start the pipeline, again where a worker was killed."""
        self._started(self._run.start, lambda error: error.was_killed)

    def renew(self) -> None:
        """Replace the pipeline by one that goes on at the position of the loop."""
        held_back = self._run.pipeline.held_back
        self._started(lambda: self._run.renew(self._progress.pipeline), lambda _: True)
        if held_back is not None:
            self._run.pipeline.hold_back(*held_back)

    def _started(self, start: Callable[[], None], may_try_again: Callable[[WorkerStartError], bool]) -> None:
        for _ in range(_MOST_STARTS - 1):
            try:
                start()
                return
            except WorkerStartError as error:
                if not may_try_again(error) or not self._may_restart(error):
                    raise
        start()

    def restore(self) -> None:
        """Before a new loop: replace the pipeline where it was lost."""
        run = self._run
        failure, held_back = run.pipeline.failure, run.pipeline.held_back
        run.pipeline.held_back = None
        if run.is_lost or held_back is not None or (failure is not None and self._can_go_on()):
            self.renew()

    def go_to(self, position: Position) -> None:
        """Have the pipeline go on at a position. What was prepared before is thrown away, also where it fails."""
        run = self._run
        if run.is_lost:  # and its replacement not started: the next batch has it begin at the position of the loop
            return
        pipeline: Any = run.pipeline
        pipeline.watch.waiting_since = time.monotonic()
        try:
            run.go_to(position)
        except FrameworkError:  # of a batch that was not requested
            if not self._can_go_on():
                raise
            run.renew(position)
        except Interrupted:
            run.is_lost = self._can_go_on()
            raise
        finally:
            pipeline.watch.waiting_since = None
