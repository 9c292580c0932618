"""Runs a function on nodes of a graph, on arrays that a test writes down."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from nvidia.dali import fn
from nvidia.dali._utils import dali_trace
from nvidia.dali.pipeline import pipeline_def


@contextlib.contextmanager
def untraced() -> Iterator[None]:
    """Make graphs without the origins of operators, a third of the time, within a ``with`` statement.

    Messages about broken rules need the origins.
    """
    before = dali_trace.is_tracing_enabled()
    dali_trace.set_tracing(enabled=False)
    try:
        yield
    finally:
        dali_trace.set_tracing(enabled=before)


def of_pipeline(make: Callable[[], Any], use: Callable[[Any], Any]) -> Any:
    """What ``use`` gets of a pipeline that ``make`` makes: without origins, and with them where it fails."""
    with untraced():
        pipeline = make()
        pipeline.build()
    try:
        return use(pipeline)
    except RuntimeError:
        pipeline = make()
        pipeline.build()
        return use(pipeline)


def run_graph(
    function: Callable[..., Any], *columns: Sequence[np.ndarray], enable_conditionals: bool = False
) -> list[np.ndarray]:
    """Call a function with one node per column, of which each holds one array per sample; return its batch."""

    @pipeline_def(
        batch_size=len(columns[0]),
        num_threads=1,
        device_id=None,
        enable_conditionals=enable_conditionals,
        prefetch_queue_depth=1,
    )
    def graph() -> Any:
        return function(*[fn.external_source(_always(column), batch=True) for column in columns])

    return of_pipeline(graph, lambda pipeline: [np.array(sample) for sample in pipeline.run()[0]])


def _always(column: Sequence[np.ndarray]) -> Any:
    return lambda: [np.ascontiguousarray(array) if array.ndim else array for array in column]
