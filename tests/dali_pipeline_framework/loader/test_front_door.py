"""A loader that is given a data provider, and what code around PyTorch's loader asks of it."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
import torch
from support.arrays import DT
from support.pipelines import indices
from support.providers import IndexProvider, NumberProvider
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
from accvlab.dali_pipeline_framework.errors import (
    FormatError,
    NotSupportedError,
    SettingError,
)


def doubled(pair: Any) -> Any:
    return pair * 2


DOUBLED = LambdaStep(doubled, input_names="pair", output_types={"pair": DT.FLOAT})


def loader_of(source: Any = None, batch_size: int | None = 4, **arguments: Any) -> DataLoader:
    return DataLoader(
        IndexProvider(10) if source is None else source,
        batch_size,
        **{"num_workers": 0, "num_threads": 1, "output_type": "numpy", **arguments},
    )


class TestComposition:
    def test_samples_come_one_after_the_other_and_each_once(self) -> None:
        assert indices(loader_of()) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]

    def test_shuffled_samples_have_the_order_of_the_sampler_of_that_seed(self) -> None:
        loader = loader_of(shuffle=True, seed=5)
        sampler = ShuffledSampler(10, 4, seed=5)
        for epoch in range(3):
            assert indices(loader) == [sampler.get_batch_indices(epoch, batch).tolist() for batch in range(2)]

    def test_a_sampler_is_used_as_it_is(self) -> None:
        sampler = WeightedSampler([0.0] * 7 + [1.0] * 3, seed=2)
        expected = [sampler.with_settings(total_batch_size=4).get_batch_indices(0, batch) for batch in range(2)]
        assert indices(loader_of(sampler=sampler)) == [batch.tolist() for batch in expected]

    @pytest.mark.parametrize("is_input", [False, True])
    def test_steps_are_applied(self, is_input: bool) -> None:
        provider = NumberProvider(4)
        source = SamplerInputCallable(provider, SequentialSampler(4)) if is_input else provider
        loader = loader_of(source, steps=[DOUBLED, None])
        assert [batch["pair"].tolist() for batch in loader] == [[[2 * i, 2 * i + 2] for i in range(4)]]

    def test_it_delivers_what_the_nested_objects_deliver(self) -> None:
        sampler = ShuffledSampler(10, seed=3, last_batch="pad")
        short = {"shuffle": True, "last_batch": "pad"}
        given = {"steps": [DOUBLED], "seed": 3}
        for shard in (0, 1):
            nested = SamplerInputCallable(NumberProvider(10), sampler, shard_id=shard, num_shards=2)
            pairs = itertools.zip_longest(
                loader_of(nested, 2, **given),
                loader_of(NumberProvider(10), 2, shard=(shard, 2), **short, **given),
            )
            assert all(repr(one) == repr(other) for one, other in pairs)

    def test_a_state_fits_the_nested_objects(self) -> None:
        loader = loader_of(shuffle=True, seed=7)
        next(iter(loader))
        nested = SamplerInputCallable(IndexProvider(10), ShuffledSampler(10, seed=7))
        continued = loader_of(nested, seed=7)
        continued.load_state_dict(loader.state_dict())
        assert indices(continued) == [ShuffledSampler(10, 4, seed=7).get_batch_indices(0, 1).tolist()]

    def test_an_error_shows_its_message_once(self) -> None:
        step = LambdaStep(doubled, input_names="piar", output_types={"pair": DT.FLOAT})
        with pytest.raises(FormatError, match=r"Did you mean 'pair'\?") as refused:
            loader_of(NumberProvider(10), steps=[step])
        assert refused.value.__cause__ is None

    def test_a_definition_is_refused_with_what_to_write_instead(self) -> None:
        definition = PipelineDefinition(SamplerInputCallable(NumberProvider(10), SequentialSampler(10)), [DOUBLED])
        written = r"DataLoader\(definition\.data_input, steps=\[\.\.\.\], run='graph'\)"
        with pytest.raises(SettingError, match=f"gave to the PipelineDefinition: {written}"):
            loader_of(definition, steps=[DOUBLED])
        batch = next(iter(loader_of(definition.data_input, steps=[DOUBLED], run="graph")))
        assert batch["pair"].tolist() == [[2 * i, 2 * i + 2] for i in range(4)]


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

    def test_a_data_set_without_samples_is_still_one(self) -> None:
        assert IndexProvider(0)
        assert len(IndexProvider(0)) == 0

    @pytest.mark.parametrize("last_batch", ["drop", "pad", "partial", "wrap"])
    @pytest.mark.parametrize("shard", [0, 1])
    def test_the_samplers_tell_what_the_loader_delivers(self, last_batch: Any, shard: int) -> None:
        loader = loader_of(IndexProvider(11), 2, shuffle=True, last_batch=last_batch, shard=(shard, 2))
        assert loader.drop_last is loader.batch_sampler.drop_last is (last_batch == "drop")
        for _ in range(2):
            told, count = [*loader.batch_sampler], len(loader.sampler)
            flat = [*loader.sampler]
            assert indices(loader) == told
            assert flat == [index for batch in told for index in batch]
            assert count == len(flat)
            assert len(loader) == len(loader.batch_sampler) == len(told)

    @pytest.mark.parametrize("sampler", [SequenceSampler(2, [3, 4, 2, 3], 0), EndlessSampler(12, 2)])
    def test_the_samplers_tell_the_next_steps_of_an_endless_order(self, sampler: Any) -> None:
        loader = loader_of(IndexProvider(12), None, sampler=sampler, steps_per_epoch=3)
        for _ in range(2):
            told = [*loader.batch_sampler]
            assert [len(batch) for batch in told] == [2, 2, 2]
            assert [*loader.sampler] == [index for batch in told for index in batch]
            assert (len(loader.batch_sampler), len(loader.sampler)) == (3, 6)
            assert indices(loader) == told
        assert indices(loader) != told

    def test_a_sampler_of_an_iterable_has_no_epochs_to_set(self) -> None:
        loader = loader_of(OwnIterable(), None)
        assert not hasattr(loader.sampler, "set_epoch")
        with pytest.raises(NotSupportedError, match="is known only when they come"):
            next(iter(loader.sampler))

    def test_the_end_is_told_with_the_last_batch(self) -> None:
        loader = loader_of()
        assert not loader.end_of_dataloader
        for _ in range(2):
            assert [loader.end_of_dataloader for _ in loader] == [False, False, True]
            assert not loader.end_of_dataloader
        for _ in loader:
            break
        assert not loader.end_of_dataloader


class OwnIterable:
    """Endless batches, without a sampler."""

    batch_size = 4
    has_epochs = False
    length = None
    num_batches_per_epoch = None

    def __init__(self) -> None:
        self.used_sample_data_structure = IndexProvider(4).sample_data_structure

    def __iter__(self) -> OwnIterable:
        return self

    def __next__(self) -> Any:
        raise StopIteration


class TestTorchDataLoader:
    def test_counts_as_one_where_it_is_asked_to(self) -> None:
        loader = loader_of(shuffle=True, as_torch_data_loader=True)
        assert isinstance(loader, torch.utils.data.DataLoader)
        assert isinstance(loader, DataLoader)
        assert not isinstance(loader_of(), torch.utils.data.DataLoader)
        assert type(loader) is type(loader_of(as_torch_data_loader=True))

    def test_attributes_can_be_added(self) -> None:
        loader: Any = loader_of(as_torch_data_loader=True)
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


class TestTrainers:
    def test_accelerate_ends_an_accumulation_with_the_epoch(self) -> None:
        from accelerate import Accelerator

        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer = accelerator.prepare(model, optimizer)
        loader = loader_of(output_type="torch")  # three batches
        for _ in range(2):
            has_stepped = []
            for batch in loader:
                with accelerator.accumulate(model):
                    accelerator.backward(model(batch["index"][:, None].float()).mean())
                    optimizer.step()
                    optimizer.zero_grad()
                has_stepped.append(accelerator.sync_gradients)
            assert has_stepped == [False, True, True]
            assert not accelerator.gradient_state.in_dataloader


def test_the_plan_is_that_of_the_pipeline() -> None:
    with DataLoader(IndexProvider(4), 2, num_workers=0) as loader:
        assert loader.plan == "nothing is folded\npacked: 1 of 1 fields; other outputs of workers: 0"


def test_an_error_of_a_blueprint_is_not_taken_for_a_missing_one() -> None:
    class Misspelled(IndexProvider):
        @property
        def sample_data_structure(self) -> Any:
            return DT.NO_SUCH_TYPE

    with pytest.raises(AttributeError, match="NO_SUCH_TYPE"):
        loader_of(Misspelled(10))
