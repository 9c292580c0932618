# SPDX-License-Identifier: Apache-2.0
"""Run steps on given samples in a real pipeline."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, overload

import attrs
import numpy as np
import numpy.typing as npt
import nvidia.dali.fn as fn
from nvidia.dali import types

from ..checks import choice, listed
from ..draws.keyed_draws import SamplePlace, SampleSeeds
from ..draws.random_draws import DrawRecord, IntegerDraw, KeyedDraws, NormalDraw, PlannedDraw
from ..errors import SettingError
from ..pipeline.chain import ArraySteps
from ..pipeline.pipeline import PipelineDefinition
from ..processing_steps.pipeline_step_base import RUN_CHOICES, PipelineStepBase, filled
from ..sample_data import LeafFormat, SampleDataGroup
from ..sample_data.formats import describe_difference
from ..sample_data.names import Path, format_path, normalized_path
from ..sources.input_bases import CallableBase
from ..workers.samples import SampleStepError

if TYPE_CHECKING:
    from typing_extensions import Unpack

_Array: TypeAlias = npt.NDArray[Any]


class GivenSamples(CallableBase):
    """Delivers the given samples as one batch, with their draws: the frames of one sequence, in this order.

    Attributes:
        samples: The samples.
        numbers: For each draw ``(samples, *shape)``.
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
        self.numbers: Sequence[_Array] = ()

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

    def of_batch(
        self, source: Any, infos: Sequence[types.SampleInfo], samples: Sequence[Sequence[Any]]
    ) -> Sequence[_Array]:
        """Return the draws of the samples, see `KeyedDraws.of_batch`."""
        return [of_draw[[info.idx_in_epoch for info in infos]] for of_draw in self.numbers]


RunForm: TypeAlias = Literal["auto", "workers", "graph", "pixels"]


@attrs.frozen
class StepRun:
    """Output of a step for one sample.

    Attributes:
        output: The sample, filled with NumPy arrays; text without padding.
        draws: The random draws of the sample, by name; can be passed to `run_step` as ``draws``.
        layouts: Layouts of the fields as DALI has them, e.g. ``{"cameras[0].image": "HWC"}``; empty for none.
        not_folded: Why a step that treats elements alike was applied to each element of an array; empty where it
            was applied to all at once, and for other steps.
        unused_draws: Names of declared draws without an effect: in the graph, the output does not depend on them;
            on arrays, no step has requested them.
        random_operators: Random operators of DALI that the steps define besides their draws.
    """

    output: SampleDataGroup
    draws: DrawRecord
    layouts: dict[str, str]
    not_folded: str = ""
    unused_draws: Sequence[str] = ()
    random_operators: Sequence[str] = ()


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


_Steps: TypeAlias = PipelineStepBase | Sequence[PipelineStepBase]


@overload
def run_step(step: _Steps, samples: SampleDataGroup, **settings: Unpack[RunSettings]) -> StepRun: ...


@overload
def run_step(
    step: _Steps, samples: Sequence[SampleDataGroup], **settings: Unpack[RunSettings]
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
            allowed. The samples count as the frames of one sequence.
        draws: Numbers to use instead of random ones, by the name of the draw: a name
            from `StepRun.draws` sets the draw in one group of the sample, the name that the step declares sets
            it in all groups. One dict for all samples, or a list with one for each. None:
            all numbers are drawn.
        seed: Seed of the draws.
        device_id: GPU of the pipeline; None for none.
        layouts: Path of a field -> its layout at the input of the step, e.g. ``{"image": "HWC"}``.
        on_gpu: Paths of fields that are on the GPU at the input of the step. Steps that work only on arrays allow
            neither ``layouts`` nor ``on_gpu``.
        enable_conditionals: Whether steps may use ``if`` on data.
        fold_arrays: Whether steps are applied once to all elements of an array, see `PipelineDefinition`.
        run: Which form of the steps is run. ``"graph"``: the form for the graph. ``"workers"``: the form for
            arrays. ``"auto"``: the form for the graph, or for arrays if a step has no other. ``"pixels"``: changes
            of pixels in the graph, all else on arrays, as in a pipeline with a GPU. The draws are the same.

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
        steps.insert(0, Placing(layouts or {}, on_gpu))
    given = GivenSamples(several)
    chain = ArraySteps(several[0].format, steps)
    given.numbers = _drawn(chain.draws, given, seed) if draws is None else _given(chain.draws, draws, len(several))
    where = choice(run, "run", (*RUN_CHOICES, "pixels"))
    needs_arrays = any(not each.has_graph_form for each in steps) and all(each.has_array_form for each in steps)
    if where == "workers" or (where == "auto" and needs_arrays):
        runs = [_run_on_arrays(chain, given, number) for number in range(len(several))]
        return runs[0] if isinstance(samples, SampleDataGroup) else runs
    definition = PipelineDefinition(given, steps, use_parallel_external_source=False, fold_arrays=fold_arrays)
    definition = definition.for_trial(divides_steps=where == "pixels", draws=given)
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
        runs = [_run_in_graph(chain, given, number, pipeline, outputs) for number in range(len(several))]
    return runs[0] if isinstance(samples, SampleDataGroup) else runs


def _drawn(draws: Sequence[PlannedDraw], given: GivenSamples, seed: int) -> Sequence[_Array]:
    if not draws:
        return ()
    infos = [types.SampleInfo(slot, slot, 0, 0) for slot in range(len(given.samples))]
    keyed = KeyedDraws(draws, given.samples[0].format.flat_paths, SampleSeeds(seed, batch_size=len(infos)))
    return keyed.of_batch(given, infos, [sample.get_data() for sample in given.samples])


def _record(chain: ArraySteps, given: GivenSamples, number: int) -> DrawRecord:
    """Get the draws of a sample, by name."""
    of_draws = zip(chain.draws, given.numbers, strict=True)
    return {planned.record_name: np.asarray(of_draw[number]) for planned, of_draw in of_draws}


def _run_on_arrays(chain: ArraySteps, given: GivenSamples, number: int) -> StepRun:
    requested: set[int] = set()

    def numbers_of(draw: int) -> _Array:
        requested.add(draw)
        return np.asarray(given.numbers[draw][number])

    try:
        values = chain(given.samples[number].get_data(), numbers_of)
    except SampleStepError as error:
        raise error.__cause__ or error from None
    output = filled(SampleDataGroup.from_format(chain.output_format), values)
    unused = [planned.record_name for draw, planned in enumerate(chain.draws) if draw not in requested]
    return StepRun(output, _record(chain, given, number), {}, unused_draws=unused)


def _run_in_graph(
    chain: ArraySteps, given: GivenSamples, number: int, pipeline: Any, outputs: Sequence[Any]
) -> StepRun:
    """Take a sample out of the outputs of a pipeline."""
    after = chain.output_format
    values = (_array(tensors, number, leaf) for tensors, leaf in zip(outputs, after.flat_leaves, strict=True))
    layouts = [tensors.layout() for tensors in outputs]
    return StepRun(
        output=filled(SampleDataGroup.from_format(after), values),
        draws=_record(chain, given, number),
        layouts=dict(zip(map(format_path, after.flat_paths), layouts, strict=True)),
        not_folded=next(iter(pipeline.not_folded.values()), ""),
        unused_draws=[each.record_name for each in chain.draws if str(each) in pipeline.unused_fields],
        random_operators=pipeline.random_operators,
    )


def _array(tensors: Any, number: int, leaf: LeafFormat) -> _Array:
    array = np.array(tensors.at(number))
    if leaf.is_string and array.ndim == 1:  # padded to the longest text of the batch
        array = array[: len(array.tobytes().rstrip(b"\0"))]
    return array


class Placing(PipelineStepBase):
    """Sets layouts, and moves fields to the GPU."""

    def __init__(self, layouts: Mapping[Path, str], on_gpu: Sequence[Path]) -> None:
        """Set the layout of each field that gets one, and the fields to move."""
        self._layouts = {normalized_path(path): layout for path, layout in layouts.items()}
        self._on_gpu = [normalized_path(path) for path in on_gpu]

    changes_images = False
    treats_elements_alike = True

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


def _given(
    draws: Sequence[PlannedDraw], given: Mapping[str, Any] | Sequence[Mapping[str, Any]], num_samples: int
) -> Sequence[_Array]:
    """Check given numbers."""
    of_samples = [given] * num_samples if isinstance(given, Mapping) else [*given]
    if len(of_samples) != num_samples:
        raise SettingError(f"There must be draws for each of the {num_samples} samples, got {len(of_samples)}.")
    known = {name for planned in draws for name in (planned.record_name, planned.draw.name)}
    unknown = next((name for of_sample in of_samples for name in of_sample if name not in known), None)
    if unknown is not None:
        raise SettingError(
            f"`draws`: the step does not declare {unknown!r} (or its range holds one number only). "
            f"Declared draws: {listed(planned.record_name for planned in draws)}."
        )
    return [np.stack([_value(planned, of_sample) for of_sample in of_samples]) for planned in draws]


def _value(planned: PlannedDraw, given: Mapping[str, Any]) -> _Array:
    draw = planned.draw
    name = next((name for name in (planned.record_name, draw.name) if name in given), None)
    if name is None:
        raise SettingError(f"`draws` lacks the {planned}, {planned.record_name!r}.")
    value = np.asarray(given[name])
    converted = value.astype(draw.numpy_dtype)
    if converted.dtype.kind == "i" and not np.array_equal(converted, value):
        raise SettingError(f"`draws`: {name} must be whole numbers, got {given[name]!r}.")
    if converted.shape != draw.shape:
        raise SettingError(f"`draws`: {name} must have shape {draw.shape}, got {converted.shape}.")
    low, high = (-np.inf, np.inf) if isinstance(draw, NormalDraw) else (draw.low, draw.high)
    low, high = np.array([low, high - isinstance(draw, IntegerDraw)], converted.dtype)
    if not (np.isfinite(converted) & (low <= converted) & (converted <= high)).all():
        raise SettingError(f"`draws`: {name} must lie in [{low}, {high}], got {given[name]!r}.")
    return converted
