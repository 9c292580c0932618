# SPDX-License-Identifier: Apache-2.0
"""Random motion of the whole scene around the vehicle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from accvlab.dali_pipeline_framework import SampleDataGroup
from accvlab.dali_pipeline_framework.extension import EgoMotionStep, FieldSearch, Key, find_paths
from accvlab.dali_pipeline_framework.sample_data import FieldPath
from accvlab.dali_pipeline_framework.unknown_arguments import explains_unknown_arguments

_UP = 2
_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "points": ("centers", "future_centers", "future_positions"),
    "velocities": ("velocities",),
    "sizes": ("sizes",),
    "orientation": ("yaws",),
    "proj_matrices_and_extrinsics": ("camera_from_reference",),
    "ego_to_world": ("world_from_reference", "ego_from_reference"),
    "world_to_ego": ("reference_from_lidar",),
}
_OF_BOXES = ("centers", "future_centers", "velocities", "sizes")
_MAP_POINTS = ("map_lines", "points")


class SceneTransformer(EgoMotionStep):
    """Turns, scales, shifts and mirrors the scene of a driving sample at random, in the reference frame.

    It does what `BEVBBoxesTransformer3D` does, to the fields of a `DrivingProvider`, as far as the sample has
    them: boxes (groups with ``yaws``) with ``future_centers``, ``camera_from_reference``,
    ``world_from_reference``, ``ego_from_reference``, ``reference_from_lidar`` and ``future_positions``. So boxes
    stay on their objects in the images, which do not change. Map lines do not follow, so a sample with some is
    refused.

    Example:
        >>> step = SceneTransformer(rotation_range=[-0.39, 0.39], scaling_range=[0.95, 1.05], flip_prob_y=0.5)
    """

    @explains_unknown_arguments
    def __init__(
        self,
        *,
        rotation_range: Sequence[float] | None = None,
        scaling_range: Sequence[float] | None = None,
        translation_max_abs: Sequence[float] | None = None,
        flip_prob_x: float = 0.0,
        flip_prob_y: float = 0.0,
        key: Key = "sample",
    ) -> None:
        """Create the step.

        Args:
            rotation_range: Least and greatest angle about the z axis, radians; None for no rotation.
            scaling_range: Least and greatest factor, above 0; None for no scaling.
            translation_max_abs: Greatest magnitude of the translation along x, y and z, metres; None for no
                translation.
            flip_prob_x: Probability that x changes its sign, in [0, 1].
            flip_prob_y: Probability that y changes its sign, in [0, 1].
            key: Scope in which the draws are constant, see `UniformDraw`.

        Raises:
            SettingError: A range is not of this form.
        """
        super().__init__(rotation_range, _UP, scaling_range, translation_max_abs, flip_prob_x, flip_prob_y, key)

    def _paths(self, data: SampleDataGroup, kind: str) -> list[FieldPath]:
        paths = find_paths(data, _NAMES[kind])
        return [
            path for path in paths if path[-1] not in _OF_BOXES or data.get_parent_of_path(path).has_child("yaws")
        ]

    def format_after(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        """See `ArrayStep.format_after`."""
        search = FieldSearch(data_empty, self)
        for kind, what in self.kinds.items():
            for path in self._paths(data_empty, kind):
                search.find_at(path, what, self.types_of_fields)
        if self.draws and search.format.get(_MAP_POINTS) is not None:
            search.add("does not follow the transformation: request no `map_lines`", _MAP_POINTS)
        return search.result()
