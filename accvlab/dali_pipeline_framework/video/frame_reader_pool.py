# SPDX-License-Identifier: Apache-2.0
"""A pool of open decoders (LRU), each of which continues where it stopped."""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable

import attrs
import numpy as np
import numpy.typing as npt

from .frame_reader import FrameReader
from .video_decoding import UInt8Array


@attrs.frozen
class DecodingStatistics:
    """What a process has decoded.

    Attributes:
        num_delivered: Frames that samples asked for; repeated ones in one sample count once.
        num_decoded: Frames that were decoded for that.
        num_seeks: How often a decoder went elsewhere in its video.
        num_opened: How often a video was opened.
    """

    num_delivered: int = 0
    num_decoded: int = 0
    num_seeks: int = 0
    num_opened: int = 0

    def _plus(self, reader: FrameReader) -> DecodingStatistics:
        return DecodingStatistics(
            self.num_delivered + reader.num_delivered,
            self.num_decoded + reader.num_decoded,
            self.num_seeks + reader.num_seeks,
            self.num_opened + 1,
        )


@attrs.define(eq=False)
class _Entry:
    video: int
    reader: FrameReader
    has_continued: bool = False


class FrameReaderPool:
    """Frames of several videos, with at most so many open decoders.

    There can be several decoders of one video. Who asks for frames gets the decoder that is closest before
    them and can continue to them, so several readers of one video (slots of a batch, or cameras) each have
    theirs. Otherwise a new one is opened; at the limit, the least recently used decoder is closed for it (LRU).

    Threads may ask at the same time: each gets another decoder. After a fork the child process begins with none.
    """

    def __init__(self, open_reader: Callable[[int], FrameReader], max_open: int) -> None:
        """Create a pool without decoders; it opens videos by their numbers, and keeps at most so many open.

        While threads read, one per thread may be open in any case.
        """
        self._open_reader = open_reader
        self._max_open = max_open
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._idle: list[_Entry] = []  # least recently used first
        self._num_busy = 0
        self._closed = DecodingStatistics()
        self._finalizer = weakref.finalize(self, _close_all, self._idle, self._pid)

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            # The threads of these decoders are in the parent process: closing one here would block forever.
            for entry in self._idle:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(entry.reader))
            self._finalizer.detach()
            self._start()

    def read(self, video: int, numbers: npt.NDArray[np.int64]) -> UInt8Array:
        """Get frames of a video, see `FrameReader.frames`."""
        self._check_process()
        entry = self._borrow(video, int(numbers.min()))
        try:
            frames = entry.reader.frames(numbers)
        except BaseException:
            self._give_up(entry)
            raise
        with self._lock:
            self._num_busy -= 1
            self._idle.append(entry)
        return frames

    def _borrow(self, video: int, first: int) -> _Entry:
        with self._lock:
            entry = self._continuing(video, first)
            if entry is None and len(self._idle) + self._num_busy >= self._max_open and self._idle:
                entry = self._evicted(video)
            if entry is not None:
                self._idle.remove(entry)
                if entry.video != video:
                    self._closed = self._closed._plus(entry.reader)
            self._num_busy += 1
        try:
            if entry is not None and entry.video != video:
                entry.reader.close()
                entry = None
            return _Entry(video, self._open_reader(video)) if entry is None else entry
        except BaseException:
            with self._lock:
                self._num_busy -= 1
            raise

    def _continuing(self, video: int, first: int) -> _Entry | None:
        able = [entry for entry in self._idle if entry.video == video and entry.reader.continues_to(first)]
        if not able:
            return None
        closest = max(able, key=lambda entry: min(entry.reader.next_frame, first))
        closest.has_continued = True
        return closest

    def _evicted(self, video: int) -> _Entry:
        """Choose the decoder to close or to reuse.

        One of the same video needs no opening, unless it has continued before: then some slot will go on with it.
        """
        of_video = (entry for entry in self._idle if entry.video == video and not entry.has_continued)
        entry = next(of_video, self._idle[0])
        entry.has_continued = False
        return entry

    def _give_up(self, entry: _Entry) -> None:
        with self._lock:
            self._num_busy -= 1
            self._closed = self._closed._plus(entry.reader)
        entry.reader.close()

    @property
    def statistics(self) -> DecodingStatistics:
        """What was decoded in this process until now."""
        self._check_process()
        with self._lock:
            total = self._closed
            for entry in self._idle:
                total = total._plus(entry.reader)
            return total

    @property
    def num_open(self) -> int:
        """Number of open decoders."""
        self._check_process()
        with self._lock:
            return len(self._idle) + self._num_busy

    def close(self) -> None:
        """Close the decoders; others are opened when they are needed."""
        self._check_process()
        with self._lock:
            idle, self._idle[:] = list(self._idle), []
            for entry in idle:
                self._closed = self._closed._plus(entry.reader)
        for entry in idle:
            entry.reader.close()


def _close_all(entries: list[_Entry], pid: int) -> None:
    if os.getpid() != pid:
        return
    for entry in entries:
        entry.reader.close()
