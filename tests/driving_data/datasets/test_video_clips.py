"""Clips of video: PhysicalAI-AV and LeRobot."""

import json
import pickle

import numpy as np
import pytest
from driving_support.clip_data import (
    AXES,
    FRAME_TIMES,
    FRONT,
    LEFT,
    LENGTHS,
    NUM_FRAMES,
    world_from_ego,
    write_lerobot,
    write_physical_ai,
)
from driving_support.driving_data import index_of
from support.file_server import FileServer
from support.optional_packages import has
from support.videos import make_video, read_numbers

from accvlab.dali_pipeline_framework import DataLoader, RemoteReading, StreamingSequenceSampler
from accvlab.dali_pipeline_framework.errors import FileError, SettingError, VideoError
from accvlab.dali_pipeline_framework.testing import check_provider
from accvlab.driving_data.datasets import ClipLayout, DrivingProvider, LeRobotProvider, PhysicalAiProvider

pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("av", reason="PyAV is not installed")


@pytest.fixture(autouse=True)
def _index_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ACCVLAB_INDEX_CACHE", str(tmp_path / "indices"))


def numbers_of(samples, camera=0):
    return read_numbers(np.stack([sample["cameras"][camera]["image"] for sample in samples]))


class TestPhysicalAi:
    def test_frames_are_those_nearest_in_time(self, tmp_path):
        write_physical_ai(tmp_path)
        provider = PhysicalAiProvider(tmp_path, cameras=[FRONT])
        assert (provider.scene_names, provider.sequence_lengths) == (("clip-1",), (NUM_FRAMES,))
        assert numbers_of(map(provider.get_data, range(NUM_FRAMES))) == list(range(NUM_FRAMES))
        np.testing.assert_allclose(provider.timestamps, FRAME_TIMES / 1e6)
        both = PhysicalAiProvider(tmp_path)
        assert both.camera_names == (LEFT, FRONT)
        assert numbers_of(map(both.get_data, range(6))) == [100, 101, 102, 103, 104, 105]
        with pytest.raises(FileError, match=f"'clip-1/7' has no image of camera '{LEFT}'"):
            both.get_data(7)

    def test_stride_and_reference_camera_choose_the_samples(self, tmp_path):
        write_physical_ai(tmp_path)
        provider = PhysicalAiProvider(tmp_path, cameras=[FRONT], stride=3)
        assert numbers_of(map(provider.get_data, range(len(provider)))) == [0, 3, 6]
        assert len(PhysicalAiProvider(tmp_path, reference_camera=LEFT)) == 6
        with pytest.raises(SettingError, match=r"must be a camera of the clips, got 'camera_front'"):
            PhysicalAiProvider(tmp_path, reference_camera="camera_front")

    def test_boxes_fall_where_numpy_puts_them(self, tmp_path):
        write_physical_ai(tmp_path)
        provider = PhysicalAiProvider(tmp_path)
        sample = provider.get_data(3)  # 1_099_000: the second box of the first track; none of the other
        assert len(sample["boxes"]["centers"]) == 1
        assert provider.class_names[int(sample["boxes"]["categories"][0])] == "automobile"
        point = world_from_ego(1_110_000) @ [13.0, 1.0, 0.8, 1]
        here = np.linalg.inv(world_from_ego(FRAME_TIMES[3]))
        np.testing.assert_allclose(sample["boxes"]["centers"][0], (here @ point)[:3], atol=1e-4)
        np.testing.assert_allclose(sample["boxes"]["yaws"][0], 0.25 + 0.3 * 0.011, atol=1e-4)
        left = sample["cameras"][0]
        ego_from_camera = np.eye(4)
        ego_from_camera[:3] = np.c_[AXES, [1.5, 0.4, 1.3]]
        in_camera = np.linalg.inv(world_from_ego(FRAME_TIMES[3] + 5_000) @ ego_from_camera) @ point
        center = np.r_[sample["boxes"]["centers"][0], 1]
        np.testing.assert_allclose((left["camera_from_reference"] @ center)[:3], in_camera[:3], atol=1e-3)
        np.testing.assert_array_equal(left["intrinsics"], [[61, 0, 47], [0, 61, 31], [0, 0, 1]])
        assert provider.origin["camera_models"][LEFT]["fw_poly_2"] == 2
        assert [len(provider.get_data(frame)["boxes"]["yaws"]) for frame in (0, 4, 5)] == [2, 1, 0]

    def test_batches_are_decoded_in_order(self, tmp_path):
        write_physical_ai(tmp_path)
        provider = PhysicalAiProvider(tmp_path, cameras=[FRONT], boxes=False)
        samples = list(provider.load_batch([6, 1, 6, 3], range(4)))
        assert numbers_of(samples) == [6, 1, 6, 3]
        assert provider._video_frames._pool.statistics.num_decoded == 7  # 0 to 6, each once
        assert len(pickle.dumps(provider)) < 1200

    def test_reach_a_loader_in_order(self, tmp_path):
        write_physical_ai(tmp_path)
        provider = PhysicalAiProvider(tmp_path, cameras=[FRONT], boxes=False)
        sampler = StreamingSequenceSampler(provider.sequence_lengths, 1, shuffle=False)
        with DataLoader(
            provider,
            1,
            sampler=sampler,
            num_workers=1,
            start_method="fork",
            output_type="numpy",
            stack_arrays=True,
        ) as loader:
            numbers = [read_numbers(batch["cameras"]["image"][:, 0])[0] for batch in loader]
        assert numbers == list(range(NUM_FRAMES))

    def test_keep_the_rules_of_providers(self, tmp_path):
        write_physical_ai(tmp_path)
        check_provider(PhysicalAiProvider(tmp_path, cameras=[FRONT]), start_method="fork", num_samples=2)

    def test_files_may_lie_elsewhere(self, tmp_path):
        write_physical_ai(tmp_path)
        (tmp_path / "labels/egomotion").rename(tmp_path / "motion")
        with pytest.raises(FileError, match="cannot be read"):
            PhysicalAiProvider(tmp_path)
        layout = ClipLayout(ego_motion="motion/{clip}.egomotion.parquet")
        assert len(PhysicalAiProvider(tmp_path, layout=layout)) == NUM_FRAMES
        with pytest.raises(SettingError, match=r"times: must have \{camera\}, \{clip\}, got 'times.parquet'"):
            ClipLayout(times="times.parquet")
        with pytest.raises(FileError, match="must be unpacked"):
            PhysicalAiProvider(tmp_path / "labels")

    def test_frames_without_poses_are_left_out(self, tmp_path):
        write_physical_ai(tmp_path, ego_end=1_150_000)
        assert len(PhysicalAiProvider(tmp_path)) == 5

    @pytest.mark.parametrize(
        ("left_out", "message"),
        [
            ("timestamp", r"timestamps.parquet' has no column 'timestamp'"),
            ("qw", "has no column 'qw'"),
            ("fw_poly_3", "has no column 'fw_poly_3'. Did you mean 'fw_poly_4'?"),
            ("sensor_name", "has no column 'sensor_name'"),
            ("chunk", "clip_index.parquet' has no column 'chunk'"),
            ("size_y", "obstacle.offline.parquet' has no column 'size_y'"),
        ],
    )
    def test_missing_columns_are_named(self, tmp_path, left_out, message):
        write_physical_ai(tmp_path, left_out=left_out)
        with pytest.raises(FileError, match=message):
            PhysicalAiProvider(tmp_path)

    def test_a_video_that_is_shorter_than_its_times_is_named(self, tmp_path):
        write_physical_ai(tmp_path)
        make_video(tmp_path / f"camera/{FRONT}/clip-1.{FRONT}.mp4", 5, "libx264")
        provider = PhysicalAiProvider(tmp_path, cameras=[FRONT])
        with pytest.raises(VideoError, match=r"frame 7 of the video .*, whose frames are 0 to 4"):
            provider.get_data(7)

    def test_a_frame_that_fails_does_not_fail_the_others_of_its_batch(self, tmp_path):
        write_physical_ai(tmp_path)
        make_video(tmp_path / f"camera/{FRONT}/clip-1.{FRONT}.mp4", 5, "libx264")
        batch = PhysicalAiProvider(tmp_path, cameras=[FRONT]).load_batch([3, 7, 1], range(3))
        assert numbers_of([next(batch)]) == [3]
        with pytest.raises(VideoError, match="frame 7 of the video"):
            next(batch)

    def test_times_that_go_back_are_named(self, tmp_path):
        from driving_support.clip_data import write_parquet

        write_physical_ai(tmp_path)
        write_parquet(tmp_path / f"camera/{FRONT}/clip-1.{FRONT}.timestamps.parquet", {"timestamp": [3, 2, 4]})
        with pytest.raises(FileError, match=r"times must ascend, got 3 and then 2 \(row 1\)"):
            PhysicalAiProvider(tmp_path)


class TestLeRobot:
    def test_frames_are_in_the_part_of_the_episode(self, tmp_path):
        write_lerobot(tmp_path)
        provider = LeRobotProvider(tmp_path)
        assert provider.sequence_lengths == LENGTHS
        assert provider.scene_names == ("episode-000000", "episode-000001", "episode-000002")
        assert provider.camera_names == ("front",)
        assert numbers_of(map(provider.get_data, range(12))) == [0, 1, 2, 3, 4, 5, 6, 50, 51, 52, 53, 54]
        assert numbers_of(provider.load_batch([8, 5, 7, 4], range(4))) == [51, 5, 50, 4]
        np.testing.assert_allclose(provider.timestamps[4:7], [0, 0.04, 0.08], atol=1e-7)
        check_provider(provider, start_method="fork", num_samples=2)

    @pytest.mark.skipif(not has("fsspec"), reason="needs fsspec")
    def test_videos_of_an_index_can_be_remote(self, tmp_path):
        write_lerobot(tmp_path / "data")
        index = index_of(LeRobotProvider(tmp_path / "data"))
        with FileServer(tmp_path / "data") as server:

            def provider(attempts):
                options = {"reading": RemoteReading(attempts=attempts, first_wait_s=0.001, most_wait_s=0.002)}
                return DrivingProvider(index, server.url, storage_options=options)

            assert numbers_of(map(provider(1).get_data, (0, 6, 7, 11))) == [0, 6, 50, 54]
            assert server.ranges
            server.faults = ["503"]
            with pytest.raises(FileError, match=f"{server.url}/.*mp4"):
                provider(1).get_data(7)
            server.faults = ["503"]
            assert numbers_of(provider(3).load_batch([8, 5], range(2))) == [51, 5]

    def test_poses_and_calibrations_are_those_given(self, tmp_path):
        write_lerobot(tmp_path)
        place = np.eye(4)
        place[:3] = np.c_[AXES, [1.0, 2.0, 3.0]]
        matrix = np.array([[50.0, 0, 48], [0, 50, 32], [0, 0, 1]])
        provider = LeRobotProvider(
            tmp_path,
            pose_feature="observation.pose",
            calibration={"front": (matrix, place)},
            scenes=["episode-000001"],
        )
        sample = provider.get_data(2)
        assert sample["ego"]["world_from_ego"][0, 3] == 12
        camera = sample["cameras"][0]
        np.testing.assert_array_equal(camera["intrinsics"], matrix)
        np.testing.assert_allclose(camera["camera_from_reference"], np.linalg.inv(place), atol=1e-12)
        pixels = matrix @ (camera["camera_from_reference"] @ [11, 2, 3, 1])[:3]
        np.testing.assert_allclose(pixels / pixels[2], [48, 32, 1])  # 10 m ahead of the camera

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"pose_feature": "pose"}, "`pose_feature` is 'pose', which is no feature"),
            ({"pose_feature": "action"}, "must have 7 numbers .* 'action' has 2"),
            ({"calibration": {"rear": (np.eye(3), np.eye(4))}}, "`calibration` names 'rear', which is no camera"),
            (
                {"calibration": {"front": (np.eye(3), 2 * np.eye(4))}},
                r"must have a \(3, 3\) and a \(4, 4\) matrix",
            ),
            ({"cameras": ["rear"]}, "there is no camera 'rear'"),
        ],
    )
    def test_wrong_settings_are_named(self, tmp_path, settings, message):
        write_lerobot(tmp_path)
        with pytest.raises(SettingError, match=message):
            LeRobotProvider(tmp_path, **settings)

    def test_a_quaternion_that_is_too_long_is_told(self, tmp_path):
        write_lerobot(tmp_path, length_of_quaternion=3)
        message = r"quaternions of 'observation\.pose' must have the length 1, got \[3\.\]"
        with pytest.raises(FileError, match=message):
            LeRobotProvider(tmp_path, pose_feature="observation.pose")

    @pytest.mark.parametrize("left_out", ["timestamp", "length", "videos/observation.images.front/from_timestamp"])
    def test_missing_columns_are_named(self, tmp_path, left_out):
        write_lerobot(tmp_path, left_out=left_out)
        with pytest.raises(FileError, match=f"has no column '{left_out}'"):
            LeRobotProvider(tmp_path)

    def test_other_versions_are_named(self, tmp_path):
        write_lerobot(tmp_path, codebase_version="v2.1")
        with pytest.raises(FileError, match=r"must be of version 3 of LeRobot .* got 'v2.1': convert"):
            LeRobotProvider(tmp_path)
        (tmp_path / "meta/info.json").write_text("{")
        with pytest.raises(FileError, match=r"info.json' cannot be read"):
            LeRobotProvider(tmp_path)
        (tmp_path / "meta/info.json").write_text(json.dumps({"codebase_version": "v3.0"}))
        with pytest.raises(FileError, match="must have features, data_path"):
            LeRobotProvider(tmp_path)

    def test_a_video_that_is_too_short_is_named(self, tmp_path):
        write_lerobot(tmp_path)
        make_video(tmp_path / "videos/observation.images.front/chunk-000/file-000.mp4", 6, "libx264")
        with pytest.raises(FileError, match=r"Row 2 of the episode 1 is at 0.24\d* s of the video"):
            LeRobotProvider(tmp_path)

    def test_a_missing_video_is_named(self, tmp_path):
        write_lerobot(tmp_path)
        (tmp_path / "videos/observation.images.front/chunk-000/file-001.mp4").unlink()
        with pytest.raises(FileError, match=r"file-001.mp4' cannot be read"):
            LeRobotProvider(tmp_path)
