# SPDX-License-Identifier: Apache-2.0
"""Operators that write what flows through the graph to the standard output."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from nvidia.dali import fn
from nvidia.dali.data_node import DataNode

_RULE_WIDTH = 60


def print_tensor_op(tensor_list: DataNode, name: str) -> None:
    """Write all samples of each batch to the standard output whenever the graph runs.

    Args:
        tensor_list: Node to show, on the CPU or GPU.
        name: Name to show it under.
    """
    _add_writer(tensor_list, name, str)


def print_tensor_size_op(tensor_list: DataNode, name: str) -> None:
    """Write the shapes of all samples of each batch to the standard output whenever the graph runs.

    Args:
        tensor_list: Node whose shapes to show, on the CPU or GPU.
        name: Name to show it under.
    """
    _add_writer(tensor_list, name, _shape_text)


def _add_writer(node: DataNode, name: str, text_of: Callable[[np.ndarray[Any, Any]], str]) -> None:
    fn.python_function(
        node.cpu() if node.device == "gpu" else node,
        function=functools.partial(_write_batch, name, text_of),
        num_outputs=0,
        batch_processing=True,
    )


def _write_batch(
    name: str, text_of: Callable[[np.ndarray[Any, Any]], str], samples: Sequence[np.ndarray[Any, Any]]
) -> None:
    lines = [f" {name} ".center(_RULE_WIDTH, "-"), f"batch size: {len(samples)}"]
    lines += [f"{name}[{i}]: {text_of(sample)}" for i, sample in enumerate(samples)]
    lines.append("-" * _RULE_WIDTH)
    sys.stdout.write("\n".join(lines) + "\n")


def _shape_text(sample: np.ndarray[Any, Any]) -> str:
    return str(sample.shape)
