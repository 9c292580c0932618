# SPDX-License-Identifier: Apache-2.0
"""Wrappers of the user's input that DALI calls in its worker processes.

They unpickle the input on first use, end abandoned epochs, check what the input delivers against the
blueprint, and turn failures into reports (`worker_report`). What they pass on to DALI is right; DALI itself
would misread some wrong arrays without an error, and name neither field nor sample for the others.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import operator
import os
import sys
from abc import ABC
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import monotonic_ns, perf_counter_ns
from typing import Any, ClassVar, NoReturn, TypeAlias, cast

import attrs
from nvidia.dali import types

from ..draws.keyed_draws import LoadingSamples, SampleSeeds, note_sample, of_thread
from ..draws.random_draws import KeyedDraws
from ..errors import FrameworkError, text_of
from ..ledgers import samples_text
from ..limits.file_limits import all_limits, set_all_limits
from ..providers.replayed_draws import ReplayedDraws
from ..providers.sample_loading import named_index
from ..sample_data import GroupFormat
from ..sample_data.names import format_path
from ..sampling.plans.tracks import Int64Array
from ..sources.given_order import GivenOrderSampler
from ..sources.input_adapter import InputAdapter
from ..sources.planned_input import PlannedInput
from .control_block import RUNNING_INIT_FN, UNPICKLING_INPUT, UNPICKLING_STEPS, ControlBlock
from .samples import (
    Array,
    Flat,
    LoadingBatch,
    OddSampleError,
    SampleChecker,
    SampleFailureError,
    SampleSteps,
    after_steps,
    named_step,
    of_step,
)
from .source_pickling import PICKLING_ADVICE, Dumps, Loads, by_value_from_main_script, pickle_for_worker
from .timing import mark_ranges
from .tolerant_loading import (
    BatchLoading,
    FaultJournal,
    FaultRecord,
    KnownSampleError,
    NotTriedError,
    SampleChain,
    TolerantLoading,
)
from .transport import DimensionClashError, ReusedMemory, TooLargeError, TransportLayout, outputs_of_batch
from .watching.worker_watch import answer_requests
from .worker_process import (
    WorkerSetup,
    decorating,
    keep_freed_memory,
    noting_imports,
    pass_on_interrupt,
    prepare_worker_process,
    use_one_thread_of_opencv,
)
from .worker_report import ReportedFailure, WorkerReport, names_its_file

_ndim_of = operator.attrgetter("ndim")
_sample_index_of, _is_padding_of = operator.attrgetter("sample_index"), operator.attrgetter("is_padding")
_END = object()
_GetIndex: TypeAlias = Callable[[int], int | None]  # in the data set, of the sample in a slot
_RANGES = {"_after_steps": "steps on arrays", "outputs_of_batch": "pack"}
_LONGEST_REASON = 500


@attrs.define(eq=False, repr=False, slots=False)
class _WorkerSource(ABC):
    """Base of the two sources: pickling of the user's input, start of a worker, and failures.

    Attributes:
        layout: Which outputs to make of a batch. It is set once the graph is defined.
        is_parallel: Whether worker processes call it.
        batch_size: Samples per batch.
        checks_images: Whether image files that are sent are checked for damage that DALI does not notice.
        _ranges: Methods that NVTX shows, and under which name.
    """

    _ranges: ClassVar[Mapping[str, str]]

    _source: Any
    _blueprint: GroupFormat
    _control: ControlBlock
    is_parallel: bool
    _pickler: tuple[Dumps, Loads]
    _seeds: SampleSeeds
    _keyed_draws: KeyedDraws | None = None
    _replayed: ReplayedDraws | None = None
    _setup: WorkerSetup = attrs.field(factory=WorkerSetup)
    _steps: SampleSteps | None = None
    layout: TransportLayout = attrs.field(factory=TransportLayout, init=False)
    checks_images: bool = attrs.field(default=False, init=False)
    _pickled_source: bytes | None = attrs.field(default=None, init=False)
    _pickled_init_fn: bytes | None = attrs.field(default=None, init=False)
    _pickled_steps: bytes | None = attrs.field(default=None, init=False)
    _worker_number: int | None = attrs.field(default=None, init=False)  # of this worker process, once it has begun
    _is_torch_seeded: bool = attrs.field(default=False, init=False)
    _memory: ReusedMemory | None = attrs.field(default=None, init=False)
    _loading: LoadingSamples | None = attrs.field(default=None, init=False)
    _sends_part: bool = attrs.field(default=False, init=False)  # of a batch, field by field
    _runs_in: str = attrs.field(default="", init=False)  # which actor, and where, for messages

    def __attrs_post_init__(self) -> None:
        """Keep what is needed where the input is pickled."""
        self._source_name = type(self._source).__name__
        self.batch_size = self._seeds.batch_size

    def arguments(self, num_ahead: int) -> dict[str, Any]:
        """Arguments for ``fn.external_source``, where workers load so many batches ahead."""
        is_callable = callable(self)
        return {
            "source": self,
            "batch": True,
            "batch_info": True if is_callable else None,
            "parallel": self.is_parallel,
            "prefetch_queue_depth": num_ahead if self.is_parallel else None,
            "cycle": None if is_callable else "raise",
        }

    def __repr__(self) -> str:  # DALI shows it
        return self._source_name

    def __getstate__(self) -> dict[str, Any]:
        # The input is pickled separately: a failure to unpickle it then is an ordinary failure with a
        # message, instead of a worker that dies while it starts.
        dumps, loads = self._pickler

        def pickled(value: object, what: str, name: str) -> bytes | None:
            return None if value is None else pickle_for_worker(value, what, name, dumps)

        state = {
            **self.__dict__,
            "_source": None,
            "_pickled_source": pickled(self._source, "The input", self._source_name),
            "_setup": attrs.evolve(self._setup, init_fn=None),
            "_pickled_init_fn": pickled(self._setup.init_fn, "`worker_init_fn`", "worker_init_fn"),
            "_steps": None,
            "_pickled_steps": pickled(self._steps, "The steps that run in the workers", "chain"),
            "_pickler": (None, loads),
            "_memory": None,
            "limits": all_limits(),
        }
        for name in ("_checker", "_checker_of_sent"):
            state.pop(name, None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        set_all_limits(state.pop("limits"))
        self.__dict__.update(state)
        prepare_worker_process(self._control.parent_pid, self._control.is_sent_by_main_thread)
        answer_requests(self._control.stacks_path)

    def _begin_work(self) -> None:
        """In a worker process, before it loads anything: seed its generators and call the user's function."""
        if self._worker_number is not None:
            if not self._is_torch_seeded:  # it may be imported by the first sample
                self._is_torch_seeded = self._setup.seed_torch(self._worker_number)
            return
        if not self.is_parallel or os.getpid() == self._control.parent_pid:
            return
        self._worker_number = self._control.take_worker_number()
        answer_requests(self._control.stacks_path)
        self._set_up(f"worker {self._worker_number}", self._worker_number)

    def _set_up(self, where: str, worker: int) -> None:
        what = None
        try:
            with self._stage(UNPICKLING_INPUT):
                self._get_source()  # which may import PyTorch
            what = "Unpickling the steps in the worker process"
            if self._pickled_steps is not None:
                with self._stage(UNPICKLING_STEPS):
                    self._steps, self._pickled_steps = self._pickler[1](self._pickled_steps), None
            if self._steps is not None:
                use_one_thread_of_opencv()
            keep_freed_memory()
            self._memory = ReusedMemory()
            what = "`worker_init_fn`"
            self._setup.seed_generators(worker)
            self._is_torch_seeded = "torch" in sys.modules
            with self._stage(RUNNING_INIT_FN):
                init_fn = self._setup.init_fn
                if self._pickled_init_fn is not None:
                    init_fn = self._pickler[1](self._pickled_init_fn)
                if init_fn is not None:
                    init_fn(worker)
            mark_ranges(self, **self._ranges)
        except BaseException as error:
            self._fail(self.report(error, where, None, what), error)

    @contextlib.contextmanager
    def _stage(self, stage: int) -> Iterator[None]:
        """Around a stage of the set-up: the pipeline watches how long it takes since the last import in it."""
        note = functools.partial(self._control.note_setup, self._worker_number or 0)
        note(stage)
        try:
            with noting_imports(functools.partial(note, stage)):
                yield
        finally:
            note(0)

    def seeding(self) -> LoadingSamples:
        """Around the loading of samples: global generators can be seeded by them.

        A worker only loads. In the main process, generators are afterwards as before.
        """
        return self._seeds.loading(self._get_source(), self._worker_number is None)

    @property
    def data_input(self) -> Any:
        """The user's input, in the main process."""
        return self._source

    def load_again(self, load: Callable[[Any], Flat], what: object, info: types.SampleInfo) -> list[Array]:
        """Load the sample at a position, in the main process, as workers send it: with its draws at the end."""
        with self.seeding():
            note_sample(info)
            flat = [*load(what)]
        draws = self._keyed_draws
        numbers = [] if draws is None else [each[0] for each in draws.of_batch(self._source, [info], [flat])]
        return [*self._stepped(flat, numbers), *numbers]

    def _stepped(self, flat: Flat, numbers: Sequence[Array]) -> Flat:
        """Apply the steps that run here, if there are any, to the arrays of a sample."""
        return flat if self._steps is None else after_steps(self._steps, flat, numbers, self._replayed)

    def _get_source(self) -> Any:
        if self._source is None and self._pickled_source is not None:
            try:
                self._source = self._pickler[1](self._pickled_source)
            except FrameworkError:  # e.g. a file that was changed meanwhile; says itself what to do
                raise
            except Exception as error:
                advice = ""
                if isinstance(error, ImportError | AttributeError):
                    advice = (
                        "\nIts classes must be importable there, where the main script is imported without what "
                        f"is below its main guard: define them above it, or in a module, {PICKLING_ADVICE}."
                    )
                problem = f"The input ({self._source_name}) could not be unpickled in the worker process"
                raise RuntimeError(f"{problem}: {type(error).__name__}: {text_of(error)}{advice}") from error
            self._pickled_source = None
        return self._source

    @functools.cached_property
    def _checker(self) -> SampleChecker:
        steps, checks_images = self._steps, self.checks_images
        if steps is not None and not steps.deferred:  # all is decoded here, and fails here
            checks_images &= any(leaf.content.is_encoded for leaf in steps.output_format.flat_leaves)
        return SampleChecker(self._blueprint, self._source_name, self._replayed, checks_images=checks_images)

    @functools.cached_property
    def _checker_of_sent(self) -> SampleChecker:
        """The checker of what is sent to the graph."""
        if self._steps is None:
            return self._checker
        return SampleChecker(self._steps.output_format, "The steps that run in the workers")

    def _made(
        self, batch: LoadingBatch, get_index: _GetIndex, note: Callable[[int], None] | None = None
    ) -> list[Array]:
        """Draw for the samples of a batch, apply the steps, and put them together.

        ``get_index`` gets the index in the data set of the sample in a slot; ``note`` gets the slot before steps
        are applied to it.
        """
        batch.read_ns = perf_counter_ns()
        sent = batch.samples
        if self._keyed_draws is not None:
            batch.phase = "draws"
            batch.draws = [*self._keyed_draws.of_batch(self._source, batch.infos, sent)]
        if self._steps is not None:
            batch.phase = "steps"
            sent = self._after_steps(self._steps, batch, note)
        batch.phase, batch.stepped_ns = "packing", perf_counter_ns()
        return self.outputs_of_batch(sent, batch.draws, get_index)

    def _after_steps(
        self, steps: SampleSteps, batch: LoadingBatch, note: Callable[[int], None] | None
    ) -> list[Flat]:
        """Apply the steps that run here to the samples of a batch, one by one."""
        replayed, draws, sent = self._replayed, batch.draws, batch.sent
        for slot, sample in enumerate(batch.samples):
            if note is not None:
                note(slot)
            sent.append(after_steps(steps, sample, [of_batch[slot] for of_batch in draws], replayed))
        return sent

    def _failure_in(
        self, batch: LoadingBatch, error: BaseException, get_index: _GetIndex, where: str
    ) -> SampleFailureError:
        """Get which sample of a batch has raised an error; report an error that is about none."""
        if batch.phase == "draws":  # the user's `get_place` is called
            self._fail(self.report(error, f"{where}, random draws", get_index(0)), error)
        slot, stage = len(batch.samples), "loading"
        if isinstance(error, OddSampleError):
            slot, stage, error = error.number, "checks", ValueError(error.problem)
        elif batch.phase == "steps":
            slot, stage = len(batch.sent), "steps"
        elif batch.phase == "packing":
            raise error
        return SampleFailureError(error, stage, get_index(slot), batch.infos[slot])

    def _report_of(self, failure: SampleFailureError, where: str) -> WorkerReport:
        where, index = f"{where}, slot {failure.info.idx_in_batch}", failure.sample_index
        if failure.stage == "checks":
            return self.report_of_problem(str(failure.cause), where, index, failure.info)
        what = named_step(failure.cause, index) if failure.stage == "steps" else None
        return self.report(of_step(failure.cause), where, index, what, failure.info)

    def _fail_by(self, failure: SampleFailureError, where: str) -> NoReturn:
        report = self._report_of(failure, where)
        cause = None if failure.stage == "checks" else of_step(failure.cause)
        self._fail(report.with_note(failure.note) if failure.note else report, cause)

    def _fail(self, report: WorkerReport, cause: BaseException | None = None) -> NoReturn:
        # A worker hands over the text only, and the cause may be one that Python cannot print.
        raise ReportedFailure(report.encode()) from (cause if self._worker_number is None else None)

    def report(
        self,
        error: BaseException,
        where: str,
        sample_index: int | None,
        what: str | None = None,
        info: types.SampleInfo | None = None,
    ) -> WorkerReport:
        """Describe an exception; ``what`` has failed (None: loading the sample at ``info``)."""
        known = named_index(error)
        index = known if isinstance(known, int) else sample_index
        return WorkerReport.of_exception(
            error, where, index, what, self._details(index, info, not names_its_file(error)), self._worker_number
        )

    def report_of_problem(
        self, problem: str, where: str, sample_index: int | None, info: types.SampleInfo | None = None
    ) -> WorkerReport:
        """Describe a sample that does not fit the blueprint."""
        what = "A sample" if sample_index is None else f"Sample {sample_index}"
        message = f"{what} does not fit the blueprint of its input ({where}):\n{problem}"
        details = "".join(f"\n{line}" for line in self._details(sample_index, info))
        return WorkerReport.of_problem(message + details, sample_index, self._worker_number)

    def _details(
        self, sample_index: int | None, info: types.SampleInfo | None, has_files: bool = True
    ) -> list[str]:
        """What else is known of a sample, in lines; ``has_files``: also its files."""
        source, lines = InputAdapter(self._source), []
        with decorating():
            place = None if info is None else source.place(info)
            if place is not None and place.sequence >= 0:
                lines.append(f"  sequence: {place.sequence}, frame: {place.frame}")
        with decorating():
            file = source.describe_sample(sample_index) if has_files and sample_index is not None else ""
            if file:
                lines.append(f"  file: {file}")
        if self._runs_in:
            lines.append(f"  {self._runs_in}")
        elif self._worker_number is not None:
            lines.append(f"  worker: {self._worker_number} (process {os.getpid()})")
        return lines

    def outputs_of_batch(
        self, samples: Sequence[Flat], draws: Sequence[Array], get_index: _GetIndex
    ) -> list[Array]:
        """Put checked samples together; ``get_index`` gets the index in the data set of the sample in a slot.

        Raises:
            OddSampleError: One does not go with the others, or cannot travel.
        """
        checker = self._checker_of_sent
        if checker.usual_ranks is None:
            checker.usual_ranks = list(map(_ndim_of, samples[0]))
        try:
            layout = self.layout
            if self._sends_part:
                layout = TransportLayout.of_plain(len(samples[0]) + len(draws))
            # In its parallel mode DALI copies strided arrays itself, otherwise it refuses them.
            return outputs_of_batch(layout, samples, draws, not self.is_parallel, self._memory)
        except TooLargeError as error:
            raise OddSampleError(*checker.describe_too_large(samples, error.items)) from None
        except DimensionClashError:
            odd = checker.find_odd_rank(samples)
        slot, other_slot = odd or (0, 0)
        if odd is None:
            problem = checker.describe_clash_of_elements(samples[slot], self.layout.fields)
        else:
            other_index = get_index(other_slot)
            other = "another sample" if other_index is None else f"sample {other_index}"
            problem = checker.describe_rank_clash(samples[slot], samples[other_slot], other)
        raise OddSampleError(slot, problem)


class CallableSource(_WorkerSource):
    """Asks a `CallableBase` (or any object like it) for one sample after the other, for whole batches.

    DALI could ask for the samples itself. But a batch that arrives as a whole can be checked as a whole, and
    small fields can travel as one array per batch, which costs DALI a fraction of one array per sample.

    A sample that fails is reported. With a tolerance, another one takes its place, or it is left out: what was
    made of its batch so far is kept, and the rest is made sample by sample; likewise all of a batch with a sample
    that is known to fail.

    Attributes:
        tolerance: What it knows of samples that fail; None: they are reported.
        elsewhere: Gets a batch that actors of a cluster load; None: it is loaded here, or in a worker process.
    """

    _ranges: ClassVar[Mapping[str, str]] = {"_load": "load", **_RANGES, "_stepped": "steps on arrays"}

    tolerance: TolerantLoading | None = None
    elsewhere: Callable[[types.BatchInfo, int, int], list[Array]] | None = None

    def __call__(self, batch_info: types.BatchInfo) -> list[Array]:
        """Load and check a batch."""
        place = self._control.place_to_load(batch_info.epoch_idx, batch_info.iteration)
        if place is None:
            raise StopIteration
        if self.elsewhere is not None:
            return self.elsewhere(batch_info, *place)
        if self.is_parallel:
            self._begin_work()
        epoch, batch = place
        first = batch * self.batch_size
        positions, slots = range(first, first + self.batch_size), range(self.batch_size)
        infos = list(map(types.SampleInfo, positions, slots, itertools.repeat(batch), itertools.repeat(epoch)))
        return self._load(batch_info, infos)[0]

    def _load(
        self, batch_info: types.BatchInfo, infos: Sequence[types.SampleInfo]
    ) -> tuple[list[Array], LoadingBatch]:
        """Load and check the samples at these positions of a batch, apply the steps, and put them together."""
        control, (epoch, number) = self._control, (infos[0].epoch_idx, infos[0].iteration)
        loading = self._loading = self._loading or self._seeds.loading(None, self._worker_number is None)
        outer, of_thread.loading = of_thread.loading, loading
        try:
            batch = LoadingBatch(infos, control.begin_batch(epoch, number))
            outputs: list[Array] | None = None
            try:
                if self._read(batch):
                    infos, row = batch.infos, batch.row
                    outputs = self._made(
                        batch,
                        lambda slot: self._sample_index(infos[slot]),
                        lambda slot: control.note_loading(row, infos[slot].idx_in_batch),
                    )
            except BaseException as error:  # in a worker it would end the process, e.g. sys.exit()
                pass_on_interrupt(error)
                outputs = self._go_on(batch, error, batch_info)
            if outputs is None:
                raise StopIteration  # a batch that the epoch cannot fill is dropped
            if control.reports_samples:
                samples = samples_of(self._source, batch.infos, batch.substitutes)
                control.report_samples(epoch, number, samples)
            times_ns = batch.began_ns, batch.read_ns, batch.stepped_ns, perf_counter_ns()
            control.add_work(self._worker_number or 0, times_ns, len(batch.infos), outputs)
            return outputs, batch
        finally:
            of_thread.loading = outer
            if loading.kept is not None:
                loading.restore_generators()
            control.end_batch(number)

    def _read(self, batch: LoadingBatch) -> bool:
        """Load and check the samples of a batch; return whether it is to be delivered."""
        control, loading, infos, row = self._control, cast(LoadingSamples, self._loading), batch.infos, batch.row
        samples, check = batch.samples, self._checker.check
        if self.tolerance is not None and self.tolerance.not_tried:
            indices = {place.sample_index for place in self._get_source().places_at(infos)}
            if not indices.isdisjoint(self.tolerance.not_tried):
                raise KnownSampleError
        for slot, info in enumerate(infos):
            control.note_loading(row, info.idx_in_batch)
            loading.info = info
            if slot == 0:  # each sample is loaded on request
                source = loading.source = self._get_source() if self._source is None else self._source
                batch.rest = source.iter_batch(infos) if hasattr(source, "iter_batch") else map(source, infos)
            flat = next(batch.rest, _END)
            if flat is _END:
                batch.infos = infos[:slot]
                return slot > 0 and bool(InputAdapter(self._source).delivers_partial_batches)
            try:
                samples.append(check(flat))
            except ValueError as error:
                raise OddSampleError(slot, str(error)) from error
        return True

    def reuse_memory(self) -> None:
        """Put batches together in memory that was used before: DALI copies what it gets in this process."""
        self._memory = ReusedMemory()

    # --- in an actor of a cluster -----------------------------------------------------------------

    def state_for_actors(self) -> dict[str, Any]:
        """Get what an actor needs to load as a worker process does: no memory or file of this machine.

        Raises:
            SourcePicklingError: The input cannot be pickled.
        """
        tolerance = None if self.tolerance is None else (self.tolerance.samples, self.tolerance.not_tried)
        sent = object.__new__(type(self))
        sent.__dict__.update(self.__dict__, _pickler=by_value_from_main_script(self._pickler))
        if isinstance(self._source, PlannedInput) and isinstance(self._source.sampler, GivenOrderSampler):
            sent._source = self._source.with_sampler(self._source.sampler.detached())
        return {**sent.__getstate__(), "_control": None, "tolerance": tolerance, "elsewhere": None}

    def begin_in_actor(self, state: dict[str, Any], number: int, place: str) -> None:
        """Become what `state_for_actors` was called on, in an actor of a number.

        Raises:
            ReportedFailure: The input cannot be unpickled here, or ``worker_init_fn`` has failed.
        """
        set_all_limits(state.pop("limits"))
        tolerance = state.pop("tolerance")
        self.__dict__.update(state, _control=ControlBlock(state["batch_size"]), is_parallel=False)
        if tolerance is not None:
            samples, not_tried = tolerance
            self.tolerance = TolerantLoading(samples, not_tried, FaultJournal())
        self._worker_number, self._runs_in = number, place
        self._set_up(place, number)

    def at_work(self) -> tuple[float, tuple[int, int, int] | None, str]:
        """For how many seconds it has been at what it is at: a sample, or a stage of its set-up."""
        control: ControlBlock | None = self.__dict__.get("_control")
        now, found = monotonic_ns(), (0.0, None, "")
        if control is not None:
            for stage, since in control.setups().values():
                return (now - since) * 1e-9, None, stage
            for loading in control.loading().values():
                return (now - loading.since_ns) * 1e-9, loading[:3], ""
        return found

    def use_order(self, words: Int64Array) -> None:
        """Load by an order that the user gives, as it was shared for the running epoch (`EpochIndices`)."""
        indices = self._source.sampler.indices
        if indices.version != words[0]:
            indices.use(words)

    def load_slots(self, epoch: int, batch: int, slots: Sequence[int] | None) -> tuple[list[Array], LoadingBatch]:
        """Load some slots of a batch, whose arrays come field by field; None: the outputs of a whole batch.

        Raises:
            StopIteration: The epoch has none of them.
            ReportedFailure: A sample has failed.
        """
        self._sends_part = slots is not None
        chosen = range(self.batch_size) if slots is None else slots
        infos = [types.SampleInfo(batch * self.batch_size + slot, slot, batch, epoch) for slot in chosen]
        return self._load(types.BatchInfo(batch, epoch), infos)

    def take_fault_records(self) -> list[FaultRecord]:
        """Get what has failed, and did not keep a batch from being made, since this was called last."""
        return [] if self.tolerance is None else self.tolerance.journal.read()

    # --- samples that fail ------------------------------------------------------------------------

    def _go_on(self, batch: LoadingBatch, error: BaseException, asked: types.BatchInfo) -> list[Array]:
        """Make the outputs of a batch with an error all the same, or report the error."""
        failure = self._failure_in(batch, error, lambda slot: self._sample_index(batch.infos[slot]), batch.where)
        if self.tolerance is None:
            self._fail_by(failure, batch.where)
        try:
            loading = BatchLoading(self.tolerance, self.chain(), functools.partial(self._note, batch.row))
            loading.go_on(batch, error)
            outputs = self.fit_together(loading)
        except SampleFailureError as failed:
            if isinstance(failed.cause, NotTriedError):
                failed.cause.args = (f"it is known to fail: {failed.cause}",)
            self._fail_by(failed, batch.where)
        batch.infos = [each.info for each in loading.loaded]
        batch.substitutes = loading.substitutes
        loading.write_records(asked)
        return outputs

    def _note(self, row: int, info: types.SampleInfo) -> None:
        """Note that this process now loads the sample at a position, for the batch of a row."""
        self._control.note_loading(row, info.idx_in_batch)
        note_sample(info)

    def fit_together(self, loading: BatchLoading) -> list[Array]:
        """Make the outputs of a batch; what does not go with the other samples is replaced."""
        while True:
            sent = [each.sent for each in loading.loaded]
            try:
                return self.outputs_of_batch(sent, loading.draws, functools.partial(self.index_of, loading))
            except OddSampleError as odd:
                loading.replace(odd.number, ValueError(odd.problem))

    def index_of(self, loading: BatchLoading, number: int) -> int | None:
        """Get the index in the data set of a sample of a batch."""
        sample = loading.loaded[number]
        return self._sample_index(sample.info) if sample.index is None else sample.index

    def chain(self) -> SampleChain:
        """What happens to a sample before it is sent."""
        source: PlannedInput = self._get_source()
        return SampleChain(source, self._checker.check, self._keyed_draws, self._stepped, self._described)

    def _described(self, failure: SampleFailureError) -> tuple[str, str]:
        info = failure.info
        report = self._report_of(failure, f"epoch {info.epoch_idx}, batch {info.iteration}")
        cause = of_step(failure.cause)
        if failure.stage == "checks":
            reason = f"does not fit the blueprint: {text_of(cause).strip().removeprefix('- ')}"
        else:
            reason = f"{type(cause).__name__}: {text_of(cause)}"
        return " ".join(reason.split())[:_LONGEST_REASON], report.message

    def _sample_index(self, sample_info: types.SampleInfo) -> int | None:
        with decorating():
            return InputAdapter(self._source).sample_index(sample_info)
        return None


class IterableSource(_WorkerSource):
    """Source for DALI's batch mode, around an `IterableBase` (or any iterable like it)."""

    _ranges: ClassVar[Mapping[str, str]] = _RANGES
    _num_delivered = 0

    def __iter__(self) -> Iterator[list[Array]]:
        # DALI calls this once in the parent and may call it ahead of an epoch. The user's iterable is
        # started by the first `next`, so it sees one `iter` per epoch, in the process that loads.
        return self._epoch()

    def _epoch(self) -> Iterator[list[Array]]:
        self._begin_work()
        generation = self._control.generation
        epoch: Iterator[object] | None = None
        while generation == self._control.generation:
            where = f"batch {self._num_delivered} since the start"
            began = perf_counter_ns()
            self._control.note_iterating()
            try:
                with self.seeding():
                    # Which samples it will load is not known: what they draw depends on the batch as well.
                    note_sample(infos_of_batch(self._num_delivered, 1, self.batch_size)[0])
                    if epoch is None:
                        epoch = iter(self._get_source())
                    batch = next(epoch)
            except StopIteration:
                return
            except BaseException as error:
                pass_on_interrupt(error)
                self._fail(self.report(error, where, None), error)
            finally:
                self._control.note_iterated()
            yield self._checked(batch, where, began)
            self._num_delivered += 1

    def _checked(self, data: object, where: str, began: int) -> list[Array]:
        num_fields = len(self._blueprint.flat_paths)
        if not isinstance(data, tuple | list) or len(data) != num_fields:
            paths = map(format_path, self._blueprint.flat_paths[:20])
            got = f"{len(data)} entries" if isinstance(data, tuple | list) else type(data).__name__
            self._fail_for(
                f"{self._source_name} must return one entry per field ({num_fields}: {', '.join(paths)}), each "
                f"with the data of all samples, got {got}.",
                where,
            )
        sizes = {_size_of(field) for field in data}
        if len(sizes) != 1 or not 1 <= max(sizes) <= self.batch_size:
            self._fail_for(
                f"{self._source_name} must return 1 to {self.batch_size} samples per batch (the batch "
                f"size of the pipeline) as a list, the same number for each field; got "
                f"{['no list' if size < 0 else size for size in sorted(sizes)]}.",
                where,
            )
        indices = getattr(self._source, "current_sample_indices", None)
        infos = infos_of_batch(self._num_delivered, max(sizes), self.batch_size)
        batch = LoadingBatch(infos, began_ns=began)
        try:
            for slot, sample in enumerate(zip(*data, strict=True)):
                try:
                    batch.samples.append(self._checker.check(sample))
                except ValueError as error:
                    raise OddSampleError(slot, str(error)) from error
            outputs = self._made(batch, functools.partial(_at, indices))
        except BaseException as error:
            pass_on_interrupt(error)
            self._fail_by(self._failure_in(batch, error, functools.partial(_at, indices), where), where)
        if indices is not None:
            self._control.record_batch(self._num_delivered, indices)
            if self._control.reports_samples:
                samples = samples_text([*indices[: self.batch_size]])
                self._control.report_samples(0, self._num_delivered, samples)
        times_ns = batch.began_ns, batch.read_ns, batch.stepped_ns, perf_counter_ns()
        self._control.add_work(self._worker_number or 0, times_ns, len(batch.infos), outputs)
        return outputs

    def _fail_for(self, problem: str, where: str) -> NoReturn:
        self._fail(self.report_of_problem(problem, where, None))


def infos_of_batch(batch: int, num_samples: int, batch_size: int) -> list[types.SampleInfo]:
    """Positions of the samples of a batch that an iterable delivers, counted from its start."""
    return [types.SampleInfo(batch * batch_size + slot, slot, batch, 0) for slot in range(num_samples)]


def samples_of(source: object, infos: Sequence[types.SampleInfo], substitutes: Mapping[int, int]) -> bytes:
    """Get the samples of a batch, as in a ledger; empty where they are not known.

    Args:
        source: The user's input.
        infos: Positions of the samples that were loaded, at least one.
        substitutes: Indices of the samples that replace planned ones, by the number of the sample in the batch.
    """
    places_at = getattr(source, "places_at", None)
    if places_at is not None:  # a `PlannedInput`
        places: Sequence[Any] = places_at(infos)
    else:
        adapter = InputAdapter(source)
        places = [adapter.place(info) for info in infos]
        if None in places:
            indices = [adapter.sample_index(info) for info in infos]
            return b"" if None in indices else samples_text(cast(list[int], indices))
    if not substitutes and True not in map(_is_padding_of, places):
        return samples_text(list(map(_sample_index_of, places)))
    delivered: list[int] = []
    replaced: list[int] = []
    for number, place in enumerate(places):
        if number in substitutes:
            replaced += [place.sample_index, substitutes[number]]
        if number in substitutes or not place.is_padding:
            delivered.append(substitutes.get(number, place.sample_index))
    return samples_text(delivered, replaced)


def _at(indices: Sequence[int] | None, slot: int) -> int | None:
    return indices[slot] if indices is not None and slot < len(indices) else None


def _size_of(field: Any) -> int:
    try:
        return len(field)
    except TypeError:  # also of an array without axes, which has `__len__`
        return -1
