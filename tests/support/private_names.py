"""Which private names of DALI are used where."""

from __future__ import annotations

import ast
import functools
import gc
from collections.abc import Iterator
from pathlib import Path

import nvidia.dali
import pytest

DALI = Path(nvidia.dali.__file__).parent


def tree_of(source: str) -> ast.Module:
    is_enabled = gc.isenabled()
    gc.disable()  # it would look at all the trees, again and again: more than half of the time
    try:
        return ast.parse(source)
    finally:
        if is_enabled:
            gc.enable()


parsed = functools.cache(tree_of)


@pytest.fixture(scope="module", autouse=True)
def trees_are_forgotten() -> Iterator[None]:
    """In modules that import it: else each later collection of garbage looks at a million nodes."""
    yield
    parsed.cache_clear()


@functools.cache
def private_names_of_dali() -> frozenset[str]:
    """Names with an underscore that DALI's Python code defines: attributes, functions, classes, modules."""
    names: set[str] = set()
    for path in DALI.rglob("*.py"):
        names.update(path.relative_to(DALI).with_suffix("").parts)
        for node in ast.walk(tree_of(path.read_text())):
            names.update(defined_names(node))
            if isinstance(node, ast.alias):
                names.add((node.asname or node.name).split(".")[-1])
    names.add("_conditional")  # a room of operators, which DALI makes when it is loaded
    return frozenset(name for name in names if name.startswith("_") and not name.startswith("__"))


def defined_names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        return [node.attr]
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return [node.id]
    return []


def used_names(node: ast.AST) -> list[str]:
    """Attributes that are read or set, and what is imported from DALI."""
    if isinstance(node, ast.Attribute):
        return [node.attr]
    if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("nvidia"):
        return [*str(node.module).split("."), *(alias.name for alias in node.names)]
    if isinstance(node, ast.Import):
        return [part for alias in node.names if alias.name[:6] == "nvidia" for part in alias.name.split(".")]
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return []
    if node.func.id in ("getattr", "setattr", "hasattr"):
        return [str(arg.value) for arg in node.args[1:2] if isinstance(arg, ast.Constant)]
    return []
