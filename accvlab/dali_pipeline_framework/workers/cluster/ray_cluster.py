# SPDX-License-Identifier: Apache-2.0
"""The connection of this process to a Ray cluster. Ray is imported when it is needed."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Mapping
from typing import Any

from ...checks import shown
from ...errors import MissingPackageError, SettingError, WorkerStartError
from .ray_settings import RayWorkers

_LONGEST_CONNECT_S = 5.0
_SENT_BY_JOBS = "py_modules", "working_dir"  # of a runtime environment: files are not sent for single actors
_sent: Mapping[str, Any] = {}  # when this process was connected here


def connected_ray(settings: RayWorkers) -> Any:
    """Connect this process to the cluster, unless it is connected; return Ray.

    Raises:
        MissingPackageError: Ray is not installed.
        SettingError: The runtime environment has what is sent when a process connects, and this one has connected.
        WorkerStartError: There is no cluster at the address, or the process is connected by Ray Client.
    """
    global _sent
    try:
        import ray
        from ray.util.client import ray as client
    except ImportError as error:
        raise MissingPackageError(
            f"Loading in a Ray cluster needs the package ray ({error}). Install the extra `ray`: "
            f"pip install 'accvlab.dali_pipeline_framework[ray]'."
        ) from error
    given, to_send = settings.address, sent_by_job(settings)
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


def sent_by_job(settings: RayWorkers) -> dict[str, Any]:
    """What of the runtime environment is sent when a process connects: files, not addresses of stored ones."""
    environment = settings.runtime_env or {}
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


def refused_environment(settings: RayWorkers, error: Exception) -> SettingError:
    """Make the error for a runtime environment that Ray does not take."""
    return SettingError(f"Ray refuses `runtime_env={shown(settings.runtime_env)}`: {error}")


def connection_of(ray: Any) -> tuple[str, str] | None:
    """Identify the connection of this process: nodes and jobs have new numbers each time; None: there is none."""
    if not ray.is_initialized():  # most functions of Ray would start a cluster
        return None
    context = ray.get_runtime_context()
    return context.get_node_id(), context.get_job_id()


def missing_room(ray: Any, num_cpus: float) -> tuple[str, bool]:
    """Say why the cluster has no room for an actor (empty: it has), and whether it can never have."""
    sizes = [node["Resources"].get("CPU", 0.0) for node in ray.nodes() if node["Alive"]]
    free = ray.available_resources().get("CPU", 0.0)
    if num_cpus > max(sizes, default=0.0):
        have = f"{len(sizes)} machine(s) with {', '.join(f'{size:g}' for size in sizes)} CPUs"
        return f"each actor takes num_cpus={num_cpus:g}, and no machine of the cluster has so many: {have}", True
    if num_cpus > free:
        of_all = f"of the {sum(sizes):g} CPUs of the cluster {free:g} are free"
        return f"each actor takes num_cpus={num_cpus:g}, and {of_all}", False
    return "", False
