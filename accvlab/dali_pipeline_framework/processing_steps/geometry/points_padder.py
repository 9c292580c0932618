# SPDX-License-Identifier: Apache-2.0
"""Bring point clouds to a fixed number of points."""

from __future__ import annotations

from typing import Any

import numpy as np
from nvidia.dali import types

from ...checks import field_name, number, whole_number
from ...operators import functions
from ...operators.field_types import exact_constant, leaf_at, reinterpret
from ...sample_data import SampleDataGroup
from ...sample_data.dtypes import NUMPY_TYPES
from ...sample_data.graph_mode import do_not_convert
from ...sample_data.names import Name
from ..image_use import no_images
from ..named_fields import FieldSearch, Names, find_paths, put_beside, required_names
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
        self._mask_name = None if mask_name is None else field_name(mask_name, "mask_name")
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
