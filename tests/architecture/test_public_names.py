"""Public names are those of the stubs, and ``from ... import *`` takes no name away from those who use them."""

from __future__ import annotations

import ast
import builtins
import importlib
import inspect
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, get_origin

import pytest

import accvlab.dali_pipeline_framework as framework
from accvlab.dali_pipeline_framework.errors import UnknownArgumentError

ROOT = Path(framework.__file__).parents[1]
STUBS = {
    ".".join(["accvlab", *stub.parent.relative_to(ROOT).parts]): stub
    for stub in sorted(ROOT.rglob("__init__.pyi"))
}
# Names of `extension` are for packages on top, which import name by name.
PACKAGES = [package for package in STUBS if not package.endswith(".extension")]
BASES = framework.PipelineStepBase, framework.DataProvider, framework.inputs.SamplerBase
# What scripts import by these names from elsewhere.
MODULES = ("collections", "collections.abc", "typing", "pathlib", "functools", "itertools", "dataclasses")
COMMON = {
    *dir(builtins),
    *sys.stdlib_module_names,
    *("np", "torch", "plt", "fn", "types", "pd", "jnp", "nn", "F", "Image", "tqdm"),
    *("Name", "Path", "decoded", "encoded", "converted", "as_numpy", "is_shared"),
    *(name for module in MODULES for name in dir(importlib.import_module(module)) if not name.startswith("_")),
}


def star_import(package: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(f"from {package} import *", names)
    del names["__builtins__"]
    return names


@pytest.mark.parametrize("package", STUBS)
def test_names_that_are_imported_on_demand_are_those_of_the_stub(package: str) -> None:
    # A type checker reads the stub; here is what `import *`, `dir` and an access find at run time.
    room = importlib.import_module(package)
    nodes = ast.parse(STUBS[package].read_text()).body
    declared = {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert declared - {"*"} <= {*room.__all__} <= {*dir(room), "__version__"}
    assert room.__all__ == sorted({*room.__all__})
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        room.Nothing  # noqa: B018


def test_the_front_door_offers_what_the_rooms_offer() -> None:
    rooms = {"inputs", "internal_helpers", "operators_impl", "pipeline", "processing_steps"}
    offered = {}
    for package in STUBS:
        if package.rpartition(".")[0] == framework.__name__:
            offered.update(star_import(package))
    names = {*framework.__all__} - {"__version__"}
    assert rooms <= names
    assert len(names) < 95
    assert {name for name in names - rooms if offered[name] is not getattr(framework, name)} == set()


@pytest.mark.parametrize("package", PACKAGES)
def test_no_common_name_is_shadowed(package: str) -> None:
    published = {"Literal"} if package.endswith(".mini_parser") else set()  # a class of accvlab
    assert COMMON.intersection(star_import(package)) == published


@pytest.mark.parametrize("package", PACKAGES)
def test_only_what_is_defined_here_is_exported(package: str) -> None:
    for value in star_import(package).values():
        # Aliases of types and literals know no module of their own.
        module = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", "") or ""
        assert get_origin(value) is Mapping or module.split(".")[0] in (
            "accvlab",
            "typing",
            "builtins",
            "types",
            "",
        )


@pytest.mark.parametrize("package", PACKAGES)
def test_steps_samplers_and_providers_are_at_the_front_door_and_explain_unknown_arguments(package: str) -> None:
    for name, value in star_import(package).items():
        if inspect.isclass(value) and issubclass(value, BASES) and not inspect.isabstract(value):
            assert name in framework.__all__ or package.startswith("accvlab.driving_data"), name
            with pytest.raises(UnknownArgumentError, match=f"`no_such_argument` is not an argument of {name}"):
                value(no_such_argument=1)


def test_functions_and_classes_are_documented() -> None:
    pages = "".join(page.read_text() for page in (Path(__file__).parents[2] / "docs").rglob("*.md"))
    classes = {
        name
        for package in PACKAGES
        for name, value in star_import(package).items()
        if name in framework.__all__ or (inspect.isclass(value) and issubclass(value, BASES))
    }
    listed = {*re.findall(r"^\.\. auto\w+:: (?:[\w.]+\.)?(\w+)$", pages, re.M)}
    assert {name for name in classes if name[0].isupper()} - listed == set(), "give them a page in docs"
    undocumented = {
        name
        for package in PACKAGES
        for name, value in star_import(package).items()
        if not isinstance(value, ModuleType) and callable(value) and name[0].islower() and name not in pages
    }
    assert undocumented == set()
