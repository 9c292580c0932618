"""The demo data generator: what it writes, and what its index holds."""

import doctest
import hashlib
import importlib

import numpy as np
import pytest
from driving_scenes import (
    SceneSettings,
    drive_of,
    export,
    export_nuscenes,
    generate_scenes,
    lidar_points,
)
from driving_scenes.generation import draw_sequence_lengths

SMALL = {"num_sequences": 3, "frames_per_sequence": (2, 5), "image_hw": (64, 112), "seed": 3}
TINY = {"num_sequences": 1, "frames_per_sequence": (1, 1), "image_hw": (32, 48), "traffic_density": 0.2}


@pytest.fixture(scope="module")
def scenes():
    return generate_scenes(**SMALL)


def _digests(root):
    files = sorted(path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


# ---- what is generated


def test_equal_settings_give_equal_bytes(scenes, tmp_path):
    first = export_nuscenes(scenes, tmp_path / "first")
    again = export_nuscenes(generate_scenes(**SMALL), tmp_path / "again")
    assert _digests(again) == _digests(first)


def test_default_lengths_are_pinned():
    # Benchmarks are quoted for the default data set: a change of these numbers goes into the changelog.
    assert draw_sequence_lengths(SceneSettings()) == [14, 12, 12, 14, 12]


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
