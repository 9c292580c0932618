# SPDX-License-Identifier: Apache-2.0
"""What both forms of info pickles say of a frame, as it stands there; and where it stands, for errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework.checks import listed, shown
from accvlab.dali_pipeline_framework.errors import FileError

from ..driving import poses

# A quaternion (w first) or matrix, and a translation; or a matrix (4, 4), and None.
RawPose: TypeAlias = tuple[Any, Any]
Float64Array: TypeAlias = npt.NDArray[np.float64]


@attrs.frozen
class Entry:
    """A dict of a pickle, and where it stands. What is missing, or of another form, is a `FileError`."""

    values: Mapping[str, Any]
    place: str

    def need(self, *names: str) -> Any:
        """Get the value of the first of some names that is there."""
        for name in names:
            if self.values.get(name) is not None:
                return self.values[name]
        wanted = " or ".join(repr(name) for name in names)
        raise FileError(f"{self.place} has no key {wanted}; it has {listed(sorted(map(str, self.values)))}.")

    def get(self, *names: str) -> Any:
        """Get the value of the first of some names that is there, or None."""
        for name in names:
            if self.values.get(name) is not None:
                return self.values[name]
        return None

    def entry(self, *names: str) -> Entry:
        """Get a dict in the dict."""
        return as_entry(self.need(*names), f"{self.place}[{names[0]!r}]")

    def array(self, value: Any, name: str, *shape: int) -> Float64Array:
        """Make an array of a value; -1 in its shape is any length, and no elements are of any shape."""
        try:
            array = np.asarray(value, np.float64)
        except (ValueError, TypeError, OverflowError) as error:
            raise FileError(f"{self.place}[{name!r}] must hold numbers, got {shown(value)}.") from error
        if not array.size and -1 in shape:
            return array.reshape([0 if length == -1 else length for length in shape])
        if array.ndim != len(shape) or any(
            wanted not in (-1, length) for wanted, length in zip(shape, array.shape, strict=True)
        ):
            written = ", ".join("n" if length == -1 else str(length) for length in shape)
            raise FileError(f"{self.place}[{name!r}] must have the shape ({written}), got {array.shape}.")
        return array

    def numbers(self, value: Any, name: str, count: int) -> npt.NDArray[np.int64]:
        """Make whole numbers of a value, one for each box."""
        try:
            return self.array(value, name, count).astype(np.int64)
        except FileError as error:
            raise FileError(f"{error} There are {count} boxes.") from error


def as_entry(value: Any, place: str) -> Entry:
    """Make an entry of a dict of a pickle.

    Raises:
        FileError: It is none.
    """
    if not isinstance(value, dict):
        raise FileError(f"{place} must be a dict, got {shown(value)}.")
    return Entry(value, place)


@attrs.define
class RawCamera:
    """An image. See `CameraColumns`; ``base_from_camera`` or its inverse is given."""

    file: str
    time: float
    intrinsics: Any
    ego_from_camera: RawPose
    base_from_camera: RawPose | None = None
    camera_from_base: RawPose | None = None


@attrs.define
class RawSweep:
    """A lidar record before the frame."""

    file: str
    time: float
    world_from_ego: RawPose
    ego_from_lidar: RawPose


@attrs.define
class RawBoxes:
    """Boxes of a frame: ``boxes`` as they are, ``(n, 7)``; of the others None where they are not known."""

    boxes: Float64Array
    names: Sequence[str | None]
    velocities: Float64Array | None = None
    instances: npt.NDArray[np.int64] | Sequence[str] | None = None
    visibilities: npt.NDArray[np.int64] | None = None
    num_lidar_points: npt.NDArray[np.int64] | None = None
    num_radar_points: npt.NDArray[np.int64] | None = None
    is_valid: npt.NDArray[np.bool_] | None = None


@attrs.define
class RawBoxes2d:
    """2D boxes of an image; ``places`` are the centers of the objects in coordinates of the camera."""

    boxes: Float64Array
    centers: Float64Array
    depths: Float64Array
    names: Sequence[str | None]
    places: Float64Array | None = None
    visibilities: Sequence[int] | None = None
    attributes: Sequence[int] | None = None


@attrs.define(kw_only=True)
class RawInfo:
    """A frame.

    Attributes:
        place: Where it stands, for errors.
        token: Its name.
        time: Seconds.
        world_from_ego: Pose of the vehicle.
        ego_from_base: The lidar, on the vehicle.
        cameras: Images, by camera.
        scene: Name of its scene.
        number: Place in its scene.
        previous: Token of the frame before; empty for none.
        lidar_file: File of its points.
        num_point_columns: Number of values of each point.
        sweeps: Lidar records before it, the newest first; None where the pickle has none at all.
        boxes: Its boxes.
        boxes_2d: 2D boxes, by camera.
        can_bus: See `FrameColumns`.
        ego_status: See `FrameColumns`.
        lines: Category and points of each map line.
    """

    place: str
    token: str
    time: float
    world_from_ego: RawPose
    ego_from_base: RawPose
    cameras: dict[str, RawCamera]
    scene: str | None = None
    number: int | None = None
    previous: str | None = None
    lidar_file: str | None = None
    num_point_columns: int | None = None
    sweeps: list[RawSweep] | None = None
    boxes: RawBoxes | None = None
    boxes_2d: dict[str, RawBoxes2d] | None = None
    can_bus: Float64Array | None = None
    ego_status: Float64Array | None = None
    lines: list[tuple[str, Float64Array]] | None = None


def pose_column(raw: Sequence[RawPose], places: Sequence[str], what: str) -> Float64Array:
    """Make poses ``(n, 3, 4)`` of raw ones; ``places`` say where each stands.

    Raises:
        FileError: One is not a rigid motion.
    """
    column = np.full((len(raw), 3, 4), np.nan)
    forms: dict[tuple[bool, int], list[int]] = {}
    for row, (rotation, translation) in enumerate(raw):
        size = len(rotation) if isinstance(rotation, list | tuple | np.ndarray) else 0
        forms.setdefault((translation is None, size), []).append(row)
    for form, rows in forms.items():
        try:
            column[rows] = _poses_of_form([raw[row] for row in rows], form)
        except (ValueError, TypeError, OverflowError):
            for row in rows:  # the one that is wrong
                with_problem = _problem_of_pose(raw[row], form)
                if with_problem:
                    raise FileError(f"{places[row]}: {what} {with_problem}") from None
            raise FileError(f"{places[rows[0]]}: {what} is no pose: {shown(raw[rows[0]])}.") from None
    gram = column[..., :3] @ np.swapaxes(column[..., :3], -1, -2)
    is_off = ~(np.abs(gram - np.eye(3)).max(axis=(-1, -2), initial=0) < 1e-3) | ~np.isfinite(column[..., 3]).all(
        -1
    )
    if is_off.any():
        row = int(np.argmax(is_off))
        raise FileError(
            f"{places[row]}: {what} must be a rotation and a finite translation, got {shown(raw[row])}."
        )
    return column


def _poses_of_form(raw: Sequence[RawPose], form: tuple[bool, int]) -> Float64Array:
    if form == (True, 4):
        return np.asarray([matrix for matrix, _ in raw], np.float64)[:, :3]
    rotations = np.asarray([rotation for rotation, _ in raw], np.float64)
    translations = np.asarray([translation for _, translation in raw], np.float64)
    if translations.shape != (len(raw), 3):
        raise ValueError("no translations")
    if form == (False, 4) and rotations.ndim == 2:
        with np.errstate(invalid="ignore"):
            return poses.pose_of_quaternion(rotations, translations)
    if form == (False, 3) and rotations.shape == (len(raw), 3, 3):
        return poses.pose(rotations, translations)
    if form == (False, 4) and rotations.shape == (len(raw), 4, 4):
        return rotations[:, :3]
    raise ValueError("no rotations")


def _problem_of_pose(raw: RawPose, form: tuple[bool, int]) -> str | None:
    try:
        if _poses_of_form([raw], form).shape == (1, 3, 4):
            return None
    except (ValueError, TypeError, OverflowError):
        pass
    return (
        f"must be a quaternion (w first) or a matrix (3, 3) with a translation, or a matrix (4, 4), got "
        f"{shown(raw)}."
    )
