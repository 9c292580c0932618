# SPDX-License-Identifier: Apache-2.0
"""The connection to a Ray cluster, and the actors of a loader in it. Ray is imported when it is needed."""

from __future__ import annotations

import collections
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

from ..checks import shown, whole_number
from ..errors import ClosedError, MissingPackageError, SettingError, WorkerStartError
from .actors import ActorFacts, LoadingActor, end_process, own_values
from .dispatch import Position
from .settings import RayWorkers

_logger = logging.getLogger(__name__)

_LONGEST_CONNECT_S = 5.0
_MOST_STARTS = 3
_SENT_BY_JOBS = "py_modules", "working_dir"  # of a runtime environment: files are not sent for single actors
_sent: Mapping[str, Any] = {}  # when this process was connected here


def _imported_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise MissingPackageError(
            f"Loading in a Ray cluster needs the package ray ({error}). Install the extra `ray`: "
            f"pip install 'accvlab.dali_pipeline_framework[ray]'."
        ) from error
    return ray


def connected_ray(workers: RayWorkers) -> Any:
    """Connect this process to the cluster, unless it is connected; return Ray.

    Raises:
        MissingPackageError: Ray is not installed.
        SettingError: The runtime environment has what is sent when a process connects, and this one has connected.
        WorkerStartError: There is no cluster at the address, or the process is connected by Ray Client.
    """
    global _sent
    ray, given = _imported_ray(), workers.address
    to_send = _sent_by_job(workers)
    from ray.util.client import ray as client

    if client.is_connected():
        raise WorkerStartError(
            "This process is connected by Ray Client (ray://...), which cannot read the object store of the "
            "cluster. Run the program on a machine of the cluster."
        )
    if ray.is_initialized():
        connected_to = str(ray.get_runtime_context().gcs_address)
        if given not in (None, "auto", connected_to) and _place_of(given, ray) != _place_of(connected_to, ray):
            raise WorkerStartError(
                f"RayWorkers has the address {given!r}, and this process is connected to the cluster at "
                f"{connected_to!r} already. Leave the address out, or connect to the other one before."
            )
        if to_send and to_send != _sent:
            names = " and ".join(f"`{name}`" for name in to_send)
            raise SettingError(
                f"`runtime_env` has {names}, which Ray sends only when a process connects, and this one has "
                f"connected already. Give it to `ray.init(runtime_env=...)`, or to the first RayWorkers."
            )
        return ray
    address = given or os.environ.get("RAY_ADDRESS") or "auto"
    try:
        _require_answer(address)
        ray.init(address=address, logging_level=logging.WARNING, runtime_env={**to_send})
        _sent = to_send
    except (Exception, SystemExit) as error:  # Ray raises many kinds
        if to_send and isinstance(error, TypeError | ValueError):
            raise _refused(workers, error) from error
        where = "on this machine, and RAY_ADDRESS names none" if address == "auto" else f"at {address!r}"
        first_line = str(error).strip().partition("\n")[0]
        # Something answers there, but Ray is refused.
        token = " If it asks for a token, set RAY_AUTH_MODE=token here as well." * (type(error) is ConnectionError)
        raise WorkerStartError(
            f"RayWorkers has found no Ray cluster {where} ({type(error).__name__}: {first_line}). Start one "
            f"(`ray start --head`, and on the other machines `ray start --address=HOST:6379`), or call ray.init() "
            f"before the loader starts.{token}"
        ) from error
    return ray


def _sent_by_job(workers: RayWorkers) -> dict[str, Any]:
    """What of the runtime environment is sent when a process connects: files, not addresses of stored ones."""
    environment = workers.runtime_env or {}
    return {
        name: environment[name]
        for name in _SENT_BY_JOBS
        if name in environment and "://" not in str(environment[name])
    }


def _place_of(address: str, ray: Any) -> tuple[str, str]:
    """Host and port, with the host as a number, which is that of this machine for each of its names."""
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError):
        host = socket.gethostbyname(host.strip("[]"))
    return (str(ray.util.get_node_ip_address()) if host.startswith("127.") else host), port


def _require_answer(address: str) -> None:
    """Raise an OSError where nothing answers at an address: Ray would try for minutes, and end the process."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), _LONGEST_CONNECT_S).close()


def made_actors(workers: RayWorkers, numbers: Iterable[int] | None = None) -> dict[int, Any]:
    """Have actors started in the cluster to which this process is connected; None: as many as the settings say."""
    ray = _imported_ray()
    options: dict[str, Any] = {"num_cpus": workers.num_cpus, "max_restarts": -1, "scheduling_strategy": "SPREAD"}
    sent = _sent_by_job(workers)
    of_actors = {name: value for name, value in (workers.runtime_env or {}).items() if name not in sent}
    if of_actors:
        options["runtime_env"] = of_actors
    try:
        remote = ray.remote(LoadingActor).options(**options)
        return {number: remote.remote(number) for number in numbers or range(workers.num_actors)}
    except (TypeError, ValueError) as error:
        raise _refused(workers, error) from error


def _refused(workers: RayWorkers, error: Exception) -> SettingError:
    return SettingError(f"Ray refuses `runtime_env={shown(workers.runtime_env)}`: {error}")


def _of_pool(ask: Callable[[], Any]) -> Any:
    """Get what the keeper of a pool answers."""
    ray = _imported_ray()
    try:
        return ray.get(ask())
    except ray.exceptions.ActorDiedError as error:
        problem = "The RayPool was closed, or the process that has made it has ended"
        raise ClosedError(f"{problem}. Make another one.") from error


class PoolKeeper:
    """Runs in an actor of its own, and owns the actors of a pool."""

    def __init__(self, workers: RayWorkers) -> None:
        """Have the actors started."""
        self._workers = workers
        self._handles = made_actors(workers)
        self._next = len(self._handles)

    def members(self) -> dict[int, Any]:
        """Get the handles of the actors, by number."""
        return self._handles

    def resize(self, num_actors: int) -> None:
        """Have actors started or ended; a number is never used again."""
        missing = num_actors - len(self._handles)
        if missing > 0:
            self._handles.update(made_actors(self._workers, range(self._next, self._next + missing)))
            self._next += missing
        for number in sorted(self._handles)[num_actors:]:
            _imported_ray().kill(self._handles.pop(number))


class RayPool:
    """Actors that several loaders use, in this process or in others: ``RayWorkers(pool=pool)``.

    It can be sent to tasks and actors of Ray, e.g. to the workers of Ray Train. If actors are ended or added
    (`resize`), loaders continue with those that exist, also in the middle of an epoch. The actors end with the
    process that has made the pool, or with `close`.

    Example::

        pool = RayPool(RayWorkers(num_actors=16))
        loader = DataLoader(provider, batch_size=4, workers=RayWorkers(pool=pool))
    """

    def __init__(self, workers: RayWorkers) -> None:
        """Have the actors started.

        Args:
            workers: How many actors, and which.

        Raises:
            SettingError: It is something else, or the runtime environment cannot be used.
            WorkerStartError: There is no cluster at the address, or it starts nothing.
        """
        if not isinstance(workers, RayWorkers) or workers.pool is not None:
            raise SettingError(f"`workers` must be a RayWorkers without a pool, got {shown(workers)}.")
        ray = connected_ray(workers)
        # On the machine of this process: a machine that leaves the cluster takes the actors along that are on it.
        strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=True
        )
        keepers = ray.remote(PoolKeeper).options(num_cpus=0, scheduling_strategy=strategy)
        for num_left in reversed(range(_MOST_STARTS)):
            self._keeper = keepers.remote(workers)
            try:
                ray.get(self._keeper.members.remote())
                break
            except ray.exceptions.RayError as error:  # Ray may have asked a machine that is gone for its process
                if not num_left:
                    raise WorkerStartError(f"The pool of actors could not be started: {error}") from error

    def members(self) -> Any:
        """Get a reference of Ray to the handles of the actors, by number."""
        return self._keeper.members.remote()

    def resize(self, num_actors: int) -> None:
        """Add or end actors, so that there are so many.

        Raises:
            ClosedError: The pool was closed.
            SettingError: It is no whole number of at least 1.
        """
        count = whole_number(num_actors, "num_actors", at_least=1)
        _of_pool(lambda: self._keeper.resize.remote(count))

    def close(self) -> None:
        """End the actors."""
        ray = _imported_ray()
        if ray.is_initialized():
            ray.kill(self._keeper)


@attrs.define(eq=False)
class Actor:
    """An actor of a loader.

    Attributes:
        handle: Ray's handle.
        facts: What it says of itself; None until it has said so.
        num_replaced: How often it was started anew.
    """

    handle: Any
    facts: ActorFacts | None = None
    num_replaced: int = 0


class Actors:
    """The actors of a loader, which outlive its pipelines.

    Ray starts one that has died anew, on any machine with room, and those for which there is none when there is.
    They belong to this process: when it ends, however it does, Ray ends them. Those of a pool belong to that.

    Attributes:
        ray: Ray.
        by_number: The actors.
        most_lost: How many may be lost, in all; None: any number.
        num_lost: How many have died, or were ended since they did not answer or stood still.
        suspects: Batches at which actors were lost, see `Dispatch`.
    """

    def __init__(self, workers: RayWorkers, most_lost: int | None) -> None:
        """Set up; nothing is started."""
        self.workers, self.most_lost, self.num_lost = workers, most_lost, 0
        self.suspects: dict[Position, collections.Counter[int]] = {}
        self.ray: Any = None
        self.by_number: dict[int, Actor] = {}

    def start(self) -> None:
        """Connect, and have the actors started, where that was not done before."""
        self.ray = connected_ray(self.workers)
        if not self.by_number:
            pool = self.workers.pool
            self.set_members(made_actors(self.workers) if pool is None else _of_pool(pool.members))

    def set_members(self, handles: Mapping[int, Any]) -> tuple[set[int], set[int]]:
        """Set which actors there are; return the numbers of those that are new, and that are gone."""
        new, gone = handles.keys() - self.by_number.keys(), self.by_number.keys() - handles.keys()
        self.by_number.update({number: Actor(handles[number]) for number in new})
        return new, gone

    def replace(self, number: int) -> None:
        """Have an actor ended that does not answer; Ray starts it anew."""
        actor = self.by_number[number]
        facts, actor.facts = actor.facts, None
        with contextlib.suppress(Exception):  # it may have ended by itself meanwhile
            # One that is stopped is ended by Ray only after some seconds.
            if facts is not None:
                where = self.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(facts.node, soft=False)
                remote = self.ray.remote(end_process)
                remote.options(num_cpus=0, max_retries=0, scheduling_strategy=where).remote(facts.pid)
            else:
                self.ray.kill(actor.handle, no_restart=False)

    def close(self) -> None:
        """End the actors."""
        actors, self.by_number = self.by_number, {}
        if self.workers.pool is None and self.ray is not None and self.ray.is_initialized():
            for actor in actors.values():
                with contextlib.suppress(Exception):
                    self.ray.kill(actor.handle)

    # --- the cluster ------------------------------------------------------------------------------

    def node(self) -> str:
        """The node of this process, by Ray's number."""
        return str(self.ray.get_runtime_context().get_node_id())

    def store_sizes(self) -> dict[str, int]:
        """Size of the object store of each node that is alive, in bytes."""
        return {
            node["NodeID"]: int(node["Resources"].get("object_store_memory", 0))
            for node in self.ray.nodes()
            if node["Alive"]
        }

    def waits_for(self) -> str:
        """Say what actors wait for that have not started; empty where there is room for one."""
        cpus = self.workers.num_cpus
        sizes = [node["Resources"].get("CPU", 0.0) for node in self.ray.nodes() if node["Alive"]]
        free = self.ray.available_resources().get("CPU", 0.0)
        if cpus > max(sizes, default=0.0):
            return (
                f"each actor takes num_cpus={cpus:g}, and no machine of the cluster has so many: "
                f"{len(sizes)} machine(s) with {', '.join(f'{size:g}' for size in sizes)} CPUs"
            )
        if cpus > free:
            of_all = f"of the {sum(sizes):g} CPUs of the cluster {free:g} are free"
            return f"each actor takes num_cpus={cpus:g}, and {of_all}"
        return ""

    def is_impossible(self) -> bool:
        """Whether no machine of the cluster has room for an actor, whatever else runs there."""
        sizes = [node["Resources"].get("CPU", 0.0) for node in self.ray.nodes() if node["Alive"]]
        return self.workers.num_cpus > max(sizes, default=0.0)


def difference_of(facts: ActorFacts, own: Callable[[], Mapping[str, str]] = own_values) -> str:
    """What an actor has in other versions than this process; empty for nothing."""
    mine = own()
    lines = [
        f"{name}: {facts.values.get(name)} there, {value} here"
        for name, value in mine.items()
        if facts.values.get(name) != value
    ]
    return "; ".join(lines)
