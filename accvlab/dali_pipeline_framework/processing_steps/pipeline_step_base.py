# SPDX-License-Identifier: Apache-2.0
"""Base class of processing steps."""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

from nvidia.dali import types

from ..checks import choice
from ..draws.draw_scope import RunningStep, current_plan, declared_draws
from ..draws.random_draws import RandomDraw
from ..errors import FormatError
from ..sample_data import (
    FieldPath,
    FieldValue,
    FormatProblem,
    GroupFormat,
    ImageContent,
    SampleDataGroup,
    format_error,
)
from ..sample_data.graph_mode import do_not_convert
from ..sample_data.sample_data_group import replace_contents
from ..unknown_arguments import explains_unknown_arguments
from .array_application import apply_to_arrays, holds_arrays, require_format, require_group
from .image_use import WHAT_A_STEP_DOES, ImageUse, contents_after, declared_images, image_problems, is_overridden

RunWhere: TypeAlias = Literal["auto", "workers", "graph"]
RUN_CHOICES: tuple[RunWhere, ...] = ("auto", "workers", "graph")

_Step = TypeVar("_Step", bound="PipelineStepBase")


class PipelineStepBase(ABC):
    """Something that is done to a sample: a group of DALI nodes goes in, a group of DALI nodes comes out.

    It may also say what it does to *one sample of NumPy arrays* (``_process_arrays``, its *array form*): then it
    can run in the worker processes, before the graph, and ``step(sample)`` applies it to a sample of arrays.
    A step that has nothing but an array form is an `ArrayStep`.

    A step answers two questions. *Given this format, which format comes out?* is asked before anything is
    built, and is the place to refuse a format, with an error for each problem. *Do it* is asked once, while
    the graph is defined: the values are DALI ``DataNode`` objects then, not data.

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

    A step that draws random numbers declares them in `declare_draws`, and gets them in ``_process`` from `draw`.
    What it needs of images, and what it leaves, it declares in `declare_images`. The format of fields that it does
    not name there, or change in the format method, stays as it is.

    Attributes:
        random_name: Name that the random numbers of the step depend on, instead of the name of its class.
            Steps of the same name are numbered in the order in which they stand in the chain.
        treats_elements_alike: Whether the step does the same to each element of an array (e.g. to each camera),
            looks at no other element and at nothing outside of the array meanwhile, and does not depend on how
            many samples a batch has. Then it may be applied to all elements at once: it sees an array of one
            element whose nodes hold a batch of ``samples x elements``. `check_step` finds a step that says so
            wrongly. A class that overrides ``_process`` or the format method has to say so itself.
        run: Where the step is to run: ``"workers"``, ``"graph"``, or ``"auto"`` for where the chain says.
        image_tolerance: Largest difference of a pixel between the two forms, as a share of the range of the image
            (from black to white). All else is the same in both forms.
        array_form_needs: Packages that the array form imports.
    """

    random_name: str | None = None
    treats_elements_alike: bool = False
    run: RunWhere = "auto"
    image_tolerance: float = 0.0
    array_form_needs: tuple[str, ...] = ()

    # The step that this one applies to parts of the sample, if it wraps one.
    _processing_step_to_apply: PipelineStepBase | None = None

    def __init_subclass__(cls, **arguments: Any) -> None:
        """Let the error for an argument that a step does not have name a similar one.

        What a base class says of its elements does not hold for a class that does something else.
        """
        super().__init_subclass__(**arguments)
        if is_overridden(cls, "treats_elements_alike", WHAT_A_STEP_DOES):
            cls.treats_elements_alike = False
        own = inspect.signature(cls.__init__).parameters.values() if "__init__" in vars(cls) else ()
        if own and all(one.kind is not one.VAR_KEYWORD for one in own):
            cls.__init__ = explains_unknown_arguments({})(cls.__init__)  # type: ignore[method-assign]

    @abstractmethod
    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        """Define the operators of this step. ``data`` may be changed and returned."""

    def _process_arrays(self, data: SampleDataGroup) -> SampleDataGroup:
        """Apply the step to a sample of arrays, which must give what the graph gives.

        ``data`` may be changed and returned; the arrays in it are read-only. A class that overrides ``_process``
        has no array form unless it overrides this method, too.
        """
        raise NotImplementedError

    @property
    def has_array_form(self) -> bool:
        """Whether the step can be applied to samples of arrays."""
        has_one = type(self)._process_arrays is not PipelineStepBase._process_arrays
        return has_one and not is_overridden(type(self), "_process_arrays", ["_process"])

    @property
    def has_graph_form(self) -> bool:
        """Whether the step can be part of a graph."""
        return True

    def with_run(self: _Step, run: RunWhere) -> _Step:
        """Get the same step, to run ``"workers"``, in the ``"graph"``, or where the chain says (``"auto"``).

        Raises:
            SettingError: It is something else, or the step has no such form.
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
        """Declare the random draws of this step: none, unless a step overrides this method.

        Args:
            data_empty: Format of what the step is applied to, before the step. A step may declare other draws for
                another format, but the same ones each time that it is asked for the same format.

        Returns:
            `UniformDraw`, `IntegerDraw` and `NormalDraw` objects of different names.
        """
        return ()

    def declare_images(self, data_empty: SampleDataGroup) -> Sequence[ImageUse]:
        """Declare what this step needs of images, and what it leaves.

        Images that it does not name stay as they are. A step that does not override this method, or overrides
        ``_process`` or the format method below a class that does, declares nothing: it is given any image, and
        nothing is known of any image after it, until the graph is defined and shows which images it left alone.

        Args:
            data_empty: Format of what the step is applied to, before the step.

        Returns:
            An `ImageUse` for each kind of images; an empty list for a step that leaves images alone.
        """
        return ()

    @do_not_convert
    def draw(self, name: str) -> Any:
        """Get a declared draw.

        In ``_process`` it is a node on the CPU with the numbers of each sample; in ``_process_arrays`` the numbers
        of the sample, float32 or int32: an array, or a NumPy number for a draw without a shape.

        In a pipeline of a `PipelineDefinition` over a callable input, they are a function of the seed and of what
        the key of the draw stands for. Where nobody can supply them (an iterable input; a step called in a bare
        DALI pipeline), DALI's own generators draw for each sample.

        Raises:
            SettingError: The step did not declare the draw, or is not being applied.
        """
        return RunningStep.draw(self, name)

    @do_not_convert
    def check_input_data_format_and_set_output_data_format(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        """Get the format that comes out for an input format. The argument is left as it is.

        Raises:
            StepOutputError: The step returned something that is no format.
            FormatError: An image is encoded, or has a layout or values, with which the step cannot work.
            Exception: What the step raises where it cannot work on this format.
        """
        before, asked = data_empty.format, data_empty.get_empty_like_self()
        uses = declared_images(self, asked)
        output = self._checked_output(data_empty.get_empty_like_self(), image_problems(self, uses, before))
        plan = current_plan()
        if plan is not None:
            plan.collect(self, declared_draws(self, asked))
        replace_contents(output, contents_after(self, uses, before, output.format))
        return output

    def _advice_on_types(self, after: GroupFormat, found: Mapping[FieldPath, types.DALIDataType | None]) -> str:
        """Say what to do where a step on arrays has returned something else than it declares.

        Args:
            after: What it declares.
            found: The fields that are something else, and the types that they have; None for no type of a field.
        """
        return (
            "Return what is declared, e.g. by `.astype(...)`, or declare in "
            "`_check_and_adjust_data_format_input_to_output` what is returned."
        )

    def _checked_output(self, data_empty: SampleDataGroup, problems: list[FormatProblem]) -> SampleDataGroup:
        """Get the output format of the step, or raise its problems and those of its images together."""
        try:
            output = self._check_and_adjust_data_format_input_to_output(data_empty)
        except FormatError as error:
            if not problems:
                raise
            # The type of an image that is in a wrong state says nothing more.
            paths = {problem.path for problem in problems}
            problems += [problem for problem in error.problems if problem.path not in paths]
        if problems:
            raise format_error(problems, f"{type(self).__name__} cannot be applied:")
        return require_group(self, output, "_check_and_adjust_data_format_input_to_output")

    def __call__(self, data: SampleDataGroup) -> SampleDataGroup:
        """Apply the step while a graph is defined, or to one sample of arrays.

        Args:
            data: A sample of nodes, which the result replaces; or a sample of arrays, which is left as it is.

        Returns:
            The result. Of a sample of arrays the random draws come from NumPy's global generator.

        Raises:
            StepOutputError: What was produced has another format than the step declared.
            NotSupportedError: The step has no form for this.
        """
        if holds_arrays(data):
            return apply_to_arrays(self, data)
        known = self._known_images(data)
        declared = self.check_input_data_format_and_set_output_data_format(data)
        with RunningStep(self, declared_draws(self, data.get_empty_like_self())):
            processed = require_group(self, self._process(data), "_process")
        require_format(self, processed, declared.format, "_process")
        self._take_contents(processed, declared.format, known)
        return processed

    @do_not_convert
    def _known_images(self, data: SampleDataGroup) -> dict[FieldPath, tuple[FieldValue, ImageContent]]:
        """Nodes and contents of the images of which something is known."""
        leaves = zip(data.format.flat_paths, data.format.flat_leaves, strict=True)
        contents = {path: leaf.content for path, leaf in leaves if leaf.content.is_known}
        return {path: (data.get_item_in_path(path), content) for path, content in contents.items()}

    @do_not_convert
    def _take_contents(
        self,
        processed: SampleDataGroup,
        declared: GroupFormat,
        known: Mapping[FieldPath, tuple[FieldValue, ImageContent]],
    ) -> None:
        contents: dict[FieldPath, ImageContent] = {}
        for path, leaf in zip(declared.flat_paths, declared.flat_leaves, strict=True):
            node, before = known.get(path, (None, leaf.content))
            # A step that declares nothing has not changed an image whose node is still the same.
            is_same = node is not None and processed.get_item_in_path(path) is node
            contents[path] = before if is_same and not leaf.content.is_known else leaf.content
        replace_contents(processed, processed.format.with_contents(contents))

    def __repr__(self) -> str:
        """Class name and settings."""
        settings = ", ".join(
            f"{name.lstrip('_')}={value!r}" for name, value in getattr(self, "__dict__", {}).items()
        )
        return f"{type(self).__name__}({settings})"
