# SPDX-License-Identifier: Apache-2.0
"""What tells that a remote file was changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .http_answers import described, is_http

# What tells versions of a file apart, besides its size; stores have one or the other.
_VERSION_KEYS = (
    "ETag",
    "etag",
    "mtime",
    "created",
    "LastModified",
    "last_modified",
    "updated",
    "generation",
    "md5Hash",
    "CRC",
)


class ChangedFileError(OSError):
    """A file has another length than its store says, or was changed while it was read."""


class ReplacedFileError(ChangedFileError):
    """A file is not the one that was opened any more; to read it again gives no other result."""


class FileVersion:
    """What a store says of a file: its size, and what changes with its content.

    Attributes:
        file_system: fsspec's file system that has it.
        path: Its path there.
        archive: Of a member of an archive, the version of that; None where there is none.
    """

    def __init__(self, file_system: Any, path: str, *, is_fresh: bool = False) -> None:
        """Ask the store.

        Args:
            file_system: The file system.
            path: The file.
            is_fresh: Whether what the file system remembers of a folder that it has listed does not count.
        """
        self.file_system, self.path = file_system, path
        opened: Any = getattr(file_system, "fo", None)
        is_of_archive = hasattr(opened, "fs") and hasattr(opened, "path")
        self.archive = FileVersion(opened.fs, opened.path, is_fresh=True) if is_of_archive else None
        if is_fresh:
            self._forget()
        self._size, self._marks = self._ask()

    def _ask(self) -> tuple[int | None, dict[str, str]]:
        if is_http(self.file_system):
            answer = described(self.file_system, self.path)
            return answer.size, answer.marks
        return _stated(self.file_system.info(self.path))

    @property
    def size(self) -> int | None:
        """Number of bytes; None where the store does not say."""
        return self._size

    @property
    def marks(self) -> str:
        """What changes with the content, besides the size."""
        of_archive = {} if self.archive is None else {"archive": f"({self.archive.text})"}
        return ", ".join(f"{name}={value}" for name, value in {**self._marks, **of_archive}.items())

    @property
    def text(self) -> str:
        """What changes with the content."""
        return ", ".join([f"size={self.size}", *([self.marks] if self.marks else [])])

    def require_length(self, length: int) -> None:
        """Raise a `ChangedFileError` where that many bytes are not all of the file."""
        if self.size is not None and self.size != length:
            self._forget()
            raise ChangedFileError(
                f"{length} bytes were read, but it has {self.size}: the answer was cut short, or the file was "
                f"changed while it was read"
            )

    def require_same(self) -> None:
        """Ask again, and raise a `ReplacedFileError` where the file is another one."""
        if self.archive is not None:
            self.archive.require_same()
        self._forget()
        self._require(*self._ask())

    def require_answer(self, size: int | None, marks: Mapping[str, str]) -> None:
        """Raise a `ReplacedFileError` where what came with a part of the file tells that it is another one.

        The store is asked again only where that does not tell.
        """
        if self._marks.keys() != marks.keys() or (size is None and not marks):
            self.require_same()
        else:
            self._require(self._size if size is None else size, marks)

    def require_info(self, info: Mapping[str, Any]) -> None:
        """Raise a `ReplacedFileError` where what fsspec has found out later tells that it is another one."""
        self._require(*_stated(info))

    def _require(self, size: int | None, marks: Mapping[str, str]) -> None:
        if (size, marks) != (self._size, self._marks):
            now = ", ".join(f"{name}={value}" for name, value in {"size": size, **marks}.items())
            raise ReplacedFileError(f"it was changed while it was read: {self.text} then, {now} now")

    def _forget(self) -> None:
        """Have the file system ask the store: it may remember a folder that it has listed."""
        self.file_system.invalidate_cache(self.path.rpartition("/")[0])


def _stated(info: Mapping[str, Any]) -> tuple[int | None, dict[str, str]]:
    size = info.get("size")
    marks = {key: str(info[key]) for key in _VERSION_KEYS if info.get(key) is not None}
    return (size if isinstance(size, int) else None), marks
