# SPDX-License-Identifier: Apache-2.0
"""Steps on vectors: lines of maps, masks seen from above, futures of objects and of the vehicle."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from nvidia.dali import types

from accvlab.dali_pipeline_framework import ArrayStep, SampleDataGroup, checks
from accvlab.dali_pipeline_framework.draws import Draws
from accvlab.dali_pipeline_framework.errors import FieldValueError, SettingError
from accvlab.dali_pipeline_framework.extension import (
    FieldSearch,
    Float64Array,
    Name,
    Names,
    Path,
    coordinates,
    find_paths,
    naming_field,
    normalized_path,
    path_in_group,
    put_beside,
    required_names,
)
from accvlab.dali_pipeline_framework.sample_data import GroupFormat
from accvlab.dali_pipeline_framework.unknown_arguments import explains_unknown_arguments

_DT = types.DALIDataType
_INTEGERS = (_DT.INT32, _DT.INT64)


def _lines_of(points: Float64Array, counts: _Array, count_name: Name = "num_points") -> list[Float64Array]:
    """Points of lines, one after the other, as one array for each line."""
    if points.ndim != 2 or counts.ndim != 1 or counts.sum() != len(points) or (counts < 1).any():
        raise FieldValueError(
            f"There must be as many points as `{count_name}` counts, at least one for each line; got points "
            f"of shape {points.shape} for {len(counts)} lines of {int(counts.sum())} points."
        )
    return np.split(points, np.cumsum(counts)[:-1]) if len(counts) else []


class MapLineVectorizer(ArrayStep):
    """Adds the lines of a map with a fixed number of points, in all orders that mean the same line.

    Input, as `DrivingProvider` delivers it: points ``(P, D)`` float32 or float64 of all lines, one after the
    other, and next to them ``(L,)`` numbers of points. Each line gets ``num_points`` points at equal distances
    along it, from its first to its last point. Next to them, the step adds a ``(L, orders, num_points, D)``
    float32 array, as SparseDrive and MapTR take it. With n points there are ``2 * (n - 1)`` orders:

    - A closed line (it ends where it begins) is given once from each of its n - 1 points, all the way around, in
      both directions; the first point is repeated at the end.
    - An open line is given forward and reversed. The other orders hold ``fill_value``.

    Without ``has_orders`` there is one order, forward. Computed in float64. The step works on arrays only.

    Example::

        MapLineVectorizer("points", count_name="num_points", vector_name="vectors", num_points=20)
    """

    @explains_unknown_arguments
    def __init__(
        self,
        point_names: Names,
        *,
        count_name: Name,
        vector_name: Name,
        num_points: int = 20,
        has_orders: bool = True,
        fill_value: float = 1e5,
        closing_distance: float = 1e-3,
    ) -> None:
        """Create the step.

        Args:
            point_names: Name or names of the points, anywhere in the sample.
            count_name: Name of the numbers of points of each line, next to the points.
            vector_name: Name of the field to add, next to the points.
            num_points: Number of points of each line, at least 2.
            has_orders: Whether all orders are added, or only the given one.
            fill_value: Value of orders that an open line does not have.
            closing_distance: A line is closed if no coordinate of its last point differs from the first by
                more than this.

        Raises:
            SettingError: A setting is not of this form.
        """
        self._point_names = required_names(point_names, "point_names")
        self._count_name = checks.field_name(count_name, "count_name")
        self._vector_name = checks.field_name(vector_name, "vector_name")
        self._num_points = checks.whole_number(num_points, "num_points", at_least=2)
        self._has_orders = checks.flag(has_orders, "has_orders")
        self._fill_value = checks.number(fill_value, "fill_value")
        self._closing_distance = checks.number(closing_distance, "closing_distance", at_least=0)

    reads_pixels = False

    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        """See `ArrayStep.arrays`."""
        for path in find_paths(data, self._point_names):
            parent = data.get_parent_of_path(path)
            with naming_field(path):
                vectors = self._vectors(parent[path[-1]], parent[self._count_name])
            put_beside(data, path, self._vector_name, _DT.FLOAT, vectors, ndim=4)
        return data

    def _vectors(self, points: _Array, counts: _Array) -> npt.NDArray[np.float32]:
        lines = _lines_of(np.asarray(points, np.float64), counts, self._count_name)
        count = self._num_points
        orders = 2 * (count - 1) if self._has_orders else 1
        vectors = np.full((len(counts), orders, count, points.shape[1]), self._fill_value, np.float32)
        for number_of_line, line in enumerate(lines):
            vector = resampled(line, count)
            if not self._has_orders:
                vectors[number_of_line, 0] = vector
            elif np.abs(vector[0] - vector[-1]).max() <= self._closing_distance:
                vectors[number_of_line] = _orders_of_ring(vector[:-1])
            else:
                vectors[number_of_line, :2] = vector, vector[::-1]
        return vectors

    def format_after(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        """See `ArrayStep.format_after`."""
        search = FieldSearch(data_empty, self)
        for path in search.find(self._point_names, "points", (_DT.FLOAT, _DT.FLOAT64), group_of="points of lines"):
            search.find_at((*path[:-1], self._count_name), "numbers of points", _INTEGERS)
            search.add_beside(path, [(self._vector_name, _DT.FLOAT, 4)])
        return search.result()


def resampled(line: Float64Array, count: int) -> Float64Array:
    """Points at equal distances along a line ``(P, D)``, from its first to its last point: ``(count, D)``."""
    at = np.append(0.0, np.cumsum(np.linalg.norm(np.diff(line, axis=0), axis=1)))
    wanted = np.linspace(0, at[-1], count)
    return np.stack([np.interp(wanted, at, axis) for axis in line.T], axis=-1)


def _orders_of_ring(ring: Float64Array) -> Float64Array:
    """All ways to go once around points ``(n - 1, D)``: ``(2 * (n - 1), n, D)``."""
    count = len(ring)
    # Row s is the ring rolled by s: its first point comes to place s.
    places = (np.arange(count + 1) - np.arange(count)[:, np.newaxis]) % count
    return np.concatenate([ring[places], ring[::-1][places]])


_REAL = (_DT.FLOAT, _DT.FLOAT64)
_Array: TypeAlias = npt.NDArray[Any]
_Mask: TypeAlias = npt.NDArray[np.bool_]

Classes: TypeAlias = Sequence[int | Sequence[int]]
"""Numbers of categories, one mask for each; a sequence of numbers makes one mask of several categories."""


class BEVMaskAdder(ArrayStep):
    """Adds masks of the ground, seen from above: one for each class of lines, areas, and boxes.

    Lines and boxes must be as `DrivingProvider` delivers them. The masks are added as one field ``(masks, cells
    in x, cells in y)``, UINT8: 1 where a cell belongs to a class and 0 elsewhere, as in BEVFusion. Cell ``[i, j]``
    is the square whose corner with the least coordinates is ``(x_range[0] + i * cell_size, y_range[0] + j *
    cell_size)``. It belongs to

    - a line, if its center is at most ``line_width / 2`` away from the line;
    - an area, given by the line around it (closed, or closed by a straight line from its last to its first point),
      if its center is inside, by the even-odd rule;
    - a box, if its center is inside the footprint of the box, or on its border.

    Masks are in the order of ``lines``, ``areas``, ``boxes``. Boxes or lines of other categories are left out.
    The step works on arrays only.

    Example::

        BEVMaskAdder("masks", x_range=(-50, 50), y_range=(-50, 50), cell_size=0.5, lines=[0, 1], boxes=[[0, 1]])
    """

    @explains_unknown_arguments
    def __init__(
        self,
        mask_path: Path,
        *,
        x_range: Sequence[float],
        y_range: Sequence[float],
        cell_size: float,
        lines: Classes = (),
        areas: Classes = (),
        boxes: Classes = (),
        line_width: float = 1.0,
        line_path: Path = "map_lines",
        box_path: Path = "boxes",
    ) -> None:
        """Create the step.

        Args:
            mask_path: Name or path of the field to add.
            x_range: Least and greatest x of the grid, meters.
            y_range: Least and greatest y of the grid, meters.
            cell_size: Length of a side of a cell, meters; the ranges are whole multiples of it.
            lines: Categories of map lines that are drawn as lines: one mask for each, or for each list of them.
            areas: Categories of map lines that are drawn as areas.
            boxes: Categories of boxes.
            line_width: Width of lines, meters.
            line_path: Name or path of the group of map lines.
            box_path: Name or path of the group of boxes.

        Raises:
            SettingError: A setting is not of this form, or there is nothing to draw.
        """
        self._mask_path = path_in_group(mask_path, "mask_path")
        self._cell_size = checks.number(cell_size, "cell_size", above=0)
        self._x_range = checks.number_range(x_range, "x_range")
        self._y_range = checks.number_range(y_range, "y_range")
        self._shape = tuple(
            _num_cells(extent, self._cell_size, name)
            for extent, name in ((self._x_range, "x_range"), (self._y_range, "y_range"))
        )
        self._lines = _checked_classes(lines, "lines")
        self._areas = _checked_classes(areas, "areas")
        self._boxes = _checked_classes(boxes, "boxes")
        self._line_width = checks.number(line_width, "line_width", above=0)
        self._line_path = normalized_path(line_path)
        self._box_path = normalized_path(box_path)
        if not self._lines and not self._areas and not self._boxes:
            raise SettingError("One of `lines`, `areas` and `boxes` must name a category.")

    reads_pixels = False

    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        """See `ArrayStep.arrays`."""
        masks: list[_Mask] = []
        if self._lines or self._areas:
            group = data.get_item_in_path(self._line_path)
            with naming_field((*self._line_path, "points")):
                lines = _lines_of(self._in_cells(group["points"]), group["num_points"])
            if group["categories"].shape != group["num_points"].shape:
                raise FieldValueError(
                    f"There must be one category for each line; got {len(group['categories'])} categories for "
                    f"{len(lines)} lines."
                )
            masks += [self._drawn(of, lines, group["categories"], self._draw_line) for of in self._lines]
            masks += [self._drawn(of, lines, group["categories"], _draw_area) for of in self._areas]
        if self._boxes:
            group = data.get_item_in_path(self._box_path)
            with naming_field((*self._box_path, "centers")):
                centers = self._in_cells(group["centers"])
            sizes = np.asarray(group["sizes"], np.float64)[:, :2] / self._cell_size
            boxes = list(zip(centers, sizes, group["yaws"], strict=True))
            masks += [self._drawn(of, boxes, group["categories"], _draw_box) for of in self._boxes]
        put_beside(data, self._mask_path, self._mask_path[-1], _DT.UINT8, np.stack(masks).astype(np.uint8), ndim=3)
        return data

    def _in_cells(self, points: _Array) -> Float64Array:
        """x and y of points, in cells of the grid: ``(P, 2)``."""
        xy = (coordinates(points, 2) - (self._x_range[0], self._y_range[0])) / self._cell_size
        if not np.isfinite(xy).all():
            raise FieldValueError("Coordinates must be finite numbers.")
        return xy

    def _drawn(
        self,
        of: Sequence[int],
        elements: Sequence[Any],
        categories: _Array,
        draw: Callable[[_Mask, Any], None],
    ) -> _Mask:
        mask = np.zeros(self._shape, bool)
        for element, category in zip(elements, categories.tolist(), strict=True):
            if category in of:
                draw(mask, element)
        return mask

    def _draw_line(self, mask: _Mask, line: Float64Array) -> None:
        distance = self._line_width / self._cell_size / 2
        segments = itertools.pairwise(line) if len(line) > 1 else [(line[0], line[0])]
        for start, end in segments:
            window, centers = _window(mask, np.minimum(start, end) - distance, np.maximum(start, end) + distance)
            along = end - start
            share = (centers - start) @ along / max(along @ along, np.finfo(np.float64).tiny)
            nearest = start + np.clip(share, 0, 1)[..., np.newaxis] * along
            window |= ((centers - nearest) ** 2).sum(axis=-1) <= distance**2

    def format_after(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        """See `ArrayStep.format_after`."""
        search = FieldSearch(data_empty, self)
        if self._lines or self._areas:
            search.find_at((*self._line_path, "points"), "points of lines", _REAL)
            search.find_at((*self._line_path, "num_points"), "numbers of points", _INTEGERS)
            search.find_at((*self._line_path, "categories"), "categories", _INTEGERS)
        if self._boxes:
            for name in ("centers", "sizes", "yaws"):
                search.find_at((*self._box_path, name), f"{name} of boxes", _REAL)
            search.find_at((*self._box_path, "categories"), "categories", _INTEGERS)
        if isinstance(data_empty.format.get(self._mask_path[:-1]), GroupFormat):
            search.add_beside(self._mask_path, [(self._mask_path[-1], _DT.UINT8, 3)], "the masks")
        else:
            search.add("there is no such group for the masks", self._mask_path[:-1], KeyError)
        return search.result()


def _window(mask: _Mask, least: Float64Array, greatest: Float64Array) -> tuple[_Mask, Float64Array]:
    """The part of a mask whose cells may have a center between two corners, and these centers ``(w, h, 2)``."""
    first = np.clip(np.floor(least - 0.5), 0, mask.shape).astype(int)
    end = np.clip(np.ceil(greatest + 0.5), first, mask.shape).astype(int)
    x, y = (np.arange(*ends) + 0.5 for ends in zip(first, end, strict=True))
    centers = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1)
    return mask[first[0] : end[0], first[1] : end[1]], centers


def _draw_area(mask: _Mask, ring: Float64Array) -> None:
    """Draw by the even-odd rule: each edge toggles all cells of a column above the place where it is crossed."""
    toggles = np.zeros((mask.shape[0], mask.shape[1] + 1), np.int64)
    for start, end in zip(ring, np.roll(ring, -1, axis=0), strict=True):
        left, right = sorted((start, end), key=lambda point: float(point[0]))
        # Columns whose center is in [left, right).
        columns = np.arange(*np.clip(np.ceil([left[0] - 0.5, right[0] - 0.5]), 0, len(mask)).astype(int))
        if len(columns):
            share = (columns + 0.5 - left[0]) / (right[0] - left[0])
            crossed = left[1] + share * (right[1] - left[1])
            np.add.at(toggles, (columns, np.clip(np.ceil(crossed - 0.5), 0, mask.shape[1]).astype(int)), 1)
    mask |= np.cumsum(toggles, axis=1)[:, :-1] % 2 == 1


def _draw_box(mask: _Mask, box: tuple[Float64Array, Float64Array, float]) -> None:
    center, size, yaw = box
    turn = np.array([[np.cos(yaw), np.sin(yaw)], [-np.sin(yaw), np.cos(yaw)]])  # box_from_grid
    reach = np.abs(turn.T) @ size / 2
    window, centers = _window(mask, center - reach, center + reach)
    window |= (np.abs((centers - center) @ turn.T) <= size / 2).all(axis=-1)


def _num_cells(extent: tuple[float, float], cell_size: float, name: str) -> int:
    cells = (extent[1] - extent[0]) / cell_size
    if round(cells) < 1 or abs(cells - round(cells)) > 1e-6:
        raise SettingError(
            f"`{name}` must be a whole multiple of `cell_size` {cell_size:g}, got {checks.shown(extent)}."
        )
    return round(cells)


def _checked_classes(classes: object, name: str) -> tuple[tuple[int, ...], ...]:
    rule = "numbers of categories, or sequences of such numbers for one mask each"
    given = checks.elements(classes)
    masks = [checks.elements(one) if checks.elements(one) is not None else [one] for one in given or ()]
    if given is None or not all(masks):
        raise checks.setting_error(name, rule, classes)
    return tuple(checks.whole_number_list(mask, name, rule, at_least=0) for mask in masks)


_RIGHT = {"x": (1.0, 0.0), "-x": (-1.0, 0.0), "y": (0.0, 1.0), "-y": (0.0, -1.0)}


class FutureTrajectoryAdder(ArrayStep):
    """Adds the offsets of objects or of the vehicle from frame to frame, flags of the known ones, and a driving
    command.

    The input is future places as `DrivingProvider` delivers them: of objects, ``(N, T, 3)``, next to their present
    places ``(N, 3)``; or of the vehicle, ``(T, 3)``, whose present place is the origin. A BOOL field next to them,
    ``(N, T)`` or ``(T,)``, says which are known. All are in the frame of reference of the sample. The step adds,
    in x and y, as SparseDrive and UniAD take them:

    - the offsets, ``(N, T, 2)`` or ``(T, 2)`` float32, meters: ``place[t] - place[t - 1]``, 0 where not known;
    - whether they are known, ``(N, T)`` or ``(T,)`` float32, 1 or 0. From the first unknown place on, no offset is
      known;
    - for the vehicle, if ``command_name`` is given, a one-hot ``(3,)`` float32: right, left, straight on. It is a
      turn if the last place before the first unknown one is at least ``command_distance`` to the right or left.

    Computed in float64. The step works on arrays only.

    Example::

        FutureTrajectoryAdder(
            "future_centers", known_name="is_future_known", present_name="centers",
            offset_name="future_offsets", mask_name="future_mask",
        )
    """

    @explains_unknown_arguments
    def __init__(
        self,
        future_names: Names,
        *,
        known_name: Name,
        offset_name: Name,
        mask_name: Name,
        present_name: Name | None = None,
        command_name: Name | None = None,
        right: str = "x",
        command_distance: float = 2.0,
    ) -> None:
        """Create the step.

        Args:
            future_names: Name or names of the future places, anywhere in the sample.
            known_name: Name of the flags, next to the future places, that say which are known.
            offset_name: Name of the offsets.
            mask_name: Name of the flags that say which offsets are known.
            present_name: Name of the present places, next to the future ones; None for the vehicle, which is at
                the origin.
            command_name: Name of the command, for the vehicle only; None for no command.
            right: Direction to the right: "x" in the frame of nuScenes' lidar, "-y" in the frame of a vehicle
                whose x is ahead; or "-x", "y".
            command_distance: The command is a turn if the last known place is at least this far to the right or
                left, meters.

        Raises:
            SettingError: A setting is not of this form, or a command is requested for objects.
        """
        self._future_names = required_names(future_names, "future_names")
        self._known_name = checks.field_name(known_name, "known_name")
        self._offset_name = checks.field_name(offset_name, "offset_name")
        self._mask_name = checks.field_name(mask_name, "mask_name")
        self._present_name = None if present_name is None else checks.field_name(present_name, "present_name")
        self._command_name = None if command_name is None else checks.field_name(command_name, "command_name")
        self._right = checks.choice(right, "right", tuple(_RIGHT))
        self._command_distance = checks.number(command_distance, "command_distance", above=0)
        if self._command_name is not None and self._present_name is not None:
            raise SettingError("`command_name` is for the vehicle: it does not go with `present_name`.")

    reads_pixels = False

    def _added(self) -> list[tuple[Name, types.DALIDataType, int]]:
        """Name, type and number of axes of what is added."""
        ndim = 1 if self._present_name is None else 2
        added = [(self._offset_name, _DT.FLOAT, ndim + 1), (self._mask_name, _DT.FLOAT, ndim)]
        return added if self._command_name is None else [*added, (self._command_name, _DT.FLOAT, 1)]

    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        """See `ArrayStep.arrays`."""
        for path in find_paths(data, self._future_names):
            parent = data.get_parent_of_path(path)
            present = (
                np.zeros(parent[path[-1]].shape[-1:]) if self._present_name is None else parent[self._present_name]
            )
            with naming_field(path):
                values = self._values(parent[path[-1]], parent[self._known_name], present)
            for (name, dtype, ndim), value in zip(self._added(), values, strict=True):
                put_beside(data, path, name, dtype, value.astype(np.float32), ndim)
        return data

    def _values(self, future: _Array, is_known: _Array, present: _Array) -> list[npt.NDArray[np.float64]]:
        num_axes = 2 if self._present_name is None else 3
        shapes = [future.shape, is_known.shape, present.shape]
        wanted = [future.shape, future.shape[:-1], (*future.shape[:-2], *future.shape[-1:])]
        if future.ndim != num_axes or future.shape[-1] < 2 or shapes != wanted:
            raise FieldValueError(
                f"Future places must be {'(T, 3)' if num_axes == 2 else '(N, T, 3)'}, with one flag for each and, "
                f"of objects, one present place for each; got the shapes {', '.join(map(str, shapes))}."
            )
        places = np.concatenate([present[..., np.newaxis, :], future], axis=-2)[..., :2].astype(np.float64)
        mask = np.logical_and.accumulate(is_known, axis=-1)
        offsets = np.where(mask[..., np.newaxis], np.diff(places, axis=-2), 0)
        values = [offsets, mask.astype(np.float64)]
        if self._command_name is not None:
            to_the_right = offsets.sum(axis=0) @ _RIGHT[self._right]
            is_turn = [to_the_right >= self._command_distance, to_the_right <= -self._command_distance]
            values.append(np.array([*is_turn, not any(is_turn)], np.float64))
        return values

    def format_after(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        """See `ArrayStep.format_after`."""
        search = FieldSearch(data_empty, self)
        for path in search.find(self._future_names, "places", _REAL, group_of="future places"):
            search.find_at((*path[:-1], self._known_name), "what is known", (_DT.BOOL,))
            if self._present_name is not None:
                search.find_at((*path[:-1], self._present_name), "present places", _REAL)
            search.add_beside(path, self._added())
        return search.result()
