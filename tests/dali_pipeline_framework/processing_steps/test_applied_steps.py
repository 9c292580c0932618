"""Steps that apply another step to parts of the sample."""

from __future__ import annotations

from typing import Any

import pytest
from nvidia.dali import fn
from support.arrays import DT, ArrayProvider
from support.pipelines import make_iterator, shuffled
from support.steps import Doubler, ImageUser, Renamer

from accvlab.dali_pipeline_framework.errors import FieldNotFoundError, FormatError, SettingError
from accvlab.dali_pipeline_framework.pipeline import PipelineDefinition, SampleDataGroup
from accvlab.dali_pipeline_framework.processing_steps import (
    DataGroupArrayInPathElementsAppliedStep,
    DataGroupArrayWithNameElementsAppliedStep,
    DataGroupInPathAppliedStep,
    DataGroupsWithNameAppliedStep,
    GroupToApplyToSelectedStepBase,
    PipelineStepBase,
    for_each,
)

InPath = DataGroupInPathAppliedStep
WithName = DataGroupsWithNameAppliedStep
ArrayInPath = DataGroupArrayInPathElementsAppliedStep
ArrayWithName = DataGroupArrayWithNameElementsAppliedStep


def test_for_each_is_the_step_with_the_long_name() -> None:
    step = Doubler("value")
    short, long = for_each("cameras", step), ArrayWithName(step, "cameras")
    assert type(short) is ArrayWithName
    assert repr(short) == repr(long)
    expected = {"rig/cameras/0/value": [8, 80], "rig/cameras/1/value": [12, 120], "cameras/0/value": [16, 160]}
    found = run(short)
    assert found == run(long)
    assert {path: found[path] for path in expected} == expected
    assert found["value"] == [1, 10]


def test_for_each_names_arguments_that_are_swapped() -> None:
    message = r"^`processing_step_to_apply` must be a PipelineStepBase, got 'cameras'\.$"
    with pytest.raises(SettingError, match=message):
        for_each(Doubler("value"), "cameras")  # type: ignore[arg-type]


def leaf(value: int) -> tuple[DT, list[int]]:
    return DT.INT32, [value, 10 * value]


def provider() -> ArrayProvider:
    camera_0 = {"value": leaf(4), "meta": {"value": leaf(5)}}
    camera_1 = {"value": leaf(6), "meta": {"value": leaf(7)}}
    return ArrayProvider(
        {
            "value": leaf(1),
            "ego": {"value": leaf(2)},
            "rig": {"ego": {"value": leaf(3)}, "cameras": {0: camera_0, 1: camera_1}},
            "cameras": {0: {"value": leaf(8)}},
            "empty_array": {},
            7: {"value": leaf(9)},
        }
    )


def flat(batch: dict[Any, Any], prefix: str = "") -> dict[str, list[int]]:
    found = {}
    for name, value in batch.items():
        path = f"{prefix}{name}"
        found.update(flat(value, f"{path}/") if isinstance(value, dict) else {path: value.tolist()})
    return found


def run(*steps: PipelineStepBase, data: ArrayProvider | None = None, **arguments: Any) -> dict[str, list[int]]:
    """Flat path -> the two values of the batch."""
    arguments = {"py_num_workers": 0, **arguments}
    with make_iterator(shuffled(data or provider(), 2), steps, **arguments) as iterator:
        [batch] = iterator
    return flat(batch)


ORIGINAL = {
    "value": [1, 10],
    "ego/value": [2, 20],
    "rig/ego/value": [3, 30],
    "rig/cameras/0/value": [4, 40],
    "rig/cameras/0/meta/value": [5, 50],
    "rig/cameras/1/value": [6, 60],
    "rig/cameras/1/meta/value": [7, 70],
    "cameras/0/value": [8, 80],
    "7/value": [9, 90],
}


# A wrapper with its selection, and the groups that it selects.
SELECTIONS: dict[str, tuple[Any, Any, list[str]]] = {
    "path_name": (InPath, "ego", ["ego/"]),
    "path_tuple": (InPath, ("rig", "ego"), ["rig/ego/"]),
    "path_list": (InPath, ["rig", "cameras", 1], ["rig/cameras/1/"]),
    "path_int": (InPath, 7, ["7/"]),
    "path_one_element": (InPath, ["ego"], ["ego/"]),
    "path_empty": (InPath, (), [""]),
    "path_empty_list": (InPath, [], [""]),
    "name": (WithName, "ego", ["ego/", "rig/ego/"]),
    "names": (WithName, ["ego", "meta"], ["ego/", "rig/ego/", "rig/cameras/0/meta/", "rig/cameras/1/meta/"]),
    "names_tuple": (WithName, ("meta",), ["rig/cameras/0/meta/", "rig/cameras/1/meta/"]),
    "name_int": (WithName, 0, ["rig/cameras/0/", "cameras/0/"]),
    "one_name_is_absent": (WithName, ["lidar", "ego"], ["ego/", "rig/ego/"]),
    "array": (ArrayInPath, "cameras", ["cameras/0/"]),
    "array_tuple": (ArrayInPath, ("rig", "cameras"), ["rig/cameras/0/", "rig/cameras/1/"]),
    "array_list": (ArrayInPath, ["rig", "cameras"], ["rig/cameras/0/", "rig/cameras/1/"]),
    "array_empty": (ArrayInPath, "empty_array", []),
    "arrays": (ArrayWithName, "cameras", ["rig/cameras/0/", "rig/cameras/1/", "cameras/0/"]),
}


class TestSelections:
    @pytest.mark.parametrize("selection", SELECTIONS)
    def test_the_step_is_applied_to_what_is_selected(self, selection: str) -> None:
        wrapper, argument, groups = SELECTIONS[selection]
        found = run(wrapper(Renamer("value", "renamed"), argument))
        expected = {}
        for path, values in ORIGINAL.items():
            group, _, _ = path.rpartition("/")
            group = f"{group}/" if group else ""
            expected[f"{group}renamed" if group in groups else path] = values
        assert found == expected

    @pytest.mark.parametrize("enable_conditionals", [False, True])
    def test_a_step_that_searches_stays_within_its_group(self, enable_conditionals: bool) -> None:
        arguments = {"enable_conditionals": enable_conditionals}
        found = run(ArrayInPath(Doubler("value"), ("rig", "cameras")), **arguments)
        inside = [path for path in ORIGINAL if path.startswith("rig/cameras/")]
        assert found == {path: [2 * v for v in x] if path in inside else x for path, x in ORIGINAL.items()}

    def test_a_branch_per_sample_and_group(self) -> None:
        found = run(ArrayWithName(Doubler("value", above=7), "cameras"), enable_conditionals=True)
        assert found["rig/cameras/0/value"] == [4, 80]
        assert found["rig/cameras/1/value"] == [6, 120]
        assert found["cameras/0/value"] == [16, 160]
        assert found["value"] == [1, 10]

    def test_the_sample_itself_may_be_the_array(self) -> None:
        data = ArrayProvider({0: {"value": leaf(1)}, 1: {"value": leaf(2)}})
        assert run(ArrayInPath(Renamer("value", "new"), ()), data=data) == {"0/new": [1, 10], "1/new": [2, 20]}

    @pytest.mark.parametrize(
        "step",
        [
            WithName(Renamer("value", "renamed"), "lidar", False),
            WithName(Renamer("value", "renamed"), ["lidar", "radar"], check_minimum_one_name_match=False),
            ArrayWithName(Renamer("value", "renamed"), "lidars", False),
        ],
    )
    def test_no_match_may_be_allowed(self, step: PipelineStepBase) -> None:
        assert run(step) == ORIGINAL


class TestNested:
    """A group inside a selected group is part of it."""

    @staticmethod
    def data() -> ArrayProvider:
        return ArrayProvider({"a": {"value": leaf(1), "a": {"value": leaf(2), "b": {"a": {"value": leaf(3)}}}}})

    @pytest.mark.parametrize(
        "step",
        [
            WithName(Doubler("value"), "a"),
            WithName(Doubler("value"), ["a", "b"]),
            WithName(Doubler("value"), ["b", "a"]),
            WithName(Doubler("value"), ["a", "a"]),
            InPath(Doubler("value"), "a"),
        ],
    )
    def test_is_processed_once(self, step: PipelineStepBase) -> None:
        assert run(step, data=self.data()) == {"a/value": [2, 20], "a/a/value": [4, 40], "a/a/b/a/value": [6, 60]}

    def test_only_the_outer_one_is_the_sample_of_the_step(self) -> None:
        found = run(WithName(Renamer("value", "new"), "a"), data=self.data())
        assert found == {"a/new": [1, 10], "a/a/value": [2, 20], "a/a/b/a/value": [3, 30]}

    def test_arrays_of_the_same_name(self) -> None:
        data = ArrayProvider({"a": {0: {"value": leaf(1), "a": {0: {"value": leaf(2)}, 1: {"value": leaf(3)}}}}})
        assert run(ArrayWithName(Doubler("value"), "a"), data=data) == {
            "a/0/value": [2, 20],
            "a/0/a/0/value": [4, 40],
            "a/0/a/1/value": [6, 60],
        }

    def test_siblings_are_processed_each(self) -> None:
        data = ArrayProvider({"x": {"a": {"value": leaf(1)}}, "y": {"a": {"value": leaf(2)}}})
        assert run(WithName(Doubler("value"), "a"), data=data) == {"x/a/value": [2, 20], "y/a/value": [4, 40]}


class TestComposed:
    def test_wrappers_in_wrappers(self) -> None:
        step = InPath(ArrayWithName(WithName(Renamer("value", "renamed"), "meta"), "cameras"), "rig")
        renamed = {path: values for path, values in run(step).items() if path.endswith("renamed")}
        assert renamed == {"rig/cameras/0/meta/renamed": [5, 50], "rig/cameras/1/meta/renamed": [7, 70]}

    def test_one_after_the_other(self) -> None:
        found = run(
            InPath(Renamer("value", "speed"), "ego"),
            InPath(Doubler("speed"), "ego"),
            WithName(Renamer("value", "other"), ["meta"]),
            ArrayInPath(InPath(Doubler("other"), "meta"), ("rig", "cameras")),
        )
        assert found["ego/speed"] == [4, 40]
        assert found["rig/ego/value"] == [3, 30]
        assert found["rig/cameras/0/meta/other"] == [10, 100]
        assert found["rig/cameras/1/meta/other"] == [14, 140]

    def test_the_groups_draw_different_numbers(self) -> None:
        class Randomizer(PipelineStepBase):
            def _process(self, data: SampleDataGroup) -> SampleDataGroup:
                data["value"] = data["value"] * 0 + fn.random.uniform(range=[0, 2**30], dtype=DT.INT32)
                return data

            def _check_and_adjust_data_format_input_to_output(
                self, data_empty: SampleDataGroup
            ) -> SampleDataGroup:
                return data_empty

        found = run(ArrayWithName(Randomizer(), "cameras"), seed=1)
        draws = [*found["rig/cameras/0/value"], *found["rig/cameras/1/value"], *found["cameras/0/value"]]
        assert len(set(draws)) == 6


class TestRefusals:
    @pytest.mark.parametrize(
        ("step", "message"),
        [
            (InPath(Doubler("x"), "lidar"), "lidar: must be a data group field .*, but does not exist"),
            (InPath(Doubler("x"), ("rig", "lidar", 3)), r"rig\.lidar\[3\]: must be .*, but does not exist"),
            (InPath(Doubler("x"), 3), r"\[3\]: must be a data group field .*, but does not exist"),
            (InPath(Doubler("x"), "value"), "value: must be a data group field .*, but is a data field"),
            (InPath(Doubler("x"), ("ego", "value")), r"ego\.value: must be .*, but is a data field"),
            (InPath(Doubler("x"), ("value", "x")), r"value\.x: must be .*, but does not exist"),
            (WithName(Doubler("x"), "lidar"), "No group with one of the names 'lidar' exists"),
            (WithName(Doubler("x"), ["lidar", 5]), "No group with one of the names 'lidar', 5 exists"),
            (WithName(Doubler("x"), "value"), r"\n.*value: must be a data group field .*but is a data field"),
            (WithName(Doubler("x"), "value", False), "value: must be a data group field"),
            (ArrayInPath(Doubler("x"), "lidars"), "lidars: must be a data group field array .* does not exist"),
            (ArrayInPath(Doubler("x"), "ego"), "ego: must be a data group field array .* but is not one"),
            (ArrayInPath(Doubler("x"), "value"), "value: must be a data group field array .* but is not one"),
            (ArrayInPath(Doubler("x"), ["rig", "x", 0]), r"rig\.x\[0\]: must be .* but does not exist"),
            (ArrayWithName(Doubler("x"), "lidars"), "No data group field array with the name 'lidars' exists"),
            (ArrayWithName(Doubler("x"), "camera"), r"'camera' exists\. Did you mean 'cameras'\? Groups: 'cam"),
            (WithName(Doubler("x"), ["egos", "way"]), r"'egos', 'way' exists\. Did you mean 'ego'\? Groups: 'cam"),
            (
                ArrayWithName(Doubler("x"), "meta"),
                r"rig\.cameras\[0\.\.1\]\.meta: must be a data group field array",
            ),
            (ArrayWithName(Doubler("x"), "value", False), "value: must be a data group field array"),
        ],
    )
    def test_what_cannot_be_selected(self, step: PipelineStepBase, message: str) -> None:
        blueprint = provider().sample_data_structure
        with pytest.raises(ValueError, match=message) as caught:
            step.check_input_data_format_and_set_output_data_format(blueprint)
        assert type(step).__name__ in str(caught.value)
        with pytest.raises(ValueError, match=message):
            PipelineDefinition(shuffled(provider(), 2), [step]).get_dali_pipeline(num_threads=1)

    def test_all_matches_of_the_wrong_kind_are_named(self) -> None:
        with pytest.raises(FormatError) as caught:
            WithName(Doubler("x"), ["meta", "value"]).check_input_data_format_and_set_output_data_format(
                provider().sample_data_structure
            )
        assert len(caught.value.problems) == 9
        assert caught.value.problems[0].path == ("value",)
        assert ("rig", "cameras", 1, "meta", "value") in [problem.path for problem in caught.value.problems]

    def test_an_array_of_data_fields_is_no_group_array(self) -> None:
        data = ArrayProvider({"cameras": {0: leaf(1), 1: leaf(2)}})
        with pytest.raises(ValueError, match="cameras: must be a data group field array"):
            ArrayInPath(Doubler("x"), "cameras").check_input_data_format_and_set_output_data_format(
                data.sample_data_structure
            )

    @pytest.mark.parametrize("name", [("a", "b"), ["a"], None, 2.5])
    def test_several_names_for_a_single_one(self, name: Any) -> None:
        with pytest.raises(AssertionError, match="must be a single name"):
            ArrayWithName(Doubler("x"), name)

    @pytest.mark.parametrize("wrapper", [InPath, WithName, ArrayInPath])
    @pytest.mark.parametrize("name", [None, 2.5, [2.5]])
    def test_names_of_another_type(self, wrapper: Any, name: Any) -> None:
        with pytest.raises(TypeError):
            wrapper(Doubler("x"), name)


class TestProblemsInside:
    """A problem of the wrapped step carries the path from the root of the sample."""

    def problems(self, step: PipelineStepBase) -> list[tuple[Any, str]]:
        with pytest.raises(FormatError) as caught:
            step.check_input_data_format_and_set_output_data_format(provider().sample_data_structure)
        assert isinstance(caught.value, ValueError)
        return [(problem.path, problem.message) for problem in caught.value.problems]

    def test_in_one_group(self) -> None:
        found = self.problems(InPath(ImageUser("value"), ("rig", "ego")))
        assert found == [(("rig", "ego", "value"), "must be UINT8, got INT32")]

    def test_in_all_groups_at_once(self) -> None:
        assert [path for path, _ in self.problems(ArrayWithName(ImageUser("value"), "cameras"))] == [
            ("cameras", 0, "value"),  # the order of a search: the direct children come first
            ("rig", "cameras", 0, "value"),
            ("rig", "cameras", 0, "meta", "value"),
            ("rig", "cameras", 1, "value"),
            ("rig", "cameras", 1, "meta", "value"),
        ]

    def test_through_several_wrappers(self) -> None:
        step = InPath(ArrayInPath(InPath(ImageUser("value"), "meta"), "cameras"), "rig")
        assert [path for path, _ in self.problems(step)] == [
            ("rig", "cameras", 0, "meta", "value"),
            ("rig", "cameras", 1, "meta", "value"),
        ]

    def test_where_a_wrapper_inside_finds_nothing(self) -> None:
        [(path, message)] = self.problems(InPath(InPath(Doubler("value"), "lidar"), "rig"))
        assert path == ("rig", "lidar")
        assert "does not exist" in message

    def test_an_exception_of_another_kind_keeps_its_kind_and_gets_the_path(self) -> None:
        step = ArrayInPath(Renamer("speed", "x"), ("rig", "cameras"))
        with pytest.raises(KeyError, match="No field with name 'speed'") as caught:
            step.check_input_data_format_and_set_output_data_format(provider().sample_data_structure)
        assert [problem.path for problem in caught.value.problems] == [
            ("rig", "cameras", 0),
            ("rig", "cameras", 1),
        ]
        assert issubclass(FieldNotFoundError, KeyError)

    def test_in_the_message_of_the_pipeline(self) -> None:
        steps = [Doubler("value"), ArrayWithName(ImageUser("value"), "cameras")]
        with pytest.raises(ValueError, match="The processing steps do not fit the data: 5 problems") as caught:
            PipelineDefinition(shuffled(provider(), 2), steps).get_dali_pipeline(num_threads=1)
        message = str(caught.value)
        assert "step 1 (DataGroupArrayWithNameElementsAppliedStep of ImageUser):" in message
        assert "    - rig.cameras[0..1].meta.value: must be UINT8, got INT32" in message


def test_own_selections_can_be_derived() -> None:
    class FirstCamera(GroupToApplyToSelectedStepBase):
        def _check_and_get_paths_to_apply_to(self, data: SampleDataGroup) -> list[tuple[str | int, ...]]:
            return [path for path in data.find_all_occurrences(0) if path[-2:] == ("cameras", 0)]

    found = run(FirstCamera(Renamer("value", "renamed")))
    assert {path for path in found if "renamed" in path} == {"rig/cameras/0/renamed", "cameras/0/renamed"}
