"""Time stamps of file names, and which frames belong together by them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.providers.frames.camera_rigs import (
    CameraTimes,
    align_times,
    as_times,
    exact,
    timestamp_reader,
)


@pytest.mark.parametrize(
    ("rule", "name", "expected"),
    [
        (None, "00042.jpg", 42),
        (None, "1533151603.512.jpg", 1533151603.512),
        (None, "1533151603512404123.jpg", 1533151603512404123),
        (r"__(\d+)\.", "n015__CAM__17.jpg", 17),
        (r"t([\d.]+)s", "a_t0.25s.png", 0.25),
        (len, "abcd.jpg", 8),
        (lambda name: np.float32(0.5), "a.jpg", 0.5),
    ],
)
def test_reads_numbers_as_they_are_written(rule, name, expected):
    value = timestamp_reader(rule)(name)
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("rule", "name", "message"),
    [
        (None, "frame_1.jpg", r"finite number of at most 64 bits in the file name 'frame_1.jpg', got 'frame_1'"),
        (None, "nan.jpg", "in the file name 'nan.jpg', got nan"),
        (None, "1e300.jpg", "in the file name '1e300.jpg', got 1e[+]300"),
        (None, "9" * 30 + ".jpg", "at most 64 bits in the file name '9{30}.jpg'"),
        (r"_(\d+)", "a1.jpg", r"in the file name 'a1.jpg', got None"),
        (r"_(\w+)\.", "a_b.jpg", r"in the file name 'a_b.jpg', got 'b'"),
        (r"_(\d+)|x", "x.jpg", "got None"),
        (lambda name: int(name), "a.jpg", r"file name 'a.jpg', got 'a' \(invalid literal"),
    ],
)
def test_says_which_name_has_no_time_stamp(rule, name, message):
    with pytest.raises(SettingError, match=message):
        timestamp_reader(rule)(name)


@pytest.mark.parametrize(
    ("rule", "message"),
    [("(", "no valid regular expression"), (r"\d+", "must have a group"), (3, "must be a regular expression")],
)
def test_refuses_rules(rule, message):
    with pytest.raises(SettingError, match=message):
        timestamp_reader(rule)


def match(reference: list[float], other: list[float], tolerance: float) -> list[int]:
    cameras = [CameraTimes.of(as_times(times)) for times in (reference, other)]
    return align_times(cameras, 0, tolerance)[:, 1].tolist()


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
    assert match(reference, other, tolerance) == expected


def test_floats_and_whole_numbers_are_matched():
    large = 1533151603512404123
    assert match([large, large + 1], [large + 1], 0) == [-1, 0]
    assert match([0.5, 1], [7, 9], 8) == [-1, 0]
    assert match([1e-7, 2e-7], [2.4e-7, 9.0], 4e-8) == [-1, 0]
    assert match([0, 10, 20], [6, 14], 6) == [-1, 0, -1]  # both are nearest to 10: 6 is the earlier


class TestExactTolerance:
    @pytest.mark.parametrize("tolerance", [0.02, 0.035, 0.1, 0.289, 1 / 3, 1e-9, 0.1 + 0.2])
    @pytest.mark.parametrize("unit", [Fraction(1, 90000), Fraction(1, 1000), Fraction(1001, 30000)])
    @pytest.mark.parametrize("start", [0.0, 0.7, 1533151603.512404])
    def test_of_streams(self, tolerance: float, unit: Fraction, start: float) -> None:
        numbers = np.arange(100) * round(1 / unit)
        reference, tolerance = CameraTimes(numbers, unit, exact(start)), round(tolerance, 9)
        for off, expected in ((0, [*range(100)]), (Fraction(1, 10**10), [-1] * 100)):
            other = CameraTimes(numbers, unit, exact(start) + exact(tolerance) + off)
            assert align_times([reference, other], 0, tolerance)[:, 1].tolist() == expected

    @given(
        st.lists(st.integers(0, 10**7), min_size=1, max_size=6, unique=True).map(sorted),
        st.lists(st.integers(0, 10**7), min_size=1, max_size=6, unique=True).map(sorted),
        st.sampled_from([Fraction(1, 90000), Fraction(1001, 30000), Fraction(1, 1000), Fraction(1, 12800)]),
        st.sampled_from([Fraction(1, 90000), Fraction(1001, 24000), Fraction(1, 25), Fraction(1, 10**9)]),
        st.integers(-(10**18), 10**18),
        st.integers(0, 10**12),
    )
    def test_law(self, reference, other, unit, other_unit, offset_ns, tolerance_ns):
        offset, tolerance_s = Fraction(offset_ns, 10**9), tolerance_ns / 1e9
        in_seconds = [[number * unit for number in reference], [number * other_unit + offset for number in other]]
        cameras = CameraTimes(np.array(reference), unit), CameraTimes(np.array(other), other_unit, offset)
        matched = align_times(cameras, 0, tolerance_s)[:, 1].tolist()
        for time, place in zip(in_seconds[0], matched, strict=True):
            near = min(in_seconds[1], key=lambda each: (abs(each - time), each))
            back = min(in_seconds[0], key=lambda each: (abs(each - near), each))
            is_match = back == time and abs(near - time) <= exact(tolerance_s)
            assert place == (in_seconds[1].index(near) if is_match else -1)

    @pytest.mark.parametrize("intervals", [[3, 3], [3, 5], [2, 3, 7], [1], [2, 4, 5, 7]])
    def test_of_half_the_usual_interval(self, intervals: list[int]) -> None:
        times = np.cumsum([0, *intervals])
        for distance in range(6):
            cameras = CameraTimes.of(times), CameraTimes.of(times[-1:] + distance)
            found = align_times(cameras, 0, None)[-1, 1]
            assert (found == 0) == (distance <= np.median(intervals) / 2)
