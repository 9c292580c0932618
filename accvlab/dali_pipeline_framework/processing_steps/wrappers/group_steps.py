# SPDX-License-Identifier: Apache-2.0
"""Steps that apply another step to groups selected by path or name."""

from __future__ import annotations

import difflib
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import attrs

from ...checks import flag, listed
from ...draws.draw_scope import Draws, in_group
from ...errors import FormatError, NameTypeError, SettingError
from ...sample_data import FieldPath, FormatProblem, SampleDataGroup, format_error
from ...sample_data.graph_mode import do_not_convert
from ...sample_data.names import Name, Path, normalized_path
from ...unknown_arguments import explains_unknown_arguments
from ..pipeline_step_base import PipelineStepBase


def _of_wrapped(name: str) -> Any:
    """Make a property that has the value of the inner step."""
    return property(lambda self: getattr(self.inner_step, name))


def _names_element(path: Sequence[Name]) -> bool:
    """Whether a path leads through single elements of arrays."""
    return any(isinstance(name, int) for name in path)


class GroupToApplyToSelectedStepBase(PipelineStepBase):
    """Applies a step to each of the selected groups, as if the group were the whole sample.

    The groups are processed one by one: random draws of the step differ between them, unless their key says that
    groups share them. A group below another selected group is part of that one and is not processed a second time.
    """

    @explains_unknown_arguments
    def __init__(self, processing_step_to_apply: PipelineStepBase) -> None:
        """Wrap a step.

        Raises:
            SettingError: It is not a `PipelineStepBase`.
        """
        if not isinstance(processing_step_to_apply, PipelineStepBase):
            raise SettingError(
                f"`processing_step_to_apply` must be a PipelineStepBase, got {processing_step_to_apply!r}."
            )
        self._processing_step_to_apply = processing_step_to_apply

    @property
    def inner_step(self) -> PipelineStepBase:
        """The step that is applied to the groups."""
        return self._processing_step_to_apply

    # A class that selects single elements by number must say no to the first one.
    treats_elements_alike = _of_wrapped("treats_elements_alike")
    has_graph_form = _of_wrapped("has_graph_form")
    has_array_form = _of_wrapped("has_array_form")
    array_form_needs = _of_wrapped("array_form_needs")
    prefers_arrays = _of_wrapped("prefers_arrays")
    image_tolerance = _of_wrapped("image_tolerance")

    @abstractmethod
    def _check_and_get_paths_to_apply_to(self, data: SampleDataGroup) -> Sequence[FieldPath]:
        """Get the paths of the selected groups.

        Raises:
            ValueError: The selection does not fit the format.
        """

    def _refuse(self, problems: Sequence[FormatProblem], what: str = "groups") -> None:
        if problems:
            raise format_error(problems, f"{type(self).__name__} cannot select its {what}:")

    @do_not_convert
    def _selected_paths(self, data: SampleDataGroup) -> list[FieldPath]:
        paths = dict.fromkeys(self._check_and_get_paths_to_apply_to(data))
        return [path for path in paths if not any(path[:end] in paths for end in range(len(path)))]

    reads_pixels = False  # the step that it applies declares its own

    def why_on_arrays(self, data_empty: SampleDataGroup, has_gpu: bool) -> str:
        """Why the step that it applies must run in the workers, for the first group for which it must."""
        groups = map(data_empty.get_item_in_path, self._selected_paths(data_empty))
        return next(filter(None, (self.inner_step.why_on_arrays(group, has_gpu) for group in groups)), "")

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        for path in self._selected_paths(data):
            with in_group(path):
                processed = self.inner_step(data.get_item_in_path(path))
            if not path:
                return processed
            data.change_type_of_data_and_remove_data(path, processed)
            data.set_item_in_path(path, processed)
        return data

    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        """Apply the step to the groups of a sample of arrays; it gets its own draws."""
        return self._process(data)

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        problems: list[FormatProblem] = []
        first_error: Exception | None = None
        step = self.inner_step
        for path in self._selected_paths(data_empty):
            selected = data_empty.get_item_in_path(path)
            try:
                with in_group(path):
                    processed = step.check_input_data_format_and_set_output_data_format(selected)
            except Exception as error:  # steps of users refuse formats by any exception
                problems += _problems_below(path, error)
                first_error = first_error or error
                continue
            if not path:
                return processed
            data_empty.change_type_of_data_and_remove_data(path, processed)
        if problems:
            cause = None if isinstance(first_error, FormatError) else first_error
            text = f"{type(step).__name__} cannot be applied to the selected groups:"
            raise format_error(problems, text) from cause
        return data_empty


def _problems_below(path: FieldPath, error: Exception) -> list[FormatProblem]:
    if isinstance(error, FormatError) and error.problems:
        return [
            attrs.evolve(problem, path=(*path, *(problem.path or ())), step=None) for problem in error.problems
        ]
    return [FormatProblem(str(error), path, error_type=type(error))]


def group_names_hint(sought: Sequence[Name], data: SampleDataGroup) -> str:
    """Suggest groups of a sample for names that do not occur; starts with a blank."""
    known = sorted({name for path in data.format.flat_paths for name in path[:-1] if isinstance(name, str)})
    close = [match for name in sought for match in difflib.get_close_matches(str(name), known, 1)]
    meant = f" Did you mean {', '.join(map(repr, close))}?" if close else ""
    return f"{meant} Groups: {listed(map(repr, known))}."


class DataGroupArrayInPathElementsAppliedStep(GroupToApplyToSelectedStepBase):
    """Applies a step to each element of the data group field array at a path.

    A path that does not lead to such an array is a format problem (`ValueError`).
    """

    @explains_unknown_arguments
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
        return super().treats_elements_alike and not _names_element(self._path_to_array_to_apply_to)

    def _check_and_get_paths_to_apply_to(self, data: SampleDataGroup) -> list[tuple[Name, ...]]:
        path = self._path_to_array_to_apply_to
        if not is_group_array(data, path):
            found = "is not one" if data.path_exists(path) else "does not exist"
            message = f"must be a data group field array to apply a step to its elements, but {found}"
            self._refuse([FormatProblem(message, path)])
        return [(*path, index) for index in range(len(data.get_item_in_path(path)))]


def is_group_array(data: SampleDataGroup, path: tuple[Name, ...]) -> bool:
    """Whether a path exists and leads to a data group field array."""
    group = data.get_item_in_path(path) if data.path_exists(path) else None
    return isinstance(group, SampleDataGroup) and group.is_data_group_field_array()


class DataGroupArrayWithNameElementsAppliedStep(GroupToApplyToSelectedStepBase):
    """Applies a step to each element of each data group field array with the given name, anywhere in the sample.

    It is a format problem (`ValueError`) if there is no such array, or if something else has the name.
    """

    @explains_unknown_arguments
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
        self._refuse(problems)
        return [(*path, index) for path in arrays for index in range(len(data.get_item_in_path(path)))]


def for_each(name_of_arrays_to_apply_to: Name, processing_step_to_apply: PipelineStepBase) -> PipelineStepBase:
    """Apply a step to each element of each array of the given name: short for
    `DataGroupArrayWithNameElementsAppliedStep`.

    Example:
        >>> from accvlab.dali_pipeline_framework import HorizontalFlipper, for_each
        >>> steps = [for_each("cameras", HorizontalFlipper("image", prob=0.5))]
    """
    return DataGroupArrayWithNameElementsAppliedStep(processing_step_to_apply, name_of_arrays_to_apply_to)


class DataGroupInPathAppliedStep(GroupToApplyToSelectedStepBase):
    """Applies a step to the group at a path.

    A path that does not exist, or that leads to a data field, is a format problem (`ValueError`).
    """

    @explains_unknown_arguments
    def __init__(self, processing_step_to_apply: PipelineStepBase, path_to_apply_to: Path) -> None:
        """Wrap a step.

        Args:
            processing_step_to_apply: The step.
            path_to_apply_to: Name or sequence of names; the empty sequence is the whole sample.
        """
        super().__init__(processing_step_to_apply)
        self._path_to_apply_to = normalized_path(path_to_apply_to)

    @property
    def treats_elements_alike(self) -> bool:  # type: ignore[override]
        """Whether the step that it applies does, and the path does not lead through single elements."""
        return super().treats_elements_alike and not _names_element(self._path_to_apply_to)

    def _check_and_get_paths_to_apply_to(self, data: SampleDataGroup) -> list[tuple[Name, ...]]:
        path = self._path_to_apply_to
        if not data.path_exists_and_is_data_group_field(path):
            found = "is a data field" if data.path_exists(path) else "does not exist"
            message = f"must be a data group field to apply a step to, but {found}"
            self._refuse([FormatProblem(message, path)], "group")
        return [path]


class DataGroupsWithNameAppliedStep(GroupToApplyToSelectedStepBase):
    """Applies a step to each group, anywhere in the sample, that has one of the given names.

    It is a format problem (`ValueError`) if no group has any of the names, or if a data field has one.
    """

    @explains_unknown_arguments
    def __init__(
        self,
        processing_step_to_apply: PipelineStepBase,
        names_of_groups_to_apply_to: Name | Sequence[Name],
        check_minimum_one_name_match: bool = True,
    ) -> None:
        """Wrap a step.

        Args:
            processing_step_to_apply: The step.
            names_of_groups_to_apply_to: One name or several.
            check_minimum_one_name_match: Whether it is a problem when no group has one of the names.
        """
        super().__init__(processing_step_to_apply)
        self._names_of_groups_to_apply_to = normalized_path(names_of_groups_to_apply_to)
        self._check_minimum_one_name_match = flag(check_minimum_one_name_match, "check_minimum_one_name_match")

    def _check_and_get_paths_to_apply_to(self, data: SampleDataGroup) -> list[tuple[Name, ...]]:
        names = self._names_of_groups_to_apply_to
        paths = [path for name in names for path in data.find_all_occurrences(name)]
        problems = [
            FormatProblem("must be a data group field to apply a step to, but is a data field", path)
            for path in paths
            if not data.path_exists_and_is_data_group_field(path)
        ]
        if not paths and self._check_minimum_one_name_match:
            sought = listed(map(repr, names))
            hint = group_names_hint(names, data)
            problems.append(FormatProblem(f"No group with one of the names {sought} exists.{hint}"))
        self._refuse(problems)
        return paths
