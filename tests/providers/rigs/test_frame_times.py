"""Time stamps of file names, and which frames belong together by them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.providers.rigs.frame_times import TimestampParser, as_times, match_times


@pytest.mark.parametrize(
    ("rule", "name", "expected"),
    [
        (None, "00042.jpg", 42),
        (None, "-3.png", -3),
        (None, "1533151603.512.jpg", 1533151603.512),
        (None, "1533151603512404123.jpg", 1533151603512404123),
        (r"__(\d+)\.", "n015__CAM__17.jpg", 17),
        (r"t([\d.]+)s", "a_t0.25s.png", 0.25),
        (len, "abcd.jpg", 8),
        (lambda name: np.float32(0.5), "a.jpg", 0.5),
    ],
)
def test_reads_numbers_as_they_are_written(rule, name, expected):
    value = TimestampParser(rule)(name)
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("rule", "name", "message"),
    [
        (None, "frame_1.jpg", r"No time stamp can be read off the file name 'frame_1.jpg': 'frame_1' is not"),
        (None, "nan.jpg", "'nan' is not a finite number"),
        (None, "inf.jpg", "'inf' is not a finite number"),
        (None, "9" * 30 + ".jpg", "at most 64 bits"),
        (r"_(\d+)", "a1.jpg", r"finds no time stamp in the file name 'a1.jpg': .*does not match"),
        (r"_(\w+)\.", "a_b.jpg", r"The group of the regular expression"),
        (r"_(\d+)|x", "x.jpg", "does not match"),
        (lambda name: None, "a.jpg", "must return a finite number of at most 64 bits, got None for the file name"),
        (lambda name: int(name), "a.jpg", r"failed for the file name 'a.jpg': ValueError: invalid literal"),
        (lambda name: float("nan"), "a.jpg", "got nan for"),
    ],
)
def test_says_which_name_has_no_time_stamp(rule, name, message):
    with pytest.raises(SettingError, match=message):
        TimestampParser(rule)(name)


@pytest.mark.parametrize(
    ("rule", "message"),
    [("(", "no valid regular expression"), (r"\d+", "must have a group"), (3, "must be a regular expression")],
)
def test_refuses_rules(rule, message):
    with pytest.raises(SettingError, match=message):
        TimestampParser(rule)


def test_whole_numbers_stay_whole():
    large = 1533151603512404123
    assert as_times([large, large + 1]).tolist() == [large, large + 1]
    assert as_times([1, 2.5]).dtype == np.float64


def match(reference: list[float], other: list[float], tolerance: float) -> list[int]:
    return match_times(as_times(reference), as_times(other), tolerance).tolist()


def test_matches_nearest_times():
    assert match([0, 10, 20], [1, 11, 21], 5) == [0, 1, 2]
    assert match([0, 10, 20], [1, 21], 5) == [0, -1, 1]
    assert match([0, 10, 20], [6, 14], 6) == [-1, 0, -1]  # both are nearest to 10: 6 is the earlier
    assert match([0, 10], [5], 5) == [0, -1]
    assert match([0, 10], [5], 4) == [-1, -1]
    assert match([], [1], 1) == []
    assert match([1, 2], [], 1) == [-1, -1]


times = st.lists(st.integers(-50, 50), unique=True, max_size=12).map(sorted)


@given(times, times, st.integers(0, 30))
def test_matches_are_mutual_nearest_and_in_order(reference, other, tolerance):
    expected = []
    for time in reference:
        found = -1
        for position, candidate in enumerate(other):
            is_nearest = candidate == min(other, key=lambda each: (abs(each - time), each))
            is_its_nearest = time == min(reference, key=lambda each: (abs(each - candidate), each))
            if is_nearest and is_its_nearest and abs(candidate - time) <= tolerance:
                found = position
        expected.append(found)
    matched = match(reference, other, tolerance)
    assert matched == expected
    used = [position for position in matched if position >= 0]
    assert used == sorted(set(used))  # none twice, none out of order
