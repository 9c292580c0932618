"""The provider of NAVSIM against what the published code delivers."""

import hashlib
import itertools
import json

import numpy as np
import pytest
from support.arrays import decoded_by_pillow
from support.shared_data import shared_data

from accvlab.driving_data.datasets import NavsimProvider, SceneFilter

PUBLISHED = {
    "poses": "ego_pose",
    "velocities": "ego_velocity",
    "accelerations": "ego_acceleration",
    "commands": "driving_command",
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("index")


def expected(name):
    path = shared_data("golden") / "navsim" / "expected" / name
    return json.loads(path.read_text()) if name.endswith("json") else np.load(path)


def provider_of(cache, scene_filter, **options):
    root = shared_data("golden") / "navsim"
    return NavsimProvider(root, "tiny", scene_filter, index_cache=cache, **{"sensors": {}, **options})


def tokens_of(provider):
    samples = [provider.get_data(number) for number in range(len(provider))]
    found = {}
    for sample in samples:
        found.setdefault(sample["scene"], []).append(sample["token"])
    return found


def test_filters_choose_the_same_scenes(cache):
    filters = expected("filters.json")
    assert len(filters) == 7
    for name, one in filters.items():
        if name == "token_filter":
            found = tokens_of(provider_of(cache, SceneFilter(frame_interval=1, tokens=one["asked"])))
            assert [*itertools.chain(*found.values())] == one["got"]
        else:
            found = tokens_of(provider_of(cache, SceneFilter(**one["config"])))
            assert found == one["tokens_per_log"], name


@pytest.mark.parametrize("name", ["default_navtrain", "no_route_filter", "short"])
def test_states_of_the_vehicle(cache, name):
    arrays, scenes = expected(f"ego_{name}.npz"), expected("scenes.json")[name]
    provider = provider_of(cache, SceneFilter(**expected("filters.json")[name]["config"]))
    assert len(provider) == len(scenes)
    for number in range(len(provider)):
        sample = provider.get_data(number)
        token = sample["token"]
        for field, published in PUBLISHED.items():
            found, wanted = sample["ego_history"][field], arrays[f"{token}.scene_agent_input.{published}"]
            tolerance = {"atol": 1e-6, "rtol": 0} if field == "poses" else {"atol": 0, "rtol": 0}
            np.testing.assert_allclose(found, wanted, **tolerance)
            np.testing.assert_allclose(
                found.astype(np.float32), arrays[f"{token}.agent_input.{published}"], rtol=1e-6, atol=1e-6
            )
        np.testing.assert_allclose(
            sample["ego_future"]["poses"], arrays[f"{token}.future_trajectory"], atol=1e-6, rtol=0
        )
        np.testing.assert_allclose(
            sample["ego_history"]["poses"], arrays[f"{token}.history_trajectory"], atol=1e-6, rtol=0
        )
        assert sample["scene"] == scenes[token]["log_name"]
        assert provider.map_names[provider.scene_names.index(sample["scene"])] == scenes[token]["map_name"]
        assert (
            sample["timestamp"] == scenes[token]["timestamps"][provider.scene_filter.num_history_frames - 1] / 1e6
        )
        if f"{token}.current.boxes" in arrays:
            boxes, names = sample["boxes"], arrays[f"{token}.current.names"].tolist()
            rows = np.column_stack([boxes["centers"], boxes["sizes"], boxes["yaws"]])
            assert np.array_equal(rows, arrays[f"{token}.current.boxes"])
            assert [provider.class_names[category] for category in boxes["categories"]] == names
            assert np.array_equal(boxes["velocities"], arrays[f"{token}.current.velocity_3d"])


def test_all_sensors_of_the_history(cache):
    notes, arrays = expected("all_sensors.json"), expected("all_sensors.npz")
    names = ["cam_f0", "cam_l0", "cam_l1", "cam_l2", "cam_r0", "cam_r1", "cam_r2", "cam_b0"]
    scene = SceneFilter(frame_interval=1, tokens=[notes["token"]])
    provider = provider_of(cache, scene, sensors={**dict.fromkeys(names, True), "lidar_pc": True})
    sample = provider.get_data(0)
    cameras = [*sample["cameras"].values()]
    assert [camera["name"].lower() for camera in cameras] == [name for name in names for _ in range(4)]
    for number, camera in enumerate(cameras):
        of = f"h{number % 4}.{names[number // 4]}"
        image = decoded_by_pillow(camera["image"])
        assert list(image.shape) == notes[of]["shape"]
        is_same = hashlib.sha256(image.tobytes()).hexdigest() == notes[of]["sha256"]
        near = image[::24, ::24].astype(int) - arrays[f"{of}.every24"]
        assert is_same or np.sqrt((near**2).mean()) < 2.55, of  # 40 dB, with another decoder
        for field in ("intrinsics", "distortion"):
            assert np.array_equal(camera[field], arrays[f"{of}.{field}"])
        mounted = camera["ego_from_camera"]
        np.testing.assert_allclose(mounted[:3, :3], arrays[f"{of}.sensor2lidar_rotation"], atol=1e-12)
        np.testing.assert_allclose(mounted[:3, 3], arrays[f"{of}.sensor2lidar_translation"], atol=1e-12)
        # Where the vehicle was then, as the current frame sees it, is what the history says.
        now_from_then = np.linalg.inv(mounted @ camera["camera_from_reference"])
        np.testing.assert_allclose(now_from_then[:2, 3], sample["ego_history"]["poses"][number % 4, :2], atol=0.01)
    assert np.array_equal(sample["lidar"]["points"].T, arrays["h3.lidar_pc"])
    for number in range(3):  # sweeps: the newest first
        points = sample["sweeps"][number]["points"].T[:, : arrays[f"h{2 - number}.lidar_pc"].shape[1]]
        assert np.array_equal(points, arrays[f"h{2 - number}.lidar_pc"])
