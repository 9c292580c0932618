"""Clips of frames as `Windows`: of folders of frames, and of videos."""

from __future__ import annotations

from typing import Any

from accvlab.dali_pipeline_framework.providers import FrameDataProvider, Windows
from accvlab.dali_pipeline_framework.video import VideoFrameDataProvider


def frame_clips(
    folders: Any, length: int, *, stride: int = 1, step: int = 1, edges: Any = "drop", **names: Any
) -> Windows:
    """Clips of the files ``frames`` and their ``paths``."""
    frames = FrameDataProvider(folders, image_name="frames", path_name="paths", **names)
    offsets = range(0, length * stride, stride)
    return Windows(frames, {"frames": offsets, "paths": offsets}, unit="frames", step=step, edges=edges)


def video_clips(
    videos: Any, length: int, *, stride: int = 1, step: int | None = None, edges: Any = "drop", **settings: Any
) -> Windows:
    """Clips of the ``frames``, with their numbers and times where these have names; side by side by default."""
    settings = {"num_kept_frames": (length - 1) * stride + 1, **settings}
    frames = VideoFrameDataProvider(videos, image_name="frames", **settings)
    names = ["frames", settings.get("frame_number_name"), settings.get("timestamp_name")]
    offsets = range(0, length * stride, stride)
    windows = {name: offsets for name in names if name is not None}
    return Windows(frames, windows, unit="frames", step=step or length * stride, edges=edges)
