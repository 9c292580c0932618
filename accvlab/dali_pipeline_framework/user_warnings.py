# SPDX-License-Identifier: Apache-2.0
"""Warnings that point at the user's line, however deep in this package or in DALI they are found to be due."""

from __future__ import annotations

import contextlib
import sys
import warnings
from pathlib import Path

import nvidia.dali

from .url_secrets import without_secrets

_NOT_THE_USER = (str(Path(__file__).parent), str(Path(nvidia.dali.__file__).parent), contextlib.__file__)


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn, with the innermost line outside of this package and DALI as the place."""
    frame = sys._getframe(1)
    level = 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_NOT_THE_USER):
        frame = frame.f_back
        level += 1
    warnings.warn(without_secrets(message), category, stacklevel=level)
