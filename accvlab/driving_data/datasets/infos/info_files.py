# SPDX-License-Identifier: Apache-2.0
"""Info pickles as files: loading of plain values without running code, and where the files are that they name.

Pickles name files by the paths of the machine where they were made.
"""

from __future__ import annotations

import contextlib
import gc
import os
import posixpath
from collections.abc import Iterator, Sequence
from typing import Any

from accvlab.dali_pipeline_framework.errors import FileError, file_error
from accvlab.dali_pipeline_framework.extension import open_table
from accvlab.dali_pipeline_framework.providers import Storage

from .pickled_values import DamagedError, NotPlainError, unpickled

# Per folder that appears in a pickle, about so many files are looked for before it counts as not there.
_MOST_LOOKED_FOR = 12
# Bytes by which text is recognised.
_MOST_LOOKED_AT = 512


class FileResolver:
    """Finds the folders below a root that are meant by those in a pickle.

    What is tried, for the first and some others of the files of each folder, in this order:

    1. the path below the root, then without its first parts, one after the other (``./data/nuscenes/samples/...``
       as ``samples/...``),
    2. for a name without folders, or at last, the name in ``samples/SENSOR``, ``sweeps/SENSOR`` and ``SENSOR``,
    3. an absolute path as it is.
    """

    def __init__(self, storage: Storage) -> None:
        """Name the root."""
        self._storage = storage

    def folders(self, names: Sequence[str], sensor: str) -> dict[str, str]:
        """Get, by each folder in the names of files of a sensor, the folder that is meant, where there is one."""
        files: dict[str, list[str]] = {}
        for name in names:
            folder, _, file = name.rpartition("/")
            files.setdefault(folder, []).append(file)
        found = {folder: self._located(folder, own, sensor) for folder, own in files.items()}
        return {folder: target for folder, target in found.items() if target is not None}

    def tried(self, name: str, sensor: str) -> list[str]:
        """Where a file was looked for."""
        folder, file = posixpath.split(name)
        return [self._storage.path(posixpath.join(candidate, file)) for candidate in _candidates(folder, sensor)]

    def _located(self, folder: str, files: Sequence[str], sensor: str) -> str | None:
        candidates, step = _candidates(folder, sensor), max(len(files) // (_MOST_LOOKED_FOR - 2), 1)
        for file in dict.fromkeys([*files[:2], *files[::step]]):
            for candidate in candidates:
                if self._has(posixpath.join(candidate, file)):
                    return candidate
        return None

    def _has(self, name: str) -> bool:
        try:
            self._storage.state(name)  # not opened: what cannot be read, e.g. a pointer of Git LFS, is there
            return self._storage.is_remote or not self._storage.is_folder(name)
        except FileError:
            return False


def _candidates(folder: str, sensor: str) -> list[str]:
    is_absolute = folder.startswith("/") or "://" in folder or folder[1:2] == ":"
    parts = [
        part for part in folder.partition("://")[2 if "://" in folder else 0].split("/") if part not in ("", ".")
    ]
    below = ["/".join(parts[start:]) for start in range(len(parts))]
    named = [f"samples/{sensor}", f"sweeps/{sensor}", sensor, ""]
    return list(dict.fromkeys([*below, *named, *([folder] if is_absolute else [])]))


@contextlib.contextmanager
def plain_pickle(path: str | os.PathLike[str]) -> Iterator[Any]:
    """Load a pickle of lists, tuples, dicts, numbers, texts, bytes, None, and arrays and scalars of NumPy 1 or 2.

    Arrays are of numbers, texts, bytes or objects; each is a `StoredArray`, and checked when it is used, in the
    block. No code that the pickle names is imported or run; the time and memory that it takes are not limited.

    Raises:
        FileError: It cannot be read, is damaged, or holds anything else; so is an array that the block uses.
    """
    text = os.fspath(path)
    try:
        yield _loaded(text)
    except NotPlainError as error:
        raise FileError(
            f"The pickle {text!r} holds {error}: only plain values are loaded (list, tuple, dict, numbers, str, "
            f"bytes, None, NumPy arrays), since anything else could run code. Nothing of it was imported. If you "
            f"trust the file, load it with `pickle.load` where that class is installed, put plain values in its "
            f"place, and write it again."
        ) from error
    except DamagedError as error:
        if _is_text(text):
            raise FileError(f"{text!r} is no pickle, but text ({error}). Give the pickle.") from error
        raise FileError(
            f"The pickle {text!r} is cut short, damaged, or no pickle ({error}). Copy or make it again."
        ) from error


@contextlib.contextmanager
def no_garbage_collected() -> Iterator[None]:
    """Let Python not look for reference cycles: among a million new objects that takes most of the time.

    For a whole function: where they are still there at the end, the search is only late.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _loaded(path: str) -> Any:
    try:
        with open_table(path) as file:
            return unpickled(file)
    except OSError as error:
        raise file_error(f"The pickle {path!r} cannot be read", error) from error


def _is_text(path: str) -> bool:
    """Whether a file begins with what no pickle has: printable text alone."""
    with open_table(path) as file:
        start = file.read(_MOST_LOOKED_AT)
    try:
        # A character may be cut at the end.
        text = start.decode("utf-8", "strict" if len(start) < _MOST_LOOKED_AT else "ignore")
    except UnicodeDecodeError:
        return False
    return bool(text.strip()) and all(one.isprintable() or one in "\r\n\t" for one in text)
