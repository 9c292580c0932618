"""Steps that apply another step to parts of the sample."""

from __future__ import annotations

from typing import Any

import pytest
from support.arrays import DT, ArrayProvider
from support.pipelines import make_iterator, shuffled
from support.refusals import assert_refused
from support.steps import Doubler, ImageUser, Renamer

from accvlab.dali_pipeline_framework.errors import FormatError
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


def run(*steps: PipelineStepBase, data: Any = None, **arguments: Any) -> dict[str, list[int]]:
    """Flat path -> the two values of the batch."""
    data = provider() if data is None else ArrayProvider(data)
    with make_iterator(shuffled(data, 2), steps, py_num_workers=0, **arguments) as iterator:
        [batch] = iterator
    return flat(batch)


def format_after(step: PipelineStepBase) -> SampleDataGroup:
    return step.check_input_data_format_and_set_output_data_format(provider().sample_data_structure)


# --- what is selected -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrapper", "argument", "groups"),
    [
        (InPath, "ego", ["ego"]),
        (InPath, ["rig", "cameras", 1], ["rig/cameras/1"]),
        (InPath, 7, ["7"]),
        (InPath, (), [""]),
        (WithName, "ego", ["ego", "rig/ego"]),
        (WithName, ["ego", "meta"], ["ego", "rig/ego", "rig/cameras/0/meta", "rig/cameras/1/meta"]),
        (WithName, 0, ["rig/cameras/0", "cameras/0"]),
        (WithName, ("lidar", "ego"), ["ego", "rig/ego"]),
        (ArrayInPath, "cameras", ["cameras/0"]),
        (ArrayInPath, ("rig", "cameras"), ["rig/cameras/0", "rig/cameras/1"]),
        (ArrayInPath, "empty_array", []),
        (ArrayWithName, "cameras", ["rig/cameras/0", "rig/cameras/1", "cameras/0"]),
    ],
)
def test_the_step_is_applied_to_what_is_selected(wrapper: Any, argument: Any, groups: list[str]) -> None:
    expected = {}
    for path, values in run().items():
        group = path.rpartition("/")[0]
        expected[f"{group}/renamed".lstrip("/") if group in groups else path] = values
    assert run(wrapper(Renamer("value", "renamed"), argument)) == expected


def test_for_each_is_the_step_with_the_long_name() -> None:
    short = for_each("cameras", Doubler("value"))
    assert type(short) is ArrayWithName
    assert repr(short) == repr(ArrayWithName(Doubler("value"), "cameras"))
    words = "`processing_step_to_apply` must be a PipelineStepBase, got 'cameras'."
    assert_refused(lambda: for_each(Doubler("value"), "cameras"), words)  # type: ignore[arg-type]


@pytest.mark.parametrize("enable_conditionals", [False, True])
def test_a_step_that_searches_stays_within_its_group(enable_conditionals: bool) -> None:
    found = run(ArrayInPath(Doubler("value"), ("rig", "cameras")), enable_conditionals=enable_conditionals)
    doubled = {path: [2 * value for value in values] for path, values in run().items() if "rig/cameras/" in path}
    assert found == {**run(), **doubled}


def test_there_is_a_branch_per_sample_and_group() -> None:
    found = run(ArrayWithName(Doubler("value", above=7), "cameras"), enable_conditionals=True)
    changed = {"rig/cameras/0/value": [4, 80], "rig/cameras/0/meta/value": [5, 100], "cameras/0/value": [16, 160]}
    changed |= {"rig/cameras/1/value": [6, 120], "rig/cameras/1/meta/value": [7, 140]}
    assert found == {**run(), **changed}


def test_the_sample_itself_may_be_the_array() -> None:
    found = run(ArrayInPath(Renamer("value", "new"), ()), data={0: {"value": leaf(1)}, 1: {"value": leaf(2)}})
    assert found == {"0/new": [1, 10], "1/new": [2, 20]}


def test_no_match_may_be_allowed() -> None:
    step = Renamer("value", "renamed")
    allowed = WithName(step, ["lidar", "radar"], check_minimum_one_name_match=False)
    assert run(allowed, ArrayWithName(step, "lidars", False)) == run()


NESTED = {"a": {"value": leaf(1), "a": {"value": leaf(2), "b": {"a": {"value": leaf(3)}}}}}


@pytest.mark.parametrize("names", ["a", ["a", "b"], ["b", "a"], ["a", "a"]])
def test_a_group_inside_a_selected_group_is_part_of_it(names: Any) -> None:
    once = {"a/value": [2, 20], "a/a/value": [4, 40], "a/a/b/a/value": [6, 60]}
    assert run(WithName(Doubler("value"), names), data=NESTED) == once
    outer = {"a/new": [1, 10], "a/a/value": [2, 20], "a/a/b/a/value": [3, 30]}
    assert run(WithName(Renamer("value", "new"), names), data=NESTED) == outer


def test_an_array_inside_an_element_of_the_same_name_is_part_of_it() -> None:
    data = {"a": {0: {"value": leaf(1), "a": {0: {"value": leaf(2)}, 1: {"value": leaf(3)}}}}}
    found = run(ArrayWithName(Doubler("value"), "a"), data=data)
    assert found == {"a/0/value": [2, 20], "a/0/a/0/value": [4, 40], "a/0/a/1/value": [6, 60]}


def test_wrappers_may_be_wrapped_and_chained() -> None:
    found = run(
        InPath(ArrayWithName(WithName(Renamer("value", "other"), "meta"), "cameras"), "rig"),
        InPath(Renamer("value", "speed"), "ego"),
        InPath(Doubler("speed"), "ego"),
        ArrayInPath(InPath(Doubler("other"), "meta"), ("rig", "cameras")),
    )
    changed = {"rig/cameras/0/meta/other": [10, 100], "rig/cameras/1/meta/other": [14, 140], "ego/speed": [4, 40]}
    assert changed.items() <= found.items()
    assert found["rig/ego/value"] == [3, 30]


def test_own_selections_can_be_derived() -> None:
    class FirstCamera(GroupToApplyToSelectedStepBase):
        def _check_and_get_paths_to_apply_to(self, data: SampleDataGroup) -> list[tuple[str | int, ...]]:
            return [path for path in data.find_all_occurrences(0) if path[-2:] == ("cameras", 0)]

    found = run(FirstCamera(Renamer("value", "renamed")))
    assert {path for path in found if "renamed" in path} == {"rig/cameras/0/renamed", "cameras/0/renamed"}


# --- refusals ---------------------------------------------------------------------------------------------

DOUBLER = Doubler("x")


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (InPath(DOUBLER, ("rig", "lidar", 3)), "rig.lidar[3]: must be a data group field ..., but does not exist"),
        (InPath(DOUBLER, ("ego", "value")), "ego.value: must be ..., but is a data field"),
        (InPath(DOUBLER, ("value", "x")), "value.x: must be ..., but does not exist"),
        (WithName(DOUBLER, ["lidar", 5]), "No group with one of the names 'lidar', 5 exists"),
        (WithName(DOUBLER, ["egos", "way"]), "'egos', 'way' exists. Did you mean 'ego'? Groups: 'cam"),
        (WithName(DOUBLER, "value", False), "value: must be a data group field ...but is a data field"),
        (ArrayInPath(DOUBLER, ["rig", "x", 0]), "rig.x[0]: must be ... but does not exist"),
        (ArrayInPath(DOUBLER, "ego"), "ego: must be a data group field array ... but is not one"),
        (ArrayInPath(DOUBLER, "value"), "value: must be a data group field array ... but is not one"),
        (ArrayWithName(DOUBLER, "lidars"), "No data group field array with the name 'lidars' exists"),
        (ArrayWithName(DOUBLER, "camera"), "'camera' exists. Did you mean 'cameras'? Groups: 'cam"),
        (ArrayWithName(DOUBLER, "meta", False), "rig.cameras[0..1].meta: must be a data group field array"),
    ],
)
def test_what_cannot_be_selected(step: PipelineStepBase, words: str) -> None:
    assert_refused(lambda: format_after(step), f"{type(step).__name__}...{words}", FormatError)


def test_an_array_of_data_fields_is_no_group_array() -> None:
    with pytest.raises(ValueError, match="cameras: must be a data group field array"):
        run(ArrayInPath(DOUBLER, "cameras"), data={"cameras": {0: leaf(1), 1: leaf(2)}})


@pytest.mark.parametrize("name", [("a", "b"), ["a"], None, 2.5, True])
def test_names_of_arrays_are_single(name: Any) -> None:
    assert_refused(lambda: ArrayWithName(DOUBLER, name), "must be a single name", AssertionError)


@pytest.mark.parametrize("wrapper", [InPath, WithName, ArrayInPath])
def test_names_are_texts_or_numbers(wrapper: Any) -> None:
    for name in (None, 2.5, [2.5]):
        with pytest.raises(TypeError):
            wrapper(DOUBLER, name)


@pytest.mark.parametrize(
    ("step", "error", "message", "paths"),
    [
        (
            ArrayWithName(ImageUser("value"), "cameras"),
            ValueError,
            "must be UINT8, got INT32",
            [
                ("cameras", 0, "value"),  # the order of a search: the direct children come first
                ("rig", "cameras", 0, "value"),
                ("rig", "cameras", 0, "meta", "value"),
                ("rig", "cameras", 1, "value"),
                ("rig", "cameras", 1, "meta", "value"),
            ],
        ),
        (
            ArrayInPath(Renamer("speed", "x"), ("rig", "cameras")),
            KeyError,
            "No field with name 'speed'",
            [("rig", "cameras", 0), ("rig", "cameras", 1)],
        ),
    ],
)
def test_problems_inside_have_the_path_from_the_root_and_keep_their_kind(
    step: PipelineStepBase, error: type[Exception], message: str, paths: list[Any]
) -> None:
    with pytest.raises(error) as caught:
        format_after(step)
    assert isinstance(caught.value, FormatError | KeyError)
    assert [problem.path for problem in caught.value.problems] == paths
    assert all(message in problem.message for problem in caught.value.problems)


def test_problems_inside_are_in_the_message_of_the_pipeline() -> None:
    steps = [Doubler("value"), ArrayWithName(ImageUser("value"), "cameras")]
    words = (
        "The processing steps do not fit the data: 5 problems"
        "...step 1 (DataGroupArrayWithNameElementsAppliedStep of ImageUser):"
        "...    - rig.cameras[0..1].meta.value: must be UINT8, got INT32"
    )
    assert_refused(
        lambda: PipelineDefinition(shuffled(provider(), 2), steps).get_dali_pipeline(num_threads=1),
        words,
        ValueError,
    )
