# SPDX-License-Identifier: Apache-2.0
"""PhysicalAI-AV: where the files of clips are, the index of clips, and the provider. Times are microseconds."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from accvlab.dali_pipeline_framework.checks import bullets, did_you_mean, file_path, listed, text, whole_number
from accvlab.dali_pipeline_framework.errors import FileError, SettingError
from accvlab.dali_pipeline_framework.extension import nearest

from .driving import poses
from .driving.array_types import Array, Float64, Int64
from .driving.arrow_files import poses_of_columns, read_columns, sizes_of_columns
from .driving.driving_index import DrivingIndex, cached_index
from .driving.driving_provider import DrivingProvider, ProviderSettings, Unpack, with_provider_settings
from .driving.poses import Trajectory, half_period, require_ascending
from .driving.scene_parts import Scene, SceneImages, images_near, index_of_scenes


@attrs.frozen(kw_only=True)
class ClipLayout:
    """Names of the files of PhysicalAI-AV, relative to the root. Change what lies elsewhere.

    ``{clip}`` is the name of the clip, ``{camera}`` that of the camera, ``{chunk}`` the number of the chunk that
    the clip is in, of four digits.

    Attributes:
        video: Videos.
        times: Times of their frames, a Parquet file with ``timestamp``.
        ego_motion: Poses of the vehicle, with ``timestamp, x, y, z, qx, qy, qz, qw``.
        intrinsics: Calibration of the cameras, with ``clip_id, camera_name, cx, cy, fw_poly_0`` to ``fw_poly_4``.
        extrinsics: Places of the sensors, with ``clip_id, sensor_name, x, y, z, qx, qy, qz, qw``.
        obstacles: Boxes, with ``timestamp_us, track_id, label_class, center_x, orientation_x, size_x, ...``.
        clips: List of the clips, with ``clip_id, chunk``.
    """

    video: str = "camera/{camera}/{clip}.{camera}.mp4"
    times: str = "camera/{camera}/{clip}.{camera}.timestamps.parquet"
    ego_motion: str = "labels/egomotion/{clip}.egomotion.parquet"
    intrinsics: str = "calibration/camera_intrinsics/camera_intrinsics.chunk_{chunk}.parquet"
    extrinsics: str = "calibration/sensor_extrinsics/sensor_extrinsics.chunk_{chunk}.parquet"
    obstacles: str = "labels/obstacle.offline/{clip}.obstacle.offline.parquet"
    clips: str = "clip_index.parquet"

    def __attrs_post_init__(self) -> None:
        """Refuse names without the places that they need, or with others."""
        problems = []
        for field in attrs.fields_dict(ClipLayout):
            pattern, needed = text(getattr(self, field), field), _NEEDED_PLACES.get(field, set())
            found = set(re.findall(r"{(.*?)}", pattern))
            if found.difference(_PLACES) or not needed <= found:
                places = ", ".join(f"{{{place}}}" for place in sorted(needed))
                none = "no place but {clip}, {camera}, {chunk}"
                problems.append(f"{field}: must have {places or none}, got {pattern!r}")
        if problems:
            raise SettingError(f"The names of a ClipLayout must have places to fill:\n{bullets(problems)}")

    def named(self, field: str, *, clip: str = "", camera: str = "", chunk: int = 0) -> str:
        """Name of a file of a clip."""
        pattern: str = getattr(self, field)
        return pattern.format(clip=clip, camera=camera, chunk=f"{chunk:04d}")

    def found(self, root: Path) -> dict[str, list[str]]:
        """Find the clips that have a video, by name, and the cameras that each has.

        Raises:
            FileError: There is none.
        """
        pattern = re.escape(self.video)
        for name in _PLACES:
            place = re.escape(f"{{{name}}}")
            pattern = pattern.replace(place, f"(?P<{name}>[^/]+?)", 1).replace(place, f"(?P={name})")
        expression = re.compile(pattern)
        clips: dict[str, list[str]] = {}
        for path in sorted(root.glob(re.sub(r"{.*?}", "*", self.video))):
            match = expression.fullmatch(path.relative_to(root).as_posix())
            if match:
                clips.setdefault(match["clip"], []).append(match["camera"])
        if not clips:
            raise FileError(
                f"There are no videos {self.video!r} in {str(root)!r}. The published archives (.zip) of cameras "
                f"and labels must be unpacked, each in its folder; files that lie elsewhere are named by `layout`."
            )
        return {clip: sorted(cameras) for clip, cameras in sorted(clips.items())}


_PLACES = ("clip", "camera", "chunk")
_OF_CLIP, _OF_CAMERA = {"clip"}, {"clip", "camera"}
_NEEDED_PLACES = {"video": _OF_CAMERA, "times": _OF_CAMERA, "ego_motion": _OF_CLIP, "obstacles": _OF_CLIP}


# Labels are about 0.1 s apart.
_MOST_LABEL_DISTANCE_US = 50_000
_POSE = dict.fromkeys(("qw", "qx", "qy", "qz", "x", "y", "z"), "number")
_ALSO_CALLED = {"clip_id": ["__index_level_0__"], "sensor_name": ["camera_name", "__index_level_1__"]}


@attrs.frozen(eq=False)
class ClipFiles:
    """One clip. What is missing, cannot be read, or is not as it should be, is a `FileError`.

    Attributes:
        root: The folder of the data set.
        layout: Where its files lie.
        name: Its name.
        cameras: Cameras that have a video.
    """

    root: Path
    layout: ClipLayout
    name: str
    cameras: list[str]

    def path(self, field: str, camera: str = "") -> Path:
        """A file of the clip."""
        return self.root / self.layout.named(field, clip=self.name, camera=camera)

    def frame_times(self, camera: str) -> Int64:
        """Times of the frames of a camera."""
        path = self.path("times", camera)
        times: Int64 = read_columns(path, {"timestamp": "whole"})["timestamp"]
        require_ascending(times, f"The column 'timestamp' of {str(path)!r}", strictly=True)
        if not len(times):
            raise FileError(f"The file {str(path)!r} has no times.")
        return times

    def ego(self) -> Trajectory:
        """Pose of the vehicle in the world."""
        path = self.path("ego_motion")
        columns = read_columns(path, {"timestamp": "whole", **_POSE})
        require_ascending(columns["timestamp"], f"The column 'timestamp' of {str(path)!r}")
        if not len(columns["timestamp"]):
            raise FileError(f"The file {str(path)!r} has no poses.")
        return Trajectory(columns["timestamp"], poses_of_columns(columns, path, [*_POSE]))

    def obstacles(self) -> dict[str, Array] | None:
        """Columns of the boxes, each in the vehicle at its own time; None where there are none."""
        path = self.path("obstacles")
        if not path.exists():
            return None
        numbers = [f"{what}_{axis}" for what in ("center", "orientation", "size") for axis in "xyz"]
        kinds = {"timestamp_us": "whole", "track_id": "text or whole", "label_class": "text"}
        columns = read_columns(path, kinds | dict.fromkeys([*numbers, "orientation_w"], "number"))
        size = sizes_of_columns(columns, path, [f"size_{axis}" for axis in "xyz"])
        names = [*(f"orientation_{axis}" for axis in "wxyz"), *(f"center_{axis}" for axis in "xyz")]
        return {**columns, "size": size, "pose": poses_of_columns(columns, path, names)}


class ClipCalibration:
    """Calibrations of all clips; what is missing, cannot be read, or is not as it should be, is a `FileError`."""

    def __init__(self, root: Path, layout: ClipLayout) -> None:
        """Name the files; they are read when they are needed."""
        self._root, self._layout = root, layout
        self._tables: dict[Path, dict[tuple[str, str], dict[str, float]]] = {}

    @cached_property
    def _chunks(self) -> dict[str, int]:
        path = self._root / self._layout.clips
        columns = read_columns(path, {"clip_id": "text", "chunk": "whole"}, also_called=_ALSO_CALLED)
        return dict(zip(columns["clip_id"].tolist(), columns["chunk"].tolist(), strict=True))

    def path(self, field: str, clip: str) -> Path:
        """File of the calibration of a clip: ``"intrinsics"`` or ``"extrinsics"``."""
        chunk = 0
        if "{chunk}" in self._layout.intrinsics + self._layout.extrinsics:
            if clip not in self._chunks:
                raise FileError(f"The clip {clip!r} is not in {str(self._root / self._layout.clips)!r}.")
            chunk = self._chunks[clip]
        return self._root / self._layout.named(field, clip=clip, chunk=chunk)

    def _row(self, path: Path, clip: str, sensor: str, names: Sequence[str]) -> dict[str, float]:
        """What a file, with one row for each clip and sensor, says of a sensor."""
        if path not in self._tables:
            kinds = {"clip_id": "text", "sensor_name": "text", **dict.fromkeys(names, "number")}
            columns = read_columns(path, kinds, also_called=_ALSO_CALLED)
            rows = zip(*(column.tolist() for column in columns.values()), strict=True)
            self._tables[path] = {(of, name): dict(zip(names, values, strict=True)) for of, name, *values in rows}
        table = self._tables[path]
        if (clip, sensor) not in table:
            known = listed([name for of_clip, name in table if of_clip == clip])
            raise FileError(f"{str(path)!r} has no sensor {sensor!r} of the clip {clip!r}. It has: {known}.")
        return table[clip, sensor]

    def camera(self, clip: str, camera: str) -> tuple[Float64, Float64, dict[str, float]]:
        """Matrix of a camera around its axis, its place on the vehicle, and its whole calibration."""
        inside, outside = self.path("intrinsics", clip), self.path("extrinsics", clip)
        lens = self._row(inside, clip, camera, ["cx", "cy", *(f"fw_poly_{power}" for power in range(5))])
        focal = lens["fw_poly_1"]  # pixels per radian at angle 0
        if not focal > 0:
            raise FileError(f"{str(inside)!r}: fw_poly_1 of {camera!r} of {clip!r} must be above 0, got {focal}.")
        matrix = np.array([[focal, 0, lens["cx"]], [0, focal, lens["cy"]], [0, 0, 1]])
        place = {name: np.array([value]) for name, value in self._row(outside, clip, camera, [*_POSE]).items()}
        return matrix, poses_of_columns(place, outside, [*_POSE])[0], lens


def rows_of_frames(columns: dict[str, Array], frame_times: Int64) -> tuple[Int64, Int64]:
    """Which box of each track is the nearest in time to each frame: frames and rows, ``(n,)`` each."""
    frames, rows = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for track in np.unique(columns["track_id"]):
        of_track = np.flatnonzero(columns["track_id"] == track)
        of_track = of_track[np.argsort(columns["timestamp_us"][of_track], kind="stable")]
        times = columns["timestamp_us"][of_track]
        found = nearest(times, frame_times, min(half_period(times), _MOST_LABEL_DISTANCE_US))
        has = np.flatnonzero(found >= 0)
        frames.append(has)
        rows.append(of_track[found[has]])
    return np.concatenate(frames), np.concatenate(rows)


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

    @with_provider_settings
    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        reference_camera: str | None = None,
        stride: int = 1,
        layout: ClipLayout | None = None,
        **settings: Unpack[ProviderSettings],
    ) -> None:
        """Find the clips and open their index, which is made on first use.

        Args:
            root: The folder of the data set.
            reference_camera: The camera whose frames are the samples; None for the wide front camera, or else the
                first.
            stride: Every how many-th frame is a sample.
            layout: Where the files lie; None for where they were published.
            **settings: What the samples hold, see `DrivingFields`; ``scenes`` and ``index_cache``, see
                `DrivingProvider`.

        Raises:
            FileError: There are no clips, or a file cannot be read or is not as it should be.
            SettingError: pyarrow is missing, or the clips lack what is requested.
        """
        top = Path(file_path(root, "root")).absolute()
        stride = whole_number(stride, "stride", at_least=1)
        layout = layout or ClipLayout()
        clips = [ClipFiles(top, layout, name, cameras) for name, cameras in layout.found(top).items()]
        names = sorted({camera for clip in clips for camera in clip.cameras})
        reference = reference_camera or (_FRONT if _FRONT in names else names[0])
        if reference not in names:
            hint = f"{did_you_mean(reference, names)} There are: {listed(names)}."
            raise SettingError(f"`reference_camera` must be a camera of the clips, got {reference!r}.{hint}")
        calibration = ClipCalibration(top, layout)
        sources = {calibration.path(part, clip.name) for clip in clips for part in ("intrinsics", "extrinsics")}
        for clip in clips:
            sources |= {clip.path("times", camera) for camera in clip.cameras} | {clip.path("ego_motion")}
            sources |= {path for path in [clip.path("obstacles")] if path.exists()}
        key = {"reader": "physical ai 1", "reference": reference, "stride": stride, "root": str(top)}
        key |= {"clips": [[clip.name, clip.cameras] for clip in clips], **attrs.asdict(layout)}
        index = cached_index(
            lambda: make_index(clips, calibration, names, reference, stride),
            sorted(sources),
            key,
            settings.get("index_cache"),
        )
        super().__init__(index, top, **settings)


def make_index(
    clips: Sequence[ClipFiles], calibration: ClipCalibration, cameras: Sequence[str], reference: str, stride: int
) -> DrivingIndex:
    """Make the index of some clips.

    Raises:
        FileError: A file cannot be read, or is not as it should be.
    """
    models: dict[str, Any] = {}
    scenes = [_scene(clip, calibration, reference, stride, models) for clip in clips]
    return index_of_scenes(
        scenes,
        base="ego",
        camera_names=cameras,
        origin={"format": "PhysicalAI-AV", "root": str(clips[0].root), "camera_models": models},
    )


def _scene(
    clip: ClipFiles, calibration: ClipCalibration, reference: str, stride: int, models: dict[str, Any]
) -> Scene:
    """What one clip has, with the names of the categories of boxes; ``models`` of cameras are completed."""
    if reference not in clip.cameras:
        what = f"The clip {clip.name!r} has no video of the reference camera {reference!r}"
        raise FileError(f"{what}. It has: {listed(clip.cameras)}.")
    times, ego = clip.frame_times(reference), clip.ego()
    number = np.arange(0, len(times), stride)
    number = number[(times[number] >= ego.times[0]) & (times[number] <= ego.times[-1])]
    if not len(number):
        frames, motion = str(clip.path("times", reference)), str(clip.path("ego_motion"))
        raise FileError(f"No frame of {frames!r} is in the time of {motion!r}.")
    frame_times = times[number]
    world_from_ego = ego.at(frame_times)
    images = {}
    for camera in clip.cameras:
        matrix, mounted, model = calibration.camera(clip.name, camera)
        models.setdefault(camera, model)
        image_times = clip.frame_times(camera)
        chosen, columns = images_near(
            image_times, half_period(image_times), frame_times, world_from_ego, ego, mounted, per_second=1e6
        )
        name = clip.layout.named("video", clip=clip.name, camera=camera)
        images[camera] = SceneImages(file=[name] * len(chosen), intrinsics=matrix, video_frame=chosen, **columns)
    return Scene(
        name=clip.name,
        token=[f"{clip.name}/{one}" for one in number],
        time=frame_times / 1e6,
        world_from_ego=world_from_ego,
        images=images,
        boxes=_boxes(clip, ego, frame_times, world_from_ego),
    )


def _boxes(
    clip: ClipFiles, ego: Trajectory, frame_times: Int64, world_from_ego: Float64
) -> dict[str, Array] | None:
    columns = clip.obstacles()
    if columns is None:
        return None
    frame, row = rows_of_frames(columns, frame_times)
    world_from_box = poses.joined(ego.at(columns["timestamp_us"][row]), columns["pose"][row])
    pose = poses.joined(poses.inverse(world_from_ego[frame]), world_from_box)
    return {
        "frame": frame,
        "center": pose[..., 3],
        "size": columns["size"][row],
        "rotation": poses.quaternion_of_rotation(pose[..., :3]),
        "category": np.array([str(name).lower() for name in columns["label_class"][row]], np.str_),
        "instance": np.unique(columns["track_id"], return_inverse=True)[1].reshape(-1)[row],
    }
