"""The provider of NAVSIM on small logs: scenes, fields, and what is refused."""

import pickle
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from navsim_data import PERIOD_S, SPEED, cloud_of, heading, log_name, pcd, token, turn, write_navsim
from support.laws import examples

from accvlab.dali_pipeline_framework import DataLoader
from accvlab.dali_pipeline_framework.errors import FileError, SettingError
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


def provider_of(root, sensors=LIDAR, **scenes):
    return NavsimProvider(root, "mini", SceneFilter(**{"frame_interval": 1, **scenes}), sensors=sensors)


def tokens_of(provider):
    return [provider.get_data(number)["token"] for number in range(len(provider))]


class TestScenes:
    def test_each_begins_at_a_frame_and_is_named_by_its_current_one(self, root):
        # 16 frames: scenes begin at 0, 1, 2; the current frame 5 has no route
        assert tokens_of(provider_of(root)) == [token(log, frame) for log in (0, 1) for frame in (3, 4)]
        all_of_them = tokens_of(provider_of(root, has_route=False))
        assert all_of_them == [token(log, frame) for log in (0, 1) for frame in (3, 4, 5)]
        assert tokens_of(provider_of(root, frame_interval=None)) == [token(0, 3), token(1, 3)]
        assert tokens_of(provider_of(root, max_scenes=3)) == [token(0, 3), token(0, 4), token(1, 3)]
        assert tokens_of(provider_of(root, {}, num_history_frames=2, num_future_frames=12)) == [
            token(log, frame) for log in (0, 1) for frame in (1, 2, 3)
        ]

    def test_logs_and_tokens(self, root, caplog):
        provider = provider_of(root, log_names=[log_name(1)], tokens=[token(1, 4), token(1, 9)])
        assert tokens_of(provider) == [token(1, 4)]
        assert f"1 of 2 `tokens` are those of no scene with these settings, e.g. '{token(1, 9)}'" in caplog.text
        copy = pickle.loads(pickle.dumps(provider))
        assert tokens_of(copy) == [token(1, 4)]
        assert copy.scene_filter.tokens is None  # of real filters, these are megabytes
        assert provider.scene_names == (log_name(1),)
        assert provider.sequence_lengths == (1,)
        assert provider.map_names == ("us-nv-las-vegas-strip",)

    def test_filters_of_files(self, root, tmp_path):
        (tmp_path / "filter.yaml").write_text(
            "_target_: navsim.common.dataclasses.SceneFilter\n_convert_: 'all'\n\nnum_history_frames: 4\n"
            "num_future_frames: 10\nframe_interval: 1\nhas_route: true\nmax_scenes: null\n"
            "include_synthetic_scenes: false\nlog_names:\n"
            f"  - {log_name(0)}\ntokens:\n  - {token(0, 4)}\n  - 0000000000000003\n"
        )
        scenes = SceneFilter.from_yaml(tmp_path / "filter.yaml")
        assert scenes.tokens == (token(0, 4), token(0, 3))
        assert tokens_of(NavsimProvider(root, "mini", scenes, sensors={})) == [token(0, 3), token(0, 4)]
        (tmp_path / "split.yaml").write_text(f"train_logs:\n  - '{log_name(0)}'\nval_logs:\n  - '{log_name(1)}'\n")
        assert log_split(tmp_path / "split.yaml", "val_logs") == (log_name(1),)

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
        lengths = [len(log) for log in has_route]
        num_frames, expected, first = history + future, [], 0
        for log in has_route:  # as in NAVSIM: cut, leave out what is too short, look at the current frame
            for start in range(0, len(log), interval or num_frames):
                is_whole = len(log[start : start + num_frames]) == num_frames
                if is_whole and (log[start + history - 1] or not needs_route):
                    expected.append(first + start + history - 1)
            first += len(log)
        count = sum(lengths)
        index = DrivingIndex(
            base="ego",
            frames=FrameColumns(
                scene=names_column([f"log-{number}" for number in range(len(lengths))]),
                first_of_scene=first_column(lengths),
                token=names_column([f"{frame:016x}" for frame in range(count)]),
                time=np.arange(count, dtype=float),
                world_from_ego=np.zeros((count, 3, 4)),
                ego_from_base=np.zeros((count, 3, 4)),
                has_route=np.concatenate(has_route),
            ),
        )
        scenes = SceneFilter(
            num_history_frames=history,
            num_future_frames=future,
            frame_interval=interval,
            has_route=needs_route,
            max_scenes=max_scenes,
        )
        if expected:
            assert scenes.current_frames(index).tolist() == expected[:max_scenes]
        else:
            with pytest.raises(SettingError, match="The scene filter leaves no scene"):
                scenes.current_frames(index)


class TestSamples:
    def test_where_the_vehicle_was_and_goes(self, root):
        sample = provider_of(root).get_data(0)
        history, future = sample["ego_history"], sample["ego_future"]
        step, turns = SPEED * PERIOD_S, [heading(frame) - heading(3) for frame in range(14)]
        expected = np.zeros((14, 3))
        for frame in range(3, 13):
            expected[frame + 1, :2] = expected[frame, :2] + step * np.array(
                [np.cos(turns[frame]), np.sin(turns[frame])]
            )
        for frame in (2, 1, 0):
            expected[frame, :2] = expected[frame + 1, :2] - step * np.array(
                [np.cos(turns[frame]), np.sin(turns[frame])]
            )
        expected[:, 2] = turns
        np.testing.assert_allclose(history["poses"], expected[:4], atol=1e-8)
        np.testing.assert_allclose(future["poses"], expected[4:], atol=1e-8)
        np.testing.assert_allclose(future["positions"][:, :2], expected[4:, :2], atol=1e-5)
        np.testing.assert_allclose(history["rotations"][0], turn(turns[0]), atol=1e-6)
        assert history["times"].tolist() == [-1.5, -1, -0.5, 0]
        assert future["times"].tolist() == [PERIOD_S * (number + 1) for number in range(10)]
        assert np.array_equal(history["velocities"], np.float32([[SPEED, 0.1]] * 4))
        assert np.array_equal(history["accelerations"], np.float32([[0.2 + frame, -0.3] for frame in range(4)]))
        assert history["commands"].tolist() == np.eye(4, dtype=int).tolist()

    def test_several_at_once_are_the_same(self, root):
        provider = provider_of(root)
        columns = provider.ego_columns([2, 0, 1])
        for row, number in enumerate([2, 0, 1]):
            sample = provider.get_data(number)
            for group, of_group in columns.items():
                for name, column in of_group.items():
                    np.testing.assert_allclose(sample[group][name], column[row], rtol=1e-6, atol=1e-6)

    def test_frames_of_sensors(self, root):
        provider = provider_of(root, {"lidar_pc": [1, 3], "CAM_L0": [1, 3], "cam_f0": True, "cam_r0": False})
        sample = provider.get_data(1)  # of the frames 1 to 4
        cameras = [
            (camera["name"], camera["timestamp"] - sample["timestamp"]) for camera in sample["cameras"].values()
        ]
        assert cameras == [
            ("CAM_F0", -1.5),
            ("CAM_F0", -1),
            ("CAM_F0", -0.5),
            ("CAM_F0", 0),
            ("CAM_L0", -1),
            ("CAM_L0", 0),
        ]
        assert np.array_equal(sample["lidar"]["points"][:, :3], cloud_of(4))
        assert np.array_equal(sample["lidar"]["points"][:, 3], np.arange(500) % 200)
        (earlier,) = sample["sweeps"].values()
        assert np.array_equal(earlier["points"][:, :3], cloud_of(2))
        moved = earlier["reference_from_lidar"][:2, 3]
        np.testing.assert_allclose(moved, sample["ego_history"]["poses"][1, :2], atol=1e-8)
        assert "cam_r0" not in repr(provider)
        assert repr(provider) == (
            "NavsimProvider(4 scenes of 4 + 10 frames in 2 log(s), sensors: CAM_F0: 4, CAM_L0: 2, LIDAR_PC: 2)"
        )

    def test_contract(self, root):
        check_provider(provider_of(root, {"cam_f0": [2, 3], "cam_l0": [3], "lidar_pc": True}), start_method="fork")

    def test_another_sample_takes_the_place_of_one_without_its_file(self, tmp_path):
        root = write_navsim(tmp_path)
        (root / "sensor_blobs/mini" / log_name(0) / "MergedPointCloud" / f"{token(0, 3)}.pcd").unlink()
        with pytest.warns(
            UserWarning, match="1 of 3 files that the logs in .* names are not there, e.g. '.*03.pcd'"
        ):
            provider = provider_of(root, has_route=False)
        with DataLoader(provider, 1, num_workers=0, faults="replace", ragged="list") as loader:
            assert [batch["token"] for batch in loader] == [[token(0, 4)], [token(0, 4)], [token(0, 5)]]


def refused(error, make):
    with pytest.raises(error) as raised:
        make()
    return str(raised.value)


def test_missing_frames_within_scenes_are_in_the_log(tmp_path, caplog):
    write_navsim(tmp_path, num_frames=20, change=lambda frames: frames[:6] + frames[8:])
    scenes = {"num_history_frames": 2, "num_future_frames": 2, "has_route": False}
    assert len(provider_of(tmp_path, {"cam_f0": [1]}, **scenes)) == 15
    text = f"3 of 15 scenes, e.g. {token(0, 4)!r}, have frames that are not 0.5 s apart, as their poses"
    assert text in caplog.text
    caplog.clear()
    assert len(provider_of(tmp_path, {"cam_f0": [1]}, **{**scenes, "frame_interval": 9})) == 2
    assert "s apart" not in caplog.text


class TestRefused:
    def test_scenes(self, root):
        assert refused(SettingError, lambda: provider_of(root, tokens=["a", token(0, 3)])) == (
            "`tokens` must be tokens of frames of the logs, 1 of 2 are not: 'a'. Give the split that has them, "
            "and `log_names` with their logs, or leave `log_names` out."
        )
        assert refused(SettingError, lambda: provider_of(root, tokens=[token(0, 5)])) == (
            "The scene filter leaves no scene. Of 32 frames in 2 log(s), the scenes that\n  - 6 have 14 frames\n"
            "  - 4 have a route\n  - 0 are among `tokens`\nShorten the scenes (`num_history_frames`, "
            "`num_future_frames`), or give other `tokens` or `log_names`, or `has_route=False`."
        )
        message = refused(SettingError, lambda: provider_of(root, log_names=["2021"]))
        assert message == (
            f"`log_names` must be logs of {str(root / 'navsim_logs/mini')!r}, 1 of 1 are not: '2021'. There are 2 "
            "logs. Download the rest, or leave the names out."
        )
        assert refused(SettingError, lambda: provider_of(root, log_names=[])) == (
            "`log_names` must name at least one log, or be None for all, got an empty list."
        )
        assert refused(SettingError, lambda: SceneFilter(tokens="abc")) == (
            "`tokens` must be a list of names, got one: write ['abc']."
        )
        assert refused(SettingError, lambda: SceneFilter(log_names=5)) == (
            "`log_names` must be a list of names, got 5."
        )

    def test_sensors(self, root):
        assert refused(SettingError, lambda: provider_of(root, {"radar": True})) == (
            "`sensors` names 'radar', which is no sensor. There are: CAM_F0, CAM_L0, CAM_L1, CAM_L2, "
            "CAM_R0, CAM_R1, CAM_R2, CAM_B0, LIDAR_PC."
        )
        assert refused(SettingError, lambda: provider_of(root, {"cam_f0": [3], "CAM_F0": [2]})) == (
            "`sensors` names CAM_F0 twice."
        )
        assert refused(SettingError, lambda: provider_of(root, {"cam_f0": [4]})) == (
            "`sensors['cam_f0']` must be frames of the history, from 0 to 3, True or False, got [4]."
        )
        assert refused(SettingError, lambda: provider_of(root, {"cam_f0": 3})) == (
            "`sensors['cam_f0']` must be frames of the history, from 0 to 3, True or False, got 3."
        )
        assert refused(SettingError, lambda: provider_of(root, ["cam_f0"])) == (
            "`sensors` must be of the class Mapping, got ['cam_f0']."
        )
        assert refused(SettingError, lambda: provider_of(root, {"lidar_pc": [0]})) == (
            "`sensors['lidar_pc']` must be frames of the history, from 0 to 3, True or False; those of LIDAR_PC "
            "with the current one, 3, got [0]."
        )

    def test_folders(self, root, tmp_path):
        assert refused(FileError, lambda: NavsimProvider(root, "test")) == (
            f"There are no logs (.pkl) in {str(root / 'navsim_logs/test')!r}. `root` must have the folders "
            "`navsim_logs` and `sensor_blobs`, as the download of NAVSIM leaves them, and `split` be a folder in "
            "them."
        )

    @pytest.mark.parametrize(
        ("change", "problem"),
        [
            (
                lambda frames: [{**frame, "driving_command": None} for frame in frames],
                r"The frame 0 \(token '0{16}'\) of '.*pkl' has no key 'driving_command'; it has .*\. ",
            ),
            (
                lambda frames: [*frames[:2], {**frames[2], "ego_dynamic_state": [1, 2]}],
                r"The frame 2 \(token '0{15}2'\) of '.*'\['ego_dynamic_state'\] must have the shape \(4\), got "
                r"\(2,\)\. ",
            ),
            (
                lambda frames: [*frames[:2], {**frames[2], "driving_command": [np.nan, 0, 1, 0]}, *frames[3:]],
                r"The frame 2 .*\['driving_command'\] must be finite, got \[nan, 0.0, 1.0, 0.0\]\. ",
            ),
            (lambda frames: {"infos": frames}, r"The log '.*pkl' must be a list of frames, got a dict\. "),
            (
                lambda frames: frames[::-1],
                r"'timestamp' of '.*pkl': times must ascend, got .* and then .* \(row 1\)\. ",
            ),
            (
                lambda frames: [*frames[:2], {**frames[2], "timestamp": np.nan}, *frames[3:]],
                r"'timestamp' of '.*pkl': times must ascend, got .* and then nan \(row 2\)\. ",
            ),
            (
                lambda frames: [{**frame, "roadblock_ids": 3} for frame in frames],
                r"The frame 0 .*\['roadblock_ids'\] must be a list, got 3\. ",
            ),
            (
                lambda frames: [{**frame, "anns": {**frame["anns"], "gt_names": 3}} for frame in frames],
                r"The frame 0 .*\['anns'\]\['gt_names'\] must be a list, got 3\. ",
            ),
        ],
        ids=["key", "shape", "number", "form", "times", "time", "route", "names"],
    )
    def test_logs_of_another_version(self, tmp_path, change, problem):
        message = refused(FileError, lambda: provider_of(write_navsim(tmp_path, change=change)))
        advice = "Download the logs that the scripts of NAVSIM download, those of OpenScene 1.1."
        assert re.fullmatch(problem + re.escape(advice), message), message

    def test_log_that_would_run_code(self, tmp_path):
        write_navsim(tmp_path, change=lambda frames: [{**frames[0], "token": re.compile("a")}])
        assert "holds `re._compile`" in refused(FileError, lambda: provider_of(tmp_path))

    def test_what_is_not_requested_need_not_be_there(self, tmp_path):
        def change(frames):
            for frame in frames:
                del frame["anns"], frame["roadblock_ids"], frame["map_location"]
                frame["lidar_path"] = None
                frame["cams"] = {name: camera for name, camera in frame["cams"].items() if name == "CAM_F0"}
            return frames

        root = write_navsim(tmp_path, change=change)
        scenes = SceneFilter(frame_interval=1, has_route=False)
        provider = NavsimProvider(root, "mini", scenes, sensors={"cam_f0": [3]}, boxes=False)
        assert provider.get_data(0)["token"] == token(0, 3)
        for changed, message in (
            ({"boxes": None}, "has no key 'anns'"),
            ({"sensors": {"lidar_pc": [3]}}, "has no key 'lidar_path'"),
            ({"sensors": {"cam_l0": [3]}}, r"\['cams'\] has no key 'CAM_L0'; it has CAM_F0"),
            ({"scene_filter": SceneFilter(frame_interval=1)}, "has no key 'roadblock_ids'"),
        ):
            given = {"scene_filter": scenes, "sensors": {"cam_f0": [3]}, "boxes": False, **changed}
            with pytest.raises(FileError, match=message):
                NavsimProvider(root, "mini", **given)
        with pytest.raises(FileError, match="has no 'map_location'"):
            _ = provider.map_names

    def test_missing_file_is_named(self, tmp_path):
        root = write_navsim(tmp_path, cameras=("CAM_F0",))
        image = root / "sensor_blobs/mini" / log_name(0) / "CAM_F0" / f"{token(0, 3)}.jpg"
        image.unlink()
        with pytest.warns(
            UserWarning, match=f"1 of 2 files that the logs in .* names are not there, e.g. '{image}'"
        ):
            provider = provider_of(root, {"cam_f0": [3]})
        message = refused(FileError, lambda: provider.get_data(0))
        assert str(image) in message
        described = provider.describe_sample(0)
        assert described == (
            f"scene {log_name(0)!r}, frame 3, token {token(0, 3)!r}, files {log_name(0)}/CAM_F0/{token(0, 3)}.jpg"
        )

    def test_point_clouds(self, tmp_path):
        root = write_navsim(tmp_path, cameras=())
        provider = provider_of(root)
        path = root / "sensor_blobs/mini" / log_name(0) / "MergedPointCloud" / f"{token(0, 3)}.pcd"
        for change, problem in [
            (
                lambda content: content[:-1],
                "is cut short: its header says 500 points of 15 bytes, 7500 bytes, but 7499 follow. Download it "
                "again.",
            ),
            (lambda content: content[:80], "is no point cloud (PCD): it begins with b'# .PCD v0.7 - Point '."),
            (lambda content: b"", "is empty: it has 0 bytes."),
            (
                lambda content: content.replace(b"DATA binary", b"DATA binary_compressed"),
                "must be stored as `DATA binary`, got binary_compressed.",
            ),
            (
                lambda content: content.replace(b"intensity", b"strength"),
                "has no intensity; it has x, y, z, strength, ring, lidar_info.",
            ),
            (lambda content: content.replace(b"POINTS 500", b"POINTS many"), "is damaged (ValueError("),
            (
                lambda content: content.replace(b"COUNT 1", b"COUNT 0"),
                "is damaged (ValueError('COUNT must be above",
            ),
        ]:
            path.write_bytes(change(pcd(cloud_of(3))))
            message = refused(FileError, lambda: provider.get_data(0))
            assert repr(str(path)) in message
            assert problem in message
        path.write_bytes(b"# POINT CLOUD DATA FILE\n" + pcd(cloud_of(3)))
        assert np.array_equal(provider.get_data(0)["lidar"]["points"][:, :3], cloud_of(3))

    def test_filters_of_files(self, tmp_path):
        path = tmp_path / "filter.yaml"
        path.write_text("num_history_frame: 3\n")
        assert refused(FileError, lambda: SceneFilter.from_yaml(path)) == (
            f"The file {str(path)!r} has 'num_history_frame', which is no part of a scene filter. Did you mean "
            "'num_history_frames'? Known are: num_history_frames, num_future_frames, frame_interval, has_route, "
            "max_scenes, log_names, tokens. Scenes that are not recorded (synthetic ones) are not read."
        )
        path.write_text("num_history_frames: many\n")
        assert refused(FileError, lambda: SceneFilter.from_yaml(path)) == (
            f"The files {path} are no scene filter: `num_history_frames` must be a whole number of at least 1, "
            "got 'many'."
        )
        path.write_text("train_logs: [a]\n")
        assert refused(FileError, lambda: log_split(path, "val_logs")) == (
            f"The file {str(path)!r} has no list 'val_logs'. Did you mean 'train_logs'? It has: train_logs."
        )
        path.write_text("a: [1\n")
        assert "cannot be read" in refused(FileError, lambda: SceneFilter.from_yaml(path))


def test_index_is_made_anew_when_a_log_changes(tmp_path):
    root = write_navsim(tmp_path)
    assert len(provider_of(root)) == 2
    path = root / "navsim_logs/mini" / f"{log_name(0)}.pkl"
    path.write_bytes(pickle.dumps(pickle.loads(path.read_bytes())[:14]))
    assert len(provider_of(root)) == 1
