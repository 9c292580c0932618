# SPDX-License-Identifier: Apache-2.0
"""Reading and listing files, on this machine or wherever fsspec reaches."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework.errors import SettingError, error_that_is_also

UInt8Array = npt.NDArray[np.uint8]
StoragePath = str | os.PathLike[str]


class FolderEntry(NamedTuple):
    """What stands in a folder.

    Attributes:
        name: Its name in the folder.
        is_folder: Whether it is a folder, or a link to one.
    """

    name: str
    is_folder: bool


class Storage:
    """A folder and what lies in it, to be read from.

    A root with ``://`` or ``::`` in it is a URL of `fsspec <https://filesystem-spec.readthedocs.io>`_, such as
    ``s3://bucket/train``, ``memory://train``, or ``zip://train::/data/all.zip``; any other is a local path.
    Names are relative to the root, with ``/`` between their parts. In a local folder they may also be absolute.

    Objects are small, immutable, and can be pickled. A remote file system is opened on first use, in each
    process anew: connections do not survive a fork.
    """

    def __init__(self, root: StoragePath, storage_options: Mapping[str, Any] | None = None) -> None:
        """Name a folder. Nothing is opened.

        Args:
            root: Local path or URL. A leading ``~`` of a local path is the home folder.
            storage_options: Arguments of the remote file system (credentials, endpoint, ...), as
                ``fsspec.core.url_to_fs`` takes them. Only with a URL.

        Raises:
            SettingError: The root is no path, or there are options for a local one.
        """
        self._root = _checked_root(root)
        self._options = dict(storage_options or {})
        self._is_remote = is_url(self._root)
        if self._is_remote:
            self._root = self._root.rstrip("/") if not self._root.endswith("://") else self._root
        else:
            self._root = os.path.expanduser(self._root)
        if self._options and not self._is_remote:
            raise SettingError(f"`storage_options` are for URLs such as 's3://...', got the local path {root!r}.")
        self._opened: tuple[int, Any, str] | None = None  # process, file system, root within it

    @property
    def root(self) -> str:
        """The folder: a local path or a URL."""
        return self._root

    @property
    def is_remote(self) -> bool:
        """Whether the root is a URL."""
        return self._is_remote

    def path(self, name: str) -> str:
        """Get the full path or URL of a name, for messages and for fields."""
        if not self._is_remote:
            return os.path.join(self._root, name)
        if not name or is_url(name):
            return name or self._root
        head, chain, tail = self._root.partition("::")
        return f"{head}{'' if head.endswith('/') else '/'}{name}{chain}{tail}"

    def read_bytes(self, name: str) -> UInt8Array:
        """Read a file: ``(num_bytes,)`` uint8, from a URL read-only.

        Local files are read into the array. (Mapping them saves up to a tenth of the time for files of 100 kB,
        but a file that is cut short while it is mapped kills the process.)

        Raises:
            SettingError: There is no such file, it cannot be read, it is a folder, or it has no bytes. Also the
                builtin exception of the cause, e.g. `FileNotFoundError`.
        """
        try:
            content = self._read_remote(name) if self._is_remote else _read_local(self.path(name))
        except Exception as error:
            self._refuse("The file", name, error)
        if not len(content):
            # DALI's decoders fail on it with a message that names no file, and end the pipeline.
            raise SettingError(f"The file {self.path(name)!r} is empty: it has 0 bytes.")
        return content

    def list_folder(self, name: str = "") -> Iterator[FolderEntry]:
        """List a folder, in no particular order.

        What is neither file nor folder (a broken link, a socket) counts as a file.

        Raises:
            SettingError: There is no such folder, or it cannot be read. Also the builtin exception of the cause.
        """
        try:
            if self._is_remote:
                yield from self._list_remote(name)
            else:
                with os.scandir(self.path(name) or ".") as entries:
                    for entry in entries:
                        yield FolderEntry(entry.name, _is_folder(entry))
        except Exception as error:
            self._refuse("The folder", name, error)

    def modification_time_ns(self, name: str = "") -> int | None:
        """When a local file or folder was last changed, in nanoseconds since 1970; None where nobody knows."""
        if self._is_remote:
            return None
        try:
            return os.stat(self.path(name) or ".").st_mtime_ns
        except OSError as error:
            self._refuse("The path", name, error)

    def _read_remote(self, name: str) -> UInt8Array:
        file_system, root = self._file_system()
        content = file_system.cat_file(_joined(root, name))
        return np.frombuffer(content, np.uint8)

    def _list_remote(self, name: str) -> Iterator[FolderEntry]:
        file_system, root = self._file_system()
        folder = _joined(root, name)
        if not file_system.isdir(folder):
            if file_system.exists(folder):
                raise NotADirectoryError(errno.ENOTDIR, "it is no folder")
            raise FileNotFoundError(folder)
        for entry in file_system.ls(folder, detail=True):
            entry_name = entry["name"].rstrip("/").rpartition("/")[2]
            if entry["name"].strip("/") != folder.strip("/"):  # some stores list the folder itself
                yield FolderEntry(entry_name, entry["type"] == "directory")

    def _file_system(self) -> tuple[Any, str]:
        if self._opened is None or self._opened[0] != os.getpid():
            self._opened = (os.getpid(), *_opened(self._root, self._options))
        return self._opened[1], self._opened[2]

    def _refuse(self, what: str, name: str, error: Exception) -> NoReturn:
        if isinstance(error, SettingError):
            raise error
        path = self.path(name)
        if isinstance(error, FileNotFoundError):  # fsspec's own text is only the path
            reason = "there is none"
        else:
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
        message = f"{what} {path!r} cannot be read: {reason}."
        raise error_that_is_also(SettingError, [type(error)], message) from error

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None}

    def __eq__(self, other: object) -> bool:
        """Whether both are the same folder with the same options."""
        if not isinstance(other, Storage):
            return NotImplemented
        return (self._root, self._options) == (other._root, other._options)

    def __hash__(self) -> int:
        return hash(self._root)

    def __repr__(self) -> str:
        return f"Storage({self._root!r})"  # without the options: they may hold credentials


def is_url(path: StoragePath) -> bool:
    """Whether a path is one for fsspec: it has ``://`` or ``::`` in it."""
    text = os.fspath(path)
    return "://" in text or "::" in text


def read_bytes(root: StoragePath, name: str = "", storage_options: Mapping[str, Any] | None = None) -> UInt8Array:
    """Read one file, see `Storage.read_bytes`. For more than one make a `Storage`."""
    return Storage(root, storage_options).read_bytes(name)


def list_folder(root: StoragePath, storage_options: Mapping[str, Any] | None = None) -> Iterator[FolderEntry]:
    """List one folder, see `Storage.list_folder`."""
    return Storage(root, storage_options).list_folder()


def _checked_root(root: StoragePath) -> str:
    text = root if isinstance(root, str) else os.fspath(root) if isinstance(root, os.PathLike) else None
    if not isinstance(text, str):
        raise SettingError(f"The path of a folder must be a str or a Path, got {root!r}.")
    return text


def _joined(root: str, name: str) -> str:
    if not name:
        return root
    return f"{root.rstrip('/')}/{name}" if root else name


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a loop of links
        return False


def _read_local(path: str) -> UInt8Array:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe would block for ever
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        if not stat.S_ISREG(status.st_mode):
            raise OSError("it is no regular file")
        size = status.st_size
        content = np.empty(size, np.uint8)
        rest = content
        while len(rest):
            count = os.readv(descriptor, [rest.data])
            if not count:
                raise OSError(f"it was cut short while it was read: {size - len(rest)} of {size} bytes were there")
            rest = rest[count:]
        return content
    finally:
        os.close(descriptor)


def _opened(root: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    try:
        import fsspec
    except ImportError as error:
        raise SettingError(
            f"{root!r} is a URL: reading it needs fsspec. "
            f"Install it with: pip install 'accvlab.dali_pipeline_framework[remote]'"
        ) from error
    try:
        file_system, path = fsspec.core.url_to_fs(root, **options)
    except Exception as error:
        raise error_that_is_also(SettingError, [type(error)], f"{root!r} cannot be opened: {error}.") from error
    return file_system, path
