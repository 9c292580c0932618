"""The fork server of the program: what it imports for the workers of loaders, and its end."""

from __future__ import annotations

import functools
import importlib
import os
import signal
import subprocess
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from support.child_processes import run_python, worker_pids
from support.pipelines import indices
from support.providers import IndexProvider

from accvlab.dali_pipeline_framework import DataLoader
from accvlab.dali_pipeline_framework.workers.preloading import needed_modules

pytestmark = pytest.mark.timeout(100)


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

    return write


def wait_for_end(pid: int) -> None:
    deadline = time.monotonic() + 60
    while psutil.pid_exists(pid):
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


NOTED = """
    import os

    with open(os.environ["NOTES"], "a") as file:
        file.write(f"{__name__} {os.getpid()}\\n")
"""
PROVIDER = """
    import os

    import numpy as np
    from support.providers import IndexProvider

    import own_notes
    import shop_notes


    class Provider(IndexProvider):
        def get_data(self, sample_index):
            sample = super().get_data(sample_index)
            sample["index"] = np.int64(os.getpid())
            return sample
"""
LOOP = """
    import os

    from accvlab.dali_pipeline_framework import DataLoader
    from own_provider import Provider

    if __name__ == "__main__":
        for _ in range(2):
            with DataLoader(Provider(64), 1, num_workers=2, output_type="numpy") as loader:
                loader.start()
                print(os.getpid(), *{int(batch["index"][0]) for batch in loader})
"""


def run(folder: Path, source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own, which has no fork server yet."""
    script = folder / "script.py"
    script.write_text(textwrap.dedent(source))
    # Which waits until nobody has its output open any more.
    return run_python(script, *arguments, env={**os.environ, "NOTES": str(folder / "notes")})


def test_installed_modules_are_imported_once_and_those_of_the_user_by_each_worker(
    modules: Callable[..., Path],
) -> None:
    folder = modules(shop_notes=NOTED, own_notes=NOTED, own_provider=PROVIDER)
    done = run(folder, LOOP)
    assert done.returncode == 0, done.stderr
    first, second = ([int(pid) for pid in line.split()] for line in done.stdout.splitlines())
    imports = [line.split() for line in (folder / "notes").read_text().splitlines()]
    of_shop = [int(pid) for name, pid in imports if name == "shop_notes"]
    main, workers = first[0], {*first[1:], *second[1:]}
    assert workers
    assert of_shop[0] == main
    assert len(of_shop) == 2  # the other one is the server
    assert of_shop[1] not in {main, *workers}
    by_users_module = [int(pid) for name, pid in imports if name == "own_notes"]
    assert {main, *workers} <= {*by_users_module}
    assert len(by_users_module) == 5  # the program, and each worker of both loaders


@pytest.mark.wide
@pytest.mark.parametrize("fails", ["raise", "exit"])
def test_a_module_that_cannot_be_imported_there_is_left_to_the_workers(
    modules: Callable[..., Path], fails: str
) -> None:
    only_here = """
        import sys

        if any("multiprocessing.forkserver" in argument for argument in sys.orig_argv):
            raise SystemExit(3) if FAILS == "exit" else ImportError("not here")
    """
    folder = modules(own_notes="", own_provider=PROVIDER)
    # Where the server itself is ended by it, it is started again without it.
    modules(shop_notes=f"FAILS = {fails!r}\n" + textwrap.dedent(only_here))
    is_worker = "import multiprocessing\nif multiprocessing.current_process().name != 'MainProcess': pass\nel"
    source = (folder / "site-packages" / "shop_notes.py").read_text()
    (folder / "site-packages" / "shop_notes.py").write_text(source.replace("\nif any", f"\n{is_worker}if any"))
    done = run(folder, LOOP)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 2


def test_the_loaders_of_a_program_share_it() -> None:
    parents = []
    for _ in range(2):
        with DataLoader(IndexProvider(8), 4, num_workers=1, output_type="numpy") as loader:
            assert indices(loader) == [[0, 1, 2, 3], [4, 5, 6, 7]]
            (worker,) = worker_pids()
            parents.append(psutil.Process(worker).ppid())
    assert parents[0] == parents[1]
    assert psutil.Process(parents[0]).ppid() == os.getpid()


# --- its end ---------------------------------------------------------------------------------------------


ENDING = """
    import os
    import sys

    from accvlab.dali_pipeline_framework import DataLoader
    from own_provider import Provider

    if __name__ == "__main__":
        loader = DataLoader(Provider(64), 1, num_workers=2, output_type="numpy")
        if sys.argv[1] != "early":
            open(os.environ["NOTES"] + ".begun").read()  # the server has begun to import the module
        if sys.argv[1] == "killed":
            os.kill(os.getpid(), 9)
"""
SLOW = """
    import os
    import select
    import sys

    if any("multiprocessing.forkserver" in argument for argument in sys.orig_argv):
        with open(os.environ["NOTES"], "w") as file:
            file.write(str(os.getpid()))
        open(os.environ["NOTES"] + ".begun", "w").close()
        select.poll().poll()  # without end
"""


@pytest.mark.wide
@pytest.mark.parametrize("how", ["early", "late", "killed"])
def test_it_ends_with_the_program_also_while_it_imports(how: str, modules: Callable[..., Path]) -> None:
    folder = modules(shop_notes=SLOW, own_notes="", own_provider=PROVIDER)
    os.mkfifo(folder / "notes.begun")
    done = run(folder, ENDING, how)
    assert (done.stdout, done.stderr) == ("", "")
    assert done.returncode == (-signal.SIGKILL if how == "killed" else 0)
    if how != "early":
        wait_for_end(int((folder / "notes").read_text()))
