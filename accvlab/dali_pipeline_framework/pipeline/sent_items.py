# SPDX-License-Identifier: Apache-2.0
"""What workers send to the graph: fields and random draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
from nvidia.dali import types

from ..draws.random_draws import PlannedDraw
from ..engine.transport import TransportLayout
from ..sample_data import FieldPath
from ..sample_data.names import format_path
from ..sources.input_parts import InputParts
from .chains.array_steps import ArraySteps


@attrs.frozen
class SentItems:
    """What workers send to the graph.

    Attributes:
        fields: For each field of the sample that they load its item.
        draws: For each draw of the chain its item; None where they send none.
        dtypes: Types of the items.
    """

    fields: Mapping[FieldPath, int]
    draws: Sequence[int] | None
    dtypes: Sequence[types.DALIDataType]

    @classmethod
    def of(
        cls,
        parts: InputParts,
        draws: Sequence[PlannedDraw],
        array_steps: ArraySteps | None,
        *,
        is_drawn: bool,
        replay_path: FieldPath | None,
    ) -> SentItems:
        """Find out what is sent: the fields as they are loaded, or after steps; behind them the draws.

        Args:
            parts: The input.
            draws: The draws of the chain.
            array_steps: The steps in the workers.
            is_drawn: Whether the workers draw.
            replay_path: Path of the group of recorded draws, which are fields already where no steps run there.
        """
        paths: Sequence[FieldPath] = parts.main_field_paths()
        leaves = () if parts.main is None else parts.main.source.used_sample_data_structure.format.flat_leaves
        if array_steps is not None:
            paths, leaves = array_steps.output_format.flat_paths, array_steps.output_format.flat_leaves
        fields = {path: item for item, path in enumerate(paths)}
        dtypes = [leaf.transport_dtype for leaf in leaves]
        if replay_path is not None and array_steps is None:
            return cls(fields, [fields[(*replay_path, planned.record_name)] for planned in draws], dtypes)
        if not is_drawn and replay_path is None:
            return cls(fields, None, dtypes)
        items = [len(paths) + index for index in range(len(draws))]
        return cls(fields, items, [*dtypes, *(planned.draw.dtype for planned in draws)])

    def names(self, draws: Sequence[PlannedDraw], num_used: int) -> list[str]:
        """How to call each item where nothing in the graph depends on it.

        Args:
            draws: The draws of the chain.
            num_used: How many of them were used in the workers; their names are empty.
        """
        names = [""] * len(self.dtypes)
        for index, item in enumerate(self.draws or ()):
            names[item] = "" if index < num_used else str(draws[index])
        for path, item in self.fields.items():
            names[item] = format_path(path)
        return names


def unused_names(layout: TransportLayout | None, names: Sequence[str]) -> list[str]:
    """Names of the items that do not travel; none where each item has an output of its own."""
    if layout is None:
        return []
    used = {item for items in (*layout.packed, *layout.fields) for item in items}
    return [name for item, name in enumerate(names) if name and item not in used]
