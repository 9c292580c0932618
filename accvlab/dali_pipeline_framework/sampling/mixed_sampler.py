# SPDX-License-Identifier: Apache-2.0
"""Several samplers, or data sets, at given rates."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import attrs
import numpy as np
from cachetools import LRUCache

from ..checks import MOST_SAMPLES, elements, whole_number
from ..errors import SettingError
from .arithmetic.keyed_permutation import PermutationTable
from .arithmetic.last_batch import LastBatch
from .arithmetic.mixture_schedule import MixtureSchedule
from .planned_sampler import PlannedSampler
from .plans.epoch_plans import EpochOrder, Order
from .plans.planned_batch import Int64Array, distinct
from .plans.tracks import JoinedUnits
from .random_access_sampler import Description
from .sampler_base import SamplerBase


class MixedSampler(PlannedSampler):
    """Takes what other samplers deliver, in turn and at given rates.

    The components must be of the same kind: samples, clips of the same length, or streams; and clips must be
    delivered in the same way, frame by frame or each as one sample. What is counted is what they deal to the
    slots: samples, clips, or for streams whole sequences (not their frames). After any number of them, each
    component's count is within one of that number times its rate (`MixtureSchedule`).

    Each component goes through its own epochs: it starts its next one when it is used up, so within one epoch
    of the mixture a small component can be delivered several times, and of a large one only a part.

    Example::

        >>> from accvlab.dali_pipeline_framework.sampling.sharded_permutation_sampler import ShuffledSampler
        >>> day, night = ShuffledSampler(80, shuffle=False), ShuffledSampler(20, shuffle=False)
        >>> sampler = MixedSampler([day, night], [0.5, 0.5], 4, offsets=[0, 80])
        >>> sampler.get_next_batch_indices()
        [0, 80, 1, 81]
    """

    def __init__(
        self,
        samplers: Sequence[PlannedSampler],
        rates: Sequence[float],
        total_batch_size: int | None = None,
        *,
        offsets: Sequence[int] | Int64Array | None = None,
        num_per_epoch: int | None = None,
        last_batch: LastBatch | None = None,
    ) -> None:
        """Create the sampler.

        Args:
            samplers: The components. Their own batch size and last-batch policy are not used.
            rates: Rate of each component, above 0; together 1.
            total_batch_size: Number of slots, all shards together. None: set later, by the loader.
            offsets: Added to the sample indices of each component: for data sets that are joined by a
                `ConcatDataProvider`, its ``offsets``. None: all components choose from the same data set.
            num_per_epoch: Number of samples, clips or sequences per epoch of the mixture; None for as many as the
                components have together.
            last_batch: What becomes of a last batch that is not full; None for ``"drop"``, with streams for
                ``"pad"``.

        Raises:
            SettingError: An argument is out of its range, or the components are of different kinds.
        """
        self._samplers = _checked_samplers(samplers)
        first = self._samplers[0]
        self.is_streamed = first.is_streamed
        self.cuts = any(sampler.cuts for sampler in self._samplers)
        if last_batch is None:
            last_batch = "pad" if self.is_streamed else "drop"
        super().__init__(total_batch_size, last_batch)
        self._schedule = MixtureSchedule(rates)
        if self._schedule.num_components != len(self._samplers):
            raise SettingError(
                f"`rates` must have one rate per sampler: got {self._schedule.num_components} rate(s) for "
                f"{len(self._samplers)} sampler(s)."
            )
        self._has_offsets = offsets is not None
        self._offsets = [0] * len(self._samplers)
        if offsets is not None:
            given = elements(offsets)
            if given is None:
                raise SettingError(f"`offsets` must be a sequence of whole numbers, or None, got {offsets!r}.")
            self._offsets = [whole_number(each, "offsets", at_least=0, at_most=MOST_SAMPLES) for each in given]
            if len(self._offsets) != len(self._samplers):
                raise SettingError(
                    f"`offsets` must have one offset per sampler: got {len(self._offsets)} for "
                    f"{len(self._samplers)} sampler(s)."
                )
        self._num_samples = max(
            offset + sampler.num_samples for offset, sampler in zip(self._offsets, self._samplers, strict=True)
        )
        self.seed = first.seed
        unit_tables = [sampler.unit_table for sampler in self._samplers]
        num_units = sum(each.num_units for each in unit_tables)
        if num_units > MOST_SAMPLES:
            raise SettingError(
                f"The samplers of a mixture must have at most 2**62 samples, clips or sequences together, got "
                f"{num_units}."
            )
        self.unit_table = unit_table = JoinedUnits(unit_tables, None if offsets is None else self._offsets)
        orders = [sampler.order for sampler in self._samplers]
        if num_per_epoch is None:
            num_per_epoch = sum(order.num_positions for order in orders)
        num_per_epoch = whole_number(num_per_epoch, "num_per_epoch", at_least=1, at_most=MOST_SAMPLES)
        self.order = MixedOrder(orders, unit_table.first_units[:-1].tolist(), self._schedule, num_per_epoch)

    @property
    def samplers(self) -> list[PlannedSampler]:
        """The components."""
        return list(self._samplers)

    @property
    def rates(self) -> tuple[float, ...]:
        """The rates that are realised exactly: those asked for, or where they have no small common denominator,
        the nearest multiples of 1/65536 (at least one each)."""
        return tuple(float(rate) for rate in self._schedule.rates)

    def check_provider(self, provider: Any) -> None:
        """Raise a `SettingError` where the components do not lie on the data sets that a provider joins."""
        starts, joined = getattr(provider, "offsets", None), getattr(provider, "providers", None)
        if starts is None or joined is None:
            for sampler in self._samplers:
                sampler.check_provider(provider)
            return
        starts = [int(start) for start in starts]
        if self._has_offsets:
            for number, (sampler, offset) in enumerate(zip(self._samplers, self._offsets, strict=True)):
                if offset not in starts:
                    raise SettingError(
                        f"`offsets` must be the first sample indices of joined data sets, which are {starts}; "
                        f"that of sampler {number} is {offset}. Pass offsets=provider.offsets."
                    )
                sampler.check_provider(joined[starts.index(offset)])
        elif self.num_samples <= starts[-1]:
            raise SettingError(
                f"The samplers choose from the first {self.num_samples} samples, so data set {len(starts) - 1} of "
                f"{type(provider).__name__}, which begins at {starts[-1]}, is never reached. Where each sampler "
                f"is for one of the data sets, pass offsets=provider.offsets."
            )

    @property
    def knows_sequences(self) -> bool:  # type: ignore[override]
        """Whether all components know their sequences."""
        return all(sampler.knows_sequences for sampler in self._samplers)

    def _exact_settings(self) -> tuple[Hashable, ...]:
        return (*super()._exact_settings(), self._schedule.rates, *self._samplers)

    def describe(self) -> Description:
        """What the order depends on."""
        description: Description = {
            **super().describe(),
            "rates": ", ".join(f"{rate:.6g}" for rate in self.rates),
            "offsets": ", ".join(map(str, self._offsets)),
            "num_per_epoch": self.order.num_positions,
        }
        for number, sampler in enumerate(self._samplers):
            description.update({f"samplers[{number}].{name}": value for name, value in sampler.describe().items()})
        return description


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
        self._epochs: LRUCache[tuple[int, int], EpochOrder] = LRUCache(4 * len(order.orders))
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
            order = self._epochs[component, epoch] = self._orders[component].of_epoch(epoch)
        return order


def _checked_samplers(samplers: Sequence[PlannedSampler]) -> list[PlannedSampler]:
    if isinstance(samplers, SamplerBase) or not isinstance(samplers, Iterable):
        raise SettingError(
            f"`samplers` must be a sequence of samplers, e.g. a list, got an object of type "
            f"{type(samplers).__name__}."
        )
    kept = list(samplers)
    if not kept:
        raise SettingError("A mixture needs at least one sampler, got none.")
    for number, sampler in enumerate(kept):
        if not isinstance(sampler, PlannedSampler):
            raise SettingError(
                f"Sampler {number} of a mixture must be one of ShuffledSampler, SequentialSampler, "
                f"WeightedSampler, StreamingSequenceSampler, ClipSampler and "
                f"MixedSampler, got {type(sampler).__name__}."
            )
    kinds = [_kind(sampler) for sampler in kept]
    if len(set(kinds)) > 1:
        listed = ", ".join(f"{number}: {kind}" for number, kind in enumerate(kinds))
        raise SettingError(
            f"The samplers of a mixture must be of one kind (samples, clips of one length, or streams; clips all "
            f"frame by frame or all as samples), got {listed}."
        )
    return kept


def _kind(sampler: PlannedSampler) -> str:
    grain, length = sampler.unit_table.grain, sampler.unit_table.uniform_length
    num_frames = sampler.unit_table.num_frames_per_sample
    if num_frames is not None:  # they need a `ClipDataProvider` for clips of that length
        return f"{'streams of ' if sampler.is_streamed else ''}clips of {num_frames} frames as samples"
    if sampler.is_streamed:
        return "streams" if grain == 1 else f"streams of clips of {grain} frames"
    return "samples" if length == 1 else f"clips of {length} frames"
