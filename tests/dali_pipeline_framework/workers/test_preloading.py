"""The fork server: what it imports, what its workers find, and its end."""

from __future__ import annotations

import functools
import gc
import importlib
import json
import os
import signal
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from accvlab.dali_pipeline_framework.engine.forking.fork_server import (
    ForkServer,
    PreloadedContext,
    fork_server_for,
    needed_modules,
)
from support.child_processes import join, run_process
from support.pipelines import indices
from support.providers import IndexProvider

from accvlab.dali_pipeline_framework import DataLoader

FACTS = """
    import json
    import os
    import sys


    def write(path, *names):
        facts = {
            "modules": [name for name in names if name in sys.modules],
            "variable": os.environ.get("VARIABLE_OF_TEST"),
            "parent": os.getppid(),
            "pid": os.getpid(),
        }
        with open(path, "w") as file:
            json.dump(facts, file)
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Write modules of an installed package and of the user, which can be imported; get the folder of these."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "site-packages")
    (tmp_path / "site-packages").mkdir()

    def write(**sources: str) -> Path:
        for name, source in sources.items():
            folder = tmp_path if name.startswith("own_") else tmp_path / "site-packages"
            (folder / f"{name}.py").write_text(textwrap.dedent(source))
        importlib.invalidate_caches()
        return tmp_path

    write(own_facts=FACTS)
    return write


def facts_of_worker(server: ForkServer, folder: Path, *names: str) -> dict[str, Any]:
    """Run a worker of a server; get what it has found, and which of some modules it had imported."""
    write = importlib.import_module("own_facts").write
    path = folder / "facts.json"
    process = PreloadedContext(server, time.monotonic, False).Process(target=write, args=(str(path), *names))
    process.start()
    join([process], 60)
    assert process.exitcode == 0
    found: dict[str, Any] = json.loads(path.read_text())
    assert found["pid"] == process.pid
    return found


def has_ended(pid: int) -> bool:
    return not psutil.pid_exists(pid)


def wait_for_end(pid: int) -> None:
    deadline = time.monotonic() + 60
    while not has_ended(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


# --- what it imports -----------------------------------------------------------------------------------


def test_installed_modules_that_the_classes_of_values_need(modules: Callable[..., Path]) -> None:
    modules(
        shop_a="class Base: pass",
        shop_b="def grow(x): return x",
        shop_c="VALUE = 1",
        shop_d="class Slots:\n    __slots__ = ('held',)",
        own_base="import json\nfrom shop_a import Base\nclass Own(Base): pass",
        own_data="import shop_c as c\nfrom own_base import Own\nclass Provider: pass",
    )
    named = {name: importlib.import_module(name) for name in ("own_data", "shop_b", "shop_d")}
    provider, slots = named["own_data"].Provider(), named["shop_d"].Slots()
    slots.held = [provider]
    assert needed_modules(1, "shop_b", named["shop_b"]) == []
    assert needed_modules(provider) == ["shop_c", "shop_a"]
    assert needed_modules({"a": functools.partial(named["shop_b"].grow, [slots])}) == [
        "shop_b",
        "shop_d",
        "shop_c",
        "shop_a",
    ]
    provider.itself = provider
    assert needed_modules(provider) == ["shop_c", "shop_a"]


def test_a_worker_has_what_the_server_has_imported(modules: Callable[..., Path]) -> None:
    folder = modules(shop_fast="", shop_missing_too="import no_such_module")
    server = ForkServer(["shop_fast", "shop_missing_too", "shop_missing"])
    facts = facts_of_worker(server, folder, "shop_fast", "shop_missing_too", "shop_missing", "numpy")
    assert facts["modules"] == ["shop_fast"]
    assert facts["parent"] not in (os.getpid(), 1)
    assert server.seconds is not None
    assert [*server.seconds] == ["shop_fast", "shop_missing_too", "shop_missing"]
    server.close()
    assert has_ended(facts["parent"])


def test_a_module_that_starts_threads_is_left_to_the_workers(modules: Callable[..., Path]) -> None:
    blocked = "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()"
    warns = "import os, warnings\nos.register_at_fork(before=lambda: warnings.warn('no'))"
    initialised = "import sys, types\nsys.modules['nvidia.dali.backend'] = types.SimpleNamespace()\n"
    initialised += "sys.modules['nvidia.dali.backend'].IsDriverInitialized = lambda: True"
    folder = modules(shop_threads=blocked, shop_warns=warns, shop_cuda=initialised, shop_before="", shop_after="")
    server = ForkServer(["shop_before", "shop_threads", "shop_after"])
    facts = facts_of_worker(server, folder, "shop_before", "shop_threads", "shop_after")
    assert facts["modules"] == ["shop_before", "shop_after"]
    # Which module warns is found out after all of them only.
    for name, left in (("shop_cuda", ["shop_before"]), ("shop_warns", [])):
        server = ForkServer(["shop_before", name])
        assert facts_of_worker(server, folder, "shop_before", name)["modules"] == left


def test_a_worker_gets_the_environment_of_now(
    modules: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = modules()
    monkeypatch.setenv("VARIABLE_OF_TEST", "before")
    server = ForkServer([])
    assert facts_of_worker(server, folder)["variable"] == "before"
    monkeypatch.setenv("VARIABLE_OF_TEST", "later")
    assert facts_of_worker(server, folder)["variable"] == "later"
    monkeypatch.delenv("VARIABLE_OF_TEST")
    assert facts_of_worker(server, folder)["variable"] is None


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 always looks into the current folder")
def test_files_in_the_current_folder_are_not_taken_for_those_of_python(
    modules: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = modules()
    (tmp_path / "current").mkdir()
    (tmp_path / "current" / "json.py").write_text("raise AssertionError")
    monkeypatch.chdir(tmp_path / "current")
    assert facts_of_worker(ForkServer([]), folder, "json")["modules"] == ["json"]


def test_a_server_that_was_killed_is_started_again(modules: Callable[..., Path]) -> None:
    folder = modules(shop_fast="")
    server = ForkServer(["shop_fast"])
    first = facts_of_worker(server, folder, "shop_fast")
    os.kill(first["parent"], signal.SIGKILL)
    wait_for = psutil.Process(first["parent"])
    while wait_for.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    second = facts_of_worker(server, folder, "shop_fast")
    assert second["modules"] == ["shop_fast"]
    assert second["parent"] != first["parent"]
    assert has_ended(first["parent"])


# --- one for a program -----------------------------------------------------------------------------------


@pytest.mark.wide
def test_another_one_takes_its_place_where_workers_need_another_package(modules: Callable[..., Path]) -> None:
    folder = modules(shop_first="class First: pass", shop_other="class Other: pass")
    first, other = (importlib.import_module(name) for name in ("shop_first", "shop_other"))
    servers: Any = [fork_server_for(first.First())]
    assert fork_server_for(first.First()) is fork_server_for(1) is servers[0]
    pid = facts_of_worker(servers[0], folder)["parent"]
    servers.append(fork_server_for(other.Other()))
    assert servers[0] is not servers[1] is fork_server_for(first.First(), other.Other())
    assert {"shop_first", "shop_other"} <= servers[1].packages
    assert not has_ended(pid)
    del servers[0]
    gc.collect()
    assert has_ended(pid)


def test_the_loaders_of_a_program_share_it() -> None:
    parents = []
    for _ in range(2):
        with DataLoader(IndexProvider(8), 4, num_workers=1, output_type="numpy") as loader:
            assert indices(loader) == [[0, 1, 2, 3], [4, 5, 6, 7]]
            worker = next(use.pid for use in loader.report().worker_uses)
            parents.append(psutil.Process(worker).ppid())
            assert {"nvidia", "accvlab"} <= {*loader.report().imports_s}
            assert [*loader.report().start_s] == ["workers", "graph"]
    assert parents[0] == parents[1]
    assert psutil.Process(parents[0]).ppid() == os.getpid()


# --- its end ---------------------------------------------------------------------------------------------


def test_a_process_that_a_worker_left_does_not_hold_up_its_end(modules: Callable[..., Path]) -> None:
    folder = modules(
        own_leaving="""
        import os
        import signal

        def leave(path):
            pid = os.fork()
            if pid == 0:
                null = os.open(os.devnull, os.O_RDWR)
                for standard in range(3):
                    os.dup2(null, standard)
                signal.alarm(300)
                signal.pause()
            with open(path, "w") as file:
                file.write(f"{os.getppid()} {pid}")
    """
    )
    server, path = ForkServer([]), folder / "left"
    leave = importlib.import_module("own_leaving").leave
    process = PreloadedContext(server, time.monotonic, False).Process(target=leave, args=(str(path),))
    process.start()
    join([process], 60)
    server_pid, left = map(int, path.read_text().split())
    try:
        server.close()
        assert psutil.pid_exists(left)
        assert has_ended(server_pid)
    finally:
        os.kill(left, signal.SIGKILL)


SCRIPT = """
    import os
    import sys

    from accvlab.dali_pipeline_framework.engine.forking.fork_server import ForkServer

    server = ForkServer(["shop_slow"])
    if sys.argv[2] == "late":
        open(sys.argv[1]).read()  # it has begun to import the module
    if sys.argv[2] == "killed":
        os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("how", ["early", "late", "killed"])
def test_it_ends_with_the_program_also_while_it_imports(
    how: str, modules: Callable[..., Path], tmp_path: Path
) -> None:
    begun, pid = tmp_path / "begun", tmp_path / "pid"
    os.mkfifo(begun)
    modules(
        shop_slow=f"""
        import os, select
        with open({str(pid)!r} + "_", "w") as file:
            file.write(str(os.getpid()))
        os.rename({str(pid)!r} + "_", {str(pid)!r})
        open({str(begun)!r}, "w").close()
        select.poll().poll()  # for ever
    """
    )
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(script), str(begun), how]
    # Which waits until nobody has its output open any more.
    done = run_process(command, timeout=100, env=environment)
    assert (done.stdout, done.stderr) == ("", "")
    assert done.returncode == (-signal.SIGKILL if how == "killed" else 0)
    if how == "late":
        wait_for_end(int(pid.read_text()))
