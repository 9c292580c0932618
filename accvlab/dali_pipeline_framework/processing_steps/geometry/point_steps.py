# SPDX-License-Identifier: Apache-2.0
"""Steps on points: range check and filter, cropping, padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from nvidia.dali import types

from ...checks import field_name, number, whole_number
from ...operators import functions
from ...operators.element_selection import filter_fields
from ...operators.field_types import NUMBER_TYPES, computable, exact_constant, leaf_at, reinterpret
from ...operators.point_limits import PointLimits
from ...sample_data import SampleDataGroup
from ...sample_data.dtypes import NUMPY_TYPES
from ...sample_data.graph_mode import do_not_convert
from ...sample_data.names import Name
from ..image_use import no_images
from ..named_fields import (
    FieldSearch,
    Names,
    as_names,
    check_fields,
    find_paths,
    optional_name,
    put_beside,
    required_names,
)
from ..pipeline_step_base import PipelineStepBase


class PointsPadder(PipelineStepBase):
    """Brings every field of a name, anywhere in the sample, to a fixed number of elements along the first axis.

    Input: ``(N, ...)`` of any number type or bool, with any N in each sample, also 0. Output: ``(num_points,
    ...)``: the first ``num_points`` elements; where there are fewer, the fill value follows. Optionally adds next
    to it a mask ``(num_points,)`` bool, on the CPU: true for elements of the input.

    The same shape in every batch, unlike `PaddingToUniform`. The field may be on the CPU or the GPU, its layout
    stays.

    Example:
        >>> sample = SampleDataGroup()
        >>> sample.add_data_field("points", types.DALIDataType.FLOAT)
        >>> step = PointsPadder("points", num_points=30000, mask_name="is_point")
        >>> step.check_input_data_format_and_set_output_data_format(sample).field_names_flat
        ('points', 'is_point')
    """

    treats_elements_alike = True

    def __init__(
        self, point_names: Names, *, num_points: int, mask_name: Name | None = None, fill_value: int | float = 0
    ) -> None:
        """Create the step.

        Args:
            point_names: Name or names of the fields.
            num_points: Number of elements to bring them to.
            mask_name: Name of the mask to add; None for none.
            fill_value: What follows; converted to float32, and then as DALI does to the type of the field.

        Raises:
            SettingError: The number is no positive integer, or the fill value is no number.
        """
        self._point_names = required_names(point_names, "point_names")
        self._num_points = whole_number(num_points, "num_points", at_least=1)
        self._mask_name = optional_name(mask_name, "mask_name")
        self._fill_value = number(fill_value, "fill_value", may_be_nan=True)

    declare_images = no_images

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        for path in find_paths(data, self._point_names):
            points = data.get_item_in_path(path)
            data.set_item_in_path(path, self._padded(points, leaf_at(data, path).dtype))
            if self._mask_name is not None:
                is_point = self._places(points) < functions.shape_of(points)[0]
                put_beside(data, path, self._mask_name, types.DALIDataType.BOOL, is_point)
        return data

    @do_not_convert
    def _places(self, points: Any) -> Any:
        places = np.arange(self._num_points)
        return exact_constant(places) if functions.is_node(points) else places

    def _padded(self, points: Any, dtype: types.DALIDataType) -> Any:
        is_bool = dtype == types.DALIDataType.BOOL  # `fn.slice` refuses it
        fill = float(bool(self._fill_value)) if is_bool else self._fill_value
        if not is_bool and not functions.is_node(points):
            fill = _as_processors_convert(fill, points.dtype)
        padded = functions.slice(
            reinterpret(points, types.DALIDataType.UINT8) if is_bool else points,
            start=[0],
            shape=[self._num_points],
            axes=[0],
            out_of_bounds_policy="pad",
            fill_values=[fill],
        )
        return reinterpret(padded, types.DALIDataType.BOOL) if is_bool else padded

    _process_arrays = _process

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        search = FieldSearch(data_empty, self, cannot="pad")
        for path in search.find(self._point_names, "points", list(NUMPY_TYPES), group_of="points"):
            if self._mask_name is not None:
                search.add_beside(path, [(self._mask_name, types.DALIDataType.BOOL, None)], "the mask")
        return search.result()


def _as_processors_convert(value: float, dtype: np.dtype[Any]) -> Any:
    """Convert float32 as C++ does on x86, which DALI leaves it to: truncated; what is beyond is not limited."""
    real = np.float32(value)
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return real.astype(dtype)
    if dtype == np.uint64 and real >= 2.0**63:
        return np.array(int(real) if real < 2.0**64 else 0, dtype)
    bits = 31 if dtype.itemsize < 4 or dtype == np.int32 else 63
    whole = int(real) if abs(real) < 2.0**bits else -(2**bits)
    return np.array(whole, np.int64).astype(dtype)


class PointCloudRangeFilter(PipelineStepBase):
    """Keeps the points of every point cloud of a name, anywhere in the sample, that lie in a box.

    Points: ``(N, C)`` of any number type, with any N in each sample, also 0. The first D columns are coordinates,
    in the frame and unit of the limits; the others (intensity, time, ...) go along. A point is kept if it lies in
    the box or on its border; NaN is outside (see `PointsInRangeCheck`). The fields named beside it, in the same
    group, have N elements along their first axis, and are filtered as well.

    The order stays, values are copied bit by bit; a layout is dropped. The fields may be on the CPU or
    the GPU.

    Example::

        PointCloudRangeFilter("points", point_range=([-51.2, -51.2, -5.0], [51.2, 51.2, 3.0]))
    """

    treats_elements_alike = True

    def __init__(
        self,
        point_names: Names,
        *,
        point_range: tuple[Sequence[float], Sequence[float]],
        further_names: Names | None = None,
    ) -> None:
        """Create the step.

        Args:
            point_names: Name or names of the point clouds.
            point_range: Least and greatest coordinates, two lists of D numbers; may be infinite.
            further_names: Name or names of what else is filtered, beside the points.

        Raises:
            SettingError: The range is not two lists of numbers of one length, or a number of the first is above
                that of the second.
        """
        self._point_names = required_names(point_names, "point_names")
        self._limits = PointLimits.checked_range(point_range, "point_range")
        self._further_names = as_names(further_names, "further_names")

    declare_images = no_images

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        num_axes = len(self._limits.minimum)
        for path in find_paths(data, self._point_names):
            coordinates = data.get_item_in_path(path)[:, 0:num_axes]
            mask = self._limits.contain(coordinates, leaf_at(data, path).dtype)
            filter_fields(data.get_parent_of_path(path), [path[-1], *self._further_names], mask)
        return data

    _process_arrays = _process

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        search = FieldSearch(data_empty, self, cannot="filter")
        for path in search.find(self._point_names, "points", NUMBER_TYPES, group_of="points"):
            check_fields(search, data_empty, path, self._further_names)
        return search.result()


class PointsInRangeCheck(PipelineStepBase):
    """Adds next to every field of points of a name, anywhere in the sample, which of them lie in a box.

    Input: ``(N, D)`` of any number type, on the CPU or the GPU, with any N in each sample, also 0. Added as the
    last field of the same group, on the same device: ``(N,)`` bool::

        is_inside[i] = all(minimum_point[j] <= points[i, j] <= maximum_point[j] for j in range(D))

    The limits belong to the box. NaN is outside, infinite limits are none. The limits are rounded to the type of
    the field; with integer points, limits with fractions are exact. Where D is not the number of limits, the graph
    fails and names the sample.

    Example:
        >>> sample = SampleDataGroup()
        >>> sample.add_data_field("centers", types.DALIDataType.FLOAT)
        >>> step = PointsInRangeCheck("centers", "is_inside", [-50, -50, -5], [50, 50, 3])
        >>> step.check_input_data_format_and_set_output_data_format(sample).field_names_flat
        ('centers', 'is_inside')
    """

    treats_elements_alike = True

    def __init__(
        self,
        points_fields_name: Name,
        is_inside_field_name: Name,
        minimum_point: Sequence[float],
        maximum_point: Sequence[float],
    ) -> None:
        """Create the step.

        Args:
            points_fields_name: Name of the fields with the points.
            is_inside_field_name: Name of the field to add.
            minimum_point: Least coordinate on each axis; ``-inf`` for no limit.
            maximum_point: Greatest coordinate on each axis; ``inf`` for no limit.

        Raises:
            SettingError: The limits are not two lists of numbers of one length, or a minimum is above its maximum.
        """
        self._points_fields_name = field_name(points_fields_name, "points_fields_name")
        self._is_inside_field_name = field_name(is_inside_field_name, "is_inside_field_name")
        self._limits = PointLimits.checked(minimum_point, maximum_point)

    declare_images = no_images

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        for path in data.find_all_occurrences(self._points_fields_name):
            is_inside = self._limits.contain(data.get_item_in_path(path), leaf_at(data, path).dtype)
            put_beside(data, path, self._is_inside_field_name, types.DALIDataType.BOOL, is_inside)
        return data

    _process_arrays = _process

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        search = FieldSearch(data_empty, self)
        found = search.find(
            self._points_fields_name, "numbers", NUMBER_TYPES, group_of="points", error_type=ValueError
        )
        for path in found:
            search.add_beside(path, [(self._is_inside_field_name, types.DALIDataType.BOOL, None)], "the result")
        return search.result()


_FLOAT16 = types.DALIDataType.FLOAT16


class CoordinateCropper(PipelineStepBase):
    """Clamps the coordinates of every field of a name, anywhere in the sample, to a range per column.

    Input and output: ``(N, D)`` of any number type, on the CPU or the GPU, with any N in each sample, also 0::

        output[i, j] = min(max(input[i, j], minimum_point[j]), maximum_point[j])

    NaN stays NaN. The limits are converted to the type of the field first: for integers, fractions are cut off,
    and limits beyond the range of the type are those of the type. Where D is not the number of limits, the graph
    fails and names the sample.

    Example::

        CoordinateCropper("boxes", [0, 0, 0, 0], [1600, 900, 1600, 900])      # xyxy, to a 1600 x 900 image
    """

    treats_elements_alike = True

    def __init__(
        self, points_fields_name: Name, minimum_point: Sequence[float], maximum_point: Sequence[float]
    ) -> None:
        """Create the step.

        Args:
            points_fields_name: Name of the fields.
            minimum_point: Least value of each column; ``-inf`` for no limit.
            maximum_point: Greatest value of each column; ``inf`` for no limit.

        Raises:
            SettingError: The limits are not two lists of numbers of one length, or a minimum is above its maximum.
        """
        self._points_fields_name = field_name(points_fields_name, "points_fields_name")
        self._limits = PointLimits.checked(minimum_point, maximum_point)

    declare_images = no_images

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        for path in data.find_all_occurrences(self._points_fields_name):
            dtype = leaf_at(data, path).dtype
            points = computable(data.get_item_in_path(path), dtype)
            low, high = self._limits.nodes(points, dtype, inner=False)
            cropped = functions.clamp(points, low, high)
            data.set_item_in_path(path, functions.cast(cropped, dtype) if dtype == _FLOAT16 else cropped)
        return data

    _process_arrays = _process

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        search = FieldSearch(data_empty, self, cannot="crop")
        search.find(self._points_fields_name, "numbers", NUMBER_TYPES, group_of="points", error_type=ValueError)
        return search.result()
