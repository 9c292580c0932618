"""The provider of NAVSIM on small logs: scenes, fields, and what is refused."""

import pickle
import re

import numpy as np
import pytest
from driving_support.navsim import PERIOD_S, SPEED, cloud_of, heading, log_name, pcd, token, turn, write_navsim
from hypothesis import given, settings
from hypothesis import strategies as st
from support.laws import examples
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework import DataLoader
from accvlab.dali_pipeline_framework.errors import FileError
from accvlab.dali_pipeline_framework.testing import check_provider
from accvlab.driving_data.datasets import DrivingIndex, NavsimProvider, SceneFilter, log_split
from accvlab.driving_data.datasets.driving.driving_index import FrameColumns, first_column, names_column

LIDAR = {"lidar_pc": [3]}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return write_navsim(tmp_path_factory.mktemp("navsim"), num_logs=2)


@pytest.fixture(autouse=True)
def _index_cache(root, monkeypatch):
    monkeypatch.setenv("ACCVLAB_INDEX_CACHE", str(root / "indices"))


def provider_of(root, sensors=LIDAR, boxes=None, **scenes):
    return NavsimProvider(
        root, "mini", SceneFilter(**{"frame_interval": 1, **scenes}), sensors=sensors, boxes=boxes
    )


def tokens_of(provider):
    return [provider.get_data(number)["token"] for number in range(len(provider))]


class TestScenes:
    def test_logs_and_tokens(self, root, caplog):
        provider = provider_of(root, log_names=[log_name(1)], tokens=[token(1, 4), token(1, 9)])
        assert f"1 of 2 `tokens` are those of no scene with these settings, e.g. '{token(1, 9)}'" in caplog.text
        copy = pickle.loads(pickle.dumps(provider))
        assert tokens_of(copy) == tokens_of(provider) == [token(1, 4)]
        assert copy.scene_filter.tokens is None  # of real filters, these are megabytes
        assert (provider.scene_names, provider.sequence_lengths) == ((log_name(1),), (1,))
        assert provider.map_names == ("us-nv-las-vegas-strip",)

    def test_filters_of_files(self, root, tmp_path):
        path = tmp_path / "filter.yaml"
        path.write_text(
            "_target_: navsim.common.dataclasses.SceneFilter\n_convert_: 'all'\n\nnum_history_frames: 4\n"
            "num_future_frames: 10\nframe_interval: 1\nhas_route: true\nmax_scenes: null\n"
            "include_synthetic_scenes: false\nlog_names:\n"
            f"  - {log_name(0)}\ntokens:\n  - {token(0, 4)}\n  - 0000000000000003\n"
        )
        scenes = SceneFilter.from_yaml(path)
        assert scenes.tokens == (token(0, 4), token(0, 3))
        assert tokens_of(NavsimProvider(root, "mini", scenes, sensors={})) == [token(0, 3), token(0, 4)]
        path.write_text(f"train_logs:\n  - '{log_name(0)}'\nval_logs:\n  - '{log_name(1)}'\n")
        assert log_split(path, "val_logs") == (log_name(1),)
        part = "has 'num_history_frame', which is no part of a scene filter. Did you mean 'num_history_frames'? "
        number = f"The files {path} are no scene filter: `num_history_frames` must be a whole number of at least 1"
        names = f"The file {str(path)!r} has no list 'val_logs'. Did you mean 'train_logs'? It has: train_logs."
        for text, read, words in (
            ("num_history_frame: 3\n", SceneFilter.from_yaml, part),
            ("num_history_frames: many\n", SceneFilter.from_yaml, number),
            ("train_logs: [a]\n", lambda file: log_split(file, "val_logs"), names),
            ("a: [1\n", SceneFilter.from_yaml, "cannot be read"),
        ):
            path.write_text(text)
            assert_refused(lambda read=read: read(path), words, FileError)

    @settings(max_examples=examples(60, 600), deadline=None)
    @given(
        has_route=st.lists(st.lists(st.booleans(), min_size=1, max_size=14), min_size=1, max_size=3),
        history=st.integers(1, 4),
        future=st.integers(0, 5),
        interval=st.none() | st.integers(1, 7),
        max_scenes=st.none() | st.integers(1, 4),
        needs_route=st.booleans(),
    )
    def test_scenes_are_slices_of_logs(self, has_route, history, future, interval, max_scenes, needs_route):
        num_frames, expected, first = history + future, [], 0
        for log in has_route:  # as in NAVSIM: cut, leave out what is too short, look at the current frame
            for start in range(0, len(log), interval or num_frames):
                is_whole = len(log[start : start + num_frames]) == num_frames
                if is_whole and (log[start + history - 1] or not needs_route):
                    expected.append(first + start + history - 1)
            first += len(log)
        frames = FrameColumns(
            scene=names_column([f"log-{number}" for number in range(len(has_route))]),
            first_of_scene=first_column([len(log) for log in has_route]),
            token=names_column([f"{frame:016x}" for frame in range(first)]),
            time=np.arange(first, dtype=float),
            world_from_ego=np.zeros((first, 3, 4)),
            ego_from_base=np.zeros((first, 3, 4)),
            has_route=np.concatenate(has_route),
        )
        lengths = {"num_history_frames": history, "num_future_frames": future, "frame_interval": interval}
        scenes = SceneFilter(has_route=needs_route, max_scenes=max_scenes, **lengths)
        index = DrivingIndex(base="ego", frames=frames)
        if expected:
            assert scenes.current_frames(index).tolist() == expected[:max_scenes]
        else:
            assert_refused(lambda: scenes.current_frames(index), "The scene filter leaves no scene")


class TestSamples:
    def test_where_the_vehicle_was_and_goes(self, root):
        provider = provider_of(root)
        sample = provider.get_data(0)
        history, future = sample["ego_history"], sample["ego_future"]
        angles = np.array([heading(frame) - heading(3) for frame in range(14)])
        moves = SPEED * PERIOD_S * np.column_stack([np.cos(angles), np.sin(angles)])
        way = np.vstack([[0, 0], np.cumsum(moves[:-1], axis=0)])
        poses = np.column_stack([way - way[3], angles])  # x, y, heading; 0 at the current frame, 3
        np.testing.assert_allclose(history["poses"], poses[:4], atol=1e-8)
        np.testing.assert_allclose(future["poses"], poses[4:], atol=1e-8)
        np.testing.assert_allclose(future["positions"][:, :2], poses[4:, :2], atol=1e-5)
        np.testing.assert_allclose(history["rotations"][0], turn(angles[0]), atol=1e-6)
        np.testing.assert_array_equal(history["velocities"], np.float32([[SPEED, 0.1]] * 4))
        np.testing.assert_array_equal(
            history["accelerations"], np.float32([[0.2 + frame, -0.3] for frame in range(4)])
        )
        assert history["commands"].tolist() == np.eye(4, dtype=int).tolist()
        assert history["times"].tolist() == [-1.5, -1, -0.5, 0]
        assert future["times"].tolist() == [PERIOD_S * (number + 1) for number in range(10)]
        columns = provider.ego_columns([2, 0, 1])  # several at once are the same
        for row, number in enumerate([2, 0, 1]):
            sample = provider.get_data(number)
            for group, of_group in columns.items():
                for name, column in of_group.items():
                    np.testing.assert_allclose(sample[group][name], column[row], rtol=1e-6, atol=1e-6)

    def test_frames_of_sensors(self, root):
        provider = provider_of(root, {"lidar_pc": [1, 3], "CAM_L0": [1, 3], "cam_f0": True, "cam_r0": False})
        sample = provider.get_data(1)  # of the frames 1 to 4
        cameras = [(camera["name"], camera["timestamp"]) for camera in sample["cameras"].values()]
        expected = [*(("CAM_F0", at) for at in (-1.5, -1, -0.5, 0)), ("CAM_L0", -1), ("CAM_L0", 0)]
        assert cameras == [(name, sample["timestamp"] + at) for name, at in expected]
        assert np.array_equal(sample["lidar"]["points"][:, :3], cloud_of(4))
        assert np.array_equal(sample["lidar"]["points"][:, 3], np.arange(500) % 200)
        (earlier,) = sample["sweeps"].values()
        assert np.array_equal(earlier["points"][:, :3], cloud_of(2))
        moved = earlier["reference_from_lidar"][:2, 3]
        np.testing.assert_allclose(moved, sample["ego_history"]["poses"][1, :2], atol=1e-8)
        assert repr(provider) == (
            "NavsimProvider(4 scenes of 4 + 10 frames in 2 log(s), sensors: CAM_F0: 4, CAM_L0: 2, LIDAR_PC: 2)"
        )
        check_provider(provider, start_method="fork")

    def test_another_sample_takes_the_place_of_one_without_its_file(self, tmp_path):
        root = write_navsim(tmp_path, cameras=("CAM_F0",))
        image = root / "sensor_blobs/mini" / log_name(0) / f"CAM_F0/{token(0, 3)}.jpg"
        image.unlink()
        words = f"1 of 3 files that the logs in .* names are not there, e.g. '{image}'"
        with pytest.warns(UserWarning, match=words):
            provider = provider_of(root, {"cam_f0": [3]}, has_route=False)
        assert_refused(lambda: provider.get_data(0), str(image), FileError)
        assert provider.describe_sample(0) == (
            f"scene {log_name(0)!r}, frame 3, token {token(0, 3)!r}, files {log_name(0)}/CAM_F0/{token(0, 3)}.jpg"
        )
        with DataLoader(provider, 1, num_workers=0, faults="replace", ragged="list") as loader:
            assert [batch["token"] for batch in loader] == [[token(0, 4)], [token(0, 4)], [token(0, 5)]]


def test_missing_frames_within_scenes_are_in_the_log(tmp_path, caplog):
    write_navsim(tmp_path, num_frames=20, cameras=(), change=lambda frames: frames[:6] + frames[8:])
    scenes = {"num_history_frames": 2, "num_future_frames": 2, "has_route": False}
    assert len(provider_of(tmp_path, {}, **scenes)) == 15
    text = f"3 of 15 scenes, e.g. {token(0, 4)!r}, have frames that are not 0.5 s apart, as their poses"
    assert text in caplog.text
    caplog.clear()
    assert len(provider_of(tmp_path, {}, **{**scenes, "frame_interval": 9})) == 2
    assert "s apart" not in caplog.text


def changed(number, **values):
    """What changes a frame."""
    return lambda frames: [*frames[:number], {**frames[number], **values}, *frames[number + 1 :]]


FRAMES = "must be frames of the history, from 0 to 3, True or False"
SETTINGS = {
    "`tokens` must be tokens of frames of the logs, 1 of 2 are not: 'a'. Give the split that has them, and "
    "`log_names` with their logs, or leave `log_names` out.": {"tokens": ["a", token(0, 3)]},
    "The scene filter leaves no scene. Of 32 frames in 2 log(s), the scenes that\n  - 6 have 14 frames\n"
    "  - 4 have a route\n  - 0 are among `tokens`\nShorten the scenes (`num_history_frames`, "
    "`num_future_frames`), or give other `tokens` or `log_names`, or `has_route=False`.": {
        "tokens": [token(0, 5)]
    },
    "`log_names` must be logs of 'ROOT/navsim_logs/mini', 1 of 1 are not: '2021'. There are 2 logs. Download the "
    "rest, or leave the names out.": {"log_names": ["2021"]},
    "`log_names` must name at least one log, or be None for all, got an empty list.": {"log_names": []},
    "`tokens` must be a list of names, got one: write ['abc'].": {"tokens": "abc"},
    "`sensors` names 'radar', which is no sensor. There are: CAM_F0, CAM_L0, CAM_L1, CAM_L2, CAM_R0, CAM_R1, "
    "CAM_R2, CAM_B0, LIDAR_PC.": {"sensors": {"radar": True}},
    "`sensors` names CAM_F0 twice.": {"sensors": {"cam_f0": [3], "CAM_F0": [2]}},
    f"`sensors['cam_f0']` {FRAMES}, got [4].": {"sensors": {"cam_f0": [4]}},
    f"`sensors['lidar_pc']` {FRAMES}; those of LIDAR_PC with the current one, 3, got [0].": {
        "sensors": {"lidar_pc": [0]}
    },
}
LOGS = {
    "The frame 0 (token '0000000000000000') of '...pkl' has no key 'driving_command'; it has ": (
        lambda frames: [{**frame, "driving_command": None} for frame in frames]
    ),
    "The frame 2 (token '0000000000000002') of '...'['ego_dynamic_state'] must have the shape (4), got (2,). ": (
        changed(2, ego_dynamic_state=[1, 2])
    ),
    "The frame 2 ...['driving_command'] must be finite, got [nan, 0.0, 1.0, 0.0]. ": changed(
        2, driving_command=[np.nan, 0, 1, 0]
    ),
    "frame '0000000000000003'...: motion must be finite numbers, got [nan, 0.0, 0.0, 0.0]": changed(
        3, ego_dynamic_state=[np.nan, 0, 0, 0]
    ),
    "The log '...pkl' must be a list of frames, got a dict. ": lambda frames: {"infos": frames},
    "'timestamp' of '...pkl': times must ascend, got ...and then ...(row 1). ": lambda frames: frames[::-1],
    "The frame 0 ...['roadblock_ids'] must be a list, got 3. ": changed(0, roadblock_ids=3),
    "holds `re._compile`": changed(0, token=re.compile("a")),
}
CLOUDS = {
    "is cut short: its header says 500 points of 15 bytes, 7500 bytes, but 7499 follow. Download it again.": (
        lambda content: content[:-1]
    ),
    "is no point cloud (PCD): it begins with b'# .PCD v0.7 - Point '.": lambda content: content[:80],
    "is empty: it has 0 bytes.": lambda content: b"",
    "must be stored as `DATA binary`, got binary_compressed.": (
        lambda content: content.replace(b"DATA binary", b"DATA binary_compressed")
    ),
    "has no intensity; it has x, y, z, strength, ring, lidar_info.": (
        lambda content: content.replace(b"intensity", b"strength")
    ),
    "is damaged (ValueError(": lambda content: content.replace(b"POINTS 500", b"POINTS many"),
}


class TestRefused:
    @pytest.mark.parametrize("words", SETTINGS)
    def test_settings(self, root, words):
        assert_refused(lambda: provider_of(root, **SETTINGS[words]), words.replace("ROOT", str(root)))

    def test_folders(self, root):
        words = (
            f"There are no logs (.pkl) in '{root}/navsim_logs/test'. `root` must have the folders `navsim_logs` "
            "and `sensor_blobs`, as the download of NAVSIM leaves them, and `split` be a folder in them."
        )
        assert_refused(lambda: NavsimProvider(root, "test"), words, FileError)

    @pytest.mark.parametrize("words", LOGS)
    def test_logs_of_another_version(self, tmp_path, words):
        root = write_navsim(tmp_path, cameras=(), change=LOGS[words])
        if words.endswith(". "):
            words += "Download the logs that the scripts of NAVSIM download, those of OpenScene 1.1."
        assert_refused(lambda: provider_of(root), words, FileError)

    def test_what_is_not_requested_need_not_be_there(self, tmp_path):
        def change(frames):
            for frame in frames:
                del frame["anns"], frame["roadblock_ids"], frame["map_location"]
                frame["lidar_path"] = None
                frame["cams"] = {name: camera for name, camera in frame["cams"].items() if name == "CAM_F0"}
            return frames

        root = write_navsim(tmp_path, change=change)
        settings = {"sensors": {"cam_f0": [3]}, "has_route": False, "boxes": False}
        provider = provider_of(root, **settings)
        assert provider.get_data(0)["token"] == token(0, 3)
        assert_refused(lambda: provider.map_names, "has no 'map_location'", FileError)
        for wanted, words in (
            ({"boxes": None}, "has no key 'anns'"),
            ({"sensors": {"lidar_pc": [3]}}, "has no key 'lidar_path'"),
            ({"sensors": {"cam_l0": [3]}}, "['cams'] has no key 'CAM_L0'; it has CAM_F0"),
            ({"has_route": True}, "has no key 'roadblock_ids'"),
        ):
            given = {**settings, **wanted}
            assert_refused(lambda given=given: provider_of(root, **given), words, FileError)

    def test_point_clouds(self, tmp_path):
        root = write_navsim(tmp_path, cameras=())
        provider = provider_of(root)
        path = root / "sensor_blobs/mini" / log_name(0) / "MergedPointCloud" / f"{token(0, 3)}.pcd"
        for words, change in CLOUDS.items():
            path.write_bytes(change(pcd(cloud_of(3))))
            assert_refused(lambda: provider.get_data(0), f"{str(path)!r}...{words}", FileError)
        path.write_bytes(b"# POINT CLOUD DATA FILE\n" + pcd(cloud_of(3)))
        assert np.array_equal(provider.get_data(0)["lidar"]["points"][:, :3], cloud_of(3))
