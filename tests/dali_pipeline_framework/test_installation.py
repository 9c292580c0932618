"""Wheels of DALI that are missing, damaged, or installed twice: what users read, and that it repairs them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import nvidia.dali
import pytest

import accvlab.dali_pipeline_framework as package

SITE = Path(nvidia.dali.__file__).parents[2]
SOURCE = Path(package.__file__).parents[2]
BY_NAME = "from accvlab.dali_pipeline_framework import DataLoader"
BY_ROOM = "from accvlab.dali_pipeline_framework.inputs import CallableBase"


def run(code: str, *folders: Path, with_site: bool = True) -> str:
    """Run code in another interpreter, with more folders to import from; return what it writes to stderr."""
    paths = [*map(str, folders), *([str(SOURCE), str(SITE)] if with_site else [])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    return done.stderr


@pytest.fixture
def without_dali(tmp_path: Path) -> Path:
    """All installed packages but those of NVIDIA."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "accvlab").symlink_to(SOURCE / "accvlab")
    for entry in SITE.iterdir():
        if not entry.name.startswith(("nvidia", "accvlab")):
            (site / entry.name).symlink_to(entry)
    return site


@pytest.mark.parametrize("code", [BY_NAME, BY_ROOM])
def test_without_dali_the_wheels_are_named(code: str, without_dali: Path) -> None:
    *_, error, command = run(code, without_dali, with_site=False).splitlines()
    assert error == (
        "ModuleNotFoundError: DALI is not installed. CUDA 12 and machines without a GPU need nvidia-dali-cuda120, "
        "CUDA 13 needs nvidia-dali-cuda130. Install one:"
    )
    assert command == "    pip install nvidia-dali-cuda120"


def test_what_an_uninstalled_second_wheel_has_left_is_recognised(without_dali: Path) -> None:
    (without_dali / "nvidia").mkdir()
    (without_dali / "nvidia" / "dali").mkdir()  # pip removes the files that both wheels had
    (information,) = SITE.glob("nvidia_dali_cuda1*.dist-info")
    (without_dali / information.name).symlink_to(information)
    *_, error, uninstall, install = run(BY_NAME, without_dali, with_site=False).splitlines()
    assert error.startswith("ModuleNotFoundError: Parts of DALI (nvidia-dali-cuda1")
    assert "are missing or damaged: No module named 'nvidia.dali." in error
    assert uninstall == "    pip uninstall --yes nvidia-dali-cuda120 nvidia-dali-cuda130"
    assert install.startswith("    pip install nvidia-dali-cuda1")


def test_two_wheels_are_a_warning_at_the_line_of_the_user(tmp_path: Path) -> None:
    for name in ("nvidia-dali-cuda120", "nvidia-dali-cuda130"):
        information = tmp_path / f"{name.replace('-', '_')}-2.4.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.4.0\n")
    first, *_ = run(f"{BY_NAME}\n{BY_ROOM}", tmp_path).splitlines()
    assert first.startswith(
        "<string>:1: UserWarning: nvidia-dali-cuda120 2.4.0 and nvidia-dali-cuda130 2.4.0 are both"
    )
    assert run(BY_NAME) == ""


def test_files_of_another_wheel_are_a_warning(tmp_path: Path) -> None:
    (information,) = SITE.glob("nvidia_dali_cuda1*.dist-info")
    name = information.name.partition("-")[0].replace("_", "-")
    site = tmp_path / "site"
    site.mkdir()
    for entry in SITE.iterdir():
        if entry != information:
            (site / entry.name).symlink_to(entry)
    copied = site / information.name
    copied.mkdir()
    for file in information.iterdir():
        (copied / file.name).symlink_to(file)
    paths = site, SOURCE  # which may be where the packages are
    assert run(BY_NAME, *paths, with_site=False) == ""
    (copied / "RECORD").unlink()
    record = (information / "RECORD").read_text()
    changed = re.sub(r"^(nvidia/dali/libdali(?:_core)?\.so,.*,)\d+$", r"\g<1>17", record, flags=re.MULTILINE)
    (copied / "RECORD").write_text(changed)
    lines = run(BY_NAME, *paths, with_site=False).splitlines()
    assert f"UserWarning: {name} 2." in lines[0]
    assert "files of it are those of another wheel (nvidia/dali/libdali" in lines[0]
    assert lines[-1] == f"    pip install {name}"


def test_other_packages_that_are_missing_are_not_taken_for_dali(without_dali: Path) -> None:
    (without_dali / "numpy").unlink()
    assert run(BY_NAME, without_dali, with_site=False).splitlines()[-1] == (
        "ModuleNotFoundError: No module named 'numpy'"
    )
