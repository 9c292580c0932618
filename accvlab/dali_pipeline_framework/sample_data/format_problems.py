# SPDX-License-Identifier: Apache-2.0
"""Problems of a sample format, collected and reported together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import attrs
from nvidia.dali import types

from ..errors import FormatError, error_that_is_also
from .formats import GroupFormat
from .names import FieldPath, format_path


@attrs.frozen
class FormatProblem:
    """One thing that is wrong with a sample format.

    Attributes:
        message: The rule, what was got, and what to do.
        path: Field that it is about; None where it is about no single field.
        step: The processing step that found it, None while that is not known.
        error_type: Exception class that ``except`` clauses for this problem use.
    """

    message: str
    path: FieldPath | None = None
    step: str | None = None
    error_type: type[Exception] = ValueError

    def describe(self) -> str:
        """Path and message."""
        return self.message if self.path is None else f"{format_path(self.path)}: {self.message}"


def format_error(problems: Sequence[FormatProblem], heading: str) -> FormatError:
    """Make one `FormatError` of all problems; ``except`` clauses for the class of each of them catch it."""
    lines = [heading]
    step: str | None = None
    for problem in problems:
        if problem.step is not None and problem.step != step:
            step = problem.step
            lines.append(f"  {step}:")
        indent = "    " if step is not None else "  "
        lines.append(f"{indent}- " + problem.describe().replace("\n", f"\n{indent}  "))
    error = cast(
        FormatError,
        error_that_is_also(FormatError, [problem.error_type for problem in problems], "\n".join(lines)),
    )
    error.problems = tuple(problems)
    return error


def describe_difference(expected: GroupFormat, found: GroupFormat) -> str:
    """List the fields in which two formats differ, one line each, at most ten."""
    expected_fields = _types_by_path(expected)
    found_fields = _types_by_path(found)
    lines = [f"  - {name}: missing" for name in expected_fields if name not in found_fields]
    lines += [f"  - {name}: not in the blueprint" for name in found_fields if name not in expected_fields]
    lines += [
        f"  - {name}: must be {dtype.name}, got {found_fields[name].name}"
        for name, dtype in expected_fields.items()
        if name in found_fields and found_fields[name] != dtype
    ]
    if not lines:
        lines = [
            f"  - the order of the fields differs: expected {', '.join(expected_fields)}; "
            f"got {', '.join(found_fields)}"
        ]
    if len(lines) > 10:
        lines = [*lines[:9], f"  - and {len(lines) - 9} more"]
    return "\n".join(lines)


def _types_by_path(sample_format: GroupFormat) -> dict[str, types.DALIDataType]:
    return {
        format_path(path): leaf.dtype
        for path, leaf in zip(sample_format.flat_paths, sample_format.flat_leaves, strict=True)
    }
