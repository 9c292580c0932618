# SPDX-License-Identifier: Apache-2.0
"""Named arrays in a folder that several processes map, and a cache of such folders."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import attrs
import numpy as np
import numpy.typing as npt
from filelock import FileLock, Timeout

from ...errors import FileError, SettingError, error_that_is_also, file_error, reason_of
from ...limits.file_limits import parse_json, read_table
from .storage import is_url, open_regular_file, replace_file

_T = TypeVar("_T")

# Of the format of the files, and of the meaning of the columns of each kind.
_VERSION = 2
_HEADER = "header.json"
_WRITTEN = re.compile(r".+\.[0-9a-f]{8}\.npy|\..+\.part")
_MOST_S = 3600.0  # a process that hangs with the lock must not stop the others

_logger = logging.getLogger(__name__)


@attrs.frozen(eq=False)
class Columns:
    """Named arrays, with notes, that are stored in a folder.

    Each array is a ``.npy`` file with the checksum of its content in its name. One more file, the header, lists
    them and is replaced last: a process that opens the folder during a change gets all of the old columns or all
    of the new ones. If the writer is killed, the folder keeps the old columns; a new folder without a header is
    invalid.

    Attributes:
        kind: Name of the kind of columns, e.g. ``"index of a video"``. Columns of another kind are refused.
        arrays: The columns by name; read-only if they were opened from a folder.
        notes: Further values, which are stored as JSON.
        folder: The folder from which they were opened, or None.
        checksum: Checksum of the header, which has the checksums of the arrays; empty if the columns are not from
            a folder.

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
            FileError: It cannot be written.
            SettingError: The notes cannot be written as JSON, or a column is an array of objects.
        """
        with locked(os.path.abspath(folder)) as is_alone:
            self._write(os.path.abspath(folder), is_alone)

    def _write(self, path: str, is_alone: bool) -> None:
        if objects := [name for name, array in self.arrays.items() if array.dtype.hasobject]:
            raise SettingError(f"Columns must be arrays of numbers or bytes to be saved; of objects: {objects}.")
        files = {name: f"{name}.{_checksum(array)}.npy" for name, array in self.arrays.items()}
        header = {"version": _VERSION, "kind": self.kind, "notes": self.notes, "columns": files}
        try:
            text = json.dumps(header)
        except (TypeError, ValueError) as error:
            raise SettingError(f"The notes of columns must be values that JSON can hold: {error}.") from error
        try:
            os.makedirs(path, exist_ok=True)
            for name, array in self.arrays.items():
                part = f"{path}/.{name}.{os.getpid()}.part"
                with open(part, "wb") as file:
                    np.save(file, array, allow_pickle=False)
                os.replace(part, f"{path}/{files[name]}")
            replace_file(f"{path}/{_HEADER}", [text.encode()])
            for name in {*os.listdir(path)} - {*files.values()} if is_alone else ():
                if _WRITTEN.fullmatch(name):  # old columns, and partial files of killed writers
                    os.unlink(f"{path}/{name}")
        except OSError as error:
            raise file_error(f"The {self.kind} cannot be written to {path!r}", error) from error

    @classmethod
    def open(cls, folder: str | os.PathLike[str], kind: str, *, is_mapped: bool = True) -> Columns:
        """Open the columns that `save` has written.

        Args:
            folder: The folder.
            kind: The kind that they must have.
            is_mapped: Whether arrays are memory-mapped; each keeps a file open then. If not, arrays are read, and
                compared with their checksums.

        Raises:
            FileError: The folder has no columns of this kind, their format has another version, or they are
                damaged.
        """
        path = os.path.abspath(folder)
        try:
            text = read_table(f"{path}/{_HEADER}")
            while True:
                header = parse_json(text)
                if (header["version"], header["kind"]) != (_VERSION, kind):
                    raise ValueError(f"it is of kind {header['kind']!r} and version {header['version']}")
                try:
                    arrays = {
                        name: _loaded(f"{path}/{file}", is_mapped) for name, file in header["columns"].items()
                    }
                    return cls(kind, arrays, header["notes"], path, f"{zlib.crc32(text.encode()):08x}")
                except FileNotFoundError:
                    before, text = text, read_table(f"{path}/{_HEADER}")
                    if text == before:  # else they were replaced in between
                        raise
        except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
            what = f"{path!r} is no {kind} that can be used; make it anew, and keep it while it is in use"
            raise file_error(what, error) from error

    def require(self, checksum: str, what: str) -> None:
        """Check that the checksum of these columns is ``checksum``, so that two processes use the same ones.

        ``what`` names the columns in messages.

        Raises:
            FileError: They were replaced.
        """
        if self.checksum != checksum:
            raise FileError(
                f"The {what} in {self.folder!r} was made anew after this process was given it. Make the provider "
                f"that uses it anew, and keep data and indices unchanged while they are in use."
            )


def _checksum(array: npt.NDArray[Any]) -> str:
    content = np.ascontiguousarray(array)
    start = f"{content.dtype.str} {content.shape}".encode()
    return f"{zlib.crc32(content.reshape(-1).view(np.uint8).data, zlib.crc32(start)):08x}"


def _loaded(path: str, is_mapped: bool) -> npt.NDArray[Any]:
    try:
        array: npt.NDArray[Any] = np.load(path, "r" if is_mapped else None, allow_pickle=False).view(np.ndarray)
    except OSError:
        raise
    except Exception as error:  # the header of NumPy's files is parsed as Python
        open_regular_file(path).close()  # raises if it is a pointer of Git LFS
        raise ValueError(f"{os.path.basename(path)}: {reason_of(error)}") from error
    if not is_mapped and _checksum(array) != path.split(".")[-2]:
        raise ValueError(f"the content of {os.path.basename(path)} was changed")
    array.flags.writeable = False
    return array


def load_or_make(
    cache: str | os.PathLike[str],
    key: object,
    load: Callable[[str], _T],
    make: Callable[[], Columns],
    *,
    is_current: Callable[[_T], bool] = lambda known: True,
    setting: str = "`index_cache`",
) -> _T:
    """Load columns from a cache. If they are missing, damaged or outdated, make them; other processes wait.

    Args:
        cache: Folder of the cache, which is made if it does not exist.
        key: What the columns depend on: their sources and settings, as values for JSON.
        load: Function that loads the columns from their own folder in the cache.
        make: Function that makes the columns.
        is_current: Function that says whether loaded columns are up to date.
        setting: Name of the argument that gives the folder, for messages.

    Raises:
        SettingError: The cache is not a local folder, or cannot be written. The error is also an instance of the
            builtin class of its cause, e.g. `PermissionError`.
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
    with locked(folder) as is_alone:
        found = known(is_logged=True)
        if found is not None:
            return found
        start_s = time.monotonic()
        columns = make()
        try:
            columns._write(folder, is_alone)
        except FileError as error:
            advice = f"{error} Make room, or name another folder: {setting}."
            raise error_that_is_also(SettingError, [type(error)], advice) from error
        _logger.info("Made the %s %s in %.1f s.", columns.kind, folder, time.monotonic() - start_s)
        return load(folder)


@contextlib.contextmanager
def locked(path: str) -> Iterator[bool]:
    """Hold the lock of a folder that is to be made; wait for another process or thread that makes it.

    Where the file system has no locks or cannot be written to, and after an hour, it is made without the lock.
    Yields whether the lock is held.
    """
    parent, name = os.path.split(path)
    lock = FileLock(f"{parent}/.{name}.lock", timeout=_MOST_S)
    try:
        lock.acquire()
    except Timeout:
        _logger.warning("%s is made although another process has been making it for an hour.", path)
    except (OSError, NotImplementedError):
        pass  # to write the folder will fail as well, with a clearer error
    try:
        yield lock.is_locked
    finally:
        lock.release()
