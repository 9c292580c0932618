# SPDX-License-Identifier: Apache-2.0
"""The position of a loader: what was delivered, what the pipeline makes next, where the next loop starts."""

from __future__ import annotations

import attrs


@attrs.frozen
class Position:
    """A place between two batches: ``batch`` is the next one of ``epoch``."""

    epoch: int = 0
    batch: int = 0


@attrs.define
class LoopProgress:
    """The position of a loader.

    Attributes:
        is_endless: Whether the input has no epochs of its own.
        is_stream: Whether there are no epochs at all: its batches are not counted as epochs either.
        delivered: Position after the last batch that the loop has received.
        pipeline: Position of the batch that the pipeline delivers next.
        next_start: Where the next loop starts.
        is_loaded: Whether a state was loaded, and no batch has come after it yet.
        is_epoch_set: Whether `next_start` was set while a loop runs.
    """

    is_endless: bool
    is_stream: bool
    delivered: Position = Position()
    pipeline: Position = Position()
    next_start: Position = Position()
    is_loaded: bool = False
    is_epoch_set: bool = False

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
        self.is_loaded = True
        self.is_epoch_set = False
