# SPDX-License-Identifier: Apache-2.0
"""Run a user's own operators of DALI as a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nvidia.dali import types
from nvidia.dali.data_node import DataNode

from ..errors import SettingError, StepOutputError
from ..sample_data import GroupFormat, ImageContent, Name, SampleDataGroup
from ..sample_data.dtypes import NUMPY_TYPES
from .image_use import ImageUse
from .named_fields import FieldSearch, as_names
from .pipeline_step_base import PipelineStepBase


class LambdaStep(PipelineStepBase):
    """Runs a function of operators on fields, and puts the results into fields of declared types.

    The function is called once, while the graph is defined, with one node per input, and returns one node per
    output (a single node, or a tuple or list). It is applied to the group that the step is applied to; for groups
    further down, wrap it, e.g. in `DataGroupArrayWithNameElementsAppliedStep`.

    An output that exists gets the declared type and stays at its place; a new one is added at the end. That the
    nodes have the declared types cannot be known before a batch has run; `internal_helpers.check_type` helps to
    find out. Price: that of the operators.

    Example::

        LambdaStep(lambda boxes: boxes * 0.5, ["boxes"], {"boxes": types.DALIDataType.FLOAT})
        LambdaStep(lambda a, b: (a + b, a - b), ["a", "b"], {"sum": FLOAT, "difference": FLOAT})
        LambdaStep(
            lambda image: fn.transpose(image, perm=[2, 0, 1]),
            "image",
            {"image": FLOAT},
            output_contents={"image": ImageContent(is_encoded=False, layout="CHW")},
        )
    """

    def __init__(
        self,
        function: Callable[..., Any],
        input_names: Name | Sequence[Name],
        output_types: Mapping[Name, types.DALIDataType],
        *,
        output_contents: Mapping[Name, ImageContent] | None = None,
    ) -> None:
        """Create the step.

        Args:
            function: The function.
            input_names: Name or names of its arguments: data fields of the group.
            output_types: Name of each result -> its type, in order.
            output_contents: Name of a result that is an image -> what is known of it, for steps that follow. Of
                other results nothing is known.

        Raises:
            SettingError: The function cannot be called, or there is no output, or a type is no type of a field, or
                a content is no `ImageContent` or not of an output.
        """
        if not callable(function):
            raise SettingError(f"`function` must be callable, got {function!r}.")
        wrong = not isinstance(output_types, Mapping) or any(
            dtype not in NUMPY_TYPES for dtype in output_types.values()
        )
        if wrong or not output_types:
            raise SettingError(
                f"`output_types` must be a dict of at least one name and type, got {output_types!r}."
            )
        as_names(list(output_types), "output_types")
        contents = {} if output_contents is None else output_contents
        is_of_outputs = isinstance(contents, Mapping) and contents.keys() <= output_types.keys()
        if not is_of_outputs or not all(isinstance(content, ImageContent) for content in contents.values()):
            raise SettingError(
                f"`output_contents` must be a dict of names in `output_types` and ImageContent, got {contents!r}."
            )
        self._function = function
        self._input_names = as_names(input_names, "input_names")
        self._output_types = dict(output_types)
        self._output_contents = dict(contents)

    def declare_images(self, data_empty: SampleDataGroup) -> Sequence[ImageUse]:
        """Declare what is known of the images among the results."""
        return [
            ImageUse(name, leaves=self._output_contents.get(name, ImageContent()), is_direct=True)
            for name in self._output_types
        ]

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        results = self._function(*[data[name] for name in self._input_names])
        nodes = list(results) if isinstance(results, tuple | list) else [results]
        self._check_results(nodes)
        self._declare(data)
        for name, node in zip(self._output_types, nodes):  # noqa: B905 (DALI's conditionals know no `strict`)
            data[name] = node
        return data

    def _check_results(self, nodes: list[Any]) -> None:
        if len(nodes) != len(self._output_types) or not all(isinstance(node, DataNode) for node in nodes):
            names = ", ".join(map(repr, self._output_types))
            got = ", ".join(type(node).__name__ for node in nodes) or "nothing"
            raise StepOutputError(f"{self!r}: the function must return one node for each of {names}; got {got}.")

    def _declare(self, data: SampleDataGroup) -> None:
        for name, dtype in self._output_types.items():
            if data.has_child(name):
                data.change_type_of_data_and_remove_data(name, dtype)
            else:
                data.add_data_field(name, dtype)

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        search = FieldSearch(data_empty, self)
        top = data_empty.format
        for name in self._input_names:
            if name not in top.index:
                search.add_missing(name, "inputs of the function")
            elif isinstance(top.children[top.index[name]], GroupFormat):
                search.add("must be a data field for the function, is a group", (name,))
        for name in self._output_types:
            if name in top.index and isinstance(top.children[top.index[name]], GroupFormat):
                search.add("must be a data field for a result, is a group", (name,))
        search.raise_problems()
        self._declare(data_empty)
        return data_empty
