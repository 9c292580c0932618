# SPDX-License-Identifier: Apache-2.0
"""An external source whose outputs are added while a graph is defined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
from nvidia.dali import fn, types
from nvidia.dali.data_node import DataNode


@attrs.define
class SourceOutputs:
    """The outputs of one external source: which ones a graph needs is known only when it is complete.

    Attributes:
        arguments: Arguments for ``fn.external_source``, without those about its outputs.
    """

    arguments: Mapping[str, Any]
    _group: Any = attrs.field(default=None, init=False)

    def add(self, dtype: types.DALIDataType, layout: str | None = None) -> DataNode:
        """Add an output of a type, and of a layout if it has one."""
        described: dict[str, Any] = {"dtype": [dtype], **({} if layout is None else {"layout": [layout]})}
        node: DataNode = fn.external_source(num_outputs=1, **described, **self.arguments)[0]
        instance: Any = node.source
        if self._group is None:
            self._group = instance._group
        else:
            instance._group = self._group
            self._group.append(instance)
        return node

    def keep(self, used: Sequence[DataNode]) -> None:
        """Say which outputs are used; the source delivers these, in this order, and no others."""
        for index, node in enumerate(used):
            node.source._output_index = index
        instances = [node.source for node in used]
        if self._group is not None:
            self._group.instances = self._group.utilized_instances = instances
