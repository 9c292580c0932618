"""The arithmetic of the epochs of readers, compared with DALI's readers themselves."""

from __future__ import annotations

import tempfile
from pathlib import Path

import nvidia.dali.fn as fn
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nvidia.dali.pipeline import Pipeline
from support.laws import examples
from support.loaders import make_loader
from support.reader_data import number_of, numbered_files

from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.sources import FileReader
from accvlab.dali_pipeline_framework.sources.input_parts import ReaderEpochs


@pytest.fixture(scope="module")
def roots() -> dict[int, Path]:
    """Folders with 1 to 14 files."""
    with tempfile.TemporaryDirectory() as folder:
        yield {size: numbered_files(Path(folder) / str(size), {"a": size}) for size in range(1, 15)}


def delivered(root: Path, batch_size: int, num_epochs: int, **arguments: object) -> list[list[list[int]]]:
    """Numbers of the files of each batch of each epoch."""
    with make_loader(FileReader(file_root=root), batch_size, **arguments) as loader:
        epochs = []
        for _ in range(num_epochs):
            length = len(loader)
            epochs.append([[number_of(data) for data in batch["data"]] for batch in loader])
            assert len(epochs[-1]) == length
        return epochs


cases = st.tuples(
    st.integers(1, 14), st.integers(1, 4), st.integers(1, 5), st.sampled_from(["drop", "pad", "partial", "wrap"])
).filter(lambda case: case[0] >= case[1])


@given(case=cases, data=st.data())
@settings(max_examples=examples(20, 60), deadline=None)
def test_epochs_are_what_the_shards_hold(roots: dict[int, Path], case: tuple, data: st.DataObject) -> None:
    size, num_shards, batch_size, policy = case
    shard_id = data.draw(st.integers(0, num_shards - 1))
    if policy == "drop" and size // num_shards // batch_size == 0:
        with pytest.raises(SettingError, match="An epoch must have at least one batch"):
            delivered(roots[size], batch_size, 1, shard=(shard_id, num_shards), last_batch=policy)
        return
    got = delivered(roots[size], batch_size, 4, shard=(shard_id, num_shards), last_batch=policy)
    bounds = [size * shard // num_shards for shard in range(num_shards + 1)]
    largest = -(-size // num_shards)
    num_made = -(-largest // batch_size)
    stream = []  # without padding, shard after shard
    for epoch in range(40):
        shard = (shard_id + epoch) % num_shards
        stream += range(bounds[shard], bounds[shard + 1])
    for epoch, batches in enumerate(got):
        shard = (shard_id + epoch) % num_shards
        own = list(range(bounds[shard], bounds[shard + 1]))
        if policy == "wrap":
            wanted = stream[epoch * num_made * batch_size :][: num_made * batch_size]
        elif policy == "pad":
            wanted = (own + [own[-1]] * 20)[: num_made * batch_size]
        elif policy == "drop":
            wanted = own[: size // num_shards // batch_size * batch_size]
        else:
            wanted = own
        assert batches == [wanted[at : at + batch_size] for at in range(0, len(wanted), batch_size)]


@given(case=cases)
@settings(max_examples=examples(15, 40), deadline=None)
def test_account_is_what_is_delivered(roots: dict[int, Path], case: tuple) -> None:
    size, num_shards, batch_size, policy = case
    if policy == "drop" and size // num_shards // batch_size == 0:
        return
    arguments = {"last_batch": policy}
    got = [
        delivered(roots[size], batch_size, 1, shard=(shard, num_shards), **arguments)[0]
        for shard in range(num_shards)
    ]
    with make_loader(FileReader(file_root=roots[size]), batch_size, shard=(0, num_shards), **arguments) as loader:
        sample_counts = loader.sample_counts()
    assert sample_counts is not None
    samples = [number for batches in got for batch in batches for number in batch]
    assert sample_counts.num_samples == size
    assert sample_counts.num_delivered + sample_counts.num_dropped == size
    if policy != "partial":
        assert {len(batches) for batches in got} == {sample_counts.num_batches}
        assert len(samples) == sample_counts.num_delivered + sample_counts.num_repeated + sample_counts.num_padded
    else:
        assert sorted(samples) == list(range(size))
    if policy == "drop":
        assert len({*samples}) == sample_counts.num_delivered


def test_sticking_to_a_shard(roots: dict[int, Path]) -> None:
    with make_loader(
        FileReader(file_root=roots[7], stick_to_shard=True), 2, shard=(1, 2), last_batch="pad"
    ) as loader:
        epochs = [[[number_of(data) for data in batch["data"]] for batch in loader] for _ in range(2)]
    assert epochs == [[[3, 4], [5, 6]]] * 2


def test_shards_differ_in_length_only_with_partial_batches() -> None:
    shards = [ReaderEpochs(9, shard, 2, False, 4, "partial") for shard in range(2)]
    assert [[each.num_batches(epoch) for epoch in range(2)] for each in shards] == [[1, 2], [2, 1]]
    shards = [ReaderEpochs(9, shard, 2, False, 4, "pad") for shard in range(2)]
    assert [[each.num_batches(epoch) for epoch in range(2)] for each in shards] == [[2, 2], [2, 2]]


def test_padding_is_the_same_as_that_of_the_operator(roots: dict[int, Path]) -> None:
    pipeline = Pipeline(batch_size=3, num_threads=1, device_id=None)
    with pipeline:
        data, _ = fn.readers.file(file_root=str(roots[7]), num_shards=2, shard_id=1, pad_last_batch=True)
        pipeline.set_outputs(data)
    wanted = [
        [number_of(each.as_array() if hasattr(each, "as_array") else each) for each in _run(pipeline)]
        for _ in range(4)
    ]
    got = delivered(roots[7], 3, 2, shard=(1, 2), last_batch="pad")
    assert [batch for epoch in got for batch in epoch] == wanted


def _run(pipeline: Pipeline) -> list:
    (output,) = pipeline.run()
    return [output.at(number) for number in range(len(output))]
