# SPDX-License-Identifier: Apache-2.0
"""Tracks: contiguous frames of a video, or of the aligned videos of several cameras."""

from __future__ import annotations

from typing import SupportsIndex

import attrs
import numpy as np
import numpy.typing as npt

from ..checks import choice, index_in
from ..errors import SettingError
from ..providers.frames.camera_rigs import MissingFrame, RigAccount, align_times, exact
from .frame_reader import KeptFrames
from .indexed_videos import IndexedVideos
from .video_index import Int64Array, VideoIndex
from .video_list import checked_labels, expanded, frame_range, listed_videos
from .videos import Videos


@attrs.frozen
class VideoTracks:
    """Tracks, contiguous frames, in the order of the data set.

    Attributes:
        starts: ``(S,)`` int64, first position of each track.
        ends: ``(S,)`` int64, the position behind the last one.
        videos: ``(S, C)`` int64, number of each camera's video in the `IndexedVideos`.
        all_videos: ``(V, C)`` int64, the same for each recording.
        numbers: ``(S,)`` int64, number of the recording: a video as listed, or one video of each camera.
        labels: ``(S,)`` int32, or None.
        rows: For each track ``(T, C)`` int64, the frame of each camera at each position; None where positions are
            the frames themselves.
        camera_names: Names of the cameras; none for a single one without a name.
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
    camera_names: tuple[str, ...] = ()
    offsets_s: npt.NDArray[np.float64] | None = None
    missing: tuple[MissingFrame, ...] = ()
    reference: int = 0

    @property
    def num_cameras(self) -> int:
        """Number of cameras."""
        return int(self.videos.shape[1])

    @property
    def num_videos(self) -> int:
        """Number of recordings, also of those without a track."""
        return len(self.all_videos)

    def describe(self, videos: IndexedVideos) -> str:
        """Say how many there are: ``"2 videos"``, or ``"2 recordings of 3 cameras in 6 files"``."""
        if not self.camera_names:
            return f"{self.num_videos} videos"
        files = {videos.path(number) for number in self.all_videos.ravel().tolist()}
        return f"{self.num_videos} recordings of {self.num_cameras} cameras in {len(files)} files"

    def video_of(self, recording: SupportsIndex, camera: str | None) -> int:
        """Get the number in the `IndexedVideos` of a camera's video of a recording."""
        names = self.camera_names or (None,)
        place = names.index(choice(camera, "camera", names))
        return int(self.all_videos[index_in(recording, "recording", self.num_videos), place])

    def frames(self, track: int, camera: int, positions: Int64Array) -> Int64Array:
        """Get the frames of a camera at ``(n,)`` positions of a track; -1 stays -1."""
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
        """Get the times of all positions of all tracks, ``(N,)``, of the reference camera."""
        parts = []
        for track, (start, end) in enumerate(zip(self.starts.tolist(), self.ends.tolist(), strict=True)):
            frames = self.frames(track, self.reference, np.arange(start, end))
            index = videos.index(int(self.videos[track, self.reference]))
            parts.append(self.times_s(track, self.reference, frames, index))
        return np.concatenate(parts)


def tracks_of(videos: Videos, kept: KeptFrames) -> tuple[IndexedVideos, VideoTracks]:
    """Index videos, each file once, and find their contiguous frames."""
    return _of_list(videos, kept) if videos.cameras is None else _of_rig(videos, kept)


def _of_list(settings: Videos, kept: KeptFrames) -> tuple[IndexedVideos, VideoTracks]:
    listed = listed_videos(settings)
    places = {path: place for place, path in enumerate(dict.fromkeys(video.path for video in listed))}
    videos = IndexedVideos([(path, settings.stream_of("")) for path in places], settings, kept)
    ranges = [frame_range(video, videos.index(places[video.path]), settings) for video in listed]
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


def _of_rig(settings: Videos, kept: KeptFrames) -> tuple[IndexedVideos, VideoTracks]:
    names = settings.camera_names
    paths = [expanded(files, settings) for files in (settings.cameras or {}).values()]
    counts = {camera: len(of_camera) for camera, of_camera in zip(names, paths, strict=True)}
    if len(set(counts.values())) > 1:
        raise SettingError(
            f"Each camera must have one video per recording, so the lists must be equally long, got {counts}."
        )
    num_recordings = len(paths[0])
    labels = checked_labels(settings, num_recordings, "cameras")
    offsets_s = _offsets_s(settings, num_recordings)
    streams = [
        (path, settings.stream_of(name))
        for name, of_camera in zip(names, paths, strict=True)
        for path in of_camera
    ]
    places = {each: place for place, each in enumerate(dict.fromkeys(streams))}
    videos = IndexedVideos([*places], settings, kept)
    columns = np.array([places[each] for each in streams], np.int64).reshape(len(names), num_recordings).T
    numbers: list[int] = []
    rows: list[Int64Array] = []
    account = RigAccount()
    for number in range(num_recordings):
        of_recording = [
            (videos.index(place), offset_s)
            for place, offset_s in zip(columns[number].tolist(), offsets_s[number].tolist(), strict=True)
        ]
        times = [(index.pts, index.time_base, exact(offset_s)) for index, offset_s in of_recording]
        matched = align_times(times, settings.reference, settings.tolerance_s)
        reference_times_s = _times_s(*of_recording[settings.reference])
        account.num_times += len(matched)
        for position, camera in np.argwhere(matched < 0).tolist():
            time_s = float(reference_times_s[position])
            account.missing.append(MissingFrame(number, names[camera], position, time_s))
        runs = settings.runs(np.all(matched >= 0, axis=1))
        numbers += [number] * len(runs)
        rows += [matched[run] for run in runs]
    advice = (
        "\nDo the cameras' clocks begin at the same time (`time_offsets_s`), and is `tolerance_s` large enough?"
    )
    account.report(settings, not rows, advice=advice)
    lengths = np.array([len(run) for run in rows], np.int64)
    return videos, VideoTracks(
        np.zeros_like(lengths),
        lengths,
        columns[numbers],
        columns,
        np.array(numbers, np.int64),
        None if settings.labels is None else np.array(labels, np.int32)[numbers],
        tuple(rows),
        names,
        offsets_s[numbers],
        tuple(account.missing),
        settings.reference,
    )


def _offsets_s(settings: Videos, num_recordings: int) -> npt.NDArray[np.float64]:
    """What is added to the times, ``(num_recordings, C)``."""
    columns = []
    for camera in settings.camera_names:
        given = settings.time_offsets_s.get(camera, 0.0)
        if isinstance(given, tuple) and len(given) != num_recordings:
            raise SettingError(
                f"`time_offsets_s[{camera!r}]` must be a number, or one for each of {num_recordings} recordings, "
                f"got {list(given)!r}."
            )
        columns.append(np.broadcast_to(np.array(given), (num_recordings,)))
    return np.stack(columns, axis=1)


def _times_s(index: VideoIndex, offset_s: float) -> npt.NDArray[np.float64]:
    times_s: npt.NDArray[np.float64] = index.pts * np.float64(index.time_base) + np.float64(offset_s)
    return times_s
