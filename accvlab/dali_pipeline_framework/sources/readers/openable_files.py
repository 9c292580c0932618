# SPDX-License-Identifier: Apache-2.0
"""Whether native readers can open their files without waiting.

DALI blocks forever on a pipe that nobody writes to, in C++, where nothing interrupts it. So the files are looked
at before; what is missing or unreadable is left to DALI, which says so.
"""

from __future__ import annotations

import json
import mmap
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ...errors import FileError, SettingError, error_that_is_also
from ...providers.files.storage import open_regular_file
from ...video.files.video_file import is_file_or_missing

_FILE_NAME = re.compile(rb'"file_name"\s*:\s*("(?:[^"\\]|\\.)*")')


def require_openable(operator: str, paths: Iterable[str]) -> None:
    """Look at files.

    Raises:
        SettingError: One is a pipe, a socket or a device.
        FileError: A folder or list that tells which files there are cannot be read. Also the builtin exception of
            the cause.
    """
    try:
        for path in paths:
            if not is_file_or_missing(path):
                raise SettingError(
                    f"fn.{operator} cannot read {path!r}: it is no regular file, but a pipe, a socket or a device."
                )
    except OSError as error:  # from listing them
        message = f"fn.{operator} cannot read {error.filename!r}: {error.strerror}."
        raise error_that_is_also(FileError, [type(error)], message) from error


def is_on_s3(path: Any) -> bool:
    """Whether DALI itself reads a path from an object store, so that nothing can be said about it here."""
    return str(path).startswith("s3://")


def named_files(
    arguments: Mapping[str, Any], name_on_line: Callable[[bytes], bytes] = bytes.strip
) -> Iterator[str]:
    """Get the paths of ``files`` or of the lines of ``file_list``, relative to ``file_root``.

    ``name_on_line`` is what of a line, without white space at its ends, is the name.
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
    """Get what is no regular file, nor a folder, in the folders within a root; the folders are listed only."""
    if is_on_s3(root):
        return
    with os.scandir(root) as folders:
        for folder in folders:
            if not folder.is_dir():
                continue
            with os.scandir(folder.path) as entries:
                for entry in entries:
                    # What the folder itself tells: no file is looked at. Links are.
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
                except ValueError:  # DALI tells what is wrong with it
                    continue
