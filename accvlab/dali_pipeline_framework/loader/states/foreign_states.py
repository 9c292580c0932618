# SPDX-License-Identifier: Apache-2.0
"""States that were saved by something else than a loader of this package: whose they are, and what is in them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

_OWN_ENTRIES = {"version", "epoch", "batch", "plan", "blueprint"}
_MOST_VALUES_LOOKED_AT = 10_000

# What tells whose a state is: entries that all of them have.
_MARKS: dict[str, tuple[set[str], ...]] = {
    "torchdata's StatefulDataLoader (or a loader that Accelerate wrapped)": (
        {"_snapshot", "_steps_since_snapshot"},
        {"_sampler_iter_state", "_num_yielded"},
    ),
    "a checkpoint of Lightning": ({"pytorch-lightning_version"},),
    "a fit loop of Lightning": ({"epoch_loop.batch_progress"}, {"fit_loop"}, {"combined_loader"}),
    "the Trainer of Hugging Face (trainer_state.json)": ({"global_step", "log_history"},),
    "a checkpoint of mmengine": ({"meta", "message_hub"},),
    "a loader of Grain": ({"last_seen_indices", "last_worker_index"},),
    "the StreamingDataset of MosaicML": ({"sample_in_epoch", "num_canonical_nodes"},),
}


def describe_foreign(state: Any) -> str:
    """Say whose a state is, and where in it one of a loader of this package is; empty where neither is known."""
    if isinstance(state, Mapping):
        if state.keys() >= _OWN_ENTRIES:
            return ""
        marks = ((owner, entries) for owner, choices in _MARKS.items() for entries in choices)
        owner = next((owner for owner, entries in marks if state.keys() >= entries), "")
    elif isinstance(state, list | tuple):
        owner = ""
    else:
        return ""
    place = _place_of_own(state)
    if owner:
        rest = f" The state of one is in it: pass `state{place}`." if place else ""
        return f"The state is that of {owner}, not of a loader of this package.{rest}"
    return f"The state of a loader is in what was given, as `state{place}`. Pass only that." if place else ""


def _place_of_own(state: Any) -> str:
    """Where a state of a loader of this package is in a value, as Python writes it: ``"['loader']"``, say."""
    left: deque[tuple[str, Any]] = deque([("", state)])
    for _ in range(_MOST_VALUES_LOOKED_AT):
        if not left:
            break
        place, value = left.popleft()
        if isinstance(value, Mapping):
            if place and value.keys() >= _OWN_ENTRIES:
                return place
            children: Any = value.items()
        elif isinstance(value, list | tuple):
            children = enumerate(value)
        else:
            continue
        room = _MOST_VALUES_LOOKED_AT - len(left)
        left.extend((f"{place}[{key!r}]", child) for (key, child), _ in zip(children, range(room), strict=False))
    return ""
