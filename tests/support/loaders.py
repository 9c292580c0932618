"""Short ways to make and read loaders."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import attrs

from accvlab.dali_pipeline_framework.errors import FrameworkError
from accvlab.dali_pipeline_framework.inputs import SequenceSampler, ShuffledShardedInputCallable
from accvlab.dali_pipeline_framework.loader import DataLoader
from accvlab.dali_pipeline_framework.loader.state import checksum_of
from accvlab.dali_pipeline_framework.sampling import (
    MixedSampler,
    ShuffledSampler,
    StreamingSequenceSampler,
    WeightedSampler,
)
from support.inputs import CountedCallable, NumberCallable, PartialCallable
from support.providers import IndexProvider
from support.samplers import EndlessSampler, EpochSampler

LENGTHS = [5, 2, 7, 1, 4, 3]  # of sequences: 22 samples


@attrs.frozen
class Ordered:
    """What a loader is given of a data provider: the provider, its order, and the name of the position."""

    provider: Any
    sampler: Any
    context_name: str | None = None


def edited(state: Mapping[str, Any], changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A state with other entries, and the checksum of those."""
    state = {**state, **(changes or {})}
    with contextlib.suppress(TypeError, ValueError, RecursionError):  # no value of JSON, which is found first
        state["checksum"] = checksum_of(state)
    return state


def make_loader(
    source: Any, batch_size: int | None = None, *, steps: Iterable[Any] = (), **arguments: Any
) -> DataLoader:
    """Make a loader with NumPy output that loads in this process and runs steps in the graph by default."""
    arguments = {"num_workers": 0, "num_threads": 1, "start_method": "fork", "output_type": "numpy", **arguments}
    order = {}
    if isinstance(source, Ordered):
        order = {"sampler": source.sampler, "context_name": source.context_name}
        source = source.provider
    return DataLoader(source, batch_size, **{"steps": [*steps], "run": "graph", **order, **arguments})


def pipeline_of(loader: DataLoader) -> Any:
    """The pipeline of a loader, which has no public name."""
    return loader._run.pipeline


def by_sampler(sampler: Any, provider: Any = None, context_name: str | None = "position") -> Ordered:
    """The samples of `LENGTHS` in the order of a sampler, each with its position."""
    return Ordered(provider or IndexProvider(22), sampler, context_name)


def loop(loader: Iterable[Any], max_batches: int | None = None) -> list[Any]:
    """The batches of one loop, as values to compare bit for bit."""
    batches = []
    if max_batches == 0:
        return batches
    for batch in loader:
        batches.append(frozen(batch))
        if len(batches) == max_batches:
            break
    return batches


def answers(loader: Iterable[Any]) -> Iterator[Any]:
    """The batches of a loop, and the errors that are raised in place of some."""
    batches = iter(loader)
    while True:
        try:
            answer: Any = next(batches)
        except StopIteration:
            return
        except FrameworkError as error:
            answer = error
        yield answer


def frozen(value: Any) -> Any:
    """A batch as a value: names, and for each array its type, shape and bytes."""
    if isinstance(value, Mapping):
        return tuple((name, frozen(each)) for name, each in value.items())
    if isinstance(value, list):
        return tuple(map(frozen, value))
    return value if isinstance(value, str) else (value.dtype.str, value.shape, value.tobytes())


def json_copy(state: Mapping[str, Any]) -> dict[str, Any]:
    """The state as it is read from a file."""
    text = json.dumps(state)
    assert len(text.encode()) <= 4096
    return json.loads(text)


@attrs.frozen
class Order:
    """An order of samples that a loader can deliver.

    Attributes:
        make: Makes the input.
        arguments: Arguments of the loader.
        num_loops: How many loops to look at.
        num_max: Number of batches to take of a loop that has no end.
        has_known_length: Whether the loader knows when the epoch has ended.
        takes_size: Whether ``make`` takes the batch size of a shard, the shard and the policy for the last batch.
        has_size: Whether what it makes has a batch size of its own.
    """

    make: Callable[..., Any]
    arguments: Mapping[str, Any] = {}
    num_loops: int = 2
    num_max: int | None = None
    has_known_length: bool = True
    takes_size: bool = False
    has_size: bool = False

    def loader(self, shard: tuple[int, int] | None = None, total: int = 4, **arguments: Any) -> DataLoader:
        """Make a loader for a shard, and for batches of ``total`` samples, all shards together."""
        shard_id, num_shards = shard or (0, 1)
        size = total // num_shards
        if self.takes_size:
            policy = {name: arguments.pop(name) for name in ["last_batch"] if name in arguments}
            source = self.make(size, shard_id=shard_id, num_shards=num_shards, **policy)
            return make_loader(source, **{**self.arguments, **arguments})
        given = None if self.has_size else size
        return make_loader(self.make(), given, shard=shard, **{**self.arguments, **arguments})


def _published_shuffle(size: int, **arguments: Any) -> ShuffledShardedInputCallable:
    return ShuffledShardedInputCallable(
        IndexProvider(22), size, shuffle=True, context_name="position", **arguments
    )


def _mixed_streams() -> MixedSampler:
    parts = [
        StreamingSequenceSampler([5, 2, 7], seed=1),
        StreamingSequenceSampler([1, 4, 3], seed=2, cut_sequences=True),
    ]
    return MixedSampler(parts, [0.75, 0.25], offsets=[0, 14], num_per_epoch=7)


def _function_of_the_epoch(epoch: int) -> list[int]:
    return [(7 * place + epoch) % 22 for place in range(22 - 9 * (epoch % 2))]


# Orders of samplers that are planned per epoch. Tests stop after several batches of an epoch: of about 22 samples.
PLANNED: dict[str, Callable[[], Any]] = {
    "shuffled": lambda: by_sampler(ShuffledSampler(22, seed=3)),
    "shuffled, padded": lambda: by_sampler(ShuffledSampler(22, seed=3, last_batch="pad")),
    "weighted": lambda: by_sampler(WeightedSampler([1, 0, 5] * 7 + [2], num_per_epoch=18, seed=4)),
    "streams": lambda: by_sampler(StreamingSequenceSampler(LENGTHS, seed=5)),
    "streams, cut": lambda: by_sampler(StreamingSequenceSampler(LENGTHS, seed=6, cut_sequences=True)),
    "mixture": lambda: by_sampler(
        MixedSampler([ShuffledSampler(22, seed=1), WeightedSampler([1.0] * 9, seed=2)], [0.7, 0.3])
    ),
    "mixture of streams": lambda: by_sampler(_mixed_streams()),
}

ORDERS: dict[str, Order] = {
    **{name: Order(make) for name, make in PLANNED.items()},
    "published shuffle": Order(_published_shuffle, takes_size=True),
    "published shuffle, padded": Order(functools.partial(_published_shuffle, last_batch="pad"), takes_size=True),
    "published sequences": Order(
        lambda: by_sampler(SequenceSampler(4, LENGTHS, 10)), num_loops=1, num_max=17, has_size=True
    ),
    "published sequences, in steps": Order(
        lambda: by_sampler(SequenceSampler(4, LENGTHS, 10)), {"steps_per_epoch": 5}, num_loops=3, has_size=True
    ),
    "stateful sampler": Order(lambda: by_sampler(EpochSampler(10, 4)), num_loops=3, has_size=True),
    "stateful endless sampler": Order(
        lambda: by_sampler(EndlessSampler()), {"steps_per_epoch": 3}, num_loops=3, has_size=True
    ),
    "function of the epoch": Order(lambda: by_sampler(_function_of_the_epoch), num_loops=3),
    "user's callable": Order(NumberCallable, num_loops=3, has_known_length=False),
    "user's callable, counted": Order(CountedCallable, has_size=True),
    "user's callable, partial": Order(PartialCallable, has_known_length=False),
}
