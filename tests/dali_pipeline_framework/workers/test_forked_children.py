"""Children that the program forks neither hang nor end what works for their parent."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.child_processes import run_python
from support.scripts import messages, run_script

SCRIPT = Path(__file__).with_name("forked_children.py")
# Of a loader, of an iterator, and of a loader that both use. All come to their end but one that raises.
ENDS = 2 * "[7, 7, 1, 7, 7, 7, 7, 0] [7, 0]\n" + "0\n"


@pytest.mark.parametrize(
    ("start_method", "num_workers"),
    [
        ("fork", 2),
        *(
            pytest.param(method, num_workers, marks=pytest.mark.wide)
            for method, num_workers in (("fork", 0), ("forkserver", 2), ("spawn", 2))
        ),
    ],
)
def test_children_that_the_program_forks_end_and_the_parent_loads_on(start_method: str, num_workers: int) -> None:
    done = run_script(SCRIPT, start_method, str(num_workers), timeout=100)
    assert (done.stdout, messages(done.stderr), done.returncode) == (ENDS, [], 0)


_COLLECTS_FIRST = """
import gc, os, signal, sys

def collect():
    signal.alarm(20)
    gc.collect()

os.register_at_fork(after_in_child=collect)  # before this library has anything called there
from support.pipelines import make_iterator, shuffled
from support.providers import IndexProvider

gc.disable()
for workers in (0, 1):
    iterator = make_iterator(shuffled(IndexProvider(80)), py_num_workers=workers)
    next(iter(iterator))
    iterator.me = iterator
    del iterator
    if not (child := os.fork()):
        sys.exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_garbage_is_left_before_it_is_collected() -> None:
    done = run_python(_COLLECTS_FIRST)
    assert (done.stdout, done.stderr, done.returncode) == ("7\n7\n", "", 0)
