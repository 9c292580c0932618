# SPDX-License-Identifier: Apache-2.0
"""Counts of the frames of videos that this process has delivered and decoded, for the report of the loader."""

from __future__ import annotations

import threading
from typing import NamedTuple


class FrameCounts(NamedTuple):
    """Frames of videos.

    Attributes:
        num_delivered: Frames of samples.
        num_decoded: Frames that were, or will be, decoded for that.
    """

    num_delivered: int = 0
    num_decoded: int = 0


NO_FRAMES = FrameCounts()
pending = NO_FRAMES
"""Of this process, since they were taken last."""
_lock = threading.Lock()


def count_frames(num_delivered: int, num_decoded: int) -> None:
    """Add frames to the counts of this process."""
    global pending
    with _lock:
        pending = FrameCounts(pending.num_delivered + num_delivered, pending.num_decoded + num_decoded)


def take_frames() -> FrameCounts:
    """Get the counts of this process since this was called last."""
    global pending
    with _lock:
        taken, pending = pending, NO_FRAMES
    return taken
