# SPDX-License-Identifier: Apache-2.0
"""Notes in a ledger what a loader delivers."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..checks import file_path
from ..errors import SettingError
from ..ledgers import NEW, STATE, LedgerWriter
from .input_binding import LoaderInput
from .progress import Position

if TYPE_CHECKING:
    from .loader_pipeline import LoaderPipeline

_logger = logging.getLogger(__name__)


class LedgerRecording:
    """The ledger of a loader: made with its first loop.

    A ledger that cannot be written (the disk is full) does not end the training. It says so once and notes nothing
    more, so that what follows is missing when the ledgers are looked at.

    Attributes:
        is_on: Whether anything is noted.
    """

    def __init__(self, folder: str | os.PathLike[str] | None, bound: LoaderInput, seed: int) -> None:
        """Set up; nothing is written yet, and never where ``folder`` is None.

        Raises:
            SettingError: ``folder`` is no path, or that of a file.
            NotSupportedError: The samples that the input delivers are not known.
        """
        self.is_on = folder is not None
        self._writer: LedgerWriter | None = None
        self._why: str | None = NEW  # the next run of batches begins; None: the last one goes on
        self._noted: Position | None = None  # of this loop, the last
        if folder is None:
            return
        self._folder = os.path.expanduser(file_path(folder, "ledger"))
        if os.path.exists(self._folder) and not os.path.isdir(self._folder):
            raise SettingError(f"`ledger` must be a folder (made if need be), got the file {self._folder!r}.")
        planned = getattr(bound.data_input, "provider", None)
        order = json.dumps([bound.description, seed], sort_keys=True, default=str)
        self._about: dict[str, int | str] = {
            "shard": bound.shard.shard_id,
            "shards": bound.shard.num_shards,
            "num_samples": -1 if planned is None else int(planned.get_number_of_samples()),
            "order": hashlib.blake2b(order.encode(), digest_size=8).hexdigest(),
        }

    def begin(self, position: Position) -> None:
        """Note that a loop begins."""
        self._noted = None
        self._write(self._begin, position)

    def _begin(self, position: Position) -> None:
        if self._writer is None:
            self._writer = LedgerWriter(self._folder, self._about)
        if self._why is not None:
            self._writer.begin(self._why, position.epoch, position.batch)
        self._why = None

    def continue_from_state(self) -> None:
        """Have the next loop be one that goes on from a state."""
        self._why = STATE

    def note(self, position: Position, run: LoaderPipeline) -> None:
        """Note the batch before a position, which was just delivered."""
        if self._writer is None:
            return
        samples, replaced = run.samples_received()
        more: dict[str, Any] = {"replaced": replaced} if replaced else {}
        if position == self._noted:  # it was made again after an interrupt
            more["again"] = True
        self._noted = position
        try:  # not by `_write`: one call less with each batch
            self._writer.note_batch(position.epoch, position.batch - 1, samples, **more)
        except OSError as error:
            self._fail(error)

    def end_loop(self) -> None:
        """Have what was noted outlive the machine."""
        if self._writer is not None:
            self._write(self._writer.sync)

    def close(self) -> None:
        """Close the file."""
        writer, self._writer = self._writer, None
        if writer is not None:
            self._write(writer.close)

    def _write(self, write: Callable[..., None], *values: Any) -> None:
        if not self.is_on:
            return
        try:
            write(*values)
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        self.is_on, self._writer = False, None
        _logger.error(
            "The ledger in %r cannot be written: %s. Make room, or name another folder: `ledger`. Nothing more is "
            "noted in it: what follows will be found missing.",
            self._folder,
            error.strerror or error,
        )
