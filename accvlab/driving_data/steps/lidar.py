# SPDX-License-Identifier: Apache-2.0
"""Steps on lidar points: several sweeps joined, and maps of the depth in images."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from nvidia.dali import types

from accvlab.dali_pipeline_framework import ArrayStep, SampleDataGroup, UniformDraw, checks
from accvlab.dali_pipeline_framework.draws import Draws, RandomDraw
from accvlab.dali_pipeline_framework.errors import FieldValueError, SettingError
from accvlab.dali_pipeline_framework.extension import (
    FieldSearch,
    Float64Array,
    Key,
    Name,
    Names,
    Path,
    affine,
    coordinates,
    find_paths,
    moved,
    naming_field,
    normalized_path,
    path_in_group,
    put_beside,
    required_names,
)
from accvlab.dali_pipeline_framework.sample_data import FieldPath, GroupFormat
from accvlab.dali_pipeline_framework.unknown_arguments import explains_unknown_arguments

_DT = types.DALIDataType
_REAL = (_DT.FLOAT, _DT.FLOAT64)
_FloatArray = npt.NDArray[np.float32]


def _whole_or_none(value: int | None, name: str, at_least: int) -> int | None:
    return None if value is None else checks.whole_number(value, name, at_least=at_least)


class LidarSweepAggregator(ArrayStep):
    """Joins the points of earlier lidar sweeps to the points of the frame, with a column of their age.

    Input, as `DrivingProvider` delivers it: a group for the frame and an array of groups for sweeps, the newest
    first. Each has points ``(P, K)`` float32, a matrix ``(4, 4)`` float64 from the coordinates of its sensor to
    the reference frame, and a time, float64, seconds. The rules are those of ``LoadPointsFromMultiSweeps`` of
    MMDetection3D and BEVFusion:

    - Points of the frame come first, with an age of 0, then the points of the sweeps, in their order; their age is
      the time of the frame minus the time of the sweep. A sweep without points counts as missing.
    - ``num_sweeps`` sweeps are used: the newest ones, or (``selection="drawn"``) random ones without repetition,
      in the order drawn.
    - ``close_distance``: points of sweeps near their sensor, less far than this in x and y both, are left out,
      since they are on the vehicle itself. All points of the frame stay.
    - ``fills_up``: if there are no sweeps at all, copies of the frame's points, without the close ones and with an
      age of 0, take the place of the ``num_sweeps`` sweeps.

    The points of the frame are replaced by the joined points, ``(P, K)``, or ``(P, K + 1)`` where ``age_column``
    is None; the sweeps are removed. Computed in float64, and rounded to float32. The step works on arrays only.

    Example::

        LidarSweepAggregator("lidar", sweep_path="sweeps", num_sweeps=9, age_column=4, close_distance=1.0)
    """

    @explains_unknown_arguments
    def __init__(
        self,
        lidar_path: Path = "lidar",
        *,
        sweep_path: Path = "sweeps",
        num_sweeps: int | None = None,
        age_column: int | None = None,
        close_distance: float = 0.0,
        fills_up: bool = False,
        selection: str = "newest",
        num_candidates: int | None = None,
        frame: str = "lidar",
        point_name: Name = "points",
        matrix_name: Name = "reference_from_lidar",
        timestamp_name: Name = "timestamp",
        key: Key = "sample",
    ) -> None:
        """Create the step.

        Args:
            lidar_path: Name or path of the group of the frame.
            sweep_path: Name or path of the array of groups of the sweeps.
            num_sweeps: Most sweeps that are used; None for all.
            age_column: Number of the column, from 0, that the age replaces; None for a new, last column.
            close_distance: Points of sweeps nearer than this in x and in y are left out, meters.
            fills_up: Whether copies of the frame's points replace the sweeps if there are none.
            selection: ``"newest"``, or ``"drawn"``: at random among the existing sweeps, if there are more than
                ``num_sweeps``.
            num_candidates: Number of newest sweeps of the sample that may be used; None for all.
            frame: Coordinates of the joined points: ``"lidar"``, the sensor's at the time of the frame; or
                ``"reference"``, where the matrix of the frame becomes the identity.
            point_name: Name of the points in each group.
            matrix_name: Name of the matrix in each group.
            timestamp_name: Name of the time in each group.
            key: Scope in which the draw is constant.

        Raises:
            SettingError: A setting is not of this form.
        """
        self._lidar_path = normalized_path(lidar_path)
        self._sweep_path = path_in_group(sweep_path, "sweep_path")
        self._num_sweeps = _whole_or_none(num_sweeps, "num_sweeps", 1)
        self._num_candidates = _whole_or_none(num_candidates, "num_candidates", 1)
        self._age_column = _whole_or_none(age_column, "age_column", 3)
        self._close_distance = checks.number(close_distance, "close_distance", at_least=0)
        self._fills_up = checks.flag(fills_up, "fills_up")
        self._selection = checks.choice(selection, "selection", ("newest", "drawn"))
        self._frame = checks.choice(frame, "frame", ("lidar", "reference"))
        names = {"point_name": point_name, "matrix_name": matrix_name, "timestamp_name": timestamp_name}
        self._names = tuple(checks.field_name(given, name) for name, given in names.items())
        self._key = UniformDraw("order", key=key).key

    reads_pixels = False

    def declare_draws(self, data_empty: SampleDataGroup) -> list[RandomDraw]:
        """Declare a number for each sweep: those with the least numbers are used."""
        sweeps = data_empty.format.get(self._sweep_path)
        if self._selection != "drawn" or not isinstance(sweeps, GroupFormat) or not len(sweeps.names):
            return []
        return [UniformDraw("order", shape=(len(sweeps.names[: self._num_candidates]),), key=self._key)]

    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        """See `ArrayStep.arrays`."""
        point_name, matrix_name, timestamp_name = self._names
        lidar, array = data.get_item_in_path(self._lidar_path), data.get_item_in_path(self._sweep_path)
        sweeps = [array[number_of_sweep] for number_of_sweep in range(len(array))][: self._num_candidates]
        with naming_field((*self._lidar_path, point_name)):
            own_points = self._with_age(lidar[point_name], 0.0)
        with naming_field((*self._lidar_path, matrix_name)):
            rotation, _ = affine(lidar[matrix_name])
            if not np.isfinite(rotation).all() or abs(np.linalg.det(rotation)) < 1e-9:
                raise FieldValueError(f"The matrix must have an inverse, got {rotation.tolist()}.")
        filling, frame_from_reference = self._far_ones(own_points), np.eye(4)
        if self._frame == "reference":
            filling, own_points = (_in_frame(lidar[matrix_name], points) for points in (filling, own_points))
        else:
            frame_from_reference = np.linalg.inv(np.vstack([lidar[matrix_name][:3], frame_from_reference[3]]))
        parts = [own_points]
        chosen = self._chosen([len(sweep[point_name]) > 0 for sweep in sweeps], draws)
        for number_of_sweep in chosen:
            sweep, path = sweeps[number_of_sweep], (*self._sweep_path, number_of_sweep)
            with naming_field((*path, point_name)):
                aged = self._with_age(sweep[point_name], lidar[timestamp_name] - sweep[timestamp_name])
            with naming_field((*path, matrix_name)):
                affine(sweep[matrix_name])
                frame_from_sweep = frame_from_reference @ sweep[matrix_name]
            parts.append(_in_frame(frame_from_sweep, self._far_ones(aged)))
        if not chosen and self._fills_up:
            parts += [filling] * (len(sweeps) if self._num_sweeps is None else self._num_sweeps)
        lidar[point_name] = np.concatenate(parts)
        if self._frame == "reference":
            lidar[matrix_name] = np.eye(4)
        data.get_parent_of_path(self._sweep_path).remove_field(self._sweep_path[-1])
        return data

    def _chosen(self, is_there: list[bool], draws: Draws) -> list[int]:
        available = np.flatnonzero(is_there)
        most = len(available) if self._num_sweeps is None else self._num_sweeps
        if self._selection == "drawn" and is_there:
            order = np.argsort(draws["order"][available], kind="stable")  # drawn also where all are used
            if len(available) > most:
                available = available[order]
        return [int(sweep) for sweep in available[:most]]

    def _with_age(self, points: npt.NDArray[Any], age: float) -> _FloatArray:
        coordinates(points)
        column = points.shape[1] if self._age_column is None else self._age_column
        if column > points.shape[1] or (self._age_column is not None and column == points.shape[1]):
            raise FieldValueError(f"Points must have a column {column} for the age, got the shape {points.shape}.")
        aged = np.empty((len(points), max(points.shape[1], column + 1)), np.float32)
        aged[:, : points.shape[1]] = points
        aged[:, column] = age
        return aged

    def _far_ones(self, points: _FloatArray) -> _FloatArray:
        if not self._close_distance:
            return points
        return points[(np.abs(points[:, :2]) >= self._close_distance).any(axis=1)]

    def format_after(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        """See `ArrayStep.format_after`."""
        search = FieldSearch(data_empty, self)
        groups: list[FieldPath] = [self._lidar_path]
        sweeps = data_empty.format.get(self._sweep_path)
        if isinstance(sweeps, GroupFormat):
            groups += [(*self._sweep_path, name) for name in sweeps.names]
        else:
            search.add("there is no such array of sweeps (`num_sweeps` of a provider)", self._sweep_path, KeyError)
        point_name, matrix_name, timestamp_name = self._names
        for group in groups:
            search.find_at((*group, point_name), "points", (_DT.FLOAT,))
            search.find_at((*group, matrix_name), "a matrix", (_DT.FLOAT64,))
            search.find_at((*group, timestamp_name), "a time", (_DT.FLOAT64,))
        search.raise_problems()
        data_empty.get_parent_of_path(self._sweep_path).remove_field(self._sweep_path[-1])
        return data_empty


def _in_frame(frame_from_points: Float64Array, points: _FloatArray) -> _FloatArray:
    changed = points.copy()
    changed[:, :3] = moved(frame_from_points, coordinates(points))
    return changed


class LidarDepthMapAdder(ArrayStep):
    """Adds to each image the depths of lidar points, as maps of one or several cell sizes.

    Input: points ``(P, K)`` float32 or float64, x, y, z in the first columns; and for each image a projection
    matrix, ``(3, 4)`` or ``(4, 4)``, to pixels times depth. The rules are those of SparseDrive and Sparse4D:

    - The pixel of a point is rounded to whole numbers, halves to even ones. It counts if it is in the image, and
      the depth is at least the first number of ``depth_range``.
    - Its cell of a map with stride s is ``floor(pixel / s)``. If a cell has several points, the nearest one
      counts.
    - Depths beyond the second number of ``depth_range`` become that number. Cells without a point hold -1.

    Added next to each matrix, in the order of the strides: ``(ceil(height / s), ceil(width / s))`` float32,
    meters. Computed in float64. The step works on arrays only. Put it after all steps that move pixels.

    Example::

        LidarDepthMapAdder(
            "image_from_reference", point_path=("lidar", "points"), image_hw=[256, 704],
            strides={"depth_4": 4, "depth_8": 8, "depth_16": 16},
        )
    """

    @explains_unknown_arguments
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
            depth_range: Least depth of a point, and the value that replaces greater depths, meters.
            matrix_path: Name or path of a matrix ``(4, 4)`` that moves the points to the frame that the
                projections start from, e.g. ``("lidar", "reference_from_lidar")``; None if the points are already
                in that frame.

        Raises:
            SettingError: A setting is not of this form.
        """
        self._projection_names = required_names(projection_names, "projection_names")
        self._point_path = normalized_path(point_path)
        rule = "the height and the width of an image, at least 1 pixel each"
        self._image_hw = checks.number_list(image_hw, "image_hw", rule, count=2)
        if min(self._image_hw) < 1:
            raise checks.setting_error("image_hw", rule, image_hw)
        if not isinstance(strides, Mapping) or not strides:
            rule = "`strides` must be a dict of each map's name and stride"
            raise SettingError(f"{rule}, got {checks.shown(strides)}.")
        self._strides = {
            name: checks.whole_number(stride, f"strides[{name!r}]", at_least=1) for name, stride in strides.items()
        }
        self._depth_range = checks.number_range(depth_range, "depth_range", above=0, may_be_infinite=True)
        self._matrix_path = None if matrix_path is None else normalized_path(matrix_path)

    reads_pixels = False

    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        """See `ArrayStep.arrays`."""
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

    def format_after(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        """See `ArrayStep.format_after`."""
        search = FieldSearch(data_empty, self)
        search.find_at(self._point_path, "points", _REAL)
        if self._matrix_path is not None:
            search.find_at(self._matrix_path, "a matrix", _REAL)
        for path in search.find(self._projection_names, "a matrix", _REAL, group_of="projection matrices"):
            search.add_beside(path, [(name, _DT.FLOAT, 2) for name in self._strides])
        return search.result()
