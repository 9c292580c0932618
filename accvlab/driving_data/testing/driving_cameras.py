# SPDX-License-Identifier: Apache-2.0
"""Plausibility of the cameras of driving data: place, axes, names, intrinsics, boxes in view."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import numpy as np

from accvlab.dali_pipeline_framework.checks import listed, shown
from accvlab.dali_pipeline_framework.testing import Finding

from .driving_frames import FEWEST, Drive, Floats, Ints, range_text, words_of

_FARTHEST_M = 30.0  # cameras of road trains are 20 m from the origin
_SMALLEST_IMAGE_PX = 32  # smaller ones stand in for others, in tests: their intrinsics say nothing
_MOST_LISTED = 6
_SIDES = {"left": (1, 1), "right": (1, -1), "front": (0, 1), "forward": (0, 1), "back": (0, -1), "rear": (0, -1)}
_LETTERS = {"l": (1, 1), "r": (1, -1), "f": (0, 1), "b": (0, -1)}  # pcam_l0, CAM_R2


@attrs.frozen(eq=False)
class _View:
    """A camera in a run of frames.

    Attributes:
        where: Sample, number and name.
        name: Name.
        mounted: ``ego_from_camera``.
        intrinsics: ``(3, 3)``.
        wh: Size of the images, ``(2,)``; NaN where it is not known.
        frames: The frames.
    """

    where: str
    name: str
    mounted: Floats
    intrinsics: Floats
    wh: Floats
    frames: Ints

    @property
    def tilt_deg(self) -> float:
        """Angle between the y axis and down."""
        return float(np.rad2deg(np.arccos(np.clip(-self.mounted[2, 1], -1, 1))))

    @property
    def is_upright(self) -> bool:
        """Whether y points down, or the camera looks down."""
        return self.tilt_deg < 60 or bool(self.mounted[2, 2] < -0.7)

    @property
    def yaw_deg(self) -> float:
        """Where it looks, counter-clockwise from ahead."""
        return float(np.rad2deg(np.arctan2(self.mounted[1, 2], self.mounted[0, 2])))

    @property
    def is_sized(self) -> bool:
        """Whether the size of its images is known."""
        return bool((self.wh >= _SMALLEST_IMAGE_PX).all())


def camera_findings(drive: Drive) -> Iterator[Finding]:
    """Apply the rules of cameras; those whose intrinsics are the identity are not calibrated, and left out."""
    views: list[_View] = []
    moving: dict[str, str] = {}
    for number, name in enumerate(drive.camera_names):
        is_calibrated = ~(drive.intrinsics[:, number] == np.eye(3)).all(axis=(1, 2))
        for run in np.unique(drive.run):
            frames = np.flatnonzero(is_calibrated & (drive.run == run))
            if not len(frames):
                continue
            where = f"sample {drive.sample[frames[0]]}, camera {number} {shown(name)}"
            mounted, intrinsics = drive.ego_from_camera[frames, number], drive.intrinsics[frames, number]
            # Calibration that changes from frame to frame is not judged, unless it does so as the vehicle moves.
            if np.ptp(mounted, axis=0).max() < 0.5 and np.ptp(intrinsics, axis=0).max() < 0.1 * intrinsics.max():
                wh = drive.image_hw[frames[0], number, ::-1]
                views.append(_View(where, name, mounted[0], intrinsics[0], wh, frames))
            elif np.ptp(np.linalg.inv(drive.world_from_ego[frames]) @ mounted, axis=0).max() < 0.25:
                moving.setdefault(name, f"{where}: moves as the vehicle does")
    rule = "cameras must be on the vehicle"
    if moving:
        yield Finding(rule, "", _together([*moving.values()], "Give ego_from_camera, not world_from_camera."))
    if views:
        places = np.array([view.mounted[:3, 3] for view in views])
        figure = f"cameras: {range_text(np.linalg.norm(places, axis=1))} m from the vehicle's origin"
        figure += f", {range_text(places[:, 2])} m above it"
        found = [
            Finding(rule, figure, _place_problems(views, drive)),
            _axes(views),
            _directions([view for view in views if view.is_upright and np.hypot(*view.mounted[:2, 2]) > 0.5]),
            _intrinsics([view for view in views if view.is_sized]),
        ]
        yield from found
        if not any(finding.problems for finding in found):
            level = [view for view in views if view.is_upright and np.hypot(*view.mounted[:2, 2]) > 0.8]
            yield _seen(drive, [view for view in level if view.is_sized])


def _together(lines: Sequence[str], hint: str) -> list[str]:
    more = [f"and {len(lines) - _MOST_LISTED} more cameras"] * (len(lines) > _MOST_LISTED)
    return ["\n".join([*lines[:_MOST_LISTED], *more, hint])] if lines else []


def _lines(views: Sequence[_View], wrong: Callable[[_View], str]) -> list[str]:
    """What is wrong with cameras, each in the first run where something is."""
    lines: dict[str, str] = {}
    for view in views:
        if what := wrong(view):
            lines.setdefault(view.name, f"{view.where}: {what}")
    return [*lines.values()]


def _place_problems(views: Sequence[_View], drive: Drive) -> list[str]:
    far = [view for view in views if np.linalg.norm(view.mounted[:3, 3]) > _FARTHEST_M]
    from_vehicle = [view.mounted[:3, 3] - drive.world_from_ego[view.frames[0], :3, 3] for view in far]
    is_in_world = all(np.linalg.norm(place) <= _FARTHEST_M for place in from_vehicle)
    hint = "Give ego_from_camera, not world_from_camera." if is_in_world else "Give meters, on the vehicle."
    lines = _lines(far, lambda view: f"is {np.linalg.norm(view.mounted[:3, 3]):.4g} m from the vehicle's origin")
    return _together(lines, hint)


def _axes(views: Sequence[_View]) -> Finding:
    """The y axis points down, but for cameras that look down."""
    wrong = [view for view in views if not view.is_upright]
    down: dict[str, Callable[[Floats], Any]] = {
        "The rotation seems to be transposed: give ego_from_camera, not its inverse.": lambda pose: -pose[1, 2],
        "The axes seem to be x right, y up, z back: give x right, y down, z ahead.": lambda pose: pose[2, 1],
        "The axes seem to be those of the vehicle: give x right, y down, z ahead.": lambda pose: pose[2, 2],
    }
    hints = [hint for hint, of in down.items() if all(of(view.mounted) > 0.8 for view in wrong)]
    hint = hints[0] if hints else "Check the rotation: inverse, axes, and the order of quaternions (w first)."
    lines = _lines(wrong, lambda view: f"its y axis is {view.tilt_deg:.0f} deg off down")
    figure = f"cameras: y axes {range_text([view.tilt_deg for view in views], 0)} deg off down"
    return Finding("images must be upright", figure, _together(lines, hint))


def _directions(views: Sequence[_View]) -> Finding:
    """No camera looks to the opposite of a direction in its name; ``left`` may look ahead, as one of a pair."""
    words = {word for view in views for word in words_of(view.name)}
    sides = _SIDES | (_LETTERS if {"l", "r"} <= words else {})

    def opposite(view: _View) -> str:
        named = {sides[word] for word in words_of(view.name) if word in sides}
        if not any(sign * view.mounted[axis, 2] < -0.5 and (axis, -sign) not in named for axis, sign in named):
            return ""
        looks = ("ahead", "to the left", "back", "to the right")[round(view.yaw_deg / 90) % 4]
        return f"looks {looks} (yaw {view.yaw_deg:.0f} deg)"

    looks = {view.name: f"{view.name} {round(view.yaw_deg)}" for view in views[::-1]}
    figure = f"cameras: look to {listed([*looks.values()][::-1], 12)} deg" if looks else ""
    hint = "Are left and right exchanged (names, images, or the sign of y), or the rotations inverses?"
    return Finding("cameras must look where their names say", figure, _together(_lines(views, opposite), hint))


def _intrinsics(views: Sequence[_View]) -> Finding:
    """Principal points are near the middle, or, of parts of images, at least inside."""
    rule = "intrinsics must be those of the images"
    if not views:
        return Finding(rule)
    fields = [2 * np.rad2deg(np.arctan(view.wh[0] / 2 / view.intrinsics[0, 0])) for view in views]
    off = [100 * np.abs(view.intrinsics[:2, 2] / view.wh - 0.5).max() for view in views]
    figure = f"images: {range_text(fields, 0)} deg wide, principal points {range_text(off, 0)} % off the middle"
    hint = "Give pixels of these images: [[fx, 0, cx], [0, fy, cy], [0, 0, 1]]."
    return Finding(rule, figure, _together(_lines(views, _intrinsics_problem), hint))


def _intrinsics_problem(view: _View) -> str:
    (fx, fy), center, (width, height) = np.diag(view.intrinsics)[:2], view.intrinsics[:2, 2], view.wh

    def off(point: Floats) -> float:
        return float(np.abs(point / view.wh - 0.5).max())

    got = f"the principal point is ({center[0]:.1f}, {center[1]:.1f}), of {width:.0f} x {height:.0f}: "
    scale = width / (2 * max(float(center[0]), 1e-9))
    if off(center[::-1]) < 0.1 and off(center) > off(center[::-1]) + 0.1:
        return f"{got}cx and cy seem to be exchanged"
    if abs(np.log(scale)) > np.log(1.3) and off(center * scale) < 0.06:
        return f"{got}seems to be of images of about {width / scale:.0f} x {height / scale:.0f}"
    if off(center) > 0.5:
        return f"{got}is outside"
    field_deg = 2 * np.rad2deg(np.arctan(width / 2 / fx))
    if not 2 < field_deg < 170 or not 0.5 < fx / fy < 2:
        return f"focal lengths are {fx:.4g} and {fy:.4g}, which sees {field_deg:.0f} deg"
    return ""


def _seen(drive: Drive, views: Sequence[_View]) -> Finding:
    """Boxes in the direction of a camera that looks ahead of itself are in its image: not far above or below."""
    rule = "cameras must see the boxes in their direction"
    is_judged, is_seen = np.zeros((2, len(drive.frame)), bool)
    counts: dict[str, list[int]] = {}
    pose = drive.ego_from_reference[drive.frame]
    centers = np.einsum("nij,nj->ni", pose[:, :3, :3], drive.centers) + pose[:, :3, 3]
    for view in views:
        rows = np.flatnonzero(np.isin(drive.frame, view.frames))
        from_camera = centers[rows] - view.mounted[:3, 3]
        in_camera = from_camera @ view.mounted[:3, :3]
        in_front = np.maximum(in_camera[:, 2:], 1e-9)
        pixels = (in_camera @ view.intrinsics.T)[:, :2] / in_front
        is_inside = (in_camera[:, 2] > 0) & ((pixels >= 0) & (pixels <= view.wh)).all(axis=1)
        right_m, ahead_m = (from_camera[:, :2] @ (axis / np.hypot(*axis)) for axis in view.mounted[:2, [0, 2]].T)
        column = (view.intrinsics[0, 0] * right_m / np.maximum(ahead_m, 1e-9) + view.intrinsics[0, 2]) / view.wh[0]
        is_there = (ahead_m > 8) & (ahead_m < 60) & (np.abs(column - 0.5) < 0.4)
        is_judged[rows], is_seen[rows] = True, is_seen[rows] | is_inside
        of_camera = counts.setdefault(view.name, [0, 0])
        of_camera[0] += int(is_there.sum())
        of_camera[1] += int((is_there & is_inside).sum())
    if not is_judged.any():
        return Finding(rule)
    figure = f"views: {100 * is_seen[is_judged].mean():.0f} % of {is_judged.sum()} boxes are seen by some camera"
    shares = [100 * seen / there for there, seen in counts.values() if there >= FEWEST]
    figure += f"; cameras see {range_text(shares, 0)} % of those in their direction" if shares else ""
    blind = {name: of for name, of in counts.items() if of[0] >= 2 * FEWEST and of[1] < 0.2 * of[0]}
    lines = _lines(
        [view for view in views if view.name in blind],
        lambda view: "sees {1} of {0} boxes in its direction, 8 to 60 m away".format(*blind[view.name]),
    )
    hint = "Check the heights of boxes and cameras, and what of the intrinsics concerns y."
    return Finding(rule, figure, _together(lines, hint))
