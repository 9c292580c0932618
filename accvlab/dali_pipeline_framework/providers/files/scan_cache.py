# SPDX-License-Identifier: Apache-2.0
"""A cache file for the result of a scan, for later and other processes."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from typing import Any

from ...errors import SettingError
from .file_table import FileTable, is_table_file

_logger = logging.getLogger(__name__)


def cached_table(
    path: str | os.PathLike[str],
    arguments: Mapping[str, Any],
    scan: Callable[[], FileTable],
    is_current: Callable[[FileTable], bool],
    *,
    refresh: bool = False,
) -> FileTable:
    """Map the table in a file; scan and write it first if it is missing, out of date, or damaged.

    Several processes may do so at the same time: the file is replaced as a whole.

    Args:
        path: The file. A leading ``~`` is the home folder.
        arguments: What the result of the scan depends on, as values that JSON can hold (lists, no tuples). A
            table of other arguments is out of date.
        scan: Makes the table.
        is_current: Whether a table of the same arguments is what a scan would give.
        refresh: Scan in any case.

    Returns:
        The table, mapped from the file; in memory where another process has put another table there meanwhile.

    Raises:
        SettingError: The file holds something else, which is not overwritten, or cannot be read or written.
    """
    path = os.path.expanduser(path)
    known = _known_table(path) if os.path.lexists(path) else None
    if known is not None:
        if "arguments" not in known.notes:
            raise SettingError(
                f"`cache_file` {path!r} is a table of names, but not one that a scan has left there, so it is "
                f"left as it is. Name another file."
            )
        if not refresh and known.notes["arguments"] == arguments and is_current(known):
            return known
    table = scan()
    table = table.with_notes({**table.notes, "arguments": dict(arguments)})
    table.save(path)
    saved = FileTable.load(path)
    # Another process may meanwhile have written a table for other arguments.
    return saved if saved == table and saved.notes == table.notes else table


def _known_table(path: str) -> FileTable | None:
    """Map the table in a file; None if it is of another version or damaged, and can be replaced."""
    try:
        return FileTable.load(path)
    except SettingError as error:
        if not is_table_file(path):
            raise SettingError(
                f"`cache_file` must name a cache of this library, or no file yet; what is there is left as it is: "
                f"{error}"
            ) from error
        _logger.warning("Files are looked for again, and %r is replaced: %s", path, error)
        return None
