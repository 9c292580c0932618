# SPDX-License-Identifier: Apache-2.0
"""Checks of arguments that several inputs share."""

from __future__ import annotations

from ..checks import check_shard, whole_number
from ..errors import SettingError
from ..sampling.sampler_base import SamplerBase
from .data_provider import DataProvider

__all__ = ["MOST_SAMPLES", "check_number_of_samples", "check_sampler_fits", "check_shard", "whole_number"]

MOST_SAMPLES = 2**62  # so that positions, also some way behind the last sample, stay within int64


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
