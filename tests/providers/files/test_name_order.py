"""Names in the order of their bytes, in little memory."""

from __future__ import annotations

import gc
import random
import tracemalloc

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from accvlab.dali_pipeline_framework.providers.files.name_order import UnorderedNames

# Few letters and long ones: many names that agree at first, or are the start of others.
names = st.lists(
    st.one_of(
        st.binary(min_size=1, max_size=30).filter(lambda name: 0 not in name),
        st.text("a\x01\x7fÿ", min_size=1, max_size=40).map(lambda text: text.encode("latin-1")),
        st.integers(1, 255).map(lambda count: b"a" * count),
    ),
    max_size=40,
)


def in_order(given_names: list[bytes]) -> list[bytes]:
    unordered = UnorderedNames()
    for name in given_names:
        unordered.add(name)
    assert len(unordered) == len(given_names)
    return [*unordered.in_order()]


@settings(deadline=None)
@given(names)
@example([])
@example([b"aaaaaaaa.jpg", b"aaaaaaaa", b"aaaaaaaab", b"aaaaaaaa", b"aaaaaaaa.j", b"a"])
@example([b"\xff" * 8, b"\xff" * 7, b"\xff" * 9, b"\xff" * 255])
@example([start + b"then the same, and " + end for start in (b"begin 2,", b"begin 1,") for end in (b"2", b"1")])
def test_order_is_that_of_the_bytes(given_names: list[bytes]) -> None:
    assert in_order(given_names) == sorted(given_names)


def test_more_names_than_a_chunk() -> None:
    numbered = [b"frame_%06d.jpg" % number for number in range(40_000)]
    shuffled = random.Random(0).sample(numbered, len(numbered))
    assert in_order(shuffled) == numbered


@pytest.mark.parametrize("start", [b"", b"a_long_start_that_all_names_have_"])
def test_memory(start: bytes) -> None:
    count = 30_000
    unordered = UnorderedNames()
    gc.collect()
    tracemalloc.start()
    for number in random.Random(0).sample(range(count), count):
        unordered.add(b"%s%08d.jpg" % (start, number))
    tracemalloc.reset_peak()
    assert sum(1 for _ in unordered.in_order()) == count
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak / count < len(start) + 12 + 8 + 60
