# SPDX-License-Identifier: Apache-2.0
"""Check of processing steps against their contract."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from nvidia.dali import types

from ..draws.draw_scope import Draws
from ..errors import OutputError, StepOutputError, text_of
from ..operators.element_selection import leaf_at
from ..pipeline.chain import ArraySteps, chain_format
from ..processing_steps.array_step import ArrayStep
from ..processing_steps.image_use import ImageUse, as_array
from ..processing_steps.pipeline_step_base import PipelineStepBase, PixelChanges, filled
from ..processing_steps.wrappers.group_steps import DataGroupArrayInPathElementsAppliedStep
from ..sample_data import FieldPath, GroupFormat, LeafFormat, SampleDataGroup
from ..sample_data.dtypes import get_numpy_type_for_dali_type
from ..sample_data.formats import describe_difference
from ..sample_data.names import Name, Path, alike_paths, described_together, format_path, format_paths
from .rule_check import RuleCheck, field_differences
from .step_runs import GivenSamples, Placing, StepRun, run_step

_DT = types.DALIDataType
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
    *   If the step says that it treats elements alike, then on an array whose elements are
        the samples it gives the same whether it is applied to all elements at once or to each element.
    *   If the step has a form for arrays next to that for the graph, both give the same for the same draws: images
        within the ``image_tolerance`` of the step, everything else in every bit. The form for arrays does not
        change its input arrays. If a step with both forms declares its changes of pixels,
        the output is also the same if its parameters are computed on arrays and the pixels are changed in the
        graph.
    *   The step can be pickled, and the copy gives the same output.
    *   If a field is missing or has another type, the step works nevertheless, or refuses the format before
        anything runs, with an error that names the field.

    A step that works on arrays only is run on arrays. The whole check takes some 10 ms for each sample and field.

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
        on_gpu: Paths of fields that are on the GPU at the input of the step. Steps that work only on arrays allow
            neither ``layouts`` nor ``on_gpu``.
        enable_conditionals: Whether the step uses ``if`` on data, which needs DALI's conditionals in all runs.

    Raises:
        ContractError: Rules are broken; the message lists each with its cause. Also an AssertionError.
        SettingError: If there is no sample, or the samples differ in format.
    """
    several = [samples] if isinstance(samples, SampleDataGroup) else [*samples]
    GivenSamples(several)  # for its checks
    how = {
        "run": "auto",
        "seed": seed,
        "device_id": device_id,
        "layouts": layouts or {},
        "on_gpu": on_gpu,
        "enable_conditionals": enable_conditionals,
    }
    check = _StepCheck(step, several, how, tolerance)
    check.format_rules()
    runs = check.run_rule()
    if runs:
        check.repeat_rules(runs)
        check.draw_rule(runs, check.forms_rule(runs))
        if per_sample:
            check.batch_rule(runs)
        if passes_unknown_fields:
            check.unknown_field_rule(runs)
        check.elements_rule()
        check.wrong_format_rules()
    check.raise_broken(step)


@attrs.define
class _StepCheck(RuleCheck):
    kind = "processing steps"
    step: PipelineStepBase
    samples: Sequence[SampleDataGroup]
    how: Mapping[str, Any]
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
        runs, rule = list[StepRun](), "the step must produce the format that it declares"
        with self.reporting("the step must work on the samples"):
            try:
                runs = self._run(self.samples)
            except (StepOutputError, OutputError) as error:
                self.break_rule(rule, text_of(error))
        for path in runs[0].output.format.flat_paths if runs else ():
            name, leaf = format_path(path), leaf_at(runs[0].output, path)
            found: dict[tuple[str, Any], set[Any]] = {
                ("layout {}", leaf.content.layout): {run.layouts.get(name, "") for run in runs} - {""},
                ("{} dimension(s)", leaf.ndim): {np.ndim(run.output.get_item_in_path(path)) for run in runs},
            }
            for (what, declared), values in found.items():
                others = values - {declared}
                if declared is not None and others:
                    self.break_rule(rule, f"{name}: {what.format(max(others))}, the format says {declared}")
        return runs

    def repeat_rules(self, runs: Sequence[StepRun]) -> None:
        self._same("with the same draws, the output must be the same", runs, seed=self.how["seed"] + 1)
        if self.step.has_graph_form:
            rule = "with DALI's conditionals, the output must be the same"
            self._same(rule, runs, enable_conditionals=True)
        with self.reporting("the step must be picklable"):
            copy = pickle.loads(pickle.dumps(self.step))
            self._same("what a pickled copy makes must be the same", runs, step=copy)

    def forms_rule(self, runs: Sequence[StepRun]) -> Sequence[StepRun]:
        """Compare the forms of the step; return the runs on arrays, if it works on arrays."""
        if not (self.step.has_array_form and self.step.has_graph_form):
            return runs
        rule = "both forms of the step must give the same"
        on_arrays = list[StepRun]()
        with self.reporting(rule):
            on_arrays = self._run(self.samples, runs, run="workers", layouts={}, on_gpu=())
            for number, run in enumerate(runs):
                tolerance = functools.partial(_tolerance_between_forms, self.step, run.output)
                outputs = [run.output], [on_arrays[number].output]
                self.compare(rule, [number], *outputs, tolerance=tolerance, in_found="on arrays")
        steps = [_ImagesDeferred(self.step, self.samples[0]), self.step]
        self._same(rule, runs, "with pixels alone in the graph", run="pixels", step=steps)
        return on_arrays

    def draw_rule(self, runs: Sequence[StepRun], on_arrays: Sequence[StepRun]) -> None:
        # In a graph, a step on arrays requests all its draws.
        unused = [name for name in runs[0].draws if all(name in run.unused_draws for run in on_arrays or runs)]
        with self.reporting("the draws of the step must be found out"):
            if unused and self.step.has_array_form:  # some may depend on the numbers of others
                unused = [name for name in unused if name in self._unused_at_least_numbers()]
            if unused:
                self.break_rule("each declared draw must be used", ", ".join(unused))
        if runs[0].random_operators:
            used = ", ".join(runs[0].random_operators)
            self.break_rule("what is drawn must be declared", f"the step uses {used}")

    def _unused_at_least_numbers(self) -> list[str]:
        steps = ArraySteps(self.samples[0].format, [self.step])
        least = {
            each.record_name: np.full(each.draw.shape, getattr(each.draw, "low", 0), each.draw.numpy_dtype)
            for each in steps.draws
        }
        (run,) = run_step(self.step, self.samples[:1], draws=[least], seed=self.how["seed"], run="workers")
        return [*run.unused_draws]

    def batch_rule(self, runs: Sequence[StepRun]) -> None:
        rule = "a batch of n samples must give what n batches of one give"
        alone: list[StepRun] = []
        for number, (sample, run) in enumerate(zip(self.samples, runs, strict=True)):
            with self.reporting(f"{rule}: sample {number} alone"):
                alone += self._run([sample], [run])
        if len(alone) == len(runs):
            self._compare(rule, runs, alone, "alone")

    def unknown_field_rule(self, runs: Sequence[StepRun]) -> None:
        rule = "fields that the step does not know must pass unchanged"
        with self.reporting(rule):
            samples = [_with_unknown_fields(sample, number) for number, sample in enumerate(self.samples)]
            found = [run.output for run in self._run(samples, runs)]
            known = [run.output for run in runs]
            disturbed = next(filter(None, map(self._disturbed, samples, known, found)), None)
            if disturbed:
                self.break_rule(rule, "\n".join(disturbed))

    def _disturbed(self, sample: SampleDataGroup, known: SampleDataGroup, output: SampleDataGroup) -> list[str]:
        """Compare an output with that of a sample without unknown fields, and with the unknown fields."""
        unknown = {
            path: value
            for path, value in _values(sample).items()
            if _is_unknown(path)
            and output.path_exists_and_is_data_group_field(path[:-1])  # groups as a whole may go
        }
        # Those that a step has moved with their group are no longer at their place.
        found = {
            path: value for path, value in _values(output).items() if path in unknown or not _is_unknown(path)
        }
        expected = {**_values(known), **unknown}
        lines = described_together((path, "is lost") for path in expected if path not in found)
        lines += described_together((path, "is added") for path in found if path not in expected)
        fields = ((path, expected[path], found[path]) for path in expected if path in found)
        return lines + field_differences(fields, tolerance=lambda path: self.tolerance * (path not in unknown))

    def elements_rule(self) -> None:
        if not self.step.treats_elements_alike:
            return
        rule = "a step that says so must treat the elements of an array alike"
        with self.reporting(rule):
            rotated = [[*self.samples[number:], *self.samples] for number in range(len(self.samples))]
            samples = [_array_of(elements[: max(2, min(len(self.samples), 4))]) for elements in rotated]
            layouts, on_gpu = self.how["layouts"], self.how["on_gpu"]
            applied = [Placing(layouts, on_gpu)] * bool(layouts or on_gpu) + [self.step]
            steps = [DataGroupArrayInPathElementsAppliedStep(each, _ARRAY) for each in applied]
            one_by_one, at_once = (
                self._run(samples, step=steps, fold_arrays=is_folded, layouts={}, on_gpu=())
                for is_folded in (False, True)
            )
            reasons = {run.not_folded for run in at_once} - {""}
            if reasons:
                self.break_rule(rule, f"it cannot be applied to all elements at once, since {max(reasons)}")
            self._compare(rule, one_by_one, at_once, "at once")

    def wrong_format_rules(self) -> None:
        for paths in alike_paths(self.samples[0].format.flat_paths):
            broken: dict[tuple[str, str], dict[FieldPath, str]] = {}
            for path in paths:
                for what, samples in self._with_wrong_format(path):
                    rule, text = self._broken_by_format(path, samples)
                    if rule:
                        broken.setdefault((rule, what), {})[path] = text
            for (rule, what), texts in broken.items():
                self.break_rule(rule, f"with {format_paths(texts)} {what}: {next(iter(texts.values()))}")

    def _with_wrong_format(self, path: FieldPath) -> Iterator[tuple[str, list[SampleDataGroup]]]:
        """Get the samples without a field, and with another type of it; and what was done to it."""
        yield "removed", [_without(sample, path) for sample in self.samples]
        other = _DT.INT32 if self.samples[0].get_type_of_item_in_path(path) == _DT.FLOAT else _DT.FLOAT
        yield f"of type {other.name}", [_retyped(sample, path, other) for sample in self.samples]

    def _broken_by_format(self, path: FieldPath, samples: Sequence[SampleDataGroup]) -> tuple[str, str]:
        """Run the step on samples with a wrong field; return the rule that it breaks, and what was got."""
        try:
            chain_format(samples[0].get_empty_like_self(), [self.step])
        except Exception as error:
            name, text = next((name for name in reversed(path) if isinstance(name, str)), ""), str(error)
            is_named = name in text or format_path(path) in text
            return ("", "") if is_named else ("an error about the format must name the field", text)
        exists = samples[0].path_exists
        layouts = {path: layout for path, layout in self.how["layouts"].items() if exists(path)}
        try:
            if samples[0].format.flat_paths:
                self._run(samples, layouts=layouts, on_gpu=[path for path in self.how["on_gpu"] if exists(path)])
        except Exception as error:
            return "what the format check lets pass must work", f"{type(error).__name__}: {text_of(error)}"
        return "", ""

    # --- helpers ----------------------------------------------------------------------------------------

    def _run(
        self, samples: Sequence[SampleDataGroup], draws_of: Sequence[StepRun] = (), **how: Any
    ) -> list[StepRun]:
        draws = [run.draws for run in draws_of] or None
        return run_step(samples=samples, **{"step": self.step, "draws": draws, **self.how, **how})

    def _same(self, rule: str, runs: Sequence[StepRun], in_found: str = "then", **how: Any) -> None:
        """Run the samples again, in another way, with the same draws; the output must be the same."""
        with self.reporting(rule):
            self._compare(rule, runs, self._run(self.samples, runs, **how), in_found)

    def _compare(self, rule: str, expected: Sequence[StepRun], found: Sequence[StepRun], in_found: str) -> None:
        outputs = [run.output for run in expected], [run.output for run in found]
        self.compare(rule, range(len(expected)), *outputs, tolerance=self.tolerance, in_found=in_found)


class _ImagesDeferred(ArrayStep):
    """Leaves the images of samples as they are, and to the graph: arrays of three axes or more."""

    only_in_workers = False

    def __init__(self, step: PipelineStepBase, sample: SampleDataGroup) -> None:
        # Of an `ArrayStep`, the graph has kept all that it does not name in `fields_used`.
        values = {} if isinstance(step, ArrayStep) else _values(sample)
        self._paths = [path for path, value in values.items() if np.ndim(value) >= len("HWC")]

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


def _difference(expected: GroupFormat, found: GroupFormat) -> str:
    return f"{found!r}, not {expected!r}" if expected.matches(found) else describe_difference(expected, found)


def _tolerance_between_forms(step: PipelineStepBase, output: SampleDataGroup, path: FieldPath) -> float:
    """Largest difference that counts as equal: for images the tolerance of the step, times the range of pixels."""
    content, value = leaf_at(output, path).content, output.get_item_in_path(path)
    is_image = content.is_encoded is False or (content.is_encoded is None and np.ndim(value) >= len("HWC"))
    if not is_image:
        return 0.0
    finite = value[np.isfinite(value)].astype(np.float64)
    whole_range = 255 if value.dtype.kind in "iu" else finite.max(initial=0) - finite.min(initial=0)
    return float(step.image_tolerance * whole_range)


# --- samples with other fields ---------------------------------------------------------------------------


def _is_unknown(path: FieldPath) -> bool:
    return str(path[-1]).startswith(_UNKNOWN)


def _values(sample: SampleDataGroup) -> dict[FieldPath, Any]:
    return dict(zip(sample.format.flat_paths, sample.get_data(), strict=True))


def _array_of(elements: Sequence[SampleDataGroup]) -> SampleDataGroup:
    sample = SampleDataGroup()
    sample.add_data_group_field_array(_ARRAY, elements[0], len(elements))
    return filled(sample, (value for element in elements for value in element.get_data()))


def _with_unknown_fields(sample: SampleDataGroup, number: int) -> SampleDataGroup:
    """A copy with unknown fields in each group, but not next to the elements of arrays."""
    fields: dict[str, tuple[types.DALIDataType, Any]] = {  # shapes differ between samples
        f"{_UNKNOWN}vectors": (_DT.FLOAT, np.arange(3 * (number + 1), dtype=np.float32).reshape(-1, 3)),
        f"{_UNKNOWN}image": (_DT.UINT8, np.full((2 + number, 3, 3), 7 + number, np.uint8)),
        f"{_UNKNOWN}number": (_DT.INT64, np.int64(2**40 + number)),
        f"{_UNKNOWN}text": (_DT.STRING, "text " * number),
    }
    copy = sample.get_copy()
    copy.set_apply_mapping(False)
    copy.set_do_convert(True)
    for group in [*_groups(copy)]:
        if not group.is_array() or not len(group):
            for name, (dtype, value) in fields.items():
                group.add_data_field(name, dtype)
                group[name] = value
    return copy


def _groups(group: SampleDataGroup) -> Iterator[SampleDataGroup]:
    yield group
    for name, child in zip(group, group.format.children, strict=True):
        if isinstance(child, GroupFormat):
            yield from _groups(group[name])


def _without(sample: SampleDataGroup, path: FieldPath) -> SampleDataGroup:
    copy = sample.get_copy()
    copy.get_parent_of_path(path).remove_field(path[-1])
    return copy


def _retyped(sample: SampleDataGroup, path: FieldPath, dtype: types.DALIDataType) -> SampleDataGroup:
    value = np.asarray(_values(sample)[path])
    copy = sample.get_copy()
    copy.change_type_of_data_and_remove_data(path, dtype)
    with np.errstate(invalid="ignore"):  # NaN as a whole number
        copy.set_item_in_path(path, value.astype(get_numpy_type_for_dali_type(dtype)))
    return copy
