"""2D boxes of 3D boxes: exact for simple views, and the same as cutting the hull edge by edge."""

import numpy as np

from accvlab.driving_data.datasets.driving import poses
from accvlab.driving_data.datasets.driving.scene_parts import project_boxes

WH = (80, 48)
INTRINSICS = np.array([[50.0, 0, 40], [0, 50, 24], [0, 0, 1]])
AHEAD = poses.identity()  # the base is the camera: x to the right, y down, z ahead


def projected(center, size, rotation=(1, 0, 0, 0), wh=WH):
    return project_boxes([center], [size], [rotation], AHEAD[np.newaxis], INTRINSICS[np.newaxis], [wh])


def turn(first, second, third):
    (ax, ay), (bx, by) = np.subtract(second, first), np.subtract(third, second)
    return ax * by - ay * bx


def hull_of(points):
    """Corners of the convex hull, in order (Andrew, 1979)."""
    points = sorted(map(tuple, points))
    sides = []
    for order in (points, points[::-1]):
        side = []
        for point in order:
            while len(side) > 1 and turn(*side[-2:], point) <= 0:
                side.pop()
            side.append(point)
        sides += side[:-1]
    return np.array(sides)


def cut(polygon, axis, limit, sign):
    """What lies on one side of a line (Sutherland and Hodgman, 1974)."""
    kept = []
    for start, end in zip(polygon, np.roll(polygon, -1, axis=0), strict=True):
        inside = [sign * (point[axis] - limit) <= 0 for point in (start, end)]
        if inside[0]:
            kept.append(start)
        if inside[0] != inside[1]:
            kept.append(start + (limit - start[axis]) / (end[axis] - start[axis]) * (end - start))
    return np.array(kept).reshape(-1, 2)


def test_random_boxes_are_what_the_image_has_of_their_hull():
    rng = np.random.default_rng(0)
    num_seen = 0
    for _ in range(300):
        center, size, rotation = rng.normal(size=3) * (6, 4, 6), rng.uniform(0.5, 6, size=3), rng.normal(size=4)
        found = projected(center, size, rotation)
        signs = np.array([(x, y, z) for x in (1, -1) for y in (1, -1) for z in (1, -1)])
        corners = poses.moved(poses.pose_of_quaternion(rotation, center), signs * size / 2)
        corners = corners[corners[:, 2] > 0]
        pixels = (corners @ INTRINSICS.T)[:, :2] / corners[:, 2:]
        polygon = hull_of(pixels) if len(pixels) > 2 else np.zeros((0, 2))
        for axis, limit, sign in ((0, 0, -1), (0, WH[0], 1), (1, 0, -1), (1, WH[1], 1)):
            polygon = cut(polygon, axis, limit, sign) if len(polygon) else polygon
        is_seen = len(polygon) > 0 and center[2] > 0
        assert found.is_seen[0] == is_seen
        if is_seen:
            expected = [*polygon.min(axis=0), *polygon.max(axis=0)]
            np.testing.assert_allclose(found.box[0], expected, atol=1e-6)
            num_seen += 1
    assert num_seen > 60
