"""Random draws in real pipelines: what changes them, and what does not."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import nvidia.dali.fn as fn
import pytest
from nvidia.dali.types import DALIDataType, SampleInfo
from support.draws import ConditionalDrawer, Drawer, OtherDrawer, SequenceInput, column, drawn
from support.laws import each_value, some
from support.loaders import make_loader
from support.pipelines import make_iterator, shuffled
from support.providers import IndexProvider
from support.random_steps import each_camera
from support.samplers import EpochSampler
from support.steps import Doubler, KeepsFormat, Renamer

from accvlab.dali_pipeline_framework import DataLoader
from accvlab.dali_pipeline_framework.draws import FieldKey, IntegerDraw, NormalDraw, UniformDraw
from accvlab.dali_pipeline_framework.errors import (
    FormatError,
    GraphError,
    SettingError,
    SourceError,
    StepOutputError,
)
from accvlab.dali_pipeline_framework.inputs import CallableBase, SamplerInputIterable
from accvlab.dali_pipeline_framework.pipeline import (
    DALIStructuredOutputIterator,
    PipelineDefinition,
    SampleDataGroup,
)
from accvlab.dali_pipeline_framework.processing_steps import (
    DataGroupInPathAppliedStep,
    PipelineStepBase,
)

KEYS: dict[str, Any] = {
    "sample": "sample",
    "rig": "rig",
    "sequence": "sequence",
    "sequence_rig": "sequence-rig",
    "field": ("scene",),
    "field_rig": FieldKey("scene", shared=True),
}


class EndlessInput(SequenceInput):
    """Two samples in turn, without end; knows their indices, but not their places."""

    has_epochs = False
    get_place = CallableBase.get_place
    num_batches_per_epoch = length = batch_size = None

    def __init__(self, shard: int, num_shards: int) -> None:
        super().__init__()
        self.shard = shard, num_shards

    def get_sample_index(self, sample_info: SampleInfo) -> int:
        return sample_info.idx_in_batch % 2

    def __call__(self, sample_info: SampleInfo) -> tuple[Any, ...]:
        index = self.get_sample_index(sample_info)
        return super().__call__(SampleInfo(index, index, 0, 0))


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

    @staticmethod
    def assert_expected(found: dict[tuple[int, int], Any], count: int) -> None:
        assert len(found) == count
        assert found == {key: expected()[key] for key in found}

    @each_value(batch_size=[2, 3, 5], workers=[0, 1, 2])
    def test_for_all_batch_sizes_and_workers(self, batch_size: int, workers: int) -> None:
        found = drawn(SequenceInput(batch_size=batch_size), all_kinds(), 2, seed=5, py_num_workers=workers)
        self.assert_expected(found, 2 * (12 // batch_size) * batch_size)

    @some(("method", "workers"), [("forkserver", 1), ("forkserver", 3), ("spawn", 2)], {1})
    def test_for_workers_that_inherit_nothing(self, method: str, workers: int) -> None:
        arguments = {"py_num_workers": workers, "py_start_method": method, "num_threads": 2}
        self.assert_expected(drawn(SequenceInput(batch_size=2), all_kinds(), 2, seed=5, **arguments), 24)

    @pytest.mark.parametrize("depth", [1, 4])
    def test_for_all_depths(self, depth: int) -> None:
        arguments = {"prefetch_queue_depth": depth, "definition": {"prefetch_queue_depth": depth}}
        self.assert_expected(
            drawn(SequenceInput(batch_size=2), all_kinds(), 2, seed=5, py_num_workers=2, **arguments), 24
        )

    @pytest.mark.parametrize("num_shards", [2, 3])
    def test_for_all_shards(self, num_shards: int) -> None:
        found: dict[tuple[int, int], Any] = {}
        for shard in range(num_shards):
            part = drawn(SequenceInput(batch_size=2, shard=(shard, num_shards)), all_kinds(), 2, seed=5)
            assert not part.keys() & found.keys()
            found |= part
        self.assert_expected(found, 24)

    def test_for_another_order(self) -> None:
        self.assert_expected(drawn(SequenceInput(order=[*range(12)][::-1]), all_kinds(), 2, seed=5), 24)

    def test_with_conditionals(self) -> None:
        self.assert_expected(drawn(SequenceInput(), all_kinds(), 2, seed=5, enable_conditionals=True), 24)

    def test_in_debug_mode(self) -> None:
        steps = [Drawer(UniformDraw("a"), IntegerDraw("i", 0, 99, shape=(2,)))]
        definition = PipelineDefinition(shuffled(IndexProvider(8)), steps)
        pipeline = definition.get_dali_pipeline(debug=True, num_threads=1, py_num_workers=0)
        blueprint = definition.check_and_get_output_data_structure()
        iterator = DALIStructuredOutputIterator(None, pipeline, blueprint, output_type="numpy")
        found = [batch["a"].tolist() for batch in iterator]
        expected = column(drawn(shuffled(IndexProvider(8)), steps), "a")
        assert found == [expected[:4], expected[4:]]

    def test_for_an_input_with_sample_indices_only(self) -> None:
        steps = [Drawer(UniformDraw("a"))]
        data_input = functools.partial(shuffled, IndexProvider(12), shuffle=True, seed=3)
        alone = drawn(data_input(1), steps, 2)
        assert drawn(data_input(4), steps, 2, py_num_workers=2) == alone
        halves = [drawn(data_input(2, shard_id=shard, num_shards=2), steps, 2) for shard in range(2)]
        assert halves[0] | halves[1] == alone
        assert len({values["a"] for values in alone.values()}) == 24


class TestKeys:
    @pytest.mark.parametrize("scope", ["", "cameras.0.", "cameras.1."])
    def test_samples(self, scope: str) -> None:
        for name in ("sample", "rig"):
            assert len(set(column(expected(), scope + name))) == 12

    @pytest.mark.parametrize("name", ["sequence", "sequence_rig", "field", "field_rig"])
    @pytest.mark.parametrize("scope", ["", "cameras.0.", "cameras.1."])
    def test_sequences_and_fields(self, name: str, scope: str) -> None:
        found = column(expected(), scope + name)
        a, b, c = found[0], found[4], found[7]
        assert found == [a] * 4 + [b] * 3 + [c] * 5
        assert len({a, b, c}) == 3

    @pytest.mark.parametrize("name", KEYS)
    def test_cameras(self, name: str) -> None:
        first, second = (column(expected(), f"cameras.{camera}.{name}") for camera in range(2))
        if name.endswith("rig"):
            assert first == second
        else:
            assert all(a != b for a, b in zip(first, second, strict=True))

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

    @each_value(num_shards=[1, 2], num_workers=[0, 2])
    def test_deliveries_of_a_sample_by_an_endless_callable_differ(self, num_shards: int, num_workers: int) -> None:
        found = []
        for shard in range(num_shards):
            data_input = EndlessInput(shard, num_shards)
            settings: dict[str, Any] = {"num_workers": num_workers, "output_type": "numpy"}
            settings["steps"] = [Drawer(UniformDraw("a"))]
            with DataLoader(data_input, 4 // num_shards, steps_per_epoch=2, **settings) as loader:
                found.append([batch["a"].tolist() for _ in range(2) for batch in loader])
        batches = [[value for part in parts for value in part] for parts in zip(*found, strict=True)]
        assert len({value for batch in batches for value in batch}) == 16
        assert [round(value, 3) for value in batches[3]] == [0.678, 0.014, 0.919, 0.907]


class TestIdentityOfSteps:
    A, B = UniformDraw("a", key="sequence"), UniformDraw("b")

    def values(self, *steps: Any, names: Sequence[str] = ("a", "b")) -> list[Any]:
        found = drawn(SequenceInput(), steps)
        return [column(found, name) for name in names]

    def test_other_steps_change_nothing(self) -> None:
        expected = self.values(Drawer(self.A, self.B))
        assert self.values(Drawer(self.B, self.A)) == expected
        assert self.values(Drawer(UniformDraw("new"), self.A, self.B)) == expected
        assert self.values(OtherDrawer(self.A, prefix="x"), Drawer(self.A, self.B)) == expected
        assert self.values(Drawer(self.A, self.B), OtherDrawer(self.A, prefix="x")) == expected
        assert self.values(each_camera(Doubler("gain")), None, Drawer(self.A, self.B)) == expected
        assert self.values(Drawer(), Drawer(self.A, self.B)) == expected  # declares nothing
        # Before a step without draws removes and adds fields, and after it:
        assert self.values(Renamer("scene", "place"), Drawer(self.A, self.B)) == expected

    def test_cameras_do_not_depend_on_their_number(self) -> None:
        [both] = self.values(each_camera(Drawer(self.B)), names=["cameras.1.b"])
        [alone] = self.values(DataGroupInPathAppliedStep(Drawer(self.B), ("cameras", 1)), names=["cameras.1.b"])
        assert both == alone

    def test_steps_of_a_class_are_numbered(self) -> None:
        names = ["a", "xa"]
        first, second = self.values(Drawer(self.A), Drawer(self.A, prefix="x"), names=names)
        assert all(a != b for a, b in zip(first, second, strict=True))
        # A constant draw counts, so that a range may become one and back.
        steps = [Drawer(UniformDraw("c", 1, 1)), Drawer(self.A, prefix="x")]
        assert self.values(*steps, names=["xa"]) == [second]
        assert self.values(Drawer(self.A), names=["a"]) == [first]

    def test_names_take_the_place_of_the_class(self) -> None:
        [named] = self.values(Drawer(self.A, name="gain"), names=["a"])
        [unnamed] = self.values(Drawer(self.A), names=["a"])
        assert named != unnamed
        steps = [
            Drawer(self.A, prefix="x"),
            OtherDrawer(self.A, name="gain"),
            Drawer(self.A, prefix="y", name="gain"),
        ]
        first, second, x = self.values(*steps, names=["a", "ya", "xa"])
        assert first == named
        assert x == unnamed
        assert second not in (named, unnamed)

    def test_a_step_may_stand_twice_in_the_chain(self) -> None:
        step = Drawer(self.A)
        steps = [step, Renamer("a", "first"), step]
        first, second = self.values(*steps, names=["first", "a"])
        assert [first] == self.values(step, names=["a"])
        assert all(a != b for a, b in zip(first, second, strict=True))

    def test_a_wrapped_step_is_the_same_step_in_all_groups(self) -> None:
        rig = UniformDraw("r", key="rig")
        names = ["cameras.0.r", "cameras.1.r", "r"]
        in_cameras, in_others, in_sample = self.values(each_camera(Drawer(rig)), Drawer(rig), names=names)
        assert in_cameras == in_others
        assert in_sample != in_cameras  # a second step


class TestUses:
    def test_constants_do_not_travel(self) -> None:
        constants = [UniformDraw("u", 2, 2, shape=(2,)), IntegerDraw("i", 3, 4), NormalDraw("n", 0.5, 0)]
        found = drawn(SequenceInput(), [Drawer(*constants)])
        assert {str([values[name] for name in "uin"]) for values in found.values()} == {"[[2.0, 2.0], 3, 0.5]"}

    def test_draws_need_not_be_used(self) -> None:
        class Idle(Drawer):
            def _process(self, data: SampleDataGroup) -> SampleDataGroup:
                return data

            def _check_and_adjust_data_format_input_to_output(
                self, data_empty: SampleDataGroup
            ) -> SampleDataGroup:
                return data_empty

        message = "do not reach the output: draw 'a' of Idle. Leave fields out of"
        with pytest.warns(Warning, match=re.escape(message)):
            found = drawn(SequenceInput(), [Idle(UniformDraw("a")), Drawer(UniformDraw("b"), name="b")])
        assert found == drawn(SequenceInput(), [Drawer(UniformDraw("b"), name="b")])

    def test_in_a_conditional(self) -> None:
        steps = [ConditionalDrawer(UniformDraw("coin"))]
        found = drawn(SequenceInput(), steps, enable_conditionals=True)
        assert [1 if coin >= 0.5 else -1 for coin in column(found, "coin")] == column(found, "side")
        assert {*column(found, "side")} == {-1, 1}

    def test_the_format_of_the_output_does_not_show_them(self) -> None:
        definition = PipelineDefinition(SequenceInput(), [each_camera(Doubler("gain")), Drawer(UniformDraw("a"))])
        names = definition.check_and_get_output_data_structure().field_names_flat
        assert [*names] == ["index", "scene", "cameras.[0].gain", "cameras.[1].gain", "a"]


class Failing(Drawer):
    """Cuts a piece out of a range of 100 numbers, which fails where the draw is negative."""

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        for draw in self.draws:
            numbers = fn.constant(fdata=[1.0] * 100, shape=[100])
            data.add_data_field(draw.name, draw.dtype)
            start = self.draw(draw.name)
            data[draw.name] = fn.cast(fn.slice(numbers, start, 1, axes=[0]), dtype=DALIDataType.INT32)
        return data


class WithoutPlaces(SequenceInput):
    get_place = CallableBase.get_place


class Composite(KeepsFormat):
    """Applies another step without asking it for its format."""

    def __init__(self, step: PipelineStepBase) -> None:
        self.step = step

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        self.step(data.get_copy())
        return data


class TestFailures:
    @pytest.mark.parametrize("workers", [0, 2])
    def test_a_sample_without_sequence(self, workers: int) -> None:
        steps = [Drawer(UniformDraw("a", key="sequence-rig"))]
        with (
            make_iterator(SequenceInput(tells="few sequences"), steps, py_num_workers=workers) as iterator,
            pytest.raises(SourceError, match="The draw 'a' of Drawer is held constant along a sequence") as caught,
        ):
            next(iter(iterator))
        assert isinstance(caught.value, SettingError)
        assert "SequenceInput does not know the sequences of its samples." in str(caught.value)

    @pytest.mark.parametrize("data_input", [WithoutPlaces(), SequenceInput(tells="no sequences")])
    def test_an_input_without_sequences_is_refused_at_once(self, data_input: CallableBase) -> None:
        steps = [
            Drawer(UniformDraw("a", key="sequence"), UniformDraw("b")),
            Drawer(UniformDraw("c", key="sequence")),
        ]
        definition = PipelineDefinition(data_input, [steps[0], Renamer("a", "x"), Renamer("b", "y"), steps[1]])
        with pytest.raises(SettingError, match="cannot supply the keys of all random draws") as caught:
            definition.get_dali_pipeline()
        lines = str(caught.value).splitlines()[1:]
        assert [line.split(" is held")[0] for line in lines] == [
            "  - the draw 'a' of Drawer",
            "  - the draw 'c' of Drawer",
        ]

    def test_an_iterable_cannot_supply_sequences_and_fields(self) -> None:
        data_input = SamplerInputIterable(IndexProvider(10), EpochSampler())
        for key, text in (
            ("sequence", "does not know the sequences"),
            (("index",), "is keyed by the field index"),
        ):
            with pytest.raises(SettingError, match=text):
                PipelineDefinition(data_input, [Drawer(UniformDraw("a", key=key))]).get_dali_pipeline(batch_size=4)

    @pytest.mark.parametrize("key", ["sample", "sequence"])
    def test_trouble_with_places_is_reported(self, key: str) -> None:
        steps = [Drawer(UniformDraw("a", key=key))]
        with (
            make_iterator(SequenceInput(tells="trouble"), steps) as iterator,
            pytest.raises(LookupError, match="the plan is gone") as caught,
        ):
            next(iter(iterator))
        assert isinstance(caught.value, SourceError)
        assert "epoch 0, batch 0, random draws" in str(caught.value)

    def test_a_field_that_does_not_exist(self) -> None:
        steps = [each_camera(Drawer(UniformDraw("a", key=("cameras", 5, "gain"))))]
        with pytest.raises(FormatError, match="step 0") as caught:
            PipelineDefinition(SequenceInput(), steps).get_dali_pipeline()
        message = (
            "The draw 'a' is keyed by the field cameras[5].gain, but the input has no data field with this path"
        )
        assert message in str(caught.value)
        assert "Fields: index, scene, cameras[0].gain, cameras[1].gain." in str(caught.value)
        assert [problem.path for problem in caught.value.problems] == [("cameras", 0), ("cameras", 1)]

    @pytest.mark.parametrize(
        ("draws", "message"),
        [
            ((UniformDraw("a"), IntegerDraw("a", 0, 2)), "Drawer.declare_draws must .* got 'a' twice"),
            (("a",), "Drawer.declare_draws must return a list of draws .*, got 'a' among them"),
            (None, "Drawer.declare_draws must return a list of draws, got None"),
        ],
    )
    def test_wrong_declarations(self, draws: Any, message: str) -> None:
        class Wrong(Drawer):
            def _check_and_adjust_data_format_input_to_output(
                self, data_empty: SampleDataGroup
            ) -> SampleDataGroup:
                return data_empty

        step = Wrong()
        step.draws = draws
        with pytest.raises(FormatError, match=message.replace("Drawer", "Wrong")):
            PipelineDefinition(SequenceInput(), [step]).check_and_get_output_data_structure()

    def test_a_shared_draw_that_depends_on_the_group(self) -> None:
        class Fickle(Drawer):
            high = 0.0

            def declare_draws(self, data_empty: SampleDataGroup) -> list[UniformDraw]:
                self.high += 1
                return [UniformDraw("a", 0, self.high, key="rig")]

        with pytest.raises(FormatError, match=r"The draw 'a' of Fickle must be the same each time .* high=2\.0"):
            PipelineDefinition(SequenceInput(), [each_camera(Fickle())]).check_and_get_output_data_structure()

    def test_a_draw_that_was_not_declared(self) -> None:
        class Forgetful(Drawer):
            def _process(self, data: SampleDataGroup) -> SampleDataGroup:
                self.draw("b")
                return data

        with pytest.raises(SettingError, match=r"Forgetful.draw\('b'\): there is no such draw. .*: 'a'\."):
            PipelineDefinition(SequenceInput(), [Forgetful(UniformDraw("a"))]).get_dali_pipeline()

    def test_a_draw_outside_of_process(self) -> None:
        with pytest.raises(SettingError, match=r"Drawer.draw\('a'\) works only while the step is applied"):
            Drawer(UniformDraw("a")).draw("a")

    def test_a_step_that_was_not_asked_for_its_format(self) -> None:
        with pytest.raises(StepOutputError, match="Drawer requests its draw 'a', but did not declare it"):
            PipelineDefinition(SequenceInput(), [Composite(Drawer(UniformDraw("a")))]).get_dali_pipeline()

    @pytest.mark.parametrize("seed", range(4))
    def test_the_culprit_is_found_with_the_same_numbers(self, seed: int) -> None:
        draw = IntegerDraw("a", -30, 90)
        values = column(drawn(SequenceInput(), [Drawer(draw)], seed=seed), "a")
        bad = [index for index, value in enumerate(values) if value < 0]
        batch = bad[0] // 3
        with (
            make_loader(SequenceInput(), steps=[Failing(draw, name="Drawer")], seed=seed) as loader,
            pytest.raises(GraphError, match="To blame") as caught,
        ):
            list(loader)
        blamed = [slot for slot in range(3) if f"  - slot {slot}, field a: " in str(caught.value)]
        assert blamed == [index - 3 * batch for index in bad if index // 3 == batch]


class TestFallBack:
    def test_an_iterable_draws_with_dali(self) -> None:
        steps = [
            Drawer(UniformDraw("u", 2, 3), IntegerDraw("i", -3, 4, shape=(50,)), NormalDraw("n", shape=(50,)))
        ]
        data_input = SamplerInputIterable(IndexProvider(10), EpochSampler())
        with make_iterator(data_input, steps, batch_size=4, seed=1) as iterator:
            batches = [*iterator]
        values = {name: np.concatenate([batch[name] for batch in batches]) for name in "uin"}
        assert len({*values["u"].tolist()}) == 8
        assert values["u"].min() >= 2
        assert values["u"].max() < 3
        assert np.unique(values["i"]).tolist() == [*range(-3, 4)]
        assert values["i"].dtype == np.int32
        assert 0.8 < values["n"].std() < 1.2
