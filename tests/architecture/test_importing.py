"""What is loaded by an import, in which order modules can be imported, and what that costs: in own processes."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest
from support.child_processes import run_process
from support.laws import examples

import accvlab.dali_pipeline_framework as package

ROOT = Path(package.__file__).parent
NAME = package.__name__
OPTIONAL = ("torch", "jax", "cupy", "numba", "matplotlib", "PIL", "scipy", "av", "fsspec", "rerun")
OPTIONAL += ("pyarrow", "msgpack", "ray")  # ruff refuses them at module level
# Paths that users import.
FRONT_DOORS = ["", ".inputs", ".pipeline", ".processing_steps", ".internal_helpers"]
FRONT_DOORS += [".operators_impl.numba_operators", ".operators_impl.python_operator_functions"]


def run_python(script: str, timeout: int = 90) -> str:
    result = run_process([sys.executable, "-c", textwrap.dedent(script)], timeout=timeout)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout


def modules_below(folder: Path, pattern: str = "*.py") -> list[str]:
    names = (path.relative_to(ROOT.parents[1]).with_suffix("").parts for path in sorted(folder.rglob(pattern)))
    return [".".join(parts).removesuffix(".__init__") for parts in names]


def test_no_optional_package_is_loaded_and_nothing_is_printed() -> None:
    # What DALI loads is in all of the children; to import it takes longer than the rest.
    output = run_python(f"""
        import importlib, os, sys
        import nvidia.dali.fn, nvidia.dali.pipeline

        for door in {FRONT_DOORS!r}:
            if os.fork() == 0:
                importlib.import_module({NAME!r} + door)
                print("of" + door, *sorted(name for name in {OPTIONAL!r} if name in sys.modules), flush=True)
                os._exit(0)
            os.wait()
    """)
    assert output == "".join(f"of{door}\n" for door in FRONT_DOORS)


def test_sampling_loads_no_dali() -> None:
    modules = modules_below(ROOT / "sampling")
    assert len(modules) > 10
    output = run_python(f"""
        import importlib, sys
        for module in {modules!r}:
            importlib.import_module(module)
        print(*sorted(name for name in sys.modules if name.split(".")[0] == "nvidia"))
    """)
    assert output == "\n"


@pytest.mark.wide
@pytest.mark.timeout(320)  # a process for each module: long where the machine is busy
def test_each_room_and_each_module_can_be_imported_first() -> None:
    # The package imports its rooms in a fixed order, which would hide a cycle between them. So an empty one
    # takes its place; and the children share what takes long to import.
    _, *rooms = modules_below(ROOT, "__init__.py")
    modules = [module for module in modules_below(ROOT)[1:] if module not in rooms]
    assert len(rooms) > 30
    assert len(modules) > 120
    output = run_python(
        f"""
        import importlib, os, sys, traceback, types
        import attrs, gc, nvidia.dali.fn, nvidia.dali.pipeline

        gc.disable()  # it would write to the memory that the children share
        for module in {rooms + modules[:: examples(12, 1)]!r}:
            child = os.fork()
            if child == 0:
                stub = types.ModuleType({NAME!r})
                stub.__path__ = [{str(ROOT)!r}]
                sys.modules[{NAME!r}] = stub
                try:
                    importlib.import_module(module)
                    os._exit(0)
                except BaseException:
                    traceback.print_exc(limit=-2, file=sys.stdout)
                    sys.stdout.flush()
                    os._exit(1)
            if os.waitpid(child, 0)[1]:
                print(module, "cannot be imported first", flush=True)
        print("done")
    """,
        timeout=300,
    )
    assert output == "done\n"


@pytest.mark.wide
def test_importing_takes_few_calls_next_to_importing_dali() -> None:
    # Calls of Python functions: their number is the same however busy the machine is.
    # The package itself imports its rooms on demand. What is last is what every pipeline needs.
    needed = f"from {NAME}.pipeline import DALIStructuredOutputIterator, PipelineDefinition"
    output = run_python(f"""
        import sys
        calls = []
        for statement in ("import nvidia.dali", "import {NAME}", {needed!r}):
            number = 0
            def note(frame, event, argument):
                global number
                number += event == "call"
            sys.setprofile(note)
            exec(statement)
            sys.setprofile(None)
            calls.append(number)
        print(*calls)
    """)
    of_dali, of_package, of_pipelines = map(int, output.split())
    assert of_dali > 50_000
    assert 0 < of_package <= 0.02 * of_dali
    assert 0 < of_pipelines <= 0.25 * of_dali


def test_public_names_that_are_modules_import_them_in_each_way() -> None:
    output = run_python(f"""
        from {NAME}.extension import functions
        print(functions.__name__)
        import {NAME}.processing_steps.tensor_size_adder
        from {NAME}.processing_steps import padding_to_uniform
        from {NAME}.processing_steps.axes_layout_setter import *
        print(AxesLayoutSetter.__name__, {NAME}.processing_steps.tensor_size_adder.TensorSizeAdder.__name__)
        try:
            padding_to_uniform.ImageDecoder
        except AttributeError as error:
            print(error)
    """)
    message = f"module '{NAME}.processing_steps.padding_to_uniform' has no attribute 'ImageDecoder'"
    assert output == f"{NAME}.operators.functions\nAxesLayoutSetter TensorSizeAdder\n{message}\n"
