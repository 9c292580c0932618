"""Samplers of all kinds, with what they must deliver, and how to look at their batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
from hypothesis import assume
from hypothesis import strategies as st
from support.samplers import EpochSampler

from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.inputs import SequenceSampler
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
from accvlab.dali_pipeline_framework.sampling.samplers import ShardedPermutationSampler

POLICIES = ("drop", "pad", "partial", "wrap")
Delivery = tuple[int, int, int]  # sample index, sequence, frame


class BackwardSampler(RandomAccessSampler):
    """What a user would write: the samples from the last to the first, in full batches."""

    def __init__(self, num_samples: int, total_batch_size: int | None = None) -> None:
        super().__init__(total_batch_size)
        self.count = num_samples

    def num_batches(self, epoch: int) -> int:
        return self.count // self.total_batch_size

    def plan_batch(self, epoch: int, batch: int) -> PlannedBatch:
        return PlannedBatch(self.count - 1 - batch * self.total_batch_size - np.arange(self.total_batch_size))


@attrs.frozen
class Case:
    """A sampler, and what is to be expected of it.

    Attributes:
        sampler: The sampler, with a batch size.
        data_set_size: Number of samples of a data set that fits.
        contents: For an epoch, what must be delivered in it; None where it is not told.
        lengths: For samplers that play sequences, each once per epoch, their lengths.
    """

    sampler: RandomAccessSampler
    data_set_size: int
    contents: Callable[[int], Counter[Delivery]] | None = None
    lengths: list[int] | None = None


# --- what is to be expected ------------------------------------------------------------------------------


def _counted(*fields: npt.NDArray[np.int64]) -> Counter[Delivery]:
    return Counter(zip(*map(np.ndarray.tolist, fields), strict=True))


def each_once(num_samples: int) -> Callable[[int], Counter[Delivery]]:
    return lambda epoch: Counter((index, -1, -1) for index in range(num_samples))


def each_frame_once(lengths: list[int]) -> Callable[[int], Counter[Delivery]]:
    frames = [(sequence, frame) for sequence, length in enumerate(lengths) for frame in range(length)]
    return lambda epoch: Counter((index, *each) for index, each in enumerate(frames))


def as_ordered(sampler: PlannedSampler) -> Callable[[int], Counter[Delivery]]:
    """The samples of the units of an order, for orders that are drawn or mixed."""

    def contents(epoch: int) -> Counter[Delivery]:
        units, _ = sampler.order.of_epoch(epoch)(np.arange(sampler.order.num_positions))
        if not sampler.is_streamed:
            return Counter((unit, -1, -1) for unit in units.tolist())
        starts, sequences, _, lengths, _ = sampler.sequences().select(units)
        frames = np.concatenate([np.arange(length) for length in lengths])
        return _counted(np.repeat(starts, lengths) + frames, np.repeat(sequences, lengths), frames)

    return contents


# --- samplers of all kinds -------------------------------------------------------------------------------

SEEDS = st.integers(0, 2**40)
BATCH_SIZES = st.integers(1, 6)
LENGTHS = st.lists(st.integers(1, 6), min_size=1, max_size=8)


@st.composite
def _shuffled(draw: Any, batch_size: int, last_batch: str, shuffle: bool) -> Case:
    size = draw(st.integers(1, 25))
    sampler = ShuffledSampler(size, batch_size, seed=draw(SEEDS), shuffle=shuffle, last_batch=last_batch)
    return Case(sampler, size, each_once(size))


@st.composite
def _weights(draw: Any, count: int) -> list[float]:
    weights = draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 7.0]), min_size=count, max_size=count))
    weights[draw(st.integers(0, count - 1))] = 2.0
    return weights


@st.composite
def _weighted(draw: Any, batch_size: int, last_batch: str) -> Case:
    size = draw(st.integers(1, 12))
    sampler = WeightedSampler(
        draw(_weights(size)),
        batch_size,
        num_per_epoch=draw(st.none() | st.integers(1, 25)),
        seed=draw(SEEDS),
        last_batch=last_batch,
    )
    return Case(sampler, size, as_ordered(sampler))


@st.composite
def _streamed(draw: Any, batch_size: int, last_batch: str, weighted: bool = False, **settings: Any) -> Case:
    lengths = draw(LENGTHS)
    if weighted:
        settings["weights"] = draw(_weights(len(lengths)))
        settings["num_per_epoch"] = draw(st.none() | st.integers(1, 10))
    sampler = StreamingSequenceSampler(lengths, batch_size, seed=draw(SEEDS), last_batch=last_batch, **settings)
    contents = as_ordered(sampler) if weighted else each_frame_once(lengths)
    return Case(sampler, sum(lengths), contents, None if weighted else lengths)


@st.composite
def _component(draw: Any, kind: str) -> PlannedSampler:
    seed, shuffle = draw(SEEDS), draw(st.booleans())
    if kind == "samples":
        if draw(st.booleans()):
            return WeightedSampler(draw(_weights(draw(st.integers(1, 8)))), seed=seed)
        return ShuffledSampler(draw(st.integers(1, 12)), seed=seed, shuffle=shuffle)
    return StreamingSequenceSampler(draw(LENGTHS), seed=seed, shuffle=shuffle, cut_sequences=draw(st.booleans()))


RATES = {1: [[1.0]], 2: [[0.5, 0.5], [0.9, 0.1], [1 / 3, 2 / 3]], 3: [[0.5, 0.25, 0.25], [0.2, 0.7, 0.1]]}


@st.composite
def _mixed(draw: Any, batch_size: int | None, last_batch: str, kind: str, nested: bool = False) -> Case:
    parts: list[PlannedSampler] = draw(st.lists(_component(kind), min_size=1, max_size=3))
    if nested:
        parts[0] = draw(_mixed(None, "drop", kind)).sampler
    sizes = [part.num_samples for part in parts]
    has_offsets = draw(st.booleans())
    sampler = MixedSampler(
        parts,
        draw(st.sampled_from(RATES[len(parts)])),
        batch_size,
        offsets=np.cumsum([0, *sizes[:-1]]).tolist() if has_offsets else None,
        num_per_epoch=draw(st.none() | st.integers(1, 20)),
        last_batch=last_batch,
    )
    return Case(sampler, sum(sizes) if has_offsets else max(sizes), as_ordered(sampler))


@st.composite
def _sharded(draw: Any, batch_size: int, last_batch: str) -> Case:
    size = draw(st.integers(1, 25))
    shuffle, seed = draw(st.booleans()), draw(st.integers(0, 1000))
    sampler = ShardedPermutationSampler(size, batch_size, seed, shuffle, last_batch)
    return Case(sampler, size, each_once(size))


@st.composite
def _sequences(draw: Any, batch_size: int) -> Case:
    lengths = draw(st.lists(st.integers(1, 6), min_size=batch_size, max_size=batch_size + 6))
    return Case(SequenceSampler(batch_size, lengths, draw(SEEDS), draw(st.booleans())), sum(lengths))


@st.composite
def _full_batches(draw: Any, batch_size: int, is_played: bool) -> Case:
    size = draw(st.integers(batch_size, 20))
    if is_played:
        return Case(PlayedSampler(EpochSampler(size, batch_size), size, 1, None), size)
    return Case(BackwardSampler(size, batch_size), size)


# Samplers with true epochs and a policy for the last batch: from a batch size and a policy.
WITH_EPOCHS: dict[str, Callable[[int, str], st.SearchStrategy[Case]]] = {
    "shuffled": lambda size, policy: _shuffled(size, policy, shuffle=True),
    "in order": lambda size, policy: _shuffled(size, policy, shuffle=False),
    "sequential": lambda size, policy: st.integers(1, 25).map(
        lambda count: Case(SequentialSampler(count, size, last_batch=policy), count, each_once(count))
    ),
    "weighted": _weighted,
    "streams": _streamed,
    "streams in order": lambda size, policy: _streamed(size, policy, shuffle=False),
    "streams cut": lambda size, policy: _streamed(size, policy, cut_sequences=True),
    "streams weighted": lambda size, policy: _streamed(size, policy, weighted=True),
    "streams weighted, cut": lambda size, policy: _streamed(size, policy, weighted=True, cut_sequences=True),
    "mixed samples": lambda size, policy: _mixed(size, policy, "samples"),
    "mixed samples, nested": lambda size, policy: _mixed(size, policy, "samples", nested=True),
    "mixed streams": lambda size, policy: _mixed(size, policy, "streams"),
    "mixed streams, nested": lambda size, policy: _mixed(size, policy, "streams", nested=True),
    "sharded permutation": _sharded,
}
OTHERS: dict[str, Callable[[int], st.SearchStrategy[Case]]] = {
    "published sequences": _sequences,
    "replayed": lambda size: _full_batches(size, is_played=True),
    "user-written": lambda size: _full_batches(size, is_played=False),
}
STREAMS = [kind for kind in WITH_EPOCHS if "streams" in kind]


def draw_case(
    data: Any, kind: str, policies: tuple[str, ...] = POLICIES, batch_sizes: st.SearchStrategy[int] = BATCH_SIZES
) -> Case:
    """Draw a sampler of a kind; those that have no batch at all are not considered."""
    size = data.draw(batch_sizes, label="total_batch_size")
    if kind in OTHERS:
        return data.draw(OTHERS[kind](size))
    policy = data.draw(st.sampled_from(policies), label="last_batch")
    case = data.draw(WITH_EPOCHS[kind](size, policy))
    for epoch in range(3):
        assume(has_batches(case.sampler, epoch))
    return case


def has_batches(sampler: RandomAccessSampler, epoch: int) -> bool:
    try:
        return sampler.num_batches(epoch) != 0
    except SettingError as error:
        assert sampler.last_batch == "drop"
        assert "at least one batch" in str(error)  # noqa: PT017
        return False


# --- how to look at batches ------------------------------------------------------------------------------


def positions_of(sampler: RandomAccessSampler, num_epochs: int = 2) -> list[tuple[int, int]]:
    """The batches of the first epochs, of endless samplers some."""
    if sampler.num_batches(0) is None:
        return [(0, batch) for batch in range(40)]
    return [(epoch, batch) for epoch in range(num_epochs) for batch in range(sampler.num_batches(epoch))]


def batches_of(sampler: RandomAccessSampler, epoch: int, start: int = 0) -> Iterator[PlannedBatch]:
    return (sampler.plan_batch(epoch, batch) for batch in range(start, sampler.num_batches(epoch)))


def values(batch: PlannedBatch) -> tuple[list[Any], ...]:
    """The fields of a batch, to compare."""
    return tuple(getattr(batch, field.name).tolist() for field in attrs.fields(PlannedBatch))


def delivered(batches: Iterator[PlannedBatch] | list[PlannedBatch]) -> Counter[Delivery]:
    """What is delivered, without what is repeated or only fills a batch."""
    found: Counter[Delivery] = Counter()
    for batch in batches:
        counts = ~batch.is_over & (batch.visit >= 0)
        fields = (batch.indices, batch.sequence, batch.frame)
        found.update(_counted(*(field[counts] for field in fields)))
    return found
