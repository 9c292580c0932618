# SPDX-License-Identifier: Apache-2.0
"""Base classes of inputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, TypeAlias

from nvidia.dali import types

from ..draws.keyed_draws import SamplePlace
from ..sample_data import FieldValue, SampleDataGroup
from ..sample_data.conversion import FlatSample
from .shards import Shard

Source: TypeAlias = Any
"""A callable, an iterable or a native input: any object with some of the attributes of `InputBase`."""


class InputBase(ABC):
    """Base class of `CallableBase` and `IterableBase`.

    The attributes are optional knowledge of an input; a subclass sets them, or overrides them with a property.

    Attributes:
        num_batches_per_epoch: Number of batches that one epoch delivers, or None if it is not known.
        batch_size: Number of samples per batch that this input is set up for, or None where any will do.
        has_epochs: Whether the samples come in epochs; False for an endless stream, which is never restarted.
        shard: Shard id and number of shards (a pair or a `Shard`) of an input that delivers one part of the data,
            or None if they are not known. Random draws differ between shards only where this is set.
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
        """Length of one epoch, in the unit that the input documents, or None if it is not known."""


class CallableBase(InputBase):
    """An input from which DALI requests single samples, from any number of worker processes.

    A callable must be a pure function of the `SampleInfo` that it is given: each worker has a copy of its
    own, and any sample may be requested from any worker. With spawned workers it is pickled: create objects that
    cannot be pickled (locks, open files, database handles) on first use, not in the constructor.
    """

    @abstractmethod
    def __call__(self, sample_info: types.SampleInfo) -> FlatSample:
        """Get one sample as the flat tuple of its data fields (`SampleDataGroup.get_data`).

        Args:
            sample_info: Position of the sample: its index in the epoch, its index in the batch, the number of the
                batch, and the number of the epoch.

        Raises:
            StopIteration: The epoch has ended; this is how an epoch ends, not a failure.
        """

    def get_sample_index(self, sample_info: types.SampleInfo) -> int | None:
        """Get the index in the data set of the sample at a position, by default from `get_place`; None if unknown.

        Error messages name samples by this index. The method may be called in another process than the one that
        loads.
        """
        place = self.get_place(sample_info)
        return None if place is None else place.sample_index

    def get_place(self, sample_info: types.SampleInfo) -> SamplePlace | None:
        """Get the place of the sample at a position; None if it is not known, or the epoch has ended.

        The place names the sample in messages, fills its context group (``context_name``) and keys its draws.
        """
        return None


class IterableBase(InputBase):
    """An input that delivers whole batches and may keep a state.

    It runs in exactly one worker process; prefer a callable (`CallableBase`) where several workers should
    load. If it has a ``length``, that is the number of batches. With a spawned worker it is pickled before its
    first use: create objects that cannot be pickled in the first call of ``__next__``.

    Attributes:
        current_sample_indices: Indices in the data set of the batch last requested, or None if they are not
            known. They name samples in error messages.
    """

    current_sample_indices: Sequence[int] | None = None

    @abstractmethod
    def __iter__(self) -> IterableBase:
        """Start an epoch. It is called once per epoch, in the process that loads the data."""

    @abstractmethod
    def __next__(self) -> Sequence[FieldValue]:
        """Get one batch: per data field (in flat order) a list with one array per sample.

        Raises:
            StopIteration: The epoch has ended; this is how an epoch ends, not a failure.
        """
