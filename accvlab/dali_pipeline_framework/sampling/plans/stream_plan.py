# SPDX-License-Identifier: Apache-2.0
"""Units of any length, played in slots one after the other."""

from __future__ import annotations

import attrs
import numpy as np

from ..arithmetic.keyed_permutation import KeyedPermutation
from ..arithmetic.last_batch import EpochAccount, LastBatch
from .epoch_plan import EpochPlan
from .planned_batch import Int64Array, PlannedBatch
from .tracks import Tracks


@attrs.frozen(eq=False)
class Runs:
    """Units to be played, or parts of them, in the order of the epoch; each field ``(n,)`` int64.

    Attributes:
        units: The units.
        first_offsets: First sample of the unit that is played.
        lengths: Number of samples that are played.
        visits: Tells apart several deliveries of a unit in the same epoch.
    """

    units: Int64Array
    first_offsets: Int64Array
    lengths: Int64Array
    visits: Int64Array

    def select(self, chosen: Int64Array) -> Runs:
        """Get the runs at these positions."""
        return Runs(self.units[chosen], self.first_offsets[chosen], self.lengths[chosen], self.visits[chosen])


class StreamPlan(EpochPlan):
    """Each slot plays runs one after the other; all runs together are played exactly once.

    Whole runs (``cut=False``): the runs are sorted by length and dealt to the slots in rounds, to and fro,
    so the loads of two slots differ by at most the longest run; each slot then plays its runs in the order
    of the epoch. The loads do not depend on the order, so shuffled epochs have the same number of batches.

    Cut (``cut=True``, or fewer runs than slots): the runs are laid on a tape in the order of the epoch, and
    the tape is cut into equal pieces: the loads differ by at most one sample, and at most ``B - 1`` runs are
    cut::

        tape    | A A A A A B B B|C C C D D D D D|D E E F F F F F|
                     slot 0           slot 1          slot 2         D is cut
    """

    def __init__(
        self,
        runs: Runs,
        tracks: Tracks,
        epoch_key: int,
        total_batch_size: int,
        last_batch: LastBatch,
        *,
        cut: bool,
        shuffle_slots: bool = True,
    ) -> None:
        """Deal the runs.

        Args:
            runs: What is to be played, in the order of the epoch.
            tracks: What units are.
            epoch_key: Key of what is random in the epoch.
            total_batch_size: Number of slots.
            last_batch: What becomes of slots that have played their runs while others have not.
            cut: Whether runs may be cut although there are enough of them.
            shuffle_slots: Whether it is random which slot gets which share.
        """
        self._tracks = tracks
        self._epoch_key = epoch_key
        self._num_slots = total_batch_size
        self._last_batch = last_batch
        self._cut = cut
        self._shuffle_slots = shuffle_slots
        num_runs = len(runs.units)
        is_cut = cut or num_runs < total_batch_size
        slots, positions, parts = (_cut_tape if is_cut else _deal_whole)(runs, total_batch_size, tracks.grain)
        self.num_cuts = len(positions) - num_runs
        if shuffle_slots:
            slots = KeyedPermutation(total_batch_size, epoch_key)[slots]
        # Sorting by slot keeps the order of the epoch within each; numbers of 16 bits are sorted fastest.
        order = np.argsort(slots.astype(np.uint16) if total_batch_size <= 1 << 16 else slots, kind="stable")
        slots = slots[order]
        self._positions = positions[order]  # in the order of the epoch, per segment
        self._segments = parts.select(order)
        ends = np.cumsum(self._segments.lengths)
        self._loads = np.bincount(slots, self._segments.lengths, total_batch_size).astype(np.int64)
        self._starts = ends - self._segments.lengths - (np.cumsum(self._loads) - self._loads)[slots]
        self._fullest = int(np.argmax(self._loads))
        # One sorted array to find the segments of all slots in: slot * stride + first batch of the segment.
        self._stride = int(self._loads[self._fullest]) + 1
        self._keys = slots * self._stride + self._starts
        self._all_slots = np.arange(total_batch_size)
        self.num_batches = int(self._loads.min() if last_batch == "drop" else self._loads.max())

    def batch(self, number: int) -> PlannedBatch:
        """Get a batch."""
        slots, times = self._all_slots, np.full(self._num_slots, number)
        beyond = number >= self._loads
        if beyond.any():
            slots = np.where(self._loads == 0, self._fullest, slots)
            loads = self._loads[slots]
            is_wrapped = self._last_batch == "wrap"
            times = np.where(beyond, number % loads if is_wrapped else loads - 1, times)
        keys = slots * self._stride + times
        found = np.searchsorted(self._keys, keys, side="right") - 1
        offsets = keys - self._keys[found]
        segments = self._segments.select(found)
        visits = segments.visits
        played = self._tracks.play(segments.units, segments.first_offsets + offsets, visits, self._epoch_key)
        if self._last_batch == "wrap":
            visits, beyond = np.where(beyond, -1 - visits, visits), np.zeros_like(beyond)
        return PlannedBatch(
            played.indices,
            played.is_padding | beyond,
            played.sequence,
            played.frame,
            played.clip,
            (offsets == 0) | played.is_first,
            (offsets == segments.lengths - 1) | played.is_last,
            visits,
            beyond,
        )

    def rest(self, num_delivered: int, total_batch_size: int, num_shards: int, last_batch: LastBatch) -> EpochPlan:
        """Deal anew what is left; pieces of a run that follow each other are put together again."""
        done = np.clip(num_delivered - self._starts, 0, self._segments.lengths)
        left = np.flatnonzero(done < self._segments.lengths)
        segments = self._segments.select(left)
        first_offsets = segments.first_offsets + done[left]
        lengths = segments.lengths - done[left]
        order = np.lexsort((first_offsets, self._positions[left]))
        segments, first_offsets, lengths = segments.select(order), first_offsets[order], lengths[order]
        positions = self._positions[left][order]
        begins = np.ones(len(order), np.bool_)
        begins[1:] = (positions[1:] != positions[:-1]) | (first_offsets[1:] != (first_offsets + lengths)[:-1])
        heads = np.flatnonzero(begins)
        runs = Runs(
            segments.units[heads],
            first_offsets[heads],
            np.add.reduceat(lengths, heads) if len(heads) else lengths,
            segments.visits[heads],
        )
        return StreamPlan(
            runs,
            self._tracks,
            self._epoch_key,
            total_batch_size,
            last_batch,
            cut=self._cut,
            shuffle_slots=self._shuffle_slots,
        )

    @property
    def account(self) -> EpochAccount:
        """What becomes of the samples."""
        num_samples = int(self._loads.sum())
        num_delivered = int(np.minimum(self._loads, self.num_batches).sum())
        surplus = self.num_batches * self._num_slots - num_delivered
        is_wrapped = self._last_batch == "wrap"
        return EpochAccount(
            num_batches=self.num_batches,
            num_samples=num_samples,
            num_delivered=num_delivered,
            num_dropped=num_samples - num_delivered,
            num_repeated=surplus if is_wrapped else 0,
            num_padded=0 if is_wrapped else surplus,
            num_cuts=self.num_cuts,
        )


def _deal_whole(runs: Runs, num_slots: int, grain: int) -> tuple[Int64Array, Int64Array, Runs]:
    """Deal whole runs to slots: ``(n,)`` slots, ``(n,)`` positions in the order, and the runs themselves."""
    num_runs = len(runs.units)
    by_length = np.argsort(-runs.lengths, kind="stable")
    num_rounds = -(-num_runs // num_slots)
    to_and_fro = np.tile(np.arange(num_slots), (num_rounds, 1))  # (rounds, B)
    to_and_fro[1::2] = to_and_fro[1::2, ::-1]
    slots = np.empty(num_runs, np.int64)
    slots[by_length] = to_and_fro.ravel()[:num_runs]
    num_left = num_runs % num_slots
    if num_left:  # the last round is not full: its runs, longest first, go to the slots with the smallest loads
        last = by_length[num_runs - num_left :]
        dealt = by_length[: num_runs - num_left]
        loads = np.bincount(slots[dealt], runs.lengths[dealt], num_slots)
        slots[last] = np.argsort(loads, kind="stable")[:num_left]
    return slots, np.arange(num_runs), runs


def _cut_tape(runs: Runs, num_slots: int, grain: int) -> tuple[Int64Array, Int64Array, Runs]:
    """Cut the tape: slots, positions in the order, and runs of the ``(n + cuts,)`` segments."""
    heads = runs.first_offsets % grain  # a run can begin within a grain; its first grain is shorter then
    grains = -(-(heads + runs.lengths) // grain)
    run_starts = np.cumsum(grains) - grains  # in grains on the tape
    num_grains = int(grains.sum())
    slot_starts = np.arange(num_slots) * num_grains // num_slots
    cuts = np.unique(slot_starts[slot_starts < num_grains])
    cut_runs = np.searchsorted(run_starts, cuts, side="right") - 1
    is_inside = run_starts[cut_runs] != cuts
    cuts, cut_runs = cuts[is_inside], cut_runs[is_inside]
    starts = np.insert(run_starts, cut_runs + 1, cuts)
    positions = np.insert(np.arange(len(runs.units)), cut_runs + 1, cut_runs)
    slots = np.repeat(np.arange(num_slots), np.diff(np.searchsorted(starts, [*slot_starts, num_grains])))
    begins = np.maximum((starts - run_starts[positions]) * grain - heads[positions], 0)  # in the run
    ends = np.where(
        np.append(positions[1:] != positions[:-1], True), runs.lengths[positions], np.append(begins[1:], 0)
    )
    segments = Runs(
        runs.units[positions], runs.first_offsets[positions] + begins, ends - begins, runs.visits[positions]
    )
    return slots, positions, segments
