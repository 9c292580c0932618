# SPDX-License-Identifier: Apache-2.0
"""Which batches there are, in the main process: the places of their samples, and what follows a batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..draws.keyed_draws import SamplePlace
from ..sources.given_order import GivenOrderSampler
from ..sources.input_adapter import InputAdapter
from ..sources.planned_input import PlannedInput
from ..sources.positions import infos_of_batch
from .messages import Position, Task


class BatchPlan:
    """The batches of an input.

    Attributes:
        planned: The input, if a sampler plans its batches; its places then travel with the tasks.
        is_callable: Whether batches can be loaded in any order, by any number of workers.
    """

    def __init__(self, source: Any, batch_size: int) -> None:
        """Set the input."""
        self.source = source
        self.planned = source if isinstance(source, PlannedInput) else None
        self.is_callable = callable(source)
        self._batch_size = batch_size
        self._is_given = self.planned is not None and isinstance(self.planned.sampler, GivenOrderSampler)
        self._num_batches: dict[int, int | None] = {}

    def forget(self) -> None:
        """Forget sizes of epochs: the order of the user was made anew."""
        self._num_batches.clear()

    def task(self, position: Position) -> Task | None:
        """Make the task for a batch, with the places of its samples; None if the epoch has no such batch."""
        planned, (epoch, batch) = self.planned, position
        size = self._num_batches[epoch] if epoch in self._num_batches else self._size(epoch)
        if size is not None and batch >= size:
            return None
        return Task(position, None if planned is None else planned.get_places(epoch, batch))

    def following(self, position: Position) -> Position | None:
        """Get what comes after a batch; None if that is not known yet."""
        epoch, batch = position
        size = self._size(epoch)
        if size is None or batch + 1 < size:
            return epoch, batch + 1
        if self.planned is None or self._is_given:  # the order of another epoch is made when its loop begins
            return None
        return (epoch + 1, 0) if self._size(epoch + 1) else None

    def is_behind_end(self, position: Position) -> bool:
        """Whether an epoch is known to have no such batch."""
        size = self._num_batches.get(position[0])
        return size is not None and position[1] >= size

    def note_end(self, position: Position) -> None:
        """Note that an epoch has no such batch."""
        if self.is_callable:
            self._num_batches[position[0]] = position[1]

    def _size(self, epoch: int) -> int | None:
        if self.planned is None:
            return self._num_batches.get(epoch)
        if epoch not in self._num_batches:
            self._num_batches[epoch] = self.planned.num_batches_in_epoch(epoch)
        return self._num_batches[epoch]

    def substitutes(self, place: SamplePlace) -> Iterator[int]:
        """Get the indices of the samples to try in the place of one that has failed, in order."""
        return iter(()) if self.planned is None else self.planned.substitutes(place)

    def sample_index(self, task: Task, number: int) -> int | None:
        """Index in the data set of a sample by its number in a batch, also where only the input knows it."""
        known = task.sample_index(number)
        if known is not None or not self.is_callable or not 0 <= number < self._batch_size:
            return known
        try:
            infos = infos_of_batch(*task.position, self._batch_size)
            return InputAdapter(self.source).sample_index(infos[number])
        except Exception:  # only decorates another error
            return None
