# SPDX-License-Identifier: Apache-2.0
"""Turn, scale, shift and mirror the 3D boxes around a vehicle at random."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import attrs
import numpy as np
from nvidia.dali import types

from ...checks import index_in, number_list, number_range, probability
from ...draws.draw_scope import Draws
from ...draws.random_draws import RandomDraw, UniformDraw
from ...errors import FieldValueError, SettingError
from ...operators.functions import Array
from ...operators.point_limits import Float64Array
from ...sample_data import FieldPath, SampleDataGroup
from ...unknown_arguments import explains_unknown_arguments
from ..array_step import ArrayStep, FieldUse
from ..named_fields import FieldSearch, Key, Names, as_names, check_given_once, find_paths
from ..pipeline_step_base import naming_field

_DT = types.DALIDataType
_UP = 2


class EgoMotionStep(ArrayStep):
    """Applies one random transformation of ego coordinates to all fields of a sample that depend on it.

    A derived step says which fields there are of each kind. Kinds, transformation, and the order of random numbers
    are those of `BEVBBoxesTransformer3D`.
    """

    only_in_workers = False
    reads_pixels = False

    kinds: ClassVar = {
        "points": "(N, 3) points",
        "velocities": "(N, 3) velocities",
        "sizes": "(N, 3) sizes",
        "orientation": "(N,) orientations",
        "proj_matrices_and_extrinsics": "(k, 4) projection matrices or extrinsics",
        "ego_to_world": "a (4, 4) matrix",
        "world_to_ego": "a (4, 4) matrix",
    }
    """Kinds of fields, and what the fields hold."""

    types_of_fields: ClassVar = (_DT.FLOAT, _DT.FLOAT64)

    @explains_unknown_arguments
    def __init__(
        self,
        rotation_range: Sequence[float] | None,
        rotation_axis: int | None,
        scaling_range: Sequence[float] | None,
        translation_max_abs: Sequence[float] | None,
        flip_prob_x: float,
        flip_prob_y: float,
        key: Key,
    ) -> None:
        """Set up with the ranges of the random numbers; see `BEVBBoxesTransformer3D`."""
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

    @abstractmethod
    def _paths(self, data: SampleDataGroup, kind: str) -> list[FieldPath]:
        """Get the paths of the fields of a kind, one of ``kinds``."""

    def fields_used(self, data_empty: SampleDataGroup) -> FieldUse:
        """All fields that are named, if there is a motion."""
        if not self.draws:
            return FieldUse([])
        return FieldUse([*dict.fromkeys(path for kind in self.kinds for path in self._paths(data_empty, kind))])

    @np.errstate(all="ignore")  # which DALI does
    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        """See `ArrayStep.arrays`."""
        if not self.draws:
            return data
        motion = self._drawn_motion(draws)
        for kind in self.kinds:
            for path in self._paths(data, kind):
                with naming_field(path):
                    data.set_item_in_path(path, motion.applied(kind, data.get_item_in_path(path)))
        return data

    def _drawn_motion(self, drawn: Draws) -> _Motion:
        signs = np.ones(3)
        for place, (axis, prob) in enumerate(self._flip_probs.items()):
            if prob > 0 and drawn[f"flip_{axis}"] < np.float32(prob):
                signs[place] = -1
        angle_rad, scale = drawn.get("angle", 0.0), np.float64(drawn.get("scale", 1.0))
        # A rotation, perhaps mirrored: its inverse is its transpose.
        rigid = _rotation(float(angle_rad), self._rotation_axis or 0) * signs
        shift = np.array([drawn.get(f"translation_{axis}", 0.0) for axis in "xyz"], np.float64)
        inverse = _homogeneous(rigid.T / scale, _product(-shift, (rigid.T / scale).T))
        return _Motion(_homogeneous(rigid * scale, shift), inverse, scale, float(angle_rad), signs)


class BEVBBoxesTransformer3D(EgoMotionStep):
    """Turns, scales, shifts and mirrors 3D boxes, and all that belongs to them, at random, in ego coordinates.

    One transformation ``A = translation scale rotation mirror``, ``(4, 4)``, is drawn for each group that the step
    is applied to. Every named field, anywhere in the sample, follows it, float32 or float64, any ``N``::

        points          (..., 3)              p' = A p
        velocities      (..., 3)              v' = scale rotation mirror v
        sizes           any shape             d' = scale d
        orientations    any shape, radians    o' = o + angle; if mirrored in x, o is first pi - o,
                                              if in y, -o; in [-pi, pi]
        projections, extrinsics   (k, 4)      P' = P inverse(A), also (..., k, 4)
        ego to world              (4, 4)      E' = E inverse(A)
        world to ego              (4, 4)      W' = A W

    So points fall on the same pixels as before, ``P' p' = P p``, and keep their place in the world,
    ``E' p' = E p``; images do not change, but the vehicle seems to be elsewhere. ``orientations`` are
    angles about the rotation axis. After mirroring, the matrices contain a reflection: they are not rigid motions.
    NaN and infinite values stay, and do not affect other rows.

    The order of random numbers: angle, scale, translation x, y, z, mirror x, mirror y.

    Computed in float64, and rounded to the type of the field at the end.

    Example:
        >>> step = BEVBBoxesTransformer3D(
        ...     "translations", "velocities", "sizes", "orientations", ["lidar2img", "extrinsics"], "ego_to_world",
        ...     "world_to_ego", [-0.3925, 0.3925], 2, [0.95, 1.05], [0.0, 0.0, 0.0], flip_prob_y=0.5,
        ... )
    """

    @explains_unknown_arguments
    def __init__(
        self,
        data_field_names_points: Names | None,
        data_field_names_velocities: Names | None,
        data_field_names_sizes: Names | None,
        data_field_names_orientation: Names | None,
        data_field_names_proj_matrices_and_extrinsics: Names | None,
        data_field_names_ego_to_world: Names | None,
        data_field_names_world_to_ego: Names | None,
        rotation_range: Sequence[float] | None,
        rotation_axis: int | None,
        scaling_range: Sequence[float] | None,
        translation_max_abs: Sequence[float] | None,
        *,
        flip_prob_x: float = 0.0,
        flip_prob_y: float = 0.0,
        key: Key = "sample",
    ) -> None:
        """Create the step.

        Args:
            data_field_names_points: Name or names of the points; None if there are none, here and below.
            data_field_names_velocities: Names of the velocities.
            data_field_names_sizes: Names of the sizes.
            data_field_names_orientation: Names of the orientations.
            data_field_names_proj_matrices_and_extrinsics: Names of the matrices that map from ego coordinates.
            data_field_names_ego_to_world: Names of the matrices from ego to world coordinates.
            data_field_names_world_to_ego: Names of the matrices from world to ego coordinates.
            rotation_range: Least and greatest angle, radians, right-handed; None for no rotation.
            rotation_axis: 0, 1 or 2: the axis (x, y, z) to turn about.
            scaling_range: Least and greatest factor, above 0; None for no scaling.
            translation_max_abs: Greatest magnitude of the translation along x, y and z; None for no translation.
            flip_prob_x: Probability that x changes its sign, in [0, 1].
            flip_prob_y: Probability that y changes its sign: left and right are exchanged, where x is ahead.
            key: Scope in which the draws are constant, see `UniformDraw`.

        Raises:
            SettingError: A name is given for two kinds of fields, a range is not of this form, a rotation has no
                axis, or orientations cannot be mirrored since they are not about the z axis.
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
        self._names = {
            kind: tuple(dict.fromkeys(as_names(given, f"data_field_names_{kind}")))
            for kind, given in names.items()
        }
        check_given_once(sum(self._names.values(), ()))
        super().__init__(
            rotation_range, rotation_axis, scaling_range, translation_max_abs, flip_prob_x, flip_prob_y, key
        )
        may_flip = any(self._flip_probs.values())
        if may_flip and self._names["orientation"] and self._rotation_axis not in (None, _UP):
            raise SettingError(
                "Orientations about the x or y axis cannot be mirrored: `rotation_axis` must be 2 (or None) with "
                f"`flip_prob_x` or `flip_prob_y`, got {rotation_axis!r}."
            )

    def _paths(self, data: SampleDataGroup, kind: str) -> list[FieldPath]:
        return find_paths(data, self._names[kind])

    def format_after(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        """See `ArrayStep.format_after`."""
        search = FieldSearch(data_empty, self)
        for kind, names in self._names.items():
            search.find(names, self.kinds[kind], self.types_of_fields, group_of=kind, error_type=ValueError)
        return search.result()


@attrs.frozen
class _Motion:
    """Transformation of ego coordinates.

    Attributes:
        matrix: ``A``, ``(4, 4)`` float64.
        inverse: Its inverse.
        scale: Factor.
        angle_rad: Of the rotation.
        signs: -1 for each axis that is mirrored, else 1, ``(3,)``.
    """

    matrix: Float64Array
    inverse: Float64Array
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
            moved = _product(values, self.matrix[:3, :3].T)
            return (moved + self.matrix[:3, 3] if kind == "points" else moved).astype(values.dtype)
        is_matrix = values.shape == (4, 4) if "ego" in kind else values.ndim >= 2 and values.shape[-1] == 4
        if not is_matrix:
            rule = "Matrices must be (4, 4)" if "ego" in kind else "Matrices must have 4 columns"
            raise FieldValueError(f"{rule}, got the shape {values.shape}.")
        is_left = kind == "world_to_ego"
        return (_product(self.matrix, values) if is_left else _product(values, self.inverse)).astype(values.dtype)

    def _turned(self, angles: Array) -> Array:
        turned = self.signs[0] * self.signs[1] * angles.astype(np.float64)
        turned = turned + (math.pi if self.signs[0] < 0 else 0.0) + self.angle_rad  # mirrored along x: pi - o
        turns = np.floor(turned / (2 * math.pi) + 0.5)
        return np.asarray(turned - turns * (2 * math.pi), angles.dtype)


def _rotation(angle_rad: float, axis: int) -> Float64Array:
    """Make the right-handed rotation about an axis, ``(3, 3)`` float64."""
    one, other = (axis + 1) % 3, (axis + 2) % 3
    cosine, sine = math.cos(angle_rad), math.sin(angle_rad)
    matrix = np.eye(3)
    matrix[[one, one, other, other], [one, other, one, other]] = cosine, -sine, sine, cosine
    return matrix


def _product(left: Array, right: Array) -> Float64Array:
    """Multiply ``(..., k)`` and ``(k, n)``, float64. What is not finite in a row affects no other row."""
    product: Float64Array = (left[..., None] * right.astype(np.float64)).sum(axis=-2)
    return product


def _homogeneous(linear: Float64Array, shift: Float64Array) -> Float64Array:
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = linear, shift
    return matrix
