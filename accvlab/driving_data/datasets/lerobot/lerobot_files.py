# SPDX-License-Identifier: Apache-2.0
"""The files of a data set of LeRobot, in the layouts v3.0 and v2.1."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import attrs
import numpy as np

from accvlab.dali_pipeline_framework.checks import listed, shown
from accvlab.dali_pipeline_framework.errors import FileError, error_that_is_also
from accvlab.dali_pipeline_framework.extension import StoragePath, StoredFile, parse_json
from accvlab.dali_pipeline_framework.providers import Storage
from accvlab.dali_pipeline_framework.user_warnings import warn_user

from ..driving.array_types import Bool, Float64, Int64
from ..driving.arrow_files import read_columns, read_tensors, refused

_PLACES = {
    "v3": "{video_key}, {chunk_index} and {file_index}",
    "v2.1": "{video_key}, {episode_chunk} and {episode_index}",
}
_INFO, _STATS, _TASKS = "meta/info.json", "meta/stats.json", "meta/tasks.parquet"
_OF_V21 = tuple(f"meta/{name}.jsonl" for name in ("episodes", "tasks", "episodes_stats"))
_NUMBERS = re.compile(r"bool|u?int(8|16|32|64)|float(16|32|64)")
CUT = "The data set is incomplete, or files of it are of another one: copy it again"


@attrs.frozen
class Feature:
    """A field of the rows.

    Attributes:
        name: Its name.
        dtype: ``"video"``, ``"image"``, ``"string"``, or what NumPy calls it.
        shape: Shape of its values in a row; of what has the shape (1,), ``()``.
        depth: Of a depth camera, what the data set says of its video; else None.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    depth: Mapping[str, Any] | None = None

    @property
    def is_number(self) -> bool:
        """Whether its values are numbers."""
        return _NUMBERS.fullmatch(self.dtype) is not None


@attrs.frozen(eq=False)
class Episodes:
    """Which rows and which parts of which videos episodes have, ``(E,)`` each.

    Attributes:
        number: Number of each episode, ascending.
        first: Its first row in the data set, ``index``.
        length: Its number of rows.
        table: Name of the table with its rows.
        video: By feature, the name of its video.
        start_s: By feature, where it starts in the video.
        end_s: By feature, where the next episode starts in the video; infinity for the last one,
            NaN where the cells of the next episode are empty.
        span: Number of rows from its first to its last one by their numbers in the data set; None where the tables
            of episodes do not have them.
        unknown: By name of a column of the tables of episodes, whether its cell is empty, where some are.
    """

    number: Int64
    first: Int64
    length: Int64
    table: Sequence[str]
    video: Mapping[str, Sequence[str]]
    start_s: Mapping[str, Float64]
    end_s: Mapping[str, Float64]
    span: Int64 | None = None
    unknown: Mapping[str, Bool] = attrs.field(factory=dict)


def _next_starts(videos: Sequence[str], start_s: Float64, is_unknown: Bool) -> Float64:
    """For each part of a video, the time at which the next one starts in the same video; infinity for the last.

    Args:
        videos: Name of the video of each episode.
        start_s: Its start there, NaN for none.
        is_unknown: Whether its video or start is not known; the end of the episode before is NaN then.
    """
    ends_s = np.full(len(start_s), np.inf)
    places: dict[str, list[int]] = {}
    for place, video in enumerate(videos):
        places.setdefault(video, []).append(place)
    for of_video in places.values():
        known = np.unique(np.append(start_s[of_video], np.inf))  # NaN, which fits no frame, comes last
        following = known.searchsorted(start_s[of_video], side="right")
        ends_s[of_video] = known[following.clip(max=len(known) - 1)]
    ends_s[:-1][is_unknown[1:]] = np.nan
    return ends_s


class LeRobotFiles:
    """The tables of a data set. What is missing, cannot be read, or is not as it should be, is a `FileError`.

    Attributes:
        storage: The folder, ZIP file or URL.
    """

    def __init__(self, root: StoragePath, storage_options: Mapping[str, Any] | None = None) -> None:
        """Name the root; tables are read when they are needed."""
        storage = Storage(root, storage_options)
        self.storage = storage if storage.is_remote else Storage(os.path.abspath(storage.root))

    def __getstate__(self) -> dict[str, Any]:
        """Where they are, without what was read."""
        return {"storage": self.storage}

    def _where(self, name: str) -> str:
        return repr(self.storage.path(name))

    def _parsed(self, name: str, parse: Callable[[str], Any]) -> Any:
        try:
            return parse(self.storage.read_bytes(name).tobytes().decode())
        except ValueError as error:
            raise refused(self.storage.path(name), error) from error

    def _lines(self, name: str, whole: Sequence[str], *others: str) -> list[dict[str, Any]]:
        """Read objects of JSON, one in each line, with whole numbers, and with other values."""
        lines: list[Any] = self._parsed(
            name, lambda text: [parse_json(line) for line in text.split("\n") if line.strip()]
        )
        for number, line in enumerate(lines, 1):
            where = f"Line {number} of {self._where(name)} must have"
            missing = [key for key in (*whole, *others) if not isinstance(line, dict) or key not in line]
            if missing:
                raise FileError(f"{where} {listed(missing)}, got {shown(line)}.")
            wrong = [key for key in whole if not isinstance(line[key], int) or line[key] < 0]
            if wrong:
                rule = f"whole numbers of at least 0 for {listed(map(repr, whole))}"
                raise FileError(f"{where} {rule}, got {shown(line)}.")
        return lines

    @cached_property
    def info(self) -> dict[str, Any]:
        """``meta/info.json``."""
        where, info = self._where(_INFO), self._parsed(_INFO, parse_json)
        version = str(info.get("codebase_version")) if isinstance(info, dict) else "none"
        if not version.startswith((*_PLACES,)):
            rule = f"{where} must be of a layout of LeRobot that is known, 'codebase_version' v3.0 or v2.1"
            raise FileError(f"{rule}, got {version!r}. Convert the data set with LeRobot.")
        missing = [name for name in ("features", "data_path", "fps") if name not in info]
        if missing:
            raise FileError(f"{where} must have {listed(missing)}.")
        fps, features = info["fps"], info["features"]
        if not isinstance(fps, int | float) or isinstance(fps, bool) or not 0 < fps < 1e6:
            raise FileError(f"'fps' of {where} must be frames per second above 0, got {shown(fps)}.")
        if not isinstance(features, dict) or not all(isinstance(one, dict) for one in features.values()):
            raise FileError(f"'features' of {where} must be objects by their names, got {shown(features)}.")
        return dict(info)

    @property
    def version(self) -> str:
        """``"v3"`` or ``"v2.1"``."""
        return next(version for version in _PLACES if self.info["codebase_version"].startswith(version))

    @property
    def feature_names(self) -> list[str]:
        """Names of the features, in the order of ``info.json``."""
        return [*self.info["features"]]

    def feature(self, name: str) -> Feature:
        """Read what ``info.json`` says of a feature."""
        one, where = self.info["features"][name], self._where(_INFO)
        shape, dtype = one.get("shape"), str(one.get("dtype"))
        if not isinstance(shape, list) or not all(isinstance(size, int) and size >= 0 for size in shape):
            raise FileError(f"'shape' of the feature {name!r} in {where} must be sizes, got {shown(shape)}.")
        more = {key: value for key, value in one.items() if key.endswith("is_depth_map")}
        for key in ("video_info", "info"):
            found = one.get(key) or {}
            if not isinstance(found, dict):
                raise FileError(
                    f"'{key}' of the feature {name!r} in {where} must be an object, got {shown(found)}."
                )
            more |= found
        more = {key.removeprefix("video."): value for key, value in more.items()}
        is_depth = bool(more.get("is_depth_map"))
        return Feature(name, dtype, () if shape == [1] else tuple(shape), more if is_depth else None)

    def named(self, field: str, feature: str = "", **numbers: int) -> str:
        """Name of a table of frames (``"data_path"``) or of a video (``"video_path"``)."""
        pattern: Any = self.info.get(field)
        try:
            name: str = pattern.format(video_key=feature, **numbers)
        except (KeyError, IndexError, ValueError, AttributeError) as error:
            rule = f"must be a name with {_PLACES[self.version]}"
            raise FileError(f"{field!r} of {self._where(_INFO)} {rule}, got {pattern!r}.") from error
        if not name or name.startswith("/") or "://" in name or ".." in name.split("/"):
            raise FileError(f"{field!r} of {self._where(_INFO)} must lie in the data set, got {pattern!r}.")
        return name

    # --- episodes -----------------------------------------------------------------------------------------

    @cached_property
    def _chunk_size(self) -> int:
        size = self.info.get("chunks_size", 1000)
        if not isinstance(size, int) or size < 1:
            where = self._where(_INFO)
            raise FileError(f"'chunks_size' of {where} must be a whole number above 0, got {shown(size)}.")
        return size

    @cached_property
    def _episode_tables(self) -> list[str]:
        """Names of the tables of episodes; they are numbered without gaps, so that nothing is to be listed."""
        names: list[str] = []
        while True:
            name = self._episode_table(len(names))
            if not self.storage.exists(name):
                break
            names.append(name)
        if not names:
            raise FileError(f"There are no tables of episodes: {self._where(name)} is missing.")
        return names

    def episodes(self, cameras: Sequence[str]) -> Episodes:
        """Read the episodes, with the videos of some features."""
        found = self._episodes_of_v3(cameras) if self.version == "v3" else self._episodes_of_v21(cameras)
        repeated = found.number[1:][np.diff(found.number) == 0]
        if len(repeated):
            rule = f"must have each episode once, got {repeated[0]} several times"
            raise FileError(f"The tables of episodes of {self.storage.root!r} {rule}. Copy them again.")
        return found

    def require_whole(self, found: Episodes) -> None:
        """Compare the episodes with the totals of ``info.json``: warn of more of them, refuse fewer."""
        counts = {"total_episodes": len(found.number), "total_frames": int(found.length.sum())}
        stated = {name: self.info[name] for name in counts if self.info.get(name) is not None}
        wrong = [name for name, count in stated.items() if isinstance(count, bool | str) or count != round(count)]
        if wrong:
            where = f"{wrong[0]!r} of {self._where(_INFO)}"
            raise FileError(f"{where} must be a whole number, got {shown(stated[wrong[0]])}.")
        if all(counts[name] == count for name, count in stated.items()):
            return
        tables = "meta/episodes" if self.version == "v3" else _OF_V21[0]
        said, got = (
            " and ".join(f"{numbers[name]} {name.partition('_')[2]}" for name in stated)
            for numbers in (stated, counts)
        )
        rule = f"{self._where(tables)} must have {said}, as {self._where(_INFO)} says, got {got}."
        if all(counts[name] >= count for name, count in stated.items()):
            warn_user(f"{rule} All of them are loaded; correct {_INFO!r}.")
            return
        missing = np.setdiff1d(np.arange(stated.get("total_episodes", 0)), found.number)
        lacking = "A 'length' is wrong."
        if len(missing):
            lacking = f"Episodes are missing: {listed(missing.tolist())}."
            if self.version == "v3":
                following = self._episode_table(len(self._episode_tables))
                lacking += f" The first table that is not there is {self._where(following)}."
        raise FileError(
            f"{rule} {lacking} Copy the data set again, or name the episodes that are wanted (`episodes`)."
        )

    def require_ranges(self, found: Episodes, places: Int64) -> None:
        """Refuse episodes of which the tables lack something, or whose numbers of rows differ."""
        for name, is_unknown in found.unknown.items():
            lacking = places[is_unknown[places]]
            if len(lacking):
                what = f"{name!r} of the episode {found.number[lacking[0]]}"
                raise FileError(f"The tables of episodes of {self.storage.root!r} have no {what}. {CUT}.")
        if found.span is None:
            return
        wrong = places[found.span[places] != found.length[places]]
        if len(wrong):
            number, span, length = (int(each[wrong[0]]) for each in (found.number, found.span, found.length))
            raise FileError(
                f"'length' of the episode {number} in the tables of episodes of {self.storage.root!r} must be "
                f"{span}, from its 'dataset_from_index' to 'dataset_to_index', got {length}. {CUT}."
            )

    def require_parts(self, found: Episodes, places: Int64) -> None:
        """Refuse episodes with rows that begin at one time of one video."""
        for camera, videos in found.video.items():
            known: dict[tuple[str, float], int] = {}
            for place in places.tolist():
                start_s, number = float(found.start_s[camera][place]), int(found.number[place])
                other = known.setdefault((videos[place], start_s), number)
                if other != number:
                    raise FileError(
                        f"The episodes {other} and {number} of {camera!r} both begin at {start_s:.3f} s of "
                        f"{self._where(videos[place])}, as the tables of episodes say ('from_timestamp'). {CUT}."
                    )

    def require_videos(self, found: Episodes, places: Int64) -> None:
        """Refuse videos of some episodes that are not there, where to look costs no requests: on this machine."""
        if self.storage.is_remote and not self.storage.path("").startswith("zip://"):
            return
        listings: dict[str, set[str]] = {}
        missing: dict[str, str] = {}
        for camera, videos in found.video.items():
            for place in places.tolist():
                folder, _, name = videos[place].rpartition("/")
                if folder not in listings:
                    listings[folder] = self._names_in(folder)
                if name not in listings[folder]:
                    missing.setdefault(videos[place], f"of {camera!r} in the episode {found.number[place]}")
        if missing:
            name, use = next(iter(missing.items()))
            others = f" and {len(missing) - 1} other videos" * (len(missing) > 1)
            message = (
                f"The video {self._where(name)} {use}{others} cannot be read: there is none. Copy the data set "
                f"again, or leave the episodes (`episodes`) or the camera (`fields`) out."
            )
            raise error_that_is_also(FileError, [FileNotFoundError], message)

    def _names_in(self, folder: str) -> set[str]:
        try:
            return {entry.name for entry in self.storage.list_folder(folder) if not entry.is_folder}
        except FileNotFoundError:
            return set()

    def _episodes_of_v3(self, cameras: Sequence[str]) -> Episodes:
        rows = ("episode_index", "length", "dataset_from_index", "data/chunk_index", "data/file_index")
        kinds = dict.fromkeys(rows, "whole")
        kinds["dataset_to_index"] = "whole"
        for video in (f"videos/{feature}" for feature in cameras):
            kinds |= {f"{video}/chunk_index": "whole", f"{video}/file_index": "whole"}
            kinds[f"{video}/from_timestamp"] = "number"
        empty = {name: -1 if kind == "whole" else -np.inf for name, kind in kinds.items()}  # no cell has these
        del empty["episode_index"]
        parts = [
            read_columns(StoredFile(self.storage, name), kinds, or_none=["dataset_to_index"], empty=empty)
            for name in self._episode_tables
        ]
        columns = {
            name: np.concatenate([part[name] for part in parts])
            for name in kinds
            if all(name in part for part in parts)
        }
        order = np.argsort(columns["episode_index"], kind="stable")
        columns = {name: column[order] for name, column in columns.items()}

        def names(field: str, what: str, feature: str = "") -> list[str]:
            places = zip(
                columns[f"{what}/chunk_index"].tolist(), columns[f"{what}/file_index"].tolist(), strict=True
            )
            return [self.named(field, feature, chunk_index=chunk, file_index=file) for chunk, file in places]

        videos = {each: names("video_path", f"videos/{each}", each) for each in cameras}
        start_s, is_unknown = {}, {}
        for each in cameras:
            start, *place = (
                columns[f"videos/{each}/{name}"] for name in ("from_timestamp", "chunk_index", "file_index")
            )
            start_s[each] = np.where(np.isneginf(start), np.nan, start)
            is_unknown[each] = np.isneginf(start) | (np.stack(place) < 0).any(axis=0)
        ends = columns.get("dataset_to_index")
        # Starts that are not known are refused where a frame is wanted.
        unknown = {name: column < 0 for name, column in columns.items() if kinds[name] == "whole"}
        return Episodes(
            number=columns["episode_index"],
            first=columns["dataset_from_index"],
            length=columns["length"],
            table=names("data_path", "data"),
            video=videos,
            start_s=start_s,
            # Not `to_timestamp`: some data sets have the time of the last frame there, others when it ends.
            end_s={each: _next_starts(videos[each], start_s[each], is_unknown[each]) for each in cameras},
            span=None if ends is None else ends - columns["dataset_from_index"],
            unknown={name: of_column for name, of_column in unknown.items() if of_column.any()},
        )

    def _episodes_of_v21(self, cameras: Sequence[str]) -> Episodes:
        lines = self._lines(_OF_V21[0], ["episode_index", "length"])
        pairs = sorted((line["episode_index"], line["length"]) for line in lines)
        number, length = np.array(pairs, np.int64).reshape(-1, 2).T
        places = [{"episode_chunk": each // self._chunk_size, "episode_index": each} for each in number.tolist()]
        return Episodes(
            number=number,
            first=np.cumsum(length) - length,
            length=length,
            table=[self.named("data_path", **place) for place in places],
            video={each: [self.named("video_path", each, **place) for place in places] for each in cameras},
            start_s=dict.fromkeys(cameras, np.zeros(len(number))),
            end_s=dict.fromkeys(cameras, np.full(len(number), np.inf)),
        )

    def _episode_table(self, number: int) -> str:
        chunk, file = divmod(number, self._chunk_size)
        return f"meta/episodes/chunk-{chunk:03d}/file-{file:03d}.parquet"

    def sources(self, tables: Sequence[str], *, has_tasks: bool) -> list[StoredFile]:
        """Files that an index depends on, with some tables of rows, and with the texts of the tasks."""
        of_v3 = self.version == "v3"
        meta = [*self._episode_tables] if of_v3 else [_OF_V21[0]]
        meta += [_TASKS if of_v3 else _OF_V21[1]] * has_tasks
        return [StoredFile(self.storage, name) for name in (_INFO, *meta, *tables)]

    # --- rows ---------------------------------------------------------------------------------------------

    def rows(
        self, table: str, features: Sequence[Feature], only: tuple[str, Sequence[int]] | None = None
    ) -> dict[str, Any]:
        """Read features of rows of a table: arrays, or lists of bytes of images; see `read_tensors`."""
        path = StoredFile(self.storage, table)
        numbers = {each.name: (np.dtype(each.dtype), each.shape) for each in features if each.is_number}
        images = [each.name for each in features if each.dtype == "image"]
        texts = [each.name for each in features if each.dtype == "string"]
        try:
            return read_tensors(path, numbers, texts=texts, images=images, only=only)
        except FileError as error:
            if error.__cause__ is not None:  # the file as a whole cannot be read
                raise
            raise FileError(f"{error} Name the fields that are wanted (`fields`): others are not read.") from error

    # --- tasks and statistics -----------------------------------------------------------------------------

    @cached_property
    def tasks(self) -> dict[int, str]:
        """Texts of the tasks, by ``task_index``."""
        if self.version == "v2.1":
            lines = self._lines(_OF_V21[1], ["task_index"], "task")
            return {line["task_index"]: str(line["task"]) for line in lines}
        also = {"task": ["__index_level_0__"]}  # the text is the index of the table, which can have no name
        kinds = {"task_index": "whole", "task": "text"}
        columns = read_columns(StoredFile(self.storage, _TASKS), kinds, also_called=also)
        return dict(zip(columns["task_index"].tolist(), columns["task"].tolist(), strict=True))

    @cached_property
    def statistics(self) -> dict[str, dict[str, Float64]]:
        """Statistics of all rows by feature: ``mean``, ``std``, ``min``, ``max``, ``count``, and others."""
        if self.version == "v3":
            found = self._checked_statistics(_STATS, self._parsed(_STATS, parse_json))
            self._compare_counts(found)
            return found
        name, lines = _OF_V21[2], self._lines(_OF_V21[2], ["episode_index"], "stats")
        known = {line["episode_index"] for line in lines}
        lacking = [number for number in self._episodes_of_v21(()).number.tolist() if number not in known]
        if lacking:
            raise FileError(
                f"{self._where(name)} must have statistics of all episodes, and has none of {listed(lacking, 5)}. "
                f"{CUT}."
            )
        return _joined([self._checked_statistics(name, line["stats"]) for line in lines])

    def _compare_counts(self, found: Mapping[str, Mapping[str, Float64]]) -> None:
        """Warn of statistics of numbers that are of fewer rows than the data set has."""
        total = self.info.get("total_frames")
        numbers = [
            name for name, of_feature in found.items() if "count" in of_feature and self.feature(name).is_number
        ]
        for name in numbers if isinstance(total, int) else ():
            count = float(found[name]["count"].sum())
            if count < float(total or 0):
                warn_user(
                    f"The statistics of {name!r} in {self._where(_STATS)} are of {count:.0f} rows, and the data "
                    f"set has {total}, as {_INFO!r} says. Compute them anew with LeRobot."
                )
                return

    def _checked_statistics(self, file: str, given: Any) -> dict[str, dict[str, Float64]]:
        if not isinstance(given, dict) or not all(isinstance(one, dict) for one in given.values()):
            raise FileError(f"{self._where(file)} must have statistics by feature, got {shown(given)}.")
        found: dict[str, dict[str, Float64]] = {}
        for name, of_feature in given.items():
            if name not in self.feature_names:
                known = listed(self.feature_names)
                raise FileError(f"{self._where(file)} has statistics of {name!r}, which is no feature: {known}.")
            feature = self.feature(name)
            is_picture = feature.dtype in ("video", "image")
            num_channels = min(feature.shape, default=3)  # before or after height and width
            shape = (num_channels, 1, 1) if is_picture else feature.shape or (1,)
            found[name] = {}
            for what, values in of_feature.items():
                try:
                    array = np.array(values, np.float64)
                except (TypeError, ValueError):
                    array = np.zeros(0)
                expected = (1,) if what == "count" else shape
                if array.shape != expected:
                    raise FileError(
                        f"{what!r} of {name!r} in {self._where(file)} must have the shape {expected}, as the "
                        f"feature in {_INFO!r} has, got {array.shape}: the statistics are of other data. Compute "
                        f"them anew with LeRobot."
                    )
                found[name][what] = array
        return found


def _joined(parts: Sequence[Mapping[str, Mapping[str, Float64]]]) -> dict[str, dict[str, Float64]]:
    """Join the statistics of single episodes, as if computed from all of their rows."""
    joined: dict[str, dict[str, Float64]] = {}
    for name in parts[0] if parts else ():
        of_parts = [part[name] for part in parts if name in part]
        if not all({"mean", "std", "min", "max", "count"} <= part.keys() for part in of_parts):
            continue
        known = {
            what: np.stack([part[what] for part in of_parts]) for what in ("mean", "std", "min", "max", "count")
        }
        if not known["count"].any():
            continue
        count = known["count"].reshape(-1, *[1] * (known["mean"].ndim - 1))
        mean = (count * known["mean"]).sum(axis=0) / count.sum(axis=0)
        variance = (count * (known["std"] ** 2 + (known["mean"] - mean) ** 2)).sum(axis=0) / count.sum(axis=0)
        joined[name] = {
            "min": known["min"].min(axis=0),
            "max": known["max"].max(axis=0),
            "mean": mean,
            "std": np.sqrt(variance),
            "count": known["count"].sum(axis=0),
        }
    return joined
