# SPDX-License-Identifier: Apache-2.0
"""A compact table of names, which several processes map."""

from __future__ import annotations

import functools
import itertools
import operator
import os
from array import array
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from ...checks import index_in
from ...draws.keyed_draws import hash_bytes
from ...errors import SettingError
from .columns import Columns

UInt8Array = npt.NDArray[np.uint8]
Int64Array = npt.NDArray[np.int64]
LabelArray = npt.NDArray[np.int32] | npt.NDArray[np.int64]
FileName = str | bytes | os.PathLike[str] | os.PathLike[bytes]

_KIND = "table of names"
_CHUNK = 1 << 20


class FileTable:
    """An immutable list of names, each with a whole number as label if wanted.

    All names stand in one buffer, one after the other::

        names    | a . j p g b b . j p g          |  (num_bytes,) uint8
        offsets  | 0         5           11       |  (N + 1,) int64
        labels   |     0           1              |  (N,) int32 or int64, or None

    So a name costs its bytes and eight more, and a table is a few arrays instead of many Python objects. Names
    are bytes as the file system has them (``os.fsencode``), so there is none that a table cannot hold.

    A table that was loaded from a folder is mapped, not read, and is pickled as the path of that folder: all
    workers of a machine share its memory.

    Example:
        >>> table = FileTable.from_names(["a.jpg", "bb.jpg"], labels=[0, 1])
        >>> len(table), table.name(1), table.label(1)
        (2, 'bb.jpg', 1)
        >>> table[1:]
        FileTable(1 name, labels in [1, 1])
    """

    def __init__(
        self,
        names: UInt8Array,
        offsets: Int64Array,
        labels: LabelArray | None = None,
        *,
        notes: Mapping[str, Any] | None = None,
    ) -> None:
        """Make a table of arrays, which are not copied and must not change. See `from_names` for lists.

        Args:
            names: ``(num_bytes,)`` uint8, the bytes of all names.
            offsets: ``(N + 1,)`` int64, where each name starts, and where the last ends; not decreasing.
            labels: ``(N,)`` int32 or int64, or None.
            notes: What else is to be kept with the table: anything that JSON can hold.
        """
        _check_arrays(names, offsets, labels)
        self._names = _read_only(names[offsets[0] : offsets[-1]])
        self._offsets = _read_only(offsets - offsets[0] if offsets[0] else offsets)
        self._labels = None if labels is None else _read_only(labels)
        self._notes = dict(notes or {})
        self._saved: tuple[str, str] | None = None  # folder, checksum
        self._digest: str | None = None

    @classmethod
    def from_names(
        cls,
        names: Iterable[FileName],
        labels: Iterable[SupportsIndex] | None = None,
        *,
        notes: Mapping[str, Any] | None = None,
    ) -> FileTable:
        """Make a table of names. An iterator is read once and never held as a list.

        Args:
            names: The names.
            labels: One whole number for each; int32 if all of them fit, else int64.
            notes: What else is to be kept with the table.

        Raises:
            SettingError: There are more names than labels or the reverse, a name is no name, or a label no
                whole number of at most 64 bits.
        """
        if isinstance(names, str | bytes | os.PathLike):
            raise SettingError(f"`names` must be an iterable of names, got one: {names!r}. Write [{names!r}].")
        builder = FileTableBuilder()
        rest = iter(() if labels is None else labels)
        for name in names:
            builder.add(name, next(rest, None))
        has_too_few = labels is not None and len(builder) != builder.num_labels
        if has_too_few or next(rest, None) is not None:
            raise SettingError(
                f"There must be one label for each name, got {len(builder)} name(s) and "
                f"{'fewer' if has_too_few else 'more'} labels."
            )
        return builder.finish(notes)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> FileTable:
        """Map a table that `save` has written.

        Raises:
            FileError: There is no table of this version, or it is damaged: its content is read once to find that
                out.
        """
        return _table_of(Columns.open(folder, _KIND))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the table to a folder, see `load`.

        Raises:
            FileError: It cannot be written.
            SettingError: The notes are nothing that JSON can hold.
        """
        self.columns().save(folder)

    def columns(self) -> Columns:
        """Get what is saved."""
        arrays = {"names": self._names, "offsets": self._offsets, "labels": self._labels}
        kept = {name: array for name, array in arrays.items() if array is not None}
        return Columns(_KIND, kept, {"notes": self._notes, "digest": self.digest()})

    @property
    def labels(self) -> LabelArray | None:
        """``(N,)`` int32 or int64, read-only; None in a table without labels."""
        return self._labels

    @property
    def notes(self) -> Mapping[str, Any]:
        """Metadata that is stored with the table."""
        return MappingProxyType(self._notes)

    @property
    def folder(self) -> str | None:
        """The folder that the table is mapped from, None for one in memory."""
        return None if self._saved is None else self._saved[0]

    @property
    def num_bytes(self) -> int:
        """Size of the table in bytes."""
        size = self._names.nbytes + self._offsets.nbytes
        return size + (0 if self._labels is None else self._labels.nbytes)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def name(self, index: SupportsIndex) -> str:
        """Get a name as text (``os.fsdecode``); an IndexError where there is none. Negative numbers are none."""
        return os.fsdecode(self.name_bytes(index))

    def name_bytes(self, index: SupportsIndex) -> bytes:
        """Get a name as the file system has it, as `name` does."""
        number = index_in(index, "index", len(self))
        return self._names[self._offsets[number] : self._offsets[number + 1]].tobytes()

    def label(self, index: SupportsIndex) -> int:
        """Get a label, as `name` does. A `SettingError` where the table has no labels."""
        if self._labels is None:
            raise SettingError("The table has no labels: make it with `labels`.")
        return int(self._labels[index_in(index, "index", len(self))])

    def __iter__(self) -> Iterator[str]:
        for first in range(0, len(self), _CHUNK >> 4):
            edges = self._offsets[first : first + (_CHUNK >> 4) + 1].tolist()
            chunk = self._names[edges[0] : edges[-1]].tobytes()
            for start, end in itertools.pairwise(edges):
                yield os.fsdecode(chunk[start - edges[0] : end - edges[0]])

    def __getitem__(self, part: slice) -> FileTable:
        """Get a range of names as a table, which shares their memory. The step must be 1."""
        if not isinstance(part, slice):
            raise TypeError("A table is indexed by ranges of names; for one name use `name` or `label`.")
        start, stop, step = part.indices(len(self))
        if step != 1:
            raise SettingError(f"The step of a range of names must be 1, got {step}.")
        labels = None if self._labels is None else self._labels[start : max(start, stop)]
        return FileTable(self._names, self._offsets[start : max(start, stop) + 1], labels, notes=self._notes)

    def __eq__(self, other: object) -> bool:
        """Whether both have the same names and labels in the same order; notes do not count."""
        if not isinstance(other, FileTable):
            return NotImplemented
        if len(self) != len(other) or (self._labels is None) != (other._labels is None):
            return False
        return self is other or self.digest() == other.digest()

    def __hash__(self) -> int:
        return hash(self.digest())

    def __repr__(self) -> str:
        count = f"{len(self)} name{'' if len(self) == 1 else 's'}"
        labels = ""
        if self._labels is not None and len(self):
            labels = f", labels in [{self._labels.min()}, {self._labels.max()}]"
        return f"FileTable({count}{labels}{f', mapped from {self.folder!r}' if self._saved else ''})"

    def digest(self) -> str:
        """Make a text of 16 hexadecimal digits that tells tables of different names or labels apart."""
        if self._digest is None:
            parts = [self._names, self._offsets.astype("<i8", copy=False).view(np.uint8)]
            if self._labels is not None:
                parts.append(self._labels.astype("<i8").view(np.uint8))
            hashes = [_hash_in_chunks(part) for part in parts]
            self._digest = f"{hash_bytes(*(value.to_bytes(8, 'little') for value in hashes)):016x}"
        return self._digest

    def __reduce__(self) -> tuple[Any, ...]:
        if self._saved is not None:
            return _mapped_again, self._saved
        return functools.partial(FileTable, notes=self._notes), (self._names, self._offsets, self._labels)


class FileTableBuilder:
    """Builds a table of names that are given one by one; keeps only their bytes."""

    def __init__(self) -> None:
        """Start without names."""
        self._names = bytearray()
        self._offsets = array("q", [0])
        self._labels = array("q")

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @property
    def num_labels(self) -> int:
        """Number of names that were given a label."""
        return len(self._labels)

    def add(self, name: FileName, label: SupportsIndex | None = None) -> None:
        """Append a name, and its label: a whole number of at most 64 bits."""
        try:
            encoded = os.fsencode(name)
        except (TypeError, UnicodeEncodeError) as error:
            raise SettingError(
                f"Name {len(self)} must be a str, bytes or a path, got {name!r}: {error}."
            ) from error
        if label is not None:
            try:
                self._labels.append(operator.index(label))
            except (TypeError, OverflowError) as error:
                raise SettingError(
                    f"Label {self.num_labels} must be a whole number of at most 64 bits, got {label!r}."
                ) from error
        self._names += encoded
        self._offsets.append(len(self._names))

    def finish(self, notes: Mapping[str, Any] | None = None) -> FileTable:
        """Make the table, without a copy of the names. The builder is empty afterwards."""
        if self._labels and len(self._labels) != len(self):
            raise SettingError(
                f"Either all names must have a label or none, got {len(self)} name(s) and {len(self._labels)} "
                f"label(s)."
            )
        names = np.frombuffer(self._names, np.uint8)
        offsets = np.frombuffer(self._offsets, np.int64)
        labels: LabelArray | None = None
        if self._labels:
            labels = np.frombuffer(self._labels, np.int64)
            if np.iinfo(np.int32).min <= labels.min() and labels.max() <= np.iinfo(np.int32).max:
                labels = labels.astype(np.int32)
        FileTableBuilder.__init__(self)
        return FileTable(names, offsets, labels, notes=notes)


def _read_only(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    view = values.view()
    view.flags.writeable = False
    return view


def _check_arrays(names: UInt8Array, offsets: Int64Array, labels: LabelArray | None) -> None:
    if names.dtype != np.uint8 or names.ndim != 1:
        raise SettingError(f"`names` must be (num_bytes,) uint8, got {names.shape} {names.dtype}.")
    if offsets.dtype != np.int64 or offsets.ndim != 1 or not len(offsets):
        raise SettingError(f"`offsets` must be (N + 1,) int64, got {offsets.shape} {offsets.dtype}.")
    if not 0 <= offsets[0] <= offsets[-1] <= len(names) or (offsets[1:] < offsets[:-1]).any():
        raise SettingError(f"`offsets` must not decrease and lie in [0, {len(names)}], the bytes of the names.")
    if labels is not None and (labels.dtype not in (np.int32, np.int64) or labels.shape != (len(offsets) - 1,)):
        raise SettingError(
            f"`labels` must be ({len(offsets) - 1},) int32 or int64, got {labels.shape} {labels.dtype}."
        )


def _hash_in_chunks(content: UInt8Array) -> int:
    """Hash the hashes of parts, without a copy of the whole."""
    parts = range(0, len(content), _CHUNK)
    hashes = [hash_bytes(content[first : first + _CHUNK].tobytes()) for first in parts]
    return hash_bytes(*(value.to_bytes(8, "little") for value in hashes))


def _table_of(columns: Columns) -> FileTable:
    arrays, notes = columns.arrays, columns.notes
    table = FileTable(arrays["names"], arrays["offsets"], arrays.get("labels"), notes=notes["notes"])
    table._saved, table._digest = (str(columns.folder), columns.checksum), notes["digest"]
    return table


def _mapped_again(folder: str, checksum: str) -> FileTable:
    columns = Columns.open(folder, _KIND)
    columns.require(checksum, _KIND)
    return _table_of(columns)
