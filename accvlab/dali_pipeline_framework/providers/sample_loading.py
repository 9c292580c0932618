# SPDX-License-Identifier: Apache-2.0
"""One sample of a data provider, checked against its blueprint, as a flat tuple."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import NoReturn, cast

import numpy as np
import numpy.typing as npt

from ..errors import FieldValueError
from ..sample_data import FieldPath, GroupFormat, SampleDataGroup
from ..sample_data.conversion import FlatSample
from ..sample_data.formats import describe_difference
from ..sample_data.names import format_path
from .data_provider import DataProvider, EncodedClipValue, FieldColumns, WantedFields, blueprint_of


def input_blueprint(provider: DataProvider) -> SampleDataGroup:
    """Get the blueprint of a provider, as a copy with mappings switched off.

    In the graph the values of mapped fields are numbers already. It is a copy, since a provider may return the
    same object each time, whose mappings must stay.
    """
    blueprint = blueprint_of(provider).get_empty_like_self()
    blueprint.set_apply_mapping(False)
    return blueprint


_LOADING = {"get_data", "load_fields", "load_clips"}


class SampleLoader:
    """Loads samples of a provider as flat tuples. The expected format is read once per process."""

    def __init__(self, provider: DataProvider) -> None:
        """Set the provider; nothing is read yet."""
        self.provider = provider
        self._format: GroupFormat | None = None

    def __getstate__(self) -> dict[str, object]:
        return {"provider": self.provider, "_format": None}

    def load(self, sample_index: int) -> FlatSample:
        """Load a sample. An exception carries the index as ``sample_index_in_data_set`` and as a note."""
        try:
            return self._flat(self.provider.get_data(sample_index), "get_data({})", sample_index)
        except BaseException as error:  # e.g. a panic of an extension written in Rust
            self._raise_named(error, f"get_data({sample_index})", sample_index)

    def load_batch(self, sample_indices: Sequence[int], slots: Sequence[int]) -> Iterator[FlatSample]:
        """Load all samples of a batch, with their numbers in it, one after the other; see `load`."""
        if getattr(self.provider, "loads_batches", False):
            return self._load_together(sample_indices, slots)
        return map(self.load, sample_indices)

    def load_fields(self, wanted: WantedFields) -> FieldColumns:
        """Load some fields of some samples, see `DataProvider.load_fields`; whole samples where need be."""
        loaded = self.provider.load_fields(wanted) if self.has_own_fields else None
        if loaded is None:
            self._format = self._format or blueprint_of(self.provider).format
            places = {path: place for place, path in enumerate(self._format.flat_paths)}
            indices = dict.fromkeys(itertools.chain.from_iterable(wanted.values()))
            samples = {index: self.load(index) for index in indices}
            return {path: [samples[index][places[path]] for index in of] for path, of in wanted.items()}
        for path, of in wanted.items():
            if path not in loaded or len(loaded[path]) != len(of):
                rule = f"{type(self.provider).__name__}.load_fields must deliver {len(of)} values"
                got = len(loaded[path]) if path in loaded else "none"
                raise FieldValueError(f"{rule} of {format_path(path)}, got {got}.")
        return loaded

    def load_clips(self, path: FieldPath, samples: npt.NDArray[np.int64]) -> Sequence[EncodedClipValue] | None:
        """Cut clips out of encoded videos, see `DataProvider.load_clips`."""
        return self.provider.load_clips(path, samples) if self._defines("load_clips") else None

    @property
    def has_own_fields(self) -> bool:
        """Whether the provider has a way to load single fields."""
        return self._defines("load_fields")

    def _defines(self, method: str) -> bool:
        """Whether a way of loading is that of the class that defines how samples are loaded, not of one below."""
        owner = next(cls for cls in type(self.provider).__mro__ if _LOADING & vars(cls).keys())
        return method in vars(owner)

    def _load_together(self, sample_indices: Sequence[int], slots: Sequence[int]) -> Iterator[FlatSample]:
        samples: Iterator[SampleDataGroup] | None = None
        for number, sample_index in enumerate(sample_indices):
            call = f"load_batch of {len(sample_indices)} samples, for sample {number},"
            try:
                if samples is None:
                    samples = iter(self.provider.load_batch(sample_indices, slots))
                flat = self._flat(next(samples), call, sample_index)
            except BaseException as error:
                self._raise_named(error, call, sample_index)
            yield flat

    def _flat(self, sample: object, call: str, sample_index: int) -> FlatSample:
        if not isinstance(sample, SampleDataGroup) or sample.format is not self._format:
            self._check(sample, call.format(sample_index))
        return tuple(cast(SampleDataGroup, sample).get_data())

    def _raise_named(self, error: BaseException, call: str, sample_index: int) -> NoReturn:
        """Raise the exception that a sample caused, with the index of the sample."""
        if isinstance(error, KeyboardInterrupt):
            raise error
        if not isinstance(error, StopIteration):
            name_sample(error, sample_index)
            raise error
        # Passed on, it would end the epoch silently.
        stopped = RuntimeError(f"{type(self.provider).__name__}.{call} raised StopIteration")
        name_sample(stopped, sample_index)
        raise stopped from error

    def _check(self, sample: object, call: str) -> None:
        provider = type(self.provider).__name__
        if not isinstance(sample, SampleDataGroup):
            got = sample if sample is None else type(sample).__name__
            advice = "Start with `sample = self.new_sample()`, set its fields, and return it."
            raise FieldValueError(f"{provider}.{call} must return a filled SampleDataGroup, got {got}. {advice}")
        if self._format is None:
            self._format = blueprint_of(self.provider).format
        if not sample.format.matches(self._format):
            raise FieldValueError(
                f"{provider}.{call} returned a sample of another format than "
                f"{provider}.sample_data_structure, which must declare all fields:\n"
                f"{describe_difference(self._format, sample.format)}"
            )
        self._format = sample.format  # one object for all samples of `new_sample`: `_flat` need not compare them


def next_sample(samples: Iterator[SampleDataGroup], provider: DataProvider, what: str) -> SampleDataGroup:
    """Get the next sample of a batch that a wrapped provider loads; a RuntimeError where there is none."""
    try:
        return next(samples)
    except StopIteration as error:
        rule = f"{type(provider).__name__}.load_batch must deliver as many samples as are requested"
        raise RuntimeError(f"{rule}, got none for {what}.") from error


def name_sample(error: BaseException, sample_index: int) -> None:
    """Attach the index of the sample that was being loaded to an exception."""
    if named_index(error) is not None:
        return
    set_named_index(error, sample_index)
    add_note(error, f"raised while sample {sample_index} of the data set was loaded")


def rename_sample(error: BaseException, sample_index: int, owner: str) -> None:
    """Replace the index of a sample of a wrapped provider by that of the provider that wraps it.

    ``error`` carries the former; ``owner`` is the name of the wrapped provider, for the note.
    """
    known = named_index(error)
    set_named_index(error, sample_index)
    add_note(error, f"sample {known} of `{owner}` is sample {sample_index} of the provider that wraps it")


# Classes of the user may refuse to be read or changed, so nothing here may fail.


def named_index(error: BaseException) -> int | None:
    """Index of the sample that an exception carries as ``sample_index_in_data_set``; None where it has none."""
    try:
        return cast("int | None", getattr(error, "sample_index_in_data_set", None))
    except Exception:
        return None


def set_named_index(error: BaseException, sample_index: int) -> None:
    """Have an exception carry the index of a sample."""
    vars(error)["sample_index_in_data_set"] = sample_index


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an exception, where Python knows notes (3.11 and later)."""
    if hasattr(BaseException, "add_note"):
        with contextlib.suppress(Exception):
            BaseException.add_note(error, note)
