# SPDX-License-Identifier: Apache-2.0
"""Samplers that deliver single samples, or play sequences in the slots of the batch."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from ..checks import MOST_SAMPLES, flag, whole_number
from ..draws.keyed_draws import Int64Array, digest
from ..errors import NotSupportedError, SettingError
from ..unknown_arguments import explains_unknown_arguments
from .arithmetic.last_batch import LastBatch, checked_lengths
from .arithmetic.weights import checked_weights
from .planned_sampler import EpochPlanSampler, PlannedSampler
from .plans.epoch_plans import EpochPlan, RangePlan
from .plans.orders import ShuffledOrder, Weights, units_order
from .plans.tracks import PlannedBatch, Segments
from .random_access_sampler import Description, RandomAccessSampler


class SequenceSampler(RandomAccessSampler):
    """Each slot of the batch plays sequences from their first to their last sample, one after the other.

    In cycle ``c`` all slots use the same order of the sequences, draw ``c`` of
    ``numpy.random.default_rng(seed).permutation(num_sequences)`` (``0, 1, 2, ...`` with
    ``randomize=False``), and slot ``i`` of ``B`` plays ``order[i::B]``. Lengths 3, 4, 2, 3 in two slots,
    not randomised (A0 is the first sample of the first sequence)::

        slot 0 |  A0 A1 A2 C0 C1 | A0 A1 A2 C0 C1 | ...
        slot 1 |  B0 B1 B2 B3 D0 D1 D2 | B0 B1 ...

    A slot starts its next cycle when its own sequences are played, so slots drift apart: there are no
    epochs, a sequence can be in two slots at the same time, and over a finite run some samples are
    delivered more often than others. `StreamingSequenceSampler` has true epochs.

    Any batch can be requested. To skip ahead costs one permutation of the sequences per skipped cycle, and going
    back may start from the beginning; with ``randomize=False`` neither has a cost.

    Example::

        >>> sampler = SequenceSampler(2, [3, 4, 2, 3], seed=0, randomize=False)
        >>> [sampler.get_next_batch_indices() for _ in range(5)]
        [[0, 3], [1, 4], [2, 5], [7, 6], [8, 9]]
    """

    has_slots = knows_sequences = _has_fixed_batch_size = True

    @explains_unknown_arguments
    def __init__(
        self, total_batch_size: int, sequence_lenghts: Sequence[int], seed: int, randomize: bool = True
    ) -> None:
        """Create the sampler.

        Args:
            total_batch_size: Number of slots: the batch size of all shards together.
            sequence_lenghts: Number of samples of each sequence, each at least 1. Sequence ``s`` has the
                sample indices ``[sum(lengths[:s]), sum(lengths[:s + 1]))``. (The spelling is the published one.)
            seed: Seed of the orders, at least 0.
            randomize: Whether the order of the sequences is random in each cycle.

        Raises:
            SettingError: There are fewer sequences than slots, or an argument is out of its range.
        """
        super().__init__(whole_number(total_batch_size, "total_batch_size", at_least=1))
        self._lengths = checked_lengths(sequence_lenghts, "sequence_lenghts")
        if len(self._lengths) < self.total_batch_size:
            raise SettingError(
                f"The number of sequences must be at least the total batch size. Got {len(self._lengths)} "
                f"sequence(s) for {self.total_batch_size} slots: use a smaller batch, or cut the sequences."
            )
        self._seed = whole_number(seed, "seed", at_least=0)
        self._randomize = bool(randomize)
        self._slots: _Slots | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_slots": None}

    def num_batches(self, epoch: int) -> None:
        """None, since the sampler is endless."""
        return None

    def plan_batch(self, epoch: int, batch: int) -> PlannedBatch:
        """Get the samples of a batch; a `SettingError` where the epoch is not 0, or the batch is below 0."""
        if epoch != 0:
            raise SettingError(f"The SequenceSampler is endless: there is no epoch but 0, requested: {epoch}.")
        if batch < 0:
            raise SettingError(f"The SequenceSampler has the batches 0, 1, 2, ..., requested: batch {batch}.")
        if self._slots is None:
            self._slots = _Slots(self._lengths, self.total_batch_size, self._seed if self._randomize else None)
        return self._slots.plan(batch)

    def reset(self) -> None:
        """Raise a `NotSupportedError`, since an endless sampler has no next epoch."""
        raise NotSupportedError("SequencesSampler is not epoch-based, so there is no epoch to start.")

    @property
    def num_samples(self) -> int:
        """Number of samples of all sequences together."""
        return int(self._lengths.sum())

    def describe(self) -> Description:
        """Settings on which the order depends."""
        return {
            "sampler": type(self).__name__,
            "num_sequences": len(self._lengths),
            "num_samples": self.num_samples,
            "sequence_lengths": digest(self._lengths),
            "seed": self._seed,
            "randomize": self._randomize,
        }


@attrs.frozen(eq=False)
class _Order:
    """The order of the sequences in a cycle, slot by slot: slot ``i`` of ``B`` plays ``order[i::B]``.

    Attributes:
        sequences: ``(S,)``, the sequences of slot 0, of slot 1, ...
        starts: ``(S,)``, number of frames before each of them.
        firsts: ``(B,)``, number of frames before those of each slot.
        loads: ``(B,)``, number of frames of each slot.
        state: State of the generator from which the next order is drawn.
    """

    sequences: Int64Array
    starts: Int64Array
    firsts: Int64Array
    loads: Int64Array
    state: Mapping[str, Any]

    def played(self, slots: Int64Array, times: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Find the sequences that slots play after so many batches of the cycle, and the frames in them."""
        positions = self.firsts[slots] + times
        found = self.starts.searchsorted(positions, side="right") - 1
        return self.sequences[found], positions - self.starts[found]


class _Slots:
    """The sequences that the slots play in a batch, found by going on from the batch requested before.

    Remembers for each slot its cycle and that cycle's first batch. The orders of cycles that no slot is in are
    forgotten, and drawn again when needed, from the generator's state after the one before.
    """

    def __init__(self, lengths: Int64Array, num_slots: int, seed: int | None) -> None:
        self._sequences = Segments.of(lengths)
        slots = np.arange(len(lengths)) % num_slots
        self._slot_by_slot = np.argsort(slots, kind="stable")
        self._first_places = np.searchsorted(np.sort(slots), np.arange(num_slots))
        self._rng = None if seed is None else np.random.default_rng(seed=seed)
        self._first_order = self._order_after(None)
        self._begin()

    def _begin(self) -> None:
        """Set all slots to their first batch."""
        self._orders = {0: self._first_order}
        self._cycles, self._starts = np.zeros((2, len(self._first_places)), np.int64)
        self._stops = self._first_order.loads

    def _order_after(self, before: _Order | None) -> _Order:
        sequences, state = self._sequences.sequences, dict[str, Any]()
        if self._rng is not None:
            if before is not None:
                self._rng.bit_generator.state = before.state
            sequences, state = self._rng.permutation(len(sequences)), dict(self._rng.bit_generator.state)
        sequences = sequences[self._slot_by_slot]
        lengths = self._sequences.lengths[sequences]
        starts = np.cumsum(lengths) - lengths
        loads = np.add.reduceat(lengths, self._first_places)
        return _Order(sequences, starts, starts[self._first_places], loads, state)

    def plan(self, batch: int) -> PlannedBatch:
        """Get the frames that the slots play in a batch."""
        if self._rng is None:
            cycles, times = np.divmod(batch, self._stops)
            sequences, frames = self._first_order.played(np.arange(len(cycles)), times)
        else:
            self._pass_cycles(batch)
            cycles = self._cycles.copy()
            sequences, frames = np.empty((2, len(cycles)), np.int64)
            for cycle, order in self._orders.items():
                slots = np.flatnonzero(cycles == cycle)
                sequences[slots], frames[slots] = order.played(slots, batch - self._starts[slots])
        return attrs.evolve(self._sequences.at(sequences, frames), visit=cycles)

    def _pass_cycles(self, batch: int) -> None:
        if (batch < self._starts).any():
            self._begin()
        while (is_late := self._stops <= batch).any():  # the slots that are furthest behind go first, together
            cycle = int(self._cycles[is_late].min())
            goes_on = is_late & (self._cycles == cycle)
            if cycle + 1 not in self._orders:
                self._orders[cycle + 1] = self._order_after(self._orders[cycle])
            loads = self._orders[cycle + 1].loads
            self._starts = np.where(goes_on, self._stops, self._starts)
            self._stops = np.where(goes_on, self._stops + loads, self._stops)
            self._cycles = self._cycles + goes_on
            if not (self._cycles == cycle).any():
                del self._orders[cycle]


class StreamingSequenceSampler(PlannedSampler):
    """Each slot of the batch plays sequences one after the other; each frame is delivered once per epoch.

    The frames of a slot are consecutive in time until its sequence ends. All slots start together and run for
    ``num_batches(epoch)`` batches; slots that have played their sequences earlier are padded (with their last
    frame, marked), up to the end of the epoch. With ``last_batch="drop"`` nothing is padded.

    Two ways to distribute the sequences, and their cost:

    - whole sequences (the default): no sequence is cut, and none is in two slots. The sequences are assigned
      by length, so the slots' numbers of frames differ by at most the length of the longest sequence; that
      difference is padding. With few sequences per slot, or a few very long ones, it can be a large part of the
      epoch.
    - ``cut_sequences=True``: the shuffled sequences are laid one after the other and cut into ``B`` equal pieces.
      At most one frame per slot is padding, in the last batch. Up to ``B - 1`` sequences are cut: their second
      part starts with an empty history in another slot. A sequence longer than such a piece can be in several
      slots of one batch.

    With fewer sequences than slots there is no other way than to cut them; that is logged, and
    `RandomAccessSampler.sample_counts` has the number of cuts.

    With weights, an epoch plays sequences that are drawn by weight with replacement: some several times, then
    possibly in two slots at once, and others not at all.

    Example::

        >>> sampler = StreamingSequenceSampler([3, 4, 2, 3], 2, shuffle=False)
        >>> [sampler.get_next_batch_indices() for _ in range(sampler.num_batches(epoch=0))]
        [[3, 0], [4, 1], [5, 2], [6, 9], [7, 10], [8, 11]]
    """

    is_streamed = has_slots = knows_sequences = True

    @explains_unknown_arguments
    def __init__(
        self,
        sequence_lengths: Sequence[int] | npt.NDArray[np.integer],
        total_batch_size: int | None = None,
        *,
        seed: int = 0,
        shuffle: bool = True,
        cut_sequences: bool = False,
        weights: Weights | None = None,
        num_per_epoch: int | None = None,
        last_batch: LastBatch = "pad",
    ) -> None:
        """Create the sampler.

        Args:
            sequence_lengths: ``(S,)``, number of frames of each sequence, each at least 1. Sequence ``s`` has the
                sample indices ``[sum(lengths[:s]), sum(lengths[:s + 1]))``.
            total_batch_size: Number of slots, all shards together. None: set later, by the loader.
            seed: Seed of the orders, at least 0.
            shuffle: Whether the order of the sequences differs between epochs; with weights, it must be True.
            cut_sequences: Whether sequences may be cut to make the slots equally long.
            weights: ``(S,)``, one per sequence, to draw the sequences of an epoch by weight. None: each once.
            num_per_epoch: With weights, number of sequences drawn per epoch; None for ``S``.
            last_batch: Policy as soon as a slot has played its sequences: ``"pad"`` and ``"partial"`` go on
                until the last slot has, with marked padding or with smaller batches; ``"drop"`` ends the
                epoch and drops the rest of the other slots: the ends of the sequences that they are in, and
                the sequences after those; ``"wrap"`` has slots start over with the sequences that they played.

        Raises:
            SettingError: An argument is out of its range.
        """
        self._lengths = lengths = checked_lengths(sequence_lengths)
        num_samples = int(lengths.sum())
        self.seed = whole_number(seed, "seed", at_least=0)
        self.shuffles = flag(shuffle, "shuffle")
        self.cuts = flag(cut_sequences, "cut_sequences")
        self.order = units_order(len(lengths), weights, num_per_epoch, self.seed, self.shuffles)
        settings: Description = {
            "num_sequences": len(lengths),
            "num_samples": num_samples,
            "sequence_lengths": digest(lengths),
            "weights": None if weights is None else digest(np.asarray(weights, dtype=np.float64)),
            "num_per_epoch": self.order.num_positions,
            "seed": self.seed if self.shuffles else None,
            "shuffle": self.shuffles,
            "cut_sequences": self.cuts,
        }
        super().__init__(total_batch_size, last_batch, num_samples, settings)

    def sequences(self) -> Segments:
        """Get the sequences of the data set."""
        return Segments.of(self._lengths)


class ShardedPermutationSampler(EpochPlanSampler):
    """Shard ``k`` has a range of the order ``numpy.random.default_rng(seed + epoch).permutation(N)``.

    The permutation of the epoch is made in each process that needs it.
    """

    has_slots = True
    depends_on_shards = True
    _has_begun_batches = True

    def __init__(
        self, num_samples: int, total_batch_size: int | None, seed: int, shuffle: bool, last_batch: LastBatch
    ) -> None:
        """Set up; the arguments were checked."""
        super().__init__(total_batch_size, last_batch, num_samples, _described(num_samples, seed, shuffle))
        self._seed = seed
        self._shuffle = shuffle

    def num_begun_batches(self, epoch: int) -> int:
        """Number of batches of an epoch, with one that is dropped, since it is not full."""
        return self.num_batches_before(epoch) + self._plan(epoch).num_begun_batches

    def _begin_plan(self, epoch: int, total_batch_size: int, num_shards: int) -> EpochPlan:
        # With a generator of its own each time: several threads may make it at once.
        seed = self._seed + epoch
        permutation = functools.cache(lambda: np.random.default_rng(seed=seed).permutation(self._num_samples))

        def units(positions: Int64Array) -> tuple[Int64Array, Int64Array]:
            return permutation()[positions] if self._shuffle else positions, np.zeros_like(positions)

        return RangePlan(self._num_samples, units, total_batch_size, num_shards, self.last_batch)


def _described(num_samples: int, seed: int, shuffle: bool) -> Description:
    return {"num_samples": num_samples, "seed": seed if shuffle else None, "shuffle": shuffle}


class ShuffledSampler(PlannedSampler):
    """Each sample once per epoch, in an order that differs in each epoch.

    The order is computed sample by sample (`KeyedPermutation`): it needs no memory, whatever the size of the
    data set. Batch ``b`` of an epoch has the positions ``[b * B, (b + 1) * B)`` of its order.

    Example::

        >>> sampler = ShuffledSampler(10, 4, seed=1, last_batch="pad")
        >>> [sampler.get_batch_indices(epoch=0, batch=batch).tolist() for batch in range(3)]
        [[6, 1, 2, 8], [3, 7, 9, 5], [4, 0, 0, 0]]
        >>> sampler.plan_batch(epoch=0, batch=2).is_padding.tolist()
        [False, False, True, True]
    """

    @explains_unknown_arguments
    def __init__(
        self,
        num_samples: int,
        total_batch_size: int | None = None,
        *,
        seed: int = 0,
        shuffle: bool = True,
        last_batch: LastBatch = "drop",
    ) -> None:
        """Create the sampler.

        Args:
            num_samples: Number of samples of the data set, from 1 to 2**62.
            total_batch_size: Samples per batch, all shards together. None: set later, by the loader.
            seed: Seed of the orders, at least 0.
            shuffle: Whether to shuffle; otherwise each epoch has the order ``0, 1, 2, ...``, as with
                `SequentialSampler`, which delivers the last samples too.
            last_batch: Handling of a last batch that is not full, see `LastBatch`.

        Raises:
            SettingError: An argument is out of its range.
        """
        num_samples = whole_number(num_samples, "num_samples", at_least=1, at_most=MOST_SAMPLES)
        self.seed = whole_number(seed, "seed", at_least=0)
        self.shuffles = flag(shuffle, "shuffle")
        settings = _described(num_samples, self.seed, self.shuffles)
        super().__init__(total_batch_size, last_batch, num_samples, settings)
        self.order = ShuffledOrder(num_samples, self.seed, self.shuffles)


class SequentialSampler(PlannedSampler):
    """The samples ``0, 1, 2, ...`` in each epoch, for evaluation.

    By default each sample is delivered exactly once, as by PyTorch's sampler of this name: the last batch may be
    smaller. With several shards it is divided among them, so some may have one batch less than others. If
    shards need the same number of batches, since they communicate in each, use ``last_batch="pad"`` and leave the
    samples that are marked as padding out of the metrics.

    Example::

        >>> sampler = SequentialSampler(10, 4)
        >>> [sampler.get_batch_indices(epoch=0, batch=batch).tolist() for batch in range(3)]
        [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 9, 9]]
        >>> sampler.plan_batch(epoch=0, batch=2).is_padding.tolist()  # left out of the batch with "partial"
        [False, False, True, True]
    """

    shuffles = False

    @explains_unknown_arguments
    def __init__(
        self, num_samples: int, total_batch_size: int | None = None, *, last_batch: LastBatch = "partial"
    ) -> None:
        """Create the sampler.

        Args:
            num_samples: Number of samples of the data set, from 1 to 2**62.
            total_batch_size: Samples per batch, all shards together. None: set later, by the loader.
            last_batch: Handling of a last batch that is not full, see `LastBatch`.

        Raises:
            SettingError: An argument is out of its range.
        """
        num_samples = whole_number(num_samples, "num_samples", at_least=1, at_most=MOST_SAMPLES)
        super().__init__(total_batch_size, last_batch, num_samples, {"num_samples": num_samples})
        self.order = ShuffledOrder(num_samples, 0, False)


class WeightedSampler(PlannedSampler):
    """Each position of an epoch draws a sample by weight, independently of all others (with replacement).

    From weights per class, ``class_weights[labels]`` makes weights per sample. With
    ``1 / np.bincount(labels)[labels]`` all classes are drawn equally often.

    The length of the epoch does not depend on the weights; it is as many draws as there are samples, unless
    given. So some samples are drawn several times per epoch, and others not at all.

    Example::

        >>> sampler = WeightedSampler([1, 0, 3], 4, num_per_epoch=8)
        >>> 1 in sampler.get_next_batch_indices()
        False
    """

    @explains_unknown_arguments
    def __init__(
        self,
        weights: Weights,
        total_batch_size: int | None = None,
        *,
        num_per_epoch: int | None = None,
        seed: int = 0,
        last_batch: LastBatch = "drop",
    ) -> None:
        """Create the sampler.

        Args:
            weights: ``(N,)``, one per sample of the data set, at least 0 and not all 0; they need not add up to 1.
            total_batch_size: Samples per batch, all shards together. None: set later, by the loader.
            num_per_epoch: Draws per epoch; None for ``N``.
            seed: Seed of the draws, at least 0.
            last_batch: Handling of a last batch that is not full, see `LastBatch`.

        Raises:
            SettingError: An argument is out of its range.
        """
        self.seed = whole_number(seed, "seed", at_least=0)
        array = checked_weights(weights)
        self.order = units_order(len(array), array, num_per_epoch, self.seed, shuffle=True)
        settings: Description = {
            "num_samples": len(array),
            "weights": digest(array),
            "num_per_epoch": self.order.num_positions,
            "seed": self.seed,
        }
        super().__init__(total_batch_size, last_batch, len(array), settings)
