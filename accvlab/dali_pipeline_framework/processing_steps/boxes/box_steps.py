# SPDX-License-Identifier: Apache-2.0
"""Steps on 2D boxes: format, area, visibility."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import nvidia.dali.fn as fn
from nvidia.dali import types

from ...checks import choice, field_name, flag, number, number_list, number_range
from ...errors import SettingError
from ...operators import functions
from ...operators.bbox_visibility import boxes_of_minimum_size, visible_boxes
from ...operators.element_selection import filter_fields
from ...operators.field_types import NUMBER_TYPES, exact_constant_like, leaf_at
from ...sample_data import FieldPath, GroupFormat, SampleDataGroup
from ...sample_data.dtypes import get_numpy_type_for_dali_type
from ...sample_data.graph_mode import do_not_convert
from ...sample_data.names import Name, Path, format_path, normalized_path
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

_FORMATS = ("xyxy", "xywh", "cxcywh")


class BoxAreaFilter(PipelineStepBase):
    """Keeps the boxes whose area lies in a range, and the elements of other fields that belong to them.

    Every field of boxes of the name, anywhere in the sample: ``(N, 4)`` of any number type, with any N in each
    sample, also 0. The fields named beside it, in the same group, have N elements along their first axis. Kept, in
    order, is what fulfills::

        area_range[0] <= width * height <= area_range[1]      in the unit of the boxes, squared; float32 or float64

    A negative width or height counts as 0, so such a box has the area 0; one with NaN is dropped. Values are
    copied bit by bit; a layout is dropped. Fields of other lengths make the graph fail.

    The fields may be on the CPU or the GPU.

    Example::

        BoxAreaFilter("boxes", area_range=(16, math.inf), further_names=["categories", "depths"])
    """

    treats_elements_alike = True

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
            further_names: Name or names of what else is filtered, beside the boxes.
            box_format: ``"xyxy"``, ``"xywh"`` or ``"cxcywh"``, as in `BoxFormatConverter`.

        Raises:
            SettingError: The areas are no range, or the format is none of the three.
        """
        self._box_names = required_names(box_names, "box_names")
        self._area_range = number_range(area_range, "area_range", at_least=0, may_be_infinite=True)
        self._further_names = as_names(further_names, "further_names")
        self._box_format = choice(box_format, "box_format", _FORMATS)

    declare_images = no_images

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        for path in find_paths(data, self._box_names):
            is_double = leaf_at(data, path).dtype == types.DALIDataType.FLOAT64
            dtype = types.DALIDataType.FLOAT64 if is_double else types.DALIDataType.FLOAT
            mask = self._mask(functions.cast(data.get_item_in_path(path), dtype))
            filter_fields(data.get_parent_of_path(path), [path[-1], *self._further_names], mask)
        return data

    @do_not_convert
    @np.errstate(invalid="ignore", over="ignore")
    def _mask(self, boxes: Any) -> Any:
        width, height = boxes[:, 2], boxes[:, 3]
        if self._box_format == "xyxy":
            width, height = width - boxes[:, 0], height - boxes[:, 1]
        # A product with a factor of 0 instead of `max(..., 0)`, which would hide NaN.
        area = width * height * ((width > 0.0) & (height > 0.0))
        least, most = (float(np.float32(limit)) for limit in self._area_range)  # as DALI takes them
        return (area >= least) & (area <= most)

    _process_arrays = _process

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        search = FieldSearch(data_empty, self, cannot="filter")
        for path in search.find(self._box_names, "boxes", NUMBER_TYPES, group_of="boxes"):
            check_fields(search, data_empty, path, self._further_names)
        return search.result()


# A format is a linear function of the corners x1, y1, x2, y2: one row per number, for x; y is alike.
_FROM_CORNERS = {
    "xyxy": ((1.0, 0.0), (0.0, 1.0)),
    "xywh": ((1.0, 0.0), (-1.0, 1.0)),
    "cxcywh": ((0.5, 0.5), (-1.0, 1.0)),
}


class BoxFormatConverter(PipelineStepBase):
    """Converts every field of boxes of some names, anywhere in the sample, from one format to another.

    Input and output: ``(N, 4)`` float32, with any N in each sample, also 0, on the CPU or the GPU. The formats:

    - ``"xyxy"``: two corners ``x1, y1, x2, y2``, the least and the greatest coordinates;
    - ``"xywh"``: the least corner, width and height;
    - ``"cxcywh"``: the center, width and height.

    Computed in float32; the unit stays as it is (pixels, or shares of the image). A box with NaN or infinity
    becomes NaN. The format of the sample does not change. Boxes of another shape than ``(N, 4)`` make the graph
    fail.

    Example::

        BoxFormatConverter("boxes", from_format="xywh", to_format="xyxy")     # as COCO stores them -> corners
    """

    treats_elements_alike = True

    def __init__(self, box_names: Names, *, from_format: str, to_format: str) -> None:
        """Create the step.

        Args:
            box_names: Name or names of the fields.
            from_format: Format of the input.
            to_format: Format of the output.

        Raises:
            SettingError: A format is none of the three, or something else than names was given.
        """
        self._box_names = required_names(box_names, "box_names")
        self._from_format = choice(from_format, "from_format", _FROM_CORNERS)
        self._to_format = choice(to_format, "to_format", _FROM_CORNERS)

    declare_images = no_images

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        of_axis = np.array(_FROM_CORNERS[self._to_format]) @ np.linalg.inv(_FROM_CORNERS[self._from_format])
        matrix = np.kron(of_axis, np.eye(2)).astype(np.float32)  # the numbers of x and y take turns
        for path in find_paths(data, self._box_names):
            boxes = data.get_item_in_path(path)
            # Fails where boxes have other numbers.
            converted = functions.failing_with("boxes must be four numbers", _transformed, boxes, matrix)
            # Of a batch without any boxes, DALI forgets the number of columns.
            data.set_item_in_path(path, functions.reshape(converted, functions.shape_of(boxes)))
        return data

    _process_arrays = _process

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        search = FieldSearch(data_empty, self, cannot="convert")
        search.find(self._box_names, "boxes", [types.DALIDataType.FLOAT], group_of="boxes")
        return search.result()


@do_not_convert
def _transformed(boxes: Any, matrix: npt.NDArray[np.float32]) -> Any:
    if functions.is_node(boxes):
        return fn.coord_transform(boxes, M=matrix.ravel().tolist())
    with np.errstate(invalid="ignore", over="ignore"):
        return functions.coord_transform(boxes, np.pad(matrix, ((0, 0), (0, 1))))


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

    Any number of boxes. Price on the CPU, per sample, whatever the size of the image is: 1 ms for up to 50 boxes,
    3 ms for 100, 20 ms for 200, 50 ms for 300, all in at most 0.1 GB of memory; 0.2 s for 500, 1 s and 0.8 GB for
    1000, 4 s and 3.5 GB for 2000. Up to 384 boxes, memory grows with the third power of their number, from there
    on with the square (about ``900 N ** 2`` bytes). A canvas of 1600 x 900 in NumPy takes 30 to 180 ms for 300
    boxes. The check for the size takes about 1 ms per batch.

    Example:
        >>> sample = SampleDataGroup()
        >>> sample.add_data_field("boxes", types.DALIDataType.FLOAT)
        >>> sample.add_data_field("depths", types.DALIDataType.FLOAT)
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

    @do_not_convert
    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        boxes_path = _only_path(data, self._bboxes_field_name)
        is_double = leaf_at(data, boxes_path).dtype == types.DALIDataType.FLOAT64
        dtype = types.DALIDataType.FLOAT64 if is_double else types.DALIDataType.FLOAT
        boxes = functions.cast(_on_cpu(data.get_item_in_path(boxes_path)), dtype)
        image_hw = self._size_of_image(data, dtype, boxes)
        masks = []
        num_boxes = functions.shape_of(boxes)[0:1]
        if self._check_for_bbox_occlusion:
            path = _only_path(data, self._depths_field_name)
            depths = functions.reshape(_on_cpu(data.get_item_in_path(path)), num_boxes, layout="")
            masks.append(visible_boxes(boxes, depths, leaf_at(data, path).dtype, image_hw))
        if self._check_for_minimum_size:
            masks.append(boxes_of_minimum_size(boxes, num_boxes, image_hw, self._minimum_bbox_size or 0.0))
        mask = masks[0] & masks[1] if len(masks) == 2 else masks[0]
        path = self._resulting_mask_field_path
        put_beside(data, path, path[-1], types.DALIDataType.BOOL, mask)
        return data

    _process_arrays = _process

    def _size_of_image(self, data: SampleDataGroup, dtype: types.DALIDataType, like: Any) -> Any:
        if self._image_hw is not None:
            return exact_constant_like(np.array(self._image_hw, get_numpy_type_for_dali_type(dtype)), like)
        if self._image_hw_field_name is not None:
            size = _on_cpu(data.get_item_in_path(_only_path(data, self._image_hw_field_name)))
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
            search.add_beside(path, [(path[-1], types.DALIDataType.BOOL, None)], "the mask")
        else:
            search.add("there is no such group to add the mask to", path[:-1])
        return search.result()


def _only_path(data: SampleDataGroup, name: Name | None) -> FieldPath:
    [path] = data.find_all_occurrences(name)  # type: ignore[arg-type]  # a name, as the constructor has seen to
    return path


def _on_cpu(node: Any) -> Any:
    return node.cpu() if functions.is_node(node) and node.device == "gpu" else node
