# SPDX-License-Identifier: Apache-2.0
"""The numbers of the draws that the steps of a pipeline declare, batch by batch, where the samples are loaded.

A number is a function of these, and of nothing else::

    the draw      seed, name and number of the step, path of the group, name and kind of key of the draw
    the key       epoch; sample or sequence, and which visit of it; or the value of a field. A sample is its index
                  in the data set, or its position in the epoch of all shards where the input does not tell
    the element   its flat position in the draw

Each level makes 64-bit keys for the next one, for all draws and samples of a batch at once.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from nvidia.dali import types

from ..errors import SettingError
from ..sample_data import FieldPath
from .keyed_random import SamplePlace, UInt64Array, derive_key, hash_bytes, place_at, random_bits, random_uniform
from .random_draws import DrawKey, FieldKey, NormalDraw, PlannedDraw, UniformDraw

SEQUENCE_KEYS = ("sequence", "sequence-rig")
NEEDS_SEQUENCES = (
    "is held constant along a sequence, but {} does not tell the sequences of its samples. Use an input that "
    "plays sequences, or another `key`"
)


class KeyedDraws:
    """Computes the draws of a batch. It has no state, so it may be used in any process."""

    def __init__(
        self,
        draws: Sequence[PlannedDraw],
        field_paths: Sequence[FieldPath],
        seed: int = 0,
        *,
        shard: tuple[int, int] = (0, 1),
        batch_size: int = 1,
    ) -> None:
        """Prepare what does not depend on the samples.

        Args:
            draws: The draws, none of them constant.
            field_paths: Paths of the fields of a flat sample.
            seed: A whole number.
            shard: Shard id and number of shards of the input.
            batch_size: Samples per batch on this shard. Together with the shard it gives the position of a sample
                among those of all shards, which is its key where the input tells neither place nor index.

        Raises:
            SettingError: The seed is no whole number.
        """
        try:
            seed = operator.index(seed)
        except TypeError:
            raise SettingError(f"The seed of the random draws must be a whole number, got {seed!r}.") from None
        self._draws = tuple(draws)
        self._shard = shard
        self._batch_size = batch_size
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
        limits = np.array([_limits(planned) for planned in draws])
        self._limits = limits[self._draw_of_row, :, None]  # (rows, 3, 1)
        is_whole = [planned.draw.dtype == types.DALIDataType.INT32 for planned in draws]
        self._is_whole = np.array(is_whole, bool)[self._draw_of_row, None]

    def of_batch(
        self, source: Any, infos: Sequence[types.SampleInfo], samples: Sequence[Sequence[Any]]
    ) -> list[npt.NDArray[Any]]:
        """Compute the draws of a batch.

        Args:
            source: The input, which is asked where the samples stand.
            infos: Positions of the samples.
            samples: The samples as flat arrays.

        Returns:
            Per draw one array ``(batch, *shape)`` float32 or int32.

        Raises:
            SettingError: A draw is keyed by sequences, and a sample has none.
        """
        places = [place_at(source, info, self._shard, self._batch_size) for info in infos]
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
        numbers = uniform * width
        np.floor(numbers, out=numbers, where=self._is_whole)
        numbers += low
        np.minimum(numbers, last, out=numbers)  # rounding must not reach the upper limit
        arrays: list[npt.NDArray[Any]] = []
        for planned, rows in zip(self._draws, self._rows, strict=True):
            draw = planned.draw
            of_draw = numbers[rows].T  # (batch, rows of the draw)
            if isinstance(draw, NormalDraw):
                of_draw = draw.mean + draw.stddev * _normal(uniform[rows].T)
            dtype = draw.numpy_dtype
            arrays.append(of_draw.astype(dtype, order="C").reshape(-1, *draw.shape))
        return arrays

    def _sequences(self, source: Any, places: Sequence[SamplePlace]) -> list[int]:
        sequences = [place.sequence for place in places]
        if min(sequences) < 0:
            planned = next(planned for planned in self._draws if planned.draw.key in SEQUENCE_KEYS)
            raise SettingError(f"The {planned} {NEEDS_SEQUENCES.format(type(source).__name__)}.")
        return sequences


def _key_of(key: DrawKey, positions: dict[FieldPath, int]) -> str | int:
    if isinstance(key, FieldKey):
        return positions[key.path]
    return "sequence" if key in SEQUENCE_KEYS else "sample"


def _draw_key(planned: PlannedDraw, seed: int) -> int:
    key = planned.draw.key
    kind = ["field", *key.path, int(key.shared)] if isinstance(key, FieldKey) else [key]
    group = [len(planned.group), *planned.group]
    return derive_key("draw", seed, planned.step, planned.number, *group, planned.draw.name, *kind)


def _num_rows(planned: PlannedDraw) -> int:
    size = int(np.prod(planned.draw.shape, dtype=int))
    return 2 * size if isinstance(planned.draw, NormalDraw) else size


def _limits(planned: PlannedDraw) -> tuple[float, float, float]:
    """Least number, width of the range, and greatest number; without meaning for normal draws."""
    draw = planned.draw
    if isinstance(draw, UniformDraw):
        low, high = np.float32(draw.low), np.float32(draw.high)
        return float(low), float(high) - float(low), float(np.nextafter(high, low))
    if isinstance(draw, NormalDraw):
        return 0.0, 1.0, 1.0
    return draw.low, draw.high - draw.low, draw.high - 1


def _normal(uniform: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Make normal numbers, ``(batch, n)``, of uniform ones in [0, 1), ``(batch, 2 n)`` (Box, Muller, 1958)."""
    radius: npt.NDArray[np.float64] = np.sqrt(-2.0 * np.log1p(-uniform[:, ::2]))
    return radius * np.cos(2.0 * np.pi * uniform[:, 1::2])


def _hash(value: npt.NDArray[Any]) -> int:
    return hash_bytes(f"{value.dtype.str}{value.shape}".encode(), value.tobytes())
