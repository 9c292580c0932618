# SPDX-License-Identifier: Apache-2.0
"""Run a user's own function of NumPy arrays as a step."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nvidia.dali import types

from ...draws.draw_scope import checked_draws
from ...draws.random_draws import RandomDraw
from ...errors import SettingError, StepOutputError
from ...sample_data import FieldPath, GroupFormat, ImageContent, SampleDataGroup
from ...sample_data.mappings import encoded
from ...sample_data.names import Name, Path, format_paths
from ...sample_data.value_queries import nested_dictionary
from .array_step import ArrayStep
from .function_step import FunctionStep, contents_of, paths_of, types_of


class MapStep(FunctionStep, ArrayStep):
    """Runs a function of NumPy arrays on fields, where the samples are loaded: NumPy, OpenCV, or anything else.

    It is for arrays what `LambdaStep` is for operators of DALI. The function is called for each sample, with one
    argument per input, and returns one array per output: a single array, or a tuple or list of them. Numbers will
    do where a field is a number. The arrays that it gets are read-only; text is its bytes, uint8.

    Fields are named by their name in the group that the step is applied to, or by their path in it; to do the same
    in many groups, wrap the step, e.g. in `DataGroupArrayWithNameElementsAppliedStep`. As every `ArrayStep`, it
    cannot follow a step that has a form for the graph only. To spawned workers functions of modules go by name,
    lambdas and local functions with what they hold, which must be picklable.

    Without ``input_names`` the function gets the whole group, as nested dicts of arrays (with text as ``str``),
    and returns such dicts. They may be the ones that it got, changed, and must have the fields of the input, and
    those of ``output_types``.

    Example::

        MapStep(np.fliplr, input_names="image")
        MapStep(lambda a, b: (a + b, a - b), input_names=["a", "b"], output_types={"sum": FLOAT, "rest": FLOAT})
        MapStep(brighter, input_names="image", draws=[UniformDraw("gain", 0.5, 1.5)])  # brighter(image, gain=...)
        MapStep(
            read_png,
            input_names="image",
            output_contents={"image": ImageContent(is_encoded=False, layout="HWC", value_range=(0, 255))},
        )
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        input_names: Name | Sequence[Path] | None = None,
        output_types: Mapping[Path, types.DALIDataType] | None = None,
        output_contents: Mapping[Path, ImageContent] | None = None,
        draws: Sequence[RandomDraw] | None = None,
    ) -> None:
        """Create the step.

        Args:
            function: The function.
            input_names: Name of its argument, or a list with the name or path of each: data fields of the group. A
                path is a tuple of names, e.g. ``("cameras", 0, "image")``; a tuple that is not in a list is one of
                names. None: one argument, the whole group.
            output_types: Name or path of each result -> its type, in order. None: the results replace the inputs;
                types, numbers of dimensions, and what is known of images, stay.
            output_contents: Name or path of a result that is an image -> what is known of it, for steps that
                follow. Of other results that ``output_types`` names nothing is known.
            draws: Random draws of the step; the function gets the numbers of each as a keyword argument of its
                name.

        Raises:
            SettingError: The function cannot be called like that, or a type is no type of a field, or something
                else than names and paths was given, or a content is no `ImageContent` or of no output, or a draw
                is none.
        """
        self._draws = checked_draws(() if draws is None else draws, "`draws` must be a list of draws")
        self._is_of_group = input_names is None
        inputs = () if input_names is None else paths_of(input_names, "input_names")
        if not inputs and not self._is_of_group:
            raise SettingError("`input_names` must be a name, or a list of at least one, got none.")
        outputs: dict[FieldPath, types.DALIDataType | None] = dict.fromkeys(inputs)
        if output_types is not None:
            outputs = {**types_of(output_types)}
        if self._is_of_group:
            contents = contents_of(output_contents, None, "output_types")
            outputs = {**dict.fromkeys(contents), **outputs}
        else:
            argument = "input_names" if output_types is None else "output_types"
            contents = contents_of(output_contents, outputs, argument)
        super().__init__(function, inputs, outputs, contents)
        _check_call(function, 1 if self._is_of_group else len(inputs), [*self._draws])

    def declare_draws(self, data_empty: SampleDataGroup) -> Sequence[RandomDraw]:
        """Declare the draws that the step was given."""
        return [*self._draws.values()]

    def _process_arrays(self, data: SampleDataGroup) -> SampleDataGroup:
        numbers = {name: self.draw(name) for name in self._draws}
        if self._is_of_group:
            given = nested_dictionary(data.format, data.get_data())
            values = self._values_of(self._function(given, **numbers), data)
            data.set_data(values)
            return data
        results = self._function(*[data.get_item_in_path(path) for path in self._inputs], **numbers)
        values = self._checked_results(results, "array", _is_value)
        self._declare(data)
        for path, value in zip(self._outputs, values, strict=True):
            data.set_item_in_path(path, value)
        return data

    def _advice_on_types(self, after: GroupFormat, found: Mapping[FieldPath, types.DALIDataType | None]) -> str:
        kept = "Have the function return what is declared, e.g. by `.astype(...)`"
        if None in found.values():
            return f"{kept}."
        declared = dict(zip(after.flat_paths, after.flat_leaves, strict=True))
        named = found if self._is_of_group else {}
        outputs = [path for path, dtype in self._outputs.items() if dtype is not None or not self._is_of_group]
        dtypes = {path: found.get(path) or declared[path].dtype for path in [*outputs, *named]}
        names = {path: repr(path[0] if len(path) == 1 else path).replace("'", '"') for path in dtypes}
        entries = ", ".join(f"{names[path]}: {dtype}" for path, dtype in dtypes.items())
        return f"{kept}, or name the types that it returns: `output_types={{{entries}}}`."

    def _values_of(self, result: Any, data: SampleDataGroup) -> list[Any]:
        """Get the values of a result, a nested dict, in flat order. ``data`` gets the format of the output."""
        self._declare(data)
        found = _flat(result, ())
        paths = data.format.flat_paths
        missing = [path for path in paths if found.get(path) is None]
        unknown = [path for path in found if path not in {*paths}]
        if not isinstance(result, Mapping) or missing or unknown:
            got = f"one without {format_paths(missing)}" if missing else ""
            got = got or f"one with {format_paths(unknown)}, which `output_types` does not name"
            got = got if isinstance(result, Mapping) else type(result).__name__
            raise StepOutputError(
                f"{self!r}: the function must return a dict with all fields of the group; got {got}."
            )
        leaves = zip(paths, data.format.flat_leaves, strict=True)
        return [encoded(found[path], path) if leaf.is_string else found[path] for path, leaf in leaves]


def _flat(values: Any, prefix: FieldPath) -> dict[FieldPath, Any]:
    if not isinstance(values, Mapping):
        return {prefix: values}
    return {path: value for name, child in values.items() for path, value in _flat(child, (*prefix, name)).items()}


def _is_value(value: object) -> bool:
    return value is not None


def _check_call(function: Callable[..., Any], num_inputs: int, draws: Sequence[str]) -> None:
    """Check that a function takes so many arguments, and the draws by name, as far as it tells.

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
