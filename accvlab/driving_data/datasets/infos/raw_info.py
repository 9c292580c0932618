# SPDX-License-Identifier: Apache-2.0
"""Frames of info pickles: what both forms have, with the place of each for errors; order and scenes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import attrs
import numpy as np

from accvlab.dali_pipeline_framework.checks import listed, shown
from accvlab.dali_pipeline_framework.errors import FileError

from ..driving import poses
from ..driving.array_types import Float64, Int64

# A quaternion (w first) or matrix, and a translation; or a matrix (4, 4), and None.
RawPose: TypeAlias = tuple[Any, Any]


@attrs.frozen
class Entry:
    """A dict of a pickle, and its place. What is missing, or of another form, is a `FileError`."""

    values: Mapping[str, Any]
    place: str

    def need(self, *names: str) -> Any:
        """Get the value of the first existing one of some names."""
        for name in names:
            if (value := self.values.get(name)) is not None:
                return value
        wanted, there = " or ".join(map(repr, names)), listed(sorted(map(str, self.values)))
        raise FileError(f"{self.place} has no key {wanted}; it has {there}.")

    def get(self, *names: str) -> Any:
        """Get the value of the first existing one of some names, or None."""
        for name in names:
            if (value := self.values.get(name)) is not None:
                return value
        return None

    def entry(self, *names: str) -> Entry:
        """Get a dict in the dict."""
        return as_entry(self.need(*names), f"{self.place}[{names[0]!r}]")

    def entries(self, name: str) -> list[Entry]:
        """Get the dicts of a list in the dict; none where there is no list."""
        values = enumerate(self.get(name) or ())
        return [as_entry(value, f"{self.place}[{name!r}][{number}]") for number, value in values]

    def named_entries(self, name: str) -> dict[str, Entry]:
        """Get the dicts of a dict in the dict, by their names; none where there is no dict."""
        values = (self.get(name) or {}).items()
        return {str(key): as_entry(value, f"{self.place}[{name!r}][{key!r}]") for key, value in values}

    def array(self, value: Any, name: str, *shape: int) -> Float64:
        """Make an array of a value; -1 in its shape is any length, and no elements are of any shape."""
        try:
            array = np.asarray(value, np.float64)
        except (ValueError, TypeError, OverflowError) as error:
            raise FileError(f"{self.place}[{name!r}] must hold numbers, got {shown(value)}.") from error
        if not array.size and -1 in shape:
            return array.reshape([0 if length == -1 else length for length in shape])
        fits = [wanted in (-1, length) for wanted, length in zip(shape, array.shape, strict=False)]
        if array.ndim != len(shape) or not all(fits):
            written = ", ".join("n" if length == -1 else str(length) for length in shape)
            raise FileError(f"{self.place}[{name!r}] must have the shape ({written}), got {array.shape}.")
        return array

    def numbers(self, value: Any, name: str, count: int) -> Int64:
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
    """An image. See `CameraColumns`; ``pose`` is ``base_from_camera`` in ``infos``, else ``camera_from_base``."""

    file: str
    time: float
    intrinsics: Any
    ego_from_camera: RawPose
    pose: RawPose


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

    boxes: Float64
    names: Sequence[str | None]
    velocities: Float64 | None = None
    instances: Int64 | Sequence[str] | None = None
    visibilities: Int64 | None = None
    num_lidar_points: Int64 | None = None
    num_radar_points: Int64 | None = None


@attrs.define
class RawBoxes2d:
    """2D boxes of an image; ``places`` are the centers of the objects in coordinates of the camera."""

    boxes: Float64
    centers: Float64
    depths: Float64
    names: Sequence[str | None]
    places: Float64 | None = None
    visibilities: Int64 | None = None
    attributes: Sequence[int] | None = None


@attrs.define(kw_only=True)
class RawInfo:
    """A frame.

    Attributes:
        place: Its place in the pickle, for errors.
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
    can_bus: Float64 | None = None
    ego_status: Float64 | None = None
    lines: list[tuple[str, Float64]] | None = None


def pose_column(raw: Sequence[RawPose], places: Sequence[str], what: str) -> Float64:
    """Make poses ``(n, 3, 4)`` of raw ones; ``places`` are theirs, for errors.

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
            for row in rows if len(rows) > 1 else ():  # the one that is wrong
                pose_column([raw[row]], [places[row]], what)
            raise FileError(
                f"{places[rows[0]]}: {what} must be a quaternion (w first) or a matrix (3, 3) with a "
                f"translation, or a matrix (4, 4), got {shown(raw[rows[0]])}."
            ) from None
    gram = column[..., :3] @ np.swapaxes(column[..., :3], -1, -2)
    is_off = ~(np.abs(gram - np.eye(3)).max(axis=(-1, -2), initial=0) < 1e-3)
    is_off |= ~np.isfinite(column[..., 3]).all(axis=-1)
    if is_off.any():
        row = int(np.argmax(is_off))
        rule = f"{places[row]}: {what} must be a rotation and a finite translation"
        raise FileError(f"{rule}, got {shown(raw[row])}.")
    return column


def _poses_of_form(raw: Sequence[RawPose], form: tuple[bool, int]) -> Float64:
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


# A pause of more than this many usual intervals ends a scene, where nothing else says where scenes end.
_PAUSE = 5.0
# No vehicle is that fast: such neighbours are not of one scene.
_FASTEST_M_PER_S = 100.0


@attrs.frozen
class Sequences:
    """Frames, scene by scene, by time.

    Attributes:
        kind: What they are ordered by.
        order: Numbers of the frames as they are stored.
        names: Name of each scene.
        lengths: Number of frames of each scene.
        rule: By what scenes were found.
    """

    kind: str
    order: list[int]
    names: list[str]
    lengths: list[int]
    rule: str


def sequences_of(infos: Sequence[RawInfo], positions: Float64, order: str, path: str) -> Sequences:
    """Order frames and find the scenes.

    Args:
        infos: The frames, as they are stored.
        positions: Of the vehicle in the world, ``(num_frames, 3)``.
        order: ``"time"``: all by time; ``"stored"``: as they are; ``"scene"``: scenes by their first frame, frames
            by time.
        path: Of the pickle.

    Raises:
        FileError: A frame is there twice, scenes are interleaved, or times go backwards in one.
    """
    _check_tokens(infos, path)
    numbers = list(range(len(infos)))
    if order != "stored":
        numbers.sort(key=lambda number: infos[number].time)
    rule, keys = _scene_keys(infos, numbers)
    pairs = list(zip(keys, numbers, strict=True))
    if order == "scene":
        rank = {key: place for place, key in enumerate(dict.fromkeys(keys))}
        pairs.sort(key=lambda pair: rank[pair[0]])
    groups = itertools.groupby(pairs, key=lambda pair: pair[0])
    scenes = [(key, [number for _, number in group]) for key, group in groups]
    _check_interleaved(infos, scenes, path)
    for _, of_scene in scenes:
        _check_times(infos, of_scene, positions, path, checks_speed=rule.startswith("a scene begins"))
    lengths = [len(of_scene) for _, of_scene in scenes]
    return Sequences(order, [number for _, number in pairs], [key for key, _ in scenes], lengths, rule)


def _scene_keys(infos: Sequence[RawInfo], numbers: Sequence[int]) -> tuple[str, list[str]]:
    """By what scenes are found, and the scene of each frame in order."""
    ordered = [infos[number] for number in numbers]
    scenes = [info.scene for info in ordered if info.scene is not None]
    if len(scenes) == len(ordered):
        return "the scene token of each frame", scenes
    if all(info.previous is not None for info in ordered):
        return "the token of the frame before each", _of_links(infos, ordered)
    rule, is_first = _scene_starts(ordered)
    keys: list[str] = []
    for info, starts in zip(ordered, is_first, strict=True):
        keys.append(info.token if starts or not keys else keys[-1])
    return rule, keys


def _scene_starts(ordered: Sequence[RawInfo]) -> tuple[str, list[bool]]:
    """By what scenes are found, and whether one begins with each frame but the first."""
    if all(info.number is not None for info in ordered):
        numbers = [info.number or 0 for info in ordered]
        is_first = [True, *(after <= before for before, after in itertools.pairwise(numbers))]
        return "a scene begins where the number of the frame in its scene does not grow", is_first
    steps = np.diff([info.time for info in ordered])
    usual = float(np.median(steps[steps > 0])) if (steps > 0).any() else 0.0
    is_pause = [True, *((steps > _PAUSE * usual) | (steps < -_PAUSE * usual)).tolist()]
    pause = f"after a pause of more than {_PAUSE * usual:g} s"
    if any(info.sweeps for info in ordered):
        is_first = [not info.sweeps or is_late for info, is_late in zip(ordered, is_pause, strict=True)]
        return f"a scene begins where a frame has no sweeps before it, or {pause}", is_first
    return f"a scene begins {pause}", is_pause


def _of_links(infos: Sequence[RawInfo], ordered: Sequence[RawInfo]) -> list[str]:
    """Token of the first frame that leads to each."""
    by_token = {info.token: info for info in infos}
    first_of: dict[str, str] = {}
    for info in ordered:
        chain: dict[str, None] = {}
        one = info
        while one.token not in first_of:
            chain[one.token] = None
            before = by_token.get(one.previous or "")
            if before is None or before.token in chain:
                first_of[one.token] = one.token
                break
            one = before
        for token in chain:
            first_of[token] = first_of[one.token]
    return [first_of[info.token] for info in ordered]


def _check_tokens(infos: Sequence[RawInfo], path: str) -> None:
    seen: dict[str, int] = {}
    for number, info in enumerate(infos):
        if seen.setdefault(info.token, number) != number:
            raise FileError(
                f"{path!r}: the frames {seen[info.token]} and {number} have the same token {info.token!r}. Each "
                f"frame may be there once: remove one."
            )


def _check_interleaved(infos: Sequence[RawInfo], scenes: Sequence[tuple[str, list[int]]], path: str) -> None:
    first_of = {scenes[0][0]: infos[scenes[0][1][0]]}
    for (scene_before, numbers_before), (scene, numbers) in itertools.pairwise(scenes):
        before, again = infos[numbers_before[-1]], infos[numbers[0]]
        first = first_of.setdefault(scene, again)
        if first is not again:
            raise FileError(
                f"{path!r}: scenes are interleaved: the frame {again.token!r} (time {again.time:.6f}) belongs to "
                f"the scene {scene!r}, which began with {first.token!r}, but follows {before.token!r} (time "
                f"{before.time:.6f}) of the scene {scene_before!r}. Models that go along sequences need the "
                f'frames of a scene together: `order="scene"` puts them together.'
            )


def _check_times(
    infos: Sequence[RawInfo], numbers: Sequence[int], positions: Float64, path: str, *, checks_speed: bool
) -> None:
    for one, two in itertools.pairwise(numbers):
        before, after = infos[one], infos[two]
        step_s = after.time - before.time
        pair = f"{before.token!r} (time {before.time:.6f}) and {after.token!r} (time {after.time:.6f})"
        if step_s < 0:
            raise FileError(
                f'{path!r}: times go backwards between the frames {pair} of one scene. `order="time"` puts them '
                f"in order of time."
            )
        if step_s == 0:
            raise FileError(f"{path!r}: the frames {pair} of one scene have the same time. Correct or remove one.")
        is_back = before.number is not None and after.number is not None and after.number <= before.number
        if is_back or (before.previous == after.token):
            what = "are linked the other way round (`prev`)"
            if is_back:
                what = f"are the numbers {before.number} and {after.number} of their scene"
            raise FileError(
                f"{path!r}: times go backwards: the frames {pair} {what}. Either is wrong: correct the times, or "
                f"the numbers and links."
            )
        distance_m = float(np.linalg.norm(positions[two] - positions[one]))
        if checks_speed and distance_m > _FASTEST_M_PER_S * max(step_s, 0.1):
            raise FileError(
                f"{path!r}: the vehicle is at places {distance_m:.0f} m apart in the frames {pair}, which follow "
                f"each other: scenes are interleaved, or one begins there unnoticed. The pickle does not say to "
                f"which scene frames belong: add 'scene_token' to each, or store scenes one after the other and "
                f'open it with `order="stored"`.'
            )
