"""Disks without room, as far as ledgers are concerned."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest


@contextlib.contextmanager
def fills_the_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Of what is written, only a part gets into the file."""
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda file, content: write(file, content[:10]))
        yield
