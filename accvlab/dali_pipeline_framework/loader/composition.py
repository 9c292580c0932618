# SPDX-License-Identifier: Apache-2.0
"""The pipeline definition of a loader, made of a data provider, an input, or a definition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from typing import Any, cast

from ..checks import shown
from ..errors import SettingError
from ..pipeline.pipeline import PipelineDefinition
from ..processing_steps.pipeline_step_base import PipelineStepBase, RunWhere
from ..providers.data_provider import DataProvider, check_number_of_samples
from ..sampling.random_access_sampler import SamplerBase
from ..sampling.samplers import SequentialSampler, ShuffledSampler
from ..sources.given_order import GivenOrder, GivenOrderSampler
from ..sources.sampler_inputs import SamplerInputCallable

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
    "timeout": "faults=FaultPolicy(blocked_after=...)",
    "transforms": "steps",
    "persistent_workers": None,  # they always are
}


def composed_definition(
    source: Any,
    steps: Sequence[PipelineStepBase | None] | None,
    shuffle: bool | None,
    sampler: SamplerBase | GivenOrder | None,
    seed: int,
    run: RunWhere | None = None,
) -> PipelineDefinition:
    """Make the definition of a loader.

    Args:
        source: A data provider, an input, or a definition.
        steps: Processing steps; none for a definition, which has its own.
        shuffle: Whether to shuffle the samples of a data provider.
        sampler: The order of the samples of a data provider: a sampler, a function of the epoch, or a sampler of
            PyTorch.
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
    provider: DataProvider, shuffle: bool | None, sampler: SamplerBase | GivenOrder | None, seed: int
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
    if isinstance(sampler, SamplerBase | type):
        return SamplerInputCallable(provider, cast(SamplerBase, sampler))
    given = GivenOrderSampler(sampler, check_number_of_samples(provider))
    return SamplerInputCallable(provider, given, shard_id=given.shard[0], num_shards=given.shard[1])


def _require_input(source: Any) -> None:
    if isinstance(source, type):
        raise SettingError(f"The first argument must be an object, got the class {source.__name__}: create one.")
    if not hasattr(source, "used_sample_data_structure"):
        raise SettingError(
            f"The first argument must be a DataProvider (or an input, such as a CallableBase or a native reader, "
            f"or a PipelineDefinition), got {type(source).__name__}. {_advice_for(source)}"
        )


def _advice_for(source: object) -> str:
    if hasattr(source, "collate_fn") and hasattr(source, "dataset"):
        return "In place of a loader of PyTorch, give its data set: TorchDatasetProvider(loader.dataset)."
    if (
        hasattr(source, "__getitem__")
        and isinstance(source, Sized)
        and not isinstance(source, str | bytes | Mapping)
    ):
        return "A map-style data set, or a sequence of items, is given as TorchDatasetProvider(dataset)."
    return (
        "Describe your data set by a class derived from DataProvider: "
        "DataLoader(MyProvider(), batch_size=4, steps=[...], shuffle=True)."
    )
