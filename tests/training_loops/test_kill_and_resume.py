"""The examples of training loops, killed by SIGKILL and resumed, deliver and lose what they do without a kill."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
from kill_and_resume import SCRIPTS, Part, RankServer, TrainingLoop, difference, run_undisturbed
from loops import LOOPS, find_difference, row, rows_of_page


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("server", "loop"),
    [pytest.param(loop.imports, loop, id=f"{loop.name}-{loop.kills}") for loop in LOOPS],
    indirect=["server"],
    scope="module",
)
def test_a_killed_loop_goes_on_bit_for_bit(server: RankServer, loop: TrainingLoop, tmp_path: Path) -> None:
    found = find_difference(server, loop, tmp_path)
    assert found.is_none, found
    assert row(loop, found) in rows_of_page(), "run `tests/training_loops/loops.py`, which writes the table"


OTHERS = [attrs.evolve(loop, seed=seed) for loop in LOOPS for seed in (1, 2, 3)]


@pytest.mark.wide
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("server", "loop"),
    [pytest.param(loop.imports, loop, id=f"{loop.name}-{loop.kills}") for loop in OTHERS],
    indirect=["server"],
    scope="module",
)
def test_it_does_so_behind_other_steps(server: RankServer, loop: TrainingLoop, tmp_path: Path) -> None:
    found = find_difference(server, loop, tmp_path)
    assert found.is_none, found


@pytest.mark.parametrize("server", [LOOPS[0].imports], ids=[LOOPS[0].name], indirect=True, scope="module")
def test_the_comparison_sees_what_differs(server: RankServer, tmp_path: Path) -> None:
    loop = LOOPS[0]
    whole = run_undisturbed(server, loop, tmp_path, "--num-workers", "0")
    assert difference(whole, [whole]).is_none
    epochs = [Part({step: whole.steps[first + step] for step in range(1, 7)}, {}) for first in (0, 6)]
    pixels = [
        {key: image for step in epoch.steps.values() for key, image in zip(step.ids, step.pixels, strict=True)}
        for epoch in epochs
    ]
    both = pixels[0].keys() & pixels[1].keys()
    assert len(both) > 20
    assert all(pixels[0][key] != pixels[1][key] for key in both)  # each epoch has other crops and colours
    found = difference(epochs[0], [epochs[1]])
    assert found.num_samples > 20
    assert found.num_images == found.num_compared == 24
    assert found.loss > 0
    once, twice = Part(whole.steps, {0: range(10)}), Part(whole.steps, {0: [*range(9), 3]})
    assert difference(once, [twice]).wrongly_evaluated == 2


def test_the_table_has_a_row_per_example() -> None:
    scripts = {path.name for path in SCRIPTS.glob("train_*.py")}
    assert scripts == {loop.script for loop in LOOPS}
    assert [line.split(",")[0] for line in rows_of_page()] == [f"| {loop.name}" for loop in LOOPS]
