"""How many examples a law is tested with, and which cases of a test only a run with ``--wide`` has."""

from __future__ import annotations

import itertools
from collections.abc import Container, Iterable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.errors import InvalidArgument


def examples(few: int, wide: int) -> int:
    """Number of examples: ``few``, or ``wide`` in a run with ``--wide``."""
    try:
        is_wide = settings.default.max_examples == settings.get_profile("wide").max_examples
    except InvalidArgument:  # in a script
        is_wide = False
    return wide if is_wide else few


def spread(names: str | tuple[str, ...], cases: Iterable[Any], few: int, **arguments: Any) -> pytest.MarkDecorator:
    """Like `pytest.mark.parametrize`; all cases but ``few``, at equal distances from the first on, are `wide`.

    For cases of which one proves what the others do.
    """
    cases = [*cases]
    return some(names, cases, {position * len(cases) // few for position in range(few)}, **arguments)


def each_value(**axes: Iterable[Any]) -> pytest.MarkDecorator:
    """Like `pytest.mark.parametrize` with each combination; all but as many as have each value once are `wide`.

    For settings that have nothing to do with each other. A value that is `wide` itself is in none of these.
    """
    values = [[*axis] for axis in axes.values()]
    quick = [[number for number, value in enumerate(axis) if not hasattr(value, "marks")] for axis in values]
    length = max(map(len, quick))
    strides, stride = [], 1
    for axis in quick:  # the short ones go through their pairs, as far as there are so many
        strides.append(stride if stride * len(axis) <= length else 1)
        stride = stride * len(axis) if stride * len(axis) < length else stride
    kept = {
        tuple(axis[number // each % len(axis)] for axis, each in zip(quick, strides, strict=True))
        for number in range(length)
    }
    places = [*itertools.product(*(range(len(axis)) for axis in values))]
    cases = [tuple(_bare(axis[each]) for axis, each in zip(values, place, strict=True)) for place in places]
    return some(tuple(axes), cases, {number for number, place in enumerate(places) if place in kept})


def some(
    names: str | tuple[str, ...], cases: Iterable[Any], kept: Container[int], **arguments: Any
) -> pytest.MarkDecorator:
    """Like `pytest.mark.parametrize`; all cases but those at the positions ``kept`` are `wide`."""
    is_one = isinstance(names, str) and "," not in names
    marked = [case if number in kept else _wide(case, is_one) for number, case in enumerate(cases)]
    return pytest.mark.parametrize(names, marked, **arguments)


def _wide(case: Any, is_one: bool) -> Any:
    if hasattr(case, "marks"):  # made by `pytest.param`
        return pytest.param(*case.values, marks=[*case.marks, pytest.mark.wide], id=case.id)
    return pytest.param(*([case] if is_one else case), marks=pytest.mark.wide)


def _bare(value: Any) -> Any:
    return value.values[0] if hasattr(value, "marks") else value
