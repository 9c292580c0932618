# SPDX-License-Identifier: Apache-2.0
"""Plausibility of cameras, boxes and the vehicle in driving data, by some consecutive frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import numpy as np

from accvlab.dali_pipeline_framework.checks import listed, shown
from accvlab.dali_pipeline_framework.testing import Finding

from .driving_frames import FEWEST, Bools, Drive, Floats, Ints, angles_deg, cause_of, range_text, turned, words_of
from .driving_frames import with_axes_changed as axes_changed

_FARTHEST_BOXES_M = 400.0  # lidars, and labels, reach 250 m
_FEWEST_STEPS, _FEWEST_VEHICLES = 4, 5
_FASTEST_MPS = 100.0
_INVERSE = "The pose seems to be ego_from_world: give world_from_ego"
_TRANSPOSED = "The rotation seems to be transposed: give world_from_ego"


def motion_findings(drive: Drive) -> Iterator[Finding]:
    """Apply the rules of boxes and motion; where places are wrong, motion is not judged."""
    of_boxes = _places(drive) if len(drive.frame) else Finding("")
    yield of_boxes
    if drive.is_vehicle.any():
        yield _sizes(drive)
    of_poses = [_driving(drive), *([] if of_boxes.problems else [_standing(drive)])]
    yield from of_poses
    if not any(finding.problems for finding in (of_boxes, *of_poses)):
        velocities = _velocities(drive)
        yield velocities
        yield _headings(drive, not velocities.problems)


def _places(drive: Drive) -> Finding:
    distances = np.linalg.norm(drive.centers, axis=1)
    middle, under = np.median(distances), np.median(drive.centers[:, 2] - drive.sizes[:, 2] / 2)
    figure = (
        f"boxes: {len(distances) / len(drive.time):.3g} per sample, {middle:.1f} m away (median), at most "
        f"{distances.max():.0f} m, undersides at z = {under + 0.0:.1f} m (median)"
    )
    problems = []
    if len(distances) >= FEWEST and middle > _FARTHEST_BOXES_M:
        from_vehicle = np.median(np.linalg.norm(drive.centers - drive.world_from_ego[drive.frame, :3, 3], axis=1))
        hint = "in the reference frame, not in the world" if from_vehicle < middle / 4 else "in meters"
        problems = [f"boxes are {middle:.4g} m away (median). Give their centers {hint}."]
    return Finding("boxes must be around the vehicle", figure, problems)


def _sizes(drive: Drive) -> Finding:
    sizes, frames = drive.sizes[drive.is_vehicle], drive.frame[drive.is_vehicle]
    length, width, height = np.median(sizes, axis=0)
    figure = f"vehicles: {length:.2f} m long, {width:.2f} wide, {height:.2f} high (medians of {len(sizes)})"
    rule, is_wider = "vehicles must be longer than wide", sizes[:, 1] > sizes[:, 0]
    problems = []
    if len(sizes) >= _FEWEST_VEHICLES and (not 1 < length < 40 or height > 1.5 * length):
        size = np.round(np.median(sizes, axis=0).astype(float), 3).tolist()
        rule = "vehicles must have the size of vehicles"
        problems = [f"boxes.sizes: length, width, height are {size} (medians). Give meters, in this order."]
    elif len(sizes) >= _FEWEST_VEHICLES and 2 * is_wider.sum() > len(sizes):
        size = np.round(sizes[is_wider][0].astype(float), 3).tolist()
        problems = [
            f"{drive.first(is_wider, frames)}, boxes.sizes: length, width, height of a vehicle are {size}; of "
            f"{len(sizes)} boxes of vehicles in these samples, {is_wider.sum()} are wider than long. Exchange the "
            f"first two columns of `boxes.size`: the length, along x of the box, is the first."
        ]
    return Finding(rule, figure, problems)


def _transposed(poses: Floats) -> Floats:
    changed = poses.copy()
    changed[:, :3, :3] = np.swapaxes(poses[:, :3, :3], 1, 2)
    return changed


def _driving(drive: Drive) -> Finding:
    """The vehicle drives along its heading; back only slowly, and not faster than vehicles are."""

    def driven(world_from_ego: Floats) -> Floats:
        first, last = world_from_ego[drive.steps[:, 0]], world_from_ego[drive.steps[:, 1]]
        return turned(np.swapaxes(first + last, 1, 2) / 2, last[:, :3, 3] - first[:, :3, 3])

    rule, motion = "the vehicle must drive ahead", driven(drive.world_from_ego)
    distances = np.linalg.norm(motion, axis=1)
    if not distances.any():
        return Finding(rule)
    speeds = distances / drive.seconds
    drives = (speeds > 3) & (distances > 0.5)

    def off(of: Floats) -> Floats:
        return angles_deg(of[drives], np.array([[1.0, 0, 0]]))

    given, poses = off(motion), drive.world_from_ego
    figure = f"ego vehicle: {range_text(speeds)} m/s"
    figure += f", {np.median(given):.0f} deg off its heading (median)" if drives.any() else ""
    causes = {_INVERSE: driven(np.linalg.inv(poses)), _TRANSPOSED: driven(_transposed(poses))}
    causes |= {f"The axes of the vehicle seem to be {how}": of for how, of in axes_changed(motion).items()}
    cause = cause_of(given > 45, {name: off(of) > 45 for name, of in causes.items()}, _FEWEST_STEPS)
    where, problems = f"{drive.first(drives, drive.steps[:, 0])}, ego.world_from_ego", []
    if cause is not None:
        hint = cause or "Check its rotation, and the order of the quaternion (w first)"
        problems = [
            f"{where}: the vehicle moves {np.median(given):.0f} deg off its heading (median of "
            f"{len(given)} steps). {hint}; x of the vehicle is ahead, y to the left, z up."
        ]
    elif drives.sum() >= _FEWEST_STEPS and np.median(speeds[drives]) > _FASTEST_MPS:
        problems = [
            f"{where}: the vehicle drives at {np.median(speeds[drives]):.4g} m/s (median). Give meters, and times "
            f"in seconds."
        ]
    return Finding(rule, figure, problems)


def _standing(drive: Drive) -> Finding:
    """While the vehicle moves, some objects stand: a quarter of their moves in the world is near zero.

    Where all objects move, as on a highway, that is no problem; it is one where objects would stand with other
    poses or centers, or where objects jump that have a velocity of zero.
    """
    rule, poses = "objects that stand must stay where they are in the world", drive.world_from_ego
    first, last = (poses[ends] for ends in drive.steps.T)
    has_moved = np.linalg.norm(last[:, :3, 3] - first[:, :3, 3], axis=1) > 0.5
    has_moved |= angles_deg(first[:, :3, 0], last[:, :3, 0]) > 3
    speeds = np.linalg.norm(drive.velocities[drive.pairs[:, 0], :2], axis=1)
    is_judged = has_moved[drive.step_of_pair] & ~(speeds > 0.5)
    if is_judged.sum() < FEWEST:
        return Finding(rule)

    def quarter(poses: Floats = poses, centers: Floats = drive.centers) -> float:
        moves = np.linalg.norm(drive.moved(poses, centers)[is_judged], axis=1)
        moves = moves[np.isfinite(moves)]
        return float(np.percentile(moves, 25)) if len(moves) >= FEWEST else np.inf

    given = quarter()
    figure = f"objects: a quarter of {is_judged.sum()} displacements in the world is at most {given:.2f} m"
    is_start = np.concatenate([[True], np.diff(drive.run) != 0])
    before, after = np.roll(poses, 1, axis=0), np.roll(poses, -1, axis=0)
    before[is_start], after[np.roll(is_start, -1)] = np.nan, np.nan
    causes = {
        _INVERSE: quarter(np.linalg.inv(poses)),
        _TRANSPOSED: quarter(_transposed(poses)),
        "Boxes seem to be those of the frame before": quarter(before),
        "Boxes seem to be those of the frame after": quarter(after),
    }
    from_vehicle = drive.centers - poses[drive.frame, :3, 3]
    if np.median(np.linalg.norm(from_vehicle, axis=1)) < np.median(np.linalg.norm(drive.centers, axis=1)):
        # Whoever drives with the vehicle stays where it is seen from there, too, but not as exactly.
        in_world = 3 * quarter(np.linalg.inv(drive.ego_from_reference))
        causes["Boxes seem to be in the world: give them in the reference frame"] = in_world
    for how, centers in axes_changed(drive.centers).items():
        causes[f"Boxes seem to be {how}"] = quarter(centers=centers)
    best = min(causes, key=lambda cause: causes[cause])
    jumps = np.linalg.norm(drive.moved(), axis=1)[is_judged & (speeds < 0.2)]
    where, problems = drive.first(is_judged, drive.frame[drive.pairs[:, 0]]), []
    if given > 0.1 and causes[best] < min(0.3, given / 3):
        problems = [f"{where}: three quarters of the objects jump by more than {given:.2f} m. {best}."]
    elif len(jumps) >= FEWEST and np.median(jumps) > 1:
        problems = [
            f"{where}: objects with a velocity of zero jump by {np.median(jumps):.1f} m (median). Check axes, and "
            f"that boxes and poses of the vehicle are of the same time."
        ]
    return Finding(rule, figure, problems)


def _motion(drive: Drive) -> tuple[Floats, Bools]:
    """Velocities by the places of objects, in the reference frame, ``(P, 3)``, and where poses are known."""
    frames = drive.frame[drive.pairs[:, 0]]
    velocities = (
        turned(drive.reference_from_world[frames], drive.moved()) / drive.seconds[drive.step_of_pair, np.newaxis]
    )
    is_known = [np.ptp(drive.world_from_ego[drive.run == run], axis=0).any() for run in range(drive.run.max() + 1)]
    return velocities, np.array(is_known)[drive.run[frames]]


def _velocities(drive: Drive) -> Finding:
    """Velocities are those by which objects move in the world."""
    rule, (motion, is_judged) = "velocities must be those of the motion", _motion(drive)
    velocities = drive.velocities[drive.pairs[:, 0]]
    speeds = [np.linalg.norm(of[:, :2], axis=1) for of in (velocities, motion)]
    is_judged &= ~np.isnan(speeds[0]) & (np.maximum(*speeds) > 1)
    if not is_judged.any():
        return Finding(rule)
    frames, steps = drive.frame[drive.pairs[is_judged, 0]], drive.step_of_pair[is_judged]
    velocities, motion, speeds = velocities[is_judged], motion[is_judged], [of[is_judged] for of in speeds]
    tolerance = np.maximum(np.maximum(1.5, 0.5 * speeds[1]), 0.5 / drive.seconds[steps])  # labels are off by 0.5 m

    def is_off(changed: Floats) -> Bools:
        return np.asarray(np.linalg.norm((changed - motion)[:, :2], axis=1) > tolerance)

    reference_from_world = drive.reference_from_world[frames]
    first, last = (drive.world_from_ego[ends, :3, 3] for ends in drive.steps.T)
    own = ((last - first) / drive.seconds[:, np.newaxis])[steps]
    ratio = max(float(np.median(speeds[0])), 1e-9) / max(float(np.median(speeds[1])), 1e-9)
    causes = {
        "in the world: turn them into the reference frame": turned(reference_from_world, velocities),
        "relative to the vehicle: give those over ground": velocities + turned(reference_from_world, own),
        f"{ratio:.3g} times too fast: give m/s, and times in seconds": velocities / ratio,
        **axes_changed(velocities),
    }
    given = is_off(velocities)
    figure = f"velocities: {100 * (1 - given.mean()):.0f} % of {len(given)} are as objects move"
    cause = cause_of(given, {name: is_off(changed) for name, changed in causes.items()})
    if cause is None:
        return Finding(rule, figure)
    row = int(np.argmax(given))
    got, expected = (np.round(of[row, :2].astype(float), 1).tolist() for of in (velocities, motion))
    hint = f"They seem to be {cause}" if cause else "Check velocities and times"
    where = f"{drive.first(given, frames)}, boxes.velocities"
    return Finding(rule, figure, [f"{where}: an object has {got} and moves by {expected} m/s (x, y). {hint}."])


def _headings(drive: Drive, are_velocities_sound: bool) -> Finding:
    """Vehicles move along their heading, and do not turn in the world whenever the own vehicle does."""
    rule, (motion, is_known) = "vehicles must move along their heading", _motion(drive)
    velocities = drive.velocities.copy() if are_velocities_sound else np.full_like(drive.velocities, np.nan)
    has_moved = is_known & (np.linalg.norm(drive.moved(), axis=1) > 1) & np.isnan(velocities[drive.pairs[:, 0], 0])
    velocities[drive.pairs[has_moved, 0]] = motion[has_moved]
    moving = np.flatnonzero(drive.is_vehicle & (np.linalg.norm(velocities[:, :2], axis=1) > 2))
    poses = (drive.world_from_ego @ drive.ego_from_reference)[drive.frame]
    ends = [drive.world_from_ego[end, :3, 0] for end in drive.steps.T]
    turns = angles_deg(*ends)[drive.step_of_pair]
    is_turned = (turns > 4) & drive.is_vehicle[drive.pairs[:, 0]]
    first, last = drive.pairs[is_turned].T
    if not len(moving) and not len(first):
        return Finding(rule)

    def is_off(headings: Floats) -> tuple[Bools, Bools]:
        in_world = turned(poses, headings)
        along = angles_deg(headings[moving], velocities[moving] * [1, 1, 0]) > 45
        return along, angles_deg(in_world[first], in_world[last]) > 0.7 * turns[is_turned] + 2

    given = is_off(drive.headings)
    causes = {
        "Yaws seem to be in the world: give them in the reference frame": turned(
            np.linalg.inv(poses), drive.headings
        ),
        "Velocities seem to be in the world: turn them into the reference frame": turned(poses, drive.headings),
    }
    causes |= {f"Yaws seem to be {how}": of for how, of in axes_changed(drive.headings).items()}
    without = {name: is_off(headings) for name, headings in causes.items()}
    figure = f"headings: {(~given[0]).sum()} of {len(moving)} moving vehicles move along them" * bool(len(moving))
    for kind, frames, what in (
        (0, drive.frame[moving], "move across or against their heading"),
        (1, drive.frame[first], "turn in the world as the own vehicle does"),
    ):
        cause = cause_of(given[kind], {name: of[kind] for name, of in without.items()})
        if cause is not None:
            hint = cause or "Check yaws: radians, counter-clockwise, of the length (x of the box) against x"
            where = f"{drive.first(given[kind], frames)}, boxes.yaws"
            return Finding(
                rule, figure, [f"{where}: {given[kind].sum()} of {len(frames)} vehicles {what}. {hint}."]
            )
    return Finding(rule, figure)


_FARTHEST_M = 30.0  # cameras of road trains are 20 m from the origin
_SMALLEST_IMAGE_PX = 32  # smaller ones replace others in tests: their intrinsics say nothing
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
        wh: Size of the images, ``(2,)``; NaN where unknown.
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
    lines = _lines(wrong, lambda view: f"its y axis is {view.tilt_deg:.0f} deg off straight down")
    figure = f"cameras: y axes {range_text([view.tilt_deg for view in views], 0)} deg off straight down"
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
