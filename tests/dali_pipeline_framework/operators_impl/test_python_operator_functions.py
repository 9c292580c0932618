"""The functions of the published API on arrays, against NumPy in float64."""

from __future__ import annotations

import sys
import types as python_types
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy
from support.laws import examples
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework.errors import FieldValueError
from accvlab.dali_pipeline_framework.operators_impl import python_operator_functions as functions

NAN, INF = float("nan"), float("inf")
FEW = settings(max_examples=examples(25, 60), deadline=None)
TRANSFORM = np.array([[2, 0.5, 10], [-1, 3, 0.25]], np.float32)
HOMOGENEOUS = np.concatenate([TRANSFORM, [[0, 0, 1]]])
SCALING = np.array([[0.5, 0, 0], [0, 0.25, 0]], np.float32)
HW = np.array([8, 16], np.int32)


@given(data=st.data(), dtype=st.sampled_from([np.float16, np.float32, np.float64, np.int32, np.uint8]))
@FEW
def test_each_pair_of_columns_is_a_point(data: st.DataObject, dtype: type) -> None:
    shape = data.draw(st.integers(0, 5)), 2 * data.draw(st.integers(0, 3))
    points = data.draw(st_numpy.arrays(np.int64, shape, elements=st.integers(0, 20))).astype(dtype)
    before, transform = points.copy(), np.abs(TRANSFORM)
    found = functions.apply_transform_to_points(points, transform)
    moved = points.astype(np.float64).reshape(-1, 2) @ transform[:, :2].T + transform[:, 2]
    assert (found.dtype, found.shape) == (dtype, shape)
    np.testing.assert_allclose(found, moved.reshape(shape).astype(dtype), rtol=1e-6)
    np.testing.assert_array_equal(points, before)


def test_integers_are_cut_off_and_nothing_stays_nothing() -> None:
    found = functions.apply_transform_to_points(np.array([[1, 1]]), TRANSFORM * [[0.5], [-1]])
    assert found.tolist() == [[6, -2]]  # 6.25, -2.25
    assert functions.apply_transform_to_points(np.zeros(0, np.float32), TRANSFORM).shape == (0,)


@pytest.mark.parametrize(("dtype", "columns"), [(np.float32, 3), (np.float64, 4)])
@pytest.mark.parametrize("transform", [TRANSFORM, HOMOGENEOUS.astype(np.float32)], ids=["2x3", "3x3"])
def test_projections_are_for_the_transformed_image(dtype: Any, columns: int, transform: np.ndarray) -> None:
    projection = np.random.default_rng(1).random((3, columns)).astype(dtype)
    found = functions.add_post_transform_to_projection_matrix(projection, transform)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, HOMOGENEOUS @ projection, rtol=1e-6)


# --- clipping ---------------------------------------------------------------------------------------------


@given(data=st.data())
@FEW
def test_boxes_centers_sizes_and_fractions_in_this_order(data: st.DataObject) -> None:
    eighths = st.integers(-400, 400).map(lambda number: number / 8)  # all results but the last are exact
    boxes = data.draw(st_numpy.arrays(np.float32, (data.draw(st.integers(0, 5)), 4), elements=eighths))
    centers = data.draw(st_numpy.arrays(np.float16, (len(boxes), 2), elements=eighths))
    found = functions.apply_clipping_and_get_with_clipping_info(boxes, centers, SCALING, HW)
    corners = boxes.astype(np.float64).reshape(-1, 2, 2) * [0.5, 0.25]
    clipped, inside = np.clip(corners, 0, [15, 7]), np.clip(corners, 0, [16, 8])
    area, inside_area = (np.prod(abs(c[:, 1] - c[:, 0]), axis=1) for c in (corners, inside))
    with np.errstate(invalid="ignore", divide="ignore"):
        fraction = inside_area / area
    assert [one.dtype for one in found] == [np.float32, np.float16, np.float32, np.float32]
    np.testing.assert_array_equal(found[0], clipped.reshape(-1, 4))
    np.testing.assert_array_equal(found[1], np.clip(centers * [0.5, 0.25], 0, [15, 7]).astype(np.float16))
    np.testing.assert_array_equal(found[2], abs(clipped[:, 1] - clipped[:, 0])[:, ::-1])
    np.testing.assert_allclose(found[3], fraction, rtol=1e-6)


def test_fractions_of_whole_and_of_impossible_boxes() -> None:
    boxes = np.array([[0, 0, 32, 32], [32, 32, 0, 0], [-32, 0, 32, 32]], np.float32)
    odd = np.array([[1, 1, 1, 1], [NAN, 0, 1, 1], [0, 0, INF, 1], [-INF, 0, INF, 1]], np.float32)
    *_, fraction = functions.apply_clipping_and_get_with_clipping_info(
        np.concatenate([boxes, odd]), np.zeros((7, 2)), SCALING.astype(np.float64), HW
    )
    assert fraction[:3].tolist() == [1.0, 1.0, 0.5]
    assert not (fraction[3:] >= 0.25).any()
    assert np.isnan(fraction[3:5]).all()
    assert fraction.dtype == np.float32  # not that of the transformation


# --- active objects ---------------------------------------------------------------------------------------

# In the order of the function; those that a case does not give do not count.
ALL_ACTIVE = {
    "hw": [[5, 5]],
    "classes": None,
    "fractions": None,
    "min_object_size": None,
    "per_class_min_object_sizes": None,
    "num_classes": None,
}


def is_active(given: dict[str, Any]) -> list[bool]:
    hw, classes, fractions, *others = {**ALL_ACTIVE, **given}.values()
    sizes = np.array(hw, np.float32).reshape(-1, 2)
    known = None if classes is None else np.array(classes, np.int32)
    shares = np.array([1.0] * len(sizes) if fractions is None else fractions, np.float32)
    found = functions.get_is_active(sizes, known, shares, *others, 0.25)
    assert found.dtype == np.bool_
    return found.tolist()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"hw": [(1, 1), (0, 0)]}, [True, True]),
        ({"hw": []}, []),
        ({"hw": [(1, 1)] * 4, "fractions": [0.25, 0.2499, NAN, 1]}, [True, False, False, True]),
        ({"hw": [(2, 3), (1.9, 3), (2, 2.9), (3, 2)], "min_object_size": [2, 3]}, [True, False, False, False]),
        ({"hw": [(1, 1)] * 4, "classes": [0, 1, 2, 9], "num_classes": 2}, [True, True, False, False]),
        ({"hw": [(1, 1), (5, 5)], "classes": [0, 0], "num_classes": 2, "min_object_size": (2, 2)}, [False, True]),
        (
            {
                "hw": [(2, 2), (2, 2), (4, 3), (3, 4), (9, 9)],
                "classes": [0, 1, 1, 1, -1],
                "num_classes": 2,
                "per_class_min_object_sizes": [[1, 1], [4, 3]],
            },
            [True, False, True, False, False],
        ),
    ],
)
def test_active_objects(given: dict[str, Any], expected: list[bool]) -> None:
    assert is_active(given) == expected


# --- padding, refusals, CuPy ------------------------------------------------------------------------------


@given(data=st.data())
@FEW
def test_arrays_are_padded_to_the_greatest_extent_of_each_axis(data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, 3))
    shapes = data.draw(st.lists(st.tuples(*[st.integers(0, 3)] * rank), max_size=4))
    dtypes = st.sampled_from([np.float32, np.int64, np.uint8])
    arrays = [np.arange(1, 1 + np.prod(s, dtype=int)).reshape(s).astype(data.draw(dtypes)) for s in shapes]
    found = functions.pad_to_common_size(*arrays, fill_value=7)
    assert isinstance(found, tuple)
    for one, array in zip(found, arrays, strict=True):
        widths = [(0, max(all_of) - n) for all_of, n in zip(zip(*shapes, strict=True), array.shape, strict=True)]
        expected = np.pad(array, widths, constant_values=7) if rank else array
        assert one.dtype == array.dtype
        np.testing.assert_array_equal(one, expected)


clipped, projected = (
    functions.apply_clipping_and_get_with_clipping_info,
    functions.add_post_transform_to_projection_matrix,
)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: functions.apply_transform_to_points(np.zeros((2, 3)), TRANSFORM), "(N, 2k), got (2, 3)"),
        (
            lambda: functions.apply_transform_to_points(np.zeros((2, 2)), HOMOGENEOUS),
            "`transform` must be (2, 3), got (3, 3)",
        ),
        (lambda: projected(np.eye(3), np.eye(4)), "`transform` must be (2, 3) or (3, 3), got (4, 4)"),
        (lambda: projected(np.eye(4), TRANSFORM), "`proj_mat` must be (3, k), got (4, 4)"),
        (
            lambda: clipped(np.zeros((2, 5)), np.zeros((2, 2)), SCALING, HW),
            "`rects` must be of shape (N, 4), got (2, 5)",
        ),
        (
            lambda: clipped(np.zeros((2, 4)), np.zeros((3, 2)), SCALING, HW),
            "`centers` must be of shape (2, 2), got (3, 2)",
        ),
        (lambda: is_active({"classes": [0]}), "`classes` needs `num_classes`"),
        (
            lambda: is_active({"per_class_min_object_sizes": [[1, 1]]}),
            "`per_class_min_object_sizes` needs `classes`",
        ),
        (lambda: is_active({"classes": [0, 1], "num_classes": 2}), "`classes` must be of shape (1), got (2,)"),
        (lambda: is_active({"min_object_size": [1, 2, 3]}), "`min_object_size` must be of shape (2), got (3,)"),
        (
            lambda: is_active({"classes": [0], "num_classes": 2, "per_class_min_object_sizes": [[1, 1]]}),
            "`per_class_min_object_sizes` must be of shape (2, 2), got (1, 2)",
        ),
        (
            lambda: functions.pad_to_common_size(np.zeros(2), np.zeros((2, 1)), fill_value=0),
            "same number of axes, got (2,), (2, 1)",
        ),
    ],
)
def test_arrays_that_do_not_fit_are_refused(make: Any, words: str) -> None:
    assert_refused(make, words, FieldValueError)


def test_arrays_of_cupy_stay_arrays_of_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for the library: what matters is that its functions are used for its arrays."""

    class Array(np.ndarray):
        def __array__(self, *args: Any, **kwargs: Any) -> Any:
            raise TypeError("arrays of CuPy do not become arrays of NumPy by themselves")

    def own(function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            assert not [arg for arg in args if type(arg) is np.ndarray and arg.ndim], "an array of NumPy"
            return np.asarray(function(*args, **kwargs)).view(Array)

        return call

    cupy = python_types.ModuleType("cupy")
    cupy.ndarray = Array
    cupy.asarray = lambda values, dtype=None: np.array(values, dtype).view(Array)
    cupy.zeros_like, cupy.clip = own(np.zeros_like), own(np.clip)
    cupy.concatenate = lambda rows: np.concatenate([row.view(np.ndarray) for row in rows]).view(Array)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    boxes, centers, transform = (cupy.asarray(each) for each in ([[0, 0, 4, 4.0]], [[1, 2.0]], SCALING))
    results = [
        functions.apply_transform_to_points(boxes, transform),
        functions.apply_transform_to_points(boxes[:0], transform),
        projected(cupy.asarray(np.eye(3)), transform),
        *clipped(boxes, centers, transform, cupy.asarray(HW)),
        functions.get_is_active(
            centers, cupy.asarray([0]), cupy.asarray([1.0]), None, cupy.asarray([[1, 1]]), 1, 0.25
        ),
    ]
    assert [type(result) for result in results] == [Array] * len(results)
    assert results[-1].tolist() == [True]
