"""Runs processing steps on samples that are trees of arrays."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from accvlab.dali_pipeline_framework import ImageDecoder, PipelineStepBase, SampleDataGroup
from accvlab.dali_pipeline_framework.sample_data.dtypes import get_dali_type_for_numpy_type
from accvlab.dali_pipeline_framework.testing import run_step
from step_pictures.scene import Tree

__all__ = ["decoded", "draws_of", "processed"]


def processed(samples: Sequence[Tree], steps: Sequence[PipelineStepBase], seed: int = 0) -> list[Tree]:
    """The samples after the steps; all of them are one batch of one pipeline."""
    runs = run_step(steps, [_sample(sample) for sample in samples], seed=seed)
    return [_tree(run.output) for run in runs]


def decoded(sample: Tree) -> Tree:
    """A sample with its images decoded, and nothing else done."""
    [tree] = processed([sample], [ImageDecoder("image", use_device_mixed=True)])
    return tree


def draws_of(sample: Tree, step: PipelineStepBase, num_draws: int, seed: int = 0) -> list[Tree]:
    """What a step makes of the decoded sample, drawn several times."""
    return processed([sample] * num_draws, [ImageDecoder("image", use_device_mixed=True), step], seed)


def _sample(tree: Tree) -> SampleDataGroup:
    sample = _blueprint(tree)
    _fill(sample, tree)
    return sample


def _blueprint(tree: Tree) -> SampleDataGroup:
    group = SampleDataGroup()
    for name, value in tree.items():
        if not isinstance(value, Mapping):
            group.add_data_field(name, get_dali_type_for_numpy_type(np.asarray(value).dtype))
        elif all(isinstance(inner, int) for inner in value):
            group.add_data_group_field_array(name, _blueprint(value[0]), len(value))
        else:
            group.add_data_group_field(name, _blueprint(value))
    return group


def _fill(group: Any, tree: Tree) -> None:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            _fill(group[name], value)
        else:
            group[name] = value


def _tree(group: SampleDataGroup) -> Tree:
    return {name: _tree(value) if isinstance(value, SampleDataGroup) else value for name, value in group.items()}
