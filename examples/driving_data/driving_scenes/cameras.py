"""The camera rig: six pinhole cameras around the ego vehicle, much like those of nuScenes."""

import math

import attrs
import numpy as np
from numpy.typing import NDArray

from driving_scenes.geometry import invert_rigid, rotation_about_z

__all__ = ["CAMERA_NAMES", "Camera", "camera_rig"]


@attrs.frozen
class _Mount:
    name: str
    position_m: tuple[float, float, float]
    yaw_deg: float
    pitch_down_deg: float
    roll_deg: float
    field_of_view_deg: float
    principal_shift: tuple[float, float]  # of the principal point from the middle, as fractions of width, height


# The small unequal numbers are on purpose: code that mixes up two cameras, or takes the middle of the image
# for the principal point, gives visibly wrong boxes.
_MOUNTS = (
    _Mount("FRONT", (1.70, 0.00, 1.58), 0.0, 1.0, 0.0, 70.0, (0.004, -0.006)),
    _Mount("FRONT_RIGHT", (1.55, -0.50, 1.61), -55.0, 0.6, 0.3, 70.6, (-0.006, 0.004)),
    _Mount("FRONT_LEFT", (1.52, 0.50, 1.60), 55.0, 0.8, -0.2, 69.5, (0.007, 0.003)),
    _Mount("BACK", (0.03, 0.00, 1.66), 180.0, 0.5, 0.1, 96.0, (-0.003, -0.004)),
    _Mount("BACK_LEFT", (1.04, 0.48, 1.63), 110.0, 0.7, 0.2, 69.8, (0.005, -0.007)),
    _Mount("BACK_RIGHT", (1.01, -0.48, 1.62), -110.0, 0.9, -0.3, 70.3, (-0.008, 0.006)),
)

CAMERA_NAMES: tuple[str, ...] = tuple(mount.name for mount in _MOUNTS)
"""The cameras, in the order of every per-camera table."""

_EGO_FROM_OPTICAL = np.array([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])


@attrs.frozen(eq=False)
class Camera:
    """A calibrated pinhole camera on the ego vehicle, without lens distortion."""

    name: str
    image_hw: tuple[int, int]
    intrinsics: NDArray[np.float64]
    """(3, 3), pixels."""
    ego_from_camera: NDArray[np.float64]
    """(4, 4), metres."""

    @property
    def image_from_ego(self) -> NDArray[np.float64]:
        """(3, 4), projects homogeneous points of the ego frame to pixels times depth."""
        return np.asarray(self.intrinsics @ invert_rigid(self.ego_from_camera)[:3])


def camera_rig(image_hw: tuple[int, int]) -> tuple[Camera, ...]:
    """The six cameras for one image size (height, width in pixels), in the order of `CAMERA_NAMES`.

    Fields of view are horizontal and do not depend on the image size; pixels are square.
    """
    return tuple(_mounted(mount, image_hw) for mount in _MOUNTS)


def _mounted(mount: _Mount, image_hw: tuple[int, int]) -> Camera:
    height, width = image_hw
    focal_px = 0.5 * width / math.tan(math.radians(0.5 * mount.field_of_view_deg))
    shift_x, shift_y = mount.principal_shift
    intrinsics = np.array(
        [[focal_px, 0.0, (0.5 + shift_x) * width], [0.0, focal_px, (0.5 + shift_y) * height], [0.0, 0.0, 1.0]]
    )
    pitch, roll = math.radians(mount.pitch_down_deg), math.radians(mount.roll_deg)
    pitched = np.array(
        [[math.cos(pitch), 0.0, math.sin(pitch)], [0.0, 1.0, 0.0], [-math.sin(pitch), 0.0, math.cos(pitch)]]
    )
    rolled = np.array(
        [[1.0, 0.0, 0.0], [0.0, math.cos(roll), -math.sin(roll)], [0.0, math.sin(roll), math.cos(roll)]]
    )
    ego_from_camera = np.eye(4)
    ego_from_camera[:3, :3] = rotation_about_z(math.radians(mount.yaw_deg)) @ pitched @ rolled @ _EGO_FROM_OPTICAL
    ego_from_camera[:3, 3] = mount.position_m
    return Camera(mount.name, image_hw, intrinsics, ego_from_camera)
