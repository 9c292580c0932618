# SPDX-License-Identifier: Apache-2.0
"""Checks of arguments that several inputs share."""

from __future__ import annotations

import operator
from typing import SupportsIndex

from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.inputs.data_provider import DataProvider
from accvlab.dali_pipeline_framework.inputs.sampler_base import SamplerBase

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


def check_number_of_samples(provider: DataProvider) -> int:
    """Number of samples of a data set, or a `SettingError` where there is none."""
    if isinstance(provider, type):
        raise SettingError(f"The data provider must be an object, got the class {provider.__name__}.")
    if not hasattr(provider, "get_number_of_samples"):
        raise SettingError(
            f"The data provider must be a DataProvider, got {type(provider).__name__}. (Native readers and "
            f"streams are inputs themselves: give them to the PipelineDefinition.)"
        )
    count = provider.get_number_of_samples()
    if count < 1:
        raise SettingError(
            f"The data set is empty: {type(provider).__name__}.get_number_of_samples() returned {count}. "
            f"Check its path and filters."
        )
    return int(count)


def check_sampler_fits(sampler: SamplerBase, num_samples: int) -> None:
    """Raise a `SettingError` where a sampler tells that it chooses from more samples than the data set has."""
    expected = getattr(sampler, "num_samples", None)
    if isinstance(expected, int) and expected > num_samples:
        raise SettingError(
            f"The {type(sampler).__name__} is set up for {expected} samples, but the data set has only "
            f"{num_samples}. Its sequence lengths, weights, or number of samples must be those of this data set."
        )
