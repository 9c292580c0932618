"""Classes and functions of the main script, or of an interactive session, in workers that are not forked."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support.child_processes import run_process
from support.laws import each_value
from support.scripts import run_script

from accvlab.dali_pipeline_framework.workers.pickling import guard_around

DEFINITIONS = """
from accvlab.dali_pipeline_framework import ArrayStep, DataLoader, DataProvider, MapStep, SampleDataGroup
from nvidia.dali import types

OFFSET = 10


class Numbers(DataProvider):
    def get_number_of_samples(self):
        return 4

    @property
    def sample_data_structure(self):
        blueprint = SampleDataGroup()
        blueprint.add_data_field("x", types.DALIDataType.FLOAT)
        return blueprint

    def get_data(self, index):
        sample = self.sample_data_structure
        sample["x"] = index
        return sample


class Add(ArrayStep):
    def arrays(self, data, draws):
        data["x"] = data["x"] + OFFSET
        return data


def double(x):
    return 2 * x


def say(worker):
    print("worker", worker, flush=True)
"""
STEPS = 'steps = [MapStep(lambda x: x + OFFSET, input_names="x"), MapStep(double, input_names="x"), Add()]\n'
RUN = """
with DataLoader(Numbers(), 2, steps=steps, num_workers=1, worker_init_fn=say, output_type="numpy"{}) as loader:
    print([batch["x"].tolist() for batch in loader], flush=True)

"""
GUARD = 'if __name__ == "__main__":\n'
EXPECTED = "worker 0\n[[30.0, 32.0], [34.0, 36.0]]\n"


@pytest.mark.wide
@pytest.mark.parametrize("way", ["-c", "stdin", "-i", "-m"])
def test_code_that_is_in_no_script(tmp_path: Path, way: str) -> None:
    source = DEFINITIONS + STEPS + RUN.format("")
    package = tmp_path / "numbers_of_four"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(source)
    if way == "-i":  # Python's prompt ends a block at an empty line, and only there
        blocks = "\n".join(line for line in source.splitlines() if line)
        for name in ("class", "def", "with", "STEPS"):
            blocks = blocks.replace(f"\n{name} ", f"\n\n{name} ")
        source = blocks.replace("\nsteps", "\n\nsteps") + "\n\n"
    arguments = {"-c": ["-c", source], "stdin": [], "-i": ["-i"], "-m": ["-m", package.name]}[way]
    given = source if way in ("stdin", "-i") else ""
    done = run_process([sys.executable, *arguments], input=given, cwd=tmp_path, timeout=100)
    assert done.stdout == EXPECTED, done.stderr


@pytest.mark.wide
@pytest.mark.parametrize("method", ["forkserver", "spawn"])
@pytest.mark.parametrize("tool", ["pdb -c continue -c quit", "cProfile -o out", "trace --count -C out"])
def test_a_debugger_or_profiler_runs_the_script(tmp_path: Path, tool: str, method: str) -> None:
    """Their module may be `__main__`, or one without the attributes that `multiprocessing` reads."""
    run = "if __name__ == '__main__':\n" + textwrap.indent(
        STEPS + RUN.format(f", start_method={method!r}"), "    "
    )
    (tmp_path / "training.py").write_text(DEFINITIONS + run)
    done = run_process([sys.executable, "-m", *tool.split(), "training.py"], cwd=tmp_path, timeout=100)
    assert EXPECTED in done.stdout, done.stderr


CONSOLE = """
import code, sys

if __name__ == "__main__":
    sys.modules.update(dict.fromkeys(sys.argv[2:]))
    console = code.InteractiveInterpreter()
    for cell in open(sys.argv[1]).read().split("# cell"):
        console.runsource(cell, "<cell>", "exec")
"""


def in_console(folder: Path, source: str, *absent: str) -> subprocess.CompletedProcess[str]:
    """Run code in a console that a script has opened, without some packages."""
    (folder / "console.py").write_text(CONSOLE)
    (folder / "cells.py").write_text(source)
    return run_script(folder / "console.py", str(folder / "cells.py"), *absent, timeout=100)


FORK_SERVER = RUN.format(", start_method='forkserver'")


@pytest.mark.wide
def test_what_a_console_defines(tmp_path: Path) -> None:
    done = in_console(tmp_path, DEFINITIONS + "# cell\n" + STEPS + "# cell\n" + FORK_SERVER)
    assert done.stdout == EXPECTED, done.stderr


def test_without_cloudpickle_the_error_names_it(tmp_path: Path) -> None:
    done = in_console(tmp_path, DEFINITIONS + STEPS + FORK_SERVER, "cloudpickle")
    assert "because `SamplerInputCallable._loader.provider` (__console__.Numbers) cannot be pickled" in done.stderr
    assert "defined in an interactive session, which a worker cannot import" in done.stderr
    assert "Install cloudpickle (`pip install cloudpickle`)" in done.stderr


@each_value(name=["Numbers", "Add", "double", "say"], method=["spawn", "forkserver"])
def test_what_is_below_the_main_guard_is_refused_before_workers_start(
    tmp_path: Path, name: str, method: str
) -> None:
    *before, definition, after = [*DEFINITIONS.partition(f"class {name}" if name[0].isupper() else f"def {name}")]
    inside, end, outside = after.partition("\n\n\n")
    lines = textwrap.indent(definition + inside, "    ")
    run = textwrap.indent(STEPS + RUN.format(f", start_method={method!r}"), "    ")
    script = tmp_path / "training.py"
    script.write_text("".join(before) + outside + end + GUARD + lines + "\n" + run)
    done = run_script(script, timeout=100)
    line = script.read_text().splitlines().index(GUARD.strip()) + 1
    assert (
        f'`{name}` is defined below the main guard (`if __name__ == "__main__":`, line {line} of {script})'
        in done.stderr
    )
    assert f"Move `{name}` above the main guard, or into a module of its own" in done.stderr
    assert "SourcePicklingError" in done.stderr
    assert "worker 0" not in done.stdout


def test_what_is_above_the_main_guard_goes_by_name(tmp_path: Path) -> None:
    script = tmp_path / "training.py"
    script.write_text(
        DEFINITIONS + "print('imported')\n" + GUARD + textwrap.indent("OFFSET = 0\n" + STEPS + FORK_SERVER, "    ")
    )
    done = run_script(script, timeout=100)
    # The lambda goes with what it uses, 0; `Add` finds what the script defines where the worker imports it, 10.
    assert done.stdout.splitlines()[-1] == "[[10.0, 12.0], [14.0, 16.0]]", done.stderr
    assert done.stdout.count("imported") >= 2


@pytest.mark.wide
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_script_without_a_guard(tmp_path: Path, method: str) -> None:
    """It is imported by the workers only where they need what it defines."""
    script = tmp_path / "training.py"
    run = (
        RUN.replace("worker_init_fn=say, ", "")
        .format(f", start_method={method!r}")
        .replace("steps=steps", "steps=[]")
    )
    imports = "from own_numbers import DataLoader, Numbers\n"
    (tmp_path / "own_numbers.py").write_text(DEFINITIONS)
    script.write_text(imports + run)
    done = run_script(script, timeout=100)
    assert done.stdout == "[[0.0, 1.0], [2.0, 3.0]]\n", done.stderr
    script.write_text(DEFINITIONS + run)
    done = run_script(script, timeout=100)
    assert done.returncode == 1
    of_worker, of_program = done.stderr.split("WorkerStartError: ")[1:]
    assert "The main script starts worker processes when it is imported" in of_worker
    assert 'if __name__ == "__main__":' in of_worker
    assert "A worker ended while it was set up" in of_program
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("if __name__ == '__main__':\n    class X: ...", 1),
        ("\nif '__main__' == __name__ and True:\n    X = namedtuple('X', 'a')", 2),
        ("if __name__ != '__main__':\n    pass\nelse:\n    def X(): ...", 1),
        ("try:\n    if __name__ == '__main__':\n        for X in range(3): ...\nfinally:\n    pass", 2),
        ("if __name__ == '__main__':\n    if True:\n        from math import pi as X", 1),
        ("def f():\n    X = 1\nif __name__ == '__main__':\n    async def X(): ...", 3),
        ("from os import *\nif __name__ == '__main__':\n    class X: ...", 2),
        ("if __name__ == '__main__':\n    class X: ...\nelse:\n    class X: ...", None),
        ("class X: ...\nif __name__ == '__main__':\n    X = decorated(X)", None),
        ("with open('a') as X: ...", None),
        ("if __name__ == 'main':\n    class X: ...", None),
        ("if __name__ == '__main__':\n    globals()['X'] = 1", None),
        ("if __name__ == '__main__':\n    class X: ...\nthis is no Python", None),
    ],
)
def test_names_below_main_guards(tmp_path: Path, source: str, line: int | None) -> None:
    script = tmp_path / "script.py"
    script.write_text(source)
    assert guard_around("X", str(script)) == line
