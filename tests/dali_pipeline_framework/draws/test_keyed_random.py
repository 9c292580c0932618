"""Random numbers that are functions of a key and a counter."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.chi_square import FAR_OUT, chi_square_deviate
from support.split_mix import key_with_first_number

from accvlab.dali_pipeline_framework.draws.keyed_draws import derive_key, random_bits, random_uniform

MASK = 2**64 - 1


def split_mix(key: int, counter: int) -> int:
    """The definition, in integers of any size."""
    value = (key + (counter + 1) * 0x9E3779B97F4A7C15) & MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def test_bits_are_those_of_the_published_generator() -> None:
    # Published outputs of SplitMix64 with the seed 1234567.
    assert random_bits(1234567, np.arange(5)).tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


@given(
    keys=st.lists(st.integers(0, MASK), min_size=1, max_size=3),
    counters=st.lists(st.integers(0, 2**63 - 1), max_size=20),
)
@settings(deadline=None)
def test_bits_follow_the_definition_and_broadcast(keys: list[int], counters: list[int]) -> None:
    given_counters = np.array(counters, np.int64)
    found = random_bits(np.array(keys, np.uint64)[:, None], given_counters)
    assert found.dtype == np.uint64
    assert found.tolist() == [[split_mix(key, counter) for counter in counters] for key in keys]
    assert random_bits(keys[0], counters).tolist() == found[0].tolist()
    assert given_counters.tolist() == counters


@given(key=st.integers(0, MASK), counters=st.lists(st.integers(0, 2**62), min_size=1, max_size=20))
@settings(deadline=None)
def test_uniform_numbers_are_the_upper_53_bits(key: int, counters: list[int]) -> None:
    numbers = random_uniform(key, counters)
    assert numbers.dtype == np.float64
    assert numbers.tolist() == [(split_mix(key, counter) >> 11) / 2**53 for counter in counters]


def test_uniform_numbers_stay_below_one() -> None:
    key = key_with_first_number(MASK)  # number 0 has all bits set
    assert random_bits(key, [0]).tolist() == [MASK]
    assert random_uniform(key, [0]).tolist() == [1 - 2**-53]


def test_pinned_keys() -> None:
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


def test_different_parts_make_different_keys() -> None:
    parts: list[tuple[int | str, ...]]
    parts = [(), ("",), (0,), ("0",), (1, 23), (12, 3), ("1", 23), (123,), (23, 1)]
    assert len({derive_key(*each) for each in parts}) == len(parts)


def test_keys_of_consecutive_numbers_fill_their_range() -> None:
    keys = np.array([derive_key("test", number) for number in range(20_000)], dtype=np.uint64)
    assert len(np.unique(keys)) == 20_000
    for byte in (keys >> np.uint64(56), keys & np.uint64(255)):
        assert chi_square_deviate(np.bincount(byte.astype(np.int64)), 20_000 / 256) < FAR_OUT
