"""The schedule of a mixture: never more than two positions away from the rates, at any position."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.laws import examples

from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.sampling.mixed_sampler import MixtureSchedule


def normalised(weights: Sequence[int] | Sequence[float]) -> list[float]:
    total = math.fsum(weights)
    return [weight / total for weight in weights]


few = st.lists(st.integers(1, 60), min_size=1, max_size=6).map(normalised)
many = st.lists(st.integers(1, 3), min_size=20, max_size=300).map(normalised)
skewed = st.lists(st.floats(-6, 0).map(lambda power: 10**power), min_size=1, max_size=12).map(normalised)
crowded = st.builds(
    lambda count, one: normalised([*[1] * count, one]), st.integers(1, 400), st.integers(1, 60_000)
)
any_rates = few | many | skewed | crowded


def assert_bound(schedule: MixtureSchedule, num_positions: int) -> None:
    """Every prefix of the first positions, in whole numbers."""
    period = schedule.period
    bound = Fraction(min(schedule.num_components - 1, 4), 2) * period
    components, ranks = schedule.locate(np.arange(num_positions))
    lengths = np.arange(num_positions + 1)
    for component, rate in enumerate(schedule.rates):
        is_its = components == component
        counts = np.concatenate([[0], np.cumsum(is_its)])
        assert np.abs(counts * period - lengths * int(rate * period)).max() <= bound
        assert ranks[is_its].tolist() == list(range(counts[-1]))


class TestLaw:
    @given(rates=any_rates)
    @settings(deadline=None, max_examples=examples(8, 40))
    def test_each_prefix_is_near_the_rates(self, rates: list[float]) -> None:
        schedule = MixtureSchedule(rates)
        assert_bound(schedule, min(2 * schedule.period, schedule.period + 1000))

    @given(rates=any_rates, first=st.integers(0, 2**62))
    @settings(deadline=None, max_examples=examples(8, 40))
    def test_periods_have_exactly_the_rates_also_far_away(self, rates: list[float], first: int) -> None:
        schedule = MixtureSchedule(rates)
        components, ranks = schedule.locate(np.arange(schedule.period))
        counts = np.bincount(components, minlength=len(rates))
        assert counts.tolist() == [rate * schedule.period for rate in schedule.rates]
        positions = first + np.arange(5)
        periods, places = np.divmod(positions, schedule.period)
        found, found_ranks = schedule.locate(positions)
        assert (found.dtype, found_ranks.dtype) == (np.int64, np.int64)
        assert found.tolist() == components[places].tolist()
        assert found_ranks.tolist() == (ranks[places] + periods * counts[found]).tolist()

    def test_ten_pinned_numbers(self) -> None:
        # The order is part of the contract: a change of it changes everybody's runs.
        schedule = MixtureSchedule([0.5, 0.3, 0.2])
        components, ranks = schedule.locate(np.arange(10))
        assert components.tolist() == [0, 1, 0, 2, 0, 1, 0, 2, 0, 1]
        assert ranks.tolist() == [0, 0, 1, 0, 2, 1, 3, 1, 4, 2]
        components, ranks = MixtureSchedule([0.1, 0.4, 0.2, 0.3]).locate(np.arange(10))
        assert components.tolist() == [1, 2, 3, 1, 3, 0, 1, 3, 2, 1]
        assert ranks.tolist() == [0, 0, 0, 1, 1, 0, 2, 2, 1, 3]
        of_first, of_second = 2850178705790063296, 1761507312637324599
        components, ranks = MixtureSchedule([0.6180339887, 0.3819660113]).locate(np.arange(10) + 2**62 - 9)
        assert components.tolist() == [0, 1, 0, 1, 0, 0, 1, 0, 0, 1]
        assert (ranks - np.where(components == 0, of_first, of_second)).tolist() == [0, 0, 1, 1, 2, 3, 2, 4, 5, 3]

    def test_one_component_has_all(self) -> None:
        schedule = MixtureSchedule([1])
        assert schedule.period == 1
        components, ranks = schedule.locate(np.array([0, 7, 2**62]))
        assert (components.tolist(), ranks.tolist()) == ([0, 0, 0], [0, 7, 2**62])
        assert [each.tolist() for each in schedule.locate(np.arange(0))] == [[], []]


class TestRates:
    @pytest.mark.parametrize(
        ("rates", "shares"),
        [
            # fractions are kept
            ([0.1] * 10, [1] * 10),
            ([0.5, 0.25, 0.25], [2, 1, 1]),
            ([0.333, 0.333, 0.334], [333, 333, 334]),
            ([Fraction(1, 65536), Fraction(65535, 65536)], [1, 65535]),
            (np.array([0.75, 0.25], dtype=np.float32), [3, 1]),
            (normalised([1] * 4096), [1] * 4096),
            ([1 / 3 + 9e-10, 2 / 3 - 9e-10], [1, 2]),
            # others are rounded
            ([1 / 3 + 1.1e-9, 2 / 3 - 1.1e-9], [21845, 43691]),
            ([1e-7, 1 - 1e-7], [1, 65536]),
            ([1 / np.pi, 1 - 1 / np.pi], [20861, 44675]),
            ([Fraction(1, 100003), Fraction(100002, 100003)], [1, 65535]),
            ([0.5 - 1e-7, 0.5 - 1e-7, 1e-7, 5e-8, 5e-8], [32768, 32768, 1, 1, 1]),
            # Not the fractions that were meant, since they do not add up to 1, but near them.
            ([0.5 + 5e-7, 0.5], [1, 1]),
            ([1 / 3 + 5e-8, 1 / 3, 1 / 3], [1, 1, 1]),
            ([1 + 5e-7], [1]),
        ],
    )
    def test_are_kept_or_rounded(self, rates: Sequence[float], shares: list[int]) -> None:
        schedule = MixtureSchedule(rates)
        assert (schedule.period, schedule.num_components) == (sum(shares), len(rates))
        assert schedule.rates == tuple(Fraction(share, sum(shares)) for share in shares)

    @given(rates=any_rates)
    @settings(deadline=None, max_examples=examples(6, 60))
    def test_rates_add_up_to_one_and_are_near_those_asked_for(self, rates: list[float]) -> None:
        schedule = MixtureSchedule(rates)
        assert sum(schedule.rates) == 1
        assert schedule.period <= 65536 + len(rates)
        least = Fraction(1, 65536 + len(rates))
        for kept, rate in zip(schedule.rates, rates, strict=True):
            assert kept >= least
            assert abs(kept - Fraction(rate)) < (1 + len(rates) * Fraction(rate)) / 60_000

    @pytest.mark.parametrize(
        ("rates", "message"),
        [
            ([], "from 1 to 65536 rates, got 0"),
            ([1 / 65537] * 65537, "from 1 to 65536 rates, got 65537"),
            ([0.5, 0.4], r"sum 1 \(within 1e-06\), got 2 rate\(s\) with the sum 0\.9\. .* divide each by the sum"),
            ([0.5, 0.500002], r"with the sum 1\.000002"),
            ([1.5, -0.5], r"above 0, got -0\.5"),
            ([1.0, 0], r"above 0, got 0.*Leave out"),
            ([math.nan, 1.0], r"rates\[0\]` must be a number above 0, got nan"),
            ([True], r"rates\[0\]` must be a number above 0, got True"),
            (["0.5", "0.5"], r"rates\[0\]` must be a number above 0, got '0.5'"),
            ("1", "sequence of numbers above 0, got '1'"),
            (1.0, r"sequence of numbers above 0, got 1\.0"),
        ],
    )
    def test_bad_rates_are_refused(self, rates: Any, message: str) -> None:
        with pytest.raises(SettingError, match=message):
            MixtureSchedule(rates)
