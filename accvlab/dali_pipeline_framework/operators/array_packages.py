# SPDX-License-Identifier: Apache-2.0
"""Packages that steps need to work on arrays, and that are not required otherwise."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from ..errors import MissingPackageError

# What a package is called, and the extra that installs it; for others, both as the package.
_INSTALLED_AS = {
    "cv2": ("OpenCV", "cpu"),
    "simplejpeg": ("simplejpeg", "cpu"),
    "torchvision.tv_tensors": ("torchvision", "torchvision"),
}


def needed_package(name: str) -> ModuleType:
    """Import a package, when first needed; the module that is loaded already costs a look-up.

    Raises:
        MissingPackageError: It cannot be imported.
    """
    loaded = sys.modules.get(name)
    if loaded is not None:
        return loaded
    try:
        package = importlib.import_module(name)
    except ImportError as error:
        raise _missing("Steps on arrays need", name, f"cannot be imported ({error})") from error
    _opencv_threads.package_was_imported()
    return package


def is_installed(name: str) -> bool:
    """Whether a package can be imported."""
    top = name.partition(".")[0]
    return top in sys.modules or importlib.util.find_spec(top) is not None


def require_installed(name: str, user: str) -> None:
    """Require that a package can be imported, without importing it.

    Raises:
        MissingPackageError: It is not installed; names the extra.
    """
    if not is_installed(name):
        raise _missing(f"{user} needs", name, "is not installed")


def _missing(user: str, name: str, problem: str) -> MissingPackageError:
    package, extra = _INSTALLED_AS.get(name, (name, name))
    return MissingPackageError(
        f"{user} {package}, which {problem}. Install it with: "
        f'pip install "accvlab.dali_pipeline_framework[{extra}]", or use steps that run in the graph.'
    )


class _OpenCvThreads:
    """Counts who needs OpenCV to compute in one thread, and remembers how many it had before."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._given: int | None = None

    def begin(self, ends_others: bool) -> None:
        with self._lock:
            self._users += 1
            self._set_one()
            if ends_others and self._given is not None:
                sys.modules["cv2"].setNumThreads(1)

    def end(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users and self._given is not None:
                sys.modules["cv2"].setNumThreads(self._given)
                self._given = None

    def package_was_imported(self) -> None:
        with self._lock:
            if self._users:
                self._set_one()

    def _set_one(self) -> None:
        opencv: Any = sys.modules.get("cv2")
        count = getattr(opencv, "getNumThreads", int)()  # while it is being imported, it has none
        if count > 1:
            self._given = count
            opencv.setNumThreads(0)  # in the calling thread; unlike 1, it keeps the others for later


_opencv_threads = _OpenCvThreads()


def _forget_threads_of_opencv() -> None:
    """In a forked process, nobody is there to end what other threads have begun, or to open their lock."""
    _opencv_threads.__init__()  # type: ignore[misc]


os.register_at_fork(after_in_child=_forget_threads_of_opencv)


@contextlib.contextmanager
def one_thread_of_opencv(*, ends_others: bool = False) -> Iterator[None]:
    """Have OpenCV compute in the calling thread meanwhile, as in workers; then as before.

    With several threads, some of its functions cut images into parts whose pixels differ by a grey level.

    Args:
        ends_others: Whether its other threads end; then they are started again when they are needed.
    """
    _opencv_threads.begin(ends_others)
    try:
        yield
    finally:
        _opencv_threads.end()
