"""Logs of py123d."""

import gc
import os
import pickle

import numpy as np
import pytest
from driving_support.arrow_logs import CAMERAS, HEIGHT, NUM_FRAMES, WIDTH, ArrowLog, jpeg
from support.refusals import assert_refused
from support.videos import make_video, read_numbers

from accvlab.dali_pipeline_framework.errors import FileError, FrameworkError, VideoError
from accvlab.dali_pipeline_framework.testing import check_provider
from accvlab.driving_data.datasets import ArrowLogProvider
from accvlab.driving_data.datasets.arrow_logs import LABEL_NAMES

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("msgpack", reason="msgpack is not installed")


def text_of(value):
    return value if isinstance(value, str) else bytes(value).decode()


def homogeneous(pose):
    return np.vstack([pose, [0, 0, 0, 1]])


def names_of(provider, frame):
    return [provider.class_names[number] for number in provider.get_data(frame)["boxes"]["categories"]]


class TestSamples:
    def test_project_boxes_where_numpy_does(self, tmp_path):
        log = ArrowLog()
        log.write(tmp_path)
        sample = ArrowLogProvider(tmp_path).get_data(2)
        boxes = log.global_boxes(2)
        for k, camera in enumerate(CAMERAS):
            delivered = sample["cameras"][k]
            world_from_camera = homogeneous(log.ego_at(int(log.camera_times[camera][2]))) @ homogeneous(
                log.ego_from_camera[camera]
            )
            expected = (np.linalg.inv(world_from_camera) @ np.c_[boxes[:, :3], np.ones(len(boxes))].T)[:3].T
            fx, fy, cx, cy, _ = log.camera_metadata[camera]["intrinsics"]
            pixels = expected[:, :2] / expected[:, 2:] * [fx, fy] + [cx, cy]
            centers = np.c_[sample["boxes"]["centers"], np.ones(len(boxes))]
            found = (delivered["intrinsics"] @ delivered["camera_from_reference"][:3] @ centers.T).T
            np.testing.assert_allclose(found[:, :2] / found[:, 2:], pixels, atol=1e-3)
            np.testing.assert_allclose(found[:, 2], expected[:, 2], rtol=1e-6)
            assert delivered["timestamp"] == log.camera_times[camera][2] / 1e6

    def test_hold_boxes_in_the_vehicle(self, tmp_path):
        log = ArrowLog()
        log.write(tmp_path)
        provider = ArrowLogProvider(tmp_path)
        boxes = provider.get_data(2)["boxes"]
        expected = np.array(log.boxes[2])
        np.testing.assert_allclose(boxes["centers"], expected[:, :3], atol=1e-5)
        np.testing.assert_allclose(boxes["yaws"], expected[:, 3], atol=1e-6)
        np.testing.assert_allclose(boxes["sizes"], expected[:, 4:], rtol=1e-6)
        rotation = log.ego_at_frames()[2][:, :3]
        np.testing.assert_allclose(boxes["velocities"][0], rotation.T @ [1.0, 2.0, 0.5], rtol=1e-5)
        assert np.isnan(boxes["velocities"][1]).all()
        assert names_of(provider, 2) == ["regular_vehicle", "pedestrian"]
        np.testing.assert_array_equal(boxes["num_lidar_points"], [7, -1])
        instances = [provider.get_data(frame)["boxes"]["instances"].tolist() for frame in range(NUM_FRAMES)]
        assert instances == [[0, 1], [0], [0, 1], [0]]

    def test_hold_the_vehicle(self, tmp_path):
        log = ArrowLog()
        log.write(tmp_path)
        sample = ArrowLogProvider(tmp_path, can_bus=True).get_data(1)
        np.testing.assert_allclose(sample["ego"]["world_from_ego"][:3], log.ego_at_frames()[1], atol=1e-9)
        np.testing.assert_array_equal(sample["ego"]["can_bus"][:3], sample["ego"]["world_from_ego"][:3, 3])
        np.testing.assert_array_equal(sample["ego"]["can_bus"][7:16], log.motion[4][[3, 4, 5, 6, 7, 8, 0, 1, 2]])
        np.testing.assert_allclose(sample["ego"]["can_bus"][16], 0.4 + 0.02 * 4)
        assert sample["timestamp"] == log.times[1] / 1e6
        assert text_of(sample["scene"]) == "made_train/log-a"
        assert len(text_of(sample["token"])) == 36

    def test_have_poses_between_those_of_the_vehicle_where_none_is_stored(self, tmp_path):
        found = []
        for is_stored in (True, False):
            log = ArrowLog()
            log.stored_poses = is_stored
            log.write(tmp_path / str(is_stored))
            cameras = ArrowLogProvider(tmp_path / str(is_stored)).get_data(1)["cameras"].values()
            found.append([camera["camera_from_reference"] for camera in cameras])
        np.testing.assert_allclose(*found, atol=1e-9)

    def test_hold_points_and_earlier_ones(self, tmp_path):
        log = ArrowLog()
        log.write(tmp_path)
        provider = ArrowLogProvider(tmp_path, lidar=True, num_sweeps=2)
        assert provider.point_columns == ("x", "y", "z", "intensity")
        sample = provider.get_data(1)
        np.testing.assert_array_equal(sample["lidar"]["points"], log.points[1])
        np.testing.assert_allclose(sample["lidar"]["reference_from_lidar"], np.eye(4), atol=1e-12)
        np.testing.assert_array_equal(sample["sweeps"][0]["points"], log.points[0])
        assert len(sample["sweeps"][1]["points"]) == 0
        here, before = map(homogeneous, log.ego_at_frames()[[1, 0]])
        moved = np.linalg.inv(here) @ before
        np.testing.assert_allclose(sample["sweeps"][0]["reference_from_lidar"], moved, atol=1e-9)
        check_provider(provider, start_method="fork")
        content = pickle.dumps(provider)  # without its files
        assert len(content) < 1200
        assert bytes(pickle.loads(content).get_data(1)["cameras"][0]["image"]) == log.images["pcam_f0"][1]

    def test_without_points_of_their_own_have_the_earlier_ones(self, tmp_path):
        log = ArrowLog()
        log.sync["lidar.lidar_merged"] = [None, 1, None, 3]
        log.write(tmp_path)
        provider = ArrowLogProvider(tmp_path, lidar=True, num_sweeps=3)
        expected = {0: [], 1: [log.points[0]], 2: [log.points[1], log.points[0]], 3: log.points[2::-1]}
        for frame, earlier in expected.items():
            sample = provider.get_data(frame)
            assert len(sample["lidar"]["points"]) == (0 if frame in (0, 2) else 5 + frame)
            for place, sweep in enumerate(sample["sweeps"].values()):
                known = earlier[place] if place < len(earlier) else np.zeros((0, 4))
                np.testing.assert_array_equal(sweep["points"], known)
        here, before = map(homogeneous, log.ego_at_frames()[[2, 1]])
        of_newest = provider.get_data(2)["sweeps"][0]
        np.testing.assert_allclose(of_newest["reference_from_lidar"], np.linalg.inv(here) @ before, atol=1e-9)

    def test_of_several_logs_are_scenes(self, tmp_path):
        ArrowLog(name="log-b").write(tmp_path)
        other = ArrowLog(seed=1, name="log-a")
        other.label_class = "py123d.parser.registry.NuPlanBoxDetectionLabel"
        other.labels = [[0, 2][: len(boxes)] for boxes in other.boxes]
        other.write(tmp_path)
        provider = ArrowLogProvider(tmp_path)
        assert provider.scene_names == ("made_train/log-a", "made_train/log-b")
        assert provider.sequence_lengths == (NUM_FRAMES, NUM_FRAMES)
        assert names_of(provider, 0) == ["vehicle", "pedestrian"]
        assert names_of(provider, 4) == ["regular_vehicle", "pedestrian"]


class TestImages:
    @pytest.mark.parametrize(("compression", "extension"), [(None, ".jpg"), ("zstd", ".png")])
    def test_are_the_bytes_in_the_file(self, tmp_path, compression, extension):
        log = ArrowLog()
        log.compression = compression
        log.images["pcam_f0"] = [jpeg(n, extension) for n in range(NUM_FRAMES)]
        folder = log.write(tmp_path)
        provider = ArrowLogProvider(tmp_path)
        images = {
            (frame, place): camera["image"]
            for frame in (3, 0, 2)
            for place, camera in provider.get_data(frame)["cameras"].items()
        }
        again = provider.get_data(3)["cameras"][0]["image"]
        assert compression or images[3, 0].ctypes.data == again.ctypes.data  # the same place of the mapped file
        del provider, again
        gc.collect()
        (folder / "camera.pcam_f0.arrow").unlink()  # they outlive both
        for (frame, place), image in images.items():
            assert not image.flags.writeable
            assert bytes(image) == log.images[CAMERAS[place]][frame]

    @pytest.mark.parametrize("is_open", [True, False])
    def test_of_a_file_that_was_written_again_are_refused(self, tmp_path, is_open):
        log = ArrowLog()
        path = log.write(tmp_path) / "camera.pcam_f0.arrow"
        provider = ArrowLogProvider(tmp_path)
        if is_open:
            provider.get_data(0)
        log.images["pcam_f0"].reverse()
        log.write(tmp_path)
        os.utime(path, (0, 2**32))  # the clock of a file system has ticks
        words = "pcam_f0.arrow' was written again after its rows were found"
        assert_refused(lambda: provider.get_data(1), words, FileError)

    def test_are_files_where_paths_are_stored(self, tmp_path):
        log = ArrowLog()
        (tmp_path / "images").mkdir()
        contents, names = log.images["pcam_f0"], [f"images/{number}.jpg" for number in range(NUM_FRAMES)]
        for name, content in zip(names, contents, strict=True):
            (tmp_path / name).write_bytes(content)
        log.images["pcam_f0"] = names
        log.write(tmp_path / "logs")
        for root in (tmp_path, {"made": tmp_path}):
            sample = ArrowLogProvider(tmp_path / "logs", sensor_root=root).get_data(1)
            assert bytes(sample["cameras"][0]["image"]) == contents[1]
        words = "`sensor_root` must say where the data set 'made' lies"
        for root in (None, {"nuscenes": tmp_path}):
            assert_refused(lambda root=root: ArrowLogProvider(tmp_path / "logs", sensor_root=root), words)

    def test_are_pixels_where_they_are_frames_of_a_video(self, tmp_path):
        pytest.importorskip("av")
        log = ArrowLog()
        log.images["pcam_f0"] = [0, 3, 5, 8]
        log.camera_metadata["pcam_f0"] |= {"width": 96, "height": 64}
        folder = log.write(tmp_path)
        video = folder / "camera.pcam_f0.mp4"
        settings = {"cameras": ["pcam_f0"]}
        words = "None of the 4 files of pcam_f0"
        assert_refused(lambda: ArrowLogProvider(tmp_path, **settings), words, FileError)
        assert ArrowLogProvider(tmp_path, cameras=["pcam_l0"]).get_data(0)["cameras"][0]["image"].ndim == 1
        make_video(video, 10, "libx264")
        provider = ArrowLogProvider(tmp_path, **settings)
        of_batch = provider.load_batch([3, 0, 3, 1, 2], range(5))
        assert read_numbers(np.stack([sample["cameras"][0]["image"] for sample in of_batch])) == [8, 0, 8, 3, 5]
        check_provider(provider, start_method="fork")
        words = "all encoded or all of videos...pcam_f0: videos, pcam_l0: files"
        assert_refused(lambda: ArrowLogProvider(tmp_path), words)
        make_video(video, 8, "libx264")
        again = ArrowLogProvider(tmp_path, **settings)
        words = "frame 8 of the video ...pcam_f0.mp4', whose frames are 0 to 7"
        assert_refused(lambda: again.get_data(3), words, VideoError)
        log.images["pcam_f0"] = [0, 1, 2, 3]  # frame by frame, of which there must be as many
        log.write(tmp_path)
        each = ArrowLogProvider(tmp_path, **settings)
        assert_refused(lambda: each.get_data(0), "has 4 time stamps ...which has 8 frames", VideoError)


MEI = {"projection": [90.0, 80.0, 30.0, 20.0], "mirror_parameter": 1.0}


@pytest.mark.parametrize(
    ("model", "camera", "matrix"),
    [
        ("ftheta", {"intrinsics": [30.0, 20.0, 0.0, 90.0, *[0.1] * 10]}, [[90, 0, 30], [0, 90, 20], [0, 0, 1]]),
        ("fisheye_mei", MEI, [[45, 0, 30], [0, 40, 20], [0, 0, 1]]),
    ],
)
def test_fisheye_cameras_have_the_matrix_around_their_axis(tmp_path, model, camera, matrix):
    log = ArrowLog()
    of_camera(camera_model=model, **camera)(log)
    log.write(tmp_path)
    provider = ArrowLogProvider(tmp_path)
    np.testing.assert_allclose(provider.get_data(0)["cameras"][0]["intrinsics"], matrix)
    assert provider.origin["camera_models"]["pcam_f0"]["camera_model"] == model


def of_log(**values):
    """What changes attributes of a log."""
    return lambda log: [
        setattr(log, name, value(log) if callable(value) else value) for name, value in values.items()
    ]


def of_camera(**values):
    """What changes the metadata of the front camera."""
    return lambda log: log.camera_metadata["pcam_f0"].update(values)


def of_column(modality, name, values, dtype):
    """What stores other values in a column."""

    def change(log):
        log.columns[f"{modality}.{name}"] = (values, dtype)

    return change


def without_name(log):
    """What leaves the name of the log out of its metadata."""
    del log.head["log_name"]


CLOCK = {"ego_times": lambda log: log.ego_times - 3_600_000_000, "stored_poses": False, "camera_metadata": {}}
BOXES = "box_detections_se3"
ERRORS = {  # the words of the message, and what is changed
    "has no ego_state_se3.arrow": of_log(left_out={"ego_state_se3"}, sync={"ego_state_se3": [None] * NUM_FRAMES}),
    "has no poses": of_column("ego_state_se3", "imu_se3", [None] * 12, pa.list_(pa.float64(), 7)),
    "has no column 'camera.pcam_l0.data'...camera.pcam_l0.timest": of_log(left_out={"camera.pcam_l0.data"}),
    f"'{BOXES}.bounding_box_se3' of": of_column(BOXES, "bounding_box_se3", [1.0] * NUM_FRAMES, pa.float64()),
    "as many elements as there are": of_column(BOXES, "label", [[18, 16]] * NUM_FRAMES, pa.list_(pa.uint16())),
    "'sync.timestamp_us' of ...not go back, ...(row 2)": of_log(times=lambda log: log.times[[0, 2, 1, 3]]),
    "Row 3 ...must name rows of ...f0.arrow', which has 4, ...got 4.": of_log(
        sync={"camera.pcam_f0": [0, 1, 2, 4]}
    ),
    "Row 1 of ...got -5.": of_log(sync={BOXES: [0, -5, 2, 3]}),
    "ego_state_se3.arrow' must have a place of the vehicle near each frame; 4 of 4 frames": of_log(**CLOCK),
    "a quaternion that is not 0, 7 numbers, got [1, 2, 3]": of_camera(camera_to_imu_se3=[1, 2, 3]),
    "intrinsics of 'pcam_f0' must be a matrix of finite": of_camera(intrinsics=[0.0, 60.0, 1.0, 1.0, 0.0]),
    "camera.pcam_f0.arrow' cannot be used: ...metadata is {": of_camera(intrinsics=[60.0]),
    "must be pinhole, fisheye_mei or ftheta, got 'orthographic'": of_camera(camera_model="orthographic"),
    "must have a UUID of 16 bytes for each frame, got int64": of_column("sync", "uuid", [*range(4)], pa.int64()),
    "The metadata of ...sync.arrow' must have 'log_name'.": without_name,
}


class TestErrors:
    @pytest.mark.parametrize("words", ERRORS)
    def test_name_the_file(self, tmp_path, words):
        log = ArrowLog()
        ERRORS[words](log)
        log.write(tmp_path)
        assert_refused(lambda: ArrowLogProvider(tmp_path), words, FileError)

    def test_of_folders(self, tmp_path):
        assert_refused(lambda: ArrowLogProvider(tmp_path), "There is no log in ...sync.arrow", FileError)
        ArrowLog().write(tmp_path / "a")
        words = "`lidar_sensor` is 'top', which no log has. There are: lidar_merged."
        assert_refused(lambda: ArrowLogProvider(tmp_path / "a", lidar_sensor="top"), words)
        ArrowLog().write(tmp_path)
        words = "The frame ...in the scene 'made_train/log-a': its token is that of an earlier frame."
        assert_refused(lambda: ArrowLogProvider(tmp_path), words, FileError)

    def test_of_missing_images_are_in_the_log(self, tmp_path, caplog):
        log = ArrowLog()
        log.sync["camera.pcam_f0"] = [0, None, 2, None]
        log.write(tmp_path)
        assert len(ArrowLogProvider(tmp_path)) == 4
        assert f"have no image of pcam_f0 in '{tmp_path}': their samples cannot be loaded" in caplog.text
        assert "2 of 4 frames, e.g." in caplog.text

    def test_of_labels_of_an_unknown_class(self, tmp_path):
        log = ArrowLog()
        log.label_class = "mine.MyLabel"
        log.write(tmp_path)
        assert_refused(lambda: ArrowLogProvider(tmp_path), "label_names={'MyLabel':")
        names = [f"thing-{number}" for number in range(20)]
        assert ArrowLogProvider(tmp_path, label_names={"MyLabel": names}).class_names == tuple(names)
        few = {"MyLabel": ["a", "b"]}
        words = "has the label 18, there are 2: a, b"
        assert_refused(lambda: ArrowLogProvider(tmp_path, label_names=few), words, FileError)

    def test_of_what_is_not_requested_are_none(self, tmp_path):
        log = ArrowLog()
        log.label_class = "mine.MyLabel"
        log.camera_metadata["pcam_l0"]["camera_model"] = "orthographic"
        folder = log.write(tmp_path)
        for name, damaged in (("log-b", "ego_state_se3"), ("log-c", "sync")):
            (ArrowLog(name=name).write(tmp_path) / f"{damaged}.arrow").write_bytes(b"x")
        path = folder / "lidar.lidar_merged.arrow"
        path.write_bytes(path.read_bytes()[:-20])
        wanted = {"scenes": ["made_train/log-a"], "boxes": False, "cameras": ["pcam_f0"]}
        assert len(ArrowLogProvider(tmp_path, **wanted).get_data(0)["cameras"]) == 1
        for name, value, words in (
            ("scenes", ["made_train/log-b"], "ego_state_se3.arrow' cannot be read"),
            ("scenes", ["made_train/log-c"], "log-c/sync.arrow"),
            ("scenes", None, "cannot be read"),
            ("boxes", None, "label_names={'MyLabel':"),
            ("cameras", None, "must be pinhole, fisheye_mei or ftheta"),
            ("lidar", True, "lidar_merged.arrow' cannot be read"),
        ):
            given = {**wanted, name: value}
            assert_refused(lambda given=given: ArrowLogProvider(tmp_path, **given), words, FrameworkError)

    @pytest.mark.parametrize(
        ("value", "dtype", "words"),
        [
            ("points/1.bin", pa.string(), "stored as paths of files of the data set"),
            (b"points", pa.binary(), "The points in row 0 of ...are no Arrow stream (LAZ or Draco, maybe)"),
            (b"\xff\xff\xff\xff" + bytes(40), pa.binary(), "The points in row 0 of ...cannot be read"),
        ],
    )
    def test_of_points_in_another_form(self, tmp_path, value, dtype, words):
        log = ArrowLog()
        of_column("lidar.lidar_merged", "data", [value] * NUM_FRAMES, dtype)(log)
        log.write(tmp_path)
        assert_refused(lambda: ArrowLogProvider(tmp_path, lidar=True), words, FileError)
        assert len(ArrowLogProvider(tmp_path)) == NUM_FRAMES


class TestAgainstPy123d:
    """py123d writes and reads, we read the same."""

    @pytest.fixture(autouse=True)
    def _py123d(self):
        pytest.importorskip("py123d.api.scene.arrow.arrow_log_writer", reason="py123d is not installed")

    def test_labels_have_its_names(self):
        from py123d.datatypes.detections.box_detection_label import BOX_DETECTION_LABEL_REGISTRY

        for name, labels in BOX_DETECTION_LABEL_REGISTRY.items():
            assert LABEL_NAMES[name] == [label.name.lower() for label in labels]

    @pytest.mark.parametrize(
        ("images", "at_own_rates"),
        [("jpeg_binary", False), ("png_binary", False), ("mp4", False), ("jpeg_binary", True)],
    )
    def test_what_it_writes(self, tmp_path, images, at_own_rates):
        log = ArrowLog()
        api = written_by_py123d(log, tmp_path, images, at_own_rates)
        provider = ArrowLogProvider(tmp_path, lidar=True)
        assert len(provider) == NUM_FRAMES
        for frame in range(NUM_FRAMES):
            sample = provider.get_data(frame)
            assert_same_as_py123d(sample, api, frame, provider, images)
            if at_own_rates:
                found = [bytes(camera["image"]) for camera in sample["cameras"].values()]
                assert found == [log.images[camera][frame] for camera in CAMERAS]


def written_by_py123d(log, root, images, at_own_rates):
    """Write a log with py123d, and open it there.

    At own rates, the vehicle is written at all its times, and cameras without poses; py123d makes the frames.
    """
    import cv2
    from driving_support.arrow_logs import values_of
    from py123d import datatypes as of
    from py123d.api.scene.arrow.arrow_log_writer import ArrowLogWriter, SyncConfig
    from py123d.api.scene.arrow.arrow_scene_api import ArrowSceneAPI
    from py123d.api.scene.arrow.utils.log_writer_config import LogWriterConfig
    from py123d.datatypes.vehicle_state.ego_state_metadata import get_carla_lincoln_mkz_2020_metadata
    from py123d.geometry import BoundingBoxSE3, PoseSE3, Vector3D
    from py123d.parser.base_dataset_parser import ModalitiesSync, ParsedCamera
    from py123d.parser.registry import AV2SensorBoxDetectionLabel as Label

    from accvlab.driving_data.datasets.driving import poses

    def pose_of(values):
        return PoseSE3.from_list(values_of(values).tolist())

    codecs = {"camera_store_option": images, "lidar_store_option": "binary", "lidar_codec": "ipc_zstd"}
    rate = SyncConfig("lidar.lidar_merged.timestamp_us")
    writer = ArrowLogWriter(LogWriterConfig(**codecs, write_route=False), root, root, sync_config=rate)
    assert writer.reset(of.LogMetadata("made", "made_train", "log-a", None))
    vehicle, top = get_carla_lincoln_mkz_2020_metadata(), of.LidarID.LIDAR_TOP
    lidar = of.LidarMergedMetadata({top: of.LidarMetadata("top", top)})
    cameras = {
        name: of.PinholeCameraMetadata(
            name,
            of.CameraID.deserialize(name),
            of.PinholeIntrinsics(*metadata["intrinsics"]),
            None,
            WIDTH,
            HEIGHT,
            PoseSE3.from_list(metadata["camera_to_imu_se3"]),
            True,
        )
        for name, metadata in log.camera_metadata.items()
    }

    def ego_state(number):
        return of.EgoStateSE3.from_imu(
            imu_se3=pose_of(log.world_from_ego[number]),
            metadata=vehicle,
            dynamic_state_se3=of.DynamicStateSE3.from_array(log.motion[number]),
            timestamp=of.Timestamp.from_us(int(log.ego_times[number])),
        )

    for number in range(len(log.ego_times)) if at_own_rates else ():
        writer.write_async(ego_state(number))
    for frame, time in enumerate(log.times):
        now = of.Timestamp.from_us(int(time))
        boxes = [
            of.BoxDetectionSE3(
                of.BoxDetectionAttributes(Label(label), track, 3),
                BoundingBoxSE3.from_list(box.tolist()),
                Vector3D(1.0, 2.0, 3.0) if number == 0 else None,
            )
            for number, (box, label, track) in enumerate(
                zip(log.global_boxes(frame), log.labels[frame], log.tracks[frame], strict=True)
            )
        ]
        points = log.points[frame][:, :3].copy()
        intensity = {"intensity": np.arange(len(points), dtype=np.uint8)}
        times = {"timestamp": now, "timestamp_end": now}
        modalities = [
            of.BoxDetectionsSE3(boxes, now, of.BoxDetectionsSE3Metadata(Label)),
            of.Lidar(metadata=lidar, point_cloud_3d=points, point_cloud_features=intensity, **times),
        ]
        for camera, metadata in cameras.items():
            content = log.images[camera][frame]
            taken = of.Timestamp.from_us(int(log.camera_times[camera][frame]))
            if at_own_rates:
                modalities.append(ParsedCamera(metadata, taken, None, byte_string=content))
                continue
            image = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_COLOR)
            pose = poses.joined(log.ego_at(taken.time_us), log.ego_from_camera[camera])
            modalities.append(of.Camera(metadata, image, pose_of(pose), taken))
        if at_own_rates:
            for modality in modalities:
                writer.write_async(modality)
        else:
            writer.write_sync(ModalitiesSync(timestamp=now, modalities=[ego_state(2 + 2 * frame), *modalities]))
    writer.close()
    scene = of.SceneMetadata("made", "made_train", "", 0, NUM_FRAMES - 1, 0, 0.3, 0.0, 0.1)
    return ArrowSceneAPI(log_dir=root / "made_train" / "log-a", scene_metadata=scene)


def assert_same_as_py123d(sample, api, frame, provider, images):
    from py123d.datatypes import CameraID

    world_from_ego = api.get_ego_state_se3_at_iteration(frame).imu_se3.transformation_matrix
    np.testing.assert_allclose(sample["ego"]["world_from_ego"], world_from_ego, rtol=1e-9, atol=1e-9)
    detections = list(api.get_box_detections_se3_at_iteration(frame))
    ego_from_world, boxes = np.linalg.inv(world_from_ego), sample["boxes"]
    assert len(boxes["centers"]) == len(detections)
    assert names_of(provider, frame) == [box.attributes.label.name.lower() for box in detections]
    for number, box in enumerate(detections):
        center = ego_from_world @ [*box.center_se3.point_3d.array, 1]
        np.testing.assert_allclose(boxes["centers"][number], center[:3], atol=1e-4)
        np.testing.assert_allclose(boxes["sizes"][number], box.bounding_box_se3.array[7:], rtol=1e-6)
        known = [np.nan] * 3 if box.velocity_3d is None else ego_from_world[:3, :3] @ box.velocity_3d.array
        np.testing.assert_allclose(boxes["velocities"][number], known, rtol=1e-5)
    centers = np.array([box.center_se3.point_3d.array for box in detections])
    for k, name in enumerate(CAMERAS):
        camera = api.get_camera_at_iteration(frame, CameraID.deserialize(name))
        delivered = sample["cameras"][k]
        pixels, _, depths = camera.project_points_global(centers)
        moved = delivered["camera_from_reference"] @ np.c_[boxes["centers"], np.ones(len(centers))].T
        found = (delivered["intrinsics"] @ moved[:3]).T
        np.testing.assert_allclose(found[:, :2] / found[:, 2:], pixels, atol=1e-2)
        np.testing.assert_allclose(found[:, 2], depths, rtol=1e-5)
        if images == "mp4":
            np.testing.assert_allclose(delivered["image"].astype(int), camera.image, atol=4)
    points, cloud = sample["lidar"]["points"], api.get_lidar_at_iteration(frame, "lidar_merged")
    np.testing.assert_array_equal(points[:, :3], cloud.point_cloud_3d)
    np.testing.assert_array_equal(points[:, 3], cloud.point_cloud_features["intensity"])
