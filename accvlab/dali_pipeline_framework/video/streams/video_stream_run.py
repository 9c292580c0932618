# SPDX-License-Identifier: Apache-2.0
"""Prefetching of decoded videos for a running pipeline, by a thread."""

from __future__ import annotations

import atexit
import collections
import threading
import weakref
from collections.abc import Sequence
from typing import Any, cast

import attrs
import numpy as np
import numpy.typing as npt

from ...errors import ClosedError, NothingFedError
from ...sources.input_parts import NativeRun
from .fed_video_decoding import SequenceBatch, SequenceSettings, decode_in_batches
from .video_feed import FedVideo, VideoFeed

_MOST_SECONDS_TO_END = 10.0

_running: weakref.WeakSet[VideoStreamRun] = weakref.WeakSet()


@atexit.register
def _close_at_exit() -> None:
    # A thread that decodes while the interpreter ends can crash the process.
    for run in list(_running):
        run.close()


@attrs.define
class BatchHandover:
    """Holds the next batch for the operators of a pipeline.

    Attributes:
        frames: See `SequenceBatch`.
        places: Columns of numbers that tell where the sequences stand.
    """

    frames: Any = None
    places: Sequence[npt.NDArray[np.int32]] = ()

    def take_frames(self) -> Any:
        """Get the frames; only once, so that they are not held longer than needed."""
        frames, self.frames = self.frames, None
        return frames


@attrs.define(eq=False)
class DecodedBatches:
    """The batches that a thread has decoded, up to a number of them; guarded by the condition of the feed."""

    feed: VideoFeed
    _num_ahead: int
    _batches: collections.deque[SequenceBatch] = attrs.field(factory=collections.deque, init=False)
    _end: BaseException | None = attrs.field(default=None, init=False)
    _is_decoding: bool = attrs.field(default=False, init=False)
    _is_stopped: bool = attrs.field(default=False, init=False)

    # --- for the thread that decodes ------------------------------------------------------------------

    def next_video(self) -> FedVideo | None:
        """Wait for the next video; None when there are no more."""
        feed = self.feed
        with feed.changed:
            self._is_decoding = False
            feed.changed.notify_all()
            feed.changed.wait_for(lambda: self._is_stopped or feed.num_waiting or feed.is_closed)
            video = None if self._is_stopped else feed.take()
            self._is_decoding = video is not None
            return video

    def put(self, batch: SequenceBatch) -> bool:
        """Wait for room and add a batch; False where no more are wanted."""
        with self.feed.changed:
            self.feed.changed.wait_for(lambda: len(self._batches) < self._num_ahead or self._is_stopped)
            self._batches.append(batch)
            self.feed.changed.notify_all()
            return not self._is_stopped

    def put_end(self, end: BaseException) -> None:
        """Note what is to be raised after the last batch."""
        with self.feed.changed:
            self._end = end
            self.feed.changed.notify_all()

    def is_stopped(self) -> bool:
        """Whether no more batches are wanted."""
        return self._is_stopped

    # --- for the pipeline -----------------------------------------------------------------------------

    def is_ready(self) -> bool:
        """Whether `take` needs not wait."""
        return bool(self._batches) or self._end is not None or self._is_stopped

    def wait(self, is_blocking: bool) -> None:
        """Wait until it is ready.

        Raises:
            NothingFedError: No video is there, and `is_blocking` is False.
        """
        with self.feed.changed:
            while not self.is_ready():
                is_used_up = not (self._is_decoding or self.feed.num_waiting or self.feed.is_closed)
                if is_used_up and not is_blocking:
                    raise NothingFedError(
                        f"There is no video to decode: all {self.feed.num_fed} that were fed are used up. Feed "
                        f"another one with `feed`, or say with `close` that no more follow; with "
                        f"blocking=True the loop waits for it."
                    )
                self.feed.changed.wait()

    def take(self) -> SequenceBatch:
        """Take the next batch; waits for it.

        Raises:
            StopIteration: The stream was closed, and all is delivered.
        """
        with self.feed.changed:
            self.feed.changed.wait_for(self.is_ready)
            if self._is_stopped:
                raise ClosedError("The pipeline was closed while it waited for a video.")
            if self._batches:
                self.feed.changed.notify_all()
                return self._batches.popleft()
            end = cast(BaseException, self._end)
        raise end.with_traceback(None)

    def stop(self) -> None:
        """End the thread, and whoever waits."""
        with self.feed.changed:
            self._is_stopped = True
            self.feed.changed.notify_all()


@attrs.define(eq=False, slots=False)
class VideoStreamRun(NativeRun):
    """A stream in a pipeline; a `SettingError` where another pipeline reads it."""

    is_awaited = True

    _decoded: DecodedBatches
    _settings: SequenceSettings
    _columns: Sequence[str]
    _handover: BatchHandover
    _is_blocking: bool
    _batch_size: int
    _device_id: int | None

    def __attrs_post_init__(self) -> None:
        """Begin to decode."""
        self._decoded.feed.claim()
        self._labels: collections.deque[tuple[int, str]] = collections.deque(maxlen=32)  # of the last batches
        self._num_begun = 0
        arguments = self._decoded, self._settings, self._batch_size, self._device_id
        self._thread = threading.Thread(target=_decode_all, args=arguments, name="video stream", daemon=True)
        self._thread.start()
        self._end = weakref.finalize(self, _end, self._decoded)
        _running.add(self)

    def is_ready(self) -> bool:
        """See `NativeRun.is_ready`."""
        return self._decoded.is_ready()

    def wait(self) -> None:
        """See `NativeRun.wait`."""
        self._decoded.wait(self._is_blocking)

    def begin_batch(self) -> None:
        """See `NativeRun.begin_batch`."""
        batch = self._decoded.take()
        starts = np.arange(len(batch.lengths)) * self._settings.sequence_length + batch.first_frame
        numbers = {
            "video": np.full(len(batch.lengths), batch.video.number),
            "first_frame": starts,
            "num_frames": np.array(batch.lengths),
        }
        self._handover.frames = batch.frames
        self._handover.places = [numbers[column].astype(np.int32) for column in self._columns]
        last_frame = batch.first_frame + sum(batch.lengths) - 1
        text = f"The batch holds the frames {batch.first_frame} to {last_frame} of the video {batch.video.label}."
        self._labels.append((self._num_begun, text))
        self._num_begun += 1

    def describe_batch(self, batch: int) -> str:
        """See `NativeRun.describe_batch`."""
        return next((text for number, text in self._labels if number == batch), "")

    def close(self) -> None:
        """End the thread, and wait until it has ended."""
        self._end()
        if self._thread is not threading.current_thread():
            self._thread.join(_MOST_SECONDS_TO_END)


def _decode_all(
    decoded: DecodedBatches, settings: SequenceSettings, batch_size: int, device_id: int | None
) -> None:
    try:
        while (video := decoded.next_video()) is not None:
            for batch in decode_in_batches(video, settings, batch_size, device_id, decoded.is_stopped):
                if not decoded.put(batch):
                    return
        decoded.put_end(StopIteration())
    except BaseException as error:
        decoded.put_end(error)


def _end(decoded: DecodedBatches) -> None:
    # Does not wait for the thread: called while garbage is collected, maybe by who holds the lock it waits for.
    decoded.stop()
    decoded.feed.release()
