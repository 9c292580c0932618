"""The examples of training loops, killed by SIGKILL and resumed, deliver and lose what they do without a kill."""

from __future__ import annotations

from pathlib import Path

import pytest
from kill_and_resume import SCRIPTS, TrainingLoop
from loops import LOOPS, TABLE, find_difference, row


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "loop",
    [
        pytest.param(loop, id=f"{loop.name}-{loop.ranks}-{loop.kills}", marks=[pytest.mark.wide] * (number > 0))
        for number, loop in enumerate(LOOPS)
    ],
)
def test_a_killed_loop_goes_on_bit_for_bit(loop: TrainingLoop, tmp_path: Path) -> None:
    found = find_difference(loop, tmp_path)
    assert found.is_none, found
    assert row(loop, found) in TABLE.rows(), "run `loops.py`, which writes the table"


def test_the_table_has_a_row_per_example() -> None:
    scripts = {path.name for path in SCRIPTS.glob("train_*.py")}
    assert scripts == {loop.script for loop in LOOPS}
    assert [cells[0].split(",")[0] for cells in TABLE.rows()] == [loop.name for loop in LOOPS]
