"""Folders of extracted streams, and loaders over them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from accvlab.dali_pipeline_framework.processing_steps import ImageDecoder
from support.loaders import make_loader


def pixels_of(path: Path | str, height: int = 4, width: int = 5) -> npt.NDArray[np.uint8]:
    """The pixels that `write_frames` has given to a file: they depend on its folder and name."""
    seed = [*Path(path).parent.name.encode(), 0, *Path(path).name.encode()]
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def write_frame(path: Path, height: int = 4, width: int = 5) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels_of(path, height, width)).save(path, "PNG")


def write_frames(root: Path, tree: Mapping[str, Iterable[str] | int], height: int = 4, width: int = 5) -> Path:
    """Write PNG files: per folder their names, or how many (``00000.png``, ``00001.png``, ...)."""
    for folder, names in tree.items():
        (root / folder).mkdir(parents=True, exist_ok=True)
        for name in (f"{number:05}.png" for number in range(names)) if isinstance(names, int) else names:
            write_frame(root / folder / name, height, width)
    return root


def sequences(provider: Any, batch_size: int = 4, **arguments: Any) -> list[dict[str, Any]]:
    """All samples of a provider of windows in order, decoded, as nested dicts."""
    arguments = {"steps": [ImageDecoder("frames", False)], "last_batch": "partial", "ragged": "list", **arguments}
    with make_loader(provider, batch_size, **arguments) as loader:
        return [sample for batch in loader for sample in samples_of(batch)]


def samples_of(batch: Mapping[Any, Any]) -> list[Any]:
    """The samples of a batch, each nested as the batch is."""
    columns = {
        name: samples_of(value) if isinstance(value, Mapping) else [*value] for name, value in batch.items()
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
