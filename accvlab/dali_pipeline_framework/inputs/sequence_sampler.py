# SPDX-License-Identifier: Apache-2.0
"""Endless sampler that plays sequences in batch slots."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework.errors import NotSupportedError, SettingError
from accvlab.dali_pipeline_framework.inputs.sampler_base import SamplerBase
from accvlab.dali_pipeline_framework.inputs.settings import whole_number


class SequenceSampler(SamplerBase):
    """Each slot of the batch plays sequences from their first to their last sample, one after the other.

    In cycle ``c`` all slots use the same order of the sequences, draw ``c`` of
    ``numpy.random.default_rng(seed).permutation(num_sequences)`` (``0, 1, 2, ...`` with
    ``randomize=False``), and slot ``i`` of ``B`` plays ``order[i::B]``. Lengths 3, 4, 2, 3 in two slots,
    not randomised (A0 is the first sample of the first sequence)::

        slot 0 |  A0 A1 A2 C0 C1 | A0 A1 A2 C0 C1 | ...
        slot 1 |  B0 B1 B2 B3 D0 D1 D2 | B0 B1 ...

    A slot starts its next cycle when its own sequences are played, so slots drift apart: there are no
    epochs, a sequence can be in two slots at the same time, and over a finite run some samples are
    delivered more often than others.
    """

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
        self._num_slots = whole_number(total_batch_size, "total_batch_size", at_least=1)
        self._lengths = _checked_lengths(sequence_lenghts)
        if len(self._lengths) < self._num_slots:
            raise SettingError(
                f"The number of sequences must be at least the total batch size. Got {len(self._lengths)} "
                f"sequence(s) for {self._num_slots} slots: use a smaller batch, or cut the sequences."
            )
        self._starts = np.cumsum(self._lengths) - self._lengths
        self._seed = whole_number(seed, "seed", at_least=0)
        self._randomize = bool(randomize)
        self._slots: list[_Slot] | None = None
        self._orders: _CycleOrders | None = None

    def get_next_batch_indices(self) -> list[int]:
        """Get the sample indices of the next batch, one per slot. It never raises `StopIteration`."""
        if self._slots is None or self._orders is None:
            self._orders = _CycleOrders(len(self._lengths), self._seed if self._randomize else None)
            self._slots = [_Slot() for _ in range(self._num_slots)]
        indices = []
        for slot_index, slot in enumerate(self._slots):
            order = self._orders.get(slot.cycle)
            sequence = order[slot_index + slot.num_played * self._num_slots]
            indices.append(int(self._starts[sequence]) + slot.sample)
            slot.sample += 1
            if slot.sample == self._lengths[sequence]:
                slot.sample = 0
                slot.num_played += 1
                if slot_index + slot.num_played * self._num_slots >= len(order):
                    slot.num_played = 0
                    slot.cycle += 1
        self._orders.forget_before(min(slot.cycle for slot in self._slots))
        return indices

    @property
    def is_epoch_based(self) -> bool:
        """False: the sampler is endless."""
        return False

    def reset(self) -> None:
        """Refuse: an endless sampler has no next epoch.

        Raises:
            NotSupportedError: Always.
        """
        raise NotSupportedError("SequencesSampler is not epoch-based, so there is no epoch to start.")

    @property
    def length(self) -> None:
        """None: the sampler is endless."""
        return None

    @property
    def num_samples(self) -> int:
        """Number of samples of all sequences together."""
        return int(self._lengths.sum())

    @property
    def total_batch_size(self) -> int:
        """Number of slots."""
        return self._num_slots


class _Slot:
    """Where a slot stands: its cycle, how many of its sequences it has played in it, and the next sample."""

    __slots__ = ("cycle", "num_played", "sample")

    def __init__(self) -> None:
        self.cycle = 0
        self.num_played = 0
        self.sample = 0


class _CycleOrders:
    """The orders of the cycles that some slot is in; drawn one after the other from one generator."""

    def __init__(self, num_sequences: int, seed: int | None) -> None:
        self._num_sequences = num_sequences
        self._rng = None if seed is None else np.random.default_rng(seed=seed)
        self._orders: dict[int, npt.NDArray[np.int64]] = {}
        self._num_drawn = 0

    def get(self, cycle: int) -> npt.NDArray[np.int64]:
        while self._num_drawn <= cycle:
            if self._rng is None:
                order = np.arange(self._num_sequences)
            else:
                order = self._rng.permutation(self._num_sequences)
            self._orders[self._num_drawn] = order
            self._num_drawn += 1
        return self._orders[cycle]

    def forget_before(self, cycle: int) -> None:
        for old in [known for known in self._orders if known < cycle]:
            del self._orders[old]


def _checked_lengths(lengths: Sequence[int]) -> npt.NDArray[np.int64]:
    array = np.asarray(lengths)
    if array.ndim != 1 or array.size == 0:
        raise SettingError(
            f"`sequence_lenghts` must be a flat list with at least one length, got shape {array.shape}."
        )
    if array.dtype.kind not in "iu" and not (array.dtype.kind == "f" and np.all(array == np.floor(array))):
        raise SettingError(f"`sequence_lenghts` must hold whole numbers, got {array.dtype} values.")
    bad = np.flatnonzero(array < 1)
    if bad.size:
        raise SettingError(
            f"Each of `sequence_lenghts` must be at least 1, but length {int(bad[0])} is {array[bad[0]]} "
            f"({bad.size} such length(s)). Leave empty sequences out."
        )
    return array.astype(np.int64)


def check_sequences_fit(sampler: SamplerBase, num_samples: int) -> None:
    """Raise a `SettingError` where a `SequenceSampler` has more samples than the data set."""
    if isinstance(sampler, SequenceSampler) and sampler.num_samples > num_samples:
        raise SettingError(
            f"The sequences of the SequenceSampler have {sampler.num_samples} samples together, but the data set "
            f"has only {num_samples}. `sequence_lenghts` must hold the lengths of the sequences of this data set."
        )
