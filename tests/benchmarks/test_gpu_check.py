"""The checks of a machine with a GPU: on the CPU, and with a driver that only says that there is a GPU."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

import gpu_check
import pytest
from gpu_checks import CHECKS, Check
from support.stand_in_driver import make_stand_in_driver, needs_compiler

IN_PROCESS = [check for check in CHECKS if check.__name__ not in ("environment", "tests")]
QUICK = ("pixels",)


@pytest.fixture(autouse=True)
def more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits are for a machine that does nothing else."""
    longer = {name: (check, 5 * seconds) for name, (check, seconds) in gpu_check.CHECKS.items()}
    monkeypatch.setattr(gpu_check, "CHECKS", longer)


@pytest.mark.parametrize(
    "function",
    [pytest.param(each, marks=[] if each.__name__ in QUICK else pytest.mark.wide) for each in IN_PROCESS],
    ids=lambda each: each.__name__,
)
def test_a_check_runs_without_a_gpu(function: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCVLAB_INDEX_CACHE", str(tmp_path))
    check = Check(tmp_path / "found.json", None, quick=True)
    function(check)
    written = json.loads(check.path.read_text())
    assert written["problems"] == []
    assert len(written["found"]) >= 2
    assert written["found"].keys() == check.found.keys()


@pytest.mark.wide
def test_a_page_and_a_file_of_json_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--device", "none", "--quick", "--folder", str(tmp_path)]
    assert gpu_check.main([*arguments, "--only", "environment,tests"]) == 0
    results = json.loads((tmp_path / "gpu_none.json").read_text())["checks"]
    assert [*results] == ["environment", "tests"]
    assert "1 passed" in results["tests"]["found"]["summary"]
    assert results["tests"]["found"]["outcomes"] == {"PASSED": 1}
    assert "All good, of environment, tests." in (tmp_path / "gpu_none.md").read_text()
    page = (tmp_path / "gpu_none.md").read_text()
    assert f"| tests | good | {results['tests']['seconds']} | the tests marked gpu |" in page
    assert "environment (" in capsys.readouterr().out


@pytest.mark.wide
def test_nothing_else_runs_where_the_gpu_cannot_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gpu_check.main(["--quick", "--folder", str(tmp_path), "--only", "environment,memory"]) == 1
    assert [*json.loads((tmp_path / "gpu_none.json").read_text())["checks"]] == ["environment"]
    assert capsys.readouterr().out.splitlines()[-1].startswith("Problems in: environment.")


def test_the_limits_of_all_checks_fit_that_of_the_whole() -> None:
    assert sum(CHECKS.values()) <= gpu_check.MOST_SECONDS < 600


@pytest.mark.wide
def test_a_check_that_takes_too_long_is_ended_and_those_behind_it_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_check, "MOST_SECONDS", 6)
    assert gpu_check.main(["--device", "none", "--folder", str(tmp_path), "--only", "memory,speed"]) == 1
    checks = json.loads((tmp_path / "gpu_none.json").read_text())["checks"]
    assert checks["memory"]["problems"] == ["It was ended after 6 s."]
    assert checks["speed"]["problems"] == ["There was no time left for it."]


def test_an_error_is_a_problem_and_a_missing_package_is_not(tmp_path: Path) -> None:
    check = Check(tmp_path / "found.json", None, quick=True)
    check.each(["1", "0", "2"], lambda divisor: 2 // int(divisor))
    check.each(["no_package"], importlib.import_module)
    assert check.problems == ["0: ZeroDivisionError: integer division or modulo by zero"]
    missing = "not checked: ModuleNotFoundError: No module named 'no_package'"
    assert json.loads(check.path.read_text())["found"] == {"1": 2, "2": 1, "no_package": missing}
    page = gpu_check.page_of("a page", {"pixels": {"seconds": 1, "problems": [], "found": check.found}})
    assert "| pixels | good, 1 not checked | 1 |" in page


# --- with a driver that only says that there is a GPU ---------------------------------------------------------


@pytest.mark.wide
@needs_compiler
@pytest.mark.parametrize(
    ("driver_cuda", "why"),
    [
        (13000, "PyTorch .* is built without CUDA: install one with it"),
        (11080, "nvidia-dali-cuda120 needs a driver for CUDA 12, and this one is for 11.8: update it"),
    ],
)
def test_what_to_install_is_the_verdict(
    driver_cuda: int, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in make_stand_in_driver(tmp_path / "driver", [(9, 0)], driver_cuda=driver_cuda).items():
        monkeypatch.setenv(name, value)
    assert gpu_check.main(["--quick", "--folder", str(tmp_path), "--only", "environment,pixels"]) == 1
    first, verdict = capsys.readouterr().out.splitlines()
    assert re.search(rf": The GPU cannot be used: {why}", first)
    assert verdict.startswith("Problems in: environment. See")
    found = json.loads((tmp_path / "gpu_none.json").read_text())["checks"]["environment"]["found"]
    assert found["driver"] == f"{{'capabilities': ((9, 0),), 'driver_cuda': {driver_cuda}, 'has_video': True}}"
