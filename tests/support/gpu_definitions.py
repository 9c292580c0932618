"""Graphs that are defined for a GPU, on machines without one: DALI's checks, and counts of operators.

DALI's backend checks each operator (arguments, devices of inputs) when a graph is handed to it; only building
needs a driver. A pipeline that was defined for a GPU and is handed over without its device id is checked in full.
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
import torch
from nvidia.dali import backend
from nvidia.dali.pipeline import Pipeline

from accvlab.dali_pipeline_framework.engine.dali import gpus
from accvlab.dali_pipeline_framework.operators import encoded_videos
from accvlab.dali_pipeline_framework.pipeline import pipeline_making

# Operators of DALI's graph that only carry data.
_CARRIERS = (
    "ExternalSource",
    "_ExternalSource",
    "Constant",
    "_conditional__Split",
    "_conditional__Merge",
    "_Tensor",
)


def pretend_gpus(
    monkeypatch: pytest.MonkeyPatch,
    count: int = 1,
    capability: tuple[int, int] = (8, 9),
    driver_cuda: int = 13000,
    has_video: bool = True,
) -> None:
    """Have the package find that many GPUs; pipelines can be defined for them, not built."""
    facts = gpus.GpuFacts((capability,) * count, driver_cuda, has_video)
    for module in (gpus, encoded_videos):
        monkeypatch.setattr(module, "gpu_facts", lambda: facts)
    monkeypatch.setattr(torch.version, "cuda", "12.8")


@attrs.frozen
class GraphCounts:
    """Operators of a graph.

    Attributes:
        names: How often each operator is in the graph, by device (``"cpu"``, ``"gpu"``, ``"mixed"``) and name.
        outputs: Devices of the outputs.
    """

    names: collections.Counter[tuple[str, str]]
    outputs: list[str]

    def on(self, *devices: str) -> int:
        """Number of operators on some of the devices."""
        return sum(count for (device, _), count in self.names.items() if device in devices)

    @property
    def computing_on_cpu(self) -> int:
        """Number of operators on the CPU that compute: not sources, constants, or views."""
        return sum(
            count
            for (device, name), count in self.names.items()
            if device == "cpu" and not name.startswith(_CARRIERS)
        )

    @property
    def num_by_device(self) -> tuple[int, int, int]:
        """Number of operators that compute on the CPU, of those on the GPU, and of those on both ("mixed")."""
        return self.computing_on_cpu, self.on("gpu"), self.on("mixed")

    @property
    def num_decoders(self) -> int:
        """Number of image decoders."""
        return sum(
            count for (_, name), count in self.names.items() if name.startswith(("decoders__", "ImageDecoder"))
        )


# Functions of Python are in no file; by then, all operators have been accepted.
_NO_FILE = "Could not serialize the operator"


def checked_by_dali(pipeline: Pipeline) -> GraphCounts:
    """Hand a pipeline that was defined for a GPU to DALI's backend.

    Raises:
        RuntimeError: DALI refuses an operator.
        AssertionError: Operators do not exist on the device that they are defined for.
    """
    assert pipeline._device_id is not None
    counts = counts_of(pipeline)
    missing = {name for device, name in counts.names if device == "gpu"} - {*backend.RegisteredGPUOps()}
    missing |= {name for device, name in counts.names if device == "mixed"} - {*backend.RegisteredMixedOps()}
    if missing:
        raise AssertionError(f"DALI does not have for the GPU: {', '.join(sorted(missing))}")
    pipeline._device_id = None
    pipeline._init_pipeline_backend()
    try:
        pipeline.serialize()
    except RuntimeError as error:
        if _NO_FILE not in str(error):
            raise
    return counts


def counts_of(pipeline: Pipeline) -> GraphCounts:
    """Count the operators of a pipeline, which may be for the CPU."""
    if not pipeline._py_graph_built:
        pipeline._build_graph()
    return GraphCounts(
        collections.Counter(_operators(pipeline)), [node.device for node in pipeline._graph_outputs]
    )


def _operators(pipeline: Any) -> Iterator[tuple[str, str]]:
    for operator in pipeline._ops:
        device = operator.outputs[0].device if operator.outputs else "cpu"
        yield (
            "mixed" if getattr(operator._op, "device", device) == "mixed" else device,
            getattr(operator._op, "schema_name", type(operator._op).__name__),
        )


def define_for_gpus_as_well(note: Callable[[GraphCounts], None]) -> None:
    """Have each pipeline that is made for the CPU be defined for a GPU as well, and handed to DALI.

    Args:
        note: Called with what the graphs consist of.
    """
    make = pipeline_making.make_pipeline

    def made(chain: Any, arguments: dict[str, Any], *others: Any, **more: Any) -> Pipeline:
        refusal = None
        if arguments.get("device_id") is None and not arguments.get("debug"):
            with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(None):
                pretend_gpus(patch)
                try:
                    twin = make(chain, {**arguments, "device_id": 0}, *others, **more)
                    note(checked_by_dali(twin))
                    twin.close()  # type: ignore[attr-defined]
                except Exception as error:
                    refusal = error
        pipeline = make(chain, arguments, *others, **more)  # where it is refused as well, that is what counts
        if refusal is not None:
            raise AssertionError(f"What the CPU can do, a GPU cannot: {refusal}") from refusal
        return pipeline

    pipeline_making.make_pipeline = made
