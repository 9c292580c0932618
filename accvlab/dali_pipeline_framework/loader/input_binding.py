# SPDX-License-Identifier: Apache-2.0
"""The input of a loader: made of a provider, an input or a definition, and bound to the settings of the loader."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping, Sized
from typing import cast

import attrs

from ..checks import MOST_IN_BATCH, file_path, shown, whole_number
from ..errors import NotSupportedError, SettingError
from ..faults.fault_policy import FaultPolicy
from ..ledgers import LedgerWriter
from ..limits.file_limits import checked_worker_count
from ..pipeline.pipeline import PipelineDefinition, PipelineInput
from ..processing_steps.pipeline_step_base import RunWhere
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
        description: What the order depends on.
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

    @property
    def kind(self) -> str:
        """What it is, for messages about what it cannot do."""
        return f"{type(self.data_input).__name__} is an iterable"

    def require_resumable(self) -> None:
        """Raise a `NotSupportedError` where a loader over it cannot be continued."""
        if not self.is_callable:
            raise NotSupportedError(
                f"{self.kind}: it has no random access, so a loader over it cannot be continued. Use a callable, "
                f"e.g. SamplerInputCallable, which delivers the same."
            )


def bind_input(source: PipelineInput, settings: LoaderSettings) -> LoaderInput:
    """Give an input the settings of a loader.

    An iterable over a sampler becomes the callable that delivers the same where the sampler has random access, or
    the batches are to be completed.

    Raises:
        SettingError: A setting is out of its range, or contradicts what the input was created with.
    """
    if isinstance(source, NativeInput):
        kind = type(source).__name__
        raise SettingError(
            f"A DataLoader loads in workers, and operators of DALI read a {kind}. Iterate it in a pipeline: "
            f"DALIStructuredOutputIterator(pipeline=PipelineDefinition({kind}(...), steps).get_dali_pipeline("
            f"batch_size=...)). Or give the loader a data provider of the same files, such as FileDataProvider, "
            f"FrameSequenceDataProvider or VideoDataProvider."
        )
    if isinstance(source, SamplerInputIterable) and (
        source.has_random_access or settings.last_batch is not None or settings.context_name is not None
    ):
        source = source.as_callable()
    if settings.shard is None:
        _warn_if_not_sharded(source)
    return _bind_planned(source, settings) if isinstance(source, PlannedInput) else _bind_own(source, settings)


def _pair(shard: Shard | None) -> tuple[int, int] | None:
    return None if shard is None else (shard.shard_id, shard.num_shards)


def _bind_planned(source: PlannedInput, settings: LoaderSettings) -> LoaderInput:
    bound = source.with_settings(
        batch_size=settings.batch_size,
        shard=_pair(settings.shard),
        last_batch=settings.last_batch,
        context_name=settings.context_name,
    )
    if bound.batch_size is None:
        raise SettingError("`batch_size` must be given: neither the input nor its sampler has one.")
    num_batches = None if settings.steps_per_epoch is None else bound.num_batches_in_epoch(0)
    if num_batches is not None:
        raise SettingError(
            f"`steps_per_epoch` is for endless samplers; an epoch of this input has {num_batches} batches. Leave "
            f"it out."
        )
    if bound.delivers_partial_batches and bound.shard[1] > 1:
        _logger.info("With last_batch='partial' the shards can have different numbers of batches per epoch.")
    description = {**bound.describe(), **settings.described_steps}
    shard = settings.shard or Shard(*bound.shard)
    return LoaderInput(bound, bound.batch_size, shard, description)


def _bind_own(source: PipelineInput, settings: LoaderSettings) -> LoaderInput:
    _require_own_epochs(source, settings)
    batch_size, adapter = settings.batch_size, InputAdapter(source)
    own = adapter.batch_size
    if own is not None and batch_size is not None and whole_number(batch_size, "batch_size") != own:
        raise SettingError(
            f"The input was created for {own} samples per batch, the loader for batch_size={batch_size}. Give "
            f"the batch size in one place only."
        )
    size = own if batch_size is None else whole_number(batch_size, "batch_size", at_least=1, at_most=MOST_IN_BATCH)
    if size is None:
        raise SettingError("`batch_size` must be given, since the input has no `batch_size`.")
    shard = _shard_of_own(source, settings.shard)
    description: Description = {"input": type(source).__name__, **adapter.describe(), **settings.described_steps}
    return LoaderInput(source, size, shard, description)


def _require_own_epochs(source: object, settings: LoaderSettings) -> None:
    """Refuse settings of epochs for an input of one's own, which alone knows which samples form a batch."""
    given = {"last_batch": settings.last_batch, "context_name": settings.context_name, **settings.described_steps}
    for name, value in given.items():
        is_of_stream = name == "steps_per_epoch" and not InputAdapter(source).has_epochs
        if value is not None and not is_of_stream:
            raise SettingError(
                f"`{name}` does not go with {type(source).__name__}, an input of one's own, which decides itself "
                f"which samples form a batch, got {shown(value)}. Have the input do it, or use a data provider "
                f"with a sampler."
            )


def _shard_of_own(source: object, asked: Shard | None) -> Shard:
    """The shard of an input of one's own, which nobody but the input can deal to shards."""
    own = shard_of_input(source)
    if own is not None:
        if asked not in (None, own):
            raise SettingError(
                f"The input was created for shard {own.shard_id} of {own.num_shards}, the loader for shard "
                f"{asked.shard_id} of {asked.num_shards}. Create the input for that one, and leave `shard` out "
                f"here."
            )
        return own
    if asked is not None and asked.num_shards > 1:
        raise SettingError(
            f"A loader cannot deal the samples of {type(source).__name__} to shards: an input of one's own "
            f"does so itself. Give it the property `shard`, with the pair ({asked.shard_id}, {asked.num_shards}) "
            f"here, or use SamplerInputCallable."
        )
    return asked or Shard(0, 1)


def _warn_if_not_sharded(source: object) -> None:
    known = getattr(source, "shard", None)
    if known is None or (known.num_shards if isinstance(known, Shard) else known[1]) > 1:
        return
    try:
        found = detect_shard()
    except SettingError:  # half set variables are of interest only with shard="auto"
        return
    if found.num_shards > 1:
        _logger.warning(
            "This process is rank %d of %d (%s), but its loader delivers all the data: every rank trains on the "
            "same batches. Pass shard='auto' to DataLoader (to an iterable itself its shard), or shard=(0, 1) if "
            "that is meant.",
            found.shard_id,
            found.num_shards,
            found.source,
        )


def checked_num_workers(settings: LoaderSettings, definition: PipelineDefinition, bound: LoaderInput) -> int:
    """Get the number of workers of a loader, and warn of more than there are cores.

    None was given: as many as this rank has usable cores, at most 8; 1 where one loads all.

    Raises:
        SettingError: It is no whole number of at least 0, or more than 1024.
    """
    value = settings.num_workers
    if settings.workers is not None:
        return 0
    if value is None:
        return min(num_cores_of_rank(), _MOST_BY_DEFAULT) if bound.is_callable and definition.uses_workers else 1
    if isinstance(value, str):
        default = f"None for as many as this rank has usable cores, at most {_MOST_BY_DEFAULT}"
        raise SettingError(
            f"`num_workers` must be a whole number of at least 0, or {default}; got {shown(value)}."
        )
    count = checked_worker_count(value, "num_workers")
    if definition.uses_workers:
        warn_of_many_workers(count)
    return count


def warn_of_many_workers(num_workers: int) -> None:
    """Warn of more worker processes than this rank has usable cores."""
    num_cores = num_cores_of_rank()
    if num_workers > num_cores:
        warn_user(
            f"`num_workers={num_workers}` starts {num_workers} worker processes, and this rank has {num_cores} "
            f"usable core{'s' * (num_cores > 1)}. Unless workers mostly wait for files or a network, they only "
            f"slow each other down, and each takes time to start and memory. Give {num_cores} or fewer; with "
            f"num_workers=None a DataLoader takes as many as there are usable cores, at most 8."
        )


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
    digest = hashlib.blake2b(order.encode(), digest_size=8).hexdigest()
    return LedgerWriter(folder, {"shard": _pair(bound.shard), "num_samples": num_samples, "order": digest})


def check_sample_policy(bound: LoaderInput, policy: FaultPolicy) -> None:
    """Check that the input of a loader goes with a policy.

    Raises:
        SettingError: The input, its order, or its last batches do not go with it.
    """
    if policy.samples == "raise":
        return
    what = f"samples={policy.samples!r}"
    source = bound.data_input
    if not isinstance(source, PlannedInput):
        rule = f"{what} of a FaultPolicy needs to know which samples form a batch"
        needed = (
            "a data provider with a sampler of this package (DataLoader(provider, ...) or SamplerInputCallable)"
        )
        raise SettingError(f"{rule}: {needed}, got {type(source).__name__}.")
    if type(source).__call__ is not PlannedInput.__call__:
        rule = f"{what} of a FaultPolicy cannot load another sample in the place of one"
        got = f"{type(source).__name__} loads samples in a way of its own (it defines `__call__`)"
        raise SettingError(f"{rule}: {got}.")
    sampler = source.sampler
    if policy.samples != "skip":
        return
    if sampler.has_slots or sampler.knows_sequences or not sampler.is_epoch_based:
        got = f"{type(sampler).__name__} delivers sequences, clips or an endless stream"
        advice = "where each slot goes on from batch to batch. Use 'replace' (by a frame next to it)."
        raise SettingError(f"samples='skip' leaves samples out of batches, but {got}, {advice}")
    if not source.delivers_partial_batches:
        problem = "samples='skip' makes batches smaller"
        advice = "Use last_batch='partial', or 'replace'."
        raise SettingError(f"{problem}, which last_batch={sampler.last_batch!r} does not allow. {advice}")


def composed_definition(settings: LoaderSettings) -> PipelineDefinition:
    """Make the definition of a loader: of a data provider, an input, or a definition.

    Raises:
        SettingError: An argument does not go with the source, or is of the wrong type.
    """
    source, steps = settings.source, settings.steps
    run: RunWhere = "auto" if settings.run is None else settings.run
    is_definition = isinstance(source, PipelineDefinition)
    if isinstance(source, DataProvider):
        return PipelineDefinition(_ordered(source, settings), steps, run=run)
    kind = "a PipelineDefinition" if is_definition else type(source).__name__
    for name, value in (("shuffle", settings.shuffle), ("sampler", settings.sampler)):
        if value is not None:
            raise SettingError(
                f"`{name}` is for data providers; {kind} has an order of its own. Leave it out, or give the "
                f"loader the data provider: DataLoader(provider, batch_size=..., steps=[...], {name}=...)."
            )
    if not is_definition:
        _require_input(source)
        return PipelineDefinition(source, steps, run=run)
    if steps is not None:
        raise SettingError(
            "`steps` does not go with a PipelineDefinition, which has steps already: give them to the definition, "
            "or give the loader its input: DataLoader(definition.data_input, batch_size=..., steps=[...])."
        )
    definition: PipelineDefinition = source
    return definition if settings.run is None else definition.with_run(run)


def _ordered(provider: DataProvider, settings: LoaderSettings) -> SamplerInputCallable:
    sampler = settings.sampler
    if sampler is None:
        num_samples = check_number_of_samples(provider)
        if settings.shuffle:
            return SamplerInputCallable(provider, ShuffledSampler(num_samples, seed=settings.seed))
        return SamplerInputCallable(provider, SequentialSampler(num_samples))
    if settings.shuffle is not None:
        raise SettingError(
            "`shuffle` and `sampler` exclude each other: a sampler decides by itself whether it shuffles."
        )
    if isinstance(sampler, SamplerBase | type):
        return SamplerInputCallable(provider, cast(SamplerBase, sampler))
    given = GivenOrderSampler(sampler, check_number_of_samples(provider))
    return SamplerInputCallable(provider, given, shard_id=given.shard[0], num_shards=given.shard[1])


def _require_input(source: object) -> None:
    if isinstance(source, type):
        raise SettingError(f"The first argument must be an object, got the class {source.__name__}: create one.")
    if not hasattr(source, "used_sample_data_structure"):
        raise SettingError(
            f"The first argument must be a DataProvider (or an input, such as a CallableBase, or a "
            f"PipelineDefinition), got {type(source).__name__}. {_advice_for(source)}"
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
