"""The examples of training loops, killed by SIGKILL and resumed, deliver and lose what they do without a kill."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from kill_and_resume import SCRIPTS, RankServer, TrainingLoop, difference, run_undisturbed
from loops import LOOPS, find_difference, row, rows_of_page

StartServer = Callable[[Sequence[str]], RankServer]


@pytest.fixture(scope="module")
def server_of() -> Iterator[StartServer]:
    servers: dict[Sequence[str], RankServer] = {}

    def start(imports: Sequence[str]) -> RankServer:
        if imports not in servers:
            servers[imports] = RankServer(imports)
        return servers[imports]

    yield start
    for server in servers.values():
        server.close()


@pytest.mark.parametrize("loop", [pytest.param(loop, id=f"{loop.name}-{loop.kills}") for loop in LOOPS])
def test_a_killed_loop_goes_on_bit_for_bit(loop: TrainingLoop, server_of: StartServer, tmp_path: Path) -> None:
    found = find_difference(server_of(loop.imports), loop, tmp_path)
    assert found.is_none, found
    assert row(loop, found) in rows_of_page(), "run `tests/training_loops/loops.py`, which writes the table"


def test_the_table_has_a_row_per_example() -> None:
    scripts = {path.name for path in SCRIPTS.glob("train_*.py")}
    assert scripts == {loop.script for loop in LOOPS}
    assert [line.split(",")[0] for line in rows_of_page()] == [f"| {loop.name}" for loop in LOOPS]


def test_the_comparison_sees_another_order_and_other_pixels(server_of: StartServer, tmp_path: Path) -> None:
    """What the table says is 0 is not so for other training: each epoch draws another order, and other changes."""
    loop = LOOPS[0]
    whole = run_undisturbed(server_of(loop.imports), loop, tmp_path, "--num-workers", "0")
    first, second = ({number: whole.steps[number + first] for number in range(1, 7)} for first in (0, 6))
    ids, pixels = ([dict(zip(step.ids, step.pixels, strict=True)) for step in epoch.values()] for epoch in (first, second))
    assert ids != pixels
    found = difference(_Part(first), [_Part(second)])
    assert found.num_samples > 20 and found.num_images == 24 and found.loss > 0
