"""Random draws of inputs that do not tell where their samples stand: shards differ, and a run can be repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.draws import Drawer
from support.inputs import NumberCallable, NumberIterable
from support.loaders import make_loader
from support.pipelines import make_iterator, shuffled
from support.providers import IndexProvider
from support.reader_data import numbered_files
from support.steps import Noise

from accvlab.dali_pipeline_framework.draws import UniformDraw
from accvlab.dali_pipeline_framework.sources import FileReader

Shard = tuple[int, int]


class ShardedCallable(NumberCallable):
    def __init__(self, shard: Shard | None, num_samples: int = 8) -> None:
        super().__init__(num_samples)
        self.shard = shard  # type: ignore[assignment]


class ShardedIterable(NumberIterable):
    def __init__(self, shard: Shard | None) -> None:
        super().__init__(8, 2)
        self.shard = shard  # type: ignore[assignment]


def steps() -> list[Any]:
    return [Drawer(UniformDraw("a"))]


def draws_of(data_input: Any, batch_size: int | None = 2, chain: Any = None, **arguments: Any) -> list[float]:
    with make_loader(data_input, batch_size, steps=chain or steps(), **arguments) as loader:
        return np.concatenate([batch["a"] for batch in loader]).tolist()


class TestCallablesWithoutPlaces:
    def test_shards_draw_by_the_position_among_all_shards(self) -> None:
        alone = draws_of(ShardedCallable(None, 16), 4)
        first, second = (draws_of(ShardedCallable((shard, 2))) for shard in range(2))
        assert len({*first, *second}) == 16
        rows = np.reshape(alone, (4, 2, 2))  # (batch, shard, slot)
        assert first == rows[:, 0].ravel().tolist()
        assert second == rows[:, 1].ravel().tolist()

    def test_one_shard_draws_as_before(self) -> None:
        assert draws_of(ShardedCallable(None)) == draws_of(ShardedCallable((0, 1)))
        assert np.round(draws_of(ShardedCallable((0, 1)))[:3], 4).tolist() == PINNED

    def test_in_a_pipeline_of_ones_own(self) -> None:
        with make_iterator(ShardedCallable((1, 2)), steps(), batch_size=2, py_num_workers=1) as iterator:
            found = np.concatenate([batch["a"] for batch in iterator]).tolist()
        assert found == draws_of(ShardedCallable((1, 2)))

    def test_an_attribute_of_this_name_may_mean_something_else(self) -> None:
        source = ShardedCallable(None)
        source.shard = "part one"  # type: ignore[assignment]
        with make_iterator(source, steps(), batch_size=2, py_num_workers=0) as iterator:
            found = np.concatenate([batch["a"] for batch in iterator]).tolist()
        assert found == draws_of(ShardedCallable(None))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return numbered_files(tmp_path_factory.mktemp("files"), {"a": 8})


@pytest.mark.parametrize("kind", ["reader", "iterable", "undeclared"])
def test_generators_of_dali_differ_between_shards(kind: str, folder: Path) -> None:
    def run(shard: Shard | None, seed: int = 3) -> list[float]:
        if kind == "reader":
            shard_id, num_shards = shard or (0, 1)
            reader = FileReader(file_root=str(folder), shard_id=shard_id, num_shards=num_shards)
            with make_iterator(reader, [Noise("a")], batch_size=2, seed=seed) as iterator:
                return np.concatenate([batch["a"] for batch in iterator]).tolist()
        if kind == "iterable":
            return draws_of(ShardedIterable(shard), seed=seed)
        source = shuffled(IndexProvider(16), 2, shard_id=(shard or (0, 1))[0], num_shards=(shard or (0, 1))[1])
        return draws_of(source, None, chain=[Noise("a")], seed=seed)

    first, second = run((0, 2)), run((1, 2))
    assert not {*first} & {*second}
    assert run((1, 2)) == second  # again
    assert not {*run((1, 2), seed=4)} & {*second}
    assert run((0, 1))[: len(first)] == run(None)[: len(first)] == first


def test_shards_of_a_reader_shuffle_alike(folder: Path) -> None:
    found = []
    for shard in range(2):
        order = {"random_shuffle": True, "initial_fill": 8, "stick_to_shard": True, "pad_last_batch": True}
        reader = FileReader(file_root=str(folder), shard_id=shard, num_shards=2, **order)
        with make_iterator(reader, batch_size=2, seed=3) as iterator:
            found += [int(number) for batch in iterator for number in batch["data"][:, 1]]
    assert sorted(found) == [*range(8)]


PINNED = [0.6016, 0.5389, 0.1543]
