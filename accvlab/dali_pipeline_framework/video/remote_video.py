# SPDX-License-Identifier: Apache-2.0
"""Videos in remote storage, which each process and decoder opens anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any, BinaryIO, TypeVar

import attrs

from ..providers.files.remote_version import FileVersion
from ..providers.files.storage import Storage, is_url, parent_of
from ..url_secrets import repr_without_secrets, without_secrets
from .files.video_file import FileState

_T = TypeVar("_T")


@attrs.frozen
class RemoteVideo:
    """A video in remote storage.

    Attributes:
        url: Its URL.
        storage: What opens it.
        path: Its name there.
        indexed: The version that was indexed; None for whatever is there.
    """

    url: str = attrs.field(repr=repr_without_secrets)
    storage: Storage
    path: str = attrs.field(repr=repr_without_secrets)
    indexed: FileState | None = None

    @property
    def name(self) -> str:
        """The URL as messages tell it."""
        return without_secrets(self.url)

    def state(self) -> FileState:
        """Ask for its state.

        Raises:
            FileError: It is not there, or cannot be accessed. Also the builtin exception of the cause.
        """
        return _state(self.storage.version(self.path))

    def as_indexed(self, state: FileState | None) -> RemoteVideo:
        """The same video, in one version only."""
        return attrs.evolve(self, indexed=state)

    def open(self) -> BinaryIO:
        """Open it, to be read here and there.

        Raises:
            FileError: It is not there, or cannot be accessed. Also the builtin exception of the cause.
            VideoError: It is not in the version that was indexed.
        """
        version = self.storage.version(self.path)
        if self.indexed is not None:
            self.indexed.require_same(_state(version), repr(self.name))
        return self.storage.open_blocks(self.path, version)


def _state(version: FileVersion) -> FileState:
    return FileState(version.size, version.marks)


def located(
    source: Any,
    storage_options: Mapping[str, Any] | None = None,
    storages: MutableMapping[str, Storage] | None = None,
) -> Any:
    """Return what opens a video that is named by a URL, and any other source as it is.

    Args:
        source: The source.
        storage_options: Arguments of the file system.
        storages: Archives by their URLs that are shared, each with its list of members; new ones are added.
    """
    if not isinstance(source, str) or not is_url(source):
        return source
    folder, path = parent_of(source) if "::" in source else ("", source)
    storage = Storage(folder, storage_options)
    return RemoteVideo(source, storage if storages is None else storages.setdefault(folder, storage), path)


class WatchedFile:
    """An open file that FFmpeg reads, and the error that it met.

    FFmpeg takes a file that cannot be read for damaged, for shorter than it is, or goes on looking for its parts.
    So after an error there is nothing more to read, and who called FFmpeg asks for the error.

    Attributes:
        error: The first error; None where there was none.
    """

    def __init__(self, file: BinaryIO) -> None:
        """Watch a file that can seek."""
        self._file = file
        self.error: BaseException | None = None

    def read(self, size: int = -1) -> bytes:
        """Read the next bytes; none after an error."""
        return self._tried(lambda: self._file.read(size), b"")

    def seek(self, offset: int, whence: int = 0) -> int:
        """Go to a byte; returns where that is."""
        return self._tried(lambda: self._file.seek(offset, whence), 0)

    def tell(self) -> int:
        """Where the next byte is read."""
        return self._tried(self._file.tell, 0)

    def _tried(self, action: Callable[[], _T], otherwise: _T) -> _T:
        if self.error is None:
            try:
                return action()
            except BaseException as error:  # also an interrupt: FFmpeg could not pass it on
                self.error = error
        return otherwise
