# SPDX-License-Identifier: Apache-2.0
"""Where a sample stands in the order in which samples are delivered."""

from __future__ import annotations

from typing import Any, NamedTuple

from nvidia.dali import types


class SamplePlace(NamedTuple):
    """Where a sample stands.

    Attributes:
        epoch: Epoch, from 0.
        batch: Batch in the epoch, from 0.
        slot: Slot of the global batch (all shards together), from 0.
        sample_index: Index of the sample in the data set.
        sequence: Sequence of the data set that the sample belongs to, or -1 for samplers without sequences.
        frame: Number of the sample in its sequence, from 0, or -1 for samplers without sequences. For a clip that
            is one sample, that of the frame at which the clip starts.
        clip: Number of the clip that the slot plays, or -1 for samplers without clips.
        is_first: Whether the slot begins what it plays with this sample: a sequence, a segment of one, or a clip.
            True on padding, and on the sample that follows it in the slot: nothing may be carried over.
        is_last: Whether the slot ends it with this sample; True on padding.
        is_padding: Whether the sample only fills the slot: it repeats another one and is not to be counted.
        visit: Tells apart several deliveries of a sample (or sequence) in the same epoch.
    """

    epoch: int
    batch: int
    slot: int
    sample_index: int
    sequence: int = -1
    frame: int = -1
    clip: int = -1
    is_first: bool = False
    is_last: bool = False
    is_padding: bool = False
    visit: int = 0


def place_at(source: Any, info: types.SampleInfo, shard: tuple[int, int], batch_size: int) -> SamplePlace:
    """Get the place of the sample at a position of an input.

    Where the input tells neither place (``get_place``) nor index (``get_sample_index``), the position in the epoch
    of all shards is the index.

    Args:
        source: The input.
        info: The position, among the samples of this shard.
        shard: Shard id and number of shards.
        batch_size: Samples per batch on this shard.
    """
    get_place = getattr(source, "get_place", None)
    place: SamplePlace | None = None if get_place is None else get_place(info)
    if place is not None:
        return place
    get_index = getattr(source, "get_sample_index", None)
    index: int | None = None if get_index is None else get_index(info)
    if index is None:
        # The batches of all shards follow each other:
        # num_shards = 2, batch_size = 2:   shard 0: 0 1   shard 1: 2 3   shard 0: 4 5   shard 1: 6 7  ...
        shard_id, num_shards = shard
        index = info.idx_in_epoch + (info.iteration * (num_shards - 1) + shard_id) * batch_size
    return SamplePlace(info.epoch_idx, info.iteration, info.idx_in_batch, index)
