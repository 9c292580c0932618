# SPDX-License-Identifier: Apache-2.0
"""The index of clips of PhysicalAI-AV, and the provider."""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import attrs
import numpy as np

from accvlab.dali_pipeline_framework.checks import (
    choice,
    did_you_mean,
    elements,
    flag,
    instance,
    listed,
    shown,
    text,
    whole_number,
)
from accvlab.dali_pipeline_framework.errors import FileError, SettingError
from accvlab.dali_pipeline_framework.extension import StoragePath, StoredFile, nearest
from accvlab.dali_pipeline_framework.providers import Storage
from accvlab.dali_pipeline_framework.user_warnings import warn_user

from ..driving import poses
from ..driving.array_types import Array, Float64, Int64
from ..driving.driving_index import DrivingIndex, cached_index
from ..driving.driving_provider import DrivingProvider, ProviderSettings, Unpack, with_provider_settings
from ..driving.ego_motion import SmoothTrajectory
from ..driving.index_checks import require_usable
from ..driving.poses import half_period, last_before, require_known
from ..driving.requested_parts import RequestedParts
from ..driving.scene_parts import Scene, SceneImages, image_columns, index_of_scenes
from .clip_files import ClipCalibration, ClipFiles, ListedColumns, ListedFiles, listed_clips
from .layout import FEATURES, ClipLayout, published_layout
from .moments import Moments

_FRONT = "camera_front_wide_120fov"
_TRAIN = "train"
_logger = logging.getLogger(__name__)
_MOST_READ = 8  # clips at once, of a URL
_MOST_LABEL_DISTANCE_US = 50_000  # labels are about 0.1 s apart
_WITHOUT_MOTION = "without_motion"  # in the origin of an index: share of the frames of clips that are left out
_USUAL_SHARE = 0.1  # of frames before the first pose and after the last


class PhysicalAiProvider(DrivingProvider):
    """Clips of NVIDIA's PhysicalAI-AV: a video per camera and clip (extras ``arrow`` and ``video``).

    The data set is read from a folder or a URL, as it is published (chunks are ZIP files), or with each archive
    unpacked in its folder. ``layout`` has the names of other files. The vehicle (the rear axle) is the base; each
    clip is a scene.

    - Without ``moments``: one sample per frame of the reference camera, or every ``stride``-th. To each belongs
      the frame of each other camera that is nearest in time, within half its period. Frames that were taken
      before the first known pose of the vehicle, or after the last, are left out.
    - With `Moments`: samples at these times. From each camera, the last frame at or before the time is taken.
    - ``image_times``: several images of each camera; for each time, the last image at or before it.
    - The vehicle is on a cubic spline through the poses of ``egomotion``, and turns evenly between them
      (`SmoothTrajectory`). ``ego_history`` and ``ego_future`` are computed from this motion.
    - The cameras are fisheye cameras: ``intrinsics`` are those around the optical axis. With ``lenses=True``,
      ``lens`` is the whole model.
    - Boxes (``obstacle.offline``) have times of their own: of each track, the box that is nearest in time, at most
      50 ms away, is moved to the frame by the motion of the vehicle. (The data set does not state which pose of
      the vehicle a box refers to; here, it is the pose at the time of the box.)
    - Lidar and radar are not read.

    Clips are the valid ones of the split ``"train"``, if the list of clips has these columns. A file that is
    missing is an error, or its clip is left out (``missing="drop"``). A video whose number of frames differs from
    its number of time stamps is an error when one of its frames is needed.

    Example::

        provider = PhysicalAiProvider("/data/physical_ai_av", cameras=["camera_front_wide_120fov"], stride=3)
    """

    @with_provider_settings
    def __init__(
        self,
        root: StoragePath,
        *,
        chunks: str | Sequence[int] | None = None,
        split: str | None = _TRAIN,
        valid_only: bool = True,
        missing: Literal["raise", "drop"] = "raise",
        moments: Moments | None = None,
        reference_camera: str | None = None,
        stride: int = 1,
        layout: ClipLayout | None = None,
        storage_options: Mapping[str, Any] | None = None,
        **settings: Unpack[ProviderSettings],
    ) -> None:
        """Find the clips and open their index, which is made on first use.

        Args:
            root: The folder of the data set, or its URL.
            chunks: Numbers of the chunks to use, or text such as ``"0-7"`` (without 7). None: those for
                which the motion of the vehicle exists.
            split: Wanted split, by the column ``split`` of the list of clips, if it has one; None for all splits.
            valid_only: Whether invalid clips of the list (``clip_is_valid``) are left out.
            missing: Whether a clip that lacks a file that is needed, such as a video, is an error, or left out.
            moments: When there are samples; None for the frames of the reference camera.
            reference_camera: The camera whose frames are the samples; None for the wide front camera, or else the
                first.
            stride: Every how many-th frame is a sample.
            layout: Where the files lie; None for where they were published, packed or unpacked.
            storage_options: Arguments of the remote file system.
            **settings: Fields of the samples, see `DrivingFields`; ``scenes`` and ``index_cache``, see
                `DrivingProvider`.

        Raises:
            FileError: There are no clips, or a file is missing, cannot be read or is damaged.
            SettingError: pyarrow is missing, or the clips lack requested parts.
        """
        storage = Storage(root, storage_options)
        stride = whole_number(stride, "stride", at_least=1)
        moments = None if moments is None else instance(moments, "moments", Moments)
        wanted, scenes = settings.get("cameras"), settings.get("scenes")
        columns = ListedColumns(
            events=moments is not None and moments.needs_events,
            validity=flag(valid_only, "valid_only"),
            split=split is not None,
        )
        drops = choice(missing, "missing", ("raise", "drop")) == "drop"
        clips = _found_clips(storage, layout, chunks, wanted or (), columns, scenes, drops=drops)
        clips = _of_split(clips, None if split is None else text(split, "split"), scenes, valid_only=valid_only)
        clips = _chosen(clips, scenes, moments)
        names = sorted({camera for clip in clips for camera in clip.cameras})
        reference = (_FRONT if _FRONT in names else names[0]) if reference_camera is None else reference_camera
        if not isinstance(reference, str) or reference not in names:
            hint = f"{did_you_mean(reference, names)} There are: {listed(names)}."
            raise SettingError(f"`reference_camera` must be a camera of the clips, got {shown(reference)}.{hint}")
        if wanted is not None and {*wanted} <= {*names}:
            names = [name for name in names if name in wanted]
        parts = IndexParts(
            cameras=names,
            reference=reference,
            stride=stride,
            moments=moments,
            has_boxes=settings.get("boxes") is not False,
            has_vehicle_size=bool(settings.get("vehicle_size")),
            has_lenses=bool(settings.get("lenses")),
        )
        needed = parts.fields + ["obstacles"] * (settings.get("boxes") is True)
        of_frames = [reference] if moments is None else []
        found = _with_files(clips, needed, None if wanted is None and not drops else names, of_frames, drops=drops)
        dropped, clips = {clip.name for clip in clips} - {clip.name for clip in found}, found
        if scenes is not None and dropped:
            settings["scenes"] = [name for name in scenes if name not in dropped]
        key: dict[str, Any] = {"reader": "physical ai 4", "root": storage.root, "parts": attrs.asdict(parts)}
        key["layout"] = attrs.asdict(clips[0].layout)
        key["clips"] = [[clip.name, clip.chunk, clip.end, clip.events.tolist(), clip.cameras] for clip in clips]
        sources = parts.sources(clips)
        try:
            files = [file for file, _, _ in sources.values()]
            index = cached_index(lambda: make_index(clips, parts), files, key, settings.get("index_cache"))
        except FileNotFoundError:
            for file, clip, camera in sources.values():
                clip.require(file, camera)
            raise
        require_usable(
            DrivingIndex.open(index),
            RequestedParts(settings).wants,
            settings.get("scenes"),
            has_own_times=moments is None,
        )
        super().__init__(index, root, storage_options=storage_options, **settings)
        self._warn_of_missing_motion()
        self._refuse_missing_files(repr(storage.root), also_images=False)

    def _warn_of_missing_motion(self) -> None:
        lacking = {name: share for name in self.scene_names if (share := self.origin[_WITHOUT_MOTION].get(name))}
        if lacking:
            name, share = next(iter(lacking.items()))
            warn_user(
                f"The poses of the vehicle (egomotion) cover a part of {len(lacking)} of {len(self.scene_names)} "
                f"clips only: {share:.0%} of the frames of {name!r} are before or after them, and left out. Is "
                f"the file complete?"
            )


def _found_clips(
    storage: Storage,
    layout: ClipLayout | None,
    chunks: str | Sequence[int] | None,
    cameras: Sequence[str],
    columns: ListedColumns,
    scenes: Sequence[str] | None,
    *,
    drops: bool,
) -> list[ClipFiles]:
    """Find the clips: those that have an unpacked video, or those of the list that are in the chunks.

    Where all are wanted, it warns of clips of these chunks that have no unpacked video, or notes them in the log
    where those that lack files are dropped.
    """
    used, numbers = layout or ClipLayout(), _chunk_numbers(chunks)
    unpacked = {} if storage.is_remote else used.found(Path(storage.root))
    if not unpacked:
        where = f"There are no videos {used.video!r} in {storage.root!r}"
        if layout is not None:
            raise FileError(f"{where}. Name them by `layout`, or leave it out to read the published archives.")
        if not storage.exists(FEATURES):
            raise FileError(
                f"{where}, and no {FEATURES!r}, which says where the published archives are: download it into "
                f"that folder. Files that lie elsewhere are named by `layout`."
            )
        return _published_clips(storage, numbers, cameras, columns, scenes)
    if not used.needs_chunks and numbers is None and not storage.exists(used.clips):
        return [ClipFiles(storage, used, name, cameras) for name, cameras in unpacked.items()]
    of_list = {clip.name: clip for clip in listed_clips(storage, used, (), columns)}
    for name in unpacked if scenes is None else [name for name in scenes if name in unpacked]:
        if name not in of_list:
            raise FileError(f"The clip {name!r} is not in {storage.path(used.clips)!r}.")
    clips = [attrs.evolve(of_list[name], cameras=cameras) for name, cameras in unpacked.items() if name in of_list]
    if not clips:
        raise FileError(f"None of the clips that have videos is in {storage.path(used.clips)!r}.")
    clips = _of_chunks(clips, numbers)
    used_chunks = {clip.chunk for clip in clips}
    lacking = [name for name, clip in of_list.items() if name not in unpacked and clip.chunk in used_chunks]
    if lacking and scenes is None:
        where = f"{storage.path(used.clips)!r} lists for the chunks {listed(sorted(used_chunks))}"
        what = f"have no video {used.video!r}, and are left out: {listed(lacking, 5)}"
        (_logger.warning if drops else warn_user)(f"{len(lacking)} clip(s) that {where} {what}.")
    return clips


def _published_clips(
    storage: Storage,
    chunks: Sequence[int] | None,
    wanted: Sequence[str],
    columns: ListedColumns,
    scenes: Sequence[str] | None,
) -> list[ClipFiles]:
    layout, cameras = published_layout(storage)
    clips = listed_clips(storage, layout, cameras, columns)
    if chunks is None:
        archive = layout.ego_motion.rpartition("/")[0]
        folder, _, name = archive.rpartition("/")
        expression = re.compile(re.escape(name).replace(re.escape("{chunk}"), r"(\d+)"))
        found = [expression.fullmatch(entry.name) for entry in storage.list_folder(folder)]
        chunks = [int(match[1]) for match in found if match]
        if not chunks:
            raise FileError(f"There are no archives {archive!r} in {storage.root!r}: download at least one chunk.")
    clips = _of_chunks(clips, chunks)
    if not (wanted and storage.is_remote):
        needed = [clip for clip in clips if scenes is None or clip.name in scenes] or clips
        of_chunks = [*{clip.chunk: clip for clip in needed}.values()]
        if storage.is_remote:
            of_chunks = of_chunks[:1]  # each is a request
        files = ListedFiles()
        there = [
            camera
            for camera in cameras
            if camera in wanted or any(files.has(clip.source("video", camera)) for clip in of_chunks)
        ]
        cameras = there or cameras
    return [attrs.evolve(clip, cameras=cameras) for clip in clips]


def _chunk_numbers(chunks: str | Sequence[int] | None) -> Sequence[int] | None:
    if chunks is None:
        return None
    numbers = elements(chunks)
    if numbers is not None:
        return [whole_number(chunk, "chunks", at_least=0) for chunk in numbers]
    first, _, end = str(chunks).partition("-")
    if not (first.isdecimal() and end.isdecimal() and int(first) < int(end)):
        raise SettingError(f"`chunks` must be as '0-7', which is 0 to 6, or whole numbers, got {chunks!r}.")
    return range(int(first), int(end))


def _of_chunks(clips: Sequence[ClipFiles], chunks: Sequence[int] | None) -> list[ClipFiles]:
    known = {clip.chunk for clip in clips}
    for chunk in chunks or ():
        if chunk not in known and not isinstance(chunks, range):
            raise SettingError(
                f"`chunks` must be chunks of the list of clips, got {chunk}. It has: {listed(sorted(known))}."
            )
    found = [clip for clip in clips if chunks is None or clip.chunk in chunks]
    if not found:
        raise SettingError(
            f"There are no clips of `chunks` {chunks}. The list of clips has: {listed(sorted(known))}."
        )
    return found


def _of_split(
    clips: Sequence[ClipFiles], split: str | None, scenes: Sequence[str] | None, *, valid_only: bool
) -> list[ClipFiles]:
    """Those of the clips that the publishers mean for a use; all where the list does not say."""
    has_splits = any(clip.split for clip in clips)
    if split not in (None, _TRAIN) and not has_splits:
        where = repr(clips[0].storage.path(clips[0].layout.clips))
        raise SettingError(f"`split` needs a column 'split' in {where}, got {split!r}. Leave it out.")
    kept = [
        clip
        for clip in clips
        if (clip.is_valid or not valid_only) and (split is None or not has_splits or clip.split == split)
    ]
    names = {clip.name for clip in kept}
    for clip in clips:
        if scenes is not None and clip.name in scenes and clip.name not in names:
            why = f"is of the split {clip.split!r}: give that as `split`, or None"
            if clip.is_valid or not valid_only:
                raise SettingError(f"The clip {clip.name!r} of `scenes` {why}.")
            raise SettingError(f"The clip {clip.name!r} of `scenes` is not valid: give `valid_only=False`.")
    if not kept:
        counts = Counter(f"{clip.split or 'no split'}{', not valid' * (not clip.is_valid)}" for clip in clips)
        there = "; ".join(f"{count} of {kind}" for kind, count in sorted(counts.items()))
        raise SettingError(
            f"There are no clips of the split {split!r} that are wanted. The chunks have: {there}. See `split` "
            f"and `valid_only`."
        )
    if len(kept) < len(clips):
        _logger.info(
            "%d of %d clips are not valid, or of other splits than %s.", len(clips) - len(kept), len(clips), split
        )
    return kept


def _with_files(
    clips: Sequence[ClipFiles],
    fields: Sequence[str],
    cameras: Sequence[str] | None,
    of_frames: Sequence[str],
    *,
    drops: bool,
) -> list[ClipFiles]:
    """The clips that have all files of some kinds, and of cameras (None: those of each); others are refused.

    Of the cameras of which only the times are needed, ``of_frames``, there may be no videos.
    """
    files, kept = ListedFiles(), []
    lacking: list[FileError] = []
    for clip in clips:
        needed = [(field, "") for field in fields]
        of_clip = clip.cameras if cameras is None else cameras
        needed += [(field, camera) for camera in of_clip for field in ("times", "video")]
        needed += [("times", camera) for camera in of_frames]
        error = next((found for each in needed if (found := _lacking(files, clip, *each, drops=drops))), None)
        if error is None:
            kept.append(clip)
        elif drops:
            lacking.append(error)
        else:
            raise error
    if not kept:
        raise lacking[0]
    if lacking:
        _logger.warning("%d of %d clips lack files and are left out. %s", len(lacking), len(clips), lacking[0])
    return kept


def _lacking(files: ListedFiles, clip: ClipFiles, field: str, camera: str, *, drops: bool) -> FileError | None:
    """Make the error of a file that a clip lacks, or of its archive; None where it is there."""
    file, source = clip.file(field, camera), clip.source(field, camera)
    # Of files of whole chunks at a URL, those that are missing are found when they are read.
    if not (drops or clip.name in file.name) or files.has(file):
        return None
    return clip.missing(file if files.has_any(file) or file == source else source, camera)


def _chosen(clips: list[ClipFiles], scenes: Sequence[str] | None, moments: Moments | None) -> list[ClipFiles]:
    """Those of the clips that are requested, so that the files of no others are read."""
    names = {clip.name for clip in clips}
    at = moments.at if moments is not None else None
    for name in at if isinstance(at, dict) else ():
        if name not in names:
            hint = f"{did_you_mean(name, names)} There are: {listed(sorted(names))}."
            raise SettingError(f"`at` must have names of clips, got {name!r}.{hint}")
    if scenes is not None and {*scenes} <= names:
        clips = [clip for clip in clips if clip.name in scenes]
    if moments is not None and moments.needs_events and not any(len(clip.events) for clip in clips):
        where = repr(clips[0].storage.path(clips[0].layout.clips))
        rule = f"{where} must have event_t0s and end_timestamp of the clips for `Moments(at={moments.at!r})`"
        raise FileError(f"{rule}. Give times: `Moments(at=[5.1])` or `Moments(every_s=0.5)`.")
    if moments is None:
        return clips
    times = [moments.of_list(clip.name, clip.events, clip.end) for clip in clips]
    chosen = [clip for clip, of_clip in zip(clips, times, strict=True) if of_clip is None or len(of_clip)]
    if not chosen:
        raise FileError(f"None of {len(clips)} clip(s) in {clips[0].storage.root!r} has a sample at {moments}.")
    return chosen


@attrs.frozen(kw_only=True)
class IndexParts:
    """What an index has of each clip.

    Attributes:
        cameras: Names of the cameras.
        reference: Camera whose frames are the samples.
        stride: Every how many-th of its frames.
        moments: When there are samples; None for those frames.
        has_boxes: Whether boxes are read where there are some.
        has_vehicle_size: Whether sizes of vehicles are read.
        has_lenses: Whether lenses are read.
    """

    cameras: Sequence[str]
    reference: str
    stride: int
    moments: Moments | None
    has_boxes: bool
    has_vehicle_size: bool
    has_lenses: bool

    @property
    def fields(self) -> list[str]:
        """Kinds of files that a clip must have, but those of cameras."""
        of_cameras = ["intrinsics", "extrinsics"] * bool(self.cameras)
        return ["ego_motion", *of_cameras, *["vehicle"] * self.has_vehicle_size]

    def timed(self, clip: ClipFiles) -> list[str]:
        """The cameras of a clip whose times are needed."""
        wanted = [*self.cameras, *[self.reference] * (self.moments is None and self.reference not in self.cameras)]
        return [camera for camera in wanted if camera in clip.cameras]

    def sources(self, clips: Sequence[ClipFiles]) -> dict[str, tuple[StoredFile, ClipFiles, str]]:
        """Files, and archives, that an index is made of, by name; with a clip and a camera that need it."""
        files: dict[str, tuple[StoredFile, ClipFiles, str]] = {}
        for clip in clips:
            of_clip = [(clip.source(field), clip, "") for field in self.fields]
            of_clip += [(clip.source("times", camera), clip, camera) for camera in self.timed(clip)]
            files |= {each[0].name: each for each in of_clip if each[0].name not in files}
        of_boxes = [(clip.source("obstacles"), clip, "") for clip in clips if self.has_boxes]
        boxes = {each[0].name: each for each in of_boxes}
        files |= {name: each for name, each in boxes.items() if each[0].storage.exists(name)}
        return dict(sorted(files.items()))


def make_index(clips: Sequence[ClipFiles], parts: IndexParts) -> DrivingIndex:
    """Make the index of some clips.

    Raises:
        FileError: A file cannot be read, or is not as it should be.
    """
    calibration, storage = ClipCalibration(), clips[0].storage
    with ThreadPoolExecutor(_MOST_READ if storage.is_remote else 1) as threads:
        pairs = [*threads.map(lambda clip: _scene(clip, calibration, parts), clips)]
    scenes = [scene for scene, _ in pairs if len(scene.time)]
    if not scenes:
        raise FileError(f"None of {len(clips)} clip(s) in {storage.root!r} has a sample at {parts.moments}.")
    lacking = {scene.name: share for scene, share in pairs if share > _USUAL_SHARE}
    origin = {"format": "PhysicalAI-AV", "root": storage.root, _WITHOUT_MOTION: lacking}
    return index_of_scenes(scenes, base="ego", camera_names=parts.cameras, origin=origin)


def _scene(clip: ClipFiles, calibration: ClipCalibration, parts: IndexParts) -> tuple[Scene, float]:
    """What one clip has, with the names of the categories of boxes; and the share of frames without a pose."""
    cameras, without_pose = parts.timed(clip), 0.0
    if parts.moments is None and parts.reference not in cameras:
        what = f"The clip {clip.name!r} has no video of the reference camera {parts.reference!r}"
        raise FileError(f"{what}. It has: {listed(clip.cameras)}.")
    image_times, ego = {camera: clip.frame_times(camera) for camera in cameras}, clip.ego()
    if parts.moments is None:
        times = image_times[parts.reference]
        tokens = np.arange(0, len(times), parts.stride)
        tokens = tokens[(times[tokens] >= ego.times[0]) & (times[tokens] <= ego.times[-1])]
        frame_times = times[tokens]
        without_pose = 1 - len(tokens) / len(times[:: parts.stride])
        if not len(tokens):
            frames, motion = os.fspath(clip.file("times", parts.reference)), os.fspath(clip.file("ego_motion"))
            raise FileError(f"No frame of {frames!r} is in the time of {motion!r}.")
    else:
        given = parts.moments.of_list(clip.name, clip.events, clip.end)
        spans = [ego.times, *image_times.values()]
        start, end = max(int(times[0]) for times in spans), min(int(times[-1]) for times in spans)
        frame_times = tokens = parts.moments.of_data(start, end) if given is None else given
    world_from_ego = ego.at(frame_times)
    is_within = (frame_times >= ego.times[0]) & (frame_times <= ego.times[-1])  # others fail when they are loaded
    require_known(ego.times, frame_times[is_within], 1e6, f"The file {os.fspath(clip.file('ego_motion'))!r}")
    images = {}
    for camera, of_camera in ((camera, image_times[camera]) for camera in cameras if camera in parts.cameras):
        matrix, mounted, lens = calibration.camera(clip, camera, has_lens=parts.has_lenses)
        if parts.moments is None:
            chosen = nearest(of_camera, frame_times, half_period(of_camera))
        else:
            chosen = last_before(of_camera, frame_times)
        number, columns = image_columns(of_camera, chosen, world_from_ego, ego, mounted, per_second=1e6)
        images[camera] = SceneImages(
            file=[clip.file("video", camera).name] * len(number),
            intrinsics=matrix,
            video_frame=number,
            lens=lens,
            image_wh=None if lens is None else (int(lens[0]), int(lens[1])),
            frame_times=of_camera,
            **columns,
        )
    scene = Scene(
        name=clip.name,
        token=[f"{clip.name}/{one}" for one in tokens],
        time=frame_times / 1e6,
        world_from_ego=world_from_ego,
        images=images,
        boxes=_boxes(clip, ego, frame_times, world_from_ego) if parts.has_boxes else None,
        motion=ego,
        vehicle_size=calibration.vehicle_size(clip) if parts.has_vehicle_size else None,
    )
    return scene, without_pose


def _boxes(
    clip: ClipFiles, ego: SmoothTrajectory, frame_times: Int64, world_from_ego: Float64
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
