# SPDX-License-Identifier: Apache-2.0
"""Selection of the elements of arrays for which a mask is true."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from nvidia.dali import types

from ..errors import FieldKindError, FieldValueError
from ..sample_data import LeafFormat, SampleDataGroup
from ..sample_data.dtypes import NUMPY_TYPES
from ..sample_data.names import Name, Path, format_path, normalized_path
from .functions import Array

NUMBER_TYPES: tuple[types.DALIDataType, ...] = tuple(
    dtype for dtype in NUMPY_TYPES if dtype != types.DALIDataType.BOOL
)


def leaf_at(data: SampleDataGroup, path: Path) -> LeafFormat:
    """Return the format of a data field.

    Raises:
        FieldKindError: It is a group.
    """
    leaf = data.format.at(normalized_path(path))
    if not isinstance(leaf, LeafFormat):
        raise FieldKindError(f"{format_path(normalized_path(path))}: is a group, a data field is needed")
    return leaf


def selected(data: Array, mask: Array, axis: int = 0) -> Array:
    """Return the elements of an array along an axis for which a mask ``(N,)`` is true, in order.

    Raises:
        FieldValueError: The mask has not one value for each element.
    """
    if mask.shape != data.shape[axis : axis + 1]:
        raise FieldValueError(
            f"A mask must have one value for each element: its shape is {mask.shape}, and axis {axis} of the "
            f"elements, of shape {data.shape}, needs one of {data.shape[axis : axis + 1]}."
        )
    return np.compress(mask, data, axis)


def filter_fields(group: SampleDataGroup, names: Sequence[Name], mask: Array) -> None:
    """Keep the elements along the first axis for which a mask ``(N,)`` is true, of several fields of a group."""
    for name in names:
        group[name] = selected(group[name], mask)
