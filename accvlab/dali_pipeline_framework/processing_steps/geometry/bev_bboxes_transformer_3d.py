# SPDX-License-Identifier: Apache-2.0
"""Turn, scale, shift and mirror the 3D boxes around a vehicle at random."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Mapping, Sequence

import attrs
import numpy as np
from nvidia.dali import types

from ...checks import index_in, number_list, number_range, probability
from ...draws.random_draws import RandomDraw, UniformDraw
from ...errors import SettingError
from ...operators import functions
from ...operators.element_selection import exact_constant_like
from ...operators.functions import Value, constant, failing_with, is_node
from ...sample_data import SampleDataGroup
from ...sample_data.graph_mode import do_not_convert
from ..image_use import no_images
from ..named_fields import FieldSearch, Key, Names, as_names, find_paths
from ..pipeline_step_base import PipelineStepBase, naming_field, no_pixels

_DT = types.DALIDataType
_UP = 2
_LAST = np.diag(np.array([0, 0, 0, 1], np.float32))
_HOLDS = {
    "points": "(N, 3) points",
    "velocities": "(N, 3) velocities",
    "sizes": "(N, 3) sizes",
    "orientation": "(N,) orientations",
    "proj_matrices_and_extrinsics": "(k, 4) projection matrices or extrinsics",
    "ego_to_world": "a (4, 4) matrix",
    "world_to_ego": "a (4, 4) matrix",
}


class BEVBBoxesTransformer3D(PipelineStepBase):
    """Turns, scales, shifts and mirrors 3D boxes, and all that belongs to them, at random, in ego coordinates.

    One transformation ``A = translation scale rotation mirror``, ``(4, 4)``, is drawn for what the step is applied
    to. Every field that is named, anywhere in the sample, follows it, float32 in each case, any ``N``::

        points          (N, 3) or (3,)        p' = A p
        velocities      (N, 3) or (3,)        v' = scale rotation mirror v
        sizes           any shape             d' = scale d
        orientations    any shape, radians    o' = o + angle, mirrored as the x axis is; in [-pi, pi]
        projections, extrinsics   (k, 4)      P' = P inverse(A), also (..., k, 4)
        ego to world              (4, 4)      E' = E inverse(A)
        world to ego              (4, 4)      W' = A W

    So points fall on the same pixels as before, ``P' p' = P p``, and keep their place in the world,
    ``E' p' = E p``; images do not change. (What changes is where the vehicle seems to be.) ``orientations`` are
    angles about the rotation axis. After mirroring, the matrices contain a reflection: they are no rigid motions.
    What is not finite stays so, and does not affect other rows.

    The order of random numbers: angle, scale, translation x, y, z, mirror x, mirror y.

    Points, orientations and matrices between ego and world are computed in float64 and rounded at the end. The
    fields may be on the CPU or the GPU.

    Example:
        >>> step = BEVBBoxesTransformer3D(
        ...     "translations", "velocities", "sizes", "orientations", ["lidar2img", "extrinsics"], "ego_to_world",
        ...     "world_to_ego", [-0.3925, 0.3925], 2, [0.95, 1.05], [0.0, 0.0, 0.0], flip_prob_y=0.5,
        ... )
    """

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
            data_field_names_points: Name or names of the points; None for none, here and below.
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
        self._draws: list[RandomDraw] = []
        self._rotation_axis = None if rotation_axis is None else index_in(rotation_axis, "rotation_axis", 3)
        if rotation_range is not None:
            if rotation_axis is None:
                raise SettingError("`rotation_axis` must be 0, 1 or 2 with a `rotation_range`, got None.")
            self._draws.append(UniformDraw("angle", *number_range(rotation_range, "rotation_range"), key=key))
        if scaling_range is not None:
            factors = number_range(scaling_range, "scaling_range", above=0)
            self._draws.append(UniformDraw("scale", *factors, key=key))
        if translation_max_abs is not None:
            limits = number_list(translation_max_abs, "translation_max_abs", "three numbers", count=3)
            for axis, most in zip("xyz", limits, strict=True):
                self._draws.append(UniformDraw(f"translation_{axis}", -abs(most), abs(most), key=key))
        self._flip_probs = {
            axis: probability(prob, f"flip_prob_{axis}") for axis, prob in (("x", flip_prob_x), ("y", flip_prob_y))
        }
        for axis, prob in self._flip_probs.items():
            if prob > 0:
                self._draws.append(UniformDraw(f"flip_{axis}", 0.0, 1.0, key=key))
        may_flip = any(self._flip_probs.values())
        if may_flip and self._names["orientation"] and self._rotation_axis not in (None, _UP):
            raise SettingError(
                "Orientations about the x or y axis cannot be mirrored: `rotation_axis` must be 2 (or None) with "
                f"`flip_prob_x` or `flip_prob_y`, got {rotation_axis!r}."
            )

    def declare_draws(self, data_empty: SampleDataGroup) -> Sequence[RandomDraw]:
        """Declare the parameters of the requested motions."""
        return self._draws

    declare_images = no_images
    declare_pixel_changes = no_pixels

    @do_not_convert
    @np.errstate(all="ignore")  # which DALI does
    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        if not self._draws:
            return data
        motion = self._drawn_motion()
        for kind, names in self._names.items():
            for path in find_paths(data, [*dict.fromkeys(names)]):
                with naming_field(path):
                    data.set_item_in_path(path, motion.applied(kind, data.get_item_in_path(path)))
        return data

    _process_arrays = _process

    def _drawn_motion(self) -> _Motion:
        drawn = {draw.name: self.draw(draw.name) for draw in self._draws}  # in the order of the declaration
        like = next(iter(drawn.values()))
        signs = {
            axis: functions.cast(drawn[f"flip_{axis}"] < np.float32(prob), _DT.FLOAT) * np.float32(-2)
            + np.float32(1)
            for axis, prob in self._flip_probs.items()
            if prob > 0
        }
        angle_rad, scale = drawn.get("angle"), drawn.get("scale")
        if angle_rad is None:
            linear = exact_constant_like(np.eye(3), like)
        else:
            linear = _rotation(angle_rad, self._rotation_axis or 0)
        if signs:
            one = constant(1, like)
            mirror = functions.stack(signs.get("x", one), signs.get("y", one), one)
            linear = linear * functions.reshape(mirror, [1, 3])
        back_columns = linear  # a rotation, perhaps mirrored: its inverse is its transpose
        if scale is not None:
            linear, back_columns = linear * scale, linear / functions.cast(scale, _DT.FLOAT64)
        shift = None
        if "translation_x" in drawn:
            offset = functions.stack(*[drawn[f"translation_{axis}"] for axis in "xyz"])
            shift = functions.reshape(functions.cast(offset, _DT.FLOAT64), [1, 3])
        return _Motion(linear, back_columns, shift, scale, angle_rad, signs)

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        search = FieldSearch(data_empty, self)
        for kind, names in self._names.items():
            search.find(names, _HOLDS[kind], [_DT.FLOAT], group_of=kind, error_type=ValueError)
        return search.result()


@attrs.frozen
class _Motion:
    """Transformation of ego coordinates.

    Attributes:
        linear: The first three columns of ``A``, ``(3, 3)`` float64.
        back_columns: The columns of the inverse of these, as rows, ``(3, 3)`` float64.
        shift: The last column of ``A``, as a row, ``(1, 3)`` float64; None without translation.
        scale: Factor; None without scaling. Likewise the others.
        angle_rad: Of the rotation.
        signs: For each axis that may be mirrored, "x" or "y": -1 for mirrored samples, else 1.
    """

    linear: Value
    back_columns: Value
    shift: Value
    scale: Value
    angle_rad: Value
    signs: Mapping[str, Value]

    @functools.cached_property
    def _matrix(self) -> Value:
        """``A``, ``(4, 4)`` float64."""
        shift = () if self.shift is None else (functions.transpose(self.shift),)
        return _homogeneous(functions.cat(self.linear, *shift, axis=1) if shift else self.linear)

    @functools.cached_property
    def _inverse_columns(self) -> Value:
        """Columns of the inverse of ``A``, as rows, ``(4, 4)`` float64; computed once for all matrices."""
        columns = self.back_columns
        if self.shift is not None:
            shift_back = _rows_times(-self.shift, functions.transpose(columns), 3)
            columns = functions.cat(columns, shift_back, axis=0)
        return _homogeneous(columns)

    @functools.cached_property
    def _inverse_columns_of_float(self) -> Value:
        return functions.cast(self._inverse_columns, _DT.FLOAT)

    def applied(self, kind: str, values: Value) -> Value:
        """Transform the values of a field."""
        if kind == "sizes":
            return values if self.scale is None else values * _on_device_of(values, self.scale)
        if kind == "orientation":
            return self._turned(values)
        if kind == "velocities":
            moved = functions.coord_transform(_vectors(values), M=functions.cast(self.linear, _DT.FLOAT))
        elif kind == "proj_matrices_and_extrinsics":  # their rows times the inverse
            # Fails where there are other columns.
            rule, columns = "matrices must have 4 columns", self._inverse_columns_of_float
            moved = failing_with(rule, functions.coord_transform, values, M=columns)
            # Of a batch without any matrices, DALI forgets the number of columns.
            return functions.reshape(moved, functions.shape_of(values))
        elif kind == "points":
            moved = _rows_times(_vectors(values), _on_device_of(values, self.linear), 3)
            moved = moved if self.shift is None else moved + _on_device_of(values, self.shift)
        elif kind == "ego_to_world":
            moved = _rows_times(values, _on_device_of(values, self._inverse_columns), 4)
        else:
            moved = _rows_times(_on_device_of(values, self._matrix), functions.transpose(values), 4)
        moved = functions.cast(moved, _DT.FLOAT)
        # Fails where vectors have more columns.
        rule = "points and velocities must be x, y, z"
        return failing_with(rule, functions.reshape, moved, shape=functions.shape_of(values))

    def _turned(self, angles: Value) -> Value:
        if not self.signs and self.angle_rad is None:
            return angles
        angles = functions.cast(angles, _DT.FLOAT64)
        for sign in self.signs.values():
            angles = angles * _on_device_of(angles, sign)
        if "x" in self.signs:  # pi - o
            quarter_turn = exact_constant_like(np.array(math.pi / 2), angles)
            angles = angles + (1.0 - _on_device_of(angles, self.signs["x"])) * quarter_turn
        if self.angle_rad is not None:
            angles = angles + _on_device_of(angles, self.angle_rad)
        whole_turn = exact_constant_like(np.array(2 * math.pi), angles)
        turns = functions.floor(angles / whole_turn + 0.5)
        return functions.cast(angles - turns * whole_turn, _DT.FLOAT)


def _rotation(angle_rad: Value, axis: int) -> Value:
    """Make the right-handed rotation about an axis, ``(3, 3)`` float64."""
    angle_rad = functions.cast(angle_rad, _DT.FLOAT64)
    along, across, cross = (np.zeros((3, 3), np.float32) for _ in range(3))
    one, other = (axis + 1) % 3, (axis + 2) % 3
    along[axis, axis] = across[one, one] = across[other, other] = 1
    cross[other, one], cross[one, other] = 1, -1
    return functions.cos(angle_rad) * across + functions.sin(angle_rad) * cross + along


def _vectors(values: Value) -> Value:
    """Reshape ``(N, 3)`` or ``(3,)`` to ``(N, 3)``."""
    # Fails where vectors have fewer columns.
    xyz = failing_with(
        "points and velocities must be x, y, z", functions.slice, values, start=[0], shape=[3], axes=[-1]
    )
    return functions.reshape(xyz, [-1, 3])


def _rows_times(rows: Value, columns: Value, num_terms: int) -> Value:
    """Multiply rows ``(N, num_terms)`` by columns ``(m, num_terms)``: ``(N, m)`` float64."""
    products = functions.expand_dims(rows, [1]) * functions.expand_dims(columns, [0])
    # DALI has no sum of float64.
    return functools.reduce(operator.add, (products[:, :, place] for place in range(num_terms)))


def _homogeneous(matrix: Value) -> Value:
    """Complete ``(3, 3)``, ``(3, 4)`` or ``(4, 3)`` to ``(4, 4)`` by the elements of the identity."""
    padded = functions.slice(matrix, start=[0, 0], shape=[4, 4], axes=[0, 1], out_of_bounds_policy="pad")
    return padded + _LAST


def _on_device_of(values: Value, computed: Value) -> Value:
    """Move what was computed on the CPU to the device of the values."""
    return computed.gpu() if is_node(values) and values.device == "gpu" else computed
