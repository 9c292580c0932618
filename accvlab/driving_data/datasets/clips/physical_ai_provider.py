# SPDX-License-Identifier: Apache-2.0
"""A provider for clips of PhysicalAI-AV."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework.checks import did_you_mean, file_path, listed, whole_number
from accvlab.dali_pipeline_framework.errors import FileError, SettingError
from accvlab.dali_pipeline_framework.extension import nearest
from accvlab.dali_pipeline_framework.unknown_arguments import explains_unknown_arguments

from ..driving import poses
from ..driving.driving_fields import DrivingFieldSettings, with_driving_fields
from ..driving.driving_index import DrivingIndex
from ..driving.driving_provider import DrivingProvider
from ..driving.index_cache import cached_index
from ..driving.scene_parts import Scene, SceneImages, index_of_scenes, moving_camera
from ..driving.trajectory import Trajectory, half_period
from .clip_layout import ClipLayout
from .physical_ai_files import ClipCalibration, ClipFiles, rows_of_frames

if TYPE_CHECKING:
    from typing_extensions import Unpack

Float64Array = npt.NDArray[np.float64]
_FRONT = "camera_front_wide_120fov"


class PhysicalAiProvider(DrivingProvider):
    """Clips of NVIDIA's PhysicalAI-AV: a video per camera and clip, decoded (extras ``arrow`` and ``video``).

    The files lie as `ClipLayout` says, which are the names of the published archives when they are unpacked; what
    lies elsewhere is named by ``layout``. One sample per frame of the reference camera (or every ``stride``-th),
    as `DrivingProvider` has them; each clip is a scene. To each frame belongs the frame of each other camera that
    is nearest in time, within half its period. The vehicle (the rear axle) is the base.

    - Poses at the times of frames lie between those of ``egomotion``. Frames that were taken before the first, or
      after the last, are left out.
    - The cameras are fisheye cameras: ``intrinsics`` are those around the optical axis.
      ``origin["camera_models"]`` has the polynomials.
    - Boxes (``obstacle.offline``) have times of their own: of each track, the box that is nearest in time, at most
      50 ms away, is moved to the frame by the motion of the vehicle. (Which pose of the vehicle the boxes refer to
      is not stated by the data set; here, it is that at the time of the box.)
    - Lidar and radar are not read.

    Example::

        provider = PhysicalAiProvider("/data/physical_ai_av", cameras=["camera_front_wide_120fov"], stride=3)
    """

    @explains_unknown_arguments()
    @with_driving_fields
    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        reference_camera: str | None = None,
        stride: int = 1,
        layout: ClipLayout | None = None,
        scenes: Sequence[str] | None = None,
        index_cache: str | os.PathLike[str] | None = None,
        **fields: Unpack[DrivingFieldSettings],
    ) -> None:
        """Find the clips and open their index; it is made where it is not there.

        Args:
            root: The folder of the data set.
            reference_camera: The camera whose frames are the samples; None for the wide front camera, or else the
                first.
            stride: Every how many-th frame is a sample.
            layout: Where the files lie; None for where they were published.
            scenes: Names of the clips, in the order wanted; None for all.
            index_cache: Folder where indices are kept, also of the videos; None for ``$ACCVLAB_INDEX_CACHE``, or
                else ``~/.cache/accvlab/driving``.
            **fields: What the samples hold: settings of `DrivingFields`.

        Raises:
            FileError: There are no clips, or a file cannot be read or is not as it should be.
            SettingError: pyarrow is missing, or the clips lack what is asked for.
        """
        top = Path(file_path(root, "root")).absolute()
        stride = whole_number(stride, "stride", at_least=1)
        layout = layout or ClipLayout()
        clips = [ClipFiles(top, layout, name, cameras) for name, cameras in layout.found(top).items()]
        names = sorted({camera for clip in clips for camera in clip.cameras})
        reference = reference_camera or (_FRONT if _FRONT in names else names[0])
        if reference not in names:
            raise SettingError(
                f"`reference_camera` must be a camera of the clips, got {reference!r}."
                f"{did_you_mean(reference, names)} There are: {listed(names)}."
            )
        calibration = ClipCalibration(top, layout)
        sources = {path for clip in clips for path in calibration.paths(clip.name)}
        for clip in clips:
            sources |= {clip.path("times", camera) for camera in clip.cameras} | {clip.path("ego_motion")}
            sources |= {path for path in [clip.path("obstacles")] if path.exists()}
        index = cached_index(
            lambda: make_index(clips, calibration, names, reference, stride),
            sorted(sources),
            {
                "reader": "physical ai 1",
                "clips": [[clip.name, clip.cameras] for clip in clips],
                "reference": reference,
                "stride": stride,
                "root": str(top),
                **attrs.asdict(layout),
            },
            index_cache,
        )
        self._index_cache = index_cache
        super().__init__(index, top, scenes=scenes, **fields)


def make_index(
    clips: Sequence[ClipFiles], calibration: ClipCalibration, cameras: Sequence[str], reference: str, stride: int
) -> DrivingIndex:
    """Make the index of some clips.

    Raises:
        FileError: A file cannot be read, or is not as it should be.
    """
    models: dict[str, Any] = {}
    scenes = [_scene(clip, calibration, reference, stride, models) for clip in clips]
    names = sorted({str(name) for scene in scenes if scene.boxes for name in scene.boxes["category"]})
    number_of = {name: number for number, name in enumerate(names)}
    for number, scene in enumerate(scenes):
        if scene.boxes:
            categories = np.array([number_of[name] for name in scene.boxes["category"].tolist()], np.int32)
            scenes[number] = attrs.evolve(scene, boxes={**scene.boxes, "category": categories})
    return index_of_scenes(
        scenes,
        base="ego",
        camera_names=cameras,
        categories=names,
        origin={"format": "PhysicalAI-AV", "root": str(clips[0].root), "camera_models": models},
    )


def _scene(
    clip: ClipFiles, calibration: ClipCalibration, reference: str, stride: int, models: dict[str, Any]
) -> Scene:
    """What one clip has, with the names of the categories of boxes; ``models`` of cameras are completed."""
    if reference not in clip.cameras:
        raise FileError(
            f"The clip {clip.name!r} has no video of the reference camera {reference!r}. It has: "
            f"{listed(clip.cameras)}."
        )
    times, ego = clip.frame_times(reference), clip.ego()
    number = np.arange(0, len(times), stride)
    number = number[(times[number] >= ego.times[0]) & (times[number] <= ego.times[-1])]
    if not len(number):
        raise FileError(
            f"No frame of {str(clip.path('times', reference))!r} is in the time of "
            f"{str(clip.path('ego_motion'))!r}."
        )
    frame_times = times[number]
    world_from_ego = ego.at(frame_times)
    images = {}
    for camera in clip.cameras:
        matrix, mounted, model = calibration.camera(clip.name, camera)
        models.setdefault(camera, model)
        image_times = clip.frame_times(camera)
        chosen = nearest(image_times, frame_times, half_period(image_times))
        has = np.flatnonzero(chosen >= 0)
        taken = image_times[chosen[has]]
        images[camera] = SceneImages(
            frames=has,
            file=[clip.layout.named("video", clip=clip.name, camera=camera)] * len(has),
            time=taken / 1e6,
            intrinsics=matrix,
            camera_from_base=moving_camera(mounted, has, poses.joined(ego.at(taken), mounted), world_from_ego),
            ego_from_camera=mounted,
            video_frame=chosen[has],
        )
    num_boxes, boxes = _boxes(clip, ego, frame_times, world_from_ego)
    return Scene(
        name=clip.name,
        token=[f"{clip.name}/{one}" for one in number],
        time=frame_times / 1e6,
        world_from_ego=world_from_ego,
        images=images,
        num_boxes=num_boxes,
        boxes=boxes,
    )


def _boxes(
    clip: ClipFiles, ego: Trajectory, frame_times: npt.NDArray[np.int64], world_from_ego: Float64Array
) -> tuple[npt.NDArray[np.int64] | None, dict[str, npt.NDArray[Any]] | None]:
    columns = clip.obstacles()
    if columns is None:
        return None, None
    frame, row = rows_of_frames(columns, frame_times)
    world_from_box = poses.joined(ego.at(columns["timestamp_us"][row]), columns["pose"][row])
    pose = poses.joined(poses.inverse(world_from_ego[frame]), world_from_box)
    return np.bincount(frame, minlength=len(frame_times)), {
        "center": pose[..., 3],
        "size": columns["size"][row],
        "rotation": poses.quaternion_of_rotation(pose[..., :3]),
        "velocity": np.full((len(pose), 3), np.nan),
        "category": np.array([str(name).lower() for name in columns["label_class"][row]], np.str_),
        "instance": np.unique(columns["track_id"], return_inverse=True)[1].reshape(-1)[row],
    }
