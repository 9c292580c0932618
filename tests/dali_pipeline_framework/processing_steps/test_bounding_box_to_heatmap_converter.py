"""Heatmaps of bounding boxes, against a reference in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.array_samples import sample_of
from support.laws import examples
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework.errors import FieldValueError
from accvlab.dali_pipeline_framework.processing_steps import BoundingBoxToHeatmapConverter

OUTPUTS = {
    "is_active_opt_out_name": "active",
    "center_opt_out_name": "center",
    "center_offset_opt_out_name": "offset",
    "height_width_bboxes_heatmap_opt_out_name": "hw",
    "bboxes_heatmap_opt_out_name": "box",
}
CATEGORIES = {"categories_in_name": "categories", "num_categories": 3}


def converter(heatmap_hw: Any = (11, 14), **changed: Any) -> BoundingBoxToHeatmapConverter:
    arguments = {"image_hw_field_name": "image_hw", **OUTPUTS, **CATEGORIES, **changed}
    return BoundingBoxToHeatmapConverter("annotation", "bboxes", "heatmap", heatmap_hw, **arguments)


def sample(boxes: Any, categories: Any = None, **more: Any) -> dict[str, Any]:
    boxes = np.array(boxes, np.float32).reshape(-1, 4)
    categories = np.zeros(len(boxes), np.int32) if categories is None else np.array(categories, np.int32)
    return {"bboxes": boxes, "categories": categories, **more}


def applied(step: Any, annotation: dict[str, Any], image_hw: Any = (11, 14), **more: Any) -> Any:
    """The annotation after the step."""
    return step(sample_of({"image_hw": np.array(image_hw), "annotation": annotation, **more}))["annotation"]


def reference(
    sample: dict[str, Any],
    image_hw: tuple[int, int],
    heatmap_hw: tuple[int, int],
    num_categories: int | None = 3,
    least_hw: Any = None,
    per_category: bool = True,
    least_fraction: float = 0.25,
    radius: tuple[float, float] = (0.5, 10.0),
    factor: float = 0.8,
    sigma: float = 1 / 3,
) -> dict[str, np.ndarray]:
    h, w = heatmap_hw
    scale = np.array([w, h] * 2, float) / np.array([*image_hw[::-1]] * 2, float)
    scaled = sample["bboxes"].astype(float) * scale
    given = sample.get("centers")
    centers = (scaled[:, :2] + scaled[:, 2:]) / 2 if given is None else given.astype(float) * scale[:2]
    last = np.array([w - 1, h - 1], float)
    clipped = scaled.clip(0, np.tile(last, 2))
    centers = centers.clip(0, last)
    pixels = np.floor(centers).astype(int)
    hw = np.abs(clipped[:, [3, 2]] - clipped[:, [1, 0]])
    num = len(scaled)
    heat = np.zeros((num_categories or 1, h, w))
    active = np.zeros(num, bool)
    for i in range(num):
        whole = np.abs(np.prod(scaled[i, 2:] - scaled[i, :2]))
        on_map = scaled[i].clip(0, [w, h, w, h])
        fraction = np.abs(np.prod(on_map[2:] - on_map[:2])) / whole if whole > 0 else np.nan
        category = int(sample["categories"][i]) if num_categories is not None else 0
        active[i] = fraction >= least_fraction and 0 <= category < (num_categories or 1)
        active[i] &= bool(sample.get("is_valid", np.ones(num, bool))[i])
        if least_hw is not None and active[i]:
            active[i] &= bool((hw[i] >= (least_hw[category] if np.ndim(least_hw) == 2 else least_hw)).all())
        if not active[i]:
            continue
        low, high = np.minimum(clipped[i, :2], clipped[i, 2:]), np.maximum(clipped[i, :2], clipped[i, 2:])
        r = np.clip(max(0, min(*(centers[i] - low), *(high - centers[i]))) * factor, *radius)
        x, y = pixels[i]
        reach = int(np.ceil(r))
        for row in range(max(y - reach, 0), min(y + reach, h - 1) + 1):
            for column in range(max(x - reach, 0), min(x + reach, w - 1) + 1):
                value = np.exp(-((row - y) ** 2 + (column - x) ** 2) / (2 * (r * sigma) ** 2))
                target = heat[category if per_category else 0]
                target[row, column] = max(target[row, column], value)
    return {
        "heatmap": heat if per_category else heat[0],
        "active": active,
        "center": pixels,
        "offset": centers - pixels,
        "hw": hw,
        "box": clipped,
    }


# The shift keeps most centers off the borders of pixels.
coordinate = st.integers(-60, 560).map(lambda eighths: eighths / 8 + 0.013)
objects = st.lists(
    st.tuples(st.tuples(*[coordinate] * 4), st.integers(-2, 4), st.booleans(), st.tuples(coordinate, coordinate)),
    max_size=6,
)
EACH = [[0, 0], [1.37, 2.13], [3.01, 0.77]]


@settings(max_examples=examples(20, 60), deadline=None)
@given(
    objects=objects,
    size=st.tuples(st.integers(9, 60), st.integers(9, 60)),
    per_category=st.booleans(),
    least=st.sampled_from([None, [1.37, 2.13], EACH]),
    has_centers=st.booleans(),
    has_validity=st.booleans(),
    largest=st.sampled_from([2.0, 10.0]),
    heatmap_hw=st.sampled_from([(11, 14), (37, 66)]),
)
def test_as_the_reference(
    objects: list[Any],
    size: tuple[int, int],
    per_category: bool,
    least: Any,
    has_centers: bool,
    has_validity: bool,
    largest: float,
    heatmap_hw: tuple[int, int],
) -> None:
    values = sample([box for box, *_ in objects], [category for _, category, *_ in objects])
    if has_validity:
        values["is_valid"] = np.array([valid for _, _, valid, _ in objects], bool)
    if has_centers:
        values["centers"] = np.array([center for *_, center in objects], np.float32).reshape(-1, 2)
    step = converter(
        heatmap_hw,
        use_per_category_heatmap=per_category,
        min_object_size=None if least is EACH else least,
        per_category_min_object_sizes=least if least is EACH else None,
        is_valid_opt_in_name="is_valid" if has_validity else None,
        center_opt_in_name="centers" if has_centers else None,
        min_fraction_area_clipping=0.2371,
        max_radius=largest,
    )
    after = applied(step, values, size)
    expected = reference(
        values, size, heatmap_hw, 3, least, per_category, least_fraction=0.2371, radius=(0.5, largest)
    )
    offset = expected["offset"]
    assume(not ((offset > 0) & (offset < 1e-5) | (offset > 1 - 1e-5)).any())  # rounding would decide
    found = {name: after[name] for name in expected}
    for name in ("active", "center"):
        np.testing.assert_array_equal(found[name], expected[name])
    greatest = max(heatmap_hw)  # float32 has numbers up to it in steps of 6e-8 to 1e-7 times that
    for name in ("offset", "hw", "box"):
        np.testing.assert_allclose(found[name], expected[name], atol=3e-7 * greatest)
    np.testing.assert_allclose(found["heatmap"], expected["heatmap"], atol=2e-6 * greatest)
    assert ((found["heatmap"] > 0) == (expected["heatmap"] > 1e-38)).mean() > 0.999
    assert [array.dtype.char for array in found.values()] == ["f", "?", "i", "f", "f", "f"]
    for i in np.flatnonzero(expected["active"]):
        heat = found["heatmap"][values["categories"][i]] if per_category else found["heatmap"]
        assert heat[found["center"][i, 1], found["center"][i, 0]] == 1
    for name, value in values.items():
        np.testing.assert_array_equal(after[name], value)


def test_a_large_map_is_that_of_the_reference_pixel_by_pixel() -> None:
    generator = np.random.default_rng(60)
    centers, half = generator.uniform(0, 1, (60, 2)) * [320, 180], generator.uniform(5, 60, (60, 2))
    values = sample(np.concatenate([centers - half, centers + half], axis=1), generator.integers(-1, 4, 60))
    heat = applied(converter((90, 160)), values, (360, 640))["heatmap"]
    expected = reference(values, (360, 640), (90, 160))["heatmap"]
    np.testing.assert_allclose(heat, expected, atol=2e-5)
    assert ((heat > 0) == (expected > 1e-38)).all()


# --- by hand ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fraction", [0.25, 0.0])
def test_boxes_without_area_or_that_are_not_finite_are_inactive(fraction: float) -> None:
    nan, inf = float("nan"), float("inf")
    odd = [[3, 3, 3, 9], [3, 3, 3, 3], [nan, 1, 5, 5], [nan] * 4, [1, 1, inf, 5], [-inf, -inf, inf, inf]]
    found = applied(converter(min_fraction_area_clipping=fraction), sample([*odd, [2, 2, 8, 8]]))
    assert found["active"].tolist() == [False] * 6 + [True]
    assert (found["heatmap"] == applied(converter(), sample([[2, 2, 8, 8]]))["heatmap"]).all()
    assert ((found["center"] >= 0) & (found["center"] < [14, 11])).all()


def test_centers_that_are_not_finite_are_inactive() -> None:
    centers = np.array([[np.nan, 3], [np.inf, 3], [4, 4]], np.float32)
    found = applied(converter(center_opt_in_name="centers"), sample([[2, 2, 9, 9]] * 3, centers=centers))
    assert found["active"].tolist() == [False, False, True]
    assert np.isfinite(found["heatmap"]).all()
    assert found["heatmap"].max() == 1


def test_a_box_of_the_whole_image_is_not_clipped() -> None:
    """The original takes its fraction as 0.82 on a map of 8 x 16."""
    found = applied(converter((8, 16), min_fraction_area_clipping=1.0), sample([[0, 0, 32, 16]]), (16, 32))
    assert found["active"].tolist() == [True]
    assert found["hw"].tolist() == [[7, 15]]  # in coordinates of pixels


@pytest.mark.parametrize(("dtype", "frames"), [(np.int64, ()), (np.uint8, (2,))])
def test_size_from_the_image_and_other_types_of_categories(dtype: Any, frames: tuple[int, ...]) -> None:
    values = sample([[2, 2, 9, 9], [1, 3, 20, 20]], [0, 2])
    as_other_type = {**values, "categories": values["categories"].astype(dtype)}
    step = converter(image_field_name="image", image_hw_field_name=None)
    found = applied(step, as_other_type, image=np.zeros((*frames, 22, 28, 3), np.uint8))
    np.testing.assert_allclose(found["heatmap"], reference(values, (22, 28), (11, 14))["heatmap"], atol=1e-5)


@pytest.mark.parametrize("image_hw", [[100, 400], [[100, 400]], [[100], [400]]])
def test_a_size_field_is_height_and_width_in_any_shape(image_hw: Any) -> None:
    found = applied(converter((10, 40)), sample([[280, 40, 320, 60]]), image_hw)
    assert found["box"].tolist() == [[28, 4, 32, 6]]
    assert found["center"].tolist() == [[30, 5]]


@pytest.mark.parametrize("image_hw", [100, [100], [100, 400, 3], [[100, 400]] * 2])
def test_a_size_field_of_other_than_two_numbers_is_named(image_hw: Any) -> None:
    words = "image_hw: The size of an image must be its height and width"
    assert_refused(lambda: applied(converter(), sample([]), image_hw), words, FieldValueError)


@pytest.mark.parametrize("boxes", [[[2, 2, 9, 9]], []])
def test_without_categories(boxes: Any) -> None:
    step = converter(categories_in_name=None, num_categories=None, use_per_category_heatmap=False)
    values = {"bboxes": sample(boxes)["bboxes"]}
    expected = reference(values, (11, 14), (11, 14), None, per_category=False)["heatmap"]
    np.testing.assert_allclose(applied(step, values)["heatmap"], expected, atol=1e-6)


def test_outputs_without_a_name_are_left_out() -> None:
    assert [*applied(converter(), sample([]))] == ["bboxes", "categories", "heatmap", *OUTPUTS.values()]
    found = applied(converter(**dict.fromkeys(OUTPUTS)), sample([]))
    assert [*found] == ["bboxes", "categories", "heatmap"]
