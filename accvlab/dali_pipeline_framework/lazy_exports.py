# SPDX-License-Identifier: Apache-2.0
"""Public names of a package that are imported when they are first asked for.

Every worker process imports what it needs of this package, and only that.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy_exports(
    package: str, module_of: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make the functions ``__getattr__`` and ``__dir__`` of a package (PEP 562).

    Args:
        package: Name of the package.
        module_of: For each public name, the module in the package that defines it; the name of the module itself
            for one that is public.
    """

    def get(name: str) -> Any:
        module_name = module_of.get(name)
        if module_name is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(f"{package}.{module_name}")
        value = module if name == module_name else getattr(module, name)
        setattr(sys.modules[package], name, value)  # the next time it is found without this function
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *module_of})

    return get, names
