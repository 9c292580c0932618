# SPDX-License-Identifier: Apache-2.0
"""Positions of samples, as callables get them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from nvidia.dali import types

Info = types.SampleInfo


def infos_of_batch(epoch: int, batch: int, batch_size: int) -> Sequence[Info]:
    """Get the positions of the samples of a batch."""
    first = batch * batch_size
    positions, numbers = range(first, first + batch_size), range(batch_size)
    return list(map(Info, positions, numbers, itertools.repeat(batch), itertools.repeat(epoch)))
