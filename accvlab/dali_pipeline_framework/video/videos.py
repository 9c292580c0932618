# SPDX-License-Identifier: Apache-2.0
"""Where videos lie (lists, folders, patterns), how their cameras are aligned, and how they are decoded."""

from __future__ import annotations

import glob
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, SupportsIndex, TypeAlias

import attrs
import numpy as np
from nvidia.dali import types

from ..checks import file_path, file_paths, flag, number, number_list, one_of, shown, valid, whole_number
from ..errors import FileError, SettingError, error_that_is_also
from ..providers.files.file_scan import NameFilter, scan_folders
from ..providers.files.storage import (
    Storage,
    is_url,
    members_url,
    open_regular_file,
    parent_of,
    reason_of,
    split_pattern,
)
from ..providers.frames.camera_rigs import CameraRig
from ..unknown_arguments import explains_unknown_arguments
from ..url_secrets import repr_without_secrets
from .files.video_file import path_advice
from .frame_converter import Colors, FrameConverter
from .video_index import VideoIndex

VideoPath: TypeAlias = "str | os.PathLike[str]"
VideoPaths: TypeAlias = "VideoPath | Iterable[VideoPath]"
ListFormat: TypeAlias = Literal["timestamps", "frames"]

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
        rule = "map names of cameras to lists of videos, one per recording"
        raise SettingError(f"`cameras` must {rule}, got {shown(value)}.")
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


def _image_type(value: types.DALIImageType) -> types.DALIImageType:
    FrameConverter(value)  # complains about other types
    return value


@explains_unknown_arguments
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
        filenames: Paths or URLs of videos. A folder stands for all its videos, a pattern such as ``"train/*.mp4"``
            for all files that match, in the order of the bytes of their names. A URL may name a
            folder if ``file_filters`` does not match its last part. ZIP files are folders, here and in all that
            follows: ``"train.zip"``, ``"train.zip/monday.mp4"``, ``"s3://bucket/train.zip/*.mp4"``. Their videos
            must be stored without compression.
        labels: One per video of ``filenames``, or per recording of ``cameras``.
        file_root: Folder of label folders, as in `FileDataProvider`.
        file_filters: Patterns of the files that count as videos in folders.
        file_list: Path or URL of a list file. Paths in it are relative to the current folder; in one at a URL, to
            its folder. Numbers after the label give a range: the end is not part of it.
        file_list_format: ``"timestamps"``: ranges are in seconds, in the time of the container. ``"frames"``: they
            are numbers of frames, negative ones from the end.
        cameras: Videos by name of the camera, given as ``filenames`` are, each with one video per recording.
        reference_camera: The camera whose frames are the points in time; None for the first.
        tolerance_s: How far a frame may be from its point in time, at most, in seconds; None for half the usual
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
        colors: ``"stream"`` for the colors that each stream states, or players assume; ``"bt601"`` for BT.601
            where a stream states none; ``"dali"`` for the pixels of DALI's readers on the CPU, which is slower.
            See `FrameConverter`.
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
    cameras: dict[str, tuple[str, ...]] | None = attrs.field(
        default=None, converter=_cameras, kw_only=True, repr=repr_without_secrets
    )
    time_offsets_s: dict[str, float | tuple[float, ...]] = attrs.field(
        default=None, converter=_time_offsets_s, kw_only=True
    )
    stream: int | None = attrs.field(
        default=None, validator=attrs.validators.optional(valid(whole_number, at_least=0)), kw_only=True
    )
    upright: bool | None = attrs.field(
        default=None, validator=attrs.validators.optional(valid(flag)), kw_only=True
    )
    image_type: types.DALIImageType = attrs.field(
        default=types.DALIImageType.RGB, converter=_image_type, kw_only=True
    )
    colors: Colors = attrs.field(default="stream", validator=one_of(Colors), kw_only=True)
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
            rule = "`labels` go with `filenames` and `cameras` only"
            raise SettingError(f"{rule}; with {given[0]} they are found there.")
        CameraRig.__attrs_post_init__(self)
        Storage("", self.storage_options)  # complains about what it does not know
        for camera in self.time_offsets_s:
            self._check_camera(camera, "time_offsets_s")


def as_videos(source: Videos | VideoPaths) -> Videos:
    """Take paths alone for videos of one camera."""
    given: Any = source
    return given if isinstance(given, Videos) else Videos(given)


@attrs.frozen
class ListedVideo:
    """A video, or a part of it.

    Attributes:
        path: Path or URL of the file.
        label: Its label, or None.
        where: Where it was named, for messages: ``"line 3 of 'list.txt'"``.
        start: Where its part starts as the list says it, in seconds or frames; None for the first frame.
        end: Where it ends; None for the last frame, inclusive.
    """

    path: str = attrs.field(repr=repr_without_secrets)
    label: int | None
    where: str = attrs.field(default="", repr=repr_without_secrets)
    start: float | None = None
    end: float | None = None


def frame_range(video: ListedVideo, index: VideoIndex, videos: Videos) -> tuple[int, int]:
    """Get the range of frames, ``[start, end)``, of a listed video; at least one frame."""
    start, end = 0, index.num_frames
    is_frames = videos.file_list_format == "frames"
    is_behind = False
    if video.start is not None:
        start = _frame(video.start, index, is_frames, is_down=True)
        # A time when the last frame is not shown any more.
        is_behind = not is_frames and video.start > float(index.pts[0] * index.time_base) + index.duration_s
    if video.end is not None:
        end = min(_frame(video.end, index, is_frames, is_down=False), index.num_frames)
    if 0 <= start < end and not is_behind:
        return start, end
    rest = "" if video.end is None else f" to {video.end:g}"
    first_s, last_s = (float(index.pts[place] * index.time_base) for place in (0, -1))
    raise SettingError(
        f"A range of a video must have at least one frame, but {video.where} has {video.start:g}{rest} "
        f"{'frames' if is_frames else 's'} of {repr_without_secrets(video.path)}, which is from frame {start} to "
        f"before frame {end}. The video has {index.num_frames} frames, at {first_s:g} to {last_s:g} s."
    )


def _frame(value: float, index: VideoIndex, is_frames: bool, is_down: bool) -> int:
    if is_frames:
        return int(value) if value >= 0 else index.num_frames + int(value)
    # As DALI does it: a 32-bit number, cut off to the time base of the stream.
    pts = int(float(np.float32(value)) / float(index.time_base))
    if is_down:
        return max(int(index.pts.searchsorted(pts, side="right")) - 1, 0)
    return int(index.pts.searchsorted(pts))


def listed_videos(videos: Videos) -> list[ListedVideo]:
    """List videos that are not those of cameras."""
    if videos.file_root is not None:
        return _in_folders(Storage(videos.file_root, videos.storage_options), videos.file_filters)
    if videos.file_list is not None:
        return _in_list(videos.file_list, videos.file_list_format == "frames", videos.storage_options)
    paths = expanded(videos.filenames or (), videos)
    labels = checked_labels(videos, len(paths), "filenames")
    return [ListedVideo(path, label) for path, label in zip(paths, labels, strict=True)]


def expanded(paths: Iterable[str], videos: Videos) -> list[str]:
    """List the videos of paths of videos, folders, and patterns; each of the last two must have some."""
    accepted = NameFilter(videos.file_filters, case_sensitive=False, argument="file_filters")
    found: list[str] = []
    for path in map(members_url, paths):
        storage = Storage(path, videos.storage_options)
        matching = _matching(path, storage, videos)
        if matching is not None:
            if not matching:
                message = f"No file matches the pattern {repr_without_secrets(path)}."
                raise error_that_is_also(FileError, [FileNotFoundError], message)
            found += sorted(matching, key=os.fsencode)
        # A server of HTTP would begin to send the file, to tell that it is no folder.
        elif not (
            storage.is_remote and accepted.matches(parent_of(path)[1].partition("?")[0])
        ) and storage.is_folder(""):
            found += _in_folder(storage, accepted)
        else:
            found.append(path)
    return found


def _matching(path: str, storage: Storage, videos: Videos) -> list[str] | None:
    """The files that match a pattern; None if it is none."""
    if storage.is_remote:
        parts = split_pattern(path)
        if parts is None:
            return None
        folder = Storage(parts[0], videos.storage_options)
        return [folder.path(name) for name in folder.find(parts[1])]
    if not glob.has_magic(path) or os.path.lexists(path):
        return None
    return [each for each in glob.glob(path, recursive=True) if not os.path.isdir(each)]


def _in_folder(storage: Storage, accepted: NameFilter) -> list[str]:
    files = [name for name, is_folder in storage.list_folder() if not is_folder and not name.startswith(".")]
    names = [name for name in files if accepted.matches(name)]
    if not names:
        why = "no name in it matches `file_filters`. Folders of labels, with the videos in them, are `file_root`."
        raise SettingError(f"There is no video in the folder {storage.shown()}: {why}")
    return [storage.path(name) for name in sorted(names, key=os.fsencode)]


def checked_labels(videos: Videos, count: int, argument: str) -> tuple[int | None, ...]:
    """Return one label for each recording; None for each if there are none."""
    if videos.labels is not None and len(videos.labels) != count:
        got = f"{len(videos.labels)} label(s) for {count}"
        raise SettingError(f"There must be as many `labels` as `{argument}`, got {got}.")
    return videos.labels or (None,) * count


def _in_folders(storage: Storage, patterns: Iterable[str]) -> list[ListedVideo]:
    table = scan_folders(storage, NameFilter(patterns, case_sensitive=False, argument="file_filters"))
    return [
        ListedVideo(storage.path(table.name(position)), table.label(position), f"folder {storage.shown()}")
        for position in range(len(table))
    ]


def _in_list(path: str, is_frames: bool, storage_options: Mapping[str, Any] | None) -> list[ListedVideo]:
    folder = Storage(parent_of(path)[0] if is_url(path) else "", storage_options)
    try:
        opened = folder.open_binary(path) if folder.is_remote else open_regular_file(path)
        with io.TextIOWrapper(opened, "utf-8-sig", "surrogateescape") as file:
            lines = file.read().split("\n")
    except FileError:
        raise
    except OSError as error:
        message = (
            f"Cannot read the list of videos {repr_without_secrets(path)}: {reason_of(error)}.{path_advice(path)}"
        )
        raise error_that_is_also(FileError, [error], message) from error
    videos = [
        _on_line(line, f"line {number} of {repr_without_secrets(path)}", is_frames)
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]
    if not videos:
        raise SettingError(f"The list of videos {repr_without_secrets(path)} is empty.")
    return [attrs.evolve(video, path=folder.path(video.path)) for video in videos]


def _on_line(line: str, where: str, is_frames: bool) -> ListedVideo:
    # Names can have white space within: numbers are taken from the right.
    words = line.split()
    numbers: list[float] = []
    rest = line.rstrip()
    while len(words) > 1 and len(numbers) < 3 and (number := _number(words[-1])) is not None:
        rest = rest[: -len(words[-1])].rstrip()
        numbers.insert(0, number)
        words.pop()
    if not numbers or "\0" in line:
        raise SettingError(f"{where} must be `path label [start [end]]` with numbers, got {shown(line)}.")
    label, *bounds = numbers
    if label != int(label) or not 0 <= label <= MOST_LABEL:
        raise SettingError(f"The label on {where} must be a whole number from 0 to 2**31 - 1, got {shown(line)}.")
    if is_frames and any(bound != int(bound) for bound in bounds):
        raise SettingError(f"The range on {where} must be whole numbers of frames, got {shown(line)}.")
    if not is_frames and any(bound < 0 for bound in bounds):
        raise SettingError(f"The range on {where} must be times of at least 0 s, got {shown(line)}.")
    start, end = [*bounds, None, None][:2]
    return ListedVideo(rest.lstrip(), int(label), where, start, end)


def _number(word: str) -> float | None:
    try:
        number = float(word)
    except ValueError:
        return None
    return number if np.isfinite(number) else None
