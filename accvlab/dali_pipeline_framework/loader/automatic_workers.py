# SPDX-License-Identifier: Apache-2.0
"""``num_workers="auto"``: how many worker processes and threads, from a few samples and the usable cores.

::

    first samples, in this process          what a sample costs               the choice
    a copy of the input: get_data     ──>   wall_s, cpu_s: loading, and ──>   workers that keep up with the steps,
    and the steps on arrays                 the steps on arrays               and threads
    a pipeline without workers        ──>   graph_s: other steps, on the CPU

Nothing that is delivered depends on the choice.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import os
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias

import attrs
from nvidia.dali import types

from ..checks import shown
from ..draws.keyed_random import kept_global_generators
from ..engine.dali.graph_inspection import num_usable_gpus
from ..engine.source_pickling import pickler_functions
from ..engine.timing import queued_time
from ..engine.worker_process import pass_on_interrupt
from ..engine.worker_source import infos_of_batch
from ..engine.workers import refuse_while_main_script_is_imported, warn_of_many_workers
from ..errors import SettingError
from ..limits.worker_limits import checked_worker_count, free_memory
from ..pipeline.chains.array_steps import ArraySteps
from ..pipeline.pipeline import PipelineDefinition
from ..sources.input_adapter import InputAdapter
from ..sources.input_parts import InputParts
from ..sources.shards import num_cores_of_rank
from .input_binding import LoaderInput

_logger = logging.getLogger(__name__)

WorkerArgument: TypeAlias = int | Literal["auto"]

_MOST_SAMPLES = 16  # to load for the measurement, where they do not share a larger batch
_MOST_LOADING_S = 1.0
_LONGEST_BATCH_S = 0.25  # where loading takes longer than this, the steps are not measured
_MOST_GRAPH_S = 0.5
_MOST_GRAPH_RUNS = 8

_MOST_BY_DEFAULT = 8
_MOST_SAMPLES_PER_S = 2000  # what one process can hand over to a graph, at best
_MOST_PER_CORE = 4  # workers that wait for files or a network
_MOST_WAITING = 32
_MOST_UNMEASURED = 4
_BYTES_PER_WORKER = 400 * 2**20  # an interpreter with DALI and PyTorch, and its share of the batches


@attrs.frozen
class SampleCost:
    """What a sample costs, in seconds.

    Attributes:
        wall_s: Time to load it and to apply the steps on arrays, without the time in which other processes had the
            cores.
        cpu_s: Processor time of that.
        graph_s: Processor time of the steps in the graph; 0 where it was not measured.
        input_bytes: Size of the pickled input, of which each worker has a copy.
    """

    wall_s: float
    cpu_s: float
    graph_s: float = 0.0
    input_bytes: int = 0


@attrs.frozen
class Resources:
    """What there is for one loader.

    Attributes:
        num_cores: Cores of this rank.
        memory: Bytes that are free, for this rank.
        num_batches: Batches of an epoch on this shard; None where that is not known.
    """

    num_cores: int
    memory: int
    num_batches: int | None = None


@attrs.frozen
class WorkerChoice:
    """A choice.

    Attributes:
        num_workers: Worker processes.
        num_threads: Threads of the pipeline; None as without the choice.
        reason: Why, for people.
    """

    num_workers: int
    num_threads: int | None
    reason: str


def checked_num_workers(
    value: Any, start_method: str, definition: PipelineDefinition, device_id: int | None
) -> WorkerArgument:
    """Check the argument ``num_workers``; find it out where it is None.

    Raises:
        SettingError: It is neither a whole number of at least 0 nor ``"auto"``, or there is no memory for so many.
    """
    if value is None:
        has_steps = callable(definition.data_input) and definition.array_steps(_has_gpu(device_id)) is not None
        return min(num_cores_of_rank(), _MOST_BY_DEFAULT) if has_steps else 1
    if not isinstance(value, str):
        count = checked_worker_count(value, "num_workers", start_method)
        if definition.uses_workers and InputParts.of(definition.data_input).main is not None:
            warn_of_many_workers(count, "num_workers")
        return count
    if str.__str__(value) == "auto":
        return "auto"
    raise SettingError(f"`num_workers` must be a whole number of at least 0 or 'auto', got {shown(value)}.")


def _has_gpu(device_id: int | None) -> bool:
    return device_id is not None and num_usable_gpus() > 0


def choose_for(definition: PipelineDefinition, bound: LoaderInput, arguments: Mapping[str, Any]) -> WorkerChoice:
    """Measure the input and the steps of a loader, with arguments of `get_dali_pipeline`, and choose; log it."""
    refuse_while_main_script_is_imported()
    choice = _choice_for(definition, bound, arguments)
    threads = "" if choice.num_threads is None else f", num_threads={choice.num_threads}"
    _logger.info("num_workers='auto': num_workers=%d%s (%s)", choice.num_workers, threads, choice.reason)
    return choice


def _choice_for(definition: PipelineDefinition, bound: LoaderInput, arguments: Mapping[str, Any]) -> WorkerChoice:
    if bound.is_read_natively:
        return WorkerChoice(0, None, "operators of DALI read all of it, in threads")
    if not definition.uses_workers:
        return WorkerChoice(0, None, "the definition has `use_parallel_external_source=False`")
    if not bound.is_callable:
        return WorkerChoice(1, None, "an iterable is loaded by one worker")
    num_cores = num_cores_of_rank()
    memory = free_memory() * num_cores // len(os.sched_getaffinity(0))
    resources = Resources(num_cores, memory, InputAdapter(bound.data_input).num_batches_here(0))
    try:
        with kept_global_generators(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cost = measure(definition, bound, arguments)
    except BaseException as error:  # a worker raises it again, with all that is to say about it
        pass_on_interrupt(error)
        return choose_unmeasured(resources, type(error).__name__)
    return choose_unmeasured(resources, "there is no sample") if cost is None else choose(cost, resources)


def choose_unmeasured(resources: Resources, problem: str) -> WorkerChoice:
    """Choose where no sample could be loaded."""
    num_workers = _bounded(min(resources.num_cores, _MOST_UNMEASURED), resources, 0)
    return WorkerChoice(num_workers, None, f"loading could not be measured here: {problem}")


def choose(cost: SampleCost, resources: Resources) -> WorkerChoice:
    """Choose as many workers as keep up with the steps.

    The cores take ``num_cores / (cpu_s + graph_s)`` samples per second if they do nothing else, and a worker loads
    ``1 / wall_s``. Loading that mostly waits may take more workers than there are cores.
    """
    num_cores = resources.num_cores
    busy_s = cost.cpu_s + cost.graph_s
    rate = min(_MOST_SAMPLES_PER_S, num_cores / busy_s) if busy_s > 0 else _MOST_SAMPLES_PER_S
    waits = cost.cpu_s < cost.wall_s / 2
    most = min(_MOST_PER_CORE * num_cores, max(_MOST_WAITING, num_cores)) if waits else num_cores
    # A little more than a whole number of workers is not worth another one.
    num_workers = _bounded(min(most, math.ceil(rate * cost.wall_s - 0.1)), resources, cost.input_bytes)
    share = min(1.0, cost.cpu_s / cost.wall_s) if cost.wall_s > 0 else 1.0
    num_threads = max(math.ceil(num_cores / 2), round(num_cores - num_workers * share))
    parts = [f"loading a sample takes {_ms(cost.wall_s)}, {_ms(cost.cpu_s)} of it on a processor"]
    if cost.graph_s > 0:
        parts.append(f"the steps {_ms(cost.graph_s)}")
    parts.append(f"{num_cores} usable core{'s' * (num_cores > 1)}")
    return WorkerChoice(num_workers, num_threads, "; ".join(parts))


def _bounded(num_workers: int, resources: Resources, input_bytes: int) -> int:
    affordable = resources.memory // 2 // (_BYTES_PER_WORKER + 2 * input_bytes)
    useful = num_workers if resources.num_batches is None else resources.num_batches
    return max(1, min(num_workers, affordable, useful))


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.2g} ms" if seconds < 0.1 else f"{seconds * 1000:.0f} ms"


# --- measuring ----------------------------------------------------------------------------------------


def measure(definition: PipelineDefinition, bound: LoaderInput, arguments: Mapping[str, Any]) -> SampleCost | None:
    """Load the first samples in this process, from a copy of the input as workers get it, and apply the steps.

    Returns:
        What a sample costs; None where there is no sample.
    """
    dumps, loads = pickler_functions(arguments.get("py_callback_pickler"))
    pickled = dumps(bound.data_input)
    source = loads(pickled)
    has_gpu = _has_gpu(arguments.get("device_id"))
    loaded = _loading_cost(
        source, bound.batch_size, None if definition.replays_draws else definition.array_steps(has_gpu)
    )
    if loaded is None:
        return None
    wall_s, cpu_s = loaded
    graph_s = 0.0
    is_on_cpu = arguments.get("device_id") is None and not bound.parts.native
    if is_on_cpu and wall_s * bound.batch_size < _LONGEST_BATCH_S:
        whole = definition.with_input(bound.parts.with_main(source))
        graph_s = max(0.0, _cost_without_workers(whole, arguments) - cpu_s)
    return SampleCost(wall_s, cpu_s, graph_s, len(pickled))


def _loading_cost(
    source: Any, batch_size: int, array_steps: ArraySteps | None = None
) -> tuple[float, float] | None:
    """Wall-clock and processor time per sample, with the steps that run in the workers.

    The first batch counts only where there is no other.
    """
    batches: list[tuple[int, float, float]] = []
    start = time.perf_counter()
    for batch in itertools.count():
        wall, cpu, num_samples = _running_s(), time.process_time(), 0
        for sample in _samples(source, batch, batch_size):
            if array_steps is not None:
                array_steps.try_on(sample)
            num_samples += 1
            if time.perf_counter() - start > _MOST_LOADING_S:
                break
        if num_samples == 0:
            break
        batches.append((num_samples, _running_s() - wall, time.process_time() - cpu))
        has_enough = len(batches) > 1 and len(batches) * batch_size >= _MOST_SAMPLES
        if has_enough or time.perf_counter() - start > _MOST_LOADING_S / 2:
            break
    counted = batches[1:] or batches
    num_samples = sum(num for num, _, _ in counted)
    if num_samples == 0:
        return None
    return sum(wall for _, wall, _ in counted) / num_samples, sum(cpu for _, _, cpu in counted) / num_samples


def _running_s() -> float:
    """A clock that stands still while this thread could go on, but other processes have the cores."""
    return time.perf_counter() - queued_time(threading.get_native_id()) * 1e-9


def _samples(source: Any, batch: int, batch_size: int) -> Iterator[Any]:
    infos = infos_of_batch(batch, batch_size, batch_size)
    yield from source.iter_batch(infos) if hasattr(source, "iter_batch") else _until_end(source, infos)


def _until_end(source: Any, infos: list[types.SampleInfo]) -> Iterator[Any]:
    for info in infos:
        try:
            yield source(info)
        except StopIteration:
            return


def _cost_without_workers(definition: PipelineDefinition, arguments: Mapping[str, Any]) -> float:
    """Processor time per sample of a pipeline that loads in this process; 0 for an epoch of a single batch."""
    own = {"py_num_workers": 0, "prefetch_queue_depth": 1, "worker_init_fn": None, "enable_checkpointing": False}
    pipeline: Any = definition.get_dali_pipeline(**{**arguments, **own})
    try:
        pipeline.run()
        start, cpu, num_runs = time.perf_counter(), time.process_time(), 0
        with contextlib.suppress(StopIteration):
            while num_runs < _MOST_GRAPH_RUNS and time.perf_counter() - start < _MOST_GRAPH_S:
                pipeline.run()
                num_runs += 1
        spent = time.process_time() - cpu
        return spent / (num_runs * pipeline.max_batch_size) if num_runs else 0.0
    finally:
        pipeline.close()
