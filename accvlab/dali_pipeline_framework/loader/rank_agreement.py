# SPDX-License-Identifier: Apache-2.0
"""Comparison of the settings of a loader between the ranks of one program, without one waiting for another."""

from __future__ import annotations

import collections
import functools
import hashlib
import json
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

import attrs

from ..checks import bullets
from ..errors import SettingError
from ..sources.shards import Shard

_logger = logging.getLogger(__name__)

_PACKAGE = str(Path(__file__).parents[1])
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_WORD = re.compile(r"[\w.+-]+")
_MOST_FRAMES = 64

Settings: TypeAlias = Mapping[str, Any]
"""What must be the same on all ranks, by its name in messages."""


class RankAgreement:
    """Comparison of the settings of a loader between the ranks that share its data, once, in its first loop.

    The first rank that begins puts its settings in the store of the process group, where the others compare their
    own with them. One that differs raises, and leaves its own there for the first one to see at its first batch.
    Nobody waits: where only some ranks run a loop, nothing happens. A loader is known by the place in the program
    where it was made, so that one that only some ranks make is not taken for another.

    A launcher that restarts the ranks may keep the store. What an earlier start has left there is recognised by
    the number of the restart, and, since a restart may count on one machine only, by being older than this
    process: ranks connect, and so all run, before one of them writes.
    """

    def __init__(self) -> None:
        """Note where in the program the loader is made."""
        place = _place_in_program()
        with _lock:
            number = _num_made[place]
            _num_made[place] += 1
        self._key = f"accvlab/loader/{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}/{place}/{number}"
        self._own: dict[str, Any] = {}
        self._group: _Group | None = None  # from the comparison to the first batch

    def begin_loop(self, shard: Shard, settings: Callable[[], Settings]) -> None:
        """Compare settings with those of the rank that was first, if this is the first loop.

        Raises:
            SettingError: The settings of two ranks differ.
        """
        if self._own:
            return
        self._group = group = _group()
        if group is None:
            return
        is_dealt = shard.num_shards > 1 and (shard.num_shards == group.num_ranks or shard.source != "given")
        own = {"rank": group.rank, "at": time.time(), "is_dealt": is_dealt, "settings": settings()}
        text = json.dumps(own, default=str)
        self._own = json.loads(text)

        def compared() -> list[str]:
            first = group.put(self._key, "", text)
            if json.loads(first)["at"] < _time_of_start():
                first = group.put(self._key, first, text)
            differences = _differences(json.loads(first), self._own)
            if differences:
                group.put(self._key, first, text)
            return differences

        _require_none(compared)

    def look(self) -> None:
        """At the first batch, see whether another rank has found its settings to differ.

        Raises:
            SettingError: The settings of two ranks differ.
        """
        group, self._group = self._group, None
        if group is not None:
            _require_none(lambda: _differences(self._own, json.loads(group.put(self._key, "", ""))))


def _require_none(find_differences: Callable[[], list[str]]) -> None:
    try:
        differences = find_differences()
    except Exception as error:  # a store that cannot do it, or that has gone with its process
        _logger.debug("The settings of the ranks were not compared: %s", error)
        return
    if differences:
        raise SettingError(
            f"Ranks that share the data of a loader have different settings:\n{bullets(differences)}\n"
            f"Give all of them the same, and load the same state on all of them."
        )


def _time_of_start() -> float:
    """When this process was started, by the clock of `time.time`."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])  # since the system was
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")


def loader_settings(loader: Any) -> Settings:
    """What must be the same on all ranks that share the data of a loader."""
    bound, start = loader._bound, loader._progress.next_start
    lines = dict(line.split(": ", 1) for line in loader._definition.chain_lines()[1:])
    return {
        "batch_size": bound.batch_size,
        "number of shards": bound.shard.num_shards,
        "seed of the random draws": loader._seed,
        **bound.description,
        "fields of the samples (fingerprint)": loader._blueprint_fingerprint,
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


def _is_same(there: Any, here: Any) -> bool:
    if isinstance(there, str) and isinstance(here, str):  # a set is written in another order by each process
        return sorted(_WORD.findall(there)) == sorted(_WORD.findall(here))
    return bool(there == here)


def _shown(settings: Mapping[str, Any], name: str) -> str:
    value = settings.get(name)
    return "nothing" if value is None else str(value)


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


# --- stores -----------------------------------------------------------------------------------------------


@attrs.frozen
class _Group:
    """The ranks of this program, and a store that they have in common.

    Attributes:
        put: Takes key, present and new value; replaces the present one (``""``: none) where it is still there, and
            returns what is there then. Does not wait for another rank.
    """

    rank: int
    num_ranks: int
    put: Callable[[str, str, str], str]


def _group() -> _Group | None:
    """The ranks that PyTorch or JAX connects; None where there is one only."""
    distributed: Any = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        store = distributed.distributed_c10d._get_default_store()
        group = _Group(
            distributed.get_rank(),
            distributed.get_world_size(),
            lambda key, so_far, value: store.compare_set(key, so_far, value).decode(),
        )
    else:
        state: Any = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
        if getattr(state, "client", None) is None:
            return None
        group = _Group(state.process_id, state.num_processes, functools.partial(_put_in_jax, state.client))
    return group if group.num_ranks > 1 else None


def _put_in_jax(client: Any, key: str, so_far: str, value: str) -> str:
    try:
        if value:
            client.key_value_set(key, value, allow_overwrite=bool(so_far))
            return value
    except Exception:  # there is one; the class of jaxlib for that is not public
        pass
    text: str = client.key_value_try_get(key)
    return text
