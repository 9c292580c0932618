# SPDX-License-Identifier: Apache-2.0
"""Reading and listing of files, local or remote (fsspec)."""

from __future__ import annotations

import contextlib
import errno
import glob
import io
import os
import re
import stat
import tempfile
import time
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO, NamedTuple, NoReturn

import attrs
import numpy as np
import numpy.typing as npt

from ...checks import setting_error
from ...errors import FileError, MissingPackageError, SettingError, error_that_is_also, file_error, reason_of
from ...limits.file_limits import LfsPointerError, opened_file
from ...threads import give_lock
from ...url_secrets import cleaned, repr_without_secrets
from .remote_file import KnownFile, RemoteFile, WatchedFile, read_file, refuse_pointer, version_of
from .remote_reading import FileSystem, RemoteReading, StorageOptions

UInt8Array = npt.NDArray[np.uint8]
StoragePath = str | os.PathLike[str]
_READING = RemoteReading()

_ARCHIVES = ("zip", "tar")
_MOST_OPENED = 16
_PART = ".part"  # end of the name of a file that is being written
_LONGEST_WRITING_S = 3600.0


class FolderEntry(NamedTuple):
    """An entry of a folder: its name, and whether it counts as a folder."""

    name: str
    is_folder: bool


class Storage:
    """A folder from which files are read.

    A root with ``://`` in it is a URL of `fsspec <https://filesystem-spec.readthedocs.io>`_, such as
    ``s3://bucket/train``, ``memory://train``, or ``zip://train::/data/all.zip``; any other is a local path. Names
    are relative to the root, with ``/`` between their parts. They may also be absolute: a URL or, if the root is
    local, a local path.

    **ZIP files are folders.** A ``.zip`` file that is part of the path of a root, or is before a ``/`` in a name,
    is the folder of its members: ``/data/all.zip``, ``s3://bucket/all.zip/train``, or the name
    ``chunk_0003.zip/a.mp4``. A local folder whose name ends in ``.zip`` is read as a folder. `open_blocks` reads
    parts of a member that is not compressed; a compressed member can be read only as a whole.

    A `Storage` is small and immutable, and can be pickled. A remote file system is opened on first use, in each
    process separately: connections do not survive a fork.

    Attributes:
        root: The folder: a local path or a URL. A path in a ZIP file becomes a URL, ``zip://...::/data/all.zip``.
        is_remote: Whether the root is a URL.
    """

    def __init__(self, root: StoragePath, storage_options: StorageOptions | None = None) -> None:
        """Name the folder; nothing is opened.

        Args:
            root: Local path or URL; ``""`` for the current folder. A leading ``~`` is the home folder.
            storage_options: Arguments of the remote file system (credentials, endpoint, ...), as
                ``fsspec.core.url_to_fs`` takes them. One more entry, ``"reading"``, is a `RemoteReading`: how
                often and how long to try. Local files need no options. For a chain of URLs
                (``zip://...::s3://...``), give the options of the last URL (here ``s3://``), or a dict with the
                options of each protocol, ``{"s3": {...}, "zip": {...}}``.
        """
        self.root = members_url(checked_path(root))
        if not isinstance(storage_options, Mapping | None):
            raise SettingError(f"`storage_options` must be a dict, got {type(storage_options).__name__}.")
        self._options = dict(storage_options or {})
        self._requested_reading = self._options.pop("reading", None)  # None is shorter in pickles
        if not isinstance(self._requested_reading, RemoteReading | None):
            got = type(self._requested_reading).__name__
            raise SettingError(f"`storage_options['reading']` must be a RemoteReading, got {got}.")
        self.is_remote = is_url(self.root)
        if self.is_remote:
            _needed_fsspec(self.root)
        else:
            self.root = os.path.expanduser(self.root)
        self._archives: dict[tuple[str, str], tuple[int, FileSystem]] = {}  # with the process that opened each

    @property
    def _reading(self) -> RemoteReading:
        return self._requested_reading or _READING

    def path(self, name: str) -> str:
        """Get the full path or URL of the file of this name."""
        if not name:
            return self.root
        join = joined_url if self.is_remote else os.path.join
        path = name if is_url(name) else join(self.root, name)
        return members_url(path) if ".zip/" in name.lower() else path

    def read_bytes(self, name: str) -> UInt8Array:
        """Read a file into an array, ``(num_bytes,)`` uint8; it is read-only if the file is at a URL.

        Local files are read, not mapped. (Mapping them saves up to a tenth of the time for files of 100 kB,
        but a file that is cut short while it is mapped kills the process.)

        Raises:
            FileError: There is no such file, it cannot be read, it is a folder, or it has no bytes.
        """
        path = self.path(name)
        try:
            if is_url(path):
                content = np.frombuffer(read_file(*self._located(path), self._reading), np.uint8)
            else:
                content = _read_local(path)
        except Exception as error:
            self._refuse("The file", name, error)
        if not len(content):
            # DALI's decoders fail on an empty file with a message that does not name it.
            raise FileError(f"The file {self.shown(name)} is empty: it has 0 bytes.")
        return content

    def shown(self, name: str = "") -> str:
        """Get the path or URL of a file in the form for messages: in quotes and without secrets."""
        return repr_without_secrets(self.path(name))

    def list_folder(self, name: str = "", *, follows_links: bool = True) -> Iterator[FolderEntry]:
        """List a folder, in no particular order. All entries but folders count as files, also a pipe.

        Args:
            name: The folder; ``""`` for the root.
            follows_links: If True, a link to a folder counts as a folder, and a link that leads nowhere is an
                error. If False, each link counts as a file, and no targets are looked up, which saves time. For
                local folders only.

        Raises:
            FileError: There is no such folder, or it cannot be read.
        """
        with self._refusing("The folder", name) as path:
            if is_url(path):
                yield from self._list_remote(path)
                return
            with os.scandir(path or ".") as entries:
                for entry in entries:
                    yield FolderEntry(entry.name, _is_folder(entry, follows_links))

    def open_binary(self, name: str) -> BinaryIO:
        """Open a file; a remote one is read as a whole. Raises what `read_bytes` does, except for empty files."""
        with self._refusing("The file", name) as path:
            if is_url(path):
                return io.BytesIO(read_file(*self._located(path), self._reading))
            return open_regular_file(path)

    def exists(self, name: str) -> bool:
        """Whether there is a file of this name; raises a `FileError` if the storage gives no answer."""
        try:
            self.state(name)
        except FileNotFoundError:
            return False
        return True

    def state(self, name: str) -> tuple[int | None, int | str]:
        """Get the size of a file in bytes (None if the storage does not state it), and its version.

        The version of a local file is its time of modification in nanoseconds; of a remote file, a text such as
        its ETag. For errors, see `open_binary`.
        """
        with self._refusing("The file", name) as path:
            if is_url(path):
                located = self._located(path)
                return self._reading(lambda: version_of(*located))
            status = os.stat(path)
            return status.st_size, status.st_mtime_ns

    def open_blocks(self, name: str, known: KnownFile | None = None) -> RemoteFile:
        """Open a file at a URL or in an archive for random access; for errors, see `open_binary`.

        A member of an archive must not be compressed.

        ``known`` is the result of ``RemoteFile.known()`` from an earlier opening. It saves requests: if the
        version of the file is unchanged, nothing but the version is requested.
        """
        with self._refusing("The file", name) as path:
            return RemoteFile(*self._located(path), self._reading, known)

    def find(self, pattern: str) -> list[str]:
        """List the files of a remote root whose names match a pattern, in no particular order.

        Raises:
            FileError: The folder cannot be listed.
        """
        with self._refusing("The folder", "") as path:
            file_system, folder = self._located(path)
            start = f"{folder.rstrip('/')}/" if folder else ""
            found = self._reading(lambda: file_system.glob(start + pattern, detail=True))
        return [path.removeprefix(start) for path, info in found.items() if info["type"] != "directory"]

    def is_folder(self, name: str) -> bool:
        """Whether there is a folder of this name; raises a `FileError` if the storage gives no answer."""
        with self._refusing("The folder", name) as path:
            if not is_url(path):
                return os.path.isdir(path)
            file_system, folder = self._located(path)
            return bool(self._reading(lambda: file_system.isdir(folder)))

    def _list_remote(self, url: str) -> Iterator[FolderEntry]:
        file_system, folder = self._located(url)
        if not self._reading(lambda: file_system.isdir(folder)):
            if self._reading(lambda: file_system.exists(folder)):
                raise NotADirectoryError(errno.ENOTDIR, "it is no folder")
            raise FileNotFoundError(folder)
        for entry in self._reading(lambda: file_system.ls(folder, detail=True)):
            if entry["name"].strip("/") != folder.strip("/"):  # some stores list the folder itself
                yield FolderEntry(entry["name"].rstrip("/").rpartition("/")[2], entry["type"] == "directory")

    def _located(self, url: str) -> tuple[FileSystem, str]:
        """Get the file system of a URL, and the path in it."""
        protocol, _, rest = url.partition("://")
        inner, link, archive = rest.partition("::")
        if protocol not in _ARCHIVES or "fo" in self._options:
            return _opened(url, self._options)
        if not link:
            examples = f"'{protocol}://::{rest}', or with a folder in it '{protocol}://train::{rest}'"
            raise FileError(f"An archive is named after '::', as in {examples}.")
        process, file_system = self._archives.get((protocol, archive), (0, None))
        if process != os.getpid():
            if not is_url(archive):
                open_regular_file(archive).close()  # raises why it cannot be
            empty = f"{protocol}://::{archive}"
            watched = None
            if protocol == "tar":  # its members may be compressed, so that their headers cannot be compared
                watched = WatchedFile(*_opened(archive, self._options), self._reading)
            try:
                file_system, _ = self._reading(lambda: _opened(empty, self._options))  # reads the list of members
            except Exception:
                self._refuse_pointer_at(archive)
                raise
            if watched is not None:
                give_lock(file_system)
                file_system.watched = watched
            self._archives = {} if len(self._archives) >= _MOST_OPENED else self._archives
            self._archives[protocol, archive] = os.getpid(), file_system
        return file_system, inner.strip("/")

    def _refuse_pointer_at(self, url: str) -> None:
        try:
            refuse_pointer(*_opened(url, self._options))
        except LfsPointerError:
            raise
        except Exception:
            return  # the error of the archive is raised

    @contextlib.contextmanager
    def _refusing(self, what: str, name: str) -> Iterator[str]:
        try:
            yield self.path(name)
        except Exception as error:
            self._refuse(what, name, error)

    def _refuse(self, what: str, name: str, error: BaseException) -> NoReturn:
        error = cleaned(error)
        if isinstance(error, FileError | SettingError):
            raise error
        if isinstance(error, ImportError):  # e.g. of a compression
            reason = f"{str(error).rstrip('.')}. Install it with pip, for HTTP 'fsspec[http]', for S3 s3fs."
            raise MissingPackageError(f"{what} {self.shown(name)} cannot be read: {reason}") from error
        path = self.path(name)
        reason = reason_of(error)
        if isinstance(error, FileNotFoundError):  # fsspec's own text is only the path
            is_link = not is_url(path) and os.path.islink(path)
            reason = "it is a link that leads nowhere" if is_link else "there is none"
        if isinstance(error, zipfile.BadZipFile):
            reason = f"{reason}. It is no ZIP file, or cut short; copy it again"
        refused = error_that_is_also(FileError, [error], f"{what} {self.shown(name)} cannot be read: {reason}.")
        try:
            raise refused from error
        finally:
            refused.__context__ = error  # instead of the error as it was before it was cleaned

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_archives": {}}

    def __eq__(self, other: object) -> bool:
        """Whether both are the same folder with the same options."""
        return isinstance(other, Storage) and self.__getstate__() == other.__getstate__()

    def __hash__(self) -> int:
        return hash(self.root)

    def __repr__(self) -> str:
        return repr_without_secrets(self.root).join(("Storage(", ")"))  # without options, which may be secrets


def is_url(path: str) -> bool:
    """Whether a path is one for fsspec: it has ``://`` in it."""
    return "://" in path


_ZIP_FOLDER = re.compile(r"\.zip(?=/|$)", re.IGNORECASE)


def members_url(path: str) -> str:
    """Name members of ZIP files by URLs of fsspec; other paths stay as they are.

    ``all.zip`` becomes ``zip://::all.zip``, and ``https://host/all.zip/a.mp4?part=1`` becomes
    ``zip://a.mp4::https://host/all.zip?part=1``.
    """
    place, query, rest = path.partition("?") if is_url(path) else (path, "", "")
    found = _ZIP_FOLDER.search(place)
    if found is None or "::" in path or path.startswith(tuple(f"{protocol}://" for protocol in _ARCHIVES)):
        return path
    archive, member = place[: found.end()], place[found.end() + 1 :]
    if not is_url(archive):
        archive = os.path.abspath(os.path.expanduser(archive))
        if os.path.isdir(archive):
            return path
    return f"zip://{member}::{archive}{query}{rest}"


@attrs.frozen
class StoredFile(os.PathLike[str]):
    """A file in a folder, a ZIP file or remote storage, for what takes paths of tables and lists of sources.

    As a path it is what messages show; only that of a local file can be opened by it.

    Attributes:
        storage: Where it is.
        name: Its name there.
    """

    storage: Storage
    name: str

    def __fspath__(self) -> str:
        """Path or URL."""
        return self.storage.path(self.name)

    @property
    def is_local(self) -> bool:
        """Whether it can be opened by its path."""
        return not is_url(os.fspath(self))


def split_pattern(path: str) -> tuple[str, str] | None:
    """Split a URL with a pattern into the folder and the pattern; None if it has none."""
    before, link, after = _link_of_names(path)
    # The parts of a query of HTTP are not names of files.
    names, query, rest = link.partition("?") if link.startswith("http") else (link, "", "")
    protocol, _, inner = names.partition("://")
    parts = inner.split("/")
    first = next((place for place, part in enumerate(parts) if glob.has_magic(part)), None)
    if first is None:
        return None
    folder = "/".join(parts[:first])
    return f"{before}{protocol}://{folder}{query}{rest}{after}", "/".join(parts[first:])


def joined_url(root: str, name: str) -> str:
    """Append a name to a URL; in a chain such as ``zip://folder::file.zip`` to the part that it belongs to."""
    before, link, after = _link_of_names(root)
    return f"{before}{link}{'' if link.endswith('/') else '/'}{name}{after}"


def parent_of(path: str) -> tuple[str, str]:
    """Split a path or URL into the folder and the name in it."""
    if not is_url(path):
        return os.path.split(path)
    before, link, after = _link_of_names(path)
    protocol, _, inner = link.partition("://")
    folder, _, name = inner.rpartition("/")
    return f"{before}{protocol}://{folder}{after}", name


def _link_of_names(url: str) -> tuple[str, str, str]:
    """Split a chain into the first link with ``://`` in it, and the text before and after it."""
    links = url.split("::")
    position = next(number for number, link in enumerate(links) if is_url(link))
    before, after = links[:position], links[position + 1 :]
    return "".join(f"{link}::" for link in before), links[position], "".join(f"::{link}" for link in after)


def as_utf8(path: str) -> str:
    """Make a path that can be written as UTF-8: other bytes appear as ``\\xff``."""
    return os.fsencode(path).decode(errors="backslashreplace")


def checked_path(path: StoragePath, name: str = "root") -> str:
    """Check a path, a ``str`` or a path of text; returns it as text."""
    text = path if isinstance(path, str) else os.fspath(path) if isinstance(path, os.PathLike) else None
    if not isinstance(text, str):
        raise setting_error(name, "a str or a Path", path)
    return text


def _is_folder(entry: os.DirEntry[str], follows_links: bool) -> bool:
    if not follows_links or not entry.is_symlink():
        return entry.is_dir(follow_symlinks=False)
    try:
        return stat.S_ISDIR(entry.stat().st_mode)
    except OSError as error:
        raise file_error(f"The link {entry.path!r} leads nowhere", error) from error


def open_regular_file(path: str) -> BinaryIO:
    """Open a local file for reading; others, such as a pipe, which would block indefinitely, are an OSError."""
    return os.fdopen(opened_file(path, is_limited=False)[0], "rb")


def replace_file(path: str, parts: Iterable[bytes | memoryview], *, outlives_machine: bool = False) -> None:
    """Write a file, which appears only once it is complete.

    Partial files of killed processes are removed after an hour, by the next process that writes the same file.

    Args:
        path: The file.
        parts: Its content.
        outlives_machine: Whether it is on the disk before it replaces an old one, which takes a few milliseconds.
    """
    folder, name = os.path.split(path)
    folder, start = folder or ".", f".{name[:32]}-"
    descriptor, written = tempfile.mkstemp(_PART, start, folder)
    try:
        with open(descriptor, "wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fchmod(file.fileno(), 0o644)
            if outlives_machine:
                os.fsync(file.fileno())
        os.replace(written, path)
    except BaseException:
        os.unlink(written)
        raise
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            is_part = entry.name.startswith(start) and entry.name.endswith(_PART)
            if is_part and entry.stat().st_mtime < time.time() - _LONGEST_WRITING_S:
                os.unlink(entry.path)
    if outlives_machine:  # its name, too
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _read_local(path: str) -> UInt8Array:
    descriptor, status = opened_file(path)
    size, changed_ns = status.st_size, status.st_mtime_ns
    try:
        content = np.empty(size, np.uint8)
        rest = content
        while len(rest):
            count = os.readv(descriptor, [rest.data])
            if not count:
                raise OSError(f"it was cut short while it was read: {size - len(rest)} of {size} bytes were there")
            rest = rest[count:]
        status = os.fstat(descriptor)
        if (status.st_size, status.st_mtime_ns) != (size, changed_ns):
            raise OSError(f"it was changed while it was read: {size} bytes before, {status.st_size} after")
        return content
    finally:
        os.close(descriptor)


def _needed_fsspec(url: str) -> Any:
    try:
        import fsspec
    except ImportError as error:
        how = "pip install 'fsspec[http]'"
        raise MissingPackageError(f"{url!r} is a URL: reading it needs fsspec. Install it with: {how}") from error
    return fsspec


def _opened(url: str, options: StorageOptions) -> tuple[FileSystem, str]:
    """Open the file system of a URL; in a chain, options not given by protocol are of the last link, the store."""
    protocols = [link.partition("://")[0] for link in url.split("::")]
    is_of_store = len(protocols) > 1 and is_url(url.split("::")[-1]) and options.keys().isdisjoint(protocols)
    of_links = {protocols[-1]: options} if is_of_store and options else options
    found: tuple[FileSystem, str] = _needed_fsspec(url).core.url_to_fs(url, **of_links)
    return found
