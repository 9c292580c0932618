# SPDX-License-Identifier: Apache-2.0
"""The samples of `scheduling` in a data set of PyTorch."""

from __future__ import annotations

import time

from scheduling import NUM_SAMPLES, seconds_of
from torch.utils.data import Dataset


class SleepingDataset(Dataset[int]):
    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> int:
        time.sleep(seconds_of(index))
        return index
