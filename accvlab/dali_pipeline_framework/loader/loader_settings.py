# SPDX-License-Identifier: Apache-2.0
"""The settings of a loader, checked."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import attrs

from ..checks import number, shown, valid, whole_number
from ..engine.dali.gpus import require_usable_gpu
from ..errors import SettingError
from ..faults.fault_policy import FaultPolicy, SamplePolicy
from ..limits.file_limits import is_start_method
from ..pipeline.output_conversion import OutputType, RaggedArgument
from ..pipeline.pipeline_arguments import checked_device
from ..processing_steps.pipeline_step_base import PipelineStepBase, RunWhere
from ..sampling.arithmetic.last_batch import LastBatch
from ..sampling.random_access_sampler import SamplerBase
from ..sources.given_order import GivenOrder
from ..sources.shards import Shard, find_shard
from ..workers.cluster.ray_settings import RayWorkers

ShardArgument: TypeAlias = Shard | tuple[int, int] | str | None


def _shard_of(shard: ShardArgument) -> Shard | None:
    if shard is None or isinstance(shard, Shard):
        return shard
    if isinstance(shard, str):
        return find_shard(shard, "shard")
    if isinstance(shard, tuple | list) and len(shard) == 2:
        return Shard(*shard)
    raise SettingError(
        f"`shard` must be a Shard, a pair (shard id, number of shards), or the name of a source such as 'auto', "
        f"got {shown(shard)}. Of a mesh, pass shard=(mesh.get_local_rank('dp'), mesh['dp'].size())."
    )


def _seed_of(seed: object) -> int:
    number = whole_number(seed, "seed", at_least=0)
    if number >= 2**63:
        raise SettingError(f"`seed` must be less than 2**63, got {shown(number)}.")
    return number


def _policy_of(faults: FaultPolicy | SamplePolicy | None) -> FaultPolicy:
    return FaultPolicy.of(faults)


def _start_method_of(method: object) -> str:
    if not isinstance(method, str) or not is_start_method(method):
        raise SettingError(f"`start_method` must be 'spawn', 'fork' or 'forkserver', got {shown(method)}.")
    return str.__str__(method)  # of the member of an enumeration its value


def _check_bool(settings: object, field: attrs.Attribute[Any], value: object) -> None:
    if not isinstance(value, bool):
        raise SettingError(f"`{field.name}` must be True or False, got {shown(value)}.")


def _check_post_process(settings: object, field: object, function: Any) -> None:
    if function is not None and not callable(function):
        raise SettingError(f"`post_process_func` must be a function of a batch, got {shown(function)}.")


def _check_workers(settings: object, field: object, workers: Any) -> None:
    if workers is not None and not isinstance(workers, RayWorkers):
        raise SettingError(
            f"`workers` must be RayWorkers(...), or None for worker processes of this machine, whose number is "
            f"`num_workers`; got {shown(workers)}."
        )


def _check_pipeline_arguments(settings: object, field: object, others: Any) -> None:
    if others is not None and not isinstance(others, Mapping):
        raise SettingError(f"`pipeline_arguments` must be a dict, got {type(others).__name__}.")
    for name in others or {}:
        if not isinstance(name, str):
            raise SettingError(f"`pipeline_arguments` must be a dict of names, got the name {shown(name)}.")
        if name in _OF_LOADER:
            raise SettingError(f"`pipeline_arguments` has `{name}`, which is an argument of the loader itself.")


_OF_LOADER = (
    *("batch_size", "device_id", "seed", "num_threads"),
    *("py_num_workers", "py_start_method", "worker_init_fn"),
)


@attrs.frozen
class LoaderSettings:
    """The arguments of a `DataLoader`, which documents them, as far as they can be checked without the input."""

    source: Any
    steps: Sequence[PipelineStepBase | None] | None
    shuffle: bool | None = attrs.field(validator=attrs.validators.optional(_check_bool))
    sampler: SamplerBase | GivenOrder | None
    run: RunWhere
    fold_arrays: bool
    seed: int = attrs.field(converter=_seed_of)
    batch_size: int | None
    shard: Shard | None = attrs.field(converter=_shard_of)
    last_batch: LastBatch | None
    context_name: str | None
    steps_per_epoch: int | None
    num_workers: int | None
    workers: RayWorkers | None = attrs.field(validator=_check_workers)
    num_threads: int | None
    device_id: int | None = attrs.field(converter=checked_device)
    start_method: str = attrs.field(converter=_start_method_of)
    worker_init_fn: Callable[[int], object] | None
    pipeline_arguments: Mapping[str, Any] | None = attrs.field(validator=_check_pipeline_arguments)
    output_type: OutputType
    ragged: RaggedArgument
    stack_arrays: bool
    post_process_func: Callable[[Any], Any] | None = attrs.field(validator=_check_post_process)
    pin_memory: bool = attrs.field(validator=_check_bool)
    gpu_views: bool = attrs.field(validator=_check_bool)
    as_torch_data_loader: bool
    faults: FaultPolicy = attrs.field(converter=_policy_of)
    ledger: str | os.PathLike[str] | None
    prefetch_queue_depth: int | None
    prefetch_bytes: float = attrs.field(validator=valid(number, above=0))

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> LoaderSettings:
        """Take the settings from a mapping that may have more entries.

        Raises:
            SettingError: An argument breaks a rule.
            DeviceError: GPUs are usable here, but not that of ``device_id``.
        """
        return cls(**{field.name: arguments[field.name] for field in attrs.fields(cls)})

    def __attrs_post_init__(self) -> None:
        """Check optional counts, and rules of several arguments."""
        for name in ("steps_per_epoch", "num_threads", "prefetch_queue_depth"):
            count = getattr(self, name)
            if count is not None:
                object.__setattr__(self, name, whole_number(count, name, at_least=1))
        if self.workers is not None and self.num_workers is not None:
            raise SettingError(
                f"`workers` and `num_workers={self.num_workers}` exclude each other: actors load, or processes of "
                f"this machine. Leave one out."
            )
        ahead = None if self.workers is None else self.workers.batches_ahead
        if ahead is not None and self.prefetch_queue_depth is not None:
            raise SettingError(
                f"`prefetch_queue_depth={self.prefetch_queue_depth}` and `batches_ahead={ahead}` of RayWorkers "
                f"both limit how many batches are loaded ahead. Leave one out."
            )
        if self.start_method == "fork" and self.device_id is not None and self.num_workers != 0:
            rule = "the pipeline initialises CUDA, which a process that is forked after that cannot use"
            raise SettingError(
                f"start_method='fork' does not go with device_id={self.device_id}: {rule}. Use 'forkserver' or "
                f"'spawn'."
            )
        is_torch = isinstance(self.output_type, str) and str.__eq__(self.output_type, "torch")
        require_usable_gpu(self.device_id, uses_torch=is_torch)
        if self.pin_memory and self.output_type != "torch":
            raise SettingError(
                f"`pin_memory=True` pins tensors of PyTorch, got output_type={self.output_type!r}. Leave "
                f"`pin_memory` out, or take output_type='torch'."
            )
