"""`SequenceSampler`, and the two inputs that use samplers."""

from __future__ import annotations

import copy
import itertools
import pickle
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nvidia.dali.types import SampleInfo
from support.draws import Drawer
from support.pipelines import indices, make_iterator
from support.providers import IndexProvider
from support.refusals import assert_refused
from support.samplers import EndlessSampler, EpochSampler, GeneratorSampler, LockedSampler, ShortEndSampler

from accvlab.dali_pipeline_framework import DataLoader, UniformDraw
from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.inputs import (
    SamplerBase,
    SamplerInputCallable,
    SamplerInputIterable,
    SequenceSampler,
)
from accvlab.dali_pipeline_framework.sampling import (
    LastBatch,
    PlannedBatch,
    RandomAccessSampler,
    SampleCounts,
    SequentialSampler,
    StreamingSequenceSampler,
)


def slot_by_slot(num_slots: int, lengths: list[int], seed: int | None) -> Iterator[list[int]]:
    """The order as it is defined: one independent generator per slot."""

    def play(slot: int) -> Iterator[int]:
        rng = np.random.default_rng(seed=seed)
        starts = np.cumsum([0, *lengths])
        while True:
            order = np.arange(len(lengths)) if seed is None else rng.permutation(len(lengths))
            for sequence in order[slot::num_slots]:
                yield from range(starts[sequence], starts[sequence + 1])

    return (list(batch) for batch in zip(*(play(slot) for slot in range(num_slots)), strict=True))


class TestSequenceSampler:
    def test_ten_pinned_numbers(self) -> None:
        # The order is part of the contract: a change of it changes everybody's runs.
        sampler = SequenceSampler(1, [3, 4, 2, 3, 5], seed=21)
        assert [sampler.get_next_batch_indices()[0] for _ in range(10)] == [0, 1, 2, 3, 4, 5, 6, 9, 10, 11]

    @given(
        num_slots=st.integers(1, 4),
        lengths=st.lists(st.sampled_from([1, 2, 3, 30]), min_size=4, max_size=7),
        seed=st.none() | st.integers(0, 1000),
        batches=st.lists(st.integers(0, 150), min_size=1, max_size=15),
    )
    @settings(deadline=None)
    def test_any_batch_follows_the_definition(
        self, num_slots: int, lengths: list[int], seed: int | None, batches: list[int]
    ) -> None:
        sampler = SequenceSampler(num_slots, lengths, seed or 0, randomize=seed is not None)
        expected = list(itertools.islice(slot_by_slot(num_slots, lengths, seed), 151))
        starts = np.cumsum([0, *lengths])
        for batch in [*batches, *range(20)]:
            planned = sampler.plan_batch(0, batch)
            assert planned.indices.tolist() == expected[batch]
            assert (starts[planned.sequence] + planned.frame).tolist() == expected[batch]
            planned.indices[:] = planned.sequence[:] = planned.frame[:] = planned.visit[:] = -7  # the caller's own

    def test_not_randomised_all_batches_are_equally_near(self) -> None:
        sampler = SequenceSampler(2, [1, 1000], 0, randomize=False)
        batch = 10**15 + 77
        assert sampler.get_batch_indices(0, batch).tolist() == [0, 1 + batch % 1000]
        assert sampler.plan_batch(0, batch).visit.tolist() == [batch, batch // 1000]
        assert sampler.get_batch_indices(0, 5).tolist() == [0, 6]


class Repeating:
    """Delivers given epochs again and again, or the first one as an endless stream.

    It has the members of a `SamplerBase`, which it is not derived from.
    """

    is_epoch_based, length = True, None

    def __init__(self, *epochs: list[list[int]], is_epoch_based: bool = True) -> None:
        self.epochs, self.is_epoch_based = epochs, is_epoch_based
        self.epoch = self.batch = 0

    def get_next_batch_indices(self) -> list[int]:
        batches = self.epochs[self.epoch % len(self.epochs)]
        if self.is_epoch_based and self.batch == len(batches):
            raise StopIteration
        self.batch += 1
        return batches[(self.batch - 1) % len(batches)]

    def reset(self) -> None:
        self.epoch, self.batch = self.epoch + 1, 0


class UncopiedSampler(Repeating):
    """Delivers batches of one sample, without end; cannot be copied."""

    def __init__(self, fails_at: int | None = None, error: type[BaseException] = ZeroDivisionError) -> None:
        super().__init__([[index] for index in range(10)], is_epoch_based=False)
        self.fails_at, self.error = fails_at, error

    def get_next_batch_indices(self) -> list[int]:
        batch = super().get_next_batch_indices()
        if self.batch - 1 == self.fails_at:
            raise self.error
        return batch

    def __deepcopy__(self, memo: object) -> UncopiedSampler:
        raise TypeError


TWO_EPOCHS: Any = Repeating([[0, 1], [2, 3]], [[1, 2], [3, 4]])


def batch_of(data_input: SamplerInputCallable, batch: int, epoch: int = 0) -> list[int]:
    size = data_input.batch_size
    return [int(data_input(SampleInfo(batch * size + slot, slot, batch, epoch))[0]) for slot in range(size)]


class TestSamplerInputCallable:
    def test_delivers_the_epochs_of_the_sampler(self) -> None:
        data_input = SamplerInputCallable(IndexProvider(10), EpochSampler(), 100, 2)
        assert [batch_of(data_input, batch) for batch in (0, 1)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        with pytest.raises(StopIteration):
            batch_of(data_input, 2)
        assert [batch_of(data_input, batch, 1) for batch in (0, 1)] == [[1, 2, 3, 4], [5, 6, 7, 8]]
        assert data_input.length == 2

    @pytest.mark.parametrize("py_num_workers", [0, 1])
    def test_a_sampler_need_not_be_derived_from_the_base_class(self, py_num_workers: int) -> None:
        data_input = SamplerInputCallable(IndexProvider(10), TWO_EPOCHS, 100, 2)
        with make_iterator(data_input, batch_size=2, py_num_workers=py_num_workers) as iterator:
            assert indices(iterator) == [[0, 1], [2, 3]]
            assert indices(iterator) == [[1, 2], [3, 4]]

    def test_members_that_a_sampler_lacks_are_named(self) -> None:
        class Incomplete:
            length = None

            def get_next_batch_indices(self) -> list[int]:
                return [0]

        words = "of the class SamplerBase, or have its members, got ... It lacks is_epoch_based, reset."
        assert_refused(lambda: SamplerInputCallable(IndexProvider(10), cast(Any, Incomplete())), words)

    def test_the_number_of_iterations_is_limited(self) -> None:
        data_input = SamplerInputCallable(IndexProvider(10), EndlessSampler(), 5, 2)
        assert data_input.length == 7
        assert batch_of(data_input, 6) == [4, 5, 6, 7]
        with pytest.raises(StopIteration):
            batch_of(data_input, 7)
        with pytest.raises(RuntimeError, match=r"maximum number of iterations is used up.*7 batches") as raised:
            batch_of(data_input, 0, 1)
        assert isinstance(raised.value, SettingError)

    def test_the_limit_counts_over_epochs(self) -> None:
        data_input = SamplerInputCallable(IndexProvider(10), EpochSampler(), 3, 0)
        assert batch_of(data_input, 0, 1) == [1, 2, 3, 4]
        with pytest.raises(StopIteration):
            batch_of(data_input, 1, 1)
        assert_refused(lambda: batch_of(data_input, 0, 2), "used up", RuntimeError)

    def test_an_endless_sampler_is_left_alone_and_has_no_length(self) -> None:
        sampler = EndlessSampler()
        data_input = SamplerInputCallable(IndexProvider(10), sampler)
        assert batch_of(data_input, 1000) == [0, 1, 2, 3]
        assert (data_input.length, data_input.sample_counts(0), sampler.next) == (None, None, 0)

    @pytest.mark.parametrize("sampler_class", [LockedSampler, GeneratorSampler])
    def test_what_cannot_be_pickled_is_played_into_a_table(self, sampler_class: type[SamplerBase]) -> None:
        data_input = SamplerInputCallable(IndexProvider(10), sampler_class(), 6, 0)
        sent = pickle.loads(pickle.dumps(data_input))
        assert [batch_of(sent, batch) for batch in (1, 0)] == [[4, 5, 6, 7], [0, 1, 2, 3]]
        assert sent.length == data_input.length
        endless = SamplerInputCallable(IndexProvider(10), sampler_class())
        words = f"{sampler_class.__name__} cannot be pickled...give `max_num_iterations`"
        assert_refused(lambda: pickle.dumps(endless), words)

    def test_batches_are_played_once_and_not_before_they_are_requested(self) -> None:
        sampler = UncopiedSampler()
        data_input = SamplerInputCallable(IndexProvider(10), sampler)
        assert sampler.batch == 1
        first = [batch_of(data_input, batch) for batch in (5, 0, 2)]
        assert sampler.batch == 6
        assert [batch_of(data_input, batch) for batch in (5, 0, 2)] == first == [[5], [0], [2]]
        assert sampler.batch == 6

    def test_a_sampler_that_has_failed_does_not_skip_a_batch(self) -> None:
        data_input = SamplerInputCallable(IndexProvider(10), UncopiedSampler(fails_at=3))
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                batch_of(data_input, 3)
        assert batch_of(data_input, 2) == [2]
        data_input = SamplerInputCallable(IndexProvider(10), UncopiedSampler(fails_at=1, error=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            batch_of(data_input, 1)
        assert_refused(lambda: batch_of(data_input, 1), "UncopiedSampler was interrupted", RuntimeError)


class TestSamplerInputIterable:
    def test_delivers_the_epochs_of_a_sampler_also_of_one_that_is_not_derived_from_the_base_class(self) -> None:
        data_input = SamplerInputIterable(IndexProvider(10), copy.deepcopy(TWO_EPOCHS))
        epochs = [[[int(value) for value in field] for (field,) in data_input] for _ in range(2)]
        assert epochs == [[[0, 1], [2, 3]], [[1, 2], [3, 4]]]

    def test_shards_take_their_slots(self) -> None:
        shards = [SamplerInputIterable(IndexProvider(10), EpochSampler(), i, 2) for i in (0, 1)]
        assert [[int(value) for value in next(iter(shard))[0]] for shard in shards] == [[0, 1], [2, 3]]
        assert [shard.current_sample_indices for shard in shards] == [[0, 1], [2, 3]]
        with pytest.raises(AssertionError, match="multiple of the number of shards"):
            next(SamplerInputIterable(IndexProvider(10), EpochSampler(), 0, 3))

    def test_an_endless_sampler_is_never_reset(self) -> None:
        data_input = SamplerInputIterable(IndexProvider(10), EndlessSampler())
        assert not data_input.has_epochs
        first, second = next(iter(data_input)), next(iter(data_input))
        assert [int(value) for value in first[0] + second[0]] == [0, 1, 2, 3, 4, 5, 6, 7]
        assert_refused(data_input.as_callable, "The EndlessSampler was used already")
        assert data_input.length is None


@pytest.mark.parametrize("policy", ["drop", "pad", "partial", "wrap"])
def test_sample_counts(policy: LastBatch) -> None:
    filled = (2, 0) if policy == "wrap" else (0, 2)
    source = SamplerInputCallable(IndexProvider(10), ShortEndSampler()).with_settings(last_batch=policy)
    expected = SampleCounts(2, 10, 8, 2, 0, 0) if policy == "drop" else SampleCounts(3, 10, 10, 0, *filled)
    assert [source.sample_counts(epoch) for epoch in (0, 2, 1)] == [expected] * 3
    if policy == "partial":
        one_left = SamplerInputCallable(IndexProvider(5), Repeating([[0, 1, 2, 3], [4]]))
        assert one_left.with_settings(last_batch=policy).sample_counts(0) == SampleCounts(2, 5, 5, 0, 0, 3)
    # Epochs that are cut by the number of iterations.
    in_order = SequentialSampler(20, 4, last_batch=policy)
    source = SamplerInputCallable(IndexProvider(20), in_order, 7, 1)
    assert [source.sample_counts(epoch) for epoch in range(3)] == [
        SampleCounts(5, 20, 20, 0, 0, 0),
        SampleCounts(3, 20, 12, 8, 0, 0),
        SampleCounts(0, 20, 0, 20, 0, 0),
    ]
    if policy != "drop":
        streams = StreamingSequenceSampler([9, 2, 1], 3, last_batch=policy, shuffle=False)  # slots of 9, 2 and 1
        counts = SamplerInputCallable(IndexProvider(12), streams, 4).sample_counts(0)
        assert counts == SampleCounts(4, 12, 7, 5, *((5, 0) if policy == "wrap" else (0, 5)))


class TestVisitsOfStatefulSamplers:
    """How often a sample came before in the epoch, on all shards, gives each delivery draws of its own."""

    def test_of_an_endless_sampler(self) -> None:
        expected = {2: [2, 2, 4, 5], 0: [0, 0, 0, 1], 1: [1, 1, 2, 3]}
        for num_shards in (1, 2):
            sampler = Repeating([[0, 1, 2, 2]], is_epoch_based=False)
            shards = [
                SamplerInputCallable(IndexProvider(3), sampler, None, 0, shard, num_shards)
                for shard in range(num_shards)
            ]
            for batch in expected:  # in any order
                places = [place for shard in shards for place in shard.get_places(0, batch)]
                assert [place.visit for place in places] == expected[batch]

    def test_of_an_epoch_based_sampler(self) -> None:
        sampler = Repeating([[4, 4, 1], [1, 0, 4]], [[0, 1, 2], [2, 3]], [[3, 3]])
        source = SamplerInputCallable(IndexProvider(5), sampler).with_settings(last_batch="wrap")
        visits = [[planned.visit.tolist() for planned in planned_epoch(source, epoch)] for epoch in range(3)]
        assert visits == [[[0, 1, 0], [1, 0, 2]], [[0, 0, 0], [1, 0, -1]], [[0, 1, -1]]]
        padded = source.with_settings(last_batch="pad").sampler.plan_batch(2, 0)
        assert [padded.indices.tolist(), padded.is_padding.tolist(), padded.visit.tolist()] == [
            [3, 3, 3],
            [False, False, True],
            [0, 1, 1],
        ]

    def test_a_wrapped_batch_that_repeats_its_own_samples(self) -> None:
        source = SamplerInputCallable(IndexProvider(5), Repeating([[0, 1, 2, 3, 4]], [[1, 1]]))
        [planned] = planned_epoch(source.with_settings(last_batch="wrap"), 1)
        assert planned.indices.tolist() == [1] * 5
        assert len({*planned.visit.tolist()}) == 5

    def test_a_sample_is_augmented_anew_whenever_it_comes(self) -> None:
        class Derived(Repeating, SamplerBase):
            """Of which a `DataLoader` can tell that it is a sampler."""

        def loader() -> DataLoader:
            sampler = Derived([[0, 1, 2, 2]], is_epoch_based=False)
            settings: dict[str, Any] = {"steps_per_epoch": 2, "num_workers": 0, "output_type": "numpy"}
            return DataLoader(IndexProvider(3), steps=[Drawer(UniformDraw("a"))], sampler=sampler, **settings)

        with loader() as whole:
            batches = [batch["a"].tolist() for _ in range(3) for batch in whole]
        assert len({*itertools.chain(*batches)}) == 24
        with loader() as first:
            state = [first.state_dict() for _ in itertools.chain(first, first)][2]
        with loader() as second:
            second.load_state_dict(state)
            assert [batch["a"].tolist() for _ in range(2) for batch in second] == batches[3:]


def planned_epoch(source: SamplerInputCallable, epoch: int) -> list[PlannedBatch]:
    return [source.sampler.plan_batch(epoch, batch) for batch in range(source.num_batches_in_epoch(epoch))]


def test_a_sampler_that_ends_an_epoch_elsewhere_is_refused() -> None:
    class EndsEarly(RandomAccessSampler):
        def num_batches(self, epoch: int) -> int:
            return 3 - 6 * epoch

        def plan_batch(self, epoch: int, batch: int) -> PlannedBatch:
            if batch == 1:
                raise StopIteration
            return PlannedBatch([0, 1])

    data_input = SamplerInputCallable(IndexProvider(10), EndsEarly(2))
    assert data_input(SampleInfo(0, 0, 0, 0))[0] == 0
    with pytest.raises(SettingError, match=r"raised StopIteration for batch 1 of epoch 0.*Only num_batches"):
        data_input(SampleInfo(2, 0, 1, 0))
    with pytest.raises(SettingError, match=r"`EndsEarly.num_batches\(1\)` must be .* at least 0, got -3"):
        data_input.num_batches_in_epoch(1)


def test_a_sequential_sampler_delivers_each_sample_once_in_order() -> None:
    shards = [
        SamplerInputCallable(IndexProvider(11), SequentialSampler(11, 4), shard_id=shard, num_shards=2)
        for shard in range(2)
    ]
    infos = [[SampleInfo(2 * batch + slot, slot, batch, 7) for slot in range(2)] for batch in range(3)]
    batches = [[shard.get_sample_index(info) for info in batch] for batch in infos for shard in shards]
    assert batches == [[0, 1], [2, 3], [4, 5], [6, 7], [8, None], [9, 10]]
