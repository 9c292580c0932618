# SPDX-License-Identifier: Apache-2.0
"""Bring the lines of a map to a fixed number of points, in all orders that mean the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from nvidia.dali import types

from accvlab.dali_pipeline_framework import ArrayStep, SampleDataGroup
from accvlab.dali_pipeline_framework.checks import field_name, flag, number, whole_number
from accvlab.dali_pipeline_framework.errors import FieldValueError
from accvlab.dali_pipeline_framework.extension import (
    FieldSearch,
    Float64Array,
    Name,
    Names,
    find_paths,
    naming_field,
    no_images,
    put_beside,
    required_names,
)

_DT = types.DALIDataType
_INTEGERS = (_DT.INT32, _DT.INT64)


class MapLineVectorizer(ArrayStep):
    """Adds the lines of a map with a fixed number of points, in all orders that mean the same line.

    Lines as `DrivingProvider` delivers them: points ``(P, D)`` float32 or float64 of all lines, one after the
    other, and beside them ``(L,)`` numbers of points. Each line gets ``num_points`` points at equal distances
    along it, from its first to its last point. Added beside them, ``(L, orders, num_points, D)`` float32, as
    SparseDrive and MapTR take them; with n points ``2 * (n - 1)`` orders:

    - Of a closed line, one that ends where it begins: from each of the n - 1 points around, and the same of the
      reversed line; the first point is repeated at the end.
    - Of an open one: forward, and reversed. The other orders hold ``fill_value``.

    Without ``has_orders`` there is one order, forward. Computed in float64. The step works on arrays only.

    Example::

        MapLineVectorizer("points", count_name="num_points", vector_name="vectors", num_points=20)
    """

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
            count_name: Name of the numbers of points of each line, beside the points.
            vector_name: Name of the field to add, beside the points.
            num_points: Number of points of each line, at least 2.
            has_orders: Whether all orders are added, or only the given one.
            fill_value: Value of orders that an open line does not have.
            closing_distance: A line is closed if no coordinate of its last point differs from that of the first by
                more than this.

        Raises:
            SettingError: A setting is not of this form.
        """
        self._point_names = required_names(point_names, "point_names")
        self._count_name = field_name(count_name, "count_name")
        self._vector_name = field_name(vector_name, "vector_name")
        self._num_points = whole_number(num_points, "num_points", at_least=2)
        self._has_orders = flag(has_orders, "has_orders")
        self._fill_value = number(fill_value, "fill_value")
        self._closing_distance = number(closing_distance, "closing_distance", at_least=0)

    declare_images = no_images

    def _process_arrays(self, data: SampleDataGroup) -> SampleDataGroup:
        for path in find_paths(data, self._point_names):
            parent = data.get_parent_of_path(path)
            with naming_field(path):
                vectors = self._vectors(parent[path[-1]], parent[self._count_name])
            put_beside(data, path, self._vector_name, _DT.FLOAT, vectors, ndim=4)
        return data

    def _vectors(self, points: npt.NDArray[Any], counts: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        if points.ndim != 2 or counts.ndim != 1 or counts.sum() != len(points) or (counts < 1).any():
            raise FieldValueError(
                f"There must be as many points as `{self._count_name}` counts, at least one for each line; got "
                f"points of shape {points.shape} for {len(counts)} lines of {int(counts.sum())} points."
            )
        count = self._num_points
        orders = 2 * (count - 1) if self._has_orders else 1
        vectors = np.full((len(counts), orders, count, points.shape[1]), self._fill_value, np.float32)
        lines = np.split(np.asarray(points, np.float64), np.cumsum(counts)[:-1]) if len(counts) else []
        for number_of_line, line in enumerate(lines):
            vector = resampled(line, count)
            if not self._has_orders:
                vectors[number_of_line, 0] = vector
            elif np.abs(vector[0] - vector[-1]).max() <= self._closing_distance:
                vectors[number_of_line] = _orders_of_ring(vector[:-1])
            else:
                vectors[number_of_line, :2] = vector, vector[::-1]
        return vectors

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        search = FieldSearch(data_empty, self)
        for path in search.find(self._point_names, "points", (_DT.FLOAT, _DT.FLOAT64), group_of="points of lines"):
            search.find_at((*path[:-1], self._count_name), "numbers of points", _INTEGERS)
            search.add_beside(path, [(self._vector_name, _DT.FLOAT, 4)])
        return search.result()


def resampled(line: Float64Array, count: int) -> Float64Array:
    """Points at equal distances along a line ``(P, D)``, from its first to its last point: ``(count, D)``."""
    lengths = np.linalg.norm(np.diff(line, axis=0), axis=1)
    at = np.concatenate([[0.0], np.cumsum(lengths)])
    wanted = np.linspace(0, at[-1], count)
    segment = np.clip(np.searchsorted(at, wanted, side="right") - 1, 0, max(len(lengths) - 1, 0))
    if not at[-1] > 0:
        return line[np.zeros(count, int)]
    length = lengths[segment]
    share = np.divide(wanted - at[segment], length, out=np.zeros(count), where=length > 0)
    share = np.clip(share, 0, 1)[:, np.newaxis]
    points: Float64Array = line[segment] + share * (line[segment + 1] - line[segment])
    points[-1] = line[-1]
    return points


def _orders_of_ring(ring: Float64Array) -> Float64Array:
    """All ways to go once around points ``(n - 1, D)``: ``(2 * (n - 1), n, D)``."""
    count = len(ring)
    # Row s is the ring rolled by s: its first point comes to place s.
    places = (np.arange(count + 1) - np.arange(count)[:, np.newaxis]) % count
    return np.concatenate([ring[places], ring[::-1][places]])
