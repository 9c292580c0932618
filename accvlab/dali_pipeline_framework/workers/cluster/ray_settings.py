# SPDX-License-Identifier: Apache-2.0
"""Settings of loading in a Ray cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import attrs
from attrs.validators import optional

from ...checks import number, shown, valid, whole_number
from ...errors import SettingError
from ...unknown_arguments import explains_unknown_arguments

_MOST_ACTORS = 1024
_MOST_AHEAD = 4096


def _check_address(settings: object, field: object, address: Any) -> None:
    is_string = isinstance(address, str) and not address.startswith("ray://")  # of which batches cannot be read
    if address is not None and not (is_string and re.fullmatch(r".+:\d+|auto|local", address)):
        raise SettingError(f"`address` must be HOST:PORT of a Ray cluster, or None, got {shown(address)}.")


def _check_runtime_env(settings: object, field: object, value: Any) -> None:
    if value is not None and not isinstance(value, Mapping):
        raise SettingError(f"`runtime_env` must be a dict, a runtime environment of Ray, got {shown(value)}.")


@explains_unknown_arguments
@attrs.frozen
class RayWorkers:
    """Actors of a Ray cluster that load, in place of worker processes: ``DataLoader(..., workers=RayWorkers())``.

    The batches are the same, bit for bit, for any number of actors, and with worker processes. A state that was
    saved with actors can be resumed with worker processes, and the reverse.

    Attributes:
        num_actors: Number of actors. If the cluster has no room for some of them, they join as soon as it has.
        num_cpus: CPUs of the cluster that each of them takes.
        address: Address of the cluster, ``HOST:PORT``. None: the cluster to which this process is connected, else
            the address in ``RAY_ADDRESS``, else the cluster on this machine.
        batches_ahead: How many batches are requested ahead at most; fewer where they would take more than
            ``prefetch_bytes`` of the loader, or half of the object store. None: ``prefetch_queue_depth`` of the
            loader where that is given, else four per actor, or more where batches have few samples.
        runtime_env: Packages and variables of the actors, as a runtime environment of Ray, e.g.
            ``{"env_vars": {"NAME": "value"}}``, or ``{"py_modules": ["path/of/my_package"]}``. Files are sent only
            if this process connects to the cluster itself, not if it was connected before.
        start_within_s: How many seconds to wait for the first actor.

    Raises:
        SettingError: A value is out of its range.
    """

    num_actors: int = attrs.field(default=8, validator=valid(whole_number, at_least=1, at_most=_MOST_ACTORS))
    num_cpus: float = attrs.field(default=1.0, validator=valid(number, at_least=0))
    address: str | None = attrs.field(default=None, validator=_check_address)
    batches_ahead: int | None = attrs.field(
        default=None, validator=optional(valid(whole_number, at_least=1, at_most=_MOST_AHEAD))
    )
    runtime_env: Mapping[str, Any] | None = attrs.field(default=None, validator=_check_runtime_env)
    start_within_s: float = attrs.field(default=60.0, validator=valid(number, above=0))
