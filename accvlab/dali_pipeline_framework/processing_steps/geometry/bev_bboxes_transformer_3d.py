# SPDX-License-Identifier: Apache-2.0
"""Turn, scale, shift and mirror the 3D boxes around a vehicle at random."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any, Final

import attrs
import numpy as np
from nvidia.dali import types

from ...checks import index_in, number_list, number_range, probability
from ...draws.random_draws import RandomDraw, UniformDraw
from ...errors import FieldValueError, SettingError
from ...operators.functions import Array
from ...operators.point_limits import Float64Array
from ...sample_data import FieldPath, SampleDataGroup
from ...sample_data.names import Name
from ..array_step import ArrayStep, FieldUse
from ..named_fields import FieldSearch, Key, Names, as_names, find_paths
from ..pipeline_step_base import naming_field

_DT = types.DALIDataType
_UP = 2
_HOLDS = {
    "points": "(N, 3) points",
    "velocities": "(N, 3) velocities",
    "sizes": "(N, 3) sizes",
    "orientation": "(N,) orientations",
    "proj_matrices_and_extrinsics": "(k, 4) projection matrices or extrinsics",
    "ego_to_world": "a (4, 4) matrix",
    "world_to_ego": "a (4, 4) matrix",
}


_REALS = (_DT.FLOAT, _DT.FLOAT64)
# Fields of driving samples.
_DRIVING: Final[dict[str, tuple[str, ...]]] = {
    "points": ("centers", "future_centers", "future_positions"),
    "velocities": ("velocities",),
    "sizes": ("sizes",),
    "orientation": ("yaws",),
    "proj_matrices_and_extrinsics": ("camera_from_reference",),
    "ego_to_world": ("world_from_reference", "ego_from_reference"),
    "world_to_ego": ("reference_from_lidar",),
}


class BEVBBoxesTransformer3D(ArrayStep):
    """Turns, scales, shifts and mirrors 3D boxes, and all that belongs to them, at random, in ego coordinates.

    One transformation ``A = translation scale rotation mirror``, ``(4, 4)``, is drawn for each group that the step
    is applied to. Every named field, anywhere in the sample, follows it, float32 or float64, any ``N``::

        points          (..., 3)              p' = A p
        velocities      (..., 3)              v' = scale rotation mirror v
        sizes           any shape             d' = scale d
        orientations    any shape, radians    o' = o + angle, mirrored as the x axis is; in [-pi, pi]
        projections, extrinsics   (k, 4)      P' = P inverse(A), also (..., k, 4)
        ego to world              (4, 4)      E' = E inverse(A)
        world to ego              (4, 4)      W' = A W

    So points fall on the same pixels as before, ``P' p' = P p``, and keep their place in the world,
    ``E' p' = E p``; images do not change, but the vehicle seems to be elsewhere. ``orientations`` are
    angles about the rotation axis. After mirroring, the matrices contain a reflection: they are no rigid motions.
    NaN and infinite values stay, and do not affect other rows.

    The order of random numbers: angle, scale, translation x, y, z, mirror x, mirror y.

    Computed in float64, and rounded to the type of the field at the end.

    Without names, these fields of driving samples follow, if the sample has them: boxes (groups with
    ``yaws``) with ``future_centers``, ``camera_from_reference``, ``world_from_reference``, ``ego_from_reference``,
    ``reference_from_lidar`` and ``future_positions``. Map lines do not follow, so a sample with some is refused.

    Example:
        >>> step = BEVBBoxesTransformer3D(
        ...     rotation_range=[-0.39, 0.39], rotation_axis=2, scaling_range=[0.95, 1.05], flip_prob_y=0.5
        ... )
        >>> step = BEVBBoxesTransformer3D(
        ...     "translations", "velocities", "sizes", "orientations", ["lidar2img", "extrinsics"], "ego_to_world",
        ...     "world_to_ego", [-0.3925, 0.3925], 2, [0.95, 1.05], [0.0, 0.0, 0.0], flip_prob_y=0.5,
        ... )
    """

    only_in_workers = False

    def __init__(
        self,
        data_field_names_points: Names | None = _DRIVING["points"],
        data_field_names_velocities: Names | None = _DRIVING["velocities"],
        data_field_names_sizes: Names | None = _DRIVING["sizes"],
        data_field_names_orientation: Names | None = _DRIVING["orientation"],
        data_field_names_proj_matrices_and_extrinsics: Names | None = _DRIVING["proj_matrices_and_extrinsics"],
        data_field_names_ego_to_world: Names | None = _DRIVING["ego_to_world"],
        data_field_names_world_to_ego: Names | None = _DRIVING["world_to_ego"],
        rotation_range: Sequence[float] | None = None,
        rotation_axis: int | None = None,
        scaling_range: Sequence[float] | None = None,
        translation_max_abs: Sequence[float] | None = None,
        *,
        flip_prob_x: float = 0.0,
        flip_prob_y: float = 0.0,
        key: Key = "sample",
    ) -> None:
        """Create the step.

        Args:
            data_field_names_points: Name or names of the points; None for none, here and below. Left out: see the
                class.
            data_field_names_velocities: Names of the velocities.
            data_field_names_sizes: Names of the sizes.
            data_field_names_orientation: Names of the orientations.
            data_field_names_proj_matrices_and_extrinsics: Names of the matrices that map from ego coordinates.
            data_field_names_ego_to_world: Names of the matrices from ego to world coordinates.
            data_field_names_world_to_ego: Names of the matrices from world to ego coordinates.
            rotation_range: Least and greatest angle, radians, right-handed; None for no rotation.
            rotation_axis: 0, 1 or 2: the axis (x, y, z) to turn about.
            scaling_range: Least and greatest factor, above 0; None for no scaling.
            translation_max_abs: Greatest magnitude of the translation along x, y and z; None for none.
            flip_prob_x: Probability that x changes its sign, in [0, 1].
            flip_prob_y: Probability that y changes its sign: left and right are exchanged, where x is ahead.
            key: Scope in which the draws are constant, see `UniformDraw`.

        Raises:
            SettingError: A range is not of this form, a rotation has no axis, or orientations cannot be mirrored
                since they are not about the z axis.
        """
        names = {
            "points": data_field_names_points,
            "velocities": data_field_names_velocities,
            "sizes": data_field_names_sizes,
            "orientation": data_field_names_orientation,
            "proj_matrices_and_extrinsics": data_field_names_proj_matrices_and_extrinsics,
            "ego_to_world": data_field_names_ego_to_world,
            "world_to_ego": data_field_names_world_to_ego,
        }
        self._names = {kind: as_names(given, f"data_field_names_{kind}") for kind, given in names.items()}
        self._are_left_out = {kind for kind, given in names.items() if given is _DRIVING[kind]}
        self.draws: list[RandomDraw] = []
        self._rotation_axis = None if rotation_axis is None else index_in(rotation_axis, "rotation_axis", 3)
        if rotation_range is not None:
            if rotation_axis is None:
                raise SettingError("`rotation_axis` must be 0, 1 or 2 with a `rotation_range`, got None.")
            self.draws.append(UniformDraw("angle", *number_range(rotation_range, "rotation_range"), key=key))
        if scaling_range is not None:
            factors = number_range(scaling_range, "scaling_range", above=0)
            self.draws.append(UniformDraw("scale", *factors, key=key))
        if translation_max_abs is not None:
            limits = number_list(translation_max_abs, "translation_max_abs", "three numbers", count=3)
            for axis, most in zip("xyz", limits, strict=True):
                self.draws.append(UniformDraw(f"translation_{axis}", -abs(most), abs(most), key=key))
        self._flip_probs = {
            axis: probability(prob, f"flip_prob_{axis}") for axis, prob in (("x", flip_prob_x), ("y", flip_prob_y))
        }
        for axis, prob in self._flip_probs.items():
            if prob > 0:
                self.draws.append(UniformDraw(f"flip_{axis}", 0.0, 1.0, key=key))
        may_flip = any(self._flip_probs.values())
        if may_flip and self._names["orientation"] and self._rotation_axis not in (None, _UP):
            raise SettingError(
                "Orientations about the x or y axis cannot be mirrored: `rotation_axis` must be 2 (or None) with "
                f"`flip_prob_x` or `flip_prob_y`, got {rotation_axis!r}."
            )

    reads_pixels = False

    def fields_used(self, data_empty: SampleDataGroup) -> FieldUse:
        """All fields that are named, if there is a motion."""
        if not self.draws:
            return FieldUse([])
        return FieldUse([*dict.fromkeys(path for kind in self._names for path in self._paths(data_empty, kind))])

    def _paths(self, data: SampleDataGroup, kind: str) -> list[FieldPath]:
        """Paths of the fields of a kind; of names that were left out, those in groups of a driving sample."""
        paths = find_paths(data, [*dict.fromkeys(self._names[kind])])
        if kind not in self._are_left_out:
            return paths
        of_boxes = kind in ("points", "velocities", "sizes", "orientation")
        return [
            path
            for path in paths
            if not of_boxes or path[-1] == "future_positions" or "yaws" in _names_beside(data, path)
        ]

    @np.errstate(all="ignore")  # which DALI does
    def arrays(self, data: SampleDataGroup) -> SampleDataGroup:
        """See `ArrayStep.arrays`."""
        if not self.draws:
            return data
        motion = self._drawn_motion()
        for kind in self._names:
            for path in self._paths(data, kind):
                with naming_field(path):
                    data.set_item_in_path(path, motion.applied(kind, data.get_item_in_path(path)))
        return data

    def _drawn_motion(self) -> _Motion:
        drawn: dict[str, Any] = {draw.name: self.draw(draw.name) for draw in self.draws}
        signs = np.ones(3)
        for place, (axis, prob) in enumerate(self._flip_probs.items()):
            if prob > 0 and drawn[f"flip_{axis}"] < np.float32(prob):
                signs[place] = -1
        angle_rad, scale = drawn.get("angle"), np.float64(drawn.get("scale", 1.0))
        rigid = np.eye(3) if angle_rad is None else _rotation(float(angle_rad), self._rotation_axis or 0)
        rigid = rigid * signs  # a rotation, perhaps mirrored: its inverse is its transpose
        shift = np.array([drawn.get(f"translation_{axis}", 0.0) for axis in "xyz"], np.float64)
        return _Motion(rigid * scale, rigid.T / scale, shift, scale, float(angle_rad or 0), signs)

    def format_after(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        """See `ArrayStep.format_after`."""
        search = FieldSearch(data_empty, self)
        for kind, names in self._names.items():
            if kind not in self._are_left_out:
                search.find(names, _HOLDS[kind], _REALS, group_of=kind, error_type=ValueError)
                continue
            for path in self._paths(data_empty, kind):
                search.find_at(path, _HOLDS[kind], _REALS)
        if self.draws and self._are_left_out and search.format.get(("map_lines", "points")) is not None:
            search.add("does not follow the transformation: request no `map_lines`", ("map_lines", "points"))
        return search.result()


@attrs.frozen
class _Motion:
    """Transformation of ego coordinates.

    Attributes:
        linear: The first three columns of ``A``, ``(3, 3)`` float64.
        back: Its inverse.
        shift: The last column of ``A``, ``(3,)`` float64.
        scale: Factor.
        angle_rad: Of the rotation.
        signs: -1 for each axis that is mirrored, else 1, ``(3,)``.
    """

    linear: Float64Array
    back: Float64Array
    shift: Float64Array
    scale: np.float64
    angle_rad: float
    signs: Float64Array

    def applied(self, kind: str, values: Array) -> Array:
        """Transform the values of a field; the type stays.

        Raises:
            FieldValueError: They have another shape.
        """
        if kind == "sizes":
            return np.asarray(values * values.dtype.type(self.scale))
        if kind == "orientation":
            return self._turned(values)
        if kind in ("points", "velocities"):
            if not values.ndim or values.shape[-1] != 3:
                raise FieldValueError(f"Points and velocities must be x, y, z, got the shape {values.shape}.")
            moved = _product(values, self.linear.T)
            return (moved + self.shift if kind == "points" else moved).astype(values.dtype)
        is_matrix = values.shape == (4, 4) if "ego" in kind else values.ndim >= 2 and values.shape[-1] == 4
        if not is_matrix:
            rule = "Matrices must be (4, 4)" if "ego" in kind else "Matrices must have 4 columns"
            raise FieldValueError(f"{rule}, got the shape {values.shape}.")
        if kind == "world_to_ego":
            return _product(_homogeneous(self.linear, self.shift), values).astype(values.dtype)
        inverse = _homogeneous(self.back, _product(-self.shift, self.back.T))
        return _product(values, inverse).astype(values.dtype)

    def _turned(self, angles: Array) -> Array:
        turned = self.signs[0] * self.signs[1] * angles.astype(np.float64)
        turned = turned + (math.pi if self.signs[0] < 0 else 0.0) + self.angle_rad  # mirrored along x: pi - o
        turns = np.floor(turned / (2 * math.pi) + 0.5)
        return np.asarray(turned - turns * (2 * math.pi), angles.dtype)


def _names_beside(data: SampleDataGroup, path: FieldPath) -> Sequence[Name]:
    return data.get_parent_of_path(path).contained_top_level_field_names


def _rotation(angle_rad: float, axis: int) -> Float64Array:
    """Make the right-handed rotation about an axis, ``(3, 3)`` float64."""
    one, other = (axis + 1) % 3, (axis + 2) % 3
    cosine, sine = math.cos(angle_rad), math.sin(angle_rad)
    matrix = np.eye(3)
    matrix[[one, one, other, other], [one, other, one, other]] = cosine, -sine, sine, cosine
    return matrix


def _product(left: Array, right: Array) -> Float64Array:
    """Multiply ``(..., k)`` and ``(k, n)``, float64. What is not finite in a row affects no other row."""
    terms = [left[..., place, None] * right[place].astype(np.float64) for place in range(len(right))]
    return functools.reduce(operator.add, terms)


def _homogeneous(linear: Float64Array, shift: Float64Array) -> Float64Array:
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = linear, shift
    return matrix
