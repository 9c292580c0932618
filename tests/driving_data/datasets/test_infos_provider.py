"""Info pickles: what is read of each family, files, order, scenes, and what is refused."""

import copy
import logging
import os
import pickle
import re

import numpy as np
import pytest
from driving_support.driving_data import files_of, index_of
from driving_support.info_pickles import (
    CAMERAS,
    CATEGORIES,
    FAMILIES,
    LAYOUT_OF,
    driving_scenes,
    pickle_content,
    write_files,
    write_pickle,
)
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework.errors import FileError
from accvlab.driving_data.datasets import InfosProvider
from accvlab.driving_data.recipes import StreamPETRSettings

SCENES = driving_scenes()


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("infos_data"), SCENES)


@pytest.fixture
def opened(root, tmp_path):
    """Opens the content of a pickle."""

    def open_content(content, **settings):
        path = write_pickle(tmp_path / "infos.pkl", content)
        return InfosProvider(path, settings.pop("data_root", root), **settings)

    return open_content


def edited(family, edit):
    content = copy.deepcopy(pickle_content(SCENES, family))
    edit(content.get("infos") or content["data_list"])
    return content


def without(*keys):
    """What removes keys of all frames."""

    def remove(infos):
        for info in infos:
            for key in keys:
                del info[key]

    return remove


def assert_same_columns(found, expected, names, atol=1e-9):
    for name in names.split():
        one, other = getattr(found, name), getattr(expected, name)
        if np.issubdtype(np.asarray(one).dtype, np.floating):
            np.testing.assert_allclose(one, other, rtol=0, atol=atol, err_msg=name)
        else:
            np.testing.assert_array_equal(one, other, err_msg=name)


def assert_own_files(provider):
    for frame, files in enumerate(SCENES.cameras.file.astype(str).tolist()):
        own = SCENES.lidar.file[SCENES.lidar.of_frame[frame]].decode()
        assert files_of(provider, frame) == [*files, own]


@pytest.mark.parametrize("family", FAMILIES)
def test_what_converters_write_is_read_back(root, tmp_path, family):
    path = write_pickle(tmp_path / "infos.pkl", pickle_content(SCENES, family))
    settings = {"boxes_convention": LAYOUT_OF.get(family), "lidar": True, "boxes_2d": True}
    provider = InfosProvider(path, root, map_lines=family == "sparsedrive", **settings)
    index = index_of(provider)
    boxes, lidar, known = index.boxes, index.lidar, SCENES.lidar
    atol = 1e-4 if family == "mmdet3d_v2" else 1e-9  # mmdetection3d 2 rounds poses to float32, 0.03 mm at 1000 m
    columns = {
        "frames": "token first_of_scene time world_from_ego ego_from_base",
        "cameras": "time intrinsics camera_from_base ego_from_camera",
        "boxes": "first center size velocity category num_lidar_points num_radar_points",
    }
    for table, names in columns.items():
        assert_same_columns(getattr(index, table), getattr(SCENES, table), names, atol)
    np.testing.assert_allclose(np.abs((boxes.rotation * SCENES.boxes.rotation).sum(-1)), 1, atol=1e-12)
    assert provider.origin["boxes_convention"] == LAYOUT_OF.get(family, "l,w,h,yaw")
    assert (provider.origin["z"], index.categories) == ("center", CATEGORIES)
    assert (provider.camera_names, provider.sequence_lengths) == (CAMERAS, (4, 3))
    has_names = family in ("streampetr", "bevformer", "uniad", "vad", "sparsedrive")
    assert provider.scene_names == (("scene-0", "scene-1") if has_names else ("token-000", "token-004"))
    assert_own_files(provider)
    np.testing.assert_array_equal(lidar.first_sweep, known.first_sweep)
    assert len(lidar.file) == len(known.file)
    for records, expected in ((lidar.of_frame, known.of_frame), (lidar.sweep, known.sweep)):
        assert all(map(bytes.endswith, known.file[expected].tolist(), lidar.file[records].tolist()))
        for name in ("time", "world_from_lidar"):
            found, wanted = getattr(lidar, name)[records], getattr(known, name)[expected]
            np.testing.assert_allclose(found, wanted, rtol=0, atol=max(atol, 1e-7))


class TestWhatWasFound:
    def test_is_described_and_logged(self, opened, caplog):
        with caplog.at_level(logging.INFO, "accvlab"):
            provider = opened(pickle_content(SCENES, "bevformer"), boxes_convention=LAYOUT_OF["bevformer"])
        told = provider.describe()
        assert told.startswith(f"{provider!r}\n")
        assert "boxes: 'w,l,h,-yaw-pi/2', z: 'center'" in repr(provider)
        assert told in caplog.text
        assert "boxes: x, y, z of the center, w,l,h,-yaw-pi/2" in told
        assert "7 frames ('infos', order: time)" in told
        assert "found by: the scene token of each frame" in told

    @pytest.mark.parametrize("family", ["bevformer", "uniad"])
    def test_the_width_first_is_to_be_stated(self, family, opened):
        content, words = pickle_content(SCENES, family), "does not say what columns 3 to 6 of its boxes are"
        assert_refused(lambda: opened(content), words)
        assert len(opened(content, boxes=False)) == 7


class TestFiles:
    @pytest.mark.parametrize(
        "prefix", ["", "./data/nuscenes/", "data/nuscenes/", "/somewhere/else/nuscenes/", "../data/"]
    )
    def test_are_found_below_the_root(self, opened, prefix):
        provider = opened(pickle_content(SCENES, "mmdet3d_v1", prefix=prefix), lidar=True, num_sweeps=2)
        assert_own_files(provider)
        provider.get_data(6)  # with its sweeps

    def test_of_an_absolute_path_need_no_root(self, opened, root, tmp_path):
        provider = opened(pickle_content(SCENES, "mmdet3d_v1", prefix=f"{root}/"), data_root=tmp_path / "other")
        assert bytes(provider.get_data(0)["cameras"][0]["image"]).startswith(b"P6")

    def test_in_folders_that_the_metainfo_names(self, root, tmp_path, opened):
        content = pickle_content(SCENES, "mmdet3d_v2")
        content["metainfo"]["data_prefix"] = {name: f"elsewhere/{name}" for name in CAMERAS}
        (tmp_path / "data").mkdir()
        os.symlink(root / "samples", tmp_path / "data" / "elsewhere")
        provider = opened(content, data_root=tmp_path / "data")
        assert files_of(provider, 0)[0] == "elsewhere/CAM_FRONT/CAM_FRONT_000.jpg"

    def test_of_sensors_that_are_not_wanted_may_be_missing(self, root, opened, tmp_path):
        part = tmp_path / "part"
        (part / "samples").mkdir(parents=True)
        os.symlink(root / "samples/CAM_BACK", part / "samples/CAM_BACK")
        settings = {"data_root": part, "cameras": ["CAM_BACK"]}
        content = pickle_content(SCENES, "mmdet3d_v1", prefix="./data/nuscenes/")
        assert len(opened(content, **settings).get_data(0)["cameras"][0]["image"])
        with pytest.raises(FileError, match="of LIDAR_TOP, which is not below"):
            opened(content, lidar=True, **settings)
        name = "samples/CAM_FRONT/CAM_FRONT_000.jpg"
        words = f"'./data/nuscenes/{name}' of CAM_FRONT, which is not below `data_root=...{part}/{name}"
        assert_refused(lambda: opened(content, data_root=part), words, FileError)
        assert_refused(lambda: opened(content, data_root=part), f"{part}/data/nuscenes/{name}", FileError)

    @pytest.mark.parametrize("family", ["streampetr", "mmdet3d_v1", "mmdet3d_v2"])
    def test_of_the_scenes_that_are_wanted_must_be_there(self, root, opened, tmp_path, family):
        part = tmp_path / "part"
        for file in (*SCENES.cameras.file[4:].ravel(), *SCENES.lidar.file[SCENES.lidar.of_frame[4:]]):
            (part / file.decode()).parent.mkdir(parents=True, exist_ok=True)
            (part / file.decode()).symlink_to(root / file.decode())
        content = pickle_content(SCENES, family)
        scene = opened(content).scene_names[1]
        provider = opened(content, data_root=part, lidar=True, scenes=[scene])
        assert [provider.get_data(frame)["token"] for frame in range(3)] == ["token-004", "token-005", "token-006"]
        with pytest.warns(UserWarning, match=rf"12 of 21 files .*`scenes=\['{scene}'\]`"):
            opened(content, data_root=part, lidar=True)
        with pytest.raises(FileError, match=r"(?s)CAM_FRONT, which is not below `data_root.*its scenes"):
            opened(content, data_root=part, scenes=opened(content).scene_names[:1])


def _opened_sweeps(root, scenes, sweep_file, sweep_time_s=0.0):
    """Two frames per scene, 1 m and 1 s apart; the second has a sweep, at the place of the first."""
    infos = []
    for scene, start in scenes.items():
        (root / scene).mkdir()
        for frame in range(2):
            np.full((3, 5), start + frame, np.float32).tofile(root / scene / f"{frame}.bin")
        file, time = sweep_file.format(scene), round((start + sweep_time_s) * 1e6)
        if not file.startswith(("/", ".")):
            (root / file).parent.mkdir(exist_ok=True)
            np.full((3, 5), start, np.float32).tofile(root / file)
        for frame in range(2):
            sweep = {"data_path": file, "timestamp": time, **_at("sensor2ego"), **_at("ego2global", start)}
            info = {"token": f"{scene}{frame}", "scene_token": scene, "timestamp": (start + frame) * 10**6}
            info |= {"lidar_path": f"{scene}/{frame}.bin", "sweeps": [sweep] * frame}
            infos.append({**info, **_at("lidar2ego"), **_at("ego2global", start + frame)})
    path = write_pickle(root / "infos.pkl", {"infos": infos, "metadata": {}})
    return InfosProvider(path, root, lidar=True, num_sweeps=1)


def _at(name, x=0.0):
    return {f"{name}_rotation": [1, 0, 0, 0], f"{name}_translation": [float(x), 0, 0]}


class TestSweeps:
    @pytest.mark.parametrize("front", ["", "./data/", "/data/made/"])
    def test_of_scenes_whose_files_have_equal_names(self, tmp_path, front):
        provider = _opened_sweeps(tmp_path, {"a": 0, "b": 100}, f"{front}{{}}/0.bin")
        assert len(index_of(provider).lidar.file) == 4
        for frame, start in ((1, 0), (3, 100)):
            sweep = provider.get_data(frame)["sweeps"][0]
            np.testing.assert_array_equal(sweep["points"], np.full((3, 5), start, np.float32))
            assert (sweep["timestamp"], sweep["reference_from_lidar"][0, 3]) == (start, -1)

    @pytest.mark.parametrize(("time_s", "num_records"), [(0.0, 2), (0.0005, 2), (0.1, 3)])
    def test_of_other_folders_are_keyframes_at_their_time(self, tmp_path, time_s, num_records):
        lidar = index_of(_opened_sweeps(tmp_path, {"a": 5}, "elsewhere/0.bin", time_s)).lidar
        assert (len(lidar.file), lidar.sweep.tolist()) == (num_records, [0 if num_records == 2 else 2])


def exchanged_times(infos):
    infos[1]["timestamp"], infos[2]["timestamp"] = infos[2]["timestamp"], infos[1]["timestamp"]


def exchanged(infos):
    infos[1], infos[2] = infos[2], infos[1]


def interleaved(infos):
    for info in infos[4:]:
        info["timestamp"] -= 999_750_000


def data_list(frame={}, **metainfo):  # noqa: B006
    return {"metainfo": metainfo, "data_list": [frame]}


REFUSED_ORDERS = {
    "backwards between the frames 'token-002' ...and 'token-001'": ("mmdet3d_v2", exchanged),
    "go backwards: the frames 'token-002' ...and 'token-001' ...2 and 1": ("streampetr", exchanged_times),
    "'token-002' ...and 'token-001' ...linked the other way round": ("bevfusion", exchanged_times),
    "the frame 'token-001'...began with 'token-000', but follows 'token-004'": ("streampetr", interleaved),
    "m apart in the frames 'token-00...interleaved": ("mmdet3d_v1", interleaved),
    "'token-000' ...and 'token-001' ...have the same time": (
        "streampetr",
        lambda infos: infos[1].update(timestamp=infos[0]["timestamp"]),
    ),
    "the frames 0 and 7 have the same token 'token-000'": ("streampetr", lambda infos: infos.append(infos[0])),
}


class TestOrder:
    @pytest.mark.parametrize(
        ("family", "change", "order"),
        [
            ("streampetr", list.reverse, None),
            ("mmdet3d_v2", exchanged, "time"),
            ("streampetr", interleaved, "scene"),
        ],
    )
    def test_is_that_of_time_or_as_it_is_wanted(self, opened, family, change, order):
        provider = opened(edited(family, change), order=order)
        np.testing.assert_array_equal(index_of(provider).frames.token, SCENES.frames.token)

    def test_a_data_list_stays_as_it_is_stored(self, opened):
        provider = opened(edited("mmdet3d_v2", lambda frames: frames.extend([frames.pop(0) for _ in range(4)])))
        assert provider.sequence_lengths == (3, 4)
        assert index_of(provider).frames.token[0] == b"token-004"
        np.testing.assert_array_equal(index_of(provider).boxes.center[0], SCENES.boxes.center[4 * 12])

    @pytest.mark.parametrize("words", REFUSED_ORDERS)
    def test_contradictions_are_refused(self, opened, words):
        assert_refused(lambda: opened(edited(*REFUSED_ORDERS[words])), words, FileError)


class TestScenes:
    @pytest.mark.parametrize(
        ("num_keys", "rule"),
        [
            (0, "the scene token of each frame"),
            (1, "the token of the frame before each"),
            (2, "where the number of the frame in its scene does not grow"),
            (3, "where a frame has no sweeps before it, or after a pause"),
            (4, "a scene begins after a pause of more than 2.5 s"),
        ],
    )
    def test_are_told_by_what_there_is(self, opened, num_keys, rule):
        keys = ("scene_token", "prev", "frame_idx", "sweeps")[:num_keys]
        provider = opened(edited("streampetr", without(*keys)))
        assert rule in provider.origin["scenes"]
        assert provider.sequence_lengths == (4, 3)

    @pytest.mark.parametrize(("key", "step"), [("frame_idx", 1), ("prev", 1), ("prev", 5)])
    def test_that_lack_frames_are_named(self, opened, key, step):
        infos = pickle_content(driving_scenes(lengths=(6, 4)), "streampetr")["infos"]
        for info in infos:
            info["frame_idx"] *= step
        without(key)(infos)
        content = {"infos": infos, "metadata": {}}
        opened(content, cameras=[])  # warnings are errors
        del infos[3]
        words = r"lacks frames of 1 of 2 scenes.* between its frames 'token-002' and 'token-004'"
        with pytest.warns(UserWarning, match=words):
            opened(content, cameras=[])
        opened(content, cameras=[], scenes=["scene-1"])

    def test_begin_where_the_frame_before_was_left_out(self, opened):
        provider = opened(edited("streampetr", lambda infos: (without("scene_token")(infos), infos.pop(1))))
        assert provider.sequence_lengths == (1, 2, 3)


class TestRefused:
    def test_a_pickle_with_classes_is_never_run(self, opened):
        content = pickle_content(SCENES, "mmdet3d_v1")
        content["metadata"] = re.compile("a")
        words = "infos.pkl' holds `re._compile`: only plain values...put plain values in its place, and write it"
        assert_refused(lambda: opened(content), words, FileError)

    def test_a_file_that_is_no_pickle(self, root, tmp_path):
        path = tmp_path / "infos.pkl"
        whole = pickle.dumps(pickle_content(SCENES, "mmdet3d_v1"))
        texts = ("token,time\n1,2\n", "x" * 511 + "\u00e9" * 20, "version https://git-lfs\n")
        damaged, text = "infos.pkl' is cut short, damaged, or no pickle", "infos.pkl' is no pickle, but text ("
        cases = [(whole[:10], damaged), (whole[: len(whole) // 2], damaged), (b"", damaged)]
        for content, words in [*cases, *((each.encode(), text) for each in texts)]:
            path.write_bytes(content)
            assert_refused(lambda: InfosProvider(path, root), words, FileError)

    def test_folders_and_files_that_are_exchanged(self, root, tmp_path):
        path = write_pickle(tmp_path / "infos.pkl", pickle_content(SCENES, "mmdet3d_v1"))
        for first, second, words, error in (
            (root, root, "`path` must be a pickle file, but ... is a folder.", IsADirectoryError),
            (path, path, "`data_root` must be a folder or URL, but '...infos.pkl' is a file.", FileError),
            (root, path, "is a folder...is a file. Exchange the two arguments.", FileError),
            (tmp_path / "none.pkl", root, "none.pkl' cannot be read: No such file", FileError),
        ):
            assert_refused(lambda one=first, other=second: InfosProvider(one, other), words, error)

    @pytest.mark.parametrize(
        ("family", "key", "words"),
        [
            ("mmdet3d_v1", "timestamp", "infos[2] (token 'token-002') has no key 'timestamp'; it has cams, "),
            ("streampetr", "labels2d", "infos[2] ...has no key 'labels2d'"),
            ("mmdet3d_v1", "gt_boxes", "infos[2] ...lacks boxes, as do 1 of 7 frames"),
            ("bevformer", "can_bus", "infos[2] ...lacks can_bus, as do 1 of 7 frames"),
            ("mmdet3d_v1", "lidar_path", "infos[2] ...lacks the file of the lidar"),
            ("mmdet3d_v2", "ego2global", "data_list[2] ...has no key 'ego2global'"),
            ("uniad", "cams.CAM_BACK.data_path", "infos[2] ...['cams']['CAM_BACK'] has no key 'data_path'"),
            ("uniad", "sweeps.0.sensor2ego_rotation", "['sweeps'][0] has no key 'sensor2ego_rotation'"),
            ("mmdet3d_v2", "images.CAM_BACK.lidar2cam", "['images']['CAM_BACK'] has no key 'lidar2cam'"),
        ],
    )
    def test_a_key_that_is_missing(self, opened, family, key, words):
        def remove(infos):
            *groups, last = key.split(".")
            group = infos[2]
            for name in groups:
                group = group[int(name) if name.isdigit() else name]
            del group[last]

        content = edited(family, remove)
        wanted = {"labels2d": "boxes_2d", "can_bus": "can_bus", "lidar_path": "lidar", "sweeps": "lidar"}
        settings = {setting: True for name, setting in wanted.items() if key.startswith(name)}
        settings["boxes_convention"] = LAYOUT_OF.get(family)
        assert_refused(lambda: opened(content, **settings), words, FileError)
        if settings.keys() - {"boxes_convention"} or key == "gt_boxes":
            assert len(opened(content, boxes=False)) == 7

    @pytest.mark.parametrize(
        ("key", "value", "words"),
        [
            ("gt_boxes", np.zeros((12, 6)), "['gt_boxes'] must have the shape (n, 7), got (12, 6)"),
            ("gt_boxes", np.full((12, 7), np.nan), "box 0 must have finite numbers"),
            ("gt_boxes", [[10**400] * 7], "['gt_boxes'] must hold numbers"),
            ("gt_names", ["car"], "['gt_names'] has 1 names, but there are 12 boxes"),
            ("gt_velocity", np.zeros((3, 2)), "['gt_velocity'] must have the shape (12, 2), got (3, 2)"),
            ("num_lidar_pts", [1], "['num_lidar_pts'] must have the shape (12), got (1,). There are 12"),
            ("instance_inds", [1], "['instance_inds'] has 1 objects, but there are 12 boxes"),
            ("timestamp", "now", "['timestamp'] must be a number, got 'now'"),
            ("ego2global_rotation", [0, 0, 0, 0], "the pose of the vehicle must be a rotation"),
            ("lidar2ego_translation", [1, 0], "the pose of the lidar must be a quaternion"),
            ("ego2global_translation", [0, np.nan, 0], "a rotation and a finite translation, got ([...nan"),
            ("cams", {"CAM_FRONT": 3}, "['cams']['CAM_FRONT'] must be a dict, got 3"),
            ("frame_idx", "first", " is not as the converters write it: ValueError"),
            ("ego_status", [0, 1], "['ego_status'] must have the shape (10), got (2,)"),
        ],
    )
    def test_a_value_that_is_wrong(self, opened, key, value, words):
        content = edited("sparsedrive", lambda infos: infos[2].update({key: value}))
        words = f"infos[2] (token 'token-002')...{words}"
        assert_refused(lambda: opened(content, ego_status=True), words, FileError)

    def test_a_value_that_no_sample_can_use(self, opened):
        content = edited(
            "mmdet3d_v1", lambda infos: infos[2]["cams"]["CAM_FRONT"].update(cam_intrinsic=np.eye(3) - 1)
        )
        words = "frame 'token-002' in the scene...infos.pkl': intrinsics of 'CAM_FRONT' must"
        assert_refused(lambda: opened(content), words, FileError)
        assert len(opened(content, cameras=["CAM_BACK"])) == 7

    @pytest.mark.parametrize(
        ("family", "key", "value"),
        [
            ("sparsedrive", "gt_boxes", np.zeros((12, 6))),
            ("sparsedrive", "ego_status", [0, 1]),
            ("sparsedrive", "sweeps", [{}]),
            ("sparsedrive", "lidar_path", None),
            ("sparsedrive", "map_annos", {0: 3}),
            ("bevformer", "can_bus", None),
            ("streampetr", "labels2d", 3),
        ],
    )
    def test_what_is_wrong_and_not_wanted_is_left_out(self, opened, family, key, value):
        content = edited(family, lambda infos: infos[2].update({key: value}))
        assert opened(content, boxes=False).get_data(2)["token"] == "token-002"

    def test_labels_without_a_category(self, opened):
        content = edited("mmdet3d_v2", lambda frames: frames[1]["instances"][2].update(bbox_label_3d=10))
        words = "['instances'][2]['bbox_label_3d'] has the label 10, but ...10 cat"
        assert_refused(lambda: opened(content), words, FileError)
        content = edited("streampetr", lambda infos: infos[0]["labels2d"][0].__setitem__(0, 12))
        assert_refused(lambda: opened(content, boxes_2d=True), "['labels2d'] has the label 12", FileError)

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            ([{"image": {}, "point_cloud": {"num_features": 4}, "calib": {}}], "is one of KITTI's object"),
            ([{"image": {}, "point_cloud": {"lidar_sequence": "segment-1"}}], "is one of Waymo, ...py1"),
            (data_list(dataset="Waymo_Open", CLASSES=["Car"]), "one of Waymo"),
            (data_list(DATASET="KITTI"), "KittiTrackingProvider"),
            (data_list({"images": {"R0_rect": [], "CAM2": {}}}), "is one of KITTI's object"),
            (data_list({"images": {"CAM_SIDE_LEFT": {}}, "timestamp": 1}), "is one of Waymo"),
            ({"Car": [{"name": "Car", "box3d_lidar": [0] * 7}]}, "a database of objects"),
            ({"data": [], "meta": {}}, "must be a dict with the key 'infos' or 'data_list'"),
            ({"infos": []}, "must have frames"),
            (data_list({"images": {}}, CLASSES=["a", "a"]), "metainfo must name each category once, got ['a', "),
            (data_list({"images": {}}, categories={"a": "b"}), "must number its 1 names from 0, got {'a': 'b'}"),
            (data_list({"images": {}}, categories={"car": 0, "bus": 0}), "must number its 2 names from 0"),
        ],
    )
    def test_what_is_no_info_pickle_is_named(self, opened, content, words):
        assert_refused(lambda: opened(content), words, FileError)

    @pytest.mark.parametrize("key", ["categories", "classes", "CLASSES", "array"])
    def test_categories_in_each_spelling(self, opened, key):
        content = pickle_content(SCENES, "mmdet3d_v2")
        names = content["metainfo"].pop("categories")
        as_list = np.array([*names]) if key == "array" else [*names]
        content["metainfo"]["CLASSES" if key == "array" else key] = names if key == "categories" else as_list
        content["data_list"][0]["instances"][0]["bbox_label_3d"] = -1  # of no category
        boxes = index_of(opened(content))
        assert boxes.categories == CATEGORIES
        assert boxes.boxes.category.tolist() == [-1, *SCENES.boxes.category[1:]]

    def test_classes_that_no_box_has(self, opened, caplog):
        content = edited(
            "bevformer", lambda infos: [info.update(gt_names=["other_vehicle"] * 12) for info in infos]
        )
        counts, layout = "Its boxes are: other_vehicle (...)", {"boxes_convention": "w,l,h,-yaw-pi/2"}
        words = f"classes: no box of the data set is one of them. {counts}."
        assert_refused(lambda: opened(content, classes=StreamPETRSettings().classes, **layout), words)
        provider = opened(content, classes={"car": "car", "other_vehicle": "car", "bus": "bus"}, **layout)
        assert set(provider.get_data(0)["boxes"]["categories"]) == {0}
        assert "classes: no box of the data set is bus. Its boxes are: other_vehicle (" in caplog.text

    @pytest.mark.parametrize(
        ("settings", "words"),
        [
            ({"boxes_convention": "lwh"}, "`boxes_convention` must be one of None, 'l,w,h,yaw'"),
            ({"z": "middle"}, "`z` must be one of None, 'center', 'bottom'"),
            ({"order": "random"}, "`order` must be one of None, 'time', 'stored', 'scene'"),
        ],
    )
    def test_settings(self, opened, settings, words):
        assert_refused(lambda: opened(pickle_content(SCENES, "mmdet3d_v1"), **settings), words)


class TestLessUsual:
    def test_a_pickle_without_boxes(self, opened):
        provider = opened(edited("mmdet3d_v1", without("gt_boxes")))
        assert index_of(provider).boxes is None
        assert "boxes" not in provider.sample_data_structure.field_names_flat

    @pytest.mark.parametrize("family", ["mmdet3d_v1", "mmdet3d_v2"])
    def test_a_pickle_whose_frames_are_empty(self, opened, family):
        of_boxes = ("gt_boxes", "gt_names", "gt_velocity", "num_lidar_pts", "num_radar_pts", "valid_flag")

        def remove(infos):
            for info in infos:
                empty = {name: info[name][:0] for name in of_boxes if name in info}
                info.update(empty or {"instances": [], "cam_instances": {}})

        assert opened(edited(family, remove)).get_data(0)["boxes"]["centers"].shape == (0, 3)

    def test_other_categories_follow_the_known_ones(self, opened):
        def rename(infos):
            infos[0]["gt_names"] = infos[0]["gt_names"].astype("U30")
            infos[0]["gt_names"][:2] = ["animal", "Debris"]

        provider = opened(edited("mmdet3d_v1", rename))
        assert provider.class_names == (*CATEGORIES, "Debris", "animal")
        assert index_of(provider).boxes.category[:2].tolist() == [11, 10]

    def test_a_flag_in_place_of_numbers_of_points(self, opened):
        def remove(infos):
            for info in infos:
                del info["num_lidar_pts"], info["num_radar_pts"]
                info["valid_flag"] = np.arange(12) > 3

        provider = opened(edited("mmdet3d_v1", remove), min_points=1)
        np.testing.assert_array_equal(
            provider.get_data(0)["boxes"]["centers"], SCENES.boxes.center[4:12].astype(np.float32)
        )

    def test_a_camera_that_a_frame_lacks(self, opened):
        content = edited("mmdet3d_v1", lambda infos: infos[1]["cams"].pop("CAM_BACK"))
        words = "what is requested of it in '...infos.pkl'...'token-001' has none of CAM_BACK\n...Leave the"
        assert_refused(lambda: opened(content), words)
        provider = opened(content, cameras=["CAM_FRONT"])
        assert index_of(provider).cameras.file[1, 1] == b""
        assert bytes(provider.get_data(1)["cameras"][0]["image"]).startswith(b"P6")
        assert opened(content, scenes=["token-004"]).camera_names == CAMERAS

    def test_objects_by_token(self, opened):
        provider = opened(edited("uniad", without("gt_inds")), boxes_convention=LAYOUT_OF["uniad"])
        number_of = {}
        expected = [number_of.setdefault(one, len(number_of)) for one in SCENES.boxes.instance.tolist()]
        np.testing.assert_array_equal(index_of(provider).boxes.instance, expected)

    def test_calibrations_that_frames_share(self, opened):
        """Converters store an object of many frames once; copies of it are read as the same."""
        content, layout = pickle_content(SCENES, "uniad"), {"boxes_convention": LAYOUT_OF["uniad"]}
        infos = content["infos"]
        for name in CAMERAS:
            first = infos[0]["cams"][name]
            for info in infos:
                info["cams"][name] |= {
                    key: first[key] for key in ("sensor2ego_rotation", "sensor2ego_translation")
                }
        infos[5]["cams"]["CAM_BACK"]["sensor2ego_translation"] = [1.0, 2, 3]
        copies = {**content, "infos": [copy.deepcopy(info) for info in infos]}
        shared, copied = (index_of(opened(each, **layout)).cameras for each in (content, copies))
        assert_same_columns(shared, copied, "intrinsics ego_from_camera camera_from_base")
        infos[5]["cams"]["CAM_BACK"]["sensor2ego_translation"][0] = np.nan
        words = "infos[5] ...CAM_BACK']: the pose of the camera must be"
        assert_refused(lambda: opened(content, **layout), words, FileError)

    def test_boxes_of_nine_columns(self, opened):
        def join(infos):
            for info in infos:
                info["gt_boxes"] = np.hstack([info["gt_boxes"], info.pop("gt_velocity")])

        provider = opened(edited("mmdet3d_v1", join))
        np.testing.assert_allclose(index_of(provider).boxes.velocity, SCENES.boxes.velocity, atol=1e-9)
