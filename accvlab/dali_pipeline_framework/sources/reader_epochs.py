# SPDX-License-Identifier: Apache-2.0
"""How many batches the epochs of a native reader have."""

from __future__ import annotations

import attrs

from ..errors import SettingError
from ..sampling.arithmetic.last_batch import LastBatch, SampleCounts


@attrs.frozen
class ReaderEpochs:
    """The epochs of one shard of a reader, as arithmetic.

    DALI's readers never end. Shard ``k`` of ``n`` holds the samples ``[N * k // n, N * (k + 1) // n)``, and in
    epoch ``e`` a reader reads shard ``(k + e) % n``, or with ``stick_to_shard`` always its own. With
    ``pad_last_batch`` the reader itself fills the last batch of a shard, so that all shards make equally many
    batches and an epoch begins with a batch; ``"drop"``, ``"pad"`` and ``"partial"`` build on that. Without it
    (the policy ``"wrap"``) the samples are one stream without end, of which an epoch is as many batches.

    Attributes:
        num_samples: Samples of all shards.
        shard_id: Number of the shard.
        num_shards: Number of shards.
        is_stuck: Whether the reader keeps to its shard.
        batch_size: Samples per batch on this shard.
        last_batch: What becomes of a last batch that is not full.
    """

    num_samples: int
    shard_id: int
    num_shards: int
    is_stuck: bool
    batch_size: int
    last_batch: LastBatch

    def __attrs_post_init__(self) -> None:
        """Check that an epoch has a batch."""
        if self.last_batch == "drop" and self.num_batches(0) == 0:
            raise SettingError(
                f"An epoch must have at least one batch: the reader has {self.num_samples} sample(s) for "
                f"{self.num_shards} shard(s) with batches of {self.batch_size} and last_batch='drop'. Use a "
                f"smaller batch, more data, or last_batch='pad'."
            )

    def shard_size(self, epoch: int) -> int:
        """Number of samples that the reader has in an epoch."""
        shard = self.shard_id if self.is_stuck else (self.shard_id + epoch) % self.num_shards
        return self.num_samples * (shard + 1) // self.num_shards - self.num_samples * shard // self.num_shards

    @property
    def num_made(self) -> int:
        """Number of batches that the reader makes per epoch."""
        largest = -(-self.num_samples // self.num_shards)
        return -(-largest // self.batch_size)

    def num_batches(self, epoch: int) -> int:
        """Number of batches that are delivered in an epoch."""
        if self.last_batch == "drop":
            return self.num_samples // self.num_shards // self.batch_size
        if self.last_batch == "partial":
            return -(-self.shard_size(epoch) // self.batch_size)
        return self.num_made

    def num_valid(self, epoch: int, batch: int) -> int:
        """Count the samples to deliver of a batch that the reader makes; 0 where it is thrown away."""
        if batch >= self.num_batches(epoch):
            return 0
        if self.last_batch == "partial":
            return min(self.shard_size(epoch) - batch * self.batch_size, self.batch_size)
        return self.batch_size

    @property
    def sample_counts(self) -> SampleCounts:
        """What becomes of the samples of an epoch, over all shards; with ``"wrap"`` that of the first epoch."""
        num_slots = self.num_made * self.batch_size * self.num_shards
        num_batches, num_delivered = self.num_made, self.num_samples
        if self.last_batch == "drop":
            num_batches = self.num_batches(0)
            num_delivered = num_batches * self.batch_size * self.num_shards
            num_slots = num_delivered
        is_wrapped = self.last_batch == "wrap"
        surplus = num_slots - num_delivered
        return SampleCounts(
            num_batches=num_batches,
            num_samples=self.num_samples,
            num_delivered=num_delivered,
            num_dropped=self.num_samples - num_delivered,
            num_repeated=surplus if is_wrapped else 0,
            num_padded=0 if is_wrapped else surplus,
        )
