# SPDX-License-Identifier: Apache-2.0
"""Where videos lie (lists, folders, patterns), how their cameras are aligned, and how they are decoded."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, SupportsIndex, TypeAlias

import attrs
from attrs.validators import optional
from nvidia.dali import types

from .. import checks
from ..errors import FileError, SettingError, error_that_is_also
from ..providers.files.file_scan import NameFilter, scan_folders
from ..providers.files.storage import Storage, members_url, parent_of, split_pattern
from ..providers.frames.camera_rigs import CameraRig
from ..unknown_arguments import explains_unknown_arguments
from ..url_secrets import repr_without_secrets
from .frame_converter import Colors, FrameConverter
from .video_index import VideoIndex

VideoPath: TypeAlias = "str | os.PathLike[str]"
VideoPaths: TypeAlias = "VideoPath | Iterable[VideoPath]"

_VIDEO_FILES = NameFilter(
    ["*.mp4", "*.m4v", "*.mov", "*.mkv", "*.webm", "*.avi", "*.ts", "*.m2ts", "*.mpg", "*.mpeg", "*.flv", "*.ogv"],
    case_sensitive=False,
    argument="videos",
)  # of a folder

MOST_LABEL = 2**31 - 1


def _paths(given: VideoPaths, name: str) -> tuple[str, ...]:
    paths = checks.file_paths(given, name, "paths of videos")
    if not paths:
        raise SettingError(f"`{name}` must name at least one video, got an empty list.")
    return paths


def _filenames(value: VideoPaths | None) -> tuple[str, ...] | None:
    return None if value is None else _paths(value, "filenames")


def _cameras(value: Mapping[str, VideoPaths] | None) -> dict[str, tuple[str, ...]] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping) or not value:
        rule = "map names of cameras to lists of videos, one per recording"
        raise SettingError(f"`cameras` must {rule}, got {checks.shown(value)}.")
    return {camera: _paths(files, f"cameras[{camera!r}]") for camera, files in value.items()}


def _path_setting(name: str) -> Any:
    """Make a field of a path, or None."""

    def converted(value: VideoPath | None) -> str | None:
        return None if value is None else checks.file_path(value, name)

    return attrs.field(default=None, converter=converted, kw_only=True, repr=repr_without_secrets)


def _count_setting(default: int) -> Any:
    """Make a field of a whole number of at least 1."""
    return attrs.field(default=default, validator=checks.valid(checks.whole_number, at_least=1), kw_only=True)


def _labels(value: SupportsIndex | Iterable[SupportsIndex] | None) -> tuple[int, ...] | None:
    if value is None:
        return None
    several = checks.elements(value)
    given = [value] if several is None else several
    advice = "Labels are whole numbers of 32 bits, one per video."
    return tuple(
        checks.whole_number(each, "labels", at_least=-(2**31), at_most=MOST_LABEL, advice=advice) for each in given
    )


def _ranges(value: Iterable[tuple[int, int | None]] | None) -> tuple[tuple[int, int | None], ...] | None:
    if value is None:
        return None
    pairs = [checks.elements(pair) or [] for pair in checks.elements(value) or [()]]
    if any(len(pair) != 2 for pair in pairs):
        raise checks.setting_error("ranges", "pairs of numbers of frames, (start, end) or (start, None)", value)
    return tuple(
        (checks.whole_number(start, "ranges"), None if end is None else checks.whole_number(end, "ranges"))
        for start, end in pairs
    )


def _time_offsets_s(value: Mapping[str, float | Sequence[float]] | None) -> dict[str, float | tuple[float, ...]]:
    if value is not None and not isinstance(value, Mapping):
        raise SettingError(f"`time_offsets_s` must map names of cameras to seconds, got {checks.shown(value)}.")
    return {
        camera: checks.number_list(given, f"time_offsets_s[{camera!r}]", "a number, or one per recording")
        if isinstance(given, Iterable)
        else checks.number(given, f"time_offsets_s[{camera!r}]")
        for camera, given in (value or {}).items()
    }


def _image_type(value: types.DALIImageType) -> types.DALIImageType:
    FrameConverter(value)  # complains about other types
    return value


@explains_unknown_arguments
@attrs.frozen
class Videos(CameraRig):
    """Video files, and how they are decoded.

    They are named in one of three ways: ``filenames`` (and ``labels``, ``ranges``), ``file_root`` (each
    subfolder is a label), or, for several cameras, ``cameras`` (and ``labels``). A recording is
    a video, a range of a video, or with ``cameras`` one video of each camera.

    With ``cameras``, the points in time are the frames of the reference camera. Each other camera
    adds its frame nearest in time, if it is within the tolerance and no other point in time is nearer to it.
    Points in time at which a camera has none are left out, counted in the log and listed in the provider's
    ``missing_frames``.

    Attributes:
        filenames: Paths or URLs of videos. A folder stands for all videos in it, and a pattern such as
            ``"train/*.mp4"`` for all files that match, in the order of the bytes of their names. A URL may name a
            folder if its last part has no extension of a video. ZIP files are folders, here and in all that
            follows: ``"train.zip"``, ``"train.zip/monday.mp4"``, ``"s3://bucket/train.zip/*.mp4"``. Their videos
            must be stored without compression.
        labels: One per video of ``filenames``, or per recording of ``cameras``.
        ranges: One ``(start, end)`` per video of ``filenames``: numbers of the first frame, and of the one behind
            the last. Negative ones count from the end; None for ``end`` is the end, as is a number beyond it.
            None for whole videos.
        file_root: Folder of label folders, as in `FileDataProvider`.
        cameras: Videos by name of the camera, given as ``filenames`` are, each with one video per recording.
        reference_camera: The camera whose frames are the points in time; None for the first.
        tolerance_s: How far a frame may be from its point in time, at most, in seconds; None for half the median
            interval of the reference camera. Times are compared exactly, in the units of the videos; this and
            ``time_offsets_s`` are taken as written in decimals.
        time_offsets_s: By camera, seconds to add to the times of its container; one number, or one per recording.
        missing: At points in time at which a camera has no frame, ``"drop"`` ends a sequence, and the next one
            begins after it; ``"bridge"`` continues; ``"raise"`` refuses the data set.
        stream: Number of the video stream in the containers. None for the one with the largest frames, see
            `index_video`; if there are several, a warning names them.
        upright: Whether frames are turned by the angle that their video states, as players do. None: no, with a
            warning if there is one. Not with ``images="encoded"``.
        image_type: ``RGB``, ``BGR`` or ``GRAY``.
        colors: ``"stream"`` for the color matrix that each stream states, or else the one that players assume;
            ``"bt601"`` for BT.601 where a stream states none; ``"dali"`` for the pixels of DALI's readers on the
            CPU, which is slower. See `FrameConverter`.
        index_cache: Local folder that keeps the indices of the videos.
        num_decoder_threads: Threads of each decoder.
        num_batch_threads: How many samples of a batch are decoded at once in a worker.
        max_open_decoders: Number of decoders that a worker keeps open; for streaming, at least the number of slots
            times the number of cameras.
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
    ranges: tuple[tuple[int, int | None], ...] | None = attrs.field(default=None, converter=_ranges, kw_only=True)
    file_root: str | None = _path_setting("file_root")
    cameras: dict[str, tuple[str, ...]] | None = attrs.field(
        default=None, converter=_cameras, kw_only=True, repr=repr_without_secrets
    )
    time_offsets_s: dict[str, float | tuple[float, ...]] = attrs.field(
        default=None, converter=_time_offsets_s, kw_only=True
    )
    stream: int | None = attrs.field(
        default=None, validator=optional(checks.valid(checks.whole_number, at_least=0)), kw_only=True
    )
    upright: bool | None = attrs.field(default=None, validator=optional(checks.valid(checks.flag)), kw_only=True)
    image_type: types.DALIImageType = attrs.field(
        default=types.DALIImageType.RGB, converter=_image_type, kw_only=True
    )
    colors: Colors = attrs.field(default="stream", validator=checks.one_of(Colors), kw_only=True)
    index_cache: str | None = _path_setting("index_cache")
    num_decoder_threads: int = _count_setting(1)
    num_batch_threads: int = _count_setting(1)
    max_open_decoders: int = _count_setting(16)
    storage_options: Mapping[str, Any] | None = attrs.field(default=None, kw_only=True, repr=False)

    def __attrs_post_init__(self) -> None:
        ways = ("filenames", "file_root", "cameras")
        given = [f"`{name}`" for name in ways if getattr(self, name) is not None]
        if len(given) != 1:
            raise SettingError(
                f"Give the videos in exactly one way: `filenames`, `file_root`, or `cameras`. Got "
                f"{' and '.join(given) or 'none of them'}."
            )
        if self.labels is not None and self.file_root is not None:
            raise SettingError("`labels` go with `filenames` and `cameras`; with `file_root`, folders are labels.")
        if self.ranges is not None and self.filenames is None:
            raise SettingError(f"`ranges` go with `filenames`, got {given[0]}.")
        CameraRig.__attrs_post_init__(self)
        Storage("", self.storage_options)  # complains about what it does not know
        for camera in self.time_offsets_s:
            self._check_camera(camera, "time_offsets_s")


def listed_videos(videos: Videos) -> tuple[list[str], Sequence[int | None]]:
    """List the paths of videos that are not those of cameras, and their labels."""
    if videos.file_root is None:
        paths = expanded(videos.filenames or (), videos)
        return paths, checked_labels(videos, len(paths), "filenames")
    storage = Storage(videos.file_root, videos.storage_options)
    table = scan_folders(storage, _VIDEO_FILES)
    return [storage.path(name) for name in table], [table.label(position) for position in range(len(table))]


def frame_ranges(videos: Videos, paths: Sequence[str], indices: Sequence[VideoIndex]) -> list[range]:
    """Get the range of frames of each video; at least one frame."""
    given = videos.ranges or [(0, None)] * len(paths)
    if len(given) != len(paths):
        raise SettingError(f"There must be as many `ranges` as videos, got {len(given)} for {len(paths)}.")
    found = []
    for (first, last), path, index in zip(given, paths, indices, strict=True):
        start, end, _ = slice(first, last).indices(index.num_frames)
        if start >= end or first < -index.num_frames:
            rule = f"at least one frame, got {(first, last)} of {repr_without_secrets(path)}"
            raise SettingError(f"`ranges` must have {rule}, which has {index.num_frames} frames.")
        found.append(range(start, end))
    return found


def expanded(paths: Iterable[str], videos: Videos) -> list[str]:
    """List the videos of paths of videos, folders, and patterns; each of the last two must have some."""
    found: list[str] = []
    for path in map(members_url, paths):
        storage = Storage(path, videos.storage_options)
        matching = _matching(path, storage, videos)
        # A server of HTTP would begin to send the file, to tell that it is no folder.
        is_file = storage.is_remote and _VIDEO_FILES.matches(parent_of(path)[1].partition("?")[0])
        if matching is not None:
            found += matching
        elif not is_file and storage.is_folder(""):
            found += _in_folder(storage)
        else:
            found.append(path)
    return found


def _matching(path: str, storage: Storage, videos: Videos) -> list[str] | None:
    """The files that match a pattern, at least one; None if it is none."""
    if storage.is_remote:
        parts = split_pattern(path)
        if parts is None:
            return None
        folder = Storage(parts[0], videos.storage_options)
        found = [folder.path(name) for name in folder.find(parts[1])]
    elif not glob.has_magic(path) or os.path.lexists(path):
        return None
    else:
        found = [each for each in glob.glob(path, recursive=True) if not os.path.isdir(each)]
    if not found:
        message = f"No file matches the pattern {repr_without_secrets(path)}."
        raise error_that_is_also(FileError, [FileNotFoundError], message)
    return sorted(found, key=os.fsencode)


def _in_folder(storage: Storage) -> list[str]:
    files = [name for name, is_folder in storage.list_folder() if not is_folder and not name.startswith(".")]
    names = [name for name in files if _VIDEO_FILES.matches(name)]
    if not names:
        why = "no name in it ends as one of a video. Folders of labels, with the videos in them, are `file_root`."
        raise SettingError(f"There is no video in the folder {storage.shown()}: {why}")
    return [storage.path(name) for name in sorted(names, key=os.fsencode)]


def checked_labels(videos: Videos, count: int, argument: str) -> tuple[int | None, ...]:
    """Return one label for each recording; None for each if there are none."""
    if videos.labels is not None and len(videos.labels) != count:
        got = f"{len(videos.labels)} label(s) for {count}"
        raise SettingError(f"There must be as many `labels` as `{argument}`, got {got}.")
    return videos.labels or (None,) * count
