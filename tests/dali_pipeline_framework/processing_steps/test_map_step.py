"""Users' own functions of arrays as a step."""

from __future__ import annotations

import io
import threading
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.array_samples import sample_of
from support.arrays import DT, ArrayProvider, encoded_image, gradient
from support.random_steps import filled
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework import (
    DataLoader,
    ImageContent,
    ImageDecoder,
    LambdaStep,
    MapStep,
    SampleDataGroup,
    UniformDraw,
    for_each,
)
from accvlab.dali_pipeline_framework.draws import IntegerDraw
from accvlab.dali_pipeline_framework.errors import FormatError, SourcePicklingError, StepOutputError
from accvlab.dali_pipeline_framework.sample_data.formats import DECODED_IMAGE
from accvlab.dali_pipeline_framework.testing import run_step


def sample(count: int = 2) -> SampleDataGroup:
    return filled(
        {"a": (DT.FLOAT, np.full(count, 2.0)), "b": (DT.INT32, np.arange(count)), "text": (DT.STRING, "one")}
    )


def applied(step: Any, given: SampleDataGroup | None = None) -> SampleDataGroup:
    return run_step(step, given or sample(), run="workers").output


# --- results ----------------------------------------------------------------------------------------------


def test_results_replace_fields_in_place_or_are_added() -> None:
    def halved_and_sum(a: Any, b: Any) -> Any:
        return np.float64(a) * 0.5, np.float32(a + b)

    found = applied(
        MapStep(halved_and_sum, input_names=["a", "b"], output_types={"a": DT.FLOAT64, "sum": DT.FLOAT})
    )
    assert found.field_names_flat == ("a", "b", "text", "sum")
    assert [leaf.dtype for leaf in found.format.flat_leaves] == [DT.FLOAT64, DT.INT32, DT.STRING, DT.FLOAT]
    assert (found["a"].tolist(), found["sum"].tolist(), found["text"]) == ([1, 1], [2, 3], "one")


def test_results_replace_the_inputs_where_no_types_are_given() -> None:
    found = applied(MapStep(lambda a, b: (a[::-1] + 1, b * b), input_names=["a", "b"]), sample(3))
    assert found.format == sample().format
    assert (found["a"].tolist(), found["b"].tolist()) == ([3, 3, 3], [0, 1, 4])


def test_draws_come_by_name() -> None:
    def scaled(a: Any, gain: Any, shift: Any) -> Any:
        return a * gain + np.float32(shift)

    step = MapStep(scaled, input_names="a", draws=[UniformDraw("gain", 1, 2), IntegerDraw("shift", 3, 9)])
    run = run_step(step, sample(), run="workers", draws={"gain": 1.5, "shift": 7})
    assert run.output["a"].tolist() == [10, 10]


def test_fields_are_named_by_path_or_in_a_wrapper() -> None:
    cameras = sample_of({"cameras": [{"b": np.arange(2)}] * 2})
    path, less = ("cameras", 1, "b"), ("cameras", 0, "less")
    by_path = MapStep(np.negative, input_names=[path], output_types={less: DT.INT64})
    assert applied(by_path, cameras).get_item_in_path(less).tolist() == [0, -1]
    each = for_each("cameras", MapStep(np.negative, input_names="b"))
    assert [camera["b"].tolist() for camera in applied(each, cameras)["cameras"].values()] == [[0, -1]] * 2
    words = "One is in a group: give its path, [('camera', 'b')]"
    assert_refused(
        lambda: applied(MapStep(np.negative, input_names="b"), sample_of({"camera": {"b": 1}})), words, FormatError
    )


# --- refusals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [lambda a: (a, a), lambda a: None, lambda a: [], lambda a: a.tolist()])
def test_another_number_of_results_is_refused(function: Any) -> None:
    step = MapStep(function, input_names="a", output_types={"x": DT.FLOAT})
    words = "the function must return one array for each of 'x'; got"
    assert_refused(lambda: applied(step), words, StepOutputError)


def test_inputs_must_not_be_changed_in_place() -> None:
    def add_one(a: Any) -> Any:
        a += 1
        return a

    words = "changes an array that it was given in place"
    assert_refused(lambda: applied(MapStep(add_one, input_names="a")), words, StepOutputError)


def doubles(*arrays: Any) -> Any:
    return tuple(np.asarray(array, np.float64) for array in arrays)


@pytest.mark.parametrize(
    ("function", "arguments", "advice"),
    [
        (doubles, {"input_names": "b"}, '{"b": DALIDataType.FLOAT64}'),
        (doubles, {"input_names": ["b", "a"]}, '{"b": DALIDataType.FLOAT64, "a": DALIDataType.FLOAT64}'),
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
    words = f": is declared as ..., got ..., or name the types that it returns: `output_types={advice}`."
    assert_refused(lambda: applied(MapStep(function, **arguments)), words, StepOutputError)
    types = eval(advice, {"DALIDataType": DT})
    result = applied(MapStep(function, **{**arguments, "output_types": types}))
    assert {name: result.get_type_of_field(name) for name in types} == types


def test_results_of_another_rank_or_of_no_type_of_a_field() -> None:
    blueprint, cameras = SampleDataGroup(), SampleDataGroup()
    blueprint.add_data_field("image", DT.UINT8, ndim=3)
    cameras.add_data_group_field_array("cameras", blueprint, 1)
    cameras["cameras"][0]["image"] = gradient(4, 5)

    def each(function: Any, **arguments: Any) -> Any:
        return for_each("cameras", MapStep(function, input_names="image", **arguments))(cameras.get_copy())

    words = 'cameras[0].image: ... 3 dimension(s), got 2 ...`output_types={"image": DALIDataType.UINT8}`'
    assert_refused(lambda: each(lambda image: image[0]), words, StepOutputError)
    found = each(lambda image: image[0], output_types={"image": DT.UINT8})
    assert found["cameras"][0]["image"].shape == (5, 3)
    words = "got complex128 ...\n... return what is declared, "
    assert_refused(lambda: each(lambda image: image * 1j), words, StepOutputError)


# --- images -----------------------------------------------------------------------------------------------


def image_sample(content: ImageContent = DECODED_IMAGE) -> SampleDataGroup:
    group = SampleDataGroup()
    group.add_data_field("image", DT.UINT8, ndim=1 if content.is_encoded else 3, content=content)
    group["image"] = encoded_image(gradient(8, 12), "PNG") if content.is_encoded else gradient(8, 12)
    return group


CHW = ImageContent(is_encoded=False, layout="CHW")


@pytest.mark.parametrize(
    ("function", "arguments", "expected"),
    [
        (np.fliplr, {}, DECODED_IMAGE),
        (np.float32, {"output_types": {"image": DT.FLOAT}}, ImageContent()),
        (lambda image: np.moveaxis(image, -1, 0), {"output_contents": {"image": CHW}}, CHW),
    ],
)
def test_what_is_known_of_images(function: Any, arguments: Any, expected: ImageContent) -> None:
    step = MapStep(function, input_names="image", **arguments)
    after = step.check_input_data_format_and_set_output_data_format(image_sample())
    assert after.format.get(("image",)).content == expected


def test_a_decoder_of_one_s_own() -> None:
    def read_png(encoded: Any) -> Any:
        return np.array(Image.open(io.BytesIO(encoded.tobytes())))

    step = MapStep(read_png, input_names="image", output_contents={"image": DECODED_IMAGE})
    encoded = image_sample(ImageContent(is_encoded=True))
    found = applied([step, MapStep(np.flipud, input_names="image")], encoded)
    np.testing.assert_array_equal(found["image"], gradient(8, 12)[::-1])
    words = "must hold the bytes of an image file"
    assert_refused(lambda: applied([step, ImageDecoder("image", False)], encoded), words, FormatError)


# --- in a loader ------------------------------------------------------------------------------------------


def loaded(steps: Any, **settings: Any) -> list[Any]:
    data = ArrayProvider({"a": (DT.FLOAT, np.full((4, 2), 2, np.float32))})
    settings = {"num_workers": 0, "output_type": "numpy", "batch_size": 2, **settings}
    with DataLoader(data, steps=steps, **settings) as loader:
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
    step = MapStep(lambda a: a * bool(lock), input_names="a")
    words = "The steps that run in the workers cannot be sent"
    assert_refused(lambda: loaded([step], num_workers=1), words, SourcePicklingError)
