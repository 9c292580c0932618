# SPDX-License-Identifier: Apache-2.0
"""A lock for files that several processes want to make: one does, the others wait and find it made."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import threading
import time
from collections.abc import Iterator

_POLL_S = 0.05
_TOLD_AFTER_S = 2.0
_MOST_S = 3600.0  # a process that stands still with the lock must not stop the others

_logger = logging.getLogger(__name__)
_held: dict[str, tuple[int, int]] = {}  # lock file -> thread that holds it, descriptor


@contextlib.contextmanager
def making(path: str | os.PathLike[str]) -> Iterator[bool]:
    """Hold the lock of a file that is to be made; wait for another process or thread that makes it.

    The kernel gives the lock up when its process ends, however that ends. Where the folder cannot be written to,
    or its file system has no locks, and after an hour, the file is made without.

    Args:
        path: The file, or folder. Look again whether it is there once the lock is held.

    Yields:
        Whether the lock is held.
    """
    folder, name = os.path.split(os.path.abspath(path))
    lock = os.path.join(folder, f".{name}.lock")
    thread = threading.get_ident()
    if _held.get(lock, (0, 0))[0] == thread:  # waiting for oneself would not end
        yield True
        return
    descriptor = _acquired(lock, path)
    if descriptor is None:
        yield False
        return
    _held[lock] = thread, descriptor
    try:
        yield True
    finally:
        if _held.get(lock) == (thread, descriptor):  # not in a child that was forked meanwhile
            del _held[lock]
            with contextlib.suppress(OSError):
                os.unlink(lock)  # while it is held: who waits for it sees that it is another one
            # Explicitly: children that were started by other means than `os.fork` have the descriptor, too.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


def _acquired(lock: str, path: str | os.PathLike[str]) -> int | None:
    """The descriptor of a lock that is held; None where there can be none."""
    begin_s, is_told = time.monotonic(), False
    while (waited_s := time.monotonic() - begin_s) < _MOST_S:
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError:
            return None  # what is made cannot be written either, which says more
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_file_of(descriptor, lock):
                return descriptor
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES, errno.EINTR):
                os.close(descriptor)
                return None
            if waited_s > _TOLD_AFTER_S and not is_told:
                is_told = True
                _logger.info("Waiting for another process, which makes %s.", os.fspath(path))
            time.sleep(_POLL_S)
        os.close(descriptor)
    _logger.warning("%s is made although another process has been making it for an hour.", os.fspath(path))
    return None


def _is_file_of(descriptor: int, path: str) -> bool:
    """Whether an open file is the one of that name: it may have been removed before it was locked."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(descriptor), status)


def _forget_in_child() -> None:
    """Close the copies of a forked child, which would keep the locks when the parent is killed."""
    for _, descriptor in _held.values():
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_forget_in_child)
