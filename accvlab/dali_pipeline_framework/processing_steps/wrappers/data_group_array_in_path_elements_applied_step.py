# SPDX-License-Identifier: Apache-2.0
"""Apply a step to the elements of the group array at a path."""

from __future__ import annotations

from ...sample_data import FormatProblem, SampleDataGroup, format_error
from ...sample_data.names import Name, Path, normalized_path
from ..pipeline_step_base import PipelineStepBase
from .group_to_apply_to_selected_step_base import GroupToApplyToSelectedStepBase


class DataGroupArrayInPathElementsAppliedStep(GroupToApplyToSelectedStepBase):
    """Applies a step to each element of the data group field array at a path.

    A path that does not lead to such an array is a format problem (`ValueError`).
    """

    def __init__(self, processing_step_to_apply: PipelineStepBase, path_to_array_to_apply_to: Path) -> None:
        """Wrap a step.

        Args:
            processing_step_to_apply: The step.
            path_to_array_to_apply_to: Name or sequence of names; the empty sequence is the whole sample.
        """
        super().__init__(processing_step_to_apply)
        self._path_to_array_to_apply_to = normalized_path(path_to_array_to_apply_to)

    @property
    def treats_elements_alike(self) -> bool:  # type: ignore[override]
        """Whether the step that it applies does, and the path does not lead through single elements."""
        names_element = any(isinstance(name, int) for name in self._path_to_array_to_apply_to)
        return super().treats_elements_alike and not names_element

    def _check_and_get_paths_to_apply_to(self, data: SampleDataGroup) -> list[tuple[Name, ...]]:
        path = self._path_to_array_to_apply_to
        if not is_group_array(data, path):
            found = "is not one" if data.path_exists(path) else "does not exist"
            problem = FormatProblem(
                f"must be a data group field array to apply a step to its elements, but {found}", path
            )
            raise format_error([problem], f"{type(self).__name__} cannot select its groups:")
        return [(*path, index) for index in range(len(data.get_item_in_path(path)))]


def is_group_array(data: SampleDataGroup, path: tuple[Name, ...]) -> bool:
    """Whether a path exists and leads to a data group field array."""
    if not data.path_exists_and_is_data_group_field(path):
        return False
    group: SampleDataGroup = data.get_item_in_path(path)
    return group.is_data_group_field_array()
