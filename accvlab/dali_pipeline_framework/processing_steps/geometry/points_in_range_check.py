# SPDX-License-Identifier: Apache-2.0
"""Tell which points lie in a box."""

from __future__ import annotations

from collections.abc import Sequence

from nvidia.dali import types

from ...checks import field_name
from ...operators.field_types import NUMBER_TYPES, leaf_at
from ...operators.point_limits import PointLimits
from ...sample_data import SampleDataGroup
from ...sample_data.names import Name
from ..image_use import no_images
from ..named_fields import FieldSearch, put_beside
from ..pipeline_step_base import PipelineStepBase


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
