"""Workers that are killed at random moments: the stream is the undisturbed one, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest
from random_kills import run_with_kills


@pytest.mark.parametrize(
    ("seed", "start_method", "num_workers", "num_kills"),
    [
        pytest.param(1, "spawn", 1, 2, marks=pytest.mark.wide),
        (2, "forkserver", 2, 3),
        *[pytest.param(seed, "spawn", 1 + seed % 3, 10, marks=pytest.mark.wide) for seed in range(100, 106)],
        *[pytest.param(seed, "fork", 1 + seed % 3, 20, marks=pytest.mark.wide) for seed in range(200, 207)],
    ],
)
@pytest.mark.timeout(300)
def test_the_stream_is_the_undisturbed_one(
    tmp_path: Path, seed: int, start_method: str, num_workers: int, num_kills: int
) -> None:
    run_with_kills(tmp_path, seed, start_method, num_workers, num_kills)
