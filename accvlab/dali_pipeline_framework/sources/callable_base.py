# SPDX-License-Identifier: Apache-2.0
"""Base class of inputs that are asked for one sample at a time."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from nvidia.dali import types

from ..draws.keyed_random import SamplePlace
from .input_base import InputBase


class CallableBase(InputBase):
    """An input that DALI asks for single samples, from any number of worker processes.

    A callable must be a pure function of the `SampleInfo` that it is given: each worker has a copy of its
    own, and any worker may be asked for any sample. With spawned workers it is pickled; what cannot be
    pickled (locks, open files, database handles) is made on first use instead of in the constructor.
    """

    @abstractmethod
    def __call__(self, sample_info: types.SampleInfo) -> tuple[Any, ...]:
        """Get one sample as the flat tuple of its data fields (`SampleDataGroup.get_data`).

        Args:
            sample_info: Position of the sample: index in the epoch and in the batch, batch, and epoch.

        Raises:
            StopIteration: The epoch has ended; this is how an epoch ends, not a failure.
        """

    def get_sample_index(self, sample_info: types.SampleInfo) -> int | None:
        """Index in the data set of the sample at a position, or None where it is not known.

        It names samples in error messages, and may be called in another process than the one that loads.
        """
        return None

    def get_place(self, sample_info: types.SampleInfo) -> SamplePlace | None:
        """Where the sample at a position stands, or None where it is not known (or the epoch has ended).

        It names samples, gives them their context, and is the key of their random draws.
        """
        return None
