# SPDX-License-Identifier: Apache-2.0
"""Finding the files of a data set and their labels, in the order of `fn.readers.file`; a table that holds them."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, SupportsIndex

import numpy as np
import numpy.typing as npt

from ...checks import elements, index_in, setting_error, shown, whole_number
from ...errors import FileError, SettingError
from .storage import Storage

_LARGEST_LABEL = 2**31 - 1
_MOST_SUGGESTED = 8

LabelArray = npt.NDArray[np.int32]
FileName = str | bytes | os.PathLike[str] | os.PathLike[bytes]


class FileTable:
    """A list of file names, to which names can be appended. Give each a label (a whole number), or none.

    All names are in one buffer, one after the other::

        names    | a . j p g b b . j p g          |  (num_bytes,) uint8
        offsets  | 0         5           11       |  (N + 1,) int64
        labels   |     0           1              |  (N,) int32, or empty

    A name takes its bytes and 8 more (12 with a label), and a table is a few arrays instead of many Python
    objects. Names are bytes as the file system has them (``os.fsencode``), so they need not be valid UTF-8.

    Attributes:
        notes: Further values by name.

    Example:
        >>> table = FileTable.from_names(["a.jpg", "bb.jpg"], labels=[0, 1])
        >>> len(table), table.name(1), table.label(1)
        (2, 'bb.jpg', 1)
        >>> table
        FileTable(2 names, labels in [0, 1])
    """

    def __init__(self) -> None:
        """Start without names."""
        self._names, self._offsets, self._labels = bytearray(), array("q", [0]), array("i")
        self.notes: dict[str, Any] = {}

    @classmethod
    def from_names(cls, names: Iterable[FileName], labels: Iterable[SupportsIndex] | None = None) -> FileTable:
        """Make a table of names. An iterator is read once and never held as a list.

        Args:
            names: The names.
            labels: A label for each name, a whole number that fits into int32.

        Raises:
            SettingError: The numbers of names and labels differ, a name is not valid, or a label is not a whole
                number that fits into int32.
        """
        table, rest = cls(), iter(() if labels is None else labels)
        for name in names:
            table._append(name, next(rest, None))
        has_too_few = labels is not None and len(table) != len(table._labels)
        if has_too_few or next(rest, None) is not None:
            counts = f"{len(table)} name(s) and {'fewer' if has_too_few else 'more'} labels"
            raise SettingError(f"There must be one label for each name, got {counts}.")
        return table

    def add(self, name: FileName, label: SupportsIndex | None = None) -> None:
        """Append a name, with its label if the table has labels; for errors see `from_names`."""
        if len(self) and (label is not None) != bool(self._labels):
            rule = "Each name of a table has a label, or none has"
            raise SettingError(f"{rule}, got {name!r} with the label {label} as the name {len(self)}.")
        self._append(name, label)

    def _append(self, name: FileName, label: SupportsIndex | None) -> None:
        try:
            encoded = os.fsencode(name)
        except (TypeError, UnicodeEncodeError) as error:
            rule = f"Name {len(self)} must be a str, bytes or a path"
            raise SettingError(f"{rule}, got {name!r}: {error}.") from error
        if label is not None:
            most = _LARGEST_LABEL
            self._labels.append(whole_number(label, "labels", at_least=-most - 1, at_most=most))
        self._names += encoded
        self._offsets.append(len(self._names))

    @property
    def labels(self) -> LabelArray | None:
        """``(N,)`` int32, read-only; None in a table without labels. While the array exists, `add` is an error."""
        if not self._labels:
            return None
        labels = np.frombuffer(self._labels, np.int32)
        labels.flags.writeable = False
        return labels

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def name(self, index: SupportsIndex) -> str:
        """Get a name as text (``os.fsdecode``); an index outside of ``[0, len)`` raises an IndexError."""
        number = index_in(index, "index", len(self))
        return os.fsdecode(bytes(self._names[self._offsets[number] : self._offsets[number + 1]]))

    def label(self, index: SupportsIndex) -> int:
        """Get the label of a name; errors as for `name`, and a `SettingError` if the table has no labels."""
        if not self._labels:
            raise SettingError("The table has no labels: make it with `labels`.")
        return self._labels[index_in(index, "index", len(self))]

    def __iter__(self) -> Iterator[str]:
        return map(self.name, range(len(self)))

    def __repr__(self) -> str:
        count = f"{len(self)} name{'' if len(self) == 1 else 's'}"
        labels = f", labels in [{min(self._labels)}, {max(self._labels)}]" if self._labels else ""
        return f"FileTable({count}{labels})"


_FNM_CASEFOLD = 1 << 4
_SPECIAL = frozenset("*?[\\")


class NameFilter:
    """Patterns for names: a name passes if the whole name matches at least one pattern.

    As in DALI, the function ``fnmatch(3)`` of the C library matches them, without flags except for letter case.
    ``*`` matches any text and ``?`` any character, also a leading dot; ``[a-z]``, ``[!a-z]``, ``[^a-z]`` and
    ``[[:digit:]]`` match one character of a set; a backslash escapes the next character.

    Objects are immutable and can be pickled.

    Attributes:
        patterns: The patterns.
    """

    def __init__(self, patterns: str | Iterable[str], *, case_sensitive: bool, argument: str) -> None:
        """Compile the patterns.

        Args:
            patterns: One pattern or several.
            case_sensitive: Whether upper and lower case differ.
            argument: Name of the argument that gave the patterns, for messages.
        """
        given = [patterns] if isinstance(patterns, str) else elements(patterns)
        if given == []:
            raise SettingError(f"`{argument}` must have at least one pattern, such as '*', got none.")
        self._encoded: list[bytes] = []
        for pattern in [patterns] if given is None else given:
            try:
                if not isinstance(pattern, str) or "\0" in pattern:
                    raise TypeError("no name of a file")
                self._encoded.append(os.fsencode(pattern))
            except (TypeError, UnicodeEncodeError) as error:
                raise setting_error(argument, "texts such as '*.jpg'", pattern) from error
        self.patterns: Final[tuple[str, ...]] = tuple(given or ())
        self._flags = 0 if case_sensitive else _FNM_CASEFOLD
        # Most patterns are suffixes: `endswith` checks all of these at once.
        self._suffixes = tuple(self._folded(pattern[1:]) for pattern in self.patterns if _is_suffix(pattern))

    def _folded(self, text: str) -> str:
        return text.lower() if self._flags else text

    def matches(self, name: str) -> bool:
        """Whether a name matches at least one of the patterns."""
        if name.isascii() and self._folded(name).endswith(self._suffixes):
            return True
        match, encoded = _fnmatch(), os.fsencode(name)
        return any(match(pattern, encoded, self._flags) == 0 for pattern in self._encoded)


def _is_suffix(pattern: str) -> bool:
    return pattern[:1] == "*" and pattern.isascii() and _SPECIAL.isdisjoint(pattern[1:])


@functools.cache
def _fnmatch() -> Callable[[bytes, bytes, int], int]:
    function = ctypes.CDLL(None).fnmatch
    function.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int]
    function.restype = ctypes.c_int
    return function


IMAGE_EXTENSIONS: Final = (
    ".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".pnm", ".ppm", ".pgm", ".pbm", ".jp2", ".webp",
)  # fmt: skip
"""Of DALI's reader of sequences, in lower and upper case."""

DEFAULT_FILE_FILTERS: tuple[str, ...] = (*(f"*{end}" for end in IMAGE_EXTENSIONS), "*.flac", "*.ogg", "*.wav")
"""Default patterns of the files that are listed, as in DALI 2.4."""


def scan_folders(storage: Storage, file_filter: NameFilter, folder_filter: NameFilter | None = None) -> FileTable:
    """List the files of a folder whose subfolders are the labels.

    ``root/cat/1.jpg, root/dog/2.jpg`` become ``cat/1.jpg`` with label 0 and ``dog/2.jpg`` with label 1. As in
    DALI:

    - Label folders are sorted by the bytes of their names, and numbered from 0. A folder without a matching file
      has a number, too; a folder that the filter leaves out has none.
    - The files in a label folder are sorted by the bytes of their names: ``10.jpg`` before ``9.jpg``, capital
      letters before small ones.
    - Names that begin with a dot are names like others.
    - Files directly in the root are left out, and so are folders within label folders.
    - In the root, a link to a folder is a label folder. In a label folder, each link is a file: if its target
      cannot be read, the error comes when the sample is loaded.

    Args:
        storage: The root.
        file_filter: Which files are listed.
        folder_filter: Which folders are labels; None for all.

    Returns:
        Names relative to the root, and int32 labels. ``notes["classes"]`` has the names of the label folders.

    Raises:
        FileError: A folder cannot be read, or a link in the root leads nowhere.
        SettingError: No file matches.
    """
    table = FileTable()
    folders = [name for name, is_folder in storage.list_folder() if is_folder]
    classes = [name for name in folders if folder_filter is None or folder_filter.matches(name)]
    classes.sort(key=os.fsencode)
    num_seen = 0
    for label, folder in enumerate(classes):
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
            table.add(start + names.pop(), label)
    if not len(table):
        raise SettingError(
            f"No file is found in {storage.shown()}: it must have a folder for each label, with the files in it. "
            f"It has {len(folders)} folder(s), {len(classes)} of them matching `dir_filters`, with {num_seen} "
            f"file(s) in them, none of which matches `file_filters`: {', '.join(file_filter.patterns)}."
            f"{'' if storage.is_remote else _advice_for_root(storage, sorted(folders), file_filter)}"
        )
    table.notes["classes"] = classes
    return table


def _advice_for_root(storage: Storage, folders: Sequence[str], file_filter: NameFilter) -> str:
    """Suggest a folder of the root as the root, if one of the first has a folder with a matching file."""
    with contextlib.suppress(FileError):
        for folder in folders[:_MOST_SUGGESTED]:
            inner = [name for name, is_folder in storage.list_folder(folder, follows_links=False) if is_folder]
            for name in inner[:_MOST_SUGGESTED]:
                files = storage.list_folder(f"{folder}/{name}", follows_links=False)
                if any(file_filter.matches(file) for file, is_folder in files if not is_folder):
                    return f" Is the root e.g. {storage.path(folder)!r}, with its folders as labels?"
    return ""


def read_list_file(storage: Storage, list_name: str) -> FileTable:
    """Read a list file. Each line has a name, white space, and a label.

    As in DALI, the label is the last word of the line, and consists of digits. The name is all that precedes the
    white space before the label, so a name may contain white space, also at its start. Lines without text are
    skipped. There are no comments.

    Three things differ from DALI:

    - A byte order mark at the start is skipped. DALI takes it for a part of the first name.
    - A label that does not fit into int32 is refused. DALI reads another number.
    - A line with a NUL character is refused. For DALI, the line ends there.

    Args:
        storage: Folder of the list; the named files are not accessed.
        list_name: Name of the list.

    Returns:
        The names as in the list, int32 labels.

    Raises:
        FileError: The list cannot be read.
        SettingError: A line is not as described (the message has its number), or the list has no line.
    """
    table = FileTable()
    path = storage.shown(list_name)
    with storage.open_binary(list_name) as lines:
        for number, line in enumerate(lines, start=1):
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            parts = line.rsplit(None, 1)
            if not parts:
                continue
            if len(parts) != 2 or not parts[1].isdigit() or b"\0" in line:
                found = f"a label (a whole number of at least 0), got {_shown(line)}."
                raise SettingError(f"{path}, line {number}: expected a file name, white space, and {found}")
            if len(parts[1].lstrip(b"0")) > 10 or int(parts[1]) > _LARGEST_LABEL:
                rule = f"a label must be at most {_LARGEST_LABEL}"
                raise SettingError(f"{path}, line {number}: {rule}, got {_shown(parts[1])}.")
            table.add(parts[0], int(parts[1]))
    if not len(table):
        raise SettingError(f"The list {path} names no file: it must have one name and label per line.")
    return table


def _shown(text: bytes) -> str:
    return shown(os.fsdecode(text.rstrip()))
