# SPDX-License-Identifier: Apache-2.0
"""Where a sample stands in the order in which samples are delivered."""

from __future__ import annotations

from typing import NamedTuple


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
