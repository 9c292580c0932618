# SPDX-License-Identifier: Apache-2.0
"""Sequences played in batch slots, with true epochs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ..checks import flag, whole_number
from ..draws.keyed_random import digest
from .arithmetic.last_batch import LastBatch
from .arithmetic.sequence_lengths import checked_lengths
from .planned_sampler import PlannedSampler
from .plans.tracks import SequenceUnits
from .random_access_sampler import Description
from .weighted_sampler import Weights, units_order


class StreamingSequenceSampler(PlannedSampler):
    """Each slot of the batch plays sequences one after the other; each frame is delivered once per epoch.

    The frames of a slot are consecutive in time until its sequence ends. All slots start together and run for
    ``num_batches(epoch)`` batches; slots that have played their sequences earlier are padded (with their last
    frame, marked), up to the end of the epoch. With ``last_batch="drop"`` nothing is padded.

    Two ways to share out the sequences, and what they cost:

    - whole sequences (the default): no sequence is cut, and none is in two slots. The sequences are dealt by
      length, so the slots' loads differ by at most the longest sequence; that difference is padding. With few
      sequences per slot, or a few very long ones, it can be a large part of the epoch.
    - ``cut_sequences=True``: the shuffled sequences are laid one after the other and cut into ``B`` equal pieces.
      At most one frame per slot is padding, in the last batch. Up to ``B - 1`` sequences are cut: their second
      part starts with an empty history in the next slot. A sequence of more than ``N // B``
      frames can be in several slots in the same step.

    With fewer sequences than slots there is no other way than to cut them; that is logged, and
    `RandomAccessSampler.sample_counts` tells the number of cuts.

    With weights, an epoch plays sequences that are drawn by weight with replacement: some several times, then
    possibly in two slots at once, and others not at all.

    Example::

        >>> sampler = StreamingSequenceSampler([3, 4, 2, 3], 2, shuffle=False)
        >>> [sampler.get_next_batch_indices() for _ in range(sampler.num_batches(epoch=0))]
        [[3, 0], [4, 1], [5, 2], [6, 9], [7, 10], [8, 11]]
    """

    is_streamed = True

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
            shuffle: Whether the order of the sequences differs between epochs; with weights it always does.
            cut_sequences: Whether sequences may be cut to make the slots equally long.
            weights: ``(S,)``, one per sequence, to draw the sequences of an epoch by weight. None: each once.
            num_per_epoch: With weights, number of sequences drawn per epoch; None for ``S``.
            last_batch: What happens when the first slot has played its sequences: ``"pad"`` and ``"partial"`` go
                on until the last slot has, with marked padding or with smaller batches; ``"drop"`` ends the
                epoch and drops what the other slots have left: the ends of the sequences that they are in, and
                the sequences after those; ``"wrap"`` has slots start over with what they played.

        Raises:
            SettingError: An argument is out of its range.
        """
        super().__init__(total_batch_size, last_batch)
        self._lengths = checked_lengths(sequence_lengths)
        self._num_samples = int(self._lengths.sum())
        self.seed = whole_number(seed, "seed", at_least=0)
        self.shuffles = flag(shuffle, "shuffle")
        self.cuts = flag(cut_sequences, "cut_sequences")
        self.unit_table = SequenceUnits(self._lengths)
        self.order = units_order(len(self._lengths), weights, num_per_epoch, self.seed, self.shuffles)
        self._digests = {
            "sequence_lengths": digest(self._lengths),
            "weights": None if weights is None else digest(np.asarray(weights, dtype=np.float64)),
        }

    def describe(self) -> Description:
        """What the order depends on."""
        return {
            **super().describe(),
            "num_sequences": len(self._lengths),
            "num_samples": self._num_samples,
            **self._digests,
            "num_per_epoch": self.order.num_positions,
            "seed": self.seed if self.shuffles else None,
            "shuffle": self.shuffles,
            "cut_sequences": self.cuts,
        }
