# SPDX-License-Identifier: Apache-2.0
"""Base class of steps that run a user's function on fields."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from nvidia.dali import types

from ...checks import field_names, shown
from ...errors import SettingError, StepOutputError
from ...sample_data import FieldPath, GroupFormat, ImageContent, SampleDataGroup
from ...sample_data.dtypes import NUMPY_TYPES
from ...sample_data.graph_mode import do_not_convert
from ...sample_data.names import Name, Path
from ..image_use import ImageUse
from ..named_fields import FieldSearch
from ..pipeline_step_base import PipelineStepBase


class FunctionStep(PipelineStepBase):
    """Runs a function on the values of fields, and puts its results into fields of declared types.

    An output that exists gets the declared type and stays at its place; a new one is added at the end of its
    group, which must exist.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        inputs: Sequence[FieldPath],
        outputs: Mapping[FieldPath, types.DALIDataType | None],
        contents: Mapping[FieldPath, ImageContent],
    ) -> None:
        """Set up with the paths of inputs and outputs.

        Args:
            function: The function.
            inputs: Paths of the inputs.
            outputs: Path of each output -> its type; None for a field that exists and keeps its type.
            contents: Path of an output -> what is known of the image in it. Of outputs that keep their type, what
                was known before is known.

        Raises:
            SettingError: The function cannot be called.
        """
        if not callable(function):
            raise SettingError(f"`function` must be callable, got {function!r}.")
        self._function = function
        self._inputs = inputs
        self._outputs = outputs
        self._output_contents = contents

    def declare_images(self, data_empty: SampleDataGroup) -> Sequence[ImageUse]:
        """Declare what is known of the images among the results."""
        return [
            ImageUse(path=path, leaves=self._output_contents.get(path, ImageContent()))
            for path, dtype in self._outputs.items()
            if dtype is not None or path in self._output_contents
        ]

    @do_not_convert
    def _checked_results(self, results: Any, kind: str, is_result: Callable[[Any], bool]) -> list[Any]:
        """Get what the function returned as a list with a result for each output."""
        values = list(results) if isinstance(results, tuple | list) else [results]
        if len(values) != len(self._outputs) or not all(map(is_result, values)):
            names = ", ".join(repr(path[0] if len(path) == 1 else path) for path in self._outputs)
            got = ", ".join(type(value).__name__ for value in values) or "nothing"
            raise StepOutputError(
                f"{self!r}: the function must return one {kind} for each of {names}; got {got}. A "
                f"tuple or list is several results; `output_types` names them."
            )
        return values

    @do_not_convert
    def _declare(self, data: SampleDataGroup) -> None:
        for path, dtype in self._outputs.items():
            group = data.get_item_in_path(path[:-1])
            if not group.has_child(path[-1]):
                group.add_data_field(path[-1], dtype)
            elif dtype is not None or path in self._output_contents:
                kept = group.get_type_of_field(path[-1])
                group.change_type_of_data_and_remove_data(path[-1], kept if dtype is None else dtype)

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        search = FieldSearch(data_empty, self)
        for path in self._inputs:
            found = data_empty.format.get(path)
            if found is None and len(path) == 1:
                search.add_missing(path[0], "inputs of the function")
            elif found is None:
                search.add("there is no such field for the function", path, KeyError)
            elif isinstance(found, GroupFormat):
                search.add("must be a data field for the function, is a group", path)
        for path, dtype in self._outputs.items():
            found = data_empty.format.get(path)
            if isinstance(found, GroupFormat):
                search.add("must be a data field for a result, is a group", path)
            elif found is None and dtype is None and path not in self._inputs:
                search.add("there is no such field for a result that keeps its type", path, KeyError)
            elif not isinstance(data_empty.format.get(path[:-1]), GroupFormat):
                search.add("there is no such group for a result", path[:-1], KeyError)
        search.raise_problems()
        self._declare(data_empty)
        return data_empty


def types_of(output_types: Mapping[Path, types.DALIDataType]) -> dict[FieldPath, types.DALIDataType]:
    """Get ``output_types`` by path.

    Raises:
        SettingError: There is no output, or a type is no type of a field.
    """
    is_mapping = isinstance(output_types, Mapping) and bool(output_types)
    if not is_mapping or any(dtype not in NUMPY_TYPES for dtype in output_types.values()):
        raise SettingError(
            f"`output_types` must be a dict of at least one name and type, got {shown(output_types)}."
        )
    return dict(zip(paths_of([*output_types], "output_types"), output_types.values(), strict=True))


def contents_of(
    contents: Mapping[Path, ImageContent] | None, allowed: Collection[FieldPath] | None, argument: str
) -> dict[FieldPath, ImageContent]:
    """Get ``output_contents`` by path.

    Raises:
        SettingError: Something else was given, or a content for what is not in ``allowed``.
    """
    given = {} if contents is None else contents
    if isinstance(given, Mapping) and all(isinstance(content, ImageContent) for content in given.values()):
        found = dict(zip(paths_of([*given], "output_contents"), given.values(), strict=True))
        if allowed is None or found.keys() <= {*allowed}:
            return found
    raise SettingError(
        f"`output_contents` must be a dict of names in `{argument}` and ImageContent, got {contents!r}."
    )


def paths_of(names: Name | Sequence[Path], argument: str) -> tuple[FieldPath, ...]:
    """Get the paths of a name, or of a list of names and paths.

    Raises:
        SettingError: Something else was given.
    """
    if isinstance(names, list):
        paths = tuple(field_names(name, argument) for name in names)
        if not all(paths):
            raise SettingError(f"`{argument}` must be a name, or a list of names and paths, got {shown(names)}.")
        return paths
    return tuple((name,) for name in field_names(names, argument))
