"""Which module imports what, and whether it may."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path

from support.private_names import parsed


def source_texts(name: str, root: Path) -> dict[str, str]:
    """Source text of each module of a package, by its full name."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = [name, *path.relative_to(root).with_suffix("").parts]
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text()
    return found


def imports(tree: ast.AST, module: str, is_package: bool) -> Iterator[tuple[int, str]]:
    """Line and full name of each import; what stands under `if TYPE_CHECKING` is left out."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.orelse:
                yield from imports(ast.Module([child], []), module, is_package)
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = module.split(".")[: len(module.split(".")) - node.level + is_package]
                base = ".".join([*parents, base] if base else parents)
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)
        elif not isinstance(node, ast.expr):  # which holds no statements
            yield from imports(node, module, is_package)


class Directions:
    """The directions in which the rooms of a package may import.

    Attributes:
        name: Full name of the package.
        below: Room -> rooms right below it, separated by blanks. A module may import its own room, these, and all
            that are below them. A module at the top of the package, such as ``errors``, is a room by itself;
            ``""`` is the package.
    """

    def __init__(self, name: str, below: Mapping[str, str]) -> None:
        self.name = name
        self.below = below
        self.rooms_below = functools.cache(self._rooms_below)

    def _rooms_below(self, room: str) -> frozenset[str]:
        """All rooms that a room may import."""
        return frozenset(name for below in self.below[room].split() for name in (below, *self.rooms_below(below)))

    def room_of(self, name: str) -> str:
        """The room of a module, or of what is imported as ``name``."""
        parts = name.removeprefix(self.name).lstrip(".").split(".")
        while parts and ".".join(parts) not in self.below:
            parts.pop()
        return ".".join(parts)

    def wrong(self, modules: Mapping[str, str]) -> list[str]:
        """The imports that go in a wrong direction."""
        violations = []
        for module, source in modules.items():
            is_package = any(other.startswith(f"{module}.") for other in modules)
            room = self.room_of(module)
            for line, imported in imports(parsed(source), module, is_package):
                if imported != self.name and not imported.startswith(f"{self.name}."):
                    continue
                of = self.room_of(imported)
                if of not in (room, "public_names") and of not in self.rooms_below(room):
                    violations.append(f"{module}:{line} imports {imported}")
        return violations
