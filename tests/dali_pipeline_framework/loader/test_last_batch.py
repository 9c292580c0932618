"""Last batches that are not full, in real pipelines: what is delivered, dropped, padded and repeated."""

from __future__ import annotations

import itertools
from collections import Counter
from contextlib import ExitStack
from typing import Any

import attrs
import numpy as np
import pytest
from support.inputs import CountedCallable, NumberCallable, NumberIterable, PartialCallable
from support.laws import each_value, spread
from support.loaders import LENGTHS, PLANNED, by_sampler, make_loader
from support.pipelines import indices
from support.providers import IndexProvider, NumberProvider
from support.refusals import assert_refused
from support.samplers import ShortEndSampler
from support.start_methods import FORKED

from accvlab.dali_pipeline_framework.errors import SourceError
from accvlab.dali_pipeline_framework.inputs import ShuffledShardedInputCallable
from accvlab.dali_pipeline_framework.sampling import SampleCounts, StreamingSequenceSampler

POLICIES = ("drop", "pad", "partial", "wrap")


@attrs.frozen
class Delivery:
    """What the loaders of all shards deliver in an epoch.

    Attributes:
        steps: Per shard the batches.
        sample_counts: What was announced.
    """

    steps: list[list[Any]]
    sample_counts: SampleCounts

    def column(self, name: str) -> list[Any]:
        """A field of all batches of all shards."""
        return [value for shard in self.steps for batch in shard for value in batch["position"][name].tolist()]

    @property
    def num_steps(self) -> list[int]:
        return [len(batches) for batches in self.steps]


def planned(name: str) -> Any:
    """Makes loaders of an order for a batch size."""
    return lambda size, **arguments: make_loader(PLANNED[name](), size, **arguments)


def epoch_of(
    make: Any, num_shards: int, total: int, last_batch: Any, epoch: int = 0, **arguments: Any
) -> Delivery:
    with ExitStack() as stack:
        loaders = [
            stack.enter_context(
                make(total // num_shards, shard=(k, num_shards), last_batch=last_batch, **arguments)
            )
            for k in range(num_shards)
        ]
        for loader in loaders:
            loader.set_epoch(epoch)
        sample_counts = loaders[0].sample_counts()
        assert sample_counts is not None
        assert all(loader.sample_counts() == sample_counts for loader in loaders)
        lengths = [len(loader) for loader in loaders]
        assert max(lengths) == sample_counts.num_batches
        got = Delivery([[*loader] for loader in loaders], sample_counts)
        assert got.num_steps == lengths
        return got


# --- samplers --------------------------------------------------------------------------------------------

# No two slots of an epoch hold the same sample of these, unless it is repeated or padded.
DISTINCT = ["shuffled", "streams", "streams, cut"]


@each_value(name=DISTINCT, policy=POLICIES, num_shards_and_total=[(2, 4), (3, 6), (1, 4), (2, 10)])
def test_what_is_announced_is_delivered(name: str, policy: Any, num_shards_and_total: tuple[int, int]) -> None:
    got = epoch_of(planned(name), *num_shards_and_total, policy, epoch=1)
    counts = got.sample_counts
    is_padding, indices = np.array(got.column("is_padding"), bool), np.array(got.column("sample_index"))
    assert len({*indices[~is_padding]}) == counts.num_delivered == counts.num_samples - counts.num_dropped
    num_left_out = counts.num_padded if policy == "partial" else 0
    assert is_padding.sum() == counts.num_padded - num_left_out
    assert len(indices) + num_left_out == counts.num_batches * num_shards_and_total[1]
    assert len(indices) == counts.num_delivered + counts.num_repeated + is_padding.sum()
    if policy != "partial":
        assert {*got.num_steps} == {counts.num_batches}  # all shards make the same number of steps


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("num_shards", [1, 2, 3])
def test_shuffled_samples_exactly(num_shards: int, policy: Any) -> None:
    got = epoch_of(planned("shuffled"), num_shards, 6, policy)  # 22 samples: 3 batches of 6, 4 are left
    num_steps, counts = {
        "drop": (3, SampleCounts(3, 22, 18, 4, 0, 0)),
        "pad": (4, SampleCounts(4, 22, 22, 0, 0, 2)),
        "partial": (4, SampleCounts(4, 22, 22, 0, 0, 2)),
        "wrap": (4, SampleCounts(4, 22, 22, 0, 2, 0)),
    }[policy]
    assert got.sample_counts == counts
    assert got.num_steps == [num_steps] * num_shards
    order = Counter(got.column("sample_index"))
    if policy == "drop":
        assert sorted(order.values()) == [1] * 18
        return
    assert len(order) == 22
    last = [shard[-1]["position"] for shard in got.steps]
    sizes = [len(position["slot"]) for position in last]
    if policy == "partial":
        assert set(order.values()) == {1}
        assert sizes == {1: [4], 2: [2, 2], 3: [1, 1, 2]}[num_shards]  # what is left is dealt evenly
        assert [[*shard[-1]["index"].shape] for shard in got.steps] == [[size] for size in sizes]
        return
    assert sizes == [6 // num_shards] * num_shards
    slots, indices, is_padding = (
        np.concatenate([position[name] for position in last]) for name in ("slot", "sample_index", "is_padding")
    )
    assert slots.tolist() == [*range(6)]
    assert slots[is_padding].tolist() == ([4, 5] if policy == "pad" else [])
    first = [int(index) for shard in got.steps for index in shard[0]["position"]["sample_index"]]
    # Padded with the last sample, or with the first ones again.
    assert indices[4:].tolist() == ([indices[3]] * 2 if policy == "pad" else first[:2])


def test_partial_batches_are_smaller_in_every_field() -> None:
    source = by_sampler(StreamingSequenceSampler(LENGTHS, seed=1), NumberProvider(22))
    with make_loader(source, 3, last_batch="partial", num_workers=2) as loader:
        for batch in loader:
            size = len(batch["index"])
            assert batch["pair"].shape == (size, 2)
            assert len(batch["name"]) == size
            assert batch["cameras"][1]["gain"].shape == (size,)
        assert size < 3


@each_value(policy=POLICIES, method=FORKED)
def test_with_workers_the_same_is_delivered(policy: Any, method: str) -> None:
    here = epoch_of(planned("streams"), 2, 4, policy, epoch=2)
    there = epoch_of(planned("streams"), 2, 4, policy, epoch=2, num_workers=2, start_method=method)
    for name in ("sample_index", "slot", "is_padding", "is_first"):
        assert here.column(name) == there.column(name)


# --- the published shuffle -------------------------------------------------------------------------------


def published(num_samples: int, size: int) -> Any:
    def make(batch_size: int, *, shard: tuple[int, int], last_batch: Any, **arguments: Any) -> Any:
        source = ShuffledShardedInputCallable(
            IndexProvider(num_samples), size, *shard, shuffle=True, last_batch=last_batch, context_name="position"
        )
        return make_loader(source, **arguments)

    return make


@spread("policy", POLICIES, 4)
@pytest.mark.parametrize(("num_samples", "num_shards", "size"), [(22, 1, 4), (22, 2, 4), (22, 3, 4), (25, 3, 4)])
def test_published_shuffle(num_samples: int, num_shards: int, size: int, policy: Any) -> None:
    got = epoch_of(published(num_samples, size), num_shards, num_shards * size, policy, epoch=1)
    order = np.random.default_rng(21 + 1).permutation(num_samples).tolist()
    bounds = [shard * num_samples // num_shards for shard in range(num_shards + 1)]
    if policy == "drop":
        bounds = [shard * (num_samples // num_shards) for shard in range(num_shards + 1)]
    shares = [order[start:stop] for start, stop in itertools.pairwise(bounds)]
    num_steps = max(len(share) for share in shares)
    num_steps = num_steps // size if policy == "drop" else -(-num_steps // size)
    sample_counts = got.sample_counts
    assert sample_counts.num_batches == num_steps
    for share, shard in zip(shares, got.steps, strict=True):
        delivered = [index for batch in shard for index in batch["index"].tolist()]
        padding = [flag for batch in shard for flag in batch["position"]["is_padding"].tolist()]
        num_slots = num_steps * size
        missing = num_slots - len(share)
        assert (
            delivered
            == {
                "drop": share[:num_slots],
                "partial": share,
                "pad": share + share[-1:] * missing,
                "wrap": (share * 2)[:num_slots],
            }[policy]
        )
        assert padding == [policy == "pad" and slot >= len(share) for slot in range(len(delivered))]
        if policy != "partial":
            assert len(shard) == num_steps
    num_surplus = num_shards * num_steps * size - num_samples
    counts = {
        "drop": (num_samples + num_surplus, -num_surplus, 0, 0),
        "wrap": (num_samples, 0, 0, num_surplus),
    }.get(policy, (num_samples, 0, num_surplus, 0))
    assert counts == (
        sample_counts.num_delivered,
        sample_counts.num_dropped,
        sample_counts.num_padded,
        sample_counts.num_repeated,
    )


# --- stateful samplers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("num_workers", [0, 2])
@spread(
    ("policy", "end", "padding"),
    [
        ("drop", [], []),
        ("pad", [[8, 9, 9, 9], [9, 0, 0, 0]], [False, False, True, True]),
        ("partial", [[8, 9], [9, 0]], [False, False]),
        ("wrap", [[8, 9, 0, 1], [9, 0, 1, 2]], [False] * 4),
    ],
    3,
)
def test_stateful_sampler(policy: Any, end: list[list[int]], padding: list[bool], num_workers: int) -> None:
    full = [[[0, 1, 2, 3], [4, 5, 6, 7]], [[1, 2, 3, 4], [5, 6, 7, 8]]]
    source = by_sampler(ShortEndSampler(10, 4))
    with make_loader(source, last_batch=policy, num_workers=num_workers) as loader:
        for epoch in range(2):
            assert len(loader) == (3 if end else 2)
            batches = [*loader]
            expected = full[epoch] + ([end[epoch]] if end else [])
            assert [batch["index"].tolist() for batch in batches] == expected
            flags = [flag for batch in batches for flag in batch["position"]["is_padding"].tolist()]
            assert flags == [False] * 8 + padding
    ends = {"pad": [[8, 9], [9, 9]], "partial": [[8], [9]], "wrap": [[8, 9], [0, 1]]}.get(policy, [])
    for shard, expected in enumerate(ends):
        with make_loader(source, last_batch=policy, shard=(shard, 2)) as loader:
            assert [*loader][-1]["index"].tolist() == expected


def test_a_stateful_sampler_without_a_policy_may_not_have_a_short_end() -> None:
    with make_loader(by_sampler(ShortEndSampler(10, 4))) as loader:
        words = "All batches of a sampler must have the same size... last_batch='partial'"
        assert_refused(lambda: indices(loader), words, SourceError)


# --- inputs of one's own ---------------------------------------------------------------------------------


def epoch_batches(loader: Any, epoch: int) -> list[list[int]]:
    batches = [batch["index"].tolist() for batch in loader]
    assert all(number // 1000 == epoch for batch in batches for number in batch)
    return [[number % 1000 for number in batch] for batch in batches]


FULL = [[0, 1, 2, 3], [4, 5, 6, 7]]
SOURCES: dict[str, tuple[Any, list[list[int]]]] = {
    "callable": (NumberCallable, []),
    "counted callable": (CountedCallable, []),
    "partial callable": (PartialCallable, [[8, 9]]),
    "iterable": (NumberIterable, [[8, 9]]),
}


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("kind", SOURCES)
def test_own_inputs_decide_what_is_delivered(kind: str, num_workers: int) -> None:
    make, end = SOURCES[kind]
    with make_loader(make(), None if kind == "counted callable" else 4, num_workers=num_workers) as loader:
        for epoch in range(3):
            assert epoch_batches(loader, epoch) == FULL + end
