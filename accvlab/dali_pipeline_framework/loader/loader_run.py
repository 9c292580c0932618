# SPDX-License-Identifier: Apache-2.0
"""The run of a loader: its workers and pipeline, its position and its times, loop after loop."""

from __future__ import annotations

import functools
import logging
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping
from threading import get_ident
from time import perf_counter_ns
from typing import Any, cast

from ..checks import shown, whole_number
from ..engine.structured_pipeline import StructuredPipeline
from ..errors import ClosedError, FrameworkError, NotSupportedError, SettingError, StateError
from ..forks import left_to_parent
from ..pipeline.pipeline import PipelineDefinition
from ..sources.input_adapter import InputAdapter
from ..threads import give_lock
from ..workers.process_setup import raised_by_signal_handler
from .input_binding import bind_input, check_sample_policy, checked_num_workers, make_ledger
from .loader_pipeline import LoaderPipeline
from .loader_settings import LoaderSettings
from .progress import LoopProgress, Position
from .rank_agreement import RankAgreement, Settings, compared_settings
from .report import LoopTimes
from .state import (
    NO_SEGMENTS,
    EpochSegments,
    LoaderState,
    continued_segments,
    fields_for_state,
    parse_state,
    require_same_run,
    with_forms,
)
from .torch_interface import inform_accelerate, resumed_by_lightning

_logger = logging.getLogger(__name__)


class Loop(Iterator[Any]):
    """One loop over a loader.

    Attributes:
        loader: The loader, which is kept as long as the loop is.
        has_begun: Whether it has received a batch.
        has_ended: Whether it has received all.
    """

    def __init__(self, run: LoaderRun, loader: object) -> None:
        """Begin a loop."""
        self._run = run
        self.loader = loader
        self.has_begun = self.has_ended = False

    def __next__(self) -> Any:
        """Get the next batch.

        An exception of a signal handler loses nothing: the next call returns the same batch. Only where the signal
        comes in the last few operations, after the batch was counted and before the caller has it, that batch is
        lost to the caller (``for`` loops have it then).

        Several threads may call it: they take turns, and each batch goes to one of them.
        """
        run = self._run
        with run.lock:
            batch = run.next_batch(self)
            made = run.made
        # From here on nothing is called, since signal handlers run where calls end.
        if run.made is made:
            run.progress.delivered, run.progress.is_loaded = made[1], False
            self.has_begun, run.before, run.made = True, None, None
        return batch


def _ended() -> ClosedError:
    problem = "This loop over the loader has ended"
    return ClosedError(f"{problem}: another loop has begun, or a state was loaded. Start a new loop.")


def _no_loop() -> None:
    """The reference to a loop if there is none."""
    return None


class LoaderRun:
    """What a loader does with its settings: it makes batches, loop after loop.

    Attributes:
        settings: Settings of the loader.
        definition: Input and steps.
        bound: The input with the settings of the loader.
        num_workers: Number of worker processes.
        pipelines: Owner of the present pipeline.
        progress: The position.
        times: Where the time of the loops goes.
        ledger: The ledger.
        agreement: Comparison of the settings between ranks.
        lock: Held by the thread that makes a batch, begins a loop, or changes the position.
        before: Within a call: the position before it.
        made: Of the batch of this call, until it is counted: the thread that gets it, and the position after it.
    """

    lock: Any

    def __init__(self, settings: LoaderSettings) -> None:
        """Make the pipeline; nothing is started.

        Raises:
            SettingError: A setting contradicts what input or sampler were created with, or is unknown.
            FormatError: The steps do not fit the data.
            DeviceError: A step needs a GPU, and none is usable.
        """
        give_lock(self)
        self.settings = settings
        self.bound = bound = bind_input(settings)
        self.num_workers = checked_num_workers(settings, bound)
        chain: Any = {name: getattr(settings, name) for name in ("run", "fold_arrays")}
        self.definition = PipelineDefinition(bound.data_input, settings.steps, **chain)
        check_sample_policy(bound, settings.faults)
        self.ledger = make_ledger(bound, settings)
        is_stream = bound.is_endless and settings.steps_per_epoch is None
        self.progress = LoopProgress(bound.is_endless, is_stream=is_stream)
        self.pipelines = LoaderPipeline(settings, self.definition, bound, self.num_workers, self.progress)
        self.times = LoopTimes()
        self.agreement = RankAgreement(bound.shard)
        self.before: tuple[Position, Position] | None = None
        self.made: Any = None
        # The loop holds the loader, which without another reference to it is closed with its loop.
        self._loop: Callable[[], Loop | None] = _no_loop
        self._states_of_trainer: object = None  # of Lightning, that were looked at
        self._has_logged_counts = False
        left_to_parent(self, LoaderRun._leave)

    @property
    def pipeline(self) -> StructuredPipeline:
        """The present pipeline."""
        return self.pipelines.pipeline

    @property
    def total_batch_size(self) -> int:
        """Samples per batch, all shards together."""
        return self.bound.batch_size * self.bound.shard.num_shards

    # --- loops ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the worker processes, where that was not done before."""
        with self.lock:
            self._take_up()
            self.pipelines.start()

    def begin_loop(self, loader: object) -> Loop:
        """Start the next loop, over a loader that Accelerate is to know, and that is kept as long as the loop."""
        with self.lock:
            try:
                self._prepare_loop()
            except FrameworkError:
                self.pipelines.require_open()  # where another thread has closed the loader meanwhile
                raise
            loop = Loop(self, loader)
            self._loop = weakref.ref(loop)
            inform_accelerate(loader, is_running=True)
            return loop

    def _prepare_loop(self) -> None:
        began_at = perf_counter_ns()
        self.start()
        self._loop = _no_loop
        self.progress.end_setting()
        self._forget_segments()
        self.agreement.begin_loop(self._compared_settings)
        self._begin()
        at = self.progress.delivered
        self.ledger.begin_loop((at.epoch, at.batch) if self.progress.is_loaded else None)
        self.times.begin(began_at)
        self._log_sample_counts()

    def _take_up(self) -> bool:
        """After an exception in the middle of a call: have the batch made again that was due; return whether."""
        made = self.made
        is_made_again = self.before is not None and (made is None or made[0] == get_ident())
        if is_made_again:  # in this order: another exception may come in the middle of it
            self.progress.pipeline, self.progress.next_start = cast(Any, self.before)
            self.pipelines.lose_received()
        elif made is not None:  # another thread has it, and is about to count it
            self.progress.delivered, self.progress.is_loaded = made[1], False
        self.before = self.made = None
        return is_made_again

    def next_batch(self, loop: Loop) -> Any:
        """Get the next batch of a loop.

        Raises:
            StopIteration: The loop has ended.
        """
        progress, pipelines = self.progress, self.pipelines
        if pipelines.is_left:
            pipelines.require_open()
        if self.before is None or not self._take_up():
            pipelines.release()
        if pipelines.is_closed:
            pipelines.require_open()
        if loop is not self._loop():
            raise _ended()
        if not loop.has_begun:
            self._resume_training(loop)
        self.before = progress.pipeline, progress.next_start
        handled = sys.exc_info()[1]
        try:
            batch = self._timed_batch(loop)
        except Exception as error:
            raised = raised_by_signal_handler(error, handled)
            if raised is not None:
                raise raised from None
            self.before = None
            if not isinstance(error, StopIteration | FrameworkError):  # it is of `post_process_func`
                raise
            if pipelines.is_closed:  # by another thread, which has ended the wait
                raise pipelines.closed_error() from None
            error.__traceback__ = None  # how it got here does not help
            raise
        self.made = get_ident(), progress.pipeline
        return batch

    def _resume_training(self, loop: Loop) -> None:
        """Have a loop that begins in the middle of a resumed training begin there."""
        resumed = resumed_by_lightning(loop.loader)
        if resumed is None or resumed.states is self._states_of_trainer:
            return
        self._states_of_trainer = resumed.states
        if resumed.state is not None:
            self._load_state(resumed.state)
            self._prepare_loop()
            self._loop = weakref.ref(loop)
        elif not self.progress.is_loaded and resumed.num_batches not in (None, self.progress.pipeline.batch):
            at = self.progress.pipeline
            raise StateError(
                f"The Trainer goes on after {resumed.num_batches} batches of its epoch, and its checkpoint has no "
                f"state of this loader, which is at batch {at.batch} of epoch {at.epoch}: samples would come "
                f"twice. Load the state of that moment (`load_state_dict`) before `fit`, or resume from a "
                f"checkpoint at the end of an epoch."
            )

    def _timed_batch(self, loop: Loop) -> Any:
        progress, pipelines, asked_at = self.progress, self.pipelines, perf_counter_ns()
        steps = self.settings.steps_per_epoch
        if loop.has_ended:
            raise StopIteration
        if steps is not None and progress.pipeline.batch >= steps:
            self._end_loop(loop)
            raise StopIteration
        try:
            batch = pipelines.next_batch()
        except StopIteration:
            self._end_loop(loop)
            raise
        if not loop.has_begun:
            self.agreement.look()
        if self.ledger.is_on:
            after = progress.pipeline
            self.ledger.note(after.epoch, after.batch - 1, *pipelines.samples_received())
        self.times.receive(asked_at, pipelines)
        return batch

    def _begin(self) -> None:
        """Have the pipeline go on where the loop starts."""
        start = self.progress.next_start
        self.pipelines.make_order(start.epoch)
        # An endless stream may go on: nothing that was prefetched is lost.
        if not self.bound.is_endless or (self.bound.is_callable and start != self.progress.pipeline):
            self.progress.pipeline = start
            self.pipelines.go_to(start)
        self.progress.begin(self.bound.is_callable)

    def _end_loop(self, loop: Loop) -> None:
        loop.has_ended = True
        self.times.end_counting(self.pipelines)
        inform_accelerate(loop.loader, is_running=False)
        self.progress.end_loop()
        self._forget_segments()
        self.ledger.close()

    def _compared_settings(self) -> Settings:
        lines, in_workers = self.definition.chain_lines()[1:], self.pipeline.steps_in_workers
        return compared_settings(
            self.bound, self.settings.seed, lines, in_workers, self._saved_fields, self.progress.next_start
        )

    def _log_sample_counts(self) -> None:
        if self._has_logged_counts:
            return
        self._has_logged_counts = True
        source = InputAdapter(self.bound.data_input)
        if source.planned is not None and source.planned.sampler.must_be_played:
            return
        sample_counts = self.pipelines.sample_counts(self.epoch)
        if sample_counts is not None and self.bound.shard.shard_id == 0:
            text = sample_counts.describe(self.total_batch_size, source.delivers_partial_batches)
            _logger.info("epoch %d: %s", self.epoch, text)

    def close(self) -> None:
        """End the worker processes and free their memory; in a forked child, leave them to the parent."""
        if self.pipelines.is_left:
            return
        self.pipelines.is_closed = True
        if not self.lock.acquire(blocking=False):  # another thread makes a batch
            self.pipelines.end_wait()
            self.lock.acquire()
        try:
            self.times.end_counting(self.pipelines)
            self.pipelines.close()
            self.ledger.close()
        finally:
            self.lock.release()

    def _leave(self) -> None:
        """In a forked child, leave what was started to the parent."""
        self.pipelines.is_left = self.pipelines.has_started

    # --- epochs -----------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """Whether there is a loop that has not ended."""
        loop = self._loop()
        return loop is not None and not loop.has_ended

    @property
    def is_at_end(self) -> bool:
        """Whether the running loop has received its last batch; always False where their number is not known."""
        if not self.is_running:
            return False
        at = self.progress.pipeline
        num_batches = self.pipelines.num_batches_here(at.epoch)
        return num_batches is not None and at.batch >= num_batches

    @property
    def epoch(self) -> int:
        """Epoch of the running loop, else that of the next loop."""
        return self._normalised(self.progress.delivered).epoch

    @property
    def can_set_epoch(self) -> bool:
        """Whether the next loop can run in any epoch."""
        return self.bound.is_callable and not self.progress.is_stream

    def set_epoch(self, epoch: int, *, keeps_loaded: bool = False) -> None:
        """Have the next loop run in an epoch; see `DataLoader.set_epoch`.

        Args:
            epoch: The epoch.
            keeps_loaded: Whether nothing is changed where a state of a later epoch was loaded.
        """
        with self.lock:
            if keeps_loaded and self.progress.is_loaded and isinstance(epoch, int):
                epoch = max(epoch, self.progress.next_start.epoch)
            self._set_epoch(epoch)

    def _set_epoch(self, epoch: int) -> None:
        epoch = whole_number(epoch, "epoch", at_least=0)
        if epoch >= 2**31:
            raise SettingError(f"`epoch` must be less than 2**31, got {shown(epoch)}.")
        self.bound.require_random_access()
        if self.progress.is_stream:
            advice = "Pass `steps_per_epoch` to count its batches as epochs."
            raise NotSupportedError(f"An endless input has no epochs. {advice}")
        loop, is_new = self._loop(), epoch != self.progress.next_start.epoch
        has_begun = loop is not None and loop.has_begun and not loop.has_ended
        self.progress.set_epoch(epoch, has_begun)
        if not has_begun:
            self._forget_segments()
            if is_new and self.is_running:
                self.progress.end_setting()
                self._begin()

    def _forget_segments(self) -> None:
        """Where an epoch that was continued is to be delivered from its beginning: forget how it was begun."""
        epoch, segments = self.pipelines.segments
        if segments and self.progress.next_start == Position(epoch):
            self._replace_pipeline(NO_SEGMENTS)

    def _replace_pipeline(self, segments: EpochSegments) -> None:
        self.times.end_counting(self.pipelines)
        self.pipelines.replace(segments)
        self.progress.pipeline = Position()

    # --- state ------------------------------------------------------------------------------------

    def state(self) -> LoaderState:
        """Get the state after the batch that was delivered last; see `DataLoader.state_dict`.

        It does not wait for a batch that another thread makes.
        """
        self.bound.require_random_access()
        position = self._normalised(self.progress.delivered)
        self._require_repeatable(position)
        return self._state_at(position)

    def load_state(self, state: Mapping[str, Any] | str | bytes) -> None:
        """Have the next loop go on at a state; see `DataLoader.load_state_dict`."""
        with self.lock:
            self._load_state(state)

    def _load_state(self, state: Mapping[str, Any] | str | bytes) -> None:
        self.pipelines.require_open()
        self.bound.require_random_access()
        saved = parse_state(state)
        own = self._state_at(Position())
        require_same_run(saved, own)
        self._require_repeatable(Position(saved.epoch, saved.batch))
        data_input = self.bound.data_input
        segments = continued_segments(saved, own, data_input)
        if segments != self.pipelines.segments:
            self._replace_pipeline(segments)
        position = self._normalised(Position(saved.epoch, saved.batch))
        self.progress.continue_at(position)
        self.pipelines.pool.try_again()
        self.pipelines.failed.resume(saved.failed, self._num_delivered(position))
        if position.epoch != saved.epoch:
            _logger.warning(
                "What was left of epoch %d does not fill a batch of %d (all shards together) and is dropped; the "
                "next loop runs in epoch %d.",
                saved.epoch,
                self.total_batch_size,
                position.epoch,
            )
        self._loop = _no_loop

    def _require_repeatable(self, position: Position) -> None:
        given_order = self.pipelines.given_order
        if given_order is not None and position.batch > 0:
            given_order.require_repeatable(position.epoch)

    def _normalised(self, position: Position) -> Position:
        """A position; the end of an epoch is the beginning of the next one."""
        if position.batch == 0 or self.progress.is_stream:
            return position
        num_batches = self.pipelines.num_batches(position.epoch)
        if num_batches is not None and position.batch >= num_batches:
            return Position(position.epoch + 1)
        return position

    def _state_at(self, position: Position) -> LoaderState:
        epoch, segments = self.pipelines.segments
        begun = segments if epoch == position.epoch and position.batch > 0 else ()
        return LoaderState(
            position.epoch,
            position.batch,
            self.bound.shard.num_shards,
            self.total_batch_size,
            begun,
            self.settings.seed,
            with_forms(self.bound.description, self.pipeline.steps_in_workers),
            self._saved_fields,
            self.pipelines.failed.for_state(),
        )

    def _num_delivered(self, position: Position) -> int:
        """Samples of this rank up to a position, as if all epochs had as many batches as its own; for a budget."""
        if self.pipelines.failed.policy.max_failed_share is None:
            return 0
        num_batches = self.pipelines.num_batches(position.epoch) if position.epoch else 0
        return (position.epoch * (num_batches or 0) + position.batch) * self.bound.batch_size

    @functools.cached_property
    def _saved_fields(self) -> dict[str, str]:
        return fields_for_state(self.bound.data_input.used_sample_data_structure.format)
