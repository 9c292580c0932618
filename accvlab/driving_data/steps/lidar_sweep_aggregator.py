# SPDX-License-Identifier: Apache-2.0
"""Join the points of several lidar sweeps."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from nvidia.dali import types

from accvlab.dali_pipeline_framework import ArrayStep, SampleDataGroup, UniformDraw
from accvlab.dali_pipeline_framework.checks import choice, field_name, flag, number, whole_number
from accvlab.dali_pipeline_framework.draws import RandomDraw
from accvlab.dali_pipeline_framework.errors import FieldValueError
from accvlab.dali_pipeline_framework.extension import (
    FieldSearch,
    Key,
    Name,
    Path,
    affine,
    coordinates,
    moved,
    naming_field,
    no_images,
    normalized_path,
    path_in_group,
)
from accvlab.dali_pipeline_framework.sample_data import FieldPath, GroupFormat

_DT = types.DALIDataType
_REAL = (_DT.FLOAT, _DT.FLOAT64)
_FloatArray = npt.NDArray[np.float32]


class LidarSweepAggregator(ArrayStep):
    """Joins the points of earlier lidar sweeps to those of the frame, with a column that tells their age.

    Sweeps as `DrivingProvider` delivers them: a group for the frame and an array of groups, the newest first, each
    with points ``(P, K)`` float32, a matrix ``(4, 4)`` float64 from the coordinates of its sensor to the reference
    frame, and a time, float64, seconds. As ``LoadPointsFromMultiSweeps`` of MMDetection3D and BEVFusion:

    - Points of the frame come first, with an age of 0, then those of the sweeps, in their order; each with the
      time of the frame minus that of the sweep. A sweep without points is one that is not there.
    - ``num_sweeps`` are used: the newest ones, or as drawn, without repetition and in drawn order.
    - ``close_distance``: points of sweeps near their sensor, less far than this in x and y both, are left out:
      those of the vehicle itself. All points of the frame stay.
    - ``fills_up``: where there are no sweeps at all, the points of the frame serve as all of them, with an age
      of 0, and without the close ones.

    The points of the frame are replaced by all of them, ``(P, K)``, or ``(P, K + 1)`` where ``age_column`` is
    None; the sweeps are removed. Computed in float64, and rounded to float32. The step works on arrays only.

    Example::

        LidarSweepAggregator("lidar", sweep_path="sweeps", num_sweeps=9, age_column=4, close_distance=1.0)
    """

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
            fills_up: Whether the points of the frame serve for sweeps where there are none.
            selection: ``"newest"``, or ``"drawn"``: at random among those that are there, if there are more than
                ``num_sweeps``.
            frame: Where the points are then: ``"lidar"``, the coordinates of the sensor in the frame, or
                ``"reference"``; the matrix of the frame is an identity then.
            point_name: Name of the points in each group.
            matrix_name: Name of the matrix in each group.
            timestamp_name: Name of the time in each group.
            key: What the draw is held constant over.

        Raises:
            SettingError: A setting is not of this form.
        """
        self._lidar_path = normalized_path(lidar_path)
        self._sweep_path = path_in_group(sweep_path, "sweep_path")
        self._num_sweeps = None if num_sweeps is None else whole_number(num_sweeps, "num_sweeps", at_least=1)
        self._age_column = None if age_column is None else whole_number(age_column, "age_column", at_least=3)
        self._close_distance = number(close_distance, "close_distance", at_least=0)
        self._fills_up = flag(fills_up, "fills_up")
        self._selection = choice(selection, "selection", ("newest", "drawn"))
        self._frame = choice(frame, "frame", ("lidar", "reference"))
        self._names = (
            field_name(point_name, "point_name"),
            field_name(matrix_name, "matrix_name"),
            field_name(timestamp_name, "timestamp_name"),
        )
        self._key = UniformDraw("order", key=key).key

    declare_images = no_images

    def declare_draws(self, data_empty: SampleDataGroup) -> list[RandomDraw]:
        """Declare a number for each sweep: those with the least numbers are used."""
        sweeps = data_empty.format.get(self._sweep_path)
        if self._selection != "drawn" or not isinstance(sweeps, GroupFormat) or not len(sweeps.names):
            return []
        return [UniformDraw("order", shape=(len(sweeps.names),), key=self._key)]

    def _process_arrays(self, data: SampleDataGroup) -> SampleDataGroup:
        point_name, matrix_name, timestamp_name = self._names
        lidar, array = data.get_item_in_path(self._lidar_path), data.get_item_in_path(self._sweep_path)
        sweeps = [array[number_of_sweep] for number_of_sweep in range(len(array))]
        with naming_field((*self._lidar_path, point_name)):
            own_points = self._with_age(lidar[point_name], 0.0)
        with naming_field((*self._lidar_path, matrix_name)):
            rotation, offset = affine(lidar[matrix_name])
        filling = self._far_ones(own_points)
        if self._frame == "reference":
            filling = _with_coordinates(filling, moved(lidar[matrix_name], coordinates(filling)))
            own_points = _with_coordinates(own_points, moved(lidar[matrix_name], coordinates(own_points)))
        frame_from_reference = np.eye(4)
        if self._frame == "lidar":
            frame_from_reference[:3, :3], frame_from_reference[:3, 3] = rotation.T, -rotation.T @ offset
        parts = [own_points]
        chosen = self._chosen([len(sweep[point_name]) > 0 for sweep in sweeps])
        for number_of_sweep in chosen:
            sweep, path = sweeps[number_of_sweep], (*self._sweep_path, number_of_sweep)
            age = lidar[timestamp_name] - sweep[timestamp_name]
            with naming_field((*path, point_name)):
                points = self._far_ones(self._with_age(sweep[point_name], age))
            with naming_field((*path, matrix_name)):
                affine(sweep[matrix_name])
                frame_from_sweep = frame_from_reference @ sweep[matrix_name]
            parts.append(_with_coordinates(points, moved(frame_from_sweep, coordinates(points))))
        if not chosen and self._fills_up:
            parts += [filling] * (len(sweeps) if self._num_sweeps is None else self._num_sweeps)
        lidar[point_name] = np.concatenate(parts)
        if self._frame == "reference":
            lidar[matrix_name] = np.eye(4)
        data.get_parent_of_path(self._sweep_path).remove_field(self._sweep_path[-1])
        return data

    def _chosen(self, is_there: list[bool]) -> list[int]:
        available = np.flatnonzero(is_there)
        most = len(available) if self._num_sweeps is None else self._num_sweeps
        if self._selection == "drawn" and is_there:
            order = np.argsort(self.draw("order")[available], kind="stable")  # drawn also where all are used
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

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
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


def _with_coordinates(points: _FloatArray, xyz: npt.NDArray[np.float64]) -> _FloatArray:
    changed = points.copy()
    changed[:, :3] = xyz
    return changed
