"""Checks of the settings of steps: which values are taken, and by which rule the others are refused."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import attrs
import numpy as np
import pytest

from accvlab.dali_pipeline_framework.errors import FrameworkError
from accvlab.dali_pipeline_framework.processing_steps import PipelineStepBase
from support.public_steps import untried_steps

_VALUES = [np.int64(1), np.float32(1), True, "a", None, math.nan, b"a", [], {}, object()]


@attrs.frozen
class StepSettings:
    """Settings of the steps of a package; which of them are numbers or lists of numbers, their annotations say.

    Attributes:
        room: The package.
        good: Name of each step -> settings with which it can be made; the others have their defaults.
        takes_nan: Steps and their numbers that may be NaN.
    """

    room: ModuleType
    good: dict[str, dict[str, Any]]
    takes_nan: set[tuple[str, str]] = attrs.field(factory=set)

    def made(self, step: str, **other: Any) -> PipelineStepBase:
        cls: Callable[..., PipelineStepBase] = getattr(self.room, step)
        return cls(**{**self.good[step], **other})

    def assert_all_are_known(self, *left_out: str) -> None:
        """Each step of the package can be made."""
        assert untried_steps(self.room, self.good.keys()) == {*left_out}, "add them to `GOOD`, or take them out"
        for step in self.good:
            assert self.made(step)

    def assert_values_of_every_kind(self, step: str) -> None:
        """A value is taken, or refused by a rule with its name."""
        for setting in self._parameters(step):
            for value in _VALUES:
                try:
                    self.made(step, **{setting: value})
                except FrameworkError as error:
                    told = str(error)
                    assert "`" in told or "path" in told or "condition" in told

    def assert_what_is_no_number(self, step: str) -> None:
        for setting in self._numbers(step, are_lists=False):
            for value in (True, np.True_, "a"):
                assert self._is_refused(step, setting, value)
            assert self._is_refused(step, setting, math.nan) != ((step, setting) in self.takes_nan)

    def assert_lists_of_what_is_no_number(self, step: str) -> None:
        for setting in self._numbers(step, are_lists=True):
            [_, *others] = np.ravel(self._usual(step, setting)).tolist()
            assert self._is_refused(step, setting, True)
            for value in (True, "a", None, math.nan):
                assert self._is_refused(step, setting, [value, *others])

    def assert_numbers_of_numpy(self, step: str) -> None:
        for setting in self._numbers(step, are_lists=False) + self._numbers(step, are_lists=True):
            good, annotation = self._usual(step, setting), str(self._parameters(step)[setting].annotation)
            is_whole = all(float(one).is_integer() for one in np.ravel(good)) and not isinstance(good, float)
            types = [np.int64, np.int32] if is_whole else [np.float64]
            if "float" in annotation:
                types.append(np.float32)
            for dtype in types:
                array = np.array(good, dtype)
                for value in (array[()],) if array.ndim == 0 else (array, tuple(array), [*array]):
                    assert self.made(step, **{setting: value})

    def _parameters(self, step: str) -> dict[str, inspect.Parameter]:
        return dict(inspect.signature(getattr(self.room, step)).parameters)

    def _numbers(self, step: str, are_lists: bool) -> list[str]:
        annotations = {name: str(each.annotation) for name, each in self._parameters(step).items()}
        return [
            name
            for name, annotation in annotations.items()
            if re.match(r"((Sequence|tuple)\[.*)?\b(int|float)\b", annotation)
            and self._usual(step, name) is not None
            if ("[" in annotation) == are_lists
        ]

    def _usual(self, step: str, setting: str) -> Any:
        return self.good[step].get(setting, self._parameters(step)[setting].default)

    def _is_refused(self, step: str, setting: str, value: Any) -> bool:
        try:
            self.made(step, **{setting: value})
        except FrameworkError as error:
            return f"`{setting}` must be" in str(error)
        return False


def of_each_step(settings: StepSettings) -> pytest.MarkDecorator:
    """Run a test with each check of values and each step."""
    checks = [
        settings.assert_values_of_every_kind,
        settings.assert_what_is_no_number,
        settings.assert_lists_of_what_is_no_number,
        settings.assert_numbers_of_numpy,
    ]
    cases = [(check, step) for check in checks for step in settings.good]
    names = [f"{step}-{check.__name__.removeprefix('assert_')}" for check, step in cases]
    return pytest.mark.parametrize(("check", "step"), cases, ids=names)
