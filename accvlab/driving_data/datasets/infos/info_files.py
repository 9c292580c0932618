# SPDX-License-Identifier: Apache-2.0
"""Where the files are that a pickle names: its paths are those of the machine where it was made."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from accvlab.dali_pipeline_framework.errors import FileError
from accvlab.dali_pipeline_framework.providers import Storage

# Per folder that appears in a pickle, so many files are looked for before it counts as not there.
_MOST_LOOKED_FOR = 3


class FileResolver:
    """Names of files relative to a root, of paths in a pickle.

    What is tried, for the first files of each folder that appears in the pickle, in this order:

    1. the path below the root, then without its first parts, one after the other (``./data/nuscenes/samples/...``
       as ``samples/...``),
    2. for a name without folders, or at last, the name in ``samples/SENSOR``, ``sweeps/SENSOR`` and ``SENSOR``,
    3. an absolute path as it is.
    """

    def __init__(self, storage: Storage) -> None:
        """Name the root."""
        self._storage = storage
        self._folders: dict[tuple[str, str], tuple[str, ...]] = {}
        self._target: dict[tuple[str, str], str | None] = {}
        self.unresolved: dict[str, list[str]] = {}

    def resolved(self, paths: Sequence[str], sensor: str) -> list[str]:
        """Get the names of files of one sensor. Those of folders that are not found stay as they are."""
        split = [posixpath.split(path.replace("\\", "/")) for path in paths]
        samples: dict[str, list[str]] = {}
        for folder, name in split:
            if (folder, sensor) not in self._target:
                found = samples.setdefault(folder, [])
                if name and len(found) < _MOST_LOOKED_FOR:
                    found.append(name)
        for folder, names in samples.items():
            self._target[folder, sensor] = self._located(folder, names, sensor)
        return [_joined(self._target[folder, sensor], folder, name) for folder, name in split]

    def _located(self, folder: str, names: Sequence[str], sensor: str) -> str | None:
        candidates = _candidates(folder, sensor)
        for name in names:
            for candidate in candidates:
                if self._has(posixpath.join(candidate, name)):
                    return candidate
        if names:
            tried = [self._storage.path(posixpath.join(candidate, names[0])) for candidate in candidates]
            self.unresolved.setdefault(sensor, [posixpath.join(folder, names[0]), *tried])
        return None

    def _has(self, name: str) -> bool:
        try:
            if self._storage.is_remote:
                self._storage.version(name)
            else:
                self._storage.open_binary(name).close()
        except FileError:
            return False
        return True


def _joined(target: str | None, folder: str, name: str) -> str:
    if not name:
        return ""
    return posixpath.join(folder if target is None else target, name)


def _candidates(folder: str, sensor: str) -> list[str]:
    is_absolute = folder.startswith("/") or "://" in folder or folder[1:2] == ":"
    parts = [
        part for part in folder.partition("://")[2 if "://" in folder else 0].split("/") if part not in ("", ".")
    ]
    below = ["/".join(parts[start:]) for start in range(len(parts))]
    named = [f"samples/{sensor}", f"sweeps/{sensor}", sensor, ""]
    return list(dict.fromkeys([*below, *named, *([folder] if is_absolute else [])]))
