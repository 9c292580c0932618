"""Programs in the style of existing code: own inputs, steps and samplers that know nothing of what was added."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import nvidia.dali.fn as fn
import pytest
from nvidia.dali import backend
from nvidia.dali.types import DALIDataType
from support.laws import each_value
from support.pipelines import indices, make_iterator, shuffled
from support.providers import IndexProvider
from support.refusals import assert_refused
from support.samplers import ShortEndSampler
from support.steps import KeepsFormat
from support.warnings_of_product import of_product

from accvlab.dali_pipeline_framework.engine.dali.gpus import gpu_facts, num_usable_gpus
from accvlab.dali_pipeline_framework.errors import GraphError, SourceError
from accvlab.dali_pipeline_framework.inputs import (
    CallableBase,
    IterableBase,
    SamplerBase,
    SamplerInputCallable,
    SamplerInputIterable,
    SequenceSampler,
    ShuffledShardedInputCallable,
)
from accvlab.dali_pipeline_framework.pipeline import (
    DALIStructuredOutputIterator,
    PipelineDefinition,
    SampleDataGroup,
)

EIGHT = [[0, 1, 2, 3], [4, 5, 6, 7]]
needs_no_gpu = pytest.mark.skipif(num_usable_gpus() > 0, reason="a GPU is usable here")


class OwnCallable(CallableBase):
    """Keeps attributes under names that the base class knows, too."""

    used_sample_data_structure = IndexProvider().sample_data_structure
    length = 10

    def __init__(self, batch_size: int) -> None:
        self.batch_size = batch_size
        self.has_epochs = True

    def __call__(self, sample_info: Any) -> tuple[Any, ...]:
        if sample_info.idx_in_epoch >= 10:
            raise StopIteration
        return (np.int64(sample_info.idx_in_epoch),)  # NumPy's scalars are good


class OwnIterable(IterableBase):
    used_sample_data_structure = IndexProvider().sample_data_structure
    length = 3

    def __init__(self) -> None:
        self.current_sample_indices = None
        self.num_batches_per_epoch = 3
        self.next = 0

    def __iter__(self) -> OwnIterable:
        self.next = 0
        return self

    def __next__(self) -> tuple[Any, ...]:
        if self.next == 3:
            raise StopIteration
        self.next += 1
        return ([np.array(self.next * 10 + slot) for slot in range(2)],)


def test_own_inputs_may_set_what_the_base_knows() -> None:
    with make_iterator(OwnCallable(2)) as iterator:
        assert indices(iterator) == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    with make_iterator(OwnIterable(), batch_size=2) as iterator:
        assert len(iterator) == 3
        assert indices(iterator, 1) == [[10, 11]]
        assert indices(iterator) == [[10, 11], [20, 21], [30, 31]]


class WithGenerator:
    """Its ``__iter__`` is a generator; epoch ``e`` has the batches ``[e, e]`` and ``[10 + e, 10 + e]``."""

    used_sample_data_structure = IndexProvider().sample_data_structure
    length = 2
    epoch = -1

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        self.epoch += 1
        for start in (0, 10):
            yield ([np.array(start + self.epoch)] * 2,)


@pytest.mark.parametrize("py_num_workers", [0, 1])
def test_an_iterable_may_make_a_generator_in_each_epoch(py_num_workers: int) -> None:
    with make_iterator(WithGenerator(), batch_size=2, py_num_workers=py_num_workers) as iterator:
        assert indices(iterator, 1) == [[0, 0]]
        assert indices(iterator) == [[1, 1], [11, 11]]
        assert indices(iterator) == [[2, 2], [12, 12]]


@each_value(value=[3, [1], "x"], parallel=[True, False])
def test_values_that_are_no_arrays_are_named_alike_in_both_modes(value: Any, parallel: bool) -> None:
    class NotAnArray(OwnCallable):
        def __call__(self, sample_info: Any) -> tuple[Any, ...]:
            return (value,) if sample_info.iteration == 3 else super().__call__(sample_info)

    with make_iterator(NotAnArray(2), definition={"use_parallel_external_source": parallel}) as iterator:
        epoch = iter(iterator)
        assert [next(epoch)["index"].tolist() for _ in range(3)] == [[0, 1], [2, 3], [4, 5]]
        words = f"epoch 0, batch 3, slot 0):\n  - index: expected an array, got {type(value).__name__}"
        assert_refused(lambda: next(epoch), words, SourceError)


class Drawing(KeepsFormat):
    """Counts how often its graph is defined."""

    def __init__(self) -> None:
        self.num_defined = 0

    def _process(self, data: SampleDataGroup) -> SampleDataGroup:
        self.num_defined += 1
        data["index"] = fn.cast(data["index"] + self.num_defined, dtype=DALIDataType.INT64)
        return data


@needs_no_gpu
@pytest.mark.parametrize("device_id", [None, 0])
def test_the_graph_is_defined_once(device_id: int | None) -> None:
    step = Drawing()
    with make_iterator(shuffled(IndexProvider()), [step], device_id=device_id) as iterator:
        assert step.num_defined == 1
        assert indices(iterator, 1) == [[1, 2, 3, 4]]
        assert iterator.internal_iterator.device_id is None


def test_cuda_is_not_initialised_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise AssertionError("after this DALI refuses to fork workers")

    was_initialised = backend.IsDriverInitialized()
    monkeypatch.setattr(backend, "GetCUDADeviceCount", refuse)
    gpu_facts.cache_clear()
    PipelineDefinition(shuffled(IndexProvider())).get_dali_pipeline(device_id=0)
    assert backend.IsDriverInitialized() == was_initialised


def test_an_iterator_that_could_not_be_made_leaves_the_pipeline_alone() -> None:
    pipeline = PipelineDefinition(shuffled(IndexProvider())).get_dali_pipeline(py_num_workers=1)
    words = "`output_type` must be one of"
    assert_refused(lambda: DALIStructuredOutputIterator(None, pipeline, output_type="tensor"), words)
    gc.collect()
    with DALIStructuredOutputIterator(None, pipeline, output_type="numpy") as iterator:
        assert indices(iterator, 1) == [[0, 1, 2, 3]]


class TestBatchSizesThatDiffer:
    """The published inputs do not compare their batch size with that of the pipeline."""

    @pytest.mark.parametrize(
        ("own", "batch_size", "shard", "expected", "dropped"),
        [
            (4, 3, (0, 1), [[0, 1, 2], [3, 4, 5], [6, 7, 8]], "the last 2 of the 11"),
            (2, 11, (0, 1), [[*range(11)]], "none of the 11"),
            (2, 12, (0, 1), [], "the last 11 of the 11"),
            (1, 2, (1, 2), [[5, 6], [7, 8]], "the last 1 of the 5"),
        ],
    )
    def test_of_a_shuffled_sharded_input(
        self, own: int, batch_size: int, shard: tuple[int, int], expected: list[list[int]], dropped: str
    ) -> None:
        data_input = ShuffledShardedInputCallable(IndexProvider(11), own, *shard)
        message = (
            f"was created with batch_size={own}, the pipeline has batch_size={batch_size}. The order of the "
            f"samples is the same; an epoch has {len(expected)} batches of {batch_size} and drops {dropped} "
            f"samples of this shard"
        )
        with pytest.warns(UserWarning, match=re.escape(message)) as caught:
            iterator = make_iterator(data_input, batch_size=batch_size)
        assert len(of_product(caught)) == 1
        with iterator:
            assert len(iterator) == len(expected)
            assert indices(iterator) == indices(iterator) == expected

    def test_of_an_iterable_whose_batches_are_smaller(self) -> None:
        with pytest.warns(UserWarning, match="delivers batches of 2 samples .* batch_size=3: batches have 2"):
            iterator = make_iterator(of_sequences(SamplerInputIterable), batch_size=3, py_num_workers=1)
        with iterator:
            assert indices(iterator, 2) == [[0, 8], [1, 9]]

    def test_of_an_own_input_the_pipeline_s_counts(self) -> None:
        data_input = OwnCallable(8)  # of all shards, which is what this class means by it
        with pytest.warns(UserWarning, match="has batch_size=8, the pipeline has batch_size=4, which counts"):
            iterator = make_iterator(data_input, batch_size=4, py_num_workers=0)
        with iterator:
            assert indices(iterator) == EIGHT

    @pytest.mark.parametrize(
        ("make", "size", "words"),
        [
            (SamplerInputIterable, 1, "SamplerInputIterable is set up for 2 samples per batch"),
            (SamplerInputCallable, 8, "set up for 2 samples per batch ... batch_size=8"),
            (lambda *_: padded(), 2, "must be equal with last_batch='pad': ... 1 samples ... batch_size=2"),
            (lambda *_: WithGenerator(), None, "`batch_size` must be given"),
        ],
    )
    def test_others_are_refused(self, make: Any, size: int | None, words: str) -> None:
        definition = PipelineDefinition(of_sequences(make))
        assert_refused(lambda: definition.get_dali_pipeline(batch_size=size), words)


def padded() -> ShuffledShardedInputCallable:
    return ShuffledShardedInputCallable(IndexProvider(11), 1, last_batch="pad")


def of_sequences(kind: Any) -> Any:
    return kind(IndexProvider(16), SequenceSampler(2, [8, 8], 0, randomize=False))


class InAnyOrder(SamplerBase):
    """Shuffles by NumPy's global generator, which each worker process has for itself."""

    is_epoch_based = True
    length = None

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._left: list[int] | None = None

    def get_next_batch_indices(self) -> list[int]:
        if self._left is None:
            self._left = np.random.permutation(22).tolist()
        if len(self._left) < 2:
            raise StopIteration
        batch, self._left = self._left[:2], self._left[2:]
        return batch


def test_workers_have_the_order_that_a_sampler_had_in_the_main_process() -> None:
    source = SamplerInputCallable(IndexProvider(22), InAnyOrder(), 33, 4)
    with make_iterator(source, batch_size=2, py_num_workers=2) as iterator:
        epochs = [indices(iterator) for _ in range(3)]
    assert [sorted(np.concatenate(epoch).tolist()) for epoch in epochs] == [[*range(22)]] * 3
    assert epochs[0] != epochs[1]


def test_an_iterable_takes_a_smaller_batch_of_its_sampler() -> None:
    with make_iterator(SamplerInputIterable(IndexProvider(10), ShortEndSampler()), batch_size=4) as iterator:
        assert indices(iterator) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
        assert indices(iterator) == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 0]]
    halves = [SamplerInputIterable(IndexProvider(10), ShortEndSampler(), shard, 2) for shard in range(2)]
    assert [[np.ravel(batch).tolist() for batch in half] for half in halves] == [
        [[0, 1], [4, 5], [8]],
        [[2, 3], [6, 7], [9]],
    ]


def test_ways_to_run_a_pipeline_are_not_mixed_as_with_dali() -> None:
    pipeline = PipelineDefinition(OwnCallable(2)).get_dali_pipeline(batch_size=2, py_num_workers=0)
    for _ in range(5):
        pipeline.run()
    with pytest.raises(StopIteration):
        pipeline.run()
    assert_refused(pipeline.outputs, "Mixing pipeline API type", GraphError)
    pipeline.close()
