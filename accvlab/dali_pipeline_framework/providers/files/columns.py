# SPDX-License-Identifier: Apache-2.0
"""Named arrays in a folder that several processes map, and a cache of such folders."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import io
import json
import logging
import math
import mmap
import os
import re
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import attrs
import numpy as np
import numpy.typing as npt

from ...errors import FileError, SettingError, error_that_is_also, file_error
from ...limits.file_limits import opened_file, parse_json, read_table
from .storage import is_url, replace_file

_POLL_S = 0.05
_LOGGED_AFTER_S = 2.0
_MOST_S = 3600.0  # a process that hangs with the lock must not stop the others


_held: dict[str, tuple[int, int]] = {}  # lock file -> thread that holds it, descriptor


@contextlib.contextmanager
def making(path: str | os.PathLike[str]) -> Iterator[bool]:
    """Hold the lock of a file that is to be made; wait for another process or thread that makes it.

    The kernel releases the lock when its process ends in any way. Where the folder cannot be written to, or its
    file system has no locks, and after an hour, the file is made without the lock.

    Args:
        path: The file, or folder. Check again whether it exists once the lock is held.

    Yields:
        Whether the lock is held.
    """
    folder, name = os.path.split(os.path.abspath(path))
    lock = os.path.join(folder, f".{name}.lock")
    thread = threading.get_ident()
    if _held.get(lock, (0, 0))[0] == thread:  # waiting for oneself would not end
        yield True
        return
    descriptor = _acquired(lock, path)
    if descriptor is None:
        yield False
        return
    _held[lock] = thread, descriptor
    try:
        yield True
    finally:
        if _held.get(lock) == (thread, descriptor):  # not in a child that was forked in between
            del _held[lock]
            with contextlib.suppress(OSError):
                os.unlink(lock)  # while it is held: waiting processes notice that the file was replaced
            # Explicitly: children that were started by other means than `os.fork` have the descriptor, too.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


def _acquired(lock: str, path: str | os.PathLike[str]) -> int | None:
    """Acquire a lock and return its descriptor; None where that is not possible."""
    begin_s, is_logged = time.monotonic(), False
    while (waited_s := time.monotonic() - begin_s) < _MOST_S:
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError:
            return None  # to write the file will fail as well, with a clearer error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), os.stat(lock)):  # else it is that of another process now
                return descriptor
        except FileNotFoundError:
            pass  # it was removed before it was locked
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES, errno.EINTR):
                os.close(descriptor)
                return None
            if waited_s > _LOGGED_AFTER_S and not is_logged:
                is_logged = True
                _logger.info("Waiting for another process, which makes %s.", os.fspath(path))
            time.sleep(_POLL_S)
        os.close(descriptor)
    _logger.warning("%s is made although another process has been making it for an hour.", os.fspath(path))
    return None


def _forget_in_child() -> None:
    """Close the copies of a forked child, which would keep the locks when the parent is killed."""
    for _, descriptor in _held.values():
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_forget_in_child)


_T = TypeVar("_T")

# Of the format of the files, and of the meaning of the columns of each kind.
_VERSION = 1
_HEADER = "header.json"
_WRITTEN = re.compile(r".+\.[0-9a-f]{8}\.npy|\..+\.part")

_Column: TypeAlias = tuple[str, Sequence[int], int, str]  # type, shape, offset of the data in the file, checksum

_logger = logging.getLogger(__name__)


@attrs.frozen(eq=False)
class Columns:
    """Named arrays, with notes, that are stored in a folder.

    Each array is a ``.npy`` file with the checksum of its content in its name. The header has the names, and is
    replaced last: a folder whose writer was killed is invalid, or as before, and a process that opens the folder
    during a change gets all of the old columns or all of the new ones.

    Attributes:
        kind: Name of their kind: ``"index of a video"``. Columns of another kind are refused.
        arrays: The columns by name; those of a folder are read-only.
        notes: Further values for JSON.
        folder: The folder from which they were opened, or None.
        checksum: Checksum of the header, which has those of the arrays; empty where they were not opened.

    Example:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> Columns("list of times", {"time": np.array([1, 5])}, {"unit": "ms"}).save(folder)
        >>> found = Columns.open(folder, "list of times")
        >>> found.arrays["time"].tolist(), found.notes
        ([1, 5], {'unit': 'ms'})
    """

    kind: str
    arrays: Mapping[str, npt.NDArray[Any]]
    notes: Mapping[str, Any] = attrs.field(factory=dict)
    folder: str | None = None
    checksum: str = ""

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the columns to a folder, in place of those in it.

        Raises:
            FileError: It cannot be written. Also the builtin exception of the cause.
            SettingError: The notes cannot be written as JSON.
        """
        path = os.path.abspath(folder)
        columns: dict[str, _Column] = {}
        try:
            os.makedirs(path, exist_ok=True)
            with making(path) as is_alone:
                for name, array in self.arrays.items():
                    column = np.ascontiguousarray(array)
                    start = io.BytesIO()
                    np.lib.format.write_array_header_1_0(start, np.lib.format.header_data_from_array_1_0(column))
                    content = column.reshape(-1).view(np.uint8).data
                    checksum = _checksum(content)
                    columns[name] = column.dtype.str, column.shape, start.tell(), checksum
                    replace_file(f"{path}/{name}.{checksum}.npy", [start.getvalue(), content])
                replace_file(f"{path}/{_HEADER}", [_header_text(self.kind, columns, self.notes)])
                if is_alone:
                    _remove_others(path, {f"{name}.{column[-1]}.npy" for name, column in columns.items()})
        except OSError as error:
            raise file_error(f"The {self.kind} cannot be written to {path!r}", error) from error

    @classmethod
    def open(
        cls, folder: str | os.PathLike[str], kind: str, *, is_mapped: bool = True, is_verified: bool = True
    ) -> Columns:
        """Open the columns that `save` has written.

        Args:
            folder: The folder.
            kind: The kind that they must have.
            is_mapped: Whether arrays are mapped. Each keeps a file open; others are read.
            is_verified: Whether all content is read once, to find damage. The sizes of files, without which
                mapped arrays could end the process, are checked in any case.

        Raises:
            FileError: There are no such columns, or not of this version, or they are damaged. Also the builtin
                exception of the cause.
        """
        path = os.path.abspath(folder)
        try:
            text = read_table(f"{path}/{_HEADER}")
            while True:
                header, checksum = _parsed(text, kind)
                try:
                    arrays = {
                        name: _column(f"{path}/{name}.{column[-1]}.npy", column, is_mapped, is_verified)
                        for name, column in header["columns"].items()
                    }
                    return cls(kind, arrays, header["notes"], path, checksum)
                except FileNotFoundError:
                    before, text = text, read_table(f"{path}/{_HEADER}")
                    if text == before:  # else they were replaced in between
                        raise
        except (OSError, ValueError, KeyError, TypeError) as error:
            what = f"{path!r} is no {kind} that can be used; make it anew, and keep it while it is in use"
            raise file_error(what, error) from error

    def require(self, checksum: str, what: str) -> None:
        """Check that another process has opened the same columns; ``what`` names them in messages.

        Raises:
            FileError: They were replaced.
        """
        if self.checksum != checksum:
            raise FileError(
                f"The {what} in {self.folder!r} was made anew after this process was given it. Make the provider "
                f"that uses it anew, and keep data and indices unchanged while they are in use."
            )


def load_or_make(
    cache: str | os.PathLike[str],
    key: object,
    load: Callable[[str], _T],
    make: Callable[[], Columns],
    *,
    is_current: Callable[[_T], bool] = lambda known: True,
    setting: str = "`index_cache`",
) -> _T:
    """Load columns from a cache. Where they are missing, damaged or outdated, one of several processes makes them.

    Args:
        cache: Folder of the cache, which is made if it does not exist.
        key: Their sources and settings, as values for JSON.
        load: Loads them from their own folder in the cache.
        make: Makes them.
        is_current: Whether loaded columns are up to date.
        setting: Name of the setting of the folder in messages.

    Raises:
        SettingError: The cache is no local folder, or cannot be written. Also the builtin exception of the cause.
    """
    if is_url(os.fspath(cache)):
        raise SettingError(f"{setting} must be a local folder, got {os.fspath(cache)!r}.")
    parent = os.path.abspath(os.path.expanduser(cache))
    text = json.dumps([_VERSION, key], sort_keys=True, default=str)
    folder = f"{parent}/{hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}"

    def known(is_logged: bool = False) -> _T | None:
        try:
            loaded = load(folder)
        except FileError as error:
            if is_logged and not isinstance(error, FileNotFoundError):
                _logger.warning("%s is made anew: %s", folder, error)
            return None
        return loaded if is_current(loaded) else None

    found = known()
    if found is not None:
        return found
    try:
        os.makedirs(parent, exist_ok=True)
    except OSError as error:
        raise file_error(f"{setting} must be a folder, {parent!r} is not", error, SettingError) from error
    with making(folder):
        found = known(is_logged=True)
        if found is not None:
            return found
        start_s = time.monotonic()
        columns = make()
        try:
            columns.save(folder)
        except FileError as error:
            advice = f"{error} Make room, or name another folder: {setting}."
            raise error_that_is_also(SettingError, [type(error)], advice) from error
        _logger.info("Made the %s %s in %.1f s.", columns.kind, folder, time.monotonic() - start_s)
        return load(folder)


def _header_text(kind: str, columns: Mapping[str, _Column], notes: Mapping[str, Any]) -> bytes:
    try:
        text = json.dumps({"version": _VERSION, "kind": kind, "notes": notes, "columns": columns})
    except (TypeError, ValueError) as error:
        raise SettingError(f"The notes of columns must be values that JSON can hold: {error}.") from error
    content = f'"header": {text}}}'.encode()
    return f'{{"checksum": "{_checksum(content)}",\n'.encode() + content


def _checksum(content: bytes | memoryview) -> str:
    return f"{zlib.crc32(content):08x}"


def _parsed(text: str, kind: str) -> tuple[dict[str, Any], str]:
    """Parse the header of a file; returns also its checksum, which covers those of the columns."""
    parsed = parse_json(text)
    header, checksum = parsed["header"], parsed["checksum"]
    if _checksum(text.partition("\n")[2].encode()) != checksum:
        raise ValueError("its header was changed")
    if header["version"] != _VERSION:
        raise ValueError(f"it is of version {header['version']}, must be of version {_VERSION}")
    if header["kind"] != kind:
        raise ValueError(f"it is of kind {header['kind']!r}")
    return header, checksum


def _column(file: str, column: _Column, is_mapped: bool, is_verified: bool) -> npt.NDArray[Any]:
    dtype, shape, offset, checksum = np.dtype(column[0]), column[1], column[2], column[3]
    if dtype.hasobject:
        raise ValueError(f"{os.path.basename(file)} holds Python objects")
    count = math.prod(shape)
    size = offset + count * dtype.itemsize
    descriptor, status = opened_file(file, is_limited=not is_mapped)
    with open(descriptor, "rb") as opened:
        if status.st_size != size:
            raise ValueError(f"{os.path.basename(file)} must have {size} bytes, has {status.st_size}")
        content = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ) if is_mapped else opened.read()
    if is_verified and _checksum(memoryview(content)[offset:]) != checksum:
        raise ValueError(f"the content of {os.path.basename(file)} was changed")
    return np.frombuffer(content, dtype, count, offset).reshape(shape)


def _remove_others(path: str, kept: set[str]) -> None:
    """Remove old columns, and partial files of killed writers."""
    for name in os.listdir(path):
        if name not in kept and _WRITTEN.fullmatch(name):
            with contextlib.suppress(OSError):
                os.unlink(f"{path}/{name}")
