# SPDX-License-Identifier: Apache-2.0
"""Files of the native readers: which of them can be opened."""

from __future__ import annotations

import contextlib
import itertools
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from ...checks import listed
from ...errors import FrameworkError, SettingError, file_error
from ...limits.file_limits import LfsPointerError
from ...providers.files.storage import is_url, open_regular_file

ReaderArguments: TypeAlias = Mapping[str, Any]
"""Arguments of a reader of DALI, by name."""


def require_openable(operator: str, paths: Iterable[str], *, are_named: bool = False) -> None:
    """Check files before DALI reads them: it would wait for a pipe, and fail late where it cannot read a file.

    Args:
        operator: Name of the operator.
        paths: Paths of the files.
        are_named: Whether the user has named the files: then each must exist, and may be read.

    Raises:
        SettingError: One is a pipe, a socket or a device; or some that were named cannot be read.
        FileError: A folder or list of the files cannot be read.
    """
    unreadable = []
    try:
        for number, path in enumerate(paths):
            if not number and are_named and not is_url(path):
                try:
                    open_regular_file(path).close()
                except LfsPointerError as pointer:  # where one is, all are
                    raise file_error(f"Cannot read {path!r}", pointer) from pointer
                except OSError:
                    pass  # told below
            if not _is_file_or_missing(path):
                unreadable.append(f"{path!r} is no regular file, but a pipe, a socket or a device")
            elif are_named and not is_url(path) and not os.access(path, os.R_OK):
                why = "must not be read (permissions)" if os.path.exists(path) else "does not exist"
                unreadable.append(f"{path!r} {why}")
    except FrameworkError:
        raise
    except LfsPointerError as error:
        raise file_error(f"fn.{operator} cannot read `file_list`", error) from error
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


def _is_file_or_missing(path: str) -> bool:
    """Whether to open a path cannot block: pipes wait for a writer, and devices may have no end."""
    try:
        mode = os.stat(path).st_mode
    except OSError:  # to open it raises the reason
        return True
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def is_on_s3(path: object) -> bool:
    """Whether DALI itself reads a path from an object store, so that it cannot be checked here."""
    return str(path).startswith("s3://")


def named_files(arguments: ReaderArguments) -> Iterator[str]:
    """Get the paths of ``files``, or of the lines of ``file_list`` without labels, relative to ``file_root``."""
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
                    yield os.path.join(folder, os.fsdecode(line.rsplit(None, 1)[0].rstrip()))


_MOST_SEARCHED = 100_000


def pointer_among(paths: Iterable[str]) -> str:
    """Explain that a file is a pointer of Git LFS, the first of 100,000 that is; else empty."""
    with contextlib.suppress(OSError):  # from listing them
        for path in itertools.islice(paths, _MOST_SEARCHED):
            try:
                if not is_url(path):
                    open_regular_file(path).close()
            except LfsPointerError as pointer:
                return f"Of the file {path!r}: {pointer}."
            except OSError:  # DALI has reported it
                continue
    return ""


def files_in_folders(root: str, is_wanted: Callable[[str], bool], *, are_plain: bool = False) -> Iterator[str]:
    """Get the entries in the folders within a root that are neither regular files nor folders, by listing only.

    With ``are_plain``, get the regular files instead.
    """
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
                    if is_plain == are_plain and is_wanted(entry.name):
                        yield entry.path
