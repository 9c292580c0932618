"""The provider of driving data: an index and files in, samples of one format out."""

import pickle

import attrs
import numpy as np
import pytest
from driving_support.driving_data import SCENES, files_of, with_column, write_driving_data
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework import DataLoader, ImageDecoder
from accvlab.dali_pipeline_framework.errors import FileError, UnknownArgumentError
from accvlab.dali_pipeline_framework.providers import Storage
from accvlab.driving_data.datasets import DrivingFields, DrivingIndex, DrivingProvider, NuScenesProvider
from accvlab.driving_data.datasets.driving import poses
from accvlab.driving_data.datasets.driving.driving_index import first_column, names_column
from accvlab.driving_data.testing import made_drive

ALL = {
    "lidar": True,
    "num_sweeps": 2,
    "boxes_2d": True,
    "num_future_frames": 2,
    "num_ego_future_frames": 2,
    "can_bus": True,
    "ego_status": True,
    "map_lines": True,
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = tmp_path_factory.mktemp("driving")
    index = write_driving_data(root)
    index.save(root / "index")
    return root, index


@pytest.fixture
def opened(data):
    return lambda **settings: DrivingProvider(data[0] / "index", data[0], **settings)


def text_of(value):
    return value if isinstance(value, str) else bytes(value).decode()


class TestSingleFields:
    def test_are_loaded_without_the_files_of_others(self, opened, monkeypatch):
        provider = opened(**ALL)
        expected = [provider.get_data(frame) for frame in range(5)]
        read = []
        original = Storage.read_bytes
        monkeypatch.setattr(Storage, "read_bytes", lambda self, name: read.append(name) or original(self, name))
        pose, lens = ("ego", "world_from_ego"), ("cameras", 1, "intrinsics")
        columns = provider.load_fields({pose: [4, 0, 4], lens: [2], ("token",): [1, 1]})
        assert [frame.tolist() for frame in columns[pose]] == [
            expected[frame]["ego"]["world_from_ego"].tolist() for frame in (4, 0, 4)
        ]
        assert columns[lens][0].tolist() == expected[2]["cameras"][1]["intrinsics"].tolist()
        assert [text_of(token) for token in columns["token",]] == ["frame-1", "frame-1"]
        assert read == []
        image = ("cameras", 1, "image")
        columns = provider.load_fields({image: [3, 0, 3], ("boxes", "sizes"): [0]})
        assert [bytes(file) for file in columns[image]] == [
            bytes(expected[frame]["cameras"][1]["image"]) for frame in (3, 0, 3)
        ]
        assert read == ["images/3_LEFT.ppm", "images/0_LEFT.ppm"]
        assert provider.load_fields({("weather",): [0]}) is None

    def test_have_the_times_of_their_sensor(self, data):
        root, index = data
        provider = DrivingProvider(root / "index", root, cameras=["LEFT"], lidar=True, scenes=["scene-b"])
        assert provider.frame_times_s().tolist() == provider.timestamps.tolist()
        times = provider.frame_times_s(("cameras", 0, "image")).tolist()
        assert times == index.cameras.time[3:, 1].tolist()
        assert (
            provider.frame_times_s(("lidar", "points")).tolist()
            == index.lidar.time[index.lidar.of_frame[3:]].tolist()
        )
        assert provider.frame_times_s(("boxes", "centers")) is None


class TestSamples:
    def test_hold_what_the_index_says(self, data):
        root, index = data
        sample = DrivingProvider(root / "index", root, **ALL).get_data(1)
        assert text_of(sample["token"]) == "frame-1"
        assert sample["frame"] == 1
        assert not sample["is_first"]
        assert sample["timestamp"] == 1.5e9 + 0.5
        world_from_lidar = poses.as_matrix(
            poses.joined(index.frames.world_from_ego[1], index.frames.ego_from_base[1])
        )
        np.testing.assert_allclose(sample["ego"]["world_from_reference"], world_from_lidar, rtol=1e-12)
        left = sample["cameras"][1]
        assert bytes(left["image"]) == (root / "images/1_LEFT.ppm").read_bytes()
        np.testing.assert_array_equal(left["intrinsics"], index.cameras.intrinsics[1, 1])
        np.testing.assert_array_equal(
            left["camera_from_reference"], poses.as_matrix(index.cameras.camera_from_base[1, 1])
        )
        np.testing.assert_array_equal(sample["lidar"]["reference_from_lidar"], np.eye(4))
        np.testing.assert_array_equal(sample["boxes"]["centers"], index.boxes.center[2:5].astype(np.float32))
        np.testing.assert_array_equal(np.isnan(sample["boxes"]["velocities"][:, 0]), [False, False, True])
        np.testing.assert_array_equal(sample["boxes"]["instances"], [8, 7, 9])

    def test_have_the_future_in_the_reference_frame(self, data):
        root, index = data
        sample = DrivingProvider(root / "index", root, **ALL).get_data(0)
        boxes = sample["boxes"]  # instances 7 and 8: rows 3 and 2 of the next frame; none in the frame after it
        np.testing.assert_array_equal(boxes["is_future_known"], [[True, False], [True, False]])
        world_from_here, world_from_next = (
            poses.joined(index.frames.world_from_ego[frame], index.frames.ego_from_base[frame]) for frame in (0, 1)
        )
        expected = poses.moved(
            poses.inverse(world_from_here), poses.moved(world_from_next, index.boxes.center[[3, 2]])
        )
        np.testing.assert_allclose(boxes["future_centers"][:, 0], expected, rtol=1e-5)
        np.testing.assert_array_equal(boxes["future_centers"][:, 1], 0)
        np.testing.assert_allclose(
            sample["ego"]["future_positions"][0],
            poses.moved(poses.inverse(world_from_here), world_from_next[:, 3]),
            rtol=1e-5,
        )
        np.testing.assert_array_equal(sample["ego"]["is_future_known"], [True, True])

    def test_end_with_the_scene(self, opened):
        sample = opened(**ALL).get_data(2)
        np.testing.assert_array_equal(sample["ego"]["is_future_known"], [False, False])
        np.testing.assert_array_equal(sample["ego"]["future_positions"], 0)

    def test_in_coordinates_of_the_vehicle_are_the_same_things(self, data):
        root, index = data
        in_lidar, in_ego = (
            DrivingProvider(index, root, reference=reference, **ALL).get_data(1) for reference in ("lidar", "ego")
        )
        ego_from_lidar = in_lidar["ego"]["ego_from_reference"]
        np.testing.assert_allclose(in_ego["ego"]["ego_from_reference"], np.eye(4), atol=1e-12)
        np.testing.assert_allclose(
            in_ego["boxes"]["centers"],
            poses.moved(ego_from_lidar[:3], in_lidar["boxes"]["centers"]),
            rtol=1e-4,
            atol=1e-4,
        )
        for one, other in zip(in_lidar["cameras"].values(), in_ego["cameras"].values(), strict=True):
            np.testing.assert_allclose(
                one["camera_from_reference"], other["camera_from_reference"] @ ego_from_lidar, atol=1e-9
            )
        points = in_lidar["sweeps"][0]["points"][:, :3]
        np.testing.assert_allclose(
            poses.moved(ego_from_lidar[:3] @ in_lidar["sweeps"][0]["reference_from_lidar"], points),
            poses.moved(in_ego["sweeps"][0]["reference_from_lidar"][:3], points),
            rtol=1e-6,
            atol=1e-6,
        )

    def test_have_empty_sweeps_before_the_scene(self, opened):
        sample = opened(**ALL).get_data(1)
        assert [len(sweep["points"]) for sweep in sample["sweeps"].values()] == [4, 0]

    @pytest.mark.parametrize(
        ("classes", "names", "categories"),
        [
            (["barrier", "car"], ("barrier", "car"), [1, 0]),
            ({"car": "thing", "barrier": "thing"}, ("thing",), [0, 0]),
        ],
    )
    def test_have_classes_in_the_order_asked_for(self, opened, classes, names, categories):
        provider = opened(classes=classes, boxes_2d=True)
        sample, camera = provider.get_data(1), provider.get_data(1)["cameras"][0]["boxes_2d"]
        assert (provider.class_names, sample["boxes"]["categories"].tolist()) == (names, categories)
        assert (camera["categories"].tolist(), camera["box_rows"].tolist()) == (categories[:1], [0])

    @pytest.mark.parametrize(
        ("settings", "instances"),
        [({"min_lidar_points": 1}, [8, 7]), ({"min_points": 2}, [8, 7]), ({"min_points": 3}, [7])],
    )
    def test_leave_out_boxes_with_few_points(self, opened, settings, instances):
        assert opened(**settings).get_data(1)["boxes"]["instances"].tolist() == instances

    def test_have_map_lines(self, data):
        root, index = data
        lines = DrivingProvider(root / "index", root, map_lines=True).get_data(2)["map_lines"]
        np.testing.assert_array_equal(lines["num_points"], [2, 4])
        np.testing.assert_array_equal(lines["categories"], [1, 1])
        np.testing.assert_array_equal(lines["points"], index.lines.point[3:9].astype(np.float32))

    def test_reach_a_loader(self, data):
        root, _ = data
        provider = DrivingProvider(root / "index", root)
        steps = [ImageDecoder("image", use_device_mixed=True)]
        with DataLoader(
            provider, 1, steps=steps, num_workers=1, start_method="fork", output_type="numpy", stack_arrays=True
        ) as loader:
            values = [batch["cameras"]["image"][0, :, 0, 0, 0].tolist() for batch in loader]
        assert values == [[10 * frame, 10 * frame + 1] for frame in range(5)]


def test_scenes_are_all_or_those_chosen(opened):
    assert (opened().scene_names, opened().sequence_lengths) == (tuple(SCENES), tuple(SCENES.values()))
    provider = opened(scenes=["scene-b"])
    first = provider.get_data(0)
    assert (len(provider), text_of(first["token"]), bool(first["is_first"])) == (2, "frame-3", True)
    assert provider.timestamps.tolist() == [1.5e9 + 1.5, 1.5e9 + 2]


def test_describe_tells_settings_and_origin(data):
    root, index = data
    origin = {"made by": "a test", "files": [f"{number}.json" for number in range(7)], "videos": [], "rate": None}
    provider = DrivingProvider(attrs.evolve(index, origin=origin), root)
    assert provider.describe().splitlines() == [
        "DrivingProvider(5 frames in 2 scene(s), 2 camera(s), reference: lidar)",
        "made by: a test",
        "files: 7: 0.json, 1.json, 2.json, 3.json, 4.json and 2 more",
        "videos: none",
        "rate: None",
    ]


class TestIndex:
    def test_comes_back_as_it_was(self, data):
        root, index = data
        found = DrivingIndex.open(root / "index")
        assert found.origin == index.origin
        for table in ("frames", "cameras", "lidar", "boxes", "boxes_2d", "lines"):
            for name in getattr(index, table).__attrs_attrs__:
                was, now = (getattr(getattr(one, table), name.name) for one in (index, found))
                np.testing.assert_array_equal(was, now)

    def test_is_pickled_as_its_folder(self, data):
        root, _ = data
        provider = DrivingProvider(root / "index", root)
        provider.get_data(0)
        content = pickle.dumps(provider)
        assert len(content) < 1000
        np.testing.assert_array_equal(
            pickle.loads(content).get_data(1)["boxes"]["centers"], provider.get_data(1)["boxes"]["centers"]
        )

    def test_must_be_there(self, tmp_path):
        with pytest.raises(FileError, match="is no index of driving data that can be used") as caught:
            DrivingProvider(tmp_path / "nothing", tmp_path)
        assert isinstance(caught.value, FileNotFoundError)


def with_number(table, number, **more):
    def changed(index):
        category = getattr(index, table).category.copy()
        category[1] = number
        return attrs.evolve(index, **{table: attrs.evolve(getattr(index, table), category=category)}, **more)

    return changed


def with_tables(**tables):
    return lambda index: attrs.evolve(index, **tables)


BOXES = "boxes.category: must be in [-1, 2], as `categories` has 3 names, got {} in row 1"
REFUSED_INDICES = {
    BOXES.format(3): with_number("boxes", 3),
    BOXES.format(-2): with_number("boxes", -2),
    "boxes_2d.category: must be in [-1, 2], as `categories` has 3 names, got 3": with_number("boxes_2d", 3),
    "boxes_2d.category: must be in [-1, 3], as `box2d_categories` has 4 names, got 4 in row 1": with_number(
        "boxes_2d", 4, box2d_categories=["car", "pedestrian", "barrier", "sign"]
    ),
    "lines.category: must be in [-1, 1], as `line_categories` has 2 names, got 2": with_number("lines", 2),
    "boxes.center: must have the shape (N, 3), got (7, 3)": with_column("boxes", "center", lambda was: was[:7]),
    "frames.time: must be an array of float64, got NoneType": with_column("frames", "time", None),
    "frames.time: must be an array of float64, got float": with_column("frames", "time", 3.0),
    "frames.time: must be an array of float64, got list": with_column("frames", "time", [1.0, 2.0]),
    "`frames` must be of the class FrameColumns, got None": with_tables(frames=None),
    "`frames` must be of the class FrameColumns, got {}": with_tables(frames={}),
    "`boxes` must be of the class BoxColumns, got [1]": with_tables(boxes=[1]),
    "`cameras` must be of the class CameraColumns, got 'CAM_FRONT'": with_tables(cameras="CAM_FRONT"),
}


@pytest.mark.parametrize("words", REFUSED_INDICES)
def test_columns_that_do_not_go_together(data, words):
    assert_refused(lambda: REFUSED_INDICES[words](data[1]), words)


REFUSED_FIELDS = {
    "write ['FRONT']": {"cameras": "FRONT"},
    "sweeps need `lidar=True`": {"num_sweeps": 2},
    "`num_future_frames` must be a whole number of at least 0": {"num_future_frames": -1},
    "`reference`": {"reference": "world"},
    "`boxes`": {"boxes": "yes"},
    "`cameras` must be a list of names, got {'FRONT'}": {"cameras": {"FRONT"}},
    "`cameras` must be a list of names, got <list_iterator": {"cameras": iter(["FRONT"])},
    "`classes` must be a list of names, or a mapping of them, got": {"classes": {"car", "barrier"}},
    "name a class once only, got several times: car": {"classes": ["car", "barrier", "car"]},
    "`classes` must be a text that is not empty, got None": {"classes": {"car": None}},
    "`classes` must be a text that is not empty, got ''": {"classes": {"car": ""}},
    "`classes` must be a text that is not empty, got 3": {"classes": [3]},
    "`image_times` must be a list of seconds, ascending, got (0, -1)": {"image_times": [0, -1]},
    "`ego_history` must be a list of seconds up to 0, ascending, got (-1, 0.5)": {"ego_history": [-1, 0.5]},
    "`ego_future` must be a list of seconds above 0, ascending, got (0, 1)": {"ego_future": [0, 1]},
}


@pytest.mark.parametrize("words", REFUSED_FIELDS)
def test_settings_of_fields(words):
    assert_refused(lambda: DrivingFields(**REFUSED_FIELDS[words]), words)


def of_category(number):
    return with_column("boxes", "category", lambda was: np.full_like(was, number))


UNNAMED = with_tables(boxes=None, boxes_2d=None)


def twice(index):
    names, first = names_column(["scene-a", "scene-\u00fc", "scene-a"]), first_column([2, 1, 2])
    return attrs.evolve(index, frames=attrs.evolve(index.frames, scene=names, first_of_scene=first))


NO_LIST = "must be a list of names, or None for all, got "
# What is said of an index: a change of it, settings.
REFUSED = {
    "classes: there is no category 'bariier'. Did you mean 'barrier'": (None, {"classes": ["bariier"]}),
    "no category 'bariier'": (None, {"classes": ["bariier"], "boxes": False, "boxes_2d": True}),
    "'scene-c'...Did you mean...\n...There are 2: ": (None, {"scenes": ["scene-c"]}),
    f"{NO_LIST}[]": (None, {"scenes": []}),
    f"{NO_LIST}{{'scene-a'}}": (None, {"scenes": {"scene-a"}}),
    f"{NO_LIST}<list_iterator": (None, {"scenes": iter(["scene-a"])}),
    "There is 'scene-\\xfc', the same letters in another Unicode form": (twice, {"scenes": ["scene-u\u0308"]}),
    "`scenes` names scene-a, of which the data set has several": (twice, {"scenes": ["scene-a", "scene-\u00fc"]}),
    "classes: the data set has no boxes. Leave `classes` out, or": (UNNAMED, {"classes": ["car"]}),
    "no box of the data set is one of them...: of no category": (of_category(-1), {"classes": ["car"]}),
    "camera 'FRONTAL'...lidar: the data set has none...map_lines: the...category 'cars'": (
        with_tables(lidar=None, lines=None),
        {"lidar": True, "map_lines": True, "cameras": ["FRONTAL"], "classes": ["cars"]},
    ),
}


@pytest.mark.parametrize("words", REFUSED)
def test_settings_of_a_data_set(data, words):
    (root, index), (change, settings) = data, REFUSED[words]
    assert_refused(lambda: DrivingProvider(change(index) if change else index, root, **settings), words)


def test_classes_may_stay_where_boxes_are_left_out(data):
    provider = DrivingProvider(UNNAMED(data[1]), data[0], classes=["car"], boxes=False)
    assert "boxes" not in provider.sample_data_structure


def test_unknown_settings(opened):
    with pytest.raises(UnknownArgumentError, match="Did you mean 'cameras'"):
        opened(camera=["FRONT"])


def test_files_that_are_cut_short_or_missing(tmp_path):
    index = write_driving_data(tmp_path)
    points = tmp_path / "points/0.bin"
    points.write_bytes(points.read_bytes()[:-4])
    with pytest.raises(FileError, match=r"points/0.bin.*must hold points of 5 float32.*has 76 bytes"):
        DrivingProvider(index, tmp_path, lidar=True).get_data(0)
    (tmp_path / "images/0_LEFT.ppm").unlink()
    provider = DrivingProvider(index, tmp_path)
    with pytest.raises(FileError, match=r"images/0_LEFT\.ppm"):
        provider.get_data(0)
    assert provider.describe_sample(0) == (
        "scene 'scene-a', frame 0, token 'frame-0', files images/0_FRONT.ppm, images/0_LEFT.ppm"
    )


def test_scenes_that_have_all_files_are_named(tmp_path):
    root, settings = made_drive(tmp_path / "drive", "nuscenes"), {"cameras": [], "lidar": True, "num_sweeps": 2}
    cache = tmp_path / "cache"
    (file,) = files_of(NuScenesProvider(root, "v1.0-mini", index_cache=cache, **settings), 7)
    (root / file).unlink()
    with pytest.warns(UserWarning, match=r"^1 of \d+ files .*`scenes=\['scene-0061'\]`"):
        NuScenesProvider(root, "v1.0-mini", index_cache=cache, **settings)
