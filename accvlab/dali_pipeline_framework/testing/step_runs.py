# SPDX-License-Identifier: Apache-2.0
"""Run steps on given samples in a real pipeline."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, overload

import attrs
import numpy as np
import nvidia.dali.fn as fn
from nvidia.dali import types

from ..checks import choice, listed
from ..draws.draw_scope import DrawPlan
from ..draws.keyed_draws import SamplePlace, SampleSeeds
from ..draws.random_draws import DrawRecord, IntegerDraw, KeyedDraws, NormalDraw, PlannedDraw
from ..errors import SettingError
from ..pipeline.chain import ArraySteps, chain_format
from ..pipeline.pipeline import PipelineDefinition
from ..processing_steps.pipeline_step_base import RUN_CHOICES, PipelineStepBase, filled
from ..sample_data import LeafFormat, SampleDataGroup
from ..sample_data.dtypes import get_numpy_type_for_dali_type
from ..sample_data.formats import describe_difference
from ..sample_data.names import Path, format_path, normalized_path
from ..sources.input_bases import CallableBase
from ..workers.samples import SampleStepError

if TYPE_CHECKING:
    from typing_extensions import Unpack


class GivenSamples(CallableBase):
    """Delivers the given samples as one batch: the frames of one sequence, in this order.

    Attributes:
        samples: The samples.
    """

    def __init__(self, samples: Sequence[SampleDataGroup]) -> None:
        """Take filled samples of one format.

        Raises:
            SettingError: If there is no sample, one is not a `SampleDataGroup`, or their formats differ.
        """
        if not samples:
            raise SettingError("At least one sample must be given.")
        for number, sample in enumerate(samples):
            if not isinstance(sample, SampleDataGroup):
                raise SettingError(f"Sample {number} must be a SampleDataGroup, got {type(sample).__name__}.")
            if not sample.type_matches(samples[0]):
                raise SettingError(
                    f"All samples must have the same format, but sample {number} differs from sample 0:\n"
                    f"{describe_difference(samples[0].format, sample.format)}"
                )
        self.batch_size = len(samples)
        self.samples = samples

    @property
    def used_sample_data_structure(self) -> SampleDataGroup:
        """Format of the first sample."""
        return self.samples[0].get_empty_like_self()

    def __call__(self, sample_info: types.SampleInfo) -> tuple[Any, ...]:
        """Return the flat values of a sample."""
        number = sample_info.idx_in_epoch
        if number >= len(self.samples):
            raise StopIteration
        return tuple(self.samples[number].get_data())

    def get_sample_index(self, sample_info: types.SampleInfo) -> int | None:
        """Return the position of the sample."""
        return int(sample_info.idx_in_epoch)

    def get_place(self, sample_info: types.SampleInfo) -> SamplePlace | None:
        """Return the place of the sample: a frame of the only sequence."""
        number = sample_info.idx_in_epoch
        return SamplePlace(
            epoch=sample_info.epoch_idx, batch=0, slot=number, sample_index=number, sequence=0, frame=number
        )

    @property
    def length(self) -> int:
        """Number of batches: one."""
        return 1


@attrs.frozen
class _GivenDraws:
    """The draws of `GivenSamples`.

    Attributes:
        numbers: For each draw ``(samples, *shape)``.
    """

    numbers: Sequence[np.ndarray[Any, Any]]

    def of_batch(
        self, source: Any, infos: Sequence[types.SampleInfo], samples: Sequence[Sequence[Any]]
    ) -> Sequence[np.ndarray[Any, Any]]:
        return [of_draw[[info.idx_in_epoch for info in infos]] for of_draw in self.numbers]


RunForm: TypeAlias = Literal["auto", "workers", "graph", "pixels"]


@attrs.frozen
class StepRun:
    """Output of a step for one sample.

    Attributes:
        output: The sample, filled with NumPy arrays; text without padding.
        draws: The random draws of the sample, by name; for `run_step` on other settings.
        layouts: Layouts of the fields as DALI has them, e.g. ``{"cameras[0].image": "HWC"}``; empty for none.
        not_folded: Why a step that treats elements alike was applied to each element of an array; empty where it
            was applied to all at once, and for other steps.
    """

    output: SampleDataGroup
    draws: DrawRecord
    layouts: dict[str, str]
    not_folded: str = ""


class RunSettings(TypedDict, total=False):
    """The settings of `run_step`."""

    draws: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None
    seed: int
    device_id: int | None
    layouts: Mapping[Path, str] | None
    on_gpu: Sequence[Path]
    enable_conditionals: bool
    fold_arrays: bool
    run: RunForm


@overload
def run_step(
    step: PipelineStepBase | Sequence[PipelineStepBase], samples: SampleDataGroup, **settings: Unpack[RunSettings]
) -> StepRun: ...


@overload
def run_step(
    step: PipelineStepBase | Sequence[PipelineStepBase],
    samples: Sequence[SampleDataGroup],
    **settings: Unpack[RunSettings],
) -> list[StepRun]: ...


def run_step(
    step: PipelineStepBase | Sequence[PipelineStepBase],
    samples: SampleDataGroup | Sequence[SampleDataGroup],
    *,
    draws: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    seed: int = 0,
    device_id: int | None = None,
    layouts: Mapping[Path, str] | None = None,
    on_gpu: Sequence[Path] = (),
    enable_conditionals: bool = False,
    fold_arrays: bool = True,
    run: RunForm = "graph",
) -> StepRun | list[StepRun]:
    """Run a step, or a chain of them, on one sample, or on several as one batch.

    A DALI pipeline is made, run once in this process, and closed: some 10 ms. With ``run="workers"`` the steps are
    applied to the arrays one by one, without a pipeline.

    Args:
        step: The step, or several in their order.
        samples: A filled sample; or a list of samples of one format, a batch. Arrays of different shapes are
            allowed. They count as the frames of one sequence.
        draws: Numbers to use instead of drawing: name of each draw in a record, or the name that the step gave it
            (for all groups) -> its numbers. One dict for all samples, or a list with one for each. By default,
            they are drawn.
        seed: Seed of the draws.
        device_id: GPU of the pipeline; None for none.
        layouts: Path of a field -> its layout at the input of the step, e.g. ``{"image": "HWC"}``.
        on_gpu: Paths of fields that are on the GPU at the input of the step.
        enable_conditionals: Whether steps may use ``if`` on data.
        fold_arrays: As for `PipelineDefinition`.
        run: Which form of the steps is run: that for the ``"graph"``, or that for arrays, as in the ``"workers"``;
            ``"auto"``: that for arrays only where a step has no other; or ``"pixels"``: changes of pixels in the
            graph, all else on arrays, as in a pipeline with a GPU. The draws are the same.

    Returns:
        The output; for a list of samples, a list of outputs.

    Raises:
        FormatError: If the step does not fit the sample.
        SettingError: If an argument breaks a rule, e.g. a draw is missing, or the step does not declare it.
        Exception: Whatever else building and running the pipeline raises.

    Example:
        >>> from nvidia.dali.types import DALIDataType
        >>> from accvlab.dali_pipeline_framework.processing_steps.wrappers.function_steps import LambdaStep
        >>> sample = SampleDataGroup()
        >>> sample.add_data_field("points", DALIDataType.FLOAT)
        >>> sample["points"] = [[1, 2], [3, 4]]
        >>> step = LambdaStep(
        ...     lambda points: points * 10.0, input_names="points", output_types={"points": DALIDataType.FLOAT}
        ... )
        >>> run_step(step, sample).output["points"].tolist()
        [[10.0, 20.0], [30.0, 40.0]]
    """
    if isinstance(samples, PipelineStepBase | Mapping | str):
        raise SettingError(
            f"`samples` must be a filled SampleDataGroup, or a list of them, got {type(samples).__name__}. "
            "The step is the first argument, the samples are the second."
        )
    several = [samples] if isinstance(samples, SampleDataGroup) else [*samples]
    steps = [step] if isinstance(step, PipelineStepBase) else [*step]
    if layouts or on_gpu:
        steps.insert(0, _Placing(layouts or {}, on_gpu))
    given = GivenSamples(several)
    declared = declared_draws(steps, given)
    if draws is not None:
        of_samples = [draws] * len(several) if isinstance(draws, Mapping) else [*draws]
        records = _given_records(of_samples, declared, len(several))
    else:
        records = _drawn_records(declared, given, seed)
    where = choice(run, "run", (*RUN_CHOICES, "pixels"))
    needs_arrays = any(not each.has_graph_form for each in steps) and all(each.has_array_form for each in steps)
    if where == "workers" or (where == "auto" and needs_arrays):
        runs = _runs_on_arrays(steps, several, records)
        return runs[0] if isinstance(samples, SampleDataGroup) else runs
    definition = PipelineDefinition(
        given,
        steps,
        use_parallel_external_source=False,
        fold_arrays=fold_arrays,
    )
    numbers = [np.stack([record[planned.record_name] for record in records]) for planned in declared]
    definition = definition.for_trial(divides_steps=where == "pixels", draws=_GivenDraws(numbers))
    pipeline: Any = definition.get_dali_pipeline(
        num_threads=1,
        py_num_workers=0,
        device_id=device_id,
        seed=seed,
        enable_conditionals=enable_conditionals,
        prefetch_queue_depth=1,
    )
    with contextlib.closing(pipeline):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="These fields are not used")  # a step removes them
            pipeline.build()
        outputs = [output.as_cpu() for output in pipeline.run()]
        blueprint = definition.check_and_get_output_data_structure()
        reason = next(iter(pipeline.not_folded.values()), "")
        runs = [
            _run(blueprint.get_empty_like_self(), outputs, slot, record, reason)
            for slot, record in enumerate(records)
        ]
    return runs[0] if isinstance(samples, SampleDataGroup) else runs


def _drawn_records(draws: Sequence[PlannedDraw], given: GivenSamples, seed: int) -> list[DrawRecord]:
    infos = [types.SampleInfo(slot, slot, 0, 0) for slot in range(len(given.samples))]
    if not draws:
        return [{} for _ in infos]
    keyed = KeyedDraws(draws, given.samples[0].format.flat_paths, SampleSeeds(seed, batch_size=len(infos)))
    names = [planned.record_name for planned in draws]
    of_batch = keyed.of_batch(given, infos, [sample.get_data() for sample in given.samples])
    return [dict(zip(names, map(np.asarray, numbers), strict=True)) for numbers in zip(*of_batch, strict=True)]


def _runs_on_arrays(
    steps: Sequence[PipelineStepBase], samples: Sequence[SampleDataGroup], records: Sequence[DrawRecord]
) -> list[StepRun]:
    array_steps = ArraySteps(samples[0].format, steps)
    draws = array_steps.draws
    flat = [sample.get_data() for sample in samples]
    runs = []
    for values, record in zip(flat, records, strict=True):
        numbers = [record[planned.record_name] for planned in draws]
        try:
            output = array_steps(values, numbers.__getitem__)
        except SampleStepError as error:
            raise error.__cause__ or error from None
        blueprint = SampleDataGroup.from_format(array_steps.output_format)
        runs.append(StepRun(filled(blueprint, output), record, {}))
    return runs


def declared_draws(steps: Sequence[PipelineStepBase], data_input: GivenSamples) -> list[PlannedDraw]:
    """Return the draws that the steps declare for an input.

    Raises:
        FormatError: If the steps do not fit the input.
    """
    blueprint = data_input.used_sample_data_structure
    plan = DrawPlan(blueprint.format)
    chain_format(blueprint, steps, draws=plan)
    return plan.draws


class _Placing(PipelineStepBase):
    """Sets layouts, and moves fields to the GPU."""

    def __init__(self, layouts: Mapping[Path, str], on_gpu: Sequence[Path]) -> None:
        self._layouts = {normalized_path(path): layout for path, layout in layouts.items()}
        self._on_gpu = [normalized_path(path) for path in on_gpu]

    changes_images = False

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        for path, layout in self._layouts.items():
            data.set_item_in_path(path, fn.reshape(data.get_item_in_path(path), layout=layout))
        for path in self._on_gpu:
            data.set_item_in_path(path, data.get_item_in_path(path).gpu())
        return data

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        for path in (*self._layouts, *self._on_gpu):
            if not isinstance(data_empty.format.get(path), LeafFormat):
                raise SettingError(f"{format_path(path)}: the sample has no such data field.")
        return data_empty


def _given_records(
    given: Sequence[Mapping[str, Any]], draws: Sequence[PlannedDraw], num_samples: int
) -> list[DrawRecord]:
    if len(given) != num_samples:
        raise SettingError(f"There must be draws for each of the {num_samples} samples, got {len(given)}.")
    known = {name for planned in draws for name in (planned.record_name, planned.draw.name)}
    unknown = next((name for of_sample in given for name in of_sample if name not in known), None)
    if unknown is not None:
        raise SettingError(
            f"`draws`: the step does not declare {unknown!r} (or its range holds one number only). "
            f"Declared draws: {listed(planned.record_name for planned in draws)}."
        )
    return [{planned.record_name: _value(of_sample, planned) for planned in draws} for of_sample in given]


def _value(given: Mapping[str, Any], planned: PlannedDraw) -> np.ndarray[Any, Any]:
    names = [name for name in (planned.record_name, planned.draw.name) if name in given]
    if not names:
        raise SettingError(f"`draws` lacks the {planned}, {planned.record_name!r}.")
    value = np.asarray(given[names[0]])
    converted = value.astype(get_numpy_type_for_dali_type(planned.draw.dtype))
    if converted.dtype.kind == "i" and not np.array_equal(converted, value):
        raise SettingError(f"`draws`: {names[0]} must be whole numbers, got {given[names[0]]!r}.")
    if converted.shape != planned.draw.shape:
        raise SettingError(f"`draws`: {names[0]} must have shape {planned.draw.shape}, got {converted.shape}.")
    draw = planned.draw
    low, high = (-np.inf, np.inf) if isinstance(draw, NormalDraw) else (draw.low, draw.high)
    low, high = np.array([low, high - isinstance(draw, IntegerDraw)], converted.dtype)
    if not (np.isfinite(converted) & (low <= converted) & (converted <= high)).all():
        raise SettingError(f"`draws`: {names[0]} must lie in [{low}, {high}], got {given[names[0]]!r}.")
    return converted


def _run(
    output: SampleDataGroup, outputs: Sequence[Any], slot: int, record: DrawRecord, not_folded: str
) -> StepRun:
    paths, leaves = output.format.flat_paths, output.format.flat_leaves
    filled(output, (_array(tensors, slot, leaf) for tensors, leaf in zip(outputs, leaves, strict=True)))
    layouts = {format_path(path): tensors.layout() for path, tensors in zip(paths, outputs, strict=True)}
    return StepRun(output, record, layouts, not_folded)


def _array(tensors: Any, slot: int, leaf: LeafFormat) -> np.ndarray[Any, Any]:
    array = np.array(tensors.at(slot))
    if leaf.is_string and array.ndim == 1:  # padded to the longest text of the batch
        array = array[: len(array.tobytes().rstrip(b"\0"))]
    return array
