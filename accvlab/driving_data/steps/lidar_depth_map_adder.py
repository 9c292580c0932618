# SPDX-License-Identifier: Apache-2.0
"""Add maps of the depth of lidar points in images."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from nvidia.dali import types

from accvlab.dali_pipeline_framework import ArrayStep, SampleDataGroup
from accvlab.dali_pipeline_framework.checks import number_list, number_range, shown, whole_number
from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.extension import (
    FieldSearch,
    Float64Array,
    Name,
    Names,
    Path,
    coordinates,
    find_paths,
    moved,
    naming_field,
    no_images,
    normalized_path,
    put_beside,
    required_names,
)

_DT = types.DALIDataType
_REAL = (_DT.FLOAT, _DT.FLOAT64)


class LidarDepthMapAdder(ArrayStep):
    """Adds to each image the depths of lidar points, as maps of one or several cell sizes.

    Points ``(P, K)`` float32 or float64, x, y, z in the first columns; a projection matrix ``(3, 4)`` or
    ``(4, 4)`` for each image, to pixels times depth. As the depth maps of SparseDrive and Sparse4D:

    - The pixel of a point is rounded to whole numbers, halves to even ones. It counts if it is in the image, and
      the depth is at least the first number of ``depth_range``.
    - Its cell of a map with stride s is ``floor(pixel / s)``. Of several points in a cell, the nearest one counts.
    - Depths beyond the second number of ``depth_range`` become that number. Cells without a point hold -1.

    Added beside each matrix, in the order of the strides: ``(ceil(height / s), ceil(width / s))`` float32, meters.
    Computed in float64. The step works on arrays only. Put it behind all steps that move pixels.

    Example::

        LidarDepthMapAdder(
            "image_from_reference", point_path=("lidar", "points"), image_hw=[256, 704],
            strides={"depth_4": 4, "depth_8": 8, "depth_16": 16},
        )
    """

    def __init__(
        self,
        projection_names: Names,
        *,
        point_path: Path,
        image_hw: Sequence[int],
        strides: Mapping[Name, int],
        depth_range: tuple[float, float] = (0.1, 60.0),
        matrix_path: Path | None = None,
    ) -> None:
        """Create the step.

        Args:
            projection_names: Name or names of the projection matrices, anywhere in the sample.
            point_path: Name or path of the points.
            image_hw: Height and width of the images that the matrices project to, pixels.
            strides: Size of a cell in pixels, by the name of the map.
            depth_range: Least depth of a point, and what greater depths become, meters.
            matrix_path: Name or path of a matrix ``(4, 4)`` that moves the points to the frame that the
                projections start from, e.g. ``("lidar", "reference_from_lidar")``; None where they are in it.

        Raises:
            SettingError: A setting is not of this form.
        """
        self._projection_names = required_names(projection_names, "projection_names")
        self._point_path = normalized_path(point_path)
        self._image_hw = number_list(image_hw, "image_hw", "the height and the width of an image", count=2)
        if min(self._image_hw) < 1:
            raise SettingError(f"`image_hw` must be at least 1 pixel in height and width, got {shown(image_hw)}.")
        if not isinstance(strides, Mapping) or not strides:
            raise SettingError(f"`strides` must be a dict of each map's name and stride, got {shown(strides)}.")
        self._strides = {
            name: whole_number(stride, f"strides[{name!r}]", at_least=1) for name, stride in strides.items()
        }
        self._depth_range = number_range(depth_range, "depth_range", above=0, may_be_infinite=True)
        self._matrix_path = None if matrix_path is None else normalized_path(matrix_path)

    declare_images = no_images

    def _process_arrays(self, data: SampleDataGroup) -> SampleDataGroup:
        with naming_field(self._point_path):
            points = coordinates(data.get_item_in_path(self._point_path))
        if self._matrix_path is not None:
            with naming_field(self._matrix_path):
                points = moved(data.get_item_in_path(self._matrix_path), points)
        for path in find_paths(data, self._projection_names):
            with naming_field(path):
                projected = moved(data.get_item_in_path(path), points)
            for name, depths in zip(self._strides, self._maps(projected), strict=True):
                put_beside(data, path, name, _DT.FLOAT, depths, ndim=2)
        return data

    def _maps(self, projected: Float64Array) -> list[npt.NDArray[np.float32]]:
        """Make the maps of points ``(P, 3)``: pixels times depth, and depth."""
        height, width = self._image_hw
        least, greatest = self._depth_range
        projected = projected[projected[:, 2] >= least]
        with np.errstate(over="ignore"):
            pixels = np.rint(projected[:, :2] / projected[:, 2:])
        x, y = pixels.T
        is_inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
        depths = np.minimum(projected[is_inside, 2], greatest)
        x, y = pixels[is_inside].astype(np.int64).T
        far_to_near = np.argsort(-depths, kind="stable")
        x, y, depths = x[far_to_near], y[far_to_near], depths[far_to_near]
        maps = []
        for stride in self._strides.values():
            depth_map = np.full((math.ceil(height / stride), math.ceil(width / stride)), -1, np.float32)
            depth_map[y // stride, x // stride] = depths  # of equal cells, the last one stays
            maps.append(depth_map)
        return maps

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        search = FieldSearch(data_empty, self)
        search.find_at(self._point_path, "points", _REAL)
        if self._matrix_path is not None:
            search.find_at(self._matrix_path, "a matrix", _REAL)
        for path in search.find(self._projection_names, "a matrix", _REAL, group_of="projection matrices"):
            search.add_beside(path, [(name, _DT.FLOAT, 2) for name in self._strides])
        return search.result()
