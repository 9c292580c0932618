# SPDX-License-Identifier: Apache-2.0
"""Folders of streams and cameras, and the frames in them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import attrs

from ...errors import FileError, SettingError
from ..files.storage import Storage

Cameras: TypeAlias = Mapping[str, str] | Sequence[str]
RigLayout: TypeAlias = Literal["stream/camera", "camera/stream"]

# Those that DALI's reader of sequences takes, in any case.
_EXTENSIONS = (
    ".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".pnm", ".ppm", ".pgm", ".pbm", ".jp2", ".webp",
)  # fmt: skip
_MOST_NAMED = 10


@attrs.define
class StreamFolders:
    """The folders of streams below a root, and the frames in them. It looks when it is asked.

    Attributes:
        storage: The root.
        cameras: Names of the cameras and their folders; None where a stream has no folders for cameras.
        layout: Which folder is in which.
        num_skipped: Number of files that were left out since their extension is not that of an image.
        skipped: One of them.
    """

    storage: Storage
    cameras: dict[str, str] | None
    layout: RigLayout
    num_skipped: int = 0
    skipped: str = ""

    def streams(self) -> list[str]:
        """List the names of the streams, in the order in which DALI finds them.

        Raises:
            FileError: A folder cannot be read.
            SettingError: There are none.
        """
        if self.cameras is None or self.layout == "stream/camera":
            names = self._folders("")
        else:
            top = self._folders("")
            of_camera = {folder: self._folders_if_any(folder) for folder in self.cameras.values()}
            missing = [repr(folder) for folder, streams in of_camera.items() if streams is None]
            if missing:
                raise SettingError(
                    f"There is no folder {', '.join(missing)} (`cameras`) in {self.storage.root!r}. "
                    f"There {_listed('folder', top)}."
                )
            names = [*{stream for streams in of_camera.values() for stream in streams or ()}]
        # DALI sorts whole paths, in which a "/" follows the folder.
        names.sort(key=lambda name: os.fsencode(name) + b"/")
        if not names:
            raise SettingError(self._why_there_is_no_stream())
        return names

    def folder(self, stream: str, camera: str | None) -> str:
        """Get the folder of a camera of a stream, relative to the root."""
        if camera is None or self.cameras is None:
            return stream
        folder = self.cameras[camera]
        return f"{stream}/{folder}" if self.layout == "stream/camera" else f"{folder}/{stream}"

    def frames(self, stream: str, camera: str | None) -> list[str] | None:
        """List the file names of the frames of a camera of a stream, in the order of their bytes.

        Returns:
            None where the stream has no folder of that camera.

        Raises:
            FileError: The folder cannot be read.
        """
        folder = self.folder(stream, camera)
        names: list[str] = []
        try:
            for name, is_folder in self.storage.list_folder(folder, follows_links=False):
                if name.startswith("."):
                    continue
                if not is_folder and has_image_extension(name):
                    names.append(name)
                else:
                    self.num_skipped += 1
                    self.skipped = self.skipped or self.storage.path(f"{folder}/{name}")
        except FileError as error:
            if isinstance(error, FileNotFoundError) and camera is not None:
                return None
            raise
        names.sort(key=os.fsencode)
        return names

    def expected(self) -> str:
        """Describe the expected folders, for messages."""
        parts = ["<stream>"]
        if self.cameras is not None:
            parts.insert(self.layout == "stream/camera", "<camera>")
        return "/".join([self.storage.root, *parts, "<frame>.jpg"])

    def _folders(self, folder: str) -> list[str]:
        return [
            name for name, is_folder in self.storage.list_folder(folder) if is_folder and not name.startswith(".")
        ]

    def _folders_if_any(self, folder: str) -> list[str] | None:
        try:
            return self._folders(folder)
        except FileError as error:
            if isinstance(error, FileNotFoundError):
                return None
            raise

    def _why_there_is_no_stream(self) -> str:
        files = [name for name, is_folder in self.storage.list_folder() if not is_folder]
        found = "The root is empty."
        if self.layout == "camera/stream" and self.cameras is not None:
            found = "The folders of the cameras have no folders in them."
        elif files:
            found = (
                f"The root itself has {len(files)} file(s), e.g. {min(files)!r}: put the frames of each stream "
                f"into a folder of its own."
            )
        return f"There is no stream in {self.storage.root!r}: frames must lie as {self.expected()!r}. {found}"

    def why_there_is_no_frame(self, streams: Sequence[str]) -> str:
        """Say why no stream has a frame."""
        stream = streams[0]
        within: list[str] = []
        if self.cameras is None or self.layout == "stream/camera":
            within = self._folders(stream)
        advice = (
            f"Each file must have the extension of an image ({', '.join(_EXTENSIONS)})."
            if self.num_skipped
            else "The folders are empty."
        )
        if within and self.cameras is None:
            advice = (
                f"In {stream!r} {_listed('folder', within)}: if these are cameras, name them with "
                f"`cameras={sorted(within)[:3]!r}`; if they are streams, the root is "
                f"{self.storage.path(stream)!r}."
            )
        elif within and self.cameras is not None:
            advice = f"`cameras` are {[*self.cameras.values()]!r}; in {stream!r} {_listed('folder', within)}."
        skipped = f" {self.num_skipped} other file(s) or folder(s), e.g. {self.skipped!r}." if self.skipped else ""
        return (
            f"There is no frame in the {len(streams)} stream(s) of {self.storage.root!r}: frames must lie as "
            f"{self.expected()!r}.{skipped} {advice}"
        )


def has_image_extension(name: str) -> bool:
    """Whether a file counts as a frame, by its extension."""
    return os.path.splitext(name)[1].lower() in _EXTENSIONS


def checked_cameras(cameras: Cameras | None) -> dict[str, str] | None:
    """Return cameras as a dict of names and folders.

    Raises:
        SettingError: They are no names and folders, there is none, or two have the same folder.
    """
    if cameras is None:
        return None
    if isinstance(cameras, str) or not isinstance(cameras, Mapping | Sequence):
        raise SettingError(
            f"`cameras` must be a dict such as {{'front': 'CAM_FRONT'}} (name and folder), or a list of folders, "
            f"got {cameras!r}."
        )
    pairs = [*cameras.items()] if isinstance(cameras, Mapping) else [(folder, folder) for folder in cameras]
    for pair in pairs:
        if not all(isinstance(part, str) and part for part in pair) or pair[1].strip("/") != pair[1]:
            raise SettingError(
                f"`cameras` must be names and folders, both texts, the folders without a '/' at their ends, got "
                f"{pair!r}."
            )
    folders = [folder for _, folder in pairs]
    if not folders or len(set(folders)) != len(folders):
        raise SettingError(f"`cameras` must be at least one, each with a folder of its own, got {folders!r}.")
    return dict(pairs)


def checked_layout(layout: str) -> RigLayout:
    """Return a layout.

    Raises:
        SettingError: It is none.
    """
    if layout == "stream/camera":
        return "stream/camera"
    if layout == "camera/stream":
        return "camera/stream"
    raise SettingError(f"`layout` must be 'stream/camera' or 'camera/stream', got {layout!r}.")


def _listed(what: str, names: Sequence[str]) -> str:
    named = sorted(names)[:_MOST_NAMED]
    more = f" and {len(names) - len(named)} more" if len(names) > len(named) else ""
    return f"are {len(names)} {what}s: {', '.join(map(repr, named))}{more}" if names else f"is no {what}"
