# SPDX-License-Identifier: Apache-2.0
"""Base class of samplers: objects that choose the samples of each batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from ..short_tracebacks import construct_with_short_traceback


class SamplerBase(ABC):
    """Chooses the sample indices of one global batch after the other (all shards together).

    A sampler may keep a state, but it must be deterministic: worker processes replay copies of it.
    """

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Shorten the tracebacks of the constructor."""
        super().__init_subclass__(**arguments)
        construct_with_short_traceback(cls)

    @abstractmethod
    def get_next_batch_indices(self) -> Sequence[int]:
        """Get the sample indices of the next global batch, one per slot.

        Raises:
            StopIteration: The epoch of an epoch-based sampler has ended; `reset` starts the next one.
        """

    @property
    @abstractmethod
    def is_epoch_based(self) -> bool:
        """Whether the batches come in epochs; otherwise the sampler is endless."""

    @abstractmethod
    def reset(self) -> None:
        """Start the next epoch. Called for epoch-based samplers only."""

    @property
    @abstractmethod
    def length(self) -> int | None:
        """Length of one epoch, or None where it is not known."""
