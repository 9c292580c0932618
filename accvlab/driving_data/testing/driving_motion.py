# SPDX-License-Identifier: Apache-2.0
"""Plausibility of boxes and of the vehicle in driving data: places, sizes, poses, velocities, headings."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from accvlab.dali_pipeline_framework.testing import Finding

from .driving_frames import FEWEST, Bools, Drive, Floats, angles_deg, cause_of, range_text, turned
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
        size = [round(float(value), 3) for value in (length, width, height)]
        rule = "vehicles must have the size of vehicles"
        problems = [f"boxes.sizes: length, width, height are {size} (medians). Give meters, in this order."]
    elif len(sizes) >= _FEWEST_VEHICLES and 2 * is_wider.sum() > len(sizes):
        size = [round(float(value), 3) for value in sizes[is_wider][0]]
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
    figure = f"vehicle: {range_text(speeds)} m/s"
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
    figure = f"objects: a quarter of {is_judged.sum()} moves by less than {given:.2f} m in the world"
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
    reference_from_world = np.linalg.inv(drive.world_from_ego @ drive.ego_from_reference)[frames]
    velocities = turned(reference_from_world, drive.moved()) / drive.seconds[drive.step_of_pair, np.newaxis]
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

    reference_from_world = np.linalg.inv(drive.world_from_ego @ drive.ego_from_reference)[frames]
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
    figure = f"headings: {(~given[0]).sum()} of {len(moving)} moving vehicles along theirs" * bool(len(moving))
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
