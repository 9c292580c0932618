# SPDX-License-Identifier: Apache-2.0
"""A provider for data sets of LeRobot."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework.checks import file_path, shown, text
from accvlab.dali_pipeline_framework.errors import SettingError
from accvlab.dali_pipeline_framework.unknown_arguments import explains_unknown_arguments

from ..driving.driving_fields import DrivingFieldSettings, with_driving_fields
from ..driving.driving_provider import DrivingProvider
from ..driving.index_cache import cache_folder, cached_index
from ..driving.video_frames import VideoFrames
from .lerobot_files import LeRobotFiles
from .lerobot_index import make_index

if TYPE_CHECKING:
    from typing_extensions import Unpack

Float64Array = npt.NDArray[np.float64]


class LeRobotProvider(DrivingProvider):
    """Episodes of a data set of LeRobot, version 3: several in one video per camera (extras ``arrow``, ``video``).

    The files, relative to the root; ``info.json`` names those of data and videos::

        meta/info.json
        meta/episodes/chunk-000/file-000.parquet         which rows, and which part of which video, each has
        data/chunk-000/file-000.parquet                  a row per frame
        videos/<feature>/chunk-000/file-000.mp4

    One sample per row, as `DrivingProvider` has them; each episode is a scene, ``"episode-000000"``. Cameras are
    the features of type ``video``, by what stands behind ``observation.images.``. A frame of a video is found by
    its exact time: the start of the episode in the video, and the ``timestamp`` of the row.

    LeRobot says nothing of cameras and vehicles: without ``pose_feature`` the vehicle stays at the origin, and
    without ``calibration`` matrices are those of unity. States and actions are not in the samples.

    Example::

        provider = LeRobotProvider("/data/lerobot/drives", pose_feature="observation.state.pose")
    """

    @explains_unknown_arguments()
    @with_driving_fields
    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        pose_feature: str | None = None,
        calibration: Mapping[str, tuple[npt.ArrayLike, npt.ArrayLike]] | None = None,
        scenes: Sequence[str] | None = None,
        index_cache: str | os.PathLike[str] | None = None,
        **fields: Unpack[DrivingFieldSettings],
    ) -> None:
        """Read the tables and open the index; it is made where it is not there.

        Args:
            root: The folder of the data set.
            pose_feature: Feature with the pose of the vehicle in the world: ``x, y, z, qw, qx, qy, qz``.
            calibration: By camera: intrinsics ``(3, 3)``, and the place of the camera on the vehicle,
                ``ego_from_camera`` ``(4, 4)``.
            scenes: Names of the episodes, in the order wanted; None for all.
            index_cache: Folder where indices are kept, also of the videos; None for ``$ACCVLAB_INDEX_CACHE``, or
                else ``~/.cache/accvlab/driving``.
            **fields: What the samples hold: settings of `DrivingFields`.

        Raises:
            FileError: A file cannot be read or is not as it should be.
            SettingError: pyarrow is missing, or the data set lacks what is asked for.
        """
        files = LeRobotFiles(Path(file_path(root, "root")).absolute())
        if pose_feature is not None:
            text(pose_feature, "pose_feature")
        calibrations = _calibrations(calibration or {})
        videos = VideoFrames(cache_folder(index_cache) / "videos")
        index = cached_index(
            lambda: make_index(files, videos, pose_feature, calibrations),
            files.sources,
            {
                "reader": "lerobot 1",
                "root": str(files.root),
                "pose_feature": pose_feature,
                "calibration": {
                    camera: [matrix.tolist(), place.tolist()] for camera, (matrix, place) in calibrations.items()
                },
            },
            index_cache,
        )
        self._index_cache = index_cache
        super().__init__(index, files.root, scenes=scenes, **fields)


def _calibrations(
    given: Mapping[str, tuple[npt.ArrayLike, npt.ArrayLike]],
) -> dict[str, tuple[Float64Array, Float64Array]]:
    found = {}
    for camera, pair in given.items():
        try:
            matrix, place = (np.asarray(each, np.float64) for each in pair)
            if matrix.shape != (3, 3) or place.shape not in ((3, 4), (4, 4)):
                raise ValueError
            if not np.allclose(place[:3, :3] @ place[:3, :3].T, np.eye(3), atol=1e-5):
                raise ValueError
        except (TypeError, ValueError):
            raise SettingError(
                f"`calibration` must have a (3, 3) and a (4, 4) matrix for each camera, the second of a rotation "
                f"and a place, got {shown(pair)} for {camera!r}."
            ) from None
        found[camera] = (matrix, place[:3])
    return found
