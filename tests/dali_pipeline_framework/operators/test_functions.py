"""Conversions, limits and transformations give the numbers of DALI's operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import nvidia.dali.fn as fn
import nvidia.dali.math as dali_math
import pytest
from support.graphs import run_graph

from accvlab.dali_pipeline_framework.errors import FieldValueError
from accvlab.dali_pipeline_framework.extension import functions
from accvlab.dali_pipeline_framework.sample_data.dtypes import NUMPY_TYPES

dali = fn.transforms
RANDOM = np.random.default_rng(5)


def assert_same(
    function: Callable[..., Any], operator: Callable[..., Any], samples: list[tuple[Any, ...]], rtol: float = 0
) -> None:
    """On each sample, a function gives the numbers of an operator of DALI."""
    columns = [[np.asarray(value) for value in column] for column in zip(*samples, strict=True)]
    for sample, expected in zip(samples, run_graph(operator, *columns), strict=True):
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


def ends_of(dtype: Any) -> np.ndarray:
    """The ends of a type, and what of some numbers it can hold."""
    info = np.iinfo(dtype)
    several = (0, 5, -5, 300, -300, 2**31, -(2**40))
    return np.array([info.min, info.max, *(each for each in several if info.min <= each <= info.max)], dtype)


with np.errstate(over="ignore"):
    CAST = [UNUSUAL[1:], UNUSUAL[1:].astype(np.float64), UNUSUAL[1:].astype(np.float16)]
CAST += [ends_of(dtype) for dtype in (np.uint8, np.int16, np.int32, np.uint32, np.int64, np.uint64)]


@pytest.mark.parametrize("values", CAST, ids=lambda values: str(values.dtype))
def test_values_are_cast(values: np.ndarray) -> None:
    for dtype in NUMPY_TYPES:
        assert_same(
            lambda values, dtype=dtype: functions.cast(values, dtype),
            lambda values, dtype=dtype: fn.cast(values, dtype=dtype),
            [(values,)],
        )


def test_nan_becomes_zero_and_true() -> None:  # DALI says nothing of it
    nan = np.float32(np.nan)
    assert [int(functions.cast_array(nan, dtype)) for dtype in (np.uint8, np.int32, np.uint64, bool)] == [
        0,
        0,
        0,
        1,
    ]


def test_limits_of_numbers() -> None:
    nan, inf = np.nan, np.inf
    pairs = [(nan, 0), (0, -0.0), (-0.0, 0), (1, nan), (nan, nan), (2, 3), (3, 2), (inf, 1)]
    pair = [tuple(np.ascontiguousarray(column) for column in np.array(pairs, np.float32).T)]
    assert_same(functions.minimum, dali_math.min, pair)
    assert_same(functions.maximum, dali_math.max, pair)
    values = np.array([nan, 1, 1, 5, -1, 0.5], np.float32)
    low, high = np.array([[0, nan, 0, 0, 0, 0], [1, 1, nan, 3, 3, 3]], np.float32)
    assert_same(functions.clamp, dali_math.clamp, [(values, low, high)])


def test_a_rule_that_is_broken_is_named() -> None:
    with pytest.raises(FieldValueError, match=r"^Four rows, please\. "):
        functions.failing_with("four rows, please", np.reshape, np.zeros(6), (4, -1))


FEW_DEGREES = np.float32(0.02)
TRANSFORMS: dict[str, tuple[Any, Any, float]] = {
    "translation": (lambda s, c: functions.translation(s), lambda s, c: dali.translation(offset=s), 0),
    "scaling": (lambda s, c: functions.scaling(s), lambda s, c: dali.scale(scale=s), 0),
    "scaling about a center": (functions.scaling, lambda s, c: dali.scale(scale=s, center=c), 2e-4),
    "rotation": (lambda s, c: functions.rotation(s[0], c), lambda s, c: dali.rotation(angle=s[0], center=c), 2e-4),
    "shear": (
        lambda s, c: functions.shear(s * FEW_DEGREES, c),
        lambda s, c: dali.shear(angles=s * FEW_DEGREES, center=c),
        2e-4,
    ),
}


@pytest.mark.parametrize(("function", "operator", "rtol"), TRANSFORMS.values(), ids=TRANSFORMS)
def test_matrices(function: Any, operator: Any, rtol: float) -> None:
    assert_same(function, operator, [(reals(2), reals(2)) for _ in range(300)], rtol)


def test_combined_matrices() -> None:
    samples = [(reals(2, 3), reals(2, 3)) for _ in range(300)]
    assert_same(lambda a, b: functions.combined(a, b, a), lambda a, b: dali.combine(a, b, a), samples)


@pytest.mark.parametrize("shapes", [((2, 3), (6, 2)), ((4, 5), (6, 4))])
def test_points(shapes: tuple[tuple[int, int], tuple[int, int]]) -> None:
    assert_same(
        lambda matrix, points: functions.coord_transform(points, matrix),
        lambda matrix, points: fn.coord_transform(points, MT=matrix),
        [tuple(reals(*shape) for shape in shapes) for _ in range(100)],
    )


def test_points_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match=r"points of shape \(4, 3\), and a matrix of 3 columns"):
        functions.coord_transform(reals(4, 3), reals(2, 3))
