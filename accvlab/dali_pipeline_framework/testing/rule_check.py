# SPDX-License-Identifier: Apache-2.0
"""Collection of the rules of a contract that are broken."""

from __future__ import annotations

import contextlib
from abc import ABC
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import attrs

from ..engine.worker_process import pass_on_interrupt
from ..errors import ContractError
from ..sample_data import SampleDataGroup
from .sample_comparison import sample_differences


@attrs.frozen
class Finding:
    """What a rule has found.

    Attributes:
        rule: The rule, as a sentence.
        figure: Line of the report; empty where there is nothing to measure.
        problems: What is wrong, with what to do.
    """

    rule: str
    figure: str = ""
    problems: Sequence[str] = ()


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
            self.break_rule(rule, f"{type(error).__name__}: {error}")

    def compare(
        self, rule: str, pairs: Iterable[tuple[int, SampleDataGroup, SampleDataGroup]], **how: Any
    ) -> None:
        """Check that samples are equal: number, expected and found sample; the first that differs is reported."""
        for number, expected, found in pairs:
            lines = sample_differences(expected, found, **how)
            if lines:
                self.break_rule(rule, "\n".join([f"sample {number}", *lines]))
                return

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
