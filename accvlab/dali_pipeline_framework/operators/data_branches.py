# SPDX-License-Identifier: Apache-2.0
"""Branches on data in a graph, also in pipelines without conditionals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nvidia.dali.data_node import DataNode

from ..engine.dali.graph_definition import merge, split
from ..sample_data.graph_mode import do_not_convert


@do_not_convert
def branched(
    predicate: Any, nodes: Sequence[DataNode], if_true: Callable[..., DataNode], if_false: Callable[..., DataNode]
) -> DataNode:
    """Compute samples in one of two ways, as ``if`` on data does; nothing is copied.

    Operators of a branch to which no sample of a batch goes get a batch without samples.

    Args:
        predicate: Which way, a bool for each sample, on the CPU.
        nodes: All data that the branches use, constants as well: a branch has other samples than the batch.
        if_true: Called with the nodes of the samples where the predicate holds.
        if_false: Called with the nodes of the others.
    """
    true, false = zip(*(split(node, predicate) for node in nodes), strict=True)
    return merge(if_true(*true), if_false(*false), predicate)
