"""Users' own functions of arrays as a step."""

from __future__ import annotations

import re
import threading
from typing import Any

import numpy as np
import pytest
from support.arrays import DT, encoded_image, gradient
from support.random_steps import filled

from accvlab.dali_pipeline_framework import (
    DataGroupArrayWithNameElementsAppliedStep,
    DataLoader,
    DataProvider,
    ImageContent,
    ImageDecoder,
    LambdaStep,
    MapStep,
    SampleDataGroup,
    UniformDraw,
)
from accvlab.dali_pipeline_framework.draws import IntegerDraw
from accvlab.dali_pipeline_framework.errors import FormatError, SettingError, SourcePicklingError, StepOutputError
from accvlab.dali_pipeline_framework.sample_data.formats import DECODED_IMAGE
from accvlab.dali_pipeline_framework.testing import check_step, run_step


def sample(count: int = 2) -> SampleDataGroup:
    return filled(
        {"a": (DT.FLOAT, np.full(count, 2.0)), "b": (DT.INT32, np.arange(count)), "text": (DT.STRING, "one")}
    )


def halved_and_sum(a: Any, b: Any) -> Any:
    return np.float64(a) * 0.5, np.float32(a + b)


def scaled(a: Any, gain: Any, shift: Any) -> Any:
    return a * gain + np.float32(shift)


def applied(step: Any, given: SampleDataGroup | None = None) -> SampleDataGroup:
    return run_step(step, given or sample(), run="workers").output


def test_results_replace_fields_in_place_or_are_added() -> None:
    step = MapStep(halved_and_sum, input_names=["a", "b"], output_types={"a": DT.FLOAT64, "sum": DT.FLOAT})
    check_step(step, [sample(), sample(0), sample(3)])
    found = applied(step)
    assert found.field_names_flat == ("a", "b", "text", "sum")
    assert [leaf.dtype for leaf in found.format.flat_leaves] == [DT.FLOAT64, DT.INT32, DT.STRING, DT.FLOAT]
    assert (found["a"].tolist(), found["sum"].tolist(), found["text"]) == ([1, 1], [2, 3], "one")


def test_results_replace_the_inputs_where_no_types_are_given() -> None:
    step = MapStep(lambda a, b: (a[::-1] + 1, b * b), input_names=["a", "b"])
    found = applied(step, sample(3))
    assert found.format == sample().format
    assert (found["a"].tolist(), found["b"].tolist()) == ([3, 3, 3], [0, 1, 4])


def test_numbers_are_results_too() -> None:
    found = applied(MapStep(len, input_names="b", output_types={"count": DT.INT64}))
    assert (found["count"].dtype, found["count"].tolist()) == (np.int64, 2)


def test_draws_come_by_name_and_are_replayed() -> None:
    step = MapStep(scaled, input_names="a", draws=[UniformDraw("gain", 1, 2), IntegerDraw("shift", 3, 9)])
    run = run_step(step, sample(), run="workers", seed=4)
    gain, shift = run.draws["MapStep[0]/gain"], run.draws["MapStep[0]/shift"]
    assert run.output["a"].tolist() == [float(np.float32(2 * gain) + np.float32(shift))] * 2
    again = run_step(step, sample(), run="workers", draws={"gain": 1.5, "shift": 7})
    assert again.output["a"].tolist() == [10, 10]


def test_fields_are_named_by_path_or_in_a_wrapper() -> None:
    rig = SampleDataGroup()
    rig.add_data_group_field_array("cameras", sample(), 2)
    for number in range(2):
        rig["cameras"][number] = sample(number + 1)
    by_path = MapStep(
        np.negative, input_names=[("cameras", 1, "b")], output_types={("cameras", 0, "less"): DT.INT32}
    )
    assert applied(by_path, rig)["cameras"][0]["less"].tolist() == [0, -1]
    each = DataGroupArrayWithNameElementsAppliedStep(MapStep(np.negative, input_names="b"), "cameras")
    assert [camera["b"].tolist() for camera in applied(each, rig)["cameras"].values()] == [[0], [0, -1]]


@pytest.mark.parametrize("function", [lambda a: (a, a), lambda a: None, lambda a: [], lambda a: a.tolist()])
def test_another_number_of_results_is_refused(function: Any) -> None:
    with pytest.raises(StepOutputError, match="the function must return one array for each of 'x'; got"):
        applied(MapStep(function, input_names="a", output_types={"x": DT.FLOAT}))


def test_results_of_another_type_or_changed_inputs_are_refused() -> None:
    with pytest.raises(StepOutputError, match=r"b: is declared as int32, got float64 \(shape \(2,\)\)"):
        applied(MapStep(lambda b: b * 0.5, input_names="b"))

    def add_one(a: Any) -> Any:
        a += 1
        return a

    with pytest.raises(StepOutputError, match="changes an array that it was given in place"):
        applied(MapStep(add_one, input_names="a"))


def test_refused_formats() -> None:
    step = MapStep(halved_and_sum, input_names=["z", ("c", "x")])
    with pytest.raises(FormatError) as caught:
        applied(step)
    assert "no field has the name 'z'" in str(caught.value)
    assert "c.x: there is no such field for the function" in str(caught.value)


# --- images ----------------------------------------------------------------------------------------------


def image_sample(content: ImageContent = DECODED_IMAGE) -> SampleDataGroup:
    group = SampleDataGroup()
    group.add_data_field("image", DT.UINT8, ndim=1 if content.is_encoded else 3, content=content)
    group["image"] = encoded_image(gradient(8, 12), "PNG") if content.is_encoded else gradient(8, 12)
    return group


def content_after(step: Any, given: SampleDataGroup) -> ImageContent:
    return step.check_input_data_format_and_set_output_data_format(given).format.get(("image",)).content


def test_what_is_known_of_images() -> None:
    given = image_sample()
    assert content_after(MapStep(np.fliplr, input_names="image"), given) == DECODED_IMAGE
    as_float = MapStep(np.float32, input_names="image", output_types={"image": DT.FLOAT})
    assert not content_after(as_float, given).is_known
    chw = ImageContent(is_encoded=False, layout="CHW")
    moved = MapStep(lambda image: np.moveaxis(image, -1, 0), input_names="image", output_contents={"image": chw})
    assert content_after(moved, given) == chw


def read_png(encoded: Any) -> Any:
    import io

    from PIL import Image

    return np.array(Image.open(io.BytesIO(encoded.tobytes())))


def test_a_decoder_of_one_s_own() -> None:
    step = MapStep(read_png, input_names="image", output_contents={"image": DECODED_IMAGE})
    found = applied([step, MapStep(np.flipud, input_names="image")], image_sample(ImageContent(is_encoded=True)))
    np.testing.assert_array_equal(found["image"], gradient(8, 12)[::-1])
    with pytest.raises(FormatError, match="must hold the bytes of an image file"):
        applied([step, ImageDecoder("image", False)], image_sample(ImageContent(is_encoded=True)))


# --- in a loader -----------------------------------------------------------------------------------------


class Numbers(DataProvider):
    sample_data_structure = property(lambda self: sample().get_empty_like_self())

    def get_number_of_samples(self) -> int:
        return 4

    def get_data(self, sample_index: int) -> SampleDataGroup:
        return sample(sample_index + 1) if sample_index % 2 else sample(sample_index + 2)


def loaded(steps: Any, **settings: Any) -> list[Any]:
    settings = {"num_workers": 0, "output_type": "numpy", "batch_size": 2, **settings}
    with DataLoader(Numbers(), steps=steps, **settings) as loader:
        return [batch["a"].tolist() for batch in loader]


def test_in_a_loader_before_steps_of_the_graph() -> None:
    gain = MapStep(lambda a, gain: a * gain, input_names="a", draws=[UniformDraw("gain", 1, 2)])
    plus = LambdaStep(lambda a: a + 1.0, input_names="a", output_types={"a": DT.FLOAT})
    expected = loaded([gain, plus])
    assert expected == loaded([gain, plus], num_workers=2, start_method="fork")
    assert len({value for batch in expected for row in batch for value in row}) == 4
    with pytest.raises(ValueError, match=r"MapStep"):
        loaded([plus, gain])


def test_spawned_workers_need_a_function_that_can_be_pickled() -> None:
    lock = threading.Lock()
    with pytest.raises(SourcePicklingError, match="The steps that run in the workers cannot be sent"):
        loaded([MapStep(lambda a: a * bool(lock), input_names="a")], num_workers=1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"function": 3, "input_names": "a"}, "`function` must be callable"),
        ({"function": len, "input_names": []}, "at least one, got none"),
        ({"function": len, "input_names": "a", "output_types": {}}, "at least one name and type"),
        ({"function": len, "input_names": "a", "output_types": {"b": np.float32}}, "at least one name and type"),
        ({"function": len, "input_names": 1.5}, "`input_names` must be a name"),
        ({"function": len, "input_names": "a", "output_contents": {"b": DECODED_IMAGE}}, "names in `input_names`"),
        ({"function": halved_and_sum, "input_names": "a"}, r"must take 1 argument\(s\), which .* does not"),
        ({"function": np.fliplr, "input_names": "a", "draws": [UniformDraw("gain")]}, "and gain by name, which"),
        ({"function": len, "input_names": "a", "draws": "gain"}, "`draws` must be a list of draws, got 'gain'"),
        ({"function": len, "input_names": "a", "draws": [UniformDraw("a")] * 2}, "'a' twice"),
    ],
)
def test_settings_that_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        MapStep(settings.pop("function"), **settings)


def doubles(*arrays: Any) -> Any:
    return tuple(np.asarray(array, np.float64) for array in arrays)


@pytest.mark.parametrize(
    ("function", "arguments", "advice"),
    [
        (doubles, {"input_names": "b"}, '{"b": DALIDataType.FLOAT64}'),
        (doubles, {"input_names": ["b", "a"]}, '{"b": DALIDataType.FLOAT64, "a": DALIDataType.FLOAT64}'),
        (
            lambda a, b: (a, b * 0.5),
            {"input_names": ["a", "b"]},
            '{"a": DALIDataType.FLOAT, "b": DALIDataType.FLOAT64}',
        ),
        (
            lambda a: (a, a > 1),
            {"input_names": "a", "output_types": {"x": DT.FLOAT, ("b",): DT.INT32}},
            '{"x": DALIDataType.FLOAT, "b": DALIDataType.BOOL}',
        ),
    ],
)
def test_results_of_another_type_have_advice_that_works(
    function: Any, arguments: dict[str, Any], advice: str
) -> None:
    with pytest.raises(StepOutputError) as caught:
        applied(MapStep(function, **arguments))
    assert str(caught.value).endswith(f", or name the types that it returns: `output_types={advice}`.")
    followed = {**arguments, "output_types": eval(advice, {"DALIDataType": DT})}
    result = applied(MapStep(function, **followed))
    types_of_fields = {name: result.get_type_of_field(name) for name in followed["output_types"]}
    assert types_of_fields == followed["output_types"]


def test_results_of_another_rank_or_of_no_type_of_a_field() -> None:
    blueprint = SampleDataGroup()
    blueprint.add_data_field("image", DT.UINT8, ndim=3)
    cameras = SampleDataGroup()
    cameras.add_data_group_field_array("cameras", blueprint, 2)
    for camera in (0, 1):
        cameras["cameras"][camera]["image"] = gradient(4, 5)

    def in_cameras(function: Any, **arguments: Any) -> Any:
        step = MapStep(function, input_names="image", **arguments)
        return DataGroupArrayWithNameElementsAppliedStep(step, "cameras")(cameras.get_copy())

    advice = re.escape('`output_types={"image": DALIDataType.UINT8}`')
    with pytest.raises(StepOutputError, match=rf"cameras\[0\].image: .* 3 dimension\(s\), got 2 (.|\n)*{advice}"):
        in_cameras(lambda image: image[0])
    assert in_cameras(lambda image: image[0], output_types={"image": DT.UINT8})["cameras"][1]["image"].shape == (
        5,
        3,
    )
    with pytest.raises(StepOutputError, match=r"got complex128 .*\n.* return what is declared, .*\(\.\.\.\)`\.$"):
        in_cameras(lambda image: image * 1j)


def test_a_field_in_a_group_is_named_by_its_path() -> None:
    group = SampleDataGroup()
    group.add_data_field("gain", DT.FLOAT)
    sample = SampleDataGroup()
    sample.add_data_group_field("camera", group)
    step = MapStep(np.negative, input_names="gain")
    with pytest.raises(FormatError, match=r"One is in a group: give its path, \[\('camera', 'gain'\)\]"):
        step.check_input_data_format_and_set_output_data_format(sample)
