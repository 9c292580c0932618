# SPDX-License-Identifier: Apache-2.0
"""Reading from unreliable storage: repeated attempts, within a time limit."""

from __future__ import annotations

import io
import random
import time
from collections.abc import Callable, Mapping
from concurrent.futures import wait
from typing import Any, TypeAlias, TypeVar

import attrs

from ...checks import number, valid, whole_number
from ...limits.file_limits import FileTooLargeError, LfsPointerError
from ...threads import called_in_thread
from ...unknown_arguments import explains_unknown_arguments
from ...url_secrets import cleaned

_T = TypeVar("_T")

FileSystem: TypeAlias = Any
"""A file system of fsspec, which has no types."""

StorageOptions: TypeAlias = Mapping[str, Any]
"""Arguments of a file system of fsspec, by name."""


class ChangedFileError(OSError):
    """A file is not the one that was opened any more; to read it again gives no other result."""


# Another try would fail in the same way.
_OF_NAMES = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
_FINAL = (*_OF_NAMES, ChangedFileError, FileTooLargeError, LfsPointerError, io.UnsupportedOperation)
_NOT_FOUND = (404, 410)
_FINAL_STATUS = range(400, 500)
_PASSING_STATUS = (408, 425, 429)  # of them: time-out, too early, too many requests
# From the system: a generator that is forked would draw the same in all workers, and the global one belongs to the
# data set.
_jitter = random.SystemRandom()
_CLIENTS = ("aiohttp", "botocore", "aiobotocore", "gcsfs", "google", "azure", "requests", "urllib3", "fsspec")


@explains_unknown_arguments
@attrs.frozen(kw_only=True)
class RemoteReading:
    """Settings for reading remote files: the entry ``"reading"`` of ``storage_options``.

    Attributes:
        attempts: Number of attempts to read a file, if it fails for reasons that may be temporary. Files that do
            not exist, or to which access is denied, are tried once.
        first_wait_s: Time until the second attempt. Each further wait is twice as long as the one before, with a
            random part, so that workers do not send requests all at once.
        most_wait_s: Upper limit of the wait before each further attempt, without its random part, which is at most
            ``first_wait_s``.
        timeout_s: Time for one attempt.

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

    def __call__(self, read: Callable[[], _T]) -> _T:
        """Call a function that reads, repeatedly if needed; raises the error of the last attempt."""
        wait_s = self.first_wait_s
        for attempt in range(1, self.attempts + 1):
            try:
                return within(self.timeout_s, read)
            except Exception as error:
                failure = _of_server(error)
            if attempt == self.attempts or not may_pass(failure):
                break
            time.sleep(min(wait_s, self.most_wait_s) + _jitter.uniform(0, self.first_wait_s))
            wait_s *= 2
        # Not in the handler, where the error as it was would become its context: texts of stores have the URL.
        raise cleaned(failure)


def _of_server(error: Exception) -> BaseException:
    """Get what a web server has answered, or why not; for fsspec, all of that is a `FileNotFoundError`."""
    cause = error.__cause__
    is_of_http = isinstance(error, FileNotFoundError) and type(cause).__module__.startswith("aiohttp")
    return cause if cause and is_of_http and getattr(cause, "status", None) not in _NOT_FOUND else error


def may_pass(error: BaseException) -> bool:
    """Whether a failure may be temporary: of the network, of the server, or of a file that is being written."""
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
        TimeoutError: It has not returned; its thread goes on until the store answers.
    """
    future = called_in_thread(action, "remote reading")
    if not wait([future], seconds).done:
        raise TimeoutError(f"there was no answer within {seconds:g} s")
    return future.result()
