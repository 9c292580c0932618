# SPDX-License-Identifier: Apache-2.0
"""Wrappers of the user's input that DALI calls in its worker processes.

They unpickle the input on first use, end abandoned epochs, check what the input delivers against the
blueprint, and turn failures into reports (`worker_report`). What they pass on to DALI is right; DALI itself
would misread some wrong arrays without an error, and name neither field nor sample for the others.
"""

from __future__ import annotations

import collections
import functools
import itertools
import operator
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, cast

import attrs
import numpy as np
from nvidia.dali import types

from ..draws.keyed_draws import KeyedDraws
from ..errors import FrameworkError
from ..limits.image_headers import claimed_size
from ..limits.image_limit import most_image_pixels, too_large
from ..sample_data import FieldPath, GroupFormat, format_path
from ..sample_data.format_problems import described_together
from ..sources.input_adapter import InputAdapter
from .control_block import ControlBlock
from .source_pickling import PICKLING_ADVICE, Dumps, Loads, pickle_for_worker
from .told_samples import tell_samples
from .transport import (
    MOST_BYTES,
    DimensionClashError,
    Items,
    ReusedMemory,
    TooLargeError,
    TransportLayout,
    outputs_of_batch,
)
from .worker_process import WorkerSetup, keep_freed_memory, prepare_worker_process, use_one_thread_of_opencv
from .worker_report import ReportedFailure, WorkerReport

if TYPE_CHECKING:
    from ..providers.replayed_draws import ReplayedDraws

_ndim_of = operator.attrgetter("ndim")
_dtype_of = operator.attrgetter("dtype")


class SampleChecker:
    """Checks flat samples against the blueprint of the input.

    Attributes:
        usual_ranks: Numbers of dimensions of the fields in the first batch.
    """

    def __init__(
        self,
        blueprint: GroupFormat,
        producer: str,
        replayed: ReplayedDraws | None = None,
    ) -> None:
        """Set up.

        Args:
            blueprint: Format of the samples.
            producer: Class of the input, for messages.
            replayed: Which fields are recorded draws; None where there are none.
        """
        self._producer = producer
        self._paths = blueprint.flat_paths
        self._dtypes = [leaf.numpy_dtype for leaf in blueprint.flat_leaves]
        self._types = [np.ndarray] * len(self._paths)
        self._declared_ndims = [
            (position, leaf.ndim) for position, leaf in enumerate(blueprint.flat_leaves) if leaf.ndim is not None
        ]
        self.usual_ranks: list[int] | None = None
        self._replayed = replayed
        self._most_pixels = most_image_pixels()
        self._image_files = [
            position for position, leaf in enumerate(blueprint.flat_leaves) if leaf.content.is_encoded
        ]

    def check(self, flat: Any) -> Sequence[Any]:
        """Return the arrays of a sample.

        Raises:
            ValueError: They do not fit the blueprint; the message has one line per field to blame.
        """
        if not isinstance(flat, tuple | list):
            raise ValueError(
                f"{self._producer} must return the flat data of one sample (a tuple, see "
                f"SampleDataGroup.get_data), got {'None' if flat is None else type(flat).__name__}."
            )
        if len(flat) != len(self._paths):
            names = list(map(format_path, self._paths[:20]))
            raise ValueError(
                f"{self._producer} returned {len(flat)} fields, but its blueprint has {len(self._paths)}: "
                f"{', '.join(names)}{', ...' if len(self._paths) > 20 else ''}."
            )
        arrays: Sequence[Any] = flat
        if list(map(type, flat)) != self._types:
            arrays = [_as_array(value) for value in flat]
        try:
            fits = list(map(_dtype_of, arrays)) == self._dtypes
            for position, ndim in self._declared_ndims:
                fits = fits and arrays[position].ndim == ndim
        except AttributeError:
            fits = False
        if not fits:
            raise ValueError("\n".join(f"  - {text}" for text in described_together(self._problems(arrays))))
        for position in self._image_files:
            size = claimed_size(arrays[position])
            if size is not None and size[0] * size[1] > self._most_pixels:
                raise ValueError(f"  - {format_path(self._paths[position])}: {too_large(arrays[position])}")
        problems = [] if self._replayed is None else self._replayed.problems(arrays)
        if problems:
            raise ValueError("\n".join(problems))
        return arrays

    def _problems(self, values: Sequence[Any]) -> Iterator[tuple[FieldPath, str]]:
        declared_ndims = dict(self._declared_ndims)
        for position, (path, value, dtype) in enumerate(zip(self._paths, values, self._dtypes, strict=True)):
            if value is None:
                yield path, "is not set"
                continue
            if isinstance(value, Exception):
                yield path, f"cannot be read as an array: {type(value).__name__}: {value}"
                continue
            if not isinstance(value, np.ndarray):
                yield path, f"expected an array, got {type(value).__name__}"
                continue
            if value.dtype != dtype:
                yield path, f"expected dtype {dtype}, got {value.dtype} (shape {value.shape})"
            ndim = declared_ndims.get(position, value.ndim)
            if value.ndim != ndim:
                yield path, f"expected {ndim} dimension(s) as declared, got {value.ndim} (shape {value.shape})"

    def find_odd_rank(self, samples: Sequence[Sequence[Any]]) -> tuple[int, int] | None:
        """Find a sample whose fields have other numbers of dimensions than in most samples of the batch.

        Returns:
            The slots of the odd sample and of one that it differs from; None where there is none.
        """
        ranks: list[list[int]] = [list(map(_ndim_of, sample)) for sample in samples]
        counts = collections.Counter(tuple(sample_ranks) for sample_ranks in ranks)
        expected = [*max(counts, key=lambda each: (counts[each], [*each] == self.usual_ranks))]
        odd = next((slot for slot, sample_ranks in enumerate(ranks) if sample_ranks != expected), None)
        return None if odd is None else (odd, ranks.index(expected))

    def describe_rank_clash(self, sample: Sequence[Any], other: Sequence[Any], other_name: str) -> str:
        """Say in which fields a sample differs from another one in the number of dimensions."""
        clashes = (
            (path, f"expected {expected.ndim} dimension(s) as in {other_name} of the same batch, got {got.ndim}")
            for path, expected, got in zip(self._paths, other, sample, strict=True)
            if expected.ndim != got.ndim
        )
        return "\n".join(f"  - {text}" for text in described_together(clashes))

    def describe_too_large(self, samples: Sequence[Sequence[Any]], items: Items) -> tuple[int, str]:
        """Get the slot of a sample with an array that is too large to travel, and say which."""
        slot, item = max(
            itertools.product(range(len(samples)), items), key=lambda each: samples[each[0]][each[1]].nbytes
        )
        array = samples[slot][item]
        return slot, (
            f"  - {format_path(self._paths[item])}: at most {MOST_BYTES} bytes (2**31 - 1) can travel in a field, "
            f"got {array.nbytes} (shape {array.shape}, {array.dtype}). Load a part of it, or split it into "
            f"several fields."
        )

    def describe_clash_of_elements(self, sample: Sequence[Any], fields: Sequence[Items]) -> str:
        """Say in which folded fields the elements of a sample have different numbers of dimensions."""
        lines = []
        for items in fields:
            first, *others = [item for item in items if item < len(self._paths)] or [0]
            for item in others:
                expected, got = sample[first].ndim, sample[item].ndim
                if expected != got:
                    lines.append(
                        f"  - {format_path(self._paths[item])}: expected {expected} dimension(s) as in "
                        f"{format_path(self._paths[first])}, got {got}"
                    )
        return "\n".join(lines) + (
            "\nElements of an array are processed together, so they must have the same number of dimensions. Set "
            "`fold_arrays=False` of `PipelineDefinition` where they need not."
        )


def _as_array(value: Any) -> Any:
    """Arrays of other libraries (e.g. PyTorch, DALI) and NumPy scalars as NumPy arrays, the rest as it is.

    What fails to become an array is replaced by the exception.
    """
    if not hasattr(value, "__array__"):
        return value
    try:
        return np.asarray(value)
    except Exception as error:
        return error


class SampleSteps(Protocol):
    """Steps that are applied to samples of arrays, where these are loaded."""

    @property
    def output_format(self) -> GroupFormat:
        """Format that comes out."""

    def __call__(self, flat: Sequence[Any], numbers: Callable[[int], Any]) -> Sequence[Any]:
        """Apply them to the arrays of a sample; ``numbers`` gives the numbers of each draw."""


class SampleStepError(Exception):
    """A step failed; the cause tells how.

    Attributes:
        step: Number and class of the step, for messages.
    """

    def __init__(self, step: str) -> None:
        """Keep which step it was."""
        super().__init__(step)
        self.step = step


def after_steps(
    steps: SampleSteps, flat: Sequence[Any], draws: Sequence[Any], replayed: ReplayedDraws | None
) -> list[Any]:
    """Get the arrays of a sample after steps, and behind them its recorded draws if it came with them.

    Args:
        steps: The steps.
        flat: The arrays of the sample as it was loaded.
        draws: The numbers of each draw; not needed where they are recorded.
        replayed: Which of the arrays are recorded draws.
    """
    if replayed is None:
        return [*steps(flat, draws.__getitem__)]
    recorded = [flat[position] for position, _, _ in replayed.fields]
    of_draws = {position for position, _, _ in replayed.fields}
    own = [array for position, array in enumerate(flat) if position not in of_draws]
    return [*steps(own, recorded.__getitem__), *recorded]


class _WorkerSource:
    """Base of the two sources: pickling of the user's input, start of a worker, and failures.

    Attributes:
        layout: Which outputs to make of a batch. It is set once the graph is defined.
    """

    def __init__(
        self,
        source: Any,
        blueprint: GroupFormat,
        control: ControlBlock,
        is_parallel: bool,
        pickler: tuple[Dumps, Loads],
        batch_size: int,
        draws: KeyedDraws | None = None,
        replayed: ReplayedDraws | None = None,
        setup: WorkerSetup | None = None,
        steps: SampleSteps | None = None,
    ) -> None:
        self.layout = TransportLayout()
        self._source: Any = source
        self._pickled_source: bytes | None = None
        self._setup = setup or WorkerSetup()
        self._pickled_init_fn: bytes | None = None
        self._worker: int | None = None  # number of this worker process, once it has begun
        self._is_torch_seeded = False
        self._blueprint = blueprint
        self._control = control
        self._is_parallel = is_parallel
        self._dumps, self._loads = pickler
        self._source_name = type(source).__name__
        self._batch_size = batch_size
        self._draws = draws
        self._replayed = replayed
        self._checker: SampleChecker | None = None
        self._steps = steps
        self._pickled_steps: bytes | None = None
        self._checker_of_sent: SampleChecker | None = None
        self._memory: ReusedMemory | None = None

    def __repr__(self) -> str:  # DALI shows it
        return self._source_name

    def __getstate__(self) -> dict[str, Any]:
        # The input is pickled separately: a failure to unpickle it then is an ordinary failure with a
        # message, instead of a worker that dies while it starts.
        return {
            **self.__dict__,
            "_source": None,
            "_pickled_source": pickle_for_worker(self._source, "The input", self._source_name, self._dumps),
            "_setup": attrs.evolve(self._setup, init_fn=None),
            "_pickled_init_fn": self._pickle_init_fn(),
            "_steps": None,
            "_pickled_steps": self._pickle_steps(),
            "_dumps": None,
            "_checker": None,
            "_checker_of_sent": None,
            "_memory": None,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        prepare_worker_process(self._control.parent_pid)

    def _pickle_init_fn(self) -> bytes | None:
        function = self._setup.init_fn
        if function is None:
            return None
        return pickle_for_worker(function, "`worker_init_fn`", "worker_init_fn", self._dumps)

    def _pickle_steps(self) -> bytes | None:
        if self._steps is None:
            return None
        return pickle_for_worker(self._steps, "The steps that run in the workers", "chain", self._dumps)

    def _begin_work(self) -> None:
        """In a worker process, before it loads anything: seed its generators and call the user's function."""
        if self._worker is not None:
            if not self._is_torch_seeded:  # it may be imported by the first sample
                self._is_torch_seeded = self._setup.seed_torch(self._worker)
            return
        if os.getpid() == self._control.parent_pid:
            return
        self._worker = self._control.take_worker_number()
        where = f"worker {self._worker}"
        what = None
        try:
            self._get_source()  # which may import PyTorch
            what = "Unpickling the steps in the worker process"
            if self._pickled_steps is not None:
                self._steps, self._pickled_steps = self._loads(self._pickled_steps), None
            if self._steps is not None:
                use_one_thread_of_opencv()
                keep_freed_memory()
            self._memory = ReusedMemory()
        except (Exception, SystemExit) as error:
            self._fail_with(error, where, None, what)
        self._setup.seed_generators(self._worker)
        self._is_torch_seeded = "torch" in sys.modules
        try:
            init_fn = self._setup.init_fn
            if self._pickled_init_fn is not None:
                init_fn = self._loads(self._pickled_init_fn)
            if init_fn is not None:
                init_fn(self._worker)
        except (Exception, SystemExit) as error:
            self._fail_with(error, where, None, "`worker_init_fn`")

    def _get_source(self) -> Any:
        if self._source is None and self._pickled_source is not None:
            try:
                self._source = self._loads(self._pickled_source)
            except FrameworkError:  # e.g. a file that was changed meanwhile; says itself what to do
                raise
            except Exception as error:
                advice = ""
                if isinstance(error, ImportError | AttributeError):
                    advice = (
                        "\nIts classes must be importable there: define them in a module (not in a notebook, an "
                        f"interactive session or a function), {PICKLING_ADVICE}."
                    )
                raise RuntimeError(
                    f"The input ({self._source_name}) could not be unpickled in the worker process: "
                    f"{type(error).__name__}: {error}{advice}"
                ) from error
            self._pickled_source = None
        return self._source

    def _get_checker(self) -> SampleChecker:
        if self._checker is None:
            self._checker = SampleChecker(self._blueprint, self._source_name, self._replayed)
        return self._checker

    def _get_checker_of_sent(self) -> SampleChecker:
        """The checker of what is sent to the graph."""
        if self._steps is None:
            return self._checker or self._get_checker()
        if self._checker_of_sent is None:
            self._checker_of_sent = SampleChecker(self._steps.output_format, "The steps that run in the workers")
        return self._checker_of_sent

    def _after_steps(
        self,
        samples: Sequence[Sequence[Any]],
        draws: Sequence[Any],
        where: str,
        get_index: Callable[[int], int | None],
        note: Callable[[int], None] | None = None,
    ) -> Sequence[Sequence[Any]]:
        """Apply the steps that run here to checked samples; ``note`` is told the slot of each before."""
        steps = cast(SampleSteps, self._steps)
        results = []
        for slot, sample in enumerate(samples):
            if note is not None:
                note(slot)
            try:
                numbers = [of_batch[slot] for of_batch in draws]
                results.append(after_steps(steps, sample, numbers, self._replayed))
            except (Exception, SystemExit) as error:
                index = get_index(slot)
                what, cause = "Preparing the steps that run in the workers", error.__cause__
                if isinstance(error, SampleStepError):
                    of_sample = "a sample" if index is None else f"sample {index}"
                    what = f"{error.step[0].upper()}{error.step[1:]} on {of_sample}"
                self._fail_with(
                    cause if isinstance(error, SampleStepError) and cause is not None else error,
                    f"{where}, slot {slot}",
                    index,
                    what,
                )
        return results

    def _fail_with(
        self, error: BaseException, where: str, sample_index: int | None, what: str | None = None
    ) -> NoReturn:
        known = getattr(error, "sample_index_in_data_set", None)
        index = known if isinstance(known, int) else sample_index
        raise ReportedFailure(WorkerReport.of_exception(error, where, index, what).encode()) from error

    def _fail_for(self, problem: str, where: str, sample_index: int | None) -> NoReturn:
        what = "A sample" if sample_index is None else f"Sample {sample_index}"
        message = f"{what} does not fit the blueprint of its input ({where}):\n{problem}"
        raise ReportedFailure(WorkerReport.of_problem(message, sample_index).encode())

    def _batch_of(
        self,
        samples: Sequence[Sequence[Any]],
        draws: Sequence[Any],
        where: str,
        get_index: Callable[[int], int | None],
    ) -> list[Any]:
        """Put checked samples together; ``get_index`` tells the index in the data set of the sample in a slot."""
        checker = (
            self._checker if self._steps is None and self._checker is not None else self._get_checker_of_sent()
        )
        if checker.usual_ranks is None:
            checker.usual_ranks = list(map(_ndim_of, samples[0]))
        try:
            # In its parallel mode DALI copies strided arrays itself, otherwise it refuses them.
            return outputs_of_batch(self.layout, samples, draws, not self._is_parallel, self._memory)
        except TooLargeError as error:
            slot, problem = checker.describe_too_large(samples, error.items)
            self._fail_for(problem, f"{where}, slot {slot}", get_index(slot))
        except DimensionClashError:
            odd = checker.find_odd_rank(samples)
        slot, other_slot = odd or (0, 0)
        if odd is None:
            problem = checker.describe_clash_of_elements(samples[slot], self.layout.fields)
        else:
            other_index = get_index(other_slot)
            other = "another sample" if other_index is None else f"sample {other_index}"
            problem = checker.describe_rank_clash(samples[slot], samples[other_slot], other)
        self._fail_for(problem, f"{where}, slot {slot}", get_index(slot))


class CallableSource(_WorkerSource):
    """Asks a `CallableBase` (or any object like it) for one sample after the other, for whole batches.

    DALI could ask for the samples itself. But a batch that arrives as a whole can be checked as a whole, and
    small fields can travel as one array per batch, which costs DALI a fraction of one array per sample.
    """

    def __call__(self, batch_info: types.BatchInfo) -> list[Any]:
        """Load and check a batch."""
        if self._control.is_abandoned(batch_info.epoch_idx):
            raise StopIteration
        self._begin_work()
        epoch, batch = self._control.locate(batch_info.epoch_idx, batch_info.iteration)
        samples: list[Sequence[Any]] = []
        slots = range(self._batch_size)
        positions = range(batch * self._batch_size, (batch + 1) * self._batch_size)
        infos = list(map(types.SampleInfo, positions, slots, itertools.repeat(batch), itertools.repeat(epoch)))
        where = f"epoch {epoch}, batch {batch}"
        row = self._control.begin_batch(epoch, batch)
        check = (self._checker or self._get_checker()).check
        loaded: Iterator[Any] | None = None
        for slot, info in enumerate(infos):
            self._control.note_loading(row, slot)
            try:
                if loaded is None:  # each sample is loaded when it is asked for
                    source = self._get_source() if self._source is None else self._source
                    loaded = source.iter_batch(infos) if hasattr(source, "iter_batch") else map(source, infos)
                flat = next(loaded)
            except StopIteration:
                if samples and self._delivers_partial_batches():
                    break
                raise  # a batch that the epoch cannot fill is dropped
            except (Exception, SystemExit) as error:  # sys.exit() would end the worker without a word
                self._fail_with(error, f"{where}, slot {slot}", self._sample_index(info))
            try:
                samples.append(check(flat))
            except ValueError as error:
                self._fail_for(str(error), f"{where}, slot {slot}", self._sample_index(info))
        draws: Sequence[Any] = ()
        if self._draws is not None:
            draws = self._drawn(self._draws, infos[: len(samples)], samples, where)
        sent: Sequence[Sequence[Any]] = samples
        if self._steps is not None:
            sent = self._after_steps(
                samples,
                draws,
                where,
                lambda slot: self._sample_index(infos[slot]),
                functools.partial(self._control.note_loading, row),
            )
        if self._control.note_loaded(row):
            tell_samples(self._control, self._source, epoch, batch, infos[: len(samples)])
        return self._batch_of(sent, draws, where, lambda slot: self._sample_index(infos[slot]))

    def _drawn(
        self, draws: KeyedDraws, infos: Sequence[types.SampleInfo], samples: Sequence[Sequence[Any]], where: str
    ) -> list[Any]:
        try:
            return [*draws.of_batch(self._source, infos, samples)]
        except (Exception, SystemExit) as error:  # the user's `get_place` is asked
            self._fail_with(error, f"{where}, random draws", self._sample_index(infos[0]))

    def _delivers_partial_batches(self) -> bool:
        return bool(InputAdapter(self._source).delivers_partial_batches)

    def _sample_index(self, sample_info: types.SampleInfo) -> int | None:
        try:
            return InputAdapter(self._source).sample_index(sample_info)
        except Exception:  # only decorates another error
            return None


class IterableSource(_WorkerSource):
    """Source for DALI's batch mode, around an `IterableBase` (or any iterable like it)."""

    _num_delivered = 0

    def __iter__(self) -> Iterator[list[Any]]:
        # DALI calls this once in the parent and may call it ahead of an epoch. The user's iterable is
        # started by the first `next`, so it sees one `iter` per epoch, in the process that loads.
        return self._epoch()

    def _epoch(self) -> Iterator[list[Any]]:
        self._begin_work()
        generation = self._control.generation
        epoch: Iterator[Any] | None = None
        while generation == self._control.generation:
            where = f"batch {self._num_delivered} since the start"
            try:
                if epoch is None:
                    epoch = iter(self._get_source())
                batch = next(epoch)
            except StopIteration:
                return
            except (Exception, SystemExit) as error:
                self._fail_with(error, where, None)
            yield self._checked(batch, where)
            self._num_delivered += 1

    def _checked(self, batch: Any, where: str) -> list[Any]:
        indices = getattr(self._source, "current_sample_indices", None)
        paths = [format_path(path) for path in self._blueprint.flat_paths]
        if not isinstance(batch, tuple | list) or len(batch) != len(paths):
            got = f"{len(batch)} entries" if isinstance(batch, tuple | list) else type(batch).__name__
            self._fail_for(
                f"{self._source_name} must return one entry per field ({len(paths)}: "
                f"{', '.join(paths[:20])}), each with the data of all samples, "
                f"got {got}.",
                where,
                None,
            )
        sizes = {len(field) if hasattr(field, "__len__") else -1 for field in batch}
        if len(sizes) != 1 or not 1 <= max(sizes) <= self._batch_size:
            self._fail_for(
                f"{self._source_name} must return 1 to {self._batch_size} samples per batch (the batch "
                f"size of the pipeline) as a list, the same number for each field; got "
                f"{['no list' if size < 0 else size for size in sorted(sizes)]}.",
                where,
                None,
            )
        samples: list[Sequence[Any]] = []
        for slot, sample in enumerate(zip(*batch, strict=True)):
            try:
                samples.append(self._get_checker().check(sample))
            except ValueError as error:
                self._fail_for(str(error), f"{where}, slot {slot}", _at(indices, slot))
        if indices is not None:
            self._control.record_batch(self._num_delivered, indices)
        draws: Sequence[Any] = ()
        if self._draws is not None:
            infos = infos_of_batch(self._num_delivered, len(samples), self._batch_size)
            draws = self._draws.of_batch(self._source, infos, samples)
        if self._steps is not None:
            samples = [*self._after_steps(samples, draws, where, lambda slot: _at(indices, slot))]
        return self._batch_of(samples, draws, where, lambda slot: _at(indices, slot))


def infos_of_batch(batch: int, num_samples: int, batch_size: int) -> list[types.SampleInfo]:
    """Positions of the samples of a batch that an iterable delivers, counted from its start."""
    return [types.SampleInfo(batch * batch_size + slot, slot, batch, 0) for slot in range(num_samples)]


def _at(indices: Sequence[int] | None, slot: int) -> int | None:
    return indices[slot] if indices is not None and slot < len(indices) else None
