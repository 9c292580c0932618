# SPDX-License-Identifier: Apache-2.0
"""The index of clips of PhysicalAI-AV, and the provider."""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import attrs
import numpy as np

from accvlab.dali_pipeline_framework import checks
from accvlab.dali_pipeline_framework.checks import listed, setting_error
from accvlab.dali_pipeline_framework.errors import FileError, SettingError
from accvlab.dali_pipeline_framework.extension import StoragePath, StoredFile, nearest
from accvlab.dali_pipeline_framework.providers import Storage
from accvlab.dali_pipeline_framework.user_warnings import warn_user

from ..driving import poses
from ..driving.array_types import Array, Float64, Int64
from ..driving.driving_index import DrivingIndex, opened_index, states_of
from ..driving.driving_provider import DrivingProvider, ProviderSettings, Unpack, with_provider_settings
from ..driving.ego_motion import SmoothTrajectory
from ..driving.index_checks import require_usable
from ..driving.poses import half_period, last_before, require_known
from ..driving.requested_files import ListedFiles
from ..driving.requested_parts import RequestedParts
from ..driving.scene_parts import Scene, SceneImages, image_columns, index_of_scenes
from .clip_files import ClipCalibration, ClipFiles, listed_clips
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
    unpacked in its folder. If its files have other names, give them by ``layout``. The reference frame is that of
    the vehicle, at its rear axle; each clip is a scene.

    - Without ``moments``: one sample per frame of the reference camera, or every ``stride``-th. To each belongs
      the frame of each other camera that is nearest in time, within half the period of that camera. Frames taken
      before the first known pose of the vehicle, or after the last, are left out.
    - With `Moments`: samples at these times. From each camera, the last frame at or before the time is taken.
    - ``image_times``: several images of each camera; for each time, the last image at or before it.
    - The vehicle is on a cubic spline through the poses of ``egomotion``, and turns evenly between them
      (`SmoothTrajectory`). ``ego_history`` and ``ego_future`` are computed from this motion.
    - The cameras are fisheye cameras: ``intrinsics`` are those around the optical axis. With ``lenses=True``,
      ``lens`` is the whole model.
    - Boxes (``obstacle.offline``) have times of their own: of each track, the box that is nearest in time, at most
      50 ms and half the period of its boxes away, is moved to the frame by the motion of the vehicle. (The data
      set does not state which pose of the vehicle a box refers to; here, it is the pose at the time of the box.)
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
            chunks: Numbers of the chunks to use, or text such as ``"0-7"`` (without 7). None: those for which the
                motion of the vehicle exists; of unpacked archives, all that have a video.
            split: Wanted split, by the column ``split`` of the list of clips, if it has one; None for all splits.
            valid_only: Whether invalid clips of the list (``clip_is_valid``) are left out.
            missing: Whether a clip that lacks a file that is needed, such as a video, is an error, or left out.
            moments: Times of the samples; None for the times of the frames of the reference camera.
            reference_camera: The camera whose frames are the samples; None for the wide front camera, or else the
                first.
            stride: Every ``stride``-th frame of the reference camera is a sample.
            layout: Names of the files; None for those of the published files, packed or unpacked.
            storage_options: Arguments of the remote file system.
            **settings: Fields of the samples, see `DrivingFields`; ``scenes`` and ``index_cache``, see
                `DrivingProvider`.

        Raises:
            FileError: There are no clips, or a file is missing, cannot be read or is damaged.
            SettingError: pyarrow is missing, or the clips lack requested parts.
        """
        storage = Storage(root, storage_options)
        wanted = settings.get("cameras")
        choice_of_clips = _Choice(
            chunks=_chunk_numbers(chunks),
            split=None if split is None else checks.text(split, "split"),
            valid_only=checks.flag(valid_only, "valid_only"),
            drops=checks.choice(missing, "missing", ("raise", "drop")) == "drop",
            moments=None if moments is None else checks.instance(moments, "moments", Moments),
            cameras=wanted or (),
            scenes=settings.get("scenes"),
        )
        clips = choice_of_clips.chosen(choice_of_clips.found(storage, layout))
        names = sorted({camera for clip in clips for camera in clip.cameras})
        reference = (_FRONT if _FRONT in names else names[0]) if reference_camera is None else reference_camera
        if not isinstance(reference, str) or reference not in names:
            raise setting_error(
                "reference_camera", "a camera of the clips", reference, _there_are(reference, names)
            )
        if wanted is not None and {*wanted} <= {*names}:
            names = [name for name in names if name in wanted]
        parts = IndexParts(
            cameras=names,
            reference=reference,
            stride=checks.whole_number(stride, "stride", at_least=1),
            moments=moments,
            has_boxes=settings.get("boxes") is not False,
            has_vehicle_size=bool(settings.get("vehicle_size")),
            has_lenses=bool(settings.get("lenses")),
        )
        needed = parts.fields + ["obstacles"] * (settings.get("boxes") is True)
        of_all = names if wanted is not None or choice_of_clips.drops else None
        of_frames = [reference] if moments is None else []
        complete = choice_of_clips.complete(clips, needed, of_all, of_frames)
        dropped, clips = {clip.name for clip in clips} - {clip.name for clip in complete}, complete
        if settings.get("scenes") is not None and dropped:
            settings["scenes"] = [name for name in settings["scenes"] or () if name not in dropped]
        key: dict[str, Any] = {"reader": "physical ai 4", "root": storage.root, "parts": attrs.asdict(parts)}
        key["layout"] = attrs.asdict(clips[0].layout)
        key["clips"] = [[clip.name, clip.chunk, clip.end, clip.events.tolist(), clip.cameras] for clip in clips]
        states = states_of(parts.sources(clips))
        index = opened_index(lambda: make_index(clips, parts), states, key, settings.get("index_cache"))
        require_usable(
            index,
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
                f"clips only: {share:.0%} of the frames of {name!r} are before or after them, and left out."
            )


def _there_are(name: object, known: Collection[str]) -> str:
    return f"{checks.did_you_mean(name, known)} There are: {listed(sorted(known))}.".strip()


def _chunk_numbers(chunks: str | Sequence[int] | None) -> Sequence[int] | None:
    if chunks is None:
        return None
    numbers = checks.elements(chunks)
    if numbers is not None:
        return [checks.whole_number(chunk, "chunks", at_least=0) for chunk in numbers]
    first, _, end = str(chunks).partition("-")
    if not (first.isdecimal() and end.isdecimal() and int(first) < int(end)):
        raise setting_error("chunks", "as '0-7', which is 0 to 6, or whole numbers", chunks)
    return range(int(first), int(end))


@attrs.frozen(kw_only=True)
class _Choice:
    """Which clips are wanted.

    Attributes:
        chunks: Numbers of their chunks; None for all.
        split: Their split; None for all.
        valid_only: Whether only those are that the list of clips calls valid.
        drops: Whether those that lack files are left out.
        moments: When there are samples.
        cameras: Names of the cameras that are requested; empty for all.
        scenes: Names of the clips that are requested; None for all.
    """

    chunks: Sequence[int] | None
    split: str | None
    valid_only: bool
    drops: bool
    moments: Moments | None
    cameras: Sequence[str]
    scenes: Sequence[str] | None

    @property
    def _columns(self) -> list[str]:
        """Optional columns of the list of clips that are read."""
        needs_events = self.moments is not None and self.moments.needs_events
        columns = ["event_t0s", "end_timestamp"] * needs_events + ["clip_is_valid"] * self.valid_only
        return columns + ["split"] * (self.split is not None)

    def found(self, storage: Storage, layout: ClipLayout | None) -> list[ClipFiles]:
        """Find the clips: those that have an unpacked video, or those of the list that are in the chunks.

        Where all are wanted, it warns of clips of these chunks that have no unpacked video, or notes them in the
        log where those that lack files are dropped.
        """
        used = layout or ClipLayout()
        unpacked = {} if storage.is_remote else used.found(Path(storage.root))
        if not unpacked:
            where = f"There are no videos {used.video!r} in {storage.root!r}"
            if layout is not None:
                raise FileError(f"{where}. Name them by `layout`, or leave it out to read the published archives.")
            if not storage.exists(FEATURES):
                advice = "download it, or name files that lie elsewhere by `layout`"
                raise FileError(f"{where}, and no {FEATURES!r}, which names the published archives: {advice}.")
            return self._published(storage)
        if not used.needs_chunks and self.chunks is None and not storage.exists(used.clips):
            return [ClipFiles(storage, used, name, cameras) for name, cameras in unpacked.items()]
        of_list = {clip.name: clip for clip in listed_clips(storage, used, (), self._columns)}
        where = repr(storage.path(used.clips))
        for name in unpacked:
            if name not in of_list and (self.scenes is None or name in self.scenes):
                raise FileError(f"The clip {name!r} is not in {where}.")
        clips = [attrs.evolve(of_list[name], cameras=unpacked[name]) for name in unpacked if name in of_list]
        clips = self._of_chunks(clips)
        chunks = sorted({clip.chunk for clip in clips})
        lacking = [name for name, clip in of_list.items() if name not in unpacked and clip.chunk in chunks]
        if lacking and self.scenes is None:
            (_logger.warning if self.drops else warn_user)(
                f"{len(lacking)} clip(s) that {where} lists for the chunks {listed(chunks)} have no video "
                f"{used.video!r}, and are left out: {listed(lacking, 5)}."
            )
        return clips

    def _published(self, storage: Storage) -> list[ClipFiles]:
        layout, cameras = published_layout(storage)
        clips, chunks = listed_clips(storage, layout, cameras, self._columns), self.chunks
        if chunks is None:
            archive = layout.ego_motion.rpartition("/")[0]
            folder, _, name = archive.rpartition("/")
            expression = re.compile(re.escape(name).replace(re.escape("{chunk}"), r"(\d+)"))
            found = [expression.fullmatch(entry.name) for entry in storage.list_folder(folder)]
            chunks = [int(match[1]) for match in found if match]
            if not chunks:
                where = f"{archive!r} in {storage.root!r}"
                raise FileError(f"There are no archives {where}: download at least one chunk.")
        clips = attrs.evolve(self, chunks=chunks)._of_chunks(clips)
        if self.cameras and storage.is_remote:
            return clips
        needed = [clip for clip in clips if self.scenes is None or clip.name in self.scenes] or clips
        of_chunks = [*{clip.chunk: clip for clip in needed}.values()][: 1 if storage.is_remote else None]
        files = ListedFiles()  # of a URL, those of one chunk: each is a request
        there = [
            camera
            for camera in cameras
            if camera in self.cameras or any(files.has(clip.source("video", camera)) for clip in of_chunks)
        ]
        return [attrs.evolve(clip, cameras=there or cameras) for clip in clips]

    def _of_chunks(self, clips: Sequence[ClipFiles]) -> list[ClipFiles]:
        known, chunks = sorted({clip.chunk for clip in clips}), self.chunks
        found = [clip for clip in clips if chunks is None or clip.chunk in chunks]
        if not found or (isinstance(chunks, list) and not {*chunks} <= {*known}):
            raise setting_error("chunks", "chunks of the list of clips", chunks, f"It has: {listed(known)}.")
        return found

    def chosen(self, clips: Sequence[ClipFiles]) -> list[ClipFiles]:
        """Choose those of clips that are requested, so that the files of no others are read."""
        where = repr(clips[0].storage.path(clips[0].layout.clips))
        has_splits = any(clip.split for clip in clips)
        if self.split not in (None, _TRAIN) and not has_splits:
            raise SettingError(f"`split` needs a column 'split' in {where}, got {self.split!r}. Leave it out.")

        def why_not(clip: ClipFiles) -> str:
            if not clip.is_valid:  # which is read where it counts only
                return "is not valid: give `valid_only=False`"
            if not has_splits or self.split in (None, clip.split):
                return ""
            return f"is of the split {clip.split!r}: give that as `split`, or None"

        reasons = {clip.name: why_not(clip) for clip in clips}
        for name in self.scenes or ():
            if reasons.get(name):
                raise SettingError(f"The clip {name!r} of `scenes` {reasons[name]}.")
        kept = [clip for clip in clips if not reasons[clip.name]]
        if not kept:
            counts = sorted(Counter(reasons.values()).items())
            there = "; ".join(f"{count} {reason}" for reason, count in counts)
            raise SettingError(f"There are no clips of the split {self.split!r}. Of the others, {there}.")
        if len(kept) < len(clips):
            count = len(clips) - len(kept)
            _logger.info("%d of %d clips are not valid, or of other splits.", count, len(clips))
        return self._with_samples(kept, where)

    def _with_samples(self, clips: list[ClipFiles], where: str) -> list[ClipFiles]:
        """Those of clips that are named, and have samples, as far as the list of clips says so."""
        names, moments = {clip.name for clip in clips}, self.moments
        at = moments.at if moments is not None else None
        for name in at if isinstance(at, dict) else ():
            if name not in names:
                raise SettingError(f"`at` must have names of clips, got {name!r}. {_there_are(name, names)}")
        if self.scenes is not None and {*self.scenes} <= names:
            clips = [clip for clip in clips if clip.name in self.scenes]
        if moments is None:
            return clips
        if moments.needs_events and not any(len(clip.events) for clip in clips):
            rule = f"{where} must have event_t0s and end_timestamp of the clips for `Moments(at={moments.at!r})`"
            raise FileError(f"{rule}. Give times: `Moments(at=[5.1])` or `Moments(every_s=0.5)`.")
        times = [moments.of_list(clip.name, clip.events, clip.end) for clip in clips]
        chosen = [clip for clip, of_clip in zip(clips, times, strict=True) if of_clip is None or len(of_clip)]
        if not chosen:
            raise _no_sample(clips, moments)
        return chosen

    def complete(
        self,
        clips: Sequence[ClipFiles],
        fields: Sequence[str],
        cameras: Sequence[str] | None,
        of_frames: Sequence[str],
    ) -> list[ClipFiles]:
        """Choose the clips that have all files of some kinds, and of cameras (None: those of each).

        Others are refused, or left out. Of the cameras of which only the times are needed, ``of_frames``, there
        may be no videos.
        """
        files, kept, errors = ListedFiles(), list[ClipFiles](), list[FileError]()
        for clip in clips:
            needed = [(field, "") for field in fields] + [("times", camera) for camera in of_frames]
            of_clip = clip.cameras if cameras is None else cameras
            needed += [(field, camera) for camera in of_clip for field in ("times", "video")]
            lacking = next((each for each in needed if not self._has(files, clip, *each)), None)
            if lacking is None:
                kept.append(clip)
                continue
            file, source = clip.file(*lacking), clip.source(*lacking)
            errors.append(clip.missing(file if files.has_any(file) or file == source else source, lacking[1]))
            if not self.drops:
                break
        if errors and not (kept and self.drops):
            raise errors[0]
        if errors:
            _logger.warning("%d of %d clips lack files and are left out. %s", len(errors), len(clips), errors[0])
        return kept

    def _has(self, files: ListedFiles, clip: ClipFiles, field: str, camera: str) -> bool:
        file = clip.file(field, camera)
        # Of files of whole chunks at a URL, those that are missing are found when they are read.
        is_left = clip.storage.is_remote and not self.drops and clip.name not in file.name
        return is_left or files.has(file)


def _no_sample(clips: Sequence[ClipFiles], moments: Moments | None) -> FileError:
    return FileError(f"None of {len(clips)} clip(s) in {clips[0].storage.root!r} has a sample at {moments}.")


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

    def sources(self, clips: Sequence[ClipFiles]) -> list[StoredFile]:
        """Files, and archives, that an index is made of."""
        storage = clips[0].storage
        names = {clip.source(field).name for clip in clips for field in self.fields}
        names |= {clip.source("times", camera).name for clip in clips for camera in self.timed(clip)}
        boxes = {clip.source("obstacles").name for clip in clips if self.has_boxes}
        return [StoredFile(storage, name) for name in sorted({*names, *filter(storage.exists, boxes)})]


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
        raise _no_sample(clips, parts.moments)
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
