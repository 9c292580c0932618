# SPDX-License-Identifier: Apache-2.0
"""Random draws as data: steps declare them, inputs compute the numbers.

A draw says how its numbers are distributed, and over what they are held constant (its key)::

    key               equal for                                     differs between
    "sample"          nothing else                                  samples, groups
    "rig"             the groups of a sample                        samples
    "sequence"        the samples of a sequence                     sequences, groups
    "sequence-rig"    the samples of a sequence, and their groups   sequences
    FieldKey(path)    samples with the same value of a field        values, groups (unless shared)

"Groups" are the parts of a sample to which a wrapper applies the step, e.g. its cameras. All draws differ
between epochs.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, ClassVar, TypeAlias

import attrs
import numpy as np
from nvidia.dali import types

from ..errors import SettingError
from ..sample_data.names import FieldPath, format_path, normalized_path

_KEYS = ("sample", "rig", "sequence", "sequence-rig")
_INT32 = np.iinfo(np.int32)


@attrs.frozen
class FieldKey:
    """Key of a draw: the value of a data field of the input.

    Samples with equal values (and dtypes and shapes) draw the same numbers in an epoch.

    Attributes:
        path: Path of the field in the whole sample, as the input delivers it. Its bytes are hashed for each
            sample, so choose a small field (an index, a name), not an image.
        shared: Whether all groups that the step is applied to get the same numbers.
    """

    path: FieldPath = attrs.field(converter=normalized_path)
    shared: bool = False

    def __attrs_post_init__(self) -> None:
        if not self.path:
            raise SettingError("The key of a draw must be the path of a data field, got an empty path.")

    def __str__(self) -> str:
        return f"the field {format_path(self.path)}"


DrawKey: TypeAlias = str | FieldKey
"""What a draw is held constant over."""


def _checked_key(key: str | Sequence[Any] | FieldKey) -> DrawKey:
    if isinstance(key, FieldKey):
        return key
    if isinstance(key, tuple | list):
        return FieldKey(key)
    if isinstance(key, str) and key in _KEYS:
        return key
    hint = f" For the field {key!r} write ({key!r},)." if isinstance(key, str) else ""
    raise SettingError(
        f"The `key` of a draw must be one of {', '.join(map(repr, _KEYS))}, the path of a data field as a tuple "
        f"or list, or a FieldKey; got {key!r}.{hint}"
    )


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not name:
        raise SettingError(f"The `name` of a draw must be a text of at least one character, got {name!r}.")
    return name


def _checked_shape(shape: object) -> tuple[int, ...]:
    try:
        sizes = tuple(map(operator.index, shape))  # type: ignore[call-overload]
    except TypeError:
        sizes = (-1,)
    if any(size < 1 for size in sizes):
        raise SettingError(
            f"The `shape` of a draw must be a tuple of whole numbers of at least 1, e.g. () for a scalar or (3,); "
            f"got {shape!r}."
        )
    return sizes


def _checked_number(value: Any) -> float:
    try:
        number = math.nan if isinstance(value, str | bytes | bool | np.bool_) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number) or abs(number) > float(np.finfo(np.float32).max):
        raise SettingError(f"The numbers of a draw must be finite, as float32; got {value!r}.")
    return number


def _checked_int32(value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or not _INT32.min <= number <= _INT32.max:
        raise SettingError(
            f"The limits of an integer draw must be whole numbers that fit into int32, got {value!r}."
        )
    return number


@attrs.frozen
class UniformDraw:
    """Uniformly distributed numbers, ``shape`` float32 in ``[low, high)``.

    With ``low == high`` nothing is drawn: all numbers are ``low``.

    Attributes:
        name: Name by which the step asks for the draw.
        low: Lower limit, inclusive.
        high: Upper limit, exclusive.
        shape: Shape of the draw of one sample; a scalar if empty.
        key: What the draw is held constant over.

    Example:
        >>> UniformDraw("gain", 0.5, 1.5, key="rig")
        UniformDraw(name='gain', low=0.5, high=1.5, shape=(), key='rig')
    """

    name: str = attrs.field(converter=_checked_name)
    low: float = attrs.field(default=0.0, converter=_checked_number)
    high: float = attrs.field(default=1.0, converter=_checked_number)
    shape: tuple[int, ...] = attrs.field(default=(), converter=_checked_shape, kw_only=True)
    key: DrawKey = attrs.field(default="sample", converter=_checked_key, kw_only=True)
    dtype: ClassVar[types.DALIDataType] = types.DALIDataType.FLOAT
    numpy_dtype: ClassVar[type[np.generic]] = np.float32

    def __attrs_post_init__(self) -> None:
        if self.low > self.high:
            raise SettingError(
                f"Draw {self.name!r}: `low` must not exceed `high`, got {self.low} and {self.high}."
            )

    @property
    def constant(self) -> float | None:
        """The only possible number; None if there are several."""
        return self.low if np.float32(self.low) == np.float32(self.high) else None


@attrs.frozen
class IntegerDraw:
    """Uniformly distributed integers, ``shape`` int32 in ``[low, high)``, as with `range`.

    With ``high == low + 1`` nothing is drawn: all numbers are ``low``.

    Attributes:
        name: Name by which the step asks for the draw.
        low: Lower limit, inclusive.
        high: Upper limit, exclusive.
        shape: Shape of the draw of one sample; a scalar if empty.
        key: What the draw is held constant over.
    """

    name: str = attrs.field(converter=_checked_name)
    low: int = attrs.field(converter=_checked_int32)
    high: int = attrs.field(converter=_checked_int32)
    shape: tuple[int, ...] = attrs.field(default=(), converter=_checked_shape, kw_only=True)
    key: DrawKey = attrs.field(default="sample", converter=_checked_key, kw_only=True)
    dtype: ClassVar[types.DALIDataType] = types.DALIDataType.INT32
    numpy_dtype: ClassVar[type[np.generic]] = np.int32

    def __attrs_post_init__(self) -> None:
        if self.low >= self.high:
            raise SettingError(
                f"Draw {self.name!r}: `low` must be less than `high`, which is not drawn itself; got {self.low} "
                f"and {self.high}."
            )

    @property
    def constant(self) -> int | None:
        """The only possible number; None if there are several."""
        return self.low if self.high == self.low + 1 else None


@attrs.frozen
class NormalDraw:
    """Normally distributed numbers, ``shape`` float32.

    With ``stddev == 0`` nothing is drawn: all numbers are ``mean``.

    Attributes:
        name: Name by which the step asks for the draw.
        mean: Mean of the distribution.
        stddev: Standard deviation, at least 0.
        shape: Shape of the draw of one sample; a scalar if empty.
        key: What the draw is held constant over.
    """

    name: str = attrs.field(converter=_checked_name)
    mean: float = attrs.field(default=0.0, converter=_checked_number)
    stddev: float = attrs.field(default=1.0, converter=_checked_number)
    shape: tuple[int, ...] = attrs.field(default=(), converter=_checked_shape, kw_only=True)
    key: DrawKey = attrs.field(default="sample", converter=_checked_key, kw_only=True)
    dtype: ClassVar[types.DALIDataType] = types.DALIDataType.FLOAT
    numpy_dtype: ClassVar[type[np.generic]] = np.float32

    def __attrs_post_init__(self) -> None:
        if self.stddev < 0:
            raise SettingError(f"Draw {self.name!r}: `stddev` must be at least 0, got {self.stddev}.")

    @property
    def constant(self) -> float | None:
        """The only possible number; None if there are several."""
        return self.mean if self.stddev == 0 else None


RandomDraw: TypeAlias = UniformDraw | IntegerDraw | NormalDraw


def is_shared(key: DrawKey) -> bool:
    """Whether all groups that a step is applied to get the same numbers with this key."""
    return key.shared if isinstance(key, FieldKey) else key in ("rig", "sequence-rig")


@attrs.frozen
class PlannedDraw:
    """A draw of a step in a chain: all that its numbers depend on apart from seed, epoch and key.

    Attributes:
        draw: What the step declared.
        step: Name of the step: its ``random_name``, or else its class.
        number: How many steps of that name declare draws before it.
        group: Path of the group that the step is applied to; empty where the draw is shared by the groups.
    """

    draw: RandomDraw
    step: str
    number: int
    group: FieldPath

    @property
    def record_name(self) -> str:
        """Name of the draw in a record, e.g. ``ImageGaussianBlurrer[0]/cameras[1]/sigma``."""
        group = [format_path(self.group)] if self.group else []
        return "/".join([f"{self.step}[{self.number}]", *group, self.draw.name])

    def __str__(self) -> str:
        return f"draw {self.draw.name!r} of {self.step}"
