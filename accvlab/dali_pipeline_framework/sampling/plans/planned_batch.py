# SPDX-License-Identifier: Apache-2.0
"""Which samples form a global batch, and where they stand."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from ...errors import SettingError

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


_FEW = 64  # of so few numbers Python's set is faster than the fixed cost of NumPy's `unique`


def distinct(numbers: Int64Array) -> list[int]:
    """The different numbers of an array ``(n,)``, in ascending order."""
    return sorted(set(numbers.tolist())) if len(numbers) <= _FEW else np.unique(numbers).tolist()


_INT64 = np.dtype(np.int64)
_BOOL = np.dtype(np.bool_)


def _int64(values: Any) -> Int64Array:
    if type(values) is np.ndarray and values.dtype is _INT64:  # the usual case, which must be fast
        return values
    array = np.asarray(values)
    if array.dtype.kind not in "iu" and array.size:
        raise SettingError(f"The numbers of a PlannedBatch must be whole numbers, got {array.dtype}: {values!r}.")
    return array.astype(np.int64, copy=False)


def _bool(values: Any) -> BoolArray:
    return values if type(values) is np.ndarray and values.dtype is _BOOL else np.asarray(values, dtype=np.bool_)


def _filled(value: int | bool, dtype: type) -> Any:
    return attrs.Factory(lambda batch: np.full(batch.indices.shape, value, dtype), takes_self=True)


@attrs.frozen(eq=False)
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

    indices: Int64Array = attrs.field(converter=_int64)
    is_padding: BoolArray = attrs.field(converter=_bool, default=_filled(False, np.bool_))
    sequence: Int64Array = attrs.field(converter=_int64, default=_filled(-1, np.int64))
    frame: Int64Array = attrs.field(converter=_int64, default=_filled(-1, np.int64))
    clip: Int64Array = attrs.field(converter=_int64, default=_filled(-1, np.int64))
    is_first: BoolArray = attrs.field(converter=_bool, default=_filled(True, np.bool_))
    is_last: BoolArray = attrs.field(converter=_bool, default=_filled(True, np.bool_))
    visit: Int64Array = attrs.field(converter=_int64, default=_filled(0, np.int64))
    is_over: BoolArray = attrs.field(
        converter=_bool, default=attrs.Factory(lambda batch: batch.is_padding, takes_self=True)
    )

    def __attrs_post_init__(self) -> None:
        """Check that all fields have one entry per slot."""
        shape = self.indices.shape
        if len(shape) != 1:
            raise SettingError(f"`indices` must be of shape (B,), got shape {shape}.")
        for name in _OTHER_FIELDS:
            if getattr(self, name).shape != shape:
                raise SettingError(
                    f"`{name}` must have one entry per slot, as `indices` has: of shape {shape}, got shape "
                    f"{getattr(self, name).shape}."
                )
        if self.is_padding.any():
            for name in ("is_first", "is_last"):
                object.__setattr__(self, name, getattr(self, name) | self.is_padding)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PlannedBatch):
            return NotImplemented
        return all(
            np.array_equal(getattr(self, name), getattr(other, name)) for name in ("indices", *_OTHER_FIELDS)
        )

    __hash__ = None  # type: ignore[assignment]  # as of arrays


_OTHER_FIELDS = tuple(field.name for field in attrs.fields(PlannedBatch) if field.name != "indices")
