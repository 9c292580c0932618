# SPDX-License-Identifier: Apache-2.0
"""Units: tables of the samples of each one, by offset; and batches of their samples."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from ...draws.keyed_draws import Int64Array
from ...errors import SettingError
from ..arithmetic.last_batch import LastBatch

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
        frame: ``(B,)`` int64, number of the sample in its sequence, -1 where there are none.
        is_first: ``(B,)`` bool, whether the slot begins a sequence or a segment of one here, so that
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
    """Samples of units at given offsets as arrays, each field ``(n,)`` int64.

    Attributes:
        indices: Sample indices in the data set.
        sequence: Sequence of the data set that the sample belongs to, -1 where there is none.
        frame: Number of the sample in that sequence, -1 where there is none.
    """

    indices: Int64Array
    sequence: Int64Array
    frame: Int64Array

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
        return PlannedBatch(self.indices, beyond, self.sequence, self.frame, begins, ends, visits)


class UnitTable(ABC):
    """Units, numbered from 0, and the samples of each.

    Attributes:
        num_units: Number of units.
        num_sequences: Number of sequences of the data set, 0 where they are not known.
    """

    num_units: int
    num_sequences: int = 0

    @abstractmethod
    def lengths(self, units: Int64Array) -> Int64Array:
        """Number of samples of each of ``(n,)`` units."""

    @abstractmethod
    def samples(self, units: Int64Array, offsets: Int64Array) -> SampleArrays:
        """Get one sample of each of ``(n,)`` units, at its ``(n,)`` position in the unit, from 0."""


@attrs.define(eq=False, slots=False)
class SampleUnits(UnitTable):
    """Each unit is one sample of the data set."""

    num_units: int

    def lengths(self, units: Int64Array) -> Int64Array:
        """Get ones."""
        return np.ones(len(units), np.int64)

    def samples(self, units: Int64Array, offsets: Int64Array) -> SampleArrays:
        """Get the samples that the units are."""
        unknown = np.full(len(units), -1, np.int64)
        return SampleArrays(units, unknown, unknown)


class SequenceUnits(UnitTable):
    """Each unit is a sequence; its samples are its frames, from the first to the last."""

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

    def samples(self, units: Int64Array, offsets: Int64Array) -> SampleArrays:
        """Get frames of the sequences."""
        return SampleArrays(self._first_frames[units] + offsets, units, offsets)


class JoinedUnits(UnitTable):
    """The units of several tables, numbered one after the other."""

    def __init__(self, tables: Sequence[UnitTable], sample_offsets: Sequence[int] | None) -> None:
        """Join tables of several data sets, whose sample indices are shifted by these offsets, or of one (None).

        The sequences of several data sets are numbered one after the other.
        """
        self._tables = list(tables)
        self._sample_offsets = [0] * len(tables) if sample_offsets is None else list(sample_offsets)
        num_sequences = [each.num_sequences for each in tables]
        if sample_offsets is None:  # all have the sequences of one data set
            self.num_sequences = max(num_sequences)
            self._first_sequences = [0] * len(tables)
        else:
            self.num_sequences = sum(num_sequences)
            self._first_sequences = [sum(num_sequences[:number]) for number in range(len(tables))]
        self.first_units = np.cumsum([0, *(each.num_units for each in tables)])
        self.num_units = int(self.first_units[-1])
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

    def samples(self, units: Int64Array, offsets: Int64Array) -> SampleArrays:
        """Get samples of the units, as their own tables have them."""
        if self._shifts is not None:
            owners = np.searchsorted(self.first_units, units, side="right") - 1
            return SampleUnits(self.num_units).samples(units + self._shifts[owners], offsets)
        joined = SampleArrays(*np.empty((3, len(units)), np.int64))
        for owner, slots, own in self._split(units):
            samples = self._tables[owner].samples(own, offsets[slots])
            joined.indices[slots] = samples.indices + self._sample_offsets[owner]
            is_known = samples.sequence >= 0
            joined.sequence[slots] = np.where(is_known, samples.sequence + self._first_sequences[owner], -1)
            joined.frame[slots] = samples.frame
        return joined
