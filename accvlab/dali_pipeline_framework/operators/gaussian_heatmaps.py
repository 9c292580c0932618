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

import attrs
import numpy as np
import numpy.typing as npt
import nvidia.dali.fn as fn
import nvidia.dali.math as dali_math
from nvidia.dali import types
from nvidia.dali.data_node import DataNode

from ..sample_data.graph_mode import do_not_convert
from . import functions
from .element_selection import column, inner_boxes, positions_of_zeros, rows_at
from .functions import Array, Value, is_node

_DT = types.DALIDataType
_TILE_HW = (16, 24)  # pixels, about: measured for radii of 10 to 20; wider tiles are put together faster
_FAR = 1e18  # pixels, of which the square is finite


@attrs.frozen
class DrawnObjects:
    """Objects to draw: arrays, or nodes on the CPU, after an object that is not active and has no NaN.

    Attributes:
        centers: ``(N, 2)`` float32, whole numbers: x, y, pixels.
        radii: ``(N,)`` float32, above 0, pixels; objects with NaN or -1 are not drawn.
        is_active: ``(N,)`` bool: which objects are drawn.
        categories: ``(N,)`` of any integer type; None where all are drawn into one map.
    """

    centers: Value
    radii: Value
    is_active: Value
    categories: Value = None


@do_not_convert
def heatmaps(objects: DrawnObjects, hw: tuple[int, int], num_categories: int, sigma_of_radius: float) -> Value:
    """Draw objects as Gaussians.

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
    x, y = objects.centers[:, 0], objects.centers[:, 1]
    reaches, factors = _reach_and_factor(objects.radii, sigma_of_radius)
    rows = fn.stack(x, reaches, y, factors, axis=1)
    gaussians = fn.reshape(rows, shape=[-1, 1, 2, 2])
    zeros = fn.slice(rows, start=[4], shape=[4], axes=[1], out_of_bounds_policy="pad")
    numbers = inner_boxes(zeros) + 1  # 1, ..., N

    reached = _reached(objects, x, y, reaches, tiling)  # (rows of tiles, columns of tiles, N)
    is_of = _is_single_or_crowd(reached, tiling)
    singles, crowds = _singles_and_crowds(is_of, tiling)  # (1 + S,), (C + 1,)
    # A row before, for the first of the singles; one after, for the last of the crowds. And each object is one
    # column before its own.
    by_tile = fn.slice(
        fn.reshape(reached, shape=[tiling.num_tiles, -1]),
        start=[-1, 1],
        rel_shape=[1 + 2 / tiling.num_tiles, 1.0],
        axes=[0, 1],
        out_of_bounds_policy="pad",
    )
    origins = types.Constant(tiling.origins, device="cpu")
    steps = types.Constant(np.arange(max(tiling.tile_hw), dtype=np.float32), device="cpu")

    alone = _only_objects(gaussians, numbers, rows_at(by_tile, singles))
    together = _all_objects(gaussians, numbers, rows_at(by_tile, crowds), crowds)
    several = _products(together, rows_at(origins, crowds), steps, tiling)
    tiles = fn.cat(
        _products(alone, rows_at(origins, singles), steps, tiling),
        fn.reductions.max(several, axes=[1], keep_dims=True),
        axis=0,
    )
    return _assembled(tiles, _first_rows(is_of, tiling), tiling, has_maps)


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
        """Cut maps into tiles that end at their borders, if a size near the usual one does: this saves copies."""
        height, width = (
            min(range(usual * 3 // 4, usual * 3 // 2 + 1), key=lambda size: (length % size > 0, abs(size - usual)))
            for length, usual in zip(hw, _TILE_HW, strict=True)
        )
        return cls(hw, num_maps, (min(height, hw[0]), min(width, hw[1])))

    @property
    def num_rows(self) -> int:
        """Number of rows of tiles in a map."""
        return -(-self.hw[0] // self.tile_hw[0])

    @property
    def num_columns(self) -> int:
        """Number of columns of tiles in a map."""
        return -(-self.hw[1] // self.tile_hw[1])

    @property
    def num_tiles(self) -> int:
        """Number of tiles in all maps."""
        return self.num_maps * self.num_rows * self.num_columns

    @property
    def line_length(self) -> int:
        """Number of tiles of a part of the row of all tiles, in which they are counted with few operations."""
        lengths = [length for length in range(1, self.num_tiles + 1) if self.num_tiles % length == 0]
        return min(lengths, key=lambda length: self.num_tiles * length + 6 * (self.num_tiles // length) ** 2)

    @property
    def origins(self) -> Array:
        """x and y of the first pixel of each tile, ``(1 + num_tiles + 1, 1, 2, 1)`` float32.

        The first row is of a tile that nothing reaches, and the last one is not used.
        """
        height, width = self.tile_hw
        _, rows, columns = np.indices((self.num_maps, self.num_rows, self.num_columns))
        origins = np.stack([columns.ravel() * width, rows.ravel() * height], axis=1)
        return np.concatenate([[[_FAR] * 2], origins, [[0, 0]]]).astype(np.float32)[:, None, :, None]


def _reach_and_factor(radii: Value, sigma_of_radius: float) -> tuple[Value, Value]:
    """Compute the reach of Gaussians, and the factor of squared distances; float32."""
    sigma = radii * np.float32(sigma_of_radius)
    return functions.ceil(radii), -0.5 / (sigma * sigma)


def _curve(distance: Value, reach: Value, factor: Value) -> Value:
    """Compute the Gaussian along an axis; float32."""
    return functions.exp(distance * distance * factor) * (functions.absolute(distance) <= reach)


def _drawn_by_object(
    objects: DrawnObjects, hw: tuple[int, int], num_maps: int, sigma_of_radius: float
) -> npt.NDArray[np.float32]:
    """Draw the maps, ``(num_maps, height, width)``, of objects in arrays."""
    maps = np.zeros((num_maps, *hw), np.float32)
    (drawn,) = np.nonzero(objects.is_active & (objects.radii > 0))
    radii, place = np.unique(objects.radii[drawn], return_inverse=True)  # many have the greatest one
    curves = _curves(radii, sigma_of_radius, max(hw))
    numbers = np.zeros(len(drawn), int) if objects.categories is None else objects.categories[drawn]
    of_objects = zip(numbers.tolist(), objects.centers[drawn].astype(int).tolist(), place.tolist(), strict=True)
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
    """Compute, for each radius, the Gaussian at the distances ``-n, ..., n`` that it reaches, ``n <= most``."""
    reaches, factors = _reach_and_factor(radii, sigma_of_radius)
    lengths = np.minimum(reaches, most).astype(int) + 1
    distances = np.concatenate([np.arange(length, dtype=np.float32) for length in (*lengths, 0)])
    halves = _curve(distances, np.repeat(reaches, lengths), np.repeat(factors, lengths))
    return [np.concatenate([half[:0:-1], half]) for half in np.split(halves, np.cumsum(lengths)[:-1])]


def _reached(objects: DrawnObjects, x: DataNode, y: DataNode, reaches: DataNode, tiling: _Tiling) -> DataNode:
    """Find the tiles in which objects have pixels: ``(rows of tiles of all maps, columns of tiles, N)`` uint8."""
    height, width = tiling.tile_hw
    numbers = np.arange(tiling.num_maps * tiling.num_rows, dtype=np.int32)[:, None, None]
    columns = np.arange(tiling.num_columns, dtype=np.int32)[:, None]
    is_reached = objects.is_active & _overlap(y, reaches, numbers % tiling.num_rows, height)
    if objects.categories is not None:
        is_reached = is_reached & (objects.categories == numbers // tiling.num_rows)
    is_reached = is_reached & _overlap(x, reaches, columns, width)
    as_numbers: DataNode = fn.reinterpret(is_reached, dtype=_DT.UINT8)
    return as_numbers


def _overlap(centers: DataNode, reaches: DataNode, numbers: npt.NDArray[np.int32], size: int) -> DataNode:
    """Whether intervals around pixels overlap with tiles, along an axis; not those with a reach of NaN."""
    middles = (numbers * size + (size - 1) / 2).astype(np.float32)
    overlap: DataNode = dali_math.abs(centers - middles) - reaches <= (size - 1) / 2
    return overlap


def _is_single_or_crowd(reached: DataNode, tiling: _Tiling) -> DataNode:
    """Find whether one object, and whether several reach each tile: ``(lines, tiles of a line, 2)`` bool."""
    lines = fn.reshape(reached, shape=[tiling.num_tiles // tiling.line_length, tiling.line_length, -1])
    counts = dali_math.min(fn.reductions.sum(lines, axes=[2], keep_dims=True), 2)
    is_of: DataNode = counts == np.array([1, 2], np.int32)
    return is_of


def _singles_and_crowds(is_of: DataNode, tiling: _Tiling) -> tuple[DataNode, DataNode]:
    """Find the tiles with one object, 0 and their numbers; with several, their numbers and the next one.

    The first tile has the number 1.
    """
    # One column each, with columns of zeros, and a row of them before or after, makes boxes.
    is_other = fn.reshape(1.0 - is_of, shape=[tiling.num_tiles, 2])
    starts, layouts = ([-1, -3], [0, 1]), ("yWHx", "xyWH")
    singles, crowds = (
        inner_boxes(
            fn.slice(
                is_other, start=start, shape=[tiling.num_tiles + 1, 4], axes=[0, 1], out_of_bounds_policy="pad"
            ),
            layout,
        )
        for start, layout in zip(starts, layouts, strict=True)
    )
    return singles, crowds + 1


def _only_objects(gaussians: DataNode, numbers: DataNode, reached: DataNode) -> DataNode:
    """Get the object of each tile with one object, ``(1 + S, 1, 2, 2)``."""
    # gaussians: (N, 1, 2, 2); numbers: (N,) int32: 1, ..., N; reached: (1 + S, N) uint8
    return rows_at(gaussians, fn.reductions.max(reached * numbers, axes=[1]))


def _all_objects(gaussians: DataNode, numbers: DataNode, reached: DataNode, crowds: DataNode) -> DataNode:
    """Get the objects of each tile with several: ``(C + 1, K, 2, 2)``, where K is the greatest number of them.

    A tile with fewer objects has its last one several times; the last tile has any.
    """
    # gaussians: (N, 1, 2, 2); numbers: (N,) int32: 1, ..., N; reached: (C + 1, N) uint8; crowds: ascending
    pairs = positions_of_zeros(fn.reshape(1.0 - reached, shape=[-1, 1]))  # (1 + P,), tile by tile
    counts = fn.cast(fn.reductions.sum(reached, axes=[1]), dtype=_DT.INT32)  # (C + 1,)
    is_before = column(crowds) > crowds
    num_before = fn.reductions.sum(is_before * counts, axes=[1], keep_dims=True, dtype=_DT.INT32)
    most = dali_math.max(fn.reductions.max(counts, keep_dims=True), 1)
    number = fn.slice(numbers, start=[0], shape=most, axes=[0])
    slot = num_before + dali_math.min(number, column(counts))  # (C + 1, K)
    slots = rows_at(rows_at(gaussians, pairs % numbers.shape(dtype=_DT.INT32)), fn.reshape(slot, shape=[-1]))
    shape = fn.slice(
        slot.shape(dtype=_DT.INT32), start=[0], shape=[4], axes=[0], out_of_bounds_policy="pad", fill_values=[2]
    )
    return fn.reshape(slots, shape=shape)


def _products(slots: DataNode, origins: DataNode, steps: DataNode, tiling: _Tiling) -> DataNode:
    """Compute the Gaussians of tiles, ``(T, K, tile height, tile width)``."""
    # slots: (T, K, 2, 2); origins: (T, 1, 2, 1); steps: 0, 1, ...
    height, width = tiling.tile_hw
    distances = slots[:, :, :, 0:1] - origins - steps
    curves = _curve(distances, slots[:, :, 0:1, 1:2], slots[:, :, 1:2, 1:2])  # along x, and along y
    products: DataNode = fn.expand_dims(curves[:, :, 1, :height], axes=[3]) * curves[:, :, 0:1, :width]
    return products


def _first_rows(is_of: DataNode, tiling: _Tiling) -> DataNode:
    """Get the first row of pixels for each tile of the maps, ``(lines, tiles of a line)``.

    Tiles with nothing come first, as one; then those with one object, then those with several.
    """
    # is_of: (lines, tiles of a line, 2) bool
    length = tiling.line_length
    lines = np.arange(tiling.num_tiles // length)
    lines = np.stack([lines, lines + len(lines)], axis=1)
    before = (lines < lines[..., None, None]).astype(np.int32)
    up_to = np.tril(np.full((length, length), tiling.tile_hw[0], np.int32))[..., None]
    in_line = fn.reductions.sum(fn.expand_dims(is_of, axes=[1]) * up_to, axes=[2], dtype=_DT.INT32)
    rows_before = fn.reductions.sum(in_line[:, -1] * before, axes=[2, 3], dtype=_DT.INT32)
    return fn.reductions.sum((in_line + column(rows_before)) * is_of, axes=[2], dtype=_DT.INT32)


def _assembled(tiles: DataNode, first: DataNode, tiling: _Tiling, has_maps: bool) -> DataNode:
    """Assemble the maps ``(num_maps, height, width)``: each row of pixels from rows of tiles."""
    # tiles: (T, 1, tile height, tile width); first: the first row of pixels of each tile of the maps, int32
    (height, width), (tile_height, tile_width) = tiling.hw, tiling.tile_hw
    first = fn.reshape(first, shape=[-1, 1, tiling.num_columns])
    piece = first + np.arange(tile_height, dtype=np.int32)[:, None]
    if tiling.num_rows * tile_height != height:
        piece = fn.reshape(piece, shape=[tiling.num_maps, -1, tiling.num_columns])[:, :height]
    pieces = rows_at(fn.reshape(tiles, shape=[-1, tile_width]), fn.reshape(piece, shape=[-1]))
    shape = [tiling.num_maps, height] if has_maps else [height]
    maps = fn.reshape(pieces, shape=[*shape, tiling.num_columns * tile_width])
    if tiling.num_columns * tile_width == width:
        return maps
    return maps[:, :, :width] if has_maps else maps[:, :width]
