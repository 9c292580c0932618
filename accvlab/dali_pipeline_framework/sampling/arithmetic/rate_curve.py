# SPDX-License-Identifier: Apache-2.0
"""Rates of a mixture that change while it is delivered."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any, Literal, TypeAlias

import attrs
import numpy as np

from ...checks import choice, elements, shown, valid, whole_number
from ...draws.keyed_random import digest
from ...errors import SettingError
from .mixture_schedule import MAX_PERIOD, SUM_TOLERANCE

Knot: TypeAlias = tuple[int, tuple[float, ...]]

MAX_POSITION = 2**45
"""No knot lies behind so many samples, so that the sums of shares fit into 64 bits."""

_MAX_TEXT = 100


def _converted(knots: Any) -> tuple[Knot, ...]:
    given = elements(knots)
    if given is None:
        raise SettingError(f"`knots` must be pairs of a step and rates, got {shown(knots)}.")
    kept: list[Knot] = []
    for number, knot in enumerate(given):
        if isinstance(knot, str | bytes) or not isinstance(knot, Sequence) or len(knot) != 2:
            raise SettingError(f"`knots` must be pairs of a step and rates, but knot {number} is {shown(knot)}.")
        step = whole_number(knot[0], f"knots[{number}][0]", at_least=0)
        if kept and step <= kept[-1][0]:
            raise SettingError(
                f"The steps of `knots` must ascend, but step {step} follows {kept[-1][0]}. For a jump use "
                f"interpolation='constant', or two knots that are one step apart."
            )
        rates = _checked_rates(knot[1], number)
        if kept and len(rates) != len(kept[0][1]):
            raise SettingError(
                f"All `knots` must have the same number of rates: {len(kept[0][1])} in knot 0, {len(rates)} in "
                f"knot {number}."
            )
        kept.append((step, rates))
    if not kept:
        raise SettingError("`knots` must have at least one knot, got none.")
    unused = [
        number for number, rates in enumerate(zip(*(knot[1] for knot in kept), strict=True)) if not any(rates)
    ]
    if unused:
        raise SettingError(f"Rate {unused[0]} is 0 at all `knots`. Leave out a component that is not to be used.")
    return tuple(kept)


def _checked_rates(rates: Any, number: int) -> tuple[float, ...]:
    kept = elements(rates)
    if kept is None:
        raise SettingError(f"The rates of knot {number} must be a sequence of numbers, got {shown(rates)}.")
    if not 1 <= len(kept) <= MAX_PERIOD:
        raise SettingError(f"A knot must have from 1 to {MAX_PERIOD} rates, got {len(kept)} in knot {number}.")
    for rate in kept:
        if not isinstance(rate, Real) or isinstance(rate, bool) or not 0 <= float(rate) < math.inf:
            raise SettingError(f"The rates of knot {number} must be numbers of at least 0, got {shown(rate)}.")
    total = math.fsum(kept)
    if abs(total - 1) > SUM_TOLERANCE:
        raise SettingError(
            f"The rates of each knot must have the sum 1 (within {SUM_TOLERANCE:g}), got the sum {total:.9g} in "
            f"knot {number}. To use them as proportions, divide each by the sum."
        )
    return tuple(float(rate) for rate in kept)


@attrs.frozen(kw_only=True)
class RateCurve:
    """The rates of a mixture as a function of the step: a curriculum.

    The rates are given at some steps, the knots. Before the first knot its rates hold, behind the last one its.
    A rate may be 0 at some knots, where a component is to come later or to leave, but not at all of them.

    What is counted are samples (clips, sequences) from the beginning of the first epoch on: with ``num_per_step``
    of them per step. They stay where they are where a run is continued with another batch size.

    Example::

        >>> curve = RateCurve(knots=[(0, [1, 0]), (1000, [0.5, 0.5])], num_per_step=16)
        >>> curve.rates_at(500)
        (0.75, 0.25)

    Attributes:
        knots: Pairs of a step and the ``(K,)`` rates there, at least 0 and together 1; steps ascend.
        interpolation: ``"linear"``: between two knots the rates change evenly. ``"constant"``: the rates of a knot
            hold up to the next one.
        num_per_step: Number of samples (clips, sequences) of a step: the total batch size, to count training
            steps.
    """

    knots: tuple[Knot, ...] = attrs.field(converter=_converted)
    interpolation: Literal["linear", "constant"] = attrs.field(
        default="linear", validator=valid(choice, allowed=("linear", "constant"))
    )
    num_per_step: int = attrs.field(default=1, validator=valid(whole_number, at_least=1))

    def __attrs_post_init__(self) -> None:
        """Refuse knots behind `MAX_POSITION`."""
        last = self.knots[-1][0] * self.num_per_step
        if last > MAX_POSITION:
            raise SettingError(f"The last of the `knots` must be within 2**45 samples, got {last}.")

    @classmethod
    def of_function(
        cls,
        function: Callable[[int], Sequence[float]],
        *,
        last_step: int,
        every: int = 1,
        interpolation: Literal["linear", "constant"] = "linear",
        num_per_step: int = 1,
    ) -> RateCurve:
        """Evaluate a function of the step at the steps ``0, every, 2 * every, ...`` and ``last_step``.

        Only the rates are kept, so the function need not be one that can be pickled.
        """
        last = whole_number(last_step, "last_step", at_least=0)
        steps = [*range(0, last, whole_number(every, "every", at_least=1)), last]
        knots: Any = [(step, function(step)) for step in steps]
        return cls(knots=knots, interpolation=interpolation, num_per_step=num_per_step)

    @property
    def num_components(self) -> int:
        """Number of components."""
        return len(self.knots[0][1])

    def rates_at(self, step: float) -> tuple[float, ...]:
        """The rates at a step."""
        steps = [knot[0] for knot in self.knots]
        if self.interpolation == "linear":
            columns = zip(*(knot[1] for knot in self.knots), strict=True)
            return tuple(float(np.interp(step, steps, column)) for column in columns)
        return self.knots[max(int(np.searchsorted(steps, step, side="right")) - 1, 0)][1]

    def describe(self) -> str:
        """What the order depends on, as a short text."""
        knots = "; ".join(f"{step}: {', '.join(f'{rate:.6g}' for rate in rates)}" for step, rates in self.knots)
        if len(knots) > _MAX_TEXT:
            numbers = np.array([[step, *rates] for step, rates in self.knots])
            knots = f"{len(self.knots)} knots {digest(numbers)}"
        per_step = "" if self.num_per_step == 1 else f", {self.num_per_step} per step"
        return f"{knots} ({self.interpolation}{per_step})"
