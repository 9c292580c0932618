"""Poses between poses, the nearest of several times, and times that go back."""

import numpy as np
import pytest

from accvlab.dali_pipeline_framework.errors import FileError
from accvlab.driving_data.datasets.driving import poses
from accvlab.driving_data.datasets.driving.poses import Trajectory, half_period, require_ascending


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


def test_half_period_is_that_of_most():
    assert half_period(np.array([0, 10, 20, 70])) == 5
    assert half_period(np.array([3])) == np.inf


def test_times_that_go_back_are_named_with_their_row():
    require_ascending(np.array([1, 1, 2]), "times")
    with pytest.raises(FileError, match=r"a.txt: times must ascend, got 1 and then 1 \(row 1\)"):
        require_ascending(np.array([1, 1, 2]), "a.txt", strictly=True)
    with pytest.raises(FileError, match=r"a.txt: times must not go back, got 5 and then 2 \(row 2\)"):
        require_ascending(np.array([1, 5, 2]), "a.txt")
