# SPDX-License-Identifier: Apache-2.0
"""Each sample once per epoch, in the order of the data set."""

from __future__ import annotations

from ..checks import MOST_SAMPLES, whole_number
from .arithmetic.last_batch import LastBatch
from .planned_sampler import PlannedSampler
from .plans.orders import ShuffledOrder
from .plans.tracks import SampleUnits
from .random_access_sampler import Description


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
