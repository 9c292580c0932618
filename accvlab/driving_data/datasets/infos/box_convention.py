# SPDX-License-Identifier: Apache-2.0
"""What the columns of boxes mean: stated, or found out from the data, or refused.

Pickles do not say which convention they follow. Three are in use: ``x, y, z`` and then ::

    "l,w,h,yaw"          length, width, height, yaw
    "w,l,h,-yaw-pi/2"    width, length, height, -yaw - pi/2
    "w,l,h,yaw"          width, length, height, yaw

and z is that of the center or of the bottom. Yaw is 0 along x, counter-clockwise seen from above.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np

from accvlab.dali_pipeline_framework.checks import bullets
from accvlab.dali_pipeline_framework.errors import SettingError

from ..driving import poses
from ..driving.array_types import Bool, Float64, Int64

# By layout: whether the length comes before the width, and the sign of yaw.
_MEANINGS = {"l,w,h,yaw": (True, 1), "w,l,h,-yaw-pi/2": (False, -1), "w,l,h,yaw": (False, 1)}
LAYOUTS = tuple(_MEANINGS)
Z_PLACES = ("center", "bottom")


# Names of objects that are longer than wide, and drive along their length.
_OF_VEHICLES = ("car", "truck", "bus", "trailer", "vehicle", "van", "cycl", "motor", "tram", "train")
_FEWEST = 10
_MAJORITY = 0.8
_STANDARD_DEVIATIONS = 3  # of a difference between two counts that chance alone would make
_FEWEST_AGAINST = 3
_CHANCE = 0.1  # less than the share of objects that go along an angle if they go anywhere
_SLOWEST_M_PER_S = 1.0
_LARGEST_ANGLE = np.deg2rad(20)
_FARTHEST_M = 30.0


@attrs.frozen(eq=False, kw_only=True)
class RawBoxColumns:
    """Boxes of all frames as they are in a pickle.

    Attributes:
        values: ``(N, 7)``.
        frame: Frame of each, ``(N,)``.
        is_vehicle: Whether it is of a category of vehicles, ``(N,)``.
        velocity: In the base, ``(N, 2)``, NaN where unknown.
        instance: ``(N,)``, or None.
        time: Of each frame.
        world_from_base: Of each frame.
        ego_from_base: Of each frame.
    """

    values: Float64
    frame: Int64
    is_vehicle: Bool
    velocity: Float64
    instance: Int64 | None
    time: Float64
    world_from_base: Float64
    ego_from_base: Float64


@attrs.frozen
class Convention:
    """What the columns mean.

    Attributes:
        layout: One of `LAYOUTS`.
        z: ``"center"`` or ``"bottom"``.
        how: Whether each was stated or found.
        evidence: What the data say, in figures.
        warning: Why the layout is likely, but not sure; empty where it is sure.
    """

    layout: str
    z: str
    how: str
    evidence: tuple[str, ...]
    warning: str = ""

    def decoded(self, values: Float64) -> tuple[Float64, Float64, Float64]:
        """Centers ``(N, 3)``, sizes (length, width, height) ``(N, 3)`` and yaws ``(N,)`` of boxes ``(N, 7)``."""
        center, size, yaw = values[:, :3].copy(), values[:, 3:6], values[:, 6]
        if self.layout != "l,w,h,yaw":
            size = size[:, [1, 0, 2]]
        if self.layout == "w,l,h,-yaw-pi/2":
            yaw = -yaw - np.pi / 2
        if self.z == "bottom":
            center[:, 2] += size[:, 2] / 2
        return center, np.ascontiguousarray(size), np.arctan2(np.sin(yaw), np.cos(yaw))


def is_name_of_vehicle(name: str | None) -> bool:
    """Whether objects of a category are longer than wide and drive along their length."""
    return name is not None and any(part in name.lower() for part in _OF_VEHICLES)


def convention_of(boxes: RawBoxColumns, layout: str | None, z: str | None, path: str) -> Convention:
    """Check what was stated (one of `LAYOUTS`, of `Z_PLACES`), and find out what was not (None).

    Sizes and directions decide the layout. Where directions do not suffice (few objects move, or they turn) but do
    not contradict the sizes, the layout is found with a warning.

    Raises:
        SettingError: What was stated contradicts the data, or the data leave it in doubt.
    """
    is_length_first, of_sizes = _longer_column(boxes)
    directions = [_directions("velocities", boxes, boxes.velocity)]
    if boxes.instance is not None:
        directions.append(_directions("tracks", boxes, _velocity_of_tracks(boxes, boxes.instance)))
    signs = {each.sign for each in directions if each.sign is not None}
    sign = signs.pop() if len(signs) == 1 else None
    is_bottom_by, of_z = _z_place(boxes)
    evidence = (of_sizes, *(each.line for each in directions), *of_z)
    found_layout = _layout_of(is_length_first, sign)
    likely_layout = None if signs or sign is not None else _likely_layout(is_length_first, directions)
    found_z = is_bottom_by.pop() if len(is_bottom_by) == 1 else None
    problems = []
    if layout is None and found_layout is None and likely_layout is None:
        problems.append("the columns of sizes and yaw (`boxes_convention`)")
    if z is None and found_z is None:
        problems.append('whether z is that of the center or of the bottom (`z="center"` or `z="bottom"`)')
    if problems:
        raise SettingError(
            f"{path!r}: the boxes leave in doubt {' and '.join(problems)}:\n{bullets(evidence)}\n"
            f"State it: `boxes_convention` is one of {', '.join(map(repr, LAYOUTS))}. The converters of "
            f"StreamPETR, SparseDrive, Sparse4D and mmdetection3d from 1.0 write 'l,w,h,yaw'; those of BEVFormer, "
            f"VAD, DETR3D, BEVFusion and mmdetection3d before 1.0 'w,l,h,-yaw-pi/2'; that of UniAD 'w,l,h,yaw'. "
            f"All of them write the center."
        )
    if layout is not None and not _fits(layout, is_length_first, sign):
        which = f", which are {found_layout!r}" if found_layout else ""
        rule = f"{path!r}: `boxes_convention={layout!r}` contradicts the boxes{which}"
        raise SettingError(f"{rule}:\n{bullets(evidence)}")
    if z is not None and found_z is not None and z != found_z:
        rule = f"{path!r}: `z={z!r}` contradicts the boxes, whose z is of the {found_z}"
        raise SettingError(f"{rule}:\n{bullets(evidence)}")
    is_likely = layout is None and found_layout is None
    settings = {"boxes_convention (not sure)" if is_likely else "boxes_convention": layout, "z": z}
    stated = [name for name, given in settings.items() if given is not None]
    found = [name for name in settings if name not in stated]
    parts = (("stated", stated), ("found", found))
    how = "; ".join(f"{what}: {' and '.join(names)}" for what, names in parts if names)
    warning = _warning_of(path, str(likely_layout), evidence) if is_likely else ""
    return Convention(layout or found_layout or str(likely_layout), z or str(found_z), how, evidence, warning)


def _warning_of(path: str, layout: str, evidence: tuple[str, ...]) -> str:
    by = "the sizes" if layout.startswith("l") else "the sizes, and where most objects go,"
    return (
        f"{path!r}: columns 3 to 6 of the boxes are read as {layout!r}: {by} say so. The directions in which "
        f"objects move do not contradict it, but are no proof:\n{bullets(evidence)}\n"
        f"Pass `boxes_convention={layout!r}`, or the right one of {', '.join(map(repr, LAYOUTS))}, to settle it; "
        "there is no warning then."
    )


def _layout_of(is_length_first: bool | None, sign: int | None) -> str | None:
    return next((layout for layout, meaning in _MEANINGS.items() if meaning == (is_length_first, sign)), None)


def _likely_layout(is_length_first: bool | None, directions: Sequence[_Directions]) -> str | None:
    """The layout that sizes and directions suggest together, where directions alone do not prove it."""
    leanings = {each.leaning for each in directions if each.leaning is not None}
    if is_length_first and not leanings:
        leanings = {1}  # the only layout with the length first
    if is_length_first is None or len(leanings) != 1:
        return None
    (sign,) = leanings
    return None if any(each.contradicts(sign) for each in directions) else _layout_of(is_length_first, sign)


def _fits(layout: str, is_length_first: bool | None, sign: int | None) -> bool:
    length_first, of_yaw = _MEANINGS[layout]
    return is_length_first in (None, length_first) and sign in (None, of_yaw)


# --- sizes ----------------------------------------------------------------------------------------------


def _longer_column(boxes: RawBoxColumns) -> tuple[bool | None, str]:
    """Whether column 3 is the length."""
    first, second = boxes.values[boxes.is_vehicle, 3], boxes.values[boxes.is_vehicle, 4]
    num_first, num_second = int((first > 1.1 * second).sum()), int((second > 1.1 * first).sum())
    ratio = float(np.median(first / np.where(second > 0, second, np.nan))) if len(first) else np.nan
    line = (
        f"sizes: of {len(first)} boxes of vehicles, column 3 is the longer in {num_first}, column 4 in "
        f"{num_second} (median of column 3 / column 4: {ratio:.2f})"
    )
    total = num_first + num_second
    if len(first) < _FEWEST or max(num_first, num_second) < _MAJORITY * len(first) or not total:
        return None, f"{line}: not decided"
    return num_first > num_second, f"{line}: length {'before' if num_first > num_second else 'after'} width"


# --- directions -----------------------------------------------------------------------------------------


@attrs.frozen
class _Directions:
    """Which way moving objects go: how many along yaw = column 6, along -(column 6) - pi/2, along neither.

    Attributes:
        sign: The sign of yaw in column 6 that nearly all of them show: 1, -1, or None.
        line: The figures.
    """

    plus: int
    minus: int
    neither: int
    sign: int | None
    line: str

    @property
    def leaning(self) -> int | None:
        """The sign that more objects show than by chance, although others go elsewhere: 1, -1, or None."""
        most, lead = max(self.plus, self.minus), abs(self.plus - self.minus)
        if most <= self.neither or lead < _STANDARD_DEVIATIONS * (self.plus + self.minus) ** 0.5:
            return None
        return 1 if self.plus > self.minus else -1

    def contradicts(self, sign: int) -> bool:
        """Whether objects, be they few, go along the other sign, or of many hardly any goes along this one."""
        total = self.plus + self.minus + self.neither
        for_it, against = (self.plus, self.minus) if sign > 0 else (self.minus, self.plus)
        is_shown_by_none = total >= _FEWEST and for_it < _CHANCE * total
        return is_shown_by_none or against >= max(for_it + _FEWEST_AGAINST, self.neither)


def _directions(name: str, boxes: RawBoxColumns, velocity: Float64) -> _Directions:
    """Count which way moving objects go."""
    with np.errstate(invalid="ignore"):
        is_moving = np.linalg.norm(velocity, axis=-1) > _SLOWEST_M_PER_S
    of_vehicles = is_moving & boxes.is_vehicle
    kind, chosen = ("vehicles", of_vehicles) if of_vehicles.sum() >= _FEWEST else ("objects", is_moving)
    heading = np.arctan2(velocity[chosen, 1], velocity[chosen, 0])
    column = boxes.values[chosen, 6]
    fits_plus = _angle_between_lines(heading, column) < _LARGEST_ANGLE
    fits_minus = _angle_between_lines(heading, -column - np.pi / 2) < _LARGEST_ANGLE
    plus, minus = int((fits_plus & ~fits_minus).sum()), int((fits_minus & ~fits_plus).sum())
    both, neither = int((fits_plus & fits_minus).sum()), int((~fits_plus & ~fits_minus).sum())
    line = (
        f"{name}: of {len(heading)} moving {kind}, {plus} go along yaw = column 6, {minus} along yaw = "
        f"-(column 6) - pi/2, {both} along both, {neither} along neither"
    )
    total = plus + minus + neither
    sign, decision = None, "not decided"
    if max(plus, minus) >= max(_FEWEST, _MAJORITY * total):
        sign, decision = (1, "column 6 is yaw") if plus > minus else (-1, "column 6 is -yaw - pi/2")
    return _Directions(plus, minus, neither, sign, f"{line}: {decision}")


def _angle_between_lines(one: Any, two: Any) -> Float64:
    """Angle between lines without direction, in [0, pi/2]: a car may back up."""
    return np.asarray(np.abs((one - two + np.pi / 2) % np.pi - np.pi / 2))


def _velocity_of_tracks(boxes: RawBoxColumns, instance: Int64) -> Float64:
    """Velocity to the next frame in which an object is, in the base, ``(N, 2)``; NaN where there is none."""
    velocity = np.full((len(instance), 2), np.nan)
    order = np.lexsort((boxes.frame, instance))
    one, two = order[:-1], order[1:]
    step_s = boxes.time[boxes.frame[two]] - boxes.time[boxes.frame[one]]
    follows = (instance[one] == instance[two]) & (instance[one] >= 0) & (step_s > 0) & (step_s < 2)
    one, two, step_s = one[follows], two[follows], step_s[follows]
    world_from_base = boxes.world_from_base[boxes.frame[one]]
    here = poses.moved(world_from_base, boxes.values[one, :3])
    there = poses.moved(boxes.world_from_base[boxes.frame[two]], boxes.values[two, :3])
    moved = poses.turned(poses.inverse(world_from_base), there - here)
    velocity[one] = moved[:, :2] / step_s[:, np.newaxis]
    return velocity


# --- z --------------------------------------------------------------------------------------------------


def _z_place(boxes: RawBoxColumns) -> tuple[set[str], tuple[str, ...]]:
    """What says that z is of the center or the bottom."""
    is_near = np.linalg.norm(boxes.values[:, :2], axis=-1) < _FARTHEST_M
    values, frame = boxes.values[is_near], boxes.frame[is_near]
    of_height, line_of_height = _z_by_height(values, frame)
    of_ground, line_of_ground = _z_by_ground(values, boxes.ego_from_base[frame])
    return {place for place in (of_height, of_ground) if place is not None}, (line_of_height, line_of_ground)


def _z_by_height(values: Float64, frame: Int64) -> tuple[str | None, str]:
    """Within a frame, centers of higher boxes are higher, by half of the difference; bottoms are not."""
    counts = np.maximum(np.bincount(frame), 1)
    height = values[:, 5] - (np.bincount(frame, values[:, 5]) / counts)[frame]
    z = values[:, 2] - (np.bincount(frame, values[:, 2]) / counts)[frame]
    spread = float((height**2).sum())
    if len(values) < 2 * _FEWEST or spread < 0.05 * len(values):
        return None, (
            f"heights: {len(values)} boxes within {_FARTHEST_M:g} m, too few or too equal in height to tell "
            f"whether z grows with it: not decided"
        )
    slope = float((height * z).sum() / spread)
    error = float(np.sqrt(((z - slope * height) ** 2).sum() / max(len(values) - 2, 1) / spread))
    line = (
        f"heights: z grows by {slope:.2f} +- {error:.2f} of the height of a box, within frames "
        f"({len(values)} boxes within {_FARTHEST_M:g} m; 0.5: center, 0: bottom)"
    )
    if error < 0.08:
        if abs(slope - 0.5) < 0.17:
            return "center", f"{line}: center"
        if abs(slope) < 0.17:
            return "bottom", f"{line}: bottom"
    return None, f"{line}: not decided"


def _z_by_ground(values: Float64, ego_from_base: Float64) -> tuple[str | None, str]:
    """Objects stand on the ground, which is at 0 in coordinates of the vehicle."""
    z = poses.moved(ego_from_base, values[:, :3])[:, 2]
    mounting = ego_from_base[:, 2, 3]
    if len(z) < _FEWEST or np.median(mounting) < 0.5:
        return None, f"ground: {len(z)} boxes within {_FARTHEST_M:g} m, or no height of the lidar: not decided"
    if_center, if_bottom = float(np.median(z - values[:, 5] / 2)), float(np.median(z))
    spread = float(np.median(np.abs(z - if_bottom)))
    line = (
        f"ground: the median bottom is at {if_center:.2f} m if z is that of the center, at {if_bottom:.2f} m if "
        f"that of the bottom (+- {spread:.2f} m; {len(z)} boxes within {_FARTHEST_M:g} m; "
        f"the lidar is mounted {np.median(mounting):.2f} m high)"
    )
    for place, one, other in (("center", if_center, if_bottom), ("bottom", if_bottom, if_center)):
        if spread < 0.5 and abs(one) < 0.3 and abs(other) > abs(one) + 0.3:
            return place, f"{line}: {place}"
    return None, f"{line}: not decided"
