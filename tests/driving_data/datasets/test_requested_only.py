"""What is not requested may be missing or damaged; what a data set says it has is compared with what is there."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from driving_support.arrow_logs import ArrowLog
from driving_support.info_pickles import driving_scenes, pickle_content, write_files
from driving_support.lerobot import FEATURE, write_lerobot
from driving_support.nuscenes_data import changed_table
from driving_support.physical_ai import FRONT, LEFT, TELE, unpacked, write_clip_index, write_published
from support.videos import make_video

from accvlab.dali_pipeline_framework.errors import FileError, SettingError, VideoError
from accvlab.driving_data.datasets import (
    ArgoverseProvider,
    ArrowLogProvider,
    DrivingProvider,
    InfosProvider,
    KittiTrackingProvider,
    LeRobotProvider,
    NuScenesProvider,
    PhysicalAiProvider,
)
from accvlab.driving_data.datasets.nuscenes.nuscenes_provider import Conversion
from accvlab.driving_data.testing import made_drive


def _rows_changed(path: Path, change: Callable[[list[dict[str, Any]]], Any]) -> None:
    import pyarrow as pa
    import pyarrow.feather
    import pyarrow.parquet

    is_parquet = path.suffix == ".parquet"
    table = pa.parquet.read_table(path) if is_parquet else pa.feather.read_table(str(path))
    rows = table.to_pylist()
    rows = change(rows) or rows
    changed = pa.Table.from_pylist(rows, schema=table.schema)
    if is_parquet:
        pa.parquet.write_table(changed, path)
    else:
        pa.feather.write_feather(changed, str(path))


class TestNuScenes:
    @pytest.fixture
    def root(self, tmp_path):
        return made_drive(tmp_path / "data", "nuscenes")

    @pytest.fixture
    def opened(self, root, tmp_path):
        return lambda **settings: NuScenesProvider(root, "v1.0-mini", index_cache=tmp_path / "cache", **settings)

    @pytest.mark.parametrize("wrong", [{"rotation": [0, 0, 0, 0]}, {"translation": [None, 0, 0]}])
    def test_mounting_of_a_camera_that_is_not_requested(self, root, opened, wrong):
        with changed_table(root, "calibrated_sensor") as records:
            next(each for each in records if each["token"] == "CAM_BACK kA0").update(wrong)
        assert opened(cameras=["CAM_FRONT"]).get_data(0)["cameras"][0]["name"] is not None
        with pytest.raises(FileError, match="'CAM_BACK kA0'"):
            opened()

    def test_ego_poses_of_a_camera_that_is_not_requested(self, root, opened):
        with changed_table(root, "sample_data") as records:
            next(each for each in records if each["token"] == "CAM_BACK kA1")["ego_pose_token"] = "gone"
        assert opened(cameras=["CAM_FRONT"]).get_number_of_samples() == 8
        with pytest.raises(FileError, match=r"'CAM_BACK kA1' .* ego_pose_token 'gone'"):
            opened()

    @pytest.mark.parametrize("choice", [{"scenes": ["scene-0061"]}, {"split": "mini_train"}])
    def test_scenes_that_are_not_requested_may_be_damaged(self, root, opened, choice):
        with changed_table(root, "sample_annotation") as records:
            next(each for each in records if each["token"] == "box 13")["size"] = [1, "x", 1]
        with changed_table(root, "sample_data") as records:
            records[:] = [each for each in records if each["token"] != "LIDAR_TOP kB1"]
        provider = opened(**choice)
        assert provider.scene_names == ("scene-0061",)
        assert [len(provider.get_data(number)["boxes"]["categories"]) for number in range(4)] == [1] * 4
        for other in ({}, {"scenes": ["scene-0103"]}):
            with pytest.raises(FileError, match=r"'box 13'|'kB1'"):
                opened(**other)

    def test_ego_poses_that_several_sensors_have(self, root, opened):
        with changed_table(root, "ego_pose") as poses:
            next(each for each in poses if each["token"] == "LIDAR_TOP A4")["rotation"] = [0, 0, 0, 0]
        with changed_table(root, "sample_data") as records:  # the lidar first
            records.sort(key=lambda each: "LIDAR_TOP" not in each["token"])
        with pytest.raises(FileError, match=r"'LIDAR_TOP A4' .* quaternion"):
            opened(frames="LIDAR_TOP", cameras=[], lidar=True)
        with changed_table(root, "sample_data") as records:  # then cameras alone, and a pose that is not there
            of_token = {each["token"]: each for each in records}
            of_token["LIDAR_TOP A4"]["ego_pose_token"] = "LIDAR_TOP A5"
            for name, pose in {
                "CAM_FRONT kA1": "LIDAR_TOP A4",
                "CAM_BACK kA1": "LIDAR_TOP A4",
                "CAM_BACK kB1": "gone",
            }.items():
                of_token[name]["ego_pose_token"] = pose
        assert opened(cameras=[]).get_number_of_samples() == 8
        with pytest.raises(FileError, match=r"'LIDAR_TOP A4' .* quaternion"):
            opened(cameras=["CAM_FRONT"])

    @pytest.mark.parametrize(
        ("table", "field"),
        [
            ("scene", "token"),
            ("scene", "log_token"),
            ("sample", "scene_token"),
            ("sample_data", "sample_token"),
            ("sample_annotation", "sample_token"),
        ],
    )
    def test_tokens_that_are_no_text(self, root, opened, table, field):
        with changed_table(root, table) as records:
            records[-1][field] = []
        assert opened(scenes=["scene-0061"]).scene_names == ("scene-0061",)
        if field == "log_token":
            with pytest.raises(FileError, match="no log of scene-0103"):
                opened(scenes=["scene-0103"]).scene_logs  # noqa: B018
        else:
            with pytest.raises(FileError, match=field):
                opened()
        if table == "scene" and field == "token":
            with pytest.raises(FileError, match="must have text as token"):
                opened(scenes=["scene-0103"])

    def test_indices_of_named_scenes_replace_no_others(self, root, opened):
        def first_token(provider):
            return str(provider.get_data(0)["token"])

        with changed_table(root, "sample_data") as data, changed_table(root, "calibrated_sensor") as mountings:
            wrong = {"token": "wrong", "rotation": [0, 0, 0, 0]}
            mountings.append({**next(each for each in mountings if each["token"] == "CAM_BACK kA0"), **wrong})
            next(each for each in data if each["token"] == "CAM_BACK B1")["calibrated_sensor_token"] = "wrong"
        whole = opened(cameras=["CAM_FRONT"])
        first = opened(scenes=["scene-0061"])
        assert first.scene_names == ("scene-0061",)
        again = pickle.loads(pickle.dumps(whole))
        assert (again.get_number_of_samples(), first_token(again)) == (8, first_token(whole))
        with changed_table(root, "scene") as records:
            records.append({**records[0], "token": "bad", "name": "scene-bad", "first_sample_token": "nowhere"})
        first, second = (opened(scenes=[name], cameras=[]) for name in ("scene-0061", "scene-0103"))
        again = pickle.loads(pickle.dumps(first))
        assert again.scene_names == ("scene-0061",)
        assert first_token(again) == first_token(first) != first_token(second)

    def test_the_attempt_to_read_all_scenes_is_made_once(self, root, opened, monkeypatch):
        with changed_table(root, "sample_annotation") as records:
            next(each for each in records if each["token"] == "box 13")["size"] = [1, "x", 1]
        opened(scenes=["scene-0061"])
        monkeypatch.setattr(Conversion, "make_index", None)
        assert opened(scenes=["scene-0061"]).scene_names == ("scene-0061",)

    def test_named_scenes_that_damaged_tables_lack(self, root, opened):
        with changed_table(root, "scene") as records:
            records.append({**records[0], "token": "bad", "name": "scene-bad", "first_sample_token": "nowhere"})
        for scenes in (["scene-0061", "scene-0102"], ["scene-0102"]):
            with pytest.raises(SettingError, match=r"(?s)'scene-0102'.*Did you mean.*There are 3: .*scene-bad"):
                opened(scenes=scenes)
        with pytest.raises(FileError, match="'nowhere'"):
            opened(split="test")

    def test_splits_in_files_are_named_scenes(self, root, opened, tmp_path):
        with changed_table(root, "scene") as records:
            records.append({**records[0], "token": "bad", "name": "scene-bad", "first_sample_token": "nowhere"})
        (tmp_path / "list.txt").write_text("scene-0061\n")
        assert opened(split=tmp_path / "list.txt").scene_names == ("scene-0061",)

    def test_wrong_settings_are_no_reason_to_read_tables_again(self, opened, monkeypatch):
        calls = []
        make = Conversion.make_index
        monkeypatch.setattr(Conversion, "make_index", lambda *args: (calls.append(args), make(*args))[1])
        with pytest.raises(SettingError, match="'CAM_FRNT'"):
            opened(frames="CAM_FRNT", scenes=["scene-0061"])
        assert len(calls) == 1

    def test_records_that_others_name_before_them(self, root, opened):
        with changed_table(root, "sample_data") as records:
            records[:] = [each for each in records if each["token"] != "LIDAR_TOP A4"]
        opened(lidar=True)
        with pytest.raises(FileError, match=r"'LIDAR_TOP A5' .* record of LIDAR_TOP before .* 'LIDAR_TOP A4'"):
            opened(lidar=True, num_sweeps=2)
        with pytest.raises(FileError, match="'LIDAR_TOP A4'"):
            opened(frames="LIDAR_TOP")

    def test_selections_that_leave_no_box(self, root, opened):
        with pytest.raises(SettingError, match="min_points: no box of the data set has 10 points, the most are 9"):
            opened(min_points=10)
        with pytest.raises(SettingError, match=r"min_lidar_points: .* the most are 9"):
            opened(min_lidar_points=10)
        with changed_table(root, "category") as records:
            records.append({"token": "p", "name": "human.pedestrian.adult"})
        with changed_table(root, "instance") as records:
            records[0]["category_token"] = "p"
        opened(classes=["car"])
        with pytest.warns(UserWarning, match=r"chosen scenes .*: human\.pedestrian\.adult \(4\)"):
            opened(classes=["car"], scenes=["scene-0061"])


class TestInfos:
    @pytest.fixture
    def opened(self, tmp_path):
        def open_changed(change, **settings):
            index = driving_scenes()
            write_files(tmp_path, index)
            content = pickle_content(index, "streampetr")
            change(content["infos"])
            (tmp_path / "infos.pkl").write_bytes(pickle.dumps(content))
            cache = tmp_path / "cache"
            convention = "l,w,h,yaw"
            return InfosProvider(
                tmp_path / "infos.pkl", tmp_path, boxes_convention=convention, index_cache=cache, **settings
            )

        return open_changed

    @pytest.mark.parametrize(
        ("wrong", "has_tokens"),
        [
            ({"gt_boxes": np.full((2, 7), np.nan)}, True),
            ({"gt_boxes": np.full((2, 7), np.nan)}, False),
            ({"gt_boxes": None}, True),
            ({"lidar_path": None}, True),
            ({"lidar_path": None}, False),
            ({"ego2global_rotation": [0, 0, 0, 0]}, True),
            ({"cams": 3}, True),
        ],
    )
    def test_scenes_that_are_not_requested_may_be_damaged(self, opened, wrong, has_tokens):
        def change(infos):
            infos[5].update(wrong)
            for info in infos if not has_tokens else ():
                del info["scene_token"]

        name = "scene-0" if has_tokens else "token-000"
        assert opened(change, scenes=[name], lidar=True).sequence_lengths == (4,)
        with pytest.raises(FileError, match=r"infos\[5\]"):
            opened(change, lidar=True)

    def test_frames_that_are_missing_within_a_scene(self, opened):
        with pytest.warns(
            UserWarning, match="frames of 1 of 2 scenes.* between its frames 'token-004' and 'token-006'"
        ):
            opened(lambda infos: infos.pop(5))
        opened(lambda infos: infos.pop(5), scenes=["scene-0"])

    @pytest.mark.parametrize("step", [1, 5])
    def test_numbers_of_frames_in_steps(self, opened, step):
        def change(infos):
            for number, info in enumerate(infos):
                info["frame_idx"] = step * number
                info.pop("prev", None)

        opened(change)
        with pytest.warns(UserWarning, match="between its frames 'token-001' and 'token-003'"):
            opened(lambda infos: (change(infos), infos.pop(2)))

    def test_2d_boxes_of_other_classes(self, opened):
        def change(infos):
            for info in infos:
                info["labels2d"] = [np.full(len(labels), 3) for labels in info["labels2d"]]

        with pytest.warns(UserWarning, match=r"no 2D box .*: bus \("):
            opened(change, classes=["car"], boxes_2d=True)


class TestArgoverse:
    @pytest.mark.parametrize(
        ("file", "wrong"),
        [
            ("egovehicle_SE3_sensor", {"qw": 9.0}),
            ("egovehicle_SE3_sensor", {"qw": None}),
            ("intrinsics", {"fx_px": None}),
        ],
    )
    def test_calibration_of_a_camera_that_is_not_requested(self, tmp_path, file, wrong):
        log = made_drive(tmp_path / "data", "argoverse") / "train/log-1"
        cameras = log / "sensors/cameras"
        shutil.copytree(cameras / "ring_front_center", cameras / "ring_rear_left")
        for name in ("egovehicle_SE3_sensor", "intrinsics"):
            other = {"sensor_name": "ring_rear_left", **(wrong if name == file else {})}
            _rows_changed(
                log / f"calibration/{name}.feather", lambda rows, other=other: [*rows, {**rows[0], **other}]
            )

        def opened(**settings):
            return ArgoverseProvider(tmp_path / "data", index_cache=tmp_path / "cache", **settings)

        assert opened(cameras=["ring_front_center"]).camera_names == ("ring_front_center",)
        with pytest.raises(FileError, match=rf"Row 1 of .*{file}.*nan|Row 1 of .*{file}.* 9\."):
            opened()


class TestKitti:
    def test_sensors_that_are_not_requested_may_have_more_frames(self, tmp_path):
        root = made_drive(tmp_path / "data", "kitti") / "training"
        shutil.copytree(root / "image_02", root / "image_03")
        shutil.copy(root / "image_03/0000/000001.png", root / "image_03/0000/000007.png")
        calibration = root / "calib/0000.txt"
        calibration.write_text(
            calibration.read_text() + calibration.read_text().split("\n")[0].replace("P2", "P3")
        )
        for with_poses in (True, False):

            def opened(with_poses=with_poses, **settings):
                cache = tmp_path / "cache"
                return KittiTrackingProvider(root, with_poses=with_poses, index_cache=cache, **settings)

            assert opened(cameras=["image_02"]).get_number_of_samples() == 2
            with pytest.raises((FileError, SettingError), match=r"frame 7|none of image_02"):
                opened()
            assert opened(cameras=["image_02"]).get_number_of_samples() == 2

    def test_requested_sensors_decide_how_many_frames_there_are(self, tmp_path):
        root = made_drive(tmp_path / "data", "kitti") / "training"
        (root / "velodyne/0000").mkdir(parents=True, exist_ok=True)
        for number in range(3):
            np.zeros((4, 4), np.float32).tofile(root / f"velodyne/0000/{number:06}.bin")

        def opened(**settings):
            cache = tmp_path / "cache"
            return KittiTrackingProvider(root, with_poses=False, index_cache=cache, **settings)

        assert opened(cameras=["image_02"]).get_number_of_samples() == 2
        for settings in ({"lidar": True}, {"reference": "lidar"}):
            with pytest.raises((FileError, SettingError), match=r"frame 2|none of image_02"):
                opened(cameras=["image_02"], **settings)
        with pytest.raises(SettingError, match="`cameras` must be a list of names, got 5"):
            opened(cameras=5)


class TestArrowLogs:
    def _opened(self, root: Path, **settings: Any) -> ArrowLogProvider:
        return ArrowLogProvider(root, index_cache=root / "cache", **settings)

    @pytest.mark.parametrize("as_scenes", [list, np.array])
    def test_scenes_as_an_array(self, tmp_path, as_scenes):
        names = ["made_train/log-a", "made_train/log-b"]
        for seed, name in enumerate(("log-a", "log-b")):
            ArrowLog(seed, name=name).write(tmp_path)
        assert self._opened(tmp_path, scenes=as_scenes(names)).scene_names == tuple(names)
        with pytest.raises(SettingError, match="`scenes` must be a list of names"):
            self._opened(tmp_path, scenes=as_scenes([]))

    def test_lidars_that_are_not_chosen(self, tmp_path):
        log = ArrowLog()
        log.sync["lidar.lidar_side"] = [*range(4)]
        log.write(tmp_path)
        with pytest.warns(UserWarning, match=r"lidar\.lidar_side\.arrow"):
            self._opened(tmp_path, lidar=True)
        self._opened(tmp_path, lidar=True, lidar_sensor="lidar_merged")

    def test_files_that_the_frames_name(self, tmp_path):
        folder = ArrowLog().write(tmp_path)
        for name, without in (
            ("camera.pcam_l0", {"cameras": ["pcam_f0"]}),
            ("box_detections_se3", {"boxes": False}),
        ):
            (folder / f"{name}.arrow").rename(tmp_path / "kept")
            with pytest.warns(UserWarning, match=rf"1 file\(s\) .*{name}\.arrow"):
                self._opened(tmp_path)
            self._opened(tmp_path, **without)
            (tmp_path / "kept").rename(folder / f"{name}.arrow")

    def test_other_logs_may_be_damaged(self, tmp_path):
        ArrowLog().write(tmp_path)
        (ArrowLog(name="log-b").write(tmp_path) / "sync.arrow").write_bytes(b"x")
        assert self._opened(tmp_path, scenes=["made_train/log-a"]).scene_names == ("made_train/log-a",)
        for scenes in (None, ["made_train/log-b"]):
            with pytest.raises(FileError, match=r"log-b/sync\.arrow"):
                self._opened(tmp_path, scenes=scenes)

    @pytest.mark.parametrize("count", [3, 6])
    def test_videos_of_another_number_of_frames_than_rows(self, tmp_path, count):
        log = ArrowLog()
        log.images = {camera: [*range(4)] for camera in log.images}
        folder = log.write(tmp_path)
        for camera in log.images:
            make_video(folder / f"camera.{camera}.mp4", count, "libx264", rate=10)
        with pytest.raises(VideoError, match=f"has 4 time stamps .* which has {count} frames"):
            self._opened(tmp_path).get_data(0)

    def test_videos_that_are_missing(self, tmp_path):
        log = ArrowLog()
        log.images = {camera: [*range(4)] for camera in log.images}
        folder = log.write(tmp_path)
        make_video(folder / "camera.pcam_f0.mp4", 4, "libx264", rate=10)
        with pytest.raises(FileError, match="None of the 4 files of pcam_l0"):
            self._opened(tmp_path)
        self._opened(tmp_path, cameras=["pcam_f0"])


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    return write_published(tmp_path_factory.mktemp("physical_ai"))


class TestPhysicalAi:
    @pytest.fixture
    def root(self, published, tmp_path):
        return shutil.copytree(published, tmp_path / "data")

    @pytest.fixture
    def opened(self, root, tmp_path):
        return lambda **settings: PhysicalAiProvider(root, index_cache=tmp_path / "cache", **settings)

    def test_cells_of_others_may_be_empty(self, root, opened):
        def empty(rows):
            for row in rows:
                row["cx"] = None if row["clip_id"] == "clip-b" or row["camera_name"] == LEFT else row["cx"]

        _rows_changed(root / "calibration/camera_intrinsics/camera_intrinsics.chunk_0000.parquet", empty)
        assert opened(cameras=[FRONT], scenes=["clip-a"]).scene_names == ("clip-a",)
        with pytest.raises(
            FileError, match=r"Row 4 of .* must have finite numbers as cx, cy, fw_poly_1, got \[nan"
        ):
            opened(cameras=[FRONT], scenes=["clip-b"])
        write_clip_index(root, clip_is_valid=[True, None, True], split=["train", "train", None])
        assert opened(cameras=[FRONT]).scene_names == ("clip-a",)

    def test_of_a_reference_camera_that_is_not_requested_only_the_times_are_needed(self, root, opened):
        for path in root.glob("calibration/*/*"):
            if "vehicle" not in path.name:
                key = "camera_name" if "intrinsics" in path.name else "sensor_name"
                _rows_changed(path, lambda rows, key=key: [row for row in rows if row[key] != FRONT])
        provider = opened(cameras=[LEFT], reference_camera=FRONT)
        assert provider.camera_names == (LEFT,)
        assert provider.get_number_of_samples() == opened(cameras=()).get_number_of_samples() == 135
        for path in root.glob(f"camera/{FRONT}/*"):
            path.unlink()
        assert opened(cameras=[LEFT]).camera_names == (LEFT,)

    def test_cameras_are_those_of_any_chunk(self, root, opened):
        (root / f"camera/{TELE}/{TELE}.chunk_0000.zip").unlink()
        assert TELE in opened(scenes=["clip-c"]).camera_names
        with pytest.raises(FileError, match=f"{TELE}.chunk_0000.zip"):
            opened()

    def test_motion_that_ends_early(self, published, tmp_path):
        root = unpacked(published, tmp_path / "unpacked")
        path = next(root.glob("labels/egomotion/*clip-a*"))
        _rows_changed(path, lambda rows: rows[:80])
        with pytest.warns(UserWarning, match="1 of 3 clips only: 67% of the frames of 'clip-a'"):
            PhysicalAiProvider(root, cameras=[FRONT], index_cache=tmp_path / "cache")

    def test_named_clips_that_lack_files_are_dropped(self, published, tmp_path):
        root = unpacked(published, tmp_path / "unpacked")
        next(root.glob(f"camera/{TELE}/*clip-a*.mp4")).unlink()
        settings = {"missing": "drop", "scenes": ["clip-a", "clip-b"], "index_cache": tmp_path / "cache"}
        assert PhysicalAiProvider(root, **settings).scene_names == ("clip-b",)


class TestLeRobot:
    def _opened(self, root: Path, **settings: Any) -> LeRobotProvider:
        return LeRobotProvider(root, index_cache=root / "cache", **settings)

    def test_cells_of_other_episodes_may_be_empty(self, tmp_path):
        root = write_lerobot(tmp_path / "data", cameras=())
        _rows_changed(root / "data/chunk-000/file-000.parquet", lambda rows: rows[5].update(action=None))
        _rows_changed(root / "meta/episodes/chunk-000/file-000.parquet", lambda rows: rows[1].update(length=None))
        assert self._opened(root, episodes=[0]).get_number_of_samples() == 4
        with pytest.raises(FileError, match="no 'length' of the episode 1"):
            self._opened(root, episodes=[1])

    @pytest.mark.parametrize("cell", ["from_timestamp", "file_index", "chunk_index"])
    def test_where_the_next_episode_begins_may_be_unknown(self, tmp_path, cell):
        root = write_lerobot(tmp_path / "data", cameras=(FEATURE,))
        path = root / "meta/episodes/chunk-000/file-000.parquet"
        _rows_changed(path, lambda rows: rows[1].update({f"videos/{FEATURE}/{cell}": None}))
        data = self._opened(root, episodes=[0]).get_data(3)  # without a warning of frames beyond its rows
        assert data is not None

    def test_statistics_are_of_all_episodes(self, tmp_path):
        root = write_lerobot(tmp_path / "data", "v2.1", cameras=())
        path = root / "meta/episodes_stats.jsonl"
        path.write_text("".join(path.read_text().splitlines(True)[:2]))
        with pytest.raises(FileError, match=r"statistics of all episodes, and has none of 2"):
            self._opened(root).normalizer("action")
        root = write_lerobot(tmp_path / "v3", cameras=(), total_frames=12)
        stats = json.loads((root / "meta/stats.json").read_text())
        stats["action"]["count"] = [7]
        (root / "meta/stats.json").write_text(json.dumps(stats))
        with pytest.warns(UserWarning, match="'action' .* are of 7 rows, and the data set has 12"):
            self._opened(root).normalizer("action")

    @pytest.mark.parametrize("ending", [".png", ".tiff", ".pgm", ".jp2"])
    def test_images_of_16_bits_are_refused(self, tmp_path, ending):
        content = bytes(cv2.imencode(ending, np.full((64, 96), 700, np.uint16))[1])
        root = write_lerobot(tmp_path / "data", cameras=(), images=[content] * 12)
        with pytest.raises(FileError, match=r"images\.top' are gray of 16 bits"):
            self._opened(root)
        other = bytes(cv2.imencode(ending, np.full((64, 96), 7, np.uint8))[1])
        self._opened(write_lerobot(tmp_path / "other", cameras=(), images=[other] * 12))

    @pytest.mark.parametrize("place", ["feature", "info", "video_info"])
    def test_depth_is_declared_in_any_place(self, tmp_path, place):
        root = write_lerobot(tmp_path / "data", cameras=("observation.images.front",))
        info = json.loads((root / "meta/info.json").read_text())
        feature = info["features"]["observation.images.front"]
        feature.update({"info": {"codec": "h264"}})
        (feature if place == "feature" else feature.setdefault(place, {}))["video.is_depth_map"] = True
        (root / "meta/info.json").write_text(json.dumps(info))
        assert list(self._opened(root).depth_cameras) == ["observation.images.front"]


def test_classes_that_the_chosen_scenes_lack(tmp_path):
    root = made_drive(tmp_path, "index")
    with pytest.raises(SettingError, match="no category 'bus'"):
        DrivingProvider(root / "index", root, classes=["bus"], scenes=["town"])
    DrivingProvider(root / "index", root, classes=["car"], scenes=["town"])
