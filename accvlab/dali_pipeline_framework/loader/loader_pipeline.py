# SPDX-License-Identifier: Apache-2.0
"""The workers of a loader, the pipeline that they feed, and its replacement where a batch fails in the graph.

::

    pool ─── batches, in order ──> `FedSource` ──> DALI ──> iterator ──> loop

A pipeline is cheap to make again, and the batches that it had are still with the pool. So what fails, or is
interrupted, in the pipeline costs a new pipeline that begins at the batch which is due; workers never notice.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Sequence
from typing import Any, cast

from ..engine.dali.texts import is_about_lost_gpu
from ..engine.input_sources import FedSource
from ..engine.structured_pipeline import StructuredPipeline
from ..errors import (
    ClosedError,
    DeviceError,
    FrameworkError,
    GraphError,
    NotSupportedError,
    QuarantineError,
    SettingError,
)
from ..faults.fault_policy import FailedSamples
from ..pipeline.chain import DEFAULT_DEPTH
from ..pipeline.dali_structured_output_iterator import DALIStructuredOutputIterator
from ..pipeline.output_conversion import OutputConverter
from ..pipeline.pipeline import PipelineDefinition, PipelineInput
from ..sampling.arithmetic.last_batch import SampleCounts
from ..sources.given_order import GivenOrderSampler
from ..sources.input_adapter import InputAdapter
from ..sources.planned_input import PlannedInput
from ..threads import Job, in_new_thread
from ..workers.cluster.ray_actors import RayActors
from ..workers.loading import BatchLoader
from ..workers.local import LocalWorkers
from ..workers.plans import BatchPlan
from ..workers.pool.failures import Refused
from ..workers.pool.pool import Batch, Pool, PoolSettings, evening_depth
from ..workers.pool.supervisor import Workers
from ..workers.process_setup import comes_from_signal_handler, raised_by_signal_handler
from .input_binding import LoaderInput
from .loader_settings import LoaderSettings
from .progress import LoopProgress, Position
from .state import NO_SEGMENTS, EpochSegments
from .torch_interface import with_pinning

_AHEAD_PER_ACTOR = 4  # batches: of those on their way and those that even out how long samples take


class LoaderPipeline:
    """Owns the workers, the pipeline that they feed, and the iterator over it.

    Other workers take their place where an epoch goes on with other batch sizes.

    Attributes:
        pipeline: The present pipeline.
        iterator: The iterator over it; None until it was started.
        data_input: What is loaded: the input of the loader, or that of an epoch that goes on.
        pool: The workers.
        is_closed: Whether the loader was closed.
        has_started: Whether workers or a pipeline were started.
        is_left: Whether they are in the process from which this one was forked.
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
        progress: LoopProgress,
    ) -> None:
        """Make the pipeline; nothing is started but the imports of a fork server.

        Args:
            settings: Settings of the loader.
            definition: Input and steps.
            bound: The input as the loader has it.
            num_workers: Number of worker processes.
            progress: The position of the loader.

        Raises:
            SettingError: An argument is out of its range.
            FormatError: The steps do not fit the data.
            DeviceError: A step needs a GPU, and none is usable.
        """
        self._definition, self._settings, self.bound, self._progress = definition, settings, bound, progress
        self._num_workers = num_workers
        own = {name: getattr(settings, name) for name in ("device_id", "seed", "num_threads")}
        self._arguments = {"batch_size": bound.batch_size, **own, **(settings.pipeline_arguments or {})}
        outputs: Any = {name: getattr(settings, name) for name in ("output_type", "ragged")}
        self._make_iterator = functools.partial(
            DALIStructuredOutputIterator,
            **outputs,
            stack_arrays=settings.stack_arrays,
            gpu_views=settings.gpu_views,
            post_process_func=with_pinning(settings.post_process_func, settings.pin_memory),
        )
        self.failed = FailedSamples(settings.faults)
        self._steps = steps = settings.steps_per_epoch
        planned = InputAdapter(bound.data_input).planned
        sampler = None if planned is None else planned.sampler
        self.given_order = sampler.indices if isinstance(sampler, GivenOrderSampler) else None
        self._steps_of_stream = (steps or 0) if bound.is_endless else None
        self._num_batches: dict[int, int | None] = {}
        self._failed_in_graph: tuple[int, int] | None = None
        self.is_closed = self.is_lost = self.has_started = self.is_left = False
        self.iterator: DALIStructuredOutputIterator | None = None
        self.segments = NO_SEGMENTS
        self._source: Any = None
        self._renewal: tuple[Job, tuple[int, int]] | None = None  # with where it begins
        self.pipeline: StructuredPipeline
        self._stream_at = (0, 0)
        self.data_input = bound.data_input
        if planned is not None:
            self._require_own(planned)
        self._use(self._made(self.data_input))
        self.pool = self._made_pool()
        # Made again by the iterator: unknown values are refused now.
        OutputConverter(
            output_format=self.pipeline.output_blueprint.format,
            delivery=self.pipeline.delivery,
            is_stacked=settings.stack_arrays,
            device_id=self.pipeline.device_id,
            **outputs,
        )

    @property
    def has_actors(self) -> bool:
        """Whether actors of a cluster load."""
        return self._settings.workers is not None

    # --- making -----------------------------------------------------------------------------------

    def _made(self, data_input: PipelineInput) -> StructuredPipeline:
        definition = self._definition.with_input(data_input)
        pipeline = definition.fed_pipeline(self._settings.worker_init_fn, **self._arguments)
        if not isinstance(pipeline, StructuredPipeline):
            raise SettingError("A loader cannot use DALI's debug mode. Use get_dali_pipeline(debug=True).")
        return pipeline

    def _use(self, pipeline: StructuredPipeline) -> None:
        source = cast(FedSource, pipeline.fed)
        if self._source is not None:
            source.received, pipeline.times = self._source.received, self.pipeline.times
        self.pipeline, self._source = pipeline, source

    def _made_pool(self) -> Pool:
        settings, policy, of_cluster = self._settings, self.failed.policy, self._settings.workers
        plan = BatchPlan(self.data_input, self.bound.batch_size)
        loading, num_workers = self._source.plan, self._num_workers
        loading.checks_images, loading.tries_alone = policy.checks_images, policy.samples != "raise"
        restarts: int | None = policy.restarts or 0
        workers: Workers | BatchLoader = BatchLoader(loading)
        if of_cluster is not None:
            if not plan.is_callable:
                raise NotSupportedError(
                    f"`workers` loads what is a function of the position: a data provider with a sampler, or a "
                    f"callable, got {loading.name}. Load it in worker processes (`num_workers`)."
                )
            workers, num_workers = RayActors(loading, of_cluster), of_cluster.num_actors
            restarts = policy.restarts
        elif num_workers:
            workers = local = LocalWorkers(loading, settings.start_method, policy.blocked_after)
            local.import_ahead()
        depth = settings.prefetch_queue_depth or DEFAULT_DEPTH
        if settings.prefetch_queue_depth is None and plan.is_callable:
            depth = max(depth, evening_depth(num_workers, self.bound.batch_size))
        window = max(depth, num_workers)
        if of_cluster is not None and settings.prefetch_queue_depth is None:
            window = of_cluster.batches_ahead or max(window, _AHEAD_PER_ACTOR * num_workers)
        limits = restarts, policy.blocked_after, policy.stacks_after
        pool_settings = PoolSettings(num_workers, window, settings.prefetch_bytes, *limits)
        return Pool(plan, workers, pool_settings, self.failed)

    def _require_own(self, source: PlannedInput) -> None:
        """Refuse lists of failed samples that cannot be of this data set."""
        num_samples = source.provider.get_number_of_samples() if self.failed.num_excluded else 0
        foreign = max(self.failed.not_tried, default=-1)
        if self.failed.num_excluded and foreign >= num_samples:
            problem = f"`exclude` lists sample {foreign}"
            advice = "Was the list made of other data?"
            raise QuarantineError(f"{problem}, but the data set has the samples 0 .. {num_samples - 1}. {advice}")

    def start(self) -> None:
        """Start the workers and the pipeline, where that was not done before.

        Raises:
            ClosedError: The loader was closed.
            WorkerStartError: The workers cannot be started.
        """
        self.require_open()
        if self.iterator is not None:
            return
        self.has_started = True
        source = self._source
        # A proxy: DALI keeps the source in cycles of references, and the workers are to end at once.
        source.pool, source.failed = weakref.proxy(self.pool), self.failed
        if self._settings.stack_arrays:
            self.pipeline.order_by_sample()  # before workers get the layout
        self.pool.start()
        self.iterator = self._make_iterator(pipeline=self.pipeline)
        source.begin(self._due)

    def replace(self, segments: EpochSegments) -> None:
        """Go on with an epoch that was begun with other batch sizes, with other workers."""
        self.require_open()
        self._end_renewal()
        data_input: Any = self.bound.data_input
        if segments[1]:
            data_input = data_input.continued(*segments)
        pipeline = self._made(data_input)  # where that fails, the present one goes on
        was_started = self._close_pipeline()
        self.pool.close()
        self.segments, self.data_input = segments, data_input
        self._num_batches.clear()
        self._use(pipeline)
        self.pool = self._made_pool()
        self.is_lost = False
        if was_started:
            self.start()

    def _renew(self) -> None:
        """Replace a pipeline that was lost by one that goes on at the position of the loop; the workers stay.

        Another thread does that: no signal handler runs in it, so that an exception of one leaves nothing half
        made. The next call then waits for it.
        """
        self.pool.start()  # workers end with the thread that starts them
        if self._renewal is None or self._renewal[1] != self._due:
            self._end_renewal()
            self._renewal = Job(self._make_again, in_new_thread), self._due
        renewal = self._renewal[0]
        renewal.wait()
        self._renewal, self.is_lost = None, renewal.error is not None
        if renewal.error is not None:
            raise renewal.error

    def _end_renewal(self) -> None:
        if self._renewal is not None:
            self._renewal[0].wait()

    def _make_again(self) -> None:
        self._close_pipeline()
        self._use(self._made(self.data_input))
        self.start()

    # --- batches ----------------------------------------------------------------------------------

    def next_batch(self) -> Any:
        """Get the next batch.

        Where this raises, the loader stays usable: the next call goes on after a batch that failed by itself, and
        at the batch that was due where the workers or a device have failed.

        Raises:
            StopIteration: The epoch has no more.
        """
        progress, handled = self._progress, sys.exc_info()[1]
        while True:
            if self.is_lost or self.iterator is None:
                self._renew()
            source, num_before, iterator = self._source, self.pipeline.num_delivered, cast(Any, self.iterator)
            try:
                batch = iterator.next_batch()
            except StopIteration:
                end = source.end
                self.pipeline.reset()
                if not isinstance(end, Refused):
                    raise
                epoch, number = source.position
                if end.is_tried_again:
                    self.pool.forgive()
                    if isinstance(end.error, DeviceError) and self._may_restart(end.error):
                        source.begin(source.position)
                        continue
                else:
                    progress.leave_pipeline()
                    number += 1
                source.begin((epoch, number))
                raise end.error from end.error.__cause__
            except FrameworkError as error:
                if raised_by_signal_handler(error, handled) is not None:
                    raise
                if self.pipeline.failure is None:  # the batch could not be converted, that is all
                    self._pass(num_before)
                    raise
                self.is_lost = True
                if not self._is_made_again(error):
                    raise
                continue
            except Exception as error:
                if not comes_from_signal_handler(error):  # it is of `post_process_func`
                    self._pass(num_before)
                raise
            progress.leave_pipeline()
            return batch

    def _pass(self, num_before: int) -> None:
        """Step over a batch that has left the pipeline, and that nobody gets."""
        if self.pipeline.num_delivered > num_before:
            self._progress.leave_pipeline()

    def _is_made_again(self, error: FrameworkError) -> bool:
        """Decide what to do about a batch that failed in the graph; return whether it is made again."""
        position = self._due
        culprits = [
            (culprit.member.number, culprit.reason, culprit.line.strip()) for culprit in self.pipeline.culprits
        ]
        if isinstance(error, GraphError) and culprits and self.pool.refuse(position, culprits):
            return True
        if isinstance(error, DeviceError):  # whatever the batch: the next call tries it again
            return not is_about_lost_gpu(error) and self._may_restart(error)  # lost to this process
        if isinstance(error, GraphError) and not culprits and self._failed_in_graph != position:
            self._failed_in_graph = position
            if self._may_restart(error):
                return True
        self._progress.leave_pipeline()
        return False

    def _may_restart(self, error: FrameworkError) -> bool:
        most = self.failed.policy.restarts or 0
        if self.pool.supervisor.num_restarts >= most:
            return False
        self.pool.supervisor.count_restart(error, most)
        return True

    @property
    def step_names(self) -> Sequence[str]:
        """The steps that run where samples are loaded."""
        steps = self._source.plan.steps
        return () if steps is None else steps.names

    def samples_received(self) -> tuple[list[int] | None, list[list[int]]]:
        """Get the samples of the batch that was received last, see `samples_of`."""
        received = self._source.received
        return (None, []) if received is None else samples_of(received)

    def lose_received(self) -> None:
        """Have the pipeline made again; a batch that has left it is due again, and is not released before."""
        self.is_lost, self._source.received = True, None

    def release(self) -> None:
        """Give the memory back of what the loop has received."""
        received = self._source.received
        if received is not None:
            self._stream_at = received.position[0], received.position[1] + 1
            self.pool.release_through(received.position)

    @property
    def _due(self) -> tuple[int, int]:
        """The batch that is due, as the input counts it."""
        # A stream that cannot begin anywhere goes on where it is, wherever loops begin.
        is_stream = self.bound.is_endless and not self.bound.is_callable
        return self._stream_at if is_stream else self.as_counted_by_input(self._progress.pipeline)

    def make_order(self, epoch: int) -> None:
        """Make the order of an epoch whose loop begins, where the user gives it."""
        if self.given_order is not None:
            self.given_order.begin(epoch)
            self._num_batches.clear()
            self.pool.forget()

    def go_to(self, position: Position) -> None:
        """Go on at a position. What was prepared before is thrown away, also where it fails."""
        wanted = self.as_counted_by_input(position)
        if not self.bound.is_callable:
            self.pool.try_again()
        if self.iterator is None or self.is_lost:  # it begins at the position of the loop
            return
        source = self._source
        if source.end is None and not source.handed and source.position == wanted and self.given_order is None:
            return
        try:
            self.pipeline.begin_at(wanted)
        except FrameworkError:  # of a batch that was not requested
            self.is_lost = True

    def as_counted_by_input(self, position: Position) -> tuple[int, int]:
        """Epoch and batch of a position as the input counts them: without epochs where it has none."""
        if self._steps_of_stream is not None:
            return 0, position.epoch * self._steps_of_stream + position.batch
        return position.epoch, position.batch

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
            return self._steps
        return InputAdapter(self.data_input).num_batches_here(epoch)

    def sample_counts(self, epoch: int) -> SampleCounts | None:
        """Counts of delivered, dropped and repeated samples of an epoch, over all shards."""
        return InputAdapter(self.data_input).sample_counts(epoch)

    # --- closing ----------------------------------------------------------------------------------

    def require_open(self) -> None:
        """Raise a `ClosedError` where the loader was closed, or started before this process was forked."""
        if self.is_left:
            problem = "The loader was started in the process from which this one was forked"
            raise ClosedError(f"{problem}. Create a new one.")
        if self.is_closed:
            raise self.closed_error()

    @staticmethod
    def closed_error() -> ClosedError:
        """Make the error for the use of a closed loader."""
        return ClosedError("The loader was closed. Create a new one.")

    def end_wait(self) -> None:
        """Have a thread that waits for workers wait no more: it gets an error."""
        self.pool.end_wait()

    def close(self) -> None:
        """End the worker processes and free their memory."""
        self.is_closed = True
        try:
            self._end_renewal()
            self._close_pipeline()
        finally:  # also where a signal comes in between
            self.pool.close()

    def _close_pipeline(self) -> bool:
        """Close the present pipeline; return whether it was started."""
        iterator, self.iterator = self.iterator, None
        if iterator is not None:
            iterator.close()
        self.pipeline.close()
        return iterator is not None


def samples_of(batch: Batch) -> tuple[list[int] | None, list[list[int]]]:
    """Get the samples of a batch that were delivered, without padding; None if they are not known.

    Returns:
        Their indices in the data set, and pairs of those that were due and those in their place.
    """
    task, numbers = batch.task, batch.loaded.numbers
    if task.places is None:
        indices = [index for index in map(batch.index_of, range(len(numbers))) if index is not None and index >= 0]
        return ([*map(int, indices)] if len(indices) == len(numbers) else None), []
    delivered: list[int] = []
    replaced: list[list[int]] = []
    for number in numbers:
        place, instead = task.places[number], task.instead.get(number)
        if place.is_padding:
            continue
        if instead is not None:
            replaced.append([int(place.sample_index), int(instead)])
        delivered.append(place.sample_index if instead is None else instead)
    return [*map(int, delivered)], replaced
