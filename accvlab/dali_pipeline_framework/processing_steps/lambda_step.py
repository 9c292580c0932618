# SPDX-License-Identifier: Apache-2.0
"""Run a user's own operators of DALI as a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nvidia.dali import types
from nvidia.dali.data_node import DataNode

from ..checks import field_names, shown
from ..errors import SettingError, StepOutputError
from ..sample_data import FieldPath, GroupFormat, ImageContent, Name, Path, SampleDataGroup
from ..sample_data.dtypes import NUMPY_TYPES
from .image_use import ImageUse
from .named_fields import FieldSearch
from .pipeline_step_base import PipelineStepBase


class LambdaStep(PipelineStepBase):
    """Runs a function of operators on fields, and puts the results into fields of declared types.

    The function is called once, while the graph is defined, with one node per input, and returns one node per
    output (a single node, or a tuple or list). Fields are named by their name in the group that the step is
    applied to, or by their path in it; to do the same in many groups, wrap the step, e.g. in
    `DataGroupArrayWithNameElementsAppliedStep`.

    An output that exists gets the declared type and stays at its place; a new one is added at the end of its
    group, which must exist. That the nodes have the declared types cannot be known before a batch has run;
    `internal_helpers.check_type` helps to find out.

    Example::

        LambdaStep(lambda boxes: boxes * 0.5, input_names="boxes", output_types={"boxes": FLOAT})
        LambdaStep(lambda a, b: (a + b, a - b), input_names=["a", "b"], output_types={"sum": FLOAT, "rest": FLOAT})
        LambdaStep(
            lambda image: fn.transpose(image, perm=[2, 0, 1]),
            input_names="image",
            output_types={"image": FLOAT},
            output_contents={"image": ImageContent(is_encoded=False, layout="CHW")},
        )
        LambdaStep(
            lambda image: image[:, 1::2],
            input_names=[("cameras", 0, "image")],
            output_types={("cameras", 0, "half"): UINT8},
        )
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        input_names: Name | Sequence[Path],
        output_types: Mapping[Path, types.DALIDataType],
        output_contents: Mapping[Path, ImageContent] | None = None,
    ) -> None:
        """Create the step.

        Args:
            function: The function.
            input_names: Name of its argument, or a list with the name or path of each: data fields of the group. A
                path is a tuple of names, e.g. ``("cameras", 0, "image")``; a tuple that is not in a list is one of
                names.
            output_types: Name or path of each result -> its type, in order.
            output_contents: Name or path of a result that is an image -> what is known of it, for steps that
                follow. Of other results nothing is known.

        Raises:
            SettingError: The function cannot be called, or there is no output, or a type is no type of a field, or
                something else than names and paths was given, or a content is no `ImageContent` or of no output.
        """
        if not callable(function):
            raise SettingError(f"`function` must be callable, got {function!r}.")
        is_mapping = isinstance(output_types, Mapping) and bool(output_types)
        if not is_mapping or any(dtype not in NUMPY_TYPES for dtype in output_types.values()):
            raise SettingError(
                f"`output_types` must be a dict of at least one name and type, got {shown(output_types)}."
            )
        self._function = function
        self._inputs = _paths(input_names, "input_names")
        self._outputs = dict(zip(_paths(list(output_types), "output_types"), output_types.values(), strict=True))
        contents = {} if output_contents is None else output_contents
        is_of_outputs = isinstance(contents, Mapping) and contents.keys() <= output_types.keys()
        if not is_of_outputs or not all(isinstance(content, ImageContent) for content in contents.values()):
            raise SettingError(
                f"`output_contents` must be a dict of names in `output_types` and ImageContent, got {contents!r}."
            )
        self._output_contents = dict(
            zip(_paths(list(contents), "output_contents"), contents.values(), strict=True)
        )

    def declare_images(self, data_empty: SampleDataGroup) -> Sequence[ImageUse]:
        """Declare what is known of the images among the results."""
        return [
            ImageUse(path=path, leaves=self._output_contents.get(path, ImageContent())) for path in self._outputs
        ]

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        results = self._function(*[data.get_item_in_path(path) for path in self._inputs])
        nodes = list(results) if isinstance(results, tuple | list) else [results]
        self._check_results(nodes)
        self._declare(data)
        for path, node in zip(self._outputs, nodes):  # noqa: B905 (DALI's conditionals know no `strict`)
            data.set_item_in_path(path, node)
        return data

    def _check_results(self, nodes: list[Any]) -> None:
        if len(nodes) != len(self._outputs) or not all(isinstance(node, DataNode) for node in nodes):
            names = ", ".join(repr(path[0] if len(path) == 1 else path) for path in self._outputs)
            got = ", ".join(type(node).__name__ for node in nodes) or "nothing"
            raise StepOutputError(f"{self!r}: the function must return one node for each of {names}; got {got}.")

    def _declare(self, data: SampleDataGroup) -> None:
        for path, dtype in self._outputs.items():
            group = data.get_item_in_path(path[:-1])
            if group.has_child(path[-1]):
                group.change_type_of_data_and_remove_data(path[-1], dtype)
            else:
                group.add_data_field(path[-1], dtype)

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
        for path in self._outputs:
            if isinstance(data_empty.format.get(path), GroupFormat):
                search.add("must be a data field for a result, is a group", path)
            elif not isinstance(data_empty.format.get(path[:-1]), GroupFormat):
                search.add("there is no such group for a result", path[:-1], KeyError)
        search.raise_problems()
        self._declare(data_empty)
        return data_empty


def _paths(names: Name | Sequence[Path], argument: str) -> tuple[FieldPath, ...]:
    if isinstance(names, list):
        paths = tuple(field_names(name, argument) for name in names)
        if not all(paths):
            raise SettingError(f"`{argument}` must be a name, or a list of names and paths, got {shown(names)}.")
        return paths
    return tuple((name,) for name in field_names(names, argument))
