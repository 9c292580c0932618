# SPDX-License-Identifier: Apache-2.0
"""Installed wheels of DALI: there is one for each version of CUDA, and they overwrite each other's files."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import re
import sys

_WHEELS = ("nvidia-dali-cuda120", "nvidia-dali-cuda130")
_ADVICE = "CUDA 12 and machines without a GPU need nvidia-dali-cuda120, CUDA 13 needs nvidia-dali-cuda130."
_INFORMATION = re.compile(r"(nvidia_dali_cuda\w+)-(.+)\.dist-info")


@functools.cache
def warn_of_two_wheels() -> None:
    """Warn, once, where the wheels of two versions of CUDA are installed together."""
    if multiprocessing.parent_process() is not None:  # a worker, which would repeat it
        return
    installed = _installed_wheels()
    if len(installed) > 1:
        from .user_warnings import warn_user  # imports DALI, and this module explains why that may fail

        warn_user(
            f"{' and '.join(installed)} are both installed. They share nearly all of their files, so each has "
            f"overwritten parts of the other. {_ADVICE} Keep one of them:\n{_commands(_WHEELS[0])}"
        )


def explained(error: ImportError) -> ImportError:
    """Return the error to raise in place of a failed import; it says how to repair DALI if that is the cause."""
    if not (error.name or "").startswith("nvidia"):
        return error
    installed = _installed_wheels()
    if installed:
        problem = f"Parts of DALI ({', '.join(installed)}) are missing or damaged: {error}"
        cause = (
            "This happens where two wheels of DALI were installed and one of them was removed. Install it again:"
        )
        commands = _commands(installed[0].split()[0])
    else:
        problem, cause, commands = (
            "DALI is not installed",
            f"{_ADVICE} Install one:",
            f"    pip install {_WHEELS[0]}",
        )
    # Without a name, so that it is left alone where it passes here again.
    return type(error)(f"{problem}. {cause}\n{commands}")


def _installed_wheels() -> list[str]:
    # `importlib.metadata` would take ten times as long, at each start of a program.
    found: set[re.Match[str]] = set()
    for folder in sys.path:
        with contextlib.suppress(OSError):
            found.update(filter(None, map(_INFORMATION.fullmatch, os.listdir(folder or "."))))
    return sorted({f"{match[1].replace('_', '-')} {match[2]}" for match in found})


def _commands(wheel: str) -> str:
    return f"    pip uninstall --yes {' '.join(_WHEELS)}\n    pip install {wheel}"
