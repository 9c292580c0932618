"""Runs processing steps on samples that are trees of arrays."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from nvidia.dali.types import DALIDataType

from accvlab.dali_pipeline_framework.inputs import DataProvider, ShuffledShardedInputCallable
from accvlab.dali_pipeline_framework.pipeline import (
    DALIStructuredOutputIterator,
    PipelineDefinition,
    SampleDataGroup,
)
from accvlab.dali_pipeline_framework.processing_steps import ImageDecoder, PipelineStepBase
from step_pictures.scene import Tree

__all__ = ["decoded", "draws_of", "processed"]

_TYPE_OF = {
    "uint8": DALIDataType.UINT8,
    "int32": DALIDataType.INT32,
    "float32": DALIDataType.FLOAT,
    "float64": DALIDataType.FLOAT64,
    "bool": DALIDataType.BOOL,
}


class _Trees(DataProvider):
    """A data set of trees of the same names."""

    def __init__(self, samples: Sequence[Tree]) -> None:
        self._samples = samples

    def get_number_of_samples(self) -> int:
        return len(self._samples)

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        return _blueprint(self._samples[0])

    def get_data(self, sample_index: int) -> SampleDataGroup:
        sample = self.sample_data_structure
        _fill(sample, self._samples[sample_index])
        return sample


def processed(samples: Sequence[Tree], steps: Sequence[PipelineStepBase], seed: int = 0) -> list[Tree]:
    """The samples after the steps; all of them are one batch of one pipeline."""
    data_input = ShuffledShardedInputCallable(_Trees(samples), len(samples))
    pipeline = PipelineDefinition(data_input, steps).get_dali_pipeline(py_num_workers=0, num_threads=1, seed=seed)
    with DALIStructuredOutputIterator(pipeline=pipeline, output_type="numpy", ragged="list") as loader:
        [batch] = loader
    return [_of_sample(batch, number) for number in range(len(samples))]


def decoded(sample: Tree) -> Tree:
    """A sample with its images decoded, and nothing else done."""
    [tree] = processed([sample], [ImageDecoder("image", use_device_mixed=True)])
    return tree


def draws_of(sample: Tree, step: PipelineStepBase, num_draws: int, seed: int = 0) -> list[Tree]:
    """What a step makes of the decoded sample, drawn several times."""
    return processed([sample] * num_draws, [ImageDecoder("image", use_device_mixed=True), step], seed)


def _blueprint(tree: Tree) -> SampleDataGroup:
    group = SampleDataGroup()
    for name, value in tree.items():
        if isinstance(value, Mapping) and all(isinstance(inner, int) for inner in value):
            group.add_data_group_field_array(name, _blueprint(value[0]), len(value))
        elif isinstance(value, Mapping):
            group.add_data_group_field(name, _blueprint(value))
        else:
            group.add_data_field(name, _TYPE_OF[np.asarray(value).dtype.name])
    return group


def _fill(group: Any, tree: Tree) -> None:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            _fill(group[name], value)
        else:
            group[name] = value


def _of_sample(batch: Any, number: int) -> Tree:
    return {
        name: _of_sample(value, number) if isinstance(value, Mapping) else value[number]
        for name, value in batch.items()
    }
