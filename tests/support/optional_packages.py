"""Packages that tests use where they are installed."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import pytest

# Operators of torchvision whose schemas it needs to be imported.
_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_kept: list[Any] = []


def has(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def import_torchvision() -> Any:
    """Import torchvision, also where its operators do not fit PyTorch: transforms need none of them.

    The wheel on PyPI is made for PyTorch with CUDA; beside PyTorch for the CPU it cannot be imported as it is.
    """
    if not has("torchvision"):
        pytest.skip("torchvision is not installed")
    try:
        return importlib.import_module("torchvision")
    except RuntimeError:
        import torch

        library = torch.library.Library("torchvision", "DEF")
        for schema in _SCHEMAS:
            library.define(schema)
        _kept.append(library)
        return importlib.import_module("torchvision")
