# SPDX-License-Identifier: Apache-2.0
"""Warnings that point at the user's line, however deep in this package or in DALI they are found to be due."""

from __future__ import annotations

import contextlib
import sys
import warnings
from pathlib import Path

import nvidia.dali

# All packages of the namespace: those on top of this one warn, too.
_NAMESPACE = f"{Path(__file__).parents[1]}/"
_NOT_THE_USER = (_NAMESPACE, str(Path(nvidia.dali.__file__).parent), contextlib.__file__)
_IMPORTING = "<frozen importlib"


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn, with the innermost line outside of accvlab and DALI as the place."""
    frame = sys._getframe(1)
    level = 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith((*_NOT_THE_USER, _IMPORTING)):
        level += not frame.f_code.co_filename.startswith(_IMPORTING)  # Python does not count these either
        frame = frame.f_back
    warnings.warn(message, category, stacklevel=level)
