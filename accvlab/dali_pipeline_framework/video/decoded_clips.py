# SPDX-License-Identifier: Apache-2.0
"""Pixels of small video files in memory, such as those that `encoded_clips` cuts out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from ..draws.keyed_draws import Int64Array
from ..errors import FieldValueError, VideoError
from ..providers.frame_counts import count_frames
from .encoded_clips import EncodedClip
from .frame_converter import Colors
from .frame_reader import FrameReader
from .video_decoding import UInt8Array, VideoStreamDecoder
from .video_index import make_index

_NAME = "the encoded video"


class FileOfClip(np.ndarray[Any, np.dtype[np.uint8]]):
    """The file of an `EncodedClip`, in the process that has cut it: an array that knows another way to its pixels.

    Views of it, also as plain arrays, refer to it by their ``base``.

    Attributes:
        numbers: ``(F,)`` numbers of the frames of the clip in the file.
        colors: How colors are converted on that way. ``"bt601"`` is what ``"stream"`` means for the file.
        decoded: Gets the frames of the clip, ``(F, H, W, 3)``, from the decoders that this process keeps open;
            None where the file is decoded.
    """

    numbers: npt.NDArray[np.int32]
    colors: Colors
    decoded: Callable[[], UInt8Array] | None = None

    @classmethod
    def of(cls, clip: EncodedClip, colors: Colors, decoded: Callable[[], UInt8Array] | None) -> FileOfClip:
        """Show the bytes of a clip as such an array."""
        known = cls((len(clip.file),), np.uint8, clip.file)
        known.numbers, known.colors, known.decoded = clip.numbers, colors, decoded
        return known


def decoded_clip(file: UInt8Array, numbers: npt.ArrayLike, colors: Colors = "stream") -> UInt8Array:
    """Decode frames of a video file in memory.

    Args:
        file: ``(num_bytes,)`` uint8. Its frames are numbered in the order of presentation.
        numbers: ``(F,)`` numbers of frames, in any order, repeated or not.
        colors: How colors are converted, see `FrameConverter`.

    Returns:
        ``(F, H, W, 3)`` uint8, RGB.

    Raises:
        FieldValueError: There are no such frames.
        VideoError: It is no video, does not begin with a key frame, or a frame cannot be decoded.
    """
    wanted = np.asarray(numbers, np.int64).reshape(-1)
    short_way = _short_way(file, wanted, colors)
    if short_way is not None:
        return short_way()
    content = file.tobytes()
    index = make_index(content, name=_NAME)
    if index.num_left_out:
        raise VideoError(f"{_NAME} does not begin with a key frame on which all others rest. Cut it from one on.")
    if not len(wanted) or wanted.min() < 0 or wanted.max() >= index.num_frames:
        known = f"frames of {_NAME} are numbered 0 to {index.num_frames - 1}"
        raise FieldValueError(f"{known}, got {wanted.tolist()}")
    with contextlib.closing(FrameReader(content, index, colors=colors, name=_NAME)) as reader:
        frames = reader.frames(wanted)
        count_frames(reader.num_delivered, reader.num_decoded)
        return frames


def size_of_clip(file: UInt8Array) -> tuple[int, int]:
    """Get height and width of a video file in memory, from its header; for errors see `decoded_clip`."""
    with VideoStreamDecoder(file.tobytes(), name=_NAME) as decoder:
        return decoder.height, decoder.width


def _short_way(file: Any, wanted: Int64Array, colors: Colors) -> Callable[[], UInt8Array] | None:
    while file is not None:  # a view refers to what it shows
        if isinstance(file, FileOfClip) and file.decoded is not None:
            is_same = file.colors == colors or (file.colors == "bt601" and colors == "stream")
            return file.decoded if is_same and np.array_equal(wanted, file.numbers) else None
        file = getattr(file, "base", None)
    return None
