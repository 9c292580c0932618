"""The contract of processing steps: every public step keeps it, and every rule notices who breaks it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import nvidia.dali.fn as fn
import pytest
from nvidia.dali import types
from support.graphs import untraced
from support.laws import spread
from support.public_steps import PUBLIC_STEPS, untried_steps
from support.random_steps import filled
from support.steps import KeepsFormat

from accvlab.dali_pipeline_framework import processing_steps
from accvlab.dali_pipeline_framework.draws import Draws, IntegerDraw, RandomDraw, UniformDraw
from accvlab.dali_pipeline_framework.errors import ContractError, SettingError
from accvlab.dali_pipeline_framework.extension import DeferredImage, FieldUse, PixelChanges
from accvlab.dali_pipeline_framework.pipeline import SampleDataGroup
from accvlab.dali_pipeline_framework.processing_steps import ArrayStep, PipelineStepBase
from accvlab.dali_pipeline_framework.testing import check_step

DT = types.DALIDataType
Change = Callable[[SampleDataGroup], SampleDataGroup]


@pytest.mark.parametrize("name", PUBLIC_STEPS)
def test_public_steps_keep_the_contract(name: str) -> None:
    case = PUBLIC_STEPS[name]
    with untraced():
        check_step(case.step, case.samples, **case.options)


def test_all_public_steps_are_among_them() -> None:
    of_other_packages = {"AlbumentationsStep", "TorchvisionStep"}  # see test_image_library_steps.py
    assert untried_steps(processing_steps, PUBLIC_STEPS.keys()) == of_other_packages


# --- steps that break one rule each ----------------------------------------------------------------------


def same(data: SampleDataGroup) -> SampleDataGroup:
    return data


GAIN = UniformDraw("gain", 1, 2)


class Scaler(PipelineStepBase):
    """Multiplies a field by a random gain; keeps all rules, unless what it does next or declares breaks one."""

    def __init__(
        self, next_to_it: Change = same, declared: Change = same, *, name: str = "value", draws: Any = (GAIN,)
    ) -> None:
        self._next, self._declared, self._name, self._drawn = next_to_it, declared, name, draws

    def declare_draws(self, data_empty: SampleDataGroup) -> Sequence[RandomDraw]:
        return list(self._drawn)

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        data[self._name] = data[self._name] * self.draw("gain")
        return self._next(data)

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        if not data_empty.has_child(self._name) or data_empty.get_type_of_field(self._name) != DT.FLOAT:
            raise ValueError(f"{self._name}: must be a FLOAT field")
        return self._declared(data_empty)


class ChangesTheInputFormat(Scaler):
    def check_input_data_format_and_set_output_data_format(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        # Only where it is asked without data, so that what comes out is right.
        if not data_empty.has_child("extra") and data_empty["value"] is None:
            data_empty.add_data_field("extra", DT.FLOAT)
        copy = data_empty.get_empty_like_self()
        if copy.has_child("extra"):
            copy.remove_field("extra")
        return super().check_input_data_format_and_set_output_data_format(copy)


class IsPickledBadly(Scaler):
    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_next": as_negative}


class HidesTheField(Scaler):
    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        try:
            return super()._check_and_adjust_data_format_input_to_output(data_empty)
        except ValueError:
            raise ValueError("wrong format") from None


class ChecksNothing(KeepsFormat):
    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        data["value"] = data["value"] * 2.0
        return data


def with_extra(data: SampleDataGroup) -> SampleDataGroup:
    data.add_data_field("extra", DT.FLOAT)
    data["extra"] = data["value"]
    return data


TIMES = [0]


def in_turn(data_empty: SampleDataGroup) -> SampleDataGroup:
    TIMES[0] += 1
    if TIMES[0] == 2:
        data_empty.add_data_field("extra", DT.FLOAT)
    return data_empty


def as_negative(data: SampleDataGroup) -> SampleDataGroup:
    data["value"] = -data["value"]
    return data


def as_float64(data: SampleDataGroup) -> SampleDataGroup:
    data["value"] = fn.cast(data["value"], dtype=DT.FLOAT64)
    return data


def with_an_axis(data: SampleDataGroup) -> SampleDataGroup:
    data["value"] = fn.expand_dims(data["value"], axes=[0])
    return data


def of_one_axis(data_empty: SampleDataGroup) -> SampleDataGroup:
    data_empty.change_type_of_data_and_remove_data("value", DT.FLOAT, new_ndim=1)
    return data_empty


def fails_in_the_graph(data: SampleDataGroup) -> SampleDataGroup:
    data["value"] = fn.slice(data["value"], 50, 60, axes=[0])
    return data


def with_other_images(data: SampleDataGroup) -> SampleDataGroup:
    for name in data:
        if "image" in str(name):
            data[name] = data[name] + np.uint8(1)
    return data


def without_numbers(data: SampleDataGroup) -> SampleDataGroup:
    for name in [*data]:
        if "number" in str(name):
            data.remove_field(name)
    return data


def padded(data: SampleDataGroup) -> SampleDataGroup:
    data["value"] = fn.pad(data["value"])
    return data


def noisy(data: SampleDataGroup) -> SampleDataGroup:
    data["value"] = data["value"] + fn.random.uniform(range=[0.0, 1.0])
    return data


def noisy_without_effect(data: SampleDataGroup) -> SampleDataGroup:
    data["value"] = data["value"] + fn.random.uniform(range=[0.0, 1.0]) * 0.0
    return data


def other_with_conditionals(data: SampleDataGroup) -> SampleDataGroup:
    from nvidia.dali._conditionals import conditionals_enabled

    return as_negative(data) if conditionals_enabled() else data


def samples() -> list[SampleDataGroup]:
    return [filled({"value": (DT.FLOAT, np.arange(count + 1.0)), "other": (DT.INT32, 5)}) for count in (2, 4)]


IDLE = (GAIN, IntegerDraw("idle", 0, 9))
LEFT = "the input format must be left as it is: - extra: not in the blueprint"
ANSWERS = "called twice with one format, the step must give the same answer: - extra: not in"
DECLARED = "the step must produce the format that it declares: "
WORKS = "the step must work on the samples: "
PASS = "fields that the step does not know must pass unchanged: "
ALONE = "a batch of n samples must give what n batches of one give: sample 0"
REPEATED = "with the same draws, the output must be the same: sample 0"
NAMES = "an error about the format must name the field: with value "
LETS_PASS = "what the format check lets pass must work: with value "
# A step, and the rules that it breaks.
BREAKERS: dict[str, tuple[PipelineStepBase, list[str]]] = {
    "input format": (ChangesTheInputFormat(), [LEFT]),
    "answer in turn": (Scaler(declared=in_turn), [ANSWERS]),
    "other format": (Scaler(with_extra), [f"{DECLARED}Scaler did"]),
    "other type": (Scaler(as_float64), [f"{DECLARED}The data do not have"]),
    "axes": (Scaler(with_an_axis, of_one_axis), [f"{DECLARED}value: 2 dimension(s), the format says 1"]),
    "failure in the graph": (Scaler(fails_in_the_graph), [f"{WORKS}GraphError"]),
    "unknown changed": (Scaler(with_other_images), [f"{PASS}unknown to the step: image"]),
    "unknown lost": (Scaler(without_numbers, without_numbers), [f"{PASS}unknown to the step: number: is lost"]),
    "batch": (Scaler(padded), [ALONE]),
    "secret draw": (
        Scaler(noisy),
        [REPEATED, "what is drawn must", "with DALI's conditionals", "what a pickled copy", "a batch of n", PASS],
    ),
    "secret draw without effect": (
        Scaler(noisy_without_effect),
        ["what is drawn must be declared: the step uses fn.random.uniform"],
    ),
    "idle draw": (Scaler(draws=IDLE), ["each declared draw must be used: Scaler[0]/idle"]),
    "no pickle": (Scaler(lambda data: data), ["the step must be picklable: "]),
    "bad pickle": (IsPickledBadly(), ["what a pickled copy makes must be the same: sample 0"]),
    "hidden field": (HidesTheField(), [f"{NAMES}removed: The processing steps", f"{NAMES}of type INT32"]),
    "no check": (ChecksNothing(), [f"{LETS_PASS}removed: FieldNotFoundError", f"{LETS_PASS}of type INT32"]),
    "conditionals": (
        Scaler(other_with_conditionals),
        ["with DALI's conditionals, the output must be the same: sample 0"],
    ),
}


def rules_broken(step: PipelineStepBase, given: Any, **options: Any) -> list[str]:
    with pytest.raises(ContractError) as caught:
        check_step(step, given, **options)
    assert isinstance(caught.value, AssertionError)
    heading, *lines = str(caught.value).splitlines()
    assert heading == f"{type(step).__name__} breaks the contract of processing steps:"
    return [line.removeprefix("  - ") for line in lines if line.startswith("  - ")]


def test_a_good_step_passes() -> None:
    check_step(Scaler(), samples())
    check_step(Scaler(name="other field"), filled({"other field": (DT.FLOAT, 1.0)}))


@spread("name", BREAKERS, 12)
def test_a_broken_rule_is_noticed(name: str) -> None:
    step, expected = BREAKERS[name]
    rules = rules_broken(step, samples())
    assert any(rule.startswith(expected[0]) for rule in rules)
    assert [rule for rule in rules if not rule.startswith(tuple(expected))] == []


def test_rules_can_be_left_out() -> None:
    check_step(Scaler(padded), samples(), per_sample=False)
    check_step(Scaler(without_numbers, without_numbers), samples(), passes_unknown_fields=False)
    check_step(Scaler(other_with_conditionals), samples(), tolerance=100.0)


def test_samples_that_do_not_fit_are_reported() -> None:
    rule, *_ = rules_broken(Scaler(), filled({"value": (DT.INT32, 1)}))
    assert rule.startswith("the format cannot be computed: ValueError")
    assert "value: must be a FLOAT" in rule


@pytest.mark.parametrize("given", [[], [1]])
def test_what_are_no_samples_is_no_matter_of_the_step(given: Any) -> None:
    with pytest.raises(SettingError, match=r"(?i)sample"):
        check_step(Scaler(), given)


# --- steps of arrays -------------------------------------------------------------------------------------


class Adds(ArrayStep):
    """Adds 1, in the graph a little more."""

    only_in_workers = False
    image_tolerance = 0.01

    def __init__(self, more: float) -> None:
        self._more = more

    def fields_used(self, data_empty: SampleDataGroup) -> FieldUse:
        return FieldUse()

    def format_after(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        if data_empty.get("image") is not None or data_empty.get_type_of_field("image") != DT.FLOAT:
            raise ValueError("image: must be FLOAT")
        return data_empty

    def declare_pixel_changes(self, data_empty: SampleDataGroup) -> PixelChanges:
        return {("image",): {}}

    def graph(self, image: Any, *others: Any, **parameters: Any) -> Any:
        return image + np.float32(1 + self._more)

    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        image = data["image"]
        data["image"] = image.changed() if isinstance(image, DeferredImage) else image + np.float32(1)
        return data


def test_infinite_pixels_leave_the_tolerance_as_it_is() -> None:
    image = np.zeros((2, 3, 1), np.float32)
    image[0, :, 0] = np.inf, -np.inf, 99  # to 100: 1 is within the tolerance
    sample = SampleDataGroup()
    sample.add_data_field("image", DT.FLOAT, ndim=3)
    sample["image"] = image
    check_step(Adds(0.9), sample, per_sample=False)
    with pytest.raises(ContractError, match=r"image: 4 of 6 values differ, .*: expected 102\.5, on arrays 100\.0"):
        check_step(Adds(2.5), sample, per_sample=False)


class FailsAtLeastNumbers(ArrayStep):
    draws = (UniformDraw("first", 0, 1), UniformDraw("second", 0, 1))

    def format_after(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        return data_empty

    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        if draws["first"] == 0:
            raise ValueError("zero")
        return data


def test_arrays_that_fail_for_some_draws_are_reported() -> None:
    with pytest.raises(ContractError, match=r"the draws of the step must be found out: .*zero"):
        check_step(FailsAtLeastNumbers(), samples())
