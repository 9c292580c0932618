"""The demo data generator: what it writes, what the reader gives back, and that boxes fit the pictures."""

import doctest
import hashlib
import importlib
import io
import itertools
import json
import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time

import driving_scenes
import numpy as np
import pytest
from driving_scenes import (
    CAMERA_NAMES,
    DatasetError,
    DatasetExistsError,
    DrivingScenes,
    SceneSettings,
    SettingsError,
    box_corners,
    draw_boxes,
    ensure_scenes,
    generate_scenes,
    lidar_points,
    project_points,
    projected_extents,
)
from driving_scenes.__main__ import main
from driving_scenes.cameras import camera_rig
from driving_scenes.generation import draw_sequence_lengths, render_frame
from driving_scenes.geometry import invert_rigid, rotation_about_z, transform_points
from driving_scenes.rendering import SceneRenderer
from driving_scenes.scenery import Palette, Streetscape
from driving_scenes.storage import TABLES
from driving_scenes.traffic import CAR, CYCLIST, PEDESTRIAN, RANGE_M, TRUCK, Road, simulate_traffic
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from support.laws import examples

SMALL = {"num_sequences": 3, "frames_per_sequence": (2, 5), "image_hw": (64, 112), "seed": 3}
TINY = {"num_sequences": 1, "frames_per_sequence": (1, 1), "image_hw": (32, 48), "traffic_density": 0.2}


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    return generate_scenes(tmp_path_factory.mktemp("scenes") / "small", **SMALL)


@pytest.fixture(scope="module")
def frames(scenes):
    return [scenes.frame(index) for index in range(scenes.num_frames)]


@pytest.fixture(scope="module")
def long_traffic():
    """Four sequences of 12 frames, without pictures."""
    settings = SceneSettings()
    return [simulate_traffic(settings, 12, 0.0, np.random.default_rng(seed)) for seed in range(4)]


@pytest.fixture
def copy(scenes, tmp_path):
    """A data set that a test may damage."""
    shutil.copytree(scenes.root, tmp_path / "copy")
    return tmp_path / "copy"


def _digests(root):
    files = sorted(path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _decoded(jpeg):
    return np.asarray(Image.open(io.BytesIO(jpeg.tobytes())))


def _seeded_renderers(traffic, image_hw):
    rng = np.random.default_rng(0)
    street, palette = Streetscape.draw(rng), Palette.draw(0, rng)
    for camera in camera_rig(image_hw):
        yield SceneRenderer(camera, traffic.road.curvature_per_m, street, palette)


# ---- what is generated


def test_equal_settings_give_equal_bytes(scenes, tmp_path):
    again = generate_scenes(tmp_path / "again", **SMALL)
    assert _digests(again.root) == _digests(scenes.root)


@pytest.mark.wide
def test_another_seed_gives_other_pictures_and_tables(scenes, tmp_path):
    other = _digests(generate_scenes(tmp_path / "other", **{**SMALL, "seed": 4}).root)
    ours = _digests(scenes.root)
    rig = {f"tables/{name}.npy" for name in ("intrinsics", "ego_from_camera", "image_hw")}
    same = {name for name in ours if other.get(name) == ours[name]}
    assert same - {"tables/sequence_lengths.npy"} == rig


def test_files_are_exactly_the_documented_ones(scenes):
    wanted = {"scenes.json", *(f"tables/{name}.npy" for name in TABLES)}
    for name, length in zip(scenes.sequence_names, scenes.sequence_lengths, strict=True):
        wanted |= {f"{name}/{camera}/{frame:06d}.jpg" for camera in CAMERA_NAMES for frame in range(length)}
    assert set(_digests(scenes.root)) == wanted
    assert not [path for path in scenes.root.parent.iterdir() if "partial" in path.name]


def test_tables_can_be_mapped_and_have_the_documented_types(scenes):
    for name, text in TABLES.items():
        table = np.load(scenes.root / "tables" / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        assert isinstance(table, np.memmap), name
        assert table.dtype.name in text, name


def test_default_lengths_are_pinned():
    # Benchmarks are quoted for the default data set: a change of these numbers goes into the changelog.
    assert draw_sequence_lengths(SceneSettings()) == [14, 12, 12, 14, 12]


@given(
    st.integers(2, 12),
    st.tuples(st.integers(1, 20), st.integers(0, 20)).map(lambda pair: (pair[0], sum(pair))),
    st.integers(0, 2**40),
)
def test_lengths_stay_in_range_and_differ_where_they_can(num_sequences, frames_per_sequence, seed):
    low, high = frames_per_sequence
    lengths = draw_sequence_lengths(
        SceneSettings(num_sequences=num_sequences, frames_per_sequence=frames_per_sequence, seed=seed)
    )
    assert len(lengths) == num_sequences
    assert all(low <= length <= high for length in lengths)
    assert (len(set(lengths)) > 1) == (low < high)


def test_timestamps_follow_the_rate_and_pause_between_sequences(scenes, frames):
    for earlier, later in itertools.pairwise(frames):
        step = later.timestamp_s - earlier.timestamp_s
        if later.is_first_of_sequence:
            assert step >= 60.0
        else:
            assert step == 0.5


def test_empty_traffic_gives_frames_without_objects(tmp_path):
    frame = generate_scenes(tmp_path / "empty", **{**TINY, "traffic_density": 0.0}).frame(0)
    assert frame.centres.shape == (0, 3)
    assert frame.visibility.shape == (0, 6)
    assert box_corners(frame.centres, frame.sizes, frame.yaws).shape == (0, 8, 3)


# ---- motion


def test_ego_moves_forward_along_its_heading(long_traffic):
    for traffic in long_traffic:
        steps = np.diff(traffic.world_from_ego[:, :3, 3], axis=0)
        forward = 0.5 * (traffic.world_from_ego[1:, :3, 0] + traffic.world_from_ego[:-1, :3, 0])
        along = np.einsum("fi,fi->f", steps, forward / np.linalg.norm(forward, axis=1, keepdims=True))
        np.testing.assert_allclose(along, np.linalg.norm(steps, axis=1), rtol=1e-9)
        assert (along > 0.5).all()
    speeds = [float(np.ptp(traffic.ego_s_m)) for traffic in long_traffic]
    bends = [traffic.road.curvature_per_m for traffic in long_traffic]
    assert len({round(speed, 3) for speed in speeds}) == len({round(bend, 6) for bend in bends}) == 4


def test_velocities_are_the_derivatives_of_the_positions(long_traffic):
    compared = 0
    for traffic in long_traffic:
        rows = {}
        for frame in range(12):
            for row in range(traffic.offsets[frame], traffic.offsets[frame + 1]):
                rows[frame, int(traffic.track_ids[row])] = row
        for (frame, track), row in rows.items():
            before, after = rows.get((frame - 1, track)), rows.get((frame + 1, track))
            if before is None or after is None:
                continue
            moved = traffic.centres_world[after] - traffic.centres_world[before]
            # A central difference over 1 s: exact but for the bend of the road (its error: angle^2 / 24).
            speed = np.linalg.norm(traffic.velocities_world[row])
            assert np.linalg.norm(moved[:2] - traffic.velocities_world[row]) <= 2e-3 * speed + 1e-9
            assert abs(moved[2]) < 1e-12
            compared += 1
    assert compared > 1000


def test_objects_head_where_they_drive_and_some_are_parked(long_traffic):
    for traffic in long_traffic:
        speeds = np.linalg.norm(traffic.velocities_world, axis=1)
        is_moving = speeds > 0.1
        headings = np.arctan2(traffic.velocities_world[:, 1], traffic.velocities_world[:, 0])
        off = np.angle(np.exp(1j * (headings - traffic.yaws_world)))[is_moving]
        np.testing.assert_allclose(off, 0.0, atol=1e-9)
        assert 0.2 < is_moving.mean() < 0.95
        assert set(traffic.category_ids) == {CAR, TRUCK, PEDESTRIAN, CYCLIST}


def test_objects_keep_category_and_size_and_stand_on_the_ground(long_traffic):
    for traffic in long_traffic:
        for track in np.unique(traffic.track_ids):
            of_track = traffic.track_ids == track
            assert len(np.unique(traffic.category_ids[of_track])) == 1
            assert len(np.unique(traffic.sizes_lwh[of_track], axis=0)) == 1
        ground = traffic.world_from_ego[0, 2, 3]
        bottoms = traffic.centres_world[:, 2] - 0.5 * traffic.sizes_lwh[:, 2]
        np.testing.assert_allclose(bottoms, ground, atol=1e-12)


def test_no_two_footprints_overlap(long_traffic):
    for traffic in long_traffic:
        for frame in range(12):
            rows = slice(traffic.offsets[frame], traffic.offsets[frame + 1])
            world_from_ego = traffic.world_from_ego[frame]
            ego_yaw = np.arctan2(world_from_ego[1, 0], world_from_ego[0, 0])
            ego_middle = transform_points(world_from_ego, [1.4, 0.0, 0.8])
            corners = box_corners(
                np.vstack([ego_middle, traffic.centres_world[rows]]),
                np.vstack([[4.7, 1.9, 1.6], traffic.sizes_lwh[rows]]),
                np.append(ego_yaw, traffic.yaws_world[rows]),
            )[:, :4, :2]
            overlapping = [
                (first, second)
                for first in range(len(corners))
                for second in range(first)
                if np.linalg.norm(corners[first, 0] - corners[second, 0]) < 25.0
                and _do_overlap(corners[first], corners[second])
            ]
            assert overlapping == []


def _do_overlap(one, other):
    """Separating axes for two rectangles (4, 2)."""
    for rectangle in (one, other):
        for axis in (rectangle[1] - rectangle[0], rectangle[2] - rectangle[1]):
            if (one @ axis).max() < (other @ axis).min() or (other @ axis).max() < (one @ axis).min():
                return False
    return True


def test_objects_stay_in_range(long_traffic):
    for traffic in long_traffic:
        frame_of_row = np.repeat(np.arange(12), np.diff(traffic.offsets))
        ego = traffic.world_from_ego[frame_of_row, :3, 3]
        # The chord is never longer than the way along the road plus the way across it.
        assert np.linalg.norm(traffic.centres_world - ego, axis=1).max() < RANGE_M * 1.2 + 15.0


def test_road_poses_bend_by_the_curvature():
    road = Road(0.01, np.eye(4))
    positions, headings = road.poses(np.array([0.0, 50.0 * np.pi]), np.array([2.0, 0.0]))
    np.testing.assert_allclose(positions, [[0.0, 2.0, 0.0], [100.0, 100.0, 0.0]], atol=1e-9)
    np.testing.assert_allclose(headings, [0.0, 0.5 * np.pi])


# ---- calibration and geometry


@pytest.mark.parametrize("image_hw", [(256, 448), (900, 1600)], ids=str)
def test_rig_points_where_the_names_say(image_hw):
    yaws = dict(zip(CAMERA_NAMES, (0, -55, 55, 180, 110, -110), strict=True))
    seen_intrinsics = set()
    for camera in camera_rig(image_hw):
        forward = camera.ego_from_camera[:3, 2]
        heading = np.degrees(np.arctan2(forward[1], forward[0]))
        assert abs((heading - yaws[camera.name] + 180) % 360 - 180) < 0.5
        assert camera.ego_from_camera[:3, 1][2] < -0.99, "y must point down"
        assert np.linalg.det(camera.ego_from_camera[:3, :3]) == pytest.approx(1.0)
        field = 2 * np.degrees(np.arctan(0.5 * image_hw[1] / camera.intrinsics[0, 0]))
        assert field == pytest.approx(96.0 if camera.name == "BACK" else 70.0, abs=1.0)
        seen_intrinsics.add(camera.intrinsics.tobytes())
    assert len(seen_intrinsics) == 6


def test_camera_from_ego_is_the_inverse_and_builds_the_projection(frames):
    frame = frames[0]
    np.testing.assert_allclose(
        frame.camera_from_ego @ frame.ego_from_camera, np.tile(np.eye(4), (6, 1, 1)), atol=1e-12
    )
    np.testing.assert_array_equal(frame.image_from_ego, frame.intrinsics @ frame.camera_from_ego[:, :3])


def test_a_point_ahead_lies_in_the_middle_columns_of_the_front_camera_only(frames):
    frame = frames[0]
    for camera, name in enumerate(CAMERA_NAMES):
        pixels, depths = project_points([[10.0, 0.0, 1.5]], frame.image_from_ego[camera])
        height, width = frame.image_hw[camera]
        is_inside = depths[0] > 0 and 0 <= pixels[0, 0] < width and 0 <= pixels[0, 1] < height
        assert is_inside == (name == "FRONT")
        if name == "FRONT":
            assert abs(pixels[0, 0] - 0.5 * width) < 0.02 * width
            assert depths[0] == pytest.approx(10.0 - 1.7, abs=0.02)


def test_left_is_left_and_up_is_up_in_the_picture(frames):
    pixels, _ = project_points([[10.0, 0.0, 1.0], [10.0, 1.0, 1.0], [10.0, 0.0, 2.0]], frames[0].image_from_ego[0])
    middle, left, up = pixels
    assert left[0] < middle[0] - 1.0
    assert up[1] < middle[1] - 1.0


def test_points_behind_the_camera_have_no_pixel():
    pixels, depths = project_points([[-5.0, 0.0, 1.0]], camera_rig((64, 112))[0].image_from_ego)
    assert np.isnan(pixels).all()
    assert depths[0] < 0.0


def test_box_corners_come_in_the_documented_order():
    corners = box_corners([[1.0, 2.0, 3.0]], [[4.0, 2.0, 6.0]], [0.5 * np.pi])[0]
    front_left, front_right, back_right, back_left = ([0, 4], [2, 4], [2, 0], [0, 0])
    wanted = [[*xy, z] for z in (0.0, 6.0) for xy in (front_left, front_right, back_right, back_left)]
    np.testing.assert_allclose(corners, wanted, atol=1e-12)


@given(
    st.floats(-3.0, 3.0),
    st.lists(st.floats(-50.0, 50.0), min_size=3, max_size=3),
    st.lists(st.floats(-50.0, 50.0), min_size=3, max_size=3),
)
def test_inverting_a_transform_brings_points_back(yaw, shift, point):
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = rotation_about_z(yaw), shift
    np.testing.assert_allclose(
        transform_points(invert_rigid(matrix), transform_points(matrix, point)), point, atol=1e-9
    )


def test_extents_are_cut_at_the_near_plane():
    image_from_ego = camera_rig((64, 112))[0].image_from_ego
    beside, behind = box_corners([[3.0, 2.0, 1.0], [-9.0, 0.0, 1.0]], [[8.0, 1.0, 1.0]] * 2, [0.0, 0.0])
    extents = projected_extents(np.stack([beside, behind]), image_from_ego)
    assert np.isfinite(extents[0]).all()
    assert extents[0, 0] < -1000.0  # the box passes the camera on the left
    assert np.isnan(extents[1]).all()


# ---- boxes fit the pictures


@pytest.mark.wide
def test_pixels_of_unhidden_objects_end_where_their_corners_project(long_traffic):
    compared = []
    some_traffic = long_traffic[: examples(2, 4)]
    for traffic in some_traffic:
        for renderer in _seeded_renderers(traffic, (256, 448)):
            for frame in (0, 4, 11):
                compared += _check_extents(renderer, traffic, frame)
    assert len(compared) > 25 * len(some_traffic)
    assert set(compared) == {CAR, TRUCK, PEDESTRIAN, CYCLIST}


def _check_extents(renderer, traffic, frame):
    """Compare one picture; returns the categories of the objects that could be compared."""
    view = render_frame(renderer, traffic, frame)
    rows = slice(traffic.offsets[frame], traffic.offsets[frame + 1])
    corners_world = box_corners(traffic.centres_world[rows], traffic.sizes_lwh[rows], traffic.yaws_world[rows])
    corners_ego = transform_points(invert_rigid(traffic.world_from_ego[frame]), corners_world)
    pixels, depths = project_points(corners_ego, renderer.camera.image_from_ego)
    height, width = renderer.camera.image_hw
    compared = []
    for row in range(len(corners_ego)):
        if depths[row].min() < 0.1:
            continue
        low, high = pixels[row].min(axis=0), pixels[row].max(axis=0)
        is_inside = (low >= 0.0).all() and high[0] <= width and high[1] <= height
        if not is_inside or (high - low).min() < 2.0 or view.visibility[row] < 1.0:
            continue
        lines, columns = np.nonzero(view.object_rows == row)
        found = [columns.min(), lines.min(), columns.max() + 1, lines.max() + 1]
        # A pixel counts where its middle is covered: half a pixel for that, and as much at sharp corners.
        np.testing.assert_allclose(found, [*low, *high], atol=1.5)
        compared.append(int(traffic.category_ids[rows][row]))
    return compared


def test_what_the_object_buffer_says_is_what_the_picture_shows(long_traffic):
    """Against the picture without traffic, pixels change where objects are; shadows only darken the rest."""
    traffic = long_traffic[0]
    renderer = next(_seeded_renderers(traffic, (128, 224)))
    with_objects = render_frame(renderer, traffic, 3)
    nobody = np.empty((0, 3))
    empty = renderer.render(
        float(traffic.ego_s_m[3]), 0.0, nobody, nobody, np.empty(0), np.empty(0, int), np.empty(0, int)
    )
    assert (empty.object_rows == -1).all()
    is_object = with_objects.object_rows >= 0
    is_changed = (with_objects.image != empty.image).any(axis=-1)
    assert is_changed[is_object].mean() > 0.98
    only_darker = (with_objects.image <= empty.image)[~is_object]
    assert only_darker.all()


def test_nearer_boxes_hide_farther_ones():
    rng = np.random.default_rng(0)
    camera = camera_rig((64, 112))[0]
    renderer = SceneRenderer(camera, 1e-4, Streetscape.draw(rng), Palette.draw(0, rng))
    centres = np.array([[20.0, 0.0, 1.0], [10.0, 0.0, 1.5], [12.0, 2.0, 1.0], [-20.0, 0.0, 1.0]])
    sizes = np.array([[4.0, 1.8, 1.5], [2.0, 3.0, 3.0], [4.0, 2.0, 2.0], [4.0, 2.0, 2.0]])
    view = renderer.render(0.0, 0.0, centres, sizes, np.zeros(4), np.zeros(4, int), np.arange(4))
    assert view.visibility[[0, 1, 3]].tolist() == [0.0, 1.0, 0.0]
    assert 0.0 < view.visibility[2] < 1.0
    assert set(np.unique(view.object_rows)) == {-1, 1, 2}


def test_a_box_that_passes_the_camera_is_cut_cleanly():
    rng = np.random.default_rng(0)
    camera = camera_rig((64, 112))[0]
    renderer = SceneRenderer(camera, 1e-4, Streetscape.draw(rng), Palette.draw(0, rng))
    centre, size = np.array([[4.0, 2.6, 1.4]]), np.array([[9.0, 2.0, 2.8]])
    view = renderer.render(0.0, 0.0, centre, size, np.zeros(1), np.zeros(1, int), np.zeros(1, int))
    lines, columns = np.nonzero(view.object_rows == 0)
    assert columns.min() == 0
    corners = box_corners(centre, size, [0.0])
    far_edge = project_points(corners[0, [1, 5]], camera.image_from_ego)[0]  # front right, bottom and top
    assert columns.max() + 1 == pytest.approx(far_edge[:, 0].max(), abs=1.5)
    assert lines.min() == 0
    assert lines.max() == 63


def test_draw_boxes_draws_on_the_projected_edges_and_leaves_the_input(frames):
    image = np.zeros((64, 112, 3), np.uint8)
    corners = box_corners([[8.0, 0.0, 1.5], [3.0, 2.0, 1.0]], [[2.0, 2.0, 1.5], [10.0, 1.0, 2.0]], [0.3, 0.0])
    image_from_ego = frames[0].image_from_ego[0]
    drawn = draw_boxes(image, corners, image_from_ego, colours=[(255, 0, 0), (0, 255, 0)])
    assert not image.any()
    pixels, _ = project_points(corners[0], image_from_ego)
    lines, columns = np.nonzero(drawn[..., 0])
    np.testing.assert_allclose(
        [columns.min(), lines.min(), columns.max() + 1, lines.max() + 1],
        [*pixels.min(axis=0), *pixels.max(axis=0)],
        atol=1.5,
    )
    assert drawn[..., 1].any()
    assert not drawn[..., 2].any()


def test_draw_boxes_wants_a_colour_for_every_box(frames):
    corners = box_corners([[8.0, 0.0, 1.5]], [[2.0, 2.0, 1.5]], [0.0])
    with pytest.raises(ValueError, match="got 2 colours for 1 boxes"):
        draw_boxes(np.zeros((8, 8, 3), np.uint8), corners, frames[0].image_from_ego[0], colours=[(1, 2, 3)] * 2)


def test_pictures_show_a_street(frames):
    """Sky above and grey road below in the front camera, with light and dark parts."""
    image = _decoded(frames[0].jpegs[0]).astype(float)
    assert image.shape == (64, 112, 3)
    road = image[-6:, 30:80].reshape(-1, 3)
    assert np.ptp(np.median(road, axis=0)) < 25.0
    assert image[:4].mean() > road.mean()
    assert image.std() > 20.0


# ---- reading


def test_reader_gives_back_what_the_tables_hold(scenes, frames):
    tables = {name: np.load(scenes.root / "tables" / f"{name}.npy") for name in TABLES}
    assert [frame.index for frame in frames] == list(range(sum(scenes.sequence_lengths)))
    for frame in frames:
        rows = slice(*tables["object_offsets"][frame.index : frame.index + 2])
        world = transform_points(frame.world_from_ego, frame.centres)
        np.testing.assert_allclose(world, tables["centres_world"][rows], atol=1e-9)
        yaw = np.arctan2(frame.world_from_ego[1, 0], frame.world_from_ego[0, 0])
        turned = np.exp(1j * (frame.yaws + yaw - tables["yaws_world"][rows]))
        np.testing.assert_allclose(turned, 1.0, atol=1e-12)
        velocities = frame.velocities @ frame.world_from_ego[:2, :2].T
        np.testing.assert_allclose(velocities, tables["velocities_world"][rows], atol=1e-12)
        np.testing.assert_array_equal(frame.sizes, tables["sizes_lwh"][rows])
        np.testing.assert_array_equal(frame.track_ids, tables["track_ids"][rows])
        np.testing.assert_array_equal(frame.category_ids, tables["category_ids"][rows])
        np.testing.assert_array_equal(frame.visibility, tables["visibility"][rows])
        assert ((frame.yaws >= -np.pi) & (frame.yaws < np.pi)).all()


def test_reader_knows_the_sequences(scenes, frames):
    lengths = scenes.sequence_lengths
    assert len(set(lengths)) > 1
    assert scenes.num_frames == len(scenes) == sum(lengths)
    wanted = [number for number, length in enumerate(lengths) for _ in range(length)]
    assert [scenes.sequence_of(index) for index in range(len(scenes))] == wanted
    assert [frame.sequence_index for frame in frames] == wanted
    starts = {0, *np.cumsum(lengths)[:-1].tolist()}
    assert {frame.index for frame in frames if frame.is_first_of_sequence} == starts
    assert scenes.camera_names == CAMERA_NAMES
    assert scenes.settings["seed"] == 3


def test_tracks_do_not_go_on_in_another_sequence(frames):
    tracks = {}
    for frame in frames:
        tracks.setdefault(frame.sequence_index, set()).update(frame.track_ids.tolist())
    assert all(tracks.values())
    assert sum(len(ids) for ids in tracks.values()) == len(set().union(*tracks.values()))


def test_jpegs_are_the_bytes_of_the_files(scenes, frames):
    for frame in frames[:2]:
        for name, jpeg in zip(CAMERA_NAMES, frame.jpegs, strict=True):
            assert jpeg.dtype == np.uint8
            assert jpeg.tobytes() == scenes.jpeg_path(frame.index, name).read_bytes()


def test_reader_pickles_as_its_path(scenes):
    scenes.frame(0)
    pickled = pickle.dumps(scenes)
    assert len(pickled) < 500
    again = pickle.loads(pickled)
    np.testing.assert_array_equal(again.frame(1).centres, scenes.frame(1).centres)
    assert repr(again) == repr(scenes)


def test_a_spawned_process_reads_the_same(scenes):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(scenes.sequence_of, (len(scenes) - 1,)) == 2


@pytest.mark.parametrize("index", [-1, 10**6])
def test_reader_refuses_frames_that_are_not_there(scenes, index):
    with pytest.raises(IndexError, match=rf"must be from 0 to {len(scenes) - 1}, got {index}"):
        scenes.frame(index)


def test_reader_refuses_unknown_cameras(scenes):
    with pytest.raises(KeyError, match=r"must be one of FRONT, .* got 'TOP'"):
        scenes.jpeg_path(0, "TOP")


# ---- data sets that are missing, unfinished, damaged or in the way


def test_missing_folder(tmp_path):
    with pytest.raises(DatasetError, match=r"is not a folder\. Generate one with generate_scenes"):
        DrivingScenes(tmp_path / "nowhere")


def test_folder_without_a_data_set(tmp_path):
    with pytest.raises(DatasetError, match=r"must hold 'scenes.json'.* does not\."):
        DrivingScenes(tmp_path)


def test_interrupted_generation_leaves_nothing_and_is_named(tmp_path, monkeypatch, caplog):
    calls = []

    def stop_in_the_middle(image, quality):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return b"picture"

    with monkeypatch.context() as patch:
        patch.setattr(driving_scenes.generation, "encode_jpeg", stop_in_the_middle)
        with pytest.raises(KeyboardInterrupt):
            ensure_scenes(tmp_path / "set", **TINY)
    assert not (tmp_path / "set").exists()
    with pytest.raises(DatasetError, match="generation still runs or was interrupted"):
        DrivingScenes(tmp_path / "set")
    scenes = ensure_scenes(tmp_path / "set", **TINY)
    assert "left behind by an interrupted generation" in caplog.text
    assert _decoded(scenes.frame(0).jpegs[0]).shape == (32, 48, 3)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".set.lock", "set"]


def test_killed_generation_is_found_and_done_again(tmp_path):
    root = tmp_path / "set"
    path = os.pathsep.join(entry for entry in sys.path if entry)
    command = [sys.executable, "-m", "driving_scenes", str(root), "--frames", "50", "60"]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}) as process:
        while process.poll() is None and not list(tmp_path.rglob("000003.jpg")):
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    assert not root.exists()
    with pytest.raises(DatasetError, match="generation still runs or was interrupted"):
        DrivingScenes(root)
    assert ensure_scenes(root, **TINY).num_frames == 1


def test_processes_that_want_the_same_data_set_generate_it_once(tmp_path):
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        jobs = [pool.apply_async(ensure_scenes, (tmp_path / "set",), TINY) for _ in range(4)]
        assert [job.get(timeout=60).num_frames for job in jobs] == [1, 1, 1, 1]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".set.lock", "set"]


def test_failing_generation_cleans_up_and_keeps_the_old_data_set(copy, monkeypatch):
    before = _digests(copy)

    def fail(image, quality):
        raise RuntimeError("no room")

    monkeypatch.setattr(driving_scenes.generation, "encode_jpeg", fail)
    with pytest.raises(RuntimeError, match="no room"):
        generate_scenes(copy, **TINY, overwrite=True)
    assert _digests(copy) == before
    assert sorted(path.name for path in copy.parent.iterdir()) == [".copy.lock", "copy"]


def test_ensure_generates_once_and_then_reuses(tmp_path):
    root = tmp_path / "deep" / "set"
    first = ensure_scenes(root, **TINY)
    stamp = (root / "scenes.json").stat().st_mtime_ns
    for overwrite in (False, True):
        again = ensure_scenes(root, **TINY, overwrite=overwrite)
        assert (root / "scenes.json").stat().st_mtime_ns == stamp
        assert again.num_frames == first.num_frames


def test_ensure_names_the_settings_that_differ(copy):
    with pytest.raises(DatasetExistsError, match=r"seed: has 3, wanted 4\nPass overwrite=True"):
        ensure_scenes(copy, **{**SMALL, "seed": 4})
    assert ensure_scenes(copy, **TINY, overwrite=True).num_frames == 1


def test_generate_does_not_replace_without_being_told(copy):
    with pytest.raises(DatasetExistsError, match=r"already holds a data set\. Pass overwrite=True"):
        generate_scenes(copy, **TINY)
    assert generate_scenes(copy, **TINY, overwrite=True).num_frames == 1


def test_a_folder_with_something_else_is_never_touched(tmp_path):
    (tmp_path / "diary.txt").write_text("dear diary")
    for make in (generate_scenes, ensure_scenes):
        with pytest.raises(DatasetExistsError, match="holds something else, which is never deleted"):
            make(tmp_path, **TINY, overwrite=True)
    assert (tmp_path / "diary.txt").read_text() == "dear diary"


def test_an_empty_folder_is_free(tmp_path):
    assert generate_scenes(tmp_path, **TINY).num_frames == 1


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": "driving_scenes"'], ids=str)
def test_damaged_manifest(copy, content):
    (copy / "scenes.json").write_text(content)
    with pytest.raises(DatasetError, match=r"must be a JSON file of a data set, .* overwrite=True"):
        DrivingScenes(copy)
    assert ensure_scenes(copy, **TINY, overwrite=True).num_frames == 1


def test_another_format_version(copy):
    manifest = json.loads((copy / "scenes.json").read_text())
    (copy / "scenes.json").write_text(json.dumps({**manifest, "format_version": 99}))
    with pytest.raises(DatasetError, match=r"version 1, got 'driving_scenes' version 99"):
        DrivingScenes(copy)


def test_missing_table(copy):
    (copy / "tables" / "yaws_world.npy").unlink()
    with pytest.raises(DatasetError, match=r"must have the table 'yaws_world.npy'"):
        DrivingScenes(copy).frame(0)


def test_cut_table(copy):
    path = copy / "tables" / "centres_world.npy"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DatasetError, match=r"'centres_world.npy', but opening it failed"):
        DrivingScenes(copy).frame(0)


def test_table_of_the_wrong_length(copy):
    path = copy / "tables" / "timestamps_s.npy"
    np.save(path, np.load(path)[:-1])
    with pytest.raises(DatasetError, match=r"Table 'timestamps_s' .* must have (\d+) rows, got \d+\."):
        DrivingScenes(copy).frame(0)


def test_missing_picture(copy):
    DrivingScenes(copy).jpeg_path(1, "BACK").unlink()
    with pytest.raises(DatasetError, match="Frame 1 must have a picture of camera BACK"):
        DrivingScenes(copy).frame(1)


def test_cut_picture(copy):
    path = DrivingScenes(copy).jpeg_path(0, "BACK")
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(DatasetError, match="must be a whole JPEG file"):
        DrivingScenes(copy).frame(0)


# ---- settings and command line


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("num_sequences", 0, "an integer of at least 1, got 0"),
        ("num_sequences", True, "got True"),
        ("frames_per_sequence", (5, 2), r"1 <= smallest <= largest, got \(5, 2\)"),
        ("frames_per_sequence", 8, "two integers"),
        ("frames_per_sequence", (0, 2), r"got \(0, 2\)"),
        ("image_hw", (16, 400), "from 32 to 4096"),
        ("seed", -1, "an integer of at least 0, got -1"),
        ("jpeg_quality", 100, "from 1 to 95, got 100"),
        ("keyframe_rate_hz", 0.0, "got 0.0"),
        ("keyframe_rate_hz", float("nan"), "got nan"),
        ("traffic_density", -0.5, "got -0.5"),
    ],
)
def test_settings_refuse_nonsense(name, value, rule, tmp_path):
    with pytest.raises(SettingsError, match=rf"{name}: must be .*{rule}"):
        generate_scenes(tmp_path / "set", **{name: value})
    assert not list(tmp_path.iterdir())


def test_all_problems_are_named_at_once():
    with pytest.raises(SettingsError) as caught:
        SceneSettings(num_sequences=0, seed=-1, jpeg_quality=0)
    assert [line.split(":")[0].strip() for line in str(caught.value).splitlines()[1:]] == [
        "num_sequences",
        "seed",
        "jpeg_quality",
    ]


def test_unknown_settings_are_named(tmp_path):
    with pytest.raises(SettingsError, match=r"got num_cameras\. Remove or rename"):
        ensure_scenes(tmp_path / "set", num_cameras=3)


def test_settings_survive_json_also_as_numpy_numbers():
    settings = SceneSettings(num_sequences=np.int64(2), keyframe_rate_hz=np.float32(4.0))
    assert SceneSettings.from_json(json.loads(json.dumps(settings.to_json()))) == settings


def test_command_line(tmp_path, capsys):
    command = [str(tmp_path / "set"), "--sequences", "1", "--frames", "1", "1", "--image-hw", "32", "48"]
    assert main(command) == 0
    assert "1 sequences, 1 frames" in capsys.readouterr().out
    assert main([*command, "--seed", "8"]) == 1
    assert "seed: has 7, wanted 8" in capsys.readouterr().err
    assert main([*command, "--seed", "8", "--overwrite"]) == 0


def test_export_to_nuscenes(tmp_path, capsys):
    command = [str(tmp_path / "set"), "--sequences", "1", "--frames", "6", "6", "--image-hw", "32", "48"]
    target = tmp_path / "nuscenes"
    assert main([*command, "--nuscenes", str(target), "--frames-per-keyframe", "2"]) == 0
    tables = {path.stem: json.loads(path.read_text()) for path in (target / "v1.0-mini").iterdir()}
    assert len(tables) == 13
    assert [scene["nbr_samples"] for scene in tables["scene"]] == [len(tables["sample"])] == [3]
    data = tables["sample_data"]
    assert len(data) == 7 * 5  # the frame behind the last keyframe is left out
    assert all((target / record["filename"]).is_file() for record in data)
    assert {record["filename"].split("/")[0] for record in data if not record["is_key_frame"]} == {"sweeps"}
    frame = DrivingScenes(tmp_path / "set").frame(2)
    annotations = [
        one for one in tables["sample_annotation"] if one["sample_token"] == tables["sample"][1]["token"]
    ]
    world = frame.world_from_ego @ np.vstack([frame.centres.T, np.ones(len(frame.centres))])
    for annotation in annotations:
        row = int(np.argmin(np.linalg.norm(world[:3].T - annotation["translation"], axis=1)))
        np.testing.assert_allclose(world[:3, row], annotation["translation"], atol=1e-9)
        np.testing.assert_allclose(frame.sizes[row][[1, 0, 2]], annotation["size"])
    points, num_points = lidar_points(frame)
    assert [one["num_lidar_pts"] for one in annotations] == num_points[
        (num_points > 0) | (frame.visibility.max(axis=1) > 0)
    ].tolist()
    np.testing.assert_array_equal(
        np.fromfile(target / data[-1]["filename"].replace("000004", "000002"), np.float32).reshape(-1, 5), points
    )
    on_ground = points[points[:, 3] == 12.0]
    np.testing.assert_allclose(on_ground[:, 2], -1.84, atol=1e-4)  # the height of the lidar
    assert main([*command, "--nuscenes", str(target)]) == 1
    assert "The target must be free" in capsys.readouterr().err


@pytest.mark.wide
@pytest.mark.parametrize("module", ["geometry", "settings", "reader", "nuscenes_export"])
def test_examples_in_docstrings(module):
    results = doctest.testmod(importlib.import_module(f"driving_scenes.{module}"))
    assert results.attempted > 0
    assert results.failed == 0
