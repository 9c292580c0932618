# SPDX-License-Identifier: Apache-2.0
"""Steps on boxes and points: filter, convert, crop, pad, and select what is visible."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from nvidia.dali import types

from ...checks import choice, field_name, flag, number, number_list, number_range, whole_number
from ...errors import SettingError
from ...operators import element_selection, functions
from ...operators.bbox_visibility import boxes_of_minimum_size, visible_boxes
from ...operators.element_selection import NUMBER_TYPES, computable, filter_fields, leaf_at, reinterpret
from ...operators.functions import Value
from ...operators.point_limits import PointLimits
from ...sample_data import FieldPath, GroupFormat, SampleDataGroup
from ...sample_data.dtypes import get_numpy_type_for_dali_type
from ...sample_data.graph_mode import do_not_convert
from ...sample_data.names import Name, Path, format_path, normalized_path
from ..field_steps import FieldStep
from ..image_use import no_images
from ..named_fields import FieldSearch, Names, as_names, optional_name, put_beside, required_names
from ..pipeline_step_base import PipelineStepBase, no_pixels

_DT = types.DALIDataType
_FORMATS = ("xyxy", "xywh", "cxcywh")


class BoxAreaFilter(FieldStep):
    """Keeps the boxes whose area lies in a range, and the elements of other fields that belong to them.

    Every field of boxes of the name, anywhere in the sample: ``(N, 4)`` of any number type, with any N in each
    sample, also 0. The further fields, in the same group, have N elements along their first axis. Kept, in
    order, is what fulfills::

        area_range[0] <= width * height <= area_range[1]      in the unit of the boxes, squared; float32 or float64

    A negative width or height counts as 0, so such a box has the area 0; one with NaN is dropped. Values are
    copied bit by bit; a layout is dropped. Fields of other lengths make the graph fail.

    The fields may be on the CPU or the GPU.

    Example::

        BoxAreaFilter("boxes", area_range=(16, math.inf), further_names=["categories", "depths"])
    """

    _cannot = "filter"
    _what, _dtypes = "boxes", NUMBER_TYPES

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
            SettingError: The areas are no range, or the format is none of the three.
        """
        self._box_names = required_names(box_names, "box_names")
        self._area_range = number_range(area_range, "area_range", at_least=0, may_be_infinite=True)
        self._further_names = as_names(further_names, "further_names")
        self._box_format = choice(box_format, "box_format", _FORMATS)

    def _change_field(self, data: SampleDataGroup, path: FieldPath) -> None:
        dtype = _DT.FLOAT64 if leaf_at(data, path).dtype == _DT.FLOAT64 else _DT.FLOAT
        mask = self._mask(functions.cast(data.get_item_in_path(path), dtype))
        filter_fields(data.get_parent_of_path(path), [path[-1], *self._further_names], mask)

    @do_not_convert
    @np.errstate(invalid="ignore", over="ignore")
    def _mask(self, boxes: Value) -> Value:
        width, height = boxes[:, 2], boxes[:, 3]
        if self._box_format == "xyxy":
            width, height = width - boxes[:, 0], height - boxes[:, 1]
        # A product with a factor of 0 instead of `max(..., 0)`, which would hide NaN.
        area = width * height * ((width > 0.0) & (height > 0.0))
        least, most = (float(np.float32(limit)) for limit in self._area_range)  # as DALI takes them
        return (area >= least) & (area <= most)

    def _names(self) -> Sequence[Name]:
        return self._box_names

    def _check_field(self, search: FieldSearch, path: FieldPath) -> None:
        search.check_rows_beside(path, self._further_names)


class VisibleBboxSelector(PipelineStepBase):
    """Adds a mask of the bounding boxes of one image that are not hidden by nearer ones, and not too small.

    Input: boxes ``(N, 4)``, two opposite corners ``x, y, x, y`` in pixels, in any order; depths ``(N,)`` or
    ``(N, 1)``, any unit; both of any number type, with any N in each sample, also 0. Output: ``(N,)`` bool, on the
    CPU. To filter the boxes by it, see `ConditionalElementRemover`.

    *Not hidden*: the boxes are rounded outwards to whole pixels and cut to the image. Painted from the farthest to
    the nearest, at least one pixel of the box is left. Boxes outside of the image, or without area, are hidden,
    and so are boxes with NaN, and all boxes of an image without pixels. Of boxes with the same depth, the last one
    is taken for the nearest; a depth of NaN is farthest.

    *Large enough*: cut to the image, not rounded, both sides are at least ``minimum_bbox_size`` long.

    Any number of boxes. Cost on the CPU, per sample, whatever the size of the image is: 1 ms for up to 50 boxes,
    3 ms for 100, 20 ms for 200, 50 ms for 300, all in at most 0.1 GB of memory; 0.2 s for 500, 1 s and 0.8 GB for
    1000, 4 s and 3.5 GB for 2000. Up to 384 boxes, memory grows with the third power of their number, from there
    on with the square (about ``900 N ** 2`` bytes). A canvas of 1600 x 900 in NumPy takes 30 to 180 ms for 300
    boxes. The check for the size takes about 1 ms per batch.

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

    treats_elements_alike = True

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
        """Create the step; each name must occur exactly once in what it is applied to.

        Args:
            bboxes_field_name: Name of the boxes.
            resulting_mask_field_path: Name or path of the mask to add; its group must exist.
            image_field_name: Name of the image whose size is used, ``(..., height, width, channels)``.
            image_hw_field_name: Instead, name of a field ``[height, width]``.
            image_hw: Instead, ``[height, width]``.
            check_for_bbox_occlusion: Whether hidden boxes are false in the mask.
            check_for_minimum_size: Whether small boxes are false in the mask.
            depths_field_name: Name of the depths; needed for hidden boxes.
            minimum_bbox_size: Least length of both sides, in pixels; needed for small boxes.

        Raises:
            SettingError: Not exactly one image size, nothing to check, or what a check needs is missing.
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
        problems = self._problems_of_settings()
        if problems:
            raise SettingError(" ".join(problems))

    def _problems_of_settings(self) -> list[str]:
        problems = []
        if not self._resulting_mask_field_path:
            problems.append("`resulting_mask_field_path` must not be empty.")
        sizes = (self._image_field_name, self._image_hw_field_name, self._image_hw)
        if sum(size is not None for size in sizes) != 1:
            problems.append(
                "Exactly one of `image_field_name`, `image_hw_field_name` and `image_hw` must be given."
            )
        if self._image_hw is not None and not min(self._image_hw) > 0:
            problems.append(f"`image_hw` must be two positive numbers, got {self._image_hw!r}.")
        if not self._check_for_bbox_occlusion and not self._check_for_minimum_size:
            problems.append("`check_for_bbox_occlusion` or `check_for_minimum_size` must be true.")
        if self._check_for_bbox_occlusion and self._depths_field_name is None:
            problems.append("`check_for_bbox_occlusion` needs `depths_field_name`.")
        if self._check_for_minimum_size and self._minimum_bbox_size is None:
            problems.append("`check_for_minimum_size` needs `minimum_bbox_size`.")
        return problems

    declare_images = no_images
    declare_pixel_changes = no_pixels

    @do_not_convert
    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        boxes_path = _only_path(data, self._bboxes_field_name)
        dtype = _DT.FLOAT64 if leaf_at(data, boxes_path).dtype == _DT.FLOAT64 else _DT.FLOAT
        boxes = functions.cast(functions.on_cpu(data.get_item_in_path(boxes_path)), dtype)
        image_hw = self._size_of_image(data, dtype, boxes)
        masks = []
        num_boxes = functions.shape_of(boxes)[0:1]
        if self._check_for_bbox_occlusion:
            path = _only_path(data, self._depths_field_name)
            depths = functions.reshape(functions.on_cpu(data.get_item_in_path(path)), num_boxes, layout="")
            masks.append(visible_boxes(boxes, depths, leaf_at(data, path).dtype, image_hw))
        if self._check_for_minimum_size:
            masks.append(boxes_of_minimum_size(boxes, num_boxes, image_hw, self._minimum_bbox_size or 0.0))
        mask = masks[0] & masks[1] if len(masks) == 2 else masks[0]
        path = self._resulting_mask_field_path
        put_beside(data, path, path[-1], _DT.BOOL, mask)
        return data

    _process_arrays = _process

    def _size_of_image(self, data: SampleDataGroup, dtype: types.DALIDataType, like: Value) -> Value:
        if self._image_hw is not None:
            size = np.array(self._image_hw, get_numpy_type_for_dali_type(dtype))
            return element_selection.exact_constant_like(size, like)
        if self._image_hw_field_name is not None:
            size = functions.on_cpu(data.get_item_in_path(_only_path(data, self._image_hw_field_name)))
            # Of NaN and another number, `max` returns the second one: an image of no size.
            return functions.maximum(functions.cast(functions.reshape(size, [2]), dtype), 0.0)
        shape = functions.shape_of(data.get_item_in_path(_only_path(data, self._image_field_name)))
        return functions.cast(functions.reshape(shape[-3:-1], [2]), dtype)

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        search = FieldSearch(data_empty, self, cannot="select")
        used = [(self._bboxes_field_name, "bounding boxes")]
        if self._check_for_bbox_occlusion and self._depths_field_name is not None:
            used.append((self._depths_field_name, "depths"))
        if self._image_field_name is not None:
            used.append((self._image_field_name, "an image"))
        if self._image_hw_field_name is not None:
            used.append((self._image_hw_field_name, "the size of an image (see TensorSizeAdder)"))
        for name, what in used:
            search.find(name, what, NUMBER_TYPES, group_of=what, holds="numbers", error_type=ValueError)
            paths = data_empty.find_all_occurrences(name)
            if len(paths) > 1:
                places = ", ".join(map(format_path, paths))
                search.add(
                    f"The name {name!r} must occur once, but occurs {len(paths)} times: {places}. "
                    "Wrap the step, to apply it to each camera"
                )
        path = self._resulting_mask_field_path
        if isinstance(data_empty.format.get(path[:-1]), GroupFormat):
            search.add_beside(path, [(path[-1], _DT.BOOL, None)], "the mask")
        else:
            search.add("there is no such group to add the mask to", path[:-1])
        return search.result()


def _only_path(data: SampleDataGroup, name: Name | None) -> FieldPath:
    [path] = data.find_all_occurrences(name)  # type: ignore[arg-type]  # a name, as the constructor has seen to
    return path


class PointsPadder(FieldStep):
    """Brings every field of a name, anywhere in the sample, to a fixed number of elements along the first axis.

    Input: ``(N, ...)`` of any number type or bool, with any N in each sample, also 0. Output: ``(num_points,
    ...)``: the first ``num_points`` elements; where there are fewer, the fill value follows. Optionally adds next
    to it a mask ``(num_points,)`` bool, on the CPU: true for elements of the input.

    The same shape in every batch, unlike `PaddingToUniform`. The field may be on the CPU or the GPU, its layout
    stays.

    Example:
        >>> sample = SampleDataGroup()
        >>> sample.add_data_field("points", _DT.FLOAT)
        >>> step = PointsPadder("points", num_points=30000, mask_name="is_point")
        >>> step.check_input_data_format_and_set_output_data_format(sample).field_names_flat
        ('points', 'is_point')
    """

    _cannot = "pad"
    _what = "points"

    def __init__(
        self, point_names: Names, *, num_points: int, mask_name: Name | None = None, fill_value: int | float = 0
    ) -> None:
        """Create the step.

        Args:
            point_names: Name or names of the fields.
            num_points: Number of elements to bring them to.
            mask_name: Name of the mask to add; None for none.
            fill_value: Value to pad with; converted to float32, and then as DALI does to the type of the field.

        Raises:
            SettingError: The number is no positive integer, or the fill value is no number.
        """
        self._point_names = required_names(point_names, "point_names")
        self._num_points = whole_number(num_points, "num_points", at_least=1)
        self._mask_name = optional_name(mask_name, "mask_name")
        self._fill_value = number(fill_value, "fill_value", may_be_nan=True)

    def _change_field(self, data: SampleDataGroup, path: FieldPath) -> None:
        points = data.get_item_in_path(path)
        data.set_item_in_path(path, self._padded(points, leaf_at(data, path).dtype))
        if self._mask_name is not None:
            places: Value = np.arange(self._num_points)
            if functions.is_node(points):
                places = element_selection.exact_constant(places)
            is_point = places < functions.shape_of(points)[0]
            put_beside(data, path, self._mask_name, _DT.BOOL, is_point)

    def _padded(self, points: Value, dtype: types.DALIDataType) -> Value:
        is_bool = dtype == _DT.BOOL  # `fn.slice` refuses it
        fill = float(bool(self._fill_value)) if is_bool else self._fill_value
        if not is_bool and not functions.is_node(points):
            fill = _as_processors_convert(fill, points.dtype)
        padded = functions.slice(
            reinterpret(points, _DT.UINT8) if is_bool else points,
            start=[0],
            shape=[self._num_points],
            axes=[0],
            out_of_bounds_policy="pad",
            fill_values=[fill],
        )
        return reinterpret(padded, _DT.BOOL) if is_bool else padded

    def _names(self) -> Sequence[Name]:
        return self._point_names

    def _check_field(self, search: FieldSearch, path: FieldPath) -> None:
        if self._mask_name is not None:
            search.add_beside(path, [(self._mask_name, _DT.BOOL, None)], "the mask")


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


class PointCloudRangeFilter(FieldStep):
    """Keeps the points of every point cloud of a name, anywhere in the sample, that lie in a box.

    Points: ``(N, C)`` of any number type, with any N in each sample, also 0. The first D columns are coordinates,
    in the frame and unit of the limits; the others (intensity, time, ...) go along. A point is kept if it lies in
    the box or on its border; NaN is outside (see `PointsInRangeCheck`). The further fields, in the same group,
    have N elements along their first axis, and are filtered as well.

    The order stays, values are copied bit by bit; a layout is dropped. The fields may be on the CPU or
    the GPU.

    Example::

        PointCloudRangeFilter("points", point_range=([-51.2, -51.2, -5.0], [51.2, 51.2, 3.0]))
    """

    _cannot = "filter"
    _what, _dtypes = "points", NUMBER_TYPES

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
            SettingError: The range is not two lists of numbers of one length, or a number of the first is above
                that of the second.
        """
        self._point_names = required_names(point_names, "point_names")
        self._limits = PointLimits.checked_range(point_range, "point_range")
        self._further_names = as_names(further_names, "further_names")

    def _change_field(self, data: SampleDataGroup, path: FieldPath) -> None:
        num_axes = len(self._limits.minimum)
        coordinates = data.get_item_in_path(path)[:, 0:num_axes]
        mask = self._limits.contain(coordinates, leaf_at(data, path).dtype)
        filter_fields(data.get_parent_of_path(path), [path[-1], *self._further_names], mask)

    def _names(self) -> Sequence[Name]:
        return self._point_names

    def _check_field(self, search: FieldSearch, path: FieldPath) -> None:
        search.check_rows_beside(path, self._further_names)


class PointsInRangeCheck(FieldStep):
    """Adds next to every field of points of a name, anywhere in the sample, which of them lie in a box.

    Input: ``(N, D)`` of any number type, on the CPU or the GPU, with any N in each sample, also 0. Added as the
    last field of the same group, on the same device: ``(N,)`` bool::

        is_inside[i] = all(minimum_point[j] <= points[i, j] <= maximum_point[j] for j in range(D))

    The limits belong to the box. NaN is outside, infinite limits are none. The limits are rounded to the type of
    the field; with integer points, limits with fractions are exact. Where D is not the number of limits, the graph
    fails and names the sample.

    Example:
        >>> sample = SampleDataGroup()
        >>> sample.add_data_field("centers", _DT.FLOAT)
        >>> step = PointsInRangeCheck("centers", "is_inside", [-50, -50, -5], [50, 50, 3])
        >>> step.check_input_data_format_and_set_output_data_format(sample).field_names_flat
        ('centers', 'is_inside')
    """

    _what, _dtypes = "points", NUMBER_TYPES

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
        is_inside = self._limits.contain(data.get_item_in_path(path), leaf_at(data, path).dtype)
        put_beside(data, path, self._is_inside_field_name, _DT.BOOL, is_inside)

    def _names(self) -> Sequence[Name]:
        return (self._points_fields_name,)

    def _check_field(self, search: FieldSearch, path: FieldPath) -> None:
        search.add_beside(path, [(self._is_inside_field_name, _DT.BOOL, None)], "the result")


class CoordinateCropper(FieldStep):
    """Clamps the coordinates of every field of a name, anywhere in the sample, to a range per column.

    Input and output: ``(N, D)`` of any number type, on the CPU or the GPU, with any N in each sample, also 0::

        output[i, j] = min(max(input[i, j], minimum_point[j]), maximum_point[j])

    NaN stays NaN. The limits are converted to the type of the field first: for integers, fractions are cut off,
    and limits beyond the range of the type become the limits of the type. Where D is not the number of limits, the
    graph fails and names the sample.

    Example::

        CoordinateCropper("boxes", [0, 0, 0, 0], [1600, 900, 1600, 900])      # xyxy, to a 1600 x 900 image
    """

    _cannot = "crop"
    _what, _dtypes = "points", NUMBER_TYPES

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
        dtype = leaf_at(data, path).dtype
        points = computable(data.get_item_in_path(path), dtype)
        low, high = self._limits.nodes(points, dtype, inner=False)
        cropped = functions.clamp(points, low, high)
        data.set_item_in_path(path, functions.cast(cropped, dtype) if dtype == _DT.FLOAT16 else cropped)

    def _names(self) -> Sequence[Name]:
        return (self._points_fields_name,)
