"""Providers of recordings, made of the arguments of the value and of the provider together."""

from __future__ import annotations

from typing import Any

import attrs

from accvlab.dali_pipeline_framework.providers import FrameDataProvider, FrameFolders, Windows
from accvlab.dali_pipeline_framework.video import Videos
from support.windows import video_clips


def split(value: type, arguments: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Make the value of those arguments that are its own; returns it and the others."""
    names = {field.name for field in attrs.fields(value)}
    own = {name: given for name, given in arguments.items() if name in names}
    return value(**own), {name: given for name, given in arguments.items() if name not in names}


def video_provider(*, sequence_length: int, **arguments: Any) -> Windows:
    videos, others = split(Videos, arguments)
    return video_clips(videos, sequence_length, **others)


def frame_provider(**arguments: Any) -> FrameDataProvider:
    folders, others = split(FrameFolders, arguments)
    return FrameDataProvider(folders, **others)
