# SPDX-License-Identifier: Apache-2.0
"""Base class of processing steps, and their application to samples of arrays."""

from __future__ import annotations

import contextlib
import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import numpy as np
from nvidia.dali import types
from nvidia.dali.data_node import DataNode
from nvidia.dali.pipeline import Pipeline

from ..checks import choice
from ..draws.draw_scope import (
    ArrayDraws,
    Draws,
    RunningStep,
    SampleDraws,
    declared_draws,
    draw_of,
    path_in_sample,
    step_context,
)
from ..draws.random_draws import RandomDraw
from ..errors import FieldValueError, FormatError, NotSupportedError, SettingError, StepOutputError, text_of
from ..operators.deferred_images import DeferredImage
from ..operators.functions import Array
from ..sample_data import FieldPath, FieldValue, GroupFormat, LeafFormat, SampleDataGroup, format_error
from ..sample_data.conversion import converted
from ..sample_data.dtypes import get_dali_type_for_numpy_type
from ..sample_data.formats import ChildFormat, describe_difference, leaf_format
from ..sample_data.graph_mode import do_not_convert
from ..sample_data.names import Name, described_together, format_path
from ..sample_data.sample_data_group import replace_contents
from ..threads import OneThreadOfOpenCv
from .image_use import ImageUse, contents_after, image_problems

_MOST_REMEMBERED = 10_000


class _Declared(NamedTuple):
    """Declarations of a step for a format.

    Attributes:
        step: The step; kept, so that no other object gets its id.
        after: Format that comes out.
        draws: Its random draws, by name.
        deferred: Images whose pixels it changes in the graph, where pixels are deferred.
    """

    step: PipelineStepBase
    after: GroupFormat
    draws: Mapping[str, RandomDraw]
    deferred: Sequence[FieldPath]


_Originals: TypeAlias = dict[int, tuple[Array, Array]]
"""By the id of a read-only view: the view, kept so that it keeps this id, and the array that it shows."""


class ArrayApplication:
    """Applies steps to samples of arrays; gets their declarations once per format.

    The arrays that a step is given are read-only, since others may share them.

    Attributes:
        defers_pixels: Whether the graph changes the pixels of the images: steps get `DeferredImage` objects.
    """

    def __init__(self, draws: ArrayDraws | None = None, *, defers_pixels: bool = False) -> None:
        """Set up with what supplies the draws; None: NumPy's global generator."""
        self.defers_pixels = defers_pixels
        self._draws = draws or ArrayDraws()
        self._declared: dict[tuple[int, GroupFormat], _Declared] = {}

    def __call__(
        self, step: PipelineStepBase, data: SampleDataGroup, draws: Draws | None = None
    ) -> SampleDataGroup:
        """Apply a step to a sample, or to a group of it; ``draws`` has its draws, if they are at hand.

        Returns:
            The result, in a group of its own. Arrays that the step left alone are the same objects.

        Raises:
            NotSupportedError: The step has no array form.
            StepOutputError: The result is not as declared, or the step has changed an array that it was given.
            Exception: What the step raises.
        """
        outer, one_thread = step_context.get(), OneThreadOfOpenCv()
        try:
            return self._applied(step, data, draws, one_thread)
        finally:  # where a signal handler has raised just when an `__exit__` has begun
            step_context.set(outer)
            if one_thread.counted_by is not None:
                one_thread.__exit__()

    def _applied(
        self, step: PipelineStepBase, data: SampleDataGroup, draws: Draws | None, one_thread: OneThreadOfOpenCv
    ) -> SampleDataGroup:
        declared = self._declaration(step, data)
        given, originals = _read_only(data)
        for path in declared.deferred if self.defers_pixels else ():
            image = given.get_item_in_path(path)
            if not isinstance(image, DeferredImage):
                given.set_item_in_path(path, DeferredImage.of(image, path_in_sample(path)))
        try:
            numbers = SampleDraws(step, declared.draws, self._draws) if draws is None else draws
            with RunningStep(step, {}, self._draws, self), one_thread:
                result = step.arrays(given, numbers)
        except StepOutputError:
            raise
        except Exception as error:  # of the step
            misuse = self._misuse_shown_by(error)
            if not misuse:
                raise
            cause = f"({type(error).__name__}: {text_of(error)})"
            raise StepOutputError(f"{type(step).__name__} {misuse} {cause}") from error
        return self._checked(step, result, declared, originals)

    def _misuse_shown_by(self, error: Exception) -> str:
        """Explain an error of a step by its misuse of what it was given; empty for others."""
        text = text_of(error)
        # OpenCV only says that a deferred image is no array.
        if self.defers_pixels and ("DeferredImage" in text or "not a numpy array" in text):
            return (
                "reads a value that stays in the graph: pixels, though `declare_pixel_changes` says that it does "
                "not, or a field that `fields_used` does not name. Return None in the former, or name it in the "
                "latter."
            )
        if any(words in text.lower() for words in ("read-only", "readonly", "not writeable")):
            return (
                "changes an array that it was given in place; others may share it. Change a copy "
                "(`array.copy()`), and set the field to it."
            )
        return ""

    def _declaration(self, step: PipelineStepBase, data: SampleDataGroup) -> _Declared:
        key = (id(step), data.format)
        if key not in self._declared:
            if not step.has_array_form:
                raise NotSupportedError(
                    f"{type(step).__name__} cannot be applied to arrays: it has a form for the graph only "
                    f"(`_process`). Run it in a pipeline (see `run_step`)."
                )
            blueprint = SampleDataGroup.from_format(data.format)
            blueprint.set_apply_mapping(False)
            after = step.check_input_data_format_and_set_output_data_format(blueprint).format
            draws = declared_draws(step, blueprint.get_empty_like_self())
            deferred = [*(step.declare_pixel_changes(blueprint.get_empty_like_self()) or ())]
            if len(self._declared) >= _MOST_REMEMBERED:  # a step makes a new format for each sample
                self._declared.clear()
            self._declared[key] = _Declared(step, after, draws, deferred)
        return self._declared[key]

    def _checked(
        self, step: PipelineStepBase, result: SampleDataGroup, declared: _Declared, originals: _Originals
    ) -> SampleDataGroup:
        require_output(step, result, "arrays", declared.after)
        values = [originals[id(value)][1] if id(value) in originals else value for value in result.get_data()]
        problems: list[tuple[FieldPath, str]] = []
        wrong: dict[FieldPath, types.DALIDataType | None] = {}
        for index, (path, leaf) in enumerate(declared.after.leaves.items()):
            value = values[index]
            if type(value) is np.ndarray and value.dtype is leaf.numpy_dtype and leaf.ndim in (None, value.ndim):
                continue  # the usual case
            values[index], problem = _as_declared(value, leaf, path)
            if problem:
                problems.append((path_in_sample(path), problem))
                wrong[path] = _type_of(values[index])
        if problems:
            advice = step._advice_on_types(declared.after, wrong)
            lines = "\n".join(f"  - {text}" for text in described_together(problems))
            raise StepOutputError(f"{type(step).__name__} did not produce what it declared:\n{lines}\n{advice}")
        return filled(SampleDataGroup.from_format(declared.after), values)


@do_not_convert
def _current_application() -> ArrayApplication | None:
    application = step_context.get().application
    return application if isinstance(application, ArrayApplication) else None


@do_not_convert
def require_output(
    step: PipelineStepBase, value: SampleDataGroup, method: str, declared: GroupFormat | None = None
) -> SampleDataGroup:
    """Require that a method of a step has returned a group, of the declared format if there is one; return it.

    Raises:
        StepOutputError: It has returned something else.
    """
    if not isinstance(value, SampleDataGroup):
        got = "None (a missing `return`?)" if value is None else type(value).__name__
        raise StepOutputError(f"{type(step).__name__}.{method} must return a SampleDataGroup, got {got}.")
    if declared is not None and not value.format.matches(declared):
        raise StepOutputError(
            f"{type(step).__name__} did not produce the format that it declared:\n"
            f"{describe_difference(declared, value.format)}\n"
            f"Make `{method}` and the format method agree."
        )
    return value


def full_path(path: FieldPath) -> str:
    """Format the path in the sample of a field of the current group, for messages."""
    return format_path(path_in_sample(path))


@contextlib.contextmanager
def naming_field(path: FieldPath) -> Iterator[None]:
    """Name a field, given by its path in the group, in errors about its value."""
    try:
        yield
    except FieldValueError as error:
        if str(error).startswith(f"{full_path(path)}: "):
            raise
        raise FieldValueError(f"{full_path(path)}: {error}") from error


@do_not_convert
def _take_format(
    processed: SampleDataGroup, declared: GroupFormat, before: GroupFormat, nodes: Sequence[FieldValue]
) -> None:
    """Set the declared format, with what is known of images that a step that declares nothing has left alone."""
    nodes_before = dict(zip(before.flat_paths, nodes, strict=True))
    left: dict[FieldPath, ChildFormat] = {}
    for (path, leaf), node in zip(declared.leaves.items(), processed.get_data(), strict=True):
        is_left = node is not None and nodes_before.get(path) is node
        if is_left and not leaf.content.is_known and before.leaves[path].dtype == leaf.dtype:
            known = before.leaves[path]
            ndim = known.ndim if leaf.ndim is None else leaf.ndim
            left[path] = leaf_format(leaf.dtype, leaf.mapping, ndim, known.content)
    replace_contents(processed, declared.with_replaced(left))


@do_not_convert
def holds_arrays(data: SampleDataGroup) -> bool:
    """Whether a sample holds arrays; otherwise a graph is being defined."""
    values = [value for value in data.get_data() if value is not None]
    has_nodes = any(isinstance(value, DataNode) for value in values)
    return not has_nodes and Pipeline.current() is None and any(isinstance(value, np.ndarray) for value in values)


@do_not_convert
def apply_to_arrays(step: PipelineStepBase, data: SampleDataGroup) -> SampleDataGroup:
    """Apply a step to a sample of arrays."""
    missing = [path for path, value in zip(data.format.flat_paths, data.get_data(), strict=True) if value is None]
    if missing:
        lines = "\n".join(f"  - {text}" for text in described_together((path, "is not set") for path in missing))
        raise FieldValueError(f"{type(step).__name__} can be applied to a filled sample only:\n{lines}")
    return ArrayApplication()(step, data)


def filled(sample: SampleDataGroup, values: Iterable[Any]) -> SampleDataGroup:
    """Fill a sample with unconverted values; return it."""
    sample.set_apply_mapping(False)
    sample.set_do_convert(False)
    sample.set_data([*values])
    return sample


def _read_only(data: SampleDataGroup) -> tuple[SampleDataGroup, _Originals]:
    """Get a sample of read-only views, and the arrays that they show."""
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


def _type_of(value: Any) -> types.DALIDataType | None:
    """Get the type of a field that could hold a value; None if there is none."""
    try:
        return get_dali_type_for_numpy_type(np.asarray(value).dtype)
    except Exception:  # of any object; it only decorates another error
        return None


def _as_declared(value: Any, leaf: LeafFormat, path: FieldPath) -> tuple[Any, str]:
    """Get a value as an array of the declared type, or a problem; ``path`` is the path of its field."""
    dtype = leaf.numpy_dtype
    if value is None:
        return value, "is not set"
    if isinstance(value, DeferredImage):
        if value.path != path_in_sample(path):
            of = format_path(value.path)
            return value, f"holds the image of {of}: `declare_pixel_changes` of what moves images must return None"
        array: Any = value
    else:
        try:
            is_plain = isinstance(value, bool | int | float | list | tuple)
            array = converted(value, dtype, ()) if is_plain else np.asarray(value)
        except FieldValueError as error:
            return value, str(error)
        except Exception as error:  # an object's own
            return value, f"cannot be read as an array: {type(error).__name__}: {text_of(error)}"
    if array.dtype != dtype:
        return array, f"is declared as {dtype}, got {array.dtype} (shape {array.shape})"
    if leaf.ndim not in (None, array.ndim):
        return array, f"is declared with {leaf.ndim} dimension(s), got {array.ndim} (shape {array.shape})"
    return array, ""


PixelChanges: TypeAlias = Mapping[FieldPath, Mapping[str, types.DALIDataType]]
"""By the path of an image: names and types of the parameters of its change."""


RunWhere: TypeAlias = Literal["auto", "workers", "graph"]
RUN_CHOICES: tuple[RunWhere, ...] = ("auto", "workers", "graph")

_Step = TypeVar("_Step", bound="PipelineStepBase")


_Process = TypeVar("_Process", bound=Callable[..., SampleDataGroup])


def on_arrays(process: _Process) -> _Process:
    """Mark a ``_process`` that does what ``arrays`` does: a step that overrides it is one of operators."""
    process.on_arrays = process  # type: ignore[attr-defined]  # not what `functools.wraps` copies to another one
    return process


class PipelineStepBase(ABC):
    """Step of a pipeline: declares the output format for an input format, and changes samples accordingly.

    A step is a class with some of these members:

    - ``format_after(format)``: the output format of an input format, before anything runs; refuses a format with
      an error for each problem.
    - `draws`: the random numbers that it needs, which come with each sample.
    - ``arrays(sample, draws)``, the *array form*: changes one sample of NumPy arrays.
    - `declare_pixel_changes` and ``graph(image, ...)``: change pixels in the graph, by parameters that ``arrays``
      computes. Such a step can be divided: pixels in the graph, all else in the workers.

    An `ArrayStep` is made of them. It can run in the worker processes, before the graph, and ``step(sample)``
    applies it to a sample of arrays. A class derived from this one directly has two methods, as in accvlab:
    ``_check_and_adjust_data_format_input_to_output`` for the format, and ``_process``, which runs once, while the
    graph is defined: the values are DALI ``DataNode`` objects then, not data.

    Example::

        class Halver(PipelineStepBase):
            def __init__(self, name):
                self._name = name

            def _process(self, data):
                data[self._name] = data[self._name] * 0.5
                return data

            def _check_and_adjust_data_format_input_to_output(self, data_empty):
                if data_empty.get_type_of_field(self._name) != types.DALIDataType.FLOAT:
                    raise ValueError(f"{self._name}: must be FLOAT")
                return data_empty

    A step that draws random numbers declares them as `draws`. ``arrays`` gets the numbers of a sample;
    ``_process`` gets the nodes from `draw`. A step on images declares in `declare_images` which
    content it needs and leaves. The format of each field stays, unless the format method changes it.

    Attributes:
        random_name: Name that the random numbers of the step depend on, instead of the name of its class.
            Steps of the same name are numbered in the order of the chain.
        treats_elements_alike: Whether the step does the same to each element of an array (e.g. to each camera),
            looks neither at other elements nor outside of the array, and does not depend on how
            many samples a batch has. Then it may be applied to all elements at once: it sees an array of one
            element whose nodes hold a batch of ``samples x elements``. `check_step` finds a step that
            claims so wrongly. A class that derives from such a step and works otherwise sets it to False.
        run: Where the step runs as a whole: in the ``"workers"``, in the ``"graph"``, or ``"auto"`` to let the
            chain decide, divided or not.
        image_tolerance: Largest difference of a pixel between graph and arrays on a CPU, as a share of the range
            of the image (from black to white). Everything else is the same in both.
        array_form_needs: Packages that the array form imports.
        prefers_arrays: Whether the array form is much faster without a GPU, even for floating-point images.
        changes_images: Whether the step may change images, unless `declare_images` says which.
        reads_pixels: Whether the step may look at pixels. False for a step that does not change images, and needs
            at most their shapes: pixels can then stay in the graph.
        draws: The random draws of the step: `UniformDraw`, `IntegerDraw` and `NormalDraw` objects of different
            names. A step whose draws depend on the format overrides `declare_draws` instead.
    """

    random_name: str | None = None
    treats_elements_alike: bool = False
    run: RunWhere = "auto"
    image_tolerance: float = 0.0
    array_form_needs: tuple[str, ...] = ()
    prefers_arrays: bool = False
    changes_images: bool = True
    reads_pixels: bool = True
    draws: Sequence[RandomDraw] = ()

    @abstractmethod
    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        """Define the operators of this step. ``data`` may be changed and returned."""

    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        """Apply the step to a sample of arrays, see `ArrayStep.arrays`."""
        raise NotImplementedError

    @property
    def inner_step(self) -> PipelineStepBase | None:
        """The step that this one applies to parts of the sample; None for a step that applies no other one."""
        return None

    @property
    def has_array_form(self) -> bool:
        """Whether the step can be applied to samples of arrays. A class with both forms sets it to True."""
        process = getattr(type(self), "_process", None)
        return process is not None and getattr(process, "on_arrays", None) is process

    @property
    def has_graph_form(self) -> bool:
        """Whether the step can be part of a graph."""
        return True

    def with_run(self: _Step, run: RunWhere) -> _Step:
        """Get the same step, to run in ``"workers"``, in ``"graph"``, or where the chain decides (``"auto"``).

        Raises:
            SettingError: ``run`` is none of these. If the step cannot run there, loader and definition refuse it
                later.
        """
        changed = copy.copy(self)
        changed.run = choice(run, "run", RUN_CHOICES)
        return changed

    @abstractmethod
    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        """Check the input format and return the output format. ``data_empty`` may be changed and returned.

        Raises:
            Exception: The step cannot work on this format. Raise a `FormatError` (see
                `accvlab.dali_pipeline_framework.sample_data.format_error`) to report several problems at once.
        """

    def declare_draws(self, data_empty: SampleDataGroup) -> Sequence[RandomDraw]:
        """Declare the random draws of this step, for a format; by default `draws`.

        Args:
            data_empty: Format of the group that the step is applied to, before the step. A step may declare other
                draws for another format, but always the same ones for the same format.
        """
        return self.draws

    def declare_images(self, data_empty: SampleDataGroup) -> Sequence[ImageUse] | None:
        """Declare the content of images that this step needs, and the content after it.

        Other images stay as they are. If a class derives from an `ArrayStep` and overrides ``_process``, the
        declaration that it inherits is ignored.

        Args:
            data_empty: Format of the group that the step is applied to, before the step.

        Returns:
            An `ImageUse` for each kind of images; an empty list for a step that leaves images alone. None for a
            step that accepts any image: nothing is then known about the images after it, until the graph is
            defined and shows which images the step left alone. The default follows from ``changes_images`` and
            ``reads_pixels``.
        """
        return None if self.changes_images and self.reads_pixels else ()

    def image_uses(self, data_empty: SampleDataGroup) -> Sequence[ImageUse] | None:
        """Get what `declare_images` declares for a format.

        Raises:
            SettingError: It declares something else.
        """
        uses = self.declare_images(data_empty)
        is_list = isinstance(uses, Sequence) and all(isinstance(use, ImageUse) for use in uses)
        if uses is not None and not is_list:
            of = f"{type(self).__name__}.declare_images"
            raise SettingError(f"{of} must return a list of ImageUse or None, got {uses!r}.")
        return uses

    def declare_pixel_changes(self, data_empty: SampleDataGroup) -> PixelChanges | None:
        """Declare the parameters by which the graph changes pixels, to run all else in the workers.

        Then ``arrays`` gets a `DeferredImage` for each of these images. It computes the parameters of the
        change, and notes them by `DeferredImage.changed`; `graph` changes the pixels in the graph by them.

        Args:
            data_empty: Format of the group that the step is applied to, before the step.

        Returns:
            For the path of each image whose pixels the step changes, the names and types of the parameters. None
            for a step that may look at pixels, so that its images cannot be deferred. The default is None with
            ``reads_pixels``, else no changes.
        """
        return None if self.reads_pixels else {}

    def graph(self, image: DataNode, leaf: LeafFormat, name: Name, *args: Any, **parameters: Any) -> DataNode:
        """Change the pixels of an image in the graph, see `declare_pixel_changes`.

        Args:
            image: The image, or the bytes of its file.
            leaf: Its format before the step.
            name: Name of its field.
            *args: Nothing is passed; it lets a step name its parameters in its own signature.
            **parameters: Nodes of the parameters, by name, on the CPU.
        """
        raise NotImplementedError

    def why_on_arrays(self, data_empty: SampleDataGroup, has_gpu: bool) -> str:
        """Explain why the step must run in the workers, pixels too, for some format; empty where it need not.

        Args:
            data_empty: Format of the group that the step is applied to, before the step.
            has_gpu: Whether the graph has a GPU.
        """
        return ""

    def num_in_one_batch(self, data_empty: SampleDataGroup) -> int:
        """Get how many files of a sample one operator of this step decodes, for the size of the pipeline's batch.



        Args:
            data_empty: Format of the sample.
        """
        inner = self.inner_step
        return 0 if inner is None else inner.num_in_one_batch(data_empty)

    @do_not_convert
    def draw(self, name: str) -> Any:
        """Get the node of a declared draw in ``_process``: on the CPU, with the numbers of each sample.

        In a pipeline of a `PipelineDefinition` over a callable input, they are a function of the seed and of the
        value of the key (the sample, its sequence, ...). An iterable input has a position in place of the key, if
        steps draw in the workers. Without key and position, DALI's own generators draw for each sample.

        Raises:
            SettingError: The step did not declare the draw, or is not being applied.
        """
        return draw_of(self, name)

    def new_output(self, data: SampleDataGroup) -> SampleDataGroup:
        """Create an empty sample of the output format, in ``arrays``.

        The format method runs once per input format, not once per sample.

        Args:
            data: The sample that ``arrays`` was given, before its format is changed.
        """
        application = _current_application() or ArrayApplication()
        return SampleDataGroup.from_format(application._declaration(self, data).after)

    @do_not_convert
    def check_input_data_format_and_set_output_data_format(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        """Get the output format of an input format, which stays as it is.

        Raises:
            StepOutputError: The step returned something that is not a format.
            FormatError: An image is encoded, or has a layout, with which the step cannot work.
            Exception: Any exception by which the step refuses this format.
        """
        before, given = data_empty.format, data_empty.get_empty_like_self()
        uses = self.image_uses(given)
        problems = image_problems(self, uses, before)
        try:
            output = self._check_and_adjust_data_format_input_to_output(data_empty.get_empty_like_self())
        except FormatError as error:
            if not problems:
                raise
            # The type of an image that is in a wrong state says nothing more.
            paths = {problem.path for problem in problems}
            problems += [problem for problem in error.problems if problem.path not in paths]
        if problems:
            raise format_error(problems, f"{type(self).__name__} cannot be applied:")
        require_output(self, output, "_check_and_adjust_data_format_input_to_output")
        plan = step_context.get().plan
        if plan is not None:
            plan.collect(self, declared_draws(self, given))
            plan.collect_pixels(self, self.declare_pixel_changes(given), before)
        replace_contents(output, contents_after(self, uses, before, output.format))
        return output

    def _advice_on_types(self, after: GroupFormat, found: Mapping[FieldPath, types.DALIDataType | None]) -> str:
        """Get the advice for a step on arrays that returns other types than it declares.

        Args:
            after: What it declares.
            found: The fields of other types, and these types; None for a value that no field can hold.
        """
        return "Return what is declared, e.g. by `.astype(...)`, or declare in the format method what is returned."

    def __call__(self, data: SampleDataGroup) -> SampleDataGroup:
        """Apply the step while a graph is defined, or to one sample of arrays.

        Args:
            data: A sample of nodes, which the result replaces; or a sample of arrays, which is left as it is.

        Returns:
            The result. For a sample of arrays, random draws come from NumPy's global generator.

        Raises:
            StepOutputError: The output has another format than the step declared.
            NotSupportedError: The step has no form for this.
        """
        application = _current_application()
        if application is not None:
            return application(self, data)
        if holds_arrays(data):
            return apply_to_arrays(self, data)
        before, nodes = data.format, data.get_data()
        declared = self.check_input_data_format_and_set_output_data_format(data).format
        with RunningStep(self, declared_draws(self, data.get_empty_like_self())):
            processed = require_output(self, self._process(data), "_process", declared)
        _take_format(processed, declared, before, nodes)
        return processed

    def __repr__(self) -> str:
        """Class name and settings."""
        settings = ", ".join(
            f"{name.lstrip('_')}={value!r}" for name, value in getattr(self, "__dict__", {}).items()
        )
        return f"{type(self).__name__}({settings})"
