"""Run steps in a bare DALI pipeline on one batch of values that a test writes down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import nvidia.dali.fn as fn
from nvidia.dali import pipeline_def

from accvlab.dali_pipeline_framework.pipeline import SampleDataGroup
from accvlab.dali_pipeline_framework.processing_steps import PipelineStepBase
from accvlab.dali_pipeline_framework.processing_steps.pipeline_step_base import RunWhere
from accvlab.dali_pipeline_framework.sample_data.graph_mode import do_not_convert
from support.arrays import ArrayProvider
from support.graphs import of_pipeline


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
    device_id: int | None = None,
    gpu_fields: Sequence[str] = (),
    conditionals: bool = False,
    seed: int = 1,
    run: RunWhere = "graph",
) -> BatchRun:
    """Run steps on one batch.

    Args:
        steps: One or several.
        fields: As those of an `ArrayProvider`: one value per sample.
        layouts: Layouts of fields, by flat name, of what goes in.
        device_id: GPU of the pipeline; None for none.
        gpu_fields: Flat names of fields that are on the GPU when the steps get them.
        conditionals: Whether DALI's conditionals are enabled.
        seed: Of DALI's generators.
        run: "workers" for the forms of the steps for arrays, with NumPy's global generator.
    """
    provider = ArrayProvider(fields)
    batch_size = provider.get_number_of_samples()
    samples = [provider.get_data(index).get_data() for index in range(batch_size)]
    blueprint = provider.sample_data_structure
    several = [steps] if isinstance(steps, PipelineStepBase) else [*steps]
    if run == "workers":
        return _on_arrays(several, blueprint, samples)
    names: list[str] = []

    sources = {
        name: [np.asarray(sample[position]) for sample in samples]
        for position, name in enumerate(blueprint.field_names_flat)
    }

    @do_not_convert
    def placed() -> SampleDataGroup:
        nodes = [fn.external_source(name=name) for name in sources]
        data = blueprint.get_empty_like_self()
        data.set_data(
            [node.gpu() if name in gpu_fields else node for name, node in zip(sources, nodes, strict=True)]
        )
        return data

    @pipeline_def(
        batch_size=batch_size, num_threads=1, device_id=device_id, seed=seed, enable_conditionals=conditionals
    )
    def bare() -> Any:
        data = placed()
        for step in several:
            data = step(data)
        names[:] = data.field_names_flat
        return tuple(data.get_data())

    def run_of(pipeline: Any) -> list[Any]:
        for name, values in sources.items():
            pipeline.feed_input(name, values, layout=(layouts or {}).get(name, ""))
        return [output.as_cpu() for output in pipeline.run()]

    outputs = of_pipeline(bare, run_of)
    return BatchRun(
        {
            name: [np.array(output.at(i)) for i in range(batch_size)]
            for name, output in zip(names, outputs, strict=True)
        },
        {name: output.layout() for name, output in zip(names, outputs, strict=True)},
    )


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
