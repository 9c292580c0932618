# SPDX-License-Identifier: Apache-2.0
"""A loop over a loader."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from ..errors import GraphError, SourceError, WorkerDiedError

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
        self.has_begun = self.has_ended = False

    def __next__(self) -> Any:
        """Get the next batch."""
        loader, times = self._loader, self._loader._times
        asked_at = perf_counter_ns()
        try:
            batch = loader._next(self)
        except (GraphError, SourceError, WorkerDiedError) as error:  # how it got here does not help
            raise error.with_traceback(None) from error.__cause__
        received_at = perf_counter_ns()
        times.num_batches += 1
        times.next_ns += received_at - asked_at
        times.between_ns += asked_at - times.received_at
        times.received_at = received_at
        pipeline = loader._run.pipeline
        if received_at >= times.due_at or pipeline is not times.pipeline:
            times.read_clocks(received_at - asked_at, pipeline)
        return batch


def no_loop() -> None:
    """Stands for a reference to a loop where there is none."""
    return None
