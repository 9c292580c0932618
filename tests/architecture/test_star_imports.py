"""``from accvlab.dali_pipeline_framework import *`` and the like take no name away from those who use them."""

from __future__ import annotations

import builtins
import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, get_origin

import pytest

import accvlab.dali_pipeline_framework as framework

ROOT = Path(framework.__file__).parents[1]
PACKAGES = sorted(
    ".".join(["accvlab", *stub.parent.relative_to(ROOT).parts])
    for stub in ROOT.rglob("__init__.pyi")
    if stub.parent.name != "extension"  # for packages on top, which import name by name
)
# What scripts import by these names from elsewhere.
COMMON = {
    *dir(builtins),
    *sys.stdlib_module_names,
    *("np", "torch", "plt", "fn", "types", "pd", "jnp", "nn", "F", "Image", "tqdm"),
}
OF_STANDARD_MODULES = (
    "collections",
    "collections.abc",
    "typing",
    "pathlib",
    "functools",
    "itertools",
    "dataclasses",
)


def star_import(package: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(f"from {package} import *", names)
    del names["__builtins__"]
    return names


@pytest.mark.parametrize("package", PACKAGES)
def test_no_common_name_is_shadowed(package: str) -> None:
    standard = {name for module in OF_STANDARD_MODULES for name in dir(importlib.import_module(module))}
    standard = {name for name in standard if not name.startswith("_")}
    published = {"Literal"} if package.endswith(".mini_parser") else set()  # a class of accvlab
    assert {*star_import(package)} & (
        COMMON | standard | {"Name", "Path", "decoded", "encoded", "converted", "as_numpy", "is_shared"}
    ) == published


@pytest.mark.parametrize("package", PACKAGES)
def test_only_what_is_defined_here_is_exported(package: str) -> None:
    for name, value in star_import(package).items():
        if isinstance(value, ModuleType):
            assert value.__name__.startswith("accvlab.")
            continue
        if get_origin(value) is Mapping:  # an alias of a type, which has the module of its origin
            continue
        module = getattr(value, "__module__", "")
        # Other aliases of types and literals know no module of their own.
        assert module is None or module.split(".")[0] in ("accvlab", "typing", "builtins", "types", ""), name


def test_functions_are_documented() -> None:
    pages = "".join(page.read_text() for page in (Path(__file__).parents[2] / "docs").rglob("*.md"))
    undocumented = {
        name
        for package in PACKAGES
        for name, value in star_import(package).items()
        if not isinstance(value, ModuleType) and callable(value) and name[0].islower() and name not in pages
    }
    assert undocumented == set()
