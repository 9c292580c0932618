# SPDX-License-Identifier: Apache-2.0
"""Drop points outside of a box."""

from __future__ import annotations

from collections.abc import Sequence

from ..checks import field_name
from ..operators.field_types import NUMBER_TYPES, leaf_at
from ..operators.point_limits import PointLimits
from ..sample_data import Name, SampleDataGroup
from .filtered_group import check_fields, filter_fields
from .image_use import no_images
from .named_fields import FieldSearch, as_names
from .pipeline_step_base import PipelineStepBase


class PointCloudRangeFilter(PipelineStepBase):
    """Keeps the points of every point cloud of a name, anywhere in the sample, that lie in a box.

    Points: ``(N, C)`` of any number type, with any N in each sample, also 0. The first D columns are coordinates,
    in the frame and unit of the limits; the others (intensity, time, ...) go along. A point is kept if it lies in
    the box or on its border; NaN is outside (see `PointsInRangeCheck`). The fields named beside it, in the same
    group, have N elements along their first axis, and are filtered as well.

    The order stays, values are copied bit by bit; a layout is dropped. The fields may
    be on the CPU or the GPU. Price on the CPU, per sample: 0.5 ms for 1000 points, about 40 ms for 100000.

    Example::

        PointCloudRangeFilter("points", [-51.2, -51.2, -5.0], [51.2, 51.2, 3.0])
    """

    def __init__(
        self,
        points_field_name: Name,
        minimum_point: Sequence[float],
        maximum_point: Sequence[float],
        further_field_names: Name | Sequence[Name] | None = None,
    ) -> None:
        """Create the step.

        Args:
            points_field_name: Name of the point clouds.
            minimum_point: Least coordinate of the D axes; ``-inf`` for no limit.
            maximum_point: Greatest coordinate of the D axes; ``inf`` for no limit.
            further_field_names: Name or names of what else is filtered, beside the points.

        Raises:
            SettingError: The limits are not two lists of numbers of one length, or a minimum is above its maximum.
        """
        self._points_field_name = field_name(points_field_name, "points_field_name")
        self._limits = PointLimits.checked(minimum_point, maximum_point)
        self._further_field_names = as_names(further_field_names, "further_field_names")

    declare_images = no_images

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        num_axes = len(self._limits.minimum)
        for path in data.find_all_occurrences(self._points_field_name):
            coordinates = data.get_item_in_path(path)[:, 0:num_axes]
            mask = self._limits.contain(coordinates, leaf_at(data, path).dtype)
            filter_fields(data.get_parent_of_path(path), [path[-1], *self._further_field_names], mask)
        return data

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        search = FieldSearch(data_empty, self, cannot="filter")
        for path in search.find(self._points_field_name, "points", NUMBER_TYPES, group_of="points"):
            check_fields(search, data_empty, path, self._further_field_names)
        search.raise_problems()
        return data_empty
