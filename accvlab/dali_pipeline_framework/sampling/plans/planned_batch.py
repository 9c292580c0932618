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
