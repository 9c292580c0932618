# SPDX-License-Identifier: Apache-2.0
"""The frames of the sequences of DALI's video reader, as arithmetic."""

from __future__ import annotations

from typing import Any, Literal, SupportsIndex, TypeAlias

import numpy as np
import numpy.typing as npt

from ...checks import whole_number
from ...errors import SettingError
from .frame_reader import KeptFrames

Int64Array: TypeAlias = npt.NDArray[np.int64]
PadMode: TypeAlias = Literal[
    "none", "constant", "edge", "repeat", "reflect_1001", "symmetric", "reflect_101", "reflect"
]

_SAME_MODE = {"repeat": "edge", "symmetric": "reflect_1001", "reflect": "reflect_101"}
_PAD_MODES = ("none", "constant", "edge", "reflect_1001", "reflect_101")


class VideoWindows:
    """Sequences of frames in ranges of videos, in the order of DALI's ``fn.experimental.readers.video``.

    Sequences start every ``step`` frames from the start of each range, and have ``sequence_length`` frames,
    ``stride`` apart. A sequence is complete if ``sequence_length * stride`` frames are there: with the
    ``stride - 1`` frames behind its last one. With ``pad_mode="none"`` only complete ones count; otherwise the
    first one of a range that is not complete counts too, and what lies behind the range is made up. With
    ``uniform``, each range is one sequence, of frames that are spread over it.

    With ``sequence_length=3, stride=2, step=4``, in a range of eleven frames::

        frame       |  0  1  2  3  4  5  6  7  8  9 10 |
        sequence 0  |  0     2     4                   |
        sequence 1  |              4     6     8       |
        sequence 2  |                          8    10 |  +    only with a `pad_mode`
    """

    def __init__(
        self,
        starts: npt.ArrayLike,
        ends: npt.ArrayLike,
        sequence_length: SupportsIndex,
        *,
        stride: SupportsIndex = 1,
        step: SupportsIndex | None = None,
        pad_mode: PadMode = "none",
        uniform: bool = False,
    ) -> None:
        """Count the sequences.

        Args:
            starts: First frame of each range, ``(S,)``.
            ends: The frame behind the last one of each range, ``(S,)``.
            sequence_length: Frames per sequence.
            stride: Frames from one frame of a sequence to the next.
            step: Frames from the start of a sequence to the start of the next; None for
                ``sequence_length * stride``.
            pad_mode: What stands behind the end of a range.
            uniform: Whether frames are spread over the range. The other settings do not count then.

        Raises:
            SettingError: A setting is out of its range.
        """
        self._starts = np.asarray(starts, np.int64)
        self._ends = np.asarray(ends, np.int64)
        self.sequence_length = whole_number(sequence_length, "sequence_length", at_least=1)
        self.stride = whole_number(stride, "stride", at_least=1)
        self.step = self.sequence_length * self.stride
        if step is not None:
            self.step = whole_number(
                step,
                "step",
                at_least=1,
                advice="It counts forward; for DALI's -1 leave it out, or give None: sequences lie side by side.",
            )
        self.pad_mode = checked_pad_mode(pad_mode)
        self.is_uniform = bool(uniform)
        self.counts = self._count()
        self._first = np.concatenate(([0], np.cumsum(self.counts)))

    def _count(self) -> Int64Array:
        lengths = self._ends - self._starts
        if self.is_uniform:
            return np.ones(len(lengths), np.int64)
        counts: Int64Array = np.maximum((lengths - self.span) // self.step + 1, 0)
        if self.pad_mode != "none":
            counts += counts * self.step < lengths
        return counts

    @property
    def span(self) -> int:
        """Number of frames that must be there for a complete sequence."""
        return self.sequence_length * self.stride

    @property
    def kept_frames(self) -> KeptFrames:
        """What a decoder must keep so that sequences one after the other, or repeated, are decoded once."""
        if self.is_uniform:
            return KeptFrames()
        span = self.span - self.stride + 1
        if self.step >= span:
            return KeptFrames(self.sequence_length, passed=False, pixels=False)
        is_same_grid = self.step % self.stride == 0
        return KeptFrames(self.sequence_length if is_same_grid else span, passed=not is_same_grid)

    @property
    def num_windows(self) -> int:
        """Number of sequences of all ranges."""
        return int(self._first[-1])

    def locate(self, window: int) -> tuple[int, Int64Array]:
        """Get the range of a sequence, and its ``(sequence_length,)`` frames, -1 where there is none."""
        place = int(self._first.searchsorted(window, side="right")) - 1
        start, end = int(self._starts[place]), int(self._ends[place])
        if self.is_uniform:
            spread = np.linspace(start, end - 1, self.sequence_length)
            return place, np.floor(spread + 0.5).astype(np.int64)
        first = start + (window - int(self._first[place])) * self.step
        frames = first + np.arange(self.sequence_length, dtype=np.int64) * self.stride
        return place, _padded(frames, end, self.pad_mode)


def _padded(frames: Int64Array, end: int, mode: str) -> Int64Array:
    if frames[-1] < end:
        return frames
    if mode == "constant":
        return np.where(frames < end, frames, -1)
    if mode == "edge":
        return np.minimum(frames, end - 1)
    # Mirrored at the end of the range, and at the first frame of the video, as often as needed.
    if mode == "reflect_1001":
        folded = frames % (2 * end)
        return np.minimum(folded, 2 * end - 1 - folded)
    if end == 1:
        return np.zeros_like(frames)
    folded = frames % (2 * end - 2)
    return np.minimum(folded, 2 * end - 2 - folded)


def checked_pad_mode(mode: Any) -> str:
    """Return the padding by its first name, or raise a `SettingError` where there is no such one."""
    if isinstance(mode, str):
        first_name: str = _SAME_MODE.get(mode, mode)
        if first_name in _PAD_MODES:
            return first_name
    known = ", ".join(map(repr, (*_PAD_MODES, *_SAME_MODE)))
    raise SettingError(f"`pad_mode` must be one of {known}, got {mode!r}.")
