# SPDX-License-Identifier: Apache-2.0
"""Arguments of video providers that name the videos."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, SupportsIndex

import attrs

from ...errors import SettingError
from .indexed_videos import IndexedVideos
from .video_list import ListFormat, ListRounding, RangeRule, VideoPath, listed_videos
from .video_tracks import MissingPolicy, RigSettings, VideoTracks, tracks_of_list, tracks_of_rig


@attrs.frozen(kw_only=True)
class VideoSources:
    """The videos, in one of three kinds of lists or by cameras, see `VideoDataProvider`."""

    filenames: VideoPath | Iterable[VideoPath] | None
    file_root: VideoPath | None
    file_list: VideoPath | None
    labels: SupportsIndex | Iterable[SupportsIndex] | None
    file_filters: str | Iterable[str]
    file_list_format: ListFormat
    file_list_rounding: ListRounding
    file_list_include_end: bool
    cameras: Mapping[str, VideoPath | Iterable[VideoPath]] | None
    reference_camera: str | None
    tolerance_s: float | None
    time_offsets_s: Mapping[str, float | Sequence[float]] | None
    missing: MissingPolicy
    stream: SupportsIndex | Mapping[str, SupportsIndex]

    def find(self, **options: Any) -> tuple[IndexedVideos, VideoTracks]:
        """Index the videos.

        Args:
            options: Arguments of `IndexedVideos`.

        Raises:
            SettingError: The arguments do not go together, or do not fit the videos.
            FileError: A folder, list or video cannot be opened.
            VideoError: A file is not a video, or incomplete.
        """
        rule = RangeRule(self.file_list_format, self.file_list_rounding, bool(self.file_list_include_end))
        if self.cameras is not None:
            rig = RigSettings(
                self.cameras, self.reference_camera, self.tolerance_s, self.time_offsets_s, self.missing
            )
            for name in ("filenames", "file_root", "file_list"):
                if getattr(self, name) is not None:
                    raise SettingError(f"Give either `cameras` or `{name}`, got both.")
            return tracks_of_rig(rig, self.stream, self.labels, **options)
        if isinstance(self.stream, Mapping):
            raise SettingError("One `stream` per camera goes with `cameras`; give one number.")
        listed = listed_videos(
            self.filenames, self.file_root, self.file_list, self.labels, self.file_filters, rule
        )
        return tracks_of_list(listed, self.stream, rule, **options)
