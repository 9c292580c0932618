# SPDX-License-Identifier: Apache-2.0
"""Base class of inputs that are asked for one sample at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from nvidia.dali import types

from accvlab.dali_pipeline_framework.sample_data import SampleDataGroup


class CallableBase(ABC):
    """An input that DALI asks for single samples, from any number of worker processes.

    A callable must be a pure function of the `SampleInfo` that it is given: each worker has a copy of its
    own, and any worker may be asked for any sample. With spawned workers it is pickled; what cannot be
    pickled (locks, open files, database handles) is made on first use instead of in the constructor.

    The properties that are not abstract have a default for inputs that do not know the answer.
    """

    @property
    @abstractmethod
    def used_sample_data_structure(self) -> SampleDataGroup:
        """Blueprint of the samples that this input delivers."""

    @abstractmethod
    def __call__(self, sample_info: types.SampleInfo) -> tuple[Any, ...]:
        """Get one sample as the flat tuple of its data fields (`SampleDataGroup.get_data`).

        Args:
            sample_info: Position of the sample: index in the epoch and in the batch, batch, and epoch.

        Raises:
            StopIteration: The epoch has ended; this is how an epoch ends, not a failure.
        """

    @property
    @abstractmethod
    def length(self) -> int | None:
        """Length of one epoch, in the unit that the input documents, or None where it is not known."""

    @property
    def num_batches_per_epoch(self) -> int | None:
        """Number of batches that one epoch delivers, or None where it is not known."""
        return None

    @property
    def batch_size(self) -> int | None:
        """Number of samples per batch that this input is set up for, or None where any will do."""
        return None

    @property
    def has_epochs(self) -> bool:
        """Whether the samples come in epochs; False for an endless stream, which is never restarted."""
        return True

    def get_sample_index(self, sample_info: types.SampleInfo) -> int | None:
        """Index in the data set of the sample at a position, or None where it is not known.

        It names samples in error messages, and may be called in another process than the one that loads.
        """
        return None
