# SPDX-License-Identifier: Apache-2.0
"""Pages of Parquet files: how much memory they claim, before Arrow reserves it.

The footer tells how large columns are, but Arrow unpacks page by page, and each page has a header of its own,
which can claim 2 GB whatever the footer says. Headers are structures of Thrift in its compact form (PageHeader of
parquet.thrift), each before its page::

    column    header page header page ...        the first one can be that of a dictionary
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import attrs

from accvlab.dali_pipeline_framework.extension import UNPACKED_BYTES

_VALUE_BYTES: Final = 16  # Arrow keeps places of texts of a dictionary, and numbers, in at most so many
_HEADER_BYTES: Final = 1 << 10
_MOST_HEADER_BYTES: Final = 1 << 22
_PAGE_BYTES: Final = 1 << 10  # what a page counts at least, so that there are not too many
_MOST_DEPTH: Final = 16
_PADDING: Final = 100  # old writers left the header of the dictionary out of the size of a column
_DATA, _DICTIONARY, _DATA_2 = 0, 2, 3  # kinds of pages
_DETAILS: Final = {_DATA: 5, _DICTIONARY: 7, _DATA_2: 8}  # fields with what is said of a page
_ReadBytes = Callable[[int, int], bytes]


@attrs.frozen
class Page:
    """What the header of a page claims.

    Attributes:
        kind: What it holds.
        unpacked_bytes: Size of what it holds.
        packed_bytes: How many bytes behind the header are it.
        num_values: Its values, empty ones as well.
        header_bytes: How long the header is.
    """

    kind: int
    unpacked_bytes: int
    packed_bytes: int
    num_values: int
    header_bytes: int


def require_pages(read: _ReadBytes, metadata: Any, names: Sequence[str]) -> None:
    """Raise an OSError where the pages of columns claim more memory than the limit, or are damaged.

    Args:
        read: Reads so many bytes at a place of the file.
        metadata: Those of the file, as pyarrow has read them.
        names: The columns.
    """
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for place in range(group.num_columns):
            if group.column(place).path_in_schema.split(".")[0] in names:
                has_lists = metadata.schema.column(place).max_repetition_level > 0
                claimed = 0
                for page in _pages(read, group.column(place)):
                    # Of lists, one row can have all values of a page; other columns are read some rows at a time.
                    is_unpacked_at_once = page.kind == _DICTIONARY or has_lists
                    claimed += (
                        _PAGE_BYTES + page.unpacked_bytes + _VALUE_BYTES * page.num_values * is_unpacked_at_once
                    )
                    UNPACKED_BYTES.require(claimed, "a column has pages of {} bytes, unpacked")


def _pages(read: _ReadBytes, column: Any) -> Iterator[Page]:
    """The pages of a column in a group of rows, as far as Arrow reads them."""
    place = column.data_page_offset
    if column.has_dictionary_page and 0 < column.dictionary_page_offset < place:
        place = column.dictionary_page_offset
    end = place + column.total_compressed_size + _PADDING
    num_left = column.num_values
    while num_left > 0 and place < end:
        page = _page_at(read, place)
        yield page
        place += page.header_bytes + page.packed_bytes
        if page.kind != _DICTIONARY:
            num_left -= page.num_values


def _page_at(read: _ReadBytes, place: int) -> Page:
    length = _HEADER_BYTES
    while True:
        content = read(place, length)
        try:
            return parsed_page(content)
        except IndexError:  # statistics can make it long
            if len(content) < length or length >= _MOST_HEADER_BYTES:
                raise OSError(errno.EINVAL, "the header of a page is damaged") from None
        length *= 16


def parsed_page(content: bytes) -> Page:
    """Read the header of a page.

    Raises:
        IndexError: It is longer than ``content``.
        OSError: It is damaged.
    """
    thrift = _Thrift(content)
    fields = thrift.structure(0)
    try:
        kind, unpacked, packed = fields[1], fields[2], fields[3]
        details = fields.get(_DETAILS.get(kind, 0), {})
        num_values = details.get(1, 0) if isinstance(details, dict) else 0
        if not all(isinstance(each, int) and each >= 0 for each in (kind, unpacked, packed, num_values)):
            raise KeyError(kind)
    except (KeyError, TypeError):
        raise OSError(errno.EINVAL, "the header of a page is damaged") from None
    return Page(kind, unpacked, packed, num_values, thrift.place)


class _Thrift:
    """Values of Thrift, in its compact form."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.place = 0

    def structure(self, depth: int) -> dict[int, Any]:
        """The fields of a structure by their numbers; of lists and texts None."""
        if depth > _MOST_DEPTH:
            raise OSError(errno.EINVAL, "the header of a page is damaged")
        fields: dict[int, Any] = {}
        number = 0
        while True:
            head = self._byte()
            kind, step = head & 15, head >> 4
            if kind == 0:
                return fields
            number = number + step if step else self._whole()
            fields[number] = kind == 1 if kind in (1, 2) else self._value(kind, depth)

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (1, 2, 3):  # in lists, a flag is a byte as well
            return self._byte()
        if kind in (4, 5, 6):
            return self._whole()
        if kind == 7:
            return self._skip(8)
        if kind == 8:
            return self._skip(self._number())
        if kind in (9, 10):
            head = self._byte()
            count = self._number() if head >> 4 == 15 else head >> 4
            for _ in range(count):
                self._value(head & 15, depth + 1)
            return None
        if kind == 12:
            return self.structure(depth + 1)
        raise OSError(errno.EINVAL, "the header of a page is damaged")

    def _byte(self) -> int:
        byte = self._content[self.place]
        self.place += 1
        return byte

    def _skip(self, count: int) -> None:
        self.place += count
        if self.place > len(self._content):
            raise IndexError(self.place)

    def _number(self) -> int:
        number = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            number |= (byte & 127) << shift
            if byte < 128:
                return number
        raise OSError(errno.EINVAL, "the header of a page is damaged")

    def _whole(self) -> int:
        number = self._number()
        return number >> 1 ^ -(number & 1)
