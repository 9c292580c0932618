"""Values that say where recordings lie: frozen, checked at birth, and compared by what they hold."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.providers import FrameFolders
from accvlab.dali_pipeline_framework.video import Videos


def test_values_are_frozen_equal_and_pickled() -> None:
    videos = Videos(["a.mp4", Path("b.mp4")], labels=np.array([1, 2]), index_cache="cache")
    assert videos.filenames == ("a.mp4", "b.mp4")
    assert videos.labels == (1, 2)
    folders = FrameFolders("train", cameras=["F", "R"], align="time", reference_camera="R")
    assert folders.cameras == {"F": "F", "R": "R"}
    assert (folders.reference, folders.camera_names) == (1, ("F", "R"))
    for value in (videos, folders):
        assert pickle.loads(pickle.dumps(value)) == value == attrs.evolve(value)
        with pytest.raises(attrs.exceptions.FrozenInstanceError):
            value.missing = "bridge"  # type: ignore[misc]
    assert attrs.evolve(videos, stream=1) != videos


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (
            {"cameras": {"front": ["a"]}, "time_offsets_s": 1},
            "`time_offsets_s` must map names of cameras to seconds",
        ),
        (
            {"cameras": {"front": ["a"]}, "time_offsets_s": {"front": "1"}},
            r"`time_offsets_s\['front'\]` must be a number, or one per recording",
        ),
        ({"cameras": {"front": []}}, r"`cameras\['front'\]` must name at least one video"),
        (
            {"filenames": "a", "reference_camera": "front"},
            r"`reference_camera` must name one of `cameras` \(none\)",
        ),
        ({"filenames": "a", "missing": "drops"}, "Did you mean 'drop'"),
        ({"file_root": "a", "labels": 1}, "`labels` go with `filenames` and `cameras`; with `file_root`, folders"),
    ],
)
def test_nonsense_is_refused_at_birth(arguments: dict[str, Any], rule: str) -> None:
    with pytest.raises(SettingError, match=rule):
        Videos(**arguments)
