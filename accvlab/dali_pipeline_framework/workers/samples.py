# SPDX-License-Identifier: Apache-2.0
"""Samples in a worker, from loading to sending: checks, steps on arrays, progress of a batch."""

from __future__ import annotations

import collections
import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias

import attrs
import numpy as np
import numpy.typing as npt

from ..errors import text_of
from ..limits.file_limits import IMAGE_PIXELS
from ..limits.image_limits import claimed_size, jpeg_damage, too_large
from ..sample_data import FieldPath, GroupFormat
from ..sample_data.names import described_together, format_path

Array: TypeAlias = npt.NDArray[Any]
DType: TypeAlias = np.dtype[Any]
Flat: TypeAlias = Sequence[Array]
"""The arrays of a sample, field by field."""

Items: TypeAlias = tuple[int, ...]
"""What makes up a folded field, element by element: positions among the flat fields of a sample and, after them,
its random draws."""

# Of one array. Operators of DALI count elements with 32 bits in places.
MOST_BYTES = 2**31 - 1


_ndim_of = operator.attrgetter("ndim")
_dtype_of = operator.attrgetter("dtype")


@attrs.define(eq=False)
class OddSampleError(Exception):
    """A sample of a batch does not go with the others, or cannot travel.

    Attributes:
        number: Which one of the batch.
        problem: What is wrong, in lines.
    """

    number: int
    problem: str


class SampleChecker:
    """Checks flat samples against the blueprint of the input.

    Attributes:
        usual_ranks: Numbers of dimensions of the fields in the first batch.
    """

    def __init__(
        self,
        blueprint: GroupFormat,
        producer: str,
        *,
        checks_images: bool = False,
    ) -> None:
        """Set up.

        Args:
            blueprint: Format of the samples.
            producer: Class of the input, for messages.
            checks_images: Whether the compressed data of JPEG files are checked, see `jpeg_damage`.
        """
        self._checks_images = checks_images
        self._producer = producer
        self._paths = blueprint.flat_paths
        self._dtypes = [leaf.numpy_dtype for leaf in blueprint.flat_leaves]
        self._types = [np.ndarray] * len(self._paths)
        self._declared_ndims = [
            (position, leaf.ndim) for position, leaf in enumerate(blueprint.flat_leaves) if leaf.ndim is not None
        ]
        self.usual_ranks: list[int] | None = None
        self._most_pixels = IMAGE_PIXELS.most
        self._image_files = [
            position for position, leaf in enumerate(blueprint.flat_leaves) if leaf.content.is_encoded
        ]

    def check(self, flat: object) -> Flat:
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
        arrays: Flat = flat
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
            damage = jpeg_damage(arrays[position]) if self._checks_images else ""
            if damage:
                raise ValueError(f"  - {format_path(self._paths[position])}: {damage}")
        return arrays

    def _problems(self, values: Sequence[object]) -> Iterator[tuple[FieldPath, str]]:
        declared_ndims = dict(self._declared_ndims)
        for position, (path, value, dtype) in enumerate(zip(self._paths, values, self._dtypes, strict=True)):
            if value is None:
                yield path, "is not set"
                continue
            if isinstance(value, Exception):
                yield path, f"cannot be read as an array: {type(value).__name__}: {text_of(value)}"
                continue
            if not isinstance(value, np.ndarray):
                yield path, f"expected an array, got {type(value).__name__}"
                continue
            if value.dtype != dtype:
                yield path, f"expected dtype {dtype}, got {value.dtype} (shape {value.shape})"
            ndim = declared_ndims.get(position, value.ndim)
            if value.ndim != ndim:
                yield path, f"expected {ndim} dimension(s) as declared, got {value.ndim} (shape {value.shape})"

    def find_odd_rank(self, samples: Sequence[Flat]) -> tuple[int, int] | None:
        """Find a sample whose fields have other numbers of dimensions than in most samples of the batch.

        Returns:
            The slots of the odd sample and of one that it differs from; None if there is none.
        """
        ranks: list[list[int]] = [list(map(_ndim_of, sample)) for sample in samples]
        counts = collections.Counter(tuple(sample_ranks) for sample_ranks in ranks)
        expected = [*max(counts, key=lambda each: (counts[each], [*each] == self.usual_ranks))]
        odd = next((slot for slot, sample_ranks in enumerate(ranks) if sample_ranks != expected), None)
        return None if odd is None else (odd, ranks.index(expected))

    def describe_rank_clash(self, sample: Flat, other: Flat, other_name: str) -> str:
        """Say in which fields a sample differs from another one in the number of dimensions."""
        clashes = (
            (path, f"expected {expected.ndim} dimension(s) as in {other_name} of the same batch, got {got.ndim}")
            for path, expected, got in zip(self._paths, other, sample, strict=True)
            if expected.ndim != got.ndim
        )
        return "\n".join(f"  - {text}" for text in described_together(clashes))

    def describe_too_large(self, samples: Sequence[Flat], items: Items) -> tuple[int, str]:
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

    def describe_clash_of_elements(self, sample: Flat, fields: Sequence[Items]) -> str:
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
    """Steps that are applied to samples of arrays, where these are loaded.

    Attributes:
        names: Of each step, its name for people.
        times_ns: Time that each has taken since this was set to zeros.
    """

    names: Sequence[str]
    times_ns: list[int]

    @property
    def output_format(self) -> GroupFormat:
        """Format that comes out."""

    @property
    def deferred(self) -> Sequence[object]:
        """Steps whose pixels are changed in the graph."""

    def __call__(self, flat: Flat, numbers: Callable[[int], Array]) -> Flat:
        """Apply them to the arrays of a sample; ``numbers`` gives the numbers of each draw."""


class SampleStepError(Exception):
    """A step failed; the cause is what it has raised.

    Attributes:
        step: Number and class of the step, for messages.
    """

    def __init__(self, step: str) -> None:
        """Keep which step it was."""
        super().__init__(step)
        self.step = step


def of_step(error: BaseException) -> BaseException:
    """Get what a step has raised from the exception that names the step."""
    if isinstance(error, SampleStepError) and error.__cause__ is not None:
        return error.__cause__
    return error


def named_step(error: BaseException, sample_index: int | None) -> str:
    """What has failed, where steps were applied to a sample."""
    if not isinstance(error, SampleStepError):
        return "Preparing the steps that run in the workers"
    of_sample = "a sample" if sample_index is None else f"sample {sample_index}"
    return f"{error.step[0].upper()}{error.step[1:]} on {of_sample}"
