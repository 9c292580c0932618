"""The iterator that is presented as a `torch.utils.data.DataLoader`."""

from __future__ import annotations

from typing import Any

import pytest
from support.pipelines import shuffled
from support.providers import IndexProvider
from support.refusals import assert_refused
from torch.utils.data import DataLoader

from accvlab.dali_pipeline_framework.pipeline import DALIStructuredOutputIterator, PipelineDefinition

# What DataLoader documents or keeps; all but these tell nothing about the pipeline here.
DESCRIBED = {
    "batch_size": 4,
    "num_workers": 2,
    "prefetch_factor": 3,
    "drop_last": True,
    "persistent_workers": True,
}
DESCRIBED |= {"pin_memory": False, "pin_memory_device": "", "timeout": 0}
NOTHING = "sampler", "batch_sampler", "generator", "collate_fn", "worker_init_fn", "multiprocessing_context"
DESCRIBED |= dict.fromkeys(NOTHING)
MASKED = ["_get_iterator", "_auto_collation", "_index_sampler", "check_worker_number_rationality"]


class Loader(DALIStructuredOutputIterator):
    def num_batches_times_two(self) -> int:
        return 2 * len(self)


def make_loader(of_class: Any = DALIStructuredOutputIterator, num_workers: int = 2, **arguments: Any) -> Any:
    definition = PipelineDefinition(shuffled(IndexProvider(8)))
    pipeline = definition.get_dali_pipeline(num_threads=1, py_num_workers=num_workers, prefetch_queue_depth=3)
    blueprint = definition.check_and_get_output_data_structure()
    return of_class.CreateAsDataLoaderObject(None, pipeline, blueprint, **arguments)


@pytest.mark.parametrize("of_class", [DALIStructuredOutputIterator, Loader])
def test_is_an_instance_of_both_classes(of_class: Any) -> None:
    with make_loader(of_class) as loader:
        assert isinstance(loader, DataLoader)
        assert isinstance(loader, of_class)
        assert type(loader).__name__ == f"{of_class.__name__}AsDataLoader"
        assert type(loader).__name__ in repr(loader)
        assert of_class is not Loader or loader.num_batches_times_two() == 4


def test_delivers_and_takes_the_arguments_of_the_iterator() -> None:
    dataset = object()
    arguments = {"contained_dataset": dataset, "output_type": "numpy"}
    with make_loader(post_process_func=lambda batch: batch["index"].tolist(), **arguments) as loader:
        assert loader.dataset is dataset
        assert [*loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        assert next(iter(loader)) == [0, 1, 2, 3]  # a break
        assert [*loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        assert len(loader) == len(iter(loader)) == 2


def test_has_every_public_attribute_of_a_data_loader() -> None:
    public = {name for name in vars(DataLoader([1, 2])) if not name.startswith("_")}
    with make_loader() as loader:
        assert loader.dataset is loader
        assert {name: getattr(loader, name) for name in DESCRIBED} == DESCRIBED
        assert public == {name for name in public if hasattr(loader, name)}


def test_what_works_only_on_a_real_data_loader_raises() -> None:
    with make_loader() as loader:
        for name in MASKED:
            assert hasattr(DataLoader, name)
            message = f"`{name}` of DataLoader is not available: the batches come from a DALI pipeline"
            for error in (AttributeError, RuntimeError):
                assert_refused(lambda name=name: getattr(loader, name), message, error)
            assert getattr(loader, name, 3) == 3
        assert_refused(lambda: loader.batchsize, "has no attribute 'batchsize'", AttributeError)
