"""Pictures of traffic: every object is a solid box, found by shooting the ray of every pixel at it.

A pixel shows an object exactly when the ray through the middle of the pixel meets its box first, so the
pixels fit the projected boxes by construction; boxes that reach behind the camera or beyond the image need no
special care.
"""

import attrs
import numpy as np
from numpy.typing import NDArray

from driving_scenes.cameras import Camera
from driving_scenes.geometry import NEAR_M, box_corners, projected_extents, rotation_about_z
from driving_scenes.scenery import Palette, Scenery, Streetscape
from driving_scenes.surfaces import paint_object

__all__ = ["NO_OBJECT", "RenderedView", "SceneRenderer"]

Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]

NO_OBJECT = -1
"""In `RenderedView.object_rows`: the pixel shows the surroundings."""


@attrs.frozen(eq=False)
class RenderedView:
    """The picture of one camera in one frame with N objects."""

    image: NDArray[np.uint8]
    """(H, W, 3), RGB."""
    object_rows: NDArray[np.int32]
    """(H, W), which row of the objects each pixel shows, or `NO_OBJECT`."""
    visibility: Floats32
    """(N,), share in [0, 1] of the object's pixels in the image that nothing hides; 0 outside the image."""


class SceneRenderer:
    """Renders one camera of one sequence, frame by frame.

    Args:
        camera: the camera.
        curvature_per_m: of the road the ego vehicle follows.
        streetscape: what stands along that road.
        palette: light and sky.
    """

    def __init__(self, camera: Camera, curvature_per_m: float, streetscape: Streetscape, palette: Palette) -> None:
        """Prepare the background, which is most of the work."""
        self.camera = camera
        self._palette = palette
        self._scenery = Scenery(camera, curvature_per_m, streetscape, palette)
        self._image_from_ego = camera.image_from_ego
        self._origin = camera.ego_from_camera[:3, 3]
        self._ego_from_pixel = camera.ego_from_camera[:3, :3] @ np.linalg.inv(camera.intrinsics)

    def render(
        self,
        ego_s_m: float,
        ego_yaw_world: float,
        centres: Floats,
        sizes: Floats,
        yaws: Floats,
        category_ids: NDArray[np.integer],
        track_ids: NDArray[np.integer],
    ) -> RenderedView:
        """One picture.

        Args:
            ego_s_m: how far the ego vehicle has come along the road.
            ego_yaw_world: its heading, for the direction of the sun.
            centres: (N, 3), ego frame.
            sizes: (N, 3), length, width, height.
            yaws: (N,), ego frame.
            category_ids: (N,), say what the boxes look like.
            track_ids: (N,), choose the colours, so that an object keeps its own.
        """
        image, depths, is_ground = self._scenery.draw(ego_s_m)
        rows = np.full(self.camera.image_hw, NO_OBJECT, np.int32)
        own_pixels = np.zeros(len(centres), np.int64)
        sun = rotation_about_z(-ego_yaw_world) @ self._palette.sun_world
        self._darken_ground(image, is_ground, centres, sizes, yaws, sun)
        windows = self._windows(projected_extents(box_corners(centres, sizes, yaws), self._image_from_ego))
        for row, window in windows:
            own_pixels[row] = self._draw_box(
                *(image, depths, rows, row, window, sun, centres[row], sizes[row], float(yaws[row])),
                *(int(category_ids[row]), int(track_ids[row])),
            )
        shown = np.bincount(rows[rows >= 0], minlength=len(centres))
        visibility = (shown / np.maximum(own_pixels, 1)).astype(np.float32)
        return RenderedView(np.clip(image, 0.0, 255.0).astype(np.uint8), rows, visibility)

    def _windows(self, extents: Floats) -> list[tuple[int, tuple[slice, slice]]]:
        """The part of the image around each box that the image shows at all, in a fixed order."""
        height, width = self.camera.image_hw
        windows = []
        for row, (x_low, y_low, x_high, y_high) in enumerate(extents):
            if not (x_high > 0.0 and y_high > 0.0 and x_low < width and y_low < height):  # also drops NaN
                continue
            columns = slice(int(max(x_low, 0.0)), int(min(np.ceil(x_high), width)))
            lines = slice(int(max(y_low, 0.0)), int(min(np.ceil(y_high), height)))
            windows.append((row, (lines, columns)))
        return windows

    def _local_rays(
        self, window: tuple[slice, slice], centre: Floats, yaw: float
    ) -> tuple[list[Floats32], Floats]:
        """Rays of a window, one (h, w) array per box axis, scaled to depth 1, and the local pinhole (3,)."""
        lines, columns = window
        box_from_ego = rotation_about_z(-yaw)
        matrix = box_from_ego @ self._ego_from_pixel
        x_px = np.arange(columns.start, columns.stop) + 0.5
        y_px = (np.arange(lines.start, lines.stop) + 0.5)[:, None]
        rays = [(axis[0] * x_px + (axis[1] * y_px + axis[2])).astype(np.float32) for axis in matrix]
        return rays, box_from_ego @ (self._origin - centre)

    def _draw_box(
        self,
        image: Floats32,
        depths: Floats32,
        rows: NDArray[np.int32],
        row: int,
        window: tuple[slice, slice],
        sun: Floats,
        centre: Floats,
        size: Floats,
        yaw: float,
        category_id: int,
        track_id: int,
    ) -> int:
        """Draw one box into the arrays; returns how many pixels it would have with nothing in front."""
        rays, pinhole = self._local_rays(window, centre, yaw)
        entries, leaves = [], []
        with np.errstate(divide="ignore", invalid="ignore"):  # rays parallel to a face give infinities, as wanted
            for axis in range(3):
                inverse = 1.0 / rays[axis]
                one = np.float32(-0.5 * size[axis] - pinhole[axis]) * inverse
                other = np.float32(0.5 * size[axis] - pinhole[axis]) * inverse
                entries.append(np.minimum(one, other))
                leaves.append(np.maximum(one, other))
        entry = np.maximum(np.maximum(entries[0], entries[1]), entries[2])
        is_hit = (entry < np.minimum(np.minimum(leaves[0], leaves[1]), leaves[2])) & (entry > NEAR_M)
        where = np.nonzero(is_hit & (entry < depths[window]))
        depth = entry[where]
        face_axes = np.where(depth == entries[0][where], 0, np.where(depth == entries[1][where], 1, 2))
        points = np.stack([np.float32(pinhole[axis]) + depth * rays[axis][where] for axis in range(3)], axis=-1)
        sun_local = rotation_about_z(-yaw) @ sun
        colours = paint_object(points, face_axes, size, category_id, track_id, sun_local, self._palette.sun_share)
        image[window][where] = self._palette.haze(colours * np.float32(self._palette.light), depth)
        depths[window][where] = depth
        rows[window][where] = row
        return int(is_hit.sum())

    def _darken_ground(
        self,
        image: Floats32,
        is_ground: NDArray[np.bool_],
        centres: Floats,
        sizes: Floats,
        yaws: Floats,
        sun: Floats,
    ) -> None:
        """The shadows: each box's footprint, drawn out away from the sun, with a soft rim."""
        rim = 0.25
        boxes_from_ego = rotation_about_z(-yaws)[:, :2, :2]
        reach = 0.6 * np.minimum(sizes[:, 2:], 2.2) * -sun[:2] / sun[2]  # (N, 2), ego frame
        if self._palette.sun_share < 0.5:
            reach *= 0.0
        half = 0.5 * sizes[:, :2] + 0.5 * np.abs(np.einsum("nij,nj->ni", boxes_from_ego, reach)) + rim
        middles = np.concatenate([centres[:, :2] + 0.5 * reach, np.zeros((len(centres), 1))], axis=1)
        flat_sizes = np.concatenate([2.0 * half, np.zeros((len(centres), 1))], axis=1)
        extents = projected_extents(box_corners(middles, flat_sizes, yaws), self._image_from_ego)
        for row, window in self._windows(extents):
            rays, pinhole = self._local_rays(window, middles[row], float(yaws[row]))
            where = np.nonzero(is_ground[window])
            depth = np.float32(-pinhole[2]) / rays[2][where]
            inside = [
                np.float32(half[row, axis]) - np.abs(np.float32(pinhole[axis]) + depth * rays[axis][where])
                for axis in range(2)
            ]
            share = np.clip(np.minimum(*inside) / (2.0 * rim), 0.0, 1.0)
            image[window][where] *= (1.0 - np.float32(0.5) * share)[:, None]
