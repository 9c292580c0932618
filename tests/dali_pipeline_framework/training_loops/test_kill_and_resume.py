"""The examples of training loops, killed by SIGKILL and resumed, deliver and lose what they do without a kill."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterable
from pathlib import Path

import attrs
import pytest
from kill_and_resume import SCRIPTS, Part, TrainingLoop, difference, run_killed, run_undisturbed
from loops import KILLED_ONCE, LOOPS, NO_WORKERS, TABLE, find_difference, row


@functools.cache
def undisturbed(imports: tuple[str, ...]) -> Part:
    """What the first loop with these imports does, on one rank, where nothing disturbs it."""
    first = next(loop for loop in LOOPS if loop.imports == imports)
    with tempfile.TemporaryDirectory() as folder:
        return run_undisturbed(attrs.evolve(first, ranks=(1,)), Path(folder), *NO_WORKERS)


def each_loop(loops: Iterable[TrainingLoop], quick: str) -> pytest.MarkDecorator:
    """Run a test with each loop; all but one are `wide`."""
    return pytest.mark.parametrize(
        "loop",
        [
            pytest.param(
                loop,
                id=f"{loop.name}-{loop.ranks}-{loop.kills}",
                marks=[] if (loop.name, loop.seed) == (quick, 0) else [pytest.mark.wide],
            )
            for loop in loops
        ],
    )


@pytest.mark.timeout(300)
@each_loop(KILLED_ONCE, "Lightning")
def test_each_framework_killed_once_does_what_the_first_does_undisturbed(
    loop: TrainingLoop, tmp_path: Path
) -> None:
    found = difference(undisturbed(loop.imports), run_killed(loop, tmp_path, *NO_WORKERS))
    assert found.num_resumes == 1
    assert found.is_none, found


@pytest.mark.timeout(300)
@each_loop([attrs.evolve(loop, seed=seed) for loop in LOOPS for seed in range(4)], "PyTorch")
def test_a_killed_loop_goes_on_bit_for_bit(loop: TrainingLoop, tmp_path: Path) -> None:
    found = find_difference(loop, tmp_path)
    assert found.is_none, found
    assert loop.seed or row(loop, found) in TABLE.rows(), "run `loops.py`, which writes the table"


def test_the_comparison_sees_what_differs() -> None:
    whole = undisturbed(LOOPS[0].imports)
    steps = whole.steps
    assert difference(whole, [whole]).is_none
    epochs = [Part({step: steps[first + step] for step in range(1, 7)}, {}) for first in (0, 6)]
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
    once, twice = Part(steps, {0: range(10)}), Part(steps, {0: [*range(9), 3]})
    assert difference(once, [twice]).wrongly_evaluated == 2


def test_the_table_has_a_row_per_example() -> None:
    scripts = {path.name for path in SCRIPTS.glob("train_*.py")}
    assert scripts == {loop.script for loop in LOOPS}
    assert [cells[0].split(",")[0] for cells in TABLE.rows()] == [loop.name for loop in LOOPS]
