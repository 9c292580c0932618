"""Workers that stand still before they load anything: named in time, started again, never waited for for ever."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from disturbed_loaders import AT_THE_LATEST_S, STEPS, loader_of, stream
from support.child_processes import run_python
from support.fault_providers import BlockedProvider, BlockedSetUp, BlockedStep, ImageProvider, when_noted
from support.laws import each_value, some
from support.loaders import frozen
from support.scripts import run_script

from accvlab.dali_pipeline_framework import DataLoader, FaultPolicy
from accvlab.dali_pipeline_framework.errors import WorkerStartError
from accvlab.dali_pipeline_framework.workers import process
from accvlab.dali_pipeline_framework.workers.pool import supervisor

pytestmark = pytest.mark.timeout(120)  # nothing may hang

AFTER_S = 0.8
POLICY = FaultPolicy(restarts=1, blocked_after=AFTER_S)
STAGES = {
    "input": r"unpickling the input \(BlockedProvider\)",
    "steps": r"unpickling the steps \(ImageProvider\)",
    "worker_init_fn": r"running `worker_init_fn` \(ImageProvider\)",
}


def loader_with(blocked: BlockedSetUp, what: str, faults: FaultPolicy, **arguments: Any) -> DataLoader:
    if what == "input":
        return loader_of(BlockedProvider(blocked), faults=faults, **arguments)
    if what == "steps":
        how = {"steps": [STEPS[0], BlockedStep(blocked)], "run": "workers"}
        return loader_of(ImageProvider(), faults=faults, **how, **arguments)
    return loader_of(ImageProvider(), faults=faults, worker_init_fn=blocked, **arguments)


@pytest.fixture(scope="module")
def undisturbed() -> list[Any]:
    return stream(loader_of(ImageProvider(), num_workers=0), 1)


@pytest.mark.parametrize(
    ("what", "method"),
    [
        ("worker_init_fn", "fork"),
        pytest.param("input", "forkserver", marks=pytest.mark.wide),
        pytest.param("steps", "spawn", marks=pytest.mark.wide),
    ],
)
@pytest.mark.parametrize("num_blocked", [1, 2])
def test_workers_that_stand_still_are_started_again(
    tmp_path: Path,
    undisturbed: list[Any],
    what: str,
    method: str,
    num_blocked: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    blocked = BlockedSetUp(tmp_path, num_times=num_blocked, in_call=what == "worker_init_fn")
    received = stream(loader_with(blocked, what, POLICY, start_method=method), 1)
    if what == "steps":  # another definition
        undisturbed = stream(loader_with(BlockedSetUp(tmp_path), what, FaultPolicy(), start_method="fork"), 1)
    assert received == undisturbed
    told = [record for record in caplog.records if "Restart 1 of at most 1" in record.getMessage()]
    assert re.search(rf"since it stood still for [\d.]+ s, while it was {STAGES[what]}", told[0].getMessage())
    assert told[0].created - when_noted(tmp_path) < AFTER_S + AT_THE_LATEST_S


def test_imports_are_no_standing_still(tmp_path: Path, undisturbed: list[Any]) -> None:
    for number in range(8):
        (tmp_path / f"slow_{tmp_path.name}_{number}.py").write_text("import time\ntime.sleep(0.2)\n")
    blocked = BlockedSetUp(tmp_path, "import_slowly", in_call=True)
    policy = FaultPolicy(blocked_after=AFTER_S)  # 8 modules take twice as long
    assert stream(loader_with(blocked, "worker_init_fn", policy, num_workers=1), 1) == undisturbed


SCRIPT = """
import time
import accvlab.dali_pipeline_framework.workers.pool.supervisor as supervisor
if __name__ == "__mp_main__":
    time.sleep(1000)  # in each spawned worker
from disturbed_loaders import loader_of
from support.fault_providers import ImageProvider
from accvlab.dali_pipeline_framework import FaultPolicy
from accvlab.dali_pipeline_framework.errors import WorkerStartError
class Provider(ImageProvider):
    "Of the main script."
supervisor.LONGEST_START_S = 4.0
began = time.monotonic()
provider = Provider()
provider.large = bytes(1 << 20)  # more than a pipe holds
try:
    next(iter(loader_of(provider, start_method="spawn", faults=FaultPolicy(blocked_after=1.0))))
except WorkerStartError as error:
    print(f"after {time.monotonic() - began:.1f} s: {error}")
"""


@pytest.mark.wide
def test_workers_that_do_not_even_start(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    ended = run_python(script, check=True)
    found = re.search(
        r"after ([\d.]+) s: The worker processes could not be started. .* since it stood still for [\d.]+ s, "
        r"while it was starting, or importing the main script",
        ended.stdout,
    )
    assert found is not None, ended
    assert 4 <= float(found[1]) < 4 + AT_THE_LATEST_S


# --- workers that end while they start -------------------------------------------------------------------


def end_workers(
    monkeypatch: pytest.MonkeyPatch, moment: str, folder: Path, num_times: int, end: Callable[[], object]
) -> None:
    """End workers at a moment of their start, where a function of the module of the worker is called."""
    called = getattr(process, moment)

    def end_or_call(*arguments: Any) -> Any:
        for number in range(num_times):
            with contextlib.suppress(FileExistsError):
                (folder / f"ended{number}").touch(exist_ok=False)
                end()
        return called(*arguments)

    monkeypatch.setattr(process, moment, end_or_call)


MOMENTS = ["prepare_worker_process", "answer_requests", "begun_loader", "say_ready"]


def kill_this_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_worker_that_is_killed_while_it_starts_is_an_error_and_the_loader_goes_on(
    tmp_path: Path, undisturbed: list[Any], moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_workers(monkeypatch, moment, tmp_path, 1, kill_this_process)
    with loader_of(ImageProvider(), start_method="fork", num_workers=1) as loader:
        loop = iter(loader)
        with pytest.raises(WorkerStartError, match=r"process \d+ was ended by SIGKILL") as raised:
            next(loop)
        assert raised.value.was_killed
        assert [*map(frozen, loop)] == undisturbed


@each_value(moment=MOMENTS, num_times=[1, 3])
def test_workers_that_are_killed_while_they_start_are_started_again(
    tmp_path: Path, undisturbed: list[Any], moment: str, num_times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_workers(monkeypatch, moment, tmp_path, num_times, kill_this_process)
    policy = FaultPolicy(restarts=num_times)
    assert stream(loader_of(ImageProvider(), start_method="fork", faults=policy), 1) == undisturbed
    assert len([*tmp_path.iterdir()]) == num_times


def test_workers_that_end_by_themselves_while_they_start_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    end_workers(monkeypatch, "begun_loader", tmp_path, 1, lambda: os._exit(3))
    with loader_of(ImageProvider(), start_method="fork", num_workers=1, faults=FaultPolicy(restarts=3)) as loader:
        with pytest.raises(WorkerStartError, match="exited with code 3") as raised:
            next(iter(loader))
        assert not raised.value.was_killed
        assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


class SlowToUnpickle(ImageProvider):
    def __setstate__(self, state: dict[str, Any]) -> None:
        time.sleep(2)
        vars(self).update(state)


@pytest.mark.wide
def test_it_is_logged_that_workers_take_long_to_start(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(supervisor, "REPORTED_AFTER_S", 0.1)
    with loader_of(SlowToUnpickle(), start_method="forkserver") as loader:
        next(iter(loader))
    texts = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(texts) == 1
    assert texts[0].startswith("Starting 2 workers: after ")


FEW_FILES = """
import resource
from accvlab.dali_pipeline_framework import DataLoader
from accvlab.dali_pipeline_framework.errors import FrameworkError
from support.providers import IndexProvider

if __name__ == "__main__":
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    for limit in (16, 22, 26, 64):
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))
        try:
            workers = dict(num_workers=2, start_method={method!r})
            with DataLoader(IndexProvider(8), 4, output_type="numpy", **workers) as loader:
                print(len(list(loader)), flush=True)
        except FrameworkError as error:
            print("says why" if "`ulimit" in str(error) and "-n" in str(error) else error, flush=True)
"""


@some("method", ["fork", "forkserver", "spawn"], {0})
def test_where_few_files_may_be_open_the_error_names_the_limit(tmp_path: Path, method: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(FEW_FILES.format(method=method))
    done = run_script(script, timeout=100)
    lines = done.stdout.splitlines()
    assert {*lines} == {"says why", "2"}, done.stderr
    assert (lines[0], lines[-1], len(lines)) == ("says why", "2", 4)
