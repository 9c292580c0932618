# SPDX-License-Identifier: Apache-2.0
"""Endless sampler that plays sequences in batch slots, in the published order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import numpy as np

from accvlab.dali_pipeline_framework.errors import NotSupportedError, SettingError
from accvlab.dali_pipeline_framework.inputs.keyed_random import digest
from accvlab.dali_pipeline_framework.inputs.plans.planned_batch import Int64Array, PlannedBatch
from accvlab.dali_pipeline_framework.inputs.random_access_sampler import Description, RandomAccessSampler
from accvlab.dali_pipeline_framework.inputs.sequence_lengths import checked_lengths
from accvlab.dali_pipeline_framework.inputs.settings import whole_number


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

    Any batch can be asked for; far ahead that costs one permutation of the sequences per cycle passed.

    Example::

        >>> sampler = SequenceSampler(2, [3, 4, 2, 3], seed=0, randomize=False)
        >>> [sampler.get_next_batch_indices() for _ in range(5)]
        [[0, 3], [1, 4], [2, 5], [7, 6], [8, 9]]
    """

    has_slots = True

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
        self._starts = np.cumsum(self._lengths) - self._lengths
        self._seed = whole_number(seed, "seed", at_least=0)
        self._randomize = bool(randomize)
        self._cycles: _Cycles | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cycles": None}

    def num_batches(self, epoch: int) -> None:
        """None: the sampler is endless."""
        return None

    def plan_batch(self, epoch: int, batch: int) -> PlannedBatch:
        """Get the samples of a batch.

        Raises:
            SettingError: Another epoch than 0, or a batch below 0 is asked for.
        """
        if epoch != 0:
            raise SettingError(f"The SequenceSampler is endless: there is no epoch but 0, asked for was {epoch}.")
        if batch < 0:
            raise SettingError(f"The SequenceSampler has the batches 0, 1, 2, ..., asked for was batch {batch}.")
        if self._cycles is None:
            self._cycles = _Cycles(self._lengths, self.total_batch_size, self._seed if self._randomize else None)
        sequences, frames, cycles = self._cycles.find(batch)
        return PlannedBatch(
            self._starts[sequences] + frames,
            sequence=sequences,
            frame=frames,
            is_first=frames == 0,
            is_last=frames == self._lengths[sequences] - 1,
            visit=cycles,
        )

    def reset(self) -> None:
        """Refuse: an endless sampler has no next epoch.

        Raises:
            NotSupportedError: Always.
        """
        raise NotSupportedError("SequencesSampler is not epoch-based, so there is no epoch to start.")

    @property
    def num_samples(self) -> int:
        """Number of samples of all sequences together."""
        return int(self._lengths.sum())

    @property
    def knows_sequences(self) -> bool:
        """True."""
        return True

    def with_settings(self, *, total_batch_size: int | None = None, **settings: Any) -> SequenceSampler:
        """Get a copy with other settings. See `RandomAccessSampler.with_settings`."""
        if total_batch_size not in (None, self.total_batch_size):
            raise SettingError(
                f"The SequenceSampler was created for batches of {self.total_batch_size} (all shards together), "
                f"which its order depends on; asked for was {total_batch_size}. Create it with that size."
            )
        return super().with_settings(**settings)

    def describe(self) -> Description:
        """What the order depends on."""
        return {
            **super().describe(),
            "num_sequences": len(self._lengths),
            "num_samples": self.num_samples,
            "sequence_lengths": digest(self._lengths),
            "seed": self._seed,
            "randomize": self._randomize,
        }


@attrs.frozen(eq=False)
class _Cycle:
    """One order of the sequences, dealt to the slots.

    Attributes:
        sequences: Per slot the ``(n_i,)`` sequences that it plays.
        ends: Per slot ``(n_i,)`` the batch after the last one of each, counted from the slot's start of the cycle.
        starts: ``(B,)`` batch at which each slot begins the cycle.
    """

    sequences: list[Int64Array]
    ends: list[Int64Array]
    starts: Int64Array


class _Cycles:
    """Finds what each slot plays in a batch. Keeps the cycles that some slot is in, and goes on from there."""

    def __init__(self, lengths: Int64Array, num_slots: int, seed: int | None) -> None:
        self._lengths = lengths
        self._num_slots = num_slots
        self._seed = seed
        self._restart()

    def _restart(self) -> None:
        self._rng = None if self._seed is None else np.random.default_rng(seed=self._seed)
        self._cycles: dict[int, _Cycle] = {}
        self._num_drawn = 0
        self._next_starts = np.zeros(self._num_slots, np.int64)
        self._cycle_of_slot = [0] * self._num_slots

    def _draw(self) -> None:
        order = np.arange(len(self._lengths))
        if self._rng is not None:
            order = self._rng.permutation(len(self._lengths))
        sequences = [order[slot :: self._num_slots] for slot in range(self._num_slots)]
        ends = [np.cumsum(self._lengths[played]) for played in sequences]
        self._cycles[self._num_drawn] = _Cycle(sequences, ends, self._next_starts)
        self._next_starts = self._next_starts + np.array([end[-1] for end in ends])
        self._num_drawn += 1

    def find(self, batch: int) -> tuple[Int64Array, Int64Array, Int64Array]:
        """Sequence, frame in it, and cycle of each slot; each ``(B,)``."""
        if any(batch < int(self._cycles[number].starts[slot]) for slot, number in self._played()):
            self._restart()
        sequences, frames = np.empty(self._num_slots, np.int64), np.empty(self._num_slots, np.int64)
        for slot, number in enumerate(self._cycle_of_slot):
            cycle, time = self._advance(slot, number, batch)
            position = int(np.searchsorted(cycle.ends[slot], time, side="right"))
            sequences[slot] = cycle.sequences[slot][position]
            frames[slot] = time - (cycle.ends[slot][position - 1] if position else 0)
        return sequences, frames, np.array(self._cycle_of_slot)

    def _played(self) -> Iterator[tuple[int, int]]:
        return ((slot, number) for slot, number in enumerate(self._cycle_of_slot) if number in self._cycles)

    def _advance(self, slot: int, number: int, batch: int) -> tuple[_Cycle, int]:
        """The cycle in which a slot is in a batch, and the time since the slot began it."""
        while True:
            if number == self._num_drawn:
                self._draw()
                self._forget()
            cycle = self._cycles[number]
            time = batch - int(cycle.starts[slot])
            if time < cycle.ends[slot][-1]:
                return cycle, time
            number += 1
            self._cycle_of_slot[slot] = number

    def _forget(self) -> None:
        needed = min(self._cycle_of_slot)
        for number in [known for known in self._cycles if known < needed]:
            del self._cycles[number]
