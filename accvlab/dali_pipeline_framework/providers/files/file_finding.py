# SPDX-License-Identifier: Apache-2.0
"""Finding of the files of a data set, by scan or from a cache."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, SupportsIndex

from ...errors import SettingError
from .file_scan import content_hash, is_unchanged, list_given_files, read_list_file, scan_folders
from .file_table import FileTable, is_table_file
from .name_filter import NameFilter
from .storage import Storage, StoragePath, checked_path, parent_of

_logger = logging.getLogger(__name__)

FilePath = str | os.PathLike[str]
_Cache = Callable[[Mapping[str, Any], Callable[[], FileTable], Callable[[FileTable], bool]], FileTable]


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

    def cached(
        arguments: Mapping[str, Any], scan: Callable[[], FileTable], is_current: Callable[[FileTable], bool]
    ) -> FileTable:
        if cache_file is None:
            return scan()
        return _cached_table(cache_file, arguments, scan, is_current, refresh=refresh)

    if files is not None:
        given = list_given_files(files, labels)
        storage = Storage("" if file_root is None else file_root, storage_options)
        return storage, cached({"files": given.digest()}, lambda: given, lambda table: True)
    if file_list is not None:
        return _files_of_list(checked_path(file_list, "file_list"), file_root, storage_options, cached)
    storage = Storage("" if file_root is None else file_root, storage_options)
    arguments = {
        "root": storage.root if storage.is_remote else os.path.abspath(storage.root),
        "file_filters": list(file_filter.patterns),
        "dir_filters": None if folder_filter is None else list(folder_filter.patterns),
        "case_sensitive_filter": bool(case_sensitive_filter),
    }
    table = cached(
        arguments,
        lambda: scan_folders(storage, file_filter, folder_filter),
        lambda table: is_unchanged(storage, table),
    )
    return storage, table


def _files_of_list(
    file_list: str, file_root: StoragePath | None, storage_options: Mapping[str, Any] | None, cached: _Cache
) -> tuple[Storage, FileTable]:
    folder, list_name = parent_of(file_list)
    list_storage = Storage(folder, storage_options)
    storage = list_storage if file_root is None else Storage(file_root, storage_options)

    def is_current(table: FileTable) -> bool:
        return bool(table.notes.get("content") == content_hash(list_storage, list_name))

    table = cached({"list": "labelled"}, lambda: read_list_file(list_storage, list_name), is_current)
    return storage, table


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
    *,
    refresh: bool = False,
) -> FileTable:
    """Map the table in a file; scan and write it first if it is missing, out of date, or damaged.

    Several processes may do so at the same time: the file is replaced as a whole. Where another process has put
    another table there meanwhile, the table in memory is returned.

    Args:
        path: The file. A leading ``~`` is the home folder.
        arguments: What the result of the scan depends on, as values that JSON can hold (lists, no tuples).
        scan: Makes the table.
        is_current: Whether a table of the same arguments is what a scan would give.
        refresh: Scan in any case.
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
