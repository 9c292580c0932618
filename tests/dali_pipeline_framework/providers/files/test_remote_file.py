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
