# SPDX-License-Identifier: Apache-2.0
"""Units of equal length, side by side in the slots of a batch."""

from __future__ import annotations

import numpy as np

from ..arithmetic.last_batch import LastBatch, SampleCounts
from .epoch_plan import EpochPlan
from .orders import EpochOrder
from .planned_batch import PlannedBatch
from .stream_plan import Segments, StreamPlan
from .tracks import UnitTable


class FlatPlan(EpochPlan):
    """Each group of ``B`` units fills the ``B`` slots for as many batches as a unit has samples.

    Units of two samples in three slots (``A0`` is the first sample of the first unit of the order)::

        slot 0 | A0 A1 | D0 D1 | G0 G1
        slot 1 | B0 B1 | E0 E1 |  -  -    the last group is dropped, padded, smaller, or wrapped
        slot 2 | C0 C1 | F0 F1 |  -  -
    """

    def __init__(
        self,
        order: EpochOrder,
        unit_table: UnitTable,
        epoch_key: int,
        total_batch_size: int,
        last_batch: LastBatch,
        first_position: int = 0,
    ) -> None:
        """Plan the epoch from position ``first_position`` of the order on."""
        self._order = order
        self._unit_table = unit_table
        self._epoch_key = epoch_key
        self._num_slots = total_batch_size
        self._last_batch = last_batch
        self._first_position = first_position
        self._length = unit_table.uniform_length or 1
        self._num_units = order.num_positions - first_position
        self._num_groups = self._num_units // total_batch_size
        if last_batch != "drop" and self._num_units % total_batch_size:
            self._num_groups += 1
        self.num_batches = self._num_groups * self._length

    def batch(self, number: int) -> PlannedBatch:
        """Get a batch."""
        group, offset = divmod(number, self._length)
        first = self._first_position + group * self._num_slots
        positions = np.arange(first, first + self._num_slots)
        beyond = positions >= self._order.num_positions
        if self._last_batch == "wrap":
            positions %= self._order.num_positions
        else:
            positions[beyond] = self._order.num_positions - 1
        units, visits = self._order.units(positions)
        samples = self._unit_table.samples(units, np.full(self._num_slots, offset), visits, self._epoch_key)
        return samples.in_slots(offset == 0, offset == self._length - 1, visits, beyond, self._last_batch)

    def rest(self, num_delivered: int, total_batch_size: int, num_shards: int, last_batch: LastBatch) -> EpochPlan:
        """Plan what is left for other batches.

        In the middle of a group, the begun units are finished in the new slots, as segments of their own. For
        that the remaining units are listed: memory grows with their number.
        """
        group, offset = divmod(num_delivered, self._length)
        # The last group may be padded: behind it the order has no positions.
        position = min(self._first_position + group * self._num_slots, self._order.num_positions)
        if offset == 0:
            return FlatPlan(self._order, self._unit_table, self._epoch_key, total_batch_size, last_batch, position)
        positions = np.arange(position, self._order.num_positions)
        units, visits = self._order.units(positions)
        first_offsets = np.where(np.arange(len(positions)) < self._num_slots, offset, 0)
        segments = Segments(units, first_offsets, self._length - first_offsets, visits)
        return StreamPlan(segments, self._unit_table, self._epoch_key, total_batch_size, last_batch, cut=False)

    @property
    def sample_counts(self) -> SampleCounts:
        """Number of samples delivered, dropped, repeated and padded."""
        num_slots = self._num_groups * self._num_slots
        return SampleCounts.of_slots(
            self._last_batch,
            num_batches=self.num_batches,
            num_samples=self._num_units * self._length,
            num_delivered=min(num_slots, self._num_units) * self._length,
            num_slots=num_slots * self._length,
        )
