# SPDX-License-Identifier: Apache-2.0
"""Clamp coordinates to a range."""

from __future__ import annotations

from collections.abc import Sequence

from nvidia.dali import types

from ...checks import field_name
from ...operators import functions
from ...operators.field_types import NUMBER_TYPES, computable, leaf_at
from ...operators.point_limits import PointLimits
from ...sample_data import SampleDataGroup
from ...sample_data.names import Name
from ..image_use import no_images
from ..named_fields import FieldSearch
from ..pipeline_step_base import PipelineStepBase

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
