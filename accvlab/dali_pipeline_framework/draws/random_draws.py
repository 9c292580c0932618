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

`KeyedDraws` computes the numbers where the samples are loaded, batch by batch. A number is a function of these,
and of nothing else::

    the draw      seed, name and number of the step, path of the group, name and kind of key of the draw
    the key       epoch; sample or sequence, and which visit of it; or the value of a field. A sample is its index
                  in the data set, or its position in the epoch of all shards where the input does not know
    the element   its flat position in the draw

Each level makes 64-bit keys for the next one, for all draws and samples of a batch at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt
from nvidia.dali import types

from ..checks import text, whole_number, whole_number_list
from ..errors import SettingError
from ..sample_data import FieldPath
from ..sample_data.names import format_path, normalized_path
from .keyed_draws import SamplePlace, SampleSeeds, UInt64Array, derive_key, hash_bytes, random_bits, random_uniform

Float64Array: TypeAlias = npt.NDArray[np.float64]
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
"""Scope in which a draw is constant."""


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


def _checked_shape(shape: object) -> tuple[int, ...]:
    rule = "a tuple of whole numbers of at least 1, e.g. () for a scalar or (3,)"
    return whole_number_list(shape, "shape", rule, at_least=1)


def _checked_name(value: object) -> str:
    return text(value, "name")


def _float32(value: Any) -> float:
    try:
        number = math.nan if isinstance(value, str | bytes | bool | np.bool_) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not abs(number) <= float(np.finfo(np.float32).max):
        raise SettingError(f"The numbers of a draw must be finite, as float32; got {value!r}.")
    return number


def _int32(value: object) -> int:
    try:
        return whole_number(value, "high", at_least=_INT32.min, at_most=_INT32.max)
    except SettingError:
        rule = "whole numbers that fit into int32"
        raise SettingError(f"The limits of an integer draw must be {rule}, got {value!r}.") from None


@attrs.frozen
class UniformDraw:
    """Uniformly distributed float32 numbers in ``[low, high)``, an array of the shape ``shape``.

    With ``low == high`` nothing is drawn: all numbers are ``low``.

    Attributes:
        name: Name by which the step requests the draw.
        low: Lower limit, inclusive.
        high: Upper limit, exclusive.
        shape: Shape of the draw of one sample; a scalar if empty.
        key: Scope in which the draw is constant. "sample": a group (e.g. a camera) of a sample; "rig": all groups
            of a sample; "sequence": a group, in all samples of a sequence; "sequence-rig": all groups, in all
            samples of a sequence. Or all samples with one value of a field: its path in the input, or a
            `FieldKey`.

    Example:
        >>> UniformDraw("gain", 0.5, 1.5, key="rig")
        UniformDraw(name='gain', low=0.5, high=1.5, shape=(), key='rig')
    """

    name: str = attrs.field(converter=_checked_name)
    low: float = attrs.field(default=0.0, converter=_float32)
    high: float = attrs.field(default=1.0, converter=_float32)
    shape: tuple[int, ...] = attrs.field(default=(), converter=_checked_shape, kw_only=True)
    key: DrawKey = attrs.field(default="sample", converter=_checked_key, kw_only=True)
    dtype: ClassVar[types.DALIDataType] = types.DALIDataType.FLOAT
    numpy_dtype: ClassVar[type[np.generic]] = np.float32

    def __attrs_post_init__(self) -> None:
        if self.low > self.high:
            got = f"{self.low} and {self.high}"
            raise SettingError(f"Draw {self.name!r}: `low` must not exceed `high`, got {got}.")

    @property
    def constant(self) -> float | None:
        """The only possible number; None if there are several."""
        return self.low if np.float32(self.low) == np.float32(self.high) else None


@attrs.frozen
class IntegerDraw:
    """Uniformly distributed int32 numbers in ``[low, high)``, as with `range`: an array of the shape ``shape``.

    With ``high == low + 1`` nothing is drawn: all numbers are ``low``.

    Attributes:
        name: Name by which the step requests the draw.
        low: Lower limit, inclusive.
        high: Upper limit, exclusive.
        shape: Shape of the draw of one sample; a scalar if empty.
        key: Scope in which the draw is constant, see `UniformDraw`.
    """

    name: str = attrs.field(converter=_checked_name)
    low: int = attrs.field(converter=_int32)
    high: int = attrs.field(converter=_int32)
    shape: tuple[int, ...] = attrs.field(default=(), converter=_checked_shape, kw_only=True)
    key: DrawKey = attrs.field(default="sample", converter=_checked_key, kw_only=True)
    dtype: ClassVar[types.DALIDataType] = types.DALIDataType.INT32
    numpy_dtype: ClassVar[type[np.generic]] = np.int32

    def __attrs_post_init__(self) -> None:
        if self.low >= self.high:
            rule, got = "less than `high`, which is not drawn itself", f"{self.low} and {self.high}"
            raise SettingError(f"Draw {self.name!r}: `low` must be {rule}; got {got}.")

    @property
    def constant(self) -> int | None:
        """The only possible number; None if there are several."""
        return self.low if self.high == self.low + 1 else None


@attrs.frozen
class NormalDraw:
    """Normally distributed float32 numbers, an array of the shape ``shape``.

    With ``stddev == 0`` nothing is drawn: all numbers are ``mean``.

    Attributes:
        name: Name by which the step requests the draw.
        mean: Mean of the distribution.
        stddev: Standard deviation, at least 0.
        shape: Shape of the draw of one sample; a scalar if empty.
        key: Scope in which the draw is constant, see `UniformDraw`.
    """

    name: str = attrs.field(converter=_checked_name)
    mean: float = attrs.field(default=0.0, converter=_float32)
    stddev: float = attrs.field(default=1.0, converter=_float32)
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
        """Name of the draw, e.g. ``GridMasker[0]/cameras[1]/tile``."""
        group = [format_path(self.group)] if self.group else []
        return "/".join([f"{self.step}[{self.number}]", *group, self.draw.name])

    def __str__(self) -> str:
        return f"draw {self.draw.name!r} of {self.step}"


class DrawSource(Protocol):
    """Gives the draws of batches."""

    def of_batch(
        self, source: Any, infos: Sequence[types.SampleInfo], samples: Sequence[Sequence[Any]]
    ) -> Sequence[npt.NDArray[Any]]:
        """Get the draws of a batch; see `KeyedDraws.of_batch`."""


SEQUENCE_KEYS = ("sequence", "sequence-rig")
NEEDS_SEQUENCES = (
    "is held constant along a sequence, but {} does not know the sequences of its samples. Use an input that "
    "plays sequences, or another `key`"
)


class KeyedDraws:
    """Computes the draws of a batch. It has no state, so it may be used in any process."""

    def __init__(self, draws: Sequence[PlannedDraw], field_paths: Sequence[FieldPath], seeds: SampleSeeds) -> None:
        """Prepare what does not depend on the samples.

        Args:
            draws: The draws, none of them constant.
            field_paths: Paths of the fields of a flat sample.
            seeds: Seed and shard.

        Raises:
            SettingError: The seed is no whole number.
        """
        seed = whole_number(seeds.seed, "seed")
        self._draws = tuple(draws)
        self._seeds = seeds
        positions = {path: position for position, path in enumerate(field_paths)}
        # What a draw is keyed by: "sample", "sequence", or the flat position of a field.
        key_of_draw = [_key_of(planned.draw.key, positions) for planned in draws]
        self._keys: list[str | int] = [*dict.fromkeys(key_of_draw)]
        self._key_of_draw = np.array([self._keys.index(key) for key in key_of_draw], np.intp)  # (draws,)
        self._draw_keys = np.array([_draw_key(planned, seed) for planned in draws], np.uint64)  # (draws,)
        # Each number that is to be computed is a row; a normal one is made of two.
        counts = [_num_rows(planned) for planned in draws]
        self._rows = [slice(end - count, end) for end, count in zip(np.cumsum(counts), counts, strict=True)]
        self._draw_of_row = np.repeat(np.arange(len(draws)), counts)  # (rows,)
        self._counters = np.concatenate([np.arange(count, dtype=np.uint64) for count in counts])[:, None]
        limits = np.array([_limits(planned.draw) for planned in draws])
        self._limits = limits[self._draw_of_row, :, None]  # (rows, 3, 1)
        is_whole = [isinstance(planned.draw, IntegerDraw) for planned in draws]
        self._is_whole = np.array(is_whole, bool)[self._draw_of_row, None]

    def of_batch(
        self, source: Any, infos: Sequence[types.SampleInfo], samples: Sequence[Sequence[Any]]
    ) -> list[npt.NDArray[Any]]:
        """Compute the draws of a batch.

        Args:
            source: The input, which knows the places of the samples.
            infos: Positions of the samples.
            samples: The samples as flat arrays.

        Returns:
            Per draw one array ``(batch, *shape)`` float32 or int32.

        Raises:
            SettingError: A draw is keyed by sequences, and a sample has none.
        """
        places = [self._seeds.place_of(source, info) for info in infos]
        epochs = [place.epoch for place in places]
        values = np.empty((len(self._keys), len(infos)), np.uint64)
        visits = np.zeros((len(self._keys), len(infos)), np.int64)
        for row, key in enumerate(self._keys):
            if isinstance(key, int):
                values[row] = [_hash(sample[key]) for sample in samples]
                continue
            is_sequence = key == "sequence"
            numbers = self._sequences(source, places) if is_sequence else [place.sample_index for place in places]
            values[row] = np.array(numbers, np.int64).view(np.uint64)
            visits[row] = [place.visit for place in places]
        keys: UInt64Array = random_bits(self._draw_keys[:, None], np.array(epochs, np.int64))  # (draws, batch)
        keys = random_bits(keys, values[self._key_of_draw])
        keys = random_bits(keys, visits[self._key_of_draw])
        return self._numbers(keys)

    def _numbers(self, keys: UInt64Array) -> list[npt.NDArray[Any]]:
        """Compute the draws for their keys, ``(draws, batch)``."""
        uniform = random_uniform(keys[self._draw_of_row], self._counters)  # (rows, batch)
        low, width, last = self._limits[:, 0], self._limits[:, 1], self._limits[:, 2]
        numbers = uniform * width  # of all draws at once: there may be a hundred, of a number or two
        np.floor(numbers, out=numbers, where=self._is_whole)
        numbers += low
        np.minimum(numbers, last, out=numbers)  # rounding must not reach the upper limit
        arrays: list[npt.NDArray[Any]] = []
        for planned, rows in zip(self._draws, self._rows, strict=True):
            draw, of_draw = planned.draw, numbers[rows].T  # (batch, rows of the draw)
            if isinstance(draw, NormalDraw):
                of_draw = draw.mean + draw.stddev * _normal(uniform[rows].T)
            arrays.append(of_draw.astype(draw.numpy_dtype, order="C").reshape(-1, *draw.shape))
        return arrays

    def _sequences(self, source: Any, places: Sequence[SamplePlace]) -> list[int]:
        sequences = [place.sequence for place in places]
        if min(sequences) < 0:
            planned = next(planned for planned in self._draws if planned.draw.key in SEQUENCE_KEYS)
            raise SettingError(f"The {planned} {NEEDS_SEQUENCES.format(type(source).__name__)}.")
        return sequences


def _key_of(key: DrawKey, positions: dict[FieldPath, int]) -> str | int:
    return positions[key.path] if isinstance(key, FieldKey) else "sequence" if key in SEQUENCE_KEYS else "sample"


def _draw_key(planned: PlannedDraw, seed: int) -> int:
    key = planned.draw.key
    kind = ["field", *key.path, int(key.shared)] if isinstance(key, FieldKey) else [key]
    group = [len(planned.group), *planned.group]
    return derive_key("draw", seed, planned.step, planned.number, *group, planned.draw.name, *kind)


def _num_rows(planned: PlannedDraw) -> int:
    size = int(np.prod(planned.draw.shape, dtype=int))
    return 2 * size if isinstance(planned.draw, NormalDraw) else size


def _limits(draw: RandomDraw) -> tuple[float, float, float]:
    """Least number, width of the range, and greatest number; without meaning for normal draws."""
    if isinstance(draw, UniformDraw):
        low, high = np.float32(draw.low), np.float32(draw.high)
        return float(low), float(high) - float(low), float(np.nextafter(high, low))
    return (0.0, 1.0, 1.0) if isinstance(draw, NormalDraw) else (draw.low, draw.high - draw.low, draw.high - 1)


def _normal(uniform: Float64Array) -> Float64Array:
    """Make normal numbers, ``(batch, n)``, of uniform ones in [0, 1), ``(batch, 2 n)`` (Box, Muller, 1958)."""
    radius: Float64Array = np.sqrt(-2.0 * np.log1p(-uniform[:, ::2]))
    return radius * np.cos(2.0 * np.pi * uniform[:, 1::2])


def _hash(value: npt.NDArray[Any]) -> int:
    return hash_bytes(f"{value.dtype.str}{value.shape}".encode(), value.tobytes())


DrawRecord: TypeAlias = dict[str, npt.NDArray[Any]]
"""The draws of one sample, by name: arrays of float32 or int32."""
