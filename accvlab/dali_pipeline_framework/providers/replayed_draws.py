# SPDX-License-Identifier: Apache-2.0
"""Recorded draws that are delivered with the samples, in place of new ones."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import SupportsIndex

import attrs
import numpy as np
import numpy.typing as npt

from ..checks import index_in
from ..draws.random_draws import DrawRecord, PlannedDraw, problem_of_draw
from ..errors import FieldValueError, SettingError
from ..sample_data import FieldPath, FormatProblem, GroupFormat, LeafFormat, SampleDataGroup, format_error
from ..sample_data.conversion import field_error
from ..sample_data.dtypes import get_dali_type_for_numpy_type
from ..sample_data.names import Name, format_path
from .data_provider import DataProvider
from .sample_loading import named_index, next_sample, rename_sample


class ReplayedDrawsProvider(DataProvider):
    """Samples of another provider, each with the record of the draws that were made for it.

    For a pipeline with ``replay_draws``, which uses them instead of drawing. The same sample may occur several
    times, with different records.

    Example::

        records = records_of_batch(batch["draws"])  # of a pipeline with record_draws="draws"
        again = ReplayedDrawsProvider(provider, records, batch["index"])
        definition = PipelineDefinition(
            ShuffledShardedInputCallable(again, batch_size=1), steps, replay_draws="draws"
        )
    """

    def __init__(
        self,
        provider: DataProvider,
        records: Sequence[Mapping[str, npt.ArrayLike]],
        sample_indices: Sequence[SupportsIndex] | None = None,
        *,
        name: Name = "draws",
    ) -> None:
        """Combine samples and records.

        Args:
            provider: The provider.
            records: At least one record, all with the same draws, shapes and types.
            sample_indices: Sample ``i`` is that of ``provider`` with index ``sample_indices[i]``, with
                ``records[i]``. Not given, there is a record for each sample.
            name: Name of the group that is added to the samples, for the records.

        Raises:
            SettingError: There is no record, there are more or fewer of them than indices (or samples), or
                there is no sample of an index; or the blueprint has a field of this name.
            FieldValueError: A record differs from the first one in draws, shapes or types, or an entry is no
                array.
        """
        count = provider.get_number_of_samples()
        indices = range(count) if sample_indices is None else [operator.index(index) for index in sample_indices]
        if len(records) != len(indices) or not records:
            wanted = "the samples of the provider" if sample_indices is None else "`sample_indices`"
            got = f"got {len(records)} records for {len(indices)}"
            raise SettingError(f"There must be as many records as {wanted}, at least one; {got}.")
        outside = [index for index in indices if not 0 <= index < count]
        if outside:
            raise SettingError(f"`sample_indices` must lie in [0, {count}), got {outside[0]}.")
        if provider.sample_data_structure.has_child(name):
            raise SettingError(f"The samples of the provider have a field {name!r} already. Pass another `name`.")
        self._provider = provider
        self._indices = tuple(indices)
        self._name = name
        self._records = _checked_records(records, name)

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        """Blueprint of the provider, and the group of draws at its end."""
        blueprint = self._provider.sample_data_structure.get_empty_like_self()
        blueprint.add_data_group_field(self._name, self._group())
        return blueprint

    def get_number_of_samples(self) -> int:
        """Get the number of records."""
        return len(self._records)

    def get_data(self, sample_index: int) -> SampleDataGroup:
        """Load the sample of a record.

        Raises:
            SettingError: Also an IndexError; there is no record of this index.
        """
        return next(self._loaded([sample_index], lambda indices: map(self._provider.get_data, indices)))

    @property
    def loads_batches(self) -> bool:
        """Whether the wrapped provider loads batches."""
        return self._provider.loads_batches

    def load_batch(self, sample_indices: Sequence[int], slots: Sequence[int]) -> Iterator[SampleDataGroup]:
        """Load the samples of the records of a batch."""
        if not self.loads_batches:
            return map(self.get_data, sample_indices)
        return self._loaded(sample_indices, lambda indices: self._provider.load_batch(indices, slots))

    def _loaded(
        self, sample_indices: Sequence[int], load: Callable[[list[int]], Iterable[SampleDataGroup]]
    ) -> Iterator[SampleDataGroup]:
        indices = [self._index_of(sample_index) for sample_index in sample_indices]
        samples = iter(load(indices))
        for sample_index in sample_indices:
            try:
                sample = next_sample(samples, self._provider, f"record {sample_index}")
            except BaseException as error:
                named = named_index(error)
                if named is not None:  # a sample of the provider: maybe that of another record of the batch
                    record = sample_indices[indices.index(named)] if named in indices else sample_index
                    rename_sample(error, record, "provider")
                raise
            yield self._with_record(sample, sample_index)

    def _with_record(self, loaded: SampleDataGroup, sample_index: int) -> SampleDataGroup:
        sample = loaded.get_copy()
        group = self._group()
        group.set_data([value.copy() for value in self._records[sample_index].values()])
        sample.add_data_group_field(self._name, group)
        sample[self._name] = group
        return sample

    def describe_sample(self, sample_index: int) -> str:
        """Describe the origin of the sample of a record."""
        index = self._index_of(sample_index)
        described = self._provider.describe_sample(index)
        return f"sample {index} of the data set{': ' if described else ''}{described}"

    def _index_of(self, sample_index: int) -> int:
        return self._indices[index_in(sample_index, "sample_index", len(self._records))]

    def _group(self) -> SampleDataGroup:
        group = SampleDataGroup()
        for name, value in self._records[0].items():
            group.add_data_field(name, get_dali_type_for_numpy_type(value.dtype), ndim=value.ndim)
        return group


def _checked_records(records: Sequence[Mapping[str, npt.ArrayLike]], group: Name) -> list[DrawRecord]:
    first = records[0]
    checked: list[DrawRecord] = []
    for number, record in enumerate(records):
        missing = [name for name in first if name not in record]
        more = [name for name in record if name not in first]
        if missing or more:
            text = f"lacks {missing[0]}" if missing else f"holds {more[0]}, which record 0 lacks"
            raise FieldValueError(f"All records must hold the same draws, but record {number} {text}.")
        arrays: DrawRecord = {}
        for name in first:
            value = record[name]
            if not isinstance(value, np.ndarray | np.generic):
                got = type(value).__name__
                raise field_error((group, name), f"record {number} must hold an array, got {got}.")
            arrays[name] = np.array(value)
            like = checked[0][name] if checked else arrays[name]
            if (like.shape, like.dtype) != (value.shape, value.dtype):
                got = f"{like.shape} {like.dtype} in record 0 and {value.shape} {value.dtype} in record {number}"
                raise field_error((group, name), f"all records must hold the same shape and dtype, got {got}.")
        checked.append(arrays)
    return checked


def require_fitting_record(group: GroupFormat, draws: Sequence[PlannedDraw], path: FieldPath) -> None:
    """Raise a `FormatError` that lists every recorded draw that is missing, of another form, or too many.

    Args:
        group: Format of the group of recorded draws.
        draws: The draws of the chain.
        path: Path of the group in the sample.
    """
    problems: list[FormatProblem] = []
    for planned in draws:
        child = group.get((planned.record_name,))
        where = (*path, planned.record_name)
        if child is None:
            problems.append(FormatProblem(f"the record lacks the {planned}", where))
        elif not isinstance(child, LeafFormat) or child.dtype != planned.draw.dtype:
            got = f"type {child.dtype.name}" if isinstance(child, LeafFormat) else "a group"
            text = f"the {planned} is of type {planned.draw.dtype.name}, the record holds {got}"
            problems.append(FormatProblem(text, where))
        elif child.ndim is not None and child.ndim != len(planned.draw.shape):
            text = f"the {planned} has shape {planned.draw.shape}, the record holds {child.ndim} dimension(s)"
            problems.append(FormatProblem(text, where))
    known = {planned.record_name for planned in draws}
    unknown = "no step of the chain declares such a draw (or its range holds one number only)"
    problems += [FormatProblem(unknown, (*path, name)) for name in group.names if name not in known]
    if problems:
        raise format_error(problems, "The recorded draws are not those of the processing steps:")


@attrs.frozen
class ReplayedDraws:
    """The fields of a flat sample that are recorded draws.

    Attributes:
        fields: Per draw its flat position, its path, and its declaration.
    """

    fields: tuple[tuple[int, FieldPath, PlannedDraw], ...]

    @classmethod
    def of(cls, draws: Sequence[PlannedDraw], group: FieldPath, field_paths: Sequence[FieldPath]) -> ReplayedDraws:
        """Find the draws of a chain in a group of recorded draws, among the fields that workers load."""
        positions = {path: position for position, path in enumerate(field_paths)}
        paths = [(*group, planned.record_name) for planned in draws]
        return cls(tuple((positions[path], path, planned) for path, planned in zip(paths, draws, strict=True)))

    def problems(self, arrays: Sequence[npt.NDArray[np.generic]]) -> list[str]:
        """List the draws of a sample that cannot have been drawn, one line each."""
        found = [(path, problem_of_draw(planned, arrays[position])) for position, path, planned in self.fields]
        return [f"  - {format_path(path)}: {problem}" for path, problem in found if problem is not None]
