"""Affine transformations of images in NumPy, float64, sample by sample: what the steps are compared with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import nvidia.dali.fn as fn
from hypothesis import strategies as st

from accvlab.dali_pipeline_framework.processing_steps import AffineTransformer as A

Draw = Callable[[float, float], float]
Border = A.ShiftToAlignWithOriginalImageBorder.Border


@contextmanager
def given_draws(shares: np.ndarray) -> Iterator[list[tuple[float, float]]]:
    """DALI's uniform numbers are those given, as shares of the range in [0, 1): ``(num_samples, num_draws)``.

    Gives the list of the ranges that were drawn from, in order.
    """
    ranges: list[tuple[float, float]] = []

    def uniform(*, range: Any) -> Any:  # the name of DALI's argument
        low, high = map(float, range)
        column = [np.float32(low + share * (high - low)) for share in shares[:, len(ranges)]]
        ranges.append((low, high))
        return fn.external_source(lambda: column, batch=True)

    with mock.patch.object(fn.random, "uniform", uniform):
        yield ranges


# --- random steps of the transformer ---------------------------------------------------------------------


def numbers(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high, width=16)


def ordered(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(values, values).map(sorted)


def ranges(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Least and greatest of one value, or only the least."""
    return ordered(values) | values.map(lambda least: [least, None])


def pair_ranges(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    both = st.tuples(ordered(values), ordered(values)).map(lambda axes: [*map(list, zip(*axes, strict=True))])
    return both | both.map(lambda limits: [limits[0], None])


def transformations(
    probs: Any, offset_px: float, scaling: tuple[float, float], turning_deg: tuple[float, float] | None = None
) -> st.SearchStrategy[Any]:
    """Up to three transformations along the axes, and up to two more that rotate or shear by up to some angles."""
    scalings, signs = pair_ranges(numbers(*scaling)), st.sampled_from([(1, 1), (-1, 1), (1, -1), (-1, -1)])
    along_axes = st.one_of(
        st.builds(lambda prob, two: A.Translation(prob, *two), probs, pair_ranges(numbers(-offset_px, offset_px))),
        st.builds(lambda prob, two: A.UniformScaling(prob, *two), probs, ranges(numbers(*scaling))),
        st.builds(lambda prob, two: A.NonUniformScaling(prob, *two), probs, scalings),
        st.builds(lambda p, two, each: A.NonUniformScaling(p, np.multiply(two[0], each)), probs, scalings, signs),
        st.builds(A.ShiftInsideOriginalImage, probs, st.booleans(), st.booleans()),
        st.builds(A.ShiftToAlignWithOriginalImageBorder, probs, st.sampled_from(Border)),
    )
    chains = with_selections(probs, along_axes, 3)
    if turning_deg is None:
        return chains
    rotations, shearings = (numbers(-angle, angle) for angle in turning_deg)
    turning = st.one_of(
        st.builds(lambda prob, two: A.Rotation(prob, *two), probs, ranges(rotations)),
        st.builds(lambda prob, two: A.Shearing(prob, *two), probs, pair_ranges(shearings)),
    )
    return st.tuples(chains, with_selections(probs, turning, 2)).map(lambda two: two[0] + two[1])


def with_selections(probs: Any, steps: st.SearchStrategy[Any], max_size: int) -> st.SearchStrategy[Any]:
    def selections(steps: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        options = st.lists(st.lists(steps, max_size=2), min_size=1, max_size=3)
        shares = {1: [1.0], 2: [0.25, 0.75], 3: [0.5, 0.0, 0.5]}
        return st.builds(lambda prob, several: A.Selection(prob, shares[len(several)], several), probs, options)

    inner = selections(steps)
    return st.lists(steps | inner | selections(steps | inner), max_size=max_size)


resizings = st.sampled_from(
    [(A.ResizingMode.STRETCH, None)]
    + [(mode, anchor) for mode in (A.ResizingMode.PAD, A.ResizingMode.CROP) for anchor in A.ResizingAnchor]
)


# --- their matrices --------------------------------------------------------------------------------------


def shares_as_draws(shares: Sequence[float]) -> Draw:
    left = iter(shares)
    return lambda low, high: low + float(next(left)) * (high - low)


def matrix_of(
    steps: Sequence[Any],
    hw: Sequence[float],
    output_hw: Sequence[int],
    mode: A.ResizingMode,
    anchor: A.ResizingAnchor | None,
    draw: Draw,
) -> np.ndarray:
    """The transformation from the input to the output, ``(3, 3)``."""
    return resize_matrix(hw, output_hw, mode, anchor) @ chain(steps, np.eye(3), hw, draw, True)


def resize_matrix(hw: Any, output_hw: Any, mode: A.ResizingMode, anchor: A.ResizingAnchor | None) -> np.ndarray:
    height, width = hw
    out_height, out_width = output_hw
    matrix = np.diag([out_width / width, out_height / height, 1.0])
    if mode != A.ResizingMode.STRETCH:
        factor = (min if mode == A.ResizingMode.PAD else max)(matrix[0, 0], matrix[1, 1])
        share = [0.5, 0, 1][anchor.value]
        matrix = np.diag([factor, factor, 1.0])
        matrix[:2, 2] = (out_width - factor * width) * share, (out_height - factor * height) * share
    return matrix


def chain(steps: Sequence[Any], matrix: np.ndarray, hw: Any, draw: Draw, is_chosen: bool) -> np.ndarray:
    for step in steps:
        is_applied = is_chosen & (draw(0, 1) < step.prob)
        if step.prob > 0:
            after = one_step(step, matrix, hw, draw, is_applied)
            matrix = after if is_applied else matrix
    return matrix


def one_step(step: Any, before: np.ndarray, hw: Any, draw: Draw, is_applied: bool) -> np.ndarray:
    height, width = hw
    matrix = np.eye(3)
    size = np.array([width, height], float)
    corners = before[:2, :2] @ np.array([[0, width], [0, height]], float) + before[:2, 2:]
    low, high = corners.min(1), corners.max(1)
    if isinstance(step, A.Selection):
        drawn, total, options_after, is_found = draw(0, 1), 0.0, before, False
        for prob, option in zip(step.option_probs, step.options, strict=True):
            total += prob
            is_option = not is_found and drawn <= total
            is_found |= is_option
            after = chain(option, before, hw, draw, is_applied and is_option)
            options_after = after if is_option else options_after
        return options_after
    if isinstance(step, A.Translation):
        matrix[:2, 2] = drawn_pair(step.min_xy, step.max_xy, draw)
        return matrix @ before
    if isinstance(step, A.ShiftInsideOriginalImage):
        for axis, is_shifted in enumerate((step.shift_x, step.shift_y)):
            if is_shifted:
                share = draw(0, 1)
                if high[axis] - low[axis] >= size[axis] - 0.01:
                    least, most = size[axis] - high[axis], -low[axis]
                    matrix[axis, 2] = least + share * max(most - least, 0)
        return matrix @ before
    if isinstance(step, A.ShiftToAlignWithOriginalImageBorder):
        axis = int(step.border in (Border.TOP, Border.BOTTOM))
        is_first = step.border in (Border.TOP, Border.LEFT)
        matrix[axis, 2] = -low[axis] if is_first else size[axis] - high[axis]
        return matrix @ before
    matrix[:2, :2] = linear_part(step, draw)
    matrix[:2, 2] = (np.eye(2) - matrix[:2, :2]) @ (size / 2)
    return matrix @ before


def linear_part(step: Any, draw: Draw) -> np.ndarray:
    if isinstance(step, A.Rotation):
        angle = np.deg2rad(drawn(step.min_rot, step.max_rot, draw))
        return np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    if isinstance(step, A.UniformScaling):
        return np.eye(2) * drawn(step.min_scaling, step.max_scaling, draw)
    if isinstance(step, A.NonUniformScaling):
        return np.diag(drawn_pair(step.min_scaling_xy, step.max_scaling_xy, draw))
    angles = np.deg2rad(drawn_pair(step.min_shearing_xy, step.max_shearing_xy, draw))
    return np.array([[1, np.tan(angles[0])], [np.tan(angles[1]), 1]])


def drawn(low: float, high: float | None, draw: Draw) -> float:
    return low if high is None or np.float32(low) == np.float32(high) else draw(low, high)


def drawn_pair(low: Any, high: Any, draw: Draw) -> list[float]:
    return [drawn(least, most, draw) for least, most in zip(low, high or low, strict=True)]


# --- applied --------------------------------------------------------------------------------------------


def points_by(matrix: np.ndarray, points: np.ndarray) -> np.ndarray:
    """``(..., 2 * k)`` points, transformed."""
    pairs = points.reshape(-1, 2).astype(float)
    return (pairs @ matrix[:2, :2].T + matrix[:2, 2]).reshape(points.shape)


def boxes_by(matrix: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """``(N, 4)`` boxes: the bounds of the four transformed corners."""
    corners = points_by(matrix, boxes[:, [0, 1, 2, 1, 2, 3, 0, 3]].astype(float)).reshape(-1, 4, 2)
    return np.concatenate([corners.min(1), corners.max(1)], 1)


def image_by(matrix: np.ndarray, image: np.ndarray, output_hw: Any, fill_value: float = 0) -> tuple[Any, Any]:
    """The bilinearly sampled image, ``(h, w, C)``, and where it is free of the edge of the image, ``(h, w)``.

    Free is what is interpolated between pixels of the image only, or shows nothing of it and half a pixel around.
    """
    inverse = np.linalg.inv(matrix)
    y, x = np.mgrid[: output_hw[0], : output_hw[1]] + 0.5
    at_x = inverse[0, 0] * x + inverse[0, 1] * y + inverse[0, 2] - 0.5
    at_y = inverse[1, 0] * x + inverse[1, 1] * y + inverse[1, 2] - 0.5
    height, width = image.shape[:2]
    left, top = np.floor(at_x).astype(int), np.floor(at_y).astype(int)
    share_x, share_y = (at_x - left)[..., None], (at_y - top)[..., None]

    def pixel(row: np.ndarray, column: np.ndarray) -> np.ndarray:
        inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        values = image[row.clip(0, height - 1), column.clip(0, width - 1)].astype(float)
        return np.where(inside[..., None], values, fill_value)

    upper = pixel(top, left) * (1 - share_x) + pixel(top, left + 1) * share_x
    lower = pixel(top + 1, left) * (1 - share_x) + pixel(top + 1, left + 1) * share_x
    slack = 1e-3
    is_inner = (at_x >= slack) & (at_x <= width - 1 - slack) & (at_y >= slack) & (at_y <= height - 1 - slack)
    is_outer = (at_x < -1 - slack) | (at_x > width + slack) | (at_y < -1 - slack) | (at_y > height + slack)
    return upper * (1 - share_y) + lower * share_y, is_inner | is_outer
