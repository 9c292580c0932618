"""The demo data generator: what it writes, and what its index holds."""

import doctest
import hashlib
import importlib

import pytest
from driving_scenes import SceneSettings, export_nuscenes, generate_scenes
from driving_scenes.generation import draw_sequence_lengths

SMALL = {"num_sequences": 2, "frames_per_sequence": (2, 3), "image_hw": (64, 112), "seed": 3}


@pytest.fixture(scope="module")
def scenes():
    return generate_scenes(**SMALL)


def _digests(root):
    files = sorted(path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


# ---- what is generated


@pytest.mark.wide
def test_equal_settings_give_equal_bytes(scenes, tmp_path):
    first = export_nuscenes(scenes, tmp_path / "first")
    again = export_nuscenes(generate_scenes(**SMALL), tmp_path / "again")
    assert _digests(again) == _digests(first)


def test_default_lengths_are_pinned():
    # Benchmarks are quoted for the default data set: a change of these numbers goes into the changelog.
    assert draw_sequence_lengths(SceneSettings()) == [14, 12, 12, 14, 12]


# ---- writing


@pytest.mark.wide
@pytest.mark.parametrize("module", ["geometry", "settings", "frames"])
def test_examples_in_docstrings(module):
    results = doctest.testmod(importlib.import_module(f"driving_scenes.{module}"))
    assert results.attempted > 0
    assert results.failed == 0
