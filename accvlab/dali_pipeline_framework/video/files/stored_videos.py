# SPDX-License-Identifier: Apache-2.0
"""Videos that are no files of their own: in remote storage, and in ZIP files."""

from __future__ import annotations

import functools
import os
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, MutableMapping
from typing import Any, BinaryIO, TypeVar, cast

import attrs

from ...checks import did_you_mean, shown
from ...errors import FileError, VideoError, error_that_is_also, file_error
from ...limits.file_limits import opened_file
from ...providers.files.remote_file import FileRange, LocalFile, RemoteFile, is_stored
from ...providers.files.remote_reading import FileVersion
from ...providers.files.storage import Storage, is_url, members_url, parent_of
from ...url_secrets import repr_without_secrets, without_secrets
from .video_file import FileState

_Self = TypeVar("_Self", bound="StoredVideo")


@attrs.frozen
class StoredVideo(ABC):
    """A video that is opened by what stores it.

    Attributes:
        url: Its URL.
        indexed: The version that was indexed; None for whatever is there.
    """

    url: str = attrs.field(repr=repr_without_secrets)
    indexed: FileState | None = attrs.field(default=None, kw_only=True)

    @property
    def name(self) -> str:
        """The URL as messages show it."""
        return without_secrets(self.url)

    def as_indexed(self: _Self, state: FileState | None) -> _Self:
        """The same video, in one version only."""
        return attrs.evolve(self, indexed=state)

    @abstractmethod
    def state(self) -> FileState:
        """Ask for its state.

        Raises:
            FileError: It is not there, or cannot be accessed. Also the builtin exception of the cause.
        """

    @abstractmethod
    def open(self) -> BinaryIO:
        """Open it, to be read here and there.

        Raises:
            FileError: It is not there, or cannot be accessed. Also the builtin exception of the cause.
            VideoError: It is not in the version that was indexed, or parts of it cannot be read.
        """

    @abstractmethod
    def require_indexed(self) -> None:
        """Check that it is the one that was indexed, before reading continues elsewhere in it.

        Raises:
            VideoError: It was changed.
        """

    def _require(self, state: FileState) -> None:
        if self.indexed is not None:
            self.indexed.require_same(state, repr(self.name))

    def _refuse_compressed(self) -> VideoError:
        return VideoError(
            f"The video {self.name!r} is compressed in its ZIP file, so that no part of it can be read by itself. "
            f"Unpack it, or pack it without compression (zip -0): that makes a video hardly larger."
        )


@attrs.frozen
class RemoteVideo(StoredVideo):
    """A video in remote storage.

    Attributes:
        storage: What opens it.
        path: Its name there.
    """

    storage: Storage
    path: str = attrs.field(repr=repr_without_secrets)

    def state(self) -> FileState:
        """Ask for its state, see `StoredVideo`."""
        return FileState(*self.storage.state(self.path))

    def require_indexed(self) -> None:
        """Do nothing: each part that is read has its version."""

    def require_same(self) -> None:
        """Ask for its state, and check that it is the one that was indexed; a `VideoError` where it is not."""
        self._require(self.state())

    def open(self) -> BinaryIO:
        """Open it, see `StoredVideo`."""
        version = self.storage.version(self.path)
        self._require(FileState(version.size, version.marks))
        if is_compressed(version):
            raise self._refuse_compressed()
        return self.storage.open_blocks(self.path, version)


def is_remote_video(source: object) -> bool:
    """Whether a source, as `located` returns it, is a video in remote storage."""
    return isinstance(source, RemoteVideo)


def is_compressed(version: FileVersion) -> bool:
    """Whether a file is a compressed member of a ZIP file."""
    archive = getattr(version.file_system, "zip", None)
    return isinstance(archive, zipfile.ZipFile) and not is_stored(archive.getinfo(version.path))


@attrs.frozen
class ZippedVideo(StoredVideo):
    """A video in a local ZIP file. Its state is that of the ZIP file.

    Attributes:
        archive: Path of the ZIP file.
        member: Its name there.
    """

    archive: str
    member: str

    def state(self) -> FileState:
        """Ask for its state, see `StoredVideo`."""
        return FileState.of_video(self.archive, repr(self.name))

    def require_indexed(self) -> None:
        """Check that the ZIP file was not changed, see `StoredVideo`."""
        self._require(self.state())

    def open(self) -> BinaryIO:
        """Open it, see `StoredVideo`."""
        state = self.state()
        self._require(state)
        members = _members(self.archive, state)
        info = members.get(self.member)
        if info is None:
            hint = did_you_mean(self.member, [*members])
            there = f"It has {len(members)} others."
            message = f"There is no {shown(self.member)} in the ZIP file {self.archive!r}.{hint} {there}"
            raise error_that_is_also(FileError, [FileNotFoundError], message)
        if not is_stored(info):
            raise self._refuse_compressed()
        try:
            file = LocalFile(opened_file(self.archive, is_limited=False)[0])
            return cast(BinaryIO, RemoteFile(FileRange.of_member(file, info)))
        except OSError as error:
            raise file_error(f"Cannot open the video {self.name!r}", error) from error


@functools.lru_cache(maxsize=256)
def _members(archive: str, state: FileState) -> dict[str, zipfile.ZipInfo]:
    try:
        descriptor, _ = opened_file(archive, is_limited=False)
        with os.fdopen(descriptor, "rb") as file, zipfile.ZipFile(file) as opened:
            return {info.filename: info for info in opened.infolist()}
    except zipfile.BadZipFile as error:
        what = f"The ZIP file {archive!r} of {state.size} bytes cannot be read"
        raise FileError(f"{what}: {error}. It is no ZIP file, or cut short; copy it again.") from error
    except (OSError, NotImplementedError) as error:
        raise file_error(f"The ZIP file {archive!r} cannot be read", error) from error


def located(
    source: Any,
    storage_options: Mapping[str, Any] | None = None,
    storages: MutableMapping[str, Storage] | None = None,
) -> Any:
    """Return what opens a video in remote storage or in a ZIP file, and any other source as it is.

    The video is named as `Storage` names files: by a URL, or by a path in which ZIP files are folders.

    Args:
        source: The source.
        storage_options: Arguments of the file system.
        storages: Archives by their URLs that are shared, each with its list of members; new ones are added.
    """
    if not isinstance(source, str | os.PathLike):
        return source
    path = os.fspath(source)
    url = members_url(path) if isinstance(path, str) else ""
    if not is_url(url):
        return source
    _, is_zip, chained = url.partition("zip://")
    member, _, archive = chained.partition("::")
    if is_zip and url.startswith("zip://") and archive and not is_url(archive):
        return ZippedVideo(url, archive, member)
    folder, name = parent_of(url) if "::" in url else ("", url)
    storage = Storage(folder, storage_options)
    return RemoteVideo(url, storage if storages is None else storages.setdefault(folder, storage), name)
