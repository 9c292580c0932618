# SPDX-License-Identifier: Apache-2.0
"""What DALI makes of ``if`` on data, also for pipelines that are defined without ``enable_conditionals``."""

from __future__ import annotations

from typing import Any

from nvidia.dali import fn
from nvidia.dali.data_node import DataNode

_operators: Any = fn._conditional  # type: ignore[attr-defined]


def split(node: DataNode, predicate: Any) -> tuple[DataNode, DataNode]:
    """Split a batch into the samples where the predicate holds, and the others. Nothing is copied."""
    true, false = _operators.split(node, predicate=predicate)
    return true, false


def merge(true: DataNode, false: DataNode, predicate: Any) -> DataNode:
    """Put the two halves of a batch together, in the order of the predicate. Nothing is copied."""
    merged: DataNode = _operators.merge(true, false, predicate=predicate)
    return merged
