# SPDX-License-Identifier: Apache-2.0
"""Whether files of a data set exist."""

from __future__ import annotations

import os

from accvlab.dali_pipeline_framework.extension import StoredFile


class ListedFiles:
    """Whether files exist, by lists of their folders and archives, each of which is read once."""

    def __init__(self) -> None:
        """Begin without lists."""
        self._names: dict[str, set[str]] = {}

    def has(self, file: StoredFile) -> bool:
        """Whether there is a file."""
        storage, (folder, _, name) = file.storage, file.name.rpartition("/")
        if storage.is_remote and not os.fspath(file).startswith("zip://"):
            return storage.exists(file.name)
        if folder not in self._names:
            try:
                entries = storage.list_folder(f"{folder}/" if folder else "")
                self._names[folder] = {entry.name for entry in entries if not entry.is_folder}
            except (FileNotFoundError, NotADirectoryError):
                self._names[folder] = set()
        return name in self._names[folder]

    def has_any(self, file: StoredFile) -> bool:
        """Whether there is any file next to one that was looked for."""
        return bool(self._names.get(file.name.rpartition("/")[0]))
