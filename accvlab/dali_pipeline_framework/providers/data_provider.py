# SPDX-License-Identifier: Apache-2.0
"""Base class of the user's description of a data set."""

from __future__ import annotations

import inspect
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from ..errors import FieldValueError, NotSupportedError, SettingError
from ..sample_data import FieldPath, FieldValue, SampleDataGroup
from ..sample_data.formats import describe_difference
from ..sampling.random_access_sampler import SamplerBase

WantedFields: TypeAlias = Mapping[FieldPath, Sequence[int]]
"""By the path of a field: the samples of which it is needed, in any order, possibly with repetitions."""

FieldColumn: TypeAlias = Sequence[FieldValue] | npt.NDArray[Any]
"""Values of a field, as flat samples hold them; a list, or an array with one in each row."""

FieldColumns: TypeAlias = Mapping[FieldPath, FieldColumn]
"""By the path of a field: its values."""

EncodedClipValue: TypeAlias = tuple[FieldValue, FieldValue]
"""The bytes of a video file, and the numbers of frames in it."""


@attrs.frozen
class Finding:
    """Result of the check of a rule.

    Attributes:
        rule: The rule, as a sentence.
        figure: The measured value, as a line of what ``check_provider`` returns; empty if nothing is measured.
        problems: Problems, each with a remedy.
    """

    rule: str
    figure: str = ""
    problems: Sequence[str] = ()


class _ReadBlueprint:
    """The blueprint that `new_sample` has read for one provider, not for copies of it; pickled, it is None."""

    def __init__(self, provider: DataProvider) -> None:
        self.provider = weakref.ref(provider)
        self.blueprint = blueprint_of(provider).get_empty_like_self()  # the provider may change its own

    def __reduce__(self) -> tuple[object, ...]:
        return type(None), ()


class DataProvider(ABC):
    """Random access to the samples of a data set, and their format.

    A provider is written for a data set *and* a use: its blueprint has the fields of a sample of this training. A
    provider does not depend on order, batches, shards or workers.

    Each worker process has a copy. With spawned workers the provider is pickled, so keep its attributes small (a
    path instead of a table), and open files, memory maps and databases on first use.
    """

    _read_blueprint: _ReadBlueprint | None = None

    @abstractmethod
    def get_data(self, sample_index: int) -> SampleDataGroup:
        """Load one sample.

        Args:
            sample_index: Index of the sample, in ``[0, get_number_of_samples())``.

        Returns:
            A group of the format of `sample_data_structure`, with all data fields set.
        """

    @abstractmethod
    def get_number_of_samples(self) -> int:
        """Get the number of samples in the data set."""

    def __len__(self) -> int:
        """Get the number of samples in the data set, as for data sets of PyTorch."""
        return self.get_number_of_samples()

    def __getitems__(self, sample_indices: Sequence[int]) -> list[object]:
        """Raise an error for a loader of PyTorch, which calls this method before it requests single items.

        Accelerate's ``skip_first_batches``, which the Trainer of Hugging Face calls to resume a training, makes
        such a loader from the data set of a loader of this package, without its steps.

        Raises:
            NotSupportedError: The provider does not define ``__getitem__``.
        """
        get_item = getattr(type(self), "__getitem__", None)
        if get_item is not None:
            return [get_item(self, index) for index in sample_indices]
        raise NotSupportedError(
            f"{type(self).__name__} is loaded by a loader of PyTorch, or by one that `skip_first_batches` of "
            f"Accelerate has made of a loader of this package; steps and order would be lost. Have the loader go "
            f"on by `load_state_dict`, and the Trainer of Hugging Face not skip batches (`ignore_data_skip=True`)."
        )

    def __bool__(self) -> bool:
        """Return True: a provider without samples is still a provider."""
        return True

    @property
    @abstractmethod
    def sample_data_structure(self) -> SampleDataGroup:
        """Blueprint of the samples: the format, without values."""

    def new_sample(self) -> SampleDataGroup:
        """Make an empty sample of the blueprint, for `get_data` to fill.

        The blueprint is read once, by the first call; copies of the provider, also those in spawned workers, read
        their own. So attributes that it depends on must be set before the first sample.

        Raises:
            FieldValueError: The blueprint is not a `SampleDataGroup`. A loader raises this error, too, if the
                provider's blueprint has changed since it was read here.
        """
        read = self._read_blueprint
        if read is None or read.provider() is not self:
            read = _ReadBlueprint(self)
            vars(self)["_read_blueprint"] = read  # a frozen class refuses an assignment
        return read.blueprint.get_empty_like_self()

    def describe_sample(self, sample_index: int) -> str:
        """Describe the origin of a sample, e.g. its files, for messages about it; may be empty."""
        return ""

    def contract_findings(self, samples: Mapping[int, SampleDataGroup], seed: int) -> Iterable[Finding]:
        """Check the rules that samples of this provider keep beyond their format, for `testing.check_provider`.

        Args:
            samples: Some samples that fit the blueprint, by their index.
            seed: Seed for the choice of further samples.

        Returns:
            The findings of each rule (`testing.Finding`).
        """
        return ()

    @property
    def loads_batches(self) -> bool:
        """Whether `load_batch` is used instead of `get_data`, since samples of a batch share work."""
        return False

    def load_batch(self, sample_indices: Sequence[int], slots: Sequence[int]) -> Iterator[SampleDataGroup]:
        """Load the samples of a batch, one after the other, each when it is requested.

        The inputs of this package call it in place of `get_data` where `loads_batches` is True. Override both
        where samples of a batch can share work, as overlapping sequences of frames do. `get_data` must give the
        same samples: after a failure of a batch, its samples are loaded again one by one.

        A provider that wraps another one forwards `describe_sample`, `loads_batches` and this method, and passes
        the slots on.

        Args:
            sample_indices: Samples of one batch, in its order, possibly with repetitions: all of the batch, or the
                part that a wrapping provider takes from this one.
            slots: Position of each sample in the whole batch, ascending.

        Returns:
            As many samples as there are indices. An exception is attributed to the sample being loaded, unless it
            carries the attribute ``sample_index_in_data_set``.
        """
        return map(self.get_data, sample_indices)

    def load_fields(self, wanted: WantedFields) -> FieldColumns | None:
        """Load some fields of some samples, and nothing else, for `Windows`.

        Override it where that is cheaper than `get_data`: numbers without their pictures, or several frames of a
        video in one pass of its decoder. It is not used for a class derived from yours that overrides `get_data`
        alone: whole samples are loaded then.

        Args:
            wanted: For the path of each field the indices of the samples, in any order, possibly with repetitions.

        Returns:
            For each path the values that `get_data` gives, in the order of the indices: a list, or an array with
            the samples along its first axis. None (the default) to have whole samples loaded by `get_data`. An
            exception may carry the index of the sample as ``sample_index_in_data_set``.
        """
        return None

    def load_clips(self, path: FieldPath, samples: npt.NDArray[np.int64]) -> Sequence[EncodedClipValue] | None:
        """Cut frames of an encoded video out as one file, for `Windows`.

        Args:
            path: Path of a field that has, in each sample, the bytes of a video file with the frame of the sample.
            samples: ``(n, T)`` samples; each row is of one sequence, and becomes a file. With ``n`` of 0, the call
                only finds out whether the provider can cut.

        Returns:
            For each row the bytes of a file, ``(num_bytes,)`` uint8, and the numbers of the frames in it,
            ``(T,)`` int32. None (the default) where clips cannot be cut out.
        """
        return None

    def frame_times_s(self, path: FieldPath = ()) -> npt.NDArray[np.float64] | None:
        """Get the times of all samples, ``(N,)`` float64, seconds, ascending in each sequence; None if not known.

        Args:
            path: Path of a field whose values were taken at other times than the samples, e.g. by a camera. The
                empty path gives the times of the samples. The time is NaN for a sample without a value of its own.
                If the result for a field is None, the field has the times of the samples.
        """
        return None


class BlueprintProvider(DataProvider, ABC):
    """A data provider that makes its blueprint once, in the constructor."""

    _blueprint: SampleDataGroup

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        """Blueprint of a sample, see the class."""
        return self._blueprint.get_empty_like_self()


def blueprint_of(provider: DataProvider) -> SampleDataGroup:
    """Read a blueprint; a `FieldValueError` where it is invalid, or differs from the one of `new_sample`."""
    blueprint, name = provider.sample_data_structure, f"{type(provider).__name__}.sample_data_structure"
    if not isinstance(blueprint, SampleDataGroup):
        hint = " Put `@property` above it." if inspect.ismethod(blueprint) else ""
        raise FieldValueError(f"{name} must be a SampleDataGroup, got {type(blueprint).__name__}.{hint}")
    read = getattr(provider, "_read_blueprint", None)
    if read is not None and read.provider() is provider and read.blueprint.format != blueprint.format:
        raise FieldValueError(
            f"{name} must not change after the first `new_sample()`, which has read it for all samples. Change "
            f"the provider before, or a copy (`copy.copy`) of it. The changes:\n"
            f"{describe_difference(read.blueprint.format, blueprint.format)}"
        )
    return blueprint


_LONGEST = 400


def summary(value: object) -> str:
    """Describe an object in one line of at most 400 characters: its ``repr``, where its class defines one.

    Otherwise the name of its class, and the number of samples of a data set.
    """
    if any("__repr__" in cls.__dict__ for cls in type(value).__mro__ if cls is not object):
        text = " ".join(repr(value).split())
    elif isinstance(value, DataProvider):
        text = f"{type(value).__name__}({value.get_number_of_samples()} samples)"
    else:
        text = type(value).__name__
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def check_number_of_samples(provider: DataProvider) -> int:
    """Get the number of samples of a data set; a `SettingError` where there is none."""
    if isinstance(provider, type):
        raise SettingError(f"The data provider must be an object, got the class {provider.__name__}.")
    if not hasattr(provider, "get_number_of_samples"):
        advice = "(Native readers and streams are inputs themselves: give them to the PipelineDefinition.)"
        raise SettingError(f"The data provider must be a DataProvider, got {type(provider).__name__}. {advice}")
    count = provider.get_number_of_samples()
    if count < 1:
        found = f"{type(provider).__name__}.get_number_of_samples() returned {count}"
        raise SettingError(f"The data set is empty: {found}. Check its path and filters.")
    return int(count)


def check_sampler_fits(sampler: SamplerBase, num_samples: int) -> None:
    """Raise a `SettingError` where a sampler is known to choose from more samples than the data set has."""
    expected = getattr(sampler, "num_samples", None)
    if isinstance(expected, int) and expected > num_samples:
        problem = f"The {type(sampler).__name__} is set up for {expected} samples"
        advice = "Its sequence lengths, weights, or number of samples must be those of this data set."
        raise SettingError(f"{problem}, but the data set has only {num_samples}. {advice}")
