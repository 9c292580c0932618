# SPDX-License-Identifier: Apache-2.0
"""Pickles of plain values: whatever else they name is refused before it is imported, so no code of theirs runs."""

from __future__ import annotations

import os
from typing import Any

from accvlab.dali_pipeline_framework.errors import FileError, file_error
from accvlab.dali_pipeline_framework.extension import open_table
from accvlab.dali_pipeline_framework.garbage import no_garbage_collected

from .pickle_trial import loaded_in_thread, try_to_load
from .pickled_values import LimitError, NotPlainError, unpickled


def load_plain_pickle(path: str | os.PathLike[str]) -> Any:
    """Load a pickle of lists, tuples, dicts, numbers, texts, bytes, None, and arrays and scalars of NumPy 1 or 2.

    Arrays are of numbers, texts, bytes or objects. Those that are not of objects cannot be written to.

    Raises:
        FileError: It cannot be read, is damaged, holds anything else, or takes more time, memory or levels
            than its size allows, which a child process finds out.
    """
    text = os.fspath(path)
    try:
        with open_table(path) as file:
            data = file.read()
    except OSError as error:
        raise file_error(f"The pickle {text!r} cannot be read", error) from error
    try:
        try_to_load(data)
        with no_garbage_collected():
            return loaded_in_thread(lambda: unpickled(data))
    except LimitError as error:
        raise FileError(f"The pickle {text!r} is not loaded: {error}.") from error
    except NotPlainError as error:
        raise FileError(
            f"The pickle {text!r} holds {error}: only plain values are loaded (list, tuple, dict, numbers, str, "
            f"bytes, None, NumPy arrays), since anything else could run code. Nothing of it was imported. If you "
            f"trust the file, load it with `pickle.load` where that class is installed, put plain values in its "
            f"place, and write it again."
        ) from error
    except Exception as error:
        # What damaged bytes make the unpickler raise can be nearly anything.
        reason = f"{type(error).__name__}: {error}"
        if _is_text(data):
            raise FileError(f"{text!r} is no pickle, but text ({reason}). Give the pickle.") from error
        raise FileError(
            f"The pickle {text!r} is cut short, damaged, or no pickle ({reason}). Copy or make it again."
        ) from error


def _is_text(data: bytes) -> bool:
    """Whether a file begins with what no pickle has: printable text alone."""
    try:
        # A character may be cut at the end.
        start = data[:512].decode("utf-8", "strict" if len(data) < 512 else "ignore")
    except UnicodeDecodeError:
        return False
    return bool(start.strip()) and all(one.isprintable() or one in "\r\n\t" for one in start)
