# SPDX-License-Identifier: Apache-2.0
"""The steps of a chain that are applied to arrays, where the samples are loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import attrs
import numpy as np

from ...draws.draw_scope import ArrayDraws, DrawPlan
from ...draws.random_draws import NormalDraw, PlannedDraw
from ...engine.samples import SampleStepError
from ...processing_steps.array_application import ArrayApplication, filled
from ...processing_steps.pipeline_step_base import PipelineStepBase
from ...sample_data import GroupFormat, SampleDataGroup
from .chain_format import chain_format, step_name


class _Prepared(NamedTuple):
    plan: DrawPlan
    output_format: GroupFormat
    draws: ArrayDraws
    apply: ArrayApplication


@attrs.define
class ArraySteps:
    """Applies the first steps of a chain to flat samples of arrays.

    Attributes:
        input_format: Format of the samples.
        steps: The steps.
    """

    input_format: GroupFormat
    steps: Sequence[PipelineStepBase]
    _prepared: _Prepared | None = attrs.field(default=None, init=False)

    def __getstate__(self) -> dict[str, Any]:
        # Draws are found again by the identity of the step, which is another one in another process.
        return {"input_format": self.input_format, "steps": self.steps}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    @property
    def draws(self) -> Sequence[PlannedDraw]:
        """The draws that the steps declare: the first ones of those of the whole chain."""
        return self._prepare().plan.draws

    @property
    def output_format(self) -> GroupFormat:
        """Format that comes out."""
        return self._prepare().output_format

    def _prepare(self) -> _Prepared:
        if self._prepared is None:
            plan = DrawPlan(self.input_format)
            blueprint = SampleDataGroup.from_format(self.input_format)
            blueprint.set_apply_mapping(False)
            output_format = chain_format(blueprint, self.steps, draws=plan).format
            draws = ArrayDraws(plan)
            self._prepared = _Prepared(plan, output_format, draws, ArrayApplication(draws))
        return self._prepared

    def __call__(self, flat: Sequence[Any], numbers: Callable[[int], Any]) -> Sequence[Any]:
        """Apply the steps to a sample.

        Args:
            flat: Its arrays.
            numbers: Called with the position of a draw in ``draws``; gives its numbers.

        Returns:
            The arrays of the output.

        Raises:
            SampleStepError: A step failed.
        """
        *_, (_, sample) = self.walk(flat, numbers)
        return sample.get_data()

    def try_on(self, flat: Sequence[Any]) -> Sequence[Any]:
        """Apply the steps to a sample with some numbers that could be drawn."""
        draws = [planned.draw for planned in self.draws]
        numbers = [
            np.full(draw.shape, draw.mean if isinstance(draw, NormalDraw) else draw.low, draw.numpy_dtype)
            for draw in draws
        ]
        return self(flat, numbers.__getitem__)

    def walk(self, flat: Sequence[Any], numbers: Callable[[int], Any]) -> Iterator[tuple[str, SampleDataGroup]]:
        """Apply the steps to a sample one by one; yields ``"input"`` and then the name of each, and the sample.

        Raises:
            SampleStepError: A step failed.
        """
        prepared = self._prepare()
        prepared.draws.begin_sample(numbers)
        sample = filled(SampleDataGroup.from_format(self.input_format), flat)
        yield "input", sample
        for number, step in enumerate(self.steps):
            name = f"step {number} ({step_name(step)})"
            try:
                sample = prepared.apply(step, sample)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # e.g. a panic of an extension written in Rust
                raise SampleStepError(name) from error
            yield name, sample
