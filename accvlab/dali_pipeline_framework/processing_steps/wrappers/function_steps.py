# SPDX-License-Identifier: Apache-2.0
"""Steps that apply a function of the user."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from nvidia.dali import types
from nvidia.dali.data_node import DataNode

from ...checks import field_names, shown
from ...draws.draw_scope import Draws, checked_draws
from ...draws.random_draws import RandomDraw
from ...errors import SettingError, StepOutputError
from ...sample_data import FieldPath, GroupFormat, ImageContent, SampleDataGroup
from ...sample_data.dtypes import NUMPY_TYPES
from ...sample_data.graph_mode import do_not_convert
from ...sample_data.names import Name, Path
from ...unknown_arguments import explains_unknown_arguments
from ..array_step import ArrayStep
from ..image_use import ImageUse
from ..named_fields import FieldSearch
from ..pipeline_step_base import PipelineStepBase


class FunctionStep(PipelineStepBase):
    """Runs a function on the values of fields, and puts its results into fields of declared types.

    An output that exists gets the declared type and stays at its place; a new one is added at the end of its
    group, which must exist.
    """

    @explains_unknown_arguments
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
    def _set_results(self, data: SampleDataGroup, results: Any, kind: str, cls: type = object) -> SampleDataGroup:
        """Set the outputs to what the function returned."""
        values = list(results) if isinstance(results, tuple | list) else [results]
        is_result = [isinstance(value, cls) and value is not None for value in values]
        if len(values) != len(self._outputs) or not all(is_result):
            names = ", ".join(repr(path[0] if len(path) == 1 else path) for path in self._outputs)
            got = ", ".join(type(value).__name__ for value in values) or "nothing"
            raise StepOutputError(
                f"{self!r}: the function must return one {kind} for each of {names}; got {got}. A "
                f"tuple or list is several results; `output_types` names them."
            )
        self._declare(data)
        for path, value in zip(self._outputs, values, strict=True):
            data.set_item_in_path(path, value)
        return data

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
        for path in self._outputs:
            found = data_empty.format.get(path)
            if isinstance(found, GroupFormat):
                search.add("must be a data field for a result, is a group", path)
            elif not isinstance(data_empty.format.get(path[:-1]), GroupFormat):
                search.add("there is no such group for a result", path[:-1], KeyError)
        search.raise_problems()
        self._declare(data_empty)
        return data_empty


def types_of(output_types: Mapping[Path, types.DALIDataType]) -> dict[FieldPath, types.DALIDataType]:
    """Get ``output_types`` by path.

    Raises:
        SettingError: There is no output, or a type is not a type of a field.
    """
    is_mapping = isinstance(output_types, Mapping) and bool(output_types)
    if not is_mapping or any(dtype not in NUMPY_TYPES for dtype in output_types.values()):
        raise SettingError(
            f"`output_types` must be a dict of at least one name and type, got {shown(output_types)}."
        )
    return dict(zip(paths_of([*output_types], "output_types"), output_types.values(), strict=True))


def contents_of(
    contents: Mapping[Path, ImageContent] | None, allowed: Collection[FieldPath], argument: str
) -> dict[FieldPath, ImageContent]:
    """Get ``output_contents`` by path.

    Raises:
        SettingError: Something else was given, or a content for what is not in ``allowed``.
    """
    given = {} if contents is None else contents
    if isinstance(given, Mapping) and all(isinstance(content, ImageContent) for content in given.values()):
        found = dict(zip(paths_of([*given], "output_contents"), given.values(), strict=True))
        if found.keys() <= {*allowed}:
            return found
    raise SettingError(
        f"`output_contents` must be a dict of names in `{argument}` and ImageContent, got {contents!r}."
    )


def paths_of(names: Name | Sequence[Path], argument: str) -> tuple[FieldPath, ...]:
    """Get the path of a name, or the paths of a list of names and paths.

    Raises:
        SettingError: Something else was given.
    """
    if isinstance(names, list):
        paths = tuple(field_names(name, argument) for name in names)
        if not all(paths):
            raise SettingError(f"`{argument}` must be a name, or a list of names and paths, got {shown(names)}.")
        return paths
    return tuple((name,) for name in field_names(names, argument))


class LambdaStep(FunctionStep):
    """Runs a function of operators on fields, and puts the results into fields of declared types.

    The function is called once, while the graph is defined, with one node per input, and returns one node per
    output (a single node, or a tuple or list). Fields are named by their name in the group that the step is
    applied to, or by their path in it; to do the same in many groups, wrap the step, e.g. by `for_each`.

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

    @explains_unknown_arguments
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
                path is a tuple of names, e.g. ``("cameras", 0, "image")``; a tuple that is not in a list is taken
                as several names, not as a path.
            output_types: Name or path of each result -> its type, in order.
            output_contents: Name or path of a result that is an image -> what is known of it, for steps that
                follow. Nothing is known of other results.

        Raises:
            SettingError: The function cannot be called, or there is no output, or a type is not a type of a field,
                or something other than names and paths was given, or a content is not an `ImageContent` or belongs
                to no output.
        """
        outputs = types_of(output_types)
        contents = contents_of(output_contents, outputs, "output_types")
        super().__init__(function, paths_of(input_names, "input_names"), outputs, contents)

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        results = self._function(*[data.get_item_in_path(path) for path in self._inputs])
        return self._set_results(data, results, "node", DataNode)


class MapStep(FunctionStep, ArrayStep):
    """Runs a function of NumPy arrays on fields, where the samples are loaded: NumPy, OpenCV, or anything else.

    It is for arrays what `LambdaStep` is for operators of DALI. The function is called for each sample, with one
    argument per input, and returns one array per output: a single array, or a tuple or list of them. A result
    without axes may be a number. The arrays that it gets are read-only; text is a ``str``.

    Fields are named by their name in the group that the step is applied to, or by their path in it; to do the same
    in many groups, wrap the step, e.g. by `for_each`. It runs in the workers only, so it cannot follow a step that
    has a form for the graph only. Functions of modules are sent to spawned workers by name, lambdas and local
    functions with their variables, which must be picklable.

    Example::

        MapStep(np.fliplr, input_names="image")
        MapStep(lambda a, b: (a + b, a - b), input_names=["a", "b"], output_types={"sum": FLOAT, "rest": FLOAT})
        MapStep(brighter, input_names="image", draws=[UniformDraw("gain", 0.5, 1.5)])  # brighter(image, gain=...)
        MapStep(
            read_png,
            input_names="image",
            output_contents={"image": ImageContent(is_encoded=False, layout="HWC")},
        )
    """

    @explains_unknown_arguments
    def __init__(
        self,
        function: Callable[..., Any],
        *,
        input_names: Name | Sequence[Path],
        output_types: Mapping[Path, types.DALIDataType] | None = None,
        output_contents: Mapping[Path, ImageContent] | None = None,
        draws: Sequence[RandomDraw] | None = None,
    ) -> None:
        """Create the step.

        Args:
            function: The function.
            input_names: Name of its argument, or a list with the name or path of each: data fields of the group. A
                path is a tuple of names, e.g. ``("cameras", 0, "image")``; a tuple that is not in a list is taken
                as several names, not as a path.
            output_types: Name or path of each result -> its type, in order. None: the results replace the inputs;
                types, numbers of dimensions, and declared contents of images stay.
            output_contents: Name or path of a result that is an image -> its content, for later steps. The
                contents of other results in ``output_types`` are unknown.
            draws: Random draws of the step; the function gets the numbers of each as a keyword argument of its
                name.

        Raises:
            SettingError: The function cannot be called like that, or a type is not a type of a field, or something
                other than names and paths was given, or a content is not an `ImageContent` or belongs to no
                output, or ``draws`` has something other than draws.
        """
        checked = checked_draws(() if draws is None else draws, "`draws` must be a list of draws")
        self.draws = [*checked.values()]
        inputs = paths_of(input_names, "input_names")
        if not inputs:
            raise SettingError("`input_names` must be a name, or a list of at least one, got none.")
        outputs: dict[FieldPath, types.DALIDataType | None] = dict.fromkeys(inputs)
        if output_types is not None:
            outputs = {**types_of(output_types)}
        argument = "input_names" if output_types is None else "output_types"
        super().__init__(function, inputs, outputs, contents_of(output_contents, outputs, argument))
        _check_call(function, len(inputs), [*checked])

    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        """See `ArrayStep.arrays`."""
        results = self._function(*[data.get_item_in_path(path) for path in self._inputs], **draws)
        return self._set_results(data, results, "array")

    def _advice_on_types(self, after: GroupFormat, found: Mapping[FieldPath, types.DALIDataType | None]) -> str:
        kept = "Have the function return what is declared, e.g. by `.astype(...)`"
        if None in found.values():
            return f"{kept}."
        dtypes = {path: found.get(path) or after.leaves[path].dtype for path in self._outputs}
        names = {path: repr(path[0] if len(path) == 1 else path).replace("'", '"') for path in dtypes}
        entries = ", ".join(f"{names[path]}: {dtype}" for path, dtype in dtypes.items())
        return f"{kept}, or name the types that it returns: `output_types={{{entries}}}`."


def _check_call(function: Callable[..., Any], num_inputs: int, draws: Sequence[str]) -> None:
    """Check that a function takes this number of arguments, and the draws by name, if its signature is known.

    Raises:
        SettingError: It does not.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # some of those that are written in C
    try:
        signature.bind(*[None] * num_inputs, **dict.fromkeys(draws))
    except TypeError as error:
        keywords = f" and {', '.join(draws)} by name" if draws else ""
        raise SettingError(
            f"`function` must take {num_inputs} argument(s){keywords}, which {function!r} does not: {error}."
        ) from None
