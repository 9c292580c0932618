# SPDX-License-Identifier: Apache-2.0
"""Units: tables of the samples of each one, by offset; and batches of their samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from ...draws.keyed_draws import Int64Array, random_bits
from ...errors import SettingError
from ..arithmetic.last_batch import LastBatch
from .clips import Clips

BoolArray = npt.NDArray[np.bool_]


_FEW = 64  # of so few numbers Python's set is faster than the fixed cost of NumPy's `unique`


def distinct(numbers: Int64Array) -> list[int]:
    """Get the distinct numbers of an array ``(n,)``, in ascending order."""
    return sorted(set(numbers.tolist())) if len(numbers) <= _FEW else np.unique(numbers).tolist()


_INT64 = np.dtype(np.int64)
_BOOL = np.dtype(np.bool_)


@attrs.frozen(eq=False, init=False)
class PlannedBatch:
    """The samples of a global batch (all shards together), one per slot.

    Attributes:
        indices: ``(B,)`` int64, the sample indices in the data set.
        is_padding: ``(B,)`` bool, whether the sample only fills the slot: it repeats one and is not to be counted.
        sequence: ``(B,)`` int64, sequence of the data set that the sample belongs to, -1 where there are none.
        frame: ``(B,)`` int64, number of the sample in its sequence, -1 where there are none. For a clip that is
            one sample, that of the frame at which the clip starts.
        clip: ``(B,)`` int64, number of the clip that the slot plays, -1 where there are none.
        is_first: ``(B,)`` bool, whether the slot begins a sequence, clip, or segment of a sequence here, so that
            nothing may be carried over from the slot's previous sample. Padding belongs to nothing: True there,
            whatever is given, and to be given as True for the sample that follows in the slot.
        is_last: ``(B,)`` bool, whether the slot ends it here; True on padding.
        visit: ``(B,)`` int64, distinguishes several deliveries of a sample or sequence in the same epoch.
        is_over: ``(B,)`` bool, whether the slot has nothing more to deliver in this epoch, so that smaller batches
            can leave it out; same as ``is_padding`` unless given.

    Raises:
        SettingError: A field is not a flat list of its type, or has another number of entries than ``indices``.
    """

    indices: Int64Array
    is_padding: BoolArray
    sequence: Int64Array
    frame: Int64Array
    clip: Int64Array
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
        clip: npt.ArrayLike = -1,
        is_first: npt.ArrayLike = True,
        is_last: npt.ArrayLike = True,
        visit: npt.ArrayLike = 0,
        is_over: npt.ArrayLike | None = None,
    ) -> None:
        """Plan a batch; a single value is for all slots."""
        given: tuple[Any, ...] = (indices, is_padding, sequence, frame, clip, is_first, is_last, visit, is_over)
        shape: tuple[int, ...] | None = None
        for name, values, dtype in zip(_FIELDS, given, _DTYPES, strict=True):  # a loop, since it must be fast
            if type(values) is not np.ndarray or values.dtype is not dtype:
                if values is None:
                    values = self.is_padding
                elif shape is not None and isinstance(values, bool | int):
                    values = np.full(shape, values, dtype)
                else:
                    values = _as_array(values, dtype)
            if shape is None:
                shape = values.shape
            if values.shape != shape or len(shape) != 1:
                _refuse_shape(name, values.shape, shape)
            object.__setattr__(self, name, values)
        if self.is_padding.any():
            for name in ("is_first", "is_last"):
                object.__setattr__(self, name, getattr(self, name) | self.is_padding)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PlannedBatch):
            return NotImplemented
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in _FIELDS)

    __hash__ = None  # type: ignore[assignment]  # as of arrays


_FIELDS = tuple(field.name for field in attrs.fields(PlannedBatch))
_DTYPES = tuple(_BOOL if name.startswith("is_") else _INT64 for name in _FIELDS)


def _as_array(values: npt.ArrayLike, dtype: np.dtype[np.int64 | np.bool_]) -> npt.NDArray[np.int64 | np.bool_]:
    array = np.asarray(values)
    if dtype is _INT64 and array.dtype.kind not in "iu" and array.size:
        raise SettingError(f"The numbers of a PlannedBatch must be whole numbers, got {array.dtype}: {values!r}.")
    return array.astype(dtype, copy=False)


def _refuse_shape(name: str, got: tuple[int, ...], shape: tuple[int, ...]) -> None:
    if name == "indices":
        raise SettingError(f"`indices` must be of shape (B,), got shape {shape}.")
    raise SettingError(f"`{name}` must have the shape {shape} of `indices`: one entry per slot. Got shape {got}.")


@attrs.frozen(eq=False)
class SampleArrays:
    """Samples of units at given offsets as arrays, each field ``(n,)``.

    Attributes:
        indices: int64, sample indices in the data set.
        sequence: int64, sequence of the data set that the sample belongs to, -1 where there is none.
        frame: int64, number of the sample in that sequence, -1 where there is none. For a clip that is one sample,
            that of the frame at which the clip starts.
        clip: int64, number of the clip, -1 where there are none.
        is_padding: bool, whether the sample repeats another one to fill up a clip.
        is_first: bool, whether a clip within the unit begins with the sample.
        is_last: bool, whether one ends with it.
    """

    indices: Int64Array
    sequence: Int64Array
    frame: Int64Array
    clip: Int64Array
    is_padding: BoolArray
    is_first: BoolArray
    is_last: BoolArray

    def to_batch(
        self,
        begins: bool | BoolArray,
        ends: bool | BoolArray,
        visits: Int64Array,
        beyond: BoolArray,
        last_batch: LastBatch,
    ) -> PlannedBatch:
        """Make a batch of the samples, one per slot.

        Args:
            begins: Whether the slot begins a unit or segment here.
            ends: Whether it ends one.
            visits: Visits of the units.
            beyond: Whether the slot has delivered all its samples, and only fills the batch.
            last_batch: Policy for such slots.
        """
        if last_batch == "wrap":
            visits, beyond = np.where(beyond, -1 - visits, visits), np.zeros_like(beyond)
        is_padding, is_first, is_last = self.is_padding | beyond, begins | self.is_first, ends | self.is_last
        place = self.sequence, self.frame, self.clip
        return PlannedBatch(self.indices, is_padding, *place, is_first, is_last, visits, beyond)


_SAMPLE_FIELDS = [field.name for field in attrs.fields(SampleArrays)]


class UnitTable(ABC):
    """Units, numbered from 0, and the samples of each.

    Attributes:
        num_units: Number of units.
        uniform_length: Number of samples of each unit, or None where it differs.
        grain: Number of samples at whose multiples a unit may be cut into segments.
        num_sequences: Number of sequences of the data set, 0 where they are not known.
        num_clips: Number of clips, 0 where there are none.
        num_frames_per_sample: Number of frames of each sample where it is a clip, else None.
    """

    num_units: int
    uniform_length: int | None
    grain: int = 1
    num_sequences: int = 0
    num_clips: int = 0
    num_frames_per_sample: int | None = None

    @abstractmethod
    def lengths(self, units: Int64Array) -> Int64Array:
        """Number of samples of each of ``(n,)`` units."""

    @abstractmethod
    def samples(self, units: Int64Array, offsets: Int64Array, visits: Int64Array, epoch_key: int) -> SampleArrays:
        """Get one sample of each of ``(n,)`` units.

        Args:
            units: The units.
            offsets: ``(n,)``, position of the sample in its unit, from 0.
            visits: ``(n,)``, at least 0: distinguishes deliveries of a unit in an epoch, with a jitter each.
            epoch_key: Key of random values within a unit, which differ between epochs.
        """


@attrs.define(eq=False, slots=False)
class SampleUnits(UnitTable):
    """Each unit is one sample of the data set."""

    num_units: int
    uniform_length = 1

    def lengths(self, units: Int64Array) -> Int64Array:
        """Get ones."""
        return np.ones(len(units), np.int64)

    def samples(self, units: Int64Array, offsets: Int64Array, visits: Int64Array, epoch_key: int) -> SampleArrays:
        """Get the samples that the units are."""
        return _without_clips(units)


def _without_clips(indices: Int64Array, *place: Int64Array) -> SampleArrays:
    """Make samples of units in which no clip begins or ends, with sequence, frame and clip as far as known."""
    unknown, none = np.full(len(indices), -1, np.int64), np.zeros(len(indices), np.bool_)
    sequence, frame, clip = (*place, unknown, unknown, unknown)[:3]
    return SampleArrays(indices, sequence, frame, clip, none, none, none)


class SequenceUnits(UnitTable):
    """Each unit is a sequence; its samples are its frames, from the first to the last."""

    uniform_length = None

    def __init__(self, sequence_lengths: Int64Array) -> None:
        """Number the sequences, whose frames lie one after the other in the data set."""
        self._lengths = sequence_lengths
        self._first_frames = np.cumsum(sequence_lengths) - sequence_lengths
        self.num_units = self.num_sequences = len(sequence_lengths)

    def __reduce__(self) -> tuple[object, ...]:
        return SequenceUnits, (self._lengths,)

    def lengths(self, units: Int64Array) -> Int64Array:
        """Number of frames."""
        return self._lengths[units]

    def samples(self, units: Int64Array, offsets: Int64Array, visits: Int64Array, epoch_key: int) -> SampleArrays:
        """Get frames of the sequences."""
        return _without_clips(self._first_frames[units] + offsets, units, offsets)


class _UnitsOfClips(UnitTable):
    """Units of clips. With ``as_one`` a clip is one sample: its first frame, for the whole."""

    def __init__(self, clips: Clips, as_one: bool) -> None:
        self._clips = clips
        self._as_one = as_one
        self._per_clip = 1 if as_one else clips.sequence_length
        self.num_frames_per_sample = clips.sequence_length if as_one else None
        self.num_sequences = clips.num_sequences
        self.num_clips = clips.num_clips

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._clips, self._as_one)

    def _samples(
        self, numbers: Int64Array, offsets: Int64Array, visits: Int64Array, epoch_key: int
    ) -> SampleArrays:
        clips = self._clips
        # Each visit of a clip has its own jitter. Visit 0, in orders without repetition, has the epoch's key.
        jitter_keys = None
        if clips.jitter:
            jitter_keys = np.where(visits == 0, np.uint64(epoch_key), random_bits(epoch_key, visits))
        if self._as_one:
            first_frames = clips.first_frames(numbers, jitter_keys)
            return _without_clips(first_frames, *clips.locate_frames(first_frames), numbers)
        played = clips.play(numbers, jitter_keys)
        rows = np.arange(len(numbers))
        indices = played.frames[rows, offsets]
        is_padding = played.is_padding[rows, offsets]
        # The last one is that before the padding, which is at the end.
        last = clips.sequence_length - 1
        is_last = (offsets == last) | played.is_padding[rows, np.minimum(offsets + 1, last)]
        frames = indices - played.sequence_starts
        return SampleArrays(indices, played.sequences, frames, numbers, is_padding, offsets == 0, is_last)


class ClipUnits(_UnitsOfClips):
    """Each unit is a clip; its samples are its frames."""

    def __init__(self, clips: Clips, as_one: bool) -> None:
        """Number the clips as they are."""
        super().__init__(clips, as_one)
        self.num_units = clips.num_clips
        self.uniform_length = self._per_clip

    def lengths(self, units: Int64Array) -> Int64Array:
        """Number of frames, or 1."""
        return np.full(len(units), self._per_clip, np.int64)

    def samples(self, units: Int64Array, offsets: Int64Array, visits: Int64Array, epoch_key: int) -> SampleArrays:
        """Get frames of the clips."""
        return self._samples(units, offsets, visits, epoch_key)


class ClipSequenceUnits(_UnitsOfClips):
    """Each unit is a sequence that has clips; its samples are the clips' samples, one clip after the other."""

    uniform_length = None

    def __init__(self, clips: Clips, as_one: bool) -> None:
        """Number the sequences."""
        super().__init__(clips, as_one)
        self.grain = self._per_clip
        self._counts = clips.clips_per_sequence
        self._first_clips = np.cumsum(self._counts) - self._counts
        self._sequences = np.flatnonzero(self._counts)  # the others have no clip
        self.num_units = len(self._sequences)

    def lengths(self, units: Int64Array) -> Int64Array:
        """Number of samples of all clips of the sequence."""
        return self._counts[self._sequences[units]] * self._per_clip

    def samples(self, units: Int64Array, offsets: Int64Array, visits: Int64Array, epoch_key: int) -> SampleArrays:
        """Get samples of the clips."""
        number, offset = np.divmod(offsets, self._per_clip)
        return self._samples(self._first_clips[self._sequences[units]] + number, offset, visits, epoch_key)


class JoinedUnits(UnitTable):
    """The units of several tables, numbered one after the other."""

    def __init__(self, tables: Sequence[UnitTable], sample_offsets: Sequence[int] | None) -> None:
        """Join tables of several data sets, whose sample indices are shifted by these offsets, or of one (None).

        The sequences and the clips of several data sets are numbered one after the other.
        """
        self._tables = list(tables)
        self._sample_offsets = [0] * len(tables) if sample_offsets is None else list(sample_offsets)
        num_sequences = [each.num_sequences for each in tables]
        num_clips = [each.num_clips for each in tables]
        if sample_offsets is None:  # all have the sequences of one data set, each with its own clips from 0 on
            self.num_sequences, self.num_clips = max(num_sequences), max(num_clips)
            self._first_sequences = self._first_clips = [0] * len(tables)
        else:
            self.num_sequences, self.num_clips = sum(num_sequences), sum(num_clips)
            self._first_sequences = [sum(num_sequences[:number]) for number in range(len(tables))]
            self._first_clips = [sum(num_clips[:number]) for number in range(len(tables))]
        self.first_units = np.cumsum([0, *(each.num_units for each in tables)])
        self.num_units = int(self.first_units[-1])
        lengths = {each.uniform_length for each in tables}
        self.uniform_length = lengths.pop() if len(lengths) == 1 else None
        self.grain = tables[0].grain
        self.num_frames_per_sample = tables[0].num_frames_per_sample
        # Where all units are samples, only their numbers are shifted.
        self._shifts: Int64Array | None = None
        if all(isinstance(each, SampleUnits) for each in tables):
            self._shifts = np.array(self._sample_offsets, np.int64) - self.first_units[:-1]

    def _split(self, units: Int64Array) -> list[tuple[int, Int64Array, Int64Array]]:
        owners = np.searchsorted(self.first_units, units, side="right") - 1
        parts = []
        for owner in distinct(owners):
            slots = np.flatnonzero(owners == owner)
            parts.append((owner, slots, units[slots] - self.first_units[owner]))
        return parts

    def lengths(self, units: Int64Array) -> Int64Array:
        """Number of samples of each unit."""
        lengths = np.empty(len(units), np.int64)
        for owner, slots, own in self._split(units):
            lengths[slots] = self._tables[owner].lengths(own)
        return lengths

    def samples(self, units: Int64Array, offsets: Int64Array, visits: Int64Array, epoch_key: int) -> SampleArrays:
        """Get samples of the units, as their own tables have them."""
        if self._shifts is not None:
            owners = np.searchsorted(self.first_units, units, side="right") - 1
            return _without_clips(units + self._shifts[owners])
        joined = SampleArrays(*np.empty((4, len(units)), np.int64), *np.empty((3, len(units)), np.bool_))
        for owner, slots, own in self._split(units):
            samples = self._tables[owner].samples(own, offsets[slots], visits[slots], epoch_key)
            for name in _SAMPLE_FIELDS:
                getattr(joined, name)[slots] = getattr(samples, name)
            joined.indices[slots] += self._sample_offsets[owner]
            joined.sequence[slots] = _shifted(samples.sequence, self._first_sequences[owner])
            joined.clip[slots] = _shifted(samples.clip, self._first_clips[owner])
        return joined


def _shifted(numbers: Int64Array, by: int) -> Int64Array:
    return np.where(numbers < 0, -1, numbers + by)
