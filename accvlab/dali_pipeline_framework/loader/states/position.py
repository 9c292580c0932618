# SPDX-License-Identifier: Apache-2.0
"""Where a loader stands, and where its next loop starts: arithmetic, without any data."""

from __future__ import annotations

import attrs


@attrs.frozen
class Position:
    """A place between two batches: ``batch`` is the next one of ``epoch``."""

    epoch: int = 0
    batch: int = 0


@attrs.define
class LoopProgress:
    """How far a loader has come.

    Attributes:
        is_endless: Whether the input has no epochs of its own.
        is_stream: Whether there are no epochs at all: its batches are not counted as epochs either.
        delivered: Behind what the loop has received.
        pipeline: Where the pipeline goes on if it is not told otherwise.
        next_start: Where the next loop starts.
    """

    is_endless: bool
    is_stream: bool
    delivered: Position = Position()
    pipeline: Position = Position()
    next_start: Position = Position()
    _is_epoch_set: bool = attrs.field(default=False, init=False)  # while a loop runs

    def end_setting(self) -> None:
        """Begin a loop: what was set for the next loop now applies to this one."""
        self._is_epoch_set = False

    def begin(self) -> None:
        """Record that the pipeline was told where to start."""
        self.delivered = self.pipeline = self.next_start

    def leave_pipeline(self) -> None:
        """Count a batch that has left the pipeline."""
        at = self.pipeline
        self.pipeline = Position(at.epoch, at.batch + 1)
        if not self._is_epoch_set:
            self.next_start = self.pipeline if self.is_stream else Position(at.epoch + 1)

    def go_back(self, to: LoopProgress) -> None:
        """Have the next loop start as if what the pipeline has delivered since then had not been received."""
        self.delivered, self.next_start, self._is_epoch_set = to.delivered, to.next_start, to._is_epoch_set

    def end_loop(self) -> None:
        """End a loop that was not left by ``break``."""
        if self.is_stream:  # it was limited, and is used up
            return
        next_epoch = Position(self.pipeline.epoch + 1)
        if self.is_endless:
            self.pipeline = next_epoch
        if not self._is_epoch_set:
            self.next_start = next_epoch
        self.delivered = self.next_start

    def set_epoch(self, epoch: int, is_running: bool) -> None:
        """Have the next loop run in an epoch; nothing changes where it does so anyway."""
        if epoch != self.next_start.epoch:
            self.next_start = Position(epoch)
            self._is_epoch_set = True
        if not is_running:
            self.delivered = self.next_start

    def continue_at(self, position: Position) -> None:
        """Have the next loop start at a position, as if all before it was delivered."""
        self.delivered = self.next_start = position
        self._is_epoch_set = False
