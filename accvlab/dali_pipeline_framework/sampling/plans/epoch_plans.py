# SPDX-License-Identifier: Apache-2.0
"""Plans of an epoch: which samples each batch has, as arithmetic."""

from __future__ import annotations

from abc import ABC, abstractmethod

import attrs
import numpy as np

from ...draws.keyed_draws import Int64Array
from ..arithmetic.keyed_permutation import KeyedPermutation
from ..arithmetic.last_batch import LastBatch, SampleCounts
from .orders import UnitsAt
from .tracks import PlannedBatch, Segments


class EpochPlan(ABC):
    """The batches of one epoch (or of the rest of one), by random access.

    A plan has positions, each with a sample. Positions are divided into tracks, each with its own slots of the
    batch; a batch has the next ``num_slots / num_tracks`` positions of every track::

        track 0   |  0  1 |  2  3 |  4  -         batch 0 has the positions 0, 1, 5, 6
        track 1   |  5  6 |  7  8 |  -  -

    Single samples are one track; with sequences, each slot is a track.

    Attributes:
        num_batches: Number of batches.
        num_begun_batches: Number of batches, counting a last one that is dropped since it is not full.
        sample_counts: Number of samples delivered, dropped, repeated and padded.
    """

    def __init__(
        self,
        sizes: Int64Array,
        firsts: Int64Array,
        num_slots: int,
        last_batch: LastBatch,
        *,
        num_done: int = 0,
        num_left_out: int = 0,
        num_cuts: int = 0,
    ) -> None:
        """Count the batches.

        Args:
            sizes: Number of positions of each track, ``(num_tracks,)``.
            firsts: First position of each track, ``(num_tracks,)``.
            num_slots: Total batch size; a multiple of the number of tracks.
            last_batch: Policy for tracks that have delivered all their positions.
            num_done: Number of positions of each track that were delivered before; ``"wrap"`` starts over at the
                first of these.
            num_left_out: Number of samples that no track has.
            num_cuts: Number of cuts through sequences.
        """
        self._sizes, self._firsts = sizes[:, None], firsts[:, None]  # (num_tracks, 1)
        self._fill_sizes = self._sizes.copy()
        self._num_done, self._last_batch = num_done, last_batch
        self._share = share = num_slots // len(sizes)
        loads = sizes - num_done
        self.num_begun_batches = -(-int(loads.max()) // share)
        self.num_batches = int(loads.min()) // share if last_batch == "drop" else self.num_begun_batches
        num_delivered = int(np.minimum(loads, self.num_batches * share).sum())
        num_samples = int(loads.sum()) + num_left_out
        counts = self.num_batches, self.num_batches * num_slots, num_samples, num_delivered, num_cuts
        self.sample_counts = SampleCounts.of_slots(last_batch, *counts)

    def batch(self, number: int) -> PlannedBatch:
        """Get a batch, ``0 <= number < num_begun_batches``."""
        places = self._num_done + np.arange(number * self._share, (number + 1) * self._share)
        beyond = places >= self._sizes  # (num_tracks, share)
        if not beyond.any():
            return self._batch_at((self._firsts + places).ravel())
        is_wrapped = self._last_batch == "wrap"
        fill = places % np.maximum(self._fill_sizes, 1) if is_wrapped else self._fill_sizes - 1
        batch = self._batch_at((self._firsts + np.where(beyond, fill, places)).ravel())
        beyond = beyond.ravel()
        if is_wrapped:
            return attrs.evolve(batch, visit=np.where(beyond, -1 - batch.visit, batch.visit))
        return attrs.evolve(batch, is_padding=beyond, is_over=beyond)

    @abstractmethod
    def _batch_at(self, positions: Int64Array) -> PlannedBatch:
        """Make a batch of the samples at ``(num_slots,)`` positions."""

    @abstractmethod
    def rest(self, num_delivered: int, total_batch_size: int, num_shards: int, last_batch: LastBatch) -> EpochPlan:
        """Plan the rest after the first ``num_delivered`` batches, for another batch size or number of shards.

        The delivered batches and the new plan together have each sample of this plan once, apart from what
        ``last_batch`` drops, repeats or pads at the end.
        """


class FlatPlan(EpochPlan):
    """The samples of an order, side by side in the batches."""

    def __init__(
        self,
        num_positions: int,
        units: UnitsAt,
        num_slots: int,
        last_batch: LastBatch,
        *,
        num_ranks: int = 1,
        num_done: int = 0,
    ) -> None:
        """Plan the samples after the first ``num_done``; with several ranks all of them on each rank."""
        self._num_positions, self._units, self._num_ranks = num_positions, units, num_ranks
        sizes, firsts = np.full(num_ranks, num_positions), np.zeros(num_ranks, np.int64)
        super().__init__(sizes, firsts, num_slots, last_batch, num_done=num_done)

    def _batch_at(self, positions: Int64Array) -> PlannedBatch:
        indices, visits = self._units(positions)
        return PlannedBatch(indices, visit=visits)

    def rest(self, num_delivered: int, total_batch_size: int, num_shards: int, last_batch: LastBatch) -> EpochPlan:
        """Plan the rest for other batches."""
        return FlatPlan(
            self._num_positions,
            self._units,
            total_batch_size,
            last_batch,
            num_ranks=num_shards if self._num_ranks > 1 else 1,
            # The last batch may be padded: after it the order has no positions.
            num_done=min(self._num_done + num_delivered * self._share, self._num_positions),
        )


class RangePlan(EpochPlan):
    """The samples of an order, cut into one range per shard.

    With ``"drop"`` all shards get ranges of the same length, and the rest at the end of the order is dropped;
    otherwise the lengths differ by at most 1.
    """

    def __init__(
        self, num_positions: int, units: UnitsAt, num_slots: int, num_shards: int, last_batch: LastBatch
    ) -> None:
        """Cut the ``num_positions`` samples."""
        self._num_positions, self._units = num_positions, units
        num_left_out = num_positions % num_shards if last_batch == "drop" else 0
        bounds = np.arange(num_shards + 1) * (num_positions - num_left_out) // num_shards
        super().__init__(np.diff(bounds), bounds[:-1], num_slots, last_batch, num_left_out=num_left_out)

    def _batch_at(self, positions: Int64Array) -> PlannedBatch:
        # A shard without samples is filled up by those of its neighbours.
        indices, visits = self._units(np.clip(positions, 0, self._num_positions - 1))
        return PlannedBatch(indices, visit=visits)

    def rest(self, num_delivered: int, total_batch_size: int, num_shards: int, last_batch: LastBatch) -> EpochPlan:
        """Plan the rest of the shards, and after it the samples that would have been dropped."""
        firsts, stops = self._firsts.ravel(), (self._firsts + self._sizes).ravel()
        done = np.minimum(firsts + num_delivered * self._share, stops)
        starts, ends = [*done.tolist(), stops[-1]], [*stops.tolist(), self._num_positions]
        left = np.concatenate(list(map(np.arange, starts, ends)))
        units = self._units
        return RangePlan(len(left), lambda places: units(left[places]), total_batch_size, num_shards, last_batch)


class StreamPlan(EpochPlan):
    """Each slot delivers segments one after the other; each sample of all segments is delivered exactly once.

    Whole: the segments are sorted by length and assigned to the slots in rounds of alternating direction, so the
    loads of two slots (their numbers of samples) differ by at most the longest segment; each slot then delivers
    its segments in the order of the epoch. The loads do not depend on the order, so shuffled epochs have the same
    number of batches.

    Cut, or fewer segments than slots: the segments are concatenated in the order of the epoch, and the whole is
    cut into equal pieces: the loads differ by at most one sample, and at most ``B - 1`` segments are cut::

        | A A A A A B B B|C C C D D D D D|D E E F F F F F|
             slot 0           slot 1          slot 2         D is cut
    """

    def __init__(
        self, segments: Segments, num_slots: int, last_batch: LastBatch, key: int | None, cut: bool
    ) -> None:
        """Assign the segments, given in the order of the epoch.

        Args:
            segments: The segments.
            num_slots: Total batch size.
            last_batch: Policy for slots that are done before others.
            key: Key of the random choice which slot gets which part; None: in the order of the slots.
            cut: Whether segments may be cut although there are enough of them.
        """
        self._how = key, cut
        is_cut = cut or len(segments.lengths) < num_slots
        slots, numbers, parts = (_cut_evenly if is_cut else _assign_whole)(segments, num_slots)
        if key is not None:
            slots = KeyedPermutation(num_slots, key)[slots]
        # Sorting by slot keeps the order of the epoch within each; numbers of 16 bits are sorted fastest.
        order = np.argsort(slots.astype(np.uint16) if num_slots <= 1 << 16 else slots, kind="stable")
        self._segments, self._numbers = parts.select(order), numbers[order]  # slot by slot
        loads = np.bincount(slots, parts.lengths, num_slots).astype(np.int64)
        firsts = np.cumsum(loads) - loads
        self._starts = np.cumsum(self._segments.lengths) - self._segments.lengths  # first position of each segment
        self._first_batches = self._starts - firsts[slots[order]]
        super().__init__(loads, firsts, num_slots, last_batch, num_cuts=len(numbers) - len(segments.lengths))
        empty, fullest = loads == 0, loads.argmax()  # slots without samples are filled up by those of another
        self._firsts[empty], self._fill_sizes[empty] = self._firsts[fullest], loads[fullest]

    def _batch_at(self, positions: Int64Array) -> PlannedBatch:
        found = self._starts.searchsorted(positions, side="right") - 1
        return self._segments.at(found, positions - self._starts[found])

    def rest(self, num_delivered: int, total_batch_size: int, num_shards: int, last_batch: LastBatch) -> EpochPlan:
        """Assign the rest to other slots; adjacent pieces of a segment are joined again."""
        done = np.clip(num_delivered - self._first_batches, 0, self._segments.lengths)
        left = np.flatnonzero(done < self._segments.lengths)
        segments, numbers = self._segments.after(done).select(left), self._numbers[left]
        order = np.lexsort((segments.frames, numbers))
        segments, numbers = segments.select(order), numbers[order]
        ends = segments.frames + segments.lengths
        begins = np.append(True, (np.diff(numbers) != 0) | (segments.frames[1:] != ends[:-1]))
        heads = np.flatnonzero(begins[: len(numbers)])
        lengths = np.add.reduceat(segments.lengths, heads) if len(heads) else segments.lengths
        joined = segments.select(heads)._replace(lengths=lengths)
        return StreamPlan(joined, total_batch_size, last_batch, *self._how)


def _assign_whole(segments: Segments, num_slots: int) -> tuple[Int64Array, Int64Array, Segments]:
    """Assign whole segments: ``(n,)`` slots, ``(n,)`` numbers of the segments, and the segments themselves."""
    numbers = np.arange(len(segments.lengths))
    by_length = np.argsort(-segments.lengths, kind="stable")
    rounds, forward = np.divmod(numbers, num_slots)
    slots = np.empty_like(numbers)
    slots[by_length] = np.where(rounds % 2, num_slots - 1 - forward, forward)
    num_left = len(numbers) % num_slots
    if num_left:  # the last round is not full: its segments, longest first, go to the slots with least load
        assigned, last = np.split(by_length, [len(numbers) - num_left])
        loads = np.bincount(slots[assigned], segments.lengths[assigned], num_slots)
        slots[last] = np.argsort(loads, kind="stable")[:num_left]
    return slots, numbers, segments


def _cut_evenly(segments: Segments, num_slots: int) -> tuple[Int64Array, Int64Array, Segments]:
    """Cut segments into equal parts: slots, numbers of the segments, and the ``(n + cuts,)`` segments then."""
    segment_starts = np.cumsum(segments.lengths) - segments.lengths  # of all segments concatenated
    num_samples = int(segments.lengths.sum())
    slot_starts = np.arange(num_slots) * num_samples // num_slots
    starts = np.union1d(segment_starts, slot_starts[slot_starts < num_samples])
    numbers = segment_starts.searchsorted(starts, side="right") - 1
    slots = slot_starts.searchsorted(starts, side="right") - 1
    parts = segments.select(numbers).after(starts - segment_starts[numbers])
    return slots, numbers, parts._replace(lengths=np.diff(starts, append=num_samples))
