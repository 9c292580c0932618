# SPDX-License-Identifier: Apache-2.0
"""A cache of video indices in files, for later processes and worker processes."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import struct
import zlib
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import FileError, SettingError, VideoError, error_that_is_also
from ..providers.files.file_lock import making
from ..providers.files.storage import is_url, replace_file
from .files.video_file import FileState, is_file_or_missing
from .remote_video import RemoteVideo
from .video_index import VideoIndex, make_index

_MAGIC = b"video index 2\n\0\0"
_PREFIX = struct.Struct("<16sII")  # magic, length of the header, checksum of all that follows

_VALUES = ("time_base", "width", "height", "codec_name", "average_rate", "num_reordered", "is_seekable", "doubts")

_logger = logging.getLogger(__name__)


class VideoIndexCache:
    """A folder with one small file per video stream.

    A file counts if the video still has the path, size and time of change that it was made for; if it is remote,
    the URL, the size, and what its store says of its version. Otherwise, and if it is damaged, it is made anew.
    Several processes may use a folder at the same time: files are replaced as a whole, and one makes the index of
    a video while the others wait for it.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Name the folder; it is made if it is not there."""
        if is_url(os.fspath(folder)):
            raise SettingError(f"`index_cache` must be a local folder, got {os.fspath(folder)!r}.")
        self._folder = Path(folder).expanduser().absolute()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SettingError(f"`index_cache` must be a folder, {str(folder)!r} is not: {error}.") from error

    def index(self, path: str | os.PathLike[str] | RemoteVideo, stream: int = 0) -> VideoIndex:
        """Get the index of a video, from its file if that is up to date; its arrays are read-only.

        Raises:
            SettingError: PyAV is missing, there is no such stream, or the folder cannot be written to.
            FileError: The video cannot be opened.
            VideoError: It is not a video, or incomplete.
        """
        if not isinstance(path, RemoteVideo):
            place, shown, state = os.path.abspath(path), os.path.abspath(path), FileState.of_video(path)
        else:
            place, shown, state = path.url, path.name, path.state()
            path = path.as_indexed(state)
        key = [_as_text(shown), stream, *state]
        place_and_stream = json.dumps([_as_text(place), stream]).encode()
        file = self._folder / f"{hashlib.blake2b(place_and_stream, digest_size=16).hexdigest()}.index"
        index = _known(file, key)
        if index is not None:
            return index
        with making(file):
            index = _known(file, key, shown)
            if index is None:
                _write(file, make_index(path, stream), key)
                index = _load_in_use(file)[0]
        return index


def _known(file: Path, key: list[Any], video: str = "") -> VideoIndex | None:
    """Read an index; None where there is none that holds for the present state of the video.

    With the name of the video, a damaged one is logged.
    """
    try:
        index, known = _load(file)
    except FileNotFoundError:
        return None
    except (VideoError, OSError) as error:
        if video:
            _logger.warning("The index of %s is made anew: %s", video, error)
        return None
    return index if known == key else None


def load_index(file: str, checksum: int) -> VideoIndex:
    """Read an index again from the file that it was read from, in another process."""
    index, key = _load_in_use(Path(file))
    if index.cache_checksum != checksum:
        raise VideoError(
            f"The index of the video {_path_of(key)!r} in {file!r} was made anew after this process was given it, "
            f"since the video was changed. Make the provider that uses it anew; and keep videos unchanged while "
            f"they are in use."
        )
    return index


def _load_in_use(file: Path) -> tuple[VideoIndex, list[Any]]:
    try:
        return _load(file)
    except OSError as error:
        message = (
            f"The index of a video in {str(file)!r} cannot be read: {error.strerror or error}. Keep the folder "
            f"`index_cache` while it is in use."
        )
        raise error_that_is_also(FileError, [type(error)], message) from error


def _as_text(path: str) -> str:
    # As bytes: JSON holds no names that are not UTF-8.
    return os.fsencode(path).decode("latin-1")


def _path_of(key: list[Any]) -> str:
    return os.fsdecode(str(key[0]).encode("latin-1"))


def _write(file: Path, index: VideoIndex, key: list[Any]) -> None:
    counts = {"num_frames": index.num_frames, "num_keys": len(index.key_pts)}
    values = {name: getattr(index, name) for name in _VALUES}
    header = json.dumps({"key": key, **counts, **values}, default=str).encode()  # fractions as texts
    header += b" " * (-len(header) % 8)
    content = header + np.concatenate([index.pts, index.key_pts, index.seek_points]).astype("<i8").tobytes()
    try:
        replace_file(str(file), [_PREFIX.pack(_MAGIC, len(header), zlib.crc32(content)), content])
    except OSError as error:
        message = (
            f"The index of a video cannot be written to {str(file)!r}: {error.strerror or error}. Make room, or "
            f"name another folder: `index_cache`."
        )
        raise error_that_is_also(SettingError, [type(error)], message) from error


def _load(file: Path) -> tuple[VideoIndex, list[Any]]:
    if not is_file_or_missing(file):
        raise OSError("no regular file")
    # Not mapped: Python keeps a file open for each mapping, and there may be thousands.
    content = file.read_bytes()
    try:
        magic, header_length, checksum = _PREFIX.unpack_from(content)
        if magic != _MAGIC or zlib.crc32(memoryview(content)[_PREFIX.size :]) != checksum:
            raise ValueError("wrong checksum")
        start = _PREFIX.size + header_length
        header = json.loads(content[_PREFIX.size : start])
        times = np.frombuffer(content, "<i8", offset=start)
        num_frames, num_keys = header["num_frames"], header["num_keys"]
        pts, key_pts, seek_points = np.split(times, [num_frames, num_frames + num_keys])
        values = {name: header[name] for name in _VALUES}
        for name in ("time_base", "average_rate"):
            values[name] = None if values[name] is None else Fraction(values[name])
        values["doubts"] = tuple(values["doubts"])
        state = FileState(*header["key"][2:])
        index = VideoIndex(
            pts, key_pts, seek_points, **values, cache_file=str(file), cache_checksum=checksum, file_state=state
        )
    except (ValueError, KeyError, TypeError, struct.error) as error:
        raise VideoError(f"The index of a video in {str(file)!r} is damaged ({error}). Delete it.") from error
    return index, header["key"]
