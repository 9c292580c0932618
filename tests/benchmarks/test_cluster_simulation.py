"""The simulation predicts what arithmetic says where one thing limits the rate."""

from __future__ import annotations

import pytest
from cluster_simulation import Costs, samples_per_s


def test_processors_limit_the_rate() -> None:
    for num_actors in (1, 4, 16):
        rate = samples_per_s(Costs(0.05, 1e6), num_actors, network_gb_per_s=10)
        assert rate == pytest.approx(num_actors / 0.05, rel=0.1)
    rate = samples_per_s(Costs(0.02, 1e8, send_core_s_per_gb=0.3), 2, network_gb_per_s=1000, step_s=0)
    assert rate == pytest.approx(2 / 0.05, rel=0.1)


@pytest.mark.parametrize("num_actors", [32, 128])
def test_the_network_limits_the_rate(num_actors: int) -> None:
    rate = samples_per_s(Costs(0.01, 5e6), num_actors, network_gb_per_s=1)
    assert rate == pytest.approx(200, rel=0.05)  # more actors do not lower it


def test_the_loop_limits_the_rate() -> None:
    assert samples_per_s(Costs(0.01, 1e5), 16, network_gb_per_s=10, step_s=0.1) == pytest.approx(80, rel=0.05)


def test_a_short_window_leaves_actors_without_work() -> None:
    few = samples_per_s(Costs(0.05, 1e6), 8, network_gb_per_s=10, batches_ahead=4)
    assert few == pytest.approx(4 / 0.05, rel=0.25)
