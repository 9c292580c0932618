# SPDX-License-Identifier: Apache-2.0
"""The input of a loader: of a data provider and its order, or one that the user gives."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping, Sized
from typing import Any, cast

import attrs

from ..checks import MOST_IN_BATCH, file_path, shown, whole_number
from ..errors import NotSupportedError, SettingError
from ..faults.fault_policy import FaultPolicy
from ..ledgers import LedgerWriter
from ..limits.file_limits import checked_worker_count
from ..pipeline.pipeline import PipelineDefinition, PipelineInput
from ..providers.data_provider import DataProvider, check_number_of_samples
from ..sampling.random_access_sampler import Description, SamplerBase
from ..sampling.samplers import SequentialSampler, ShuffledSampler
from ..sources.given_order import GivenOrderSampler
from ..sources.input_adapter import InputAdapter
from ..sources.native_input import NativeInput
from ..sources.planned_input import PlannedInput
from ..sources.sampler_inputs import SamplerInputCallable, SamplerInputIterable
from ..sources.shards import Shard, detect_shard, num_cores_of_rank, shard_of_input
from ..user_warnings import warn_user
from .loader_settings import LoaderSettings

_logger = logging.getLogger(__name__)

_MOST_BY_DEFAULT = 8  # workers


@attrs.frozen
class LoaderInput:
    """The input of a loader, with all settings resolved.

    Attributes:
        data_input: The input.
        batch_size: Samples per batch on this shard.
        shard: Which part of each batch it delivers.
        description: Settings on which the order depends.
    """

    data_input: PipelineInput
    batch_size: int
    shard: Shard
    description: Description

    @property
    def is_callable(self) -> bool:
        """Whether workers can load the batches in any order."""
        return callable(self.data_input)

    @property
    def is_endless(self) -> bool:
        """Whether it has no epochs."""
        return not InputAdapter(self.data_input).has_epochs

    def require_random_access(self) -> None:
        """Raise a `NotSupportedError` where a loader over it can neither be continued nor choose its epoch."""
        if not self.is_callable:
            raise NotSupportedError(
                f"{type(self.data_input).__name__} is an iterable, without random access: a loader over it can "
                f"neither be continued nor choose its epoch. Use a callable, e.g. SamplerInputCallable, which "
                f"delivers the same."
            )


def bind_input(settings: LoaderSettings) -> LoaderInput:
    """Make the input of a loader: of a data provider and its order, or of an input, which has an order.

    Raises:
        SettingError: A setting is out of its range, is one that the input has already, or does not go with it.
    """
    source = settings.source
    is_provider = isinstance(source, DataProvider)
    data_input = _ordered(source, settings) if is_provider else _checked_input(source, settings)
    adapter, size = InputAdapter(data_input), settings.batch_size
    if adapter.batch_size is None:
        if size is None:
            raise SettingError("`batch_size` must be given: neither the input nor its sampler has one.")
        size = whole_number(size, "batch_size", at_least=1, at_most=MOST_IN_BATCH)
        if isinstance(data_input, PlannedInput):
            data_input = data_input.with_settings(batch_size=size)
            adapter = InputAdapter(data_input)
    elif size is None:
        size = adapter.batch_size
    else:
        has = "sampler" if is_provider else "input"
        raise SettingError(
            f"The {has} was created for {adapter.batch_size} samples per batch (on this shard). Leave out "
            f"`batch_size`, got {shown(size)}."
        )
    if settings.steps_per_epoch is not None and (adapter.has_epochs or adapter.num_batches_here(0) is not None):
        raise SettingError(
            "`steps_per_epoch` is for endless samplers and inputs; this one has an end. Leave it out."
        )
    shard = shard_of_input(data_input)
    if shard is not None and shard.num_shards == 1 and settings.shard is None:
        _warn_if_not_sharded()
    shard = settings.shard or shard or Shard(0, 1)
    if adapter.planned and adapter.delivers_partial_batches and shard.num_shards > 1:
        _logger.info("With last_batch='partial' the shards can have different numbers of batches per epoch.")
    description: Description = {} if adapter.planned else {"input": type(data_input).__name__}
    description = {**description, **adapter.describe()}
    if settings.steps_per_epoch is not None:
        description["steps_per_epoch"] = settings.steps_per_epoch
    return LoaderInput(data_input, size, shard, description)


def _ordered(provider: DataProvider, settings: LoaderSettings) -> SamplerInputCallable:
    """Give the samples of a provider the order, the shard, the policy and the context of the settings."""
    sampler, shard = settings.sampler, settings.shard or Shard(0, 1)
    num_samples = check_number_of_samples(provider)
    if sampler is None:
        in_order = SequentialSampler(num_samples)
        sampler = ShuffledSampler(num_samples, seed=settings.seed) if settings.shuffle else in_order
    elif settings.shuffle is not None:
        raise SettingError(
            "`shuffle` and `sampler` exclude each other: a sampler decides by itself whether it shuffles."
        )
    elif not isinstance(sampler, SamplerBase | type):
        sampler = GivenOrderSampler(sampler, num_samples)
        own = Shard(*sampler.shard)
        if settings.shard not in (None, own) and own.num_shards > 1:
            raise SettingError(
                f"The sampler was created for shard {own.shard_id} of {own.num_shards}, the loader for shard "
                f"{shard.shard_id} of {shard.num_shards}. Leave out `shard`."
            )
        shard = settings.shard or own
    at: Any = {"shard_id": shard.shard_id, "num_shards": shard.num_shards}
    made = SamplerInputCallable(provider, cast(SamplerBase, sampler), **at, context_name=settings.context_name)
    return made.with_settings(last_batch=settings.last_batch)


def _checked_input(source: object, settings: LoaderSettings) -> PipelineInput:
    """Check what is no data provider.

    Returns:
        The input; of an iterable over a sampler with random access the callable that delivers the same.
    """
    kind = type(source).__name__
    if isinstance(source, type):
        raise SettingError(f"The first argument must be an object, got the class {source.__name__}: create one.")
    if isinstance(source, PipelineDefinition):
        raise SettingError(
            "A DataLoader makes its pipelines itself, of the input and the steps that you gave to the "
            "PipelineDefinition: DataLoader(definition.data_input, steps=[...], run='graph'), or of the data "
            "provider: DataLoader(provider, batch_size=..., steps=[...], shuffle=True)."
        )
    if isinstance(source, NativeInput):
        raise SettingError(
            f"A DataLoader loads in workers, and operators of DALI read a {kind}. Iterate it in a pipeline: "
            f"DALIStructuredOutputIterator(pipeline=PipelineDefinition({kind}(...), steps).get_dali_pipeline("
            f"batch_size=...)). Or give the loader a data provider of the same files, such as FileDataProvider, "
            f"FrameDataProvider or VideoFrameDataProvider; Windows makes sequences of their frames."
        )
    if not hasattr(source, "used_sample_data_structure"):
        raise SettingError(
            f"The first argument must be a DataProvider (or an input, such as a CallableBase), got {kind}. "
            f"{_advice_for(source)}"
        )
    for name in ("shuffle", "sampler", "shard", "last_batch", "context_name"):
        if getattr(settings, name) is not None:
            raise SettingError(
                f"`{name}` is for data providers; {kind} is an input, which decides itself which samples form a "
                f"batch. Create the input with it, or give the loader the data provider: "
                f"DataLoader(provider, batch_size=..., {name}=...)."
            )
    if isinstance(source, SamplerInputIterable) and source.has_random_access:
        return source.as_callable()
    return cast(PipelineInput, source)


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


def _warn_if_not_sharded() -> None:
    try:
        found = detect_shard()
    except SettingError:  # half set variables are of interest only with shard="auto"
        return
    if found.num_shards > 1:
        _logger.warning(
            "This process is rank %d of %d (%s), but its loader delivers all the data: every rank trains on the "
            "same batches. Pass shard='auto' to DataLoader (to an input itself its shard), or shard=(0, 1) if "
            "that is meant.",
            found.shard_id,
            found.num_shards,
            found.source,
        )


def checked_num_workers(settings: LoaderSettings, bound: LoaderInput) -> int:
    """Get the number of workers of a loader, and warn of more than there are cores.

    None was given: as many as this rank has usable cores, at most 8. An iterable has one at most, whatever was
    given: each worker would deliver all of it.

    Raises:
        SettingError: It is no whole number of at least 0, or more than 1024.
    """
    value = settings.num_workers
    if settings.workers is not None:
        return 0
    if value is None:
        return min(num_cores_of_rank(), _MOST_BY_DEFAULT) if bound.is_callable else 1
    if isinstance(value, str):
        default = f"None for as many as this rank has usable cores, at most {_MOST_BY_DEFAULT}"
        raise SettingError(
            f"`num_workers` must be a whole number of at least 0, or {default}; got {shown(value)}."
        )
    count, num_cores = checked_worker_count(value, "num_workers"), num_cores_of_rank()
    if not bound.is_callable:
        return min(count, 1)
    if count > num_cores:
        warn_user(
            f"`num_workers={count}` starts {count} worker processes, and this rank has {num_cores} "
            f"usable core{'s' * (num_cores > 1)}. Unless workers mostly wait for files or a network, they only "
            f"slow each other down, and each takes time to start and memory. Give {num_cores} or fewer; with "
            f"num_workers=None a DataLoader takes as many as there are usable cores, at most 8."
        )
    return count


def make_ledger(bound: LoaderInput, settings: LoaderSettings) -> LedgerWriter:
    """Make the ledger of a loader; nothing is written yet.

    Raises:
        SettingError: ``ledger`` is no path, or that of a file.
    """
    if settings.ledger is None:
        return LedgerWriter(None, {})
    folder = os.path.expanduser(file_path(settings.ledger, "ledger"))
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise SettingError(f"`ledger` must be a folder (made if need be), got the file {folder!r}.")
    provider = getattr(bound.data_input, "provider", None)
    num_samples = -1 if provider is None else int(provider.get_number_of_samples())
    order = json.dumps([bound.description, settings.seed], sort_keys=True, default=str)
    shard = bound.shard.shard_id, bound.shard.num_shards
    digest = hashlib.blake2b(order.encode(), digest_size=8).hexdigest()
    return LedgerWriter(folder, {"shard": shard, "num_samples": num_samples, "order": digest})


def check_sample_policy(bound: LoaderInput, policy: FaultPolicy) -> None:
    """Check that the input of a loader goes with a policy.

    Raises:
        SettingError: The input, its order, or its last batches do not go with it.
    """
    if policy.samples == "raise":
        return
    what, source, name = f"samples={policy.samples!r}", bound.data_input, type(bound.data_input).__name__
    if not isinstance(source, PlannedInput):
        raise SettingError(
            f"{what} of a FaultPolicy needs to know which samples form a batch: a data provider with a sampler of "
            f"this package (DataLoader(provider, ...) or SamplerInputCallable), got {name}."
        )
    if type(source).__call__ is not PlannedInput.__call__:
        raise SettingError(
            f"{what} of a FaultPolicy cannot load another sample in the place of one: {name} loads samples in a "
            f"way of its own (it defines `__call__`)."
        )
    sampler = source.sampler
    if policy.samples != "skip":
        return
    if sampler.has_slots or sampler.knows_sequences or not sampler.is_epoch_based:
        got = f"{type(sampler).__name__} delivers sequences or an endless stream"
        advice = "where each slot goes on from batch to batch. Use 'replace' (by a frame next to it)."
        raise SettingError(f"samples='skip' leaves samples out of batches, but {got}, {advice}")
    if not source.delivers_partial_batches:
        problem = "samples='skip' makes batches smaller"
        advice = "Use last_batch='partial', or 'replace'."
        raise SettingError(f"{problem}, which last_batch={sampler.last_batch!r} does not allow. {advice}")
