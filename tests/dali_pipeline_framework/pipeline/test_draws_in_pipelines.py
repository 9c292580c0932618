"""Random draws in real pipelines: what changes them, and what does not."""

from __future__ import annotations

import functools
import re
from itertools import islice
from typing import Any

import numpy as np
import nvidia.dali.fn as fn
import pytest
from nvidia.dali.types import DALIDataType, SampleInfo
from support.draws import Drawer, OtherDrawer, SequenceInput, column, drawn
from support.loaders import make_loader
from support.pipelines import make_iterator, shuffled
from support.providers import IndexProvider
from support.random_steps import each_camera
from support.refusals import assert_refused
from support.samplers import EpochSampler
from support.steps import Doubler, KeepsFormat, Renamer

from accvlab.dali_pipeline_framework.draws import FieldKey, IntegerDraw, NormalDraw, UniformDraw
from accvlab.dali_pipeline_framework.errors import (
    FormatError,
    GraphError,
    SettingError,
    SourceError,
    StepOutputError,
)
from accvlab.dali_pipeline_framework.inputs import CallableBase, SamplerInputCallable, SamplerInputIterable
from accvlab.dali_pipeline_framework.pipeline import PipelineDefinition, SampleDataGroup
from accvlab.dali_pipeline_framework.processing_steps import DataGroupInPathAppliedStep, PipelineStepBase
from accvlab.dali_pipeline_framework.sampling import StreamingSequenceSampler
from accvlab.dali_pipeline_framework.testing import run_step

KEYS: dict[str, Any] = {
    "sample": "sample",
    "rig": "rig",
    "sequence": "sequence",
    "sequence_rig": "sequence-rig",
    "field": ("scene",),
    "field_rig": FieldKey("scene", shared=True),
}


def all_kinds() -> list[PipelineStepBase]:
    """Draws of each kind and key, for the sample and for each camera."""
    uniform = [UniformDraw(name, key=key) for name, key in KEYS.items()]
    others = [IntegerDraw("integer", -5, 50, shape=(2, 3)), NormalDraw("normal", shape=(2,), key="sequence")]
    return [Drawer(*uniform, *others), each_camera(Drawer(*uniform, *others))]


@functools.cache
def expected() -> dict[tuple[int, int], Any]:
    return drawn(SequenceInput(batch_size=1), all_kinds(), epochs=2, seed=5)


class TestTheSameNumbers:
    """Bit-identical per sample."""

    @pytest.mark.parametrize(
        ("source", "arguments"),
        [
            *[({"batch_size": 5}, {}), ({"batch_size": 3}, {"py_num_workers": 1})],
            ({"batch_size": 2}, {"py_num_workers": 2, "prefetch_queue_depth": 4}),
            ({"batch_size": 2}, {"py_num_workers": 2, "definition": {"prefetch_queue_depth": 4}}),
            *(
                pytest.param({}, {"py_num_workers": 2, "py_start_method": method}, marks=pytest.mark.wide)
                for method in ("forkserver", "spawn")
            ),
            ({"order": [*range(12)][::-1]}, {}),
            ({}, {"enable_conditionals": True}),
        ],
    )
    def test_however_they_are_loaded(self, source: dict[str, Any], arguments: dict[str, Any]) -> None:
        data_input = SequenceInput(**source)
        found = drawn(data_input, all_kinds(), 2, seed=5, **arguments)
        assert len(found) == 2 * data_input.length * data_input.batch_size
        assert found == {key: expected()[key] for key in found}

    @pytest.mark.parametrize("num_shards", [2, 3])
    def test_for_all_shards(self, num_shards: int) -> None:
        inputs = [SequenceInput(batch_size=2, shard=(shard, num_shards)) for shard in range(num_shards)]
        parts = [drawn(data_input, all_kinds(), 2, seed=5) for data_input in inputs]
        assert sum(map(len, parts)) == 24
        assert {key: value for part in parts for key, value in part.items()} == expected()

    def test_for_an_input_with_sample_indices_only(self) -> None:
        steps = [Drawer(UniformDraw("a"))]
        data_input = functools.partial(shuffled, IndexProvider(12), shuffle=True, seed=3)
        alone = drawn(data_input(1), steps, 2)
        assert drawn(data_input(4), steps, 2, py_num_workers=2) == alone
        halves = [drawn(data_input(2, shard_id=shard, num_shards=2), steps, 2) for shard in range(2)]
        assert halves[0] | halves[1] == alone
        assert len({values["a"] for values in alone.values()}) == 24

    def test_with_a_sampler_of_sequences_also_where_a_loader_goes_on(self) -> None:
        def streamed(batch_size: int, shard: int = 0, num_shards: int = 1) -> SamplerInputCallable:
            sampler = StreamingSequenceSampler((5, 3, 4, 7, 3), batch_size, seed=3, last_batch="partial")
            return SamplerInputCallable(IndexProvider(22), sampler, shard_id=shard, num_shards=num_shards)

        steps = [Drawer(UniformDraw("a"), UniformDraw("s", key="sequence"))]
        expected = drawn(streamed(1), steps, 2)
        sequences = [number for number, length in enumerate((5, 3, 4, 7, 3)) for _ in range(length)]
        for epoch in range(2):
            of_sequences = column(expected, "s", epoch)
            assert len({*of_sequences}) == len({*zip(of_sequences, sequences, strict=True)}) == 5
            assert len({*column(expected, "a", epoch)}) == 22
        for batch_size, workers in ((2, 2), (4, 1)):  # the last batches of an epoch are smaller
            assert drawn(streamed(batch_size), steps, 2, py_num_workers=workers) == expected
        shards = [drawn(streamed(2, shard, 2), steps, 2) for shard in range(2)]
        assert shards[0] | shards[1] == expected
        with make_loader(streamed(2), steps=steps) as loader:
            for _ in islice(loader, 3):
                pass
            state = loader.state_dict()
        with make_loader(streamed(2), steps=steps, num_workers=2) as loader:
            loader.load_state_dict(state)
            found = {
                (epoch, index): value
                for epoch in range(2)
                for batch in loader
                for index, value in zip(batch["index"].tolist(), batch["a"].tolist(), strict=True)
            }
        assert len(found) == 44 - 6
        assert found == {key: expected[key]["a"] for key in found}


class TestKeys:
    @pytest.mark.parametrize("name", KEYS)
    def test_what_a_number_is_for(self, name: str) -> None:
        for scope in ("", "cameras.0.", "cameras.1."):
            found = column(expected(), scope + name)
            a, b, c = found[0], found[4], found[7]
            if name in ("sample", "rig"):
                assert len({*found}) == 12
            else:
                assert found == [a] * 4 + [b] * 3 + [c] * 5
                assert len({a, b, c}) == 3
        first, second = (column(expected(), f"cameras.{camera}.{name}") for camera in range(2))
        assert {a == b for a, b in zip(first, second, strict=True)} == {name.endswith("rig")}

    @pytest.mark.parametrize("name", [*KEYS, "normal"])
    def test_epochs_differ(self, name: str) -> None:
        first, second = (column(expected(), f"cameras.0.{name}", epoch) for epoch in range(2))
        assert all(a != b for a, b in zip(first, second, strict=True))

    def test_seeds(self) -> None:
        default = drawn(SequenceInput(), all_kinds())
        assert default == drawn(SequenceInput(), all_kinds(), seed=0)
        assert default != drawn(SequenceInput(), all_kinds(), seed=1)

    def test_visits_of_a_sample_differ(self) -> None:
        data_input = SequenceInput(batch_size=4, order=[3, 3, 3, 5])
        with make_iterator(data_input, [Drawer(UniformDraw("a"), UniformDraw("s", key="sequence"))]) as iterator:
            [batch] = iterator
        for name in ("a", "s"):
            assert len(set(batch[name].tolist())) == 4
        assert batch["a"][0] == drawn(SequenceInput(), [Drawer(UniformDraw("a"))])[0, 3]["a"]


A, B, RIG = UniformDraw("a", key="sequence"), UniformDraw("b"), UniformDraw("r", key="rig")
TWICE, PREFIXED = Drawer(A), Drawer(A, prefix="x")


@pytest.mark.parametrize(
    ("steps", "names"),
    [
        ([Drawer(A, B), None, OtherDrawer(A, prefix="x")], {"Drawer[0]/a", "Drawer[0]/b", "OtherDrawer[0]/a"}),
        # Steps without draws do not count; a constant draw does, so that a range may become one and back.
        ([Drawer(), each_camera(Doubler("gain")), Renamer("scene", "place"), Drawer(A)], {"Drawer[0]/a"}),
        ([Drawer(UniformDraw("c", 1, 1)), Drawer(A)], {"Drawer[1]/a"}),
        ([each_camera(Drawer(B))], {"Drawer[0]/cameras[0]/b", "Drawer[0]/cameras[1]/b"}),
        ([DataGroupInPathAppliedStep(Drawer(B), ("cameras", 1))], {"Drawer[0]/cameras[1]/b"}),
        ([each_camera(Drawer(RIG)), Drawer(RIG)], {"Drawer[0]/r", "Drawer[1]/r"}),
        ([TWICE, Renamer("a", "first"), TWICE], {"Drawer[0]/a", "Drawer[1]/a"}),
        (
            [TWICE, OtherDrawer(A, name="gain", prefix="x"), Drawer(A, name="gain", prefix="y")],
            {"Drawer[0]/a", "gain[0]/a", "gain[1]/a"},
        ),
    ],
)
def test_a_draw_is_that_of_a_step_by_its_class_or_name_and_number(steps: list[Any], names: set[str]) -> None:
    """And no other step changes its numbers, which depend on this name."""
    source = SequenceInput()
    sample = source.used_sample_data_structure
    sample.set_data(source(SampleInfo(0, 0, 0, 0)))
    assert {*run_step([step for step in steps if step is not None], sample).draws} == names


def test_numbers_follow_the_identity_of_the_step() -> None:
    def numbers(name: str, *steps: PipelineStepBase) -> list[float]:
        return column(drawn(SequenceInput(), steps), name)

    assert numbers("a", OtherDrawer(B), TWICE) == numbers("a", Drawer(B, A)) != numbers("xa", Drawer(B), PREFIXED)
    assert numbers("a", Drawer(A, name="OtherDrawer")) == numbers("a", OtherDrawer(A)) != numbers("a", TWICE)


ITERABLE = SamplerInputIterable(IndexProvider(10), EpochSampler())


class TestUses:
    def test_constants_do_not_travel(self) -> None:
        constants = [UniformDraw("u", 2, 2, shape=(2,)), IntegerDraw("i", 3, 4), NormalDraw("n", 0.5, 0)]
        found = drawn(SequenceInput(), [Drawer(*constants)])
        assert {str([values[name] for name in "uin"]) for values in found.values()} == {"[[2.0, 2.0], 3, 0.5]"}

    def test_draws_need_not_be_used(self) -> None:
        message = "do not reach the output: draw 'a' of Idle. Leave fields out of"
        with pytest.warns(Warning, match=re.escape(message)):
            found = drawn(SequenceInput(), [Idle(UniformDraw("a")), Drawer(UniformDraw("b"), name="b")])
        assert found == drawn(SequenceInput(), [Drawer(UniformDraw("b"), name="b")])

    def test_an_iterable_draws_with_dali(self) -> None:
        draws = UniformDraw("u", 2, 3), IntegerDraw("i", -3, 4, shape=(50,)), NormalDraw("n", shape=(50,))
        with make_iterator(ITERABLE, [Drawer(*draws)], batch_size=4, seed=1) as iterator:
            batches = [*iterator]
        values = {name: np.concatenate([batch[name] for batch in batches]) for name in "uin"}
        assert len({*values["u"].tolist()}) == 8
        assert values["u"].min() >= 2
        assert values["u"].max() < 3
        assert np.unique(values["i"]).tolist() == [*range(-3, 4)]
        assert values["i"].dtype == np.int32
        assert 0.8 < values["n"].std() < 1.2


class Idle(Drawer):
    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        return data

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        return data_empty


class Failing(Drawer):
    """Cuts a piece out of a range of 100 numbers, which fails where the draw is negative."""

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        for draw in self.draws:
            numbers = fn.constant(fdata=[1.0] * 100, shape=[100])
            data.add_data_field(draw.name, draw.dtype)
            start = self.draw(draw.name)
            data[draw.name] = fn.cast(fn.slice(numbers, start, 1, axes=[0]), dtype=DALIDataType.INT32)
        return data


class Fickle(Drawer):
    """Declares something else each time."""

    high = 0.0

    def declare_draws(self, data_empty: SampleDataGroup) -> list[UniformDraw]:
        self.high += 1
        return [UniformDraw("a", 0, self.high, key="rig")]


class Forgetful(Drawer):
    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        self.draw("b")
        return data


class Composite(KeepsFormat):
    """Applies another step without asking it for its format."""

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        Drawer(UniformDraw("a"))(data.get_copy())
        return data


class WithoutPlaces(SequenceInput):
    get_place = CallableBase.get_place


def declaring(draws: Any) -> Drawer:
    step = Idle()
    step.draws = draws
    return step


TWO_OF_SEQUENCES = [
    *(Drawer(UniformDraw("a", key="sequence"), UniformDraw("b")), Renamer("a", "x"), Renamer("b", "y")),
    Drawer(UniformDraw("c", key="sequence")),
]
BOTH = "cannot supply the keys of all random draws...\n  - the draw 'a' of Drawer...\n  - the draw 'c' of Drawer"
OF_INDEX, OF_NO_FIELD = (
    Drawer(UniformDraw("a", key=("index",))),
    each_camera(Drawer(UniformDraw("a", key=("cameras", 5, "gain")))),
)
NO_FIELD = (
    "step 0...The draw 'a' is keyed by the field cameras[5].gain, but the input has no data field with this path"
    "...Fields: index, scene, cameras[0].gain, cameras[1].gain."
)
SAME_NAME, NO_DRAW = declaring((UniformDraw("a"), IntegerDraw("a", 0, 2))), declaring(("a",))


@pytest.mark.parametrize(
    ("data_input", "steps", "error", "words"),
    [
        (WithoutPlaces(), TWO_OF_SEQUENCES, SettingError, BOTH),
        (SequenceInput(tells="no sequences"), TWO_OF_SEQUENCES, SettingError, BOTH),
        (ITERABLE, TWO_OF_SEQUENCES, SettingError, "does not know the sequences"),
        (ITERABLE, [OF_INDEX], SettingError, "is keyed by the field index"),
        (SequenceInput(), [OF_NO_FIELD], FormatError, NO_FIELD),
        (SequenceInput(), [SAME_NAME], FormatError, "Idle.declare_draws must ... got 'a' twice"),
        (SequenceInput(), [NO_DRAW], FormatError, "must return a list of draws ..., got 'a' among them"),
        (SequenceInput(), [declaring(None)], FormatError, "must return a list of draws, got None"),
        (SequenceInput(), [each_camera(Fickle())], FormatError, "of Fickle must be the same each ... high=2.0"),
        (SequenceInput(), [Forgetful(UniformDraw("a"))], SettingError, ".draw('b'): there is no such ...: 'a'."),
        (SequenceInput(), [Composite()], StepOutputError, "Drawer requests its draw 'a', but did not declare it"),
    ],
)
def test_what_cannot_be_drawn_is_refused_at_once(
    data_input: Any, steps: list[PipelineStepBase], error: type[Exception], words: str
) -> None:
    definition = PipelineDefinition(data_input, steps)
    assert_refused(definition.get_dali_pipeline, words, error)


def test_a_draw_outside_of_process_is_refused() -> None:
    words = "Drawer.draw('a') works only while the step is applied"
    assert_refused(lambda: Drawer(UniformDraw("a")).draw("a"), words)


NO_SEQUENCE = "The draw 'a' of Drawer is held constant along a...SequenceInput does not know the sequences of"


@pytest.mark.parametrize(
    ("tells", "key", "workers", "error", "words"),
    [
        ("few sequences", "sequence-rig", 0, SettingError, NO_SEQUENCE),
        ("few sequences", "sequence", 2, SettingError, NO_SEQUENCE),
        ("trouble", "sample", 1, LookupError, "epoch 0, batch 0, random draws...the plan is gone"),
    ],
)
def test_where_a_place_is_not_known_that_is_told(
    tells: str, key: str, workers: int, error: type[Exception], words: str
) -> None:
    steps = [Drawer(UniformDraw("a", key=key))]
    with make_iterator(SequenceInput(tells=tells), steps, py_num_workers=workers) as iterator:
        assert isinstance(assert_refused(lambda: next(iter(iterator)), words, error), SourceError)


def test_the_culprit_is_found_with_the_same_numbers() -> None:
    draw = IntegerDraw("a", -30, 90)
    values = column(drawn(SequenceInput(), [Drawer(draw)], seed=1), "a")
    bad = [index for index, value in enumerate(values) if value < 0]
    batch = bad[0] // 3
    with make_loader(SequenceInput(), steps=[Failing(draw, name="Drawer")], seed=1) as loader:
        message = str(assert_refused(lambda: list(loader), "To blame", GraphError))
    blamed = [slot for slot in range(3) if f"  - slot {slot}, field a: " in message]
    assert blamed == [index - 3 * batch for index in bad if index // 3 == batch]
