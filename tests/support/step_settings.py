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
    """Settings of the steps of a package, and of which kind they are.

    Attributes:
        room: The package.
        good: Name of each step -> settings with which it can be made; the others have their defaults.
        whole_numbers: Names of settings that are whole numbers.
        numbers: Names of settings that are numbers.
        ranges: Names of settings that are two numbers.
        lists_of_whole_numbers: Names of settings that are lists of whole numbers.
        lists: Names of settings that are lists of numbers.
        takes_nan: Steps and their numbers that may be NaN.
    """

    room: ModuleType
    good: dict[str, dict[str, Any]]
    whole_numbers: set[str] = attrs.field(factory=set)
    numbers: set[str] = attrs.field(factory=set)
    ranges: set[str] = attrs.field(factory=set)
    lists_of_whole_numbers: set[str] = attrs.field(factory=set)
    lists: set[str] = attrs.field(factory=set)
    takes_nan: set[tuple[str, str]] = attrs.field(factory=set)

    def made(self, step: str, **other: Any) -> PipelineStepBase:
        cls: Callable[..., PipelineStepBase] = getattr(self.room, step)
        return cls(**{**self.good[step], **other})

    def assert_all_are_known(self, *left_out: str) -> None:
        """Each step of the package can be made; each number is of a kind, and each name of a kind is a setting."""
        assert untried_steps(self.room, self.good.keys()) == {*left_out}, "add them to `GOOD`, or take them out"
        names = self._all_lists | self.whole_numbers | self.numbers | self.ranges
        numbers = {
            name
            for step in self.good
            for name, parameter in self._parameters(step).items()
            if str(parameter.annotation) in ("int", "float")
        }
        assert numbers - names == set(), "add them to the numbers or whole numbers of the `StepSettings`"
        assert {name for step in self.good for name in self._names(step, names)} == names
        for step in self.good:
            assert self.made(step)

    def assert_vocabulary(self, step: str) -> None:
        first, *others = self._parameters(step).values()
        assert first.name == "function" if step in ("LambdaStep", "MapStep") else first.name.endswith("_names")
        assert first.kind is first.POSITIONAL_OR_KEYWORD
        assert {one.kind for one in others} == {inspect.Parameter.KEYWORD_ONLY}
        for one in others:
            assert not re.search("^(min|max|minimum|maximum)_|field_name|_on_gpu$|use_", one.name)
            # Two numbers are a range.
            assert one.name.endswith("_range") == (
                isinstance(one.default, tuple) or one.name in ("scale_range", "point_range")
            )

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
        for setting in self._names(step, self.whole_numbers | self.numbers):
            for value in (True, np.True_, "a"):
                assert self._is_refused(step, setting, value)
            assert self._is_refused(step, setting, math.nan) != ((step, setting) in self.takes_nan)

    def assert_lists_of_what_is_no_number(self, step: str) -> None:
        for setting in self._names(step, self.ranges | self._all_lists):
            [_, *others] = np.ravel(self._usual(step, setting)).tolist()
            assert self._is_refused(step, setting, True)
            for value in (True, "a", None, math.nan):
                assert self._is_refused(step, setting, [value, *others])

    def assert_numbers_of_numpy(self, step: str) -> None:
        every = self.whole_numbers | self.numbers | self.ranges | self._all_lists
        for setting in self._names(step, every):
            good = self._usual(step, setting)
            is_whole = all(float(one).is_integer() for one in np.ravel(good)) and not isinstance(good, float)
            types = [np.int64, np.int32] if is_whole else [np.float64]
            if setting not in self.whole_numbers | self.lists_of_whole_numbers:
                types.append(np.float32)
            for dtype in types:
                array = np.array(good, dtype)
                for value in (array[()],) if array.ndim == 0 else (array, tuple(array), [*array]):
                    assert self.made(step, **{setting: value})

    @property
    def _all_lists(self) -> set[str]:
        return self.lists | self.lists_of_whole_numbers

    def _parameters(self, step: str) -> dict[str, inspect.Parameter]:
        return dict(inspect.signature(getattr(self.room, step)).parameters)

    def _names(self, step: str, names: set[str]) -> list[str]:
        return [name for name in self._parameters(step) if name in names]

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
