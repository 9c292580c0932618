"""The demo on folders of videos: its provider, and whole runs."""

import re
from pathlib import Path

import demo
import demo_picture
import numpy as np
import pytest
from PIL import Image
from support.scripts import messages
from support.videos import B_FRAMES, make_video, read_numbers
from video_folder_provider import VideoFolderProvider

pytestmark = pytest.mark.wide

HEIGHT, WIDTH = 64, 96


GAP = r"rear\.mkv' seem to be missing: 0\.080 s between the frames 2 and 3, at 0\.080 s"


@pytest.fixture
def videos(tmp_path) -> Path:
    """Four videos of four codecs and containers, two sizes; the first frame of the n-th one shows 100 n."""
    folder = tmp_path / "videos"
    folder.mkdir()
    make_video(folder / "v2.mp4", 24, "libx264", first_number=0, options=B_FRAMES["libx264"])
    make_video(folder / "v10.mkv", 20, "libx265", first_number=100)
    make_video(folder / "v11.AVI", 16, "mjpeg", first_number=200, size=(192, 128), format="avi")
    make_video(folder / "v12.webm", 12, "libvpx-vp9", first_number=300)
    (folder / "notes.txt").write_text("no video")
    (folder / ".hidden.mp4").write_text("no video")
    return folder


@pytest.fixture
def drives(tmp_path) -> Path:
    """Two drives with two cameras; those of the rear run 100 ahead, and once lack their frame 3."""
    folder = tmp_path / "drives"
    for number, name in enumerate(("monday", "tuesday")):
        (folder / name).mkdir(parents=True)
        first = 1000 * number
        make_video(folder / name / "front.mp4", 12, "libx264", first_number=first)
        times = [40 * frame for frame in range(13) if frame != 3 or number == 0][:12]
        make_video(folder / name / "rear.mkv", 12, "libx264", first_number=first + 100, times=times)
    return folder


def _images(sample) -> list[int]:
    return [read_numbers(camera["image"][None])[0] for camera in sample["cameras"].values()]


# --- the provider -----------------------------------------------------------------------------------


def test_each_video_is_a_sequence_in_natural_order(videos):
    provider = VideoFolderProvider(videos)
    assert provider.sequence_lengths == (24, 20, 16, 12)
    assert provider.image_hw == (HEIGHT, WIDTH)
    sizes, numbers = [], []
    for index in range(provider.get_number_of_samples()):
        sample = provider.get_data(index)
        assert sample.type_matches(provider.sample_data_structure)
        assert sample["cameras"][0]["name"] == "camera"
        assert bool(sample["is_first_of_sequence"]) == (int(sample["frame"]) == 0)
        sizes.append(sample["cameras"][0]["image"].shape)
        numbers.append((sample["sequence"], int(sample["frame"]), *_images(sample)))
    names = ("v2.mp4", "v10.mkv", "v11.AVI", "v12.webm")
    assert numbers == [
        (name, frame, 100 * video + frame)
        for video, name in enumerate(names)
        for frame in range(provider.sequence_lengths[video])
    ]
    assert sizes == [(HEIGHT, WIDTH, 3)] * 44 + [(128, 192, 3)] * 16 + [(HEIGHT, WIDTH, 3)] * 12


def test_drives_are_aligned_by_time_and_end_where_a_frame_is_missing(drives, caplog):
    with pytest.warns(UserWarning, match=GAP):
        provider = VideoFolderProvider(drives)
    assert provider.camera_names == ("front", "rear")
    assert "Missing are:\n  - recording 1: 1 frame(s) of rear\n" in caplog.text
    assert provider.sequence_lengths == (12, 3, 8)
    samples = [provider.get_data(index) for index in range(23)]
    found = [(sample["sequence"], int(sample["frame"]), *_images(sample)) for sample in samples]
    monday = [("monday", frame, frame, 100 + frame) for frame in range(12)]
    tuesday = [("tuesday", frame, 1000 + frame, 1100 + frame) for frame in range(3)]
    later = [("tuesday", frame, 1004 + frame, 1103 + frame) for frame in range(8)]
    assert found == [*monday, *tuesday, *later]
    assert [camera["name"] for camera in samples[0]["cameras"].values()] == ["front", "rear"]


def test_videos_beside_folders_of_videos_come_first(drives, caplog):
    make_video(drives / "all.mp4", 5, "libx264")
    assert VideoFolderProvider(drives).sequence_lengths == (5,)
    assert "2 subfolder(s) with others are left out: monday, tuesday" in caplog.text


def test_the_loader_of_the_demo_decodes_each_frame_once(videos):
    provider = VideoFolderProvider(videos)
    settings = {"batch_size": 3, "image_hw": (32, 48), "num_workers": 0, "device_id": None}
    with demo.make_loader(provider, seed=1, **settings) as loader:
        frames = [
            (name, frame)
            for batch in loader
            for name, frame in zip(batch["sequence"], batch["frame"].tolist(), strict=True)
        ]
    assert len(set(frames)) == len(frames) == 72
    # Where a sequence is cut, decoding begins at the key frame before, at most 11 frames earlier.
    assert 72 <= provider.statistics.num_decoded <= 72 + 2 * 11


# --- whole runs -------------------------------------------------------------------------------------


def test_demo_runs_on_videos_of_different_codecs_and_sizes(videos, tmp_path, run_demo):
    options = ("--output", tmp_path / "out", "--image-size", 32, 48, "--epochs", 2)
    result = run_demo("--data", videos, *options)
    assert (result.returncode, result.stderr) == (0, "")
    assert "Data: 72 frames of 1 camera, in 4 sequences" in result.stdout
    assert "Batches: 4 slots, images of 48 x 32 pixels" in result.stdout
    assert "First epoch: 18 batches, 72 of 72 frames once each" in result.stdout
    assert "Continued after 9 batches of the first epoch, with 2 workers: the next 2" in result.stdout
    first, final = map(float, re.search(r"Loss: ([0-9.]+) at first, ([0-9.]+) in", result.stdout).groups())
    assert final < first
    gap, heading = demo_picture.GAP_PX, demo_picture.HEADING_PX
    with Image.open(tmp_path / "out" / "batch.png") as picture:
        assert picture.size == (gap + 3 * (48 + gap), heading + 2 * (32 + gap) + gap)
        tile = np.asarray(picture.convert("RGB"))[heading : heading + 32, gap : gap + 48]
    assert np.ptp(tile.reshape(-1, 3).astype(int), axis=0).min() > 100  # dark and light blocks


def test_demo_runs_on_drives_with_several_cameras(drives, tmp_path, run_demo, caplog):
    with pytest.warns(UserWarning, match=GAP):
        result = run_demo(
            "--data", drives, "--output", tmp_path / "out", "--image-size", 32, 48, "--batch-size", 2
        )
    assert result.returncode == 0, result.stderr
    assert "Missing are:\n  - recording 1: 1 frame(s) of rear\n" in caplog.text
    assert messages(result.stderr) == []
    assert "Data: 23 frames of 2 cameras, in 3 sequences" in result.stdout
    gap, heading = demo_picture.GAP_PX, demo_picture.HEADING_PX
    with Image.open(tmp_path / "out" / "batch.png") as picture:
        assert picture.size == (gap + 2 * (48 + gap), 2 * (heading + 32 + gap) + gap)
