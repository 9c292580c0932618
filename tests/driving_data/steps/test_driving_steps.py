"""Steps on lidar, map lines, boxes and futures, against loops over single points, cells and lines."""

from __future__ import annotations

import copy
import functools
import math
import operator
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.array_samples import sample_of
from support.laws import examples
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework.errors import FrameworkError
from accvlab.dali_pipeline_framework.testing import run_step
from accvlab.driving_data.steps import (
    BEVMaskAdder,
    FutureTrajectoryAdder,
    LidarDepthMapAdder,
    LidarSweepAggregator,
    MapLineVectorizer,
)

SEEDS = st.integers(0, 2**32 - 1)
FEW = settings(max_examples=examples(8, 20), deadline=None)


def random_pose(rng: np.random.Generator) -> np.ndarray:
    """A rotation by an orthogonal matrix of random numbers, and a shift."""
    matrix = np.eye(4)
    orthogonal, _ = np.linalg.qr(rng.normal(size=(3, 3)))
    matrix[:3, :3] = orthogonal * np.linalg.det(orthogonal)
    matrix[:3, 3] = rng.normal(size=3) * 5
    return matrix


# --- depth maps -----------------------------------------------------------------------------------------

HW = (18, 26)
STRIDES = {"fine": 2, "coarse": 4, "odd": 5}


def depth_map_of(points: np.ndarray, matrix: np.ndarray, stride: int) -> np.ndarray:
    height, width = HW
    cells: dict[tuple[int, int], float] = {}
    for x, y, z in points[:, :3].astype(float):
        u, v, depth, *_ = matrix @ [x, y, z, 1.0]
        if depth < 0.1:
            continue
        column, row = round(u / depth), round(v / depth)  # Python rounds halves to even ones
        if 0 <= column < width and 0 <= row < height:
            cell = (row // stride, column // stride)
            cells[cell] = min(cells.get(cell, math.inf), depth, 6.0)
    result = np.full((math.ceil(height / stride), math.ceil(width / stride)), -1.0)
    for cell, depth in cells.items():
        result[cell] = depth
    return result


DEPTH: dict[str, Any] = {"point_path": ("lidar", "points"), "image_hw": HW, "strides": STRIDES}
DEPTH["depth_range"] = (0.1, 6.0)


@given(SEEDS, st.booleans())
@FEW
def test_depth_maps_against_a_loop_over_points(seed: int, is_moved: bool) -> None:
    rng = np.random.default_rng(seed)
    intrinsics, pose = np.diag([8.0, 7.0, 1.0, 1.0]), random_pose(rng)
    intrinsics[:2, 2] = 13, 9
    matrices = [intrinsics @ random_pose(rng) for _ in range(2)]
    points = rng.normal(size=(300, 5)).astype(np.float32) * 4
    lidar = {"points": points, "pose": pose}
    step = LidarDepthMapAdder("matrix", **DEPTH, matrix_path=("lidar", "pose") if is_moved else None)
    output = step(sample_of({"lidar": lidar, "cameras": [{"matrix": matrix} for matrix in matrices]}))
    for number, matrix in enumerate(matrices):
        for name, stride in STRIDES.items():
            depths = output["cameras"][number][name]
            assert depths.dtype == np.float32
            expected = depth_map_of(points, matrix @ pose if is_moved else matrix, stride)
            np.testing.assert_allclose(depths, expected, rtol=1e-6)


def test_halves_of_pixels_go_to_even_ones_and_limits_hold() -> None:
    points = np.array(
        [
            *([0.5, 0.5, 1], [1.5, 2.5, 1], [-0.5, 0, 1], [-0.51, 0, 1], [25.5, 0, 1], [25.49, 0, 1]),
            *([5, 5, 0.09], [70, 70, 10.0], [np.nan, 0, 1], [1e300, 0, 1e-9], [3, 3, -1]),
        ]
    )
    step = LidarDepthMapAdder("matrix", **{**DEPTH, "point_path": "p", "strides": {"d": 1}})
    depths = step(sample_of({"p": points, "matrix": np.eye(4)[:3]}))["d"]
    found = {(int(row), int(column)): float(depths[row, column]) for row, column in np.argwhere(depths >= 0)}
    assert found == {(0, 0): 1.0, (2, 2): 1.0, (0, 25): 1.0, (7, 7): 6.0}


# --- map lines ------------------------------------------------------------------------------------------


def lines_sample(lines: list[np.ndarray], categories: list[int] | None = None) -> dict[str, Any]:
    return {
        "map_lines": {
            "points": np.concatenate([np.zeros((0, 2)), *lines]),
            "num_points": np.array([len(line) for line in lines], np.int32),
            "categories": np.array(categories or [0] * len(lines), np.int32),
        }
    }


def vectors_of(lines: list[np.ndarray], **settings: Any) -> np.ndarray:
    step = MapLineVectorizer("points", **{"count_name": "num_points", "vector_name": "vectors", **settings})
    vectors = step(sample_of(lines_sample(lines)))["map_lines"]["vectors"]
    assert isinstance(vectors, np.ndarray)
    assert vectors.dtype == np.float32
    return vectors


@given(SEEDS, st.integers(1, 9), st.integers(2, 12))
@FEW
def test_points_at_equal_distances_against_shapely(seed: int, length: int, count: int) -> None:
    shapely = pytest.importorskip("shapely")
    rng = np.random.default_rng(seed)
    line = np.round(rng.normal(size=(length + 1, 2)) * 3)  # with points twice, and segments back and forth
    [vectors] = vectors_of([line], num_points=count, has_orders=False)
    string = shapely.LineString(line)
    expected = [string.interpolate(at).coords[0] for at in np.linspace(0, string.length, count)]
    np.testing.assert_allclose(vectors[0], expected, atol=1e-5)


def test_orders_of_open_and_closed_lines() -> None:
    square = np.array([[0, 0], [2, 0], [2, 2], [0, 2], [0, 0]], float)
    bar = np.array([[0, 0], [4, 0]], float)
    closed, opened = vectors_of([square, bar], num_points=5)
    assert closed.shape == opened.shape == (8, 5, 2)
    ring = square[:-1]
    expected = [np.roll(way, shift, axis=0) for way in (ring, ring[::-1]) for shift in range(4)]
    np.testing.assert_array_equal(closed, [np.vstack([one, one[:1]]) for one in expected])
    np.testing.assert_array_equal(opened[:2, :, 0], [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0]])
    assert (opened[2:] == 1e5).all()


def test_lines_without_length_and_no_lines() -> None:
    assert vectors_of([], num_points=3).shape == (0, 4, 3, 2)
    for point in (np.array([[3.0, 4]]), np.array([[3.0, 4], [3, 4]])):
        np.testing.assert_array_equal(vectors_of([point], num_points=3), np.full((1, 4, 3, 2), [3, 4]))
    almost = np.array([[0, 0], [1, 0], [1, 1], [0, 0.01]])
    assert (vectors_of([almost], num_points=4)[0, 2:] == 1e5).all()
    assert (vectors_of([almost], num_points=4, closing_distance=0.02) < 2).all()
    assert (vectors_of([almost], num_points=4, fill_value=-7)[0, 2:] == -7).all()


# --- trajectories ---------------------------------------------------------------------------------------

ADDED: dict[str, Any] = {"known_name": "is_future_known", "offset_name": "offsets", "mask_name": "mask"}
OF_OBJECTS, OF_VEHICLE = {**ADDED, "present_name": "centers"}, {**ADDED, "command_name": "command"}


@given(SEEDS, st.integers(0, 4), st.integers(1, 5))
@FEW
def test_steps_of_objects(seed: int, num_objects: int, num_frames: int) -> None:
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(num_objects, 3)).astype(np.float32)
    future = rng.normal(size=(num_objects, num_frames, 3)).astype(np.float32)
    is_known = rng.random((num_objects, num_frames)) < 0.8
    tree = {"boxes": {"centers": centers, "future_centers": future, "is_future_known": is_known}}
    boxes = FutureTrajectoryAdder("future_centers", **OF_OBJECTS)(sample_of(tree))["boxes"]
    assert boxes["offsets"].dtype == boxes["mask"].dtype == np.float32
    for row in range(num_objects):
        place = centers[row]
        goes_on = True
        for frame in range(num_frames):
            goes_on = goes_on and bool(is_known[row, frame])
            expected = (future[row, frame] - place)[:2] if goes_on else [0, 0]
            np.testing.assert_allclose(boxes["offsets"][row, frame], expected, atol=1e-6)
            assert boxes["mask"][row, frame] == goes_on
            place = future[row, frame]


@pytest.mark.parametrize(
    ("last", "settings", "command"),
    [
        ((2, 9), {}, [1, 0, 0]),
        ((2, 9), {"right": "-x"}, [0, 1, 0]),
        ((-2, 9), {}, [0, 1, 0]),
        ((1.99, 9), {}, [0, 0, 1]),
        ((9, -2), {"right": "-y"}, [1, 0, 0]),
        ((9, 2), {"right": "-y"}, [0, 1, 0]),
        ((3, 0), {"command_distance": 4}, [0, 0, 1]),
    ],
)
def test_steps_and_command_of_the_vehicle(last: Any, settings: Any, command: list[int]) -> None:
    future = np.array([[0.5, 1, 7], [*last, 7], [100, -100, 7]], np.float32)
    tree = {"ego": {"future_positions": future, "is_future_known": np.array([True, True, False])}}
    ego = FutureTrajectoryAdder("future_positions", **{**OF_VEHICLE, **settings})(sample_of(tree))["ego"]
    np.testing.assert_allclose(ego["offsets"], [[0.5, 1], [last[0] - 0.5, last[1] - 1], [0, 0]], rtol=1e-6)
    np.testing.assert_array_equal(ego["mask"], [1, 1, 0])
    np.testing.assert_array_equal(ego["command"], command)


# --- sweeps ---------------------------------------------------------------------------------------------


def sweeps_sample(rng: np.random.Generator, counts: tuple[int, ...] = (5, 6, 0, 3)) -> dict[str, Any]:
    def record(count: int, time: float) -> dict[str, Any]:
        points = rng.normal(size=(count, 5)).astype(np.float32) * 2
        return {"points": points, "reference_from_lidar": random_pose(rng), "timestamp": np.float64(time)}

    sweeps = [record(count, 1.5e9 - 0.05 * number - 0.05) for number, count in enumerate(counts)]
    return {"lidar": record(7, 1.5e9), "sweeps": sweeps}


def joined_points(tree: dict[str, Any], chosen: list[int], close: float, to_reference: bool) -> np.ndarray:
    """Rows of x, y, z, what is measured, and age; point by point."""
    lidar = tree["lidar"]
    back = np.eye(4) if to_reference else np.linalg.inv(lidar["reference_from_lidar"])
    rows = []
    for record, is_sweep in [(lidar, False), *((tree["sweeps"][number], True) for number in chosen)]:
        for x, y, z, *others in record["points"].tolist():
            if is_sweep and abs(x) < close and abs(y) < close:
                continue
            place = back @ record["reference_from_lidar"] @ [x, y, z, 1]
            rows.append([*place[:3], *others, lidar["timestamp"] - record["timestamp"]])
    return np.array(rows)


@given(
    SEEDS, st.sampled_from([None, 1, 2, 9]), st.sampled_from([0.0, 1.0]), st.booleans(), st.sampled_from([1, 1.25])
)
@FEW
def test_sweeps_against_a_loop_over_points(
    seed: int, most: int | None, close: float, to_reference: bool, scale: float
) -> None:
    tree = sweeps_sample(np.random.default_rng(seed))
    for record in (tree["lidar"], *tree["sweeps"]):  # of a scene that was scaled
        record["reference_from_lidar"] = np.diag([scale, scale, scale, 1]) @ record["reference_from_lidar"]
    frame = "reference" if to_reference else "lidar"
    step = LidarSweepAggregator("lidar", num_sweeps=most, close_distance=close, frame=frame)
    output = step(sample_of(tree))
    assert output.format.names == ("lidar",)
    expected = joined_points(tree, [0, 1, 3][: most or 3], close, to_reference)
    np.testing.assert_allclose(output["lidar"]["points"], expected, atol=1e-5)
    pose = np.eye(4) if to_reference else tree["lidar"]["reference_from_lidar"]
    np.testing.assert_array_equal(output["lidar"]["reference_from_lidar"], pose)


def test_points_of_the_frame_are_kept_bit_by_bit_and_age_replaces_a_column() -> None:
    tree = sweeps_sample(np.random.default_rng(1))
    points = LidarSweepAggregator("lidar", age_column=4, close_distance=100)(sample_of(tree))["lidar"]["points"]
    assert points.shape == (7, 5)
    np.testing.assert_array_equal(points[:, :4], tree["lidar"]["points"][:, :4])
    assert (points[:, 4] == 0).all()
    points = LidarSweepAggregator("lidar", age_column=4)(sample_of(tree))["lidar"]["points"]
    np.testing.assert_allclose(points[:, 4], [0] * 7 + [0.05] * 5 + [0.1] * 6 + [0.2] * 3, atol=5e-7)


def test_where_there_are_no_sweeps() -> None:
    tree = sweeps_sample(np.random.default_rng(2), (0, 0))
    plain = LidarSweepAggregator("lidar", num_sweeps=3)(sample_of(tree))["lidar"]["points"]
    assert len(plain) == 7
    filled = LidarSweepAggregator("lidar", num_sweeps=3, fills_up=True, close_distance=1.0)
    points = filled(sample_of(tree))["lidar"]["points"]
    near = (np.abs(tree["lidar"]["points"][:, :2]) < 1).all(axis=1)
    np.testing.assert_array_equal(points, np.concatenate([plain] + [plain[~near]] * 3))


def test_drawn_sweeps() -> None:
    """In the order of the drawn numbers, only among those that are there; the newest ones where all are used."""
    tree = sweeps_sample(np.random.default_rng(3))
    step = LidarSweepAggregator("lidar", num_sweeps=2, selection="drawn")
    run = run_step(step, sample_of(tree), run="workers", draws={"order": [0.5, 0.3, 0.0, 0.1]})
    np.testing.assert_allclose(run.output["lidar"]["points"], joined_points(tree, [3, 1], 0, False), atol=1e-5)
    all_of_them = LidarSweepAggregator("lidar", num_sweeps=3, selection="drawn")
    run = run_step(all_of_them, sample_of(tree), run="workers", seed=4)
    np.testing.assert_allclose(run.output["lidar"]["points"], joined_points(tree, [0, 1, 3], 0, False), atol=1e-5)
    newest = LidarSweepAggregator("lidar", num_sweeps=1, selection="drawn", num_candidates=3)  # the third is empty
    runs = [run_step(newest, sample_of(tree), run="workers", seed=seed) for seed in range(20)]
    ages = {float(run.output["lidar"]["points"][-1, -1].round(3)) for run in runs}
    assert ages == {np.float32(0.05), np.float32(0.1)}


# --- masks ----------------------------------------------------------------------------------------------

GRID: dict[str, Any] = {"x_range": (-10, 14), "y_range": (-6, 6), "cell_size": 0.5}


def cell_centers() -> list[tuple[int, int, float, float]]:
    return [(i, j, -10 + 0.5 * (i + 0.5), -6 + 0.5 * (j + 0.5)) for i in range(48) for j in range(24)]


def bev_sample(rng: np.random.Generator) -> dict[str, Any]:
    lines = [rng.normal(size=(length, 2)) * 6 for length in (2, 4, 1, 7)]
    boxes = {
        "centers": rng.normal(size=(3, 3)).astype(np.float32) * 6,
        "sizes": rng.uniform(0.5, 6, size=(3, 3)).astype(np.float32),
        "yaws": rng.uniform(-4, 4, size=3).astype(np.float32),
        "categories": np.array([1, 0, 5], np.int32),
    }
    return {**lines_sample(lines, [0, 1, 1, 2]), "boxes": boxes}


def masks_of(tree: dict[str, Any], **settings: Any) -> np.ndarray:
    masks = BEVMaskAdder(**{"mask_path": "masks", **GRID, **settings})(sample_of(tree))["masks"]
    assert isinstance(masks, np.ndarray)
    assert masks.dtype == np.uint8
    return masks


def distance_to(line: np.ndarray, x: float, y: float) -> float:
    """By the projection onto each segment."""
    best = math.inf
    for (ax, ay), (bx, by) in zip(line, line[1:] if len(line) > 1 else line, strict=False):
        squared = (bx - ax) ** 2 + (by - ay) ** 2
        share = min(max(((x - ax) * (bx - ax) + (y - ay) * (by - ay)) / squared, 0), 1) if squared else 0
        best = min(best, math.hypot(x - ax - share * (bx - ax), y - ay - share * (by - ay)))
    return best


@given(SEEDS)
@settings(max_examples=examples(4, 8), deadline=None)
def test_masks_against_a_loop_over_cells(seed: int) -> None:
    tree = bev_sample(np.random.default_rng(seed))
    points = np.split(tree["map_lines"]["points"], np.cumsum(tree["map_lines"]["num_points"])[:-1])
    masks = masks_of(tree, lines=[0, [1, 2]], areas=[2], boxes=[0, [1, 7]], line_width=1.4)
    assert masks.shape == (5, 48, 24)
    ring = cv2.UMat(points[3].astype(np.float32)).get()
    for i, j, x, y in cell_centers():
        near = [distance_to(line, x, y) <= 0.7 for line in points]
        assert masks[0, i, j] == near[0]
        assert masks[1, i, j] == any(near[1:])
        signed = cv2.pointPolygonTest(ring, (x, y), True)
        if abs(signed) > 1e-3:
            assert masks[2, i, j] == (signed > 0)
        for mask, row in ((3, 1), (4, 0)):
            center, size, yaw = (tree["boxes"][name][row].astype(float) for name in ("centers", "sizes", "yaws"))
            corner = np.array([x, y]) - center[:2]
            along = abs(corner @ [math.cos(yaw), math.sin(yaw)]) - size[0] / 2
            across = abs(corner @ [-math.sin(yaw), math.cos(yaw)]) - size[1] / 2
            if min(abs(along), abs(across)) > 1e-6:
                assert masks[mask, i, j] == (along <= 0 and across <= 0)


def test_nothing_to_draw_and_far_away() -> None:
    tree = bev_sample(np.random.default_rng(0))
    assert not masks_of(tree, lines=[9], boxes=[9]).any()
    tree["map_lines"]["points"] += 1000
    tree["boxes"]["centers"] -= 1000
    assert not masks_of(tree, lines=[[0, 1, 2]], areas=[2], boxes=[[0, 1]]).any()
    assert not masks_of(lines_sample([]), lines=[0], areas=[0]).any()


# --- what is refused ------------------------------------------------------------------------------------

OF_SETTINGS: list[tuple[Any, dict[str, Any], str]] = [
    (LidarDepthMapAdder, {**DEPTH, "strides": {}}, "`strides` must be a dict"),
    (LidarDepthMapAdder, {**DEPTH, "strides": {"a": 0}}, "`strides['a']` must be a whole number of at least 1"),
    (LidarDepthMapAdder, {**DEPTH, "image_hw": [4]}, "`image_hw` must be the height and the width of an image"),
    (LidarDepthMapAdder, {**DEPTH, "image_hw": [4, 0]}, "`image_hw` must be...at least 1 pixel each"),
    (LidarDepthMapAdder, {**DEPTH, "depth_range": (0, 1)}, "`depth_range` must"),
    (FutureTrajectoryAdder, {**OF_OBJECTS, "command_name": "c"}, "`command_name` is for the vehicle"),
    (FutureTrajectoryAdder, {**OF_VEHICLE, "right": "z"}, "`right` must be one of 'x', '-x', 'y', '-y', got 'z'"),
    (LidarSweepAggregator, {"frame": "ego"}, "`frame` must be one of 'lidar', 'reference'"),
    (LidarSweepAggregator, {"num_candidates": 0}, "`num_candidates` must be a whole number of at least 1, got 0"),
    (BEVMaskAdder, GRID, "One of `lines`, `areas` and `boxes` must name a category"),
    (BEVMaskAdder, {**GRID, "lines": [0], "cell_size": 0.7}, "`x_range` must be a whole multiple of `cell_size`"),
    (BEVMaskAdder, {**GRID, "boxes": [[]]}, "`boxes` must be numbers of categories"),
    (BEVMaskAdder, {**GRID, "areas": 3}, "`areas` must be numbers of categories"),
    (functools.partial(BEVMaskAdder, ()), {**GRID, "lines": [0]}, "`mask_path` must have at least one name"),
]


@pytest.mark.parametrize(("make", "settings", "words"), OF_SETTINGS)
def test_settings_that_are_refused(make: Any, settings: Any, words: str) -> None:
    names = () if isinstance(make, functools.partial) else ("name",)
    assert_refused(lambda: make(*names, **settings), words)


POINTS, LINES = np.zeros((4, 3)), lines_sample([np.zeros((3, 2)), np.zeros((1, 2))])
EGO, SWEPT = {"future_positions": POINTS, "is_future_known": np.ones(4, bool)}, ("lidar", "reference_from_lidar")
OF_DEPTHS = LidarDepthMapAdder("matrix", **{**DEPTH, "point_path": "points"})
OF_LINES = MapLineVectorizer("points", count_name="num_points", vector_name="vectors")
OF_EGO = FutureTrajectoryAdder("future_positions", **OF_VEHICLE)
OF_ONE_NAME = FutureTrajectoryAdder("future_positions", **{**OF_VEHICLE, "mask_name": "offsets"})
OF_SWEEPS, OF_MASKS = LidarSweepAggregator(), BEVMaskAdder("masks", **GRID, lines=[0])
TREES = {OF_LINES: LINES, OF_MASKS: LINES, OF_EGO: {"ego": EGO}, OF_ONE_NAME: {"ego": EGO}}
TREES[OF_DEPTHS] = {"points": POINTS, "matrix": np.eye(4)}
OF_SAMPLES: list[tuple[Any, tuple[Any, ...], Any, str]] = [
    (OF_DEPTHS, ("points",), POINTS[:, :2], "points: Points must be (P, 3) or have more columns"),
    (OF_DEPTHS, ("matrix",), np.eye(3), "matrix: A matrix must be (3, 4) or (4, 4)"),
    (OF_LINES, ("map_lines", "num_points"), np.ones(3, int), "points: There must be as many points as `num_"),
    (OF_EGO, ("ego", "is_future_known"), np.ones(2, bool), "ego.future_positions: Future places must be (T, 3)"),
    (OF_ONE_NAME, (), None, "ego.offsets: exists already, so it cannot be added"),
    (LidarSweepAggregator(sweep_path="x"), (), None, "x: there is no such array of sweeps (`num_sweeps` of a"),
    (LidarSweepAggregator(age_column=5), (), None, "lidar.points: Points must have a column 5 for the age"),
    (OF_SWEEPS, SWEPT, np.zeros((4, 4)), "lidar.reference_from_lidar: The matrix must have an inverse"),
    (
        OF_MASKS,
        ("map_lines", "points"),
        np.full((4, 2), np.nan),
        "map_lines.points: Coordinates must be finite numbers",
    ),
    (OF_MASKS, ("map_lines", "categories"), np.zeros(1, np.int32), "one category for each"),
]


@pytest.mark.parametrize(("step", "path", "value", "words"), OF_SAMPLES)
def test_samples_that_are_refused(step: Any, path: tuple[Any, ...], value: Any, words: str) -> None:
    tree: Any = copy.deepcopy(TREES.get(step)) or sweeps_sample(np.random.default_rng(0))
    if path:
        *groups, name = path
        functools.reduce(operator.getitem, groups, tree)[name] = value
    assert_refused(lambda: step(sample_of(tree)), words, FrameworkError)
