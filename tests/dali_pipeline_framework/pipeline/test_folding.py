"""Arrays that are folded into the batch: the same results as without, in fewer operators."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import nvidia.dali.fn as fn
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from nvidia.dali import types
from support.array_samples import group_of
from support.arrays import ArrayProvider, encoded_image
from support.laws import each_value, examples
from support.pipelines import shuffled
from support.steps import KeepsFormat

from accvlab.dali_pipeline_framework.draws import IntegerDraw, RandomDraw, UniformDraw
from accvlab.dali_pipeline_framework.errors import GraphError, OutputError, SourceError
from accvlab.dali_pipeline_framework.inputs import CallableBase
from accvlab.dali_pipeline_framework.pipeline import (
    DALIStructuredOutputIterator,
    PipelineDefinition,
    SampleDataGroup,
)
from accvlab.dali_pipeline_framework.processing_steps import (
    DataGroupArrayWithNameElementsAppliedStep,
    DataGroupInPathAppliedStep,
    ImageDecoder,
    ImageMeanStdDevNormalizer,
    PipelineStepBase,
    UnneededFieldRemover,
)

DT = types.DALIDataType
IN_PROCESS = {"num_threads": 1, "py_num_workers": 0, "prefetch_queue_depth": 1}


# --- samples ---------------------------------------------------------------------------------------------


def field_group(*names: str) -> SampleDataGroup:
    types = {"n": DT.INT32, "f": DT.FLOAT, "h": DT.FLOAT16, "b": DT.BOOL, "t": DT.STRING, "r": DT.FLOAT}
    return group_of(**{name: types[name[0]] for name in names})


def value_of(name: str, number: int) -> Any:
    """The value of a field: ``r`` fields have other shapes in other samples and elements, the others have not."""
    if name[0] == "t":
        return "text " * (number % 4)
    if name[0] == "r":
        return np.arange(number % 3 * 2, dtype=np.float32).reshape(-1, 2) + number
    shape = {"n": (), "f": (2, 2), "h": (0, 3), "b": (3,)}[name[0]]
    return np.full(shape, number % (2 if name[0] == "b" else 7))


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


class Single(KeepsFormat):
    """Changes a field of one place, and draws with DALI."""

    def __init__(self, path: tuple[Any, ...]) -> None:
        self._path = path

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        value = data.get_item_in_path(self._path)
        changed = value + fn.random.uniform(range=[0.0, 100.0]) * types.Constant(np.float32(1.0), device="cpu")
        data.set_item_in_path(self._path, fn.cast_like(changed, value))
        return data


class AddsToOne(KeepsFormat):
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


class Exchanges(KeepsFormat):
    """Exchanges the first two elements of an array."""

    def __init__(self, path: tuple[Any, ...], name: str) -> None:
        self._paths = [(*path, index, name) for index in range(2)]

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        one, other = map(data.get_item_in_path, self._paths)
        data.set_item_in_path(self._paths[0], other)
        data.set_item_in_path(self._paths[1], one)
        return data


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


def both(
    source: Any, steps: Sequence[PipelineStepBase], **arguments: Any
) -> Iterator[tuple[Any, list[list[Any]]]]:
    for is_folded in (True, False):
        yield batches_of(PipelineDefinition(source, steps, fold_arrays=is_folded), **arguments)


def assert_same(source: Any, steps: Sequence[PipelineStepBase], **arguments: Any) -> Any:
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


@pytest.mark.timeout(300)  # longer than a minute where the machine is busy
@pytest.mark.filterwarnings("ignore:These fields are not used")
def test_the_results_are_the_same() -> None:
    checked = 0

    @given(st.data())
    def law(data: st.DataObject) -> None:
        nonlocal checked
        sample = data.draw(samples())
        steps = data.draw(chains(sample))
        source = Numbers(sample, data.draw(st.integers(1, 3)), data.draw(st.integers(1, 5)))
        folded = assert_same(
            source,
            steps,
            exec_dynamic=data.draw(st.booleans()),
            enable_conditionals=data.draw(st.booleans()),
        )
        checked += folded.delivery.layout.num_slots > 1

    settings(max_examples=examples(12, 400), deadline=None, phases=[Phase.generate])(law)()
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


@pytest.mark.parametrize("is_alike", [True, False])
def test_branches_on_data(is_alike: bool) -> None:
    sample = rig(4)
    sample.add_data_group_field_array("lidars", field_group("f3"), 2)
    steps = [Alike("f0"), Branches("f0", is_alike), Alike("f0", "rig")]
    pipeline = assert_same(Numbers(sample, 3, 8), steps, enable_conditionals=True)
    assert ("Branches): once for all" in pipeline.plan) == is_alike


# --- what is folded --------------------------------------------------------------------------------------


def test_one_operator_works_for_all_elements() -> None:
    steps = [Alike("f0")]
    names = names_of_operators(steps, rig(6))
    assert names.count("_ArithmeticGenericOp") == 1
    assert "Split" not in names
    assert names.count("ExternalSource") == 2  # the field, and the buffer of all others
    unfolded = PipelineDefinition(Numbers(rig(6), 2, 4), steps, fold_arrays=False).get_dali_pipeline(**IN_PROCESS)
    unfolded.build()
    assert [type(op._op).__name__ for op in unfolded._ops].count("_ArithmeticGenericOp") == 6
    unfolded.close()


def test_arrays_of_different_lengths_are_folded_side_by_side() -> None:
    sample = rig(6)
    sample.add_data_group_field_array("lidars", field_group("f3"), 3)
    pipeline = assert_same(Numbers(sample, 2, 5), [Alike("f0", "rig"), Alike("f3", "sample"), Adds("f3", "f4")])
    assert pipeline.plan.splitlines()[:4] == [
        "batches of the graph: samples x 6",
        "step 0 (Alike): once for all elements of cameras (6)",
        "step 1 (Alike): once for all elements of lidars (3)",
        "step 2 (Adds): once for all elements of lidars (3)",
    ]


def test_constants_for_arrays_of_different_lengths_are_a_reason_not_to_fold() -> None:
    sample = rig(6)
    sample.add_data_group_field_array("lidars", field_group("f0"), 3)
    pipeline = assert_same(Numbers(sample, 2, 5), [Alike("f0")])
    assert "element by element, since it needs constants for arrays of several lengths" in pipeline.plan


def test_arrays_in_arrays_are_folded() -> None:
    frame = field_group("f1")
    frame.add_data_group_field_array("cameras", field_group("f0"), 3)
    sample = SampleDataGroup()
    sample.add_data_group_field_array("frames", frame, 2)
    pipeline = assert_same(Numbers(sample, 2, 5), [Alike("f0"), Alike("f1")])
    assert pipeline.plan.splitlines() == [
        "batches of the graph: samples x 6",
        "step 0 (Alike): once for all elements of frames (2) x frames[0].cameras (3)",
        "step 1 (Alike): once for all elements of frames (2)",
        "packed: 0 of 8 fields; other outputs of workers: 2",
    ]


def test_a_step_that_changes_one_element_leaves_the_others_folded() -> None:
    pipeline = assert_same(Numbers(rig(4), 2, 6), [Alike("f0"), Single(("cameras", 1, "n1")), Alike("f0")])
    assert (
        "step 1 (Single): element by element, since it does not say that it treats elements alike" in pipeline.plan
    )
    names = names_of_operators([Alike("f0"), Single(("cameras", 1, "n1")), Alike("f0")], rig(4))
    assert names.count("Merge") == 0  # the changed field is not needed folded
    assert names.count("_ArithmeticGenericOp") < 9


def test_a_step_that_looks_outside_is_applied_to_each_element() -> None:
    sample = rig(3, "f0")
    sample.add_data_field("f9", DT.FLOAT)
    pipeline = assert_same(Numbers(sample, 2, 4), [Alike("f0"), LooksOutside("f0", "f9")])
    assert (
        "step 1 (LooksOutside): element by element, since it works on cameras (3) and the whole sample together"
        in pipeline.plan
    )


def test_a_number_names_one_element_and_not_all() -> None:
    sample = field_group("n0")
    sample.add_data_field_array("f8", DT.FLOAT, 3)
    pipeline = assert_same(Numbers(sample, 2, 4), [Alike(0), Alike("n0")])
    assert "0 names one of the elements of an array" in pipeline.plan


def test_what_no_step_folds_is_not_in_the_batch() -> None:
    pipeline, _ = batches_of(PipelineDefinition(Numbers(rig(6), 2, 4), [Alike("n0")]))
    assert pipeline.plan.splitlines() == [
        "nothing is folded",
        "step 0 (Alike): no arrays are folded",
        "packed: 18 of 19 fields; other outputs of workers: 1",
    ]


def test_not_even_two_elements_that_no_step_folds_are_in_the_batch() -> None:
    pipeline, _ = batches_of(PipelineDefinition(Numbers(rig(2), 2, 4), [Alike("n0")]))
    assert pipeline.plan.splitlines()[0] == "nothing is folded"


def test_large_arrays_are_left_as_they_are() -> None:
    sample = rig(6)
    sample.add_data_group_field_array("points", field_group("f7"), 100)
    pipeline = assert_same(Numbers(sample, 1, 2), [Alike("f0"), Alike("f7")])
    assert pipeline.plan.splitlines()[0] == "batches of the graph: samples x 6"


def test_elements_that_steps_make_different_are_told() -> None:
    class OneMoreDimension(KeepsFormat):
        def _process(self, data: SampleDataGroup) -> SampleDataGroup:
            camera = data["cameras"][1]
            camera["f0"] = fn.expand_dims(camera["f0"], axes=0)
            return data

    steps = [OneMoreDimension(), Alike("f0")]
    with pytest.raises(
        GraphError, match=r"different numbers of dimensions.*cameras\[0..2\]\.f0.*fold_arrays=False"
    ) as e:
        batches_of(PipelineDefinition(Numbers(rig(3), 2, 4), steps))
    assert "counting the elements of all samples from 0" in str(e.value)
    batches_of(PipelineDefinition(Numbers(rig(3), 2, 4), steps, fold_arrays=False))


def test_elements_of_different_dimensions_are_told_with_sample_and_path() -> None:
    class Odd(Numbers):
        def __call__(self, sample_info: types.SampleInfo) -> tuple[Any, ...]:
            flat = [*super().__call__(sample_info)]
            flat[self._blueprint.format.flat_paths.index(("cameras", 2, "f0"))] = np.zeros((2, 2, 1), np.float32)
            return tuple(flat)

        def get_sample_index(self, sample_info: types.SampleInfo) -> int:
            return 10 + sample_info.idx_in_epoch

    with pytest.raises(SourceError) as e:
        batches_of(PipelineDefinition(Odd(rig(3), 2, 4), [Alike("f0")]))
    assert str(e.value).splitlines()[:2] == [
        "Sample 10 does not fit the blueprint of its input (epoch 0, batch 0, slot 0):",
        "  - cameras[2].f0: expected 2 dimension(s) as in cameras[0].f0, got 3",
    ]
    assert "fold_arrays=False" in str(e.value)
    batches_of(PipelineDefinition(Odd(rig(3), 2, 4), [Alike("f0")], fold_arrays=False))


@pytest.mark.parametrize("steps", [[], [Alike("f0")]])
def test_a_field_that_is_too_large_is_told_with_sample_and_path(steps: list[PipelineStepBase]) -> None:
    class Huge(Numbers):
        def __call__(self, sample_info: types.SampleInfo) -> tuple[Any, ...]:
            flat = [*super().__call__(sample_info)]
            if sample_info.idx_in_batch == 1:
                flat[1] = np.broadcast_to(np.float32(0), (2**29, 1))  # no memory behind it
            return tuple(flat)

    with pytest.raises(
        SourceError, match=r"slot 1\):\n  - cameras\[0\]\.f0: at most 2147483647 bytes .*got 2147483648"
    ):
        batches_of(PipelineDefinition(Huge(rig(3), 2, 4), steps))


# --- what comes out --------------------------------------------------------------------------------------


def test_an_ordinary_pipeline_is_seen_from_outside() -> None:
    definition = PipelineDefinition(Numbers(rig(3), 2, 4), [Alike("f0")])
    pipeline = definition.get_dali_pipeline(**IN_PROCESS)
    assert pipeline.max_batch_size == 2
    outputs = pipeline.run()
    assert len(outputs) == len(definition.check_and_get_output_data_structure().field_names_flat)
    assert {len(output) for output in outputs} == {2}
    pipeline.close()


class Cameras(CallableBase):
    """Four samples of three cameras with real JPEGs, each of one colour, beside other fields."""

    batch_size = 2

    @property
    def used_sample_data_structure(self) -> SampleDataGroup:
        camera = group_of(image=DT.UINT8, intrinsics=DT.FLOAT, boxes=DT.FLOAT, name=DT.STRING)
        sample = field_group("n0")
        sample.add_data_group_field_array("cameras", camera, 3)
        return sample

    @property
    def length(self) -> int:
        return 2

    def __call__(self, sample_info: types.SampleInfo) -> tuple[Any, ...]:
        index = sample_info.idx_in_epoch
        if index >= 4:
            raise StopIteration
        sample = self.used_sample_data_structure
        sample["n0"] = index
        for number, camera in enumerate(sample["cameras"].values()):
            camera["image"] = encoded_image(np.full((16, 24, 3), 40 * index + 9 * number, np.uint8))
            camera["intrinsics"] = np.full((3, 3), 10 * index + number)
            camera["boxes"] = np.full((number, 4), index)
            camera["name"] = "front" * number
        return tuple(sample.get_data())


IMAGE_STEPS = [
    ImageDecoder("image", use_device_mixed=False),
    ImageMeanStdDevNormalizer("image", [0.0] * 3, [1.0] * 3, output_layout="CHW"),
]


@each_value(output_type=["torch", "numpy"], is_folded=[True, False])
def test_elements_are_stacked(output_type: str, is_folded: bool) -> None:
    pipeline = PipelineDefinition(Cameras(), IMAGE_STEPS, fold_arrays=is_folded).get_dali_pipeline(
        num_threads=2, py_num_workers=1, py_start_method="fork"
    )
    with DALIStructuredOutputIterator(
        None, pipeline, output_type=output_type, stack_arrays=True, ragged={"boxes": "list"}
    ) as iterator:
        batches = [*iterator]
    for number, batch in enumerate(batches):
        cameras = batch["cameras"]
        assert [*cameras] == ["image", "intrinsics", "boxes", "name"]
        image = np.asarray(cameras["image"])
        assert (image.shape, image.dtype) == ((2, 3, 3, 16, 24), np.float32)
        expected = [[40 * index + 9 * camera for camera in range(3)] for index in (2 * number, 2 * number + 1)]
        np.testing.assert_allclose(image[:, :, 0, 8, 12], expected, atol=2)
        intrinsics = np.asarray(cameras["intrinsics"])
        assert intrinsics[:, :, 1, 1].tolist() == [
            [10 * index + camera for camera in range(3)] for index in (2 * number, 2 * number + 1)
        ]
        assert [[np.shape(boxes) for boxes in sample] for sample in cameras["boxes"]] == [
            [(0, 4), (1, 4), (2, 4)]
        ] * 2
        assert cameras["name"] == [["", "front", "frontfront"]] * 2
        assert np.asarray(batch["n0"]).tolist() == [2 * number, 2 * number + 1]


def test_stacking_copies_nothing_that_is_folded() -> None:
    pipeline = PipelineDefinition(Cameras(), IMAGE_STEPS).get_dali_pipeline(**IN_PROCESS)
    run_graph, seen = pipeline.run_graph, []
    pipeline.run_graph = lambda: seen.append(run_graph()) or seen[-1]
    with DALIStructuredOutputIterator(
        None, pipeline, output_type="numpy", stack_arrays=True, ragged={"boxes": "list"}
    ) as iterator:
        batch = next(iter(iterator))
    outputs = [np.asarray(output.as_tensor()) for output in seen[0]]
    assert any(np.shares_memory(batch["cameras"]["image"], output) for output in outputs)
    assert any(np.shares_memory(batch["cameras"]["intrinsics"], output) for output in outputs)
    assert batch["cameras"]["image"].flags.c_contiguous
    pipeline = PipelineDefinition(Cameras(), IMAGE_STEPS).get_dali_pipeline(**IN_PROCESS)
    with DALIStructuredOutputIterator(None, pipeline, output_type="numpy", ragged={"boxes": "list"}) as iterator:
        batch = next(iter(iterator))
    assert all(camera["image"].flags.c_contiguous for camera in batch["cameras"].values())


def test_stacked_arrays_of_arrays_have_an_axis_each() -> None:
    frame = field_group("f1")
    frame.add_data_group_field_array("cameras", field_group("f0", "t1"), 3)
    sample = SampleDataGroup()
    sample.add_data_group_field_array("frames", frame, 2)
    for steps in ([], [Alike("f0")]):
        pipeline = PipelineDefinition(Numbers(sample, 2, 4), steps).get_dali_pipeline(**IN_PROCESS)
        with DALIStructuredOutputIterator(None, pipeline, output_type="numpy", stack_arrays=True) as iterator:
            stacked = next(iter(iterator))
        pipeline = PipelineDefinition(Numbers(sample, 2, 4), steps).get_dali_pipeline(**IN_PROCESS)
        with DALIStructuredOutputIterator(None, pipeline, output_type="numpy") as iterator:
            single = next(iter(iterator))
        assert stacked["frames"]["cameras"]["t1"] == [
            [[single["frames"][frame]["cameras"][camera]["t1"][slot] for camera in range(3)] for frame in range(2)]
            for slot in range(2)
        ]
        assert stacked["frames"]["f1"].shape == (2, 2, 2, 2)
        assert stacked["frames"]["cameras"]["f0"].shape == (2, 2, 3, 2, 2)
        for index, camera in itertools.product(range(2), range(3)):
            expected = single["frames"][index]["cameras"][camera]["f0"]
            assert stacked["frames"]["cameras"]["f0"][:, index, camera].tolist() == expected.tolist()


def test_elements_that_differ_from_each_other_alone_are_arrays() -> None:
    values = [[np.full((rows, 2), 10 * index + rows, np.float32) for index in range(4)] for rows in (1, 3)]
    provider = ArrayProvider({"cameras": {number: {"r": (DT.FLOAT, each)} for number, each in enumerate(values)}})
    pipeline = PipelineDefinition(shuffled(provider, 2), [Alike("r")]).get_dali_pipeline(**IN_PROCESS)
    assert pipeline.plan.splitlines()[0] == "batches of the graph: samples x 2"
    with DALIStructuredOutputIterator(None, pipeline, output_type="numpy") as iterator:
        found = [[batch["cameras"][number]["r"].tolist() for number in range(2)] for batch in iterator]
    expected = [[3 * np.stack(each[start : start + 2]) for each in values] for start in (0, 2)]
    assert found == [[each.tolist() for each in batch] for batch in expected]


def test_elements_of_different_shapes_cannot_be_stacked() -> None:
    pipeline = PipelineDefinition(Numbers(rig(3, "r0"), 1, 2)).get_dali_pipeline(**IN_PROCESS)
    with (
        DALIStructuredOutputIterator(None, pipeline, output_type="numpy", stack_arrays=True) as iterator,
        pytest.raises(OutputError) as e,
    ):
        next(iter(iterator))
    assert str(e.value).splitlines() == [
        "The elements of an array must have the same shape to be stacked, got",
        "  - cameras[0].r0: (1, 1, 2)",
        "  - cameras[1].r0: (1, 2, 2)",
        "  - cameras[2].r0: (1, 0, 2)",
        "Resize or pad the field in a step, or pass ragged={'r0': 'list'} to the loader or iterator.",
    ]
