# SPDX-License-Identifier: Apache-2.0
"""Application of steps to one sample of NumPy arrays, in a worker process or in a notebook, without a graph."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from nvidia.dali import types
from nvidia.dali.data_node import DataNode
from nvidia.dali.pipeline import Pipeline

from ..draws.draw_scope import ArrayDraws, RunningStep, current_group, declared_draws
from ..draws.random_draws import RandomDraw
from ..errors import FieldValueError, NotSupportedError, StepOutputError
from ..sample_data import FieldPath, GroupFormat, LeafFormat, SampleDataGroup
from ..sample_data.conversion import converted
from ..sample_data.dtypes import get_dali_type_for_numpy_type
from ..sample_data.format_problems import describe_difference, described_together
from ..sample_data.graph_mode import do_not_convert
from ..sample_data.names import format_path

_MOST_REMEMBERED = 10_000

if TYPE_CHECKING:
    from .pipeline_step_base import PipelineStepBase


class _Declared(NamedTuple):
    """What a step declares for a format.

    Attributes:
        step: The step; as long as it is here, no other object gets its id.
        before: The format; likewise.
        after: Format that comes out.
        draws: Its random draws, by name.
    """

    step: PipelineStepBase
    before: GroupFormat
    after: GroupFormat
    draws: Mapping[str, RandomDraw]


_Originals: TypeAlias = dict[int, tuple[npt.NDArray[Any], npt.NDArray[Any]]]
"""By the id of a read-only view: the view, which has this id as long as it is here, and the array it shows."""


class ArrayApplication:
    """Applies steps to samples of arrays. What they declare for a format is asked only once.

    The arrays that a step is given are read-only, since others may share them.
    """

    def __init__(self, draws: ArrayDraws | None = None) -> None:
        """Set up with what supplies the draws; None: NumPy's global generator."""
        self._draws = draws or ArrayDraws()
        self._declared: dict[tuple[int, int], _Declared] = {}

    def __call__(self, step: PipelineStepBase, data: SampleDataGroup) -> SampleDataGroup:
        """Apply a step to a sample, or to a group of it.

        Returns:
            The result, in a group of its own. Arrays that the step left alone are the same objects.

        Raises:
            NotSupportedError: The step has no array form.
            StepOutputError: The result is not as declared, or the step has changed an array that it was given.
            Exception: What the step raises.
        """
        declared = self._declaration(step, data)
        given, originals = _read_only(data)
        token = _current.set(self)
        try:
            with RunningStep(step, declared.draws, self._draws):
                result = step._process_arrays(given)
        except Exception as error:
            if isinstance(error, StepOutputError) or not _is_about_read_only(error):
                raise
            raise StepOutputError(
                f"{step!r} changes an array that it was given in place; others may share it. Change a copy "
                f"(`array.copy()`), and set the field to it. ({type(error).__name__}: {error})"
            ) from error
        finally:
            _current.reset(token)
        return self._checked(step, result, declared, originals)

    def _declaration(self, step: PipelineStepBase, data: SampleDataGroup) -> _Declared:
        format = data.format
        key = (id(step), id(format))
        if key not in self._declared:
            if not step.has_array_form:
                raise NotSupportedError(
                    f"{type(step).__name__} cannot be applied to arrays: it has a form for the graph only "
                    f"(`_process`). Run it in a pipeline (see `run_step`)."
                )
            blueprint = SampleDataGroup.from_format(format)
            blueprint.set_apply_mapping(False)
            after = step.check_input_data_format_and_set_output_data_format(blueprint).format
            draws = declared_draws(step, blueprint.get_empty_like_self())
            if len(self._declared) >= _MOST_REMEMBERED:  # a step makes a new format for each sample
                self._declared.clear()
            self._declared[key] = _Declared(step, format, after, draws)
        return self._declared[key]

    def _checked(
        self, step: PipelineStepBase, result: SampleDataGroup, declared: _Declared, originals: _Originals
    ) -> SampleDataGroup:
        require_format(step, require_group(step, result, "_process_arrays"), declared.after, "_process_arrays")
        values = [originals[id(value)][1] if id(value) in originals else value for value in result.get_data()]
        leaves = declared.after.flat_leaves
        problems: list[tuple[FieldPath, str]] = []
        wrong: dict[FieldPath, types.DALIDataType | None] = {}
        for index, (leaf, value) in enumerate(zip(leaves, values, strict=True)):
            if type(value) is np.ndarray and value.dtype is leaf.numpy_dtype and leaf.ndim in (None, value.ndim):
                continue  # the usual case
            array, problem = _as_declared(value, leaf)
            values[index] = array
            if problem:
                path = declared.after.flat_paths[index]
                problems.append(((*current_group(), *path), problem))
                wrong[path] = _type_of(array)
        if problems:
            advice = step._advice_on_types(declared.after, wrong)
            lines = "\n".join(f"  - {text}" for text in described_together(problems))
            raise StepOutputError(f"{step!r} did not produce what it declared:\n{lines}\n{advice}")
        return filled(SampleDataGroup.from_format(declared.after), values)


_current: contextvars.ContextVar[ArrayApplication | None] = contextvars.ContextVar("_current", default=None)


@do_not_convert
def require_group(step: PipelineStepBase, value: SampleDataGroup, method: str) -> SampleDataGroup:
    """Return what a method of a step has returned.

    Raises:
        StepOutputError: It is no group.
    """
    if not isinstance(value, SampleDataGroup):
        got = "None (a missing `return`?)" if value is None else type(value).__name__
        raise StepOutputError(f"{type(step).__name__}.{method} must return a SampleDataGroup, got {got}.")
    return value


@do_not_convert
def require_format(step: PipelineStepBase, result: SampleDataGroup, declared: GroupFormat, method: str) -> None:
    """Refuse a result with another format than the step has declared.

    Raises:
        StepOutputError: It has one.
    """
    if result.format is not declared and not result.format.matches(declared):
        raise StepOutputError(
            f"{step!r} did not produce the format that it declared:\n"
            f"{describe_difference(declared, result.format)}\n"
            f"Make `{method}` and `_check_and_adjust_data_format_input_to_output` agree."
        )


def full_path(path: FieldPath) -> str:
    """Write the path of a field of the group that a step is being applied to, for messages."""
    return format_path((*current_group(), *path))


@contextlib.contextmanager
def naming_field(path: FieldPath) -> Iterator[None]:
    """Let an error about the value of a field, given by its path in the group, name the field."""
    try:
        yield
    except FieldValueError as error:
        raise FieldValueError(f"{full_path(path)}: {error}") from error


@do_not_convert
def holds_arrays(data: SampleDataGroup) -> bool:
    """Whether a step is to be applied to arrays; otherwise a graph is being defined."""
    if _current.get() is not None:
        return True
    values = [value for value in data.get_data() if value is not None]
    has_nodes = any(isinstance(value, DataNode) for value in values)
    return not has_nodes and Pipeline.current() is None and any(isinstance(value, np.ndarray) for value in values)


@do_not_convert
def apply_to_arrays(step: PipelineStepBase, data: SampleDataGroup) -> SampleDataGroup:
    """Apply a step to a sample of arrays: as part of the step that is being applied, or on its own."""
    running = _current.get()
    if running is not None:
        return running(step, data)
    missing = [path for path, value in zip(data.format.flat_paths, data.get_data(), strict=True) if value is None]
    if missing:
        lines = "\n".join(f"  - {text}" for text in described_together((path, "is not set") for path in missing))
        raise FieldValueError(f"{type(step).__name__} can be applied to a filled sample only:\n{lines}")
    return ArrayApplication()(step, data)


def filled(sample: SampleDataGroup, values: Iterable[Any]) -> SampleDataGroup:
    """Fill a sample with values as they are; return it."""
    sample.set_apply_mapping(False)
    sample.set_do_convert(False)
    sample.set_data([*values])
    return sample


def _read_only(data: SampleDataGroup) -> tuple[SampleDataGroup, _Originals]:
    """Get a sample of read-only views, and what they stand for."""
    values: list[Any] = []
    originals: _Originals = {}
    for value in data.get_data():
        if isinstance(value, np.ndarray) and value.flags.writeable:
            view = value.view()
            view.flags.writeable = False
            originals[id(view)] = (view, value)
            value = view
        values.append(value)
    return filled(SampleDataGroup.from_format(data.format), values), originals


def _is_about_read_only(error: Exception) -> bool:
    text = str(error).lower()
    return "read-only" in text or "readonly" in text or "not writeable" in text


def _type_of(value: Any) -> types.DALIDataType | None:
    """Type of the field that could hold a value; None where there is none."""
    try:
        return get_dali_type_for_numpy_type(np.asarray(value).dtype)
    except Exception:  # it decorates another error
        return None


def _as_declared(value: Any, leaf: LeafFormat) -> tuple[Any, str]:
    """Get a value as an array of the declared type, or a problem."""
    dtype = leaf.numpy_dtype
    if value is None:
        return value, "is not set"
    if isinstance(value, bool | int | float | list | tuple):
        try:
            value = converted(value, dtype, ())
        except FieldValueError as error:
            return value, str(error)
    try:
        array = np.asarray(value)
    except Exception as error:
        return value, f"cannot be read as an array: {type(error).__name__}: {error}"
    if array.dtype != dtype:
        return array, f"is declared as {dtype}, got {array.dtype} (shape {array.shape})"
    if leaf.ndim not in (None, array.ndim):
        return array, f"is declared with {leaf.ndim} dimension(s), got {array.ndim} (shape {array.shape})"
    return array, ""
