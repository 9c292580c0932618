"""What does not end shows where it hangs, also in the processes that it has started."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from support.child_processes import communicate, join, run_process
from support.scripts import start_script

HANGING = """
import os, sys, time
def waits_in_child():
    print("ready", flush=True)
    time.sleep(1000)
def waits_for_child(pid):
    os.waitpid(pid, 0)
    print("goes on")
if pid := os.fork():
    waits_for_child(pid)
else:
    waits_in_child()
"""


def test_of_a_process() -> None:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", HANGING], **pipes) as process:
        assert process.stdout.readline() == "ready\n"
        (child,) = psutil.Process(process.pid).children()
        with pytest.raises(AssertionError, match=r"(?s)waits_in_child.*waits_for_child") as caught:
            communicate(process, 0.01)
    assert "\ngoes on" not in str(caught.value)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


@pytest.mark.wide  # its server imports DALI
def test_of_a_script(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "script.py").write_text(HANGING)
    script = start_script(tmp_path / "script.py", modules=("wave",))  # of a server that has stderr of this test
    assert script.stdout.readline() == "ready\n"
    with pytest.raises(AssertionError, match="a process does not end"):
        communicate(script, 0.01)
    assert re.search("(?s)waits_in_child.*waits_for_child", capfd.readouterr().err)


def test_what_ends_is_no_error() -> None:
    command = [sys.executable, "-c", "print(input()[::-1]); raise SystemExit(3)"]
    done = run_process(command, input="abc\n", timeout=100)
    assert (done.returncode, done.stdout, done.stderr) == (3, "cba\n", "")
    with pytest.raises(AssertionError, match="3: cba"):
        run_process(command, input="abc", check=True)
    join([], 0)


WAITS = re.compile(r"subprocess\.(run|call|check_call|check_output)\(|\.communicate\(.*timeout=|\.join\(timeout")
EXCEPT = {"child_processes.py", "mutants.py", "matrix.py", "test_child_processes.py"}


def test_all_tests_wait_by_these_functions() -> None:
    paths = [path for path in Path(__file__).parent.rglob("*.py") if path.name not in EXCEPT]
    assert len(paths) > 200
    assert [path.name for path in paths if WAITS.search(path.read_text())] == []
