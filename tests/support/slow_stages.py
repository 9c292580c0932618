"""Pipelines of which one stage is slow, on purpose, and loops that take their time."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from nvidia.dali import fn, types

from accvlab.dali_pipeline_framework.draws import Draws
from accvlab.dali_pipeline_framework.inputs import DataProvider
from accvlab.dali_pipeline_framework.pipeline import SampleDataGroup
from accvlab.dali_pipeline_framework.processing_steps import PipelineStepBase
from accvlab.dali_pipeline_framework.processing_steps.wrappers.function_steps import ArrayStep
from support.array_samples import group_of

SLOW_S = 0.006
"""What the slow stage takes for a sample."""


class Disk(DataProvider):
    """Numbers that are read in a time of its own."""

    def __init__(self, seconds: float = 0.0, num_samples: int = 60, computes: bool = False) -> None:
        self.seconds = seconds
        self.num_samples = num_samples
        self.computes = computes

    def get_number_of_samples(self) -> int:
        return self.num_samples

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        return group_of(x=types.DALIDataType.FLOAT)

    def get_data(self, sample_index: int) -> SampleDataGroup:
        sample = self.sample_data_structure
        sample["x"] = np.full(1000, sample_index, np.float32)
        spend(self.seconds, self.computes)
        return sample


def spend(seconds: float, computes: bool = False) -> None:
    if computes:
        end = time.process_time() + seconds
        while time.process_time() < end:
            pass
    elif seconds:
        time.sleep(seconds)


class SlowInWorkers(ArrayStep):
    """A step on arrays that takes long."""

    def __init__(self, seconds: float = SLOW_S) -> None:
        self.seconds = seconds

    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        spend(self.seconds)
        return data


class SlowInGraph(PipelineStepBase):
    """A step of the graph that takes long: an operator that runs Python."""

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        def passed_on(x: Any) -> Any:
            time.sleep(SLOW_S)
            return x

        data["x"] = fn.python_function(data["x"], function=passed_on)
        return data

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        return data_empty
