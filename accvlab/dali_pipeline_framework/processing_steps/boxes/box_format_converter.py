# SPDX-License-Identifier: Apache-2.0
"""Convert boxes between their usual formats."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import nvidia.dali.fn as fn
from nvidia.dali import types

from ...checks import choice
from ...operators import functions
from ...sample_data import SampleDataGroup
from ...sample_data.graph_mode import do_not_convert
from ..image_use import no_images
from ..named_fields import FieldSearch, Names, find_paths, required_names
from ..pipeline_step_base import PipelineStepBase

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
