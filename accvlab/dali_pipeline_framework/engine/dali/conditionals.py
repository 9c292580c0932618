# SPDX-License-Identifier: Apache-2.0
"""What DALI makes of ``if`` on data, also for pipelines that are defined without ``enable_conditionals``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nvidia.dali import _conditionals, fn
from nvidia.dali.data_node import DataNode

from .texts import REPLACED_EXCEPTION

_operators: Any = fn._conditional  # type: ignore[attr-defined]


def split(node: DataNode, predicate: Any) -> tuple[DataNode, DataNode]:
    """Split a batch into the samples where the predicate holds, and the others. Nothing is copied."""
    true, false = _operators.split(node, predicate=predicate)
    return true, false


def merge(true: DataNode, false: DataNode, predicate: Any) -> DataNode:
    """Put the two halves of a batch together, in the order of the predicate. Nothing is copied."""
    merged: DataNode = _operators.merge(true, false, predicate=predicate)
    return merged


def with_conditionals(function: Callable[..., Any]) -> Callable[..., Any]:
    """Get a function, or a callable object, in which ``if`` on data is part of the graph."""

    def apply(*args: Any) -> Any:
        return function(*args)

    converted: Callable[..., Any] = _conditionals._autograph.convert(recursive=True, user_requested=True)(apply)

    def call(*args: Any) -> Any:
        try:
            return converted(*args)
        except Exception as error:
            if type(error).__name__ == REPLACED_EXCEPTION and isinstance(error.__context__, Exception):
                raise error.__context__.with_traceback(error.__traceback__) from None
            raise

    return call
