# SPDX-License-Identifier: Apache-2.0
"""A loop over a loader."""

from __future__ import annotations

from collections.abc import Iterator
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
        try:
            return self._loader._next(self)
        except (GraphError, SourceError, WorkerDiedError) as error:  # how it got here does not help
            raise error.with_traceback(None) from error.__cause__


def no_loop() -> None:
    """Stands for a reference to a loop where there is none."""
    return None
