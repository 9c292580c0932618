# SPDX-License-Identifier: Apache-2.0
"""Ranks of one program tell each other the settings of their loaders, without waiting for one another."""

from __future__ import annotations

import collections
import hashlib
import json
import logging
import re
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Protocol, TypeAlias

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
    """Finds out whether the ranks that share the data of a loader have the same settings.

    The first rank that begins a loop puts its settings where all can read them, in the store of the process
    group. Each other compares its own with these. What a rank finds it puts there as well, for the others to
    see when they look next. Nobody waits: where only some ranks run a loop, nothing happens. A loader is known
    by the place in the program where it was made, so that one that only some ranks make is not taken for another.

    .. code-block:: text

        rank 0   begins, is the first ──> ok     first batch: does anybody disagree?
        rank 1        begins, compares ──> disagrees, tells, raises
        rank 2             begins, compares ──> ok
    """

    def __init__(self) -> None:
        """Note where in the program the loader is made."""
        place = _place_in_program()
        with _lock:
            number = _num_made[place]
            _num_made[place] += 1
        self._key = f"accvlab/loader/{place}/{number}"
        self._has_told = False

    def begin_loop(self, shard: Shard, settings: Callable[[], Settings]) -> None:
        """Compare settings with those of other ranks, at the first loop, and look what they have found.

        Raises:
            SettingError: The settings of two ranks differ.
        """
        self._ask(lambda group: self._begin(group, shard, settings))

    def look(self) -> None:
        """Look what other ranks have found.

        Raises:
            SettingError: The settings of two ranks differ.
        """
        if self._has_told:
            self._ask(self._raise_what_was_found)

    def _ask(self, what: Callable[[_Group], None]) -> None:
        group = _group()
        if group is None:
            return
        try:
            what(group)
        except SettingError:
            raise
        except Exception as error:  # a store that cannot do it, or that has gone with its process
            _logger.debug("The settings of the ranks were not compared: %s", error)

    def _begin(self, group: _Group, shard: Shard, settings: Callable[[], Settings]) -> None:
        if not self._has_told:
            self._has_told = True
            is_whole = shard.num_shards == group.num_ranks or shard.source != "given"
            own = {"rank": group.rank, "is_dealt": is_whole and shard.num_shards > 1, "settings": settings()}
            own = json.loads(json.dumps(own, default=str))
            first = json.loads(group.store.first(self._key, json.dumps(own)))
            differences = _differences(first, own) if first["is_dealt"] or own["is_dealt"] else []
            if differences:
                text = (
                    f"Ranks that share the data of a loader have different settings:\n{bullets(differences)}\n"
                    f"Give all of them the same, and load the same state on all of them."
                )
                group.store.tell(f"{self._key}/found", text)
                raise SettingError(text)
        self._raise_what_was_found(group)

    def _raise_what_was_found(self, group: _Group) -> None:
        found = group.store.told(f"{self._key}/found")
        if found is not None:
            raise SettingError(found)


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


def _differences(first: Mapping[str, Any], own: Mapping[str, Any]) -> list[str]:
    there, here = first["settings"], own["settings"]
    return [
        f"{name}: {_shown(there, name)} on rank {first['rank']}, {_shown(here, name)} on rank {own['rank']}"
        for name in dict.fromkeys([*there, *here])
        if not _is_same(there.get(name), here.get(name))
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


class _Store(Protocol):
    """Values by keys, the same for all ranks. No call waits for another rank."""

    def first(self, key: str, value: str) -> str:
        """Put a value where there is none; get the one that is there then."""
        ...

    def tell(self, key: str, value: str) -> None:
        """Put a value."""
        ...

    def told(self, key: str) -> str | None:
        """Get a value, None where there is none."""
        ...


@attrs.frozen
class _Group:
    rank: int
    num_ranks: int
    store: _Store


def _group() -> _Group | None:
    """The ranks of this program, where PyTorch or JAX connects several."""
    distributed: Any = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        num_ranks = distributed.get_world_size()
        if num_ranks == 1:
            return None
        get_store = getattr(distributed.distributed_c10d, "_get_default_store", None)
        return None if get_store is None else _Group(distributed.get_rank(), num_ranks, _TorchStore(get_store()))
    state: Any = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    client: Any = getattr(state, "client", None)
    if client is None or state.num_processes == 1:
        return None
    return _Group(state.process_id, state.num_processes, _JaxStore(client))


@attrs.frozen
class _TorchStore:
    """The store by which the ranks of `torch.distributed` have found each other."""

    _store: Any

    def first(self, key: str, value: str) -> str:
        text: bytes = self._store.compare_set(key, "", value)
        return text.decode()

    def tell(self, key: str, value: str) -> None:
        self._store.set(key, value)

    def told(self, key: str) -> str | None:
        return self._store.get(key).decode() if self._store.check([key]) else None


@attrs.frozen
class _JaxStore:
    """The store of the coordinator of `jax.distributed`."""

    _client: Any

    def first(self, key: str, value: str) -> str:
        try:
            self._client.key_value_set(key, value)
        except Exception:  # the class of jaxlib for "already exists" is not public
            text: str = self._client.key_value_try_get(key)
            return text
        return value

    def tell(self, key: str, value: str) -> None:
        self._client.key_value_set(key, value, allow_overwrite=True)

    def told(self, key: str) -> str | None:
        try:
            text: str = self._client.key_value_try_get(key)
        except Exception:  # "not found"
            return None
        return text
