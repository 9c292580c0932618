"""Arrays that are folded into the batch: the same results as without, in fewer operators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import nvidia.dali.fn as fn
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from nvidia.dali import types
from support.laws import examples

from accvlab.dali_pipeline_framework.draws import IntegerDraw, RandomDraw, UniformDraw
from accvlab.dali_pipeline_framework.inputs import CallableBase
from accvlab.dali_pipeline_framework.pipeline import (
    DALIStructuredOutputIterator,
    PipelineDefinition,
    SampleDataGroup,
)
from accvlab.dali_pipeline_framework.processing_steps import (
    DataGroupArrayWithNameElementsAppliedStep,
    DataGroupInPathAppliedStep,
    DataGroupsWithNameAppliedStep,
    ImageDecoder,
    ImageMeanStdDevNormalizer,
    PipelineStepBase,
    UnneededFieldRemover,
)

DT = types.DALIDataType
IN_PROCESS = {"num_threads": 1, "py_num_workers": 0, "prefetch_queue_depth": 1}


# --- samples ---------------------------------------------------------------------------------------------


def field_group(*names: str) -> SampleDataGroup:
    group = SampleDataGroup()
    for name in names:
        dtype = {"n": DT.INT32, "f": DT.FLOAT, "h": DT.FLOAT16, "b": DT.BOOL, "t": DT.STRING, "r": DT.FLOAT}[name[0]]
        group.add_data_field(name, dtype)
    return group


def value_of(name: str, number: int) -> Any:
    """The value of a field: ``r`` fields have other shapes in other samples and elements, the others have not."""
    if name[0] == "t":
        return "text " * (number % 4)
    if name[0] == "r":
        return np.arange(number % 3 * 2, dtype=np.float32).reshape(-1, 2) + number
    shape = {"n": (), "f": (2, 2), "h": (0, 3), "b": (3,)}[name[0]]
    return np.full(shape, number % 7)


class Numbers(CallableBase):
    """Samples of any format, in batches of which the last may not be full."""

    delivers_partial_batches = True

    def __init__(self, blueprint: SampleDataGroup, batch_size: int, num_samples: int) -> None:
        self._blueprint = blueprint
        self.batch_size = batch_size
        self._num_samples = num_samples

    @property
    def used_sample_data_structure(self) -> SampleDataGroup:
        return self._blueprint.get_empty_like_self()

    @property
    def length(self) -> int:
        return -(-self._num_samples // self.batch_size)

    def __call__(self, sample_info: types.SampleInfo) -> tuple[Any, ...]:
        index = sample_info.idx_in_epoch
        if index >= self._num_samples:
            raise StopIteration
        sample = self.used_sample_data_structure
        for number, path in enumerate(sample.format.flat_paths):
            name = next(part for part in reversed(path) if isinstance(part, str))
            sample.set_item_in_path(path, value_of(name, 31 * index + number))
        return tuple(sample.get_data())


def rig(num_cameras: int = 3, *fields: str) -> SampleDataGroup:
    sample = field_group("n0")
    sample.add_data_group_field_array("cameras", field_group(*(fields or ("f0", "f1", "n1"))), num_cameras)
    return sample


# --- steps -----------------------------------------------------------------------------------------------


class Step(PipelineStepBase):
    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        return data_empty


class Alike(Step):
    """Works on all fields of a name, with draws of its own, and says that it treats elements alike."""

    treats_elements_alike = True

    def __init__(self, name: str, key: str | None = None) -> None:
        self._name = name
        self._key = key

    def declare_draws(self, data_empty: SampleDataGroup) -> Sequence[RandomDraw]:
        if self._key is None:
            return ()
        return [UniformDraw("gain", 1, 2, key=self._key), IntegerDraw("offset", 0, 9, key=self._key)]

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        for path in data.find_all_occurrences(self._name):
            value = data.get_item_in_path(path)
            if isinstance(value, SampleDataGroup):
                continue
            changed = value * types.Constant(np.float32(3), device="cpu")
            if self._key is not None:
                changed = changed * self.draw("gain") + self.draw("offset")
            data.set_item_in_path(path, fn.cast_like(changed, value))
        return data


class Adds(Step):
    """Adds a field to each group that has one of a name."""

    treats_elements_alike = True

    def __init__(self, name: str, new: str) -> None:
        self._name = name
        self._new = new

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        for path in data.find_all_occurrences(self._name):
            group = data.get_item_in_path(path[:-1])
            group.add_data_field(self._new, DT.FLOAT)
            group[self._new] = fn.cast(group[self._name], dtype=DT.FLOAT) + 0.5
        return data

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        for path in data_empty.find_all_occurrences(self._name):
            data_empty.get_item_in_path(path[:-1]).add_data_field(self._new, DT.FLOAT)
        return data_empty


class Single(Step):
    """Changes a field of one place, and draws with DALI."""

    def __init__(self, path: tuple[Any, ...]) -> None:
        self._path = path

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        value = data.get_item_in_path(self._path)
        changed = value + fn.random.uniform(range=[0.0, 100.0]) * types.Constant(np.float32([1.0]), device="cpu")
        data.set_item_in_path(self._path, fn.cast_like(changed, value))
        return data


class AddsToOne(Step):
    """Adds a field to one element, which then differs in format from the others."""

    def __init__(self, path: tuple[Any, ...], name: str) -> None:
        self._path = path
        self._name = name

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        group = data.get_item_in_path(self._path)
        group.add_data_field(self._name, DT.INT32)
        group[self._name] = fn.random.uniform(range=[0, 1000], dtype=DT.INT32)
        return data

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        data_empty.get_item_in_path(self._path).add_data_field(self._name, DT.INT32)
        return data_empty


class Exchanges(Step):
    """Exchanges the first two elements of an array."""

    def __init__(self, path: tuple[Any, ...], name: str) -> None:
        self._paths = [(*path, index, name) for index in range(2)]

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        one, other = map(data.get_item_in_path, self._paths)
        data.set_item_in_path(self._paths[0], other)
        data.set_item_in_path(self._paths[1], one)
        return data


class LooksOutside(Step):
    """Says wrongly that it treats elements alike: it adds a field of the sample to those of the elements."""

    treats_elements_alike = True

    def __init__(self, name: str, outside: str) -> None:
        self._name = name
        self._outside = outside

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        outside = data[self._outside]
        for path in data.find_all_occurrences(self._name):
            if len(path) > 1:
                value = data.get_item_in_path(path)
                data.set_item_in_path(path, fn.cast_like(value + outside, value))
        return data


# --- comparison ------------------------------------------------------------------------------------------


def batches_of(definition: PipelineDefinition, **arguments: Any) -> tuple[Any, list[list[Any]]]:
    """A pipeline, and the types and values of its outputs, batch by batch and sample by sample."""
    pipeline = definition.get_dali_pipeline(**{"seed": 3, **IN_PROCESS, **arguments})
    batches = []
    try:
        while True:
            outputs = pipeline.run()
            batches.append(
                [
                    (output.dtype, [(np.shape(one), np.asarray(one).tobytes()) for one in map(output.at, range(len(output)))])
                    for output in outputs
                ]
            )
    except StopIteration:
        pass
    pipeline.close()
    return pipeline, batches


def both(source: Any, steps: Sequence[PipelineStepBase], **arguments: Any) -> Iterator[tuple[Any, list[list[Any]]]]:
    for is_folded in (True, False):
        yield batches_of(PipelineDefinition(source, steps, fold_arrays=is_folded), **arguments)


def require_same(source: Any, steps: Sequence[PipelineStepBase], **arguments: Any) -> Any:
    """Compare results with and without folding; return the pipeline in which arrays are folded."""
    (folded, found), (_, expected) = both(source, steps, **arguments)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one == other
    return folded


def names_of_operators(steps: Sequence[PipelineStepBase], sample: SampleDataGroup | None = None) -> list[str]:
    pipeline = PipelineDefinition(Numbers(sample or rig(), 2, 4), steps).get_dali_pipeline(**IN_PROCESS)
    pipeline.build()
    names = [type(op._op).__name__ for op in pipeline._ops]
    pipeline.close()
    return names


# --- the law ---------------------------------------------------------------------------------------------

NAMES = ["f0", "n1", "r2", "b3", "h4"]


@st.composite
def samples(draw: st.DrawFn) -> SampleDataGroup:
    """Arrays of different lengths, arrays in arrays, arrays of fields, groups, and fields beside them."""
    sample = field_group(*draw(st.lists(st.sampled_from([*NAMES, "t5"]), unique=True, max_size=3)), "f9")
    for array in draw(st.lists(st.sampled_from(["cameras", "lidars", "frames"]), unique=True, min_size=1)):
        element = field_group(*draw(st.lists(st.sampled_from([*NAMES, "t5"]), unique=True, min_size=1, max_size=4)))
        if draw(st.booleans()):
            inner = field_group(*draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1, max_size=2)))
            element.add_data_group_field_array("sweeps", inner, draw(st.integers(1, 3)))
        sample.add_data_group_field_array(array, element, draw(st.integers(1, 4)))
    if draw(st.booleans()):
        sample.add_data_field_array("f8", DT.FLOAT, draw(st.integers(1, 3)))
    return sample


@st.composite
def chains(draw: st.DrawFn, sample: SampleDataGroup) -> list[PipelineStepBase]:
    steps: list[PipelineStepBase] = []
    blueprint = sample
    arrays = [name for name in sample if isinstance(name, str) and name in ("cameras", "lidars", "frames")]
    for number in range(draw(st.integers(1, 5))):
        name = draw(st.sampled_from(["f0", "n1", "r2"]))
        array = draw(st.sampled_from(arrays))
        length = len(blueprint[array])
        key = draw(st.sampled_from([None, "sample", "rig"]))
        step: PipelineStepBase = draw(
            st.sampled_from(
                [
                    Alike(name, key),
                    DataGroupArrayWithNameElementsAppliedStep(Alike(name, key), array),
                    DataGroupInPathAppliedStep(Alike(name, key), (array, length - 1)),
                    DataGroupInPathAppliedStep(Alike(name, key), (array,)),
                    Alike(0, None),
                    Adds(name, f"f_new{number}"),
                    Single(("f9",)),
                    AddsToOne((array, 0), f"n_new{number}"),
                    LooksOutside("f0", "f9"),
                    UnneededFieldRemover([name]),
                    *(
                        [Exchanges((array,), name), Single((array, 1, name))]
                        if length > 1 and name in blueprint[array][0] and name != "r2"
                        else []
                    ),
                ]
            )
        )
        try:
            blueprint = step.check_input_data_format_and_set_output_data_format(blueprint)
        except Exception:  # e.g. the field to remove is not there
            continue
        steps.append(step)
    return steps


@pytest.mark.filterwarnings("ignore:These fields are not used")
def test_the_results_are_the_same() -> None:
    checked = 0

    @given(st.data())
    def law(data: st.DataObject) -> None:
        nonlocal checked
        sample = data.draw(samples())
        steps = data.draw(chains(sample))
        source = Numbers(sample, data.draw(st.integers(1, 3)), data.draw(st.integers(1, 5)))
        folded = require_same(
            source,
            steps,
            exec_dynamic=data.draw(st.booleans()),
            enable_conditionals=data.draw(st.booleans()),
        )
        checked += folded.delivery.layout.num_slots > 1

    settings(max_examples=examples(60, 600), deadline=None, phases=[Phase.generate])(law)()
    assert checked > 10
