# SPDX-License-Identifier: Apache-2.0
"""The tables of a data set of LeRobot, version 3."""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework.checks import listed, shown
from accvlab.dali_pipeline_framework.errors import FileError
from accvlab.dali_pipeline_framework.extension import parse_json, read_table

from ..driving.arrow_files import read_columns, refused

_IMAGES = "observation.images."
_BRACES = re.compile(r"\{[^{}]*\}?")
_PLACE = re.compile(r"\{(video_key|chunk_index|file_index)(:0?\d?d?)?\}")


class LeRobotFiles:
    """The tables of a data set. What is missing, cannot be read, or is not as it should be, is a `FileError`.

    Attributes:
        root: Its folder.
    """

    def __init__(self, root: Path) -> None:
        """Name the folder; tables are read when they are needed."""
        self.root = root

    @cached_property
    def info(self) -> dict[str, Any]:
        """``meta/info.json``."""
        path = self.root / "meta" / "info.json"
        try:
            info = parse_json(read_table(path))
        except (OSError, ValueError) as error:
            raise refused(path, error) from error
        version = str(info.get("codebase_version")) if isinstance(info, dict) else "none"
        if not version.startswith("v3"):
            raise FileError(
                f"{str(path)!r} must be of version 3 of LeRobot ('codebase_version': 'v3.0'), got {version!r}: "
                f"convert the data set with LeRobot."
            )
        missing = [name for name in ("features", "data_path") if name not in info]
        if missing:
            raise FileError(f"{str(path)!r} must have {listed(missing)}.")
        features = info["features"]
        if not isinstance(features, dict) or not all(isinstance(one, dict) for one in features.values()):
            raise FileError(f"'features' of {str(path)!r} must be objects by their names, got {shown(features)}.")
        return dict(info)

    @cached_property
    def video_features(self) -> dict[str, str]:
        """Features that are videos, by name of the camera."""
        features = [name for name, one in self.info["features"].items() if one.get("dtype") == "video"]
        return {name.removeprefix(_IMAGES): name for name in features}

    @cached_property
    def episode_files(self) -> list[Path]:
        """Tables of the episodes, in order."""
        found = sorted((self.root / "meta" / "episodes").rglob("*.parquet"))
        if not found:
            raise FileError(f"There are no tables of episodes in {str(self.root / 'meta' / 'episodes')!r}.")
        return found

    @cached_property
    def episodes(self) -> dict[str, npt.NDArray[Any]]:
        """Columns of the episodes, by their number."""
        kinds = dict.fromkeys(("episode_index", "length", "data/chunk_index", "data/file_index"), "whole")
        for feature in self.video_features.values():
            kinds |= dict.fromkeys((f"videos/{feature}/chunk_index", f"videos/{feature}/file_index"), "whole")
            kinds |= dict.fromkeys(
                (f"videos/{feature}/from_timestamp", f"videos/{feature}/to_timestamp"), "number"
            )
        parts = [read_columns(path, kinds) for path in self.episode_files]
        columns = {name: np.concatenate([part[name] for part in parts]) for name in kinds}
        order = np.argsort(columns["episode_index"], kind="stable")
        return {name: column[order] for name, column in columns.items()}

    def data_file(self, chunk: int, file: int) -> str:
        """Name of a table of frames."""
        return self._named("data_path", "data", chunk, file)

    def video_file(self, feature: str, chunk: int, file: int) -> str:
        """Name of a video."""
        return self._named("video_path", feature, chunk, file)

    def _named(self, field: str, feature: str, chunk: int, file: int) -> str:
        pattern = str(self.info.get(field, ""))
        try:
            # A format of its own could ask for a name of gigabytes, or for attributes.
            if not all(_PLACE.fullmatch(place) for place in _BRACES.findall(pattern)):
                raise ValueError("other places")
            return pattern.format(video_key=feature, chunk_index=chunk, file_index=file)
        except (KeyError, IndexError, ValueError) as error:
            raise FileError(
                f"{field!r} of {str(self.root / 'meta/info.json')!r} must be a name with {{video_key}}, "
                f"{{chunk_index}} and {{file_index}}, got {pattern!r}."
            ) from error

    @property
    def sources(self) -> list[Path]:
        """Files that the index depends on."""
        episodes = self.episodes
        files = zip(episodes["data/chunk_index"].tolist(), episodes["data/file_index"].tolist(), strict=True)
        names = {self.data_file(*place) for place in files}
        for feature in self.video_features.values():
            chunks, numbers = (
                episodes[f"videos/{feature}/{part}"].tolist() for part in ("chunk_index", "file_index")
            )
            names |= {self.video_file(feature, *place) for place in zip(chunks, numbers, strict=True)}
        return [
            self.root / "meta" / "info.json",
            *self.episode_files,
            *(self.root / name for name in sorted(names)),
        ]
