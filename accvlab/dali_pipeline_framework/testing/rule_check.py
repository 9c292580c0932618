# SPDX-License-Identifier: Apache-2.0
"""Comparison of samples, and collection of the rules of a contract that are broken."""

from __future__ import annotations

import contextlib
from abc import ABC
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import attrs
import numpy as np

from ..errors import ContractError, text_of
from ..providers.data_provider import Finding as Finding
from ..sample_data import FieldPath, SampleDataGroup
from ..sample_data.conversion import as_numpy
from ..sample_data.formats import describe_difference
from ..sample_data.names import alike_paths, format_path, format_paths
from ..workers.process_setup import pass_on_interrupt

Tolerance: TypeAlias = float | Callable[[FieldPath], float]


def sample_differences(
    expected: SampleDataGroup, found: SampleDataGroup, *, tolerance: Tolerance = 0.0, in_found: str = "found"
) -> list[str]:
    """Compare two filled samples.

    Args:
        expected: The expected sample.
        found: The sample to compare with it.
        tolerance: Largest difference of numbers that count as equal, or a function that gives it for the path of a
            field; at 0, arrays must agree in every bit.
        in_found: Word for the values of ``found`` in the result.

    Returns:
        One line per field that differs, with its path; none where shapes, types and values are the same. The same
        field of several array elements has one line. If the formats differ, only their differences are listed.
    """
    if not found.type_matches(expected):
        return describe_difference(expected.format, found.format).splitlines()
    fields = zip(expected.format.flat_paths, expected.get_data(), found.get_data(), strict=True)
    return field_differences(fields, tolerance=tolerance, in_found=in_found)


def field_differences(
    fields: Iterable[tuple[FieldPath, object, object]], *, tolerance: Tolerance = 0.0, in_found: str = "found"
) -> list[str]:
    """Compare the expected and the found value of fields, like `sample_differences`."""
    differences: dict[FieldPath, str] = {}
    for path, expected, found in fields:
        allowed = tolerance(path) if callable(tolerance) else tolerance
        difference = _difference(expected, found, allowed, in_found)
        if difference is not None:
            differences[path] = difference
    lines: list[str] = []
    for paths in alike_paths(differences):
        first = differences[paths[0]]
        if all(differences[path] == first for path in paths):
            lines.append(f"{format_paths(paths)}: {first}")
        else:
            lines.append(f"{format_path(paths[0])}: {first}; also different: {format_paths(paths[1:])}")
    return lines


def _difference(expected: object, found: object, tolerance: float, in_found: str) -> str | None:
    first, second = as_numpy(expected), as_numpy(found)
    if first is None or second is None:
        return None if first is second else "is set in only one of the two"
    if (first.shape, first.dtype) != (second.shape, second.dtype):
        return f"expected {first.dtype} {first.shape}, {in_found} {second.dtype} {second.shape}"
    if first.tobytes() == second.tobytes():
        return None
    is_same = (first == second) | ((first != first) & (second != second))  # NaN is unequal to itself
    if tolerance > 0:
        is_same |= np.isclose(first, second, rtol=0, atol=tolerance)
        if is_same.all():
            return None
    if first.ndim == 0:
        return f"expected {first}, {in_found} {second}"
    where = np.argwhere(~is_same)
    if len(where) == 0:
        return "differs in signs of zeros or in bits of NaN"
    position = tuple(map(int, where[0]))
    values = f"expected {first[position]}, {in_found} {second[position]}"
    return f"{len(where)} of {first.size} values differ, the first at {[*position]}: {values}"


def in_samples(problems: Mapping[int, Sequence[str]]) -> list[str]:
    """Describe problems of samples as one: those of the first that has some, and the indices of the others."""
    concerned = [index for index in problems if problems[index]]
    if not concerned:
        return []
    first, *others = concerned
    more = [f"and likewise sample(s) {', '.join(map(str, others))}"] if others else []
    return ["\n".join([f"sample {first}", *problems[first], *more])]


@attrs.define
class RuleCheck(ABC):
    """Checks rules one by one.

    Attributes:
        kind: What the contract is of.
        broken: A text for each rule that is broken.
        figures: What was measured, in lines.
    """

    kind: ClassVar[str]
    broken: list[str] = attrs.field(factory=list, init=False)
    figures: list[str] = attrs.field(factory=list, init=False)

    def break_rule(self, rule: str, what: str) -> None:
        """Note that a rule is broken, and what was got."""
        text = what.strip().replace("\n", "\n      ")
        self.broken.append(f"{rule}: {text}")

    def take(self, finding: Finding) -> None:
        """Note what a rule has found."""
        self.figures += [finding.figure] * bool(finding.figure)
        for problem in finding.problems:
            self.break_rule(finding.rule, problem)

    @contextlib.contextmanager
    def reporting(self, rule: str) -> Iterator[None]:
        """Take an exception for a rule that is broken."""
        try:
            yield
        except BaseException as error:
            pass_on_interrupt(error)
            self.break_rule(rule, f"{type(error).__name__}: {text_of(error)}")

    def compare(
        self,
        rule: str,
        numbers: Iterable[int],
        expected: Iterable[SampleDataGroup],
        found: Iterable[SampleDataGroup],
        **how: Any,
    ) -> None:
        """Check that samples of some numbers are equal, see `sample_differences`."""
        differences: dict[int, list[str]] = {}
        for number, one, other in zip(numbers, expected, found, strict=True):
            differences[number] = differences.get(number) or sample_differences(one, other, **how)
        self.take(Finding(rule, problems=in_samples(differences)))

    def raise_broken(self, checked: object) -> None:
        """Raise a `ContractError` with all rules that are broken, if there are any."""
        if self.broken:
            lines = [f"  - {line}" for line in self.broken]
            if self.figures:
                lines = [*(f"    {figure}" for figure in self.figures), "What is wrong:", *lines]
            what = (
                f"{type(checked).__name__} breaks the contract of {self.kind}{'. Measured' * bool(self.figures)}"
            )
            raise ContractError("\n".join([f"{what}:", *lines]))
