# SPDX-License-Identifier: Apache-2.0
"""Maps and boxes around the vehicle, painted as one raster of classes, seen from above."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import attrs
import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework.extension import needed_package

_LINE_WIDTH_PX = 2


class MapSource(Protocol):
    """Where a recipe gets a map from: an object of yours with this method. It is copied to the workers."""

    def objects_near(
        self, map_name: str, layer: str, kind: str, center: tuple[float, float], radius: float
    ) -> Iterable[npt.ArrayLike]:
        """Get the shapes of the objects of a layer that touch a circle.

        Args:
            map_name: Name of the map: ``"us-nv-las-vegas-strip"``.
            layer: Name of the layer: ``"LANE"``, ``"INTERSECTION"``, ``"WALKWAYS"``, ``"LANE_CONNECTOR"``.
            kind: ``"polygon"``: the outlines of areas; ``"line"``: the center lines.
            center: x and y, meters, in the world.
            radius: Meters.

        Returns:
            Points of each shape, ``(n, 2)``, meters, in the world.
        """


@attrs.frozen
class RasterClass:
    """Map objects that are painted as one class.

    Attributes:
        kind: ``"polygon"`` or ``"line"``, of the map; or ``"box"``.
        names: Layers of the map, or categories of boxes.
    """

    kind: str
    names: Sequence[str]


@attrs.frozen
class RasterGrid:
    """Cells ahead of the vehicle, and to both sides.

    Attributes:
        hw: Number of cells ahead, and from the right to the left.
        cell_size: Meters.
    """

    hw: tuple[int, int]
    cell_size: float

    def empty(self) -> npt.NDArray[np.uint8]:
        """A raster of class 0, ``(cells ahead, cells across)``."""
        return np.zeros(self.hw, np.uint8)

    def paint(
        self, raster: npt.NDArray[np.uint8], shapes: Iterable[npt.ArrayLike], number: int, *, is_line: bool = False
    ) -> None:
        """Paint shapes ``(n, 2)``, x ahead and y to the left, meters, over what is there.

        Corners are rounded to whole cells, towards 0, and then filled, or joined by lines of two cells.
        """
        cv2 = needed_package("cv2")
        mask = np.zeros(self.hw[::-1], np.uint8)
        for shape in shapes:
            cells = np.asarray(shape, np.float64) / self.cell_size + [0, self.hw[1] / 2]
            corners = np.clip(cells, -_FAR_PX, _FAR_PX).astype(np.int32)[:, np.newaxis]
            if is_line:
                cv2.polylines(mask, [corners], isClosed=False, color=1, thickness=_LINE_WIDTH_PX)
            else:
                cv2.fillPoly(mask, [corners], color=1)
        raster[mask.T > 0] = number


# OpenCV takes no coordinates beyond 16 bits, and some.
_FAR_PX = 1 << 24
