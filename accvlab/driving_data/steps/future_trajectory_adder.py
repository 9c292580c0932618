# SPDX-License-Identifier: Apache-2.0
"""Add where objects and the vehicle go, as steps from frame to frame."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from nvidia.dali import types

from accvlab.dali_pipeline_framework import ArrayStep, SampleDataGroup
from accvlab.dali_pipeline_framework.checks import choice, field_name, number
from accvlab.dali_pipeline_framework.errors import FieldValueError, SettingError
from accvlab.dali_pipeline_framework.extension import (
    FieldSearch,
    Name,
    Names,
    find_paths,
    naming_field,
    no_images,
    put_beside,
    required_names,
)

_DT = types.DALIDataType
_REAL = (_DT.FLOAT, _DT.FLOAT64)
_RIGHT = {"x": (1.0, 0.0), "-x": (-1.0, 0.0), "y": (0.0, 1.0), "-y": (0.0, -1.0)}


class FutureTrajectoryAdder(ArrayStep):
    """Adds the steps that something makes from frame to frame, which of them are known, and a driving command.

    Of future places, as `DrivingProvider` delivers them: of objects ``(N, T, 3)``, beside ``(N, 3)`` present
    ones; or of the vehicle ``(T, 3)``, which is at 0. Beside them, whether each is known, BOOL ``(N, T)`` or
    ``(T,)``. All in the frame of reference of the sample. Added beside them, in x and y, as SparseDrive and UniAD
    take them:

    - the steps, ``(N, T, 2)`` or ``(T, 2)`` float32, meters: ``place[t] - place[t - 1]``, 0 where not known;
    - whether they are known, ``(N, T)`` or ``(T,)`` float32, 1 or 0. From the first unknown place on, no step is;
    - of the vehicle, if ``command_name`` is given, ``(3,)`` float32: 1 for right, left or straight on, by how far
      to the right (``right``) the last known place is, at least ``command_distance`` for a turn.

    Computed in float64. The step works on arrays only.

    Example::

        FutureTrajectoryAdder(
            "future_centers", known_name="is_future_known", present_name="centers",
            offset_name="future_offsets", mask_name="future_mask",
        )
    """

    def __init__(
        self,
        future_names: Names,
        *,
        known_name: Name,
        offset_name: Name,
        mask_name: Name,
        present_name: Name | None = None,
        command_name: Name | None = None,
        right: str = "x",
        command_distance: float = 2.0,
    ) -> None:
        """Create the step.

        Args:
            future_names: Name or names of the future places, anywhere in the sample.
            known_name: Name of what tells which of them are known, beside them.
            offset_name: Name of the steps.
            mask_name: Name of what tells which steps are known.
            present_name: Name of the present places, beside them; None for the vehicle, which is at 0.
            command_name: Name of the command, of the vehicle only; None for no command.
            right: Where right is: "x" in the frame of nuScenes' lidar, "-y" in that of a vehicle whose x is
                ahead; or "-x", "y".
            command_distance: How far to the right or left the last known place is for a turn, meters.

        Raises:
            SettingError: A setting is not of this form, or a command is asked for of objects.
        """
        self._future_names = required_names(future_names, "future_names")
        self._known_name = field_name(known_name, "known_name")
        self._offset_name = field_name(offset_name, "offset_name")
        self._mask_name = field_name(mask_name, "mask_name")
        self._present_name = None if present_name is None else field_name(present_name, "present_name")
        self._command_name = None if command_name is None else field_name(command_name, "command_name")
        self._right = choice(right, "right", tuple(_RIGHT))
        self._command_distance = number(command_distance, "command_distance", above=0)
        if self._command_name is not None and self._present_name is not None:
            raise SettingError("`command_name` is for the vehicle: it does not go with `present_name`.")

    declare_images = no_images

    def _added(self) -> list[tuple[Name, types.DALIDataType, int]]:
        """Name, type and number of axes of what is added."""
        ndim = 1 if self._present_name is None else 2
        added = [(self._offset_name, _DT.FLOAT, ndim + 1), (self._mask_name, _DT.FLOAT, ndim)]
        return added if self._command_name is None else [*added, (self._command_name, _DT.FLOAT, 1)]

    def _process_arrays(self, data: SampleDataGroup) -> SampleDataGroup:
        for path in find_paths(data, self._future_names):
            parent = data.get_parent_of_path(path)
            present = (
                np.zeros(parent[path[-1]].shape[-1:]) if self._present_name is None else parent[self._present_name]
            )
            with naming_field(path):
                values = self._values(parent[path[-1]], parent[self._known_name], present)
            for (name, dtype, ndim), value in zip(self._added(), values, strict=True):
                put_beside(data, path, name, dtype, value.astype(np.float32), ndim)
        return data

    def _values(
        self, future: npt.NDArray[Any], is_known: npt.NDArray[Any], present: npt.NDArray[Any]
    ) -> list[npt.NDArray[np.float64]]:
        num_axes = 2 if self._present_name is None else 3
        shapes = [future.shape, is_known.shape, present.shape]
        wanted = [future.shape, future.shape[:-1], (*future.shape[:-2], *future.shape[-1:])]
        if future.ndim != num_axes or future.shape[-1] < 2 or shapes != wanted:
            raise FieldValueError(
                f"Future places must be {'(T, 3)' if num_axes == 2 else '(N, T, 3)'}, with one flag for each and, "
                f"of objects, one present place for each; got the shapes {', '.join(map(str, shapes))}."
            )
        places = np.concatenate([present[..., np.newaxis, :], future], axis=-2)[..., :2].astype(np.float64)
        mask = np.logical_and.accumulate(is_known, axis=-1)
        offsets = np.where(mask[..., np.newaxis], np.diff(places, axis=-2), 0)
        values = [offsets, mask.astype(np.float64)]
        if self._command_name is not None:
            to_the_right = offsets.sum(axis=0) @ _RIGHT[self._right]
            is_turn = [to_the_right >= self._command_distance, to_the_right <= -self._command_distance]
            values.append(np.array([*is_turn, not any(is_turn)], np.float64))
        return values

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        search = FieldSearch(data_empty, self)
        for path in search.find(self._future_names, "places", _REAL, group_of="future places"):
            search.find_at((*path[:-1], self._known_name), "what is known", (_DT.BOOL,))
            if self._present_name is not None:
                search.find_at((*path[:-1], self._present_name), "present places", _REAL)
            search.add_beside(path, self._added())
        return search.result()
