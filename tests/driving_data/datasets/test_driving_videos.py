"""Videos of driving data: frames by time, decoded, or delivered as small files that a step decodes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from driving_support.clip_data import AXES, FRAME_TIMES, FRONT, LEFT, NUM_FRAMES, world_from_ego, write_physical_ai
from support.arrays import encoded_image, gradient
from support.refusals import assert_refused
from support.videos import make_video, read_numbers

from accvlab.dali_pipeline_framework import DataLoader, VideoDecoder, Windows
from accvlab.dali_pipeline_framework.errors import FieldValueError, FileError, VideoError
from accvlab.dali_pipeline_framework.sample_data import ENCODED_IMAGE
from accvlab.driving_data.datasets import (
    CameraImage,
    ClipLayout,
    DrivingFrame,
    DrivingProvider,
    PhysicalAiProvider,
    index_of_frames,
)
from accvlab.driving_data.datasets.driving.video_frames import VideoFrames

pytest.importorskip("pyarrow", reason="pyarrow is not installed")
av = pytest.importorskip("av", reason="PyAV is not installed")


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    return write_physical_ai(tmp_path_factory.mktemp("clips"))


def test_files_hold_the_frames(clips: Path) -> None:
    provider = PhysicalAiProvider(clips, cameras=[FRONT], images="encoded")
    camera = provider.sample_data_structure["cameras"][0].format
    assert camera.names[:2] == ("image", "image_to_decode")
    (codec,) = camera.at(("image",)).content.codecs
    assert codec.endswith(" yuv420p")
    batches = {}
    for images, steps in (("encoded", [VideoDecoder("image")]), ("decoded", [])):
        source = PhysicalAiProvider(clips, cameras=[FRONT], images=images, boxes=False)
        with DataLoader(
            source, 4, steps=steps, shuffle=True, seed=1, num_workers=0, output_type="numpy"
        ) as loader:
            batches[images] = [batch["cameras"][0]["image"] for batch in loader]
    assert all(map(np.array_equal, batches["encoded"], batches["decoded"]))
    assert sorted(read_numbers(np.concatenate(batches["encoded"]))) == [*range(len(provider))]


def test_a_first_video_that_is_bad_fails_only_its_samples(tmp_path: Path) -> None:
    root = tmp_path / "data"
    write_physical_ai(root)
    (path,) = root.glob(f"**/*{LEFT}*.mp4")
    PhysicalAiProvider(root)  # reads the tables
    path.write_bytes(path.read_bytes()[:100])
    provider = PhysicalAiProvider(root, images="encoded")
    assert provider.camera_names == (LEFT, FRONT)
    assert provider.sample_data_structure["cameras"][0].format.at(("image",)).content.codecs
    assert_refused(lambda: provider.get_data(0), f"{LEFT}...mp4", VideoError)
    front = PhysicalAiProvider(root, cameras=[FRONT], images="encoded")
    assert front.get_data(3)["cameras"][0]["image_to_decode"] == 3


def test_videos_of_other_codecs_than_those_that_were_looked_at(tmp_path: Path) -> None:
    paths = [str(make_video(tmp_path / f"{codec}.mkv", 6, codec)) for codec in ("libx264", "libvpx-vp9")]
    frames = VideoFrames(tmp_path / "indices")
    file, (number,) = frames.encoded_frames(paths[0], [2], ("h264 yuv420p",))
    assert (file.dtype, file.ndim, number) == (np.uint8, 1, 2)
    for wanted, codecs, words in (
        (1, ("h264 yuv420p",), "Frame 1 of the video ...vp9.mkv' is vp9 yuv420p, and the videos that were"),
        (6, (), "asks for frame 6 of the video ..., whose frames are 0 to 5"),
    ):
        read = partial(frames.encoded_frames, paths[1], [wanted], codecs)
        assert_refused(read, words, VideoError)
    frames.close()


@pytest.fixture
def drive(tmp_path: Path) -> Path:
    """Images of two cameras: `VIDEOS` has two videos of three frames, 0 to 2 and 40 to 42, `FILES` has files."""
    make_video(tmp_path / "a.mp4", 3, "libx264")
    make_video(tmp_path / "b.mp4", 3, "libx264", first_number=40)
    for number in range(6):
        (tmp_path / f"{number}.jpg").write_bytes(bytes(encoded_image(gradient(24, 40, number), "JPEG")))
    return tmp_path


def provider_of(root: Path, cameras: Sequence[str], **settings: Any) -> DrivingProvider:
    frames = [
        DrivingFrame(
            scene="s",
            time=number / 10,
            cameras={
                "VIDEOS": CameraImage(file="ab"[number // 3] + ".mp4", video_frame=number % 3),
                "FILES": CameraImage(file=f"{number}.jpg"),
            },
        )
        for number in range(6)
    ]
    return DrivingProvider(index_of_frames(frames), root, cameras=cameras, **settings)


def test_windows_over_two_videos_of_a_camera(drive: Path) -> None:
    expected = [[0, 0], [0, 1], [1, 2], [2, 40], [40, 41], [41, 42]]
    for images in ("decoded", "encoded"):
        provider = provider_of(drive, ["VIDEOS"], images=images)
        source = Windows(provider, {"cameras.image": [-1, 0]}, unit="frames", edges="repeat")
        options: dict[str, Any] = {"num_workers": 0, "output_type": "numpy", "shuffle": False, "faults": "skip"}
        steps = [VideoDecoder("image")] if images == "encoded" else []
        with DataLoader(source, 1, steps=steps, **options) as loader:
            found = [read_numbers(batch["cameras"][0]["image"][0]) for batch in loader]
        if images == "encoded":  # another sample is in the place of the one that failed
            expected[3] = found[3]
        assert found == expected
    words = (
        f"The images of 'VIDEOS' from the frame 's/2' on are in several videos: {str(drive / 'a.mp4')!r}, "
        f"{str(drive / 'b.mp4')!r}. With images='encoded', one sample needs one video: pass "
        f"images='decoded', or choose other windows."
    )
    assert_refused(lambda: source.get_data(3), words, FieldValueError)


@pytest.mark.parametrize("images", ["decoded", "encoded"])
def test_a_camera_of_files_beside_one_of_videos(drive: Path, images: str) -> None:
    provider = provider_of(drive, ["FILES"], images=images)
    camera = provider.sample_data_structure["cameras"][0].format
    assert (camera.at(("image",)).content, camera.names[1]) == (ENCODED_IMAGE, "name")
    for number in range(6):
        image = provider.get_data(number)["cameras"][0]["image"]
        assert bytes(image) == (drive / f"{number}.jpg").read_bytes()
    assert not provider.loads_batches
    videos = provider_of(drive, ["VIDEOS"], images=images)
    assert ("image_to_decode" in videos.sample_data_structure["cameras"][0].format.names) == (images == "encoded")
    words = (
        "The images of a sample must be all encoded or all of videos: choose `cameras` or `scenes` that go "
        "together. There are: VIDEOS: videos, FILES: files."
    )
    assert_refused(lambda: provider_of(drive, ["VIDEOS", "FILES"], images=images), words)


def numbers_of(samples, camera=0):
    return read_numbers(np.stack([sample["cameras"][camera]["image"] for sample in samples]))


class TestClips:
    def test_frames_are_those_nearest_in_time(self, clips):
        provider = PhysicalAiProvider(clips, cameras=[FRONT])
        assert (provider.scene_names, provider.sequence_lengths) == (("clip-1",), (NUM_FRAMES,))
        assert numbers_of(map(provider.get_data, range(NUM_FRAMES))) == list(range(NUM_FRAMES))
        np.testing.assert_allclose(provider.timestamps, FRAME_TIMES / 1e6)
        both = PhysicalAiProvider(clips)
        assert both.camera_names == (LEFT, FRONT)
        assert numbers_of(map(both.get_data, range(6))) == [100, 101, 102, 103, 104, 105]
        with pytest.raises(FileError, match=f"'clip-1/7' has no image of camera '{LEFT}'"):
            both.get_data(7)

    def test_the_reference_camera_chooses_the_samples(self, clips):
        assert len(PhysicalAiProvider(clips, reference_camera=LEFT)) == 6
        words = "must be a camera of the clips, got 'camera_front'"
        assert_refused(lambda: PhysicalAiProvider(clips, reference_camera="camera_front"), words)

    def test_boxes_fall_where_numpy_puts_them(self, clips):
        provider = PhysicalAiProvider(clips)
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
        lens = PhysicalAiProvider(clips, lenses=True).get_data(3)["cameras"][0]["lens"]
        np.testing.assert_array_equal(lens["forward"], [0, 61, 2, 0, 0])
        assert [len(provider.get_data(frame)["boxes"]["yaws"]) for frame in (0, 4, 5)] == [2, 1, 0]

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
            ("fw_poly_3", "has no column 'fw_poly_3'. Did you mean 'fw_poly_4'?"),
            ("chunk", "clip_index.parquet' has no column 'chunk'"),
        ],
    )
    def test_missing_columns_are_named(self, tmp_path, left_out, words):
        write_physical_ai(tmp_path, left_out=left_out)
        assert_refused(lambda: PhysicalAiProvider(tmp_path, lenses=True), words, FileError)
