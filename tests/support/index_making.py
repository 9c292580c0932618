"""Indices in caches: checks that one process makes them, and of the errors where none can be made."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.child_processes import join

FORK = multiprocessing.get_context("fork")
# Opens an index in the folder ``cache`` of a folder, and calls a function when it makes one.
Opener = Callable[[Path, Callable[[], None]], Any]


def assert_one_process_makes_it(opener: Opener, folder: Path, is_deadly: bool) -> None:
    results = FORK.Queue()
    arguments = (opener, folder, is_deadly, results)
    processes = [FORK.Process(target=_opened_in_child, args=arguments) for _ in range(4)]
    for process in processes:
        process.start()
    found = [results.get(timeout=100) for _ in range(3 if is_deadly else 4)]
    join(processes, 100)
    assert len(set(map(str, found))) == 1
    assert sorted(process.exitcode for process in processes) == [-9 if is_deadly else 0, 0, 0, 0]
    assert len([*folder.glob("made_*")]) == 1 + is_deadly
    assert not [*(folder / "cache").glob("*/.*")]  # no parts


def _opened_in_child(opener: Opener, folder: Path, is_deadly: bool, results: Any) -> None:
    """Open an index, whose making takes a while and is noted; the first maker may be killed."""

    def note() -> None:
        (folder / f"made_{os.getpid()}").touch()
        time.sleep(0.3)
        if is_deadly and len([*folder.glob("made_*")]) == 1:
            if os.fork() == 0:  # a child of the maker must not keep the lock
                time.sleep(2)
                os._exit(0)
            os.kill(os.getpid(), signal.SIGKILL)

    results.put(opener(folder, note))


def assert_a_full_disk_is_reported(opener: Opener, folder: Path, error: type[Exception], setting: str) -> None:
    with _files_of_some_bytes(), pytest.raises(error) as caught:
        opener(folder, lambda: None)
    assert "File too large" in str(caught.value)
    assert str(folder / "cache") in str(caught.value)
    assert f"name another folder: {setting}." in str(caught.value)
    assert not [*(folder / "cache").glob("*/header.json")]


@contextlib.contextmanager
def _files_of_some_bytes() -> Iterator[None]:
    """No file can become larger."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (250, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
