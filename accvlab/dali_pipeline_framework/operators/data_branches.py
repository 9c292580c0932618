# SPDX-License-Identifier: Apache-2.0
"""Branches on data in a graph, also in pipelines without conditionals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import nvidia.dali.fn as fn
from nvidia.dali.data_node import DataNode

from ..sample_data.graph_mode import do_not_convert

_conditional: Any = fn._conditional  # type: ignore[attr-defined]


@do_not_convert
def branched(
    predicate: Any,
    nodes: Sequence[DataNode],
    if_true: Callable[..., DataNode],
    if_false: Callable[..., DataNode],
) -> DataNode:
    """Compute samples in one of two ways, as ``if`` on data does; nothing is copied.

    Operators of a branch to which no sample of a batch goes get a batch without samples.

    Args:
        predicate: Which way, a bool for each sample, on the CPU.
        nodes: All data that the branches use, constants as well: a branch has other samples than the batch.
        if_true: Called with the nodes of the samples where the predicate holds.
        if_false: Called with the nodes of the others.
    """
    halves = [_conditional.split(node, predicate=predicate) for node in nodes]
    true, false = zip(*halves, strict=True)
    merged: DataNode = _conditional.merge(if_true(*true), if_false(*false), predicate=predicate)
    return merged
