# SPDX-License-Identifier: Apache-2.0
"""The main script, as a spawned worker imports it: without what is below its main guard."""

from __future__ import annotations

import ast
import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path


def main_script() -> str | None:
    """Path of the script that spawned workers import as the main module; None in an interactive session.

    A notebook and Python's prompt have none, nor has code from ``python -c`` and from the standard input. Python
    does not import the ``__main__`` of a package in workers.
    """
    main = sys.modules["__main__"]
    if getattr(getattr(main, "__spec__", None), "name", "").endswith("__main__"):
        return None
    path: str | None = getattr(main, "__file__", None)
    return path if path is not None and os.path.isfile(path) else None


@contextlib.contextmanager
def without_missing_main_script() -> Iterator[None]:
    """Keep spawned workers from importing a main script that is no file: Python calls its input ``<stdin>``."""
    main = sys.modules["__main__"]
    path = getattr(main, "__file__", None)
    if path is None or os.path.exists(path):
        yield
        return
    del main.__file__
    try:
        yield
    finally:
        main.__file__ = path


def guard_around(name: str, script: str) -> int | None:
    """Line of the main guard of a script that a name is defined below; None where it is defined elsewhere, too."""
    try:
        statements = ast.parse(Path(script).read_bytes()).body
    except (OSError, SyntaxError, ValueError):  # the worker will say what it is
        return None
    names = _Names()
    for statement in statements:
        names.visit(statement)
    return None if name in names.others else names.below.get(name)


class _Names(ast.NodeVisitor):
    """Names that the statements of a module define.

    Attributes:
        below: Those below a main guard, with its line.
        others: Those elsewhere.
    """

    def __init__(self) -> None:
        self.below: dict[str, int] = {}
        self.others: set[str] = set()
        self._guard: int | None = None

    def _add(self, name: str) -> None:
        if self._guard is None:
            self.others.add(name)
        else:
            self.below[name] = self._guard

    def visit_If(self, node: ast.If) -> None:
        is_guard = _is_guard(node.test)
        outer = self._guard
        for statements, is_below in ((node.body, is_guard), (node.orelse, is_guard is False)):
            self._guard = node.lineno if is_below else outer
            for statement in statements:
                self.visit(statement)
        self._guard = outer

    # What is defined within a function or class is not of the module, and not visited.

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._add(node.name)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._add(node.name)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._add(node.name)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._add(alias.asname or alias.name.partition(".")[0])

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            all_names = dir(sys.modules.get(node.module or "")) if alias.name == "*" else []
            for name in all_names or [alias.asname or alias.name]:
                self._add(name)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self._add(node.id)


def _is_guard(test: ast.expr) -> bool | None:
    """Whether a condition holds in the main script only; False: only elsewhere; None: neither."""
    for node in ast.walk(test):
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            sides = {ast.unparse(node.left), ast.unparse(node.comparators[0])}
            if sides == {"__name__", "'__main__'"} and isinstance(node.ops[0], ast.Eq | ast.NotEq):
                return isinstance(node.ops[0], ast.Eq)
    return None
