# SPDX-License-Identifier: Apache-2.0
"""A loader for training loops: owns the pipeline, knows its epochs, and can stop and continue."""

from __future__ import annotations

import functools
import logging
import weakref
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, cast

import attrs

from accvlab.dali_pipeline_framework.errors import ClosedError, NotSupportedError, SettingError, StateError
from accvlab.dali_pipeline_framework.inputs import (
    EpochAccount,
    LastBatch,
    Shard,
)
from accvlab.dali_pipeline_framework.inputs.planned_input import PlannedInput
from accvlab.dali_pipeline_framework.inputs.random_access_sampler import Description, Leg
from accvlab.dali_pipeline_framework.inputs.readers.reader_epochs import ReaderEpochs
from accvlab.dali_pipeline_framework.inputs.settings import whole_number
from accvlab.dali_pipeline_framework.inputs.unknown_arguments import OF_LOADER, explains_unknown_arguments
from accvlab.dali_pipeline_framework.pipeline.dali_structured_output_iterator import (
    DALIStructuredOutputIterator,
)
from accvlab.dali_pipeline_framework.pipeline.loader_input import AskedSettings, ShardArgument, bind_input
from accvlab.dali_pipeline_framework.pipeline.loader_state import (
    LoaderState,
    ReaderState,
    continued_legs,
    damaged,
    fingerprint,
    parse_state,
    require_same_batches,
    require_same_run,
    require_within_epoch,
    shortened,
)
from accvlab.dali_pipeline_framework.pipeline.output_conversion import (
    OutputConverter,
    OutputType,
    RaggedPolicy,
)
from accvlab.dali_pipeline_framework.pipeline.pipeline import PipelineDefinition
from accvlab.dali_pipeline_framework.pipeline.structured_pipeline import StructuredPipeline
from accvlab.dali_pipeline_framework.sample_data import SampleDataGroup

_logger = logging.getLogger(__name__)


@attrs.frozen
class _Position:
    """A place between two batches: ``batch`` is the next one of ``epoch``."""

    epoch: int = 0
    batch: int = 0


class DataLoader:
    """Delivers batches to a training loop, epoch after epoch, and can be stopped and continued anywhere.

    Each ``for`` loop is one epoch. A loop that is left by ``break`` abandons its epoch: the next one starts the
    next epoch at once (or, after `set_epoch`, the epoch that was set), with no batch that was prefetched before.

    `state_dict` tells what the training loop has received, as a small value for JSON, the same on all ranks.
    A loader that loads it goes on with the batch after that, in any number of workers, on any number of
    shards, and with any batch size that the order allows.

    Example::

        definition = PipelineDefinition(SamplerInputCallable(provider, sampler), steps)
        with DataLoader(definition, batch_size=4, num_workers=2, shard="auto") as loader:
            for epoch in range(loader.epoch, 10):
                for batch in loader:
                    train(batch)
                    checkpoint["loader"] = loader.state_dict()
    """

    @explains_unknown_arguments(OF_LOADER)
    def __init__(
        self,
        definition: PipelineDefinition,
        batch_size: int | None = None,
        *,
        num_workers: int = 1,
        num_threads: int | None = None,
        device_id: int | None = None,
        shard: ShardArgument = None,
        last_batch: LastBatch | None = None,
        context_name: str | None = None,
        steps_per_epoch: int | None = None,
        seed: int = 0,
        start_method: str = "spawn",
        output_type: OutputType = "torch",
        ragged: RaggedPolicy = "raise",
        post_process_func: Callable[[Any], Any] | None = None,
        pipeline_arguments: Mapping[str, Any] | None = None,
    ) -> None:
        """Create the loader. Its worker processes start with the first loop, or with `start`.

        Args:
            definition: Input and steps.
            batch_size: Samples per batch on this shard. None: what input or sampler were created with.
            num_workers: Worker processes that load samples; 0 to load in this process.
            num_threads: Threads of the pipeline; None for the number of usable cores.
            device_id: Number of the GPU; None for the CPU.
            shard: Which part of each batch this loader delivers: a `Shard`, a pair (shard id, number of shards),
                ``"auto"`` or a source to take it from (see `detect_shard`). None: what the input was created
                with, usually all.
            last_batch: What becomes of a last batch that is not full: ``"drop"``, ``"pad"``, ``"partial"`` or
                ``"wrap"``. None: what the sampler was created with; ``"drop"`` for inputs of one's own.
            context_name: Name for a group that is added to each sample and tells where it stands, with the fields
                of `SamplePlace`. None: what the input was created with.
            steps_per_epoch: For endless samplers and inputs of one's own: number of batches of a loop. None: until
                the input ends.
            seed: Seed of the random draws of the steps.
            start_method: How workers start: ``"spawn"``, ``"fork"`` or ``"forkserver"``.
            output_type: ``"torch"`` or ``"numpy"``.
            ragged: What to do where shapes differ within a batch: ``"raise"`` or ``"list"``.
            post_process_func: Applied to each batch; its result is delivered.
            pipeline_arguments: Other arguments of `PipelineDefinition.get_dali_pipeline`.

        Raises:
            SettingError: An argument breaks a rule, or contradicts what input or sampler were created with.
            FormatError: The steps do not fit the data.
            DeviceError: A GPU is asked for, none is usable, and a step needs it.
        """
        if not isinstance(definition, PipelineDefinition):
            raise SettingError(f"`definition` must be a PipelineDefinition, got {type(definition).__name__}.")
        self._definition = definition
        self._seed = whole_number(seed, "seed", at_least=0)
        if self._seed >= 2**63:
            raise SettingError(f"`seed` must be less than 2**63, got {seed}.")
        self._steps = steps_per_epoch
        if steps_per_epoch is not None:
            self._steps = whole_number(steps_per_epoch, "steps_per_epoch", at_least=1)
        self._num_workers = whole_number(num_workers, "num_workers", at_least=0)
        asked = AskedSettings(
            batch_size=batch_size,
            shard=shard,
            last_batch=last_batch,
            context_name=context_name,
            steps_per_epoch=self._steps,
        )
        self._bound = bind_input(definition.data_input, asked)
        self._input = self._bound.data_input
        self._loaded_reader: ReaderState | None = None
        self._arguments = self._pipeline_arguments(num_threads, device_id, start_method, pipeline_arguments)
        OutputConverter(output_type, ragged, must_copy=False)  # complains about unknown values now
        self._make_iterator = functools.partial(
            DALIStructuredOutputIterator,
            output_type=output_type,
            ragged=ragged,
            post_process_func=post_process_func,
        )
        self._legs: tuple[int, tuple[Leg, ...]] = (0, ())
        self._position = _Position()  # behind what was delivered
        self._next_start = _Position()
        self._is_epoch_set = False  # whether the next start was set while a loop runs
        self._stands_at = _Position()  # where the pipeline goes on if it is not told otherwise
        # The loop holds the loader, which without another reference to it is closed with its loop.
        self._loop: Callable[[], _Loop | None] = _no_loop
        self._num_batches: dict[int, int | None] = {}  # of the epochs that were asked for
        self._is_closed = False
        self._has_logged_account = False
        self._has_warned_of_drift = False
        self._iterator: DALIStructuredOutputIterator | None = None
        self._pipeline = self._make_pipeline()

    # --- setting up -------------------------------------------------------------------------------

    def _pipeline_arguments(
        self,
        num_threads: int | None,
        device_id: int | None,
        start_method: str,
        others: Mapping[str, Any] | None,
    ) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "batch_size": self.batch_size,
            "device_id": device_id,
            "seed": self._seed,
            "py_num_workers": self._num_workers,
            "py_start_method": start_method,
        }
        if self._keeps_checkpoints:
            arguments["enable_checkpointing"] = True
        if num_threads is not None:
            arguments["num_threads"] = whole_number(num_threads, "num_threads", at_least=1)
        if others is not None and not isinstance(others, Mapping):
            raise SettingError(f"`pipeline_arguments` must be a dict, got {type(others).__name__}.")
        if start_method not in ("spawn", "fork", "forkserver"):
            raise SettingError(f"`start_method` must be 'spawn', 'fork' or 'forkserver', got {start_method!r}.")
        for name, value in (others or {}).items():
            if name in arguments:
                raise SettingError(
                    f"`pipeline_arguments` has `{name}`, which is an argument of the loader itself."
                )
            arguments[name] = value
        return arguments

    def _make_pipeline(self) -> StructuredPipeline:
        self._running_input = self._input.continued(*self._legs) if self._legs[1] else self._input
        self._stands_at = _Position()
        whole = self._bound.parts.with_main(self._running_input)
        reader = self._loaded_reader
        checkpoint = {} if reader is None else {"checkpoint": reader.checkpoint}
        pipeline = self._definition.with_input(whole).get_dali_pipeline(**self._arguments, **checkpoint)
        if not isinstance(pipeline, StructuredPipeline):
            raise SettingError("A loader cannot use DALI's debug mode. Use get_dali_pipeline(debug=True).")
        if reader is not None:
            self._continue_readers(pipeline, reader)
        return pipeline

    def _continue_readers(self, pipeline: StructuredPipeline, reader: ReaderState) -> None:
        try:
            pipeline.build()
        except (SettingError, RuntimeError) as error:
            pipeline.close()
            raise StateError(f"DALI cannot restore the state of the native readers: {error}") from error
        if self._bound.is_read_natively:
            pipeline.continue_at(reader.epoch, reader.batch)
            self._stands_at = _Position(reader.epoch, reader.batch)

    def start(self) -> None:
        """Start the worker processes now, e.g. before CUDA is initialised in this process, for forked ones."""
        self._require_open()
        if self._iterator is None:
            self._iterator = self._make_iterator(pipeline=self._pipeline)
            self._warn_if_readers_drift()

    def _warn_if_readers_drift(self) -> None:
        """Tell once where native readers do not stay in step with the input beside them."""
        readers = self._pipeline.joined_reader_epochs
        if self._has_warned_of_drift or not readers or self._is_endless:
            return
        num_batches = self._num_batches_in(0)
        reasons = [
            f"{name} has {epochs.num_made} batches per epoch"
            for name, epochs in readers.items()
            if num_batches is not None and epochs.num_made != num_batches
        ]
        if self.shard.num_shards > 1:
            reasons.append("on several shards, readers and samplers deal the samples in different ways")
        if reasons:
            self._has_warned_of_drift = True
            _logger.warning(
                "Samples of the native readers do not stay beside the same samples of the other input, which has "
                "%s batches per epoch: %s. If they belong together, load both by one data provider, or use equal "
                "numbers of samples with last_batch='pad'.",
                num_batches,
                "; ".join(reasons),
            )

    # --- iterating --------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        """Start an epoch: the next one, or the one that was set or loaded."""
        self._require_open()
        self.start()
        self._end_running_loop()
        self._is_epoch_set = False
        self._forget_legs()
        self._begin(self._next_start)
        self._log_account()
        loop = _Loop(self)
        self._loop = weakref.ref(loop)
        return loop

    def _end_running_loop(self) -> None:
        loop = self._loop()
        if loop is not None:
            loop.has_ended = True

    @property
    def _is_running(self) -> bool:
        loop = self._loop()
        return loop is not None and not loop.has_ended

    def _forget_legs(self) -> None:
        """Where an epoch that was continued is to be delivered from its beginning: forget how it was begun."""
        if self._legs[1] and self._next_start == _Position(self._legs[0]):
            self._replace_pipeline((0, ()))

    def _begin(self, start: _Position) -> None:
        if self._has_callable:
            if self._is_endless:
                # An endless stream goes on where it stands; nothing that was prefetched is lost.
                if start != self._stands_at:
                    self._pipeline.begin_epoch(0, self._stream_batch(start))
            else:
                self._pipeline.begin_epoch(start.epoch, start.batch)
        elif self._iterator is not None and not (self._bound.is_read_natively and start == self._stands_at):
            self._iterator.reset()
        self._position = self._stands_at = start

    def _stream_batch(self, position: _Position) -> int:
        return position.epoch * (self._steps or 0) + position.batch

    def _next(self, loop: _Loop) -> Any:
        self._require_open()
        if loop is not self._loop():
            raise ClosedError(
                "This loop over the loader has ended: another loop has begun, or a state was loaded. Start a new "
                "loop."
            )
        if loop.has_ended or self._iterator is None:
            raise StopIteration
        if self._steps is not None and self._stands_at.batch >= self._steps:
            self._end_loop(loop)
            raise StopIteration
        num_before = self._pipeline.num_delivered
        try:
            data = self._iterator.next_batch()
        except StopIteration:
            self._end_loop(loop)
            raise
        finally:
            if self._pipeline.num_delivered > num_before:  # also where the batch could not be converted
                self._advance()
        self._position = self._stands_at
        return data

    def _advance(self) -> None:
        epoch, batch = self._stands_at.epoch, self._stands_at.batch
        self._stands_at = _Position(epoch, batch + 1)
        if not self._is_epoch_set:
            self._next_start = self._stands_at if self._is_stream else _Position(epoch + 1)

    def _end_loop(self, loop: _Loop) -> None:
        loop.has_ended = True
        if self._is_stream:  # it was limited, and is used up
            return
        epoch = self._stands_at.epoch
        if self._is_endless:
            self._stands_at = _Position(epoch + 1)
        if not self._is_epoch_set:
            self._next_start = _Position(epoch + 1)
        self._position = self._next_start
        self._forget_legs()

    def __len__(self) -> int:
        """Number of batches of the current epoch, all of it.

        Raises:
            TypeError: It is not known: the input is endless, or does not tell.
        """
        num_batches = self._num_batches_in(self.epoch)
        if isinstance(self._running_input, PlannedInput) and self._steps is None:
            num_batches = self._running_input.num_batches_in_epoch(self.epoch)  # of this shard
        if num_batches is None and not self._has_callable:  # the length of an iterable counts batches
            num_batches = self._input.length
        if num_batches is None:
            raise TypeError(
                "The number of batches per epoch is not known: the input is endless, or does not tell it. "
                "Pass `steps_per_epoch` for loops of a fixed length."
            )
        return num_batches

    @property
    def epoch(self) -> int:
        """Epoch in which the loop stands, from 0: a loader that is continued from here begins in this epoch.

        Within a loop, and after a ``break``, it is the epoch of that loop (a new loop starts the next one);
        otherwise that of the next loop.
        """
        return self._normalised_position().epoch

    def set_epoch(self, epoch: int) -> None:
        """Have the next loop run in this epoch, from its beginning.

        Nothing changes where the next loop runs in this epoch anyway: a loader that has loaded a state from the
        middle of this epoch goes on there.

        Raises:
            SettingError: The epoch is not a whole number of at least 0.
            NotSupportedError: The input is an iterable, which cannot be told where to start.
        """
        epoch = whole_number(epoch, "epoch", at_least=0)
        if epoch >= 2**31:
            raise SettingError(f"`epoch` must be less than 2**31, got {epoch}.")
        has_readers = bool(self._bound.parts.native)
        if has_readers and epoch != self._next_start.epoch and not self._is_endless:
            raise NotSupportedError(
                f"Native readers deliver their epochs one after the other: the next loop runs in epoch "
                f"{self._next_start.epoch}, and cannot run in epoch {epoch}. Use a data provider with a sampler."
            )
        if not self._has_callable and not has_readers:
            raise NotSupportedError(
                f"{self._what_input_is}, which delivers its epochs one after the other. Use "
                f"a callable, e.g. SamplerInputCallable."
            )
        if self._is_stream:
            raise NotSupportedError(
                "An endless input has no epochs. Pass `steps_per_epoch` to count its batches as epochs."
            )
        if epoch != self._next_start.epoch:
            self._next_start = _Position(epoch)
            self._is_epoch_set = True
        if not self._is_running:
            self._position = self._next_start
            self._forget_legs()

    def account(self, epoch: int | None = None) -> EpochAccount | None:
        """What is delivered, dropped, repeated and padded in an epoch, over all shards.

        Args:
            epoch: The epoch; None for the current one.

        Returns:
            The numbers, or None for endless samplers, and for callables and iterables of one's own, which do not
            tell. A sampler without random access is played to the end of the epoch.
        """
        if self._bound.is_read_natively:
            epochs = self._reader_epochs
            return None if epochs is None else epochs.account
        if not isinstance(self._running_input, PlannedInput):
            return None
        return self._running_input.account(self.epoch if epoch is None else epoch)

    def _num_batches_in(self, epoch: int) -> int | None:
        if self._steps is not None:
            return self._steps
        if isinstance(self._running_input, PlannedInput):
            if epoch not in self._num_batches:  # to find out, a stateful sampler is played to its end
                self._num_batches[epoch] = self._running_input.num_batches_of_all_shards(epoch)
            return self._num_batches[epoch]
        if self._bound.is_read_natively:
            epochs = self._reader_epochs
            return None if epochs is None else epochs.num_batches(epoch)
        num_batches: int | None = getattr(self._input, "num_batches_per_epoch", None)
        return num_batches

    @property
    def _reader_epochs(self) -> ReaderEpochs | None:
        """Of native readers, which count their samples when the pipeline is built; None for a stream."""
        if self._is_endless:
            return None
        self._require_open()
        return self._pipeline.reader_epochs

    def _log_account(self) -> None:
        if self._has_logged_account:
            return
        self._has_logged_account = True
        if isinstance(self._input, PlannedInput) and self._input.sampler.must_be_played:
            return
        account = self.account()
        if account is not None and self.shard.shard_id == 0:
            is_partial = getattr(self._input, "delivers_partial_batches", False)
            _logger.info("epoch %d: %s", self.epoch, account.describe(self._total_batch_size, is_partial))

    # --- state ------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """What was delivered so far, and to which data and order that belongs.

        The value can be written as JSON, takes at most 1 kB, and is the same on all ranks (for the policy
        ``"partial"``, at the end of an epoch only as long as all have the same number of batches). A batch counts
        when the loop has received it. After a ``break`` it is still the position in the abandoned epoch: a loader
        that loads it finishes that epoch, while this one begins the next.

        Raises:
            NotSupportedError: The input is an iterable, which has no random access.
            StateError: The batch size was changed too often within the epoch.
        """
        self._require_resumable()
        return self._state(self._normalised_position()).to_dict()

    def _require_resumable(self) -> None:
        if not self._has_callable and not self._bound.is_read_natively:
            raise NotSupportedError(
                f"{self._what_input_is}: it has no random access, so a loader over it cannot be continued. Use a "
                f"callable, e.g. SamplerInputCallable, which delivers the same."
            )
        native = self._bound.parts.native
        for part in native:
            if not part.source.is_resumable:
                raise NotSupportedError(
                    f"{part.source!r} does not tell where it stands, so a loader over it cannot be continued."
                )

    @property
    def _keeps_checkpoints(self) -> bool:
        """Whether DALI is to tell where native readers stand."""
        parts = self._bound.parts
        is_main_resumable = parts.main is None or parts.has_callable
        return bool(parts.native) and is_main_resumable and all(part.source.is_resumable for part in parts.native)

    @property
    def _what_input_is(self) -> str:
        kind = "reads with DALI's native operators" if self._bound.is_read_natively else "is an iterable"
        return f"{type(self._input).__name__} {kind}"

    def _normalised_position(self) -> _Position:
        """The position; the end of an epoch is the beginning of the next one."""
        position = self._position
        if position.batch == 0 or self._is_stream:
            return position
        num_batches = self._num_batches_in(position.epoch)
        if num_batches is not None and position.batch >= num_batches:
            return _Position(position.epoch + 1)
        return position

    def _state(self, position: _Position) -> LoaderState:
        legs = self._legs[1] if self._legs[0] == position.epoch and position.batch > 0 else ()
        return LoaderState(
            position.epoch,
            position.batch,
            legs,
            self.shard.num_shards,
            self._total_batch_size,
            self._seed,
            dict(self._plan),
            self._blueprint_fingerprint,
            self._reader_state(position),
        )

    def _reader_state(self, position: _Position) -> ReaderState | None:
        if not self._keeps_checkpoints or self._iterator is None:
            return self._loaded_reader
        stands_at = position.epoch, position.batch
        if self._bound.is_read_natively:  # else they are one stream, in which only the checkpoint tells a place
            stands_at = self._pipeline.reader_position
        return ReaderState(*stands_at, cast(Any, self._pipeline).checkpoint())

    @functools.cached_property
    def _plan(self) -> Description:
        return shortened(self._bound.description)

    @functools.cached_property
    def _blueprint_fingerprint(self) -> str:
        return fingerprint(self._bound.parts.whole.used_sample_data_structure.format)

    def load_state_dict(self, state: Mapping[str, Any] | str | bytes) -> None:
        """Have the next loop go on behind what was delivered when the state was saved.

        Number of workers, start method, depths, number of shards and batch size may differ from those with which
        the state was saved. With another total batch size the rest of the epoch is dealt anew.

        Args:
            state: What `state_dict` has returned, or JSON text of it.

        Raises:
            StateError: The state is damaged, of another version, belongs to other data or another order (its
                ``differences`` tell what differs), or the order depends on the batch size.
            NotSupportedError: The input is an iterable, which has no random access.
        """
        self._require_open()
        self._require_resumable()
        saved = parse_state(state)
        own = self._state(_Position())
        require_same_run(saved, own)
        if self._keeps_checkpoints:
            require_same_batches(saved, own)
            self._load_readers(saved.reader)
        else:
            legs = continued_legs(saved, own, self._input)
            self._require_within_epoch(saved)
            if legs != (self._legs if self._legs[1] else (saved.epoch, ())):
                self._replace_pipeline(legs)
        self._position = _Position(saved.epoch, saved.batch)
        self._position = self._next_start = self._normalised_position()
        if self._position.epoch != saved.epoch:
            _logger.warning(
                "What was left of epoch %d does not fill a batch of %d (all shards together) and is dropped; the "
                "next loop runs in epoch %d.",
                saved.epoch,
                self._total_batch_size,
                self._position.epoch,
            )
        self._is_epoch_set = False
        self._end_running_loop()
        self._loop = _no_loop

    def _load_readers(self, reader: ReaderState | None) -> None:
        before = self._loaded_reader, self._stands_at
        self._loaded_reader = reader
        try:
            pipeline = self._make_pipeline()
        except StateError:
            self._loaded_reader, self._stands_at = before
            raise
        self._replace_pipeline((0, ()), pipeline)

    def _require_within_epoch(self, saved: LoaderState) -> None:
        if self._steps is not None and saved.batch >= self._steps:
            raise damaged([f"  - `batch` must be less than steps_per_epoch={self._steps}, got {saved.batch}"])
        if saved.batch > 0 and isinstance(self._input, PlannedInput):
            require_within_epoch(saved, self._input.sampler)

    def _replace_pipeline(
        self, legs: tuple[int, tuple[Leg, ...]], pipeline: StructuredPipeline | None = None
    ) -> None:
        """Use a new pipeline: only at its start can workers be told that an epoch was begun differently."""
        was_started = self._iterator is not None
        self._close_pipeline()
        self._num_batches = {}
        self._legs = legs
        self._pipeline = self._make_pipeline() if pipeline is None else pipeline
        if was_started:
            self.start()

    # --- access -----------------------------------------------------------------------------------

    @property
    def batch_size(self) -> int:
        """Samples per batch on this shard."""
        return self._bound.batch_size

    @property
    def _total_batch_size(self) -> int:
        return self.batch_size * self.shard.num_shards

    @property
    def num_workers(self) -> int:
        """Worker processes that load samples."""
        return self._num_workers

    @property
    def shard(self) -> Shard:
        """Which part of each batch this loader delivers."""
        return self._bound.shard

    @property
    def dataset(self) -> Any:
        """The data provider, or for inputs of one's own the input."""
        return self._input.provider if isinstance(self._input, PlannedInput) else self._definition.data_input

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        """Format of the batches, as an empty copy."""
        return self._pipeline.output_blueprint

    @property
    def _has_callable(self) -> bool:
        return callable(self._input)

    @property
    def _is_endless(self) -> bool:
        return not getattr(self._input, "has_epochs", True)

    @property
    def _is_stream(self) -> bool:
        """Whether there are no epochs at all: the input is endless, and its batches are not counted as epochs."""
        return self._is_endless and self._steps is None

    # --- closing ----------------------------------------------------------------------------------

    def close(self) -> None:
        """End the worker processes and free their memory. Batches that were delivered stay valid."""
        self._is_closed = True
        self._close_pipeline()

    def _close_pipeline(self) -> None:
        if self._iterator is not None:
            self._iterator.close()
        self._iterator = None
        self._pipeline.close()

    def _require_open(self) -> None:
        if self._is_closed:
            raise ClosedError("The loader was closed. Create a new one.")

    def __enter__(self) -> DataLoader:
        """Return itself."""
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the loader."""
        self.close()


class _Loop(Iterator[Any]):
    """One loop over a loader."""

    def __init__(self, loader: DataLoader) -> None:
        self._loader = loader
        self.has_ended = False

    def __next__(self) -> Any:
        return self._loader._next(self)


def _no_loop() -> None:
    return None
