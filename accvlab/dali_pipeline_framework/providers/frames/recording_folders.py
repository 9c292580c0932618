# SPDX-License-Identifier: Apache-2.0
"""Folders of recordings and cameras, and the frames in them."""

from __future__ import annotations

import os
from collections.abc import Sequence

import attrs

from ...checks import listed
from ...errors import SettingError
from ..files.storage import Storage
from .frame_folders import RigLayout

# Those that DALI's reader of sequences takes, in any case.
_EXTENSIONS = (
    ".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".pnm", ".ppm", ".pgm", ".pbm", ".jp2", ".webp",
)  # fmt: skip


@attrs.define
class RecordingFolders:
    """The folders of recordings below a root, and the frames in them. It looks when it is asked.

    Attributes:
        storage: The root.
        cameras: Names of the cameras and their folders; None where a recording has no folders for cameras.
        layout: Which folder is in which.
        num_skipped: Number of files that were left out since their extension is not that of an image.
        skipped: One of them.
    """

    storage: Storage
    cameras: dict[str, str] | None
    layout: RigLayout
    num_skipped: int = 0
    skipped: str = ""

    def recordings(self) -> list[str]:
        """List the names of the recordings, in the order in which DALI finds them; at least one."""
        if self.cameras is None or self.layout == "recording/camera":
            names = self._folders("")
        else:
            top = self._folders("")
            of_camera = {folder: self._folders_if_any(folder) for folder in self.cameras.values()}
            missing = [repr(folder) for folder, recordings in of_camera.items() if recordings is None]
            if missing:
                raise SettingError(
                    f"There is no folder {', '.join(missing)} (`cameras`) in {self.storage.root!r}. "
                    f"There {_listed(top)}."
                )
            names = [*{recording for recordings in of_camera.values() for recording in recordings or ()}]
        # DALI sorts whole paths, in which a "/" follows the folder.
        names.sort(key=lambda name: os.fsencode(name) + b"/")
        if not names:
            raise SettingError(self._why_there_is_no_recording())
        return names

    def folder(self, recording: str, camera: str | None) -> str:
        """Get the folder of a camera of a recording, relative to the root."""
        if camera is None or self.cameras is None:
            return recording
        folder = self.cameras[camera]
        return f"{recording}/{folder}" if self.layout == "recording/camera" else f"{folder}/{recording}"

    def frames(self, recording: str, camera: str | None) -> list[str] | None:
        """List the file names of the frames of a camera of a recording, in the order of their bytes.

        None where the recording has no folder of that camera.
        """
        folder = self.folder(recording, camera)
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
        except FileNotFoundError:
            if camera is None:
                raise
            return None
        names.sort(key=os.fsencode)
        return names

    def expected(self) -> str:
        """Describe the expected folders, for messages."""
        parts = ["<recording>"]
        if self.cameras is not None:
            parts.insert(self.layout == "recording/camera", "<camera>")
        return "/".join([self.storage.root, *parts, "<frame>.jpg"])

    def _folders(self, folder: str) -> list[str]:
        return [
            name for name, is_folder in self.storage.list_folder(folder) if is_folder and not name.startswith(".")
        ]

    def _folders_if_any(self, folder: str) -> list[str] | None:
        try:
            return self._folders(folder)
        except FileNotFoundError:
            return None

    def _why_there_is_no_recording(self) -> str:
        files = [name for name, is_folder in self.storage.list_folder() if not is_folder]
        found = "The root is empty."
        if self.layout == "camera/recording" and self.cameras is not None:
            found = "The folders of the cameras have no folders in them."
        elif files:
            found = (
                f"The root itself has {len(files)} file(s), e.g. {min(files)!r}: put the frames of each recording "
                f"into a folder of its own."
            )
        return f"There is no recording in {self.storage.root!r}: frames must lie as {self.expected()!r}. {found}"

    def why_there_is_no_frame(self, recordings: Sequence[str]) -> str:
        """Say why no recording has a frame."""
        recording = recordings[0]
        has_recordings_on_top = self.cameras is None or self.layout == "recording/camera"
        within = self._folders(recording) if has_recordings_on_top else []
        advice = "The folders are empty."
        if self.num_skipped:
            advice = f"Each file must have the extension of an image ({', '.join(_EXTENSIONS)})."
        if within and self.cameras is None:
            advice = (
                f"In {recording!r} {_listed(within)}: if these are cameras, name them with "
                f"`cameras={sorted(within)[:3]!r}`; if they are recordings, the root is "
                f"{self.storage.path(recording)!r}."
            )
        elif within:
            advice = f"`cameras` are {[*(self.cameras or {}).values()]!r}; in {recording!r} {_listed(within)}."
        skipped = f" {self.num_skipped} other file(s) or folder(s), e.g. {self.skipped!r}." if self.skipped else ""
        return (
            f"There is no frame in the {len(recordings)} recording(s) of {self.storage.root!r}: frames must lie "
            f"as {self.expected()!r}.{skipped} {advice}"
        )


def has_image_extension(name: str) -> bool:
    """Whether a file counts as a frame, by its extension."""
    return os.path.splitext(name)[1].lower() in _EXTENSIONS


def _listed(names: Sequence[str]) -> str:
    return f"are {len(names)} folders: {listed(map(repr, sorted(names)), 10)}" if names else "is no folder"
