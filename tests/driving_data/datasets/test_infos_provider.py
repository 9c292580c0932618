"""Info pickles: what is read of each family, files, order, scenes, and what is refused."""

import copy
import logging
import os
import pickle
import re

import attrs
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

from accvlab.dali_pipeline_framework.errors import FileError, SettingError
from accvlab.dali_pipeline_framework.testing import check_provider
from accvlab.driving_data.datasets import DrivingProvider, InfosProvider
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
        return InfosProvider(path, settings.pop("data_root", root), index_cache=tmp_path / "cache", **settings)

    return open_content


def edited(family, edit):
    content = copy.deepcopy(pickle_content(SCENES, family))
    edit(content.get("infos") or content["data_list"])
    return content


def assert_same_columns(found, expected, names, *, atol=1e-9):
    for name in names.split():
        one, other = getattr(found, name), getattr(expected, name)
        if np.issubdtype(np.asarray(one).dtype, np.floating):
            np.testing.assert_allclose(one, other, rtol=0, atol=atol, err_msg=name)
        else:
            np.testing.assert_array_equal(one, other, err_msg=name)


@pytest.fixture(scope="module", params=FAMILIES)
def provider(request, root, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    path = write_pickle(folder / "infos.pkl", pickle_content(SCENES, request.param))
    settings = {"boxes_convention": LAYOUT_OF.get(request.param), "lidar": True, "boxes_2d": True}
    settings["map_lines"] = request.param == "sparsedrive"
    return request.param, InfosProvider(path, root, index_cache=folder, **settings)


class TestFamilies:
    """What the converters of several projects write is read back."""

    def atol(self, family):
        # mmdetection3d 2 rounds poses to float32, 0.03 mm at 1000 m.
        return 1e-4 if family == "mmdet3d_v2" else 1e-9

    def test_frames(self, provider):
        family, provider = provider
        names = "token first_of_scene time world_from_ego ego_from_base"
        assert_same_columns(index_of(provider).frames, SCENES.frames, names, atol=self.atol(family))
        assert provider.sequence_lengths == (4, 3)
        if family in ("streampetr", "bevformer", "uniad", "vad", "sparsedrive"):
            assert provider.scene_names == ("scene-0", "scene-1")
        else:
            assert provider.scene_names == ("token-000", "token-004")

    def test_cameras(self, provider):
        family, provider = provider
        assert provider.camera_names == CAMERAS
        names = "time intrinsics camera_from_base ego_from_camera"
        assert_same_columns(index_of(provider).cameras, SCENES.cameras, names, atol=self.atol(family))
        for frame, files in enumerate(SCENES.cameras.file.astype(str).tolist()):
            own = SCENES.lidar.file[SCENES.lidar.of_frame[frame]].decode()
            assert files_of(provider, frame) == [*files, own]

    def test_boxes(self, provider):
        family, provider = provider
        names = "first center size velocity category num_lidar_points num_radar_points"
        assert_same_columns(index_of(provider).boxes, SCENES.boxes, names)
        turn = np.abs((index_of(provider).boxes.rotation * SCENES.boxes.rotation).sum(-1))
        np.testing.assert_allclose(turn, 1, atol=1e-12)
        assert provider.origin["boxes_convention"] == LAYOUT_OF.get(family, "l,w,h,yaw")
        assert provider.origin["z"] == "center"
        assert index_of(provider).categories == CATEGORIES
        if family in ("sparsedrive", "sparse4d", "uniad"):
            np.testing.assert_array_equal(index_of(provider).boxes.instance, SCENES.boxes.instance)
        else:
            assert index_of(provider).boxes.instance is None
        if family == "uniad":
            np.testing.assert_array_equal(index_of(provider).boxes.visibility, SCENES.boxes.visibility)

    def test_lidar(self, provider):
        family, provider = provider
        index = index_of(provider)
        np.testing.assert_array_equal(index.lidar.first_sweep, SCENES.lidar.first_sweep)
        for records, expected in (
            (index.lidar.of_frame, SCENES.lidar.of_frame),
            (index.lidar.sweep, SCENES.lidar.sweep),
        ):
            for name in ("file", "time", "world_from_lidar"):
                found, known = getattr(index.lidar, name)[records], getattr(SCENES.lidar, name)[expected]
                if name == "file":
                    assert all(map(bytes.endswith, known.tolist(), found.tolist()))
                else:
                    np.testing.assert_allclose(found, known, rtol=0, atol=max(self.atol(family), 1e-7))
        assert len(index.lidar.file) == len(SCENES.lidar.file)

    def test_what_only_some_have(self, provider):
        family, provider = provider
        frames, lines, boxes_2d = index_of(provider).frames, index_of(provider).lines, index_of(provider).boxes_2d
        assert (frames.can_bus is not None) == (family in ("bevformer", "uniad", "vad"))
        assert (frames.ego_status is not None) == (lines is not None) == (family == "sparsedrive")
        assert (boxes_2d is not None) == (family in ("streampetr", "mmdet3d_v2"))
        if frames.can_bus is not None:
            np.testing.assert_array_equal(frames.can_bus, SCENES.frames.can_bus)
        if lines is not None:
            np.testing.assert_array_equal(frames.ego_status, SCENES.frames.ego_status)
            assert_same_columns(lines, SCENES.lines, "first category first_point point")
            assert provider.line_category_names == ("ped_crossing", "divider", "boundary")
        if boxes_2d is not None:
            assert_same_columns(boxes_2d, SCENES.boxes_2d, "first box center depth category box_row", atol=1e-3)
        if family == "streampetr":
            seen = np.zeros(len(SCENES.boxes.category), bool)
            seen[boxes_2d.box_row] = True
            expected = np.where(seen, SCENES.boxes.visibility, 0)
            np.testing.assert_array_equal(index_of(provider).boxes.visibility, expected)
        if family == "mmdet3d_v2":
            number = np.flatnonzero(boxes_2d.box_row == boxes_2d.box_row[3])[-1] % 9
            assert index_of(provider).boxes.attribute[boxes_2d.box_row[3]] == (number if number < 8 else -1)
            assert provider.attribute_names[5] == "vehicle.moving"


def test_samples_are_those_of_any_driving_provider(root, tmp_path, opened):
    provider = opened(pickle_content(SCENES, "sparse4d"), lidar=True, num_sweeps=2, num_future_frames=2)
    check_provider(provider, start_method="fork")
    reference = DrivingProvider(SCENES, root, lidar=True, num_sweeps=2, num_future_frames=2)
    for number in range(7):
        one, other = provider.get_data(number), reference.get_data(number)
        for path in ("boxes.future_centers", "boxes.centers", "boxes.yaws", "sweeps[1].points"):
            np.testing.assert_allclose(value_at(one, path), value_at(other, path), atol=1e-5, err_msg=path)
        np.testing.assert_array_equal(one["cameras"][1]["image"], other["cameras"][1]["image"])


def value_at(sample, path):
    for part in re.findall(r"\w+", path):
        sample = sample[int(part) if part.isdigit() else part]
    return sample


class TestWhatWasFound:
    def test_is_described_and_logged(self, opened, caplog):
        with caplog.at_level(logging.INFO, "accvlab"):
            provider = opened(pickle_content(SCENES, "bevformer"), boxes_convention=LAYOUT_OF["bevformer"])
        told = provider.describe()
        assert told.startswith(f"{provider!r}\n")
        assert told in caplog.text
        assert "boxes: x, y, z of the center, w,l,h,-yaw-pi/2" in told
        assert "7 frames ('infos', order: time)" in told
        assert "found by: the scene token of each frame" in told
        assert "boxes: 'w,l,h,-yaw-pi/2', z: 'center'" in repr(provider)

    def test_is_kept(self, opened, root, tmp_path, monkeypatch):
        first = opened(pickle_content(SCENES, "uniad"), boxes_convention=LAYOUT_OF["uniad"])
        module = "accvlab.driving_data.datasets.infos.infos_provider.index_of_pickle"  # nothing is read again
        monkeypatch.setattr(module, None)
        again = InfosProvider(
            tmp_path / "infos.pkl", root, index_cache=tmp_path / "cache", boxes_convention="w,l,h,yaw"
        )
        assert again.describe() == first.describe()

    @pytest.mark.parametrize("family", ["streampetr", "mmdet3d_v2"])
    def test_the_form_says_that_the_length_comes_first(self, family, opened):
        standing = driving_scenes(num_moving=0)
        provider = opened(pickle_content(standing, family))
        assert provider.origin["boxes_convention"] == "l,w,h,yaw"
        np.testing.assert_allclose(provider.get_data(0)["boxes"]["sizes"], standing.boxes.size[:12], rtol=1e-6)
        with pytest.raises(SettingError, match=r"`boxes_convention='w,l,h,yaw'` contradicts the boxes"):
            opened(pickle_content(standing, family), boxes_convention="w,l,h,yaw")

    @pytest.mark.parametrize("family", ["bevformer", "uniad"])
    def test_the_width_first_is_to_be_stated(self, family, opened):
        with pytest.raises(SettingError, match="does not say what columns 3 to 6 of its boxes are"):
            opened(pickle_content(SCENES, family))
        assert len(opened(pickle_content(SCENES, family), boxes=False)) == 7

    def test_a_provider_can_be_pickled(self, opened):
        provider = opened(pickle_content(SCENES, "uniad"), boxes_convention=LAYOUT_OF["uniad"])
        content = pickle.dumps(provider)
        assert len(content) < 5000
        copied = pickle.loads(content)
        np.testing.assert_array_equal(
            copied.get_data(2)["boxes"]["centers"], provider.get_data(2)["boxes"]["centers"]
        )


class TestFiles:
    @pytest.mark.parametrize(
        "prefix", ["", "./data/nuscenes/", "data/nuscenes/", "/somewhere/else/nuscenes/", "../data/"]
    )
    def test_are_found_below_the_root(self, opened, prefix):
        provider = opened(pickle_content(SCENES, "mmdet3d_v1", prefix=prefix), lidar=True, num_sweeps=2)
        for frame, files in enumerate(SCENES.cameras.file.astype(str).tolist()):
            own = SCENES.lidar.file[SCENES.lidar.of_frame[frame]].decode()
            assert files_of(provider, frame) == [*files, own]
            provider.get_data(frame)  # with its sweeps

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

    def test_that_are_missing_name_what_was_tried(self, opened, tmp_path):
        content = pickle_content(SCENES, "mmdet3d_v1", prefix="./data/nuscenes/")
        with pytest.raises(FileError, match="is not below `data_root=") as caught:
            opened(content, data_root=tmp_path)
        message = str(caught.value)
        assert "'./data/nuscenes/samples/CAM_FRONT/CAM_FRONT_000.jpg' of CAM_FRONT" in message
        assert f"{tmp_path}/samples/CAM_FRONT/CAM_FRONT_000.jpg" in message
        assert f"{tmp_path}/data/nuscenes/samples/CAM_FRONT/CAM_FRONT_000.jpg" in message

    def test_of_sensors_that_are_not_wanted_may_be_missing(self, root, opened, tmp_path):
        (tmp_path / "part" / "samples").mkdir(parents=True)
        os.symlink(root / "samples" / "CAM_BACK", tmp_path / "part" / "samples" / "CAM_BACK")
        content, settings = pickle_content(SCENES, "mmdet3d_v1"), {"data_root": tmp_path / "part"}
        first = opened(content, cameras=["CAM_BACK"], **settings)
        with pytest.raises(FileError, match="of LIDAR_TOP, which is not below"):
            opened(content, cameras=["CAM_BACK"], lidar=True, **settings)
        os.symlink(root / "samples" / "CAM_FRONT", tmp_path / "part" / "samples" / "CAM_FRONT")
        assert opened(content, **settings).camera_names == CAMERAS
        assert len(first.get_data(0)["cameras"][0]["image"])  # its index is still there

    def test_a_single_one_that_is_missing_is_named_when_it_is_read(self, root, opened):
        def remove(infos):
            infos[2]["cams"]["CAM_BACK"]["data_path"] = "samples/CAM_BACK/none.jpg"

        missing = re.escape(f"{root}/samples/CAM_BACK/none.jpg")
        message = (
            rf"1 of 14 files that '.*infos.pkl' names are not there, e.g. '{missing}'.*1 of 2 scenes .*'scene-1'"
        )
        with pytest.warns(UserWarning, match=message):
            provider = opened(edited("streampetr", remove))
        with pytest.raises(FileError, match=missing):
            provider.get_data(2)
        assert len(opened(edited("streampetr", remove), scenes=["scene-1"])) == 3

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


def _pickle_of_sweeps(root, scenes, sweep_file, sweep_time_s=0.0):
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
    return write_pickle(root / "infos.pkl", {"infos": infos, "metadata": {}})


def _at(name, x=0.0):
    return {f"{name}_rotation": [1, 0, 0, 0], f"{name}_translation": [float(x), 0, 0]}


class TestSweeps:
    @pytest.mark.parametrize("front", ["", "./data/", "/data/made/"])
    def test_of_scenes_whose_files_have_equal_names(self, tmp_path, front):
        path = _pickle_of_sweeps(tmp_path, {"a": 0, "b": 100}, f"{front}{{}}/0.bin")
        provider = InfosProvider(path, tmp_path, index_cache=tmp_path / "cache", lidar=True, num_sweeps=1)
        assert len(index_of(provider).lidar.file) == 4
        for frame, start in ((1, 0), (3, 100)):
            sweep = provider.get_data(frame)["sweeps"][0]
            np.testing.assert_array_equal(sweep["points"], np.full((3, 5), start, np.float32))
            assert (sweep["timestamp"], sweep["reference_from_lidar"][0, 3]) == (start, -1)

    @pytest.mark.parametrize(("time_s", "num_records"), [(0.0, 2), (0.0005, 2), (0.1, 3)])
    def test_of_other_folders_are_keyframes_at_their_time(self, tmp_path, time_s, num_records):
        path = _pickle_of_sweeps(tmp_path, {"a": 5}, "elsewhere/0.bin", time_s)
        provider = InfosProvider(path, tmp_path, index_cache=tmp_path / "cache", lidar=True, num_sweeps=1)
        lidar = index_of(provider).lidar
        assert (len(lidar.file), lidar.sweep.tolist()) == (num_records, [0 if num_records == 2 else 2])

    def test_of_other_folders_are_no_keyframes_where_several_have_their_name(self, tmp_path):
        path = _pickle_of_sweeps(tmp_path, {"a": 0, "b": 100}, "of-{}/0.bin")
        provider = InfosProvider(path, tmp_path, index_cache=tmp_path / "cache", lidar=True, num_sweeps=1)
        lidar = index_of(provider).lidar
        assert lidar.sweep.tolist() == [4, 5]
        assert lidar.file[4:].tolist() == [b"of-a/0.bin", b"of-b/0.bin"]


class TestOrder:
    def test_infos_are_sorted_by_time(self, opened):
        provider = opened(edited("streampetr", lambda infos: infos.reverse()))
        np.testing.assert_array_equal(index_of(provider).frames.token, SCENES.frames.token)

    def test_a_data_list_stays_as_it_is_stored(self, opened):
        def exchange(frames):
            frames[:] = [*frames[4:], *frames[:4]]

        provider = opened(edited("mmdet3d_v2", exchange))
        assert provider.sequence_lengths == (3, 4)
        assert index_of(provider).frames.token[0] == b"token-004"
        np.testing.assert_array_equal(index_of(provider).boxes.center[0], SCENES.boxes.center[4 * 12])

    def test_times_that_go_backwards_in_a_stored_scene_are_refused(self, opened):
        def exchange(frames):
            frames[1], frames[2] = frames[2], frames[1]

        content = edited("mmdet3d_v2", exchange)
        with pytest.raises(FileError, match=r"backwards between the frames 'token-002' .* and 'token-001'"):
            opened(content)
        np.testing.assert_array_equal(index_of(opened(content, order="time")).frames.token, SCENES.frames.token)

    def test_numbers_that_contradict_times_are_refused(self, opened):
        def exchange(infos):
            for one, two in ((1, 2),):
                infos[one]["timestamp"], infos[two]["timestamp"] = infos[two]["timestamp"], infos[one]["timestamp"]

        with pytest.raises(FileError, match=r"go backwards: the frames 'token-002' .* and 'token-001' .* 2 and 1"):
            opened(edited("streampetr", exchange))

    def test_links_that_contradict_times_are_refused(self, opened):
        def exchange(infos):
            infos[1]["timestamp"], infos[2]["timestamp"] = infos[2]["timestamp"], infos[1]["timestamp"]

        with pytest.raises(FileError, match=r"'token-002' .* and 'token-001' .* linked the other way round"):
            opened(edited("bevfusion", exchange))

    def test_scenes_that_are_interleaved_are_refused_or_put_together(self, opened):
        def interleave(infos):
            for info in infos[4:]:
                info["timestamp"] -= 999_750_000

        content = edited("streampetr", interleave)
        with pytest.raises(FileError, match="scenes are interleaved: the frame 'token-001'") as caught:
            opened(content)
        assert "which began with 'token-000', but follows 'token-004'" in str(caught.value)
        provider = opened(content, order="scene")
        np.testing.assert_array_equal(index_of(provider).frames.token, SCENES.frames.token)

    def test_scenes_without_names_that_are_interleaved_are_refused(self, opened):
        def interleave(infos):
            for info in infos[4:]:
                info["timestamp"] -= 999_750_000

        with pytest.raises(FileError, match=r"m apart in the frames 'token-00\d' .* interleaved"):
            opened(edited("mmdet3d_v1", interleave))

    def test_a_time_twice_in_a_scene_is_refused(self, opened):
        def repeat(infos):
            infos[1]["timestamp"] = infos[0]["timestamp"]

        with pytest.raises(FileError, match=r"'token-000' .* and 'token-001' .* have the same time"):
            opened(edited("streampetr", repeat))

    def test_a_token_twice_is_refused(self, opened):
        with pytest.raises(FileError, match="the frames 0 and 7 have the same token 'token-000'"):
            opened(edited("streampetr", lambda infos: infos.append(infos[0])))


class TestScenes:
    @pytest.mark.parametrize(
        ("keys", "rule"),
        [
            ((), "the scene token of each frame"),
            (("scene_token",), "the token of the frame before each"),
            (("scene_token", "prev"), "where the number of the frame in its scene does not grow"),
            (("scene_token", "prev", "frame_idx"), "where a frame has no sweeps before it, or after a pause"),
            (("scene_token", "prev", "frame_idx", "sweeps"), "a scene begins after a pause of more than 2.5 s"),
        ],
    )
    def test_are_told_by_what_there_is(self, opened, keys, rule):
        def remove(infos):
            for info in infos:
                for key in keys:
                    del info[key]

        provider = opened(edited("streampetr", remove))
        assert rule in provider.origin["scenes"]
        assert provider.sequence_lengths == (4, 3)

    @pytest.mark.parametrize("keys", [(), ("frame_idx",)])
    def test_that_lack_frames_are_named(self, opened, keys):
        infos = pickle_content(driving_scenes(lengths=(6, 4)), "streampetr")["infos"]
        for info in infos:
            for key in keys:
                del info[key]
        del infos[3]
        message = r"lacks frames of 1 of 2 scenes.* 'scene-0' between its frames 'token-002' and 'token-004'"
        with pytest.warns(UserWarning, match=message):
            opened({"infos": infos, "metadata": {}}, cameras=[])

    def test_begin_where_the_frame_before_was_left_out(self, opened):
        def remove(infos):
            for info in infos:
                del info["scene_token"]
            del infos[1]

        provider = opened(edited("streampetr", remove))
        assert provider.sequence_lengths == (1, 2, 3)


class TestRefused:
    def test_a_pickle_with_classes_is_never_run(self, opened, tmp_path):
        content = pickle_content(SCENES, "mmdet3d_v1")
        content["metadata"] = _Runs(tmp_path / "was run")
        with pytest.raises(FileError, match=r"infos\.pkl' holds `posix\.mkdir`: only plain values") as caught:
            opened(content)
        assert "put plain values in its place, and write it again" in str(caught.value)
        assert not (tmp_path / "was run").exists()

    def test_a_pickle_that_changes_a_function(self, root, tmp_path):
        """Nothing of NumPy itself can be reached: `BUILD` on a function that is needed to make arrays."""
        for state in (b"N}X\x04\x00\x00\x00nameNs\x86", b"}X\x04\x00\x00\x00nameNs"):
            path = tmp_path / "infos.pkl"
            path.write_bytes(b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n" + state + b"b.")
            with pytest.raises(FileError, match=r"something that sets 'name' of a function|cut short, damaged"):
                InfosProvider(path, root, index_cache=tmp_path)

    def test_a_pickle_with_objects_names_their_class(self, opened):
        content = pickle_content(SCENES, "mmdet3d_v1")
        content["infos"][3]["gt_boxes"] = _Boxes()
        with pytest.raises(FileError, match=r"holds `datasets\.test_infos_provider\._Boxes`|_Boxes`"):
            opened(content)

    @pytest.mark.parametrize("protocol", range(6))
    def test_pickles_of_all_protocols_are_read(self, root, tmp_path, protocol):
        content = pickle_content(SCENES, "mmdet3d_v2")
        content["metainfo"] |= {"more": [b"", b"\xff\x00", True, None, (1.5, np.float32(2), np.arange(3))]}
        path = write_pickle(tmp_path / "infos.pkl", content, protocol)
        assert InfosProvider(path, root, index_cache=tmp_path).get_number_of_samples() == 7

    def test_a_pickle_that_is_cut_short(self, root, tmp_path):
        path = write_pickle(tmp_path / "infos.pkl", pickle_content(SCENES, "mmdet3d_v1"))
        for size in (0, 10, path.stat().st_size // 2):
            path.write_bytes(path.read_bytes()[:size] if size else b"")
            with pytest.raises(FileError, match=r"infos\.pkl' is cut short, damaged, or no pickle"):
                InfosProvider(path, root, index_cache=tmp_path)

    def test_a_text_file(self, root, tmp_path):
        path = tmp_path / "infos.pkl"
        for content in (
            "token,time\n1,2\n",
            '{"infos": []}',
            "x" * 511 + "\u00e9" * 20,
            "version https://git-lfs\n",
        ):
            path.write_text(content, encoding="utf-8")
            with pytest.raises(
                FileError, match=r"infos\.pkl' is no pickle, but text \(\w+: .*\)\. Give the pickle"
            ):
                InfosProvider(path, root, index_cache=tmp_path)

    def test_folders_and_files_that_are_exchanged(self, root, tmp_path):
        path = write_pickle(tmp_path / "infos.pkl", pickle_content(SCENES, "mmdet3d_v1"))
        with pytest.raises(FileError, match=r"`path` must be a pickle file, but '.*' is a folder\.$") as caught:
            InfosProvider(root, root)
        assert isinstance(caught.value, IsADirectoryError)
        with pytest.raises(
            FileError, match=r"`data_root` must be a folder or URL, but '.*infos\.pkl' is a file\.$"
        ):
            InfosProvider(path, path)
        with pytest.raises(FileError, match=r"(?s)is a folder\..*is a file\. Exchange the two arguments\.$"):
            InfosProvider(root, path)

    def test_a_file_that_is_not_there(self, root, tmp_path):
        with pytest.raises(FileError, match=r"none\.pkl' cannot be read: No such file"):
            InfosProvider(tmp_path / "none.pkl", root)

    @pytest.mark.parametrize("content", [{"data": [], "meta": {}}, [1, 2], "text", {"infos": []}, {"infos": 3}])
    def test_what_is_no_info_pickle(self, opened, content):
        with pytest.raises(
            FileError, match=r"must be a dict with the key 'infos' or 'data_list'|must have frames"
        ):
            opened(content)

    @pytest.mark.parametrize(
        ("family", "key", "message"),
        [
            ("mmdet3d_v1", "timestamp", r"infos\[2\] \(token 'token-002'\) has no key 'timestamp'; it has cams, "),
            ("mmdet3d_v1", "ego2global_rotation", r"infos\[2\] .* has no key 'ego2global_rotation'"),
            ("mmdet3d_v1", "gt_names", r"infos\[2\] .* has no key 'gt_names'"),
            ("streampetr", "labels2d", r"infos\[2\] .* has no key 'labels2d'"),
            ("mmdet3d_v1", "gt_boxes", r"infos\[2\] .* lacks boxes, as do 1 of 7 frames"),
            ("bevformer", "can_bus", r"infos\[2\] .* lacks can_bus, as do 1 of 7 frames"),
            ("mmdet3d_v1", "lidar_path", r"infos\[2\] .* lacks the file of the lidar"),
            ("mmdet3d_v2", "ego2global", r"data_list\[2\] .* has no key 'ego2global'"),
            ("mmdet3d_v2", "timestamp", r"data_list\[2\] .* has no key 'timestamp'"),
        ],
    )
    def test_a_key_that_is_missing(self, opened, family, key, message):
        wanted = {"labels2d": "boxes_2d", "can_bus": "can_bus", "lidar_path": "lidar"}
        content = edited(family, lambda infos: infos[2].pop(key))
        layout = LAYOUT_OF.get(family)
        with pytest.raises(FileError, match=message):
            opened(content, boxes_convention=layout, **{wanted[key]: True} if key in wanted else {})
        if key in (*wanted, "gt_names", "gt_boxes"):
            assert len(opened(content, boxes=False)) == 7

    def test_a_key_of_a_camera_or_sweep_that_is_missing(self, opened):
        with pytest.raises(FileError, match=r"infos\[1\] .*\['cams'\]\['CAM_BACK'\] has no key 'data_path'"):
            opened(edited("uniad", lambda infos: infos[1]["cams"]["CAM_BACK"].pop("data_path")))
        with pytest.raises(FileError, match=r"\['sweeps'\]\[0\] has no key 'sensor2ego_rotation'"):
            opened(edited("uniad", lambda infos: infos[1]["sweeps"][0].pop("sensor2ego_rotation")), lidar=True)
        with pytest.raises(FileError, match=r"\['images'\]\['CAM_BACK'\] has no key 'lidar2cam'"):
            opened(edited("mmdet3d_v2", lambda infos: infos[1]["images"]["CAM_BACK"].pop("lidar2cam")))

    @pytest.mark.parametrize(
        ("key", "value", "message"),
        [
            ("gt_boxes", np.zeros((12, 6)), r"\['gt_boxes'\] must have the shape \(n, 7\), got \(12, 6\)"),
            ("gt_boxes", np.full((12, 7), np.nan), r"box 0 must have finite numbers"),
            ("gt_names", ["car"], r"\['gt_names'\] has 1 names, but there are 12 boxes"),
            ("gt_velocity", np.zeros((3, 2)), r"\['gt_velocity'\] must have the shape \(12, 2\), got \(3, 2\)"),
            ("num_lidar_pts", [1], r"\['num_lidar_pts'\] must have the shape \(12\), got \(1,\). There are 12"),
            ("instance_inds", [1], r"\['instance_inds'\] has 1 objects, but there are 12 boxes"),
            ("timestamp", "now", r"\['timestamp'\] must be a number, got 'now'"),
            ("ego2global_rotation", [0, 0, 0, 0], r"the pose of the vehicle must be a rotation"),
            ("ego2global_rotation", [1, 0], r"the pose of the vehicle must be a quaternion"),
            ("lidar2ego_translation", [1, 0], r"the pose of the lidar must be a quaternion"),
            (
                "ego2global_translation",
                [0, np.nan, 0],
                r"must be a rotation and a finite translation, got \(\[.*nan",
            ),
            ("cams", {"CAM_FRONT": 3}, r"\['cams'\]\['CAM_FRONT'\] must be a dict, got 3"),
            ("frame_idx", "first", r" is not as the converters write it: ValueError"),
            ("frame_idx", np.inf, r" is not as the converters write it: OverflowError"),
            ("gt_boxes", [[10**400] * 7], r"\['gt_boxes'\] must hold numbers"),
            ("ego2global_rotation", [10**400] * 4, r"the pose of the vehicle"),
            ("cams", [1, 2], r"\['cams'\] must be a dict, got \[1, 2\]"),
            ("ego_status", [0, 1], r"\['ego_status'\] must have the shape \(10\), got \(2,\)"),
        ],
    )
    def test_a_value_that_is_wrong(self, opened, key, value, message):
        with pytest.raises(FileError, match=rf"infos\[2\] \(token 'token-002'\).*{message}"):
            opened(edited("sparsedrive", lambda infos: infos[2].update({key: value})), ego_status=True)

    @pytest.mark.parametrize(
        ("family", "key", "value"),
        [
            ("sparsedrive", "gt_boxes", np.zeros((12, 6))),
            ("sparsedrive", "gt_names", ["car"]),
            ("sparsedrive", "instance_inds", 5),
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
        provider = opened(content, boxes=False)
        assert provider.get_data(2)["token"] == "token-002"

    def test_a_camera_that_is_wrong_and_not_wanted_is_left_out(self, opened):
        for key, value in (("cam_intrinsic", [1]), ("sensor2ego_rotation", None), ("data_path", 5)):
            content = edited("uniad", lambda infos: infos[2]["cams"]["CAM_BACK"].update({key: value}))  # noqa: B023
            provider = opened(content, cameras=["CAM_FRONT"], boxes=False)
            assert len(provider.get_data(2)["cameras"]) == 1
            with pytest.raises(FileError, match=r"infos\[2\].*CAM_BACK"):
                opened(content, boxes=False)

    def test_labels_without_a_category(self, opened):
        def set_label(frames):
            frames[1]["instances"][2]["bbox_label_3d"] = 10

        with pytest.raises(
            FileError, match=r"\['instances'\]\[2\]\['bbox_label_3d'\] has the label 10, but .* 10 cat"
        ):
            opened(edited("mmdet3d_v2", set_label))
        with pytest.raises(FileError, match=r"\['labels2d'\] has the label 12"):
            opened(edited("streampetr", lambda infos: infos[0]["labels2d"][0].__setitem__(0, 12)), boxes_2d=True)

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (
                [{"image": {}, "point_cloud": {"num_features": 4}, "calib": {}, "annos": {}}],
                "is one of KITTI's object",
            ),
            (
                [{"image": {}, "point_cloud": {"num_features": 6}, "pose": [], "timestamp": 1}],
                "is one of Waymo, .*py1",
            ),
            ({"metainfo": {"dataset": "waymo", "categories": {}}, "data_list": [{}]}, "is one of Waymo"),
            ({"metainfo": {"dataset": "kitti", "CLASSES": ["Car"]}, "data_list": [{}]}, "KittiTrackingProvider"),
            ({"metainfo": {"dataset": "Waymo_Open", "CLASSES": ["Car"]}, "data_list": [{}]}, "one of Waymo"),
            ({"metainfo": {"DATASET": "KITTI"}, "data_list": [{}]}, "KittiTrackingProvider"),
            ({"metainfo": {}, "data_list": [{"images": {"R0_rect": [], "CAM2": {}}}]}, "is one of KITTI's object"),
            (
                {"metainfo": {}, "data_list": [{"images": {"CAM_SIDE_LEFT": {}}, "timestamp": 1}]},
                "is one of Waymo",
            ),
            ([{"image": {}, "point_cloud": {"lidar_sequence": "segment-1"}, "metadata": {}}], "is one of Waymo"),
            (
                [{"image": {}, "point_cloud": {"num_features": 6}, "pts_path": "points/0.bin"}],  # of SUN RGB-D
                r"infos\[0\] .* has no key 'timestamp'",
            ),
            ({"Car": [{"name": "Car", "box3d_lidar": [0] * 7}]}, "a database of objects"),
        ],
    )
    def test_pickles_of_other_data_sets_are_named(self, opened, content, message):
        with pytest.raises(FileError, match=message):
            opened(content)

    def test_cameras_that_are_called_as_those_of_kitti(self, opened):
        def rename(frames):
            for frame in frames:
                images = frame["images"]
                frame["images"] = {f"CAM{number}": image for number, image in enumerate(images.values(), 1)}

        assert opened(edited("mmdet3d_v2", rename), cameras=[]).scene_names

    @pytest.mark.parametrize(
        ("metainfo", "message"),
        [
            ({"CLASSES": ["car", "truck", "car"]}, r"must name each category once, got \['car', 'truck', 'car'\]"),
            ({"categories": {"car": "car"}}, r"must number its 1 names from 0, got \{'car': 'car'\}"),
            ({"categories": {"car": 0, "truck": 0}}, "must number its 2 names from 0"),
        ],
    )
    def test_categories_that_are_none(self, opened, metainfo, message):
        with pytest.raises(FileError, match=f"metainfo.*{message}"):
            opened({**pickle_content(SCENES, "mmdet3d_v2"), "metainfo": metainfo})

    @pytest.mark.parametrize("key", ["categories", "classes", "CLASSES", "array"])
    def test_categories_in_each_spelling(self, opened, key):
        content = pickle_content(SCENES, "mmdet3d_v2")
        names = content["metainfo"].pop("categories")
        as_list = np.array([*names]) if key == "array" else [*names]
        content["metainfo"]["CLASSES" if key == "array" else key] = names if key == "categories" else as_list
        provider = opened(content)
        assert index_of(provider).categories == CATEGORIES
        np.testing.assert_array_equal(index_of(provider).boxes.category, SCENES.boxes.category)

    def test_classes_that_no_box_has(self, opened, caplog):
        def rename(infos):
            for info in infos:
                info["gt_names"] = np.array(["other_vehicle"] * len(info["gt_names"]))

        content = edited("bevformer", rename)
        counts = r"Its boxes are: other_vehicle \(\d+\)"
        with pytest.raises(SettingError, match=rf"classes: no box of the data set is one of them. {counts}\."):
            opened(content, boxes_convention="w,l,h,-yaw-pi/2", classes=StreamPETRSettings().classes)
        wanted = {"car": "car", "other_vehicle": "car", "bus": "bus"}
        provider = opened(content, boxes_convention="w,l,h,-yaw-pi/2", classes=wanted)
        assert set(provider.get_data(0)["boxes"]["categories"]) == {0}
        assert re.search(rf"classes: no box of the data set is bus\. {counts}", caplog.text)

    def test_a_class_that_is_no_category(self, opened):
        with pytest.raises(SettingError, match=r"no category 'cars'\. Did you mean 'car'"):
            opened(pickle_content(SCENES, "mmdet3d_v1"), classes=["cars"])

    def test_what_the_pickle_lacks(self, opened):
        with pytest.raises(SettingError, match="can_bus: the data set has none"):
            opened(pickle_content(SCENES, "mmdet3d_v1"), can_bus=True)
        with pytest.raises(SettingError, match="num_future_frames: the data set has none"):
            opened(pickle_content(SCENES, "mmdet3d_v1"), num_future_frames=3)

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"boxes_convention": "lwh"}, "`boxes_convention` must be one of None, 'l,w,h,yaw'"),
            ({"z": "middle"}, "`z` must be one of None, 'center', 'bottom'"),
            ({"order": "random"}, "`order` must be one of None, 'time', 'stored', 'scene'"),
        ],
    )
    def test_settings(self, opened, settings, message):
        with pytest.raises(SettingError, match=message):
            opened(pickle_content(SCENES, "mmdet3d_v1"), **settings)


class TestLessUsual:
    def test_a_pickle_without_boxes(self, opened):
        def remove(infos):
            for info in infos:
                del info["gt_boxes"]

        provider = opened(edited("mmdet3d_v1", remove))
        assert index_of(provider).boxes is None
        assert "boxes" not in provider.sample_data_structure.field_names_flat

    @pytest.mark.parametrize("family", ["mmdet3d_v1", "mmdet3d_v2"])
    def test_a_pickle_whose_frames_are_empty(self, opened, family):
        def remove(infos):
            for info in infos:
                if family == "mmdet3d_v2":
                    info["instances"], info["cam_instances"] = [], {}
                    continue
                for name in (
                    "gt_boxes",
                    "gt_names",
                    "gt_velocity",
                    "num_lidar_pts",
                    "num_radar_pts",
                    "valid_flag",
                ):
                    info[name] = info[name][:0]

        provider = opened(edited(family, remove))
        assert provider.get_data(0)["boxes"]["centers"].shape == (0, 3)

    def test_other_categories_follow_the_known_ones(self, opened):
        def rename(infos):
            infos[0]["gt_names"] = infos[0]["gt_names"].astype("U30")
            infos[0]["gt_names"][:2] = ["animal", "Debris"]

        provider = opened(edited("mmdet3d_v1", rename))
        assert provider.class_names == (*CATEGORIES, "Debris", "animal")
        assert index_of(provider).boxes.category[:2].tolist() == [11, 10]

    def test_a_label_of_no_category(self, opened):
        def set_label(frames):
            frames[0]["instances"][0]["bbox_label_3d"] = -1

        assert index_of(opened(edited("mmdet3d_v2", set_label))).boxes.category[0] == -1

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
        message = r"(?s)what is requested of it in '.*infos\.pkl'.*'token-001' has none of CAM_BACK\n.*Leave the"
        with pytest.raises(SettingError, match=message):
            opened(content)
        provider = opened(content, cameras=["CAM_FRONT"])
        assert index_of(provider).cameras.file[1, 1] == b""
        assert bytes(provider.get_data(1)["cameras"][0]["image"]).startswith(b"P6")
        assert opened(content, scenes=["token-004"]).camera_names == CAMERAS

    def test_objects_by_token(self, opened):
        def by_token(infos):
            for info in infos:
                del info["gt_inds"]

        provider = opened(edited("uniad", by_token), boxes_convention=LAYOUT_OF["uniad"])
        number_of = {}
        expected = [number_of.setdefault(one, len(number_of)) for one in SCENES.boxes.instance.tolist()]
        np.testing.assert_array_equal(index_of(provider).boxes.instance, expected)

    @pytest.mark.parametrize(("family", "cameras"), [("uniad", "cams"), ("mmdet3d_v2", "images")])
    def test_calibrations_that_frames_share(self, opened, family, cameras):
        """Objects that are in a pickle once, as converters share them, and copies of them."""
        names = ["sensor2ego_rotation", "sensor2ego_translation", "cam_intrinsic", "cam2ego", "cam2img"]

        def share(infos):
            known = [copy.copy(image) for image in infos[0][cameras].values()]
            for place, info in enumerate(infos):
                for image, first in zip(info[cameras].values(), known[:: 1 if place < 4 else -1], strict=True):
                    image.update({key: first[key] for key in names if key in first})

        content, layout = edited(family, share), LAYOUT_OF.get(family)
        shared = index_of(opened(content, boxes_convention=layout)).cameras
        form = "infos" if family == "uniad" else "data_list"
        copies = {**content, form: [copy.deepcopy(info) for info in content[form]]}
        copied = index_of(opened(copies, boxes_convention=layout)).cameras
        assert not np.array_equal(shared.ego_from_camera[0], shared.ego_from_camera[4])
        for name in ("intrinsics", "ego_from_camera", "camera_from_base"):
            np.testing.assert_array_equal(getattr(shared, name), getattr(copied, name))
        content[form][2][cameras]["CAM_BACK"][names[0] if family == "uniad" else "cam2ego"][0] = np.nan
        with pytest.raises(FileError, match=rf"{form}\[4\] .*CAM_FRONT'\]: the pose of the camera must be"):
            opened(content, boxes_convention=layout)

    def test_boxes_of_nine_columns(self, opened):
        def join(infos):
            for info in infos:
                info["gt_boxes"] = np.hstack([info["gt_boxes"], info.pop("gt_velocity")])

        provider = opened(edited("mmdet3d_v1", join))
        np.testing.assert_allclose(index_of(provider).boxes.velocity, SCENES.boxes.velocity, atol=1e-9)


class _Runs:
    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


@attrs.define
class _Boxes:
    tensor: int = 3
