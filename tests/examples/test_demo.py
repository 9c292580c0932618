"""The demo: whole runs on generated scenes, and on folders of frames and videos."""

import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import data_folders
import demo
import demo_picture
import numpy as np
import pytest
from driving_scenes import DrivingScenes, generate_scenes
from PIL import Image
from support.child_processes import run_process
from support.scripts import messages
from support.videos import make_video, read_numbers

from accvlab.dali_pipeline_framework import DataLoader

DEMO = Path(demo.__file__)
SCENES = {"num_sequences": 3, "frames_per_sequence": (4, 6), "image_hw": (48, 80), "seed": 3}


@pytest.fixture(scope="module")
def scenes() -> DrivingScenes:
    return generate_scenes(**SCENES)


@pytest.fixture
def frames(tmp_path) -> Path:
    """Sequences of 6, 5 and 4 JPEGs of three sizes that drift from dark to bright, and an empty folder."""
    folder = tmp_path / "frames"
    for number, (name, size) in enumerate((("b", (96, 64)), ("a", (60, 40)), ("c10", (33, 47)))):
        for frame in range(6 - number):
            _write_image(folder / name / f"f{frame * 7}.jpg", size, 40 + 20 * frame + number)
    (folder / "empty").mkdir()
    return folder


@pytest.fixture
def run_demo(monkeypatch, capsys) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the demo in this process, with workers of the fork server: nothing is imported again, for seconds."""

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(demo, "DataLoader", partial(DataLoader, start_method="forkserver"))
        capsys.readouterr()
        status = demo.main([*map(str, arguments)])
        return subprocess.CompletedProcess(arguments, status, *capsys.readouterr())

    return run


def _write_image(path: Path, size_wh: tuple[int, int], level: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size_wh, (level, level, 255 - level)).save(path)


def _run_script(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error::UserWarning", str(DEMO), *map(str, arguments)]
    return run_process(command, timeout=100)


def _losses(output: str) -> tuple[float, float]:
    first, final = re.search(r"Loss: ([0-9.]+) at first, ([0-9.]+) in the end", output).groups()
    return float(first), float(final)


# --- whole runs -------------------------------------------------------------------------------------


@pytest.mark.wide
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
    assert _losses(run_demo("--data", frames, *options).stdout) == (first, final)


@pytest.mark.wide
def test_demo_runs_on_videos_of_different_codecs_and_sizes(tmp_path, run_demo):
    videos = tmp_path / "videos"
    videos.mkdir()
    make_video(videos / "v2.mp4", 12, "libx264")
    make_video(videos / "v10.AVI", 8, "mjpeg", first_number=100, size=(192, 128), format="avi")
    (videos / "notes.txt").write_text("no video")
    options = ("--output", tmp_path / "out", "--image-size", 32, 48, "--epochs", 2)
    result = run_demo("--data", videos, *options)
    assert (result.returncode, result.stderr) == (0, "")
    assert "Data: 20 frames of 1 camera, in 2 sequences" in result.stdout
    assert "Batches: 2 slots, images of 48 x 32 pixels" in result.stdout


def _single_frames(path: Path) -> None:
    for name in "ab":
        _write_image(path / name / "0.jpg", (8, 8), 9)


def _other_cameras(path: Path) -> None:
    for name in ("monday/front", "monday/rear", "tuesday/left"):
        _write_image(path / name / "0.jpg", (8, 8), 9)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "must be a folder of images, or of sequence folders with images, but it does not"),
        (lambda path: path.mkdir(), "must hold images"),
        (_single_frames, "must have a sequence of two frames or more"),
        (_other_cameras, "must have folders of the same cameras, but share no name"),
    ],
    ids=["missing", "empty", "single frames", "other cameras"],
)
def test_bad_data_folders_end_the_demo_with_one_message(make, message, tmp_path, capsys):
    make(tmp_path / "data")
    status = demo.main(["--data", str(tmp_path / "data"), "--output", str(tmp_path / "out")])
    output = capsys.readouterr()
    assert status == 1
    assert output.err.startswith("The demo cannot go on: ")
    assert message in output.err
    assert output.err.count("\n") == 1


def test_a_missing_package_ends_the_demo_with_one_message(frames, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    assert demo.main(["--data", str(frames), "--output", str(tmp_path / "out"), "--device-id", "cpu"]) == 1
    errors = capsys.readouterr().err
    assert errors.count("\n") == 1
    assert "rich" in errors
    assert 'pip install ".[examples]"' in errors


def test_videos_of_two_rates_with_their_times_beside_them(tmp_path: Path) -> None:
    drive = tmp_path / "data" / "monday"
    drive.mkdir(parents=True)
    for name, rate, count, start in (("front", 20, 14, 5.0), ("rear", 10, 6, 5.02)):
        make_video(drive / f"{name}.mp4", count, "libx264", rate=rate)
        lines = [f"{start + number / rate:.3f}" for number in range(count)]
        (drive / f"{name}.csv").write_text("\n".join(["time_s"] * (name == "front") + lines))
    provider = demo.open_provider(drive.parent, tmp_path / "output")
    assert provider.sequence_lengths == (6,)
    sample = provider.get_data(2)  # rear at 5.22 s: front's last frame before is that of 5.2 s, number 4
    assert [read_numbers(sample["cameras"][number]["image"][None]) for number in range(2)] == [[4], [2]]
    with demo.make_loader(provider, 1, (32, 48), 1, 0, None) as loader:
        assert next(iter(loader))["cameras"][1]["image"].shape == (1, 3, 32, 48)
    (drive / "rear.csv").write_text("soon\nlater\n")
    with pytest.raises(data_folders.FolderError, match="must hold the time of each frame in its first column"):
        demo.open_provider(drive.parent, tmp_path / "output")
