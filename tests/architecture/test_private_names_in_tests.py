"""Tests use the package as its users do: no private name of the package occurs in a test."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Set
from pathlib import Path

import pytest
from support.private_names import defined_names, is_of_itself, tree_of

import accvlab.dali_pipeline_framework as core
import accvlab.driving_data as driving

TESTS = Path(__file__).parents[1]
# Published although they begin with an underscore: paths of imports, and methods that steps override.
PUBLISHED = {
    "_insert_copy_for_passthrough",
    "_InsertCopyForPassthrough",
    "_dali_structured_output_iterator_data_loader_wrapper",
    "_process",
    "_check_and_adjust_data_format_input_to_output",
    "_check_and_get_paths_to_apply_to",
    "_apply_matrix_2d_input_ensured",
    "_data",  # which code of MMDetection reads of its containers
}
# The canary, which is about private names of DALI; and modules that use names of DALI that
# the package has, too.
OF_OTHERS = {
    "dali_pipeline_framework/engine/test_dali_names.py",
    "dali_pipeline_framework/pipeline/test_pipeline_arguments.py",
    "support/gpu_definitions.py",
    "support/gpu_rehearsal.py",
}
# Modules that still use private names of the package. No module may be added.
LEFT = {
    "dali_pipeline_framework/engine/test_timing.py",
    "dali_pipeline_framework/loader/test_loaders_on_gpu.py",
    "dali_pipeline_framework/loader/test_rank_agreement.py",
    "dali_pipeline_framework/processing_steps/test_affine_transformer.py",
    "dali_pipeline_framework/processing_steps/test_chains_keep_geometry.py",
    "dali_pipeline_framework/providers/files/test_file_lock.py",
    "dali_pipeline_framework/providers/files/test_file_scan.py",
    "dali_pipeline_framework/providers/files/test_file_storage.py",
    "driving_data/datasets/test_file_limits_of_data_sets.py",
    "driving_data/datasets/test_nuscenes_provider.py",
    "driving_data/datasets/test_driving_videos.py",
    "driving_support/driving_data.py",
    "fuzzing/damaged_files.py",
    "support/loaders.py",
}
LOOKED_UP = {"getattr", "setattr", "hasattr", "delattr", "attrgetter", "object"}  # last part of a function's name


def is_private(name: str) -> bool:
    """Names such as `_repr_png_` are protocols."""
    return name.startswith("_") and not name.endswith("_") and name not in PUBLISHED


def own_names(tree: ast.Module) -> set[str]:
    """Names that a module defines, but for attributes of objects that are not its own."""
    return {
        name
        for node in ast.walk(tree)
        if not isinstance(node, ast.Attribute) or is_of_itself(node)
        for name in defined_names(node)
    }


@functools.cache
def private_names_of_packages() -> frozenset[str]:
    paths = [path for package in (core, driving) for path in Path(str(package.__file__)).parent.rglob("*.py")]
    names = {
        name for path in paths for name in {path.stem, path.parent.name, *own_names(tree_of(path.read_text()))}
    }
    return frozenset(filter(is_private, names))


def private_uses(source: str, private: Set[str], shared: Set[str] = frozenset()) -> Iterator[str]:
    """Line and name of each private name that is used, and that neither this module nor ``shared`` defines."""
    tree = tree_of(source)
    foreign = private - own_names(tree) - shared
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module)) if module.startswith("accvlab"):
                used = [
                    name
                    for name in (*module.split("."), *(alias.name for alias in node.names))
                    if is_private(name)
                ]
            case ast.Attribute(value=value, attr=name) if name in foreign:
                used = [] if ast.unparse(value) in ("self", "cls", "super()") else [name]
            case ast.Call(func=ast.Name(id=function) | ast.Attribute(attr=function)) if function in LOOKED_UP:
                texts = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
                used = [name for text in texts for name in str(text).split(".") if name in foreign]
            case _:
                continue
        yield from (f"{node.lineno}: {name}" for name in used)


def test_no_test_uses_a_private_name_of_the_package() -> None:
    sources = {str(path.relative_to(TESTS)): path.read_text() for path in sorted(TESTS.rglob("*.py"))}
    shared = {
        name for path, source in sources.items() if "support/" in path for name in own_names(tree_of(source))
    }
    private = private_names_of_packages()
    uses = {
        path: [*private_uses(source, private, shared)]
        for path, source in sources.items()
        if path not in OF_OTHERS and not private.isdisjoint(re.findall(r"\b_\w+", source))  # few are parsed
    }
    assert {path: found for path, found in uses.items() if found and path not in LEFT} == {}
    assert {path for path, found in uses.items() if found} == LEFT  # else remove what is clean from the list


@pytest.mark.parametrize(
    ("source", "used"),
    [
        ("from accvlab.core.checks import _limit, limit", ["1: _limit"]),
        ("from accvlab.core._run import limit", ["1: _run"]),
        ("x = 1\nloader._run.pipeline", ["2: _run"]),
        ("getattr(loader, '_run')", ["1: _run"]),
        ("monkeypatch.setattr('accvlab.core._run.name', 1)", ["1: _run"]),
        ("class Own:\n    def run(self): return self._run", []),
        ("class Own:\n    _run = 1\nOwn()._run", []),
        ("tuple._asdict(), pipeline._shared", []),
    ],
)
def test_uses_of_private_names_are_found(source: str, used: list[str]) -> None:
    assert [*private_uses(source, {"_run", "_shared"}, {"_shared"})] == used
