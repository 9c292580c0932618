"""What is not requested may be missing or damaged; what a data set says it has is compared with what is there."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from driving_support.arrow_logs import ArrowLog
from driving_support.info_pickles import driving_scenes, pickle_content, write_files, write_pickle
from driving_support.nuscenes_data import changed_table
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework.errors import FileError, FrameworkError
from accvlab.driving_data.datasets import ArrowLogProvider, InfosProvider, KittiTrackingProvider, NuScenesProvider
from accvlab.driving_data.datasets.nuscenes.nuscenes_provider import Conversion
from accvlab.driving_data.testing import made_drive


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
