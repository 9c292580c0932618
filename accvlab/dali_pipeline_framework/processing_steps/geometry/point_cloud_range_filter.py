# SPDX-License-Identifier: Apache-2.0
"""Drop points outside of a box."""

from __future__ import annotations

from collections.abc import Sequence

from ...operators.element_selection import filter_fields
from ...operators.field_types import NUMBER_TYPES, leaf_at
from ...operators.point_limits import PointLimits
from ...sample_data import SampleDataGroup
from ..image_use import no_images
from ..named_fields import FieldSearch, Names, as_names, check_fields, find_paths, required_names
from ..pipeline_step_base import PipelineStepBase


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
