"""A class of the packages that others of them inherit from is abstract; what is made is not inherited from."""

from __future__ import annotations

import abc
import ast
import enum
import importlib
import inspect
import pkgutil
from collections.abc import Iterable
from pathlib import Path

import pytest

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


def classes_of_the_packages() -> list[type]:
    modules = [
        importlib.import_module(found.name)
        for name, root in ROOTS.items()
        for found in pkgutil.walk_packages([str(root)], f"{name}.")
        if not found.name.endswith("__main__")
    ]
    found = {
        each
        for module in modules
        for each in vars(module).values()
        if inspect.isclass(each) and each.__module__ == module.__name__
    }
    return sorted(found, key=full_name)


def full_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def is_abstract(cls: type) -> bool:
    return inspect.isabstract(cls) or abc.ABC in cls.__bases__ or getattr(cls, "_is_protocol", False)


def concrete_bases(classes: Iterable[type]) -> dict[str, list[str]]:
    """Bases that are not abstract, each with what inherits from it. Errors may: their tree is what they say."""
    classes = {*classes}
    found: dict[str, list[str]] = {}
    for cls in sorted(classes, key=full_name):
        for base in classes.intersection(cls.__bases__):
            if not is_abstract(base) and not issubclass(base, BaseException | enum.Enum):
                found.setdefault(full_name(base), []).append(full_name(cls))
    return found


def calls_of(names: set[str], sources: Iterable[tuple[str, str]]) -> list[str]:
    return [
        f"{where}:{node.lineno} makes a {node.func.id}"
        for where, source in sources
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
    ]


def test_a_class_is_abstract_or_not_inherited_from() -> None:
    classes = classes_of_the_packages()
    assert len(classes) > 400
    assert concrete_bases(classes).keys() == EXCEPTIONS.keys()


def test_what_counts_as_abstract_is_not_made() -> None:
    # Python itself refuses only those that have abstract methods.
    names = {cls.__name__ for cls in classes_of_the_packages() if abc.ABC in cls.__bases__}
    assert len(names) > 20
    sources = [(str(path), path.read_text()) for root in ROOTS.values() for path in root.rglob("*.py")]
    few = [(path, text) for path, text in sources if any(f"{name}(" in text for name in names)]  # are parsed
    assert calls_of(names, few) == []


class Plain:
    pass


class Inheriting(Plain):
    pass


class Abstract(abc.ABC):  # noqa: B024
    pass


class Made(Abstract):
    pass


class FailureError(Exception):
    pass


class OtherFailureError(FailureError):
    pass


@pytest.mark.parametrize(
    ("classes", "found"),
    [
        ([Plain, Inheriting], {full_name(Plain): [full_name(Inheriting)]}),
        ([Inheriting], {}),  # the base is another package's
        ([Abstract, Made, FailureError, OtherFailureError], {}),
    ],
)
def test_concrete_bases_are_found(classes: list[type], found: dict[str, list[str]]) -> None:
    assert concrete_bases(classes) == found


def test_calls_are_found() -> None:
    assert calls_of({"Abstract"}, [("bad", "x = 1\ny = Abstract()"), ("good", "Made(Abstract)")]) == [
        "bad:2 makes a Abstract"
    ]
