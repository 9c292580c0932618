# SPDX-License-Identifier: Apache-2.0
"""The queue of encoded videos of a `VideoStreamInput`."""

from __future__ import annotations

import collections
import errno
import os
import threading
from collections.abc import Callable
from typing import TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from ...errors import ClosedError, FieldValueError, FileError, SettingError, VideoError, error_that_is_also
from ..files.video_file import is_file_or_missing, path_advice

UInt8Array: TypeAlias = npt.NDArray[np.uint8]
EncodedVideo: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview | UInt8Array"


@attrs.frozen(eq=False)
class FedVideo:
    """An encoded video.

    Attributes:
        number: How many were fed before it.
        source: Path of a file, or its bytes.
        label: What messages call it, e.g. ``"'monday.mp4' (video 3)"``.
    """

    number: int
    source: str | bytes
    label: str

    def encoded(self) -> UInt8Array:
        """Get the encoded bytes, ``(N,)`` uint8; a file is read.

        Raises:
            FileError: The file cannot be read.
        """
        if isinstance(self.source, bytes):
            return np.frombuffer(self.source, np.uint8)
        try:
            return np.fromfile(self.source, np.uint8)
        except OSError as error:
            raise _file_error(error, self.label) from error


class VideoFeed:
    """Videos that wait to be decoded, in the order in which they were fed; any thread may feed.

    Attributes:
        changed: Guards the queue, and what the reader of the queue keeps with it; notified of any change.
        num_fed: Number of videos that were fed.
        is_closed: Whether no more videos follow those in the queue.
    """

    def __init__(self) -> None:
        """Start with nothing fed."""
        self.changed = threading.Condition()
        self.num_fed = 0
        self.is_closed = False
        self._waiting: collections.deque[FedVideo] = collections.deque()
        self._is_claimed = False

    def put(self, video: EncodedVideo, name: str | None, check: Callable[[FedVideo], None]) -> int:
        """Add a video at the end of the queue, unless the check raises. See `VideoStreamInput.feed`."""
        source = _checked(video)
        called = f"<{len(source)} bytes>" if isinstance(source, bytes) else source
        called = repr(called if name is None else name)
        self._require_open()
        check(FedVideo(-1, source, called))
        with self.changed:
            self._require_open()
            number = self.num_fed
            self._waiting.append(FedVideo(number, source, f"{called} (video {number})"))
            self.num_fed += 1
            self.changed.notify_all()
        return number

    def _require_open(self) -> None:
        if self.is_closed:
            raise ClosedError("The stream was closed, so no more videos can be fed. Create a new stream.")

    def close(self) -> None:
        """Close the queue for new videos."""
        with self.changed:
            self.is_closed = True
            self.changed.notify_all()

    def take(self) -> FedVideo | None:
        """Take the next video from the queue, or None where none waits; `changed` must be held."""
        return self._waiting.popleft() if self._waiting else None

    @property
    def num_waiting(self) -> int:
        """Number of videos in the queue."""
        return len(self._waiting)

    def claim(self) -> None:
        """Mark the videos as read by somebody.

        Raises:
            SettingError: Somebody else reads them.
        """
        with self.changed:
            if self._is_claimed:
                raise SettingError(
                    "A stream of videos can be read by one pipeline at a time. Close the other loader first, or "
                    "create a stream for each."
                )
            self._is_claimed = True

    def release(self) -> None:
        """Mark the videos as read by nobody any more."""
        with self.changed:
            self._is_claimed = False


def _checked(video: EncodedVideo) -> str | bytes:
    if isinstance(video, (str, os.PathLike)):
        return _checked_path(video)
    if isinstance(video, np.ndarray) and (video.dtype != np.uint8 or video.ndim != 1):
        raise FieldValueError(
            f"An array with an encoded video must be of type uint8 and have one dimension, got {video.dtype} with "
            f"the shape {video.shape}."
        )
    if not isinstance(video, (bytes, bytearray, memoryview, np.ndarray)):
        raise FieldValueError(
            f"A video must be fed as the path of its file, as bytes, or as an array of uint8 with the encoded "
            f"bytes, got {type(video).__name__}."
        )
    encoded = bytes(video)  # a copy, unless it is of that type: the caller may go on to use the buffer
    if not encoded:
        raise VideoError("An encoded video must have at least one byte, got none.")
    return encoded


def _checked_path(path: str | os.PathLike[str]) -> str:
    text = os.fspath(path)
    if not isinstance(text, str):
        raise FieldValueError(f"The path of a video must be text, got {path!r}.")
    try:
        if not is_file_or_missing(text):
            raise OSError(errno.EINVAL, "it is no regular file")
        with open(text, "rb") as file:
            is_empty = not file.read(1)
    except OSError as error:
        advice = path_advice(text) + (" Its encoded bytes can be fed, too." if "://" in text else "")
        raise _file_error(error, repr(text), advice) from error
    except ValueError as error:  # a zero within
        raise FileError(f"Cannot read the video {text!r}: {error}.") from error
    if is_empty:
        raise VideoError(f"The video {text!r} is empty.")
    return os.path.abspath(text)


def _file_error(error: OSError, label: str, advice: str = "") -> Exception:
    message = f"Cannot read the video {label}: {error.strerror}.{advice}"
    return error_that_is_also(FileError, [type(error)], message)
