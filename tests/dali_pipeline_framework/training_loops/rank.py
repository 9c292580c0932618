"""A rank of a training loop, which waits for its kill behind a step, see `kill_and_resume`::

python rank.py SCRIPT STEP FOLDER ARGUMENTS...
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
import time
from pathlib import Path
from typing import Any


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


def main(script: str, step: str, folder: str, *arguments: str) -> None:
    rank = os.environ["RANK"]
    output = os.open(f"{folder}/output_rank{rank}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(output, stream)
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).parent))
    if step != "None":
        wait_behind(int(step), Path(folder, f"waits_rank{rank}"))
    runpy.run_path(script, run_name="__main__")
    for file in (sys.stdout, sys.stderr):
        file.flush()
    os._exit(0)  # to free what was imported takes seconds


if __name__ == "__main__":
    main(*sys.argv[1:])
