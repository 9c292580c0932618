# SPDX-License-Identifier: Apache-2.0
"""What the slots of a batch deliver: a sample each, of a sequence that is delivered over several batches."""

from __future__ import annotations

from typing import Any, NamedTuple

import attrs
import numpy as np
import numpy.typing as npt

from ...draws.keyed_draws import Int64Array
from ...errors import SettingError

BoolArray = npt.NDArray[np.bool_]


@attrs.frozen(eq=False, init=False)
class PlannedBatch:
    """The samples of a global batch (all shards together), one per slot.

    Attributes:
        indices: ``(B,)`` int64, the sample indices in the data set.
        is_padding: ``(B,)`` bool, whether the sample only fills the slot: it repeats another one and is not to be
            counted.
        sequence: ``(B,)`` int64, sequence of the data set that the sample belongs to, -1 where there are none.
        frame: ``(B,)`` int64, number of the sample in its sequence, -1 where there are none.
        is_first: ``(B,)`` bool, whether the slot begins a sequence or a segment of one here, so that nothing may
            be carried over from the slot's previous sample. On padding, always True. Pass True also for a sample
            that follows padding in its slot.
        is_last: ``(B,)`` bool, whether the slot ends the sequence or segment here; True on padding.
        visit: ``(B,)`` int64, distinguishes several deliveries of a sample or sequence in the same epoch.
        is_over: ``(B,)`` bool, whether the slot has nothing more to deliver in this epoch, so that smaller batches
            can leave it out; same as ``is_padding`` unless given.

    Raises:
        SettingError: Indices or numbers are not flat lists of whole numbers, or a field has another number of
            entries than ``indices``.
    """

    indices: Int64Array
    is_padding: BoolArray
    sequence: Int64Array
    frame: Int64Array
    is_first: BoolArray
    is_last: BoolArray
    visit: Int64Array
    is_over: BoolArray

    def __init__(
        self,
        indices: npt.ArrayLike,
        is_padding: npt.ArrayLike = False,
        sequence: npt.ArrayLike = -1,
        frame: npt.ArrayLike = -1,
        is_first: npt.ArrayLike = True,
        is_last: npt.ArrayLike = True,
        visit: npt.ArrayLike = 0,
        is_over: npt.ArrayLike | None = None,
    ) -> None:
        """Plan a batch; a single value is for all slots."""
        given: tuple[Any, ...] = (indices, is_padding, sequence, frame, is_first, is_last, visit, is_over)
        shape: tuple[int, ...] | None = None
        for name, values in zip(_FIELDS, given, strict=True):
            array = np.asarray(self.is_padding if values is None else values)
            dtype = np.bool_ if name.startswith("is_") else np.int64
            if dtype is np.int64 and array.dtype.kind not in "iu" and array.size:
                rule = "The numbers of a PlannedBatch must be whole numbers"
                raise SettingError(f"{rule}, got {array.dtype}: {values!r}.")
            if shape is None:
                shape = array.shape
                if len(shape) != 1:
                    raise SettingError(f"`indices` must be of shape (B,), got shape {shape}.")
            elif array.ndim == 0:
                array = np.full(shape, array, dtype)
            elif array.shape != shape:
                rule = f"`{name}` must have the shape {shape} of `indices`: one entry per slot"
                raise SettingError(f"{rule}. Got shape {array.shape}.")
            object.__setattr__(self, name, array.astype(dtype, copy=False))
        if self.is_padding.any():
            for name in ("is_first", "is_last"):
                object.__setattr__(self, name, getattr(self, name) | self.is_padding)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PlannedBatch):
            return NotImplemented
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in _FIELDS)

    __hash__ = None  # type: ignore[assignment]  # as of arrays


_FIELDS = tuple(field.name for field in attrs.fields(PlannedBatch))


class Segments(NamedTuple):
    """Sequences, or parts of them, to be delivered one after the other; each field ``(n,)`` int64.

    Attributes:
        samples: Sample index of the first frame.
        sequences: Sequence of the data set.
        frames: Number of the first frame in its sequence.
        lengths: Number of frames.
        visits: Distinguishes several deliveries of a sequence in the same epoch.
    """

    samples: Int64Array
    sequences: Int64Array
    frames: Int64Array
    lengths: Int64Array
    visits: Int64Array

    @classmethod
    def of(cls, lengths: Int64Array) -> Segments:
        """Get the sequences of a data set, which lie in it one after the other."""
        starts, nothing = np.cumsum(lengths) - lengths, np.zeros_like(lengths)
        return cls(starts, np.arange(len(lengths)), nothing, lengths, nothing)

    def select(self, chosen: Int64Array) -> Segments:
        """Get the segments at these positions."""
        return Segments(*(column[chosen] for column in self))

    def after(self, counts: Int64Array) -> Segments:
        """Leave out the first ``counts[k]`` frames of each segment ``k``."""
        samples, sequences, frames, lengths, visits = self
        return Segments(samples + counts, sequences, frames + counts, lengths - counts, visits)

    def at(self, numbers: Int64Array, offsets: Int64Array) -> PlannedBatch:
        """Make a batch of frame ``offsets[k]`` of segment ``numbers[k]`` for each slot ``k``."""
        samples, sequences, frames, lengths, visits = self.select(numbers)
        return PlannedBatch(
            samples + offsets,
            sequence=sequences,
            frame=frames + offsets,
            is_first=offsets == 0,
            is_last=offsets == lengths - 1,
            visit=visits,
        )
