# SPDX-License-Identifier: Apache-2.0
"""The objects that DALI calls in its worker processes, around the user's input.

They unpickle the input on first use, end abandoned epochs, check what the input delivers against the
blueprint, and turn failures into reports (`worker_report`). What they pass on to DALI is right; DALI itself
would misread some wrong arrays without an error, and name neither field nor sample for the others.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import numpy as np
from nvidia.dali import types

from accvlab.dali_pipeline_framework.inputs.control_block import ControlBlock
from accvlab.dali_pipeline_framework.inputs.source_pickling import Dumps, Loads, pickle_source
from accvlab.dali_pipeline_framework.inputs.worker_process import prepare_worker_process
from accvlab.dali_pipeline_framework.inputs.worker_report import ReportedFailure, WorkerReport
from accvlab.dali_pipeline_framework.sample_data import GroupFormat, format_path

_ndim_of = operator.attrgetter("ndim")
_dtype_of = operator.attrgetter("dtype")


class SampleChecker:
    """Checks flat samples against the blueprint of the input."""

    def __init__(self, blueprint: GroupFormat, needs_contiguous: bool) -> None:
        """Set up.

        Args:
            blueprint: Format of the samples.
            needs_contiguous: Whether strided arrays must be made contiguous here: DALI copies them itself
                in its parallel mode and refuses them otherwise.
        """
        self._paths = [format_path(path) for path in blueprint.flat_paths]
        self._dtypes = [leaf.numpy_dtype for leaf in blueprint.flat_leaves]
        self._types = [np.ndarray] * len(self._paths)
        self._declared_ndims = [
            (position, leaf.ndim) for position, leaf in enumerate(blueprint.flat_leaves) if leaf.ndim is not None
        ]
        self._needs_contiguous = needs_contiguous

    def check(self, flat: Any, producer: str) -> tuple[tuple[Any, ...], bytes]:
        """Return the arrays of a sample and the number of dimensions of each.

        Raises:
            ValueError: They do not fit the blueprint; the message has one line per field to blame.
        """
        if not isinstance(flat, tuple | list):
            raise ValueError(
                f"{producer} must return the flat data of one sample (a tuple, see "
                f"SampleDataGroup.get_data), got {'None' if flat is None else type(flat).__name__}."
            )
        if len(flat) != len(self._paths):
            raise ValueError(
                f"{producer} returned {len(flat)} fields, but its blueprint has {len(self._paths)}: "
                f"{', '.join(self._paths[:20])}{', ...' if len(self._paths) > 20 else ''}."
            )
        arrays: Sequence[Any] = flat
        if list(map(type, flat)) != self._types:
            arrays = [_as_array(value) for value in flat]
        if not self._fits(arrays):
            raise ValueError("\n".join(self._problems(arrays)))
        if self._needs_contiguous:
            arrays = [
                array if array.flags.c_contiguous else array.copy(order="C")  # keeps 0-d arrays 0-d
                for array in arrays
            ]
        return tuple(arrays), bytes(map(_ndim_of, arrays))

    def _fits(self, arrays: Sequence[Any]) -> bool:
        try:
            if list(map(_dtype_of, arrays)) != self._dtypes:
                return False
        except AttributeError:
            return False
        return not self._declared_ndims or all(
            arrays[position].ndim == ndim for position, ndim in self._declared_ndims
        )

    def _problems(self, values: Sequence[Any]) -> Iterator[str]:
        declared_ndims = dict(self._declared_ndims)
        for position, (path, value, dtype) in enumerate(zip(self._paths, values, self._dtypes, strict=True)):
            if value is None:
                yield f"  - {path}: is not set"
                continue
            if isinstance(value, Exception):
                yield f"  - {path}: cannot be read as an array: {type(value).__name__}: {value}"
                continue
            if not isinstance(value, np.ndarray):
                yield f"  - {path}: expected an array, got {type(value).__name__}"
                continue
            if value.dtype != dtype:
                yield f"  - {path}: expected dtype {dtype}, got {value.dtype} (shape {value.shape})"
            ndim = declared_ndims.get(position, value.ndim)
            if value.ndim != ndim:
                yield (
                    f"  - {path}: expected {ndim} dimension(s) as declared, got {value.ndim} (shape {value.shape})"
                )

    def describe_rank_clash(self, ranks: bytes, other_ranks: bytes, other_sample: int | None) -> str:
        """Say in which fields two samples of the same batch differ in their number of dimensions."""
        other = "another sample" if other_sample is None else f"sample {other_sample}"
        return "\n".join(
            f"  - {path}: expected {expected} dimension(s) as in {other} of the same batch, got {got}"
            for path, expected, got in zip(self._paths, other_ranks, ranks, strict=True)
            if expected != got
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


class _WorkerSource:
    """What the two sources share: the user's input in transit, and failures."""

    def __init__(
        self,
        source: Any,
        blueprint: GroupFormat,
        control: ControlBlock,
        is_parallel: bool,
        pickler: tuple[Dumps, Loads],
    ) -> None:
        self._source: Any = source
        self._pickled_source: bytes | None = None
        self._blueprint = blueprint
        self._control = control
        self._is_parallel = is_parallel
        self._dumps, self._loads = pickler
        self._source_name = type(source).__name__
        self._checker: SampleChecker | None = None

    def __getstate__(self) -> dict[str, Any]:
        # The input is pickled separately: a failure to unpickle it then is an ordinary failure with a
        # message, instead of a worker that dies while it starts.
        return {
            **self.__dict__,
            "_source": None,
            "_pickled_source": pickle_source(self._source, self._dumps),
            "_dumps": None,
            "_checker": None,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        prepare_worker_process(self._control.parent_pid)

    def _get_source(self) -> Any:
        if self._source is None and self._pickled_source is not None:
            try:
                self._source = self._loads(self._pickled_source)
            except Exception as error:
                raise RuntimeError(
                    f"The input ({self._source_name}) could not be unpickled in the worker process: "
                    f"{type(error).__name__}: {error}\n"
                    f"Its classes must be importable there: define them in a module (not in a notebook, an "
                    f"interactive session or a function), pass `py_callback_pickler=cloudpickle`, or use "
                    f"`py_start_method='fork'`."
                ) from error
            self._pickled_source = None
        return self._source

    def _get_checker(self) -> SampleChecker:
        if self._checker is None:
            self._checker = SampleChecker(self._blueprint, needs_contiguous=not self._is_parallel)
        return self._checker

    def _fail_with(self, error: BaseException, where: str, sample_index: int | None) -> NoReturn:
        known = getattr(error, "sample_index_in_data_set", None)
        index = known if isinstance(known, int) else sample_index
        raise ReportedFailure(WorkerReport.of_exception(error, where, index).encode()) from error

    def _fail_for(self, problem: str, where: str, sample_index: int | None) -> NoReturn:
        what = "A sample" if sample_index is None else f"Sample {sample_index}"
        message = f"{what} does not fit the blueprint of its input ({where}):\n{problem}"
        raise ReportedFailure(WorkerReport.of_problem(message, sample_index).encode())


class SampleSource(_WorkerSource):
    """Source for DALI's sample mode, around a `CallableBase` (or any object like it)."""

    _last_compared: tuple[int, bytes] | None = None

    def __call__(self, sample_info: types.SampleInfo) -> tuple[Any, ...]:
        """Load and check the sample at a position."""
        if self._control.is_abandoned(sample_info.epoch_idx):
            raise StopIteration
        source = self._source
        try:
            if source is None:
                source = self._get_source()
            flat = source(sample_info)
        except StopIteration:
            raise
        except (Exception, SystemExit) as error:  # sys.exit() would end the worker without a word
            self._fail_with(error, _where(sample_info), self._sample_index(sample_info))
        try:
            arrays, ranks = (self._checker or self._get_checker()).check(flat, self._source_name)
        except ValueError as error:
            self._fail_for(str(error), _where(sample_info), self._sample_index(sample_info))
        batch = (sample_info.epoch_idx << 32) + sample_info.iteration
        if (batch, ranks) != self._last_compared:
            self._compare_ranks(sample_info, batch, ranks)
            self._last_compared = (batch, ranks)
        return arrays

    def _compare_ranks(self, sample_info: types.SampleInfo, batch: int, ranks: bytes) -> None:
        clash = self._control.compare_ranks(batch, ranks, lambda: self._sample_index(sample_info))
        if clash is None:
            return
        other_index, other_ranks = clash
        index = self._sample_index(sample_info)
        if ranks == self._control.usual_ranks:  # then it is the other sample that is odd
            index, other_index = other_index, index
            ranks, other_ranks = other_ranks, ranks
        problem = self._get_checker().describe_rank_clash(ranks, other_ranks, other_index)
        self._fail_for(problem, f"epoch {sample_info.epoch_idx}, batch {sample_info.iteration}", index)

    def _sample_index(self, sample_info: types.SampleInfo) -> int | None:
        get_index: Callable[[Any], int | None] | None
        get_index = getattr(self._source, "get_sample_index", None)
        try:
            return None if get_index is None else get_index(sample_info)
        except Exception:  # only decorates another error
            return None


class BatchSource(_WorkerSource):
    """Source for DALI's batch mode, around an `IterableBase` (or any iterable like it)."""

    def __init__(
        self,
        source: Any,
        blueprint: GroupFormat,
        control: ControlBlock,
        is_parallel: bool,
        pickler: tuple[Dumps, Loads],
        max_batch_size: int,
    ) -> None:
        """Wrap an iterable whose batches hold at most ``max_batch_size`` samples."""
        super().__init__(source, blueprint, control, is_parallel, pickler)
        self._max_batch_size = max_batch_size
        self._num_delivered = 0

    def __iter__(self) -> Iterator[list[Any]]:
        # DALI calls this once in the parent and may call it ahead of an epoch. The user's iterable is
        # started by the first `next`, so it sees one `iter` per epoch, in the process that loads.
        return self._epoch()

    def _epoch(self) -> Iterator[list[Any]]:
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
        if len(sizes) != 1 or not 1 <= max(sizes) <= self._max_batch_size:
            self._fail_for(
                f"{self._source_name} must return 1 to {self._max_batch_size} samples per batch (the batch "
                f"size of the pipeline) as a list, the same number for each field; got "
                f"{['no list' if size < 0 else size for size in sorted(sizes)]}.",
                where,
                None,
            )
        checker = self._get_checker()
        columns: list[Sequence[Any]] = []
        first_ranks: bytes | None = None
        for slot, sample in enumerate(zip(*batch, strict=True)):
            index = indices[slot] if indices is not None and slot < len(indices) else None
            place = f"{where}, slot {slot}"
            try:
                arrays, ranks = checker.check(sample, self._source_name)
            except ValueError as error:
                self._fail_for(str(error), place, index)
            if first_ranks is None:
                first_ranks = ranks
            elif ranks != first_ranks:
                first = indices[0] if indices is not None else None
                self._fail_for(checker.describe_rank_clash(ranks, first_ranks, first), place, index)
            columns.append(arrays)
        if indices is not None:
            self._control.record_batch(self._num_delivered, indices)
        return [list(field) for field in zip(*columns, strict=True)]


def _where(sample_info: types.SampleInfo) -> str:
    return f"epoch {sample_info.epoch_idx}, batch {sample_info.iteration}, slot {sample_info.idx_in_batch}"
