# SPDX-License-Identifier: Apache-2.0
"""Reading from storage that can fail: tried again, within a time, and checked for its length."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import attrs

from ...checks import whole_number
from ...errors import SettingError
from ...limits.file_limits import UNPACKED_BYTES, FileTooLargeError

_T = TypeVar("_T")

# Another try would fail in the same way.
_FINAL = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
_ARCHIVES = ("zip", "tar", "libarchive")  # file systems whose files may be compressed
_FINAL_STATUS = range(400, 500)
_PASSING_STATUS = (408, 425, 429)  # of them: time-out, too early, too many requests
_CLIENTS = ("aiohttp", "botocore", "aiobotocore", "gcsfs", "google", "azure", "requests", "urllib3", "fsspec")
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
)
_BLOCK = 1 << 20


class ChangedFileError(OSError):
    """A file has another length than its store says, or was changed while it was read."""


def _positive(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise SettingError(f"`{attribute.name}` must be a number above 0, got {value!r}.")


def _checked_attempts(value: int) -> int:
    return whole_number(value, "attempts", at_least=1)


@attrs.frozen(kw_only=True)
class RemoteReading:
    """How remote files are read: the entry ``"reading"`` of ``storage_options``.

    Attributes:
        attempts: How often a file is tried that cannot be read for a reason that may pass. Files that are not
            there or not allowed are tried once.
        first_wait_s: Time until the second attempt; the times until later ones are twice as long each, with a
            random part, so that workers do not ask all at once.
        most_wait_s: The longest of these times.
        timeout_s: Time for one attempt.
        checks_length: Whether the length of what was read is compared with what the store says, which is one more
            request (without content) per file. A file that changes while it is read is then tried again.

    Raises:
        SettingError: A value is out of its range.

    Example:
        >>> RemoteReading(attempts=8, timeout_s=20).most_wait_s
        10
    """

    attempts: int = attrs.field(default=5, converter=_checked_attempts)
    first_wait_s: float = attrs.field(default=0.2, validator=_positive)
    most_wait_s: float = attrs.field(default=10, validator=_positive)
    timeout_s: float = attrs.field(default=60, validator=_positive)
    checks_length: bool = attrs.field(default=True, validator=attrs.validators.instance_of(bool))

    def __call__(self, read: Callable[[], _T]) -> _T:
        """Call a function that reads, again and again if need be; raises what the last attempt raises."""
        try:
            return self._attempt(read)
        except Exception as error:
            if self.attempts == 1 or not may_pass(error):
                raise
            first = error
        return self._again(read, first)

    def _attempt(self, read: Callable[[], _T]) -> _T:
        return within(self.timeout_s, read)

    def _again(self, read: Callable[[], _T], first: Exception) -> _T:
        try:
            import tenacity
        except ImportError:
            raise first from SettingError(
                "It would be tried again if tenacity were installed: "
                "pip install 'accvlab.dali_pipeline_framework[remote]'"
            )
        waits = tenacity.wait_exponential(multiplier=self.first_wait_s, max=self.most_wait_s)
        waited = False

        def one() -> _T:
            nonlocal waited
            if not waited:  # the first attempt was made already
                waited = True
                raise first
            return self._attempt(read)

        retrying = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(self.attempts),
            wait=waits + tenacity.wait_random(0, self.first_wait_s),
            retry=tenacity.retry_if_exception(may_pass),
            reraise=True,
        )
        result: _T = retrying(one)
        return result


def may_pass(error: BaseException) -> bool:
    """Whether a failure to read may pass: of the network, of the server, or of a file that is being written."""
    if isinstance(error, FileTooLargeError):
        return False
    status = getattr(error, "status", None)
    if isinstance(status, int) and status in _FINAL_STATUS and status not in _PASSING_STATUS:
        return False
    if isinstance(error, _FINAL) or not isinstance(error, Exception):
        return False
    is_of_client = type(error).__module__.partition(".")[0] in _CLIENTS
    return is_of_client or isinstance(error, OSError | TimeoutError | EOFError)


def within(seconds: float, action: Callable[[], _T]) -> _T:
    """Call a function in a thread, and wait for its result so long.

    Raises:
        TimeoutError: It has not come back. Its thread goes on, and ends with the process.
    """
    results: list[_T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(action())
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run, name="remote reading", daemon=True)
    thread.start()
    thread.join(seconds)
    if failures:
        raise failures[0]
    if not results:
        raise TimeoutError(f"there was no answer within {seconds:g} s")
    return results[0]


class FileVersion:
    """What a store says of a file: its size, and what changes with its content."""

    def __init__(self, file_system: Any, path: str) -> None:
        """Ask the store."""
        self._file_system, self._path = file_system, path
        self._info = self._ask()

    def _ask(self) -> tuple[int | None, tuple[str, ...]]:
        info = self._file_system.info(self._path)
        size = info.get("size")
        version = tuple(f"{key}={info[key]}" for key in _VERSION_KEYS if info.get(key) is not None)
        return (size if isinstance(size, int) else None), version

    @property
    def size(self) -> int | None:
        """Number of bytes; None where the store does not say."""
        return self._info[0]

    @property
    def text(self) -> str:
        """What changes with the content."""
        return ", ".join([f"size={self.size}", *self._info[1]])

    def require_length(self, length: int) -> None:
        """Raise a `ChangedFileError` where that many bytes are not all of the file."""
        if self.size is not None and self.size != length:
            self._forget()
            raise ChangedFileError(
                f"{length} bytes were read, but it has {self.size}: the answer was cut short, or the file was "
                f"changed while it was read"
            )

    def require_same(self) -> None:
        """Ask again, and raise a `ChangedFileError` where the file is another one."""
        self._forget()
        now = self._ask()
        if now != self._info:
            raise ChangedFileError(
                f"it was changed while it was read: {self.text} then, {', '.join([f'size={now[0]}', *now[1]])} now"
            )

    def _forget(self) -> None:
        """Have the file system ask the store: it may remember a folder that it has listed."""
        self._file_system.invalidate_cache(self._path.rpartition("/")[0])


def read_file(file_system: Any, path: str, reading: RemoteReading) -> bytes:
    """Read a remote file.

    Raises:
        Exception: What the last attempt raises.
    """

    def read() -> bytes:
        if getattr(file_system, "protocol", None) in _ARCHIVES:  # whose index tells it, without a request
            UNPACKED_BYTES.require(FileVersion(file_system, path).size or 0, "it has {} bytes")
        content: bytes = file_system.cat_file(path)
        if reading.checks_length:
            FileVersion(file_system, path).require_length(len(content))
        return content

    return reading(read)


def open_file(file_system: Any, path: str, reading: RemoteReading) -> io.BufferedIOBase:
    """Open a remote file, of which only those parts are read that are asked for."""
    version = reading(lambda: FileVersion(file_system, path))
    if version.size is None:  # there is no telling where it ends
        opened: io.BufferedIOBase = reading(lambda: file_system.open(path, "rb"))
        return opened
    return io.BufferedReader(RemoteFile(file_system, path, reading, version), _BLOCK)


class RemoteFile(io.RawIOBase):
    """A remote file, read in ranges; one that is changed meanwhile is an error."""

    def __init__(self, file_system: Any, path: str, reading: RemoteReading, version: FileVersion) -> None:
        """Begin at its first byte."""
        super().__init__()
        self._file_system, self._path, self._reading = file_system, path, reading
        self._version = version
        self._size = version.size or 0
        self._position = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Where the next byte is read."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a byte; returns where that is."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise OSError(f"there is no byte {base + offset} in a file")
        self._position = base + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Read the next bytes, as many as there is room for."""
        view = memoryview(buffer).cast("B")
        start = self._position
        end = min(start + len(view), self._size)
        if end <= start:
            return 0

        def read() -> bytes:
            content: bytes = self._file_system.cat_file(self._path, start=start, end=end)
            if len(content) != end - start:
                self._version.require_same()
                raise ChangedFileError(f"the answer was cut short: {len(content)} of {end - start} bytes came")
            if self._reading.checks_length:
                self._version.require_same()
            return content

        content = self._reading(read)
        view[: len(content)] = content
        self._position = end
        return len(content)
