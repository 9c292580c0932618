"""What the constructor of a loader refuses: one table, each with the words that its error must have."""

from __future__ import annotations

import inspect
import itertools
import re
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


class Endless(torch.utils.data.IterableDataset[int]):
    def __iter__(self) -> Any:
        return itertools.count()


class OwnLoading(SamplerInputCallable):
    """Loads in a way of its own."""

    def __call__(self, sample_info: Any) -> Any:
        return super().__call__(sample_info)


WHOLE_NUMBERS = "batch_size", "num_workers", "num_threads", "seed", "steps_per_epoch"
FLAGS = "shuffle", "pin_memory", "stack_arrays", "as_torch_data_loader"
OF_LOADER = "`pipeline_arguments` has `{0}`, which is an argument of the loader itself"
OF_SAMPLER = "The sampler was created for 4 samples per batch (on this shard). Leave out `batch_size`, got {}."
# Arguments, and words of the message; ``...`` stands for others.
REFUSED: list[tuple[dict[str, Any], str]] = [
    *(({name: value}, f"`{name}` must be a whole number") for name in WHOLE_NUMBERS for value in (-1, 1.5, True)),
    *(({name: "no"}, f"`{name}` must be True or False, got 'no'") for name in FLAGS),
    ({"source": 3}, "The first argument must be a DataProvider (or an input, such as a CallableBase), got int."),
    ({"source": IndexProvider}, "must be an object, got the class IndexProvider: create one"),
    ({"source": [1, 2]}, "must be a DataProvider ..., got list...TorchDatasetProvider(dataset)"),
    ({"source": Endless()}, "got Endless. Describe your data set"),
    ({"source": torch.utils.data.DataLoader([1, 2])}, "TorchDatasetProvider(loader.dataset)"),
    ({"source": IndexProvider(0)}, "The data set is empty"),
    ({"batch_size": None}, "`batch_size` must be given: neither the input nor its sampler"),
    ({"num_workers": "auto"}, "or None for as many as this rank has usable cores, at most 8; got 'auto'."),
    ({"seed": 2**63}, "`seed` must be less than 2**63"),
    ({"steps_per_epoch": 3}, "`steps_per_epoch` is for endless samplers and inputs; this one has an end"),
    ({"sampler": SequentialSampler}, "Create an object of the class"),
    ({"sampler": SequentialSampler(23)}, "set up for 23 samples, but the data set has only 22"),
    ({"sampler": SequenceSampler(2, LENGTHS, 1)}, "The sampler was created for 2 samples per batch"),
    ({"last_batch": "keep"}, "`last_batch` must be 'drop', 'pad'"),
    ({"context_name": ""}, "`context_name` must be a text"),
    ({"context_name": "index"}, "`context_name` must be a name that is free"),
    ({"start_method": "thread"}, "`start_method` must be 'spawn', 'fork' or 'forkserver', got 'thread'"),
    ({"output_type": "tensorflow"}, "`output_type` must be one of 'numpy', 'torch', got 'tensorflow'"),
    ({"ragged": "pad"}, "`ragged` must be 'raise' or 'list', or a dict of these by field, got"),
    ({"ragged": {"boxes": "list"}}, "`ragged` names 'boxes', but the output has no such field"),
    ({"ragged": {"idnex": "list"}}, "no such field...Did you mean 'index'?"),
    ({"device_id": -2}, "`device_id` must be None (the CPU) or the number of a GPU, got -2"),
    ({"shard": 3}, "`shard` must be a Shard, a pair (shard id, number of shards), or the name"),
    ({"shard": (0, 1, 2)}, "`shard` must be a Shard, a pair"),
    ({"shard": (2, 2)}, "`shard_id` must be in [0, 1]"),
    ({"shard": "auto8"}, "`shard` must be one of 'auto', 'accelerate', ... got 'auto8'. Did you mean 'auto'?"),
    ({"shard": "torchrun"}, "is requested, but RANK and WORLD_SIZE are not set...`shard='auto'`."),
    *(({"pipeline_arguments": {name: 4}}, OF_LOADER.format(name)) for name in ("batch_size", "num_threads")),
    ({"pipeline_arguments": {"prefetch_queue_dept": 2}}, "Did you mean 'prefetch_queue_depth'?"),
    ({"pipeline_arguments": {"debug": True}}, "cannot use DALI's debug mode"),
    ({"steps": STEP}, "must be a sequence of steps"),
    ({"steps": type(STEP)}, "must be a sequence of steps, got <class ...Step'> (a class"),
    ({"steps": 3}, "must be a sequence of steps, got 3"),
    ({"steps": [abs]}, "Step 0 must be ... (a function: MapStep or LambdaStep makes"),
    ({"faults": "skp"}, "`faults` must be one of 'raise', 'skip', 'replace', got 'skp'"),
    ({"faults": 3}, "`faults` must be a FaultPolicy, or"),
    ({"ledger": 7}, "`ledger` must be"),
    ({"ledger": Path(__file__)}, "`ledger` must be a folder...got the file '...test_refusals_of_loaders.py'"),
    ({"worker_init_fn": 3}, "`worker_init_fn` must be a function of the worker number, got 3"),
    ({"dataset": 1}, "`dataset` is not an argument of DataLoader. Pass the data provider first"),
    ({"drop_last": True}, "`drop_last` is not an argument of DataLoader. Pass `last_batch`: 'drop'"),
    ({"num_worker": 1}, "`num_worker` is not an argument of DataLoader. Did you mean 'num_workers'?"),
    # What does not go together.
    ({"batch_size": 23, "sampler": ShuffledSampler(22)}, "An epoch must have at least one batch"),
    ({"shuffle": True, "sampler": SequentialSampler(22)}, "`shuffle` and `sampler` exclude each other"),
    ({"pin_memory": True, "output_type": "numpy"}, "pins tensors of PyTorch, got output_type='numpy'"),
    ({"faults": "skip", "sampler": ShuffledSampler(22, last_batch="drop")}, "last_batch='drop' does"),
    ({"faults": "skip", "sampler": StreamingSequenceSampler(LENGTHS)}, "SequenceSampler delivers sequences"),
    ({"batch_size": 4, "sampler": ShuffledSampler(22, 4)}, OF_SAMPLER.format(4)),
    ({"batch_size": 8, "sampler": ShuffledSampler(22, 8), "shard": (1, 2)}, OF_SAMPLER.format(8)),
    ({"batch_size": None, "sampler": ShuffledSampler(22, 5), "shard": (0, 2)}, "batches of 5 for 2 shard(s)"),
]
OF_PROVIDERS: dict[str, Any] = {
    "shuffle": False,
    "sampler": SequentialSampler(22),
    "shard": "auto",
    "last_batch": "pad",
    "context_name": "at",
}
# Inputs, which have an order, shards and a batch size already.
REFUSED += [
    *(
        ({"source": INPUT, name: value}, f"`{name}` is for data providers; SamplerInputCallable is an input")
        for name, value in OF_PROVIDERS.items()
    ),
    ({"source": NumberIterable(), "last_batch": "pad"}, "for data providers; NumberIterable is an input"),
    *(
        ({"source": source, "steps_per_epoch": 3}, "this one has an end")
        for source in (NumberCallable(), NumberIterable())
    ),
    ({"source": CountedCallable(), "batch_size": 4}, "The input was created for 4 samples per batch"),
    ({"source": NumberCallable(), "batch_size": None}, "neither the input nor its sampler has one"),
    ({"source": NumberCallable(), "faults": "replace"}, "which samples form a batch...got NumberCallable"),
    (
        {"source": OwnLoading(IndexProvider(8), SequentialSampler(8)), "faults": "skip"},
        "OwnLoading loads samples in a way",
    ),
]


@pytest.mark.parametrize(("arguments", "words"), REFUSED)
def test_what_a_loader_cannot_use_is_refused(
    arguments: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(variable, raising=False)
    given = {"source": IndexProvider(22), "batch_size": 4, "num_workers": 0, **arguments}
    assert_refused(lambda: DataLoader(**given), words)


def test_for_each_argument_of_pytorch_the_error_says_what_to_do() -> None:
    own = inspect.signature(DataLoader).parameters
    of_torch = inspect.signature(torch.utils.data.DataLoader.__init__).parameters.keys() - {"self"}
    assert of_torch - own.keys() - DataLoader.arguments_elsewhere.keys() == set()
    for name, advice in DataLoader.arguments_elsewhere.items():
        assert name not in own
        assert {*re.findall("`([a-z_]+)", advice)} <= own.keys()
