# SPDX-License-Identifier: Apache-2.0
"""Finds random operators that no step has declared as draws: a record of the draws would lack them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from nvidia.dali import backend
from nvidia.dali.data_node import DataNode

from ..errors import SettingError


class RandomOperatorTracker:
    """Finds out which steps of a chain define random operators beside their declared draws.

    Attributes:
        users: Names of steps, each with its operators in order.
    """

    def __init__(self) -> None:
        """Start with an empty graph."""
        self._seen: dict[int, Any] = {}  # the operators are kept, so that no other one gets their ids
        self.users: dict[str, dict[str, None]] = {}

    def note(self, step: str | None, values: Iterable[object], draws: Iterable[DataNode]) -> None:
        """Attribute what is new in the graph since the last call to a step.

        Args:
            step: Name of the step; None for the input, whose operators are none of the record's business.
            values: What the step has made.
            draws: The draws that the steps were given so far.
        """
        for node in draws:
            self._seen[id(node.source)] = node.source
        pending = [value for value in values if isinstance(value, DataNode)]
        while pending:
            operator = pending.pop().source
            if operator is None or id(operator) in self._seen:
                continue
            self._seen[id(operator)] = operator
            if step is not None and _is_random(operator._op):
                name = "fn." + str(operator._op.schema_name).replace("__", ".").lower()
                self.users.setdefault(step, {})[name] = None
            for inputs in operator.inputs:
                pending += inputs if isinstance(inputs, list) else [inputs]

    def require_none(self) -> None:
        """Refuse such operators.

        Raises:
            SettingError: There are some; lists them.
        """
        if self.users:
            listed = "\n".join(f"  - {step}: {', '.join(names)}" for step, names in self.users.items())
            raise SettingError(
                f"The draws cannot be recorded, since these steps use random operators of DALI directly, whose "
                f"numbers nobody can replay:\n{listed}\n"
                f"Let the steps declare what they draw (`declare_draws`), and get it from `draw`."
            )


def _is_random(operator: Any) -> bool:
    name = getattr(operator, "schema_name", "")  # an external source has none
    if name == "RandomBBoxCrop":  # steps select elements by it, without anything to draw
        settings = operator._init_args
        return bool(settings.get("crop_shape") != settings.get("input_shape"))
    schema = cast(Any, backend).TryGetSchema(name)
    return schema is not None and bool(schema.HasRandomSeedArg())
