# SPDX-License-Identifier: Apache-2.0
"""A loop over a loader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

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
