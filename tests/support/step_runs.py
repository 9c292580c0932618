"""Runs one step on samples that a test writes down, in a bare DALI pipeline."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from nvidia.dali import fn
from nvidia.dali.pipeline import do_not_convert, pipeline_def

from accvlab.dali_pipeline_framework.sample_data import SampleDataGroup
from accvlab.dali_pipeline_framework.sample_data.dtypes import get_dali_type_for_numpy_type, transport_dtype
from support.graphs import of_pipeline

Tree = Mapping[str | int, Any]


def blueprint_of(sample: Tree) -> SampleDataGroup:
    """The format of a tree of dicts with arrays as leaves."""
    group = SampleDataGroup()
    for name, value in sample.items():
        if isinstance(value, Mapping):
            group.add_data_group_field(name, blueprint_of(value))
        else:
            group.add_data_field(name, get_dali_type_for_numpy_type(np.asarray(value).dtype))
    return group


def output_format(step: Any, sample: Tree) -> SampleDataGroup:
    """The format that a step declares for a sample."""
    return step.check_input_data_format_and_set_output_data_format(blueprint_of(sample))


def run_step(
    step: Any,
    samples: Sequence[Tree],
    *,
    enable_conditionals: bool = False,
    gpu: bool = False,
    layouts: dict[str, str] | None = None,
    in_turn: bool = False,
) -> list[dict[str | int, Any]]:
    """Apply a step to a batch of samples: trees of dicts with arrays as leaves, which come out as such.

    Types are checked against the declared format, and the layouts of the output are put into ``layouts``. With
    ``in_turn``, each sample is a batch of its own, one after the other through the same pipeline.
    """
    blueprint = blueprint_of(samples[0])
    columns = [
        [np.array(_at(sample, path), order="C") for sample in samples] for path in blueprint.format.flat_paths
    ]
    outputs: list[SampleDataGroup] = []

    @pipeline_def(
        batch_size=1 if in_turn else len(samples),
        num_threads=1,
        device_id=0 if gpu else None,
        enable_conditionals=enable_conditionals,
        prefetch_queue_depth=1,
    )
    def graph() -> tuple[Any, ...]:
        output = step(_sources(blueprint, columns, gpu, in_turn))
        outputs.append(output)
        return tuple(output.get_data())

    def use(pipeline: Any) -> list[dict[str | int, Any]]:
        sample_format = outputs[-1].format
        results = [_groups(outputs[-1]) for _ in samples]
        for part in [[result] for result in results] if in_turn else [results]:
            batches = [batch.as_cpu() for batch in pipeline.run()]
            assert [batch.dtype for batch in batches] == [
                transport_dtype(leaf.dtype) for leaf in sample_format.flat_leaves
            ]
            if layouts is not None:
                layouts.update(zip(sample_format.flat_names, (batch.layout() for batch in batches), strict=True))
            for path, batch in zip(sample_format.flat_paths, batches, strict=True):
                for result, value in zip(part, batch, strict=True):
                    _put(result, path, np.array(value))
        return results

    return of_pipeline(graph, use)


@do_not_convert
def _sources(
    blueprint: SampleDataGroup, columns: list[list[np.ndarray]], gpu: bool, in_turn: bool
) -> SampleDataGroup:
    data = blueprint.get_empty_like_self()
    source_of = _one_by_one if in_turn else _always
    nodes = [fn.external_source(source_of(column), batch=True) for column in columns]
    data.set_data([node.gpu() for node in nodes] if gpu else nodes)
    return data


def _always(column: list[np.ndarray]) -> Any:
    def get() -> list[np.ndarray]:
        return column

    return get


def _one_by_one(column: list[np.ndarray]) -> Any:
    values = itertools.cycle(column)  # DALI asks ahead

    def get() -> list[np.ndarray]:
        return [next(values)]

    return get


def _at(sample: Any, path: Sequence[str | int]) -> Any:
    for name in path:
        sample = sample[name]
    return sample


def _groups(group: SampleDataGroup) -> dict[str | int, Any]:
    """The tree without the data: also groups that have none."""
    children = group.items()
    return {name: _groups(child) if isinstance(child, SampleDataGroup) else None for name, child in children}


def _put(result: Any, path: Sequence[str | int], value: np.ndarray) -> None:
    for name in path[:-1]:
        result = result[name]
    result[path[-1]] = value


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


def check_laws(step: Any, samples: Sequence[Tree], **run: Any) -> list[dict[str | int, Any]]:
    """Run a step on a batch, and check what holds for every step that looks at one sample at a time.

    A batch of n gives what n batches of one give, also with conditionals; the step leaves the format that it is
    asked about as it is, can be pickled, and shows its settings.

    Returns:
        What comes out for the batch.
    """
    blueprint = blueprint_of(samples[0])
    before = blueprint.format
    declared = step.check_input_data_format_and_set_output_data_format(blueprint)
    assert blueprint.format.matches(before)
    found = run_step(step, samples, **run)
    assert blueprint_of(found[0]).type_matches(declared)
    for one, alone in zip(found, run_step(step, samples, in_turn=True, **run), strict=True):
        assert_same(alone, one)
    again = pickle.loads(pickle.dumps(step))
    assert repr(again) == repr(step)
    for one, other in zip(run_step(again, samples, enable_conditionals=True, **run), found, strict=True):
        assert_same(one, other)
    assert repr(step).startswith(f"{type(step).__name__}(")
    return found
