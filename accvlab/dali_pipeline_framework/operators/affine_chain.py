# SPDX-License-Identifier: Apache-2.0
"""What the steps of an `AffineTransformer` have in common: a chain of matrices, of which each is random.

A step that is not applied to a sample is not left out, but gets neutral parameters (no shift, an angle of 0, a
factor of 1): so batches in which some samples are transformed and others are not need no conditionals.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import attrs
import numpy as np
import nvidia.dali.fn as fn

from ..draws.random_draws import DrawKey, UniformDraw
from ..errors import SettingError
from . import functions

# --- what the steps work on -----------------------------------------------------------------------------


@attrs.frozen
class Coverage:
    """What the settings alone say about how the image lies in the viewport, per axis (x, y).

    Attributes:
        least_scale: Least factor of the size; negative factors count by their amount.
        is_covered: Whether the image covers the viewport for sure.
    """

    least_scale: tuple[float, float] = (1.0, 1.0)
    is_covered: tuple[bool, bool] = (True, True)

    def both(self, other: Coverage) -> Coverage:
        """What holds where one or the other is the case."""
        return Coverage(
            (min(self.least_scale[0], other.least_scale[0]), min(self.least_scale[1], other.least_scale[1])),
            (self.is_covered[0] and other.is_covered[0], self.is_covered[1] and other.is_covered[1]),
        )


@attrs.define
class TransformationChain:
    """The transformation so far, of nodes while a graph is defined, or of arrays.

    Attributes:
        wh: Width and height of the images, ``(2,)`` float32: the viewport.
        draw: Gives the node, or the number, of a declared draw.
        matrix: ``(2, 3)`` float32; None as long as nothing is transformed.
    """

    wh: Any
    draw: Callable[[str], Any]
    matrix: Any = None
    center: Any = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Prepare what steps share."""
        self.center = self.wh * np.float32(0.5)

    @property
    def is_in_graph(self) -> bool:
        """Whether a graph is being defined."""
        return functions.is_node(self.wh)

    def then(self, transform: str, **arguments: Any) -> None:
        """Let an operator of ``fn.transforms`` follow, given by its name."""
        # In a graph, constant arguments make a node, too.
        transforms: Any = fn.transforms if self.is_in_graph else functions.transforms
        self.matrix = getattr(transforms, transform)(*(() if self.matrix is None else (self.matrix,)), **arguments)

    def bounds(self) -> tuple[Any, Any]:
        """Least and greatest ``x, y`` of the transformed image, ``(2,)`` each, as long as nothing is rotated."""
        corners: Any = functions.stack(np.zeros(2, np.float32), self.wh)
        if self.matrix is not None:
            corners = functions.coord_transform(corners, MT=self.matrix)
        reductions = functions.reductions
        return reductions.min(corners, axes=[0]), reductions.max(corners, axes=[0])


def masked(value: Any, is_applied: Any, neutral: float) -> Any:
    """``value`` where the step is applied, else ``neutral``."""
    if is_applied is None:
        return value
    if neutral == 0:
        return is_applied * value
    return is_applied * (value - np.float32(neutral)) + np.float32(neutral)


# --- settings -------------------------------------------------------------------------------------------


def number(value: Any) -> float:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not math.isfinite(value):
        raise SettingError(f"A transformation step needs finite numbers, got {value!r}.")
    return float(value)


def pair(value: Any) -> tuple[float, float]:
    """Two finite numbers, for x and y."""
    try:
        x, y = value
    except (TypeError, ValueError):
        raise SettingError(f"A transformation step needs two numbers, for x and y; got {value!r}.") from None
    return number(x), number(y)


def probability(value: Any) -> float:
    """A number in [0, 1]."""
    if not 0 <= number(value) <= 1:
        raise SettingError(f"`prob` must be in [0, 1], got {value!r}.")
    return float(value)


class TransformationStep(ABC):
    """A step of an `AffineTransformer`. Each sample is transformed with the probability ``prob``.

    Attributes:
        prob: The probability, in [0, 1].
    """

    prob: float

    @property
    def is_idle(self) -> bool:
        """Whether nothing is ever changed. Such a step draws nothing, since nobody would use it."""
        return self.prob == 0

    @property
    def keeps_axes(self) -> bool:
        """Whether nothing is rotated or sheared."""
        return True

    def kinds(self) -> Iterator[type[TransformationStep]]:
        """The classes of this step and of the steps in it."""
        yield type(self)

    def check_after(self, before: set[type[TransformationStep]]) -> None:
        """Refuse classes of steps that must not stand before this one: none, unless a step overrides this.

        Raises:
            SettingError: There is one.
        """
        return None

    def coverage_after(self, before: Coverage) -> Coverage:
        """What is known of the image where this step is applied or not, by its probability."""
        if self.prob == 0:
            return before
        after = self._coverage_if_applied(before)
        return after if self.prob == 1 else after.both(before)

    def draws(self, place: str, key: DrawKey) -> Iterator[UniformDraw]:
        """The draws of the step, in order: whether it is applied, then its parameters."""
        if self.is_idle:
            return
        if self.prob < 1:
            yield UniformDraw(f"{place}.is_applied", key=key)
        yield from self._parameter_draws(place, key)

    def extend(self, chain: TransformationChain, place: str, is_chosen: Any = None) -> None:
        """Let the step follow on a chain, for the samples that are chosen; None for all."""
        if self.prob < 1 and not self.is_idle:
            is_drawn = chain.draw(f"{place}.is_applied") < np.float32(self.prob)
            is_chosen = is_drawn if is_chosen is None else is_chosen & is_drawn
        elif chain.is_in_graph:
            # Not in the graph: callers that replace `fn.random.uniform` find the draws in the published order.
            fn.random.uniform(range=[0.0, 1.0])
        if self.prob > 0:
            self._extend(chain, place, is_chosen)

    def _coverage_if_applied(self, before: Coverage) -> Coverage:
        return before

    @abstractmethod
    def _parameter_draws(self, place: str, key: DrawKey) -> Iterator[UniformDraw]:
        """The draws of the parameters."""

    @abstractmethod
    def _extend(self, chain: TransformationChain, place: str, is_applied: Any) -> None:
        """Let the step follow, for the samples where the node is true; None for all."""


class DrawnStep(TransformationStep):
    """A step whose parameters are numbers of ranges: settings are ``prob``, the least and the greatest ones.

    Where the greatest are None, they are the least ones.
    """

    _parameters: tuple[str, ...] = ("x", "y")

    def __attrs_post_init__(self) -> None:
        """Check the limits."""
        low, high = self._limits()
        if any(least > most for least, most in zip(low, high, strict=True)):
            rule = f"no minimum may exceed its maximum, got {low} and {high}."
            if len(low) == 1:
                rule = f"the minimum must not exceed the maximum, got {low[0]} and {high[0]}."
            raise SettingError(f"{type(self).__name__}: {rule}")

    def _limits(self) -> tuple[list[float], list[float]]:
        """Least and greatest number of each parameter."""
        _, low, high = attrs.astuple(cast(Any, self), recurse=False)
        return np.atleast_1d(low).tolist(), np.atleast_1d(low if high is None else high).tolist()

    def _parameter_draws(self, place: str, key: DrawKey) -> Iterator[UniformDraw]:
        for parameter, least, most in zip(self._parameters, *self._limits(), strict=True):
            draw = UniformDraw(f"{place}.{parameter}", least, most, key=key)
            if draw.constant is None:
                yield draw

    def _value(self, chain: TransformationChain, place: str) -> Any:
        """The parameter, or both, ``(2,)``: float32, a node, or an array where nothing is drawn."""
        drawn = {draw.name for draw in self._parameter_draws(place, "sample")}
        names = [f"{place}.{parameter}" for parameter in self._parameters]
        values = [
            chain.draw(name) if name in drawn else np.float32(least)
            for name, least in zip(names, self._limits()[0], strict=True)
        ]
        return values[0] if len(values) == 1 else functions.stack(*values)


# --- chains of steps ------------------------------------------------------------------------------------


def checked_steps(steps: Any, what: str) -> tuple[TransformationStep, ...]:
    """Return a step, or a sequence of steps, as a tuple; None is no step.

    Raises:
        SettingError: Something else was given.
    """
    several = () if steps is None else (steps,) if isinstance(steps, TransformationStep) else steps
    if not isinstance(several, Sequence) or not all(isinstance(step, TransformationStep) for step in several):
        raise SettingError(f"{what} must be a transformation step or a sequence of them, got {steps!r}.")
    return tuple(several)


def check_order(steps: Sequence[TransformationStep], before: set[type[TransformationStep]]) -> None:
    """Refuse steps after others that they cannot follow.

    Raises:
        SettingError: There is such a step.
    """
    before = set(before)
    for step in steps:
        step.check_after(before)
        before.update(step.kinds())


def coverage_after(steps: Sequence[TransformationStep], before: Coverage) -> Coverage:
    """What is known of the image after some steps."""
    for step in steps:
        before = step.coverage_after(before)
    return before


def draws_of(steps: Sequence[TransformationStep], place: str, key: DrawKey) -> Iterator[UniformDraw]:
    """The draws of some steps, in order."""
    for index, step in enumerate(steps):
        yield from step.draws(f"{place}[{index}]", key)


def extend_by(
    chain: TransformationChain, steps: Sequence[TransformationStep], place: str, is_chosen: Any = None
) -> None:
    """Let some steps follow on a chain, for the samples that are chosen; None for all."""
    for index, step in enumerate(steps):
        step.extend(chain, f"{place}[{index}]", is_chosen)
