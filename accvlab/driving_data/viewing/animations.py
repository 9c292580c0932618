# SPDX-License-Identifier: Apache-2.0
"""Several samples, one after the other, as an animated file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from accvlab.dali_pipeline_framework import SampleDataGroup
from accvlab.dali_pipeline_framework.checks import file_path, number
from accvlab.dali_pipeline_framework.errors import FileError, SettingError, error_that_is_also

from .pictures import show
from .scene_views import SceneView

_FORMATS = {".gif": "GIF", ".webp": "WEBP", ".png": "PNG"}


def save_animation(
    data: Iterable[SampleDataGroup | Mapping[Any, Any] | SceneView],
    path: str | os.PathLike[str],
    *,
    frames_per_s: float = 2.0,
    **settings: Any,
) -> Path:
    """Draw samples one after the other into an animated file.

    Args:
        data: Samples of a provider, batches of a loader, or views of them, in the order of time.
        path: A ``.gif``, ``.webp``, or ``.png`` file.
        frames_per_s: How many are shown in a second.
        **settings: What `show` takes: ``sample``, ``fields``, ``class_names``, ``image_mean``, ``image_std``,
            ``range_m``.

    Returns:
        The path.

    Raises:
        SettingError: There are no samples, the format is another one, or a package is missing.
        FileError: The file cannot be written.
    """
    target = Path(file_path(path, "path"))
    frames_per_s = number(frames_per_s, "frames_per_s", above=0)
    if target.suffix.lower() not in _FORMATS:
        raise SettingError(f"`path` must end with {', '.join(_FORMATS)}, got {str(path)!r}.")
    settings.setdefault("range_m", 50.0)  # the same for all
    frames = [show(one, **settings).pixels() for one in data]
    if not frames:
        raise SettingError("There must be at least one sample to show.")
    try:
        from PIL import Image
    except ImportError as error:
        raise SettingError(
            'Animations need Pillow, which is not installed: pip install "accvlab.dali_pipeline_framework[viz]".'
        ) from error
    first, *others = [Image.fromarray(frame) for frame in frames]
    try:
        first.save(
            target,
            _FORMATS[target.suffix.lower()],
            save_all=True,
            append_images=others,
            duration=round(1000 / frames_per_s),
            loop=0,
        )
    except OSError as error:
        message = f"The animation {str(target)!r} cannot be written: {error.strerror or error}."
        raise error_that_is_also(FileError, [type(error)], message) from error
    return target
