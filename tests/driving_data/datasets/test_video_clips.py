"""Clips of video: PhysicalAI-AV."""

import pickle

import av
import numpy as np
import pytest
from driving_support.clip_data import (
    AXES,
    FRAME_TIMES,
    FRONT,
    LEFT,
    NUM_FRAMES,
    world_from_ego,
    write_parquet,
    write_physical_ai,
)
from support.refusals import assert_refused
from support.videos import make_video, read_numbers

from accvlab.dali_pipeline_framework.errors import FileError, VideoError
from accvlab.driving_data.datasets import ClipLayout, PhysicalAiProvider

pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("av", reason="PyAV is not installed")


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

    def test_the_reference_camera_chooses_the_samples(self, tmp_path):
        write_physical_ai(tmp_path)
        assert len(PhysicalAiProvider(tmp_path, reference_camera=LEFT)) == 6
        words = "must be a camera of the clips, got 'camera_front'"
        assert_refused(lambda: PhysicalAiProvider(tmp_path, reference_camera="camera_front"), words)

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
        lens = PhysicalAiProvider(tmp_path, lenses=True).get_data(3)["cameras"][0]["lens"]
        np.testing.assert_array_equal(lens["forward"], [0, 61, 2, 0, 0])
        assert [len(provider.get_data(frame)["boxes"]["yaws"]) for frame in (0, 4, 5)] == [2, 1, 0]

    def test_batches_are_decoded_in_order(self, tmp_path):
        write_physical_ai(tmp_path)
        provider = PhysicalAiProvider(tmp_path, cameras=[FRONT], boxes=False)
        samples = list(provider.load_batch([6, 1, 6, 3], range(4)))
        assert numbers_of(samples) == [6, 1, 6, 3]
        assert provider._video_frames._pool.statistics.num_decoded == 7  # 0 to 6, each once
        assert len(pickle.dumps(provider)) < 1200

    def test_files_may_lie_elsewhere(self, tmp_path):
        write_physical_ai(tmp_path)
        (tmp_path / "labels/egomotion").rename(tmp_path / "motion")
        layout = ClipLayout(ego_motion="motion/{clip}.egomotion.parquet")
        assert len(PhysicalAiProvider(tmp_path, layout=layout)) == NUM_FRAMES
        assert_refused(lambda: PhysicalAiProvider(tmp_path), "is missing", FileError)
        words = "times: must have {camera}, {clip}, got 'times.parquet'"
        assert_refused(lambda: ClipLayout(times="times.parquet"), words)

    def test_frames_without_poses_are_left_out(self, tmp_path):
        write_physical_ai(tmp_path, ego_end=1_150_000)
        with pytest.warns(
            UserWarning, match="38% of the frames of 'clip-1' are before or after them, and left out"
        ):
            assert len(PhysicalAiProvider(tmp_path)) == 5

    @pytest.mark.parametrize(
        ("left_out", "words"),
        [
            ("timestamp", "timestamps.parquet' has no column 'timestamp'"),
            ("qw", "has no column 'qw'"),
            ("fw_poly_3", "has no column 'fw_poly_3'. Did you mean 'fw_poly_4'?"),
            ("sensor_name", "has no column 'sensor_name'"),
            ("chunk", "clip_index.parquet' has no column 'chunk'"),
            ("size_y", "obstacle.offline.parquet' has no column 'size_y'"),
        ],
    )
    def test_missing_columns_are_named(self, tmp_path, left_out, words):
        write_physical_ai(tmp_path, left_out=left_out)
        assert_refused(lambda: PhysicalAiProvider(tmp_path, lenses=True), words, FileError)

    def test_a_frame_that_fails_does_not_fail_the_others_of_its_batch(self, tmp_path):
        write_physical_ai(tmp_path)
        video = tmp_path / f"camera/{FRONT}/clip-1.{FRONT}.mp4"
        options = {"preset": "ultrafast", "x264-params": "keyint=4:bframes=0:scenecut=0"}
        make_video(video, 8, "libx264", options=options)
        content = bytearray(video.read_bytes())
        with av.open(str(video)) as container:
            last = [packet for packet in container.demux(video=0) if packet.size][-1]
        content[last.pos + 4 : last.pos + last.size] = bytes(last.size - 4)
        video.write_bytes(content)
        batch = PhysicalAiProvider(tmp_path, cameras=[FRONT]).load_batch([3, 7, 1], range(3))
        assert numbers_of([next(batch)]) == [3]
        with pytest.raises(VideoError, match="Frame 7 of the video"):
            next(batch)

    @pytest.mark.parametrize(
        ("times", "words"),
        [([3, 2, 4], "times must ascend, got 3 and then 2 (row 1)"), ([], "timestamps.parquet' has no rows")],
    )
    def test_times_that_are_none_are_named(self, tmp_path, times, words):
        write_physical_ai(tmp_path)
        path = tmp_path / f"camera/{FRONT}/clip-1.{FRONT}.timestamps.parquet"
        write_parquet(path, {"timestamp": np.array(times, np.int64)})
        assert_refused(lambda: PhysicalAiProvider(tmp_path), words, FileError)
