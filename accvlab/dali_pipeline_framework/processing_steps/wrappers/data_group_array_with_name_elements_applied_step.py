# SPDX-License-Identifier: Apache-2.0
"""Apply a step to the elements of all group arrays of a name."""

from __future__ import annotations

from ...checks import flag
from ...errors import NameTypeError
from ...sample_data import FormatProblem, SampleDataGroup, format_error
from ...sample_data.names import Name
from ..pipeline_step_base import PipelineStepBase
from .data_group_array_in_path_elements_applied_step import is_group_array
from .group_to_apply_to_selected_step_base import GroupToApplyToSelectedStepBase, group_names_hint


class DataGroupArrayWithNameElementsAppliedStep(GroupToApplyToSelectedStepBase):
    """Applies a step to each element of each data group field array, anywhere in the sample, of a name.

    No such array, or something else of that name, is a format problem (`ValueError`).
    """

    def __init__(
        self,
        processing_step_to_apply: PipelineStepBase,
        name_of_arrays_to_apply_to: Name,
        check_minimum_one_name_match: bool = True,
    ) -> None:
        """Wrap a step.

        Args:
            processing_step_to_apply: The step.
            name_of_arrays_to_apply_to: The name.
            check_minimum_one_name_match: Whether it is a problem when there is no array of that name.

        Raises:
            NameTypeError: The name is neither a str nor an int.
        """
        super().__init__(processing_step_to_apply)
        if not isinstance(name_of_arrays_to_apply_to, str | int) or isinstance(name_of_arrays_to_apply_to, bool):
            raise NameTypeError(
                f"`name_of_arrays_to_apply_to` must be a single name (str or int), "
                f"got {name_of_arrays_to_apply_to!r}."
            )
        self._name_of_arrays_to_apply_to = name_of_arrays_to_apply_to
        self._check_minimum_one_name_match = flag(check_minimum_one_name_match, "check_minimum_one_name_match")

    def _check_and_get_paths_to_apply_to(self, data: SampleDataGroup) -> list[tuple[Name, ...]]:
        name = self._name_of_arrays_to_apply_to
        arrays = data.find_all_occurrences(name)
        problems = [
            FormatProblem("must be a data group field array to apply a step to its elements", path)
            for path in arrays
            if not is_group_array(data, path)
        ]
        if not arrays and self._check_minimum_one_name_match:
            hint = group_names_hint([name], data)
            problems.append(FormatProblem(f"No data group field array with the name {name!r} exists.{hint}"))
        if problems:
            raise format_error(problems, f"{type(self).__name__} cannot select its groups:")
        return [(*path, index) for path in arrays for index in range(len(data.get_item_in_path(path)))]
