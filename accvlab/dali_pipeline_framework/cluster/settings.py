# SPDX-License-Identifier: Apache-2.0
"""Settings of loading in a Ray cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol

import attrs
from attrs.validators import optional

from ..checks import number, shown, valid, whole_number
from ..errors import SettingError


class Pool(Protocol):
    """A `RayPool`."""

    def members(self) -> Any:
        """Get a reference of Ray to the handles of its actors, by number."""


_OF_THE_POOL = "num_actors", "num_cpus", "address", "runtime_env"
_MOST_ACTORS = 4096
_MOST_AHEAD = 4096
_LEAST_PER_ACTOR, _MOST_PER_ACTOR, _BYTES_PER_ACTOR = 4, 32, 128e6


def check_address(settings: object, field: object, address: Any) -> None:
    """Check the address of a cluster.

    Raises:
        SettingError: It is none, or one of Ray Client.
    """
    if address is None:
        return
    if isinstance(address, str) and address.startswith("ray://"):
        raise SettingError(
            f"`address` must be that of a cluster whose object store this process can read, got {address!r}, "
            f"which is one of Ray Client: every batch would be copied through its server. Run this program on a "
            f"machine of the cluster (`ray start --address=HOST:6379` makes this one such a machine), and leave "
            f"`address` out."
        )
    is_place = isinstance(address, str) and re.fullmatch(r".+:\d+|auto|local", address)
    if not is_place:
        raise SettingError(f"`address` must be HOST:PORT of a Ray cluster, or None, got {shown(address)}.")


def _check_runtime_env(settings: object, field: object, value: Any) -> None:
    if value is not None and not isinstance(value, Mapping):
        raise SettingError(f"`runtime_env` must be a dict, a runtime environment of Ray, got {shown(value)}.")


def _check_pool(settings: object, field: object, pool: Any) -> None:
    if pool is not None and not hasattr(pool, "members"):
        raise SettingError(f"`pool` must be a RayPool, or None, got {shown(pool)}.")


@attrs.frozen
class RayWorkers:
    """Actors of a Ray cluster that load, in place of worker processes: ``DataLoader(..., workers=RayWorkers())``.

    What is delivered is the same, bit for bit, for any number of actors, and as with worker processes. A state
    that was saved with one of them is continued with the other.

    Attributes:
        num_actors: How many actors. Those for which the cluster has no room yet join when it has.
        num_cpus: CPUs of the cluster that each of them takes.
        address: Address of the cluster, ``HOST:PORT``. None: the one to which this process is connected; else that
            of ``RAY_ADDRESS``, or the one that runs on this machine.
        batches_ahead: How many batches are requested ahead at most; fewer where they would take more than half of
            the object store. None: four per actor, or more of small ones, up to 32.
        runtime_env: What the actors need, as a runtime environment of Ray, e.g.
            ``{"py_modules": ["path/of/my_package"]}``, which is sent when this process connects, or
            ``{"env_vars": {"NAME": "value"}}``.
        start_within_s: How many seconds to wait for the first actor.
        pool: Actors that other loaders use as well; ``num_actors``, ``num_cpus``, ``address`` and ``runtime_env``
            are those of the pool, and are left out here.
        shared_by: How many loaders load the same with this pool, e.g. those of ranks that are parallel by tensors
            and have the same shard: an actor then loads a batch once for all of them.

    Raises:
        SettingError: A value is out of its range, or does not go with another one.
    """

    num_actors: int = attrs.field(default=8, validator=valid(whole_number, at_least=1, at_most=_MOST_ACTORS))
    num_cpus: float = attrs.field(default=1.0, validator=valid(number, at_least=0))
    address: str | None = attrs.field(default=None, validator=check_address)
    batches_ahead: int | None = attrs.field(
        default=None, validator=optional(valid(whole_number, at_least=1, at_most=_MOST_AHEAD))
    )
    runtime_env: Mapping[str, Any] | None = attrs.field(default=None, validator=_check_runtime_env)
    start_within_s: float = attrs.field(default=60.0, validator=valid(number, above=0))
    pool: Pool | None = attrs.field(default=None, validator=_check_pool)

    shared_by: int = attrs.field(default=1, validator=valid(whole_number, at_least=1, at_most=_MOST_ACTORS))

    def __attrs_post_init__(self) -> None:
        """Check rules of several settings."""
        if self.shared_by > 1 and self.pool is None:
            raise SettingError(
                f"`shared_by={self.shared_by}` needs a `pool`, whose actors several loaders use: "
                f"RayWorkers(pool=RayPool(...), shared_by={self.shared_by})."
            )
        fields = attrs.fields_dict(RayWorkers)
        given = [name for name in _OF_THE_POOL if getattr(self, name) != fields[name].default]
        if self.pool is not None and given:
            raise SettingError(
                f"`{given[0]}={shown(getattr(self, given[0]))}` does not go with `pool`, whose actors are there "
                f"already. Give it to the pool: RayPool(RayWorkers({given[0]}=...))."
            )

    def most_ahead(self, num_actors: int, batch_bytes: int = 0) -> int:
        """How many batches of a size are requested ahead at most, with so many actors; 0: it is not known."""
        per_actor = _LEAST_PER_ACTOR
        if batch_bytes and self.shared_by == 1:  # else one of the loaders would be too far ahead of another one
            per_actor = max(per_actor, min(_MOST_PER_ACTOR, int(_BYTES_PER_ACTOR / batch_bytes)))
        return self.batches_ahead or per_actor * num_actors
