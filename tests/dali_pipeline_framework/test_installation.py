"""Wheels of DALI that are missing or damaged: what users read."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nvidia.dali
import pytest
from support.child_processes import run_process

import accvlab.dali_pipeline_framework as package

SITE = Path(nvidia.dali.__file__).parents[2]
SOURCE = Path(package.__file__).parents[2]
BY_NAME = "from accvlab.dali_pipeline_framework import DataLoader"
BY_ROOM = "from accvlab.dali_pipeline_framework.inputs import CallableBase"


def run(code: str, *folders: Path, with_site: bool = True) -> str:
    """Run code in another interpreter, with more folders to import from; return what it writes to stderr."""
    paths = [*map(str, folders), *([str(SOURCE), str(SITE)] if with_site else [])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    done = run_process([sys.executable, "-S", "-c", code], env=environment)
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
    *_, error, uninstall, install = run(code, without_dali, with_site=False).splitlines()
    assert error == (
        "ModuleNotFoundError: DALI is not installed, or damaged: No module named 'nvidia'. The wheels share "
        "nearly all of their files, so that of two each has overwritten parts of the other. Install "
        "nvidia-dali-cuda120 (CUDA 12, and machines without a GPU) or nvidia-dali-cuda130 (CUDA 13):"
    )
    assert uninstall == "    pip uninstall --yes nvidia-dali-cuda120 nvidia-dali-cuda130"
    assert install == "    pip install nvidia-dali-cuda120"


def test_what_an_uninstalled_second_wheel_has_left_is_recognised(without_dali: Path) -> None:
    (without_dali / "nvidia").mkdir()
    (without_dali / "nvidia" / "dali").mkdir()  # pip removes the files that both wheels had
    *_, error, _, _ = run(BY_NAME, without_dali, with_site=False).splitlines()
    kind, _, said = error.partition(": ")  # which module is imported first does not matter
    assert kind in ("ImportError", "ModuleNotFoundError")
    assert said.startswith("DALI is not installed, or damaged: ")
    assert "nvidia.dali" in said.partition(" The wheels")[0]


def test_other_packages_that_are_missing_are_not_taken_for_dali(without_dali: Path) -> None:
    (without_dali / "numpy").unlink()
    assert run(BY_NAME, without_dali, with_site=False).splitlines()[-1] == (
        "ModuleNotFoundError: No module named 'numpy'"
    )
