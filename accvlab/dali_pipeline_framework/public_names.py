# SPDX-License-Identifier: Apache-2.0
"""Public names of a package: they stand in its stub ``__init__.pyi`` and are imported when first asked for.

Every worker process imports what it needs of this package, and only that.
"""

from __future__ import annotations

import functools
import importlib
import os
import re
import sys
import types
from collections.abc import Callable
from typing import Any

from .installation import explained


def public_names(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make ``__getattr__`` and ``__dir__`` (PEP 562) of a package out of its stub; they know ``__all__``, too.

    Unlike ``lazy_loader.attach_stub``, names may come from other packages than the one that has the stub, and the
    stub is read when a name is asked for, not when the package is imported.

    Args:
        package: Name of the package.
        file: Its ``__init__.py``. Beside it lies the stub, with an import for each name,
            ``from .module import name as name``, and ``from .package import *``.
    """

    @functools.cache
    def module_of() -> dict[str, str]:
        return _imports_of_stub(package, os.path.dirname(file))

    def get(name: str) -> Any:
        value: Any
        if name == "__all__":
            return sorted(module_of())
        if name.startswith("__") or name not in module_of():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if module_of()[name] == package:
            value = importlib.import_module(f"{package}.{name}")
        else:
            try:
                # As `from ... import name` does: the name may be that of a module.
                value = getattr(__import__(module_of()[name], fromlist=[name]), name)
            except ImportError as error:
                raise explained(error) from None
        setattr(sys.modules[package], name, value)  # the next time it is found without this function
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_of()})

    return get, names


def published_modules(package: str, **classes: str) -> None:
    """Have classes of a package found in modules as well, by which earlier code imports them.

    Args:
        package: Name of the package, which is being imported.
        **classes: For each module in it, the name of its class, which is imported when it is asked for.
    """
    room = sys.modules[package]
    for name, class_name in classes.items():
        module = types.ModuleType(f"{package}.{name}", "A published module path.")

        def get(asked: str, published: str = class_name, path: str = module.__name__) -> Any:
            if asked != published:
                raise AttributeError(f"module {path!r} has no attribute {asked!r}")
            return getattr(room, asked)

        vars(module).update(__all__=[class_name], __getattr__=get)
        setattr(room, name, module)
        sys.modules[module.__name__] = module


def _imports_of_stub(package: str, folder: str) -> dict[str, str]:
    """Get the module from which a stub imports each name. Only stubs are read, nothing is imported."""
    module_of: dict[str, str] = {}
    with open(os.path.join(folder, "__init__.pyi"), encoding="utf-8") as stub:
        imports = re.findall(r"^from (\.+)(\S*) import \(?\s*(\S+)", stub.read(), re.MULTILINE)
    for dots, source, name in imports:
        parents = package.split(".")
        module = ".".join([*parents[: len(parents) - len(dots) + 1], *([source] if source else [])])
        names = _imports_of_stub(module, os.path.join(folder, source)) if name == "*" else [name]
        module_of.update(dict.fromkeys(names, module))
    return module_of
