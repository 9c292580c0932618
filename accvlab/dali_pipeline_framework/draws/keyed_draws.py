# SPDX-License-Identifier: Apache-2.0
"""Keys of random numbers, the places of samples, and seeds of the global generators; without DALI.

A random number is a function of a 64-bit key and a counter. Keys are hashes of what a number depends on.
"""

from __future__ import annotations

import contextlib
import operator
import random
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import attrs
import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from nvidia.dali import types

Int64Array = npt.NDArray[np.int64]
UInt64Array = npt.NDArray[np.uint64]
_T = TypeVar("_T")

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

    return int.from_bytes(hashlib.blake2b(b"".join(parts), digest_size=8).digest(), "little")


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
    steps = np.asarray(counters).astype(np.uint64) + _ONE
    steps *= _GAMMA
    return mix(steps + np.asarray(key, dtype=np.uint64))


def random_uniform(key: int | UInt64Array, counters: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Get a random number in ``[0, 1)`` for each counter of a key, as float64 with 53 random bits."""
    bits = random_bits(key, counters) >> _BITS_BELOW_DOUBLE
    return bits.astype(np.float64) * 2.0**-53


def digest(array: npt.NDArray[np.generic]) -> str:
    """Make a short text that distinguishes arrays of different values: 12 hexadecimal digits."""
    return f"{hash_bytes(np.ascontiguousarray(array).tobytes()) & 0xFFFFFFFFFFFF:012x}"


class SamplePlace(NamedTuple):
    """Place of a sample in the order: epoch, batch and slot, with the sample that is delivered there.

    Attributes:
        epoch: Epoch, from 0. With an endless sampler always 0, also with ``steps_per_epoch``.
        batch: Batch in the epoch, from 0.
        slot: Slot of the global batch (all shards together), from 0.
        sample_index: Index of the sample in the data set.
        sequence: Sequence of the data set that the sample belongs to, or -1 for samplers without sequences.
        frame: Number of the sample in its sequence, from 0, or -1 for samplers without sequences.
        is_first: Whether the slot begins a sequence, or a segment of one, with this sample.
            True on padding, and on the sample that follows it in the slot: nothing may be carried over.
        is_last: Whether the slot ends the sequence or segment with this sample; True on padding.
        is_padding: Whether the sample only fills the slot: it repeats another one and is not to be counted.
        visit: Distinguishes several deliveries of a sample (or sequence) in the same epoch.
    """

    epoch: int
    batch: int
    slot: int
    sample_index: int
    sequence: int = -1
    frame: int = -1
    is_first: bool = False
    is_last: bool = False
    is_padding: bool = False
    visit: int = 0


@contextlib.contextmanager
def kept_global_generators(seed: int | None = None) -> Iterator[None]:
    """Restore the global generators after a ``with`` statement; with a seed, seed them at its beginning.

    For code of others that draws from them, so that what it draws depends on the seed only. Of PyTorch, where it
    was imported, it is the generator of the CPU.

    Example:
        >>> with kept_global_generators(5):
        ...     first = random.random(), np.random.rand()
        >>> with kept_global_generators(5):
        ...     first == (random.random(), np.random.rand())
        True
    """
    kept = _GlobalGenerators.now()
    try:
        if seed is not None:
            seed_global_generators(seed)
        yield
    finally:
        try:
            kept.restore()
        except BaseException:  # of a signal handler
            kept.restore()
            raise


class _GlobalGenerators(NamedTuple):
    """States of the global generators."""

    of_python: Any
    of_numpy: Any
    torch: Any
    of_torch: Any

    @classmethod
    def now(cls) -> _GlobalGenerators:
        """Get the present states; of PyTorch, where it was imported, that of the CPU."""
        torch = sys.modules["torch"].default_generator if "torch" in sys.modules else None
        return cls(random.getstate(), np.random.get_state(), torch, torch and torch.get_state())

    def restore(self) -> None:
        """Give the generators these states."""
        random.setstate(self.of_python)
        np.random.set_state(self.of_numpy)
        if self.torch is not None:
            self.torch.set_state(self.of_torch)


def seed_global_generators(seed: int) -> None:
    """Seed the global generators with a number of at least 0; NumPy takes its lowest 32 bits."""
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
    if "torch" in sys.modules:  # `torch.manual_seed` would care for GPUs, too
        sys.modules["torch"].default_generator.manual_seed(seed)


@attrs.frozen
class SampleSeeds:
    """Values on which draws and seeds depend, apart from the sample.

    Attributes:
        seed: Seed of the pipeline.
        shard: Shard id and number of shards of the input.
        batch_size: Samples per batch on this shard. Together with the shard it gives the position of a sample
            among the samples of all shards, which is its index where the input knows neither place nor index.
    """

    seed: int = 0
    shard: tuple[int, int] = (0, 1)
    batch_size: int = 1

    def place_of(self, source: Any, info: types.SampleInfo) -> SamplePlace:
        """Get the place of the sample at a position of an input, among the samples of this shard.

        Where the input knows neither place (``get_place``) nor index (``get_sample_index``), the position in the
        epoch of all shards is the index. Of an endless input with an index, that position is the visit.
        """
        get_place = getattr(source, "get_place", None)
        place: SamplePlace | None = None if get_place is None else get_place(info)
        if place is not None:
            return place
        get_index = getattr(source, "get_sample_index", None)
        index: int | None = None if get_index is None else get_index(info)
        # The batches of all shards follow each other:
        # num_shards = 2, batch_size = 2:   shard 0: 0 1   shard 1: 2 3   shard 0: 4 5   shard 1: 6 7  ...
        shard_id, num_shards = self.shard
        position = info.idx_in_epoch + (info.iteration * (num_shards - 1) + shard_id) * self.batch_size
        where = info.epoch_idx, info.iteration, info.idx_in_batch
        if index is None:
            return SamplePlace(*where, position)
        return SamplePlace(*where, index, visit=0 if getattr(source, "has_epochs", True) else position)


@attrs.define(eq=False)
class LoadingSamples:
    """What a thread loads samples for.

    Attributes:
        seeds: What seeds depend on.
        source: The input.
        keeps_generators: Whether the global generators are afterwards as before.
        info: Position of the sample that is being loaded; None before the first one.
    """

    seeds: SampleSeeds
    source: Any
    keeps_generators: bool
    info: types.SampleInfo | None = None
    # The global generators as they were; None where they were not seeded.
    _kept: _GlobalGenerators | None = attrs.field(default=None, init=False)

    def run(self, load: Callable[[], _T]) -> _T:
        """Call a function that loads samples; it may use this again."""
        outer = of_thread.loading  # a data set may load with a loader itself
        # No `with` statement: a signal handler may raise when its `__exit__` begins.
        try:
            of_thread.loading = self
            return load()
        finally:
            of_thread.loading = outer
            try:
                self._restore()
            except BaseException:  # of a signal handler
                self._restore()
                raise

    def _restore(self) -> None:
        if self._kept is not None:
            self._kept.restore()
            self._kept = None

    def seed(self, *items: int) -> bool:
        """Seed the global generators for items of the sample; return whether the sample is known."""
        if self.info is None:
            return False
        if self.keeps_generators and self._kept is None:  # it takes 0.1 ms, so once per batch, where needed
            self._kept = _GlobalGenerators.now()
        place = self.seeds.place_of(self.source, self.info)
        key = derive_key("global", self.seeds.seed, place.epoch, place.sample_index, place.visit, *items)
        seed_global_generators(key)
        return True


class _OfThread(threading.local):
    loading: LoadingSamples | None = None


of_thread = _OfThread()
"""What this thread loads."""


def seed_by_sample(*items: int) -> bool:
    """Seed the global generators by the sample that this thread loads, and the numbers of items that make it up.

    Returns:
        Whether a sample is being loaded; if not, the generators are left alone.
    """
    loading = of_thread.loading
    return loading is not None and loading.seed(*items)
