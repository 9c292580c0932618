"""The examples of training loops, killed by SIGKILL and resumed, deliver and lose what they do without a kill."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
from kill_and_resume import SCRIPTS, Part, RankServer, TrainingLoop, difference, run_killed, run_undisturbed
from loops import KILLED_ONCE, LOOPS, NO_WORKERS, find_difference, row, rows_of_page


@pytest.fixture(scope="module")
def undisturbed(server: RankServer, tmp_path_factory: pytest.TempPathFactory) -> Part:
    """What the first loop of a server does, on one rank, where nothing disturbs it."""
    first = next(loop for loop in LOOPS if loop.imports == server.imports)
    folder = tmp_path_factory.mktemp("undisturbed")
    return run_undisturbed(server, attrs.evolve(first, ranks=(1,)), folder, *NO_WORKERS)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("server", "loop"),
    [
        pytest.param(
            loop.imports,
            loop,
            id=f"{loop.name}-{loop.ranks}-{loop.kills}",
            marks=[pytest.mark.wide] if loop.name != "Lightning" else [],
        )
        for loop in KILLED_ONCE
    ],
    indirect=["server"],
    scope="module",
)
def test_each_framework_killed_once_does_what_the_first_does_undisturbed(
    server: RankServer, loop: TrainingLoop, undisturbed: Part, tmp_path: Path
) -> None:
    found = difference(undisturbed, run_killed(server, loop, tmp_path, *NO_WORKERS))
    assert found.num_resumes == 1
    assert found.is_none, found


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("server", "loop"),
    [
        pytest.param(
            loop.imports,
            loop,
            id=f"{loop.name}-{loop.kills}",
            marks=[pytest.mark.wide] if loop is not LOOPS[0] else [],
        )
        for loop in LOOPS
    ],
    indirect=["server"],
    scope="module",
)
def test_a_killed_loop_goes_on_bit_for_bit(server: RankServer, loop: TrainingLoop, tmp_path: Path) -> None:
    found = find_difference(server, loop, tmp_path)
    assert found.is_none, found
    assert row(loop, found) in rows_of_page(), "run `loops.py`, which writes the table"


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
def test_the_comparison_sees_what_differs(undisturbed: Part) -> None:
    assert difference(undisturbed, [undisturbed]).is_none
    epochs = [Part({step: undisturbed.steps[first + step] for step in range(1, 7)}, {}) for first in (0, 6)]
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
    steps = undisturbed.steps
    once, twice = Part(steps, {0: range(10)}), Part(steps, {0: [*range(9), 3]})
    assert difference(once, [twice]).wrongly_evaluated == 2


def test_the_table_has_a_row_per_example() -> None:
    scripts = {path.name for path in SCRIPTS.glob("train_*.py")}
    assert scripts == {loop.script for loop in LOOPS}
    assert [line.split(",")[0] for line in rows_of_page()] == [f"| {loop.name}" for loop in LOOPS]
