# SPDX-License-Identifier: Apache-2.0
"""What samples of driving data keep beyond their format: geometry, ranges, and numbers of elements."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from accvlab.dali_pipeline_framework import SampleDataGroup
from accvlab.dali_pipeline_framework.checks import listed
from accvlab.dali_pipeline_framework.extension import in_samples
from accvlab.dali_pipeline_framework.testing import Finding

from .driving_frames import Array, Bools, drive_of, kept_of
from .driving_plausibility import camera_findings, motion_findings

if TYPE_CHECKING:
    from ..datasets.driving.driving_provider import DrivingProvider

# Of rotations: files with few digits, and float32.
_TOLERANCE = 1e-3
# Beyond these, times are in another unit than seconds.
_LONGEST_STEP_S, _LONGEST_USUAL_STEP_S = 1000.0, 15.0
_LONGEST_DELAY_S = 10.0
# How far a camera may be from where it is mounted, besides the motion between the two times.
_MOST_TURN_DEG, _MOST_TURN_DEG_PER_S = 20.0, 45.0
_FARTHEST_M, _FASTEST_M_PER_S = 10.0, 70.0
_MOST_RUNS, _MOST_FRAMES = 4, 6  # scenes, and consecutive frames of each, whose plausibility is looked at


def contract_findings(
    provider: DrivingProvider, samples: Mapping[int, SampleDataGroup], seed: int
) -> Iterable[Finding]:
    """See `DrivingProvider.contract_findings`."""
    yield from time_findings(provider)
    found = {index: driving_problems(provider, sample) for index, sample in samples.items()}
    yield Finding("samples of driving data must be as DrivingProvider says", problems=in_samples(found))
    yield from plausibility(provider, seed)


def time_findings(provider: DrivingProvider) -> list[Finding]:
    """Find scenes whose times do not ascend, or whose frames are so far apart that times cannot be seconds."""
    late, far, first = list[str](), list[str](), 0
    for name, length in zip(provider.scene_names, provider.sequence_lengths, strict=True):
        times = provider.timestamps[first : first + length]
        steps = np.diff(times)
        longest_s = _LONGEST_STEP_S if np.median([*steps, 0]) < _LONGEST_USUAL_STEP_S else 0
        for is_wrong, problems in ((~(steps > 0), late), (steps > longest_s, far)):
            for step in np.flatnonzero(is_wrong)[:1].tolist():
                before, after = times[step : step + 2]
                where, got = f"scene {name!r}, sample {first + step + 1}, timestamp", f"got {after} after {before}"
                problems.append(
                    f"{where}: must be after the one before, {got}"
                    if problems is late
                    else f"{where}: is {after - before:g} s after the one before, {got}. Give seconds (of "
                    f"milliseconds: times 1e-3; of microseconds: times 1e-6), and what was recorded at another "
                    f"time as a scene of its own."
                )
        first += length
    return [Finding("times must ascend in each scene", "", late), Finding("times must be seconds", "", far)]


def plausibility(provider: DrivingProvider, seed: int) -> list[Finding]:
    """Measure some frames of some scenes, and find what cannot be right in them."""
    rng, lengths = random.Random(seed), provider.sequence_lengths
    runs = []
    for scene in sorted(rng.sample(range(len(lengths)), min(len(lengths), _MOST_RUNS))):
        count = min(lengths[scene], _MOST_FRAMES)
        first = sum(lengths[:scene]) + rng.randrange(lengths[scene] - count + 1)
        run = {}
        loaded = provider.load_batch(range(first, first + count), range(count))
        for number, sample in zip(range(first, first + count), loaded, strict=True):
            if driving_problems(provider, sample):
                break
            run[number] = kept_of(sample)
        runs += [run] if run else []
    if not runs:
        return []
    drive = drive_of(runs, provider.class_names)
    apart = np.diff(drive.time)[np.diff(drive.run) == 0]
    apart_s = f", {np.median(apart):.3g} s apart" if len(apart) else ""
    samples = Finding("", f"samples: {len(drive.time)} of {len(runs)} scene(s){apart_s}")
    return [samples, *camera_findings(drive), *motion_findings(drive)]


def driving_problems(provider: DrivingProvider, sample: SampleDataGroup) -> list[str]:
    """What is wrong with a sample, in a line for each field."""
    return list(_problems(provider, sample))


def _problems(provider: DrivingProvider, sample: SampleDataGroup) -> Iterator[str]:
    if bool(sample["is_first"]) != (int(sample["frame"]) == 0):
        yield f"is_first: must be whether `frame` is 0, got {sample['is_first']} at frame {sample['frame']}"
    ego, time = sample["ego"], sample["timestamp"]
    wrong = _of_poses("ego", ego, "world_from_ego", "ego_from_reference", "world_from_reference")
    yield from wrong
    if not wrong:
        expected = ego["world_from_ego"] @ ego["ego_from_reference"]
        if not np.allclose(ego["world_from_reference"], expected, atol=_TOLERANCE):
            yield "ego.world_from_reference: must be world_from_ego @ ego_from_reference"
    centers = np.zeros((0, 3))
    if "boxes" in sample:
        centers = sample["boxes"]["centers"]
        yield from _of_boxes(provider, sample["boxes"])
    for number, camera in enumerate(sample["cameras"].values() if "cameras" in sample else ()):
        path, is_pose_wrong = f"cameras[{number}]", bool(wrong)
        for image in _images_of(camera):
            yield from _of_delay(path, image["timestamp"], time)
            wrong_poses = _of_poses(path, image, "camera_from_reference", "ego_from_camera")
            yield from wrong_poses
            is_pose_wrong |= bool(wrong_poses)
            if not wrong and not wrong_poses:
                yield from _of_mounting(path, image, ego["ego_from_reference"], time)
        yield from _of_intrinsics(f"{path}.intrinsics", camera["intrinsics"])
        if "boxes_2d" in camera:
            matrices = [] if is_pose_wrong else _around_frame(camera, ego["ego_from_reference"], time)
            yield from _of_boxes_2d(f"{path}.boxes_2d", provider, camera["boxes_2d"], centers, matrices)
    for name in ("ego_history", "ego_future"):
        if name in sample:
            yield from _of_places(name, sample[name])
    if "lidar" in sample:
        yield from _of_delay("lidar", sample["lidar"]["timestamp"], time)
        yield from _of_points("lidar", provider, sample["lidar"])
    for number, sweep in enumerate(sample["sweeps"].values() if "sweeps" in sample else ()):
        yield from _of_points(f"sweeps[{number}]", provider, sweep)
    if "map_lines" in sample:
        lines = sample["map_lines"]
        yield from _of_lengths("map_lines", {name: lines[name] for name in ("num_points", "categories")})
        total = int(lines["num_points"].sum())
        if total != len(lines["points"]):
            yield f"map_lines.num_points: must add up to {len(lines['points'])}, got {total}"
        yield from _of_range("map_lines.categories", lines["categories"], 0, len(provider.line_category_names) - 1)


def _images_of(camera: SampleDataGroup) -> Sequence[Mapping[str, Array] | SampleDataGroup]:
    """A camera as it is at the time of each of its images."""
    if not camera["timestamp"].ndim:
        return [camera]
    of_images = zip(camera["timestamp"], camera["camera_from_reference"], strict=True)
    names = ("timestamp", "camera_from_reference", "ego_from_camera")
    return [dict(zip(names, (*image, camera["ego_from_camera"]), strict=True)) for image in of_images]


def _around_frame(camera: SampleDataGroup, ego_from_reference: Array, time_of_frame: Array) -> list[Array]:
    """Get ``camera_from_reference`` around the time of the frame, of which the 2D boxes are.

    With ``image_times``, the image of the 2D boxes need not be loaded. It is about between the frame and the
    loaded image that is nearest in time, so both are returned.
    """
    times, of_images = camera["timestamp"], camera["camera_from_reference"]
    if not times.ndim:
        return [of_images]
    nearest = int(np.abs(times - time_of_frame).argmin())
    return [of_images[nearest], np.linalg.inv(camera["ego_from_camera"]) @ ego_from_reference]


def _of_places(path: str, places: SampleDataGroup) -> Iterator[str]:
    """Places of the vehicle in its own frame: at the time of the frame it is there, and does not turn."""
    poses = np.tile(np.eye(4), (len(places["times"]), 1, 1))
    poses[:, :3, :3], poses[:, :3, 3] = places["rotations"], places["positions"]
    wrong = [problem for pose in poses for problem in _of_pose(path, pose)]
    yield from wrong[:1]
    if not (np.diff(places["times"]) > 0).all():
        yield f"{path}.times: must ascend, got {places['times'].tolist()}"
    for pose in poses[np.abs(places["times"]) < 1e-9]:
        if not np.allclose(pose, np.eye(4), atol=_TOLERANCE):
            got = f"{pose[:3, 3].tolist()}, rotation {pose[:3, :3].tolist()}"
            yield f"{path}: must be in the frame of the vehicle at the time of the frame, got at time 0 {got}"


def _of_points(path: str, provider: DrivingProvider, record: SampleDataGroup) -> Iterator[str]:
    yield from _of_poses(path, record, "reference_from_lidar")
    columns, num_columns = provider.point_columns, record["points"].shape[1]
    if num_columns != len(columns):
        yield f"{path}.points: must have {len(columns)} columns ({listed(columns)}), got {num_columns}"


def _of_poses(path: str, group: Mapping[str, Array] | SampleDataGroup, *names: str) -> list[str]:
    return [problem for name in names for problem in _of_pose(f"{path}.{name}", group[name])]


def _of_pose(path: str, pose: Array) -> Iterator[str]:
    if pose.shape != (4, 4) or not np.isfinite(pose).all():
        yield f"{path}: must be a finite (4, 4) matrix, got the shape {pose.shape}"
    elif not np.array_equal(pose[3], [0, 0, 0, 1]):
        yield f"{path}: its last row must be 0, 0, 0, 1, got {pose[3].tolist()}"
    else:
        rotation = pose[:3, :3]
        off = float(np.abs(rotation @ rotation.T - np.eye(3)).max())
        if off > _TOLERANCE or np.linalg.det(rotation) < 0:
            what = "a mirror image" if off <= _TOLERANCE else f"off by {off:.2g}"
            yield f"{path}: its rotation must be orthonormal, got {what}"


def _of_delay(path: str, time: Array, time_of_frame: Array) -> Iterator[str]:
    delay = abs(float(time) - float(time_of_frame))
    if not delay <= _LONGEST_DELAY_S:
        yield (
            f"{path}.timestamp: must be within {_LONGEST_DELAY_S:g} s of the frame's, got {float(time)} and "
            f"{float(time_of_frame)}. Give both in seconds (of microseconds: times 1e-6), of one clock."
        )


def _of_mounting(
    path: str, camera: Mapping[str, Array] | SampleDataGroup, ego_from_reference: Array, time_of_frame: Array
) -> Iterator[str]:
    """The camera must be where it is mounted, but for what the vehicle drives between the two times."""
    delay = abs(float(camera["timestamp"]) - float(time_of_frame))
    if not delay <= _LONGEST_DELAY_S:
        return
    from_reference, mounted = camera["camera_from_reference"], camera["ego_from_camera"]

    def difference(camera_from_reference: Array, ego_from_camera: Array) -> Array:
        """Angle in degrees, and meters, between two places of the camera."""
        moved = np.linalg.inv(ego_from_camera) @ ego_from_reference @ np.linalg.inv(camera_from_reference)
        cosine = np.clip((np.trace(moved[:3, :3]) - 1) / 2, -1, 1)
        return np.array([np.rad2deg(np.arccos(cosine)), np.linalg.norm(moved[:3, 3])])

    most = (_MOST_TURN_DEG + _MOST_TURN_DEG_PER_S * delay, _FARTHEST_M + _FASTEST_M_PER_S * delay)
    found = difference(from_reference, mounted)
    if (found <= most).all():
        return
    inverse_pose, inverse_mounted = np.linalg.inv(from_reference), np.linalg.inv(mounted)
    others = {
        "ego_from_camera they agree: give that.": (from_reference, inverse_mounted),
        "camera_from_reference they agree: give that.": (inverse_pose, mounted),
        "both they agree: give those.": (inverse_pose, inverse_mounted),
    }
    hints = [f"With the inverse of {hint}" for hint, both in others.items() if (difference(*both) <= most).all()]
    general = (
        "Check which of them is the inverse of what it should be, the order of quaternions (w first), and the "
        "axes (cameras: x to the right, y down, z ahead)."
    )
    yield (
        f"{path}.camera_from_reference: must be about inverse(ego_from_camera) @ ego_from_reference, but the two "
        f"are {found[0]:.0f} degrees and {found[1]:.1f} m apart, {delay:.3g} s from the frame. "
        f"{hints[0] if len(hints) == 1 else general}"
    )


def _of_intrinsics(path: str, matrix: Array) -> Iterator[str]:
    if matrix.shape != (3, 3) or not np.isfinite(matrix).all():
        yield f"{path}: must be a finite (3, 3) matrix, got the shape {matrix.shape}"
    elif not np.array_equal(matrix[2], [0, 0, 1]) or matrix[1, 0] != 0:
        yield f"{path}: must be [[fx, skew, cx], [0, fy, cy], [0, 0, 1]], got {matrix.tolist()}"
    elif min(matrix[0, 0], matrix[1, 1]) <= 0:
        yield f"{path}: focal lengths must be above 0, got {matrix[0, 0]} and {matrix[1, 1]}"


def _of_boxes(provider: DrivingProvider, boxes: SampleDataGroup) -> Iterator[str]:
    fields = {str(name): boxes[name] for name in boxes}
    yield from _of_lengths("boxes", fields)
    for name in ("centers", "sizes", "velocities"):
        if fields[name].shape[1:] != (3,):
            yield f"boxes.{name}: must be (N, 3), got {fields[name].shape}"
    yield from _of_rows("boxes.centers: must be finite", ~np.isfinite(fields["centers"]))
    yield from _of_rows("boxes.sizes: must be above 0", ~(fields["sizes"] > 0), fields["sizes"])
    is_wrong = ~(np.abs(fields["yaws"]) <= np.float32(np.pi))
    yield from _of_rows("boxes.yaws: must be in [-pi, pi]", is_wrong, fields["yaws"], ". Give radians")
    yield from _of_range("boxes.categories", fields["categories"], -1, len(provider.class_names) - 1)
    yield from _of_range("boxes.attributes", fields["attributes"], -1, len(provider.attribute_names) - 1)
    yield from _of_range("boxes.visibilities", fields["visibilities"], 0, 4)
    values, counts = np.unique(fields["instances"][fields["instances"] >= 0], return_counts=True)
    if (counts > 1).any():
        yield f"boxes.instances: must be there once in a frame, got {values[counts > 1][0]} several times"
    if "future_centers" in fields:
        expected = (*fields["is_future_known"].shape, 3)
        if fields["future_centers"].shape != expected:
            yield f"boxes.future_centers: must be {expected}, got {fields['future_centers'].shape}"


def _of_boxes_2d(
    path: str,
    provider: DrivingProvider,
    boxes_2d: SampleDataGroup,
    centers: Array,
    camera_from_reference: Sequence[Array],
) -> Iterator[str]:
    fields = {str(name): boxes_2d[name] for name in boxes_2d}
    wrong = [*_of_lengths(path, fields), *_of_range(f"{path}.box_rows", fields["box_rows"], -1, len(centers) - 1)]
    corners = fields["boxes"]
    if corners.shape[1:] != (4,):
        wrong.append(f"{path}.boxes: must be (M, 4), got {corners.shape}")
    else:
        is_wrong = ~(corners[:, :2] <= corners[:, 2:])
        wrong += _of_rows(f"{path}.boxes: must be x1 <= x2 and y1 <= y2", is_wrong, corners)
    yield from wrong
    yield from _of_range(f"{path}.categories", fields["categories"], -1, len(provider.class_names) - 1)
    if wrong or not camera_from_reference:
        return
    of_box = fields["box_rows"] >= 0
    seen = centers[fields["box_rows"][of_box]]
    depths = np.max([seen @ matrix[2, :3] + matrix[2, 3] for matrix in camera_from_reference], axis=0)
    wrong_rows = np.flatnonzero(~(depths > 0))
    if len(wrong_rows):
        row, depth = np.flatnonzero(of_box)[wrong_rows[0]], float(depths[wrong_rows[0]])
        yield (
            f"{path}.box_rows: the centers of these boxes must be in front of the camera, that of the 2D box "
            f"{row} has the depth {depth:.3f} by camera_from_reference"
        )


def _of_lengths(path: str, fields: dict[str, Array]) -> Iterator[str]:
    lengths = {name: len(value) for name, value in fields.items()}
    if len(set(lengths.values())) > 1:
        written = ", ".join(f"{name}: {length}" for name, length in lengths.items())
        yield f"{path}: all fields must have one number of elements, got {written}"


def _of_range(path: str, values: Array, least: int, most: int) -> Iterator[str]:
    yield from _of_rows(f"{path}: must be in [{least}, {most}]", (values < least) | (values > most), values)


def _of_rows(rule: str, is_wrong: Bools, values: Array | None = None, hint: str = "") -> Iterator[str]:
    """A problem of the first row of which something is wrong, if there is one."""
    if is_wrong.any():
        row = int(np.flatnonzero(is_wrong.reshape(len(is_wrong), -1).any(axis=1))[0])
        got = f"row {row} is not" if values is None else f"got {values[row].tolist()} in row {row}"
        yield f"{rule}, {got}{hint}"
