# SPDX-License-Identifier: Apache-2.0
"""A compact table of names."""

from __future__ import annotations

import itertools
import operator
import os
from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, SupportsIndex

import attrs
import numpy as np
import numpy.typing as npt

from ...checks import index_in
from ...errors import SettingError

UInt8Array = npt.NDArray[np.uint8]
Int64Array = npt.NDArray[np.int64]
LabelArray = npt.NDArray[np.int32]
FileName = str | bytes | os.PathLike[str] | os.PathLike[bytes]

_CHUNK = 1 << 20


def _read_only(values: npt.NDArray[Any] | None) -> Any:
    if values is None:
        return None
    view = values.view()
    view.flags.writeable = False
    return view


@attrs.define(eq=False, repr=False)
class FileTable:
    """An immutable list of names, each with a whole number as label if wanted.

    All names stand in one buffer, one after the other::

        names    | a . j p g b b . j p g          |  (num_bytes,) uint8
        offsets  | 0         5           11       |  (N + 1,) int64
        labels   |     0           1              |  (N,) int32, or None

    So a name costs its bytes and eight more, and a table is a few arrays instead of many Python objects. Names
    are bytes as the file system has them (``os.fsencode``), so there is none that a table cannot hold.

    Attributes:
        labels: ``(N,)`` int32, read-only; None in a table without labels.
        notes: What else is kept with the table.

    Example:
        >>> table = FileTable.from_names(["a.jpg", "bb.jpg"], labels=[0, 1])
        >>> len(table), table.name(1), table.label(1)
        (2, 'bb.jpg', 1)
        >>> table
        FileTable(2 names, labels in [0, 1])
    """

    _names: UInt8Array = attrs.field(converter=_read_only)
    _offsets: Int64Array = attrs.field(converter=_read_only)
    labels: LabelArray | None = attrs.field(default=None, converter=_read_only)
    notes: Mapping[str, Any] = attrs.field(factory=dict)

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
            labels: One whole number of at most 32 bits for each.
            notes: What else is to be kept with the table.

        Raises:
            SettingError: There are more names than labels or the reverse, a name is no name, or a label no
                whole number of at most 32 bits.
        """
        if isinstance(names, str | bytes | os.PathLike):
            raise SettingError(f"`names` must be an iterable of names, got one: {names!r}. Write [{names!r}].")
        builder = FileTableBuilder()
        rest = iter(() if labels is None else labels)
        for name in names:
            builder.add(name, next(rest, None))
        has_too_few = labels is not None and len(builder) != len(builder.labels)
        if has_too_few or next(rest, None) is not None:
            raise SettingError(
                f"There must be one label for each name, got {len(builder)} name(s) and "
                f"{'fewer' if has_too_few else 'more'} labels."
            )
        return builder.finish(notes)

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
        if self.labels is None:
            raise SettingError("The table has no labels: make it with `labels`.")
        return int(self.labels[index_in(index, "index", len(self))])

    def __iter__(self) -> Iterator[str]:
        for first in range(0, len(self), _CHUNK >> 4):
            edges = self._offsets[first : first + (_CHUNK >> 4) + 1].tolist()
            chunk = self._names[edges[0] : edges[-1]].tobytes()
            for start, end in itertools.pairwise(edges):
                yield os.fsdecode(chunk[start - edges[0] : end - edges[0]])

    def __repr__(self) -> str:
        count = f"{len(self)} name{'' if len(self) == 1 else 's'}"
        labels = ""
        if self.labels is not None and len(self):
            labels = f", labels in [{self.labels.min()}, {self.labels.max()}]"
        return f"FileTable({count}{labels})"


class FileTableBuilder:
    """Builds a table of names that are given one by one; keeps only their bytes."""

    def __init__(self) -> None:
        """Start without names."""
        self._names = bytearray()
        self._offsets = array("q", [0])
        self.labels = array("i")

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def add(self, name: FileName, label: SupportsIndex | None = None) -> None:
        """Append a name, and its label: a whole number of at most 32 bits."""
        try:
            encoded = os.fsencode(name)
        except (TypeError, UnicodeEncodeError) as error:
            raise SettingError(
                f"Name {len(self)} must be a str, bytes or a path, got {name!r}: {error}."
            ) from error
        if label is not None:
            try:
                self.labels.append(operator.index(label))
            except (TypeError, OverflowError) as error:
                raise SettingError(
                    f"Label {len(self.labels)} must be a whole number of at most 32 bits, got {label!r}."
                ) from error
        self._names += encoded
        self._offsets.append(len(self._names))

    def finish(self, notes: Mapping[str, Any] | None = None) -> FileTable:
        """Make the table, without a copy of the names. No name can be added afterwards."""
        names, offsets = np.frombuffer(self._names, np.uint8), np.frombuffer(self._offsets, np.int64)
        labels = np.frombuffer(self.labels, np.int32) if self.labels else None
        return FileTable(names, offsets, labels, dict(notes or {}))
