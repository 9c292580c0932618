# SPDX-License-Identifier: Apache-2.0
"""Checks of settings."""

from __future__ import annotations

import operator
from typing import SupportsIndex

from .errors import SettingError

MOST_SAMPLES = 2**62  # so that positions, also some way behind the last sample, stay within int64


def whole_number(
    value: SupportsIndex, name: str, *, at_least: int, at_most: int | None = None, advice: str = ""
) -> int:
    """Return ``value`` as an int, or raise a `SettingError` that names the argument and the rule.

    Args:
        value: What was given.
        name: Name of the argument.
        at_least: Least allowed value.
        at_most: Largest allowed value, a power of two; None where there is none.
        advice: What the message says besides.

    Returns:
        The number.

    Raises:
        SettingError: It is not a whole number, or out of range.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or number < at_least:
        rule = f"`{name}` must be a whole number of at least {at_least}, got {value!r}."
        raise SettingError(f"{rule} {advice}".rstrip())
    if at_most is not None and number > at_most:
        raise SettingError(f"`{name}` must be at most 2**{at_most.bit_length() - 1}, got {value!r}.")
    return number


def check_shard(shard_id: SupportsIndex, num_shards: SupportsIndex) -> tuple[int, int]:
    """Return the two as ints, or raise a `SettingError` where the shard is not one of the shards."""
    shards = whole_number(num_shards, "num_shards", at_least=1)
    shard = whole_number(shard_id, "shard_id", at_least=0)
    if shard >= shards:
        raise SettingError(
            f"`shard_id` must be in [0, {shards - 1}] with `num_shards={shards}`, got {shard}. "
            f"Shards are counted from 0: usually `shard_id` is the rank and `num_shards` the world size."
        )
    return shard, shards
