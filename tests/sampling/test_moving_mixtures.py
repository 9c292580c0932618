"""Mixtures whose rates change: near the integral of the rates everywhere, in exact passes of each source."""

from __future__ import annotations

import decimal
import itertools
import json
import math
import pickle
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.laws import examples
from support.providers import IndexProvider

from accvlab.dali_pipeline_framework import DataLoader, MixedSampler, RateCurve, ShuffledSampler
from accvlab.dali_pipeline_framework.errors import SettingError, StateError
from accvlab.dali_pipeline_framework.sampling.arithmetic.moving_schedule import MovingSchedule, _Tree

ROOT = Path(__file__).parents[2]


@st.composite
def curves(draw: Any) -> RateCurve:
    num_components = draw(st.sampled_from([1, 2, 3, 4, 5, 8, 9, 40]))
    last = draw(st.sampled_from([3, 60, 5000, 2**40]))
    steps = sorted(draw(st.sets(st.integers(0, last), min_size=1, max_size=4)))
    weights = st.lists(st.sampled_from([0, 0, 1, 2, 5, 1000]), min_size=num_components, max_size=num_components)
    knots = [draw(weights) for _ in steps]
    for component in range(num_components):
        if not any(knot[component] for knot in knots):
            knots[draw(st.integers(0, len(knots) - 1))][component] = 3
    for knot in knots:
        knot[0] += not any(knot)
    return RateCurve(
        knots=[(step, [weight / sum(knot) for weight in knot]) for step, knot in zip(steps, knots, strict=True)],
        interpolation=draw(st.sampled_from(["linear", "constant"])),
        num_per_step=draw(st.sampled_from([1, 1, 3])),
    )


def integrals(schedule: MovingSchedule, position: int) -> list[Fraction]:
    """Of the rates of each component up to a position, by the trapezoids between knots."""
    knots = list(schedule.rates)
    knots = [(0, knots[0][1]), *knots] if knots[0][0] else knots
    totals = [Fraction(0)] * schedule.num_components
    is_linear = schedule.curve.interpolation == "linear"
    for number, (start, rates) in enumerate(knots):
        end, next_rates = knots[number + 1] if number + 1 < len(knots) else (position, rates)
        time = min(position, end) - start
        if time <= 0:
            break
        for component, (rate, next_rate) in enumerate(zip(rates, next_rates, strict=True)):
            growth = (next_rate - rate) / (end - start) if is_linear else Fraction(0)
            totals[component] += rate * time + growth * time**2 / 2
    return totals


def rounded_part(tree: _Tree, node: int, clock: int) -> int:
    """How many of the first positions of a node go left: the integral of the left one at their time, rounded."""
    wanted, sums = 2 * tree.whole * clock, tree.sums[node].tolist()
    piece = max(number for number, total in enumerate(sums) if total <= wanted)
    left, length = int(tree.left[node]), int(tree.lengths[piece])
    share, growth = int(tree.shares[node, piece]), int(tree.growth[node, piece])
    own_share, own_growth = int(tree.shares[left, piece]), int(tree.growth[left, piece])
    with decimal.localcontext(decimal.Context(prec=120)):
        rest = decimal.Decimal(wanted - sums[piece])
        root = (decimal.Decimal(share) ** 2 + rest * growth / length).sqrt()
        time = rest / (share + root) if share + root else decimal.Decimal(0)
        twice = int(tree.sums[left, piece]) + 2 * own_share * time + own_growth * time * time / length
        part = (twice + tree.whole) / (2 * tree.whole)
        return math.floor(part.quantize(decimal.Decimal(10) ** -60))


class TestLaw:
    @given(curve=curves(), first=st.sampled_from([0, 0, 0, 40, 4980, 2**40 - 50, 2**62 - 200]))
    @settings(deadline=None, max_examples=examples(15, 400))
    def test_counts_stay_near_the_integral_of_the_rates(self, curve: RateCurve, first: int) -> None:
        schedule = MovingSchedule(curve)
        bound = math.ceil(math.log2(schedule.num_components)) / 2
        assert schedule.largest_deviation == bound
        counts = schedule.counts(first)
        components, ranks = schedule.locate(np.arange(first, first + 150))
        for number, (component, rank) in enumerate(zip(components.tolist(), ranks.tolist(), strict=True)):
            assert rank == counts[component]
            counts[component] += 1
            if number % 7 == 0:
                wanted = integrals(schedule, first + number + 1)
                assert max(abs(int(c) - w) for c, w in zip(counts, wanted, strict=True)) <= bound
        assert schedule.counts(first + 150).tolist() == counts.tolist()

    @given(curve=curves(), positions=st.lists(st.integers(0, 2**62), min_size=1, max_size=20))
    @settings(deadline=None, max_examples=examples(8, 200))
    def test_any_position_at_any_time(self, curve: RateCurve, positions: list[int]) -> None:
        schedule = MovingSchedule(curve)
        together = schedule.locate(np.array(positions))
        copied = pickle.loads(pickle.dumps(schedule))
        for number, position in enumerate(positions):
            alone = copied.locate(np.array([position]))
            assert (alone[0][0], alone[1][0]) == (together[0][number], together[1][number])
            assert copied.counts(position)[alone[0][0]] == alone[1][0]

    def test_square_roots_in_doubt_are_compared_as_whole_numbers(self) -> None:
        """A ramp of 2**44 positions: float64 knows a time to 0.004 only, and many integrals are whole there."""
        curve = RateCurve(knots=[(0, [0.5, 0.25, 0.25]), (2**44, [0, 0.75, 0.25])])
        schedule = MovingSchedule(curve)
        for position in (2**43 + 1, 2**44 - 3, 2**20):
            wanted = integrals(schedule, position)
            counts = schedule.counts(position).tolist()
            assert max(abs(c - w) for c, w in zip(counts, wanted, strict=True)) <= 1
            assert [counts[0] + counts[1], counts[2]] == [
                math.floor(wanted[0] + wanted[1] + Fraction(1, 2)),
                position - math.floor(wanted[0] + wanted[1] + Fraction(1, 2)),
            ]

    @given(curve=curves(), data=st.data())
    @settings(deadline=None, max_examples=examples(12, 300))
    def test_parts_of_a_node_are_rounded_exactly(self, curve: RateCurve, data: Any) -> None:
        """Beside the same in decimal numbers of 120 digits."""
        tree = MovingSchedule(curve)._tree
        inner = np.flatnonzero(tree.left >= 0)
        if not len(inner):
            return
        nodes = np.array([data.draw(st.sampled_from(inner.tolist())) for _ in range(8)])
        last = tree.sums[nodes, -1] // (2 * tree.whole) + 40
        clocks = np.array([data.draw(st.integers(0, end)) for end in last.tolist()])
        counts = tree.num_left(nodes, clocks).tolist()
        assert counts == [rounded_part(tree, *each) for each in zip(nodes.tolist(), clocks.tolist(), strict=True)]

    @pytest.mark.parametrize(
        "knots",
        [
            [[0.5, 0.25, 0.25], [0, 0.75, 0.25]],
            [[0.1, 0.6, 0.3], [0.6, 0.1, 0.3]],
            [[0.5, 0.25, 0.25], [0, 0.25, 0.75]],
            [[0.1, 0.5, 0.4], [0.8, 0.1, 0.1]],
        ],
    )
    def test_long_ramps_are_rounded_exactly(self, knots: list[list[float]]) -> None:
        """In a ramp of 2**45 positions float64 knows a time to 0.008 only."""
        tree = MovingSchedule(RateCurve(knots=[*zip((0, 2**45), knots, strict=True)]))._tree
        rng = np.random.default_rng(0)
        for node in np.flatnonzero(tree.left >= 0).tolist():
            clocks = rng.integers(0, tree.sums[node, -1] // (2 * tree.whole), 800)
            counts = tree.num_left(np.full(800, node), clocks).tolist()
            assert counts == [rounded_part(tree, node, clock) for clock in clocks.tolist()]

    @given(curve=curves(), data=st.data())
    @settings(deadline=None, max_examples=examples(12, 300))
    def test_periods_behind_the_last_knot(self, curve: RateCurve, data: Any) -> None:
        """Going back by whole periods changes nothing."""
        schedule = MovingSchedule(curve)
        tree = schedule._tree
        periods = data.draw(st.integers(1, 3 * (tree.depth + 3)))
        first = int(tree.starts[-1]) + periods * tree.whole + data.draw(st.integers(-20, 20))
        positions = np.arange(max(first, 0), first + 60)
        components, ranks = schedule.locate(positions)
        counts = schedule.counts(first + 60)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_Tree, "within_one_period", lambda self, at: (at, np.zeros_like(at)))
            all_the_way = schedule.locate(positions)
            assert schedule.counts(first + 60).tolist() == counts.tolist()
        assert [components.tolist(), ranks.tolist()] == [each.tolist() for each in all_the_way]

    def test_ten_pinned_numbers(self) -> None:
        # The order is part of the contract: a change of it changes everybody's runs.
        schedule = MovingSchedule(RateCurve(knots=[(0, [0.8, 0.2, 0]), (20, [0, 0.5, 0.5])]))
        components, ranks = schedule.locate(np.arange(20))
        assert components.tolist() == [0, 0, 1, 0, 0, 1, 2, 0, 0, 1, 2, 0, 1, 1, 2, 0, 2, 1, 2, 1]
        assert ranks.tolist() == [0, 1, 0, 2, 3, 1, 0, 4, 5, 2, 1, 6, 3, 4, 2, 7, 3, 5, 4, 6]
        assert schedule.locate(np.arange(5) + 2**61)[0].tolist() == [1, 2, 1, 2, 1]
        assert schedule.counts(2**61).tolist() == [8, 1152921504606846973, 1152921504606846971]


class TestCurve:
    def test_rates(self) -> None:
        linear = RateCurve(knots=[(10, [1, 0]), (20, [0.5, 0.5])])
        assert [linear.rates_at(step) for step in (0, 15, 99)] == [(1, 0), (0.75, 0.25), (0.5, 0.5)]
        constant = attrs.evolve(linear, interpolation="constant")
        assert [constant.rates_at(step) for step in (0, 19, 20, 99)] == [(1, 0), (1, 0), (0.5, 0.5), (0.5, 0.5)]
        assert pickle.loads(pickle.dumps(linear)) == linear != constant
        assert MixedSampler([ShuffledSampler(3)] * 2, linear).rates == (1, 0)
        assert MixedSampler([ShuffledSampler(3)] * 2, linear).rates_at(15) == (0.75, 0.25)
        assert MixedSampler([ShuffledSampler(3)] * 2, [0.5, 0.5]).rates_at(15) == (0.5, 0.5)

    def test_functions_are_evaluated_on_a_grid(self) -> None:
        curve = RateCurve.of_function(lambda step: [1 / (1 + step), step / (1 + step)], last_step=7, every=3)
        assert [knot[0] for knot in curve.knots] == [0, 3, 6, 7]
        assert curve.knots[1] == (3, (0.25, 0.75))

    @pytest.mark.parametrize(
        ("knots", "kept"),
        [
            ([(0, [0.1, 0.9]), (9, [1 / 3, 2 / 3])], [[3, 27], [10, 20]]),
            ([(0, [1, 0]), (9, [1 / np.pi, 1 - 1 / np.pi])], [[65536, 0], [20861, 44675]]),
            ([(0, [1e-7, 1 - 1e-7])], [[1, 65535]]),
        ],
    )
    def test_rates_are_fractions_with_one_denominator(self, knots: Any, kept: list[list[int]]) -> None:
        schedule = MovingSchedule(RateCurve(knots=knots))
        whole = sum(kept[0])
        assert [[rate * whole for rate in rates] for _, rates in schedule.rates] == kept
        assert schedule.is_exact == (whole != 65536)

    @pytest.mark.parametrize(
        ("settings_", "message"),
        [
            ({"knots": []}, "at least one knot"),
            ({"knots": 3}, "`knots` must be pairs of a step and rates, got 3"),
            ({"knots": np.array(3)}, "`knots` must be pairs of a step and rates, got array"),
            ({"knots": [(0, np.array(1))]}, "must be a sequence of numbers, got array"),
            ({"knots": [(0, {0.3, 0.7})]}, "must be a sequence of numbers, got {0."),
            ({"knots": [(0, [1.0]), 5]}, "but knot 1 is 5"),
            ({"knots": [(0.5, [1.0])]}, r"`knots\[0\]\[0\]` must be a whole number of at least 0, got 0.5"),
            ({"knots": [(0, [1.0]), (0, [1.0])]}, "must ascend, but step 0 follows 0. For a jump"),
            ({"knots": [(0, [1.0]), (1, [0.5, 0.5])]}, "1 in knot 0, 2 in knot 1"),
            ({"knots": [(0, [0.5, 0.6])]}, r"must have the sum 1 .* got the sum 1.1 in knot 0"),
            ({"knots": [(0, [1.5, -0.5])]}, "numbers of at least 0, got -0.5"),
            ({"knots": [(0, [math.nan, 1])]}, "numbers of at least 0, got nan"),
            ({"knots": [(0, "1")]}, "must be a sequence of numbers, got '1'"),
            ({"knots": [(0, [])]}, "from 1 to 65536 rates, got 0"),
            ({"knots": [(0, [1, 0]), (9, [1, 0])]}, "Rate 1 is 0 at all `knots`. Leave out"),
            ({"knots": [(2**46, [1.0])]}, r"within 2\*\*45 samples"),
            ({"knots": [(2**40, [1.0])], "num_per_step": 64}, r"within 2\*\*45 samples"),
            ({"knots": [(0, [1.0])], "interpolation": "cubic"}, "'linear', 'constant', got 'cubic'"),
            ({"knots": [(0, [1.0])], "num_per_step": 0}, "`num_per_step` must be a whole number of at least 1"),
        ],
    )
    def test_bad_curves_are_refused(self, settings_: dict[str, Any], message: str) -> None:
        with pytest.raises(SettingError, match=message):
            RateCurve(**settings_)

    def test_one_rate_per_sampler(self) -> None:
        with pytest.raises(SettingError, match=r"one rate per sampler: got 1 rate.* for 2"):
            MixedSampler([ShuffledSampler(3)] * 2, RateCurve(knots=[(0, [1.0])]))


# --- in a sampler and a loader ---------------------------------------------------------------------------

CURVE = RateCurve(knots=[(0, [1, 0]), (5, [0.5, 0.5]), (9, [0.2, 0.8])], num_per_step=4)


def mixture(curve: RateCurve = CURVE) -> MixedSampler:
    parts = [ShuffledSampler(30, seed=1), ShuffledSampler(7, seed=2)]
    return MixedSampler(parts, curve, offsets=[0, 30], num_per_epoch=24)


def test_sources_go_through_whole_passes_while_the_rates_move() -> None:
    sampler = mixture().with_settings(total_batch_size=4)
    indices = np.concatenate(
        [sampler.get_batch_indices(epoch, batch) for epoch in range(12) for batch in range(6)]
    )
    day, night = indices[indices < 30], indices[indices >= 30]
    for own, size in ((day, 30), (night, 7)):
        passes = [sorted(own[first : first + size].tolist()) for first in range(0, len(own) - size + 1, size)]
        assert len(passes) > 1
        assert all(each == passes[0] for each in passes)
        assert len(set(passes[0])) == size
    # 20 positions at 0.75, 16 at 0.35, and 252 at 0.2 on average.
    assert abs(len(day) - (20 * 0.75 + 16 * 0.35 + 252 * 0.2)) <= 0.5


def loaded(sampler: MixedSampler, batch_size: int, state: Any = None, stop: int = 99, **options: Any) -> Any:
    options = {"num_workers": 0, "output_type": "numpy", **options}
    with DataLoader(IndexProvider(37), batch_size, sampler=sampler, **options) as loader:
        if state is not None:
            loader.load_state_dict(state)
        batches: list[list[int]] = []
        while loader.epoch < 2:
            for batch in loader:
                batches.append(np.ravel(batch["index"]).tolist())
                if len(batches) == stop:
                    return batches, loader.state_dict()
        return batches, None


def joined(batches: list[list[int]]) -> list[int]:
    return [*itertools.chain.from_iterable(batches)]


@pytest.mark.parametrize("stop", [2, 7])
def test_a_run_goes_on_with_other_batches_and_ranks(stop: int) -> None:
    whole = joined(loaded(mixture(), 4)[0])
    begun, state = loaded(mixture(), 4, stop=stop)
    assert joined(begun + loaded(mixture(), 4, state)[0]) == whole
    state = json.loads(json.dumps(state))
    assert joined(begun + loaded(mixture(), 2, state)[0]) == whole
    ranks = [loaded(mixture(), 2, state, shard=(rank, 2))[0] for rank in range(2)]
    assert joined(begun + [one + two for one, two in zip(*ranks, strict=True)]) == whole


def test_a_state_of_other_rates_is_refused() -> None:
    state = loaded(mixture(), 4, stop=2)[1]
    other = attrs.evolve(CURVE, interpolation="constant")
    with pytest.raises(StateError, match=r"rates: '0: 1, 0; 5: .*\(linear, 4 per step\)' in .*\(constant, 4 per"):
        loaded(mixture(other), 4, state)
    many = RateCurve(knots=[(step, [0.5 + step / 100, 0.5 - step / 100]) for step in range(40)])
    assert len(many.describe()) < 50
    with pytest.raises(StateError, match="rates: "):
        loaded(mixture(many), 4, state)


# --- the cost of many sources ----------------------------------------------------------------------------

_FOOTPRINT = """
import gc, json, os, sys
import numpy as np, psutil
from support.providers import IndexProvider
from accvlab.dali_pipeline_framework import ConcatDataProvider, DataLoader
from accvlab.dali_pipeline_framework import MixedSampler, RateCurve, ShuffledSampler

def measured(num_sources):
    size = 6400 // num_sources
    provider = ConcatDataProvider([IndexProvider(size) for _ in range(num_sources)])
    one = [1.0] + [0.0] * (num_sources - 1)
    curve = RateCurve(knots=[(0, one), (500, [1 / num_sources] * num_sources)])
    parts = [ShuffledSampler(size, seed=seed) for seed in range(num_sources)]
    sampler = MixedSampler(parts, curve, offsets=provider.offsets, num_per_epoch=400)
    options = {"num_workers": 2, "start_method": "fork", "output_type": "numpy"}
    with DataLoader(provider, 32, sampler=sampler, **options) as loader:
        for batch in loader:
            pass
        children = psutil.Process().children(recursive=True)
        memory = [process.memory_full_info().pss for process in (psutil.Process(), *children)]
        threads = [process.num_threads() for process in (psutil.Process(), *children)]
        return len(children), threads, sum(memory) / 2**20

measured(1)  # what is loaded once
print(json.dumps([measured(1), measured(64), measured(1)]))
"""


def test_64_sources_cost_no_more_processes_threads_or_memory_than_one() -> None:
    finished = subprocess.run(
        [sys.executable, "-c", _FOOTPRINT],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"},
    )
    one, many, again = json.loads(finished.stdout)
    assert many[:2] == one[:2] == again[:2]
    assert one[0] == 2
    assert many[2] - max(one[2], again[2]) < 4, (one, many, again)  # MiB, over all three processes
