# SPDX-License-Identifier: Apache-2.0
"""Videos that are no files of their own: in remote storage, and in archives."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from typing import Any

import attrs

from ...errors import VideoError
from ...providers.files.remote_file import KnownFile, RemoteFile
from ...providers.files.remote_reading import ChangedFileError
from ...providers.files.storage import Storage, is_url, members_url, parent_of
from ...url_secrets import repr_without_secrets, without_secrets
from .video_file import FileState


@attrs.frozen
class StoredVideo:
    """A video in a store.

    Attributes:
        url: Its URL.
        storage: The store.
        path: Its name there.
        indexed: The version that was indexed; None for whatever is there.
        known: Size and version of its file then; None to request them.
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
        """Whether it is read from elsewhere, not from a local archive."""
        return is_url(self.url.rpartition("::")[2])

    def as_indexed(self, state: FileState | None, known: KnownFile | None = None) -> StoredVideo:
        """The same video, in one version only."""
        return attrs.evolve(self, indexed=state, known=known)

    def state(self) -> FileState:
        """Request its state.

        Raises:
            FileError: It is not there, or cannot be accessed. Also the builtin exception of the cause.
        """
        return FileState(*self.storage.state(self.path))

    def open(self) -> RemoteFile:
        """Open it, to be read here and there.

        Raises:
            FileError: It is not there, or cannot be accessed. Also the builtin exception of the cause.
            VideoError: It is not in the version that was indexed, or parts of it cannot be read.
        """
        try:
            file = self.storage.open_blocks(self.path, self.known)
        except ChangedFileError as error:  # its archive, since its list of members was read
            if self.indexed is None:
                raise
            raise VideoError(f"The video {self.name!r} was changed after it was indexed: {error}") from error
        if self.indexed is not None:
            self.indexed.require_same(FileState(*file.version), repr(self.name))
        if file.is_compressed:
            raise VideoError(
                f"The video {self.name!r} is compressed in its ZIP file, so that no part of it can be read by "
                f"itself. Unpack it, or pack it without compression (zip -0): that makes a video hardly larger."
            )
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
