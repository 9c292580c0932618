# SPDX-License-Identifier: Apache-2.0
"""Errors about two formats, or a format and data, that do not go together."""

from __future__ import annotations

from ..errors import FieldValueError, FrameworkError, GroupFormatMismatchError, error_that_is_also
from .formats import GroupFormat
from .names import FieldPath, format_path


def group_mismatch_error(wanted: GroupFormat, got: GroupFormat, path: FieldPath) -> GroupFormatMismatchError:
    """Make the error for a group of another format than the field at ``path`` has."""
    position = wanted.first_difference(got)
    if position < 0:
        difference = "They differ in groups without data fields only"
    else:
        difference = f"First difference: needed is {_field(wanted, position)}, got {_field(got, position)}"
    return GroupFormatMismatchError(
        f"{format_path(path)}: the given SampleDataGroup has another format than the field. {difference}. "
        "To change the format of a group, use change_type_of_data_and_remove_data"
    )


def _field(format: GroupFormat, position: int) -> str:
    if position >= format.num_leaves:
        return "no further field"
    return f"{format_path(format.flat_paths[position])} ({format.flat_leaves[position].dtype.name})"


def wrong_count_error(format: GroupFormat, got: int) -> FrameworkError:
    """Make the error for ``got`` values where the format has another number of data fields.

    It is a FieldValueError, and also an IndexError if there are too few.
    """
    expected = format.num_leaves
    message = f"expected {expected} values, one per data field, got {got}. "
    if got > expected:
        return FieldValueError(message + "The additional values belong to no field")
    message += f"The first field without a value is {format_path(format.flat_paths[got])}"
    return error_that_is_also(FieldValueError, (IndexError,), message)
