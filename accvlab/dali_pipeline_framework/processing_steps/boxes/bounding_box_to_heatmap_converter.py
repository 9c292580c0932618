# SPDX-License-Identifier: Apache-2.0
"""Heatmaps of bounding boxes, as CenterNet and others learn them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from nvidia.dali import types

from ...checks import field_name, flag, number, number_list, shown, whole_number
from ...errors import SettingError
from ...operators import functions
from ...operators.functions import Array, failing_with
from ...operators.gaussian_heatmaps import DrawnObjects, heatmaps
from ...sample_data import FieldPath, SampleDataGroup
from ...sample_data.dtypes import NUMPY_TYPES
from ...sample_data.names import Name
from ...unknown_arguments import explains_unknown_arguments
from ..array_step import FieldUse
from ..field_steps import FieldStep
from ..geometry.image_resizers import checked_hw
from ..named_fields import FieldSearch, find_paths, optional_name
from ..pipeline_step_base import naming_field
from .boxes_and_points import size_of_image

_DT = types.DALIDataType
_INTEGERS = [dtype for dtype, numpy_type in NUMPY_TYPES.items() if issubclass(numpy_type, np.integer)]
_NUMBERS = [dtype for dtype in NUMPY_TYPES if dtype not in (_DT.BOOL, _DT.FLOAT16)]


class BoundingBoxToHeatmapConverter(FieldStep):
    """Draws a Gaussian for each bounding box of an annotation, and adds the targets of a center-based detector.

    Works on every group with the name of the annotation, anywhere in the sample. Input, in the group, for ``N``
    objects (any number, including none): boxes ``(N, 4)`` float32, ``x1, y1, x2, y2`` (or other two opposite
    corners), pixels; optionally categories ``(N,)`` of an integer type, validity ``(N,)`` bool, centers ``(N, 2)``
    float32, ``x, y``. Next to the group: the image, or a field with its height and width ``(2,)``.

    Output, in the order of the arguments, for a heatmap of ``h x w`` pixels; each output with a name is added to
    the group:

    - the heatmap: ``(num_categories, h, w)`` float32, or ``(h, w)`` without categories;
    - whether an object is active: ``(N,)`` bool; the pixel of its center: ``(N, 2)`` int32, x, y; the position of
      the center relative to it: ``(N, 2)`` float32 in [0, 1); height and width of the box: ``(N, 2)`` float32; the
      box: ``(N, 4)`` float32; all in pixels of the heatmap.

    Boxes and centers are scaled to the heatmap, and clipped to the coordinates of its pixels, ``[0, w - 1]`` and
    ``[0, h - 1]``. An object is active if its category is one of ``0 ... num_categories - 1``, it is valid, the
    clipped box is large enough, and at least ``min_fraction_area_clipping`` of its area is inside of the image.
    Others are not drawn: ignored objects (negative categories), boxes without an area, boxes and centers that are
    not finite. A Gaussian has the radius ``r``, the distance from the center to the nearest side (0 outside of the
    box) times ``radius_scaling_factor``, kept within ``[min_radius, max_radius]``. With ``s = r *
    radius_to_sigma_factor``, and ``dx, dy`` from the pixel of the center::

        heatmap = max over objects of exp(-(dx^2 + dy^2) / (2 s^2))    where |dx|, |dy| <= ceil(r), otherwise 0

    It is 1 exactly at the pixel of a center.

    Example:
        >>> step = BoundingBoxToHeatmapConverter(
        ...     "annotation", "bboxes", "heatmap", [225, 400], image_field_name="image",
        ...     categories_in_name="categories", num_categories=6, is_active_opt_out_name="is_active",
        ... )
    """

    @explains_unknown_arguments
    def __init__(
        self,
        annotation_field_name: Name,
        bboxes_in_name: Name,
        heatmap_out_name: Name,
        heatmap_hw: Sequence[int],
        image_field_name: Name | None = None,
        image_hw_field_name: Name | None = None,
        categories_in_name: Name | None = None,
        num_categories: int | None = None,
        min_object_size: Sequence[float] | None = None,
        per_category_min_object_sizes: Sequence[Sequence[float]] | None = None,
        use_per_category_heatmap: bool = True,
        is_valid_opt_in_name: Name | None = None,
        center_opt_in_name: Name | None = None,
        is_active_opt_out_name: Name | None = None,
        center_opt_out_name: Name | None = None,
        center_offset_opt_out_name: Name | None = None,
        height_width_bboxes_heatmap_opt_out_name: Name | None = None,
        bboxes_heatmap_opt_out_name: Name | None = None,
        min_fraction_area_clipping: float = 0.25,
        min_radius: float = 0.5,
        max_radius: float = 10.0,
        radius_scaling_factor: float = 0.8,
        radius_to_sigma_factor: float = 1 / 3,
    ) -> None:
        """Create the step.

        Args:
            annotation_field_name: Name of the groups.
            bboxes_in_name: Name of the boxes in a group.
            heatmap_out_name: Name of the heatmap that is added.
            heatmap_hw: Height and width of the heatmap, pixels.
            image_field_name: Name of the image next to the group, ``(..., height, width, channels)``, or of
                another layout that the format knows, as ``CHW``.
            image_hw_field_name: Instead, name of a field next to the group with height and width of the image.
            categories_in_name: Name of the categories.
            num_categories: How many categories there are.
            min_object_size: Least height and width of an active box, pixels of the heatmap.
            per_category_min_object_sizes: The same for each category.
            use_per_category_heatmap: Whether each category has a map of its own.
            is_valid_opt_in_name: Name of the validity; without one, all objects are valid.
            center_opt_in_name: Name of the centers; without one, they are in the middle of the boxes.
            is_active_opt_out_name: Name of the added field: whether an object is active; None for no such field.
            center_opt_out_name: The same for the pixel of the center.
            center_offset_opt_out_name: The same for the position of the center relative to this pixel.
            height_width_bboxes_heatmap_opt_out_name: The same for height and width of the box.
            bboxes_heatmap_opt_out_name: The same for the box.
            min_fraction_area_clipping: Least fraction of the area of a box inside of the image.
            min_radius: Least radius, above 0, pixels of the heatmap.
            max_radius: Greatest radius.
            radius_scaling_factor: Radius of a Gaussian, per pixel of distance from the center to the nearest side.
            radius_to_sigma_factor: Standard deviation of a Gaussian, per pixel of its radius.

        Raises:
            SettingError: Not exactly one source of the image size is named, categories are needed but not named or
                counted, both kinds of least sizes are given, or a number is not of the form above.
        """
        if (image_field_name is None) == (image_hw_field_name is None):
            raise SettingError("Name the image or its size: one of `image_field_name` and `image_hw_field_name`.")
        if min_object_size is not None and per_category_min_object_sizes is not None:
            raise SettingError("Give one of `min_object_size` and `per_category_min_object_sizes`, not both.")
        self._has_maps_per_category = flag(use_per_category_heatmap, "use_per_category_heatmap")
        needs_categories = self._has_maps_per_category or per_category_min_object_sizes is not None
        self._num_categories = _checked_num_categories(num_categories, categories_in_name, needs_categories)
        self._annotation_name = field_name(annotation_field_name, "annotation_field_name")
        self._image_name = optional_name(image_field_name, "image_field_name")
        self._image_hw_name = optional_name(image_hw_field_name, "image_hw_field_name")
        self._boxes_name = field_name(bboxes_in_name, "bboxes_in_name")
        self._categories_name = optional_name(categories_in_name, "categories_in_name")
        self._is_valid_name = optional_name(is_valid_opt_in_name, "is_valid_opt_in_name")
        self._centers_name = optional_name(center_opt_in_name, "center_opt_in_name")
        outputs = (
            ("heatmap_out_name", heatmap_out_name, _DT.FLOAT),
            ("is_active_opt_out_name", is_active_opt_out_name, _DT.BOOL),
            ("center_opt_out_name", center_opt_out_name, _DT.INT32),
            ("center_offset_opt_out_name", center_offset_opt_out_name, _DT.FLOAT),
            ("height_width_bboxes_heatmap_opt_out_name", height_width_bboxes_heatmap_opt_out_name, _DT.FLOAT),
            ("bboxes_heatmap_opt_out_name", bboxes_heatmap_opt_out_name, _DT.FLOAT),
        )
        self._outputs = [(optional_name(name, argument), dtype) for argument, name, dtype in outputs]
        self._heatmap_hw = checked_hw(heatmap_hw, "heatmap_hw")
        if per_category_min_object_sizes is None:
            self._least_hw = _checked_sizes(min_object_size, "min_object_size", ())
        else:
            num = self._num_categories or 0
            self._least_hw = _checked_sizes(per_category_min_object_sizes, "per_category_min_object_sizes", (num,))
        unlimited = functools.partial(number, may_be_infinite=True)
        self._least_fraction = unlimited(min_fraction_area_clipping, "min_fraction_area_clipping")
        least = number(min_radius, "min_radius", above=0)
        most = unlimited(max_radius, "max_radius", at_least=least, advice="`min_radius` is its limit.")
        self._radius_limits = (least, most)
        self._radius_factor = unlimited(radius_scaling_factor, "radius_scaling_factor", at_least=0)
        self._sigma_of_radius = unlimited(radius_to_sigma_factor, "radius_to_sigma_factor", above=0)

    def _names(self) -> Sequence[Name]:
        return (self._annotation_name,)

    def _change_field(self, data: SampleDataGroup, path: FieldPath) -> None:
        group = data.get_item_in_path(path)
        image_hw = size_of_image(data, self._size_path(path), is_image=self._image_name is not None)
        with naming_field(path), np.errstate(all="ignore"):
            values = self._converted(group, image_hw.astype(np.float32))
            for (name, dtype), value in zip(self._outputs, values, strict=True):
                if name is not None:
                    group.add_data_field(name, dtype)
                    group[name] = value()

    def _size_path(self, path: FieldPath) -> FieldPath:
        """Get the path of the image, or of its size, for a group."""
        name: Any = self._image_hw_name if self._image_name is None else self._image_name
        return (*path[:-1], name)

    @property
    def _inputs(self) -> Sequence[tuple[Name | None, str, Sequence[types.DALIDataType], tuple[int, ...], str]]:
        """Name of each field of a group, what it holds, its types, the shape for a box, and the rule for that."""
        one = "one value for each box is needed"
        return (
            (self._boxes_name, "boxes", [_DT.FLOAT], (2, 2), "boxes must be (N, 4)"),
            (self._categories_name, "categories", _INTEGERS, (), one),
            (self._is_valid_name, "the validity of objects", [_DT.BOOL], (), one),
            (self._centers_name, "centers", [_DT.FLOAT], (2,), "a center x, y for each box is needed"),
        )

    def fields_used(self, data_empty: SampleDataGroup) -> FieldUse:
        """What is named of the annotation, and the size of the image."""
        groups = find_paths(data_empty, self._names())
        read = [(*group, name) for group in groups for name, *_ in self._inputs if name is not None]
        sizes = [self._size_path(group) for group in groups]
        return FieldUse(read=[*read, *sizes]) if self._image_name is None else FieldUse(read=read, shapes=sizes)

    def _converted(self, group: SampleDataGroup, image_hw: Array) -> tuple[Callable[[], Array], ...]:
        """Get functions that compute the outputs, in their order; unrequested outputs cost nothing."""
        height, width = self._heatmap_hw
        count = len(group[self._boxes_name])
        inputs: list[Any] = [
            None if name is None else failing_with(rule, np.reshape, group[name], (count, *shape))
            for name, _, _, shape, rule in self._inputs
        ]
        boxes, categories, is_valid, centers = inputs
        image_xy, size_xy = image_hw[::-1], np.array([width, height], np.float32)
        last_xy = size_xy - 1
        # Divided at last: what falls on a pixel stays on it.
        boxes = boxes * size_xy / image_xy  # (N, corners, 2)
        center = boxes.sum(axis=1) * np.float32(0.5) if centers is None else centers * size_xy / image_xy

        # Boxes as they are, clipped to the coordinates of pixels, and to the map: (3, N, corners, 2).
        # Sides with NaN are infinite.
        least = np.array([-np.inf, 0, 0], np.float32)[:, None, None, None]
        greatest = np.array([[np.inf, np.inf], last_xy, size_xy], np.float32)[:, None, None]
        clipped = functions.minimum(functions.maximum(boxes, least), greatest)
        low, high = clipped.min(axis=2), clipped.max(axis=2)
        sides = high - low  # (3, N, 2)
        area, _, inside = sides[:, :, 0] * sides[:, :, 1]
        is_active = (inside >= area * np.float32(max(self._least_fraction, 0.0))) & (area > 0)
        is_active &= np.isfinite(center).all(axis=1)
        if categories is not None and self._num_categories is not None:
            is_active &= (categories >= 0) & (categories < self._num_categories)
        if self._least_hw is not None:
            least_hw = np.array(self._least_hw, np.float32)  # (2,) or (C, 2)
            if least_hw.ndim > 1:  # objects of other categories are inactive anyway
                least_hw = least_hw[np.clip(categories, 0, len(least_hw) - 1).astype(int)]
            is_active &= (sides[1, :, ::-1] >= least_hw).all(axis=1)
        if is_valid is not None:
            is_active &= is_valid

        center = functions.minimum(functions.maximum(center, np.float32(0)), last_xy)
        nearest = functions.minimum(center - low[1], high[1] - center).min(axis=1)
        radii = functions.clamp(nearest * np.float32(self._radius_factor), *map(np.float32, self._radius_limits))
        pixel = np.floor(center)
        objects = DrawnObjects(pixel, radii, is_active, categories if self._has_maps_per_category else None)
        return (
            lambda: heatmaps(objects, self._heatmap_hw, self._num_categories or 1, self._sigma_of_radius),
            lambda: is_active,
            lambda: functions.cast(pixel, _DT.INT32),
            lambda: center - pixel,
            lambda: sides[1, :, ::-1],
            lambda: clipped[1].reshape(-1, 4),
        )

    def _find(self, search: FieldSearch) -> list[FieldPath]:
        return search.find_groups(self._annotation_name, "must be the group of an annotation, is a data field")

    def _check_field(self, search: FieldSearch, path: FieldPath) -> None:
        if self._image_name is None:
            search.find_at(self._size_path(path), "the height and width of the image", _NUMBERS)
        else:
            search.find_at(self._size_path(path), "an image", [*NUMPY_TYPES])
        for name, what, dtypes, *_ in self._inputs:
            if name is not None:
                search.find_at((*path, name), what, dtypes)
        outputs = [(name, dtype, None) for name, dtype in self._outputs if name is not None]
        search.add_beside((*path, self._boxes_name), outputs, "it", KeyError)


def _checked_num_categories(num_categories: object, name: object, are_needed: bool) -> int | None:
    if (are_needed or num_categories is not None) and (name is None or num_categories is None):
        raise SettingError(
            "`use_per_category_heatmap`, `num_categories` and `per_category_min_object_sizes` need both "
            f"`categories_in_name` and `num_categories`, got {name!r} and {num_categories!r}."
        )
    return None if num_categories is None else whole_number(num_categories, "num_categories", at_least=1)


def _checked_sizes(sizes: object, argument: str, shape: tuple[int, ...]) -> Any:
    """Check nested lists of ``(*shape, 2)`` numbers, or None."""
    if sizes is None:
        return None
    what = "height and width of each category" if shape else "a height and a width"
    array = np.asarray(sizes, object)
    if array.shape != (*shape, 2):
        raise SettingError(f"`{argument}` must be {what}, got {shown(sizes)}.")
    numbers = number_list(array.ravel(), argument, what, is_finite=False)
    return np.reshape(numbers, array.shape).tolist()
