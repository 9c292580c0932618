# SPDX-License-Identifier: Apache-2.0
"""Draw Gaussians of objects into heatmaps, by operators of DALI, or into arrays.

Most pixels of a heatmap are far from all objects, so a graph computes it tile by tile, only where objects are::

     maps, cut into tiles        tiles with one object           tiles with more
    +───+───+───+───+            0  -  (zeros)                   0  -
    |   | o |   |   |            1  a  column times row          1  a, b   the maximum of these products
    +───+───+───+───+     ─>     2  b                            2  a, c
    |   |   | o |   |            ...                             ...
    +───+───+───+───+
                                  └────────────────┬─────────────────┘
                                  each row of the maps takes its pieces from the tiles

In arrays, each object is drawn into its window. A Gaussian on a square window is a product of two curves,
``exp(-dx^2 / 2 sigma^2)`` where ``|dx| <= ceil(radius)``, else 0, and the same for ``dy``.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import nvidia.dali.fn as fn
import nvidia.dali.math as dali_math
from nvidia.dali import types
from nvidia.dali.data_node import DataNode

from ..sample_data.graph_mode import do_not_convert
from . import functions
from .element_selection import ElementSelection, column, row, rows_at, with_row_before
from .functions import is_node

_DT = types.DALIDataType
_TILE_HW = (16, 24)  # pixels, about: measured for radii of 10 to 20; wider tiles are put together faster


@attrs.frozen
class DrawnObjects:
    """What is drawn: nodes on the CPU, or arrays.

    Attributes:
        centers: ``(N, 2)`` int32: x, y, pixels.
        radii: ``(N, 1)`` float32, above 0, pixels.
        is_active: ``(N,)`` bool: which objects are drawn.
        categories: ``(N,)`` of any integer type; None where all are drawn into one map.
    """

    centers: Any
    radii: Any
    is_active: Any
    categories: Any = None


@do_not_convert
def heatmaps(objects: DrawnObjects, hw: tuple[int, int], num_categories: int, sigma_of_radius: float) -> Any:
    """Draw objects.

    Args:
        objects: The objects.
        hw: Height and width of a map.
        num_categories: How many maps there are; objects of other categories are not drawn.
        sigma_of_radius: Standard deviation of a Gaussian with a radius of 1 pixel.

    Returns:
        ``(num_categories, height, width)`` float32, or ``(height, width)`` where there are no categories.
    """
    has_maps = objects.categories is not None
    if not is_node(objects.centers):
        maps = _drawn_by_object(objects, hw, num_categories if has_maps else 1, sigma_of_radius)
        return maps if has_maps else maps[0]
    tiling = _Tiling.of(hw, num_categories if has_maps else 1)
    gaussians = _gaussians(objects, sigma_of_radius)
    reached = _reached(gaussians, tiling)  # (rows of tiles, columns of tiles, 1 + N)
    counts = fn.cast(fn.reductions.sum(reached, axes=[2]), dtype=_DT.INT32)
    reached = with_row_before(fn.reshape(reached, shape=[tiling.num_tiles, -1]))
    origins = types.Constant(tiling.origins, device="cpu")
    numbers = ElementSelection.by_mask(objects.is_active == objects.is_active).positions  # 0, 1, ..., N

    singles = ElementSelection.by_mask(fn.reshape(counts == 1, shape=[-1])).positions  # (1 + S,)
    products = _products(
        _only_objects(gaussians, numbers, rows_at(reached, singles)), rows_at(origins, singles), tiling
    )
    crowds = ElementSelection.by_mask(fn.reshape(counts > 1, shape=[-1])).positions  # (1 + C,)
    several = _products(
        _all_objects(gaussians, numbers, rows_at(reached, crowds), tiling), rows_at(origins, crowds), tiling
    )
    tiles = fn.cat(products[:, 0], fn.reductions.max(several, axes=[1]), axis=0)

    single, crowd = _numbered(counts == 1, tiling), _numbered(counts > 1, tiling)
    tile = single + fn.cast(counts > 1, dtype=_DT.INT32) * (crowd + fn.cast(singles.shape(), dtype=_DT.INT32))
    return _assembled(tiles, tile, tiling) if has_maps else _assembled(tiles, tile, tiling)[0]


@attrs.frozen
class _Tiling:
    """Maps cut into tiles of one size; those at the lower and right border may reach beyond the map.

    Attributes:
        hw: Height and width of a map, pixels.
        num_maps: How many maps there are.
        tile_hw: Height and width of a tile.
    """

    hw: tuple[int, int]
    num_maps: int
    tile_hw: tuple[int, int]

    @classmethod
    def of(cls, hw: tuple[int, int], num_maps: int) -> _Tiling:
        """Choose tiles: of a width that divides that of the maps if there is one, since that saves a copy."""
        widths = range(_TILE_HW[1] * 3 // 4, _TILE_HW[1] * 3 // 2 + 1)
        width = min(widths, key=lambda size: (hw[1] % size > 0, abs(size - _TILE_HW[1])))
        return cls(hw, num_maps, (min(_TILE_HW[0], hw[0]), min(width, hw[1])))

    @property
    def num_rows(self) -> int:
        """Rows of tiles in a map."""
        return -(-self.hw[0] // self.tile_hw[0])

    @property
    def num_columns(self) -> int:
        """Columns of tiles in a map."""
        return -(-self.hw[1] // self.tile_hw[1])

    @property
    def num_tiles(self) -> int:
        """Tiles in all maps."""
        return self.num_maps * self.num_rows * self.num_columns

    @property
    def origins(self) -> np.ndarray[Any, Any]:
        """x and y of the first pixel of each tile, ``(1 + num_tiles, 2)`` float32; the first row is zero."""
        height, width = self.tile_hw
        _, rows, columns = np.indices((self.num_maps, self.num_rows, self.num_columns))
        origins = np.stack([columns.ravel() * width, rows.ravel() * height], axis=1)
        return np.concatenate([[[0, 0]], origins]).astype(np.float32)


def _gaussians(objects: DrawnObjects, sigma_of_radius: float) -> DataNode:
    """``(1 + N, 5)`` float32: x, y, reach, factor of the squared distance, map; -1 is none."""
    # The first row reaches nothing.
    centers = with_row_before(fn.cast(objects.centers, dtype=_DT.FLOAT), -1.0)
    radii = with_row_before(objects.radii, -1.0)
    maps = fn.cast(objects.is_active, dtype=_DT.FLOAT)
    if objects.categories is not None:
        maps = maps * (fn.cast(objects.categories, dtype=_DT.FLOAT) + 1.0)
    maps = with_row_before(fn.expand_dims(maps - 1.0, axes=[1]), -1.0)
    gaussians: DataNode = fn.cat(centers, *_reach_and_factor(radii, sigma_of_radius), maps, axis=1)
    return gaussians


def _reach_and_factor(radii: Any, sigma_of_radius: float) -> tuple[Any, Any]:
    """How far Gaussians go, and what squared distances are multiplied by; float32."""
    sigma = radii * np.float32(sigma_of_radius)
    return functions.ceil(radii), -0.5 / (sigma * sigma)


def _curve(distance: Any, reach: Any, factor: Any) -> Any:
    """The Gaussian along an axis; float32."""
    is_inside = functions.cast(functions.absolute(distance) <= reach, _DT.FLOAT)
    return functions.exp(distance * distance * factor) * is_inside


def _drawn_by_object(
    objects: DrawnObjects, hw: tuple[int, int], num_maps: int, sigma_of_radius: float
) -> npt.NDArray[np.float32]:
    """The maps, ``(num_maps, height, width)``, of objects in arrays."""
    maps = np.zeros((num_maps, *hw), np.float32)
    (drawn,) = np.nonzero(objects.is_active & ~np.isnan(objects.radii[:, 0]))
    radii, place = np.unique(objects.radii[drawn, 0], return_inverse=True)  # many have the greatest one
    curves = _curves(radii, sigma_of_radius, max(hw))
    numbers = np.zeros(len(drawn), int) if objects.categories is None else objects.categories[drawn]
    of_objects = zip(numbers.tolist(), objects.centers[drawn].tolist(), place.tolist(), strict=True)
    for number, (x, y), of_radius in of_objects:
        curve = curves[of_radius]
        first_x, first_y = x - len(curve) // 2, y - len(curve) // 2
        top, bottom = max(first_y, 0), min(first_y + len(curve), hw[0])
        left, right = max(first_x, 0), min(first_x + len(curve), hw[1])
        rows, columns = curve[top - first_y : bottom - first_y, None], curve[left - first_x : right - first_x]
        window = maps[number, top:bottom, left:right]
        np.maximum(window, rows * columns, out=window)
    return maps


def _curves(radii: npt.NDArray[np.float32], sigma_of_radius: float, most: int) -> list[npt.NDArray[np.float32]]:
    """For each radius, the Gaussian at the distances ``-n, ..., n`` that it reaches, ``n <= most``."""
    reaches, factors = _reach_and_factor(radii, sigma_of_radius)
    lengths = np.minimum(reaches, most).astype(int) + 1
    distances = np.concatenate([np.arange(length, dtype=np.float32) for length in (*lengths, 0)])
    halves = _curve(distances, np.repeat(reaches, lengths), np.repeat(factors, lengths))
    return [np.concatenate([half[:0:-1], half]) for half in np.split(halves, np.cumsum(lengths)[:-1])]


def _reached(gaussians: DataNode, tiling: _Tiling) -> DataNode:
    """Which objects have pixels in which tiles: ``(rows of tiles of all maps, columns of tiles, 1 + N)`` uint8."""
    height, width = tiling.tile_hw
    numbers = np.arange(tiling.num_maps * tiling.num_rows, dtype=np.float32)[:, None]
    top = numbers % tiling.num_rows * height
    left = np.arange(tiling.num_columns, dtype=np.float32)[:, None] * width
    x, y, reach = gaussians[:, 0], gaussians[:, 1], gaussians[:, 2]
    in_row = (
        (gaussians[:, 4] == numbers // tiling.num_rows) & (y + reach >= top) & (y - reach <= top + (height - 1))
    )
    in_column = (x + reach >= left) & (x - reach <= left + (width - 1))
    return fn.reinterpret(fn.expand_dims(in_row, axes=[1]) & fn.expand_dims(in_column, axes=[0]), dtype=_DT.UINT8)


def _only_objects(gaussians: DataNode, numbers: DataNode, reached: DataNode) -> DataNode:
    """The object of each tile with one object, ``(1 + S, 1, 5)``."""
    # gaussians: (1 + N, 5); numbers: (1 + N,) int32: 0, 1, ..., N; reached: (1 + S, 1 + N) uint8
    number = fn.reductions.max(fn.cast(reached, dtype=_DT.INT32) * row(numbers), axes=[1])
    return fn.expand_dims(rows_at(gaussians, number), axes=[1])


def _all_objects(gaussians: DataNode, numbers: DataNode, reached: DataNode, tiling: _Tiling) -> DataNode:
    """The objects of each tile with several: ``(1 + C, K, 5)``, where K is the greatest number of them.

    A tile with fewer objects has its last one several times; the first tile has the object that reaches nothing.
    """
    # gaussians: (1 + N, 5); numbers: (1 + N,) int32: 0, 1, ..., N; reached: (1 + C, 1 + N) uint8
    pairs = ElementSelection.by_mask(fn.reshape(reached == 1, shape=[-1])).positions  # (1 + P,), tile by tile
    place = dali_math.max(pairs - 1, 0)
    num_gaussians = fn.cast(reached.shape()[1], dtype=_DT.INT32)
    gaussians_of_pairs = rows_at(gaussians, place - place // num_gaussians * num_gaussians)

    counts = fn.cast(fn.reductions.sum(reached, axes=[1]), dtype=_DT.INT32)  # (1 + C,)
    tiles = types.Constant(np.arange(tiling.num_tiles + 1, dtype=np.int32), device="cpu")
    tile = fn.slice(tiles, start=[0], end=fn.cast(counts.shape(), dtype=_DT.INT32), axes=[0])
    is_before = fn.cast(row(tile) < column(tile), dtype=_DT.INT32)
    num_before = fn.reductions.sum(is_before * row(counts), axes=[1], dtype=_DT.INT32)
    most = dali_math.max(fn.reductions.max(counts, keep_dims=True), 1)
    number = row(fn.slice(numbers, start=[0], end=most, axes=[0]))
    is_any = fn.cast(counts > 0, dtype=_DT.INT32)
    slot = column(is_any) * (column(num_before + 1) + dali_math.min(number, column(counts - 1)))
    slots = rows_at(gaussians_of_pairs, fn.reshape(slot, shape=[-1]))
    return fn.reshape(slots, shape=fn.cat(slot.shape(), slots.shape()[1:2]))


def _products(slots: DataNode, origins: DataNode, tiling: _Tiling) -> DataNode:
    """The Gaussians of tiles: ``(T, K, tile height, tile width)`` of ``(T, K, 5)`` and origins ``(T, 2)``."""
    curves = []
    for axis, size in enumerate(reversed(tiling.tile_hw)):
        start = fn.expand_dims(origins[:, axis : axis + 1], axes=[1])
        distance = slots[:, :, axis : axis + 1] - (start + np.arange(size, dtype=np.float32)[None, None])
        curves.append(_curve(distance, slots[:, :, 2:3], slots[:, :, 3:4]))
    products: DataNode = fn.expand_dims(curves[1], axes=[3]) * fn.expand_dims(curves[0], axes=[2])
    return products


def _numbered(is_counted: DataNode, tiling: _Tiling) -> DataNode:
    """1, 2, ... for the tiles that count, 0 for others: ``(rows of tiles, columns of tiles)`` int32."""
    is_counted = fn.cast(is_counted, dtype=_DT.INT32)
    columns, rows = (np.arange(size) for size in (tiling.num_columns, tiling.num_maps * tiling.num_rows))
    up_to = (columns[None, :] <= columns[:, None]).astype(np.int32)[None]
    before = (rows[None, :] < rows[:, None]).astype(np.int32)
    in_row = fn.reductions.sum(fn.expand_dims(is_counted, axes=[1]) * up_to, axes=[2], dtype=_DT.INT32)
    rows_before = fn.reductions.sum(row(in_row[:, -1]) * before, axes=[1], dtype=_DT.INT32)
    numbered: DataNode = is_counted * (in_row + column(rows_before))
    return numbered


def _assembled(tiles: DataNode, tile: DataNode, tiling: _Tiling) -> DataNode:
    """The maps ``(num_maps, height, width)``: each row of pixels is put together from rows of tiles."""
    # tiles: (T, tile height, tile width); tile: which of them is where, (rows of tiles, columns of tiles) int32
    (height, width), (tile_height, tile_width) = tiling.hw, tiling.tile_hw
    tile = fn.reshape(tile, shape=[tiling.num_maps, tiling.num_rows, 1, tiling.num_columns])
    piece = tile * tile_height + np.arange(tile_height, dtype=np.int32)[None, None, :, None]
    piece = fn.reshape(piece, shape=[tiling.num_maps, tiling.num_rows * tile_height, tiling.num_columns])
    pieces = rows_at(fn.reshape(tiles, shape=[-1, tile_width]), fn.reshape(piece[:, :height], shape=[-1]))
    maps = fn.reshape(pieces, shape=[tiling.num_maps, height, tiling.num_columns * tile_width])
    return maps if tiling.num_columns * tile_width == width else maps[:, :, :width]
