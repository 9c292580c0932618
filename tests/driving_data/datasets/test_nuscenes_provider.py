"""The provider of nuScenes: scenes and splits, classes, sweeps, CAN messages, and what is wrong with tables."""

import json
import pickle
import shutil

import numpy as np
import pytest
from driving_support.nuscenes_data import VERSION, changed_table, write_nuscenes
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework import DataLoader
from accvlab.dali_pipeline_framework.errors import FileError
from accvlab.dali_pipeline_framework.testing import check_provider
from accvlab.driving_data.datasets import NuScenesProvider
from accvlab.driving_data.datasets.nuscenes import tables
from accvlab.driving_data.datasets.nuscenes.splits import DETECTION_CLASSES


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
    def test_are_those_of_the_tables(self, root, tmp_path, monkeypatch):
        provider = opened(root, tmp_path)
        assert provider.scene_names == ("scene-0001", "scene-0002")
        assert provider.sequence_lengths == tuple(scene["nbr_samples"] for scene in records(root, "scene"))
        assert provider.scene_logs["scene-0001"] == {
            "logfile": "made-scene-0001",
            "vehicle": "made",
            "date_captured": "2020-01-01",
            "location": "made-road",
        }
        assert "data set: nuScenes" in provider.describe().splitlines()
        monkeypatch.setattr(tables, "_pieces", None)  # nothing is read again
        assert opened(root, tmp_path, scenes=["scene-0002"], classes="detection").sequence_lengths == (3,)

    def test_are_those_of_a_split(self, copy, tmp_path, caplog):
        renamed_scenes(copy, ["scene-0103", "scene-0061"])
        assert opened(copy, tmp_path, split="mini_train").scene_names == ("scene-0061",)
        assert "1 of the 8 scenes of the split 'mini_train' are in these tables." in caplog.text
        assert opened(copy, tmp_path, split="mini_val").scene_names == ("scene-0103",)
        for content in ('["scene-0061"]', "scene-0061\n"):
            (tmp_path / "mine.txt").write_text(content)
            assert opened(copy, tmp_path, split=tmp_path / "mine.txt").scene_names == ("scene-0061",)

    @pytest.mark.parametrize(
        ("settings", "words"),
        [
            ({"split": "trian"}, "`split` must be one of ...got 'trian'...Did you mean 'train'"),
            ({"split": "mini_val"}, "none of its 2 scenes is in these tables...scenes of train, train_detect"),
            ({"split": "train", "scenes": ["scene-0001"]}, "give one of them"),
            ({"classes": ["vehicle.cars"]}, "no category 'vehicle.cars'...Did you mean 'vehicle.car'"),
            ({"classes": ["pedestrain"]}, "Did you mean 'pedestrian'...Classes of detection: car, ...vehicle.car"),
            ({"classes": ["car", "vehicle.car"]}, "gives the category 'vehicle.car' to two classes, 'car' and "),
            ({"classes": "detections"}, "`classes` must be one of 'detection', got 'detections'"),
            ({"frames": "LIDAR"}, "`frames` must be 'keyframes' or ...got 'LIDAR'"),
            ({"can_bus": True}, "can_bus: the data set has none"),
        ],
    )
    def test_and_settings_that_are_not_there_are_named(self, root, cache, settings, words):
        assert_refused(lambda: opened(root, cache, **settings), words)


class TestSamples:
    def test_keep_the_rules_of_providers(self, root, cache):
        provider = opened(root, cache, scenes=["scene-0001"], cameras=["CAM_BACK"], boxes_2d=True, lidar=True)
        check_provider(provider, start_method="fork")
        assert len(pickle.dumps(provider)) < 1500

    def test_have_classes_of_detection(self, root, cache):
        raw, detection = opened(root, cache), opened(root, cache, classes="detection")
        assert detection.class_names == tuple(DETECTION_CLASSES)
        of = {name: number for number, names in enumerate(DETECTION_CLASSES.values()) for name in names}
        for number in range(len(raw)):
            expected = [of[raw.class_names[category]] for category in raw.get_data(number)["boxes"]["categories"]]
            assert detection.get_data(number)["boxes"]["categories"].tolist() == expected
        some = opened(root, cache, classes=["pedestrian", "bus", "car"])
        assert some.class_names == ("pedestrian", "bus", "car")
        assert set(some.get_data(0)["boxes"]["categories"].tolist()) <= {0, 2}
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
        words = f"no category for the class of detection 'bus'...{names[0]}"
        assert_refused(lambda: opened(copy, tmp_path, classes=["car", "bus"]), words)
        with changed_table(copy, "category") as categories:
            for number, record in enumerate(categories):
                record["name"] = f"thing-{number}"
        words = "no category for the class of detection 'car'...thing-0, thing-1"
        assert_refused(lambda: opened(copy, tmp_path, classes="detection"), words)

    def test_need_no_tables_of_boxes_without_them(self, copy, tmp_path):
        sensor = next(one for one in records(copy, "sensor") if one["channel"] == "CAM_BACK")
        with changed_table(copy, "calibrated_sensor") as calibrations:
            for record in calibrations:
                if record["sensor_token"] == sensor["token"]:
                    record["camera_intrinsic"] = []
        (copy / VERSION / "sample_annotation.json").write_text("[")
        for name in ("category", "instance", "visibility", "attribute", "log"):
            (copy / VERSION / f"{name}.json").unlink()
        wanted = {"boxes": False, "cameras": ["CAM_FRONT"], "lidar": True}
        provider = opened(copy, tmp_path, **wanted)
        assert "boxes" not in provider.get_data(0).contained_top_level_field_names
        words = "v1.0-mini/log.json' has no log of scene-0001, scene-0002. Unpack"
        assert_refused(lambda: provider.scene_logs, words, FileError)
        for name, value, words, error in (
            ("boxes", True, "lacks attribute.json, category.json", FileNotFoundError),
            ("cameras", None, "of CAM_BACK, must have 3 x 3 finite numbers", FileError),
        ):
            given = {**wanted, name: value}
            assert_refused(lambda given=given: opened(copy, tmp_path, **given), words, error)

    def test_have_more_sweeps_where_more_are_asked_for(self, root, tmp_path):
        provider = opened(root, tmp_path, frames="LIDAR_TOP", lidar=True, num_sweeps=12, scenes=["scene-0001"])
        assert provider.point_columns == ("x", "y", "z", "intensity", "ring")
        last = provider.get_data(len(provider) - 1)
        np.testing.assert_array_equal(last["lidar"]["reference_from_lidar"], np.eye(4))
        times = [sweep["timestamp"] for sweep in last["sweeps"].values() if len(sweep["points"])]
        assert len(times) == len(provider) - 1
        assert (np.diff([last["timestamp"], *times]) < 0).all()

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

    @pytest.mark.parametrize(("factor", "is_known"), [(2, True), (4, False)])  # 1 s between samples, or 2 s
    def test_have_no_velocities_across_more_than_a_second_and_a_half(self, copy, root, tmp_path, factor, is_known):
        with changed_table(copy, "sample") as samples:
            for each in samples:
                each["timestamp"] += (factor - 1) * (each["timestamp"] - samples[0]["timestamp"])
        provider = opened(copy, tmp_path, data_root=root, scenes=["scene-0001"])
        velocities = [provider.get_data(number)["boxes"]["velocities"] for number in range(len(provider))]
        assert np.isnan(np.concatenate(velocities)).all() != is_known

    def test_have_no_boxes_without_annotations(self, copy, root, tmp_path):
        for name in ("sample_annotation", "instance"):
            without_table(copy, name, lambda record: False)
        provider = opened(copy, tmp_path, data_root=root, boxes_2d=True, num_future_frames=2, classes="detection")
        sample = provider.get_data(0)
        assert sample["boxes"]["centers"].shape == (0, 3)
        assert sample["cameras"][0]["boxes_2d"]["boxes"].shape == (0, 4)
        assert len(opened(copy, tmp_path, frames="LIDAR_TOP", data_root=root)) > len(provider)

    def test_have_can_messages(self, root, tmp_path):
        """That they are those of the converters is tested with reference data."""
        settings = {"can_bus_root": tmp_path, "scenes": ["scene-0001"]}
        first = min(one["timestamp"] for one in records(root, "sample"))
        message = {"pos": [1, 2, 3], "orientation": [1, 0, 0, 0], "accel": [4, 5, 6], "rotation_rate": [7, 8, 9]}
        messages = [{**message, "vel": [n, 0, 0], "utime": first - 10_000 + n * 20_000} for n in range(100)]
        (tmp_path / "scene-0001_pose.json").write_text(json.dumps(messages))
        found = opened(root, tmp_path, can_bus=True, **settings).get_data(0)["ego"]["can_bus"]
        expected = [1, 2, 3, 1, 0, 0, 0, 4, 5, 6, 7, 8, 9, 1, 0, 0, 0, 0]  # behind it: the velocity of message 1
        np.testing.assert_array_equal(found, expected)
        (tmp_path / "scene-0001_pose.json").write_text("[{}]")
        words = "scene-0001_pose.json...a message lacks 'utime'"
        assert_refused(lambda: opened(root, tmp_path, can_bus=True, **settings), words, FileError)
        assert len(opened(root, tmp_path, **settings)) == 4  # not requested


class TestTables:
    def test_are_read_in_pieces_of_any_size(self, root, tmp_path, monkeypatch):
        path = tmp_path / "sample_data.json"
        expected = records(root, "sample_data")
        expected[0]["filename"] = 'odd "},{ name.jpg'
        for size in (1, 700, 1 << 20):
            monkeypatch.setattr(tables, "_PIECE", size)
            for indent in (None, 0, 4):
                path.write_text("\n " * (size > 1) + json.dumps(expected[:20], indent=indent) + "\n")
                assert tables.read_records(path, "token") == expected[:20]

    @pytest.mark.parametrize(
        ("folder", "version", "words"),
        [
            ("", "v1.0-trainval", "no folder 'v1.0-trainval'...There are: v1.0-mini"),
            (VERSION, VERSION, "`root` is their parent, `version` is 'v1.0-mini'"),
            ("nothing", VERSION, "must be the folder of a nuScenes data set"),
        ],
    )
    def test_need_the_folder_of_a_version(self, root, tmp_path, folder, version, words):
        assert_refused(lambda: opened(root / folder, tmp_path, version=version), words, FileNotFoundError)

    @pytest.mark.parametrize(
        ("damage", "words"),
        [
            (lambda text: text[: len(text) // 2], "is damaged or cut short, line "),
            (lambda text: text.replace(":", ";", 1), "line 3: Expecting ':'"),
            (lambda text: "", "a list of records is expected"),
            (lambda text: '{"a": 1}', "a list of records is expected"),
            (lambda text: "[1, 2]", "a list of objects is expected"),
            (lambda text: text.rstrip()[:-1] + ", 7]", "a list of objects is expected"),
            (lambda text: text.replace('"translation"', '"place"', 1), "field 'translation', got"),
        ],
    )
    def test_must_be_whole(self, copy, tmp_path, damage, words):
        path = copy / VERSION / "ego_pose.json"
        path.write_text(damage(path.read_text()))
        assert_refused(lambda: opened(copy, tmp_path), f"ego_pose.json...{words}", FileError)

    @pytest.mark.parametrize(
        ("table", "field", "other"),
        [
            ("sample", "scene_token", "scene"),
            ("sample_data", "sample_token", "sample"),
            ("sample_data", "ego_pose_token", "ego_pose"),
            ("sample_data", "calibrated_sensor_token", "calibrated_sensor"),
            ("calibrated_sensor", "sensor_token", "sensor"),
            ("sample_annotation", "instance_token", "instance"),
            ("sample_annotation", "visibility_token", "visibility"),
            ("sample_annotation", "prev", "sample_annotation"),
            ("instance", "category_token", "category"),
            ("scene", "last_sample_token", "sample"),
            ("scene", "first_sample_token", "sample"),
        ],
    )
    def test_must_not_name_what_is_not_there(self, copy, tmp_path, table, field, other):
        with changed_table(copy, table) as records_:
            records_[1][field] = "gone"
        words = f"The record '{records_[1]['token']}' of '...{table}.json' has the {field} 'gone', ...{other}.json"
        assert_refused(lambda: opened(copy, tmp_path), words, FileError)

    @pytest.mark.parametrize(
        ("table", "change", "words"),
        [
            ("calibrated_sensor", {"camera_intrinsic": [[1, 0], [0, 1]]}, "3 x 3 finite...camera_intrinsic"),
            ("calibrated_sensor", {"camera_intrinsic": [[1, 0, 0]] * 3}, "that can be inverted"),
            ("calibrated_sensor", {"rotation": [0, 0, 0, 0]}, "quaternion that is not 0 as rotation, got [0.0"),
            ("calibrated_sensor", {"rotation": [1, 0, 0]}, "must have 4 numbers, w first as rotation"),
            ("calibrated_sensor", {"translation": [0, float("inf"), 0]}, "finite translation"),
            ("sample_annotation", {"translation": None}, "must have 3 numbers as translation, got None"),
            ("sample_annotation", {"size": [1, -1, 1]}, "size of numbers of at least 0, got"),
            ("sample_data", {"is_key_frame": "False"}, "true or false as is_key_frame, got 'False'"),
            ("sample_data", {"timestamp": "noon"}, "a whole number as timestamp, got 'noon'"),
            ("sample_data", {"calibrated_sensor_token": ["a"]}, "text as calibrated_sensor_token, got ['a']"),
            ("sample_data", {"width": 0}, "size of its image as width and height"),
        ],
    )
    def test_must_have_values_that_can_be_used(self, copy, tmp_path, table, change, words):
        with changed_table(copy, table) as records_:
            records_[0].update(change)
        words = f"The record '{records_[0]['token']}' of '...{table}.json'...{words}"
        assert_refused(lambda: opened(copy, tmp_path, boxes_2d=True), words, FileError)
        if "width" in change:
            assert len(opened(copy, tmp_path)) == 7

    @pytest.mark.parametrize("table", ["sample", "sample_data"])
    def test_must_go_forward_in_time_and_have_tokens_once(self, copy, tmp_path, table):
        with changed_table(copy, table) as records_:
            of_token = {record["token"]: record for record in records_}
            record = next(one for one in records_ if one["prev"] and one.get("is_key_frame", True))
            record["timestamp"] = of_token[record["prev"]]["timestamp"] - 10_000_000
        words = f"'{record['token']}' of '...{table}.json' must be later than ...times go backwards..., got "
        assert_refused(lambda: opened(copy, tmp_path), words, FileError)
        with changed_table(copy, table) as records_:
            records_[1]["token"] = token = records_[0]["token"]
        assert_refused(lambda: opened(copy, tmp_path), f"each token once, but has '{token}' several", FileError)

    @pytest.mark.parametrize(
        ("table", "field", "what"),
        [("scene", "nbr_samples", "samples"), ("instance", "nbr_annotations", "annotations")],
    )
    def test_must_have_as_much_as_they_say(self, copy, tmp_path, table, field, what):
        with changed_table(copy, table) as records_:
            token, count = records_[1]["token"], records_[1][field]
            records_[1][field] += 1
        words = f"'{token}' of '...{table}.json' says {count + 1} {what} ({field}), there are {count}. Unpack"
        assert_refused(lambda: opened(copy, tmp_path), words, FileError)
        with changed_table(copy, table) as records_:  # other data in this format do not say it
            for record in records_:
                del record[field]
        assert len(opened(copy, tmp_path, scenes=["scene-0001"])) == 4

    def test_must_have_the_records_of_a_keyframe(self, copy, root, tmp_path):
        def first(sensor, is_key_frame=True):
            return next(one for one in data if sensor in one["filename"] and one["is_key_frame"] == is_key_frame)

        whole = records(copy, "sample_data")
        with changed_table(copy, "sample_data") as data:
            data.remove(image := first("CAM_BACK"))
        words = f"'{image['sample_token']}' has none of CAM_BACK...Leave the camera ...or the scene"
        assert_refused(lambda: opened(copy, tmp_path), words)
        assert len(opened(copy, tmp_path, cameras=["CAM_FRONT"], data_root=root).get_data(0)["cameras"]) == 1
        assert opened(copy, tmp_path, scenes=["scene-0002"]).sequence_lengths == (3,)
        with changed_table(copy, "sample_data") as data:
            data.remove(points := first("LIDAR_TOP"))
        words = f"'{points['sample_token']}' of '...sample.json' must have a keyframe of LIDAR_TOP"
        assert_refused(lambda: opened(copy, tmp_path), words, FileError)
        with changed_table(copy, "sample_data") as data:
            data[:] = whole
            first("LIDAR_TOP", is_key_frame=False)["is_key_frame"] = True
        words = "sample_data.json' must not be a keyframe: its sensor has another one in its sample"
        assert_refused(lambda: opened(copy, tmp_path), words, FileError)

    @pytest.mark.parametrize("sensor", ["CAM_FRONT", "LIDAR_TOP"])
    def test_name_files_that_are_missing(self, root, cache, tmp_path, sensor):
        wanted = {"data_root": tmp_path, "lidar": True, "cameras": ["CAM_FRONT"]}
        folders = [f"samples/{name}" for name in ("CAM_FRONT", "LIDAR_TOP")]
        for name in folders:
            shutil.copytree(root / name, tmp_path / name)
        folder, what = tmp_path / f"samples/{sensor}", "the lidar" if sensor == "LIDAR_TOP" else sensor
        provider = opened(root, cache, **wanted)
        (removed,) = (name for name in provider.describe_sample(0).split(", ") if f"samples/{sensor}" in name)
        (tmp_path / removed.removeprefix("files ")).unlink()
        words = rf"1 of 14 files that .* names are not there, e.g. '{folder}/.*`scenes=\['scene-0002'\]`"
        with pytest.warns(UserWarning, match=words):
            opened(root, cache, **wanted)
        assert len(opened(root, cache, **wanted, scenes=["scene-0002"])) == 3
        assert_refused(lambda: provider.get_data(0), f"{folder}/", FileError)
        with DataLoader(provider, 1, num_workers=0, output_type="numpy") as loader:
            error = assert_refused(lambda: next(iter(loader)), f"{folder}/", FileError)
        assert "Traceback" not in str(error)  # no code of the user led to it
        shutil.rmtree(folder)
        words = f"None of the 7 files of {what} that ...names is there, e.g. '{folder}/"
        assert_refused(lambda: opened(root, cache, **wanted), words, FileError)
