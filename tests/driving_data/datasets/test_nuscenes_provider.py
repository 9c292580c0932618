"""The provider of nuScenes: scenes and splits, classes, sweeps, CAN messages, and what is wrong with tables."""

import json
import pickle
import re
import shutil
import warnings

import numpy as np
import pytest
from driving_support.driving_data import index_of
from driving_support.nuscenes_data import VERSION, changed_table, write_nuscenes

from accvlab.dali_pipeline_framework import DataLoader
from accvlab.dali_pipeline_framework.errors import FileError, SettingError
from accvlab.dali_pipeline_framework.testing import check_provider
from accvlab.driving_data.datasets import NuScenesProvider
from accvlab.driving_data.datasets.nuscenes import tables
from accvlab.driving_data.datasets.nuscenes.splits import DETECTION_CLASSES, scenes_of_split


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return write_nuscenes(tmp_path_factory.mktemp("nuscenes") / "root")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("index")


@pytest.fixture
def copy(root, tmp_path):
    """The tables, to be changed, and the files."""
    shutil.copytree(root / VERSION, tmp_path / "copy" / VERSION)
    for folder in {path.name for path in root.iterdir()} - {VERSION}:
        (tmp_path / "copy" / folder).symlink_to(root / folder)
    return tmp_path / "copy"


def opened(root, cache, version=VERSION, **settings):
    return NuScenesProvider(root, version, index_cache=cache, **settings)


def records(root, name):
    return json.loads((root / VERSION / f"{name}.json").read_text())


def renamed_scenes(root, names):
    with changed_table(root, "scene") as scenes:
        for scene, name in zip(scenes, names, strict=True):
            scene["name"] = name


def without_table(root, name, keep):
    with changed_table(root, name) as table:
        table[:] = [record for record in table if keep(record)]


class TestScenes:
    def test_are_those_of_the_tables(self, root, cache):
        provider = opened(root, cache)
        assert provider.scene_names == ("scene-0001", "scene-0002")
        assert provider.sequence_lengths == tuple(scene["nbr_samples"] for scene in records(root, "scene"))
        assert provider.scene_logs["scene-0001"] == {
            "logfile": "made-scene-0001",
            "vehicle": "made",
            "date_captured": "2020-01-01",
            "location": "made-road",
        }

    def test_are_those_of_a_split(self, copy, tmp_path, caplog):
        renamed_scenes(copy, ["scene-0103", "scene-0061"])
        assert opened(copy, tmp_path, split="mini_train").scene_names == ("scene-0061",)
        assert "1 of the 8 scenes of the split 'mini_train' are in these tables." in caplog.text
        assert opened(copy, tmp_path, split="mini_val").scene_names == ("scene-0103",)

    @pytest.mark.parametrize("content", ['["scene-0002"]', "scene-0002\n"])
    def test_are_those_of_a_file(self, root, cache, tmp_path, content):
        (tmp_path / "mine.txt").write_text(content)
        assert opened(root, cache, split=tmp_path / "mine.txt").scene_names == ("scene-0002",)

    def test_follow_the_official_numbers(self):
        counts = {name: len(scenes_of_split(name)) for name in ("train", "val", "test", "mini_train", "mini_val")}
        assert counts == {"train": 700, "val": 150, "test": 150, "mini_train": 8, "mini_val": 2}
        assert scenes_of_split("mini_val") == ("scene-0103", "scene-0916")

    def test_are_sequences_by_time(self, root, cache):
        provider = opened(root, cache)
        assert (np.diff(provider.timestamps)[: provider.sequence_lengths[0] - 1] > 0).all()
        assert [provider.get_data(number)["is_first"] for number in range(3)] == [True, False, False]

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"split": "trian"}, "`split` must be one of .*got 'trian'.*Did you mean 'train'"),
            (
                {"split": "mini_val"},
                "none of its 2 scenes is in these tables.*There are scenes of train, train_detect",
            ),
            ({"split": "train", "scenes": ["scene-0001"]}, "give one of them"),
            ({"scenes": ["scene-0003"]}, "'scene-0003'.*There are 2"),
            ({"cameras": ["CAM_FRONTAL"]}, "no camera 'CAM_FRONTAL'.*Did you mean 'CAM_FRONT'"),
            ({"classes": ["vehicle.cars"]}, "no category 'vehicle.cars'.*Did you mean 'vehicle.car'"),
            (
                {"classes": ["car", "pedestrain"]},
                "'pedestrain'.*Did you mean 'pedestrian'.*Classes of detection: car, .*pedestrian.*vehicle.car",
            ),
            ({"classes": {"pedestrain": "person"}}, "'pedestrain'.*Did you mean 'pedestrian'"),
            (
                {"classes": ["car", "vehicle.car"]},
                "gives the category 'vehicle.car' to two classes, 'car' and 'vehicle.car'",
            ),
            ({"classes": ["car", "pedestrian", "car"]}, "name a class once only, got several times: car"),
            ({"classes": "car"}, r"`classes` must be a list of names, got one: write \['car'\]"),
            ({"classes": "vehicle.car"}, r"write \['vehicle.car'\]"),
            ({"classes": "detections"}, "`classes` must be one of 'detection', got 'detections'"),
            ({"frames": "LIDAR"}, "`frames` must be 'keyframes' or .*got 'LIDAR'"),
            ({"can_bus": True}, "can_bus: the data set has none"),
        ],
    )
    def test_and_settings_that_are_not_there_are_named(self, root, cache, settings, message):
        with pytest.raises(SettingError, match=f"(?s){message}"):
            opened(root, cache, **settings)


def test_describe_tells_where_it_is_from(root, cache):
    told = opened(root, cache).describe().splitlines()
    assert told[0].startswith("NuScenesProvider(")
    assert "data set: nuScenes" in told
    assert "scenes: 2: scene-0001, scene-0002" in told


class TestSamples:
    def test_keep_the_rules_of_providers(self, root, cache):
        provider = opened(root, cache, scenes=["scene-0001"], cameras=["CAM_BACK"], boxes_2d=True, lidar=True)
        check_provider(provider, start_method="fork")

    def test_have_classes_of_detection(self, root, cache):
        raw, detection = opened(root, cache), opened(root, cache, classes="detection")
        assert detection.class_names == tuple(DETECTION_CLASSES)
        of = {name: number for number, names in enumerate(DETECTION_CLASSES.values()) for name in names}
        for number in range(len(raw)):
            expected = [of[raw.class_names[category]] for category in raw.get_data(number)["boxes"]["categories"]]
            assert detection.get_data(number)["boxes"]["categories"].tolist() == expected

    def test_have_some_classes_in_the_order_asked_for(self, root, cache):
        provider = opened(root, cache, classes=["pedestrian", "bus", "car"])
        assert provider.class_names == ("pedestrian", "bus", "car")
        assert set(provider.get_data(0)["boxes"]["categories"].tolist()) <= {0, 2}
        assert opened(root, cache, classes=["vehicle.car"]).class_names == ("vehicle.car",)

    def test_have_classes_of_data_with_other_categories(self, copy, tmp_path):
        own = {"vehicle.car": "car", "human.pedestrian.adult": "pedestrian"}
        with changed_table(copy, "category") as categories:
            for number, record in enumerate(categories):
                record["name"] = own.get(record["name"], f"thing-{number}")
            names = [record["name"] for record in categories]
        with pytest.warns(UserWarning, match="the data set has no category for truck, construction_vehicle, bus"):
            provider = opened(copy, tmp_path, classes="detection")
        assert provider.class_names[:2] == ("car", "pedestrian")
        everything = opened(copy, tmp_path)
        assert everything.class_names == tuple(names)
        found, expected = (
            [one.class_names[number] for number in one.get_data(0)["boxes"]["categories"]]
            for one in (provider, everything)
        )
        assert found == [name for name in expected if name in ("car", "pedestrian")]
        assert "car" in found
        with pytest.raises(SettingError, match=rf"(?s)no category for the class of detection 'bus'.*{names[0]}"):
            opened(copy, tmp_path, classes=["car", "bus"])
        with pytest.raises(SettingError, match=r"no category 'vehicle.car'"):
            opened(copy, tmp_path, classes=["vehicle.car"])
        with changed_table(copy, "category") as categories:
            for number, record in enumerate(categories):
                record["name"] = f"thing-{number}"
        with pytest.raises(
            SettingError, match=r"(?s)no category for the class of detection 'car'.*thing-0, thing-1"
        ):
            opened(copy, tmp_path, classes="detection")

    def test_need_no_tables_of_boxes_without_them(self, copy, tmp_path):
        with changed_table(copy, "calibrated_sensor") as records_:
            sensor = next(one for one in records(copy, "sensor") if one["channel"] == "CAM_BACK")
            for record in records_:
                if record["sensor_token"] == sensor["token"]:
                    record["camera_intrinsic"] = []
        (copy / VERSION / "sample_annotation.json").write_text("[")
        for name in ("category", "instance", "visibility", "attribute"):
            (copy / VERSION / f"{name}.json").unlink()
        wanted = {"boxes": False, "cameras": ["CAM_FRONT"], "lidar": True}
        assert "boxes" not in opened(copy, tmp_path, **wanted).get_data(0).contained_top_level_field_names
        with pytest.raises(FileError, match=r"lacks attribute.json, category.json"):
            opened(copy, tmp_path, **{**wanted, "boxes": True})
        with pytest.raises(FileError, match="of CAM_BACK, must have 3 x 3 finite numbers"):
            opened(copy, tmp_path, **{**wanted, "cameras": None})

    def test_have_points_inside_boxes(self, root, cache):
        provider = opened(root, cache, lidar=True, num_sweeps=2, min_lidar_points=1)
        sample = provider.get_data(1)
        points, boxes = sample["lidar"]["points"][:, :3], sample["boxes"]
        assert provider.point_columns == ("x", "y", "z", "intensity", "ring")
        np.testing.assert_array_equal(sample["lidar"]["reference_from_lidar"], np.eye(4))
        for row in range(len(boxes["yaws"])):
            turn = np.array(
                [[np.cos(a := boxes["yaws"][row]), -np.sin(a), 0], [np.sin(a), np.cos(a), 0], [0, 0, 1]]
            )
            inside = np.abs((points - boxes["centers"][row]) @ turn) <= boxes["sizes"][row] / 2 + 1e-3
            assert inside.all(axis=1).sum() >= boxes["num_lidar_points"][row] >= 1
        times = [sweep["timestamp"] for sweep in sample["sweeps"].values()]
        assert sample["timestamp"] > times[0] > times[1]

    def test_have_more_sweeps_where_more_are_asked_for(self, root, tmp_path):
        provider = opened(root, tmp_path, frames="LIDAR_TOP", lidar=True, num_sweeps=12, scenes=["scene-0001"])
        last = provider.get_data(len(provider) - 1)
        assert sum(len(sweep["points"]) > 0 for sweep in last["sweeps"].values()) == len(provider) - 1

    def test_are_in_the_frame_of_the_vehicle_without_lidar(self, copy, tmp_path, root, cache):
        lidar = next(one["token"] for one in records(copy, "sensor") if one["channel"] == "LIDAR_TOP")
        tokens = {one["token"] for one in records(copy, "calibrated_sensor") if one["sensor_token"] == lidar}
        without_table(copy, "sensor", lambda record: record["token"] != lidar)
        without_table(copy, "calibrated_sensor", lambda record: record["token"] not in tokens)
        without_table(copy, "sample_data", lambda record: record["calibrated_sensor_token"] not in tokens)
        found = opened(copy, tmp_path, data_root=root).get_data(1)
        expected = opened(root, cache, reference="ego").get_data(1)
        np.testing.assert_array_equal(found["ego"]["ego_from_reference"], np.eye(4))
        world = [one["ego"]["world_from_reference"] for one in (found, expected)]
        # Of the camera and of the lidar: the vehicles differ, the boxes in the world do not.
        assert np.abs(world[0] - world[1]).max() > 1e-3
        centers = [
            np.column_stack([one["boxes"]["centers"], np.ones(len(one["boxes"]["centers"]))]) @ pose.T
            for one, pose in zip((found, expected), world, strict=True)
        ]
        np.testing.assert_allclose(*centers, atol=1e-3)

    def test_have_no_boxes_without_annotations(self, copy, root, tmp_path):
        for name in ("sample_annotation", "instance"):
            without_table(copy, name, lambda record: False)
        provider = opened(copy, tmp_path, data_root=root, boxes_2d=True, num_future_frames=2, classes="detection")
        sample = provider.get_data(0)
        assert sample["boxes"]["centers"].shape == (0, 3)
        assert sample["cameras"][0]["boxes_2d"]["boxes"].shape == (0, 4)
        assert len(opened(copy, tmp_path, frames="LIDAR_TOP", data_root=root)) > len(provider)

    def test_have_can_messages(self, root, tmp_path):
        data = records(root, "sample")
        first = min(one["timestamp"] for one in data)
        message = {"pos": [1, 2, 3], "orientation": [1, 0, 0, 0], "accel": [4, 5, 6], "rotation_rate": [7, 8, 9]}
        messages = [{**message, "vel": [n, 0, 0], "utime": first - 10_000 + n * 20_000} for n in range(100)]
        steering = [{"utime": first + n * 10_000 - 4_000, "value": n / 10} for n in range(100)]
        (tmp_path / "scene-0001_pose.json").write_text(json.dumps(messages))
        (tmp_path / "scene-0001_steeranglefeedback.json").write_text(json.dumps(steering))
        provider = opened(root, tmp_path / "index", can_bus_root=tmp_path, can_bus=True, ego_status=True)
        ego = provider.get_data(0)["ego"]
        expected = [1, 2, 3, 1, 0, 0, 0, 4, 5, 6, 7, 8, 9, 1, 0, 0, 0, 0]  # behind it: the velocity of message 1
        np.testing.assert_array_equal(ego["can_bus"], expected)
        np.testing.assert_array_equal(ego["status"], [4, 5, 6, 7, 8, 9, 1, 0, 0, 0])
        np.testing.assert_array_equal(provider.get_data(len(provider) - 1)["ego"]["can_bus"], 0)
        (tmp_path / "scene-0001_pose.json").write_text("[{}]")
        with pytest.raises(FileError, match=r"scene-0001_pose\.json.*a message lacks 'utime'"):
            opened(root, tmp_path / "index", can_bus_root=tmp_path, ego_status=True)
        assert len(opened(root, tmp_path / "index", can_bus_root=tmp_path)) == len(provider)  # not requested

    def test_come_from_a_pickle_that_is_small(self, root, cache):
        provider = opened(root, cache, boxes_2d=True)
        content = pickle.dumps(provider)
        assert len(content) < 1500
        again = pickle.loads(content)
        np.testing.assert_array_equal(
            again.get_data(2)["boxes"]["centers"], provider.get_data(2)["boxes"]["centers"]
        )

    def test_come_from_an_index_that_is_made_once(self, root, tmp_path, monkeypatch):
        opened(root, tmp_path)
        monkeypatch.setattr(tables, "_pieces", None)  # nothing is read again
        assert len(opened(root, tmp_path, scenes=["scene-0002"], classes="detection")) > 0


class TestTables:
    def test_are_read_in_pieces_of_any_size(self, root, cache, tmp_path, monkeypatch):
        whole = opened(root, cache)
        for size in (1, 700, 5000):
            monkeypatch.setattr(tables, "_PIECE", size)
            monkeypatch.setattr(tables, "_column_values", tables._column_values)
            found = tables.read_records(root / VERSION / "sample.json", "token")
            assert found == records(root, "sample")
        pieces = opened(root, tmp_path)
        np.testing.assert_array_equal(index_of(whole).boxes.center, index_of(pieces).boxes.center)

    @pytest.mark.parametrize("indent", [None, 0, 4])
    def test_may_be_written_in_any_way(self, copy, cache, root, tmp_path, indent):
        path = copy / VERSION / "sample_data.json"
        content = json.loads(path.read_text())
        content[0]["filename"] = 'odd "},{ name.jpg'
        path.write_text("\n " + json.dumps(content, indent=indent) + "\n")
        tables_, piece = tables.read_records(path, "token"), tables._PIECE
        tables._PIECE = 1000
        try:
            assert tables.read_records(path, "token") == tables_ == content
        finally:
            tables._PIECE = piece

    def test_need_the_folder_of_a_version(self, root, tmp_path):
        with pytest.raises(FileError, match=r"no folder 'v1\.0-trainval'.*There are: v1\.0-mini") as caught:
            opened(root, tmp_path, version="v1.0-trainval")
        assert isinstance(caught.value, FileNotFoundError)
        with pytest.raises(FileError, match=r"`root` is their parent, `version` is 'v1\.0-mini'"):
            opened(root / VERSION, tmp_path)
        with pytest.raises(FileError, match="must be the folder of a nuScenes data set"):
            opened(root / "nothing", tmp_path)

    def test_must_all_be_there(self, copy, tmp_path):
        for name in ("ego_pose", "scene"):
            (copy / VERSION / f"{name}.json").unlink()
        with pytest.raises(FileError, match=r"lacks ego_pose\.json, scene\.json") as caught:
            opened(copy, tmp_path)
        assert isinstance(caught.value, FileNotFoundError)

    @pytest.mark.parametrize(
        ("damage", "message"),
        [
            (lambda text: text[: len(text) // 2], r"ego_pose\.json.* is damaged or cut short, line \d+"),
            (lambda text: text.replace(":", ";", 1), r"ego_pose\.json.* line 3: Expecting ':'"),
            (lambda text: "", r"ego_pose\.json.*a list of records is expected"),
            (lambda text: '{"a": 1}', r"ego_pose\.json.*a list of records is expected"),
            (lambda text: "[1, 2]", r"ego_pose\.json.*a list of objects is expected"),
            (lambda text: text.rstrip()[:-1] + ", 7]", r"ego_pose\.json.*a list of objects is expected"),
            (lambda text: text.replace('"translation"', '"place"', 1), "ego_pose.*field 'translation', got"),
        ],
    )
    def test_must_be_whole(self, copy, tmp_path, damage, message):
        path = copy / VERSION / "ego_pose.json"
        path.write_text(damage(path.read_text()))
        with pytest.raises(FileError, match=message):
            opened(copy, tmp_path)

    @pytest.mark.parametrize(
        ("table", "field", "message"),
        [
            ("sample", "scene_token", r"of '.*sample\.json' has the scene_token 'gone', .*scene\.json' has"),
            ("sample_data", "sample_token", r"sample_data\.json' has the sample_token 'gone', .*sample\.json"),
            ("sample_data", "ego_pose_token", r"has the ego_pose_token 'gone', .*ego_pose\.json"),
            (
                "sample_data",
                "calibrated_sensor_token",
                r"has the calibrated_sensor_token 'gone', .*calibrated_sens",
            ),
            ("calibrated_sensor", "sensor_token", r"has the sensor_token 'gone', .*sensor\.json"),
            ("sample_annotation", "instance_token", r"has the instance_token 'gone', .*instance\.json"),
            ("sample_annotation", "visibility_token", r"has the visibility_token 'gone', .*visibility\.json"),
            ("sample_annotation", "prev", r"has the prev 'gone', .*sample_annotation\.json"),
            ("instance", "category_token", r"has the category_token 'gone', .*category\.json"),
            ("scene", "last_sample_token", r"has the last_sample_token 'gone', .*sample\.json"),
            ("scene", "first_sample_token", r"has the first_sample_token 'gone', .*sample\.json"),
        ],
    )
    def test_must_not_name_what_is_not_there(self, copy, tmp_path, table, field, message):
        with changed_table(copy, table) as records_:
            records_[1][field] = "gone"
            token = records_[1]["token"]
        with pytest.raises(FileError, match=f"The record '{token}' .*{message}"):
            opened(copy, tmp_path)

    @pytest.mark.parametrize(
        ("table", "change", "message"),
        [
            ("calibrated_sensor", {"camera_intrinsic": [[1, 0], [0, 1]]}, "3 x 3 finite.*camera_intrinsic"),
            ("calibrated_sensor", {"camera_intrinsic": [[1, 0, 0]] * 3}, "that can be inverted"),
            ("calibrated_sensor", {"camera_intrinsic": [[float("nan")] * 3] * 3}, "3 x 3 finite"),
            ("calibrated_sensor", {"camera_intrinsic": "none"}, "of CAM_FRONT, must have 3 x 3"),
            ("calibrated_sensor", {"rotation": [0, 0, 0, 0]}, r"quaternion that is not 0 as rotation, got \[0.0"),
            ("calibrated_sensor", {"rotation": [1, 0, 0]}, "must have 4 numbers, w first as rotation"),
            ("calibrated_sensor", {"translation": [0, float("inf"), 0]}, "finite translation"),
            ("ego_pose", {"rotation": [0, 0, 0, 0]}, "quaternion that is not 0"),
            ("sample_annotation", {"translation": None}, "must have 3 numbers as translation, got None"),
            ("sample_annotation", {"size": [1, -1, 1]}, "size of numbers of at least 0, got"),
            ("sample_data", {"is_key_frame": "False"}, "true or false as is_key_frame, got 'False'"),
            ("sample_data", {"timestamp": "noon"}, "a whole number as timestamp, got 'noon'"),
            ("sample_data", {"calibrated_sensor_token": ["a"]}, r"text as calibrated_sensor_token, got \['a'\]"),
        ],
    )
    def test_must_have_values_that_can_be_used(self, copy, tmp_path, table, change, message):
        with changed_table(copy, table) as records_:
            records_[0].update(change)
            token = records_[0]["token"]
        with pytest.raises(FileError, match=f"(?s)The record '{token}' of '.*{table}.json'.*{message}"):
            opened(copy, tmp_path)

    @pytest.mark.parametrize(
        ("table", "field", "what"),
        [("scene", "nbr_samples", "samples"), ("instance", "nbr_annotations", "annotations")],
    )
    def test_must_have_as_much_as_they_say(self, copy, tmp_path, table, field, what):
        with changed_table(copy, table) as records_:
            token, count = records_[1]["token"], records_[1][field]
            records_[1][field] += 1
        message = (
            f"'{token}' of '.*{table}.json' says {count + 1} {what} \\({field}\\), there are {count}\\. Unpack"
        )
        with pytest.raises(FileError, match=message):
            opened(copy, tmp_path)
        with changed_table(copy, table) as records_:  # other data in this format do not say it
            for record in records_:
                del record[field]
        assert len(opened(copy, tmp_path, scenes=["scene-0001"])) == 4

    def test_must_have_one_keyframe_of_a_sensor_in_a_sample(self, copy, tmp_path):
        with changed_table(copy, "sample_data") as records_:
            record = next(one for one in records_ if "LIDAR_TOP" in one["filename"] and not one["is_key_frame"])
            record["is_key_frame"] = True
        message = "sample_data.json' must not be a keyframe: its sensor has another one in its sample"
        with pytest.raises(FileError, match=message):
            opened(copy, tmp_path)

    def test_need_no_logs_but_for_what_they_say(self, copy, tmp_path):
        (copy / VERSION / "log.json").unlink()
        provider = opened(copy, tmp_path, cameras=[])
        assert len(provider) == 7
        with pytest.raises(FileError, match=r"v1.0-mini/log.json' has no log of scene-0001, scene-0002\. Unpack"):
            _ = provider.scene_logs

    @pytest.mark.parametrize("table", ["sample", "sample_data"])
    def test_must_go_forward_in_time(self, copy, tmp_path, table):
        with changed_table(copy, table) as records_:
            of_token = {record["token"]: record for record in records_}
            record = next(one for one in records_ if one["prev"] and one.get("is_key_frame", True))
            record["timestamp"] = of_token[record["prev"]]["timestamp"] - 10_000_000
        pattern = f"'{record['token']}' of '.*{table}.json' must be later than .*times go backwards.*, got "
        with pytest.raises(FileError, match=pattern):
            opened(copy, tmp_path)

    @pytest.mark.parametrize("table", ["sample", "sample_data"])
    def test_must_have_tokens_once(self, copy, tmp_path, table):
        with changed_table(copy, table) as records_:
            records_[1]["token"] = token = records_[0]["token"]
        with pytest.raises(FileError, match=f"each token once, but has '{token}' several times"):
            opened(copy, tmp_path)

    def test_must_have_images_of_the_cameras_that_are_asked_for(self, copy, root, tmp_path):
        with changed_table(copy, "sample_data") as records_:
            record = next(one for one in records_ if "samples/CAM_BACK/" in one["filename"])
            records_.remove(record)
        message = f"(?s)'{record['sample_token']}' has none of CAM_BACK.*Leave the camera .*or the scene"
        with pytest.raises(SettingError, match=message):
            opened(copy, tmp_path)
        assert len(opened(copy, tmp_path, cameras=["CAM_FRONT"], data_root=root).get_data(0)["cameras"]) == 1
        assert len(opened(copy, tmp_path, scenes=["scene-0002"])) > 0

    def test_must_have_a_lidar_record_in_each_keyframe(self, copy, tmp_path):
        with changed_table(copy, "sample_data") as records_:
            record = next(one for one in records_ if "samples/LIDAR_TOP/" in one["filename"])
            records_.remove(record)
        message = f"'{record['sample_token']}' of '.*sample.json' must have a keyframe of LIDAR_TOP"
        with pytest.raises(FileError, match=message):
            opened(copy, tmp_path)

    def test_must_have_image_sizes_for_2d_boxes(self, copy, tmp_path):
        with changed_table(copy, "sample_data") as records_:
            record = next(one for one in records_ if "samples/CAM_BACK/" in one["filename"])
            record["width"] = 0
        with pytest.raises(FileError, match=f"'{record['token']}' of .*size of its image as width and height"):
            opened(copy, tmp_path, boxes_2d=True)
        assert len(opened(copy, tmp_path)) > 0

    @pytest.mark.parametrize("sensor", ["CAM_FRONT", "LIDAR_TOP"])
    def test_name_files_that_are_missing(self, root, cache, tmp_path, sensor):
        wanted = {"data_root": tmp_path, "lidar": True, "cameras": ["CAM_FRONT"]}
        for name in ("CAM_FRONT", "LIDAR_TOP"):
            if name != sensor:
                shutil.copytree(root / "samples" / name, tmp_path / "samples" / name)
        what = "the lidar" if sensor == "LIDAR_TOP" else sensor
        folder = re.escape(f"{tmp_path}/samples/{sensor}/")
        with pytest.raises(
            FileError, match=rf"None of the 7 files of {what} that .* names is there, e.g. '{folder}"
        ):
            opened(root, cache, **wanted)
        shutil.copytree(root / "samples" / sensor, tmp_path / "samples" / sensor)
        provider = opened(root, cache, **wanted)
        (removed,) = (name for name in provider.describe_sample(0).split(", ") if f"samples/{sensor}" in name)
        (tmp_path / removed.removeprefix("files ")).unlink()
        message = rf"1 of 14 files that .* names are not there, e.g. '{folder}.*`scenes=\['scene-0002'\]`"
        with pytest.warns(UserWarning, match=message):
            opened(root, cache, **wanted)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert len(opened(root, cache, **wanted, scenes=["scene-0002"])) == 3
        with pytest.raises(FileError, match=folder):
            provider.get_data(0)
        with (
            DataLoader(provider, 1, num_workers=0, output_type="numpy") as loader,
            pytest.raises(FileError) as caught,
        ):
            next(iter(loader))
        assert f"{tmp_path}/samples/{sensor}/" in str(caught.value)
        assert "Traceback" not in str(caught.value)  # no code of the user led to it
