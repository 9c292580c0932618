"""The whole check of a checkout: the reference data that it finds, and its end."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest
from support.child_processes import run_process
from support.laws import each_value

ROOT = Path(__file__).parents[1]


@each_value(given=[None, "elsewhere"], is_there=[True, False])
def test_the_whole_check_compares_where_reference_data_is_next_to_it(
    tmp_path: Path, given: str | None, is_there: bool
) -> None:
    script = ROOT / ".ci" / "run"
    if not script.exists():
        pytest.skip("the tests run without the checkout")
    (tmp_path / "checkout" / ".ci").mkdir(parents=True)
    shutil.copy(script, tmp_path / "checkout" / ".ci" / "run")
    (tmp_path / "bin").mkdir()
    make = tmp_path / "bin" / "make"
    make.write_text('#!/bin/sh\necho "$PWD $* ${ACCVLAB_DATA-}"\n')
    make.chmod(0o755)
    if is_there:
        (tmp_path / "shared" / "data").mkdir(parents=True)
    environment = {"PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    if given:
        environment["ACCVLAB_DATA"] = given
    printed = run_process(
        [tmp_path / "checkout/.ci/run"], env=environment, cwd=tmp_path, stderr=None, check=True
    ).stdout
    expected = given or (f"{tmp_path / 'shared' / 'data'}" if is_there else "")
    assert printed.strip() == f"{tmp_path / 'checkout'} test {expected}".strip()


def test_the_whole_check_ends_with_its_tests_also_where_they_leave_a_process(tmp_path: Path) -> None:
    script = ROOT / ".ci" / "run"
    if not script.exists():
        pytest.skip("the tests run without the checkout")
    make = tmp_path / "make"
    make.write_text('#!/bin/sh\nsleep 60 & echo "$!"\nexit 3\n')
    make.chmod(0o755)
    environment = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    ended = run_process([script], env=environment, stderr=None, timeout=100)
    os.kill(int(ended.stdout.splitlines()[0]), signal.SIGKILL)  # it is still there
    assert ended.returncode == 3
