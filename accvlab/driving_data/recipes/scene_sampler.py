# SPDX-License-Identifier: Apache-2.0
"""The order of an evaluation of models with a memory: scene by scene, whole, each frame once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework import PlannedBatch, RandomAccessSampler
from accvlab.dali_pipeline_framework.extension import checked_lengths

Int64Array = npt.NDArray[np.int64]


class SceneSampler(RandomAccessSampler):
    """Slots play scenes in the order of time, and no scene is cut, whatever the number of slots.

    Scenes are dealt in their order, each to the slot that is ready first. What fills a slot without a scene, or
    behind its last one, is marked as padding: it repeats the slot's last frame, or the first of the data set.
    `StreamingSequenceSampler` does the same, but cuts scenes where there are more slots than scenes.
    """

    has_slots = True

    def __init__(self, sequence_lengths: Sequence[int], total_batch_size: int | None = None) -> None:
        """Create the sampler.

        Args:
            sequence_lengths: Number of frames of each scene, above 0.
            total_batch_size: Number of slots, all shards together. None: set later, by the loader.

        Raises:
            SettingError: An argument is out of its range.
        """
        self._lengths = checked_lengths(sequence_lengths)
        self._starts = np.cumsum(self._lengths) - self._lengths
        self._dealt: dict[int, list[Int64Array]] = {}  # by number of slots
        super().__init__(total_batch_size)

    @property
    def num_samples(self) -> int:
        """Number of frames."""
        return int(self._lengths.sum())

    def describe(self) -> dict[str, Any]:
        """What the order depends on."""
        return {**super().describe(), "sequence_lengths": self._lengths.tolist()}

    def num_batches(self, epoch: int) -> int:
        """Get the number of batches: the frames of the fullest slot."""
        return max(len(slot) for slot in self._slots(self.total_batch_size))

    def plan_batch(self, epoch: int, batch: int) -> PlannedBatch:
        """Plan a batch."""
        slots = self._slots(self.total_batch_size)
        is_over = np.array([batch >= len(slot) for slot in slots])
        samples = [slot[min(batch, len(slot) - 1)] if len(slot) else 0 for slot in slots]
        indices = np.array(samples, np.int64)
        scenes = np.searchsorted(self._starts, indices, side="right") - 1
        frames = indices - self._starts[scenes]
        is_last = frames == self._lengths[scenes] - 1
        return PlannedBatch(indices, is_over, scenes, frames, is_first=frames == 0, is_last=is_last)

    def _slots(self, num_slots: int) -> list[Int64Array]:
        """The frames of each slot."""
        if num_slots not in self._dealt:
            scenes_of: list[list[Int64Array]] = [[] for _ in range(num_slots)]
            lengths = np.zeros(num_slots, np.int64)
            for start, length in zip(self._starts, self._lengths, strict=True):
                slot = int(np.argmin(lengths))
                scenes_of[slot].append(np.arange(start, start + length))
                lengths[slot] += length
            self._dealt[num_slots] = [np.concatenate([np.zeros(0, np.int64), *scenes]) for scenes in scenes_of]
        return self._dealt[num_slots]
