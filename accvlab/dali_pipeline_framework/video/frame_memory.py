# SPDX-License-Identifier: Apache-2.0
"""Memory of frames that is used again."""

from __future__ import annotations

import collections
import contextlib
import math
import weakref

import numpy as np

from .video_decoding import UInt8Array


def let_malloc_keep_frames() -> None:
    """Have the C library keep memory that PyAV frees, up to 64 MiB, for its next frames.

    glibc would return it to the system when two neighboring frames of 1920 x 1080 are free. Its limit is twice the
    size of the largest block of at most 32 MiB that was freed: so one, never touched, is allocated and freed.
    """
    np.empty(2**25 - 2**16, np.uint8)


class FrameMemory:
    """Arrays for frames, in memory that is used again once no array refers to it.

    The system clears fresh memory page by page, which takes longer than to convert the frames. Several threads may
    use it at the same time.
    """

    def __init__(self, most_kept_bytes: int = 512 * 2**20) -> None:
        """Begin without memory; at most so much is kept for use again."""
        self._most_kept_bytes = most_kept_bytes
        self._free: collections.deque[UInt8Array] = collections.deque()  # what was given back last is at the end

    def array(self, shape: tuple[int, ...]) -> UInt8Array:
        """Get an array of any content."""
        block = self._block(math.prod(shape))
        # Views of an array of a memoryview refer to that array, not to the block: it lives as long as they.
        array = np.frombuffer(block.data, np.uint8)
        weakref.finalize(array, self._give_back, block).atexit = False
        return array.reshape(shape)

    def _block(self, num_bytes: int) -> UInt8Array:
        for _ in range(len(self._free)):
            try:
                block = self._free.pop()
            except IndexError:  # another thread was faster
                break
            if len(block) == num_bytes:
                return block
            self._free.appendleft(block)
        return np.empty(num_bytes, np.uint8)

    def _give_back(self, block: UInt8Array) -> None:
        self._free.append(block)
        with contextlib.suppress(IndexError):
            while self.num_kept_bytes > self._most_kept_bytes:
                self._free.popleft()

    @property
    def num_kept_bytes(self) -> int:
        """Number of bytes that are kept for use again."""
        return sum(map(len, tuple(self._free)))
