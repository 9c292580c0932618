# SPDX-License-Identifier: Apache-2.0
"""Input in shuffled or sequential order, dealt to shards."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from nvidia.dali import types

from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.inputs.callable_base import CallableBase
from accvlab.dali_pipeline_framework.inputs.data_provider import DataProvider
from accvlab.dali_pipeline_framework.inputs.sample_loading import SampleLoader, input_blueprint
from accvlab.dali_pipeline_framework.inputs.settings import (
    check_number_of_samples,
    check_shard,
    whole_number,
)
from accvlab.dali_pipeline_framework.sample_data import SampleDataGroup


class ShuffledShardedInputCallable(CallableBase):
    """Each shard delivers its equal share of the data set once per epoch.

    In epoch ``e`` the samples are put into the order ``numpy.random.default_rng(seed + e).permutation(N)``
    (with ``shuffle=False``: ``0 .. N-1``), and shard ``k`` delivers positions ``[k * S, (k + 1) * S)`` of
    it, where ``S = N // num_shards``::

        order of epoch e   | 7 2 9 0 | 4 1 8 3 | 6 5
                             shard 0   shard 1   dropped (N = 10, num_shards = 2 would give 5 + 5)

    Dropped in each epoch: the ``N - S * num_shards`` samples at the end of the order, and the samples of
    a shard that do not fill a last batch.
    """

    def __init__(
        self,
        data_provider: DataProvider,
        batch_size: int,
        shard_id: int = 0,
        num_shards: int = 1,
        shuffle: bool = False,
        seed: int = 21,
    ) -> None:
        """Create the input.

        Args:
            data_provider: The data set.
            batch_size: Samples per batch on this shard; the pipeline must have the same batch size.
            shard_id: Which shard this is, from 0 (usually the rank).
            num_shards: How many shards there are (usually the world size).
            shuffle: Whether each epoch has a random order of its own.
            seed: Seed of the orders, at least 0. All shards must use the same seed.

        Raises:
            SettingError: An argument is out of its range, the data set is empty, or the shard holds fewer
                samples than one batch.
        """
        self._loader = SampleLoader(data_provider)
        self._batch_size = whole_number(batch_size, "batch_size", at_least=1)
        self._shard_id, num_shards = check_shard(shard_id, num_shards)
        self._shuffle = bool(shuffle)
        self._seed = whole_number(seed, "seed", at_least=0)
        self._num_samples = check_number_of_samples(data_provider)
        self._shard_size = self._num_samples // num_shards
        if self._shard_size < self._batch_size:
            raise SettingError(
                f"A shard must hold at least one batch: {self._num_samples} samples dealt to {num_shards} "
                f"shard(s) give {self._shard_size} each, but `batch_size` is {self._batch_size}. "
                f"Use a smaller batch size, fewer shards, or more data."
            )
        self._order: tuple[int, npt.NDArray[np.int64]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # The order of an epoch is as large as the data set and is made in each process when needed.
        return {**self.__dict__, "_order": None}

    @property
    def used_sample_data_structure(self) -> SampleDataGroup:
        """Blueprint of the samples, with mappings switched off."""
        return input_blueprint(self._loader.provider)

    def __call__(self, sample_info: types.SampleInfo) -> tuple[Any, ...]:
        """Load the sample at a position of the epoch, as a flat tuple.

        Raises:
            StopIteration: The position lies behind the end of this shard.
        """
        sample_index = self.get_sample_index(sample_info)
        if sample_index is None:
            raise StopIteration
        return self._loader.load(sample_index)

    def get_sample_index(self, sample_info: types.SampleInfo) -> int | None:
        """Index of the sample at a position, or None behind the end of the shard."""
        if sample_info.idx_in_epoch >= self._shard_size:
            return None
        position = self._shard_size * self._shard_id + sample_info.idx_in_epoch
        if not self._shuffle:
            return int(position)
        if self._order is None or self._order[0] != sample_info.epoch_idx:
            rng = np.random.default_rng(seed=self._seed + sample_info.epoch_idx)
            self._order = (sample_info.epoch_idx, rng.permutation(self._num_samples))
        return int(self._order[1][position])

    @property
    def length(self) -> int:
        """Number of full batches per epoch."""
        return self._shard_size // self._batch_size

    @property
    def num_batches_per_epoch(self) -> int:  # type: ignore[override]
        """Number of full batches per epoch."""
        return self.length

    @property
    def batch_size(self) -> int:  # type: ignore[override]
        """Samples per batch on this shard."""
        return self._batch_size
