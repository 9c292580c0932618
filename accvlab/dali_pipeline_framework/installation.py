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
_LIBRARY = re.compile(r"^(nvidia/dali/[^/,]+\.so),[^,]*,(\d+)$", re.MULTILINE)
_INFORMATION = re.compile(r"(nvidia_dali_cuda\w+)-(.+)\.dist-info")


@functools.cache
def warn_of_two_wheels() -> None:
    """Warn, once, where the wheels of two versions of CUDA are installed together, or one has files of both."""
    if multiprocessing.parent_process() is not None:  # a worker, which would repeat it
        return
    installed = _installed_wheels()
    names = [*installed]
    if len(names) > 1:
        problem = f"{' and '.join(names)} are both installed. They share nearly all of their files, so each has "
        problem, kept = f"{problem}overwritten parts of the other.", _WHEELS[0]
    else:
        changed = [file for folder in installed.values() for file in _changed_libraries(folder)]
        if not changed:
            return
        problem = (
            f"{names[0]} is installed, but files of it are those of another wheel ({', '.join(changed[:3])})."
        )
        kept = names[0].split()[0]
    from .user_warnings import warn_user  # imports DALI, and this module explains why that may fail

    warn_user(f"{problem} {_ADVICE} Keep one of them:\n{_commands(kept)}")


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
        commands = _commands(next(iter(installed)).split()[0])
    else:
        problem, cause, commands = (
            "DALI is not installed",
            f"{_ADVICE} Install one:",
            f"    pip install {_WHEELS[0]}",
        )
    # Without a name, so that it is left alone where it passes here again.
    return type(error)(f"{problem}. {cause}\n{commands}")


def _installed_wheels() -> dict[str, str]:
    """Names and versions of the wheels that are installed, and where what is known about each lies."""
    # `importlib.metadata` would take ten times as long, at each start of a program.
    found: dict[str, str] = {}
    for folder in sys.path:
        with contextlib.suppress(OSError):
            for name in os.listdir(folder or "."):
                match = _INFORMATION.fullmatch(name)
                if match:
                    found.setdefault(f"{match[1].replace('_', '-')} {match[2]}", os.path.join(folder, name))
    return dict(sorted(found.items()))


def _changed_libraries(information: str) -> list[str]:
    """Libraries of DALI that have another size than their wheel says; the wheels differ in some 20 of them."""
    try:
        with open(os.path.join(information, "RECORD"), encoding="utf-8") as record:
            sizes = _LIBRARY.findall(record.read())
        site = os.path.dirname(information)
        return [name for name, size in sizes if os.path.getsize(os.path.join(site, name)) != int(size)]
    except OSError:  # there is no such file: importing it says so
        return []


def _commands(wheel: str) -> str:
    return f"    pip uninstall --yes {' '.join(_WHEELS)}\n    pip install {wheel}"
