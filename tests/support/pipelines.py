"""Short ways to make and read pipelines.

Scripts and spawned workers import this, so it imports no more than it needs.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from accvlab.dali_pipeline_framework.inputs import ShuffledShardedInputCallable
from accvlab.dali_pipeline_framework.pipeline import DALIStructuredOutputIterator, PipelineDefinition

# What they fork has their command line.
_SERVERS = (b"multiprocessing.forkserver", b"support/script_server.py")


def make_iterator(
    data_input: Any,
    steps: Iterable[Any] = (),
    definition: dict[str, Any] | None = None,
    iterator: dict[str, Any] | None = None,
    **pipeline: Any,
) -> DALIStructuredOutputIterator:
    """Make an iterator with NumPy output; one forked worker unless told otherwise."""
    pipeline = {"num_threads": 2, "py_num_workers": 1, **pipeline}
    made = PipelineDefinition(data_input, [*steps], **(definition or {})).get_dali_pipeline(**pipeline)
    return DALIStructuredOutputIterator(None, made, **{"output_type": "numpy", **(iterator or {})})


def shuffled(provider: Any, batch_size: int = 4, **arguments: Any) -> ShuffledShardedInputCallable:
    """Input that delivers the samples in order unless told otherwise."""
    return ShuffledShardedInputCallable(provider, batch_size, **arguments)


def indices(iterator: Iterable[Any], max_batches: int | None = None) -> list[list[int]]:
    """The field ``index`` of each batch."""
    batches = []
    for batch in iterator:
        batches.append(np.asarray(batch["index"]).tolist())
        if len(batches) == max_batches:
            break
    return batches


def worker_pids() -> list[int]:
    """Processes below this one that are alive, without the helpers of `multiprocessing`."""
    # Each test asks twice; psutil, which looks through all processes, would take half a minute of the suite.
    found, parents = [], [os.getpid()]
    while parents:
        parent = parents.pop()
        with contextlib.suppress(FileNotFoundError):  # the process has ended meanwhile
            for thread in os.listdir(f"/proc/{parent}/task"):
                pids = [int(pid) for pid in _read(f"/proc/{parent}/task/{thread}/children").split()]
                parents += pids
                found += [pid for pid in pids if _is_alive(pid) and not _is_helper(pid, parent)]
    return found


def _is_alive(pid: int) -> bool:
    return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[:1] not in ([], [b"Z"])


def _is_helper(pid: int, parent: int) -> bool:
    command = _read(f"/proc/{pid}/cmdline")
    if any(server in command for server in _SERVERS):
        of_parent = _read(f"/proc/{parent}/cmdline")
        return any(server in command and server not in of_parent for server in _SERVERS)
    return b"resource_tracker" in command


def _read(path: str) -> bytes:
    """What the kernel says; nothing about a process or thread that has ended."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError):
        return b""
