# SPDX-License-Identifier: Apache-2.0
"""Assignment of the frames of overlapping windows to samples, so that each is decoded once per batch."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]


class FrameLayout(NamedTuple):
    """Which frames the samples of a batch carry, and where each window finds its own.

    Attributes:
        carried: ``(n, F)`` int64, the frame in each field of a window's sample, -1 for none.
        places: ``(n, 3, F)`` int32. Row 0: whether each field carries a frame (1 or 0). Row 1, 2: the slot of the
            window that carries each frame of the window, in the order of play, and the field in which it does. In
            windows that do not share, row 1 is -1: they carry their own frames, in that order.
        complete_with: ``(n,)`` int64, the last of the windows that carry a frame of each window.
    """

    carried: Int64Array
    places: Int32Array
    complete_with: Int64Array


def lay_out_frames(frames: Int64Array, sequences: Int64Array, slots: Int64Array) -> FrameLayout:
    """Lay out the frames of the windows of one batch.

    Windows share if a frame of theirs occurs more than once in the batch. The distinct frames of all of them in a
    sequence, in order, are assigned to these windows in turns: a field is decoded for all samples at once, by
    several threads, so the first fields should be full. With four windows, of which the third does not share::

        window    frames               fields carry         places
          0       10  11  12  13       10  13   -   -       0.0 1.0 3.0 0.1
          1       11  12  13  14       11  14   -   -       1.0 3.0 0.1 1.1
          2       40  41  42  43       40  41  42  43
          3       12  13  14  15       12  15   -   -       3.0 0.1 1.1 3.1

    Args:
        frames: ``(n, F)`` int64, the frames of each window.
        sequences: ``(n,)`` int64, the sequence of each window. Windows borrow only within their sequence, so that
            frames of different sizes do not meet.
        slots: ``(n,)`` int64, the position of each window in the whole batch.
    """
    length = frames.shape[1]
    layout = lay_out_alone(frames)
    _, inverse, counts = np.unique(frames, return_inverse=True, return_counts=True)
    is_sharing = (counts[inverse.reshape(frames.shape)] > 1).any(axis=1)
    for sequence in np.unique(sequences[is_sharing]):
        windows = np.flatnonzero(is_sharing & (sequences == sequence))
        distinct, positions = np.unique(frames[windows], return_inverse=True)
        positions = positions.reshape(-1, length)  # (windows, F), in `distinct`
        dealt = np.full((length, len(windows)), -1, np.int64)
        dealt.flat[: len(distinct)] = distinct
        carriers = windows[positions % len(windows)]  # (windows, F)
        layout.carried[windows] = dealt.T
        layout.places[windows, 0] = layout.carried[windows] >= 0
        layout.places[windows, 1] = slots[carriers]
        layout.places[windows, 2] = positions // len(windows)
        layout.complete_with[windows] = carriers.max(axis=1)
    return layout


def lay_out_alone(frames: Int64Array) -> FrameLayout:
    """Lay out windows, ``(n, F)`` frames, each of which carries its own frames."""
    num_windows, length = frames.shape
    places = np.empty((num_windows, 3, length), np.int32)
    places[:, 0], places[:, 1], places[:, 2] = 1, -1, np.arange(length)
    return FrameLayout(frames.copy(), places, np.arange(num_windows))


def can_overlap(sequence_length: int, stride: int, step: int) -> bool:
    """Whether two windows of a data set can have a frame in common."""
    # Starts that differ by d frames share some iff d is a multiple of both, and smaller than the span.
    return math.lcm(stride, step) <= (sequence_length - 1) * stride
