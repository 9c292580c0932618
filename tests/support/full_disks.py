"""Disks without room, as far as ledgers are concerned."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import Any

import pytest


@contextlib.contextmanager
def fills_the_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Files cannot grow: no room can be reserved, and of what is written a part only gets there."""
    write = os.pwrite

    def reserve(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", reserve)
        patch.setattr(os, "pwrite", lambda file, content, place: write(file, content[:10], place))
        yield
