"""Which blocks of a remote file are asked for, and kept."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accvlab.dali_pipeline_framework.providers.files.remote_file import RemoteFile

KIB, MIB = 1 << 10, 1 << 20
SIZE = 9 * MIB + 1234
CONTENT = bytes(range(251)) * (SIZE // 251) + bytes(SIZE % 251)
PIECE = 32 * KIB  # what FFmpeg reads at once


class CountedSource:
    """The content, and the ranges that were asked for."""

    size = SIZE

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []

    def read(self, start: int, end: int) -> bytes:
        assert 0 <= start < end <= SIZE
        self.ranges.append((start, end))
        return CONTENT[start:end]

    def close(self) -> None:
        self.ranges.clear()

    @property
    def lengths(self) -> list[int]:
        """In KiB."""
        return [(end - start) // KIB for start, end in self.ranges]


@given(st.lists(st.tuples(st.integers(0, SIZE), st.integers(0, 3 * MIB)), max_size=12))
def test_what_is_read_is_what_the_file_has(reads: list[tuple[int, int]]) -> None:
    source = CountedSource()
    with RemoteFile(source) as file:
        for start, count in reads:
            file.seek(start)
            assert file.read(count) == CONTENT[start : start + count]
            assert file.tell() == min(start + count, SIZE)
            assert len(file._kept) <= 16
        assert all(length <= 2048 for length in source.lengths)
        assert file.seek(-1, io.SEEK_END) == SIZE - 1
        assert file.read() == CONTENT[-1:]


def read_pieces(file: RemoteFile, start: int, end: int) -> None:
    for place in range(start, end, PIECE):
        file.seek(place)
        file.read(min(PIECE, end - place))


def test_requests_grow_where_reading_goes_on() -> None:
    source = CountedSource()
    file = RemoteFile(source)
    read_pieces(file, 0, SIZE)
    assert source.lengths == [256, 512, 1024, 2048, 2048, 2048, 1281]
    source.ranges.clear()
    read_pieces(file, SIZE - 3 * MIB, SIZE)  # kept
    assert source.lengths == []
    read_pieces(file, 2 * MIB, 2 * MIB + 3)
    read_pieces(file, 5 * KIB, 6 * KIB)
    assert source.lengths == [256, 256]


def test_requests_grow_at_two_places_at_once() -> None:
    source = CountedSource()
    file = RemoteFile(source)
    for step in range(40):
        for start in (0, 5 * MIB):
            read_pieces(file, start + step * PIECE, start + (step + 1) * PIECE)
    assert source.lengths == [256, 256, 512, 512, 1024, 1024]


@pytest.mark.parametrize("distance", [300 * KIB, 480 * KIB, MIB])
def test_requests_do_not_grow_where_reading_jumps(distance: int) -> None:
    source = CountedSource()
    file = RemoteFile(source)
    for start in range(0, SIZE, distance):
        read_pieces(file, start, start + 16)
    assert sum(source.lengths) <= SIZE // KIB * 1.1
    assert distance == 300 * KIB or max(source.lengths) <= 512


def test_nothing_is_read_twice_that_is_kept() -> None:
    source = CountedSource()
    file = RemoteFile(source)
    for start in (3 * MIB, 1 * MIB, 2 * MIB, 1 * MIB + 256 * KIB, 1 * MIB + 512 * KIB, 3 * MIB, 1 * MIB):
        read_pieces(file, start, start + 10)
    assert source.ranges == [
        (3 * MIB, 3 * MIB + 256 * KIB),
        (1 * MIB, 1 * MIB + 256 * KIB),
        (2 * MIB, 2 * MIB + 256 * KIB),
        (1 * MIB + 256 * KIB, 1 * MIB + 768 * KIB),
    ]
