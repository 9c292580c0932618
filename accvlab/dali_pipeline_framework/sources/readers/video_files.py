# SPDX-License-Identifier: Apache-2.0
"""The files that a native reader of videos gets, looked at before DALI does."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ...errors import FileError, FrameworkError, SettingError, VideoError, error_that_is_also
from ...providers.media.video_file_end import missing_bytes
from ...providers.videos.video_index import index_video
from ...providers.videos.video_list import VIDEO_FILTERS, RangeRule, listed_videos

_NUM_THREADS = 8  # it is mostly waiting for storage
_MOST_NAMED = 5
_logger = logging.getLogger(__name__)


def video_files(arguments: Mapping[str, Any]) -> list[str]:
    """List the files of a reader of videos, each once; none where DALI has to say what is wrong with the list."""
    given = {name: arguments.get(name) or None for name in ("filenames", "file_root", "file_list")}
    is_frames = arguments.get("file_list_frame_num") or arguments.get("file_list_format") == "frames"
    rule = RangeRule("frames" if is_frames else "timestamps")
    try:
        listed = listed_videos(**given, labels=None, file_filters=VIDEO_FILTERS, rule=rule)
    except FrameworkError:
        return []
    return [*dict.fromkeys(video.path for video in listed)]


def require_complete(paths: Iterable[str]) -> None:
    """Refuse videos that break off or may not be read: DALI delivers the frames that it gets, without a word.

    A file that lacks bytes at its end may still have all frames; PyAV tells. Where it is missing, there is a
    warning.

    Raises:
        VideoError: Videos are incomplete; it names them.
        FileError: A video must not be read. Also a `PermissionError`.
    """
    paths = list(paths)
    for path in paths:
        if os.path.exists(path) and not os.access(path, os.R_OK):
            message = f"Cannot open the video {path!r}: {os.strerror(errno.EACCES)}."
            raise error_that_is_also(FileError, [PermissionError], message)
    if not paths:
        return
    with ThreadPoolExecutor(min(_NUM_THREADS, len(paths))) as threads:
        counts = [*threads.map(missing_bytes, paths)]
    lacking = {path: count for path, count in zip(paths, counts, strict=True) if count}
    errors: list[VideoError] = []
    for path, count in lacking.items():
        try:
            index_video(path)
        except VideoError as error:
            errors.append(error)
        except SettingError:
            _logger.warning(
                "The video %r lacks %d bytes at its end. DALI delivers the frames that are there.", path, count
            )
        except FrameworkError:
            continue  # DALI tells that it cannot be opened
    if errors:
        raise errors[0] if len(errors) == 1 else _all_of(errors, len(paths))


def _all_of(errors: Sequence[VideoError], num_videos: int) -> VideoError:
    lines = [f"\n  - {error}" for error in errors[:_MOST_NAMED]]
    more = f"\n  - and {len(errors) - _MOST_NAMED} more" if len(errors) > _MOST_NAMED else ""
    return VideoError(f"{len(errors)} of {num_videos} videos cannot be used:{''.join(lines)}{more}")
