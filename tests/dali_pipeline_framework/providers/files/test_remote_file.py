"""Which blocks of a remote file are requested, and kept."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accvlab.dali_pipeline_framework.providers.files.remote_file import RemoteFile
from accvlab.dali_pipeline_framework.providers.files.remote_reading import RemoteReading

KIB, MIB = 1 << 10, 1 << 20
SIZE = 9 * MIB + 1234
CONTENT = bytes(range(251)) * (SIZE // 251) + bytes(SIZE % 251)
PIECE = 32 * KIB  # what FFmpeg reads at once


class CountedFileSystem:
    """A file system of one file, and the ranges that were requested."""

    protocol = "counted"

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []

    def info(self, path: str) -> dict[str, Any]:
        return {"size": SIZE, "ETag": "1"}

    def invalidate_cache(self, path: str) -> None:
        pass

    def cat_file(self, path: str, start: int, end: int) -> bytes:
        assert 0 <= start < end <= SIZE
        self.ranges.append((start, end))
        return CONTENT[start:end]

    @property
    def lengths(self) -> list[int]:
        """In KiB."""
        return [(end - start) // KIB for start, end in self.ranges]


def opened() -> tuple[CountedFileSystem, RemoteFile]:
    file_system = CountedFileSystem()
    return file_system, RemoteFile(file_system, "a", RemoteReading())


@given(st.lists(st.tuples(st.integers(0, SIZE), st.integers(0, 3 * MIB)), max_size=12))
def test_what_is_read_is_what_the_file_has(reads: list[tuple[int, int]]) -> None:
    source, file = opened()
    for start, count in reads:
        file.seek(start)
        assert file.read(count) == CONTENT[start : start + count]
        assert file.tell() == min(start + count, SIZE)
        assert len(file._kept) <= 16
    assert all(length <= 2048 for length in source.lengths)
    assert file.seek(-1, io.SEEK_END) == SIZE - 1
    assert file.read() == CONTENT[-1:]
    with pytest.raises(OSError, match="no byte -1"):
        file.seek(-1)


def read_pieces(file: RemoteFile, start: int, end: int) -> None:
    for place in range(start, end, PIECE):
        file.seek(place)
        file.read(min(PIECE, end - place))


def test_requests_grow_where_reading_goes_on() -> None:
    source, file = opened()
    read_pieces(file, 0, SIZE)
    assert source.lengths == [256, 512, 1024, 2048, 2048, 2048, 1281]
    source.ranges.clear()
    read_pieces(file, SIZE - 3 * MIB, SIZE)  # kept
    assert source.lengths == []
    read_pieces(file, 2 * MIB, 2 * MIB + 3)
    read_pieces(file, 5 * KIB, 6 * KIB)
    read_pieces(file, 2 * MIB + 5, 2 * MIB + 8)  # kept
    assert source.ranges == [(2 * MIB, 2 * MIB + 256 * KIB), (0, 256 * KIB)]


def test_a_range_is_one_request() -> None:
    source, file = opened()
    file.fetch(1000, 3 * MIB)
    read_pieces(file, 1000, 3 * MIB)
    file.fetch(2 * MIB, 2 * MIB + 5)  # it is there
    assert source.ranges == [(1000, 3 * MIB)]
    file.seek(3 * MIB - 2)
    assert file.read(4) == CONTENT[3 * MIB - 2 : 3 * MIB + 2]
    file.fetch(SIZE - 5, SIZE + 100)
    assert source.ranges[2:] == [(SIZE - 5, SIZE)]
