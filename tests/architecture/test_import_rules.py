"""What modules may import and hold, as their sources say. Rules that ruff states are in ``pyproject.toml``."""

from __future__ import annotations

import ast
import functools
import graphlib
import importlib
import importlib.metadata
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import accvlab.dali_pipeline_framework as core
import accvlab.driving_data as driving

ROOT = Path(core.__file__).parents[1]
CORE, DRIVING = core.__name__, driving.__name__

# Rooms, the lowest first. A module may import its own room and rooms of rows above it, also for types only;
# the driving data may import the core. A module at the top of a package, such as `errors`, is a room by itself;
# "" is the package.
LAYERS = {
    CORE: [
        ["installation", "url_secrets", "errors", "user_warnings", "threads", "forks"],
        ["public_names", "engine.dali", "checks"],
        ["unknown_arguments", "limits", "sample_data"],
        ["draws", "ledgers"],
        ["sampling.arithmetic", "operators"],
        ["sampling.plans", "operators.published", "processing_steps"],
        ["sampling", "processing_steps.wrappers"],
        ["faults", "providers"],
        ["providers.files", "sources"],
        ["providers.frames", "video.files", "workers"],
        ["video", "engine.timing", "workers.pool", "workers.cluster"],
        ["sources.readers", "processing_steps.image", "engine"],
        ["processing_steps.geometry"],
        ["processing_steps.boxes"],
        ["pipeline"],
        ["loader"],
        ["testing"],
        ["command_line"],
        ["inputs", "cluster", "internal_helpers", "operators_impl", "extension"],
        [""],
    ],
    DRIVING: [
        ["contract", "viewing", "steps"],
        ["datasets.driving"],
        ["testing", "datasets.infos", "datasets.nuscenes"],
        ["datasets"],
        ["recipes"],
        ["object_commands"],
        ["command_line"],
        [""],
    ],
}
LEVELS = {
    f"{package}.{room}".rstrip("."): (list(LAYERS).index(package), level)
    for package, layers in LAYERS.items()
    for level, rooms in enumerate(layers)
    for room in rooms
}
# Published paths: they show names of other rooms and have nothing of their own.
DOORS = tuple(f"{CORE}.{room}." for room in ("cluster", "inputs", "internal_helpers", "operators_impl"))
# Modules that import each other. The list may only become shorter.
CIRCLES = {
    f"{CORE}.sample_data.printing": f"{CORE}.sample_data.sample_data_group",
    f"{CORE}.processing_steps.image_use": f"{CORE}.processing_steps.pipeline_step_base",
    f"{DRIVING}.contract.driving_contract": f"{DRIVING}.datasets.driving.driving_provider",
}


def _sources() -> dict[str, str]:
    """Source text of each module by full name; a package has a dot at its end."""
    paths = [path for package in LAYERS for path in ROOT.joinpath(package.rpartition(".")[2]).rglob("*.py")]
    parts = [("accvlab", *path.relative_to(ROOT).with_suffix("").parts) for path in paths]
    return {
        ".".join(each).removesuffix("__init__"): path.read_text() for each, path in zip(parts, paths, strict=True)
    }


SOURCES = _sources()


@functools.cache
def imports_of(module: str) -> frozenset[str]:
    """Full names of what a module imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(SOURCES[module])):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = module.rsplit(".", node.level)[:1] if node.level else []
            found |= {".".join(filter(None, [*base, node.module, alias.name])) for alias in node.names}
    return frozenset(found)


def imports() -> Iterator[tuple[str, str]]:
    return ((module, name) for module in sorted(SOURCES) for name in sorted(imports_of(module)))


def room_of(name: str) -> str:
    while name not in LEVELS:
        name = name.rpartition(".")[0]
    return name


def module_of(name: str) -> str:
    """The module that a name is, or is imported from."""
    base = name.rpartition(".")[0]
    return next((each for each in (name, f"{name}.", base) if each in SOURCES), f"{base}.")


def test_imports_go_one_way() -> None:
    wrong = [
        (module, name)
        for module, name in imports()
        if name.startswith((CORE, DRIVING)) and (here := room_of(module)) != (other := room_of(name))
        if LEVELS[other] >= LEVELS[here] and module_of(name) != CIRCLES.get(module)
    ]
    assert wrong == []


def test_no_import_runs_in_a_circle() -> None:
    graph = {module: {module_of(name) for name in imports_of(module)} - {module} for module in SOURCES}
    for module, other in CIRCLES.items():
        assert other in graph[module], "take it from CIRCLES"
        graph[module].remove(other)
    graphlib.TopologicalSorter(graph).prepare()


def test_only_the_engine_imports_private_names_of_dali() -> None:
    private = [each for each in imports() if each[1].startswith("nvidia.") and "._" in each[1]]
    assert [module for module, _ in private if not module.startswith(f"{CORE}.engine.")] == []
    assert private != []


def is_public(name: str) -> bool:
    """Whether a room of the core offers a name, or it is in a module beside the rooms."""
    base, _, last = name.rpartition(".")
    is_beside = any(each in SOURCES and each.count(".") == 2 for each in (base, name))
    return not last.startswith("_") and (
        is_beside or last in getattr(importlib.import_module(base), "__all__", [])
    )


def test_driving_data_uses_public_names_of_the_core_only() -> None:
    uses = [each for each in imports() if each[0].startswith(DRIVING) and each[1].startswith(f"{CORE}.")]
    assert len(uses) > 100
    assert [(module, name) for module, name in uses if not is_public(name)] == []


def test_published_paths_hold_nothing_of_their_own() -> None:
    own = [
        f"{module}: {ast.unparse(node)}"
        for module in SOURCES
        if module.startswith(DOORS)
        for node in ast.parse(SOURCES[module]).body
        if not isinstance(node, ast.Import | ast.ImportFrom)
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        if not ast.unparse(node).startswith(("__all__ =", "__getattr__, __dir__ ="))
    ]
    assert own == []


def test_no_object_changes_its_class() -> None:
    assert [module for module, text in SOURCES.items() if re.search(r"\.__class__ = ", text)] == []


def test_each_room_is_known_and_can_be_read_in_one_look() -> None:
    sizes = Counter(module.rpartition(".")[0] for module in SOURCES if not module.endswith("."))
    assert {room: size for room, size in sizes.items() if size > 16} == {}
    assert {room for room in sizes if room.startswith(CORE) and not room.startswith(DOORS)} <= LEVELS.keys()
    assert {room for room in LEVELS if room not in SOURCES and f"{room}." not in SOURCES} == set()


def test_accvlab_is_open_for_packages_of_other_distributions() -> None:
    assert not ROOT.joinpath("__init__.py").exists()
    assert "accvlab/__init__.py" not in map(str, importlib.metadata.files(CORE) or [])
