# SPDX-License-Identifier: Apache-2.0
"""Comparison of the settings of a loader between the ranks of one program, without one waiting for another."""

from __future__ import annotations

import collections
import contextlib
import hashlib
import json
import logging
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

from ..checks import bullets
from ..errors import SettingError
from ..sources.shards import Shard
from .input_binding import LoaderInput
from .progress import Position

_logger = logging.getLogger(__name__)

_PACKAGE = str(Path(__file__).parents[1])
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_WORD = re.compile(r"[\w.+-]+")
_MOST_FRAMES = 64

Settings: TypeAlias = Mapping[str, object]
"""What must be the same on all ranks, by its name in messages."""


# `Any`: a store of PyTorch, or `_StoreOfJax`
Store: TypeAlias = Any


class RankAgreement:
    """Comparison of the settings of a loader between the ranks that share its data, once, in its first loop.

    The first rank that begins puts its settings in the store that all ranks share, where the others compare their
    own with them. One that differs raises, and leaves its own there for the first one to see at its first batch.
    Nobody waits: where only some ranks run a loop, nothing happens. A loader is known by the place in the program
    where it was made, so that one that only some ranks make is not taken for another.

    What an earlier start of the ranks has left in a store that a launcher keeps is recognised by the number of the
    restart.
    """

    def __init__(self) -> None:
        """Note where in the program the loader is made."""
        place = _place_in_program()
        with _lock:
            number = _num_made[place]
            _num_made[place] += 1
        self._key = f"accvlab/loader/{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}/{place}/{number}"
        self._own = ""
        self._store: Store | None = None  # from the comparison to the first batch

    def begin_loop(self, shard: Shard, settings: Callable[[], Settings]) -> None:
        """Compare settings with those of the rank that was first, if this is the first loop.

        Raises:
            SettingError: The settings of two ranks differ.
        """
        if self._own:
            return
        rank, num_ranks, self._store = _ranks()
        if num_ranks == 1:
            return
        is_dealt = shard.num_shards > 1 and (shard.num_shards == num_ranks or shard.source != "given")
        self._own = json.dumps({"rank": rank, "is_dealt": is_dealt, "settings": settings()}, default=str)
        self._compare(self._store, has_begun=False)

    def look(self) -> None:
        """At the first batch, see whether another rank has found its settings to differ.

        Raises:
            SettingError: The settings of two ranks differ.
        """
        store, self._store = self._store, None
        if store is not None:
            self._compare(store, has_begun=True)

    def _compare(self, store: Store, has_begun: bool) -> None:
        try:
            # Returns what is there, these settings where nothing was. Does not wait for another rank.
            there = store.compare_set(self._key, "", self._own).decode()
            first, other = (self._own, there) if has_begun else (there, self._own)
            differences = _differences(json.loads(first), json.loads(other))
            if differences and not has_begun:
                store.compare_set(self._key, there, self._own)
        except Exception as error:  # a store that cannot do it, or that has gone with its process
            _logger.debug("The settings of the ranks were not compared: %s", error)
            return
        if differences:
            raise SettingError(
                f"Ranks that share the data of a loader have different settings:\n{bullets(differences)}\n"
                f"Give all of them the same, and load the same state on all of them."
            )


def compared_settings(
    bound: LoaderInput, seed: int, chain_lines: Sequence[str], fields: str, start: Position
) -> Settings:
    """Get what must be the same on all ranks that share the data of a loader.

    Args:
        bound: The input.
        seed: Seed of the random draws.
        chain_lines: A line for each step, with its name before a colon.
        fields: The fields of the samples, see `fields_for_state`.
        start: Where the first loop starts.
    """
    lines = dict(line.split(": ", 1) for line in chain_lines)
    return {
        "batch_size": bound.batch_size,
        "number of shards": bound.shard.num_shards,
        "seed of the random draws": seed,
        **bound.description,
        "fields of the samples (fingerprint)": fields.partition(" ")[0],
        **{name: _ADDRESS.sub("", line) for name, line in lines.items()},
        "epoch of the first loop": start.epoch,
        "first batch of the first loop": start.batch,
    }


def _differences(first: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    if not (first["is_dealt"] or other["is_dealt"]):
        return []
    firsts, others = first["settings"], other["settings"]
    return [
        f"{name}: {_shown(firsts, name)} on rank {first['rank']}, {_shown(others, name)} on rank {other['rank']}"
        for name in dict.fromkeys([*firsts, *others])
        if not _is_same(firsts.get(name), others.get(name))
    ]


def _is_same(there: object, here: object) -> bool:
    if isinstance(there, str) and isinstance(here, str):  # a set is written in another order by each process
        return sorted(_WORD.findall(there)) == sorted(_WORD.findall(here))
    return bool(there == here)


def _shown(settings: Settings, name: str) -> str:
    value = settings.get(name)
    return "nothing" if value is None else str(value)


# --- stores -----------------------------------------------------------------------------------------------


def _ranks() -> tuple[int, int, Store]:
    """The rank of this process, the number of those that PyTorch or JAX connects, and a store of all of them."""
    distributed: Any = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        store = distributed.distributed_c10d._get_default_store()
        return distributed.get_rank(), distributed.get_world_size(), store
    of_jax: Any = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    if getattr(of_jax, "client", None) is None:
        return 0, 1, None
    return of_jax.process_id, of_jax.num_processes, _StoreOfJax(of_jax.client)


class _StoreOfJax:
    """What is needed of a store of PyTorch, by the coordinator of ``jax.distributed``."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        """Set a value where there is none (``""``), or any; return what is there then."""
        with contextlib.suppress(Exception):  # there is one; the class of jaxlib for that is not public
            self._client.key_value_set(key, desired, allow_overwrite=bool(expected))
        text: str = self._client.key_value_try_get(key)
        return text.encode()


# --- places in the program --------------------------------------------------------------------------------

_num_made: collections.Counter[str] = collections.Counter()
_lock = threading.Lock()


def _place_in_program() -> str:
    """A short text for the calls that led here from outside of the package, the same in all ranks of a program."""
    calls: list[str] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and len(calls) < _MOST_FRAMES:
        code = frame.f_code
        if not code.co_filename.startswith(_PACKAGE):
            calls.append(f"{Path(code.co_filename).name}:{code.co_name}:{frame.f_lineno}")
        frame = frame.f_back
    return hashlib.blake2b("\n".join(calls).encode(), digest_size=8).hexdigest()
