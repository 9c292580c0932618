"""The numbers of draws: what they depend on, how they are distributed, and some that must never change."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from nvidia.dali import types
from support.chi_square import FAR_OUT, chi_square_deviate
from support.draws import SequenceInput
from support.laws import examples

from accvlab.dali_pipeline_framework.draws import FieldKey, IntegerDraw, NormalDraw, RandomDraw, UniformDraw
from accvlab.dali_pipeline_framework.draws.keyed_draws import SamplePlace, SampleSeeds
from accvlab.dali_pipeline_framework.draws.random_draws import KeyedDraws, PlannedDraw
from accvlab.dali_pipeline_framework.errors import SettingError

PATHS = [("index",), ("cameras", 0, "name")]


def planned(draw: RandomDraw, step: str = "Step", number: int = 0, group: tuple[Any, ...] = ()) -> PlannedDraw:
    return PlannedDraw(draw, step, number, group)


class Places:
    """An input that tells given places."""

    def __init__(self, *places: SamplePlace | None) -> None:
        self.places = places

    def get_place(self, info: types.SampleInfo) -> SamplePlace | None:
        return self.places[info.idx_in_batch]


def numbers(draws: list[PlannedDraw], places: list[SamplePlace], seed: int = 0, samples: Any = None) -> list[Any]:
    infos = [types.SampleInfo(99, slot, 77, 88) for slot in range(len(places))]
    samples = [()] * len(places) if samples is None else samples
    return KeyedDraws(draws, PATHS, SampleSeeds(seed)).of_batch(Places(*places), infos, samples)


def place(sample_index: int, **details: int) -> SamplePlace:
    return SamplePlace(**{"epoch": 0, "batch": 0, "slot": 0, "sample_index": sample_index, **details})


def one(draw: RandomDraw, at: SamplePlace | None = None, seed: int = 0, **details: Any) -> np.ndarray:
    [array] = numbers([planned(draw, **details)], [place(3) if at is None else at], seed)
    return array[0]


class TestDependence:
    SCALAR = UniformDraw("gain")

    def test_these_change_a_number(self) -> None:
        found = [
            one(self.SCALAR),
            one(self.SCALAR, seed=1),
            one(self.SCALAR, seed=-1),
            one(UniformDraw("gaim")),
            one(self.SCALAR, step="Other"),
            one(self.SCALAR, number=1),
            one(self.SCALAR, group=("cameras", 0)),
            one(self.SCALAR, group=("cameras", 1)),
            one(self.SCALAR, group=("cameras", "0")),
            one(self.SCALAR, group=("cameras",)),
            one(UniformDraw("gain", key="rig")),
            one(self.SCALAR, place(4)),
            one(self.SCALAR, place(2**40)),
            one(self.SCALAR, place(3, epoch=1)),
            one(self.SCALAR, place(3, visit=1)),
            one(self.SCALAR, place(4, epoch=1)),
        ]
        assert len({float(value) for value in found}) == len(found)

    def test_these_do_not(self) -> None:
        expected = one(self.SCALAR)
        for details in ({"batch": 5}, {"slot": 2}, {"sequence": 4}, {"frame": 1}, {"is_padding": True}):
            assert one(self.SCALAR, place(3, **details)) == expected
        assert one(UniformDraw("gain", shape=(4,)))[0] == expected  # a larger shape begins with the same numbers
        assert one(UniformDraw("gain", 0, 8)) == 8 * expected

    @pytest.mark.parametrize("key", ["sequence", "sequence-rig"])
    def test_along_a_sequence(self, key: str) -> None:
        draw = UniformDraw("gain", key=key)
        first = one(draw, place(3, sequence=2, frame=0))
        assert one(draw, place(4, sequence=2, frame=1)) == first
        others = [{"sequence": 1}, {"sequence": 2, "visit": 1}, {"sequence": 2, "epoch": 1}]
        assert first not in [one(draw, place(3, **details)) for details in others]

    @given(
        st.lists(st.tuples(st.integers(0, 2**40), st.integers(0, 5), st.integers(0, 3)), min_size=1, max_size=6),
        st.lists(st.sampled_from(["sample", "rig", "sequence", FieldKey(PATHS[0])]), min_size=1, max_size=5),
        st.integers(-(2**70), 2**70),
    )
    @settings(deadline=None, max_examples=examples(20, 60))
    def test_batches_and_lists_of_draws_change_nothing(self, rows: Any, keys: Any, seed: int) -> None:
        kinds = [
            lambda key, n: UniformDraw(f"u{n}", -1, 3, shape=(2,), key=key),
            lambda key, n: NormalDraw(f"n{n}", 4, key=key),
            lambda key, n: IntegerDraw(f"i{n}", -7, 90, shape=(1, 3), key=key),
        ]
        draws = [planned(kinds[n % 3](key, n), number=n) for n, key in enumerate(keys)]
        places = [place(index, epoch=epoch, sequence=index % 7, visit=visit) for index, epoch, visit in rows]
        samples = [(np.int64(at.sample_index % 3), None) for at in places]
        together = numbers(draws, places, seed, samples)
        assert [(array.dtype, array.shape[1:]) for array in together] == [
            (np.int32 if isinstance(each.draw, IntegerDraw) else np.float32, each.draw.shape) for each in draws
        ]
        assert all(array.flags.c_contiguous for array in together)
        for column, each in enumerate(draws):
            for slot, (at, sample) in enumerate(zip(places, samples, strict=True)):
                [alone] = numbers([each], [at], seed, [sample])
                assert (alone[0] == together[column][slot]).all()

    def test_fields(self) -> None:
        def of(value: Any, key: Any = PATHS[1]) -> float:
            draws = [planned(UniformDraw("gain", key=key))]
            return float(numbers(draws, [place(3)], samples=[(np.int64(5), value)])[0][0])

        text = np.frombuffer(b"front", np.uint8)
        values = [text, text[:4], text.astype(np.int8), text.reshape(1, 5), np.frombuffer(b"\0\0\0\0", np.uint8)]
        values += [np.zeros(1, np.float32), np.zeros((), np.float32)]
        found = [of(value) for value in values] + [
            of(text, FieldKey(PATHS[1], shared=True)),
            of(text, FieldKey(PATHS[0])),
        ]
        assert len(set(found)) == len(found)
        assert of(np.frombuffer(b"f.r.o.n.t.", np.uint8)[::2]) == found[0]  # strided
        assert of(text.copy()) == found[0]

    def test_without_places_the_index_or_the_position_serves(self) -> None:
        draws = [planned(UniformDraw("gain"))]
        infos = [types.SampleInfo(10 + slot, slot, 5, 3) for slot in range(2)]
        computed = {
            tells: KeyedDraws(draws, PATHS, SampleSeeds()).of_batch(
                SequenceInput(tells=tells, order=[9, 8] * 10), infos, [()] * 2
            )[0]
            for tells in ("nothing", "index")
        }
        assert (computed["nothing"] == numbers(draws, [place(10, epoch=3), place(11, epoch=3)])[0]).all()
        assert (computed["index"] == numbers(draws, [place(9, epoch=3), place(8, epoch=3)])[0]).all()
        bare = KeyedDraws(draws, PATHS, SampleSeeds()).of_batch(object(), infos, [()] * 2)[0]
        assert (bare == computed["nothing"]).all()

    @pytest.mark.parametrize("seed", [1.5, "3", None])
    def test_the_seed_must_be_a_whole_number(self, seed: Any) -> None:
        with pytest.raises(SettingError, match="`seed` must be a whole number, got "):
            one(self.SCALAR, seed=seed)

    def test_seeds_of_any_integer_type_are_equal(self) -> None:
        assert one(self.SCALAR, seed=np.int32(7)) == one(self.SCALAR, seed=7)  # type: ignore[arg-type]


def many(draw: RandomDraw, count: int = 20_000, seed: int = 0, group: Any = (), **details: int) -> np.ndarray:
    return numbers([planned(draw, group=group)], [place(index, **details) for index in range(count)], seed)[0]


def assert_even(values: np.ndarray, bins: int = 100) -> None:
    """Values in [0, 1) are as frequent in each bin."""
    counts = np.bincount((values.ravel() * bins).astype(int), minlength=bins)
    assert abs(chi_square_deviate(counts, values.size / bins)) < FAR_OUT


class TestDistribution:
    def test_uniform(self) -> None:
        values = many(UniformDraw("gain", 0, 1, shape=(2,)))
        assert values.dtype == np.float32
        assert_even(values)

    @given(st.floats(-1e6, 1e6), st.floats(0, 1e6))
    @example(1, 2**-23)  # neighbours in float32
    @settings(deadline=None, max_examples=examples(20, 50))
    def test_uniform_stays_within_its_limits(self, low: float, width: float) -> None:
        draw = UniformDraw("gain", low, low + width)
        values = many(draw, 200)
        assert values.min() >= np.float32(low)
        assert values.max() < np.float32(low + width) or draw.constant is not None

    def test_integers(self) -> None:
        values = many(IntegerDraw("side", -3, 7))
        assert values.dtype == np.int32
        assert np.unique(values).tolist() == [*range(-3, 7)]
        assert_even((values + 3.5) / 10, 10)
        assert_even((many(IntegerDraw("word", -(2**31), 2**31 - 1)).astype(float) + 2**31) / 2**32)

    def test_normal(self) -> None:
        values = many(NormalDraw("noise", 2, 3, shape=(3,)))
        assert values.dtype == np.float32
        standard = (values.ravel().astype(float) - 2) / 3
        assert_even(np.vectorize(statistics.NormalDist().cdf)(standard))

    def test_everything_is_independent_of_everything(self) -> None:
        gain = UniformDraw("gain")
        columns = [
            *many(UniformDraw("gain", shape=(2,))).T,
            many(gain, epoch=1),
            many(gain, visit=1),
            many(gain, seed=1),
            many(gain, group=("cameras", 1)),
            many(UniformDraw("contrast")),
        ]
        columns += [np.roll(columns[0], 1), np.roll(columns[0], 8)]  # neighbours
        correlation = np.corrcoef(np.stack(columns).astype(float)) - np.eye(len(columns))
        assert np.abs(correlation).max() < 4.5 / np.sqrt(20_000)


def test_pinned_numbers() -> None:
    # What a seed draws must not change silently: a change is a change of behaviour, for the changelog.
    draws = [
        planned(UniformDraw("brightness", 0.8, 1.2), "ImageBrightnessContrastJitter", 0, ("cameras", 1)),
        planned(UniformDraw("noise", -1, 1, shape=(2,), key="sequence-rig"), "Noise", 2),
        planned(IntegerDraw("side", 0, 1000, key="rig"), "Flip"),
        planned(NormalDraw("angle", 0, 1), "Turn"),
        planned(UniformDraw("shift", key=PATHS[1]), "Shift", 0, ("cameras", 0)),
    ]
    places = [place(7, sequence=1), place(8, sequence=1, epoch=2), place(123456789012, sequence=4, visit=3)]
    samples = [(np.int64(0), np.frombuffer(name, np.uint8)) for name in (b"front", b"rear", b"front")]
    assert [array.tolist() for array in numbers(draws, places, 42, samples)] == PINNED


PINNED: list[Any] = [
    [0.9483673572540283, 0.9735032320022583, 0.9318374395370483],
    [
        [0.5345767736434937, 0.7438600659370422],
        [0.6644203662872314, 0.9936791062355042],
        [-0.2146417796611786, -0.3471496105194092],
    ],
    [807, 483, 774],
    [-1.064873218536377, 0.43790528178215027, -2.2191967964172363],
    [0.8559489846229553, 0.37934496998786926, 0.8559489846229553],
]
