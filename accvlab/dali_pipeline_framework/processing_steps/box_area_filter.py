# SPDX-License-Identifier: Apache-2.0
"""Drop boxes that are too small or too large."""

from __future__ import annotations

from collections.abc import Sequence

import nvidia.dali.fn as fn
from nvidia.dali import types
from nvidia.dali.data_node import DataNode

from ..checks import choice, field_name, number
from ..operators.field_types import NUMBER_TYPES, leaf_at
from ..sample_data import Name, SampleDataGroup
from .filtered_group import check_fields, filter_fields
from .image_use import no_images
from .named_fields import FieldSearch, as_names
from .pipeline_step_base import PipelineStepBase

_FORMATS = ("xyxy", "xywh", "cxcywh")


class BoxAreaFilter(PipelineStepBase):
    """Keeps the boxes whose area lies in a range, and the elements of other fields that belong to them.

    Every field of boxes of the name, anywhere in the sample: ``(N, 4)`` of any number type, with any N in each
    sample, also 0. The fields named beside it, in the same group, have N elements along their first axis. Kept, in
    order, is what fulfills::

        minimum_area <= width * height <= maximum_area        in the unit of the boxes, squared; float32 or float64

    A negative width or height counts as 0, so such a box has the area 0; one with NaN is dropped. Values are
    copied bit by bit; a layout is dropped. Fields of other lengths make the graph
    fail.

    The fields may be on the CPU or the GPU. Price: about 1 ms per batch of 8 for 50 boxes.

    Example::

        BoxAreaFilter("boxes", minimum_area=16, further_field_names=["categories", "depths"])
    """

    def __init__(
        self,
        boxes_field_name: Name,
        minimum_area: float = 0.0,
        maximum_area: float = float("inf"),
        further_field_names: Name | Sequence[Name] | None = None,
        box_format: str = "xyxy",
    ) -> None:
        """Create the step.

        Args:
            boxes_field_name: Name of the boxes.
            minimum_area: Least area.
            maximum_area: Greatest area.
            further_field_names: Name or names of what else is filtered, beside the boxes.
            box_format: ``"xyxy"``, ``"xywh"`` or ``"cxcywh"``, as in `BoxFormatConverter`.

        Raises:
            SettingError: The areas are no range, or the format is none of the three.
        """
        self._boxes_field_name = field_name(boxes_field_name, "boxes_field_name")
        self._minimum_area = number(minimum_area, "minimum_area", at_least=0, may_be_infinite=True)
        least = self._minimum_area
        self._maximum_area = number(
            maximum_area,
            "maximum_area",
            at_least=least,
            may_be_infinite=True,
            advice="`minimum_area` is its limit.",
        )
        self._further_field_names = as_names(further_field_names, "further_field_names")
        self._box_format = choice(box_format, "box_format", _FORMATS)

    declare_images = no_images

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        for path in data.find_all_occurrences(self._boxes_field_name):
            is_double = leaf_at(data, path).dtype == types.DALIDataType.FLOAT64
            dtype = types.DALIDataType.FLOAT64 if is_double else types.DALIDataType.FLOAT
            mask = self._mask(fn.cast(data.get_item_in_path(path), dtype=dtype))
            filter_fields(data.get_parent_of_path(path), [path[-1], *self._further_field_names], mask)
        return data

    def _mask(self, boxes: DataNode) -> DataNode:
        width, height = boxes[:, 2], boxes[:, 3]
        if self._box_format == "xyxy":
            width, height = width - boxes[:, 0], height - boxes[:, 1]
        # A product with a factor of 0 instead of `max(..., 0)`, which would hide NaN.
        area = width * height * ((width > 0.0) & (height > 0.0))
        return (area >= self._minimum_area) & (area <= self._maximum_area)

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        search = FieldSearch(data_empty, self, cannot="filter")
        for path in search.find(self._boxes_field_name, "boxes", NUMBER_TYPES, group_of="boxes"):
            check_fields(search, data_empty, path, self._further_field_names)
        search.raise_problems()
        return data_empty
