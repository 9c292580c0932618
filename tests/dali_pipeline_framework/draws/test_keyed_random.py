"""Random numbers that are functions of a key and a counter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.chi_square import FAR_OUT, chi_square_deviate
from support.split_mix import key_with_first_number, unmix

from accvlab.dali_pipeline_framework.draws.keyed_draws import derive_key, mix, random_bits, random_uniform

MASK = 2**64 - 1
KEYS = st.integers(0, MASK)


def split_mix(key: int, counter: int) -> int:
    """The definition, in integers of any size."""
    value = (key + (counter + 1) * 0x9E3779B97F4A7C15) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


class TestRandomBits:
    def test_is_the_published_generator(self) -> None:
        # Published outputs of SplitMix64 with the seed 1234567.
        assert random_bits(1234567, np.arange(5)).tolist() == [
            6457827717110365317,
            3203168211198807973,
            9817491932198370423,
            4593380528125082431,
            16408922859458223821,
        ]

    @given(key=KEYS, counters=st.lists(st.integers(0, 2**63 - 1), max_size=20))
    @settings(deadline=None)
    def test_follows_the_definition(self, key: int, counters: list[int]) -> None:
        expected = [split_mix(key, counter) for counter in counters]
        assert random_bits(key, np.array(counters, dtype=np.int64)).tolist() == expected
        assert [random_bits(key, [counter]).tolist()[0] for counter in counters] == expected

    def test_leaves_the_counters_as_they_are(self) -> None:
        counters = np.arange(4, dtype=np.uint64)
        random_bits(3, counters)
        assert counters.tolist() == [0, 1, 2, 3]

    def test_keys_and_counters_broadcast(self) -> None:
        keys = np.array([5, 2**64 - 1, 7], dtype=np.uint64)
        table = random_bits(keys[:, None], np.arange(4))
        assert table.dtype == np.uint64
        assert table.tolist() == [[split_mix(key, counter) for counter in range(4)] for key in keys.tolist()]

    def test_each_bit_is_set_as_often_as_not(self) -> None:
        num_numbers = 20_000
        for key in (0, 1, derive_key("bits")):
            bits = (
                random_bits(key, np.arange(num_numbers))[:, None] >> np.arange(64, dtype=np.uint64)
            ) & np.uint64(1)
            num_set = bits.sum(axis=0).astype(np.int64)
            assert chi_square_deviate(num_set, num_numbers / 2, num_free=64, factor=2) < FAR_OUT

    def test_mix_keeps_different_values_different(self) -> None:
        # Each of its operations can be undone.
        values = np.concatenate([np.arange(1000), 2 ** np.arange(63)]).astype(np.uint64)
        assert [unmix(value) for value in mix(values).tolist()] == values.tolist()


class TestRandomUniform:
    @given(key=KEYS, counters=st.lists(st.integers(0, 2**62), min_size=1, max_size=20))
    @settings(deadline=None)
    def test_is_the_upper_53_bits(self, key: int, counters: list[int]) -> None:
        numbers = random_uniform(key, counters)
        assert numbers.dtype == np.float64
        assert numbers.tolist() == [(split_mix(key, counter) >> 11) / 2**53 for counter in counters]

    def test_stays_below_one(self) -> None:
        # The key is chosen so that number 0 has all bits set.
        key = key_with_first_number(MASK)
        assert random_bits(key, [0]).tolist() == [MASK]
        assert random_uniform(key, [0]).tolist() == [1 - 2**-53]

    @pytest.mark.parametrize("key", [0, derive_key("a"), derive_key("b")])
    def test_is_uniform(self, key: int) -> None:
        counts = np.bincount((random_uniform(key, np.arange(100_000)) * 1000).astype(np.int64), minlength=1000)
        assert counts.size == 1000
        assert chi_square_deviate(counts, 100) < FAR_OUT


class TestDeriveKey:
    def test_pinned_numbers(self) -> None:
        # All orders of all runs hang on these.
        assert [derive_key("test", number) for number in range(5)] == [
            15983713646291644013,
            13349813602014752661,
            6522190140207516555,
            3990286927141430003,
            17385097365201123357,
        ]
        assert derive_key() == 13020603013274838756
        assert derive_key(-1, 2**100, "ä") == 11986077031439173521

    def test_different_parts_make_different_keys(self) -> None:
        parts: list[tuple[int | str, ...]] = [
            (),
            ("",),
            (0,),
            ("0",),
            (1, 23),
            (12, 3),
            ("1", 23),
            (123,),
            (23, 1),
        ]
        assert len({derive_key(*each) for each in parts}) == len(parts)

    def test_keys_of_consecutive_numbers_fill_their_range(self) -> None:
        keys = np.array([derive_key("test", number) for number in range(20_000)], dtype=np.uint64)
        assert len(np.unique(keys)) == 20_000
        assert chi_square_deviate(np.bincount((keys >> np.uint64(56)).astype(np.int64)), 20_000 / 256) < FAR_OUT
        assert chi_square_deviate(np.bincount((keys & np.uint64(255)).astype(np.int64)), 20_000 / 256) < FAR_OUT
