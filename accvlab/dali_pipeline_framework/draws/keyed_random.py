# SPDX-License-Identifier: Apache-2.0
"""Random numbers that are a function of a key and a counter, instead of the next ones of a generator.

Number ``i`` of a key is output ``i`` of the generator SplitMix64 (Steele, Lea, Flood: "Fast splittable
pseudorandom number generators", 2014) started at the key: ``mix(key + (i + 1) * gamma)``. No state is kept,
so any number can be asked for at any time, in any process, and is the same everywhere. Keys are hashes of
what they stand for, so that different things get unrelated numbers.
"""

from __future__ import annotations

import operator

import numpy as np
import numpy.typing as npt

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
