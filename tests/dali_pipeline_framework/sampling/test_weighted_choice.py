"""Draws by weight that are computed one by one."""

from __future__ import annotations

import math
import pickle
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.chi_square import FAR_OUT, chi_square_deviate
from support.split_mix import key_with_first_number

from accvlab.dali_pipeline_framework.draws.keyed_draws import derive_key, random_uniform
from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.sampling.arithmetic.weights import WeightedChoice, checked_weights

WEIGHTS = st.lists(st.just(0.0) | st.floats(0, 1) | st.floats(0, 1.7e308), min_size=1, max_size=30).filter(any)
KEYS = st.integers(0, 2**64 - 1)


def draw_at(choice: WeightedChoice, part: float) -> int:
    """The item at a part of the total in [0, 1), through the random numbers."""
    key = key_with_first_number(int(part * 2**53) << 11)
    assert random_uniform(key, [0]).tolist() == [part]
    return int(choice.draw(key, np.array([0]))[0])


class TestFrequencies:
    @pytest.mark.parametrize(
        "weights",
        [
            [1, 1],
            [3, 1],
            [1, 2, 3, 4],
            [0.001, 1, 0.01],
            list(range(1, 101)),
            [1e-320, 2e-320, 1e-320],
            [1e308] * 7,
        ],
    )
    def test_follow_the_weights(self, weights: list[float]) -> None:
        num_draws = 200_000
        parts = np.array(weights) / max(weights)
        items = WeightedChoice(weights).draw(derive_key("test", len(weights)), np.arange(num_draws))
        assert items.dtype == np.int64
        counts = np.bincount(items, minlength=len(weights))
        assert chi_square_deviate(counts, num_draws * parts / parts.sum()) < FAR_OUT

    @given(weights=WEIGHTS, key=KEYS)
    @settings(deadline=None)
    def test_items_without_weight_are_never_drawn(self, weights: list[float], key: int) -> None:
        choice = WeightedChoice(weights)
        items = [*choice.draw(key, np.arange(200)).tolist(), draw_at(choice, 0.0), draw_at(choice, 1 - 2**-53)]
        assert all(weights[item] > 0 for item in items)


class TestThresholds:
    def test_are_exact(self) -> None:
        # Total 8: the items 1, 3 and 4 begin at 0, 1/8 and 4/8.
        choice = WeightedChoice([0, 1, 0, 3, 4, 0])
        step = 2**-53
        parts = [0.0, 1 / 8 - step, 1 / 8, 1 / 8 + step, 1 / 2 - step, 1 / 2, 1 - step]
        assert [draw_at(choice, part) for part in parts] == [1, 1, 3, 3, 3, 4, 4]

    @given(weights=WEIGHTS, scale=st.integers(-30, 30))
    @settings(deadline=None)
    def test_do_not_depend_on_the_scale(self, weights: list[float], scale: int) -> None:
        smaller = [weight * 1e-10 for weight in weights]
        if not any(smaller):
            return
        scaled = [math.ldexp(weight, scale) for weight in smaller]
        if all(weight == math.ldexp(back, -scale) for weight, back in zip(smaller, scaled, strict=True)):
            items = WeightedChoice(smaller).draw(3, np.arange(50))
            assert WeightedChoice(scaled).draw(3, np.arange(50)).tolist() == items.tolist()

    def test_a_weight_that_vanishes_in_the_sum_is_not_drawn_in_place_of_the_last(self) -> None:
        assert draw_at(WeightedChoice([1.0, 1e-30, 0.0]), 1 - 2**-53) == 0


class TestRandomAccess:
    @given(weights=WEIGHTS, key=KEYS, counters=st.lists(st.integers(0, 2**62), max_size=10))
    @settings(deadline=None)
    def test_each_draw_is_a_function_of_key_and_counter(
        self, weights: list[float], key: int, counters: list[int]
    ) -> None:
        choice = WeightedChoice(weights)
        one_by_one = [choice.draw(key, np.array([counter])).tolist() for counter in counters]
        assert [[item] for item in choice.draw(key, np.array(counters, dtype=np.int64)).tolist()] == one_by_one

    def test_ten_pinned_numbers(self) -> None:
        # The draws are part of the contract: a change of them changes everybody's runs.
        choice = WeightedChoice([1, 0, 2, 5, 0.5])
        assert choice.draw(derive_key("test", 0), np.arange(10)).tolist() == [0, 0, 3, 3, 3, 3, 3, 3, 2, 2]
        many = WeightedChoice(np.arange(1_000_000))
        expected = [710272, 915442, 929604, 817633, 250307, 522487, 997377, 788131, 835696, 418725]
        assert many.draw(derive_key("test", 0), np.arange(10) + 2**40).tolist() == expected

    def test_a_copy_in_another_process_draws_the_same_and_weighs_8_bytes_per_item(self) -> None:
        choice = WeightedChoice(np.arange(10_000))
        items = choice.draw(9, np.arange(50)).tolist()
        sent = pickle.dumps(choice)
        assert len(sent) < 8 * 10_000 + 1000
        assert pickle.loads(sent).draw(9, np.arange(50)).tolist() == items


class TestCheckedWeights:
    @pytest.mark.parametrize("weights", [np.array([1, 0, 3.0]), [Fraction(1), Decimal(0), 3]], ids=repr)
    def test_numbers_of_any_kind_are_copied(self, weights: Any) -> None:
        for expected_count in (3, None):
            checked = checked_weights(weights, expected_count)
            assert checked.dtype == np.float64
            assert checked.tolist() == [1.0, 0.0, 3.0]
            assert not np.may_share_memory(checked, np.asarray(weights))

    @pytest.mark.parametrize(
        ("weights", "message"),
        [
            ([1, 2], "`weights` must have 3 weights, one per item, got 2"),
            ([1, -2, 3], r"but weights\[1\] is -2\.0\."),
            ([1, math.nan, -1], r"but weights\[1\] is nan \(and 1 more are wrong\)"),
            ([1, None, 2], r"but weights\[1\] is nan"),
            ([0, 0, 0.0], "`weights` must not all be 0: with these 3 weights"),
            ([[1, 2, 3]], r"shape \(N,\) with N > 0, got shape \(1, 3\)"),
            (3.0, r"shape \(N,\) with N > 0, got shape \(\)"),
            (["1", "2", "3"], r"`weights` must be a sequence of numbers, got \['1', '2', '3'\]"),
            ([1, 2j, 3], "`weights` must be a sequence of numbers"),
            ([1, 10**400, 3], "`weights` must be a sequence of numbers"),
        ],
    )
    def test_bad_weights_are_refused(self, weights: Any, message: str) -> None:
        with pytest.raises(SettingError, match=message):
            checked_weights(weights, 3)
