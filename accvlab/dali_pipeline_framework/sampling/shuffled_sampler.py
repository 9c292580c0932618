# SPDX-License-Identifier: Apache-2.0
"""Each sample once per epoch, in a random order or in that of the data set."""

from __future__ import annotations

from ..checks import MOST_SAMPLES, flag, whole_number
from .arithmetic.last_batch import LastBatch
from .planned_sampler import PlannedSampler
from .plans.orders import ShuffledOrder
from .plans.tracks import SampleUnits
from .random_access_sampler import Description


class ShuffledSampler(PlannedSampler):
    """Each sample once per epoch, in an order that is shuffled anew in each epoch.

    The order is computed sample by sample (`KeyedPermutation`): it needs no memory, whatever the size of the
    data set. Batch ``b`` of an epoch has the positions ``[b * B, (b + 1) * B)`` of its order.

    Example::

        >>> sampler = ShuffledSampler(10, 4, seed=1, last_batch="pad")
        >>> [sampler.get_batch_indices(epoch=0, batch=batch).tolist() for batch in range(3)]
        [[6, 1, 2, 8], [3, 7, 9, 5], [4, 0, 0, 0]]
        >>> sampler.get_padding(epoch=0, batch=2).tolist()
        [False, False, True, True]
    """

    def __init__(
        self,
        num_samples: int,
        total_batch_size: int | None = None,
        *,
        seed: int = 0,
        shuffle: bool = True,
        last_batch: LastBatch = "drop",
    ) -> None:
        """Create the sampler.

        Args:
            num_samples: Number of samples of the data set, from 1 to 2**62.
            total_batch_size: Samples per batch, all shards together. None: set later, by the loader.
            seed: Seed of the orders, at least 0.
            shuffle: Whether to shuffle; otherwise each epoch has the order ``0, 1, 2, ...``, as that of
                `SequentialSampler`, which delivers the last samples too.
            last_batch: What becomes of a last batch that is not full.

        Raises:
            SettingError: An argument is out of its range.
        """
        super().__init__(total_batch_size, last_batch)
        self._num_samples = whole_number(num_samples, "num_samples", at_least=1, at_most=MOST_SAMPLES)
        self.seed = whole_number(seed, "seed", at_least=0)
        self.shuffles = flag(shuffle, "shuffle")
        self.order = ShuffledOrder(self._num_samples, self.seed, self.shuffles)
        self.unit_table = SampleUnits(self._num_samples)

    def describe(self) -> Description:
        """What the order depends on."""
        return {
            **super().describe(),
            "num_samples": self._num_samples,
            "seed": self.seed if self.shuffles else None,
            "shuffle": self.shuffles,
        }


class SequentialSampler(PlannedSampler):
    """The samples ``0, 1, 2, ...`` in each epoch, for evaluation.

    By default each sample is delivered exactly once, as by PyTorch's sampler of this name: the last batch may be
    smaller. With several shards it is divided among them, so some may have one batch less than others. Where all
    need the same number of batches, since they communicate in each, use ``last_batch="pad"`` and leave the samples
    that are marked as padding out of the metrics.

    Example::

        >>> sampler = SequentialSampler(10, 4)
        >>> [sampler.get_batch_indices(epoch=0, batch=batch).tolist() for batch in range(3)]
        [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 9, 9]]
        >>> sampler.get_padding(epoch=0, batch=2).tolist()  # left out of the batch with "partial"
        [False, False, True, True]
    """

    shuffles = False

    def __init__(
        self, num_samples: int, total_batch_size: int | None = None, *, last_batch: LastBatch = "partial"
    ) -> None:
        """Create the sampler.

        Args:
            num_samples: Number of samples of the data set, from 1 to 2**62.
            total_batch_size: Samples per batch, all shards together. None: set later, by the loader.
            last_batch: What becomes of a last batch that is not full.

        Raises:
            SettingError: An argument is out of its range.
        """
        super().__init__(total_batch_size, last_batch)
        self._num_samples = whole_number(num_samples, "num_samples", at_least=1, at_most=MOST_SAMPLES)
        self.order = ShuffledOrder(self._num_samples, 0, False)
        self.unit_table = SampleUnits(self._num_samples)

    def describe(self) -> Description:
        """What the order depends on."""
        return {**super().describe(), "num_samples": self._num_samples}
