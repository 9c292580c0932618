"""What slots are told about padding and history: laws for models that carry a state from sample to sample."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from nvidia.dali.types import SampleInfo
from sampler_cases import OTHERS, WITH_EPOCHS, draw_case, has_batches
from support.laws import examples
from support.providers import IndexProvider

from accvlab.dali_pipeline_framework.draws import SamplePlace
from accvlab.dali_pipeline_framework.inputs import SamplerInputCallable
from accvlab.dali_pipeline_framework.sampling import (
    PlannedBatch,
    RandomAccessSampler,
    ShuffledSampler,
    StreamingSequenceSampler,
)

POLICIES = ("drop", "pad", "partial", "wrap")


def places_of(data_input: SamplerInputCallable, epoch: int) -> list[list[SamplePlace]]:
    """Where the samples of an epoch stand on a shard: batches of places."""
    size = data_input.batch_size
    num_batches = data_input.num_batches_in_epoch(epoch)
    infos = (
        [SampleInfo(batch * size + slot, slot, batch, epoch) for slot in range(size)]
        for batch in range(20 if num_batches is None else num_batches)
    )
    return [[place for info in each if (place := data_input.get_place(info)) is not None] for each in infos]


@pytest.mark.parametrize("kind", [*WITH_EPOCHS, *OTHERS])
@settings(deadline=None, max_examples=examples(2, 10))
@given(data=st.data())
def test_what_a_model_with_a_state_is_told(kind: str, data: Any) -> None:
    num_shards = data.draw(st.integers(1, 3), label="num_shards")
    sizes = st.integers(1, 3).map(lambda size: size * num_shards)
    case = draw_case(data, kind, POLICIES, sizes)
    sampler = case.sampler.with_settings(num_shards=num_shards)
    is_endless = sampler.num_batches(0) is None
    for epoch in range(1 if is_endless else 3):
        assume(is_endless or has_batches(sampler, epoch))
    shards = [
        SamplerInputCallable(IndexProvider(case.data_set_size), sampler, shard_id=shard, num_shards=num_shards)
        for shard in range(num_shards)
    ]
    size = sampler.total_batch_size // num_shards
    for epoch in range(1 if is_endless else 3):
        batches = [places_of(shard, epoch) for shard in shards]
        if sampler.last_batch != "partial":  # all ranks have as many full batches
            assert {len(of_shard) for of_shard in batches} == {len(batches[0])}
            assert {len(places) for of_shard in batches for places in of_shard} == {size}
        slots: dict[int, list[SamplePlace]] = {}
        for place in (place for of_shard in batches for places in of_shard for place in places):
            slots.setdefault(place.slot, []).append(place)
        for in_slot in slots.values():
            if sampler.has_slots:
                assert_slot(in_slot)
            for place in in_slot:
                assert place.is_first or not place.is_padding
                assert place.is_last or not place.is_padding
        if sampler.last_batch != "pad":
            assert not any(place.is_padding for in_slot in slots.values() for place in in_slot)


def assert_slot(places: list[SamplePlace]) -> None:
    """In one slot, over an epoch."""
    assert places[0].is_first
    for before, after in itertools.pairwise(places):
        # Nothing is carried over from what has ended, to or from padding, nor to another sequence.
        if before.is_padding or after.is_padding or before.is_last:
            assert after.is_first
        if before.sequence != after.sequence:
            assert after.is_first
        # What begins was preceded by an end; only what is repeated at the end of an epoch may begin elsewhere.
        if after.is_first and (before.visit >= 0) == (after.visit >= 0):
            assert before.is_last


def flags_of(sampler: Any) -> list[str]:
    """Per slot: the samples, ``<`` where one is first and ``>`` where it is last, ``*`` for padding."""
    batches = [sampler.plan_batch(0, batch) for batch in range(sampler.num_batches(0))]
    return [
        " ".join(
            f"{'<' if batch.is_first[slot] else ''}{batch.indices[slot]}"
            f"{'*' if batch.is_padding[slot] else ''}{'>' if batch.is_last[slot] else ''}"
            for batch in batches
        )
        for slot in range(sampler.total_batch_size)
    ]


def test_streams() -> None:
    lengths = [4, 2, 1]
    assert flags_of(StreamingSequenceSampler(lengths, 2, shuffle=False)) == ["<0 1 2 3>", "<4 5> <6> <6*>"]
    dropped = StreamingSequenceSampler(lengths, 2, shuffle=False, last_batch="drop")
    assert flags_of(dropped) == ["<0 1 2", "<4 5> <6>"]  # frame 3, the last one of the longer slot, is dropped
    wrapped = StreamingSequenceSampler(lengths, 2, shuffle=False, last_batch="wrap")
    assert flags_of(wrapped) == ["<0 1 2 3>", "<4 5> <6> <4"]


def test_planned_batches_of_users() -> None:
    batch = PlannedBatch([3, 3], [False, True], is_first=[False, False], is_last=[False, False])
    assert (batch.is_first.tolist(), batch.is_last.tolist()) == ([False, True], [False, True])


class PaddedByItself(RandomAccessSampler):
    """A sampler of one's own that plans the padding of its last batch, as a sampler of whole scenes does."""

    def num_batches(self, epoch: int) -> int:
        return 2

    def plan_batch(self, epoch: int, batch: int) -> PlannedBatch:
        indices = [0, 1] if batch == 0 else [2, 2]
        return PlannedBatch(indices, is_padding=[False, batch == 1])


@pytest.mark.parametrize("num_shards", [1, 2])
def test_padding_that_a_sampler_plans_is_delivered_on_all_shards(num_shards: int) -> None:
    inputs = [
        SamplerInputCallable(IndexProvider(3), PaddedByItself(2), shard_id=shard, num_shards=num_shards)
        for shard in range(num_shards)
    ]
    batches = [
        [(place.sample_index, place.is_padding) for place in places]
        for each in inputs
        for places in places_of(each, 0)
    ]
    first, last = [(0, False), (1, False)], [(2, False), (2, True)]
    assert batches == ([first, last] if num_shards == 1 else [first[:1], last[:1], first[1:], last[1:]])


def test_a_single_sample_fills_a_batch() -> None:
    batch = ShuffledSampler(1, 4, shuffle=False, last_batch="wrap").plan_batch(0, 0)
    assert batch.indices.tolist() == [0, 0, 0, 0]
    assert batch.visit.tolist() == [0, -1, -1, -1]
