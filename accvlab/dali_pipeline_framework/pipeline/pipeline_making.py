# SPDX-License-Identifier: Apache-2.0
"""Makes the pipeline of DALI of a chain: what workers load, the graph, and what the pipeline is to know."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, cast

import attrs
import numpy as np
from nvidia.dali.pipeline import Pipeline

from ..checks import shown
from ..draws.random_draws import DrawSource
from ..engine.dali.gpus import log_cpu_fallback_once, num_usable_gpus, require_usable_gpu
from ..engine.dali.graph_definition import move_to_cpu
from ..engine.failure_diagnosis import FailureDiagnosis
from ..engine.input_sources import CallableSource, FedSource, InputSource, IterableSource
from ..engine.structured_pipeline import StructuredPipeline
from ..errors import DeviceError, SettingError
from ..sample_data import SampleDataGroup
from ..sample_data.dtypes import get_numpy_type_for_dali_type
from ..sources.planned_input import PlannedInput
from ..sources.shards import Shard, detected_rank
from ..user_warnings import warn_user
from ..workers.loading_plan import LoadingPlan
from ..workers.packing import TransportLayout
from ..workers.pickling import pickler_functions
from ..workers.process_setup import WorkerSetup
from .chain import ArraySteps, Chain, Placement, step_name, with_image_files
from .graph import Graph, SentItems, define_pipeline, define_pipeline_of_given
from .pipeline_arguments import (
    PipelineArguments,
    complete_arguments,
    is_count,
    require_gpu,
    seed_of_shard,
)


def make_pipeline(
    chain: Chain,
    arguments: PipelineArguments,
    worker_init_fn: Callable[[int], object] | None,
    *,
    is_fed: bool = False,
) -> Pipeline:
    """Make a pipeline; see `PipelineDefinition.get_dali_pipeline`.

    Args:
        chain: Input and steps.
        arguments: Arguments of DALI's pipeline, by name; they are completed.
        worker_init_fn: Called once in each worker process.
        is_fed: Whether a pool of workers feeds it, and not DALI's own.
    """
    if worker_init_fn is not None and not callable(worker_init_fn):
        raise SettingError(
            f"`worker_init_fn` must be a function of the worker number, got {shown(worker_init_fn)}."
        )
    chain = _with_batch_size(chain, arguments)
    output, plan, copier = chain.output()
    is_parallel = chain.is_parallel and arguments.get("py_num_workers") != 0 and not chain.is_native
    is_parallel = is_parallel and not is_fed
    complete_arguments(arguments, chain.data_input, is_parallel)
    batch_size, num_workers = arguments["batch_size"], arguments.get("py_num_workers", 1)
    seed, device_id, is_debug = arguments.get("seed", 0), arguments["device_id"], bool(arguments.get("debug"))
    if "seed" in arguments:
        arguments["seed"] = seed_of_shard(seed, chain.shard or Shard(0, 1))
    lacks_gpu = device_id is not None and num_usable_gpus() == 0
    require_usable_gpu(device_id)
    if lacks_gpu and is_debug:  # DALI would abort the process
        problem = f"The pipeline has device_id={device_id} with debug=True"
        raise DeviceError(f"{problem}, but no GPU is usable here. Pass device_id=None to debug on the CPU.")
    # Workers share the work batch by batch, so with fewer batches in flight some would have nothing to do.
    num_ahead = max(chain.prefetch_queue_depth, num_workers)
    has_gpu = device_id is not None and not lacks_gpu
    placement = chain.placement(has_gpu)
    steps = chain.array_steps(placement)
    draws = chain.keyed_draws(plan, seed, batch_size, steps)
    source = None
    if not chain.is_native:
        loading = _loading_plan(chain, arguments, seed, draws, worker_init_fn, steps)
        kinds = CallableSource if callable(chain.data_input) else IterableSource
        source = FedSource(loading) if is_fed else kinds(loading, is_parallel)
    blueprint = chain.blueprint_of_steps()
    if steps is not None:
        blueprint = SampleDataGroup.from_format(steps.output_format)
    # What is said about the outputs of DALI holds for fields that have an output each.
    about_outputs = ("output_dtype", "output_ndim", "output_layout")
    is_packed = not is_debug and all(arguments.get(name) is None for name in about_outputs)
    sent = SentItems.of(chain, plan.draws, steps, placement.pixels, is_drawn=draws is not None)
    in_graph = functools.partial(Graph, chain, placement, blueprint, plan, sent)
    graph = in_graph(
        {} if source is None else source.arguments(num_ahead),
        copier,
        seed=seed,
        is_packed=is_packed,
        num_slots=chain.num_slots(blueprint, placement) if is_packed else 1,
        operator_seed=arguments.get("seed"),
    )
    pipeline = _defined(graph, arguments, lacks_gpu)
    if source is not None:
        layout = graph.delivery.layout if is_packed else None
        source.plan.layout = layout or TransportLayout.of_plain(len(sent.dtypes))
    if not isinstance(pipeline, StructuredPipeline):  # for `debug`, whose graph is defined batch by batch
        return pipeline
    define = functools.partial(define_pipeline_of_given, in_graph, arguments)
    _complete(pipeline, graph, output, source, steps, batch_size, define)
    return pipeline


def _loading_plan(
    chain: Chain,
    arguments: PipelineArguments,
    seed: int,
    draws: DrawSource | None,
    worker_init_fn: Callable[[int], object] | None,
    steps: ArraySteps | None,
) -> LoadingPlan:
    """Get what loading samples depends on."""
    shard = chain.shard
    rank = shard.shard_id if shard is not None and shard.num_shards > 1 else detected_rank()
    return LoadingPlan(
        chain.data_input,
        with_image_files(chain.input_data_structure.format, chain.steps),
        pickler_functions(arguments.get("py_callback_pickler")),
        chain.sample_seeds(seed, arguments["batch_size"]),
        draws,
        WorkerSetup(seed, rank, worker_init_fn),
        steps,
    )


def _complete(
    pipeline: StructuredPipeline,
    graph: Graph,
    output: SampleDataGroup,
    source: InputSource | None,
    steps: ArraySteps | None,
    batch_size: int,
    define: Callable[..., Pipeline],
) -> None:
    """Give a pipeline whose graph is defined what it needs to restart, to close, and to say what failed."""
    chain, placement = graph.chain, graph.placement
    diagnosis = None
    if source is not None:
        names = [f"{each}: {step_name(chain.steps[each])}" for each in graph.stages]
        paths = graph.blueprint.format.flat_paths
        dtypes = [np.dtype(get_numpy_type_for_dali_type(dtype)) for dtype in graph.sent.dtypes]
        diagnosis = FailureDiagnosis(source.plan, dtypes, paths, output.format, graph.delivery, define, names)
    num_drawn = 0 if steps is None else len(steps.draws)
    pipeline.complete(
        blueprint=output,
        data_input=chain.data_input,
        native=chain.data_input if chain.is_native else None,
        checks_dtypes=chain.checks_data_format,
        delivery=graph.delivery,
        plan="\n".join([*_lines_of_placement(chain, placement), graph.plan_text]),
        steps_in_workers=placement.first_deferred,
        not_folded=graph.not_folded,
        merged_fields=graph.merged_fields,
        num_samples=batch_size,
        unused_fields=graph.sent.unused(graph.delivery.layout, graph.plan.draws, num_drawn),
        random_operators=[name for names in graph.inspection.random_users.values() for name in names],
        last_changed_by=graph.last_changed_by,
        source=source,
        may_bind_outputs=not graph.inspection.brings_data_to_cpu,
        diagnosis=diagnosis,
    )


def _with_batch_size(chain: Chain, arguments: PipelineArguments) -> Chain:
    """Give an input the batch size of the pipeline, where it has none, or can have any."""
    source, size = chain.data_input, arguments.get("batch_size")
    if not isinstance(source, PlannedInput) or source.batch_size == size:
        return chain
    if source.batch_size is None:
        bound = source.with_settings(batch_size=size)
    elif source.takes_any_batch_size and is_count(size):
        bound, consequence = cast(Any, source).for_pipeline(size)
        warn_user(consequence)
    else:
        return chain
    return attrs.evolve(chain, data_input=bound)


def _defined(graph: Graph, arguments: PipelineArguments, lacks_gpu: bool) -> Pipeline:
    """Define the graph; with a GPU that is not there for the CPU, as the arguments then say.

    Steps may draw or count while they define the graph, so that is done once, unless less can be folded.

    Raises:
        DeviceError: A step needs a GPU, and none is usable.
    """
    device_id = arguments["device_id"]

    def define() -> StructuredPipeline:
        batch_size = arguments["batch_size"] * graph.num_slots
        return define_pipeline(graph, {**arguments, "batch_size": batch_size}, StructuredPipeline)

    pipeline = define()
    if graph.num_slots > 1 and graph.num_slots_used < graph.num_slots:
        graph.num_slots = graph.num_slots_used
        pipeline = define()
    if graph.inspection.gpu_users and (lacks_gpu or device_id is None):
        require_gpu(graph.inspection.gpu_users, device_id)
    if not arguments.get("debug") and not pipeline.exec_dynamic:
        graph.inspection.require_dynamic_executor()
    if lacks_gpu:  # defined as for a GPU, to find out whether the graph needs one; before it is built it can move
        log_cpu_fallback_once(device_id)
        move_to_cpu(pipeline)
        arguments["device_id"] = None
    return pipeline


def _lines_of_placement(chain: Chain, placement: Placement) -> list[str]:
    count = placement.num_in_workers
    if not chain.steps or (chain.run == "graph" and count == 0):
        return []
    in_graph = {each.position for each in placement.pixels}
    return [
        f"in the workers: {count} of {len(chain.steps)} steps ({placement.reason})",
        *(
            f"step {position} ({step_name(step)}): on arrays, in the workers"
            + (", except for pixels" if position in in_graph else "")
            for position, step in enumerate(chain.steps[:count])
        ),
    ]
