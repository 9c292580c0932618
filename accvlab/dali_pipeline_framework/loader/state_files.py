# SPDX-License-Identifier: Apache-2.0
"""States of loaders in files."""

from __future__ import annotations

import errno
import json
import os

from ..checks import file_path
from ..errors import StateError, file_error
from ..limits.file_limits import open_table
from ..providers.files.storage import replace_file
from .data_loader import DataLoader

_MOST_BYTES = 1 << 28  # what is larger is something else


def save_state(loader: DataLoader, path: str | os.PathLike[str]) -> None:
    """Write the state of a loader to a file, as JSON.

    The file is replaced as a whole once the new content is on the disk: after a crash or a loss of power, it holds
    the old state or the new one. Several ranks may write to the same file, if they have the same state
    (see `DataLoader.state_dict`).

    Args:
        loader: The loader.
        path: The file; its folder must be there.

    Raises:
        NotSupportedError: As for `DataLoader.state_dict`.
        FileError: The file cannot be written. The error is also an instance of the builtin class of its cause,
            e.g. `PermissionError`.

    Example::

        load_state(loader, "loader.json")  # where an earlier run has left one
        for epoch in range(loader.epoch, 10):
            for batch in loader:
                train(batch)
                save_state(loader, "loader.json")
    """
    text = os.path.expanduser(file_path(path, "path"))
    content = json.dumps(loader.state_dict()).encode()
    try:
        if os.path.exists(text) and not (os.path.isfile(text) or os.path.isdir(text)):
            raise OSError(errno.EINVAL, "it is no regular file")  # a device such as /dev/null would be replaced
        replace_file(os.path.abspath(text), [content, b"\n"], outlives_machine=True)
    except OSError as error:
        raise file_error(f"The state cannot be written to {text!r}", error) from error


def load_state(loader: DataLoader, path: str | os.PathLike[str]) -> bool:
    """Have a loader resume from the state in a file, if the file exists.

    Args:
        loader: The loader.
        path: What `save_state` has written.

    Returns:
        Whether there was a file. If not, nothing has changed.

    Raises:
        StateError: As for `DataLoader.load_state_dict`. The message names the file.
        FileError: The file cannot be read, or is not a regular file. The error is also an instance of the builtin
            class of its cause, e.g. `PermissionError`.
        NotSupportedError: As for `DataLoader.load_state_dict`.
    """
    text = os.path.expanduser(file_path(path, "path"))
    try:
        with open_table(text) as file:
            content = file.read(_MOST_BYTES + 1)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise file_error(f"The state in {text!r} cannot be read", error) from error
    if len(content) > _MOST_BYTES:
        raise StateError(f"{text!r} is larger than any state of a loader.")
    try:
        loader.load_state_dict(content)
    except StateError as error:
        named = StateError(f"{text!r}: {error}")
        named.differences = error.differences
        raise named from error
    return True
