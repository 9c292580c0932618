# SPDX-License-Identifier: Apache-2.0
"""Where videos are: in files, in remote storage, and in archives; and whether they were changed."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from typing import Any, NamedTuple

import attrs

from ...errors import FileError, VideoError, error_that_is_also
from ...providers.files.remote_file import KnownFile, RemoteFile
from ...providers.files.remote_reading import ChangedFileError
from ...providers.files.storage import Storage, is_url, members_url, parent_of
from ...url_secrets import repr_without_secrets, without_secrets


def path_advice(path: Any) -> str:
    """Advice on a path that cannot be opened, with a leading space; empty where there is none."""
    if not isinstance(path, (str, os.PathLike)):
        return ""
    if is_url(str(path)):
        where = " Only local files are read here: download it, or mount its storage as a folder."
        return f"{where} Its encoded bytes can be fed, too."
    is_several = os.path.isdir(path) or "*" in str(path)
    return " Name each video, e.g. by sorted(Path('train').glob('*.mp4'))." if is_several else ""


class FileState(NamedTuple):
    """What changes when a file is rewritten.

    Attributes:
        size: Its size in bytes; None where its store does not say.
        version: When its content was last changed, in nanoseconds since 1970; of a remote file, what its store
            says (ETag, ...).
    """

    size: int | None
    version: int | str

    @classmethod
    def of_video(cls, path: str | os.PathLike[str], name: str | None = None) -> FileState:
        """Get the state of a local file, which messages call ``name``, or by its path.

        Raises:
            FileError: It is not there, or cannot be accessed.
        """
        try:
            status = os.stat(path)
        except OSError as error:
            called = name or repr(os.fspath(path))
            message = f"Cannot open the video {called}: {error.strerror}.{path_advice(path)}"
            raise error_that_is_also(FileError, [error], message) from error
        return cls(status.st_size, status.st_mtime_ns)

    def require_same(self, now: FileState, name: str) -> None:
        """Check that a video, which messages call ``name``, was not changed, given its state now.

        Raises:
            VideoError: It was changed.
        """
        if now == self:
            return
        what = "it was written again" if now.size == self.size else f"{self.size} bytes then, {now.size} now"
        raise VideoError(
            f"The video {name} was changed after it was indexed ({what}), so its frames may be others. Make the "
            f"provider that uses it, or its index, anew; and keep videos unchanged while they are in use."
        )


@attrs.frozen
class StoredVideo:
    """A video in remote storage or in an archive.

    Attributes:
        url: URL of the video.
        storage: The storage.
        path: Name of the video in the storage.
        indexed: The version that was indexed; None to accept any version.
        known: Size, version and blocks of the file when it was indexed; None to request them.
    """

    url: str = attrs.field(repr=repr_without_secrets)
    storage: Storage
    path: str = attrs.field(repr=repr_without_secrets)
    indexed: FileState | None = attrs.field(default=None, kw_only=True)
    known: KnownFile | None = attrs.field(default=None, kw_only=True, repr=False)

    @property
    def name(self) -> str:
        """The URL as messages show it."""
        return without_secrets(self.url)

    @property
    def is_remote(self) -> bool:
        """Whether the video is in remote storage, not in a local archive."""
        return is_url(self.url.rpartition("::")[2])

    def as_indexed(self, state: FileState | None, known: KnownFile | None = None) -> StoredVideo:
        """Get the same video, of which only the given version is accepted."""
        return attrs.evolve(self, indexed=state, known=known)

    def state(self) -> FileState:
        """Request size and version of the video file.

        Raises:
            FileError: It is not there, or cannot be accessed.
        """
        return FileState(*self.storage.state(self.path))

    def open(self) -> RemoteFile:
        """Open the video file for random access.

        Raises:
            FileError: It is not there, or cannot be accessed.
            VideoError: The file is not the version that was indexed.
        """
        try:
            file = self.storage.open_blocks(self.path, self.known)
        except ChangedFileError as error:  # its archive, since its list of members was read
            if self.indexed is None:
                raise
            raise VideoError(f"The video {self.name!r} was changed after it was indexed: {error}") from error
        if self.indexed is not None:
            self.indexed.require_same(FileState(*file.version), repr(self.name))
        return file


def is_remote_video(source: object) -> bool:
    """Whether a source, as `located` returns it, is a video in remote storage."""
    return isinstance(source, StoredVideo) and source.is_remote


def located(
    source: Any,
    storage_options: Mapping[str, Any] | None = None,
    storages: MutableMapping[str, Storage] | None = None,
) -> Any:
    """Return what opens a video in remote storage or in an archive, and any other source as it is.

    The video is named as `Storage` names files: by a URL, or by a path in which ZIP files are folders.

    Args:
        source: The source.
        storage_options: Arguments of the file system.
        storages: Archives by their URLs that are shared, each with its list of members; new ones are added.
    """
    url = members_url(os.fspath(source)) if isinstance(source, str | os.PathLike) else source
    if not isinstance(url, str) or not is_url(url):
        return source
    folder, name = parent_of(url) if "::" in url else ("", url)
    storage = Storage(folder, storage_options)
    return StoredVideo(url, storage if storages is None else storages.setdefault(folder, storage), name)
