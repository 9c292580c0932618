# SPDX-License-Identifier: Apache-2.0
"""Steps that are applied to samples of arrays, where these are loaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ...sample_data import GroupFormat

if TYPE_CHECKING:
    from ...providers.replayed_draws import ReplayedDraws


class SampleSteps(Protocol):
    """Steps that are applied to samples of arrays, where these are loaded."""

    @property
    def output_format(self) -> GroupFormat:
        """Format that comes out."""

    def __call__(self, flat: Sequence[Any], numbers: Callable[[int], Any]) -> Sequence[Any]:
        """Apply them to the arrays of a sample; ``numbers`` gives the numbers of each draw."""


class SampleStepError(Exception):
    """A step failed; the cause tells how.

    Attributes:
        step: Number and class of the step, for messages.
    """

    def __init__(self, step: str) -> None:
        """Keep which step it was."""
        super().__init__(step)
        self.step = step


def of_step(error: BaseException) -> BaseException:
    """What a step has raised, of the exception by which that is told."""
    cause = error.__cause__
    return cause if isinstance(error, SampleStepError) and cause is not None else error


def named_step(error: BaseException, sample_index: int | None) -> str:
    """What has failed, where steps were applied to a sample."""
    if not isinstance(error, SampleStepError):
        return "Preparing the steps that run in the workers"
    of_sample = "a sample" if sample_index is None else f"sample {sample_index}"
    return f"{error.step[0].upper()}{error.step[1:]} on {of_sample}"


def after_steps(
    steps: SampleSteps, flat: Sequence[Any], draws: Sequence[Any], replayed: ReplayedDraws | None
) -> list[Any]:
    """Get the arrays of a loaded sample after steps, and behind them its recorded draws if it came with them.

    ``draws`` are the numbers of each draw, where they are not recorded.
    """
    if replayed is None:
        return [*steps(flat, draws.__getitem__)]
    recorded = [flat[position] for position, _, _ in replayed.fields]
    of_draws = {position for position, _, _ in replayed.fields}
    own = [array for position, array in enumerate(flat) if position not in of_draws]
    return [*steps(own, recorded.__getitem__), *recorded]
