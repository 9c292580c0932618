"""The provider of driving data: an index and files in, samples of one format out."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from driving_support.driving_data import SCENES, with_column, write_driving_data
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework import ConcatDataProvider
from accvlab.dali_pipeline_framework.errors import FileError, UnknownArgumentError
from accvlab.dali_pipeline_framework.providers import Storage
from accvlab.driving_data.datasets import DrivingFields, DrivingIndex, DrivingProvider, NuScenesProvider
from accvlab.driving_data.datasets.driving import poses
from accvlab.driving_data.datasets.driving.driving_index import first_column, names_column
from accvlab.driving_data.datasets.driving.index_checks import require_usable
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
        pose, lens, image = ("ego", "world_from_ego"), ("cameras", 1, "intrinsics"), ("cameras", 1, "image")
        columns = provider.load_fields({pose: [4, 0, 4], lens: [2], ("token",): [1, 1]})
        for frame, found in zip((4, 0, 4), columns[pose], strict=True):
            np.testing.assert_array_equal(found, expected[frame]["ego"]["world_from_ego"])
        assert columns[lens][0].tolist() == expected[2]["cameras"][1]["intrinsics"].tolist()
        assert [text_of(token) for token in columns["token",]] == ["frame-1", "frame-1"]
        assert read == []
        columns = provider.load_fields({image: [3, 0, 3], ("boxes", "sizes"): [0]})
        images = [bytes(expected[frame]["cameras"][1]["image"]) for frame in (3, 0, 3)]
        assert [bytes(file) for file in columns[image]] == images
        assert read == ["images/3_LEFT.ppm", "images/0_LEFT.ppm"]
        assert provider.load_fields({("weather",): [0]}) is None

    def test_have_the_times_of_their_sensor(self, data, opened):
        index = data[1]
        provider = opened(cameras=["LEFT"], lidar=True, scenes=["scene-b"])
        for path, expected in (
            ((), provider.timestamps),
            (("cameras", 0, "image"), index.cameras.time[3:, 1]),
            (("lidar", "points"), index.lidar.time[index.lidar.of_frame[3:]]),
        ):
            np.testing.assert_array_equal(provider.frame_times_s(path), expected)
        assert provider.frame_times_s(("boxes", "centers")) is None


class TestSamples:
    def test_hold_what_the_index_says(self, data, opened):
        root, index = data
        sample = opened(**ALL).get_data(1)
        assert text_of(sample["token"]) == "frame-1"
        assert (sample["frame"], bool(sample["is_first"]), sample["timestamp"]) == (1, False, 1.5e9 + 0.5)
        world_from_lidar = poses.joined(index.frames.world_from_ego[1], index.frames.ego_from_base[1])
        np.testing.assert_allclose(sample["ego"]["world_from_reference"][:3], world_from_lidar, rtol=1e-12)
        left = sample["cameras"][1]
        assert bytes(left["image"]) == (root / "images/1_LEFT.ppm").read_bytes()
        np.testing.assert_array_equal(left["intrinsics"], index.cameras.intrinsics[1, 1])
        np.testing.assert_array_equal(left["camera_from_reference"][:3], index.cameras.camera_from_base[1, 1])
        np.testing.assert_array_equal(sample["lidar"]["reference_from_lidar"], np.eye(4))
        assert [len(sweep["points"]) for sweep in sample["sweeps"].values()] == [4, 0]  # none before the scene
        np.testing.assert_array_equal(sample["boxes"]["centers"], index.boxes.center[2:5].astype(np.float32))
        np.testing.assert_array_equal(np.isnan(sample["boxes"]["velocities"][:, 0]), [False, False, True])
        np.testing.assert_array_equal(sample["boxes"]["instances"], [8, 7, 9])
        lines = opened(**ALL).get_data(2)["map_lines"]
        np.testing.assert_array_equal(lines["num_points"], [2, 4])
        np.testing.assert_array_equal(lines["categories"], [1, 1])
        np.testing.assert_array_equal(lines["points"], index.lines.point[3:9].astype(np.float32))

    def test_have_the_future_in_the_reference_frame(self, data, opened):
        index, provider = data[1], opened(**ALL)
        sample = provider.get_data(0)
        boxes = sample["boxes"]  # instances 7 and 8: rows 3 and 2 of the next frame; none in the frame after it
        np.testing.assert_array_equal(boxes["is_future_known"], [[True, False], [True, False]])
        world = poses.joined(index.frames.world_from_ego, index.frames.ego_from_base)
        here = poses.inverse(world[0])
        expected = poses.moved(here, poses.moved(world[1], index.boxes.center[[3, 2]]))
        np.testing.assert_allclose(boxes["future_centers"][:, 0], expected, rtol=1e-5)
        np.testing.assert_array_equal(boxes["future_centers"][:, 1], 0)
        places = [poses.moved(here, pose[:, 3]) for pose in world[1:3]]
        np.testing.assert_allclose(sample["ego"]["future_positions"], places, rtol=1e-5)
        np.testing.assert_array_equal(sample["ego"]["is_future_known"], [True, True])
        last = provider.get_data(2)["ego"]  # of the scene
        np.testing.assert_array_equal(last["is_future_known"], [False, False])
        np.testing.assert_array_equal(last["future_positions"], 0)

    def test_in_coordinates_of_the_vehicle_are_the_same_things(self, opened):
        in_lidar, in_ego = (opened(reference=reference, **ALL).get_data(1) for reference in ("lidar", "ego"))
        ego_from_lidar = in_lidar["ego"]["ego_from_reference"]
        np.testing.assert_allclose(in_ego["ego"]["ego_from_reference"], np.eye(4), atol=1e-12)
        centers = poses.moved(ego_from_lidar[:3], in_lidar["boxes"]["centers"])
        np.testing.assert_allclose(in_ego["boxes"]["centers"], centers, rtol=1e-4, atol=1e-4)
        for one, other in zip(in_lidar["cameras"].values(), in_ego["cameras"].values(), strict=True):
            found = other["camera_from_reference"] @ ego_from_lidar
            np.testing.assert_allclose(one["camera_from_reference"], found, atol=1e-9)
        moved = ego_from_lidar @ in_lidar["sweeps"][0]["reference_from_lidar"]
        np.testing.assert_allclose(in_ego["sweeps"][0]["reference_from_lidar"], moved, atol=1e-6)

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


def test_an_index_comes_back_as_it_was(data, opened, tmp_path):
    root, index = data
    found = DrivingIndex.open(root / "index")
    assert found.origin == index.origin
    for table in ("frames", "cameras", "lidar", "boxes", "boxes_2d", "lines"):
        for name in getattr(index, table).__attrs_attrs__:
            was, now = (getattr(getattr(one, table), name.name) for one in (index, found))
            np.testing.assert_array_equal(was, now)
    for provider in (opened(), DrivingProvider(found, root)):
        content = pickle.dumps(provider)  # as the folder of the index
        assert len(content) < 1000
        assert pickle.loads(content).get_data(1)["frame"] == 1
    changed = DrivingProvider(attrs.evolve(found, origin={"made by": "a change"}), root)
    assert pickle.loads(pickle.dumps(changed)).origin == {"made by": "a change"}
    words = "is no index of driving data that can be used"
    assert_refused(lambda: DrivingProvider(tmp_path / "nothing", tmp_path), words, FileNotFoundError)


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
    "boxes_2d.category: must be in [-1, 2], as `categories` has 3 names, got 3": with_number("boxes_2d", 3),
    "boxes_2d.category: must be in [-1, 3], as `box2d_categories` has 4 names, got 4 in row 1": with_number(
        "boxes_2d", 4, box2d_categories=["car", "pedestrian", "barrier", "sign"]
    ),
    "lines.category: must be in [-1, 1], as `line_categories` has 2 names, got 2": with_number("lines", 2),
    "boxes.center: must have the shape (N, 3), got (7, 3)": with_column("boxes", "center", lambda was: was[:7]),
    "frames.time: must be an array of float64, got list": with_column("frames", "time", [1.0, 2.0]),
    "`frames` must be of the class FrameColumns, got None": with_tables(frames=None),
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
    "name a class once only, got several times: car": {"classes": ["car", "barrier", "car"]},
    "`classes` must be a text that is not empty, got None": {"classes": {"car": None}},
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


def test_unknown_settings(opened):
    assert_refused(lambda: opened(camera=["FRONT"]), "Did you mean 'cameras'", UnknownArgumentError)


def test_files_that_are_cut_short_or_missing(tmp_path):
    index = write_driving_data(tmp_path)
    points = tmp_path / "points/0.bin"
    points.write_bytes(points.read_bytes()[:-4])
    with_points = DrivingProvider(index, tmp_path, lidar=True)
    words = "points/0.bin...must hold points of 5 float32...has 76 bytes"
    assert_refused(lambda: with_points.get_data(0), words, FileError)
    (tmp_path / "images/0_LEFT.ppm").unlink()
    provider = DrivingProvider(index, tmp_path)
    assert_refused(lambda: provider.get_data(0), "images/0_LEFT.ppm", FileError)
    assert provider.describe_sample(0) == (
        "scene 'scene-a', frame 0, token 'frame-0', files images/0_FRONT.ppm, images/0_LEFT.ppm"
    )


def test_they_have_one_format_and_one_numbering(tmp_path: Path) -> None:
    """nuScenes, whose base is the lidar, and data without a lidar, whose base is the vehicle."""
    classes = {"car": "vehicle", "pedestrian": "person"}
    settings: dict[str, Any] = {"classes": classes, "reference": "ego", "num_ego_future_frames": 2}
    made_drive(tmp_path / "nuscenes", "nuscenes")
    index = write_driving_data(tmp_path / "other", base="ego")
    one = NuScenesProvider(tmp_path / "nuscenes", "v1.0-mini", **settings)
    other = DrivingProvider(index, tmp_path / "other", **settings)
    assert one.sample_data_structure.format == other.sample_data_structure.format
    assert one.class_names == other.class_names == ("vehicle", "person")
    both = ConcatDataProvider([one, other])
    for number in (0, len(one)):
        sample = both.get_data(number)
        np.testing.assert_allclose(sample["ego"]["ego_from_reference"], np.eye(4), atol=1e-9)
        assert set(sample["boxes"]["categories"]) <= {0, 1}


def put(table: str, column: str, place: Any, value: Any) -> Callable[[DrivingIndex], DrivingIndex]:
    def changed(values: Any) -> Any:
        values[place] = value
        return values

    return with_column(table, column, changed)


def scaled(table: str, column: str, factor: Any) -> Callable[[DrivingIndex], DrivingIndex]:
    return with_column(table, column, lambda values: values * factor)


A, B = "The frame 'frame-1' in the scene 'scene-a': ", "The frame 'frame-4' in the scene 'scene-b': "
RIGID = "must be a rotation and a finite translation, got "
INTRINSICS = (
    "intrinsics of 'LEFT' must be a matrix of finite numbers with focal lengths above 0, whose last row is"
)
# What is said, the part that it is of, and what is wrong.
CASES: dict[str, tuple[str, Callable[[DrivingIndex], DrivingIndex]]] = {
    f"{A}the pose of the vehicle {RIGID}": ("", put("frames", "world_from_ego", (1, 0, 0), 5.0)),
    f"{A}the pose of the vehicle {RIGID}[[nan": ("", put("frames", "world_from_ego", 1, np.nan)),
    f"{A}the pose of the lidar {RIGID}": ("", put("frames", "ego_from_base", (1, 2, 3), np.inf)),
    "'frame-0'...the pose of the lidar...(and 4 more frames like it)": ("", scaled("frames", "ego_from_base", -1)),
    f"{A}can_bus must be finite numbers, got [": ("can_bus", put("frames", "can_bus", (1, 17), np.nan)),
    f"{A}ego_status must be finite": ("ego_status", put("frames", "ego_status", (1, 0), np.inf)),
    f"{A}camera_from_base of 'LEFT' {RIGID}": ("cameras/LEFT", put("cameras", "camera_from_base", (1, 1), 0.0)),
    f"{A}ego_from_camera of 'LEFT' {RIGID}": ("cameras/LEFT", put("cameras", "ego_from_camera", (1, 1), np.nan)),
    f"{A}{INTRINSICS} 0, 0, 1, got [[0.0, ": ("cameras/LEFT", put("cameras", "intrinsics", (1, 1, 0, 0), 0.0)),
    f"{A}{INTRINSICS} 0, 0, 1": ("cameras/LEFT", put("cameras", "intrinsics", (1, 1, 2, 0), 0.5)),
    f"{A}the pose of its lidar record {RIGID}": ("lidar", put("lidar", "world_from_lidar", 1, 0.0)),
    f"{A}a box must be finite numbers with sizes of at least 0 (center, size, quaternion), got [nan, ": (
        "boxes",
        put("boxes", "center", ([3, 4], 0), [np.nan, np.inf]),  # the first of several
    ),
    f"{A}a box must be finite": ("boxes", put("boxes", "size", (4, 2), -2.0)),
    "The frame 'frame-0' in the scene 'scene-a': its token is that of an earlier": (
        "",
        put("frames", "token", 1, b"frame-0"),
    ),
    f"{A}times must ascend in its scene, got 1500000000.0 and then 1500000000.0": (
        "",
        put("frames", "time", 1, 1.5e9),
    ),
    f"{B}times must": ("", put("frames", "time", 3, np.nan)),
    "frames must be 0.001 to 1000 seconds apart, the usual distance is 5e-07 seconds...another unit": (
        "",
        with_column("frames", "time", lambda time: (time - 1.5e9) / 1e6),
    ),
}


@pytest.mark.parametrize("words", CASES)
def test_values_that_no_sample_can_use_are_named_by_their_frame(tmp_path: Path, words: str) -> None:
    part, change = CASES[words]
    index = change(write_driving_data(tmp_path))
    assert_refused(lambda: require_usable(index, lambda wanted: wanted == part), words, FileError)
    other = ["scene-a" if "frame-4" in words else "scene-b"]
    if part:
        require_usable(index, lambda wanted: wanted != part)
    elif "4 more" not in words and "apart" not in words:
        require_usable(index, lambda wanted: True, other)
