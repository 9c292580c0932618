# SPDX-License-Identifier: Apache-2.0
"""Images of a sample in a worker whose pixels the graph makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from ..errors import FieldValueError
from ..sample_data import FieldPath
from ..sample_data.names import format_path
from . import image_arrays
from .functions import Array, Value


@attrs.frozen(eq=False)
class DeferredImage:
    """Placeholder of an image in a sample of arrays whose pixels are decoded and changed in the graph.

    It has the shape and type of an array, but no pixels. To note a change for the graph, a step on arrays
    replaces it by the result of `changed`.

    Attributes:
        source: The bytes of an image file, or the pixels of the input, which are sent to the graph.
        dtype: Type after the changes that were noted.
        ndim: Number of axes after them.
        find_shape: Gives the shape after them; called only if a step reads the shape.
        path: Path of the image in the sample.
        parameters: For each change its numbers, in the order in which the step declares them.
        decoder: Name of the step by which the graph decodes the file; empty for none so far.
    """

    source: Array
    dtype: np.dtype[Any]
    ndim: int
    find_shape: Callable[[], tuple[int, ...]]
    path: FieldPath
    parameters: tuple[tuple[Value, ...], ...] = ()
    decoder: str = ""

    @classmethod
    def of(cls, array: Array, path: FieldPath) -> DeferredImage:
        """Defer the changes of an array, at a path of the sample."""
        return cls(array, array.dtype, array.ndim, lambda: array.shape, path)

    def __array__(self, *arguments: Any, **options: Any) -> Array:
        """Refuse to be read as an array, also by NumPy.

        Raises:
            TypeError: Always.
        """
        raise TypeError("a DeferredImage has no pixels")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array: ``(num_bytes,)`` of a file, ``(H, W, C)`` of an image."""
        return self.find_shape()

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape))

    @property
    def hw_of_file(self) -> npt.NDArray[np.float32]:
        """Height and width of the image in the file, from its header, ``(2,)``.

        Raises:
            FieldValueError: It is no image; names the field.
        """
        try:
            return np.array(image_arrays.image_size(self.source), np.float32)
        except FieldValueError as error:  # noticed by a step behind the decoder
            fails = f"{self.decoder} cannot decode it. " if self.decoder else ""
            raise FieldValueError(f"{format_path(self.path)}: {fails}{error}") from error

    def decoded(self, decoder: str) -> DeferredImage:
        """Record that a file is decoded as a whole, to RGB, by a step of a name."""
        named = attrs.evolve(self, decoder=decoder)
        changed = named.changed(find_shape=lambda: (*named.hw_of_file.astype(int).tolist(), 3))
        return attrs.evolve(changed, ndim=3)

    def changed(
        self,
        *parameters: Value,
        shape: tuple[int, ...] | None = None,
        find_shape: Callable[[], tuple[int, ...]] | None = None,
        dtype: npt.DTypeLike | None = None,
    ) -> DeferredImage:
        """Record a change.

        Args:
            *parameters: Parameters of the change, for the graph.
            shape: Shape after it; None where it stays, or where ``find_shape`` gives it.
            find_shape: Gives the shape after it, if a step reads it; the number of axes stays.
            dtype: Type after it; None where it stays.
        """
        return attrs.evolve(
            self,
            dtype=self.dtype if dtype is None else np.dtype(dtype),
            ndim=self.ndim if shape is None else len(shape),
            find_shape=find_shape or self.find_shape if shape is None else lambda: shape,
            parameters=(*self.parameters, parameters),
        )
