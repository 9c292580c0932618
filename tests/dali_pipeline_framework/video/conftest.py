"""Videos that tests share."""

from __future__ import annotations

from pathlib import Path

import pytest
from video_kinds import KINDS, REFUSED, VideoOf


@pytest.fixture(scope="session")
def video(tmp_path_factory: pytest.TempPathFactory) -> VideoOf:
    """Get the video of a kind."""
    folder = tmp_path_factory.mktemp("videos")
    made: dict[str, Path] = {}

    def get(kind: str) -> Path:
        if kind not in made:
            made[kind] = {**KINDS, **REFUSED}[kind](folder, folder / kind)
        return made[kind]

    return get
