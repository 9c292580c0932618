"""Workers that are killed at random moments: the stream is the undisturbed one, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest
from random_kills import run_with_kills


@pytest.mark.parametrize(
    ("start_method", "num_kills"),
    [("fork", 10), *(pytest.param(method, 5, marks=pytest.mark.wide) for method in ("forkserver", "spawn"))],
)
@pytest.mark.timeout(300)
def test_the_stream_is_the_undisturbed_one(tmp_path: Path, start_method: str, num_kills: int) -> None:
    run_with_kills(tmp_path, 1, start_method, 2, num_kills)


@pytest.mark.wide
@pytest.mark.parametrize("samples", ["raise", "replace"])
@pytest.mark.parametrize("num_workers", [1, 2, 4])
@pytest.mark.parametrize(
    ("start_method", "num_kills", "num_stops"), [("fork", 75, 8), ("forkserver", 40, 4), ("spawn", 10, 2)]
)
@pytest.mark.timeout(600)
def test_in_a_storm_as_well(
    tmp_path: Path, start_method: str, num_kills: int, num_stops: int, num_workers: int, samples: str
) -> None:
    """750 workers are killed, and 84 are stopped."""
    run_with_kills(tmp_path, num_workers, start_method, num_workers, num_kills, num_stops, samples, 0.05)
