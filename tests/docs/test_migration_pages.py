"""The migration pages have a place for all that there is to move."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from doc_pages import ROOT, find_fences, read_lines
from nvidia.dali.plugin.pytorch import DALIClassificationIterator, DALIGenericIterator

import accvlab.dali_pipeline_framework as package
from accvlab.dali_pipeline_framework import processing_steps, providers, sampling, sources, video
from accvlab.driving_data import datasets, recipes, steps

DOCS = ROOT / "docs" / "dali_pipeline_framework"
MMDET3D = ROOT / "docs" / "driving_data" / "migration_mmdet3d.md"


def first_cells(page: Path) -> set[str]:
    """The code in the first column of all tables of a page."""
    lines = read_lines(page)
    for fence in reversed(find_fences(lines)):
        del lines[fence.first : fence.end]
    cells = (line.split("|")[1] for line in lines if line.startswith("|"))
    return {name for cell in cells for name in re.findall(r"`([\w.]+)[^`]*`", cell)}


def parameters(function: Callable[..., Any]) -> set[str]:
    found = inspect.signature(function).parameters.values()
    return {each.name for each in found if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL)} - {"self"}


@pytest.mark.parametrize(
    ("page", "functions"),
    [
        ("migration_torch.md", [torch.utils.data.DataLoader.__init__]),
        ("migration_dali.md", [DALIGenericIterator.__init__, DALIClassificationIterator.__init__]),
    ],
)
def test_each_argument_has_a_place(page: str, functions: list[Callable[..., Any]]) -> None:
    missing = set().union(*map(parameters, functions)) - first_cells(DOCS / page)
    # FILL, PARTIAL and DROP have a row each.
    assert missing - {"last_batch_policy"} == set()


def test_each_transform_of_the_quoted_pipeline_has_a_place() -> None:
    lines = read_lines(MMDET3D)
    (quoted,) = (fence for fence in find_fences(lines) if fence.language == "py")
    calls = (node for node in ast.walk(ast.parse(quoted.text(lines))) if isinstance(node, ast.Call))
    names = {word.value.value for call in calls for word in call.keywords if word.arg == "type"}
    assert len(names) == 10
    assert names <= first_cells(MMDET3D)


@pytest.mark.parametrize(
    "page", [DOCS / "migration_torch.md", MMDET3D, DOCS / "migration_dali.md"], ids=lambda page: page.name
)
def test_classes_in_the_tables_are_public(page: Path) -> None:
    rooms = package, processing_steps, providers, sampling, sources, video, datasets, recipes, steps
    public = {name for room in rooms for name in room.__all__}
    lines = [line for line in read_lines(page) if line.startswith("|")]
    for line in lines:
        for name in re.findall(r"`([A-Z][a-z]\w+)[^`]*`", "|".join(line.split("|")[2:])):
            assert name in public or name in {"DataContainer", "IterableDataset", "None", "False"}, name
