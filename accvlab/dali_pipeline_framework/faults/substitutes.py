# SPDX-License-Identifier: Apache-2.0
"""The samples that can take the place of one that has failed.

The order of substitutes is arithmetic on the plan, the same on all shards::

    sequences             the neighbouring frames of the same slot:   k-1, k+1, k-2, k+2          then as below
    other samples         what is at other positions of the same epoch, chosen by a key of
                          (seed, epoch, sample, visit, attempt): samples are chosen as often as the plan has them
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from ..draws.keyed_draws import SamplePlace, derive_key
from ..sampling.plans.tracks import PlannedBatch
from ..sampling.random_access_sampler import RandomAccessSampler

_NEIGHBOURS = (-1, 1, -2, 2)
_BATCHES_OF_ENDLESS = 1024
_MOST_POSITIONS = 64

MOST_SUBSTITUTES = 24
"""How many samples are tried in the place of one."""


def substitutes(sampler: RandomAccessSampler, place: SamplePlace, num_samples: int) -> Iterator[int]:
    """Get the indices of the samples to try in the place of one that has failed, in order."""
    chosen = {place.sample_index}
    for index in itertools.chain(_beside(sampler, place), _elsewhere(sampler, place, num_samples)):
        if index in chosen:
            continue
        chosen.add(index)
        yield index
        if len(chosen) > MOST_SUBSTITUTES:
            return


def _beside(sampler: RandomAccessSampler, place: SamplePlace) -> Iterator[int]:
    """The neighbouring frames of what its slot plays."""
    if place.sequence < 0:
        return
    num_batches = sampler.num_batches(place.epoch)
    first = sampler.num_batches_before(place.epoch)
    for distance in _NEIGHBOURS:
        batch = place.batch + distance
        if batch < first or (num_batches is not None and batch >= num_batches):
            continue
        planned = sampler.plan_batch(place.epoch, batch)
        if planned.sequence[place.slot] == place.sequence and not planned.is_padding[place.slot]:
            yield int(planned.indices[place.slot])


def _elsewhere(sampler: RandomAccessSampler, place: SamplePlace, num_samples: int) -> Iterator[int]:
    seed = getattr(sampler, "seed", 0)
    first = sampler.num_batches_before(place.epoch)
    num_batches = None if sampler.must_be_played else sampler.num_batches(place.epoch)
    if num_batches is None:
        num_batches = _BATCHES_OF_ENDLESS
    for attempt in range(_MOST_POSITIONS):
        key = derive_key("substitute", seed, place.epoch, place.sample_index, place.visit, attempt)
        if sampler.must_be_played:
            yield key % num_samples
            continue
        batch, slot = divmod(key % ((num_batches - first) * sampler.total_batch_size), sampler.total_batch_size)
        planned: PlannedBatch = sampler.plan_batch(place.epoch, first + batch)
        if not planned.is_padding[slot]:
            yield int(planned.indices[slot])
