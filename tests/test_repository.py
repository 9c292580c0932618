"""Files of the repository that no program of it reads: workflows, locked versions."""

from __future__ import annotations

import importlib.metadata
import os
import re
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from support.child_processes import run_process

ROOT = Path(__file__).parents[1]
CONSTRAINTS = ROOT / "tests" / "constraints.txt"

needs_checkout = pytest.mark.skipif(not (ROOT / ".github").is_dir(), reason="the tests run without the checkout")


def locked_versions() -> dict[str, str]:
    """Version of each package that is locked for this interpreter and machine."""
    locked = [Requirement(line) for line in CONSTRAINTS.read_text().splitlines()]
    here = [one for one in locked if one.marker is None or one.marker.evaluate()]
    return {one.name: str(one.specifier).removeprefix("==") for one in here}


@needs_checkout
@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("github-workflows", "workflows/*.yml"),
        ("github-issue-forms", "ISSUE_TEMPLATE/[!c]*.yml"),
        ("github-issue-config", "ISSUE_TEMPLATE/config.yml"),
    ],
)
def test_files_for_the_host_of_the_repository_are_valid(schema: str, files: str) -> None:
    found = sorted((ROOT / ".github").glob(files))
    assert found
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *found]
    checked = run_process(command)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@needs_checkout
def test_workflows_only_call_targets_of_make() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        commands = re.findall(r"run: (.*)", path.read_text())
        assert commands
        assert {command.removeprefix("make ") for command in commands} <= targets


def test_make_runs_all_tests_without_a_gpu() -> None:
    """Once CUDA is initialised, DALI forks no workers."""
    recipes = re.findall(r"^\t(.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    running = [line for line in recipes if re.search(r"PYTEST|-m pytest|tests/\w+\.py", line)]
    assert len(running) == 8
    assert [line for line in running if "$(HIDDEN)" not in line] == []


def test_only_the_wheel_for_cuda_12_is_brought() -> None:
    """Of two wheels, each overwrites files of the other; and the package without extras can be imported."""
    tomllib = pytest.importorskip("tomllib", reason="is in Python since 3.11")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    always = {Requirement(line).name for line in project["dependencies"]}
    by_extras = {Requirement(line).name for lines in project["optional-dependencies"].values() for line in lines}
    assert {name for name in always if name.startswith("nvidia-")} == {"nvidia-dali-cuda120"}
    assert {name for name in by_extras if name.startswith("nvidia-")} == {"nvidia-dali-cuda120"}


@pytest.mark.skipif("CANARY" in os.environ, reason="newer versions are what this run is about")
def test_locked_versions_are_installed() -> None:
    locked = locked_versions()
    assert len(locked) > 100
    installed = {
        dist.name.lower().replace("_", "-").replace(".", "-"): dist.version.partition("+")[0]
        for dist in importlib.metadata.distributions()
    }
    other = {name: (installed[name], version) for name, version in locked.items() if name in installed}
    assert {name: pair for name, pair in other.items() if pair[0] != pair[1]} == {}


@needs_checkout
def test_hooks_before_commits_have_the_locked_versions() -> None:
    text = (ROOT / ".pre-commit-config.yaml").read_text()
    locked = locked_versions()
    for repository, package in (("ruff-pre-commit", "ruff"), ("check-jsonschema", "check-jsonschema")):
        assert re.search(rf"{repository}\n\s+rev: v?{re.escape(locked[package])}\n", text)


def test_all_tests_wait_by_helpers_that_show_where_a_process_hangs() -> None:
    waits = re.compile(
        r"subprocess\.(run|call|check_call|check_output)\(|\.communicate\(.*timeout=|\.join\(timeout"
    )
    programs = {"child_processes.py", "mutants.py", "matrix.py", "test_repository.py"}
    paths = [path for path in (ROOT / "tests").rglob("*.py") if path.name not in programs]
    assert [path.name for path in paths if waits.search(path.read_text())] == []
