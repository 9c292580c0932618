# SPDX-License-Identifier: Apache-2.0
"""The result of a scan in a file, so that later runs and other processes need not scan."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.inputs.files.file_table import FileTable


def cached_table(
    path: str | os.PathLike[str],
    arguments: Mapping[str, Any],
    scan: Callable[[], FileTable],
    is_current: Callable[[FileTable], bool],
    *,
    refresh: bool = False,
) -> FileTable:
    """Map the table in a file; scan and write it first where it is not there or out of date.

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
        SettingError: The file holds something else, which is not overwritten, is damaged, or cannot be written.
    """
    path = os.path.expanduser(path)
    if os.path.lexists(path):
        table = FileTable.load(path)
        if "arguments" not in table.notes:
            raise SettingError(
                f"{path!r} is a table of names, but not one that a scan has left there. Name another file, or "
                f"remove it."
            )
        if not refresh and table.notes["arguments"] == arguments and is_current(table):
            return table
    table = scan()
    table = table.with_notes({**table.notes, "arguments": dict(arguments)})
    table.save(path)
    saved = FileTable.load(path)
    # Another process may have put a table of other arguments there meanwhile.
    return saved if saved == table and saved.notes == table.notes else table
