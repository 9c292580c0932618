"""Providers whose samples take a time that is known, by waiting or by computing."""

from __future__ import annotations

import random

import numpy as np

from accvlab.dali_pipeline_framework.sample_data import SampleDataGroup
from support.providers import IndexProvider
from support.slow_stages import spend


class WaitingProvider(IndexProvider):
    """Waits for each sample, without a processor."""

    seconds = 0.02

    def get_data(self, sample_index: int) -> SampleDataGroup:
        spend(self.seconds)
        return super().get_data(sample_index)


class ComputingProvider(IndexProvider):
    """Computes for each sample."""

    seconds = 0.003

    def get_data(self, sample_index: int) -> SampleDataGroup:
        spend(self.seconds, computes=True)
        return super().get_data(sample_index)


class DrawingProvider(IndexProvider):
    """Draws from the global generators, and notes that it was used."""

    num_loaded = 0

    def get_data(self, sample_index: int) -> SampleDataGroup:
        self.num_loaded += 1
        random.random()
        np.random.random()
        return super().get_data(sample_index)
