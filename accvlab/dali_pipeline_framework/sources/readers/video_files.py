# SPDX-License-Identifier: Apache-2.0
"""The files that a native reader of videos gets, looked at before DALI does."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ...checks import bullets
from ...errors import FileError, FrameworkError, SettingError, VideoError, error_that_is_also
from ...providers.files.storage import is_url
from ...video.files.container import missing_bytes
from ...video.video_index import index_video
from ...video.video_list import listed_videos
from ...video.videos import Videos

_NUM_THREADS = 8  # it is mostly waiting for storage
_MOST_NAMED = 5
_logger = logging.getLogger(__name__)


def video_files(arguments: Mapping[str, Any]) -> list[str]:
    """List the files of a reader of videos, each once; none where DALI has to say what is wrong with the list."""
    given: dict[str, Any] = {name: arguments.get(name) or None for name in ("filenames", "file_root", "file_list")}
    if any(is_url(str(value)) for value in given.values()):
        return []
    is_frames = arguments.get("file_list_frame_num") or arguments.get("file_list_format") == "frames"
    try:
        listed = listed_videos(Videos(**given, file_list_format="frames" if is_frames else "timestamps"))
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
        several = f"{len(errors)} of {len(paths)} videos cannot be used:\n{bullets(errors, _MOST_NAMED)}"
        raise errors[0] if len(errors) == 1 else VideoError(several)
