"""What native readers deliver: what DALI's operators deliver, with names, and all arguments reach them."""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import nvidia.dali.fn as fn
import pytest
from nvidia.dali import types
from support.reader_data import array_files, frame, frame_folders, number_of, numbered_files
from support.refusals import assert_refused
from support.steps import Noise

from accvlab.dali_pipeline_framework.errors import GraphError, OutputError, SettingError
from accvlab.dali_pipeline_framework.loader import DataLoader
from accvlab.dali_pipeline_framework.pipeline import DALIStructuredOutputIterator, PipelineDefinition
from accvlab.dali_pipeline_framework.sources import FileReader, ReaderField, ReaderInput, SequenceReader
from accvlab.dali_pipeline_framework.video import VideoStreamInput


@contextlib.contextmanager
def iterating(
    reader: ReaderInput, batch_size: int = 1, steps: Any = (), **arguments: Any
) -> Iterator[tuple[Any, DALIStructuredOutputIterator]]:
    """A pipeline over a reader, and the iterator over it."""
    definition = PipelineDefinition(reader, [*steps])
    pipeline = definition.get_dali_pipeline(batch_size=batch_size, num_threads=1, **arguments)
    with DALIStructuredOutputIterator(pipeline=pipeline, output_type="numpy") as iterator:
        yield pipeline, iterator


def samples(reader: ReaderInput, **arguments: Any) -> list[dict[str, Any]]:
    """All samples of an epoch, one by one."""
    with iterating(reader, **arguments) as (_, iterator):
        return [{name: field[0] for name, field in batch.items()} for batch in iterator]


def numbers(batch: Any) -> list[int]:
    return [number_of(data) for data in batch["data"]]


class TestWhatTheyDeliver:
    def test_files_of_folders(self, tmp_path: Path) -> None:
        root = numbered_files(tmp_path / "root", {"b": 2, "a": 3})
        got = [(number_of(each["data"]), each["label"].tolist()) for each in samples(FileReader(file_root=root))]
        assert got == [(2, [0]), (3, [0]), (4, [0]), (0, [1]), (1, [1])]

    def test_files_of_a_list_with_spaces(self, tmp_path: Path) -> None:
        root = numbered_files(tmp_path / "root", {"a b": 3})
        (tmp_path / "list.txt").write_text("a b/0002.jpg 7\na b/0000.jpg 0\n")
        got = samples(FileReader(file_list=tmp_path / "list.txt", file_root=root, label_name="class"))
        assert [(number_of(each["data"]), each["class"].tolist()) for each in got] == [(2, [7]), (0, [0])]

    def test_files_by_name(self, tmp_path: Path) -> None:
        root = numbered_files(tmp_path / "root", {"a": 3})
        files = [root / "a" / "0001.jpg", root / "a" / "0000.jpg"]
        got = samples(FileReader(files=files, labels=[5, -3], label_name=None))
        assert [[*each] for each in got] == [["data"], ["data"]]
        assert [number_of(each["data"]) for each in got] == [1, 0]

    def test_sequences_of_frames(self, tmp_path: Path) -> None:
        root = frame_folders(tmp_path / "root", {"0": 6, "1": 2, "2": 3})
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            got = samples(SequenceReader(file_root=root, sequence_length=3, step=2, stride=1))
        numbers = [[0, 1, 2], [2, 3, 4], [8, 9, 10]]
        assert [each["frames"].tolist() for each in got] == [[frame(n).tolist() for n in each] for each in numbers]
        # DALI's operator is deprecated.
        assert [str(each.message) for each in caught if "readers.sequence" in str(each.message)] == []

    def test_another_reader_of_dali(self, tmp_path: Path) -> None:
        class NumpyReader(ReaderInput):
            operator_name = "readers.numpy"

            def __init__(self, **arguments: Any) -> None:
                self.fields = [ReaderField("data", types.DALIDataType.FLOAT)]
                super().__init__(fn.readers.numpy, arguments)

        root = array_files(tmp_path / "root", 3)
        got = samples(NumpyReader(file_root=root))
        assert [each["data"].tolist() for each in got] == [[[n] * 3] * 2 for n in range(3)]
        np.save(root / "002.npy", np.ones((2, 3), np.int32))
        with pytest.raises(OutputError, match=r"data: .* float32, but .* int32 .*, from '.*/002.npy'"):
            samples(NumpyReader(file_root=root))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return numbered_files(tmp_path_factory.mktemp("files") / "root", {"a": 6, "b": 5})


# Arguments, and the first four batches of 4; an epoch has 3, or 2 of a shard.
ORDERS: dict[str, tuple[dict[str, Any], list[list[int]]]] = {
    "in order": ({}, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 0], [1, 2, 3, 4]]),
    "padded": ({"pad_last_batch": True}, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 10], [0, 1, 2, 3]]),
    "a shard": (
        {"shard_id": 1, "num_shards": 2, "pad_last_batch": True},
        [[5, 6, 7, 8], [9, 10, 10, 10], [0, 1, 2, 3], [4, 4, 4, 4]],
    ),
    "a shard for all epochs": (
        {"shard_id": 0, "num_shards": 2, "pad_last_batch": True, "stick_to_shard": True},
        [[0, 1, 2, 3], [4, 4, 4, 4], [0, 1, 2, 3], [4, 4, 4, 4]],
    ),
}


class TestEpochs:
    @pytest.mark.parametrize("order", ORDERS)
    def test_have_as_many_batches_as_the_largest_shard(self, root: Path, order: str) -> None:
        arguments, expected = ORDERS[order]
        with iterating(FileReader(file_root=root, **arguments), 4) as (_, iterator):
            epochs = [[numbers(batch) for batch in iterator] for _ in range(3)]
            num_batches = len(iterator)
        assert num_batches == (2 if "num_shards" in arguments else 3)
        assert [len(epoch) for epoch in epochs] == [num_batches] * 3
        assert [*itertools.chain(*epochs)][:4] == expected

    @pytest.mark.parametrize("depth", [1, 4])
    def test_a_break_ends_one(self, root: Path, depth: int) -> None:
        with iterating(FileReader(file_root=root), 4, prefetch_queue_depth=depth) as (_, iterator):
            assert [numbers(next(iter(iterator))) for _ in range(2)] == [[0, 1, 2, 3], [1, 2, 3, 4]]
            assert [numbers(batch) for batch in iterator][:1] == [[2, 3, 4, 5]]


CHECKPOINTED: dict[str, dict[str, Any]] = {
    **{name: arguments for name, (arguments, _) in ORDERS.items()},
    "buffer": {"random_shuffle": True, "initial_fill": 4},
    "after each epoch": {"shuffle_after_epoch": True},
    "far ahead": {"random_shuffle": True, "initial_fill": 4, "prefetch_queue_depth": 3},
}


@pytest.mark.parametrize("order", CHECKPOINTED)
def test_a_run_goes_on_from_a_checkpoint_at_each_position(root: Path, order: str) -> None:
    def content(batch: Any) -> Any:
        return numbers(batch), batch["noise"].tolist()

    def begun(**more: Any) -> Any:
        reader = FileReader(file_root=root, **CHECKPOINTED[order])
        return iterating(reader, 4, [Noise()], seed=5, enable_checkpointing=True, **more)

    delivered, checkpoints = [], []
    with begun() as (pipeline, iterator):
        for batch in itertools.chain(iterator, iterator, iterator):
            delivered.append(content(batch))
            checkpoints.append(pipeline.checkpoint())
        num_batches = len(iterator)
    assert len(delivered) == 3 * num_batches
    for number, checkpoint in enumerate(checkpoints[:-1], start=1):
        with begun(checkpoint=checkpoint) as (_, iterator):
            rest = [[content(batch) for batch in iterator] for _ in range(3)]
        assert [*itertools.chain(*rest)][: len(delivered) - number] == delivered[number:]
        assert len(rest[0]) == num_batches - number % num_batches  # the epoch ends where it would have


@pytest.mark.parametrize(
    "make",
    [
        lambda: FileReader(files=[__file__]),
        lambda: SequenceReader(file_root=Path(__file__).parent, sequence_length=2),
        lambda: VideoStreamInput(2),
    ],
)
def test_a_loader_refuses_them_and_says_what_takes_them(make: Any) -> None:
    made = make()
    kind = type(made).__name__
    words = f"operators of DALI read a {kind}...PipelineDefinition({kind}(...), steps)...FileDataProvider"
    assert_refused(lambda: DataLoader(made, 2), words)


class TestArguments:
    @pytest.mark.parametrize(
        ("make", "words"),
        [
            (lambda: FileReader(), "needs exactly one of `file_list`, `files`, or `file_root` alone, got none"),
            (lambda: FileReader(files=["a"], file_list="b"), "got `file_list`, `files`"),
            (lambda: FileReader(file_root="/does/not/exist"), "'/does/not/exist' does not exist"),
            (lambda: FileReader(file_root=__file__), "must be a folder, but ... is a file"),
            (lambda: FileReader(file_list="/does/not/exist"), "`file_list` ... does not exist"),
            (lambda: FileReader(files=["a"], lables=[1]), "`lables` is not an argument of fn.readers.file. Did"),
            (lambda: FileReader(files=["a"], name="x"), "the pipeline names its readers itself"),
            (lambda: FileReader(files=["a"], device="gpu"), "the pipeline's `device_id` chooses it"),
            (lambda: FileReader(files=["a"], shard_id=2, num_shards=2), "`shard_id` must be in"),
            (lambda: FileReader(files=["a"], data_name="x", label_name="x"), "x"),
            (lambda: SequenceReader(sequence_length=3), "needs `file_root`"),
            (lambda: SequenceReader(file_root="/", sequence_lenght=3), "Did you mean `sequence_length`"),
            (lambda: SequenceReader(file_root="https://host/a", sequence_length=3), "reads local files only. Use"),
        ],
    )
    def test_what_is_wrong_is_told_at_once(self, make: Any, words: str) -> None:
        error = assert_refused(make, words, Exception)
        assert isinstance(error, SettingError | KeyError)

    def test_repr_names_what_was_given(self) -> None:
        reader = FileReader(files=[__file__] * 2, seed=3)
        assert repr(reader) == f"FileReader(files={[__file__] * 2}, seed=3)"
        assert len(repr(FileReader(files=[__file__] * 10000))) < 1000
        # What DALI reads from S3 is left to DALI.
        assert repr(FileReader(file_root="s3://bucket/train")) == "FileReader(file_root='s3://bucket/train')"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda root: FileReader(file_root=root, file_filters=["*.bmp"]), "cannot set up...No files found"),
        (lambda root: FileReader(file_root=root, num_shards=6), "at least as many samples as shards (6)"),
        (lambda root: SequenceReader(file_root=root, sequence_length=4, stride=2), "needs 7 frames...has 3"),
        (lambda root: SequenceReader(file_root=root / "0", sequence_length=2), "folders in `file_root`, one per"),
    ],
)
def test_folders_that_do_not_fit_are_refused(tmp_path: Path, make: Any, words: str) -> None:
    root = frame_folders(tmp_path / "root", {"0": 2, "1": 3})
    assert_refused(lambda: samples(make(root)), words)


def test_a_file_that_vanished_is_named(tmp_path: Path) -> None:
    root = numbered_files(tmp_path / "root", {"a": 3})
    with iterating(FileReader(file_root=root)) as (_, iterator):
        assert len(iterator) == 3
        (root / "a" / "0001.jpg").unlink()
        with pytest.raises(GraphError, match=r"failed in FileReader\(.*0001.jpg"):
            list(iterator)
