"""Samples of one generated driving scene, as trees of arrays."""

from typing import Any

import numpy as np
from driving_scenes import BOX_FACES, box_corners, cast_rays, generate_scenes, project_points, projected_extents
from numpy.typing import NDArray
from PIL import Image, ImageDraw

__all__ = ["FRONT", "IMAGE_HW", "Scene", "Tree"]

IMAGE_HW = (270, 480)
FRONT = 0
"""Number of the front camera."""

Tree = dict[str | int, Any]
"""A sample or a part of it: arrays, texts and trees by name."""

_SETTINGS: dict[str, Any] = {
    "num_sequences": 1,
    "frames_per_sequence": (2, 2),
    "image_hw": IMAGE_HW,
    "jpeg_quality": 92,
    "seed": 30,
}
_FRAME = 0


class Scene:
    """One generated sequence, of which the pictures show the first frame."""

    def __init__(self) -> None:
        """Generate it."""
        self._frame = generate_scenes(**_SETTINGS).frames[_FRAME]

    def objects(self) -> Tree:
        """All objects of the frame, in float32 and int32: ``centres``, ``sizes``, ``yaws``, ``categories``, ..."""
        names = ("centres", "sizes", "yaws", "velocities")
        values = {name: np.asarray(getattr(self._frame, name), np.float32) for name in names}
        return {**values, "categories": self._frame.category_ids, "visibilities": self._frame.visibility}

    def camera(self, number: int = FRONT, min_visibility: float = 0.4) -> Tree:
        """One camera, and the objects that it sees.

        Args:
            number: Number of the camera.
            min_visibility: Least share of an object that is not hidden. 0: also hidden ones in the field of view.

        Returns:
            A tree of ``image``, an encoded JPEG; ``image_from_ego``, (3, 4); ``mask``, (H, W, 1) uint8, 0 or the
            category + 1; and ``objects``, from the farthest to the nearest: ``centres``, ``sizes``, ``yaws``,
            ``categories``, ``boxes``, (N, 4), x1, y1, x2, y2 in pixels, not cut at the
            borders of the image, and ``depths``, (N,), metres.
        """
        objects, projection = self.objects(), self._frame.image_from_ego[number].astype(np.float32)
        corners = box_corners(objects["centres"], objects["sizes"], objects["yaws"])
        boxes = projected_extents(corners, projection)
        depths = project_points(objects["centres"], projection)[1]
        width = IMAGE_HW[1]
        is_seen = objects.pop("visibilities")[:, number] >= min_visibility
        is_seen &= (boxes[:, 0] < width) & (boxes[:, 2] > 0) & (depths > 1.0)  # also drops NaN
        objects |= {"boxes": boxes.astype(np.float32), "depths": depths.astype(np.float32)}
        order = np.flatnonzero(is_seen)
        order = order[np.argsort(-depths[order], kind="stable")]
        objects = {name: values[order] for name, values in objects.items()}
        return {
            "image": self._frame.jpegs[number],
            "image_from_ego": projection,
            "mask": _silhouettes(corners[order], projection, objects["categories"]),
            "objects": objects,
        }

    def points(self) -> NDArray[np.float32]:
        """What a lidar on the roof would measure: (P, 3), x, y, z in the ego frame, metres."""
        pinhole = np.array([0.9, 0.0, 1.9])
        slopes_rad, turns_rad = np.radians(np.linspace(-24.0, 3.0, 28)), np.radians(np.arange(0.0, 360.0, 0.6))
        heights, turns = np.meshgrid(slopes_rad, turns_rad)
        rays = np.stack(
            [np.cos(heights) * np.cos(turns), np.cos(heights) * np.sin(turns), np.sin(heights)], axis=-1
        ).reshape(-1, 3)
        distances, _ = cast_rays(self._frame, pinhole, rays)
        is_measured = distances < 60.0
        return (pinhole + rays[is_measured] * distances[is_measured, None]).astype(np.float32)


def _silhouettes(corners: NDArray[Any], projection: NDArray[Any], categories: NDArray[Any]) -> NDArray[np.uint8]:
    """The objects are solid boxes, so a silhouette is that of their faces."""
    height, width = IMAGE_HW
    canvas = Image.new("L", (width, height))
    pen = ImageDraw.Draw(canvas)
    for box, category in zip(corners, categories, strict=True):
        pixels, _ = project_points(box, projection)
        if np.isfinite(pixels).all():
            for face in BOX_FACES:
                pen.polygon([tuple(pixels[corner] - 0.5) for corner in face], fill=int(category) + 1)
    return np.asarray(canvas)[..., None]
