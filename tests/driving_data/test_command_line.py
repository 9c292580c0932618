"""``python -m accvlab.dali_pipeline_framework``: commands that look at a provider, a definition or a loader."""

import functools
import shutil
import sys

import pytest
from driving_support.argoverse import ArgoverseData
from driving_support.arrow_logs import ArrowLog
from driving_support.kitti import write_odometry, write_tracking
from driving_support.lerobot import write_lerobot
from driving_support.navsim import CAMERAS, write_navsim
from driving_support.nuscenes_data import write_nuscenes
from driving_support.physical_ai import CLIPS, LEFT, TELE, unpacked, write_clip_index, write_published
from PIL import Image
from support.child_processes import run_process
from support.laws import spread
from support.optional_packages import has

from accvlab.dali_pipeline_framework.testing import check_provider, provider_contract
from accvlab.driving_data.command_line import main
from accvlab.driving_data.datasets import recognition

MODULE = """
from pathlib import Path

import numpy as np
from driving_support.driving_data import write_driving_data

from accvlab.dali_pipeline_framework import DataLoader, ImageDecoder, PipelineDefinition, SamplerInputCallable
from accvlab.dali_pipeline_framework import SequentialSampler, Windows
from accvlab.dali_pipeline_framework import UnneededFieldRemover
from accvlab.driving_data.datasets import DrivingProvider
from accvlab.driving_data.recipes import STREAMPETR, ImageAugmentation, StreamPETRSettings

ROOT = Path(__file__).parent / "data"
if not ROOT.exists():
    write_driving_data(ROOT).save(ROOT / "index")


def provider():
    return DrivingProvider(ROOT / "index", ROOT)


def definition():
    data_input = SamplerInputCallable(provider(), SequentialSampler(5, 1))
    return PipelineDefinition(data_input, [ImageDecoder("image", use_device_mixed=True)])


def loader():
    steps = [ImageDecoder("image", use_device_mixed=True), UnneededFieldRemover(["boxes"])]
    return DataLoader(provider(), 2, steps=steps, num_workers=0)


def recipe(**changes):
    settings = StreamPETRSettings(
        images=ImageAugmentation(output_hw=(32, 48), scale_range=(8, 10)),
        classes=("car", "pedestrian", "barrier"),
        **changes,
    )
    provider = DrivingProvider(ROOT / "index", ROOT, **settings.provider_fields())
    return STREAMPETR.loader(provider, 2, settings, num_workers=0)


def queues():
    return recipe(queue_length=3)


def windows():
    return Windows(provider(), {"image": [-0.5, 0], "ego.world_from_ego": [0, 0.5]}, unit="s", edges="repeat")


def gap():
    times = {"unit": "s", "times_s": [0, 0.5, 2, 0, 0.5], "tolerance_s": 0.1}
    return Windows(provider(), {"ego.world_from_ego": [-0.5, 0]}, edges="repeat", **times)


def number():
    return 5


class Broken(DrivingProvider):
    def get_data(self, sample_index):
        sample = super().get_data(sample_index)
        return sample if sample_index else None


class Small(DrivingProvider):
    def __init__(self):
        super().__init__(ROOT / "index", ROOT)


held = provider()


class Holder:
    held = held


class Images:
    def __len__(self):
        return 3

    def __getitem__(self, index):
        return {"image": np.full((4, 5, 3), index, np.uint8)}


images = Images()


def broken():
    return Broken(ROOT / "index", ROOT)
"""


pytestmark = pytest.mark.filterwarnings("ignore:These fields are not used")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("commands")
    (folder / "commanded.py").write_text(MODULE)
    (folder / "infos.pkl").touch()
    (folder / "own").mkdir()
    (folder / "own" / "only.py").write_text(
        "from commanded import provider as made_by\n\n\ndef provider():\n    return made_by()\n"
    )
    (folder / "own" / "commanded.py").touch()
    (folder / "own" / "classes.py").write_text(
        "from commanded import Small\n\n\nclass Mine(Small):\n    pass\n\n\nclass _Hidden(Small):\n    pass\n"
    )
    (folder / "own" / "taking.py").write_text("from commanded import Broken\n\n\nclass Mine(Broken):\n    pass\n")
    (folder / "own" / "two.py").write_text(
        "from commanded import Small\n\n\nclass One(Small):\n    pass\n\n\nclass Two(Small):\n    pass\n"
    )
    return folder


@pytest.fixture(autouse=True)
def _in_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])


def _one_camera(root):
    """Clips of PhysicalAI-AV without the cameras that lack images at their ends; another one has no files."""
    write_published(root)
    columns = {"clip_id": [*CLIPS, "clip-x"], "chunk": [*CLIPS.values(), 7]}
    write_clip_index(root, event_t0s=None, end_timestamp=None, **columns)
    for camera in (LEFT, TELE):
        shutil.rmtree(root / "camera" / camera)
    return root


def _own_version(root):
    """Tables of nuScenes in a folder that is not called as those of nuScenes."""
    write_nuscenes(root, frames_per_keyframe=1)
    return (root / "v1.0-mini").rename(root / "own").parent


FOLDERS = {
    "NuScenesProvider": functools.partial(write_nuscenes, frames_per_keyframe=1),
    "NuScenesProvider of another version": _own_version,
    "LeRobotProvider": write_lerobot,
    "LeRobotProvider v2.1": functools.partial(write_lerobot, version="v2.1"),
    "ArgoverseProvider": lambda root: ArgoverseData().write(root).parent,
    "ArgoverseProvider log": lambda root: ArgoverseData().write(root),
    "KittiOdometryProvider": write_odometry,
    "KittiTrackingProvider": write_tracking,
    "ArrowLogProvider": lambda root: ArrowLog().write(root).parent,
    "ArrowLogProvider splits": lambda root: ArrowLog().write(root).parent.parent,
    "PhysicalAiProvider": _one_camera,
    "PhysicalAiProvider unpacked": lambda root: unpacked(_one_camera(root.parent / "packed"), root),
    "NavsimProvider": functools.partial(write_navsim, cameras=tuple(CAMERAS)),
    "NavsimProvider of three cameras": write_navsim,
}


class TestDescribe:
    def test_tells_fields_of_a_provider(self, capsys):
        assert main(["describe", "commanded:provider"]) == 0
        output = capsys.readouterr().out
        assert "DrivingProvider(5 frames in 2 scene(s), 2 camera(s), reference: lidar)" in output
        assert "    cameras[0..1].image: UINT8, 1D, image: encoded" in output

    def test_tells_offsets_and_masks_of_windows(self, capsys):
        assert main(["describe", "commanded:windows"]) == 0
        output = capsys.readouterr().out
        assert "ego.world_from_ego at 0, 0.5 s (within 0.0001 s)" in output
        assert "cameras[1].image at -0.5, 0 s (within 0.25 s); take='nearest', edges='repeat')" in output
        lines = output.splitlines()
        assert "    cameras[0..1].image.encoded[0..1]: UINT8, 1D, image: encoded" in lines
        assert "    cameras[0..1].image_is_pad: BOOL, 1D" in lines
        assert "    ego.world_from_ego: FLOAT64, 3D" in lines

    def test_tells_what_steps_change(self, capsys):
        assert main(["describe", "commanded:loader"]) == 0
        lines = capsys.readouterr().out.splitlines()
        start = lines.index("step 0: ImageDecoder")
        assert lines[start + 1] == (
            "  ~ cameras[0..1].image: UINT8, 1D, image: encoded -> UINT8, 3D, image: decoded, HWC"
        )
        assert lines[start + 2] == "step 1: UnneededFieldRemover"
        assert lines[start + 3] == "  - boxes.centers: FLOAT, 2D"
        assert "output" in lines[start:]


class TestShow:
    @pytest.mark.parametrize("subject", ["provider", "loader", "recipe"])
    def test_records_several(self, folder, subject):
        pytest.importorskip("rerun")
        sizes = []
        for num_frames in ("1", "2"):
            target = folder / f"{subject}{num_frames}.rrd"
            assert main(["show", f"commanded:{subject}", "--frames", num_frames, "--output", str(target)]) == 0
            sizes.append(target.stat().st_size)
        assert sizes[1] > sizes[0] + 300

    @spread(
        ("subject", "options", "num_rows"),
        [
            ("recipe", ["--sample", "1"], 1),
            ("queues", [], 3),
            ("queues", ["--frame", "1"], 1),
            ("windows", ["--sample", "1"], 2),
            ("windows", ["--frame", "0"], 1),
        ],
        3,
    )
    def test_draws_recipes_and_clips(self, folder, subject, options, num_rows):
        target = folder / f"{subject}.png"
        assert main(["show", f"commanded:{subject}", *options, "--output", str(target)]) == 0
        with Image.open(target) as image:
            # A camera is 396 pixels wide, and 2/3 of that high; the heading is 38 high, all rows 330 at least.
            assert image.height - 38 == pytest.approx(max(num_rows * 396 * 2 / 3, 330), abs=2)


REFUSED = [
    (
        ["show", "commanded:loader", "--frames", "2", "--output", "two.png"],
        "`--frames` is for recordings: `--output` must end with .rrd, got 'two.png'",
    ),
    (["show", "commanded:loader", "--frames", "0"], "`--frames` must be a whole number of at least 1, got 0"),
    (["show", "commanded:loader", "--frame", "0", "--output", "one.rrd"], "`--frame` is for pictures."),
    (["show", "commanded:queues", "--frame", "3"], "`frame`"),
    (["show", "commanded:loader", "--batch", "30"], "show: There is no batch 30 in the epoch."),
    (["show", "commanded:provider", "--sample", "30"], "`sample_index`"),
    (["bench", "commanded:provider", "--batches", "0"], "`--batches` must be a whole number of at least 1, got 0"),
    (["check", "commanded:broken"], "sample 0"),
    (
        ["check", "commanded:gap"],
        "ego.world_from_ego: no frame near 1.5 s of sequence 0 (frame 2 - 0.5 s)",
    ),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED)
def test_what_is_wrong_is_told(arguments, message, capsys):
    assert main(arguments) == 1
    assert message in capsys.readouterr().err


class TestBench:
    @pytest.mark.parametrize("subject", ["provider", "loader"])
    def test_measures(self, subject, capsys):
        assert main(["bench", f"commanded:{subject}", "--batches", "4"]) == 0
        output = capsys.readouterr().out
        assert "samples/s: " in output
        if subject == "loader":
            assert "\nThe loop waits " in output
            assert "\ncores: " in output


class TestCheck:
    @pytest.mark.parametrize(
        ("subject", "said"),
        [
            ("provider", "samples: ...The provider keeps the rules"),
            ("definition", "The steps fit the data."),
            ("loader", "The loader delivers."),
        ],
    )
    @pytest.mark.parametrize("start_method", ["forkserver", pytest.param("spawn", marks=pytest.mark.wide)])
    def test_accepts_what_is_right(self, subject, said, start_method, capsys, monkeypatch):
        check = functools.partial(check_provider, start_method=start_method)
        monkeypatch.setattr(provider_contract, "check_provider", check)
        assert main(["check", f"commanded:{subject}"]) == 0
        output = capsys.readouterr().out
        assert all(words in output for words in said.split("..."))


class TestSubject:
    @pytest.mark.parametrize(
        ("subject", "message"),
        [
            ("commanded", "Name one of commanded:provider, commanded:definition, commanded:loader, "),
            ("", "cannot be imported: Empty module name. Name module:function or file.py:function, "),
            ("missing.py:loader", "There is no file 'missing.py'."),
            ("missing/data", "There is no folder 'missing/data'."),
            ("nowhere", "cannot be imported: No module named 'nowhere', nor is there such a folder. Name module:"),
            ("infos.pkl", "'infos.pkl' is no file of Python. Write a function that opens it, and name module:"),
            ("own/commanded.py:a", "'own/commanded.py' cannot be imported: its name is that of "),
            ("own/taking.py", "'own/taking.py' takes arguments (index, data_root), and is called without any"),
            ("own/two.py", "Name one of own/two.py:One, own/two.py:Two."),
            ("commanded:Broken", "takes arguments (index, data_root), and is called without any"),
            ("commanded:ROOT.nam", "'commanded:ROOT.nam' has no function 'nam'. Did you mean 'name'"),
            ("commanded:STREAMPETR", "name a function that returns recipe.loader(...)"),
            ("own", "The folder 'own' is not recognised as a data set (NuScenes, LeRobot, Argoverse, "),
            ("uncommanded:loader", "cannot be imported"),
            ("commanded:loaders", "has no function 'loaders'. Did you mean 'loader'"),
            (
                "commanded:number",
                "must return a DataProvider, a PipelineDefinition or a DataLoader, or a data set of PyTorch, got ",
            ),
        ],
    )
    def test_must_be_found(self, subject, message, capsys):
        assert main(["describe", subject]) == 1
        assert message in capsys.readouterr().err

    @pytest.mark.parametrize(
        "subject",
        [
            *("commanded.py:provider", "./commanded.py:provider", "commanded:held", "commanded:Small"),
            *("commanded:Holder.held", "own/only.py", "own.only", "own/classes.py"),
            *("commanded:images", "commanded:Images"),
        ],
    )
    def test_may_be_many_things(self, subject, capsys):
        assert main(["describe", subject]) == 0
        assert "image: UINT8" in capsys.readouterr().out

    @pytest.mark.skipif(not (has("pyarrow") and has("av")), reason="needs pyarrow and PyAV")
    @pytest.mark.parametrize(
        "kind", [pytest.param(kind, marks=pytest.mark.wide) if " " in kind else kind for kind in FOLDERS]
    )
    def test_may_be_the_folder_of_a_data_set(self, kind, tmp_path, capsys, monkeypatch):
        monkeypatch.setenv("ACCVLAB_INDEX_CACHE", str(tmp_path / "indices"))
        root, picture = FOLDERS[kind](tmp_path / "data"), tmp_path / "sample.png"
        for command in ("describe", "show", "check"):
            output = ["--output", str(picture)] if command == "show" else []
            assert main([command, str(root), *output]) == 0
            assert (str(picture) if command == "show" else f"{kind.split()[0]}(") in capsys.readouterr().out
        with Image.open(picture) as image:
            assert len(image.getcolors(1 << 24)) > 50

    def test_each_recognised_data_set_has_been_tried(self):
        assert {kind.split()[0] for kind in FOLDERS} == {name for _, _, name, _ in recognition.KINDS}

    def test_may_be_a_recipe_of_a_data_set(self, tmp_path, capsys):
        write_nuscenes(tmp_path, frames_per_keyframe=1)
        assert main(["describe", str(tmp_path), "--recipe", "detection_2d"]) == 0
        assert "Detection2DFormatter(" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("subject", "recipe", "message"),
        [
            ("provider", "mine", "There is no recipe 'mine'. Recipes: ALPAMAYO, ALPAMAYO_RL, BEVFORMER, "),
            ("provider", "bevfomer", "no recipe 'bevfomer'. Did you mean 'BEVFORMER'"),
            ("loader", "streampetr", "makes a loader of a data set, but 'commanded:loader' is a DataLoader."),
            ("provider", "transfuser", "TransFuser takes a NavsimProvider, got DrivingProvider"),
        ],
    )
    def test_wrong_recipes(self, subject, recipe, message, capsys):
        assert main(["check", f"commanded:{subject}", "--recipe", recipe]) == 1
        assert message in capsys.readouterr().err

    def test_the_folder_has_the_fields_of_the_recipe(self, tmp_path, capsys):
        write_nuscenes(tmp_path, frames_per_keyframe=1)
        assert main(["check", str(tmp_path), "--recipe", "bevformer"]) == 1
        assert capsys.readouterr().err == (
            "check: The data set lacks what is requested:\n  - can_bus: the data set has none.\n"
        )

    def test_of_several_splits_one_must_be_named(self, tmp_path, capsys):
        logs = write_navsim(tmp_path) / "navsim_logs"
        shutil.copytree(logs / "mini", logs / "test")
        assert main(["describe", str(tmp_path)]) == 1
        assert (
            f"Name a function that returns NavsimProvider({str(tmp_path)!r}, 'mini')." in capsys.readouterr().err
        )

    def test_of_several_versions_one_must_be_named(self, tmp_path, capsys):
        for version in ("v1.0-mini", "v1.0-test"):
            (tmp_path / version).mkdir()
            (tmp_path / version / "sample_data.json").touch()
        assert main(["describe", str(tmp_path)]) == 1
        advice = f"Name a function that returns NuScenesProvider({str(tmp_path)!r}, 'v1.0-mini')."
        assert advice in capsys.readouterr().err

    def test_is_needed(self, folder):
        run = run_process([sys.executable, "-m", "accvlab.driving_data", "bench"])
        assert run.returncode == 2
        assert "module:function" in run.stderr
