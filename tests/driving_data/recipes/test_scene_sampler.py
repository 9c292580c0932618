"""Evaluation scene by scene: each frame once, no scene cut, whatever the number of slots; and pieces of scenes."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.shared_data import shared_data

from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.driving_data.recipes import SceneSampler, split_lengths


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(1, 9))
def test_each_frame_once_and_scenes_whole(lengths: list[int], num_slots: int) -> None:
    sampler = SceneSampler(lengths, num_slots)
    batches = [sampler.plan_batch(0, batch) for batch in range(sampler.num_batches(0))]
    delivered = []
    for slot in range(num_slots):
        own = [batch for batch in batches if not batch.is_padding[slot]]
        frames = [int(batch.indices[slot]) for batch in own]
        delivered += frames
        is_padding = [bool(batch.is_padding[slot]) for batch in batches]
        assert is_padding == sorted(is_padding)  # only behind what a slot plays
        for batch, frame in zip(own, frames, strict=True):
            assert bool(batch.is_first[slot]) == (batch.frame[slot] == 0)
            if batch.frame[slot] > 0:
                assert frame - 1 == frames[frames.index(frame) - 1]
    assert sorted(delivered) == list(range(sum(lengths)))
    assert all(not batch.is_padding.all() for batch in batches)
    assert len(batches) >= max(lengths)


def test_slots_without_a_scene_are_padding() -> None:
    sampler = SceneSampler([3, 2], 4)
    batches = [sampler.plan_batch(0, batch) for batch in range(sampler.num_batches(0))]
    assert [batch.indices.tolist() for batch in batches] == [[0, 3, 0, 0], [1, 4, 0, 0], [2, 4, 0, 0]]
    is_padding = [[int(each) for each in batch.is_padding] for batch in batches]
    assert is_padding == [[0, 0, 1, 1], [0, 0, 1, 1], [0, 1, 1, 1]]
    with pytest.raises(SettingError, match="sequence_lengths"):
        SceneSampler([3, 0])


def test_it_depends_on_the_lengths() -> None:
    described = SceneSampler([3, 2], 2).describe()
    assert described == SceneSampler(np.array([3, 2]), 2).describe()
    assert described != SceneSampler([2, 3], 2).describe()


@pytest.mark.parametrize("model", ["streampetr", "sparsedrive", "sparse4d"])
def test_pieces_of_the_published_code(model: str) -> None:
    folder = shared_data("golden") / "golden" / "orders"
    entries = json.loads((folder / f"{model}.json").read_text())
    lengths = next(entry for entry in entries if entry["kind"] == "sequence_flags")["scene_lengths"]
    count = 0
    with np.load(folder / f"{model}.npz") as arrays:
        for key in (key for key in arrays if key.startswith("flags.")):
            name, split = key.removeprefix("flags.").split(".split_")
            of_name = [int(n) for n in name.split("_")[1:]] if name.startswith("lengths_") else lengths[name]
            pieces = split_lengths(of_name, split if split == "all" else int(split))
            np.testing.assert_array_equal(np.repeat(np.arange(len(pieces)), pieces), arrays[key])
            count += 1
    assert count >= 15


def test_split() -> None:
    assert split_lengths([8, 5], 2) == [4, 4, 3, 2]
    assert split_lengths([3, 1], "all") == split_lengths([3, 1], -1) == [1, 1, 1, 1]
    assert split_lengths([5], 4) == [2, 2, 1]
    with pytest.raises(SettingError, match=r"`split`"):
        split_lengths([8, 5], "each")
