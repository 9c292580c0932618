# SPDX-License-Identifier: Apache-2.0
"""Where indices are kept: made once for the files that a data set consists of, opened by all processes."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from accvlab.dali_pipeline_framework.checks import file_path
from accvlab.dali_pipeline_framework.errors import FileError, file_error
from accvlab.dali_pipeline_framework.extension import making

from .driving_index import VERSION, DrivingIndex

_ADVICE = "Make room, or name another folder: `index_cache`, or $ACCVLAB_INDEX_CACHE."

_logger = logging.getLogger(__name__)


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
        FileError: A source cannot be read, or the folder cannot be written.
    """
    states = []
    for source in sources:
        path = os.path.abspath(source)
        try:
            state = os.stat(path)
        except OSError as error:
            raise file_error(f"{path!r} cannot be read", error) from error
        states.append([os.fsencode(path).decode("latin-1"), state.st_size, state.st_mtime_ns])
    key = json.dumps([VERSION, states, settings], sort_keys=True, default=str)
    target = cache_folder(folder) / hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
    if _is_index(target):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        failed = file_error(f"The folder {str(target.parent)!r} of indices cannot be made", error)
        failed.args = (f"{failed} {_ADVICE}",)
        raise failed from error
    with making(target):
        if not _is_index(target):
            start_s = time.monotonic()
            index = make()
            try:
                index.save(target)
            except FileError as error:
                error.args = (f"{error} {_ADVICE}",)
                raise
            _logger.info(
                "Made the index %s of %d frames in %.1f s.", target, index.num_frames, time.monotonic() - start_s
            )
    return target


def _is_index(folder: Path) -> bool:
    # Apart from the making of one: its errors would have this one as their context, which is read first.
    try:
        DrivingIndex.open(folder)
    except FileError:
        return False
    return True


def cache_folder(folder: str | os.PathLike[str] | None) -> Path:
    """Where indices are kept."""
    if folder is not None:
        return Path(file_path(folder, "index_cache")).expanduser().absolute()
    given = os.environ.get("ACCVLAB_INDEX_CACHE")
    if given:
        return Path(given).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser().absolute() / "accvlab" / "driving"
