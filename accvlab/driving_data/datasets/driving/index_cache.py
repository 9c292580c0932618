# SPDX-License-Identifier: Apache-2.0
"""Where indices are kept: made once for the files that a data set consists of, opened by all processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from accvlab.dali_pipeline_framework.checks import file_path
from accvlab.dali_pipeline_framework.errors import file_error
from accvlab.dali_pipeline_framework.providers import load_or_make

from .driving_index import DrivingIndex

_SETTING = "`index_cache` (or $ACCVLAB_INDEX_CACHE)"


def cached_index(
    make: Callable[[], DrivingIndex],
    sources: Iterable[str | os.PathLike[str]],
    settings: Mapping[str, Any],
    folder: str | os.PathLike[str] | None,
) -> Path:
    """Get the folder of the index of some files; it is made where it is not there, by one of several processes.

    An index counts as long as path, size and time of change of the files, and the settings, are what they were.

    Args:
        make: Makes the index.
        sources: The files that it is made of.
        settings: What else it depends on: anything that JSON holds.
        folder: Where indices are kept; None for ``$ACCVLAB_INDEX_CACHE``, or else ``accvlab/driving`` in
            ``$XDG_CACHE_HOME`` or ``~/.cache``.

    Raises:
        FileError: A source cannot be read.
        SettingError: The folder of indices cannot be written.
    """
    states = []
    for source in sources:
        path = os.path.abspath(source)
        try:
            state = os.stat(path)
        except OSError as error:
            raise file_error(f"{path!r} cannot be read", error) from error
        states.append([os.fsdecode(path), state.st_size, state.st_mtime_ns])

    def load(found: str) -> Path:
        DrivingIndex.open(found)
        return Path(found)

    return load_or_make(cache_folder(folder), [states, settings], load, lambda: make().columns(), setting=_SETTING)


def cache_folder(folder: str | os.PathLike[str] | None) -> Path:
    """Where indices are kept."""
    if folder is not None:
        return Path(file_path(folder, "index_cache")).expanduser().absolute()
    given = os.environ.get("ACCVLAB_INDEX_CACHE")
    if given:
        return Path(given).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser().absolute() / "accvlab" / "driving"
