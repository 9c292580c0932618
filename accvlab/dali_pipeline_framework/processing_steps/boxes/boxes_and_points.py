# SPDX-License-Identifier: Apache-2.0
"""Steps on boxes and points: filter, convert, crop, pad, and select what is visible."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from nvidia.dali import types

from ...checks import choice, field_name, flag, number, number_list, number_range, whole_number
from ...errors import FieldValueError, SettingError
from ...operators import functions
from ...operators.bbox_visibility import boxes_of_minimum_size, visible_boxes
from ...operators.element_selection import NUMBER_TYPES, filter_fields
from ...operators.functions import Array
from ...operators.point_limits import PointLimits
from ...sample_data import FieldPath, GroupFormat, SampleDataGroup
from ...sample_data.names import Name, Path, format_path, normalized_path
from ...unknown_arguments import explains_unknown_arguments
from ..array_step import FieldUse
from ..field_steps import FieldStep
from ..image_use import height_and_width
from ..named_fields import (
    FieldSearch,
    Names,
    as_names,
    find_paths,
    optional_name,
    put_beside,
    required_names,
)
from ..pipeline_step_base import naming_field

_DT = types.DALIDataType
_FORMATS = ("xyxy", "xywh", "cxcywh")


class BoxAreaFilter(FieldStep):
    """Keeps the boxes whose area lies in a range, and the elements of other fields that belong to them.

    The fields of boxes, anywhere in the sample, are ``(N, 4)`` of any number type, with any N in each sample,
    also 0. The further fields, in the same group, have N elements along their first axis. Boxes are kept, in
    order, if::

        area_range[0] <= width * height <= area_range[1]      in the unit of the boxes, squared; float32 or float64

    A negative width or height counts as 0, so such a box has the area 0; one with NaN is dropped. Values are
    copied bit by bit. Fields of other lengths are an error.

    Example::

        BoxAreaFilter("boxes", area_range=(16, math.inf), further_names=["categories", "depths"])
    """

    _cannot = "filter"
    _what, _dtypes = "boxes", NUMBER_TYPES

    @explains_unknown_arguments
    def __init__(
        self,
        box_names: Names,
        *,
        area_range: tuple[float, float] = (0.0, math.inf),
        further_names: Names | None = None,
        box_format: str = "xyxy",
    ) -> None:
        """Create the step.

        Args:
            box_names: Name or names of the boxes.
            area_range: Least and greatest area, at least 0; may be infinite.
            further_names: Name or names of further fields to filter, next to the boxes.
            box_format: ``"xyxy"`` (two corners, the least and the greatest coordinates), ``"xywh"`` (least
                corner, width and height) or ``"cxcywh"`` (center, width and height).

        Raises:
            SettingError: The areas are not a range, or the format is not one of the three.
        """
        self._box_names = required_names(box_names, "box_names")
        self._area_range = number_range(area_range, "area_range", at_least=0, may_be_infinite=True)
        self._further_names = as_names(further_names, "further_names")
        self._box_format = choice(box_format, "box_format", _FORMATS)

    def _change_field(self, data: SampleDataGroup, path: FieldPath) -> None:
        boxes = data.get_item_in_path(path)
        mask = self._mask(boxes.astype(np.float64 if boxes.dtype == np.float64 else np.float32, copy=False))
        filter_fields(data.get_parent_of_path(path), [path[-1], *self._further_names], mask)

    @np.errstate(invalid="ignore", over="ignore")
    def _mask(self, boxes: Array) -> Array:
        width, height = boxes[:, 2], boxes[:, 3]
        if self._box_format == "xyxy":
            width, height = width - boxes[:, 0], height - boxes[:, 1]
        # A product with a factor of 0 instead of `max(..., 0)`, which would hide NaN.
        area = width * height * ((width > 0.0) & (height > 0.0))
        least, most = (area.dtype.type(limit) for limit in self._area_range)
        return np.asarray((area >= least) & (area <= most))

    def _names(self) -> Sequence[Name]:
        return self._box_names


def size_of_image(data: SampleDataGroup, path: FieldPath, *, is_image: bool) -> Array:
    """Get the height and width of the image at a path, or the values of a field that holds them: ``(2,)``.

    Raises:
        FieldValueError: It is neither; names the field.
    """
    with naming_field(path):
        if is_image:
            return height_and_width(data, path)
        rule = "the size of an image must be its height and width"
        return np.asarray(functions.failing_with(rule, np.reshape, data.get_item_in_path(path), 2))


class VisibleBboxSelector(FieldStep):
    """Adds a mask of the bounding boxes of one image that are not hidden by nearer ones, and not too small.

    Input: boxes ``(N, 4)``, two opposite corners ``x, y, x, y`` in pixels, in any order; depths ``(N,)`` or
    ``(N, 1)``, any unit; both of any number type, with any N in each sample, also 0. Output: ``(N,)`` bool, on the
    CPU. To filter the boxes by it, see `ConditionalElementRemover`.

    *Not hidden*: the boxes are rounded outwards to whole pixels and cut to the image. If all boxes are painted
    from the farthest to the nearest, at least one pixel of the box is left. Boxes outside of the image, or without
    area, are hidden, and so are boxes with NaN, and all boxes of an image without pixels. Among boxes with the
    same depth, the last one counts as the nearest; a depth of NaN counts as farthest.

    *Large enough*: cut to the image, not rounded, both sides are at least ``minimum_bbox_size`` long.

    Example:
        >>> sample = SampleDataGroup()
        >>> sample.add_data_field("boxes", _DT.FLOAT)
        >>> sample.add_data_field("depths", _DT.FLOAT)
        >>> step = VisibleBboxSelector(
        ...     "boxes", "is_visible", image_hw=(900, 1600), depths_field_name="depths", minimum_bbox_size=4
        ... )
        >>> step.check_input_data_format_and_set_output_data_format(sample).field_names_flat
        ('boxes', 'depths', 'is_visible')
    """

    _cannot = "select"

    @explains_unknown_arguments
    def __init__(
        self,
        bboxes_field_name: Name,
        resulting_mask_field_path: Path,
        image_field_name: Name | None = None,
        image_hw_field_name: Name | None = None,
        image_hw: Sequence[int] | None = None,
        check_for_bbox_occlusion: bool = True,
        check_for_minimum_size: bool = True,
        depths_field_name: Name | None = None,
        minimum_bbox_size: float | None = None,
    ) -> None:
        """Create the step; each name must occur exactly once in the group that it is applied to.

        Args:
            bboxes_field_name: Name of the boxes.
            resulting_mask_field_path: Name or path of the mask to add; its group must exist.
            image_field_name: Name of the image whose size is used, ``(..., height, width, channels)``, or of
                another layout that the format knows, as ``CHW``.
            image_hw_field_name: Instead, name of a field ``[height, width]``.
            image_hw: Instead, ``[height, width]``.
            check_for_bbox_occlusion: Whether hidden boxes are false in the mask.
            check_for_minimum_size: Whether small boxes are false in the mask.
            depths_field_name: Name of the depths; needed for hidden boxes.
            minimum_bbox_size: Least length of both sides, in pixels; needed for small boxes.

        Raises:
            SettingError: Not exactly one image size, nothing to check, or a field for a check is missing.
        """
        self._bboxes_field_name = field_name(bboxes_field_name, "bboxes_field_name")
        self._resulting_mask_field_path = normalized_path(resulting_mask_field_path)
        self._image_field_name = optional_name(image_field_name, "image_field_name")
        self._image_hw_field_name = optional_name(image_hw_field_name, "image_hw_field_name")
        self._image_hw = (
            None if image_hw is None else number_list(image_hw, "image_hw", "two positive numbers", count=2)
        )
        self._check_for_bbox_occlusion = flag(check_for_bbox_occlusion, "check_for_bbox_occlusion")
        self._check_for_minimum_size = flag(check_for_minimum_size, "check_for_minimum_size")
        self._depths_field_name = optional_name(depths_field_name, "depths_field_name")
        self._minimum_bbox_size = None
        if minimum_bbox_size is not None:
            self._minimum_bbox_size = number(minimum_bbox_size, "minimum_bbox_size", may_be_infinite=True)
        hides, measures = self._check_for_bbox_occlusion, self._check_for_minimum_size
        sizes = (self._image_field_name, self._image_hw_field_name, self._image_hw)
        one_size = "Exactly one of `image_field_name`, `image_hw_field_name` and `image_hw` must be given."
        problems = {
            "`resulting_mask_field_path` must not be empty.": not self._resulting_mask_field_path,
            one_size: sum(size is not None for size in sizes) != 1,
            f"`image_hw` must be two positive numbers, got {self._image_hw!r}.": min(self._image_hw or [1]) <= 0,
            "`check_for_bbox_occlusion` or `check_for_minimum_size` must be true.": not (hides or measures),
            "`check_for_bbox_occlusion` needs `depths_field_name`.": hides and self._depths_field_name is None,
            "`check_for_minimum_size` needs `minimum_bbox_size`.": measures and self._minimum_bbox_size is None,
        }
        if any(problems.values()):
            raise SettingError(" ".join(problem for problem, is_there in problems.items() if is_there))

    def _names(self) -> Sequence[Name]:
        return (self._bboxes_field_name,)

    @property
    def _used(self) -> dict[Name, str]:
        """Names of the fields that the step uses, and what they hold."""
        used = {
            self._bboxes_field_name: "bounding boxes",
            self._depths_field_name if self._check_for_bbox_occlusion else None: "depths",
            self._image_field_name: "an image",
            self._image_hw_field_name: "the size of an image (see TensorSizeAdder)",
        }
        return {name: what for name, what in used.items() if name is not None}

    def fields_used(self, data_empty: SampleDataGroup) -> FieldUse:
        """Boxes, depths and the size; of the image its shape."""
        read = find_paths(data_empty, [name for name in self._used if name != self._image_field_name])
        images = [] if self._image_field_name is None else find_paths(data_empty, [self._image_field_name])
        return FieldUse(read=read, shapes=images)

    def _change_field(self, data: SampleDataGroup, path: FieldPath) -> None:
        boxes = data.get_item_in_path(path)
        boxes = boxes.astype(np.float64 if boxes.dtype == np.float64 else np.float32, copy=False)
        rule = "boxes must be x1, y1, x2, y2"
        boxes = functions.failing_with(rule, np.reshape, boxes, (len(boxes), 4))
        image_hw, masks = self._size_of_image(data).astype(boxes.dtype), []
        if self._check_for_bbox_occlusion:
            rule, depths = "one depth for each box is needed", self._value(data, self._depths_field_name)
            depths = functions.failing_with(rule, np.reshape, depths, (len(boxes),))
            masks.append(visible_boxes(boxes, depths, image_hw))
        if self._check_for_minimum_size:
            masks.append(boxes_of_minimum_size(boxes, image_hw, self._minimum_bbox_size or 0.0))
        mask_path = self._resulting_mask_field_path
        put_beside(data, mask_path, mask_path[-1], _DT.BOOL, np.logical_and.reduce(masks))

    @staticmethod
    def _path(data: SampleDataGroup, name: Name | None) -> FieldPath:
        [path] = data.find_all_occurrences(name)  # type: ignore[arg-type]  # the format was checked
        return path

    def _value(self, data: SampleDataGroup, name: Name | None) -> Any:
        return data.get_item_in_path(self._path(data, name))

    def _size_of_image(self, data: SampleDataGroup) -> Array:
        if self._image_hw is not None:
            return np.array(self._image_hw)
        if self._image_field_name is not None:
            return size_of_image(data, self._path(data, self._image_field_name), is_image=True)
        size = size_of_image(data, self._path(data, self._image_hw_field_name), is_image=False)
        return np.asarray(functions.maximum(size, size.dtype.type(0)))  # NaN: an image of no size

    def _find(self, search: FieldSearch) -> list[FieldPath]:
        for name, what in self._used.items():
            search.find(name, what, NUMBER_TYPES, group_of=what, holds="numbers", error_type=ValueError)
            paths = search.format.find(name)
            if len(paths) > 1:
                places = ", ".join(map(format_path, paths))
                search.add(
                    f"The name {name!r} must occur once, but occurs {len(paths)} times: {places}. "
                    "Wrap the step, to apply it to each camera"
                )
        path = self._resulting_mask_field_path
        if isinstance(search.format.get(path[:-1]), GroupFormat):
            search.add_beside(path, [(path[-1], _DT.BOOL, None)], "the mask")
        else:
            search.add("there is no such group to add the mask to", path[:-1])
        return []


class PointsPadder(FieldStep):
    """Brings every field with the given name to a fixed number of elements along the first axis.

    Input: ``(N, ...)`` of any number type or bool, with any N in each sample, also 0. Output: ``(num_points,
    ...)``: the first ``num_points`` elements; where there are fewer, the fill value follows. Optionally adds next
    to it a mask ``(num_points,)`` bool, on the CPU: true for elements of the input.

    The shape is the same in every batch, unlike with `PaddingToUniform`. The field keeps its layout.

    Example:
        >>> sample = SampleDataGroup()
        >>> sample.add_data_field("points", _DT.FLOAT)
        >>> step = PointsPadder("points", num_points=30000, mask_name="is_point")
        >>> step.check_input_data_format_and_set_output_data_format(sample).field_names_flat
        ('points', 'is_point')
    """

    _cannot = "pad"
    _what = "points"

    @explains_unknown_arguments
    def __init__(
        self, point_names: Names, *, num_points: int, mask_name: Name | None = None, fill_value: int | float = 0
    ) -> None:
        """Create the step.

        Args:
            point_names: Name or names of the fields.
            num_points: Number of elements to bring them to.
            mask_name: Name of the mask to add; None for no mask.
            fill_value: Value to pad with; rounded and limited to the type of the field.

        Raises:
            SettingError: The number is not a positive integer, or the fill value is not a number.
        """
        self._point_names = required_names(point_names, "point_names")
        self._num_points = whole_number(num_points, "num_points", at_least=1)
        self._mask_name = optional_name(mask_name, "mask_name")
        self._fill_value = number(fill_value, "fill_value", may_be_nan=True)

    def _change_field(self, data: SampleDataGroup, path: FieldPath) -> None:
        points = data.get_item_in_path(path)
        if not points.ndim:
            raise FieldValueError("A field to pad must have an axis of elements, got a number.")
        fill = bool(self._fill_value) if points.dtype == bool else self._fill_value
        padded = np.full((self._num_points, *points.shape[1:]), functions.cast_array(fill, points.dtype))
        count = min(len(points), self._num_points)
        padded[:count] = points[:count]
        data.set_item_in_path(path, padded)
        if self._mask_name is not None:
            put_beside(data, path, self._mask_name, _DT.BOOL, np.arange(self._num_points) < len(points))

    def _names(self) -> Sequence[Name]:
        return self._point_names

    def _check_field(self, search: FieldSearch, path: FieldPath) -> None:
        if self._mask_name is not None:
            search.add_beside(path, [(self._mask_name, _DT.BOOL, None)], "the mask")


class PointCloudRangeFilter(FieldStep):
    """Keeps the points that lie in a box, of every point cloud with the given name, anywhere in the sample.

    Points: ``(N, C)`` of any number type, with any N in each sample, also 0. The first D columns are coordinates,
    in the frame and unit of the limits; the others (intensity, time, ...) go along. A point is kept if it lies in
    the box or on its border; NaN is outside (see `PointsInRangeCheck`). The further fields, in the same group,
    have N elements along their first axis, and are filtered as well.

    The order stays, values are copied bit by bit.

    Example::

        PointCloudRangeFilter("points", point_range=([-51.2, -51.2, -5.0], [51.2, 51.2, 3.0]))
    """

    _cannot = "filter"
    _what, _dtypes = "points", NUMBER_TYPES

    @explains_unknown_arguments
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
            further_names: Name or names of further fields to filter, next to the points.

        Raises:
            SettingError: The range is not two lists of numbers of one length, or a lower limit is above its upper
                limit.
        """
        self._point_names = required_names(point_names, "point_names")
        self._limits = PointLimits.checked_range(point_range, "point_range")
        self._further_names = as_names(further_names, "further_names")

    def _change_field(self, data: SampleDataGroup, path: FieldPath) -> None:
        mask = self._limits.contain(data.get_item_in_path(path)[:, : len(self._limits.minimum)])
        filter_fields(data.get_parent_of_path(path), [path[-1], *self._further_names], mask)

    def _names(self) -> Sequence[Name]:
        return self._point_names


class PointsInRangeCheck(FieldStep):
    """Adds a mask of the points that lie in a box, next to every field of points with the given name.

    Input: ``(N, D)`` of any number type, with any N in each sample, also 0. Added as the last field of the same
    group: ``(N,)`` bool::

        is_inside[i] = all(minimum_point[j] <= points[i, j] <= maximum_point[j] for j in range(D))

    The limits belong to the box. NaN is outside; an infinite limit means no limit. For floating-point
    fields, the limits are rounded to the type of the field; integer points are compared with them exactly. Where
    D is not the number of limits, the error names the sample.

    Example:
        >>> sample = SampleDataGroup()
        >>> sample.add_data_field("centers", _DT.FLOAT)
        >>> step = PointsInRangeCheck("centers", "is_inside", [-50, -50, -5], [50, 50, 3])
        >>> step.check_input_data_format_and_set_output_data_format(sample).field_names_flat
        ('centers', 'is_inside')
    """

    _what, _dtypes = "points", NUMBER_TYPES

    @explains_unknown_arguments
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

    def _change_field(self, data: SampleDataGroup, path: FieldPath) -> None:
        is_inside = self._limits.contain(data.get_item_in_path(path))
        put_beside(data, path, self._is_inside_field_name, _DT.BOOL, is_inside)

    def fields_used(self, data_empty: SampleDataGroup) -> FieldUse:
        """The points."""
        return FieldUse(read=find_paths(data_empty, self._names()))

    def _names(self) -> Sequence[Name]:
        return (self._points_fields_name,)

    def _check_field(self, search: FieldSearch, path: FieldPath) -> None:
        search.add_beside(path, [(self._is_inside_field_name, _DT.BOOL, None)], "the result")


class CoordinateCropper(FieldStep):
    """Clamps the coordinates of every field with the given name, anywhere in the sample, to a range per column.

    Input and output: ``(N, D)`` of any number type, with any N in each sample, also 0::

        output[i, j] = min(max(input[i, j], minimum_point[j]), maximum_point[j])

    NaN stays NaN. The limits are converted to the type of the field first: for integers, fractions are cut off,
    and limits beyond the range of the type become the limits of the type. Where D is not the number of limits,
    the error names the sample.

    Example::

        CoordinateCropper("boxes", [0, 0, 0, 0], [1600, 900, 1600, 900])      # xyxy, to a 1600 x 900 image
    """

    _cannot = "crop"
    _what, _dtypes = "points", NUMBER_TYPES

    @explains_unknown_arguments
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

    def _change_field(self, data: SampleDataGroup, path: FieldPath) -> None:
        data.set_item_in_path(path, self._limits.cropped(data.get_item_in_path(path)))

    def _names(self) -> Sequence[Name]:
        return (self._points_fields_name,)
