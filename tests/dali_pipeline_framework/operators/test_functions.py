"""Functions of nodes and of arrays give the same numbers, bit by bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import nvidia.dali.fn as fn
import pytest
from nvidia.dali import types
from nvidia.dali.pipeline import pipeline_def

from accvlab.dali_pipeline_framework.errors import FieldValueError
from accvlab.dali_pipeline_framework.extension import functions
from accvlab.dali_pipeline_framework.sample_data.dtypes import NUMPY_TYPES

RANDOM = np.random.default_rng(5)


def in_graph(function: Callable[..., Any], samples: list[tuple[Any, ...]]) -> list[list[np.ndarray]]:
    """Results of a function on nodes, for a batch of samples of its arguments."""
    columns = [[np.asarray(value) for value in column] for column in zip(*samples, strict=True)]

    @pipeline_def(batch_size=len(samples), num_threads=1, device_id=None, prefetch_queue_depth=1)
    def graph() -> Any:
        results = function(*(fn.external_source(iter([column]), batch=True) for column in columns))
        return results if isinstance(results, tuple) else (results,)

    pipeline = graph()
    pipeline.build()
    outputs = pipeline.run()
    return [[np.array(output.at(index)) for output in outputs] for index in range(len(samples))]


def assert_same(function: Callable[..., Any], samples: list[tuple[Any, ...]]) -> None:
    for sample, all_expected in zip(samples, in_graph(function, samples), strict=True):
        with np.errstate(all="ignore"):
            results = function(*sample)
        for result, expected in zip(
            results if isinstance(results, tuple) else [results], all_expected, strict=True
        ):
            result = np.asarray(result)
            assert result.dtype == expected.dtype
            assert result.shape == expected.shape
            if not np.array_equal(result, expected, equal_nan=result.dtype.kind == "f"):
                raise AssertionError(f"{sample}\n{result}\n{expected}")


def reals(*shape: int, scale: float = 1.0) -> np.ndarray:
    spread = RANDOM.choice([1, 30, 1000], size=shape)
    return (RANDOM.normal(size=shape) * spread * scale).astype(np.float32)


# fmt: off
UNUSUAL = np.array(
    [np.nan, np.inf, -np.inf, 0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 254.5, 255.5, 300, -3, 0.49999997, 1e10, -1e10,
     2147483520, 2147483648, 3e9, 8388609, 32767.5, -32768.5, 65535.5, 127.5, 1e30], np.float32
)
# fmt: on


def of_all_types(values: Any) -> tuple[Any, ...]:
    return tuple(functions.cast(values, dtype) for dtype in NUMPY_TYPES)


class TestCast:
    @pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
    def test_reals(self, dtype: Any) -> None:
        with np.errstate(over="ignore"):
            values = UNUSUAL.astype(dtype)
        assert_same(of_all_types, [(values,)])

    @pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64])
    def test_whole_numbers(self, dtype: Any) -> None:
        info = np.iinfo(dtype)
        several = (0, 5, -5, 300, -300, 2**31, -(2**40))
        values = [info.min, info.max, *(number for number in several if info.min <= number <= info.max)]
        assert_same(of_all_types, [(np.array(values, dtype),)])

    def test_a_single_number(self) -> None:
        assert_same(lambda value: functions.cast(value, types.DALIDataType.INT32), [(np.float32(2.5),)])


class TestNumbers:
    PAIRS = np.array(
        [(np.nan, 0), (0, -0.0), (-0.0, 0), (1, np.nan), (np.nan, np.nan), (2, 3), (3, 2), (np.inf, 1)], np.float32
    ).T

    def test_of_two(self) -> None:
        assert_same(functions.minimum, [tuple(map(np.ascontiguousarray, self.PAIRS))])
        assert_same(functions.maximum, [tuple(map(np.ascontiguousarray, self.PAIRS))])

    def test_clamp(self) -> None:
        values = np.array([np.nan, 1, 1, 5, -1, 0.5], np.float32)
        low = np.array([0, np.nan, 0, 0, 0, 0], np.float32)
        high = np.array([1, 1, np.nan, 3, 3, 3], np.float32)
        assert_same(functions.clamp, [(values, low, high)])

    @pytest.mark.parametrize("name", ["floor", "ceil", "sqrt", "sin", "cos", "exp"])
    def test_of_one(self, name: str) -> None:
        assert_same(getattr(functions, name), [(reals(200, scale=0.01),)])

    @pytest.mark.parametrize("name", ["min", "max", "sum"])
    def test_reductions(self, name: str) -> None:
        function = getattr(functions.reductions, name)
        samples = [(reals(2, 3),) for _ in range(20)]
        assert_same(function, samples)
        assert_same(lambda values: function(values, axes=[0]), samples)
        assert_same(lambda values: function(values, axes=[-1], keep_dims=True), samples)
        assert_same(lambda values: function(values, axes=[0]), [(np.array([[3, 5], [2, 9]], np.int32),)])

    def test_least_and_greatest_of_unusual_numbers(self) -> None:
        assert_same(
            functions.reductions.min,
            [(UNUSUAL,), (np.full(2, np.nan, np.float32),), (np.full(2, np.inf, np.float32),)],
        )
        assert_same(
            functions.reductions.max,
            [(UNUSUAL,), (np.full(2, np.nan, np.float32),), (np.full(2, np.inf, np.float32),)],
        )


class TestShapes:
    VALUES = RANDOM.integers(0, 255, (4, 5, 3)).astype(np.uint8)

    def test_of_shapes(self) -> None:
        values = self.VALUES
        assert_same(functions.shape_of, [(values,)])
        assert_same(lambda one: functions.reshape(one, [-1, 3]), [(values,)])
        assert_same(functions.reshape, [(values, np.array([3, 20]))])
        assert_same(lambda one: functions.expand_dims(one, [1]), [(values,)])
        assert_same(lambda one: functions.transpose(one, [2, 0, 1]), [(values,)])
        assert_same(lambda one: functions.stack(one, one, axis=1), [(values,)])
        assert_same(lambda one: functions.stack(one, one), [(np.float32(2),)])
        assert_same(lambda one: functions.cat(one, one, axis=-1), [(values,)])

    def test_slices(self) -> None:
        assert_same(lambda one: functions.slice(one, start=[1], shape=[2], axes=[0]), [(self.VALUES,)])
        assert_same(lambda one: functions.slice(one, start=[1, 0], end=[4, 2], axes=[0, 2]), [(self.VALUES,)])
        trimmed = {"start": [2], "shape": [2], "axes": [-1], "out_of_bounds_policy": "trim_to_shape"}
        assert_same(lambda one: functions.slice(one, **trimmed), [(self.VALUES,)])
        padded = {"axes": [0, 1], "out_of_bounds_policy": "pad", "fill_values": [7.0]}
        starts = [np.array(start, np.int32) for start in ((-2, 3), (0, 0), (9, 0), (2, -9))]
        assert_same(
            lambda one, start: functions.slice(one, start=start, shape=[3, 6], **padded),
            [(self.VALUES, start) for start in starts],
        )

    def test_a_slice_beyond_the_end_fails(self) -> None:
        with pytest.raises(FieldValueError, match=r"^Four rows, please\. "):
            functions.failing_with(
                "four rows, please", functions.slice, self.VALUES, start=[1], shape=[4], axes=[0]
            )


class TestTransforms:
    SAMPLES = tuple((reals(2, 3), reals(2, 3), reals(2), reals(2)) for _ in range(300))

    def test_combine(self) -> None:
        assert_same(lambda a, b, s, c: functions.transforms.combine(a, b, a), [*self.SAMPLES])

    @pytest.mark.parametrize("has_matrix", [False, True])
    @pytest.mark.parametrize("has_center", [False, True])
    def test_of_parameters(self, has_matrix: bool, has_center: bool) -> None:
        transforms = functions.transforms

        def arguments(matrix: Any, center: Any) -> tuple[Any, Any]:
            return (matrix,) * has_matrix, {"center": center} if has_center else {}

        def scaled(a: Any, b: Any, s: Any, c: Any) -> Any:
            before, about = arguments(a, c)
            return transforms.scale(*before, scale=s, **about)

        def rotated(a: Any, b: Any, s: Any, c: Any) -> Any:
            before, about = arguments(a, c)
            return transforms.rotation(*before, angle=s[0], **about)

        def sheared(a: Any, b: Any, s: Any, c: Any) -> Any:
            before, about = arguments(a, c)
            return transforms.shear(*before, angles=s * np.float32(0.02), **about)

        for function in (scaled, rotated, sheared):
            assert_same(function, [*self.SAMPLES])

    def test_translation(self) -> None:
        assert_same(lambda a, b, s, c: functions.transforms.translation(a, offset=s), [*self.SAMPLES])
        assert_same(lambda a, b, s, c: functions.transforms.translation(offset=s), [*self.SAMPLES])

    def test_points(self) -> None:
        assert_same(
            lambda a, p: functions.coord_transform(p, MT=a), [(reals(2, 3), reals(6, 2)) for _ in range(100)]
        )
        assert_same(
            lambda a, p: functions.coord_transform(p, MT=a), [(reals(4, 5), reals(6, 4)) for _ in range(100)]
        )

    def test_points_that_do_not_fit(self) -> None:
        with pytest.raises(ValueError, match=r"points of shape \(4, 3\), and a matrix of 3 columns"):
            functions.coord_transform(reals(4, 3), reals(2, 3))
