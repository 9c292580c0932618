# SPDX-License-Identifier: Apache-2.0
"""A provider for sensor logs of Argoverse 2."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from accvlab.dali_pipeline_framework.checks import file_path, number
from accvlab.dali_pipeline_framework.unknown_arguments import explains_unknown_arguments

from ..driving.arrow_files import read_columns
from ..driving.driving_fields import DrivingFieldSettings, most_sweeps, with_driving_fields
from ..driving.driving_index import LidarColumns
from ..driving.driving_provider import DrivingProvider
from ..driving.index_cache import cached_index
from .argoverse_files import ArgoverseLog, find_logs
from .argoverse_index import make_index

if TYPE_CHECKING:
    from typing_extensions import Unpack


class ArgoverseProvider(DrivingProvider):
    """Sensor logs of Argoverse 2, as they are published (extra ``arrow``).

    The files of each log, below the root or a split in it; of the sensors, those that are there::

        <log>/city_SE3_egovehicle.feather, annotations.feather
        <log>/calibration/intrinsics.feather, egovehicle_SE3_sensor.feather
        <log>/sensors/cameras/ring_front_center/315966265259836000.jpg, ...
        <log>/sensors/lidar/315966265360032000.feather

    One sample per lidar record (or, without lidar, per time that has boxes), as `DrivingProvider` has them. The
    vehicle is the base, also of the points: they are published so. To each frame belongs the image of each camera
    that is nearest in time, within the tolerance; the motion of the vehicle between the two is in
    ``camera_from_reference``. Velocities are not known; ``num_lidar_points`` is ``num_interior_pts``. Distortion
    of the lenses is in no matrix.

    Example::

        provider = ArgoverseProvider("/data/av2/sensor/train", cameras=["ring_front_center"], lidar=True)
    """

    @explains_unknown_arguments()
    @with_driving_fields
    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        tolerance_s: float | None = None,
        scenes: Sequence[str] | None = None,
        index_cache: str | os.PathLike[str] | None = None,
        **fields: Unpack[DrivingFieldSettings],
    ) -> None:
        """Find the logs and open their index; it is made where it is not there.

        Args:
            root: A log, a folder of logs, or one of splits.
            tolerance_s: How far the image of a camera may be from its frame; None for half the usual interval of
                that camera.
            scenes: Names of the logs, in the order wanted; None for all.
            index_cache: Folder where indices are kept; None for ``$ACCVLAB_INDEX_CACHE``, or else
                ``~/.cache/accvlab/driving``.
            **fields: What the samples hold: settings of `DrivingFields`.

        Raises:
            FileError: There are no logs, or a file cannot be read or is not as it should be.
            SettingError: pyarrow is missing, or the logs lack what is asked for.
        """
        top = Path(file_path(root, "root")).absolute()
        tolerance = None if tolerance_s is None else number(tolerance_s, "tolerance_s", at_least=0)
        logs = [ArgoverseLog(folder) for folder in find_logs(top)]
        sweeps = most_sweeps(fields)
        index = cached_index(
            lambda: make_index(top, logs, tolerance, sweeps),
            [source for log in logs for source in log.sources],
            {"reader": "argoverse 1", "root": str(top), "tolerance_s": tolerance, "most_sweeps": sweeps},
            index_cache,
        )
        self._index_cache = index_cache
        super().__init__(index, top, scenes=scenes, **fields)

    def _points(self, lidar: LidarColumns, record: int) -> npt.NDArray[np.float32]:
        path = self._storage.path(os.fsdecode(bytes(lidar.file[record])))
        names = self.point_columns
        columns: dict[str, npt.NDArray[Any]] = read_columns(path, dict.fromkeys(names, "number"))
        return np.stack([columns[name] for name in names], axis=-1).astype(np.float32)
