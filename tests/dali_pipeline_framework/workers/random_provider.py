"""A data provider that draws its own random numbers; it imports PyTorch."""

from __future__ import annotations

import os
import random
import time

import numpy as np
import torch
from support.array_samples import group_of
from support.arrays import DT
from support.providers import IndexProvider

from accvlab.dali_pipeline_framework.pipeline import SampleDataGroup


class RandomProvider(IndexProvider):
    """Draws ``"drawn"`` with the global generators of Python, NumPy and PyTorch, and tells who drew."""

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        return group_of(index=DT.INT64, pid=DT.INT64, drawn=DT.FLOAT64)

    def get_data(self, sample_index: int) -> SampleDataGroup:
        time.sleep(0.02)  # so that all workers have something to do
        sample = self.sample_data_structure
        sample["index"] = sample_index
        sample["pid"] = os.getpid()
        sample["drawn"] = [random.random(), np.random.random(), torch.rand(()).item()]
        return sample
