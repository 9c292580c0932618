# SPDX-License-Identifier: Apache-2.0
"""The order of the evaluation, scene by scene; and pieces of scenes, as training plays them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework import PlannedBatch, RandomAccessSampler, checks
from accvlab.dali_pipeline_framework.extension import Description, checked_lengths
from accvlab.dali_pipeline_framework.unknown_arguments import explains_unknown_arguments

from ..datasets.driving.array_types import Int64

Lengths: TypeAlias = Sequence[int] | npt.NDArray[np.integer]
"""Numbers of samples."""


def check_split(split: object, name: str = "split") -> None:
    """Refuse what is neither a number of pieces nor ``"all"``."""
    if isinstance(split, str):
        checks.choice(split, name, ("all",))
    elif not (isinstance(split, int | np.integer) and split == -1):
        checks.whole_number(split, name, at_least=1)


def split_lengths(sequence_lengths: Lengths, split: int | str) -> list[int]:
    """Lengths of the pieces of sequences that are cut, as by ``seq_split_num``.

    A sequence of ``n`` frames is cut into pieces of ``ceil(n / split)``; the last one has the rest. A short
    sequence may give fewer pieces than ``split``.

    Args:
        sequence_lengths: ``(S,)``, number of frames of each sequence.
        split: Number of pieces of each; ``"all"`` or -1: each frame is one.

    Raises:
        SettingError: ``split`` is not one of these.
    """
    check_split(split)
    lengths = checked_lengths(sequence_lengths).tolist()
    sizes = [1 if split in ("all", -1) else math.ceil(length / int(split)) for length in lengths]
    return [min(size, n - first) for n, size in zip(lengths, sizes, strict=True) for first in range(0, n, size)]


class SceneSampler(RandomAccessSampler):
    """Slots play scenes in the order of time, and no scene is cut, whatever the number of slots.

    Scenes are assigned in their order, each to the slot that is ready first. After its last scene, a slot repeats
    its last frame, marked as padding; a slot without any scene repeats the first frame of the data set.
    `StreamingSequenceSampler` assigns scenes by length instead, and cuts them if there are more slots than scenes.
    """

    has_slots = True

    @explains_unknown_arguments
    def __init__(self, sequence_lengths: Sequence[int], total_batch_size: int | None = None) -> None:
        """Create the sampler.

        Args:
            sequence_lengths: Number of frames of each scene, above 0.
            total_batch_size: Number of slots, all shards together. None: set later, by the loader.

        Raises:
            SettingError: An argument is out of its range.
        """
        super().__init__(total_batch_size)
        self._lengths = checked_lengths(sequence_lengths, "sequence_lengths")
        self._starts = np.cumsum(self._lengths) - self._lengths
        self._slots: dict[int, list[Int64]] = {}  # the samples of each slot, by number of slots

    @property
    def num_samples(self) -> int:
        """Number of frames of all scenes together."""
        return int(self._lengths.sum())

    def num_batches(self, epoch: int) -> int:
        """Number of batches of an epoch."""
        return max(map(len, self._dealt()))

    def plan_batch(self, epoch: int, batch: int) -> PlannedBatch:
        """Get the samples of a batch."""
        dealt = self._dealt()
        samples = np.array([own[min(batch, len(own) - 1)] if len(own) else 0 for own in dealt], np.int64)
        is_over = np.array([batch >= len(own) for own in dealt])
        scenes = np.searchsorted(self._starts, samples, side="right") - 1
        frames = samples - self._starts[scenes]
        is_last = frames == self._lengths[scenes] - 1
        return PlannedBatch(samples, is_over, scenes, frames, is_first=frames == 0, is_last=is_last)

    def describe(self) -> Description:
        """Settings on which the order depends."""
        return {**RandomAccessSampler.describe(self), "sequence_lengths": self._lengths.tolist()}

    def _dealt(self) -> list[Int64]:
        """The samples of each slot."""
        num_slots = self.total_batch_size
        if num_slots not in self._slots:
            scenes_of: list[list[Int64]] = [[np.zeros(0, np.int64)] for _ in range(num_slots)]
            lengths = np.zeros(num_slots, np.int64)
            for start, length in zip(self._starts, self._lengths, strict=True):
                slot = int(np.argmin(lengths))
                scenes_of[slot].append(np.arange(start, start + length))
                lengths[slot] += length
            self._slots[num_slots] = [np.concatenate(scenes) for scenes in scenes_of]
        return self._slots[num_slots]
