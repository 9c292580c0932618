# SPDX-License-Identifier: Apache-2.0
"""Check of processing steps against their contract."""

from __future__ import annotations

import functools
import itertools
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import attrs
import numpy as np
import nvidia.dali.fn as fn
from nvidia.dali import types
from nvidia.dali.pipeline import pipeline_def

from ..draws.draw_scope import DrawPlan, Draws, GraphDraws, step_context
from ..engine.dali.graph_definition import GraphInspection
from ..errors import FormatError, OutputError, StepOutputError, text_of
from ..pipeline.chain import ArraySteps, chain_format
from ..processing_steps.array_step import ArrayStep, FieldUse
from ..processing_steps.image_use import ImageUse, as_array
from ..processing_steps.pipeline_step_base import PipelineStepBase, PixelChanges, filled
from ..processing_steps.wrappers.group_steps import DataGroupArrayInPathElementsAppliedStep
from ..sample_data import FieldPath, GroupFormat, LeafFormat, SampleDataGroup
from ..sample_data.dtypes import get_numpy_type_for_dali_type
from ..sample_data.formats import describe_difference
from ..sample_data.graph_mode import Within, do_not_convert
from ..sample_data.names import (
    Name,
    Path,
    alike_paths,
    described_together,
    format_path,
    format_paths,
    normalized_path,
)
from .rule_check import RuleCheck, field_differences, sample_differences
from .step_runs import GivenSamples, StepRun, run_step

_UNKNOWN = "unknown to the step: "
_ARRAY = "elements"


def check_step(
    step: PipelineStepBase,
    samples: SampleDataGroup | Sequence[SampleDataGroup],
    *,
    per_sample: bool = True,
    passes_unknown_fields: bool = True,
    tolerance: float = 0.0,
    seed: int = 0,
    device_id: int | None = None,
    layouts: Mapping[Path, str] | None = None,
    on_gpu: Sequence[Path] = (),
    enable_conditionals: bool = False,
) -> None:
    """Check a step against the contract of processing steps, by running it.

    The rules:

    *   The format check does not change the format that it is given, and gives the same result each time.
    *   The output has the declared format: types, and numbers of dimensions and layouts where they
        are declared.
    *   Fields that the step cannot know (they are added to each group of the samples) pass through bit-identical.
    *   A batch of n samples gives what n batches of one give, with the same draws.
    *   With the same draws, the output is the same. All declared draws are used, and no other random operators.
    *   With DALI's conditionals, the output is the same.
    *   If the step says that it treats elements alike, it gives the same for an array of the samples if it is
        applied to all elements at once, and if it is applied to each.
    *   If the step has a form for arrays next to that for the graph, both give the same for the same draws: images
        within the ``image_tolerance`` of the step, everything else in every bit. Arrays that it is given stay as
        they are. Where it declares its changes of pixels, these give the same in the graph, by parameters that
        were computed on arrays.
    *   The step can be pickled, and the copy gives the same output.
    *   If a field is missing or has another type, the step works nevertheless, or refuses the format before
        anything runs, with an error that names the field.

    A step that works on arrays only is run on arrays. This takes some 10 ms for each sample and field.

    Args:
        step: The step.
        samples: A filled sample, or better several of one format with arrays of different shapes.
        per_sample: Whether samples do not depend on the others of their batch. False for a step that e.g. pads to
            the size of the largest one.
        passes_unknown_fields: Whether the step leaves fields alone that it cannot know. False for a step that
            changes all fields of a group.
        tolerance: Largest difference between runs that must agree. At 0, they must agree in every bit.
        seed: Seed of the draws.
        device_id: GPU of the pipelines; None for none.
        layouts: Path of a field -> its layout at the input of the step.
        on_gpu: Paths of fields that are on the GPU at the input of the step.
        enable_conditionals: Whether the step uses ``if`` on data, which needs DALI's conditionals in all runs.

    Raises:
        ContractError: Also an AssertionError; lists each broken rule with its cause.
        SettingError: If there is no sample, or the samples differ in format.
    """
    several = [samples] if isinstance(samples, SampleDataGroup) else [*samples]
    GivenSamples(several)  # for its checks
    how = {
        "device_id": device_id,
        "layouts": layouts,
        "on_gpu": on_gpu,
        "enable_conditionals": enable_conditionals,
    }
    check = _StepCheck(step, several, how, seed, tolerance)
    check.format_rules()
    runs = check.run_rule()
    if runs:
        check.repeat_rules(runs)
        check.draw_rule()
        if per_sample:
            check.batch_rule(runs)
        if passes_unknown_fields:
            check.unknown_field_rule(runs)
        check.elements_rule()
        check.forms_rule(runs)
        check.wrong_format_rules()
    check.raise_broken(step)


@attrs.define
class _StepCheck(RuleCheck):
    kind = "processing steps"
    step: PipelineStepBase
    samples: Sequence[SampleDataGroup]
    how: Mapping[str, Any]
    seed: int
    tolerance: float

    def format_rules(self) -> None:
        blueprint = self.samples[0].get_empty_like_self()
        before = blueprint.format
        with self.reporting("the format cannot be computed"):
            answers = [self.step.check_input_data_format_and_set_output_data_format(blueprint) for _ in range(2)]
            first, second = (answer.format for answer in answers)
            if blueprint.format != before:
                self.break_rule("the input format must be left as it is", _difference(before, blueprint.format))
            elif first != second:
                rule = "called twice with one format, the step must give the same answer"
                self.break_rule(rule, _difference(first, second))

    def run_rule(self) -> list[StepRun]:
        runs: list[StepRun] = []
        with self.reporting("the step must work on the samples"):
            try:
                runs = self._run(self.samples)
            except (StepOutputError, OutputError) as error:
                self.break_rule("the step must produce the format that it declares", text_of(error))
        for path, leaf in zip(*_fields_of(runs), strict=True):
            layouts = {run.layouts.get(format_path(path), "") for run in runs} - {"", leaf.content.layout}
            if leaf.content.layout and layouts:
                found = f"{format_path(path)}: layout {max(layouts)}, the format says {leaf.content.layout}"
                self.break_rule("the step must produce the format that it declares", found)
            counts = {np.ndim(run.output.get_item_in_path(path)) for run in runs} - {leaf.ndim}
            if leaf.ndim is not None and counts:
                found = f"{format_path(path)}: {max(counts)} dimension(s), the format says {leaf.ndim}"
                self.break_rule("the step must produce the format that it declares", found)
        return runs

    def repeat_rules(self, runs: Sequence[StepRun]) -> None:
        with self.reporting("with the same draws, the output must be the same"):
            again = self._run(self.samples, runs, seed=self.seed + 1)
            self._compare("with the same draws, the output must be the same", runs, again)
        if self.step.has_graph_form:
            with self.reporting("the step must work with DALI's conditionals"):
                again = self._run(self.samples, runs, enable_conditionals=True)
                self._compare("with DALI's conditionals, the output must be the same", runs, again)
        rule = "the step must be picklable"
        with self.reporting(rule):
            copy = pickle.loads(pickle.dumps(self.step))
            rule = "what a pickled copy makes must be the same"
            self._compare(rule, runs, self._run(self.samples, runs, step=copy))

    def draw_rule(self) -> None:
        with self.reporting("the draws of the step must be found out"):
            unused, undeclared = list[str](), list[str]()
            if self.step.has_graph_form:
                unused, undeclared = _misused_draws(self.step, self.samples[0], self.how)
            if self.step.has_array_form:  # a graph requests all of them
                unused = _unused_on_arrays(self.step, self.samples[0])
            if unused:
                self.break_rule("each declared draw must be used", ", ".join(unused))
            if undeclared:
                self.break_rule("what is drawn must be declared", f"the step uses {', '.join(undeclared)}")

    def batch_rule(self, runs: Sequence[StepRun]) -> None:
        rule = "a batch of n samples must give what n batches of one give"
        alone: list[StepRun] = []
        for number, (sample, run) in enumerate(zip(self.samples, runs, strict=True)):
            with self.reporting(f"{rule}: sample {number} alone"):
                alone += self._run([sample], [run])
        if len(alone) == len(runs):
            self._compare(rule, runs, alone, "alone")

    def elements_rule(self) -> None:
        if not self.step.treats_elements_alike:
            return
        rule = "a step that says so must treat the elements of an array alike"
        with self.reporting(rule):
            count = max(2, min(len(self.samples), 4))
            rotated = [[*self.samples[number:], *self.samples] for number in range(len(self.samples))]
            samples = [_array_of(elements[:count]) for elements in rotated]
            step = DataGroupArrayInPathElementsAppliedStep(self.step, _ARRAY)

            def of_elements(path: Path) -> list[Path]:
                return [(_ARRAY, index, *normalized_path(path)) for index in range(count)]

            given = (self.how["layouts"] or {}).items()
            layouts = {path: layout for whole, layout in given for path in of_elements(whole)}
            on_gpu = [path for whole in self.how["on_gpu"] for path in of_elements(whole)]
            how: dict[str, Any] = {"layouts": layouts, "on_gpu": on_gpu, "step": step}
            at_once, one_by_one = (self._run(samples, fold_arrays=is_folded, **how) for is_folded in (True, False))
            reasons = {run.not_folded for run in at_once} - {""}
            if reasons:
                self.break_rule(rule, f"it cannot be applied to all elements at once, since {max(reasons)}")
            self._compare(rule, one_by_one, at_once, "at once")

    def forms_rule(self, runs: Sequence[StepRun]) -> None:
        if not (self.step.has_array_form and self.step.has_graph_form):
            return
        rule = "both forms of the step must give the same"
        with self.reporting(rule):
            on_arrays = self._run(self.samples, runs, run="workers", layouts={}, on_gpu=())
            for number, (in_graph, found) in enumerate(zip(runs, on_arrays, strict=True)):
                tolerance = functools.partial(_tolerance_between_forms, self.step, in_graph.output)
                pair = (number, in_graph.output, found.output)
                if self.compare(rule, [pair], tolerance=tolerance, in_found="on arrays"):
                    return
            steps = [_ImagesDeferred(self.step, self.samples[0]), self.step]
            divided = self._run(self.samples, runs, run="pixels", step=steps)
            self._compare(rule, runs, divided, "with pixels alone in the graph")

    def unknown_field_rule(self, runs: Sequence[StepRun]) -> None:
        rule = "fields that the step does not know must pass unchanged"
        with self.reporting(rule):
            samples = [_with_unknown_fields(sample, number) for number, sample in enumerate(self.samples)]
            for number, (sample, run) in enumerate(zip(samples, self._run(samples, runs), strict=True)):
                lines = _lost_or_changed(sample, run.output)
                known = _without_unknown_fields(run.output)
                lines += sample_differences(runs[number].output, known, tolerance=self.tolerance)
                if lines:
                    self.break_rule(rule, "\n".join(lines))
                    return

    def wrong_format_rules(self) -> None:
        sample = self.samples[0]
        for paths in alike_paths(sample.format.flat_paths):
            self._wrong_format(paths, "removed", _without)
            for other in (types.DALIDataType.INT32, types.DALIDataType.FLOAT):
                paths_to_retype = [path for path in paths if _other_type(sample, path) == other]
                retyped = functools.partial(_retyped, dtype=other)
                self._wrong_format(paths_to_retype, f"of type {other.name}", retyped)

    def _wrong_format(
        self,
        paths: Sequence[FieldPath],
        what: str,
        change: Callable[[SampleDataGroup, FieldPath], SampleDataGroup],
    ) -> None:
        """Try fields of array elements with a wrong format, and report the first that breaks a rule in full."""
        broken: dict[str, dict[FieldPath, str]] = {}
        for path in paths:
            found = self._found_with_wrong_format(path, [change(sample, path) for sample in self.samples])
            if found is not None:
                rule, text = found
                broken.setdefault(rule, {})[path] = text
        for rule, texts in broken.items():
            self.break_rule(rule, f"with {format_paths(texts)} {what}: {next(iter(texts.values()))}")

    def _found_with_wrong_format(
        self, path: FieldPath, samples: Sequence[SampleDataGroup]
    ) -> tuple[str, str] | None:
        """Run the step on samples with a wrong field; return the rule that it breaks, and what was got."""
        try:
            chain_format(samples[0].get_empty_like_self(), [self.step])
        except Exception as error:
            return None if _names(error, path) else ("an error about the format must name the field", str(error))
        if not samples[0].format.flat_paths:
            return None
        exists = samples[0].path_exists
        layouts = {path: layout for path, layout in (self.how["layouts"] or {}).items() if exists(path)}
        try:
            self._run(samples, layouts=layouts, on_gpu=[path for path in self.how["on_gpu"] if exists(path)])
        except Exception as error:
            return "what the format check lets pass must work", f"{type(error).__name__}: {text_of(error)}"
        return None

    # --- helpers ----------------------------------------------------------------------------------------

    def _run(
        self,
        samples: Sequence[SampleDataGroup],
        draws_of: Sequence[StepRun] | None = None,
        *,
        step: PipelineStepBase | Sequence[PipelineStepBase] | None = None,
        **how: Any,
    ) -> list[StepRun]:
        draws = None if draws_of is None else [run.draws for run in draws_of]
        arguments = {"seed": self.seed, "run": "auto", **self.how, **how}
        return run_step(step or self.step, samples, draws=draws, **arguments)

    def _compare(
        self, rule: str, expected: Sequence[StepRun], found: Sequence[StepRun], in_found: str = "then"
    ) -> None:
        outputs = zip(itertools.count(), (run.output for run in expected), (run.output for run in found))
        self.compare(rule, outputs, tolerance=self.tolerance, in_found=in_found)


class _ImagesDeferred(ArrayStep):
    """Leaves the images of samples as they are, and to the graph: arrays of three axes or more whose values the
    step does not use."""

    only_in_workers = False

    def __init__(self, step: PipelineStepBase, sample: SampleDataGroup) -> None:
        empty = sample.get_empty_like_self()
        use = step.fields_used(empty) if isinstance(step, ArrayStep) else FieldUse()
        values = zip(sample.format.flat_paths, sample.get_data(), strict=True)
        images = [path for path, value in values if np.ndim(value) >= len("HWC")]
        changed = step.declare_pixel_changes(empty) or {}
        self._paths = [path for path in images if path in changed or path not in {*use.changed, *use.read}]

    def declare_images(self, data_empty: SampleDataGroup) -> Sequence[ImageUse]:
        return [ImageUse(path=path, leaves=as_array) for path in self._paths]

    def declare_pixel_changes(self, data_empty: SampleDataGroup) -> PixelChanges:
        return {path: {} for path in self._paths}

    def graph(self, image: Any, leaf: LeafFormat, name: Name, **parameters: Any) -> Any:
        return image

    def arrays(self, data: SampleDataGroup, draws: Draws) -> SampleDataGroup:
        for path in self._paths:
            data.set_item_in_path(path, data.get_item_in_path(path).changed())
        return data


def _fields_of(runs: Sequence[StepRun]) -> tuple[Sequence[FieldPath], Sequence[LeafFormat]]:
    """Paths and formats of the output fields; empty if there was no run."""
    return (runs[0].output.format.flat_paths, runs[0].output.format.flat_leaves) if runs else ((), ())


def _difference(expected: GroupFormat, found: GroupFormat) -> str:
    return f"{found!r}, not {expected!r}" if expected.matches(found) else describe_difference(expected, found)


def _misused_draws(
    step: PipelineStepBase, sample: SampleDataGroup, how: Mapping[str, Any]
) -> tuple[list[str], list[str]]:
    """Declared draws that the step does not use, and random operators that it uses in addition."""
    plan = DrawPlan(None)
    supply = GraphDraws(plan)
    inspection = GraphInspection()
    arguments = {name: how[name] for name in ("device_id", "enable_conditionals")}

    @do_not_convert
    def sources() -> SampleDataGroup:
        values = (fn.external_source(name=str(number)) for number in range(len(sample.format.flat_paths)))
        return filled(sample.get_empty_like_self(), values)

    @pipeline_def(batch_size=1, num_threads=1, **arguments)
    def graph() -> Any:
        data = sources()
        with Within(step_context, step_context.get()._replace(plan=plan, supply=supply)):
            data = step(data)
        inspection.note("", data.get_data(), supply.made())
        return tuple(data.get_data())

    graph()
    return [planned.record_name for planned in supply.unused()], [*inspection.random_users.get("", ())]


def _unused_on_arrays(step: PipelineStepBase, sample: SampleDataGroup) -> list[str]:
    """Declared draws that a step does not use when it is applied to a sample of arrays."""
    steps = ArraySteps(sample.format, [step])
    asked: set[int] = set()

    def number_of(index: int) -> Any:
        asked.add(index)
        draw = steps.draws[index].draw
        return np.full(draw.shape, getattr(draw, "low", 0), draw.numpy_dtype)

    steps(sample.get_data(), number_of)
    return [str(planned) for index, planned in enumerate(steps.draws) if index not in asked]


def _tolerance_between_forms(step: PipelineStepBase, output: SampleDataGroup, path: FieldPath) -> float:
    """Largest difference that counts as equal: for images the tolerance of the step, times the range of pixels."""
    leaf, value = output.format.at(path), output.get_item_in_path(path)
    content = cast(LeafFormat, leaf).content
    is_image = content.is_encoded is False or (content.is_encoded is None and np.ndim(value) >= 3)
    if not is_image:
        return 0.0
    if value.dtype.kind in "iu":
        return float(step.image_tolerance * 255)
    finite = value[np.isfinite(value)].astype(np.float64)
    return float(step.image_tolerance * max(np.abs(finite).max(initial=0), np.ptp(finite) if finite.size else 0))


def _names(error: Exception, path: FieldPath) -> bool:
    """Whether an error names the path of a field, or at least its name."""
    if isinstance(error, FormatError) and any(problem.path == path for problem in error.problems):
        return True
    name = next((name for name in reversed(path) if isinstance(name, str)), "")
    return format_path(path) in str(error) or name in str(error)


# --- samples with other fields ---------------------------------------------------------------------------


def _values_of_unknown_fields(number: int) -> dict[str, tuple[types.DALIDataType, Any]]:
    """Type and value of each unknown field; shapes differ between samples."""
    dtypes = types.DALIDataType
    return {
        f"{_UNKNOWN}vectors": (dtypes.FLOAT, np.arange(3 * (number + 1), dtype=np.float32).reshape(-1, 3)),
        f"{_UNKNOWN}image": (dtypes.UINT8, np.full((2 + number, 3, 3), 7 + number, np.uint8)),
        f"{_UNKNOWN}number": (dtypes.INT64, np.int64(2**40 + number)),
        f"{_UNKNOWN}text": (dtypes.STRING, "text " * number),
    }


def _array_of(elements: Sequence[SampleDataGroup]) -> SampleDataGroup:
    sample = SampleDataGroup()
    sample.add_data_group_field_array(_ARRAY, elements[0], len(elements))
    return filled(sample, (value for element in elements for value in element.get_data()))


def _with_unknown_fields(sample: SampleDataGroup, number: int) -> SampleDataGroup:
    """A copy with unknown fields in each group, but not next to the elements of arrays."""
    copy = sample.get_copy()
    copy.set_apply_mapping(False)
    copy.set_do_convert(True)
    for group in list(_groups(copy)):
        if not group.is_array() or len(group) == 0:
            for name, (dtype, value) in _values_of_unknown_fields(number).items():
                group.add_data_field(name, dtype)
                group[name] = value
    return copy


def _groups(group: SampleDataGroup) -> Iterator[SampleDataGroup]:
    yield group
    for name, child in zip(group, group.format.children, strict=True):
        if isinstance(child, GroupFormat):
            yield from _groups(cast(SampleDataGroup, group[name]))


def _without_unknown_fields(sample: SampleDataGroup) -> SampleDataGroup:
    copy = sample.get_copy()
    for path in sample.format.flat_paths:
        if str(path[-1]).startswith(_UNKNOWN):
            copy.get_parent_of_path(path).remove_field(path[-1])
    return copy


def _lost_or_changed(sample: SampleDataGroup, output: SampleDataGroup) -> list[str]:
    """The unknown fields of a sample that are not in the output, or differ there."""
    before = dict(zip(sample.format.flat_paths, sample.get_data(), strict=True))
    after = dict(zip(output.format.flat_paths, output.get_data(), strict=True))
    unknown = [
        path
        for path in before
        if str(path[-1]).startswith(_UNKNOWN)
        and output.path_exists_and_is_data_group_field(path[:-1])  # groups as a whole may go
    ]
    lines = described_together((path, "is lost") for path in unknown if path not in after)
    return lines + field_differences((path, before[path], after[path]) for path in unknown if path in after)


def _other_type(sample: SampleDataGroup, path: FieldPath) -> types.DALIDataType:
    """A type that the field does not have."""
    dtype = sample.get_type_of_item_in_path(path)
    return types.DALIDataType.INT32 if dtype == types.DALIDataType.FLOAT else types.DALIDataType.FLOAT


def _without(sample: SampleDataGroup, path: FieldPath) -> SampleDataGroup:
    copy = sample.get_copy()
    copy.get_parent_of_path(path).remove_field(path[-1])
    return copy


def _retyped(sample: SampleDataGroup, path: FieldPath, dtype: types.DALIDataType) -> SampleDataGroup:
    value = np.asarray(sample.get_data()[sample.format.flat_paths.index(path)])
    copy = sample.get_copy()
    copy.change_type_of_data_and_remove_data(path, dtype)
    with np.errstate(invalid="ignore"):  # NaN as a whole number
        copy.set_item_in_path(path, value.astype(get_numpy_type_for_dali_type(dtype)))
    return copy
