# SPDX-License-Identifier: Apache-2.0
"""Fields that a sample has only if they are given a name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from nvidia.dali import types

from ..sample_data import Name, SampleDataGroup

OptionalField: TypeAlias = tuple[Name | None, types.DALIDataType, int | None]
"""Name (None for a field that is not there), type, and number of dimensions."""


def with_fields(group: SampleDataGroup, fields: Iterable[OptionalField]) -> SampleDataGroup:
    """Add those fields to a group that have a name, and return it.

    Raises:
        DuplicateFieldError: Two fields have the same name.
        NameTypeError: A name is neither ``str`` nor ``int``.
    """
    for name, dtype, num_dimensions in fields:
        if name is not None:
            group.add_data_field(name, dtype, ndim=num_dimensions)
    return group
