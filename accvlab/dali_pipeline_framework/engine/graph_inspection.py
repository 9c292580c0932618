# SPDX-License-Identifier: Apache-2.0
"""Which steps of a chain define operators that run on a GPU, or random operators beside their declared draws."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from nvidia.dali import backend
from nvidia.dali.data_node import DataNode

from ..errors import SettingError

INPUT = "the input"


class GraphInspection:
    """Attributes the operators of a graph, while it grows, to the steps that define them.

    Attributes:
        gpu_users: Names of steps, each with what it does on a GPU, in order.
        random_users: Names of steps, each with its random operators, in order: a record of the draws lacks them.
    """

    def __init__(self) -> None:
        """Start with an empty graph."""
        self.gpu_users: dict[str, dict[str, None]] = {}
        self.random_users: dict[str, dict[str, None]] = {}
        self._instances: dict[int, Any] = {}  # kept, so that no other one gets their ids
        self._seen: set[tuple[int, str]] = set()

    def note(self, step: str, values: Iterable[object], draws: Iterable[DataNode] = ()) -> None:
        """Attribute what is new in the graph to a step: its values, and the draws supplied so far.

        The step may be `INPUT`, whose random operators are none of the record's business.
        """
        self._instances.update((id(node.source), node.source) for node in draws)
        pending = [value for value in values if isinstance(value, DataNode)]
        while pending:
            node = pending.pop()
            instance = node.source
            if (id(instance), node.device) in self._seen:
                continue
            self._seen.add((id(instance), node.device))
            operator = getattr(instance, "_op", None)  # with `debug=True`, nodes do not tell
            if operator is not None and operator._device in ("gpu", "mixed"):
                self.gpu_users.setdefault(step, {})[_function_name(operator)] = None
            elif node.device == "gpu":
                self.gpu_users.setdefault(step, {})["a transfer to the GPU"] = None
            if operator is None or id(instance) in self._instances:
                continue
            if step != INPUT and _is_random(operator):
                self.random_users.setdefault(step, {})[_function_name(operator)] = None
            self._instances[id(instance)] = instance
            for inputs in instance.inputs:
                pending += inputs if isinstance(inputs, list) else [inputs]

    def require_declared_draws(self) -> None:
        """Refuse random operators beside the declared draws.

        Raises:
            SettingError: There are some; lists them.
        """
        if self.random_users:
            listed = "\n".join(f"  - {step}: {', '.join(names)}" for step, names in self.random_users.items())
            raise SettingError(
                f"The draws cannot be recorded, since these steps use random operators of DALI directly, whose "
                f"numbers nobody can replay:\n{listed}\n"
                f"Let the steps declare what they draw (`declare_draws`), and get it from `draw`."
            )


def _function_name(operator: Any) -> str:
    # An external source has no schema.
    return "fn." + str(getattr(operator, "schema_name", type(operator).__name__)).replace("__", ".").lower()


def is_random(node: DataNode) -> bool:
    """Whether a random operator made a node."""
    operator = getattr(node.source, "_op", None)
    return operator is not None and _is_random(operator)


def _is_random(operator: Any) -> bool:
    name = getattr(operator, "schema_name", "")
    if name == "RandomBBoxCrop":  # steps select elements by it, without anything to draw
        settings = operator._init_args
        return bool(settings.get("crop_shape") != settings.get("input_shape"))
    schema = cast(Any, backend).TryGetSchema(name)
    return schema is not None and bool(schema.HasRandomSeedArg())
