# SPDX-License-Identifier: Apache-2.0
"""What all inputs have in common: a blueprint, and what they know of their epochs and batches."""

from __future__ import annotations

from abc import ABC, abstractmethod

from ..sample_data import SampleDataGroup
from .shards import Shard


class InputBase(ABC):
    """Base class of `CallableBase` and `IterableBase`.

    The attributes are what an input may know; a subclass sets them, or overrides them with a property.

    Attributes:
        num_batches_per_epoch: Number of batches that one epoch delivers, or None where it is not known.
        batch_size: Number of samples per batch that this input is set up for, or None where any will do.
        has_epochs: Whether the samples come in epochs; False for an endless stream, which is never restarted.
        shard: Shard id and number of shards (a pair or a `Shard`) of an input that delivers one part of the data,
            or None where it does not tell. Random draws differ between shards only where this is set.
        delivers_partial_batches: Whether a batch may be smaller than the batch size: where an epoch ends within
            a batch, its samples are delivered. Otherwise they are dropped.
    """

    num_batches_per_epoch: int | None = None
    batch_size: int | None = None
    has_epochs: bool = True
    shard: tuple[int, int] | Shard | None = None
    delivers_partial_batches: bool = False

    @property
    @abstractmethod
    def used_sample_data_structure(self) -> SampleDataGroup:
        """Blueprint of the samples that this input delivers."""

    @property
    @abstractmethod
    def length(self) -> int | None:
        """Length of one epoch, in the unit that the input documents, or None where it is not known."""
