# SPDX-License-Identifier: Apache-2.0
"""Several data sets as one."""

from __future__ import annotations

import bisect
import contextlib
import itertools
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import SupportsIndex

import numpy as np
import numpy.typing as npt

from ..checks import bullets, index_in, instance
from ..errors import FieldValueError, SettingError, error_that_is_also
from ..sample_data import FieldPath, FormatProblem, GroupFormat, ImageContent, SampleDataGroup, format_error
from ..sample_data.conversion import FieldValue
from ..sample_data.formats import describe_difference
from ..sample_data.sample_data_group import replace_contents
from ..sampling.arithmetic.last_batch import checked_lengths
from ..unknown_arguments import explains_unknown_arguments
from .data_provider import (
    DataProvider,
    EncodedClipValue,
    FieldColumns,
    Finding,
    WantedFields,
    blueprint_of,
    check_number_of_samples,
)
from .sample_loading import SampleLoader, named_index, next_sample, rename_sample

_MOST_LABELS_PER_FIELD = 3


class ConcatDataProvider(DataProvider):
    """The samples of several providers, one provider after the other.

    Sample ``i`` of provider ``p`` is sample ``offsets[p] + i`` of the whole::

        providers      |    day, 4   | night, 2 |  rain, 3  |
        sample index   |  0  1  2  3 |  4   5   |  6  7  8  |      offsets = [0, 4, 6]

    All blueprints must be of the same format: names, order and types. The whole has the blueprint of the first
    provider (without properties of images that not all providers share); each sample is filled by its own
    provider. In detail:

    *   Mappings from labels to numbers (`SampleDataGroup.add_data_field`) may differ between providers, e.g.
        ``{"car": 1}`` and ``{"vehicle.car": 1}``. But a label that is in several of them must have the same
        number in each. The same holds for the key None, whose number is that of all labels that are not listed.
        Make sure yourself that different labels with the same number mean the same. A provider without a mapping
        delivers numbers, which stay as they are.
    * Numbers of dimensions must be the same where several providers declare them. A field for which the first
      provider declares none is not checked.

    A provider that loads batches (`loads_batches`) gets its samples of a batch in one call. If a provider's
    exception has the index of a sample (``sample_index_in_data_set``), it is replaced by the index among all
    samples. `locate` finds the provider a sample index belongs to. A provider may occur several times, and may be
    a `ConcatDataProvider` itself.

    Attributes:
        providers: The providers, in order.

    Example:
        >>> from nvidia.dali.types import DALIDataType
        >>> class Frames(DataProvider):
        ...     def __init__(self, name, number):
        ...         self.name, self.number = name, number
        ...     def get_number_of_samples(self):
        ...         return self.number
        ...     @property
        ...     def sample_data_structure(self):
        ...         blueprint = SampleDataGroup()
        ...         blueprint.add_data_field("frame", DALIDataType.STRING)
        ...         return blueprint
        ...     def get_data(self, sample_index):
        ...         sample = self.new_sample()
        ...         sample["frame"] = f"{self.name} {sample_index}"
        ...         return sample
        >>> provider = ConcatDataProvider([Frames("day", 4), Frames("night", 2), Frames("rain", 3)])
        >>> provider.get_number_of_samples(), provider.locate(5), provider.get_data(5)["frame"]
        (9, (1, 1), 'night 1')
    """

    @explains_unknown_arguments
    def __init__(self, providers: Sequence[DataProvider]) -> None:
        """Join the providers. Their numbers of samples and their blueprints are read once, here.

        Args:
            providers: At least one provider, each with at least one sample.

        Raises:
            SettingError: There is no provider, one is not an instance of `DataProvider` (e.g. it is a class), or
                one has no samples.
            FieldValueError: A blueprint is not a `SampleDataGroup`.
            FormatError: The blueprints do not go together; the message lists all that differs.
        """
        self.providers = _checked_providers(providers)
        counts = [_number_of_samples(provider, position) for position, provider in enumerate(self.providers)]
        # Plain ints: an array would lose its write protection on the way to a worker process.
        self._starts = (0, *itertools.accumulate(counts[:-1]))
        self._num_samples = sum(counts)
        _check_formats(self.providers)

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """Index of the first sample of each provider: ``(num_providers,)`` int64, read-only."""
        return _read_only(np.array(self._starts, np.int64))

    @property
    def sequence_lengths(self) -> npt.NDArray[np.int64]:
        """Number of samples of each sequence of all providers: ``(num_sequences,)`` int64, read-only.

        Raises:
            SettingError: A provider has no attribute ``sequence_lengths`` (the error is also an AttributeError),
                or its sequences do not cover its samples one after the other.
        """
        counts = np.diff([*self._starts, self._num_samples]).tolist()
        lengths = map(_sequence_lengths, self.providers, itertools.count(), counts)
        return _read_only(np.concatenate([*lengths]))

    @property
    def sample_data_structure(self) -> SampleDataGroup:
        """Blueprint of the first provider, without properties of images that not all providers share."""
        blueprint, *others = map(blueprint_of, self.providers)
        format = blueprint.format
        leaves = zip(format.flat_leaves, *(other.format.flat_leaves for other in others), strict=True)
        contents = [
            own.content if all(leaf.content == own.content for leaf in rest) else ImageContent()
            for own, *rest in leaves
        ]
        common = format.with_contents(dict(zip(format.flat_paths, contents, strict=True)))
        if common == format:
            return blueprint
        blueprint = blueprint.get_empty_like_self()
        replace_contents(blueprint, common)
        return blueprint

    def get_number_of_samples(self) -> int:
        """Get the number of samples of all providers together."""
        return self._num_samples

    def get_data(self, sample_index: int) -> SampleDataGroup:
        """Load one sample from the provider it belongs to, see `locate`."""
        position, index = self.locate(sample_index)
        with self._naming_own_samples(position):
            return self.providers[position].get_data(index)

    def describe_sample(self, sample_index: int) -> str:
        """Describe the origin of a sample, as its provider does."""
        position, index = self.locate(sample_index)
        return self.providers[position].describe_sample(index)

    @property
    def loads_batches(self) -> bool:
        """Whether at least one of the providers loads batches."""
        return any(provider.loads_batches for provider in self.providers)

    def load_batch(self, sample_indices: Sequence[int], slots: Sequence[int]) -> Iterator[SampleDataGroup]:
        """Load the samples of a batch, by one call of `load_batch` of each provider."""
        located = [*map(self.locate, sample_indices)]
        loading: dict[int, Iterator[SampleDataGroup]] = {}
        for position in dict.fromkeys(position for position, _ in located):
            provider = self.providers[position]
            numbers = [number for number, (owner, _) in enumerate(located) if owner == position]
            indices, own_slots = [located[number][1] for number in numbers], [slots[number] for number in numbers]
            together = provider.loads_batches
            with self._naming_own_samples(position):  # it may load at once
                loading[position] = iter(
                    provider.load_batch(indices, own_slots) if together else map(provider.get_data, indices)
                )
        for position, index in located:
            with self._naming_own_samples(position):
                sample = next_sample(loading[position], self.providers[position], f"index {index}")
            yield sample

    def load_fields(self, wanted: WantedFields) -> FieldColumns:
        """Load some fields of some samples, each by its provider."""
        located = {path: [*map(self.locate, indices)] for path, indices in wanted.items()}
        loaded: dict[int, dict[FieldPath, Iterator[FieldValue]]] = {}
        for position in dict.fromkeys(owner for places in located.values() for owner, _ in places):
            own = {path: [i for owner, i in places if owner == position] for path, places in located.items()}
            with self._naming_own_samples(position):
                columns = SampleLoader(self.providers[position]).load_fields({p: i for p, i in own.items() if i})
            loaded[position] = {path: iter(column) for path, column in columns.items()}
        return {path: [next(loaded[owner][path]) for owner, _ in places] for path, places in located.items()}

    def load_clips(self, path: FieldPath, samples: npt.NDArray[np.int64]) -> Sequence[EncodedClipValue] | None:
        """Get a video file for each row of ``samples``, with its frames, see `DataProvider.load_clips`.

        All samples of a row must be of the same provider. None if one of the providers has no encoded videos.
        """
        clips: list[EncodedClipValue] = []
        if any(SampleLoader(provider).load_clips(path, samples[:0]) is None for provider in self.providers):
            return None
        for row in samples:
            position, _ = self.locate(row[0])
            with self._naming_own_samples(position):
                own = SampleLoader(self.providers[position])
                clips += own.load_clips(path, row[None] - self._starts[position]) or ()
        return clips

    def frame_times_s(self, path: FieldPath = ()) -> npt.NDArray[np.float64] | None:
        """Get the times of all samples, or of a field in each; None if a provider does not know its own."""
        times = [provider.frame_times_s(path) for provider in self.providers]
        if path and any(each is not None for each in times):  # some have those of their samples
            times = [
                provider.frame_times_s() if each is None else each
                for provider, each in zip(self.providers, times, strict=True)
            ]
        known = [each for each in times if each is not None]
        return np.concatenate(known) if len(known) == len(times) else None

    def contract_findings(self, samples: Mapping[int, SampleDataGroup], seed: int) -> Iterable[Finding]:
        """Check the rules of each provider on the given samples that it has; if it has none, on its first one."""
        bounds = (*self._starts, self._num_samples)
        for provider, first, end in zip(self.providers, bounds, bounds[1:], strict=False):
            own = {index - first: sample for index, sample in samples.items() if first <= index < end}
            yield from provider.contract_findings(own or {0: provider.get_data(0)}, seed)

    @contextlib.contextmanager
    def _naming_own_samples(self, position: int) -> Iterator[None]:
        """Have errors of a provider carry the index of the sample in the whole."""
        try:
            yield
        except BaseException as error:
            index = named_index(error)
            if index is not None:
                rename_sample(error, self._starts[position] + index, f"providers[{position}]")
            raise

    def locate(self, sample_index: SupportsIndex) -> tuple[int, int]:
        """Find the position of the provider that a sample belongs to, and the index of the sample in it.

        Raises:
            SettingError: There is no sample of this index, or it is negative; the error is also an IndexError.
        """
        index = index_in(sample_index, "sample_index", self._num_samples)
        position = bisect.bisect_right(self._starts, index) - 1
        return position, index - self._starts[position]


def _read_only(array: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    array.flags.writeable = False
    return array


# --- checks at construction ------------------------------------------------------------------------------


def _checked_providers(providers: Sequence[DataProvider]) -> tuple[DataProvider, ...]:
    if isinstance(providers, DataProvider) or not isinstance(providers, Sequence):
        got = f"got {type(providers).__name__}. For a single provider write `[provider]`"
        raise SettingError(f"`providers` must be a list of data providers, {got}.")
    if not providers:
        raise SettingError("`providers` must hold at least one data provider, got none.")
    return tuple(instance(each, f"providers[{position}]", DataProvider) for position, each in enumerate(providers))


def _number_of_samples(provider: DataProvider, position: int) -> int:
    try:
        return check_number_of_samples(provider)
    except SettingError as error:
        raise SettingError(f"`providers[{position}]`: {error}") from error


def _parts(providers: Sequence[DataProvider], prefix: str = "") -> Iterator[tuple[str, GroupFormat]]:
    # A concatenation shows the blueprint of its first provider only, which hides the mappings of the others.
    for position, provider in enumerate(providers):
        name = f"{prefix}providers[{position}]"
        if isinstance(provider, ConcatDataProvider):
            yield from _parts(provider.providers, f"{name}.")
            continue
        try:
            blueprint = blueprint_of(provider)
        except FieldValueError as error:
            raise FieldValueError(f"`{name}`: {error}") from error
        yield f"{name} ({type(provider).__name__})", blueprint.format


def _check_formats(providers: Sequence[DataProvider]) -> None:
    formats = dict(_parts(providers))
    first_name, first = next(iter(formats.items()))
    problems = [
        FormatProblem(
            f"{name}, compared with the blueprint of {first_name}:\n{describe_difference(first, format)}"
        )
        for name, format in formats.items()
        if not format.matches(first)
    ]
    alike = {name: format for name, format in formats.items() if format.matches(first)}
    if len({*alike.values()}) > 1:  # they differ in mappings or numbers of dimensions
        problems += _clashes(alike)
    if problems:
        raise format_error(problems, "The blueprints of the providers do not go together:")


def _clashes(formats: Mapping[str, GroupFormat]) -> Iterator[FormatProblem]:
    """Find declarations of the same field that contradict each other; the formats match."""
    for field, path in enumerate(next(iter(formats.values())).flat_paths):
        ranks: dict[int, str] = {}  # number of dimensions -> the provider that declares it
        numbers: dict[Hashable, tuple[float, str]] = {}  # label -> its number, and the provider with it
        labels: dict[Hashable, str] = {}  # label -> the contradiction
        for name, format in formats.items():
            leaf = format.flat_leaves[field]
            if leaf.ndim is not None:
                ranks.setdefault(leaf.ndim, name)
            for label, number in (leaf.mapping or {}).items():
                known, owner = numbers.setdefault(label, (number, name))
                # A NaN is not equal to itself, but written alike.
                if not np.array_equal(known, number) and repr(known) != repr(number):
                    what = "unlisted labels (the key None)" if label is None else f"label {label!r}"
                    labels.setdefault(label, f"{what}: {known!r} in {owner}, {number!r} in {name}")
        if len(ranks) > 1:
            declared = ", ".join(f"{ndim} in {owner}" for ndim, owner in ranks.items())
            yield FormatProblem(f"the numbers of dimensions must be the same, got {declared}", path)
        if labels:
            lines = bullets(labels.values(), _MOST_LABELS_PER_FIELD)
            yield FormatProblem(f"the mappings must give a label the same number, got:\n{lines}", path)


def _sequence_lengths(provider: DataProvider, position: int, num_samples: int) -> npt.NDArray[np.int64]:
    name = f"`providers[{position}]` ({type(provider).__name__})"
    try:
        given = provider.sequence_lengths  # type: ignore[attr-defined]
    except AttributeError as error:
        # `hasattr` looks for an AttributeError.
        raise error_that_is_also(
            SettingError,
            (AttributeError,),
            f"All providers must have the attribute `sequence_lengths` (the number of samples of each sequence), "
            f"but {name} has none: {error}",
        ) from error
    lengths = checked_lengths(given, f"providers[{position}].sequence_lengths")
    if int(lengths.sum()) != num_samples:
        got = f"`sequence_lengths` add up to {int(lengths.sum())} and it has {num_samples} samples"
        raise SettingError(f"The sequences of {name} must cover its samples one after the other, but {got}.")
    return lengths
