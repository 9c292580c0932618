# SPDX-License-Identifier: Apache-2.0
"""Messages about formats that have problems, or do not go together with another format or with data."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Sequence
from typing import cast

from nvidia.dali import types

from ..checks import bullets
from ..errors import (
    FieldValueError,
    FormatError,
    FormatProblem,
    FrameworkError,
    GroupFormatMismatchError,
    error_that_is_also,
)
from .formats import GroupFormat
from .names import FieldPath, alike_paths, format_path, format_paths


def format_error(problems: Sequence[FormatProblem], heading: str) -> FormatError:
    """Make one `FormatError` of all problems; ``except`` clauses for the class of each of them catch it.

    The message lists equal problems of several fields together.
    """
    lines = [heading]
    for step, of_step in itertools.groupby(problems, operator.attrgetter("step")):
        indent = "  "
        if step is not None:
            lines.append(f"  {step}:")
            indent = "    "
        described = described_together((problem.path, problem.message) for problem in of_step)
        lines += [f"{indent}- " + text.replace("\n", f"\n{indent}  ") for text in described]
    error = cast(
        FormatError,
        error_that_is_also(FormatError, [problem.error_type for problem in problems], "\n".join(lines)),
    )
    error.problems = tuple(problems)
    return error


def described_together(texts: Iterable[tuple[FieldPath | None, str]]) -> list[str]:
    """Describe fields, those with the same text together: ``cameras[0..5].image: is not set``.

    The path is None where a text is about no single field.
    """
    paths_of: dict[str, list[FieldPath]] = {}
    for path, text in texts:
        paths_of.setdefault(text, []).extend([] if path is None else [path])
    lines: list[str] = []
    for text, paths in paths_of.items():
        lines += [f"{format_paths(alike)}: {text}" for alike in alike_paths(paths)] or [text]
    return lines


def describe_difference(expected: GroupFormat, found: GroupFormat) -> str:
    """List the fields in which two formats differ, in at most ten lines."""
    expected_types, found_types = _types_by_path(expected), _types_by_path(found)
    texts = [(path, "missing") for path in expected_types if path not in found_types]
    texts += [(path, "not in the blueprint") for path in found_types if path not in expected_types]
    texts += [
        (path, f"must be {dtype.name}, got {found_types[path].name}")
        for path, dtype in expected_types.items()
        if path in found_types and found_types[path] != dtype
    ]
    lines = described_together(texts)
    if not lines:
        expected_order, found_order = (
            ", ".join(map(format_path, types)) for types in (expected_types, found_types)
        )
        lines = [f"the order of the fields differs: expected {expected_order}; got {found_order}"]
    return bullets(lines, 9)


def _types_by_path(sample_format: GroupFormat) -> dict[FieldPath, types.DALIDataType]:
    leaves = zip(sample_format.flat_paths, sample_format.flat_leaves, strict=True)
    return {path: leaf.dtype for path, leaf in leaves}


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
