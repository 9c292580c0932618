"""Blocks of a remote file: how many of them are requested, and kept, is in `test_remote_videos.py`."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accvlab.dali_pipeline_framework.providers.files.remote_file import RemoteFile
from accvlab.dali_pipeline_framework.providers.files.remote_reading import RemoteReading

MIB = 1 << 20
SIZE = 9 * MIB + 1234
CONTENT = bytes(range(251)) * (SIZE // 251) + bytes(SIZE % 251)


class FileSystemOfOneFile:
    protocol = "counted"

    def info(self, path: str) -> dict[str, Any]:
        return {"size": SIZE, "ETag": "1"}

    def invalidate_cache(self, path: str) -> None:
        pass

    def cat_file(self, path: str, start: int, end: int) -> bytes:
        assert 0 <= start < end <= min(SIZE, start + 2 * MIB)
        return CONTENT[start:end]


@given(st.lists(st.tuples(st.integers(0, SIZE), st.integers(0, 3 * MIB)), max_size=12))
def test_what_is_read_is_what_the_file_has(reads: list[tuple[int, int]]) -> None:
    file = RemoteFile(FileSystemOfOneFile(), "a", RemoteReading())
    for start, count in reads:
        file.seek(start)
        assert file.read(count) == CONTENT[start : start + count]
        assert file.tell() == min(start + count, SIZE)
        assert len(file._kept) <= 16
    assert file.seek(-1, io.SEEK_END) == SIZE - 1
    assert file.read() == CONTENT[-1:]
    with pytest.raises(OSError, match="no byte -1"):
        file.seek(-1)
