"""A class of the packages that others of them inherit from is abstract; what is made is not inherited from."""

from __future__ import annotations

import abc
import ast
import enum
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import accvlab.dali_pipeline_framework as core
import accvlab.driving_data as driving

ROOTS = {package.__name__: Path(package.__file__).parent for package in (core, driving)}

# Bases that are not abstract, and why they are not.
EXCEPTIONS = {
    f"{driving.__name__}.datasets.driving.driving_provider.DrivingProvider": (
        "opens any index, and is the type by which users and recipes know the providers of all data sets"
    ),
    f"{core.__name__}.sample_data.conversion.Immutable": (
        "two methods for values without a constructor of its own; `isinstance` of formats would be slower"
    ),
}


def classes_of_the_packages() -> set[type]:
    found = [each for name, root in ROOTS.items() for each in pkgutil.walk_packages([str(root)], f"{name}.")]
    modules = [importlib.import_module(each.name) for each in found if not each.name.endswith("__main__")]
    values = [each for module in modules for each in vars(module).values()]
    return {each for each in values if inspect.isclass(each) and each.__module__.startswith(tuple(ROOTS))}


def is_abstract(cls: type) -> bool:
    return inspect.isabstract(cls) or abc.ABC in cls.__bases__ or getattr(cls, "_is_protocol", False)


def test_a_class_is_abstract_or_not_inherited_from() -> None:
    classes = classes_of_the_packages()
    assert len(classes) > 400
    concrete = {
        f"{base.__module__}.{base.__qualname__}"
        for cls in classes
        for base in classes.intersection(cls.__bases__)
        # Errors may: their tree is what they say.
        if not is_abstract(base) and not issubclass(base, BaseException | enum.Enum)
    }
    assert concrete == EXCEPTIONS.keys()


def test_what_counts_as_abstract_is_not_made() -> None:
    # Python itself refuses only those that have abstract methods.
    names = {cls.__name__ for cls in classes_of_the_packages() if abc.ABC in cls.__bases__}
    assert len(names) > 20
    texts = [path.read_text() for root in ROOTS.values() for path in root.rglob("*.py")]
    called = re.compile(rf"\b({'|'.join(names)})\(")
    calls = [
        ast.unparse(node)
        for text in filter(called.search, texts)  # few are parsed
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
    ]
    assert calls == []
