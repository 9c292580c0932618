"""Runs steps on trees of arrays, in a bare pipeline of DALI, and on images in both forms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import nvidia.dali.fn as fn
from nvidia.dali.pipeline import pipeline_def
from support.array_samples import sample_of
from support.graphs import of_pipeline

from accvlab.dali_pipeline_framework import testing
from accvlab.dali_pipeline_framework.processing_steps import AxesLayoutSetter
from accvlab.dali_pipeline_framework.sample_data import SampleDataGroup
from accvlab.dali_pipeline_framework.sample_data.graph_mode import do_not_convert
from accvlab.dali_pipeline_framework.testing import StepRun

Tree = Mapping[str | int, Any]


def blueprint_of(sample: Tree) -> SampleDataGroup:
    """The format of a tree of dicts with arrays as leaves."""
    return sample_of(sample).get_empty_like_self()


def output_format(step: Any, sample: Tree) -> SampleDataGroup:
    """The format that a step declares for a sample."""
    return step.check_input_data_format_and_set_output_data_format(blueprint_of(sample))


def run_step(
    step: Any, samples: Sequence[Tree], *, enable_conditionals: bool = False
) -> list[dict[str | int, Any]]:
    """Apply one step, or several, to a batch of samples: trees of dicts with arrays as leaves; return such trees.

    Types are checked against the declared format.
    """
    several = step if isinstance(step, list) else [step]
    blueprint = blueprint_of(samples[0])
    columns = [
        [np.array(_at(sample, path), order="C") for sample in samples] for path in blueprint.format.flat_paths
    ]
    outputs: list[SampleDataGroup] = []

    @do_not_convert
    def placed() -> SampleDataGroup:
        data = blueprint.get_empty_like_self()
        data.set_data([fn.external_source(_always(column), batch=True) for column in columns])
        return data

    @pipeline_def(
        batch_size=len(samples),
        num_threads=1,
        prefetch_queue_depth=1,
        device_id=None,
        enable_conditionals=enable_conditionals,
        seed=1,
    )
    def bare() -> tuple[Any, ...]:
        data = placed()
        for each in several:
            data = each(data)
        outputs[:] = [data]
        return tuple(data.get_data())

    found = of_pipeline(
        bare, lambda pipeline: [(field.dtype, [*map(np.array, field)]) for field in pipeline.run()]
    )
    [output] = outputs
    assert [dtype for dtype, _ in found] == [leaf.transport_dtype for leaf in output.format.flat_leaves]
    results = [_groups(output) for _ in samples]
    for path, (_, values) in zip(output.format.flat_paths, found, strict=True):
        for result, value in zip(results, values, strict=True):
            _at(result, path[:-1])[path[-1]] = value
    return results


def _always(column: list[np.ndarray]) -> Any:
    return lambda: column


def _at(sample: Any, path: Sequence[str | int]) -> Any:
    for name in path:
        sample = sample[name]
    return sample


def _groups(group: SampleDataGroup) -> dict[Any, Any]:
    """The tree without the data: also groups that have none."""
    children = group.items()
    return {name: _groups(child) if isinstance(child, SampleDataGroup) else None for name, child in children}


def assert_same(found: Any, expected: Any) -> None:
    """Trees of arrays are equal bit by bit, types and shapes included."""
    if isinstance(expected, Mapping):
        assert list(found) == list(expected)
        for name in expected:
            assert_same(found[name], expected[name])
        return
    expected = np.asarray(expected)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tobytes() == expected.tobytes()


def assert_forms_agree(step: Any, images: Sequence[np.ndarray], layout: str = "", **run: Any) -> list[StepRun]:
    """Change images in a graph, and as parts of larger arrays by the same draws; return the runs of the graph."""
    steps = [AxesLayoutSetter("image", layout)] * bool(layout) + [step]
    samples = [sample_of({"image": image}) for image in images]
    parts = [sample_of({"image": np.pad(image, 1)[(slice(1, -1),) * image.ndim]}) for image in images]
    in_graph = testing.run_step(steps, samples, **run)
    on_arrays = testing.run_step(steps, parts, draws=[each.draws for each in in_graph], run="workers")
    for one, other in zip(in_graph, on_arrays, strict=True):
        expected, found = one.output["image"], other.output["image"]
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        white = 255.0 if expected.dtype.kind in "iu" else 1.0
        difference = np.abs(found.astype(np.float64) - expected).max(initial=0)
        assert difference <= step.image_tolerance * white
    return in_graph
