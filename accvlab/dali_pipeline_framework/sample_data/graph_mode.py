# SPDX-License-Identifier: Apache-2.0
"""The graph that is being defined: what steps find there, and how to keep DALI's conditionals away.

With ``enable_conditionals=True`` DALI rewrites every function that is called while a graph is defined, so
that ``if`` works on data. Code of this package that only moves values around needs none of that, and some
Python does not survive it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from nvidia.dali.data_node import DataNode
from nvidia.dali.pipeline import do_not_convert as do_not_convert

_Class = TypeVar("_Class", bound=type)
_T = TypeVar("_T")


def methods_not_converted(cls: _Class) -> _Class:
    """Class decorator: exclude all methods that the class itself defines."""
    for member in vars(cls).values():
        function = member.__func__ if isinstance(member, staticmethod | classmethod) else member
        if inspect.isfunction(function):
            do_not_convert(function)
    return cls


Decoding: TypeAlias = Callable[[DataNode], DataNode]
Joining: TypeAlias = Callable[[Sequence[DataNode]], DataNode]
"""Makes a clip of its frames."""


class GraphContext(NamedTuple):
    """Properties of the graph that is being defined.

    Attributes:
        is_folded: Whether each field that a step sees represents all elements of an array (see `FoldedFormat`).
        decode_together: Decodes the files of clips of a sample by one operator, and joins them by one; None where
            the batch has no room for that.
        decoder_options: Settings of the decoders on a GPU.
    """

    is_folded: bool = False
    decode_together: Callable[[Decoding, Joining, Sequence[Sequence[DataNode]]], Sequence[DataNode]] | None = None
    decoder_options: Mapping[str, Any] = MappingProxyType({})


_NO_GRAPH = GraphContext()

# The published `_process(data)` of steps takes no context, so that it cannot be passed along.
graph_context: ContextVar[GraphContext] = ContextVar("graph_context", default=_NO_GRAPH)


@methods_not_converted
class Within(Generic[_T]):  # no generator: it is entered for each step and sample, and takes a third of the time
    """Gives a context variable a value within a ``with`` statement."""

    def __init__(self, variable: ContextVar[_T], value: _T) -> None:
        """Set up with the variable and the value."""
        self._variable, self._value = variable, value

    def __enter__(self) -> None:
        self._token = self._variable.set(self._value)

    def __exit__(self, *raised: object) -> None:
        self._variable.reset(self._token)
