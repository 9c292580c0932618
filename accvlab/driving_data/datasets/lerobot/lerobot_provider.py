# SPDX-License-Identifier: Apache-2.0
"""A data provider for data sets of LeRobot: the rows of their episodes, with their pictures."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence, Set, Sized
from functools import cache, cached_property, partial
from typing import Any, Literal

import attrs
import numpy as np
from nvidia.dali import types

from accvlab.dali_pipeline_framework import MapStep, SampleDataGroup, checks, errors
from accvlab.dali_pipeline_framework.checks import listed
from accvlab.dali_pipeline_framework.errors import FileError, FrameworkError, SettingError, VideoError
from accvlab.dali_pipeline_framework.extension import (
    DECODED_IMAGE,
    UNPACKED_BYTES,
    BlueprintProvider,
    Colors,
    StoragePath,
    get_dali_type_for_numpy_type,
    is_gray_of_16_bits,
    nearest,
    numbers_name,
)
from accvlab.dali_pipeline_framework.providers import Columns, load_or_make
from accvlab.dali_pipeline_framework.sample_data import ENCODED_IMAGE, ImageContent
from accvlab.dali_pipeline_framework.unknown_arguments import explains_unknown_arguments
from accvlab.dali_pipeline_framework.user_warnings import warn_user
from accvlab.dali_pipeline_framework.video import DecodingStatistics

from ..driving.array_types import Array, Float64, Int32, Int64, UInt8
from ..driving.driving_fields import checked_names
from ..driving.driving_index import SETTING, cache_folder, first_column, numbers_column, states_of
from ..driving.video_frames import VideoFrames
from .lerobot_files import CUT, INFO, Episodes, Feature, LeRobotFiles

_KIND = "index of rows of LeRobot"
_TASK, _OF_TASK = "task", "task_index"
_EPSILON = 1e-8
_ROUNDING_S = 1e-6  # of the ends of episodes
_TOLERANCE_S = 1e-4  # of LeRobotDataset
_MOST_OFF = 0.01  # of the rate of rows
_NEEDED = ("timestamp", "frame_index", "episode_index", "index")
_PICTURES = ("video", "image")
_DEPTH = ImageContent(is_encoded=False, layout="HWC")
_DT = types.DALIDataType
_LEAVE_OUT = "Copy the file again, or leave the episode (`episodes`) or the camera (`fields`) out."


class LeRobotProvider(BlueprintProvider):
    """Rows of the episodes of a data set of LeRobot, v3.0 or v2.1 (extras ``arrow``, ``video``).

    The root is a folder, a ZIP file (videos stored without compression) or a URL. One sample per row, with the
    fields of ``LeRobotDataset``, by their names in ``info.json``, in the order of this file::

        observation.images.front     UINT8 (H, W, 3)     of dtype "video": RGB
        observation.images.rear      UINT8 (num_bytes,)  of dtype "image": a file; `ImageDecoder` decodes it
        observation.images.depth     UINT16 (H, W, 1)    of dtype "video", declared as a depth map: codes of depth
        observation.state            FLOAT (8,)          numbers, with their type and shape; a shape of (1,) is ()
        timestamp                    FLOAT ()            seconds since the start of the episode
        frame_index, episode_index   INT64 ()
        index, task_index            INT64 ()            number of the row in the whole data set; of the task
        task                         STRING              text of the task

    For windows in seconds (``delta_timestamps``), wrap the provider in `Windows`: numbers are then read without
    pictures, and the frames of a camera in one pass. Each episode is a sequence for samplers.

    **Index.** Tables are read once, and the wanted fields kept in ``index_cache``: all processes
    map them. They are rebuilt if the tables have changed. A frame of a video is found by its exact time: the start
    of the episode in the video, and the ``timestamp`` of the row. Each video is indexed when one of its frames is
    first needed; one that changes afterwards is an error.

    **Checks.** If all episodes are wanted, the tables are compared with the totals of ``info.json``; each wanted
    episode must have its rows and its videos (at a URL, when they are needed). A row whose frame is more than
    ``tolerance_s`` away is an error, and so is each row of an episode whose video has fewer frames than the
    episode has rows: which frames are missing cannot be known. More frames are a warning.

    **Depth.** The property ``depth_cameras`` has, for each depth map, the entries of ``info.json`` on its codes.

    Example::

        provider = LeRobotProvider("s3://drives/l2d", episodes=range(100), index_cache="/scratch/indices")
        windows = {"observation.images.front": [-0.2, 0], "action": [0, 0.1, 0.2]}
        policy = Windows(provider, windows, unit="s", edges="repeat")
    """

    @explains_unknown_arguments
    def __init__(
        self,
        root: StoragePath,
        *,
        episodes: Sequence[int] | None = None,
        fields: Sequence[str] | None = None,
        images: Literal["decoded", "encoded"] = "decoded",
        colors: Colors = "bt601",
        tolerance_s: float = _TOLERANCE_S,
        index_cache: str | os.PathLike[str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Read the tables, and open the index, which is made on first use.

        Args:
            root: Folder, ZIP file or URL of the data set.
            episodes: Numbers of the episodes that are loaded, in the order of the data set; None for all. Those
                without rows are left out.
            fields: Names of the fields of a sample; None for all. Others are neither read nor checked.
            images: ``"decoded"``, or ``"encoded"``: of each camera that is a video, a small video file,
                ``(num_bytes,)`` uint8, and next to it ``<name>_to_decode``, the number of the frame in it, for
                `VideoDecoder`. Depth maps are decoded in both.
            colors: How videos that state no color matrix are converted: by BT.601, as LeRobot writes and reads
                them; or with ``"stream"`` as players do. See `FrameConverter`.
            tolerance_s: How far the frame of a row may be from its time, in seconds. With half the time between
                rows or more, the nearest frame is taken, even if the video has fewer frames than rows: for data
                sets whose rows and videos are known to drift apart.
            index_cache: Folder where indices are kept, also of videos; None for ``$ACCVLAB_INDEX_CACHE``, or
                else ``accvlab/driving`` in ``$XDG_CACHE_HOME`` or ``~/.cache``.
            storage_options: Arguments of the remote file system, see `FileDataProvider`.

        Raises:
            FileError: A file is missing, cannot be read, or is not as it should be; or there are fewer episodes or
                rows than ``info.json`` says.
            SettingError: pyarrow is missing, or the data set lacks requested parts.
        """
        self._opened_ns = time.time_ns()
        self._files = files = LeRobotFiles(root, storage_options)
        self._storage_options, self._cache = storage_options, cache_folder(index_cache)
        self._features = _chosen_features(files, fields)
        self._has_task = fields is None or _TASK in fields
        self._is_encoded = checks.choice(images, "images", ("decoded", "encoded")) == "encoded"
        self._colors: Colors = checks.choice(colors, "colors", ("stream", "bt601", "dali"))
        self._tolerance_s = checks.number(tolerance_s, "tolerance_s", above=0)
        self._has_warned, self._of_other_size = False, set[str]()
        wanted = _numbers_of_episodes(episodes)
        found = files.episodes([name for name in self._features if self._is_video(name)], wanted)
        stored = _stored_features(files, self._features, has_task=self._has_task)
        key = [_KIND, files.storage.root, None if wanted is None else found.number.tolist(), [*stored]]
        states = states_of(files.sources([*dict.fromkeys(found.table)], has_tasks=self._has_task))
        self._folder = load_or_make(
            self._cache,
            [*key, states],
            lambda folder: str(Columns.open(folder, _KIND).folder),
            lambda: _made(files, found, stored, is_whole=wanted is None, has_task=self._has_task),
            setting=SETTING,
        )
        self._compare_times()
        self._blueprint = self._make_blueprint()

    def _compare_times(self) -> None:
        """Refuse times of rows that do not ascend; warn where they are not those of ``fps``, if they are used."""
        is_used = "timestamp" in self._features or any(map(self._is_video, self._features))
        times_s, first = np.asarray(self._column("timestamp"), np.float64), self._columns.arrays["first"]
        steps_s, is_within = np.diff(times_s), np.ones(len(times_s) - 1, bool)
        is_within[first[1:-1] - 1] = False
        if not is_used or not is_within.any():
            return
        wrong = np.flatnonzero(~(steps_s > 0) & is_within)
        if len(wrong):
            before_s, after_s = times_s[wrong[0]], times_s[wrong[0] + 1]
            raise FileError(
                f"'timestamp' of the rows of an episode must ascend, got {before_s:g} and then {after_s:g} "
                f"seconds ({self._place(wrong[0] + 1)}). {CUT}."
            )
        usual_s = float(np.median(steps_s[is_within]))
        if abs(usual_s * self.fps - 1) > _MOST_OFF:
            warn_user(
                f"Rows are usually {usual_s:.4f} s apart by their 'timestamp', {1 / self.fps:.4f} s by the fps "
                f"{self.fps:g} of {INFO!r}, by which windows in seconds are found: correct it."
            )

    def __getstate__(self) -> dict[str, Any]:
        """Settings and paths, not what is made of them in each process."""
        members = [member for cls in type(self).__mro__ for member in vars(cls).items()]
        made = {name for name, member in members if isinstance(member, cached_property)}
        return {name: value for name, value in self.__dict__.items() if name not in made}

    def _make_blueprint(self) -> SampleDataGroup:
        sample = SampleDataGroup()
        for name, feature in self._features.items():
            if feature.depth is not None:
                sample.add_data_field(name, _DT.UINT16, ndim=3, content=_DEPTH)
            elif name in self._encoded.values():
                content = attrs.evolve(ENCODED_IMAGE, codecs=self._kinds[name])
                sample.add_data_field(name, _DT.UINT8, ndim=1, content=content)
                sample.add_data_field(numbers_name(name), _DT.INT32, ndim=0)
            elif feature.dtype in _PICTURES:
                content = DECODED_IMAGE if self._is_video(name) else ENCODED_IMAGE
                sample.add_data_field(name, _DT.UINT8, ndim=1 if content.is_encoded else 3, content=content)
            elif feature.is_number:
                dtype = get_dali_type_for_numpy_type(np.dtype(feature.dtype))
                sample.add_data_field(name, dtype, ndim=len(feature.shape))
            else:
                sample.add_data_field(name, _DT.STRING)
        if self._has_task:
            sample.add_data_field(_TASK, _DT.STRING)
        return sample

    # --- what there is ------------------------------------------------------------------------------------

    @cached_property
    def _columns(self) -> Columns:
        return Columns.open(self._folder, _KIND)

    @cached_property
    def _place_of(self) -> dict[str, int]:
        """Number of each feature in the index."""
        return {name: place for place, name in enumerate(self._columns.notes["features"])}

    @cached_property
    def _video_frames(self) -> VideoFrames:
        folder, opened_ns = self._cache / "videos", self._opened_ns
        return VideoFrames(folder, self._storage_options, self._colors, unchanged_since_ns=opened_ns)

    @cached_property
    def _kinds(self) -> dict[str, tuple[str, ...]]:
        """Kinds of the videos of each camera: of the first one that can be read."""
        videos, arrays, kinds = self._columns.notes["videos"], self._columns.arrays, {}
        for name in self._encoded.values():
            numbers = dict.fromkeys(arrays[f"video.{self._place_of[name]}"].tolist())
            kinds[name] = self._video_frames.kinds([[self._files.storage.path(videos[each]) for each in numbers]])
        return kinds

    def _column(self, name: str) -> Array:
        return self._columns.arrays[f"rows.{self._place_of[name]}"]

    @property
    def fps(self) -> float:
        """Rows per second."""
        return float(self._columns.notes["fps"])

    @property
    def field_names(self) -> tuple[str, ...]:
        """Names of the fields."""
        return tuple(map(str, self._blueprint.format.names))

    @property
    def camera_names(self) -> tuple[str, ...]:
        """Names of the fields that are pictures, with `depth_cameras`."""
        return tuple(name for name, feature in self._features.items() if feature.dtype in _PICTURES)

    @property
    def depth_cameras(self) -> Mapping[str, Mapping[str, Any]]:
        """Names of the fields that are depth maps, with what ``info.json`` says of each, such as ``depth_min``."""
        return {name: one.depth for name, one in self._features.items() if one.depth is not None}

    @cached_property
    def tasks(self) -> Mapping[int, str]:
        """Texts of all tasks, by ``task_index``."""
        if not self._has_task:
            return self._files.tasks
        return {int(number): text for number, text in self._columns.notes["tasks"]}

    @cached_property
    def statistics(self) -> Mapping[str, Mapping[str, Float64]]:
        """Statistics of the whole data set by feature: ``mean``, ``std``, ``min``, ``max``, ``count``, ...

        Those of pictures are ``(C, 1, 1)``, of values in [0, 1]. Of v2.1, those of all episodes are joined.

        Raises:
            FileError: They cannot be read, or do not fit the features.
        """
        return self._files.statistics

    def normalizer(self, field: str, by: Literal["mean_std", "min_max"] = "mean_std") -> MapStep:
        """Make a step that normalizes numbers by `statistics`, as the processors of LeRobot do, to float32.

        Args:
            field: Name of a field of numbers, with or without windows.
            by: ``"mean_std"`` for ``(x - mean) / (std + 1e-8)``, ``"min_max"`` for [-1, 1] from minimum to
                maximum; columns that do not change become 0.

        Raises:
            SettingError: It is no field of numbers, or has no such statistics.
            FileError: The statistics cannot be read, or do not fit the features.
        """
        known = [name for name, feature in self._features.items() if feature.is_number]
        if field not in known:
            there = f"{checks.did_you_mean(field, known)} There are: {listed(known)}.".strip()
            raise checks.setting_error("field", "a field of numbers", field, there)
        of_field = self.statistics.get(field, {})
        names = checks.choice(by, "by", ("mean_std", "min_max")).split("_")
        missing = [name for name in names if name not in of_field]
        if missing:
            there = f"There are those of: {listed(self.statistics)}."
            raise SettingError(f"There are no statistics {listed(missing)} of {field!r}. {there}")
        low, high = (of_field[name] for name in names)
        center, scale = (low, high + _EPSILON) if by == "mean_std" else ((low + high) / 2, (high - low) / 2)
        change = partial(_normalized, center, np.where(scale > 0, scale, 1))
        return MapStep(change, input_names=field, output_types={field: _DT.FLOAT})

    @property
    def episode_numbers(self) -> tuple[int, ...]:
        """Number of each episode, ``episode_index``."""
        return tuple(self._columns.arrays["number"].tolist())

    @property
    def sequence_lengths(self) -> Int64:
        """Number of samples of each episode, ``(E,)`` int64, for samplers of sequences."""
        return np.diff(self._columns.arrays["first"])

    @property
    def timestamps_s(self) -> Float64:
        """Time of each sample in its episode, ``(N,)`` float64, seconds: ``frame_index / fps``."""
        return np.asarray(self._column("frame_index") / self.fps, np.float64)

    def frame_times_s(self, path: Any = ()) -> Float64 | None:
        """Get `timestamps_s`, which are those of all fields."""
        return None if path else self.timestamps_s

    def get_number_of_samples(self) -> int:
        """Get the number of rows."""
        return int(self._columns.arrays["first"][-1])

    def _episode_of(self, rows: Int64) -> Int64:
        first: Int64 = self._columns.arrays["first"]
        return first.searchsorted(rows, side="right") - 1

    def describe_sample(self, sample_index: int) -> str:
        """Episode, frame, time, and the videos of a sample."""
        row = checks.index_in(sample_index, "sample_index", self.get_number_of_samples())
        episode = int(self._episode_of(np.array(row)))
        names = [self._video_name(name, episode) for name in self._features if self._is_video(name)]
        return self._place(row) + f", of {listed(names)}" * bool(names)

    def _place(self, row: int) -> str:
        """Episode, frame and time of a row."""
        arrays, episode = self._columns.arrays, int(self._episode_of(np.array(row)))
        frame = row - int(arrays["first"][episode])
        return f"episode {arrays['number'][episode]}, frame {frame}, at {frame / self.fps:.3f} s"

    def __repr__(self) -> str:
        """Summarise what was found."""
        count, root = len(self.episode_numbers), self._files.storage.root
        return f"LeRobotProvider({self.get_number_of_samples()} rows in {count} episode(s) of {root!r})"

    # --- samples ------------------------------------------------------------------------------------------

    def get_data(self, sample_index: int) -> SampleDataGroup:
        """Load a row.

        Raises:
            SettingError: There is no such row; the error is also an IndexError.
            FileError: A file is missing or cannot be read.
            VideoError: A frame cannot be decoded, or its video was changed.
        """
        loaded = self.load_fields({(name,): [sample_index] for name in self.field_names})
        sample = self.new_sample()
        sample.set_data([np.asarray(column[0]) for column in loaded.values()])
        return sample

    def load_fields(self, wanted: Mapping[Any, Sequence[int]]) -> Mapping[Any, Sequence[Any]]:
        """Load some fields of some rows: numbers without pictures, the frames of a camera in one pass."""

        @cache  # for the file and the number of its frame
        def cut(name: str, row: int) -> tuple[UInt8, Int32]:
            return self._cut(name, np.array([row]))

        columns: dict[Any, Sequence[Any]] = {}
        for path, indices in wanted.items():
            name, rows = path[0], self._rows(indices)
            camera = self._encoded.get(name, name)
            if camera in self._encoded.values():
                clips = [cut(camera, row) for row in rows.tolist()]
                columns[path] = [file if name == camera else found[0] for file, found in clips]
            else:
                columns[path] = self._values(name, rows)
        return columns

    def _rows(self, indices: Sequence[int]) -> Int64:
        num, rows = self.get_number_of_samples(), np.asarray(indices)
        if rows.dtype.kind not in "iu" or rows.min(initial=0) < 0 or rows.max(initial=0) >= num:
            rows = np.array([checks.index_in(each, "sample_index", num) for each in indices], np.int64)
        return rows

    @property
    def _encoded(self) -> dict[str, str]:
        """Cameras whose videos are delivered encoded, by the field of the numbers of frames."""
        cameras = [name for name in self.camera_names if self._is_encoded and self._is_video(name)]
        return {numbers_name(name): name for name in cameras if self._features[name].depth is None}

    def load_clips(self, path: Any, samples: Int64) -> Sequence[tuple[UInt8, Int32]] | None:
        """Cut frames of a camera out, each row, which is of one episode, as one file."""
        if path[0] not in self._encoded.values():
            return None
        return [self._cut(path[0], self._rows(row)) for row in samples]

    def _cut(self, name: str, rows: Int64) -> tuple[UInt8, Int32]:
        """Cut frames of one episode out of the video of a camera."""
        found: tuple[UInt8, Int32] = self._in_video(
            name, rows, lambda path, numbers: self._video_frames.encoded_frames(path, numbers, self._kinds[name])
        )
        return found

    def _values(self, name: str, rows: Int64) -> Any:
        if name == _TASK and self._has_task:
            numbers = self._column(_OF_TASK)[rows].tolist()
            return [np.frombuffer(self.tasks[number].encode(), np.uint8) for number in numbers]
        if self._is_video(name):
            return self._frames(name, rows)
        column: Array = self._column(name)
        if self._features[name].is_number:
            return column[rows]
        ends = self._columns.arrays[f"ends.{self._place_of[name]}"]
        return [np.array(column[ends[row] : ends[row + 1]]) for row in rows.tolist()]

    def _is_video(self, name: str) -> bool:
        return self._features[name].dtype == "video"

    def _video_name(self, name: str, episode: int) -> str:
        column, notes = self._columns.arrays[f"video.{self._place_of[name]}"], self._columns.notes
        return str(notes["videos"][int(column[episode])])

    def _frames(self, name: str, rows: Int64) -> Any:
        """Decode the frames of a camera, one pass for each video."""
        videos = self._columns.arrays[f"video.{self._place_of[name]}"][self._episode_of(rows)]
        read = partial(self._video_frames.frames, as_codes=self._features[name].depth is not None)
        frames: list[Any] = [None] * len(rows)
        for video in np.unique(videos).tolist():
            of_video = np.flatnonzero(videos == video)
            decoded = self._in_video(name, rows[of_video], read)
            if len(of_video) == len(rows):
                return decoded
            for row, frame in zip(of_video.tolist(), decoded, strict=True):
                frames[row] = frame
        return frames

    def _in_video(self, name: str, rows: Int64, read: Callable[[str, list[int]], Any]) -> Any:
        """Read the frames of rows of one video of a camera, by its path and their numbers in it."""
        episodes = self._episode_of(rows)
        try:
            path = self._files.storage.path(self._video_name(name, int(episodes[0])))
            return read(path, self._numbers(name, path, rows, episodes).tolist())
        except (FileError, VideoError) as error:
            raise self._with_place(error, name, int(rows[0])) from error

    def _with_place(self, error: FileError | VideoError, name: str, row: int) -> FrameworkError:
        """The error with the camera, the episode, and what would do; it names the file and the time in it.

        The row is that of the error, where it has one; else the given one, the first of those that were wanted.
        """
        known = getattr(error, "sample_index_in_data_set", None)
        kind = VideoError if isinstance(error, VideoError) else FileError
        also = [cls for cls in type(error).__mro__ if cls.__module__ == "builtins" and cls is not Exception]
        text = f"{name!r} of {self._place(row if known is None else known)}: {error}"
        placed = errors.error_that_is_also(
            kind, also, f"{text}{'' if text.endswith(('.', '?')) else '.'} {_LEAVE_OUT}"
        )
        placed.sample_index_in_data_set = known  # type: ignore[attr-defined]
        return placed

    def _numbers(self, name: str, path: str, rows: Int64, episodes: Int64) -> Int64:
        """Find the frames of rows in their video, by time."""
        arrays, place = self._columns.arrays, self._place_of[name]
        start_s, end_s = (arrays[f"{what}.{place}"][episodes] for what in ("start", "end"))
        stated_s = self._column("timestamp")[rows]
        wanted_s = start_s + stated_s.astype(np.float64)
        times_s = self._video_frames.times_s(path)
        self._compare_size(name, path)
        self._compare_counts(path, times_s, rows, episodes, start_s, end_s)
        found = nearest(times_s, wanted_s, np.inf)
        off_s = np.abs(times_s[found] - wanted_s)
        # What is stored of a time is rounded to its type. The frame at the end of an episode is the first one of
        # the next.
        is_near = off_s <= self._tolerance_s + np.spacing(np.abs(stated_s))
        wrong = np.flatnonzero(~is_near | (times_s[found] > end_s - _ROUNDING_S))
        if len(wrong):
            first = wrong[0]
            raise _of_row(
                rows[first],
                f"there is no frame at {wanted_s[first]:.3f} s of the video {path!r}, which has {len(times_s)} "
                f"frames from {times_s[0]:.3f} to {times_s[-1]:.3f} s, and there the episode from "
                f"{start_s[first]:.3f} to {end_s[first]:.3f} s: the nearest, frame {found[first]}, is at "
                f"{times_s[found[first]]:.4f} s, {off_s[first]:.4f} s away, and `tolerance_s` is "
                f"{self._tolerance_s:g}.",
            )
        return found

    def _compare_size(self, name: str, path: str) -> None:
        """Warn once of a camera whose frames have another size than the data set says."""
        shape, index = self._features[name].shape, self._video_frames.index(path)
        stated = shape[:2] if len(shape) != 3 or shape[2] <= 4 else shape[1:]  # channels may be first
        if stated != (index.height, index.width) and name not in self._of_other_size:
            self._of_other_size.add(name)
            warn_user(
                f"The feature {name!r} has the shape {shape} in {INFO!r}, but frames of {path!r} are "
                f"{index.height} x {index.width} pixels (height, width), and delivered as they are."
            )

    def _compare_counts(
        self, path: str, times_s: Float64, rows: Int64, episodes: Int64, start_s: Float64, end_s: Float64
    ) -> None:
        """Compare how many rows and how many frames each episode has: where some are missing, all may be wrong."""
        half_s = 0.5 / self.fps
        slack_s = min(self._tolerance_s, half_s / 2)
        num_rows = self.sequence_lengths[episodes]
        num_frames = times_s.searchsorted(end_s - slack_s) - times_s.searchsorted(start_s - slack_s)
        # Up to the end of the video, frames of other episodes are counted as well.
        lacks, has_more = num_frames < num_rows, (num_frames > num_rows) & ~np.isnan(end_s)
        wrong = np.flatnonzero(np.isfinite(start_s) & (lacks | has_more))
        if not len(wrong):
            return
        first = wrong[lacks[wrong].argmax()]
        text = (
            f"the episode has {num_rows[first]} rows, and the video {path!r} has {num_frames[first]} frames for "
            f"them, from {start_s[first]:.3f} s on"
        )
        if lacks[first] and self._tolerance_s < half_s:
            why = "frames are missing, and which rows they are of is not known"
            raise _of_row(rows[first], f"{text}: {why}. A `tolerance_s` of {half_s:.3g} takes the nearest ones.")
        if not self._has_warned:
            self._has_warned = True
            warn_user(
                f"Rows and frames are not as many in episode {self.episode_numbers[episodes[first]]}: {text}. "
                f"Frames are taken by their times. (Other episodes are not named.)"
            )

    @property
    def statistics_of_decoding(self) -> DecodingStatistics:
        """How many frames this object has decoded in this process, and for how many that were requested."""
        return self._video_frames.statistics

    def close(self) -> None:
        """Close the decoders of this process; they are opened again when they are needed."""
        self._video_frames.close()


def _normalized(center: Float64, scale: Float64, values: Array) -> Array:
    """Normalize values ``(..., *shape)``: float32; of scalars, center and scale are ``(1,)``."""
    if not values.ndim:
        center, scale = center[0], scale[0]
    return np.asarray((values - center) / scale, np.float32)


def _of_row(row: int, message: str) -> FileError:
    error = FileError(message)
    error.sample_index_in_data_set = int(row)  # type: ignore[attr-defined]
    return error


def _stored_features(files: LeRobotFiles, chosen: Mapping[str, Feature], *, has_task: bool) -> dict[str, Feature]:
    """The features that an index has: those that are chosen, and those by which rows are found."""
    known, stored = files.feature_names, dict[str, Feature]()
    for name in [*_NEEDED, *[_OF_TASK] * has_task]:
        feature = files.feature(name) if name in known else None
        if feature is None or not feature.is_number or feature.shape:
            rule = "must be a feature of one number in each row"
            raise FileError(f"{name!r} {rule} in {files.storage.path(INFO)!r}. {CUT}.")
        stored[name] = feature
    return {**stored, **chosen}


def _chosen_features(files: LeRobotFiles, fields: Sequence[str] | None) -> dict[str, Feature]:
    known = files.feature_names
    names = [*known, _TASK]
    fields = checked_names([*fields] if isinstance(fields, Set | Mapping) else fields, "fields")
    wrong = [name for name in fields or () if name not in names]
    if wrong or (fields is not None and not len(fields)):
        got = f"{checks.shown(wrong[0])}.{checks.did_you_mean(wrong[0], names)}" if wrong else "none."
        raise SettingError(f"`fields` must be fields of the data set, got {got} There are: {listed(names)}.")
    # As in `LeRobotDataset`, the text of the task takes the place of a feature of its name.
    own = [name for name in known if name != _TASK]
    chosen = {name: files.feature(name) for name in own if fields is None or name in fields}
    odd = [
        f"{one.name!r} of dtype {one.dtype!r}" + " is a depth map" * (one.depth is not None)
        for one in chosen.values()
        if one.dtype != "video" and (one.kind is None or one.depth is not None)
    ]
    if odd:
        kinds = "numbers, or of dtype 'video', 'image' or 'string', depth maps of dtype 'video'"
        rule = f"Fields must be {kinds}, but these are not:\n{checks.bullets(odd)}"
        raise SettingError(f"{rule}\nName the others by `fields`.")
    return chosen


def _numbers_of_episodes(given: Sequence[int] | None) -> list[int] | None:
    if given is None:
        return None
    found = checks.elements(given) if isinstance(given, Sized) else None
    if not found:
        rule, advice = "numbers of episodes, or None for all", "Give them in one list, such as [0, 1], or a range."
        raise checks.setting_error("episodes", rule, given, advice)
    return [checks.whole_number(each, "episodes", at_least=0) for each in found]


def _made(
    files: LeRobotFiles, found: Episodes, stored: Mapping[str, Feature], *, is_whole: bool, has_task: bool
) -> Columns:
    """Read the rows of episodes; whole tables of rows must be of these where all are wanted."""
    rows = files.rows(found, [*stored.values()], is_whole=is_whole)
    if has_task:
        lacking = np.setdiff1d(rows[_OF_TASK], [*files.tasks])
        if len(lacking):
            where = f"the table of tasks of {files.storage.root!r}"
            raise FileError(f"There is no task {lacking[0]:.0f} in {where}. {CUT}.")
    videos = [*dict.fromkeys(name for names in found.video.values() for name in names)]
    arrays: dict[str, Array] = {"number": found.number, "first": first_column(found.length)}
    for place, (name, feature) in enumerate(stored.items()):
        if name in found.video:
            arrays[f"video.{place}"] = numbers_column(found.video[name], videos)
            arrays[f"start.{place}"] = found.start_s[name]
            arrays[f"end.{place}"] = found.end_s[name]
        elif feature.is_number:
            arrays[f"rows.{place}"] = rows[name]
        else:
            contents: list[bytes] = rows[name]
            UNPACKED_BYTES.require(sum(map(len, contents)), f"the values of {name!r} have {{}} bytes")
            if feature.dtype == "image":
                _refuse_depth(name, contents)
            arrays[f"rows.{place}"] = np.frombuffer(b"".join(contents) or b"\0", np.uint8)
            arrays[f"ends.{place}"] = first_column([*map(len, contents)])
    tasks = sorted(files.tasks.items()) if has_task else []
    notes = {"features": [*stored], "fps": files.info["fps"], "tasks": tasks, "videos": videos}
    return Columns(_KIND, arrays, notes)


def _refuse_depth(name: str, contents: Sequence[bytes]) -> None:
    if any(is_gray_of_16_bits(np.frombuffer(each, np.uint8)) for each in contents):
        what = f"The images of {name!r} are gray of 16 bits, of which `ImageDecoder` would make 8"
        raise FileError(f"{what}. Name the other fields by `fields`.")
