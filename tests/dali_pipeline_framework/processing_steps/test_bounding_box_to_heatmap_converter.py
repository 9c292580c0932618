"""Heatmaps of bounding boxes, against a reference in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from step_runs import run_steps
from support.arrays import DT, ArrayProvider
from support.laws import examples

from accvlab.dali_pipeline_framework.errors import FieldValueError
from accvlab.dali_pipeline_framework.processing_steps import (
    BoundingBoxToHeatmapConverter,
    ImageMeanStdDevNormalizer,
)
from accvlab.dali_pipeline_framework.processing_steps.pipeline_step_base import RunWhere

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


def batch(samples: list[dict[str, Any]], image_hw: list[tuple[int, int]]) -> dict[str, Any]:
    types = {"bboxes": DT.FLOAT, "categories": DT.INT32, "is_valid": DT.BOOL, "centers": DT.FLOAT}
    annotation = {name: (types[name], [sample[name] for sample in samples]) for name in samples[0]}
    return {"image_hw": (DT.INT32, image_hw), "annotation": annotation}


def sample(boxes: Any, categories: Any = None) -> dict[str, Any]:
    boxes = np.array(boxes, np.float32).reshape(-1, 4)
    categories = np.zeros(len(boxes), np.int32) if categories is None else np.array(categories, np.int32)
    return {"bboxes": boxes, "categories": categories}


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
samples = st.lists(
    st.tuples(st.tuples(*[coordinate] * 4), st.integers(-2, 4), st.booleans(), st.tuples(coordinate, coordinate)),
    max_size=6,
)


@settings(max_examples=examples(4, 8), deadline=None)
@given(
    drawn=st.lists(samples, min_size=1, max_size=3),
    sizes=st.lists(st.tuples(st.integers(9, 60), st.integers(9, 60)), min_size=3, max_size=3),
    per_category=st.booleans(),
    least=st.sampled_from([None, "one", "each"]),
    has_centers=st.booleans(),
    has_validity=st.booleans(),
    largest=st.sampled_from([2.0, 10.0]),
    heatmap_hw=st.sampled_from([(11, 14), (37, 66), (35, 96)]),  # one tile, tiles beyond the border, whole tiles
    conditionals=st.booleans(),
)
def test_as_the_reference(
    drawn: list[Any],
    sizes: list[tuple[int, int]],
    per_category: bool,
    least: str | None,
    has_centers: bool,
    has_validity: bool,
    largest: float,
    heatmap_hw: tuple[int, int],
    conditionals: bool,
) -> None:
    every: list[dict[str, Any]] = []
    for objects in drawn:
        values = sample([box for box, *_ in objects], [category for _, category, *_ in objects])
        if has_validity:
            values["is_valid"] = np.array([valid for _, _, valid, _ in objects], bool)
        if has_centers:
            values["centers"] = np.array([center for *_, center in objects], np.float32).reshape(-1, 2)
        every.append(values)
    sizes = sizes[: len(every)]
    each = [[0, 0], [1.37, 2.13], [3.01, 0.77]]
    step = converter(
        heatmap_hw,
        use_per_category_heatmap=per_category,
        min_object_size=[1.37, 2.13] if least == "one" else None,
        per_category_min_object_sizes=each if least == "each" else None,
        is_valid_opt_in_name="is_valid" if has_validity else None,
        center_opt_in_name="centers" if has_centers else None,
        min_fraction_area_clipping=0.2371,
        max_radius=largest,
    )
    run = run_steps(step, batch(every, sizes), conditionals=conditionals)
    for index, (values, size) in enumerate(zip(every, sizes, strict=True)):
        least_hw = {None: None, "one": [1.37, 2.13], "each": each}[least]
        expected = reference(
            values, size, heatmap_hw, 3, least_hw, per_category, least_fraction=0.2371, radius=(0.5, largest)
        )
        offset = expected["offset"]
        assume(not ((offset > 0) & (offset < 1e-5) | (offset > 1 - 1e-5)).any())  # rounding would decide
        found = {name: run[f"annotation.{name}"][index] for name in expected}
        for name in ("active", "center"):
            np.testing.assert_array_equal(found[name], expected[name])
        greatest = max(heatmap_hw)  # float32 has numbers up to it in steps of 6e-8 to 1e-7 times that
        for name in ("offset", "hw", "box"):
            np.testing.assert_allclose(found[name], expected[name], atol=3e-7 * greatest)
        np.testing.assert_allclose(found["heatmap"], expected["heatmap"], atol=2e-6 * greatest)
        assert ((found["heatmap"] > 0) == (expected["heatmap"] > 1e-38)).mean() > 0.999
        assert [array.dtype.char for array in found.values()] == ["f", "?", "i", "f", "f", "f"]
        for i in np.flatnonzero(expected["active"]):
            category = values["categories"][i] if per_category else ...
            assert found["heatmap"][category][..., found["center"][i, 1], found["center"][i, 0]] == 1
        for name, value in values.items():
            assert (run[f"annotation.{name}"][index] == value).all()


def test_the_peak_is_one_and_nothing_is_outside_of_the_window() -> None:
    values = sample([[100, 100, 220, 180]])
    run = run_steps(converter((225, 400)), batch([values], [(900, 1600)]))
    [heat], [center] = run["annotation.heatmap"], run["annotation.center"]
    assert center.tolist() == [[40, 35]]
    assert heat[0, 35, 40] == 1.0
    assert np.unravel_index(heat[0].argmax(), heat[0].shape) == (35, 40)
    rows, columns = np.nonzero(heat[0])
    assert np.abs(rows - 35).max() == np.abs(columns - 40).max() == 8  # radius 10 * 0.8
    assert not heat[1:].any()
    sigma = 8 / 3
    assert heat[0, 35 + 3, 40 - 2] == pytest.approx(np.exp(-13 / (2 * sigma**2)), abs=1e-6)


@pytest.mark.parametrize("num_objects", [1, 60])
@pytest.mark.parametrize("crowd", [False, True])
def test_a_map_of_many_tiles_is_that_of_the_reference_pixel_by_pixel(num_objects: int, crowd: bool) -> None:
    generator = np.random.default_rng(num_objects)
    every, hw, image_hw = [], (90, 160), (360, 640)
    for _ in range(2):
        centers = generator.uniform(0, 1, (num_objects, 2)) * ([120, 90] if crowd else [640, 360])
        half = generator.uniform(5, 60, (num_objects, 2))
        boxes = np.concatenate([centers - half, centers + half], axis=1)
        every.append(sample(boxes, generator.integers(-1, 4, num_objects)))
    every.append(sample([]))
    found = run_steps(converter(hw), batch(every, [image_hw] * 3))["annotation.heatmap"]
    for heat, values in zip(found, every, strict=True):
        expected = reference(values, image_hw, hw)["heatmap"]
        np.testing.assert_allclose(heat, expected, atol=2e-5)
        assert ((heat > 0) == (expected > 1e-38)).all()


def test_one_least_size_counts_with_categories_as_well() -> None:
    """The original ignores it."""
    values = sample([[2, 2, 9, 9], [2, 2, 4, 4]])
    run = run_steps(converter(min_object_size=[3, 3]), batch([values], [(11, 14)]))
    assert run["annotation.active"][0].tolist() == [True, False]


def test_least_sizes_of_more_categories_than_coordinates_have_axes() -> None:
    """A table of more than six categories made the graph fail."""
    each = [[2.0 + category, 1.0] for category in range(9)] + [[float("inf"), 0.0]]
    values = sample([[1, 1, 9, 8]] * 10, range(10))
    step = converter(num_categories=10, per_category_min_object_sizes=each)
    active = run_steps(step, batch([values], [(11, 14)]))["annotation.active"][0]
    assert active.tolist() == [2.0 + category <= 7 for category in range(9)] + [False]


def test_boxes_without_area_or_that_are_not_finite_are_inactive() -> None:
    nan, inf = float("nan"), float("inf")
    boxes = [
        [3, 3, 3, 9],
        [3, 3, 3, 3],
        [nan, 1, 5, 5],
        [nan] * 4,
        [1, 1, inf, 5],
        [-inf, -inf, inf, inf],
        [2, 2, 8, 8],
    ]
    values = sample(boxes)
    for fraction in (0.25, 0.0):
        run = run_steps(converter(min_fraction_area_clipping=fraction), batch([values], [(11, 14)]))
        assert run["annotation.active"][0].tolist() == [False] * 6 + [True]
        alone = run_steps(converter(), batch([sample(boxes[-1:])], [(11, 14)]))["annotation.heatmap"][0]
        assert (run["annotation.heatmap"][0] == alone).all()
        center = run["annotation.center"][0]
        assert ((center >= 0) & (center < [14, 11])).all()


def test_centers_that_are_not_finite_are_inactive() -> None:
    values = {**sample([[2, 2, 9, 9]] * 3), "centers": np.array([[np.nan, 3], [np.inf, 3], [4, 4]], np.float32)}
    run = run_steps(converter(center_opt_in_name="centers"), batch([values], [(11, 14)]))
    assert run["annotation.active"][0].tolist() == [False, False, True]
    assert np.isfinite(run["annotation.heatmap"][0]).all()
    assert run["annotation.heatmap"][0].max() == 1


def test_a_box_of_the_whole_image_is_not_clipped() -> None:
    """The original takes its fraction as 0.82 on a map of 8 x 16."""
    values = sample([[0, 0, 32, 16]])
    run = run_steps(converter((8, 16), min_fraction_area_clipping=1.0), batch([values], [(16, 32)]))
    assert run["annotation.active"][0].tolist() == [True]
    assert run["annotation.hw"][0].tolist() == [[7, 15]]  # in coordinates of pixels


@pytest.mark.parametrize(("categories", "frames"), [(DT.INT64, ()), (DT.UINT8, (2,))])
def test_size_from_the_image_and_other_types_of_categories(categories: DT, frames: tuple[int, ...]) -> None:
    values = sample([[2, 2, 9, 9], [1, 3, 20, 20]], [0, 2])
    fields = batch([values], [(22, 28)])
    fields["annotation"]["categories"] = (categories, [[0, 2]])
    fields["image"] = (DT.UINT8, [np.zeros((*frames, 22, 28, 3), np.uint8)])
    step = converter(image_field_name="image", image_hw_field_name=None)
    run = run_steps(step, {"cameras": {0: fields, 1: fields}})
    expected = reference(values, (22, 28), (11, 14))
    for camera in range(2):
        heat = run[f"cameras.[{camera}].annotation.heatmap"][0]
        np.testing.assert_allclose(heat, expected["heatmap"], atol=1e-5)


@pytest.mark.parametrize("run", ["graph", "workers"])
@pytest.mark.parametrize("layout", ["HWC", "CHW"])
def test_the_size_of_an_image_is_found_by_its_layout(layout: str, run: RunWhere) -> None:
    fields = batch([sample([[280, 40, 320, 60]])], [(0, 0)])
    fields["image"] = (DT.UINT8, [np.zeros((100, 400, 3), np.uint8)])
    normalizer = ImageMeanStdDevNormalizer("image", 0.0, 255.0, output_layout=layout)
    step = converter((10, 40), image_field_name="image", image_hw_field_name=None)
    found = run_steps([normalizer, step], fields, run=run)
    assert found["annotation.box"][0].tolist() == [[28, 4, 32, 6]]
    assert found["annotation.center"][0].tolist() == [[30, 5]]


@pytest.mark.parametrize("run", ["graph", "workers"])
@pytest.mark.parametrize("image_hw", [[100, 400], [[100, 400]], [[100], [400]]])
def test_a_size_field_is_height_and_width_in_any_shape(image_hw: Any, run: RunWhere) -> None:
    found = run_steps(converter((10, 40)), batch([sample([[280, 40, 320, 60]])], [image_hw]), run=run)
    assert found["annotation.box"][0].tolist() == [[28, 4, 32, 6]]
    assert found["annotation.center"][0].tolist() == [[30, 5]]


@pytest.mark.parametrize("image_hw", [100, [100], [100, 400, 3], [[100, 400]] * 2])
def test_a_size_field_of_other_than_two_numbers_is_named(image_hw: Any) -> None:
    with pytest.raises(FieldValueError, match=r"^image_hw: The size of an image must be its height and width"):
        run_steps(converter(), batch([sample([[2, 2, 9, 9]])], [image_hw]), run="workers")


def test_without_categories() -> None:
    step = converter(categories_in_name=None, num_categories=None, use_per_category_heatmap=False)
    values = {"bboxes": sample([[2, 2, 9, 9]])["bboxes"]}
    none = {"bboxes": np.zeros((0, 4), np.float32)}
    heat = run_steps(step, batch([values, none], [(11, 14)] * 2))["annotation.heatmap"]
    np.testing.assert_allclose(
        heat[0], reference(values, (11, 14), (11, 14), None, per_category=False)["heatmap"], atol=1e-6
    )
    assert heat[1].shape == (11, 14)
    assert not heat[1].any()


def test_format() -> None:
    blueprint = ArrayProvider(batch([sample([])], [(1, 1)])).sample_data_structure
    after = converter().check_input_data_format_and_set_output_data_format(blueprint)
    names = after["annotation"].contained_top_level_field_names
    assert names == ("bboxes", "categories", "heatmap", "active", "center", "offset", "hw", "box")
    types = [after["annotation"].get_type_of_field(name) for name in names[2:]]
    assert types == [DT.FLOAT, DT.BOOL, DT.INT32, DT.FLOAT, DT.FLOAT, DT.FLOAT]
    fewer = converter(**dict.fromkeys(OUTPUTS)).check_input_data_format_and_set_output_data_format(blueprint)
    assert fewer["annotation"].contained_top_level_field_names == ("bboxes", "categories", "heatmap")
