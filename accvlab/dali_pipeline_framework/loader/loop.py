# SPDX-License-Identifier: Apache-2.0
"""A loop over a loader, and how far it has come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import attrs

from ..engine.interrupts import DeferredInterrupt

if TYPE_CHECKING:
    from .data_loader import DataLoader


class Loop(Iterator[Any]):
    """One loop over a loader.

    Attributes:
        has_begun: Whether it has received a batch.
        has_ended: Whether it has received all.
    """

    def __init__(self, loader: DataLoader) -> None:
        """Begin a loop over ``loader``, which is kept as long as the loop is."""
        self._loader = loader
        self._interrupts = DeferredInterrupt()
        self.has_begun = self.has_ended = False

    def __next__(self) -> Any:
        """Get the next batch.

        An exception of a signal handler comes out of here before the batch counts as received: another call
        returns it. Only where the signal comes in the last few operations, after the batch was counted and before
        the caller has it, that batch is lost to the caller (``for`` loops have it then).
        """
        progress = self._loader._progress
        with self._interrupts:
            made = progress.made = self._loader._made(self)
        callable(None)  # Python runs handlers after calls of built-in functions and at jumps back: here, then not
        progress.made = progress.reader = None
        if made.error is not None:
            try:
                raise made.error
            finally:
                del made  # else the error, by its traceback, would hold itself
        if not progress.is_epoch_set:
            progress.next_start = made.next_start
        progress.delivered = made.delivered
        self.has_begun = True
        return made.batch


def no_loop() -> None:
    """Stands for a reference to a loop where there is none."""
    return None


@attrs.frozen
class Position:
    """A place between two batches: ``batch`` is the next one of ``epoch``."""

    epoch: int = 0
    batch: int = 0


@attrs.frozen
class Made:
    """A batch that a loop is to receive, or an error; kept where a signal handler has raised an exception.

    Attributes:
        batch: The batch.
        error: What to raise; None for a batch.
        delivered: Position after the batch.
        next_start: Where the next loop starts once it was received.
    """

    batch: Any
    error: Exception | None
    delivered: Position
    next_start: Position


@attrs.define
class LoopProgress:
    """How far a loader has come.

    Attributes:
        is_endless: Whether the input has no epochs of its own.
        is_stream: Whether there are no epochs at all: its batches are not counted as epochs either.
        delivered: Behind what the loop has received.
        pipeline: Where the pipeline goes on if it is not told otherwise.
        next_start: Where the next loop starts.
        made: What the loop receives next, if that is there already.
        is_epoch_set: Whether `next_start` was set while a loop runs.
        reader: State of the native readers at `delivered`, while the pipeline may be further; else None.
    """

    is_endless: bool
    is_stream: bool
    delivered: Position = Position()
    pipeline: Position = Position()
    next_start: Position = Position()
    made: Made | None = None
    is_epoch_set: bool = False
    reader: Any = None

    def end_setting(self) -> None:
        """Begin a loop: what was set for the next loop now applies to this one."""
        self.is_epoch_set = False

    def begin(self, is_positioned: bool = True) -> None:
        """Begin a loop.

        Args:
            is_positioned: Whether the pipeline goes on where the loop starts, and not where it was.
        """
        self.delivered = self.next_start
        if is_positioned or not self.is_stream:
            self.pipeline = self.next_start
            self.made = self.reader = None

    def leave_pipeline(self) -> None:
        """Count a batch that has left the pipeline."""
        at = self.pipeline
        self.pipeline = Position(at.epoch, at.batch + 1)
        if not self.is_epoch_set:
            self.next_start = self.pipeline if self.is_stream else Position(at.epoch + 1)

    def end_loop(self) -> None:
        """End a loop that was not left by ``break``."""
        if self.is_stream:  # it was limited, and is used up
            return
        next_epoch = Position(self.pipeline.epoch + 1)
        if self.is_endless:
            self.pipeline = next_epoch
        if not self.is_epoch_set:
            self.next_start = next_epoch
        self.delivered = self.next_start

    def set_epoch(self, epoch: int, is_running: bool) -> None:
        """Have the next loop run in an epoch; nothing changes where it does so anyway."""
        if epoch != self.next_start.epoch:
            self.next_start = Position(epoch)
            self.is_epoch_set = True
        if not is_running:
            self.delivered = self.next_start

    def continue_at(self, position: Position) -> None:
        """Have the next loop start at a position, as if all before it was delivered."""
        self.delivered = self.next_start = position
        self.is_epoch_set = False
        self.made = self.reader = None
