# SPDX-License-Identifier: Apache-2.0
"""A cache of video indices in a folder, for later processes and worker processes."""

from __future__ import annotations

import os

import numpy as np

from ..providers.files.columns import Columns, load_or_make
from .files.video_file import FileState, RemoteVideo
from .video_index import INDEX_KIND, RATIOS, VideoIndex, load_index, make_index

_VALUES = ("time_base", "width", "height", "codec_name", "average_rate", "num_reordered", "is_seekable", "doubts")


def cached_video_index(
    cache: str | os.PathLike[str], path: str | os.PathLike[str] | RemoteVideo, stream: int = 0
) -> VideoIndex:
    """Get the index of a video from a cache; its arrays are read-only.

    It counts if the video still has the size and time of change that it was made for; if it is remote, the size,
    and what its store says of its version. Else, and if it is damaged, one of several processes makes it anew.

    Args:
        cache: The folder; it is made if it is not there.
        path: The video.
        stream: Number of the video stream among the video streams of the container.

    Raises:
        SettingError: PyAV is missing, there is no such stream, or the folder cannot be written to.
        FileError: The video cannot be opened.
        VideoError: It is not a video, or incomplete.
    """
    if isinstance(path, RemoteVideo):
        place, shown, state = path.url, path.name, path.state()
        path = path.as_indexed(state)
    else:
        place = shown = os.path.abspath(path)
        state = FileState.of_video(path)

    def make() -> Columns:
        index = make_index(path, stream)
        values = {name: getattr(index, name) for name in _VALUES}
        for name in RATIOS:
            values[name] = values[name] and values[name].as_integer_ratio()
        times = np.concatenate([index.pts, index.key_pts, index.seek_points])  # one file for all is read faster
        edges = np.cumsum([index.num_frames, len(index.key_pts)]).tolist()
        return Columns(
            INDEX_KIND, {"times": times}, {"video": shown, "state": state, "edges": edges, "values": values}
        )

    key = ["video", os.fsdecode(place), stream]
    return load_or_make(cache, key, load_index, make, is_current=lambda index: index.file_state == state)
