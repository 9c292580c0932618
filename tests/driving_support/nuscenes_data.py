"""Small data sets in the format of nuScenes: made by the examples, and changed on purpose."""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from driving_scenes import drive_of, generate_scenes

from accvlab.driving_data.testing import layouts
from accvlab.driving_data.testing.written_files import write_files

VERSION = "v1.0-mini"


def write_nuscenes(root: Path, frames_per_keyframe: int = 2, **settings: Any) -> Path:
    """Two scenes of small pictures; cameras have their own times and ego poses."""
    settings = {"num_sequences": 2, "frames_per_sequence": (5, 7), "image_hw": (48, 80), **settings}
    content = layouts.Content(*drive_of(generate_scenes(keyframe_rate_hz=4.0, **settings)))
    write_files(root, layouts.nuscenes_files(content, frames_per_keyframe, VERSION))
    rng = np.random.default_rng(5)
    with changed_table(root, "sample_data") as data, changed_table(root, "ego_pose") as poses:
        for record, pose in zip(data, poses, strict=True):
            if "CAM" in record["filename"]:
                record["timestamp"] += int(rng.integers(-20_000, 20_000))
                pose["translation"] = (np.array(pose["translation"]) + rng.normal(size=3) * 0.2).tolist()
                pose["rotation"] = ((np.array(pose["rotation"]) + rng.normal(size=4) * 0.02) * 1.001).tolist()
    return root


@contextlib.contextmanager
def changed_table(root: Path, name: str) -> Iterator[list[dict[str, Any]]]:
    """The records of a table, which are written again at the end."""
    path = root / VERSION / f"{name}.json"
    records = json.loads(path.read_text())
    yield records
    path.write_text(json.dumps(records, indent=0))


def devkit(module: str) -> Any:
    """A module of the nuScenes devkit; the test is skipped where it cannot be imported."""
    added = []
    if "sklearn" not in sys.modules and importlib.util.find_spec("sklearn") is None:
        # It is imported for a single function, that no test needs.
        added = ["sklearn", "sklearn.metrics"]
        sys.modules |= {name: types.ModuleType(name) for name in added}
        sys.modules["sklearn"].metrics = sys.modules["sklearn.metrics"]  # type: ignore[attr-defined]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module(module)
    except ImportError as error:
        pytest.skip(f"needs the nuScenes devkit, see the Makefile: {error}")
    finally:
        for name in added:  # others look whether it is there
            del sys.modules[name]


def open_devkit(root: Path, version: str = VERSION) -> Any:
    """The tables, opened by the devkit."""
    return devkit("nuscenes.nuscenes").NuScenes(version, str(root), verbose=False)
