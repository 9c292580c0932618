# SPDX-License-Identifier: Apache-2.0
"""Lists of videos and ranges of frames, in the formats of DALI's video reader."""

from __future__ import annotations

import glob
import io
import os
from collections.abc import Iterable

import attrs
import numpy as np

from ...checks import shown
from ...errors import FileError, SettingError, error_that_is_also
from ..files.file_scan import scan_folders
from ..files.name_filter import NameFilter
from ..files.storage import Storage, open_regular_file
from ..media.video_file import path_advice
from .video_index import VideoIndex
from .videos import MOST_LABEL, Videos


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
    where: str = ""
    start: float | None = None
    end: float | None = None


def frame_range(video: ListedVideo, index: VideoIndex, videos: Videos) -> tuple[int, int]:
    """Get the range of frames, ``[start, end)``, of a listed video; at least one frame."""
    start, end = 0, index.num_frames
    is_frames, rounding = videos.file_list_format == "frames", videos.file_list_rounding
    is_behind = False
    if video.start is not None:
        start = _frame(video.start, index, is_frames, rounding in ("start_down_end_up", "all_down"))
        # A time when the last frame is not shown any more.
        is_behind = not is_frames and video.start > float(index.pts[0] * index.time_base) + index.duration_s
    if video.end is not None:
        end = _frame(video.end, index, is_frames, rounding in ("start_up_end_down", "all_down"))
        end = min(end + videos.file_list_include_end, index.num_frames)
    if 0 <= start < end and not is_behind:
        return start, end
    rest = "" if video.end is None else f" to {video.end:g}"
    first_s, last_s = (float(index.pts[place] * index.time_base) for place in (0, -1))
    raise SettingError(
        f"A range of a video must have at least one frame, but {video.where} has {video.start:g}{rest} "
        f"{'frames' if is_frames else 's'} of {video.path!r}, which is from frame {start} to before frame {end}. "
        f"The video has {index.num_frames} frames, at {first_s:g} to {last_s:g} s."
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
        return _in_folders(videos.file_root, videos.file_filters)
    if videos.file_list is not None:
        return _in_list(videos.file_list, videos.file_list_format == "frames")
    paths = expanded(videos.filenames or (), videos.file_filters)
    labels = checked_labels(videos, len(paths), "filenames")
    return [ListedVideo(path, label) for path, label in zip(paths, labels, strict=True)]


def expanded(paths: Iterable[str], file_filters: Iterable[str]) -> list[str]:
    """List the videos of paths of videos, folders, and patterns; each of the last two must have some."""
    found: list[str] = []
    for path in paths:
        if os.path.isdir(path):
            found += _in_folder(path, file_filters)
        elif glob.has_magic(path) and "://" not in path and not os.path.lexists(path):
            matching = [each for each in glob.glob(path, recursive=True) if not os.path.isdir(each)]
            if not matching:
                message = f"No file matches the pattern {path!r}."
                raise error_that_is_also(FileError, [FileNotFoundError], message)
            found += sorted(matching, key=os.fsencode)
        else:
            found.append(path)
    return found


def _in_folder(folder: str, file_filters: Iterable[str]) -> list[str]:
    accepted = NameFilter(file_filters, case_sensitive=False, argument="file_filters")
    names = [name for name, is_folder in Storage(folder).list_folder() if not is_folder and accepted.matches(name)]
    if not names:
        raise SettingError(
            f"There is no video in the folder {folder!r}: no name in it matches `file_filters`. Folders of "
            f"labels, with the videos in them, are `file_root`."
        )
    return [os.path.join(folder, name) for name in sorted(names, key=os.fsencode)]


def checked_labels(videos: Videos, count: int, argument: str) -> tuple[int | None, ...]:
    """Return one label for each recording; None for each where there are none."""
    if videos.labels is not None and len(videos.labels) != count:
        raise SettingError(
            f"There must be as many `labels` as `{argument}`, got {len(videos.labels)} label(s) for {count}."
        )
    return videos.labels or (None,) * count


def _in_folders(root: str, patterns: Iterable[str]) -> list[ListedVideo]:
    storage = Storage(root)
    if storage.is_remote:
        raise SettingError(f"`file_root` must be a local folder, got {storage.root!r}.{path_advice(storage.root)}")
    file_filter = NameFilter(patterns, case_sensitive=False, argument="file_filters")
    table = scan_folders(storage, file_filter)
    return [
        ListedVideo(storage.path(table.name(position)), table.label(position), f"folder {root!r}")
        for position in range(len(table))
    ]


def _in_list(path: str, is_frames: bool) -> list[ListedVideo]:
    try:
        with io.TextIOWrapper(open_regular_file(path), "utf-8-sig", "surrogateescape") as file:
            lines = file.read().split("\n")
    except OSError as error:
        message = f"Cannot read the list of videos {path!r}: {error.strerror or error}.{path_advice(path)}"
        raise error_that_is_also(FileError, [type(error)], message) from error
    videos = [
        _on_line(line, f"line {number} of {path!r}", is_frames)
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]
    if not videos:
        raise SettingError(f"The list of videos {path!r} is empty.")
    return videos


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
