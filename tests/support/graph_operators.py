"""Which operators of a graph DALI has for the CPU only, told without a GPU."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nvidia.dali import backend


def missing_on_the_gpu(nodes: Iterable[Any]) -> list[str]:
    """Get the names of operators that are to run on the GPU and do not exist there, of those that lead to nodes.

    DALI notices them when a pipeline is built, which needs a GPU; inputs on the wrong device it notices before.
    """
    operators: dict[int, Any] = {}
    waiting = [*nodes]
    while waiting:
        operator = waiting.pop().source
        if operator is not None and id(operator) not in operators:
            operators[id(operator)] = operator
            waiting.extend(operator.inputs)
    on_gpu = [each for each in operators.values() if each.outputs and each.outputs[0].device == "gpu"]
    names = {each._op.schema.Name() for each in on_gpu if hasattr(each._op, "schema")}
    return sorted(names - {*backend.RegisteredGPUOps()})
