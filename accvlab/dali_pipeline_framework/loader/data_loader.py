# SPDX-License-Identifier: Apache-2.0
"""A loader for training loops: owns the pipeline, knows its epochs, and can stop and continue."""

from __future__ import annotations

import copy
import itertools
import os
from abc import ABC
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any

import attrs

from ..checks import listed
from ..errors import NotSupportedError, SettingError
from ..faults.fault_policy import FailedSample, FaultPolicy, SamplePolicy
from ..pipeline.chain import step_name
from ..pipeline.output_conversion import OutputType, RaggedArgument
from ..pipeline.pipeline import PipelineInput
from ..pipeline.pipeline_arguments import Device
from ..processing_steps.pipeline_step_base import PipelineStepBase, RunWhere
from ..providers.data_provider import DataProvider, summary
from ..sample_data import SampleDataGroup
from ..sampling.arithmetic.last_batch import LastBatch, SampleCounts
from ..sampling.random_access_sampler import SamplerBase
from ..sources.given_order import GivenOrder
from ..sources.input_adapter import InputAdapter
from ..sources.shards import Shard, detect_shard
from ..unknown_arguments import explains_unknown_arguments
from ..workers.cluster.ray_settings import RayWorkers
from .loader_run import LoaderRun
from .loader_settings import LoaderSettings, ShardArgument
from .progress import Position
from .report import LoaderReport, make_report
from .torch_interface import TorchInterface

_MOST_NAMED = 8  # steps in a line


class LoaderSampler(Iterable[int], Sized, ABC):
    """A sampler like PyTorch's: iterates over the sample indices of the current epoch of a loader."""

    def __init__(self, loader: DataLoader) -> None:
        """Make it for a loader; nothing is loaded."""
        self._loader = loader

    def __iter__(self) -> Iterator[int]:
        """Get the index in the data set of each sample of the epoch.

        Raises:
            NotSupportedError: The input is the user's own; its samples are not known.
        """
        for indices in LoaderBatchSampler(self._loader):
            yield from indices

    def __len__(self) -> int:
        """Number of samples of the epoch on this shard.

        Raises:
            TypeError: The input is endless, or its number of batches is not known.
        """
        loader = self._loader
        if loader.last_batch == "partial" and InputAdapter(loader.bound_input).planned is not None:
            return sum(map(len, loader.batch_sampler))
        return len(loader) * loader.batch_size


class FixedLoaderSampler(LoaderSampler):
    """The order of a loader whose epochs follow each other."""


class SettableLoaderSampler(LoaderSampler):
    """The sampler of a loader whose epoch can be set."""

    def set_epoch(self, epoch: int) -> None:
        """Have the next loop over the loader run in this epoch. See `DataLoader.set_epoch`.

        If a state of a later epoch was loaded, and no batch has come since, the call has no effect. The reason: a
        framework that combines loaders of different lengths counts fewer epochs than the shorter loader has run,
        and its count would set that loader back.
        """
        run_of(self._loader).set_epoch(epoch, keeps_loaded=True)


class LoaderBatchSampler:
    """A batch sampler like PyTorch's: iterates over the batches of a loader, as lists of sample indices.

    Attributes:
        even_batches: Whether all ranks have the same number of batches. Accelerate's ``join_uneven_inputs`` sets
            this attribute, without an effect on the batches.
    """

    def __init__(self, loader: DataLoader) -> None:
        """Make it for a loader; nothing is loaded."""
        self._loader = loader
        self.even_batches = loader.last_batch != "partial"

    @property
    def sampler(self) -> LoaderSampler:
        """The order of the single samples."""
        return self._loader.sampler

    @property
    def batch_size(self) -> int:
        """Samples per batch on this shard."""
        return self._loader.batch_size

    @property
    def drop_last(self) -> bool:
        """Whether an incomplete last batch is dropped."""
        return self._loader.drop_last

    def __iter__(self) -> Iterator[list[int]]:
        """Get the sample indices of each batch of the epoch.

        Raises:
            NotSupportedError: The input is the user's own; its samples are not known.
        """
        planned = InputAdapter(self._loader.bound_input).planned
        if planned is None:
            name = type(self._loader.bound_input).__name__
            raise NotSupportedError(
                f"Which samples a {name} delivers is known only when they come. Give the loader a data provider, "
                f"with a sampler."
            )
        epoch, pipelines = self._loader.epoch, run_of(self._loader).pipelines
        num_batches = pipelines.num_batches_here(epoch)
        for batch in itertools.count() if num_batches is None else range(num_batches):
            at = pipelines.as_counted_by_input(Position(epoch, batch))
            yield [place.sample_index for place in planned.get_places(*at)]

    def __len__(self) -> int:
        """Number of batches of the epoch."""
        return len(self._loader)


class DataLoader(TorchInterface):
    """Delivers batches to a training loop, epoch after epoch, and can be stopped and resumed.

    Args:
        source: Data provider; or an input (callable or iterable), which has its own order.
        batch_size: Samples per batch on this shard. None: the batch size of the input or sampler.
        steps: Processing steps, applied in this order.
        shuffle: Order of the samples of a data provider. True: random, different in each epoch
            (`ShuffledSampler`). False or None: the order of the data provider (`SequentialSampler`).
        sampler: Any other order of the samples of a data provider; not together with ``shuffle``. A sampler of
            this package, a function, or a sampler of PyTorch; see below.
        run: Where steps run. ``"workers"``: in the workers, on arrays, up to the first step that works in a graph
            only. ``"graph"``: steps run in the graph where they change pixels, and in the workers otherwise.
            ``"auto"``: with a GPU, as ``"graph"``; without one, as ``"workers"`` or ``"graph"``, whichever costs
            less (see `PipelineDefinition`).
        num_workers: Worker processes that load samples; 0 to load in this process. None: one for each core that
            this rank can use, at most 8. An iterable has at most 1. The number does not change the batches.
        num_threads: Threads of the pipeline. None: the usable cores divided by the ranks on this machine; with a
            GPU at most 8.
        device_id: GPU of the pipeline: its number, ``"cuda:1"``, a ``torch.device``, or ``"auto"`` for the GPU of
            this rank (see the page on several GPUs). None: no GPU.
        shard: The part of each total batch that this loader delivers: a `Shard`; a pair (shard id, number of
            shards); or the name of a way to find the rank, such as ``"auto"`` or ``"slurm"`` (see `detect_shard`).
            None: all. Not for inputs, which divide their samples among shards themselves.
        last_batch: Handling of an incomplete last batch, see `LastBatch`: ``"drop"``, ``"pad"``, ``"partial"`` or
            ``"wrap"``. None: the setting of ``sampler``, if this is a sampler of this package; otherwise
            ``"drop"`` with ``shuffle=True`` and ``"partial"`` without. Not for inputs.
        context_name: Name of a group that is added to each sample. The group has the fields of `SamplePlace`
            (epoch, batch, sample index, ...) except ``visit``. Not for inputs.
        steps_per_epoch: Batches per loop, for an endless sampler or input. None: a loop ends when the input does.
        seed: Seed of the order with ``shuffle=True``, and of the random draws of the steps.
        start_method: How workers start: ``"forkserver"``, ``"fork"`` (not with ``device_id``) or ``"spawn"``.
        output_type: ``"torch"`` or ``"numpy"``.
        ragged: Handling of samples whose shapes differ: ``"raise"``, ``"list"``, or a dict that gives one of the
            two per field (see `DALIStructuredOutputIterator`).
        stack_arrays: Whether the elements of an array of groups, e.g. one group per camera, are stacked field by
            field: ``batch["cameras"]["image"]`` is then one tensor ``(batch, cameras, ...)``.
        post_process_func: Function that is applied to each batch; its result is delivered.
        worker_init_fn: Function that each worker process calls once with its number, from 0, before it loads its
            first sample; not called with ``num_workers=0``. It must be picklable, except with
            ``start_method="fork"``.
        pin_memory: Whether tensors on the CPU are in pinned memory: ``tensor.to(device, non_blocking=True)`` then
            copies them while the program continues. No effect without CUDA.
        gpu_views: Whether tensors on a GPU are views of DALI's memory, see `DALIStructuredOutputIterator`.
        fold_arrays: Whether a step is applied to all elements of an array together, not to one after the other;
            see `PipelineDefinition`.
        pipeline_arguments: Other arguments of `PipelineDefinition.get_dali_pipeline`.
        as_torch_data_loader: Whether ``isinstance(loader, torch.utils.data.DataLoader)`` is True, for code that
            checks it. Setting attributes of the loader in such code has no effect.
        faults: Handling of samples that fail, and of workers that die: a `FaultPolicy`; or ``"raise"``, ``"skip"``
            or ``"replace"``, short for ``FaultPolicy(samples=...)``. None: ``"raise"``.
        ledger: Folder in which each rank records its delivered samples, in a file of its own; see the page on
            ledgers. None: no record.
        workers: Actors of a Ray cluster that load in place of worker processes; None for processes.
        prefetch_queue_depth: Number of batches that all workers together load ahead; raised to one per worker if
            it is smaller. None: enough to even out varying loading times.
        prefetch_bytes: Limit of the memory for batches that are loaded ahead, in bytes. One batch per worker is
            always allowed.

    Raises:
        SettingError: An argument breaks a rule, or was already given to the input or sampler.
        FormatError: The steps do not fit the data.
        DeviceError: A step needs a GPU, and none is usable; ``device_id`` names a missing one; or DALI or PyTorch
            does not support the GPU.
        QuarantineError: ``exclude`` or ``quarantine`` of the policy cannot be used.
        NotSupportedError: Actors of Ray cannot load an iterable.

    **A function or a sampler of PyTorch**, given as ``sampler``, runs in this process: when the loader is created
    (functions only), when a loop begins, when ``len`` or a sampler of the loader needs a later epoch, and when a
    state from the middle of an epoch is saved or loaded, to check that the order can be repeated. A function takes
    the epoch and returns its sample indices, which the loader divides among shards. For a sampler of PyTorch, the
    loader calls ``set_epoch``, if it has this method, and then iterates over the sampler, which returns the
    indices of its own rank.

    **Epochs.** Each ``for`` loop is one epoch. After a ``break``, the next loop starts the next epoch, or the one
    given to `set_epoch`; batches of the abandoned epoch that were loaded ahead are discarded.

    **State.** `state_dict` returns the position of the training loop, a small value for JSON. A loader that loads
    this state resumes with the next batch. Its number of workers may differ from that of the loader that saved the
    state. So may the number of shards and the batch size, unless the order depends on them.

    **Threads** may share a loader: several may call ``next`` on one loop, and each batch goes to one of them.
    Other threads may call `state_dict` and `close` meanwhile. After `close`, the loop raises a `ClosedError`.

    **PyTorch.** A loader has the attributes that code written for ``torch.utils.data.DataLoader`` reads, among
    them ``dataset``, ``sampler``, ``batch_sampler``, ``batch_size`` and ``drop_last``. ``sampler`` has
    ``set_epoch``, unless the input is an iterable, or endless without ``steps_per_epoch``.

    Example::

        with DataLoader(provider, batch_size=4, steps=steps, shuffle=True, num_workers=2, shard="auto") as loader:
            for epoch in range(loader.epoch, 10):
                for batch in loader:
                    train(batch)
                    checkpoint["loader"] = loader.state_dict()
    """

    recipe_settings: Any = None
    """Settings of the recipe that has made this loader, for functions that plot batches; None without a recipe."""

    _was_prepared = False  # by Accelerate

    @explains_unknown_arguments
    def __init__(
        self,
        source: DataProvider | PipelineInput,
        batch_size: int | None = None,
        *,
        steps: Sequence[PipelineStepBase | None] | None = None,
        shuffle: bool | None = None,
        sampler: SamplerBase | GivenOrder | None = None,
        run: RunWhere = "auto",
        num_workers: int | None = None,
        num_threads: int | None = None,
        device_id: Device = None,
        shard: ShardArgument = None,
        last_batch: LastBatch | None = None,
        context_name: str | None = None,
        steps_per_epoch: int | None = None,
        seed: int = 0,
        start_method: str = "forkserver",
        output_type: OutputType = "torch",
        ragged: RaggedArgument = "raise",
        stack_arrays: bool = False,
        post_process_func: Callable[[Any], Any] | None = None,
        worker_init_fn: Callable[[int], object] | None = None,
        pin_memory: bool = False,
        gpu_views: bool = False,
        fold_arrays: bool = True,
        pipeline_arguments: Mapping[str, Any] | None = None,
        as_torch_data_loader: bool = False,
        faults: FaultPolicy | SamplePolicy | None = None,
        ledger: str | os.PathLike[str] | None = None,
        workers: RayWorkers | None = None,
        prefetch_queue_depth: int | None = None,
        prefetch_bytes: float = 512e6,
    ) -> None:
        """Create the loader. Its worker processes start with the first loop, or with `start`."""
        self._settings = settings = LoaderSettings.of(locals())
        self._run = LoaderRun(settings)
        self.pin_memory = settings.pin_memory

    def __deepcopy__(self, memo: dict[int, Any]) -> DataLoader:
        """Get another loader of the same settings, at its beginning."""
        return type(self)(**copy.deepcopy(attrs.asdict(self._settings, recurse=False), memo))

    def start(self) -> None:
        """Start the worker processes now, e.g. to fork them before CUDA is initialised in this process."""
        self._run.start()

    def __repr__(self) -> str:
        """Return its settings, its data and order, and the names of its steps; `describe` says more."""
        run = self._run
        device_id = run.pipeline.device_id
        settings = [
            f"batch_size={self.batch_size}",
            f"num_workers={self.num_workers}",
            f"device={'CPU' if device_id is None else f'GPU {device_id}'}",
            f"shard={self.shard.shard_id} of {self.shard.num_shards}",
            f"epoch={run.progress.delivered.epoch}",
            *(["closed"] if run.pipelines.is_closed else []),
        ]
        planned = InputAdapter(run.bound.data_input).planned
        data = [summary(self.dataset), *([] if planned is None else [type(planned.sampler).__name__])]
        names = [step_name(step) for step in run.definition.steps]
        lines = [f"{type(self).__name__}({', '.join(settings)})", f"input: {', '.join(data)}"]
        in_workers = run.pipeline.steps_in_workers
        for where, here in (("workers", names[:in_workers]), ("graph", names[in_workers:])):
            lines += [f"steps in the {where}: {listed(here, _MOST_NAMED)}"] if here else []
        return "\n  ".join(lines)

    # --- iterating --------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        """Start an epoch: the next one, or the one that was set or loaded."""
        return self._run.begin_loop(self)

    def __len__(self) -> int:
        """Number of batches of the whole current epoch.

        Raises:
            TypeError: It is not known, e.g. since the input is endless.
        """
        num_batches = self._run.pipelines.num_batches_here(self.epoch)
        if num_batches is None:
            raise TypeError(
                "The number of batches per epoch is not known. Pass `steps_per_epoch` if the input is endless; "
                "otherwise, the input needs the attribute `num_batches_per_epoch`."
            )
        return num_batches

    @property
    def epoch(self) -> int:
        """Epoch of the position that `state_dict` returns, counted from 0.

        Within a loop, this is the epoch of that loop; once the loop has received its last batch, it is the next
        epoch. After a ``break``, it is still the epoch of the abandoned loop.
        """
        return self._run.epoch

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next loop. It starts at the beginning of that epoch, with one exception.

        If the next loop would run in the given epoch anyway, it starts where it would have started: a loader that
        has loaded a state from the middle of that epoch still resumes there. If a loop has begun, but has
        delivered no batch yet, the call applies to that loop.

        Raises:
            SettingError: The epoch is not a whole number of at least 0.
            NotSupportedError: The input is endless, without ``steps_per_epoch``; or it is an iterable, which has
                no random access.
        """
        self._run.set_epoch(epoch)

    def sample_counts(self, epoch: int | None = None) -> SampleCounts | None:
        """Count the samples that an epoch delivers, drops, repeats and pads, on all shards together.

        Args:
            epoch: The epoch; None for the current one.

        Returns:
            The counts; None for endless samplers, and for callables and iterables of your own. A sampler without
            random access has to run through the epoch for this.
        """
        return self._run.pipelines.sample_counts(self.epoch if epoch is None else epoch)

    def report(self, since: LoaderReport | None = None) -> LoaderReport:
        """Report where the time goes in the running loop, or went in the last one.

        Reading it changes nothing, so several parts of a program may do so. The first batch of a loop does not
        count.

        Args:
            since: An earlier report. If it is of the same loop, only batches after it count.
        """
        return make_report(self._run.times, self._run.pipelines, since)

    # --- state ------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Get the position of the loop, and a description of its data and order, for `load_state_dict`.

        The value can be written as JSON. All ranks get the same value, with two exceptions. With
        ``last_batch="partial"``, the value of ranks with fewer batches differs at the end of an epoch. With a
        limit of failed samples (``max_failed``, ``max_failed_share``), the entry ``failed`` lists the failed
        samples of this rank.

        A batch counts as delivered once the loop has received it. After a ``break``, the position is still in the
        abandoned epoch: a loader that loads it finishes that epoch, while this loader starts the next one.

        Raises:
            NotSupportedError: The input is an iterable, which has no random access; or an epoch has begun whose
                order cannot be repeated: ``sampler`` is a sampler of PyTorch without ``set_epoch``, or has given
                another order when it ran again.
        """
        return self._run.state().to_dict()

    def load_state_dict(self, state: Mapping[str, Any] | str | bytes) -> None:
        """Have the next loop resume after the last batch that had been delivered before the state was saved.

        The number of workers, the start method and prefetching may be other ones than in the loader that saved the
        state. So may the number of shards and the batch size, unless the order depends on them; with another total
        batch size, the rest of the epoch is divided anew.

        Args:
            state: Result of `state_dict`, or JSON text of it.

        Raises:
            StateError: The state is damaged or of another version; it belongs to other data or another order (see
                ``differences`` of the error); or the order depends on the batch size or the number of shards, and
                that has changed.
            NotSupportedError: The input is an iterable; or the state is from the middle of an epoch whose order
                cannot be repeated, as for `state_dict`.
        """
        self._run.load_state(state)

    # --- access -----------------------------------------------------------------------------------

    @property
    def batch_size(self) -> int:
        """Samples per batch on this shard."""
        return self._run.bound.batch_size

    def step_by_step(self, position: int = 0, *, epoch: int = 0) -> Iterator[tuple[str, SampleDataGroup]]:
        """Load a sample and apply the steps one by one, on arrays; see `PipelineDefinition.step_by_step`."""
        return self._run.definition.step_by_step(position, epoch=epoch, seed=self._settings.seed)

    def describe(self) -> str:
        """Describe the loader, the fields of its samples, and their changes by each step."""
        chain = self._run.definition.chain_lines(self._run.pipeline.steps_in_workers)
        settings = repr(self).partition("\n")[0]
        return "\n  ".join([settings, *chain]) + f"\n\n{self._run.definition.describe()}"

    @property
    def steps(self) -> tuple[PipelineStepBase, ...]:
        """The steps, in their order."""
        return tuple(self._run.definition.steps)

    @property
    def plan(self) -> str:
        """Text that says where each step runs and how fields reach the graph, see `PipelineDefinition.plan`."""
        return self._run.pipeline.plan

    @property
    def num_workers(self) -> int:
        """Worker processes that load samples."""
        return self._run.num_workers

    @property
    def shard(self) -> Shard:
        """The part of each total batch that this loader delivers."""
        return self._run.bound.shard

    @property
    def bound_input(self) -> PipelineInput:
        """The input that feeds the pipeline: ``source``, or an input that the loader has made from it."""
        return self._run.pipelines.data_input

    @property
    def dataset(self) -> DataProvider | PipelineInput:
        """The data provider, whose ``len`` is its number of samples; or the input that the loader was given."""
        planned = InputAdapter(self._run.bound.data_input).planned
        return self._run.bound.data_input if planned is None else planned.provider

    @property
    def last_batch(self) -> LastBatch:
        """Handling of an incomplete last batch."""
        planned = InputAdapter(self._run.bound.data_input).planned
        return "drop" if planned is None else planned.sampler.last_batch

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        """Format of the samples in a batch, before ``stack_arrays``: all fields, without values."""
        return self._run.pipeline.output_blueprint

    @property
    def failed_samples(self) -> tuple[FailedSample, ...]:
        """The samples that have failed on this shard so far, each once; excluded samples are left out."""
        return self._run.pipelines.failed.samples

    # --- for code written for PyTorch's loader ----------------------------------------------------

    @property
    def sampler(self) -> LoaderSampler:
        """The sample indices of the current epoch on this shard, as a sampler."""
        return SettableLoaderSampler(self) if self._run.can_set_epoch else FixedLoaderSampler(self)

    @property
    def batch_sampler(self) -> LoaderBatchSampler:
        """The sample indices of each batch of the current epoch on this shard, as a batch sampler."""
        return LoaderBatchSampler(self)

    @property
    def drop_last(self) -> bool:
        """Whether an incomplete last batch is dropped."""
        return self.last_batch == "drop"

    @property
    def persistent_workers(self) -> bool:
        """Whether worker processes stay for the next epoch: True if there are worker processes."""
        return bool(self.num_workers)

    @property
    def _is_accelerate_prepared(self) -> bool:
        """Always True: ``Accelerator.prepare`` reads it, and then gives the loader back as it is.

        Otherwise it would make a loader of PyTorch of what PyTorch's would have: data set, batch sampler.

        Raises:
            SettingError: The loader was handed to ``prepare`` before, or delivers all samples on each of several
                ranks.
        """
        if self._was_prepared:
            raise SettingError(
                "The loader was handed to `prepare` of Accelerate before. It is used as it is: hand it over once, "
                "or not at all."
            )
        num_ranks = detect_shard().num_shards
        if num_ranks > 1 and self.shard.num_shards == 1 and self._settings.shard is None:
            raise SettingError(
                f"The loader was handed to `prepare` of Accelerate, which uses it as it is: each of the "
                f"{num_ranks} ranks would get all samples. Create the loader with `shard='auto'`, or the input "
                f"for its shard."
            )
        return True

    @_is_accelerate_prepared.setter
    def _is_accelerate_prepared(self, value: bool) -> None:
        """Note what ``Accelerator.prepare`` says of the loader at its end."""
        self._was_prepared = value

    @property
    def prefetch_factor(self) -> int | None:
        """Batches that are loaded ahead per worker, rounded up; None without workers."""
        return -(-self._run.pipelines.pool.settings.window // self.num_workers) if self.num_workers else None

    @property
    def end_of_dataloader(self) -> bool:
        """Whether the running loop has received its last batch; False without a loop, or if ``len`` is unknown."""
        return self._run.is_at_end

    # --- closing ----------------------------------------------------------------------------------

    def close(self) -> None:
        """End the worker processes and free their memory. Batches that were delivered stay valid."""
        self._run.close()

    def __enter__(self) -> DataLoader:
        """Return itself."""
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Close the loader; after an error of CUDA without destroying DALI's pipeline, which would abort."""
        self._run.pipelines.pipeline.leave_after(error)
        self.close()


def run_of(loader: DataLoader) -> LoaderRun:
    """Get the run of a loader, for other parts of this package."""
    return loader._run
