# SPDX-License-Identifier: Apache-2.0
"""Functions on arrays, to be wrapped in ``fn.python_function``.

Arrays are those of NumPy. In ``fn.python_function(..., device="gpu")`` they are those of CuPy, and so are the
results; DALI has imported it then.
"""

from __future__ import annotations

import sys
from typing import Any, TypeAlias

import numpy as np

from ...errors import FieldValueError
from ...sample_data.conversion import is_instance_of_loaded

_Array: TypeAlias = np.ndarray[Any, Any]


def apply_transform_to_points(points: _Array, transform: _Array) -> _Array:
    """Apply an affine transformation to points.

    Args:
        points: ``(N, 2k)`` of any number type: x and y of k points in each row, e.g. the corners of a box.
        transform: ``(2, 3)``.

    Returns:
        Shape and type of ``points``; fractions are cut off in integers. Zeros where there are no elements.

    Raises:
        FieldValueError: The arrays have other shapes.

    Example:
        >>> apply_transform_to_points(np.array([[1.0, 2.0, 3.0, 4.0]]), np.array([[2, 0, 10], [0, 2, 0]])).tolist()
        [[12.0, 4.0, 16.0, 8.0]]
    """
    library = _library_of(points, transform)
    if transform.shape != (2, 3):
        raise FieldValueError(f"`transform` must be (2, 3), got {transform.shape}")
    if points.size == 0:
        result: _Array = library.zeros_like(points)
        return result
    if points.ndim != 2 or points.shape[1] % 2:
        raise FieldValueError(
            f"`points` must have x and y of one or more points in each row, (N, 2k), got {points.shape}"
        )
    pairs = points.reshape(len(points), -1, 2).astype(_float_type(points, transform))
    with np.errstate(invalid="ignore"):  # points that are not finite
        moved = pairs @ transform[:, :2].T + transform[:, 2]
    result = moved.reshape(points.shape).astype(points.dtype)
    return result


def add_post_transform_to_projection_matrix(proj_mat: _Array, transform: _Array) -> _Array:
    """Get the projection matrix for an image that was transformed.

    Args:
        proj_mat: ``(3, k)``, e.g. intrinsics (3, 3), or (3, 4).
        transform: Of the image, ``(2, 3)``, or ``(3, 3)`` with a last row for homogeneous coordinates.

    Returns:
        ``(3, k)``, the product of the ``(3, 3)`` transformation and the matrix, of the more precise of both types.

    Raises:
        FieldValueError: The arrays have other shapes.
    """
    library = _library_of(proj_mat, transform)
    if transform.shape not in ((2, 3), (3, 3)):
        raise FieldValueError(f"`transform` must be (2, 3) or (3, 3), got {transform.shape}")
    if proj_mat.ndim != 2 or len(proj_mat) != 3:
        raise FieldValueError(f"`proj_mat` must be (3, k), got {proj_mat.shape}")
    dtype = _float_type(proj_mat, transform)
    rows = [transform.astype(dtype)]
    if len(transform) == 2:
        rows.append(library.asarray([[0, 0, 1]], dtype=dtype))
    product: _Array = library.concatenate(rows) @ proj_mat.astype(dtype)
    return product


def apply_clipping_and_get_with_clipping_info(
    rects: _Array, centers: _Array, scaling_trafo: _Array, image_hw: _Array
) -> tuple[_Array, _Array, _Array, _Array]:
    """Transform boxes and centers into an image, and clip them to its pixels.

    Args:
        rects: ``(N, 4)`` of a floating-point type, two opposite corners ``x, y, x, y``.
        centers: ``(N, 2)``, ``x, y``.
        scaling_trafo: ``(2, 3)``, a transformation to pixels of the image, without rotation and shear.
        image_hw: ``(2,)``, height and width of the image.

    Returns:
        Clipped boxes ``(N, 4)`` and centers ``(N, 2)``, both within the coordinates of pixels,
        ``[0, width - 1]`` and ``[0, height - 1]``; height and width of the clipped boxes, ``(N, 2)``; and the
        fraction of the area of each box that is inside of the image, ``[0, width]`` and ``[0, height]``, ``(N,)``:
        NaN for boxes without an area. In this order, and in the types of ``rects`` and ``centers``.

    Raises:
        FieldValueError: The arrays have other shapes.
    """
    library = _library_of(rects, centers)
    _check_shape(rects, "rects", (None, 4))
    _check_shape(centers, "centers", (len(rects), 2))
    boxes = apply_transform_to_points(rects, scaling_trafo)
    size_xy = library.asarray(image_hw).reshape(2)[::-1]
    size, size_of_centers = size_xy.astype(boxes.dtype), size_xy.astype(centers.dtype)
    clipped = library.clip(boxes.reshape(-1, 2, 2), 0, size - 1)
    clipped_centers = library.clip(apply_transform_to_points(centers, scaling_trafo), 0, size_of_centers - 1)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):  # boxes that are not finite, or empty
        sides_xy = abs(clipped[:, 1] - clipped[:, 0])
        inside = library.clip(boxes.reshape(-1, 2, 2), 0, size)
        area = abs(boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
        fraction = abs(inside[:, 1] - inside[:, 0]).prod(axis=1) / area
    return clipped.reshape(-1, 4), clipped_centers, sides_xy[:, ::-1], fraction


def get_is_active(
    hw: _Array,
    classes: _Array | None,
    fraction_areas: _Array,
    min_object_size: _Array | None,
    per_class_min_object_sizes: _Array | None,
    num_classes: int | None,
    min_fraction_area_thresh: float,
) -> _Array:
    """Tell which objects a detector learns: those of a known class that are large enough and inside of the image.

    Args:
        hw: ``(N, 2)``, height and width of the clipped boxes.
        classes: ``(N,)`` integers, or None. Objects of other classes than ``0 ... num_classes - 1`` are inactive.
        fraction_areas: ``(N,)``, the fraction of the area of each box inside of the image; NaN is inactive.
        min_object_size: ``(2,)``, least height and width of an active object, or None.
        per_class_min_object_sizes: ``(num_classes, 2)``, the same for each class, or None.
        num_classes: How many classes there are; needed with ``classes``.
        min_fraction_area_thresh: Least fraction.

    Returns:
        ``(N,)`` bool.

    Raises:
        FieldValueError: The arrays have other shapes, or classes are given but not counted, or needed but missing.
    """
    library = _library_of(hw, fraction_areas)
    _check_shape(hw, "hw", (None, 2))
    _check_shape(fraction_areas, "fraction_areas", (len(hw),))
    is_active: _Array = fraction_areas >= min_fraction_area_thresh
    if min_object_size is not None:
        least_hw = library.asarray(min_object_size)
        _check_shape(least_hw, "min_object_size", (2,))
        is_active &= (hw >= least_hw).all(axis=1)
    if classes is None:
        if per_class_min_object_sizes is not None:
            raise FieldValueError("`per_class_min_object_sizes` needs `classes`")
        return is_active
    if num_classes is None:
        raise FieldValueError("`classes` needs `num_classes`")
    _check_shape(classes, "classes", (len(hw),))
    is_active &= (classes >= 0) & (classes < num_classes)
    if per_class_min_object_sizes is not None:
        table = library.asarray(per_class_min_object_sizes)
        _check_shape(table, "per_class_min_object_sizes", (num_classes, 2))
        is_active &= (hw >= table[library.clip(classes, 0, num_classes - 1)]).all(axis=1)
    return is_active


def pad_to_common_size(*inputs: _Array, fill_value: float) -> tuple[_Array, ...]:
    """Pad arrays at the end of each axis to the greatest extent among them.

    Args:
        *inputs: NumPy arrays with the same number of axes.
        fill_value: What to pad with; converted to the type of each array.

    Returns:
        Arrays of one shape, each of the type that it had.

    Raises:
        FieldValueError: The arrays have different numbers of axes.

    Example:
        >>> pad_to_common_size(np.array([[1, 2]]), np.array([[3], [4]]), fill_value=0)[1].tolist()
        [[3, 0], [4, 0]]
    """
    if len({array.ndim for array in inputs}) > 1:
        shapes = ", ".join(str(array.shape) for array in inputs)
        raise FieldValueError(f"arrays to pad must have the same number of axes, got {shapes}")
    if not inputs:
        return ()
    shape = np.max([array.shape for array in inputs], axis=0).astype(int)
    padded = []
    for array in inputs:
        result = np.full(tuple(shape), fill_value).astype(array.dtype)
        result[tuple(slice(extent) for extent in array.shape)] = array
        padded.append(result)
    return tuple(padded)


def _library_of(*arrays: object) -> Any:
    """CuPy for its arrays, otherwise NumPy."""
    is_cupy = any(is_instance_of_loaded(array, "cupy", "ndarray") for array in arrays)
    return sys.modules["cupy"] if is_cupy else np


def _float_type(*arrays: _Array) -> np.dtype[Any]:
    dtype = np.result_type(*(array.dtype for array in arrays))
    return dtype if dtype.kind == "f" else np.dtype(np.float64)


def _check_shape(array: _Array, argument: str, shape: tuple[int | None, ...]) -> None:
    if array.ndim != len(shape) or any(
        extent not in (None, found) for extent, found in zip(shape, array.shape, strict=True)
    ):
        expected = ", ".join("N" if extent is None else str(extent) for extent in shape)
        raise FieldValueError(f"`{argument}` must be of shape ({expected}), got {array.shape}")
