"""Short ways to make and read pipelines.

Scripts and spawned workers import this, so it imports no more than it needs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from accvlab.dali_pipeline_framework.inputs import ShuffledShardedInputCallable
from accvlab.dali_pipeline_framework.pipeline import DALIStructuredOutputIterator, PipelineDefinition
from support.child_processes import worker_pids as worker_pids


def make_iterator(
    data_input: Any,
    steps: Iterable[Any] = (),
    definition: dict[str, Any] | None = None,
    iterator: dict[str, Any] | None = None,
    *,
    in_graph: bool = False,
    **pipeline: Any,
) -> DALIStructuredOutputIterator:
    """Make an iterator with NumPy output; one forked worker unless told otherwise.

    ``in_graph``: whether steps run in the graph as a whole, and not their operators on pixels alone.
    """
    pipeline = {"num_threads": 2, "py_num_workers": 1, **pipeline}
    if in_graph:
        steps = [step.with_run("graph") for step in steps]
    made = PipelineDefinition(data_input, [*steps], **(definition or {})).get_dali_pipeline(**pipeline)
    return DALIStructuredOutputIterator(None, made, **{"output_type": "numpy", **(iterator or {})})


def shuffled(provider: Any, batch_size: int = 4, **arguments: Any) -> ShuffledShardedInputCallable:
    """Input that delivers the samples in order unless told otherwise."""
    return ShuffledShardedInputCallable(provider, batch_size, **arguments)


def indices(iterator: Iterable[Any], max_batches: int | None = None) -> list[list[int]]:
    """The field ``index`` of each batch."""
    batches = []
    for batch in iterator:
        batches.append(np.asarray(batch["index"]).tolist())
        if len(batches) == max_batches:
            break
    return batches
