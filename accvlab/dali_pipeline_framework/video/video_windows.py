# SPDX-License-Identifier: Apache-2.0
"""The frames of the sequences of DALI's video reader, as arithmetic."""

from __future__ import annotations

from typing import Literal, SupportsIndex, TypeAlias, get_args

import attrs
import numpy as np
import numpy.typing as npt

from ..checks import choice, flag, valid, whole_number
from .frame_reader import KeptFrames

Int64Array: TypeAlias = npt.NDArray[np.int64]
VideoTail: TypeAlias = Literal["drop", "repeat", "constant", "reflect_1001", "reflect_101"]


def _length(value: SupportsIndex) -> int:
    return whole_number(value, "sequence_length", at_least=1)


def _stride(value: SupportsIndex) -> int:
    return whole_number(value, "stride", at_least=1)


def _step(value: SupportsIndex | None) -> int | None:
    advice = "It counts forward; for DALI's -1 leave it out, or give None: sequences lie side by side."
    return None if value is None else whole_number(value, "step", at_least=1, advice=advice)


@attrs.frozen
class VideoWindows:
    """Sequences of frames in ranges of videos, in the order of DALI's ``fn.experimental.readers.video``.

    Sequences start every ``step`` frames from the start of each range, and have ``sequence_length`` frames,
    ``stride`` apart. A sequence is complete if ``sequence_length * stride`` frames are there: with the
    ``stride - 1`` frames behind its last one. With ``tail="drop"`` only complete ones count; otherwise the
    first one of a range that is not complete counts too, and what lies behind the range is made up. With
    ``uniform_sample``, each range is one sequence, of frames that are spread over it.

    With ``sequence_length=3, stride=2, step=4``, in a range of eleven frames::

        frame       |  0  1  2  3  4  5  6  7  8  9 10 |
        sequence 0  |  0     2     4                   |
        sequence 1  |              4     6     8       |
        sequence 2  |                          8    10 |  +    not with ``tail="drop"``

    Raises:
        SettingError: A setting is out of its range.
    """

    sequence_length: int = attrs.field(converter=_length)
    stride: int = attrs.field(default=1, converter=_stride)
    _step: int | None = attrs.field(default=None, converter=_step)
    tail: VideoTail = attrs.field(default="drop", validator=valid(choice, allowed=get_args(VideoTail)))
    uniform_sample: bool = attrs.field(default=False, validator=valid(flag))

    @property
    def step(self) -> int:
        """Frames from the start of a sequence to the start of the next."""
        return self.span if self._step is None else self._step

    @property
    def span(self) -> int:
        """Number of frames that must be there for a complete sequence."""
        return self.sequence_length * self.stride

    @property
    def kept_frames(self) -> KeptFrames:
        """What a decoder must keep so that sequences one after the other, or repeated, are decoded once."""
        if self.uniform_sample:
            return KeptFrames()
        span = self.span - self.stride + 1
        if self.step >= span:
            return KeptFrames(self.sequence_length, passed=False, pixels=False)
        is_same_grid = self.step % self.stride == 0
        return KeptFrames(self.sequence_length if is_same_grid else span, passed=not is_same_grid)

    def counts(self, lengths: Int64Array) -> Int64Array:
        """Get the number of sequences in ranges of ``(S,)`` lengths."""
        if self.uniform_sample:
            return np.ones(len(lengths), np.int64)
        counts: Int64Array = np.maximum((lengths - self.span) // self.step + 1, 0)
        if self.tail != "drop":
            counts += counts * self.step < lengths
        return counts

    def frames(self, start: int, end: int, number: int) -> Int64Array:
        """Get the ``(sequence_length,)`` frames of a sequence in [start, end), -1 where there is none."""
        if self.uniform_sample:
            spread = np.linspace(start, end - 1, self.sequence_length)
            return np.floor(spread + 0.5).astype(np.int64)
        first = start + number * self.step
        return _padded(first + np.arange(self.sequence_length, dtype=np.int64) * self.stride, end, self.tail)


def _padded(frames: Int64Array, end: int, tail: VideoTail) -> Int64Array:
    if frames[-1] < end:
        return frames
    if tail == "constant":
        return np.where(frames < end, frames, -1)
    if tail == "repeat":
        return np.minimum(frames, end - 1)
    # Mirrored at the end of the range, and at the first frame of the video, as often as needed.
    if tail == "reflect_1001":
        folded = frames % (2 * end)
        return np.minimum(folded, 2 * end - 1 - folded)
    if end == 1:
        return np.zeros_like(frames)
    folded = frames % (2 * end - 2)
    return np.minimum(folded, 2 * end - 2 - folded)
