# SPDX-License-Identifier: Apache-2.0
"""Files that list failed samples, a line of JSON for each; several processes may write to one."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from typing import TYPE_CHECKING, Any

import attrs

from ..checks import file_path, shown
from ..errors import QuarantineError
from ..limits.tables import open_table

if TYPE_CHECKING:
    from .failed_samples import FailedSample

_LONGEST_TEXT = 2000
_TEXTS = ("file", "reason", "step", "host", "outcome")
_COUNTS = ("sample", "epoch", "batch")


@attrs.frozen
class QuarantineEntry:
    """A line of such a file.

    Attributes:
        sample_index: Index of the sample in the data set.
        file: Where it comes from, as far as the provider tells.
        reason: Why it failed.
        step: Where it failed: ``"loading"``, ``"checks"``, ``"steps"`` or ``"graph"``.
        epoch: Epoch in which it failed; None where it was found otherwise.
        batch: Batch of the epoch.
        host: Name of the machine.
    """

    sample_index: int
    file: str = ""
    reason: str = ""
    step: str = ""
    epoch: int | None = None
    batch: int | None = None
    host: str = ""


class Quarantine:
    """Appends lines to a file, each in one piece, also where several processes do so."""

    def __init__(self, path: str) -> None:
        """Check that the file can be written.

        Raises:
            QuarantineError: It cannot.
        """
        self._path = path
        self._host = socket.gethostname()
        self._append(b"")

    def add(self, failed: FailedSample, *, has_place: bool = True) -> None:
        """Append a line for a sample; ``has_place``: whether it has failed in a batch of an epoch."""
        line: dict[str, Any] = {
            "sample": failed.sample_index,
            "file": failed.file[:_LONGEST_TEXT],
            "reason": failed.reason[:_LONGEST_TEXT],
            "step": failed.stage,
            **({"epoch": failed.epoch, "batch": failed.batch} if has_place else {}),
            "host": self._host,
        }
        self._append(json.dumps(line).encode() + b"\n")

    def _append(self, line: bytes) -> None:
        try:
            # Not waiting: else a pipe that nobody reads would be waited for without end.
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
            file = os.open(self._path, flags, 0o666)
            try:
                if line:
                    # One write to the end of a file is whole on local disks; network file systems need the lock.
                    with _locked(file):
                        os.write(file, line)
            finally:
                os.close(file)
        except OSError as error:
            raise QuarantineError(
                f"The list of failed samples {self._path!r} cannot be written: {error.strerror}. Make room, or "
                f"name another file: `FaultPolicy(quarantine=...)`."
            ) from error


class _locked:  # noqa: N801 (used like a function)
    def __init__(self, file: int) -> None:
        self._file = file
        self._is_locked = False

    def __enter__(self) -> None:
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX)
            self._is_locked = True
        except OSError:  # some network file systems have no locks
            self._is_locked = False

    def __exit__(self, *exception: object) -> None:
        if self._is_locked:
            fcntl.lockf(self._file, fcntl.LOCK_UN)


def read_quarantine(path: str) -> list[QuarantineEntry]:
    """Read a file that lists failed samples.

    Only ``"sample"`` is needed in a line, so such files can be written by hand. Empty lines count for nothing.

    Raises:
        QuarantineError: It cannot be read, or a line is not of this form; tells which line.
    """
    try:
        with open_table(file_path(path, "path")) as file:
            lines = file.read().split(b"\n")
    except OSError as error:
        raise QuarantineError(f"The list of failed samples {path!r} cannot be read: {error.strerror}.") from error
    entries = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            entries.append(_entry(line))
        except ValueError as error:
            is_cut = number == len(lines)
            advice = " The file ends in the middle of a line: was writing it interrupted?" if is_cut else ""
            raise QuarantineError(f"{path}, line {number}: {error}{advice}") from None
    return entries


def _entry(line: bytes) -> QuarantineEntry:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"must be JSON, got {shown(line)} ({error}).") from None
    if not isinstance(fields, dict):
        raise ValueError(f'must be an object such as {{"sample": 7}}, got {shown(fields)}.')
    if "sample" not in fields:
        raise ValueError(f'must have "sample", the index of a sample; has {", ".join(fields) or "nothing"}.')
    for name in _COUNTS:
        value = fields.get(name, 0)
        if type(value) is not int or not 0 <= value < 2**63:
            raise ValueError(f'"{name}" must be a whole number of at least 0, got {shown(value)}.')
    for name in _TEXTS:
        if not isinstance(fields.get(name, ""), str):
            raise ValueError(f'"{name}" must be a text, got {shown(fields[name])}.')
    return QuarantineEntry(
        fields["sample"],
        fields.get("file", ""),
        fields.get("reason", ""),
        fields.get("step", ""),
        fields.get("epoch"),
        fields.get("batch"),
        fields.get("host", ""),
    )
