# SPDX-License-Identifier: Apache-2.0
"""Reading from unreliable storage: repeated attempts, within a time limit, with a check of the length."""

from __future__ import annotations

import io
import random
import re
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import wait
from typing import Any, TypeAlias, TypeVar

import attrs

from ...checks import number, valid, whole_number
from ...errors import FileError
from ...limits.file_limits import FILE_BYTES, FileTooLargeError, LfsPointerError
from ...threads import called_in_thread
from ...url_secrets import cleaned

# What distinguishes versions of a file, apart from its size; stores have one or the other.
_TIME_KEYS = ("mtime", "created", "LastModified", "last_modified", "updated")
_VERSION_KEYS = ("ETag", "etag", *_TIME_KEYS, "generation", "md5Hash", "CRC")

_T = TypeVar("_T")

FileSystem: TypeAlias = Any
"""A file system of fsspec, which has no types."""

StorageOptions: TypeAlias = Mapping[str, Any]
"""Arguments of a file system of fsspec, by name."""

_Answer: TypeAlias = Any  # of aiohttp, which is not imported here


class ChangedFileError(OSError):
    """A file has another length than its store says, or was changed while it was read."""


class ReplacedFileError(ChangedFileError):
    """A file is not the one that was opened any more; to read it again gives no other result."""


class FileVersion:
    """The version of a file that its store reports: its size, and marks that change with its content.

    Attributes:
        file_system: fsspec's file system that has it.
        path: Its path there.
        size: Number of bytes; None where the store does not say.
        archive: Version of the archive of which it is a member; None where it is not one.
    """

    def __init__(self, file_system: FileSystem, path: str, *, is_fresh: bool = False) -> None:
        """Request the version from the store.

        Args:
            file_system: The file system.
            path: The file.
            is_fresh: Whether to ignore the listings of folders that the file system has cached.
        """
        self.file_system, self.path = file_system, path
        opened: Any = getattr(file_system, "fo", None)
        is_of_archive = hasattr(opened, "fs") and hasattr(opened, "path")
        self.archive = FileVersion(opened.fs, opened.path, is_fresh=True) if is_of_archive else None
        if is_fresh:
            self._forget()
        self.size, self._marks = self._ask()

    @classmethod
    def known(cls, file_system: FileSystem, path: str, size: int, marks: Mapping[str, str]) -> FileVersion:
        """The version that a store has reported before; nothing is requested."""
        version = cls.__new__(cls)
        version.file_system, version.path, version.archive = file_system, path, None
        version.size, version._marks = size, dict(marks)
        return version

    @property
    def own_marks(self) -> Mapping[str, str]:
        """The marks of the file itself, by their names."""
        return dict(self._marks)

    def _ask(self) -> tuple[int | None, dict[str, str]]:
        if is_http(self.file_system):
            answer = answer_of(self.file_system, described, self.path)
            return answer.size, answer.marks
        return _stated(self.file_system.info(self.path))

    @property
    def marks(self) -> str:
        """The marks that change with the content, without the size."""
        of_archive = {} if self.archive is None else {"archive": f"({self.archive.text})"}
        return ", ".join(f"{name}={value}" for name, value in {**self._marks, **of_archive}.items())

    @property
    def text(self) -> str:
        """Size and marks."""
        return ", ".join([f"size={self.size}", *([self.marks] if self.marks else [])])

    def require_length(self, length: int) -> None:
        """Raise a `ChangedFileError` where that many bytes are not all of the file."""
        if self.size is not None and self.size != length:
            self._forget()
            why = "the answer was cut short, or the file was changed while it was read"
            raise ChangedFileError(f"{length} bytes were read, but it has {self.size}: {why}")

    def require_same(self) -> None:
        """Request the version again, and raise a `ReplacedFileError` where the file is another one."""
        if self.archive is not None:
            self.archive.require_same()
        self._forget()
        self._require(*self._ask())

    def require_answer(self, size: int | None, marks: Mapping[str, str]) -> None:
        """Raise a `ReplacedFileError` where the size or the marks of a part of the file are other ones.

        Only where a part has neither, the version is requested again.
        """
        if self._marks.keys() != marks.keys() or (size is None and not marks):
            self.require_same()
        else:
            self._require(self.size if size is None else size, marks)

    def require_info(self, info: Mapping[str, object]) -> None:
        """Raise a `ReplacedFileError` where later information of fsspec is that of another version."""
        self._require(*_stated(info))

    def _require(self, size: int | None, marks: Mapping[str, str]) -> None:
        if (size, marks) != (self.size, self._marks):
            now = ", ".join(f"{name}={value}" for name, value in {"size": size, **marks}.items())
            raise ReplacedFileError(f"it was changed while it was read: {self.text} then, {now} now")

    def _forget(self) -> None:
        """Drop the cached listing of the folder, so that the file system requests it again."""
        self.file_system.invalidate_cache(self.path.rpartition("/")[0])


def _stated(info: Mapping[str, object]) -> tuple[int | None, dict[str, str]]:
    size = info.get("size")
    marks = {key: str(info[key]) for key in _VERSION_KEYS if info.get(key) is not None}
    return (size if isinstance(size, int) else None), marks


_NOT_FOUND = (404, 410)
_HEAD_REFUSED = (400, 401, 403, 405, 501)  # e.g. for URLs that were signed for one method
_WHOLE, _PART, _NOT_SATISFIABLE = 200, 206, 416
_MARKS = ("ETag", "Last-Modified")
_PROTOCOLS = ("http", "https")
_LEAST_S = 1e-3
_CHUNK = 1 << 20

_time = threading.local()


@attrs.frozen
class HttpAnswer:
    """An answer about a file.

    Attributes:
        size: Number of bytes of the file; None where the server does not say.
        marks: Headers that change with the content.
        content: The part that was requested.
    """

    size: int | None
    marks: dict[str, str]
    content: bytes = b""


def is_http(file_system: FileSystem) -> bool:
    """Whether files are requested by HTTP."""
    module = sys.modules.get("fsspec.implementations.http")
    return module is not None and isinstance(file_system, module.HTTPFileSystem)


def bounded(url: str, options: StorageOptions, timeout_s: float) -> StorageOptions:
    """Complete the arguments of a file system: web servers send files without compression, within a time.

    Args:
        url: Such as ``https://host/train`` or ``zip://train::https://host/all.zip``.
        options: Arguments for ``fsspec.core.url_to_fs``.
        timeout_s: Time for one attempt, after which requests of fsspec itself end too, as for members of archives.
    """
    protocols = [link.partition("://")[0] for link in url.split("::")]
    completed = dict(options)
    for place, protocol in enumerate(protocols):
        if protocol in _PROTOCOLS:
            own = completed.pop(protocol, {})
            if place == 0:
                completed = _bounded({**own, **completed}, timeout_s)
            else:
                completed[protocol] = _bounded(own, timeout_s)
    return completed


def _bounded(options: StorageOptions, timeout_s: float) -> dict[str, Any]:
    import aiohttp

    given = options.get("client_kwargs") or {}
    client = {"timeout": aiohttp.ClientTimeout(total=timeout_s + 1), **given, "auto_decompress": False}
    client["headers"] = {**(given.get("headers") or {}), "Accept-Encoding": "identity"}
    return {**options, "client_kwargs": client}


def end_requests_after(seconds: float) -> None:
    """Set the time after which requests of this thread end, and their connections are closed."""
    _time.limit_s, _time.end_s = seconds, time.monotonic() + seconds


def answer_of(file_system: FileSystem, action: Callable[..., Awaitable[_T]], *arguments: object) -> _T:
    """Run a request, one of `whole`, `described`, and `part`, in the loop of the file system.

    Raises:
        FileNotFoundError: There is no such file.
        FileTooLargeError: It has more bytes than the limit.
        UnsupportedOperation: The server sends it compressed, or only as a whole.
        Exception: An error of aiohttp.
    """
    from fsspec.asyn import FSTimeoutError, sync

    end_s = getattr(_time, "end_s", None)
    rest_s = None if end_s is None else max(end_s - time.monotonic(), _LEAST_S)
    try:
        result: _T = sync(file_system.loop, action, file_system, *arguments, timeout=rest_s)
        return result
    except FSTimeoutError:
        if end_s is None or time.monotonic() < end_s:
            raise
    raise TimeoutError(f"there was no answer within {_time.limit_s:g} s")


def _settings(file_system: FileSystem, **headers: str) -> dict[str, Any]:
    given: StorageOptions = file_system.kwargs
    # The size and the parts of a file that was compressed for its way would be other ones.
    return {**given, "headers": {**given.get("headers", {}), "Accept-Encoding": "identity", **headers}}


async def whole(file_system: FileSystem, url: str) -> bytes:
    """Read a file as a whole."""
    session = await file_system.set_session()
    async with session.get(file_system.encode_url(url), **_settings(file_system)) as answer:
        _require_success(answer, url)
        FILE_BYTES.require(int(answer.headers.get("Content-Length") or 0), "it has {} bytes")
        return await _content(answer)


async def _content(answer: _Answer, most: int | None = None) -> bytes:
    """Read the content of an answer; of one that has more than that many bytes, one piece more than those."""
    encoding = answer.headers.get("Content-Encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        how = f"compressed (Content-Encoding: {encoding})"
        raise io.UnsupportedOperation(f"its server sends it {how}, not as it is requested; have it sent without")
    pieces, size = [], 0
    async for piece in answer.content.iter_chunked(_CHUNK):
        pieces.append(piece)
        size += len(piece)
        FILE_BYTES.require(size, "it has at least {} bytes")
        if most is not None and size > most:
            break
    return b"".join(pieces)


async def described(file_system: FileSystem, url: str) -> HttpAnswer:
    """Request size and version of a file."""
    session = await file_system.set_session()
    settings = {"allow_redirects": True, **_settings(file_system)}
    async with session.head(file_system.encode_url(url), **settings) as answer:
        size = answer.headers.get("Content-Length")
        if answer.status not in _HEAD_REFUSED:
            _require_success(answer, url)
            if size is not None:
                return HttpAnswer(int(size), _marks(answer))
    async with session.get(file_system.encode_url(url), **_settings(file_system, Range="bytes=0-0")) as answer:
        if answer.status != _NOT_SATISFIABLE:  # as of an empty file
            _require_success(answer, url)
        size = answer.headers.get("Content-Length") if answer.status == _WHOLE else _size_of(answer)
        return HttpAnswer(None if size is None else int(size), _marks(answer))


async def part(file_system: FileSystem, url: str, start: int, end: int) -> HttpAnswer:
    """Read the bytes of a file in ``[start, end)``, or as many as there are."""
    session = await file_system.set_session()
    settings = _settings(file_system, Range=f"bytes={start}-{end - 1}")
    async with session.get(file_system.encode_url(url), **settings) as answer:
        if answer.status == _NOT_SATISFIABLE:  # it ends before
            return HttpAnswer(_size_of(answer), _marks(answer))
        _require_success(answer, url)
        begins_there = answer.headers.get("Content-Range", "").startswith(f"bytes {start}-")
        if answer.status != _PART or not begins_there:
            problem = f"its server answers with the status {answer.status} where a part of the file is requested"
            raise io.UnsupportedOperation(f"{problem}, so that it can only be read as a whole")
        return HttpAnswer(_size_of(answer), _marks(answer), await _content(answer, end - start))


def _require_success(answer: _Answer, url: str) -> None:
    if answer.status in _NOT_FOUND:
        raise FileNotFoundError(url)
    answer.raise_for_status()


def _size_of(answer: _Answer) -> int | None:
    """Get the size of the file from the answer with a part of it."""
    found = re.fullmatch(r"bytes .+/(\d+)", answer.headers.get("Content-Range", ""))
    return None if found is None else int(found[1])


def _marks(answer: _Answer) -> dict[str, str]:
    """Get the strongest mark only: mirrors of a server may differ in the time."""
    return next(({name: answer.headers[name]} for name in _MARKS if answer.headers.get(name)), {})


# Another try would fail in the same way.
_OF_NAMES = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
_FINAL = (*_OF_NAMES, ReplacedFileError, LfsPointerError, io.UnsupportedOperation)
_FINAL_STATUS = range(400, 500)
_PASSING_STATUS = (408, 425, 429)  # of them: time-out, too early, too many requests
# From the system: a generator that is forked would draw the same in all workers, and the global one belongs to the
# data set.
_jitter = random.SystemRandom()
_CLIENTS = ("aiohttp", "botocore", "aiobotocore", "gcsfs", "google", "azure", "requests", "urllib3", "fsspec")


@attrs.frozen(kw_only=True)
class RemoteReading:
    """Settings for reading remote files: the entry ``"reading"`` of ``storage_options``.

    Attributes:
        attempts: Attempts to read a file, where the failure may be temporary. Files that do not exist or are not
            allowed are tried once.
        first_wait_s: Time until the second attempt; the times until later ones are twice as long each, with a
            random part, so that workers do not send requests all at once.
        most_wait_s: The longest of these times.
        timeout_s: Time for one attempt.
        checks_length: Whether the length of the content is compared with that reported by the store, by one more
            request (without content) per file. A file that changes while it is read is then tried again. Of files
            that are read in parts, such as videos, the version is compared with each part; web servers and S3
            report it without a further request.

    Raises:
        SettingError: A value is out of its range.

    Example:
        >>> RemoteReading(attempts=8, timeout_s=20).most_wait_s
        10
    """

    attempts: int = attrs.field(default=5, validator=valid(whole_number, at_least=1))
    first_wait_s: float = attrs.field(default=0.2, validator=valid(number, above=0))
    most_wait_s: float = attrs.field(default=10, validator=valid(number, above=0))
    timeout_s: float = attrs.field(default=60, validator=valid(number, above=0))
    checks_length: bool = attrs.field(default=True, validator=attrs.validators.instance_of(bool))

    def __call__(self, read: Callable[[], _T]) -> _T:
        """Call a function that reads, repeatedly if needed; raises the error of the last attempt."""
        try:
            return self._tried(read)
        except Exception as error:
            failure = cleaned(error)  # errors of stores have the URL in their texts
        raise failure  # not in the handler, where the error as it was would become its context

    def _tried(self, read: Callable[[], _T]) -> _T:
        wait_s = self.first_wait_s
        for _ in range(self.attempts - 1):
            try:
                return within(self.timeout_s, read)
            except Exception as error:
                if not may_pass(error):
                    raise
            time.sleep(min(wait_s, self.most_wait_s) + _jitter.uniform(0, self.first_wait_s))
            wait_s *= 2
        return within(self.timeout_s, read)


def may_pass(error: BaseException) -> bool:
    """Whether a failure may be temporary: of the network, of the server, or of a file that is being written."""
    if isinstance(error, FileError) and error.__cause__ is not None:
        return may_pass(error.__cause__)
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
    """Call a function in a thread, and wait that long for its result.

    Raises:
        TimeoutError: It has not returned. Its requests to web servers end, and their connections are closed; for
            other stores, its thread goes on until they answer.
    """

    def limited() -> _T:
        end_requests_after(seconds)
        return action()

    future = called_in_thread(limited, "remote reading")
    if not wait([future], seconds).done:
        raise TimeoutError(f"there was no answer within {seconds:g} s")
    return future.result()
