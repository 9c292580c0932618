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

from ...checks import did_you_mean, file_path, listed, whole_number
from ...errors import FileError, SettingError
from ...unknown_arguments import explains_unknown_arguments
from ..driving import poses
from ..driving.driving_fields import DrivingFieldSettings, with_driving_fields
from ..driving.driving_index import (
    BoxColumns,
    CameraColumns,
    DrivingIndex,
    FrameColumns,
    first_column,
    names_column,
)
from ..driving.driving_provider import DrivingProvider
from ..driving.index_cache import cached_index
from ..driving.trajectory import half_period, nearest
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
    parts = [_clip_part(clip, calibration, cameras, reference, stride) for clip in clips]
    counts = [len(part["time"]) for part in parts]
    has_boxes = any(part["boxes"] is not None for part in parts)
    categories = sorted({str(name) for part in parts if part["boxes"] for name in part["boxes"]["label"]})
    models: dict[str, Any] = {}
    for part in parts:
        models = {**part["models"], **models}

    def joined(name: str) -> npt.NDArray[Any]:
        return np.concatenate([part[name] for part in parts])

    return DrivingIndex(
        base="ego",
        camera_names=cameras,
        categories=categories,
        origin={"format": "PhysicalAI-AV", "root": str(clips[0].root), "camera_models": models},
        frames=FrameColumns(
            scene=names_column([clip.name for clip in clips]),
            first_of_scene=first_column(counts),
            token=names_column(
                [
                    f"{clip.name}/{number}"
                    for clip, part in zip(clips, parts, strict=True)
                    for number in part["number"]
                ]
            ),
            time=joined("time"),
            world_from_ego=joined("world_from_ego"),
            ego_from_base=poses.identity(sum(counts)),
        ),
        cameras=CameraColumns(
            file=names_column(joined("file").reshape(-1).tolist()).reshape(-1, len(cameras)),
            time=joined("image_time"),
            intrinsics=joined("intrinsics"),
            camera_from_base=joined("camera_from_base"),
            ego_from_camera=joined("ego_from_camera"),
            video_frame=joined("video_frame"),
        ),
        boxes=_boxes(parts, categories) if has_boxes else None,
    )


def _clip_part(
    clip: ClipFiles, calibration: ClipCalibration, cameras: Sequence[str], reference: str, stride: int
) -> dict[str, Any]:
    """What the index says of one clip."""
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
    shape = (len(number), len(cameras))
    file = np.full(shape, "", object)
    video_frame = np.full(shape, -1, np.int64)
    image_time = np.repeat(frame_times[:, np.newaxis] / 1e6, len(cameras), axis=1)
    intrinsics = np.broadcast_to(np.eye(3), (*shape, 3, 3)).copy()
    camera_from_base, ego_from_camera = poses.identity(*shape), poses.identity(*shape)
    models = {}
    for place, camera in enumerate(cameras):
        if camera not in clip.cameras:
            continue
        matrix, mounted, models[camera] = calibration.camera(clip.name, camera)
        intrinsics[:, place], ego_from_camera[:, place] = matrix, mounted
        image_times = clip.frame_times(camera)
        chosen = nearest(image_times, frame_times, half_period(image_times))
        has = np.flatnonzero(chosen >= 0)
        taken = image_times[chosen[has]]
        file[has, place] = clip.layout.named("video", clip=clip.name, camera=camera)
        video_frame[has, place] = chosen[has]
        image_time[has, place] = taken / 1e6
        camera_from_base[:, place] = poses.inverse(mounted)
        world_from_camera = poses.joined(ego.at(taken), mounted)
        camera_from_base[has, place] = poses.joined(poses.inverse(world_from_camera), world_from_ego[has])
    boxes = None
    columns = clip.obstacles()
    if columns is not None:
        frame, row = rows_of_frames(columns, frame_times)
        world_from_box = poses.joined(ego.at(columns["timestamp_us"][row]), columns["pose"][row])
        pose = poses.joined(poses.inverse(world_from_ego[frame]), world_from_box)
        boxes = {
            "count": np.bincount(frame, minlength=len(number)),
            "pose": pose,
            "size": columns["size"][row],
            "label": np.array([str(name).lower() for name in columns["label_class"][row]], np.str_),
            "instance": np.unique(columns["track_id"], return_inverse=True)[1].reshape(-1)[row],
        }
    return {
        "number": number,
        "time": frame_times / 1e6,
        "world_from_ego": world_from_ego,
        "file": file,
        "video_frame": video_frame,
        "image_time": image_time,
        "intrinsics": intrinsics,
        "camera_from_base": camera_from_base,
        "ego_from_camera": ego_from_camera,
        "models": models,
        "boxes": boxes,
    }


def _boxes(parts: Sequence[dict[str, Any]], categories: Sequence[str]) -> BoxColumns:
    counts = [part["boxes"]["count"] if part["boxes"] else np.zeros(len(part["time"]), np.int64) for part in parts]
    found = [part["boxes"] for part in parts if part["boxes"]]
    pose = np.concatenate([boxes["pose"] for boxes in found])
    labels = np.concatenate([boxes["label"] for boxes in found])
    return BoxColumns(
        first=first_column(np.concatenate(counts)),
        center=pose[..., 3],
        size=np.concatenate([boxes["size"] for boxes in found]),
        rotation=poses.quaternion_of_rotation(pose[..., :3]),
        velocity=np.full((len(pose), 3), np.nan),
        category=np.searchsorted(categories, labels).astype(np.int32) if len(labels) else np.zeros(0, np.int32),
        instance=np.concatenate([boxes["instance"] for boxes in found]),
    )
