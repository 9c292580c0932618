# SPDX-License-Identifier: Apache-2.0
"""Where the vehicle, and the frame of reference of the samples, are at frames of an index."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property

import attrs
import numpy as np

from accvlab.dali_pipeline_framework.errors import FieldValueError

from . import poses
from .array_types import Float64, Int64
from .driving_fields import DrivingFields
from .driving_index import DrivingIndex
from .ego_motion import places_around

_OTHER_TIMES = (
    "Ask for other times or moments, leave the camera (`cameras`) or the scene (`scenes`) out, or skip samples "
    "that fail (`FaultPolicy`)."
)


@attrs.frozen(eq=False, slots=False)
class FramePlaces:
    """Poses of the vehicle, of the base and of the frame of reference, at each frame of an index.

    Attributes:
        index: The index.
        fields: Fields of the samples, which were `completed`.
    """

    index: DrivingIndex
    fields: DrivingFields

    @cached_property
    def is_base(self) -> bool:
        """Whether the base is the frame of reference; else it is the vehicle."""
        return self.fields.reference == self.index.base

    def reference_from_base(self, frame: int) -> Float64:
        """The base in the frame of reference."""
        return np.eye(3, 4) if self.is_base else self.index.frames.ego_from_base[frame]

    def ego_from_reference(self, frame: int) -> Float64:
        """The frame of reference on the vehicle."""
        base_from_reference = poses.inverse(self.reference_from_base(frame))
        return poses.joined(self.index.frames.ego_from_base[frame], base_from_reference)

    def world_from_base(self, frame: int) -> Float64:
        """The base in the world."""
        return poses.joined(self.index.frames.world_from_ego[frame], self.index.frames.ego_from_base[frame])

    def ego(self, frame: int, following: range) -> list[object]:
        """Fields of the vehicle, in their order."""
        frames, fields = self.index.frames, self.fields
        ego_from_reference = self.ego_from_reference(frame)
        world_from_reference = poses.joined(frames.world_from_ego[frame], ego_from_reference)
        own_poses = (frames.world_from_ego[frame], ego_from_reference, world_from_reference)
        flat: list[object] = [*poses.as_matrix(np.array(own_poses))]
        names = [name for name in ("can_bus", "ego_status") if getattr(fields, name)]
        flat += [np.array(getattr(frames, name)[frame]) for name in names]
        if fields.vehicle_size and frames.vehicle_size is not None:
            flat.append(frames.vehicle_size[self.index.scene_of(frame)])
        if fields.num_ego_future_frames:
            positions = np.zeros((fields.num_ego_future_frames, 3))
            later = following[: fields.num_ego_future_frames]
            world_from_later = frames.world_from_ego[later.start : later.stop]
            if self.is_base:
                world_from_later = poses.joined(world_from_later, frames.ego_from_base[later.start : later.stop])
            positions[: len(later)] = poses.moved(poses.inverse(world_from_reference), world_from_later[..., 3])
            flat += [positions, np.arange(len(positions)) < len(later)]
        return flat

    def motion(self, name: str, frame: int) -> list[object]:
        """Places of the vehicle at the times of ``ego_history`` or ``ego_future``.

        Raises:
            FieldValueError: They are not known at one of them.
        """
        if self.index.motion is None:
            return []
        known, offsets_s = (
            self.index.motion.of_scene(self.index.scene_of(frame)),
            self.fields.motion_offsets_s[name],
        )
        now, times = times_around(self.index, frame, offsets_s)
        if min(now, times[0]) < known.times[0] or max(now, times[-1]) > known.times[-1]:
            rule, got = f"`{name}` must lie within the recorded motion of the vehicle", span_text(known.times)
            needed = f"{seconds_text(times[0])} to {seconds_text(times[-1])}"
            raise not_recorded(self.index, frame, rule, needed, f"the motion is known {got}")
        places = places_around(known, now, times)
        return [places[..., 3], places[..., :3], offsets_s]


def times_around(index: DrivingIndex, frame: int, offsets_s: Sequence[float]) -> tuple[int, Int64]:
    """Time of a frame, and the times at offsets from it, microseconds."""
    now = round(float(index.frames.time[frame]) * 1e6)
    return now, now + np.rint(np.multiply(offsets_s, 1e6)).astype(np.int64)


def not_recorded(index: DrivingIndex, frame: int, rule: str, needed: str, but: str) -> FieldValueError:
    """Make the error of a sample that needs something of a time at which there is none."""
    time_s, scene = float(index.frames.time[frame]), os.fsdecode(index.frames.scene[index.scene_of(frame)])
    place = f"the frame of {time_s:.6g} s in the scene {scene!r} needs {needed}"
    return FieldValueError(f"{rule}: {place}, but {but}. {_OTHER_TIMES}")


def seconds_text(time: float) -> str:
    """Write a time in microseconds."""
    return f"{time / 1e6:.6g} s"


def span_text(times: Int64) -> str:
    """Write the first and the last of some times."""
    return f"from {seconds_text(times[0])} to {seconds_text(times[-1])}"
