"""Private attributes stay in their module, imports run in no circle, and no object changes its class."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from import_rules import source_texts
from support.private_names import (  # noqa: F401 (a fixture)
    defined_names,
    is_of_itself,
    parsed,
    private_names_of_dali,
    trees_are_forgotten,
)

import accvlab.dali_pipeline_framework as core
import accvlab.driving_data as driving

# Module -> private attributes of other modules that it still uses. The list may only become shorter.
PRIVATE_USES: dict[str, set[str]] = {
    f"{core.__name__}.processing_steps.image.image_decoders": {"_with_own_switches"},
    f"{core.__name__}.sample_data.printing": {"_values"},
    f"{core.__name__}.sampling.planned_sampler": {"_last_batch", "_num_shards", "_total_batch_size"},
    f"{core.__name__}.sources.sampler_inputs": {"_check_batch_size"},
}
# Modules that import each other. The list may only become shorter.
CIRCLES: list[set[str]] = [
    {f"{core.__name__}.sample_data.printing", f"{core.__name__}.sample_data.sample_data_group"},
    {f"{core.__name__}.processing_steps.image_use", f"{core.__name__}.processing_steps.pipeline_step_base"},
    {
        f"{driving.__name__}.datasets.driving.driving_provider",
        f"{driving.__name__}.contract.driving_contract",
    },
]


@functools.cache
def sources() -> dict[str, str]:
    packages = (core, driving)
    return {
        module: text
        for package in packages
        for module, text in source_texts(package.__name__, Path(package.__file__).parent).items()
    }


# Python documents these as public, in spite of their names.
OF_NAMED_TUPLES = ("_asdict", "_fields", "_make", "_replace")
LOOKED_UP = ("getattr", "hasattr", "setattr")


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in OF_NAMED_TUPLES


def own_private_names(tree: ast.AST) -> set[str]:
    """Private names that a module defines, also as an attribute of `self` or `cls`."""
    return {
        name
        for node in ast.walk(tree)
        if not isinstance(node, ast.Attribute) or is_of_itself(node)
        for name in defined_names(node)
        if is_private(name)
    }


def private_attributes(tree: ast.AST) -> Iterator[str]:
    """Private attributes that a module uses of other objects than `self`, `cls` and `super()`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            if ast.unparse(node.value) not in ("self", "cls", "super()"):
                yield node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in LOOKED_UP:
            names = (arg.value for arg in node.args[1:2] if isinstance(arg, ast.Constant))
            yield from (name for name in names if isinstance(name, str) and is_private(name))


def foreign_private_uses(modules: Mapping[str, str]) -> dict[str, set[str]]:
    """Module -> private attributes that it uses, and that only other modules define."""
    own = {module: own_private_names(parsed(source)) for module, source in modules.items()}
    everywhere = set().union(*own.values())
    # Which names of DALI may be used, and where, is another rule.
    of_dali = {
        module: private_names_of_dali() if f"{core.__name__}.engine." in module else set() for module in own
    }
    uses = {
        module: everywhere.intersection(private_attributes(parsed(source))) - own[module] - of_dali[module]
        for module, source in modules.items()
    }
    return {module: names for module, names in uses.items() if names}


def changed_classes(modules: Mapping[str, str]) -> list[str]:
    """Where the class of an object that exists is changed."""
    return [
        f"{module}:{node.lineno}"
        for module, source in modules.items()
        for node in ast.walk(parsed(source))
        if isinstance(node, ast.Attribute) and node.attr == "__class__" and isinstance(node.ctx, ast.Store)
    ]


def imported_modules(module: str, source: str, modules: Mapping[str, str]) -> set[str]:
    """The modules that a module imports, also late and for types only; of a package what is taken from it."""
    is_package = any(other.startswith(f"{module}.") for other in modules)
    found = set()
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = module.split(".")[: len(module.split(".")) - node.level + is_package] if node.level else []
            base = ".".join([*parts, *([node.module] if node.module else [])])
            found.update(name if (name := f"{base}.{alias.name}") in modules else base for alias in node.names)
    return (found & modules.keys()) - {module}


def circles(modules: Mapping[str, str]) -> list[set[str]]:
    """Groups of modules of which each imports each other one, directly or by others."""
    below = {module: imported_modules(module, source, modules) for module, source in modules.items()}

    def reached(module: str) -> set[str]:
        found: set[str] = set()
        pending = [module]
        while pending:
            new = below[pending.pop()] - found
            found |= new
            pending += new
        return found

    reach = {module: reached(module) for module in modules}
    groups = {frozenset(other for other in reach[each] if each in reach[other]) for each in modules}
    return [set(group) for group in groups if group]


def test_private_attributes_stay_in_their_module() -> None:
    found = foreign_private_uses(sources())
    new = {module: names - PRIVATE_USES.get(module, set()) for module, names in found.items()}
    assert {module: names for module, names in new.items() if names} == {}
    gone = {module: names - found.get(module, set()) for module, names in PRIVATE_USES.items()}
    assert {module: names for module, names in gone.items() if names} == {}, "Take them from PRIVATE_USES."


def test_no_object_changes_its_class() -> None:
    assert changed_classes(sources()) == []


def test_no_import_runs_in_a_circle() -> None:
    found = circles(sources())
    assert [circle for circle in found if circle not in CIRCLES] == []
    assert [circle for circle in CIRCLES if circle not in found] == [], "Take them from CIRCLES."


class TestRules:
    @pytest.mark.parametrize(
        "source",
        [
            "def f(a):\n    a._own",
            "def f(a):\n    a._own = 1",
            "getattr(a, '_own')",
            "from x import a\na.b._own()",
        ],
    )
    def test_private_uses_are_found(self, source: str) -> None:
        owner = "class A:\n    def __init__(self):\n        self._own = 1"
        assert foreign_private_uses({"owner": owner, "user": source}) == {"user": {"_own"}}

    @pytest.mark.parametrize(
        "source",
        [
            "class B:\n    def f(self):\n        return self._own, super()._own",
            "class B:\n    _own = 1\n\ndef f(b):\n    return b._own",
            "import os\nos._exit(1)",
            "def f(a):\n    return a.__dict__",
        ],
    )
    def test_other_uses_are_accepted(self, source: str) -> None:
        owner = "class A:\n    def _own(self):\n        pass"
        assert foreign_private_uses({"owner": owner, "user": source}) == {}

    def test_changed_classes_are_found(self) -> None:
        source = "class A:\n    def f(self):\n        self.__class__ = type(self.__class__)"
        assert changed_classes({"bad": source, "good": "def f(a):\n    return a.__class__"}) == ["bad:3"]

    @pytest.mark.parametrize(
        "last", ["import p.a", "from .a import f", "from . import a", "def f():\n    from p.a import g"]
    )
    def test_circles_are_found(self, last: str) -> None:
        types_only = "if TYPE_CHECKING:\n    from .c import C"
        modules: dict[str, str] = {"p": "", "p.a": "from .b import B", "p.b": types_only, "p.c": last}
        assert circles(modules) == [{"p.a", "p.b", "p.c"}]
        without: Sequence[str] = ("p", "p.a", "p.b")
        assert circles({name: modules[name] for name in without}) == []
