"""The world around the objects: sky, ground, road markings, trees and buildings.

The ego vehicle stays at the same place of an arc-shaped road (see `driving_scenes.traffic`), so where the
rays of a camera hit the ground and the two roadside surfaces is worked out once per sequence; per frame the
patterns only slide along ``s``.

A ray meets, near to far: the ground, or the tree line (a thin upright surface with tree shapes on it), or the
house fronts (a second such surface), or the sky.
"""

import attrs
import numpy as np
from numpy.typing import NDArray

from driving_scenes.cameras import Camera

__all__ = ["Palette", "Scenery", "Streetscape"]

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Ints = NDArray[np.intp]

_CENTRE_LINE_D = 1.75
_LANE_LINES_D = (-1.75, 5.25)
_EDGE_LINES_D = (-5.25, 8.75)
_CURBS_D = (-7.75, 11.25)
_WALK_ENDS_D = (-10.75, 14.25)
_TREE_LINES_D = (-12.3, 15.8)
_HOUSE_FRONTS_D = (-18.0, 21.5)
_HAZE_LENGTH_M = 170.0
_FARTHEST_M = 400.0
_BLOCKS = 256
_TREE_SPACING_M, _HOUSE_SPACING_M = 9.0, 15.0
_CROSSING_SPACING_M, _CROSSING_LENGTH_M = 64.0, 3.2
_DASH_PERIOD_M, _DASH_LENGTH_M = 9.0, 4.0
_TEXELS_PER_M, _TEXELS = 6.0, 256


@attrs.frozen(eq=False)
class Palette:
    """Light and weather of a sequence: colours are RGB in [0, 255]."""

    sky_top: Floats32
    sky_low: Floats32
    light: float
    """Factor on every surface."""
    sun_world: Floats
    """(3,), unit vector towards the sun."""
    sun_share: float
    """In [0, 1]; 0 is an overcast sky without shadows."""

    @classmethod
    def draw(cls, mood: int, rng: np.random.Generator) -> "Palette":
        """By turns a clear day, an evening and a grey day, counted by `mood`; the sun stands anywhere."""
        top, low, light, share = (
            ((86, 141, 214), (199, 219, 238), 1.0, 0.75),
            ((92, 108, 160), (246, 205, 160), 0.84, 0.65),
            ((150, 160, 172), (208, 212, 216), 0.92, 0.35),
        )[mood % 3]
        bearing, height = rng.uniform(-np.pi, np.pi), rng.uniform(0.6, 1.0)
        sun = np.array([np.cos(bearing) * np.cos(height), np.sin(bearing) * np.cos(height), np.sin(height)])
        return cls(np.array(top, np.float32), np.array(low, np.float32), light, sun, share)

    def haze(self, colours: Floats32, distances_m: NDArray[np.floating]) -> Floats32:
        """Colours (N, 3) of surfaces at distances (N,), faded towards the horizon."""
        share = np.exp(distances_m * np.float32(-1.0 / _HAZE_LENGTH_M)).astype(np.float32)[:, None]
        return np.asarray(self.sky_low + (colours - self.sky_low) * share, dtype=np.float32)


@attrs.frozen(eq=False)
class Streetscape:
    """What stands where along the street of one sequence, drawn once and shared by all cameras."""

    texture: Floats32
    """(256, 256), brightness around 0, repeats in both directions."""
    house_heights: Floats32
    house_colours: Floats32
    tree_radii: Floats32
    """(256,), 0 where no tree stands."""
    tree_heights: Floats32
    tree_shifts: Floats32
    tree_colours: Floats32

    @classmethod
    def draw(cls, rng: np.random.Generator) -> "Streetscape":
        """Random houses, trees and ground texture."""
        fine = rng.normal(size=(_TEXELS, _TEXELS))
        coarse = np.kron(rng.normal(size=(_TEXELS // 8, _TEXELS // 8)), np.ones((8, 8)))
        coarse = (coarse + np.roll(coarse, 4, 0) + np.roll(coarse, 4, 1) + np.roll(coarse, (4, 4), (0, 1))) / 3.0
        house_colours = np.array(
            [(176, 120, 96), (198, 184, 160), (150, 152, 158), (206, 196, 186), (140, 108, 92), (186, 164, 128)]
        )
        greens = rng.uniform((52, 92, 38), (92, 132, 62), size=(_BLOCKS, 3))
        return cls(
            texture=(0.6 * fine + 0.7 * coarse).astype(np.float32),
            house_heights=np.where(
                rng.random(_BLOCKS) < 0.25, 0.0, 3.2 * rng.integers(2, 7, _BLOCKS) + 1.2
            ).astype(np.float32),
            house_colours=(
                house_colours[rng.integers(len(house_colours), size=_BLOCKS)]
                * rng.uniform(0.85, 1.1, size=(_BLOCKS, 1))
            ).astype(np.float32),
            tree_radii=np.where(rng.random(_BLOCKS) < 0.35, 0.0, rng.uniform(1.5, 2.6, _BLOCKS)).astype(
                np.float32
            ),
            tree_heights=rng.uniform(3.6, 5.0, _BLOCKS).astype(np.float32),
            tree_shifts=rng.uniform(-1.2, 1.2, _BLOCKS).astype(np.float32),
            tree_colours=greens.astype(np.float32),
        )


@attrs.frozen(eq=False)
class _Surface:
    """The pixels that look at one surface, as flat indices with road coordinates at s_ego = 0."""

    pixels: Ints
    s_m: Floats32
    side_m: Floats32
    """Lateral position ``d`` on the ground, height on the roadside."""
    depth_m: Floats32
    distance_m: Floats32
    footprint_m: Floats32
    """How much ``s`` changes from this pixel to the next: finer patterns must fade out."""
    block_shift: Ints
    """So that left and right differ."""


class Scenery:
    """Draws the background of one camera for any frame of one sequence.

    Args:
        camera: gives the rays.
        curvature_per_m: of the road.
        streetscape: what stands along it.
        palette: light and sky.
    """

    def __init__(self, camera: Camera, curvature_per_m: float, streetscape: Streetscape, palette: Palette) -> None:
        """Cast the rays and paint what never changes."""
        self.image_hw = camera.image_hw
        self._street, self._palette = streetscape, palette
        rays, origin = _rays_ego(camera)
        ground, ground_d = _hit_ground(rays, origin, curvature_per_m)
        trees = _hit_roadside(rays, origin, curvature_per_m, _TREE_LINES_D, top_m=9.0)
        houses = _hit_roadside(rays, origin, curvature_per_m, _HOUSE_FRONTS_D, top_m=24.0)
        self._ground, self._trees, self._houses = ground, trees, houses
        self._sky = _sky(rays, palette)
        self._ground_colours = _paint_ground(ground, ground_d, palette)
        contrast = np.where((ground.side_m < _CURBS_D[0]) | (ground.side_m > _CURBS_D[1]), 0.055, 0.03)
        fade = np.clip(1.5 - ground.footprint_m * 2.0, 0.0, 1.0)
        self._grain = (contrast * fade).astype(np.float32)
        self._grain_columns = (ground.side_m * _TEXELS_PER_M).astype(np.intp) & (_TEXELS - 1)
        dashes = sum(_line(ground.side_m, ground_d, line, 0.07) for line in _LANE_LINES_D)
        self._dash_rows = np.flatnonzero(dashes > 0.02)
        self._dash_share = np.asarray(dashes, np.float32)[self._dash_rows]
        is_road = (ground.side_m > _EDGE_LINES_D[0] + 0.3) & (ground.side_m < _EDGE_LINES_D[1] - 0.3)
        self._stripe_rows = np.flatnonzero(is_road & (ground_d < 0.5) & (_phase(ground.side_m, 1.2) < 0.6))

    def draw(self, ego_s_m: float) -> tuple[Floats32, Floats32, NDArray[np.bool_]]:
        """The background at one place of the road.

        Args:
            ego_s_m: how far the ego vehicle has come.

        Returns:
            Image (H, W, 3) in [0, 255]; depths (H, W) of trees and houses along the optical axis in metres
            (infinite elsewhere, also on the ground, on which all stand); mask (H, W) of ground pixels.
        """
        height, width = self.image_hw
        image = self._sky.copy()
        depths = np.full(height * width, np.inf, np.float32)
        is_ground = np.zeros(height * width, np.bool_)
        self._draw_ground(image, ego_s_m)
        is_ground[self._ground.pixels] = True
        for surface, pattern in ((self._houses, self._house_pattern), (self._trees, self._tree_pattern)):
            rows, colours = pattern(surface, ego_s_m)
            pixels = surface.pixels[rows]
            image[pixels] = self._palette.haze(colours * np.float32(self._palette.light), surface.distance_m[rows])
            depths[pixels] = surface.depth_m[rows]
            is_ground[pixels] = False
        shape = (height, width)
        return image.reshape(*shape, 3), depths.reshape(shape), is_ground.reshape(shape)

    def _draw_ground(self, image: Floats32, ego_s_m: float) -> None:
        ground = self._ground
        s_m = ground.s_m + np.float32(ego_s_m)
        colours = self._ground_colours.copy()
        white = np.array([228.0, 228.0, 224.0], np.float32) * np.float32(self._palette.light)
        dash_s, dash_footprint = s_m[self._dash_rows], ground.footprint_m[self._dash_rows]
        offset = np.abs(_phase(dash_s, _DASH_PERIOD_M) - 0.5 * _DASH_PERIOD_M)
        share = self._dash_share * np.clip(
            (0.5 * _DASH_LENGTH_M - offset) / (dash_footprint + 0.02) + 0.5, 0.0, 1.0
        )
        self._blend(colours, self._dash_rows, white, share)
        stripe_s = _phase(s_m[self._stripe_rows], _CROSSING_SPACING_M)
        is_stripe = (stripe_s > 40.0) & (stripe_s < 40.0 + _CROSSING_LENGTH_M)
        self._blend(colours, self._stripe_rows[is_stripe], white, np.full(int(is_stripe.sum()), 0.85))
        grain_rows = (s_m * np.float32(_TEXELS_PER_M)).astype(np.intp) & (_TEXELS - 1)
        colours *= (1.0 + self._grain * self._street.texture[grain_rows, self._grain_columns])[:, None]
        image[ground.pixels] = colours

    def _blend(self, colours: Floats32, rows: Ints, paint: Floats32, share: NDArray[np.floating]) -> None:
        faded = self._palette.haze(np.broadcast_to(paint, (len(rows), 3)), self._ground.distance_m[rows])
        colours[rows] += (faded - colours[rows]) * share.astype(np.float32)[:, None]

    def _house_pattern(self, surface: _Surface, ego_s_m: float) -> tuple[Ints, Floats32]:
        street = self._street
        s_m = surface.s_m + np.float32(ego_s_m)
        blocks = (np.floor(s_m * (1.0 / _HOUSE_SPACING_M)).astype(np.intp) + surface.block_shift) % _BLOCKS
        below_roof = street.house_heights[blocks] - surface.side_m
        rows = np.flatnonzero(below_roof > 0.0)
        s_m, height, blocks, below_roof = s_m[rows], surface.side_m[rows], blocks[rows], below_roof[rows]
        colours = street.house_colours[blocks]
        is_window = (np.abs(_phase(s_m, 2.5) - 1.25) < 0.62) & (np.abs(_phase(height - 0.3, 3.2) - 1.75) < 0.75)
        windows = np.flatnonzero(is_window & (below_roof > 1.0))
        share = 0.8 * np.clip(1.4 - surface.footprint_m[rows[windows]] * 1.2, 0.25, 1.0)
        glass = np.array([70, 84, 102], np.float32)
        colours[windows] += (glass - colours[windows]) * share.astype(np.float32)[:, None]
        colours[(_phase(s_m, _HOUSE_SPACING_M) < 0.35) | (below_roof < 0.4)] *= np.float32(0.8)
        return rows, colours

    def _tree_pattern(self, surface: _Surface, ego_s_m: float) -> tuple[Ints, Floats32]:
        street = self._street
        s_m, height = surface.s_m + np.float32(ego_s_m), surface.side_m
        blocks = (np.floor(s_m / _TREE_SPACING_M).astype(np.intp) + surface.block_shift) % _BLOCKS
        radius = street.tree_radii[blocks]
        with_tree = np.flatnonzero(radius > 0.0)
        s_m, height, blocks, radius = s_m[with_tree], height[with_tree], blocks[with_tree], radius[with_tree]
        across = _phase(s_m, _TREE_SPACING_M) - 0.5 * _TREE_SPACING_M - street.tree_shifts[blocks]
        up = height - street.tree_heights[blocks]
        leaf = street.texture[
            (s_m * 7.0).astype(np.intp) & (_TEXELS - 1), (height * 7.0).astype(np.intp) & (_TEXELS - 1)
        ]
        is_crown = np.hypot(across, 0.8 * up) < radius * (1.0 + 0.1 * leaf)
        is_trunk = (np.abs(across) < 0.16) & (up < 0.0)
        rows = np.flatnonzero(is_crown | is_trunk)
        shade = 0.95 + 0.13 * up[rows] + 0.1 * leaf[rows]
        colours = street.tree_colours[blocks[rows]] * np.clip(shade, 0.5, 1.4)[:, None]
        colours[~is_crown[rows]] = (92.0, 74.0, 58.0)
        return with_tree[rows], colours.astype(np.float32)


def _phase(positions_m: Floats32, period_m: float) -> Floats32:
    """Where in its period each position lies, in [0, period]; several times faster than ``%``."""
    return np.asarray(positions_m - period_m * np.floor(positions_m * (1.0 / period_m)), dtype=np.float32)


def _rays_ego(camera: Camera) -> tuple[Floats, Floats]:
    """Rays (H * W, 3) of the pixel middles in the ego frame, scaled to depth 1, and the pinhole (3,)."""
    height, width = camera.image_hw
    x_px, y_px = np.meshgrid(np.arange(width) + 0.5, np.arange(height) + 0.5)
    pixels = np.stack([x_px, y_px, np.ones_like(x_px)], axis=-1).reshape(-1, 3)
    ego_from_pixel = camera.ego_from_camera[:3, :3] @ np.linalg.inv(camera.intrinsics)
    return pixels @ ego_from_pixel.T, camera.ego_from_camera[:3, 3]


def _road_coordinates(x_m: Floats, y_m: Floats, curvature: float) -> tuple[Floats, Floats]:
    """``s`` and ``d`` of points of the ego frame, with the ego vehicle at s = 0; inverts `Road.poses`."""
    radius = 1.0 / curvature
    side = np.sign(radius)
    from_middle = side * np.hypot(x_m, radius - y_m)
    return radius * np.arctan2(side * x_m, side * (radius - y_m)), radius - from_middle


def _surface(
    rays: Floats, pixels: Ints, depth: Floats, s_m: Floats, side_m: Floats, footprint: Floats, shift: Ints
) -> _Surface:
    distance = depth * np.linalg.norm(rays[pixels], axis=1)
    return _Surface(
        pixels=pixels,
        s_m=s_m.astype(np.float32),
        side_m=side_m.astype(np.float32),
        depth_m=depth.astype(np.float32),
        distance_m=distance.astype(np.float32),
        footprint_m=footprint.astype(np.float32),
        block_shift=shift,
    )


def _hit_ground(rays: Floats, origin: Floats, curvature: float) -> tuple[_Surface, Floats]:
    """Pixels that see the ground, and how wide their pixels are across the road in metres."""
    pixels = np.flatnonzero(rays[:, 2] < -origin[2] / _FARTHEST_M)
    depth = -origin[2] / rays[pixels, 2]
    x_m, y_m = (origin[axis] + depth * rays[pixels, axis] for axis in (0, 1))
    s_m, d_m = _road_coordinates(x_m, y_m, curvature)
    # A pixel covers about `step` across its ray and, as the ray grazes the ground, `step * stretch` along it.
    step = depth * np.linalg.norm(rays[1] - rays[0])
    reach = np.hypot(x_m - origin[0], y_m - origin[1])
    stretch = np.hypot(reach, origin[2]) / origin[2]
    along_x, along_y = (x_m - origin[0]) / reach, (y_m - origin[1]) / reach
    heading = s_m * curvature
    cosine = np.abs(along_x * np.cos(heading) + along_y * np.sin(heading))
    sine = np.sqrt(np.maximum(0.0, 1.0 - cosine**2))
    footprint_s, footprint_d = (step * np.hypot(stretch * cosine, sine), step * np.hypot(stretch * sine, cosine))
    no_shift = np.zeros(len(pixels), np.intp)
    return _surface(rays, pixels, depth, s_m, d_m, footprint_s, no_shift), footprint_d


def _hit_roadside(
    rays: Floats, origin: Floats, curvature: float, lines_d: tuple[float, float], *, top_m: float
) -> _Surface:
    """Pixels that see the upright surfaces over the two lines ``d = const``, up to a height of ``top_m``."""
    depth = np.full(len(rays), np.inf)
    radius = 1.0 / curvature
    square = rays[:, 0] ** 2 + rays[:, 1] ** 2
    half_linear = origin[0] * rays[:, 0] + (origin[1] - radius) * rays[:, 1]
    for line in lines_d:
        # |origin + depth * ray - middle|^2 = (radius - line)^2, in the ground plane
        constant = origin[0] ** 2 + (origin[1] - radius) ** 2 - (radius - line) ** 2
        root = np.sqrt(np.maximum(half_linear**2 - square * constant, 0.0))
        is_hit = half_linear**2 > square * constant
        found = (-half_linear + root if constant < 0.0 else -half_linear - root) / square
        depth = np.where(is_hit & (found > 0.0) & (found < depth), found, depth)
    height = origin[2] + np.where(np.isfinite(depth), depth, 0.0) * rays[:, 2]
    pixels = np.flatnonzero((depth < _FARTHEST_M) & (height >= 0.0) & (height < top_m))
    depth = depth[pixels]
    x_m, y_m = (origin[axis] + depth * rays[pixels, axis] for axis in (0, 1))
    s_m, d_m = _road_coordinates(x_m, y_m, curvature)
    heading = s_m * curvature
    across = np.abs(-rays[pixels, 0] * np.sin(heading) + rays[pixels, 1] * np.cos(heading))
    flat = np.sqrt(square[pixels])
    footprint = depth * np.linalg.norm(rays[1] - rays[0]) * flat / np.maximum(across, 1e-3)
    shift = np.where(d_m > 0.0, 97, 0).astype(np.intp)
    return _surface(rays, pixels, depth, s_m, height[pixels], footprint, shift)


def _sky(rays: Floats, palette: Palette) -> Floats32:
    rise = rays[:, 2] / np.linalg.norm(rays, axis=1)
    share = np.clip(rise * 2.2, 0.0, 1.0)[:, None] ** 0.7
    return np.asarray(palette.sky_low + (palette.sky_top - palette.sky_low) * share, dtype=np.float32)


def _line(d_m: Floats32, footprint_d: Floats, middle_d: float, half_width: float) -> Floats:
    """How much of each pixel a line along the road covers, in [0, 1]."""
    low = np.maximum(d_m - 0.5 * footprint_d, middle_d - half_width)
    high = np.minimum(d_m + 0.5 * footprint_d, middle_d + half_width)
    return np.asarray(np.clip((high - low) / footprint_d, 0.0, 1.0))


def _paint_ground(ground: _Surface, footprint_d: Floats, palette: Palette) -> Floats32:
    d_m = ground.side_m
    asphalt, walk, curb, grass = (
        np.array(rgb, np.float32) for rgb in ((92, 93, 97), (158, 152, 146), (186, 184, 180), (98, 124, 66))
    )
    colours = np.empty((len(d_m), 3), np.float32)
    colours[:] = grass
    for (low, high), paint in ((_WALK_ENDS_D, walk), (_CURBS_D, asphalt)):
        _cover(colours, _line(d_m, footprint_d, 0.5 * (low + high), 0.5 * (high - low)), paint)
    parking = np.array((84, 85, 90), np.float32)
    for edge, end in zip(_EDGE_LINES_D, _CURBS_D, strict=True):
        _cover(colours, _line(d_m, footprint_d, 0.5 * (edge + end), 0.5 * abs(edge - end)), parking)
        _cover(colours, _line(d_m, footprint_d, end, 0.11), curb)
        _cover(colours, _line(d_m, footprint_d, edge, 0.07), np.array((222, 222, 218), np.float32))
    for shift in (-0.15, 0.15):
        yellow = np.array((222, 182, 60), np.float32)
        _cover(colours, _line(d_m, footprint_d, _CENTRE_LINE_D + shift, 0.06), yellow)
    return palette.haze(colours * np.float32(palette.light), ground.distance_m)


def _cover(colours: Floats32, share: Floats, paint: Floats32) -> None:
    colours += (paint - colours) * share.astype(np.float32)[:, None]
