"""The functions of the published API on arrays, against NumPy in float64, alone and in pipelines."""

from __future__ import annotations

import sys
import types as python_types
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy
from nvidia.dali import fn
from support.graphs import run_graph
from support.laws import examples

from accvlab.dali_pipeline_framework.errors import FieldValueError
from accvlab.dali_pipeline_framework.operators_impl import python_operator_functions as functions

NAN, INF = float("nan"), float("inf")
FEW = settings(max_examples=examples(12, 30), deadline=None)
TRANSFORM = np.array([[2, 0.5, 10], [-1, 3, 0.25]], np.float32)
HOMOGENEOUS = np.concatenate([TRANSFORM, [[0, 0, 1]]])


class TestApplyTransformToPoints:
    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int32, np.uint8])
    @given(data=st.data())
    @FEW
    def test_each_pair_of_columns_is_a_point(self, dtype: type, data: st.DataObject) -> None:
        shape = data.draw(st.integers(0, 5)), 2 * data.draw(st.integers(0, 3))
        points = data.draw(st_numpy.arrays(np.int64, shape, elements=st.integers(0, 20))).astype(dtype)
        transform = np.abs(TRANSFORM)
        found = functions.apply_transform_to_points(points, transform)
        expected = np.zeros(shape)
        for column in range(0, shape[1], 2):
            ones = np.ones((shape[0], 1))
            expected[:, column : column + 2] = np.c_[points[:, column : column + 2], ones] @ transform.T
        assert (found.dtype, found.shape) == (dtype, shape)
        np.testing.assert_allclose(found, expected.astype(dtype), rtol=1e-6)

    def test_integers_are_cut_off(self) -> None:
        found = functions.apply_transform_to_points(np.array([[1, 1]]), TRANSFORM * [[0.5], [-1]])
        assert found.tolist() == [[6, -2]]  # 6.25, -2.25

    def test_inputs_are_left_alone(self) -> None:
        points = np.ones((2, 2), np.float32)
        functions.apply_transform_to_points(points, TRANSFORM)
        np.testing.assert_array_equal(points, 1)

    @pytest.mark.parametrize("shape", [(0, 2), (0,), (3, 0)])
    def test_nothing_stays_nothing(self, shape: tuple[int, ...]) -> None:
        assert functions.apply_transform_to_points(np.zeros(shape, np.float32), TRANSFORM).shape == shape

    def test_an_odd_number_of_columns_is_refused(self) -> None:
        with pytest.raises(ValueError, match=r"\(N, 2k\), got \(2, 3\)"):
            functions.apply_transform_to_points(np.zeros((2, 3)), TRANSFORM)
        with pytest.raises(FieldValueError, match=r"`transform` must be \(2, 3\), got \(3, 3\)"):
            functions.apply_transform_to_points(np.zeros((2, 2)), HOMOGENEOUS)

    def test_in_a_pipeline(self) -> None:
        points = [np.ones((n, 4), np.float32) for n in (0, 2)]

        def graph(p: Any, t: Any) -> Any:
            return fn.python_function(p, t, function=functions.apply_transform_to_points, num_outputs=1)

        found = run_graph(graph, points, [TRANSFORM] * 2)
        for one, p in zip(found, points, strict=True):
            assert one.dtype == np.float32
            np.testing.assert_array_equal(one, functions.apply_transform_to_points(p, TRANSFORM))


class TestAddPostTransformToProjectionMatrix:
    @pytest.mark.parametrize("columns", [3, 4])
    @pytest.mark.parametrize("transform", [TRANSFORM, HOMOGENEOUS], ids=["2x3", "3x3"])
    def test_a_transform_with_or_without_its_last_row(self, columns: int, transform: np.ndarray) -> None:
        projection = np.random.default_rng(1).random((3, columns))
        found = functions.add_post_transform_to_projection_matrix(projection, transform)
        np.testing.assert_allclose(found, HOMOGENEOUS @ projection, rtol=1e-12)

    def test_float32_stays_float32(self) -> None:
        projection = np.eye(3, 4, dtype=np.float32)
        found = functions.add_post_transform_to_projection_matrix(projection, TRANSFORM)
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, HOMOGENEOUS @ projection)

    def test_refusals(self) -> None:
        with pytest.raises(FieldValueError, match=r"`transform` must be \(2, 3\) or \(3, 3\), got \(4, 4\)"):
            functions.add_post_transform_to_projection_matrix(np.eye(3), np.eye(4))
        with pytest.raises(FieldValueError, match=r"`proj_mat` must be \(3, k\), got \(4, 4\)"):
            functions.add_post_transform_to_projection_matrix(np.eye(4), TRANSFORM)


class TestClipping:
    SCALING = np.array([[0.5, 0, 0], [0, 0.25, 0]], np.float32)
    HW = np.array([8, 16], np.int32)

    @given(data=st.data())
    @FEW
    def test_boxes_centers_sizes_and_fractions_in_this_order(self, data: st.DataObject) -> None:
        eighths = st.integers(-400, 400).map(lambda number: number / 8)  # all results but the last are exact
        boxes = data.draw(st_numpy.arrays(np.float32, (data.draw(st.integers(0, 5)), 4), elements=eighths))
        centers = data.draw(st_numpy.arrays(np.float32, (len(boxes), 2), elements=eighths))
        found = functions.apply_clipping_and_get_with_clipping_info(boxes, centers, self.SCALING, self.HW)
        corners = boxes.astype(np.float64).reshape(-1, 2, 2) * [0.5, 0.25]
        clipped = np.clip(corners, 0, [15, 7])
        sides = abs(clipped[:, 1] - clipped[:, 0])
        inside = np.clip(corners, 0, [16, 8])
        area, inside_area = (np.prod(abs(c[:, 1] - c[:, 0]), axis=1) for c in (corners, inside))
        with np.errstate(invalid="ignore", divide="ignore"):
            fraction = inside_area / area
        assert [one.dtype for one in found] == [np.float32] * 4
        np.testing.assert_array_equal(found[0], clipped.reshape(-1, 4))
        np.testing.assert_array_equal(found[1], np.clip(centers * [0.5, 0.25], 0, [15, 7]))
        np.testing.assert_array_equal(found[2], sides[:, ::-1])
        np.testing.assert_allclose(found[3], fraction, rtol=1e-6)

    def test_a_box_of_the_whole_image_is_inside_of_it(self) -> None:
        boxes = np.array([[0, 0, 32, 32], [32, 32, 0, 0], [-32, 0, 32, 32]], np.float32)
        *_, fraction = functions.apply_clipping_and_get_with_clipping_info(
            boxes, np.zeros((3, 2), np.float32), self.SCALING, self.HW
        )
        assert fraction.tolist() == [1.0, 1.0, 0.5]

    def test_boxes_without_an_area_give_nan_and_no_warning(self) -> None:
        boxes = np.array([[1, 1, 1, 1], [NAN, 0, 1, 1], [0, 0, INF, 1], [-INF, 0, INF, 1]], np.float32)
        centers = np.zeros((4, 2), np.float32)
        *_, fraction = functions.apply_clipping_and_get_with_clipping_info(boxes, centers, self.SCALING, self.HW)
        assert not (fraction >= 0.25).any()
        assert np.isnan(fraction[:2]).all()

    def test_one_type_also_for_the_centers(self) -> None:
        # Doubles would come back where DALI is told of float32.
        boxes, centers = np.zeros((1, 4), np.float32), np.zeros((1, 2), np.float16)
        clipped, clipped_centers, hw, fraction = functions.apply_clipping_and_get_with_clipping_info(
            boxes, centers, self.SCALING.astype(np.float64), self.HW
        )
        assert clipped.dtype == hw.dtype == fraction.dtype == np.float32
        assert clipped_centers.dtype == np.float16

    def test_refusals(self) -> None:
        with pytest.raises(FieldValueError, match=r"`rects` must be of shape \(N, 4\), got \(2, 5\)"):
            functions.apply_clipping_and_get_with_clipping_info(
                np.zeros((2, 5)), np.zeros((2, 2)), self.SCALING, self.HW
            )
        with pytest.raises(FieldValueError, match=r"`centers` must be of shape \(2, 2\), got \(3, 2\)"):
            functions.apply_clipping_and_get_with_clipping_info(
                np.zeros((2, 4)), np.zeros((3, 2)), self.SCALING, self.HW
            )


def is_active(*, hw: Any = ((5, 5),), classes: Any = None, fractions: Any = None, **arguments: Any) -> list[bool]:
    settings = {"min_object_size": None, "per_class_min_object_sizes": None, "num_classes": None, **arguments}
    hw = np.array(hw, np.float32).reshape(-1, 2)
    found = functions.get_is_active(
        hw,
        None if classes is None else np.array(classes, np.int32),
        np.array([1.0] * len(hw) if fractions is None else fractions, np.float32),
        settings["min_object_size"],
        settings["per_class_min_object_sizes"],
        settings["num_classes"],
        0.25,
    )
    assert found.dtype == np.bool_
    return found.tolist()


class TestGetIsActive:
    def test_without_any_limits(self) -> None:
        assert is_active(hw=[(1, 1), (0, 0)]) == [True, True]
        assert is_active(hw=[]) == []

    def test_fractions(self) -> None:
        assert is_active(hw=[(1, 1)] * 4, fractions=[0.25, 0.2499, NAN, 1]) == [True, False, False, True]

    def test_both_sides_must_be_large_enough(self) -> None:
        hw = [(2, 3), (1.9, 3), (2, 2.9), (3, 2)]
        assert is_active(hw=hw, min_object_size=[2, 3]) == [True, False, False, False]

    def test_classes_that_are_not_known_are_inactive(self) -> None:
        assert is_active(hw=[(1, 1)] * 4, classes=[0, 1, 2, 9], num_classes=2) == [True, True, False, False]

    def test_negative_classes_are_inactive(self) -> None:
        arguments = {"classes": [-1, -2, 0], "num_classes": 2, "per_class_min_object_sizes": [[0, 0], [0, 0]]}
        assert is_active(hw=[(1, 1)] * 3, **arguments) == [False, False, True]

    def test_the_size_for_all_classes_also_holds_where_there_are_classes(self) -> None:
        assert is_active(hw=[(1, 1), (5, 5)], classes=[0, 0], num_classes=2, min_object_size=(2, 2)) == [
            False,
            True,
        ]

    def test_sizes_per_class(self) -> None:
        hw, sizes = [(2, 2), (2, 2), (4, 3), (3, 4)], [[1, 1], [4, 3]]
        found = is_active(hw=hw, classes=[0, 1, 1, 1], num_classes=2, per_class_min_object_sizes=sizes)
        assert found == [True, False, True, False]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"classes": [0]}, "`classes` needs `num_classes`"),
            ({"per_class_min_object_sizes": [[1, 1]]}, "`per_class_min_object_sizes` needs `classes`"),
            ({"classes": [0, 1], "num_classes": 2}, r"`classes` must be of shape \(1\), got \(2,\)"),
            ({"min_object_size": [1, 2, 3]}, r"`min_object_size` must be of shape \(2\), got \(3,\)"),
            (
                {"classes": [0], "num_classes": 2, "per_class_min_object_sizes": [[1, 1]]},
                r"`per_class_min_object_sizes` must be of shape \(2, 2\), got \(1, 2\)",
            ),
        ],
    )
    def test_refusals(self, arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(FieldValueError, match=message):
            is_active(**arguments)


class TestPadToCommonSize:
    @given(data=st.data())
    @FEW
    def test_to_the_greatest_extent_of_each_axis(self, data: st.DataObject) -> None:
        rank = data.draw(st.integers(0, 3))
        shapes = data.draw(st.lists(st.tuples(*[st.integers(0, 3)] * rank), min_size=1, max_size=4))
        dtypes = st.sampled_from([np.float32, np.int64, np.uint8])
        arrays = [np.arange(1, 1 + np.prod(s, dtype=int)).reshape(s).astype(data.draw(dtypes)) for s in shapes]
        found = functions.pad_to_common_size(*arrays, fill_value=7)
        assert isinstance(found, tuple)
        extents = np.max(shapes, axis=0) if rank else ()
        for one, array in zip(found, arrays, strict=True):
            widths = [(0, most - extent) for most, extent in zip(extents, array.shape, strict=True)]
            expected = np.pad(array, widths, constant_values=7) if rank else array
            assert one.dtype == array.dtype
            np.testing.assert_array_equal(one, expected)

    def test_of_nothing(self) -> None:
        assert functions.pad_to_common_size(fill_value=0) == ()

    def test_different_numbers_of_axes_are_refused(self) -> None:
        with pytest.raises(FieldValueError, match=r"same number of axes, got \(2,\), \(2, 1\)"):
            functions.pad_to_common_size(np.zeros(2), np.zeros((2, 1)), fill_value=0)

    def test_in_a_pipeline(self) -> None:
        def graph(a: Any, b: Any) -> Any:
            def padded(a: np.ndarray, b: np.ndarray) -> Any:
                return functions.pad_to_common_size(a, b, fill_value=-1)

            return fn.python_function(a, b, function=padded, num_outputs=2)[0]

        (found,) = run_graph(graph, [np.ones((1, 1), np.float32)], [np.ones((1, 2), np.float32)])
        assert found.tolist() == [[1, -1]]


class TestWithArraysOfCuPy:
    """With a stand-in for the library: what matters is that its functions are used for its arrays."""

    @pytest.fixture
    def cupy(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        class Array(np.ndarray):
            def __array__(self, *args: Any, **kwargs: Any) -> Any:
                raise TypeError("arrays of CuPy do not become arrays of NumPy by themselves")

        def own(function: Any) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                for arg in args[0] if isinstance(args[0], list) else args:
                    assert not (type(arg) is np.ndarray and arg.ndim), "an array of NumPy among those of CuPy"
                return np.asarray(function(*args, **kwargs)).view(Array)

            return call

        library = python_types.ModuleType("cupy")
        library.ndarray = Array
        library.asarray = lambda values, dtype=None: np.array(values, dtype).view(Array)
        library.zeros_like = own(np.zeros_like)
        library.clip = own(np.clip)
        library.concatenate = lambda rows: np.concatenate([row.view(np.ndarray) for row in rows]).view(Array)
        monkeypatch.setitem(sys.modules, "cupy", library)
        return library

    def test_results_are_arrays_of_cupy(self, cupy: Any) -> None:
        boxes, centers = cupy.asarray([[0, 0, 4, 4.0]]), cupy.asarray([[1, 2.0]])
        transform = cupy.asarray(TestClipping.SCALING)
        results = [
            functions.apply_transform_to_points(boxes, transform),
            functions.apply_transform_to_points(boxes[:0], transform),
            functions.add_post_transform_to_projection_matrix(cupy.asarray(np.eye(3)), transform),
            *functions.apply_clipping_and_get_with_clipping_info(
                boxes, centers, transform, cupy.asarray(TestClipping.HW)
            ),
            functions.get_is_active(
                centers, cupy.asarray([0]), cupy.asarray([1.0]), None, cupy.asarray([[1, 1]]), 1, 0.25
            ),
        ]
        assert [type(result) for result in results] == [cupy.ndarray] * len(results)
        assert results[-1].tolist() == [True]
