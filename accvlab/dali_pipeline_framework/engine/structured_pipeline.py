# SPDX-License-Identifier: Apache-2.0
"""The DALI pipeline that `PipelineDefinition` returns: one that can restart, close, and say what failed."""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import os
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter_ns
from typing import Any, cast

from nvidia.dali import backend, types
from nvidia.dali.pipeline import Pipeline

from ..errors import ClosedError, FrameworkError, NotSupportedError, OutputError
from ..forks import leave_process, left_to_parent
from ..sample_data import SampleDataGroup
from ..sampling.played_sampler import PlayedSampler
from ..sources.input_adapter import InputAdapter
from ..sources.native_input import NativeInput, NativeRun
from ..sources.positions import infos_of_batch
from ..user_warnings import warn_user
from ..workers.process_setup import comes_from_signal_handler
from ..workers.reports import ReportedFailure, WorkerReport
from ..workers.starting import refuse_where_none_can_be_started
from .dali.left_pipelines import leave_pipeline, leave_pipelines_with_gpu
from .dali.texts import is_about_lost_gpu
from .dali.worker_queues import unblockable_queues
from .failure_diagnosis import Culprit, FailureDiagnosis
from .input_sources import CallableSource, FedSource, InputSource
from .pipeline_errors import FailedBatch, dtype_problems, graph_error, setup_error, worker_error
from .timing import StageTimes
from .transport import Delivery

_logger = logging.getLogger(__name__)

_AS_IT_IS = contextlib.nullcontext()


class _Unchecked(contextlib.AbstractContextManager[None]):
    """Calls of a pipeline within each other: only the outermost one is checked."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def __enter__(self) -> None:
        self._pipeline._skip_api_check = True

    def __exit__(self, *exception: object) -> None:
        self._pipeline._skip_api_check = False


def reuse_host_memory() -> None:
    """Have DALI keep large blocks of host memory for the next batch, unless the environment says otherwise.

    By default it keeps those of 32 MB and more, and takes smaller ones from the C library, which gives them back
    to the system with each batch, and memory that comes from there anew is cleared page by page, which can cost as
    much as all else that the process does for a batch.

    DALI looks at this when it takes memory for the first time in a process.
    """
    os.environ.setdefault("DALI_MALLOC_POOL_THRESHOLD", "1M")


_open: weakref.WeakSet[StructuredPipeline] = weakref.WeakSet()


# At exit, `multiprocessing` waits indefinitely for workers that nobody has ended. Exit functions run in the
# reverse order of their registration: its own was registered when the module of the pool was imported.
@atexit.register
def _close_all() -> None:
    for pipeline in list(_open):
        pipeline.leave_after(getattr(sys, "last_value", None))  # what has ended the main script, without a `with`
        pipeline.close()


# It does not hold a pipeline of DALI, but is one: DALI's iterators and code written for accvlab check for DALI's
# class, and failures are noted where DALI's methods call each other (`run`, `schedule_run`, `_iter_setup`).
class StructuredPipeline(Pipeline):
    """A DALI pipeline with a known sample format.

    It is an ordinary `nvidia.dali.Pipeline`; in addition

    - a failure of an operator is raised when the batch that it belongs to is due, not while earlier batches wait
      to be delivered, and again on every later call;
    - the error names field, sample and cause (`SourceError`, `GraphError`);
    - `restart_epoch` works in the middle of an epoch;
    - `close` destroys DALI's pipeline, with its workers.

    Get one from `PipelineDefinition.get_dali_pipeline`.

    Attributes:
        blueprint: Format of the output.
        data_input: The user's input.
        native: The input, if operators of DALI read it in the graph, without workers; else None.
        checks_dtypes: Whether the first batch is compared with the blueprint.
        delivery: Places of the fields in the outputs of the graph.
        plan: Text with the steps that run in the workers, and the folded and packed fields; see
            `PipelineDefinition.plan`.
        steps_in_workers: How many of the steps run in the workers.
        not_folded: Why a step that treats elements alike is not applied to folded arrays, by the number of the
            step.
        merged_fields: Fields whose elements the graph joins to one node, after steps that changed single elements.
        num_samples: Samples per batch; the batch of the graph holds more where arrays are folded.
        unused_fields: Fields that workers load, and that nothing depends on.
        random_operators: Random operators that steps define besides their draws.
        last_changed_by: For each output field, the step (or the input) that set it last.
        source: What DALI calls for samples; None where only native readers read.
        may_bind_outputs: Whether the graph copies nothing from a GPU to the CPU, so that the host need not wait
            for the GPU.
        diagnosis: Finds the samples that made a batch fail; None if the samples of a batch are not known.
        culprits: The samples that ``diagnosis`` has found.
        fed: The source that hands over the batches of a pool; None if DALI loads by itself.
    """

    blueprint: SampleDataGroup
    data_input: Any
    native: NativeInput | None
    checks_dtypes: bool
    delivery: Delivery
    plan: str
    steps_in_workers: int
    not_folded: Mapping[int, str]
    merged_fields: Sequence[str]
    num_samples: int = 0  # not known while the graph is defined
    unused_fields: Sequence[str]
    random_operators: Sequence[str]
    last_changed_by: Sequence[str]
    source: InputSource | None
    may_bind_outputs: bool
    diagnosis: FailureDiagnosis | None

    times: StageTimes
    num_delivered: int = 0  # batches since the start
    failure: Exception | None = None  # also where that is not due yet; nothing comes after it
    _num_before_failure: int = 0  # batches that are delivered, since the start, before the failure is due
    _is_failure_due: bool = False  # whether the batch that failed is due
    _first_in_epoch: int = 0  # batch at which the epoch began: 0, except after a checkpoint was restored
    _num_in_epoch: int = 0  # batches delivered since then
    _native_run: NativeRun | None = None  # position of the native input, once the pipeline is built
    _has_scheduled: bool = False  # whether a batch of the current epoch was scheduled
    _num_iterators: int = 0
    is_closed: bool = False
    _is_left: bool = False  # to the process from which this one was forked
    culprits: Sequence[Culprit] = ()
    fed: FedSource | None = None
    _delivers_graph_outputs: bool = False

    def complete(self, **attributes: Any) -> None:
        """Set the attributes of this class that have no default, once the graph is defined."""
        vars(self).update(attributes, times=StageTimes())
        self._pid = os.getpid()
        left_to_parent(self, StructuredPipeline._leave)
        self.fed = self.source if isinstance(self.source, FedSource) else None

    @property
    def max_batch_size(self) -> int:
        """Samples per batch; while the graph is defined, the batch size of the graph."""
        return self.num_samples or int(super().max_batch_size)

    batch_size = max_batch_size

    @property
    def output_blueprint(self) -> SampleDataGroup:
        """Format of the output, as an empty copy."""
        return self.blueprint.get_empty_like_self()

    def order_by_sample(self) -> None:
        """Have the elements of arrays ordered sample by sample, which makes stacking them a reshape.

        The order cannot be changed once the workers are started.
        """
        layout = self.delivery.layout
        if layout is not None and not self._py_pool_started and not self._built:
            layout.is_by_sample = True

    @property
    def ragged_advice(self) -> str:
        """What to do where samples of a batch have different shapes, if a native input knows; else empty."""
        return "" if self.native is None else self.native.ragged_advice

    # --- starting ---------------------------------------------------------------------------------

    def start_py_workers(self) -> None:
        """Start the worker processes of DALI, if there are any to start.

        Raises:
            WorkerStartError: They could not be started.
        """
        self._require_open()
        if self.source is not None and self.source.is_parallel and not self._py_pool_started:
            refuse_where_none_can_be_started()
            planned = InputAdapter(self.data_input).planned
            if planned is not None and isinstance(planned.sampler, PlayedSampler):
                planned.sampler.play_to_the_end()
        depth = self._prefetch_queue_depth
        try:
            if isinstance(depth, dict):  # DALI's worker pool takes only a single depth
                self._prefetch_queue_depth = max(depth.values())
            with unblockable_queues():
                super().start_py_workers()
        except (RuntimeError, OSError) as error:
            explained = worker_error(error)
            if explained is None:
                raise
            raise explained from error
        finally:
            self._prefetch_queue_depth = depth
        _open.add(self)

    def build(self) -> None:
        """Build the pipeline, and start its worker processes if that was not done before."""
        if self._built and not self.is_closed:
            return
        self._require_open()
        if not self._built and self.unused_fields:
            warn_user(
                f"These fields are not used, though loaded for each sample: no step reads them, and they do not "
                f"reach the output: {', '.join(self.unused_fields)}. Leave fields out of the blueprint "
                f"of the data provider (`sample_data_structure`), and draws out of what the step declares."
            )
        reuse_host_memory()
        self.start_py_workers()
        try:
            super().build()
        except RuntimeError as error:
            explained = setup_error(self.native, error)
            if explained is None:
                raise
            raise explained from error
        self._first_in_epoch = self._consumer_iter
        if self.native is not None:
            self._native_run = self.native.begin(self)
            # Of a checkpoint that was restored: DALI counts the end of an epoch like a batch, so it is told.
            self._consumer_iter = self._first_in_epoch = self._native_run.continue_at(self._consumer_iter)
        vars(self)["build"] = type(None)  # DALI calls it five times per batch: nothing is to be done until `close`

    # --- running ----------------------------------------------------------------------------------

    def _check_api_type_scope(self, type: types.PipelineAPIType) -> contextlib.AbstractContextManager[None]:
        """Do as DALI does, which makes a class for each call: three of them take 0.1 ms per batch."""
        if self._skip_api_check:
            return _AS_IT_IS
        self._check_api_type(type)
        return self._unchecked

    @functools.cached_property
    def _unchecked(self) -> _Unchecked:
        return _Unchecked(weakref.proxy(self))

    def schedule_run(self) -> None:
        """Schedule the next batch. A failure to do so is kept until that batch is due."""
        if not self._built or self.is_closed:
            self.build()
        if self.failure is not None or (self._native_run is not None and not self._await_input()):
            return
        self._has_scheduled = True
        try:
            if not self._exec_async:
                # DALI waits indefinitely for the buffer that holds the batch delivered last.
                self.release_outputs()
            if self._native_run is not None and self._native_run.is_awaited:
                self._schedule_awaited(self._native_run)
            else:
                super().schedule_run()
        except StopIteration:
            raise
        except Exception as error:
            if comes_from_signal_handler(error):
                self.failure = _interrupted()
                raise
            ahead = self._batches_to_consume
            if not self._exec_async and WorkerReport.find(error) is None:
                ahead -= 1  # the graph has run and failed in this call, when the batch was counted already
            self.failure = self._explained(error, ahead)
            self._num_before_failure = self.num_delivered + ahead
        except BaseException:
            self.failure = _interrupted()
            raise

    def _await_input(self) -> bool:
        """Wait for a native input that has nothing ready yet, unless there are batches to deliver meanwhile.

        Returns:
            Whether a batch can be scheduled.
        """
        if self._native_run is None or not self._native_run.is_awaited:
            return True
        if self.empty() and not self._last_iter:
            self._native_run.wait()
        return self._native_run.is_ready()

    def _schedule_awaited(self, run: NativeRun) -> None:
        # DALI would begin several batches at first, whether there is something for them or not.
        self._first_iter = False
        depth = self._cpu_queue_size if self._exec_pipelined else 1
        while True:
            super().schedule_run()
            if self._last_iter or self._batches_to_consume >= depth or not run.is_ready():
                return

    def _iter_setup(self) -> None:
        """Called by DALI before a batch is scheduled: native readers have no end, so they are counted here."""
        if self._native_run is not None:
            self._native_run.begin_batch()
        began = perf_counter_ns()
        super()._iter_setup()
        self.times.input_ns += perf_counter_ns() - began

    def outputs(self, cuda_stream: Any = None) -> Any:
        """Get the outputs of the next batch. See `nvidia.dali.Pipeline.outputs`."""
        return self._receive(super().outputs, cuda_stream)

    def share_outputs(self, cuda_stream: Any = None) -> Any:
        """Get the outputs of the next batch. See `nvidia.dali.Pipeline.share_outputs`."""
        return self._receive(super().share_outputs, cuda_stream)

    def run_graph(self, cuda_stream: Any = None) -> Any:
        """Get the outputs of the graph for the next batch; `delivery` knows where the fields are in them.

        Args:
            cuda_stream: The stream that waits for them; None: this call waits.
        """
        self._delivers_graph_outputs = True
        try:
            return self.run(cuda_stream)
        finally:
            self._delivers_graph_outputs = False

    def _receive(self, get_outputs: Callable[[Any], Any], cuda_stream: Any) -> Any:
        if self.is_closed:
            self._require_open()
        if self.failure is not None and (
            self._is_failure_due or self.empty() or self.num_delivered >= self._num_before_failure
        ):
            self._raise_failure()
        try:
            batch = get_outputs(cuda_stream)
            self._num_in_epoch += 1
            self.num_delivered += 1
        except StopIteration:
            raise
        except Exception as error:
            if comes_from_signal_handler(error):
                self.failure = _interrupted()
                raise
            self.failure = self._explained(error, 0)
            self._raise_failure()
        # Native readers give what is in the files, and that may change from one to the next.
        if self.checks_dtypes and (self.num_delivered == 1 or self._native_run is not None):
            self._check_dtypes(batch)
        is_of_graph = self._delivers_graph_outputs or self.fed is not None
        return batch if is_of_graph else tuple(self.delivery.tensor_lists(batch))

    def _check_dtypes(self, batch: Sequence[Any]) -> None:
        problems = dtype_problems(self.blueprint.format, self.delivery, self.last_changed_by, batch)
        if problems:
            self.failure = OutputError(
                "The data do not have the types of the declared format. Make the step produce the declared "
                "type (e.g. with fn.cast), or change the declaration:\n" + "\n".join(problems)
            )
            self._raise_failure()

    # --- epochs -----------------------------------------------------------------------------------

    def reset(self) -> None:
        """Start the next epoch once the current one has ended; `restart_epoch` does so at any time."""
        has_ended = self._last_iter
        super().reset()
        if has_ended and self.empty():
            self._num_in_epoch = 0
            self._first_in_epoch = 0
            self._has_scheduled = False
            if self._native_run is not None:
                self._native_run.begin_epoch()

    def is_at_start_of_epoch(self) -> bool:
        """Whether starting the next epoch would skip nothing.

        True before the first batch of an epoch was delivered, and always for an input without epochs (an
        endless stream), until it has ended after all.
        """
        if not InputAdapter(self.data_input).has_epochs:
            return not (self._last_iter and self.empty())
        return self._num_in_epoch == 0

    def restart_epoch(self) -> None:
        """End the current epoch at its present batch, so that the next batch is the first of the next epoch.

        Batches that are being prepared already are finished and thrown away; the workers load nothing more
        for the old epoch. Nothing happens at the start of an epoch. An input without epochs (an endless
        stream) continues at its position and loses nothing.

        Raises:
            FrameworkError: The pipeline has failed or was closed; it cannot be continued.
        """
        self._require_running()
        if self.is_at_start_of_epoch():
            if self._last_iter and self.empty():  # an epoch without batches, e.g. what a checkpoint left of it
                self.reset()
            return
        self._end_epoch()

    def checkpoints(self) -> list[str]:
        """Get the checkpoint of this pipeline as DALI's iterators give theirs."""
        return [self.checkpoint()]

    def begin_at(self, position: tuple[int, int]) -> None:
        """Go on at any batch of what a pool loads; what is being prepared is finished and thrown away."""
        self._require_running()
        fed = self.fed
        if fed is None:
            raise NotSupportedError("Only a pipeline that a pool feeds begins anywhere.")
        if self._has_scheduled:
            fed.stop()
            self._end_epoch()
        fed.begin(position)

    def _end_epoch(self) -> None:
        """Throw away what is being prepared, and load no more; iterables are played to their end."""
        if callable(self.data_input):
            self._last_iter = True  # DALI asks for nothing more then
        with contextlib.suppress(StopIteration):
            while not (self._last_iter and self.empty()):
                self._throw_batch_away()
        self.reset()

    @property
    def num_batches_read(self) -> int | None:
        """Number of batches of an epoch of a native reader, None for other inputs; builds the pipeline."""
        if self.native is None:
            return None
        self.build()
        return None if self._native_run is None else self._native_run.num_batches

    def _throw_batch_away(self) -> None:
        if self._api_type == types.PipelineAPIType.SCHEDULED:  # DALI refuses to mix the two
            self.schedule_run()
            self.share_outputs()
            self.release_outputs()
        else:
            self.run()

    # --- closing ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Destroy DALI's pipeline, with its workers. It cannot be used after that.

        Batches that were delivered stay valid. Closing a second time does nothing, and neither does closing in a
        forked child of the process that built the pipeline.
        """
        if self.is_closed or os.getpid() != self._pid:  # by a finalizer, where it is not left yet
            return
        self.is_closed = True
        vars(self).pop("build", None)
        if self._native_run is not None:
            self._native_run.close()
        self.leave_after(self.failure)
        has_gpu = self.device_id is not None and self._pipe is not None
        self._shutdown()
        if has_gpu:  # else another loader, or the model, would find it used by nobody
            cast(Any, backend).ReleaseUnusedMemory()
        if self._py_pool is not None:
            self._py_pool.close()

    def leave_after(self, error: BaseException | None) -> None:
        """Where an error has lost the GPU, leave all pipelines as they are: to destroy one ends the process."""
        if self.device_id is not None and self._pipe is not None and is_about_lost_gpu(error):
            # Else the process might end before Python shows it.
            _logger.error("A call of CUDA has failed; nothing more can be done on this GPU.", exc_info=error)
            leave_pipelines_with_gpu()

    def _leave(self) -> None:
        """In a forked child, leave workers and threads to the parent."""
        if self._pipe is None and self._py_pool is None:  # nothing was started
            self._pid = os.getpid()
            return
        self.is_closed = self._is_left = True
        vars(self).pop("build", None)
        leave_pipeline(self)
        if self._py_pool is not None:
            pool = self._py_pool.pool
            pool._observer = None  # which ends the workers
            for process in pool._processes:
                leave_process(process)

    def end_wait(self) -> None:
        """Have a thread that waits for a stream wait no more."""
        if self._native_run is not None:
            self._native_run.close()

    def attach_iterator(self) -> None:
        """Register an iterator over this pipeline.

        Raises:
            ClosedError: The pipeline was closed.
        """
        self._require_open()
        self._num_iterators += 1

    def detach_iterator(self) -> None:
        """Unregister an iterator; the last one closes the pipeline."""
        self._num_iterators -= 1
        if self._num_iterators == 0:
            self.close()

    def _require_running(self) -> None:
        self._require_open()
        if self.failure is not None:
            self._raise_failure()

    def _require_open(self) -> None:
        if self.is_closed:
            problem = "The pipeline was closed, either by close() or together with the last iterator over it"
            if self._is_left:
                problem = "The pipeline was built in the process from which this one was forked"
            raise ClosedError(f"{problem}. Get a new one from PipelineDefinition.get_dali_pipeline().")

    # --- failures ---------------------------------------------------------------------------------

    def _raise_failure(self) -> None:
        if not self._is_failure_due and self._py_pool is not None:
            self._py_pool.close()  # nothing comes any more, and who keeps the error keeps the pipeline
        self._is_failure_due = True
        if self.failure is not None:
            raise self.failure.with_traceback(None) from self.failure.__cause__

    def _explained(self, error: Exception, ahead: int) -> Exception:
        """Make the error that names what failed, from what DALI raised.

        Args:
            error: What DALI raised.
            ahead: How many batches are to be delivered before the one that failed.
        """
        if isinstance(error, FrameworkError):
            return error
        report = WorkerReport.find(error)
        if report is not None:
            explained: Exception = report.to_error()
            if isinstance(error, ReportedFailure):  # it happened in this process, so the original is here
                explained.__cause__ = error.__cause__
            return explained
        lost = worker_error(error)
        if lost is not None:
            return lost
        iteration = self._first_in_epoch + self._num_in_epoch + ahead
        position, fed, find = (self._epoch_idx, iteration), self.fed, None
        batch_in_all = self.num_delivered + ahead
        holds = "" if self._native_run is None else f" {self._native_run.describe_batch(batch_in_all)}".rstrip()
        if fed is not None and 0 <= ahead < len(fed.handed):
            batch = fed.handed[ahead]
            position = batch.position
            if self.diagnosis is not None:
                others = [] if fed.received is not None else [each for each in fed.handed if each is not batch]
                find = functools.partial(self.diagnosis.find, error, batch, others[:1], fed.received is not None)
        elif isinstance(self.source, CallableSource) and (called := self.source.called(position)):
            if self.diagnosis is not None:
                has_passed = self.num_delivered > 0
                find = functools.partial(self.diagnosis.find, error, called[0], called[1:2], has_passed)
        elif callable(self.data_input):
            adapter, infos = InputAdapter(self.data_input), infos_of_batch(*position, self.num_samples)
            with contextlib.suppress(Exception):  # it only decorates the error
                indices = [index for index in map(adapter.sample_index, infos) if index is not None]
                holds = f" It holds the samples {', '.join(map(str, indices))}." if indices else ""
        layout = self.delivery.layout
        counted = "samples" if layout is None or layout.num_slots == 1 else "the elements of all samples"
        failed = FailedBatch(*position, holds, counted, self.merged_fields)
        made, self.culprits = graph_error(failed, error, self.native, find)
        return made


def _interrupted() -> ClosedError:
    return ClosedError(
        "The pipeline was interrupted while it waited for a batch, and cannot be continued. Get a new one from "
        "PipelineDefinition.get_dali_pipeline()."
    )
