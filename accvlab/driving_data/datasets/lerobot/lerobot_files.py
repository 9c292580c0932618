# SPDX-License-Identifier: Apache-2.0
"""The files of a data set of LeRobot, in the layouts v3.0 and v2.1."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import attrs
import numpy as np

from accvlab.dali_pipeline_framework.checks import listed, shown
from accvlab.dali_pipeline_framework.errors import FileError, SettingError, error_that_is_also
from accvlab.dali_pipeline_framework.extension import StoragePath, StoredFile, parse_json
from accvlab.dali_pipeline_framework.providers import Storage
from accvlab.dali_pipeline_framework.user_warnings import warn_user

from ..driving.array_types import Array, Float64, Int64
from ..driving.arrow_files import Kind, Tensors, read_columns, reading, refuse_repeated
from ..driving.requested_files import ListedFiles

INFO = "meta/info.json"
_STATS, _TASKS, _EPISODES = "meta/stats.json", "meta/tasks.parquet", "meta/episodes"
_OF_V21 = tuple(f"meta/{name}.jsonl" for name in ("episodes", "tasks", "episodes_stats"))
_NUMBERS = re.compile(r"bool|u?int(8|16|32|64)|float(16|32|64)")
_PLACES = ("video_key", "chunk_index", "file_index", "episode_chunk", "episode_index")
CUT = "The data set is incomplete, or files of it are of another one: copy it again"
_OF_ALL = ("mean", "std", "min", "max", "count")


def _is_whole(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == round(value)


# Entries of `info.json`: what each must be, and whether a value is that.
_RULES: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "codebase_version": (
        "v3.0 or v2.1 (LeRobot converts data sets of other layouts)",
        lambda version: str(version).startswith(("v3", "v2.1")),
    ),
    "features": (
        "objects by their names",
        lambda features: isinstance(features, dict) and all(isinstance(one, dict) for one in features.values()),
    ),
    "fps": (
        "frames per second above 0",
        lambda fps: isinstance(fps, int | float) and not isinstance(fps, bool) and 0 < fps < 1e6,
    ),
    "chunks_size": ("a whole number above 0", lambda size: size is None or (_is_whole(size) and size > 0)),
    "total_episodes": ("a whole number", lambda total: total is None or _is_whole(total)),
    "total_frames": ("a whole number", lambda total: total is None or _is_whole(total)),
}


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

    @property
    def kind(self) -> Kind | None:
        """Kind of its column in tables, see `read_columns`; None where it is in none."""
        kinds = {"image": "images", "string": "text"}
        return Tensors(np.dtype(self.dtype), self.shape) if self.is_number else kinds.get(self.dtype)


@attrs.frozen(eq=False)
class Episodes:
    """Which rows and which parts of which videos episodes have, ``(E,)`` each.

    Attributes:
        number: Number of each episode, ascending.
        first: Its first row in the data set, ``index``.
        length: Its number of rows, above 0.
        table: Name of the table with its rows.
        video: By feature, the name of its video.
        start_s: By feature, where it starts in the video.
        end_s: By feature, where the next episode starts in the video; infinity for the last one, NaN where that is
            not known.
    """

    number: Int64
    first: Int64
    length: Int64
    table: Sequence[str]
    video: Mapping[str, Sequence[str]]
    start_s: Mapping[str, Float64]
    end_s: Mapping[str, Float64]


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

    def _parsed(self, name: str, parse: Callable[[str], Any] = parse_json) -> Any:
        path = self.storage.path(name)
        with reading(f"The file {path!r}", path):
            return parse(self.storage.read_bytes(name).tobytes().decode())

    def _lines(self, name: str, *whole: str) -> list[dict[str, Any]]:
        """Read objects of JSON, one in each line, with whole numbers."""
        lines: list[Any] = self._parsed(
            name, lambda text: [parse_json(line) for line in text.split("\n") if line.strip()]
        )
        for number, line in enumerate(lines, 1):
            values = [line.get(key) if isinstance(line, dict) else None for key in whole]
            if not all(isinstance(value, int) and value >= 0 for value in values):
                rule = f"whole numbers of at least 0 for {listed(map(repr, whole))}"
                raise FileError(f"Line {number} of {self._where(name)} must have {rule}, got {shown(line)}.")
        return lines

    @cached_property
    def info(self) -> dict[str, Any]:
        """``meta/info.json``."""
        info = self._parsed(INFO)
        for name, (rule, is_right) in _RULES.items():
            value = info.get(name) if isinstance(info, dict) else None
            if not is_right(value):
                raise FileError(f"{name!r} of {self._where(INFO)} must be {rule}, got {shown(value)}.")
        return dict(info)

    @property
    def is_v3(self) -> bool:
        """Whether the layout is v3.0, not v2.1."""
        return str(self.info["codebase_version"]).startswith("v3")

    @property
    def feature_names(self) -> list[str]:
        """Names of the features, in the order of ``info.json``."""
        return [*self.info["features"]]

    def feature(self, name: str) -> Feature:
        """Read what ``info.json`` says of a feature."""
        one = self.info["features"][name]
        shape, dtype = one.get("shape"), str(one.get("dtype"))
        if not isinstance(shape, list) or not all(isinstance(size, int) and size >= 0 for size in shape):
            where = self._where(INFO)
            raise FileError(f"'shape' of the feature {name!r} in {where} must be sizes, got {shown(shape)}.")
        of_video = {key: value for key, value in one.items() if key.endswith("is_depth_map")}
        of_video |= {**(one.get("video_info") or {}), **(one.get("info") or {})}
        of_video = {key.removeprefix("video."): value for key, value in of_video.items()}
        depth = of_video if of_video.get("is_depth_map") else None
        return Feature(name, dtype, () if shape == [1] else tuple(shape), depth)

    def _named(self, field: str, chunks: Int64, files: Int64, feature: str = "") -> list[str]:
        """Names of tables of frames (``"data_path"``) or of videos (``"video_path"``)."""
        pattern: Any = self.info.get(field)
        places = zip(chunks.tolist(), files.tolist(), strict=True)
        try:
            return [
                str.format(pattern, **dict(zip(_PLACES, (feature, *place, *place), strict=True)))
                for place in places
            ]
        except (KeyError, IndexError, ValueError, TypeError) as error:
            rule = f"must be a name with no places but {listed(f'{{{name}}}' for name in _PLACES)}"
            raise FileError(f"{field!r} of {self._where(INFO)} {rule}, got {pattern!r}.") from error

    # --- episodes -----------------------------------------------------------------------------------------

    @property
    def _chunk_size(self) -> int:
        return int(self.info.get("chunks_size") or 1000)

    @cached_property
    def _episode_tables(self) -> list[str]:
        """Names of the tables of episodes; they are numbered without gaps, so that nothing is to be listed."""
        names: list[str] = []
        while True:
            chunk, file = divmod(len(names), self._chunk_size)
            name = f"{_EPISODES}/chunk-{chunk:03d}/file-{file:03d}.parquet"
            if not self.storage.exists(name):
                break
            names.append(name)
        if not names:
            raise FileError(f"There are no tables of episodes: {self._where(name)} is missing.")
        return names

    def _all_episodes(self, cameras: Sequence[str]) -> dict[str, Array]:
        """Columns of all episodes, by number, as the tables of v3.0 have them; -1 and NaN for empty cells."""
        kinds = dict.fromkeys(("episode_index", "length"), "whole")
        videos = [f"videos/{camera}" for camera in cameras]
        places = [f"{what}/{place}" for what in ("data", *videos) for place in ("chunk_index", "file_index")]
        starts = [f"{video}/from_timestamp" for video in videos]
        if self.is_v3:
            kinds |= dict.fromkeys(("dataset_from_index", *places), "whole") | dict.fromkeys(starts, "number")
            empty = {name: -1 if kind == "whole" else np.nan for name, kind in kinds.items()}
            parts = [
                read_columns(StoredFile(self.storage, name), kinds, empty=empty) for name in self._episode_tables
            ]
            columns = {name: np.concatenate([part[name] for part in parts]) for name in kinds}
        else:
            lines = self._lines(_OF_V21[0], *kinds)
            columns = {name: np.array([line[name] for line in lines], np.int64) for name in kinds}
            number = columns["episode_index"]
            columns |= {name: number // self._chunk_size if "chunk" in name else number for name in places}
            columns |= dict.fromkeys(starts, np.zeros(len(lines)))
        order = np.argsort(columns["episode_index"], kind="stable")
        columns = {name: column[order] for name, column in columns.items()}
        refuse_repeated(columns["episode_index"].tolist(), self.storage.path(_EPISODES), "episode")
        length = columns["length"]
        return {"dataset_from_index": np.cumsum(length) - length, **columns}

    def episodes(self, cameras: Sequence[str], wanted: Sequence[int] | None) -> Episodes:
        """Read the wanted episodes that have rows, None for all, with the videos of some features."""
        columns = self._all_episodes(cameras)
        numbers = columns["episode_index"]
        if wanted is None:
            self._require_whole(numbers, columns["length"])
        ends_s = {camera: ends_in_video_s(columns, f"videos/{camera}") for camera in cameras}
        missing = np.setdiff1d([] if wanted is None else wanted, numbers)
        if len(missing):
            there = f"{len(numbers)} episodes, numbered {numbers[0]} to {numbers[-1]}"
            rule = f"`episodes` must be episodes of the data set, which has {there}"
            raise SettingError(f"{rule}, got {missing[0]:.0f}.")
        places = np.flatnonzero((wanted is None or np.isin(numbers, wanted)) & (columns["length"] != 0))
        if not len(places):
            raise FileError(f"There are no episodes with rows. {CUT}.")
        columns = {name: column[places] for name, column in columns.items()}
        for name, column in columns.items():
            if column.dtype.kind == "i" and column.min() < 0:  # starts that are unknown are refused on use
                what = f"{name!r} of the episode {columns['episode_index'][column.argmin()]}"
                raise FileError(f"The tables of episodes of {self.storage.root!r} have no {what}. {CUT}.")

        def names(field: str, what: str, camera: str = "") -> list[str]:
            return self._named(field, columns[f"{what}/chunk_index"], columns[f"{what}/file_index"], camera)

        found = Episodes(
            number=columns["episode_index"],
            first=columns["dataset_from_index"],
            length=columns["length"],
            table=names("data_path", "data"),
            video={camera: names("video_path", f"videos/{camera}", camera) for camera in cameras},
            start_s={camera: columns[f"videos/{camera}/from_timestamp"] for camera in cameras},
            end_s={camera: of_camera[places] for camera, of_camera in ends_s.items()},
        )
        for camera in cameras:
            starts = zip(found.video[camera], found.start_s[camera].tolist(), strict=True)
            refuse_repeated([*starts], self.storage.path(_EPISODES), "video and 'from_timestamp'")
        self._require_videos(found)
        return found

    def _require_whole(self, numbers: Int64, length: Int64) -> None:
        """Compare the episodes with the totals of ``info.json``: warn of more of them, refuse fewer."""
        counts = {"total_episodes": len(numbers), "total_frames": int(length.sum())}
        stated = {name: int(self.info[name]) for name in counts if self.info.get(name) is not None}
        off = [counts[name] - count for name, count in stated.items()]
        if not any(off):
            return
        said, got = (
            " and ".join(f"{of[name]} {name.partition('_')[2]}" for name in stated) for of in (stated, counts)
        )
        tables = self._where(_EPISODES if self.is_v3 else _OF_V21[0])
        rule = f"{tables} must have {said}, as {self._where(INFO)} says, got {got}."
        if min(off) >= 0:
            warn_user(f"{rule} All of them are loaded; correct {INFO!r}.")
            return
        missing = np.setdiff1d(np.arange(stated.get("total_episodes", 0)), numbers).tolist()
        lacking = f"Episodes are missing: {listed(missing)}." if missing else "A 'length' is wrong."
        advice = "Copy the data set again, or name the episodes that are wanted (`episodes`)."
        raise FileError(f"{rule} {lacking} {advice}")

    def _require_videos(self, found: Episodes) -> None:
        """Refuse videos that are not there, where to look costs no requests: on this machine."""
        if self.storage.is_remote and not self.storage.path("").startswith("zip://"):
            return
        files = ListedFiles()
        missing = [
            (name, f"of {camera!r} in the episode {number}")
            for camera, names in found.video.items()
            for name, number in zip(names, found.number.tolist(), strict=True)
            if not files.has(StoredFile(self.storage, name))
        ]
        if missing:
            (name, use), count = missing[0], len({name for name, _ in missing}) - 1
            others = f" and {count} other videos" * bool(count)
            message = (
                f"The video {self._where(name)} {use}{others} cannot be read: there is none. Copy the data set "
                f"again, or leave the episodes (`episodes`) or the camera (`fields`) out."
            )
            raise error_that_is_also(FileError, [FileNotFoundError], message)

    def sources(self, tables: Sequence[str], *, has_tasks: bool) -> list[StoredFile]:
        """Files that an index depends on, with some tables of rows, and with the texts of the tasks."""
        meta = [*self._episode_tables, _TASKS] if self.is_v3 else [*_OF_V21[:2]]
        return [StoredFile(self.storage, name) for name in (INFO, *meta[: None if has_tasks else -1], *tables)]

    # --- rows ---------------------------------------------------------------------------------------------

    def rows(self, found: Episodes, features: Sequence[Feature], *, is_whole: bool) -> dict[str, Any]:
        """Read features of the rows of episodes, which must be complete and in order: arrays, or lists of bytes.

        Where all episodes are wanted (``is_whole``), tables must have no rows of others.
        """
        kinds = {each.name: each.kind for each in features if each.kind is not None}
        only = None if is_whole else ("episode_index", found.number.tolist())
        parts: dict[str, list[Any]] = {name: [] for name in kinds}
        for table in dict.fromkeys(found.table):
            try:
                columns = read_columns(StoredFile(self.storage, table), kinds, only=only)
            except FileError as error:
                if error.__cause__ is not None:  # the file as a whole cannot be read
                    raise
                advice = "Name the fields that are wanted (`fields`): others are not read."
                raise FileError(f"{error} {advice}") from error
            for name, column in columns.items():
                parts[name].append(column)
        number = np.concatenate(parts["episode_index"])
        order = None if (np.diff(number) >= 0).all() else np.argsort(number, kind="stable")
        rows = {name: _joined_rows(parts.pop(name), order) for name in kinds}
        ends = np.cumsum(found.length)
        frame = np.arange(ends[-1]) - np.repeat(ends - found.length, found.length)
        of_row = np.repeat(np.arange(len(found.number)), found.length)
        self._require_lengths(found, number)
        expected = {"frame_index": frame, "index": found.first[of_row] + frame}
        for name, numbers in expected.items():
            wrong = np.flatnonzero(rows[name] != numbers)
            if len(wrong):
                row = wrong[0]
                at = f"row {frame[row]} of the episode {found.number[of_row[row]]}"
                where = self._where(found.table[of_row[row]])
                raise FileError(
                    f"{name!r} must be {numbers[row]} in {at} in {where}, got {rows[name][row]}. {CUT}."
                )
        return rows

    def _require_lengths(self, found: Episodes, number: Int64) -> None:
        """Refuse numbers of rows that are not those of the episodes; ``number`` is that of the episode of each."""
        known = dict(zip(*(each.tolist() for each in np.unique(number, return_counts=True)), strict=True))
        stated = dict(zip(found.number.tolist(), found.length.tolist(), strict=True))
        for episode in sorted({*known, *stated}):
            length, count = stated.get(episode, 0), known.get(episode, 0)
            if length != count:
                place = max(int(found.number.searchsorted(episode, side="right")) - 1, 0)
                rule = f"must have {length} rows of the episode {episode}, as its 'length' says"
                raise FileError(f"{self._where(found.table[place])} {rule}, got {count}. {CUT}.")

    # --- tasks and statistics -----------------------------------------------------------------------------

    @cached_property
    def tasks(self) -> dict[int, str]:
        """Texts of the tasks, by ``task_index``."""
        if not self.is_v3:
            return {
                line["task_index"]: str(line.get("task", "")) for line in self._lines(_OF_V21[1], "task_index")
            }
        also = {"task": ["__index_level_0__"]}  # the text is the index of the table, which can have no name
        kinds = {"task_index": "whole", "task": "text"}
        columns = read_columns(StoredFile(self.storage, _TASKS), kinds, also_called=also)
        return dict(zip(columns["task_index"].tolist(), columns["task"].tolist(), strict=True))

    @cached_property
    def statistics(self) -> dict[str, dict[str, Float64]]:
        """Statistics of all rows by feature: ``mean``, ``std``, ``min``, ``max``, ``count``, and others."""
        total = self.info.get("total_frames")
        if self.is_v3:
            found = self._statistics_of(_STATS, self._parsed(_STATS))
        else:
            lines = self._lines(_OF_V21[2], "episode_index")
            numbers = self._all_episodes(())["episode_index"]
            lacking = np.setdiff1d(numbers, [line["episode_index"] for line in lines]).tolist()
            if lacking:
                rule = f"must have statistics of all episodes, and has none of {listed(lacking, 5)}"
                raise FileError(f"{self._where(_OF_V21[2])} {rule}. {CUT}.")
            found = _joined([self._statistics_of(_OF_V21[2], line.get("stats")) for line in lines])
        counts = {
            name: of["count"].sum() for name, of in found.items() if "count" in of and self.feature(name).is_number
        }
        few = [name for name, count in counts.items() if self.is_v3 and total is not None and count < total]
        if few:
            warn_user(
                f"The statistics of {few[0]!r} in {self._where(_STATS)} are of {counts[few[0]]:.0f} rows, and the "
                f"data set has {total}, as {INFO!r} says. Compute them anew with LeRobot."
            )
        return found

    def _statistics_of(self, file: str, given: Any) -> dict[str, dict[str, Float64]]:
        """Statistics of the known features, by their names, with the shapes of the features."""
        if not isinstance(given, dict) or not all(isinstance(one, dict) for one in given.values()):
            raise FileError(f"{self._where(file)} must have statistics by feature, got {shown(given)}.")
        found: dict[str, dict[str, Float64]] = {}
        for feature in (self.feature(name) for name in given if name in self.feature_names):
            is_picture = feature.dtype in ("video", "image")
            num_channels = min(feature.shape, default=3)  # before or after height and width
            shape = (num_channels, 1, 1) if is_picture else feature.shape or (1,)
            found[feature.name] = {}
            for what, values in given[feature.name].items():
                expected = (1,) if what == "count" else shape
                array = np.array(None)
                with contextlib.suppress(TypeError, ValueError):
                    array = np.array(values, np.float64)
                if array.shape != expected:
                    rule = (
                        f"be numbers of the shape {expected}, as the feature in {INFO!r} has, got {shown(values)}"
                    )
                    where = f"{what!r} of {feature.name!r} in {self._where(file)}"
                    raise FileError(f"{where} must {rule}. Compute the statistics anew with LeRobot.")
                found[feature.name][what] = array
        return found


def ends_in_video_s(columns: Mapping[str, Array], video: str) -> Float64:
    """Where the next episode starts in the same video; infinity for the last, NaN where that is not known."""
    names = ("from_timestamp", "file_index", "chunk_index")
    start_s, file, chunk = (columns[f"{video}/{name}"] for name in names)
    order = np.lexsort((start_s, file, chunk))
    is_same = (np.diff(file[order]) == 0) & (np.diff(chunk[order]) == 0)
    ends_s = np.full(len(order), np.inf)
    ends_s[order[:-1][is_same]] = start_s[order[1:]][is_same]
    is_unknown = np.isnan(start_s) | (file < 0) | (chunk < 0)
    ends_s[:-1][is_unknown[1:]] = np.nan
    return ends_s


def _joined_rows(parts: Sequence[Any], order: Int64 | None) -> Any:
    """Rows of several tables in an order, None for their own; texts as bytes."""
    if isinstance(parts[0], list):
        rows = [row for part in parts for row in part]
        return rows if order is None else [rows[place] for place in order.tolist()]
    values = np.concatenate(parts)
    values = values if order is None else values[order]
    return [text.encode() for text in values.tolist()] if values.dtype.kind == "U" else values


def _joined(parts: Sequence[Mapping[str, Mapping[str, Float64]]]) -> dict[str, dict[str, Float64]]:
    """Join the statistics of single episodes, as if computed from all of their rows."""
    joined: dict[str, dict[str, Float64]] = {}
    for name in parts[0] if parts else ():
        of_parts = [part[name] for part in parts if name in part]
        if not all({*_OF_ALL} <= part.keys() for part in of_parts):
            continue
        known = {what: np.stack([part[what] for part in of_parts]) for what in _OF_ALL}
        count = known["count"].reshape(-1, *[1] * (known["mean"].ndim - 1))
        if not count.any():
            continue
        share = count / count.sum()
        mean = (share * known["mean"]).sum(axis=0)
        variance = (share * (known["std"] ** 2 + (known["mean"] - mean) ** 2)).sum(axis=0)
        joined[name] = {
            "min": known["min"].min(axis=0),
            "max": known["max"].max(axis=0),
            "mean": mean,
            "std": np.sqrt(variance),
            "count": known["count"].sum(axis=0),
        }
    return joined
