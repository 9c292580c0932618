"""Runs steps on one batch of values that a test writes down, in a bare DALI pipeline."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from nvidia.dali import fn, pipeline_def
from support.array_samples import sample_of
from support.arrays import ArrayProvider
from support.graphs import of_pipeline

from accvlab.dali_pipeline_framework import testing
from accvlab.dali_pipeline_framework.processing_steps import PipelineStepBase
from accvlab.dali_pipeline_framework.processing_steps.pipeline_step_base import RunWhere
from accvlab.dali_pipeline_framework.sample_data import SampleDataGroup
from accvlab.dali_pipeline_framework.sample_data.graph_mode import do_not_convert
from accvlab.dali_pipeline_framework.testing import StepRun

Tree = Mapping[str | int, Any]


@attrs.frozen
class BatchRun:
    """What came out of one batch: by flat name a list with one array per sample, and the layouts."""

    values: dict[str, list[np.ndarray]]
    layouts: dict[str, str]

    def __getitem__(self, name: str) -> list[np.ndarray]:
        return self.values[name]


def run_steps(
    steps: PipelineStepBase | Sequence[PipelineStepBase],
    fields: Mapping[str | int, Any],
    *,
    layouts: Mapping[str, str] | None = None,
    conditionals: bool = False,
    run: RunWhere = "graph",
) -> BatchRun:
    """Run steps on one batch.

    Args:
        steps: One or several.
        fields: As those of an `ArrayProvider`: one value per sample.
        layouts: Layouts of fields, by flat name, of what goes in.
        conditionals: Whether DALI's conditionals are enabled.
        run: "workers" for the forms of the steps for arrays, with NumPy's global generator.
    """
    provider = ArrayProvider(fields)
    samples = [provider.get_data(index).get_data() for index in range(provider.get_number_of_samples())]
    several = [steps] if isinstance(steps, PipelineStepBase) else [*steps]
    if run == "workers":
        return _on_arrays(several, provider.sample_data_structure, samples)
    output, [batch] = _in_graph(several, provider.sample_data_structure, [samples], conditionals, layouts or {})
    names = output.field_names_flat
    return BatchRun(
        {name: values for name, (values, _, _) in zip(names, batch, strict=True)},
        {name: layout for name, (_, layout, _) in zip(names, batch, strict=True)},
    )


def _in_graph(
    steps: Sequence[Any],
    blueprint: SampleDataGroup,
    batches: Sequence[Sequence[Sequence[Any]]],
    conditionals: bool,
    layouts: Mapping[str, str],
) -> tuple[SampleDataGroup, list[list[tuple[list[np.ndarray], str, Any]]]]:
    """Run steps on batches; return the group of nodes, and per batch and field the values, layout and type."""
    names = blueprint.field_names_flat
    columns = [
        [[np.asarray(value) for value in column] for column in zip(*batch, strict=True)] for batch in batches
    ]
    outputs: list[SampleDataGroup] = []

    @do_not_convert
    def placed() -> SampleDataGroup:
        data = blueprint.get_empty_like_self()
        nodes = []
        for name, of_batches in zip(names, zip(*columns, strict=True), strict=True):
            nodes.append(fn.external_source(_in_turn(of_batches), batch=True, layout=layouts.get(name)))
        data.set_data(nodes)
        return data

    @pipeline_def(
        batch_size=len(batches[0]),
        num_threads=1,
        prefetch_queue_depth=1,
        device_id=None,
        enable_conditionals=conditionals,
        seed=1,
    )
    def bare() -> tuple[Any, ...]:
        data = placed()
        for step in steps:
            data = step(data)
        outputs[:] = [data]
        return tuple(data.get_data())

    def run(pipeline: Any) -> list[Any]:
        found = []
        for _ in batches:
            fields = [field.as_cpu() for field in pipeline.run()]
            found.append([([np.array(value) for value in each], each.layout(), each.dtype) for each in fields])
        return found

    results = of_pipeline(bare, run)
    return outputs[0], results


def _in_turn(batches: Sequence[Any]) -> Callable[[], Any]:
    values = itertools.cycle(batches)  # DALI asks ahead
    return lambda: next(values)


def _on_arrays(steps: Sequence[PipelineStepBase], blueprint: SampleDataGroup, samples: Sequence[Any]) -> BatchRun:
    outputs = []
    for values in samples:
        data = blueprint.get_empty_like_self()
        data.set_data(values)
        for step in steps:
            data = step(data)
        outputs.append(data)
    names = outputs[0].field_names_flat
    columns = zip(*(data.get_data() for data in outputs), strict=True)
    return BatchRun(dict(zip(names, map(list, columns), strict=True)), {})


def blueprint_of(sample: Tree) -> SampleDataGroup:
    """The format of a tree of dicts with arrays as leaves."""
    return sample_of(sample).get_empty_like_self()


def output_format(step: Any, sample: Tree) -> SampleDataGroup:
    """The format that a step declares for a sample."""
    return step.check_input_data_format_and_set_output_data_format(blueprint_of(sample))


def run_step(
    step: Any,
    samples: Sequence[Tree],
    *,
    enable_conditionals: bool = False,
    in_turn: bool = False,
) -> list[dict[str | int, Any]]:
    """Apply one step, or several, to a batch of samples: trees of dicts with arrays as leaves; return such trees.

    Types are checked against the declared format. With ``in_turn``, each sample is a batch of its own, one after
    the other through the same pipeline.
    """
    blueprint = blueprint_of(samples[0])
    paths = blueprint.format.flat_paths
    values = [[np.array(_at(sample, path), order="C") for path in paths] for sample in samples]
    batches = [[each] for each in values] if in_turn else [values]
    output, found = _in_graph(
        step if isinstance(step, list) else [step], blueprint, batches, enable_conditionals, {}
    )
    results = []
    for batch, given in zip(found, batches, strict=True):
        dtypes = [leaf.transport_dtype for leaf in output.format.flat_leaves]
        assert [dtype for _, _, dtype in batch] == dtypes
        for slot in range(len(given)):
            results.append(_groups(output))
            for path, (of_field, _, _) in zip(output.format.flat_paths, batch, strict=True):
                _put(results[-1], path, of_field[slot])
    return results


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


def assert_forms_agree(step: Any, images: Sequence[np.ndarray], layout: str = "", **run: Any) -> list[StepRun]:
    """Change images in a graph, and as parts of larger arrays by the same draws; return the runs of the graph."""
    samples = [sample_of({"image": image}) for image in images]
    parts = [np.pad(image, 1)[(slice(1, -1),) * image.ndim] for image in images]
    in_graph = testing.run_step(step, samples, layouts={"image": layout} if layout else None, **run)
    on_arrays = testing.run_step(
        step,
        [sample_of({"image": part}) for part in parts],
        draws=[each.draws for each in in_graph],
        run="workers",
    )
    for one, other in zip(in_graph, on_arrays, strict=True):
        expected, found = one.output["image"], other.output["image"]
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        white = 255.0 if expected.dtype.kind in "iu" else 1.0
        difference = np.abs(found.astype(np.float64) - expected).max(initial=0)
        assert difference <= step.image_tolerance * white
    return in_graph


def assert_laws(step: Any, samples: Sequence[Tree], **run: Any) -> list[dict[str | int, Any]]:
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
