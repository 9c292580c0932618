# SPDX-License-Identifier: Apache-2.0
"""One interface to all inputs, also to those that do not have all attributes of the base classes."""

from __future__ import annotations

from typing import Any

import attrs
from nvidia.dali import types

from ..draws.keyed_draws import SamplePlace
from ..sampling.arithmetic.last_batch import SampleCounts
from ..sampling.random_access_sampler import Description
from .input_bases import InputBase, Source
from .planned_input import PlannedInput


def _attribute(name: str) -> Any:
    default = getattr(InputBase, name)
    return property(lambda adapter: getattr(adapter.source, name, default), doc=f"See `InputBase.{name}`.")


@attrs.frozen(eq=False)
class InputAdapter:
    """The attributes of an input: one of this package, or any object that has some of them.

    A user's input need not be derived from `CallableBase` or `IterableBase`; their defaults are used for
    attributes that it does not have.

    Attributes:
        source: The input.
    """

    source: Source

    has_epochs = _attribute("has_epochs")
    batch_size = _attribute("batch_size")
    delivers_partial_batches = _attribute("delivers_partial_batches")

    @property
    def planned(self) -> PlannedInput | None:
        """The input, if a sampler with random access plans its batches."""
        return self.source if isinstance(self.source, PlannedInput) else None

    # --- epochs -------------------------------------------------------------------------------------

    def num_batches(self, epoch: int) -> int | None:
        """Number of batches of an epoch, of the shard that has most; None if it is not known."""
        if self.planned is not None:
            return self.planned.num_batches_of_all_shards(epoch)
        num_batches: int | None = getattr(self.source, "num_batches_per_epoch", None)
        return num_batches

    def num_batches_here(self, epoch: int) -> int | None:
        """Number of batches of an epoch on this shard; None if it is not known."""
        if self.planned is not None:
            return self.planned.num_batches_in_epoch(epoch)
        num_batches = self.num_batches(epoch)
        if num_batches is None and not callable(self.source):  # the length of an iterable counts batches
            num_batches = getattr(self.source, "length", None)
        return num_batches

    def sample_counts(self, epoch: int) -> SampleCounts | None:
        """Sample counts of an epoch, over all shards; None if they are not known."""
        return None if self.planned is None else self.planned.sample_counts(epoch)

    # --- samples ------------------------------------------------------------------------------------

    def place(self, info: types.SampleInfo) -> SamplePlace | None:
        """Get the place of the sample at a position; None if it is not known."""
        place: SamplePlace | None = self._answer("get_place", None, info)
        return place

    def sample_index(self, info: types.SampleInfo) -> int | None:
        """Get the index in the data set of the sample at a position; None if it is not known."""
        index: int | None = self._answer("get_sample_index", None, info)
        return index

    def describe_sample(self, sample_index: int) -> str:
        """Describe the origin of a sample; empty if it is not known."""
        return str(self._answer("describe_sample", "", sample_index))

    def describe(self) -> Description:
        """Describe what its order depends on, as far as it is known, by name."""
        return {**self._answer("describe", {})}

    def _answer(self, method: str, default: Any, *arguments: Any) -> Any:
        call = getattr(self.source, method, None)
        return default if call is None else call(*arguments)
