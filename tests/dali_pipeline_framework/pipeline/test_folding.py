"""Arrays that are folded into the batch: the same results as without, in fewer operators."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import nvidia.dali.fn as fn
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from nvidia.dali import types
from support.array_samples import group_of
from support.laws import each_value, examples
from support.providers import IndexProvider
from support.refusals import assert_refused
from support.steps import KeepsFormat

from accvlab.dali_pipeline_framework.draws import IntegerDraw, RandomDraw, UniformDraw
from accvlab.dali_pipeline_framework.errors import GraphError, OutputError, SourceError
from accvlab.dali_pipeline_framework.inputs import SamplerInputCallable
from accvlab.dali_pipeline_framework.pipeline import (
    DALIStructuredOutputIterator,
    PipelineDefinition,
    SampleDataGroup,
)
from accvlab.dali_pipeline_framework.processing_steps import (
    DataGroupArrayWithNameElementsAppliedStep,
    DataGroupInPathAppliedStep,
    LambdaStep,
    PipelineStepBase,
    UnneededFieldRemover,
)
from accvlab.dali_pipeline_framework.sampling import SequentialSampler

DT = types.DALIDataType
IN_PROCESS = {"num_threads": 1, "py_num_workers": 0, "prefetch_queue_depth": 1}


# --- samples ---------------------------------------------------------------------------------------------


TYPES = {"n": DT.INT32, "f": DT.FLOAT, "h": DT.FLOAT16, "b": DT.BOOL, "t": DT.STRING, "r": DT.FLOAT}


def field_group(*names: str) -> SampleDataGroup:
    return group_of(**{name: TYPES[name[0]] for name in names})


def value_of(name: str, number: int) -> Any:
    """The value of a field: ``r`` fields have other shapes in other samples and elements, the others have not."""
    if name[0] == "t":
        return "text " * (number % 4)
    if name[0] == "r":
        return np.arange(number % 3 * 2, dtype=np.float32).reshape(-1, 2) + number
    shape = {"n": (), "f": (2, 2), "h": (0, 3), "b": (3,)}[name[0]]
    return np.full(shape, number % (2 if name[0] == "b" else 7))


class NumberedFields(IndexProvider):
    """Samples of any format."""

    def __init__(self, blueprint: SampleDataGroup, num_samples: int) -> None:
        super().__init__(num_samples)
        self._blueprint = blueprint

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        return self._blueprint.get_empty_like_self()

    def get_data(self, sample_index: int) -> SampleDataGroup:
        sample = self.sample_data_structure
        for number, path in enumerate(sample.format.flat_paths):
            name = next(part for part in reversed(path) if isinstance(part, str))
            sample.set_item_in_path(path, value_of(name, 31 * sample_index + number))
        return sample


def in_batches(provider: IndexProvider, batch_size: int) -> SamplerInputCallable:
    """All samples, in batches of which the last may not be full."""
    return SamplerInputCallable(
        provider, SequentialSampler(provider.num_samples, batch_size, last_batch="partial")
    )


def numbers(blueprint: SampleDataGroup, batch_size: int, num_samples: int) -> SamplerInputCallable:
    return in_batches(NumberedFields(blueprint, num_samples), batch_size)


def rig(num_cameras: int = 3, *fields: str) -> SampleDataGroup:
    sample = field_group("n0")
    sample.add_data_group_field_array("cameras", field_group(*(fields or ("f0", "f1", "n1"))), num_cameras)
    return sample


# --- steps -----------------------------------------------------------------------------------------------


class Alike(KeepsFormat):
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


class Adds(KeepsFormat):
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


def single(*path: Any) -> LambdaStep:
    """Changes a field of one place, and draws with DALI."""

    def changed(value: Any) -> Any:
        drawn = fn.random.uniform(range=[0.0, 100.0]) * types.Constant(np.float32(1.0), device="cpu")
        return fn.cast_like(value + drawn, value)

    return LambdaStep(changed, input_names=[path], output_types={path: TYPES[path[-1][0]]})


def exchanges(array: str, name: str) -> LambdaStep:
    """Exchanges the first two elements of an array."""
    paths = [(array, index, name) for index in range(2)]
    of_paths = dict.fromkeys(paths, TYPES[name[0]])
    return LambdaStep(lambda one, other: (other, one), input_names=paths, output_types=of_paths)


class LooksOutside(KeepsFormat):
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
                    (
                        output.dtype,
                        [(np.shape(one), np.asarray(one).tobytes()) for one in map(output.at, range(len(output)))],
                    )
                    for output in outputs
                ]
            )
    except StopIteration:
        pass
    pipeline.close()
    return pipeline, batches


def assert_same(source: Any, steps: Sequence[PipelineStepBase], **arguments: Any) -> Any:
    """Compare results with and without folding; return the pipeline in which arrays are folded."""
    (folded, found), (_, expected) = (
        batches_of(PipelineDefinition(source, steps, fold_arrays=is_folded), **arguments)
        for is_folded in (True, False)
    )
    assert found == expected
    return folded


def names_of_operators(steps: Sequence[PipelineStepBase], sample: SampleDataGroup, **settings: Any) -> list[str]:
    pipeline = PipelineDefinition(numbers(sample, 2, 4), steps, **settings).get_dali_pipeline(**IN_PROCESS)
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
        element = field_group(
            *draw(st.lists(st.sampled_from([*NAMES, "t5"]), unique=True, min_size=1, max_size=4))
        )
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
                    single("f9"),
                    DataGroupInPathAppliedStep(Adds(name, f"f_one{number}"), (array, 0)),
                    LooksOutside("f0", "f9"),
                    UnneededFieldRemover([name]),
                    *(
                        [exchanges(array, name), single(array, 1, name)]
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


@pytest.mark.timeout(300)  # longer than a minute where the machine is busy
@pytest.mark.filterwarnings("ignore:These fields are not used")
def test_the_results_are_the_same() -> None:
    checked = 0

    @given(st.data())
    def law(data: st.DataObject) -> None:
        nonlocal checked
        sample = data.draw(samples())
        steps = data.draw(chains(sample))
        source = numbers(sample, data.draw(st.integers(1, 3)), data.draw(st.integers(1, 5)))
        folded = assert_same(
            source, steps, exec_dynamic=data.draw(st.booleans()), enable_conditionals=data.draw(st.booleans())
        )
        checked += folded.delivery.layout.num_slots > 1

    settings(max_examples=examples(12, 200), deadline=None, phases=[Phase.generate])(law)()
    assert checked > 0


class Branches(KeepsFormat):
    """Uses `if` on data, with random operators of DALI and constants in the branches."""

    def __init__(self, name: str, is_alike: bool) -> None:
        self._name = name
        self.treats_elements_alike = is_alike

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        for path in data.find_all_occurrences(self._name):
            value = data.get_item_in_path(path)
            if fn.reductions.max(value) > 3:
                value = value * types.Constant(np.float32(2), device="cpu")
            else:
                value = value + np.float32(0.5) if self.treats_elements_alike else value + fn.random.normal()
            data.set_item_in_path(path, value)
        return data


def with_array(sample: SampleDataGroup, name: str, element: SampleDataGroup, length: int) -> SampleDataGroup:
    sample.add_data_group_field_array(name, element, length)
    return sample


@pytest.mark.parametrize("is_alike", [True, False])
def test_branches_on_data(is_alike: bool) -> None:
    sample = with_array(rig(4), "lidars", field_group("f3"), 2)
    steps = [Alike("f0"), Branches("f0", is_alike), Alike("f0", "rig")]
    pipeline = assert_same(numbers(sample, 3, 8), steps, enable_conditionals=True)
    assert ("Branches): once for all" in pipeline.plan) == is_alike


# --- what is folded --------------------------------------------------------------------------------------


def test_one_operator_works_for_all_elements() -> None:
    steps = [Alike("f0")]
    names = names_of_operators(steps, rig(6))
    assert names.count("_ArithmeticGenericOp") == 1
    assert "Split" not in names
    assert names.count("ExternalSource") == 2  # the field, and the buffer of all others
    assert names_of_operators(steps, rig(6), fold_arrays=False).count("_ArithmeticGenericOp") == 6


def test_a_field_that_is_changed_element_by_element_is_not_folded_again_for_it() -> None:
    names = names_of_operators([Alike("f0"), single("cameras", 1, "n1"), Alike("f0")], rig(4))
    assert names.count("Merge") == 0
    assert names.count("_ArithmeticGenericOp") < 9


def numbered_fields() -> SampleDataGroup:
    sample = field_group("n0")
    sample.add_data_field_array("f8", DT.FLOAT, 3)
    return sample


FRAMES, MORE_LIDARS, MANY_POINTS, BESIDE = (
    with_array(SampleDataGroup(), "frames", with_array(field_group("f1"), "cameras", field_group("f0"), 3), 2),
    with_array(rig(6), "lidars", field_group("f0"), 3),
    with_array(rig(6), "points", field_group("f7"), 100),
    with_array(field_group("f9"), "cameras", field_group("f0"), 3),
)


@pytest.mark.parametrize(
    ("sample", "steps", "expected"),
    [
        (
            with_array(rig(6), "lidars", field_group("f3"), 3),
            [Alike("f0", "rig"), Alike("f3", "sample"), Adds("f3", "f4")],
            [
                "batches of the graph: samples x 6",
                "step 0 (Alike): once for all elements of cameras (6)",
                "step 1 (Alike): once for all elements of lidars (3)",
                "step 2 (Adds): once for all elements of lidars (3)",
            ],
        ),
        (MORE_LIDARS, [Alike("f0")], ["since it needs constants for arrays of several lengths"]),
        (
            FRAMES,
            [Alike("f0"), Alike("f1")],
            [
                "batches of the graph: samples x 6",
                "step 0 (Alike): once for all elements of frames (2) x frames[0].cameras (3)",
                "step 1 (Alike): once for all elements of frames (2)",
                "packed: 0 of 8 fields; other outputs of workers: 2",
            ],
        ),
        (rig(4), [Alike("f0"), single("cameras", 1, "n1")], ["since it does not say that it treats elements"]),
        (BESIDE, [LooksOutside("f0", "f9")], ["since it works on cameras (3) and the whole sample together"]),
        (numbered_fields(), [Alike(0), Alike("n0")], ["0 names one of the elements of an array"]),
        (rig(2), [Alike("n0")], ["nothing is folded", "no arrays are folded", "packed: 6 of 7 fields; other out"]),
        (MANY_POINTS, [Alike("f0"), Alike("f7")], ["batches of the graph: samples x 6"]),
    ],
)
def test_the_plan_says_what_is_folded_and_why_something_is_not(
    sample: SampleDataGroup, steps: list[PipelineStepBase], expected: list[str]
) -> None:
    plan = assert_same(numbers(sample, 2, 5), steps).plan
    assert re.search(".*".join(map(re.escape, expected)), plan, re.DOTALL), plan


def test_elements_that_steps_make_different_are_told() -> None:
    class OneMoreDimension(KeepsFormat):
        def _process(self, data: SampleDataGroup) -> SampleDataGroup:
            camera = data["cameras"][1]
            camera["f0"] = fn.expand_dims(camera["f0"], axes=0)
            return data

    steps, source = [OneMoreDimension(), Alike("f0")], numbers(rig(3), 2, 4)
    words = "different numbers of dimensions...cameras[0..2].f0...fold_arrays=False"
    error = assert_refused(lambda: batches_of(PipelineDefinition(source, steps)), words, GraphError)
    assert "counting the elements of all samples from 0" in str(error)
    batches_of(PipelineDefinition(source, steps, fold_arrays=False))


class Odd(NumberedFields):
    """Cameras of different ranks, or an array that is too large."""

    def __init__(self, camera: int, array: np.ndarray) -> None:
        super().__init__(rig(3), 4)
        self.camera, self.array = camera, array

    def get_data(self, sample_index: int) -> SampleDataGroup:
        sample = super().get_data(sample_index)
        camera = sample["cameras"][self.camera]
        camera.set_do_convert(False)  # which would copy the huge one
        camera["f0"] = self.array
        return sample


HUGE = Odd(0, np.broadcast_to(np.float32(0), (2**29, 1)))  # no memory behind it
OTHER_RANK = Odd(2, np.zeros((2, 2, 1), np.float32))
TOO_LARGE = "slot 0):\n  - cameras[0].f0: at most 2147483647 bytes ...got 2147483648"


@pytest.mark.parametrize(("provider", "steps"), [(HUGE, []), (HUGE, [Alike("f0")]), (OTHER_RANK, [Alike("f0")])])
def test_samples_that_cannot_be_sent_are_told_with_path(provider: Odd, steps: list[PipelineStepBase]) -> None:
    source, words = in_batches(provider, 2), TOO_LARGE
    if provider is OTHER_RANK:
        batches_of(PipelineDefinition(source, steps, fold_arrays=False))
        words = (
            "Sample 0 does not fit the blueprint of its input (epoch 0, batch 0, slot 0):\n"
            "  - cameras[2].f0: expected 2 dimension(s) as in cameras[0].f0, got 3\n...fold_arrays=False"
        )
    assert_refused(lambda: batches_of(PipelineDefinition(source, steps)), words, SourceError)


# --- what comes out --------------------------------------------------------------------------------------


def iterated(source: Any, steps: Sequence[PipelineStepBase], is_folded: bool = True, **settings: Any) -> Any:
    made = PipelineDefinition(source, steps, fold_arrays=is_folded).get_dali_pipeline(**IN_PROCESS)
    return DALIStructuredOutputIterator(None, made, **{"output_type": "numpy", **settings})


@each_value(output_type=["torch", "numpy"], steps=[[], [Alike("f0")]], is_folded=[True, False])
def test_stacked_elements_have_an_axis_for_each_array(
    output_type: str, steps: list[PipelineStepBase], is_folded: bool
) -> None:
    frame = with_array(field_group("f1"), "cameras", field_group("f0", "n1", "t2", "r3"), 3)
    source = numbers(with_array(field_group("n0"), "frames", frame, 2), 2, 4)
    how = {"output_type": output_type, "ragged": {"r3": "list"}}
    with iterated(source, steps, is_folded, stack_arrays=True, **how) as iterator:
        stacked = next(iter(iterator))
    with iterated(source, steps, is_folded, **how) as iterator:
        single = next(iter(iterator))
    assert stacked["n0"].tolist() == single["n0"].tolist()
    cameras = stacked["frames"]["cameras"]
    assert stacked["frames"]["f1"].shape == (2, 2, 2, 2)
    assert (cameras["f0"].shape, cameras["n1"].shape) == ((2, 2, 3, 2, 2), (2, 2, 3))
    for number, camera, slot in itertools.product(range(2), range(3), range(2)):
        expected = single["frames"][number]["cameras"][camera]
        for name in ("f0", "n1"):
            assert cameras[name][slot, number, camera].tolist() == expected[name][slot].tolist()
        assert cameras["t2"][slot][number][camera] == expected["t2"][slot]
        assert cameras["r3"][slot][number][camera].tolist() == expected["r3"][slot].tolist()


def test_stacking_copies_nothing_that_is_folded() -> None:
    iterator = iterated(numbers(rig(3), 2, 4), [Alike("f0")], stack_arrays=True)
    pipeline = iterator.internal_iterator
    run_graph, seen = pipeline.run_graph, []
    pipeline.run_graph = lambda: seen.append(run_graph()) or seen[-1]
    with iterator:
        stacked = next(iter(iterator))["cameras"]
    outputs = [np.asarray(output.as_tensor()) for output in seen[0]]
    for name in ("f0", "f1"):
        assert any(np.shares_memory(stacked[name], output) for output in outputs)
    assert stacked["f0"].flags.c_contiguous
    with iterated(numbers(rig(3), 2, 4), [Alike("f0")]) as iterator:
        batch = next(iter(iterator))
    assert all(camera["f0"].flags.c_contiguous for camera in batch["cameras"].values())


def test_elements_of_different_shapes_cannot_be_stacked() -> None:
    with iterated(numbers(rig(3, "r0"), 1, 2), [], stack_arrays=True) as iterator:
        error = assert_refused(lambda: next(iter(iterator)), "", OutputError)
    assert str(error).splitlines() == [
        "The elements of an array must have the same shape to be stacked, got",
        "  - cameras[0].r0: (1, 1, 2)",
        "  - cameras[1].r0: (1, 2, 2)",
        "  - cameras[2].r0: (1, 0, 2)",
        "Resize or pad the field in a step, or pass ragged={'r0': 'list'} to the loader or iterator.",
    ]
