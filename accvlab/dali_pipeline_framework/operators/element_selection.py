# SPDX-License-Identifier: Apache-2.0
"""Typed values of fields, and the elements of a tensor for which a mask is true; of DALI, or of NumPy.

DALI has no operator that compacts by a mask. Its augmentation of detection data drops boxes whose center is
outside of a crop, though, and returns which ones it kept. With the whole image as the crop nothing is left to
chance::

    mask      F  T  T  F  T
    boxes  0  1  0  0  1  0        an additional one is always kept: DALI wants at least one
    kept   0     2  3     5        positions; ``sequence_rearrange`` copies these slices
                                   of the data, which get an additional one in front, too
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
import nvidia.dali.fn as fn
from nvidia.dali import types
from nvidia.dali.data_node import DataNode

from ..errors import FieldKindError
from ..sample_data import LeafFormat, SampleDataGroup
from ..sample_data.dtypes import NUMPY_TYPES, get_dali_type_for_numpy_type, get_numpy_type_for_dali_type
from ..sample_data.graph_mode import do_not_convert, methods_not_converted
from ..sample_data.names import Name, Path, format_path, normalized_path
from . import functions
from .functions import Array, Value

NUMBER_TYPES: tuple[types.DALIDataType, ...] = tuple(
    dtype for dtype in NUMPY_TYPES if dtype != types.DALIDataType.BOOL
)


def leaf_at(data: SampleDataGroup, path: Path) -> LeafFormat:
    """Return the format of a data field.

    Raises:
        FieldKindError: It is a group.
    """
    leaf = data.format.at(normalized_path(path))
    if not isinstance(leaf, LeafFormat):
        raise FieldKindError(f"{format_path(normalized_path(path))}: is a group, a data field is needed")
    return leaf


def computable(values: Value, dtype: types.DALIDataType) -> Value:
    """Return float16 as float32, since DALI does not compute with it, and everything else as it is."""
    is_half = dtype == types.DALIDataType.FLOAT16
    return functions.cast(values, types.DALIDataType.FLOAT) if is_half else values


@do_not_convert
def reinterpret(values: Value, dtype: types.DALIDataType) -> Value:
    """Return the same bits as another type of the same size; a node, or an array."""
    if functions.is_node(values):
        return fn.reinterpret(values, dtype=dtype)
    return np.asarray(values).view(get_numpy_type_for_dali_type(dtype))[()]


@do_not_convert
def exact_constant_like(values: Array, like: Value) -> Value:
    """Return an array as it is, or as an exact constant on the device of a node."""
    return exact_constant(values, like.device) if functions.is_node(like) else values


@do_not_convert
def constant_like(values: Array, like: Value) -> Value:
    """Return an array as it is, or as a constant of its type on a node's device; by one operator if it can."""
    if functions.is_node(like) and values.dtype in (np.float32, np.int32):
        return types.Constant(values, device=like.device)
    return exact_constant_like(values, like)


@do_not_convert
def exact_constant(values: Array, device: str = "cpu") -> DataNode:
    """Make a constant of any number type; DALI's own constants are limited to what int32 and float32 can hold."""
    dtype = get_dali_type_for_numpy_type(values.dtype)
    as_bytes = np.frombuffer(values.tobytes(), np.uint8)
    node: DataNode = fn.reinterpret(types.Constant(as_bytes, device=device), dtype=dtype, shape=list(values.shape))
    return node


_ANY_SEED = 1  # nothing is drawn; but without a seed, DALI would give the next random operator another one


@methods_not_converted
@attrs.frozen
class ElementSelection:
    """Selection of elements along an axis, on the CPU, in a graph or of arrays.

    Attributes:
        positions: ``(1 + num_kept,)`` int32: 0, and for each kept element its index plus 1, ascending; of arrays
            ``(num_kept,)``, the index of each kept element.
    """

    positions: Value

    @classmethod
    def by_mask(cls, mask: Value) -> ElementSelection:
        """Make the selection for a mask ``(N,)`` bool; N may be 0, and all or none may be kept."""
        if not functions.is_node(mask):
            return cls(np.flatnonzero(mask))
        mask = mask.cpu() if mask.device == "gpu" else mask
        return cls(positions_of_zeros(column(1.0 - mask)))

    def of(self, data: Value, dtype: types.DALIDataType, axis: int = 0, num_axes: int = 1) -> Value:
        """Return the selected elements of ``data``, in order, without a layout.

        Args:
            data: A tensor with as many elements along the axis as the mask has, on the CPU or the GPU.
            dtype: Its type.
            axis: The axis to select along.
            num_axes: The number of axes; needed where ``axis`` is not the first one.
        """
        if not functions.is_node(data):
            return np.take(data, self.positions, axis)
        is_bool = dtype == types.DALIDataType.BOOL  # `fn.slice` refuses it
        data = fn.reinterpret(data, dtype=types.DALIDataType.UINT8) if is_bool else data
        order = [axis, *(other for other in range(num_axes) if other != axis)]
        data = fn.transpose(data, perm=order) if axis else data
        longer = with_row_before(data)
        # `sequence_rearrange` refuses elements without axes, and layouts other than the layouts of sequences.
        elements = fn.expand_dims(fn.reshape(longer, layout=""), axes=[1])
        kept = fn.sequence_rearrange(elements, new_order=self.positions)[1:, 0]
        kept = fn.transpose(kept, perm=[int(position) for position in np.argsort(order)]) if axis else kept
        return fn.reinterpret(kept, dtype=types.DALIDataType.BOOL) if is_bool else kept


@do_not_convert
def with_length_of(mask: Value, data: Value, axis: int = 0) -> Value:
    """Return the mask as it is; the graph fails if ``data`` has not as many elements along the axis.

    Raises:
        FieldValueError: Of arrays, it has not.
    """
    if functions.is_node(mask, data):
        return fn.reshape(mask, shape=data.shape()[axis : axis + 1])
    shape = np.shape(data)[axis : axis + 1]
    return functions.failing_with("a mask must have one value for each element", functions.reshape, mask, shape)


@do_not_convert
def positions_of_zeros(values: DataNode) -> DataNode:
    """Return 0, and the index plus 1 of each zero: of ``(N, 1)`` float32, zeros and ones, on the CPU."""
    # A row before; and three columns of zeros, which make boxes.
    boxes = fn.slice(
        values, start=[-1, 0], rel_end=[1.0, 4.0], axes=[0, 1], out_of_bounds_policy="pad", fill_values=[0.0]
    )
    return inner_boxes(boxes)


@do_not_convert
def inner_boxes(boxes: DataNode, layout: str = "xyWH") -> DataNode:
    """Return the indices of boxes ``(N, 4)`` at x = 0, int32; of others x is 1. All else is zero, and one is at 0.

    The corner (1, 0) of the image counts as outside, the corner (0, 0) as inside.
    """
    _, _, _, positions = fn.random_bbox_crop(  # type: ignore[misc]
        boxes,
        input_shape=[1, 1],
        crop_shape=[1, 1],
        bbox_layout=layout,
        allow_no_crop=False,
        thresholds=[0.0],
        num_attempts=1,
        total_num_attempts=1,
        output_bbox_indices=True,
        seed=_ANY_SEED,
    )
    return positions


@do_not_convert
def with_row_before(rows: DataNode, fill: float = 0.0) -> DataNode:
    """Return ``(1 + N, ...)`` of ``(N, ...)``: one row of a value, then the rows; not for bool."""
    return fn.slice(rows, start=[-1], rel_end=[1.0], axes=[0], out_of_bounds_policy="pad", fill_values=[fill])


@do_not_convert
def rows_at(rows: DataNode, positions: DataNode) -> DataNode:
    """Return the rows ``(M, ...)`` of ``(N, ...)`` at M positions, at least one; without a layout."""
    found: DataNode = fn.sequence_rearrange(rows, new_order=positions)
    return found


def column(values: DataNode) -> DataNode:
    """Return ``(N, 1, ...)`` of ``(N, ...)``."""
    return fn.expand_dims(values, axes=[1])


def row(values: DataNode) -> DataNode:
    """Return ``(1, N, ...)`` of ``(N, ...)``."""
    return fn.expand_dims(values, axes=[0])


@do_not_convert
def filter_fields(group: SampleDataGroup, names: Sequence[Name], mask: Value) -> None:
    """Keep the elements along the first axis for which a mask ``(N,)`` is true, of several fields of a group."""
    for name in names:
        mask = with_length_of(mask, group[name])
    selection = ElementSelection.by_mask(mask)
    for name in names:
        group[name] = selection.of(group[name], leaf_at(group, name).dtype)
