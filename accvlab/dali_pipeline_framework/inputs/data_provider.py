# SPDX-License-Identifier: Apache-2.0
"""Base class of the user's description of a data set."""

from __future__ import annotations

from abc import ABC, abstractmethod

from accvlab.dali_pipeline_framework.sample_data import SampleDataGroup


class DataProvider(ABC):
    """Random access to the samples of a data set, and their format.

    A provider is written for a data set *and* a use: its blueprint says which fields a sample of this
    training has. It knows nothing of order, batches, shards or workers.

    Each worker process has a copy. With spawned workers the provider is pickled, so keep what it holds
    small (a path instead of a table), and open files, memory maps and databases on first use.
    """

    @abstractmethod
    def get_data(self, sample_index: int) -> SampleDataGroup:
        """Load one sample.

        Args:
            sample_index: Index of the sample, in ``[0, get_number_of_samples())``.

        Returns:
            A group of the format of `sample_data_structure`, with all data fields set.
        """

    @abstractmethod
    def get_number_of_samples(self) -> int:
        """Get the number of samples in the data set."""

    @property
    @abstractmethod
    def sample_data_structure(self) -> SampleDataGroup:
        """Blueprint of the samples: the format, without values."""
