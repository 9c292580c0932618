# SPDX-License-Identifier: Apache-2.0
"""Files of the native readers: arrays, videos, and which of them can be opened."""

from __future__ import annotations

import errno
import json
import logging
import mmap
import os
import re
import struct
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from nvidia.dali import types

from ...checks import bullets, listed, setting_error
from ...errors import FieldValueError, FrameworkError, SettingError, VideoError, file_error, reason_of
from ...limits.image_limits import array_header
from ...providers.files.storage import is_url, open_regular_file
from ...sample_data.dtypes import get_dali_type_for_numpy_type
from ...video.files.video_file import is_file_or_missing, missing_bytes, pointer_error
from ...video.video_index import index_video
from ...video.videos import Videos, listed_videos

ReaderArguments: TypeAlias = Mapping[str, Any]
"""Arguments of a reader of DALI, by name."""

_READABLE = "DALI reads little-endian arrays of bool, integers, and float16 to float64"


def type_of_array_file(path: str) -> types.DALIDataType:
    """Read the type of the array in a ``.npy`` file from its header.

    Raises:
        SettingError: The file cannot be read, has no (complete) array in it, or one that DALI cannot read.
    """
    try:
        with open_regular_file(path) as file:
            shape, dtype = array_header(file)
            num_stated = file.tell() + int(np.prod(shape, dtype=object)) * dtype.itemsize
            size = os.fstat(file.fileno()).st_size
    except (OSError, ValueError) as error:
        raise SettingError(f"The array file {path!r} cannot be read: {reason_of(error)}.") from error
    unreadable = _why_unreadable(dtype)
    if unreadable is not None:
        array = f"the array in {path!r}, of {unreadable}"
        raise SettingError(f"fn.readers.numpy cannot read {array}. {_READABLE}: convert the file.")
    if size < num_stated:
        raise SettingError(f"The array file {path!r} is incomplete: it must have {num_stated} bytes, has {size}.")
    return get_dali_type_for_numpy_type(dtype)


def type_of_argument(dtype: npt.DTypeLike | types.DALIDataType) -> types.DALIDataType:
    """Get DALI's type for one that was given.

    Raises:
        SettingError: There is none.
    """
    if isinstance(dtype, types.DALIDataType):
        return dtype
    try:
        return get_dali_type_for_numpy_type(np.dtype(dtype))
    except (TypeError, ValueError) as error:
        raise setting_error("dtype", "a type of arrays that DALI reads", dtype, f"{_READABLE}.") from error


def _why_unreadable(dtype: np.dtype[np.generic]) -> str | None:
    if dtype.hasobject:
        return f"type {dtype}, which holds Python objects"
    if dtype.names is not None:
        return f"a structured type with the fields {', '.join(map(repr, dtype.names))}"
    try:
        get_dali_type_for_numpy_type(dtype)
    except FieldValueError:
        return f"type {dtype.name}"
    if dtype.itemsize > 1 and dtype != dtype.newbyteorder("<"):
        return f"type {dtype.newbyteorder('<').name} in big-endian order"
    return None


_FILE_NAME = re.compile(rb'"file_name"\s*:\s*("(?:[^"\\]|\\.)*")')


def require_openable(operator: str, paths: Iterable[str], *, are_named: bool = False) -> None:
    """Check files before DALI reads them: it would wait for a pipe, and fail late where it cannot read a file.

    Args:
        operator: Name of the operator.
        paths: Paths of the files.
        are_named: Whether the user has named the files: then each must exist, and may be read.

    Raises:
        SettingError: One is a pipe, a socket or a device; or some that were named cannot be read.
        FileError: A folder or list of the files cannot be read. Also the builtin exception of
            the cause.
    """
    unreadable = []
    try:
        for number, path in enumerate(paths):
            if not number and are_named and not is_url(path):
                require_no_pointer_file(path)  # where one is, all are
            if not is_file_or_missing(path):
                unreadable.append(f"{path!r} is no regular file, but a pipe, a socket or a device")
            elif are_named and not is_url(path) and not os.access(path, os.R_OK):
                why = "must not be read (permissions)" if os.path.exists(path) else "does not exist"
                unreadable.append(f"{path!r} {why}")
    except OSError as error:  # from listing them
        raise file_error(f"fn.{operator} cannot read {error.filename!r}", error) from error
    if unreadable:
        advice = "Leave them out"
        if are_named:
            advice += (
                ", or give paths that are absolute, or relative to `file_root` (else to the folder of `file_list`)"
            )
        listing = listed(unreadable, 5)
        raise SettingError(f"fn.{operator} cannot read {len(unreadable)} of its files: {listing}. {advice}.")


def require_no_pointer_file(path: str) -> None:
    """Raise a `FileError` where there is only a pointer of Git LFS in place of a file."""
    pointer = pointer_error(path)
    if pointer is not None:
        raise file_error(f"Cannot read {path!r}", pointer) from pointer


def is_on_s3(path: object) -> bool:
    """Whether DALI itself reads a path from an object store, so that it cannot be checked here."""
    return str(path).startswith("s3://")


def named_files(arguments: ReaderArguments, name_on_line: Callable[[bytes], bytes] = bytes.strip) -> Iterator[str]:
    """Get the paths of ``files`` or of the lines of ``file_list``, relative to ``file_root``.

    ``name_on_line`` gets the name from a line without white space at its ends.
    """
    root = arguments.get("file_root")
    files, file_list = arguments.get("files"), arguments.get("file_list")
    if files is not None:
        for name in [files] if isinstance(files, str) else files:
            yield os.path.join(root or "", name)
    elif file_list is not None:
        folder = root or os.path.dirname(file_list)
        with open_regular_file(file_list) as lines:
            for line in lines:
                if not line.isspace():
                    yield os.path.join(folder, os.fsdecode(name_on_line(line.strip())))


def files_in_folders(root: str, is_wanted: Callable[[str], bool]) -> Iterator[str]:
    """Get the entries in the folders within a root that are neither regular files nor folders, by listing only."""
    if is_on_s3(root):
        return
    with os.scandir(root) as folders:
        for folder in folders:
            if not folder.is_dir():
                continue
            with os.scandir(folder.path) as entries:
                for entry in entries:
                    # By the entries of the folder: no file is accessed, but links are.
                    is_plain = entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)
                    if not is_plain and is_wanted(entry.name):
                        yield entry.path


def images_of_annotations(annotations_file: str, root: str) -> Iterator[str]:
    """Get the paths of the images that annotations in COCO's format name, without parsing all of it."""
    with open_regular_file(annotations_file) as file:
        if not os.fstat(file.fileno()).st_size:
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            for match in _FILE_NAME.finditer(content):
                try:
                    yield os.path.join(root, json.loads(match[1]))
                except ValueError:  # DALI says what is wrong with it
                    continue


_NUM_COMPARED = 64
_BLOCK = 512  # bytes, of tar archives
_INDEXED_BLOCKS = {"v1.2": 4, "v1.1": 3}  # version of an index of wds2idx -> words per component
_RECORD_FRAME = 16  # bytes around a record of TensorFlow: its length and two checksums


def require_index_of_archive(path: str, index_path: str) -> None:
    """Compare an index of ``wds2idx`` with the headers in its archive, up to 64 of them.

    Raises:
        SettingError: It is the index of another archive, or the archive was written again: DALI would read other
            bytes.
    """

    def places(lines: list[str]) -> Iterator[tuple[int, int, str | None]]:
        num_words = _INDEXED_BLOCKS.get(lines[0].split(" ")[0] if lines else "", 0)
        for line in lines[1:] if num_words else ():
            words = line.split(" ")
            if len(words) % num_words == 0:
                _, offset, size, *name = words[:num_words]
                yield int(offset), int(size), name[0] if name else None

    def is_there(file: Any, offset: int, size: int, name: str | None) -> bool:
        file.seek(max(offset - _BLOCK, 0))
        try:
            found = tarfile.TarInfo.frombuf(file.read(_BLOCK), "utf-8", "surrogateescape")
        except tarfile.TarError:
            return False
        is_short = name is not None and len(os.fsencode(name)) <= tarfile.LENGTH_NAME
        return found.size == size and (not is_short or found.name == name)

    _require_index(path, index_path, places, is_there, "wds2idx")


def require_index_of_records(path: str, index_path: str) -> None:
    """Compare an index of ``tfrecord2idx`` with up to 64 of its records, see `require_index_of_archive`."""

    def places(lines: list[str]) -> Iterator[tuple[int, int]]:
        for line in lines:
            offset, size = line.split()
            yield int(offset), int(size)

    def is_there(file: Any, offset: int, size: int) -> bool:
        file.seek(offset)
        return bool(file.read(8) == struct.pack("<Q", max(size - _RECORD_FRAME, 0)))

    _require_index(path, index_path, places, is_there, "tfrecord2idx")


def _require_index(
    path: str,
    index_path: str,
    places: Callable[[list[str]], Iterator[tuple[Any, ...]]],
    is_there: Callable[..., bool],
    tool: str,
) -> None:
    if is_url(path) or is_url(index_path):
        return
    with open_regular_file(index_path) as lines:
        try:
            indexed = [*places([os.fsdecode(line.strip()) for line in lines if not line.isspace()])]
        except ValueError:  # DALI says what is wrong with it
            return
    with open_regular_file(path) as file:
        for place in indexed[:: max(1, len(indexed) // _NUM_COMPARED)]:
            if not is_there(file, *place):
                problem = f"at byte {place[0]} there is nothing of {place[1]} bytes, as it says"
                advice = f"Make it anew with `{tool}` when a file was written again"
                raise SettingError(f"The index {index_path!r} is not one of {path!r}: {problem}. {advice}.")


_NUM_THREADS = 8  # it is mostly waiting for storage
_MOST_NAMED = 5
_logger = logging.getLogger(__name__)


def video_files(arguments: ReaderArguments) -> list[str]:
    """List the files of a reader of videos, each once; none for a wrong list, about which DALI raises an error."""
    names = "filenames", "file_root", "file_list"
    given: ReaderArguments = {name: arguments.get(name) or None for name in names}
    if any(is_url(str(value)) for value in given.values()):
        return []
    is_frames = arguments.get("file_list_frame_num") or arguments.get("file_list_format") == "frames"
    try:
        listed = listed_videos(Videos(**given, file_list_format="frames" if is_frames else "timestamps"))
    except FrameworkError:
        return []
    return [*dict.fromkeys(video.path for video in listed)]


def require_complete(paths: Iterable[str]) -> None:
    """Refuse videos that are truncated or may not be read: DALI silently delivers the frames that it gets.

    A file that lacks bytes at its end may still have all frames, as PyAV can find out. Without it, a warning is
    logged.

    Raises:
        VideoError: Videos are incomplete; it names them.
        FileError: A video must not be read. Also a `PermissionError`.
    """
    paths = list(paths)
    for path in paths:
        if os.path.exists(path) and not os.access(path, os.R_OK):
            error = PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            raise file_error(f"Cannot open the video {path!r}", error)
    if not paths:
        return
    for path in paths:
        require_no_pointer_file(path)
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
            continue  # DALI reports that it cannot be opened
    if errors:
        several = f"{len(errors)} of {len(paths)} videos cannot be used:\n{bullets(errors, _MOST_NAMED)}"
        raise errors[0] if len(errors) == 1 else VideoError(several)
