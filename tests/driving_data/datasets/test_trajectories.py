"""Splines through the places of the vehicle, and the last of some times."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from accvlab.driving_data.datasets.driving import poses
from accvlab.driving_data.datasets.driving.ego_motion import SmoothTrajectory, places_around, spline_slopes
from accvlab.driving_data.datasets.driving.poses import Trajectory, last_before

steps = st.lists(st.integers(1, 40), min_size=1, max_size=12)


@given(steps, st.integers(0, 2**32))
def test_a_cubic_is_its_own_spline(gaps, seed):
    """ "Not a knot" gives back every polynomial of degree 3, where there are at least four places."""
    x = np.cumsum([0, *gaps])
    degree = min(len(x) - 1, 3)
    polynomial = np.random.default_rng(seed).normal(size=(degree + 1, 3)) / 40.0 ** np.arange(degree + 1)[:, None]
    trajectory = SmoothTrajectory.through(
        x, poses.pose(np.tile(np.eye(3), (len(x), 1, 1)), _values(polynomial, x))
    )
    between = np.linspace(x[0], x[-1], 50)
    np.testing.assert_allclose(
        trajectory.at(between)[..., 3], _values(polynomial, between), atol=1e-9 * (1 + x[-1])
    )


def _values(polynomial, x):
    return np.polynomial.polynomial.polyval(np.asarray(x, float), polynomial).T


@given(st.lists(st.integers(1, 40), min_size=4, max_size=12), st.integers(0, 2**32))
def test_the_second_derivative_has_no_steps(gaps, seed):
    x = np.cumsum([0.0, *gaps])
    y = np.random.default_rng(seed).normal(size=(len(x), 3))
    slope, width = spline_slopes(x, y), np.diff(x)[:, None]
    secant = np.diff(y, axis=0) / width
    second_at_start = (6 * secant - 4 * slope[:-1] - 2 * slope[1:]) / width
    second_at_end = (2 * slope[:-1] + 4 * slope[1:] - 6 * secant) / width
    np.testing.assert_allclose(second_at_end[:-1], second_at_start[1:], atol=1e-8)
    third = (second_at_end - second_at_start) / width
    np.testing.assert_allclose(third[[0, -1]], third[[1, -2]], atol=1e-8)


def test_it_passes_through_its_places_and_stays_at_its_ends():
    rng = np.random.default_rng(1)
    known = poses.pose_of_quaternion(rng.normal(size=(5, 4)), rng.normal(size=(5, 3)))
    trajectory = SmoothTrajectory.through(np.array([0, 10, 25, 30, 70]), known)
    np.testing.assert_allclose(
        trajectory.at([-9, 0, 10, 25, 30, 70, 99]), known[[0, 0, 1, 2, 3, 4, 4]], atol=1e-12
    )
    one = SmoothTrajectory.through(np.array([5]), known[:1])
    np.testing.assert_allclose(one.at(np.zeros((2, 3))), np.broadcast_to(known[0], (2, 3, 3, 4)), atol=1e-12)


def test_places_around_are_in_the_frame_of_one_of_them():
    """A vehicle that has turned by a quarter sees behind it where it came from."""
    yaw = poses.rotation_of_quaternion(poses.quaternion_of_yaw([0.0, np.pi / 2]))
    known = poses.pose(yaw, [[0.0, 0, 0], [10, 0, 1]])
    found = places_around(SmoothTrajectory.through(np.array([0, 100]), known), 100, np.array([0, 100]))
    np.testing.assert_allclose(found[0, :, 3], [0, 10, -1], atol=1e-12)
    np.testing.assert_allclose(found[0, :, :3], yaw[1].T, atol=1e-12)
    np.testing.assert_allclose(found[1], np.eye(3, 4), atol=1e-12)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=20, unique=True), st.integers(-5, 60))
def test_the_last_before_is_the_greatest_that_is_not_greater(times, wanted):
    times = np.sort(times)
    expected = max((k for k in range(len(times)) if times[k] <= wanted), default=-1) if wanted <= times[-1] else -1
    assert last_before(times, wanted) == expected


def about(axis, angle):
    """Rotation by an angle about an axis, by the exponential of a matrix as a series."""
    x, y, z = np.asarray(axis, float) / np.linalg.norm(axis) * angle
    generator = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    term, total = np.eye(3), np.eye(3)
    for power in range(1, 30):
        term = term @ generator / power
        total = total + term
    return total


class TestTrajectory:
    @pytest.mark.parametrize("angle", [1e-9, 0.3, 2.5])
    def test_turns_evenly_and_goes_straight(self, angle):
        start = about([1, 2, 3], 0.7)
        known = np.stack([poses.pose(start, [1, 2, 3]), poses.pose(start @ about([1, -1, 0.5], angle), [3, 0, 3])])
        found = Trajectory(np.array([100, 200]), known).at([125, 150])
        for pose, part in zip(found, (0.25, 0.5), strict=True):
            np.testing.assert_allclose(pose[:, :3], start @ about([1, -1, 0.5], angle * part), atol=1e-9)
            np.testing.assert_allclose(pose[:, 3], [1 + 2 * part, 2 - 2 * part, 3])

    def test_is_exact_at_known_times_and_stays_at_its_ends(self):
        rng = np.random.default_rng(0)
        known = poses.pose_of_quaternion(rng.normal(size=(4, 4)), rng.normal(size=(4, 3)))
        times = np.array([10, 20, 20, 30])
        found = Trajectory(times, known).at([5, 10, 30, 99])
        np.testing.assert_array_equal(found, known[[0, 0, 3, 3]])
        assert Trajectory(times[:1], known[:1]).at(np.zeros((2, 3))).shape == (2, 3, 3, 4)
