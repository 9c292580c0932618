# SPDX-License-Identifier: Apache-2.0
"""Fields that a sample has only if they are given a name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from nvidia.dali import types

from ..sample_data import ImageContent, Name, SampleDataGroup
from ..sample_data.image_content import UNKNOWN_CONTENT

OptionalField: TypeAlias = tuple[Name | None, types.DALIDataType, int | None]
"""Name (None for a field that is not there), type, and number of dimensions."""


def with_fields(
    group: SampleDataGroup,
    fields: Iterable[OptionalField],
    contents: Mapping[Name, ImageContent] | None = None,
) -> SampleDataGroup:
    """Add those fields to a group that have a name, and return it.

    Args:
        group: The group.
        fields: The fields.
        contents: What is known of the images among them, by name.

    Raises:
        DuplicateFieldError: Two fields have the same name.
        NameTypeError: A name is neither ``str`` nor ``int``.
    """
    for name, dtype, num_dimensions in fields:
        if name is not None:
            content = (contents or {}).get(name, UNKNOWN_CONTENT)
            group.add_data_field(name, dtype, ndim=num_dimensions, content=content)
    return group
