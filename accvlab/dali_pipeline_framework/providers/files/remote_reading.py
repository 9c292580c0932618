# SPDX-License-Identifier: Apache-2.0
"""Reading from storage that can fail: tried again, within a time, and checked for its length."""

from __future__ import annotations

import io
from collections.abc import Callable
from concurrent.futures import wait
from typing import Any, TypeVar

import attrs

from ...checks import whole_number
from ...errors import FileError, SettingError
from ...limits.file_limits import UNPACKED_BYTES, FileTooLargeError
from ...threads import called_in_thread
from ...url_secrets import cleaned
from .http_answers import end_requests_after, is_http, whole
from .remote_version import FileVersion, ReplacedFileError

_T = TypeVar("_T")

# Another try would fail in the same way.
_FINAL = (
    FileNotFoundError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
    ReplacedFileError,
    io.UnsupportedOperation,
)
_ARCHIVES = ("zip", "tar", "libarchive")  # file systems whose files may be compressed
_FINAL_STATUS = range(400, 500)
_PASSING_STATUS = (408, 425, 429)  # of them: time-out, too early, too many requests
_CLIENTS = ("aiohttp", "botocore", "aiobotocore", "gcsfs", "google", "azure", "requests", "urllib3", "fsspec")


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
            request (without content) per file. A file that changes while it is read is then tried again. Of files
            that are read in parts, such as videos, the version is compared with each part; web servers and S3 tell
            it without a further request.

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
            return self._tried(read)
        except Exception as error:
            failure = cleaned(error)  # errors of stores have the URL in their texts
        raise failure  # not in the handler, where the error as it was would become its context

    def _tried(self, read: Callable[[], _T]) -> _T:
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
    """Call a function in a thread, and wait for its result so long.

    Raises:
        TimeoutError: It has not come back. Its requests to web servers end, and their connections are closed; for
            other stores, its thread goes on until they answer.
    """

    def limited() -> _T:
        end_requests_after(seconds)
        return action()

    future = called_in_thread(limited, "remote reading")
    if not wait([future], seconds).done:
        raise TimeoutError(f"there was no answer within {seconds:g} s")
    return future.result()


def read_file(file_system: Any, path: str, reading: RemoteReading) -> bytes:
    """Read a remote file.

    Raises:
        Exception: What the last attempt raises.
    """

    def read() -> bytes:
        if getattr(file_system, "protocol", None) in _ARCHIVES:  # whose index tells it, without a request
            UNPACKED_BYTES.require(FileVersion(file_system, path).size or 0, "it has {} bytes")
        content: bytes = whole(file_system, path) if is_http(file_system) else file_system.cat_file(path)
        if reading.checks_length:
            FileVersion(file_system, path).require_length(len(content))
        return content

    return reading(read)
