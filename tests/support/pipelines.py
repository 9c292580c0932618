"""Short ways to make and read pipelines."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import numpy as np
import psutil

from accvlab.dali_pipeline_framework.inputs import ShuffledShardedInputCallable
from accvlab.dali_pipeline_framework.pipeline import DALIStructuredOutputIterator, PipelineDefinition

START_METHODS = ("fork", "spawn")


def make_iterator(
    data_input: Any,
    steps: Iterable[Any] = (),
    definition: dict[str, Any] | None = None,
    iterator: dict[str, Any] | None = None,
    **pipeline: Any,
) -> DALIStructuredOutputIterator:
    """Make an iterator with NumPy output; two forked workers unless told otherwise."""
    pipeline = {"num_threads": 2, "py_num_workers": 2, **pipeline}
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


def worker_pids() -> list[int]:
    """Children of this process that are alive, without the resource tracker of `multiprocessing`."""
    return [child.pid for child in psutil.Process(os.getpid()).children(recursive=True) if _is_worker(child)]


def _is_worker(child: psutil.Process) -> bool:
    try:
        is_tracker = any("resource_tracker" in part for part in child.cmdline())
        return child.status() != psutil.STATUS_ZOMBIE and not is_tracker
    except psutil.NoSuchProcess:
        return False
