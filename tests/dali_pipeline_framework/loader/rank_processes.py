"""Ranks in processes of the fork server, which has imported PyTorch already: that takes longer than their work."""

from __future__ import annotations

import multiprocessing
import os
import socket
import time
import traceback
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from support.child_processes import end_with_stacks, join


def run_ranks(num_ranks: int, function: Callable[..., Any], *arguments: Any, timeout: float = 50) -> list[Any]:
    """What a function of a module returns on each of several ranks.

    They have the environment that `torchrun` would give them; warnings are errors.

    Raises:
        AssertionError: A rank failed, or did not end in time.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("forkserver")
    deadline = time.monotonic() + timeout
    ranks = []
    try:
        for rank in range(num_ranks):
            answer, told = context.Pipe(duplex=False)
            process = context.Process(target=_be_rank, args=(told, rank, num_ranks, port, function, arguments))
            ranks.append((process, answer))
            process.start()
            told.close()
        results = []
        for rank, (process, answer) in enumerate(ranks):
            if not answer.poll(max(0.0, deadline - time.monotonic())):
                end_with_stacks(process.pid for process, _ in ranks)
                raise AssertionError(f"rank {rank} hangs")
            result, failure = answer.recv()
            assert failure is None, f"rank {rank}:\n{failure}"
            results.append(result)
            join([process], max(0.0, deadline - time.monotonic()))
            assert process.exitcode == 0, f"rank {rank} ended with {process.exitcode}"
    finally:
        for process, answer in ranks:
            if process.is_alive():
                process.kill()
                process.join()
            answer.close()
    return results


def _be_rank(
    told: Connection, rank: int, num_ranks: int, port: int, function: Callable[..., Any], arguments: Any
) -> None:
    number, count = str(rank), str(num_ranks)
    os.environ |= {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    warnings.simplefilter("error")
    warnings.filterwarnings("ignore", "unclosed <socket", ResourceWarning)
    warnings.filterwarnings("ignore", "`(py_)?num_workers=", UserWarning)
    try:
        told.send((function(*arguments), None))
    except Exception:
        told.send((None, traceback.format_exc()))
