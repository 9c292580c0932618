"""What the constructor of a loader refuses: one table, each with the words that its error must have."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from support.arrays import DT
from support.inputs import CountedCallable, NumberCallable, NumberIterable
from support.loaders import LENGTHS
from support.providers import IndexProvider
from support.refusals import assert_refused

from accvlab.dali_pipeline_framework import (
    DataLoader,
    LambdaStep,
    SamplerInputCallable,
    SequenceSampler,
    SequentialSampler,
    ShuffledSampler,
    StreamingSequenceSampler,
)

STEP = LambdaStep(abs, input_names="index", output_types={"index": DT.INT64})
INPUT = SamplerInputCallable(IndexProvider(22), SequentialSampler(22))
COUNTED = CountedCallable()  # it has a batch size


class Endless(torch.utils.data.IterableDataset[int]):
    def __iter__(self) -> Any:
        return itertools.count()


class OwnLoading(SamplerInputCallable):
    """Loads in a way of its own."""

    def __call__(self, sample_info: Any) -> Any:
        return super().__call__(sample_info)


# Per argument: values, and words of the message; ``...`` stands for others.
OF_ARGUMENTS: dict[str, list[tuple[Any, str]]] = {
    "source": [
        (3, "The first argument must be a DataProvider (or an input, such as a CallableBase), got int."),
        (IndexProvider, "must be an object, got the class IndexProvider: create one"),
        ([1, 2], "must be a DataProvider ..., got list...TorchDatasetProvider(dataset)"),
        (Endless(), "got Endless. Describe your data set"),
        (torch.utils.data.DataLoader([1, 2]), "TorchDatasetProvider(loader.dataset)"),
        (IndexProvider(0), "The data set is empty"),
    ],
    "batch_size": [
        *((value, "`batch_size` must be a whole number") for value in (0, -1, 1.5, "4", True)),
        (None, "`batch_size` must be given: neither the input nor its sampler"),
    ],
    "num_workers": [
        *((value, "`num_workers` must be a whole number of at least 0") for value in (-1, 1.5, True, "2")),
        ("auto", "at least 0, or None for as many as this rank has usable cores, at most 8; got 'auto'."),
    ],
    "num_threads": [(value, "`num_threads` must be a whole number") for value in (0, -1, 1.5)],
    "seed": [
        *((value, "`seed` must be a whole number") for value in (-1, 1.5, None)),
        (2**63, "`seed` must be less than 2**63"),
    ],
    "steps_per_epoch": [
        *((value, "`steps_per_epoch` must be a whole number") for value in (0, -1, 1.5)),
        (3, "`steps_per_epoch` is for endless samplers and inputs; this one has an end"),
    ],
    "sampler": [
        (SequentialSampler, "Create an object of the class"),
        (SequentialSampler(23), "set up for 23 samples, but the data set has only 22"),
        (SequenceSampler(2, LENGTHS, 1), "The sampler was created for 2 samples per batch"),
    ],
    "last_batch": [("keep", "`last_batch` must be 'drop', 'pad'")],
    "context_name": [
        ("", "`context_name` must be a text"),
        ("index", "`context_name` must be a name that is free"),
    ],
    "start_method": [("thread", "`start_method` must be 'spawn', 'fork' or 'forkserver', got 'thread'")],
    "output_type": [("tensorflow", "`output_type` must be one of 'numpy', 'torch', got 'tensorflow'")],
    "ragged": [
        ("pad", "`ragged` must be 'raise' or 'list', or a dict of these by field, got"),
        ({"boxes": "list"}, "`ragged` names 'boxes', but the output has no such field"),
        ({"idnex": "list"}, "no such field...Did you mean 'index'?"),
    ],
    "device_id": [(-2, "`device_id` must be None (the CPU) or the number of a GPU, got -2")],
    "shard": [
        (3, "`shard` must be a Shard, a pair (shard id, number of shards), or the name"),
        ((0, 1, 2), "`shard` must be a Shard, a pair"),
        ((2, 2), "`shard_id` must be in [0, 1]"),
        ("auto8", "`shard` must be one of 'auto', 'accelerate', ... got 'auto8'. Did you mean 'auto'?"),
        ("torchrun", "`shard='torchrun'` is requested, but RANK and WORLD_SIZE are not set...`shard='auto'`."),
    ],
    "pipeline_arguments": [
        ({"batch_size": 4}, "`pipeline_arguments` has `batch_size`, which is an argument of the loader itself"),
        ({"num_threads": 2}, "`pipeline_arguments` has `num_threads`, which is an argument of the loader itself"),
        ({"prefetch_queue_dept": 2}, "Did you mean 'prefetch_queue_depth'?"),
        ({"debug": True}, "cannot use DALI's debug mode"),
    ],
    "steps": [
        (STEP, "must be a sequence of steps"),
        (type(STEP), "must be a sequence of steps, got <class ...Step'> (a class"),
        (3, "must be a sequence of steps, got 3"),
        ([abs], "Step 0 must be ... (a function: MapStep or LambdaStep makes"),
    ],
    "faults": [
        ("skp", "`faults` must be one of 'raise', 'skip', 'replace', got 'skp'"),
        (3, "`faults` must be a FaultPolicy, or"),
    ],
    "ledger": [
        (7, "`ledger` must be"),
        (Path(__file__), "`ledger` must be a folder...got the file '...test_refusals_of_loaders.py'"),
    ],
    "worker_init_fn": [(3, "`worker_init_fn` must be a function of the worker number, got 3")],
    **{
        name: [(value, f"`{name}` must be True or False, got {value!r}")]
        for name, value in {
            "shuffle": 1,
            "pin_memory": 1,
            "stack_arrays": "no",
            "as_torch_data_loader": "no",
        }.items()
    },
    "dataset": [(1, "`dataset` is not an argument of DataLoader.")],
    "time": [(3, "`time` is not an argument of DataLoader.")],
    "num_worker": [(1, "`num_worker` is not an argument of DataLoader. Did you mean 'num_workers'?")],
}
OF_SAMPLER = "The sampler was created for 4 samples per batch (on this shard). Leave out `batch_size`, got {}."
TOGETHER: list[tuple[dict[str, Any], str]] = [
    ({"batch_size": 23, "sampler": ShuffledSampler(22)}, "An epoch must have at least one batch"),
    ({"shuffle": True, "sampler": SequentialSampler(22)}, "`shuffle` and `sampler` exclude each other"),
    ({"pin_memory": True, "output_type": "numpy"}, "pins tensors of PyTorch, got output_type='numpy'"),
    ({"faults": "skip", "sampler": ShuffledSampler(22, last_batch="drop")}, "last_batch='drop' does"),
    ({"faults": "skip", "sampler": StreamingSequenceSampler(LENGTHS)}, "SequenceSampler delivers sequences"),
    ({"batch_size": 4, "sampler": ShuffledSampler(22, 4)}, OF_SAMPLER.format(4)),
    ({"batch_size": 8, "sampler": ShuffledSampler(22, 8), "shard": (1, 2)}, OF_SAMPLER.format(8)),
    ({"batch_size": None, "sampler": ShuffledSampler(22, 5), "shard": (0, 2)}, "batches of 5 for 2 shard(s)"),
]
# Inputs, which have an order, shards and a batch size already.
OF_INPUTS: list[tuple[Any, dict[str, Any], str]] = [
    *(
        (INPUT, {name: value}, f"`{name}` is for data providers; SamplerInputCallable is an input")
        for name, value in {
            "shuffle": False,
            "sampler": SequentialSampler(22),
            "shard": "auto",
            "last_batch": "pad",
            "context_name": "at",
        }.items()
    ),
    (NumberIterable(), {"last_batch": "pad"}, "`last_batch` is for data providers; NumberIterable is an input"),
    *((source, {"steps_per_epoch": 3}, "this one has an end") for source in (NumberCallable(), NumberIterable())),
    *((COUNTED, {"batch_size": size}, "The input was created for 4 samples per batch") for size in (3, 4)),
    (NumberCallable(), {"batch_size": None}, "neither the input nor its sampler has one"),
    (NumberCallable(), {"faults": "replace"}, "needs to know which samples form a batch...got NumberCallable"),
    (OwnLoading(IndexProvider(8), SequentialSampler(8)), {"faults": "skip"}, "OwnLoading loads samples in a way"),
]


def loader_with(**arguments: Any) -> DataLoader:
    return DataLoader(**{"source": IndexProvider(22), "batch_size": 4, "num_workers": 0, **arguments})


@pytest.mark.parametrize(
    ("name", "value", "words"), [(name, *row) for name, rows in OF_ARGUMENTS.items() for row in rows]
)
def test_a_wrong_value_is_refused(name: str, value: Any, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(variable, raising=False)
    assert_refused(lambda: loader_with(**{name: value}), words)


@pytest.mark.parametrize(("arguments", "words"), TOGETHER)
def test_what_does_not_go_together_is_refused(arguments: dict[str, Any], words: str) -> None:
    assert_refused(lambda: loader_with(**arguments), words)


@pytest.mark.parametrize(("source", "arguments", "words"), OF_INPUTS)
def test_an_input_is_refused_what_it_has_already(source: Any, arguments: dict[str, Any], words: str) -> None:
    size = None if getattr(source, "batch_size", None) else 4
    assert_refused(lambda: loader_with(**{"source": source, "batch_size": size, **arguments}), words)
