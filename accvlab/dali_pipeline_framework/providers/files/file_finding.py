# SPDX-License-Identifier: Apache-2.0
"""Finding of the files of a data set, by scan or from a cache."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, SupportsIndex

from ...errors import SettingError
from ...url_secrets import without_secrets
from .columns import load_or_make
from .file_scan import content_hash, is_unchanged, list_given_files, read_list_file, scan_folders
from .file_table import FileTable
from .name_filter import NameFilter
from .storage import Storage, StoragePath, checked_path, parent_of

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
    index_cache: FilePath | None,
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
    scan: Callable[[], FileTable]
    key: Callable[[], Any]
    if files is not None:
        given = list_given_files(files, labels)
        scan, key = lambda: given, given.digest
    elif file_list is not None:
        folder, name = parent_of(checked_path(file_list, "file_list"))
        of_list = Storage(folder, storage_options)
        storage = of_list if file_root is None else storage
        scan, key = (
            functools.partial(read_list_file, of_list, name),
            functools.partial(content_hash, of_list, name),
        )
    else:
        scan = functools.partial(scan_folders, storage, file_filter, folder_filter)
        root = without_secrets(storage.root) if storage.is_remote else os.path.abspath(storage.root)
        folders = None if folder_filter is None else folder_filter.patterns
        settings = [root, file_filter.patterns, folders, bool(case_sensitive_filter)]
        key = settings.copy
    if index_cache is None:
        return storage, scan()

    def is_current(table: FileTable) -> bool:
        return not refresh and ("classes" not in table.notes or is_unchanged(storage, table))

    table = load_or_make(
        index_cache, ["files", key()], FileTable.load, lambda: scan().columns(), is_current=is_current
    )
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
