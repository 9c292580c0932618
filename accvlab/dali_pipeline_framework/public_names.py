# SPDX-License-Identifier: Apache-2.0
"""Public names of a package: they stand in its stub ``__init__.pyi`` and are imported when first asked for.

Every worker process imports what it needs of this package, and only that.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


def public_names(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Make ``__getattr__`` and ``__dir__`` (PEP 562) and ``__all__`` of a package out of its stub.

    Unlike ``lazy_loader.attach_stub``, names may come from other packages than the one that has the stub.

    Args:
        package: Name of the package.
        file: Its ``__init__.py``; the stub lies beside it and has only imports.
    """
    module_of = _imports_of_stub(package, Path(file).parent)

    def get(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = module_of[name]
        if module == package:
            value: Any = importlib.import_module(f"{package}.{name}")
        else:
            value = getattr(importlib.import_module(module), name)
        setattr(sys.modules[package], name, value)  # the next time it is found without this function
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_of})

    return get, names, sorted(module_of)


def _imports_of_stub(package: str, folder: Path) -> dict[str, str]:
    """Get the module from which a stub imports each name. Only stubs are read, nothing is imported."""
    module_of: dict[str, str] = {}
    for node in ast.parse((folder / "__init__.pyi").read_text()).body:
        if not isinstance(node, ast.ImportFrom):
            continue
        module = importlib.util.resolve_name(f"{'.' * node.level}{node.module or ''}", package)
        names: Iterable[str] = [alias.name for alias in node.names]
        if "*" in names:
            names = _imports_of_stub(module, folder / str(node.module))
        module_of.update(dict.fromkeys(names, module))
    return module_of
