# SPDX-License-Identifier: Apache-2.0
"""Consecutive frames of driving data as arrays, and what the rules of plausibility share."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework import SampleDataGroup
from accvlab.dali_pipeline_framework.errors import FrameworkError
from accvlab.dali_pipeline_framework.extension import image_size

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.floating[Any]]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

FEWEST = 8  # boxes, or pairs of boxes: of fewer, anything can be
_VEHICLES = {"car", "truck", "bus", "trailer", "vehicle", "van", "automobile", "lorry"}
_STEP_S = 0.5  # between the frames that are compared, so that objects move farther than labels are off


@attrs.frozen(eq=False, kw_only=True)
class Drive:
    """F frames of some scenes with C cameras and N boxes; S steps of the vehicle and P of objects.

    Attributes:
        sample: Number of each sample, ``(F,)``.
        run: Number of the run of consecutive frames, ``(F,)``.
        time: Seconds, ``(F,)``.
        world_from_ego: ``(F, 4, 4)``.
        ego_from_reference: ``(F, 4, 4)``.
        camera_names: Names of the cameras.
        image_hw: Sizes of the images, ``(F, C, 2)``; NaN where they are not known.
        intrinsics: ``(F, C, 3, 3)``.
        ego_from_camera: ``(F, C, 4, 4)``.
        frame: Frame of each box, ``(N,)``.
        centers: In the reference frame, as all of boxes, ``(N, 3)``.
        sizes: ``(N, 3)``.
        headings: Unit vectors, ``(N, 3)``.
        velocities: ``(N, 3)``; NaN where they are not known.
        is_vehicle: ``(N,)``.
        steps: First and last frame of each step, ``(S, 2)``.
        pairs: The boxes of one object at the ends of a step, ``(P, 2)``.
        step_of_pair: ``(P,)``.
    """

    sample: Ints
    run: Ints
    time: Floats
    world_from_ego: Floats
    ego_from_reference: Floats
    camera_names: Sequence[str]
    image_hw: Floats
    intrinsics: Floats
    ego_from_camera: Floats
    frame: Ints
    centers: Floats
    sizes: Floats
    headings: Floats
    velocities: Floats
    is_vehicle: Bools
    steps: Ints
    pairs: Ints
    step_of_pair: Ints

    @property
    def seconds(self) -> Floats:
        """Duration of each step, ``(S,)``."""
        return np.maximum(self.time[self.steps[:, 1]] - self.time[self.steps[:, 0]], 1e-9)

    @property
    def reference_from_world(self) -> Floats:
        """Poses, ``(F, 4, 4)``."""
        return np.linalg.inv(self.world_from_ego @ self.ego_from_reference)

    def moved(self, world_from_ego: Floats | None = None, centers: Floats | None = None) -> Floats:
        """How far the object of each pair moves in the world, ``(P, 3)``; with other poses or centers."""
        world_from_ego = self.world_from_ego if world_from_ego is None else world_from_ego
        pose = (world_from_ego @ self.ego_from_reference)[self.frame]
        places = turned(pose, self.centers if centers is None else centers) + pose[:, :3, 3]
        return np.asarray(places[self.pairs[:, 1]] - places[self.pairs[:, 0]])

    def first(self, is_wrong: Bools, frames: Ints) -> str:
        """Name the first sample of which something is wrong; ``frames`` are those of the elements."""
        return f"sample {self.sample[frames[int(np.argmax(is_wrong))]]}"


def kept_of(sample: SampleDataGroup) -> dict[str, Any]:
    """What the rules look at of a sample, without images and points."""
    cameras = [*sample["cameras"].values()] if "cameras" in sample else []
    boxes = ("centers", "sizes", "yaws", "velocities", "categories", "instances")
    return {
        "time": float(sample["timestamp"]),
        "names": [str(camera["name"]) for camera in cameras],
        "image_hw": [_image_hw(camera["image"]) for camera in cameras],
        **{name: [camera[name] for camera in cameras] for name in ("intrinsics", "ego_from_camera")},
        **{name: sample["ego"][name] for name in ("world_from_ego", "ego_from_reference")},
        **({name: np.array(sample["boxes"][name]) for name in boxes} if "boxes" in sample else {}),
    }


def drive_of(runs: Sequence[Mapping[int, Mapping[str, Any]]], class_names: Sequence[str]) -> Drive:
    """Put consecutive samples of scenes together; ``runs`` are `kept_of` them by number, scene by scene."""
    samples = [sample for run in runs for sample in run.values()]

    def of_frames(name: str, *shape: int) -> Floats:
        return np.array([sample[name] for sample in samples], np.float64).reshape(len(samples), *shape)

    def of_boxes(name: str, *shape: int) -> Floats:
        rows = [np.asarray(sample[name], np.float64) for sample in samples if name in sample]
        return np.concatenate([np.zeros((0, *shape)), *rows])

    run = np.repeat(np.arange(len(runs)), [len(each) for each in runs])
    time = of_frames("time")
    frame = np.repeat(np.arange(len(samples)), [len(sample.get("yaws", ())) for sample in samples])
    yaws, steps = of_boxes("yaws"), _steps(run, time)
    pairs, step_of_pair = _pairs(frame, of_boxes("instances").astype(np.int64), steps)
    is_vehicle = np.array([*(bool(_VEHICLES & {*words_of(name)}) for name in class_names), False])
    return Drive(
        sample=np.array([number for each in runs for number in each], np.int64),
        run=run,
        time=time,
        **{name: of_frames(name, 4, 4) for name in ("world_from_ego", "ego_from_reference")},
        camera_names=samples[0]["names"],
        image_hw=of_frames("image_hw", -1, 2),
        intrinsics=of_frames("intrinsics", -1, 3, 3),
        ego_from_camera=of_frames("ego_from_camera", -1, 4, 4),
        frame=frame,
        **{name: of_boxes(name, 3) for name in ("centers", "sizes", "velocities")},
        headings=np.stack([np.cos(yaws), np.sin(yaws), 0 * yaws], axis=-1),
        is_vehicle=is_vehicle[of_boxes("categories").astype(np.int64)],
        steps=steps,
        pairs=pairs,
        step_of_pair=step_of_pair,
    )


def words_of(name: str) -> list[str]:
    """Words of a name such as ``ring_front_left``, ``CAM_FRONT_LEFT``, ``frontLeft``, in small letters."""
    return re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())


def _steps(run: Ints, time: Floats) -> Ints:
    """Frames of each run that are about `_STEP_S` apart."""
    steps = [np.zeros((0, 2), np.int64)]
    for number in np.unique(run):
        frames = np.flatnonzero(run == number)
        if len(frames) > 1:
            apart = round(_STEP_S / max(float(np.median(np.diff(time[frames]))), 1e-9))
            apart = min(max(apart, 1), max(len(frames) - 2, 1))  # at least two steps, where there are three frames
            steps.append(np.stack([frames[:-apart], frames[apart:]], axis=-1))
    return np.concatenate(steps)


def _pairs(frame: Ints, instance: Ints, steps: Ints) -> tuple[Ints, Ints]:
    pairs, counts = [np.zeros((0, 2), np.int64)], []
    for step in steps:
        rows = [np.flatnonzero((frame == end) & (instance >= 0)) for end in step]
        _, *found = np.intersect1d(instance[rows[0]], instance[rows[1]], return_indices=True)
        pairs.append(np.stack([of[places] for of, places in zip(rows, found, strict=True)], axis=-1))
        counts.append(len(found[0]))
    return np.concatenate(pairs), np.repeat(np.arange(len(steps)), counts)


def _image_hw(image: npt.NDArray[np.uint8]) -> Sequence[float]:
    try:
        return image.shape[-3:-1] if image.ndim in (3, 4) else image_size(image)
    except FrameworkError:  # broken images are found where they are decoded
        return np.nan, np.nan


def turned(poses: Floats, vectors: Floats) -> Floats:
    """Vectors ``(n, 3)`` turned by the rotations of poses ``(n, 4, 4)``."""
    return np.asarray(np.einsum("nij,nj->ni", poses[:, :3, :3], vectors))


def angles_deg(first: Floats, second: Floats) -> Floats:
    """Angles between vectors ``(n, 3)``, in [0, 180]."""
    cross, dot = np.cross(first, second), (first * second).sum(axis=1)
    return np.asarray(np.rad2deg(np.arctan2(np.linalg.norm(cross, axis=1), dot)))


def with_axes_changed(vectors: Floats) -> dict[str, Floats]:
    """Vectors ``(n, 3)`` with mistakes in the axes undone, by what the mistake is."""
    changed = {}
    for quarters, is_mirrored in itertools.product(range(4), (False, True)):
        if quarters or is_mirrored:
            turn = np.linalg.matrix_power(np.array([[0, -1, 0], [1, 0, 0], [0, 0, 1]]), quarters or 4)
            # What is mirrored and then turned undoes itself.
            turn_deg = (0, 90, 180, -90)[quarters] if is_mirrored else (0, -90, 180, 90)[quarters]
            what = ["mirrored (left and right, or the sign of angles)"] * is_mirrored
            what += [f"turned by {turn_deg} deg about z"] * bool(quarters)
            changed[" and ".join(what)] = vectors * [1, -1 if is_mirrored else 1, 1] @ turn.T
    return changed


def cause_of(is_wrong: Bools, without: Mapping[str, Bools], fewest: int = FEWEST) -> str | None:
    """Find why elements are wrong; ``without`` is which of them are wrong once a mistake is undone.

    Returns:
        The mistake; "" where most are wrong, but none of the mistakes explains three quarters of them. None where
        too few are wrong to say something: less than four, a tenth, or, without such a mistake, half.
    """
    count, num_wrong = len(is_wrong), int(is_wrong.sum())
    if count < fewest or num_wrong < max(4, 0.1 * count):
        return None
    best = min(without, key=lambda mistake: int(without[mistake].sum()))
    if without[best].sum() <= num_wrong / 4:
        return best
    return "" if num_wrong > count / 2 else None


def range_text(values: npt.ArrayLike, digits: int = 1) -> str:
    """Least and most of some values."""
    least, most = (f"{value + 0.0:.{digits}f}" for value in (np.min(values), np.max(values)))
    return least if least == most else f"{least} to {most}"
