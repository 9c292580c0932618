# SPDX-License-Identifier: Apache-2.0
"""Lists of videos and ranges of frames, in the formats of DALI's video reader."""

from __future__ import annotations

import glob
import io
import os
from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import numpy as np

from ..checks import shown
from ..errors import FileError, SettingError, error_that_is_also
from ..providers.files.file_scan import NameFilter, scan_folders
from ..providers.files.storage import Storage, is_url, open_regular_file, parent_of, reason_of, split_pattern
from ..url_secrets import repr_without_secrets
from .files.video_file import path_advice
from .video_index import VideoIndex
from .videos import MOST_LABEL, Videos


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
        f"{'frames' if is_frames else 's'} of {video.path!r}, which is from frame {start} to "
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
    for path in paths:
        storage = Storage(path, videos.storage_options)
        matching = _matching(path, storage, videos)
        if matching is not None:
            if not matching:
                message = f"No file matches the pattern {path!r}."
                raise error_that_is_also(FileError, [FileNotFoundError], message)
            found += sorted(matching, key=os.fsencode)
        # A server of HTTP would begin to send the file, to tell that it is no folder.
        elif not (storage.is_remote and accepted.matches(_last_part(path))) and storage.is_folder(""):
            found += _in_folder(storage, accepted)
        else:
            found.append(path)
    return found


def _matching(path: str, storage: Storage, videos: Videos) -> list[str] | None:
    """The files that match a pattern; None where it is none."""
    if storage.is_remote:
        parts = split_pattern(path)
        if parts is None:
            return None
        folder = Storage(parts[0], videos.storage_options)
        return [folder.path(name) for name in folder.find(parts[1])]
    if not glob.has_magic(path) or os.path.lexists(path):
        return None
    return [each for each in glob.glob(path, recursive=True) if not os.path.isdir(each)]


def _last_part(url: str) -> str:
    return parent_of(url)[1].partition("?")[0]


def _in_folder(storage: Storage, accepted: NameFilter) -> list[str]:
    names = [name for name, is_folder in storage.list_folder() if not is_folder and accepted.matches(name)]
    if not names:
        raise SettingError(
            f"There is no video in the folder {storage.root!r}: no name in it matches "
            f"`file_filters`. Folders of labels, with the videos in them, are `file_root`."
        )
    return [storage.path(name) for name in sorted(names, key=os.fsencode)]


def checked_labels(videos: Videos, count: int, argument: str) -> tuple[int | None, ...]:
    """Return one label for each recording; None for each where there are none."""
    if videos.labels is not None and len(videos.labels) != count:
        raise SettingError(
            f"There must be as many `labels` as `{argument}`, got {len(videos.labels)} label(s) for {count}."
        )
    return videos.labels or (None,) * count


def _in_folders(storage: Storage, patterns: Iterable[str]) -> list[ListedVideo]:
    table = scan_folders(storage, NameFilter(patterns, case_sensitive=False, argument="file_filters"))
    return [
        ListedVideo(storage.path(table.name(position)), table.label(position), f"folder {storage.root!r}")
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
        message = f"Cannot read the list of videos {path!r}: {reason_of(error)}.{path_advice(path)}"
        raise error_that_is_also(FileError, [type(error)], message) from error
    videos = [
        _on_line(line, f"line {number} of {path!r}", is_frames)
        for number, line in enumerate(lines, start=1)
        if line.strip()
    ]
    if not videos:
        raise SettingError(f"The list of videos {path!r} is empty.")
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
