# SPDX-License-Identifier: Apache-2.0
"""Several samples, one after the other, as a recording for the viewer of rerun.io."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from accvlab.dali_pipeline_framework import SampleDataGroup
from accvlab.dali_pipeline_framework.checks import file_path
from accvlab.dali_pipeline_framework.errors import SettingError

from .projection import box_corners, projected_edges
from .scene_views import SceneView, ViewFields, scene_view


def save_recording(
    data: Iterable[SampleDataGroup | Mapping[Any, Any] | SceneView],
    path: str | os.PathLike[str],
    *,
    name: str = "accvlab",
    sample: int = 0,
    fields: ViewFields | None = None,
    class_names: Sequence[str] = (),
    image_mean: Sequence[float] | float | None = None,
    image_std: Sequence[float] | float | None = None,
) -> Path:
    """Write samples, in the order of time, to an ``.rrd`` file: open it with ``rerun file.rrd``.

    Entities: ``scene/boxes``, ``scene/lidar``, ``scene/map`` in the reference frame; ``cameras/<name>`` with the
    image, the projected boxes as lines, and 2D boxes. Timelines: ``frame``, and ``time`` where times are known.

    Arguments that are not named here are as for `show`.

    Args:
        data: Samples of a provider, batches of a loader, or views of them.
        path: The file.
        name: Name of the recording.

    Returns:
        The path.

    Raises:
        SettingError: There is nothing that can be shown, or ``rerun-sdk`` is missing.
    """
    try:
        import rerun as rr
    except ImportError as error:
        raise SettingError(
            "Recordings need rerun-sdk, which is not installed: pip install "
            '"accvlab.dali_pipeline_framework[rerun]".'
        ) from error
    target = Path(file_path(path, "path"))
    recording = rr.RecordingStream(name)
    recording.save(str(target))
    settings = {"fields": fields, "class_names": class_names, "image_mean": image_mean, "image_std": image_std}
    for number, one in enumerate(data):
        view = one if isinstance(one, SceneView) else scene_view(one, sample, **settings)  # type: ignore[arg-type]
        recording.set_time("frame", sequence=number)
        if view.timestamp is not None:
            recording.set_time("time", timestamp=view.timestamp)
        _log(rr, recording, view)
    recording.flush()
    return target


def _log(rr: Any, recording: Any, view: SceneView) -> None:
    categories = np.zeros(len(view.centers), np.int64) if view.categories is None else view.categories
    names = view.class_names
    labels = [names[one] if 0 <= one < len(names) else str(one) for one in categories.tolist()]
    half_turns = view.yaws / 2
    quaternions = np.stack(
        [np.zeros_like(half_turns), np.zeros_like(half_turns), np.sin(half_turns), np.cos(half_turns)], axis=1
    )
    boxes = rr.Boxes3D(
        centers=view.centers,
        half_sizes=view.sizes / 2,
        quaternions=quaternions,  # x, y, z, w
        class_ids=np.maximum(categories, 0),
        labels=labels,
    )
    recording.log("scene/boxes", boxes)
    recording.log("scene/lidar", rr.Points3D(view.points, radii=0.03))
    recording.log(
        "scene/map", rr.LineStrips3D([np.column_stack([line, np.zeros(len(line))]) for line in view.lines])
    )
    corners = box_corners(view.centers, view.sizes, view.yaws)
    for camera in view.cameras:
        entity = f"cameras/{camera.name}"
        recording.log(entity, rr.Image(camera.image))
        lines: list[Any] = []
        if camera.image_from_reference is not None and len(corners):
            edges = projected_edges(corners, camera.image_from_reference).reshape(-1, 2, 2)
            lines = list(edges[~np.isnan(edges).any(axis=(1, 2))])
        recording.log(f"{entity}/boxes", rr.LineStrips2D(lines))
        if camera.boxes_2d is not None:
            recording.log(
                f"{entity}/boxes_2d", rr.Boxes2D(array=camera.boxes_2d, array_format=rr.Box2DFormat.XYXY)
            )
