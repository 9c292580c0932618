# SPDX-License-Identifier: Apache-2.0
"""Where a sample stands, as data fields of the sample itself."""

from __future__ import annotations

from typing import Any

import numpy as np
from nvidia.dali import types

from ..checks import shown
from ..draws.keyed_draws import SamplePlace
from ..errors import SettingError
from ..sample_data import SampleDataGroup

_NUMBERS = ("epoch", "batch", "slot", "sample_index", "sequence", "frame", "clip")
_FLAGS = ("is_first", "is_last", "is_padding")
_FIELDS = (*_NUMBERS, *_FLAGS)  # the first ones of SamplePlace, in its order


def add_context(blueprint: SampleDataGroup, name: str) -> None:
    """Add the group of context fields to a blueprint, as its last field.

    The fields are those of `SamplePlace`: the numbers int64 and the flags bool, all scalars.

    Raises:
        SettingError: The blueprint has a field of that name already, or it is not a text.
    """
    if not isinstance(name, str) or not name:
        raise SettingError(f"`context_name` must be a text, the name of a field, or None, got {shown(name)}.")
    name = str.__str__(name)
    if name in blueprint.contained_top_level_field_names:
        raise SettingError(
            f"`context_name` must be a name that is free: the blueprint has a field `{name}` already. "
            f"Its fields: {', '.join(map(str, blueprint.contained_top_level_field_names))}."
        )
    context = SampleDataGroup()
    for number in _NUMBERS:
        context.add_data_field(number, types.DALIDataType.INT64, ndim=0)
    for flag in _FLAGS:
        context.add_data_field(flag, types.DALIDataType.BOOL, ndim=0)
    blueprint.add_data_group_field(name, context)


def context_values(place: SamplePlace) -> tuple[Any, ...]:
    """The values of the context fields, in flat order."""
    count = len(_NUMBERS)
    return (
        *(np.array(value, np.int64) for value in place[:count]),
        *(np.array(value, np.bool_) for value in place[count : len(_FIELDS)]),
    )
