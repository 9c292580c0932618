# SPDX-License-Identifier: Apache-2.0
"""The pipeline that a loader runs, and its replacement when a state is loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

import attrs

from ..checks import whole_number
from ..engine.structured_pipeline import StructuredPipeline
from ..errors import ClosedError, SettingError, StateError
from ..pipeline.dali_structured_output_iterator import DALIStructuredOutputIterator
from ..pipeline.pipeline import PipelineDefinition
from ..sampling.random_access_sampler import EpochSegment
from .input_binding import LoaderInput
from .position import Position
from .state import ReaderState

EpochSegments: TypeAlias = tuple[int, tuple[EpochSegment, ...]]
"""An epoch, and what was delivered of it with other batch sizes; no segments for an epoch from its beginning."""

NO_SEGMENTS: EpochSegments = (0, ())


@attrs.frozen(eq=False)
class _BuiltPipeline:
    pipeline: StructuredPipeline
    data_input: Any
    starts_at: Position


class LoaderPipeline:
    """Owns a pipeline and the iterator over it.

    Another pipeline takes its place where an epoch goes on with other batch sizes (only at the start of a pipeline
    can workers be told that) and where native readers go on at a checkpoint.

    Attributes:
        segments: How the epoch was begun.
        loaded_reader: Where native readers were told to go on, or None.
    """

    def __init__(
        self,
        definition: PipelineDefinition,
        bound: LoaderInput,
        arguments: Mapping[str, Any],
        make_iterator: Callable[..., DALIStructuredOutputIterator],
    ) -> None:
        """Make the pipeline; nothing is started.

        Args:
            definition: Input and steps.
            bound: The input as the loader has it.
            arguments: Arguments of `PipelineDefinition.get_dali_pipeline`.
            make_iterator: Makes an iterator of the argument ``pipeline``.

        Raises:
            SettingError: An argument is out of its range.
            FormatError: The steps do not fit the data.
            DeviceError: A step needs a GPU, and none is usable.
        """
        self._definition = definition
        self._bound = bound
        self._arguments = arguments
        self._make_iterator = make_iterator
        self.segments = NO_SEGMENTS
        self.loaded_reader: ReaderState | None = None
        self._is_closed = False
        self._iterator: DALIStructuredOutputIterator | None = None
        self._made = self._make(NO_SEGMENTS, None)

    def _make(self, segments: EpochSegments, reader: ReaderState | None) -> _BuiltPipeline:
        data_input = self._bound.data_input
        if segments[1]:
            data_input = data_input.continued(*segments)
        whole = self._bound.parts.with_main(data_input)
        checkpoint: dict[str, Any] = {} if reader is None else {"checkpoint": reader.checkpoint}
        pipeline = self._definition.with_input(whole).get_dali_pipeline(**self._arguments, **checkpoint)
        if not isinstance(pipeline, StructuredPipeline):
            raise SettingError("A loader cannot use DALI's debug mode. Use get_dali_pipeline(debug=True).")
        starts_at = Position()
        if reader is not None:
            starts_at = self._continue_readers(pipeline, reader)
        return _BuiltPipeline(pipeline, data_input, starts_at)

    def _continue_readers(self, pipeline: StructuredPipeline, reader: ReaderState) -> Position:
        try:
            pipeline.build()
        except (SettingError, RuntimeError) as error:
            pipeline.close()
            raise StateError(f"DALI cannot restore the state of the native readers: {error}") from error
        if not self._bound.is_read_natively:
            return Position()
        pipeline.continue_at(reader.epoch, reader.batch)
        return Position(reader.epoch, reader.batch)

    def start(self) -> bool:
        """Start the worker processes; return whether that was not done before.

        Raises:
            ClosedError: The loader was closed.
        """
        self.require_open()
        if self._iterator is not None:
            return False
        self._iterator = self._make_iterator(pipeline=self.pipeline)
        return True

    def replace(self, segments: EpochSegments) -> bool:
        """Use a new pipeline that goes on with an epoch; return whether it was started, as the old one was.

        Where the new one cannot be made, nothing is changed.
        """
        made = self._make(segments, self.loaded_reader)
        was_started = self._close_pipeline()
        self.segments, self._made = segments, made
        return was_started and self.start()

    def continue_readers(self, reader: ReaderState | None) -> bool:
        """Use a new pipeline whose native readers go on; return whether it was started, as the old one was.

        Raises:
            StateError: The checkpoint cannot be restored; then nothing was changed.
        """
        made = self._make(self.segments, reader)
        was_started = self._close_pipeline()
        self.segments, self.loaded_reader, self._made = NO_SEGMENTS, reader, made
        return was_started and self.start()

    # --- what it is -------------------------------------------------------------------------------

    @property
    def pipeline(self) -> StructuredPipeline:
        """The present pipeline."""
        return self._made.pipeline

    @property
    def data_input(self) -> Any:
        """What workers load: the input of the loader, or that of an epoch that goes on."""
        return self._made.data_input

    @property
    def starts_at(self) -> Position:
        """Where the present pipeline goes on if it is not told otherwise."""
        return self._made.starts_at

    @property
    def iterator(self) -> DALIStructuredOutputIterator | None:
        """The iterator over it, once it was started."""
        return self._iterator

    def reader_state(self, position: Position) -> ReaderState | None:
        """Where native readers stand, while the loader stands at a position; None where none keep their place."""
        if not self._bound.keeps_checkpoints or self._iterator is None:
            return self.loaded_reader
        stands_at = position.epoch, position.batch
        if self._bound.is_read_natively:  # else they are one stream, in which only the checkpoint tells a place
            stands_at = self.pipeline.reader_position
        return ReaderState(*stands_at, cast(Any, self.pipeline).checkpoint())

    # --- closing ----------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        """Whether the loader was closed."""
        return self._is_closed

    def require_open(self) -> None:
        """Raise a `ClosedError` where the loader was closed."""
        if self._is_closed:
            raise ClosedError("The loader was closed. Create a new one.")

    def close(self) -> None:
        """End the worker processes and free their memory."""
        self._is_closed = True
        self._close_pipeline()

    def _close_pipeline(self) -> bool:
        """Close the present pipeline; return whether it was started."""
        was_started = self._iterator is not None
        if self._iterator is not None:
            self._iterator.close()
        self._iterator = None
        self.pipeline.close()
        return was_started


def arguments_for_pipeline(
    bound: LoaderInput,
    *,
    seed: int,
    num_workers: int,
    num_threads: int | None,
    device_id: int | None,
    start_method: str,
    worker_init_fn: Callable[[int], object] | None,
    others: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Arguments of `PipelineDefinition.get_dali_pipeline` that a loader gives, see `DataLoader`.

    Raises:
        SettingError: One is out of its range, or is given twice.
    """
    arguments: dict[str, Any] = {
        "batch_size": bound.batch_size,
        "device_id": device_id,
        "seed": seed,
        "py_num_workers": num_workers,
        "py_start_method": start_method,
        "worker_init_fn": worker_init_fn,
    }
    if bound.keeps_checkpoints:
        arguments["enable_checkpointing"] = True
    if num_threads is not None:
        arguments["num_threads"] = whole_number(num_threads, "num_threads", at_least=1)
    if others is not None and not isinstance(others, Mapping):
        raise SettingError(f"`pipeline_arguments` must be a dict, got {type(others).__name__}.")
    if start_method not in ("spawn", "fork", "forkserver"):
        raise SettingError(f"`start_method` must be 'spawn', 'fork' or 'forkserver', got {start_method!r}.")
    for name, value in (others or {}).items():
        if name in arguments:
            raise SettingError(f"`pipeline_arguments` has `{name}`, which is an argument of the loader itself.")
        arguments[name] = value
    return arguments
