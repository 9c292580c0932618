"""Draws as data of the sample: recorded in the output, and replayed from the input."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import nvidia.dali.fn as fn
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from support.arrays import ArrayProvider
from support.draws import DT, ConditionalDrawer, Drawer, OtherDrawer, SequenceInput, flatten
from support.laws import each_value, examples
from support.loaders import make_loader
from support.pipelines import make_iterator, shuffled
from support.providers import IndexProvider, NumberProvider
from support.samplers import EpochSampler

from accvlab.dali_pipeline_framework.draws import (
    DrawRecord,
    IntegerDraw,
    NormalDraw,
    UniformDraw,
    records_of_batch,
)
from accvlab.dali_pipeline_framework.errors import (
    FieldValueError,
    FormatError,
    GraphError,
    SettingError,
    SourceError,
)
from accvlab.dali_pipeline_framework.inputs import SamplerInputIterable
from accvlab.dali_pipeline_framework.loader import DataLoader
from accvlab.dali_pipeline_framework.pipeline import PipelineDefinition, SampleDataGroup
from accvlab.dali_pipeline_framework.processing_steps import (
    DataGroupArrayWithNameElementsAppliedStep,
    LambdaStep,
    PipelineStepBase,
    PointCloudRangeFilter,
)
from accvlab.dali_pipeline_framework.providers import ReplayedDrawsProvider
from accvlab.dali_pipeline_framework.sources import FileReader

RECORD = {"record_draws": "draws"}
REPLAY = {"replay_draws": "draws"}


def each_camera(step: PipelineStepBase) -> PipelineStepBase:
    return DataGroupArrayWithNameElementsAppliedStep(step, "cameras")


def steps() -> list[PipelineStepBase]:
    """Draws of each kind, twice the same step, shared draws, and a constant."""
    first = Drawer(UniformDraw("u", 2, 3), IntegerDraw("i", -3, 90, shape=(2, 3)), UniformDraw("one", 1, 1))
    cameras = Drawer(NormalDraw("n", shape=(2,)), UniformDraw("r", key="rig"))
    return [first, each_camera(cameras), Drawer(UniformDraw("u"), prefix="other ")]


NAMES = [
    "Drawer[0]/u",
    "Drawer[0]/i",
    "Drawer[1]/cameras[0]/n",
    "Drawer[1]/r",
    "Drawer[1]/cameras[1]/n",
    "Drawer[2]/u",
]


def batches(data_input: Any, chain: Sequence[PipelineStepBase], **arguments: Any) -> list[dict[Any, Any]]:
    """In this process unless told otherwise; the arrays are copies."""
    with make_iterator(data_input, chain, **{"py_num_workers": 0, "num_threads": 1, **arguments}) as iterator:
        return [pickle.loads(pickle.dumps(batch)) for batch in iterator]


def samples_of(found: Sequence[Mapping[Any, Any]]) -> list[dict[str, Any]]:
    """The fields of each sample without its draws, by flat name, as lists."""
    samples: list[dict[str, Any]] = []
    for batch in found:
        fields = flatten({name: value for name, value in batch.items() if name != "draws"})
        samples += [
            {name: np.asarray(value[slot]).tolist() for name, value in fields.items()}
            for slot in range(len(batch["index"]))
        ]
    return samples


@functools.cache
def recorded() -> tuple[list[dict[str, Any]], list[DrawRecord]]:
    """The samples of a run, and their records."""
    found = batches(shuffled(NumberProvider(6), 3), steps(), definition=RECORD, seed=4)
    return samples_of(found), [record for batch in found for record in records_of_batch(batch["draws"])]


def replaying(records: Sequence[DrawRecord], **arguments: Any) -> ReplayedDrawsProvider:
    return ReplayedDrawsProvider(NumberProvider(6), records, **arguments)


class TestRecording:
    def test_holds_what_the_steps_got(self) -> None:
        samples, records = recorded()
        assert len(samples) == len(records) == 6
        for sample, record in zip(samples, records, strict=True):
            assert [*record] == NAMES
            got = {name: value.tolist() for name, value in record.items()}
            assert got["Drawer[0]/u"] == sample["u"]
            assert got["Drawer[0]/i"] == sample["i"]
            assert got["Drawer[2]/u"] == sample["other u"]
            for camera in range(2):
                assert got[f"Drawer[1]/cameras[{camera}]/n"] == sample[f"cameras.{camera}.n"]
                assert got["Drawer[1]/r"] == sample[f"cameras.{camera}.r"]
        assert [str(value.dtype) for value in records[0].values()] == ["float32", "int32", *["float32"] * 4]
        assert [value.shape for value in records[0].values()] == [(), (2, 3), (2,), (), (2,), ()]

    def test_changes_nothing_else(self) -> None:
        without = samples_of(batches(shuffled(NumberProvider(6), 3), steps(), seed=4))
        assert without == recorded()[0]

    def test_the_format_shows_it(self) -> None:
        definition = PipelineDefinition(shuffled(NumberProvider(6), 3), steps(), **RECORD)
        blueprint = definition.check_and_get_output_data_structure()
        assert blueprint.contained_top_level_field_names[-1] == "draws"
        assert [*blueprint["draws"]] == NAMES
        assert blueprint["draws"].get_type_of_field("Drawer[0]/i") == DT.INT32

    def test_names_of_steps_take_the_place_of_classes(self) -> None:
        chain = [Drawer(UniformDraw("a")), OtherDrawer(UniformDraw("b"), name="dusk")]
        found = batches(shuffled(NumberProvider(2), 2), chain, definition=RECORD)
        assert [*found[0]["draws"]] == ["Drawer[0]/a", "dusk[0]/b"]

    def test_a_name_that_is_taken_is_refused(self) -> None:
        definition = PipelineDefinition(shuffled(NumberProvider(6), 3), steps(), record_draws="pair")
        with pytest.raises(SettingError, match="cannot be recorded as 'pair': the output has a field of this"):
            definition.get_dali_pipeline()

    def test_draws_of_the_same_name_are_refused(self) -> None:
        chain = [Drawer(UniformDraw("y[0]/a"), name="x"), Drawer(UniformDraw("a"), name="x[0]/y")]
        definition = PipelineDefinition(shuffled(NumberProvider(6), 3), chain, **RECORD)
        with pytest.raises(SettingError, match=r"Two random draws would have the name 'x\[0\]/y\[0\]/a'"):
            definition.get_dali_pipeline()

    def test_a_chain_that_draws_nothing_has_an_empty_record(self) -> None:
        found = batches(shuffled(IndexProvider(4), 2), [], definition=RECORD)
        assert [batch["draws"] for batch in found] == [{}, {}]
        assert records_of_batch({}) == []

    def test_in_the_loader(self) -> None:
        how = {"num_workers": 1, "start_method": "forkserver", "seed": 4, "output_type": "numpy"}
        with DataLoader(NumberProvider(6), 3, steps=steps(), run="graph", **RECORD, **how) as loader:
            records = [record for batch in loader for record in records_of_batch(batch["draws"])]
        assert _bits(records) == _bits(recorded()[1])

    @pytest.mark.parametrize("conditionals", [False, True])
    def test_of_numbers_that_dali_draws(self, conditionals: bool) -> None:
        def data_input() -> SamplerInputIterable:
            return SamplerInputIterable(NumberProvider(8), EpochSampler(8, 4))

        arguments = {"batch_size": 4, "seed": 3, "enable_conditionals": conditionals}
        found = batches(data_input(), steps(), definition=RECORD, **arguments)
        assert samples_of(found) == samples_of(batches(data_input(), steps(), **arguments))
        records = [record for batch in found for record in records_of_batch(batch["draws"])]
        for sample, record in zip(samples_of(found), records, strict=True):
            assert [*record] == NAMES
            assert record["Drawer[0]/i"].tolist() == sample["i"]
            assert record["Drawer[1]/cameras[1]/n"].tolist() == sample["cameras.1.n"]
        again = ReplayedDrawsProvider(NumberProvider(8), records)
        assert samples_of(batches(shuffled(again, 2), steps(), definition=REPLAY)) == samples_of(found)

    @each_value(
        drawing=[
            (lambda value: value + fn.random.uniform(range=[0.0, 1.0]), "fn.random.uniform"),
            (lambda value: fn.noise.gaussian(value) * 2.0, "fn.noise.gaussian"),
            (lambda value: fn.cast_like(fn.random.coin_flip(seed=3), value), "fn.random.coinflip"),
            (lambda value: fn.rotate(fn.stack(value), angle=fn.random.normal()), "fn.random.normal"),
        ],
        conditionals=[False, True],
    )
    def test_of_a_step_that_draws_without_declaring_it(self, drawing: tuple[Any, str], conditionals: bool) -> None:
        operator, name = drawing
        chain = [
            Drawer(UniformDraw("a")),
            each_camera(LambdaStep(operator, input_names="gain", output_types={"gain": DT.FLOAT})),
        ]
        for data_input in (
            shuffled(NumberProvider(6), 3),
            SamplerInputIterable(NumberProvider(6), EpochSampler(6, 3)),
        ):
            definition = PipelineDefinition(data_input, chain, **RECORD)
            with pytest.raises(SettingError, match="The draws cannot be recorded") as caught:
                definition.get_dali_pipeline(batch_size=3, enable_conditionals=conditionals)
            line = f"  - step 1 (DataGroupArrayWithNameElementsAppliedStep): {name}"
            assert line in str(caught.value).splitlines()

    def test_of_a_step_that_selects_elements(self) -> None:
        fields = {"points": (DT.FLOAT, [np.zeros((3, 2))]), "index": (DT.INT32, [0])}
        step = PointCloudRangeFilter("points", point_range=([-1, -1], [1, 1]))
        found = batches(shuffled(ArrayProvider(fields), 1), [step], definition=RECORD)
        assert found[0]["draws"] == {}

    def test_of_draws_that_a_step_declares_and_dali_would_not_draw(self) -> None:
        class Idle(Drawer):
            def _process(self, data: SampleDataGroup) -> SampleDataGroup:
                return data

            def _check_and_adjust_data_format_input_to_output(self, empty: SampleDataGroup) -> SampleDataGroup:
                return empty

        data_input = SamplerInputIterable(NumberProvider(8), EpochSampler(8, 4))
        chain = [Idle(UniformDraw("idle", 5, 6)), Drawer(UniformDraw("a"))]
        found = batches(data_input, chain, definition=RECORD, batch_size=4)
        assert [*found[0]["draws"]] == ["Idle[0]/idle", "Drawer[0]/a"]
        assert (found[0]["draws"]["Idle[0]/idle"] >= 5).all()


class TestReplaying:
    @pytest.mark.parametrize(
        ("batch_size", "arguments"),
        [
            (2, {}),
            (3, {"enable_conditionals": True}),
            (2, {"py_num_workers": 2, "py_start_method": "forkserver"}),
        ],
        ids=["here", "conditionals", "fork server"],
    )
    def test_gives_the_same_bits(self, batch_size: int, arguments: dict[str, Any]) -> None:
        samples, records = recorded()
        found = batches(shuffled(replaying(records), batch_size), steps(), definition=REPLAY, seed=9, **arguments)
        assert samples_of(found) == samples

    def test_of_chosen_samples(self) -> None:
        samples, records = recorded()
        numbers = [4, 1, 1, 5]
        provider = replaying([records[number] for number in numbers], sample_indices=np.array(numbers))
        found = batches(shuffled(provider, 4), steps(), definition={**RECORD, **REPLAY})
        assert samples_of(found) == [samples[number] for number in numbers]
        assert _bits(records_of_batch(found[0]["draws"])) == _bits([records[number] for number in numbers])

    def test_needs_no_input_that_could_supply_the_keys(self) -> None:
        chain = [Drawer(UniformDraw("s", key="sequence"), UniformDraw("f", key=("scene",)))]
        found = batches(SequenceInput(batch_size=3), chain, definition=RECORD)
        records = [record for batch in found for record in records_of_batch(batch["draws"])]
        fields = {"index": (DT.INT64, [*range(12)]), "scene": (DT.STRING, ["?"] * 12)}
        again = ReplayedDrawsProvider(ArrayProvider(fields), records)
        replayed = batches(shuffled(again, 4), chain, definition=REPLAY)
        for name in "sf":
            both = ([value for batch in some for value in batch[name].tolist()] for some in (found, replayed))
            assert next(both) == next(both)

    def test_by_an_iterable_and_from_a_group_of_a_part(self) -> None:
        samples, records = recorded()
        iterable = SamplerInputIterable(replaying(records), EpochSampler(6, 3))
        chain = steps()
        assert samples_of(batches(iterable, chain, definition=REPLAY, batch_size=3)) == samples

    def test_does_not_show_the_records_to_steps(self) -> None:
        seen: list[tuple[Any, ...]] = []

        class Onlooker(Drawer):
            def _process(self, data: SampleDataGroup) -> SampleDataGroup:
                seen.append(data.contained_top_level_field_names)
                return super()._process(data)

        chain = [Onlooker(UniformDraw("a"))]
        record = {"Onlooker[0]/a": np.float32(0.25)}
        provider = ReplayedDrawsProvider(IndexProvider(1), [record])
        found = batches(shuffled(provider, 1), chain, definition=REPLAY)
        assert found == [{"index": np.array([0]), "a": np.array([0.25], np.float32)}]
        assert seen == [("index",)]

    def test_in_conditionals(self) -> None:
        step = ConditionalDrawer(UniformDraw("coin"))
        records = [{"ConditionalDrawer[0]/coin": np.float32(value)} for value in (0.75, 0.25)]
        provider = ReplayedDrawsProvider(IndexProvider(2), records)
        [batch] = batches(shuffled(provider, 2), [step], definition=REPLAY, enable_conditionals=True)
        assert batch["side"].tolist() == [1, -1]

    def test_a_failure_in_the_graph_is_found_with_the_recorded_draws(self) -> None:
        class Slicer(Drawer):
            def _process(self, data: SampleDataGroup) -> SampleDataGroup:
                numbers = fn.constant(fdata=[1.0] * 100, shape=[100])
                data.add_data_field("a", DT.FLOAT)
                data["a"] = fn.slice(numbers, self.draw("a"), 1, axes=[0])
                return data

            def _check_and_adjust_data_format_input_to_output(self, empty: SampleDataGroup) -> SampleDataGroup:
                empty.add_data_field("a", DT.FLOAT)
                return empty

        chain = [Slicer(IntegerDraw("a", -9, 9))]
        records = [{"Slicer[0]/a": np.int32(value)} for value in (3, -2, 4)]
        provider = ReplayedDrawsProvider(IndexProvider(6), records, [5, 4, 3])
        with (
            make_loader(shuffled(provider, 3), steps=chain, **REPLAY) as loader,
            pytest.raises(GraphError, match="To blame") as caught,
        ):
            list(loader)
        assert caught.value.sample_indices == (1,)
        assert "sample 1 (sample 4 of the data set), field a" in str(caught.value)


class TestRecordsThatDoNotFit:
    """Refused, with the name of the draw."""

    def refuse(self, records: Sequence[DrawRecord], chain: Sequence[PipelineStepBase]) -> str:
        provider = ReplayedDrawsProvider(IndexProvider(len(records)), records)
        definition = PipelineDefinition(shuffled(provider, 1), chain, **REPLAY)
        with pytest.raises(FormatError, match="The recorded draws are not those of the") as caught:
            definition.get_dali_pipeline()
        return str(caught.value)

    def test_draws_that_are_missing_and_too_many(self) -> None:
        record = {"Drawer[0]/a": np.float32(0), "Gone[0]/b": np.float32(0)}
        text = self.refuse([record], [Drawer(UniformDraw("a")), OtherDrawer(UniformDraw("c"))])
        assert "draws.OtherDrawer[0]/c: the record lacks the draw 'c' of OtherDrawer" in text
        assert "draws.Gone[0]/b: no step of the chain declares such a draw" in text
        assert "Drawer[0]/a:" not in text.replace("OtherDrawer", "")

    def test_another_type_or_number_of_dimensions(self) -> None:
        record = {"Drawer[0]/a": np.int32(0), "Drawer[0]/b": np.zeros(2, np.float32)}
        text = self.refuse([record], [Drawer(UniformDraw("a"), UniformDraw("b"))])
        assert "Drawer[0]/a: the draw 'a' of Drawer is of type FLOAT, the record holds type INT32" in text
        assert "Drawer[0]/b: the draw 'b' of Drawer has shape (), the record holds 1 dimension(s)" in text

    @pytest.mark.parametrize(
        ("draw", "value", "text"),
        [
            (UniformDraw("a", shape=(3,)), np.zeros(2, np.float32), "has shape (3,) and dtype float32, the"),
            (UniformDraw("a", 1, 2), np.float32(0.5), "lies in [1.0, 2.0), the record holds 0.5"),
            (UniformDraw("a", 1, 2), np.float32(np.nan), "lies in [1.0, 2.0), the record holds nan"),
            (IntegerDraw("a", 0, 4), np.int32(4), "lies in [0, 4), the record holds 4"),
            (IntegerDraw("a", 0, 4), np.int32(-1), "lies in [0, 4), the record holds -1"),
            (NormalDraw("a"), np.float32(np.inf), "must be finite, the record holds inf"),
        ],
    )
    @pytest.mark.parametrize("is_iterable", [False, True])
    def test_other_shapes_and_numbers(self, draw: Any, value: Any, text: str, is_iterable: bool) -> None:
        good = np.broadcast_to(np.asarray(1.0, value.dtype), value.shape)
        provider = ReplayedDrawsProvider(
            IndexProvider(2), [{"Drawer[0]/a": good}, {"Drawer[0]/a": value}] if good.ndim == 0 else
            [{"Drawer[0]/a": value}] * 2
        )  # fmt: skip
        data_input = SamplerInputIterable(provider, EpochSampler(2, 1)) if is_iterable else shuffled(provider, 1)
        with pytest.raises(SourceError) as caught:
            batches(data_input, [Drawer(draw)], definition=REPLAY, batch_size=1)
        assert f"draws.Drawer[0]/a: the draw 'a' of Drawer {text}" in str(caught.value)
        assert caught.value.sample_index == (0 if good.ndim else 1)

    def test_limits_that_may_be_reached(self) -> None:
        records = [{"Drawer[0]/a": np.float32(value)} for value in (0.1, 0.3)]
        provider = ReplayedDrawsProvider(IndexProvider(2), records)
        [batch] = batches(shuffled(provider, 2), [Drawer(UniformDraw("a", 0.1, 0.3))], definition=REPLAY)
        assert batch["a"].tolist() == [float(np.float32(0.1)), float(np.float32(0.3))]

    @pytest.mark.parametrize("path", ["nothing", "index", (), ("index", "below")])
    def test_a_group_that_is_not_there(self, path: Any) -> None:
        definition = PipelineDefinition(shuffled(IndexProvider(2), 2), [], replay_draws=path)
        with pytest.raises(SettingError, match=r"`replay_draws` must be the path of a group .* 'index'"):
            definition.get_dali_pipeline()

    @pytest.mark.parametrize(
        ("records", "arguments", "text"),
        [
            ([], {}, "as many records as the samples of the provider, at least one; got 0 records for 2"),
            ([{}] * 3, {"sample_indices": [0]}, "as many records as `sample_indices`, .* got 3 records for 1"),
            ([{}], {"sample_indices": [2]}, r"`sample_indices` must lie in \[0, 2\), got 2"),
            ([{}] * 2, {"name": "index"}, "have a field 'index' already"),
            ([{"a": np.float32(0)}, {}], {}, "record 1 lacks a"),
            ([{}, {"a": np.float32(0)}], {}, "record 1 holds a, which record 0 lacks"),
            (
                [{"a": np.float32(0)}, {"a": np.int32(0)}],
                {},
                r"draws\.a: .* \(\) float32 in record 0 and \(\) int",
            ),
            ([{"a": 0.5}] * 2, {}, r"draws\.a: record 0 must hold an array, got float"),
        ],
    )
    def test_records_that_do_not_go_together(self, records: Any, arguments: Any, text: str) -> None:
        with pytest.raises((SettingError, FieldValueError), match=text):
            ReplayedDrawsProvider(IndexProvider(2), records, **arguments)

    @pytest.mark.parametrize("index", [-1, 2])
    def test_an_index_without_record(self, index: int) -> None:
        provider = ReplayedDrawsProvider(IndexProvider(9), [{}] * 2, [4, 5])
        assert provider.get_data(1)["index"] == 5
        with pytest.raises(IndexError, match=r"must be in \[0, 1\]"):
            provider.get_data(index)


def _bits(records: Sequence[DrawRecord]) -> list[list[tuple[str, str, tuple[int, ...], bytes]]]:
    return [
        [(name, str(value.dtype), value.shape, value.tobytes()) for name, value in record.items()]
        for record in records
    ]


class TestRecordsAsData:
    @settings(max_examples=examples(12, 30))
    @given(
        st.dictionaries(
            st.text(min_size=1, max_size=5),
            arrays.arrays(
                st.sampled_from([np.float32, np.int32]),
                arrays.array_shapes(min_dims=0, max_dims=2, max_side=3),
                elements={"allow_nan": False},
            ),
            max_size=3,
        )
    )
    def test_survive_pickle(self, record: DrawRecord) -> None:
        assert _bits([pickle.loads(pickle.dumps(record))]) == _bits([record])

    def test_of_batches(self) -> None:
        torch = pytest.importorskip("torch")
        batch = {"a": torch.tensor([1.0, 2.0]), "b": np.zeros((2, 3), np.int32)}
        first, second = records_of_batch(batch)
        assert (first["a"].item(), second["a"].item()) == (1.0, 2.0)
        batch["b"][:] = 7
        assert first["b"].tolist() == [0, 0, 0]  # copies
        with pytest.raises(FieldValueError, match=r"the same number of samples, got {'a': 2, 'b': 3}"):
            records_of_batch({"a": np.zeros(2), "b": np.zeros(3)})
        with pytest.raises(FieldValueError, match=r"^a: the draws of a batch must be an array with the samples"):
            records_of_batch({"a": np.float32(1)})


def test_draws_beside_a_native_reader_alone(tmp_path: Path) -> None:
    (tmp_path / "class").mkdir()
    for number in range(4):
        (tmp_path / "class" / f"{number}.jpg").write_text("text")
    step = Drawer(UniformDraw("a"))
    [batch] = batches(FileReader(file_root=str(tmp_path)), [step], definition=RECORD, batch_size=4, seed=2)
    assert batch["draws"]["Drawer[0]/a"].tolist() == batch["a"].tolist()
    assert len({*batch["a"].tolist()}) == 4


def test_draws_cannot_be_replayed_beside_a_native_reader() -> None:
    with pytest.raises(SettingError, match="`replay_draws` is for those of a callable or an iterable, got File"):
        PipelineDefinition(FileReader(files=[__file__]), replay_draws="draws")
