# SPDX-License-Identifier: Apache-2.0
"""A data provider for data sets of LeRobot: the rows of their episodes, with their pictures."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence, Set, Sized
from functools import cache, cached_property
from typing import Any, Literal

import attrs
import numpy as np
from nvidia.dali import types

from accvlab.dali_pipeline_framework import MapStep, SampleDataGroup
from accvlab.dali_pipeline_framework.checks import (
    bullets,
    choice,
    did_you_mean,
    elements,
    index_in,
    listed,
    number,
    setting_error,
    shown,
    whole_number,
)
from accvlab.dali_pipeline_framework.errors import (
    FileError,
    FrameworkError,
    SettingError,
    VideoError,
    error_that_is_also,
)
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
from .lerobot_files import CUT, Episodes, Feature, LeRobotFiles

_KIND = "index of rows of LeRobot"
_TASK = "task"
_EPSILON = 1e-8
_ROUNDING_S = 1e-6  # of the ends of episodes
_TOLERANCE_S = 1e-4  # of LeRobotDataset
_MOST_OFF = 0.01  # of the rate of rows
_NEEDED = ("timestamp", "frame_index", "episode_index", "index")
_OF_TASK = "task_index"
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

    **Depth.** ``depth_cameras`` has the settings of the codes of depth maps, such as their limits.

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
        self._is_encoded = choice(images, "images", ("decoded", "encoded")) == "encoded"
        self._colors: Colors = choice(colors, "colors", ("stream", "bt601", "dali"))
        self._tolerance_s = number(tolerance_s, "tolerance_s", above=0)
        self._has_warned, self._of_other_size = False, set[str]()
        found = files.episodes([name for name in self._features if self._is_video(name)])
        places = _chosen_episodes(found, episodes)
        if episodes is None:
            files.require_whole(found)
        files.require_ranges(found, places)
        chosen = _with_rows(found, places)
        files.require_parts(found, chosen)
        files.require_videos(found, chosen)
        stored = _stored_features(files, self._features, has_task=self._has_task)
        tables = [*dict.fromkeys(found.table[each] for each in chosen.tolist())]
        key: list[Any] = [_KIND, files.storage.root, None if episodes is None else places.tolist(), [*stored]]
        states = states_of(files.sources(tables, has_tasks=self._has_task))
        self._folder = load_or_make(
            self._cache,
            [*key, states],
            lambda folder: str(Columns.open(folder, _KIND).folder),
            lambda: _made(files, found, places, stored, is_whole=episodes is None, has_task=self._has_task),
            setting=SETTING,
        )
        self._compare_times()
        self._blueprint = self._make_blueprint()

    def _compare_times(self) -> None:
        """Refuse times of rows that do not ascend; warn where they are not those of ``fps``, if they are used."""
        is_used = "timestamp" in self._features or any(map(self._is_video, self._features))
        times_s, first = np.asarray(self._column("timestamp"), np.float64), self._columns.arrays["first"]
        if not is_used or not len(times_s):
            return
        episode = np.arange(len(first) - 1).repeat(np.diff(first))
        steps_s, is_within = np.diff(times_s), episode[1:] == episode[:-1]
        wrong = np.flatnonzero(~(steps_s > 0) & is_within) + 1
        if len(wrong):
            row = int(wrong[0])
            place = self.describe_sample(row).partition(", of ")[0]
            raise FileError(
                f"'timestamp' of the rows of an episode must ascend, got {times_s[row - 1]:g} and then "
                f"{times_s[row]:g} seconds ({place}). {CUT}."
            )
        usual_s = float(np.median(steps_s[is_within])) if is_within.any() else 1 / self.fps
        if abs(usual_s * self.fps - 1) > _MOST_OFF:
            warn_user(
                f"Rows are usually {usual_s:.4f} s apart by their 'timestamp', {1 / self.fps:.4f} s by the fps "
                f"{self.fps:g} of 'meta/info.json'. Frames of videos are found by the one, windows in seconds by "
                f"the other: correct 'fps'."
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
            elif feature.dtype in ("video", "image"):
                is_video = feature.dtype == "video"
                content = DECODED_IMAGE if is_video and not self._is_encoded else ENCODED_IMAGE
                if is_video and self._is_encoded:
                    content = attrs.evolve(content, codecs=self._kinds[name])
                sample.add_data_field(name, _DT.UINT8, ndim=1 if content.is_encoded else 3, content=content)
                if is_video and self._is_encoded:
                    sample.add_data_field(numbers_name(name), _DT.INT32, ndim=0)
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
        return tuple(name for name, feature in self._features.items() if feature.dtype in ("video", "image"))

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
            there = f"{did_you_mean(field, known)} There are: {listed(known)}."
            raise SettingError(f"`field` must be a field of numbers, got {shown(field)}.{there}")
        of_field = self.statistics.get(field, {})
        names = choice(by, "by", ("mean_std", "min_max")).split("_")
        missing = [name for name in names if name not in of_field]
        if missing:
            there = f"There are those of: {listed(self.statistics) or 'none'}."
            raise SettingError(f"There are no statistics {listed(missing)} of {field!r}. {there}")
        low, high = (of_field[name] for name in names)
        center, scale = (low, high + _EPSILON) if by == "mean_std" else ((low + high) / 2, (high - low) / 2)
        change = Normalization(center, np.where(scale > 0, scale, 1))
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
        row = index_in(sample_index, "sample_index", self.get_number_of_samples())
        episode, arrays = int(self._episode_of(np.array(row))), self._columns.arrays
        names = [self._video_name(name, episode) for name in self.camera_names if self._is_video(name)]
        frame = row - int(arrays["first"][episode])
        text = f"episode {arrays['number'][episode]}, frame {frame}, at {frame / self.fps:.3f} s"
        return text + f", of {listed(names)}" * bool(names)

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
        num = self.get_number_of_samples()

        @cache  # for the file and the number of its frame
        def cut(name: str, row: int) -> tuple[UInt8, Int32]:
            return self._cut(name, np.array([row]))

        columns: dict[Any, Sequence[Any]] = {}
        for path, indices in wanted.items():
            name = path[0]
            rows = np.asarray(indices)
            if rows.dtype.kind not in "iu" or rows.min(initial=0) < 0 or rows.max(initial=0) >= num:
                rows = np.array([index_in(each, "sample_index", num) for each in indices], np.int64)
            camera = self._encoded.get(name, name)
            if camera in self._encoded.values():
                clips = [cut(camera, row) for row in rows.tolist()]
                columns[path] = [file if name == camera else found[0] for file, found in clips]
            else:
                columns[path] = self._values(name, rows)
        return columns

    @property
    def _encoded(self) -> dict[str, str]:
        """Cameras whose videos are delivered encoded, by the field of the numbers of frames."""
        cameras = [name for name in self.camera_names if self._is_encoded and self._is_video(name)]
        return {numbers_name(name): name for name in cameras if self._features[name].depth is None}

    def load_clips(self, path: Any, samples: Int64) -> Sequence[tuple[UInt8, Int32]] | None:
        """Cut frames of a camera out, each row, which is of one episode, as one file."""
        if path[0] not in self._encoded.values():
            return None
        num = self.get_number_of_samples()
        return [
            self._cut(path[0], np.array([index_in(each, "sample_index", num) for each in row]))
            for row in samples.tolist()
        ]

    def _cut(self, name: str, rows: Int64) -> tuple[UInt8, Int32]:
        """Cut frames of one episode out of the video of a camera."""
        episodes = self._episode_of(rows)
        path = self._files.storage.path(self._video_name(name, int(episodes[0])))
        try:
            numbers = self._numbers(name, path, rows, episodes)
            return self._video_frames.encoded_frames(path, numbers.tolist(), self._kinds[name])
        except (FileError, VideoError) as error:
            raise self._with_place(error, name, int(rows[0])) from error

    def _values(self, name: str, rows: Int64) -> Any:
        if name == _TASK and self._has_task:
            return [self._task_text(number) for number in self._column("task_index")[rows].tolist()]
        feature = self._features[name]
        if feature.dtype == "video":
            return self._frames(name, rows)
        if feature.is_number:
            values: Array = self._column(name)[rows]
            return values
        ends = self._columns.arrays[f"ends.{self._place_of[name]}"]
        return [np.array(self._column(name)[ends[row] : ends[row + 1]]) for row in rows.tolist()]

    def _task_text(self, number: int) -> Array:
        return np.frombuffer(self.tasks[number].encode(), np.uint8)

    def _is_video(self, name: str) -> bool:
        return self._features[name].dtype == "video"

    def _video_name(self, name: str, episode: int) -> str:
        column, notes = self._columns.arrays[f"video.{self._place_of[name]}"], self._columns.notes
        return str(notes["videos"][int(column[episode])])

    def _frames(self, name: str, rows: Int64) -> Any:
        """Decode the frames of a camera, one pass for each video."""
        episodes, place = self._episode_of(rows), self._place_of[name]
        videos = self._columns.arrays[f"video.{place}"][episodes]
        frames: list[Any] = [None] * len(rows)
        for video in np.unique(videos).tolist():
            of_video = np.flatnonzero(videos == video)
            file = str(self._columns.notes["videos"][video])
            try:
                path = self._files.storage.path(file)
                numbers = self._numbers(name, path, rows[of_video], episodes[of_video])
                is_depth = self._features[name].depth is not None
                decoded = self._video_frames.frames(path, numbers, as_codes=is_depth)
            except (FileError, VideoError) as error:
                raise self._with_place(error, name, int(rows[of_video[0]])) from error
            if len(of_video) == len(rows):
                return decoded
            for row, frame in zip(of_video.tolist(), decoded, strict=True):
                frames[row] = frame
        return frames

    def _with_place(self, error: FileError | VideoError, name: str, row: int) -> FrameworkError:
        """The error with the camera, the episode, and what would do; it names the file and the time in it.

        The row is that of the error, where it has one; else the given one, the first of those that were wanted.
        """
        known = getattr(error, "sample_index_in_data_set", None)
        row = row if known is None else known
        kind = VideoError if isinstance(error, VideoError) else FileError
        also = [cls for cls in type(error).__mro__ if cls.__module__ == "builtins" and cls is not Exception]
        place = f"{name!r} of {self.describe_sample(row).partition(', of ')[0]}"
        end = "" if str(error).endswith((".", "?")) else "."
        placed = error_that_is_also(kind, also, f"{place}: {error}{end} {_LEAVE_OUT}")
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
        # What is stored of a time is rounded to its type. The frame at the end of an episode is the first one of
        # the next.
        is_near = np.abs(times_s[found] - wanted_s) <= self._tolerance_s + np.spacing(np.abs(stated_s))
        wrong = np.flatnonzero(~is_near | (times_s[found] > end_s - _ROUNDING_S))
        if len(wrong):
            first = wrong[0]
            following = f", and the next one at {end_s[first]:.3f} s" * bool(np.isfinite(end_s[first]))
            nearest_s = times_s[found[first]]
            off_s = abs(nearest_s - wanted_s[first])
            of_nearest = (
                f": the nearest, frame {found[first]}, is at {nearest_s:.4f} s, {off_s:.4f} s away, and "
                f"`tolerance_s` is {self._tolerance_s:g}"
            )
            raise _of_row(
                rows[first],
                f"there is no frame at {wanted_s[first]:.3f} s of the video {path!r}, which has {len(times_s)} "
                f"frames from {times_s[0]:.3f} to {times_s[-1]:.3f} s, where the episode begins at "
                f"{start_s[first]:.3f} s{following}{of_nearest * bool(found[first] >= 0 and not is_near[first])}.",
            )
        return found

    def _compare_size(self, name: str, path: str) -> None:
        """Warn once of a camera whose frames have another size than the data set says."""
        shape, index = self._features[name].shape, self._video_frames.index(path)
        stated = shape[:2] if len(shape) != 3 or shape[2] <= 4 else shape[1:]  # channels may be first
        if stated != (index.height, index.width) and name not in self._of_other_size:
            self._of_other_size.add(name)
            warn_user(
                f"The feature {name!r} has the shape {shape} in 'meta/info.json', but frames of {path!r} are "
                f"{index.height} x {index.width} pixels (height, width). They are delivered as they are: is a "
                f"calibration that of these?"
            )

    def _compare_counts(
        self, path: str, times_s: Float64, rows: Int64, episodes: Int64, start_s: Float64, end_s: Float64
    ) -> None:
        """Compare how many rows and how many frames each episode has: where some are missing, all may be wrong."""
        period_s = 1 / self.fps
        slack_s = min(self._tolerance_s, period_s / 4)
        first_of_episode = self._columns.arrays["first"]
        num_rows = first_of_episode[episodes + 1] - first_of_episode[episodes]
        num_frames = times_s.searchsorted(end_s - slack_s) - times_s.searchsorted(start_s - slack_s)
        takes_nearest = self._tolerance_s >= period_s / 2
        may_have_more = np.isnan(end_s)  # up to the end of the video, frames of other episodes are counted as well
        is_wrong = (num_frames < num_rows) | ((num_frames > num_rows) & ~may_have_more)
        wrong = np.flatnonzero(np.isfinite(start_s) & is_wrong)
        if not len(wrong) or (takes_nearest and self._has_warned):
            return
        lacking = wrong[num_frames[wrong] < num_rows[wrong]]
        first = int(lacking[0] if len(lacking) else wrong[0])
        text = (
            f"the episode has {num_rows[first]} rows, and the video {path!r} has {num_frames[first]} frames for "
            f"them, from {start_s[first]:.3f} s on"
        )
        if len(lacking) and not takes_nearest:
            advice = f"A `tolerance_s` of {period_s / 2:.3g} takes the nearest ones"
            why = f"frames are missing, and which rows they are of is not known. {advice}"
            raise _of_row(rows[first], f"{text}: {why}.")
        if not self._has_warned:
            self._has_warned = True
            number = self.episode_numbers[int(episodes[first])]
            warn_user(
                f"Rows and frames are not as many in episode {number}: {text}. Are they of one recording? Frames "
                f"are taken by their times. (Other episodes are not named.)"
            )

    @property
    def statistics_of_decoding(self) -> DecodingStatistics:
        """How many frames this object has decoded in this process, and for how many that were requested."""
        return self._video_frames.statistics

    def close(self) -> None:
        """Close the decoders of this process; they are opened again when they are needed."""
        self._video_frames.close()


@attrs.frozen(eq=False)
class Normalization:
    """What normalizes arrays, ``(..., *shape)``.

    Attributes:
        center: What becomes 0, ``shape``; of scalars ``(1,)``.
        scale: What becomes 1 above that.
    """

    center: Float64
    scale: Float64

    def __call__(self, values: Array) -> Array:
        """Normalize values: float32 of the same shape."""
        center, scale = (each if values.ndim else each[0] for each in (self.center, self.scale))
        return ((values - center) / scale).astype(np.float32)


def _of_row(row: int, message: str) -> FileError:
    error = FileError(message)
    error.sample_index_in_data_set = int(row)  # type: ignore[attr-defined]
    return error


def _stored_features(files: LeRobotFiles, chosen: Mapping[str, Feature], *, has_task: bool) -> dict[str, Feature]:
    """The features that an index has: those that are chosen, and those by which rows are found."""
    known, stored = files.feature_names, dict[str, Feature]()
    needed = [*_NEEDED, *[_OF_TASK] * has_task]
    for name in needed:
        feature = files.feature(name) if name in known else None
        if feature is None or not feature.is_number or feature.shape:
            rule = "must be a feature of one number in each row"
            raise FileError(f"{name!r} {rule} in {files.storage.path('meta/info.json')!r}. {CUT}.")
        stored[name] = feature
    return {**stored, **chosen}


def _chosen_features(files: LeRobotFiles, fields: Sequence[str] | None) -> dict[str, Feature]:
    known = files.feature_names
    names = [*known, _TASK]
    fields = checked_names([*fields] if isinstance(fields, Set | Mapping) else fields, "fields")
    wrong = [name for name in fields or () if name not in names]
    if wrong or (fields is not None and not len(fields)):
        problem = f"{shown(wrong[0])}.{did_you_mean(wrong[0], names)}" if wrong else "none."
        raise SettingError(f"`fields` must be fields of the data set, got {problem} There are: {listed(names)}.")
    # As in `LeRobotDataset`, the text of the task takes the place of a feature of its name.
    own = [name for name in known if name != _TASK]
    chosen = {name: files.feature(name) for name in own if fields is None or name in fields}
    kinds = ("video", "image", "string")
    odd = [
        f"{name!r} of dtype {one.dtype!r}"
        for name, one in chosen.items()
        if not (one.is_number or one.dtype in kinds)
    ]
    if odd:
        rule = f"Fields must be numbers, or of dtype {listed(kinds)}, but these are not:\n{bullets(odd)}"
        raise SettingError(f"{rule}\nName the others by `fields`.")
    lossy = [name for name, one in chosen.items() if one.depth is not None and one.dtype != "video"]
    if lossy:
        raise SettingError(
            f"Depth maps must be of dtype 'video', but {listed(map(repr, lossy))} is of another one, and "
            f"`ImageDecoder` would make 8 bits of its codes. Name the other fields by `fields`."
        )
    return chosen


def _chosen_episodes(episodes: Episodes, given: Sequence[int] | None) -> Int64:
    """Places of the episodes that are wanted."""
    if given is None:
        return np.arange(len(episodes.number))
    found = elements(given) if isinstance(given, Sized) else None
    if not found:
        rule, advice = "numbers of episodes, or None for all", "Give them in one list, such as [0, 1], or a range."
        raise setting_error("episodes", rule, given, advice)
    numbers = np.unique([whole_number(number, "episodes", at_least=0) for number in found])
    missing = numbers[~np.isin(numbers, episodes.number)]
    if len(missing):
        first, last, count = episodes.number[0], episodes.number[-1], len(episodes.number)
        rule = f"{count} episodes, numbered {first} to {last}"
        raise SettingError(f"`episodes` must be episodes of the data set, which has {rule}, got {missing[0]}.")
    return np.flatnonzero(np.isin(episodes.number, numbers))


def _with_rows(episodes: Episodes, places: Int64) -> Int64:
    found: Int64 = places[episodes.length[places] != 0]
    if not len(found):
        raise FileError(f"There are no episodes with rows. {CUT}.")
    return found


def _made(
    files: LeRobotFiles,
    episodes: Episodes,
    places: Int64,
    stored: Mapping[str, Feature],
    *,
    is_whole: bool,
    has_task: bool,
) -> Columns:
    """Read the rows of some episodes; whole tables of rows must be of these where all are wanted."""
    features = [one for one in stored.values() if _is_in_tables(one)]
    parts: dict[str, list[Any]] = {feature.name: [] for feature in features}
    tables: dict[str, list[int]] = {}
    for place in places.tolist():
        tables.setdefault(episodes.table[place], []).append(place)
    rows_of: dict[int, dict[str, Any]] = {}
    for table, of_table in tables.items():
        if not episodes.length[of_table].any():
            of_table = of_table if files.storage.exists(table) else []
        if of_table:
            rows_of |= _rows_of_table(files, episodes, table, of_table, features, is_whole=is_whole)
    chosen = _with_rows(episodes, places)
    for place in chosen.tolist():
        for name, values in rows_of[place].items():
            parts[name].append(values)
    if has_task:
        used = np.unique(np.concatenate(parts[_OF_TASK]))
        lacking = used[~np.isin(used, [*files.tasks])]
        if len(lacking):
            where = f"the table of tasks of {files.storage.root!r}"
            raise FileError(f"There is no task {lacking[0]} in {where}. {CUT}.")
    arrays: dict[str, Array] = {
        "number": episodes.number[chosen],
        "first": first_column(episodes.length[chosen]),
    }
    for place, feature in enumerate(stored.values()):
        if feature.name in parts and feature.is_number:
            arrays[f"rows.{place}"] = np.concatenate(parts[feature.name])
        elif feature.name in parts:
            contents = [content for part in parts[feature.name] for content in part]
            UNPACKED_BYTES.require(sum(map(len, contents)), f"the values of {feature.name!r} have {{}} bytes")
            if feature.dtype == "image" and any(
                is_gray_of_16_bits(np.frombuffer(each, np.uint8)) for each in contents
            ):
                raise FileError(
                    f"The images of {feature.name!r} are gray of 16 bits, as those of depth, and `ImageDecoder` "
                    f"would make 8 bits of them. Name the other fields by `fields`."
                )
            arrays[f"rows.{place}"] = np.frombuffer(b"".join(contents) or b"\0", np.uint8)
            arrays[f"ends.{place}"] = first_column([*map(len, contents)])
    videos: dict[str, None] = {}
    for name in episodes.video:
        of_chosen = [episodes.video[name][place] for place in chosen.tolist()]
        videos |= dict.fromkeys(of_chosen)
    for place, name in enumerate(stored):
        if name in episodes.video:
            of_chosen = [episodes.video[name][each] for each in chosen.tolist()]
            arrays[f"video.{place}"] = numbers_column(of_chosen, [*videos])
            arrays[f"start.{place}"] = episodes.start_s[name][chosen]
            arrays[f"end.{place}"] = episodes.end_s[name][chosen]
    notes = {
        "features": [*stored],
        "fps": files.info["fps"],
        "tasks": sorted(files.tasks.items()) if has_task else [],
        "videos": [*videos],
    }
    return Columns(_KIND, arrays, notes)


def _is_in_tables(feature: Feature) -> bool:
    return feature.is_number or feature.dtype in ("image", "string")


def _rows_of_table(
    files: LeRobotFiles,
    episodes: Episodes,
    table: str,
    places: Sequence[int],
    features: Sequence[Feature],
    *,
    is_whole: bool,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read the rows of some episodes in a table, which must be complete and in order."""
    only = None if is_whole else ("episode_index", episodes.number[[*places]].tolist())
    columns, where = files.rows(table, features, only), repr(files.storage.path(table))
    strange = columns["episode_index"][~np.isin(columns["episode_index"], episodes.number[[*places]])]
    if is_whole and len(strange):
        rule = f"{where} must have rows of the episodes that the tables of episodes list for it"
        raise FileError(f"{rule}, got {np.count_nonzero(strange == strange[0])} of episode {strange[0]}. {CUT}.")
    for place in places:
        number, length = int(episodes.number[place]), int(episodes.length[place])
        rows = np.flatnonzero(columns["episode_index"] == number)
        if len(rows) != length:
            rule = f"{where} must have {length} rows of the episode {number}, as its 'length' says"
            raise FileError(f"{rule}, got {len(rows)}. {CUT}.")
        expected = {"frame_index": np.arange(length), "index": int(episodes.first[place]) + np.arange(length)}
        for name, numbers in expected.items():
            wrong = np.flatnonzero(columns[name][rows] != numbers)
            if len(wrong):
                got, want = columns[name][rows[wrong[0]]], numbers[wrong[0]]
                at = f"row {wrong[0]} of the episode {number} in {where}"
                raise FileError(f"{name!r} must be {want} in {at}, got {got}. {CUT}.")
        yield place, {name: _chosen_rows(values, rows) for name, values in columns.items()}


def _chosen_rows(values: Any, rows: Int64) -> Any:
    if isinstance(values, list):
        return [values[row] for row in rows.tolist()]
    if values.dtype.kind == "U":
        return [text.encode() for text in values[rows].tolist()]
    return values[rows]
