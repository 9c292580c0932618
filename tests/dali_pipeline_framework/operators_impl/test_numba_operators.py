"""The operators of the published API on nodes of the graph, against NumPy in float64."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy
from support.arrays import DT
from support.graphs import run_graph
from support.laws import each_value, examples

from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.operators_impl import numba_operators
from accvlab.dali_pipeline_framework.sample_data.dtypes import NUMPY_TYPES, get_dali_type_for_numpy_type

NAN, INF = float("nan"), float("inf")
FEW = settings(max_examples=examples(3, 20), deadline=None)
FLOATS = st.floats(-100, 100, width=32)


def f4(values: Any) -> np.ndarray:
    return np.array(values, np.float32)


def ragged(data: st.DataObject, columns: int, elements: Any = FLOATS, samples: int = 3) -> list[np.ndarray]:
    """Samples with 0 ... 5 rows."""
    return [
        data.draw(st_numpy.arrays(np.float32, (data.draw(st.integers(0, 5)), columns), elements=elements))
        for _ in range(samples)
    ]


class TestPadToSize:
    @pytest.mark.parametrize("dtype", NUMPY_TYPES.values())
    def test_cuts_or_pads_the_first_axis_of_each_type(self, dtype: type) -> None:
        columns = [np.arange(1, n * 2 + 1).reshape(n, 2).astype(dtype) for n in (0, 2, 5)]
        found = run_graph(
            lambda x: numba_operators.pad_to_size(x, 2, get_dali_type_for_numpy_type(dtype), 3), columns
        )
        for one, column in zip(found, columns, strict=True):
            expected = np.concatenate([column, np.zeros((3, 2), dtype)])[:3]
            assert one.dtype == expected.dtype
            np.testing.assert_array_equal(one, expected)

    @pytest.mark.parametrize("shape", [(3,), (3, 4), (3, 4, 2), (0, 4)])
    def test_other_axes_keep_their_extent(self, shape: tuple[int, ...]) -> None:
        (found,) = run_graph(
            lambda x: numba_operators.pad_to_size(x, len(shape), DT.FLOAT, 5), [np.ones(shape, np.float32)]
        )
        assert found.shape == (5, *shape[1:])

    def test_refusals(self) -> None:
        with pytest.raises(AssertionError, match="`num_dims` must be a whole number of at least 1, got 0"):
            numba_operators.pad_to_size(None, 0, DT.FLOAT, 3)
        with pytest.raises(SettingError, match="`size` must be a whole number of at least 0, got -1"):
            numba_operators.pad_to_size(None, 1, DT.FLOAT, -1)


class TestRemoveInactive:
    @pytest.mark.parametrize("axis", [0, 1, 2, -1])
    def test_keeps_slices_along_the_axis(self, axis: int) -> None:
        random = np.random.default_rng(5)
        columns = [random.integers(0, 99, (n, n + 1, 4 - n)) for n in (0, 2, 3)]
        masks = [random.random(column.shape[axis]) < 0.5 for column in columns]
        found = run_graph(
            lambda x, mask: numba_operators.remove_inactive(x, mask, axis, 3, DT.INT64), columns, masks
        )
        for one, column, mask in zip(found, columns, masks, strict=True):
            np.testing.assert_array_equal(one, np.compress(mask, column, axis))

    @pytest.mark.parametrize("length", [2, 4])
    def test_a_mask_of_another_length_is_an_error(self, length: int) -> None:
        with pytest.raises(RuntimeError, match="A mask must have one value for each element"):
            run_graph(
                lambda x, mask: numba_operators.remove_inactive(x, mask, 0, 1, DT.FLOAT),
                [np.zeros(3, np.float32)],
                [np.ones(length, bool)],
            )

    def test_an_axis_that_does_not_exist_is_refused(self) -> None:
        with pytest.raises(SettingError, match=r"`masked_dimension` must be in \[-n, n\).* got 2 and 2"):
            numba_operators.remove_inactive(None, None, 2, 2, DT.FLOAT)


def in_range(x: np.ndarray, low: float, high: float, period: float) -> np.ndarray:
    x = x.astype(np.float64)
    x = np.where(x < low, x + np.ceil((low - x) / period) * period, x)
    return np.where(x > high, x - np.ceil((x - high) / period) * period, x)


class TestEnsureRange:
    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
    @given(data=st.data())
    @FEW
    def test_shifts_by_whole_periods(self, dtype: type, data: st.DataObject) -> None:
        shape = data.draw(st_numpy.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
        values = st.sampled_from([-math.pi, math.pi, 7.0, NAN]) | st.floats(-50, 50, width=16)
        columns = [data.draw(st_numpy.arrays(np.float64, shape, elements=values)).astype(dtype) for _ in range(2)]
        dali_type = get_dali_type_for_numpy_type(dtype)
        found = run_graph(
            lambda x: numba_operators.ensure_range(x, -math.pi, math.pi, 2 * math.pi, len(shape), dali_type),
            columns,
        )
        for one, column in zip(found, columns, strict=True):
            assert one.dtype == dtype
            expected = in_range(column, -math.pi, math.pi, 2 * math.pi)
            np.testing.assert_allclose(one, expected, rtol=np.finfo(dtype).eps, atol=1e-12)

    def test_float32_pi_is_above_pi(self) -> None:
        pi = math.pi
        (found,) = run_graph(
            lambda x: numba_operators.ensure_range(x, -pi, pi, 2 * pi, 1, DT.FLOAT), [f4([math.pi, -math.pi])]
        )
        np.testing.assert_allclose(found, [-math.pi, math.pi], rtol=1e-6)

    def test_values_within_stay_and_infinite_ones_become_nan(self) -> None:
        values = [0.0, 1.0, 0.3, INF, -INF]
        (found,) = run_graph(lambda x: numba_operators.ensure_range(x, 0, 1, 1, 1, DT.FLOAT), [f4(values)])
        np.testing.assert_array_equal(found, f4([0.0, 1.0, 0.3, NAN, NAN]))

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ((1, 0, 1, 1, DT.FLOAT), "`min_value` <= `max_value`"),
            ((0, 1, 0, 1, DT.FLOAT), "`period` > 0"),
            ((0, 1, 1, 1, DT.INT32), ".*FLOAT16, .*FLOAT, .*FLOAT64, got"),
        ],
    )
    def test_refusals(self, settings: tuple[Any, ...], message: str) -> None:
        with pytest.raises(SettingError, match=message):
            numba_operators.ensure_range(None, *settings)


class TestReplaceNans:
    @pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
    def test_replaces_nan_and_nothing_else(self, dtype: type) -> None:
        tiny = np.finfo(dtype).smallest_subnormal
        values = np.array([NAN, -NAN, 0.0, -0.0, INF, -INF, tiny, 1 / 3], dtype)
        columns = [values[None], values[:0].reshape(0, 2), values.reshape(4, 2)]
        dali_type = get_dali_type_for_numpy_type(dtype)
        found = run_graph(lambda x: numba_operators.replace_nans(x, -0.1, 2, dali_type), columns)
        for one, column in zip(found, columns, strict=True):
            expected = np.where(np.isnan(column), dtype(-0.1), column)
            assert (one.dtype, one.shape) == (expected.dtype, expected.shape)
            assert one.tobytes() == expected.tobytes()

    def test_a_number_without_axes(self) -> None:
        found = run_graph(lambda x: numba_operators.replace_nans(x, 2.0, 0), [f4(NAN), f4(3)])
        assert [one.item() for one in found] == [2.0, 3.0]

    def test_other_types_are_refused(self) -> None:
        with pytest.raises(SettingError, match=r"`data_type` must be one of .*FLOAT16, .*FLOAT, .*FLOAT64, got"):
            numba_operators.replace_nans(None, 0.0, 1, DT.INT32)


def painted(boxes: np.ndarray, depths: np.ndarray, hw: np.ndarray, shrink: bool) -> np.ndarray:
    """Which boxes are left on a canvas."""
    canvas = np.full(hw, -1)
    low, high = np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])
    low, high = (np.ceil(low), np.floor(high)) if shrink else (np.floor(low), np.ceil(high))
    for index in np.argsort(-depths, kind="stable"):
        x0, y0, x1, y1 = np.clip([*low[index], *high[index]], 0, np.tile(hw[::-1], 2)).astype(int)
        canvas[y0:y1, x0:x1] = index
    return np.isin(np.arange(len(boxes)), canvas)


class TestBoxes:
    @pytest.mark.parametrize("shrink", [False, True])
    @given(data=st.data())
    @FEW
    def test_visible_boxes_are_those_left_on_a_canvas(self, shrink: bool, data: st.DataObject) -> None:
        boxes = ragged(data, 4, st.integers(-8, 40).map(lambda x: x / 4))
        depths = [f4(data.draw(st.lists(st.integers(1, 3), min_size=len(b), max_size=len(b)))) for b in boxes]
        sizes = [np.array(data.draw(st.tuples(*[st.integers(1, 8)] * 2)), np.int32) for _ in boxes]
        found = run_graph(
            lambda b, d, s: numba_operators.check_bbox_visibiity(b, d, s, shrink), boxes, depths, sizes
        )
        for one, b, d, s in zip(found, boxes, depths, sizes, strict=True):
            np.testing.assert_array_equal(one, painted(b, d, s, shrink))

    @given(data=st.data())
    @FEW
    def test_minimum_size_is_that_within_the_image(self, data: st.DataObject) -> None:
        boxes = ragged(data, 4, st.integers(-8, 40).map(lambda x: x / 4))
        sizes = [np.array([6, 8], np.int32)] * len(boxes)
        found = run_graph(lambda b, s: numba_operators.check_minimum_bbox_size(b, 2, s), boxes, sizes)
        for one, b in zip(found, boxes, strict=True):
            clipped = np.clip(b.reshape(-1, 2, 2), 0, [8, 6])
            np.testing.assert_array_equal(one, (abs(clipped[:, 1] - clipped[:, 0]) >= 2).all(axis=1))

    def test_points_on_the_border_are_inside_and_nan_is_not(self) -> None:
        points = f4([[0, -INF], [2, 3], [2.001, 0], [NAN, 0], [0, 3.001]])
        found = run_graph(
            lambda p: numba_operators.check_points_in_box(p, np.array([0, -INF]), np.array([2, 3])),
            [points, points[:0]],
        )
        assert [one.tolist() for one in found] == [[True, True, False, False, False], []]

    @pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int32, np.uint8])
    def test_coordinates_are_clamped_per_column(self, dtype: type) -> None:
        points = [np.array([[0, 9], [7, 3], [4, 4]], dtype), np.zeros((0, 2), dtype)]
        dali_type = get_dali_type_for_numpy_type(dtype)
        found = run_graph(lambda p: numba_operators.crop_coordinates(p, [1, 2], [5, 8], dali_type), points)
        for one, p in zip(found, points, strict=True):
            assert one.dtype == dtype
            np.testing.assert_array_equal(one, np.clip(p, [1, 2], [5, 8]))

    def test_fractions_of_limits_are_cut_off_for_integers(self) -> None:
        points = [np.array([[0, 9]], np.int32)]
        (found,) = run_graph(lambda p: numba_operators.crop_coordinates(p, [1.5, 2], [5, 8.5], DT.INT32), points)
        assert found.tolist() == [[1, 8]]

    def test_a_minimum_above_its_maximum_is_refused(self) -> None:
        for function, more in [
            (numba_operators.check_points_in_box, ()),
            (numba_operators.crop_coordinates, (DT.FLOAT,)),
        ]:
            with pytest.raises(SettingError, match="must be at most that of `maximum_point`"):
                function(None, [1.0], [0.0], *more)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.uint8])
    @given(data=st.data())
    @FEW
    def test_centers_and_radii(self, dtype: type, data: st.DataObject) -> None:
        boxes = [b.astype(dtype) for b in ragged(data, 4, st.integers(0, 200))]
        centers = [data.draw(st_numpy.arrays(np.float32, (len(b), 2), elements=FLOATS)) for b in boxes]
        dali_type = get_dali_type_for_numpy_type(dtype)
        middles = run_graph(lambda b: numba_operators.get_center_from_bboxes(b, dali_type), boxes)
        radii = run_graph(lambda b: numba_operators.get_radii_from_bboxes(b, dali_type), boxes)
        off_middle = run_graph(
            lambda b, c: numba_operators.get_radii_from_bboxes(b, dali_type, 0.5, c), boxes, centers
        )
        for b, c, middle, r, other in zip(boxes, centers, middles, radii, off_middle, strict=True):
            corners = b.astype(np.float64).reshape(-1, 2, 2)
            expected = corners.mean(axis=1)
            assert middle.dtype == r.dtype == other.dtype == np.float32
            np.testing.assert_array_equal(middle, expected)
            np.testing.assert_allclose(r, nearest_side(corners, expected) * 0.8, rtol=1e-6)
            np.testing.assert_allclose(other, nearest_side(corners, c) * 0.5, rtol=1e-5, atol=1e-5)

    def test_radii_of_boxes_far_away_are_exact(self) -> None:
        boxes = np.array([[2**24 + 1, 0, 2**24 + 6, 9]], np.int32)
        (found,) = run_graph(lambda b: numba_operators.get_radii_from_bboxes(b, DT.INT32, 1.0), [boxes])
        assert found.tolist() == [2.5]

    def test_centers_of_another_number_than_boxes_are_an_error(self) -> None:
        with pytest.raises(RuntimeError, match="reshape"):
            run_graph(
                lambda b, c: numba_operators.get_radii_from_bboxes(b, centers=c),
                [f4(np.ones((3, 4)))],
                [f4([[1, 1]])],
            )


def nearest_side(corners: np.ndarray, centers: np.ndarray) -> np.ndarray:
    low, high = corners.min(axis=1), corners.max(axis=1)
    return np.maximum(np.minimum(centers - low, high - centers).min(axis=1), 0)


class TestMatricesOfVectors:
    @pytest.mark.parametrize("as_homog", [False, True])
    @given(vector=st_numpy.arrays(np.float32, 3, elements=st.floats(-4, 4, width=32)))
    @FEW
    def test_rotation_is_that_of_rodrigues(self, as_homog: bool, vector: np.ndarray) -> None:
        (found,) = run_graph(lambda v: numba_operators.get_rot_mat_from_rot_vector(v, as_homog), [vector])
        expected = np.eye(4 if as_homog else 3)
        expected[:3, :3] = rodrigues(vector)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, atol=1e-6)

    def test_a_vector_shorter_than_eps_is_no_rotation(self) -> None:
        vectors = f4([[0, 0, 0], [5e-8, 0, 0], [0, 0.5, 0]])
        found = run_graph(lambda v: numba_operators.get_rot_mat_from_rot_vector(v, eps=0.4), [*vectors])
        assert [np.array_equal(one, np.eye(3)) for one in found] == [True, True, False]

    def test_translation_and_scaling(self) -> None:
        vectors = [f4([1, -2, 0.5]), f4([0, 3, -1])]
        moved = run_graph(numba_operators.get_translation_mat_from_vector, vectors)
        scaled = run_graph(numba_operators.get_scaling_mat_from_vector, vectors)
        homogeneous = run_graph(lambda v: numba_operators.get_scaling_mat_from_vector(v, True), vectors)
        for vector, m, s, h in zip(vectors, moved, scaled, homogeneous, strict=True):
            expected = np.eye(4)
            expected[:3, 3] = vector
            np.testing.assert_array_equal(m, expected)
            np.testing.assert_array_equal(s, np.diag(vector))
            np.testing.assert_array_equal(h, np.diag([*vector, 1]))


def rodrigues(vector: np.ndarray) -> np.ndarray:
    vector = vector.astype(np.float64)
    angle = np.linalg.norm(vector)
    if angle < 1e-7:
        return np.eye(3)
    x, y, z = vector / angle
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross


def applied(
    vectors: np.ndarray,
    matrix: np.ndarray,
    homogeneous: bool,
    is_transposed: bool,
    transpose_matrix: bool,
    invert: bool,
    from_right: bool,
) -> np.ndarray:
    columns = vectors.astype(np.float64)
    if vectors.ndim == 1:
        columns = columns[:, None]
    elif is_transposed:
        columns = columns.T
    if homogeneous:
        columns = np.concatenate([columns, np.ones((1, columns.shape[1]))])
    matrix = matrix.T.astype(np.float64) if transpose_matrix else matrix.astype(np.float64)
    matrix = np.linalg.inv(matrix) if invert else matrix
    product = columns @ matrix if from_right else matrix @ columns
    if homogeneous:
        product = product[:-1] / product[-1:]
    product = product.T if is_transposed and vectors.ndim == 2 else product
    return product.reshape(vectors.shape)


class TestApplyMatrix:
    FLAGS = tuple(itertools.product([False, True], repeat=4))

    @each_value(flags=FLAGS, enable_conditionals=[False, True])
    def test_with_all_flags(self, flags: tuple[bool, ...], enable_conditionals: bool) -> None:
        # One pipeline for all samples; invertible matrices, and vectors that stay away from infinity.
        homogeneous, is_transposed, *_ = flags
        random = np.random.default_rng(7)
        size = 4 if homogeneous else 3
        matrices = [f4(np.eye(size) + random.uniform(-0.2, 0.2, (size, size))) for _ in range(3)]
        vectors = [f4(random.uniform(-1, 1, (n, 3) if is_transposed else (3, n))) for n in (0, 1, 5)]
        found = run_graph(
            lambda v, m: numba_operators.apply_matrix(v, m, *flags, False),
            vectors,
            matrices,
            enable_conditionals=enable_conditionals,
        )
        for one, v, m in zip(found, vectors, matrices, strict=True):
            assert (one.dtype, one.shape) == (np.float32, v.shape)
            np.testing.assert_allclose(one, applied(v, m, *flags, False), atol=3e-6)

    @pytest.mark.parametrize("is_transposed", [False, True])
    @pytest.mark.parametrize("homogeneous", [False, True])
    def test_one_vector_alone_is_a_column(self, is_transposed: bool, homogeneous: bool) -> None:
        random = np.random.default_rng(8)
        size = 4 if homogeneous else 3
        matrix, vector = f4(random.uniform(0.5, 1, (size, size))), f4([1, -2, 3])
        flags = (homogeneous, is_transposed, False, False, False)
        (found,) = run_graph(lambda v, m: numba_operators.apply_matrix(v, m, *flags), [vector], [matrix])
        assert found.shape == (3,)
        np.testing.assert_allclose(found, applied(vector, matrix, *flags), rtol=1e-5)

    def test_from_the_right(self) -> None:
        random = np.random.default_rng(9)
        projection, pose = f4(random.uniform(-1, 1, (3, 4))), f4(np.eye(4) + random.uniform(-0.2, 0.2, (4, 4)))
        for transpose, invert in itertools.product([False, True], repeat=2):
            flags = (False, False, transpose, invert, True)
            (found,) = run_graph(
                lambda p, m, flags=flags: numba_operators.apply_matrix(p, m, *flags), [projection], [pose]
            )
            np.testing.assert_allclose(found, applied(projection, pose, *flags), atol=3e-6)

    def test_a_matrix_of_another_shape_where_the_rank_is_given(self) -> None:
        random = np.random.default_rng(10)
        projection, points = f4(random.uniform(0.5, 1, (3, 4))), f4(random.uniform(1, 2, (5, 3)))
        (found,) = run_graph(
            lambda v, m: numba_operators._apply_matrix_2d_input_ensured(v, m, True, True, False, False, False),
            [points],
            [projection],
        )
        expected = np.c_[points, np.ones(5)] @ projection.T.astype(np.float64)
        np.testing.assert_allclose(found, expected[:, :2] / expected[:, 2:], rtol=1e-5)

    @pytest.mark.parametrize("name", ["apply_matrix", "_apply_matrix_2d_input_ensured"])
    @pytest.mark.parametrize("shape", [(1, 5), (2, 3), (3, 2)])
    def test_extents_that_do_not_match_are_an_error(self, name: str, shape: tuple[int, int]) -> None:
        function = getattr(numba_operators, name)
        with pytest.raises(RuntimeError, match="matmul"):
            run_graph(
                lambda v, m: function(v, m, False, False, False, False, False),
                [np.zeros(shape, np.float32)],
                [np.eye(4, dtype=np.float32)],
            )

    def test_a_matrix_without_an_inverse_is_an_error(self) -> None:
        with pytest.raises(RuntimeError, match=r"Cannot invert the matrix \[\[0.0, 0.0\], \[0.0, 0.0\]\]"):
            run_graph(
                lambda v, m: numba_operators.apply_matrix(v, m, False, False, False, True, False),
                [np.ones((2, 1), np.float32)],
                [np.zeros((2, 2), np.float32)],
            )
