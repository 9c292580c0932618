# SPDX-License-Identifier: Apache-2.0
"""Tracks: contiguous frames of a video, or of the aligned videos of several cameras."""

from __future__ import annotations

import collections
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, SupportsIndex, TypeAlias, get_args

import attrs
import numpy as np
import numpy.typing as npt

from ...checks import whole_number
from ...errors import SettingError
from ..rigs.frame_times import match_times
from .indexed_videos import IndexedVideos
from .video_index import Int64Array, VideoIndex
from .video_list import ListedVideo, RangeRule, checked_labels, video_paths

MissingPolicy: TypeAlias = Literal["drop", "bridge", "raise"]

_MOST_NAMED = 10
_logger = logging.getLogger(__name__)


class MissingVideoFrame(NamedTuple):
    """A missing frame of a camera.

    Attributes:
        drive: Number of the drive: position in the lists of files.
        camera: Name of the camera.
        reference_frame: Number of the frame of the reference camera that has no counterpart.
        time_s: Its time in seconds.
    """

    drive: int
    camera: str
    reference_frame: int
    time_s: float


@attrs.frozen
class VideoTracks:
    """Tracks, contiguous runs of frames, in the order of the data set.

    Attributes:
        starts: ``(S,)`` int64, first position of each run.
        ends: ``(S,)`` int64, the position behind the last one.
        videos: ``(S, C)`` int64, number of each camera's video in the `IndexedVideos`.
        all_videos: ``(V, C)`` int64, the same for each video as listed, or each drive.
        numbers: ``(S,)`` int64, number of the video as listed, or of the drive.
        labels: ``(S,)`` int32, or None.
        rows: For each run ``(T, C)`` int64, the frame of each camera at each position; None where positions are
            the frames themselves.
        camera_names: Names of the cameras; None for a single one without a name.
        offsets_s: ``(S, C)`` float64, what is added to the times of each camera's frames.
        missing: Frames that cameras lack.
        reference: Number of the reference camera.
    """

    starts: Int64Array
    ends: Int64Array
    videos: Int64Array
    all_videos: Int64Array
    numbers: Int64Array
    labels: npt.NDArray[np.int32] | None
    rows: tuple[Int64Array, ...] | None = None
    camera_names: tuple[str, ...] | None = None
    offsets_s: npt.NDArray[np.float64] | None = None
    missing: tuple[MissingVideoFrame, ...] = ()
    reference: int = 0

    @property
    def num_cameras(self) -> int:
        """Number of cameras."""
        return int(self.videos.shape[1])

    @property
    def num_videos(self) -> int:
        """Number of videos as listed, or of drives; also of those without a run."""
        return len(self.all_videos)

    def describe(self, videos: IndexedVideos) -> str:
        """Say how many there are: ``"2 videos"``, or ``"2 drives of 3 cameras in 6 files"``."""
        if self.camera_names is None:
            return f"{self.num_videos} videos"
        files = {videos.path(number) for number in self.all_videos.ravel().tolist()}
        return f"{self.num_videos} drives of {self.num_cameras} cameras in {len(files)} files"

    def video_of(self, number: SupportsIndex, camera: str | None) -> int:
        """Get the number in the `IndexedVideos` of a video as listed, or of a camera's video of a drive.

        Raises:
            SettingError: There is no such video or camera.
        """
        names: tuple[str | None, ...] = (None,) if self.camera_names is None else self.camera_names
        if camera not in names:
            raise SettingError(f"`camera` must be one of {', '.join(map(repr, names))}, got {camera!r}.")
        place = whole_number(number, "video", at_least=0)
        if place >= self.num_videos:
            raise SettingError(f"Videos are numbered 0 to {self.num_videos - 1}, got {place}.")
        return int(self.all_videos[place, names.index(camera)])

    def frames(self, track: int, camera: int, positions: Int64Array) -> Int64Array:
        """Get the frames of a camera at ``(n,)`` positions of a run; -1 stays -1."""
        if self.rows is None:
            return positions
        return np.where(positions < 0, -1, self.rows[track][positions, camera])

    def times_s(self, track: int, camera: int, frames: Int64Array, index: VideoIndex) -> npt.NDArray[np.float64]:
        """Get the ``(n,)`` times of frames in seconds, -1 where there is none.

        Of a single camera: since the first frame of the video, as DALI has it. Of several: as they are aligned.
        """
        if self.offsets_s is None:
            times = index.times_s[frames]
        else:
            times = _times_s(index, self.offsets_s[track, camera])[frames]
        return np.where(frames < 0, -1.0, times)

    def all_times_s(self, videos: IndexedVideos) -> npt.NDArray[np.float64]:
        """Get the times of all positions of all runs, ``(N,)``, of the reference camera."""
        parts = []
        for track, (start, end) in enumerate(zip(self.starts.tolist(), self.ends.tolist(), strict=True)):
            frames = self.frames(track, self.reference, np.arange(start, end))
            index = videos.index(int(self.videos[track, self.reference]))
            parts.append(self.times_s(track, self.reference, frames, index))
        return np.concatenate(parts)


def tracks_of_list(
    listed: Sequence[ListedVideo], stream: SupportsIndex, rule: RangeRule, **options: Any
) -> tuple[IndexedVideos, VideoTracks]:
    """Index listed videos, each file once, and find the range of each in the list.

    Args:
        listed: The videos.
        stream: Number of the video stream in each.
        rule: What the numbers of ranges mean.
        options: Arguments of `IndexedVideos`.

    Raises:
        SettingError: A range is empty, and what `IndexedVideos` raises.
    """
    number = whole_number(stream, "stream", at_least=0)
    places = {path: place for place, path in enumerate(dict.fromkeys(video.path for video in listed))}
    videos = IndexedVideos([(path, number) for path in places], **options)
    ranges = [rule.frames(video, videos.index(places[video.path])) for video in listed]
    starts, ends = np.array(ranges, np.int64).T
    labels = [video.label for video in listed]
    columns = np.array([[places[video.path]] for video in listed], np.int64)
    return videos, VideoTracks(
        starts,
        ends,
        columns,
        columns,
        np.arange(len(listed)),
        None if labels[0] is None else np.array(labels, np.int32),
    )


@attrs.frozen
class RigSettings:
    """Several cameras, and how their frames are matched, see `VideoDataProvider`."""

    cameras: Mapping[str, Any]
    reference_camera: str | None = None
    tolerance_s: float | None = None
    time_offsets_s: Mapping[str, float | Sequence[float]] | None = None
    missing: MissingPolicy = "drop"

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.cameras, Mapping) or not self.cameras:
            raise SettingError(
                f"`cameras` must map names of cameras to lists of videos, one per drive, got {self.cameras!r}."
            )
        for name, camera in (
            ("reference_camera", self.reference_camera),
            *(("time_offsets_s", camera) for camera in self.time_offsets_s or ()),
        ):
            if camera is not None and camera not in self.cameras:
                raise SettingError(
                    f"`{name}` must name one of the cameras, {', '.join(map(repr, self.cameras))}, got {camera!r}."
                )
        if self.missing not in get_args(MissingPolicy):
            raise SettingError(f"`missing` must be 'drop', 'bridge' or 'raise', got {self.missing!r}.")
        if self.tolerance_s is not None and not (np.isfinite(self.tolerance_s) and self.tolerance_s >= 0):
            raise SettingError(f"`tolerance_s` must be a number of at least 0, got {self.tolerance_s!r}.")

    def paths(self) -> list[list[str]]:
        """Paths of the videos: for each camera, of each drive."""
        paths = [video_paths(files, f"cameras[{camera!r}]") for camera, files in self.cameras.items()]
        counts = {camera: len(of_camera) for camera, of_camera in zip(self.cameras, paths, strict=True)}
        if len(set(counts.values())) > 1:
            raise SettingError(
                f"Each camera must have one video per drive, so the lists must be equally long, got {counts}."
            )
        return paths

    def offsets_s(self, num_drives: int) -> npt.NDArray[np.float64]:
        """What is added to the times, ``(num_drives, C)``."""
        columns = []
        for camera in self.cameras:
            given = np.asarray((self.time_offsets_s or {}).get(camera, 0.0), np.float64)
            if given.shape not in ((), (num_drives,)) or not np.isfinite(given).all():
                raise SettingError(
                    f"`time_offsets_s[{camera!r}]` must be a number, or one for each of {num_drives} drives, got "
                    f"{given.tolist()!r}."
                )
            columns.append(np.broadcast_to(given, (num_drives,)))
        return np.stack(columns, axis=1)


def tracks_of_rig(
    settings: RigSettings,
    stream: SupportsIndex | Mapping[str, SupportsIndex],
    labels: SupportsIndex | Iterable[SupportsIndex] | None,
    **options: Any,
) -> tuple[IndexedVideos, VideoTracks]:
    """Index the videos of several cameras, and match their frames by time.

    Args:
        settings: The cameras.
        stream: Number of the video stream, or one for each camera.
        labels: One per drive, or None.
        options: Arguments of `IndexedVideos`.

    Raises:
        SettingError: The lists do not fit each other, or no frames belong together; with ``missing="raise"``, a
            frame is missing.
    """
    names = tuple(settings.cameras)
    paths = settings.paths()
    num_drives = len(paths[0])
    numbers = checked_labels(labels, num_drives, "cameras")
    offsets_s = settings.offsets_s(num_drives)
    streams = [
        (path, whole_number(_of_camera(stream, name), "stream", at_least=0))
        for name, of_camera in zip(names, paths, strict=True)
        for path in of_camera
    ]
    places = {each: place for place, each in enumerate(dict.fromkeys(streams))}
    videos = IndexedVideos([*places], **options)
    columns = np.array([places[each] for each in streams], np.int64).reshape(len(names), num_drives).T
    reference = 0 if settings.reference_camera is None else names.index(settings.reference_camera)
    drives: list[int] = []
    rows: list[Int64Array] = []
    missing: list[MissingVideoFrame] = []
    for drive in range(num_drives):
        indices = [videos.index(place) for place in columns[drive].tolist()]
        matched, times_s = _aligned(indices, offsets_s[drive], reference, settings.tolerance_s)
        for position, camera in np.argwhere(matched < 0).tolist():
            missing.append(MissingVideoFrame(drive, names[camera], position, float(times_s[position])))
        runs = _runs(matched, settings.missing == "bridge")
        drives += [drive] * len(runs)
        rows += runs
    _report(missing, settings, bool(rows))
    lengths = np.array([len(run) for run in rows], np.int64)
    return videos, VideoTracks(
        np.zeros_like(lengths),
        lengths,
        columns[drives],
        columns,
        np.array(drives, np.int64),
        None if labels is None else np.array(numbers, np.int32)[drives],
        tuple(rows),
        names,
        offsets_s[drives],
        tuple(missing),
        reference,
    )


def _of_camera(stream: Any, camera: str) -> Any:
    if not isinstance(stream, Mapping):
        return stream
    if camera not in stream:
        raise SettingError(f"`stream` must be a number, or one for each camera, got none for {camera!r}.")
    return stream[camera]


def _times_s(index: VideoIndex, offset_s: float) -> npt.NDArray[np.float64]:
    times_s: npt.NDArray[np.float64] = index.pts * np.float64(index.time_base) + np.float64(offset_s)
    return times_s


def _aligned(
    indices: Sequence[VideoIndex],
    offsets_s: npt.NDArray[np.float64],
    reference: int,
    tolerance_s: float | None,
) -> tuple[Int64Array, npt.NDArray[np.float64]]:
    """Match the frames of a drive: ``(T, C)`` frames, -1 where there is none, and ``(T,)`` times."""
    times = [_times_s(index, offset) for index, offset in zip(indices, offsets_s.tolist(), strict=True)]
    of_reference = times[reference]
    if tolerance_s is None:
        intervals = np.diff(of_reference)
        tolerance_s = float(np.median(intervals)) / 2 if len(intervals) else 0.0
    matched = [match_times(of_reference, of_camera, tolerance_s) for of_camera in times]
    return np.stack(matched, axis=1), of_reference


def _runs(matched: Int64Array, bridges: bool) -> list[Int64Array]:
    is_complete = (matched >= 0).all(axis=1)
    complete = matched[is_complete]
    if bridges or not len(complete):
        return [complete] if len(complete) else []
    breaks = np.flatnonzero(np.diff(np.flatnonzero(is_complete)) > 1) + 1
    return np.split(complete, breaks)


def _report(missing: Sequence[MissingVideoFrame], settings: RigSettings, has_any: bool) -> None:
    if not missing:
        return
    counts = collections.Counter((frame.drive, frame.camera) for frame in missing)
    lines = [f"  - drive {drive}: {count} frame(s) of {name!r}" for (drive, name), count in counts.items()]
    if len(lines) > _MOST_NAMED:
        lines = [*lines[:_MOST_NAMED], f"  - and {len(lines) - _MOST_NAMED} more"]
    text = "Cameras lack frames at times of the reference camera:\n" + "\n".join(lines)
    if settings.missing == "raise":
        raise SettingError(f"{text}\nUse `missing='drop'` to leave these points in time out.")
    if not has_any:
        raise SettingError(
            f"{text}\nNo point in time is left. Do the cameras' clocks begin at the same time "
            f"(`time_offsets_s`), and is `tolerance_s` large enough?"
        )
    _logger.warning("%s", text)
