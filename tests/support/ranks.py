"""Ranks of a training: processes with the environment that `torchrun` would give them."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from support.child_processes import communicate, run_process
from support.scripts import Script, start_script


def start_ranks(
    script: Path, arguments: Sequence[object], num_ranks: int, modules: tuple[str, ...] = ("torch.distributed",)
) -> list[Script]:
    """Run a script on each of several ranks, each the first process of a group of its own.

    Args:
        modules: What the server of the scripts has imported for them.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        rendezvous = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    count = {"WORLD_SIZE": str(num_ranks), "LOCAL_WORLD_SIZE": str(num_ranks), "GLOO_SOCKET_IFNAME": "lo"}
    ranks = []
    for rank in map(str, range(num_ranks)):
        environment = {**os.environ, **rendezvous, **count, "RANK": rank, "LOCAL_RANK": rank}
        command = [str(each) for each in arguments]
        ranks.append(start_script(script, command, env=environment, start_new_session=True, modules=modules))
    return ranks


def torchrun(script: Path, arguments: Sequence[object], num_ranks: int) -> Any:
    """Have `torchrun` run a script to its end."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={num_ranks}"]
    # The launcher has no rank itself, and finds all modules that this process finds.
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    environment |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return run_process([sys.executable, *launcher, script, *arguments], env=environment, timeout=100)


def run_ranks(script: Path, arguments: Sequence[object], num_ranks: int) -> list[str]:
    """What a script prints on each rank.

    Raises:
        AssertionError: A rank failed, or did not end in time.
    """
    ranks = start_ranks(script, arguments, num_ranks)
    try:
        printed = [communicate(rank, 50) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.wait() for rank in ranks] == [0] * num_ranks, printed
    return [stdout for stdout, _ in printed]
