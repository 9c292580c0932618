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

STEPS = [Drawer(UniformDraw("a"))]
PINNED = [0.6016, 0.5389, 0.1543]


def of_shard(made: Any, shard: Any) -> Any:
    """An input that says which shard it is, if it is one."""
    made.shard = shard
    return made


def joined(batches: Any) -> list[float]:
    return np.concatenate([batch["a"] for batch in batches]).tolist()


def draws_of(source: Any, batch_size: int | None = 2, steps: Any = STEPS, **arguments: Any) -> list[float]:
    with make_loader(source, batch_size, steps=steps, **arguments) as loader:
        return joined(loader)


def test_shards_draw_by_the_position_among_all_shards() -> None:
    rows = np.reshape(draws_of(NumberCallable(16), 4), (4, 2, 2))  # (batch, shard, slot)
    assert len({*rows.flat}) == 16
    for shard in range(2):
        source = of_shard(NumberCallable(8), (shard, 2))
        assert draws_of(source) == rows[:, shard].ravel().tolist()
        with make_iterator(source, STEPS, batch_size=2) as iterator:  # in a pipeline of one's own
            assert joined(iterator) == rows[:, shard].ravel().tolist()


@pytest.mark.parametrize("shard", [None, (0, 1), "part one"])  # the last means something else
def test_one_shard_draws_as_without_any(shard: Any) -> None:
    with make_iterator(of_shard(NumberCallable(8), shard), STEPS, batch_size=2, py_num_workers=0) as iterator:
        assert np.round(joined(iterator)[:3], 4).tolist() == PINNED


@pytest.mark.parametrize("kind", ["reader", "iterable", "undeclared"])
def test_generators_of_dali_differ_between_shards(kind: str, tmp_path: Path) -> None:
    numbered_files(tmp_path, {"a": 8})

    def run(shard: Any, seed: int = 3) -> list[float]:
        shard_id, num_shards = shard or (0, 1)
        if kind == "reader":
            reader = FileReader(file_root=str(tmp_path), shard_id=shard_id, num_shards=num_shards)
            with make_iterator(reader, [Noise("a")], batch_size=2, seed=seed) as iterator:
                return joined(iterator)
        if kind == "iterable":
            return draws_of(of_shard(NumberIterable(8, 2), shard), seed=seed)
        source = shuffled(IndexProvider(16), 2, shard_id=shard_id, num_shards=num_shards)
        return draws_of(source, None, [Noise("a")], seed=seed)

    first, second = run((0, 2)), run((1, 2))
    assert not {*first} & {*second}
    assert run((1, 2)) == second  # again
    assert not {*run((1, 2), seed=4)} & {*second}
    assert run((0, 1))[: len(first)] == run(None)[: len(first)] == first


def test_shards_of_a_reader_shuffle_alike(tmp_path: Path) -> None:
    numbered_files(tmp_path, {"a": 8})
    found = []
    for shard in range(2):
        order = {"random_shuffle": True, "initial_fill": 8, "stick_to_shard": True, "pad_last_batch": True}
        reader = FileReader(file_root=str(tmp_path), shard_id=shard, num_shards=2, **order)
        with make_iterator(reader, batch_size=2, seed=3) as iterator:
            found += [int(number) for batch in iterator for number in batch["data"][:, 1]]
    assert sorted(found) == [*range(8)]
