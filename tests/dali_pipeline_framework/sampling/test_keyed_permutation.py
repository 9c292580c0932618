"""The permutation that is computed item by item: it is one, and it looks like a random one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.chi_square import FAR_OUT, chi_square_deviate
from support.laws import examples, some

from accvlab.dali_pipeline_framework.draws.keyed_draws import derive_key
from accvlab.dali_pipeline_framework.sampling.arithmetic.keyed_permutation import KeyedPermutation

KEYS = st.integers(0, 2**64 - 1)
LARGEST_SIZE = 2**62
OF_THE_LARGEST = (
    *(2467296299076952547, 2818540604235476309, 828756161735340457, 2103998698524772264, 1697907697254330324),
    *(890682293692782245, 397542981363319542, 3919391410695512286, 3814095290876837058, 280002067875245103),
)


class TestIsAPermutation:
    @pytest.mark.parametrize(
        "sizes", [range(1, 301), range(500, 620), [1023, 1024, 1025, 4095, 4096, 4097, 65537]]
    )
    def test_each_item_stands_once(self, sizes: range | list[int]) -> None:
        for size in sizes:
            items = KeyedPermutation(size, derive_key("test", size))[np.arange(size)]
            assert sorted(items.tolist()) == list(range(size))

    @given(
        size=st.integers(1, LARGEST_SIZE) | st.integers(1, 60).map(lambda bits: LARGEST_SIZE >> bits),
        key=KEYS,
        data=st.data(),
    )
    @settings(deadline=None, max_examples=examples(20, 50))
    def test_different_positions_have_different_items(self, size: int, key: int, data: st.DataObject) -> None:
        near = st.integers(0, min(size - 1, 1000))
        drawn = data.draw(st.sets(near | near.map(lambda p: size - 1 - p) | st.integers(0, size - 1)))
        positions, permutation = np.array(sorted(drawn), np.int64), KeyedPermutation(size, key)
        items = permutation[positions]
        assert items.dtype == np.int64
        assert len(set(items.tolist())) == len(drawn)
        assert all(0 <= item < size for item in items.tolist())
        assert items.tolist() == [permutation[positions[[place]]].item() for place in range(len(positions))]
        assert positions.tolist() == sorted(drawn)  # left as they are

    @pytest.mark.parametrize(
        ("size", "expected"),
        [
            (10, [1, 0, 8, 9, 3, 6, 7, 2, 5, 4]),
            (1000, [618, 923, 884, 568, 655, 399, 24, 20, 58, 269]),
            (LARGEST_SIZE, [*OF_THE_LARGEST]),
        ],
    )
    def test_ten_pinned_numbers(self, size: int, expected: list[int]) -> None:
        # The order is part of the contract: a change of it changes everybody's runs.
        assert KeyedPermutation(size, derive_key("test", 0))[np.arange(10)].tolist() == expected


def many_permutations(size: int, num_keys: int, num_positions: int) -> npt.NDArray[np.int64]:
    """The first items of permutations with different keys, ``(num_keys, num_positions)``."""
    positions = np.arange(num_positions)
    return np.stack([KeyedPermutation(size, derive_key("test", key))[positions] for key in range(num_keys)])


SMALL_SIZES = [2, 3, 5, 7, 10, 64, 65, 66, 100, 512, 513]
OF_ALL_KINDS = range(SMALL_SIZES.index(100))  # the others take as long as these together
LARGE_SIZES = [1000, 10**6, 10**9]
NUM_KEYS = examples(2500, 10_000)
NUM_BINS = 37  # divides 1000 - 1, 10**6 - 1 and 10**9 - 1


class TestLooksRandom:
    """Chi-square tests over many keys, each of which a random permutation fails once in 10,000 times."""

    @some("size", SMALL_SIZES, OF_ALL_KINDS)
    def test_each_item_is_everywhere_and_any_pair_are_neighbours_equally_often(self, size: int) -> None:
        num_keys = 4000
        items = many_permutations(size, num_keys, size)
        counts = np.bincount((np.arange(size) * size + items).reshape(-1), minlength=size**2)
        # Rows and columns of the table of counts have fixed sums.
        deviate = chi_square_deviate(counts, num_keys / size, num_free=(size - 1) ** 2, factor=(size - 1) / size)
        assert deviate < FAR_OUT
        is_pair = np.flatnonzero(~np.eye(size, dtype=bool))
        for first in {0, size // 2 - 1, size - 2}:
            counts = np.bincount(items[:, first] * size + items[:, first + 1], minlength=size**2)
            assert chi_square_deviate(counts[is_pair], num_keys / len(is_pair)) < FAR_OUT

    @pytest.mark.parametrize("size", LARGE_SIZES)
    def test_items_at_consecutive_positions_are_uniform_and_unrelated(self, size: int) -> None:
        num_keys = NUM_KEYS
        items = many_permutations(size, num_keys, 16)
        bins = items // (size // 10)
        for position in (0, 7, 14):
            assert chi_square_deviate(np.bincount(bins[:, position]), num_keys / 10) < FAR_OUT
            both = np.bincount(10 * bins[:, position] + bins[:, position + 1], minlength=100)
            assert chi_square_deviate(both, num_keys / 100) < FAR_OUT
            correlation = np.corrcoef(items[:, position], items[:, position + 1])[0, 1]
            assert abs(correlation) * num_keys**0.5 < 3.891  # two-sided
        distances = np.diff(items, axis=1) % size
        assert distances.min() > 0
        counts = np.bincount((distances.reshape(-1) - 1) // ((size - 1) // NUM_BINS), minlength=NUM_BINS)
        assert chi_square_deviate(counts, distances.size / NUM_BINS) < FAR_OUT
