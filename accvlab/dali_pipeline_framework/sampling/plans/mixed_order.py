# SPDX-License-Identifier: Apache-2.0
"""Units of several orders, taken in turn."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from ..arithmetic.keyed_permutation import PermutationTable
from ..arithmetic.mixture_schedule import MixtureSchedule
from .orders import EpochOrder, Order
from .planned_batch import Int64Array, distinct


@attrs.frozen(eq=False)
class MixedOrder(Order):
    """Takes units of several orders in turn, at given rates.

    The components continue over the epochs of the mixture: each starts its own next epoch when it is used up.
    Unit ``u`` of component ``c`` is unit ``first_units[c] + u`` of the mixture.
    """

    orders: Sequence[Order]
    first_units: Sequence[int]
    schedule: MixtureSchedule
    num_positions: int

    def of_epoch(self, epoch: int) -> EpochOrder:
        """The order of an epoch."""
        return EpochOrder(self.num_positions, _Mixed(self, epoch).units)


class _Mixed:
    def __init__(self, order: MixedOrder, epoch: int) -> None:
        self._orders = order.orders
        self._schedule = order.schedule
        self._first_position = epoch * order.num_positions
        self._epochs: dict[tuple[int, int], EpochOrder] = {}
        self._sizes = np.array([each.num_positions for each in order.orders], np.int64)
        self._offsets = np.array(order.first_units, np.int64)
        # The permutations of the components, and of which epochs they are.
        self._table = PermutationTable(len(order.orders))
        self._table_epochs = np.full(len(order.orders), -1, np.int64)

    def units(self, positions: Int64Array) -> tuple[Int64Array, Int64Array]:
        components, in_component = self._schedule.locate(positions + self._first_position)
        epochs, in_epoch = np.divmod(in_component, self._sizes[components])
        if (self._table_epochs[components] == epochs).all():  # the usual case, which must be fast
            units = self._table.items(components, in_epoch)
        else:
            units = self._units_one_by_one(components, epochs, in_epoch)
        return units + self._offsets[components], positions + 1

    def _units_one_by_one(self, components: Int64Array, epochs: Int64Array, in_epoch: Int64Array) -> Int64Array:
        units = np.empty(len(components), np.int64)
        for component in distinct(components):
            slots = np.flatnonzero(components == component)
            for epoch in distinct(epochs[slots]):
                now = slots[epochs[slots] == epoch]
                order = self._epoch_of(component, epoch)
                units[now] = order.units(in_epoch[now])[0]
                if order.permutation is not None:
                    self._table[component] = order.permutation
                    self._table_epochs[component] = epoch
        return units

    def _epoch_of(self, component: int, epoch: int) -> EpochOrder:
        order = self._epochs.get((component, epoch))
        if order is None:
            order = self._orders[component].of_epoch(epoch)
            if len(self._epochs) >= 4 * len(self._orders):
                del self._epochs[next(iter(self._epochs))]
            self._epochs[component, epoch] = order
        return order
