# SPDX-License-Identifier: Apache-2.0
"""Plans of an epoch: which samples each batch has, as arithmetic."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from ...draws.keyed_draws import derive_key
from ...errors import SettingError
from ..arithmetic.keyed_permutation import KeyedPermutation
from ..arithmetic.last_batch import LastBatch, SampleCounts
from .stream_plan import Segments, StreamPlan
from .tracks import UnitTable

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


_FEW = 64  # of so few numbers Python's set is faster than the fixed cost of NumPy's `unique`


def distinct(numbers: Int64Array) -> list[int]:
    """The different numbers of an array ``(n,)``, in ascending order."""
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
        visit: ``(B,)`` int64, tells apart several deliveries of a sample or sequence in the same epoch.
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
        indices: Any,
        is_padding: Any = False,
        sequence: Any = -1,
        frame: Any = -1,
        clip: Any = -1,
        is_first: Any = True,
        is_last: Any = True,
        visit: Any = 0,
        is_over: Any = None,
    ) -> None:
        """Plan a batch; a single value stands for all slots."""
        given = (indices, is_padding, sequence, frame, clip, is_first, is_last, visit, is_over)
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


def _as_array(values: Any, dtype: np.dtype[Any]) -> Any:
    array = np.asarray(values)
    if dtype is _INT64 and array.dtype.kind not in "iu" and array.size:
        raise SettingError(f"The numbers of a PlannedBatch must be whole numbers, got {array.dtype}: {values!r}.")
    return array.astype(dtype, copy=False)


def _refuse_shape(name: str, got: tuple[int, ...], shape: tuple[int, ...]) -> None:
    if name == "indices":
        raise SettingError(f"`indices` must be of shape (B,), got shape {shape}.")
    raise SettingError(
        f"`{name}` must have one entry per slot, as `indices` has: of shape {shape}, got shape {got}."
    )


class EpochPlan(ABC):
    """The batches of one epoch (or of the rest of one), by random access; ``num_batches`` of them."""

    num_batches: int

    @property
    def num_begun_batches(self) -> int:
        """Number of batches that can be asked for: also one that is dropped, where the plan has that."""
        return self.num_batches

    @abstractmethod
    def batch(self, number: int) -> PlannedBatch:
        """Get a batch, ``0 <= number < num_begun_batches``."""

    @abstractmethod
    def rest(self, num_delivered: int, total_batch_size: int, num_shards: int, last_batch: LastBatch) -> EpochPlan:
        """Plan what is left after the first ``num_delivered`` batches, for another batch size or number of shards.

        No sample is lost or repeated: this plan up to there and the new one deliver what this plan alone would
        have delivered, up to what ``last_batch`` drops, repeats or pads at the end.
        """

    @property
    @abstractmethod
    def sample_counts(self) -> SampleCounts:
        """Number of samples delivered, dropped, repeated and padded."""


@attrs.frozen(eq=False)
class EpochOrder:
    """The units of one epoch in order.

    Attributes:
        num_positions: How many positions the epoch has.
        units: Gets ``(n,)`` units and ``(n,)`` visits at ``(n,)`` positions. The visit is 0 in orders in which no
            unit can stand twice, else the position plus 1.
        permutation: The order, where it is a permutation of all units that is not listed, else None.
    """

    num_positions: int
    units: Callable[[Int64Array], tuple[Int64Array, Int64Array]]
    permutation: KeyedPermutation | None = None


class Order(ABC):
    """The orders of all epochs.

    Attributes:
        num_positions: Positions per epoch.
    """

    num_positions: int

    @abstractmethod
    def of_epoch(self, epoch: int) -> EpochOrder:
        """The order of an epoch."""


@attrs.frozen
class ShuffledOrder(Order):
    """Each unit once per epoch: in another random order in each epoch, or in the order of their numbers."""

    num_positions: int
    seed: int
    shuffle: bool

    def of_epoch(self, epoch: int) -> EpochOrder:
        """The order of an epoch."""
        if not self.shuffle:
            return EpochOrder(self.num_positions, lambda positions: (positions, np.zeros_like(positions)))
        permutation = KeyedPermutation(self.num_positions, derive_key("shuffled order", self.seed, epoch))
        return EpochOrder(
            self.num_positions,
            lambda positions: (permutation[positions], np.zeros_like(positions)),
            permutation if permutation.is_network else None,
        )


class FlatPlan(EpochPlan):
    """Each group of ``B`` units fills the ``B`` slots for as many batches as a unit has samples.

    Units of two samples in three slots (``A0`` is the first sample of the first unit of the order)::

        slot 0 | A0 A1 | D0 D1 | G0 G1
        slot 1 | B0 B1 | E0 E1 |  -  -    the last group is dropped, padded, smaller, or wrapped
        slot 2 | C0 C1 | F0 F1 |  -  -
    """

    def __init__(
        self,
        order: EpochOrder,
        unit_table: UnitTable,
        epoch_key: int,
        total_batch_size: int,
        last_batch: LastBatch,
        first_position: int = 0,
    ) -> None:
        """Plan the epoch from position ``first_position`` of the order on."""
        self._order = order
        self._unit_table = unit_table
        self._epoch_key = epoch_key
        self._num_slots = total_batch_size
        self._last_batch = last_batch
        self._first_position = first_position
        self._length = unit_table.uniform_length or 1
        self._num_units = order.num_positions - first_position
        self._num_groups = self._num_units // total_batch_size
        if last_batch != "drop" and self._num_units % total_batch_size:
            self._num_groups += 1
        self.num_batches = self._num_groups * self._length

    def batch(self, number: int) -> PlannedBatch:
        """Get a batch."""
        group, offset = divmod(number, self._length)
        first = self._first_position + group * self._num_slots
        positions = np.arange(first, first + self._num_slots)
        beyond = positions >= self._order.num_positions
        if self._last_batch == "wrap":
            positions %= self._order.num_positions
        else:
            positions[beyond] = self._order.num_positions - 1
        units, visits = self._order.units(positions)
        samples = self._unit_table.samples(units, np.full(self._num_slots, offset), visits, self._epoch_key)
        return samples.in_slots(offset == 0, offset == self._length - 1, visits, beyond, self._last_batch)

    def rest(self, num_delivered: int, total_batch_size: int, num_shards: int, last_batch: LastBatch) -> EpochPlan:
        """Plan what is left for other batches.

        In the middle of a group, the begun units are finished in the new slots, as segments of their own. For
        that the remaining units are listed: memory grows with their number.
        """
        group, offset = divmod(num_delivered, self._length)
        # The last group may be padded: behind it the order has no positions.
        position = min(self._first_position + group * self._num_slots, self._order.num_positions)
        if offset == 0:
            return FlatPlan(self._order, self._unit_table, self._epoch_key, total_batch_size, last_batch, position)
        positions = np.arange(position, self._order.num_positions)
        units, visits = self._order.units(positions)
        first_offsets = np.where(np.arange(len(positions)) < self._num_slots, offset, 0)
        segments = Segments(units, first_offsets, self._length - first_offsets, visits)
        return StreamPlan(segments, self._unit_table, self._epoch_key, total_batch_size, last_batch, cut=False)

    @property
    def sample_counts(self) -> SampleCounts:
        """Number of samples delivered, dropped, repeated and padded."""
        num_slots = self._num_groups * self._num_slots
        return SampleCounts.of_slots(
            self._last_batch,
            num_batches=self.num_batches,
            num_samples=self._num_units * self._length,
            num_delivered=min(num_slots, self._num_units) * self._length,
            num_slots=num_slots * self._length,
        )
