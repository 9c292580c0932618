"""Last batches that are not full, in real pipelines: what is delivered, dropped, padded and repeated."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from support.inputs import CountedCallable, NumberCallable, NumberIterable, PartialCallable
from support.laws import each_value, spread
from support.loaders import LENGTHS, PLANNED, by_sampler, make_loader
from support.pipelines import indices
from support.providers import IndexProvider, NumberProvider
from support.refusals import assert_refused
from support.samplers import ShortEndSampler

from accvlab.dali_pipeline_framework.errors import SourceError
from accvlab.dali_pipeline_framework.inputs import ShuffledShardedInputCallable
from accvlab.dali_pipeline_framework.sampling import SampleCounts, StreamingSequenceSampler

POLICIES = ("drop", "pad", "partial", "wrap")


def joined(batches: Iterable[list[Any]]) -> list[Any]:
    return [*itertools.chain.from_iterable(batches)]


def epoch_of(make: Any, num_shards: int, epoch: int = 0) -> tuple[list[list[dict[str, Any]]], SampleCounts]:
    """The positions of the batches of each shard; what was announced. ``make`` makes the loader of a shard."""
    with ExitStack() as stack:
        loaders = [stack.enter_context(make((shard, num_shards))) for shard in range(num_shards)]
        for loader in loaders:
            loader.set_epoch(epoch)
        counts = loaders[0].sample_counts()
        assert all(loader.sample_counts() == counts for loader in loaders)
        lengths = [len(loader) for loader in loaders]
        shards = [[batch["position"] for batch in loader] for loader in loaders]
        assert [len(batches) for batches in shards] == lengths
        assert max(lengths) == counts.num_batches
        return shards, counts


# --- samplers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
@spread("num_shards", [1, 3, 2], 2)
def test_shuffled_samples_exactly(num_shards: int, policy: Any) -> None:
    def make(shard: tuple[int, int]) -> Any:
        return make_loader(PLANNED["shuffled"](), 6 // num_shards, shard=shard, last_batch=policy)

    shards, announced = epoch_of(make, num_shards)
    order = PLANNED["shuffled"]().sampler.with_settings(total_batch_size=22).get_batch_indices(0, 0).tolist()
    # 22 samples: 3 batches of 6, 4 are left.
    counts, last, padding = {
        "drop": (SampleCounts(3, 22, 18, 4, 0, 0), [], []),
        "pad": (SampleCounts(4, 22, 22, 0, 0, 2), order[18:] + order[-1:] * 2, [False] * 4 + [True] * 2),
        "partial": (SampleCounts(4, 22, 22, 0, 0, 2), order[18:], [False] * 4),
        "wrap": (SampleCounts(4, 22, 22, 0, 2, 0), order[18:] + order[:2], [False] * 6),
    }[policy]
    assert announced == counts
    for name, expected in (("sample_index", order[:18] + last), ("is_padding", [False] * 18 + padding)):
        steps = zip(*([batch[name].tolist() for batch in batches] for batches in shards), strict=True)
        assert joined(map(joined, steps)) == expected
    if policy == "partial":  # what is left is dealt evenly
        sizes = [len(batches[-1]["slot"]) for batches in shards]
        assert sizes == {1: [4], 2: [2, 2], 3: [1, 1, 2]}[num_shards]


def test_partial_batches_are_smaller_in_every_field() -> None:
    source = by_sampler(StreamingSequenceSampler(LENGTHS, seed=1), NumberProvider(22))
    with make_loader(source, 3, last_batch="partial", num_workers=2) as loader:
        for batch in loader:
            size = len(batch["index"])
            assert batch["pair"].shape == (size, 2)
            assert len(batch["name"]) == size
            assert batch["cameras"][1]["gain"].shape == (size,)
        assert size < 3


# --- the published shuffle -------------------------------------------------------------------------------


@each_value(policy=POLICIES, samples_and_shards=[(22, 1), (22, 2), (22, 3), (25, 3)])
def test_published_shuffle(samples_and_shards: tuple[int, int], policy: Any) -> None:
    (num_samples, num_shards), size = samples_and_shards, 4

    def make(shard: tuple[int, int]) -> Any:
        order: dict[str, Any] = {"shuffle": True, "last_batch": policy, "context_name": "position"}
        return make_loader(ShuffledShardedInputCallable(IndexProvider(num_samples), size, *shard, **order))

    shards, announced = epoch_of(make, num_shards, epoch=1)
    order = np.random.default_rng(21 + 1).permutation(num_samples).tolist()
    bounds = [shard * num_samples // num_shards for shard in range(num_shards + 1)]
    if policy == "drop":
        bounds = [shard * (num_samples // num_shards) for shard in range(num_shards + 1)]
    shares = [order[start:stop] for start, stop in itertools.pairwise(bounds)]
    most = max(len(share) for share in shares)
    num_slots = most // size * size if policy == "drop" else -(-most // size) * size
    for batches, share in zip(shards, shares, strict=True):
        delivered, padding = (
            joined(batch[name].tolist() for batch in batches) for name in ("sample_index", "is_padding")
        )
        wanted = {
            "drop": share[:num_slots],
            "partial": share,
            "pad": share + share[-1:] * (num_slots - len(share)),
            "wrap": (share * 2)[:num_slots],
        }
        assert delivered == wanted[policy]
        assert padding == [policy == "pad" and slot >= len(share) for slot in range(len(delivered))]
    surplus = num_shards * num_slots - num_samples
    counts = {"drop": (num_samples + surplus, -surplus, 0, 0), "wrap": (num_samples, 0, surplus, 0)}
    expected = counts.get(policy, (num_samples, 0, 0, surplus))
    assert announced == SampleCounts(num_slots // size, num_samples, *expected)


# --- stateful samplers, and inputs of one's own ----------------------------------------------------------


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
            assert indices(batches) == full[epoch] + ([end[epoch]] if end else [])
            flags = [flag for batch in batches for flag in batch["position"]["is_padding"].tolist()]
            assert flags == [False] * 8 + padding
    ends = {"pad": [[8, 9], [9, 9]], "partial": [[8], [9]], "wrap": [[8, 9], [0, 1]]}.get(policy, [])
    for shard, expected in enumerate(ends):
        with make_loader(source, last_batch=policy, shard=(shard, 2)) as loader:
            assert indices(loader)[-1] == expected


def test_a_stateful_sampler_without_a_policy_may_not_have_a_short_end() -> None:
    with make_loader(by_sampler(ShortEndSampler(10, 4))) as loader:
        words = "All batches of a sampler must have the same size... last_batch='partial'"
        assert_refused(lambda: indices(loader), words, SourceError)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize(
    ("make", "size", "end"),
    [
        (NumberCallable, 4, []),
        (CountedCallable, None, []),
        (PartialCallable, 4, [[8, 9]]),
        (NumberIterable, 4, [[8, 9]]),
    ],
)
def test_own_inputs_decide_what_is_delivered(make: Any, size: Any, end: Any, num_workers: int) -> None:
    with make_loader(make(), size, num_workers=num_workers) as loader:
        for epoch in range(3):
            expected = [[0, 1, 2, 3], [4, 5, 6, 7], *end]
            assert indices(loader) == [[1000 * epoch + number for number in batch] for batch in expected]
