"""A loader that is given a data provider, and what code around PyTorch's loader asks of it."""

from __future__ import annotations

import copy
import itertools
import sys
import types
from typing import Any

import pytest
import torch
from support.arrays import DT
from support.inputs import NumberIterable
from support.pipelines import indices
from support.providers import IndexProvider, NumberProvider
from support.refusals import assert_refused
from support.samplers import EndlessSampler

from accvlab.dali_pipeline_framework import (
    DataLoader,
    LambdaStep,
    PipelineDefinition,
    SamplerInputCallable,
    SequenceSampler,
    SequentialSampler,
    ShuffledSampler,
    WeightedSampler,
)
from accvlab.dali_pipeline_framework.errors import FormatError, NotSupportedError


def doubled(pair: Any) -> Any:
    return pair * 2


DOUBLED = LambdaStep(doubled, input_names="pair", output_types={"pair": DT.FLOAT})


def loader_of(source: Any = None, batch_size: int | None = 4, **arguments: Any) -> DataLoader:
    settings: dict[str, Any] = {"num_workers": 0, "num_threads": 1, "output_type": "numpy", **arguments}
    return DataLoader(IndexProvider(10) if source is None else source, batch_size, **settings)


class TestComposition:
    def test_samples_come_one_after_the_other_and_each_once(self) -> None:
        assert indices(loader_of()) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]

    def test_a_sampler_is_used_as_it_is(self) -> None:
        sampler = WeightedSampler([0.0] * 7 + [1.0] * 3, seed=2)
        expected = [sampler.with_settings(total_batch_size=4).get_batch_indices(0, batch) for batch in range(2)]
        assert indices(loader_of(sampler=sampler)) == [batch.tolist() for batch in expected]

    def test_batches_and_states_are_those_of_the_nested_objects(self) -> None:
        """Samples that are shuffled have the order of the sampler of that seed, and the steps are applied."""
        given: dict[str, Any] = {"steps": [DOUBLED, None], "seed": 3}
        sampler = ShuffledSampler(10, seed=3, last_batch="pad")
        for shard in (0, 1):
            nested = loader_of(
                SamplerInputCallable(NumberProvider(10), sampler, shard_id=shard, num_shards=2), 2, **given
            )
            whole = [repr(batch) for batch in nested]
            short = loader_of(NumberProvider(10), 2, shard=(shard, 2), shuffle=True, last_batch="pad", **given)
            assert [repr(batch) for batch in itertools.islice(short, 2)] == whole[:2]
            nested.load_state_dict(short.state_dict())
            assert [repr(batch) for batch in nested] == whole[2:]
        pairs = [[[2 * index, 2 * index + 2] for index in range(4)]]
        assert [batch["pair"].tolist() for batch in loader_of(NumberProvider(4), steps=[DOUBLED])] == pairs

    def test_an_error_shows_its_message_once(self) -> None:
        step = LambdaStep(doubled, input_names="piar", output_types={"pair": DT.FLOAT})
        with pytest.raises(FormatError, match=r"Did you mean 'pair'\?") as refused:
            loader_of(NumberProvider(10), steps=[step])
        assert refused.value.__cause__ is None

    def test_a_definition_is_refused_with_what_to_write_instead(self) -> None:
        definition = PipelineDefinition(SamplerInputCallable(NumberProvider(10), SequentialSampler(10)), [DOUBLED])
        words = "gave to the PipelineDefinition: DataLoader(definition.data_input, steps=[...], run='graph')"
        assert_refused(lambda: loader_of(definition, steps=[DOUBLED]), words)

    def test_an_error_of_a_blueprint_is_not_taken_for_a_missing_one(self) -> None:
        class Misspelled(IndexProvider):
            @property
            def sample_data_structure(self) -> Any:
                return DT.NO_SUCH_TYPE

        with pytest.raises(AttributeError, match="NO_SUCH_TYPE"):
            loader_of(Misspelled(10))

    def test_the_plan_is_that_of_the_pipeline(self) -> None:
        assert loader_of().plan == "nothing is folded\npacked: 1 of 1 fields; other outputs of workers: 0"


class TestAttributes:
    def test_are_those_of_pytorch(self) -> None:
        loader = loader_of(shuffle=True, seed=1)
        assert loader.dataset is loader.dataset
        assert len(loader.dataset) == 10
        loader.dataset.metainfo = {"classes": ("car",)}  # as the runner of mmengine reads it
        assert loader.dataset.metainfo["classes"] == ("car",)
        assert (loader.batch_size, loader.num_workers, loader.drop_last) == (4, 0, True)
        assert (loader.collate_fn, loader.generator, loader.timeout, loader.pin_memory) == (None, None, 0, False)
        assert (len(loader), len(loader.sampler), len(loader.batch_sampler)) == (2, 8, 2)
        assert (loader.batch_sampler.batch_size, loader.batch_sampler.drop_last) == (4, True)
        # A loader of PyTorch without workers refuses other values.
        assert (loader.persistent_workers, loader.prefetch_factor) == (False, None)
        loader = loader_of(num_workers=2, start_method="fork", prefetch_queue_depth=5)
        assert (loader.persistent_workers, loader.prefetch_factor) == (True, 3)

    def test_a_data_set_without_samples_is_still_one(self) -> None:
        assert IndexProvider(0)
        assert len(IndexProvider(0)) == 0

    @pytest.mark.parametrize("last_batch", ["drop", "pad", "partial", "wrap"])
    @pytest.mark.parametrize("shard", [0, 1])
    def test_the_samplers_tell_what_the_loader_delivers(self, last_batch: Any, shard: int) -> None:
        loader = loader_of(IndexProvider(11), 2, shuffle=True, last_batch=last_batch, shard=(shard, 2))
        assert loader.drop_last is loader.batch_sampler.drop_last is (last_batch == "drop")
        assert_told(loader)

    @pytest.mark.parametrize("sampler", [SequenceSampler(2, [3, 4, 2, 3], 0), EndlessSampler(12, 2)])
    def test_of_an_endless_order_they_tell_the_next_steps(self, sampler: Any) -> None:
        loader = loader_of(IndexProvider(12), None, sampler=sampler, steps_per_epoch=3)
        assert [len(batch) for batch in loader.batch_sampler] == [2, 2, 2]
        assert_told(loader)

    def test_a_sampler_of_an_iterable_has_no_epochs_to_set(self) -> None:
        loader = loader_of(NumberIterable(), 4)
        assert not hasattr(loader.sampler, "set_epoch")
        assert_refused(lambda: next(iter(loader.sampler)), "is known only when they come", NotSupportedError)

    def test_the_end_is_told_with_the_last_batch(self) -> None:
        loader = loader_of()
        assert not loader.end_of_dataloader
        for _ in range(2):
            assert [loader.end_of_dataloader for _ in loader] == [False, False, True]
            assert not loader.end_of_dataloader
        for _ in loader:
            break
        assert not loader.end_of_dataloader


def assert_told(loader: DataLoader) -> None:
    """Check that the samplers of a loader tell what it delivers, in two epochs."""
    for _ in range(2):
        told, count = [*loader.batch_sampler], len(loader.sampler)
        flat = [*loader.sampler]
        assert len(loader) == len(loader.batch_sampler) == len(told)
        assert indices(loader) == told
        assert flat == [index for batch in told for index in batch]
        assert count == len(flat)
    assert indices(loader) != told


class TestTorchDataLoader:
    def test_counts_as_one_where_it_is_asked_to(self) -> None:
        loader: Any = loader_of(shuffle=True, as_torch_data_loader=True)
        assert isinstance(loader, torch.utils.data.DataLoader)
        assert isinstance(loader, DataLoader)
        assert not isinstance(loader_of(), torch.utils.data.DataLoader)
        assert type(loader) is type(loader_of(as_torch_data_loader=True))
        loader.note = 3
        assert loader.note == 3
        for name in ("missing", "_get_iterator", "_index_sampler", "check_worker_number_rationality"):
            assert not hasattr(loader, name)


class TestCopies:
    @pytest.mark.parametrize("as_torch", [False, True])
    def test_of_a_loader_are_loaders_at_their_beginning(self, as_torch: bool) -> None:
        loader = loader_of(shuffle=True, seed=9, as_torch_data_loader=as_torch)
        expected = indices(loader)
        next(iter(loader))
        copied = copy.deepcopy(loader)
        assert type(copied) is type(loader)
        assert copied.epoch == 0
        assert indices(copied) == expected
        assert copied.dataset is not loader.dataset

    def test_of_an_input_deliver_the_same(self) -> None:
        data_input = SamplerInputCallable(NumberProvider(10), ShuffledSampler(10, seed=3))
        copied = copy.deepcopy({"dataloader": data_input})["dataloader"]
        assert repr(copied) == repr(data_input)
        assert repr([*loader_of(copied)]) == repr([*loader_of(data_input)])


def test_accelerate_knows_the_loader_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    running: set[Any] = set()
    state = types.SimpleNamespace(_add_dataloader=running.add, _remove_dataloader=running.discard)
    module = types.SimpleNamespace(GradientState=lambda: state)
    monkeypatch.setitem(sys.modules, "accelerate.state", module)
    loader = loader_of()
    for _ in range(2):
        assert [running == {loader} for _ in loader] == [True] * 3
        assert running == set()
