# SPDX-License-Identifier: Apache-2.0
"""Finding the files of a data set and their labels, in the order of DALI's ``fn.readers.file``."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import SupportsIndex

from ...checks import shown, whole_number
from ...draws.keyed_random import hash_bytes
from ...errors import FileError, SettingError
from .file_table import FileTable, FileTableBuilder
from .name_filter import NameFilter
from .storage import Storage

DEFAULT_FILE_FILTERS: tuple[str, ...] = (
    "*.jpg", "*.jpeg", "*.png", "*.bmp", "*.tif", "*.tiff", "*.pnm", "*.ppm", "*.pgm", "*.pbm", "*.jp2", "*.webp",
    "*.flac", "*.ogg", "*.wav",
)  # fmt: skip
"""Patterns of the files that are listed if no others are given, as in DALI 2.4."""

_LARGEST_LABEL = 2**31 - 1
_COARSEST_CLOCK_NS = 2 * 10**9  # of a file system: FAT counts in steps of two seconds


def scan_folders(storage: Storage, file_filter: NameFilter, folder_filter: NameFilter | None = None) -> FileTable:
    """List the files of a folder whose subfolders are the labels.

    ``root/cat/1.jpg, root/dog/2.jpg`` become ``cat/1.jpg`` with label 0 and ``dog/2.jpg`` with label 1. As in
    DALI:

    - Folders are numbered in the order of the bytes of their names, and count also if no file of theirs
      matches. Folders that the filter leaves out do not count.
    - Within a folder, files follow in the order of the bytes of their names (``10.jpg`` before ``9.jpg``, capital
      letters before small ones).
    - Names that begin with a dot are names like others.
    - Files directly in the root, and folders within the label folders, are left out.
    - A link to a folder is a label folder. Within a label folder a link is a file, whatever it leads to: a loop
      of links has no effect until the file is read, and that fails.

    Args:
        storage: The root.
        file_filter: Which files are listed.
        folder_filter: Which folders are labels; None for all.

    Returns:
        Names relative to the root, int32 labels. The notes have ``classes``, the name of each label folder, and
        ``changed_ns``, when the root and each of them was last changed, see ``is_unchanged``.

    Raises:
        FileError: A folder cannot be read, or a link in the root leads nowhere.
        SettingError: No file matches.
    """
    builder = FileTableBuilder()
    changed_ns = [_settled_time_ns(storage, "")]
    at_top = [*storage.list_folder()]
    folders = [name for name, is_folder in at_top if is_folder]
    classes = [name for name in folders if folder_filter is None or folder_filter.matches(name)]
    classes.sort(key=os.fsencode)
    num_seen = 0
    for label, folder in enumerate(classes):
        changed_ns.append(_settled_time_ns(storage, folder))
        names: list[bytes] = []
        for name, is_folder in storage.list_folder(folder, follows_links=False):
            if is_folder:
                continue
            num_seen += 1
            if file_filter.matches(name):
                names.append(os.fsencode(name))
        start = os.fsencode(folder) + b"/"
        names.sort(reverse=True)
        while names:  # popped, so that the names are not held twice
            builder.add(start + names.pop(), label)
    if not len(builder):
        num_at_top = len(at_top) - len(folders)
        raise SettingError(_why_nothing_is_found(storage, file_filter, folders, classes, num_seen, num_at_top))
    return builder.finish({"classes": classes, "changed_ns": changed_ns})


def is_unchanged(storage: Storage, table: FileTable) -> bool:
    """Whether the folders of a table of `scan_folders` are unchanged, by their modification times.

    In remote folders nothing tells: they count as unchanged.
    """
    folders = ["", *table.notes["classes"]]
    try:
        return all(
            storage.modification_time_ns(folder) == changed_ns
            for folder, changed_ns in zip(folders, table.notes["changed_ns"], strict=True)
        )
    except FileError:
        return False


def _settled_time_ns(storage: Storage, name: str) -> int | None:
    """Get the modification time of a folder; None if it is so recent that another change may get the same."""
    changed_ns = storage.modification_time_ns(name)
    if changed_ns is None or changed_ns > time.time_ns() - _COARSEST_CLOCK_NS:
        return None
    return changed_ns


def read_list_file(storage: Storage, list_name: str) -> FileTable:
    """Read a list with one name and its label per line, with white space in between.

    As in DALI, a name is all that stands before the label but for white space at its end: it may contain white
    space and begin with it. Lines without text are skipped. There are no comments. Labels are digits.

    Unlike DALI: a byte order mark at the start is skipped (there it becomes a part of the first name), a label
    that does not fit into 32 bits is refused (there it becomes another one), and so is a line with a NUL (there
    it ends the line).

    Args:
        storage: Where the list is; names are not looked up.
        list_name: Name of the list.

    Returns:
        The names as they stand in the list, int32 labels.

    Raises:
        FileError: The list cannot be read.
        SettingError: A line is not as described, with its number, or there is none.
    """
    builder = FileTableBuilder()
    path = storage.path(list_name)
    with storage.open_binary(list_name) as lines:
        for number, line in enumerate(lines, start=1):
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            parts = line.rsplit(None, 1)
            if not parts:
                continue
            if len(parts) != 2 or not parts[1].isdigit() or b"\0" in line:
                raise SettingError(
                    f"{path!r}, line {number}: expected a file name, white space, and a label (a whole number "
                    f"of at least 0), got {_shown(line)}."
                )
            if len(parts[1].lstrip(b"0")) > 10 or int(parts[1]) > _LARGEST_LABEL:
                raise SettingError(
                    f"{path!r}, line {number}: a label must be at most {_LARGEST_LABEL}, got {_shown(parts[1])}."
                )
            builder.add(parts[0], int(parts[1]))
    if not len(builder):
        raise SettingError(f"The list {path!r} names no file: it must have one name and label per line.")
    return builder.finish()


def content_hash(storage: Storage, name: str) -> str:
    """Make a text that tells files of different content apart: 16 hexadecimal digits."""
    hashes = []
    with storage.open_binary(name) as file:
        while part := file.read(1 << 20):
            hashes.append(hash_bytes(part).to_bytes(8, "little"))
    return f"{hash_bytes(*hashes):016x}"


def list_given_files(
    files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    labels: SupportsIndex | Iterable[SupportsIndex] | None,
) -> FileTable:
    """Take names and labels that are given; without labels the label of a file is its position.

    Unlike DALI, labels that are no whole numbers of 32 bits are refused (there they are cut off).
    """
    names = [files] if isinstance(files, str | os.PathLike) else files
    if labels is None:
        builder = FileTableBuilder()
        for position, name in enumerate(names):
            builder.add(name, position)
        table = builder.finish()
    else:
        given = labels if isinstance(labels, Iterable) else [labels]
        table = FileTable.from_names(names, map(_checked_label, given))
    if not len(table):
        raise SettingError("`files` must name at least one file, got none.")
    return table


def _checked_label(label: SupportsIndex) -> int:
    try:
        return whole_number(label, "labels", at_least=-_LARGEST_LABEL - 1, at_most=_LARGEST_LABEL)
    except SettingError as error:
        raise SettingError(f"`labels` must be whole numbers in [-2**31, 2**31 - 1], got {label!r}.") from error


def _shown(text: bytes) -> str:
    return shown(os.fsdecode(text.rstrip()))


def _why_nothing_is_found(
    storage: Storage,
    file_filter: NameFilter,
    folders: list[str],
    classes: list[str],
    num_seen: int,
    num_at_top: int,
) -> str:
    text = f"No file is found in {storage.root!r}. "
    if not folders and not num_at_top:
        return text + "It is empty, and must have a subfolder for each label."
    if not folders:
        return text + (
            f"It must have a subfolder for each label, and has none, but {num_at_top} file(s), which are not "
            f"listed. Move them into subfolders, or name the files (by a list file, or one by one)."
        )
    if not classes:
        return text + f"None of its {len(folders)} subfolder(s) matches the `dir_filters`, e.g. {folders[0]!r}."
    below = (
        (folder, name)
        for folder in classes
        for name, is_folder in storage.list_folder(folder, follows_links=False)
        if is_folder
    )
    if not num_seen and (found := next(below, None)):
        folder, name = found
        return text + (
            f"Its {len(classes)} subfolder(s) have no files, but folders, e.g. {f'{folder}/{name}'!r}. If these "
            f"are the labels, the root is one level deeper: {storage.path(folder)!r}."
        )
    return text + (
        f"{len(classes)} label folder(s) have {num_seen} file(s), and none matches the `file_filters`: "
        f"{', '.join(file_filter.patterns)}."
    )
