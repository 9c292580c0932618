"""``python -m accvlab.driving_data``: commands that look at a provider, a definition or a loader."""

import functools
import sys

import pytest
from driving_support.kitti import write_odometry
from PIL import Image
from support.child_processes import run_process
from support.laws import some, spread
from support.optional_packages import has

from accvlab.dali_pipeline_framework.testing import check_provider, provider_contract
from accvlab.driving_data.command_line import main
from accvlab.driving_data.datasets import recognition
from accvlab.driving_data.testing import made_drive

MODULE = """
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from driving_support.driving_data import write_driving_data

from accvlab.dali_pipeline_framework import DataLoader, ImageDecoder, PipelineDefinition, SamplerInputCallable
from accvlab.dali_pipeline_framework import SequentialSampler, UnneededFieldRemover, Windows
from accvlab.driving_data.datasets import DrivingProvider
from accvlab.driving_data.recipes import STREAMPETR, ImageAugmentation, StreamPETRSettings

ROOT = Path(__file__).parent / "data"
if not ROOT.exists():
    write_driving_data(ROOT).save(ROOT / "index")


def provider(**fields):
    return DrivingProvider(ROOT / "index", ROOT, **fields)


def definition():
    data_input = SamplerInputCallable(provider(), SequentialSampler(5, 1))
    return PipelineDefinition(data_input, [ImageDecoder("image", use_device_mixed=True)])


def loader():
    steps = [ImageDecoder("image", use_device_mixed=True), UnneededFieldRemover(["boxes"])]
    return DataLoader(provider(), 2, steps=steps, num_workers=0)


def recipe(**changes):
    images = ImageAugmentation(output_hw=(32, 48), scale_range=(8, 10))
    settings = StreamPETRSettings(images=images, classes=("car", "pedestrian", "barrier"), **changes)
    return STREAMPETR.loader(provider(**settings.provider_fields()), 2, settings, num_workers=0)


def queues():
    return recipe(queue_length=3)


def windows():
    return Windows(provider(), {"image": [-0.5, 0], "ego.world_from_ego": [0, 0.5]}, unit="s", edges="repeat")


def number():
    return 5


class Broken(DrivingProvider):
    def get_data(self, sample_index):
        sample = super().get_data(sample_index)
        return sample if sample_index else None


class Small(DrivingProvider):
    def __init__(self):
        super().__init__(ROOT / "index", ROOT)


class Images:
    def __len__(self):
        return 3

    def __getitem__(self, index):
        return {"image": np.full((4, 5, 3), index, np.uint8)}


held, images, holder = provider(), Images(), SimpleNamespace(held=provider())


def broken():
    return Broken(ROOT / "index", ROOT)
"""
OTHERS = {
    "only": "from commanded import provider as made_by\n\n\ndef provider():\n    return made_by()\n",
    "commanded": "",
    "classes": "from commanded import Small\n\n\nclass Mine(Small): ...\n\n\nclass _Hidden(Small): ...\n",
}

pytestmark = pytest.mark.filterwarnings("ignore:These fields are not used")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("commands")
    (folder / "commanded.py").write_text(MODULE)
    (folder / "infos.pkl").touch()
    (folder / "own").mkdir()
    for name, content in OTHERS.items():
        (folder / "own" / f"{name}.py").write_text(content)
    return folder


@pytest.fixture(autouse=True)
def _in_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    # The default starts fresh interpreters.
    check = functools.partial(check_provider, start_method="forkserver")
    monkeypatch.setattr(provider_contract, "check_provider", check)


# --- commands -------------------------------------------------------------------------------------------

IMAGE = "cameras[0..1].image: UINT8, 1D, image: encoded"
SAID = [
    ("describe commanded:provider", f"DrivingProvider(5 frames in 2 scene(s), 2 camera(s), ...\n    {IMAGE}\n"),
    (
        "describe commanded:windows",
        "ego.world_from_ego at 0, 0.5 s (within 0.0001 s)...cameras[1].image at -0.5, 0 s (within 0.25 s); "
        "take='nearest', edges='repeat')...\n    cameras[0..1].image.encoded[0..1]: UINT8, 1D, image: encoded\n"
        "...\n    cameras[0..1].image_is_pad: BOOL, 1D\n...\n    ego.world_from_ego: FLOAT64, 3D\n",
    ),
    (
        "describe commanded:loader",
        f"\nstep 0: ImageDecoder\n  ~ {IMAGE} -> UINT8, 3D, image: decoded, HWC\nstep 1: UnneededFieldRemover\n"
        "  - boxes.centers: FLOAT, 2D\n...\noutput\n",
    ),
    ("bench commanded:provider --batches 4", "samples/s: "),
    ("bench commanded:loader --batches 4", "samples/s: ...\nThe loop waits ...\ncores: "),
    ("check commanded:provider", "samples: ...The provider keeps the rules"),
    ("check commanded:definition", "The steps fit the data."),
    ("check commanded:loader", "The loader delivers."),
]


@pytest.mark.parametrize(("command", "said"), SAID)
def test_what_commands_say(command, said, capsys):
    assert main(command.split()) == 0
    rest = capsys.readouterr().out
    for words in said.split("..."):
        assert words in rest
        rest = rest[rest.index(words) + len(words.rstrip("\n")) :]


@some("subject", ["provider", "loader", "recipe"], {2})
def test_recordings_have_as_many_frames_as_requested(folder, subject):
    pytest.importorskip("rerun")
    sizes = []
    for num_frames in ("1", "2"):
        target = folder / f"{subject}{num_frames}.rrd"
        assert main(["show", f"commanded:{subject}", "--frames", num_frames, "--output", str(target)]) == 0
        sizes.append(target.stat().st_size)
    assert sizes[1] > sizes[0] + 300


PICTURES = [("recipe --sample 1", 1), ("queues", 3), ("queues --frame 1", 1), ("windows --sample 1", 2)]


@spread(("options", "num_rows"), [*PICTURES, ("windows --frame 0", 1)], 3)
def test_pictures_of_recipes_and_clips(folder, options, num_rows):
    assert main(["show", *f"commanded:{options} --output picture.png".split()]) == 0
    with Image.open(folder / "picture.png") as image:
        # A camera is 396 pixels wide, and 2/3 of that high; the heading is 38 high, all rows 330 at least.
        assert image.height - 38 == pytest.approx(max(num_rows * 396 * 2 / 3, 330), abs=2)


REFUSED = [
    (
        "show commanded:loader --frames 2 --output two.png",
        "`--frames` is for recordings: `--output` must end with .rrd, got 'two.png'",
    ),
    ("show commanded:loader --frames 0", "`--frames` must be a whole number of at least 1, got 0"),
    ("show commanded:loader --frame 0 --output one.rrd", "`--frame` is for pictures."),
    ("show commanded:queues --frame 3", "`frame`"),
    ("show commanded:loader --batch 30", "show: There is no batch 30 in the epoch."),
    ("show commanded:provider --sample 30", "`sample_index`"),
    ("bench commanded:provider --batches 0", "`--batches` must be a whole number of at least 1, got 0"),
    ("check commanded:broken", "sample 0"),
    ("check commanded:provider --recipe mine", "There is no recipe 'mine'. Recipes: ALPAMAYO, ALPAMAYO_RL, BEVF"),
    ("check commanded:provider --recipe bevfomer", "no recipe 'bevfomer'. Did you mean 'BEVFORMER'"),
    ("check commanded:loader --recipe bevformer", "of a data set, but 'commanded:loader' is a DataLoader."),
    ("check commanded:provider --recipe transfuser", "TransFuser takes a NavsimProvider, got DrivingProvider"),
]


@pytest.mark.parametrize(("command", "message"), REFUSED)
def test_what_is_wrong_is_told(command, message, capsys):
    assert main(command.split()) == 1
    assert message in capsys.readouterr().err


# --- what they look at ----------------------------------------------------------------------------------

NOT_FOUND = [
    ("commanded", "Name one of commanded:provider, commanded:definition, commanded:loader, "),
    ("", "cannot be imported: Empty module name. Name module:function or file.py:function, "),
    ("missing.py:loader", "There is no file 'missing.py'."),
    ("missing/data", "There is no folder 'missing/data'."),
    ("nowhere", "cannot be imported: No module named 'nowhere', nor is there such a folder. Name module:"),
    ("infos.pkl", "'infos.pkl' is no file of Python. Write a function that opens it, and name module:"),
    ("own/commanded.py:a", "'own/commanded.py' cannot be imported: its name is that of "),
    ("commanded:Broken", "takes arguments (index, data_root), and is called without any"),
    ("commanded:ROOT.nam", "'commanded:ROOT.nam' has no function 'nam'. Did you mean 'name'"),
    ("commanded:STREAMPETR", "name a function that returns recipe.loader(...)"),
    ("own", "The folder 'own' is not recognised as a data set (NuScenes, LeRobot, Argoverse, "),
    ("uncommanded:loader", "cannot be imported"),
    ("commanded:loaders", "has no function 'loaders'. Did you mean 'loader'"),
    (
        "commanded:number",
        "must return a DataProvider, a PipelineDefinition or a DataLoader, or a data set of PyTorch",
    ),
]


@pytest.mark.parametrize(("subject", "message"), NOT_FOUND)
def test_a_subject_must_be_found(subject, message, capsys):
    assert main(["describe", subject]) == 1
    assert message in capsys.readouterr().err


SUBJECTS = "commanded.py:provider ./commanded.py:provider commanded:held commanded:Small commanded:holder.held "
SUBJECTS += "own/only.py own.only own/classes.py commanded:images commanded:Images"


@pytest.mark.parametrize("subject", SUBJECTS.split())
def test_a_subject_may_be_many_things(subject, capsys):
    assert main(["describe", subject]) == 0
    assert "image: UINT8" in capsys.readouterr().out


def test_a_subject_is_needed():
    run = run_process([sys.executable, "-m", "accvlab.driving_data", "bench"])
    assert run.returncode == 2
    assert "module:function" in run.stderr


# --- folders of data sets -------------------------------------------------------------------------------


def _own_version(root):
    """Tables of nuScenes in a folder that is not called as those of nuScenes."""
    return (made_drive(root, "nuscenes") / "v1.0-mini").rename(root / "own").parent


FOLDERS = {
    "NuScenesProvider": lambda root: made_drive(root, "nuscenes"),
    "NuScenesProvider of another version": _own_version,
    "LeRobotProvider": lambda root: made_drive(root, "lerobot"),
    "ArgoverseProvider": lambda root: made_drive(root, "argoverse") / "train",
    "ArgoverseProvider log": lambda root: made_drive(root, "argoverse") / "train/log-1",
    "ArgoverseProvider splits": lambda root: made_drive(root, "argoverse"),
    "KittiOdometryProvider": write_odometry,
    "KittiTrackingProvider": lambda root: made_drive(root, "kitti") / "training",
    "ArrowLogProvider": lambda root: made_drive(root, "py123d") / "logs/made_train/drive",
    "ArrowLogProvider split": lambda root: made_drive(root, "py123d") / "logs/made_train",
    "ArrowLogProvider splits": lambda root: made_drive(root, "py123d") / "logs",
    "PhysicalAiProvider": lambda root: made_drive(root, "physical_ai"),
    "NavsimProvider": lambda root: made_drive(root, "navsim"),
}


@pytest.mark.skipif(not (has("pyarrow") and has("av")), reason="needs pyarrow and PyAV")
@spread("kind", FOLDERS, 6)
def test_the_folder_of_a_data_set(kind, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("ACCVLAB_INDEX_CACHE", str(tmp_path / "indices"))
    assert main(["describe", str(FOLDERS[kind](tmp_path / "data"))]) == 0
    assert f"{kind.split()[0]}(" in capsys.readouterr().out
    assert {kind.split()[0] for kind in FOLDERS} == {name for _, _, name, _ in recognition.KINDS}


def test_recipes_of_the_folder_of_a_data_set(tmp_path, capsys):
    root = made_drive(tmp_path, "nuscenes")
    assert main(["describe", str(root), "--recipe", "detection_2d"]) == 0
    assert "Detection2DFormatter(" in capsys.readouterr().out
    assert main(["check", str(root), "--recipe", "bevformer"]) == 1
    words = "check: The data set lacks what is requested:\n  - can_bus: the data set has none.\n"
    assert capsys.readouterr().err == words


@pytest.mark.skipif(not has("pyarrow"), reason="needs pyarrow")
def test_a_recipe_of_navsim_gets_the_sensors_of_its_model(tmp_path, capsys):
    root = made_drive(tmp_path, "navsim")
    assert main(["describe", str(root), "--recipe", "transfuser"]) == 0
    assert "lidar_feature" in capsys.readouterr().out
    assert main(["describe", str(made_drive(tmp_path, "nuscenes")), "--recipe", "transfuser"]) == 1
    assert "TransFuser takes a NavsimProvider, got NuScenesProvider" in capsys.readouterr().err


def test_of_several_versions_one_must_be_named(tmp_path, capsys):
    for version in ("v1.0-mini", "v1.0-test"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "sample_data.json").touch()
    assert main(["describe", str(tmp_path)]) == 1
    words = f"Name a function that returns NuScenesProvider({str(tmp_path)!r}, 'v1.0-mini')."
    assert words in capsys.readouterr().err
