"""The operators of the published API on nodes of the graph, against NumPy in float64."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.arrays import DT
from support.graphs import run_graph
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework.operators_impl import numba_operators as operators
from accvlab.dali_pipeline_framework.sample_data.dtypes import get_dali_type_for_numpy_type

NAN, INF, PI = float("nan"), float("inf"), math.pi
COUNTS = (0, 1, 2, 5, 5)
FLOATS = pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def f4(values: Any) -> np.ndarray:
    return np.array(values, np.float32)


def assert_as_model(
    operator: Callable[..., Any],
    model: Callable[..., Any],
    *columns: Any,
    dtype: Any = np.float32,
    atol: float = 0,
) -> None:
    """In a batch, each sample gives what the model makes of its arrays."""
    samples = [*zip(*columns, strict=True)]
    for found, sample in zip(run_graph(operator, *columns), samples, strict=True):
        expected = np.asarray(model(*sample))
        assert (found.dtype, found.shape) == (dtype, expected.shape)
        np.testing.assert_allclose(found, expected, rtol=np.finfo(found.dtype).eps if atol else 0, atol=atol)


@pytest.mark.parametrize("dtype", [bool, np.float16, np.int64])
@pytest.mark.parametrize("shape", [(), (2,), (4, 2)])
def test_the_first_axis_is_cut_or_padded(shape: tuple[int, ...], dtype: Any) -> None:
    columns = [rng().integers(0, 9, (n, *shape)).astype(dtype) for n in (0, 2, 5)]
    dali_type = get_dali_type_for_numpy_type(dtype)
    assert_as_model(
        lambda x: operators.pad_to_size(x, 1 + len(shape), dali_type, 3),
        lambda x: np.concatenate([x, np.zeros((3, *shape))])[:3],
        columns,
        dtype=dtype,
    )


@pytest.mark.parametrize("axis", [0, 2, -1])
def test_elements_with_a_false_mask_are_removed_along_an_axis(axis: int) -> None:
    columns = [rng().integers(0, 99, (n, n + 1, 4 - n)) for n in (0, 2, 3)]
    masks = [rng().random(column.shape[axis]) < 0.5 for column in columns]
    assert_as_model(
        lambda x, mask: operators.remove_inactive(x, mask, axis, 3, DT.INT64),
        lambda x, mask: np.compress(mask, x, axis),
        columns,
        masks,
        dtype=np.int64,
    )


@FLOATS
def test_values_are_shifted_into_a_range_by_whole_periods(dtype: Any) -> None:
    def shifted(x: np.ndarray) -> np.ndarray:
        x = np.where(np.isinf(x), NAN, x.astype(np.float64))
        x = np.where(x < -PI, x + np.ceil((-PI - x) / (2 * PI)) * 2 * PI, x)
        return np.where(x > PI, x - np.ceil((x - PI) / (2 * PI)) * 2 * PI, x)

    dali_type = get_dali_type_for_numpy_type(dtype)
    special = [-PI, PI, 0, 7, NAN, INF, -INF, 1]  # the float32 next to pi is above pi
    for ndim, shape in ((1, (8,)), (2, (2, 4))):
        columns = [np.reshape(special, shape).astype(dtype), rng().uniform(-50, 50, shape).astype(dtype)]
        assert_as_model(
            lambda x, ndim=ndim: operators.ensure_range(x, -PI, PI, 2 * PI, ndim, dali_type),
            shifted,
            columns,
            dtype=dtype,
            atol=1e-12,
        )


@FLOATS
def test_nan_is_replaced_and_all_other_bits_stay(dtype: Any) -> None:
    values = np.array([NAN, -NAN, 0.0, -0.0, INF, -INF, np.finfo(dtype).smallest_subnormal, 1 / 3], dtype)
    columns = [values[None], values[:0].reshape(0, 2), values.reshape(4, 2)]
    dali_type = get_dali_type_for_numpy_type(dtype)
    found = run_graph(lambda x: operators.replace_nans(x, -0.1, 2, dali_type), columns)
    for one, column in zip(found, columns, strict=True):
        expected = np.where(np.isnan(column), dtype(-0.1), column)
        assert (one.dtype, one.shape, one.tobytes()) == (dtype, expected.shape, expected.tobytes())
    found = run_graph(lambda x: operators.replace_nans(x, 2.0, 0), [f4(NAN), f4(3)])
    assert [one.item() for one in found] == [2.0, 3.0]


# --- boxes and points -------------------------------------------------------------------------------------


@pytest.mark.parametrize("shrink", [False, True])
def test_visible_boxes_are_those_left_on_a_canvas(shrink: bool) -> None:
    def painted(boxes: np.ndarray, depths: np.ndarray, hw: np.ndarray) -> np.ndarray:
        canvas = np.full(hw, -1)
        low, high = np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])
        low, high = (np.ceil(low), np.floor(high)) if shrink else (np.floor(low), np.ceil(high))
        for index in np.argsort(-depths, kind="stable"):
            x0, y0, x1, y1 = np.clip([*low[index], *high[index]], 0, np.tile(hw[::-1], 2)).astype(int)
            canvas[y0:y1, x0:x1] = index
        return np.isin(np.arange(len(boxes)), canvas)

    boxes = [f4(rng().integers(-8, 40, (n, 4)) / 4) for n in COUNTS * 6]
    depths = [f4(rng().integers(1, 4, n)) for n in COUNTS * 6]
    sizes = [np.array([1 + number % 8, 8 - number % 7], np.int32) for number in range(len(boxes))]
    assert_as_model(
        lambda b, d, s: operators.check_bbox_visibiity(b, d, s, shrink), painted, boxes, depths, sizes, dtype=bool
    )


def test_the_minimum_size_is_that_within_the_image() -> None:
    def is_large(boxes: np.ndarray, hw: np.ndarray) -> np.ndarray:
        corners = np.clip(boxes.reshape(-1, 2, 2), 0, hw[::-1])
        return (abs(corners[:, 1] - corners[:, 0]) >= 2).all(axis=1)

    boxes = [f4(rng().integers(-8, 40, (n, 4)) / 4) for n in COUNTS]
    sizes = [np.array([6, 8], np.int32)] * len(boxes)
    assert_as_model(lambda b, s: operators.check_minimum_bbox_size(b, 2, s), is_large, boxes, sizes, dtype=bool)


def test_points_on_the_border_are_inside_and_nan_is_not() -> None:
    points = f4([[0, -INF], [2, 3], [2.001, 0], [NAN, 0], [0, 3.001]])
    found = run_graph(
        lambda p: operators.check_points_in_box(p, np.array([0, -INF]), np.array([2, 3])), [points, points[:0]]
    )
    assert [one.tolist() for one in found] == [[True, True, False, False, False], []]


@pytest.mark.parametrize(("dtype", "expected"), [(np.float32, [[1.5, 8.5], [5, 3]]), (np.int32, [[1, 8], [5, 3]])])
def test_coordinates_are_clamped_per_column(dtype: Any, expected: list[Any]) -> None:
    points = np.array([[0, 9], [7, 3]], dtype)
    dali_type = get_dali_type_for_numpy_type(dtype)
    found = run_graph(lambda p: operators.crop_coordinates(p, [1.5, 2], [5, 8.5], dali_type), [points, points[:0]])
    assert [one.dtype for one in found] == [dtype] * 2
    assert [one.tolist() for one in found] == [expected, []]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_centers_and_radii_of_boxes(dtype: Any) -> None:
    def middle(boxes: np.ndarray) -> np.ndarray:
        return boxes.astype(np.float64).reshape(-1, 2, 2).mean(axis=1)

    def radius(boxes: np.ndarray, centers: np.ndarray, factor: float = 0.5) -> np.ndarray:
        corners = boxes.astype(np.float64).reshape(-1, 2, 2)
        low, high = corners.min(axis=1), corners.max(axis=1)
        return np.maximum(np.minimum(centers - low, high - centers).min(axis=1), 0) * factor

    dali_type = get_dali_type_for_numpy_type(dtype)
    boxes = [rng().integers(0, 200, (n, 4)).astype(dtype) for n in COUNTS]
    if dtype != np.float32:  # which does not hold these
        boxes[1] = np.array([[2**24 + 1, 0, 2**24 + 6, 9]], dtype)
    centers = [f4(rng().uniform(0, 200, (n, 2))) for n in COUNTS]
    assert_as_model(lambda b: operators.get_center_from_bboxes(b, dali_type), lambda b: f4(middle(b)), boxes)
    assert_as_model(
        lambda b: operators.get_radii_from_bboxes(b, dali_type),
        lambda b: f4(radius(b, middle(b), 0.8)),
        boxes,
        atol=1e-5,
    )
    assert_as_model(
        lambda b, c: operators.get_radii_from_bboxes(b, dali_type, 0.5, c), radius, boxes, centers, atol=1e-5
    )


# --- matrices ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_homog", [False, True])
def test_a_rotation_is_that_of_rodrigues(as_homog: bool) -> None:
    def rodrigues(vector: np.ndarray) -> np.ndarray:
        result = np.eye(4 if as_homog else 3)
        angle = np.linalg.norm(vector.astype(np.float64))
        if angle >= 0.4:
            x, y, z = vector / angle
            cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
            result[:3, :3] += np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross
        return result

    vectors = [*f4(rng().uniform(-4, 4, (9, 3))), *f4([[0, 0, 0], [0.3, 0, 0], [0, 0.5, 0]])]
    assert_as_model(
        lambda v: operators.get_rot_mat_from_rot_vector(v, as_homog, eps=0.4), rodrigues, vectors, atol=1e-6
    )


def test_translations_and_scalings() -> None:
    vectors = [f4([1, -2, 0.5]), f4([0, 3, -1])]
    assert_as_model(
        operators.get_translation_mat_from_vector,
        lambda v: np.vstack([np.c_[np.eye(3), v], [0, 0, 0, 1]]),
        vectors,
    )
    assert_as_model(operators.get_scaling_mat_from_vector, np.diag, vectors)
    assert_as_model(lambda v: operators.get_scaling_mat_from_vector(v, True), lambda v: np.diag([*v, 1]), vectors)


def applied(
    vectors: np.ndarray,
    matrix: np.ndarray,
    homogeneous: bool,
    rows: bool,
    transpose: bool,
    invert: bool,
    right: bool,
) -> np.ndarray:
    columns = vectors.astype(np.float64)
    columns = columns[:, None] if vectors.ndim == 1 else columns.T if rows else columns
    if homogeneous:
        columns = np.concatenate([columns, np.ones((1, columns.shape[1]))])
    matrix = matrix.astype(np.float64)
    matrix = matrix.T if transpose else matrix
    matrix = np.linalg.inv(matrix) if invert else matrix
    product = columns @ matrix if right else matrix @ columns
    product = product[:-1] / product[-1:] if homogeneous else product
    return product[:, 0] if vectors.ndim == 1 else product.T if rows else product


@pytest.mark.parametrize("flags", [*itertools.product([False, True], repeat=4)], ids=str)
def test_matrices_are_applied_to_vectors(flags: tuple[bool, ...]) -> None:
    # Invertible matrices, and vectors that stay away from infinity.
    homogeneous, rows, *_ = flags
    size = 4 if homogeneous else 3
    matrices = [f4(np.eye(size) + rng().uniform(-0.2, 0.2, (size, size)))] * 3
    several = [f4(rng().uniform(-1, 1, (n, 3) if rows else (3, n))) for n in (0, 1, 5)]
    for vectors in (several, [f4([1, -0.5, 0.3])] * 3):  # one vector alone is a column
        assert_as_model(
            lambda v, m: operators.apply_matrix(v, m, *flags, False),
            lambda v, m: applied(v, m, *flags, False),
            vectors,
            matrices,
            atol=3e-6,
        )


@pytest.mark.parametrize("flags", [*itertools.product([False, True], repeat=2)], ids=str)
def test_a_matrix_may_be_the_second_factor(flags: tuple[bool, ...]) -> None:
    projection, pose = f4(rng().uniform(-1, 1, (3, 4))), f4(np.eye(4) + rng().uniform(-0.2, 0.2, (4, 4)))
    assert_as_model(
        lambda p, m: operators.apply_matrix(p, m, False, False, *flags, True),
        lambda p, m: applied(p, m, False, False, *flags, True),
        [projection],
        [pose],
        atol=3e-6,
    )


# --- refusals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("pad_to_size", (None, 0, DT.FLOAT, 3), "`num_dims` must be a whole number of at least 1, got 0"),
        ("pad_to_size", (None, 1, DT.FLOAT, -1), "`size` must be a whole number of at least 0, got -1"),
        ("remove_inactive", (None, None, 2, 2, DT.FLOAT), "`masked_dimension` must be in [-n, n)... got 2 and 2"),
        ("ensure_range", (None, 1, 0, 1, 1, DT.FLOAT), "`min_value` <= `max_value`"),
        ("ensure_range", (None, 0, 1, 0, 1, DT.FLOAT), "`period` > 0"),
        ("ensure_range", (None, 0, 1, 1, 1, DT.INT32), "`data_type` must be one of ...FLOAT16, ...FLOAT64, got"),
        ("replace_nans", (None, 0.0, 1, DT.INT32), "`data_type` must be one of ...FLOAT16, ...FLOAT64, got"),
        ("check_points_in_box", (None, [1.0], [0.0]), "must be at most that of `maximum_point`"),
        ("crop_coordinates", (None, [1.0], [0.0], DT.FLOAT), "must be at most that of `maximum_point`"),
    ],
)
def test_settings_that_are_refused(name: str, arguments: tuple[Any, ...], words: str) -> None:
    assert_refused(lambda: getattr(operators, name)(*arguments), words)


SQUARE = np.zeros((2, 2), np.float32)


@pytest.mark.parametrize(
    ("operator", "arrays", "words"),
    [
        (
            lambda x, mask: operators.remove_inactive(x, mask, 0, 1, DT.FLOAT),
            [f4([1, 2, 3]), np.ones(2, bool)],
            "A mask must have one value for each element",
        ),
        (
            lambda b, c: operators.get_radii_from_bboxes(b, centers=c),
            [f4(np.ones((3, 4))), f4([[1, 1]])],
            "reshape",
        ),
        (lambda v, m: operators.apply_matrix(v, m, *[False] * 5), [SQUARE, f4(np.eye(3))], "matmul"),
        (
            lambda v, m: operators.apply_matrix(v, m, False, False, False, True, False),
            [SQUARE, SQUARE],
            "Cannot invert the matrix [[0.0, 0.0], [0.0, 0.0]]",
        ),
    ],
    ids=["mask", "centers", "extents", "singular"],
)
def test_arrays_that_do_not_fit_are_an_error(operator: Any, arrays: list[np.ndarray], words: str) -> None:
    assert_refused(lambda: run_graph(operator, *([array] for array in arrays)), words, RuntimeError)
