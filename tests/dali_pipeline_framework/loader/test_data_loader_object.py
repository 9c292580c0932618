"""The iterator that is presented as a `torch.utils.data.DataLoader`."""

from __future__ import annotations

from typing import Any

from support.pipelines import indices, shuffled
from support.providers import IndexProvider
from support.refusals import assert_refused
from torch.utils.data import DataLoader

from accvlab.dali_pipeline_framework.pipeline import DALIStructuredOutputIterator, PipelineDefinition

# What DataLoader documents or keeps, by whether it tells something about the pipeline here.
DESCRIBED = {
    "batch_size": 4,
    "num_workers": 2,
    "prefetch_factor": 3,
    "sampler": None,
    "batch_sampler": None,
    "generator": None,
    "collate_fn": None,
    "worker_init_fn": None,
    "multiprocessing_context": None,
    "pin_memory": False,
    "pin_memory_device": "",
    "drop_last": True,
    "timeout": 0,
    "persistent_workers": True,
}
MASKED = ["_get_iterator", "_auto_collation", "_index_sampler", "check_worker_number_rationality"]


def make_loader(num_samples: int = 8, provider: Any = None, num_workers: int = 2, **arguments: Any) -> Any:
    definition = PipelineDefinition(shuffled(provider or IndexProvider(num_samples)))
    pipeline = definition.get_dali_pipeline(num_threads=1, py_num_workers=num_workers, prefetch_queue_depth=3)
    blueprint = definition.check_and_get_output_data_structure()
    return DALIStructuredOutputIterator.CreateAsDataLoaderObject(None, pipeline, blueprint, **arguments)


def test_is_an_instance_of_both_classes() -> None:
    with make_loader() as loader:
        assert isinstance(loader, DataLoader)
        assert isinstance(loader, DALIStructuredOutputIterator)
        assert type(loader).__name__ == "DALIStructuredOutputIteratorAsDataLoader"
        assert type(loader).__name__ in repr(loader)


def test_is_an_instance_of_the_subclass_that_it_is_made_from() -> None:
    class Loader(DALIStructuredOutputIterator):
        def num_batches_times_two(self) -> int:
            return 2 * len(self)

    pipeline = PipelineDefinition(shuffled(IndexProvider(8))).get_dali_pipeline(num_threads=1)
    with Loader.CreateAsDataLoaderObject(None, pipeline) as loader:
        assert isinstance(loader, Loader)
        assert isinstance(loader, DataLoader)
        assert loader.num_batches_times_two() == 4


def test_epochs_breaks_and_length() -> None:
    with make_loader(16) as loader:
        assert len(loader) == 4
        assert indices(loader) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]]
        assert indices(loader, 1) == [[0, 1, 2, 3]]
        assert indices(loader, 2) == [[0, 1, 2, 3], [4, 5, 6, 7]]
        assert len(iter(loader)) == 4


def test_takes_the_arguments_of_the_iterator() -> None:
    dataset = object()
    arguments = {
        "contained_dataset": dataset,
        "post_process_func": lambda batch: batch["index"].tolist(),
        "output_type": "numpy",
    }
    with make_loader(**arguments) as loader:
        assert loader.dataset is dataset
        assert [*loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    with make_loader() as loader:
        assert loader.dataset is loader


def test_tells_about_the_pipeline() -> None:
    with make_loader() as loader:
        assert {name: getattr(loader, name) for name in DESCRIBED} == DESCRIBED
        assert all(hasattr(loader, name) for name in DESCRIBED)


def test_names_every_public_attribute_of_a_data_loader() -> None:
    real = DataLoader([1, 2])
    public = {name for name in vars(real) if not name.startswith("_")} - {"dataset"}
    with make_loader() as loader:
        assert public == {name for name in public if hasattr(loader, name)}


def test_what_works_only_on_a_real_data_loader_raises() -> None:
    with make_loader() as loader:
        for name in MASKED:
            assert hasattr(DataLoader, name)
            message = f"`{name}` of DataLoader is not available: the batches come from a DALI pipeline"
            for error in (AttributeError, RuntimeError):
                assert_refused(lambda name=name: getattr(loader, name), message, error)
            assert not hasattr(loader, name)
            assert getattr(loader, name, 3) == 3


def test_nothing_of_the_data_loader_s_lineage_is_left_unmasked() -> None:
    own = {name for base in DALIStructuredOutputIterator.__mro__ for name in vars(base)}
    with make_loader() as loader:
        leaking = []
        for base in DataLoader.__mro__[:-1]:
            for name in vars(base):
                found = type(loader).__mro__[0].__dict__.get(name)
                if name not in own and found is None and not name.startswith("__"):
                    leaking.append(name)
    assert leaking == []


def test_an_unknown_attribute_is_an_ordinary_attribute_error() -> None:
    with make_loader() as loader:
        assert_refused(lambda: loader.batchsize, "has no attribute 'batchsize'", AttributeError)
        assert not hasattr(loader, "batchsize")


class TestSettingAttributes:
    def test_new_ones(self) -> None:
        with make_loader() as loader:
            loader.my_note = [1]
            assert loader.my_note == [1]
            del loader.my_note
            assert not hasattr(loader, "my_note")

    def test_ones_that_a_data_loader_has(self) -> None:
        with make_loader(num_workers=0) as loader:
            for name in [*DESCRIBED, *MASKED]:
                setattr(loader, name, 7)
                assert getattr(loader, name) == 7
            assert indices(loader) == [[0, 1, 2, 3], [4, 5, 6, 7]]  # they have no influence

    def test_one_object_s_do_not_show_in_another(self) -> None:
        with make_loader() as first, make_loader() as second:
            first.my_note = 1
            assert not hasattr(second, "my_note")
