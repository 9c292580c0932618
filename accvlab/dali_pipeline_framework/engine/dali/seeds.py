# SPDX-License-Identifier: Apache-2.0
"""Seeds of DALI's random operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from nvidia.dali import backend
from nvidia.dali.data_node import DataNode


def seed_random_operators(nodes: Iterable[DataNode], seed_of: Callable[[int], int]) -> None:
    """Give each random operator of a graph a seed of its own, numbered in the order of definition.

    DALI hands out seeds in the order in which it reaches the operators from the outputs, so that they would depend
    on what else is in the graph. Operators that were given a seed keep it.
    """
    instances = {id(node.source): node.source for node in nodes}
    unseeded = [instance for instance in instances.values() if _takes_seed(instance)]
    for number, instance in enumerate(sorted(unseeded, key=lambda each: each.id)):
        instance.spec.AddArg("seed", seed_of(number))


def _takes_seed(instance: Any) -> bool:
    schema = cast(Any, backend).TryGetSchema(getattr(instance._op, "schema_name", ""))
    return schema is not None and schema.HasRandomSeedArg() and "seed" not in instance._op._init_args
