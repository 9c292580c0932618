"""Windows in every order of samples: the same for all batch sizes and ranks, and wherever a run continues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pytest
from nvidia.dali import types
from support.laws import spread
from support.loaders import LENGTHS, by_sampler, json_copy, make_loader

from accvlab.dali_pipeline_framework import (
    DataProvider,
    MixedSampler,
    SampleDataGroup,
    SequenceSampler,
    SequentialSampler,
    ShuffledSampler,
    ShuffledShardedInputCallable,
    StreamingSequenceSampler,
    WeightedSampler,
    Windows,
)

WINDOWS = {"number": [1, -2, 0], "place": [-3, 0, 3, 1]}
Batch: TypeAlias = dict[str, np.ndarray]
PUBLISHED = "published shuffle"
NUM_TAKEN = 7  # batches of what has no end


class Frames(DataProvider):
    """Frame ``i`` has the number ``i`` in ``at`` and ``number``, and ``(i, -i)`` in ``place``."""

    def __init__(self) -> None:
        self.sequence_lengths = LENGTHS

    def get_number_of_samples(self) -> int:
        return sum(LENGTHS)

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        blueprint = SampleDataGroup()
        for name, ndim in (("at", 0), ("number", 0), ("place", 1)):
            blueprint.add_data_field(name, types.DALIDataType.INT64, ndim=ndim)
        return blueprint

    def get_data(self, sample_index: int) -> SampleDataGroup:
        sample = self.new_sample()
        sample["at"] = sample["number"] = sample_index
        sample["place"] = [sample_index, -sample_index]
        return sample


def windows_of(edges: Any, unit: Any) -> Windows:
    # Without the sequences of the lengths 1 and 2, there are runs of 2, 4 and 1 moments with edges="drop".
    windows = WINDOWS if edges == "repeat" else {"number": WINDOWS["number"]}
    if unit == "frames":
        return Windows(Frames(), windows, unit=unit, edges=edges)
    in_seconds = {name: [offset / 10 for offset in offsets] for name, offsets in windows.items()}
    return Windows(Frames(), in_seconds, unit=unit, edges=edges, times_s=np.arange(sum(LENGTHS)) / 10)


def mixed(count: int, total: int) -> MixedSampler:
    parts = [ShuffledSampler(count, seed=1), SequentialSampler(count)]
    return MixedSampler(parts, [0.7, 0.3], total, num_per_epoch=13)


SAMPLERS: dict[str, Callable[[Any, int], Any]] = {
    "sequential": lambda lengths, total: SequentialSampler(sum(lengths), total, last_batch="pad"),
    "shuffled": lambda lengths, total: ShuffledSampler(sum(lengths), total, seed=3),
    "shuffled, padded": lambda lengths, total: ShuffledSampler(sum(lengths), total, seed=3, last_batch="pad"),
    "weighted": lambda lengths, total: WeightedSampler(np.arange(sum(lengths)) + 1.0, total, seed=3),
    "sequences": lambda lengths, total: SequenceSampler(total, lengths, 10),
    "streams": lambda lengths, total: StreamingSequenceSampler(lengths, total, seed=5),
    "mixed": lambda lengths, total: mixed(sum(lengths), total),
}


def source_of(kind: str, provider: Windows, total: int, shard: tuple[int, int]) -> Any:
    if kind == PUBLISHED:
        size = total // shard[1]
        rank = {"shard_id": shard[0], "num_shards": shard[1]}
        return ShuffledShardedInputCallable(provider, size, shuffle=True, seed=3, last_batch="pad", **rank)
    return by_sampler(SAMPLERS[kind]([*map(int, provider.sequence_lengths)], total), provider, None)


def loader_of(kind: str, provider: Windows, total: int, shard: tuple[int, int] = (0, 1)) -> Any:
    of_provider = {} if kind == PUBLISHED else {"shard": shard}
    return make_loader(source_of(kind, provider, total, shard), **of_provider)


def taken(loader: Any, most: int = NUM_TAKEN, after_each: Callable[[], None] = lambda: None) -> list[Batch]:
    """Batches of an epoch, or the first ones where it is long or endless."""
    found: list[Batch] = []
    for batch in loader:
        found.append({name: np.array(value) for name, value in batch.items()})
        after_each()
        if len(found) == most:
            break
    return found


def assert_equal(found: Sequence[Batch], expected: Sequence[Batch]) -> None:
    assert len(found) == len(expected)
    for batch, other in zip(found, expected, strict=True):
        assert batch.keys() == other.keys()
        for name, value in other.items():
            np.testing.assert_array_equal(batch[name], value)


def assert_windows_are_right(batch: Batch, has_masks: bool) -> None:
    """Compare with the rule in frames: those of the sequence of ``at``, its ends repeated and marked."""
    ends = np.cumsum(LENGTHS)
    sequence = np.searchsorted(ends, batch["at"], side="right")
    last, first = ends[sequence][:, None] - 1, (ends - LENGTHS)[sequence][:, None]
    for name in WINDOWS if has_masks else ["number"]:
        wanted = batch["at"][:, None] + WINDOWS[name]
        frames = np.clip(wanted, first, last)
        is_outside = (wanted < first) | (wanted > last)
        if has_masks:
            assert np.array_equal(batch[f"{name}_is_pad"], is_outside)
        else:
            assert not is_outside.any()
        found = batch[name] if name == "number" else batch[name][..., 0]
        assert np.array_equal(found, frames)
    if has_masks:
        assert np.array_equal(batch["place"][..., 1], -batch["place"][..., 0])


@pytest.mark.parametrize(
    ("edges", "unit", "total", "num_ranks"),
    [
        ("repeat", "s", 4, 2),
        ("drop", "frames", 2, 2),
        pytest.param("repeat", "frames", 3, 3, marks=pytest.mark.wide),
    ],
)
@spread("kind", [*SAMPLERS, PUBLISHED], 3)
def test_ranks_and_every_place_to_continue_at_give_the_same_windows(
    kind: str, edges: Any, unit: Any, total: int, num_ranks: int
) -> None:
    provider, size = windows_of(edges, unit), total // num_ranks
    with loader_of(kind, provider, total) as loader:
        whole = taken(loader)
    assert len(whole) >= 3
    for batch in whole:
        assert_windows_are_right(batch, has_masks=edges == "repeat")
    of_ranks, states = [], []
    for rank in range(num_ranks):
        with loader_of(kind, provider, total, (rank, num_ranks)) as loader:
            of_ranks.append(taken(loader, after_each=lambda: states.append(json_copy(loader.state_dict()))))
        if kind != PUBLISHED:  # there, each rank shuffles samples of its own
            parts = [{name: value[rank * size :][:size] for name, value in batch.items()} for batch in whole]
            assert_equal(of_ranks[rank], [part for part in parts if len(part["at"])])
        for batch in of_ranks[rank]:
            assert_windows_are_right(batch, has_masks=edges == "repeat")
    for number, state in enumerate(states[: len(of_ranks[0]) - 1], 1):
        for rank in range(num_ranks):
            with loader_of(kind, provider, total, (rank, num_ranks)) as loader:
                loader.load_state_dict(state)
                assert_equal(taken(loader, NUM_TAKEN - number), of_ranks[rank][number:])
        if kind != PUBLISHED:  # and on one rank
            with loader_of(kind, provider, total) as loader:
                loader.load_state_dict(state)
                assert_equal(taken(loader, NUM_TAKEN - number), whole[number:])


@pytest.mark.parametrize("kind", ["sequential", "shuffled, padded", "streams"])
def test_an_epoch_has_each_window_once(kind: str) -> None:
    provider = Windows(Frames(), {"number": range(2)}, unit="frames", step=2)
    ends = np.cumsum(LENGTHS)
    starts = [
        start for end, length in zip(ends, LENGTHS, strict=True) for start in range(end - length, end - 1, 2)
    ]
    sampler = SAMPLERS[kind]([*map(int, provider.sequence_lengths)], 4)
    with make_loader(by_sampler(sampler, provider)) as loader:
        for _ in range(2):
            batches = [*loader]
            is_new = ~np.concatenate([batch["position"]["is_padding"] for batch in batches])
            found = np.concatenate([batch["number"] for batch in batches])[is_new]
            assert sorted(found.tolist()) == [[start, start + 1] for start in starts]
