"""Data providers of the runs in a Ray cluster."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
from support.array_samples import group_of
from support.arrays import DT
from support.providers import IndexProvider

from accvlab.dali_pipeline_framework.pipeline import SampleDataGroup


class TimedProvider(IndexProvider):
    """Sample ``i`` is the number ``i`` and an array of it; each takes a time."""

    def __init__(self, num_samples: int, seconds: float, shape: tuple[int, ...] = (8, 8)) -> None:
        super().__init__(num_samples)
        self._seconds, self._shape = seconds, shape

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        return group_of(index=DT.INT64, array=DT.INT32)

    def get_data(self, sample_index: int) -> SampleDataGroup:
        time.sleep(self._seconds)
        sample = self.sample_data_structure
        sample["index"] = sample_index
        sample["array"] = np.full(self._shape, sample_index, np.int32)
        return sample


class SignedProvider(TimedProvider):
    """Samples have the number of the process that has loaded them as well."""

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        return group_of(index=DT.INT64, array=DT.INT32, loaded_by=DT.INT64)

    def get_data(self, sample_index: int) -> SampleDataGroup:
        sample = super().get_data(sample_index)
        sample["loaded_by"] = os.getpid()
        return sample


class DeadlyProvider(TimedProvider):
    """One sample ends the process that loads it, or blocks it."""

    def __init__(self, num_samples: int, bad_sample: int, blocks: bool) -> None:
        super().__init__(num_samples, 0.0)
        self._bad_sample, self._blocks = bad_sample, blocks

    def get_data(self, sample_index: int) -> SampleDataGroup:
        if sample_index == self._bad_sample:
            while self._blocks:
                time.sleep(1000)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().get_data(sample_index)


class HeavyProvider(IndexProvider):
    """Has so many bytes in memory."""

    def __init__(self, num_bytes: int) -> None:
        super().__init__()
        self.memory = bytes(num_bytes)
