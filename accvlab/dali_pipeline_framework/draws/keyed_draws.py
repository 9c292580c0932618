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

import contextlib
import operator
import random
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import attrs
import numpy as np
import numpy.typing as npt
from nvidia.dali import types

from ..errors import SettingError
from ..sample_data import FieldPath
from .random_draws import DrawKey, FieldKey, NormalDraw, PlannedDraw, UniformDraw

if TYPE_CHECKING:
    from nvidia.dali import types

UInt64Array = npt.NDArray[np.uint64]

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIER_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLIER_2 = np.uint64(0x94D049BB133111EB)
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
_ONE = np.uint64(1)
_BITS_BELOW_DOUBLE = np.uint64(11)  # of 64 bits a double in [0, 1) holds 53


def derive_key(*parts: int | str) -> int:
    """Make the 64-bit key of a list of integers (of any size) and texts: a hash of it."""
    named = (f"str:{part}" if isinstance(part, str) else f"int:{operator.index(part)}" for part in parts)
    text = "\x1f".join(part.replace("\x1f", "\\x1f") for part in named)
    return hash_bytes(text.encode())


def hash_bytes(*parts: bytes) -> int:
    """Make a 64-bit hash of bytes, the same in every process."""
    import hashlib  # it loads a large library, which a pipeline that draws nothing does not need

    content = hashlib.blake2b(digest_size=8)
    for part in parts:
        content.update(part)
    return int.from_bytes(content.digest(), "little")


def mix(values: UInt64Array) -> UInt64Array:
    """Scramble 64-bit values; different ones stay different (the output function of SplitMix64)."""
    mixed = values ^ (values >> _SHIFTS[0])
    mixed *= _MULTIPLIER_1
    mixed ^= mixed >> _SHIFTS[1]
    mixed *= _MULTIPLIER_2
    mixed ^= mixed >> _SHIFTS[2]
    return mixed


def random_bits(key: int | UInt64Array, counters: npt.ArrayLike) -> UInt64Array:
    """Get 64 random bits for each counter (a whole number of at least 0) of a key.

    Args:
        key: A key of 64 bits, or an array of them that broadcasts against ``counters``.
        counters: Which numbers of the key, an array of at least one dimension.

    Returns:
        uint64, of the shape of ``counters``.
    """
    steps = np.asarray(counters).astype(np.uint64)
    steps = steps + _ONE
    steps *= _GAMMA
    return mix(steps + np.asarray(key, dtype=np.uint64))


def random_uniform(key: int | UInt64Array, counters: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Get a random number in ``[0, 1)`` for each counter of a key, as float64 with 53 random bits."""
    bits = random_bits(key, counters) >> _BITS_BELOW_DOUBLE
    return bits.astype(np.float64) * 2.0**-53


def digest(array: npt.NDArray[np.generic]) -> str:
    """Make a short text that tells arrays of different values apart: 12 hexadecimal digits."""
    return f"{hash_bytes(np.ascontiguousarray(array).tobytes()) & 0xFFFFFFFFFFFF:012x}"


class SamplePlace(NamedTuple):
    """Where a sample stands.

    Attributes:
        epoch: Epoch, from 0.
        batch: Batch in the epoch, from 0.
        slot: Slot of the global batch (all shards together), from 0.
        sample_index: Index of the sample in the data set.
        sequence: Sequence of the data set that the sample belongs to, or -1 for samplers without sequences.
        frame: Number of the sample in its sequence, from 0, or -1 for samplers without sequences. For a clip that
            is one sample, that of the frame at which the clip starts.
        clip: Number of the clip that the slot plays, or -1 for samplers without clips.
        is_first: Whether the slot begins what it plays with this sample: a sequence, a segment of one, or a clip.
            True on padding, and on the sample that follows it in the slot: nothing may be carried over.
        is_last: Whether the slot ends it with this sample; True on padding.
        is_padding: Whether the sample only fills the slot: it repeats another one and is not to be counted.
        visit: Tells apart several deliveries of a sample (or sequence) in the same epoch.
    """

    epoch: int
    batch: int
    slot: int
    sample_index: int
    sequence: int = -1
    frame: int = -1
    clip: int = -1
    is_first: bool = False
    is_last: bool = False
    is_padding: bool = False
    visit: int = 0


def place_at(source: Any, info: types.SampleInfo, shard: tuple[int, int], batch_size: int) -> SamplePlace:
    """Get the place of the sample at a position of an input.

    Where the input tells neither place (``get_place``) nor index (``get_sample_index``), the position in the epoch
    of all shards is the index.

    Args:
        source: The input.
        info: The position, among the samples of this shard.
        shard: Shard id and number of shards.
        batch_size: Samples per batch on this shard.
    """
    get_place = getattr(source, "get_place", None)
    place: SamplePlace | None = None if get_place is None else get_place(info)
    if place is not None:
        return place
    get_index = getattr(source, "get_sample_index", None)
    index: int | None = None if get_index is None else get_index(info)
    if index is None:
        # The batches of all shards follow each other:
        # num_shards = 2, batch_size = 2:   shard 0: 0 1   shard 1: 2 3   shard 0: 4 5   shard 1: 6 7  ...
        shard_id, num_shards = shard
        index = info.idx_in_epoch + (info.iteration * (num_shards - 1) + shard_id) * batch_size
    return SamplePlace(info.epoch_idx, info.iteration, info.idx_in_batch, index)


@contextlib.contextmanager
def kept_global_generators() -> Iterator[None]:
    """Whatever draws within a ``with`` statement, behind it the global generators are as they were before.

    Of PyTorch, where it was imported, it is the generator of the CPU.
    """
    of_torch = sys.modules["torch"].default_generator if "torch" in sys.modules else None
    of_python, of_numpy = random.getstate(), np.random.get_state()
    state_of_torch = None if of_torch is None else of_torch.get_state()
    try:
        yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)
        if of_torch is not None:
            of_torch.set_state(state_of_torch)


@contextlib.contextmanager
def seeded_global_generators(seed: int) -> Iterator[None]:
    """Seed the global generators, in ``[0, 2**32)``, within a ``with`` statement; then they are as before.

    For code of others that draws from them, so that what it draws depends on the seed only. Of PyTorch, where it
    was imported, it is the generator of the CPU.

    Example:
        >>> with seeded_global_generators(5):
        ...     first = random.random(), np.random.rand()
        >>> with seeded_global_generators(5):
        ...     first == (random.random(), np.random.rand())
        True
    """
    with kept_global_generators():
        seed_global_generators(seed)
        yield


def seed_global_generators(seed: int) -> None:
    """Seed the global generators with a number of at least 0; NumPy takes its lowest 32 bits."""
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
    if "torch" in sys.modules:  # `torch.manual_seed` would care for GPUs, too
        sys.modules["torch"].default_generator.manual_seed(seed)


@attrs.frozen
class SampleSeeds:
    """What seeds depend on, besides the sample.

    Attributes:
        seed: Seed of the pipeline.
        shard: Shard id and number of shards of the input.
        batch_size: Samples per batch on this shard. Together with the shard it gives the position of a sample
            among those of all shards, which is its index where the input tells neither place nor index.
    """

    seed: int = 0
    shard: tuple[int, int] = (0, 1)
    batch_size: int = 1

    def loading(self, source: Any, keeps_generators: bool) -> LoadingSamples:
        """Get the context in which this thread loads samples of an input.

        Args:
            source: The input.
            keeps_generators: Whether the global generators are afterwards as before.
        """
        return LoadingSamples(self, source, keeps_generators)


class LoadingSamples:
    """Context in which a thread loads samples; can be entered again.

    What loads each batch sets the attributes, and `of_thread`, itself: that takes no calls where nothing draws.

    Attributes:
        source: The input.
        info: Position of the sample that is being loaded; None before the first one.
        kept: Restores the global generators when it is closed; None where they were not seeded.
    """

    __slots__ = ("_keeps_generators", "_outer", "_seeds", "info", "kept", "source")

    def __init__(self, seeds: SampleSeeds, source: Any, keeps_generators: bool) -> None:
        """Set up; see `SampleSeeds.loading`."""
        self.source = source
        self.info: types.SampleInfo | None = None
        self.kept: contextlib.ExitStack | None = None
        self._seeds = seeds
        self._keeps_generators = keeps_generators
        self._outer: LoadingSamples | None = None

    def __enter__(self) -> None:
        self._outer, of_thread.loading = of_thread.loading, self  # a data set may load with a loader itself

    def __exit__(self, *error: object) -> None:
        of_thread.loading = self._outer
        self.restore_generators()

    def restore_generators(self) -> None:
        """Give the global generators the state from before they were seeded, where that is to be kept."""
        kept, self.kept = self.kept, None
        if kept is not None:
            kept.close()

    def seed(self, *items: int) -> bool:
        """Seed the global generators for items of the sample; return whether the sample is known."""
        if self.info is None:
            return False
        if self._keeps_generators and self.kept is None:  # it takes 0.1 ms, so once per batch, where needed
            self.kept = contextlib.ExitStack()
            self.kept.enter_context(kept_global_generators())
        seeds = self._seeds
        place = place_at(self.source, self.info, seeds.shard, seeds.batch_size)
        seed_global_generators(
            derive_key("global", seeds.seed, place.epoch, place.sample_index, place.visit, *items)
        )
        return True


class _OfThread(threading.local):
    loading: LoadingSamples | None = None


of_thread = _OfThread()
"""What this thread loads."""


def note_sample(info: types.SampleInfo) -> None:
    """Note that this thread now loads the sample at a position."""
    if of_thread.loading is not None:
        of_thread.loading.info = info


def seed_by_sample(*items: int) -> bool:
    """Seed the global generators by the sample that this thread loads, and the numbers of items that make it up.

    Returns:
        Whether a sample is being loaded; if not, the generators are left alone.
    """
    loading = of_thread.loading
    return loading is not None and loading.seed(*items)


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
