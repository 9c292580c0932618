"""The contract of processing steps: every public step keeps it, and every rule notices who breaks it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import nvidia.dali.fn as fn
import pytest
from nvidia.dali import types
from support.graphs import untraced
from support.laws import spread
from support.public_steps import PUBLIC_STEPS, untried_steps
from support.random_steps import filled

from accvlab.dali_pipeline_framework import processing_steps
from accvlab.dali_pipeline_framework.draws import Draws, IntegerDraw, RandomDraw, UniformDraw
from accvlab.dali_pipeline_framework.errors import ContractError, SettingError
from accvlab.dali_pipeline_framework.extension import DeferredImage, FieldUse, PixelChanges
from accvlab.dali_pipeline_framework.pipeline import SampleDataGroup
from accvlab.dali_pipeline_framework.processing_steps import ArrayStep, PipelineStepBase
from accvlab.dali_pipeline_framework.testing import check_step

DT = types.DALIDataType


@pytest.mark.parametrize("name", PUBLIC_STEPS)
def test_public_steps_keep_the_contract(name: str) -> None:
    case = PUBLIC_STEPS[name]
    with untraced():
        check_step(case.step, case.samples, **case.options)


def test_all_public_steps_are_among_them() -> None:
    of_other_packages = {"AlbumentationsStep", "TorchvisionStep"}  # see test_image_library_steps.py
    assert untried_steps(processing_steps, PUBLIC_STEPS.keys()) == of_other_packages


# --- steps that break one rule each ----------------------------------------------------------------------


class Scaler(PipelineStepBase):
    """Keeps all rules: multiplies a field by a factor and a random gain."""

    def __init__(self, name: str = "value", factor: float = 2.0) -> None:
        self._name = name
        self._factor = factor

    def declare_draws(self, data_empty: SampleDataGroup) -> Sequence[RandomDraw]:
        return [UniformDraw("gain", 1, 2)]

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        data[self._name] = data[self._name] * self.draw("gain") * self._factor
        return data

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        if not data_empty.has_child(self._name) or data_empty.get_type_of_field(self._name) != DT.FLOAT:
            raise ValueError(f"{self._name}: must be a FLOAT field")
        return data_empty


class ChangesTheInputFormat(Scaler):
    def check_input_data_format_and_set_output_data_format(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        # Only where it is asked without data, so that what comes out is right.
        if not data_empty.has_child("extra") and data_empty["value"] is None:
            data_empty.add_data_field("extra", DT.FLOAT)
        copy = data_empty.get_empty_like_self()
        if copy.has_child("extra"):
            copy.remove_field("extra")
        return super().check_input_data_format_and_set_output_data_format(copy)


class AnswersInTurn(Scaler):
    times: ClassVar[list[int]] = [0]

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        self.times[0] += 1
        if self.times[0] == 2:
            data_empty.add_data_field("extra", DT.FLOAT)
        return super()._check_and_adjust_data_format_input_to_output(data_empty)


class ProducesAnotherFormat(Scaler):
    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        data.add_data_field("extra", DT.FLOAT)
        data["extra"] = data["value"]
        return super()._process(data)


class ProducesAnotherType(Scaler):
    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        data = super()._process(data)
        data["value"] = fn.cast(data["value"], dtype=DT.FLOAT64)
        return data


class ProducesOtherDimensions(Scaler):
    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        data = super()._process(data)
        data["value"] = fn.expand_dims(data["value"], axes=[0])
        return data

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        data_empty = super()._check_and_adjust_data_format_input_to_output(data_empty)
        data_empty.change_type_of_data_and_remove_data("value", DT.FLOAT, new_ndim=1)
        return data_empty


class Fails(Scaler):
    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        raise RuntimeError("no way")


class FailsInTheGraph(Scaler):
    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        data = super()._process(data)
        data["value"] = fn.slice(data["value"], 50, 60, axes=[0])
        return data


class ChangesUnknownFields(Scaler):
    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        data = super()._process(data)
        for name in data:
            if "image" in str(name):
                data[name] = data[name] + np.uint8(1)
        return data


class LosesUnknownFields(Scaler):
    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        return self._reduced(super()._process(data))

    def _reduced(self, data: SampleDataGroup) -> SampleDataGroup:
        for name in [*data]:
            if "number" in str(name):
                data.remove_field(name)
        return data

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        return self._reduced(super()._check_and_adjust_data_format_input_to_output(data_empty))


class IsDisturbedByUnknownFields(Scaler):
    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        more = sum("number" in str(name) for name in data)
        data = super()._process(data)
        data["value"] = data["value"] + float(more)
        return data


class LooksAtTheBatch(Scaler):
    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        data = super()._process(data)
        data["value"] = fn.pad(data["value"])
        return data


class DrawsInSecret(Scaler):
    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        data = super()._process(data)
        data["value"] = data["value"] + fn.random.uniform(range=[0.0, 1.0])
        return data


class DrawsInSecretWithoutEffect(Scaler):
    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        data = super()._process(data)
        data["value"] = data["value"] + fn.random.uniform(range=[0.0, 1.0]) * 0.0
        return data


class DrawsWithoutUse(Scaler):
    def declare_draws(self, data_empty: SampleDataGroup) -> Sequence[RandomDraw]:
        return [UniformDraw("gain", 1, 2), IntegerDraw("idle", 0, 9)]


class DrawsWithoutDeclaration(Scaler):
    def declare_draws(self, data_empty: SampleDataGroup) -> Sequence[RandomDraw]:
        return []


class CannotBePickled(Scaler):
    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()


class IsPickledBadly(Scaler):
    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_factor": 3.0}


class HidesTheField(Scaler):
    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        try:
            return super()._check_and_adjust_data_format_input_to_output(data_empty)
        except ValueError:
            raise ValueError("wrong format") from None


class ChecksNothing(Scaler):
    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        return data_empty


class FailsWithConditionals(Scaler):
    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        from nvidia.dali._conditionals import conditionals_enabled

        data = super()._process(data)
        if conditionals_enabled():
            data["value"] = data["value"] + 1.0
        return data


def samples() -> list[SampleDataGroup]:
    return [filled({"value": (DT.FLOAT, np.arange(count + 1.0)), "other": (DT.INT32, 5)}) for count in (2, 4)]


BREAKERS: dict[str, tuple[PipelineStepBase, str]] = {
    type(step).__name__: (step, text)
    for step, text in (
        (ChangesTheInputFormat(), "the input format must be left as it is: - extra: not in the blueprint"),
        (
            AnswersInTurn(),
            "called twice with one format, the step must give the same answer: - extra: not in",
        ),
        (
            ProducesAnotherFormat(),
            "the step must produce the format that it declares: ProducesAnotherFormat did",
        ),
        (ProducesAnotherType(), "the step must produce the format that it declares: The data do not have"),
        (
            ProducesOtherDimensions(),
            "the step must produce the format that it declares: value: 2 dimension(s), the format says 1",
        ),
        (Fails(), "the step must work on the samples: RuntimeError: no way"),
        (FailsInTheGraph(), "the step must work on the samples: GraphError"),
        (
            ChangesUnknownFields(),
            "fields that the step does not know must pass unchanged: unknown to the step: image",
        ),
        (LosesUnknownFields(), "the step does not know must pass unchanged: unknown to the step: number: is lost"),
        (IsDisturbedByUnknownFields(), "fields that the step does not know must pass unchanged: value: 3 of 3"),
        (LooksAtTheBatch(), "a batch of n samples must give what n batches of one give: sample 0"),
        (DrawsInSecret(), "with the same draws, the output must be the same: sample 0"),
        (DrawsInSecretWithoutEffect(), "what is drawn must be declared: the step uses fn.random.uniform"),
        (DrawsWithoutUse(), "each declared draw must be used: DrawsWithoutUse[0]/idle"),
        (
            DrawsWithoutDeclaration(),
            "the step must work on the samples: SettingError[KeyError]: DrawsWithoutDeclaration.draw(",
        ),
        (CannotBePickled(), "the step must be picklable: TypeError"),
        (IsPickledBadly(), "what a pickled copy makes must be the same: sample 0"),
        (
            HidesTheField(),
            "an error about the format must name the field: with value removed: The processing steps",
        ),
        (ChecksNothing(), "what the format check lets pass must work: with value removed: FieldNotFoundError"),
        (FailsWithConditionals(), "with DALI's conditionals, the output must be the same: sample 0"),
    )
}
# Other rules that are broken with it, for a reason.
ALSO = {
    "DrawsInSecret": {
        "what is drawn must",
        "with DALI's conditionals",
        "a pickled copy",
        "a batch of n",
        "fields that the step",
    },
    "HidesTheField": {"an error about the format must name the field: with value of type INT32"},
    "ChecksNothing": {"what the format check lets pass must work: with value of type INT32"},
}


def test_a_good_step_passes() -> None:
    check_step(Scaler(), samples())
    check_step(Scaler("other field", 3.0), filled({"other field": (DT.FLOAT, 1.0)}))


@spread("name", BREAKERS, 12)
def test_a_broken_rule_is_noticed(name: str) -> None:
    step, text = BREAKERS[name]
    with pytest.raises(ContractError) as caught:
        check_step(step, samples())
    assert isinstance(caught.value, AssertionError)
    heading, *lines = str(caught.value).splitlines()
    assert heading == f"{name} breaks the contract of processing steps:"
    rules = [line.removeprefix("  - ") for line in lines if line.startswith("  - ")]
    assert any(rule.startswith(text) or text in rule for rule in rules)
    others = [rule for rule in rules if text not in rule]
    assert all(any(also in rule for also in ALSO.get(name, ())) for rule in others), others


def test_rules_can_be_left_out() -> None:
    check_step(LooksAtTheBatch(), samples(), per_sample=False)
    check_step(LosesUnknownFields(), samples(), passes_unknown_fields=False)
    check_step(FailsWithConditionals(), samples(), tolerance=1.0)


def test_samples_that_do_not_fit_are_reported() -> None:
    with pytest.raises(
        ContractError, match=r"the format cannot be computed: ValueError.*: value: must be a FLOAT"
    ):
        check_step(Scaler(), filled({"value": (DT.INT32, 1)}))


def test_all_problems_of_a_step_are_listed() -> None:
    class Bad(DrawsWithoutUse, LooksAtTheBatch):
        pass

    with pytest.raises(ContractError) as caught:
        check_step(Bad(), samples())
    rules = [line for line in str(caught.value).splitlines() if line.startswith("  - ")]
    assert [rule.split(":")[0] for rule in rules] == [
        "  - the step must be picklable",
        "  - each declared draw must be used",
        "  - a batch of n samples must give what n batches of one give",
    ]


@pytest.mark.parametrize("given", [[], [1]])
def test_what_are_no_samples_is_no_matter_of_the_step(given: Any) -> None:
    with pytest.raises(SettingError, match=r"(?i)sample"):
        check_step(Scaler(), given)


class CarelessWithCameras(PipelineStepBase):
    """Breaks many rules, in each of the cameras."""

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        for camera in data["cameras"].values():
            for name in camera:
                if camera.get_type_of_field(name) == DT.FLOAT:
                    camera[name] = fn.pad(camera[name] + 1.0)
            camera["points"] = camera["points"] * 2.0
        return data

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        return data_empty


def test_problems_of_array_elements_are_reported_together() -> None:
    def sample(count: int) -> SampleDataGroup:
        camera = SampleDataGroup()
        camera.add_data_field("points", DT.FLOAT)
        group = SampleDataGroup()
        group.add_data_group_field_array("cameras", camera, 6)
        group.set_data([np.full(count + number % 2, number, np.float32) for number in range(6)])
        return group

    with pytest.raises(ContractError) as caught:
        check_step(CarelessWithCameras(), [sample(2), sample(3)])
    works = "what the format check lets pass must work: with cameras[0..5].points"
    assert str(caught.value).splitlines() == [
        "CarelessWithCameras breaks the contract of processing steps:",
        "  - a batch of n samples must give what n batches of one give: sample 0",
        "      cameras[0].points: expected float32 (3,), alone float32 (2,); also different: cameras[1..5].points",
        "  - fields that the step does not know must pass unchanged: cameras[0..5].unknown to the step: vectors: "
        "expected float32 (1, 3), found float32 (2, 3)",
        f"  - {works} removed: FieldNotFoundError: No field with name 'points'. The group is empty.",
        f"  - {works} of type INT32: OutputError: The data do not have the types of the declared format. Make the "
        "step produce the declared type (e.g. with fn.cast), or change the declaration:",
        "        - cameras[0].points: Expected type int32, but the actual data type is float32 (last set by step "
        "0 (CarelessWithCameras))",
    ]


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


# --- steps of arrays alone -------------------------------------------------------------------------------


class InGroup(ArrayStep):
    """Needs the numbers ``x`` in the group ``a``."""

    def format_after(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        if not data_empty.path_exists_and_is_data_group_field(("a",)) or not data_empty["a"].has_child("x"):
            raise ValueError("x: must be in the group a")
        if data_empty["a"].get_type_of_field("x") != DT.FLOAT:
            raise ValueError("x: must be FLOAT")
        return self.changed(data_empty)

    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        return self.changed(data)

    def changed(self, data: SampleDataGroup) -> SampleDataGroup:
        return data


class RenamesGroup(InGroup):
    def changed(self, data: SampleDataGroup) -> SampleDataGroup:
        group = data["a"]
        data.remove_field("a")
        data.add_data_group_field("b", group.get_empty_like_self())
        data["b"].set_data(group.get_data())
        return data


class EmptiesGroup(InGroup):
    def changed(self, data: SampleDataGroup) -> SampleDataGroup:
        for name in [*data["empty"]] if data.has_child("empty") else ():
            data["empty"].remove_field(name)
        return data


class TreatsAlike(InGroup):
    treats_elements_alike = True


class FailsAtLeastNumbers(InGroup):
    draws = (UniformDraw("first", 0, 1), UniformDraw("second", 0, 1))

    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        if draws["first"] == 0:
            raise ValueError("zero")
        return data


def in_groups(count: int) -> SampleDataGroup:
    group, sample = SampleDataGroup(), SampleDataGroup()
    group.add_data_field("x", DT.FLOAT, ndim=1)
    group["x"] = np.arange(count, dtype=np.float32)
    sample.add_data_group_field("a", group.get_empty_like_self())
    sample["a"] = group
    sample.add_data_group_field("empty", SampleDataGroup())
    return sample


@pytest.mark.parametrize("step", [InGroup(), RenamesGroup(), TreatsAlike()], ids=lambda step: type(step).__name__)
def test_right_steps_on_arrays_pass(step: PipelineStepBase) -> None:
    check_step(step, [in_groups(1), in_groups(2)])


def test_what_is_lost_of_a_group_without_fields_is_named() -> None:
    with pytest.raises(ContractError, match=r"empty\.unknown to the step: vectors: is lost"):
        check_step(EmptiesGroup(), [in_groups(1), in_groups(2)])


def test_a_step_that_fails_at_the_least_numbers_of_its_draws_is_reported() -> None:
    with pytest.raises(ContractError, match=r"the draws of the step must be found out: .*zero"):
        check_step(FailsAtLeastNumbers(), [in_groups(1), in_groups(2)])
