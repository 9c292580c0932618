# SPDX-License-Identifier: Apache-2.0
"""Plans of an epoch: which samples each batch has, as arithmetic."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import attrs
import numpy as np
import numpy.typing as npt

from ...checks import MOST_SAMPLES, whole_number
from ...draws.keyed_draws import Int64Array, derive_key
from ...errors import SettingError
from ..arithmetic.keyed_permutation import KeyedPermutation
from ..arithmetic.last_batch import LastBatch, SampleCounts
from ..arithmetic.weights import WeightedChoice, checked_weights
from .tracks import PlannedBatch, UnitTable

Weights = Sequence[float] | npt.NDArray[np.float64]


class EpochPlan(ABC):
    """The batches of one epoch (or of the rest of one), by random access; ``num_batches`` of them."""

    num_batches: int

    @property
    def num_begun_batches(self) -> int:
        """Number of batches that can be requested: also one that is dropped, where the plan has that."""
        return self.num_batches

    @abstractmethod
    def batch(self, number: int) -> PlannedBatch:
        """Get a batch, ``0 <= number < num_begun_batches``."""

    @abstractmethod
    def rest(self, num_delivered: int, total_batch_size: int, num_shards: int, last_batch: LastBatch) -> EpochPlan:
        """Plan the rest after the first ``num_delivered`` batches, for another batch size or number of shards.

        No sample is lost or repeated: this plan up to there and the new one together deliver the samples of this
        plan, except those that ``last_batch`` drops, repeats or pads at the end.
        """

    @property
    @abstractmethod
    def sample_counts(self) -> SampleCounts:
        """Number of samples delivered, dropped, repeated and padded."""


@attrs.frozen(eq=False)
class EpochOrder:
    """The units of one epoch in order.

    Attributes:
        num_positions: How many positions the epoch has.
        units: Gets ``(n,)`` units and ``(n,)`` visits at ``(n,)`` positions. The visit is 0 in orders in which no
            unit can occur twice, else the position plus 1.
    """

    num_positions: int
    units: Callable[[Int64Array], tuple[Int64Array, Int64Array]]


class Order(ABC):
    """The orders of all epochs.

    Attributes:
        num_positions: Positions per epoch.
    """

    num_positions: int

    @abstractmethod
    def of_epoch(self, epoch: int) -> EpochOrder:
        """The order of an epoch."""


@attrs.frozen
class ShuffledOrder(Order):
    """Each unit once per epoch: in another random order in each epoch, or in the order of their numbers."""

    num_positions: int
    seed: int
    shuffle: bool

    def of_epoch(self, epoch: int) -> EpochOrder:
        """The order of an epoch."""
        if not self.shuffle:
            return EpochOrder(self.num_positions, lambda positions: (positions, np.zeros_like(positions)))
        permutation = KeyedPermutation(self.num_positions, derive_key("shuffled order", self.seed, epoch))
        return EpochOrder(self.num_positions, lambda positions: (permutation[positions], np.zeros_like(positions)))


@attrs.frozen(eq=False)
class WeightedOrder(Order):
    """Each position draws a unit by weight, with replacement."""

    choice: WeightedChoice
    num_positions: int
    seed: int

    def of_epoch(self, epoch: int) -> EpochOrder:
        """The draws of an epoch."""
        key = derive_key("weighted order", self.seed, epoch)
        return EpochOrder(self.num_positions, lambda positions: (self.choice.draw(key, positions), positions + 1))


def units_order(
    num_units: int, weights: Weights | None, num_per_epoch: int | None, seed: int, shuffle: bool
) -> Order:
    """Make the order of units: drawn by weight where there are weights, else each once."""
    if weights is None:
        if num_per_epoch is not None:
            got = f"{num_per_epoch!r} without weights, with which each is delivered once per epoch"
            raise SettingError(f"`num_per_epoch` goes with `weights`, got {got}.")
        return ShuffledOrder(num_units, seed, shuffle)
    if not shuffle:
        raise SettingError("`weights` do not go with `shuffle=False`, since draws by weight are random: omit one.")
    array = checked_weights(weights, num_units)
    num_per_epoch = num_units if num_per_epoch is None else num_per_epoch
    num_per_epoch = whole_number(num_per_epoch, "num_per_epoch", at_least=1, at_most=MOST_SAMPLES)
    return WeightedOrder(WeightedChoice(array), num_per_epoch, seed)


@attrs.frozen(eq=False)
class Segments:
    """Units to be delivered, or parts of them, in the order of the epoch; each field ``(n,)`` int64.

    Attributes:
        units: The units.
        first_offsets: Offset of the segment's first sample in its unit.
        lengths: Number of samples.
        visits: Distinguishes several deliveries of a unit in the same epoch.
    """

    units: Int64Array
    first_offsets: Int64Array
    lengths: Int64Array
    visits: Int64Array

    def select(self, chosen: Int64Array) -> Segments:
        """Get the segments at these positions."""
        return Segments(self.units[chosen], self.first_offsets[chosen], self.lengths[chosen], self.visits[chosen])


@attrs.define(eq=False, slots=False)
class StreamPlan(EpochPlan):
    """Each slot delivers segments one after the other; each sample of all segments is delivered exactly once.

    Whole (``cut=False``): the segments are sorted by length and assigned to the slots in rounds of alternating
    direction, so the loads of two slots (their numbers of samples) differ by at most the longest segment; each
    slot then delivers its segments in the order of the epoch. The loads do not depend on the order, so shuffled
    epochs have the same number of batches.

    Cut (``cut=True``, or fewer segments than slots): the segments are concatenated in the order of the epoch, and
    the whole is cut into equal pieces: the loads differ by at most one sample, and at most ``B - 1``
    segments are cut::

        | A A A A A B B B|C C C D D D D D|D E E F F F F F|
             slot 0           slot 1          slot 2         D is cut

    Attributes:
        segments: The segments to deliver, in the order of the epoch; then slot by slot.
        unit_table: The samples of the units.
        epoch_key: Key of the random choice of slots.
        num_slots: Total batch size.
        last_batch: Policy for slots that are done before others.
        cut: Whether segments may be cut although there are enough of them.
        shuffle_slots: Whether it is random which slot gets which part.
    """

    segments: Segments
    unit_table: UnitTable
    epoch_key: int
    num_slots: int
    last_batch: LastBatch
    cut: bool = attrs.field(kw_only=True)
    shuffle_slots: bool = attrs.field(default=True, kw_only=True)

    def __attrs_post_init__(self) -> None:
        segments, num_slots = self.segments, self.num_slots
        num_segments = len(segments.units)
        is_cut = self.cut or num_segments < num_slots
        slots, positions, parts = (_cut_evenly if is_cut else _assign_whole)(segments, num_slots)
        self.num_cuts = len(positions) - num_segments
        if self.shuffle_slots:
            slots = KeyedPermutation(num_slots, self.epoch_key)[slots]
        # Sorting by slot keeps the order of the epoch within each; numbers of 16 bits are sorted fastest.
        order = np.argsort(slots.astype(np.uint16) if num_slots <= 1 << 16 else slots, kind="stable")
        slots = slots[order]
        self._positions = positions[order]  # in the order of the epoch, per segment
        self.segments = parts.select(order)
        ends = np.cumsum(self.segments.lengths)
        self._loads = np.bincount(slots, self.segments.lengths, num_slots).astype(np.int64)
        self._starts = ends - self.segments.lengths - (np.cumsum(self._loads) - self._loads)[slots]
        self._fullest = int(np.argmax(self._loads))
        # One sorted array to find the segments of all slots in: slot * stride + first batch of the segment.
        self._stride = int(self._loads[self._fullest]) + 1
        self._keys = slots * self._stride + self._starts
        self._all_slots = np.arange(num_slots)
        self.num_batches = int(self._loads.min() if self.last_batch == "drop" else self._loads.max())

    def batch(self, number: int) -> PlannedBatch:
        """Get a batch."""
        slots, times = self._all_slots, np.full(self.num_slots, number)
        beyond = number >= self._loads
        if beyond.any():
            slots = np.where(self._loads == 0, self._fullest, slots)
            loads = self._loads[slots]
            is_wrapped = self.last_batch == "wrap"
            times = np.where(beyond, number % loads if is_wrapped else loads - 1, times)
        keys = slots * self._stride + times
        found = np.searchsorted(self._keys, keys, side="right") - 1
        offsets = keys - self._keys[found]
        segments = self.segments.select(found)
        samples = self.unit_table.samples(segments.units, segments.first_offsets + offsets)
        ends = offsets == segments.lengths - 1
        return samples.to_batch(offsets == 0, ends, segments.visits, beyond, self.last_batch)

    def rest(self, num_delivered: int, total_batch_size: int, num_shards: int, last_batch: LastBatch) -> EpochPlan:
        """Assign the rest to other slots; adjacent pieces of a segment are joined again."""
        done = np.clip(num_delivered - self._starts, 0, self.segments.lengths)
        left = np.flatnonzero(done < self.segments.lengths)
        left = left[np.lexsort((self.segments.first_offsets[left] + done[left], self._positions[left]))]
        segments, positions, done = self.segments.select(left), self._positions[left], done[left]
        first_offsets, lengths = segments.first_offsets + done, segments.lengths - done
        begins = np.ones(len(left), np.bool_)
        begins[1:] = (positions[1:] != positions[:-1]) | (first_offsets[1:] != (first_offsets + lengths)[:-1])
        heads = np.flatnonzero(begins)
        joined = attrs.evolve(
            segments.select(heads),
            first_offsets=first_offsets[heads],
            lengths=np.add.reduceat(lengths, heads) if len(heads) else lengths,
        )
        return attrs.evolve(self, segments=joined, num_slots=total_batch_size, last_batch=last_batch)

    @property
    def sample_counts(self) -> SampleCounts:
        """Number of samples delivered, dropped, repeated and padded."""
        num_samples, num_slots = int(self._loads.sum()), self.num_batches * self.num_slots
        num_delivered = int(np.minimum(self._loads, self.num_batches).sum())
        counts = self.num_batches, num_slots, num_samples, num_delivered, self.num_cuts
        return SampleCounts.of_slots(self.last_batch, *counts)


def _assign_whole(segments: Segments, num_slots: int) -> tuple[Int64Array, Int64Array, Segments]:
    """Assign whole segments: ``(n,)`` slots, ``(n,)`` positions in the order, and the segments themselves."""
    num_segments = len(segments.units)
    by_length = np.argsort(-segments.lengths, kind="stable")
    num_rounds = -(-num_segments // num_slots)
    alternating = np.tile(np.arange(num_slots), (num_rounds, 1))  # (rounds, B)
    alternating[1::2] = alternating[1::2, ::-1]
    slots = np.empty(num_segments, np.int64)
    slots[by_length] = alternating.ravel()[:num_segments]
    num_left = num_segments % num_slots
    if num_left:  # the last round is not full: its segments, longest first, go to the slots with least load
        last = by_length[num_segments - num_left :]
        assigned = by_length[: num_segments - num_left]
        loads = np.bincount(slots[assigned], segments.lengths[assigned], num_slots)
        slots[last] = np.argsort(loads, kind="stable")[:num_left]
    return slots, np.arange(num_segments), segments


def _cut_evenly(segments: Segments, num_slots: int) -> tuple[Int64Array, Int64Array, Segments]:
    """Cut segments into equal parts: slots, positions in the order, and the ``(n + cuts,)`` segments then."""
    segment_starts = np.cumsum(segments.lengths) - segments.lengths  # of all segments concatenated
    num_samples = int(segments.lengths.sum())
    slot_starts = np.arange(num_slots) * num_samples // num_slots
    cuts = np.unique(slot_starts[slot_starts < num_samples])
    cut_segments = np.searchsorted(segment_starts, cuts, side="right") - 1
    is_inside = segment_starts[cut_segments] != cuts
    cuts, cut_segments = cuts[is_inside], cut_segments[is_inside]
    starts = np.insert(segment_starts, cut_segments + 1, cuts)
    positions = np.insert(np.arange(len(segments.units)), cut_segments + 1, cut_segments)
    slots = np.repeat(np.arange(num_slots), np.diff(np.searchsorted(starts, [*slot_starts, num_samples])))
    begins = starts - segment_starts[positions]  # in the segment
    ends = np.where(
        np.append(positions[1:] != positions[:-1], True), segments.lengths[positions], np.append(begins[1:], 0)
    )
    parts = segments.select(positions)
    return slots, positions, attrs.evolve(parts, first_offsets=parts.first_offsets + begins, lengths=ends - begins)


@attrs.define(eq=False, slots=False)
class FlatPlan(EpochPlan):
    """The samples of an order, ``B`` in each batch.

    Attributes:
        order: The samples of the epoch, as units.
        unit_table: The samples that the units are.
        num_slots: Total batch size, ``B``.
        last_batch: Policy for a last batch that is not full.
        first_position: Position of the order at which the plan begins.
    """

    order: EpochOrder
    unit_table: UnitTable
    num_slots: int
    last_batch: LastBatch
    first_position: int = 0

    def __attrs_post_init__(self) -> None:
        self._num_samples = self.order.num_positions - self.first_position
        self.num_batches = self._num_samples // self.num_slots
        if self.last_batch != "drop" and self._num_samples % self.num_slots:
            self.num_batches += 1

    def batch(self, number: int) -> PlannedBatch:
        """Get a batch."""
        first = self.first_position + number * self.num_slots
        positions = np.arange(first, first + self.num_slots)
        beyond = positions >= self.order.num_positions
        if self.last_batch == "wrap":
            positions %= self.order.num_positions
        else:
            positions[beyond] = self.order.num_positions - 1
        units, visits = self.order.units(positions)
        samples = self.unit_table.samples(units, np.zeros_like(units))
        return samples.to_batch(True, True, visits, beyond, self.last_batch)

    def rest(self, num_delivered: int, total_batch_size: int, num_shards: int, last_batch: LastBatch) -> EpochPlan:
        """Plan the rest for other batches."""
        # The last batch may be padded: after it the order has no positions.
        position = min(self.first_position + num_delivered * self.num_slots, self.order.num_positions)
        return FlatPlan(self.order, self.unit_table, total_batch_size, last_batch, position)

    @property
    def sample_counts(self) -> SampleCounts:
        """Number of samples delivered, dropped, repeated and padded."""
        num_slots = self.num_batches * self.num_slots
        num_delivered = min(num_slots, self._num_samples)
        return SampleCounts.of_slots(
            self.last_batch, self.num_batches, num_slots, self._num_samples, num_delivered
        )
