"""States of other loaders, and checkpoints that hold one of a loader of this package: refused, and named."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.loaders import by_sampler, make_loader

from accvlab.dali_pipeline_framework.errors import StateError
from accvlab.dali_pipeline_framework.sampling import ShuffledSampler


@pytest.fixture(scope="module")
def loader() -> Any:
    return make_loader(by_sampler(ShuffledSampler(22, seed=1)), 4)


# As their owners write them, without the values.
FOREIGN: dict[str, tuple[dict[str, Any], str]] = {
    "StatefulDataLoader": (
        dict.fromkeys(
            [
                "_index_sampler_state",
                "_sampler_iter_state",
                "_sampler_iter_yielded",
                "_num_yielded",
                "_IterableDataset_len_called",
                "_shared_seed",
                "fetcher_state",
                "dataset_state",
                "_iterator_finished",
            ]
        ),
        "torchdata's StatefulDataLoader",
    ),
    "StatefulDataLoader, workers": (
        {"_snapshot": {"_snapshot_step": 1}, "_steps_since_snapshot": 0, "_iterator_finished": False},
        "torchdata's StatefulDataLoader",
    ),
    "Lightning, checkpoint": (
        {"epoch": 0, "global_step": 4, "pytorch-lightning_version": "2.6.6", "state_dict": {}, "loops": {}},
        "a checkpoint of Lightning",
    ),
    "Lightning, fit loop": (
        {"state_dict": {}, "epoch_loop.state_dict": {}, "epoch_loop.batch_progress": {}},
        "a fit loop of Lightning",
    ),
    "Trainer": (
        {"epoch": 0.5, "global_step": 4, "log_history": [], "max_steps": 9},
        "the Trainer of Hugging Face",
    ),
    "mmengine": ({"meta": {"epoch": 1}, "state_dict": {}, "message_hub": {}}, "a checkpoint of mmengine"),
    "Grain": ({"version": 2, "last_seen_indices": {"0": 7}, "last_worker_index": -1}, "a loader of Grain"),
    "MosaicML": ({"epoch": 0, "sample_in_epoch": 8, "num_canonical_nodes": 1}, "the StreamingDataset of MosaicML"),
}


@pytest.mark.parametrize(("state", "owner"), FOREIGN.values(), ids=FOREIGN)
def test_the_owner_is_named(loader: Any, state: dict[str, Any], owner: str) -> None:
    for given in (state, json.dumps(state)):
        with pytest.raises(
            StateError, match=rf"^The state is that of {owner}.*, not of a loader of this package\.$"
        ):
            loader.load_state_dict(given)


def test_where_the_state_is_in_a_checkpoint_is_said(loader: Any) -> None:
    own = loader.state_dict()
    lightning = {"pytorch-lightning_version": "2.6.6", "loops": {"fit_loop": {"combined_loader": [own]}}}
    with pytest.raises(
        StateError, match=r"a checkpoint of Lightning.*`state\['loops'\]\['fit_loop'\]\['comb.*'\]\[0\]`"
    ):
        loader.load_state_dict(lightning)
    with pytest.raises(StateError, match=r"is in what was given, as `state\['loader'\]`\. Pass only that\.$"):
        loader.load_state_dict({"model": {"weight": [1.0]}, "loader": own})
    with pytest.raises(StateError, match=r"as `state\[1\]`"):
        loader.load_state_dict([None, own])


def test_what_is_endless_or_large_is_not_searched_for_long(loader: Any) -> None:
    endless: dict[str, Any] = {}
    endless["again"] = endless
    for given in (endless, {"model": list(range(10**6)), "loader": loader.state_dict()}):
        with pytest.raises(StateError):
            loader.load_state_dict(given)


def test_a_state_of_its_own_is_not_foreign(loader: Any) -> None:
    loader.load_state_dict({**loader.state_dict()})
    with pytest.raises(StateError, match="no state has an entry 'global_step', 'log_history'"):
        loader.load_state_dict({**loader.state_dict(), "global_step": 3, "log_history": []})
