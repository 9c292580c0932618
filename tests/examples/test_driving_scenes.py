"""The demo data generator: what it writes, what the reader gives back, and that boxes fit the pictures."""

import doctest
import hashlib
import importlib

import numpy as np
import pytest
from driving_scenes import (
    SceneSettings,
    box_corners,
    drive_of,
    export,
    export_nuscenes,
    generate_scenes,
    lidar_points,
    project_points,
)
from driving_scenes.cameras import camera_rig
from driving_scenes.generation import draw_sequence_lengths, render_frame
from driving_scenes.geometry import invert_rigid, transform_points
from driving_scenes.rendering import SceneRenderer
from driving_scenes.scenery import Palette, Streetscape
from driving_scenes.traffic import CAR, CYCLIST, PEDESTRIAN, TRUCK, simulate_traffic
from support.laws import examples

SMALL = {"num_sequences": 3, "frames_per_sequence": (2, 5), "image_hw": (64, 112), "seed": 3}
TINY = {"num_sequences": 1, "frames_per_sequence": (1, 1), "image_hw": (32, 48), "traffic_density": 0.2}


@pytest.fixture(scope="module")
def scenes():
    return generate_scenes(**SMALL)


@pytest.fixture(scope="module")
def long_traffic():
    """Four sequences of 12 frames, without pictures."""
    settings = SceneSettings()
    return [simulate_traffic(settings, 12, 0.0, np.random.default_rng(seed)) for seed in range(4)]


def _digests(root):
    files = sorted(path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _seeded_renderers(traffic, image_hw):
    rng = np.random.default_rng(0)
    street, palette = Streetscape.draw(rng), Palette.draw(0, rng)
    for camera in camera_rig(image_hw):
        yield SceneRenderer(camera, traffic.road.curvature_per_m, street, palette)


# ---- what is generated


def test_equal_settings_give_equal_bytes(scenes, tmp_path):
    first = export_nuscenes(scenes, tmp_path / "first")
    again = export_nuscenes(generate_scenes(**SMALL), tmp_path / "again")
    assert _digests(again) == _digests(first)


def test_default_lengths_are_pinned():
    # Benchmarks are quoted for the default data set: a change of these numbers goes into the changelog.
    assert draw_sequence_lengths(SceneSettings()) == [14, 12, 12, 14, 12]


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


# ---- writing


def test_a_folder_appears_when_it_is_whole(tmp_path, monkeypatch):
    scenes, root = generate_scenes(**TINY), tmp_path / "deep" / "set"
    with monkeypatch.context() as broken:
        broken.setattr(export, "lidar_points", lambda frame: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            export_nuscenes(scenes, root)
    assert not [*root.parent.iterdir()]
    assert export_nuscenes(scenes, root) == root
    assert [path.name for path in root.parent.iterdir()] == ["set"]


def test_index_and_points_of_scenes(scenes):
    drive, files = drive_of(scenes)
    assert drive.frames.time.tolist() == [frame.timestamp_s for frame in scenes.frames]
    rows = np.split(np.arange(len(drive.boxes.center)), drive.boxes.first[1:-1])
    for frame, of_frame in zip(scenes.frames, rows, strict=True):
        points, num_points = lidar_points(frame)
        has_box = (num_points > 0) | (frame.visibility.max(axis=1) > 0)
        assert drive.boxes.num_lidar_points[of_frame].tolist() == num_points[has_box].tolist()
        speeds = np.linalg.norm(frame.velocities[has_box], axis=1)
        attributes = [drive.attributes[number] for number in drive.boxes.attribute[of_frame]]
        assert all(
            ("moving" in name) == (speed > 0.2)
            for name, speed in zip(attributes, speeds, strict=True)
            if "cycle" not in name
        )
        np.testing.assert_array_equal(files[f"samples/LIDAR_TOP/{frame.index:06d}.pcd.bin"], points)
        on_ground = points[points[:, 3] == 12.0]
        np.testing.assert_allclose(on_ground[:, 2], -1.84, atol=1e-4)  # the height of the lidar
        assert files[f"samples/CAM_BACK/{frame.index:06d}.jpg"] == frame.jpegs[3].tobytes()


@pytest.mark.wide
@pytest.mark.parametrize("module", ["geometry", "settings", "frames"])
def test_examples_in_docstrings(module):
    results = doctest.testmod(importlib.import_module(f"driving_scenes.{module}"))
    assert results.attempted > 0
    assert results.failed == 0
