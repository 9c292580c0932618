# SPDX-License-Identifier: Apache-2.0
"""Finding of the files of a data set, by scan or from a cache."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, SupportsIndex

from ...errors import SettingError
from ...url_secrets import without_secrets
from .file_lock import making
from .file_scan import is_same_list, is_unchanged, list_given_files, read_list_file, scan_folders
from .file_table import FileTable, is_table_file
from .name_filter import NameFilter
from .storage import Storage, StoragePath, checked_path, parent_of

_logger = logging.getLogger(__name__)

FilePath = str | os.PathLike[str]


def find_files(
    file_root: StoragePath | None,
    file_list: StoragePath | None,
    files: FilePath | Iterable[FilePath] | None,
    labels: SupportsIndex | Iterable[SupportsIndex] | None,
    *,
    file_filters: str | Iterable[str],
    dir_filters: str | Iterable[str] | None,
    case_sensitive_filter: bool,
    storage_options: Mapping[str, Any] | None,
    cache_file: FilePath | None,
    refresh: bool,
) -> tuple[Storage, FileTable]:
    """Find the files of a data set: where they are, and their names there, with int32 labels.

    For arguments and errors see `FileDataProvider`.
    """
    _check_mode(file_root, file_list, files, labels)
    file_filter = NameFilter(file_filters, case_sensitive=case_sensitive_filter, argument="file_filters")
    folder_filter = None
    if dir_filters is not None:
        folder_filter = NameFilter(dir_filters, case_sensitive=case_sensitive_filter, argument="dir_filters")

    storage = Storage("" if file_root is None else file_root, storage_options)
    arguments: dict[str, Any]
    scan: Callable[[], FileTable]
    is_current: Callable[[FileTable], bool]
    if files is not None:
        given = list_given_files(files, labels)
        arguments, scan, is_current = {"files": given.digest()}, lambda: given, lambda table: True
    elif file_list is not None:
        folder, name = parent_of(checked_path(file_list, "file_list"))
        of_list = Storage(folder, storage_options)
        storage = of_list if file_root is None else storage
        arguments, scan = {"list": "labelled"}, functools.partial(read_list_file, of_list, name)
        is_current = functools.partial(is_same_list, of_list, name)
    else:
        arguments = {
            "root": without_secrets(storage.root) if storage.is_remote else os.path.abspath(storage.root),
            "file_filters": list(file_filter.patterns),
            "dir_filters": None if folder_filter is None else list(folder_filter.patterns),
            "case_sensitive_filter": bool(case_sensitive_filter),
        }
        scan = functools.partial(scan_folders, storage, file_filter, folder_filter)
        is_current = functools.partial(is_unchanged, storage)
    if cache_file is None:
        return storage, scan()
    return storage, _cached_table(cache_file, arguments, scan, is_current, refresh)


def _check_mode(file_root: StoragePath | None, file_list: object, files: object, labels: object) -> None:
    if files is not None and file_list is not None:
        raise SettingError("Files are named by `files` or by `file_list`, got both.")
    if labels is not None and files is None:
        raise SettingError("`labels` are those of `files`, got labels without files.")
    if files is None and file_list is None and file_root is None:
        raise SettingError("Give `file_root` (a folder of label folders), `file_list`, or `files`.")
    if file_root is not None and not checked_path(file_root, "file_root"):
        raise SettingError("`file_root` must not be empty; the current folder is '.'.")


def _cached_table(
    path: str | os.PathLike[str],
    arguments: Mapping[str, Any],
    scan: Callable[[], FileTable],
    is_current: Callable[[FileTable], bool],
    refresh: bool,
) -> FileTable:
    """Map the table in a file; scan and write it first if it is missing, out of date, or damaged.

    Of several processes one does so, and the others wait. Where another process has put another table there
    meanwhile, the table in memory is returned.

    Args:
        path: The file. A leading ``~`` is the home folder.
        arguments: What the result of the scan depends on, as values that JSON can hold (lists, no tuples).
        scan: Makes the table.
        is_current: Whether a table of the same arguments is what a scan would give.
        refresh: Scan in any case.
    """
    path = os.path.expanduser(path)

    def known_table(is_logged: bool = False) -> FileTable | None:
        known = _known_table(path, is_logged) if os.path.lexists(path) else None
        if known is not None and "arguments" not in known.notes:
            raise SettingError(
                f"`cache_file` {path!r} is a table of names, but not one that a scan has left there, so it is "
                f"left as it is. Name another file."
            )
        if refresh or known is None or known.notes["arguments"] != arguments or not is_current(known):
            return None
        return known

    known = known_table()
    if known is not None:
        return known
    with making(path):
        known = known_table(is_logged=True)
        if known is not None:
            return known
        table = scan()
        table = table.with_notes({**table.notes, "arguments": dict(arguments)})
        try:
            table.save(path)
        except SettingError as error:
            error.args = (f"{error} Make room, or name another file: `cache_file`.",)
            raise
        saved = FileTable.load(path)
    # Another process may meanwhile have written a table for other arguments.
    return saved if saved == table and saved.notes == table.notes else table


def _known_table(path: str, is_logged: bool) -> FileTable | None:
    """Map the table in a file; None if it is of another version or damaged, and can be replaced."""
    try:
        return FileTable.load(path)
    except SettingError as error:
        if not is_table_file(path):
            raise SettingError(
                f"`cache_file` must name a cache of this library, or no file yet; what is there is left as it is: "
                f"{error}"
            ) from error
        if is_logged:
            _logger.warning("Files are looked for again, and %r is replaced: %s", path, error)
        return None
