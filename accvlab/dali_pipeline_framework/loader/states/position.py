# SPDX-License-Identifier: Apache-2.0
"""Where a loader stands, and where its next loop starts: arithmetic, without any data."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import attrs


@attrs.frozen
class Position:
    """A place between two batches: ``batch`` is the next one of ``epoch``."""

    epoch: int = 0
    batch: int = 0


@attrs.frozen
class Made:
    """A batch that a loop is to receive, or an error; kept where a signal handler has raised an exception.

    Attributes:
        batch: The batch.
        error: What to raise; None for a batch.
        delivered: Position after the batch.
        next_start: Where the next loop starts once it was received.
    """

    batch: Any
    error: Exception | None
    delivered: Position
    next_start: Position


@attrs.define
class LoopProgress:
    """How far a loader has come.

    Attributes:
        is_endless: Whether the input has no epochs of its own.
        is_stream: Whether there are no epochs at all: its batches are not counted as epochs either.
        delivered: Behind what the loop has received.
        pipeline: Where the pipeline goes on if it is not told otherwise.
        next_start: Where the next loop starts.
        made: What the loop receives next, if that is there already.
        is_epoch_set: Whether `next_start` was set while a loop runs.
        reader: State of the native readers at `delivered`, while the pipeline may be further; else None.
    """

    is_endless: bool
    is_stream: bool
    delivered: Position = Position()
    pipeline: Position = Position()
    next_start: Position = Position()
    made: Made | None = None
    is_epoch_set: bool = False
    reader: Any = None

    def end_setting(self) -> None:
        """Begin a loop: what was set for the next loop now applies to this one."""
        self.is_epoch_set = False

    def begin(self, is_positioned: bool = True) -> None:
        """Begin a loop.

        Args:
            is_positioned: Whether the pipeline goes on where the loop starts, and not where it was.
        """
        self.delivered = self.next_start
        if is_positioned or not self.is_stream:
            self.pipeline = self.next_start
            self.made = self.reader = None

    def leave_pipeline(self) -> None:
        """Count a batch that has left the pipeline."""
        at = self.pipeline
        self.pipeline = Position(at.epoch, at.batch + 1)
        if not self.is_epoch_set:
            self.next_start = self.pipeline if self.is_stream else Position(at.epoch + 1)

    def go_back(self, to: LoopProgress) -> None:
        """Have the next loop start as if what the pipeline has delivered since then had not been received."""
        self.delivered, self.next_start, self.is_epoch_set = to.delivered, to.next_start, to.is_epoch_set

    def end_loop(self) -> None:
        """End a loop that was not left by ``break``."""
        if self.is_stream:  # it was limited, and is used up
            return
        next_epoch = Position(self.pipeline.epoch + 1)
        if self.is_endless:
            self.pipeline = next_epoch
        if not self.is_epoch_set:
            self.next_start = next_epoch
        self.delivered = self.next_start

    def set_epoch(self, epoch: int, is_running: bool) -> None:
        """Have the next loop run in an epoch; nothing changes where it does so anyway."""
        if epoch != self.next_start.epoch:
            self.next_start = Position(epoch)
            self.is_epoch_set = True
        if not is_running:
            self.delivered = self.next_start

    def continue_at(self, position: Position) -> None:
        """Have the next loop start at a position, as if all before it was delivered."""
        self.delivered = self.next_start = position
        self.is_epoch_set = False
        self.made = self.reader = None


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
