"""What is not requested may be missing or damaged; what a data set says it has is compared with what is there."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from driving_support.arrow_logs import ArrowLog
from driving_support.info_pickles import driving_scenes, pickle_content, write_files, write_pickle
from driving_support.nuscenes_data import changed_table
from driving_support.physical_ai import FRONT, LEFT, TELE, write_clip_index, write_published
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework.errors import FileError, FrameworkError
from accvlab.driving_data.datasets import (
    ArrowLogProvider,
    InfosProvider,
    KittiTrackingProvider,
    NuScenesProvider,
    PhysicalAiProvider,
)
from accvlab.driving_data.datasets.nuscenes.nuscenes_provider import Conversion
from accvlab.driving_data.testing import made_drive


def _rows_changed(path: Path, change: Callable[[list[dict[str, Any]]], Any]) -> None:
    import pyarrow as pa
    import pyarrow.parquet

    table = pa.parquet.read_table(path)
    rows = table.to_pylist()
    pa.parquet.write_table(pa.Table.from_pylist(change(rows) or rows, schema=table.schema), path)


class TestNuScenes:
    @pytest.fixture
    def root(self, tmp_path):
        return made_drive(tmp_path / "data", "nuscenes")

    @pytest.fixture
    def opened(self, root):
        return lambda **settings: NuScenesProvider(root, "v1.0-mini", **settings)

    def test_scenes_that_are_not_requested_may_be_damaged(self, root, opened, monkeypatch):
        with changed_table(root, "sample_annotation") as records:
            next(each for each in records if each["token"] == "box 13")["size"] = [1, "x", 1]
        with changed_table(root, "sample_data") as records:
            records[:] = [each for each in records if each["token"] != "LIDAR_TOP kB1"]
        for other in ({}, {"scenes": ["scene-0103"]}):
            with pytest.raises(FileError, match=r"'box 13'|'kB1'"):
                opened(**other)
        provider = opened(scenes=["scene-0061"])
        assert [len(provider.get_data(number)["boxes"]["categories"]) for number in range(4)] == [1] * 4
        assert opened(split="mini_train").scene_names == ("scene-0061",)
        monkeypatch.setattr(Conversion, "make_index", None)  # to read all scenes is tried once
        assert opened(scenes=["scene-0061"]).scene_names == ("scene-0061",)

    def test_ego_poses_that_several_sensors_have(self, root, opened):
        wanted = {"LIDAR_TOP A4": "LIDAR_TOP A5", "CAM_FRONT kA1": "LIDAR_TOP A4", "CAM_BACK kB1": "gone"}
        with changed_table(root, "ego_pose") as poses:
            next(each for each in poses if each["token"] == "LIDAR_TOP A4")["rotation"] = [0, 0, 0, 0]
        words = "'LIDAR_TOP A4' ...quaternion"
        assert_refused(lambda: opened(frames="LIDAR_TOP", cameras=[], lidar=True), words, FileError)
        with changed_table(root, "sample_data") as records:  # then cameras alone, and a pose that is not there
            for record in records:
                record["ego_pose_token"] = wanted.get(record["token"], record["ego_pose_token"])
        assert opened(cameras=[]).get_number_of_samples() == 8
        assert_refused(lambda: opened(cameras=["CAM_FRONT"]), words, FileError)
        words = "'CAM_BACK kB1' ...ego_pose_token 'gone'"
        assert_refused(lambda: opened(cameras=["CAM_BACK"]), words, FileError)

    @pytest.mark.parametrize(
        "field", ["scene.token", "scene.log_token", "sample.scene_token", "sample_data.sample_token"]
    )
    def test_tokens_that_are_no_text(self, root, opened, field):
        table, name = field.split(".")
        with changed_table(root, table) as records:
            records[-1][name] = []
        assert opened(scenes=["scene-0061"]).scene_names == ("scene-0061",)
        if name == "log_token":
            words = "no log of scene-0103"
            assert_refused(lambda: opened(scenes=["scene-0103"]).scene_logs, words, FileError)
        else:
            assert_refused(opened, name, FileError)
        if field == "scene.token":
            words = "must have text as token"
            assert_refused(lambda: opened(scenes=["scene-0103"]), words, FileError)

    def test_indices_of_named_scenes_replace_no_others(self, root, opened):
        with changed_table(root, "sample_data") as data, changed_table(root, "calibrated_sensor") as mountings:
            wrong = {"token": "wrong", "rotation": [0, 0, 0, 0]}
            mountings.append({**next(each for each in mountings if each["token"] == "CAM_BACK kA0"), **wrong})
            next(each for each in data if each["token"] == "CAM_BACK B1")["calibrated_sensor_token"] = "wrong"
        whole = opened(cameras=["CAM_FRONT"])
        with changed_table(root, "scene") as records:
            records.append({**records[0], "token": "bad", "name": "scene-bad", "first_sample_token": "nowhere"})
        parts = [opened(scenes=[name], cameras=[]) for name in ("scene-0061", "scene-0103")]
        for provider in (whole, *parts):
            again = pickle.loads(pickle.dumps(provider))
            assert again.scene_names == provider.scene_names
            assert again.get_data(0)["token"] == provider.get_data(0)["token"]
        assert [len(provider.scene_names) for provider in (whole, *parts)] == [2, 1, 1]

    def test_named_scenes_that_damaged_tables_lack(self, root, opened, tmp_path):
        with changed_table(root, "scene") as records:
            records.append({**records[0], "token": "bad", "name": "scene-bad", "first_sample_token": "nowhere"})
        words = "'scene-0102'...Did you mean...There are 3: ...scene-bad"
        assert_refused(lambda: opened(scenes=["scene-0061", "scene-0102"]), words)
        assert_refused(lambda: opened(split="test"), "'nowhere'", FileError)
        (tmp_path / "list.txt").write_text("scene-0061\n")
        assert opened(split=tmp_path / "list.txt").scene_names == ("scene-0061",)

    def test_records_that_others_name_before_them(self, root, opened):
        with changed_table(root, "sample_data") as records:
            records[:] = [each for each in records if each["token"] != "LIDAR_TOP A4"]
        opened(lidar=True)
        words = "'LIDAR_TOP A5' ...record of LIDAR_TOP before ...'LIDAR_TOP A4'"
        assert_refused(lambda: opened(lidar=True, num_sweeps=2), words, FileError)
        assert_refused(lambda: opened(frames="LIDAR_TOP"), "'LIDAR_TOP A4'", FileError)

    def test_selections_that_leave_no_box(self, root, opened):
        words = "min_points: no box of the data set has 10 points, the most are 9"
        assert_refused(lambda: opened(min_points=10), words)
        assert_refused(lambda: opened(min_lidar_points=10), "min_lidar_points: ...the most are 9")
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
            content = pickle_content(driving_scenes(), "streampetr")
            change(content["infos"])
            path = write_pickle(write_files(tmp_path, driving_scenes()) / "infos.pkl", content)
            return InfosProvider(path, tmp_path, boxes_convention="l,w,h,yaw", **settings)

        return open_changed

    @pytest.mark.parametrize(
        ("wrong", "has_tokens"),
        [
            ({"gt_boxes": np.full((2, 7), np.nan)}, False),
            ({"lidar_path": None}, False),
            ({"lidar_path": None}, True),
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

    def test_2d_boxes_of_other_classes(self, opened):
        def change(infos):
            for info in infos:
                info["labels2d"] = [np.full(len(labels), 3) for labels in info["labels2d"]]

        with pytest.warns(UserWarning, match=r"no 2D box .*: bus \("):
            opened(change, classes=["car"], boxes_2d=True)


class TestKitti:
    @pytest.mark.parametrize("with_poses", [True, False])
    def test_sensors_that_are_not_requested_may_have_more_frames(self, tmp_path, with_poses):
        root = made_drive(tmp_path / "data", "kitti") / "training"
        shutil.copytree(root / "image_02", root / "image_03")
        shutil.copy(root / "image_03/0000/000001.png", root / "image_03/0000/000007.png")
        path = root / "calib/0000.txt"
        path.write_text(path.read_text() + path.read_text().split("\n")[0].replace("P2", "P3"))
        assert len(KittiTrackingProvider(root, with_poses=with_poses, cameras=["image_02"])) == 2
        with pytest.raises(FrameworkError, match=r"frame 7|none of image_02"):
            KittiTrackingProvider(root, with_poses=with_poses)

    def test_requested_sensors_decide_how_many_frames_there_are(self, tmp_path):
        root = made_drive(tmp_path / "data", "kitti") / "training"
        (root / "velodyne/0000").mkdir(parents=True, exist_ok=True)
        for number in range(3):
            np.zeros((4, 4), np.float32).tofile(root / f"velodyne/0000/{number:06}.bin")
        settings = {"with_poses": False, "cameras": ["image_02"]}
        assert len(KittiTrackingProvider(root, **settings)) == 2
        for more in ({"lidar": True}, {"reference": "lidar"}):
            with pytest.raises(FrameworkError, match=r"frame 2|none of image_02"):
                KittiTrackingProvider(root, **settings, **more)


def test_files_of_logs_that_are_not_chosen(tmp_path):
    log = ArrowLog()
    log.sync["lidar.lidar_side"] = [*range(4)]
    folder = log.write(tmp_path)
    for name, wanted, without in (
        ("lidar.lidar_side", {"lidar": True}, {"lidar": True, "lidar_sensor": "lidar_merged"}),
        ("camera.pcam_l0", {}, {"cameras": ["pcam_f0"]}),
        ("box_detections_se3", {"cameras": ["pcam_f0"]}, {"cameras": ["pcam_f0"], "boxes": False}),
    ):
        (folder / f"{name}.arrow").unlink(missing_ok=True)
        with pytest.warns(UserWarning, match=rf"1 file\(s\) .*{name}\.arrow"):
            ArrowLogProvider(tmp_path, **wanted)
        ArrowLogProvider(tmp_path, **without)


class TestPhysicalAi:
    @pytest.fixture
    def root(self, tmp_path):
        return write_published(tmp_path / "data")

    @pytest.fixture
    def opened(self, root):
        return lambda **settings: PhysicalAiProvider(root, **settings)

    def test_cells_of_others_may_be_empty(self, root, opened):
        def empty(rows):
            for row in rows:
                row["cx"] = None if row["clip_id"] == "clip-b" or row["camera_name"] == LEFT else row["cx"]

        _rows_changed(root / "calibration/camera_intrinsics/camera_intrinsics.chunk_0000.parquet", empty)
        assert opened(cameras=[FRONT], scenes=["clip-a"]).scene_names == ("clip-a",)
        words = "Row 4 of ...must have finite numbers as cx, cy, fw_poly_1, got [nan"
        assert_refused(lambda: opened(cameras=[FRONT], scenes=["clip-b"]), words, FileError)
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
