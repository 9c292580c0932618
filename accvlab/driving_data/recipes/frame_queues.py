# SPDX-License-Identifier: Apache-2.0
"""Queues of frames, as BEVFormer is trained with: a frame and some of those before it."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework import PlannedBatch, RandomAccessSampler, ShuffledSampler
from accvlab.dali_pipeline_framework.checks import flag, whole_number
from accvlab.dali_pipeline_framework.extension import Description, derive_key, random_bits
from accvlab.dali_pipeline_framework.sampling import LastBatch, SampleCounts

Int64Array = npt.NDArray[np.int64]


def queue_frames(frame: int, left_out: int, queue_length: int, first_frame: int) -> list[int]:
    """Frames of a queue, the oldest first.

    Of the ``queue_length`` frames before ``frame`` one is left out; ``frame`` comes last. What would lie before
    ``first_frame`` is ``first_frame``.

    Args:
        frame: The frame that the queue leads to.
        left_out: Which of the frames before it is left out: 0 for the oldest.
        queue_length: Number of frames in the queue.
        first_frame: The first frame that may be in it.

    Example:
        >>> queue_frames(9, 1, 3, 0), queue_frames(9, 0, 3, 8)
        ([6, 8, 9], [8, 8, 9])
    """
    before = range(frame - queue_length, frame)
    return [max(each, first_frame) for place, each in enumerate(before) if place != left_out] + [frame]


@attrs.frozen
class QueueState:
    """What a model with memory needs to know of each frame of a queue.

    Attributes:
        can_bus: ``(Q, 18)`` float64, with differences to the frame before, see `queue_states`.
        has_memory: ``(Q,)`` bool, whether the memory of the frame before goes with it.
    """

    can_bus: npt.NDArray[np.float64]
    has_memory: npt.NDArray[np.bool_]


def queue_states(
    can_bus: npt.NDArray[np.float64], frames: list[int], scenes: list[int], *, emulates_reference: bool
) -> QueueState:
    """Make the differences from frame to frame of ``can_bus``.

    Columns 0..2, the place, and the last one, the heading in degrees, become differences to the frame before
    in the queue, and 0 where the memory begins: at the beginning of the queue and where another scene begins;
    and, unless the reference is emulated, at a frame that is repeated. Differences of headings are in [-180,
    180).

    Args:
        can_bus: ``(Q, 18)``, absolute.
        frames: Frame of each.
        scenes: Scene of each.
        emulates_reference: Whether to do as BEVFormer's code does: headings are not wrapped, and entries of
            the same frame are one array, which is changed once for each of them.
    """
    has_memory = np.array(
        [
            place > 0
            and scenes[place] == scenes[place - 1]
            and (emulates_reference or frames[place] != frames[place - 1])
            for place in range(len(frames))
        ]
    )
    rows = can_bus.copy()
    # Entries that share memory have the number of the first one of the same frame.
    entry = [frames.index(frame) if emulates_reference else place for place, frame in enumerate(frames)]
    before_xyz, before_deg = np.zeros(3), 0.0
    for place, row in enumerate(entry):
        xyz, heading_deg = rows[row, :3].copy(), float(rows[row, -1])
        if has_memory[place]:
            turned = heading_deg - before_deg
            rows[row, :3] = xyz - before_xyz
            rows[row, -1] = turned if emulates_reference else (turned + 180) % 360 - 180
        else:
            rows[row, :3] = 0
            rows[row, -1] = 0
        before_xyz, before_deg = xyz, heading_deg
    return QueueState(rows[entry], has_memory)


class QueueSampler(RandomAccessSampler):
    """Each frame once per epoch, shuffled, with a queue that is drawn: sample ``frame * queue_length + left_out``.

    Which of the frames before is left out is a function of the seed, the epoch and the frame.

    Example:
        >>> sampler = QueueSampler(4, queue_length=3, total_batch_size=2, seed=1)
        >>> sorted(index // 3 for batch in (0, 1) for index in sampler.get_batch_indices(0, batch).tolist())
        [0, 1, 2, 3]
    """

    supports_last_batch = True

    def __init__(
        self,
        num_frames: int,
        total_batch_size: int | None = None,
        *,
        queue_length: int,
        seed: int = 0,
        shuffle: bool = True,
        last_batch: LastBatch = "drop",
    ) -> None:
        """Create the sampler.

        Args:
            num_frames: Number of frames of the data set.
            total_batch_size: Samples per batch, all shards together. None: set later, by the loader.
            queue_length: Number of frames in a queue.
            seed: Seed of the orders and the queues, at least 0.
            shuffle: Whether to shuffle the frames.
            last_batch: What becomes of a last batch that is not full.

        Raises:
            SettingError: An argument is out of its range.
        """
        super().__init__(total_batch_size, last_batch=last_batch)
        self._queue_length = whole_number(queue_length, "queue_length", at_least=1)
        self._frames = ShuffledSampler(
            num_frames, total_batch_size, seed=seed, shuffle=flag(shuffle, "shuffle"), last_batch=last_batch
        )

    @property
    def num_samples(self) -> int:
        """Number of samples: of frames, times the ways to leave one out."""
        return int(self._frames.num_samples or 0) * self._queue_length

    def with_settings(self, **settings: Any) -> QueueSampler:
        """Get a copy with other settings, see `RandomAccessSampler.with_settings`."""
        changed = super().with_settings(**settings)
        changed._frames = self._frames.with_settings(**settings)
        return changed

    def continued(self, epoch: int, segments: Any) -> QueueSampler:
        """Get a copy that goes on, see `RandomAccessSampler.continued`."""
        changed = super().continued(epoch, segments)
        changed._frames = self._frames.continued(epoch, segments)
        return changed

    @property
    def _can_change_batch_size(self) -> bool:  # type: ignore[override]
        return self._frames._can_change_batch_size

    def num_batches(self, epoch: int) -> int:
        """Number of batches of an epoch."""
        return int(self._frames.num_batches(epoch) or 0)

    def sample_counts(self, epoch: int) -> SampleCounts | None:
        """What is delivered, dropped and repeated in an epoch, in frames."""
        return self._frames.sample_counts(epoch)

    def plan_batch(self, epoch: int, batch: int) -> PlannedBatch:
        """Get the samples of a batch."""
        planned = self._frames.plan_batch(epoch, batch)
        key = derive_key("queue", self._frames.seed, epoch)
        left_out = random_bits(key, planned.indices) % np.uint64(self._queue_length)
        return attrs.evolve(planned, indices=planned.indices * self._queue_length + left_out.astype(np.int64))

    def describe(self) -> Description:
        """What the order depends on."""
        own: Description = {
            "sampler": type(self).__name__,
            "queue_length": self._queue_length,
            "queue_seed": self._frames.seed,
        }
        return {**self._frames.describe(), **own, "num_samples": self.num_samples}
