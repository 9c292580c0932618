# SPDX-License-Identifier: Apache-2.0
"""Comparison of the settings of a loader between the ranks of one program, without one waiting for another."""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from ..checks import bullets
from ..errors import SettingError
from ..sources.shards import Shard
from ..user_warnings import warn_user
from .input_binding import LoaderInput
from .progress import Position

_logger = logging.getLogger(__name__)

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_SET = re.compile(r"\{[^{}]*\}")  # its order is another one in each process
_STEPS_IN_WORKERS = "steps in the workers"
# Of the loaders of this process that deal their data to shards.
_numbers = itertools.count()

Settings: TypeAlias = Mapping[str, object]
"""What must be the same on all ranks, by its name in messages."""


class RankAgreement:
    """Comparison of the settings of a loader between the ranks that share its data, once, in its first loop.

    The first rank that begins puts the digest of its settings, and these, in the store that all ranks share; the
    others compare their own with it. One that differs raises, or warns where only the places of steps differ, and
    leaves its own there for the first one to see at its first batch. Nobody waits: where only some ranks run a
    loop, nothing happens. Loaders that deal their data to shards are numbered in the order in which they are made,
    which must be the same on all ranks; others are not compared.

    What an earlier start of the ranks has left in a store that a launcher keeps is recognised by the number of the
    restart.
    """

    def __init__(self, shard: Shard) -> None:
        """Number the loader of a shard."""
        self._shard = shard
        self._key = ""
        if shard.num_shards > 1:
            restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)
            self._key = f"accvlab/loader/{restart}/{next(_numbers)}"
        self._own: str | None = None
        self._store: Any = None  # of PyTorch, from the comparison to the first batch

    def begin_loop(self, settings: Callable[[], Settings]) -> None:
        """Compare settings with those of the rank that was first, if this is the first loop.

        Raises:
            SettingError: The settings of two ranks differ.
        """
        distributed: Any = getattr(sys.modules.get("torch"), "distributed", None)
        if self._own is not None or distributed is None or not distributed.is_available():
            return
        if not self._key or not distributed.is_initialized():
            return
        num_ranks = distributed.get_world_size()
        if num_ranks == 1 or (self._shard.source == "given" and self._shard.num_shards != num_ranks):
            return
        text = json.dumps([distributed.get_rank(), settings()], default=str)
        self._own = f"{_digest(json.loads(text)[1])} {text}"
        self._store = distributed.distributed_c10d._get_default_store()
        self._compare(self._store, has_begun=False)

    def look(self) -> None:
        """At the first batch, see whether another rank has found its settings to differ.

        Raises:
            SettingError: The settings of two ranks differ.
        """
        store, self._store = self._store, None
        if store is not None:
            self._compare(store, has_begun=True)

    def _compare(self, store: Any, has_begun: bool) -> None:
        own = cast(str, self._own)
        try:
            # Returns what is there, these settings where nothing was. Does not wait for another rank.
            there = store.compare_set(self._key, "", own).decode()
            differs = there.partition(" ")[0] != own.partition(" ")[0]
            if differs and not has_begun:
                store.compare_set(self._key, there, own)
        except Exception as error:  # a store that cannot do it, or that has gone with its process
            _logger.debug("The settings of the ranks were not compared: %s", error)
            return
        if differs:
            first, other = (own, there) if has_begun else (there, own)
            differences = _differences(*(json.loads(each.partition(" ")[2]) for each in (first, other)))
            if differences.keys() == {_STEPS_IN_WORKERS}:  # by their GPUs, or since some have none
                warn_user(
                    f"Ranks that share the data of a loader run different steps in their workers "
                    f"({differences[_STEPS_IN_WORKERS]}). Pixels may differ within the tolerance of the steps. "
                    f"Pass `run` to the loader to have them run in the same place on all ranks."
                )
                return
            listed = bullets(differences.values())
            raise SettingError(
                f"Ranks that share the data of a loader have different settings:\n{listed}\n"
                f"Give all of them the same, and load the same state on all of them."
            )


def compared_settings(
    bound: LoaderInput,
    seed: int,
    chain_lines: Sequence[str],
    steps_in_workers: int,
    fields: Mapping[str, str],
    start: Position,
) -> Settings:
    """Get what must be the same on all ranks that share the data of a loader.

    Args:
        bound: The input.
        seed: Seed of the random draws.
        chain_lines: A line for each step, with its name before a colon.
        steps_in_workers: How many of the steps run in the workers, with what they do to pixels; this may differ.
        fields: Types of the fields of the samples, by their paths.
        start: Where the first loop starts.
    """
    lines = dict(line.split(": ", 1) for line in chain_lines)
    return {
        "batch_size": bound.batch_size,
        "number of shards": bound.shard.num_shards,
        "seed of the random draws": seed,
        **bound.description,
        "fields of the samples (fingerprint)": _digest(fields),
        **{name: _ADDRESS.sub("", line) for name, line in lines.items()},
        _STEPS_IN_WORKERS: steps_in_workers,
        "epoch of the first loop": start.epoch,
        "first batch of the first loop": start.batch,
    }


def _digest(settings: Settings) -> str:
    compared = {name: _compared(value) for name, value in settings.items()}
    return hashlib.blake2b(json.dumps(compared, sort_keys=True).encode(), digest_size=8).hexdigest()


def _compared(value: object) -> object:
    """A value as it is compared: a set in a text is written in another order by each process."""
    return _SET.sub(_in_order, value) if isinstance(value, str) else value


def _in_order(written: re.Match[str]) -> str:
    return ", ".join(sorted(written[0][1:-1].split(", ")))


def _differences(first: tuple[int, Settings], other: tuple[int, Settings]) -> dict[str, str]:
    (first_rank, firsts), (other_rank, others) = first, other
    return {
        name: f"{name}: {_shown(firsts, name)} on rank {first_rank}, {_shown(others, name)} on rank {other_rank}"
        for name in dict.fromkeys([*firsts, *others])
        if _compared(firsts.get(name)) != _compared(others.get(name))
    }


def _shown(settings: Settings, name: str) -> str:
    value = settings.get(name)
    return "nothing" if value is None else str(value)
