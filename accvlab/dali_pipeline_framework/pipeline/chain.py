# SPDX-License-Identifier: Apache-2.0
"""An input and a chain of steps, with all that a definition says of them; and what follows from that alone."""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from time import perf_counter_ns
from typing import Any, NamedTuple, cast

import attrs
import numpy as np
from nvidia.dali import types

from ..draws.draw_scope import ArrayDraws, DrawPlan, PlannedPixels, step_context
from ..draws.keyed_draws import SampleSeeds
from ..draws.random_draws import (
    NEEDS_SEQUENCES,
    SEQUENCE_KEYS,
    DrawSource,
    FieldKey,
    KeyedDraws,
    NormalDraw,
    PlannedDraw,
)
from ..errors import FormatError, SettingError, StepOutputError, printable, text_of
from ..operators.array_packages import is_installed, require_installed
from ..operators.deferred_images import DeferredImage
from ..processing_steps.pipeline_step_base import ArrayApplication, PipelineStepBase, RunWhere, filled
from ..sample_data import FieldPath, FormatProblem, GroupFormat, SampleDataGroup, format_error
from ..sample_data.dtypes import get_numpy_type_for_dali_type
from ..sample_data.folded_formats import FoldedFormat
from ..sample_data.formats import ENCODED_IMAGE, ImageContent, LeafFormat
from ..sample_data.names import Name, alike_paths, format_path, format_paths
from ..sources.input_bases import CallableBase
from ..sources.native_input import NativeInput
from ..sources.shards import Shard, shard_of_input
from ..workers.process_setup import pass_on_interrupt
from ..workers.samples import Array, DType, Flat, SampleStepError
from ._insert_copy_for_passthrough import _InsertCopyForPassthrough

# Folding an array costs for each entry of the batch of the pipeline; larger ones are left as they are.
_MOST_ELEMENTS = 64


def chain_format(
    blueprint: SampleDataGroup,
    steps: Sequence[PipelineStepBase],
    on_step: Callable[[int, SampleDataGroup], None] | None = None,
    draws: DrawPlan | None = None,
) -> SampleDataGroup:
    """Ask each step in turn which format comes out for the format that goes in.

    A step that refuses its format does not hide the problems of the steps after it: they are checked with the
    format that the refusing step was given.

    Args:
        blueprint: Format of the input.
        steps: The chain.
        on_step: Called with the number of steps done (0: the input) and the format at that place.
        draws: Collects the random draws that the steps declare.

    Returns:
        Format of the output.

    Raises:
        FormatError: One or more steps refuse; lists all problems. ``except`` clauses for the exception
            classes that the steps raised catch it.
    """
    if on_step is not None:
        on_step(0, blueprint)
    problems: list[FormatProblem] = []
    first_error: Exception | None = None
    draws = draws or DrawPlan(blueprint.format)
    for index, step in enumerate(steps):
        draws.position = index
        name = f"step {index} ({step_name(step)})"
        outer = step_context.get()
        try:
            step_context.set(outer._replace(plan=draws))
            blueprint = step.check_input_data_format_and_set_output_data_format(blueprint)
        except Exception as error:
            pass_on_interrupt(error)
            if first_error is not None:
                name += ", given the format from before the step that failed"
            problems += _problems_of(error, name)
            first_error = first_error or error
            continue
        finally:
            step_context.set(outer)
        if on_step is not None:
            on_step(index + 1, blueprint)
    if first_error is not None:
        count = f"{len(problems)} problems" if len(problems) > 1 else "1 problem"
        # What a step of one's own raised shows where; a FormatError would only say the same twice.
        cause = None if isinstance(first_error, FormatError) else first_error
        raise format_error(problems, f"The processing steps do not fit the data: {count}.") from cause
    return blueprint


def chain_description(blueprint: SampleDataGroup, steps: Sequence[PipelineStepBase]) -> str:
    """Describe the formats of the input and the output, and what each step changes, a line for each field.

    ``+`` is before a field that a step adds, ``-`` before one that it removes, ``~`` before one whose format it
    changes; a step that changes values only has no such line. Fields of the elements of an array that are alike
    have one line. The arguments and errors are those of `chain_format`.
    """
    formats: list[dict[FieldPath, str]] = []
    chain_format(blueprint.get_empty_like_self(), steps, lambda _, format: formats.append(_leaves(format)))
    lines = ["input", *(f"    {path}: {leaf}" for path, leaf in _joined_leaves(formats[0]))]
    for number, (step, before, after) in enumerate(zip(steps, formats[:-1], formats[1:], strict=True)):
        lines.append(f"step {number}: {step_name(step)}")
        removed = {path: leaf for path, leaf in before.items() if path not in after}
        added = {path: leaf for path, leaf in after.items() if path not in before}
        changed = {
            path: f"{before[path]} -> {leaf}" for path, leaf in after.items() if before.get(path, leaf) != leaf
        }
        for mark, fields in (("-", removed), ("~", changed), ("+", added)):
            lines += [f"  {mark} {path}: {leaf}" for path, leaf in _joined_leaves(fields)]
    lines += ["output", *(f"    {path}: {leaf}" for path, leaf in _joined_leaves(formats[-1]))]
    return "\n".join(lines)


def _leaves(blueprint: SampleDataGroup) -> dict[FieldPath, str]:
    return dict(zip(blueprint.format.flat_paths, map(_described, blueprint.format.flat_leaves), strict=True))


def _described(leaf: LeafFormat) -> str:
    parts = [leaf.dtype.name]
    if leaf.ndim is not None:
        parts.append("scalar" if leaf.ndim == 0 else f"{leaf.ndim}D")
    if leaf.content.is_known:
        parts.append(f"image: {leaf.content.describe()}")
    if leaf.mapping is not None:
        parts.append("of labels")
    return ", ".join(parts)


def _joined_leaves(leaves: Mapping[FieldPath, str]) -> Iterator[tuple[str, str]]:
    """Paths, and what is said of them; those that differ only in indices and are alike are written as one."""
    for group in alike_paths(leaves):
        by_leaf: dict[str, list[FieldPath]] = {}
        for path in group:
            by_leaf.setdefault(leaves[path], []).append(path)
        for leaf, paths in by_leaf.items():
            yield format_paths(paths), leaf


def with_image_files(format: GroupFormat, steps: Sequence[PipelineStepBase]) -> GroupFormat:
    """Get the format of the input, with fields known to hold image files that steps decode.

    Found by their names: a field that a step renames before it is decoded is known only where the input says so.
    """
    blueprint = SampleDataGroup.from_format(format)
    contents = {}
    for step in steps:
        while step.inner_step is not None:
            step = step.inner_step
        try:
            uses = step.image_uses(blueprint.get_empty_like_self()) or ()
        except Exception:  # it is called again at its place in the chain, and then it counts
            continue
        for use in uses:
            if isinstance(use.needs, ImageContent) and use.needs.is_encoded:
                contents.update(dict.fromkeys(use.paths(format), ENCODED_IMAGE))
    leaves = zip(format.flat_paths, format.flat_leaves, strict=True)
    unknown = {path for path, leaf in leaves if leaf.content.is_encoded is None and leaf.numpy_dtype == np.uint8}
    return format.with_contents({path: content for path, content in contents.items() if path in unknown})


def step_name(step: PipelineStepBase) -> str:
    """Class of a step, and of the step that it applies, if it applies one."""
    applied = step.inner_step
    return type(step).__name__ + ("" if applied is None else f" of {step_name(applied)}")


def _problems_of(error: Exception, step: str) -> list[FormatProblem]:
    if isinstance(error, FormatError) and error.problems:
        return [attrs.evolve(problem, step=step) for problem in error.problems]
    is_key = type(error).__str__ is KeyError.__str__ and bool(error.args)
    text = printable(str(error.args[0])) if is_key else text_of(error)
    if not isinstance(error, KeyError | ValueError | AssertionError):
        text = f"{type(error).__name__}: {text}"
    return [FormatProblem(text, step=step, error_type=type(error))]


_BEHIND = "; what comes after it runs in the graph, too"


class Placement(NamedTuple):
    """Where the steps of a chain run. The first ones run in the workers, the others in the graph.

    Attributes:
        num_in_workers: How many run in the workers.
        reason: Why, for people.
        first_deferred: Number of the first of them whose changes of pixels are left to the graph.
        pixels: These changes, in order.
    """

    num_in_workers: int
    reason: str
    first_deferred: int
    pixels: tuple[PlannedPixels, ...] = ()

    @classmethod
    def of(cls, num_in_workers: int, reason: str) -> Placement:
        """Steps on arrays, all of them with their pixels."""
        return cls(num_in_workers, reason, num_in_workers)


def place_steps(
    steps: Sequence[PipelineStepBase],
    run: RunWhere,
    blueprint: Callable[[], SampleDataGroup] | None,
    *,
    has_gpu: bool = False,
    refusal: str = "",
) -> Placement:
    """Decide where steps run.

    Args:
        steps: The chain.
        run: What was requested: ``"workers"``, as many steps as can; ``"graph"``: pixels are changed in the graph,
            all else in the workers, as far as steps can be divided like that; ``"auto"``: with a GPU like
            ``"graph"``; without one, the steps before the first that cannot run in the workers or converts images
            to floating point, if one of these does more to images than decode them; and those before the last
            that prefers arrays, with it.
        blueprint: Gives the format of the input; not called for ``"workers"``. None: steps are not divided.
        has_gpu: Whether the graph has a GPU.
        refusal: Why no step can run in the workers; empty if they can.

    Raises:
        SettingError: A step must run in the workers, and cannot, or one before it can run in the graph only.
        FormatError: The format was needed, and the steps do not fit the data.
    """
    limits = at_least, asker, most, obstacle = _limits(steps, refusal)
    reasons: Mapping[int, str] = {}
    if blueprint is not None and run != "workers":
        reasons = _reasons_for_arrays(steps, blueprint, has_gpu)
        for number, reason in reasons.items():
            if number >= at_least:
                at_least, asker = number + 1, f"{_named(number, steps[number])} must run in the workers: {reason}"
        if at_least > most:
            raise SettingError(f"{asker}. But {obstacle}.")
        limits = at_least, asker, most, obstacle
    if most == 0:
        return Placement.of(0, obstacle)
    if blueprint is None:
        return Placement.of(at_least, asker)
    if run == "graph" or (run == "auto" and has_gpu):
        why = "run='graph'" if run == "graph" else "the graph has a GPU"
        reason = asker if at_least else why
        placement = _with_deferred_pixels(steps, at_least, most, reason, blueprint(), reasons)
    elif run == "workers":
        placement = Placement.of(most, "run='workers'" + (f"; {obstacle}" if most < len(steps) else ""))
    else:
        placement = _without_gpu(steps, limits, blueprint())
    in_graph = {each.position for each in placement.pixels}
    for number, step in enumerate(steps[: placement.num_in_workers]):
        for name in step.array_form_needs if number not in in_graph else ():
            require_installed(name, f"{_named(number, step)} runs in the workers, on arrays, and")
    return placement


def _limits(steps: Sequence[PipelineStepBase], refusal: str) -> tuple[int, str, int, str]:
    """How many of the first steps must run in the workers, and why; how many can, and why not the next one.

    Raises:
        SettingError: More must than can.
    """
    at_least, asker = _least(steps)
    most, obstacle = _most(steps)
    if at_least > most or (refusal and at_least):
        raise SettingError(f"{asker}, but {refusal or obstacle}.")
    return (at_least, asker, 0, refusal) if refusal else (at_least, asker, most, obstacle)


def _reasons_for_arrays(
    steps: Sequence[PipelineStepBase], blueprint: Callable[[], SampleDataGroup], has_gpu: bool
) -> dict[int, str]:
    """Why steps must run in the workers because of the formats that they are given, by their numbers."""
    if all(type(step).why_on_arrays is PipelineStepBase.why_on_arrays for step in _innermost(steps)):
        return {}
    blueprints: list[SampleDataGroup] = []
    chain_format(blueprint(), steps, lambda _, group: blueprints.append(group.get_empty_like_self()))
    reasons = enumerate(step.why_on_arrays(blueprints[number], has_gpu) for number, step in enumerate(steps))
    return {number: reason for number, reason in reasons if reason}


def _innermost(steps: Iterable[PipelineStepBase]) -> Iterator[PipelineStepBase]:
    for step in steps:
        while step.inner_step is not None:
            step = step.inner_step
        yield step


def _least(steps: Sequence[PipelineStepBase]) -> tuple[int, str]:
    """How many of the first steps must run in the workers, and why."""
    for number in reversed(range(len(steps))):
        step = steps[number]
        if wish_of(step) == "workers":
            return number + 1, f"{_named(number, step)} is to run in the workers (run='workers')"
        if not step.has_graph_form:
            return number + 1, f"{_named(number, step)} works on arrays only, so it must run in the workers"
    return 0, ""


def _most(steps: Sequence[PipelineStepBase]) -> tuple[int, str]:
    """How many of the first steps can run in the workers, and why not the next one."""
    for number, step in enumerate(steps):
        if wish_of(step) == "graph":
            return number, f"{_named(number, step)} is to run in the graph (run='graph'){_BEHIND}"
        if not step.has_array_form:
            return number, f"{_named(number, step)} has a form for the graph only{_BEHIND}"
    return len(steps), "there are no steps"


def _named(number: int, step: PipelineStepBase) -> str:
    return f"step {number} ({step_name(step)})"


def wish_of(step: PipelineStepBase) -> RunWhere:
    """The place where a step, or the one that it applies, requests to be run."""
    applied = step.inner_step
    return step.run if step.run != "auto" or applied is None else wish_of(applied)


def _without_gpu(
    steps: Sequence[PipelineStepBase], limits: tuple[int, str, int, str], blueprint: SampleDataGroup
) -> Placement:
    at_least, asker, most, obstacle = limits
    preferred = max((number + 1 for number in range(most) if steps[number].prefers_arrays), default=0)
    num_on_bytes = _num_before_floats(steps[:most], blueprint)
    wanted = max(at_least, preferred, num_on_bytes)
    if wanted < most:  # the way of an image of float32 to the graph is four times as long
        obstacle = f"{_named(num_on_bytes, steps[num_on_bytes])} converts images to floating point"
        most = wanted
    for number in range(at_least, most):
        missing = [name for name in steps[number].array_form_needs if not is_installed(name)]
        if missing:
            needed_by = _named(number, steps[number])
            most, obstacle = number, f"{missing[0]} is not installed, which {needed_by} needs on arrays"
            break
    if any(map(_changes_images, steps[at_least:most])):
        return Placement.of(most, "there is no GPU" + (f"; {obstacle}" if most < len(steps) else ""))
    if at_least or most == 0:
        return Placement.of(at_least, asker or obstacle)
    reason = "there is no GPU; images are at most decoded, which the graph does"
    placement = _with_deferred_pixels(steps, 0, most, reason, blueprint, ())
    if {each.position for each in placement.pixels} != {*range(placement.num_in_workers)}:
        return placement
    return Placement.of(0, "in the workers, steps would at most decode images")


def _with_deferred_pixels(
    steps: Sequence[PipelineStepBase],
    at_least: int,
    most: int,
    reason: str,
    blueprint: SampleDataGroup,
    on_arrays: Collection[int],
) -> Placement:
    """Run steps in the workers, up to the first that may look at pixels after others were left to the graph.

    Args:
        steps: The chain.
        at_least: How many of the first steps must run in the workers.
        most: How many can.
        reason: Why that is requested.
        blueprint: Format of the input.
        on_arrays: Numbers of the steps whose pixels cannot be left to the graph.
    """
    declared = DrawPlan(blueprint.format)
    formats: list[GroupFormat] = []
    chain_format(blueprint, steps, lambda _, group: formats.append(group.format), declared)
    for first in range(at_least + 1):
        end, pixels = first, list[PlannedPixels]()
        while end < most:
            step, own = steps[end], [each for each in declared.pixels if each.position == end]
            may_read = end in declared.pixel_readers or any(
                not _is_image(formats[end], each.path) and each.path not in {its.path for its in own}
                for each in pixels
            )
            if may_read and (pixels or own or end >= at_least):
                break
            if own and (wish_of(step) == "workers" or end in on_arrays):
                break
            if not own and end >= at_least and not all(map(is_installed, step.array_form_needs)):
                break
            end += 1
            after = formats[end]
            pixels = [each for each in (*pixels, *own) if isinstance(after.get(each.path), LeafFormat)]
        if end >= at_least:
            return Placement(end, reason, first, tuple(pixels))
    raise AssertionError("the last try leaves no pixels to the graph")


def _is_image(group: GroupFormat, path: FieldPath) -> bool:
    """Whether a field is known to be an image: only of images steps say that they look at no pixels."""
    content = cast(LeafFormat, group.at(path)).content
    return content.is_encoded is not None or "HW" in (content.layout or "")


def _num_before_floats(steps: Sequence[PipelineStepBase], blueprint: SampleDataGroup) -> int:
    """How many of the first steps come before one that makes floating-point numbers of bytes."""
    formats: list[GroupFormat] = []
    chain_format(blueprint, steps, lambda _, group: formats.append(group.format))
    were_bytes: set[FieldPath] = set()
    for number, group in enumerate(formats):
        leaves = group.leaves.items()
        if any(path in were_bytes and leaf.numpy_dtype.kind == "f" for path, leaf in leaves):
            return number - 1
        were_bytes.update(path for path, leaf in leaves if leaf.dtype == types.DALIDataType.UINT8)
    return len(steps)


def _changes_images(step: PipelineStepBase) -> bool:
    """Whether a step, or the one that it applies, declares to do something to images, but to decode them."""
    applied = step.inner_step
    if applied is not None:
        return _changes_images(applied)
    is_of_images = type(step).declare_images is not PipelineStepBase.declare_images
    from ..processing_steps.image.image_decoders import ImageDecoder  # not every pipeline has images

    return is_of_images and step.changes_images and not isinstance(step, ImageDecoder)


class _Prepared(NamedTuple):
    plan: DrawPlan
    output_format: GroupFormat
    draws: ArrayDraws
    apply: ArrayApplication
    deferred: Sequence[int]
    planned: Sequence[Mapping[FieldPath, Sequence[Sequence[DType]]]]  # after each step


@attrs.define
class ArraySteps:
    """Applies the first steps of a chain to flat samples of arrays.

    Attributes:
        input_format: Format of the samples.
        steps: The steps.
        first_deferred: Number of the first step whose changes of pixels are left to the graph; None for none.
        deferred: For each of these changes, in their order, the position of the step, the path of the image and
            the types of the parameters.
        names: Of each step, its number and class.
        times_ns: Time that each has taken since this was set to zeros.
    """

    input_format: GroupFormat
    steps: Sequence[PipelineStepBase]
    first_deferred: int | None = None
    deferred: Sequence[tuple[int, FieldPath, Sequence[DType]]] = ()
    times_ns: list[int] = attrs.field(init=False)
    names: Sequence[str] = attrs.field(init=False)
    _prepared: _Prepared | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.names = [f"step {position} ({step_name(step)})" for position, step in enumerate(self.steps)]
        self.times_ns = [0] * len(self.steps)

    def __reduce__(self) -> tuple[object, ...]:
        # Draws are found again by the identity of the step, which is another one in another process.
        return ArraySteps, (self.input_format, self.steps, self.first_deferred, self.deferred)

    @property
    def draws(self) -> Sequence[PlannedDraw]:
        """The draws that the steps declare: the first draws of the whole chain."""
        return self._prepare().plan.draws

    @property
    def output_format(self) -> GroupFormat:
        """Format that comes out."""
        return self._prepare().output_format

    def _prepare(self) -> _Prepared:
        if self._prepared is None:
            plan = DrawPlan(self.input_format)
            blueprint = SampleDataGroup.from_format(self.input_format)
            blueprint.set_apply_mapping(False)
            output_format = chain_format(blueprint, self.steps, draws=plan).format
            draws = ArrayDraws(plan)
            deferred = [output_format.flat_paths.index(path) for _, path, _ in self.deferred]
            planned = [self._planned_up_to(number) for number in range(len(self.steps))]
            self._prepared = _Prepared(plan, output_format, draws, ArrayApplication(draws), deferred, planned)
        return self._prepared

    def _planned_up_to(self, position: int) -> dict[FieldPath, list[Sequence[DType]]]:
        """For each image, the types of the parameters of the changes by the steps up to one."""
        planned: dict[FieldPath, list[Sequence[DType]]] = {}
        for number, path, dtypes in self.deferred:
            if number <= position:
                planned.setdefault(path, []).append(dtypes)
        return planned

    def __call__(self, flat: Flat, numbers: Callable[[int], Array]) -> Flat:
        """Apply the steps to a sample.

        Args:
            flat: Its arrays.
            numbers: Called with the position of a draw in ``draws``; gives its numbers.

        Returns:
            The arrays of the output; of images whose pixels are changed in the graph what it changes. After them
            the parameters of these changes.

        Raises:
            SampleStepError: A step failed.
        """
        *_, (_, sample) = self.walk(flat, numbers)
        if not self.deferred:
            return sample.get_data()
        values = [*sample.get_data()]
        parameters = self._sent_for_pixels(values)
        return values + parameters

    def _sent_for_pixels(self, values: list[Any]) -> list[Array]:
        """Put the sources of deferred images into the values; return the parameters of the changes, in order."""
        pending: dict[int, Iterator[tuple[object, ...]]] = {}
        for index in dict.fromkeys(self._prepare().deferred):
            values[index], pending[index] = values[index].source, iter(values[index].parameters)
        return [
            np.asarray(number).astype(dtype, copy=False)
            for index, (_, _, dtypes) in zip(self._prepare().deferred, self.deferred, strict=True)
            for number, dtype in zip(next(pending[index]), dtypes, strict=True)
        ]

    def _require_noted_changes(self, position: int, sample: SampleDataGroup) -> None:
        """Refuse the result of a step that has not noted the changes of pixels that are planned up to it.

        Raises:
            StepOutputError: It has not.
        """
        for path, expected in self._prepare().planned[position].items():
            image = sample.get_item_in_path(path)
            noted = image.parameters if isinstance(image, DeferredImage) else ()
            if len(noted) == len(expected) and _fit(noted[-1], expected[-1]):
                continue
            raise StepOutputError(
                f"{format_path(path)}: the graph is to change its pixels by parameters of the types "
                f"{[list(map(str, each)) for each in expected]}, up to this step; noted was {[*noted]}. For each "
                f"image that a step names in `declare_pixel_changes`, its `arrays` must set "
                f"`image.changed(...)` with the declared parameters, in their order. A step that sets, moves or "
                f"copies images otherwise must return None there."
            )

    def try_on(self, flat: Flat) -> Flat:
        """Apply the steps to a sample with some numbers that could be drawn."""
        draws = [planned.draw for planned in self.draws]
        numbers = [
            np.full(draw.shape, draw.mean if isinstance(draw, NormalDraw) else draw.low, draw.numpy_dtype)
            for draw in draws
        ]
        return self(flat, numbers.__getitem__)

    def walk(self, flat: Flat, numbers: Callable[[int], Array]) -> Iterator[tuple[str, SampleDataGroup]]:
        """Apply the steps to a sample one by one; yields ``"input"`` and then the name of each, and the sample.

        Raises:
            SampleStepError: A step failed.
        """
        prepared = self._prepare()
        prepared.draws.begin_sample(numbers)
        sample = filled(SampleDataGroup.from_format(self.input_format), flat)
        yield "input", sample
        for position, step in enumerate(self.steps):
            began = perf_counter_ns()
            prepared.apply.defers_pixels = self.first_deferred is not None and position >= self.first_deferred
            try:
                sample = prepared.apply(step, sample)
                if self.deferred:
                    self._require_noted_changes(position, sample)
            except BaseException as error:  # e.g. a panic of an extension written in Rust
                pass_on_interrupt(error)
                raise SampleStepError(self.names[position]) from error
            self.times_ns[position] += perf_counter_ns() - began
            yield self.names[position], sample


def _fit(parameters: Sequence[Array], dtypes: Sequence[DType]) -> bool:
    """Whether the parameters of a change are as many as declared, and of such types."""
    found = [np.asarray(each).dtype for each in parameters]
    can_cast = functools.partial(np.can_cast, casting="same_kind")
    return len(found) == len(dtypes) and all(map(can_cast, found, dtypes))


DEFAULT_DEPTH = 2


@attrs.frozen(eq=False, kw_only=True)
class Chain:
    """An input, the steps that are applied to its samples, and how.

    Attributes:
        data_input: The input.
        steps: The steps.
        run: Where steps run that have a form for arrays.
        checks_data_format: Whether the types of the first batch are compared with the declared format.
        is_parallel: Whether the input may run in worker processes.
        prefetch_queue_depth: Batches that the workers load ahead.
        prints_formats: Whether the format after each step is printed.
        copy_selection: Which output fields are copied, as `_InsertCopyForPassthrough` takes it; None for none.
        folds_arrays: Whether arrays are folded.
        divides_steps: Whether steps may run in the workers, but for their changes of pixels.
        given_draws: Gives the draws; None if they are computed.
    """

    data_input: Any
    steps: tuple[PipelineStepBase, ...]
    run: RunWhere
    checks_data_format: bool
    is_parallel: bool
    prefetch_queue_depth: int
    prints_formats: bool
    copy_selection: Mapping[str, Any] | None
    folds_arrays: bool
    divides_steps: bool = True
    given_draws: DrawSource | None = None

    def __attrs_post_init__(self) -> None:
        """Refuse steps that cannot run where they should, as far as that is known without a format."""
        if self.run == "workers":
            self.placement(has_gpu=False)
        _limits(self.steps, self._refusal)

    @property
    def is_native(self) -> bool:
        """Whether operators of DALI read the input, so that there is nothing for workers."""
        return isinstance(self.data_input, NativeInput)

    @property
    def shard(self) -> Shard | None:
        """The shard that the input delivers, or None if it is not known."""
        with contextlib.suppress(SettingError):  # an attribute of this name may mean something else
            return shard_of_input(self.data_input)
        return None

    @property
    def input_data_structure(self) -> SampleDataGroup:
        """Blueprint of the input."""
        return cast(SampleDataGroup, self.data_input.used_sample_data_structure)

    def blueprint_of_steps(self) -> SampleDataGroup:
        """Blueprint of the samples, as the first step gets them."""
        blueprint = self.input_data_structure.get_empty_like_self()
        blueprint.set_apply_mapping(False)
        return blueprint

    def output(self) -> tuple[SampleDataGroup, DrawPlan, _InsertCopyForPassthrough | None]:
        """Get the format of the output, the random draws of the steps, and what copies output fields.

        Raises:
            FormatError: The steps do not fit the data; lists all problems with step and field.
            SettingError: The selection of fields to copy does not fit the output.
        """
        blueprint = self.input_data_structure.get_empty_like_self()
        draws = DrawPlan(blueprint.format)
        names: set[Name] = set()

        def on_step(num_steps_done: int, blueprint: SampleDataGroup) -> None:
            names.update(name for path in blueprint.format.flat_paths for name in path)
            if self.prints_formats:
                title = "Input format:" if num_steps_done == 0 else f"Format after step {num_steps_done - 1}:"
                print(f"{title}\n{blueprint.get_string_no_details()}")  # noqa: T201 (an argument requests it)

        output = chain_format(blueprint, self.steps, on_step, draws)
        return output, draws, self._copier(output, names)

    def _copier(self, output: SampleDataGroup, known_names: Collection[Name]) -> _InsertCopyForPassthrough | None:
        if self.copy_selection is None:
            return None
        try:
            return _InsertCopyForPassthrough(output, **self.copy_selection, removed_names=known_names)
        except SettingError as error:
            what = "Invalid pass-through output copy configuration for final output format"
            raise SettingError(f"{what}: {error}") from error

    def placement(self, has_gpu: bool) -> Placement:
        """Decide where the steps run."""
        blueprint = self.blueprint_of_steps if self.divides_steps else None
        return place_steps(self.steps, self.run, blueprint, has_gpu=has_gpu, refusal=self._refusal)

    @property
    def _refusal(self) -> str:
        """Why no step can run in the workers; empty if they can."""
        return "operators of DALI read the samples, so that workers have none" * self.is_native

    def array_steps(self, placement: Placement) -> ArraySteps | None:
        """Get the steps that run in the workers; None if all run in the graph."""
        count = placement.num_in_workers
        if count == 0:
            return None
        deferred = []
        for change in placement.pixels:
            dtypes = [np.dtype(get_numpy_type_for_dali_type(each)) for each in change.parameters.values()]
            deferred.append((change.position, change.path, dtypes))
        return ArraySteps(self.blueprint_of_steps().format, self.steps[:count], placement.first_deferred, deferred)

    def keyed_draws(
        self, plan: DrawPlan, seed: int, batch_size: int, array_steps: ArraySteps | None
    ) -> DrawSource | None:
        """Get what computes the draws of a plan where samples are loaded; None where nothing is drawn there.

        Args:
            plan: The draws.
            seed: Seed of the draws.
            batch_size: Samples per batch on this shard.
            array_steps: The steps that run where samples are loaded.
        """
        require_keys(plan.draws, self.data_input)
        if not plan.draws or not (callable(self.data_input) or (array_steps is not None and array_steps.draws)):
            return None
        if self.given_draws is not None:
            return self.given_draws
        paths = self.input_data_structure.format.flat_paths
        return KeyedDraws(plan.draws, paths, self.sample_seeds(seed, batch_size))

    def sample_seeds(self, seed: int, batch_size: int) -> SampleSeeds:
        """Get the seeds of global generators where samples are loaded.

        Args:
            seed: Seed of the draws.
            batch_size: Samples per batch on this shard.
        """
        shard = self.shard or Shard(0, 1)
        return SampleSeeds(seed, (shard.shard_id, shard.num_shards), batch_size)

    def num_slots(self, blueprint: SampleDataGroup, placement: Placement) -> int:
        """Entries of the batch of the pipeline per sample: as many as a field can be folded of.

        Args:
            blueprint: Format of the samples in the graph.
            placement: Which steps run there.
        """
        in_graph = self.steps[placement.num_in_workers :]
        if not self.folds_arrays or self.is_native:
            return 1
        counts = [min(step.num_in_one_batch(blueprint), _MOST_ELEMENTS) for step in in_graph]
        # Of encoded videos, those of all fields that a step decodes, of cameras with names too.
        videos = Counter(
            (change.position, change.path[-1]) for change in placement.pixels if change.leaf.content.codecs
        )
        counts += [min(count, _MOST_ELEMENTS) for count in videos.values()]
        if placement.pixels or any(step.treats_elements_alike for step in in_graph):
            counts += [level.count for level in FoldedFormat.of(blueprint.format, _MOST_ELEMENTS).levels]
        return max(counts, default=1) or 1


def require_keys(draws: Sequence[PlannedDraw], data_input: object) -> None:
    """Refuse draws whose keys an input cannot supply, as far as that is known before samples are loaded.

    Args:
        draws: The draws.
        data_input: The input.

    Raises:
        SettingError: Lists all of them.
    """
    name = type(data_input).__name__
    problems: list[str] = []
    tells_sequences = any(planned.draw.key in SEQUENCE_KEYS for planned in draws) and _tells_sequences(data_input)
    for planned in draws:
        key = planned.draw.key
        if isinstance(key, FieldKey) and not callable(data_input):
            reason = f"which only callable inputs support (see CallableBase); {name} is none"
            problems.append(f"  - the {planned} is keyed by {key}, {reason}")
        elif key in SEQUENCE_KEYS and not tells_sequences:
            problems.append(f"  - the {planned} {NEEDS_SEQUENCES.format(name)}")
    if problems:
        lines = "\n".join(dict.fromkeys(problems))
        raise SettingError(f"The input cannot supply the keys of all random draws:\n{lines}")


def _tells_sequences(data_input: Any) -> bool:
    """Whether an input seems to know sequences, judging by its first sample."""
    get_place = getattr(type(data_input), "get_place", None)
    if not callable(data_input) or get_place is None or get_place is CallableBase.get_place:
        return False
    try:
        place = data_input.get_place(types.SampleInfo(0, 0, 0, 0))
    except Exception:  # it is reported when the first batch is due
        return True
    return place is None or place.sequence >= 0
