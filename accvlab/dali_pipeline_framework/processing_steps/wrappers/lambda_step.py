# SPDX-License-Identifier: Apache-2.0
"""Run a user's own operators of DALI as a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nvidia.dali import types

from ...operators import functions
from ...sample_data import ImageContent, SampleDataGroup
from ...sample_data.names import Name, Path
from .function_step import FunctionStep, contents_of, paths_of, types_of


class LambdaStep(FunctionStep):
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
        outputs = types_of(output_types)
        contents = contents_of(output_contents, outputs, "output_types")
        super().__init__(function, paths_of(input_names, "input_names"), outputs, contents)

    declare_images = FunctionStep.declare_images

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        results = self._function(*[data.get_item_in_path(path) for path in self._inputs])
        nodes = self._checked_results(results, "node", functions.is_node)
        self._declare(data)
        for path, node in zip(self._outputs, nodes):  # noqa: B905 (DALI's conditionals know no `strict`)
            data.set_item_in_path(path, node)
        return data
