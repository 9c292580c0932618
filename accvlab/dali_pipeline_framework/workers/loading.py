# SPDX-License-Identifier: Apache-2.0
"""Loading of one batch: samples are loaded and checked, draws computed, steps applied, and all put together.

The same code runs in a worker process, in an actor of a Ray cluster, in the main process (``num_workers=0``), and
in the workers of DALI.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import pickle
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import perf_counter_ns, process_time_ns
from typing import Any, cast

import attrs

from ..draws.keyed_draws import LoadingSamples
from ..errors import FrameworkError, SourceError, readable, text_of
from ..faults.fault_policy import Stage
from ..limits.file_limits import set_all_limits
from ..providers import frame_counts
from ..providers.sample_loading import named_index
from ..sample_data.names import format_path
from ..sources.input_adapter import InputAdapter
from ..sources.positions import Info, infos_of_batch
from .loading_plan import RUNNING_INIT_FN, UNPICKLING_INPUT, UNPICKLING_STEPS, LoadingPlan
from .messages import Answer, Ended, Failed, Loaded, Task, Work
from .packing import DimensionClashError, Memory, ReusedMemory, TooLargeError, outputs_of_batch
from .pickling import PICKLING_ADVICE, Loads
from .process_setup import (
    decorating,
    keep_freed_memory,
    noting_imports,
    pass_on_interrupt,
    use_one_thread_of_opencv,
)
from .reports import ReportedFailure, WorkerReport, names_its_file
from .samples import Array, Flat, OddSampleError, SampleChecker, SampleSteps, named_step, of_step

_ndim_of = operator.attrgetter("ndim")
_nbytes_of = operator.attrgetter("nbytes")
_END = object()
_LONGEST_REASON = 500


def _unpickled(loads: Loads, pickled: bytes, what: str) -> Any:
    try:
        return loads(pickled)
    except FrameworkError:  # e.g. a file that was changed meanwhile; says itself what to do
        raise
    except Exception as error:
        advice = ""
        if isinstance(error, ImportError | AttributeError):
            advice = (
                "\nIts classes must be importable there, where the main script is imported without what is below "
                f"its main guard: define them above it, or in a module, {PICKLING_ADVICE}."
            )
        problem = f"{what} could not be unpickled in the worker process"
        raise RuntimeError(f"{problem}: {type(error).__name__}: {text_of(error)}{advice}") from error


def begun_loader(plan: bytes | LoadingPlan, worker: int, place: str, note: Callable[[int], None]) -> BatchLoader:
    """Make the loader of a worker process, set up: generators seeded, ``worker_init_fn`` called.

    Args:
        plan: What `LoadingPlan.pickled` has returned; in a forked process the plan itself.
        worker: Number of the worker.
        place: Where it runs, for messages.
        note: Gets the stage of the set-up that begins, again with each import in it; 0 once there is none.

    Raises:
        ReportedFailure: The input cannot be unpickled here, or ``worker_init_fn`` has failed.
    """

    @contextlib.contextmanager
    def stage(number: int) -> Iterator[None]:
        note(number)
        try:
            with noting_imports(functools.partial(note, number)):
                yield
        finally:
            note(0)

    what: str | None = None
    try:
        if isinstance(plan, bytes):
            limits, rest, name, source, steps, init_fn = pickle.loads(plan)
            set_all_limits(limits)
            plan = cast(LoadingPlan, rest)
            loads = plan.pickler[1]
            with stage(UNPICKLING_INPUT):
                plan.source = _unpickled(loads, source, f"The input ({name})")
            what = "Unpickling the steps in the worker process"
            if steps is not None:
                with stage(UNPICKLING_STEPS):
                    plan.steps = loads(steps)
            what = "`worker_init_fn`"
            if init_fn is not None:
                plan.setup = attrs.evolve(plan.setup, init_fn=loads(init_fn))
        what = "`worker_init_fn`"
        use_one_thread_of_opencv()
        keep_freed_memory()
        plan.setup.seed_generators(worker)
        with stage(RUNNING_INIT_FN):
            if plan.setup.init_fn is not None:
                plan.setup.init_fn(worker)
    except BaseException as error:
        raise ReportedFailure(WorkerReport.of_exception(error, place, None, what, (), worker)) from error
    return BatchLoader(plan, worker, place, note)


@attrs.define(eq=False)
class _Batch:
    """Progress of one batch, which is kept where a sample fails: the rest is not loaded again.

    Attributes:
        task: What is to be loaded.
        infos: Positions of its samples, by number.
        flats: The arrays of what was loaded and checked, by number.
        instead: As the task had it when this was loaded.
        sent: The arrays of what has gone through the steps, by number.
    """

    task: Task
    infos: Sequence[Info]
    instead: Mapping[int, int | None]
    flats: dict[int, Flat] = attrs.Factory(dict)
    sent: dict[int, Flat] = attrs.Factory(dict)


class _FailedError(Exception):
    """A sample has failed; where ``sample`` is None, ``where`` says what has."""

    def __init__(self, error: BaseException, stage: Stage, sample: int | None, where: str = "") -> None:
        super().__init__()
        self.error, self.stage, self.sample, self.where = error, stage, sample, where


class BatchLoader:
    """Loads batches in this process.

    Attributes:
        plan: What it loads.
        worker: Number of the worker process; None in the main process, whose global generators stay as they are.
        memory: Where large buffers are put together.
    """

    def __init__(
        self,
        plan: LoadingPlan,
        worker: int | None = None,
        place: str = "",
        note: Callable[[int], None] | None = None,
    ) -> None:
        """Set up; nothing is loaded.

        Args:
            plan: What to load.
            worker: Number of this worker process; None in the main process.
            place: Which process this is, for messages.
            note: Gets the number in the batch, plus 1, of each sample before something is done with it; 0: nothing
                is done.
        """
        self.plan, self.worker, self._place, self._note = plan, worker, place, note
        self._is_callable, self._batch_size = plan.is_callable, plan.batch_size
        self._is_torch_seeded = "torch" in sys.modules
        self.memory: Memory = ReusedMemory()
        self._loading = LoadingSamples(plan.seeds, plan.source, keeps_generators=worker is None)
        self._kept: _Batch | None = None  # of which a sample has failed
        self._epoch: int | None = None  # of an iterable
        self._iterator: Iterator[Any] = iter(())
        self._indices: Sequence[int] | None = None  # of its last batch, where it knows them
        self._num_iterated = 0
        self._is_iterating = False
        self._answered: Answer | None = None  # of an iterable, that may not have been received
        checks_images = plan.checks_images
        if plan.steps is not None and not plan.steps.deferred:  # all is decoded here, and fails here
            checks_images &= any(leaf.content.is_encoded for leaf in plan.steps.output_format.flat_leaves)
        checker = SampleChecker(plan.blueprint, plan.name, checks_images=checks_images)
        self._checker = self._checker_of_sent = checker
        if plan.steps is not None:
            self._checker_of_sent = SampleChecker(plan.steps.output_format, "The steps that run in the workers")

    def load(self, task: Task) -> Answer:
        """Load a batch. It never raises, but for a `KeyboardInterrupt` in the main process."""
        if self.worker is not None and not self._is_torch_seeded:  # it may be imported by the first sample
            self._is_torch_seeded = self.plan.setup.seed_torch(self.worker)
        if frame_counts.pending is not frame_counts.NO_FRAMES:
            frame_counts.take_frames()  # of other uses of the data set in this process
        try:
            load = self._loaded if self._is_callable else self._iterated_once
            return self._loading.run(functools.partial(load, task))
        except BaseException as error:
            pass_on_interrupt(error)
            return self.failure(task, error)
        finally:
            if self._note is not None:
                self._note(0)

    def failure(self, task: Task, error: BaseException) -> Failed:
        """Describe what was raised while a batch was loaded, or handed over."""
        where, is_here = "epoch {}, batch {}".format(*task.position), self.worker is None
        if not isinstance(error, _FailedError):
            error = readable(error)
            what: str | None = "Putting a batch together"
            report = self._report(error, where, None, what)
            return Failed(task.number, report, cause=error if is_here else None)
        cause, stage, sample = readable(of_step(error.error)), error.stage, error.sample
        if not self._is_callable:
            where = f"batch {self._num_iterated} since the start"
        where += error.where if sample is None else f", slot {sample}"
        index, info = self._index(task, sample or 0), None
        if sample is not None and self._is_callable:
            info = infos_of_batch(*task.position, self._batch_size)[sample]
        if stage == "checks":
            name = "A sample" if index is None else f"Sample {index}"
            problem = f"{name} does not fit the blueprint of its input ({where}):\n{cause}"
            report = WorkerReport.of_problem("\n".join([problem, *self._details(index, info)]), index, self.worker)
            reason = f"does not fit the blueprint: {text_of(cause).strip().removeprefix('- ')}"
        else:
            what = named_step(error.error, index) if stage == "steps" else None
            report = self._report(cause, where, index, what, info)
            reason = f"{type(cause).__name__}: {text_of(cause)}"
        reason, file = " ".join(reason.split())[:_LONGEST_REASON], description_of(self.plan.source, index)
        is_raised = is_here and stage != "checks"
        return Failed(task.number, report, sample, stage, reason, file, cause if is_raised else None)

    # --- callables --------------------------------------------------------------------------------

    def _loaded(self, task: Task) -> Answer:
        began, cpu = perf_counter_ns(), process_time_ns()
        batch, self._kept = self._kept, None
        if batch is not None and batch.task.number == task.number:
            for number in task.instead.keys() | batch.instead.keys():
                if task.instead.get(number, -1) != batch.instead.get(number, -1):
                    batch.flats.pop(number, None)
                    batch.sent.pop(number, None)
            batch.task, batch.instead = task, task.instead
        else:
            size = self._batch_size if task.places is None else len(task.places)
            infos = infos_of_batch(*task.position, self._batch_size)[:size]
            batch = _Batch(task, infos, task.instead)
        if task.places is not None:
            self.plan.source.use_places(*task.position, task.places)
        try:
            numbers = self._read(batch)
            if not numbers:
                return Ended(task.number)
            return self._made(batch, numbers, began, cpu)
        except _FailedError:
            self._kept = batch
            raise

    def _read(self, batch: _Batch) -> list[int]:
        """Load and check the samples of a batch that are not kept; get the numbers of all that it has."""
        instead, infos, flats = batch.task.instead, batch.infos, batch.flats
        loading, source, note, check = self._loading, self.plan.source, self._note, self._checker.check
        chosen = [*range(len(infos))]
        if instead:
            chosen = [number for number in chosen if instead.get(number, -1) is not None]
        rest: Iterator[Any] | None = None
        for number in chosen:
            if number in flats:
                continue
            if note is not None:
                note(number + 1)
            loading.info = infos[number]
            try:
                if number in instead:
                    flat = source.load_in_place(batch.task.places[number], instead[number])  # type: ignore[index]
                else:
                    if rest is None:
                        asked = infos
                        if flats or instead:
                            asked = [infos[each] for each in chosen if each not in flats and each not in instead]
                        rest = source.iter_batch(asked) if hasattr(source, "iter_batch") else map(source, asked)
                    flat = next(rest, _END)
            except BaseException as error:
                pass_on_interrupt(error)
                if number in instead or not (self.plan.tries_alone and getattr(source, "loads_batches", False)):
                    raise _FailedError(error, "loading", number) from error
                # The others of the batch may be to blame: from here on, one by one.
                flat = self._loaded_alone(infos[number], number)
                after = [infos[each] for each in chosen if each > number and each not in instead]
                rest = map(source, [info for info in after if info.idx_in_batch not in flats])
            if flat is _END:  # only the input knows where the epoch ends
                if number == 0 or not InputAdapter(source).delivers_partial_batches:
                    return []
                return chosen[: chosen.index(number)]
            try:
                flats[number] = check(flat)
            except ValueError as error:
                raise _FailedError(error, "checks", number) from error
        return chosen

    def _loaded_alone(self, info: Info, number: int) -> Any:
        try:
            return self.plan.source(info)
        except BaseException as error:
            pass_on_interrupt(error)
            raise _FailedError(error, "loading", number) from error

    def _made(self, batch: _Batch, numbers: Sequence[int], began: int, cpu: int) -> Loaded:
        """Draw for the samples of a batch, apply the steps, and put them together."""
        plan, read = self.plan, perf_counter_ns()
        flats = list(map(batch.flats.__getitem__, numbers))
        draws: list[Array] = []
        if plan.draws is not None:
            infos = [batch.infos[number] for number in numbers]
            try:
                draws = [*plan.draws.of_batch(plan.source, infos, flats)]
            except BaseException as error:  # the user's `get_place` is called
                pass_on_interrupt(error)
                raise _FailedError(error, "loading", None, ", random draws") from error
        sent = flats
        of_steps: tuple[int, ...] = ()
        if plan.steps is not None:
            plan.steps.times_ns = [0] * len(plan.steps.names)
            sent = self._after_steps(plan.steps, batch, numbers, draws)
            of_steps = tuple(plan.steps.times_ns)
        stepped = perf_counter_ns()
        try:
            outputs = self.outputs_of(sent, draws, lambda place: self._index(batch.task, numbers[place]))
        except OddSampleError as odd:
            raise _FailedError(ValueError(odd.problem), "checks", numbers[odd.number]) from odd
        num_bytes = 0
        for output in outputs:
            num_bytes += sum(map(_nbytes_of, output)) if isinstance(output, list) else output.nbytes
        frames = frame_counts.NO_FRAMES
        if frame_counts.pending is not frame_counts.NO_FRAMES:
            frames = frame_counts.take_frames()
        packed = perf_counter_ns()
        times = read - began, stepped - read, packed - stepped
        work = Work(*times, len(numbers), num_bytes, 1, *frames, process_time_ns() - cpu, of_steps)
        return Loaded(batch.task.number, outputs, numbers, work, self._indices)

    def _after_steps(
        self, steps: SampleSteps, batch: _Batch, numbers: Sequence[int], draws: Sequence[Array]
    ) -> list[Flat]:
        """Apply the steps that run here to the samples of a batch, one by one."""
        sent, loading, note = batch.sent, self._loading, self._note
        for place, number in enumerate(numbers):
            if number in sent:
                continue
            if note is not None:
                note(number + 1)
            loading.info = batch.infos[number]
            try:
                of_sample = [of_batch[place] for of_batch in draws]
                sent[number] = [*steps(batch.flats[number], of_sample.__getitem__)]
            except BaseException as error:
                pass_on_interrupt(error)
                raise _FailedError(error, "steps", number) from error
        return [sent[number] for number in numbers]

    def outputs_of(
        self, samples: Sequence[Flat], draws: Sequence[Array], get_index: Callable[[int], int | None]
    ) -> list[Array]:
        """Put checked samples together; ``get_index`` gets the index in the data set of one of them.

        Raises:
            OddSampleError: One does not go with the others, or cannot travel.
        """
        checker = self._checker_of_sent
        if checker.usual_ranks is None:
            checker.usual_ranks = list(map(_ndim_of, samples[0]))
        layout = self.plan.layout
        try:
            return outputs_of_batch(layout, samples, draws, self.memory)
        except TooLargeError as error:
            raise OddSampleError(*checker.describe_too_large(samples, error.items)) from None
        except DimensionClashError:
            odd = checker.find_odd_rank(samples)
        number, other_number = odd or (0, 0)
        if odd is None:
            problem = checker.describe_clash_of_elements(samples[number], layout.fields)
        else:
            other_index = get_index(other_number)
            other = "another sample" if other_index is None else f"sample {other_index}"
            problem = checker.describe_rank_clash(samples[number], samples[other_number], other)
        raise OddSampleError(number, problem)

    # --- iterables --------------------------------------------------------------------------------

    def _iterated_once(self, task: Task) -> Answer:
        """Get a batch of an iterable; the same again, where an exception of a signal handler came meanwhile."""
        if self.worker is not None:  # where no handlers run
            return self._iterated(task)
        if self._answered is not None and self._answered.number == task.number:
            return self._answered
        was_interrupted, self._is_iterating = self._is_iterating, True
        try:
            if was_interrupted:
                problem = "was interrupted by a signal handler in the middle of a batch, which is lost"
                raise SourceError(
                    f"{self.plan.name} {problem}. Load in a worker (`num_workers=1`), where none comes."
                )
            answer = self._iterated(task)
        except (_FailedError, SourceError) as error:
            answer = self.failure(task, error)
        self._answered = answer
        self._is_iterating = False
        return answer

    def _iterated(self, task: Task) -> Answer:
        """Get the next batch of an iterable; the first task of another epoch begins it anew."""
        began, cpu = perf_counter_ns(), process_time_ns()
        source = self.plan.source
        # Which samples it will load is not known: what they draw depends on the batch as well.
        batch = _Batch(task, infos_of_batch(0, self._num_iterated, self._batch_size), {})
        self._loading.info, self._indices = batch.infos[0], None
        if self._note is not None:
            self._note(1)
        try:
            if self._epoch != task.position[0] or task.position[1] == 0:
                self._epoch, self._iterator = task.position[0], iter(source)
            data = next(self._iterator)
        except StopIteration:
            self._iterator = iter(())
            return Ended(task.number)
        except BaseException as error:
            pass_on_interrupt(error)
            raise _FailedError(error, "loading", None) from error
        try:
            size = self._size_of_batch(data)
        except ValueError as error:
            raise _FailedError(error, "checks", None) from error
        indices = getattr(source, "current_sample_indices", None)
        self._indices = None if indices is None else [*indices[:size]]
        for number, sample in enumerate(zip(*data, strict=True)):
            try:
                batch.flats[number] = self._checker.check(sample)
            except ValueError as error:
                raise _FailedError(error, "checks", number) from error
        loaded = self._made(batch, range(size), began, cpu)
        self._num_iterated += 1
        return loaded

    def _size_of_batch(self, data: Any) -> int:
        """Count the samples in what an iterable has delivered; a `ValueError` says why it is no batch."""
        num_fields, name = len(self.plan.blueprint.flat_paths), self.plan.name
        if not isinstance(data, tuple | list) or len(data) != num_fields:
            paths = map(format_path, self.plan.blueprint.flat_paths[:20])
            got = f"{len(data)} entries" if isinstance(data, tuple | list) else type(data).__name__
            raise ValueError(
                f"{name} must return one entry per field ({num_fields}: {', '.join(paths)}), each with the data "
                f"of all samples, got {got}."
            )
        sizes = {_size_of(field) for field in data}
        if len(sizes) != 1 or not 1 <= max(sizes) <= self._batch_size:
            raise ValueError(
                f"{name} must return 1 to {self._batch_size} samples per batch (the batch size of the "
                f"pipeline) as a list, the same number for each field; got "
                f"{['no list' if size < 0 else size for size in sorted(sizes)]}."
            )
        return max(sizes)

    # --- reports ----------------------------------------------------------------------------------

    def _index(self, task: Task, number: int) -> int | None:
        """Index in the data set of the sample with a number in the batch; None if it is not known."""
        known, indices = task.sample_index(number), self._indices
        if known is not None or not self._is_callable:
            return indices[number] if indices is not None and number < len(indices) else known
        with decorating():
            return InputAdapter(self.plan.source).sample_index(
                infos_of_batch(*task.position, self._batch_size)[number]
            )
        return None

    def _report(
        self,
        error: BaseException,
        where: str,
        sample_index: int | None,
        what: str | None = None,
        info: Info | None = None,
    ) -> WorkerReport:
        """Describe an exception; ``what`` has failed (None: loading the sample at ``info``)."""
        known = named_index(error)
        index = known if isinstance(known, int) else sample_index
        details = self._details(index, info, not names_its_file(error))
        return WorkerReport.of_exception(error, where, index, what, details, self.worker)

    def _details(self, sample_index: int | None, info: Info | None, has_files: bool = True) -> list[str]:
        """What else is known of a sample, in lines; ``has_files``: also its files."""
        source, lines = InputAdapter(self.plan.source), []
        with decorating():
            place = None if info is None else source.place(info)
            if place is not None and place.sequence >= 0:
                lines.append(f"  sequence: {place.sequence}, frame: {place.frame}")
        with decorating():
            file = source.describe_sample(sample_index) if has_files and sample_index is not None else ""
            if file:
                lines.append(f"  file: {file}")
        return [*lines, f"  {self._place}"] if self._place else lines


def description_of(source: Any, sample_index: int | None) -> str:
    """Get the description of a sample by its data provider; empty if it has none."""
    if sample_index is not None:
        with decorating():
            return InputAdapter(source).describe_sample(sample_index)
    return ""


def _size_of(field: Any) -> int:
    try:
        return len(field)
    except TypeError:  # also of an array without axes, which has `__len__`
        return -1
