# SPDX-License-Identifier: Apache-2.0
"""The pipeline definition of a loader, made of a data provider, an input, or a definition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

from ..checks import shown
from ..errors import SettingError
from ..pipeline.pipeline import PipelineDefinition
from ..processing_steps.pipeline_step_base import PipelineStepBase, RunWhere
from ..providers.data_provider import DataProvider
from ..providers.data_set_checks import check_number_of_samples
from ..sampling.sampler_base import SamplerBase
from ..sampling.shuffled_sampler import SequentialSampler, ShuffledSampler
from ..sources.sampler_input_callable import SamplerInputCallable

# Arguments of PyTorch's loader and of DALI's readers, and those that take their place.
LOADER_COUNTERPARTS = {
    "dataset": "source",
    "drop_last": "last_batch",
    "pad_last_batch": "last_batch",
    "random_shuffle": "shuffle",
    "batch_sampler": "sampler",
    "shard_id": "shard",
    "num_shards": "shard",
    "collate_fn": "post_process_func",
    "prefetch_factor": "pipeline_arguments",
    "multiprocessing_context": "start_method",
    "generator": "seed",
    "transforms": "steps",
    "persistent_workers": None,  # they always are
}

# PyTorch's samplers, and what takes their place.
_COUNTERPARTS = {
    "RandomSampler": "shuffle=True",
    "SequentialSampler": "shuffle=False",
    "DistributedSampler": "shuffle=True and shard='auto'",
    "WeightedRandomSampler": "sampler=WeightedSampler(weights)",
    "BatchSampler": "batch_size",
}


def composed_definition(
    source: Any,
    steps: Sequence[PipelineStepBase | None] | None,
    shuffle: bool | None,
    sampler: SamplerBase | None,
    seed: int,
    run: RunWhere | None = None,
) -> PipelineDefinition:
    """Make the definition of a loader.

    Args:
        source: A data provider, an input, or a definition.
        steps: Processing steps; none for a definition, which has its own.
        shuffle: Whether to shuffle the samples of a data provider.
        sampler: The order of the samples of a data provider.
        seed: Seed of the shuffled order.
        run: Where steps run. None: as a definition says, otherwise ``"auto"``.

    Raises:
        SettingError: An argument does not go with the source, or is of the wrong type.
    """
    if shuffle is not None and not isinstance(shuffle, bool):
        raise SettingError(f"`shuffle` must be True or False, got {shown(shuffle)}.")
    if run is None and not isinstance(source, PipelineDefinition):
        run = "auto"
    if isinstance(source, DataProvider):
        return PipelineDefinition(_ordered(source, shuffle, sampler, seed), steps, run=cast(RunWhere, run))
    is_definition = isinstance(source, PipelineDefinition)
    kind = "a PipelineDefinition" if is_definition else type(source).__name__
    for name, value in (("shuffle", shuffle), ("sampler", sampler)):
        if value is not None:
            raise SettingError(
                f"`{name}` is for data providers; {kind} has an order of its own. Leave it out, or give the "
                f"loader the data provider: DataLoader(provider, batch_size=..., steps=[...], {name}=...)."
            )
    if not is_definition:
        _require_input(source)
        return PipelineDefinition(source, steps, run=cast(RunWhere, run))
    if steps is not None:
        raise SettingError(
            "`steps` does not go with a PipelineDefinition, which has steps already: give them to the definition, "
            "or give the loader its input: DataLoader(definition.data_input, batch_size=..., steps=[...])."
        )
    definition: PipelineDefinition = source
    return definition if run is None else definition.with_run(run)


def _ordered(
    provider: DataProvider, shuffle: bool | None, sampler: SamplerBase | None, seed: int
) -> SamplerInputCallable:
    if sampler is None:
        num_samples = check_number_of_samples(provider)
        if shuffle:
            return SamplerInputCallable(provider, ShuffledSampler(num_samples, seed=seed))
        return SamplerInputCallable(provider, SequentialSampler(num_samples))
    if shuffle is not None:
        raise SettingError(
            "`shuffle` and `sampler` exclude each other: a sampler decides by itself whether it shuffles."
        )
    if not isinstance(sampler, SamplerBase) and not isinstance(sampler, type) and isinstance(sampler, Iterable):
        name = type(sampler).__name__
        hint = "see ShuffledSampler and its kin, PlayedBatchSampler"
        if name in _COUNTERPARTS:
            hint = f"use {_COUNTERPARTS[name]} (or for the same order same_order_as(the loader of PyTorch))"
        raise SettingError(
            f"`sampler` must be a sampler of this package, got {name}. An iterable of indices cannot tell which "
            f"samples stand at a position, which the workers and a continued run need: {hint}, or derive a "
            f"sampler of your own from RandomAccessSampler."
        )
    return SamplerInputCallable(provider, sampler)


def _require_input(source: Any) -> None:
    if isinstance(source, type):
        raise SettingError(f"The first argument must be an object, got the class {source.__name__}: create one.")
    if not hasattr(source, "used_sample_data_structure"):
        raise SettingError(
            f"The first argument must be a DataProvider (or an input, such as a CallableBase or a native reader, "
            f"or a PipelineDefinition), got {type(source).__name__}. Describe your data set by a class derived "
            f"from DataProvider: DataLoader(MyProvider(), batch_size=4, steps=[...], shuffle=True)."
        )
