# SPDX-License-Identifier: Apache-2.0
"""Where the frames of overlapping windows are decoded, so that each is decoded once per batch."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]

NOT_IN_A_BATCH = -1
"""The slot of frames of a sample that was loaded alone: the graph refuses it in a batch of several."""


class FrameLayout(NamedTuple):
    """Which frames the slots of a batch carry, and where each window finds its own.

    Attributes:
        carried: ``(n, F)`` int64, the frame in each field of a window's slot, -1 for none.
        places: ``(n, 3, F)`` int32. Row 0: whether each field carries a frame (1 or 0). Row 1, 2: slot and field
            in which each frame of the window is, in the order of play.
        complete_with: ``(n,)`` int64, the last of the windows that carry a frame of each window.
    """

    carried: Int64Array
    places: Int32Array
    complete_with: Int64Array


def lay_out_frames(frames: Int64Array, sequences: Int64Array, slots: Int64Array) -> FrameLayout:
    """Lay out the frames of the windows of one batch.

    The distinct frames of all windows of a sequence, in order, fill the fields of the first of these windows,
    then of the next. With three windows of four frames::

        window    frames               fields carry
          0       10  11  12  13       10  11  12  13
          1       11  12  13  14       14  15   -   -
          2       12  13  14  15        -   -   -   -

    Args:
        frames: ``(n, F)`` int64, the frames of each window.
        sequences: ``(n,)`` int64, the sequence of each window. Windows borrow only within their sequence, so that
            frames of different sizes do not meet.
        slots: ``(n,)`` int64, the number of each window in the batch.
    """
    num_windows, length = frames.shape
    carried = np.full((num_windows, length), -1, np.int64)
    places = np.zeros((num_windows, 3, length), np.int32)
    complete_with = np.zeros(num_windows, np.int64)
    for sequence in np.unique(sequences):
        windows = np.flatnonzero(sequences == sequence)
        distinct, positions = np.unique(frames[windows], return_inverse=True)
        positions = positions.reshape(-1, length)  # (windows, F), in `distinct`
        filled = np.full(len(windows) * length, -1, np.int64)
        filled[: len(distinct)] = distinct
        carried[windows] = filled.reshape(-1, length)
        carriers = windows[positions // length]  # (windows, F)
        complete_with[windows] = carriers.max(axis=1)
        places[windows, 1] = slots[carriers]
        places[windows, 2] = positions % length
    places[:, 0] = carried >= 0
    return FrameLayout(carried, places, complete_with)


def lay_out_alone(frames: Int64Array) -> FrameLayout:
    """Lay out one window, ``(1, F)`` frames, that is in no batch."""
    return lay_out_frames(frames, np.zeros(1, np.int64), np.full(1, NOT_IN_A_BATCH))


def can_overlap(sequence_length: int, stride: int, step: int) -> bool:
    """Whether two windows of a data set can have a frame in common."""
    # Starts that differ by d frames share some iff d is a multiple of both, and smaller than the span.
    return math.lcm(stride, step) <= (sequence_length - 1) * stride
