"""Runs training scripts on ranks that it forks, and kills them at a step.

    python rank_server.py MODULE [MODULE ...]

The modules are imported once, which takes longer than a training here. Each line of standard input is a `Job`, as
JSON; the answer is a line of JSON: the exit codes of the ranks, and what they printed where one failed.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import attrs


@attrs.frozen
class Job:
    """What ranks run.

    Attributes:
        script: The training script.
        arguments: What it is called with.
        folder: Where what it prints goes.
        num_ranks: How many processes run it, with the environment that `torchrun` would give them.
        port: Of their rendezvous.
        kill_at: Step behind which all ranks are killed, as soon as each has logged it; None: they run to the end.
        time_limit_s: After so long, ranks that still run are killed.
    """

    script: str
    arguments: list[str]
    folder: str
    num_ranks: int
    port: int
    kill_at: int | None
    time_limit_s: float


def be_rank(job: Job, rank: int) -> None:
    """Run the script; this process is one of its ranks, and the first of a group of its own."""
    os.setsid()
    output = os.open(_output(job, rank), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    number, count = str(rank), str(job.num_ranks)
    os.environ |= {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(job.port)}
    sys.argv = [job.script, *job.arguments]
    sys.path.insert(0, str(Path(job.script).parent))
    if job.kill_at is not None:
        wait_behind(job.kill_at, _mark(job, rank))
    runpy.run_path(job.script, run_name="__main__")


def wait_behind(step: int, mark: Path) -> None:
    """Have the log of steps wait for the kill when it has written a step."""
    step_log: Any = importlib.import_module("step_log").StepLog
    write_step = step_log.write_step

    def write_and_wait(log: Any, number: int, *values: Any) -> None:
        write_step(log, number, *values)
        if number == step:
            mark.touch()
            time.sleep(600)

    step_log.write_step = write_and_wait


def run(job: Job) -> dict[str, Any]:
    """Fork the ranks, kill them when that is due, and wait for them."""
    ranks = range(job.num_ranks)
    marks = [_mark(job, rank) for rank in ranks]
    for mark in marks:
        mark.unlink(missing_ok=True)
    pids = [fork_rank(job, rank) for rank in ranks]
    exit_codes: dict[int, int] = {}
    deadline = time.monotonic() + job.time_limit_s
    is_over = False
    while len(exit_codes) < job.num_ranks:
        for pid in set(pids) - set(exit_codes):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                exit_codes[pid] = os.waitstatus_to_exitcode(status)
        has_failed = any(exit_codes.values())
        is_over = is_over or time.monotonic() > deadline
        if is_over or has_failed or all(mark.exists() for mark in marks):
            for pid in set(pids) - set(exit_codes):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
    left = [pid for pid in pids if not _has_ended(pid)]
    for pid in left:
        os.killpg(pid, signal.SIGKILL)
    codes = [exit_codes[pid] for pid in pids]
    fine = [0 if job.kill_at is None else -signal.SIGKILL] * job.num_ranks
    printed = "" if codes == fine else "\n".join(_output(job, rank).read_text()[-4000:] for rank in ranks)
    return {"exit_codes": codes, "is_over": is_over, "num_left": len(left), "printed": printed}


def fork_rank(job: Job, rank: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        be_rank(job, rank)
        status = 0
    except SystemExit as ending:
        status = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except BaseException:
        traceback.print_exc()
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


def _has_ended(group: int) -> bool:
    """Whether the workers of a rank end within seconds after it."""
    for _ in range(1000):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    return False


def _output(job: Job, rank: int) -> Path:
    return Path(job.folder) / f"output_rank{rank}.txt"


def _mark(job: Job, rank: int) -> Path:
    return Path(job.folder) / f"waits_rank{rank}"


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for name in sys.argv[1:]:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # else each rank would look at what was imported, and so get a copy of it
    for line in sys.stdin:
        print(json.dumps(run(Job(**json.loads(line)))), file=answers, flush=True)
    os._exit(0)  # to free what was imported takes seconds
