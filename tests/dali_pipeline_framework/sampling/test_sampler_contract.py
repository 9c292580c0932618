"""The contract of samplers: laws that hold for every one of them."""

from __future__ import annotations

import copy
import itertools
import pickle
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import Phase, assume, find, given, settings
from hypothesis import strategies as st
from nvidia.dali.types import SampleInfo
from sampler_cases import (
    OTHERS,
    STREAMS,
    WITH_EPOCHS,
    BackwardSampler,
    Case,
    batches_of,
    delivered,
    draw_case,
    has_batches,
    positions_of,
    values,
)
from support.laws import examples
from support.loaders import PLANNED
from support.providers import IndexProvider
from support.samplers import EpochSampler

from accvlab.dali_pipeline_framework import sampling
from accvlab.dali_pipeline_framework.draws import SamplePlace
from accvlab.dali_pipeline_framework.errors import NotSupportedError, SettingError
from accvlab.dali_pipeline_framework.inputs import SamplerInputCallable, SequenceSampler
from accvlab.dali_pipeline_framework.sampling import (
    MixedSampler,
    PlannedBatch,
    RandomAccessSampler,
    SequentialSampler,
    ShuffledSampler,
    StreamingSequenceSampler,
    WeightedSampler,
)
from accvlab.dali_pipeline_framework.sampling.planned_sampler import PlannedSampler
from accvlab.dali_pipeline_framework.sampling.played_sampler import PlayedSampler
from accvlab.dali_pipeline_framework.sampling.random_access_sampler import EpochSegment
from accvlab.dali_pipeline_framework.sampling.samplers import ShardedPermutationSampler

every_kind = pytest.mark.parametrize("kind", [*WITH_EPOCHS, *OTHERS])
every_kind_with_epochs = pytest.mark.parametrize("kind", WITH_EPOCHS)
law = settings(deadline=None, max_examples=examples(2, 12))
drawn = given(data=st.data())


def test_no_sampler_is_left_out() -> None:
    exported = (getattr(sampling, name) for name in dir(sampling))
    public = {each for each in exported if isinstance(each, type) and issubclass(each, RandomAccessSampler)}
    cases = [*(make(3, "pad") for make in WITH_EPOCHS.values()), *(make(3) for make in OTHERS.values())]
    quickly = settings(phases=[Phase.generate])
    tried = {type(find(case, lambda made: True, settings=quickly).sampler) for case in cases}
    assert public - tried == {RandomAccessSampler}
    resumed = {type(make().sampler) for make in PLANNED.values()}
    assert public - resumed == {RandomAccessSampler, SequenceSampler, SequentialSampler}


@every_kind_with_epochs
@law
@drawn
def test_batches_of_epochs_add_up_also_for_a_sampler_that_continues_later(kind: str, data: Any) -> None:
    sampler = draw_case(data, kind).sampler
    for each in (sampler, sampler.continued(3, [EpochSegment(1, sampler.total_batch_size, 0)])):
        assert each.num_batches_of_first(3) == sum(map(each.num_batches, range(3)))


class TestCoverage:
    @every_kind_with_epochs
    @law
    @drawn
    def test_each_sample_is_delivered_once_or_accounted_for(self, kind: str, data: Any) -> None:
        case = draw_case(data, kind)
        sampler = case.sampler
        for epoch in (0, 2):
            batches, sample_counts = list(batches_of(sampler, epoch)), sampler.sample_counts(epoch)
            contents, found = case.contents(epoch), delivered(batches)
            assert found <= contents
            assert sample_counts.num_samples == contents.total()
            assert sample_counts.num_delivered == found.total()
            assert sample_counts.num_dropped == (contents - found).total()
            assert sample_counts.num_repeated == sum(int((batch.visit < 0).sum()) for batch in batches)
            assert sample_counts.num_padded == sum(int(batch.is_over.sum()) for batch in batches)
            assert sample_counts.num_batches == len(batches) == sampler.num_batches(epoch)
            assert len(batches) * sampler.total_batch_size == (
                sample_counts.num_delivered + sample_counts.num_repeated + sample_counts.num_padded
            )
            if sampler.last_batch == "drop":
                assert sample_counts.num_repeated == sample_counts.num_padded == 0
            else:
                assert found == contents
                assert sample_counts.num_padded == 0 or sampler.last_batch != "wrap"
                assert sample_counts.num_repeated == 0 or sampler.last_batch == "wrap"
            assert all((batch.is_padding | ~batch.is_over).all() for batch in batches)
            # What is repeated was delivered in this epoch.
            fields = [(batch.visit, batch.indices, batch.sequence, batch.frame) for batch in batches]
            rows = [row for each in fields for row in zip(*(field.tolist() for field in each), strict=True)]
            assert {(-1 - visit, *what) for visit, *what in rows if visit < 0} <= {*rows}

    @every_kind_with_epochs
    @law
    @drawn
    def test_a_policy_changes_only_the_end_of_the_epoch(self, kind: str, data: Any) -> None:
        case = draw_case(data, kind, policies=("drop",))
        dropped = list(batches_of(case.sampler.with_settings(last_batch="drop"), 0))
        for policy in ("pad", "partial", "wrap"):
            others = batches_of(case.sampler.with_settings(last_batch=policy), 0)
            for batch, other in zip(dropped, others, strict=False):
                assert values(batch) == values(other)

    @law
    @drawn
    def test_what_fills_up_repeats_the_last_or_the_first_samples(self, data: Any) -> None:
        size, batch_size = data.draw(st.integers(1, 20)), data.draw(st.integers(1, 30))
        padded = ShuffledSampler(size, batch_size, seed=3, last_batch="pad")
        flat = np.concatenate([batch.indices for batch in batches_of(padded, 0)]).tolist()
        assert flat[size:] == [flat[size - 1]] * (len(flat) - size)
        wrapped = padded.with_settings(last_batch="wrap")
        again = np.concatenate([batch.indices for batch in batches_of(wrapped, 0)]).tolist()
        assert again == (flat[:size] * len(flat))[: len(flat)]

    @law
    @drawn
    def test_an_endless_sampler_plays_each_sequence_once_per_cycle(self, data: Any) -> None:
        case = draw_case(data, "published sequences")
        batches = [case.sampler.plan_batch(0, batch) for batch in range(3 * case.data_set_size)]
        fields = [(batch.visit, batch.sequence, batch.frame) for batch in batches]
        visits = Counter(visit for each in fields for visit in zip(*map(np.ndarray.tolist, each), strict=True))
        assert set(visits.values()) == {1}
        assert sum(cycle == 0 for cycle, _, _ in visits) == case.data_set_size


class TestPurity:
    @every_kind
    @law
    @drawn
    def test_any_order_of_asking_gives_the_same(self, kind: str, data: Any) -> None:
        case = draw_case(data, kind)
        sampler = case.sampler
        positions = positions_of(sampler, num_epochs=3)
        expected = {}
        for position in positions:
            batch = sampler.plan_batch(*position)
            for field in attrs.fields(PlannedBatch):
                array = getattr(batch, field.name)
                assert array.shape == (sampler.total_batch_size,)
                assert array.dtype == (np.bool_ if field.name.startswith("is_") else np.int64)
            assert 0 <= batch.indices.min() <= batch.indices.max() < case.data_set_size
            assert sampler.get_batch_indices(*position).tolist() == batch.indices.tolist()
            expected[position] = values(batch)
        shuffled = positions * 2
        random.Random(data.draw(st.integers(0, 99))).shuffle(shuffled)
        clones = (sampler, copy.deepcopy(sampler), pickle.loads(pickle.dumps(sampler)), copy.copy(sampler))
        for number, clone in enumerate(clones):
            for position in shuffled[number :: len(clones)]:
                assert values(clone.plan_batch(*position)) == expected[position]
        if kind != "user-written":
            end = sampler.num_batches(0)
            for batch in (-1,) if end is None else (-1, end + 1, end + 1000):
                with pytest.raises(SettingError, match=rf"requested: batch {batch}\b"):
                    sampler.plan_batch(0, batch)

    @every_kind
    @law
    @drawn
    def test_stepping_equals_random_access(self, kind: str, data: Any) -> None:
        sampler = draw_case(data, kind).sampler
        stepped = copy.deepcopy(sampler)
        assert stepped.is_epoch_based == (sampler.num_batches(0) is not None)
        assert stepped.length == sampler.num_batches(0)
        for epoch in range(3 if stepped.is_epoch_based else 1):
            for batch in range(sampler.num_batches(epoch) if stepped.is_epoch_based else 40):
                assert stepped.get_next_batch_indices() == sampler.get_batch_indices(epoch, batch).tolist()
                stepped = pickle.loads(pickle.dumps(stepped))
            if not stepped.is_epoch_based:
                with pytest.raises(NotSupportedError, match="not epoch-based"):
                    stepped.reset()
                return
            for _ in range(2):
                with pytest.raises(StopIteration):
                    stepped.get_next_batch_indices()
            stepped.reset()
        stepped.reset()  # an epoch can be left out
        assume(sampler.num_batches(4) > 0)  # of drawn sequences there may be too few for a batch
        assert stepped.get_next_batch_indices() == sampler.get_batch_indices(4, 0).tolist()


def epoch_of(sampler: RandomAccessSampler, epoch: int) -> list[list[int]]:
    return [batch.indices.tolist() for batch in batches_of(sampler, epoch)]


LENGTHS = [5, 3, 8, 2, 6, 4, 7, 5, 3, 9, 6, 4, 5, 8, 3, 7]
SHUFFLED: dict[str, Callable[[int, bool], PlannedSampler]] = {
    "samples": lambda seed, shuffle: ShuffledSampler(60, 4, seed=seed, shuffle=shuffle),
    "weighted": lambda seed, shuffle: WeightedSampler(range(1, 31), 4, seed=seed),
    "streams": lambda seed, shuffle: StreamingSequenceSampler(LENGTHS, 4, seed=seed, shuffle=shuffle),
    "mixed": lambda seed, shuffle: MixedSampler(
        [ShuffledSampler(40, seed=seed, shuffle=shuffle), ShuffledSampler(20, seed=seed + 1, shuffle=shuffle)],
        [2 / 3, 1 / 3],
        4,
        offsets=[0, 40],
    ),
}


@pytest.mark.parametrize("kind", SHUFFLED)
def test_epochs_and_seeds_have_orders_of_their_own_unless_nothing_is_shuffled(kind: str) -> None:
    orders = [epoch_of(SHUFFLED[kind](seed, True), epoch) for seed in (0, 1, 2**70) for epoch in (0, 1, 2)]
    for one, other in itertools.combinations(orders, 2):
        assert one != other
    if kind != "weighted":
        plain = [epoch_of(SHUFFLED[kind](seed, False), epoch) for seed in (0, 7) for epoch in (0, 1, 5)]
        assert plain.count(plain[0]) == len(plain)


SIX = [5, 3, 8, 2, 6, 4]
OF_A_BILLION = [*(448105819, 917379955, 684875019, 907749352, 223119744)]
OF_A_BILLION += [*(651331376, 379965468, 147544915, 436231169, 185908351)]


@pytest.mark.parametrize(
    ("sampler", "expected"),
    [
        (ShuffledSampler(100, 4, seed=1), [76, 6, 10, 55, 99, 47, 89, 33, 41, 79]),
        (ShuffledSampler(1_000_000_000, 4, seed=1), OF_A_BILLION),
        (WeightedSampler([5, 0, 1, 2, 8, 4, 3, 9], 2, num_per_epoch=20, seed=1), [4, 3, 7, 7, 4, 0, 4, 7, 7, 5]),
        (StreamingSequenceSampler(SIX, 2, seed=1), [24, 16, 25, 17, 26, 0, 27, 1, 5, 2]),
        (StreamingSequenceSampler(SIX, 2, seed=1, cut_sequences=True), [24, 8, 25, 9, 26, 10, 27, 11, 16, 12]),
        (StreamingSequenceSampler(SIX, 2, seed=1, weights=range(1, 7)), [16, 24, 17, 25, 8, 26, 9, 27, 10, 16]),
        (
            MixedSampler(
                [ShuffledSampler(30, seed=1), ShuffledSampler(20, seed=2)], [0.7, 0.3], 2, offsets=[0, 30]
            ),
            [19, 41, 9, 11, 28, 43, 21, 12, 32, 3],
        ),
        (
            MixedSampler(
                [StreamingSequenceSampler([3, 4, 2], seed=1), StreamingSequenceSampler([5, 2], seed=2)],
                [0.6, 0.4],
                2,
            ),
            [0, 3, 1, 4, 2, 5, 3, 6, 4, 0],
        ),
    ],
)
def test_ten_pinned_numbers(sampler: RandomAccessSampler, expected: list[int]) -> None:
    """They must not change: the orders are part of the contract, a change of them changes everybody's runs."""
    batches = (sampler.get_batch_indices(1, batch) for batch in range(5))
    assert np.concatenate(list(batches))[:10].tolist() == expected


# --- time ------------------------------------------------------------------------------------------------


def check_slots(batches: list[PlannedBatch], are_the_first: bool = True) -> int:
    """Each slot plays one sequence after the other; returns the number of those that do not begin at frame 0."""
    num_cut = 0
    for slot in range(len(batches[0].indices)):
        assert batches[0].is_first[slot] or batches[0].is_over[slot] or not are_the_first
        for now, after in itertools.pairwise([*batches, None]):
            if not now.is_over[slot] and now.visit[slot] >= 0:
                num_cut += int(now.is_first[slot] and now.frame[slot] != 0)
            if after is None or after.is_over[slot] or (now.visit[slot] >= 0) != (after.visit[slot] >= 0):
                continue
            assert after.is_first[slot] == now.is_last[slot]
            if not now.is_last[slot]:
                assert after.sequence[slot] == now.sequence[slot]
                assert after.frame[slot] == now.frame[slot] + 1
    return num_cut


class TestTime:
    @pytest.mark.parametrize("kind", ["streams", "streams in order", "streams cut"])
    @settings(deadline=None, max_examples=examples(7, 40))
    @drawn
    def test_slots_play_sequences_in_time(self, kind: str, data: Any) -> None:
        case = draw_case(data, kind)
        lengths, sampler = np.array(case.lengths), case.sampler
        starts = np.cumsum(lengths) - lengths
        batches = list(batches_of(sampler, 1))
        assert {sampler.num_batches(epoch) for epoch in range(6)} == {len(batches)}
        num_cuts = sampler.sample_counts(1).num_cuts
        num_inside = check_slots(batches)
        assert num_inside <= num_cuts
        if sampler.last_batch != "drop":
            assert num_inside == num_cuts
        is_whole = kind != "streams cut" and len(lengths) >= sampler.total_batch_size
        assert num_cuts == 0 if is_whole else num_cuts < sampler.total_batch_size
        num_ends = 0
        for batch in batches:
            assert (batch.indices == starts[batch.sequence] + batch.frame).all()
            assert (batch.is_first | (batch.frame > 0)).all()
            assert (batch.is_last | (batch.frame < lengths[batch.sequence] - 1)).all()
            num_ends += int((batch.is_last & ~batch.is_over & (batch.visit >= 0)).sum())
            if is_whole:
                assert len(set(batch.sequence.tolist())) == sampler.total_batch_size
                assert (batch.is_first == (batch.is_over | (batch.frame == 0))).all()
                assert (batch.is_last == (batch.frame == lengths[batch.sequence] - 1)).all()
        if sampler.last_batch != "drop":
            assert num_ends == len(lengths) + num_cuts

    @pytest.mark.parametrize("kind", [*STREAMS, "published sequences"])
    @settings(deadline=None, max_examples=examples(4, 25))
    @drawn
    def test_all_streams_play_in_time_and_slots_are_about_equally_long(self, kind: str, data: Any) -> None:
        sampler = draw_case(data, kind).sampler
        check_slots([sampler.plan_batch(*position) for position in positions_of(sampler, 1)])
        if kind == "published sequences":
            return
        padded = sampler.with_settings(last_batch="pad")
        for epoch in (0, 1):
            loads = sum((~batch.is_over).astype(int) for batch in batches_of(padded, epoch))
            units = sampler.order.of_epoch(epoch)(np.arange(sampler.order.num_positions))[0]
            is_cut = sampler.cuts or len(units) < sampler.total_batch_size
            assert np.ptp(loads) <= (1 if is_cut else sampler.sequences().lengths[units].max())


# --- shards ----------------------------------------------------------------------------------------------


def shards_of(case: Case, num_shards: int, epoch: int = 0) -> list[list[list[SamplePlace]]]:
    """The batches of an epoch (of an endless sampler some) on each shard, as its workers load them."""
    shards: list[list[list[SamplePlace]]] = []
    for shard in range(num_shards):
        data_input = SamplerInputCallable(
            IndexProvider(case.data_set_size), case.sampler, shard_id=shard, num_shards=num_shards
        )
        size, batches = data_input.batch_size, list[list[SamplePlace]]()
        for number in range(20) if data_input.length is None else itertools.count():
            infos = [SampleInfo(number * size + slot, slot, number, epoch) for slot in range(size)]
            places = [place for info in infos if (place := data_input.get_place(info)) is not None]
            for info, place in zip(infos, places, strict=False):
                assert int(data_input(info)[0]) == place.sample_index
            if not places:
                with pytest.raises(StopIteration):
                    data_input(infos[0])
                break
            batches.append(places)
        shards.append(batches)
    return shards


class TestShards:
    @every_kind
    @settings(deadline=None, max_examples=examples(4, 25))
    @drawn
    def test_shards_are_the_parts_of_the_global_batch(self, kind: str, data: Any) -> None:
        num_shards = data.draw(st.integers(1, 4), label="num_shards")
        case = draw_case(data, kind, batch_sizes=st.integers(1, 3).map(lambda size: size * num_shards))
        sampler = case.sampler
        if kind == "sharded permutation":
            sampler = sampler.with_settings(num_shards=num_shards)
            case = attrs.evolve(case, sampler=sampler)
            assume(all(has_batches(sampler, epoch) for epoch in range(3)))
        for epoch in (0,) if sampler.num_batches(0) is None else (0, 2):
            shards = shards_of(case, num_shards, epoch)
            self.assert_slots(shards, sampler)
            if kind in WITH_EPOCHS and sampler.last_batch == "partial":
                self.assert_partial(shards, case, epoch)
                continue
            assert len({len(shard) for shard in shards}) == 1
            for number, batches in enumerate(zip(*shards, strict=True)):
                batch, places = sampler.plan_batch(epoch, number), [*itertools.chain(*batches)]
                assert {len(each) for each in batches} == {len(batch.indices) // num_shards}
                assert [place.slot for place in places] == list(range(len(batch.indices)))
                for name in ("sequence", "frame", "is_first", "is_last", "is_padding", "visit"):
                    assert [getattr(place, name) for place in places] == getattr(batch, name).tolist()
                assert [place.sample_index for place in places] == batch.indices.tolist()
                assert {(place.epoch, place.batch) for place in places} == {(epoch, number)}
            assert sampler.num_batches(epoch) in (None, len(shards[0]))

    def assert_partial(self, shards: list[list[list[SamplePlace]]], case: Case, epoch: int) -> None:
        """Each sample once, and loads as equal as they can be."""
        sampler, num_steps = case.sampler, [len(shard) for shard in shards]
        places = [place for shard in shards for batch in shard for place in batch]
        assert Counter((each.sample_index, each.sequence, each.frame) for each in places) == case.contents(epoch)
        assert max(num_steps) == sampler.num_batches(epoch)
        for number, shard in enumerate(shards):
            sizes = [len(batch) for batch in shard]
            assert sizes == sorted(sizes, reverse=True)
            if sampler.has_slots and not sampler.depends_on_shards:
                size = sampler.total_batch_size // len(shards)
                assert {place.slot // size for batch in shard for place in batch} <= {number}
        if not sampler.has_slots:
            assert max(num_steps) - min(num_steps) <= 1
            last = [len(shard[-1]) if len(shard) == max(num_steps) else 0 for shard in shards]
            assert max(last) - min(last) <= 1

    def assert_slots(self, shards: list[list[list[SamplePlace]]], sampler: RandomAccessSampler) -> None:
        """What a model with a state is told."""
        slots: dict[int, list[SamplePlace]] = {}
        for place in itertools.chain(*itertools.chain(*shards)):
            slots.setdefault(place.slot, []).append(place)
            assert (place.is_first and place.is_last) or not place.is_padding
            assert not place.is_padding or sampler.last_batch == "pad"
        for in_slot in slots.values():
            if sampler.has_slots:
                self.assert_slot(in_slot)

    def assert_slot(self, places: list[SamplePlace]) -> None:
        assert places[0].is_first
        for before, after in itertools.pairwise(places):
            # Nothing is carried over from what has ended, to or from padding, nor to another sequence.
            is_other = before.sequence != after.sequence
            if before.is_padding or after.is_padding or before.is_last or is_other:
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


def test_flags_of_streams_by_hand() -> None:
    streams = StreamingSequenceSampler([4, 2, 1], 2, shuffle=False)
    assert flags_of(streams) == ["<0 1 2 3>", "<4 5> <6> <6*>"]
    # Frame 3, the last one of the longer slot, is dropped.
    assert flags_of(streams.with_settings(last_batch="drop")) == ["<0 1 2", "<4 5> <6>"]
    assert flags_of(streams.with_settings(last_batch="wrap")) == ["<0 1 2 3>", "<4 5> <6> <4"]


class PaddedByItself(RandomAccessSampler):
    """A sampler of one's own that plans the padding of its last batch, as a sampler of whole scenes does."""

    def num_batches(self, epoch: int) -> int:
        return 2

    def plan_batch(self, epoch: int, batch: int) -> PlannedBatch:
        return PlannedBatch([0, 1] if batch == 0 else [2, 2], is_padding=[False, batch == 1])


def test_padding_that_a_sampler_plans_is_delivered_on_all_shards() -> None:
    shards = shards_of(Case(PaddedByItself(2), 3), 2)
    found = [[(place.sample_index, place.is_padding) for [place] in shard] for shard in shards]
    assert found == [[(0, False), (2, False)], [(1, False), (2, True)]]


# --- continued with another batch size -------------------------------------------------------------------


class TestContinuing:
    @every_kind_with_epochs
    @settings(deadline=None, max_examples=examples(5, 25))
    @drawn
    def test_what_is_left_is_delivered_with_other_batch_sizes_and_shards(self, kind: str, data: Any) -> None:
        case, epoch = draw_case(data, kind), data.draw(st.integers(0, 2), label="epoch")
        sizes = data.draw(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=2, max_size=4))
        segments: list[EpochSegment] = []
        batches: list[PlannedBatch] = []
        for number, (num_shards, size) in enumerate(sizes, 1):
            sampler = case.sampler.with_settings(total_batch_size=num_shards * size, num_shards=num_shards)
            sampler = sampler.continued(epoch, segments)
            before = sum(segment.num_batches for segment in segments)
            assume(before or has_batches(sampler, epoch))
            left = sampler.num_batches(epoch) - before
            assert left >= 0
            count = left if number == len(sizes) else data.draw(st.integers(0, left), label="num_batches")
            part = [sampler.plan_batch(epoch, before + batch) for batch in range(count)]
            if part and sampler.has_slots and not sampler.depends_on_shards:
                begun = [segment.total_batch_size for segment in segments if segment.num_batches]
                check_slots(part, are_the_first=begun[-1:] != [num_shards * size])
            batches += part
            segments.append(EpochSegment(num_shards, num_shards * size, count))
        contents, found = case.contents(epoch), delivered(batches)
        assert found <= contents
        counts = sampler.sample_counts(epoch)
        assert counts.num_dropped == (contents - found).total()
        if sampler.last_batch != "drop":
            assert found == contents
        assert (counts.num_samples, counts.num_delivered) == (contents.total(), found.total())
        num_slots = sum(len(batch.indices) for batch in batches)
        assert num_slots == counts.num_delivered + counts.num_repeated + counts.num_padded

    @every_kind
    @law
    @drawn
    def test_with_the_same_size_it_is_plain_iteration(self, kind: str, data: Any) -> None:
        sampler = draw_case(data, kind).sampler
        positions = positions_of(sampler, 1)
        numbers = data.draw(st.lists(st.integers(0, len(positions)), min_size=1, max_size=2).map(sorted))
        segments = [
            EpochSegment(1, sampler.total_batch_size, number) for number in np.diff([0, *numbers]).tolist()
        ]
        for continued in (sampler.continued(0, segments), sampler.continued(0, segments).with_settings()):
            assert continued.num_batches(0) == sampler.num_batches(0)
            for position in positions[numbers[-1] :]:
                assert values(continued.plan_batch(*position)) == values(sampler.plan_batch(*position))
                assert continued.get_next_batch_indices() == sampler.get_batch_indices(*position).tolist()

    @every_kind_with_epochs
    @law
    @drawn
    def test_stepping_starts_behind_what_was_delivered_and_other_epochs_are_not_affected(
        self, kind: str, data: Any
    ) -> None:
        sampler = draw_case(data, kind, policies=("pad", "wrap")).sampler
        num_delivered = data.draw(st.integers(0, sampler.num_batches(1)))
        segments = [EpochSegment(1, sampler.total_batch_size, num_delivered)]
        plain = sampler.with_settings(total_batch_size=5)
        continued = plain.continued(1, segments)
        for epoch in (0, 2):
            assert epoch_of(continued, epoch) == epoch_of(plain, epoch)
        stepped = pickle.loads(pickle.dumps(continued))
        for batch in range(num_delivered, continued.num_batches(1)):
            assert stepped.get_next_batch_indices() == continued.get_batch_indices(1, batch).tolist()
        with pytest.raises(StopIteration):
            stepped.get_next_batch_indices()
        stepped.reset()
        assert stepped.get_next_batch_indices() == continued.get_batch_indices(2, 0).tolist()

    def test_what_was_to_be_dropped_is_delivered_where_it_fills_a_batch(self) -> None:
        sampler = ShardedPermutationSampler(11, None, 0, False, "drop")
        begun = sampler.with_settings(total_batch_size=4, num_shards=2)  # shards of 5, and one sample left over
        assert begun.get_batch_indices(0, 0).tolist() == [0, 1, 5, 6]
        rest = sampler.with_settings(total_batch_size=7).continued(0, [EpochSegment(2, 4, 1)])
        assert rest.get_batch_indices(0, 1).tolist() == [2, 3, 4, 7, 8, 9, 10]
        assert rest.num_batches(0) == 2

    @pytest.mark.parametrize("kind", OTHERS)
    def test_others_refuse_another_batch_size(self, kind: str) -> None:
        samplers = {
            "published sequences": SequenceSampler(2, [3, 4, 5], 0),
            "replayed": PlayedSampler(EpochSampler(10, 2), 10, 1, None),
            "user-written": BackwardSampler(10, 2),
        }
        with pytest.raises(SettingError, match=r"depends on the batch size.*of 3 cannot be continued.*of 2"):
            samplers[kind].continued(0, [EpochSegment(1, 3, 1)]).num_batches(0)


# --- mixtures --------------------------------------------------------------------------------------------


class TestMixtures:
    @pytest.mark.parametrize("kind", ["mixed samples", "mixed streams", "mixed samples, nested"])
    @settings(deadline=None, max_examples=examples(5, 25))
    @drawn
    def test_counts_of_each_prefix_are_within_one_of_the_rates(self, kind: str, data: Any) -> None:
        sampler = draw_case(data, kind).sampler
        first_units = 2**40 * np.arange(len(sampler.samplers))  # tells whose a unit is
        order = attrs.evolve(sampler.order, first_units=first_units.tolist())
        units = np.concatenate([order.of_epoch(epoch)(np.arange(order.num_positions))[0] for epoch in range(4)])
        owners = np.searchsorted(first_units, units, side="right") - 1
        lengths = np.arange(1, len(units) + 1)
        for component, (rate, part) in enumerate(zip(sampler.rates, sampler.samplers, strict=True)):
            assert (np.abs(np.cumsum(owners == component) - lengths * rate) < 1).all()
            own = units[owners == component] - first_units[component]
            size = part.order.num_positions
            for lap in range(len(own) // size + 1):
                expected = part.order.of_epoch(lap)(np.arange(size))[0]
                assert own[lap * size : (lap + 1) * size].tolist() == expected[: len(own) - lap * size].tolist()

    @pytest.mark.parametrize(
        ("other", "offsets", "expected"),
        [
            (StreamingSequenceSampler([4]), [0, 5], {(0, 0), (1, 2), (2, 5)}),  # numbers of their own
            (StreamingSequenceSampler([2, 3], weights=[0, 1]), None, {(0, 0), (1, 2)}),  # of one data set
        ],
    )
    def test_numbers_of_sequences(self, other: PlannedSampler, offsets: Any, expected: Any) -> None:
        parts = [StreamingSequenceSampler([2, 3]), other]
        mixed = MixedSampler(parts, [0.5, 0.5], 1, offsets=offsets, num_per_epoch=4)
        batches = batches_of(mixed, 0)
        assert {(int(each.sequence[0]), int(each.indices[0] - each.frame[0])) for each in batches} == expected


# --- bad input -------------------------------------------------------------------------------------------

SAMPLES = ShuffledSampler(10)
STREAM = StreamingSequenceSampler([3, 4])


@pytest.mark.parametrize(
    ("create", "message"),
    [
        # lengths and weights; more in `test_sequence_lengths.py` and `test_weighted_choice.py`
        (lambda: StreamingSequenceSampler([3, 0, 2]), r"`sequence_lengths` must be at least 1, but length 1 is 0"),
        (lambda: SequenceSampler(1, [3, 0], 0), "`sequence_lenghts` must be at least 1, but length 1 is 0"),
        (lambda: SequenceSampler(3, [2, 2], 0), r"must be at least the total batch size\. Got 2.*3 slots"),
        (lambda: ShuffledSampler(0), "`num_samples` must be a whole number of at least 1, got 0"),
        (lambda: ShuffledSampler(2**70), r"`num_samples` must be at most 2\*\*62, got 1180591620717411303424"),
        (lambda: WeightedSampler([1, -1]), r"finite and at least 0, but weights\[1\] is -1"),
        (lambda: WeightedSampler([1], num_per_epoch=0), "`num_per_epoch` must be .* at least 1"),
        (
            lambda: StreamingSequenceSampler([3, 4], weights=[1, 2], shuffle=False),
            "`weights` do not go with `shuffle=False`, since draws by weight are random",
        ),
        (lambda: StreamingSequenceSampler([3, 4], weights=[1]), "must have 2 weights, one per item, got 1"),
        (
            lambda: StreamingSequenceSampler([3, 4], num_per_epoch=5),
            "`num_per_epoch` goes with `weights`.*got 5 without weights",
        ),
        (lambda: StreamingSequenceSampler([3], shuffle=None), "`shuffle` must be True or False, got None"),
        (lambda: StreamingSequenceSampler([3], cut_sequences=[0]), "`cut_sequences` must be True or False"),
        # mixtures; of rates more in `test_mixture_schedule.py`
        (lambda: MixedSampler([], []), "at least one sampler, got none"),
        (lambda: MixedSampler(SAMPLES, [1]), "must be a sequence of samplers, .* got ShuffledSampler"),
        (lambda: MixedSampler([BackwardSampler(9, 3)], [1.0]), "Sampler 0 of a mixture must be one of"),
        (lambda: MixedSampler([SAMPLES], [1.0], offsets=np.array(3)), "must be a sequence of .* got array"),
        (lambda: MixedSampler([SAMPLES], [1.0], offsets=[2**63]), r"`offsets` must be at most 2\*\*62"),
        (
            lambda: MixedSampler([WeightedSampler([1], num_per_epoch=2**62)] * 2, [0.5, 0.5]),
            r"`num_per_epoch` must be at most 2\*\*62",
        ),
        (lambda: MixedSampler([SAMPLES, SAMPLES], [1.0]), r"`rates` must have one entry per sampler, got 1 for 2"),
        (
            lambda: MixedSampler([SAMPLES, STREAM], [0.5, 0.5]),
            "of one kind, samples or streams, got 0: samples, 1: streams",
        ),
        (lambda: MixedSampler([SAMPLES], [1.0], offsets=[0, 10]), "`offsets` .* one entry per sampler, got 2"),
        (lambda: MixedSampler([SAMPLES], [1.0], offsets=[-1]), "`offsets` must be a whole number of at least 0"),
        (lambda: MixedSampler([SAMPLES], [1.0], num_per_epoch=0), "`num_per_epoch` must be .* at least 1"),
        # the rest
        (lambda: ShuffledSampler(9, 0), "`total_batch_size` must be a whole number of at least 1, got 0"),
        (lambda: ShuffledSampler(9, seed=-1), "`seed` must be a whole number of at least 0, got -1"),
        (lambda: ShuffledSampler(9, last_batch=np.array(["pad", "drop"])), r"`last_batch` must be .* got array\("),
        (lambda: SAMPLES.with_settings(last_batch="keep"), "`last_batch` must be 'drop', .* got 'keep'"),
        (
            lambda: SequenceSampler(2, [3, 4], 0).with_settings(total_batch_size=1),
            "created for batches of 2 .* requested: 1",
        ),
        # asked too early, or for what is not there
        (
            lambda: BackwardSampler(9).with_settings(last_batch="pad"),
            "does not say that it supports another policy",
        ),
        (lambda: SAMPLES.plan_batch(0, 0), "size of the ShuffledSampler is not set.*Give `total_batch_size`"),
        (lambda: ShuffledSampler(3, 4).num_batches(0), r"3 sample\(s\) for 4 slots with last_batch='drop'"),
        (lambda: ShuffledSampler(10, 4).plan_batch(0, 2), "has the batches 0 .. 1, requested: batch 2"),
        (lambda: SequenceSampler(1, [3], 0).plan_batch(1, 0), "no epoch but 0, requested: 1"),
        # what a user's sampler plans
        (lambda: PlannedBatch([1.5, 2.0]), "must be whole numbers, got float64"),
        (lambda: PlannedBatch([[1], [2]]), r"`indices` must be of shape \(B,\), got shape \(2, 1\)"),
        (lambda: PlannedBatch([1, 2], frame=[0]), r"`frame` must have the shape \(2,\).*slot. Got .* \(1,\)"),
    ],
)
def test_bad_settings_are_refused(create: Callable[[], object], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        create()


def test_an_endless_sampler_has_no_last_batch_that_a_policy_could_change() -> None:
    endless = type("Endless", (BackwardSampler,), {"num_batches": lambda self, epoch: None})(9)
    assert endless.with_settings(last_batch="pad").last_batch == "pad"


class Wrong(BackwardSampler):
    """Plans whatever it is told."""

    def __init__(self, indices: Any) -> None:
        super().__init__(12, 4)
        self.indices = indices

    def plan_batch(self, epoch: int, batch: int) -> PlannedBatch:
        return PlannedBatch(self.indices)


@pytest.mark.parametrize(
    ("sampler", "arguments", "message"),
    [
        (
            ShuffledSampler(12, 4),
            {"num_shards": 3},
            "multiple of the number of shards: ShuffledSampler .* of 4 for 3",
        ),
        (ShuffledSampler(12, 4), {"num_shards": 2, "shard_id": 2}, r"`shard_id` must be in \[0, 1\]"),
        (
            MixedSampler([ShuffledSampler(6), ShuffledSampler(7)], [0.5, 0.5], 2, offsets=[0, 6]),
            {},
            "set up for 13 samples, but the data set has only 12",
        ),
        (SequenceSampler(2, [6, 7], 0), {}, "set up for 13 samples, but the data set has only 12"),
        (EpochSampler(), {"num_shards": 3}, "multiple of the number of shards.*batches of 4 for 3"),
        (EpochSampler(2, 4), {}, "ended epoch 0 without a single batch"),
        (EpochSampler(30, 16), {}, "chose sample 12, but the data set has the samples 0 .. 11"),
        (ShuffledSampler, {}, "`sampler` must be of the class SamplerBase, or .*, got .* Create an object of"),
        (ShuffledSampler(12, 4), {"context_name": "index"}, "the blueprint has a field `index` already"),
        (ShuffledSampler(12, 4), {"context_name": ""}, "`context_name` must be a text"),
        (Wrong([1, 2, 3]), {}, r"Wrong.plan_batch must plan all 4 slots, got 3"),
        (Wrong([1, 2, 12, 3]), {}, r"Wrong chose sample 12, but the data set has the samples 0 .. 11"),
        (Wrong([1, 2, 3, -1]), {}, r"Wrong chose sample -1, but the data set has the samples 0 .. 11"),
    ],
)
def test_inputs_refuse_what_does_not_fit(sampler: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        SamplerInputCallable(IndexProvider(12), sampler, **arguments)(SampleInfo(0, 0, 0, 0))


def test_cuts_for_want_of_sequences_are_reported_once_and_not_by_workers(caplog: pytest.LogCaptureFixture) -> None:
    sampler = StreamingSequenceSampler([5, 6], 4)
    pickle.loads(pickle.dumps(sampler)).num_batches(0)  # as in a worker
    StreamingSequenceSampler([5, 6], 4, cut_sequences=True).num_batches(0)  # as asked for
    assert caplog.messages == []
    for epoch in range(3):
        sampler.num_batches(epoch)
    data_input = SamplerInputCallable(IndexProvider(11), StreamingSequenceSampler([5, 6]))
    data_input.with_settings(batch_size=4).get_place(SampleInfo(0, 0, 0, 0))
    assert len(caplog.messages) == 2
    assert all("fewer sequences than the 4 slots" in message for message in caplog.messages)
    assert "(2 cuts per epoch)" in caplog.messages[0]


def test_threads_that_ask_at_once_get_the_same_order(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler, found = ShardedPermutationSampler(100, 4, 7, True, "drop"), list[Any]()

    class Interrupted(np.random.Generator):
        def permutation(self, *arguments: Any, **settings: Any) -> Any:
            if not found:  # another thread asks before this one has drawn
                found.append("begun")
                found[0] = sampler.plan_batch(0, 1).indices.tolist()
            return super().permutation(*arguments, **settings)

    expected = np.random.default_rng(7).permutation(100)
    monkeypatch.setattr(np.random, "default_rng", lambda seed: Interrupted(np.random.PCG64(seed)))
    first = sampler.plan_batch(0, 0).indices.tolist()
    assert [first, *found, sampler.plan_batch(0, 2).indices.tolist()] == expected[:12].reshape(3, 4).tolist()


MANY_LENGTHS = [5, 9] * 500


@pytest.mark.parametrize(
    ("sampler", "num_bytes"),
    [
        (MixedSampler([ShuffledSampler(10**9), ShuffledSampler(10**8)], [0.75, 0.25], 16), 3000),
        # 8 bytes per sequence: its length (and where its weight ends in the sum of all).
        (StreamingSequenceSampler(MANY_LENGTHS, 16, weights=MANY_LENGTHS), 2500 + 2 * 8000),
        (SequenceSampler(16, MANY_LENGTHS, 0), 1500 + 2 * 8000),
        (WeightedSampler(MANY_LENGTHS, 16), 1500 + 8000),
    ],
    ids=lambda value: type(value).__name__,
)
def test_pickles_hold_no_order(sampler: RandomAccessSampler, num_bytes: int) -> None:
    fresh = len(pickle.dumps(sampler))
    for batch in (0, 40, 3):
        sampler.plan_batch(0, batch)
    assert fresh <= num_bytes
    assert abs(len(pickle.dumps(sampler)) - fresh) <= 10
