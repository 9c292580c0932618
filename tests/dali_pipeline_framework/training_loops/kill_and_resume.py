"""Kills the loops of `examples/dali_pipeline_framework/training_loops` and resumes them.

What they then deliver is compared with a run that nothing disturbs.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from support.child_processes import end_with_stacks
from support.ranks import start_ranks

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = ROOT / "examples" / "dali_pipeline_framework" / "training_loops"
RANK = Path(__file__).with_name("rank.py")
NUM_EVALUATED = 10  # frames of the validation set of `tiny_drives`
sys.path.append(str(SCRIPTS))  # what the server of the scripts imports is there, too
_TIME_LIMIT_S = 100  # of a part, which takes seconds where nothing else runs


@attrs.frozen
class TrainingLoop:
    """One of the examples.

    Attributes:
        name: The framework, as the table names it.
        script: The script.
        saved_by: What saves and loads the state of the loader, for the table.
        ranks: Number of ranks at first, after the first kill, and so on.
        imports: What the server of the scripts imports for it.
    """

    name: str
    script: str
    saved_by: str
    ranks: tuple[int, ...]
    imports: tuple[str, ...]

    @property
    def kills(self) -> list[int]:
        """Steps behind which it is killed, one per resume; of each framework others."""
        random = np.random.default_rng(zlib.crc32(self.name.encode()))
        num_kills = len(self.ranks) - 1
        bounds = np.linspace(5, 17, num_kills + 1).astype(int)  # of 18 steps; the first checkpoint is behind 4
        return [int(random.integers(*bounds[number : number + 2])) for number in range(num_kills)]


@attrs.frozen
class Step:
    """A step, over all ranks: for each slot of the batch its sample, a hash of its pixels, and its loss."""

    ids: tuple[int, ...]
    pixels: tuple[str, ...]
    losses: tuple[float, ...]


@attrs.frozen
class Part:
    """What was logged between start and end, or kill.

    Attributes:
        steps: By their number.
        evaluations: By epoch: the frames that were evaluated, over all ranks.
    """

    steps: Mapping[int, Step]
    evaluations: Mapping[int, Sequence[int]]


@attrs.frozen
class Difference:
    """How a run that was killed and resumed differs from one that was not.

    Attributes:
        num_repeated: Steps that were done again, since they were done after the last checkpoint.
        loss: Largest difference of the loss of a sample.
        num_samples: Slots of batches with other samples.
        num_images: Slots of batches with other pixels, of the same samples or of others.
        num_compared: Slots of batches compared.
        wrongly_evaluated: Frames of evaluations that were not evaluated, or more than once.
    """

    num_repeated: int
    loss: float
    num_samples: int
    num_images: int
    num_compared: int
    wrongly_evaluated: int

    @property
    def is_none(self) -> bool:
        """Whether there is none."""
        return (self.loss, self.num_samples, self.num_images, self.wrongly_evaluated) == (0, 0, 0, 0)


class LogReader:
    """Reads what ranks have added to their logs."""

    def __init__(self, folder: Path) -> None:
        """Keep the folder of the logs."""
        self._folder = folder
        self._num_read: dict[Path, int] = {}

    def next_part(self) -> Part:
        """What was added since the last call."""
        steps: dict[int, dict[int, Any]] = {}
        evaluations: dict[int, list[int]] = {}
        for path in sorted(self._folder.glob("log_rank*.jsonl")):
            lines = path.read_text().splitlines()
            for line in map(json.loads, lines[self._num_read.get(path, 0) :]):
                if "step" in line:
                    ranks = steps.setdefault(line["step"], {})
                    assert line["rank"] not in ranks, "a step came twice without a break"
                    ranks[line["rank"]] = line
                else:
                    evaluations.setdefault(line["evaluation"], []).extend(line["ids"])
            self._num_read[path] = len(lines)
        return Part({number: _merged(ranks) for number, ranks in steps.items()}, evaluations)


def _merged(ranks: Mapping[int, Any]) -> Step:
    """A step of all ranks; each has the slots of the batch behind those of the rank before."""
    lines = [ranks[rank] for rank in sorted(ranks)]
    assert sorted(ranks) == list(range(lines[0]["num_ranks"])), "not all ranks have done the step"
    return Step(
        tuple(each for line in lines for each in line["ids"]),
        tuple(each for line in lines for each in line["pixels"]),
        tuple(float.fromhex(each) for line in lines for each in line["losses"]),
    )


def run_part(loop: TrainingLoop, folder: Path, num_ranks: int, kill_at: int | None) -> None:
    """Run a script to its end, or until it is killed.

    Raises:
        AssertionError: It ended in another way, or left processes.
    """
    marks = [folder / f"waits_rank{rank}" for rank in range(num_ranks)]
    for mark in marks:
        mark.unlink(missing_ok=True)
    command = [SCRIPTS / loop.script, kill_at, folder, "--folder", folder, "--num-workers", 0]
    ranks = start_ranks(RANK, command, num_ranks, loop.imports)
    deadline = time.monotonic() + _TIME_LIMIT_S
    try:
        while None in [rank.poll() for rank in ranks]:
            if time.monotonic() > deadline:
                end_with_stacks(rank.pid for rank in ranks)
                raise AssertionError(f"{loop.script} hangs:\n{printed_in(folder)}")
            if any(rank.returncode for rank in ranks) or all(mark.exists() for mark in marks):
                for rank in ranks:
                    rank.kill()
            time.sleep(0.005)
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
    expected = 0 if kill_at is None else -signal.SIGKILL
    assert [rank.returncode for rank in ranks] == [expected] * num_ranks, f"{loop.script}:\n{printed_in(folder)}"
    assert all(has_ended(rank.pid) for rank in ranks), f"{loop.script} left worker processes"


def printed_in(folder: Path) -> str:
    """The ends of what ranks have printed."""
    return "\n".join(path.read_text()[-4000:] for path in sorted(folder.glob("output_rank*.txt")))


def has_ended(group: int) -> bool:
    """Whether a group of processes ends within seconds."""
    for _ in range(1000):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    os.killpg(group, signal.SIGKILL)
    return False


def run(loop: TrainingLoop, folder: Path) -> list[Part]:
    """Train; be killed and resume, on each number of ranks of the loop."""
    log, parts = LogReader(folder), []
    for num_ranks, kill_at in zip(loop.ranks, [*loop.kills, None], strict=True):
        run_part(loop, folder, num_ranks, kill_at)
        parts.append(log.next_part())
    return parts


def difference(undisturbed: Part, parts: Sequence[Part]) -> Difference:
    """Compare a run in parts with one that nothing disturbed.

    Raises:
        AssertionError: Steps are left out, or a part does not go on where there was a checkpoint.
    """
    done = {number for part in parts for number in part.steps}
    assert done == set(undisturbed.steps) == set(range(1, len(done) + 1)), "steps are missing"
    assert all(min(part.steps) > 1 for part in parts[1:]), "a run began anew"
    loss, num_samples, num_images, num_compared = 0.0, 0, 0, 0
    for part in parts:
        for number, step in part.steps.items():
            there = undisturbed.steps[number]
            assert len(step.ids) == len(there.ids), "a batch has another size"
            num_compared += len(step.ids)
            num_samples += sum(map(int.__ne__, step.ids, there.ids))
            num_images += sum(map(str.__ne__, step.pixels, there.pixels))
            loss = max(loss, *(abs(a - b) for a, b in zip(step.losses, there.losses, strict=True)))
    assert {epoch for part in parts for epoch in part.evaluations} == set(undisturbed.evaluations)
    counts = [
        np.bincount(ids, minlength=NUM_EVALUATED)
        for part in [undisturbed, *parts]
        for ids in part.evaluations.values()
    ]
    return Difference(
        num_repeated=sum(len(part.steps) for part in parts) - len(done),
        loss=loss,
        num_samples=num_samples,
        num_images=num_images,
        num_compared=num_compared,
        wrongly_evaluated=sum(int(np.abs(count - 1).sum()) for count in counts),
    )
