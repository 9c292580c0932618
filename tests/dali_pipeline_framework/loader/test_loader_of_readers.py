"""Loaders over native readers: epochs, state, what is beside them, and what they refuse."""

from __future__ import annotations

import itertools
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import nvidia.dali.fn as fn
import pytest
from nvidia.dali import tfrecord as tfrec
from nvidia.dali import types
from support.inputs import NumberCallable, NumberIterable
from support.laws import each_value, examples
from support.loaders import edited, json_copy, loop, make_loader
from support.providers import IndexProvider
from support.reader_data import frame_folders, number_of, numbered_files, record_file

from accvlab.dali_pipeline_framework.errors import (
    ClosedError,
    GraphError,
    NotSupportedError,
    SettingError,
    StateError,
)
from accvlab.dali_pipeline_framework.inputs import SamplerInputCallable, SamplerInputIterable
from accvlab.dali_pipeline_framework.loader import DataLoader
from accvlab.dali_pipeline_framework.pipeline import (
    DALIStructuredOutputIterator,
    PipelineDefinition,
    SampleDataGroup,
)
from accvlab.dali_pipeline_framework.processing_steps import PipelineStepBase
from accvlab.dali_pipeline_framework.sampling import SequentialSampler, ShuffledSampler
from accvlab.dali_pipeline_framework.sources import FileReader, JoinedInput, SequenceReader, TFRecordReader


class Noise(PipelineStepBase):
    """Adds a random number of DALI's generator."""

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        data.add_data_field("noise", types.DALIDataType.FLOAT)
        data["noise"] = fn.random.uniform(range=[0.0, 1.0])
        return data

    def _check_and_adjust_data_format_input_to_output(self, data_empty: SampleDataGroup) -> SampleDataGroup:
        data_empty.add_data_field("noise", types.DALIDataType.FLOAT)
        return data_empty


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return numbered_files(tmp_path_factory.mktemp("files") / "root", {"a": 6, "b": 5})


def numbers(batch: dict[str, Any]) -> list[int]:
    return [number_of(data) for data in batch["data"]]


POLICIES = ("drop", "pad", "partial", "wrap")
ORDERS: list[dict[str, Any]] = [{}, {"random_shuffle": True, "initial_fill": 4}, {"shuffle_after_epoch": True}]


class TestEpochs:
    @pytest.mark.parametrize("depth", [1, 2, 4])
    @pytest.mark.parametrize("policy", POLICIES)
    def test_a_break_ends_the_epoch(self, root: Path, policy: str, depth: int) -> None:
        arguments = {"last_batch": policy, "pipeline_arguments": {"prefetch_queue_depth": depth}}
        with make_loader(FileReader(file_root=root), 4, **arguments) as loader:
            whole = [loop(loader) for _ in range(3)]
        with make_loader(FileReader(file_root=root), 4, **arguments) as loader:
            assert loop(loader, 1) == whole[0][:1]
            assert loop(loader) == whole[1]
            assert loop(loader, 2) == whole[2][:2]

    def test_iterator_without_a_loader_has_epochs_too(self, root: Path) -> None:
        definition = PipelineDefinition(FileReader(file_root=root, pad_last_batch=True))
        pipeline = definition.get_dali_pipeline(batch_size=4, num_threads=1)
        with DALIStructuredOutputIterator(pipeline=pipeline, output_type="numpy") as iterator:
            assert len(iterator) == 3
            wanted = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 10]]
            for _ in range(2):
                assert [numbers(batch) for batch in iterator] == wanted

    def test_epoch_counts_up_and_can_be_set_to_what_comes_next(self, root: Path) -> None:
        with make_loader(FileReader(file_root=root), 4, last_batch="pad") as loader:
            for epoch in range(3):
                loader.set_epoch(epoch)
                assert loader.epoch == epoch
                loop(loader, 2 if epoch == 1 else None)
            with pytest.raises(
                NotSupportedError, match="the next loop runs in epoch 3, and cannot run in epoch 7"
            ):
                loader.set_epoch(7)

    def test_account_is_logged_once(self, root: Path, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO)
        with make_loader(FileReader(file_root=root), 4, last_batch="drop") as loader:
            loop(loader)
            loop(loader)
        messages = [each.message for each in caplog.records if "samples" in each.message]
        assert messages == ["epoch 0: 2 batches of 4 (all shards together) deliver 8 of 11 samples, 3 dropped"]

    def test_last_batch_of_different_shapes_can_be_smaller(self, tmp_path: Path) -> None:
        (tmp_path / "a").mkdir()
        for number in range(5):
            (tmp_path / "a" / f"{number}.jpg").write_bytes(bytes([number] * (number + 1)))
        with make_loader(FileReader(file_root=tmp_path), 3, last_batch="partial", ragged="list") as loader:
            got = [[len(each) for each in batch["data"]] for batch in loader]
        assert got == [[1, 2, 3], [4, 5]]


class TestState:
    @each_value(order=ORDERS, shard=[(0, 1), (1, 2)], policy=POLICIES)
    def test_each_position_can_be_continued(self, root: Path, policy: str, shard: Any, order: dict) -> None:
        def make() -> DataLoader:
            reader = FileReader(file_root=root, **order)
            return make_loader(reader, 3, last_batch=policy, shard=shard, steps=[Noise()], seed=5)

        whole: list[Any] = []
        with make() as loader:
            states = []
            for _ in range(3):
                states.append((len(whole), loader.state_dict()))
                for batch in loader:
                    whole.append((numbers(batch), batch["noise"].tolist()))
                    states.append((len(whole), loader.state_dict()))
        assert len(whole) >= 3
        every = examples(3, 1)  # and elsewhere other ones
        first = POLICIES.index(policy) + ORDERS.index(order) + shard[0]
        for position, state in states[first % every :: every]:
            with make() as loader:
                loader.load_state_dict(json_copy(state))
                assert loader.state_dict() == state
                rest: list[Any] = []
                while len(rest) < len(whole) - position:
                    rest += [(numbers(batch), batch["noise"].tolist()) for batch in loader]
            assert rest[: len(whole) - position] == whole[position:]

    def test_another_state_can_be_loaded_into_a_running_loader(self, root: Path) -> None:
        with make_loader(FileReader(file_root=root), 4, last_batch="pad") as loader:
            first = loader.state_dict()
            batches = loop(loader, 2)
            middle = loader.state_dict()
            for _ in range(2):
                loader.load_state_dict(middle)
                assert len(loop(loader)) == 1
                loader.load_state_dict(first)
                assert loop(loader, 2) == batches

    def test_records_are_continued_with_features_that_are_made_anew(self, tmp_path: Path) -> None:
        records, index = record_file(tmp_path / "records", 6)

        def make() -> DataLoader:
            features = {"number": tfrec.FixedLenFeature((), tfrec.int64, 0)}
            return make_loader(TFRecordReader(path=records, index_path=index, features=features), 2)

        def received(loader: DataLoader) -> list[list[int]]:
            return [batch["number"].ravel().tolist() for batch in loader]

        with make() as first:
            for batch in first:
                assert batch["number"].ravel().tolist() == [0, 1]
                break
            state = json_copy(first.state_dict())
            with make() as second:  # while the features of the first are there
                second.load_state_dict(state)
                assert received(second) == [[2, 3], [4, 5]]

    def test_state_is_small(self, root: Path) -> None:
        with make_loader(FileReader(file_root=root), 4, steps=[Noise()]) as loader:
            loop(loader, 1)
            assert len(json.dumps(loader.state_dict())) < 1024

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"batch_size": 3}, "only with the same batch size and number of shards"),
            ({"shard": (0, 2), "batch_size": 2}, "only with the same batch size and number of shards"),
            ({"last_batch": "wrap"}, "last_batch: 'pad' in the state, 'wrap' here"),
            ({"reader": {"random_shuffle": True}}, "random_shuffle: nothing in the state, True here"),
            ({"seed": 9}, "seed of the random draws: 0 in the state, 9 here"),
        ],
    )
    def test_other_settings_are_refused(self, root: Path, change: dict[str, Any], message: str) -> None:
        with make_loader(FileReader(file_root=root), 4, last_batch="pad") as loader:
            loop(loader, 1)
            state = loader.state_dict()
        change = dict(change)
        reader = FileReader(file_root=root, **change.pop("reader", {}))
        with (
            make_loader(reader, **{"batch_size": 4, "last_batch": "pad", **change}) as loader,
            pytest.raises(StateError, match=message),
        ):
            loader.load_state_dict(state)

    @pytest.mark.parametrize(
        ("reader", "message"),
        [
            (None, "`reader` is missing"),
            ([0, 1], "`reader` must be a list"),
            ([0, 1, "!"], "`reader` must be a list"),
            ([0, -1, "x"], "`reader` must be a list"),
            ([0, 1, "c$@<O00001"], "`reader` must be a list|cannot restore"),
        ],
    )
    def test_damaged_states_are_refused(self, root: Path, reader: Any, message: str) -> None:
        with make_loader(FileReader(file_root=root), 4, last_batch="pad") as loader:
            before = loop(loader, 1)
            state = edited(loader.state_dict(), {"reader": reader})
            if reader is None:
                del state["reader"]
                state = edited(state)
            with pytest.raises(StateError, match=message):
                loader.load_state_dict(state)
        with make_loader(FileReader(file_root=root), 4, last_batch="pad") as loader:
            assert loop(loader, 1) == before

    def test_a_checkpoint_of_another_pipeline_is_refused(self, root: Path) -> None:
        with make_loader(FileReader(file_root=root), 4) as loader:
            loop(loader, 1)
            state = loader.state_dict()
        with make_loader(FileReader(file_root=root), 4, steps=[Noise()]) as loader:
            with pytest.raises(StateError, match="DALI cannot restore the state of the native readers"):
                loader.load_state_dict(state)
            assert len(loop(loader)) == 3  # it goes on as it was


class TestJoined:
    def make(self, root: Path, num_samples: int = 10, **arguments: Any) -> DataLoader:
        sampler = ShuffledSampler(num_samples, seed=3)
        inputs = {
            "files": FileReader(file_root=root),
            "index": SamplerInputCallable(IndexProvider(num_samples), sampler),
        }
        return make_loader(JoinedInput(inputs), 4, last_batch=arguments.pop("last_batch", "drop"), **arguments)

    def test_samples_have_a_group_per_input(self, root: Path) -> None:
        with self.make(root) as loader:
            batch = next(iter(loader))
        assert [*batch] == ["files", "index"]
        assert [*batch["files"]] == ["data", "label"]
        assert batch["index"]["index"].shape == (4,)

    def test_epochs_are_those_of_the_callable_and_the_reader_goes_on(
        self, root: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        with self.make(root) as loader:
            assert len(loader) == 2
            epochs = [[numbers(batch["files"]) for batch in loader] for _ in range(3)]
        one_pass = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 10]]
        assert [batch for epoch in epochs for batch in epoch] == one_pass * 2
        warnings = [each.message for each in caplog.records if "do not stay with" in each.message]
        assert len(warnings) == 1
        assert "which has 2 batches per epoch: reader_files has 3 batches per epoch" in warnings[0]

    @each_value(num_before=[0, 1, 2], policy=["pad", "wrap"], num_workers=[0, 2])
    def test_readers_stay_in_step_over_breaks(
        self, root: Path, num_before: int, policy: str, num_workers: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        index = SamplerInputCallable(IndexProvider(11), ShuffledSampler(11, shuffle=False))
        joined = JoinedInput({"files": FileReader(file_root=root), "index": index})
        arguments = {"num_workers": num_workers, "last_batch": policy}
        with make_loader(joined, 4, **arguments) as loader:
            for _ in range(2):
                if num_before:
                    loop(loader, num_before)
                epoch = [(numbers(batch["files"]), batch["index"]["index"].tolist()) for batch in loader]
                assert all(files[:3] == index[:3] for files, index in epoch)
                assert [files for files, _ in epoch] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 10]]
        assert not [each for each in caplog.records if "do not stay with" in each.message]

    def test_epochs_that_do_not_come_next_are_refused(self, root: Path) -> None:
        with self.make(root) as loader:
            loop(loader)
            loader.set_epoch(1)
            with pytest.raises(
                NotSupportedError, match="the next loop runs in epoch 1, and cannot run in epoch 0"
            ):
                loader.set_epoch(0)

    def test_endless_inputs_are_not_played_to_their_end(self, root: Path) -> None:
        inputs = {"files": FileReader(file_root=root), "n": NumberCallable(has_epochs=False)}
        with make_loader(JoinedInput(inputs), 4, steps_per_epoch=5) as loader:
            for _ in range(3):
                assert len(loop(loader, 2)) == 2

    def test_shards_are_warned_of(self, root: Path, caplog: pytest.LogCaptureFixture) -> None:
        index = SamplerInputCallable(IndexProvider(11), ShuffledSampler(11, shuffle=False))
        joined = JoinedInput({"files": FileReader(file_root=root), "index": index})
        with make_loader(joined, 2, shard=(1, 2), last_batch="pad") as loader:
            loop(loader, 1)
        assert "on several shards, readers and samplers deal the samples in different ways" in caplog.text

    @pytest.mark.parametrize(("num_workers", "start_method"), [(0, "fork"), (2, "fork"), (1, "forkserver")])
    def test_each_position_can_be_continued(self, root: Path, num_workers: int, start_method: str) -> None:
        def make() -> DataLoader:
            return self.make(root, num_workers=num_workers, start_method=start_method, steps=[Noise()])

        def value(batch: dict[str, Any]) -> Any:
            return numbers(batch["files"]), batch["index"]["index"].tolist(), batch["noise"].tolist()

        whole, states = [], []
        with make() as loader:
            for _ in range(3):
                states.append((len(whole), loader.state_dict()))
                for batch in loader:
                    whole.append(value(batch))
                    states.append((len(whole), loader.state_dict()))
        for position, state in states[:: examples(3, 1) if num_workers == 0 else 3]:
            with make() as loader:
                loader.load_state_dict(json_copy(state))
                rest: list[Any] = []
                while len(rest) < len(whole) - position:
                    rest += [value(batch) for batch in loader]
            assert rest[: len(whole) - position] == whole[position:]

    def test_a_running_loader_that_loads_a_state_tells_the_same_as_one_that_ran_there(self, root: Path) -> None:
        def place(state: dict[str, Any]) -> list[Any]:
            return [state["epoch"], state["batch"], state["reader"][:2]]

        with self.make(root) as loader:
            states = [loader.state_dict() for _ in range(2) for _ in loader]
        with self.make(root) as loader:
            for position, state in enumerate(states[:-1]):
                next(iter(loader))
                loader.load_state_dict(json_copy(state))
                assert place(loader.state_dict()) == place(state)
                next(iter(loader))
                assert place(loader.state_dict()) == place(states[position + 1])

    def test_continuing_and_then_breaking(self, root: Path) -> None:
        with self.make(root, 20) as loader:
            loop(loader, 3)
            state = loader.state_dict()
            index = [batch["index"]["index"].tolist() for batch in itertools.islice(loader, 2)]
        with self.make(root, 20) as loader:
            loader.load_state_dict(state)
            loop(loader, 1)
            assert [batch["index"]["index"].tolist() for batch in itertools.islice(loader, 2)] == index

    def test_readers_beside_each_other_stay_in_step(self, root: Path, tmp_path: Path) -> None:
        other = numbered_files(tmp_path / "other", {"x": 11})
        readers = {
            name: FileReader(file_root=path, random_shuffle=True)
            for name, path in zip("ab", [root, other], strict=True)
        }
        with make_loader(JoinedInput(readers), 4, last_batch="partial") as loader:
            assert len(loader) == 3
            for _ in range(2):
                batches = [(numbers(batch["a"]), numbers(batch["b"])) for batch in loader]
                assert [len(a) for a, _ in batches] == [4, 4, 3]
                assert all(a == b for a, b in batches)
                assert sorted(number for a, _ in batches for number in a) == list(range(11))

    def test_readers_of_other_lengths_are_refused(self, root: Path, tmp_path: Path) -> None:
        frames = frame_folders(tmp_path / "frames", {"0": 4})
        readers = {"a": FileReader(file_root=root), "b": SequenceReader(file_root=frames, sequence_length=2)}
        with (
            make_loader(JoinedInput(readers), 2, last_batch="pad") as loader,
            pytest.raises(SettingError, match=r"must have the same number of samples.*\n.*11.*\n.*num_samples=3"),
        ):
            len(loader)

    def test_beside_an_iterable(self, root: Path) -> None:
        inputs = {"n": NumberIterable(8, 4), "files": FileReader(file_root=root)}
        with make_loader(JoinedInput(inputs), 4) as loader:
            got = [(numbers(batch["files"])) for batch in loader]
            assert got == [[0, 1, 2, 3], [4, 5, 6, 7]]
            with pytest.raises(NotSupportedError, match="is an iterable"):
                loader.state_dict()

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda root: JoinedInput({}), "at least one input"),
            (lambda root: JoinedInput([FileReader(file_root=root)]), "must be a dict"),
            (lambda root: JoinedInput({"a": 3}), "must be a native reader, a callable or an iterable, got 3"),
            (lambda root: JoinedInput({"a": NumberIterable()}), "others need no JoinedInput"),
            (
                lambda root: JoinedInput(
                    {"a": NumberIterable(), "b": NumberIterable(), "c": FileReader(file_root=root)}
                ),
                "At most one input .* got 'a', 'b'",
            ),
        ],
    )
    def test_what_cannot_be_joined(self, root: Path, make: Any, message: str) -> None:
        with pytest.raises(SettingError, match=message):
            make(root)

    def test_partial_batches_do_not_go_with_readers(self, root: Path) -> None:
        with pytest.raises(SettingError, match="must deliver full batches"):
            self.make(root, last_batch="partial")


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("reader", "arguments", "message"),
        [
            ({}, {"batch_size": None}, "`batch_size` must be given: native readers have none"),
            ({}, {"context_name": "where"}, "`context_name` does not go with a FileReader, .* a sampler"),
            ({}, {"steps_per_epoch": 3}, "`steps_per_epoch` does not go with a FileReader"),
            ({"pad_last_batch": True}, {"last_batch": "wrap"}, "created with pad_last_batch=True"),
            ({"pad_last_batch": False}, {"last_batch": "pad"}, "created with pad_last_batch=False"),
            ({"num_shards": 2, "shard_id": 1}, {"shard": (0, 2)}, "created for shard 1 of 2"),
            ({}, {"last_batch": "what"}, "`last_batch` must be"),
        ],
    )
    def test_contradictions(self, root: Path, reader: dict, arguments: dict, message: str) -> None:
        with pytest.raises(SettingError, match=message):
            make_loader(FileReader(file_root=root, **reader), **{"batch_size": 4, **arguments})

    def test_a_closed_loader_says_that_it_is_closed(self, root: Path) -> None:
        loader = make_loader(FileReader(file_root=root), 4)
        loader.close()
        for ask in (loader.__len__, loader.sample_counts):
            with pytest.raises(ClosedError, match="The loader was closed"):
                ask()

    def test_a_reader_is_no_data_set(self, root: Path) -> None:
        with pytest.raises(
            SettingError, match=r"must be a DataProvider, got FileReader\. .* give them to the Pipe"
        ):
            SamplerInputCallable(FileReader(file_root=root), ShuffledSampler(4))

    def test_an_iterable_over_a_sampler_is_still_one(self) -> None:
        with make_loader(SamplerInputIterable(IndexProvider(8), ShuffledSampler(8, 4)), None) as loader:
            assert len(loop(loader)) == 2

    def test_numbers_are_as_numpy_has_them(self, root: Path) -> None:
        with make_loader(FileReader(file_root=root), 2) as loader:
            batch = next(iter(loader))
        assert isinstance(batch["label"], np.ndarray)
        assert batch["label"].shape == (2, 1)


# --- files that cannot be read ----------------------------------------------------------------------------


@each_value(read_ahead=[3, 1, 2], depth=[2, 1, 3], bad=[9, 1, 11], joined=[False, True])
def test_batches_before_a_file_that_cannot_be_read_come_first(
    tmp_path: Path, read_ahead: int, depth: int, bad: int, joined: bool
) -> None:
    files = sorted(numbered_files(tmp_path / "root", {"a": 12}).rglob("*.jpg"))
    reader: Any = FileReader(files=files, prefetch_queue_depth=read_ahead)
    if joined:
        reader = JoinedInput(
            {
                "read": reader,
                "own": SamplerInputCallable(IndexProvider(12), SequentialSampler(12, 2, last_batch="drop")),
            }
        )
    received: list[Any] = []
    arguments = {"pipeline_arguments": {"prefetch_queue_depth": depth}, "num_workers": int(joined)}
    with DataLoader(reader, 2, output_type="numpy", start_method="fork", **arguments) as loader:
        files[bad].unlink()
        with pytest.raises(GraphError, match=files[bad].name):
            received += loader
    received = [number for batch in received for number in numbers(batch["read"] if joined else batch)]
    assert received == [*range(bad - 1)]  # DALI reads one file ahead: the first one of a batch fails a batch early
