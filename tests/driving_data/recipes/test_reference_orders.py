"""Orders of published training code: equal to recorded ones, index by index, and pinned numbers."""

from __future__ import annotations

import functools
import itertools
import json
import pickle
import re
from typing import Any

import numpy as np
import pytest
from support.laws import spread
from support.shared_data import shared_data

from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.driving_data.recipes import (
    AugmentationRanges,
    ChunkSampler,
    EndlessGroupSampler,
    ShuffledGroupSampler,
    SkippingGroupSampler,
    split_lengths,
)

MODELS = ("streampetr", "sparsedrive", "sparse4d")
FLAGS = {"zeros13": [0] * 13, "zeros101": [0] * 101, "two_groups": [0] * 30 + [1] * 11 + [0] * 6}
SETTING = re.compile(r"(seed|epoch|world|batch|rank)(\d+)")


@functools.cache
def recorded(model: str) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
    folder = shared_data("golden") / "golden" / "orders"
    with np.load(folder / f"{model}.npz") as file:
        return dict(file), json.loads((folder / f"{model}.json").read_text())


def settings_of(key: str) -> dict[str, int]:
    return {name: int(value) for name, value in SETTING.findall(key)}


def lengths_of(model: str, name: str) -> list[int]:
    if name.startswith("lengths_"):
        return [int(length) for length in name.split("_")[1:]]
    return next(entry for entry in recorded(model)[1] if entry["kind"] == "sequence_flags")["scene_lengths"][name]


def split_of(key: str) -> int | str:
    found = key.partition("split_")[2].split(".")[0]
    return found if found == "all" else int(found)


def group_lengths(model: str, key: str) -> list[int]:
    return split_lengths(lengths_of(model, key.split(".")[1]), split_of(key))


def of_rank(sampler: Any, wanted: dict[str, int], num_batches: int, epoch: int = 0) -> np.ndarray:
    world, rank = wanted["world"], wanted["rank"]
    sharded = sampler.with_settings(total_batch_size=world * wanted["batch"], num_shards=world)
    own = slice(rank * wanted["batch"], (rank + 1) * wanted["batch"])
    return np.array([sharded.plan_batch(epoch, batch).indices[own] for batch in range(num_batches)])


@pytest.mark.parametrize("model", MODELS)
def test_flags(model: str) -> None:
    arrays, entries = recorded(model)
    refused = next(entry for entry in entries if entry["kind"] == "sequence_flags")["raises_AssertionError"]
    count = 0
    for key, expected in arrays.items():
        if key.startswith("flags."):
            pieces = group_lengths(model, key)
            np.testing.assert_array_equal(np.repeat(np.arange(len(pieces)), pieces), expected)
            count += 1
    for key in refused:
        if not key.endswith("split_-1"):
            with pytest.raises(SettingError, match="cuts each sequence"):
                group_lengths(model, f"flags.{key}")
    assert count >= 15


@spread("model", MODELS, 1)
def test_endless(model: str) -> None:
    count = 0
    for key, expected in recorded(model)[0].items():
        if (key.startswith("endless.") or ".plain." in key) and ".aug_" not in key:
            wanted = settings_of(key)
            sampler = EndlessGroupSampler(group_lengths(model, key), seed=wanted["seed"])
            np.testing.assert_array_equal(of_rank(sampler, wanted, len(expected)), expected, err_msg=key)
            count += 1
    assert count >= 32


@pytest.mark.parametrize("model", ["sparsedrive", "sparse4d"])
def test_skips_and_flips(model: str) -> None:
    arrays, entries = recorded(model)
    defaults = next(entry for entry in entries if entry["kind"] == "group_in_batch_defaults")
    conf = defaults["data_aug_conf"]
    augmentation = AugmentationRanges(
        image_hw=(conf["H"], conf["W"]),
        output_hw=conf["final_dim"],
        scale_range=conf["resize_lim"],
        bottom_crop_range=conf["bot_pct_lim"],
        rotation_range_deg=conf["rot_lim"],
        rotation_3d_range=conf["rot3d_range"],
    )
    count = 0
    for key, expected in arrays.items():
        if ".skip_flip." not in key or ".aug_" in key:
            continue
        wanted = settings_of(key)
        probs = {"skip_prob": 0.5, "flip_prob": 0.1}
        sampler = SkippingGroupSampler(
            group_lengths(model, key), seed=wanted["seed"], numpy_seed=500, augmentation=augmentation, **probs
        )
        np.testing.assert_array_equal(of_rank(sampler, wanted, len(expected)), expected, err_msg=key)
        count += 1
        if f"{key}.aug_resize" in arrays:
            played = sampler.with_settings(
                total_batch_size=wanted["world"] * wanted["batch"], num_shards=wanted["world"]
            )
            own = slice(wanted["rank"] * wanted["batch"], (wanted["rank"] + 1) * wanted["batch"])
            drawn = [played.augmentation_of(batch)[own] for batch in range(len(expected))]
            for name in ("resize", "flip", "rotate", "crop"):
                got = [[slot[name] for slot in row] for row in drawn]
                np.testing.assert_array_equal(got, arrays[f"{key}.aug_{name}"])
    assert count >= 32


@pytest.mark.parametrize("model", [*MODELS, "bevformer"])
def test_shuffled_groups(model: str) -> None:
    count = 0
    for key, expected in recorded(model)[0].items():
        if key.startswith("distgroup."):
            wanted = settings_of(key)
            sampler = ShuffledGroupSampler(FLAGS[key.split(".")[1]], seed=wanted["seed"])
            num_batches = len(expected) // wanted["batch"]
            got = of_rank(sampler, wanted, num_batches, wanted["epoch"])
            np.testing.assert_array_equal(got.ravel(), expected, err_msg=key)
            count += 1
    assert count > 100


@pytest.mark.parametrize("model", ["streampetr", "bevformer"])
def test_chunks(model: str) -> None:
    count = 0
    for key, expected in recorded(model)[0].items():
        if key.startswith("eval."):
            sampler = ChunkSampler([int(key.split(".")[1][1:])])
            got = of_rank(sampler, {"batch": 1, **settings_of(key)}, len(expected))
            np.testing.assert_array_equal(got.ravel(), expected, err_msg=key)
            count += 1
    assert count > 10


@pytest.mark.parametrize("model", ["sparsedrive", "sparse4d"])
def test_chunks_of_whole_sequences(model: str) -> None:
    count = 0
    for key, expected in recorded(model)[0].items():
        if key.startswith("eval."):
            wanted = {"batch": 1, **settings_of(key)}
            sampler = ChunkSampler(lengths_of(model, key.split(".")[1]), whole_sequences=True)
            got = of_rank(sampler, wanted, len(expected))
            np.testing.assert_array_equal(got.ravel(), expected, err_msg=key)
            sharded = sampler.with_settings(total_batch_size=wanted["world"], num_shards=wanted["world"])
            over = [sharded.plan_batch(0, batch).is_padding for batch in range(sharded.num_batches(0))]
            assert len(over) - sum(row[wanted["rank"]] for row in over) == len(expected)
            count += 1
    assert count > 10


# --- without recorded orders -------------------------------------------------------------------------------


def test_split() -> None:
    assert split_lengths([8, 5], 2) == [4, 4, 3, 2]
    assert split_lengths([3, 1], "all") == split_lengths([3, 1], -1) == [1, 1, 1, 1]
    assert split_lengths([5], 4, may_be_uneven=True) == [2, 2, 1]
    with pytest.raises(SettingError, match=r"sequence 1 of 5 frames gives 3"):
        split_lengths([8, 5], 4)
    with pytest.raises(SettingError, match=r"`split`"):
        split_lengths([8, 5], "each")


def test_endless_order_is_pinned() -> None:
    pytest.importorskip("torch")
    sampler = EndlessGroupSampler([2, 1, 3], 2, seed=0)
    batches = [sampler.plan_batch(0, batch) for batch in range(6)]
    assert [batch.indices.tolist() for batch in batches] == [
        sampler.get_batch_indices(0, batch).tolist() for batch in range(6)
    ]
    assert batches[0].is_first.tolist() == [True, True]
    order = np.array([batch.indices for batch in batches]).tolist()
    again = pickle.loads(pickle.dumps(sampler))
    assert [again.get_batch_indices(0, batch).tolist() for batch in (5, 0, 3)] == [order[5], order[0], order[3]]
    assert again == sampler
    for slot in range(2):  # groups are played from their first to their last sample
        for before, after in itertools.pairwise(batches):
            if not before.is_last[slot]:
                assert after.indices[slot] == before.indices[slot] + 1
            assert after.is_first[slot] == before.is_last[slot]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EndlessGroupSampler([2, 1], 3), "2 group(s) are too few for a batch of 3"),
        (lambda: EndlessGroupSampler([2, 1]).with_settings(total_batch_size=4), "too few for a batch of 4"),
        (lambda: EndlessGroupSampler([2, 1], 1).plan_batch(1, 0), "batch 0 of epoch 1"),
        (lambda: SkippingGroupSampler([2], 1, skip_prob=2), "`skip_prob`"),
        (lambda: AugmentationRanges(scale_range=(2, 1)), "`scale_range`"),
        (lambda: ShuffledGroupSampler([]), "`groups`"),
        (lambda: ShuffledGroupSampler([0, -1, 1]), "`groups`"),
        (lambda: ChunkSampler([2], whole_sequences="yes"), "`whole_sequences`"),
    ],
)
def test_refused(make: Any, message: str) -> None:
    with pytest.raises(SettingError, match=re.escape(message)):
        make()
