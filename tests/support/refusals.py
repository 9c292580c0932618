"""What is refused: settings with a message, and files soon, before memory is reserved for what they claim."""

from __future__ import annotations

import os
import re
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from accvlab.dali_pipeline_framework.errors import FileError, SettingError

_LARGE = (1 << 33) + 1


def assert_refused(make: Callable[[], Any], words: str, error: type[Exception] = SettingError) -> Exception:
    """Check that a call is refused by an error whose message has these words; ``...`` stands for others."""
    with pytest.raises(error) as caught:
        make()
    pattern = ".*".join(map(re.escape, words.split("...")))
    assert re.search(pattern, str(caught.value), re.DOTALL), str(caught.value)
    return caught.value


def refusal(read: Callable[[], Any], error: type[Exception] = FileError) -> str:
    """What a reader says; it must be fast, and reserve little."""
    tracemalloc.start()
    began = time.process_time()
    try:
        with pytest.raises(error) as caught:
            read()
        assert time.process_time() - began < 5
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
    return str(caught.value)


def assert_too_large_a_file_is_refused(folder: Path, read: Callable[[Path], Any]) -> None:
    path = folder / "meta" / "info.json"
    path.parent.mkdir()
    with path.open("wb") as file:
        os.truncate(file.fileno(), _LARGE)  # without a block on the disk
    message = refusal(lambda: read(path))
    assert repr(str(path)) in message
    assert f"it has {_LARGE} bytes, more than the limit of {1 << 33}" in message
    assert "raise the limit: `limits.set_most_file_bytes`" in message
