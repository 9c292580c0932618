# SPDX-License-Identifier: Apache-2.0
"""Base class of inputs that deliver one batch after the other."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from .input_base import InputBase


class IterableBase(InputBase):
    """An input that delivers whole batches and may keep a state.

    It runs in exactly one worker process; prefer a callable (`CallableBase`) where several workers should
    load. Its ``length`` counts batches. With a spawned worker it is pickled before its first use; what cannot
    be pickled is made on the first call of ``__next__``.

    Attributes:
        current_sample_indices: Indices in the data set of the batch last asked for, or None where they are not
            known. They name samples in error messages.
    """

    current_sample_indices: Sequence[int] | None = None

    @abstractmethod
    def __iter__(self) -> IterableBase:
        """Start an epoch. It is called once per epoch, in the process that loads the data."""

    @abstractmethod
    def __next__(self) -> Sequence[Any]:
        """Get one batch: per data field (in flat order) a list with one array per sample.

        Raises:
            StopIteration: The epoch has ended; this is how an epoch ends, not a failure.
        """
