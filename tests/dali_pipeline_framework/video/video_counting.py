"""A provider that tells what its process has decoded."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
from nvidia.dali import types

from accvlab.dali_pipeline_framework.inputs import DataProvider
from accvlab.dali_pipeline_framework.pipeline import SampleDataGroup
from accvlab.dali_pipeline_framework.providers import Windows
from accvlab.dali_pipeline_framework.video import VideoFrameDataProvider


class CountingProvider(DataProvider):
    """Adds ``counts``, ``(4,)`` int64: process, frames delivered, decoded, and seeks until now.

    With a folder to meet in, processes deliver nothing before there are as many of them as given.
    """

    def __init__(
        self,
        provider: Windows | VideoFrameDataProvider,
        meeting: Path | None = None,
        num_processes: int = 1,
    ) -> None:
        self.provider = provider
        self._meeting, self._num_processes = meeting, num_processes

    def _meet(self, limit_s: float = 60.0) -> None:
        if self._meeting is None:
            return
        (self._meeting / str(os.getpid())).touch()
        end = time.monotonic() + limit_s
        while len([*self._meeting.iterdir()]) < self._num_processes:
            assert time.monotonic() < end, "the other processes get nothing to load"
            time.sleep(0.01)

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        blueprint = self.provider.sample_data_structure
        blueprint.add_data_field("counts", types.DALIDataType.INT64)
        return blueprint

    def get_number_of_samples(self) -> int:
        return self.provider.get_number_of_samples()

    def get_data(self, sample_index: int) -> SampleDataGroup:
        self._meet()
        data = list(self.provider.get_data(sample_index).get_data())
        statistics = self.provider.statistics
        sample = self.sample_data_structure
        counts = [os.getpid(), statistics.num_delivered, statistics.num_decoded, statistics.num_seeks]
        sample.set_data([*data, np.array(counts, np.int64)])
        return sample
