# SPDX-License-Identifier: Apache-2.0
"""Drop boxes that are too small or too large."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from nvidia.dali import types

from ...checks import choice, number_range
from ...operators import functions
from ...operators.element_selection import filter_fields
from ...operators.field_types import NUMBER_TYPES, leaf_at
from ...sample_data import SampleDataGroup
from ...sample_data.graph_mode import do_not_convert
from ..image_use import no_images
from ..named_fields import FieldSearch, Names, as_names, check_fields, find_paths, required_names
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
