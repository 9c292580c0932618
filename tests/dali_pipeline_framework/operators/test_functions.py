"""Conversions, limits and transformations give the numbers of DALI's operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import nvidia.dali.fn as fn
import nvidia.dali.math as dali_math
import pytest
from nvidia.dali import types
from nvidia.dali.pipeline import pipeline_def

from accvlab.dali_pipeline_framework.errors import FieldValueError
from accvlab.dali_pipeline_framework.extension import functions
from accvlab.dali_pipeline_framework.sample_data.dtypes import NUMPY_TYPES

RANDOM = np.random.default_rng(5)


def of_dali(operator: Callable[..., Any], samples: list[tuple[Any, ...]]) -> list[np.ndarray]:
    """Results of an operator of DALI for a batch of samples of its arguments."""
    columns = [[np.asarray(value) for value in column] for column in zip(*samples, strict=True)]

    @pipeline_def(batch_size=len(samples), num_threads=1, device_id=None, prefetch_queue_depth=1)
    def graph() -> Any:
        return operator(*(fn.external_source(iter([column]), batch=True) for column in columns))

    pipeline = graph()
    pipeline.build()
    (output,) = pipeline.run()
    return [np.array(output.at(index)) for index in range(len(samples))]


def assert_same(
    function: Callable[..., Any], operator: Callable[..., Any], samples: list[tuple[Any, ...]], rtol: float = 0
) -> None:
    for sample, expected in zip(samples, of_dali(operator, samples), strict=True):
        with np.errstate(all="ignore"):
            result = np.asarray(function(*sample))
        assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(result, expected, rtol=rtol, atol=rtol)


def reals(*shape: int, scale: float = 1.0) -> np.ndarray:
    spread = RANDOM.choice([1, 30, 1000], size=shape)
    return (RANDOM.normal(size=shape) * spread * scale).astype(np.float32)


# fmt: off
UNUSUAL = np.array(
    [np.nan, np.inf, -np.inf, 0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 254.5, 255.5, 300, -3, 0.49999997, 1e10, -1e10,
     2147483520, 2147483648, 3e9, 8388609, 32767.5, -32768.5, 65535.5, 127.5, 1e30], np.float32
)
# fmt: on


def assert_cast_as_dali(values: np.ndarray) -> None:
    for dtype in NUMPY_TYPES:
        assert_same(
            lambda values, dtype=dtype: functions.cast(values, dtype),
            lambda values, dtype=dtype: fn.cast(values, dtype=dtype),
            [(values,)],
        )


class TestCast:
    @pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
    def test_reals(self, dtype: Any) -> None:
        with np.errstate(over="ignore"):
            values = UNUSUAL.astype(dtype)
        assert_cast_as_dali(values[~np.isnan(values)])

    def test_of_nan_there_is_no_whole_number(self) -> None:
        assert [
            int(functions.cast_array(np.float32(np.nan), each)) for each in (np.uint8, np.int32, np.uint64)
        ] == [0] * 3
        assert functions.cast_array(np.float32(np.nan), bool)

    @pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64])
    def test_whole_numbers(self, dtype: Any) -> None:
        info = np.iinfo(dtype)
        several = (0, 5, -5, 300, -300, 2**31, -(2**40))
        values = [info.min, info.max, *(number for number in several if info.min <= number <= info.max)]
        assert_cast_as_dali(np.array(values, dtype))

    def test_a_single_number(self) -> None:
        assert functions.cast(np.float32(2.5), types.DALIDataType.INT32) == 3


class TestNumbers:
    PAIRS = np.array(
        [(np.nan, 0), (0, -0.0), (-0.0, 0), (1, np.nan), (np.nan, np.nan), (2, 3), (3, 2), (np.inf, 1)], np.float32
    ).T

    def test_of_two(self) -> None:
        pair = [tuple(map(np.ascontiguousarray, self.PAIRS))]
        assert_same(functions.minimum, dali_math.min, pair)
        assert_same(functions.maximum, dali_math.max, pair)

    def test_clamp(self) -> None:
        values = np.array([np.nan, 1, 1, 5, -1, 0.5], np.float32)
        low = np.array([0, np.nan, 0, 0, 0, 0], np.float32)
        high = np.array([1, 1, np.nan, 3, 3, 3], np.float32)
        assert_same(functions.clamp, dali_math.clamp, [(values, low, high)])

    def test_a_rule_that_is_broken_is_named(self) -> None:
        with pytest.raises(FieldValueError, match=r"^Four rows, please\. "):
            functions.failing_with("four rows, please", np.reshape, np.zeros(6), (4, -1))


class TestTransforms:
    SAMPLES = tuple((reals(2, 3), reals(2, 3), reals(2), reals(2)) for _ in range(300))

    def test_combination(self) -> None:
        assert_same(
            lambda a, b, s, c: functions.combined(a, b, a),
            lambda a, b, s, c: fn.transforms.combine(a, b, a),
            [*self.SAMPLES],
        )

    def test_of_parameters(self) -> None:
        few_degrees, samples = np.float32(0.02), [*self.SAMPLES]
        dali = fn.transforms
        assert_same(
            lambda a, b, s, c: functions.translation(s), lambda a, b, s, c: dali.translation(offset=s), samples
        )
        assert_same(lambda a, b, s, c: functions.scaling(s), lambda a, b, s, c: dali.scale(scale=s), samples)
        for function, operator in (
            (lambda s, c: functions.scaling(s, c), lambda s, c: dali.scale(scale=s, center=c)),
            (lambda s, c: functions.rotation(s[0], c), lambda s, c: dali.rotation(angle=s[0], center=c)),
            (
                lambda s, c: functions.shear(s * few_degrees, c),
                lambda s, c: dali.shear(angles=s * few_degrees, center=c),
            ),
        ):
            assert_same(function, operator, [(s, c) for _, _, s, c in samples], rtol=2e-4)

    @pytest.mark.parametrize("shapes", [((2, 3), (6, 2)), ((4, 5), (6, 4))])
    def test_points(self, shapes: tuple[tuple[int, int], tuple[int, int]]) -> None:
        assert_same(
            lambda matrix, points: functions.coord_transform(points, matrix),
            lambda matrix, points: fn.coord_transform(points, MT=matrix),
            [tuple(reals(*shape) for shape in shapes) for _ in range(100)],
        )

    def test_points_that_do_not_fit(self) -> None:
        with pytest.raises(ValueError, match=r"points of shape \(4, 3\), and a matrix of 3 columns"):
            functions.coord_transform(reals(4, 3), reals(2, 3))
