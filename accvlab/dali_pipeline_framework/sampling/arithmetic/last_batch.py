# SPDX-License-Identifier: Apache-2.0
"""Policies for a last batch that is not full, and the sample counts of an epoch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias, cast, get_args

import attrs
import numpy as np
import numpy.typing as npt

from ...checks import MOST_SAMPLES, setting_error
from ...errors import SettingError

LastBatch: TypeAlias = Literal["drop", "pad", "partial", "wrap"]
"""Handling of the samples at the end of an epoch that do not fill a last batch.

===============  =====================================  ============================================  =========
value            single samples                         streams of sequences                          ranks
===============  =====================================  ============================================  =========
``"drop"``       they are dropped                       the epoch ends as soon as a slot has no       equal
                                                        more frames; the frames left in other slots
                                                        are dropped
``"pad"``        the last sample is repeated, marked    slots without more frames repeat their last   equal
                 as padding (``is_padding``)            one, marked, until all slots have ended
``"partial"``    the last batch is smaller              batches become smaller: slots without more    may
                                                        frames are left out                           differ
``"wrap"``       the first samples of the epoch follow  slots without more frames start over with     equal
                                                        their first sequence
===============  =====================================  ============================================  =========

*Ranks*: whether all have equal numbers of batches. If each shard has a range of the samples of its own
(`ShuffledShardedInputCallable`), the column of single samples holds within each range.
"""


def check_last_batch(policy: object) -> LastBatch:
    """Check the name of a policy."""
    if isinstance(policy, str) and str.__str__(policy) in get_args(LastBatch):  # an array is compared item by item
        return cast(LastBatch, str.__str__(policy))
    rule = "'drop', 'pad' (repeat the last sample, marked), 'partial' (smaller), or 'wrap' (go on with the first)"
    raise setting_error("last_batch", rule, policy)


@attrs.frozen
class SampleCounts:
    """Numbers of samples delivered, dropped, repeated and padded in an epoch, over all shards.

    Each sample of the epoch is delivered or dropped: ``num_samples == num_delivered + num_dropped``. All batches
    together have ``num_delivered + num_repeated + num_padded`` slots.

    Attributes:
        num_batches: Batches of the epoch.
        num_samples: Samples of the epoch: for sequences their frames, for weighted orders the draws.
        num_delivered: Samples delivered, not counting repetitions.
        num_dropped: Samples not delivered, since they do not fill a batch.
        num_repeated: Samples delivered once more to fill batches, not marked (``"wrap"``).
        num_padded: Samples repeated to fill batches, marked as padding; with ``"partial"``, slots left out.
        num_cuts: Places at which a sampler of sequences has cut a sequence. The segment after a cut starts
            without history.
    """

    num_batches: int
    num_samples: int
    num_delivered: int
    num_dropped: int
    num_repeated: int
    num_padded: int
    num_cuts: int = 0

    @classmethod
    def of_slots(
        cls,
        last_batch: LastBatch,
        num_batches: int,
        num_slots: int,
        num_samples: int,
        num_delivered: int,
        num_cuts: int = 0,
    ) -> SampleCounts:
        """Count the samples of an epoch whose batches have ``num_slots`` slots together."""
        surplus = num_slots - num_delivered
        repeated, padded = (surplus, 0) if last_batch == "wrap" else (0, surplus)
        num_dropped = num_samples - num_delivered
        return cls(num_batches, num_samples, num_delivered, num_dropped, repeated, padded, num_cuts)

    def describe(self, total_batch_size: int, is_partial: bool) -> str:
        """Write a sentence for logs; with ``is_partial`` padded slots are left out."""
        rest = (
            (self.num_dropped, "dropped"),
            (self.num_repeated, "delivered once more"),
            (self.num_padded, "slots left out" if is_partial else "slots padded"),
            (self.num_cuts, "cuts through sequences"),
        )
        return (
            f"{self.num_batches} batches of {total_batch_size} (all shards together) deliver "
            f"{self.num_delivered} of {self.num_samples} samples"
        ) + "".join(f", {number} {what}" for number, what in rest if number)


def checked_lengths(lengths: npt.ArrayLike, name: str = "sequence_lengths") -> npt.NDArray[np.int64]:
    """Check the lengths of at least one sequence, each at least 1: returns ``(S,)`` int64."""
    rule = f"`{name}` must be a flat list with at least one length"
    try:
        array = np.asarray(lengths)
    except ValueError as error:  # nested lists of different lengths
        raise SettingError(f"{rule}, got nested lists.") from error
    if array.ndim == 0:  # NumPy takes None, texts and generators for single objects
        raise SettingError(f"{rule}, got an object of type {type(lengths).__name__}.")
    if array.ndim != 1 or array.size == 0:
        raise SettingError(f"{rule}, got shape {array.shape}.")
    if array.dtype.kind == "f":
        _refuse(array, ~(np.isfinite(array) & (array == np.floor(array))), f"`{name}` must hold whole numbers")
    elif array.dtype.kind not in "iu":
        raise SettingError(f"`{name}` must hold whole numbers, got {array.dtype} values.")
    _refuse(array, array < 1, f"Each of `{name}` must be at least 1", " Leave empty sequences out.")
    if array.sum(dtype=np.float64) > MOST_SAMPLES:
        raise SettingError(f"`{name}` must add up to at most 2**62 samples, got {array.sum(dtype=np.float64):g}.")
    return array.astype(np.int64)


def unknown_sample(indices: Iterable[int], num_samples: int, sampler: str) -> SettingError:
    """Make the error for a batch with a sample that the data set does not have."""
    bad = next(index for index in indices if not 0 <= index < num_samples)
    return SettingError(f"{sampler} chose sample {bad}, but the data set has the samples 0 .. {num_samples - 1}.")


def _refuse(lengths: npt.NDArray[np.generic], is_bad: npt.NDArray[np.bool_], rule: str, advice: str = "") -> None:
    bad = np.flatnonzero(is_bad)
    if len(bad):
        found = f"length {bad[0]} is {lengths[bad[0]]} ({len(bad)} such length(s))"
        raise SettingError(f"{rule}, but {found}.{advice}")


def uneven_batches(sampler: str, total_batch_size: int, num_shards: int) -> SettingError:
    """Make the error for batches that cannot be dealt evenly to the shards."""
    rule = "The total batch size must be a positive multiple of the number of shards"
    return SettingError(f"{rule}: {sampler} delivers batches of {total_batch_size} for {num_shards} shard(s).")
