# SPDX-License-Identifier: Apache-2.0
"""What differs between two samples, bit by bit."""

from __future__ import annotations

import numpy as np

from ..sample_data import FieldPath, SampleDataGroup, as_numpy, describe_difference, format_path


def sample_differences(
    expected: SampleDataGroup, found: SampleDataGroup, *, tolerance: float = 0.0, in_found: str = "found"
) -> list[str]:
    """Compare two filled samples.

    Args:
        expected: What is expected.
        found: What was found.
        tolerance: Greatest difference of two numbers that counts as none; at 0, arrays must agree in every bit.
        in_found: How to call the second one.

    Returns:
        One line per field that differs, with its path; none where shapes, types and values are the same. Where the
        formats differ, only that.
    """
    if not found.type_matches(expected):
        return describe_difference(expected.format, found.format).splitlines()
    pairs = zip(expected.format.flat_paths, expected.get_data(), found.get_data(), strict=True)
    lines = (_difference(path, first, second, tolerance, in_found) for path, first, second in pairs)
    return [line for line in lines if line is not None]


def _difference(path: FieldPath, expected: object, found: object, tolerance: float, in_found: str) -> str | None:
    first, second = as_numpy(expected), as_numpy(found)
    name = format_path(path)
    if first is None or second is None:
        return None if first is second else f"{name}: is set in one of them only"
    if (first.shape, first.dtype) != (second.shape, second.dtype):
        return f"{name}: expected {first.dtype} {first.shape}, {in_found} {second.dtype} {second.shape}"
    if first.tobytes() == second.tobytes():
        return None
    if tolerance > 0:
        difference = np.abs(first.astype(np.float64) - second.astype(np.float64))
        if not (difference > tolerance).any() and np.array_equal(np.isnan(first), np.isnan(second)):
            return None
    if first.ndim == 0:
        return f"{name}: expected {first}, {in_found} {second}"
    differs = first.view(np.uint8) if first.dtype == bool else first
    where = np.argwhere(np.not_equal(differs, second.view(differs.dtype)))
    if len(where) == 0:
        return f"{name}: differs in signs of zeros or in bits of NaN"
    position = tuple(map(int, where[0]))
    return (
        f"{name}: {len(where)} of {first.size} values differ, the first at {[*position]}: expected "
        f"{first[position]}, {in_found} {second[position]}"
    )
