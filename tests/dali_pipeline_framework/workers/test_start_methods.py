"""Pipelines start their workers as they are told, whatever is the default of `multiprocessing`."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest
from support.child_processes import run_python
from support.pipelines import indices
from support.providers import IndexProvider
from support.scripts import messages, run_script

from accvlab.dali_pipeline_framework import DataLoader, FaultPolicy
from accvlab.dali_pipeline_framework.sample_data import SampleDataGroup


@pytest.mark.wide
def test_a_fork_server_may_be_the_default(tmp_path: Path) -> None:
    # As from Python 3.14 on.
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
            import multiprocessing
            from support.pipelines import indices, make_iterator, shuffled, worker_pids
            from support.providers import IndexProvider

            from accvlab.dali_pipeline_framework import DataLoader


            def main():
                multiprocessing.set_start_method("forkserver")
                arguments = {"num_workers": 1, "output_type": "numpy"}
                for more in ({}, {"start_method": "forkserver"}):
                    with DataLoader(shuffled(IndexProvider(8)), **arguments, **more) as loader:
                        print(indices(loader), len(worker_pids()))
                with make_iterator(shuffled(IndexProvider(8)), py_num_workers=1) as iterator:
                    print(indices(iterator), len(worker_pids()))
                print(worker_pids())


            if __name__ == "__main__":
                main()
        """)
    )
    result = run_python(script)
    assert messages(result.stderr) == []
    assert result.stdout == 3 * "[[0, 1, 2, 3], [4, 5, 6, 7]] 1\n" + "[]\n"


class OfAnotherLoader(IndexProvider):
    """Has what a loader delivers that it makes itself, where it loads."""

    def get_data(self, sample_index: int) -> SampleDataGroup:
        with DataLoader(IndexProvider(8), 4, num_workers=0, output_type="numpy") as loader:
            return super().get_data(sum(indices(loader)[0]) + sample_index)


def test_a_forked_worker_may_use_a_loader_itself() -> None:
    faults = FaultPolicy(blocked_after=20)
    provider = OfAnotherLoader(2)
    with DataLoader(provider, 1, num_workers=1, start_method="fork", faults=faults, output_type="numpy") as loader:
        assert indices(loader) == [[6], [7]]


@pytest.mark.skipif(sys.version_info < (3, 11, 7), reason="without vfork, nothing waits for a stopped process")
@pytest.mark.parametrize(
    ("start_method", "stopped"),
    [
        ("spawn", "worker"),
        *(
            pytest.param(*each, marks=pytest.mark.wide)
            for each in (("spawn", "tracker"), ("forkserver", "server"), ("forkserver", "running server"))
        ),
    ],
)
def test_what_is_stopped_while_it_starts_is_started_again(tmp_path: Path, start_method: str, stopped: str) -> None:
    # A lease on the program has who executes it wait: until then, the thread that starts it waits in the kernel.
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
            import fcntl, logging, os, signal, sys, threading, time
            from multiprocessing import forkserver, resource_tracker, spawn
            from pathlib import Path
            import psutil
            from support.pipelines import indices, worker_pids
            from support.providers import IndexProvider
            from accvlab.dali_pipeline_framework import DataLoader
            from accvlab.dali_pipeline_framework.workers import starting


            def children():
                return {process.pid for process in psutil.Process().children()}


            def stop_the_next(known, file):
                while not children() - known:
                    time.sleep(0.01)
                [pid] = children() - known
                os.kill(pid, signal.SIGSTOP)
                while starting.state_letter(pid) not in "TZ":
                    time.sleep(0.01)
                os.close(file)  # with the lease


            def main(start_method, stopped):
                logging.basicConfig(format="%(message)s", stream=sys.stdout)
                starting._STOPPED_S = 0.5
                if stopped != "tracker":
                    resource_tracker.ensure_running()
                if stopped == "running server":
                    forkserver.ensure_running()
                    os.kill(forkserver._forkserver._forkserver_pid, signal.SIGSTOP)
                else:
                    program = Path("program.sh").absolute()
                    program.write_text(f'#!/bin/sh\\nexec {sys.executable} "$@"\\n')
                    program.chmod(0o755)
                    spawn.set_executable(str(program))
                    signal.signal(signal.SIGIO, signal.SIG_IGN)
                    file = os.open(program, os.O_RDWR)
                    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
                    threading.Thread(target=stop_the_next, args=(children(), file)).start()
                options = {"num_workers": 1, "start_method": start_method, "output_type": "numpy"}
                with DataLoader(IndexProvider(8), 4, **options) as loader:
                    print(indices(loader), len(worker_pids()))


            if __name__ == "__main__":
                main(*sys.argv[1:])
        """)
    )
    done = run_script(script, start_method, stopped, timeout=100, cwd=tmp_path)
    warning, printed = messages(done.stdout)
    assert ("fork server" if stopped == "running server" else "before its program ran") in warning
    assert (printed, messages(done.stderr)) == ("[[0, 1, 2, 3], [4, 5, 6, 7]] 1", [])
