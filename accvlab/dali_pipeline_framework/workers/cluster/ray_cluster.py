# SPDX-License-Identifier: Apache-2.0
"""The connection of this process to a Ray cluster. Ray is imported when it is needed."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from typing import Any

from ...checks import shown
from ...errors import MissingPackageError, SettingError, WorkerStartError
from .ray_settings import RayWorkers

_LONGEST_CONNECT_S = 5.0
_sent: Any = None  # the last connection that was made here, and its runtime environment


def connected_ray(settings: RayWorkers) -> Any:
    """Connect this process to the cluster, unless it is connected; return Ray.

    Raises:
        MissingPackageError: Ray is not installed.
        SettingError: Ray refuses the runtime environment.
        WorkerStartError: There is no cluster at the address, or the process is connected by Ray Client.
    """
    global _sent
    try:
        import ray
        from ray.util.client import ray as client
    except ImportError as error:
        raise MissingPackageError(
            f"Loading in a Ray cluster needs the package ray ({error}). Install it: pip install ray."
        ) from error
    if client.is_connected():
        raise WorkerStartError(
            "This process is connected by Ray Client (ray://...), which cannot read the object store of the "
            "cluster. Run the program on a machine of the cluster."
        )
    if ray.is_initialized():
        given, connected_to = settings.address, str(ray.get_runtime_context().gcs_address)
        if given not in (None, "auto", connected_to) and _place_of(given, ray) != _place_of(connected_to, ray):
            raise WorkerStartError(
                f"RayWorkers has the address {given!r}, and this process is connected to the cluster at "
                f"{connected_to!r} already. Leave the address out, or connect to the other one before."
            )
        return ray
    address = settings.address or os.environ.get("RAY_ADDRESS") or "auto"
    try:
        _require_answer(address)
        ray.init(address=address, logging_level=logging.WARNING, runtime_env={**(settings.runtime_env or {})})
        _sent = connection_of(ray), settings.runtime_env
    except (Exception, SystemExit) as error:  # Ray raises many kinds
        if settings.runtime_env and isinstance(error, TypeError | ValueError):
            raise refused_environment(settings, error) from error
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


def environment_to_send(settings: RayWorkers, ray: Any) -> dict[str, Any]:
    """Get options of actors with their runtime environment, unless this process was connected with it."""
    environment = settings.runtime_env
    return {"runtime_env": {**environment}} if environment and _sent != (connection_of(ray), environment) else {}


def refused_environment(settings: RayWorkers, error: Exception) -> SettingError:
    """Make the error for a runtime environment that Ray does not take."""
    return SettingError(
        f"Ray refuses `runtime_env={shown(settings.runtime_env)}`: {error} Files are sent only when a process "
        f"connects: give them to `ray.init(runtime_env=...)`, or to the first RayWorkers."
    )


def connection_of(ray: Any) -> tuple[str, str] | None:
    """Identify the connection of this process: nodes and jobs have new numbers each time; None: there is none."""
    if not ray.is_initialized():  # most functions of Ray would start a cluster
        return None
    context = ray.get_runtime_context()
    return context.get_node_id(), context.get_job_id()


def described_room(ray: Any, num_cpus: float) -> tuple[str, bool]:
    """Say which room the cluster has for an actor, and whether it can ever have enough."""
    sizes = [node["Resources"].get("CPU", 0.0) for node in ray.nodes() if node["Alive"]]
    free = ray.available_resources().get("CPU", 0.0)
    have = (
        f"{len(sizes)} machine(s) with {', '.join(f'{size:g}' for size in sizes)} CPUs, of which {free:g} are free"
    )
    return f"each actor takes num_cpus={num_cpus:g}, and there are {have}", num_cpus <= max(sizes, default=0.0)
