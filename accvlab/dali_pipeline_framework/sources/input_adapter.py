# SPDX-License-Identifier: Apache-2.0
"""Inputs of users: what other rooms ask of them."""

from __future__ import annotations

from typing import Any

import attrs
from nvidia.dali import types

from ..draws.keyed_draws import SamplePlace
from ..sampling.arithmetic.last_batch import SampleCounts
from .input_bases import InputBase
from .planned_input import PlannedInput


def _asked(name: str) -> Any:
    default = getattr(InputBase, name)
    return property(lambda adapter: getattr(adapter.source, name, default), doc=f"See `InputBase.{name}`.")


@attrs.frozen(eq=False)
class InputAdapter:
    """Asks an input: one of this package, or any object that has some of the attributes.

    A user's input need not be derived from `CallableBase` or `IterableBase`. What it does not tell is as in these.

    Attributes:
        source: The input.
    """

    source: Any

    has_epochs = _asked("has_epochs")
    batch_size = _asked("batch_size")
    delivers_partial_batches = _asked("delivers_partial_batches")

    @property
    def planned(self) -> PlannedInput | None:
        """The input, if a sampler with random access plans its batches."""
        return self.source if isinstance(self.source, PlannedInput) else None

    # --- epochs -------------------------------------------------------------------------------------

    def num_batches(self, epoch: int) -> int | None:
        """Number of batches of an epoch, of the shard that has most; None where it is not known."""
        if self.planned is not None:
            return self.planned.num_batches_of_all_shards(epoch)
        num_batches: int | None = getattr(self.source, "num_batches_per_epoch", None)
        return num_batches

    def num_batches_here(self, epoch: int) -> int | None:
        """Number of batches of an epoch on this shard; None where it is not known."""
        if self.planned is not None:
            return self.planned.num_batches_in_epoch(epoch)
        num_batches = self.num_batches(epoch)
        if num_batches is None and not callable(self.source):  # the length of an iterable counts batches
            num_batches = getattr(self.source, "length", None)
        return num_batches

    def sample_counts(self, epoch: int) -> SampleCounts | None:
        """Sample counts of an epoch, over all shards; None where they are not known."""
        return None if self.planned is None else self.planned.sample_counts(epoch)

    # --- samples ------------------------------------------------------------------------------------

    def place(self, info: types.SampleInfo) -> SamplePlace | None:
        """Get the place of the sample at a position; None where it does not tell."""
        place: SamplePlace | None = self._answer("get_place", None, info)
        return place

    def sample_index(self, info: types.SampleInfo) -> int | None:
        """Get the index in the data set of the sample at a position; None where it does not tell."""
        index: int | None = self._answer("get_sample_index", None, info)
        return index

    def describe_sample(self, sample_index: int) -> str:
        """Say where a sample comes from; empty where it does not tell."""
        return str(self._answer("describe_sample", "", sample_index))

    def describe(self) -> dict[str, Any]:
        """What its order depends on, as far as it is known, by name."""
        return {**self._answer("describe", {})}

    def _answer(self, method: str, default: Any, *arguments: Any) -> Any:
        call = getattr(self.source, method, None)
        return default if call is None else call(*arguments)
