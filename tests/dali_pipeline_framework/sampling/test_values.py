"""Samplers and planned batches are values: equal ones are alike in all that they do."""

from __future__ import annotations

import copy
import itertools
import pickle
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampler_cases import WITH_EPOCHS, BackwardSampler, draw_case
from support.laws import examples
from support.samplers import EpochSampler

from accvlab.dali_pipeline_framework.inputs import SequenceSampler
from accvlab.dali_pipeline_framework.sampling import (
    MixedSampler,
    PlannedBatch,
    SequentialSampler,
    ShuffledSampler,
    StreamingSequenceSampler,
    WeightedSampler,
)
from accvlab.dali_pipeline_framework.sampling.played_sampler import PlayedSampler
from accvlab.dali_pipeline_framework.sampling.random_access_sampler import EpochSegment

# Makers of values, all of which differ.
MAKERS: list[Callable[[], Any]] = [
    lambda: SequentialSampler(10),
    lambda: SequentialSampler(11),
    lambda: SequentialSampler(10, 2),
    lambda: SequentialSampler(10, last_batch="pad"),
    lambda: ShuffledSampler(10),
    lambda: ShuffledSampler(10, seed=1),
    lambda: ShuffledSampler(10, shuffle=False),
    lambda: ShuffledSampler(10, 2),
    lambda: ShuffledSampler(10, 2).with_settings(num_shards=2),
    lambda: ShuffledSampler(10, 2).with_settings(total_batch_size=5).continued(0, [EpochSegment(1, 2, 1)]),
    lambda: WeightedSampler([1, 2, 3]),
    lambda: WeightedSampler([1, 2, 4]),
    lambda: StreamingSequenceSampler([3, 4]),
    lambda: StreamingSequenceSampler([4, 3]),
    lambda: StreamingSequenceSampler([3, 4], cut_sequences=True),
    lambda: SequenceSampler(2, [3, 4], 1),
    lambda: SequenceSampler(2, [3, 4], 2),
    lambda: MixedSampler([ShuffledSampler(4), ShuffledSampler(5)], [0.5, 0.5]),
    lambda: MixedSampler([ShuffledSampler(4), ShuffledSampler(5, seed=1)], [0.5, 0.5]),
    lambda: MixedSampler(
        [ShuffledSampler(4), ShuffledSampler(5)], [Fraction(30001, 60001), Fraction(30000, 60001)]
    ),
    lambda: MixedSampler(
        [ShuffledSampler(4), ShuffledSampler(5)], [Fraction(30002, 60003), Fraction(30001, 60003)]
    ),
    lambda: MixedSampler([ShuffledSampler(4), ShuffledSampler(5)], [0.5, 0.5], offsets=[0, 4]),
]


def test_values_made_alike_are_equal_and_others_are_not() -> None:
    values = [make() for make in MAKERS]
    for value, make in zip(values, MAKERS, strict=True):
        for again in (make(), copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
            assert again == value
            assert hash(again) == hash(value)
    for value, other in itertools.combinations(values, 2):
        assert value != other
    assert len({*values, *(make() for make in MAKERS)}) == len(MAKERS)
    assert all(value != 1 for value in values)


@pytest.mark.parametrize("kind", WITH_EPOCHS)
@settings(deadline=None, max_examples=examples(2, 8))
@given(data=st.data())
def test_equal_samplers_plan_the_same(kind: str, data: Any) -> None:
    sampler, other = (draw_case(data, kind).sampler for _ in range(2))
    if sampler == other:
        assert hash(sampler) == hash(other)
        assert sampler.plan_batch(1, 0) == other.plan_batch(1, 0)
    same = sampler.with_settings(total_batch_size=sampler.total_batch_size)
    assert same == sampler
    changed = sampler.with_settings(total_batch_size=sampler.total_batch_size + 1)
    assert changed != sampler


def test_how_far_a_sampler_was_stepped_does_not_count() -> None:
    sampler = ShuffledSampler(10, 2)
    sampler.get_next_batch_indices()
    assert sampler == ShuffledSampler(10, 2)


def test_samplers_that_do_not_describe_themselves_equal_themselves_only() -> None:
    for make in (lambda: BackwardSampler(6), lambda: PlayedSampler(EpochSampler(6, 2), 6, 1, None)):
        sampler = make()
        assert sampler == sampler
        assert sampler != make()
        assert len({sampler, make()}) == 2


def test_planned_batches() -> None:
    assert PlannedBatch([1, 2]) == PlannedBatch(np.array([1, 2]), [False, False])
    assert PlannedBatch([1, 2]) != PlannedBatch([1, 2], [False, True])
    assert PlannedBatch([1, 2]) != PlannedBatch([1, 3])
    assert PlannedBatch([1, 2]) != [1, 2]
    with pytest.raises(TypeError, match="unhashable"):
        hash(PlannedBatch([1]))
