"""The demo: its providers, its steps, and whole runs on generated scenes and on folders of frames."""

import re
import subprocess
import sys
from pathlib import Path

import av
import data_folders
import demo
import demo_picture
import numpy as np
import pytest
import torch
from demo_training import Bookmark, SlotMemory, delivers_the_same
from driving_scenes import DrivingScenes, box_corners, export_nuscenes, generate_scenes
from PIL import Image
from support.child_processes import run_process
from support.scripts import messages

from accvlab.driving_data.testing import made_drive

DEMO = Path(demo.__file__)
SCENES = {"num_sequences": 3, "frames_per_sequence": (4, 6), "image_hw": (48, 80), "seed": 3}


@pytest.fixture(scope="module")
def scenes() -> DrivingScenes:
    return generate_scenes(**SCENES)


@pytest.fixture
def nuscenes(scenes, tmp_path, monkeypatch) -> Path:
    """The scenes in the format of nuScenes."""
    monkeypatch.setenv("ACCVLAB_INDEX_CACHE", str(tmp_path / "index"))
    return export_nuscenes(scenes, tmp_path / "nuscenes")


@pytest.fixture
def frames(tmp_path) -> Path:
    """Sequences of 6, 5 and 4 JPEGs of three sizes that drift from dark to bright, and an empty folder."""
    folder = tmp_path / "frames"
    for number, (name, size) in enumerate((("b", (96, 64)), ("a", (60, 40)), ("c10", (33, 47)))):
        for frame in range(6 - number):
            _write_image(folder / name / f"f{frame * 7}.jpg", size, 40 + 20 * frame + number)
    (folder / "empty").mkdir()
    return folder


def _write_image(path: Path, size_wh: tuple[int, int], level: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size_wh, (level, level, 255 - level)).save(path)


def _run_script(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error::UserWarning", str(DEMO), *map(str, arguments)]
    return run_process(command, timeout=100)


def _losses(output: str) -> tuple[float, float]:
    first, final = re.search(r"Loss: ([0-9.]+) at first, ([0-9.]+) in the end", output).groups()
    return float(first), float(final)


# --- folders of images ------------------------------------------------------------------------------


def test_frames_come_in_natural_order(frames):
    _write_image(frames / "c2" / "only.PNG", (8, 8), 9)
    (frames / "c2" / "notes.txt").write_text("no image")
    (frames / "c2" / ".hidden.jpg").write_text("no image")
    provider = data_folders.open_image_folders(frames)
    assert provider.scene_names == ("a", "b", "c2", "c10")
    assert provider.sequence_lengths == (5, 6, 1, 4)
    names = [provider.describe_sample(index).partition(", files ")[2] for index in range(3, 8)]
    assert names == ["a/f21.jpg", "a/f28.jpg", "b/f0.jpg", "b/f7.jpg", "b/f14.jpg"]
    sample = provider.get_data(7)
    assert sample["cameras"][0]["image"].tobytes() == (frames / "b" / "f14.jpg").read_bytes()
    assert (sample["scene"], int(sample["frame"]), bool(sample["is_first"])) == ("b", 2, False)
    assert [index for index in range(16) if provider.get_data(index)["is_first"]] == [0, 5, 11, 12]


# --- picture ----------------------------------------------------------------------------------------


def test_boxes_behind_others_are_seen_less():
    image_from_boxes = np.array([[50.0, -100, 0, 0], [50, 0, -100, 0], [1, 0, 0, 0]])  # looks along x
    centres = [[20.0, 0, 0], [10, 0, 0], [20, 5, 0], [0, 0, 0], [30, 4, 0]]
    corners = box_corners(centres, [[2.0, 2, 2]] * 5, [0.0] * 5)
    shares = demo_picture.visible_shares(corners, image_from_boxes, (100, 100))
    assert shares[:4].tolist() == [0, 1, 1, 1]  # behind the second, in front, beside, around the camera
    assert 0.5 < shares[4] < 1


# --- training ---------------------------------------------------------------------------------------


def test_memory_is_kept_per_slot_and_starts_anew_with_a_sequence():
    memory = SlotMemory()
    assert memory.exchange(torch.tensor([1, 10]), torch.tensor([True, True])) is None
    current, previous = memory.exchange(torch.tensor([2, 11]), torch.tensor([False, True]))
    assert (current.tolist(), previous.tolist()) == ([2], [1])
    current, previous = memory.exchange(torch.tensor([3, 12]), torch.tensor([False, False]))
    assert (current.tolist(), previous.tolist()) == ([3, 12], [2, 11])


def test_a_loader_that_delivers_something_else_is_noticed(nuscenes, tmp_path):
    provider = demo.open_provider(nuscenes, tmp_path)
    settings = {"batch_size": 2, "image_hw": (48, 80), "num_workers": 0, "device_id": None}
    with demo.make_loader(provider, seed=1, **settings) as loader:
        batches = iter(loader)
        next(batches)
        bookmark = Bookmark(loader.state_dict(), [next(batches), next(batches)])
    with demo.make_loader(provider, seed=1, **settings) as loader:
        assert delivers_the_same(loader, bookmark)
    bookmark.following[1]["cameras"][5]["image"][1, 0, 0, 0] += 1
    with demo.make_loader(provider, seed=1, **settings) as loader:
        assert not delivers_the_same(loader, bookmark)


# --- whole runs -------------------------------------------------------------------------------------


def test_demo_runs_on_generated_scenes(scenes, tmp_path, run_demo, monkeypatch):
    monkeypatch.setenv("ACCVLAB_INDEX_CACHE", str(tmp_path / "index"))
    monkeypatch.setattr(demo, "generate_scenes", lambda: scenes)
    options = ("--output", tmp_path, "--epochs", 3, "--batch-size", 2, "--image-size", 48, 80)
    result = run_demo("--data", "", *options)
    assert result.returncode == 0, result.stderr
    assert messages(result.stderr) == []
    assert f"Generating driving scenes in {tmp_path / 'nuscenes'} (once) ..." in result.stdout
    num_frames = len(scenes.frames)
    assert f"Data: {num_frames} frames of 6 cameras, in 3 sequences" in result.stdout
    assert "Batches: 2 slots, images of 80 x 48 pixels" in result.stdout
    num_batches = -(-num_frames // 2)
    assert f"First epoch: {num_batches} batches, {num_frames} of {num_frames} frames once each" in result.stdout
    middle = num_batches // 2
    assert f"Continued after {middle} batches of the first epoch, with 1 worker: the next 2" in result.stdout
    assert re.search(r"Throughput: [0-9.]+ samples/s, [0-9.]+ images/s", result.stdout)
    first, final = _losses(result.stdout)
    assert final < 0.6 * first
    assert f"Picture of a batch: {tmp_path / 'batch.png'}" in result.stdout
    gap, heading = demo_picture.GAP_PX, demo_picture.HEADING_PX
    with Image.open(tmp_path / "batch.png") as picture:
        assert picture.size == (gap + 3 * (80 + gap), 2 * (heading + 2 * (48 + gap)) + gap)
        pixels = np.asarray(picture.convert("RGB")).reshape(-1, 3)
    assert (pixels == (255, 158, 0)).all(axis=1).any()  # the edges of a car
    again = run_demo("--data", "", *options)
    assert "Generating" not in again.stdout
    assert _losses(again.stdout) == (first, final)


def test_boxes_are_where_the_scenes_have_them(scenes, nuscenes, tmp_path):
    provider = demo.open_provider(nuscenes, tmp_path)
    assert provider.class_names[:2] == ("car", "truck")
    for index, frame in enumerate(scenes.frames):
        found = provider.get_data(index)
        centres = found["ego"]["ego_from_reference"] @ np.vstack(
            [found["boxes"]["centers"].T, np.ones(len(found["boxes"]["yaws"]))]
        )
        distances = np.linalg.norm(centres[:3].T[:, None] - frame.centres[None], axis=-1)
        assert distances.min(axis=1).max() < 1e-3
        # Objects that a camera sees are all there, with what projects them to its pixels.
        is_seen = frame.visibility.max(axis=1) > 0
        assert is_seen.any()
        assert distances.min(axis=0)[is_seen].max() < 1e-3
        for camera in found["cameras"].values():
            number = scenes.camera_names.index(camera["name"].removeprefix("CAM_"))
            assert camera["image"].tobytes() == frame.jpegs[number].tobytes()
            image_from_reference = camera["intrinsics"] @ camera["camera_from_reference"][:3]
            expected = frame.image_from_ego[number] @ found["ego"]["ego_from_reference"]
            np.testing.assert_allclose(image_from_reference, expected, atol=1e-3)


@pytest.mark.wide
def test_demo_runs_on_frames_of_different_sizes(frames, tmp_path, run_demo):
    options = ("--output", tmp_path / "out", "--image-size", 32, 64, "--epochs", 2)
    result = _run_script("--data", frames, *options, "--num-workers", 1)
    assert result.returncode == 0, result.stderr
    assert messages(result.stderr) == ["1 subfolder(s) without images are left out: empty"]
    assert "Data: 15 frames of 1 camera, in 3 sequences" in result.stdout
    assert "Batches: 3 slots, images of 64 x 32 pixels" in result.stdout
    assert "First epoch: 5 batches, 15 of 15 frames once each, 1 cut through sequences" in result.stdout
    first, final = _losses(result.stdout)
    assert final < 0.6 * first
    gap, heading = demo_picture.GAP_PX, demo_picture.HEADING_PX
    with Image.open(tmp_path / "out" / "batch.png") as picture:
        assert picture.size == (gap + 3 * (64 + gap), heading + 32 + 2 * gap)
    assert _losses(run_demo("--data", frames, *options).stdout) == (first, final)


def _single_frames(path: Path) -> None:
    for name in "ab":
        _write_image(path / name / "0.jpg", (8, 8), 9)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "must be a folder of images, or of sequence folders with images, but it does not"),
        (lambda path: path.mkdir(), "must hold images"),
        (_single_frames, "must have a sequence of two frames or more"),
    ],
    ids=["missing", "empty", "single frames"],
)
def test_bad_data_folders_end_the_demo_with_one_message(make, message, tmp_path, capsys):
    make(tmp_path / "data")
    status = demo.main(["--data", str(tmp_path / "data"), "--output", str(tmp_path / "out")])
    output = capsys.readouterr()
    assert status == 1
    assert output.err.startswith("The demo cannot go on: '")
    assert message in output.err
    assert output.err.count("\n") == 1


def test_a_missing_package_ends_the_demo_with_one_message(frames, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    assert demo.main(["--data", str(frames), "--output", str(tmp_path / "out"), "--device-id", "cpu"]) == 1
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1
    assert "rich" in errors
    assert 'pip install ".[examples]"' in errors


def test_drives_with_a_folder_per_camera(tmp_path: Path) -> None:
    root = made_drive(tmp_path / "drives", "folders")
    provider = demo.open_provider(root, tmp_path / "output")
    assert provider.sequence_lengths == (6, 4)
    assert provider.camera_names == ("front", "left", "right")
    sample = provider.get_data(7)
    assert [camera["image"].tobytes() for camera in sample["cameras"].values()] == [
        (root / "tuesday" / name / "0001.jpg").read_bytes() for name in provider.camera_names
    ]
    loader = demo.make_loader(provider, 2, (32, 48), 1, 0, None)
    with loader:
        assert next(iter(loader))["cameras"][2]["image"].shape == (2, 3, 32, 48)


def test_cameras_whose_images_share_no_name_are_matched_by_place(tmp_path: Path) -> None:
    for camera, count in (("front", 3), ("rear", 2)):
        for number in range(count):
            _write_image(tmp_path / "drive" / camera / f"{camera}{number}.jpg", (8, 6), 10 * number)
    provider = data_folders.open_image_folders(tmp_path)
    assert provider.sequence_lengths == (2,)
    (tmp_path / "other" / "left").mkdir(parents=True)
    _write_image(tmp_path / "other" / "left" / "0.jpg", (8, 6), 1)
    with pytest.raises(data_folders.FolderError, match="must have folders of the same cameras, but share no name"):
        data_folders.open_image_folders(tmp_path)


def test_videos_of_two_rates_with_their_times_beside_them(tmp_path: Path) -> None:
    drive = tmp_path / "data" / "monday"
    drive.mkdir(parents=True)
    for name, rate, count, start in (("front", 20, 14, 5.0), ("rear", 10, 6, 5.02)):
        with av.open(str(drive / f"{name}.mp4"), "w") as container:
            stream = container.add_stream("libx264", rate=rate, options={"g": "2"})
            stream.width, stream.height, stream.pix_fmt = 48, 32, "yuv420p"
            for number in range(count):
                picture = np.full((32, 48, 3), 18 * number, np.uint8)
                container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
            container.mux(stream.encode(None))
        lines = [f"{start + number / rate:.3f}" for number in range(count)]
        (drive / f"{name}.csv").write_text("\n".join(["time_s"] * (name == "front") + lines))
    provider = demo.open_provider(drive.parent, tmp_path / "output")
    assert provider.sequence_lengths == (6,)
    sample = provider.get_data(2)  # rear at 5.22 s: front's last frame before is that of 5.2 s, number 4
    assert abs(float(sample["cameras"][0]["image"].mean()) - 4 * 18) < 5
    assert abs(float(sample["cameras"][1]["image"].mean()) - 2 * 18) < 5
    with demo.make_loader(provider, 1, (32, 48), 1, 0, None) as loader:
        assert next(iter(loader))["cameras"][1]["image"].shape == (1, 3, 32, 48)
    (drive / "rear.csv").write_text("soon\nlater\n")
    with pytest.raises(data_folders.FolderError, match="must hold the time of each frame in its first column"):
        demo.open_provider(drive.parent, tmp_path / "output")
