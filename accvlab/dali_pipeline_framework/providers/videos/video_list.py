# SPDX-License-Identifier: Apache-2.0
"""Lists of videos and ranges of frames, in the formats of DALI's video reader."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Sequence
from typing import Any, Literal, SupportsIndex, TypeAlias, get_args

import attrs
import numpy as np

from ...checks import whole_number
from ...errors import FileError, SettingError, error_that_is_also
from ..files.file_scan import scan_folders
from ..files.name_filter import NameFilter
from ..files.storage import Storage, open_regular_file
from ..media.container_elements import path_advice
from .video_index import VideoIndex

VideoPath: TypeAlias = "str | os.PathLike[str]"
ListFormat: TypeAlias = Literal["timestamps", "frames"]
ListRounding: TypeAlias = Literal["start_down_end_up", "start_up_end_down", "all_up", "all_down"]

VIDEO_FILTERS: tuple[str, ...] = (
    "*.mp4", "*.m4v", "*.mov", "*.mkv", "*.webm", "*.avi", "*.ts", "*.m2ts", "*.mpg", "*.mpeg", "*.flv", "*.ogv",
)  # fmt: skip
"""Patterns of the files that are taken from label folders if no others are given."""

_LONGEST_SHOWN = 120
_LABELS = (-(2**31), 2**31 - 1)


@attrs.frozen
class ListedVideo:
    """A video, or a part of it.

    Attributes:
        path: Path of the file.
        label: Its label, or None.
        where: Where it was named, for messages: ``"line 3 of 'list.txt'"``.
        start: Where its part starts as the list says it, in seconds or frames; None for the first frame.
        end: Where it ends; None for the last frame, inclusive.
    """

    path: str
    label: int | None
    where: str
    start: float | None = None
    end: float | None = None


@attrs.frozen
class RangeRule:
    """How numbers in a list are converted to a range of frames, see `VideoDataProvider`."""

    format: ListFormat = attrs.field(default="timestamps")
    rounding: ListRounding = attrs.field(default="start_down_end_up")
    include_end: bool = False

    def __attrs_post_init__(self) -> None:
        for name, value, known in (
            ("file_list_format", self.format, get_args(ListFormat)),
            ("file_list_rounding", self.rounding, get_args(ListRounding)),
        ):
            if value not in known:
                raise SettingError(f"`{name}` must be one of {', '.join(map(repr, known))}, got {value!r}.")

    def frames(self, video: ListedVideo, index: VideoIndex) -> tuple[int, int]:
        """Get the range of frames, ``[start, end)``, of a listed video.

        Raises:
            SettingError: The range is empty, or begins or ends before the first frame.
        """
        start, end = 0, index.num_frames
        if video.start is not None:
            start = self._frame(video.start, index, is_down=self.rounding in ("start_down_end_up", "all_down"))
        if video.end is not None:
            end = self._frame(video.end, index, is_down=self.rounding in ("start_up_end_down", "all_down"))
            end = min(end + self.include_end, index.num_frames)
        if 0 <= start < end and not self._is_behind(video.start, index):
            return start, end
        unit = "frames" if self.format == "frames" else "s"
        rest = "" if video.end is None else f" to {video.end:g}"
        first_s, last_s = (float(index.pts[place] * index.time_base) for place in (0, -1))
        raise SettingError(
            f"A range of a video must have at least one frame, but {video.where} has {video.start:g}{rest} {unit} "
            f"of {video.path!r}, which is from frame {start} to before frame {end}. The video has "
            f"{index.num_frames} frames, at {first_s:g} to {last_s:g} s."
        )

    def _is_behind(self, start: float | None, index: VideoIndex) -> bool:
        """Whether a range starts at a time when the last frame is not shown any more."""
        if start is None or self.format == "frames":
            return False
        return start > float(index.pts[0] * index.time_base) + index.duration_s

    def _frame(self, value: float, index: VideoIndex, is_down: bool) -> int:
        if self.format == "frames":
            return int(value) if value >= 0 else index.num_frames + int(value)
        # As DALI does it: a 32-bit number, cut off to the time base of the stream.
        pts = int(float(np.float32(value)) / float(index.time_base))
        if is_down:
            return max(int(index.pts.searchsorted(pts, side="right")) - 1, 0)
        return int(index.pts.searchsorted(pts))


def listed_videos(
    filenames: VideoPath | Iterable[VideoPath] | None,
    file_root: VideoPath | None,
    file_list: VideoPath | None,
    labels: SupportsIndex | Iterable[SupportsIndex] | None,
    file_filters: str | Iterable[str],
    rule: RangeRule,
) -> list[ListedVideo]:
    """List the videos in one of the three ways.

    Raises:
        SettingError: Not exactly one of the three is given, or nothing is found, or a line of the list is wrong.
        FileError: The folder or the list cannot be read.
    """
    given = [
        name
        for name, value in (("filenames", filenames), ("file_root", file_root), ("file_list", file_list))
        if value is not None
    ]
    if len(given) != 1:
        raise SettingError(
            f"Give the videos in exactly one way: `filenames`, `file_root`, or `file_list`. Got "
            f"{' and '.join(f'`{name}`' for name in given) or 'none of them'}."
        )
    if labels is not None and filenames is None:
        raise SettingError(f"`labels` go with `filenames` only; with `{given[0]}` they are found there.")
    if file_root is not None:
        return _in_folders(file_root, file_filters)
    if file_list is not None:
        return _in_list(file_list, rule)
    paths = video_paths(filenames, "filenames")
    numbers = checked_labels(labels, len(paths), "filenames")
    return [
        ListedVideo(path, label, f"`filenames[{position}]`")
        for position, (path, label) in enumerate(zip(paths, numbers, strict=True))
    ]


def video_paths(given: Any, name: str) -> list[str]:
    """Return one path or several as texts, or raise a `SettingError` where they are none."""
    if isinstance(given, (str, os.PathLike)):
        given = [given]
    try:
        paths = [os.fspath(path) for path in given]
    except TypeError as error:
        raise SettingError(f"`{name}` must be paths of videos, got {given!r}.") from error
    if not paths:
        raise SettingError(f"`{name}` must name at least one video, got an empty list.")
    if not all(isinstance(path, str) and path and "\0" not in path for path in paths):
        wrong = next(path for path in paths if not isinstance(path, str) or not path or "\0" in path)
        raise SettingError(f"`{name}` must be paths of videos as text, got {wrong!r}.")
    return paths


def checked_labels(labels: Any, num_videos: int, of: str) -> Sequence[int | None]:
    """Return one label for each video; None for each where there are none."""
    if labels is None:
        return [None] * num_videos
    try:
        numbers = [whole_number(label, "labels", at_least=_LABELS[0]) for label in np.atleast_1d(labels).tolist()]
    except (SettingError, ValueError, TypeError) as error:
        raise SettingError(f"`labels` must be whole numbers of 32 bits, one per video: {error}") from error
    if len(numbers) != num_videos:
        raise SettingError(
            f"There must be as many `labels` as `{of}`, got {len(numbers)} label(s) for {num_videos}."
        )
    if max(numbers) > _LABELS[1]:
        raise SettingError(f"`labels` must be whole numbers of 32 bits, got {max(numbers)}.")
    return numbers


def _in_folders(root: VideoPath, patterns: str | Iterable[str]) -> list[ListedVideo]:
    storage = Storage(os.fspath(root))
    if storage.is_remote:
        raise SettingError(f"`file_root` must be a local folder, got {storage.root!r}.{path_advice(storage.root)}")
    file_filter = NameFilter(patterns, case_sensitive=False, argument="file_filters")
    table = scan_folders(storage, file_filter)
    return [
        ListedVideo(storage.path(table.name(position)), table.label(position), f"folder {os.fspath(root)!r}")
        for position in range(len(table))
    ]


def _in_list(path: VideoPath, rule: RangeRule) -> list[ListedVideo]:
    name = os.fspath(path)
    try:
        with io.TextIOWrapper(open_regular_file(name), "utf-8-sig", "surrogateescape") as file:
            lines = file.read().split("\n")
    except OSError as error:
        message = f"Cannot read the list of videos {name!r}: {error.strerror or error}.{path_advice(name)}"
        raise error_that_is_also(FileError, [type(error)], message) from error
    videos = [
        _on_line(line, f"line {number} of {name!r}", rule)
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]
    if not videos:
        raise SettingError(f"The list of videos {name!r} is empty.")
    return videos


def _on_line(line: str, where: str, rule: RangeRule) -> ListedVideo:
    # Names can have white space within: numbers are taken from the right.
    words = line.split()
    numbers: list[float] = []
    rest = line.rstrip()
    while len(words) > 1 and len(numbers) < 3 and (number := _number(words[-1])) is not None:
        rest = rest[: -len(words[-1])].rstrip()
        numbers.insert(0, number)
        words.pop()
    shown = line if len(line) <= _LONGEST_SHOWN else f"{line[:_LONGEST_SHOWN]}..."
    if not numbers or "\0" in line:
        raise SettingError(f"{where} must be `path label [start [end]]` with numbers, got {shown!r}.")
    label, *bounds = numbers
    if label != int(label) or not 0 <= label <= _LABELS[1]:
        raise SettingError(f"The label on {where} must be a whole number from 0 to 2**31 - 1, got {shown!r}.")
    if rule.format == "frames" and any(bound != int(bound) for bound in bounds):
        raise SettingError(f"The range on {where} must be whole numbers of frames, got {shown!r}.")
    if rule.format == "timestamps" and any(bound < 0 for bound in bounds):
        raise SettingError(f"The range on {where} must be times of at least 0 s, got {shown!r}.")
    start, end = [*bounds, None, None][:2]
    return ListedVideo(rest.lstrip(), int(label), where, start, end)


def _number(word: str) -> float | None:
    try:
        number = float(word)
    except ValueError:
        return None
    return number if np.isfinite(number) else None
