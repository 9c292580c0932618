# SPDX-License-Identifier: Apache-2.0
"""Where videos lie, how their cameras are aligned, and how they are decoded."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, SupportsIndex, TypeAlias

import attrs
import numpy as np
from nvidia.dali import types

from ..checks import file_path, file_paths, flag, number, number_list, shown, valid, whole_number
from ..errors import SettingError
from ..providers.files.file_scan import NameFilter
from ..providers.files.storage import Storage
from ..providers.frames.camera_rigs import CameraRig, one_of
from ..unknown_arguments import explains_unknown_arguments
from ..url_secrets import repr_without_secrets
from .video_decoding import FrameConverter

VideoPath: TypeAlias = "str | os.PathLike[str]"
VideoPaths: TypeAlias = "VideoPath | Iterable[VideoPath]"
ListFormat: TypeAlias = Literal["timestamps", "frames"]
ListRounding: TypeAlias = Literal["start_down_end_up", "start_up_end_down", "all_up", "all_down"]

VIDEO_FILTERS: tuple[str, ...] = (
    "*.mp4", "*.m4v", "*.mov", "*.mkv", "*.webm", "*.avi", "*.ts", "*.m2ts", "*.mpg", "*.mpeg", "*.flv", "*.ogv",
)  # fmt: skip
"""Patterns of the files that are taken from folders if no others are given."""

MOST_LABEL = 2**31 - 1


def _paths(given: VideoPaths, name: str) -> tuple[str, ...]:
    paths = file_paths(given, name, "paths of videos")
    if not paths:
        raise SettingError(f"`{name}` must name at least one video, got an empty list.")
    return paths


def _filenames(value: VideoPaths | None) -> tuple[str, ...] | None:
    return None if value is None else _paths(value, "filenames")


def _cameras(value: Mapping[str, VideoPaths] | None) -> dict[str, tuple[str, ...]] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping) or not value:
        raise SettingError(
            f"`cameras` must map names of cameras to lists of videos, one per recording, got {shown(value)}."
        )
    return {camera: _paths(files, f"cameras[{camera!r}]") for camera, files in value.items()}


def _path_setting(name: str) -> Any:
    """Make a field of a path, or None."""

    def converted(value: VideoPath | None) -> str | None:
        return None if value is None else file_path(value, name)

    return attrs.field(default=None, converter=converted, kw_only=True, repr=repr_without_secrets)


def _count_setting(default: int) -> Any:
    """Make a field of a whole number of at least 1."""
    return attrs.field(default=default, validator=valid(whole_number, at_least=1), kw_only=True)


def _labels(value: SupportsIndex | Iterable[SupportsIndex] | None) -> tuple[int, ...] | None:
    if value is None:
        return None
    given = np.atleast_1d(np.asarray(value, object)).tolist()
    advice = "Labels are whole numbers of 32 bits, one per video."
    return tuple(
        whole_number(each, "labels", at_least=-(2**31), at_most=MOST_LABEL, advice=advice) for each in given
    )


def _file_filters(value: str | Iterable[str]) -> tuple[str, ...]:
    return NameFilter(value, case_sensitive=False, argument="file_filters").patterns


def _time_offsets_s(value: Mapping[str, float | Sequence[float]] | None) -> dict[str, float | tuple[float, ...]]:
    if value is not None and not isinstance(value, Mapping):
        raise SettingError(f"`time_offsets_s` must map names of cameras to seconds, got {shown(value)}.")
    return {
        camera: number_list(given, f"time_offsets_s[{camera!r}]", "a number, or one per recording")
        if isinstance(given, Iterable)
        else number(given, f"time_offsets_s[{camera!r}]")
        for camera, given in (value or {}).items()
    }


def _stream(value: SupportsIndex | Mapping[str, SupportsIndex]) -> int | dict[str, int]:
    if isinstance(value, Mapping):
        return {camera: whole_number(each, "stream", at_least=0) for camera, each in value.items()}
    return whole_number(value, "stream", at_least=0)


def _image_type(value: types.DALIImageType) -> types.DALIImageType:
    FrameConverter(value)  # complains about other types
    return value


@explains_unknown_arguments()
@attrs.frozen
class Videos(CameraRig):
    """Video files, and how they are decoded.

    They are named in one of four ways: ``filenames`` (and ``labels``), ``file_root`` (each subfolder is a label),
    ``file_list`` (lines ``path label [start [end]]``), or, for several cameras, ``cameras`` (and ``labels``). Each
    video, or part of one in a list, or one video of each camera, is a recording.

    With ``cameras``, the points in time are the frames of the reference camera. To each belongs the frame of each
    other camera that is nearest in time (and to which it is the nearest, too), if it is within the tolerance.
    Points in time at which a camera has none are left out, counted in the log and listed in the provider's
    ``missing_frames``.

    Attributes:
        filenames: Paths or URLs of videos; of a folder, all videos in it, and of a pattern such as
            ``"train/*.mp4"`` all files that match, in the order of the bytes of their names. A URL may name a
            folder if ``file_filters`` does not match its last part.
        labels: One per video of ``filenames``, or per recording of ``cameras``.
        file_root: Folder of label folders, as in `FileDataProvider`.
        file_filters: Patterns of the files that count as videos in folders.
        file_list: Path or URL of a list file. Paths in it are relative to the current folder; in one at a URL, to
            its folder. Numbers after the label give a range: the end is not part of it.
        file_list_format: ``"timestamps"``: ranges are in seconds, in the time of the container. ``"frames"``: they
            are numbers of frames, negative ones from the end.
        file_list_rounding: To which frame a start or end between two is rounded.
        file_list_include_end: Whether the end belongs to the range. DALI 2.4 has this argument, and leaves the end
            out in any case.
        cameras: Videos by name of the camera, given as ``filenames`` are, each with one video per recording.
        reference_camera: The camera whose frames are the points in time; None for the first.
        tolerance_s: How far a frame may be from its point in time, at most, in seconds; None for half the usual
            interval of the reference camera. Times are compared exactly, in the units of the videos; this and
            ``time_offsets_s`` are taken as written in decimals.
        time_offsets_s: By camera, what is added to the times of its container; one number, or one per recording.
        missing: At points in time at which a camera has no frame, ``"drop"`` ends a sequence, and the next one
            begins behind it; ``"bridge"`` goes on; ``"raise"`` refuses the data set.
        stream: Number of the video stream in the container; or one for each camera.
        image_type: ``RGB``, ``BGR`` or ``GRAY``.
        index_cache: Local folder that keeps the indices of the videos.
        num_decoder_threads: Threads of each decoder.
        num_batch_threads: How many samples of a batch are decoded at once in a worker.
        max_open_decoders: How many decoders a worker keeps open; to stream, at least slots times cameras.
        storage_options: Arguments of a remote file system, see `FileDataProvider`.

    Raises:
        SettingError: An argument is out of its range, or does not go with another.

    Example:
        >>> Videos(cameras={"front": "front/*.mp4", "left": "left/*.mp4"}, tolerance_s=0.01).camera_names
        ('front', 'left')
    """

    filenames: tuple[str, ...] | None = attrs.field(
        default=None, converter=_filenames, kw_only=False, repr=repr_without_secrets
    )
    labels: tuple[int, ...] | None = attrs.field(default=None, converter=_labels, kw_only=True)
    file_root: str | None = _path_setting("file_root")
    file_filters: tuple[str, ...] = attrs.field(default=VIDEO_FILTERS, converter=_file_filters, kw_only=True)
    file_list: str | None = _path_setting("file_list")
    file_list_format: ListFormat = attrs.field(default="timestamps", validator=one_of(ListFormat), kw_only=True)
    file_list_rounding: ListRounding = attrs.field(
        default="start_down_end_up", validator=one_of(ListRounding), kw_only=True
    )
    file_list_include_end: bool = attrs.field(default=False, validator=valid(flag), kw_only=True)
    cameras: dict[str, tuple[str, ...]] | None = attrs.field(
        default=None, converter=_cameras, kw_only=True, repr=repr_without_secrets
    )
    time_offsets_s: dict[str, float | tuple[float, ...]] = attrs.field(
        default=None, converter=_time_offsets_s, kw_only=True
    )
    stream: int | dict[str, int] = attrs.field(default=0, converter=_stream, kw_only=True)
    image_type: types.DALIImageType = attrs.field(
        default=types.DALIImageType.RGB, converter=_image_type, kw_only=True
    )
    index_cache: str | None = _path_setting("index_cache")
    num_decoder_threads: int = _count_setting(1)
    num_batch_threads: int = _count_setting(1)
    max_open_decoders: int = _count_setting(16)
    storage_options: Mapping[str, Any] | None = attrs.field(default=None, kw_only=True, repr=False)

    def __attrs_post_init__(self) -> None:
        ways = ("filenames", "file_root", "file_list", "cameras")
        given = [f"`{name}`" for name in ways if getattr(self, name) is not None]
        if len(given) != 1:
            raise SettingError(
                f"Give the videos in exactly one way: `filenames`, `file_root`, `file_list`, or `cameras`. Got "
                f"{' and '.join(given) or 'none of them'}."
            )
        if self.labels is not None and given[0] in ("`file_root`", "`file_list`"):
            raise SettingError(
                f"`labels` go with `filenames` and `cameras` only; with {given[0]} they are found there."
            )
        CameraRig.__attrs_post_init__(self)
        Storage("", self.storage_options)  # complains about what it does not know
        for camera in self.time_offsets_s:
            self._check_camera(camera, "time_offsets_s")
        if isinstance(self.stream, dict):
            if self.cameras is None:
                raise SettingError("One `stream` per camera goes with `cameras`; give one number.")
            for camera in self.cameras:
                if camera not in self.stream:
                    raise SettingError(
                        f"`stream` must be a number, or one for each camera, got none for {camera!r}."
                    )

    def stream_of(self, camera: str) -> int:
        """Get the number of the video stream of a camera."""
        return self.stream[camera] if isinstance(self.stream, dict) else self.stream


def as_videos(source: Videos | VideoPaths) -> Videos:
    """Take paths alone for videos of one camera."""
    given: Any = source
    return given if isinstance(given, Videos) else Videos(given)
