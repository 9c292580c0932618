"""The two packages: the driving data stands on public names of the core, and the core does not know it."""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import sys
import textwrap
from pathlib import Path

import pytest
from import_rules import Directions, imports, source_texts
from support.child_processes import run_process
from support.private_names import parsed

import accvlab.dali_pipeline_framework as core
import accvlab.driving_data as driving

CORE, DRIVING = core.__name__, driving.__name__
CORE_ROOT, DRIVING_ROOT = Path(core.__file__).parent, Path(driving.__file__).parent
TESTS = Path(__file__).parents[1]

# Room -> rooms right below it, see `Directions`.
BELOW = {
    "contract": "",
    "datasets.driving": "contract",
    "testing": "datasets.driving",
    "datasets.infos": "datasets.driving",
    "datasets.nuscenes": "datasets.driving",
    "datasets": "datasets.infos datasets.nuscenes",
    "viewing": "",
    "steps": "",
    "recipes": "datasets steps viewing",
    "object_commands": "recipes",
    "command_line": "object_commands",
    "": "command_line",
}
DIRECTIONS = Directions(DRIVING, BELOW)


@functools.cache
def driving_sources() -> dict[str, str]:
    return source_texts(DRIVING, DRIVING_ROOT)


def public_names_of(package: str) -> set[str]:
    """Names that a stub offers, read as text."""
    stub = CORE_ROOT.parent.joinpath(*package.split(".")[1:], "__init__.pyi")
    if not stub.exists():
        return set()
    nodes = ast.parse(stub.read_text()).body
    return {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}


def is_public(imported: str) -> bool:
    """Whether a name of the core is offered by a stub, or is in a module beside the rooms."""
    module, _, name = imported.rpartition(".")
    if module in (CORE, "accvlab") and (CORE_ROOT / f"{name}.py").exists():
        return True
    is_top_module = module.rpartition(".")[0] == CORE and (CORE_ROOT / f"{module.rpartition('.')[2]}.py").exists()
    return not name.startswith("_") and (is_top_module or name in public_names_of(module))


def uses_of_hidden_names(modules: dict[str, str]) -> list[str]:
    return [
        f"{module}:{line} imports {imported}"
        for module, source in modules.items()
        for line, imported in imports(parsed(source), module, False)
        if imported.startswith(f"{CORE}.") and not is_public(imported)
    ]


def test_the_core_does_not_know_driving_data() -> None:
    modules = source_texts(CORE, CORE_ROOT)
    stubs = {str(path): path.read_text() for path in CORE_ROOT.rglob("*.pyi")}
    assert [name for name, text in {**modules, **stubs}.items() if "driving_data" in text] == []


def imports_of_driving_data(modules: dict[str, str]) -> list[str]:
    return [
        f"{module}:{line} imports {imported}"
        for module, source in modules.items()
        if "driving" in source  # few are parsed
        for line, imported in imports(parsed(source), module, False)
        if imported.startswith(DRIVING) or imported.split(".")[0] == "driving_support"
    ]


@pytest.mark.parametrize("folder", ["dali_pipeline_framework", "support"])
def test_the_tests_of_the_core_do_without_driving_data(folder: str) -> None:
    modules = source_texts(folder, TESTS / folder)
    assert len(modules) > 20
    assert imports_of_driving_data(modules) == []


@pytest.mark.parametrize(
    ("source", "is_good"),
    [
        (f"from {CORE} import steps", True),
        ("from support.drives import driving_support", True),
        (f"def late():\n    from {DRIVING}.steps import BEVMaskAdder", False),
        (f"import {DRIVING}", False),
        ("from accvlab import driving_data", False),
        ("from driving_support.drives import drive", False),
    ],
)
def test_imports_of_driving_data_are_found(source: str, is_good: bool) -> None:
    assert (imports_of_driving_data({"any": source}) == []) == is_good


def test_driving_data_uses_public_names_of_the_core_only() -> None:
    assert len(driving_sources()) > 40
    assert uses_of_hidden_names(driving_sources()) == []


@pytest.mark.parametrize(
    ("source", "is_good"),
    [
        (f"from {CORE} import DataLoader", True),
        (f"from {CORE}.extension import Description", True),
        (f"from {CORE}.checks import shown", True),
        (f"from {CORE} import checks", True),
        (f"from {CORE}.checks import _shown", False),
        (f"from {CORE}.sampling.samplers import ShuffledSampler", False),
        (f"from {CORE}.sampling import Description", False),
        (f"import {CORE}.engine.gpu", False),
        (f"def late():\n    from {CORE}.engine import workers", False),
    ],
)
def test_hidden_names_are_found(source: str, is_good: bool) -> None:
    assert (uses_of_hidden_names({f"{DRIVING}.any": source}) == []) == is_good


def test_imports_within_driving_data_go_one_way() -> None:
    assert DIRECTIONS.wrong(driving_sources()) == []
    assert [room for room in BELOW if room in DIRECTIONS.rooms_below(room)] == []


def test_the_core_works_where_driving_data_is_missing() -> None:
    script = f"""
        import importlib, pkgutil, sys

        class Missing:
            def find_spec(self, name, path=None, target=None):
                if name.startswith({DRIVING!r}):
                    raise ModuleNotFoundError(name, name=name)

        sys.meta_path.insert(0, Missing())
        import {CORE} as core
        for module in pkgutil.walk_packages(core.__path__, core.__name__ + "."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
        print(len([getattr(core, name) for name in core.__all__]))
    """
    finished = run_process([sys.executable, "-c", textwrap.dedent(script)])
    assert finished.returncode == 0, finished.stderr
    assert int(finished.stdout) == len(core.__all__)


def test_other_distributions_can_have_packages_of_accvlab(tmp_path: Path) -> None:
    other = tmp_path / "accvlab" / "other_package"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("value = 3\n")
    script = "import accvlab.other_package as o, accvlab.driving_data as d; print(o.value, d.__name__)"
    environment = {"PYTHONPATH": f"{tmp_path}:{CORE_ROOT.parents[1]}", "PATH": "/usr/bin:/bin"}
    printed = run_process([sys.executable, "-c", script], env=environment, stderr=None, check=True).stdout
    assert printed == f"3 {DRIVING}\n"
    files = importlib.metadata.files("accvlab.dali_pipeline_framework") or []
    assert not any(str(file) == "accvlab/__init__.py" for file in files)
