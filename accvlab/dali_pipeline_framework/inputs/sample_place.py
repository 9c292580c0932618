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
        sequence: Sequence (or clip) that the slot plays, or -1 for samplers without sequences.
        frame: Position of the sample in what the slot plays, from 0, or -1 for samplers without sequences.
        is_first: Whether the slot begins a sequence with this sample.
        is_last: Whether the slot ends a sequence with this sample.
        is_padding: Whether the sample only fills the slot: it repeats another one and is not to be counted.
        visit: Tells apart several deliveries of a sample (or sequence) in the same epoch.
    """

    epoch: int
    batch: int
    slot: int
    sample_index: int
    sequence: int = -1
    frame: int = -1
    is_first: bool = False
    is_last: bool = False
    is_padding: bool = False
    visit: int = 0
